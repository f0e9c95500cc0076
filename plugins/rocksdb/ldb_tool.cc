/*
 * ldb with --fs_uri=unvme://... for each of its commands.
 *
 * Some of them (create_column_family, drop_column_family) refuse every option but --db, and `restore` writes the
 * database by the default Env, whatever --fs_uri says. The Env is therefore made here, before ldb reads its options,
 * and ldb gets it as one of its caller's.
 */
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <rocksdb/convenience.h>
#include <rocksdb/env.h>
#include <rocksdb/ldb_tool.h>
#include <rocksdb/options.h>
#include <rocksdb/utilities/backup_engine.h>

namespace {

/* That of --fs_uri, in a process that is ldb. */
rocksdb::Env *ldb_env = nullptr;

} // namespace

namespace ROCKSDB_NAMESPACE {

/* What LDBTool::Run() consists of; no header that is installed declares it. */
class LDBCommandRunner {
public:
    __attribute__((weak)) static int RunCommand(int argc, char const *const *argv, Options options,
                                                const LDBOptions &ldb_options,
                                                const std::vector<ColumnFamilyDescriptor> *column_families);
};

/* In the place of RocksDB's own, which ldb's main() calls. It does not return. */
__attribute__((visibility("default"))) void LDBTool::Run(int argc, char **argv, Options db_options,
                                                         const LDBOptions &ldb_options,
                                                         const std::vector<ColumnFamilyDescriptor> *column_families)
{
    static const std::string kOption = "--fs_uri=", kScheme = "unvme://";
    std::vector<char *> arguments;
    std::string uri;
    for (int at = 0; at < argc; at++) {
        const std::string argument = argv[at];
        if (argument.compare(0, kOption.size() + kScheme.size(), kOption + kScheme) == 0)
            uri = argument.substr(kOption.size());
        else
            arguments.push_back(argv[at]);
    }
    if (&LDBCommandRunner::RunCommand == nullptr) {
        fprintf(stderr, "unvme: this RocksDB has no LDBCommandRunner::RunCommand(), which ldb is run by\n");
        exit(1);
    }
    std::shared_ptr<Env> guard;
    if (!uri.empty()) {
        ConfigOptions strict;
        strict.ignore_unsupported_options = false;
        Env *env = Env::Default();
        Status status = Env::CreateFromUri(strict, "", uri, &env, &guard);
        if (!status.ok()) {
            fprintf(stderr, "%s\n", status.ToString().c_str());
            exit(1);
        }
        db_options.env = ldb_env = env;
    }
    const int count = (int)arguments.size();
    arguments.push_back(nullptr);
    int code = LDBCommandRunner::RunCommand(count, arguments.data(), db_options, ldb_options, column_families);
    /* Unmounts; a FileSystem that is left to exit() is only made durable. */
    db_options.env = Env::Default();
    ldb_env = nullptr;
    guard.reset();
    exit(code);
}

/* In the place of RocksDB's own, which it calls: `ldb restore` gives the default Env for both sides. */
__attribute__((visibility("default"))) IOStatus BackupEngineReadOnly::Open(const BackupEngineOptions &options,
                                                                           Env *db_env,
                                                                           BackupEngineReadOnly **backup_engine_ptr)
{
    using Function = IOStatus (*)(const BackupEngineOptions &, Env *, BackupEngineReadOnly **);
    Function own = &BackupEngineReadOnly::Open, next = nullptr;
    Dl_info found;
    if (dladdr((void *)own, &found) != 0 && found.dli_sname != nullptr)
        next = (Function)dlsym(RTLD_NEXT, found.dli_sname);
    if (next == nullptr)
        return IOStatus::NotSupported("unvme: RocksDB's BackupEngineReadOnly::Open() was not found");
    BackupEngineOptions changed = options;
    if (ldb_env != nullptr && db_env == Env::Default())
        db_env = ldb_env;
    /* `ldb backup` without --backup_fs_uri writes by the database's Env: it is read from where it was written. */
    if (ldb_env != nullptr && changed.backup_env == Env::Default())
        changed.backup_env = ldb_env;
    return next(changed, db_env, backup_engine_ptr);
}

} // namespace ROCKSDB_NAMESPACE

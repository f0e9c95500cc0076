#include "fs_unvme.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/utilities/object_registry.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unvme.h>

#include "files.h"
#include "log.h"
#include "mount.h"
#include "uri.h"

namespace unvme_rocksdb {

using rocksdb::DBOptions;
using rocksdb::FileOptions;
using rocksdb::FileSystem;
using rocksdb::FSDirectory;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSRandomRWFile;
using rocksdb::FSSequentialFile;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

namespace {

class Lock final : public rocksdb::FileLock {
public:
    explicit Lock(std::string name) : path(std::move(name)) {}
    const std::string path;
};

class UnvmeFileSystem final : public FileSystem {
public:
    UnvmeFileSystem(Uri uri, std::shared_ptr<Mount> mount) : uri_(std::move(uri)), mount_(std::move(mount)) {}

    static const char *kClassName() { return "UnvmeFileSystem"; }
    const char *Name() const override { return kClassName(); }
    const char *NickName() const override { return "unvme"; }
    /* What it can be made from again. */
    std::string GetId() const override { return uri_.text; }

    IOStatus NewSequentialFile(const std::string &name, const FileOptions &options,
                               std::unique_ptr<FSSequentialFile> *result, IODebugContext *) override
    {
        return Readable(name, options, NewSequential, result);
    }

    IOStatus NewRandomAccessFile(const std::string &name, const FileOptions &options,
                                 std::unique_ptr<FSRandomAccessFile> *result, IODebugContext *) override
    {
        return Readable(name, options, NewRandomAccess, result);
    }

    IOStatus NewWritableFile(const std::string &name, const FileOptions &options,
                             std::unique_ptr<FSWritableFile> *result, IODebugContext *) override
    {
        return Writable(name, O_CREAT | O_TRUNC, options, result);
    }

    IOStatus ReopenWritableFile(const std::string &name, const FileOptions &options,
                                std::unique_ptr<FSWritableFile> *result, IODebugContext *) override
    {
        return Writable(name, O_CREAT | O_APPEND, options, result);
    }

    IOStatus ReuseWritableFile(const std::string &name, const std::string &old, const FileOptions &options,
                               std::unique_ptr<FSWritableFile> *result, IODebugContext *debug) override
    {
        IOStatus status = RenameFile(old, name, IOOptions(), debug);
        return status.ok() ? Writable(name, 0, options, result) : status;
    }

    IOStatus NewRandomRWFile(const std::string &name, const FileOptions &, std::unique_ptr<FSRandomRWFile> *result,
                             IODebugContext *) override
    {
        std::unique_ptr<Handle> handle;
        IOStatus status = Open(name, O_RDWR | O_CREAT, &handle);
        result->reset();
        if (status.ok())
            *result = NewRandomRW(std::move(handle));
        return status;
    }

    IOStatus NewDirectory(const std::string &name, const IOOptions &, std::unique_ptr<FSDirectory> *result,
                          IODebugContext *) override
    {
        std::unique_ptr<Handle> handle;
        IOStatus status = Open(name, O_RDONLY | O_DIRECTORY, &handle);
        result->reset();
        if (status.ok())
            *result = unvme_rocksdb::NewDirectory(std::move(handle));
        return status;
    }

    IOStatus NewLogger(const std::string &name, const IOOptions &, std::shared_ptr<rocksdb::Logger> *result,
                       IODebugContext *) override
    {
        std::unique_ptr<Handle> handle;
        IOStatus status = Open(name, O_RDWR | O_CREAT | O_TRUNC, &handle);
        result->reset();
        if (status.ok())
            *result = NewLog(std::move(handle));
        return status;
    }

    IOStatus FileExists(const std::string &name, const IOOptions &, IODebugContext *) override
    {
        unvme_fs_stat stat;
        const std::string path = Path(name);
        int result = Stat(path, &stat);
        if (result == -ENOENT || result == -ENOTDIR || result == -EACCES || result == -ENAMETOOLONG || result == -ELOOP)
            return IOStatus::NotFound();
        return result == 0 ? IOStatus::OK() : Error("look for", path, result);
    }

    IOStatus GetChildren(const std::string &name, const IOOptions &, std::vector<std::string> *result,
                         IODebugContext *) override
    {
        result->clear();
        const std::string path = Path(name);
        auto add = [](const char *child, uint64_t, mode_t, void *list) {
            static_cast<std::vector<std::string> *>(list)->emplace_back(child);
            return 0;
        };
        int done = unvme_fs_readdir(mount_->fs(), path.c_str(), add, result);
        if (done == -ENOENT || done == -EACCES || done == -ENOTDIR)
            return IOStatus::NotFound("list: " + path, unvme_last_error());
        return done == 0 ? IOStatus::OK() : Error("list", path, done);
    }

    IOStatus DeleteFile(const std::string &name, const IOOptions &, IODebugContext *) override
    {
        return Done("delete", Path(name), unvme_fs_unlink);
    }

    IOStatus Truncate(const std::string &name, size_t size, const IOOptions &, IODebugContext *) override
    {
        std::unique_ptr<Handle> handle;
        IOStatus status = Open(name, O_WRONLY, &handle);
        if (!status.ok())
            return status;
        int result = unvme_file_truncate(handle->file(), size);
        return result == 0 ? status : Error("truncate", handle->path(), result);
    }

    IOStatus CreateDir(const std::string &name, const IOOptions &, IODebugContext *) override
    {
        const std::string path = Path(name);
        int result = MakeFolder(path);
        return result == 0 ? IOStatus::OK() : Error("make a directory", path, result);
    }

    IOStatus CreateDirIfMissing(const std::string &name, const IOOptions &, IODebugContext *) override
    {
        const std::string path = Path(name);
        int result = MakeFolder(path);
        if (result == 0)
            return IOStatus::OK();
        unvme_fs_stat stat;
        if (result == -EEXIST && Stat(path, &stat) == 0)
            return S_ISDIR(stat.mode) ? IOStatus::OK() : IOStatus::IOError("`" + path + "' exists but is not a directory");
        return Error("make a directory", path, result);
    }

    IOStatus DeleteDir(const std::string &name, const IOOptions &, IODebugContext *) override
    {
        return Done("delete a directory", Path(name), unvme_fs_rmdir);
    }

    IOStatus GetFileSize(const std::string &name, const IOOptions &, uint64_t *size, IODebugContext *) override
    {
        unvme_fs_stat stat = {};
        IOStatus status = Stat("find the size of", name, &stat);
        *size = stat.size;
        return status;
    }

    IOStatus GetFileModificationTime(const std::string &name, const IOOptions &, uint64_t *time,
                                     IODebugContext *) override
    {
        unvme_fs_stat stat = {};
        IOStatus status = Stat("find the time of", name, &stat);
        *time = (uint64_t)stat.modified.seconds;
        return status;
    }

    IOStatus RenameFile(const std::string &from, const std::string &to, const IOOptions &, IODebugContext *) override
    {
        const std::string source = Path(from), target = Path(to);
        int result = unvme_fs_rename(mount_->fs(), source.c_str(), target.c_str(), 0);
        return result == 0 ? IOStatus::OK() : Error("rename " + source + " to", target, result);
    }

    IOStatus LinkFile(const std::string &from, const std::string &to, const IOOptions &, IODebugContext *) override
    {
        const std::string source = Path(from), target = Path(to);
        int result = unvme_fs_link(mount_->fs(), source.c_str(), target.c_str());
        return result == 0 ? IOStatus::OK() : Error("link " + source + " to", target, result);
    }

    IOStatus NumFileLinks(const std::string &name, const IOOptions &, uint64_t *count, IODebugContext *) override
    {
        unvme_fs_stat stat = {};
        IOStatus status = Stat("count the links of", name, &stat);
        *count = stat.links;
        return status;
    }

    IOStatus AreFilesSame(const std::string &first, const std::string &second, const IOOptions &, bool *are_same,
                          IODebugContext *) override
    {
        unvme_fs_stat a = {}, b = {};
        *are_same = false;
        IOStatus status = Stat("compare", first, &a);
        if (status.ok())
            status = Stat("compare", second, &b);
        if (status.ok())
            *are_same = a.ino == b.ino;
        return status;
    }

    IOStatus LockFile(const std::string &name, const IOOptions &, rocksdb::FileLock **lock, IODebugContext *) override
    {
        *lock = nullptr;
        const std::string path = Path(name);
        if (!mount_->TakeLock(path))
            return IOStatus::IOError("lock " + path, "the lock is held by somebody in this process");
        /* Other processes are kept out by the mount: one has a device. */
        std::unique_ptr<Handle> handle;
        IOStatus status = Handle::Open(mount_, path, O_RDWR | O_CREAT, &handle);
        if (status.ok())
            *lock = new Lock(path);
        else
            mount_->ReleaseLock(path);
        return status;
    }

    IOStatus UnlockFile(rocksdb::FileLock *lock, const IOOptions &, IODebugContext *) override
    {
        auto *held = static_cast<Lock *>(lock);
        mount_->ReleaseLock(held->path);
        delete held;
        return IOStatus::OK();
    }

    IOStatus GetTestDirectory(const IOOptions &options, std::string *path, IODebugContext *debug) override
    {
        const char *wanted = getenv("TEST_TMPDIR");
        *path = wanted != nullptr && *wanted != '\0' ? wanted : "/rocksdbtest-" + std::to_string(geteuid());
        return CreateDirIfMissing(*path, options, debug);
    }

    IOStatus GetAbsolutePath(const std::string &name, const IOOptions &, std::string *path, IODebugContext *) override
    {
        *path = !name.empty() && name[0] == '/' ? name : "/" + name;
        return IOStatus::OK();
    }

    IOStatus GetFreeSpace(const std::string &, const IOOptions &, uint64_t *free, IODebugContext *) override
    {
        unvme_fs_usage usage = {};
        unvme_fs_usage_get(mount_->fs(), &usage);
        *free = usage.free_blocks * usage.block_bytes;
        return IOStatus::OK();
    }

    IOStatus IsDirectory(const std::string &name, const IOOptions &, bool *is_directory, IODebugContext *) override
    {
        unvme_fs_stat stat = {};
        IOStatus status = Stat("look at", name, &stat);
        *is_directory = status.ok() && S_ISDIR(stat.mode);
        return status;
    }

    /* Logs and manifests are short pieces one behind the other: they go by way of the page cache. */
    FileOptions OptimizeForLogWrite(const FileOptions &options, const DBOptions &db_options) const override
    {
        FileOptions changed = FileSystem::OptimizeForLogWrite(options, db_options);
        changed.use_direct_writes = false;
        changed.use_mmap_writes = false;
        return changed;
    }

    FileOptions OptimizeForManifestWrite(const FileOptions &options) const override
    {
        FileOptions changed = FileSystem::OptimizeForManifestWrite(options);
        changed.use_direct_writes = false;
        changed.use_mmap_writes = false;
        return changed;
    }

    IOStatus Poll(std::vector<void *> &handles, size_t min_completions) override
    {
        return PollReads(handles, min_completions);
    }

    IOStatus AbortIO(std::vector<void *> &handles) override { return AbortReads(handles); }

private:
    /* In the file system: the folder of the URI, and the name without slashes that say nothing. */
    std::string Path(const std::string &name) const
    {
        std::string path = uri_.folder;
        if (name.empty() || name[0] != '/')
            path += '/';
        for (char c : name)
            if (c != '/' || path.empty() || path.back() != '/')
                path += c;
        while (path.size() > 1 && path.back() == '/')
            path.pop_back();
        return path;
    }

    int Stat(const std::string &path, unvme_fs_stat *stat) const
    {
        return unvme_fs_stat_get(mount_->fs(), path.c_str(), true, stat);
    }

    IOStatus Stat(const char *what, const std::string &name, unvme_fs_stat *stat) const
    {
        const std::string path = Path(name);
        int result = Stat(path, stat);
        return result == 0 ? IOStatus::OK() : Error(what, path, result);
    }

    IOStatus Done(const char *what, const std::string &path, int (*function)(unvme_fs *, const char *)) const
    {
        int result = function(mount_->fs(), path.c_str());
        return result == 0 ? IOStatus::OK() : Error(what, path, result);
    }

    IOStatus Open(const std::string &name, int flags, std::unique_ptr<Handle> *handle) const
    {
        IOStatus status = Handle::Open(mount_, Path(name), flags, handle);
        if (status.ok())
            (*handle)->Apply(uri_);
        return status;
    }

    template <class File>
    IOStatus Readable(const std::string &name, const FileOptions &options,
                      std::unique_ptr<File> (*make)(std::unique_ptr<Handle>, bool), std::unique_ptr<File> *result) const
    {
        const bool is_direct = options.use_direct_reads || uri_.direct_reads;
        std::unique_ptr<Handle> handle;
        IOStatus status = Open(name, O_RDONLY | (is_direct ? O_DIRECT : 0), &handle);
        result->reset();
        if (status.ok())
            *result = make(std::move(handle), options.use_direct_reads);
        return status;
    }

    IOStatus Writable(const std::string &name, int flags, const FileOptions &options,
                      std::unique_ptr<FSWritableFile> *result) const
    {
        const bool is_direct = options.use_direct_writes || uri_.direct_writes;
        std::unique_ptr<Handle> handle;
        result->reset();
        const bool appends = (flags & O_APPEND) != 0;
        IOStatus status = Open(name, O_RDWR | (flags & ~O_APPEND) | (is_direct ? O_DIRECT : 0), &handle);
        uint64_t size = 0;
        if (status.ok() && appends)
            status = handle->Size(&size);
        if (status.ok())
            *result = NewWritable(std::move(handle), options.use_direct_writes, size, options);
        return status;
    }

    /* Makes a directory and those on the way to it: a new device has none, and programs expect a /tmp or the like. */
    int MakeFolder(const std::string &path) const
    {
        int result = unvme_fs_mkdir(mount_->fs(), path.c_str(), 0755);
        if (result != -ENOENT)
            return result;
        for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
            result = unvme_fs_mkdir(mount_->fs(), path.substr(0, slash).c_str(), 0755);
            if (result != 0 && result != -EEXIST)
                return result;
        }
        return unvme_fs_mkdir(mount_->fs(), path.c_str(), 0755);
    }

    const Uri uri_;
    const std::shared_ptr<Mount> mount_;
};

} // namespace

IOStatus NewUnvmeFileSystem(const std::string &text, std::unique_ptr<FileSystem> *file_system)
{
    file_system->reset();
    Uri uri;
    std::string wrong = Uri::Parse(text, &uri);
    if (!wrong.empty())
        return IOStatus::InvalidArgument(text, wrong);
    std::shared_ptr<Mount> mount;
    wrong = Mount::Get(uri, &mount);
    if (!wrong.empty())
        return IOStatus::IOError("mount: " + text, wrong);
    const bool has_folder = !uri.folder.empty();
    auto made = std::make_unique<UnvmeFileSystem>(std::move(uri), std::move(mount));
    if (has_folder) {
        /* Paths are behind the folder: its own is empty. */
        IOStatus status = made->CreateDirIfMissing("", IOOptions(), nullptr);
        if (!status.ok())
            return status;
    }
    *file_system = std::move(made);
    return IOStatus::OK();
}

} // namespace unvme_rocksdb

namespace {

/* What a registry asks for, of those that make objects from their names. */
template <class T>
rocksdb::FactoryFunc<T> Register(const rocksdb::FactoryFunc<T> &make)
{
    return rocksdb::ObjectLibrary::Default()->AddFactory<T>(
        rocksdb::ObjectLibrary::PatternEntry("unvme", false).AddSeparator("://", false), make);
}

rocksdb::FileSystem *MakeFileSystem(const std::string &uri, std::unique_ptr<rocksdb::FileSystem> *guard,
                                    std::string *error)
{
    rocksdb::IOStatus status = unvme_rocksdb::NewUnvmeFileSystem(uri, guard);
    if (!status.ok()) {
        *error = status.ToString();
        /* Programs that ignore URIs that are unknown ignore this one, too. */
        fprintf(stderr, "unvme: %s\n", error->c_str());
    }
    return guard->get();
}

/*
 * Whoever has an Env by the text of an option has nobody to let go of it: it is there until the program ends,
 * and there is one for each URI.
 */
rocksdb::Env *MakeEnv(const std::string &uri, std::unique_ptr<rocksdb::Env> *, std::string *error)
{
    static std::mutex mutex;
    static auto *const made = new std::map<std::string, std::unique_ptr<rocksdb::Env>>;
    std::lock_guard<std::mutex> guard(mutex);
    std::unique_ptr<rocksdb::Env> &env = (*made)[uri];
    std::unique_ptr<rocksdb::FileSystem> file_system;
    if (env == nullptr && MakeFileSystem(uri, &file_system, error) != nullptr)
        env = rocksdb::NewCompositeEnv(std::move(file_system));
    return env.get();
}

} // namespace

/* unvme://... in the registry that --fs_uri and Env::CreateFromUri() ask, and the option `env` of DBOptions. */
extern "C" {
extern rocksdb::FactoryFunc<rocksdb::FileSystem> unvme_filesystem_reg;
extern rocksdb::FactoryFunc<rocksdb::Env> unvme_env_reg;

rocksdb::FactoryFunc<rocksdb::FileSystem> unvme_filesystem_reg = Register<rocksdb::FileSystem>(MakeFileSystem);
rocksdb::FactoryFunc<rocksdb::Env> unvme_env_reg = Register<rocksdb::Env>(MakeEnv);
}

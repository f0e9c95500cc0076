/*
 * A program over RocksDB's public headers that is on a file system while it gets full, or while the device
 * below it fails: tests/rocksdb_faults.sh.
 *
 *   rocksdb_faults full|write|read|verify --fs_uri=URI
 *
 * BREAK, CORRUPT and MEND in the environment are commands that make the device fail, and end that.
 */
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/listener.h>
#include <rocksdb/table.h>

using rocksdb::Status;

namespace {

constexpr size_t kValueBytes = 1000;
/* Whoever waits longer than this waits for nothing. */
constexpr std::chrono::seconds kPatience(240);

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rocksdb_faults: line %d: %s: ", __LINE__, #condition);                                    \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            /* The file system is left as it is. */                                                                    \
            _Exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

void CheckOk(const Status &status, const char *what)
{
    CHECK(status.ok(), "%s: %s", what, status.ToString().c_str());
}

/* What RocksDB says of errors in the background. */
class Listener final : public rocksdb::EventListener {
public:
    void OnBackgroundError(rocksdb::BackgroundErrorReason reason, Status *error) override
    {
        std::lock_guard<std::mutex> guard(mutex_);
        fprintf(stderr, "background error %d: %s\n", (int)reason, error->ToString().c_str());
        if (reason == rocksdb::BackgroundErrorReason::kCompaction && error->IsNoSpace())
            full_compactions_++;
    }

    void OnErrorRecoveryCompleted(Status old) override
    {
        old.PermitUncheckedError();
        std::lock_guard<std::mutex> guard(mutex_);
        recoveries_++;
        changed_.notify_all();
    }

    unsigned full_compactions()
    {
        std::lock_guard<std::mutex> guard(mutex_);
        return full_compactions_;
    }

    unsigned recoveries()
    {
        std::lock_guard<std::mutex> guard(mutex_);
        return recoveries_;
    }

    bool WaitForRecovery(unsigned before)
    {
        std::unique_lock<std::mutex> guard(mutex_);
        return changed_.wait_for(guard, kPatience, [&] { return recoveries_ > before; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    unsigned full_compactions_ = 0;
    unsigned recoveries_ = 0;
};

rocksdb::Env *env;
auto listener = std::make_shared<Listener>();

rocksdb::Options MakeOptions()
{
    rocksdb::Options options;
    options.env = env;
    options.create_if_missing = true;
    options.compression = rocksdb::kNoCompression;
    options.write_buffer_size = 256 << 10;
    options.target_file_size_base = 1 << 20;
    options.listeners.push_back(listener);
    rocksdb::BlockBasedTableOptions table;
    table.no_block_cache = true;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    return options;
}

std::unique_ptr<rocksdb::DB> Open(const rocksdb::Options &options)
{
    rocksdb::DB *db = nullptr;
    CheckOk(rocksdb::DB::Open(options, "/base", &db), "open");
    return std::unique_ptr<rocksdb::DB>(db);
}

std::string Key(unsigned number)
{
    char key[32];
    snprintf(key, sizeof key, "key%08u", number);
    return key;
}

/* Of each number another one. */
std::string Value(unsigned number)
{
    std::string value = Key(number);
    uint64_t state = number * 0x9e3779b97f4a7c15u + 1;
    while (value.size() < kValueBytes) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value += (char)state;
    }
    return value;
}

Status Put(rocksdb::DB *db, unsigned number, bool sync = false)
{
    rocksdb::WriteOptions options;
    options.sync = sync;
    return db->Put(options, Key(number), Value(number));
}

/* What was acknowledged is there, key by key and in order. */
void Verify(rocksdb::DB *db, unsigned count)
{
    for (unsigned number = 0; number < count; number++) {
        std::string value;
        CheckOk(db->Get(rocksdb::ReadOptions(), Key(number), &value), Key(number).c_str());
        CHECK(value == Value(number), "%s has another value", Key(number).c_str());
    }
    std::unique_ptr<rocksdb::Iterator> iterator(db->NewIterator(rocksdb::ReadOptions()));
    unsigned number = 0;
    for (iterator->SeekToFirst(); iterator->Valid() && number < count; iterator->Next(), number++)
        CHECK(iterator->key() == Key(number), "%s in the place of %s", iterator->key().ToString().c_str(),
              Key(number).c_str());
    CheckOk(iterator->status(), "iterate");
    CHECK(number == count, "%u of %u keys", number, count);
}

/* A file that leaves so many bytes. */
void MakeBallast(uint64_t left)
{
    std::unique_ptr<rocksdb::WritableFile> file;
    CheckOk(env->NewWritableFile("/ballast", &file, rocksdb::EnvOptions()), "make a ballast");
    const std::string piece(1 << 20, 'b');
    uint64_t free = 0;
    while (true) {
        CheckOk(env->GetFreeSpace("/", &free), "find the free space");
        if (free < left + 4096)
            break;
        CheckOk(file->Append(rocksdb::Slice(piece.data(), std::min<uint64_t>(piece.size(), free - left))), "append");
        CheckOk(file->Sync(), "sync the ballast");
    }
    CheckOk(file->Close(), "close the ballast");
}

/* Full in the middle of compaction, then in the middle of writing; each time it goes on by itself. */
void Full()
{
    rocksdb::Options options = MakeOptions();
    options.disable_auto_compactions = true;
    options.level0_slowdown_writes_trigger = options.level0_stop_writes_trigger = 1000;
    auto db = Open(options);
    unsigned count = 0;
    for (; count < 8000; count++)
        CheckOk(Put(db.get(), count), "put");
    CheckOk(db->Flush(rocksdb::FlushOptions()), "flush");

    MakeBallast(3 << 20);
    unsigned recoveries = listener->recoveries();
    rocksdb::CompactRangeOptions all;
    all.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    Status status = db->CompactRange(all, nullptr, nullptr);
    CHECK(status.IsNoSpace(), "a compaction without space: %s", status.ToString().c_str());
    CHECK(listener->full_compactions() > 0, "no error in the background");
    Verify(db.get(), count);
    CheckOk(env->DeleteFile("/ballast"), "delete the ballast");
    CHECK(listener->WaitForRecovery(recoveries), "there is space, and RocksDB does not recover from compaction");
    CheckOk(db->CompactRange(all, nullptr, nullptr), "compact with space");
    Verify(db.get(), count);

    MakeBallast(2 << 20);
    recoveries = listener->recoveries();
    while ((status = Put(db.get(), count)).ok())
        count++;
    CHECK(status.IsNoSpace(), "a write without space: %s", status.ToString().c_str());
    Verify(db.get(), count);
    CheckOk(env->DeleteFile("/ballast"), "delete the ballast");
    CHECK(listener->WaitForRecovery(recoveries), "there is space, and RocksDB does not recover");
    for (unsigned more = 0; more < 2000; more++, count++)
        CheckOk(Put(db.get(), count), "put after recovery");
    Verify(db.get(), count);
    CheckOk(db->Close(), "close");
    db = Open(options);
    Verify(db.get(), count);
    printf("%u keys\n", count);
}

void Run(const char *variable)
{
    const char *command = getenv(variable);
    CHECK(command != nullptr && system(command) == 0, "%s: %s", variable, command == nullptr ? "not set" : command);
}

constexpr unsigned kSynced = 600;

/* Writes fail: read-only as on a disk. */
void WriteErrors()
{
    auto db = Open(MakeOptions());
    for (unsigned number = 0; number < kSynced; number++)
        CheckOk(Put(db.get(), number, true), "put");
    Run("BREAK");
    unsigned failed = 0;
    /* Nothing that was not synced was promised. */
    for (unsigned number = kSynced; number < kSynced + 5; number++)
        failed += !Put(db.get(), number, true).ok();
    CHECK(failed == 5, "%u of 5 synced writes have failed", failed);
    Status status = Put(db.get(), kSynced);
    CHECK(status.IsIOError(), "a write after one that has failed: %s", status.ToString().c_str());
    CHECK(status.severity() >= Status::kHardError, "severity %d", (int)status.severity());
    Verify(db.get(), kSynced);
    Run("MEND");
    Verify(db.get(), kSynced);
    status = Put(db.get(), kSynced, true);
    CHECK(!status.ok(), "a write goes on where one is lost");
    Verify(db.get(), kSynced);
    /* What it has to say is what has been said. */
    db->Close().PermitUncheckedError();
}

/* Every kind of read has to say that it could not: is is what it says. */
void ReadsFail(rocksdb::DB *db, bool (Status::*is)() const)
{
    std::string value;
    Status status = db->Get(rocksdb::ReadOptions(), Key(100), &value);
    CHECK((status.*is)(), "a get: %s", status.ToString().c_str());
    const std::vector<std::string> names = {Key(1), Key(700), Key(1500)};
    std::vector<std::string> values;
    for (const Status &each : db->MultiGet(rocksdb::ReadOptions(), {names[0], names[1], names[2]}, &values))
        CHECK((each.*is)(), "one of several: %s", each.ToString().c_str());
    for (bool async : {false, true}) {
        rocksdb::ReadOptions options;
        options.async_io = async;
        options.readahead_size = async ? 65536 : 0;
        std::unique_ptr<rocksdb::Iterator> iterator(db->NewIterator(options));
        for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next())
            ;
        CHECK((iterator->status().*is)(), "an iterator: %s", iterator->status().ToString().c_str());
    }
}

void ReadErrors()
{
    rocksdb::Options options = MakeOptions();
    options.use_direct_reads = true;
    auto db = Open(options);
    constexpr unsigned kCount = 2000;
    for (unsigned number = 0; number < kCount; number++)
        CheckOk(Put(db.get(), number), "put");
    CheckOk(db->Flush(rocksdb::FlushOptions()), "flush");
    CheckOk(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr), "compact");
    Verify(db.get(), kCount);
    Run("BREAK");
    ReadsFail(db.get(), &Status::IsIOError);
    Run("MEND");
    Verify(db.get(), kCount);
    Run("CORRUPT");
    ReadsFail(db.get(), &Status::IsCorruption);
    Run("MEND");
    Verify(db.get(), kCount);
    CheckOk(Put(db.get(), kCount, true), "write after errors of reads");
    CheckOk(db->Close(), "close");
}

} // namespace

int main(int argc, char **argv)
{
    const std::string what = argc > 1 ? argv[1] : "", flag = "--fs_uri=", last = argc > 2 ? argv[argc - 1] : "";
    CHECK(last.compare(0, flag.size(), flag) == 0, "usage: rocksdb_faults full|write|read|verify --fs_uri=URI");
    rocksdb::ConfigOptions config;
    config.ignore_unsupported_options = false;
    std::shared_ptr<rocksdb::Env> guard;
    CheckOk(rocksdb::Env::CreateFromUri(config, "", last.substr(flag.size()), &env, &guard), "the file system");
    if (what == "full")
        Full();
    else if (what == "write")
        WriteErrors();
    else if (what == "read")
        ReadErrors();
    else if (what == "verify")
        Verify(Open(MakeOptions()).get(), kSynced);
    else
        CHECK(false, "%s: full, write, read or verify is meant", what.c_str());
    return 0;
}

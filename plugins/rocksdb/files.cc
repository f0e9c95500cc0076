#include "files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <unvme.h>

#include "guide.h"

namespace unvme_rocksdb {

using rocksdb::FileOptions;
using rocksdb::FSDirectory;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSRandomRWFile;
using rocksdb::FSReadRequest;
using rocksdb::FSSequentialFile;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

constexpr size_t kAlignment = 4096;

/* How long a thread waits for a device before it looks whether others have seen what it waits for. */
constexpr uint32_t kPollMs = 100;

/* What goes wrong with a queue may be over with the next look: a connection comes back. So often it is looked. */
constexpr unsigned kErrorsMax = 600;

/* Polls a queue until something is over. False when what is waited for will not come. */
bool PollQueue(Queue *queue, unsigned *errors)
{
    if (unvme_fs_queue_outstanding(queue->queue) == 0)
        return false;
    if (unvme_fs_queue_poll(queue->queue, kPollMs) >= 0)
        return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
    return ++*errors < kErrorsMax;
}

} // namespace

IOStatus Error(const std::string &what, const std::string &path, long result)
{
    int number = (int)-result;
    const char *why = unvme_last_error();
    std::string text = why != nullptr && *why != '\0' ? why : strerror(number);
    IOStatus status;
    switch (number) {
    case ENOSPC:
    case EDQUOT:
        status = IOStatus::NoSpace(what + ": " + path, text);
        /* It works again when something is deleted. */
        status.SetRetryable(true);
        return status;
    case ENOENT:
        return IOStatus::PathNotFound(what + ": " + path, text);
    case ESTALE:
        return IOStatus::IOError(IOStatus::kStaleFile);
    default:
        return IOStatus::IOError(what + ": " + path, text);
    }
}

IOStatus Handle::Open(const std::shared_ptr<Mount> &mount, const std::string &path, int flags,
                      std::unique_ptr<Handle> *handle)
{
    handle->reset();
    unvme_file *file = nullptr;
    int result = unvme_fs_open(mount->fs(), path.c_str(), flags, 0644, &file);
    if (result != 0)
        return Error("open a file", path, result);
    mount->counters.opened.fetch_add(1, std::memory_order_relaxed);
    handle->reset(new Handle(mount, file, path));
    return IOStatus::OK();
}

IOStatus Handle::Read(uint64_t offset, size_t size, Slice *result, char *scratch) const
{
    size_t done = 0;
    BindThisThread();
    while (done < size) {
        ssize_t bytes = unvme_file_pread(file_, scratch + done, size - done, offset + done);
        if (bytes < 0) {
            *result = Slice(scratch, 0);
            return Error("read " + std::to_string(size) + " bytes at " + std::to_string(offset), path_, bytes);
        }
        if (bytes == 0)
            break;
        done += (size_t)bytes;
    }
    mount_->counters.reads.fetch_add(1, std::memory_order_relaxed);
    mount_->counters.read_bytes.fetch_add(done, std::memory_order_relaxed);
    *result = Slice(scratch, done);
    return IOStatus::OK();
}

IOStatus Handle::Write(uint64_t offset, const Slice &data)
{
    size_t done = 0;
    BindThisThread();
    while (done < data.size()) {
        ssize_t bytes = unvme_file_pwrite(file_, data.data() + done, data.size() - done, offset + done);
        /* A device gets full in the middle of a write: the rest says so. */
        if (bytes <= 0)
            return Error("write " + std::to_string(data.size()) + " bytes at " + std::to_string(offset), path_,
                         bytes == 0 ? -ENOSPC : bytes);
        done += (size_t)bytes;
    }
    mount_->counters.writes.fetch_add(1, std::memory_order_relaxed);
    mount_->counters.written_bytes.fetch_add(done, std::memory_order_relaxed);
    return IOStatus::OK();
}

IOStatus Handle::Sync(bool with_metadata)
{
    mount_->counters.syncs.fetch_add(1, std::memory_order_relaxed);
    int result = with_metadata ? unvme_file_fsync(file_) : unvme_file_fdatasync(file_);
    return result == 0 ? IOStatus::OK() : Error("sync", path_, result);
}

IOStatus Handle::Size(uint64_t *size) const
{
    unvme_fs_stat stat = {};
    int result = unvme_file_stat_get(file_, &stat);
    *size = stat.size;
    return result == 0 ? IOStatus::OK() : Error("stat", path_, result);
}

IOStatus Handle::DropCache()
{
    int result = unvme_file_cache_free(file_);
    return result == 0 ? IOStatus::OK() : Error("give up cached pages", path_, result);
}

/* Three numbers, of which none is the beginning of another: which mount, which file, and when it was made. */
size_t Handle::UniqueId(char *id, size_t size) const
{
    unvme_fs_stat stat = {};
    if (size < 30 || unvme_file_stat_get(file_, &stat) != 0)
        return 0;
    char *end = id;
    uint64_t made = (uint64_t)stat.created.seconds * 1000000000 + stat.created.nanoseconds;
    for (uint64_t number : {mount_->number(), stat.ino, made}) {
        for (; number >= 0x80; number >>= 7)
            *end++ = (char)(number | 0x80);
        *end++ = (char)number;
    }
    return (size_t)(end - id);
}

void Handle::Apply(const Uri &uri)
{
    /* What the C library does not take was not taken with the URI either. */
    if (uri.retain >= 0)
        (void)unvme_file_set_retain_cache(file_, uri.retain != 0);
    if (uri.read_ahead >= 0)
        (void)unvme_file_set_prefetch_size(file_, uri.read_ahead);
    if (uri.read_ahead_threshold >= 0)
        (void)unvme_file_set_prefetch_threshold(file_, uri.read_ahead_threshold);
}

namespace {

class Sequential final : public FSSequentialFile {
public:
    Sequential(std::unique_ptr<Handle> handle, bool is_direct) : handle_(std::move(handle)), is_direct_(is_direct) {}

    IOStatus Read(size_t n, const IOOptions &, Slice *result, char *scratch, IODebugContext *) override
    {
        IOStatus status = handle_->Read(offset_, n, result, scratch);
        if (status.ok())
            offset_ += result->size();
        return status;
    }

    IOStatus Skip(uint64_t n) override
    {
        offset_ += n;
        return IOStatus::OK();
    }

    IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions &, Slice *result, char *scratch,
                            IODebugContext *) override
    {
        return handle_->Read(offset, n, result, scratch);
    }

    bool use_direct_io() const override { return is_direct_; }
    size_t GetRequiredBufferAlignment() const override { return kAlignment; }
    IOStatus InvalidateCache(size_t, size_t) override { return handle_->DropCache(); }

private:
    const std::unique_ptr<Handle> handle_;
    const bool is_direct_;
    uint64_t offset_ = 0;
};

/* The callback of ReadAsync(), whose type is another one from RocksDB 8 on. */
template <class T> struct CallbackOf;
template <class C>
struct CallbackOf<IOStatus (FSRandomAccessFile::*)(FSReadRequest &, const IOOptions &, C, void *, void **,
                                                   rocksdb::IOHandleDeleter *, IODebugContext *)> {
    using type = C;
};
using Callback = CallbackOf<decltype(&FSRandomAccessFile::ReadAsync)>::type;

/* A read that somebody has begun, and will ask for. */
struct AsyncRead {
    std::shared_ptr<Mount> mount;
    std::string path;
    Queue *queue;
    FSReadRequest request;
    Callback callback;
    void *argument;
    long result = 0;
    std::atomic<bool> is_over{false};
    /* By the thread alone that polls for it or aborts it. */
    bool is_told = false;

    /* Called for the queue, whoever polls it. */
    static void Over(ssize_t result, void *argument)
    {
        auto *read = static_cast<AsyncRead *>(argument);
        read->result = result;
        read->is_over.store(true, std::memory_order_release);
    }

    bool IsOver() const { return is_over.load(std::memory_order_acquire); }

    IOStatus Wait()
    {
        unsigned errors = 0;
        while (!IsOver()) {
            std::lock_guard<std::mutex> guard(queue->mutex);
            if (!IsOver() && !PollQueue(queue, &errors) && !IsOver())
                return Error("wait for a read", path, -EIO);
        }
        return IOStatus::OK();
    }

    void Tell()
    {
        if (is_told)
            return;
        is_told = true;
        request.result = Slice(request.scratch, result < 0 ? 0 : (size_t)result);
        request.status = result < 0 ? Error("read", path, result) : IOStatus::OK();
        callback(request, argument);
    }
};

class RandomAccess final : public FSRandomAccessFile {
public:
    RandomAccess(std::unique_ptr<Handle> handle, bool is_direct) : handle_(std::move(handle)), is_direct_(is_direct) {}

    IOStatus Read(uint64_t offset, size_t n, const IOOptions &, Slice *result, char *scratch,
                  IODebugContext *) const override
    {
        /* With allow_mmap_reads RocksDB has no memory of its own. */
        return scratch != nullptr || n == 0 ? handle_->Read(offset, n, result, scratch) : ReadWhole(offset, n, result);
    }

    IOStatus Prefetch(uint64_t offset, size_t n, const IOOptions &, IODebugContext *) override
    {
        if (is_direct_)
            return IOStatus::NotSupported("Prefetch");
        int result = unvme_file_prefetch(handle_->file(), offset, n);
        return result == 0 ? IOStatus::OK() : Error("prefetch", handle_->path(), result);
    }

    IOStatus MultiRead(FSReadRequest *requests, size_t count, const IOOptions &options, IODebugContext *debug) override
    {
        Queue *queue = is_direct_ && count > 1 ? handle_->mount()->ThreadQueue() : nullptr;
        /* By way of the page cache most are there. */
        if (queue == nullptr)
            return FSRandomAccessFile::MultiRead(requests, count, options, debug);
        handle_->mount()->counters.batched_reads.fetch_add(count, std::memory_order_relaxed);
        auto owned = std::make_unique<std::vector<Part>>(count);
        std::vector<Part> &parts = *owned;
        std::lock_guard<std::mutex> guard(queue->mutex);
        size_t sent = 0, done = 0;
        unsigned errors = 0;
        while (true) {
            while (sent < count && Send(queue, requests[sent], parts[sent]))
                sent++;
            while (done < sent && parts[done].is_over)
                done++;
            if (done == count)
                break;
            if (!PollQueue(queue, &errors)) {
                /* Others that poll the queue may still hear of these calls. */
                owned.release();
                IOStatus status = Error("wait for reads", handle_->path(), -EIO);
                for (size_t at = 0; at < count; at++)
                    requests[at].status = status;
                return status;
            }
        }
        for (size_t at = 0; at < count; at++) {
            FSReadRequest &request = requests[at];
            long bytes = parts[at].result;
            request.status = bytes < 0 ? Error("read", handle_->path(), bytes) : IOStatus::OK();
            request.result = Slice(request.scratch, bytes < 0 ? 0 : (size_t)bytes);
            handle_->mount()->counters.read_bytes.fetch_add(request.result.size(), std::memory_order_relaxed);
        }
        return IOStatus::OK();
    }

    size_t GetUniqueId(char *id, size_t size) const override { return handle_->UniqueId(id, size); }

    void Hint(AccessPattern pattern) override
    {
        /* Whoever reads here and there has no use for what is behind. */
        if (pattern == kRandom)
            (void)unvme_file_set_prefetch_size(handle_->file(), 0);
        else if (pattern == kSequential)
            (void)unvme_file_set_prefetch_size(handle_->file(), 1 << 20);
        else if (pattern == kWontNeed)
            (void)unvme_file_cache_free(handle_->file());
    }

    bool use_direct_io() const override { return is_direct_; }
    size_t GetRequiredBufferAlignment() const override { return kAlignment; }
    IOStatus InvalidateCache(size_t, size_t) override { return handle_->DropCache(); }

    IOStatus ReadAsync(FSReadRequest &request, const IOOptions &options, Callback callback, void *argument, void **out,
                       rocksdb::IOHandleDeleter *deleter, IODebugContext *debug) override
    {
        Queue *queue = request.len > 0 ? handle_->mount()->ThreadQueue() : nullptr;
        if (queue != nullptr) {
            auto read = std::make_unique<AsyncRead>();
            read->mount = handle_->mount();
            read->path = handle_->path();
            read->queue = queue;
            read->request.offset = request.offset;
            read->request.len = request.len;
            read->request.scratch = request.scratch;
            read->callback = callback;
            read->argument = argument;
            int result;
            {
                std::lock_guard<std::mutex> guard(queue->mutex);
                result = unvme_file_pread_async(queue->queue, handle_->file(), request.scratch, request.len, request.offset,
                                                AsyncRead::Over, read.get());
            }
            if (result == 0) {
                handle_->mount()->counters.async_reads.fetch_add(1, std::memory_order_relaxed);
                *deleter = [](void *handle) {
                    auto *begun = static_cast<AsyncRead *>(handle);
                    /* As long as it is under way, the queue knows it. */
                    if (begun->Wait().ok())
                        delete begun;
                };
                *out = read.release();
                return IOStatus::OK();
            }
            if (result != -EAGAIN)
                return Error("begin to read", handle_->path(), result);
        }
        /* There is no place in a queue: it is over when this returns. */
        return FSRandomAccessFile::ReadAsync(request, options, callback, argument, out, deleter, debug);
    }

private:
    /* Brings all of the file into memory, as long as it is open: in the place of a mapping. */
    IOStatus ReadWhole(uint64_t offset, size_t n, Slice *result) const
    {
        std::lock_guard<std::mutex> guard(whole_mutex_);
        if (whole_ == nullptr) {
            uint64_t size = 0;
            IOStatus status = handle_->Size(&size);
            if (!status.ok())
                return status;
            std::unique_ptr<char[]> memory(new char[size + 1]);
            Slice read;
            status = handle_->Read(0, size, &read, memory.get());
            if (!status.ok())
                return status;
            whole_size_ = read.size();
            whole_ = std::move(memory);
        }
        const size_t begin = std::min<uint64_t>(offset, whole_size_);
        *result = Slice(whole_.get() + begin, std::min(n, whole_size_ - begin));
        return IOStatus::OK();
    }

    /* Of a MultiRead. */
    struct Part {
        long result = 0;
        bool is_over = false;

        static void Over(ssize_t result, void *argument)
        {
            auto *part = static_cast<Part *>(argument);
            part->result = result;
            part->is_over = true;
        }
    };

    /* False when the queue is full. */
    bool Send(Queue *queue, FSReadRequest &request, Part &part)
    {
        if (request.len == 0) {
            part.is_over = true;
            return true;
        }
        int result = unvme_file_pread_async(queue->queue, handle_->file(), request.scratch, request.len, request.offset,
                                            Part::Over, &part);
        if (result == -EAGAIN)
            return false;
        if (result != 0)
            Part::Over(result, &part);
        return true;
    }

    const std::unique_ptr<Handle> handle_;
    const bool is_direct_;
    mutable std::mutex whole_mutex_;
    mutable std::unique_ptr<char[]> whole_;
    mutable size_t whole_size_ = 0;
};

class Writable final : public FSWritableFile {
public:
    Writable(std::unique_ptr<Handle> handle, bool is_direct, uint64_t offset, const FileOptions &options)
        : FSWritableFile(options), handle_(std::move(handle)), is_direct_(is_direct), size_(offset)
    {
    }

    using FSWritableFile::Append;
    using FSWritableFile::PositionedAppend;

    IOStatus Append(const Slice &data, const IOOptions &, IODebugContext *) override
    {
        IOStatus status = handle_->Write(size_, data);
        if (status.ok())
            size_ += data.size();
        return status;
    }

    IOStatus PositionedAppend(const Slice &data, uint64_t offset, const IOOptions &, IODebugContext *) override
    {
        IOStatus status = handle_->Write(offset, data);
        if (status.ok())
            size_ = offset + data.size();
        return status;
    }

    IOStatus PositionedAppend(const Slice &data, uint64_t offset, const IOOptions &options,
                              const rocksdb::DataVerificationInfo &, IODebugContext *debug) override
    {
        return PositionedAppend(data, offset, options, debug);
    }

    IOStatus Truncate(uint64_t size, const IOOptions &, IODebugContext *) override
    {
        int result = unvme_file_truncate(handle_->file(), size);
        if (result != 0)
            return Error("truncate to " + std::to_string(size) + " bytes", handle_->path(), result);
        size_ = size;
        return IOStatus::OK();
    }

    /* What was appended is in the file system already. */
    IOStatus Close(const IOOptions &, IODebugContext *) override { return IOStatus::OK(); }
    IOStatus Flush(const IOOptions &, IODebugContext *) override { return IOStatus::OK(); }
    IOStatus Sync(const IOOptions &, IODebugContext *) override { return handle_->Sync(false); }
    IOStatus Fsync(const IOOptions &, IODebugContext *) override { return handle_->Sync(true); }
    bool IsSyncThreadSafe() const override { return true; }

    bool use_direct_io() const override { return is_direct_; }
    size_t GetRequiredBufferAlignment() const override { return kAlignment; }

    void SetWriteLifeTimeHint(rocksdb::Env::WriteLifeTimeHint hint) override
    {
        FSWritableFile::SetWriteLifeTimeHint(hint);
        /* The numbers are those of F_SET_RW_HINT. It is a hint: nothing depends on it. */
        (void)unvme_file_set_write_hint(handle_->file(), hint);
    }

    uint64_t GetFileSize(const IOOptions &, IODebugContext *) override { return size_; }
    size_t GetUniqueId(char *id, size_t size) const override { return handle_->UniqueId(id, size); }
    IOStatus InvalidateCache(size_t, size_t) override { return handle_->DropCache(); }

    IOStatus RangeSync(uint64_t, uint64_t, const IOOptions &, IODebugContext *) override
    {
        int result = unvme_file_write_back(handle_->file());
        return result == 0 ? IOStatus::OK() : Error("write back", handle_->path(), result);
    }

    /* Blocks are looked for when pages are written, many at a time: nothing is gained by taking them before. */
    void PrepareWrite(size_t, size_t, const IOOptions &, IODebugContext *) override {}

    IOStatus Allocate(uint64_t offset, uint64_t size, const IOOptions &, IODebugContext *) override
    {
        int result = unvme_file_allocate(handle_->file(), FALLOC_FL_KEEP_SIZE, offset, size);
        return result == 0 ? IOStatus::OK() : Error("allocate", handle_->path(), result);
    }

private:
    const std::unique_ptr<Handle> handle_;
    const bool is_direct_;
    std::atomic<uint64_t> size_;
};

class RandomRW final : public FSRandomRWFile {
public:
    explicit RandomRW(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}

    IOStatus Write(uint64_t offset, const Slice &data, const IOOptions &, IODebugContext *) override
    {
        return handle_->Write(offset, data);
    }

    IOStatus Read(uint64_t offset, size_t n, const IOOptions &, Slice *result, char *scratch,
                  IODebugContext *) const override
    {
        return handle_->Read(offset, n, result, scratch);
    }

    IOStatus Flush(const IOOptions &, IODebugContext *) override { return IOStatus::OK(); }
    IOStatus Sync(const IOOptions &, IODebugContext *) override { return handle_->Sync(false); }
    IOStatus Fsync(const IOOptions &, IODebugContext *) override { return handle_->Sync(true); }
    IOStatus Close(const IOOptions &, IODebugContext *) override { return IOStatus::OK(); }

private:
    const std::unique_ptr<Handle> handle_;
};

class Directory final : public FSDirectory {
public:
    explicit Directory(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}

    IOStatus Fsync(const IOOptions &, IODebugContext *) override { return handle_->Sync(true); }
    IOStatus Close(const IOOptions &, IODebugContext *) override { return IOStatus::OK(); }
    size_t GetUniqueId(char *id, size_t size) const override { return handle_->UniqueId(id, size); }

private:
    const std::unique_ptr<Handle> handle_;
};

} // namespace

std::unique_ptr<FSSequentialFile> NewSequential(std::unique_ptr<Handle> handle, bool is_direct)
{
    return std::make_unique<Sequential>(std::move(handle), is_direct);
}

std::unique_ptr<FSRandomAccessFile> NewRandomAccess(std::unique_ptr<Handle> handle, bool is_direct)
{
    return std::make_unique<RandomAccess>(std::move(handle), is_direct);
}

std::unique_ptr<FSWritableFile> NewWritable(std::unique_ptr<Handle> handle, bool is_direct, uint64_t offset,
                                            const FileOptions &options)
{
    return std::make_unique<Writable>(std::move(handle), is_direct, offset, options);
}

std::unique_ptr<FSRandomRWFile> NewRandomRW(std::unique_ptr<Handle> handle)
{
    return std::make_unique<RandomRW>(std::move(handle));
}

std::unique_ptr<FSDirectory> NewDirectory(std::unique_ptr<Handle> handle)
{
    return std::make_unique<Directory>(std::move(handle));
}

IOStatus PollReads(const std::vector<void *> &handles, size_t min_completions)
{
    size_t over = 0;
    for (void *handle : handles) {
        auto *read = static_cast<AsyncRead *>(handle);
        if (read == nullptr)
            continue;
        /* As many as are asked for are waited for; of the others those are told that are over anyway. */
        if (over < min_completions) {
            IOStatus status = read->Wait();
            if (!status.ok())
                return status;
        }
        if (read->IsOver()) {
            read->Tell();
            over++;
        }
    }
    return IOStatus::OK();
}

IOStatus AbortReads(const std::vector<void *> &handles)
{
    IOStatus status;
    for (void *handle : handles) {
        auto *read = static_cast<AsyncRead *>(handle);
        if (read == nullptr || read->is_told)
            continue;
        /* Nothing takes a command back from a device as fast as it is done. */
        IOStatus waited = read->Wait();
        if (status.ok())
            status = waited;
        if (!read->IsOver())
            continue;
        /* RocksDB lets go of what it has for the read when it is told, as its own file system does. */
        read->is_told = true;
        read->request.result = Slice();
        read->request.status = IOStatus::Aborted();
        read->callback(read->request, read->argument);
    }
    return status;
}

} // namespace unvme_rocksdb

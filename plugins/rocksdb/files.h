/* The open files of a mounted file system, as RocksDB wants them. */
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <rocksdb/file_system.h>

#include "mount.h"

namespace unvme_rocksdb {

/* A status for a negative errno of the C library, with what the library says about it. */
rocksdb::IOStatus Error(const std::string &what, const std::string &path, long result);

/* An open file. */
class Handle {
public:
    static rocksdb::IOStatus Open(const std::shared_ptr<Mount> &mount, const std::string &path, int flags,
                                  std::unique_ptr<Handle> *handle);
    ~Handle() { unvme_file_close(file_); }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;

    unvme_file *file() const { return file_; }
    const std::string &path() const { return path_; }
    const std::shared_ptr<Mount> &mount() const { return mount_; }

    /* Reads up to size bytes; fewer only at the end of the file. */
    rocksdb::IOStatus Read(uint64_t offset, size_t size, rocksdb::Slice *result, char *scratch) const;
    rocksdb::IOStatus Write(uint64_t offset, const rocksdb::Slice &data);
    rocksdb::IOStatus Sync(bool with_metadata);
    rocksdb::IOStatus Size(uint64_t *size) const;
    rocksdb::IOStatus DropCache();
    size_t UniqueId(char *id, size_t size) const;
    /* What the URI says of the page cache. */
    void Apply(const Uri &uri);

private:
    Handle(std::shared_ptr<Mount> mount, unvme_file *file, std::string path)
        : mount_(std::move(mount)), file_(file), path_(std::move(path))
    {
    }

    const std::shared_ptr<Mount> mount_;
    unvme_file *const file_;
    const std::string path_;
};

std::unique_ptr<rocksdb::FSSequentialFile> NewSequential(std::unique_ptr<Handle> handle, bool is_direct);
std::unique_ptr<rocksdb::FSRandomAccessFile> NewRandomAccess(std::unique_ptr<Handle> handle, bool is_direct);
/* Writes go on at the offset. */
std::unique_ptr<rocksdb::FSWritableFile> NewWritable(std::unique_ptr<Handle> handle, bool is_direct, uint64_t offset,
                                                     const rocksdb::FileOptions &options);
std::unique_ptr<rocksdb::FSRandomRWFile> NewRandomRW(std::unique_ptr<Handle> handle);
std::unique_ptr<rocksdb::FSDirectory> NewDirectory(std::unique_ptr<Handle> handle);

/* FileSystem::Poll() and AbortIO() of what FSRandomAccessFile::ReadAsync() has begun. */
rocksdb::IOStatus PollReads(const std::vector<void *> &handles, size_t min_completions);
rocksdb::IOStatus AbortReads(const std::vector<void *> &handles);

} // namespace unvme_rocksdb

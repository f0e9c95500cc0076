/* The file systems that this process has mounted. */
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "uri.h"

namespace unvme_rocksdb {

/* Calls that do not wait. Several threads may share one. */
struct Queue {
    std::mutex mutex;
    unvme_fs_queue *queue = nullptr;
};

/* What was done, since the mount. */
struct Counters {
    std::atomic<uint64_t> opened{0};
    std::atomic<uint64_t> reads{0};
    std::atomic<uint64_t> read_bytes{0};
    std::atomic<uint64_t> async_reads{0};
    std::atomic<uint64_t> batched_reads{0};
    std::atomic<uint64_t> writes{0};
    std::atomic<uint64_t> written_bytes{0};
    std::atomic<uint64_t> syncs{0};
};

/*
 * A mounted file system. All FileSystems of a process on one device share it. It is unmounted when nobody
 * has it any more; what a process leaves mounted when it ends is made durable.
 *
 * With UNVME_ROCKSDB_STATS=FILE in the environment, a line of JSON is added to the file at the end of each.
 */
class Mount {
public:
    /* Returns what went wrong, or "". */
    static std::string Get(const Uri &uri, std::shared_ptr<Mount> *mount);

    ~Mount();
    Mount(const Mount &) = delete;
    Mount &operator=(const Mount &) = delete;

    unvme_fs *fs() const { return fs_; }
    /* No other mount of this process has it. */
    uint64_t number() const { return number_; }
    const std::string &device() const { return uri_.device; }

    /* A queue for this thread; null when the device has none left. */
    Queue *ThreadQueue();

    /* False when somebody has the lock. */
    bool TakeLock(const std::string &path);
    void ReleaseLock(const std::string &path);

    Counters counters;

private:
    Mount(const Uri &uri, unvme_fs *fs);
    static void AtExit();
    void Report();

    const Uri uri_;
    unvme_fs *const fs_;
    const uint64_t number_;
    std::vector<std::unique_ptr<Queue>> queues_;
    std::mutex locks_mutex_;
    std::vector<std::string> locks_;
    std::atomic<bool> is_reported_{false};
};

/* Calls that a queue takes at once. */
constexpr uint16_t kQueueDepth = 128;

} // namespace unvme_rocksdb

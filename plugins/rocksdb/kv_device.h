/* A key-value device, and the commands that threads have on it. */
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <rocksdb/slice.h>
#include <rocksdb/status.h>
#include <unvme.h>

#include "kv_place.h"

namespace unvme_rocksdb {

class KvDevice;
class Lane;

/* Lanes of a device: threads that have a queue of their own; more than that share them. */
constexpr uint32_t kLanes = 32;

/* Who changes a pair whose key falls into this stripe; null when nobody does. */
using Stripe = std::atomic<Lane *>;

/* A command, from when it is thought of until its result was looked at. */
struct Operation {
    enum State : uint8_t { kFree, kTaken, kFlying, kDone };

    State state = kFree;
    /* Nobody waits for it: what goes wrong is the device's trouble. */
    bool is_left = false;
    uint16_t status = 0;
    int32_t result = 0;
    /* RETRIEVE: of the whole value. */
    uint64_t value_bytes = 0;
    /* Free from then on. */
    Stripe *stripe = nullptr;
    /* Memory of the library's, which the device gets at without a copy. */
    char *buffer = nullptr;
    size_t capacity = 0;
    /* Becomes true when it fails, and nobody waits for it. */
    std::atomic<bool> *failed = nullptr;
};

/* What was done, for those who want to know. Changed under the lane's mutex. */
struct KvCounters {
    uint64_t stores = 0;
    uint64_t retrieves = 0;
    uint64_t deletes = 0;
    uint64_t flushes = 0;
    uint64_t batches = 0;
    uint64_t cache_hits = 0;
};

/*
 * A queue of the device, for the threads that share it. Everything but Open() is called with the mutex held;
 * whoever waits also helps others along, so that two that wait for each other both get on.
 */
class Lane {
public:
    Lane(KvDevice *device, uint32_t number) : number(number), device_(device) {}
    ~Lane();
    Lane(const Lane &) = delete;
    Lane &operator=(const Lane &) = delete;

    /* Among the lanes of the device. */
    const uint32_t number;
    std::mutex mutex;
    KvCounters counters;

    bool IsOpen() const { return is_open_.load(std::memory_order_acquire); }
    /*
     * An enum kv_result; unvme_last_error() says more. leaves_one: only when the device has another queue
     * beside, which a listing needs.
     */
    int Open(bool leaves_one);

    /* An operation that nobody else has; waits for one. */
    uint32_t Take();
    bool HasFree() const { return !free_.empty(); }
    Operation &at(uint32_t number) { return operations_[number]; }
    void Release(uint32_t number) { operations_[number].state = Operation::kFree; free_.push_back(number); }

    /* Memory of that many bytes for an operation; false when there is none. */
    bool Reserve(uint32_t number, size_t bytes);

    /* To be sent once more. */
    void Retake(uint32_t number) { operations_[number].state = Operation::kTaken; }

    /*
     * Gives the queue a command, of which the device learns with Ring(), or when somebody looks for what has
     * ended. When it is not accepted, says why, and the operation is still taken.
     */
    rocksdb::Status Send(uint32_t number, unvme_command *command);

    void Ring();

    /* Until it has ended; returns what became of it. It is still taken. */
    rocksdb::Status Await(uint32_t number);

    /* One command from beginning to end. */
    rocksdb::Status Run(unvme_command *command);

    /* Until all that nobody waits for has ended. */
    void Drain();
    /* Whether there may be some; without the mutex. */
    bool HasLeft() const { return left_.load(std::memory_order_acquire) > 0; }

    /* Until nobody else changes pairs of the stripe, and then nobody else may. */
    void Acquire(Stripe *stripe);
    /* Until nobody changes pairs of the stripe. */
    void AwaitFree(Stripe *stripe);

    /* Looks for what has ended; false when nothing had. */
    bool Poll();

private:
    void Pause();
    rocksdb::Status StatusOf(const Operation &operation) const;

    KvDevice *const device_;
    std::atomic<bool> is_open_{false};
    unvme_queue *queue_ = nullptr;
    std::vector<Operation> operations_;
    std::vector<uint32_t> free_;
    /* Those that nobody waits for. */
    std::atomic<size_t> left_{0};
    bool is_rung_ = true;
    uint32_t pauses_ = 0;
};

/* A device that is open. A process has it open once, for all who want it. */
class KvDevice {
public:
    static rocksdb::Status Open(const KvPlace &place, std::shared_ptr<KvDevice> *device);
    ~KvDevice();
    KvDevice(const KvDevice &) = delete;
    KvDevice &operator=(const KvDevice &) = delete;

    /* The lane of this thread, and its mutex. */
    class Hold {
    public:
        explicit Hold(KvDevice *device) : lane_(device->ThreadLane()), guard_(lane_->mutex) {}
        Lane *operator->() const { return lane_; }
        Lane *get() const { return lane_; }

    private:
        Lane *const lane_;
        std::unique_lock<std::mutex> guard_;
    };

    const KvPlace &place() const { return place_; }
    bool IsInMemory() const { return place_.device.compare(0, 4, "mem:") == 0; }
    const unvme_queue_info &info() const { return info_; }
    uint64_t handle() const { return handle_; }
    bool HasAsync() const { return has_async_.load(std::memory_order_acquire); }
    Stripe *StripeOf(uint8_t keyspace, const rocksdb::Slice &key);

    /* What went wrong with a write that nobody waited for; OK again after Forgive(). */
    rocksdb::Status Trouble();
    void SetTrouble(const rocksdb::Status &status);
    void Forgive();

    /* Until every write has ended that returned before; what went wrong. */
    rocksdb::Status Drain();
    /* The same, and the device has it for good. */
    rocksdb::Status Flush();
    /* Until every call has ended that was begun before. */
    void Settle();

    /* Calls for each key that begins so; false ends it. */
    rocksdb::Status List(uint8_t keyspace, const rocksdb::Slice &prefix,
                         const std::function<bool(const rocksdb::Slice &)> &take);

    KvCounters Sum();

private:
    friend class Lane;

    explicit KvDevice(const KvPlace &place) : place_(place), has_async_(place.is_async) {}
    rocksdb::Status Connect();
    Lane *ThreadLane();
    void Report();
    static void AtExit();

    const KvPlace place_;
    uint64_t handle_ = 0;
    unvme_queue_info info_ = {};
    /* Where threads go when the device has no more queues. */
    std::atomic<Lane *> spare_{nullptr};
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::unique_ptr<Stripe[]> stripes_;
    /* Somebody's writes return before they are done. */
    std::atomic<bool> has_async_;
    std::atomic<bool> is_in_trouble_{false};
    std::mutex trouble_mutex_;
    rocksdb::Status trouble_;
    std::atomic<bool> is_reported_{false};
};

/*
 * Who has a database, of all processes of this machine: a locked file, by the name that the database has for
 * itself on its device. Databases in memory are a process's own.
 */
class KvLock {
public:
    static rocksdb::Status Take(const KvPlace &place, const std::string &identity, std::unique_ptr<KvLock> *lock);
    ~KvLock();
    KvLock(const KvLock &) = delete;
    KvLock &operator=(const KvLock &) = delete;

private:
    KvLock() = default;
    std::string name_;
    int file_ = -1;
};

/* What the library says of a call of this thread that failed. */
rocksdb::Status StatusOfCall(int result);

} // namespace unvme_rocksdb

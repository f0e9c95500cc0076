#include "kv_device.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <thread>
#include <unordered_set>

#include <fcntl.h>
#include <kv_apis.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text.h"

using rocksdb::Slice;
using rocksdb::Status;

namespace unvme_rocksdb {

namespace {

/* As many pairs can be changed at once without one waiting for another; a power of two. */
constexpr size_t kStripes = 1 << 14;

/* Memory of an operation that is kept for the next one. */
constexpr size_t kKeptBytes = 128 << 10;

/* Memory is taken in steps. */
constexpr size_t kStepBytes = 4096;

struct Registry {
    std::mutex mutex;
    std::map<std::string, std::weak_ptr<KvDevice>> devices;
    /* In memory: gone when nobody has them open, so the process does. */
    std::vector<std::shared_ptr<KvDevice>> kept;
    std::unordered_set<std::string> locked;
    bool has_handler = false;
};

/* Never freed: databases may be closed while the program ends. */
Registry &registry()
{
    static Registry *const it = new Registry;
    return *it;
}

/* Where locked files are, as those of file systems. */
std::string LockPath(const std::string &name)
{
    struct stat about;
    bool is_there = stat("/run/lock", &about) == 0 && S_ISDIR(about.st_mode);
    return (is_there ? "/run/lock/unvme-kv-" : "/tmp/unvme-kv-") + name + ".lock";
}

Status Failed(int result, const std::string &text)
{
    switch (result) {
    case KV_ERR_NOT_EXIST_KEY:
        return Status::NotFound();
    case KV_ERR_CAPACITY_EXCEEDED:
        return Status::NoSpace(text);
    case KV_ERR_INVALID_KEY_SIZE:
    case KV_ERR_INVALID_VALUE_SIZE:
    case KV_ERR_MAXIMUM_VALUE_SIZE_LIMIT_EXCEEDED:
    case KV_ERR_DD_INVALID_PARAM:
    case KV_ERR_SDK_INVALID_PARAM:
    case KV_ERR_INVALID_KEYSPACE_ID:
        return Status::InvalidArgument(text);
    case KV_ERR_DD_UNSUPPORTED_CMD:
        return Status::NotSupported(text);
    default:
        return Status::IOError(text);
    }
}

} // namespace

Status StatusOfCall(int result)
{
    return result == KV_SUCCESS ? Status::OK() : Failed(result, unvme_last_error());
}

Lane::~Lane()
{
    if (queue_ != nullptr)
        unvme_queue_close(queue_);
    for (Operation &operation : operations_)
        unvme_free(operation.buffer);
}

int Lane::Open(bool leaves_one)
{
    if (queue_ != nullptr)
        return KV_SUCCESS;
    const KvPlace &place = device_->place();
    unvme_queue_options options = {};
    options.size = sizeof options;
    options.depth = place.depth;
    options.completion = place.completion;
    options.commands = place.commands;
    int result = unvme_queue_open(device_->handle(), &options, &queue_);
    if (result != KV_SUCCESS)
        return result;
    unvme_queue *another = nullptr;
    if (leaves_one && (result = unvme_queue_open(device_->handle(), &options, &another)) != KV_SUCCESS) {
        unvme_queue_close(queue_);
        queue_ = nullptr;
        return result;
    }
    if (another != nullptr)
        unvme_queue_close(another);
    unvme_queue_info info = {};
    info.size = sizeof info;
    unvme_queue_info_get(queue_, &info);
    operations_ = std::vector<Operation>(std::max<uint32_t>(info.depth, 1));
    for (uint32_t number = 0; number < operations_.size(); number++)
        free_.push_back((uint32_t)operations_.size() - 1 - number);
    /* All queues lead to the same. */
    if (number == 0)
        device_->info_ = info;
    is_open_.store(true, std::memory_order_release);
    return KV_SUCCESS;
}

uint32_t Lane::Take()
{
    while (free_.empty())
        if (!Poll())
            Pause();
    uint32_t number = free_.back();
    free_.pop_back();
    Operation &operation = operations_[number];
    operation.state = Operation::kTaken;
    operation.is_left = false;
    operation.stripe = nullptr;
    operation.failed = nullptr;
    return number;
}

bool Lane::Reserve(uint32_t number, size_t bytes)
{
    Operation &operation = operations_[number];
    /* A large one is not kept for small ones. */
    bool is_wasted = operation.capacity > kKeptBytes && bytes <= kKeptBytes;
    if (operation.capacity >= bytes && !is_wasted && operation.buffer != nullptr)
        return true;
    unvme_free(operation.buffer);
    operation.capacity = std::max((bytes + kStepBytes - 1) / kStepBytes, (size_t)1) * kStepBytes;
    operation.buffer = (char *)unvme_alloc(operation.capacity, 4096);
    if (operation.buffer == nullptr)
        operation.capacity = 0;
    return operation.buffer != nullptr;
}

Status Lane::Send(uint32_t number, unvme_command *command)
{
    Operation &operation = operations_[number];
    command->token = number;
    int result;
    while ((result = unvme_queue_submit(queue_, command)) == KV_ERR_DD_NO_AVAILABLE_RESOURCE &&
           unvme_queue_outstanding(queue_) > 0)
        if (!Poll())
            Pause();
    if (result == KV_SUCCESS) {
        operation.state = Operation::kFlying;
        left_ += operation.is_left;
        is_rung_ = false;
        return Status::OK();
    }
    Status status = StatusOfCall(result);
    if (operation.stripe != nullptr) {
        operation.stripe->store(nullptr, std::memory_order_release);
        operation.stripe = nullptr;
    }
    return status;
}

bool Lane::Poll()
{
    unvme_completion completions[32];
    size_t count = 0;
    Ring();
    if (unvme_queue_poll(queue_, completions, 32, &count) != KV_SUCCESS)
        return false;
    for (size_t at = 0; at < count; at++) {
        const unvme_completion &completion = completions[at];
        uint32_t number = (uint32_t)completion.token;
        Operation &operation = operations_[number];
        operation.result = completion.result;
        operation.status = completion.status;
        operation.value_bytes = completion.value_bytes;
        operation.state = Operation::kDone;
        if (operation.is_left) {
            left_--;
            if (operation.result != KV_SUCCESS) {
                if (operation.failed != nullptr)
                    operation.failed->store(true);
                device_->SetTrouble(StatusOf(operation));
            }
        }
        if (operation.stripe != nullptr)
            operation.stripe->store(nullptr, std::memory_order_release);
        operation.stripe = nullptr;
        if (operation.is_left)
            Release(number);
    }
    return count > 0;
}

void Lane::Ring()
{
    if (is_rung_)
        return;
    is_rung_ = true;
    /* What is wrong with the device is heard of in the completions. */
    unvme_queue_ring(queue_);
}

/* Nothing has ended: others may need the processor, if only to end what is waited for. */
void Lane::Pause()
{
    /* Now and then the library looks whether the device is still there. */
    if (device_->info_.completion == UNVME_COMPLETION_POLL && ++pauses_ % 64 != 0)
        sched_yield();
    else
        unvme_queue_wait(queue_, 10);
}

Status Lane::StatusOf(const Operation &operation) const
{
    if (operation.result == KV_SUCCESS)
        return Status::OK();
    if (operation.result == KV_ERR_NOT_EXIST_KEY)
        return Status::NotFound();
    char name[128];
    unvme_status_name(operation.status, name, sizeof name);
    return Failed(operation.result, device_->place().device + ": " + name);
}

Status Lane::Await(uint32_t number)
{
    while (operations_[number].state == Operation::kFlying)
        if (!Poll())
            Pause();
    return StatusOf(operations_[number]);
}

Status Lane::Run(unvme_command *command)
{
    uint32_t number = Take();
    Status status = Send(number, command);
    if (status.ok())
        status = Await(number);
    Release(number);
    return status;
}

void Lane::Drain()
{
    while (left_ > 0)
        if (!Poll())
            Pause();
}

void Lane::Acquire(Stripe *stripe)
{
    Lane *other = nullptr;
    while (!stripe->compare_exchange_weak(other, this, std::memory_order_acquire, std::memory_order_relaxed)) {
        /* It is this lane that has to end something, or another one, whose thread may be elsewhere. */
        bool was_useful = Poll();
        if (other != nullptr && other != this && other->mutex.try_lock()) {
            was_useful = other->Poll() || was_useful;
            other->mutex.unlock();
        }
        if (!was_useful && other != nullptr)
            Pause();
        other = nullptr;
    }
}

void Lane::AwaitFree(Stripe *stripe)
{
    if (stripe->load(std::memory_order_acquire) == nullptr)
        return;
    Acquire(stripe);
    stripe->store(nullptr, std::memory_order_release);
}

Status KvDevice::Open(const KvPlace &place, std::shared_ptr<KvDevice> *device)
{
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.mutex);
    std::weak_ptr<KvDevice> &known = all.devices[place.device];
    *device = known.lock();
    if (*device != nullptr && place.is_async)
        (*device)->has_async_ = true;
    if (*device != nullptr) {
        const KvPlace &other = (*device)->place_;
        if (other.depth == place.depth && other.completion == place.completion && other.commands == place.commands)
            return Status::OK();
        device->reset();
        return Status::InvalidArgument(place.device + ": this process has it open already, with other options: " + other.text);
    }
    std::shared_ptr<KvDevice> opened(new KvDevice(place));
    Status status = opened->Connect();
    if (!status.ok())
        return status;
    if (!all.has_handler) {
        all.has_handler = true;
        atexit(AtExit);
    }
    known = *device = opened;
    if (opened->IsInMemory())
        all.kept.push_back(opened);
    return status;
}

Status KvDevice::Connect()
{
    unvme_options options = {};
    options.size = sizeof options;
    int result = unvme_open(place_.device.c_str(), KV_TYPE_SSD, &options, &handle_);
    if (result != KV_SUCCESS)
        return Status::IOError(unvme_last_error());
    stripes_ = std::make_unique<Stripe[]>(kStripes);
    for (uint32_t number = 0; number < kLanes; number++)
        lanes_.push_back(std::make_unique<Lane>(this, number));
    std::lock_guard<std::mutex> guard(lanes_[0]->mutex);
    result = lanes_[0]->Open(false);
    spare_ = lanes_[0].get();
    if (result != KV_SUCCESS)
        return StatusOfCall(result);
    if (info_.ssd_type != KV_TYPE_SSD)
        return Status::InvalidArgument(place_.device + ": a database of pairs needs a device of type kv");
    return Status::OK();
}

KvDevice::~KvDevice()
{
    Report();
    lanes_.clear();
    if (handle_ != 0)
        unvme_close(handle_);
}

Stripe *KvDevice::StripeOf(uint8_t keyspace, const Slice &key)
{
    size_t hash = std::hash<std::string_view>()(std::string_view(key.data(), key.size()));
    return &stripes_[(hash ^ keyspace) & (kStripes - 1)];
}

Lane *KvDevice::ThreadLane()
{
    static std::atomic<size_t> threads{0};
    thread_local size_t thread = threads.fetch_add(1);
    Lane *lane = lanes_[thread % lanes_.size()].get();
    if (lane->IsOpen())
        return lane;
    Lane *spare = spare_.load(std::memory_order_relaxed);
    if (spare != lanes_[0].get())
        return spare;
    std::lock_guard<std::mutex> guard(lane->mutex);
    if (lane->Open(true) == KV_SUCCESS)
        return lane;
    /* The device has no more: one of those that there are, and nobody asks again. */
    Lane *last = spare;
    for (auto &other : lanes_)
        last = other->IsOpen() ? other.get() : last;
    spare_.store(last, std::memory_order_relaxed);
    return last;
}

Status KvDevice::Trouble()
{
    if (!is_in_trouble_.load(std::memory_order_acquire))
        return Status::OK();
    std::lock_guard<std::mutex> guard(trouble_mutex_);
    return trouble_;
}

void KvDevice::SetTrouble(const Status &status)
{
    std::lock_guard<std::mutex> guard(trouble_mutex_);
    if (!is_in_trouble_) {
        trouble_ = status;
        is_in_trouble_.store(true, std::memory_order_release);
    }
}

void KvDevice::Forgive()
{
    std::lock_guard<std::mutex> guard(trouble_mutex_);
    is_in_trouble_ = false;
    trouble_ = Status::OK();
}

Status KvDevice::Drain()
{
    for (auto &lane : lanes_) {
        if (!lane->HasLeft())
            continue;
        std::lock_guard<std::mutex> guard(lane->mutex);
        lane->Drain();
    }
    return Trouble();
}

void KvDevice::Settle()
{
    for (auto &lane : lanes_) {
        std::lock_guard<std::mutex> guard(lane->mutex);
        lane->Drain();
    }
}

Status KvDevice::Flush()
{
    Status status = Drain();
    if (!status.ok())
        return status;
    unvme_command command = {};
    command.verb = UNVME_FLUSH;
    Hold lane(this);
    lane->counters.flushes++;
    return lane->Run(&command);
}

Status KvDevice::List(uint8_t keyspace, const Slice &prefix, const std::function<bool(const Slice &)> &take)
{
    auto each = [](void *arg, const void *key, size_t length) {
        return (*(const std::function<bool(const Slice &)> *)arg)(Slice((const char *)key, length));
    };
    return StatusOfCall(unvme_list(handle_, keyspace, prefix.data(), prefix.size(), each, (void *)&take));
}

KvCounters KvDevice::Sum()
{
    KvCounters sum;
    for (auto &lane : lanes_) {
        std::lock_guard<std::mutex> guard(lane->mutex);
        sum.stores += lane->counters.stores;
        sum.retrieves += lane->counters.retrieves;
        sum.deletes += lane->counters.deletes;
        sum.flushes += lane->counters.flushes;
        sum.batches += lane->counters.batches;
        sum.cache_hits += lane->counters.cache_hits;
    }
    return sum;
}

void KvDevice::Report()
{
    if (lanes_.empty() || is_reported_.exchange(true))
        return;
    FILE *file = OpenStatistics();
    if (file == nullptr)
        return;
    KvCounters sum = Sum();
    fprintf(file,
            "{\"device\":%s,\"stores\":%" PRIu64 ",\"retrieves\":%" PRIu64 ",\"deletes\":%" PRIu64
            ",\"flushes\":%" PRIu64 ",\"batches\":%" PRIu64 ",\"cache_hits\":%" PRIu64 "}\n",
            Quoted(place_.device).c_str(), sum.stores, sum.retrieves, sum.deletes, sum.flushes, sum.batches,
            sum.cache_hits);
    fclose(file);
}

/* What a program has open that ends without closing it. */
void KvDevice::AtExit()
{
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.mutex);
    for (auto &known : all.devices) {
        std::shared_ptr<KvDevice> device = known.second.lock();
        if (device == nullptr)
            continue;
        Status status = device->Drain();
        if (!status.ok())
            fprintf(stderr, "unvme: %s: not everything could be written: %s\n", device->place_.device.c_str(),
                    status.ToString().c_str());
        device->Report();
    }
}

Status KvLock::Take(const KvPlace &place, const std::string &identity, std::unique_ptr<KvLock> *lock)
{
    Registry &all = registry();
    std::unique_ptr<KvLock> taken(new KvLock);
    /* One in memory has none. */
    const std::string &name = identity.empty() ? place.device : identity;
    {
        std::lock_guard<std::mutex> guard(all.mutex);
        if (!all.locked.insert(name).second)
            return Status::IOError("lock: " + place.device + ": this process has its database open");
        taken->name_ = name;
    }
    if (!identity.empty()) {
        std::string path = LockPath(identity);
        taken->file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (taken->file_ < 0)
            return Status::IOError("lock: " + path + ": " + strerror(errno));
        if (flock(taken->file_, LOCK_EX | LOCK_NB) != 0)
            return Status::IOError("lock: " + place.device + ": another process has its database open");
    }
    *lock = std::move(taken);
    return Status::OK();
}

KvLock::~KvLock()
{
    if (file_ >= 0)
        close(file_);
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.mutex);
    all.locked.erase(name_);
}

} // namespace unvme_rocksdb

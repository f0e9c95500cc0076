#include "mount.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include <unvme.h>

#include "text.h"

namespace unvme_rocksdb {

namespace {

/* A device: its mount may be over for those who look for it, and not yet unmounted. */
struct Known {
    std::weak_ptr<Mount> mount;
    bool is_mounted = false;
};

/* Never freed: FileSystems may be let go of while the program ends. */
struct Registry {
    /* Whoever lets go of the last one may be in the middle of a look here. */
    std::recursive_mutex mutex;
    std::map<std::pair<std::string, uint32_t>, Known> mounts;
    /* A mount has ended. */
    std::condition_variable_any ended;
    uint64_t next_number = 1;
    bool has_handler = false;
};

Registry &registry()
{
    static Registry *const it = new Registry;
    return *it;
}

} // namespace

std::string Mount::Get(const Uri &uri, std::shared_ptr<Mount> *mount)
{
    Registry &all = registry();
    std::unique_lock<std::recursive_mutex> guard(all.mutex);
    /* Places in a map stay where they are. */
    Known &known = all.mounts[{uri.device, uri.mount.nsid}];
    all.ended.wait(guard, [&] { return !known.is_mounted || (*mount = known.mount.lock()) != nullptr; });
    if (*mount != nullptr) {
        if ((*mount)->uri_.IsMountedAs(uri))
            return "";
        std::string wrong = uri.device + ": this process has it mounted already, with other options: " + (*mount)->uri_.text;
        mount->reset();
        return wrong;
    }
    unvme_fs *fs = nullptr;
    int result = unvme_fs_mount(uri.device.c_str(), &uri.mount, &fs);
    if (result != 0)
        return unvme_last_error();
    if (!all.has_handler) {
        all.has_handler = true;
        atexit(AtExit);
    }
    mount->reset(new Mount(uri, fs), [&known](Mount *last) {
        /* Nobody mounts the device again before it is unmounted. */
        std::lock_guard<std::recursive_mutex> held(registry().mutex);
        delete last;
        known.is_mounted = false;
        registry().ended.notify_all();
    });
    known.mount = *mount;
    known.is_mounted = true;
    return "";
}

Mount::Mount(const Uri &uri, unvme_fs *fs) : uri_(uri), fs_(fs), number_(registry().next_number++)
{
    unsigned queues = std::min(std::max(std::thread::hardware_concurrency(), 1u), 64u);
    for (unsigned at = 0; at < queues; at++)
        queues_.push_back(std::make_unique<Queue>());
}

Mount::~Mount()
{
    for (auto &queue : queues_)
        if (queue->queue != nullptr)
            unvme_fs_queue_close(queue->queue);
    Report();
    if (unvme_fs_unmount(fs_) != 0)
        fprintf(stderr, "unvme: %s: it was not left in order: %s\n", uri_.device.c_str(), unvme_last_error());
}

/* What a program has that ends without letting go of its FileSystem. */
void Mount::AtExit()
{
    Registry &all = registry();
    std::lock_guard<std::recursive_mutex> guard(all.mutex);
    for (auto &known : all.mounts) {
        std::shared_ptr<Mount> mount = known.second.mount.lock();
        if (mount == nullptr)
            continue;
        mount->Report();
        if (unvme_fs_sync(mount->fs_) != 0)
            fprintf(stderr, "unvme: %s: not everything could be written: %s\n", mount->device().c_str(), unvme_last_error());
    }
}

void Mount::Report()
{
    if (is_reported_.exchange(true))
        return;
    FILE *file = OpenStatistics();
    if (file == nullptr)
        return;
    unvme_fs_cache cache = {};
    unvme_fs_cache_get(fs_, &cache);
    fprintf(file,
            "{\"device\":%s,\"opened\":%" PRIu64 ",\"reads\":%" PRIu64 ",\"read_bytes\":%" PRIu64
            ",\"async_reads\":%" PRIu64 ",\"batched_reads\":%" PRIu64 ",\"writes\":%" PRIu64
            ",\"written_bytes\":%" PRIu64 ",\"syncs\":%" PRIu64 ",\"cache_hits\":%" PRIu64 ",\"cache_misses\":%" PRIu64
            ",\"cache_written_back\":%" PRIu64 "}\n",
            Quoted(uri_.device).c_str(), counters.opened.load(), counters.reads.load(), counters.read_bytes.load(),
            counters.async_reads.load(), counters.batched_reads.load(), counters.writes.load(),
            counters.written_bytes.load(), counters.syncs.load(), cache.hits, cache.misses, cache.written_back);
    fclose(file);
}

Queue *Mount::ThreadQueue()
{
    static std::atomic<size_t> threads{0};
    thread_local size_t thread = threads.fetch_add(1);
    Queue *queue = queues_[thread % queues_.size()].get();
    {
        std::lock_guard<std::mutex> guard(queue->mutex);
        if (queue->queue != nullptr || unvme_fs_queue_open(fs_, kQueueDepth, &queue->queue) == 0)
            return queue;
    }
    /* The device has no more: one of those that there are. */
    for (auto &other : queues_) {
        std::lock_guard<std::mutex> guard(other->mutex);
        if (other->queue != nullptr)
            return other.get();
    }
    return nullptr;
}

bool Mount::TakeLock(const std::string &path)
{
    std::lock_guard<std::mutex> guard(locks_mutex_);
    if (std::find(locks_.begin(), locks_.end(), path) != locks_.end())
        return false;
    locks_.push_back(path);
    return true;
}

void Mount::ReleaseLock(const std::string &path)
{
    std::lock_guard<std::mutex> guard(locks_mutex_);
    locks_.erase(std::remove(locks_.begin(), locks_.end(), path), locks_.end());
}

} // namespace unvme_rocksdb

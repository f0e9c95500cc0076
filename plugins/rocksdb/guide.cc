#include "guide.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include <kv_apis.h>
#include <pthread.h>
#include <sched.h>
#include <unvme.h>

namespace unvme_rocksdb {

namespace {

std::atomic<bool> binds_program{false}, binds_rocksdb{false};

/* The CPUs that the process may use: threads that are bound have threads that are bound to the same one. */
cpu_set_t all;

void Bind(std::atomic<unsigned> &next)
{
    if (CPU_COUNT(&all) == 0)
        return;
    unsigned turn = next.fetch_add(1) % (unsigned)CPU_COUNT(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && turn-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(pthread_self(), sizeof one, &one);
            return;
        }
    }
}

} // namespace

std::string DeviceOfConfiguration(const std::string &path, const std::string &bdev, std::string *device)
{
    auto options = std::make_unique<kv_sdk>();
    memset(options.get(), 0, sizeof *options);
    std::string name = path;
    if (kv_sdk_load_option(options.get(), &name[0]) != KV_SUCCESS)
        return path + ": " + unvme_last_error();
    int devices = std::min(options->nr_ssd, (int)NR_MAX_SSD);
    const char *kBegin = "unvme_bdev";
    for (int at = 0; at < devices; at++) {
        if (bdev == kBegin + std::to_string(at) + "n1") {
            *device = std::string(options->dev_id[at], strnlen(options->dev_id[at], DEV_ID_LEN));
            return "";
        }
    }
    return bdev + ": no such device; " + path + " has unvme_bdev0n1 to unvme_bdev" + std::to_string(devices - 1) +
           "n1, in the order of its devices";
}

void BindThreads(bool those_of_the_program, bool those_of_rocksdb)
{
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        CPU_ZERO(&all);
    binds_program = those_of_the_program;
    binds_rocksdb = those_of_rocksdb;
}

void BindThisThread()
{
    thread_local bool is_done = false;
    static std::atomic<unsigned> program{0}, rocksdb{0};
    if (is_done || (!binds_program.load(std::memory_order_relaxed) && !binds_rocksdb.load(std::memory_order_relaxed)))
        return;
    is_done = true;
    /* Background threads are called rocksdb:low and the like. */
    char name[32] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    bool is_rocksdb = strncmp(name, "rocksdb:", 8) == 0;
    if (is_rocksdb ? binds_rocksdb : binds_program)
        Bind(is_rocksdb ? rocksdb : program);
}

} // namespace unvme_rocksdb

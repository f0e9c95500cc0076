/*
 * The flags that the uNVMe SDK's db_bench has, as flags of a db_bench that nobody has changed: preloaded beside
 * librocksdb_unvme.so.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <gflags/gflags.h>

#include "guide.h"

DEFINE_string(mpdk, "", "unvme: a configuration of the SDK, which names the devices");
DEFINE_string(spdk, "", "unvme: as --mpdk");
DEFINE_string(spdk_bdev, "unvme_bdev0n1", "unvme: which of them: unvme_bdev<N>n1 is the N-th, from 0 on");
DEFINE_uint64(spdk_cache_size, 4096, "unvme: the page cache in MiB");
DEFINE_bool(use_retain_cache, false, "unvme: pages that were read stay in the cache");
DEFINE_bool(use_prefetch_ctl, false, "unvme: --block_size bytes are read ahead, from --prefetch_threshold on");
DEFINE_uint64(prefetch_threshold, 131072, "unvme: bytes that are read in order before some are read ahead");
DEFINE_bool(use_blobfs_direct_read, false, "unvme: files are read past the cache");
DEFINE_bool(use_blobfs_direct_write, false, "unvme: files are written past the cache");
DEFINE_bool(use_manual_schedule_io, false, "unvme: each thread of the benchmark has a CPU, in turn from CPU 0 on");
DEFINE_bool(use_manual_schedule_io_bg, false, "unvme: each thread of RocksDB has a CPU, in turn from CPU 0 on");

namespace {

/* A number of bytes as the file system takes it: pages, from one to 1024. */
std::string Pages(uint64_t bytes)
{
    uint64_t pages = std::min<uint64_t>(std::max<uint64_t>((bytes + 4095) / 4096, 1), 1024);
    return std::to_string(pages * 4096);
}

/* The URI that says what the flags say; ends the program when they say what cannot be. */
std::string UriOfFlags()
{
    const std::string &path = FLAGS_mpdk.empty() ? FLAGS_spdk : FLAGS_mpdk;
    std::string device;
    std::string wrong = unvme_rocksdb::DeviceOfConfiguration(path, FLAGS_spdk_bdev, &device);
    if (wrong.empty() && FLAGS_spdk_cache_size == 0)
        wrong = "--spdk_cache_size=0: a number of MiB, from 1 on, is expected";
    if (!wrong.empty()) {
        fprintf(stderr, "unvme: %s\n", wrong.c_str());
        exit(1);
    }
    std::string uri = "unvme://" + device + "?cache=" + std::to_string(FLAGS_spdk_cache_size) + "M";
    uri += FLAGS_use_retain_cache ? "&retain=1" : "&retain=0";
    if (FLAGS_use_prefetch_ctl) {
        std::string block_size;
        if (!gflags::GetCommandLineOption("block_size", &block_size))
            block_size = "4096";
        uri += "&read_ahead=" + Pages(strtoull(block_size.c_str(), nullptr, 10));
        uri += "&read_ahead_threshold=" + Pages(FLAGS_prefetch_threshold);
    }
    if (FLAGS_use_blobfs_direct_read)
        uri += "&direct_reads=1";
    if (FLAGS_use_blobfs_direct_write)
        uri += "&direct_writes=1";
    unvme_rocksdb::BindThreads(FLAGS_use_manual_schedule_io, FLAGS_use_manual_schedule_io_bg);
    return uri;
}

} // namespace

namespace GFLAGS_NAMESPACE {

/* In the place of gflags' own, which it calls: when the flags are known, --fs_uri says what they say. */
__attribute__((visibility("default"))) uint32 ParseCommandLineFlags(int *argc, char ***argv, bool remove_flags)
{
    using Function = uint32 (*)(int *, char ***, bool);
    Function next = nullptr;
    Dl_info own;
    if (dladdr((void *)(Function)&ParseCommandLineFlags, &own) != 0 && own.dli_sname != nullptr)
        next = (Function)dlsym(RTLD_NEXT, own.dli_sname);
    if (next == nullptr) {
        fprintf(stderr, "unvme: gflags' ParseCommandLineFlags() is not there\n");
        exit(1);
    }
    uint32 result = next(argc, argv, remove_flags);
    std::string uri;
    if (FLAGS_mpdk.empty() && FLAGS_spdk.empty())
        return result;
    if (!GetCommandLineOption("fs_uri", &uri)) {
        fprintf(stderr, "unvme: --mpdk: %s has no --fs_uri that could say what it means\n", ProgramInvocationShortName());
        exit(1);
    }
    if (uri.empty())
        SetCommandLineOption("fs_uri", UriOfFlags().c_str());
    return result;
}

} // namespace GFLAGS_NAMESPACE

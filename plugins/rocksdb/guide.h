/* What the uNVMe SDK's db_bench is told by flags of its own, for whoever has such flags. */
#pragma once

#include <string>

namespace unvme_rocksdb {

/*
 * The device that a configuration of the SDK has under a name of the guide's: unvme_bdev<N>n1 is the N-th,
 * from 0 on. Returns what is wrong, or "".
 */
std::string DeviceOfConfiguration(const std::string &path, const std::string &bdev, std::string *device);

/*
 * Threads that use files from now on are each bound to a CPU of its own, in turn from CPU 0 on. Called once,
 * before there are any.
 */
void BindThreads(bool those_of_the_program, bool those_of_rocksdb);

/* Called by a thread that uses a file. */
void BindThisThread();

} // namespace unvme_rocksdb

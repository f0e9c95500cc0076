/* RocksDB's LOG: what it does, line by line, for people. */
#pragma once

#include <memory>

#include <rocksdb/env.h>

#include "files.h"

namespace unvme_rocksdb {

/*
 * Lines that cannot be written are lost, and the next one is tried again. The one that RocksDB has for any
 * file system takes no more after the first error, and where it is compiled with assertions it ends the
 * program.
 */
std::shared_ptr<rocksdb::Logger> NewLog(std::unique_ptr<Handle> handle);

} // namespace unvme_rocksdb

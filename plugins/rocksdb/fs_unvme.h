/* RocksDB's file system on unvme's: what a program needs that makes one itself instead of by its URI. */
#pragma once

#include <memory>
#include <string>

#include <rocksdb/file_system.h>

namespace unvme_rocksdb {

/*
 * A FileSystem on the device of a URI: unvme://DEVICE[/FOLDER][?OPTION=VALUE&...]. InvalidArgument says
 * what is wrong with the text, IOError why the device could not be mounted.
 */
rocksdb::IOStatus NewUnvmeFileSystem(const std::string &uri, std::unique_ptr<rocksdb::FileSystem> *file_system);

} // namespace unvme_rocksdb

/* What a URI of the file system says. */
#pragma once

#include <cstdint>
#include <string>

#include <unvme_fs.h>

namespace unvme_rocksdb {

/*
 * unvme://DEVICE[/FOLDER][?KEY=VALUE&...]
 *
 * DEVICE is a name of a block device as everywhere in unvme. Names of the kinds kernel:, vfio-user: and tcp:
 * have slashes of their own: with them the folder is given as folder=FOLDER. %XX stands for a character.
 */
struct Uri {
    std::string text;
    std::string device;
    /* "" or "/a/b": before every path. */
    std::string folder;
    /* How it is mounted. */
    unvme_fs_options mount = {};
    /* Of files that are read or written past the cache even when RocksDB does not ask for it. */
    bool direct_reads = false;
    bool direct_writes = false;
    /* The page cache, by file: -1 leaves what is usual. */
    int retain = -1;
    int read_ahead = -1;
    int read_ahead_threshold = -1;

    /* Returns what is wrong with the text, or "". */
    static std::string Parse(const std::string &text, Uri *uri);

    /* Whether a file system that is mounted for one is mounted right for the other. */
    bool IsMountedAs(const Uri &other) const;
};

} // namespace unvme_rocksdb

/* Where the pairs of a database are, and how they are kept. */
#pragma once

#include <cstdint>
#include <string>

namespace unvme_rocksdb {

/*
 * DEVICE[?OPTION=VALUE&...]. DEVICE is a name of a key-value device as everywhere in unvme.
 */
struct KvPlace {
    std::string text;
    std::string device;
    /* Of the read cache; 0 for none. */
    uint64_t cache_bytes = 0;
    /* Commands that a queue takes at once. */
    uint32_t depth = 64;
    /* enum unvme_completion_mode and enum unvme_pair_commands */
    uint8_t completion = 0;
    uint8_t commands = 0;
    /* Writes return before the device has them. */
    bool is_async = false;
    /* Batches are written down before they are done. */
    bool is_atomic = true;

    /* Returns what is wrong with the text, or "". */
    static std::string Parse(const std::string &text, KvPlace *place);

    /*
     * Of a database: its own name when it begins with unvme-kv://, what UNVME_KV_ROCKSDB in the environment
     * says, or what kv_sdk_sync_config.json in the working directory does. Returns what is wrong, or "".
     */
    static std::string Of(const std::string &database, KvPlace *place);
};

} // namespace unvme_rocksdb

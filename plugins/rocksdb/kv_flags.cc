/* The flag that the uNVMe SDK's kv_db_bench has beside those of db_bench: preloaded beside libkv_rocksdb.so. */
#include <gflags/gflags.h>

DEFINE_bool(kv_async, false, "unvme: writes return before the device has them");

/* Looked for by libkv_rocksdb.so when a database is opened. */
extern "C" __attribute__((visibility("default"))) bool unvme_kv_async()
{
    return FLAGS_kv_async;
}

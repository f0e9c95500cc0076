/*
 * What kv_apis.h and kvnvme.h cannot say: errors as text, the device's whole status, devices opened by name alone, blocks,
 * lists, appending, batches, sizes, and memory with an alignment.
 *
 * A device opened here and one opened by kv_sdk_init() or kv_nvme_init() have handles of one kind: every function takes
 * either. Functions return an enum kv_result unless said otherwise; results are written only on KV_SUCCESS. Any thread may
 * call any function.
 */
#ifndef UNVME_H
#define UNVME_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include "kv_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the library, such as "0.1.0". */
const char *unvme_version(void);

/* Errors. */

/*
 * Why the last call of this thread failed, in words; "" when it did not. Valid until the thread's next call. In a callback:
 * why the operation failed.
 */
const char *unvme_last_error(void);

/*
 * The status the device gave the last operation of this thread, or in a callback that operation: the status field of its
 * completion without the phase tag, code in bits 7:0, type in bits 10:8, retry hints above. 0 for success, and for an error
 * that was found before a command was sent; unvme_last_error() tells them apart.
 */
uint16_t unvme_last_status(void);

/* The name of an enum kv_result, such as "KV_ERR_NOT_EXIST_KEY"; "unknown" for any other number. */
const char *unvme_result_name(int result);

/*
 * The name of a status, NUL-terminated, as much as fits in size bytes. Returns the bytes that the whole name has without
 * the NUL.
 */
size_t unvme_status_name(uint16_t status, char *buf, size_t size);

/* Devices by name. */

/* How a device is opened. Zeroes are the defaults: unvme_options o = { .size = sizeof o }; */
typedef struct unvme_options {
    size_t size;           /* sizeof(unvme_options), so that fields can be added */
    uint64_t slab_bytes;   /* for values on their way and for the cache; 0: 64 MiB */
    uint32_t queue_depth;  /* of an asynchronous queue, 1 to 4095; 0: 64 */
    uint32_t command_ms;   /* how long a command may take; 0: 30000 */
    bool cache;            /* read cache */
    bool poll;             /* no completion thread: callbacks come from kv_process_completion() */
} unvme_options;

/*
 * Opens a device: "0000:02:00.0", "mem:kv:1G", "mem:block:1G", "vfio-user:/path", of any length. ssd_type is an enum
 * kv_sdk_ssd_types; options may be NULL. KV_ERR_DD_NO_DEVICE when there is none of that name, KV_ERR_SDK_OPEN for another
 * reason. unvme_close() waits for what is outstanding; it cannot be called in a callback (KV_ERR_SDK_CLOSE).
 */
int unvme_open(const char *name, int ssd_type, const unvme_options *options, uint64_t *handle);
int unvme_close(uint64_t handle);

/* Key-value pairs, by key and length. keyspace is an enum kv_keyspace_id. */

/* The size of a value in bytes, without reading it. */
int unvme_value_size(uint64_t handle, uint8_t keyspace, const void *key, size_t key_length, uint64_t *bytes);

/* Adds bytes to the end of a value; of none when there is no such pair. */
int unvme_append(uint64_t handle, uint8_t keyspace, const void *key, size_t key_length, const void *value,
                 size_t value_length);

/* Called for each key of a listing; false ends it. The key is the library's, and gone after the call. */
typedef bool (*unvme_key_callback)(void *arg, const void *key, size_t length);

/*
 * Lists the keys that begin with prefix, which may be of any length (0: all keys), in an order of the device's choice.
 * Pairs that are stored or deleted meanwhile may be listed or not.
 */
int unvme_list(uint64_t handle, uint8_t keyspace, const void *prefix, size_t prefix_length,
               unvme_key_callback callback, void *arg);

/* kv_iterate_open() with its number apart from its result. */
int unvme_iterate_open(uint64_t handle, uint8_t keyspace, uint32_t bitmask, uint32_t prefix, uint8_t type,
                       uint8_t *iterator);

enum unvme_batch_verb {
    UNVME_BATCH_STORE = 0,
    UNVME_BATCH_DELETE = 1,
};

/* One operation of a batch. */
typedef struct unvme_batch_entry {
    uint8_t verb;     /* enum unvme_batch_verb */
    uint8_t keyspace; /* enum kv_keyspace_id */
    uint8_t option;   /* enum kv_store_option or enum kv_delete_option */
    uint8_t reserved; /* 0 */
    uint32_t key_length;
    const void *key;
    const void *value; /* store */
    size_t value_length;
    int result;        /* out: an enum kv_result */
    uint32_t reserved2; /* 0 */
} unvme_batch_entry;

/*
 * Does several operations, in order; each has its own result. KV_SUCCESS when all succeeded, else the first other result.
 * An operation that fails does not stop the others. Each is a command of its own: together they are not atomic.
 */
int unvme_batch(uint64_t handle, unvme_batch_entry *entries, size_t count);

/* Logical blocks, for devices of LBA_TYPE_SSD. Lengths are whole blocks and at most 2 MiB for the asynchronous calls. */

typedef struct unvme_block_info {
    uint64_t blocks;
    uint32_t block_bytes;
    uint32_t transfer_bytes_max; /* of one command; unvme_read() and unvme_write() take any length */
} unvme_block_info;

int unvme_block_info_get(uint64_t handle, unvme_block_info *info);
int unvme_read(uint64_t handle, uint64_t lba, uint64_t blocks, void *buf);
int unvme_write(uint64_t handle, uint64_t lba, uint64_t blocks, const void *buf);
int unvme_deallocate(uint64_t handle, uint64_t lba, uint64_t blocks);
int unvme_flush(uint64_t handle);

/* Called once for each operation that was accepted: an enum kv_result, and unvme_last_status() and so on as above. */
typedef void (*unvme_callback)(void *arg, int result);

int unvme_read_async(uint64_t handle, uint64_t lba, uint32_t blocks, void *buf, unvme_callback callback, void *arg);
int unvme_write_async(uint64_t handle, uint64_t lba, uint32_t blocks, const void *buf, unvme_callback callback,
                      void *arg);

/*
 * Memory for operations that copy nothing: kv_nvme_write() and kv_nvme_read() of a value at the start of such memory let
 * the device at it directly. alignment is a power of two up to 4096, or 0 for that of kv_alloc(). Zeroed; freed by
 * kv_free(); NULL when there is none, or for another alignment.
 */
void *unvme_alloc(size_t bytes, size_t alignment);

#ifdef __cplusplus
}
#endif

#endif /* UNVME_H */

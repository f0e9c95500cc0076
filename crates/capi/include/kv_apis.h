/*
 * The key-value SDK, as programs written for the uNVMe 2.0 SDK call it.
 *
 * Any thread may call any function. Unless said otherwise a function returns an enum kv_result: KV_SUCCESS or
 * what went wrong. A handle that is not that of an open device is KV_ERR_SDK_INVALID_PARAM. What cannot be
 * said by a result is in unvme.h: the device's status, and errors as text.
 */
#ifndef KV_APIS_C_H
#define KV_APIS_C_H

#include "kv_types.h"
#include "spdk/env.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lifecycle. */

/*
 * Opens all devices of a configuration: of a file (KV_SDK_INIT_FROM_JSON, a path) or of a structure
 * (KV_SDK_INIT_FROM_STR, a kv_sdk *, into which the effective configuration and the device handles are
 * written). Nothing stays open when it fails: KV_ERR_SDK_OPEN when the configuration is wrong or a device
 * cannot be opened, KV_ERR_DD_NO_DEVICE when there is no such device; the reason is on stderr. While it is
 * initialised, it only counts, and a structure is told what is in effect.
 */
int kv_sdk_init(int init_from, void *option);

/* As kv_sdk_init(); an environment of SPDK has no meaning here and may be NULL. */
int kv_sdk_init_with_spdk_opts(int init_from, void *option, struct spdk_env_opts *spdk_opts);

/* Reads a configuration file into *opt, only what is in the file. 0, or -1 with the reason on stderr. */
int kv_sdk_load_option(kv_sdk *opt, char *json_path);

/* Takes back one kv_sdk_init(). The last one waits for what is outstanding and closes the devices. */
int kv_sdk_finalize(void);

/* 1 when it is initialised, else 0. */
int kv_is_sdk_initialized(void);

/* One line about the library and the machine, on stderr. */
void kv_sdk_info(void);

/* Devices. */

/* The CPU that the calling thread is on. */
int kv_get_core_id(void);

/* Bytes of a device; KV_ERR_INVALID_VALUE on failure. */
uint64_t kv_get_total_size(uint64_t handle);

/* KV: how full it is, 0 to 10000. LBA: used bytes. KV_ERR_INVALID_VALUE on failure. */
uint64_t kv_get_used_size(uint64_t handle);

/* Ten times the write amplification; KV_ERR_INVALID_VALUE on failure. */
uint64_t kv_get_waf(uint64_t handle);

/* Bytes of a logical block; 0 on failure. */
uint32_t kv_get_sector_size(uint64_t handle);

/* Logical blocks of a device; KV_ERR_INVALID_VALUE on failure. */
uint64_t kv_get_num_sectors(uint64_t handle);

/* Reads a log page from its start. buffer_size: bytes, a multiple of 4. */
int kv_get_log_page(uint64_t handle, uint8_t log_id, void *buffer, uint32_t buffer_size);

/* 1 when the queue of this CPU is synchronous, 2 when it is asynchronous, KV_ERR_IO when it has none. */
int kv_io_queue_type(uint64_t handle, int core_id);

/*
 * Devices with a queue for this CPU. arr_handle has room for NR_MAX_SSD. KV_ERR_IO and 0 when there is none.
 */
int kv_get_devices_on_cpu(int core_id, int *nr_device, uint64_t *arr_handle);

/* All devices. arr_handle has room for NR_MAX_SSD. */
int kv_get_device_handles(int *nr_device, uint64_t *arr_handle);

/* CPUs with a queue to this device. arr_core has room for MAX_CPU_CORES. */
int kv_get_cpus_on_device(uint64_t handle, int *nr_core, int *arr_core);

/* The place of a device in the configuration, from 0. */
int kv_get_dev_idx_on_handle(uint64_t handle);

/*
 * Moves the calling thread to the next CPU whose queue is synchronous, or asynchronous; false when there is
 * none. Nothing here needs it: operations find a queue of their kind by themselves.
 */
bool context_switch_async_to_sync(int did);
bool context_switch_sync_to_async(int did);

/* Erases everything: 0 the map, else the data too. Returns when it is done. KV_ERR_IO when it fails. */
int kv_format_device(uint64_t handle, int erase_user_data);

/*
 * Key-value pairs. On a block device (LBA_TYPE_SSD) the first 8 bytes of the key are the first logical block,
 * little endian, and lengths are in bytes and multiples of the block size.
 */

/* Stores a pair. In: value.value, value.length (any up to 256 MiB on a device that takes them; the
 * original's take KV_MAX_IO_VALUE_LEN), io_option.store_option. */
int kv_store(uint64_t handle, kv_pair *kv);

/*
 * Reads a value, from value.offset (a multiple of 512) on, into a buffer of value.length (a multiple of 4)
 * bytes. A buffer that is too short is filled, and that is success: actual_value_size says what there is. On
 * failure both are 0.
 */
int kv_retrieve(uint64_t handle, kv_pair *kv);

/* Deletes a pair. Success also when there is none, unless io_option.delete_option says to check. */
int kv_delete(uint64_t handle, kv_pair *kv);

/* KV_SUCCESS when the key exists, KV_ERR_NOT_EXIST_KEY when it does not. */
int kv_exist(uint64_t handle, kv_pair *kv);

/* KV_ERR_DD_UNSUPPORTED_CMD, as in the original SDK; unvme_append() of unvme.h appends. */
int kv_append(uint64_t handle, kv_pair *kv);

/*
 * The same without waiting. KV_SUCCESS: param.async_cb will be called once, and until then the pair, its key
 * and its value belong to the library. Anything else: it was not accepted, and there is no call. A retrieve
 * that the cache answers makes its call before the function returns.
 */
int kv_store_async(uint64_t handle, kv_pair *kv);
int kv_retrieve_async(uint64_t handle, kv_pair *kv);
int kv_delete_async(uint64_t handle, kv_pair *kv);
int kv_exist_async(uint64_t handle, kv_pair *kv);

/*
 * Makes the calls of operations that have finished, on all asynchronous queues of a device or on that of one
 * CPU (64 or more: the caller's). For devices whose cq_thread_mask is 0; harmless otherwise.
 */
void kv_process_completion(uint64_t handle);
void kv_process_completion_queue(uint64_t handle, uint32_t queue_id);

/* Iterators. */

/*
 * Opens an iterator over the keys whose first four bytes, taken as a big endian number, equal prefix in the
 * bits of bitmask, which are contiguous from the highest on. Returns its number, 1 to 16, or an enum
 * kv_result. A keyspace that does not exist is 5, KV_ERR_INVALID_KEYSPACE_ID; unvme_iterate_open() of unvme.h
 * keeps numbers and errors apart.
 */
uint32_t kv_iterate_open(uint64_t handle, const uint8_t keyspace_id, const uint32_t bitmask, const uint32_t prefix,
                         const uint8_t iterate_type);

int kv_iterate_close(uint64_t handle, const uint8_t iterator);

/*
 * Reads keys: a 32-bit number of keys, then for each its 32-bit length and its bytes, padded to a multiple of
 * 4; all little endian. In: value.length is KV_ITERATE_READ_BUFFER_SIZE. Out: value.length is the bytes read,
 * key.length is 0. KV_SUCCESS: there is more. KV_ERR_ITERATE_READ_EOF: this was the last of it, and may have
 * keys. Any other result, KV_ERR_IO if the device said it: value.length is 0.
 */
int kv_iterate_read(uint64_t handle, kv_iterate *it);
int kv_iterate_read_async(uint64_t handle, kv_iterate *it);

/* The state of the iterators 1 to nr_handle, which is 1 to 16. */
int kv_iterate_info(uint64_t handle, kv_iterate_handle_info *info, int nr_handle);

#ifdef __cplusplus
}
#endif

#endif /* KV_APIS_C_H */

/*
 * Sizes, offsets and values of kv_types.h and kvnvme.h, as literals: this compiles or it does not.
 */
#include <stddef.h>

#include "kv_apis.h"
#include "kvnvme.h"
#include "unvme.h"
#include "latency_stat.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define AT(type, field, bytes) _Static_assert(offsetof(type, field) == (bytes), #type "." #field)
#define IS(name, number) _Static_assert((name) == (number), #name)

SIZE(kv_key, 16);
AT(kv_key, key, 0);
AT(kv_key, length, 8);

SIZE(kv_value, 24);
AT(kv_value, value, 0);
AT(kv_value, length, 8);
AT(kv_value, actual_value_size, 12);
AT(kv_value, offset, 16);

SIZE(kv_param, 24);
AT(kv_param, async_cb, 0);
AT(kv_param, private_data, 8);
AT(kv_param, io_option, 16);
AT(kv_param, io_option.store_option, 16);
AT(kv_param, io_option.retrieve_option, 16);
AT(kv_param, io_option.delete_option, 16);
AT(kv_param, io_option.iterate_request_option, 16);
AT(kv_param, io_option.iterate_read_option, 16);
AT(kv_param, io_option.exist_option, 16);

SIZE(kv_pair, 72);
AT(kv_pair, keyspace_id, 0);
AT(kv_pair, key, 8);
AT(kv_pair, value, 24);
AT(kv_pair, param, 48);

SIZE(kv_iterate, 80);
AT(kv_iterate, iterator, 0);
AT(kv_iterate, kv, 8);

SIZE(kv_iterate_handle_info, 16);
AT(kv_iterate_handle_info, handle_id, 0);
AT(kv_iterate_handle_info, status, 1);
AT(kv_iterate_handle_info, type, 2);
AT(kv_iterate_handle_info, keyspace_id, 3);
AT(kv_iterate_handle_info, prefix, 4);
AT(kv_iterate_handle_info, bitmask, 8);
AT(kv_iterate_handle_info, is_eof, 12);
AT(kv_iterate_handle_info, reserved, 13);

SIZE(kv_nvme_io_options, 40);
AT(kv_nvme_io_options, core_mask, 0);
AT(kv_nvme_io_options, sync_mask, 8);
AT(kv_nvme_io_options, num_cq_threads, 16);
AT(kv_nvme_io_options, cq_thread_mask, 24);
AT(kv_nvme_io_options, queue_depth, 32);
AT(kv_nvme_io_options, mem_size_mb, 36);

SIZE(kv_sdk, 6240);
AT(kv_sdk, use_cache, 0);
AT(kv_sdk, cache_algorithm, 4);
AT(kv_sdk, cache_reclaim_policy, 8);
AT(kv_sdk, slab_size, 16);
AT(kv_sdk, slab_alloc_policy, 24);
AT(kv_sdk, ssd_type, 28);
AT(kv_sdk, submit_retry_interval, 32);
AT(kv_sdk, nr_ssd, 36);
AT(kv_sdk, dev_id, 40);
AT(kv_sdk, dd_options, 2088);
AT(kv_sdk, dev_handle, 4648);
AT(kv_sdk, log_level, 5160);
AT(kv_sdk, log_file, 5164);
AT(kv_sdk, cb_cnt_mutex, 6192);
AT(kv_sdk, app_hugemem_size, 6232);

SIZE(kv_nvme_cmd_t, 64);
AT(kv_nvme_cmd_t, cid, 2);
AT(kv_nvme_cmd_t, nsid, 4);
AT(kv_nvme_cmd_t, rsvd2, 8);
AT(kv_nvme_cmd_t, rsvd3, 12);
AT(kv_nvme_cmd_t, mptr, 16);
AT(kv_nvme_cmd_t, prp1, 24);
AT(kv_nvme_cmd_t, prp2, 32);
AT(kv_nvme_cmd_t, cdw10, 40);
AT(kv_nvme_cmd_t, cdw15, 60);
SIZE(kv_nvme_cpl_t, 8);
AT(kv_nvme_cpl_t, status, 4);

SIZE(unvme_options, 32);
AT(unvme_options, slab_bytes, 8);
AT(unvme_options, queue_depth, 16);
AT(unvme_options, command_ms, 20);
AT(unvme_options, cache, 24);
AT(unvme_options, poll, 25);
AT(unvme_options, interrupts, 26);
SIZE(unvme_batch_entry, 40);
AT(unvme_batch_entry, key_length, 4);
AT(unvme_batch_entry, value_length, 24);
AT(unvme_batch_entry, result, 32);
SIZE(unvme_block_info, 16);

SIZE(struct latency_stat, 3208);
AT(struct latency_stat, count_for_bucket, 32);
AT(struct latency_stat, mean, 3192);

IS(KV_MIN_VALUE_LEN, 0);
IS(KV_MAX_IO_VALUE_LEN, 2097152);
IS(LBA_MAX_IO_VALUE_LEN, 2097152);
IS(KV_MIN_KEY_LEN, 4);
IS(KV_MAX_KEY_LEN, 255);
IS(KV_ITERATE_READ_BUFFER_OFFSET, 4);
IS(KV_ALIGNMENT_UNIT, 512);
IS(KV_VALUE_LENGTH_ALIGNMENT_UNIT, 4);
IS(KV_ITERATE_READ_BUFFER_SIZE, 32768);
IS(KV_MAX_ITERATE_HANDLE, 16);
IS(DEV_ID_LEN, 32);
IS(NR_MAX_SSD, 64);
IS(MAX_CPU_CORES, 64);
IS(SOCKET_ID_ANY, -1);
IS(KV_ERR_INVALID_VALUE, 0xffffffffffffffff);
IS(KV_INVALID_ITERATE_HANDLE, 0);

IS(KV_SDK_INIT_FROM_JSON, 0);
IS(KV_SDK_INIT_FROM_STR, 1);
IS(KV_TYPE_SSD, 0);
IS(LBA_TYPE_SSD, 1);
IS(CACHE_ALGORITHM_RADIX, 0);
IS(CACHE_RECLAIM_LRU, 0);
IS(SLAB_MM_ALLOC_POSIX, 0x10);
IS(SLAB_MM_ALLOC_HUGE, 0x20);
IS(KV_STORE_DEFAULT, 0);
IS(KV_STORE_COMPRESSION, 1);
IS(KV_STORE_IDEMPOTENT, 2);
IS(KV_RETRIEVE_DEFAULT, 0);
IS(KV_RETRIEVE_DECOMPRESSION, 1);
IS(KV_DELETE_DEFAULT, 0);
IS(KV_DELETE_CHECK_IDEMPOTENT, 1);
IS(KV_EXIST_DEFAULT, 0);
IS(KV_FORMAT_MAPDATA, 0);
IS(KV_FORMAT_USERDATA, 1);
IS(KV_ITERATE_REQUEST_DEFAULT, 0);
IS(KV_ITERATE_REQUEST_OPEN, 1);
IS(KV_ITERATE_REQUEST_CLOSE, 2);
IS(KV_ITERATE_READ_DEFAULT, 0);
IS(KV_KEY_ITERATE, 1);
IS(KV_KEY_ITERATE_WITH_RETRIEVE, 2);
IS(KV_KEY_ITERATE_WITH_DELETE, 3);
IS(KV_KEYSPACE_IODATA, 0);
IS(KV_KEYSPACE_METADATA, 1);
IS(ITERATE_HANDLE_OPENED, 1);
IS(ITERATE_HANDLE_CLOSED, 0);

IS(KV_SUCCESS, 0);
IS(KV_ERR_INVALID_VALUE_SIZE, 0x01);
IS(KV_ERR_INVALID_VALUE_OFFSET, 0x02);
IS(KV_ERR_INVALID_KEY_SIZE, 0x03);
IS(KV_ERR_INVALID_OPTION, 0x04);
IS(KV_ERR_INVALID_KEYSPACE_ID, 0x05);
IS(KV_ERR_MISALIGNED_VALUE_SIZE, 0x08);
IS(KV_ERR_MISALIGNED_VALUE_OFFSET, 0x09);
IS(KV_ERR_MISALIGNED_KEY_SIZE, 0x0a);
IS(KV_ERR_NOT_EXIST_KEY, 0x10);
IS(KV_ERR_UNRECOVERED_ERROR, 0x11);
IS(KV_ERR_CAPACITY_EXCEEDED, 0x12);
IS(KV_ERR_IDEMPOTENT_STORE_FAIL, 0x80);
IS(KV_ERR_MAXIMUM_VALUE_SIZE_LIMIT_EXCEEDED, 0x81);
IS(KV_ERR_ITERATE_FAIL_TO_PROCESS_REQUEST, 0x90);
IS(KV_ERR_ITERATE_NO_AVAILABLE_HANDLE, 0x91);
IS(KV_ERR_ITERATE_HANDLE_ALREADY_OPENED, 0x92);
IS(KV_ERR_ITERATE_READ_EOF, 0x93);
IS(KV_ERR_ITERATE_REQUEST_FAIL, 0x94);
IS(KV_ERR_ITERATE_TCG_LOCKED, 0x95);
IS(KV_ERR_ITERATE_ERROR, 0x96);
IS(KV_ERR_DD_NO_DEVICE, 0x100);
IS(KV_ERR_DD_INVALID_PARAM, 0x101);
IS(KV_ERR_DD_INVALID_QUEUE_TYPE, 0x102);
IS(KV_ERR_DD_NO_AVAILABLE_RESOURCE, 0x103);
IS(KV_ERR_DD_NO_AVAILABLE_QUEUE, 0x104);
IS(KV_ERR_DD_UNSUPPORTED_CMD, 0x105);
IS(KV_ERR_DD_ITERATE_COND_INVALID, 0x106);
IS(KV_ERR_SDK_OPEN, 0x200);
IS(KV_ERR_SDK_CLOSE, 0x201);
IS(KV_ERR_CACHE_NO_CACHED_KEY, 0x202);
IS(KV_ERR_CACHE_INVALID_PARAM, 0x203);
IS(KV_ERR_HEAP_ALLOC_FAILURE, 0x204);
IS(KV_ERR_SLAB_ALLOC_FAILURE, 0x205);
IS(KV_ERR_SDK_INVALID_PARAM, 0x206);
IS(KV_WRN_MORE, 0x300);
IS(KV_ERR_BUFFER, 0x301);
IS(KV_ERR_DECOMPRESSION, 0x302);
IS(KV_ERR_IO, 0x303);

IS(SYNC_IO_QUEUE, 1);
IS(ASYNC_IO_QUEUE, 2);
IS(DEFAULT_IO_QUEUE_DEPTH, 256);
IS(DEFAULT_IO_QUEUE_ID, -1);
IS(KV_SHM_ID, 0x1234);
IS(KV_MEM_SIZE, 8192);
IS(ADMIN_CMD_TYPE, 0);
IS(IO_CMD_TYPE, 1);

int main(void)
{
    return 0;
}

/*
 * The driver level, as programs written for the uNVMe 2.0 SDK call it: one device at a time, a queue of the
 * caller's choice, no copies of values that are in memory of kv_alloc().
 *
 * kv_pair and kv_iterate mean what they mean in kv_apis.h. A function that takes a qid uses the queue of that
 * CPU; -1 (DEFAULT_IO_QUEUE_ID) means the CPU that the caller is on. A queue of the wrong kind is
 * KV_ERR_DD_INVALID_QUEUE_TYPE, a CPU without a queue KV_ERR_DD_NO_AVAILABLE_QUEUE, and a full queue
 * KV_ERR_DD_NO_AVAILABLE_RESOURCE: at once on a device of kv_nvme_init(), as submit_retry_interval says on
 * one of kv_sdk_init().
 */
#ifndef _KVNVME_H_
#define _KVNVME_H_

#include <errno.h>
#include <string.h>
#include <stdint.h>
#include <stdlib.h>
#include <getopt.h>
#include <unistd.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/queue.h>
#include <fcntl.h>
#include "kv_types.h"
#include "spdk/env.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SYNC_IO_QUEUE 1
#define ASYNC_IO_QUEUE 2

#define DEFAULT_IO_QUEUE_DEPTH 256
#define DEFAULT_IO_QUEUE_ID (-1)

#define KV_SHM_ID 0x1234
#define KV_MEM_SIZE 8192

typedef void (*kv_cb_fn_t)(const kv_pair *kv, unsigned int result, unsigned int status);
typedef void (*kv_aer_cb_fn_t)(void *aer_cb_arg, unsigned int result, unsigned int status);

typedef enum raw_cmd_type {
    ADMIN_CMD_TYPE,
    IO_CMD_TYPE,
} raw_cmd_type_t;

/* A submission queue entry. */
typedef struct kv_nvme_cmd {
    uint16_t opc : 8;
    uint16_t fuse : 2;
    uint16_t rsvd1 : 4;
    uint16_t psdt : 2;
    uint16_t cid;
    uint32_t nsid;
    uint32_t rsvd2;
    uint32_t rsvd3;
    uint64_t mptr;
    uint64_t prp1;
    uint64_t prp2;
    uint32_t cdw10;
    uint32_t cdw11;
    uint32_t cdw12;
    uint32_t cdw13;
    uint32_t cdw14;
    uint32_t cdw15;
} kv_nvme_cmd_t;

/* What came of it: dword 0 of the completion, and its status field without the phase tag. */
typedef struct kv_nvme_cpl {
    uint32_t result;
    uint32_t status;
} kv_nvme_cpl_t;

/* Memory for kv_alloc() is taken as it is needed; these succeed and exist for programs that call them. */
int kv_env_init(uint32_t process_mem_size_mb);
int kv_env_init_with_spdk_opts(struct spdk_env_opts *opts);

/*
 * Brings a device up, with the queues and threads of options. ssd_type is an enum kv_sdk_ssd_types. 0, or
 * KV_ERR_DD_NO_DEVICE, KV_ERR_DD_INVALID_PARAM, KV_ERR_IO; the reason is on stderr.
 */
int kv_nvme_init(const char *bdf, kv_nvme_io_options *options, unsigned int ssd_type);

/* 1 once a device has been brought up, else 0. */
int kv_nvme_is_dd_initialized(void);

/* A handle to a device that is up; 0 when it is not. kv_nvme_close() takes it back. */
uint64_t kv_nvme_open(const char *bdf);
int kv_nvme_close(uint64_t handle);

/* Shuts a device down. Its handles are void from then on. */
int kv_nvme_finalize(char *bdf);

/* As the functions of kv_apis.h without nvme in their name. */
uint64_t kv_nvme_get_total_size(uint64_t handle);
uint64_t kv_nvme_get_used_size(uint64_t handle);
uint64_t kv_nvme_get_waf(uint64_t handle);
uint32_t kv_nvme_get_sector_size(uint64_t handle);
uint64_t kv_nvme_get_num_sectors(uint64_t handle);
int kv_nvme_get_log_page(uint64_t handle, uint8_t log_id, void *buffer, uint32_t buffer_size);
int kv_nvme_io_queue_type(uint64_t handle, int core_id);
int kv_nvme_format(uint64_t handle, int erase_user_data);

/* Commands that can be outstanding on one asynchronous queue; 0 on failure. */
uint16_t kv_nvme_get_io_queue_size(uint64_t handle);

/*
 * A count for each CPU, for programs that limit what they submit; the library does not touch it. Returns the
 * new count.
 */
uint16_t kv_nvme_get_current_qd(uint64_t handle, int core_id);
uint16_t kv_nvme_increase_current_qd(uint64_t handle, int core_id);
uint16_t kv_nvme_decrease_current_qd(uint64_t handle, int core_id);

/*
 * Has aer_cb_fn called for every asynchronous event: result is dword 0 of its completion, status its status.
 * NULL ends it. The calls come from a thread of the library.
 */
int kv_nvme_register_aer_callback(uint64_t handle, kv_aer_cb_fn_t aer_cb_fn, void *aer_cb_arg);

/*
 * Sends any command and waits. Data goes through buf, in the direction that bits 1:0 of the opcode say; the
 * data pointer and the command identifier are filled in. Returns what the caller frees with free(), or NULL.
 */
kv_nvme_cpl_t *kv_nvme_submit_raw_cmd(uint64_t handle, kv_nvme_cmd_t cmd, void *buf, uint32_t buf_len,
                                      raw_cmd_type_t type);

/* Key-value pairs. kv_nvme_read() checks value.length and value.offset as kv_retrieve() does. */
int kv_nvme_write(uint64_t handle, int qid, kv_pair *kv);
int kv_nvme_read(uint64_t handle, int qid, kv_pair *kv);
int kv_nvme_append(uint64_t handle, int qid, kv_pair *kv);
int kv_nvme_delete(uint64_t handle, int qid, const kv_pair *kv);
int kv_nvme_exist(uint64_t handle, int qid, const kv_pair *kv);
int kv_nvme_write_async(uint64_t handle, int qid, kv_pair *kv);
int kv_nvme_read_async(uint64_t handle, int qid, kv_pair *kv);
int kv_nvme_delete_async(uint64_t handle, int qid, const kv_pair *kv);
int kv_nvme_exist_async(uint64_t handle, int qid, const kv_pair *kv);

/* Iterators. */
uint32_t kv_nvme_iterate_open(uint64_t handle, const uint8_t keyspace_id, const uint32_t bitmask,
                              const uint32_t prefix, const uint8_t iterate_type);
int kv_nvme_iterate_close(uint64_t handle, const uint8_t iterator);
int kv_nvme_iterate_read(uint64_t handle, int qid, kv_iterate *it);
int kv_nvme_iterate_read_async(uint64_t handle, int qid, kv_iterate *it);
int kv_nvme_iterate_info(uint64_t handle, kv_iterate_handle_info *info, int nr_handle);

/*
 * Memory that a device can reach, page aligned from 4 KiB on. NULL when there is none. Memory that was taken
 * before any device was brought up works as well, at the price of a copy for each operation.
 */
void *kv_alloc(unsigned long long size);
void *kv_zalloc(unsigned long long size);
void *kv_zalloc_socket(unsigned long long size, int socket_id);
void kv_free(void *ptr);

void kv_nvme_sdk_info(void);
void kv_nvme_process_completion(uint64_t handle);
void kv_nvme_process_completion_queue(uint64_t handle, uint32_t queue_id);

#ifdef __cplusplus
}
#endif

#endif /* _KVNVME_H_ */

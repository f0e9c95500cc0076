/*
 * The driver level, in the manner of the original SDK's driver tests: an environment, a device by its masks,
 * a pinned thread, values in memory of kv_zalloc(), keys in any. The first argument is "sync" or "async".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "kv_types.h"
#include "kvnvme.h"
#include "kvutil.h"
#include "check.h"

enum { PAIRS = 500, VALUE = 4096 };

static char device_name[] = "mem:kv:64M";
static int completed;
static int is_async;

static void on_done(const kv_pair *kv, unsigned int result, unsigned int status)
{
    (void)kv;
    (void)result;
    EQUAL(status, KV_SUCCESS);
    __atomic_add_fetch(&completed, 1, __ATOMIC_SEQ_CST);
}

static uint64_t start(void)
{
    kv_nvme_io_options options = {0};
    options.core_mask = 1;
    options.sync_mask = !is_async;
    options.num_cq_threads = 1;
    options.cq_thread_mask = 2;
    options.queue_depth = 64;
    options.mem_size_mb = 512;
    EQUAL(kv_env_init(options.mem_size_mb), 0);
    EQUAL(kv_nvme_is_dd_initialized(), 0);
    EQUAL(kv_nvme_open(device_name), 0);
    EQUAL(kv_nvme_init(NULL, &options, KV_TYPE_SSD), KV_ERR_DD_INVALID_PARAM);
    EQUAL(kv_nvme_init(device_name, NULL, KV_TYPE_SSD), KV_ERR_DD_INVALID_PARAM);
    EQUAL(kv_nvme_init(device_name, &options, 2), KV_ERR_DD_INVALID_PARAM);
    EQUAL(kv_nvme_init("0000:ff:1f.7", &options, KV_TYPE_SSD), KV_ERR_DD_NO_DEVICE);
    EQUAL(kv_nvme_init(device_name, &options, KV_TYPE_SSD), 0);
    EQUAL(kv_nvme_init(device_name, &options, KV_TYPE_SSD), KV_ERR_DD_INVALID_PARAM);
    EQUAL(kv_nvme_is_dd_initialized(), 1);

    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    sched_setaffinity(0, sizeof(cpus), &cpus);
    uint64_t handle = kv_nvme_open(device_name);
    REQUIRE(handle != 0);
    TRUE(kv_nvme_get_total_size(handle) != KV_ERR_INVALID_VALUE);
    EQUAL(kv_nvme_get_used_size(handle), 0);
    TRUE(kv_nvme_get_waf(handle) != KV_ERR_INVALID_VALUE);
    EQUAL(kv_nvme_get_sector_size(handle), 512);
    EQUAL(kv_nvme_get_io_queue_size(handle), 64);
    EQUAL(kv_nvme_io_queue_type(handle, 0), is_async ? ASYNC_IO_QUEUE : SYNC_IO_QUEUE);
    EQUAL(kv_nvme_io_queue_type(handle, 1), KV_ERR_IO);
    return handle;
}

/* Runs an operation on every pair; a full queue is an error of its own and is tried again. */
static void run(uint64_t handle, kv_pair *kv, int (*sync)(uint64_t, int, kv_pair *),
                int (*async)(uint64_t, int, kv_pair *))
{
    completed = 0;
    for (int i = 0; i < PAIRS; i++) {
        kv[i].value.length = VALUE;
        int ret;
        do {
            ret = is_async ? async(handle, DEFAULT_IO_QUEUE_ID, &kv[i]) : sync(handle, 0, &kv[i]);
        } while (ret == KV_ERR_DD_NO_AVAILABLE_RESOURCE);
        EQUAL(ret, KV_SUCCESS);
    }
    while (is_async && __atomic_load_n(&completed, __ATOMIC_SEQ_CST) < PAIRS)
        usleep(1);
}

static int delete_sync(uint64_t h, int q, kv_pair *kv) { return kv_nvme_delete(h, q, kv); }
static int delete_async(uint64_t h, int q, kv_pair *kv) { return kv_nvme_delete_async(h, q, kv); }
static int exist_sync(uint64_t h, int q, kv_pair *kv) { return kv_nvme_exist(h, q, kv); }
static int exist_async(uint64_t h, int q, kv_pair *kv) { return kv_nvme_exist_async(h, q, kv); }

static void pairs(uint64_t handle)
{
    kv_pair *kv = calloc(PAIRS, sizeof(kv_pair));
    for (int i = 0; i < PAIRS; i++) {
        kv[i].keyspace_id = KV_KEYSPACE_METADATA;
        kv[i].key.key = i % 2 ? kv_zalloc(20) : calloc(1, 20);
        sprintf(kv[i].key.key, "mountain%08x", i);
        kv[i].key.length = 16;
        kv[i].value.value = kv_zalloc(VALUE);
        REQUIRE(kv[i].value.value != NULL);
        memset(kv[i].value.value, 'a' + i % 26, VALUE);
        kv[i].param.async_cb = on_done;
    }
    run(handle, kv, kv_nvme_write, kv_nvme_write_async);
    for (int i = 0; i < PAIRS; i++)
        memset(kv[i].value.value, 0, VALUE);
    run(handle, kv, kv_nvme_read, kv_nvme_read_async);
    for (int i = 0; i < PAIRS; i++) {
        EQUAL(kv[i].value.length, VALUE);
        TRUE(all_are(kv[i].value.value, VALUE, (char)('a' + i % 26)));
    }
    run(handle, kv, exist_sync, exist_async);
    TRUE(kv_nvme_get_used_size(handle) > 0);
    run(handle, kv, delete_sync, delete_async);
    for (int i = 0; i < PAIRS; i++) {
        kv_free(kv[i].value.value);
        if (i % 2)
            kv_free(kv[i].key.key);
        else
            free(kv[i].key.key);
    }
    free(kv);
}

static void a_queue_of_the_wrong_kind_is_an_error(uint64_t handle)
{
    kv_pair *pair = pair_of("wrong queue", 64, 'w');
    if (is_async) {
        EQUAL(kv_nvme_write(handle, 0, pair), KV_ERR_DD_INVALID_QUEUE_TYPE);
        EQUAL(kv_nvme_read(handle, DEFAULT_IO_QUEUE_ID, pair), KV_ERR_DD_INVALID_QUEUE_TYPE);
        EQUAL(kv_nvme_write_async(handle, 1, pair), KV_ERR_DD_NO_AVAILABLE_QUEUE);
        EQUAL(kv_nvme_write_async(handle, -2, pair), KV_ERR_DD_INVALID_PARAM);
    } else {
        EQUAL(kv_nvme_write_async(handle, 0, pair), KV_ERR_DD_INVALID_QUEUE_TYPE);
        EQUAL(kv_nvme_read_async(handle, DEFAULT_IO_QUEUE_ID, pair), KV_ERR_DD_INVALID_QUEUE_TYPE);
        EQUAL(kv_nvme_write(handle, 63, pair), KV_ERR_DD_NO_AVAILABLE_QUEUE);
        pair = pair_of("appended", 64, 'a');
        EQUAL(kv_nvme_write(handle, 0, pair), KV_SUCCESS);
        EQUAL(kv_nvme_append(handle, 0, pair), KV_SUCCESS);
        pair = pair_of("appended", 256, 0);
        EQUAL(kv_nvme_read(handle, 0, pair), KV_SUCCESS);
        EQUAL(pair->value.length, 128);
    }
}

static void raw_commands(uint64_t handle)
{
    unsigned char data[4096] = {0};
    kv_nvme_cmd_t cmd;
    memset(&cmd, 0, sizeof(cmd));
    cmd.opc = 0x06; /* Identify, CNS 01h: the controller */
    cmd.cdw10 = 1;
    kv_nvme_cpl_t *cpl = kv_nvme_submit_raw_cmd(handle, cmd, data, sizeof(data), ADMIN_CMD_TYPE);
    REQUIRE(cpl != NULL);
    EQUAL(cpl->status, 0);
    TRUE(memcmp(data + 24, "unvme", 5) == 0 || data[24] != 0); /* the model number is there */
    free(cpl);

    memset(&cmd, 0, sizeof(cmd));
    cmd.opc = 0x7f; /* no such command */
    cpl = kv_nvme_submit_raw_cmd(handle, cmd, NULL, 0, ADMIN_CMD_TYPE);
    REQUIRE(cpl != NULL);
    EQUAL(cpl->status & 0x7ff, 0x001);
    free(cpl);

    memset(&cmd, 0, sizeof(cmd));
    cmd.nsid = 1; /* Flush */
    cpl = kv_nvme_submit_raw_cmd(handle, cmd, NULL, 0, IO_CMD_TYPE);
    REQUIRE(cpl != NULL);
    EQUAL(cpl->status, 0);
    free(cpl);
    TRUE(kv_nvme_submit_raw_cmd(handle, cmd, NULL, 0, 7) == NULL);
    TRUE(kv_nvme_submit_raw_cmd(handle, cmd, NULL, 4096, IO_CMD_TYPE) == NULL);
    TRUE(kv_nvme_submit_raw_cmd(0, cmd, NULL, 0, IO_CMD_TYPE) == NULL);
    unsigned char log[512];
    EQUAL(kv_nvme_get_log_page(handle, 0xC0, log, sizeof(log)), KV_SUCCESS);
}

int main(int argc, char **argv)
{
    is_async = argc > 1 && strcmp(argv[1], "async") == 0;
    uint64_t handle = start();
    RUN(pairs(handle));
    RUN(a_queue_of_the_wrong_kind_is_an_error(handle));
    RUN(raw_commands(handle));
    kv_nvme_process_completion(handle);
    kv_nvme_process_completion_queue(handle, 64);
    EQUAL(kv_nvme_format(handle, KV_FORMAT_USERDATA), KV_SUCCESS);
    uint64_t second = kv_nvme_open(device_name);
    TRUE(second != 0 && second != handle);
    EQUAL(kv_nvme_close(second), KV_SUCCESS);
    EQUAL(kv_nvme_close(second), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_nvme_close(handle), KV_SUCCESS);
    EQUAL(kv_nvme_finalize(device_name), KV_SUCCESS);
    EQUAL(kv_nvme_finalize(device_name), KV_ERR_DD_NO_DEVICE);
    EQUAL(kv_nvme_is_dd_initialized(), 0);
    kv_nvme_sdk_info();
    return check_summary();
}

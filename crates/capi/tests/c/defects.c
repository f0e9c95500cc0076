/*
 * What the original SDK got wrong and this one must not: one test for each, with the number it has in the
 * list of what is known of it. Those of block devices are in lba.c, those of helpers beside their code.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"
#include "kvnvme.h"
#include "kvutil.h"

static const char *write_file(const char *text)
{
    static char path[64];
    strcpy(path, "/tmp/unvme-defects-XXXXXX");
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    REQUIRE(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return path;
}

static int init_from(const char *text)
{
    const char *path = write_file(text);
    int result = kv_sdk_init(KV_SDK_INIT_FROM_JSON, (void *)path);
    unlink(path);
    return result;
}

static void defect_01_a_bad_configuration_drives_no_device(void)
{
    EQUAL(kv_sdk_init(KV_SDK_INIT_FROM_JSON, "/nowhere/config.json"), KV_ERR_SDK_OPEN);
    TRUE(strstr(unvme_last_error(), "/nowhere/config.json") != NULL);
    EQUAL(kv_is_sdk_initialized(), 0);
    EQUAL(init_from("{ \"device_description\": [ { \"dev_id\": 5 } ] }"), KV_ERR_SDK_OPEN);
    TRUE(strstr(unvme_last_error(), ":1:") != NULL && strstr(unvme_last_error(), "dev_id") != NULL);
    EQUAL(init_from("{\n  \"cache\": \"of\",\n}"), KV_ERR_SDK_OPEN);
    TRUE(strstr(unvme_last_error(), ":2:") != NULL);
    EQUAL(init_from("{ \"chache\": \"on\", \"device_description\": { \"dev_id\": \"mem:kv:16M\" } }"),
          KV_ERR_SDK_OPEN);
    EQUAL(init_from(""), KV_ERR_SDK_OPEN);
    EQUAL(init_from("{}"), KV_ERR_SDK_OPEN);
    EQUAL(kv_sdk_init(KV_SDK_INIT_FROM_JSON, NULL), KV_ERR_SDK_OPEN);
    EQUAL(kv_sdk_init(KV_SDK_INIT_FROM_STR, NULL), KV_ERR_SDK_OPEN);
    EQUAL(kv_sdk_init(7, NULL), KV_ERR_SDK_OPEN);
    EQUAL(kv_is_sdk_initialized(), 0);
    EQUAL(kv_nvme_is_dd_initialized(), 0);
}

static void defect_02_masks_may_be_bare_hexadecimal(void)
{
    const char *path = write_file("{ // as the guide prints it\n"
                                  "\"cache\" : \"off\",\n\"ssd_type\" : \"lba\", \"slab_size\" : 64,\n"
                                  "\"device_description\" : [\n"
                                  "{ \"dev_id\" : \"0000:02:00.0\" \"core_mask\" : 1000000, \"sync_mask\" : 0,"
                                  " \"cq_thread_mask\" : 2000000, \"queue_depth\" : 256 }\n"
                                  "{ \"dev_id\" : \"0000:04:00.0\", \"core_mask\" : FF, \"sync_mask\" : \"0f\","
                                  " \"cq_thread_mask\" : 0x100, \"queue_depth\" : 10, },\n"
                                  "] }\n");
    kv_sdk options;
    memset(&options, 0, sizeof options);
    options.log_level = 3;
    EQUAL(kv_sdk_load_option(&options, (char *)path), 0);
    unlink(path);
    EQUAL(options.nr_ssd, 2);
    TRUE(strcmp(options.dev_id[0], "0000:02:00.0") == 0 && strcmp(options.dev_id[1], "0000:04:00.0") == 0);
    EQUAL(options.dd_options[0].core_mask, 1 << 24);
    EQUAL(options.dd_options[0].cq_thread_mask, 1 << 25);
    EQUAL(options.dd_options[0].num_cq_threads, 1);
    EQUAL(options.dd_options[0].queue_depth, 256);
    EQUAL(options.dd_options[1].core_mask, 0xff);
    EQUAL(options.dd_options[1].sync_mask, 0x0f);
    EQUAL(options.dd_options[1].queue_depth, 10);
    EQUAL(options.ssd_type, LBA_TYPE_SSD);
    EQUAL(options.slab_size, 64 << 20);
    /* What the file does not name stays as it was. */
    EQUAL(options.log_level, 3);
    EQUAL(options.app_hugemem_size, 0);
}

static void defect_03_what_is_too_long_or_too_many_is_an_error(void)
{
    EQUAL(init_from("{ \"device_description\": { \"dev_id\": \"mem:kv:64M,and,so,on,for,a,long,time\" } }"),
          KV_ERR_SDK_OPEN);
    EQUAL(init_from("{ \"c\": \"on\", \"device_description\": { \"dev_id\": \"mem:kv:16M\" } }"), KV_ERR_SDK_OPEN);
    EQUAL(init_from("{ \"\": 1, \"device_description\": { \"dev_id\": \"mem:kv:16M\" } }"), KV_ERR_SDK_OPEN);
    char *many = malloc(65536);
    strcpy(many, "{ \"device_description\": [");
    for (int i = 0; i < 65; i++)
        sprintf(many + strlen(many), "%s{ \"dev_id\": \"0000:%02x:00.0\" }", i > 0 ? "," : "", i);
    strcat(many, "] }");
    EQUAL(init_from(many), KV_ERR_SDK_OPEN);
    free(many);

    kv_sdk options;
    memset(&options, 0, sizeof options);
    memset(options.dev_id[0], 'x', sizeof options.dev_id[0]);
    EQUAL(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options), KV_ERR_SDK_OPEN);
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "mem:kv:16M");
    memset(options.log_file, 'l', sizeof options.log_file);
    EQUAL(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options), KV_ERR_SDK_OPEN);
    EQUAL(kv_sdk_load_option(&options, "/nowhere.json"), -1);
    EQUAL(kv_sdk_load_option(NULL, "/nowhere.json"), -1);
}

static void defect_04_a_small_buffer_hit_does_not_overflow(void)
{
    uint64_t device = sdk_with("mem:kv:64M", KV_TYPE_SSD, 1);
    EQUAL(kv_store(device, pair_of("hit1", 4096, 'h')), KV_SUCCESS);
    EQUAL(kv_retrieve(device, pair_of("hit1", 4096, 0)), KV_SUCCESS);
    for (uint32_t room = 0; room <= 4096; room += 512) {
        kv_pair *pair = pair_of("hit1", room, '-');
        EQUAL(kv_retrieve(device, pair), KV_SUCCESS);
        EQUAL(pair->value.length, room);
        EQUAL(pair->value.actual_value_size, 4096);
        EQUAL(((char *)pair->value.value)[room], '-');
    }
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static void defect_04_a_partial_read_is_not_cached_as_the_value(void)
{
    uint64_t device = sdk_with("mem:kv:64M", KV_TYPE_SSD, 1);
    EQUAL(kv_store(device, pair_of("part", 8192, 'p')), KV_SUCCESS);
    EQUAL(kv_format_device(device, 0), KV_SUCCESS);
    EQUAL(kv_retrieve(device, pair_of("part", 8192, 0)), KV_ERR_NOT_EXIST_KEY);
    EQUAL(kv_store(device, pair_of("part", 8192, 'q')), KV_SUCCESS);
    EQUAL(kv_retrieve(device, pair_of("part", 512, 0)), KV_SUCCESS);
    kv_pair *pair = pair_of("part", 8192, 0);
    EQUAL(kv_retrieve(device, pair), KV_SUCCESS);
    EQUAL(pair->value.length, 8192);
    TRUE(all_are(pair->value.value, 8192, 'q'));
    pair = pair_of("part", 4096, 0);
    pair->value.offset = 4608;
    EQUAL(kv_retrieve(device, pair), KV_SUCCESS);
    EQUAL(pair->value.length, 8192 - 4608);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static void defect_04_a_cached_key_belongs_to_its_device_and_keyspace(void)
{
    kv_sdk options;
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "mem:kv:32M");
    strcpy(options.dev_id[1], "mem:kv:48M");
    options.use_cache = 1;
    REQUIRE(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options) == KV_SUCCESS);
    EQUAL(options.nr_ssd, 2);
    for (int d = 0; d < 2; d++)
        for (uint8_t keyspace = 0; keyspace < 2; keyspace++) {
            kv_pair *pair = pair_of("same", 64, (char)('0' + 2 * d + keyspace));
            pair->keyspace_id = keyspace;
            EQUAL(kv_store(options.dev_handle[d], pair), KV_SUCCESS);
        }
    for (int d = 0; d < 2; d++)
        for (uint8_t keyspace = 0; keyspace < 2; keyspace++) {
            kv_pair *pair = pair_of("same", 64, 0);
            pair->keyspace_id = keyspace;
            EQUAL(kv_retrieve(options.dev_handle[d], pair), KV_SUCCESS);
            TRUE(all_are(pair->value.value, 64, (char)('0' + 2 * d + keyspace)));
        }
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static void defect_06_failures_are_not_success_and_codes_are_no_sizes(void)
{
    uint64_t device = sdk_with("mem:kv:64M", KV_TYPE_SSD, 0);
    unsigned char log[512];
    memset(log, 0xee, sizeof log);
    EQUAL(kv_get_log_page(device, 0xee, log, sizeof log), KV_ERR_IO);
    TRUE(all_are(log, sizeof log, (char)0xee));
    TRUE(unvme_last_status() != 0);
    EQUAL(kv_get_log_page(device, 0xc0, log, 510), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_get_log_page(device, 0xc0, log, sizeof log), KV_SUCCESS);
    EQUAL(kv_get_total_size(0), KV_ERR_INVALID_VALUE);
    EQUAL(kv_get_used_size(0), KV_ERR_INVALID_VALUE);
    EQUAL(kv_get_waf(0), KV_ERR_INVALID_VALUE);
    EQUAL(kv_nvme_get_total_size(0), KV_ERR_INVALID_VALUE);
    EQUAL(kv_get_sector_size(0), 0);
    EQUAL(kv_get_dev_idx_on_handle(0), KV_ERR_SDK_INVALID_PARAM);
    uint8_t iterator = 0xee;
    EQUAL(unvme_iterate_open(device, 2, 0xffffffff, 0, KV_KEY_ITERATE, &iterator), KV_ERR_INVALID_KEYSPACE_ID);
    EQUAL(iterator, 0xee);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);

    kv_sdk options;
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "0000:ff:1f.7");
    EQUAL(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options), KV_ERR_DD_NO_DEVICE);
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "mem:block:16M");
    EQUAL(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options), KV_ERR_SDK_OPEN);
    EQUAL(kv_is_sdk_initialized(), 0);
}

static void defect_08_devices_without_cpu_0_are_among_the_handles(void)
{
    kv_sdk options;
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "mem:kv:16M");
    options.dd_options[0] = (kv_nvme_io_options){ .core_mask = 2, .sync_mask = 2, .queue_depth = 8 };
    strcpy(options.dev_id[1], "mem:kv:32M");
    options.dd_options[1] = (kv_nvme_io_options){ .core_mask = 3, .sync_mask = 1, .cq_thread_mask = 2, .queue_depth = 8 };
    REQUIRE(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options) == KV_SUCCESS);
    int count = 0;
    uint64_t handle[NR_MAX_SSD];
    EQUAL(kv_get_device_handles(&count, handle), KV_SUCCESS);
    EQUAL(count, 2);
    EQUAL(handle[0], options.dev_handle[0]);
    EQUAL(handle[1], options.dev_handle[1]);
    EQUAL(kv_get_devices_on_cpu(0, &count, handle), KV_SUCCESS);
    EQUAL(count, 1);
    EQUAL(handle[0], options.dev_handle[1]);
    EQUAL(kv_get_devices_on_cpu(1, &count, handle), KV_SUCCESS);
    EQUAL(count, 2);
    for (int cpu = -1; cpu < 70; cpu++)
        if (cpu < 0 || cpu > 1) {
            EQUAL(kv_get_devices_on_cpu(cpu, &count, handle), KV_ERR_IO);
            EQUAL(count, 0);
        }
    EQUAL(kv_io_queue_type(options.dev_handle[1], 0), SYNC_IO_QUEUE);
    EQUAL(kv_io_queue_type(options.dev_handle[1], 1), ASYNC_IO_QUEUE);
    EQUAL(kv_io_queue_type(options.dev_handle[1], 2), KV_ERR_IO);
    int cpus[MAX_CPU_CORES];
    EQUAL(kv_get_cpus_on_device(options.dev_handle[1], &count, cpus), KV_SUCCESS);
    EQUAL(count, 2);
    EQUAL(cpus[0], 0);
    EQUAL(cpus[1], 1);
    EQUAL(kv_get_dev_idx_on_handle(options.dev_handle[1]), 1);
    /* Nobody is moved: a device whose only queue is for CPU 1 works from wherever we are. */
    EQUAL(kv_store(options.dev_handle[0], pair_of("cpu1", 64, 'x')), KV_SUCCESS);
    EQUAL(kv_store_async(options.dev_handle[0], pair_of("cpu1", 64, 'x')), KV_ERR_DD_INVALID_QUEUE_TYPE);
    /* What is wrong with the pair comes first. */
    EQUAL(kv_store_async(options.dev_handle[0], pair_of("cpu", 64, 'x')), KV_ERR_INVALID_KEY_SIZE);
    EQUAL(kv_retrieve_async(options.dev_handle[0], pair_of("cpu1", 63, 'x')), KV_ERR_MISALIGNED_VALUE_SIZE);
    EQUAL(kv_exist_async(options.dev_handle[0], pair_of("cpu", 64, 'x')), KV_ERR_INVALID_KEY_SIZE);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static void defect_09_a_failed_initialisation_is_not_counted(void)
{
    kv_sdk options;
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "0000:ff:1f.7");
    EQUAL(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options), KV_ERR_DD_NO_DEVICE);
    EQUAL(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options), KV_ERR_DD_NO_DEVICE);
    EQUAL(kv_is_sdk_initialized(), 0);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
    uint64_t device = sdk_with("mem:kv:16M", KV_TYPE_SSD, 0);
    EQUAL(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options), KV_SUCCESS);
    /* Who comes second is told what is open. */
    EQUAL(options.nr_ssd, 1);
    EQUAL(options.dev_handle[0], device);
    TRUE(strcmp(options.dev_id[0], "mem:kv:16M") == 0);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
    EQUAL(kv_is_sdk_initialized(), 1);
    EQUAL(kv_store(device, pair_of("still here", 4, 'x')), KV_SUCCESS);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
    EQUAL(kv_is_sdk_initialized(), 0);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static void defect_09_messages_that_cannot_be_printed_fail_nothing(void)
{
    int before = dup(STDERR_FILENO), full = open("/dev/full", O_WRONLY);
    REQUIRE(before >= 0 && full >= 0);
    kv_sdk options;
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "mem:kv:16M");
    dup2(full, STDERR_FILENO);
    int result = kv_sdk_init(KV_SDK_INIT_FROM_STR, &options);
    kv_sdk_info();
    int bad = kv_sdk_init(KV_SDK_INIT_FROM_JSON, "/nowhere.json");
    dup2(before, STDERR_FILENO);
    close(before);
    close(full);
    EQUAL(result, KV_SUCCESS);
    EQUAL(bad, KV_SUCCESS);
    EQUAL(kv_store(options.dev_handle[0], pair_of("told", 4, 't')), KV_SUCCESS);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
    EQUAL(kv_is_sdk_initialized(), 0);
}

static void defect_11_a_stale_handle_is_an_error(void)
{
    uint64_t before = sdk_with("mem:kv:16M", KV_TYPE_SSD, 0);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
    EQUAL(kv_store(before, pair_of("stale", 64, 0)), KV_ERR_SDK_INVALID_PARAM);
    uint64_t now = sdk_with("mem:kv:16M", KV_TYPE_SSD, 0);
    TRUE(now != before);
    static const uint64_t invented[] = { 1, 0x10001, 0x7fffffffffff, UINT64_MAX };
    for (size_t i = 0; i < sizeof invented / sizeof invented[0]; i++)
        if (invented[i] != now)
            EQUAL(kv_retrieve(invented[i], pair_of("stale", 64, 0)), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_retrieve(before, pair_of("stale", 64, 0)), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_retrieve_async(before, pair_of("stale", 64, 0)), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_get_total_size(before), KV_ERR_INVALID_VALUE);
    EQUAL(kv_format_device(before, 1), KV_ERR_SDK_INVALID_PARAM);
    kv_process_completion(before);
    kv_process_completion_queue(before, 99);
    EQUAL(kv_nvme_close(before), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_close(now), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static void defect_11_an_operation_that_was_not_accepted_leaves_nothing_behind(void)
{
    uint64_t device = sdk_with("mem:kv:16M", KV_TYPE_SSD, 0);
    /* More than the slab, if each of them kept a buffer. */
    for (int i = 0; i < 200; i++) {
        kv_pair *pair = pair_of("leak", 1024 * 1024, 0);
        pair->value.offset = 4;
        EQUAL(kv_retrieve_async(device, pair), KV_ERR_MISALIGNED_VALUE_OFFSET);
        EQUAL(kv_store_async(device, pair), KV_ERR_INVALID_VALUE_OFFSET);
    }
    EQUAL(kv_store(device, pair_of("leak", 1024 * 1024, 'x')), KV_SUCCESS);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static void defect_13_every_declared_function_can_be_called(void)
{
    uint64_t device = sdk_with("mem:kv:16M", KV_TYPE_SSD, 0);
    EQUAL(kv_nvme_increase_current_qd(device, 3), 1);
    EQUAL(kv_nvme_increase_current_qd(device, 3), 2);
    EQUAL(kv_nvme_decrease_current_qd(device, 3), 1);
    EQUAL(kv_nvme_get_current_qd(device, 3), 1);
    EQUAL(kv_nvme_get_current_qd(device, 2), 0);
    EQUAL(kv_nvme_get_current_qd(device, 64), 0);
    EQUAL(kv_store(device, pair_of("sized", 1000, 's')), KV_SUCCESS);
    uint64_t bytes = 0;
    EQUAL(unvme_value_size(device, 0, "sized", 5, &bytes), KV_SUCCESS);
    EQUAL(bytes, 1000);
    EQUAL(unvme_value_size(device, 0, "other", 5, &bytes), KV_ERR_NOT_EXIST_KEY);
    EQUAL(bytes, 1000);
    TRUE(hash_func == NULL);
    set_hash_func(EAGLE_HASH128_1_P128);
    TRUE(hash_func == Hash128_1_P128);
    unsigned char a[16], b[16];
    hash_func("key", 3, 7, a);
    Hash128_1_P128("key", 3, 7, b);
    TRUE(memcmp(a, b, sizeof a) == 0);
    hash_func = NULL;
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static double seconds(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (double)now.tv_sec + (double)now.tv_usec / 1e6;
}

static atomic_int callbacks;

static void count(kv_pair *pair, unsigned result, unsigned status)
{
    (void)pair;
    (void)result;
    if (status == KV_SUCCESS)
        atomic_fetch_add(&callbacks, 1);
}

static void defect_14_a_full_queue_is_an_error_when_no_retry_is_asked_for(void)
{
    kv_sdk options;
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "mem:kv:16M");
    options.submit_retry_interval = -1;
    options.dd_options[0] = (kv_nvme_io_options){ .core_mask = 1, .queue_depth = 4 };
    REQUIRE(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options) == KV_SUCCESS);
    uint64_t device = options.dev_handle[0];
    static kv_pair pairs[16];
    static char value[64];
    atomic_store(&callbacks, 0);
    int accepted = 0;
    double start = seconds();
    for (int i = 0; i < 16; i++) {
        pairs[i] = *pair_of("full", 64, 'f');
        pairs[i].value.value = value;
        pairs[i].param.async_cb = count;
        int result = kv_store_async(device, &pairs[i]);
        if (result == KV_SUCCESS)
            accepted++;
        else
            EQUAL(result, KV_ERR_DD_NO_AVAILABLE_RESOURCE);
    }
    TRUE(seconds() - start < 5);
    TRUE(accepted >= 4 && accepted < 16);
    while (atomic_load(&callbacks) < accepted)
        kv_process_completion(device);
    /* There is room again. */
    pairs[0].param.async_cb = NULL;
    EQUAL(kv_store_async(device, &pairs[0]), KV_SUCCESS);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static void defect_14_a_permanent_error_is_returned_at_once(void)
{
    uint64_t device = sdk_with("mem:kv:16M", KV_TYPE_SSD, 0);
    double start = seconds();
    EQUAL(kv_retrieve_async(device, pair_of("never", 63, 0)), KV_ERR_MISALIGNED_VALUE_SIZE);
    TRUE(seconds() - start < 1);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

struct worker {
    pthread_t thread;
    uint64_t device;
    int number;
    int failures;
};

static void *store_and_retrieve(void *argument)
{
    struct worker *worker = argument;
    char key[17], value[4096], back[4096];
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "thread%02d%08d", worker->number, i);
        memset(value, 'a' + (worker->number + i) % 26, sizeof value);
        kv_pair pair = { .key = { key, 16 }, .value = { .value = value, .length = sizeof value } };
        if (kv_store(worker->device, &pair) != KV_SUCCESS)
            worker->failures++;
        pair.value.value = back;
        if (kv_retrieve(worker->device, &pair) != KV_SUCCESS || memcmp(value, back, sizeof value) != 0)
            worker->failures++;
    }
    return NULL;
}

static void defect_14_a_callback_comes_whatever_became_of_the_pair(void)
{
    kv_sdk options;
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "mem:kv:16M");
    options.dd_options[0] = (kv_nvme_io_options){ .core_mask = 3, .sync_mask = 1, .queue_depth = 4 };
    REQUIRE(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options) == KV_SUCCESS);
    kv_pair pair = *pair_of("spoilt", 64, 's');
    EQUAL(kv_store(options.dev_handle[0], &pair), KV_SUCCESS);
    pair.param.async_cb = count;
    atomic_store(&callbacks, 0);
    EQUAL(kv_retrieve_async(options.dev_handle[0], &pair), KV_SUCCESS);
    pair.key.key = NULL;
    pair.value.value = NULL;
    for (double start = seconds(); atomic_load(&callbacks) == 0 && seconds() - start < 10;)
        kv_process_completion(options.dev_handle[0]);
    EQUAL(atomic_load(&callbacks), 1);
    EQUAL(pair.value.length, 0);
    EQUAL(pair.value.actual_value_size, 64);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static void defect_15_threads_on_one_synchronous_queue_all_come_through(void)
{
    kv_sdk options;
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "mem:kv:64M");
    options.use_cache = 1;
    options.dd_options[0] = (kv_nvme_io_options){ .core_mask = 1, .sync_mask = 1, .queue_depth = 4 };
    REQUIRE(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options) == KV_SUCCESS);
    struct worker workers[8];
    for (int i = 0; i < 8; i++) {
        workers[i] = (struct worker){ .device = options.dev_handle[0], .number = i };
        REQUIRE(pthread_create(&workers[i].thread, NULL, store_and_retrieve, &workers[i]) == 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(workers[i].thread, NULL);
        EQUAL(workers[i].failures, 0);
    }
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void defect_16_idle_completion_threads_sleep(void)
{
    uint64_t device = sdk_with("mem:kv:16M", KV_TYPE_SSD, 0);
    atomic_store(&callbacks, 0);
    kv_pair *pair = pair_of("idle", 64, 'i');
    pair->param.async_cb = count;
    EQUAL(kv_store_async(device, pair), KV_SUCCESS);
    while (atomic_load(&callbacks) == 0)
        usleep(100);
    usleep(100000);
    double before = cpu_seconds();
    usleep(1000000);
    TRUE(cpu_seconds() - before < 0.3);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static void defect_17_a_slab_that_is_used_up_is_an_error(void)
{
    enum { BIG = 2 * 1024 * 1024, MANY = 64 };
    kv_sdk options;
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "mem:kv:64M");
    options.slab_size = 44 << 20;
    options.dd_options[0] = (kv_nvme_io_options){ .core_mask = 1, .queue_depth = 256 };
    REQUIRE(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options) == KV_SUCCESS);
    uint64_t device = options.dev_handle[0];
    static kv_pair pairs[MANY];
    char *value = malloc(BIG);
    REQUIRE(value != NULL);
    memset(value, 'v', BIG);
    atomic_store(&callbacks, 0);
    int accepted = 0, exhausted = 0;
    double start = seconds();
    for (int i = 0; i < MANY; i++) {
        pairs[i] = *pair_of("slab", 4, 0);
        pairs[i].value.value = value;
        pairs[i].value.length = BIG;
        pairs[i].param.async_cb = count;
        int result = kv_store_async(device, &pairs[i]);
        if (result == KV_SUCCESS)
            accepted++;
        else if (result == KV_ERR_SLAB_ALLOC_FAILURE)
            exhausted++;
        else
            EQUAL(result, KV_SUCCESS);
    }
    TRUE(seconds() - start < 30);
    TRUE(accepted > 0 && exhausted > 0);
    while (atomic_load(&callbacks) < accepted)
        kv_process_completion(device);
    EQUAL(kv_store_async(device, &pairs[0]), KV_SUCCESS);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
    free(value);
}

static void defect_18_memory_of_the_device_is_used_without_a_copy_and_any_other_with_one(void)
{
    char *before = kv_zalloc(4096);
    REQUIRE(before != NULL);
    kv_nvme_io_options options = { .core_mask = 1, .sync_mask = 1 };
    REQUIRE(kv_nvme_init("mem:kv:16M", &options, KV_TYPE_SSD) == KV_SUCCESS);
    uint64_t device = kv_nvme_open("mem:kv:16M");
    REQUIRE(device != 0);
    char *own = kv_zalloc(8192);
    char *heap = malloc(4096);
    REQUIRE(own != NULL && heap != NULL);
    EQUAL((uintptr_t)own % 4096, 0);
    char *memory[] = { before, own, own + 4096, own + 4, heap };
    for (int i = 0; i < 5; i++) {
        kv_pair pair = *pair_of("memory", 4, 0);
        memset(memory[i], 'a' + i, 4092);
        pair.value.value = memory[i];
        pair.value.length = 4092;
        EQUAL(kv_nvme_write(device, DEFAULT_IO_QUEUE_ID, &pair), KV_SUCCESS);
        memset(memory[i], 0, 4092);
        EQUAL(kv_nvme_read(device, DEFAULT_IO_QUEUE_ID, &pair), KV_SUCCESS);
        EQUAL(pair.value.length, 4092);
        TRUE(all_are(memory[i], 4092, (char)('a' + i)));
    }
    EQUAL(kv_nvme_finalize("mem:kv:16M"), KV_SUCCESS);
    /* Memory outlives the device. */
    memset(own, 1, 8192);
    kv_free(own);
    kv_free(before);
    kv_free(NULL);
    kv_free(heap);
    free(heap);
}

static void defect_18_memory_of_one_device_reaches_another_with_a_copy(void)
{
    kv_sdk options;
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], "mem:kv:32M");
    strcpy(options.dev_id[1], "mem:kv:48M");
    REQUIRE(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options) == KV_SUCCESS);
    char *memory = kv_zalloc(8192);
    char heap[8192];
    REQUIRE(memory != NULL);
    for (int d = 0; d < 2; d++) {
        kv_pair pair = *pair_of("reach", 4, 0);
        pair.value.length = 8192;
        pair.value.value = memory;
        memset(memory, 'a' + d, 8192);
        EQUAL(kv_store(options.dev_handle[d], &pair), KV_SUCCESS);
        pair.value.value = heap;
        EQUAL(kv_retrieve(options.dev_handle[d], &pair), KV_SUCCESS);
        TRUE(all_are(heap, 8192, (char)('a' + d)));
        pair.value.value = memory;
        memset(memory, 0, 8192);
        EQUAL(kv_retrieve(options.dev_handle[d], &pair), KV_SUCCESS);
        TRUE(all_are(memory, 8192, (char)('a' + d)));
    }
    kv_free(memory);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static void defect_19_a_thread_stays_on_its_cpus(void)
{
    cpu_set_t before, after;
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    uint64_t device = sdk_with("mem:kv:16M", KV_TYPE_SSD, 0);
    atomic_store(&callbacks, 0);
    for (int i = 0; i < 10; i++) {
        kv_pair *pair = pair_of("stay", 64, 's');
        EQUAL(kv_store(device, pair), KV_SUCCESS);
        pair->param.async_cb = count;
        EQUAL(kv_retrieve_async(device, pair), KV_SUCCESS);
        while (atomic_load(&callbacks) <= i)
            usleep(100);
        pair->value.length = 64;
    }
    REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
    TRUE(CPU_EQUAL(&before, &after));
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

static atomic_int events;
static atomic_uint last_event;

static void on_event(void *argument, unsigned result, unsigned status)
{
    TRUE(argument == &events);
    EQUAL(status, 0);
    atomic_store(&last_event, result);
    atomic_fetch_add(&events, 1);
}

static void set_feature(uint64_t device, uint32_t feature, uint32_t value)
{
    kv_nvme_cmd_t command;
    memset(&command, 0, sizeof command);
    command.opc = 0x09;
    command.cdw10 = feature;
    command.cdw11 = value;
    kv_nvme_cpl_t *completion = kv_nvme_submit_raw_cmd(device, command, NULL, 0, ADMIN_CMD_TYPE);
    REQUIRE(completion != NULL);
    EQUAL(completion->status, 0);
    free(completion);
}

static void defect_20_an_event_arrives_within_a_second(void)
{
    uint64_t device = sdk_with("mem:kv:16M", KV_TYPE_SSD, 0);
    EQUAL(kv_nvme_register_aer_callback(device, on_event, &events), KV_SUCCESS);
    /*
     * Asynchronous Event Configuration: temperature; then a temperature threshold that any device is above.
     */
    set_feature(device, 0x0b, 0x02);
    double start = seconds();
    set_feature(device, 0x04, 1);
    while (atomic_load(&events) == 0 && seconds() - start < 1)
        usleep(1000);
    TRUE(atomic_load(&events) > 0);
    /* SMART / Health Status, temperature threshold, log page 02h. */
    EQUAL(atomic_load(&last_event) & 0xffff07, 0x020101);
    EQUAL(kv_nvme_register_aer_callback(device, NULL, NULL), KV_SUCCESS);
    EQUAL(kv_nvme_register_aer_callback(0, on_event, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
}

int main(void)
{
    RUN(defect_01_a_bad_configuration_drives_no_device());
    RUN(defect_02_masks_may_be_bare_hexadecimal());
    RUN(defect_03_what_is_too_long_or_too_many_is_an_error());
    RUN(defect_04_a_small_buffer_hit_does_not_overflow());
    RUN(defect_04_a_partial_read_is_not_cached_as_the_value());
    RUN(defect_04_a_cached_key_belongs_to_its_device_and_keyspace());
    RUN(defect_06_failures_are_not_success_and_codes_are_no_sizes());
    RUN(defect_08_devices_without_cpu_0_are_among_the_handles());
    RUN(defect_09_a_failed_initialisation_is_not_counted());
    RUN(defect_09_messages_that_cannot_be_printed_fail_nothing());
    RUN(defect_11_a_stale_handle_is_an_error());
    RUN(defect_11_an_operation_that_was_not_accepted_leaves_nothing_behind());
    RUN(defect_13_every_declared_function_can_be_called());
    RUN(defect_14_a_full_queue_is_an_error_when_no_retry_is_asked_for());
    RUN(defect_14_a_permanent_error_is_returned_at_once());
    RUN(defect_14_a_callback_comes_whatever_became_of_the_pair());
    RUN(defect_15_threads_on_one_synchronous_queue_all_come_through());
    RUN(defect_16_idle_completion_threads_sleep());
    RUN(defect_17_a_slab_that_is_used_up_is_an_error());
    RUN(defect_18_memory_of_the_device_is_used_without_a_copy_and_any_other_with_one());
    RUN(defect_18_memory_of_one_device_reaches_another_with_a_copy());
    RUN(defect_19_a_thread_stays_on_its_cpus());
    RUN(defect_20_an_event_arrives_within_a_second());
    return check_summary();
}

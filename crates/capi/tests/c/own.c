/* The functions of unvme.h. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "check.h"
#include "kvnvme.h"

static uint64_t device;

static void devices_are_opened_by_name(void)
{
    uint64_t other = 7;
    EQUAL(unvme_open(NULL, KV_TYPE_SSD, NULL, &other), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_open("mem:kv:16M", KV_TYPE_SSD, NULL, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_open("mem:kv:16M", 2, NULL, &other), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_open("0000:ff:1f.7", KV_TYPE_SSD, NULL, &other), KV_ERR_DD_NO_DEVICE);
    TRUE(strstr(unvme_last_error(), "0000:ff:1f.7") != NULL);
    EQUAL(unvme_open("mem:kv:nonsense", KV_TYPE_SSD, NULL, &other), KV_ERR_SDK_OPEN);
    EQUAL(unvme_open("mem:block:16M", KV_TYPE_SSD, NULL, &other), KV_ERR_SDK_OPEN);
    unvme_options options = { .size = 8 };
    EQUAL(unvme_open("mem:kv:16M", KV_TYPE_SSD, &options, &other), KV_ERR_SDK_INVALID_PARAM);
    options = (unvme_options){ .size = sizeof options, .queue_depth = 100000 };
    EQUAL(unvme_open("mem:kv:16M", KV_TYPE_SSD, &options, &other), KV_ERR_SDK_OPEN);
    EQUAL(other, 7);
    EQUAL(unvme_close(7), KV_ERR_SDK_INVALID_PARAM);
    options = (unvme_options){ .size = sizeof options, .queue_depth = 16, .cache = true, .command_ms = 1000 };
    EQUAL(unvme_open("mem:kv:16M", KV_TYPE_SSD, &options, &other), KV_SUCCESS);
    EQUAL(kv_store(other, pair_of("opened", 64, 'o')), KV_SUCCESS);
    EQUAL(unvme_close(other), KV_SUCCESS);
    EQUAL(unvme_close(other), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_store(other, pair_of("opened", 64, 'o')), KV_ERR_SDK_INVALID_PARAM);
}

static void errors_have_names_and_words(void)
{
    TRUE(strcmp(unvme_result_name(0), "KV_SUCCESS") == 0);
    TRUE(strcmp(unvme_result_name(0x10), "KV_ERR_NOT_EXIST_KEY") == 0);
    TRUE(strcmp(unvme_result_name(0x303), "KV_ERR_IO") == 0);
    TRUE(strcmp(unvme_result_name(-1), "unknown") == 0);
    TRUE(strlen(unvme_version()) >= 5);
    EQUAL(kv_retrieve(device, pair_of("no such key", 64, 0)), KV_ERR_NOT_EXIST_KEY);
    /* Which command set a key goes by is the SDK's choice; both statuses mean the same. */
    unsigned status = unvme_last_status() & 0x7ff;
    TRUE(status == 0x310 || status == 0x087);
    TRUE(strcmp(unvme_last_error(), "the device answered Key Does Not Exist (0x10)") == 0);
    EQUAL(kv_exist(device, pair_of("a key that is longer than those of the standard", 0, 0)), KV_ERR_NOT_EXIST_KEY);
    TRUE(strcmp(unvme_last_error(), "the device answered Key Does Not Exist (0x10)") == 0);
    EQUAL(kv_retrieve(device, pair_of("no such key", 63, 0)), KV_ERR_MISALIGNED_VALUE_SIZE);
    EQUAL(unvme_last_status(), 0);
    TRUE(strlen(unvme_last_error()) > 0);
    EQUAL(kv_delete(device, pair_of("no such key", 0, 0)), KV_SUCCESS);
    TRUE(strcmp(unvme_last_error(), "") == 0);
    char standard[64], vendor[64];
    unvme_status_name(0x087, standard, sizeof standard);
    unvme_status_name(0x310, vendor, sizeof vendor);
    TRUE(strcmp(standard, "Key Does Not Exist (0x10)") == 0 && strcmp(standard, vendor) == 0);
    char name[8];
    size_t length = unvme_status_name(0x80, name, sizeof name);
    TRUE(length > sizeof name && strcmp(name, "LBA Out") == 0);
    EQUAL(unvme_status_name(0x80, NULL, 0), length);
}

static void values_grow_and_say_their_size(void)
{
    uint64_t size = 1;
    EQUAL(kv_store(device, pair_of("growing", 1000, 'a')), KV_SUCCESS);
    EQUAL(unvme_append(device, 0, "growing", 7, "bbbb", 4), KV_SUCCESS);
    EQUAL(unvme_value_size(device, 0, "growing", 7, &size), KV_SUCCESS);
    EQUAL(size, 1004);
    kv_pair *pair = pair_of("growing", 1024, 0);
    EQUAL(kv_retrieve(device, pair), KV_SUCCESS);
    EQUAL(pair->value.length, 1004);
    TRUE(all_are(pair->value.value, 1000, 'a') && all_are((char *)pair->value.value + 1000, 4, 'b'));
    EQUAL(unvme_append(device, 0, "appearing", 9, "b", 1), KV_SUCCESS);
    EQUAL(unvme_value_size(device, 0, "appearing", 9, &size), KV_SUCCESS);
    EQUAL(size, 1);
    EQUAL(unvme_append(device, 0, "abc", 3, "b", 1), KV_ERR_INVALID_KEY_SIZE);
    EQUAL(unvme_append(device, 2, "growing", 7, "b", 1), KV_ERR_INVALID_KEYSPACE_ID);
    EQUAL(unvme_append(device, 0, "growing", 7, NULL, 1), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_value_size(device, 0, NULL, 7, &size), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_value_size(device, 0, "growing", 7, NULL), KV_ERR_SDK_INVALID_PARAM);
}

static bool count_until(void *arg, const void *key, size_t length)
{
    int *left = arg;
    TRUE(length >= 4 && memcmp(key, "list", 4) == 0);
    return --*left > 0;
}

static void keys_are_listed(void)
{
    char key[40];
    for (int i = 0; i < 100; i++) {
        /* Short keys and long ones. */
        sprintf(key, i % 2 ? "list%03d" : "list%03d-and-much-longer-than-that", i);
        EQUAL(kv_store(device, pair_of(key, 16, 'l')), KV_SUCCESS);
    }
    int left = 1000;
    EQUAL(unvme_list(device, 0, "list", 4, count_until, &left), KV_SUCCESS);
    EQUAL(left, 900);
    left = 1000;
    EQUAL(unvme_list(device, 0, "list01", 6, count_until, &left), KV_SUCCESS);
    EQUAL(left, 990);
    left = 7;
    EQUAL(unvme_list(device, 0, "list", 4, count_until, &left), KV_SUCCESS);
    EQUAL(left, 0);
    left = 10;
    EQUAL(unvme_list(device, 1, "list", 4, count_until, &left), KV_SUCCESS);
    EQUAL(left, 10);
    EQUAL(unvme_list(device, 2, "list", 4, count_until, &left), KV_ERR_INVALID_KEYSPACE_ID);
    EQUAL(unvme_list(device, 0, "list", 4, NULL, &left), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_list(device, 0, NULL, 4, count_until, &left), KV_ERR_SDK_INVALID_PARAM);
}

static void batches_have_a_result_for_each_entry(void)
{
    unvme_batch_entry entries[] = {
        { .verb = UNVME_BATCH_STORE, .key = "batch1", .key_length = 6, .value = "one", .value_length = 3 },
        { .verb = UNVME_BATCH_STORE, .key = "batch1", .key_length = 6, .value = "uno", .value_length = 3,
          .option = KV_STORE_IDEMPOTENT },
        { .verb = UNVME_BATCH_STORE, .key = "batch2", .key_length = 6, .value = "two", .value_length = 3 },
        { .verb = UNVME_BATCH_DELETE, .key = "batch3", .key_length = 6, .option = KV_DELETE_CHECK_IDEMPOTENT },
        { .verb = UNVME_BATCH_DELETE, .key = "batch2", .key_length = 6 },
        { .verb = 9, .key = "batch2", .key_length = 6 },
        { .verb = UNVME_BATCH_STORE, .key = "", .key_length = 0, .value = "x", .value_length = 1 },
    };
    EQUAL(unvme_batch(device, entries, 7), KV_ERR_IDEMPOTENT_STORE_FAIL);
    static const int expected[] = { KV_SUCCESS, KV_ERR_IDEMPOTENT_STORE_FAIL, KV_SUCCESS, KV_ERR_NOT_EXIST_KEY,
                                    KV_SUCCESS, KV_ERR_SDK_INVALID_PARAM,     KV_ERR_INVALID_KEY_SIZE };
    for (int i = 0; i < 7; i++)
        EQUAL(entries[i].result, expected[i]);
    kv_pair *pair = pair_of("batch1", 4, 0);
    EQUAL(kv_retrieve(device, pair), KV_SUCCESS);
    TRUE(memcmp(pair->value.value, "one", 3) == 0);
    EQUAL(kv_exist(device, pair_of("batch2", 0, 0)), KV_ERR_NOT_EXIST_KEY);
    EQUAL(unvme_batch(device, entries, 1), KV_SUCCESS);
    EQUAL(unvme_batch(device, NULL, 0), KV_SUCCESS);
    EQUAL(unvme_batch(device, NULL, 1), KV_ERR_SDK_INVALID_PARAM);
}

static bool count_keys(void *arg, const void *key, size_t length)
{
    TRUE(length >= 1 && memcmp(key, "x", 1) == 0);
    ++*(int *)arg;
    return true;
}

/* Keys of the Key Value Command Set alone, which has those of 1 byte, too. */
static void keys_of_1_to_3_bytes_are_stored_found_and_deleted(void)
{
    unvme_queue_options options = { .size = sizeof options };
    unvme_queue *queue;
    EQUAL(unvme_queue_open(device, &options, &queue), KV_SUCCESS);
    unvme_queue_info info = { .size = sizeof info };
    EQUAL(unvme_queue_info_get(queue, &info), KV_SUCCESS);
    EQUAL(info.key_length_min, 1);
    for (uint16_t length = 1; length <= 3; length++) {
        unvme_batch_entry store = { .verb = UNVME_BATCH_STORE, .key = "xyz", .key_length = length,
                                    .value = "short", .value_length = 5 };
        EQUAL(unvme_batch(device, &store, 1), KV_SUCCESS);
        uint64_t bytes = 0;
        EQUAL(unvme_value_size(device, 0, "xyz", length, &bytes), KV_SUCCESS);
        EQUAL(bytes, 5);
        char value[8] = "";
        unvme_command command = { .verb = UNVME_RETRIEVE, .key = "xyz", .key_length = length, .data = value,
                                  .length = sizeof value };
        EQUAL(unvme_queue_submit(queue, &command), KV_SUCCESS);
        EQUAL(unvme_queue_ring(queue), KV_SUCCESS);
        unvme_completion completion;
        for (size_t count = 0; count == 0; unvme_queue_poll(queue, &completion, 1, &count))
            unvme_queue_wait(queue, 1000);
        EQUAL(completion.result, KV_SUCCESS);
        TRUE(completion.value_bytes == 5 && memcmp(value, "short", 5) == 0);
        int count = 0;
        EQUAL(unvme_list(device, 0, "xyz", length, count_keys, &count), KV_SUCCESS);
        EQUAL(count, 1);
        EQUAL(unvme_append(device, 0, "xyz", length, "x", 1), KV_ERR_INVALID_KEY_SIZE);
        TRUE(strstr(unvme_last_error(), "4 to 255") != NULL);
        EQUAL(unvme_value_size(device, 1, "xyz", length, &bytes), KV_ERR_DD_INVALID_PARAM);
        store.verb = UNVME_BATCH_DELETE;
        EQUAL(unvme_batch(device, &store, 1), KV_SUCCESS);
        EQUAL(unvme_value_size(device, 0, "xyz", length, &bytes), KV_ERR_NOT_EXIST_KEY);
    }
    EQUAL(unvme_queue_close(queue), KV_SUCCESS);
}

static atomic_int done;

static void on_done(void *arg, int result)
{
    TRUE(arg == &done);
    EQUAL(result, KV_SUCCESS);
    atomic_fetch_add(&done, 1);
}

static void blocks_of_any_number(void)
{
    uint64_t blocks;
    REQUIRE(unvme_open("mem:block:64M,block=4096", LBA_TYPE_SSD, NULL, &blocks) == KV_SUCCESS);
    unvme_block_info info;
    EQUAL(unvme_block_info_get(blocks, &info), KV_SUCCESS);
    EQUAL(info.block_bytes, 4096);
    EQUAL(info.blocks, (64 << 20) / 4096);
    /* More than one command: 5 MiB. */
    size_t count = 5 * 256, bytes = count * 4096;
    char *data = malloc(bytes), *back = malloc(bytes);
    REQUIRE(data != NULL && back != NULL);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)(i * 31 >> 8);
    EQUAL(unvme_write(blocks, 3, count, data), KV_SUCCESS);
    EQUAL(unvme_flush(blocks), KV_SUCCESS);
    EQUAL(unvme_read(blocks, 3, count, back), KV_SUCCESS);
    TRUE(memcmp(data, back, bytes) == 0);
    EQUAL(unvme_deallocate(blocks, 4, 2), KV_SUCCESS);
    EQUAL(unvme_read(blocks, 3, 4, back), KV_SUCCESS);
    TRUE(memcmp(data, back, 4096) == 0 && all_are(back + 4096, 8192, 0) &&
         memcmp(data + 3 * 4096, back + 3 * 4096, 4096) == 0);
    EQUAL(unvme_write_async(blocks, 100, 2, data, on_done, &done), KV_SUCCESS);
    while (atomic_load(&done) < 1)
        ;
    memset(back, 0, 8192);
    EQUAL(unvme_read_async(blocks, 100, 2, back, on_done, &done), KV_SUCCESS);
    while (atomic_load(&done) < 2)
        ;
    TRUE(memcmp(data, back, 8192) == 0);
    EQUAL(unvme_read_async(blocks, 100, 0, back, on_done, &done), KV_ERR_INVALID_VALUE_SIZE);
    EQUAL(unvme_read_async(blocks, 100, 513, back, on_done, &done), KV_ERR_INVALID_VALUE_SIZE);
    EQUAL(unvme_read_async(blocks, 100, 1, NULL, on_done, &done), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_read_async(blocks, 100, 1, back, NULL, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_write_async(blocks, info.blocks, 1, back, on_done, &done), KV_ERR_IO);
    EQUAL(unvme_last_status(), 0x80);
    EQUAL(unvme_read(blocks, 0, 0, NULL), KV_SUCCESS);
    EQUAL(unvme_read(blocks, 0, 1, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_read(blocks, UINT64_MAX, 1, back), KV_ERR_IO);
    EQUAL(unvme_read(blocks, 0, UINT64_MAX, back), KV_ERR_IO);
    EQUAL(unvme_read(device, 0, 1, back), KV_ERR_DD_UNSUPPORTED_CMD);
    EQUAL(unvme_close(blocks), KV_SUCCESS);
    free(data);
    free(back);
}

static void memory_is_aligned(void)
{
    for (size_t alignment = 64; alignment <= 4096; alignment *= 2) {
        char *memory = unvme_alloc(100, alignment);
        REQUIRE(memory != NULL);
        EQUAL((uintptr_t)memory % alignment, 0);
        TRUE(all_are(memory, 100, 0));
        if (alignment % 128)
            kv_free(memory);
        else
            unvme_free(memory);
    }
    unvme_free(NULL);
    char *given = kv_alloc(64);
    REQUIRE(given != NULL);
    unvme_free(given);
    TRUE(unvme_alloc(100, 3) == NULL);
    TRUE(unvme_alloc(100, 8192) == NULL);
    TRUE(unvme_alloc(0, 0) == NULL);
    TRUE(unvme_alloc(SIZE_MAX / 2, 0) == NULL);
    TRUE(kv_alloc(0) == NULL);
}

static int close_result, finalize_result;
static atomic_int closed;

static void close_in_callback(kv_pair *pair, unsigned result, unsigned status)
{
    (void)pair;
    (void)result;
    EQUAL(status, KV_SUCCESS);
    close_result = unvme_close(device);
    finalize_result = kv_sdk_finalize();
    atomic_store(&closed, 1);
}

static void a_callback_cannot_close_what_waits_for_it(void)
{
    kv_pair *pair = pair_of("closing", 64, 'c');
    pair->param.async_cb = close_in_callback;
    EQUAL(kv_store_async(device, pair), KV_SUCCESS);
    while (!atomic_load(&closed))
        ;
    EQUAL(close_result, KV_ERR_SDK_CLOSE);
    EQUAL(finalize_result, KV_SUCCESS);
    EQUAL(kv_exist(device, pair_of("closing", 0, 0)), KV_SUCCESS);
}

static atomic_int chained;

static void submit_next(kv_pair *pair, unsigned result, unsigned status)
{
    (void)result;
    EQUAL(status, KV_SUCCESS);
    if (atomic_fetch_add(&chained, 1) < 20) {
        pair->value.length = 64;
        EQUAL(kv_store_async(device, pair), KV_SUCCESS);
        EQUAL(kv_exist(device, pair), KV_SUCCESS);
    } else {
        free(pair->key.key);
        free(pair);
        atomic_fetch_add(&chained, 1);
    }
}

static void a_callback_may_submit_wait_and_free_its_pair(void)
{
    kv_pair *pair = calloc(1, sizeof *pair);
    pair->key.key = strdup("chained");
    pair->key.length = 7;
    static char value[64];
    pair->value.value = value;
    pair->value.length = sizeof value;
    pair->param.async_cb = submit_next;
    EQUAL(kv_store_async(device, pair), KV_SUCCESS);
    while (atomic_load(&chained) < 22)
        ;
    /* Nobody needs to be told. */
    pair = pair_of("untold", 64, 'u');
    pair->param.async_cb = NULL;
    EQUAL(kv_store_async(device, pair), KV_SUCCESS);
}

static atomic_int entered, left;

static void slow(kv_pair *pair, unsigned result, unsigned status)
{
    (void)pair;
    (void)result;
    (void)status;
    atomic_store(&entered, 1);
    usleep(200000);
    atomic_store(&left, 1);
}

static void *close_it(void *other)
{
    return (void *)(intptr_t)unvme_close(*(uint64_t *)other);
}

static void a_device_is_closed_by_one_of_two_who_try(void)
{
    uint64_t other;
    REQUIRE(unvme_open("mem:kv:16M", KV_TYPE_SSD, NULL, &other) == KV_SUCCESS);
    kv_pair *pair = pair_of("slow", 64, 's');
    pair->param.async_cb = slow;
    EQUAL(kv_store_async(other, pair), KV_SUCCESS);
    while (!atomic_load(&entered))
        ;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, close_it, &other) == 0);
    int mine = unvme_close(other);
    /* Who is told that it is closed is told when nothing is outstanding any more. */
    if (mine == KV_SUCCESS)
        EQUAL(atomic_load(&left), 1);
    void *result;
    pthread_join(thread, &result);
    EQUAL(atomic_load(&left), 1);
    int theirs = (int)(intptr_t)result;
    TRUE((mine == KV_SUCCESS) != (theirs == KV_SUCCESS));
    EQUAL(mine + theirs, KV_ERR_SDK_INVALID_PARAM);
}

int main(void)
{
    REQUIRE(unvme_open("mem:kv:64M", KV_TYPE_SSD, NULL, &device) == KV_SUCCESS);
    RUN(devices_are_opened_by_name());
    RUN(errors_have_names_and_words());
    RUN(values_grow_and_say_their_size());
    RUN(keys_are_listed());
    RUN(batches_have_a_result_for_each_entry());
    RUN(keys_of_1_to_3_bytes_are_stored_found_and_deleted());
    RUN(blocks_of_any_number());
    RUN(memory_is_aligned());
    RUN(a_callback_cannot_close_what_waits_for_it());
    RUN(a_callback_may_submit_wait_and_free_its_pair());
    RUN(a_device_is_closed_by_one_of_two_who_try());
    EQUAL(unvme_close(device), KV_SUCCESS);
    return check_summary();
}

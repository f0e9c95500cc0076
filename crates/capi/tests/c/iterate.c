/*
 * Iterators, in the manner of the original SDK's test programs: masks that name CPUs this machine may not
 * have, keys with a prefix in their first four bytes, values of three lengths retrieved through one buffer,
 * callbacks that free what they are called with. The first argument is "sync" or "async", a second one the
 * number of keys.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <assert.h>

#include "kvutil.h"
#include "kv_types.h"
#include "kv_apis.h"
#include "kvnvme.h"

#undef NDEBUG
#define BIT_MASK (0xFFFFFFFF)
#define KEY_LENGTH (16)
#define VALUE_LENGTH (4 * KB)
#define LENGTH_OF(i) (VALUE_LENGTH - ((i) % 3) * KB)

static int is_async;
static volatile int completed;

struct reading {
    uint32_t prefix;
    int keys;
    int reads;
    int eof_seen;
    uint8_t *seen;
};

static void make_key(char *key, uint32_t prefix, int number)
{
    char digits[KEY_LENGTH + 1];
    snprintf(digits, sizeof(digits), "%016d", number);
    memcpy(key, digits, KEY_LENGTH);
    prefix = htobe32(prefix);
    memcpy(key, &prefix, sizeof(prefix));
}

static int number_of(const char *key)
{
    char digits[13] = {0};
    memcpy(digits, key + 4, 12);
    return atoi(digits);
}

static void on_pair(kv_pair *kv, unsigned int result, unsigned int status)
{
    (void)result;
    assert(kv != NULL);
    assert(status == KV_SUCCESS);
    __atomic_add_fetch((int *)kv->param.private_data, 1, __ATOMIC_SEQ_CST);
}

static void take_keys(struct reading *reading, const kv_iterate *it)
{
    uint32_t prefix = htobe32(reading->prefix);
    const char *at = it->kv.value.value;
    int keys;
    if (it->kv.value.length == 0)
        return;
    memcpy(&keys, at, KV_ITERATE_READ_BUFFER_OFFSET);
    at += KV_ITERATE_READ_BUFFER_OFFSET;
    assert(it->kv.value.length == (uint32_t)(KV_ITERATE_READ_BUFFER_OFFSET + keys * (4 + KEY_LENGTH)));
    for (int i = 0; i < keys; i++) {
        int length;
        memcpy(&length, at, sizeof(length));
        assert(length == KEY_LENGTH);
        assert(memcmp(at + 4, &prefix, sizeof(prefix)) == 0);
        reading->seen[number_of(at + 4)]++;
        at += 4 + KEY_LENGTH;
    }
    reading->keys += keys;
}

static void on_keys(kv_iterate *it, unsigned int result, unsigned int status)
{
    struct reading *reading = it->kv.param.private_data;
    assert(status == KV_SUCCESS || status == KV_ERR_ITERATE_READ_EOF);
    assert(result == it->kv.value.length);
    assert(it->kv.key.length == 0);
    if (reading->eof_seen)
        assert(status == KV_ERR_ITERATE_READ_EOF && it->kv.value.length == 0);
    if (status == KV_ERR_ITERATE_READ_EOF)
        reading->eof_seen = 1;
    take_keys(reading, it);
    free(it->kv.value.value);
    free(it);
    __atomic_add_fetch(&reading->reads, 1, __ATOMIC_SEQ_CST);
}

static uint64_t start(void)
{
    kv_sdk options;
    memset(&options, 0, sizeof(options));
    strcpy(options.dev_id[0], "mem:kv:256M");
    options.dd_options[0].core_mask = 0xF;
    options.dd_options[0].sync_mask = is_async ? 0 : 0xF;
    options.dd_options[0].cq_thread_mask = 0x10;
    options.dd_options[0].queue_depth = 128;
    int ret = kv_sdk_init(KV_SDK_INIT_FROM_STR, &options);
    assert(ret == KV_SUCCESS);
    uint64_t handles[MAX_CPU_CORES];
    int count = 0;
    ret = kv_get_device_handles(&count, handles);
    assert(ret == KV_SUCCESS && count == 1);
    assert(handles[0] == options.dev_handle[0]);
    return handles[0];
}

static void info_says_what_was_opened(uint64_t handle)
{
    for (int i = 0; i < 50; i++) {
        uint32_t prefix = (uint32_t)rand() & BIT_MASK;
        kv_iterate_handle_info info;
        uint32_t iterator = kv_iterate_open(handle, KV_KEYSPACE_IODATA, BIT_MASK, prefix, KV_KEY_ITERATE);
        assert(iterator == 1);
        assert(kv_iterate_info(handle, &info, 1) == KV_SUCCESS);
        assert(info.handle_id == 1 && info.status == ITERATE_HANDLE_OPENED && info.type == KV_KEY_ITERATE);
        assert(info.prefix == prefix && info.bitmask == BIT_MASK && info.keyspace_id == KV_KEYSPACE_IODATA);
        assert(kv_iterate_close(handle, iterator) == KV_SUCCESS);
        assert(kv_iterate_info(handle, &info, 1) == KV_SUCCESS);
        assert(info.status == ITERATE_HANDLE_CLOSED);
    }
    kv_iterate_handle_info all[KV_MAX_ITERATE_HANDLE + 1];
    assert(kv_iterate_info(handle, all, KV_MAX_ITERATE_HANDLE) == KV_SUCCESS);
    for (int i = 0; i < KV_MAX_ITERATE_HANDLE; i++)
        assert(all[i].handle_id == i + 1 && all[i].status == ITERATE_HANDLE_CLOSED);
    assert(kv_iterate_info(handle, all, 0) == KV_ERR_DD_INVALID_PARAM);
    assert(kv_iterate_info(handle, all, KV_MAX_ITERATE_HANDLE + 1) == KV_ERR_DD_INVALID_PARAM);
    assert(kv_iterate_info(handle, all, -1) == KV_ERR_DD_INVALID_PARAM);
}

static void wrong_conditions_are_refused(uint64_t handle)
{
    uint32_t prefix = 0x30303030;
    uint32_t iterator = kv_iterate_open(handle, KV_KEYSPACE_IODATA, BIT_MASK, prefix, KV_KEY_ITERATE);
    assert(iterator >= 1 && iterator <= KV_MAX_ITERATE_HANDLE);
    assert(kv_iterate_open(handle, KV_KEYSPACE_IODATA, BIT_MASK, prefix, KV_KEY_ITERATE) ==
           KV_ERR_ITERATE_HANDLE_ALREADY_OPENED);
    /* The mask leaves out what they differ in: as scripts of the original open them. */
    uint32_t others[3];
    for (uint32_t i = 0; i < NELEM(others); i++) {
        others[i] = kv_iterate_open(handle, KV_KEYSPACE_IODATA, 0xF0000000, i, KV_KEY_ITERATE);
        assert(others[i] == iterator + 1 + i);
    }
    for (size_t i = 0; i < NELEM(others); i++)
        assert(kv_iterate_close(handle, (uint8_t)others[i]) == KV_SUCCESS);
    assert(kv_iterate_open(handle, 2, BIT_MASK, prefix, KV_KEY_ITERATE) == KV_ERR_INVALID_KEYSPACE_ID);
    assert(kv_iterate_open(handle, 0, BIT_MASK, prefix, 0) == KV_ERR_ITERATE_ERROR);
    assert(kv_iterate_open(handle, 0, BIT_MASK, prefix, KV_KEY_ITERATE_WITH_RETRIEVE) == KV_ERR_ITERATE_ERROR);
    assert(kv_iterate_open(handle, 0, BIT_MASK, prefix, 0xFF) == KV_ERR_ITERATE_ERROR);
    static const uint32_t masks[] = { 1, 0x7FFFFFFF, 0xFF00FF00, 0x0F000000 };
    for (size_t i = 0; i < NELEM(masks); i++)
        assert(kv_iterate_open(handle, 0, masks[i], prefix, KV_KEY_ITERATE) == KV_ERR_DD_ITERATE_COND_INVALID);
    assert(kv_iterate_open(0, 0, BIT_MASK, prefix, KV_KEY_ITERATE) == KV_ERR_SDK_INVALID_PARAM);
    assert(kv_iterate_close(handle, 0) == KV_ERR_DD_INVALID_PARAM);
    assert(kv_iterate_close(handle, iterator + 1) != KV_SUCCESS);
    assert(kv_iterate_close(handle, 200) != KV_SUCCESS);

    static char buffer[64 * KB];
    kv_iterate it = { .iterator = iterator };
    static const uint32_t lengths[] = { 0, 1025, 16 * KB, 32 * KB - 1, 32 * KB + 1, 64 * KB };
    it.kv.value.value = buffer;
    for (size_t i = 0; i < NELEM(lengths); i++) {
        it.kv.value.length = lengths[i];
        assert(kv_iterate_read(handle, &it) != KV_SUCCESS);
        it.kv.value.length = lengths[i];
        int ret = is_async ? kv_iterate_read_async(handle, &it) : kv_iterate_read(handle, &it);
        assert(ret == KV_ERR_INVALID_VALUE_SIZE && it.kv.value.length == 0);
    }
    /* Whatever is wrong, nothing was read. */
    it.kv.value.length = KV_ITERATE_READ_BUFFER_SIZE;
    assert(kv_iterate_read(0, &it) != KV_SUCCESS && it.kv.value.length == 0);
    it.kv.value.length = KV_ITERATE_READ_BUFFER_SIZE;
    assert(kv_iterate_read_async(0, &it) != KV_SUCCESS && it.kv.value.length == 0);
    it.iterator = 0;
    it.kv.value.length = KV_ITERATE_READ_BUFFER_SIZE;
    assert((is_async ? kv_iterate_read_async(handle, &it) : kv_iterate_read(handle, &it)) == KV_ERR_DD_INVALID_PARAM);
    assert(it.kv.value.length == 0);
    it.iterator = iterator;
    it.kv.value.length = KV_ITERATE_READ_BUFFER_SIZE;
    it.kv.param.io_option.iterate_read_option = 1;
    assert((is_async ? kv_iterate_read_async(handle, &it) : kv_iterate_read(handle, &it)) == KV_ERR_INVALID_OPTION);
    assert(it.kv.value.length == 0);
    it.kv.value.length = KV_ITERATE_READ_BUFFER_SIZE;
    it.kv.param.io_option.iterate_read_option = KV_ITERATE_READ_DEFAULT;
    assert(kv_iterate_close(handle, iterator) == KV_SUCCESS);
    if (!is_async) {
        assert(kv_iterate_read(handle, &it) == KV_ERR_IO);
        assert(it.kv.value.length == 0);
    }
}

static void there_are_sixteen(uint64_t handle)
{
    uint32_t prefix = 0x30303030, iterator[KV_MAX_ITERATE_HANDLE];
    for (uint32_t i = 0; i < KV_MAX_ITERATE_HANDLE; i++) {
        iterator[i] = kv_iterate_open(handle, KV_KEYSPACE_IODATA, BIT_MASK, prefix + i, KV_KEY_ITERATE);
        assert(iterator[i] == i + 1);
    }
    assert(kv_iterate_open(handle, KV_KEYSPACE_IODATA, BIT_MASK, prefix + 100, KV_KEY_ITERATE) ==
           KV_ERR_ITERATE_NO_AVAILABLE_HANDLE);
    /* The lowest that is free comes first. */
    assert(kv_iterate_close(handle, 7) == KV_SUCCESS);
    assert(kv_iterate_open(handle, KV_KEYSPACE_IODATA, BIT_MASK, prefix + 100, KV_KEY_ITERATE) == 7);
    for (int i = 0; i < KV_MAX_ITERATE_HANDLE; i++)
        assert(kv_iterate_close(handle, iterator[i]) == KV_SUCCESS);
}

static void each(uint64_t handle, uint32_t prefix, kv_pair **kv, int count, int (*sync)(uint64_t, kv_pair *),
                 int (*async)(uint64_t, kv_pair *), int is_store)
{
    completed = 0;
    for (int i = 0; i < count; i++) {
        make_key(kv[i]->key.key, prefix, i);
        kv[i]->key.length = KEY_LENGTH;
        kv[i]->value.length = is_store ? LENGTH_OF(i) : VALUE_LENGTH;
        kv[i]->value.offset = 0;
        kv[i]->param.io_option.store_option = KV_STORE_DEFAULT;
        kv[i]->param.async_cb = on_pair;
        kv[i]->param.private_data = (void *)&completed;
        if (is_store)
            memset(kv[i]->value.value, 'a' + i % 26, LENGTH_OF(i));
        int ret = is_async ? async(handle, kv[i]) : sync(handle, kv[i]);
        assert(ret == KV_SUCCESS);
    }
    while (is_async && completed < count)
        usleep(1);
}

static int delete_sync(uint64_t handle, kv_pair *kv)
{
    return kv_delete(handle, kv);
}

static int delete_async(uint64_t handle, kv_pair *kv)
{
    return kv_delete_async(handle, kv);
}

static void read_all(uint64_t handle, uint32_t prefix, int count)
{
    struct reading reading = { .prefix = prefix, .seen = calloc(count, 1) };
    uint32_t iterator = kv_iterate_open(handle, KV_KEYSPACE_IODATA, BIT_MASK, prefix, KV_KEY_ITERATE);
    assert(iterator >= 1 && iterator <= KV_MAX_ITERATE_HANDLE);
    int reads = is_async ? count / 1638 + 5 : 0;
    for (int i = 0; i < reads; i++) {
        kv_iterate *it = calloc(1, sizeof(kv_iterate));
        it->iterator = iterator;
        it->kv.value.value = malloc(KV_ITERATE_READ_BUFFER_SIZE);
        it->kv.value.length = KV_ITERATE_READ_BUFFER_SIZE;
        it->kv.param.async_cb = on_keys;
        it->kv.param.private_data = &reading;
        assert(kv_iterate_read_async(handle, it) == KV_SUCCESS);
    }
    while (__atomic_load_n(&reading.reads, __ATOMIC_SEQ_CST) < reads)
        usleep(1);
    int ret = is_async ? KV_ERR_ITERATE_READ_EOF : KV_SUCCESS;
    char *buffer = malloc(KV_ITERATE_READ_BUFFER_SIZE);
    while (ret == KV_SUCCESS) {
        kv_iterate it = { .iterator = iterator };
        it.kv.value.value = buffer;
        it.kv.value.length = KV_ITERATE_READ_BUFFER_SIZE;
        ret = kv_iterate_read(handle, &it);
        assert(ret == KV_SUCCESS || ret == KV_ERR_ITERATE_READ_EOF);
        take_keys(&reading, &it);
    }
    free(buffer);
    assert(kv_iterate_close(handle, iterator) == KV_SUCCESS);
    assert(reading.keys == count);
    for (int i = 0; i < count; i++)
        assert(reading.seen[i] == 1);
    free(reading.seen);
}

static void pairs_of_two_prefixes(uint64_t handle, int count)
{
    kv_pair **kv = malloc(sizeof(kv_pair *) * count);
    for (int i = 0; i < count; i++) {
        kv[i] = calloc(1, sizeof(kv_pair));
        kv[i]->key.key = malloc(KEY_LENGTH + 1);
        kv[i]->value.value = malloc(VALUE_LENGTH);
    }
    static const uint32_t prefixes[] = { 0x30303030, 0x31303030 };
    for (size_t p = 0; p < NELEM(prefixes); p++)
        each(handle, prefixes[p], kv, count, kv_store, kv_store_async, 1);
    for (size_t p = 0; p < NELEM(prefixes); p++) {
        each(handle, prefixes[p], kv, count, kv_retrieve, kv_retrieve_async, 0);
        for (int i = 0; i < count; i++) {
            assert(kv[i]->value.length == (uint32_t)LENGTH_OF(i));
            assert(kv[i]->value.actual_value_size == (uint32_t)LENGTH_OF(i));
            assert(((char *)kv[i]->value.value)[LENGTH_OF(i) - 1] == 'a' + i % 26);
        }
        read_all(handle, prefixes[p], count);
    }
    each(handle, prefixes[0], kv, count, delete_sync, delete_async, 0);
    read_all(handle, prefixes[0], 0);
    read_all(handle, prefixes[1], count);

    /* The device deletes the rest. */
    uint32_t iterator =
        kv_iterate_open(handle, KV_KEYSPACE_IODATA, 0xFF000000, prefixes[1], KV_KEY_ITERATE_WITH_DELETE);
    assert(iterator >= 1 && iterator <= KV_MAX_ITERATE_HANDLE);
    kv_iterate_handle_info info[KV_MAX_ITERATE_HANDLE];
    do {
        usleep(1000);
        assert(kv_iterate_info(handle, info, KV_MAX_ITERATE_HANDLE) == KV_SUCCESS);
        assert(info[iterator - 1].type == KV_KEY_ITERATE_WITH_DELETE);
    } while (!info[iterator - 1].is_eof);
    assert(kv_iterate_close(handle, iterator) == KV_SUCCESS);
    read_all(handle, prefixes[1], 0);
    for (int i = 0; i < count; i++) {
        free(kv[i]->key.key);
        free(kv[i]->value.value);
        free(kv[i]);
    }
    free(kv);
}

int main(int argc, char **argv)
{
    is_async = argc > 1 && strcmp(argv[1], "async") == 0;
    int count = argc > 2 ? atoi(argv[2]) : 4000;
    uint64_t handle = start();
    info_says_what_was_opened(handle);
    wrong_conditions_are_refused(handle);
    there_are_sixteen(handle);
    pairs_of_two_prefixes(handle, count);
    assert(kv_sdk_finalize() == KV_SUCCESS);
    printf("iterators, %s: ok\n", is_async ? "async" : "sync");
    return 0;
}

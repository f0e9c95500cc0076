/*
 * What wrong calls get, by waiting and without. The first argument says whether there is a cache, which must
 * make no difference.
 */
#include <limits.h>
#include <pthread.h>

#include "check.h"
#include "kvnvme.h"

static uint64_t device;

typedef int (*operation)(uint64_t, kv_pair *);

/* What an operation ended with: at once, or in its callback. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int finished;
    unsigned status;
} last = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0 };

static void note(kv_pair *pair, unsigned result, unsigned status)
{
    (void)pair;
    (void)result;
    pthread_mutex_lock(&last.mutex);
    last.finished = 1;
    last.status = status;
    pthread_cond_signal(&last.changed);
    pthread_mutex_unlock(&last.mutex);
}

static int finish(int submitted)
{
    if (submitted != KV_SUCCESS)
        return submitted;
    pthread_mutex_lock(&last.mutex);
    while (!last.finished)
        pthread_cond_wait(&last.changed, &last.mutex);
    last.finished = 0;
    int status = (int)last.status;
    pthread_mutex_unlock(&last.mutex);
    return status;
}

static int store_waited(uint64_t h, kv_pair *pair)
{
    pair->param.async_cb = note;
    return finish(kv_store_async(h, pair));
}

static int retrieve_waited(uint64_t h, kv_pair *pair)
{
    pair->param.async_cb = note;
    return finish(kv_retrieve_async(h, pair));
}

static int delete_waited(uint64_t h, kv_pair *pair)
{
    pair->param.async_cb = note;
    return finish(kv_delete_async(h, pair));
}

static int exist_waited(uint64_t h, kv_pair *pair)
{
    pair->param.async_cb = note;
    return finish(kv_exist_async(h, pair));
}

static int delete_sync(uint64_t h, kv_pair *pair)
{
    return kv_delete(h, pair);
}

static int exist_sync(uint64_t h, kv_pair *pair)
{
    return kv_exist(h, pair);
}

struct verbs {
    operation store, retrieve, delete, exist;
};

static const struct verbs sync_verbs = { kv_store, kv_retrieve, delete_sync, exist_sync };
static const struct verbs async_verbs = { store_waited, retrieve_waited, delete_waited, exist_waited };

static void lengths_and_offsets_of_a_retrieve_are_aligned(const struct verbs *v)
{
    EQUAL(v->store(device, pair_of("aligned", 4096, 'a')), KV_SUCCESS);
    static const uint32_t misaligned[] = { 1, 2, 3, 5, 4095, 2 * 1024 * 1024 - 1 };
    for (size_t i = 0; i < sizeof misaligned / sizeof misaligned[0]; i++)
        EQUAL(v->retrieve(device, pair_of("aligned", misaligned[i], 0)), KV_ERR_MISALIGNED_VALUE_SIZE);
    static const uint32_t offsets[] = { 1, 4, 511, 513, 4095 };
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        kv_pair *pair = pair_of("aligned", 4096, 0);
        pair->value.offset = offsets[i];
        EQUAL(v->retrieve(device, pair), KV_ERR_MISALIGNED_VALUE_OFFSET);
    }
}

static void keys_have_4_to_255_bytes(const struct verbs *v)
{
    static char key[300];
    memset(key, 'k', sizeof key);
    static const uint16_t wrong[] = { 0, 1, 3, 256, 300 };
    static const uint16_t right[] = { 4, 16, 17, 255 };
    for (int verb = 0; verb < 4; verb++) {
        operation call = verb == 0 ? v->store : verb == 1 ? v->retrieve : verb == 2 ? v->delete : v->exist;
        for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
            kv_pair *pair = pair_of("key", 64, 0);
            pair->key.key = key;
            pair->key.length = wrong[i];
            EQUAL(call(device, pair), KV_ERR_INVALID_KEY_SIZE);
        }
    }
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        kv_pair *pair = pair_of("key", 64, 'v');
        pair->key.key = key;
        pair->key.length = right[i];
        EQUAL(v->store(device, pair), KV_SUCCESS);
        EQUAL(v->exist(device, pair), KV_SUCCESS);
        EQUAL(v->delete(device, pair), KV_SUCCESS);
        EQUAL(v->exist(device, pair), KV_ERR_NOT_EXIST_KEY);
    }
}

static void there_are_two_keyspaces(const struct verbs *v)
{
    for (int verb = 0; verb < 4; verb++) {
        operation call = verb == 0 ? v->store : verb == 1 ? v->retrieve : verb == 2 ? v->delete : v->exist;
        for (int keyspace = 2; keyspace < 256; keyspace += 253) {
            kv_pair *pair = pair_of("keyspace", 64, 0);
            pair->keyspace_id = (uint8_t)keyspace;
            EQUAL(call(device, pair), KV_ERR_INVALID_KEYSPACE_ID);
        }
    }
    /* The same key in both is two pairs. */
    for (uint8_t keyspace = 0; keyspace < 2; keyspace++) {
        kv_pair *pair = pair_of("keyspace", 64, (char)('0' + keyspace));
        pair->keyspace_id = keyspace;
        EQUAL(v->store(device, pair), KV_SUCCESS);
    }
    for (uint8_t keyspace = 0; keyspace < 2; keyspace++) {
        kv_pair *pair = pair_of("keyspace", 64, 0);
        pair->keyspace_id = keyspace;
        EQUAL(v->retrieve(device, pair), KV_SUCCESS);
        TRUE(all_are(pair->value.value, 64, (char)('0' + keyspace)));
    }
}

static void values_have_up_to_256_mib(const struct verbs *v)
{
    const uint32_t most = 256 * 1024 * 1024;
    kv_pair *pair = pair_of("large", 16, 'x');
    pair->value.length = most + 1;
    EQUAL(v->store(device, pair), KV_ERR_INVALID_VALUE_SIZE);
    pair->value.length = most + 4;
    EQUAL(v->retrieve(device, pair), KV_ERR_INVALID_VALUE_SIZE);
    const uint32_t sizes[] = { 2 * 1024 * 1024, 2 * 1024 * 1024 + 4, 9 * 1024 * 1024 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        EQUAL(v->store(device, pair_of("a large value's key", sizes[i], (char)('x' + i))), KV_SUCCESS);
        pair = pair_of("a large value's key", sizes[i], 0);
        EQUAL(v->retrieve(device, pair), KV_SUCCESS);
        EQUAL(pair->value.length, sizes[i]);
        TRUE(all_are(pair->value.value, sizes[i], (char)('x' + i)));
    }
    EQUAL(v->delete(device, pair), KV_SUCCESS);
}

static void an_idempotent_store_does_not_overwrite(const struct verbs *v)
{
    kv_pair *pair = pair_of("idempotent", 100, '1');
    pair->param.io_option.store_option = KV_STORE_IDEMPOTENT;
    EQUAL(v->store(device, pair), KV_SUCCESS);
    EQUAL(pair->value.actual_value_size, 100);
    pair = pair_of("idempotent", 200, '2');
    pair->param.io_option.store_option = KV_STORE_IDEMPOTENT;
    EQUAL(v->store(device, pair), KV_ERR_IDEMPOTENT_STORE_FAIL);
    pair = pair_of("idempotent", 256, 0);
    EQUAL(v->retrieve(device, pair), KV_SUCCESS);
    EQUAL(pair->value.length, 100);
    EQUAL(pair->value.actual_value_size, 100);
    TRUE(all_are(pair->value.value, 100, '1'));
}

static void options_that_do_not_exist_are_refused(const struct verbs *v)
{
    kv_pair *pair = pair_of("option", 64, 'o');
    pair->param.io_option.store_option = 4;
    EQUAL(v->store(device, pair), KV_ERR_INVALID_OPTION);
    pair->param.io_option.store_option = -1;
    EQUAL(v->store(device, pair), KV_ERR_INVALID_OPTION);
    pair->param.io_option.delete_option = 2;
    EQUAL(v->delete(device, pair), KV_ERR_INVALID_OPTION);
    pair->param.io_option.retrieve_option = 2;
    EQUAL(v->retrieve(device, pair), KV_ERR_INVALID_OPTION);
    pair = pair_of("option", 64, 'o');
    pair->param.io_option.store_option = KV_STORE_COMPRESSION;
    EQUAL(v->store(device, pair), KV_SUCCESS);
    pair = pair_of("option", 64, 0);
    pair->param.io_option.retrieve_option = KV_RETRIEVE_DECOMPRESSION;
    EQUAL(v->retrieve(device, pair), KV_SUCCESS);
    TRUE(all_are(pair->value.value, 64, 'o'));
}

static void deleting_what_is_not_there_is_an_error_only_when_asked(const struct verbs *v)
{
    kv_pair *pair = pair_of("missing", 64, 0);
    EQUAL(v->delete(device, pair), KV_SUCCESS);
    pair->param.io_option.delete_option = KV_DELETE_CHECK_IDEMPOTENT;
    EQUAL(v->delete(device, pair), KV_ERR_NOT_EXIST_KEY);
    pair = pair_of("missing", 64, 'z');
    EQUAL(v->retrieve(device, pair), KV_ERR_NOT_EXIST_KEY);
    EQUAL(pair->value.length, 0);
    EQUAL(pair->value.actual_value_size, 0);
    TRUE(all_are(pair->value.value, 64, 'z'));
}

static void retrieves_of_parts_are_the_worked_cases(const struct verbs *v)
{
    EQUAL(v->store(device, pair_of("tenkilobytes", 10 * 1024, 't')), KV_SUCCESS);
    static const struct {
        uint32_t buffer, offset, length, actual;
    } cases[] = {
        { 10 * 1024, 0, 10 * 1024, 10 * 1024 }, { 4096, 0, 4096, 10 * 1024 },
        { 4096, 8 * 1024, 2 * 1024, 2 * 1024 }, { 16 * 1024, 0, 10 * 1024, 10 * 1024 },
        { 4, 512, 4, 10 * 1024 - 512 },         { 0, 0, 0, 10 * 1024 },
    };
    /* Twice, so that what the first round leaves in a cache is asked for by the second. */
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof cases[0]); i++) {
        uint32_t buffer = cases[i / 2].buffer;
        kv_pair *pair = pair_of("tenkilobytes", buffer, '-');
        pair->value.offset = cases[i / 2].offset;
        EQUAL(v->retrieve(device, pair), KV_SUCCESS);
        EQUAL(pair->value.length, cases[i / 2].length);
        EQUAL(pair->value.actual_value_size, cases[i / 2].actual);
        TRUE(all_are(pair->value.value, cases[i / 2].length, 't'));
        /* One byte more than the buffer has is there, and not written. */
        TRUE(all_are((char *)pair->value.value + cases[i / 2].length, buffer + 1 - cases[i / 2].length, '-'));
    }
    kv_pair *pair = pair_of("tenkilobytes", 4096, '-');
    pair->value.offset = 10 * 1024 + 512;
    EQUAL(v->retrieve(device, pair), KV_ERR_INVALID_VALUE_OFFSET);
    EQUAL(pair->value.length, 0);
}

static void a_store_at_an_offset_is_refused(const struct verbs *v)
{
    kv_pair *pair = pair_of("offset", 512, 'o');
    pair->value.offset = 512;
    EQUAL(v->store(device, pair), KV_ERR_INVALID_VALUE_OFFSET);
}

static void a_value_may_have_no_bytes(const struct verbs *v)
{
    kv_pair *pair = pair_of("empty", 0, 0);
    EQUAL(v->store(device, pair), KV_SUCCESS);
    EQUAL(v->exist(device, pair), KV_SUCCESS);
    for (int round = 0; round < 2; round++) {
        pair = pair_of("empty", 64, 'e');
        EQUAL(v->retrieve(device, pair), KV_SUCCESS);
        EQUAL(pair->value.length, 0);
        EQUAL(pair->value.actual_value_size, 0);
        TRUE(all_are(pair->value.value, 64, 'e'));
    }
    pair = pair_of("empty", 0, 0);
    pair->value.value = NULL;
    EQUAL(v->store(device, pair), KV_SUCCESS);
    EQUAL(v->retrieve(device, pair), KV_SUCCESS);
}

static void every_length_comes_back_as_it_was(const struct verbs *v)
{
    for (uint32_t bytes = 1; bytes < 40; bytes++) {
        EQUAL(v->store(device, pair_of("length", bytes, (char)bytes)), KV_SUCCESS);
        for (int round = 0; round < 2; round++) {
            kv_pair *pair = pair_of("length", 40, '-');
            EQUAL(v->retrieve(device, pair), KV_SUCCESS);
            EQUAL(pair->value.length, bytes);
            EQUAL(pair->value.actual_value_size, bytes);
            TRUE(all_are(pair->value.value, bytes, (char)bytes));
            TRUE(all_are((char *)pair->value.value + bytes, 40 - bytes, '-'));
        }
    }
}

static void missing_arguments_are_errors(const struct verbs *v)
{
    for (int verb = 0; verb < 4; verb++) {
        operation call = verb == 0 ? v->store : verb == 1 ? v->retrieve : verb == 2 ? v->delete : v->exist;
        EQUAL(call(0, pair_of("null", 64, 0)), KV_ERR_SDK_INVALID_PARAM);
        EQUAL(call(device + 1, pair_of("null", 64, 0)), KV_ERR_SDK_INVALID_PARAM);
        kv_pair *pair = pair_of("null", 64, 0);
        pair->key.key = NULL;
        EQUAL(call(device, pair), KV_ERR_SDK_INVALID_PARAM);
    }
    kv_pair *pair = pair_of("null", 64, 0);
    pair->value.value = NULL;
    EQUAL(v->store(device, pair), KV_ERR_SDK_INVALID_PARAM);
    pair = pair_of("null", 64, 0);
    pair->value.value = NULL;
    EQUAL(v->retrieve(device, pair), KV_ERR_SDK_INVALID_PARAM);
}

static void a_pair_that_is_null_is_an_error(void)
{
    EQUAL(kv_store(device, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_retrieve(device, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_delete(device, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_exist(device, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_store_async(device, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_retrieve_async(device, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_delete_async(device, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_exist_async(device, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_iterate_read(device, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_iterate_info(device, NULL, 1), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_get_log_page(device, 0x02, NULL, 512), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(kv_get_device_handles(NULL, NULL), KV_ERR_SDK_INVALID_PARAM);
}

/* The checks are made in a fixed order: a call that is wrong in several ways gets the first. */
static void checks_are_made_in_their_order(const struct verbs *v)
{
    kv_pair *pair = pair_of("order", 64, 0);
    pair->value.length = 256 * 1024 * 1024 + 1;
    pair->value.offset = 1;
    pair->keyspace_id = 2;
    pair->key.length = 3;
    EQUAL(v->retrieve(0, pair), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(v->store(device, pair), KV_ERR_INVALID_VALUE_SIZE);
    pair->value.length = 63;
    EQUAL(v->store(device, pair), KV_ERR_INVALID_KEYSPACE_ID);
    pair->keyspace_id = 0;
    EQUAL(v->store(device, pair), KV_ERR_INVALID_KEY_SIZE);
    pair->key.length = 5;
    pair->value.length = 63;
    EQUAL(v->retrieve(device, pair), KV_ERR_MISALIGNED_VALUE_SIZE);
    pair->value.length = 64;
    EQUAL(v->retrieve(device, pair), KV_ERR_MISALIGNED_VALUE_OFFSET);
}

static void appending_is_not_offered(void)
{
    EQUAL(kv_append(device, pair_of("append", 64, 0)), KV_ERR_DD_UNSUPPORTED_CMD);
}

static void a_deletion_is_seen_at_once(const struct verbs *v)
{
    for (int i = 0; i < 50; i++) {
        EQUAL(v->store(device, pair_of("gone", 128, 'g')), KV_SUCCESS);
        EQUAL(v->retrieve(device, pair_of("gone", 128, 0)), KV_SUCCESS);
        EQUAL(v->delete(device, pair_of("gone", 0, 0)), KV_SUCCESS);
        EQUAL(v->exist(device, pair_of("gone", 0, 0)), KV_ERR_NOT_EXIST_KEY);
        EQUAL(v->retrieve(device, pair_of("gone", 128, 0)), KV_ERR_NOT_EXIST_KEY);
    }
}

static void a_format_leaves_nothing(const struct verbs *v)
{
    EQUAL(v->store(device, pair_of("formatted", 128, 'f')), KV_SUCCESS);
    EQUAL(v->retrieve(device, pair_of("formatted", 128, 0)), KV_SUCCESS);
    EQUAL(kv_format_device(device, KV_FORMAT_USERDATA), KV_SUCCESS);
    EQUAL(v->retrieve(device, pair_of("formatted", 128, 0)), KV_ERR_NOT_EXIST_KEY);
    EQUAL(kv_get_used_size(device), 0);
}

static void all(const struct verbs *v)
{
    RUN(lengths_and_offsets_of_a_retrieve_are_aligned(v));
    RUN(keys_have_4_to_255_bytes(v));
    RUN(there_are_two_keyspaces(v));
    RUN(values_have_up_to_256_mib(v));
    RUN(an_idempotent_store_does_not_overwrite(v));
    EQUAL(kv_delete(device, pair_of("idempotent", 0, 0)), KV_SUCCESS);
    RUN(options_that_do_not_exist_are_refused(v));
    RUN(deleting_what_is_not_there_is_an_error_only_when_asked(v));
    RUN(retrieves_of_parts_are_the_worked_cases(v));
    RUN(a_store_at_an_offset_is_refused(v));
    RUN(a_value_may_have_no_bytes(v));
    RUN(every_length_comes_back_as_it_was(v));
    RUN(missing_arguments_are_errors(v));
    RUN(checks_are_made_in_their_order(v));
    RUN(a_deletion_is_seen_at_once(v));
    RUN(a_format_leaves_nothing(v));
}

int main(int argc, char **argv)
{
    device = sdk_with("mem:kv:64M", KV_TYPE_SSD, argc > 1 && strcmp(argv[1], "cache") == 0);
    puts("by waiting:");
    all(&sync_verbs);
    puts("without waiting:");
    all(&async_verbs);
    RUN(a_pair_that_is_null_is_an_error());
    RUN(appending_is_not_offered());
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
    return check_summary();
}

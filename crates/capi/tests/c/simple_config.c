/*
 * The shortest configuration, in the manner of the original SDK's test programs: only a device is named; one
 * thread stores by waiting and retrieves and deletes without; then many threads do, half of them each way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <assert.h>
#include "kv_types.h"
#include "kv_apis.h"

#undef NDEBUG
#define THREADS 32

volatile int is_async_io_complete;
static int pairs_each = 200;

static void sample_async_cb(kv_pair *kv, unsigned int result, unsigned int status)
{
    (void)result;
    assert(status == KV_SUCCESS);
    assert(kv != NULL);
    is_async_io_complete++;
}

static void one_pair(uint64_t handle)
{
    kv_pair kv_one;
    kv_one.key.length = 16;
    kv_one.key.key = calloc(1, 17);
    kv_one.keyspace_id = KV_KEYSPACE_IODATA;
    kv_one.value.value = malloc(4096);
    memset(kv_one.value.value, 'a', 4096);
    kv_one.param.private_data = NULL;

    kv_one.value.offset = 0;
    kv_one.value.length = 4096;
    kv_one.param.io_option.store_option = KV_STORE_DEFAULT;
    assert(kv_store(handle, &kv_one) == KV_SUCCESS);

    kv_one.value.offset = 0;
    kv_one.value.length = 4096;
    memset(kv_one.value.value, 0, 4096);
    kv_one.param.io_option.retrieve_option = KV_RETRIEVE_DEFAULT;
    kv_one.param.async_cb = sample_async_cb;
    assert(kv_retrieve_async(handle, &kv_one) == KV_SUCCESS);
    while (!is_async_io_complete)
        ;
    is_async_io_complete = 0;
    assert(((char *)kv_one.value.value)[4095] == 'a' && kv_one.value.length == 4096);

    kv_one.value.offset = 0;
    kv_one.value.length = 0;
    kv_one.param.io_option.delete_option = KV_DELETE_DEFAULT;
    kv_one.param.async_cb = sample_async_cb;
    assert(kv_delete_async(handle, &kv_one) == KV_SUCCESS);
    while (!is_async_io_complete)
        ;
    is_async_io_complete = 0;
    kv_one.param.io_option.exist_option = KV_EXIST_DEFAULT;
    assert(kv_exist(handle, &kv_one) == KV_ERR_NOT_EXIST_KEY);
    free(kv_one.key.key);
    free(kv_one.value.value);
}

struct work {
    pthread_t thread;
    uint64_t handle;
    int number;
    volatile int done;
};

static void count_cb(kv_pair *kv, unsigned int result, unsigned int status)
{
    (void)result;
    assert(status == KV_SUCCESS);
    __atomic_add_fetch((int *)kv->param.private_data, 1, __ATOMIC_SEQ_CST);
}

static void submit(struct work *work, kv_pair *kv, int (*sync)(uint64_t, kv_pair *),
                   int (*async)(uint64_t, kv_pair *))
{
    for (int i = 0; i < pairs_each; i++) {
        kv[i].value.length = 4096;
        kv[i].param.async_cb = count_cb;
        kv[i].param.private_data = (void *)&work->done;
        assert((work->number % 2 ? sync : async)(work->handle, &kv[i]) == KV_SUCCESS);
    }
    while (work->number % 2 == 0 && work->done < pairs_each)
        usleep(1);
    work->done = 0;
}

static void *threads_work(void *argument)
{
    struct work *work = argument;
    kv_pair *kv = calloc(pairs_each, sizeof(kv_pair));
    for (int i = 0; i < pairs_each; i++) {
        kv[i].key.key = malloc(32);
        snprintf(kv[i].key.key, 32, "t%03d%012d", work->number, i);
        kv[i].key.length = 16;
        kv[i].value.value = malloc(4096);
        memset(kv[i].value.value, work->number + i, 4096);
    }
    submit(work, kv, kv_store, kv_store_async);
    for (int i = 0; i < pairs_each; i++)
        memset(kv[i].value.value, 0, 4096);
    submit(work, kv, kv_retrieve, kv_retrieve_async);
    for (int i = 0; i < pairs_each; i++) {
        assert(kv[i].value.length == 4096);
        assert(((char *)kv[i].value.value)[4095] == (char)(work->number + i));
        free(kv[i].key.key);
        free(kv[i].value.value);
    }
    free(kv);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        pairs_each = atoi(argv[1]);
    kv_sdk_info();
    kv_sdk sdk_opt = { 0, };
    sprintf(sdk_opt.dev_id[0], "mem:kv:256M");
    sdk_opt.nr_ssd = 1;
    assert(kv_sdk_init(KV_SDK_INIT_FROM_STR, &sdk_opt) == KV_SUCCESS);
    int nr_handle = 0;
    uint64_t arr_handle[NR_MAX_SSD];
    assert(kv_get_device_handles(&nr_handle, arr_handle) == KV_SUCCESS);
    assert(nr_handle == 1 && arr_handle[0] == sdk_opt.dev_handle[0]);
    assert(sdk_opt.dd_options[0].core_mask != 0 && sdk_opt.dd_options[0].queue_depth == 32);
    assert(kv_is_sdk_initialized() == 1);
    one_pair(arr_handle[0]);

    struct work work[THREADS];
    for (int i = 0; i < THREADS; i++) {
        work[i] = (struct work){ .handle = arr_handle[0], .number = i };
        assert(pthread_create(&work[i].thread, NULL, threads_work, &work[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(work[i].thread, NULL);
    assert(kv_sdk_finalize() == KV_SUCCESS);
    puts("simple configuration: ok");
    return 0;
}

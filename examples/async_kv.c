/*
 * Stores and retrieves many pairs without waiting for each.
 *
 *     cc -std=gnu11 async_kv.c -o async_kv $(pkg-config --cflags --libs unvme) -lpthread
 *     ./async_kv [device]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv_apis.h"
#include "unvme.h"

enum { PAIRS = 1000, VALUE_BYTES = 4096 };

/* What the callbacks, which run on a thread of the library, share with the program. */
struct progress {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int finished;
    int failures;
};

struct request {
    kv_pair pair;
    char key[16];
    char value[VALUE_BYTES];
};

static void on_finished(kv_pair *pair, unsigned int result, unsigned int status)
{
    (void)result;
    struct progress *progress = (struct progress *)pair->param.private_data;
    pthread_mutex_lock(&progress->mutex);
    if (status != KV_SUCCESS) {
        fprintf(stderr, "%.16s: %s\n", (char *)pair->key.key, unvme_result_name((int)status));
        progress->failures++;
    }
    progress->finished++;
    pthread_cond_signal(&progress->changed);
    pthread_mutex_unlock(&progress->mutex);
}

/* Waits for so many operations, and says whether all of them succeeded. */
static bool wait_for(struct progress *progress, int operations)
{
    pthread_mutex_lock(&progress->mutex);
    while (progress->finished < operations)
        pthread_cond_wait(&progress->changed, &progress->mutex);
    bool succeeded = progress->failures == 0;
    progress->finished = 0;
    progress->failures = 0;
    pthread_mutex_unlock(&progress->mutex);
    return succeeded;
}

static void prepare(struct request *request, int number, struct progress *progress)
{
    memset(request, 0, sizeof *request);
    snprintf(request->key, sizeof request->key, "pair%011d", number);
    request->pair.keyspace_id = KV_KEYSPACE_IODATA;
    request->pair.key.key = request->key;
    request->pair.key.length = sizeof request->key;
    request->pair.value.value = request->value;
    request->pair.value.length = VALUE_BYTES;
    /* The member says nothing about its arguments, as in the original SDK. */
    request->pair.param.async_cb = (void (*)(void))on_finished;
    request->pair.param.private_data = progress;
}

/* Submits an operation on every pair. A pair whose operation was not accepted gets no callback. */
static bool run(const char *what, int (*submit)(uint64_t, kv_pair *), uint64_t device, struct request *requests,
                struct progress *progress)
{
    int submitted = 0;
    bool accepted = true;
    for (; submitted < PAIRS; submitted++) {
        int result = submit(device, &requests[submitted].pair);
        if (result != KV_SUCCESS) {
            fprintf(stderr, "%s: %s: %s\n", what, unvme_result_name(result), unvme_last_error());
            accepted = false;
            break;
        }
    }
    return wait_for(progress, submitted) && accepted;
}

static bool store_and_retrieve(uint64_t device, struct request *requests)
{
    struct progress progress = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0 };
    for (int i = 0; i < PAIRS; i++) {
        prepare(&requests[i], i, &progress);
        memset(requests[i].value, 'a' + i % 26, VALUE_BYTES);
    }
    if (!run("store", kv_store_async, device, requests, &progress))
        return false;

    for (int i = 0; i < PAIRS; i++)
        prepare(&requests[i], i, &progress);
    if (!run("retrieve", kv_retrieve_async, device, requests, &progress))
        return false;
    for (int i = 0; i < PAIRS; i++) {
        const kv_value *value = &requests[i].pair.value;
        if (value->length != VALUE_BYTES || requests[i].value[VALUE_BYTES - 1] != 'a' + i % 26) {
            fprintf(stderr, "%s: a wrong value of %u bytes\n", requests[i].key, value->length);
            return false;
        }
    }
    printf("%d pairs of %d bytes stored and retrieved\n", PAIRS, VALUE_BYTES);
    return true;
}

int main(int argc, char **argv)
{
    uint64_t device;
    int result = unvme_open(argc > 1 ? argv[1] : "mem:kv:64M", KV_TYPE_SSD, NULL, &device);
    if (result != KV_SUCCESS) {
        fprintf(stderr, "open: %s: %s\n", unvme_result_name(result), unvme_last_error());
        return EXIT_FAILURE;
    }
    struct request *requests = (struct request *)calloc(PAIRS, sizeof *requests);
    bool done = requests != NULL && store_and_retrieve(device, requests);
    /* Everything has been called back, so that the requests belong to the program again. */
    free(requests);
    result = unvme_close(device);
    if (result != KV_SUCCESS)
        fprintf(stderr, "close: %s: %s\n", unvme_result_name(result), unvme_last_error());
    return done && result == KV_SUCCESS ? EXIT_SUCCESS : EXIT_FAILURE;
}

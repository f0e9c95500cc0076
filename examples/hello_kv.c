/*
 * Stores a pair, reads it back and deletes it.
 *
 *     cc -std=gnu11 hello_kv.c -o hello_kv $(pkg-config --cflags --libs unvme)
 *     ./hello_kv [device]
 *
 * The device is a virtual key-value SSD in this process unless another one is named: 0000:02:00.0 for a
 * virtual one that `unvme device create 0000:02:00.0 --type kv --size 1G` has made.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv_apis.h"
#include "unvme.h"

static int failed(const char *what, int result)
{
    fprintf(stderr, "%s: %s: %s\n", what, unvme_result_name(result), unvme_last_error());
    return EXIT_FAILURE;
}

static int hello(uint64_t device)
{
    char key[] = "greeting";
    char greeting[] = "hello, key-value SSD";
    kv_pair pair;
    memset(&pair, 0, sizeof pair);
    pair.keyspace_id = KV_KEYSPACE_IODATA;
    pair.key.key = key;
    pair.key.length = sizeof key - 1;
    pair.value.value = greeting;
    pair.value.length = sizeof greeting;
    pair.param.io_option.store_option = KV_STORE_DEFAULT;
    int result = kv_store(device, &pair);
    if (result != KV_SUCCESS)
        return failed("store", result);

    /*
     * The buffer of a retrieve is a multiple of 4 bytes long. What came is in length, what there is in
     * actual_value_size.
     */
    char buffer[64];
    pair.value.value = buffer;
    pair.value.length = sizeof buffer;
    pair.param.io_option.retrieve_option = KV_RETRIEVE_DEFAULT;
    result = kv_retrieve(device, &pair);
    if (result != KV_SUCCESS)
        return failed("retrieve", result);
    printf("%s = \"%s\" (%u of %u bytes)\n", key, buffer, pair.value.length, pair.value.actual_value_size);

    /* Without the option, deleting what is not there is no error. */
    pair.param.io_option.delete_option = KV_DELETE_CHECK_IDEMPOTENT;
    result = kv_delete(device, &pair);
    if (result != KV_SUCCESS)
        return failed("delete", result);
    pair.param.io_option.exist_option = KV_EXIST_DEFAULT;
    result = kv_exist(device, &pair);
    if (result != KV_ERR_NOT_EXIST_KEY)
        return failed("exist after delete", result);
    printf("deleted: %s\n", unvme_result_name(result));
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "mem:kv:64M";
    kv_sdk options;
    memset(&options, 0, sizeof options);
    if (strlen(name) >= sizeof options.dev_id[0]) {
        fprintf(stderr, "%s: the SDK takes names of up to %zu bytes\n", name, sizeof options.dev_id[0] - 1);
        return EXIT_FAILURE;
    }
    strcpy(options.dev_id[0], name);

    /* Queues and threads are chosen, because no mask is given. */
    int result = kv_sdk_init(KV_SDK_INIT_FROM_STR, &options);
    if (result != KV_SUCCESS)
        return failed("initialise", result);
    int status = hello(options.dev_handle[0]);
    result = kv_sdk_finalize();
    if (result != KV_SUCCESS)
        status = failed("finalize", result);
    return status;
}

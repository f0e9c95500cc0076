/*
 * Reads and writes logical blocks through unvme.h, waiting and without waiting, and looks at what the device
 * says to a wrong address.
 *
 *     cc -std=gnu11 block.c -o block $(pkg-config --cflags --libs unvme)
 *     ./block [device]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv_apis.h"
#include "kvnvme.h"
#include "unvme.h"

enum { WRITES = 32 };

static int failed(const char *what, int result)
{
    fprintf(stderr, "%s: %s: %s\n", what, unvme_result_name(result), unvme_last_error());
    return -1;
}

static void count(void *arg, int result)
{
    if (result != KV_SUCCESS)
        failed("write", result);
    int *left = (int *)arg;
    --*left;
}

/* Writes one block after the other, all at a time; the callbacks come from kv_process_completion(), here. */
static int write_all(uint64_t device, const char *block)
{
    int left = 0;
    int status = 0;
    for (int i = 0; i < WRITES && status == 0; i++) {
        left++;
        int result = unvme_write_async(device, (uint64_t)i, 1, block, count, &left);
        if (result != KV_SUCCESS) {
            left--;
            status = failed("submit a write", result);
        }
    }
    while (left > 0)
        kv_process_completion(device);
    return status;
}

static int work(uint64_t device)
{
    unvme_block_info info;
    int result = unvme_block_info_get(device, &info);
    if (result != KV_SUCCESS)
        return failed("ask for the block size", result);
    printf("%llu blocks of %u bytes\n", (unsigned long long)info.blocks, info.block_bytes);

    char *data = (char *)unvme_alloc(info.block_bytes, 0);
    char *back = (char *)calloc(WRITES, info.block_bytes);
    int status = -1;
    if (data == NULL || back == NULL)
        goto out;
    memset(data, 0x5a, info.block_bytes);
    if (write_all(device, data) != 0)
        goto out;
    result = unvme_flush(device);
    if (result != KV_SUCCESS) {
        failed("flush", result);
        goto out;
    }
    result = unvme_read(device, 0, WRITES, back);
    if (result != KV_SUCCESS) {
        failed("read", result);
        goto out;
    }
    for (int i = 0; i < WRITES; i++)
        if (memcmp(data, back + (size_t)i * info.block_bytes, info.block_bytes) != 0) {
            fprintf(stderr, "block %d is not what was written\n", i);
            goto out;
        }
    printf("%d blocks written and read\n", WRITES);

    /* One block beyond the end: the status is whole, so that it cannot be mistaken for something else. */
    result = unvme_read(device, info.blocks, 1, back);
    char name[64];
    unvme_status_name(unvme_last_status(), name, sizeof name);
    printf("beyond the end: %s, %s\n", unvme_result_name(result), name);
    status = result == KV_ERR_IO ? 0 : -1;
out:
    free(back);
    kv_free(data);
    return status;
}

int main(int argc, char **argv)
{
    unvme_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.queue_depth = 64;
    options.poll = true;
    uint64_t device;
    int result = unvme_open(argc > 1 ? argv[1] : "mem:block:64M", LBA_TYPE_SSD, &options, &device);
    if (result != KV_SUCCESS) {
        failed("open", result);
        return EXIT_FAILURE;
    }
    int status = work(device);
    result = unvme_close(device);
    if (result != KV_SUCCESS)
        status = failed("close", result);
    return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

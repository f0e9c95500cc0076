/*
 * Finds all keys that begin with four given bytes, in two ways: with an iterator of the device, and by
 * listing.
 *
 *     cc -std=gnu11 iterate.c -o iterate $(pkg-config --cflags --libs unvme)
 *     ./iterate [device]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv_apis.h"
#include "unvme.h"

enum { USERS = 5, OTHERS = 3 };

static int failed(const char *what, int result)
{
    fprintf(stderr, "%s: %s: %s\n", what, unvme_result_name(result), unvme_last_error());
    return -1;
}

static int store(uint64_t device, const char *prefix, int number)
{
    char key[16], value[32];
    int key_length = snprintf(key, sizeof key, "%s:%d", prefix, number);
    int value_length = snprintf(value, sizeof value, "value of %s", key);
    kv_pair pair;
    memset(&pair, 0, sizeof pair);
    pair.key.key = key;
    pair.key.length = (uint16_t)key_length;
    pair.value.value = value;
    pair.value.length = (uint32_t)value_length;
    int result = kv_store(device, &pair);
    return result == KV_SUCCESS ? 0 : failed("store", result);
}

static uint32_t word(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/*
 * Prints the keys in a buffer of an iterator; returns their number, or -1 when the buffer is not what it
 * should be.
 */
static int print_keys(const unsigned char *buffer, uint32_t bytes)
{
    if (bytes < KV_ITERATE_READ_BUFFER_OFFSET)
        return 0;
    uint32_t keys = word(buffer), at = KV_ITERATE_READ_BUFFER_OFFSET;
    for (uint32_t i = 0; i < keys; i++) {
        if (bytes - at < 4 || word(buffer + at) > bytes - at - 4)
            return -1;
        uint32_t length = word(buffer + at);
        printf("  %.*s\n", (int)length, (const char *)buffer + at + 4);
        at += 4 + (length + 3) / 4 * 4;
        if (at > bytes)
            return -1;
    }
    return (int)keys;
}

/* Keys whose first four bytes are those of prefix. */
static int iterate(uint64_t device, const char *prefix)
{
    /* The first byte of a key is the most significant one of the number. */
    const unsigned char *p = (const unsigned char *)prefix;
    uint32_t number = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    uint8_t id;
    int result = unvme_iterate_open(device, KV_KEYSPACE_IODATA, 0xffffffff, number, KV_KEY_ITERATE, &id);
    if (result != KV_SUCCESS)
        return failed("open an iterator", result);

    int found = 0;
    unsigned char *buffer = (unsigned char *)malloc(KV_ITERATE_READ_BUFFER_SIZE);
    do {
        if (buffer == NULL) {
            found = -1;
            break;
        }
        kv_iterate read;
        memset(&read, 0, sizeof read);
        read.iterator = id;
        read.kv.value.value = buffer;
        read.kv.value.length = KV_ITERATE_READ_BUFFER_SIZE;
        result = kv_iterate_read(device, &read);
        if (result != KV_SUCCESS && result != KV_ERR_ITERATE_READ_EOF) {
            found = failed("read an iterator", result);
            break;
        }
        /* The end may bring the last keys. */
        int keys = print_keys(buffer, read.kv.value.length);
        found = keys < 0 ? -1 : found + keys;
    } while (result == KV_SUCCESS && found >= 0);
    free(buffer);
    result = kv_iterate_close(device, id);
    return result == KV_SUCCESS ? found : failed("close an iterator", result);
}

static bool print_key(void *arg, const void *key, size_t length)
{
    int *found = (int *)arg;
    printf("  %.*s\n", (int)length, (const char *)key);
    ++*found;
    return true;
}

static int find_users(uint64_t device)
{
    for (int i = 0; i < USERS; i++)
        if (store(device, "user", i) != 0)
            return -1;
    for (int i = 0; i < OTHERS; i++)
        if (store(device, "item", i) != 0)
            return -1;

    puts("by an iterator:");
    if (iterate(device, "user") != USERS) {
        fprintf(stderr, "not all keys were found\n");
        return -1;
    }
    puts("by a list:");
    int found = 0;
    int result = unvme_list(device, KV_KEYSPACE_IODATA, "user:", 5, print_key, &found);
    if (result != KV_SUCCESS)
        return failed("list", result);
    return found == USERS ? 0 : -1;
}

int main(int argc, char **argv)
{
    uint64_t device;
    int result = unvme_open(argc > 1 ? argv[1] : "mem:kv:64M", KV_TYPE_SSD, NULL, &device);
    if (result != KV_SUCCESS) {
        failed("open", result);
        return EXIT_FAILURE;
    }
    int status = find_users(device);
    result = unvme_close(device);
    if (result != KV_SUCCESS)
        status = failed("close", result);
    return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

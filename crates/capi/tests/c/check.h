/*
 * What the test programs share: expectations, and pairs with memory. Each program runs all its tests, and
 * says which failed.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv_apis.h"
#include "unvme.h"

static int check_failures;

/* Two numbers that must be equal. Both are evaluated once. */
#define EQUAL(actual, expected)                                                                                   \
    do {                                                                                                          \
        unsigned long long check_a = (unsigned long long)(actual), check_e = (unsigned long long)(expected);      \
        if (check_a != check_e) {                                                                                 \
            fprintf(stderr, "%s:%d: %s is %#llx, expected %#llx (last error: %s)\n", __FILE__, __LINE__, #actual, \
                    check_a, check_e, unvme_last_error());                                                        \
            check_failures++;                                                                                     \
        }                                                                                                         \
    } while (0)

#define TRUE(condition)                                                                                       \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition, unvme_last_error()); \
            check_failures++;                                                                                 \
        }                                                                                                     \
    } while (0)

/* Without this the rest of the program makes no sense. */
#define REQUIRE(condition)            \
    do {                              \
        int check_before = check_failures; \
        TRUE(condition);              \
        if (check_failures != check_before) \
            exit(1);                  \
    } while (0)

#define RUN(test)                                                              \
    do {                                                                       \
        int run_before = check_failures;                                       \
        test;                                                                  \
        printf("%s: %s\n", check_failures == run_before ? "ok" : "FAILED", #test); \
        fflush(stdout);                                                        \
    } while (0)

static inline int check_summary(void)
{
    return check_failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* A pair of this key and a value of so many bytes, all equal; it belongs to whoever asks for the next one. */
static inline kv_pair *pair_of(const char *key, uint32_t bytes, char fill)
{
    static kv_pair pair;
    static char name[256];
    static char *value;
    size_t length = strlen(key);
    free(value);
    value = malloc(bytes + 1);
    REQUIRE(value != NULL && length < sizeof name);
    memcpy(name, key, length + 1);
    memset(value, fill, bytes + 1);
    memset(&pair, 0, sizeof pair);
    pair.key.key = name;
    pair.key.length = (uint16_t)length;
    pair.value.value = value;
    pair.value.length = bytes;
    return &pair;
}

/* Whether so many bytes are all equal to fill. */
static inline int all_are(const void *bytes, size_t count, char fill)
{
    const char *c = bytes;
    for (size_t i = 0; i < count; i++)
        if (c[i] != fill)
            return 0;
    return 1;
}

/* Initialises the SDK with one device, placed automatically; its handle. */
static inline uint64_t sdk_with(const char *name, int ssd_type, int cache)
{
    static kv_sdk options;
    memset(&options, 0, sizeof options);
    strcpy(options.dev_id[0], name);
    options.ssd_type = ssd_type;
    options.use_cache = cache;
    options.slab_size = 64 << 20;
    REQUIRE(kv_sdk_init(KV_SDK_INIT_FROM_STR, &options) == KV_SUCCESS);
    return options.dev_handle[0];
}

#endif /* CHECK_H */

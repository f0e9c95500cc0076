// The C library as a peer: `capi DEVICE CORE PAIRS VALUE_BYTES` stores all pairs, then reads commands from
// standard input and answers each with operations per second.
//
//   retrieve MILLIS  kv_retrieve of pairs at random for that long
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv_apis.h"
#include "pairs.h"

static void check(int result, const char *what) {
    if (result != KV_SUCCESS) {
        fprintf(stderr, "capi: %s: 0x%x\n", what, result);
        exit(1);
    }
}

static kv_pair pair_of(char key[KEY_BYTES], uint64_t id, char *value, uint32_t value_bytes) {
    kv_pair pair;
    memset(&pair, 0, sizeof pair);
    make_key(key, id);
    pair.key.key = key;
    pair.key.length = KEY_BYTES;
    pair.value.value = value;
    pair.value.length = value_bytes;
    return pair;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: capi DEVICE CORE PAIRS VALUE_BYTES\n");
        return 2;
    }
    uint64_t pairs = strtoull(argv[3], NULL, 10);
    uint32_t value_bytes = strtoul(argv[4], NULL, 10);
    char *value = malloc(value_bytes), key[KEY_BYTES], line[64];
    static kv_sdk sdk;
    if (!value || value_bytes < sizeof(uint64_t) || pairs == 0)
        return 2;
    memset(value, 'v', value_bytes);
    sdk.ssd_type = KV_TYPE_SSD;
    sdk.slab_size = 64ull << 20;
    sdk.slab_alloc_policy = SLAB_MM_ALLOC_POSIX;
    sdk.nr_ssd = 1;
    snprintf(sdk.dev_id[0], sizeof sdk.dev_id[0], "%s", argv[1]);
    sdk.dd_options[0].core_mask = sdk.dd_options[0].sync_mask = 1ull << strtoul(argv[2], NULL, 10);
    sdk.dd_options[0].queue_depth = 64;
    check(kv_sdk_init(KV_SDK_INIT_FROM_STR, &sdk), "kv_sdk_init");
    uint64_t device = sdk.dev_handle[0];
    for (uint64_t index = 0; index < pairs; index++) {
        uint64_t id = shuffled(index, pairs);
        memcpy(value, &id, sizeof id);
        kv_pair pair = pair_of(key, id, value, value_bytes);
        check(kv_store(device, &pair), "kv_store");
    }
    struct random random = {88172645463325252ull};
    while (fgets(line, sizeof line, stdin)) {
        double limit = strncmp(line, "retrieve ", 9) == 0 ? atof(line + 9) / 1e3 : 0, elapsed;
        if (limit <= 0) {
            fprintf(stderr, "capi: what is `%s`?\n", line);
            return 2;
        }
        uint64_t done = 0;
        double start = seconds();
        do {
            for (int i = 0; i < 1024; i++) {
                uint64_t id = below(&random, pairs);
                kv_pair pair = pair_of(key, id, value, value_bytes);
                check(kv_retrieve(device, &pair), "kv_retrieve");
                if (pair.value.length != value_bytes || memcmp(value, &id, sizeof id) != 0) {
                    fprintf(stderr, "capi: pair %" PRIu64 " is not what was stored\n", id);
                    return 1;
                }
            }
            done += 1024;
            elapsed = seconds() - start;
        } while (elapsed < limit);
        printf("%.1f\n", (double)done / elapsed);
        fflush(stdout);
    }
    free(value);
    return kv_sdk_finalize();
}

/*
 * A device that goes away while operations are in flight: every one of them ends with an error, nothing
 * hangs, and the SDK can be finalized. The device is one that another process serves; the first argument is
 * its name. This program says "ready" when operations are in flight, and the device is unplugged then.
 */
#include <stdatomic.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"
#include "kvnvme.h"

enum { PAIRS = 32, PATIENCE_SECONDS = 60 };

static uint64_t device;
static atomic_int submitted, finished, failed;
static atomic_bool stop;
static char value[4096];

static void on_done(kv_pair *pair, unsigned result, unsigned status)
{
    (void)result;
    if (status != KV_SUCCESS) {
        EQUAL(status, KV_ERR_IO);
        atomic_fetch_add(&failed, 1);
    } else if (!atomic_load(&stop)) {
        pair->value.length = sizeof value;
        atomic_fetch_add(&submitted, 1);
        if (kv_store_async(device, pair) != KV_SUCCESS) {
            atomic_fetch_sub(&submitted, 1);
            atomic_fetch_add(&failed, 1);
        }
    }
    atomic_fetch_add(&finished, 1);
}

static double now(void)
{
    struct timeval time;
    gettimeofday(&time, NULL);
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 1);
    unvme_options options = { .size = sizeof options, .command_ms = 2000 };
    REQUIRE(unvme_open(argv[1], KV_TYPE_SSD, &options, &device) == KV_SUCCESS);
    static kv_pair pairs[PAIRS];
    static char keys[PAIRS][16];
    for (int i = 0; i < PAIRS; i++) {
        snprintf(keys[i], sizeof keys[i], "removal%08d", i);
        pairs[i] = (kv_pair){ .key = { keys[i], 15 }, .value = { .value = value, .length = sizeof value } };
        pairs[i].param.async_cb = on_done;
        atomic_fetch_add(&submitted, 1);
        REQUIRE(kv_store_async(device, &pairs[i]) == KV_SUCCESS);
    }
    puts("ready");
    fflush(stdout);
    double start = now();
    while (atomic_load(&failed) == 0 && now() - start < PATIENCE_SECONDS)
        usleep(1000);
    TRUE(atomic_load(&failed) > 0);
    atomic_store(&stop, true);
    while (atomic_load(&finished) < atomic_load(&submitted) && now() - start < PATIENCE_SECONDS)
        usleep(1000);
    EQUAL(atomic_load(&finished), atomic_load(&submitted));

    kv_pair *pair = pair_of("after it is gone", 64, 'x');
    start = now();
    TRUE(kv_store(device, pair) != KV_SUCCESS);
    TRUE(strlen(unvme_last_error()) > 0);
    TRUE(kv_get_used_size(device) == KV_ERR_INVALID_VALUE);
    unvme_close(device);
    TRUE(now() - start < PATIENCE_SECONDS);
    EQUAL(kv_store(device, pair), KV_ERR_SDK_INVALID_PARAM);
    return check_summary();
}

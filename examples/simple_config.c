/*
 * Initialises the SDK from a configuration file and shows what it has made of it. Without a file it writes
 * the shortest one there is, which names a device and leaves everything else to the SDK.
 *
 *     cc -std=gnu11 simple_config.c -o simple_config $(pkg-config --cflags --libs unvme)
 *     ./simple_config [file]
 */
/* mkstemp(), also where the compiler was told to be a standard one. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kv_apis.h"
#include "unvme.h"

static const char simplest[] =
    "// Queues and threads are chosen: only the device is named.\n"
    "{ \"ssd_type\": \"kv\", \"device_description\": { \"dev_id\": \"mem:kv:64M\" } }\n";

static int failed(const char *what, int result)
{
    fprintf(stderr, "%s: %s: %s\n", what, unvme_result_name(result), unvme_last_error());
    return -1;
}

static int show_device(uint64_t device)
{
    uint64_t bytes = kv_get_total_size(device);
    uint64_t used = kv_get_used_size(device);
    uint64_t waf = kv_get_waf(device);
    if (bytes == KV_ERR_INVALID_VALUE || used == KV_ERR_INVALID_VALUE)
        return failed("ask for its size", KV_ERR_IO);
    printf("device %d: %llu MB, %.2f %% used", kv_get_dev_idx_on_handle(device), (unsigned long long)bytes >> 20,
           (double)used / 100);
    if (waf != KV_ERR_INVALID_VALUE)
        printf(", write amplification %.1f", (double)waf / 10);
    putchar('\n');

    int cpus = 0, cpu[MAX_CPU_CORES];
    int result = kv_get_cpus_on_device(device, &cpus, cpu);
    if (result != KV_SUCCESS)
        return failed("ask for its CPUs", result);
    for (int i = 0; i < cpus; i++)
        printf("  CPU %d: %s queue\n", cpu[i], kv_io_queue_type(device, cpu[i]) == 1 ? "synchronous" : "asynchronous");
    return 0;
}

static int show(char *path)
{
    int result = kv_sdk_init(KV_SDK_INIT_FROM_JSON, path);
    if (result != KV_SUCCESS)
        return failed("initialise", result);
    int devices = 0, status = 0;
    uint64_t device[NR_MAX_SSD];
    result = kv_get_device_handles(&devices, device);
    if (result != KV_SUCCESS)
        status = failed("ask for the devices", result);
    for (int i = 0; i < devices; i++)
        if (show_device(device[i]) != 0)
            status = -1;
    result = kv_sdk_finalize();
    if (result != KV_SUCCESS)
        status = failed("finalize", result);
    return status;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return show(argv[1]) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;

    char path[] = "/tmp/unvme-example-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) {
        perror(path);
        return EXIT_FAILURE;
    }
    int status = -1;
    if (write(fd, simplest, sizeof simplest - 1) == (ssize_t)sizeof simplest - 1)
        status = show(path);
    else
        perror(path);
    close(fd);
    unlink(path);
    return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Flexible Data Placement through unvme.h: on a device that has it, and on one that has not. */
#include <stdatomic.h>

#include "check.h"

enum { BLOCK = 4096, HANDLES = 8 };

static uint64_t device;

static void the_handles_of_the_device_are_listed(void)
{
    unvme_fdp_handle handles[HANDLES + 1];
    memset(handles, 0xee, sizeof handles);
    size_t count = 0;
    EQUAL(unvme_fdp_status(device, handles, HANDLES, &count), KV_SUCCESS);
    EQUAL(count, HANDLES);
    for (unsigned i = 0; i < HANDLES; i++) {
        EQUAL(handles[i].placement, i);
        EQUAL(handles[i].ruhid, i);
        TRUE(handles[i].blocks_left > 0);
    }
    EQUAL(handles[HANDLES].placement, 0xeeee);
    memset(handles, 0xee, sizeof handles);
    EQUAL(unvme_fdp_status(device, handles, 1, &count), KV_SUCCESS);
    EQUAL(count, HANDLES);
    EQUAL(handles[1].placement, 0xeeee);
    count = 0;
    EQUAL(unvme_fdp_status(device, NULL, 0, &count), KV_SUCCESS);
    EQUAL(count, HANDLES);
    EQUAL(unvme_fdp_status(device, NULL, 1, &count), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_fdp_status(device, handles, 1, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_fdp_status(7, handles, 1, &count), KV_ERR_SDK_INVALID_PARAM);
}

static uint64_t blocks_left(unsigned placement)
{
    unvme_fdp_handle handles[HANDLES] = { 0 };
    size_t count;
    EQUAL(unvme_fdp_status(device, handles, HANDLES, &count), KV_SUCCESS);
    return handles[placement].blocks_left;
}

static void note(void *arg, int result)
{
    atomic_store((atomic_int *)arg, result);
}

static void a_write_fills_the_reclaim_unit_of_its_placement(void)
{
    static char data[3 * BLOCK], back[3 * BLOCK];
    memset(data, 'p', sizeof data);
    uint64_t first = blocks_left(1), second = blocks_left(2);
    unvme_fdp_stats before, after;
    EQUAL(unvme_fdp_stats_get(device, &before), KV_SUCCESS);
    EQUAL(unvme_write_placed(device, 8, 3, data, 2), KV_SUCCESS);
    EQUAL(blocks_left(1), first);
    EQUAL(blocks_left(2), second - 3);
    EQUAL(unvme_read(device, 8, 3, back), KV_SUCCESS);
    TRUE(memcmp(data, back, sizeof data) == 0);

    atomic_int result = -1;
    EQUAL(unvme_write_placed_async(device, 16, 1, data, 1, note, &result), KV_SUCCESS);
    while (atomic_load(&result) == -1)
        ;
    EQUAL(atomic_load(&result), KV_SUCCESS);
    EQUAL(blocks_left(1), first - 1);

    EQUAL(unvme_fdp_stats_get(device, &after), KV_SUCCESS);
    EQUAL(after.host_bytes - before.host_bytes, 4 * BLOCK);
    TRUE(after.media_bytes - before.media_bytes >= 4 * BLOCK);
    EQUAL(unvme_fdp_stats_get(device, NULL), KV_ERR_SDK_INVALID_PARAM);
}

static void an_update_starts_an_empty_reclaim_unit(void)
{
    static char data[BLOCK];
    uint64_t empty = blocks_left(3);
    EQUAL(unvme_write_placed(device, 24, 1, data, 3), KV_SUCCESS);
    EQUAL(blocks_left(3), empty - 1);
    uint16_t list[] = { 3 };
    EQUAL(unvme_fdp_update(device, list, 1), KV_SUCCESS);
    EQUAL(blocks_left(3), empty);
    EQUAL(unvme_fdp_update(device, list, 0), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_fdp_update(device, NULL, 1), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_fdp_update(device, list, 65537), KV_ERR_SDK_INVALID_PARAM);
}

static void a_placement_the_device_has_not_is_refused_with_those_it_has(void)
{
    static char data[BLOCK];
    EQUAL(unvme_write_placed(device, 0, 1, data, HANDLES), KV_ERR_DD_INVALID_PARAM);
    TRUE(strstr(unvme_last_error(), "the namespace has 8: 0 to 7") != NULL);
    EQUAL(unvme_last_status(), 0);
    atomic_int result = -1;
    EQUAL(unvme_write_placed_async(device, 0, 1, data, 0xffff, note, &result), KV_ERR_DD_INVALID_PARAM);
    EQUAL(atomic_load(&result), -1);
    uint16_t list[] = { 0, HANDLES };
    EQUAL(unvme_fdp_update(device, list, 2), KV_ERR_DD_INVALID_PARAM);
    EQUAL(unvme_write_placed(device, 0, 1, NULL, 0), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_write_placed_async(device, 0, 1, data, 0, NULL, NULL), KV_ERR_SDK_INVALID_PARAM);
}

static void a_device_without_placement_says_so(void)
{
    static char data[BLOCK];
    uint64_t other;
    REQUIRE(unvme_open("mem:block:16M,block=4096", LBA_TYPE_SSD, NULL, &other) == KV_SUCCESS);
    size_t count = 7;
    EQUAL(unvme_fdp_status(other, NULL, 0, &count), KV_ERR_IO);
    TRUE(unvme_last_status() != 0);
    EQUAL(count, 7);
    EQUAL(unvme_write_placed(other, 0, 1, data, 0), KV_ERR_IO);
    unvme_fdp_stats stats;
    EQUAL(unvme_fdp_stats_get(other, &stats), KV_ERR_DD_UNSUPPORTED_CMD);
    TRUE(strstr(unvme_last_error(), "no Flexible Data Placement") != NULL);
    EQUAL(unvme_close(other), KV_SUCCESS);
    REQUIRE(unvme_open("mem:kv:16M", KV_TYPE_SSD, NULL, &other) == KV_SUCCESS);
    TRUE(unvme_fdp_status(other, NULL, 0, &count) != KV_SUCCESS);
    TRUE(unvme_write_placed(other, 0, 1, data, 0) != KV_SUCCESS);
    EQUAL(unvme_close(other), KV_SUCCESS);
}

int main(void)
{
    REQUIRE(unvme_open("mem:block:64M,block=4096,fdp", LBA_TYPE_SSD, NULL, &device) == KV_SUCCESS);
    RUN(the_handles_of_the_device_are_listed());
    RUN(a_write_fills_the_reclaim_unit_of_its_placement());
    RUN(an_update_starts_an_empty_reclaim_unit());
    RUN(a_placement_the_device_has_not_is_refused_with_those_it_has());
    RUN(a_device_without_placement_says_so());
    EQUAL(unvme_close(device), KV_SUCCESS);
    return check_summary();
}

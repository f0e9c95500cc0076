/*
 * Block devices through the functions for pairs: the key is the first block. The first argument says whether
 * there is a cache, which must make no difference.
 */
#include <stdatomic.h>

#include "check.h"
#include "kvnvme.h"

enum { BLOCK = 512 };

static uint64_t device;
static atomic_int finished;
static unsigned last_type, last_code;

static void note(kv_pair *pair, unsigned type, unsigned code)
{
    (void)pair;
    last_type = type;
    last_code = code;
    atomic_fetch_add(&finished, 1);
}

/* The pair that stands for so many bytes of blocks from lba on. */
static kv_pair *blocks(uint64_t lba, uint32_t bytes, char fill)
{
    static uint64_t key;
    kv_pair *pair = pair_of("12345678", bytes, fill);
    key = lba;
    pair->key.key = &key;
    pair->key.length = sizeof key;
    pair->param.async_cb = note;
    return pair;
}

static int finish(int submitted)
{
    if (submitted == KV_SUCCESS)
        while (atomic_exchange(&finished, 0) == 0)
            kv_process_completion(device);
    return submitted;
}

static void blocks_come_back(void)
{
    EQUAL(kv_store(device, blocks(8, 8 * BLOCK, 'b')), KV_SUCCESS);
    kv_pair *pair = blocks(8, 8 * BLOCK, 0);
    EQUAL(kv_retrieve(device, pair), KV_SUCCESS);
    EQUAL(pair->value.length, 8 * BLOCK);
    TRUE(all_are(pair->value.value, 8 * BLOCK, 'b'));

    EQUAL(finish(kv_store_async(device, blocks(100, 4 * BLOCK, 'c'))), KV_SUCCESS);
    EQUAL(last_type << 8 | last_code, 0);
    pair = blocks(100, 4 * BLOCK, 0);
    EQUAL(finish(kv_retrieve_async(device, pair)), KV_SUCCESS);
    EQUAL(last_type << 8 | last_code, 0);
    EQUAL(pair->value.length, 4 * BLOCK);
    TRUE(all_are(pair->value.value, 4 * BLOCK, 'c'));
}

static void defect_07_exist_and_iterators_are_errors_on_a_block_device(void)
{
    EQUAL(kv_exist(device, blocks(0, BLOCK, 0)), KV_ERR_DD_UNSUPPORTED_CMD);
    EQUAL(kv_exist_async(device, blocks(0, BLOCK, 0)), KV_ERR_DD_UNSUPPORTED_CMD);
    EQUAL(kv_iterate_open(device, 0, 0xffffffff, 0, KV_KEY_ITERATE), KV_ERR_DD_UNSUPPORTED_CMD);
    EQUAL(kv_iterate_close(device, 1), KV_ERR_DD_UNSUPPORTED_CMD);
    static char buffer[KV_ITERATE_READ_BUFFER_SIZE];
    kv_iterate it = { .iterator = 1 };
    it.kv.value.value = buffer;
    it.kv.value.length = sizeof buffer;
    EQUAL(kv_iterate_read(device, &it), KV_ERR_DD_UNSUPPORTED_CMD);
    EQUAL(kv_iterate_read_async(device, &it), KV_ERR_DD_UNSUPPORTED_CMD);
    kv_iterate_handle_info info;
    EQUAL(kv_iterate_info(device, &info, 1), KV_ERR_DD_UNSUPPORTED_CMD);
    uint64_t size;
    EQUAL(unvme_value_size(device, 0, "12345678", 8, &size), KV_ERR_DD_UNSUPPORTED_CMD);
    EQUAL(unvme_append(device, 0, "12345678", 8, "x", 1), KV_ERR_DD_UNSUPPORTED_CMD);
}

static void defect_07_a_length_that_is_no_number_of_blocks_is_an_error(void)
{
    static const uint32_t wrong[] = { 1, 511, 513, 4095 };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        EQUAL(kv_store(device, blocks(0, wrong[i], 0)), KV_ERR_MISALIGNED_VALUE_SIZE);
        EQUAL(kv_retrieve(device, blocks(0, wrong[i], 0)), KV_ERR_MISALIGNED_VALUE_SIZE);
        EQUAL(kv_delete(device, blocks(0, wrong[i], 0)), KV_ERR_MISALIGNED_VALUE_SIZE);
        EQUAL(kv_store_async(device, blocks(0, wrong[i], 0)), KV_ERR_MISALIGNED_VALUE_SIZE);
        EQUAL(kv_retrieve_async(device, blocks(0, wrong[i], 0)), KV_ERR_MISALIGNED_VALUE_SIZE);
        EQUAL(kv_delete_async(device, blocks(0, wrong[i], 0)), KV_ERR_MISALIGNED_VALUE_SIZE);
    }
    EQUAL(kv_store(device, blocks(0, 2 * 1024 * 1024 + BLOCK, 0)), KV_ERR_INVALID_VALUE_SIZE);
}

static void defect_07_both_kinds_of_delete_take_bytes(void)
{
    for (int kind = 0; kind < 2; kind++) {
        EQUAL(kv_store(device, blocks(200, 16 * BLOCK, 'd')), KV_SUCCESS);
        if (kind == 0)
            EQUAL(kv_delete(device, blocks(204, 4 * BLOCK, 0)), KV_SUCCESS);
        else
            EQUAL(finish(kv_delete_async(device, blocks(204, 4 * BLOCK, 0))), KV_SUCCESS);
        kv_pair *pair = blocks(200, 16 * BLOCK, 'x');
        EQUAL(kv_retrieve(device, pair), KV_SUCCESS);
        const char *data = pair->value.value;
        TRUE(all_are(data, 4 * BLOCK, 'd'));
        TRUE(all_are(data + 4 * BLOCK, 4 * BLOCK, 0));
        TRUE(all_are(data + 8 * BLOCK, 8 * BLOCK, 'd'));
    }
}

static void defect_07_an_offset_is_bytes_of_the_buffer(void)
{
    kv_pair *pair = blocks(300, 2 * BLOCK, 'o');
    memset(pair->value.value, '-', BLOCK);
    pair->value.length = BLOCK;
    pair->value.offset = BLOCK;
    EQUAL(kv_store(device, pair), KV_SUCCESS);
    pair = blocks(300, 2 * BLOCK, '-');
    pair->value.length = BLOCK;
    pair->value.offset = BLOCK;
    EQUAL(kv_retrieve(device, pair), KV_SUCCESS);
    TRUE(all_are(pair->value.value, BLOCK, '-'));
    TRUE(all_are((char *)pair->value.value + BLOCK, BLOCK, 'o'));
    pair = blocks(300, 2 * BLOCK, '-');
    pair->value.length = BLOCK;
    pair->value.offset = BLOCK;
    EQUAL(finish(kv_retrieve_async(device, pair)), KV_SUCCESS);
    TRUE(all_are(pair->value.value, BLOCK, '-'));
    TRUE(all_are((char *)pair->value.value + BLOCK, BLOCK, 'o'));
}

static void defect_05_an_address_beyond_the_end_is_no_key_value_result(void)
{
    uint64_t end = kv_get_num_sectors(device);
    EQUAL(kv_store(device, blocks(end, BLOCK, 0)), KV_ERR_IO);
    EQUAL(unvme_last_status(), 0x80);
    EQUAL(kv_retrieve(device, blocks(end - 1, 2 * BLOCK, 0)), KV_ERR_IO);
    EQUAL(unvme_last_status(), 0x80);
    TRUE(strstr(unvme_last_error(), "LBA Out of Range") != NULL);
    EQUAL(kv_retrieve(device, blocks(UINT64_MAX, BLOCK, 0)), KV_ERR_IO);
    EQUAL(kv_retrieve_async(device, blocks(end, BLOCK, 0)), KV_ERR_IO);
    EQUAL(kv_retrieve(device, blocks(end - 1, BLOCK, 0)), KV_SUCCESS);
    EQUAL(unvme_last_status(), 0);
    TRUE(strcmp(unvme_last_error(), "") == 0);
}

static void sizes_are_bytes(void)
{
    EQUAL(kv_get_sector_size(device), BLOCK);
    EQUAL(kv_get_total_size(device), 64 << 20);
    EQUAL(kv_get_num_sectors(device), (64 << 20) / BLOCK);
    uint64_t used = kv_get_used_size(device);
    TRUE(used != KV_ERR_INVALID_VALUE && used <= 64 << 20);
}

static void defect_07_a_format_puts_what_it_erases_into_the_command(void)
{
    for (int erase = 0; erase < 2; erase++) {
        EQUAL(kv_store(device, blocks(0, BLOCK, 'f')), KV_SUCCESS);
        EQUAL(kv_format_device(device, erase), KV_SUCCESS);
        kv_pair *pair = blocks(0, BLOCK, 'x');
        EQUAL(kv_retrieve(device, pair), KV_SUCCESS);
        TRUE(all_are(pair->value.value, BLOCK, 0));
    }
}

int main(int argc, char **argv)
{
    device = sdk_with("mem:block:64M", LBA_TYPE_SSD, argc > 1 && strcmp(argv[1], "cache") == 0);
    RUN(blocks_come_back());
    RUN(defect_07_exist_and_iterators_are_errors_on_a_block_device());
    RUN(defect_07_a_length_that_is_no_number_of_blocks_is_an_error());
    RUN(defect_07_both_kinds_of_delete_take_bytes());
    RUN(defect_07_an_offset_is_bytes_of_the_buffer());
    RUN(defect_05_an_address_beyond_the_end_is_no_key_value_result());
    RUN(sizes_are_bytes());
    RUN(defect_07_a_format_puts_what_it_erases_into_the_command());
    EQUAL(kv_sdk_finalize(), KV_SUCCESS);
    return check_summary();
}

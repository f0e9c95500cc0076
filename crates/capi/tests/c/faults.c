/* Faults by script: unvme_fault_add(), unvme_fault_list(), unvme_fault_clear(). */
#include <stddef.h>

#include "check.h"
#include "kvnvme.h"

static uint64_t blocks;

static void the_third_write_to_a_range_fails(void)
{
    static unsigned char block[4096];
    char list[4096];
    size_t length = 0;
    uint32_t first = 0;
    const char *rule = "{\"match\": {\"opcode\": \"write\", \"lba\": \"100-200\", \"after\": 2, \"count\": 1},"
                       " \"act\": {\"status\": \"0x281\", \"dnr\": true}}";
    EQUAL(unvme_fault_add(blocks, rule, &first), KV_SUCCESS);
    EQUAL(first, 1);
    EQUAL(unvme_write(blocks, 100, 1, block), KV_SUCCESS);
    EQUAL(unvme_write(blocks, 200, 1, block), KV_SUCCESS);
    EQUAL(unvme_write(blocks, 201, 1, block), KV_SUCCESS);
    TRUE(unvme_write(blocks, 150, 1, block) != KV_SUCCESS);
    EQUAL(unvme_last_status() & 0x7ff, 0x281);
    EQUAL(unvme_write(blocks, 150, 1, block), KV_SUCCESS);
    EQUAL(unvme_fault_list(blocks, list, sizeof list, &length), KV_SUCCESS);
    EQUAL(strlen(list), length);
    TRUE(strstr(list, "\"hits\":1") != NULL);
    EQUAL(unvme_fault_list(blocks, list, 2, &length), KV_SUCCESS);
    TRUE(strcmp(list, "[") == 0 && length > 2);
    EQUAL(unvme_fault_list(blocks, NULL, 0, &length), KV_SUCCESS);
    EQUAL(unvme_fault_clear(blocks, first), KV_SUCCESS);
    EQUAL(unvme_fault_clear(blocks, first), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_fault_clear(blocks, 0), KV_SUCCESS);
    EQUAL(unvme_fault_list(blocks, list, sizeof list, &length), KV_SUCCESS);
    TRUE(strcmp(list, "[]") == 0);
}

static void corrupt_data_is_seen(void)
{
    static unsigned char block[4096], read[4096];
    const char *rule = "[{\"match\": {\"opcode\": \"read\", \"count\": 1},"
                       "  \"act\": {\"corrupt\": {\"data\": \"read\", \"offset\": 7, \"xor\": \"80\"}}}]";
    memset(block, 0x11, sizeof block);
    EQUAL(unvme_write(blocks, 0, 1, block), KV_SUCCESS);
    EQUAL(unvme_fault_add(blocks, rule, NULL), KV_SUCCESS);
    EQUAL(unvme_read(blocks, 0, 1, read), KV_SUCCESS);
    EQUAL(read[7], 0x91);
    EQUAL(unvme_read(blocks, 0, 1, read), KV_SUCCESS);
    EQUAL(read[7], 0x11);
    EQUAL(unvme_fault_clear(blocks, 0), KV_SUCCESS);
}

static void what_is_wrong_is_said(void)
{
    size_t length = 0;
    EQUAL(unvme_fault_add(blocks, "{\"act\": {\"dropp\": true}}", NULL), KV_ERR_SDK_INVALID_PARAM);
    TRUE(strstr(unvme_last_error(), "`dropp` is not known here") != NULL);
    TRUE(strstr(unvme_last_error(), "line 1, column 16") != NULL);
    EQUAL(unvme_fault_add(blocks, "", NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_fault_add(blocks, NULL, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_fault_add(7, "[]", NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_fault_list(blocks, NULL, 9, &length), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_fault_list(blocks, NULL, 0, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_fault_clear(7, 0), KV_ERR_SDK_INVALID_PARAM);
}

static void a_name_may_be_long_and_has_options(void)
{
    uint64_t flash = 0;
    static unsigned char block[4096];
    const char *rule = "{\"match\": {\"program\": 3}, \"act\": {\"power_cut\": true}}";
    const char *name = "mem:block:16M,block=4096,ftl=page,op=28%,ru=256K,handles=2";
    unvme_options options = {.size = sizeof options, .command_ms = 300};
    char longer[300];
    TRUE(strlen(name) > 31);
    REQUIRE(unvme_open(name, LBA_TYPE_SSD, &options, &flash) == KV_SUCCESS);
    EQUAL(unvme_fault_add(flash, rule, NULL), KV_SUCCESS);
    EQUAL(unvme_write(flash, 0, 1, block), KV_SUCCESS);
    EQUAL(unvme_write(flash, 1, 1, block), KV_SUCCESS);
    TRUE(unvme_write(flash, 2, 1, block) != KV_SUCCESS);
    TRUE(unvme_write(flash, 3, 1, block) != KV_SUCCESS);
    unvme_close(flash);
    memset(longer, 'x', sizeof longer);
    longer[256] = 0;
    EQUAL(unvme_open(longer, LBA_TYPE_SSD, NULL, &flash), KV_ERR_SDK_OPEN);
    TRUE(strstr(unvme_last_error(), "1 to 255 bytes") != NULL);
}

int main(void)
{
    REQUIRE(unvme_open("mem:block:16M,block=4096", LBA_TYPE_SSD, NULL, &blocks) == KV_SUCCESS);
    RUN(the_third_write_to_a_range_fails());
    RUN(corrupt_data_is_seen());
    RUN(what_is_wrong_is_said());
    RUN(a_name_may_be_long_and_has_options());
    EQUAL(unvme_close(blocks), KV_SUCCESS);
    return check_summary();
}

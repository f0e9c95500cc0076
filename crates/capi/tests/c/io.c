/* I/O handles of unvme.h: policies, partitions, and what is refused. */
#include "check.h"

enum { BLOCK = 512, PAGE = 4096 };

static uint64_t device;

static unvme_io *opened(uint64_t first, uint64_t count, const char *policies)
{
    unvme_io_options options = { .size = sizeof options, .first_block = first, .blocks = count };
    options.policies = policies;
    unvme_io *io = NULL;
    REQUIRE(unvme_io_open(device, &options, &io) == KV_SUCCESS);
    return io;
}

static unvme_io_info about(unvme_io *io)
{
    unvme_io_info info = { .size = sizeof info };
    REQUIRE(unvme_io_info_get(io, &info) == KV_SUCCESS);
    return info;
}

static void partitions_have_blocks_of_their_own(void)
{
    static unsigned char out[4 * PAGE], in[4 * PAGE];
    unvme_io *first = opened(0, 64, "sched=share:8"), *second = opened(64, 0, "queue=own,complete=hybrid");
    EQUAL(about(first).blocks, 64);
    EQUAL(about(second).first_block, 64);
    memset(out, 0x11, sizeof out);
    EQUAL(unvme_io_write(first, 0, sizeof out / BLOCK, out), KV_SUCCESS);
    memset(out, 0x22, sizeof out);
    EQUAL(unvme_io_write(second, 0, sizeof out / BLOCK, out), KV_SUCCESS);
    EQUAL(unvme_io_read(first, 0, sizeof in / BLOCK, in), KV_SUCCESS);
    EQUAL(in[0], 0x11);
    EQUAL(unvme_read(device, 64, sizeof in / BLOCK, in), KV_SUCCESS);
    EQUAL(in[sizeof in - 1], 0x22);
    EQUAL(unvme_io_deallocate(second, 0, 8), KV_SUCCESS);
    EQUAL(unvme_io_read(first, 60, 5, in), KV_ERR_DD_INVALID_PARAM);
    TRUE(strstr(unvme_last_error(), "it has 64 blocks") != NULL);
    /* Also when it is more than all of it. */
    EQUAL(unvme_io_read(first, 0, 65, in), KV_ERR_DD_INVALID_PARAM);
    TRUE(strstr(unvme_last_error(), "it has 64 blocks") != NULL);
    EQUAL(unvme_io_write(first, 0, UINT64_MAX, in), KV_ERR_DD_INVALID_PARAM);
    EQUAL(unvme_io_close(first), KV_SUCCESS);
    EQUAL(unvme_io_close(second), KV_SUCCESS);
}

static void what_is_written_back_is_there_after_a_flush(void)
{
    static unsigned char out[PAGE], in[PAGE];
    unvme_io *io = opened(0, 0, "cache=write-back:4M:lru");
    memset(out, 0x33, sizeof out);
    EQUAL(unvme_io_write(io, 800, sizeof out / BLOCK, out), KV_SUCCESS);
    EQUAL(about(io).dirty_bytes, PAGE);
    EQUAL(unvme_read(device, 800, 1, in), KV_SUCCESS);
    EQUAL(in[0], 0);
    EQUAL(unvme_io_flush(io), KV_SUCCESS);
    EQUAL(unvme_read(device, 800, 1, in), KV_SUCCESS);
    EQUAL(in[0], 0x33);
    EQUAL(unvme_io_read(io, 800, sizeof in / BLOCK, in), KV_SUCCESS);
    EQUAL(about(io).cache_hits, 1);
    /* Another policy, and what it is then. */
    char text[64];
    size_t length = 0;
    EQUAL(unvme_io_set(io, "cache=read:2M,limit=iops:100000"), KV_SUCCESS);
    EQUAL(unvme_io_get(io, text, sizeof text, &length), KV_SUCCESS);
    TRUE(strcmp(text, "cache=read:2M:s3fifo,limit=iops:100000") == 0);
    EQUAL(length, strlen(text));
    EQUAL(unvme_io_get(io, text, 6, NULL), KV_SUCCESS);
    TRUE(strcmp(text, "cache") == 0);
    EQUAL(unvme_io_close(io), KV_SUCCESS);
}

static void commands_are_submitted_and_polled(void)
{
    static unsigned char memory[8][BLOCK];
    unvme_io *io = opened(100, 100, NULL);
    for (unsigned i = 0; i < 8; i++) {
        memset(memory[i], (int)i + 1, BLOCK);
        unvme_command write = { .verb = UNVME_WRITE, .lba = i, .length = BLOCK, .data = memory[i], .token = i };
        EQUAL(unvme_io_submit(io, &write), KV_SUCCESS);
    }
    unvme_completion done[3];
    unsigned seen = 0;
    while (unvme_io_outstanding(io) > 0) {
        size_t count = 0;
        EQUAL(unvme_io_wait(io, 1000), KV_SUCCESS);
        EQUAL(unvme_io_poll(io, done, 3, &count), KV_SUCCESS);
        for (size_t i = 0; i < count; i++) {
            EQUAL(done[i].result, KV_SUCCESS);
            seen |= 1u << done[i].token;
        }
    }
    EQUAL(seen, 0xff);
    unvme_command read = { .verb = UNVME_READ, .lba = 2, .length = 2 * BLOCK, .data = memory[0], .token = 7 };
    EQUAL(unvme_io_submit(io, &read), KV_SUCCESS);
    size_t count = 0;
    for (; count == 0; unvme_io_poll(io, done, 3, &count)) {
        /* What has ended was not polled. */
        EQUAL(unvme_io_outstanding(io), 1);
        unvme_io_wait(io, 1000);
        EQUAL(unvme_io_outstanding(io), 1);
    }
    EQUAL(done[0].token, 7);
    EQUAL(memory[0][0], 3);
    EQUAL(memory[1][0], 4);
    unvme_command store = { .verb = UNVME_STORE, .length = BLOCK, .data = memory[0] };
    EQUAL(unvme_io_submit(io, &store), KV_ERR_SDK_INVALID_PARAM);
    read.lba = 99;
    EQUAL(unvme_io_submit(io, &read), KV_ERR_DD_INVALID_PARAM);
    read.data = NULL;
    EQUAL(unvme_io_submit(io, &read), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_io_outstanding(io), 0);
    EQUAL(unvme_io_close(io), KV_SUCCESS);
}

static size_t choose(void *arg, int verb, uint64_t lba, uint32_t blocks)
{
    unsigned *asked = arg;
    TRUE(verb == UNVME_READ && lba == 108 && blocks == 1);
    (*asked)++;
    return (size_t)lba / 64;
}

static void a_function_chooses_the_queue(void)
{
    unsigned asked = 0;
    unsigned char block[BLOCK];
    unvme_io_options options = { .size = sizeof options, .first_block = 100, .choose_queue = choose };
    options.arg = &asked;
    unvme_io *io = NULL;
    REQUIRE(unvme_io_open(device, &options, &io) == KV_SUCCESS);
    EQUAL(unvme_io_read(io, 8, 1, block), KV_SUCCESS);
    EQUAL(unvme_io_set(io, "sched=priority:3"), KV_SUCCESS);
    EQUAL(unvme_io_read(io, 8, 1, block), KV_SUCCESS);
    EQUAL(asked, 2);
    /* What is said can be set, and no other queue can. */
    char text[64];
    EQUAL(unvme_io_get(io, text, sizeof text, NULL), KV_SUCCESS);
    TRUE(strcmp(text, "sched=priority:3") == 0);
    EQUAL(unvme_io_set(io, text), KV_SUCCESS);
    EQUAL(unvme_io_set(io, NULL), KV_SUCCESS);
    EQUAL(unvme_io_set(io, "sched=fifo,queue=own"), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_io_set(io, "queue=shared"), KV_ERR_SDK_INVALID_PARAM);
    TRUE(strstr(unvme_last_error(), "`queue=shared`: a function chooses") != NULL);
    EQUAL(unvme_io_read(io, 8, 1, block), KV_SUCCESS);
    EQUAL(asked, 3);
    EQUAL(unvme_io_close(io), KV_SUCCESS);
    options.policies = "queue=own";
    EQUAL(unvme_io_open(device, &options, &io), KV_ERR_SDK_INVALID_PARAM);
}

static void what_is_wrong_is_said(void)
{
    unvme_io_options options = { .size = sizeof options, .policies = "cache=writeback" };
    unvme_io *io = NULL;
    EQUAL(unvme_io_open(device, &options, &io), KV_ERR_SDK_INVALID_PARAM);
    TRUE(strstr(unvme_last_error(), "`cache=writeback`") != NULL && strstr(unvme_last_error(), "write-back"));
    options.policies = "stream=7";
    TRUE(unvme_io_open(device, &options, &io) != KV_SUCCESS);
    options.policies = NULL;
    options.first_block = 1 << 20;
    EQUAL(unvme_io_open(device, &options, &io), KV_ERR_DD_INVALID_PARAM);
    options.first_block = 0;
    options.reserved = 1;
    EQUAL(unvme_io_open(device, &options, &io), KV_ERR_SDK_INVALID_PARAM);
    options.size = 8;
    EQUAL(unvme_io_open(device, &options, &io), KV_ERR_SDK_INVALID_PARAM);
    TRUE(io == NULL);
    EQUAL(unvme_io_open(device, NULL, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_io_close(NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_io_flush(NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_io_open(device, NULL, &io), KV_SUCCESS);
    EQUAL(unvme_io_read(io, 0, 1, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_io_set(io, "sched=share:0"), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_io_close(io), KV_SUCCESS);
    EQUAL(unvme_io_close(io), KV_ERR_SDK_INVALID_PARAM);
}

int main(void)
{
    unvme_options options = { .size = sizeof options, .poll = true };
    REQUIRE(unvme_open("mem:block:16M", LBA_TYPE_SSD, &options, &device) == KV_SUCCESS);
    EQUAL(unvme_io_window_set(device, 1 << 20), KV_SUCCESS);
    RUN(partitions_have_blocks_of_their_own());
    RUN(what_is_written_back_is_there_after_a_flush());
    RUN(commands_are_submitted_and_polled());
    RUN(a_function_chooses_the_queue());
    RUN(what_is_wrong_is_said());
    EQUAL(unvme_close(device), KV_SUCCESS);
    return check_summary();
}

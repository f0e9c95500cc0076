/* Queues of unvme.h: commands of every kind, memory of every kind, and what is refused. */
#include "check.h"

enum { BLOCK = 512, MIB = 1 << 20 };

static uint64_t blocks_device, pairs_device;
static unvme_queue *blocks, *pairs;

static uint64_t opened(const char *name, int type)
{
    uint64_t handle = 0;
    unvme_options options = { .size = sizeof options, .poll = true };
    REQUIRE(unvme_open(name, type, &options, &handle) == KV_SUCCESS);
    return handle;
}

static unvme_queue *queue_of(uint64_t handle, uint32_t depth, uint8_t commands)
{
    unvme_queue_options options = { .size = sizeof options, .depth = depth, .commands = commands };
    unvme_queue *queue = NULL;
    REQUIRE(unvme_queue_open(handle, &options, &queue) == KV_SUCCESS);
    return queue;
}

/* The next completion. */
static unvme_completion next(unvme_queue *queue)
{
    unvme_completion completion;
    memset(&completion, 0xee, sizeof completion);
    for (size_t count = 0; count == 0;) {
        REQUIRE(unvme_queue_wait(queue, 10000) == KV_SUCCESS);
        REQUIRE(unvme_queue_poll(queue, &completion, 1, &count) == KV_SUCCESS);
    }
    return completion;
}

/* Submits a command and waits for it. */
static unvme_completion done(unvme_queue *queue, unvme_command command)
{
    static uint64_t token;
    command.token = ++token;
    REQUIRE(unvme_queue_submit(queue, &command) == KV_SUCCESS);
    unvme_completion completion = next(queue);
    EQUAL(completion.token, token);
    EQUAL(unvme_queue_outstanding(queue), 0);
    return completion;
}

static unvme_command on_blocks(uint8_t verb, uint64_t lba, uint64_t length, void *data)
{
    unvme_command command = { .verb = verb, .lba = lba, .length = length, .data = data };
    return command;
}

static unvme_command on_pair(uint8_t verb, const char *key, uint64_t length, void *data)
{
    unvme_command command = { .verb = verb, .key = key, .key_length = (uint16_t)strlen(key) };
    command.length = length;
    command.data = data;
    return command;
}

static void count_up(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static void what_is_written_is_read_back(unsigned char *out, unsigned char *in, size_t bytes, uint64_t lba)
{
    static unsigned seed;
    count_up(out, bytes, ++seed);
    EQUAL(done(blocks, on_blocks(UNVME_WRITE, lba, bytes, out)).result, KV_SUCCESS);
    EQUAL(done(blocks, on_blocks(UNVME_READ, lba, bytes, in)).result, KV_SUCCESS);
    TRUE(memcmp(out, in, bytes) == 0);
}

static void any_memory_at_any_offset_and_of_any_length(void)
{
    enum { ROOM = 12 * MIB };
    unsigned char *dma = unvme_alloc(2 * ROOM, 4096), *heap = malloc(2 * ROOM);
    REQUIRE(dma != NULL && heap != NULL);
    static const size_t offsets[] = { 0, 512, 4096, 4, 8188, 1, 4095 };
    static const size_t lengths[] = { BLOCK, 4096, 3 * BLOCK, 2 * MIB, 2 * MIB + BLOCK, 9 * MIB + 3 * BLOCK };
    for (size_t o = 0; o < sizeof offsets / sizeof *offsets; o++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            unsigned char *a = dma + offsets[o], *b = dma + ROOM + offsets[o];
            what_is_written_is_read_back(a, b, lengths[l], 8 * o + l);
            what_is_written_is_read_back(heap + offsets[o], b, lengths[l], 8 * o + l);
            memset(heap, 0xee, ROOM);
            what_is_written_is_read_back(a, heap + offsets[o], lengths[l], 8 * o + l);
            EQUAL(heap[offsets[o] + lengths[l]], 0xee);
            TRUE(offsets[o] == 0 || heap[offsets[o] - 1] == 0xee);
        }
    /* Freed under a queue that knows it, and taken again. */
    unvme_free(dma);
    dma = unvme_alloc(2 * ROOM, 4096);
    REQUIRE(dma != NULL);
    what_is_written_is_read_back(dma, dma + ROOM, 4096, 0);
    /* Behind its end is other memory, or none: it is not the device's. */
    memset(heap, 0xee, ROOM);
    unvme_free(dma);
    free(heap);
}

static void every_verb_of_blocks(void)
{
    static unsigned char a[8 * BLOCK], b[8 * BLOCK];
    memset(a, 'a', sizeof a);
    EQUAL(done(blocks, on_blocks(UNVME_WRITE, 100, sizeof a, a)).result, KV_SUCCESS);
    EQUAL(done(blocks, on_blocks(UNVME_COMPARE, 100, sizeof a, a)).result, KV_SUCCESS);
    memset(b, 'b', sizeof b);
    unvme_completion differs = done(blocks, on_blocks(UNVME_COMPARE, 100, sizeof b, b));
    EQUAL(differs.result, KV_ERR_IO);
    EQUAL(differs.status & 0x7ff, 0x285);
    EQUAL(done(blocks, on_blocks(UNVME_VERIFY, 100, sizeof a, NULL)).result, KV_SUCCESS);
    EQUAL(done(blocks, on_blocks(UNVME_FLUSH, 0, 0, NULL)).result, KV_SUCCESS);
    EQUAL(done(blocks, on_blocks(UNVME_WRITE_ZEROES, 101, 2 * BLOCK, NULL)).result, KV_SUCCESS);
    EQUAL(done(blocks, on_blocks(UNVME_READ, 100, sizeof b, b)).result, KV_SUCCESS);
    TRUE(b[BLOCK - 1] == 'a' && b[BLOCK] == 0 && b[3 * BLOCK - 1] == 0 && b[3 * BLOCK] == 'a');
    EQUAL(done(blocks, on_blocks(UNVME_DEALLOCATE, 100, 8 * BLOCK, NULL)).result, KV_SUCCESS);
    EQUAL(done(blocks, on_blocks(UNVME_READ, 100, sizeof b, b)).result, KV_SUCCESS);
    TRUE(all_are(b, sizeof b, 0));
    unvme_command through = on_blocks(UNVME_WRITE, 100, sizeof a, a);
    through.flags = UNVME_FUA;
    EQUAL(done(blocks, through).result, KV_SUCCESS);
    unvme_command zeroes = on_blocks(UNVME_WRITE_ZEROES, 0, 128 * MIB, NULL);
    zeroes.flags = UNVME_DEALLOCATE_ZEROES;
    EQUAL(done(blocks, zeroes).result, KV_SUCCESS);
    EQUAL(done(blocks, on_blocks(UNVME_VERIFY, 0, 128 * MIB, NULL)).result, KV_SUCCESS);
    EQUAL(done(blocks, on_blocks(UNVME_DEALLOCATE, 0, 128 * MIB, NULL)).result, KV_SUCCESS);
}

static void a_queue_is_as_deep_as_it_says_and_long_commands_do_not_need_more(void)
{
    unvme_queue *queue = queue_of(blocks_device, 4, UNVME_PAIRS_ANY);
    unvme_queue_info info = { .size = sizeof info };
    EQUAL(unvme_queue_info_get(queue, &info), KV_SUCCESS);
    EQUAL(info.depth, 4);
    EQUAL(info.ssd_type, LBA_TYPE_SSD);
    EQUAL(info.block_bytes, BLOCK);
    EQUAL(info.bytes, 128 * MIB);
    EQUAL(info.nsid, 1);
    EQUAL(info.completion, UNVME_COMPLETION_POLL);
    TRUE(info.transfer_bytes_max >= BLOCK);
    size_t length = 3 * info.transfer_bytes_max;
    unsigned char *data = unvme_alloc(4 * length, 0), *back = malloc(4 * length);
    REQUIRE(data != NULL && back != NULL);
    count_up(data, 4 * length, 3);
    for (uint64_t i = 0; i < 4; i++) {
        unvme_command command = on_blocks(UNVME_WRITE, i * length / BLOCK, length, data + i * length);
        command.token = 1000 + i;
        EQUAL(unvme_queue_submit(queue, &command), KV_SUCCESS);
    }
    EQUAL(unvme_queue_outstanding(queue), 4);
    unvme_command fifth = on_blocks(UNVME_FLUSH, 0, 0, NULL);
    EQUAL(unvme_queue_submit(queue, &fifth), KV_ERR_DD_NO_AVAILABLE_RESOURCE);
    uint64_t seen = 0;
    for (int i = 0; i < 4; i++) {
        unvme_completion completion = next(queue);
        EQUAL(completion.result, KV_SUCCESS);
        seen |= 1u << (completion.token - 1000);
    }
    EQUAL(seen, 15);
    EQUAL(unvme_queue_outstanding(queue), 0);
    EQUAL(done(queue, on_blocks(UNVME_READ, 0, 4 * length, back)).result, KV_SUCCESS);
    TRUE(memcmp(data, back, 4 * length) == 0);
    EQUAL(unvme_queue_close(queue), KV_SUCCESS);
    EQUAL(unvme_queue_close(queue), KV_ERR_SDK_INVALID_PARAM);
    unvme_free(data);
    free(back);
}

static void one_piece_that_fails_fails_the_command_and_no_other(void)
{
    unvme_queue_info info = { .size = sizeof info };
    EQUAL(unvme_queue_info_get(blocks, &info), KV_SUCCESS);
    size_t length = 3 * info.transfer_bytes_max;
    unsigned char *data = calloc(1, length);
    REQUIRE(data != NULL);
    uint32_t rule = 0;
    const char *second = "{\"match\": {\"opcode\": \"write\", \"after\": 1, \"count\": 1}, \"act\": {\"status\": \"0x280\"}}";
    EQUAL(unvme_fault_add(blocks_device, second, &rule), KV_SUCCESS);
    unvme_completion failed = done(blocks, on_blocks(UNVME_WRITE, 0, length, data));
    EQUAL(failed.result, KV_ERR_IO);
    EQUAL(failed.status & 0x7ff, 0x280);
    EQUAL(done(blocks, on_blocks(UNVME_WRITE, 0, length, data)).result, KV_SUCCESS);
    EQUAL(unvme_fault_clear(blocks_device, 0), KV_SUCCESS);
    free(data);
}

static void values_of_any_length(unvme_queue *queue, bool dma)
{
    enum { ROOM = 64 << 10 };
    unsigned char *memory = dma ? unvme_alloc(2 * ROOM, 0) : malloc(2 * ROOM);
    REQUIRE(memory != NULL);
    unsigned char *out = memory, *in = memory + ROOM;
    static const size_t lengths[] = { 0, 1, 3, 4, 511, 4096, 4097, 20000 };
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        size_t bytes = lengths[l];
        count_up(out, ROOM, (unsigned)l);
        EQUAL(done(queue, on_pair(UNVME_STORE, "a key", bytes, out)).result, KV_SUCCESS);
        memset(in, 0xee, ROOM);
        unvme_completion whole = done(queue, on_pair(UNVME_RETRIEVE, "a key", bytes + 100, in));
        EQUAL(whole.result, KV_SUCCESS);
        EQUAL(whole.value_bytes, bytes);
        TRUE(memcmp(in, out, bytes) == 0);
        /* A copy ends where the value does. */
        TRUE(dma || in[bytes] == 0xee);
        if (bytes < 8)
            continue;
        /* A part of it: nothing behind the part is touched. */
        memset(in, 0xee, ROOM);
        unvme_completion part = done(queue, on_pair(UNVME_RETRIEVE, "a key", 7, in));
        EQUAL(part.value_bytes, bytes);
        TRUE(memcmp(in, out, 7) == 0 && in[7] == 0xee);
    }
    if (dma)
        unvme_free(memory);
    else
        free(memory);
}

static void every_verb_of_pairs(unvme_queue *queue, bool appends)
{
    char value[64] = "value", back[64] = "";
    EQUAL(done(queue, on_pair(UNVME_EXIST, "none", 0, NULL)).result, KV_ERR_NOT_EXIST_KEY);
    EQUAL(done(queue, on_pair(UNVME_RETRIEVE, "none", 64, back)).result, KV_ERR_NOT_EXIST_KEY);
    EQUAL(done(queue, on_pair(UNVME_DELETE, "none", 0, NULL)).result, KV_SUCCESS);
    unvme_command store = on_pair(UNVME_STORE, "pair", 5, value);
    store.flags = UNVME_MUST_EXIST;
    EQUAL(done(queue, store).result, KV_ERR_NOT_EXIST_KEY);
    store.flags = UNVME_MUST_NOT_EXIST;
    EQUAL(done(queue, store).result, KV_SUCCESS);
    EQUAL(done(queue, store).result, KV_ERR_IDEMPOTENT_STORE_FAIL);
    EQUAL(done(queue, on_pair(UNVME_EXIST, "pair", 0, NULL)).result, KV_SUCCESS);
    if (appends) {
        EQUAL(done(queue, on_pair(UNVME_APPEND, "pair", 5, value)).result, KV_SUCCESS);
        EQUAL(done(queue, on_pair(UNVME_RETRIEVE, "pair", 64, back)).value_bytes, 10);
        TRUE(memcmp(back, "valuevalue", 10) == 0);
    }
    EQUAL(done(queue, on_pair(UNVME_FLUSH, "", 0, NULL)).result, KV_SUCCESS);
    unvme_command delete_it = on_pair(UNVME_DELETE, "pair", 0, NULL);
    EQUAL(done(queue, delete_it).result, KV_SUCCESS);
    delete_it.flags = UNVME_MUST_EXIST;
    if (appends)
        EQUAL(done(queue, delete_it).result, KV_ERR_NOT_EXIST_KEY);
}

static void the_commands_of_either_set(void)
{
    unvme_queue *standard = queue_of(pairs_device, 8, UNVME_PAIRS_STANDARD);
    unvme_queue *vendor = queue_of(pairs_device, 8, UNVME_PAIRS_VENDOR);
    every_verb_of_pairs(standard, false);
    every_verb_of_pairs(vendor, true);
    values_of_any_length(standard, true);
    values_of_any_length(vendor, true);
    values_of_any_length(vendor, false);
    unvme_command command = on_pair(UNVME_APPEND, "pair", 5, "value");
    EQUAL(unvme_queue_submit(standard, &command), KV_ERR_DD_UNSUPPORTED_CMD);
    command = on_pair(UNVME_STORE, "a key of more than sixteen bytes", 5, "value");
    TRUE(unvme_queue_submit(standard, &command) != KV_SUCCESS);
    EQUAL(done(vendor, command).result, KV_SUCCESS);
    EQUAL(unvme_queue_close(standard), KV_SUCCESS);
    EQUAL(unvme_queue_close(vendor), KV_SUCCESS);
}

static void memory_of_one_device_is_anothers_as_well(void)
{
    uint64_t other = opened("mem:block:16M", LBA_TYPE_SSD);
    unvme_queue *queue = queue_of(other, 0, UNVME_PAIRS_ANY);
    unsigned char *memory = unvme_alloc(64 << 10, 0);
    REQUIRE(memory != NULL);
    for (int i = 0; i < 2; i++) {
        count_up(memory, 32 << 10, 9 + i);
        EQUAL(done(blocks, on_blocks(UNVME_WRITE, 8, 32 << 10, memory)).result, KV_SUCCESS);
        EQUAL(done(queue, on_blocks(UNVME_WRITE, 8, 32 << 10, memory)).result, KV_SUCCESS);
        EQUAL(done(queue, on_blocks(UNVME_READ, 8, 32 << 10, memory + (32 << 10))).result, KV_SUCCESS);
        TRUE(memcmp(memory, memory + (32 << 10), 32 << 10) == 0);
        EQUAL(done(pairs, on_pair(UNVME_STORE, "imported", 4096, memory)).result, KV_SUCCESS);
    }
    /* Without its handle the queue goes on, and without the memory, its commands. */
    EQUAL(unvme_close(other), KV_SUCCESS);
    EQUAL(done(queue, on_blocks(UNVME_READ, 8, 4096, memory)).result, KV_SUCCESS);
    unvme_command command = on_blocks(UNVME_READ, 8, 4096, memory);
    EQUAL(unvme_queue_submit(queue, &command), KV_SUCCESS);
    unvme_free(memory);
    EQUAL(next(queue).result, KV_SUCCESS);
    EQUAL(unvme_queue_submit(queue, &(unvme_command){ .verb = UNVME_FLUSH }), KV_SUCCESS);
    EQUAL(unvme_queue_close(queue), KV_SUCCESS);
}

static void a_placement_is_written_to(void)
{
    static char data[4096];
    uint64_t device = opened("mem:block:64M,block=4096,fdp", LBA_TYPE_SSD);
    unvme_queue *queue = queue_of(device, 0, UNVME_PAIRS_ANY);
    unvme_fdp_handle before[16] = { 0 }, after[16] = { 0 };
    size_t count = 0;
    REQUIRE(unvme_fdp_status(device, before, 16, &count) == KV_SUCCESS && count > 2);
    unvme_command placed = on_blocks(UNVME_WRITE, 0, sizeof data, data);
    placed.flags = UNVME_PLACED;
    placed.placement = 2;
    EQUAL(done(queue, placed).result, KV_SUCCESS);
    EQUAL(unvme_fdp_status(device, after, 16, &count), KV_SUCCESS);
    EQUAL(after[0].blocks_left, before[0].blocks_left);
    EQUAL(after[2].blocks_left, before[2].blocks_left - 1);
    EQUAL(unvme_queue_close(queue), KV_SUCCESS);
    EQUAL(unvme_close(device), KV_SUCCESS);
}

static void a_namespace_is_what_it_is(const char *device)
{
    static char data[4096];
    uint64_t handle = opened(device, LBA_TYPE_SSD);
    for (uint32_t nsid = 1; nsid <= 3; nsid++) {
        unvme_queue_options options = { .size = sizeof options, .nsid = nsid };
        unvme_queue *queue = NULL;
        REQUIRE(unvme_queue_open(handle, &options, &queue) == KV_SUCCESS);
        unvme_queue_info info = { .size = sizeof info };
        EQUAL(unvme_queue_info_get(queue, &info), KV_SUCCESS);
        EQUAL(info.nsid, nsid);
        EQUAL(info.ssd_type, nsid == 3 ? KV_TYPE_SSD : LBA_TYPE_SSD);
        memset(data, (int)nsid, sizeof data);
        unvme_command write = nsid == 3 ? on_pair(UNVME_STORE, "key", sizeof data, data)
                                        : on_blocks(UNVME_WRITE, 0, sizeof data, data);
        EQUAL(done(queue, write).result, KV_SUCCESS);
        EQUAL(unvme_queue_close(queue), KV_SUCCESS);
    }
    EQUAL(unvme_close(handle), KV_SUCCESS);
}

/* Queues of all classes, beside one of none. */
static void a_queue_is_of_a_class(void)
{
    static char bytes[BLOCK];
    for (uint8_t priority = UNVME_PRIORITY_NONE; priority <= UNVME_PRIORITY_LOW; priority++) {
        unvme_queue_options options = { .size = sizeof options, .priority = priority };
        unvme_queue *queue = NULL;
        REQUIRE(unvme_queue_open(blocks_device, &options, &queue) == KV_SUCCESS);
        memset(bytes, priority, sizeof bytes);
        unvme_command command = { .verb = UNVME_WRITE, .lba = 7, .length = BLOCK, .data = bytes };
        EQUAL(done(queue, command).result, KV_SUCCESS);
        memset(bytes, 0xee, sizeof bytes);
        command.verb = UNVME_READ;
        EQUAL(done(queue, command).result, KV_SUCCESS);
        EQUAL(bytes[BLOCK - 1], priority);
        EQUAL(unvme_queue_close(queue), KV_SUCCESS);
    }
}

static void what_is_wrong_is_refused(void)
{
    unvme_queue *queue = NULL;
    unvme_queue_options options = { .size = sizeof options };
    EQUAL(unvme_queue_open(7, NULL, &queue), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_queue_open(blocks_device, NULL, NULL), KV_ERR_SDK_INVALID_PARAM);
    options.size = 8;
    EQUAL(unvme_queue_open(blocks_device, &options, &queue), KV_ERR_SDK_INVALID_PARAM);
    options = (unvme_queue_options){ .size = sizeof options, .depth = 4096 };
    EQUAL(unvme_queue_open(blocks_device, &options, &queue), KV_ERR_SDK_INVALID_PARAM);
    options = (unvme_queue_options){ .size = sizeof options, .completion = 3 };
    EQUAL(unvme_queue_open(blocks_device, &options, &queue), KV_ERR_SDK_INVALID_PARAM);
    options = (unvme_queue_options){ .size = sizeof options, .commands = 3 };
    EQUAL(unvme_queue_open(blocks_device, &options, &queue), KV_ERR_SDK_INVALID_PARAM);
    options = (unvme_queue_options){ .size = sizeof options, .priority = 5 };
    EQUAL(unvme_queue_open(blocks_device, &options, &queue), KV_ERR_SDK_INVALID_PARAM);
    options = (unvme_queue_options){ .size = sizeof options, .nsid = 2 };
    EQUAL(unvme_queue_open(blocks_device, &options, &queue), KV_ERR_DD_INVALID_PARAM);
    TRUE(strstr(unvme_last_error(), "namespace 2") != NULL);
    TRUE(queue == NULL);
    EQUAL(unvme_queue_close(NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_queue_submit(NULL, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_queue_submit(blocks, NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_queue_ring(NULL), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_queue_wait(NULL, 1), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_queue_outstanding(NULL), 0);
    size_t count;
    EQUAL(unvme_queue_poll(blocks, NULL, 1, &count), KV_ERR_SDK_INVALID_PARAM);
    EQUAL(unvme_queue_poll(blocks, NULL, 0, &count), KV_SUCCESS);

    static char data[BLOCK];
    struct {
        unvme_command command;
        int expected;
    } cases[] = {
        { { .verb = 12 }, KV_ERR_SDK_INVALID_PARAM },
        { { .verb = UNVME_READ, .flags = 32, .length = BLOCK, .data = data }, KV_ERR_SDK_INVALID_PARAM },
        { { .verb = UNVME_READ, .length = BLOCK }, KV_ERR_SDK_INVALID_PARAM },
        { { .verb = UNVME_READ, .length = BLOCK + 1, .data = data }, KV_ERR_DD_INVALID_PARAM },
        { { .verb = UNVME_READ, .length = 0, .data = data }, KV_ERR_DD_INVALID_PARAM },
        { { .verb = UNVME_READ, .lba = 128 * MIB / BLOCK, .length = BLOCK, .data = data }, KV_ERR_IO },
        { { .verb = UNVME_READ, .lba = UINT64_MAX, .length = BLOCK, .data = data }, KV_ERR_IO },
        { { .verb = UNVME_STORE, .length = BLOCK, .data = data, .key = "key", .key_length = 3 }, KV_ERR_DD_UNSUPPORTED_CMD },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        EQUAL(unvme_queue_submit(blocks, &cases[i].command), cases[i].expected);
        TRUE(unvme_last_error()[0] != 0);
    }
    unvme_command read = on_blocks(UNVME_READ, 0, BLOCK, data);
    EQUAL(unvme_queue_submit(pairs, &read), KV_ERR_DD_UNSUPPORTED_CMD);
    unvme_command keyless = { .verb = UNVME_STORE, .key_length = 5, .length = BLOCK, .data = data };
    EQUAL(unvme_queue_submit(pairs, &keyless), KV_ERR_SDK_INVALID_PARAM);
    unvme_command both = on_pair(UNVME_STORE, "pair", 1, data);
    both.flags = UNVME_MUST_EXIST | UNVME_MUST_NOT_EXIST;
    EQUAL(unvme_queue_submit(pairs, &both), KV_ERR_SDK_INVALID_PARAM);
    unvme_command huge = on_pair(UNVME_STORE, "pair", 1ull << 40, data);
    EQUAL(unvme_queue_submit(pairs, &huge), KV_ERR_INVALID_VALUE_SIZE);
    EQUAL(unvme_queue_outstanding(blocks), 0);
    EQUAL(unvme_queue_outstanding(pairs), 0);
}

int main(int argc, char **argv)
{
    /* A device with two namespaces of blocks and one of pairs. */
    if (argc > 1) {
        RUN(a_namespace_is_what_it_is(argv[1]));
        return check_summary();
    }
    blocks_device = opened("mem:block:128M", LBA_TYPE_SSD);
    pairs_device = opened("mem:kv:128M", KV_TYPE_SSD);
    blocks = queue_of(blocks_device, 0, UNVME_PAIRS_ANY);
    pairs = queue_of(pairs_device, 0, UNVME_PAIRS_ANY);
    RUN(any_memory_at_any_offset_and_of_any_length());
    RUN(every_verb_of_blocks());
    RUN(a_queue_is_as_deep_as_it_says_and_long_commands_do_not_need_more());
    RUN(one_piece_that_fails_fails_the_command_and_no_other());
    RUN(values_of_any_length(pairs, true));
    RUN(values_of_any_length(pairs, false));
    RUN(every_verb_of_pairs(pairs, true));
    RUN(the_commands_of_either_set());
    RUN(memory_of_one_device_is_anothers_as_well());
    RUN(a_placement_is_written_to());
    RUN(a_queue_is_of_a_class());
    RUN(what_is_wrong_is_refused());
    EQUAL(unvme_queue_close(blocks), KV_SUCCESS);
    EQUAL(unvme_queue_close(pairs), KV_SUCCESS);
    EQUAL(unvme_close(blocks_device), KV_SUCCESS);
    EQUAL(unvme_close(pairs_device), KV_SUCCESS);
    return check_summary();
}

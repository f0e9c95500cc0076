/*
 * unvme_completion_fd(): an event loop on poll(2). The first argument is the name of a block device, the
 * second whether it interrupts: "interrupting" or "polled".
 */
#include <poll.h>

#include "check.h"

enum { OPERATIONS = 200, AT_A_TIME = 16, BLOCK = 512, PATIENCE_MS = 30000, FEW = 10 };

static const char *name;
static bool interrupting;

static uint64_t device;
static char data[AT_A_TIME][BLOCK];
static int submitted, finished;

static int readable(int fd, int timeout_ms)
{
    struct pollfd watched = { .fd = fd, .events = POLLIN };
    int count = poll(&watched, 1, timeout_ms);
    TRUE(count >= 0 && (watched.revents & (POLLERR | POLLHUP | POLLNVAL)) == 0);
    return count;
}

static uint64_t opened(bool poll, bool interrupts)
{
    uint64_t handle = 0;
    unvme_options options = { .size = sizeof options, .poll = poll, .interrupts = interrupts };
    REQUIRE(unvme_open(name, LBA_TYPE_SSD, &options, &handle) == KV_SUCCESS);
    return handle;
}

static void on_done(void *arg, int result);

static void submit(int place)
{
    uint64_t lba = (uint64_t)(submitted / 2);
    int result = submitted % 2 ? unvme_read_async(device, lba, 1, data[place], on_done, data[place])
                               : unvme_write_async(device, lba, 1, data[place], on_done, data[place]);
    REQUIRE(result == KV_SUCCESS);
    submitted++;
}

static void on_done(void *arg, int result)
{
    EQUAL(result, KV_SUCCESS);
    finished++;
    if (submitted < OPERATIONS)
        submit((int)((char(*)[BLOCK])arg - data));
}

/* Looks when it is told to, until so many operations have finished; how often that was. */
static int loop_until(int fd, int count)
{
    int looks = 0;
    while (finished < count) {
        REQUIRE(readable(fd, PATIENCE_MS) == 1);
        kv_process_completion(device);
        looks++;
    }
    return looks;
}

static void a_device_with_a_completion_thread_has_none(void)
{
    int fd = -7;
    device = opened(false, false);
    EQUAL(unvme_completion_fd(device, &fd), KV_ERR_DD_INVALID_QUEUE_TYPE);
    TRUE(strstr(unvme_last_error(), "a thread delivers its completions") != NULL);
    EQUAL(fd, -7);
    EQUAL(unvme_close(device), KV_SUCCESS);
    EQUAL(unvme_completion_fd(device, &fd), KV_ERR_SDK_INVALID_PARAM);
}

static void an_event_loop_is_told_of_every_completion(bool interrupts)
{
    int fd = -1, again = -1;
    device = opened(true, interrupts);
    EQUAL(unvme_completion_fd(device, NULL), KV_ERR_SDK_INVALID_PARAM);
    REQUIRE(unvme_completion_fd(device, &fd) == KV_SUCCESS);
    EQUAL(unvme_completion_fd(device, &again), KV_SUCCESS);
    EQUAL(again, fd);
    EQUAL(readable(fd, 0), 0);
    submitted = finished = 0;
    for (int i = 0; i < AT_A_TIME; i++)
        submit(i);
    loop_until(fd, OPERATIONS);
    EQUAL(submitted, OPERATIONS);
    EQUAL(finished, OPERATIONS);
    /* What an interrupt that came late has left behind. */
    if (readable(fd, 0))
        kv_process_completion(device);
    EQUAL(readable(fd, 0), 0);
    /* Who waits for an answer is not told by the descriptor. */
    EQUAL(unvme_write(device, 0, 1, data[0]), KV_SUCCESS);
    EQUAL(readable(fd, 0), 0);
    /* What is outstanding when the device is closed ends as well. */
    submitted = OPERATIONS, finished = 0;
    submit(0);
    EQUAL(unvme_close(device), KV_SUCCESS);
    EQUAL(finished, 1);
}

static void a_slow_operation(bool interrupts)
{
    int fd = -1;
    device = opened(true, interrupts);
    REQUIRE(unvme_completion_fd(device, &fd) == KV_SUCCESS);
    const char *slow = "{\"match\": {\"opcode\": \"write\", \"count\": 1}, \"act\": {\"delay\": \"300ms\"}}";
    EQUAL(unvme_fault_add(device, slow, NULL), KV_SUCCESS);
    submitted = OPERATIONS, finished = 0;
    submit(0);
    if (interrupts && interrupting) {
        /* Nobody has to look meanwhile. */
        TRUE(loop_until(fd, 1) <= FEW);
    } else {
        /* Somebody has to. */
        EQUAL(readable(fd, 0), 1);
        kv_process_completion(device);
        EQUAL(readable(fd, 0), 1);
        TRUE(loop_until(fd, 1) > FEW);
        EQUAL(readable(fd, 0), 0);
    }
    EQUAL(finished, 1);
    EQUAL(unvme_fault_clear(device, 0), KV_SUCCESS);
    EQUAL(unvme_close(device), KV_SUCCESS);
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 2);
    name = argv[1];
    interrupting = strcmp(argv[2], "interrupting") == 0;
    RUN(a_device_with_a_completion_thread_has_none());
    RUN(an_event_loop_is_told_of_every_completion(false));
    RUN(an_event_loop_is_told_of_every_completion(true));
    RUN(a_slow_operation(false));
    RUN(a_slow_operation(true));
    return check_summary();
}

/*
 * The other file of compat.c: a function by the name of one of the library's, and variables and functions by
 * names that kv_perf has, none of which may be disturbed by the library.
 */
#include <pthread.h>

#include "kvutil.h"

int mutex = 1, handle = 2, submit_cnt = 3, cb_cnt = 4, threadid = 5;

int kv_nvme_store(void) { return 6; }
int kv_nvme_store_async(void) { return 7; }
int kv_nvme_retrieve(void) { return 8; }
int kv_nvme_retrieve_async(void) { return 9; }

static int calls;

void show_elapsed_time(struct timeval *start, struct timeval *end, char *msg, int repeat_count, uint64_t value_size,
                       struct latency_stat *stat)
{
    (void)start;
    (void)end;
    (void)repeat_count;
    (void)value_size;
    (void)stat;
    puts(msg);
    calls++;
}

int overriding_calls(void)
{
    int sum = mutex + handle + submit_cnt + cb_cnt + threadid + kv_nvme_store() + kv_nvme_store_async() +
              kv_nvme_retrieve() + kv_nvme_retrieve_async();
    return sum == 45 ? calls : -1;
}

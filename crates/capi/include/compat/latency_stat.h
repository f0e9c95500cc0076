/* Latencies of operations, as the original SDK's test programs count and print them. */
#ifndef __LATENCY_STAT_H__
#define __LATENCY_STAT_H__

#include <sys/time.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * 260 buckets up to 1 ms, 160 for each further power of ten up to 1 s, 50 up to 2 s, which has what is
 * longer, too.
 */
#define BUCKET_SIZE (790u)

struct time_stamp {
    struct timeval start;
    struct timeval end;
};

/* Microseconds. */
struct latency_stat {
    unsigned long long max;
    unsigned long long min;
    unsigned long long samples;
    unsigned long long sum;
    unsigned int count_for_bucket[BUCKET_SIZE];
    double mean;
    double variance;
};

void reset_latency_stat(struct latency_stat *stat);

/* Adds one sample. An end before its start, as two threads can see it, counts as 0. */
void add_latency_stat(struct latency_stat *stat, const struct timeval *start, const struct timeval *end);

/* Prints minimum, maximum, mean and percentiles on stdout; nothing for fewer than two samples. */
void print_latency_stat(struct latency_stat *stat);

#ifdef __cplusplus
}
#endif

#endif /* __LATENCY_STAT_H__ */

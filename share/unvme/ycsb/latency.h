// Latencies in nanoseconds, in buckets whose width is at most 1/64 of what is in them.
#ifndef YCSB_LATENCY_H
#define YCSB_LATENCY_H

#include <stdint.h>

#define LATENCY_BITS 6
#define LATENCY_BUCKETS ((64 - LATENCY_BITS + 1) << LATENCY_BITS)

struct latency {
    uint64_t count, sum, max;
    uint64_t buckets[LATENCY_BUCKETS];
};

// Values below 64 have a bucket each; from there on each power of two has 64.
static inline unsigned latency_bucket(uint64_t value) {
    if (value >> LATENCY_BITS == 0)
        return (unsigned)value;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - LATENCY_BITS;
    return (shift << LATENCY_BITS) + (unsigned)(value >> shift);
}

// The largest value of a bucket.
static inline uint64_t latency_edge(unsigned bucket) {
    if (bucket >> LATENCY_BITS == 0)
        return bucket;
    unsigned shift = (bucket >> LATENCY_BITS) - 1;
    uint64_t lead = bucket - (shift << LATENCY_BITS);
    return ((lead + 1) << shift) - 1;
}

static inline void latency_add(struct latency *latency, uint64_t value) {
    latency->count++;
    latency->sum += value;
    if (value > latency->max)
        latency->max = value;
    latency->buckets[latency_bucket(value)]++;
}

static inline void latency_merge(struct latency *all, const struct latency *one) {
    all->count += one->count;
    all->sum += one->sum;
    if (one->max > all->max)
        all->max = one->max;
    for (unsigned bucket = 0; bucket < LATENCY_BUCKETS; bucket++)
        all->buckets[bucket] += one->buckets[bucket];
}

// What so large a share of them is not above; 0 of none.
static inline uint64_t latency_quantile(const struct latency *latency, double share) {
    double wanted = share * (double)latency->count;
    uint64_t seen = 0;
    for (unsigned bucket = 0; bucket < LATENCY_BUCKETS; bucket++) {
        seen += latency->buckets[bucket];
        if (seen > 0 && (double)seen >= wanted) {
            uint64_t edge = latency_edge(bucket);
            return edge < latency->max ? edge : latency->max;
        }
    }
    return latency->max;
}

#endif

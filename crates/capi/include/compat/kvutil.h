/* What the original SDK's test programs share: sizes, keys, hashes, and printing how long something took. */
#ifndef _UTIL_H_
#define _UTIL_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <inttypes.h>
#include <syslog.h>
#include <unistd.h>
#include <sys/time.h>
#include <time.h>

#include "EagleHashIP.h"
#include "kv_types.h"
#include "latency_stat.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SQUARE(d) ((d) * (d))
/* Variance and standard deviation of n samples with sum s and sum of squares s2. STDDEV needs math.h. */
#define VAR(s, s2, n) (((n) < 2) ? 0.0 : ((s2) - SQUARE(s) / (n)) / ((n) - 1))
#define STDDEV(s, s2, n) (((n) < 2) ? 0.0 : sqrt(VAR((s), (s2), (n))))

/* sys/param.h has these two as well. */
#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif
#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif
#define NELEM(a) ((sizeof(a)) / sizeof((a)[0]))

/* A size, and an address, rounded up to a multiple of n, a power of two. */
#define KV_MEM_ALIGN(d, n) ((size_t)(((d) + ((n)-1)) & ~((n)-1)))
#define KV_PTR_ALIGN(p, n) ((void *)(((uintptr_t)(p) + ((uintptr_t)(n)-1)) & ~((uintptr_t)(n)-1)))

#ifndef KB
#define KB (1024)
#endif
#ifndef MB
#define MB (1024 * KB)
#endif
#ifndef GB
#define GB (1024 * MB)
#endif

enum hash_ {
    NONE = 0,
    EAGLE_HASH128_1_P128,
    EAGLE_HASH128_2_P128,
    MURMUR_HASH3_x64_128,
};

enum key_generate_policy {
    PREFIX_SEQ_INC = 0,
    POSTFIX_SEQ_INC = 1,
    RANDOM = 2,
    DEBUG_KEY = 3,
    DB_BENCH_KEY = 4,
    READ_RANDOM_NUMBER = 5,
};

typedef struct key_policy {
    int idx;
    char name[128];
} key_policy;

typedef void (*unvme_hash_fn)(const void *key, int len, unsigned int seed, void *out);

/* The names of enum key_generate_policy, 16 entries. */
const key_policy *unvme_key_policies(void);
/* Where the current hash function is kept. */
unvme_hash_fn *unvme_hash_func(void);

/* Both were variables; as variables of a shared library they would exist twice. */
#define g_key_policy (unvme_key_policies())
#define hash_func (*unvme_hash_func())

/*
 * Sets hash_func to an enum hash_ and prints which it is. MurmurHash3 is not here: it is one of the others.
 */
void set_hash_func(int hash_no);

/* Prints a key, and its value or the length of that, on stdout. */
void dump_key_value(char *key, int key_len, char *value, int value_len, bool show_value);
void show_key(kv_key *origin_key, kv_key *hashed_key);

/* Makers of keys. Each returns the bytes of key that it wrote, or -1. */
int gen_debug_key(char *key_buf, int value_size, int idx); /* 16 bytes: idx in the low 28 bits of the first four */
int gen_rand_key(char *key_buf, int len);                  /* random printable characters */
int gen_db_bench_key(char *start, int key_size, uint64_t num); /* num in 8 bytes, big endian, then '0' */

/* A random number of 0 to max, and the logarithm to base 2 of n, rounded down (-1 for less than 1). */
int gen_rand_num(int max);
int get_power_of(int n);

/*
 * Prints what repeat_count operations from start to end took. A program may define its own function of this
 * name.
 */
void show_elapsed_time(struct timeval *start, struct timeval *end, char *msg, int repeat_count, uint64_t value_size,
                       struct latency_stat *stat);

/* The same for num_timeval threads that did repeat_count_each operations each, from start[i] to end[i]. */
void show_elapsed_time_cumulative(struct timeval *start, struct timeval *end, int num_timeval, char *msg,
                                  int repeat_count_each, uint64_t value_size, struct latency_stat *stat);

#ifdef __cplusplus
}
#endif

#endif /* _UTIL_H_ */

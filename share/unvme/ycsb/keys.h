// Which record an operation is about: the generators of YCSB 0.17, with its constants.
#ifndef YCSB_KEYS_H
#define YCSB_KEYS_H

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

// "user", the digits of 63 bits, and the end.
#define KEY_BYTES 24

// splitmix64.
struct random {
    uint64_t state;
};

static inline uint64_t random_next(struct random *random) {
    uint64_t z = (random->state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static inline uint64_t random_below(struct random *random, uint64_t limit) {
    return ((unsigned __int128)random_next(random) * limit) >> 64;
}

// In [0, 1).
static inline double random_unit(struct random *random) {
    return (random_next(random) >> 11) * 0x1p-53;
}

// Utils.fnvhash64: FNV over the eight bytes, without its sign.
static inline uint64_t hash_of(uint64_t value) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (int byte = 0; byte < 8; byte++) {
        hash ^= value & 0xff;
        hash *= 1099511628211ull;
        value >>= 8;
    }
    return hash >> 63 ? -hash : hash;
}

// CoreWorkload.buildKeyName with insertorder=hashed. Returns how long it is.
static inline int key_of(char key[KEY_BYTES], uint64_t number) {
    return snprintf(key, KEY_BYTES, "user%" PRIu64, hash_of(number));
}

// ZipfianGenerator: Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994.
struct zipf {
    double zetan, zeta2, eta;
    uint64_t items, counted;
};

#define ZIPF_THETA 0.99

static inline double zeta(uint64_t from, uint64_t to, double sum) {
    for (uint64_t i = from; i < to; i++)
        sum += 1 / pow((double)(i + 1), ZIPF_THETA);
    return sum;
}

static inline void zipf_count(struct zipf *zipf) {
    zipf->eta = (1 - pow(2.0 / (double)zipf->items, 1 - ZIPF_THETA)) / (1 - zipf->zeta2 / zipf->zetan);
}

static inline void zipf_init(struct zipf *zipf, uint64_t items, double zetan) {
    zipf->items = zipf->counted = items;
    zipf->zeta2 = zeta(0, 2, 0);
    zipf->zetan = zetan > 0 ? zetan : zeta(0, items, 0);
    zipf_count(zipf);
}

// Of so many items, which may have become more since the last time.
static inline uint64_t zipf_next(struct zipf *zipf, struct random *random, uint64_t items) {
    if (items > zipf->counted) {
        zipf->zetan = zeta(zipf->counted, items, zipf->zetan);
        zipf->counted = items;
        zipf_count(zipf);
    }
    double u = random_unit(random), uz = u * zipf->zetan;
    if (uz < 1)
        return 0;
    if (uz < 1 + pow(0.5, ZIPF_THETA))
        return 1;
    return (uint64_t)((double)items * pow(zipf->eta * u - zipf->eta + 1, 1 / (1 - ZIPF_THETA)));
}

// ScrambledZipfianGenerator: the popular ones of ten billion, spread over what there is.
#define SCRAMBLED_ITEMS 10000000000ull
#define SCRAMBLED_ZETAN 26.46902820178302

// AcknowledgedCounterGenerator: nobody reads a record before all those up to it have been inserted.
#define SEQUENCE_WINDOW (1u << 20)

struct sequence {
    atomic_uint_fast64_t next, last;
    atomic_bool *acknowledged;
    pthread_mutex_t advancing;
};

static inline void sequence_acknowledge(struct sequence *sequence, uint64_t number) {
    atomic_store(&sequence->acknowledged[number % SEQUENCE_WINDOW], true);
    // Who has it advances for the others, too.
    if (pthread_mutex_trylock(&sequence->advancing) != 0)
        return;
    uint64_t last = atomic_load(&sequence->last);
    while (atomic_exchange(&sequence->acknowledged[(last + 1) % SEQUENCE_WINDOW], false))
        last++;
    atomic_store(&sequence->last, last);
    pthread_mutex_unlock(&sequence->advancing);
}

#endif

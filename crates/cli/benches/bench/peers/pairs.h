// The pairs of the key-value rows, the same in every peer: key of 16 bytes, order, choice.
#ifndef PAIRS_H
#define PAIRS_H

#include <stdint.h>
#include <string.h>
#include <time.h>

enum { KEY_BYTES = 16 };

struct random {
    uint64_t state;
};

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// Eight bytes that look random, big endian so that the order of keys has nothing to do with that of the
// numbers, and the number itself.
static inline void make_key(char key[KEY_BYTES], uint64_t id) {
    uint64_t mixed = __builtin_bswap64(id * 0x9e3779b97f4a7c15ull);
    memcpy(key, &mixed, sizeof mixed);
    memcpy(key + sizeof mixed, &id, sizeof id);
}

// Each number below `pairs` once, in an order that jumps: the factor is a prime larger than any number of
// pairs here.
static inline uint64_t shuffled(uint64_t index, uint64_t pairs) {
    return (uint64_t)(((unsigned __int128)index * 2654435761ull + 12345) % pairs);
}

// xorshift64*.
static inline uint64_t below(struct random *random, uint64_t end) {
    random->state ^= random->state >> 12;
    random->state ^= random->state << 25;
    random->state ^= random->state >> 27;
    return (((random->state * 0x2545f4914f6cdd1dull) >> 32) * end) >> 32;
}

#endif

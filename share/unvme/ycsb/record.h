// A record: ten fields of a hundred bytes of text, as YCSB has them, and a checksum of them and of the key.
#ifndef YCSB_RECORD_H
#define YCSB_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "keys.h"

#define FIELDS 10
#define FIELD_BYTES 100

struct record {
    char fields[FIELDS][FIELD_BYTES];
    uint64_t checksum;
};

_Static_assert(sizeof(struct record) == 1008, "no padding");

static inline uint64_t mixed(uint64_t hash, const void *data, size_t length) {
    const char *at = data;
    while (length > 0) {
        uint64_t word = 0;
        size_t taken = length < sizeof word ? length : sizeof word;
        memcpy(&word, at, taken);
        hash = (hash ^ word) * 0xff51afd7ed558ccdull;
        hash ^= hash >> 32;
        at += taken;
        length -= taken;
    }
    return hash;
}

// A record under another one's key is as wrong as one that has been changed.
static inline uint64_t record_checksum(const struct record *record, const char *key, size_t key_length) {
    return mixed(mixed(key_length, key, key_length), record->fields, sizeof record->fields);
}

// Text that does not compress to much.
static inline void field_fill(char field[FIELD_BYTES], struct random *random) {
    for (unsigned at = 0; at < FIELD_BYTES; at += 8) {
        uint64_t text = (random_next(random) & 0x3f3f3f3f3f3f3f3full) + 0x2020202020202020ull;
        memcpy(field + at, &text, at + 8 <= FIELD_BYTES ? 8 : FIELD_BYTES - at);
    }
}

static inline void record_fill(struct record *record, const char *key, size_t key_length, struct random *random) {
    for (unsigned field = 0; field < FIELDS; field++)
        field_fill(record->fields[field], random);
    record->checksum = record_checksum(record, key, key_length);
}

static inline bool record_is_whole(const struct record *record, const char *key, size_t key_length) {
    return record->checksum == record_checksum(record, key, key_length);
}

#endif

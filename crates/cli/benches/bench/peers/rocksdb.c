// RocksDB as a peer of the key-value rows: `rocksdb DIRECTORY PAIRS VALUE_BYTES` reads commands from standard
// input and answers each with operations per second.
//
//   fill         a new database; every pair once, at random, without a write-ahead log (fillrandom)
//   read MILLIS  retrieves pairs at random for that long (db_bench readrandom)
#include <inttypes.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pairs.h"

static rocksdb_t *db;
static rocksdb_options_t *options;

static void check(char *error, const char *what) {
    if (error) {
        fprintf(stderr, "rocksdb: %s: %s\n", what, error);
        exit(1);
    }
}

static rocksdb_options_t *make_options(void) {
    rocksdb_options_t *made = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(made, 1);
    rocksdb_options_set_compression(made, rocksdb_no_compression);
    // A block cache that holds everything, and filters, as a database that is tuned for reads has them.
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(2ull << 30));
    rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom(10));
    rocksdb_options_set_block_based_table_factory(made, table);
    return made;
}

static void reopen(const char *directory) {
    char *error = NULL;
    if (db) {
        rocksdb_close(db);
        rocksdb_destroy_db(options, directory, &error);
        check(error, "destroy");
    }
    db = rocksdb_open(options, directory, &error);
    check(error, "open");
}

static double fill(const char *directory, uint64_t pairs, size_t value_bytes, char *value) {
    reopen(directory);
    rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(write, 1);
    double start = seconds();
    for (uint64_t index = 0; index < pairs; index++) {
        char key[KEY_BYTES], *error = NULL;
        uint64_t id = shuffled(index, pairs);
        make_key(key, id);
        memcpy(value, &id, sizeof id);
        rocksdb_put(db, write, key, sizeof key, value, value_bytes, &error);
        check(error, "put");
    }
    double elapsed = seconds() - start;
    rocksdb_writeoptions_destroy(write);
    return (double)pairs / elapsed;
}

// Flushes and compacts, so that reads find the database as it is after a while.
static void settle(void) {
    static rocksdb_t *settled;
    if (settled == db)
        return;
    char *error = NULL;
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    rocksdb_flush(db, flush, &error);
    check(error, "flush");
    rocksdb_flushoptions_destroy(flush);
    rocksdb_compact_range(db, NULL, 0, NULL, 0);
    settled = db;
}

static double read_random(uint64_t pairs, double limit) {
    static struct random random = {88172645463325252ull};
    rocksdb_readoptions_t *read = rocksdb_readoptions_create();
    uint64_t done = 0;
    double start = seconds(), elapsed;
    do {
        for (int i = 0; i < 1024; i++) {
            char key[KEY_BYTES], *error = NULL;
            uint64_t id = below(&random, pairs);
            make_key(key, id);
            rocksdb_pinnableslice_t *slice = rocksdb_get_pinned(db, read, key, sizeof key, &error);
            check(error, "get");
            size_t bytes;
            const char *value = slice ? rocksdb_pinnableslice_value(slice, &bytes) : NULL;
            if (!value || memcmp(value, &id, sizeof id) != 0) {
                fprintf(stderr, "rocksdb: pair %" PRIu64 " is not what was stored\n", id);
                exit(1);
            }
            rocksdb_pinnableslice_destroy(slice);
        }
        done += 1024;
        elapsed = seconds() - start;
    } while (elapsed < limit);
    rocksdb_readoptions_destroy(read);
    return (double)done / elapsed;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: rocksdb DIRECTORY PAIRS VALUE_BYTES\n");
        return 2;
    }
    uint64_t pairs = strtoull(argv[2], NULL, 10);
    size_t value_bytes = strtoull(argv[3], NULL, 10);
    char *value = malloc(value_bytes), line[64];
    if (!value || value_bytes < sizeof(uint64_t) || pairs == 0)
        return 2;
    memset(value, 'v', value_bytes);
    options = make_options();
    while (fgets(line, sizeof line, stdin)) {
        double rate;
        if (strncmp(line, "fill", 4) == 0) {
            rate = fill(argv[1], pairs, value_bytes, value);
        } else if (strncmp(line, "read ", 5) == 0 && db) {
            settle();
            rate = read_random(pairs, atof(line + 5) / 1e3);
        } else {
            fprintf(stderr, "rocksdb: what is `%s`?\n", line);
            return 2;
        }
        printf("%.1f\n", rate);
        fflush(stdout);
    }
    if (db)
        rocksdb_close(db);
    free(value);
    return 0;
}

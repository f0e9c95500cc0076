// YCSB's core workloads on WiredTiger, MongoDB's storage engine, without a JVM.
//
//   cc -O2 -std=gnu11 -Iwiredtiger/include ycsb_wt.c -o ycsb_wt -Lwiredtiger/lib -lwiredtiger -lm -lpthread
//   ycsb_wt [OPTION ...] FOLDER PHASE ...
//
// A phase is `load`, one of the workloads `a` to `f`, `warm`, which reads all that there is, or `check`,
// which compares all that there is with what was loaded. They run one after the other, in one process: a
// cache that ends with the process is then as warm for one file system as the kernel's is for another.
//
// Workloads, keys and their distributions are those of YCSB 0.17 (CoreWorkload, workloads/workloada to f).
// The database is opened as MongoDB opens it: with a journal that is synced ten times a second, with
// checkpoints, and with its settings of a collection, but without compression.
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <wiredtiger.h>

#include "keys.h"
#include "latency.h"
#include "record.h"

#define TABLE "table:usertable"
#define SCAN_MAX 100
#define THREADS_MAX 256
// How often one operation may meet others in conflict.
#define CONFLICTS_MAX 100000

enum operation { READ, UPDATE, INSERT, SCAN, MODIFY, OPERATIONS };

static const char *const operation_names[OPERATIONS] = {"read", "update", "insert", "scan", "read-modify-write"};

// Shares of the operations, in hundredths.
struct workload {
    char name;
    unsigned shares[OPERATIONS];
    bool latest;
};

static const struct workload workloads[] = {
    {'a', {[READ] = 50, [UPDATE] = 50}, false},
    {'b', {[READ] = 95, [UPDATE] = 5}, false},
    {'c', {[READ] = 100}, false},
    {'d', {[READ] = 95, [INSERT] = 5}, true},
    {'e', {[SCAN] = 95, [INSERT] = 5}, false},
    {'f', {[READ] = 50, [MODIFY] = 50}, false},
};

static struct options {
    uint64_t records, operations, seconds, cache_mib, checkpoint_seconds, seed;
    unsigned threads;
    // Between two syncs of the journal; 0 for never.
    unsigned sync_ms;
    bool sync_commits, verify, uniform;
    const char *json, *config;
} options = {
    .records = 100000,
    .cache_mib = 64,
    .checkpoint_seconds = 60,
    .seed = 1,
    .threads = 2,
    .sync_ms = 100,
};

static WT_CONNECTION *connection;
static struct sequence sequence;
// Of all records, for the workload whose popular ones are the latest.
static double latest_zetan;

struct worker {
    pthread_t thread;
    WT_SESSION *session;
    WT_CURSOR *cursor;
    struct random random;
    struct zipf zipf;
    const struct workload *workload;
    // Of the load: which records.
    uint64_t from, to;
    uint64_t operations, conflicts, found;
    struct latency latencies[OPERATIONS];
};

static struct worker workers[THREADS_MAX];
static atomic_uint_fast64_t begun;
static atomic_bool stopped;
static uint64_t deadline_ns;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("ycsb_wt: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    // Other threads are in the middle of something.
    fflush(NULL);
    _exit(1);
}

static void check(int result, const char *what) {
    if (result != 0)
        fail("%s: %s", what, wiredtiger_strerror(result));
}

static WT_ITEM item_of(const void *data, size_t size) {
    WT_ITEM item;
    memset(&item, 0, sizeof item);
    item.data = data;
    item.size = size;
    return item;
}

// ---- operations ---------------------------------------------------------------------------------

// Copies what the cursor is at, and looks at it if that was asked for.
static void take(struct worker *worker, struct record *record) {
    WT_ITEM key, value;
    check(worker->cursor->get_key(worker->cursor, &key), "get a key");
    check(worker->cursor->get_value(worker->cursor, &value), "get a value");
    if (value.size != sizeof *record)
        fail("%.*s: its record has %zu bytes instead of %zu", (int)key.size, (const char *)key.data, value.size,
             sizeof *record);
    memcpy(record, value.data, sizeof *record);
    if (options.verify && !record_is_whole(record, key.data, key.size))
        fail("%.*s: its record is not what was written", (int)key.size, (const char *)key.data);
}

static int read_record(struct worker *worker, const char *name, size_t length, struct record *record) {
    WT_ITEM key = item_of(name, length);
    worker->cursor->set_key(worker->cursor, &key);
    int result = worker->cursor->search(worker->cursor);
    if (result == WT_NOTFOUND)
        fail("%s: it has been inserted, and is not there", name);
    if (result == 0)
        take(worker, record);
    return result;
}

static int write_record(struct worker *worker, const char *name, size_t length, const struct record *record,
                        bool is_new) {
    WT_ITEM key = item_of(name, length), value = item_of(record, sizeof *record);
    worker->cursor->set_key(worker->cursor, &key);
    worker->cursor->set_value(worker->cursor, &value);
    return is_new ? worker->cursor->insert(worker->cursor) : worker->cursor->update(worker->cursor);
}

// One field anew, in a transaction.
static int update_record(struct worker *worker, const char *name, size_t length) {
    struct record record;
    check(worker->session->begin_transaction(worker->session, NULL), "begin a transaction");
    int result = read_record(worker, name, length, &record);
    if (result == 0) {
        field_fill(record.fields[random_below(&worker->random, FIELDS)], &worker->random);
        record.checksum = record_checksum(&record, name, length);
        result = write_record(worker, name, length, &record, false);
    }
    if (result == 0)
        return worker->session->commit_transaction(worker->session, NULL);
    check(worker->session->rollback_transaction(worker->session, NULL), "roll a transaction back");
    return result;
}

static int scan_records(struct worker *worker, const char *name, size_t length) {
    struct record record;
    WT_ITEM key = item_of(name, length);
    uint64_t count = 1 + random_below(&worker->random, SCAN_MAX);
    int where, result;
    worker->cursor->set_key(worker->cursor, &key);
    result = worker->cursor->search_near(worker->cursor, &where);
    if (result == 0 && where < 0)
        result = worker->cursor->next(worker->cursor);
    for (; result == 0; result = worker->cursor->next(worker->cursor)) {
        take(worker, &record);
        worker->found++;
        if (--count == 0)
            break;
    }
    return result == WT_NOTFOUND ? 0 : result;
}

static int attempt(struct worker *worker, enum operation operation, const char *name, size_t length) {
    struct record record;
    int result = 0;
    switch (operation) {
    case READ:
        return read_record(worker, name, length, &record);
    case UPDATE:
        return update_record(worker, name, length);
    case INSERT:
        record_fill(&record, name, length, &worker->random);
        return write_record(worker, name, length, &record, true);
    case SCAN:
        return scan_records(worker, name, length);
    case MODIFY:
        result = read_record(worker, name, length, &record);
        return result == 0 ? update_record(worker, name, length) : result;
    case OPERATIONS:
        break;
    }
    return EINVAL;
}

// One operation, again when others were in its way, and how long that took.
static void operate(struct worker *worker, enum operation operation, uint64_t number) {
    char name[KEY_BYTES];
    size_t length = (size_t)key_of(name, number);
    uint64_t start = now_ns();
    int result = attempt(worker, operation, name, length);
    for (unsigned tried = 0; result == WT_ROLLBACK && tried < CONFLICTS_MAX; tried++) {
        worker->conflicts++;
        result = attempt(worker, operation, name, length);
    }
    check(result, operation_names[operation]);
    check(worker->cursor->reset(worker->cursor), "reset a cursor");
    latency_add(&worker->latencies[operation], now_ns() - start);
    worker->operations++;
}

// ---- phases -------------------------------------------------------------------------------------

static uint64_t next_number(struct worker *worker) {
    for (;;) {
        uint64_t last = atomic_load(&sequence.last), number;
        if (worker->workload->latest)
            number = last - zipf_next(&worker->zipf, &worker->random, last);
        else if (options.uniform)
            number = random_below(&worker->random, last + 1);
        else
            // The same spread, whatever will have been inserted.
            number = hash_of(zipf_next(&worker->zipf, &worker->random, SCRAMBLED_ITEMS)) % worker->to;
        if (number <= last)
            return number;
    }
}

static enum operation next_operation(struct worker *worker) {
    unsigned drawn = (unsigned)random_below(&worker->random, 100), operation = 0;
    while (drawn >= worker->workload->shares[operation])
        drawn -= worker->workload->shares[operation++];
    return (enum operation)operation;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    while (!atomic_load_explicit(&stopped, memory_order_relaxed)) {
        if (options.seconds != 0 ? now_ns() >= deadline_ns : atomic_fetch_add(&begun, 1) >= options.operations)
            break;
        enum operation operation = next_operation(worker);
        if (operation == INSERT) {
            uint64_t number = atomic_fetch_add(&sequence.next, 1);
            operate(worker, INSERT, number);
            sequence_acknowledge(&sequence, number);
        } else {
            operate(worker, operation, next_number(worker));
        }
    }
    return NULL;
}

static void *load(void *argument) {
    struct worker *worker = argument;
    for (uint64_t number = worker->from; number < worker->to; number++)
        operate(worker, INSERT, number);
    return NULL;
}

// Every record that there is, in the order of keys, and among them every one that was loaded.
static uint64_t walk(struct worker *worker, char (*expected)[KEY_BYTES], uint64_t count) {
    struct record record;
    uint64_t at = 0;
    int result;
    while ((result = worker->cursor->next(worker->cursor)) == 0) {
        WT_ITEM key;
        take(worker, &record);
        worker->found++;
        check(worker->cursor->get_key(worker->cursor, &key), "get a key");
        if (at < count && key.size == strlen(expected[at]) && memcmp(key.data, expected[at], key.size) == 0)
            at++;
    }
    if (result != WT_NOTFOUND)
        check(result, "walk over the records");
    check(worker->cursor->reset(worker->cursor), "reset a cursor");
    return at;
}

static int compare_keys(const void *one, const void *other) {
    return strcmp(one, other);
}

static void check_records(struct worker *worker) {
    char(*expected)[KEY_BYTES] = malloc(options.records * sizeof *expected);
    if (!expected)
        fail("there is no memory for %" PRIu64 " keys", options.records);
    for (uint64_t number = 0; number < options.records; number++)
        key_of(expected[number], number);
    qsort(expected, options.records, sizeof *expected, compare_keys);
    options.verify = true;
    uint64_t at = walk(worker, expected, options.records);
    if (at != options.records)
        fail("%s: it has been loaded, and is not there; %" PRIu64 " records are", expected[at], worker->found);
    free(expected);
}

static void *sync_journal(void *argument) {
    WT_SESSION *session = argument;
    struct timespec pause = {options.sync_ms / 1000, (long)(options.sync_ms % 1000) * 1000000};
    while (!atomic_load(&stopped)) {
        nanosleep(&pause, NULL);
        check(session->log_flush(session, "sync=on"), "sync the journal");
    }
    return NULL;
}

static void prepare(struct worker *worker, unsigned index, const char *phase, const struct workload *workload) {
    uint64_t share = options.records / options.threads, seed = options.seed * 1000 + index;
    for (const char *letter = phase; *letter != '\0'; letter++)
        seed = seed * 31 + (unsigned char)*letter;
    worker->random.state = hash_of(seed);
    worker->workload = workload;
    worker->from = share * index;
    worker->to = index + 1 == options.threads ? options.records : share * (index + 1);
    worker->operations = worker->conflicts = worker->found = 0;
    memset(worker->latencies, 0, sizeof worker->latencies);
    if (workload != NULL) {
        // Twice what is expected to be inserted: CoreWorkload's guess, in which all keys have a place.
        worker->to = options.records + 1 + options.operations * workload->shares[INSERT] / 50;
        if (workload->latest)
            zipf_init(&worker->zipf, options.records - 1, latest_zetan);
        else
            zipf_init(&worker->zipf, SCRAMBLED_ITEMS, SCRAMBLED_ZETAN);
    }
    check(worker->session->open_cursor(worker->session, TABLE, NULL, NULL, &worker->cursor), "open " TABLE);
}

static const struct workload *workload_of(const char *phase) {
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++)
        if (phase[0] == workloads[i].name && phase[1] == '\0')
            return &workloads[i];
    return NULL;
}

// Runs a phase on all threads; returns its seconds.
static double run(const char *phase) {
    const struct workload *workload = workload_of(phase);
    bool is_load = strcmp(phase, "load") == 0, is_alone = workload == NULL && !is_load;
    unsigned threads = is_alone ? 1 : options.threads;
    if (workload != NULL && workload->latest && latest_zetan == 0)
        latest_zetan = zeta(0, options.records - 1, 0);
    for (unsigned index = 0; index < options.threads; index++)
        prepare(&workers[index], index, phase, workload);
    atomic_store(&begun, 0);
    uint64_t start = now_ns();
    deadline_ns = start + options.seconds * 1000000000u;
    if (strcmp(phase, "check") == 0)
        check_records(&workers[0]);
    else if (is_alone)
        walk(&workers[0], NULL, 0);
    else
        for (unsigned index = 0; index < threads; index++)
            if (pthread_create(&workers[index].thread, NULL, is_load ? load : work, &workers[index]) != 0)
                fail("a thread cannot be started");
    for (unsigned index = 0; !is_alone && index < threads; index++)
        pthread_join(workers[index].thread, NULL);
    double seconds = (double)(now_ns() - start) / 1e9;
    for (unsigned index = 0; index < options.threads; index++)
        check(workers[index].cursor->close(workers[index].cursor), "close a cursor");
    return seconds;
}

// ---- results ------------------------------------------------------------------------------------

static double us(uint64_t ns) {
    return (double)ns / 1e3;
}

static void print_operation(FILE *json, const char *phase, const char *name, const struct latency *latency,
                            double rate, bool is_first) {
    static const double quantiles[] = {0.5, 0.95, 0.99, 0.999};
    double found[4], mean = latency->count ? us(latency->sum) / (double)latency->count : 0;
    for (int i = 0; i < 4; i++)
        found[i] = us(latency_quantile(latency, quantiles[i]));
    printf("%-6s %-18s %10" PRIu64 " %12.0f %9.1f %9.1f %9.1f %9.1f %9.1f %10.1f\n", phase, name, latency->count,
           rate, mean, found[0], found[1], found[2], found[3], us(latency->max));
    if (json)
        fprintf(json,
                "%s\"%s\":{\"count\":%" PRIu64 ",\"per_second\":%.1f,\"mean_us\":%.3f,\"p50_us\":%.3f,"
                "\"p95_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f,\"max_us\":%.3f}",
                is_first ? "" : ",", name, latency->count, rate, mean, found[0], found[1], found[2], found[3],
                us(latency->max));
}

// What a phase has come to: a line of the table for each kind of operation, and for all of them.
static void print_phase(FILE *json, const char *phase, double seconds, bool is_first) {
    static struct latency all[OPERATIONS + 1];
    uint64_t conflicts = 0, found = 0;
    memset(all, 0, sizeof all);
    for (unsigned index = 0; index < options.threads; index++) {
        conflicts += workers[index].conflicts;
        found += workers[index].found;
        for (int operation = 0; operation < OPERATIONS; operation++) {
            latency_merge(&all[operation], &workers[index].latencies[operation]);
            latency_merge(&all[OPERATIONS], &workers[index].latencies[operation]);
        }
    }
    if (json)
        fprintf(json,
                "%s\n{\"phase\":\"%s\",\"seconds\":%.3f,\"operations\":%" PRIu64 ",\"per_second\":%.1f,"
                "\"conflicts\":%" PRIu64 ",\"records\":%" PRIu64 ",\"latency\":{",
                is_first ? "" : ",", phase, seconds, all[OPERATIONS].count, (double)all[OPERATIONS].count / seconds,
                conflicts, found);
    bool is_new = true;
    for (int operation = 0; operation < OPERATIONS; operation++) {
        if (all[operation].count > 0) {
            print_operation(json, phase, operation_names[operation], &all[operation],
                            (double)all[operation].count / seconds, is_new);
            is_new = false;
        }
    }
    if (is_new)
        printf("%-6s %" PRIu64 " records in %.2f s\n", phase, found, seconds);
    else
        print_operation(json, phase, "all", &all[OPERATIONS], (double)all[OPERATIONS].count / seconds, false);
    if (json)
        fputs("}}", json);
    fflush(stdout);
}

// ---- the database -------------------------------------------------------------------------------

static void open_database(const char *folder) {
    char config[1024];
    WT_SESSION *session;
    int length = snprintf(config, sizeof config,
                          "create,cache_size=%" PRIu64 "M,session_max=1000,eviction=(threads_min=4,threads_max=4),"
                          "config_base=false,statistics=(fast),log=(enabled=true,remove=true,path=journal),"
                          "file_manager=(close_idle_time=600,close_scan_interval=10,close_handle_minimum=2000),"
                          "checkpoint=(wait=%" PRIu64 "),transaction_sync=(enabled=%s,method=fsync)%s%s",
                          options.cache_mib, options.checkpoint_seconds, options.sync_commits ? "true" : "false",
                          options.config ? "," : "", options.config ? options.config : "");
    if (length < 0 || (size_t)length >= sizeof config)
        fail("--config: it is too long");
    char journal[4096];
    if ((mkdir(folder, 0755) != 0 && errno != EEXIST) ||
        snprintf(journal, sizeof journal, "%s/journal", folder) >= (int)sizeof journal ||
        (mkdir(journal, 0755) != 0 && errno != EEXIST))
        fail("%s: the folder cannot be made: %s", folder, strerror(errno));
    int result = wiredtiger_open(folder, NULL, config, &connection);
    if (result != 0)
        fail("%s: the database cannot be opened: %s", folder, wiredtiger_strerror(result));
    check(connection->open_session(connection, NULL, NULL, &session), "open a session");
    check(session->create(session, TABLE,
                          "key_format=u,value_format=u,type=file,memory_page_max=10m,internal_page_max=4KB,"
                          "leaf_page_max=32KB,split_pct=90,leaf_value_max=64MB,checksum=on,allocation_size=4KB"),
          "create " TABLE);
    check(session->close(session, NULL), "close a session");
    for (unsigned index = 0; index < options.threads; index++)
        check(connection->open_session(connection, NULL, "isolation=snapshot", &workers[index].session),
              "open a session");
}

// The numbers behind those that were loaded, as far as an earlier run has inserted some, are inserted again.
static void begin_sequence(void) {
    atomic_store(&sequence.next, options.records);
    atomic_store(&sequence.last, options.records - 1);
    pthread_mutex_init(&sequence.advancing, NULL);
    sequence.acknowledged = calloc(SEQUENCE_WINDOW, sizeof *sequence.acknowledged);
    if (!sequence.acknowledged)
        fail("there is no memory");
}

// ---- arguments ----------------------------------------------------------------------------------

static const char usage[] =
    "usage: ycsb_wt [OPTION ...] FOLDER PHASE ...\n"
    "\n"
    "  PHASE             load; a, b, c, d, e or f: a core workload of YCSB; warm: read everything once;\n"
    "                    check: every record that was loaded is there, and all are whole\n"
    "  -r RECORDS        how many are loaded, 100000: of 1000 bytes in ten fields\n"
    "  -n OPERATIONS     of a workload; as many as there are records\n"
    "  -s SECONDS        of a workload, instead of a number of operations\n"
    "  -t THREADS        2\n"
    "  -c MIB            WiredTiger's cache, 64\n"
    "  -k SECONDS        between two checkpoints, 60\n"
    "  -y SYNC           of the journal: milliseconds between two, 100, as MongoDB has it; commit: each commit\n"
    "                    waits for one; none\n"
    "  -u                all records are equally popular\n"
    "  -v                check every record that is read\n"
    "  -S SEED           1\n"
    "  -C CONFIG         more words for wiredtiger_open\n"
    "  -j FILE           the results as JSON, too\n";

static uint64_t number_of(const char *text, char option, uint64_t least, uint64_t most) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || number < least || number > most)
        fail("-%c %s: expected a number from %" PRIu64 " to %" PRIu64, option, text, least, most);
    return number;
}

static void parse_sync(const char *text) {
    options.sync_commits = strcmp(text, "commit") == 0;
    if (options.sync_commits || strcmp(text, "none") == 0)
        options.sync_ms = 0;
    else
        options.sync_ms = (unsigned)number_of(text, 'y', 1, 60000);
}

static void parse(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "r:n:s:t:c:k:y:uvS:C:j:h")) != -1) {
        switch (option) {
        case 'r': options.records = number_of(optarg, 'r', 2, 1000000000); break;
        case 'n': options.operations = number_of(optarg, 'n', 1, UINT64_MAX / 100); break;
        case 's': options.seconds = number_of(optarg, 's', 1, 1000000); break;
        case 't': options.threads = (unsigned)number_of(optarg, 't', 1, THREADS_MAX); break;
        case 'c': options.cache_mib = number_of(optarg, 'c', 1, 1 << 20); break;
        case 'k': options.checkpoint_seconds = number_of(optarg, 'k', 0, 100000); break;
        case 'y': parse_sync(optarg); break;
        case 'u': options.uniform = true; break;
        case 'v': options.verify = true; break;
        case 'S': options.seed = number_of(optarg, 'S', 0, UINT64_MAX / 2000); break;
        case 'C': options.config = optarg; break;
        case 'j': options.json = optarg; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (argc - optind < 2) {
        fputs(usage, stderr);
        exit(2);
    }
    for (int at = optind + 1; at < argc; at++)
        if (workload_of(argv[at]) == NULL && strcmp(argv[at], "load") != 0 && strcmp(argv[at], "warm") != 0 &&
            strcmp(argv[at], "check") != 0)
            fail("%s: there is no such phase; there are load, a, b, c, d, e, f, warm and check", argv[at]);
    if (options.operations == 0)
        options.operations = options.records;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    FILE *json = NULL;
    if (options.json && (json = fopen(options.json, "w")) == NULL)
        fail("%s: %s", options.json, strerror(errno));
    begin_sequence();
    open_database(argv[optind]);
    WT_SESSION *journal_session;
    pthread_t journal;
    if (options.sync_ms > 0) {
        check(connection->open_session(connection, NULL, NULL, &journal_session), "open a session");
        if (pthread_create(&journal, NULL, sync_journal, journal_session) != 0)
            fail("a thread cannot be started");
    }
    printf("%-6s %-18s %10s %12s %9s %9s %9s %9s %9s %10s\n", "phase", "operation", "count", "per second", "mean us",
           "p50", "p95", "p99", "p99.9", "max");
    fflush(stdout);
    if (json)
        fprintf(json, "{\"wiredtiger\":\"%s\",\"records\":%" PRIu64 ",\"threads\":%u,\"cache_mib\":%" PRIu64 ",\"phases\":[",
                wiredtiger_version(NULL, NULL, NULL), options.records, options.threads, options.cache_mib);
    for (int at = optind + 1; at < argc; at++) {
        double seconds = run(argv[at]);
        print_phase(json, argv[at], seconds, at == optind + 1);
    }
    atomic_store(&stopped, true);
    if (options.sync_ms > 0)
        pthread_join(journal, NULL);
    check(connection->close(connection, NULL), "close the database");
    if (json && (fputs("]}\n", json) < 0 || fclose(json) != 0))
        fail("%s: %s", options.json, strerror(errno));
    return 0;
}

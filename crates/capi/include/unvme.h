/*
 * What kv_apis.h and kvnvme.h cannot say: errors as text, the device's whole status, devices opened by name
 * alone, completions for event loops, blocks, queues, lists, appending, batches, sizes, Flexible Data
 * Placement, and memory with an alignment.
 *
 * A device opened here and one opened by kv_sdk_init() or kv_nvme_init() have handles of one kind: every
 * function takes either. Functions return an enum kv_result unless said otherwise; results are written only
 * on KV_SUCCESS. Any thread may call any function; a queue is used by one thread at a time.
 */
#ifndef UNVME_H
#define UNVME_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include "kv_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the library, such as "0.1.0". */
const char *unvme_version(void);

/* Errors. */

/*
 * Why the last call of this thread failed, in words; "" when it did not. Valid until the thread's next call.
 * In a callback: why the operation failed.
 */
const char *unvme_last_error(void);

/*
 * The status the device gave the last operation of this thread, or in a callback that operation: the status
 * field of its completion without the phase tag, code in bits 7:0, type in bits 10:8, retry hints above. 0
 * for success, and for an error that was found before a command was sent; unvme_last_error() tells them
 * apart.
 */
uint16_t unvme_last_status(void);

/* The name of an enum kv_result, such as "KV_ERR_NOT_EXIST_KEY"; "unknown" for any other number. */
const char *unvme_result_name(int result);

/*
 * The name of a status, NUL-terminated, as much as fits in size bytes. Returns the bytes that the whole name
 * has without the NUL. Statuses of either dialect that say the same of a pair have one name, with the number
 * of enum kv_result: "Key Does Not Exist (0x10)".
 */
size_t unvme_status_name(uint16_t status, char *buf, size_t size);

/* Devices by name. */

/* How a device is opened. Zeroes are the defaults: unvme_options o = { .size = sizeof o }; */
typedef struct unvme_options {
    size_t size;           /* sizeof(unvme_options), so that fields can be added */
    uint64_t slab_bytes;   /* for values on their way and for the cache; 0: 64 MiB */
    uint32_t queue_depth;  /* of an asynchronous queue, 1 to 4095; 0: 64 */
    uint32_t command_ms;   /* how long a command may take; 0: 30000 */
    bool cache;            /* read cache */
    bool poll;             /* no completion thread: callbacks come from kv_process_completion() */
    bool interrupts;       /* with poll: the device interrupts where it can, for unvme_completion_fd() */
} unvme_options;

/*
 * Opens a device: "0000:02:00.0", "mem:kv:1G", "mem:block:1G", "vfio-user:/path", of at most 255 bytes.
 * ssd_type is an enum kv_sdk_ssd_types; options may be NULL. KV_ERR_DD_NO_DEVICE when there is none of that
 * name, KV_ERR_SDK_OPEN for another reason. unvme_close() waits for what is outstanding; it cannot be called
 * in a callback (KV_ERR_SDK_CLOSE).
 */
int unvme_open(const char *name, int ssd_type, const unvme_options *options, uint64_t *handle);
int unvme_close(uint64_t handle);

/*
 * A descriptor for poll(), epoll and event loops, of a device without a completion thread: one opened with
 * options.poll, or configured with cq_thread_mask 0. A program that watches it calls kv_process_completion()
 * of kv_apis.h while it is readable, which calls the callbacks.
 *
 * It is readable, and stays so, while kv_process_completion() would call a callback, or has to look whether
 * it would. With options.interrupts, on devices that interrupt (drives on vfio-pci, those the kernel drives,
 * served ones, on a socket or the network), it becomes readable when something has completed, and now and
 * then once when nothing has. On all other devices and without options.interrupts queues are polled: somebody
 * has to look, so it is readable as long as asynchronous operations are outstanding, and not otherwise.
 * Blocking calls do not touch it.
 *
 * From the first call of this function on, the program is who makes progress: it also calls
 * kv_process_completion() when the descriptor has not become readable for as long as a command may take,
 * because a device that has died does not interrupt; that is what ends its operations with an error.
 *
 * There is one for each device, whatever the number of calls and handles. It is the library's, valid until
 * the device is closed: it is to be polled, neither read nor closed. KV_ERR_DD_INVALID_QUEUE_TYPE on a
 * device with completion threads, or without asynchronous queues.
 */
int unvme_completion_fd(uint64_t handle, int *fd);

/*
 * Key-value pairs, by key and length. keyspace is an enum kv_keyspace_id. Keys have 1 to 255 bytes; those of
 * kv_apis.h and kvnvme.h have KV_MIN_KEY_LEN (4) or more. Keys of 1 to 3 bytes are of the Key Value Command
 * Set: they are in keyspace 0, unvme_append() and compression do not take them (KV_ERR_INVALID_KEY_SIZE,
 * KV_ERR_DD_INVALID_PARAM), and a device with the vendor's commands alone has none. unvme_batch() and queues
 * store and delete them, queues retrieve them, unvme_list() lists them.
 */

/* The size of a value in bytes, without reading it. */
int unvme_value_size(uint64_t handle, uint8_t keyspace, const void *key, size_t key_length, uint64_t *bytes);

/* Adds bytes to the end of a value; of none when there is no such pair. The key has 4 to 255 bytes. */
int unvme_append(uint64_t handle, uint8_t keyspace, const void *key, size_t key_length, const void *value,
                 size_t value_length);

/* Called for each key of a listing; false ends it. The key is the library's, and gone after the call. */
typedef bool (*unvme_key_callback)(void *arg, const void *key, size_t length);

/*
 * Lists the keys that begin with prefix, which may be of any length (0: all keys), in an order of the
 * device's choice. Pairs that are stored or deleted meanwhile may be listed or not.
 */
int unvme_list(uint64_t handle, uint8_t keyspace, const void *prefix, size_t prefix_length,
               unvme_key_callback callback, void *arg);

/* kv_iterate_open() with its number apart from its result. */
int unvme_iterate_open(uint64_t handle, uint8_t keyspace, uint32_t bitmask, uint32_t prefix, uint8_t type,
                       uint8_t *iterator);

enum unvme_batch_verb {
    UNVME_BATCH_STORE = 0,
    UNVME_BATCH_DELETE = 1,
};

/* One operation of a batch. */
typedef struct unvme_batch_entry {
    uint8_t verb;     /* enum unvme_batch_verb */
    uint8_t keyspace; /* enum kv_keyspace_id */
    uint8_t option;   /* enum kv_store_option or enum kv_delete_option */
    uint8_t reserved; /* 0 */
    uint32_t key_length;
    const void *key;
    const void *value; /* store */
    size_t value_length;
    int result;        /* out: an enum kv_result */
    uint32_t reserved2; /* 0 */
} unvme_batch_entry;

/*
 * Does several operations, in order; each has its own result. KV_SUCCESS when all succeeded, else the first
 * other result. An operation that fails does not stop the others. Each is a command of its own: together they
 * are not atomic.
 */
int unvme_batch(uint64_t handle, unvme_batch_entry *entries, size_t count);

/*
 * Logical blocks, for devices of LBA_TYPE_SSD. Lengths are whole blocks and at most 2 MiB for the
 * asynchronous calls.
 */

typedef struct unvme_block_info {
    uint64_t blocks;
    uint32_t block_bytes;
    uint32_t transfer_bytes_max; /* of one command; unvme_read() and unvme_write() take any length */
} unvme_block_info;

int unvme_block_info_get(uint64_t handle, unvme_block_info *info);
int unvme_read(uint64_t handle, uint64_t lba, uint64_t blocks, void *buf);
int unvme_write(uint64_t handle, uint64_t lba, uint64_t blocks, const void *buf);
int unvme_deallocate(uint64_t handle, uint64_t lba, uint64_t blocks);
int unvme_flush(uint64_t handle);

/*
 * Called once for each operation that was accepted: an enum kv_result, and unvme_last_status() and so on as
 * above.
 */
typedef void (*unvme_callback)(void *arg, int result);

int unvme_read_async(uint64_t handle, uint64_t lba, uint32_t blocks, void *buf, unvme_callback callback, void *arg);
int unvme_write_async(uint64_t handle, uint64_t lba, uint32_t blocks, const void *buf, unvme_callback callback,
                      void *arg);

/*
 * Flexible Data Placement, for devices of LBA_TYPE_SSD that have it: a write says which data belongs
 * together, and the device keeps it together. A placement identifier stands for a reclaim unit that writes
 * fill; unvme_fdp_status() lists those of the device. One that it has not is KV_ERR_DD_INVALID_PARAM, and
 * unvme_last_error() says which it has. A device without FDP answers with a status, KV_ERR_IO: 0x029 when FDP
 * is disabled, 0x001 when it does not know it.
 */

/* Where a placement identifier writes now. */
typedef struct unvme_fdp_handle {
    uint16_t placement;    /* the placement identifier */
    uint16_t ruhid;        /* its reclaim unit handle */
    uint32_t seconds_left; /* until the reclaim unit's time is over; 0 when the device does not say */
    uint64_t blocks_left;  /* logical blocks that still fit in the reclaim unit */
} unvme_fdp_handle;

/*
 * The placement identifiers, at most room of them; handles may be NULL when room is 0. Writes to *count how
 * many there are.
 */
int unvme_fdp_status(uint64_t handle, unvme_fdp_handle *handles, size_t room, size_t *count);

/*
 * Bytes since FDP was enabled. Write amplification is what media_bytes grew by, divided by what host_bytes
 * grew by.
 */
typedef struct unvme_fdp_stats {
    uint64_t host_bytes;   /* written by hosts; UINT64_MAX stands for that and more, here and below */
    uint64_t media_bytes;  /* written to the media, for hosts and to move data */
    uint64_t erased_bytes; /* erased on the media */
} unvme_fdp_stats;

/*
 * Of the device's first endurance group. KV_ERR_DD_UNSUPPORTED_CMD when the device has no Flexible Data
 * Placement.
 */
int unvme_fdp_stats_get(uint64_t handle, unvme_fdp_stats *stats);

/* What is written to these placement identifiers from now on goes to empty reclaim units. */
int unvme_fdp_update(uint64_t handle, const uint16_t *placements, size_t count);

/* unvme_write() and unvme_write_async() to a placement identifier. */
int unvme_write_placed(uint64_t handle, uint64_t lba, uint64_t blocks, const void *buf, uint16_t placement);
int unvme_write_placed_async(uint64_t handle, uint64_t lba, uint32_t blocks, const void *buf, uint16_t placement,
                             unvme_callback callback, void *arg);

/*
 * Queues: submit and poll. A queue is one of the device's own queue pairs, for one thread at a time; open one
 * for each thread. Nothing is locked or allocated between a command and its completion, and memory of
 * unvme_alloc() is copied neither way, wherever in it the data begins; other memory is.
 *
 * A command may be longer than the device takes at once (unvme_queue_info.transfer_bytes_max): it is cut, and
 * completes once, with the first status that is not success. Values are one command of the device each.
 *
 * unvme_close() makes the handle void; the device is let go when its queues are closed as well.
 */
typedef struct unvme_queue unvme_queue;

/* How unvme_queue_wait() waits. */
enum unvme_completion_mode {
    UNVME_COMPLETION_POLL = 0,      /* looks until something is there */
    UNVME_COMPLETION_INTERRUPT = 1, /* sleeps until the device interrupts */
    UNVME_COMPLETION_HYBRID = 2,    /* looks for as long as commands have lately taken, then sleeps */
};

/* With which commands pairs are stored and retrieved. */
enum unvme_pair_commands {
    UNVME_PAIRS_ANY = 0,      /* those of the Key Value Command Set where they can do it, else the vendor's */
    UNVME_PAIRS_STANDARD = 1, /* those of the Key Value Command Set alone */
    UNVME_PAIRS_VENDOR = 2,   /* the vendor's alone: those of the uNVMe SDK's drives */
};

/* The class of a queue, for a controller that arbitrates by NVMe's weighted round robin. */
enum unvme_queue_priority {
    UNVME_PRIORITY_NONE = 0,   /* as all queues that say nothing: medium */
    UNVME_PRIORITY_URGENT = 1, /* before all others */
    UNVME_PRIORITY_HIGH = 2,
    UNVME_PRIORITY_MEDIUM = 3,
    UNVME_PRIORITY_LOW = 4,
};

/* How a queue is opened. Zeroes are the defaults: unvme_queue_options o = { .size = sizeof o }; */
typedef struct unvme_queue_options {
    size_t size;         /* sizeof(unvme_queue_options) */
    uint32_t depth;      /* commands that can be outstanding, 1 to 4095, or as many as the device takes; 0: 128 */
    uint32_t nsid;       /* namespace, of blocks or of pairs; 0: that of the handle */
    uint32_t command_ms; /* how long a command may take before it is aborted; 0: 30000 */
    uint8_t completion;  /* enum unvme_completion_mode */
    uint8_t commands;    /* enum unvme_pair_commands */
    uint8_t priority;    /* enum unvme_queue_priority; an error where the controller has no classes */
    uint8_t reserved;    /* 0 */
} unvme_queue_options;

/* What a queue leads to, and how it does. */
typedef struct unvme_queue_info {
    size_t size; /* sizeof(unvme_queue_info), set before the call */
    uint32_t nsid;
    uint32_t depth;
    int32_t ssd_type;            /* enum kv_sdk_ssd_types */
    uint32_t block_bytes;        /* 0 of pairs */
    uint64_t bytes;              /* of the namespace */
    uint64_t transfer_bytes_max; /* of one command of the device */
    uint64_t value_bytes_max;    /* of one command; 0 of blocks */
    uint16_t key_length_min;
    uint16_t key_length_max;
    uint8_t completion; /* enum unvme_completion_mode: polling where the device does not interrupt */
    uint8_t reserved[3];
} unvme_queue_info;

enum unvme_verb {
    UNVME_READ = 0,
    UNVME_WRITE = 1,
    UNVME_COMPARE = 2,      /* blocks with data; status 0x285 when they differ */
    UNVME_VERIFY = 3,       /* whether blocks can be read; no data */
    UNVME_WRITE_ZEROES = 4, /* no data */
    UNVME_DEALLOCATE = 5,   /* no data */
    UNVME_FLUSH = 6,        /* what was completed before is on the media */
    UNVME_STORE = 7,
    UNVME_RETRIEVE = 8, /* value_bytes of the completion is the size of the whole value, which may be longer */
    UNVME_DELETE = 9,
    UNVME_EXIST = 10,  /* KV_SUCCESS or KV_ERR_NOT_EXIST_KEY */
    UNVME_APPEND = 11, /* to the end of a value */
};

enum unvme_flag {
    UNVME_FUA = 1,             /* READ, WRITE, COMPARE: from or to the media itself */
    UNVME_PLACED = 2,          /* WRITE: to the placement identifier */
    UNVME_DEALLOCATE_ZEROES = 4, /* WRITE_ZEROES: give the space back, too */
    UNVME_MUST_EXIST = 8,      /* STORE: over a pair that is there; DELETE: none is KV_ERR_NOT_EXIST_KEY */
    UNVME_MUST_NOT_EXIST = 16, /* STORE: a new pair */
};

typedef struct unvme_command {
    uint8_t verb;        /* enum unvme_verb */
    uint8_t keyspace;    /* pairs: enum kv_keyspace_id */
    uint16_t flags;      /* enum unvme_flag */
    uint16_t placement;  /* with UNVME_PLACED */
    uint16_t key_length; /* pairs */
    uint64_t lba;        /* blocks: the first */
    uint64_t length;     /* bytes: of the value, or of the blocks, a multiple of block_bytes */
    const void *key;     /* pairs; not used after the call */
    void *data;          /* the device's until the completion is polled */
    uint64_t token;      /* comes back with the completion */
} unvme_command;

typedef struct unvme_completion {
    uint64_t token;
    uint64_t value_bytes; /* RETRIEVE */
    int32_t result;       /* enum kv_result */
    uint16_t status;      /* as unvme_last_status() */
    uint16_t reserved;
} unvme_completion;

/*
 * KV_ERR_DD_NO_AVAILABLE_RESOURCE when the device has no queue left, KV_ERR_DD_INVALID_PARAM for a
 * namespace that it has not, KV_ERR_DD_UNSUPPORTED_CMD for commands and classes of queues that it has not.
 */
int unvme_queue_open(uint64_t handle, const unvme_queue_options *options, unvme_queue **queue);

/*
 * Commands that are outstanding are forgotten; memory of unvme_alloc() that they have stays until they end.
 * KV_ERR_SDK_INVALID_PARAM for what is not an open queue.
 */
int unvme_queue_close(unvme_queue *queue);

int unvme_queue_info_get(unvme_queue *queue, unvme_queue_info *info);

/*
 * Submitting, ringing and polling leave unvme_last_error() and unvme_last_status() as they were when they
 * succeed.
 *
 * Takes a command; the device learns of it with unvme_queue_ring(). KV_ERR_DD_NO_AVAILABLE_RESOURCE when
 * depth commands have not been polled. A command that is refused has no completion.
 */
int unvme_queue_submit(unvme_queue *queue, const unvme_command *command);
int unvme_queue_ring(unvme_queue *queue);

/* Takes up to max commands that have finished; how many they were goes to *count. Never waits. */
int unvme_queue_poll(unvme_queue *queue, unvme_completion *completions, size_t max, size_t *count);

/*
 * Waits until there may be something to poll, or the time is over: KV_SUCCESS either way. Rings first.
 * Another result says what is wrong with the device; its commands are polled all the same.
 */
int unvme_queue_wait(unvme_queue *queue, uint32_t timeout_ms);

/* Commands that were taken and not polled. */
size_t unvme_queue_outstanding(unvme_queue *queue);

/*
 * I/O handles: several ways to one device of blocks, each with policies of its own. Handles of one device
 * know each other: who sends next is decided between them, over all queues and threads of the process, and
 * what one has cached the others read. docs/handles.md says what the policies mean. Any thread may use a
 * handle.
 */
typedef struct unvme_io unvme_io;

/*
 * Chooses a queue of those that the handles of a namespace share, for a command (enum unvme_verb) on blocks
 * counted from the beginning of the namespace: an index, of which the remainder by their number is taken. It
 * is called by every thread that uses the handle, and must not use it itself.
 */
typedef size_t (*unvme_io_chooser)(void *arg, int verb, uint64_t lba, uint32_t blocks);

/* How a handle is opened. Zeroes are the defaults: unvme_io_options o = { .size = sizeof o }; */
typedef struct unvme_io_options {
    size_t size;          /* sizeof(unvme_io_options) */
    uint32_t nsid;        /* namespace; 0: that of the device's handle */
    uint32_t reserved;    /* 0 */
    uint64_t first_block; /* where its partition begins */
    uint64_t blocks;      /* of its partition; 0: all from there on */
    const char *policies; /* "cache=write-back:64M:lru,sched=share:8,limit=iops:1000,complete=hybrid,stream=2,"
                             "queue=own": each may be left out; NULL: nothing is cached, first come first served */
    unvme_io_chooser choose_queue; /* NULL: what policies say; else they have no queue= */
    void *arg;                     /* of choose_queue */
} unvme_io_options;

/* What a handle leads to, and what its cache has done. */
typedef struct unvme_io_info {
    size_t size; /* sizeof(unvme_io_info), set before the call */
    uint32_t nsid;
    uint32_t block_bytes;
    uint64_t first_block;
    uint64_t blocks;
    uint64_t cache_hits;   /* pages of 4 KiB that were asked for and there */
    uint64_t cache_misses; /* and those that had to be read */
    uint64_t cached_bytes;
    uint64_t dirty_bytes; /* that wait to be written */
} unvme_io_info;

/*
 * KV_ERR_SDK_INVALID_PARAM for policies that are none: unvme_last_error() has the word and what is known.
 * KV_ERR_DD_INVALID_PARAM for a partition or a placement identifier that the namespace has not.
 */
int unvme_io_open(uint64_t handle, const unvme_io_options *options, unvme_io **io);

/*
 * Writes what waits to be written, without a flush. What could not be written is lost: the result says so,
 * and the handle is closed. Nobody may use it meanwhile. Commands that were not polled are forgotten.
 */
int unvme_io_close(unvme_io *io);

/*
 * Has a handle have other policies, at once, and says which it has: as text of at most size bytes with its
 * end, and how long the whole text is; either place may be NULL or of 0 bytes. What is said can be set. A
 * function that chooses the queue does so as long as the handle is open, and queue= is refused
 * (KV_ERR_SDK_INVALID_PARAM). What waits to be written is written before a cache is given up; when that
 * fails, the schedule and the limit are the new ones, and nothing else.
 */
int unvme_io_set(unvme_io *io, const char *policies);
int unvme_io_get(unvme_io *io, char *policies, size_t size, size_t *length);

int unvme_io_info_get(unvme_io *io, unvme_io_info *info);

/*
 * Calls that wait, of any length. Blocks are counted from the beginning of the partition; what is beyond its
 * end is KV_ERR_DD_INVALID_PARAM, whether it begins there or only ends.
 */
int unvme_io_read(unvme_io *io, uint64_t lba, uint64_t blocks, void *buf);
int unvme_io_write(unvme_io *io, uint64_t lba, uint64_t blocks, const void *buf);

/*
 * Has everything that was written before on the device, and durable. What could not be written, now or since
 * the last flush, is told once; it waits on, and is tried again.
 */
int unvme_io_flush(unvme_io *io);
int unvme_io_deallocate(unvme_io *io, uint64_t lba, uint64_t blocks);

/*
 * Takes a command of READ, WRITE, DEALLOCATE or FLUSH, and returns; its flags are 0, and its data is the
 * handle's until it is polled. KV_ERR_DD_NO_AVAILABLE_RESOURCE when 4095 were not polled. Polling and waiting
 * are as those of queues.
 */
int unvme_io_submit(unvme_io *io, const unvme_command *command);
int unvme_io_poll(unvme_io *io, unvme_completion *completions, size_t max, size_t *count);
int unvme_io_wait(unvme_io *io, uint32_t timeout_ms);
size_t unvme_io_outstanding(unvme_io *io);

/* Bytes that the I/O handles of a device may have in flight while several are awake; a command adds 16 KiB
 * to its own. */
int unvme_io_window_set(uint64_t handle, uint64_t bytes);

/*
 * Faults by script, on virtual devices, here or served by another process. rules is JSON: one rule or an
 * array of them, such as {"match": {"opcode": "write", "after": 2, "count": 1}, "act": {"status": "0x281"}};
 * docs/faults.md describes it. All of them are added, or none: KV_ERR_SDK_INVALID_PARAM, and
 * unvme_last_error() says what is wrong, with line and column. first may be NULL; otherwise the number of the
 * first rule added is written to it. Rules stay with the device until they are cleared.
 * KV_ERR_DD_UNSUPPORTED_CMD when the device takes no rules.
 */
int unvme_fault_add(uint64_t handle, const char *rules, uint32_t *first);

/* Clears the rule with this number; 0 clears all. */
int unvme_fault_clear(uint64_t handle, uint32_t id);

/*
 * The rules and how often each has acted, as JSON: [{"rule": {...}, "matched": 3, "hits": 1}]. At most size -
 * 1 bytes and a NUL are written to buf, which may be NULL when size is 0; *length is the length of the whole
 * text, without the NUL.
 */
int unvme_fault_list(uint64_t handle, char *buf, size_t size, size_t *length);

/*
 * Memory for operations that copy nothing: kv_nvme_write() and kv_nvme_read() of a value at the start of such
 * memory let the device at it directly. alignment is a power of two up to 4096, or 0 for that of kv_alloc().
 * Zeroed; NULL when there is none, or for another alignment.
 */
void *unvme_alloc(size_t bytes, size_t alignment);

/* Frees memory of unvme_alloc(), and that of kv_alloc() and kv_zalloc(); kv_free() does the same. */
void unvme_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif /* UNVME_H */

/*
 * Types and values of the key-value SDK, as programs written for the uNVMe 2.0 SDK know them.
 *
 * Sizes, offsets and values are part of the ABI; tests/c/layout.c holds them as literals.
 */
#ifndef KV_TYPES_C_H
#define KV_TYPES_C_H

#include <stdint.h>
#include <stdbool.h>
#include <pthread.h>

/* Limits. */

#define KV_MIN_VALUE_LEN 0
/* Longest value of one command, in bytes. */
#define KV_MAX_IO_VALUE_LEN (2 * 1024 * 1024)
/* Longest transfer of one command on a block device, in bytes. */
#define LBA_MAX_IO_VALUE_LEN (2 * 1024 * 1024)
#define KV_MIN_KEY_LEN 4
#define KV_MAX_KEY_LEN 255
/* Where the first key record is in the buffer of kv_iterate_read(): after the number of keys. */
#define KV_ITERATE_READ_BUFFER_OFFSET 4
/* value.offset of a retrieve is a multiple of this. */
#define KV_ALIGNMENT_UNIT 512
/* value.length of a retrieve is a multiple of this. */
#define KV_VALUE_LENGTH_ALIGNMENT_UNIT 4
/* The only size that kv_iterate_read() takes, in bytes. */
#define KV_ITERATE_READ_BUFFER_SIZE (32 * 1024)
/* Iterators a device can have open. */
#define KV_MAX_ITERATE_HANDLE 16

/* Bytes of a device name, the terminating 0 included. */
#define DEV_ID_LEN 32
#define NR_MAX_SSD 64
#define MAX_CPU_CORES 64
/* Memory of any NUMA node. */
#define SOCKET_ID_ANY (-1)

/* What the functions that return a size return when they fail. */
#define KV_ERR_INVALID_VALUE UINT64_MAX
/* Never the number of an open iterator. */
#define KV_INVALID_ITERATE_HANDLE 0

/* What the second argument of kv_sdk_init() is. */
enum kv_sdk_init_types {
    KV_SDK_INIT_FROM_JSON = 0x00, /* the path of a file, const char * */
    KV_SDK_INIT_FROM_STR = 0x01,  /* a structure, kv_sdk * */
};

enum kv_sdk_ssd_types {
    KV_TYPE_SSD = 0x00,  /* keys and values */
    LBA_TYPE_SSD = 0x01, /* logical blocks */
};

enum kv_cache_algorithm {
    CACHE_ALGORITHM_RADIX = 0x00,
};

enum kv_cache_reclaim {
    CACHE_RECLAIM_LRU = 0x00,
};

enum kv_slab_mm_alloc_policy {
    SLAB_MM_ALLOC_POSIX = 0x10, /* ordinary memory */
    SLAB_MM_ALLOC_HUGE = 0x20,  /* huge pages, where there are any */
};

enum kv_store_option {
    KV_STORE_DEFAULT = 0x00,     /* create or overwrite */
    KV_STORE_COMPRESSION = 0x01, /* the device may compress the value */
    KV_STORE_IDEMPOTENT = 0x02,  /* KV_ERR_IDEMPOTENT_STORE_FAIL when the key exists */
};

enum kv_retrieve_option {
    KV_RETRIEVE_DEFAULT = 0x00,
    KV_RETRIEVE_DECOMPRESSION = 0x01,
};

enum kv_delete_option {
    KV_DELETE_DEFAULT = 0x00,          /* success also when there is no such key */
    KV_DELETE_CHECK_IDEMPOTENT = 0x01, /* KV_ERR_NOT_EXIST_KEY when there is no such key */
};

enum kv_exist_option {
    KV_EXIST_DEFAULT = 0x00,
};

enum kv_format_option {
    KV_FORMAT_MAPDATA = 0x00,  /* forget what is where */
    KV_FORMAT_USERDATA = 0x01, /* erase it too */
};

enum kv_iterate_request_option {
    KV_ITERATE_REQUEST_DEFAULT = 0x00,
    KV_ITERATE_REQUEST_OPEN = 0x01,
    KV_ITERATE_REQUEST_CLOSE = 0x02,
};

enum kv_iterate_read_option {
    KV_ITERATE_READ_DEFAULT = 0x00,
};

enum kv_iterate_handle_type {
    KV_KEY_ITERATE = 0x01,
    KV_KEY_ITERATE_WITH_RETRIEVE = 0x02, /* not offered: KV_ERR_ITERATE_ERROR */
    KV_KEY_ITERATE_WITH_DELETE = 0x03,   /* the device deletes what matches, in the background */
};

enum kv_keyspace_id {
    KV_KEYSPACE_IODATA = 0x00,
    KV_KEYSPACE_METADATA = 0x01,
};

enum kv_sdk_iterate_status {
    ITERATE_HANDLE_OPENED = 0x01,
    ITERATE_HANDLE_CLOSED = 0x00,
};

/* What the functions return. */
enum kv_result {
    KV_SUCCESS = 0x00,

    /* What a key-value device answers. */
    KV_ERR_INVALID_VALUE_SIZE = 0x01,
    KV_ERR_INVALID_VALUE_OFFSET = 0x02,
    KV_ERR_INVALID_KEY_SIZE = 0x03,
    KV_ERR_INVALID_OPTION = 0x04,
    KV_ERR_INVALID_KEYSPACE_ID = 0x05,
    KV_ERR_MISALIGNED_VALUE_SIZE = 0x08,
    KV_ERR_MISALIGNED_VALUE_OFFSET = 0x09,
    KV_ERR_MISALIGNED_KEY_SIZE = 0x0A,
    KV_ERR_NOT_EXIST_KEY = 0x10,
    KV_ERR_UNRECOVERED_ERROR = 0x11,
    KV_ERR_CAPACITY_EXCEEDED = 0x12,
    KV_ERR_IDEMPOTENT_STORE_FAIL = 0x80,
    KV_ERR_MAXIMUM_VALUE_SIZE_LIMIT_EXCEEDED = 0x81,
    KV_ERR_ITERATE_FAIL_TO_PROCESS_REQUEST = 0x90,
    KV_ERR_ITERATE_NO_AVAILABLE_HANDLE = 0x91,
    KV_ERR_ITERATE_HANDLE_ALREADY_OPENED = 0x92,
    KV_ERR_ITERATE_READ_EOF = 0x93,
    KV_ERR_ITERATE_REQUEST_FAIL = 0x94,
    KV_ERR_ITERATE_TCG_LOCKED = 0x95,
    KV_ERR_ITERATE_ERROR = 0x96,

    /* What the driver answers. */
    KV_ERR_DD_NO_DEVICE = 0x100,
    KV_ERR_DD_INVALID_PARAM = 0x101,
    KV_ERR_DD_INVALID_QUEUE_TYPE = 0x102,
    KV_ERR_DD_NO_AVAILABLE_RESOURCE = 0x103,
    KV_ERR_DD_NO_AVAILABLE_QUEUE = 0x104,
    KV_ERR_DD_UNSUPPORTED_CMD = 0x105,
    KV_ERR_DD_ITERATE_COND_INVALID = 0x106,

    /* What the SDK answers. */
    KV_ERR_SDK_OPEN = 0x200,
    KV_ERR_SDK_CLOSE = 0x201,
    KV_ERR_CACHE_NO_CACHED_KEY = 0x202,
    KV_ERR_CACHE_INVALID_PARAM = 0x203,
    KV_ERR_HEAP_ALLOC_FAILURE = 0x204,
    KV_ERR_SLAB_ALLOC_FAILURE = 0x205,
    KV_ERR_SDK_INVALID_PARAM = 0x206,

    KV_WRN_MORE = 0x300,
    KV_ERR_BUFFER = 0x301,
    KV_ERR_DECOMPRESSION = 0x302,
    /* Anything else; unvme_last_status() and unvme_last_error() of unvme.h say what. */
    KV_ERR_IO = 0x303,
};

/* Queues and threads of one device. A core_mask of 0: all is chosen for the program. */
typedef struct {
    uint64_t core_mask;      /* CPUs that have a queue to the device */
    uint64_t sync_mask;      /* those of them whose queue is synchronous */
    uint64_t num_cq_threads; /* threads that handle completions; the number of bits of cq_thread_mask */
    uint64_t cq_thread_mask; /* CPUs of those threads; 0: callers of kv_process_completion() */
    uint32_t queue_depth;    /* commands outstanding on one asynchronous queue */
    uint32_t mem_size_mb;    /* unused here */
} kv_nvme_io_options;

/* The configuration of the SDK. kv_sdk_init() writes back what it made of it. */
typedef struct {
    bool use_cache;                /* read cache */
    int cache_algorithm;           /* enum kv_cache_algorithm */
    int cache_reclaim_policy;      /* enum kv_cache_reclaim */
    uint64_t slab_size;            /* bytes of cache and I/O buffers, for each device */
    int slab_alloc_policy;         /* enum kv_slab_mm_alloc_policy */
    int ssd_type;                  /* enum kv_sdk_ssd_types */
    int submit_retry_interval;     /* microseconds between tries when a queue is full; -1: do not retry */
    int nr_ssd;                    /* devices; 0: as many as there are names */
    char dev_id[NR_MAX_SSD][DEV_ID_LEN];
    kv_nvme_io_options dd_options[NR_MAX_SSD];
    uint64_t dev_handle[NR_MAX_SSD]; /* set by kv_sdk_init() */
    int log_level;                 /* 0 nothing, 1 errors, 2 also init and finalize, 3 also every operation */
    char log_file[1024];
    pthread_mutex_t cb_cnt_mutex;  /* for the program's own use */
    uint64_t app_hugemem_size;     /* bytes the program means to take with kv_alloc() */
} kv_sdk;

typedef struct {
    void *key;
    uint16_t length; /* bytes */
} kv_key;

typedef struct {
    void *value;
    uint32_t length;            /* in: bytes of the buffer; out: bytes in the buffer */
    uint32_t actual_value_size; /* out: bytes of the whole value from the offset on */
    uint32_t offset;            /* bytes of the value to skip */
} kv_value;

typedef struct {
    /*
     * Called when an asynchronous operation has finished, with (kv_pair *, unsigned int result, unsigned int
     * status); the first argument is a kv_iterate * for kv_iterate_read_async(). May be NULL. It may free its
     * kv_pair.
     *
     * It has no prototype because programs assign callbacks of either kind. C23 and C++ read () as (void):
     * assign with a cast there, or compile with -std=gnu11.
     */
    void (*async_cb)();
    void *private_data; /* for the program's own use */
    union {
        int store_option;
        int retrieve_option;
        int delete_option;
        int iterate_request_option;
        int iterate_read_option;
        int exist_option;
    } io_option;
} kv_param;

typedef struct {
    uint8_t keyspace_id; /* enum kv_keyspace_id */
    kv_key key;
    kv_value value;
    kv_param param;
} kv_pair;

typedef struct {
    uint32_t iterator; /* as kv_iterate_open() returned it */
    kv_pair kv;        /* value: where the keys go */
} kv_iterate;

typedef struct {
    uint8_t handle_id;
    uint8_t status; /* enum kv_sdk_iterate_status */
    uint8_t type;   /* enum kv_iterate_handle_type */
    uint8_t keyspace_id;
    uint32_t prefix;  /* as given to kv_iterate_open() */
    uint32_t bitmask; /* as given to kv_iterate_open() */
    uint8_t is_eof;   /* 1: nothing is left to read, or to delete */
    uint8_t reserved[3];
} kv_iterate_handle_info;

#endif /* KV_TYPES_C_H */

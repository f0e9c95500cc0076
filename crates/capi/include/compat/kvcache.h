/* A cache of pairs by itself, without a device: what the original SDK's cache tests measure. */
#ifndef _KVCACHE_H_
#define _KVCACHE_H_

#include <stdint.h>
#include <stdio.h>
#include <pthread.h>

#include "kv_types.h"
#include "kv_apis.h"
#include "kvradix.h"
#include "kvslab.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kv_cache_result {
    KV_CACHE_SUCCESS = 0,
    KV_CACHE_ERR_NO_CACHED_KEY = -1,
    KV_CACHE_ERR_INVALID_PARAM = -2,
    KV_CACHE_ERR_ALLOC_FAILURE = -3,
};

/* All return an enum kv_cache_result. Pairs are told apart by keyspace and key. */
int kv_cache_init(void);
int kv_cache_finalize(void);
/* Keeps a copy of key and value. */
int kv_cache_write(kv_pair *pair);
/* Copies at most value.length bytes to value.value, and sets value.length and value.actual_value_size. */
int kv_cache_read(kv_pair *pair);
int kv_cache_delete(kv_pair *pair);

#ifdef __cplusplus
}
#endif

#endif /* _KVCACHE_H_ */

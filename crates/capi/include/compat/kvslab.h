/* Pairs with room for their key and value, from ordinary memory or from a slab. */
#ifndef _KVSLAB_H_
#define _KVSLAB_H_

#include <stddef.h>

#include "kv_types.h"
#include "kv_apis.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A slab of total_slab_size bytes for each of nr_ssd devices. 0, or an enum kv_result; it is an error to have
 * one already.
 */
int kvslab_init(size_t total_slab_size, int slab_alloc_policy, int nr_ssd);
/* Gives its memory back, and with it every pair and iterator from it that was not freed. */
int kvslab_destroy(void);

/*
 * A pair whose key.key and value.value have the bytes that were asked for, zeroed; NULL when there is no
 * memory.
 */
kv_pair *posix_alloc_pair(int key_len, int value_len, int flag);
kv_pair *slab_alloc_pair(int key_len, int value_len, int did);
kv_iterate *slab_alloc_iterate(int key_len, int value_len, int did);
void posix_free_pair(kv_pair *kv);
void slab_free_pair(kv_pair *kv);
void slab_free_iterate(kv_iterate *it);

#ifdef __cplusplus
}
#endif

#endif /* _KVSLAB_H_ */

/* A map from byte strings to pointers. */
#ifndef _KVRADIX_H_
#define _KVRADIX_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    void *root;
    uint64_t size; /* entries */
} art_tree;

/* 0, or -1. A tree is used by one thread at a time. Destroying it leaves what the values point to alone. */
int art_tree_init(art_tree *t);
int art_tree_destroy(art_tree *t);

/* The value that was there before, or NULL. */
void *art_insert(art_tree *t, const unsigned char *key, int key_len, void *value);
/* The value, or NULL. */
void *art_search(const art_tree *t, const unsigned char *key, int key_len);
/* The value that was removed, or NULL. */
void *art_delete(art_tree *t, const unsigned char *key, int key_len);

#ifdef __cplusplus
}
#endif

#endif /* _KVRADIX_H_ */

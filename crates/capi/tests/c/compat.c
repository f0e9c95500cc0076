/*
 * The helper headers, used as the original SDK's programs use them, from two files that are linked without
 * common symbols (see overriding.c, the other one).
 */
#include <math.h>

#include "check.h"
#include "kv_trace.h"
#include "kvcache.h"
#include "kvradix.h"
#include "kvslab.h"
#include "kvutil.h"

extern int overriding_calls(void);

static void radix_trees_hold_pointers(void)
{
    art_tree tree;
    char key[32];
    static int values[1000];
    EQUAL(art_tree_init(&tree), 0);
    for (int i = 0; i < 1000; i++) {
        sprintf(key, "key%13d", i);
        TRUE(art_insert(&tree, (unsigned char *)key, strlen(key), &values[i]) == NULL);
    }
    EQUAL(tree.size, 1000);
    TRUE(art_insert(&tree, (unsigned char *)key, strlen(key), &values[0]) == &values[999]);
    for (int i = 0; i < 1000; i += 2) {
        sprintf(key, "key%13d", i);
        TRUE(art_delete(&tree, (unsigned char *)key, strlen(key)) == &values[i]);
        TRUE(art_delete(&tree, (unsigned char *)key, strlen(key)) == NULL);
        TRUE(art_search(&tree, (unsigned char *)key, strlen(key)) == NULL);
    }
    EQUAL(tree.size, 500);
    sprintf(key, "key%13d", 1);
    TRUE(art_search(&tree, (unsigned char *)key, strlen(key)) == &values[1]);
    EQUAL(art_tree_destroy(&tree), 0);
    TRUE(art_search(&tree, (unsigned char *)key, strlen(key)) == NULL);
    EQUAL(art_tree_destroy(&tree), 0);
    EQUAL(art_tree_init(NULL), -1);
}

static void a_cache_by_itself_keeps_copies(void)
{
    EQUAL(kv_cache_write(pair_of("before it is there", 8, 0)), KV_CACHE_ERR_INVALID_PARAM);
    EQUAL(kv_cache_init(), KV_CACHE_SUCCESS);
    EQUAL(kv_cache_read(pair_of("missing", 8, 0)), KV_CACHE_ERR_NO_CACHED_KEY);
    EQUAL(kv_cache_delete(pair_of("missing", 8, 0)), KV_CACHE_ERR_NO_CACHED_KEY);
    EQUAL(kv_cache_write(pair_of("cached", 100, 'c')), KV_CACHE_SUCCESS);
    kv_pair *pair = pair_of("cached", 10, '-');
    EQUAL(kv_cache_read(pair), KV_CACHE_SUCCESS);
    EQUAL(pair->value.length, 10);
    EQUAL(pair->value.actual_value_size, 100);
    EQUAL(((char *)pair->value.value)[10], '-');
    EQUAL(kv_cache_delete(pair), KV_CACHE_SUCCESS);
    EQUAL(kv_cache_read(pair), KV_CACHE_ERR_NO_CACHED_KEY);
    EQUAL(kv_cache_write(NULL), KV_CACHE_ERR_INVALID_PARAM);
    EQUAL(kv_cache_finalize(), KV_CACHE_SUCCESS);
}

static void slabs_hand_out_pairs(void)
{
    EQUAL(kvslab_init(1 << 20, SLAB_MM_ALLOC_POSIX, 1), KV_SUCCESS);
    kv_pair *pairs[300];
    int count = 0;
    while (count < 300 && (pairs[count] = slab_alloc_pair(32, 4096, 0)) != NULL) {
        memset(pairs[count]->key.key, 'k', 32);
        memset(pairs[count]->value.value, 'v', 4096);
        count++;
    }
    TRUE(count > 200 && count < 257);
    for (int i = 0; i < count; i++)
        slab_free_pair(pairs[i]);
    kv_iterate *it = slab_alloc_iterate(16, KV_ITERATE_READ_BUFFER_SIZE, 0);
    REQUIRE(it != NULL);
    memset(it->kv.value.value, 1, KV_ITERATE_READ_BUFFER_SIZE);
    EQUAL(it->kv.value.length, KV_ITERATE_READ_BUFFER_SIZE);
    slab_free_iterate(it);
    it = slab_alloc_iterate(16, KV_ITERATE_READ_BUFFER_SIZE, 0);
    /* What is left goes with the slab. */
    EQUAL(kvslab_destroy(), KV_SUCCESS);
    kv_pair *pair = posix_alloc_pair(32, 4096, 0);
    REQUIRE(pair != NULL);
    memset(pair->value.value, 2, 4096);
    posix_free_pair(pair);
    posix_free_pair(NULL);
}

static void times_are_printed(void)
{
    struct timeval start = { 100, 0 }, end = { 100, 500 };
    struct latency_stat stat;
    reset_latency_stat(&stat);
    add_latency_stat(&stat, &start, &end);
    add_latency_stat(&stat, &start, &end);
    EQUAL(stat.samples, 2);
    EQUAL(stat.min, 500);
    show_elapsed_time_cumulative(&start, &end, 1, "cumulative", 10, 4096, &stat);
    print_latency_stat(&stat);
    struct timeval time;
    KVNVME_TIMESTART(time);
    KVNVME_TIMESTOP(time);
    TRUE(time.tv_sec == 0);
    KVNVME_ERR("an error message with a number %d", 1);
    KVNVME_DEBUG("not printed");
    ENTER();
    EQUAL(KV_MEM_ALIGN(4097, 4096), 8192);
    TRUE(KV_PTR_ALIGN((void *)5, 4) == (void *)8);
    EQUAL(MAX(MIN(3, 4), 2), 3);
    TRUE(STDDEV(6.0, 14.0, 3) > 0.99 && STDDEV(6.0, 14.0, 3) < 1.01);
    TRUE(strcmp(g_key_policy[DB_BENCH_KEY].name, "DB_BENCH_KEY") == 0);
}

int main(void)
{
    RUN(radix_trees_hold_pointers());
    RUN(a_cache_by_itself_keeps_copies());
    RUN(slabs_hand_out_pairs());
    RUN(times_are_printed());
    struct timeval now;
    gettimeofday(&now, NULL);
    show_elapsed_time(&now, &now, "through the program's own function", 1, 0, NULL);
    EQUAL(overriding_calls(), 1);
    return check_summary();
}

/*
 * Tables of functions, as programs for the original SDK have them: this compiles, in C and in C++, or it does
 * not.
 */
#include "kv_apis.h"

typedef int (*pair_function)(uint64_t handle, kv_pair *kv);
typedef int (*read_function)(uint64_t handle, kv_iterate *it);

pair_function pair_functions[] = {
    kv_store,       kv_retrieve,       kv_delete,       kv_exist,       kv_append,
    kv_store_async, kv_retrieve_async, kv_delete_async, kv_exist_async,
};

read_function read_functions[] = { kv_iterate_read, kv_iterate_read_async };

/* The member says nothing about its arguments. */
void set_callback(kv_pair *kv, void (*callback)(kv_pair *kv, unsigned int result, unsigned int status))
{
    kv->param.async_cb = (void (*)(void))callback;
}

int main(void)
{
    return 0;
}

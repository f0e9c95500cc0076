/*
 * In the place of SPDK's header of this name. Programs of the original SDK get these standard headers through
 * it; no function of SPDK is here.
 */
#ifndef UNVME_SPDK_ENV_H
#define UNVME_SPDK_ENV_H

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* An environment as SPDK 18.04 describes it, as far as programs set it. Nothing of it has a meaning here. */
struct spdk_env_opts {
    const char *name;
    const char *core_mask;
    int shm_id;
    int mem_channel;
    int master_core;
    int mem_size;
};

#endif /* UNVME_SPDK_ENV_H */

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What fio's own configure would find out about the platform, as far as its headers ask an engine: Linux with
 * a C library of the last ten years. Of thread_data, only a build for GPUs (CONFIG_CUDA) has another layout;
 * the end of io_u, which depends on more, is not used by engines outside fio.
 */
#ifndef CONFIG_HOST_H
#define CONFIG_HOST_H

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define CONFIG_LITTLE_ENDIAN 1
#else
#define CONFIG_BIG_ENDIAN 1
#endif
#if __SIZEOF_LONG__ == 8
#define CONFIG_64BIT 1
#else
#define CONFIG_32BIT 1
#endif
#define CONFIG_STATIC_ASSERT 1
#define CONFIG_HAVE_BOOL 1
#define CONFIG_HAVE_GETTID 1
#define CONFIG_HAVE_KERNEL_RWF_T 1
#define CONFIG_HAVE_STRNDUP 1
#define CONFIG_HAVE_ASPRINTF 1
#define CONFIG_HAVE_VASPRINTF 1
#define CONFIG_STRSEP 1
#define CONFIG_STRCASESTR 1
#define CONFIG_SOCKLEN_T 1
#define CONFIG_GETOPT_LONG_ONLY 1
#define CONFIG_CLOCK_GETTIME 1
#define CONFIG_CLOCK_MONOTONIC 1
#define CONFIG_3ARG_AFFINITY 1
#define CONFIG_SCHED_IDLE 1
#define CONFIG_SYNC_FILE_RANGE 1
#define CONFIG_POSIX_FALLOCATE 1
#define CONFIG_LINUX_FALLOCATE 1
#define CONFIG_PWRITEV 1
#define CONFIG_PWRITEV2 1
#define CONFIG_TLS_THREAD 1
#define CONFIG_SFAA 1
#define CONFIG_DYNAMIC_ENGINES 1

#endif

/*
 * A POSIX file system in user space, on the blocks of a device: what unvme(1) makes with `fs mkfs` and mounts
 * with `mount`, without a mount.
 *
 * Functions return 0, or a number of bytes, or a negative errno; unvme_last_error() of unvme.h says why in
 * words. Paths are relative to the root, with or without a slash before them. Everything is done as user 0
 * unless the options say otherwise. Any thread may call any function on a file system and its files at the
 * same time; a queue is used by one thread at a time. What was closed must not be used any more.
 */
#ifndef UNVME_FS_H
#define UNVME_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct unvme_fs unvme_fs;             /* a mounted file system */
typedef struct unvme_file unvme_file;         /* an open file or directory */
typedef struct unvme_fs_queue unvme_fs_queue; /* calls that do not wait, of one thread */

enum unvme_fs_policy {
    UNVME_FS_S3FIFO = 0, /* pages that are used once leave early */
    UNVME_FS_LRU = 1,    /* the page that was not used for the longest time leaves first */
    UNVME_FS_NO_CACHE = 2,
};

/* How a file system is mounted. Zeroes are the defaults: unvme_fs_options o = { .size = sizeof o }; */
typedef struct unvme_fs_options {
    size_t size;            /* sizeof(unvme_fs_options), so that fields can be added */
    uint64_t cache_bytes;   /* pages of files in memory; 0: 256 MiB */
    uint32_t cache_policy;  /* enum unvme_fs_policy */
    uint32_t commit_ms;     /* how long what was done may wait to be durable; 0: 5000 */
    uint32_t uid;           /* in whose name everything is done */
    uint32_t gid;
    bool read_only;
    bool no_access_times;   /* noatime */
    bool no_placement;      /* the device decides where data go, with FDP, too */
    bool has_placement;     /* placement says where, otherwise 0 to 6 */
    /* Which of the device's placement handles are for files without a write hint, for those that are
     * expected to live a short, a medium, a long and an extreme time, for the journal, and for metadata. */
    uint16_t placement[7];
    uint32_t nsid;          /* the namespace; 0: the first */
} unvme_fs_options;

/* Makes a file system on a device; destroys what it held. label may be NULL. */
int unvme_fs_make(const char *device, const char *label);

/*
 * -EBUSY when another program has it mounted, -EINVAL when there is none; a mem: device gets one. options may
 * be NULL.
 */
int unvme_fs_mount(const char *device, const unvme_fs_options *options, unvme_fs **fs);

/* Leaves it in order. Its files and queues are closed before. It is gone, whatever is returned. */
int unvme_fs_unmount(unvme_fs *fs);

/* Makes everything durable that was done before. */
int unvme_fs_sync(unvme_fs *fs);

typedef struct unvme_fs_usage {
    uint64_t block_bytes;
    uint64_t blocks;
    uint64_t free_blocks;
    uint64_t inodes;
    uint64_t free_inodes;
} unvme_fs_usage;

void unvme_fs_usage_get(const unvme_fs *fs, unvme_fs_usage *usage);

/* What the page cache has done since the mount, in pages of 4096 bytes. */
typedef struct unvme_fs_cache {
    uint64_t hits;            /* asked for, and there */
    uint64_t misses;          /* read because somebody asked */
    uint64_t read_ahead;      /* read before anybody asked */
    uint64_t read_ahead_hits; /* of these, asked for later */
    uint64_t evicted;         /* given up for others */
    uint64_t written_back;
    uint64_t pages;           /* there now */
    uint64_t dirty;           /* of these, waiting to be written */
} unvme_fs_cache;

void unvme_fs_cache_get(const unvme_fs *fs, unvme_fs_cache *cache);

/* Names. */

int unvme_fs_mkdir(unvme_fs *fs, const char *path, mode_t mode);
int unvme_fs_rmdir(unvme_fs *fs, const char *path);
int unvme_fs_unlink(unvme_fs *fs, const char *path);
int unvme_fs_link(unvme_fs *fs, const char *from, const char *to);
int unvme_fs_symlink(unvme_fs *fs, const char *target, const char *path);
/* Bytes of the target, of which as many as fit are in buf, without a NUL. */
ssize_t unvme_fs_readlink(unvme_fs *fs, const char *path, char *buf, size_t size);

enum {
    UNVME_FS_NOREPLACE = 1, /* -EEXIST when something has the new name */
    UNVME_FS_EXCHANGE = 2,  /* both have each other's name */
};
int unvme_fs_rename(unvme_fs *fs, const char *from, const char *to, unsigned flags);

typedef struct unvme_fs_time {
    int64_t seconds; /* since 1970 */
    uint32_t nanoseconds;
} unvme_fs_time;

typedef struct unvme_fs_stat {
    uint64_t ino;
    uint64_t size;
    uint64_t sectors; /* of 512 bytes */
    uint64_t rdev;
    uint32_t mode;    /* as st_mode */
    uint32_t links;
    uint32_t uid;
    uint32_t gid;
    unvme_fs_time accessed;
    unvme_fs_time modified;
    unvme_fs_time changed;
    unvme_fs_time created;
} unvme_fs_stat;

/* A symbolic link at the end is followed if follow says so. */
int unvme_fs_stat_get(unvme_fs *fs, const char *path, bool follow, unvme_fs_stat *stat);

/* Called for each name of a directory but "." and ".."; anything but 0 ends it, and is returned. */
typedef int (*unvme_fs_entry)(const char *name, uint64_t ino, mode_t type, void *arg);
int unvme_fs_readdir(unvme_fs *fs, const char *path, unvme_fs_entry entry, void *arg);

/* Files. */

/*
 * flags of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECT,
 * O_DIRECTORY, O_NOFOLLOW, O_TMPFILE, O_SYNC and O_DSYNC; O_CLOEXEC, O_NOCTTY, O_NONBLOCK and O_LARGEFILE
 * have no effect, all others are -EINVAL. With O_SYNC or O_DSYNC there is no unvme_file_pwrite_async().
 */
int unvme_fs_open(unvme_fs *fs, const char *path, int flags, mode_t mode, unvme_file **file);
void unvme_file_close(unvme_file *file);

ssize_t unvme_file_pread(unvme_file *file, void *buf, size_t size, uint64_t offset);
/* With O_APPEND the offset has no effect. */
ssize_t unvme_file_pwrite(unvme_file *file, const void *buf, size_t size, uint64_t offset);
int unvme_file_fsync(unvme_file *file);
int unvme_file_fdatasync(unvme_file *file);
int unvme_file_truncate(unvme_file *file, uint64_t size);
/* mode: 0, or FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE as for fallocate(2). */
int unvme_file_allocate(unvme_file *file, int mode, uint64_t offset, uint64_t size);
int unvme_file_stat_get(unvme_file *file, unvme_fs_stat *stat);
int unvme_file_chmod(unvme_file *file, mode_t mode);
/* UINT32_MAX leaves one of them as it is. */
int unvme_file_chown(unvme_file *file, uint32_t uid, uint32_t gid);
/* NULL leaves one of them as it is. */
int unvme_file_utime(unvme_file *file, const unvme_fs_time *accessed, const unvme_fs_time *modified);

/* Bytes of the value; -ERANGE when size is not 0 and too small. */
ssize_t unvme_file_getxattr(unvme_file *file, const char *name, void *value, size_t size);
/* flags: 0, XATTR_CREATE or XATTR_REPLACE. */
int unvme_file_setxattr(unvme_file *file, const char *name, const void *value, size_t size, int flags);
int unvme_file_removexattr(unvme_file *file, const char *name);
/* Names, each with a NUL behind it. */
ssize_t unvme_file_listxattr(unvme_file *file, char *list, size_t size);

/* How long the data are expected to live: 0 to 5, as RWH_WRITE_LIFE_* of F_SET_RW_HINT. */
int unvme_file_set_write_hint(unvme_file *file, int hint);

/* The page cache, by file. These last as long as somebody has the file open. */

/* Pages stay when they were read (the default), or are given up with the first read of all of them. */
int unvme_file_set_retain_cache(unvme_file *file, bool retain);
bool unvme_file_get_retain_cache(const unvme_file *file);
/* Bytes that are read ahead: 0 for none, or 4096 to 4194304 in steps of 4096. It can grow and shrink. */
int unvme_file_set_prefetch_size(unvme_file *file, int bytes);
int unvme_file_get_prefetch_size(const unvme_file *file);
/* Bytes that are read in order before that begins: 4096 to 4194304 in steps of 4096. */
int unvme_file_set_prefetch_threshold(unvme_file *file, int bytes);
int unvme_file_get_prefetch_threshold(const unvme_file *file);
enum {
    UNVME_FILE_DIRECT_READ = 1,
    UNVME_FILE_DIRECT_WRITE = 2,
};
/* What goes past the cache: bits of these two. */
int unvme_file_set_direct_io(unvme_file *file, int mask);
int unvme_file_get_direct_io(const unvme_file *file);
/* Brings a range into the cache, as much of it as a quarter of the cache holds. */
int unvme_file_prefetch(unvme_file *file, uint64_t offset, uint64_t size);
/* Writes the pages that wait for it. They are durable with the next unvme_file_fsync(). */
int unvme_file_write_back(unvme_file *file);
/* Gives up the pages of the file; those that wait to be written are written first. */
int unvme_file_cache_free(unvme_file *file);

/*
 * Calls that do not wait. A callback is called by unvme_fs_queue_poll(), with bytes or a negative errno;
 * buffers stay until then. The file may be closed before.
 */
typedef void (*unvme_file_callback)(ssize_t result, void *arg);

int unvme_fs_queue_open(unvme_fs *fs, uint16_t depth, unvme_fs_queue **queue);
/* Waits for what is under way; no callback is called. */
void unvme_fs_queue_close(unvme_fs_queue *queue);
/* -EAGAIN when as many calls are under way as the queue is deep. */
int unvme_file_pread_async(unvme_fs_queue *queue, unvme_file *file, void *buf, size_t size, uint64_t offset,
                           unvme_file_callback callback, void *arg);
int unvme_file_pwrite_async(unvme_fs_queue *queue, unvme_file *file, const void *buf, size_t size, uint64_t offset,
                            unvme_file_callback callback, void *arg);
int unvme_file_fsync_async(unvme_fs_queue *queue, unvme_file *file, unvme_file_callback callback, void *arg);
/* Waits until something is over, at most so long; calls the callbacks. Returns how many. */
int unvme_fs_queue_poll(unvme_fs_queue *queue, uint32_t timeout_ms);
/* Calls under way. */
size_t unvme_fs_queue_outstanding(const unvme_fs_queue *queue);

#ifdef __cplusplus
}
#endif

#endif

/* unvme_fs.h: a file system from its making to its end, with what goes wrong on the way. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "check.h"
#include "unvme_fs.h"

static const char *const device = "0000:05:00.0";

struct seen {
    unsigned names;
    unsigned directories;
};

static int count(const char *name, uint64_t ino, mode_t type, void *arg)
{
    struct seen *seen = arg;
    TRUE(ino > 0 && strcmp(name, ".") != 0);
    seen->names++;
    seen->directories += S_ISDIR(type) ? 1 : 0;
    return 0;
}

static int stop(const char *name, uint64_t ino, mode_t type, void *arg)
{
    (void)name, (void)ino, (void)type, (void)arg;
    return 7;
}

static void names(unvme_fs *fs)
{
    unvme_fs_stat stat;
    char target[8] = "";
    struct seen seen = { 0, 0 };

    EQUAL(unvme_fs_mkdir(fs, "/a", 0755), 0);
    EQUAL(unvme_fs_mkdir(fs, "a/b", 0700), 0);
    EQUAL(unvme_fs_mkdir(fs, "a", 0755), -EEXIST);
    EQUAL(unvme_fs_symlink(fs, "a/b", "link"), 0);
    EQUAL(unvme_fs_readlink(fs, "link", target, 2), 3);
    EQUAL(target[1], '/');
    EQUAL(unvme_fs_readlink(fs, "a", target, sizeof target), -EINVAL);
    EQUAL(unvme_fs_stat_get(fs, "link", false, &stat), 0);
    TRUE(S_ISLNK(stat.mode));
    EQUAL(unvme_fs_stat_get(fs, "link", true, &stat), 0);
    TRUE(S_ISDIR(stat.mode) && (stat.mode & 07777) == 0700);
    EQUAL(unvme_fs_rename(fs, "a/b", "a/c", 0), 0);
    EQUAL(unvme_fs_stat_get(fs, "link", true, &stat), -ENOENT);
    TRUE(strlen(unvme_last_error()) > 0);
    EQUAL(unvme_fs_rename(fs, "a/c", "link", UNVME_FS_NOREPLACE), -EEXIST);
    EQUAL(unvme_fs_rename(fs, "a/c", "link", UNVME_FS_EXCHANGE), 0);
    EQUAL(unvme_fs_rename(fs, "a/c", "link", 99), -EINVAL);
    EQUAL(unvme_fs_readdir(fs, "/", count, &seen), 0);
    EQUAL(seen.names, 2);
    EQUAL(seen.directories, 2);
    EQUAL(unvme_fs_readdir(fs, "/", stop, NULL), 7);
    EQUAL(unvme_fs_readdir(fs, "/", NULL, NULL), -EINVAL);
    EQUAL(unvme_fs_rmdir(fs, "a"), -ENOTEMPTY);
    EQUAL(unvme_fs_unlink(fs, "a"), -EISDIR);
    EQUAL(unvme_fs_unlink(fs, "a/c"), 0);
    EQUAL(unvme_fs_rmdir(fs, "a"), 0);
    EQUAL(unvme_fs_rmdir(fs, "link"), 0);
    EQUAL(unvme_fs_mkdir(fs, NULL, 0755), -EINVAL);
}

static void data(unvme_fs *fs)
{
    static char page[8192], back[8192];
    unvme_file *file = NULL, *other = NULL;
    unvme_fs_stat stat;
    unvme_fs_time then = { 1000000000, 5 }, wrong = { 0, 1000000000 };
    char value[16];

    EQUAL(unvme_fs_open(fs, "file", O_RDWR, 0, &file), -ENOENT);
    EQUAL(unvme_fs_open(fs, "file", O_RDWR | O_CREAT, 0640, &file), 0);
    REQUIRE(file != NULL);
    EQUAL(unvme_fs_open(fs, "file", O_RDWR | O_CREAT | O_EXCL, 0640, &other), -EEXIST);
    EQUAL(unvme_fs_open(fs, "/", O_RDWR, 0, &other), -EISDIR);
    EQUAL(unvme_fs_open(fs, "file", O_RDONLY | O_DIRECTORY, 0, &other), -ENOTDIR);
    EQUAL(unvme_fs_open(fs, "file", O_RDONLY | O_PATH, 0, &other), -EINVAL);
    EQUAL(unvme_fs_open(fs, "file/", O_RDWR | O_CREAT, 0644, &other), -EISDIR);
    EQUAL(unvme_fs_open(fs, "", O_RDWR | O_CREAT, 0644, &other), -ENOENT);
    EQUAL(unvme_fs_unlink(fs, "file/"), -ENOTDIR);
    EQUAL(unvme_fs_unlink(fs, "/.."), -EISDIR);
    /* By way of a link to where nothing is yet; without it, and without a name at all. */
    EQUAL(unvme_fs_symlink(fs, "behind", "before"), 0);
    EQUAL(unvme_fs_open(fs, "before", O_RDWR | O_CREAT | O_NOFOLLOW, 0644, &other), -ELOOP);
    EQUAL(unvme_fs_open(fs, "before", O_RDWR | O_CREAT, 0644, &other), 0);
    unvme_file_close(other);
    EQUAL(unvme_fs_unlink(fs, "behind"), 0);
    EQUAL(unvme_fs_unlink(fs, "before"), 0);
    EQUAL(unvme_fs_open(fs, "/", O_RDONLY | O_TMPFILE, 0600, &other), -EINVAL);
    EQUAL(unvme_fs_open(fs, "/", O_RDWR | O_TMPFILE, 0600, &other), 0);
    EQUAL(unvme_file_pwrite(other, "x", 1, 0), 1);
    unvme_file_close(other);
    /* Its mode is for others. */
    EQUAL(unvme_fs_open(fs, "mode", O_RDWR | O_CREAT | O_DSYNC, 0, &other), 0);
    EQUAL(unvme_file_pwrite(other, "x", 1, 0), 1);
    unvme_file_close(other);
    EQUAL(unvme_fs_unlink(fs, "mode"), 0);
    memset(page, 'x', sizeof page);
    EQUAL(unvme_file_pwrite(file, page, sizeof page, 100), sizeof page);
    EQUAL(unvme_file_pread(file, back, sizeof back, 0), sizeof back);
    TRUE(back[99] == 0 && back[100] == 'x');
    EQUAL(unvme_file_pread(file, NULL, 1, 0), -EINVAL);
    EQUAL(unvme_file_fdatasync(file), 0);

    EQUAL(unvme_fs_open(fs, "file", O_WRONLY | O_APPEND, 0, &other), 0);
    EQUAL(unvme_file_pwrite(other, "end", 3, 0), 3);
    EQUAL(unvme_file_pread(other, back, 1, 0), -EBADF);
    unvme_file_close(other);
    EQUAL(unvme_fs_open(fs, "file", O_RDWR | O_DIRECT, 0, &other), 0);
    EQUAL(unvme_file_pread(other, back, 10, 100 + sizeof page), 3);
    TRUE(memcmp(back, "end", 3) == 0);
    EQUAL(unvme_file_pwrite(other, "direct", 6, 0), 6);
    EQUAL(unvme_file_pread(file, back, 6, 0), 6);
    TRUE(memcmp(back, "direct", 6) == 0);
    unvme_file_close(other);

    EQUAL(unvme_file_allocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    EQUAL(unvme_file_allocate(file, FALLOC_FL_PUNCH_HOLE, 0, 4096), -EOPNOTSUPP);
    EQUAL(unvme_file_truncate(file, 5000), 0);
    EQUAL(unvme_file_chmod(file, 0600), 0);
    EQUAL(unvme_file_chown(file, 1000, UINT32_MAX), 0);
    EQUAL(unvme_file_utime(file, NULL, &then), 0);
    EQUAL(unvme_file_utime(file, NULL, &wrong), -EINVAL);
    EQUAL(unvme_file_stat_get(file, &stat), 0);
    TRUE(stat.size == 5000 && (stat.mode & 07777) == 0600 && stat.uid == 1000 && stat.gid == 0);
    TRUE(stat.modified.seconds == 1000000000 && stat.modified.nanoseconds == 5);

    EQUAL(unvme_file_setxattr(file, "user.k", "value", 5, XATTR_CREATE), 0);
    EQUAL(unvme_file_setxattr(file, "user.k", "value", 5, XATTR_CREATE), -EEXIST);
    EQUAL(unvme_file_getxattr(file, "user.k", NULL, 0), 5);
    EQUAL(unvme_file_getxattr(file, "user.k", value, 4), -ERANGE);
    EQUAL(unvme_file_getxattr(file, "user.k", value, sizeof value), 5);
    EQUAL(unvme_file_listxattr(file, value, sizeof value), 7);
    TRUE(strcmp(value, "user.k") == 0);
    EQUAL(unvme_file_removexattr(file, "user.k"), 0);
    EQUAL(unvme_file_getxattr(file, "user.k", NULL, 0), -ENODATA);
    EQUAL(unvme_file_set_write_hint(file, 2), 0);
    EQUAL(unvme_file_set_write_hint(file, 6), -EINVAL);
    unvme_file_close(file);
    unvme_file_close(NULL);
}

/* The functions of the guide: what is set is what is got, it shrinks and grows, and it does something. */
/* The error of an open, and the size that the file has then: -ENOENT for none. */
static void opens(unvme_fs *fs, const char *path, int flags, int expected, long long size)
{
    unvme_fs_stat found;
    unvme_file *file = NULL;
    EQUAL(unvme_fs_open(fs, path, flags, 0644, &file), expected);
    if (file)
        unvme_file_close(file);
    int missing = unvme_fs_stat_get(fs, path, true, &found);
    EQUAL(missing ? missing : (long long)found.size, size);
}

/* As the kernel's file systems answer. */
static void openings(unvme_fs *fs)
{
    unvme_fs_stat found;
    unvme_file *file;
    EQUAL(unvme_fs_mkdir(fs, "d", 0755), 0);
    EQUAL(unvme_fs_symlink(fs, "loop", "loop"), 0);
    EQUAL(unvme_fs_symlink(fs, "/nothing", "dangling"), 0);
    EQUAL(unvme_fs_symlink(fs, "../../d/below", "d/up"), 0);
    EQUAL(unvme_fs_stat_get(fs, "d", true, &found), 0);
    for (int round = 0; round < 2; round++) {
        EQUAL(unvme_fs_open(fs, "f", O_RDWR | O_CREAT | O_TRUNC, 0644, &file), 0);
        EQUAL(unvme_file_pwrite(file, "abcdef", 6, 0), 6);
        unvme_file_close(file);
        if (round == 0)
            opens(fs, "f", O_RDONLY | O_TRUNC, 0, 0);
    }
    long long folder = (long long)found.size;
    opens(fs, "d", O_RDONLY | O_CREAT, -EISDIR, folder);
    opens(fs, "n1", O_RDWR | O_CREAT | O_DIRECTORY, -EINVAL, -ENOENT);
    opens(fs, "n2", O_RDONLY | O_CREAT | O_DIRECTORY, -EINVAL, -ENOENT);
    opens(fs, "d", O_RDONLY | O_CREAT | O_DIRECTORY, -EINVAL, folder);
    opens(fs, "d", O_RDONLY | O_TRUNC, -EISDIR, folder);
    opens(fs, "dangling", O_RDWR | O_CREAT | O_EXCL, -EEXIST, -ENOENT);
    opens(fs, "dangling", O_RDWR | O_CREAT | O_NOFOLLOW, -ELOOP, -ENOENT);
    opens(fs, "dangling", O_RDWR | O_CREAT, 0, 0);
    EQUAL(unvme_fs_stat_get(fs, "nothing", false, &found), 0);
    opens(fs, "loop", O_RDWR | O_CREAT, -ELOOP, -ELOOP);
    opens(fs, "d/.", O_RDWR | O_CREAT | O_EXCL, -EEXIST, folder);
    opens(fs, "n3/", O_RDWR | O_CREAT, -EISDIR, -ENOENT);
    opens(fs, "d/", O_RDWR | O_CREAT | O_EXCL, -EISDIR, folder);
    opens(fs, "f/", O_RDONLY, -ENOTDIR, -ENOTDIR);
    opens(fs, "f", O_RDWR | O_TMPFILE, -ENOTDIR, 6);
    /* What leads out of the root stays in it. */
    opens(fs, "d/up", O_RDWR | O_CREAT, 0, 0);
    EQUAL(unvme_fs_stat_get(fs, "d/below", false, &found), 0);
    opens(fs, "../../f", O_RDONLY, 0, 6);
    opens(fs, "..", O_RDWR, -EISDIR, folder);
}

static void cache(unvme_fs *fs)
{
    static char part[1 << 16];
    unvme_fs_cache before, after;
    unvme_file *file = NULL;

    EQUAL(unvme_fs_open(fs, "cached", O_RDWR | O_CREAT, 0644, &file), 0);
    REQUIRE(file != NULL);
    for (unsigned at = 0; at < 64; at++)
        EQUAL(unvme_file_pwrite(file, part, sizeof part, (uint64_t)at * sizeof part), sizeof part);
    TRUE(unvme_file_get_retain_cache(file));
    EQUAL(unvme_file_get_prefetch_size(file), 524288);
    EQUAL(unvme_file_get_prefetch_threshold(file), 131072);
    EQUAL(unvme_file_get_direct_io(file), 0);
    EQUAL(unvme_file_set_prefetch_size(file, 4194304), 0);
    EQUAL(unvme_file_set_prefetch_size(file, 8192), 0);
    EQUAL(unvme_file_get_prefetch_size(file), 8192);
    EQUAL(unvme_file_set_prefetch_size(file, 4194305), -EINVAL);
    EQUAL(unvme_file_set_prefetch_size(file, -1), -EINVAL);
    EQUAL(unvme_file_set_prefetch_threshold(file, 2048), -EINVAL);
    EQUAL(unvme_file_set_direct_io(file, 4), -EINVAL);

    /* In order, beyond the threshold: pages come before they are asked for. */
    EQUAL(unvme_file_set_prefetch_size(file, 1048576), 0);
    EQUAL(unvme_file_set_prefetch_threshold(file, 65536), 0);
    EQUAL(unvme_file_cache_free(file), 0);
    unvme_fs_cache_get(fs, &before);
    for (unsigned at = 0; at < 64; at++)
        EQUAL(unvme_file_pread(file, part, 4096, (uint64_t)at * 4096), 4096);
    unvme_fs_cache_get(fs, &after);
    TRUE(after.read_ahead > before.read_ahead && after.read_ahead_hits > before.read_ahead_hits);
    TRUE(after.misses - before.misses < 64);

    /* What is brought in when somebody says so is there; what waits to be written does not wait any more. */
    EQUAL(unvme_file_cache_free(file), 0);
    EQUAL(unvme_file_prefetch(file, 0, 16 * 4096), 0);
    unvme_fs_cache_get(fs, &before);
    EQUAL(unvme_file_pread(file, part, 4096, 15 * 4096), 4096);
    EQUAL(unvme_file_pwrite(file, part, 4096, 15 * 4096), 4096);
    unvme_fs_cache_get(fs, &after);
    TRUE(after.hits > before.hits && after.misses == before.misses);
    EQUAL(unvme_file_write_back(file), 0);
    unvme_fs_cache_get(fs, &after);
    TRUE(after.dirty == 0 && after.written_back > before.written_back);

    /* Past the cache nothing of it is used, and nothing comes in. */
    EQUAL(unvme_file_cache_free(file), 0);
    EQUAL(unvme_file_set_direct_io(file, UNVME_FILE_DIRECT_READ | UNVME_FILE_DIRECT_WRITE), 0);
    EQUAL(unvme_file_get_direct_io(file), 3);
    unvme_fs_cache_get(fs, &before);
    EQUAL(unvme_file_pread(file, part, sizeof part, 0), sizeof part);
    EQUAL(unvme_file_pwrite(file, part, sizeof part, 0), sizeof part);
    unvme_fs_cache_get(fs, &after);
    TRUE(after.pages == before.pages && after.misses == before.misses && after.dirty == 0);

    /* Not retained: gone when they were read. */
    EQUAL(unvme_file_set_direct_io(file, 0), 0);
    EQUAL(unvme_file_set_retain_cache(file, false), 0);
    TRUE(!unvme_file_get_retain_cache(file));
    unvme_fs_cache_get(fs, &before);
    EQUAL(unvme_file_pread(file, part, sizeof part, 0), sizeof part);
    unvme_fs_cache_get(fs, &after);
    TRUE(after.misses > before.misses && after.pages <= before.pages);
    unvme_file_close(file);
}

struct call {
    int done;
    ssize_t result;
};

static void over(ssize_t result, void *arg)
{
    struct call *call = arg;
    call->done++;
    call->result = result;
}

static void asynchronous(unvme_fs *fs)
{
    static char in[4][4096], out[4][4096];
    unvme_fs_queue *queue = NULL;
    unvme_file *file = NULL;
    struct call calls[6] = { { 0, 0 } };

    EQUAL(unvme_fs_queue_open(fs, 0, &queue), -EINVAL);
    EQUAL(unvme_fs_queue_open(fs, 4, &queue), 0);
    EQUAL(unvme_fs_open(fs, "queued", O_RDWR | O_CREAT, 0644, &file), 0);
    REQUIRE(queue != NULL && file != NULL);
    for (unsigned at = 0; at < 4; at++) {
        memset(in[at], 'a' + (int)at, sizeof in[at]);
        EQUAL(unvme_file_pwrite_async(queue, file, in[at], 4096, at * 4096, over, &calls[at]), 0);
    }
    EQUAL(unvme_file_pread_async(queue, file, out[0], 4096, 0, over, &calls[4]), -EAGAIN);
    while (unvme_fs_queue_outstanding(queue) > 0)
        TRUE(unvme_fs_queue_poll(queue, 10000) > 0);
    for (unsigned at = 0; at < 4; at++)
        TRUE(calls[at].done == 1 && calls[at].result == 4096);
    EQUAL(unvme_file_fsync_async(queue, file, over, &calls[4]), 0);
    while (unvme_fs_queue_outstanding(queue) > 0)
        unvme_fs_queue_poll(queue, 10000);
    TRUE(calls[4].done == 1 && calls[4].result == 0);
    EQUAL(unvme_file_cache_free(file), 0);
    for (unsigned at = 0; at < 4; at++)
        EQUAL(unvme_file_pread_async(queue, file, out[at], 4096, at * 4096, over, &calls[at]), 0);
    while (unvme_fs_queue_outstanding(queue) > 0)
        unvme_fs_queue_poll(queue, 10000);
    TRUE(memcmp(in, out, sizeof in) == 0);
    EQUAL(unvme_fs_queue_poll(queue, 0), 0);
    EQUAL(unvme_file_pread_async(queue, file, out[0], 4096, 0, NULL, NULL), -EINVAL);
    /* Under way when the queue is closed: no callback. */
    EQUAL(unvme_file_pread_async(queue, file, out[0], 4096, 0, over, &calls[5]), 0);
    unvme_fs_queue_close(queue);
    EQUAL(calls[5].done, 0);
    unvme_file_close(file);
}

/* A queue keeps nothing of a file that was closed. */
static void closed_files(unvme_fs *fs)
{
    static char block[4096];
    unvme_fs_queue *queue = NULL;
    unvme_fs_usage before, after;

    EQUAL(unvme_fs_queue_open(fs, 4, &queue), 0);
    REQUIRE(queue != NULL);
    unvme_fs_usage_get(fs, &before);
    for (unsigned round = 0; round < 3; round++) {
        unvme_file *file = NULL;
        struct call calls[2] = { { 0, 0 } };

        EQUAL(unvme_fs_open(fs, "short-lived", O_RDWR | O_CREAT, 0644, &file), 0);
        REQUIRE(file != NULL);
        EQUAL(unvme_file_allocate(file, 0, 0, 1 << 20), 0);
        EQUAL(unvme_file_pwrite_async(queue, file, block, sizeof block, 0, over, &calls[0]), 0);
        EQUAL(unvme_file_pread_async(queue, file, block, sizeof block, 0, over, &calls[1]), 0);
        EQUAL(unvme_fs_unlink(fs, "short-lived"), 0);
        /* While calls are under way. */
        unvme_file_close(file);
        while (unvme_fs_queue_outstanding(queue) > 0)
            unvme_fs_queue_poll(queue, 10000);
        TRUE(calls[0].done == 1 && calls[1].done == 1);
        unvme_fs_queue_poll(queue, 0);
        unvme_fs_usage_get(fs, &after);
        TRUE(after.free_blocks + 16 > before.free_blocks);
    }
    unvme_fs_queue_close(queue);
}

int main(void)
{
    unvme_fs_options options = { .size = sizeof options, .cache_bytes = 8 << 20, .cache_policy = UNVME_FS_LRU };
    unvme_fs_usage usage;
    unvme_fs *fs = NULL;
    unvme_file *file = NULL;
    char text[8] = "";

    EQUAL(unvme_fs_mount("no such device", NULL, &fs), -EIO);
    /* What is in memory gets one. */
    EQUAL(unvme_fs_mount("mem:block:64M", NULL, &fs), 0);
    EQUAL(unvme_fs_unmount(fs), 0);
    TRUE(unvme_fs_mount("mem:kv:64M", NULL, &fs) < 0);
    EQUAL(unvme_fs_make(device, "try"), 0);
    options.cache_policy = 9;
    EQUAL(unvme_fs_mount(device, &options, &fs), -EINVAL);
    options.cache_policy = UNVME_FS_LRU;
    options.size = 8;
    EQUAL(unvme_fs_mount(device, &options, &fs), -EINVAL);
    /* Of a program that was compiled when there were fewer fields. */
    options.size = 40;
    EQUAL(unvme_fs_mount(device, &options, &fs), 0);
    EQUAL(unvme_fs_unmount(fs), 0);
    options.size = sizeof options;
    options.has_placement = true;
    options.placement[6] = 1;
    EQUAL(unvme_fs_mount(device, &options, &fs), 0);
    REQUIRE(fs != NULL);
    unvme_fs_usage_get(fs, &usage);
    TRUE(usage.block_bytes == 4096 && usage.free_blocks > 0 && usage.free_blocks < usage.blocks);
    names(fs);
    data(fs);
    openings(fs);
    cache(fs);
    asynchronous(fs);
    closed_files(fs);
    EQUAL(unvme_fs_open(fs, "kept", O_WRONLY | O_CREAT, 0644, &file), 0);
    EQUAL(unvme_file_pwrite(file, "kept", 4, 0), 4);
    EQUAL(unvme_fs_sync(fs), 0);
    unvme_file_close(file);
    EQUAL(unvme_fs_unmount(fs), 0);
    EQUAL(unvme_fs_unmount(NULL), -EINVAL);

    options.read_only = true;
    EQUAL(unvme_fs_mount(device, &options, &fs), 0);
    EQUAL(unvme_fs_open(fs, "kept", O_RDONLY, 0, &file), 0);
    EQUAL(unvme_file_pread(file, text, sizeof text, 0), 4);
    TRUE(strcmp(text, "kept") == 0);
    unvme_file_close(file);
    EQUAL(unvme_fs_unlink(fs, "kept"), -EROFS);
    EQUAL(unvme_fs_unmount(fs), 0);
    return check_failures != 0;
}

/*
 * Files without a kernel: makes a file system on a device, writes a log by calls that do not wait, and lists
 * what there is.
 *
 *   cc files.c $(pkg-config --cflags --libs unvme) && ./a.out 0000:02:00.0
 *
 * Everything on the device is destroyed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "unvme.h"
#include "unvme_fs.h"

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, unvme_last_error());
}

static void written(ssize_t result, void *arg)
{
    *(ssize_t *)arg += result > 0 ? result : 0;
}

static int show(const char *name, uint64_t ino, mode_t type, void *arg)
{
    (void)type, (void)arg;
    printf("%8llu  %s\n", (unsigned long long)ino, name);
    return 0;
}

static int work(unvme_fs *fs)
{
    static const char line[] = "something has happened\n";
    unvme_fs_queue *queue = NULL;
    unvme_file *log = NULL;
    ssize_t bytes = 0;
    int result = 1;

    if (unvme_fs_mkdir(fs, "/logs", 0755) != 0 ||
        unvme_fs_open(fs, "/logs/today", O_RDWR | O_CREAT | O_APPEND, 0644, &log) != 0 ||
        unvme_fs_queue_open(fs, 16, &queue) != 0) {
        fail("open");
    } else {
        for (int at = 0; at < 8; at++)
            if (unvme_file_pwrite_async(queue, log, line, strlen(line), 0, written, &bytes) != 0)
                fail("write");
        while (unvme_fs_queue_outstanding(queue) > 0)
            unvme_fs_queue_poll(queue, 1000);
        if (unvme_file_fdatasync(log) != 0)
            fail("fdatasync");
        printf("%zd bytes are durable\n", bytes);
        result = unvme_fs_readdir(fs, "/logs", show, NULL);
    }
    unvme_fs_queue_close(queue);
    unvme_file_close(log);
    return result;
}

int main(int argc, char **argv)
{
    unvme_fs *fs = NULL;
    int result;

    if (argc < 2) {
        printf("usage: %s DEVICE, everything on which is destroyed\n", argv[0]);
        return 0;
    }
    if (unvme_fs_make(argv[1], "example") != 0 || unvme_fs_mount(argv[1], NULL, &fs) != 0) {
        fail(argv[1]);
        return 1;
    }
    result = work(fs);
    if (unvme_fs_unmount(fs) != 0) {
        fail("unmount");
        return 1;
    }
    return result;
}

/*
 * A program that writes records and makes them lasting, one after the other, and keeps a promise of each
 * elsewhere, by the kernel: for tests that take something away from under it.
 *
 * steady write FILE PROMISES [RECORDS]   says which error ended it, and after how long; with -r as the first
 * word it opens the file again until that works, and goes on steady check FILE PROMISES             every
 * record that was promised is there steady marks FILE                      calls of the data path between
 * two calls of the kernel, which strace sees
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { RECORD = 4096 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fill(unsigned char *record, uint64_t number)
{
    memset(record, (int)(number * 37 + 1), RECORD);
    memcpy(record, &number, sizeof number);
}

/* One record, lasting when this returns. */
static bool keep(int file, uint64_t number)
{
    unsigned char record[RECORD];
    fill(record, number);
    return pwrite(file, record, RECORD, (off_t)(number * RECORD)) == RECORD && fdatasync(file) == 0;
}

static void promise(int promises, uint64_t number)
{
    /* Not by a name that is interposed. */
    if (syscall(SYS_pwrite64, promises, &number, sizeof number, 0L) != sizeof number)
        exit(3);
}

static int write_records(const char *path, const char *promises_path, uint64_t records, bool again)
{
    int promises = (int)syscall(SYS_openat, AT_FDCWD, promises_path, O_CREAT | O_RDWR, 0644);
    int file = open(path, O_CREAT | O_RDWR, 0644);
    if (file < 0 || promises < 0) {
        printf("open: %s\n", strerrorname_np(errno));
        return 1;
    }
    for (uint64_t number = 0; number < records; number++) {
        double begin = now();
        if (keep(file, number)) {
            promise(promises, number + 1);
            continue;
        }
        int error = errno;
        printf("error %s after %llu records, within %s\n", strerrorname_np(error), (unsigned long long)number,
               now() - begin < 60 ? "a minute" : "MORE THAN A MINUTE");
        fflush(stdout);
        if (!again)
            return 1;
        close(file);
        for (begin = now(); (file = open(path, O_RDWR)) < 0; usleep(100000))
            if (now() - begin > 120) {
                printf("not again: %s\n", strerrorname_np(errno));
                return 1;
            }
        printf("again\n");
        fflush(stdout);
        again = false;
        records = number + 10 < records ? number + 10 : records;
        number--;
    }
    printf("all written\n");
    return 0;
}

static int check_records(const char *path, const char *promises_path)
{
    uint64_t count = 0;
    unsigned char record[RECORD], expected[RECORD];
    int promises = (int)syscall(SYS_openat, AT_FDCWD, promises_path, O_RDONLY, 0);
    int file = open(path, O_RDONLY);
    if (syscall(SYS_pread64, promises, &count, sizeof count, 0L) != sizeof count || count == 0) {
        printf("nothing was promised\n");
        return 1;
    }
    for (uint64_t number = 0; number < count; number++) {
        fill(expected, number);
        if (pread(file, record, RECORD, (off_t)(number * RECORD)) != RECORD || memcmp(record, expected, RECORD) != 0) {
            printf("record %llu of %llu is not what was promised\n", (unsigned long long)number, (unsigned long long)count);
            return 1;
        }
    }
    printf("as promised\n");
    return 0;
}

static int between_marks(const char *path)
{
    static unsigned char bytes[65536];
    struct iovec vector = {bytes, 512};
    struct stat meta;
    /* Once before, for what is done at the first call. */
    for (int round = 0; round < 2; round++) {
        if (round == 1)
            syscall(SYS_access, "/unvme-begin", 0);
        int file = open(path, O_CREAT | O_RDWR, 0644);
        for (int i = 0; i < 100; i++)
            if (write(file, bytes, 4096) != 4096 || pwrite(file, bytes, 4096, i * 4096) != 4096)
                return 1;
        lseek(file, 0, SEEK_SET);
        for (int i = 0; i < 100; i++)
            if (read(file, bytes, 4096) != 4096 || pread(file, bytes, 65536, 8192) != 65536)
                return 1;
        if (writev(file, &vector, 1) != 512 || preadv(file, &vector, 1, 0) != 512 || fsync(file) != 0 || fdatasync(file) != 0)
            return 1;
        if (ftruncate(file, 8192) != 0 || fstat(file, &meta) != 0 || stat(path, &meta) != 0 || fallocate(file, 0, 0, 1 << 20) != 0)
            return 1;
        if (close(file) != 0 || rename(path, "renamed") != 0 || unlink("renamed") != 0)
            return 1;
        if (round == 1)
            syscall(SYS_access, "/unvme-end", 0);
    }
    printf("done\n");
    return 0;
}

int main(int count, char **words)
{
    bool again = count > 1 && strcmp(words[1], "-r") == 0;
    count -= again;
    words += again;
    if (count >= 4 && strcmp(words[1], "write") == 0)
        return write_records(words[2], words[3], count > 4 ? strtoull(words[4], NULL, 10) : UINT64_MAX / RECORD, again);
    if (count == 4 && strcmp(words[1], "check") == 0)
        return check_records(words[2], words[3]);
    if (count == 3 && strcmp(words[1], "marks") == 0)
        return between_marks(words[2]);
    fprintf(stderr, "usage: steady [-r] write FILE PROMISES [RECORDS] | check FILE PROMISES | marks FILE\n");
    return 2;
}

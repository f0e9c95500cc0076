// What any program does with a file, by the C library: `preload FILE BYTES` makes the file, of so many bytes,
// reads all of it once, then reads commands from standard input and answers each with operations per second.
//
//   pread MILLIS SIZE  pread of SIZE bytes at the beginning of a page at random, for that long
//   append MILLIS      4 KiB behind what there is, and fdatasync, for that long
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define BUFFER (1 << 20)
// A log that is begun anew when it is as long as this.
#define LOG_PAGES 8192

static char buffer[BUFFER];

static void fail(const char *what) {
    fprintf(stderr, "preload: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void make(int file, uint64_t bytes) {
    memset(buffer, 'v', sizeof buffer);
    for (uint64_t at = 0; at < bytes; at += sizeof buffer)
        if (pwrite(file, buffer, sizeof buffer, (off_t)at) != sizeof buffer)
            fail("pwrite");
    if (fsync(file) != 0)
        fail("fsync");
    for (uint64_t at = 0; at < bytes; at += PAGE)
        if (pread(file, buffer, PAGE, (off_t)at) != PAGE)
            fail("pread");
}

static double read_pages(int file, uint64_t pages, double limit, size_t size) {
    static uint64_t random = 88172645463325252ull;
    double start = seconds(), elapsed;
    uint64_t done = 0;
    do {
        for (int i = 0; i < 64; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            uint64_t page = ((unsigned __int128)random * pages) >> 64;
            if (pread(file, buffer, size, (off_t)(page * PAGE)) != (ssize_t)size)
                fail("pread");
        }
        done += 64;
        elapsed = seconds() - start;
    } while (elapsed < limit);
    return (double)done / elapsed;
}

static double append_pages(int file, double limit) {
    static uint64_t pages;
    double start = seconds(), elapsed;
    uint64_t done = 0;
    do {
        if (pages == LOG_PAGES) {
            if (ftruncate(file, 0) != 0 || lseek(file, 0, SEEK_SET) != 0)
                fail("ftruncate");
            pages = 0;
        }
        if (write(file, buffer, PAGE) != PAGE)
            fail("write");
        if (fdatasync(file) != 0)
            fail("fdatasync");
        pages++;
        done++;
        elapsed = seconds() - start;
    } while (elapsed < limit);
    return (double)done / elapsed;
}

int main(int argc, char **argv) {
    char line[64];
    if (argc != 3) {
        fprintf(stderr, "usage: preload FILE BYTES\n");
        return 2;
    }
    uint64_t bytes = strtoull(argv[2], NULL, 10) / BUFFER * BUFFER;
    int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0)
        fail(argv[1]);
    make(file, bytes);
    while (fgets(line, sizeof line, stdin)) {
        unsigned millis, size;
        double rate;
        if (sscanf(line, "pread %u %u", &millis, &size) == 2 && bytes > 0 && size > 0 && size <= PAGE)
            rate = read_pages(file, bytes / PAGE, millis / 1e3, size);
        else if (sscanf(line, "append %u", &millis) == 1)
            rate = append_pages(file, millis / 1e3);
        else
            return 2;
        printf("%f\n", rate);
        fflush(stdout);
    }
    return 0;
}

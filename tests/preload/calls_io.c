/* Reading and writing by descriptor, places, holes, room, and what makes it lasting. */
#include "calls.h"

#include <sys/uio.h>

CASE(read_write)
{
    char text[64] = "";
    int file = FD(open("file", O_CREAT | O_RDWR, 0644));
    NUM(write(file, "0123456789", 10));
    NUM(write(file, "", 0));
    NUM(read(file, text, 5));
    NUM(lseek(file, -4, SEEK_CUR));
    NUM(read(file, text, 64));
    STR(text);
    NUM(read(file, text, 64));
    NUM(pread(file, text, 3, 1));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(pread(file, text, 3, 10));
    NUM(pread(file, text, 3, 1000000));
    NUM(pread(file, text, 3, -1));
    NUM(pwrite(file, "x", 1, -1));
    NUM(pwrite(file, "far", 3, 20));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(read(file, text, 0));
    NUM(lseek(file, 100, SEEK_END));
    NUM(read(file, text, 5));
    NUM(write(file, "further", 7));
    NUM(close(file));
    show("file");
    show_stat("file");
}

CASE(read_write_sizes)
{
    static unsigned char bytes[3 << 20], back[3 << 20];
    static const int sizes[] = {1, 511, 512, 513, 4095, 4096, 4097, 65536, 131071, 1 << 20, (1 << 20) + 1, 2500000};
    fill_pattern(bytes, sizeof bytes, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = (size_t)sizes[i];
        int file = open("file", O_CREAT | O_RDWR | O_TRUNC, 0644);
        ssize_t written = write(file, bytes, size);
        ssize_t moved = pwrite(file, bytes + 7, size, (off_t)size + 4097);
        ssize_t got = pread(file, back, sizeof back, 0);
        bool same = memcmp(bytes, back, size) == 0;
        ssize_t tail = pread(file, back, size, (off_t)size + 4097);
        say("%zu: %zd %zd %zd %d %zd %d", size, written, moved, got, same, tail, memcmp(back, bytes + 7, size) == 0);
        got = pread(file, back, 4097, (off_t)size);
        bool zero = true;
        for (int at = 0; at < 4097; at++)
            zero = zero && back[at] == 0;
        say("%zu: hole %zd %d, end %lld", size, got, zero, (long long)lseek(file, 0, SEEK_END));
        close(file);
    }
}

CASE(vectors)
{
    char one[5] = "", two[9] = "", three[30] = "";
    struct iovec out[] = {{"abcd", 4}, {"", 0}, {"efghijkl", 8}, {"mno", 3}};
    struct iovec in[] = {{one, 4}, {two, 8}, {three, 29}};
    int file = FD(open("file", O_CREAT | O_RDWR, 0644));
    NUM(writev(file, out, 4));
    NUM(lseek(file, 0, SEEK_SET));
    NUM(readv(file, in, 3));
    STR(one);
    STR(two);
    STR(three);
    NUM(pwritev(file, out + 2, 2, 100));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(preadv(file, in, 2, 99));
    say_bytes("one", one, 4);
    STR(two);
    NUM(preadv(file, in, 3, 5000));
    NUM(pwritev2(file, out, 4, -1, 0));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(pwritev2(file, out, 1, 50, RWF_DSYNC));
    NUM(pwritev2(file, out, 1, 54, RWF_SYNC));
    NUM(pwritev2(file, out, 1, 0, RWF_APPEND));
    NUM(pwritev2(file, out, 1, 60, RWF_HIPRI));
    NUM(pwritev2(file, out, 1, 0, 0x10000000));
    NUM(lseek(file, 0, SEEK_SET));
    NUM(preadv2(file, in, 2, -1, 0));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(preadv2(file, in, 1, 50, RWF_HIPRI));
    STR(one);
    NUM(preadv2(file, in, 1, 0, RWF_NOWAIT) == 4 || errno == EAGAIN || errno == EOPNOTSUPP);
    NUM(preadv2(file, in, 1, 0, 0x10000000));
    NUM(preadv(file, in, 1, -2));
    NUM(readv(file, in, -1));
    NUM(readv(file, in, 1025));
    NUM(writev(file, out, 0));
    struct iovec far[] = {{one, (size_t)-1}};
    NUM(readv(file, far, 1));
    NUM(close(file));
    show("file");
}

CASE(seek)
{
    int file = FD(open("file", O_CREAT | O_RDWR, 0644));
    NUM(write(file, "0123456789", 10));
    NUM(lseek(file, 3, SEEK_SET));
    NUM(lseek(file, 3, SEEK_CUR));
    NUM(lseek(file, -3, SEEK_END));
    NUM(lseek(file, 3, SEEK_END));
    NUM(lseek(file, -1, SEEK_SET));
    NUM(lseek(file, -100, SEEK_CUR));
    NUM(lseek(file, 0, 77));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(lseek(file, LLONG_MAX, SEEK_CUR));
    NUM(lseek(file, 1LL << 40, SEEK_SET));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(lseek(file, 0, SEEK_DATA));
    NUM(lseek(file, 3, SEEK_HOLE));
    NUM(lseek(file, 10, SEEK_DATA));
    NUM(lseek(file, 10, SEEK_HOLE));
    NUM(lseek(file, 11, SEEK_HOLE));
    NUM(lseek(file, -1, SEEK_HOLE));
    NUM(close(file));
}

CASE(seek_holes)
{
    int file = FD(open("file", O_CREAT | O_RDWR, 0644));
    NUM(ftruncate(file, 1 << 20));
    NUM(lseek(file, 0, SEEK_DATA));
    NUM(lseek(file, 0, SEEK_HOLE));
    NUM(lseek(file, 500000, SEEK_HOLE));
    NUM(pwrite(file, "data", 4, 262144));
    NUM(lseek(file, 0, SEEK_DATA));
    NUM(lseek(file, 262144, SEEK_HOLE));
    NUM(lseek(file, 262145, SEEK_DATA));
    NUM(lseek(file, 266240, SEEK_DATA));
    NUM(pwrite(file, "data", 4, 1048572));
    NUM(lseek(file, 266240, SEEK_DATA));
    NUM(lseek(file, 1048573, SEEK_HOLE));
    NUM(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 262144, 4096));
    NUM(lseek(file, 0, SEEK_DATA));
    NUM(close(file));
    int empty = FD(open("empty", O_CREAT | O_RDWR, 0644));
    NUM(lseek(empty, 0, SEEK_DATA));
    NUM(lseek(empty, 0, SEEK_HOLE));
    NUM(close(empty));
}

CASE(truncation)
{
    char text[64] = "";
    int file = FD(open("file", O_CREAT | O_RDWR, 0644));
    NUM(write(file, "0123456789", 10));
    NUM(ftruncate(file, 4));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(ftruncate(file, 8));
    NUM(pread(file, text, 64, 0));
    say_bytes("text", text, 8);
    NUM(ftruncate(file, -1));
    NUM(ftruncate(file, 0));
    NUM(write(file, "x", 1));
    NUM(truncate("file", 20));
    NUM(truncate("file", -1));
    NUM(truncate("none", 0));
    NUM(truncate(".", 0));
    NUM(truncate("file/x", 0));
    NUM(truncate("", 0));
    NUM(symlink("file", "link"));
    NUM(truncate("link", 5));
    show_stat("file");
    NUM(ftruncate(file, 5LL << 30));
    NUM(lseek(file, 0, SEEK_END));
    NUM(pwrite(file, "end", 3, (5LL << 30) - 3));
    memset(text, 0, sizeof text);
    NUM(pread(file, text, 64, (5LL << 30) - 3));
    STR(text);
    NUM(ftruncate(file, 1));
    NUM(close(file));
    show("file");
}

CASE(allocation)
{
    struct stat meta;
    char text[10] = "";
    int file = FD(open("file", O_CREAT | O_RDWR, 0644));
    NUM(fallocate(file, 0, 0, 100000));
    NUM(lseek(file, 0, SEEK_END));
    NUM(fallocate(file, FALLOC_FL_KEEP_SIZE, 100000, 200000));
    NUM(fstat(file, &meta));
    NUM(meta.st_size);
    YES(meta.st_blocks * 512 >= 300000);
    NUM(pwrite(file, "abcdefgh", 8, 8192));
    NUM(fallocate(file, FALLOC_FL_PUNCH_HOLE, 0, 4096));
    NUM(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8194, 2));
    NUM(pread(file, text, 8, 8192));
    say_bytes("text", text, 8);
    NUM(fallocate(file, 0, 0, 0));
    NUM(fallocate(file, 0, -1, 10));
    NUM(fallocate(file, 0, 0, -1));
    NUM(fallocate(file, 0x4000, 0, 10));
    NUM(posix_fallocate(file, 300000, 10));
    NUM(lseek(file, 0, SEEK_END));
    ERR(posix_fallocate(file, 0, 0));
    ERR(posix_fallocate(file, -1, 10));
    ERR(posix_fallocate(-1, 0, 10));
    int reader = FD(open("file", O_RDONLY));
    ERR(posix_fallocate(reader, 0, 10));
    NUM(fallocate(reader, 0, 0, 10));
    NUM(close(reader));
    NUM(close(file));
    int folder = FD(open(".", O_RDONLY));
    NUM(fallocate(folder, 0, 0, 10));
    NUM(close(folder));
}

/* What ext4 has and tmpfs does not. */
CASE(allocation_modes)
{
    char text[10] = "";
    int file = FD(open("file", O_CREAT | O_RDWR, 0644));
    unsigned char bytes[4096];
    for (int i = 0; i < 8; i++) {
        memset(bytes, 'a' + i, sizeof bytes);
        if (pwrite(file, bytes, 4096, i * 4096) != 4096)
            say("pwrite = %s", error_name(errno));
    }
    NUM(fallocate(file, FALLOC_FL_ZERO_RANGE, 4000, 200));
    NUM(pread(file, text, 8, 3996));
    say_bytes("text", text, 8);
    NUM(fallocate(file, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 32768, 4096));
    NUM(lseek(file, 0, SEEK_END));
    NUM(fallocate(file, FALLOC_FL_ZERO_RANGE, 32768, 4096));
    NUM(lseek(file, 0, SEEK_END));
    NUM(close(file));
    show("file");
}

/* What moves everything behind it: ext4 has it, tmpfs and others do not. */
CASE(allocation_shifts)
{
    put_pattern("file", 32768);
    int file = FD(open("file", O_RDWR));
    NUM(fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 8192, 4096));
    NUM(fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 8192, 100));
    NUM(fallocate(file, FALLOC_FL_INSERT_RANGE, 4096, 4096));
    NUM(lseek(file, 0, SEEK_END));
    NUM(close(file));
    show("file");
}

CASE(advice)
{
    put_pattern("file", 300000);
    int file = FD(open("file", O_RDWR));
    ERR(posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL));
    ERR(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM));
    ERR(posix_fadvise(file, 0, 100000, POSIX_FADV_WILLNEED));
    ERR(posix_fadvise(file, 0, 100000, POSIX_FADV_DONTNEED));
    ERR(posix_fadvise(file, 0, 0, POSIX_FADV_NOREUSE));
    ERR(posix_fadvise(file, 0, 0, POSIX_FADV_NORMAL));
    ERR(posix_fadvise(file, 0, 0, 77));
    ERR(posix_fadvise(file, 0, -1, POSIX_FADV_NORMAL));
    ERR(posix_fadvise(-1, 0, 0, POSIX_FADV_NORMAL));
    NUM(readahead(file, 0, 100000));
    NUM(readahead(-1, 0, 100000));
    int writer = FD(open("file", O_WRONLY));
    NUM(readahead(writer, 0, 100000));
    NUM(close(writer));
    NUM(sync_file_range(file, 0, 4096, SYNC_FILE_RANGE_WRITE));
    NUM(sync_file_range(file, 0, 0,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
    NUM(sync_file_range(file, -1, 4096, SYNC_FILE_RANGE_WRITE));
    NUM(sync_file_range(file, 0, 4096, 0x1000));
    NUM(sync_file_range(-1, 0, 4096, 0));
    NUM(close(file));
}

CASE(lasting)
{
    int file = FD(open("file", O_CREAT | O_RDWR, 0644));
    NUM(write(file, "lasting", 7));
    NUM(fsync(file));
    NUM(fdatasync(file));
    NUM(syncfs(file));
    sync();
    NUM(fsync(-1));
    NUM(fdatasync(-1));
    NUM(syncfs(-1));
    int reader = FD(open("file", O_RDONLY));
    NUM(fsync(reader));
    NUM(fdatasync(reader));
    NUM(close(reader));
    NUM(close(file));
    int folder = FD(open(".", O_RDONLY | O_DIRECTORY));
    NUM(fsync(folder));
    NUM(fdatasync(folder));
    NUM(syncfs(folder));
    NUM(close(folder));
    show("file");
}

/* A file larger than 4 GiB, of which little is there. */
CASE(large_offsets)
{
    char text[12] = "";
    int file = FD(open("file", O_CREAT | O_RDWR, 0644));
    static const off_t places[] = {0x7ffffffeLL, 0xfffffffeLL, 0x100000000LL, 0x4000000000LL};
    for (int i = 0; i < 4; i++) {
        NUM(pwrite(file, "0123456789", 10, places[i]));
        NUM(lseek(file, places[i] + 2, SEEK_SET));
        NUM(read(file, text, 5));
        STR(text);
        NUM(lseek(file, 0, SEEK_END));
    }
    NUM(ftruncate(file, 0x100000001LL));
    memset(text, 0, sizeof text);
    NUM(pread(file, text, 10, 0xfffffffeLL));
    STR(text);
    NUM(close(file));
    show_stat("file");
}

/* What is written at a place goes behind the end of a file that appends, and the offset stays. */
CASE(appended_at)
{
    struct iovec parts[2] = {{"ab", 2}, {"cd", 2}};
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR | O_APPEND));
    NUM(lseek(file, 3, SEEK_SET));
    NUM(pwrite(file, "x", 1, 5));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(pwritev(file, parts, 2, 5));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(pwritev2(file, parts, 1, 1, 0));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(close(file));
    file = FD(open("file", O_RDWR));
    NUM(lseek(file, 4, SEEK_SET));
    NUM(pwritev2(file, parts, 2, 0, RWF_APPEND));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(pwritev2(file, parts, 2, -1, RWF_APPEND));
    NUM(lseek(file, 0, SEEK_CUR));
    show("file");
}

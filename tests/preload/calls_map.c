/* Mappings: private and shared, beside read and write, in parts, after close, across fork. */
#include "calls.h"

#include <sys/mman.h>

static unsigned char *map(int file, size_t length, int protection, int flags, off_t from)
{
    return mmap(NULL, length, protection, flags, file, from);
}

/* What was stored before a change is older than the change. */
CASE(map_and_attributes)
{
    struct timespec times[2] = {{100, 0}, {200, 0}};
    struct stat found = {0};
    put_pattern("file", 10000);
    int file = FD(open("file", O_RDWR));
    unsigned char *bytes = PTR(map(file, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    bytes[5000] = 1;
    NUM(futimens(file, times));
    NUM(fchmod(file, 06711));
    NUM(fsync(file));
    NUM(munmap(bytes, 10000));
    NUM(fstat(file, &found));
    NUM(found.st_mtim.tv_sec);
    say("mode %o", found.st_mode);
}

CASE(map_shared)
{
    char text[20] = "";
    put_pattern("file", 10000);
    int file = FD(open("file", O_RDWR));
    unsigned char *bytes = PTR(map(file, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    YES(is_pattern(bytes, 10000, 0));
    memcpy(bytes + 4094, "mapped", 6);
    NUM(pread(file, text, 6, 4094));
    STR(text);
    NUM(pwrite(file, "WRITTEN", 7, 8190));
    say_bytes("seen in the mapping", bytes + 8190, 7);
    int other = FD(open("file", O_RDWR));
    NUM(pwrite(other, "OTHER", 5, 100));
    say_bytes("seen in the mapping", bytes + 100, 5);
    NUM(lseek(other, 4094, SEEK_SET));
    NUM(read(other, text, 6));
    STR(text);
    NUM(close(other));
    NUM(close(file));
    memcpy(bytes + 200, "after close", 11);
    NUM(msync(bytes, 10000, MS_SYNC));
    NUM(munmap(bytes, 10000));
    file = FD(open("file", O_RDONLY));
    NUM(pread(file, text, 11, 200));
    STR(text);
    NUM(close(file));
    show("file");
    show_stat("file");
}

CASE(map_sizes)
{
    static const size_t sizes[] = {1, 100, 4095, 4096, 4097, 65536, 65537, 1 << 20, (4 << 20) + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i], pages = (size + 4095) / 4096 * 4096;
        put_pattern("file", size);
        int file = open("file", O_RDWR);
        unsigned char *shared = map(file, size, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
        unsigned char *private = map(file, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
        if (shared == MAP_FAILED || private == MAP_FAILED) {
            say("%zu: no mapping: %s", size, error_name(errno));
            continue;
        }
        bool tail = true;
        for (size_t at = size; at < pages; at++)
            tail = tail && shared[at] == 0 && private[at] == 0;
        say("%zu: shared %d, private %d, zeros behind %d", size, is_pattern(shared, size, 0),
            is_pattern(private, size, 0), tail);
        shared[size - 1] ^= 0xff;
        private[0] ^= 0xff;
        unsigned char last = 0, first = 0;
        ssize_t got = pread(file, &last, 1, (off_t)size - 1) + pread(file, &first, 1, 0);
        say("%zu: %zd, %d %d", size, got, last == shared[size - 1], first == shared[0]);
        int unmapped = munmap(shared, size) + munmap(private, size);
        say("%zu: %d %d", size, unmapped, close(file));
    }
}

CASE(map_private)
{
    char text[20] = "";
    put("file", "0123456789");
    int file = FD(open("file", O_RDONLY));
    char *bytes = PTR((char *)map(file, 10, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0));
    bytes[2] = 'X';
    NUM(pread(file, text, 10, 0));
    STR(text);
    say_bytes("mapping", bytes, 10);
    NUM(msync(bytes, 10, MS_SYNC));
    NUM(munmap(bytes, 10));
    show("file");
    bytes = PTR((char *)map(file, 10, PROT_READ, MAP_PRIVATE, 0));
    int writer = FD(open("file", O_WRONLY));
    NUM(pwrite(writer, "now", 3, 0));
    say_bytes("an untouched private page", bytes, 10);
    NUM(close(writer));
    NUM(close(file));
    say_bytes("after close", bytes, 10);
    NUM(munmap(bytes, 10));
}

CASE(map_parts)
{
    enum { PAGE = 4096, PAGES = 8 };
    unsigned char byte;
    put_pattern("file", PAGE * PAGES);
    int file = FD(open("file", O_RDWR));
    unsigned char *bytes = PTR(map(file, PAGE * PAGES, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    NUM(munmap(bytes + 2 * PAGE, PAGE));
    bytes[PAGE] = 'a';
    bytes[3 * PAGE] = 'b';
    NUM(munmap(bytes, PAGE));
    NUM(munmap(bytes + 6 * PAGE, 2 * PAGE));
    bytes[5 * PAGE] = 'c';
    NUM(msync(bytes + 3 * PAGE, 3 * PAGE, MS_SYNC));
    NUM(msync(bytes + PAGE, 4 * PAGE, MS_SYNC));
    for (int page = 1; page < 6; page += 2) {
        NUM(pread(file, &byte, 1, page * PAGE));
        say("page %d: %c", page, byte);
    }
    NUM(munmap(bytes + PAGE, 5 * PAGE));
    unsigned char *later = PTR(map(file, 2 * PAGE, PROT_READ, MAP_SHARED, 5 * PAGE));
    YES(later[0] == 'c' && is_pattern(later + 1, 2 * PAGE - 1, 5 * PAGE + 1));
    NUM(munmap(later, 2 * PAGE));
    PTR(map(file, PAGE, PROT_READ, MAP_SHARED, 100));
    later = PTR(map(file, PAGE, PROT_READ, MAP_SHARED, 100 * PAGE));
    NUM(munmap(later, PAGE));
}

CASE(map_fixed)
{
    enum { PAGE = 4096 };
    put_pattern("file", 4 * PAGE);
    int file = FD(open("file", O_RDWR));
    unsigned char *room = PTR(mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    YES(mmap(room + PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, PAGE) == room + PAGE);
    YES(is_pattern(room + PAGE, 2 * PAGE, PAGE));
    YES(mmap(room + 2 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == room + 2 * PAGE);
    NUM(room[2 * PAGE]);
    YES(is_pattern(room + PAGE, PAGE, PAGE));
    YES(mmap(room + 3 * PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0) == MAP_FAILED);
    NUM(errno == EEXIST);
    NUM(mprotect(room + PAGE, PAGE, PROT_READ));
    YES(is_pattern(room + PAGE, PAGE, PAGE));
    NUM(mprotect(room + PAGE, PAGE, PROT_READ | PROT_WRITE));
    room[PAGE] = '!';
    unsigned char byte = 0;
    NUM(pread(file, &byte, 1, PAGE));
    NUM(byte);
    NUM(munmap(room, 8 * PAGE));
}

CASE(map_remap)
{
    enum { PAGE = 4096 };
    put_pattern("file", 16 * PAGE);
    int file = FD(open("file", O_RDWR));
    unsigned char *bytes = PTR(map(file, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    bytes = PTR((unsigned char *)mremap(bytes, 4 * PAGE, 16 * PAGE, MREMAP_MAYMOVE));
    YES(is_pattern(bytes, 16 * PAGE, 0));
    memcpy(bytes + 12 * PAGE, "remapped", 8);
    bytes = PTR((unsigned char *)mremap(bytes, 16 * PAGE, PAGE, 0));
    YES(is_pattern(bytes, PAGE, 0));
    NUM(munmap(bytes, PAGE));
    char text[9] = "";
    NUM(pread(file, text, 8, 12 * PAGE));
    STR(text);
}

/* Whether the byte can be read; another way to ask would end the process. */
static bool readable(const unsigned char *byte)
{
    int ends[2];
    bool result = pipe(ends) == 0 && write(ends[1], byte, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return result;
}

CASE(map_beyond)
{
    enum { PAGE = 4096 };
    put_pattern("file", 5000);
    int file = FD(open("file", O_RDWR));
    unsigned char *bytes = PTR(map(file, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    YES(readable(bytes + PAGE));
    YES(readable(bytes + 2 * PAGE));
    NUM(ftruncate(file, 3 * PAGE));
    YES(readable(bytes + 2 * PAGE));
    NUM(bytes[2 * PAGE]);
    bytes[2 * PAGE + 5] = 'g';
    NUM(ftruncate(file, PAGE));
    YES(readable(bytes));
    YES(readable(bytes + PAGE));
    NUM(ftruncate(file, 3 * PAGE));
    NUM(bytes[2 * PAGE + 5]);
    NUM(bytes[PAGE + 5]);
    NUM(munmap(bytes, 4 * PAGE));
}

CASE(map_wrong)
{
    put("file", "0123456789");
    int reader = FD(open("file", O_RDONLY)), writer = FD(open("file", O_WRONLY)), folder = FD(open(".", O_RDONLY));
    PTR(map(reader, 10, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    PTR(map(writer, 10, PROT_READ, MAP_SHARED, 0));
    PTR(map(writer, 10, PROT_READ, MAP_PRIVATE, 0));
    PTR(map(reader, 0, PROT_READ, MAP_SHARED, 0));
    PTR(map(reader, 10, PROT_READ, 0, 0));
    PTR(map(reader, 10, PROT_READ, MAP_SHARED, -4096));
    PTR(map(folder, 10, PROT_READ, MAP_SHARED, 0));
    PTR(map(-1, 10, PROT_READ, MAP_SHARED, 0));
    unsigned char *bytes = PTR(map(reader, 10, PROT_READ, MAP_SHARED, 0));
    NUM(mprotect(bytes, 10, PROT_READ | PROT_WRITE));
    NUM(msync(bytes, 10, MS_SYNC | MS_ASYNC));
    NUM(msync(bytes + 1, 10, MS_SYNC));
    NUM(msync(bytes, 10, MS_ASYNC));
    NUM(munmap(bytes + 1, 10));
    NUM(munmap(bytes, 0));
    NUM(munmap(bytes, 10));
    NUM(msync(bytes, 10, MS_SYNC));
    int empty = FD(open("empty", O_CREAT | O_RDWR, 0644));
    bytes = PTR(map(empty, 10, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    YES(readable(bytes));
    NUM(pwrite(empty, "now", 3, 0));
    YES(readable(bytes));
    NUM(munmap(bytes, 10));
}

CASE(map_fork)
{
    struct gate told, back;
    put_pattern("file", 20000);
    make_gate(&told);
    make_gate(&back);
    int file = FD(open("file", O_RDWR));
    unsigned char *shared = PTR(map(file, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    unsigned char *private = PTR(map(file, 20000, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0));
    private[0] = 'p';
    if (in_child()) {
        NUM(private[0]);
        private[1] = 'c';
        memcpy(shared + 10000, "by the child", 12);
        open_gate(&told);
        wait_gate(&back);
        say_bytes("of the parent", shared + 100, 13);
        memcpy(shared + 200, "last", 4);
        NUM(pwrite(file, "written", 7, 300));
        leave_child(0);
    }
    wait_gate(&told);
    say_bytes("of the child", shared + 10000, 12);
    memcpy(shared + 100, "by the parent", 13);
    open_gate(&back);
    join();
    YES(private[1] != 'c');
    say_bytes("after its end", shared + 200, 4);
    say_bytes("written by the child", shared + 300, 7);
    char text[20] = "";
    NUM(pread(file, text, 12, 10000));
    STR(text);
}

/* Two processes that have opened the file each for itself. */
CASE(map_processes)
{
    struct gate go, done;
    put_pattern("file", 20000);
    make_gate(&go);
    make_gate(&done);
    if (in_child()) {
        int own = open("file", O_RDWR);
        unsigned char *bytes = map(own, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
        wait_gate(&go);
        say_bytes("of the other", bytes + 5000, 5);
        bytes[9000] = 'c';
        open_gate(&done);
        leave_child(0);
    }
    int file = FD(open("file", O_RDWR));
    unsigned char *bytes = map(file, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    memcpy(bytes + 5000, "hello", 5);
    open_gate(&go);
    wait_gate(&done);
    join();
    NUM(bytes[9000]);
    char byte = 0;
    NUM(pread(file, &byte, 1, 9000));
    NUM(byte);
}

CASE(map_unlinked)
{
    put_pattern("file", 10000);
    int file = FD(open("file", O_RDWR));
    unsigned char *bytes = PTR(map(file, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    NUM(unlink("file"));
    NUM(close(file));
    YES(is_pattern(bytes, 10000, 0));
    bytes[9999] = 1;
    NUM(msync(bytes, 10000, MS_SYNC));
    NUM(munmap(bytes, 10000));
    show_names(".");
}

/* Memory of a mapping as the buffer of a call on the same or another file. */
CASE(map_as_buffer)
{
    put_pattern("one", 100000);
    put("two", "");
    int one = FD(open("one", O_RDWR)), two = FD(open("two", O_RDWR));
    unsigned char *bytes = PTR(map(one, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    NUM(write(two, bytes, 100000));
    NUM(pread(two, bytes + 50000, 20000, 0));
    YES(is_pattern(bytes + 50000, 20000, 0));
    NUM(pwrite(one, bytes + 50000, 10000, 30000));
    YES(is_pattern(bytes + 30000, 10000, 0));
    NUM(pread(one, bytes, 10000, 60000));
    YES(memcmp(bytes, bytes + 60000, 10000) == 0);
    NUM(close(one));
    NUM(close(two));
    show("two");
}

CASE(map_advice)
{
    unsigned char there[16];
    put_pattern("file", 40000);
    int file = FD(open("file", O_RDWR));
    unsigned char *bytes = PTR(map(file, 40000, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    NUM(madvise(bytes, 40000, MADV_SEQUENTIAL));
    NUM(madvise(bytes, 40000, MADV_WILLNEED));
    bytes[3] = 'm';
    NUM(madvise(bytes, 40000, MADV_DONTNEED));
    NUM(bytes[3]);
    YES(is_pattern(bytes + 4, 39996, 4));
    NUM(mlock(bytes, 4096));
    NUM(munlock(bytes, 4096));
    NUM(mincore(bytes, 40000, there));
    NUM(madvise(bytes, 40000, 12345));
    NUM(munmap(bytes, 40000));
}

/* A private mapping has what is in the file, also after it was said that it is not needed. */
CASE(map_private_advice)
{
    enum { PAGE = 4096 };
    put_pattern("file", 3 * PAGE);
    int file = FD(open("file", O_RDWR));
    unsigned char *bytes = PTR(map(file, 3 * PAGE, PROT_READ, MAP_PRIVATE, 0));
    YES(is_pattern(bytes, 3 * PAGE, 0));
    NUM(madvise(bytes + PAGE, PAGE, MADV_DONTNEED));
    YES(is_pattern(bytes, 3 * PAGE, 0));
    NUM(madvise(bytes, PAGE, MADV_FREE));
    NUM(madvise(bytes, 3 * PAGE, MADV_WILLNEED));
    NUM(munmap(bytes, 3 * PAGE));
    bytes = PTR(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    bytes[0] = 1;
    NUM(madvise(bytes, PAGE, MADV_DONTNEED));
    NUM(bytes[0]);
}

/* Mappings that were taken apart: each file stays mapped as long as there is a piece of it. */
CASE(map_pieces)
{
    enum { PAGE = 4096 };
    char text[8] = "";
    put_pattern("one", 4 * PAGE);
    put_pattern("two", 4 * PAGE);
    int one = FD(open("one", O_RDWR)), two = FD(open("two", O_RDWR));
    unsigned char *other = PTR(map(one, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    unsigned char *bytes = PTR(map(one, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    YES(mmap(bytes + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, two, 0) == bytes + PAGE);
    NUM(munmap(bytes, 3 * PAGE));
    memcpy(other, "stored", 6);
    NUM(msync(other, PAGE, MS_SYNC));
    NUM(pread(one, text, 6, 0));
    STR(text);
    memcpy(other, "later!", 6);
    NUM(pread(one, text, 6, 0));
    STR(text);
    NUM(munmap(other, PAGE));
    NUM(pread(one, text, 6, 0));
    STR(text);
}

/* A piece that is not the beginning of a mapping is moved, copied, and moved over another one. */
CASE(map_moves)
{
    enum { PAGE = 4096 };
    char text[8] = "";
    put_pattern("file", 8 * PAGE);
    put_pattern("other", 8 * PAGE);
    int file = FD(open("file", O_RDWR)), another = FD(open("other", O_RDWR));
    unsigned char *bytes = PTR(map(file, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    unsigned char *place = PTR(map(another, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    YES(mremap(bytes + 2 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + PAGE) == place + PAGE);
    YES(mmap(bytes, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == bytes);
    memcpy(place + PAGE, "moved", 5);
    NUM(msync(place + PAGE, PAGE, MS_SYNC));
    NUM(pread(file, text, 5, 2 * PAGE));
    STR(text);
    unsigned char *second = PTR((unsigned char *)mremap(place + PAGE, 0, PAGE, MREMAP_MAYMOVE));
    NUM(munmap(place, 4 * PAGE));
    memcpy(second, "twice", 5);
    NUM(pread(file, text, 5, 2 * PAGE));
    STR(text);
    NUM(munmap(second, PAGE));
    NUM(pread(file, text, 5, 2 * PAGE));
    STR(text);
    NUM(pwrite(another, "0", 1, 0));
}

/* A large file with little in it: holes cost neither time nor blocks. */
CASE(map_sparse)
{
    const off_t tib = (off_t)1 << 40, half = tib / 2;
    struct stat found = {0};
    char text[8] = "";
    int file = FD(open("file", O_CREAT | O_RDWR, 0644));
    NUM(ftruncate(file, tib));
    NUM(pwrite(file, "data", 4, half));
    unsigned char *bytes = PTR(map(file, tib, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
    say_bytes("written", bytes + half, 5);
    NUM(bytes[tib - 1]);
    memcpy(bytes + tib - 4096, "stored", 6);
    NUM(msync(bytes + tib - 4096, 4096, MS_SYNC));
    NUM(pread(file, text, 6, tib - 4096));
    STR(text);
    NUM(munmap(bytes, tib));
    NUM(fstat(file, &found));
    YES(found.st_blocks < 100);
    bytes = PTR(map(file, 8192, PROT_READ, MAP_SHARED, half));
    say_bytes("written", bytes, 5);
    unsigned char *private = PTR(map(file, tib, PROT_READ, MAP_PRIVATE, 0));
    say_bytes("written", private + half, 5);
    say_bytes("stored", private + tib - 4096, 7);
    NUM(private[half / 2]);
    NUM(munmap(private, tib));
    NUM(ftruncate(file, half));
    YES(readable(bytes));
    NUM(munmap(bytes, 8192));
}

/* More of a file is seen in a mapping that grows, also what was not mapped before. */
CASE(map_grows)
{
    enum { PAGE = 4096, PAGES = 600 };
    put_pattern("file", PAGE * PAGES);
    int file = FD(open("file", O_RDWR));
    unsigned char *bytes = PTR(map(file, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 2 * PAGE));
    YES(is_pattern(bytes, PAGE, 2 * PAGE));
    bytes = PTR((unsigned char *)mremap(bytes, PAGE, (PAGES - 2) * PAGE, MREMAP_MAYMOVE));
    YES(is_pattern(bytes, (PAGES - 2) * PAGE, 2 * PAGE));
    bytes[300 * PAGE] ^= 1;
    unsigned char *second = PTR(map(file, PAGE * PAGES, PROT_READ, MAP_SHARED, 0));
    YES(is_pattern(second, 2 * PAGE, 0));
    YES(second[302 * PAGE] == bytes[300 * PAGE]);
    NUM(munmap(bytes, (PAGES - 2) * PAGE));
    NUM(munmap(second, PAGE * PAGES));
}

/* Bytes stored beyond the end, in the last page, are no content of the file when it grows. */
CASE(map_tail)
{
    static const char *const ways[] = {"t", "mt", "ut", "mut", "w", "mw", "uw", "muw", "a", "ma", "ft", "mc"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char text[20] = "";
        struct stat found = {0};
        put("file", "abc");
        int file = open("file", O_RDWR), end = open("file", O_WRONLY | O_APPEND);
        char *bytes = (char *)map(file, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
        bytes[10] = 'X';
        bytes[4095] = 'Y';
        for (const char *way = ways[i]; *way; way++) {
            switch (*way) {
            case 'm': msync(bytes, 4096, MS_SYNC); break;
            case 'u': munmap(bytes, 4096); break;
            case 'f': fsync(file); break;
            case 't': ftruncate(file, 5000); break;
            case 'w': pwrite(file, "e", 1, 4999); break;
            case 'a': write(end, "12345", 5); ftruncate(file, 5000); break;
            case 'c': copy_file_range(file, &(off_t){0}, file, &(off_t){4097}, 3, 0); break;
            }
        }
        ssize_t got = pread(file, text, 20, 0);
        char last = 'Z';
        pread(file, &last, 1, 4095);
        fstat(file, &found);
        say("%s: %zd, %d %d, size %ld", ways[i], got, text[10], last, (long)found.st_size);
        close(file);
        close(end);
    }
}

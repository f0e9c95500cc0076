/*
 * Calls on files at random: each is said with what came of it, so that a seed says the same on every file
 * system that is right.
 *
 * random FIRST LAST COUNT FOLDER [alone] [trace]
 *
 * makes so many calls for each seed, in a folder of its own; with `alone` without other processes, with
 * `trace` it says after each call what each open file has.
 *
 * Each call is chosen by its number and the seed alone, so that one difference does not make all calls after
 * it others. What two right file systems may have differently is left out where a call is chosen: sizes and
 * offsets of directories, access times, blocks, a file sent to another place of itself, what a write from
 * memory that is not there leaves behind the end, set-id and sticky bits, and locks while a mapping keeps the
 * file of a closed descriptor open.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { FILES = 12, STREAMS = 4, MAPS = 4, BYTES = 1 << 17, LARGEST = 1 << 24 };

/* What no name of a file can be: it is longer. */
static char longest[NAME_MAX + 20];
static char top[PATH_MAX];
static FILE *out;
static int files[FILES];
static FILE *streams[STREAMS];
static char stream_memory[STREAMS][4096];
static struct mapping {
    char *at;
    size_t bytes;
    bool can_read, can_store;
    /* Of the same file; and where in it the mapping is. */
    int fd;
    off_t offset;
} maps[MAPS];
static char memory[BYTES];
static bool is_alone, is_traced;
/* When a mapping's changes are seen in times, each file system says for itself. */
static bool has_stored;

static uint64_t state;

static uint32_t below(uint32_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state * 0x2545f4914f6cdd1dULL >> 32) % limit);
}

static bool once_in(uint32_t times)
{
    return below(times) == 0;
}

/* One of these, which are all of the first one's type. */
#define ONE_OF(...)                                                                       \
    ({                                                                                    \
        static const __typeof__(((void)0, FIRST_OF(__VA_ARGS__, 0))) all[] = {__VA_ARGS__}; \
        all[below(sizeof all / sizeof *all)];                                             \
    })
#define FIRST_OF(first, ...) first

/* Some of these bits. */
static int some_of(const int *bits, size_t count, uint32_t times)
{
    int chosen = 0;
    for (size_t i = 0; i < count; i++)
        if (once_in(times))
            chosen |= bits[i];
    return chosen;
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    vfprintf(out, format, rest);
    va_end(rest);
}

static const char *error_of(long result)
{
    return result < 0 ? strerrorname_np(errno) : "";
}

/* The end of a line. */
static void result(long value)
{
    const char *error = error_of(value);
    say(" = %ld %s\n", value, error);
}

static uint64_t hash(const void *bytes, size_t count)
{
    uint64_t sum = 1469598103934665603ULL;
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ ((const unsigned char *)bytes)[i]) * 1099511628211ULL;
    return sum;
}

static void say_memory(size_t count)
{
    say("   %llx\n", (unsigned long long)hash(memory, count));
}

/* A path, and what is none. */
static const char *path(void)
{
    switch (below(200)) {
    case 0:
        return longest;
    case 1:
        return (const char *)8;
    case 2:
        return NULL;
    }
    return ONE_OF("a", "b", "c", "d", "e", "x", "y", "x/a", "x/b", "y/a", "y/z", "y/z/a", "x/w", "l", "m", "x/l", "a", "b", "c",
                  "x/a", "x", "y", "./a", "x//a", "y/./z", "x/.", "a/", "x/", "l/", "l/a", "none", "none/a", "a/b", "", ".",
                  "o", "o/p", "o/p/q");
}

static bool is_memory(const char *path)
{
    return (uintptr_t)path >= 4096;
}

static const char *path_in_memory(void)
{
    const char *found = path();
    return is_memory(found) ? found : "a";
}

static const char *name_that_may_be(void)
{
    const char *found = path_in_memory();
    return found == longest ? "a" : found;
}

static void say_path(const char *path)
{
    if (!is_memory(path))
        say(" <%lu>", (unsigned long)(uintptr_t)path);
    else if (path == longest)
        say(" <long>");
    else
        say(" '%s'", path);
}

/* A descriptor, and its number here, which is said: most often one that is open. */
struct chosen {
    int number, fd;
};

static struct chosen file(void)
{
    switch (below(60)) {
    case 0:
        return (struct chosen){-1, -1};
    case 1:
        return (struct chosen){-2, 777};
    }
    struct chosen found = {0, -1};
    for (int tries = 0; tries < 4 && found.fd < 0; tries++) {
        found.number = (int)below(FILES);
        found.fd = files[found.number];
    }
    return found;
}

static struct chosen directory(void)
{
    return once_in(4) ? file() : (struct chosen){-3, AT_FDCWD};
}

/* A new descriptor takes a place, and closes what was there. */
static void keep(int fd)
{
    result(fd < 0 ? fd : 0);
    if (fd < 0)
        return;
    int place = (int)below(FILES);
    if (files[place] >= 0)
        close(files[place]);
    files[place] = fd;
    say("   kept %d\n", place);
}

static bool is_kind(int fd, mode_t kind)
{
    struct stat found;
    return fd >= 0 && fstat(fd, &found) == 0 && (found.st_mode & S_IFMT) == kind;
}

static bool is_path_only(int fd)
{
    return fd >= 0 && fcntl(fd, F_GETFL) & O_PATH;
}

static bool is_any_mapped(void)
{
    for (int i = 0; i < MAPS; i++)
        if (maps[i].at)
            return true;
    return false;
}

static char *buffer(void)
{
    switch (below(150)) {
    case 0:
        return (char *)16;
    case 1:
        return NULL;
    }
    return memory;
}

static void fill(size_t count)
{
    unsigned char first = (unsigned char)below(256);
    for (size_t i = 0; i < count; i++)
        memory[i] = (char)(first + i * 7);
}

static size_t length(void)
{
    return (size_t)ONE_OF(0, 1, 2, 3, 10, 100, 511, 512, 513, 4095, 4096, 4097, 8192, 10000, 65536, 70000);
}

static off_t offset(void)
{
    return ONE_OF(0, 0, 1, 10, 100, 511, 512, 4095, 4096, 4097, 8191, 8192, 12288, 20000, 65536, 100000, 131072, -1, -4096,
                  200000, 1 << 20);
}

static mode_t mode(void)
{
    return (mode_t)ONE_OF(0, 0600, 0644, 0755, 0777, 0400, 0200, 0100644);
}

/* Opening and copying descriptors. */

static int open_flags(void)
{
    static const int more[] = {O_EXCL, O_TRUNC, O_APPEND, O_NOFOLLOW, O_DIRECTORY, O_CLOEXEC, O_SYNC, O_PATH, O_NOATIME};
    if (once_in(40))
        return O_ACCMODE | O_NONBLOCK;
    int flags = ONE_OF(O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR) | O_NONBLOCK;
    if (once_in(2))
        flags |= O_CREAT;
    return flags | some_of(more, sizeof more / sizeof *more, 12);
}

static void call_open(void)
{
    struct chosen dir = directory();
    const char *name = path();
    int flags = open_flags();
    mode_t permissions = mode();
    say("open %d", dir.number);
    say_path(name);
    say(" %o %o", (unsigned)flags, permissions);
    keep(dir.fd == AT_FDCWD ? open(name, flags, permissions) : openat(dir.fd, name, flags, permissions));
}

static void call_open_nameless(void)
{
    int flags = O_TMPFILE | ONE_OF(O_RDWR, O_RDWR, O_WRONLY, O_RDONLY);
    const char *name = once_in(2) ? "." : path_in_memory();
    /* Of a folder that was removed, file systems say different things. */
    struct stat here;
    if (once_in(6))
        flags |= O_EXCL;
    say("open nameless");
    say_path(name);
    say(" %o", (unsigned)flags);
    if (stat(".", &here) == 0 && here.st_nlink > 0)
        keep(open(name, flags, 0600));
    else
        say("\n");
}

/* A file that is open, by the kernel's name for its descriptor. */
static void call_open_again(void)
{
    char name[64];
    struct chosen one = file();
    int flags = ONE_OF(O_RDONLY, O_RDWR, O_WRONLY | O_TRUNC, O_PATH) | O_NONBLOCK;
    snprintf(name, sizeof name, "/proc/self/fd/%d", one.fd);
    say("open again %d %o", one.number, (unsigned)flags);
    keep(open(name, flags));
}

static void call_close(void)
{
    int place = (int)below(FILES);
    say("close %d", place);
    result(close(files[place]));
    files[place] = -1;
}

static void call_dup(void)
{
    struct chosen one = file();
    int place = (int)below(FILES), how = (int)below(3);
    say("dup %d %d to %d", how, one.number, place);
    if (how == 0)
        keep(dup(one.fd));
    else if (files[place] < 0)
        say("\n");
    else
        result((how == 1 ? dup2(one.fd, files[place]) : dup3(one.fd, files[place], O_CLOEXEC)) < 0 ? -1 : 0);
}

static void call_fcntl(void)
{
    struct chosen one = file();
    int command = ONE_OF(F_GETFL, F_GETFD, F_SETFD, F_SETFL, F_GETOWN, F_GETSIG, F_DUPFD, F_DUPFD_CLOEXEC, F_GETPIPE_SZ,
                         F_GET_SEALS, F_GETLEASE, 12345);
    int argument = once_in(2) ? O_APPEND : (int)below(2);
    if (command == F_SETFL)
        argument |= O_NONBLOCK;
    say("fcntl %d %d %d", one.number, command, argument);
    int done = fcntl(one.fd, command, argument);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        keep(done);
    else
        result(done);
}

static void call_ioctl(void)
{
    enum { SIZE_OF_BLOCK = 2, SIZE_OF_FILE = 0x5460 };
    struct chosen one = file();
    unsigned long command =
        ONE_OF(FIONREAD, FIOCLEX, FIONCLEX, FIONBIO, FIOASYNC, TCGETS, 0x1234UL, SIZE_OF_BLOCK, SIZE_OF_FILE);
    long value[2] = {0, 0};
    say("ioctl %d %lx", one.number, command);
    int done = ioctl(one.fd, command, once_in(30) ? (void *)8 : (void *)value);
    result(done);
    if (done == 0 && command == FIONREAD && is_kind(one.fd, S_IFREG))
        say("   %ld\n", value[0]);
}

/* Reading and writing. */

static void call_read(void)
{
    struct chosen one = file();
    char *into = buffer();
    size_t count = length();
    bool is_placed = once_in(2);
    off_t at = offset();
    if (is_kind(one.fd, S_IFDIR) && !is_placed)
        return;
    say("read %d %zu %s", one.number, count, into == memory ? "" : "bad");
    memset(memory, 1, sizeof memory);
    if (is_placed)
        say(" at %ld", (long)at);
    result(is_placed ? pread(one.fd, into, count, at) : read(one.fd, into, count));
    say_memory(count);
}

static void call_write(void)
{
    struct chosen one = file();
    bool is_placed = once_in(2);
    char *from = is_placed ? buffer() : memory;
    size_t count = length();
    off_t at = from == memory ? offset() : 0;
    fill(count);
    say("write %d %zu %s", one.number, count, from == memory ? "" : "bad");
    if (is_placed)
        say(" at %ld", (long)at);
    result(is_placed ? pwrite(one.fd, from, count, at) : write(one.fd, from, count));
}

static void call_vectors(void)
{
    struct chosen one = file();
    enum { WRITE, WRITE_AT, WRITE_FLAGS, READ, READ_FLAGS, HOWS };
    unsigned how = below(HOWS);
    char *first = how == WRITE ? memory : buffer();
    size_t count = length() / 2, last = length() / 2;
    struct iovec parts[] = {{first, count}, {memory + 100, 0}, {memory + 3, last}};
    int number = once_in(5) ? ONE_OF(0, -1, 1, 2000) : 3;
    off_t at = first != memory && how < READ ? 0 : once_in(3) ? -1 : offset();
    int flags = ONE_OF(0, 0, 0, RWF_APPEND, RWF_DSYNC, RWF_SYNC, RWF_HIPRI, 0x10000);
    if (is_kind(one.fd, S_IFDIR))
        return;
    fill(sizeof memory);
    if (how >= READ)
        memset(memory, 1, sizeof memory);
    say("vectors %u %d %zu %zu %d at %ld %x %s", how, one.number, count, last, number, (long)at, (unsigned)flags,
        first == memory ? "" : "bad");
    result(how == WRITE         ? writev(one.fd, parts, number)
           : how == WRITE_AT    ? pwritev(one.fd, parts, number, at)
           : how == WRITE_FLAGS ? pwritev2(one.fd, parts, number, at, flags)
           : how == READ        ? readv(one.fd, parts, number)
                                : preadv2(one.fd, parts, number, at, flags));
    if (how >= READ)
        say_memory(sizeof memory);
}

static void call_lseek(void)
{
    struct chosen one = file();
    off_t at = offset();
    int whence = once_in(10) ? 9 : (int)below(3);
    if (is_kind(one.fd, S_IFDIR))
        return;
    say("lseek %d %ld %d", one.number, (long)at, whence);
    result(lseek(one.fd, at, whence));
}

static void call_truncate(void)
{
    struct chosen one = file();
    const char *name = path();
    off_t size = offset();
    if (once_in(2)) {
        say("ftruncate %d %ld", one.number, (long)size);
        result(ftruncate(one.fd, size));
    } else {
        say("truncate");
        say_path(name);
        say(" %ld", (long)size);
        result(truncate(name, size));
    }
}

static void call_fallocate(void)
{
    struct chosen one = file();
    int how = ONE_OF(0, 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE,
                     FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE, FALLOC_FL_PUNCH_HOLE, 0x8000);
    off_t at = offset(), count = offset();
    say("fallocate %d %x %ld %ld", one.number, (unsigned)how, (long)at, (long)count);
    result(fallocate(one.fd, how, at, count));
}

static void call_sync(void)
{
    struct chosen one = file();
    unsigned how = below(6), flags = below(8);
    say("sync %u %d %u", how, one.number, flags);
    result(how == 0   ? fsync(one.fd)
           : how == 1 ? fdatasync(one.fd)
           : how == 2 ? sync_file_range(one.fd, 0, 4096, flags)
           : how == 3 ? syncfs(one.fd)
           : how == 4 ? posix_fadvise(one.fd, 0, 4096, (int)flags)
                      : readahead(one.fd, 0, 4096));
}

static bool is_same(int one, int other)
{
    struct stat first, second;
    return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_ino == second.st_ino;
}

static void call_copy(void)
{
    struct chosen from = file(), to = file();
    off_t at = offset(), to_at = offset();
    size_t count = length();
    enum { RANGE, RANGE_NEXT, SEND, SEND_NEXT, HOWS };
    unsigned how = below(HOWS), flags = once_in(10);
    bool is_itself = how == SEND_NEXT && from.fd == to.fd;
    if (how >= SEND && (is_kind(from.fd, S_IFDIR) || (is_same(from.fd, to.fd) && !is_itself)))
        return;
    if (how >= SEND && at < 0)
        at = 0;
    say("copy %u %d %d at %ld %ld %zu", how, from.number, to.number, (long)at, (long)to_at, count);
    result(how == RANGE        ? copy_file_range(from.fd, &at, to.fd, &to_at, count, 0)
           : how == RANGE_NEXT ? copy_file_range(from.fd, NULL, to.fd, NULL, count, flags)
                               : sendfile(to.fd, from.fd, how == SEND ? &at : NULL, count));
    say("   %ld %ld\n", (long)at, (long)to_at);
}

static void call_splice(void)
{
    struct chosen one = file();
    size_t count = length() % 5000;
    loff_t at = offset();
    loff_t *place = once_in(2) ? &at : NULL;
    bool is_write = once_in(3);
    int ends[2];
    if (is_kind(one.fd, S_IFDIR) || pipe2(ends, O_NONBLOCK))
        return;
    say("splice %d %d at %ld %zu", is_write, one.number, place ? (long)at : -9, count);
    if (is_write) {
        fill(1000);
        if (write(ends[1], memory, 1000) == 1000)
            result(splice(ends[0], NULL, one.fd, place, count, SPLICE_F_NONBLOCK));
    } else {
        ssize_t sent = splice(one.fd, place, ends[1], NULL, count, 0);
        result(sent);
        if (sent > 0 && read(ends[0], memory, (size_t)sent) == sent)
            say_memory((size_t)sent);
    }
    say("   %ld\n", (long)at);
    close(ends[0]);
    close(ends[1]);
}

/* What is known of files. */

static void say_stat(long done, const struct stat *found)
{
    if (done < 0) {
        result(done);
        return;
    }
    say(" = %o links %ld of %u:%u", found->st_mode, (long)found->st_nlink, found->st_uid, found->st_gid);
    if (!S_ISDIR(found->st_mode))
        say(" size %ld", (long)found->st_size);
    /* It was set by a call. */
    if (found->st_mtim.tv_sec < 1000000000 && !has_stored)
        say(" changed %ld.%09ld", (long)found->st_mtim.tv_sec, found->st_mtim.tv_nsec);
    say("\n");
}

static void call_stat(void)
{
    struct stat found;
    struct statx more;
    const char *name = path();
    struct chosen one = directory();
    int flags = ONE_OF(0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_NO_AUTOMOUNT, 0x40);
    enum { STAT, LSTAT, FSTAT, AT, X, HOWS };
    unsigned how = below(HOWS);
    say("stat %u %d", how, one.number);
    say_path(name);
    say(" %x", (unsigned)flags);
    if (how == X) {
        int done = statx(one.fd, name, flags, STATX_BASIC_STATS, &more);
        if (done == 0) {
            found = (struct stat){.st_mode = more.stx_mode, .st_nlink = more.stx_nlink, .st_size = (off_t)more.stx_size};
            found.st_mtim.tv_sec = more.stx_mtime.tv_sec;
            found.st_mtim.tv_nsec = more.stx_mtime.tv_nsec;
        }
        say_stat(done, &found);
        return;
    }
    say_stat(how == STAT    ? stat(name, &found)
             : how == LSTAT ? lstat(name, &found)
             : how == FSTAT ? fstat(one.fd, &found)
                            : fstatat(one.fd, name, &found, flags),
             &found);
}

static void call_access(void)
{
    const char *name = path();
    struct chosen one = directory();
    int wanted = (int)below(9), flags = ONE_OF(0, AT_EACCESS, AT_SYMLINK_NOFOLLOW, 0x40);
    unsigned how = below(3);
    say("access %u %d", how, one.number);
    say_path(name);
    say(" %d %x", wanted, (unsigned)flags);
    result(how == 0 ? access(name, wanted) : how == 1 ? faccessat(one.fd, name, wanted, flags) : euidaccess(name, wanted));
}

static void call_chmod(void)
{
    const char *name = path();
    struct chosen one = file();
    mode_t permissions = mode();
    unsigned how = below(4);
    say("chmod %u %d", how, one.number);
    say_path(name);
    say(" %o", permissions);
    result(how == 0   ? chmod(name, permissions)
           : how == 1 ? fchmod(one.fd, permissions)
                      : fchmodat(AT_FDCWD, name, permissions, how == 2 ? AT_SYMLINK_NOFOLLOW : 0));
}

static void call_chown(void)
{
    const char *name = path();
    struct chosen one = file();
    uid_t user = (uid_t)ONE_OF(0, 1000, -1);
    gid_t group = (gid_t)ONE_OF(0, 100, -1);
    unsigned how = below(4);
    say("chown %u %d", how, one.number);
    say_path(name);
    say(" %d %d", (int)user, (int)group);
    result(how == 0   ? chown(name, user, group)
           : how == 1 ? lchown(name, user, group)
           : how == 2 ? fchown(one.fd, user, group)
                      : fchownat(one.fd, name, user, group, AT_EMPTY_PATH));
}

static void call_times(void)
{
    const char *name = path();
    struct chosen one = file();
    struct timespec times[2];
    for (int i = 0; i < 2; i++) {
        times[i].tv_sec = below(1000);
        times[i].tv_nsec = ONE_OF(0L, 1L, 999999999L, UTIME_OMIT, UTIME_OMIT, 1000000000L, -1L);
    }
    unsigned how = below(4);
    say("times %u %d", how, one.number);
    say_path(name);
    say(" %ld.%ld %ld.%ld", (long)times[0].tv_sec, times[0].tv_nsec, (long)times[1].tv_sec, times[1].tv_nsec);
    result(how == 0   ? utimensat(AT_FDCWD, name, times, 0)
           : how == 1 ? utimensat(AT_FDCWD, name, times, AT_SYMLINK_NOFOLLOW)
           : how == 2 ? futimens(one.fd, times)
                      : utimensat(one.fd, name, times, 0x40));
}

static void call_attribute(void)
{
    const char *file_name = name_that_may_be();
    const char *name = ONE_OF("user.a", "user.b", "user.", "user", "trusted.t", "none.a", "");
    struct chosen one = file();
    size_t count = (size_t)ONE_OF(0, 1, 10, 100);
    int flags = (int)below(4);
    enum { SET, LSET, FSET, GET, FGET, REMOVE, LIST, HOWS };
    unsigned how = below(HOWS);
    char value[200];
    memset(value, 'v', sizeof value);
    say("attribute %u %d", how, one.number);
    say_path(file_name);
    say(" '%s' %zu %d", name, count, flags);
    long done = how == SET      ? setxattr(file_name, name, value, count, flags)
                : how == LSET   ? lsetxattr(file_name, name, value, count, flags)
                : how == FSET   ? fsetxattr(one.fd, name, value, count, flags)
                : how == GET    ? getxattr(file_name, name, value, count)
                : how == FGET   ? fgetxattr(one.fd, name, value, count)
                : how == REMOVE ? removexattr(file_name, name)
                                : listxattr(file_name, value, once_in(2) ? sizeof value : 0);
    result(done);
    if (done > 0 && (how == GET || how == FGET) && count > 0)
        say("   %.*s\n", (int)done, value);
}

static void call_statvfs(void)
{
    struct chosen one = file();
    struct statvfs found;
    say("statvfs %d", one.number);
    int done = fstatvfs(one.fd, &found);
    result(done);
    if (done == 0)
        say("   %lu %lu\n", found.f_bsize, found.f_namemax);
}

/* Names. */

static void call_make(void)
{
    const char *name = path_in_memory();
    struct chosen dir = directory();
    mode_t kind = (mode_t)ONE_OF(S_IFDIR, S_IFDIR, S_IFREG, S_IFSOCK, 0), permissions = mode() & 07777;
    say("make %d", dir.number);
    say_path(name);
    say(" %o", kind | permissions);
    result(kind == S_IFDIR ? mkdirat(dir.fd, name, permissions) : mknodat(dir.fd, name, kind | permissions, 0));
}

static void call_remove(void)
{
    const char *name = path();
    struct chosen dir = directory();
    int flags = ONE_OF(0, AT_REMOVEDIR, 0x40);
    unsigned how = below(4);
    say("remove %u %d", how, dir.number);
    say_path(name);
    say(" %x", (unsigned)flags);
    result(how == 0   ? unlink(name)
           : how == 1 ? rmdir(name)
           : how == 2 ? remove(is_memory(name) ? name : "none")
                      : unlinkat(dir.fd, name, flags));
}

static void call_rename(void)
{
    /* Which of two errors is the first one, is not the same everywhere. */
    const char *from = path(), *to = name_that_may_be();
    struct chosen dir = directory(), to_dir = directory();
    unsigned flags = ONE_OF(0u, 0u, 0u, 1u, 2u, 3u, 0x40u);
    say("rename %d %d", dir.number, to_dir.number);
    say_path(from);
    say_path(to);
    say(" %x", flags);
    result(flags ? renameat2(dir.fd, from, to_dir.fd, to, flags) : rename(from, to));
}

static void call_link(void)
{
    char name[64];
    const char *from = name_that_may_be(), *to = name_that_may_be();
    struct chosen dir = directory(), to_dir = directory(), one = file();
    int flags = ONE_OF(0, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, 0x40);
    unsigned how = below(3);
    snprintf(name, sizeof name, "/proc/self/fd/%d", one.fd);
    say("link %u %d %d %d", how, dir.number, to_dir.number, one.number);
    say_path(from);
    say_path(to);
    say(" %x", (unsigned)flags);
    result(how == 0   ? link(from, to)
           : how == 1 ? linkat(dir.fd, from, to_dir.fd, to, flags)
                      : linkat(AT_FDCWD, name, AT_FDCWD, to, AT_SYMLINK_FOLLOW));
}

static void call_symlink(void)
{
    const char *target = ONE_OF("a", "x", "x/a", "none", "l", "m", ".", "y/z", "x/l", "");
    const char *name = once_in(2) ? path() : ONE_OF("l", "m", "x/l");
    say("symlink '%s'", target);
    say_path(name);
    result(symlink(target, name));
}

static void call_readlink(void)
{
    const char *name = path();
    struct chosen dir = directory();
    char target[64] = "";
    size_t room = (size_t)ONE_OF(64, 1, 2, 0);
    say("readlink %d", dir.number);
    say_path(name);
    say(" %zu", room);
    result(readlinkat(dir.fd, name, target, room));
    say("   %.64s\n", target);
}

static void call_realpath(void)
{
    const char *name = name_that_may_be();
    char found[PATH_MAX];
    say("realpath");
    say_path(name);
    if (realpath(name, found))
        say(" = %s\n", found + (strncmp(found, top, strlen(top)) ? 0 : strlen(top)));
    else
        result(-1);
}

static int by_name(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* The names in a directory, in order. */
static void say_names(DIR *dir)
{
    char *names[300];
    int count = 0;
    struct dirent *entry;
    while (count < 300 && (entry = readdir(dir))) {
        char line[NAME_MAX + 20];
        snprintf(line, sizeof line, "%s:%d", entry->d_name, entry->d_type);
        names[count++] = strdup(line);
    }
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; i < count; i++) {
        say(" %s", names[i]);
        free(names[i]);
    }
    say("\n");
}

static void call_list(void)
{
    const char *name = path_in_memory();
    struct chosen one = file();
    bool is_open = once_in(3);
    say("list %d", is_open ? one.number : -9);
    say_path(name);
    int copy = is_open ? dup(one.fd) : -1;
    DIR *dir = is_open ? fdopendir(copy) : opendir(name);
    if (!dir) {
        result(-1);
        if (copy >= 0)
            close(copy);
        return;
    }
    rewinddir(dir);
    say_names(dir);
    closedir(dir);
}

static void call_chdir(void)
{
    const char *name = path();
    struct chosen one = file();
    char here[PATH_MAX + 10];
    unsigned how = below(4);
    say("chdir %u %d", how, one.number);
    say_path(name);
    result(how == 0 ? fchdir(one.fd) : how == 1 ? chdir(name) : chdir(top));
    if (!getcwd(here, sizeof here))
        say("   nowhere\n");
    else if (strncmp(here, top, strlen(top)) == 0)
        say("   in %s\n", here + strlen(top));
    else
        say("   outside %d\n", chdir(top));
}

static void call_umask(void)
{
    mode_t mask = mode() & 022;
    say("umask %o = %o\n", mask, umask(mask));
}

/* Memory. */

static void call_map(void)
{
    int place = (int)below(MAPS);
    struct mapping *map = &maps[place];
    if (map->at) {
        say("munmap %d", place);
        result(munmap(map->at, map->bytes));
        map->at = NULL;
        close(map->fd);
        return;
    }
    struct chosen one = file();
    int protection = ONE_OF(PROT_READ, PROT_READ | PROT_WRITE, PROT_WRITE, PROT_NONE);
    int how = once_in(30) ? 0 : once_in(3) ? MAP_PRIVATE : MAP_SHARED;
    size_t count = length();
    off_t at = once_in(3) ? offset() : 0;
    say("mmap %d %d %x %x %zu at %ld", place, one.number, (unsigned)protection, (unsigned)how, count, (long)at);
    char *found = mmap(NULL, count, protection, how, one.fd, at);
    result(found == MAP_FAILED ? -1 : 0);
    if (found != MAP_FAILED) {
        bool is_seen = how == MAP_SHARED && protection & PROT_READ;
        *map = (struct mapping){found, count, is_seen, is_seen && protection & PROT_WRITE, dup(one.fd), at};
    }
}

/* A byte that is mapped, by a call that says so where there is none. */
static void call_look(void)
{
    int place = (int)below(MAPS), ends[2];
    struct stat file;
    struct mapping *map = &maps[place];
    if (!map->at || !map->can_read || pipe(ends))
        return;
    size_t at = below((uint32_t)map->bytes);
    char byte = 0;
    ssize_t done = write(ends[1], map->at + at, 1);
    if (done == 1)
        done = read(ends[0], &byte, 1);
    close(ends[0]);
    close(ends[1]);
    say("look %d %zu", place, at);
    result(done);
    say("   %d\n", byte);
    /* What is stored behind the end may be seen when the file grows, or not. */
    if (done != 1 || !map->can_store || fstat(map->fd, &file) || map->offset + (off_t)at >= file.st_size)
        return;
    map->at[at] = (char)(byte + 1);
    has_stored = true;
}

static void call_msync(void)
{
    int place = (int)below(MAPS);
    int flags = ONE_OF(MS_SYNC, MS_ASYNC, MS_SYNC | MS_ASYNC, MS_INVALIDATE);
    if (!maps[place].at)
        return;
    say("msync %d %d", place, flags);
    result(msync(maps[place].at, maps[place].bytes, flags));
}

/* Locks, other processes. */

static void call_flock(void)
{
    struct chosen one = file();
    int how = ONE_OF(LOCK_SH | LOCK_NB, LOCK_EX | LOCK_NB, LOCK_UN, 0);
    if (is_any_mapped())
        return;
    say("flock %d %d", one.number, how);
    result(flock(one.fd, how));
}

static void call_lock(void)
{
    struct chosen one = file();
    int command = ONE_OF(F_SETLK, F_GETLK, F_OFD_SETLK, F_OFD_GETLK);
    struct flock range = {.l_type = (short)ONE_OF(F_RDLCK, F_WRLCK, F_UNLCK, 9),
                          .l_whence = (short)below(4),
                          .l_start = once_in(2) ? 0 : below(100),
                          .l_len = once_in(3) ? 0 : below(50)};
    if (is_any_mapped() || (command == F_OFD_GETLK && range.l_type == F_UNLCK))
        return;
    if (range.l_whence == SEEK_CUR && is_kind(one.fd, S_IFDIR))
        return;
    say("lock %d %d %d %d %ld %ld", one.number, command, range.l_type, range.l_whence, (long)range.l_start,
        (long)range.l_len);
    int done = fcntl(one.fd, command, &range);
    result(done);
    if (done == 0 && (command == F_GETLK || command == F_OFD_GETLK))
        say("   %d %ld %ld\n", range.l_type, (long)range.l_start, (long)range.l_len);
}

static void call_child(void)
{
    struct chosen one = file();
    unsigned how = below(4);
    off_t at = below(1000);
    int status;
    if (is_alone || is_kind(one.fd, S_IFDIR))
        return;
    say("child %u %d", how, one.number);
    fflush(out);
    pid_t child = fork();
    if (child == 0) {
        long done = how == 0   ? write(one.fd, "child", 5)
                    : how == 1 ? lseek(one.fd, at, SEEK_SET)
                    : how == 2 ? mkdir("o", 0755)
                               : read(one.fd, memory, 10);
        _exit((int)done & 0x7f);
    }
    waitpid(child, &status, 0);
    result(status);
}

static void call_poll(void)
{
    struct chosen one = file();
    struct pollfd asked = {one.fd, POLLIN | POLLOUT | POLLPRI, 0};
    if (one.fd < 0 || is_path_only(one.fd))
        return;
    say("poll %d", one.number);
    result(poll(&asked, 1, 0));
    say("   %x\n", (unsigned)asked.revents);
}

/* Streams. */

static void call_stream(void)
{
    int place = (int)below(STREAMS);
    if (streams[place]) {
        say("fclose %d", place);
        result(fclose(streams[place]));
        streams[place] = NULL;
        return;
    }
    const char *name = path_in_memory();
    const char *how = ONE_OF("r", "w", "a", "r+", "w+", "a+", "rb", "wx", "re", "q");
    struct stat found;
    if (stat(name, &found) == 0 && S_ISDIR(found.st_mode))
        return;
    say("fopen %d", place);
    say_path(name);
    say(" %s", how);
    streams[place] = fopen(name, how);
    result(streams[place] ? 0 : -1);
    if (streams[place])
        setvbuf(streams[place], stream_memory[place], once_in(6) ? _IONBF : _IOFBF, sizeof stream_memory[place]);
}

/* What C asks for between reading and writing. */
static void turn(FILE *stream, bool is_write)
{
    clearerr(stream);
    if (is_write)
        fseek(stream, 0, SEEK_CUR);
    else
        fflush(stream);
    errno = 0;
}

static void call_stream_io(void)
{
    int place = (int)below(STREAMS);
    FILE *stream = streams[place];
    size_t count = length();
    enum { READ, GET, LINE, GETS, WRITE, PRINT, PUTS, SEEK, TELL, FLUSH, REWIND, HOWS };
    unsigned how = below(HOWS);
    if (!stream)
        return;
    say("stream %d %u %zu", place, how, count);
    if (how <= PUTS)
        turn(stream, how >= WRITE);
    memset(memory, 1, sizeof memory);
    if (how == READ) {
        result((long)fread(memory, 1, count, stream));
        say_memory(count);
    } else if (how == GET) {
        result(fgetc(stream));
    } else if (how == LINE) {
        char *line = NULL;
        size_t room = 0;
        ssize_t got = getline(&line, &room, stream);
        say(" = %zd %llx\n", got, got > 0 ? (unsigned long long)hash(line, (size_t)got) : 0);
        free(line);
    } else if (how == GETS) {
        say(" = %d", fgets(memory, 100, stream) != NULL);
        say_memory(100);
    } else if (how == WRITE) {
        fill(count);
        result((long)fwrite(memory, 1, count, stream));
    } else if (how == PRINT) {
        result(fprintf(stream, "number %zu\n", count));
    } else if (how == PUTS) {
        result(fputs("some words\n", stream) < 0 ? -1 : 0);
    } else if (how == SEEK) {
        long at = (long)count - (once_in(2) ? 5 : 0);
        int whence = (int)below(3);
        say(" (%ld %d)", at, whence);
        result(fseek(stream, at, whence));
    } else if (how == TELL) {
        result(ftell(stream));
    } else if (how == FLUSH) {
        result(fflush(stream));
    } else {
        rewind(stream);
        say("\n");
    }
    /* How much of it is written before is the C library's own business. */
    if (how == WRITE || how == PRINT || how == PUTS)
        fflush(stream);
}

/* Each with how often it is chosen. */
static const struct call {
    void (*make)(void);
    unsigned weight;
} calls[] = {
    {call_open, 8},      {call_open_nameless, 1}, {call_open_again, 1}, {call_close, 1},    {call_dup, 2},
    {call_fcntl, 2},     {call_ioctl, 1},         {call_read, 5},       {call_write, 5},    {call_vectors, 2},
    {call_lseek, 2},     {call_truncate, 2},      {call_fallocate, 1},  {call_sync, 1},     {call_copy, 1},
    {call_splice, 1},    {call_stat, 4},          {call_access, 1},     {call_chmod, 1},    {call_chown, 1},
    {call_times, 1},     {call_attribute, 2},     {call_statvfs, 1},    {call_make, 3},     {call_remove, 3},
    {call_rename, 3},    {call_link, 4},          {call_symlink, 1},    {call_readlink, 1}, {call_realpath, 1},
    {call_list, 3},      {call_chdir, 3},         {call_umask, 1},      {call_map, 2},      {call_look, 2},
    {call_msync, 1},     {call_flock, 1},         {call_lock, 1},       {call_child, 1},    {call_poll, 1},
    {call_stream, 2},    {call_stream_io, 4},
};

static void make_one(void)
{
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        sum += calls[i].weight;
    unsigned at = below(sum);
    const struct call *call = calls;
    while (at >= call->weight)
        at -= call++->weight;
    call->make();
}

static void trace(void)
{
    for (int i = 0; i < FILES; i++) {
        struct stat found;
        if (files[i] < 0 || fstat(files[i], &found) || !S_ISREG(found.st_mode))
            continue;
        ssize_t count = pread(files[i], memory, sizeof memory, 0);
        say("      %d at %ld size %ld, %zd bytes %llx\n", i, (long)lseek(files[i], 0, SEEK_CUR), (long)found.st_size,
            count, count > 0 ? (unsigned long long)hash(memory, (size_t)count) : 0);
    }
}

/* All calls of a seed, and nothing is left open. */
static void run(uint64_t seed, long count)
{
    for (int i = 0; i < FILES; i++)
        files[i] = -1;
    umask(022);
    has_stored = false;
    for (long number = 0; number < count; number++) {
        state = (seed * 1000003 + (uint64_t)number) * 0x9e3779b97f4a7c15ULL | 1;
        below(2);
        below(2);
        say("%ld ", number);
        make_one();
        if (is_traced)
            trace();
        fflush(out);
    }
    for (int i = 0; i < FILES; i++)
        if (files[i] >= 0)
            close(files[i]);
    for (int i = 0; i < STREAMS; i++)
        if (streams[i])
            fclose(streams[i]);
    for (int i = 0; i < MAPS; i++)
        if (maps[i].at) {
            munmap(maps[i].at, maps[i].bytes);
            close(maps[i].fd);
        }
    memset(streams, 0, sizeof streams);
    memset(maps, 0, sizeof maps);
}

int main(int argc, char **argv)
{
    char folder[PATH_MAX];
    if (argc < 5 || chdir(argv[4]) || !getcwd(folder, sizeof folder)) {
        fprintf(stderr, "usage: random FIRST LAST COUNT FOLDER [alone] [trace]\n");
        return 2;
    }
    for (int i = 5; i < argc; i++) {
        is_alone |= strcmp(argv[i], "alone") == 0;
        is_traced |= strcmp(argv[i], "trace") == 0;
    }
    uint64_t first = strtoull(argv[1], NULL, 10), last = strtoull(argv[2], NULL, 10);
    out = fdopen(dup(STDOUT_FILENO), "w");
    memset(longest, 'n', sizeof longest - 1);
    for (uint64_t seed = first; seed <= last; seed++) {
        snprintf(top, sizeof top, "%.4000s/%llu", folder, (unsigned long long)seed);
        if (mkdir(top, 0755) || chdir(top)) {
            perror(top);
            return 1;
        }
        say("seed %llu\n", (unsigned long long)seed);
        run(seed, strtol(argv[3], NULL, 10));
        if (chdir(folder))
            return 1;
    }
    return fclose(out) ? 1 : 0;
}

/* What is looked at before anything is done, and in which order. */
#include "calls.h"

#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

CASE(check_times_by_number)
{
    put("file", "x");
    int file = FD(open("file", O_RDWR));
    struct timespec times[2] = {{1000, 1}, {2000, 2}}, none[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    NUM(syscall(SYS_utimensat, file, NULL, times, 0));
    struct stat found;
    NUM(fstat(file, &found));
    YES(found.st_mtim.tv_sec == 2000 && found.st_mtim.tv_nsec == 2);
    NUM(syscall(SYS_utimensat, file, NULL, none, 0));
    NUM(syscall(SYS_utimensat, file, NULL, times, AT_SYMLINK_NOFOLLOW));
    NUM(syscall(SYS_utimensat, file, NULL, 8L, 0));
    NUM(utimensat(file, NULL, times, 0));
    NUM(futimens(file, none));
    NUM(utimensat(AT_FDCWD, "none", none, 0));
    NUM(utimensat(AT_FDCWD, "none", none, 0x40));
}

CASE(check_errno)
{
    put("file", "x");
    int file = FD(open("file", O_RDWR));
    errno = 0;
    NUM(fcntl(file, F_GETOWN));
    YES(errno == 0);
    errno = 0;
    NUM(fcntl(file, F_SETSIG, SIGUSR2));
    YES(errno == 0);
    NUM(fcntl(file, F_SETSIG, 12345));
    YES(errno == EINVAL);
}

CASE(check_flags)
{
    put("file", "x");
    int file = FD(open("file", O_RDWR | O_NOCTTY | O_NOFOLLOW));
    YES(fcntl(file, F_GETFL) == (O_RDWR | 0100000 | O_NOFOLLOW));
    NUM(fcntl(file, F_SETFL, O_ASYNC | O_APPEND));
    YES(fcntl(file, F_GETFL) == (O_RDWR | 0100000 | O_NOFOLLOW | O_APPEND));
    int path = FD(open("file", O_PATH | O_CREAT | O_EXCL | O_RDWR, 0600));
    YES(fcntl(path, F_GETFL) == O_PATH);
    NUM(open("none", O_PATH | O_CREAT, 0600));
    NUM(open("none", O_DIRECTORY | O_CREAT, 0600));
    NUM(access("none", F_OK));
    NUM(fcntl(file, 1027, dup(file)));
}

CASE(check_sizes)
{
    int file = FD(open("file", O_RDWR | O_CREAT, 0600));
    long long bytes = -1;
    int block = -1;
    NUM(ftruncate(file, 1 << 20));
    NUM(ioctl(file, FIOQSIZE, &bytes));
    NUM(bytes);
    NUM(pwrite(file, "x", 1, 0));
    NUM(fsync(file));
    NUM(ioctl(file, FIOQSIZE, &bytes));
    NUM(bytes);
    NUM(ioctl(file, FIGETBSZ, &block));
    NUM(block);
}

CASE(check_memory)
{
    char *nowhere = (char *)16, first[10] = "", all[100];
    put("file", "0123456789abcdef");
    int file = FD(open("file", O_RDWR));
    struct iovec parts[2] = {{first, 10}, {nowhere, 10}};
    NUM(readv(file, parts, 2));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(preadv(file, parts, 2, 0));
    NUM(preadv(file, parts + 1, 1, 16));
    NUM(read(file, nowhere, 10));
    NUM(lseek(file, 0, SEEK_END));
    NUM(read(file, nowhere, 10));
    NUM(readv(file, parts + 1, 1));
    int reader = FD(open("file", O_RDONLY)), writer = FD(open("file", O_WRONLY));
    NUM(pread(writer, all, 10, INT64_MAX));
    NUM(pwrite(reader, all, 10, INT64_MAX));
    NUM(pread(writer, all, 10, -1));
    NUM(write(reader, nowhere, 10));
}

CASE(check_vector_flags)
{
    put("file", "0123456789");
    char some[4] = "abc";
    struct iovec part = {some, 3};
    int file = FD(open("file", O_RDWR | O_APPEND));
    NUM(preadv2(file, &part, 1, 0, RWF_DSYNC));
    NUM(preadv2(file, &part, 1, 0, RWF_APPEND | RWF_SYNC));
    NUM(pwritev2(file, &part, 1, 2, RWF_NOAPPEND));
    NUM(pwritev2(file, &part, 1, -1, RWF_NOAPPEND));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(pwritev2(file, &part, 1, 0, RWF_NOAPPEND | RWF_APPEND));
    NUM(pwritev2(file, &part, 1, -2, RWF_APPEND));
    NUM(pwritev2(file, &part, 1, 0, 0x10000));
    part.iov_len = 0;
    NUM(pwritev2(file, &part, 1, 0, 0x10000));
    show("file");
}

CASE(check_links_out)
{
    char there[PATH_MAX], more[PATH_MAX], none[PATH_MAX];
    put("file", "x");
    snprintf(there, sizeof there, "%s/there", outside);
    snprintf(more, sizeof more, "%s/more", outside);
    snprintf(none, sizeof none, "%s/none/more", outside);
    put(there, "y");
    NUM(link("file", there));
    NUM(link("file", more));
    NUM(link("file", none));
    NUM(link(there, "file"));
    NUM(link(there, "new"));
    NUM(link(there, "none/new"));
    NUM(link(more, "new"));
    NUM(rename("file", none));
    NUM(rename("file", there));
    NUM(rename("none", there));
    NUM(rename(none, "file"));
    int file = FD(open("file", O_RDONLY)), other = FD(open(there, O_RDONLY));
    NUM(linkat(file, "", AT_FDCWD, none, AT_EMPTY_PATH));
    NUM(linkat(file, "", AT_FDCWD, there, AT_EMPTY_PATH));
    NUM(linkat(file, "", AT_FDCWD, more, AT_EMPTY_PATH));
    NUM(linkat(other, "", AT_FDCWD, "none/new", AT_EMPTY_PATH));
    NUM(linkat(other, "", AT_FDCWD, "file", AT_EMPTY_PATH));
    NUM(linkat(other, "", AT_FDCWD, "new", AT_EMPTY_PATH));
    NUM(linkat(other, "", AT_FDCWD, more, AT_EMPTY_PATH));
    NUM(linkat(AT_FDCWD, "", AT_FDCWD, "new", AT_EMPTY_PATH));
    /* A link of the folder's that leads out of it. */
    NUM(symlink(there, "out"));
    NUM(linkat(AT_FDCWD, "out", AT_FDCWD, none, AT_SYMLINK_FOLLOW));
    snprintf(none, sizeof none, "%s/followed", outside);
    NUM(linkat(AT_FDCWD, "out", AT_FDCWD, none, AT_SYMLINK_FOLLOW));
    show(none);
    NUM(linkat(AT_FDCWD, "out", AT_FDCWD, "new", AT_SYMLINK_FOLLOW));
}

CASE(check_locks)
{
    static const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    put("file", "x");
    int file = FD(open("file", O_RDWR)), neither = FD(open("file", O_ACCMODE));
    NUM(fcntl(file, F_SETLK, &whole));
    NUM(fcntl(file, F_OFD_SETLK, &whole));
    NUM(flock(neither, LOCK_EX | LOCK_NB));
    NUM(flock(neither, LOCK_UN));
    NUM(flock(neither, 0));
    NUM(read(neither, NULL, 0));
    NUM(write(neither, "", 0));
}

CASE(check_names_lost)
{
    char name[64];
    put("file", "x");
    int file = FD(open("file", O_RDWR));
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    NUM(unlink("file"));
    NUM(linkat(AT_FDCWD, name, AT_FDCWD, "again", AT_SYMLINK_FOLLOW));
    file = FD(open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600));
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    NUM(linkat(AT_FDCWD, name, AT_FDCWD, "again", AT_SYMLINK_FOLLOW));
    file = FD(open(".", O_TMPFILE | O_RDWR, 0600));
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    NUM(linkat(AT_FDCWD, name, AT_FDCWD, "again", AT_SYMLINK_FOLLOW));
    NUM(unlink("again"));
    NUM(linkat(AT_FDCWD, name, AT_FDCWD, "again", AT_SYMLINK_FOLLOW));
}

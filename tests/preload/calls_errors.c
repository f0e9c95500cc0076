/* What is wrong: descriptors that are none, memory that is none, paths that are none. */
#include "calls.h"

#include <dirent.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>

/* An address that nothing is at; not NULL, which the compiler and the C library know about. */
static void *nowhere(void)
{
    volatile uintptr_t address = 8;
    return (void *)address;
}

CASE(error_descriptors)
{
    static const int numbers[] = {-1, 777, 1 << 30, INT_MIN};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int bad = numbers[i];
        char text[8] = "";
        struct iovec vector = {text, 8};
        struct stat meta;
        struct statfs fs;
        struct statvfs vfs;
        NUM(read(bad, text, 8));
        NUM(write(bad, text, 8));
        NUM(pread(bad, text, 8, 0));
        NUM(pwrite(bad, text, 8, 0));
        NUM(readv(bad, &vector, 1));
        NUM(writev(bad, &vector, 1));
        NUM(preadv(bad, &vector, 1, 0));
        NUM(pwritev2(bad, &vector, 1, 0, 0));
        NUM(lseek(bad, 0, SEEK_SET));
        NUM(fstat(bad, &meta));
        NUM(fstatfs(bad, &fs));
        NUM(fstatvfs(bad, &vfs));
        NUM(ftruncate(bad, 0));
        NUM(fallocate(bad, 0, 0, 1));
        NUM(fsync(bad));
        NUM(fdatasync(bad));
        NUM(fchmod(bad, 0600));
        NUM(fchown(bad, -1, -1));
        NUM(futimens(bad, NULL));
        NUM(dup(bad));
        NUM(fcntl(bad, F_GETFL));
        NUM(close(bad));
        NUM(fchdir(bad));
        NUM(fgetxattr(bad, "user.x", text, 8));
        NUM(flistxattr(bad, text, 8));
        NUM(isatty(bad));
        PTR(mmap(NULL, 10, PROT_READ, MAP_PRIVATE, bad, 0));
        PTR(fdopen(bad, "r"));
    }
}

CASE(error_memory)
{
    char text[8] = "12345678";
    put("file", "0123456789");
    mkdir("folder", 0755);
    symlink("file", "link");
    int file = FD(open("file", O_RDWR)), folder = FD(open(".", O_RDONLY));
    NUM(read(file, nowhere(), 5));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(pread(file, nowhere(), 5, 0));
    NUM(write(file, nowhere(), 5));
    NUM(pwrite(file, nowhere(), 5, 0));
    NUM(read(file, nowhere(), 0));
    NUM(pread(file, nowhere(), 5, 100));
    NUM(pread(file, NULL, 5, 0));
    struct iovec vector[2] = {{text, 3}, {nowhere(), 3}};
    NUM(preadv(file, nowhere(), 1, 0));
    NUM(pwritev(file, nowhere(), 1, 0));
    NUM(preadv(file, vector + 1, 1, 0));
    NUM(pwritev(file, vector + 1, 1, 0));
    NUM(readv(file, vector, 2) >= 3 || errno == EFAULT);
    FD(open(nowhere(), O_RDONLY));
    FD(open(NULL, O_RDONLY));
    FD(openat(folder, nowhere(), O_RDONLY));
    NUM(access(nowhere(), F_OK));
    NUM(mkdir(nowhere(), 0700));
    NUM(rmdir(nowhere()));
    NUM(unlink(nowhere()));
    NUM(rename("file", nowhere()));
    NUM(rename(nowhere(), "file"));
    NUM(link("file", nowhere()));
    NUM(symlink(nowhere(), "x"));
    NUM(symlink("x", nowhere()));
    NUM(readlink("link", nowhere(), 10));
    NUM(readlink(nowhere(), text, 8));
    NUM(chdir(nowhere()));
    NUM(chmod(nowhere(), 0600));
    NUM(truncate(nowhere(), 5));
    NUM(syscall(SYS_newfstatat, AT_FDCWD, "file", nowhere(), 0));
    NUM(stat("file", nowhere()));
    NUM(fstat(file, nowhere()));
    NUM(stat(nowhere(), (struct stat *)text));
    NUM(statx(AT_FDCWD, "file", 0, STATX_ALL, nowhere()));
    NUM(statfs("file", nowhere()));
    NUM(setxattr("file", "user.x", nowhere(), 5, 0));
    NUM(setxattr("file", nowhere(), text, 5, 0));
    NUM(setxattr("file", "user.x", text, 5, 0));
    NUM(getxattr("file", "user.x", nowhere(), 5));
    NUM(utimensat(AT_FDCWD, "file", nowhere(), 0));
    NUM(fcntl(file, F_SETLK, nowhere()));
    NUM(getdents64(folder, nowhere(), 1000));
    show("file");
}

/* A buffer whose second page is not there: what fits is moved, or nothing. */
CASE(error_memory_half)
{
    char *pages = PTR((char *)mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    NUM(mprotect(pages + 4096, 4096, PROT_NONE));
    memset(pages, 'm', 4096);
    put_pattern("file", 8192);
    int file = FD(open("file", O_RDWR));
    ssize_t got = pread(file, pages, 8192, 0);
    YES((got == -1 && errno == EFAULT) || got == 4096);
    ssize_t written = pwrite(file, pages, 8192, 0);
    YES((written == -1 && errno == EFAULT) || written == 4096);
    NUM(mprotect(pages, 4096, PROT_READ));
    NUM(pread(file, pages, 10, 0));
    NUM(pwrite(file, pages, 10, 0));
    NUM(close(file));
    char *text = pages + 4090;
    NUM(mprotect(pages, 4096, PROT_READ | PROT_WRITE));
    memcpy(text, "abcdef", 6);
    NUM(access(text, F_OK));
    FD(open(text, O_RDONLY));
}

/* Memory that is mapped, and that nothing may be done with; in the middle of other memory, too. */
CASE(error_memory_closed)
{
    char *closed = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096;
    char *last = closed - 8;
    static char big[3 << 20];
    mprotect(closed, 4096, PROT_NONE);
    put("file", "0123456789abcdef");
    put("other", "");
    int file = FD(open("file", O_RDWR)), other = FD(open("other", O_RDWR)), ends[2];
    off_t *offset = (off_t *)closed;
    NUM(pipe(ends));
    NUM(sendfile(other, file, offset, 1));
    NUM(sendfile(ends[1], file, offset, 1));
    NUM(copy_file_range(file, (loff_t *)offset, other, NULL, 1, 0));
    NUM(copy_file_range(file, NULL, other, (loff_t *)offset, 1, 0));
    NUM(splice(file, (loff_t *)offset, ends[1], NULL, 1, 0));
    NUM(write(ends[1], "xy", 2));
    NUM(splice(ends[0], NULL, other, (loff_t *)offset, 1, 0));
    /* What is only read is known when everything was done. */
    off_t *constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NUM(sendfile(other, file, constant, 3));
    NUM(copy_file_range(file, (loff_t *)constant, other, NULL, 3, 0));
    NUM(lseek(other, 0, SEEK_CUR));
    show("other");
    /* In part. */
    memcpy(last, "12345678", 8);
    NUM(pwrite(file, last, 16, 0));
    NUM(pread(file, last, 16, 4));
    say_bytes("read", last, 8);
    struct iovec parts[3] = {{"ab", 2}, {last, 16}, {"cd", 2}};
    NUM(pwritev(file, parts, 3, 0));
    show("file");
    parts[0] = (struct iovec){closed, 1};
    NUM(pwritev(file, parts, 3, 0));
    NUM(preadv(file, parts, 3, 0));
    NUM(readv(file, (struct iovec *)(closed - sizeof *parts), 2));
    /* A file that is shorter than the memory for it, and one that is not. */
    memset(big, 'b', sizeof big);
    int large = FD(open("large", O_CREAT | O_RDWR, 0600));
    NUM(write(large, big, sizeof big));
    char *room = mmap(NULL, 2 * sizeof big, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(room + sizeof big, sizeof big, PROT_NONE);
    NUM(pread(large, room, 2 * sizeof big, 0));
    mprotect(room + (2 << 20), sizeof big, PROT_NONE);
    NUM(pread(large, room, sizeof big, 0));
    NUM(pwrite(large, room, sizeof big, 0));
    NUM(pread(file, room, sizeof big, 0) > 0);
    /* Others. */
    char *text = strcpy(closed - 5, "file");
    NUM(futimens(file, (struct timespec *)closed));
    NUM(fcntl(file, F_GETLK, closed));
    NUM(fcntl(file, F_OFD_SETLK, closed));
    NUM(fcntl(file, F_GET_RW_HINT, closed));
    NUM(fcntl(file, F_SET_RW_HINT, closed));
    NUM(ioctl(file, FIONREAD, closed));
    NUM(ioctl(file, FIONBIO, closed));
    NUM(syscall(SYS_getcwd, closed, 4000));
    NUM(readlink("/proc/self/fd/0", closed, 100));
    NUM(listxattr("file", closed, 100));
    NUM(fsetxattr(file, "user.x", closed, 3, 0));
    NUM(bind(-1, (struct sockaddr *)closed, 20));
    NUM(connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)closed, 20));
    NUM(sendmsg(socket(AF_UNIX, SOCK_DGRAM, 0), (struct msghdr *)closed, 0));
    NUM(getsockname(socket(AF_UNIX, SOCK_DGRAM, 0), (struct sockaddr *)text, (socklen_t *)closed));
    NUM(execve("/bin/true", (char **)closed, environ));
    NUM(execve("/bin/true", (char *[]){"true", closed, NULL}, environ));
    NUM(execve("/bin/true", (char *[]){"true", text, NULL}, (char **)closed));
    NUM(execve("/bin/true", (char *[]){"true", NULL}, (char *[]){closed, NULL}));
}

CASE(error_empty_paths)
{
    struct stat meta;
    struct statfs fs;
    char text[8];
    FD(open("", O_RDONLY));
    FD(open("", O_CREAT | O_RDWR, 0600));
    PTR(fopen("", "r"));
    NUM(stat("", &meta));
    NUM(lstat("", &meta));
    NUM(fstatat(AT_FDCWD, "", &meta, 0));
    NUM(statfs("", &fs));
    NUM(mkdir("", 0700));
    NUM(mkfifo("", 0700));
    NUM(link("", "x"));
    NUM(readlink("", text, 8));
    NUM(getxattr("", "user.x", text, 8));
    NUM(chown("", -1, -1));
    NUM(truncate("", 0));
    NUM(chdir(""));
}

CASE(error_size_limits)
{
    put("file", "x");
    int file = FD(open("file", O_RDWR));
    NUM(pwrite(file, "x", 1, LLONG_MAX));
    NUM(pwrite(file, "x", 1, LLONG_MAX - 1) == -1 && (errno == EFBIG || errno == EINVAL || errno == ENOSPC));
    NUM(ftruncate(file, LLONG_MAX) == -1 && (errno == EFBIG || errno == EINVAL));
    NUM(pread(file, &(char){0}, 1, LLONG_MAX));
    NUM(fallocate(file, 0, LLONG_MAX - 5, 5) == -1);
    NUM(lseek(file, 0, SEEK_END));
}

/* RLIMIT_FSIZE holds here too. */
#include <sys/resource.h>
CASE(error_file_size_limit)
{
    /* What this program says is in a file as well, and smaller. */
    enum { LIMIT = 16 << 20 };
    struct rlimit limit = {LIMIT, LIMIT};
    if (in_child()) {
        NUM(setrlimit(RLIMIT_FSIZE, &limit));
        signal(SIGXFSZ, SIG_IGN);
        int file = FD(open("file", O_CREAT | O_RDWR, 0600));
        NUM(pwrite(file, "0123456789", 10, LIMIT - 5));
        NUM(pwrite(file, "0123456789", 10, LIMIT));
        NUM(ftruncate(file, LIMIT + 1));
        NUM(fallocate(file, 0, 0, LIMIT + 1));
        signal(SIGXFSZ, SIG_DFL);
        pwrite(file, "0123456789", 10, LIMIT);
        leave_child(0);
    }
    join();
    show_stat("file");
}

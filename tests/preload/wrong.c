/*
 * A preload library that is wrong in one way, which WRONG names: the lines of `calls` have to show it. So it
 * is known that they are worth comparing.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is(const char *what)
{
    const char *wrong = getenv("WRONG");
    return wrong != NULL && strcmp(wrong, what) == 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = va_arg(arguments, int);
    va_end(arguments);
    if (is("append"))
        flags &= ~O_APPEND;
    if (is("truncate"))
        flags &= ~O_TRUNC;
    if (is("exclusive"))
        flags &= ~O_EXCL;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t pread(int file, void *bytes, size_t length, off_t from)
{
    pthread_testcancel();
    ssize_t got = syscall(SYS_pread64, file, bytes, length, from);
    if (is("read") && got > 4096)
        ((char *)bytes)[4096] ^= 1;
    return got;
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t to)
{
    ssize_t written = syscall(SYS_pwrite64, file, bytes, length, to);
    if (is("place") && written > 0)
        syscall(SYS_lseek, file, to + written, SEEK_SET);
    return written;
}

int dup(int file)
{
    char path[40];
    if (!is("dup"))
        return (int)syscall(SYS_dup, file);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR);
}

int dup2(int from, int to)
{
    int result = (int)syscall(SYS_dup2, from, to);
    if (is("close-on-exec") && result >= 0)
        syscall(SYS_fcntl, result, F_SETFD, FD_CLOEXEC);
    return result;
}

void *mmap(void *at, size_t length, int protection, int flags, int file, off_t from)
{
    if (is("map") && file >= 0 && (flags & MAP_SHARED))
        flags = (flags & ~MAP_SHARED) | MAP_PRIVATE;
    return (void *)syscall(SYS_mmap, at, length, protection, flags, file, from);
}

int fcntl(int file, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    if (is("locks") && command == F_SETLK)
        return 0;
    return (int)syscall(SYS_fcntl, file, command, argument);
}

struct dirent *readdir(DIR *stream)
{
    struct dirent *entry = REAL(readdir)(stream);
    if (is("entries") && entry != NULL && strcmp(entry->d_name, "..") == 0)
        entry = REAL(readdir)(stream);
    return entry;
}

int rename(const char *from, const char *to)
{
    if (is("rename") && access(to, F_OK) == 0) {
        errno = EEXIST;
        return -1;
    }
    return (int)syscall(SYS_rename, from, to);
}

int unlink(const char *path)
{
    int result = (int)syscall(SYS_unlink, path);
    if (is("errors") && result != 0 && errno == EISDIR)
        errno = EPERM;
    return result;
}

int fsync(int file)
{
    if (is("sync"))
        return 0;
    return (int)syscall(SYS_fsync, file);
}

int fputs(const char *text, FILE *stream)
{
    int result = REAL(fputs)(text, stream);
    if (is("streams") && fileno(stream) > 2)
        fflush(stream);
    return result;
}

pid_t fork(void)
{
    pid_t pid = REAL(fork)();
    if (is("fork") && pid == 0)
        for (int file = 3; file < 20; file++) {
            char path[40];
            snprintf(path, sizeof path, "/proc/self/fd/%d", file);
            int again = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_NONBLOCK);
            if (again >= 0) {
                syscall(SYS_dup2, again, file);
                syscall(SYS_close, again);
            }
        }
    return pid;
}

/*
 * What only the kernel can do, and what a library that stands before it has to refuse so that programs take
 * another way. The lines are not those of the kernel's file systems: cases `refused_*` run when they are
 * named.
 */
#include "calls.h"

#include <aio.h>
#include <linux/aio_abi.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/syscall.h>

CASE(refused_inotify)
{
    put("file", "x");
    int watch = FD(inotify_init1(IN_CLOEXEC));
    int result = inotify_add_watch(watch, ".", IN_CREATE);
    YES(result >= 0 || errno == ENOSYS || errno == ENOSPC || errno == EOPNOTSUPP || errno == EACCES || errno == EPERM);
    /* Elsewhere it works. */
    YES(inotify_add_watch(watch, outside, IN_CREATE) > 0);
    YES(inotify_add_watch(watch, "none", IN_CREATE) == -1);
}

CASE(refused_fanotify)
{
    int listening = (int)syscall(SYS_fanotify_init, FAN_CLASS_NOTIF | FAN_CLOEXEC, O_RDONLY);
    put("file", "x");
    if (listening < 0) {
        /* Root's, in most kernels. */
        say("fanotify_mark = EOPNOTSUPP");
        return;
    }
    int folder = FD(open(".", O_RDONLY));
    int result = fanotify_mark(listening, FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, "file");
    say("fanotify_mark = %s", result == 0 ? "a mark" : error_name(errno));
    YES(fanotify_mark(listening, FAN_MARK_ADD, FAN_MODIFY | FAN_EVENT_ON_CHILD, folder, NULL) == -1);
    YES(fanotify_mark(listening, FAN_MARK_ADD | FAN_MARK_ONLYDIR, FAN_OPEN, AT_FDCWD, ".") == -1);
    YES(syscall(SYS_fanotify_mark, listening, FAN_MARK_ADD, FAN_MODIFY, folder, "file") == -1);
    /* Elsewhere it works. */
    YES(fanotify_mark(listening, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, outside) == 0);
    YES(fanotify_mark(listening, FAN_MARK_FLUSH, 0, AT_FDCWD, ".") == 0);
}

CASE(refused_io_uring)
{
    char parameters[120] = "";
    int ring = (int)syscall(425 /* io_uring_setup */, 8, parameters);
    YES(ring >= 0 || errno == ENOSYS || errno == EPERM);
    say("io_uring_setup = %s", ring >= 0 ? "a descriptor" : error_name(errno));
}

#if defined(__x86_64__)
/* A call that no library sees: -errno. */
static long raw(long number, long a, long b, long c, long d)
{
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return result;
}

/* Nothing that the kernel does to a descriptor of ours may look as if it had been done to the file. */
CASE(refused_raw)
{
    char text[16] = "";
    struct flock lock = {.l_type = F_WRLCK};
    struct stat found;
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR));
    long at = (long)text;
    YES(raw(SYS_read, file, at, 8, 0) == -EBADF);
    YES(raw(SYS_write, file, at, 8, 0) == -EBADF);
    YES(raw(SYS_pread64, file, at, 8, 0) == -EBADF);
    YES(raw(SYS_pwrite64, file, at, 8, 0) == -EBADF);
    YES(raw(SYS_fsync, file, 0, 0, 0) == -EBADF);
    YES(raw(SYS_fdatasync, file, 0, 0, 0) == -EBADF);
    YES(raw(SYS_syncfs, file, 0, 0, 0) == -EBADF);
    YES(raw(SYS_sync_file_range, file, 0, 0, 7) == -EBADF);
    YES(raw(SYS_ftruncate, file, 4, 0, 0) == -EBADF);
    YES(raw(SYS_fallocate, file, 0, 0, 8192) == -EBADF);
    YES(raw(SYS_lseek, file, 0, SEEK_END, 0) == -EBADF);
    YES(raw(SYS_flock, file, LOCK_EX | LOCK_NB, 0, 0) == -EBADF);
    YES(raw(SYS_fcntl, file, F_SETLK, (long)&lock, 0) == -EBADF);
    YES(raw(SYS_ioctl, file, FIONREAD, at, 0) == -EBADF);
    YES(raw(SYS_fchmod, file, 0600, 0, 0) == -EBADF);
    YES(raw(SYS_getdents64, file, at, 16, 0) == -EBADF);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    int again = (int)raw(SYS_openat, AT_FDCWD, (long)name, O_RDWR, 0);
    YES(again == -EACCES || (again >= 0 && raw(SYS_write, again, at, 8, 0) == -EPERM));
    char parameters[120] = "";
    int ring = (int)raw(425 /* io_uring_setup */, 8, (long)parameters, 0, 0);
    YES(ring < 0 || raw(427 /* io_uring_register */, ring, 2 /* files */, (long)&file, 1) == -EBADF);
    /* The library's own calls go on as before. */
    YES(read(file, text, 16) == 10 && memcmp(text, "0123456789", 10) == 0);
    YES(fstat(file, &found) == 0 && found.st_size == 10);
    YES(lseek(file, 0, SEEK_CUR) == 10 && fsync(file) == 0 && flock(file, LOCK_EX | LOCK_NB) == 0);
    int opened = open(name, O_RDWR);
    YES(opened >= 0 && read(opened, text, 16) == 10);
    int copy = dup(file);
    YES(copy >= 0 && lseek(copy, 0, SEEK_CUR) == 10);
}
#endif

CASE(refused_kernel_aio)
{
    aio_context_t context = 0;
    int result = (int)syscall(SYS_io_setup, 8, &context);
    say("io_setup = %s", result == 0 ? "a context" : error_name(errno));
}

CASE(refused_handles)
{
    struct {
        struct file_handle head;
        unsigned char bytes[128];
    } handle = {.head.handle_bytes = 128};
    int mount;
    put("file", "x");
    int result = name_to_handle_at(AT_FDCWD, "file", &handle.head, &mount, 0);
    say("name_to_handle_at = %s", result == 0 ? "a handle" : error_name(errno));
}

/* The C library's own asynchronous calls work, in whatever way. */
CASE(posix_aio)
{
    char text[16] = "";
    int file = FD(open("file", O_CREAT | O_RDWR, 0600));
    struct aiocb block = {.aio_fildes = file, .aio_buf = "asynchronous", .aio_nbytes = 12, .aio_offset = 0};
    const struct aiocb *list[] = {&block};
    NUM(aio_write(&block));
    while (aio_error(&block) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    ERR(aio_error(&block));
    NUM(aio_return(&block));
    struct aiocb back = {.aio_fildes = file, .aio_buf = text, .aio_nbytes = 12, .aio_offset = 0};
    list[0] = &back;
    NUM(aio_read(&back));
    while (aio_error(&back) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    NUM(aio_return(&back));
    STR(text);
    struct aiocb sync = {.aio_fildes = file};
    list[0] = &sync;
    NUM(aio_fsync(O_DSYNC, &sync));
    while (aio_error(&sync) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    NUM(aio_return(&sync));
    struct aiocb both[2] = {{.aio_fildes = file, .aio_buf = "A", .aio_nbytes = 1, .aio_lio_opcode = LIO_WRITE},
                            {.aio_fildes = file, .aio_buf = text, .aio_nbytes = 3, .aio_offset = 4, .aio_lio_opcode = LIO_READ}};
    struct aiocb *many[] = {&both[0], &both[1]};
    NUM(lio_listio(LIO_WAIT, many, 2, NULL));
    NUM(aio_return(&both[1]));
    NUM(close(file));
    show("file");
}

static volatile sig_atomic_t told_value;
static void *volatile told_pointer;

static void told_by_signal(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    told_value = info->si_code == SI_ASYNCIO ? info->si_value.sival_int : -1;
}

static void told_by_thread(union sigval value)
{
    told_pointer = value.sival_ptr;
}

/* Ends are told by signals and by threads; what goes wrong is in the request. */
CASE(posix_aio_ends)
{
    char text[16] = "";
    int file = FD(open("file", O_CREAT | O_RDWR | O_APPEND, 0600)), reader = FD(open("file", O_RDONLY));
    struct sigaction action = {.sa_sigaction = told_by_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    struct aiocb block = {.aio_fildes = file, .aio_buf = "append", .aio_nbytes = 6, .aio_offset = 100};
    block.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
    block.aio_sigevent.sigev_signo = SIGUSR1;
    block.aio_sigevent.sigev_value.sival_int = 77;
    const struct aiocb *list[] = {&block};
    NUM(aio_write(&block));
    for (int i = 0; i < 2000 && told_value == 0; i++)
        usleep(1000);
    YES(told_value == 77);
    NUM(aio_return(&block));
    show("file");
    memset(&block, 0, sizeof block);
    block = (struct aiocb){.aio_fildes = reader, .aio_buf = text, .aio_nbytes = 15};
    block.aio_sigevent.sigev_notify = SIGEV_THREAD;
    block.aio_sigevent.sigev_notify_function = told_by_thread;
    block.aio_sigevent.sigev_value.sival_ptr = text;
    NUM(aio_read(&block));
    for (int i = 0; i < 2000 && told_pointer == NULL; i++)
        usleep(1000);
    YES(told_pointer == text);
    NUM(aio_return(&block));
    STR(text);
    /* The wrong way, and beyond what there is. */
    block = (struct aiocb){.aio_fildes = reader, .aio_buf = "x", .aio_nbytes = 1};
    NUM(aio_write(&block));
    while (aio_error(&block) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    ERR(aio_error(&block));
    NUM(aio_return(&block));
    block = (struct aiocb){.aio_fildes = reader, .aio_buf = text, .aio_nbytes = 1, .aio_offset = 1000};
    NUM(aio_read(&block));
    while (aio_error(&block) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    NUM(aio_return(&block));
    block.aio_reqprio = 100;
    NUM(aio_read(&block));
    block.aio_reqprio = 0;
    NUM(aio_fsync(O_APPEND, &block));
    YES(aio_cancel(reader, NULL) == AIO_ALLDONE);
    /* One of ours and one of somebody else's. */
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/aio", outside);
    int other = FD(open(name, O_CREAT | O_RDWR, 0600));
    struct aiocb both[3] = {{.aio_fildes = file, .aio_buf = "more", .aio_nbytes = 4, .aio_lio_opcode = LIO_WRITE},
                            {.aio_fildes = other, .aio_buf = "other", .aio_nbytes = 5, .aio_lio_opcode = LIO_WRITE},
                            {.aio_lio_opcode = LIO_NOP}};
    struct aiocb *many[] = {&both[0], NULL, &both[1], &both[2]};
    NUM(lio_listio(LIO_WAIT, many, 4, NULL));
    NUM(aio_return(&both[0]));
    NUM(aio_return(&both[1]));
    NUM(pread(other, text, 15, 0));
    both[0].aio_lio_opcode = LIO_READ;
    both[0].aio_fildes = reader;
    both[0].aio_buf = (void *)16;
    NUM(lio_listio(LIO_WAIT, many, 1, NULL));
    ERR(aio_error(&both[0]));
    NUM(lio_listio(77, many, 1, NULL));
    /* What cannot be taken, and what goes wrong later. */
    both[0].aio_buf = text;
    both[0].aio_nbytes = 4;
    both[0].aio_reqprio = 100;
    NUM(lio_listio(LIO_WAIT, many, 1, NULL));
    NUM(lio_listio(LIO_NOWAIT, many, 1, NULL));
    both[0].aio_reqprio = 0;
    both[0].aio_fildes = file;
    both[0].aio_lio_opcode = LIO_WRITE;
    both[0].aio_buf = "last";
    both[1].aio_fildes = reader;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 78};
    NUM(lio_listio(LIO_NOWAIT, many, 3, &event));
    for (int i = 0; i < 2000 && told_value != 78; i++)
        usleep(1000);
    YES(told_value == 78);
    ERR(aio_error(&both[0]));
    ERR(aio_error(&both[1]));
    both[0].aio_lio_opcode = 99;
    NUM(lio_listio(LIO_WAIT, many, 1, NULL));
    ERR(aio_error(&both[0]));
    /* A sync has no priority. */
    block = (struct aiocb){.aio_fildes = file, .aio_reqprio = 100};
    NUM(aio_fsync(O_SYNC, &block));
    while (aio_error(&block) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    NUM(aio_return(&block));
    NUM(close(other));
    NUM(close(reader));
    NUM(close(file));
    show("file");
}

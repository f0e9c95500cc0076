/*
 * What only the kernel can do, and what a library that stands before it has to refuse so that programs take
 * another way. The lines are not those of the kernel's file systems: these cases run when they are named.
 */
#include "calls.h"

#include <aio.h>
#include <linux/aio_abi.h>
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

CASE(refused_io_uring)
{
    char parameters[120] = "";
    int ring = (int)syscall(425 /* io_uring_setup */, 8, parameters);
    YES(ring >= 0 || errno == ENOSYS || errno == EPERM);
    say("io_uring_setup = %s", ring >= 0 ? "a descriptor" : error_name(errno));
}

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

/* The C library's own asynchronous calls are threads of it that read and write: these work. */
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

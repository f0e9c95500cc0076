/* Data from file to file, pipe and socket; waiting for files. */
#include "calls.h"

#include <linux/fs.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

CASE(sendfile_ways)
{
    char text[32] = "";
    int ends[2];
    off_t at = 3;
    put("file", "0123456789");
    put("target", "");
    int file = FD(open("file", O_RDONLY)), target = FD(open("target", O_RDWR));
    NUM(sendfile(target, file, NULL, 5));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(lseek(target, 0, SEEK_CUR));
    NUM(sendfile(target, file, &at, 100));
    NUM(at);
    NUM(lseek(file, 0, SEEK_CUR));
    show("target");
    NUM(pipe(ends));
    at = 0;
    NUM(sendfile(ends[1], file, &at, 4));
    NUM(read(ends[0], text, 32));
    STR(text);
    int pair[2];
    NUM(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    NUM(sendfile(pair[0], file, &at, 4));
    memset(text, 0, sizeof text);
    NUM(read(pair[1], text, 32));
    STR(text);
    NUM(sendfile(file, target, NULL, 5));
    NUM(sendfile(target, ends[0], NULL, 5));
    NUM(sendfile(target, -1, NULL, 5));
    NUM(sendfile(-1, file, NULL, 5));
    at = -1;
    NUM(sendfile(target, file, &at, 5));
    NUM(sendfile(target, file, NULL, 0));
    char path[PATH_MAX + 10];
    snprintf(path, sizeof path, "%s/kernel", outside);
    put(path, "of the kernel");
    int elsewhere = FD(open(path, O_RDWR));
    NUM(sendfile(target, elsewhere, NULL, 100));
    NUM(lseek(file, 0, SEEK_SET));
    NUM(sendfile(elsewhere, file, NULL, 100));
    show("target");
    show(path);
}

CASE(copy_ranges)
{
    off_t from = 2, to = 5;
    char path[PATH_MAX + 10];
    put("file", "0123456789");
    put("target", "");
    int file = FD(open("file", O_RDONLY)), target = FD(open("target", O_RDWR));
    NUM(copy_file_range(file, NULL, target, NULL, 4, 0));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(copy_file_range(file, &from, target, &to, 100, 0));
    NUM(from);
    NUM(to);
    NUM(copy_file_range(file, &from, target, NULL, 100, 0));
    show("target");
    NUM(copy_file_range(file, NULL, target, NULL, 100, 1));
    NUM(copy_file_range(target, NULL, file, NULL, 1, 0));
    NUM(copy_file_range(-1, NULL, target, NULL, 1, 0));
    from = 0, to = 1;
    NUM(copy_file_range(target, &from, target, &to, 5, 0));
    from = 0, to = 20;
    NUM(copy_file_range(target, &from, target, &to, 5, 0));
    int append = FD(open("target", O_WRONLY | O_APPEND));
    NUM(copy_file_range(file, &from, append, NULL, 1, 0));
    int folder = FD(open(".", O_RDONLY));
    NUM(copy_file_range(folder, NULL, target, NULL, 1, 0));
    snprintf(path, sizeof path, "%s/kernel", outside);
    put(path, "of the kernel");
    int kernel = FD(open(path, O_RDWR));
    from = to = 0;
    /* Across file systems the kernel may refuse with EXDEV, or copy. */
    ssize_t moved = copy_file_range(kernel, &from, target, &to, 5, 0);
    YES(moved == 5 || (moved == -1 && errno == EXDEV));
    put_pattern("large", 3000000);
    int large = FD(open("large", O_RDONLY)), copy = FD(open("copy", O_RDWR | O_CREAT, 0644));
    size_t total = 0;
    while ((moved = copy_file_range(large, NULL, copy, NULL, 1 << 30, 0)) > 0)
        total += (size_t)moved;
    NUM(total);
    unsigned char *bytes = malloc(3000000);
    NUM(pread(copy, bytes, 3000000, 0));
    YES(is_pattern(bytes, 3000000, 0));
    free(bytes);
}

CASE(splice_ways)
{
    int ends[2];
    char text[32] = "";
    loff_t at = 2;
    put("file", "0123456789");
    put("target", "");
    int file = FD(open("file", O_RDWR)), target = FD(open("target", O_RDWR));
    NUM(pipe(ends));
    NUM(splice(file, &at, ends[1], NULL, 5, 0));
    NUM(at);
    NUM(splice(ends[0], NULL, target, NULL, 3, 0));
    NUM(read(ends[0], text, 32));
    STR(text);
    NUM(splice(file, NULL, target, NULL, 3, 0));
    NUM(splice(file, NULL, ends[1], NULL, 3, 0));
    NUM(lseek(file, 0, SEEK_CUR));
    at = 10;
    NUM(splice(ends[0], NULL, target, &at, 3, 0));
    show("target");
    NUM(tee(file, target, 3, 0));
    NUM(tee(file, ends[1], 3, 0));
    NUM(tee(ends[0], target, 3, 0));
    YES(ioctl(file, FICLONE, target) == 0 || errno == EOPNOTSUPP);
    NUM(splice(-1, NULL, target, NULL, 3, 0));
}

CASE(poll_files)
{
    int ends[2];
    put("file", "x");
    int file = FD(open("file", O_RDWR)), reader = FD(open("file", O_RDONLY)), folder = FD(open(".", O_RDONLY));
    NUM(pipe(ends));
    struct pollfd files[] = {{file, POLLIN | POLLOUT | POLLPRI, 0}, {reader, POLLIN | POLLOUT, 0},
                             {folder, POLLIN, 0}, {ends[0], POLLIN, 0}, {file, 0, 0}, {-1, POLLIN, 7}, {888, POLLIN, 0}};
    NUM(poll(files, 7, 0));
    for (int i = 0; i < 7; i++)
        say("%d: %#x", i, files[i].revents);
    NUM(poll(files, 1, -1));
    struct timespec none = {0, 0};
    NUM(ppoll(files, 4, &none, NULL));
    NUM(poll(files + 3, 1, 1));
    fd_set in, out, except;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    FD_SET(file, &in);
    FD_SET(ends[0], &in);
    FD_SET(file, &out);
    FD_SET(file, &except);
    struct timeval now = {0, 0};
    NUM(select(ends[1] + 1, &in, &out, &except, &now));
    say("%d %d %d %d", FD_ISSET(file, &in), FD_ISSET(ends[0], &in), FD_ISSET(file, &out), FD_ISSET(file, &except));
    FD_ZERO(&in);
    FD_SET(file, &in);
    NUM(pselect(file + 1, &in, NULL, NULL, &none, NULL));
    FD_ZERO(&in);
    NUM(close(reader));
    FD_SET(reader, &in);
    NUM(select(reader + 1, &in, NULL, NULL, &now));
}

CASE(epoll_files)
{
    struct epoll_event event = {.events = EPOLLIN};
    put("file", "x");
    int file = FD(open("file", O_RDWR)), set = FD(epoll_create1(0)), folder = FD(open(".", O_RDONLY));
    NUM(epoll_ctl(set, EPOLL_CTL_ADD, file, &event));
    NUM(epoll_ctl(set, EPOLL_CTL_ADD, folder, &event));
    NUM(epoll_ctl(set, EPOLL_CTL_DEL, file, &event));
    NUM(epoll_ctl(set, EPOLL_CTL_MOD, file, &event));
    NUM(epoll_wait(set, &event, 1, 0));
}

CASE(sockets_refused)
{
    char byte;
    put("file", "x");
    int file = FD(open("file", O_RDWR));
    NUM(send(file, "x", 1, 0));
    NUM(recv(file, &byte, 1, 0));
    NUM(listen(file, 1));
    NUM(shutdown(file, SHUT_RDWR));
}

/* A descriptor over a socket to another process. */
CASE(descriptor_passed)
{
    int pair[2];
    char control[CMSG_SPACE(sizeof(int))] = "", byte = 'x', text[20] = "";
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    put("file", "0123456789");
    NUM(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    if (in_child()) {
        NUM(recvmsg(pair[1], &message, 0));
        int got;
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
        NUM(read(got, text, 4));
        STR(text);
        leave_child(0);
    }
    int file = FD(open("file", O_RDONLY));
    NUM(lseek(file, 2, SEEK_SET));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &file, sizeof file);
    sendmsg(pair[0], &message, 0);
    join();
    NUM(lseek(file, 0, SEEK_CUR));
}

/* One piece at a time: what is in a pipe, and what fits into it. Nobody is at the other end meanwhile. */
CASE(splice_pieces)
{
    int ends[2];
    loff_t at = 0;
    put_pattern("file", 300000);
    int file = FD(open("file", O_RDWR)), out = FD(open("out", O_CREAT | O_RDWR, 0600));
    NUM(pipe(ends));
    NUM(write(ends[1], "01234", 5));
    NUM(splice(ends[0], NULL, out, NULL, 1000, 0));
    show("out");
    NUM(splice(ends[0], NULL, out, NULL, 1000, SPLICE_F_NONBLOCK));
    ssize_t moved = splice(file, &at, ends[1], NULL, 300000, 0);
    YES(moved > 0 && moved <= 65536);
    YES(at == moved);
    unsigned char *bytes = malloc(300000);
    ssize_t got = read(ends[0], bytes, 300000);
    YES(got == moved && is_pattern(bytes, (size_t)moved, 0));
    while (splice(file, NULL, ends[1], NULL, 65536, SPLICE_F_NONBLOCK) > 0)
        ;
    NUM(splice(file, NULL, ends[1], NULL, 65536, SPLICE_F_NONBLOCK));
    NUM(close(ends[1]));
    off_t sum = 0;
    while ((moved = splice(ends[0], NULL, out, NULL, 300000, 0)) > 0)
        sum += moved;
    YES(lseek(file, 0, SEEK_CUR) == sum);
    NUM(moved);
}

static int left_in(int pipe)
{
    int left = -1;
    ioctl(pipe, FIONREAD, &left);
    return left;
}

/* A file that takes less than a pipe has: the rest stays in the pipe, in order. */
CASE(splice_left_over)
{
    enum { BYTES = 65536, LIMIT = 16 << 20, SPACE = 10000 };
    static unsigned char bytes[BYTES], back[BYTES];
    struct rlimit limit = {LIMIT, RLIM_INFINITY};
    fill_pattern(bytes, BYTES, 0);
    if (in_child()) {
        int ends[2];
        loff_t at = LIMIT - SPACE;
        int out = FD(open("out", O_CREAT | O_RDWR, 0600));
        NUM(pipe(ends));
        NUM(write(ends[1], bytes, BYTES));
        NUM(setrlimit(RLIMIT_FSIZE, &limit));
        signal(SIGXFSZ, SIG_IGN);
        NUM(splice(ends[0], NULL, out, &at, BYTES, 0));
        NUM(at - LIMIT);
        NUM(left_in(ends[0]));
        NUM(splice(ends[0], NULL, out, &at, BYTES, 0));
        NUM(left_in(ends[0]));
        NUM(lseek(out, LIMIT - 100, SEEK_SET));
        NUM(splice(ends[0], NULL, out, NULL, 300, 0));
        NUM(lseek(out, 0, SEEK_CUR) - LIMIT);
        NUM(left_in(ends[0]));
        ssize_t left = read(ends[0], back, BYTES);
        NUM(left);
        YES(left > 0 && is_pattern(back, (size_t)left, SPACE + 100));
        NUM(pread(out, back, SPACE, LIMIT - SPACE));
        YES(is_pattern(back, SPACE - 100, 0) && is_pattern(back + SPACE - 100, 100, SPACE));
        /* What is in a pipe that cannot be written anywhere is not lost, either. */
        int reader = FD(open("out", O_RDONLY));
        NUM(write(ends[1], "0123456789", 10));
        NUM(splice(ends[0], NULL, reader, NULL, 10, 0));
        NUM(splice(ends[0], &at, out, NULL, 10, 0));
        NUM(splice(ends[0], NULL, out, NULL, 10, 0x100));
        NUM(left_in(ends[0]));
        at = 0;
        NUM(splice(ends[0], NULL, out, &at, 4, 0));
        NUM(splice(ends[0], NULL, out, &at, 100, SPLICE_F_NONBLOCK));
        NUM(at);
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        NUM(splice(ends[0], NULL, out, &at, 100, 0));
        leave_child(0);
    }
    join();
}

/* As above, of a copy to a file: the offset is behind what was written. */
CASE(sendfile_left_over)
{
    enum { BYTES = 65536, LIMIT = 16 << 20, SPACE = 10000 };
    struct rlimit limit = {LIMIT, RLIM_INFINITY};
    put_pattern("file", BYTES);
    if (in_child()) {
        off_t at = 3;
        int file = FD(open("file", O_RDONLY)), out = FD(open("out", O_CREAT | O_RDWR, 0600));
        NUM(lseek(out, LIMIT - SPACE, SEEK_SET));
        NUM(setrlimit(RLIMIT_FSIZE, &limit));
        signal(SIGXFSZ, SIG_IGN);
        NUM(sendfile(out, file, &at, BYTES - 3));
        NUM(at);
        NUM(lseek(out, 0, SEEK_CUR) - LIMIT);
        NUM(sendfile(out, file, &at, 10));
        NUM(at);
        NUM(lseek(out, -50, SEEK_END) - LIMIT);
        NUM(sendfile(out, file, NULL, 100));
        NUM(lseek(file, 0, SEEK_CUR));
        NUM(lseek(out, 0, SEEK_CUR) - LIMIT);
        /* A pipe that does not wait takes what it has space for. */
        int ends[2];
        NUM(pipe2(ends, O_NONBLOCK));
        at = 0;
        ssize_t sent = sendfile(ends[1], file, &at, BYTES);
        YES(sent > 0 && at == sent && left_in(ends[0]) == sent);
        while (sent > 0)
            sent = sendfile(ends[1], file, &at, BYTES);
        NUM(sent);
        YES(at == left_in(ends[0]) || at == BYTES);
        /* It is full now, which is looked at before the file, whether that has ended or not. */
        NUM(sendfile(ends[1], file, &at, 0));
        at = 1;
        NUM(sendfile(ends[1], file, &at, 10));
        NUM(at);
        leave_child(0);
    }
    join();
}

/* Several threads and one pipe: each byte is in one file, once. */
static int shared_pipe;
static void *take_from_pipe(void *out)
{
    ssize_t moved;
    long sum = 0;
    while ((moved = splice(shared_pipe, NULL, *(int *)out, NULL, 5000, 0)) > 0)
        sum += moved;
    return (void *)sum;
}

CASE(splice_threads)
{
    enum { THREADS = 4, BYTES = 400000 };
    static unsigned char bytes[BYTES], back[BYTES];
    pthread_t threads[THREADS];
    int ends[2], outs[THREADS];
    long sum = 0;
    size_t counts[256] = {0};
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i / 7);
    NUM(pipe(ends));
    shared_pipe = ends[0];
    for (int i = 0; i < THREADS; i++) {
        char name[20];
        snprintf(name, sizeof name, "out%d", i);
        outs[i] = open(name, O_CREAT | O_RDWR, 0600);
        pthread_create(&threads[i], NULL, take_from_pipe, &outs[i]);
    }
    NUM(write(ends[1], bytes, BYTES));
    NUM(close(ends[1]));
    for (int i = 0; i < THREADS; i++) {
        void *took;
        pthread_join(threads[i], &took);
        sum += (long)took;
        ssize_t got = pread(outs[i], back, BYTES, 0);
        for (ssize_t at = 0; at < got; at++)
            counts[back[at]]++;
    }
    NUM(sum);
    for (size_t i = 0; i < BYTES; i++)
        counts[bytes[i]]--;
    bool same = true;
    for (int i = 0; i < 256; i++)
        same = same && counts[i] == 0;
    YES(same);
}

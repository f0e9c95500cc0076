/* Descriptors: copies, flags, numbers, and what the kernel says of them. */
#include "calls.h"

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

CASE(dup_shares)
{
    char text[10] = "";
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR));
    int copy = FD(dup(file));
    NUM(read(file, text, 3));
    NUM(lseek(copy, 0, SEEK_CUR));
    NUM(lseek(copy, 7, SEEK_SET));
    NUM(read(file, text, 3));
    STR(text);
    NUM(fcntl(copy, F_SETFL, O_APPEND));
    NUM((fcntl(file, F_GETFL) & O_APPEND) != 0);
    NUM(fcntl(copy, F_SETFD, FD_CLOEXEC));
    NUM(fcntl(file, F_GETFD));
    NUM(close(file));
    NUM(read(file, text, 1));
    NUM(write(copy, "!", 1));
    NUM(close(copy));
    show("file");
}

CASE(dup_to)
{
    char text[10] = "";
    put("one", "one");
    put("two", "two");
    int one = open("one", O_RDONLY), two = open("two", O_RDONLY);
    NUM(dup2(one, 77));
    NUM(read(77, text, 3));
    STR(text);
    NUM(dup2(two, 77));
    NUM(read(77, text, 3));
    STR(text);
    NUM(dup2(one, one) == one);
    NUM(dup2(-1, 5));
    NUM(dup2(one, -1));
    NUM(dup2(one, 1 << 24));
    NUM(dup3(one, 78, O_CLOEXEC));
    NUM(fcntl(78, F_GETFD));
    NUM(dup3(one, one, 0));
    NUM(dup3(one, 79, 12345));
    NUM(dup(-1));
    NUM(close(77));
    NUM(read(77, text, 1));
    NUM(fcntl(one, F_DUPFD, 100));
    NUM(fcntl(one, F_DUPFD, 100));
    NUM(fcntl(one, F_DUPFD_CLOEXEC, 100));
    NUM(fcntl(102, F_GETFD));
    NUM(fcntl(101, F_GETFD));
    NUM(fcntl(one, F_DUPFD, -1));
    NUM(fcntl(-1, F_DUPFD, 0));
    NUM(lseek(102, 0, SEEK_SET));
    NUM(read(one, text, 3));
    /* One of ours over one of the kernel's, and the other way. */
    int kernel = open("/dev/null", O_RDWR);
    NUM(dup2(one, kernel) == kernel);
    NUM(pread(kernel, text, 3, 0));
    int zero = open("/dev/zero", O_RDONLY);
    NUM(dup2(zero, kernel) == kernel);
    NUM(read(kernel, text, 3));
    say_bytes("text", text, 3);
    NUM(dup2(zero, two) == two);
    NUM(read(two, text, 3));
    say_bytes("text", text, 3);
}

CASE(lowest_number)
{
    put("file", "x");
    int first = open("/dev/null", O_RDONLY);
    close(first);
    YES(open("file", O_RDONLY) == first);
    YES(open("/dev/null", O_RDONLY) == first + 1);
    YES(open("file", O_RDONLY) == first + 2);
    NUM(close(first));
    YES(dup(first + 2) == first);
    NUM(close(first + 1));
    YES(openat(AT_FDCWD, "file", O_RDONLY) == first + 1);
    NUM(close(first + 2));
    YES(open("none", O_RDONLY) == -1);
    YES(open("/dev/null", O_RDONLY) == first + 2);
    NUM(close(0));
    YES(open("file", O_RDONLY) == 0);
}

CASE(flags)
{
    put("file", "x");
    int file = FD(open("file", O_RDWR));
    say("%o", (unsigned)(fcntl(file, F_GETFL) & ~0100000));
    NUM(fcntl(file, F_SETFL, O_APPEND | O_NONBLOCK));
    say("%o", (unsigned)(fcntl(file, F_GETFL) & ~0100000));
    NUM(fcntl(file, F_SETFL, O_NOATIME | O_WRONLY | O_CREAT | O_TRUNC));
    say("%o", (unsigned)(fcntl(file, F_GETFL) & ~0100000));
    NUM(fcntl(file, F_GETFD));
    NUM(fcntl(file, F_SETFD, FD_CLOEXEC));
    NUM(fcntl(file, F_GETFD));
    NUM(ioctl(file, FIONCLEX));
    NUM(fcntl(file, F_GETFD));
    NUM(ioctl(file, FIOCLEX));
    NUM(fcntl(file, F_GETFD));
    int on = 1, bytes = -1;
    NUM(ioctl(file, FIONBIO, &on));
    NUM((fcntl(file, F_GETFL) & O_NONBLOCK) != 0);
    NUM(ioctl(file, FIONREAD, &bytes));
    NUM(bytes);
    NUM(ioctl(file, TCGETS, &bytes));
    NUM(isatty(file));
    NUM(ioctl(file, 0x12345678, &bytes));
    NUM(fcntl(file, 9999));
    NUM(fcntl(-1, F_GETFL));
    NUM(fcntl(-1, F_GETFD));
    NUM(fcntl(file, F_GETOWN));
    NUM(fcntl(file, F_SETOWN, getpid()));
    int copy = dup(file);
    YES(fcntl(copy, F_GETOWN) == getpid());
    NUM(close(copy));
    int again = open("file", O_RDONLY);
    NUM(fcntl(again, F_GETOWN));
    NUM(close(again));
    NUM(fcntl(file, F_SETOWN, 0));
    NUM(fcntl(file, F_GETOWN));
    NUM(fcntl(file, F_GETSIG));
    NUM(fcntl(file, F_SETSIG, SIGUSR1));
    NUM(fcntl(file, F_GETSIG));
    NUM(fcntl(file, F_SETSIG, 0));
    NUM(fcntl(file, F_SETSIG, 1000));
    struct f_owner_ex owner = {F_OWNER_PGRP, getpgrp()};
    NUM(fcntl(file, F_SETOWN_EX, &owner));
    YES(fcntl(file, F_GETOWN) == -getpgrp());
    NUM(fcntl(file, F_GETOWN_EX, &owner));
    YES(owner.type == F_OWNER_PGRP && owner.pid == getpgrp());
    NUM(fcntl(file, F_GETPIPE_SZ));
    NUM(fcntl(file, F_GET_SEALS));
    NUM(fcntl(file, F_ADD_SEALS, 0));
    NUM(close(file));
    file = FD(open("file", O_WRONLY | O_APPEND | O_CREAT, 0600));
    say("%o", (unsigned)(fcntl(file, F_GETFL) & ~0100000));
    NUM(close(file));
    file = FD(open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    say("%o", (unsigned)(fcntl(file, F_GETFL) & ~0100000));
    /* Of no event. */
    NUM(fcntl(file, F_NOTIFY, DN_MULTISHOT));
    NUM(close(file));
    file = FD(open("file", O_RDONLY));
    NUM(fcntl(file, F_NOTIFY, 0));
    NUM(fcntl(file, F_NOTIFY, DN_ACCESS));
    NUM(close(file));
    file = FD(open("file", O_PATH));
    NUM(fcntl(file, F_SETFL, O_APPEND));
    NUM(fcntl(file, F_GETOWN));
    NUM(fcntl(file, F_SETSIG, SIGUSR1));
    NUM(fcntl(file, F_GETLEASE));
    NUM(close(file));
}

CASE(closing)
{
    char byte;
    put("file", "x");
    int file = FD(open("file", O_RDONLY));
    NUM(close(file));
    NUM(close(file));
    NUM(read(file, &byte, 1));
    NUM(fsync(file));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(close(-1));
    int base = 200;
    for (int i = 0; i < 10; i++)
        dup2(file = open("file", O_RDONLY), base + i);
    NUM(close_range(base, base + 4, 0));
    NUM(read(base + 4, &byte, 1));
    NUM(read(base + 5, &byte, 1));
    NUM(close_range(base + 5, base + 6, CLOSE_RANGE_CLOEXEC));
    NUM(fcntl(base + 5, F_GETFD));
    NUM(fcntl(base + 7, F_GETFD));
    NUM(close_range(10, 5, 0));
    NUM(syscall(SYS_close_range, base + 7, base + 7, 0));
    NUM(read(base + 7, &byte, 1));
    NUM(pread(base + 8, &byte, 1, 0));
    if (in_child()) {
        /* It cannot say anything from here on. */
        closefrom(base + 8);
        leave_child(read(base + 9, &byte, 1) == -1 && errno == EBADF ? 7 : 8);
    }
    join();
    NUM(pread(base + 9, &byte, 1, 0));
}

/* Those who look which numbers are in use find what they have opened. */
CASE(numbers_in_use)
{
    struct stat found;
    put("file", "x");
    int file = FD(open("file", O_RDONLY)), by_stat = 0, by_flags = 0, by_copy = 0;
    for (int round = 0; round < 2; round++) {
        int is_child = round && in_child();
        if (round && !is_child)
            break;
        for (int fd = 400; fd < 1100; fd++) {
            int copied;
            if (fd == said_by())
                continue;
            by_stat += fstat(fd, &found) == 0;
            by_flags += fcntl(fd, F_GETFD) >= 0;
            if ((copied = dup(fd)) >= 0)
                by_copy++, close(copied);
        }
        NUM(by_stat);
        NUM(by_flags);
        NUM(by_copy);
        if (is_child)
            leave_child(0);
    }
    join();
    NUM(fstat(file, &found));
}

CASE(limit_of_descriptors)
{
    struct rlimit few = {40, 40};
    int opened = 0;
    put("file", "x");
    if (in_child()) {
        /* What is open already is not the business of this case. */
        for (int fd = 3; fd < 100; fd++)
            if (fd != said_by())
                close(fd);
        NUM(setrlimit(RLIMIT_NOFILE, &few));
        while (opened < 100 && open("file", O_RDONLY) >= 0)
            opened++;
        NUM(open("file", O_RDONLY));
        NUM(opened);
        NUM(dup(0));
        PTR(fopen("file", "r"));
        /* Nothing is cut or made for who cannot have it. */
        NUM(open("file", O_WRONLY | O_TRUNC));
        NUM(open("new", O_CREAT | O_EXCL | O_WRONLY, 0600));
        show_stat("file");
        show_names(".");
        NUM(close(20));
        NUM(open("file", O_RDONLY));
        NUM(close(20));
        NUM(open("new", O_CREAT | O_EXCL | O_WRONLY, 0600));
        NUM(close(20));
        leave_child(0);
    }
    join();
}

CASE(proc_self_fd)
{
    char path[64], target[PATH_MAX] = "", text[10] = "";
    struct stat one, two;
    put("file", "by number");
    int file = FD(open("file", O_RDWR));
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    NUM(readlink(path, target, sizeof target) > 0);
    YES(strncmp(target, case_folder, strlen(case_folder)) == 0);
    STR(strrchr(target, '/') ? strrchr(target, '/') : target);
    PTR(realpath(path, target));
    STR(strrchr(target, '/'));
    NUM(stat(path, &one));
    NUM(fstat(file, &two));
    YES(one.st_dev == two.st_dev && one.st_ino == two.st_ino);
    NUM(access(path, R_OK));
    int again = FD(open(path, O_RDONLY));
    NUM(read(again, text, 9));
    STR(text);
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(close(again));
    snprintf(path, sizeof path, "/dev/fd/%d", file);
    again = FD(open(path, O_RDWR));
    NUM(write(again, "BY", 2));
    NUM(close(again));
    NUM(truncate(path, 5));
    NUM(chmod(path, 0600));
    show("file");
    show_stat("file");
    int folder = FD(open(".", O_RDONLY | O_DIRECTORY));
    snprintf(path, sizeof path, "/proc/self/fd/%d/file", folder);
    show(path + strlen(path) - 4);
    again = FD(open(path, O_RDONLY));
    NUM(close(again));
    NUM(access("/proc/self/cwd/file", F_OK));
    again = FD(open("/proc/self/cwd/file", O_RDONLY));
    NUM(read(again, text, 2));
    STR(text);
}

CASE(same_device)
{
    struct stat one, two, folder, away;
    put("one", "1");
    put("two", "2");
    NUM(link("one", "three"));
    NUM(stat("one", &one));
    NUM(stat("two", &two));
    YES(one.st_dev == two.st_dev && one.st_ino != two.st_ino && one.st_ino != 0);
    NUM(stat("three", &two));
    YES(one.st_dev == two.st_dev && one.st_ino == two.st_ino);
    NUM(stat(".", &folder));
    YES(one.st_dev == folder.st_dev);
    NUM(stat("/proc", &away));
    YES(one.st_dev != away.st_dev);
    YES(one.st_blksize >= 512 && one.st_blksize <= 1 << 20);
    int file = FD(open("one", O_RDONLY));
    NUM(fstat(file, &two));
    YES(memcmp(&one, &two, sizeof one) == 0);
    NUM(close(file));
}

static void use_files(const char *name)
{
    put(name, "written after that");
    show(name);
    NUM(rename(name, "renamed"));
    NUM(unlink("renamed"));
}

/* As daemons do: what is there is closed, and files are opened and written all the same. */
CASE(descriptors_closed)
{
    int all;
    put("file", "content");
    int file = FD(open("file", O_RDWR));
    for (all = 3; all < 1100; all++)
        if (all != said_by())
            close(all);
    NUM(write(file, "x", 1));
    use_files("one");
    for (all = 500; all < 1000; all++)
        if (all != said_by())
            dup2(0, all);
    use_files("two");
    for (all = 500; all < 1000; all++)
        if (all != said_by())
            close(all);
    use_files("three");
    NUM(syscall(SYS_close_range, 3, said_by() - 1, 0));
    NUM(syscall(SYS_close_range, said_by() + 1, ~0U, 0));
    use_files("four");
    int kept = FD(open("file", O_RDONLY | O_CLOEXEC));
    NUM(fcntl(kept, F_GETFD));
}

/* A copy that fails leaves what was at its number. */
CASE(dup_fails)
{
    char text[10] = "";
    put("one", "one");
    put("two", "two");
    int one = FD(open("one", O_RDWR)), two = FD(open("two", O_RDWR));
    NUM(dup3(one, two, 12345));
    NUM(read(two, text, 3));
    STR(text);
    NUM(dup2(-1, two));
    NUM(pwrite(two, "TWO", 3, 0));
    show("two");
}

/* Locks, between processes and within one. */
#include "calls.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/time.h>

static struct flock range(short type, off_t start, off_t length)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return lock;
}

static int set(int file, int how, short type, off_t start, off_t length)
{
    struct flock lock = range(type, start, length);
    return fcntl(file, how, &lock);
}

/* Who has a lock that is in the way, by the name it has in this test. */
static void get(const char *who, int file, int how, short type, off_t start, off_t length, pid_t holder)
{
    struct flock lock = range(type, start, length);
    int result = fcntl(file, how, &lock);
    if (result != 0)
        say("%s: F_GETLK = %s", who, error_name(errno));
    else if (lock.l_type == F_UNLCK)
        say("%s: nothing is in the way of %lld+%lld", who, (long long)start, (long long)length);
    else
        say("%s: in the way: type %d, whence %d, %lld+%lld, by %s", who, lock.l_type, lock.l_whence,
            (long long)lock.l_start, (long long)lock.l_len,
            lock.l_pid == holder ? "its holder" : lock.l_pid == -1 ? "-1" : "another");
}

CASE(record_locks)
{
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR));
    NUM(set(file, F_SETLK, F_WRLCK, 0, 10));
    NUM(set(file, F_SETLK, F_RDLCK, 20, 10));
    get("same process", file, F_GETLK, F_WRLCK, 0, 10, getpid());
    pid_t parent = getpid();
    if (in_child()) {
        get("child", file, F_GETLK, F_WRLCK, 0, 0, parent);
        get("child", file, F_GETLK, F_RDLCK, 5, 1, parent);
        get("child", file, F_GETLK, F_RDLCK, 20, 5, parent);
        get("child", file, F_GETLK, F_WRLCK, 25, 1, parent);
        get("child", file, F_GETLK, F_WRLCK, 10, 10, parent);
        NUM(set(file, F_SETLK, F_WRLCK, 9, 2));
        NUM(set(file, F_SETLK, F_WRLCK, 10, 2));
        NUM(set(file, F_SETLK, F_RDLCK, 20, 2));
        NUM(set(file, F_SETLK, F_WRLCK, 22, 1));
        NUM(set(file, F_SETLK, F_UNLCK, 0, 0));
        get("child", file, F_GETLK, F_WRLCK, 0, 5, parent);
        leave_child(0);
    }
    join();
    NUM(set(file, F_SETLK, F_UNLCK, 3, 4));
    if (in_child()) {
        get("middle", file, F_GETLK, F_WRLCK, 0, 0, parent);
        get("middle", file, F_GETLK, F_WRLCK, 3, 0, parent);
        NUM(set(file, F_SETLK, F_WRLCK, 3, 4));
        NUM(set(file, F_SETLK, F_WRLCK, 2, 1));
        leave_child(0);
    }
    join();
    /* Closing any descriptor of the file ends all locks of the process. */
    int other = FD(open("file", O_RDONLY));
    NUM(close(other));
    if (in_child()) {
        get("after close", file, F_GETLK, F_WRLCK, 0, 0, parent);
        NUM(set(file, F_SETLK, F_WRLCK, 0, 0));
        leave_child(0);
    }
    join();
    NUM(set(file, F_SETLK, F_WRLCK, 0, 0));
    NUM(close(file));
}

CASE(record_locks_wrong)
{
    put("file", "0123456789");
    int reader = FD(open("file", O_RDONLY)), writer = FD(open("file", O_WRONLY)), both = FD(open("file", O_RDWR));
    NUM(set(reader, F_SETLK, F_WRLCK, 0, 1));
    NUM(set(reader, F_SETLK, F_RDLCK, 0, 1));
    NUM(set(writer, F_SETLK, F_RDLCK, 0, 1));
    NUM(set(writer, F_SETLK, F_WRLCK, 0, 1));
    NUM(set(both, F_SETLK, 77, 0, 1));
    NUM(set(both, F_SETLK, F_WRLCK, -1, 1));
    NUM(set(both, F_SETLK, F_WRLCK, 5, -3));
    NUM(set(both, F_SETLK, F_WRLCK, 2, -3));
    NUM(set(both, F_SETLK, F_WRLCK, LLONG_MAX, 2));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -2, .l_len = 2};
    NUM(fcntl(both, F_SETLK, &lock));
    lock.l_whence = 55;
    NUM(fcntl(both, F_SETLK, &lock));
    lock = range(F_UNLCK, 0, 0);
    NUM(fcntl(both, F_GETLK, &lock));
    NUM(set(-1, F_SETLK, F_WRLCK, 0, 1));
    NUM(fcntl(both, F_SETLK, NULL));
    pid_t parent = getpid();
    if (in_child()) {
        get("child", both, F_GETLK, F_WRLCK, 0, 0, parent);
        get("child", both, F_GETLK, F_WRLCK, 6, 0, parent);
        leave_child(0);
    }
    join();
    NUM(lockf(both, F_LOCK, 4));
    NUM(lockf(both, F_TEST, 4));
    if (in_child()) {
        NUM(lockf(both, F_TEST, 4));
        NUM(lockf(both, F_TLOCK, 4));
        leave_child(0);
    }
    join();
    NUM(lockf(both, F_ULOCK, 0));
    NUM(lockf(both, 99, 0));
}

CASE(record_locks_wait)
{
    struct gate held;
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR));
    make_gate(&held);
    if (in_child()) {
        set(file, F_SETLK, F_WRLCK, 0, 10);
        open_gate(&held);
        usleep(200000);
        if (pwrite(file, "child", 5, 0) != 5)
            say("pwrite = %s", error_name(errno));
        /* Its end lets go of the lock. */
        leave_child(0);
    }
    wait_gate(&held);
    NUM(set(file, F_SETLK, F_WRLCK, 0, 10));
    NUM(set(file, F_SETLKW, F_WRLCK, 0, 10));
    show("file");
    join();
    NUM(close(file));
}

static void on_signal(int number)
{
    (void)number;
}

CASE(record_locks_interrupted)
{
    struct gate held, done;
    struct sigaction action = {.sa_handler = on_signal};
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR));
    make_gate(&held);
    make_gate(&done);
    sigaction(SIGUSR1, &action, NULL);
    pid_t parent = getpid();
    if (in_child()) {
        set(file, F_SETLK, F_WRLCK, 0, 10);
        open_gate(&held);
        /* Until it is interrupted it waits, and a signal may come before it waits. */
        for (int i = 0; i < 20; i++) {
            usleep(50000);
            kill(parent, SIGUSR1);
        }
        wait_gate(&done);
        leave_child(0);
    }
    wait_gate(&held);
    NUM(set(file, F_SETLKW, F_WRLCK, 0, 10));
    open_gate(&done);
    join();
    NUM(close(file));
}

CASE(record_locks_deadlock)
{
    struct gate ready, go;
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR));
    make_gate(&ready);
    make_gate(&go);
    NUM(set(file, F_SETLK, F_WRLCK, 0, 1));
    if (in_child()) {
        set(file, F_SETLK, F_WRLCK, 1, 1);
        open_gate(&ready);
        leave_child(set(file, F_SETLKW, F_WRLCK, 0, 1) != 0 && errno == EDEADLK);
    }
    wait_gate(&ready);
    usleep(300000);
    /* Whichever asks last is told. */
    int told = set(file, F_SETLKW, F_WRLCK, 1, 1) != 0 && errno == EDEADLK, status = -1;
    set(file, F_SETLK, F_UNLCK, 0, 1);
    waitpid(-1, &status, 0);
    NUM(told + (WEXITSTATUS(status) == 1));
}

CASE(description_locks)
{
    put("file", "0123456789");
    int one = FD(open("file", O_RDWR)), two = FD(open("file", O_RDWR));
    NUM(set(one, F_OFD_SETLK, F_WRLCK, 0, 5));
    NUM(set(two, F_OFD_SETLK, F_WRLCK, 0, 5));
    NUM(set(two, F_OFD_SETLK, F_WRLCK, 5, 5));
    get("other description", two, F_OFD_GETLK, F_WRLCK, 0, 0, -1);
    get("record lock", two, F_GETLK, F_WRLCK, 0, 0, -1);
    NUM(set(two, F_SETLK, F_WRLCK, 0, 1));
    int copy = FD(dup(one));
    NUM(set(copy, F_OFD_SETLK, F_WRLCK, 0, 3));
    NUM(close(one));
    NUM(set(two, F_OFD_SETLK, F_WRLCK, 0, 5));
    if (in_child()) {
        /* A child has the description, and its locks. */
        NUM(set(copy, F_OFD_SETLK, F_WRLCK, 0, 5));
        NUM(set(two, F_OFD_SETLK, F_RDLCK, 0, 5));
        leave_child(0);
    }
    join();
    NUM(close(copy));
    NUM(set(two, F_OFD_SETLK, F_WRLCK, 0, 10));
    struct flock lock = range(F_WRLCK, 0, 1);
    lock.l_pid = 5;
    NUM(fcntl(two, F_OFD_SETLK, &lock));
    int reader = FD(open("file", O_RDONLY));
    NUM(set(reader, F_OFD_SETLK, F_WRLCK, 0, 1));
}

CASE(flock_locks)
{
    put("file", "0123456789");
    int one = FD(open("file", O_RDONLY)), two = FD(open("file", O_RDWR));
    NUM(flock(one, LOCK_EX | LOCK_NB));
    NUM(flock(two, LOCK_SH | LOCK_NB));
    NUM(flock(two, LOCK_EX | LOCK_NB));
    NUM(flock(one, LOCK_SH));
    NUM(flock(two, LOCK_SH | LOCK_NB));
    NUM(flock(two, LOCK_EX | LOCK_NB));
    /* Locks of the two kinds do not see each other. */
    NUM(set(two, F_SETLK, F_WRLCK, 0, 0));
    NUM(flock(one, LOCK_UN));
    NUM(flock(two, LOCK_EX | LOCK_NB));
    if (in_child()) {
        NUM(flock(one, LOCK_SH | LOCK_NB));
        NUM(flock(two, LOCK_SH | LOCK_NB));
        NUM(flock(one, LOCK_SH | LOCK_NB));
        NUM(flock(one, LOCK_UN));
        NUM(flock(two, LOCK_EX | LOCK_NB));
        leave_child(0);
    }
    join();
    int copy = dup(two);
    NUM(close(two));
    NUM(flock(one, LOCK_EX | LOCK_NB));
    NUM(close(copy));
    NUM(flock(one, LOCK_EX | LOCK_NB));
    NUM(flock(-1, LOCK_EX));
    NUM(flock(one, 77));
    NUM(flock(one, 0));
    int folder = FD(open(".", O_RDONLY));
    NUM(flock(folder, LOCK_EX | LOCK_NB));
    int again = FD(open(".", O_RDONLY));
    NUM(flock(again, LOCK_EX | LOCK_NB));
}

CASE(flock_waits)
{
    struct gate held;
    int file = FD(open("file", O_RDWR | O_CREAT, 0644));
    make_gate(&held);
    if (in_child()) {
        int own = open("file", O_RDWR);
        flock(own, LOCK_EX);
        open_gate(&held);
        usleep(200000);
        if (write(own, "child", 5) != 5)
            say("write = %s", error_name(errno));
        leave_child(0);
    }
    wait_gate(&held);
    NUM(flock(file, LOCK_EX | LOCK_NB));
    NUM(flock(file, LOCK_EX));
    show("file");
    join();
}

/* Processes that add to a number, each under a lock. */
CASE(locked_counter)
{
    enum { PROCESSES = 4, ROUNDS = 50 };
    pid_t pids[PROCESSES];
    put("number", "0");
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] != 0)
            continue;
        int file = open("number", O_RDWR);
        for (int round = 0; round < ROUNDS; round++) {
            char text[20] = "";
            bool whole = i % 2 == 0;
            if (set(file, F_SETLKW, F_WRLCK, whole ? 0 : 10, whole ? 0 : 5) != 0)
                _exit(1);
            if (!whole && set(file, F_SETLKW, F_WRLCK, 0, 1) != 0)
                _exit(2);
            if (pread(file, text, sizeof text - 1, 0) < 1)
                _exit(3);
            int length = snprintf(text, sizeof text, "%d", atoi(text) + 1);
            if (pwrite(file, text, (size_t)length, 0) != length)
                _exit(4);
            set(file, F_SETLK, F_UNLCK, 0, 0);
        }
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        waitpid(pids[i], &status, 0);
        NUM(status);
    }
    show("number");
}

CASE(leases)
{
    put("file", "x");
    int file = FD(open("file", O_RDONLY));
    NUM(fcntl(file, F_GETLEASE));
    NUM(close(file));
}

static void interrupt(int signal)
{
    (void)signal;
}

/* Whoever has given up waiting is in nobody's way: there is no circle. */
CASE(record_locks_given_up)
{
    struct gate ready;
    struct sigaction action = {.sa_handler = interrupt};
    struct itimerval soon = {.it_interval = {0, 50000}, .it_value = {0, 50000}}, never = {0};
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR)), told[2], status = -1;
    NUM(pipe(told));
    make_gate(&ready);
    NUM(set(file, F_SETLK, F_WRLCK, 0, 1));
    pid_t pid = fork();
    if (pid == 0) {
        sigaction(SIGALRM, &action, NULL);
        set(file, F_SETLKW, F_WRLCK, 1, 1);
        setitimer(ITIMER_REAL, &soon, NULL);
        bool interrupted = set(file, F_SETLKW, F_WRLCK, 0, 1) != 0 && errno == EINTR;
        setitimer(ITIMER_REAL, &never, NULL);
        open_gate(&ready);
        /* The parent waits by now, mostly. */
        usleep(200000);
        set(file, F_SETLK, F_UNLCK, 1, 1);
        _exit(interrupted ? 7 : 1);
    }
    wait_gate(&ready);
    NUM(set(file, F_SETLKW, F_WRLCK, 1, 1));
    NUM(waitpid(pid, &status, 0) == pid);
    NUM(WEXITSTATUS(status));
}

/* A directory is locked as any other file: programs take one for what is in it. */
CASE(directory_locks)
{
    NUM(mkdir("folder", 0755));
    const char *names[] = {".", "folder"};
    for (int i = 0; i < 2; i++) {
        int one = FD(open(names[i], O_RDONLY)), two = FD(open(names[i], O_RDONLY | O_DIRECTORY));
        NUM(flock(one, LOCK_EX | LOCK_NB));
        NUM(flock(two, LOCK_SH | LOCK_NB));
        NUM(close(one));
        NUM(flock(two, LOCK_EX | LOCK_NB));
        if (in_child()) {
            int mine = FD(open(names[i], O_RDONLY));
            NUM(flock(mine, LOCK_EX | LOCK_NB));
            NUM(flock(two, LOCK_UN));
            NUM(flock(mine, LOCK_EX | LOCK_NB));
            NUM(flock(two, LOCK_SH | LOCK_NB));
            leave_child(0);
        }
        join();
        NUM(flock(two, LOCK_EX | LOCK_NB));
        NUM(flock(two, LOCK_UN));
        /* Those of bytes, too. */
        int three = FD(open(names[i], O_RDONLY));
        NUM(set(two, F_SETLK, F_RDLCK, 5, 10));
        NUM(set(two, F_SETLK, F_WRLCK, 5, 10));
        NUM(set(three, F_OFD_SETLK, F_RDLCK, 100, 0));
        if (in_child()) {
            struct flock found = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 50};
            NUM(fcntl(two, F_GETLK, &found));
            say("type %d, from %ld, %ld bytes", found.l_type, (long)found.l_start, (long)found.l_len);
            NUM(set(two, F_SETLK, F_RDLCK, 0, 1));
            leave_child(0);
        }
        join();
        NUM(close(three));
        NUM(close(two));
    }
    DIR *stream = opendir("folder");
    NUM(flock(dirfd(stream), LOCK_EX | LOCK_NB));
    NUM(closedir(stream));
    int again = FD(open("folder", O_RDONLY));
    NUM(flock(again, LOCK_EX | LOCK_NB));
    /* What is only found, not opened, cannot be locked. */
    int found = FD(open("folder", O_PATH));
    NUM(flock(found, LOCK_SH | LOCK_NB));
    NUM(set(found, F_SETLK, F_RDLCK, 0, 0));
}

/* What somebody is told of locks in his way: those that touch are one, and who came first is named. */
CASE(locks_that_touch)
{
    put("file", "0123456789");
    int one = FD(open("file", O_RDWR)), two = FD(open("file", O_RDWR)), three = FD(open("file", O_RDWR));
    NUM(set(one, F_OFD_SETLK, F_WRLCK, 0, 10));
    NUM(set(one, F_OFD_SETLK, F_WRLCK, 20, 10));
    NUM(set(one, F_OFD_SETLK, F_WRLCK, 10, 10));
    get("three", three, F_OFD_GETLK, F_RDLCK, 0, 0, -1);
    NUM(set(one, F_OFD_SETLK, F_WRLCK, 25, 20));
    get("three", three, F_OFD_GETLK, F_RDLCK, 0, 0, -1);
    NUM(set(one, F_OFD_SETLK, F_RDLCK, 12, 3));
    get("three", three, F_OFD_GETLK, F_RDLCK, 0, 0, -1);
    get("three", three, F_OFD_GETLK, F_WRLCK, 13, 0, -1);
    get("three", three, F_OFD_GETLK, F_WRLCK, 15, 0, -1);
    NUM(set(one, F_OFD_SETLK, F_UNLCK, 0, 0));
    NUM(set(one, F_OFD_SETLK, F_WRLCK, 50, 10));
    NUM(set(two, F_OFD_SETLK, F_WRLCK, 10, 10));
    get("three", three, F_OFD_GETLK, F_RDLCK, 0, 0, -1);
    NUM(set(one, F_OFD_SETLK, F_RDLCK, 45, 20));
    get("three", three, F_OFD_GETLK, F_WRLCK, 0, 0, -1);
    NUM(set(one, F_OFD_SETLK, F_UNLCK, 0, 0));
    NUM(set(one, F_OFD_SETLK, F_WRLCK, 50, 0));
    get("three", three, F_OFD_GETLK, F_RDLCK, 0, 0, -1);
}

/* Only a close of the program's own gives locks back, and none of what only names a file. */
CASE(locks_that_stay)
{
    put_pattern("file", 4096);
    int file = FD(open("file", O_RDWR));
    NUM(set(file, F_SETLK, F_WRLCK, 0, 0));
    for (int step = 0; step < 5; step++) {
        if (step == 1) {
            char *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            bytes[0] = 1;
            NUM(msync(bytes, 4096, MS_SYNC));
            NUM(munmap(bytes, 4096));
        }
        if (step == 2)
            free(PTR(realpath("file", NULL)));
        if (step == 3)
            NUM(close(FD(open("file", O_PATH))));
        if (step == 4)
            NUM(close(FD(open("file", O_RDONLY))));
        if (in_child()) {
            NUM(set(file, F_SETLK, F_WRLCK, 0, 0));
            leave_child(0);
        }
        join();
    }
}

/* Who wants it alone does not keep what he shares: two of them would wait for each other. */
CASE(flock_changes)
{
    put("file", "x");
    int one = FD(open("file", O_RDONLY)), two = FD(open("file", O_RDONLY));
    NUM(flock(one, LOCK_SH | LOCK_NB));
    NUM(flock(two, LOCK_SH | LOCK_NB));
    NUM(flock(one, LOCK_EX | LOCK_NB));
    NUM(flock(two, LOCK_EX | LOCK_NB));
    NUM(flock(two, LOCK_EX | LOCK_NB));
    NUM(flock(one, LOCK_SH | LOCK_NB));
    NUM(flock(two, LOCK_SH));
    NUM(flock(one, LOCK_SH | LOCK_NB));
}

/* What a child had that was killed is free for who has waited for it. */
CASE(locks_of_the_killed)
{
    put("file", "0123456789");
    for (int turn = 0; turn < 20; turn++) {
        int ready[2];
        char byte;
        pipe(ready);
        if (in_child()) {
            int file = open("file", O_RDWR);
            if (flock(file, LOCK_EX | LOCK_NB) != 0 || set(file, F_SETLK, F_WRLCK, 0, 0) != 0)
                say("the child has no lock");
            write(ready[1], "r", 1);
            pause();
        }
        read(ready[0], &byte, 1);
        close(ready[0]);
        close(ready[1]);
        end_child();
        int file = open("file", O_RDWR);
        if (flock(file, LOCK_EX | LOCK_NB) != 0 || set(file, F_SETLK, F_WRLCK, 0, 0) != 0)
            say("turn %d: it is locked", turn);
        close(file);
    }
}

/* Threads and signals in the middle of calls. */
#include "calls.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/time.h>

enum { THREADS = 6, SECTION = 4096 };
static atomic_int bad;
static atomic_bool stop;
static int shared_file;

static void *at_places(void *argument)
{
    long self = (long)argument;
    unsigned char bytes[SECTION], back[SECTION];
    for (int round = 0; round < 300; round++) {
        memset(bytes, (int)(self * 41 + round), sizeof bytes);
        if (pwrite(shared_file, bytes, SECTION, self * SECTION) != SECTION)
            bad++;
        if (pread(shared_file, back, SECTION, self * SECTION) != SECTION || memcmp(bytes, back, SECTION) != 0)
            bad++;
    }
    return NULL;
}

static void *opens_and_closes(void *argument)
{
    long self = (long)argument;
    char name[40], text[40];
    for (int round = 0; round < 200; round++) {
        snprintf(name, sizeof name, "thread%ld.%d", self, round % 7);
        int file = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
        int kernel = open("/dev/null", O_WRONLY);
        if (file < 0 || write(file, name, strlen(name)) != (ssize_t)strlen(name) || write(kernel, name, 3) != 3)
            bad++;
        int copy = dup(file);
        if (close(file) != 0 || pread(copy, text, sizeof text, 0) != (ssize_t)strlen(name) || memcmp(text, name, strlen(name)) != 0)
            bad++;
        if (close(copy) != 0 || close(kernel) != 0)
            bad++;
        if (round % 7 == 6 && unlink(name) != 0)
            bad++;
    }
    return NULL;
}

CASE(thread_hammer)
{
    pthread_t threads[2 * THREADS];
    shared_file = FD(open("shared", O_CREAT | O_RDWR, 0644));
    for (long i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, at_places, (void *)i);
        pthread_create(&threads[THREADS + i], NULL, opens_and_closes, (void *)i);
    }
    for (int i = 0; i < 2 * THREADS; i++)
        pthread_join(threads[i], NULL);
    NUM(atomic_load(&bad));
    NUM(lseek(shared_file, 0, SEEK_END));
    for (int i = 0; i < THREADS; i++) {
        char text[30], byte = 0;
        snprintf(text, sizeof text, "thread%d.0", i);
        show(text);
        NUM(pread(shared_file, &byte, 1, i * SECTION));
        NUM(byte);
    }
}

static void *reads_in_turn(void *argument)
{
    long *sum = argument;
    unsigned char bytes[16];
    while (read(shared_file, bytes, sizeof bytes) == sizeof bytes)
        for (size_t i = 0; i < sizeof bytes; i++)
            *sum += bytes[i];
    return NULL;
}

/* One place, many readers: each byte is read once. */
CASE(thread_one_place)
{
    pthread_t threads[THREADS];
    long sums[THREADS] = {0}, sum = 0, expected = 0;
    static unsigned char bytes[64000];
    put_pattern("file", sizeof bytes);
    fill_pattern(bytes, sizeof bytes, 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        expected += bytes[i];
    shared_file = FD(open("file", O_RDONLY));
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, reads_in_turn, &sums[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += sums[i];
    }
    YES(sum == expected);
    NUM(lseek(shared_file, 0, SEEK_CUR));
}

static void *appends(void *argument)
{
    char line[32];
    for (int i = 0; i < 200; i++) {
        int length = snprintf(line, sizeof line, "%ld %d\n", (long)argument, i);
        if (write(shared_file, line, (size_t)length) != length)
            bad++;
    }
    return NULL;
}

CASE(thread_append)
{
    pthread_t threads[THREADS];
    char line[64];
    int next[THREADS] = {0}, lines = 0, wrong = 0, thread, number;
    shared_file = FD(open("file", O_CREAT | O_WRONLY | O_APPEND, 0600));
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, appends, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    FILE *stream = fopen("file", "r");
    while (stream && fgets(line, sizeof line, stream)) {
        lines++;
        if (sscanf(line, "%d %d", &thread, &number) != 2 || thread < 0 || thread >= THREADS || next[thread]++ != number)
            wrong++;
    }
    say("bad %d, lines %d, wrong %d", atomic_load(&bad), lines, wrong);
}

static void *reads_until_closed(void *argument)
{
    char byte;
    (void)argument;
    while (!stop) {
        ssize_t got = pread(shared_file, &byte, 1, 0);
        if (got != 1 && !(got == -1 && errno == EBADF))
            bad++;
    }
    return NULL;
}

/* Closed by one thread while another uses it: it has read, or it is told that there is no such descriptor. */
CASE(thread_close_elsewhere)
{
    pthread_t reader;
    put("file", "x");
    shared_file = open("file", O_RDONLY);
    pthread_create(&reader, NULL, reads_until_closed, NULL);
    for (int i = 0; i < 2000; i++) {
        if (close(shared_file) != 0)
            bad++;
        int again = open("file", O_RDONLY);
        if (again != shared_file)
            bad++;
    }
    stop = true;
    pthread_join(reader, NULL);
    NUM(atomic_load(&bad));
    NUM(close(shared_file));
}

static atomic_int signals;

static void on_alarm(int number)
{
    (void)number;
    signals++;
}

static void every_millisecond(int flags)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    struct itimerval often = {{0, 1000}, {0, 1000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

static void no_more_signals(void)
{
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
}

static int work_under_signals(void)
{
    static unsigned char bytes[300000], back[300000];
    int wrong = 0;
    char name[30];
    for (int round = 0; round < 60 || signals < 50; round++) {
        snprintf(name, sizeof name, "file%d", round % 5);
        fill_pattern(bytes, sizeof bytes, (size_t)round);
        int file = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
        wrong += write(file, bytes, sizeof bytes) != sizeof bytes;
        wrong += pread(file, back, sizeof back, 0) != sizeof back;
        wrong += memcmp(bytes, back, sizeof bytes) != 0;
        if (round % 10 == 0)
            wrong += fsync(file) != 0;
        wrong += close(file) != 0;
        wrong += rename(name, "renamed") != 0;
        wrong += unlink("renamed") != 0;
    }
    return wrong;
}

/* A regular file's calls are not interrupted. */
CASE(signal_often)
{
    every_millisecond(0);
    int wrong = work_under_signals();
    no_more_signals();
    NUM(wrong);
    signals = 0;
    every_millisecond(SA_RESTART);
    wrong = work_under_signals();
    no_more_signals();
    NUM(wrong);
}

static int handler_file;
static atomic_int handler_bad;

static void writes_in_handler(int number)
{
    int error = errno;
    char byte = 0;
    (void)number;
    signals++;
    /* All that is async-signal-safe may be called from a handler. */
    if (pwrite(handler_file, "s", 1, 0) != 1 || pread(handler_file, &byte, 1, 0) != 1 || byte != 's')
        handler_bad++;
    int file = open("by handler", O_CREAT | O_WRONLY, 0600);
    if (file < 0 || write(file, "h", 1) != 1 || close(file) != 0)
        handler_bad++;
    struct stat meta;
    if (fstat(handler_file, &meta) != 0)
        handler_bad++;
    errno = error;
}

CASE(signal_handler_calls)
{
    struct sigaction action = {.sa_handler = writes_in_handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 1000}, {0, 1000}};
    handler_file = FD(open("handler", O_CREAT | O_RDWR, 0600));
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    int wrong = work_under_signals();
    no_more_signals();
    NUM(wrong);
    NUM(atomic_load(&handler_bad));
    show("handler");
    show("by handler");
}

static sigjmp_buf out_of_it;
static volatile sig_atomic_t may_jump;

static void jumps(int number)
{
    (void)number;
    if (may_jump) {
        may_jump = 0;
        siglongjmp(out_of_it, 1);
    }
}

/* A handler that does not return: what it has left is not in anybody's way. */
CASE(signal_jumps)
{
    static char bytes[200000];
    struct sigaction action = {.sa_handler = jumps};
    volatile int jumped = 0, wrong = 0;
    struct itimerval soon = {{0, 0}, {0, 300}};
    sigaction(SIGALRM, &action, NULL);
    volatile int file = open("file", O_CREAT | O_RDWR, 0600);
    while (jumped < 100) {
        if (sigsetjmp(out_of_it, 1) != 0) {
            jumped++;
            wrong += pwrite(file, "x", 1, 5) != 1;
            continue;
        }
        may_jump = 1;
        setitimer(ITIMER_REAL, &soon, NULL);
        for (;;) {
            wrong += pwrite(file, bytes, sizeof bytes, 0) != sizeof bytes;
            wrong += pread(file, bytes, sizeof bytes, 0) != sizeof bytes;
        }
    }
    wrong += fsync(file) != 0;
    say("wrong %d", wrong);
    NUM(lseek(file, 0, SEEK_END));
    NUM(close(file));
    NUM(unlink("file"));
}

static volatile sig_atomic_t seen, seen_value, seen_blocked, seen_pid;

static void plain(int number)
{
    seen = number;
}

static void with_facts(int number, siginfo_t *facts, void *context)
{
    sigset_t now;
    (void)context;
    seen = number;
    seen_value = facts->si_value.sival_int;
    seen_pid = facts->si_pid == getpid();
    sigprocmask(SIG_SETMASK, NULL, &now);
    seen_blocked = sigismember(&now, number) * 2 + sigismember(&now, SIGUSR2);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* What a program asks for is what it gets, and what it is told later. */
CASE(signal_ways)
{
    struct sigaction action = {.sa_sigaction = with_facts, .sa_flags = SA_SIGINFO}, old;
    union sigval value = {.sival_int = 42};
    sigaddset(&action.sa_mask, SIGUSR2);
    NUM(sigaction(SIGUSR1, &action, &old));
    YES(old.sa_handler == SIG_DFL);
    NUM(sigqueue(getpid(), SIGUSR1, value));
    say("seen %d, value %d, blocked %d, by itself %d", seen == SIGUSR1, seen_value, seen_blocked, seen_pid);
    NUM(sigaction(SIGUSR1, NULL, &old));
    YES(old.sa_sigaction == with_facts && (old.sa_flags & SA_SIGINFO) && sigismember(&old.sa_mask, SIGUSR2) == 1);
    YES((void *)signal(SIGUSR1, plain) == (void *)with_facts);
    YES(signal(SIGUSR1, SIG_IGN) == plain);
    NUM(raise(SIGUSR1));
    YES(signal(SIGUSR1, plain) == SIG_IGN);
    NUM(sigaction(SIGUSR1, NULL, &old));
    YES(old.sa_handler == plain && (old.sa_flags & SA_RESTART) && !(old.sa_flags & SA_SIGINFO));
    NUM(siginterrupt(SIGUSR1, 1));
    NUM(sigaction(SIGUSR1, NULL, &old));
    YES(old.sa_handler == plain && !(old.sa_flags & SA_RESTART));
    NUM(siginterrupt(SIGUSR1, 0));
    action.sa_flags = SA_RESETHAND | SA_NODEFER;
    action.sa_handler = plain;
    NUM(sigaction(SIGUSR2, &action, NULL));
    NUM(sigaction(SIGUSR2, NULL, &old));
    YES(old.sa_handler == plain && (old.sa_flags & SA_RESETHAND) && (old.sa_flags & SA_NODEFER));
    seen = 0;
    NUM(raise(SIGUSR2));
    YES(seen == SIGUSR2);
    NUM(sigaction(SIGUSR2, NULL, &old));
    YES(old.sa_handler == SIG_DFL);
    NUM(sigaction(SIGKILL, &action, NULL));
    NUM(sigaction(0, &action, NULL));
    NUM(sigaction(65, &action, NULL));
    YES(signal(99, plain) == SIG_ERR);
    pid_t pid = fork();
    if (pid == 0) {
        seen = 0;
        raise(SIGUSR1);
        _exit(seen == SIGUSR1 ? 7 : 8);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    NUM(WEXITSTATUS(status));
}

static void *locks_and_writes(void *argument)
{
    FILE *stream = argument;
    for (int i = 0; i < 500; i++)
        if (fprintf(stream, "a line of one thread %d\n", i) < 0)
            bad++;
    return NULL;
}

CASE(thread_stream)
{
    pthread_t threads[THREADS];
    char line[100];
    int lines = 0, wrong = 0;
    FILE *stream = PTR(fopen("file", "w+"));
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, locks_and_writes, stream);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    rewind(stream);
    while (fgets(line, sizeof line, stream)) {
        lines++;
        wrong += strncmp(line, "a line of one thread ", 21) != 0;
    }
    NUM(fclose(stream));
    say("bad %d, lines %d, wrong %d", atomic_load(&bad), lines, wrong);
}

static void *forks(void *argument)
{
    (void)argument;
    for (int i = 0; i < 10; i++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) {
            int file = open("forked", O_CREAT | O_WRONLY, 0600);
            _exit(file >= 0 && write(file, "f", 1) == 1 ? 0 : 1);
        }
        waitpid(pid, &status, 0);
        if (status != 0)
            bad++;
    }
    return NULL;
}

/* fork while other threads are in the middle of calls. */
CASE(thread_fork)
{
    pthread_t threads[THREADS], forker;
    shared_file = FD(open("shared", O_CREAT | O_RDWR, 0644));
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, i % 2 ? at_places : opens_and_closes, (void *)i);
    pthread_create(&forker, NULL, forks, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(forker, NULL);
    NUM(atomic_load(&bad));
    show("forked");
}

static void *changes_directory(void *argument)
{
    (void)argument;
    NUM(chdir("folder"));
    return NULL;
}

static void *canceled(void *argument)
{
    char byte;
    (void)argument;
    for (;;)
        pread(shared_file, &byte, 1, 0);
    return NULL;
}

static int cleaned;
static int ends[2];

static void cleans(void *argument)
{
    (void)argument;
    cleaned++;
}

static void *waits_for_a_pipe(void *argument)
{
    char byte;
    (void)argument;
    pthread_cleanup_push(cleans, NULL);
    read(ends[0], &byte, 1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *waits_for_a_lock(void *argument)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    (void)argument;
    pthread_cleanup_push(cleans, NULL);
    fcntl(shared_file, F_SETLKW, &all);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *writes_much(void *argument)
{
    static char bytes[100000];
    (void)argument;
    pthread_cleanup_push(cleans, NULL);
    for (;;) {
        pwrite(shared_file, bytes, sizeof bytes, 0);
        fsync(shared_file);
        close(open("other", O_CREAT | O_WRONLY, 0600));
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void *cannot_be(void *argument)
{
    char byte;
    int before;
    (void)argument;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    for (int i = 0; i < 1000; i++)
        pread(shared_file, &byte, 1, 0);
    return argument;
}

/* Canceled where it waits, and in the middle of its work: what it had does not stand in the way of others. */
CASE(thread_canceled)
{
    void *(*const all[])(void *) = {waits_for_a_pipe, waits_for_a_lock, writes_much, cannot_be};
    shared_file = FD(open("shared", O_CREAT | O_RDWR, 0600));
    put("shared", "some bytes");
    NUM(pipe(ends));
    pid_t pid = fork();
    if (pid == 0) {
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        fcntl(shared_file, F_SETLK, &whole);
        write(ends[1], "l", 1);
        pause();
        _exit(0);
    }
    char byte;
    NUM(read(ends[0], &byte, 1));
    put("other", "");
    for (int round = 0; round < 3; round++)
        for (int way = 0; way < 4; way++) {
            pthread_t thread;
            void *result = NULL;
            pthread_create(&thread, NULL, all[way], &cleaned);
            usleep(3000);
            pthread_cancel(thread);
            pthread_join(thread, &result);
            say("way %d: canceled %d, cleaned %d", way, result == PTHREAD_CANCELED, cleaned);
        }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    NUM(pwrite(shared_file, "w", 1, 0));
    NUM(close(shared_file));
    NUM(unlink("other"));
}

CASE(thread_others)
{
    pthread_t thread;
    void *result;
    NUM(mkdir("folder", 0755));
    put("folder/file", "of all threads");
    pthread_create(&thread, NULL, changes_directory, NULL);
    pthread_join(thread, NULL);
    show("file");
    shared_file = open("file", O_RDONLY);
    pthread_create(&thread, NULL, canceled, NULL);
    usleep(20000);
    NUM(pthread_cancel(thread));
    NUM(pthread_join(thread, &result));
    YES(result == PTHREAD_CANCELED);
    show("file");
}

/*
 * What one program does while others come, and at its end:
 *
 *   sharing map FILE                 stores to a mapping and ends, without giving it back
 *   sharing map-exec FILE PROGRAM... the same, and becomes another program
 *   sharing map-wait FILE READY GO   stores "one", makes READY, and says what is there at GO
 *   sharing map-store FILE           stores "two" to a mapping of another program's file
 *   sharing closing FILE             closes files while a thread syncs, and makes processes
 *   sharing ending FILE              ends while threads are in the middle of calls
 *   sharing passing FILE             gives a child a descriptor that both use on
 *   sharing lost FILE READY GO       writes, and says after GO what of it is reported as lost
 *   sharing found FILE READY GO      the same, where fsync is the first call after GO
 *   sharing helper FILE              ends with a mapping and a child that waits for its end
 *   sharing namespace FILE           has a child in another PID namespace
 *   sharing users FOLDER             becomes nobody by its thread's system calls, goes back, and for good
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 16384 };

static void need(int is_right, const char *what)
{
    if (!is_right) {
        perror(what);
        exit(1);
    }
}

static char *map(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT, 0644);
    need(file >= 0 && ftruncate(file, BYTES) == 0, path);
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    need(memory != MAP_FAILED, "mmap");
    close(file);
    return memory;
}

static void *syncs(void *path)
{
    int file = open(path, O_RDWR | O_CREAT, 0644);
    need(file >= 0, "open");
    for (int i = 0;; i++) {
        need(pwrite(file, &i, sizeof i, 0) == sizeof i, "pwrite");
        need(fsync(file) == 0, "fsync");
    }
    return NULL;
}

static void *opens(void *path)
{
    for (;;) {
        int file = open(path, O_RDONLY);
        need(file >= 0, "open");
        need(close(file) == 0, "close");
    }
    return NULL;
}

static void closing(char *path)
{
    pthread_t thread;
    int made = open(path, O_RDWR | O_CREAT, 0644);
    /* The thread may begin later than the first child. */
    need(made >= 0 && close(made) == 0, "create");
    pthread_create(&thread, NULL, syncs, path);
    for (int round = 0; round < 20; round++) {
        char name[40];
        for (int i = 0; i < 20; i++) {
            snprintf(name, sizeof name, "closing%d", i);
            int file = open(name, O_RDWR | O_CREAT, 0644);
            need(write(file, "x", 1) == 1 && close(file) == 0 && unlink(name) == 0, name);
        }
        pid_t child = fork();
        if (child == 0)
            _exit(access(path, R_OK) == 0 ? 0 : errno);
        int status = -1;
        need(waitpid(child, &status, 0) == child, "waitpid");
        if (status != 0) {
            fprintf(stderr, "the child of round %d ended with %#x: its access was refused with %s\n", round, status,
                    WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "nothing");
            exit(1);
        }
    }
    puts("closed");
}

static void pass(int socket, int file)
{
    char byte = 'f', room[CMSG_SPACE(sizeof file)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof file)};
    memcpy(CMSG_DATA(head), &file, sizeof file);
    need(sendmsg(socket, &message, 0) == 1, "sendmsg");
}

static int receive(int socket)
{
    int file;
    char byte, room[CMSG_SPACE(sizeof file)];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    need(recvmsg(socket, &message, 0) == 1, "recvmsg");
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return file;
}

static void passing(const char *path)
{
    int ends[2], status = -1;
    char byte;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    pid_t child = fork();
    close(ends[child == 0 ? 0 : 1]);
    if (child == 0) {
        int file = receive(ends[1]);
        need(write(file, "child ", 6) == 6, "write of the child");
        need(write(ends[1], "w", 1) == 1 && read(ends[1], &byte, 1) == 1, "tell");
        need(write(file, "child", 5) == 5 && close(file) == 0, "write of the child, again");
        _exit(0);
    }
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    need(write(file, "parent ", 7) == 7, "write");
    pass(ends[0], file);
    need(read(ends[0], &byte, 1) == 1, "wait");
    need(write(file, "parent ", 7) == 7, "write of the parent, again");
    need(write(ends[0], "w", 1) == 1, "tell");
    need(waitpid(child, &status, 0) == child && status == 0, "the child");
    char bytes[100] = "";
    need(pread(file, bytes, sizeof bytes - 1, 0) > 0, "pread");
    puts(bytes);
}

static const char *of(int result)
{
    return result == 0 ? "0" : strerrorname_np(errno);
}

/* Each open file says once that a server was killed that may have had something of it. */
static void lost(char **words)
{
    const int flags = O_RDWR | O_CREAT;
    int file = open(words[2], flags, 0644), same = dup(file), other = open(words[2], O_RDWR);
    int durable = open(words[2], O_RDWR | O_DSYNC), ends[2], begun[2], status;
    char byte;
    need(write(file, "old", 3) == 3 && fsync(file) == 0 && pwrite(file, "new", 3, 0) == 3, words[2]);
    need(pipe(ends) == 0 && pipe(begun) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        need(write(begun[1], "b", 1) == 1 && read(ends[0], &byte, 1) == 0, "wait");
        /* Its parent has been told of this one. */
        while (access(".", F_OK) != 0)
            usleep(1000);
        _exit(fsync(file) == 0 ? 0 : 1);
    }
    close(begun[1]);
    /* The child has a connection of its own before the server is killed. */
    need(read(begun[0], &byte, 1) == 1, "the child");
    close(open(words[3], O_CREAT | O_WRONLY, 0644));
    while (access(words[4], F_OK) != 0)
        usleep(1000);
    /* Another call is the first one that finds it out. */
    struct stat found;
    while (stat(".", &found) != 0)
        usleep(1000);
    printf("%s", of(fsync(file)));
    printf(" %s", of(fsync(same)));
    printf(" %s", of(fdatasync(other)));
    printf(" %s", of(fdatasync(other)));
    printf(" %s", of(pwrite(durable, "x", 1, 9) == 1 ? 0 : -1));
    printf(" %s", of(pwrite(durable, "x", 1, 9) == 1 ? 0 : -1));
    printf(" %s", of(syncfs(other)));
    printf(" %s", of(syncfs(other)));
    int later = open(words[2], O_RDWR);
    printf(" %s", of(fsync(later)));
    close(ends[1]);
    need(waitpid(child, &status, 0) == child, "waitpid");
    printf(" %d\n", WEXITSTATUS(status));
}

/* The call that finds out that the server was killed has reported the loss. */
static void found(char **words)
{
    int file = open(words[2], O_RDWR | O_CREAT, 0644);
    need(write(file, "old", 3) == 3 && fsync(file) == 0 && pwrite(file, "new", 3, 0) == 3, words[2]);
    close(open(words[3], O_CREAT | O_WRONLY, 0644));
    while (access(words[4], F_OK) != 0)
        usleep(1000);
    printf("%s", of(fsync(file)));
    printf(" %s\n", of(fsync(file)));
}

static void helper(const char *path)
{
    int ends[2], file = open(path, O_RDWR | O_CREAT, 0644);
    char byte;
    strcpy(map(path), "stored");
    need(flock(file, LOCK_EX) == 0 && pipe(ends) == 0, "flock");
    if (fork() == 0) {
        /* Its own, and not the one that its parent has locked. */
        int again = open(path, O_RDWR);
        close(ends[1]);
        close(file);
        need(flock(again, LOCK_EX) == 0 && read(ends[0], &byte, 1) == 0, "wait");
        need(pwrite(again, "after", 5, 7000) == 5, "pwrite");
        _exit(0);
    }
    puts("ended");
}

static void namespace(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT, 0644), status = -1;
    need(unshare(CLONE_NEWPID) == 0, "unshare");
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
        int again = open(path, O_RDWR);
        need(again >= 0 && pwrite(file, "child", 5, 0) == 5, "the child");
        pid_t grandchild = fork();
        if (grandchild == 0)
            execlp("cat", "cat", path, NULL);
        need(waitpid(grandchild, &status, 0) == grandchild && status == 0, "cat");
        _exit(0);
    }
    need(waitpid(child, &status, 0) == child && status == 0, "waitpid");
    file = open(path, O_RDWR);
    need(file >= 0 && pwrite(file, "parent", 6, 5) == 6, "the parent");
}

/* Whether root's file opens, and whose a new one is. */
static void as_now(const char *name)
{
    struct stat found;
    int file = open("secret", O_RDONLY);
    printf("%s ", file < 0 ? strerror(errno) : "opened");
    if (file >= 0)
        close(file);
    file = open(name, O_CREAT | O_RDWR, 0644);
    need(file >= 0 && fstat(file, &found) == 0, name);
    printf("%d\n", (int)found.st_uid);
    close(file);
    unlink(name);
}

/* Linux keeps users by thread: a server such as Samba changes those of one, and back. */
static void users(const char *folder)
{
    enum { NOBODY = 65534 };
    need(mkdir(folder, 0755) == 0 && chmod(folder, 0777) == 0 && chdir(folder) == 0, folder);
    close(open("secret", O_CREAT | O_RDWR, 0600));
    need(syscall(SYS_setresgid, -1, NOBODY, -1) == 0, "setresgid");
    need(syscall(SYS_setgroups, 0, NULL) == 0, "setgroups");
    need(syscall(SYS_setresuid, -1, NOBODY, -1) == 0, "setresuid");
    as_now("one");
    need(syscall(SYS_setresuid, -1, 0, -1) == 0, "setresuid");
    as_now("two");
    need(syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0, "setresuid");
    as_now("three");
    need(setuid(0) < 0, "root again");
    as_now("four");
}

int main(int count, char **words)
{
    need(count > 2, "usage");
    const char *what = words[1];
    if (strcmp(what, "map") == 0) {
        strcpy(map(words[2]) + 5000, "stored");
    } else if (strcmp(what, "map-exec") == 0) {
        strcpy(map(words[2]) + 5000, "stored");
        execvp(words[3], words + 3);
        need(0, words[3]);
    } else if (strcmp(what, "map-wait") == 0) {
        char *memory = map(words[2]);
        strcpy(memory + 5000, "one");
        close(open(words[3], O_CREAT | O_WRONLY, 0644));
        while (access(words[4], F_OK) != 0)
            usleep(1000);
        puts(memory + 5000);
        puts(memory + 6000);
    } else if (strcmp(what, "map-store") == 0) {
        char *memory = map(words[2]);
        puts(memory + 5000);
        strcpy(memory + 6000, "two");
    } else if (strcmp(what, "closing") == 0) {
        closing(words[2]);
    } else if (strcmp(what, "ending") == 0) {
        pthread_t thread;
        close(open(words[2], O_CREAT | O_WRONLY, 0644));
        pthread_create(&thread, NULL, syncs, words[2]);
        for (int i = 0; i < 3; i++)
            pthread_create(&thread, NULL, opens, words[2]);
        usleep(3000);
        puts("ended");
    } else if (strcmp(what, "passing") == 0) {
        passing(words[2]);
    } else if (strcmp(what, "lost") == 0) {
        lost(words);
    } else if (strcmp(what, "found") == 0) {
        found(words);
    } else if (strcmp(what, "helper") == 0) {
        helper(words[2]);
    } else if (strcmp(what, "namespace") == 0) {
        namespace(words[2]);
    } else if (strcmp(what, "users") == 0) {
        users(words[2]);
    } else {
        need(0, what);
    }
    return 0;
}

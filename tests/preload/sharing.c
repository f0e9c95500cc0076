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
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
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
    } else {
        need(0, what);
    }
    return 0;
}

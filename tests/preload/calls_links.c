/* Other names of what is in the folder: those of descriptors, links from outside, other spellings; and what
 * the kernel's own paths are beside them. */
#include "calls.h"

#include <dirent.h>
#include <ftw.h>
#include <spawn.h>
#include <sys/ipc.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <utime.h>

extern char **environ;

/* How often memory was asked for. */
static _Thread_local unsigned long taken;
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
    taken++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    taken++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    taken++;
    return __libc_realloc(old, bytes);
}

static const char *at(const char *folder, const char *name)
{
    static char paths[8][2 * PATH_MAX];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, 2 * PATH_MAX, "%s/%s", folder, name);
    return path;
}

static const char *of_process(const char *who, const char *name, int file)
{
    static char paths[8][64];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, 64, "/proc/%s/%s/%d", who, name, file);
    return path;
}

/* What is read of a file opened anew. */
static void read_anew(const char *what, const char *path, int flags)
{
    char text[32] = "";
    int file = open(path, flags);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    say("%s: %zd '%s' %s", what, got, text, got < 0 ? error_name(errno) : "");
    close(file);
}

CASE(link_standard_names)
{
    char pid[20], target[64] = "";
    put("input", "what is read");
    int input = FD(open("input", O_RDONLY));
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    read_anew("self", of_process("self", "fd", input), O_RDONLY);
    read_anew("thread-self", of_process("thread-self", "fd", input), O_RDONLY);
    read_anew("by number", of_process(pid, "fd", input), O_RDONLY);
    read_anew("by task", of_process("self", "task/../fd", input), O_RDONLY);
    int folder = FD(open("/proc/self/fd", O_RDONLY | O_DIRECTORY));
    snprintf(target, sizeof target, "%d", input);
    int again = FD(openat(folder, target, O_RDONLY));
    NUM(read(again, target, 4));
    struct stat meta;
    NUM(lstat(of_process("self", "fd", input), &meta));
    YES(S_ISLNK(meta.st_mode));
    NUM(stat(of_process(pid, "fd", input), &meta));
    YES(S_ISREG(meta.st_mode) && meta.st_size == 12);
    FD(open(of_process("self", "fd", input), O_RDONLY | O_NOFOLLOW));
    if (in_child()) {
        put("errors", "old");
        int errors = open("errors", O_WRONLY | O_APPEND), kept = dup(2);
        dup2(input, 0);
        dup2(errors, 2);
        read_anew("stdin", "/dev/stdin", O_RDONLY);
        memset(target, 0, sizeof target);
        NUM(readlink("/dev/stdin", target, sizeof target - 1));
        STR(target);
        NUM(stat("/dev/stdin", &meta));
        YES(meta.st_size == 12);
        NUM(access("/dev/stdin", R_OK));
        int file = open("/dev/stderr", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        NUM(write(file, "new", 3));
        FILE *stream = fopen("/dev/stderr", "a");
        YES(stream != NULL && fputs(" more", stream) >= 0 && fclose(stream) == 0);
        dup2(kept, 2);
        show("errors");
        leave_child(0);
    }
    join();
}

CASE(link_made_by_number)
{
    put("file", "before");
    int file = FD(open("file", O_RDWR));
    const char *path = of_process("self", "fd", file), *other = at("/dev/fd", strrchr(path, '/') + 1);
    FD(open(path, O_CREAT | O_EXCL | O_RDWR, 0600));
    int again = FD(open(other, O_CREAT | O_WRONLY, 0600));
    NUM(write(again, "BE", 2));
    NUM(close(again));
    show("file");
    FILE *stream = PTR(fopen(other, "w"));
    YES(stream != NULL && fputs("by a stream", stream) >= 0 && fclose(stream) == 0);
    show("file");
    NUM(close(creat(path, 0600)) == 0);
    show("file");
}

CASE(link_from_outside)
{
    char buffer[PATH_MAX];
    struct stat meta;
    struct statfs usage;
    mkdir("folder", 0755);
    put("folder/file", "inside");
    const char *folder = at(outside, "to_folder"), *file = at(outside, "to_file");
    NUM(symlink(at(case_folder, "folder"), folder));
    NUM(symlink(at(case_folder, "folder/file"), file));
    NUM(access(folder, X_OK));
    NUM(access(file, R_OK));
    YES(realpath(folder, buffer) != NULL && strcmp(buffer, at(case_folder, "folder")) == 0);
    YES(realpath(file, buffer) != NULL && strcmp(buffer, at(case_folder, "folder/file")) == 0);
    NUM(chmod(file, 0640));
    NUM(truncate(file, 4));
    NUM(utimensat(AT_FDCWD, file, (struct timespec[]){{1000, 0}, {2000, 0}}, 0));
    NUM(stat("folder/file", &meta));
    say_stat("changed", &meta);
    NUM(meta.st_mtime);
    NUM(setxattr(file, "user.one", "1", 1, 0));
    NUM(getxattr("folder/file", "user.one", buffer, 9));
    NUM(lgetxattr(file, "user.one", buffer, 9));
    NUM(statfs(folder, &usage));
    DIR *dir = PTR(opendir(folder));
    closedir(dir);
    NUM(chdir(folder));
    YES(getcwd(buffer, sizeof buffer) != NULL && strcmp(buffer, at(case_folder, "folder")) == 0);
    show("file");
    NUM(lstat(folder, &meta));
    YES(S_ISLNK(meta.st_mode));
    NUM(lchown(file, getuid(), getgid()));
    NUM(unlink(file));
    NUM(unlink(folder));
    show_names(".");
    /* A link to a link, and one to what is not there. */
    NUM(symlink(at(case_folder, "folder/none"), at(outside, "second")));
    NUM(symlink("second", at(outside, "first")));
    NUM(access(at(outside, "first"), F_OK));
    put(at(outside, "first"), "made");
    show("none");
    NUM(mkdir(at(outside, "first/x"), 0700));
    FD(open(at(outside, "first"), O_CREAT | O_EXCL | O_WRONLY, 0600));
}

CASE(link_other_spellings)
{
    struct stat one, two;
    char buffer[PATH_MAX], parent[PATH_MAX];
    put("file", "inside");
    snprintf(parent, sizeof parent, "%s", top_folder);
    char *name = strrchr(parent, '/');
    *name++ = 0;
    NUM(symlink(top_folder, at(outside, "top")));
    NUM(symlink(parent, at(outside, "above")));
    char by_link[PATH_MAX + 8], by_parent[2 * PATH_MAX];
    snprintf(by_link, sizeof by_link, "%s/top", outside);
    snprintf(by_parent, sizeof by_parent, "%s/above/%s", outside, name);
    const char *spellings[] = {by_link, by_parent};
    NUM(stat(top_folder, &one));
    for (size_t i = 0; i < 2; i++) {
        NUM(stat(spellings[i], &two));
        YES(one.st_dev == two.st_dev && one.st_ino == two.st_ino);
        struct statx all;
        NUM(statx(AT_FDCWD, spellings[i], 0, STATX_BASIC_STATS, &all));
        YES(all.stx_ino == one.st_ino);
        bool is_there = false;
        DIR *dir = PTR(opendir(spellings[i]));
        for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
            is_there |= strcmp(entry->d_name, "link_other_spellings") == 0;
        YES(is_there);
        NUM(closedir(dir));
        int folder = FD(open(spellings[i], O_RDONLY));
        NUM(fstat(folder, &two));
        YES(one.st_ino == two.st_ino);
        NUM(faccessat(folder, "link_other_spellings/file", R_OK, 0));
        NUM(close(folder));
        NUM(access(at(spellings[i], "link_other_spellings/file"), R_OK));
        YES(realpath(at(spellings[i], "link_other_spellings"), buffer) != NULL && strcmp(buffer, case_folder) == 0);
        NUM(mkdir(at(spellings[i], "link_other_spellings/made"), 0755));
        NUM(rmdir(at(case_folder, "made")));
        NUM(chdir(spellings[i]));
        YES(getcwd(buffer, sizeof buffer) != NULL && strcmp(buffer, top_folder) == 0);
        NUM(access("link_other_spellings/file", R_OK));
    }
}

CASE(link_missing_outside)
{
    struct stat meta;
    struct statx all;
    const char *none = at(outside, "none"), *below = at(outside, "none/below");
    NUM(statx(AT_FDCWD, none, 0, STATX_BASIC_STATS, &all));
    NUM(statx(AT_FDCWD, below, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &all));
    NUM(stat(none, &meta));
    NUM(lstat(below, &meta));
    NUM(access(none, F_OK));
    FD(open(none, O_RDONLY));
    NUM(chdir(none));
    NUM(unlink(none));
    NUM(chmod(none, 0600));
    NUM(getxattr(none, "user.one", NULL, 0));
    PTR(opendir(none));
    PTR(realpath(none, NULL));
    NUM(syscall(SYS_statx, AT_FDCWD, none, 0, STATX_BASIC_STATS, &all));
}

/* What a handler of a signal may call takes no memory. */
CASE(link_without_memory)
{
    struct stat meta;
    char file[PATH_MAX], none[PATH_MAX], other[PATH_MAX];
    snprintf(file, sizeof file, "%s/file", outside);
    snprintf(none, sizeof none, "%s/none", outside);
    snprintf(other, sizeof other, "%s/../%s/./other", outside, strrchr(outside, '/') + 1);
    NUM(chdir(outside));
    put(file, "x");
    unsigned long before = taken;
    int made = open("./made", O_CREAT | O_WRONLY, 0600);
    int results = (stat(file, &meta) == 0) + (access(file, R_OK) == 0) + (rename(file, other) == 0)
                  + (link(other, file) == 0) + (unlink(other) == 0) + (unlink(none) != 0) + (stat(none, &meta) != 0)
                  + (chmod("../link_without_memory/made", 0644) == 0) + (unlink("made") == 0) + (rmdir("./none") != 0)
                  + (mkdir("new", 0700) == 0) + (rmdir("new") == 0) + (made >= 0);
    unsigned long after = taken;
    NUM(results);
    NUM(after - before);
}

static void say_name(const char *what, int file)
{
    char path[64], target[PATH_MAX] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    ssize_t got = readlink(path, target, sizeof target - 1);
    size_t length = strlen(case_folder);
    say("%s: %s", what, got < 0 ? error_name(errno) : strncmp(target, case_folder, length) == 0 ? target + length : target);
}

CASE(link_name_of_open_file)
{
    mkdir("a", 0755);
    mkdir("b", 0755);
    put("a/file", "x");
    NUM(symlink("a", "short"));
    int folder = FD(open("a", O_RDONLY)), file = FD(openat(folder, "file", O_RDONLY));
    int other = FD(open("short/../short/./file", O_RDONLY));
    say_name("opened in a folder", file);
    say_name("opened by a link", other);
    NUM(rename("a/file", "b/moved"));
    say_name("moved", file);
    NUM(rename("b", "c"));
    say_name("its folder moved", file);
    say_name("a folder", folder);
    NUM(unlink("c/moved"));
    NUM(rmdir("a"));
    int last = FD(open("last", O_CREAT | O_RDWR, 0600));
    NUM(unlink("last"));
    say_name("removed", last);
}

CASE(link_realpath_many)
{
    char buffer[PATH_MAX];
    put("file", "x");
    NUM(symlink("file", "one"));
    NUM(symlink(at(case_folder, "one"), "two"));
    int same = 0;
    for (int i = 0; i < 100; i++)
        same += realpath("two", buffer) != NULL && strcmp(buffer, at(case_folder, "file")) == 0;
    NUM(same);
}

/* Programs in the folder by posix_spawn: what they were started from is closed. */
CASE(link_spawned_program)
{
    put("script", "#!/bin/sh\nexit $#\n");
    NUM(chmod("script", 0755));
    if (in_child()) {
        int status = 0, bad = 0;
        for (int i = 0; i < 8; i++) {
            pid_t pid;
            if (posix_spawn(&pid, "./script", NULL, NULL, (char *[]){"script", "1", "2", NULL}, environ) != 0
                || waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 2)
                bad++;
        }
        NUM(bad);
        int open_files = 0;
        for (int i = 0; i < 1024; i++)
            open_files += fcntl(i, F_GETFD) >= 0;
        posix_spawn(&(pid_t){0}, "./script", NULL, NULL, (char *[]){"script", NULL}, environ);
        wait(&status);
        for (int i = 0; i < 1024; i++)
            open_files -= fcntl(i, F_GETFD) >= 0;
        NUM(open_files);
        leave_child(0);
    }
    join();
}

CASE(link_calls_by_number)
{
    char text[PATH_MAX] = "";
    struct stat meta;
    mkdir("folder", 0755);
    put("folder/file", "x");
    NUM(symlink("file", "folder/link"));
    NUM(chdir("folder"));
    YES(syscall(SYS_getcwd, text, sizeof text) == (long)strlen(case_folder) + 8);
    STR(strrchr(text, '/'));
    NUM(syscall(SYS_getcwd, text, 3));
    memset(text, 0, sizeof text);
    NUM(syscall(SYS_readlink, "link", text, sizeof text));
    STR(text);
    NUM(syscall(SYS_mknod, "plain", S_IFREG | 0600, 0));
    NUM(syscall(SYS_utime, "plain", &(struct utimbuf){1, 2}));
    NUM(stat("plain", &meta));
    NUM(meta.st_mtime);
    NUM(syscall(SYS_utimes, "plain", NULL));
    NUM(syscall(SYS_futimesat, AT_FDCWD, "plain", NULL));
    NUM(syscall(SYS_chown, "plain", getuid(), getgid()));
    NUM(syscall(SYS_lchown, "link", getuid(), getgid()));
    NUM(syscall(SYS_setxattr, "plain", "user.a", "12", 2, 0));
    NUM(syscall(SYS_getxattr, "plain", "user.a", text, 10));
    NUM(syscall(SYS_lgetxattr, "plain", "user.a", text, 10));
    NUM(syscall(SYS_listxattr, "plain", text, 100));
    NUM(syscall(SYS_removexattr, "plain", "user.a"));
    int file = FD(open("plain", O_RDWR));
    NUM(syscall(SYS_fsetxattr, file, "user.b", "123", 3, 0));
    NUM(syscall(SYS_fgetxattr, file, "user.b", text, 10));
    NUM(syscall(SYS_flistxattr, file, text, 100));
    NUM(syscall(SYS_fremovexattr, file, "user.b"));
    NUM(syscall(SYS_fadvise64, file, 0, 0, POSIX_FADV_WILLNEED));
    NUM(syscall(SYS_fadvise64, file, 0, 0, 77));
    NUM(syscall(SYS_readahead, file, 0, 4096));
    mode_t before = (mode_t)syscall(SYS_umask, 077);
    NUM(close(open("masked", O_CREAT | O_WRONLY, 0666)));
    show_stat("masked");
    NUM(syscall(SYS_umask, before));
    int folder = FD(open(".", O_RDONLY | O_DIRECTORY));
    put("script", "#!/bin/sh\nexit 7\n");
    NUM(chmod("script", 0755));
    int script = FD(open("script", O_RDONLY));
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            char *words[] = {"script", NULL};
            if (i == 0)
                syscall(SYS_execve, "script", words, environ);
            else if (i == 1)
                syscall(SYS_execveat, folder, "script", words, environ, 0);
            else
                execveat(script, "", words, environ, AT_EMPTY_PATH);
            _exit(99);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        NUM(WEXITSTATUS(status));
    }
}

CASE(link_empty_paths)
{
    put("file", "x");
    NUM(chmod("file", 0400));
    int file = FD(open("file", O_RDONLY)), path = FD(open("file", O_PATH));
    NUM(faccessat(file, "", R_OK, AT_EMPTY_PATH));
    NUM(faccessat(path, "", F_OK, AT_EMPTY_PATH));
    NUM(faccessat(file, "", X_OK, AT_EMPTY_PATH));
    NUM(fchownat(path, "", getuid(), getgid(), AT_EMPTY_PATH));
    NUM(fchown(path, getuid(), getgid()));
    struct stat meta;
    NUM(stat("file", &meta));
    YES(ftok("file", 5) == (key_t)((meta.st_ino & 0xffff) | (meta.st_dev & 0xff) << 16 | 5U << 24));
    NUM(ftok("none", 5));
}

CASE(link_sockets)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket"}, told;
    socklen_t length = sizeof told;
    char text[10] = "";
    int server = FD(socket(AF_UNIX, SOCK_DGRAM, 0)), client = FD(socket(AF_UNIX, SOCK_DGRAM, 0));
    NUM(bind(server, (struct sockaddr *)&name, sizeof name));
    memset(&told, 0, sizeof told);
    NUM(getsockname(server, (struct sockaddr *)&told, &length));
    STR(told.sun_path);
    NUM(length);
    NUM(sendto(client, "one", 3, 0, (struct sockaddr *)&name, sizeof name));
    struct iovec part = {"two", 3};
    struct msghdr message = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1};
    NUM(sendmsg(client, &message, 0));
    NUM(recv(server, text, 9, 0));
    STR(text);
    NUM(recv(server, text, 9, 0));
    STR(text);
    NUM(syscall(SYS_connect, client, &name, sizeof name));
    length = sizeof told;
    memset(&told, 0, sizeof told);
    NUM(getpeername(client, (struct sockaddr *)&told, &length));
    STR(told.sun_path);
}

static int greater_than(const struct dirent **one, const struct dirent **two)
{
    return strcmp((*one)->d_name, (*two)->d_name) > 0;
}

/* A comparison that is not one: the list has all of them. */
CASE(link_scandir_order)
{
    char name[8];
    struct dirent **list = NULL;
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "%02d", i * 7 % 40);
        put(name, "x");
    }
    int count = (int)NUM(scandir(".", &list, NULL, greater_than)), sum = 0;
    for (int i = 0; i < count; i++) {
        sum += atoi(list[i]->d_name);
        free(list[i]);
    }
    free(list);
    NUM(sum);
}

static int found, deepest, wrong_place;

static int count_visit(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    struct stat here;
    const char *name = path + walk->base;
    found++;
    if (walk->level > deepest)
        deepest = walk->level;
    /* In its folder, or in the folder itself after what is in it. */
    if (type != FTW_DP && (lstat(name, &here) != 0 || here.st_ino != stat->st_ino))
        wrong_place++;
    return 0;
}

CASE(link_walks)
{
    char path[PATH_MAX] = "deep";
    for (int i = 0; i < 1100; i++) {
        mkdir(path, 0755);
        strcat(path, "/d");
    }
    int flags[] = {FTW_PHYS, FTW_PHYS | FTW_DEPTH, FTW_PHYS | FTW_CHDIR, FTW_PHYS | FTW_CHDIR | FTW_DEPTH, FTW_MOUNT};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        found = deepest = wrong_place = 0;
        NUM(nftw("deep", count_visit, 20, flags[i]));
        NUM(found);
        NUM(deepest);
        if (flags[i] & FTW_CHDIR)
            NUM(wrong_place);
        NUM(access("deep", F_OK));
    }
    NUM(nftw("", count_visit, 20, 0));
    NUM(nftw("deep", count_visit, 20, 0x4000));
    /* From above the folder, with what is mounted left out, and the kernel's own. */
    found = 0;
    mkdir(at(outside, "kernel"), 0755);
    put(at(outside, "kernel/file"), "x");
    NUM(nftw(outside, count_visit, 20, FTW_PHYS | FTW_MOUNT));
    NUM(found);
}

/* Other processes and programs: what they inherit, where their output goes, who shares a place. */
#include "calls.h"

#include <dlfcn.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

extern char **environ;

/* `calls --helper WORD ...`, run by these cases. */
int helper(int count, char **words)
{
    char text[100] = "";
    if (strcmp(words[0], "read") == 0) {
        /* From a descriptor that was inherited. */
        int file = atoi(words[1]);
        ssize_t got = read(file, text, 5);
        printf("read %zd '%s' %s, at %lld\n", got, text, got < 0 ? error_name(errno) : "",
               (long long)lseek(file, 0, SEEK_CUR));
    } else if (strcmp(words[0], "write") == 0)
        return write(atoi(words[1]), words[2], strlen(words[2])) == (ssize_t)strlen(words[2]) ? 0 : 1;
    else if (strcmp(words[0], "flags") == 0)
        printf("flags %d %s\n", fcntl(atoi(words[1]), F_GETFD), errno == EBADF ? "EBADF" : "");
    else if (strcmp(words[0], "map") == 0) {
        /* Stores to a file, and ends with it mapped. */
        int file = open(words[1], O_RDWR);
        char *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (bytes == MAP_FAILED)
            return 1;
        memcpy(bytes, "stored", 6);
    } else if (strcmp(words[0], "copy") == 0) {
        int byte;
        while ((byte = getchar()) != EOF)
            putchar(byte);
    } else if (strcmp(words[0], "cat") == 0) {
        for (int i = 1; i < count; i++) {
            FILE *stream = fopen(words[i], "r");
            if (stream == NULL || fgets(text, sizeof text, stream) == NULL)
                printf("%s: %s\n", words[i], error_name(errno));
            else
                printf("%s: %s\n", words[i], text);
        }
    } else if (strcmp(words[0], "rename") == 0) {
        return rename(words[1], words[2]) != 0;
    } else if (strcmp(words[0], "print") == 0) {
        for (int i = 1; i < count; i++)
            printf("%s\n", words[i]);
    } else if (strcmp(words[0], "error") == 0) {
        printf("to the output\n");
        fflush(stdout);
        fprintf(stderr, "to the error output\n");
    }
    return ferror(stdout) != 0;
}

/* Runs this program with these words, and with its output in a file of the folder. */
static void run(const char *output, char *const words[])
{
    if (in_child()) {
        int file = open(output, O_CREAT | O_WRONLY | O_APPEND, 0644);
        dup2(file, 1);
        close(file);
        execv(program, words);
        _exit(97);
    }
    join();
    show(output);
}

static char *number(int file)
{
    static char texts[4][12];
    static int turn;
    char *text = texts[turn++ % 4];
    snprintf(text, sizeof *texts, "%d", file);
    return text;
}

#define WORDS(...) ((char *const[]){(char *)program, "--helper", __VA_ARGS__, NULL})

CASE(process_offset)
{
    char text[20] = "";
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR));
    if (in_child()) {
        NUM(read(file, text, 3));
        NUM(close(file));
        leave_child(0);
    }
    join();
    NUM(lseek(file, 0, SEEK_CUR));
    if (in_child()) {
        NUM(lseek(file, 0, SEEK_CUR));
        NUM(write(file, "XY", 2));
        NUM(fcntl(file, F_SETFL, O_APPEND));
        leave_child(0);
    }
    join();
    NUM(lseek(file, 0, SEEK_CUR));
    NUM((fcntl(file, F_GETFL) & O_APPEND) != 0);
    NUM(write(file, "end", 3));
    show("file");
    if (in_child()) {
        int own = FD(open("file", O_RDONLY));
        NUM(read(own, text, 4));
        STR(text);
        put("child", "by the child");
        NUM(mkdir("folder", 0755));
        NUM(rename("file", "folder/file"));
        leave_child(0);
    }
    join();
    show("child");
    show("folder/file");
    NUM(lseek(file, 0, SEEK_CUR));
}

CASE(process_exec)
{
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR));
    int closing = FD(open("file", O_RDONLY | O_CLOEXEC));
    NUM(lseek(file, 2, SEEK_SET));
    run("out", WORDS("read", number(file)));
    NUM(lseek(file, 0, SEEK_CUR));
    run("out", WORDS("flags", number(closing)));
    NUM(dup2(closing, 50));
    run("out", WORDS("flags", "50"));
    NUM(fcntl(50, F_SETFD, FD_CLOEXEC));
    run("out", WORDS("flags", "50"));
    run("out", WORDS("write", number(file), "by another program"));
    show("file");
    NUM(read(closing, (char[4]){0}, 3));
    NUM(lseek(file, 0, SEEK_CUR));
    /* The child is begun in the folder that is its parent's, and finds what is in it. */
    put("content", "found");
    run("out2", WORDS("cat", "content", "none"));
    NUM(mkdir("folder", 0755));
    put("folder/content", "below");
    NUM(chdir("folder"));
    run("../out3", WORDS("cat", "content", "../content"));
}

CASE(process_standard_output)
{
    if (in_child()) {
        int file = open("out", O_CREAT | O_WRONLY | O_TRUNC, 0644);
        dup2(file, 1);
        dup2(file, 2);
        close(file);
        execv(program, WORDS("error"));
        _exit(97);
    }
    join();
    show("out");
    if (in_child()) {
        int in = open("out", O_RDONLY), out = open("copy", O_CREAT | O_WRONLY, 0644);
        dup2(in, 0);
        dup2(out, 1);
        close(in);
        close(out);
        execv(program, WORDS("copy"));
        _exit(97);
    }
    join();
    show("copy");
    /* Without exec. */
    if (in_child()) {
        close(1);
        open("plain", O_CREAT | O_WRONLY, 0644);
        printf("printed %s\n", "here");
        fflush(stdout);
        if (system("echo by a shell; echo and more >>shell") != 0)
            _exit(3);
        printf("after the shell\n");
        exit(0);
    }
    join();
    show("plain");
    show("shell");
}

CASE(process_shell)
{
    char text[100] = "";
    put("file", "b\na\nc\n");
    NUM(system("sort file > sorted && cat sorted file | wc -l > count; test -s count && test ! -e none"));
    show("sorted");
    show("count");
    NUM(system("exit 3") >> 8);
    NUM(system("while read -r line; do echo \"<$line>\"; done < file > looped; exec 5>five; echo five >&5; mkdir made; cd made; echo here > here"));
    show("looped");
    show("five");
    show("made/here");
    FILE *pipe = PTR(popen("cat file; echo done", "r"));
    NUM(fread(text, 1, sizeof text - 1, pipe));
    STR(text);
    NUM(pclose(pipe));
    pipe = PTR(popen("cat > written", "w"));
    NUM(fputs("through a pipe", pipe) >= 0);
    NUM(pclose(pipe));
    show("written");
    NUM(system("cat <<EOF > here\na document\nEOF"));
    show("here");
    NUM(system("(echo one; echo two) | tee teed | tr a-z A-Z > upper"));
    show("teed");
    show("upper");
}

/* A process that goes into the background leaves its folder and its standard descriptors. */
CASE(process_daemon)
{
    int ways[2], status = -1;
    char told[64] = "";
    NUM(pipe(ways));
    put("standard", "here");
    pid_t child = fork();
    if (child == 0) {
        char here[PATH_MAX];
        int file = open("standard", O_RDONLY);
        dup2(file, 0);
        int result = daemon(0, 0);
        ssize_t read_from = read(0, told, 4);
        snprintf(told, sizeof told, "%d %s %zd %d", result, getcwd(here, sizeof here), read_from,
                 access("standard", F_OK) == 0);
        write(ways[1], told, strlen(told) + 1);
        _exit(0);
    }
    NUM(waitpid(child, &status, 0) == child);
    NUM(status);
    close(ways[1]);
    NUM(read(ways[0], told, sizeof told) > 0);
    STR(told);
    close(ways[0]);
}

CASE(process_spawn)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;
    put("in", "spawned\n");
    NUM(mkdir("folder", 0755));
    posix_spawn_file_actions_init(&actions);
    NUM(posix_spawn_file_actions_addopen(&actions, 0, "in", O_RDONLY, 0));
    NUM(posix_spawn_file_actions_addopen(&actions, 1, "out", O_CREAT | O_WRONLY | O_TRUNC, 0640));
    NUM(posix_spawn_file_actions_adddup2(&actions, 1, 2));
    ERR(posix_spawn(&pid, program, &actions, NULL, WORDS("copy"), environ));
    NUM(waitpid(pid, &status, 0) == pid);
    NUM(status);
    posix_spawn_file_actions_destroy(&actions);
    show("out");
    show_stat("out");
    /* Elsewhere, where this process is not. */
    posix_spawn_file_actions_init(&actions);
    NUM(posix_spawn_file_actions_addchdir_np(&actions, outside));
    char copied[PATH_MAX];
    snprintf(copied, sizeof copied, "%s/spawned_to", outside);
    NUM(close(FD(open(copied, O_CREAT | O_WRONLY, 0600))));
    ERR(posix_spawn(&pid, program, &actions, NULL, WORDS("rename", "spawned_to", "spawned_there"), environ));
    NUM(waitpid(pid, &status, 0) == pid);
    NUM(status);
    posix_spawn_file_actions_destroy(&actions);
    NUM(access("spawned_there", F_OK));
    snprintf(copied, sizeof copied, "%s/spawned_there", outside);
    NUM(unlink(copied));
    posix_spawn_file_actions_init(&actions);
    NUM(posix_spawn_file_actions_addchdir_np(&actions, "folder"));
    NUM(posix_spawn_file_actions_addopen(&actions, 1, "below", O_CREAT | O_WRONLY, 0600));
    ERR(posix_spawn(&pid, program, &actions, NULL, WORDS("print", "below"), environ));
    NUM(waitpid(pid, &status, 0) == pid);
    NUM(status);
    posix_spawn_file_actions_destroy(&actions);
    show("folder/below");
    int file = FD(open("in", O_RDWR | O_CLOEXEC));
    posix_spawn_file_actions_init(&actions);
    NUM(posix_spawn_file_actions_adddup2(&actions, file, 60));
    NUM(posix_spawn_file_actions_addclose(&actions, 0));
    NUM(posix_spawn_file_actions_addopen(&actions, 1, "out2", O_CREAT | O_WRONLY, 0600));
    ERR(posix_spawnp(&pid, program, &actions, NULL, WORDS("read", "60"), environ));
    NUM(waitpid(pid, &status, 0) == pid);
    posix_spawn_file_actions_destroy(&actions);
    show("out2");
    NUM(lseek(file, 0, SEEK_CUR));
    posix_spawn_file_actions_init(&actions);
    NUM(posix_spawn_file_actions_addopen(&actions, 0, "none", O_RDONLY, 0));
    ERR(posix_spawn(&pid, program, &actions, NULL, WORDS("copy"), environ));
    posix_spawn_file_actions_destroy(&actions);
}

CASE(process_vfork)
{
    int status = -1;
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR));
    pid_t pid = vfork();
    if (pid == 0) {
        execv(program, WORDS("write", number(file), "vfork"));
        _exit(97);
    }
    NUM(waitpid(pid, &status, 0) == pid);
    NUM(status);
    show("file");
    NUM(lseek(file, 0, SEEK_CUR));
}

/* A program that lies in the folder. */
CASE(process_exec_inside)
{
    char path[PATH_MAX + 20], bytes[65536];
    ssize_t got;
    int from = FD(open(program, O_RDONLY)), to = FD(open("copy", O_CREAT | O_WRONLY, 0755));
    while ((got = read(from, bytes, sizeof bytes)) > 0)
        if (write(to, bytes, (size_t)got) != got)
            say("write = %s", error_name(errno));
    NUM(close(to));
    NUM(access("copy", X_OK));
    snprintf(path, sizeof path, "%s/copy", case_folder);
    if (in_child()) {
        close(1);
        open("out", O_CREAT | O_WRONLY, 0644);
        execv(path, WORDS("print", "from inside"));
        say("execv = %s", error_name(errno));
        _exit(97);
    }
    join();
    show("out");
    int script = FD(open("script", O_CREAT | O_WRONLY, 0755));
    NUM(write(script, "#!/bin/sh\necho a script $1 > scripted\n", 38));
    NUM(close(script));
    NUM(system("./script word") >> 8);
    show("scripted");
    NUM(system("sh ./script other") >> 8);
    show("scripted");
    if (in_child()) {
        execv("none", WORDS("print"));
        say("execv = %s", error_name(errno));
        NUM(chmod("script", 0644));
        execv("./script", WORDS("print"));
        say("execv = %s", error_name(errno));
        execv(".", WORDS("print"));
        say("execv = %s", error_name(errno));
        leave_child(0);
    }
    join();
}

CASE(process_grandchildren)
{
    put("file", "");
    int file = FD(open("file", O_WRONLY | O_APPEND));
    if (in_child()) {
        for (int i = 0; i < 3; i++) {
            pid_t pid = fork();
            if (pid == 0) {
                for (int n = 0; n < 50; n++)
                    if (write(file, "line\n", 5) != 5)
                        _exit(1);
                _exit(0);
            }
        }
        int status, bad = 0;
        while (wait(&status) > 0)
            bad += status != 0;
        leave_child(bad);
    }
    for (int n = 0; n < 50; n++)
        if (write(file, "LINE\n", 5) != 5)
            say("write = %s", error_name(errno));
    join();
    NUM(lseek(file, 0, SEEK_END));
    NUM(system("grep -c line file >count; grep -c LINE file >>count"));
    show("count");
}

/* A library that lies in the folder. */
CASE(process_library)
{
    NUM(system("echo 'int answer(void) { return 42; }' | cc -shared -fPIC -o library.so -x c -"));
    void *library = PTR(dlopen("./library.so", RTLD_NOW));
    int (*answer)(void) = library ? (int (*)(void))dlsym(library, "answer") : NULL;
    NUM(answer ? answer() : 0);
    YES(dlopen("./none.so", RTLD_NOW) == NULL);
}

/* A child that lives longer than its parent goes on with its files. */
CASE(process_orphan)
{
    int ends[2];
    char byte;
    NUM(pipe(ends));
    if (in_child()) {
        int file = open("file", O_CREAT | O_RDWR, 0644);
        pid_t pid = fork();
        if (pid == 0) {
            usleep(200000);
            bool good = write(file, "orphan", 6) == 6 && rename("file", "renamed") == 0;
            put("new", "new");
            byte = good ? 'y' : 'n';
            if (write(ends[1], &byte, 1) != 1)
                _exit(1);
            _exit(0);
        }
        if (write(file, "parent ", 7) != 7)
            _exit(1);
        leave_child(0);
    }
    join();
    NUM(close(ends[1]));
    NUM(read(ends[0], &byte, 1));
    NUM(byte);
    NUM(read(ends[0], &byte, 1));
    show("renamed");
    show("new");
}

/* Many that end with files open, in each way that there is: nothing of them is left. */
CASE(process_leaves)
{
    enum { PROCESSES = 76, FILES = 950 };
    struct rlimit limit;
    int wrong = 0, status;
    NUM(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 1100;
    NUM(setrlimit(RLIMIT_NOFILE, &limit));
    put("file", "content");
    for (int at = 0; at < PROCESSES; at++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (int file = 0; file < FILES; file++)
                if (open("file", O_RDONLY | O_CLOEXEC) < 0)
                    _exit(9);
            if (at % 25 == 1)
                execl(program, program, "--helper", "print", NULL);
            else if (at % 25 != 2)
                raise(SIGKILL);
            _exit(0);
        }
        if (waitpid(pid, &status, 0) != pid || (status != 0 && status != SIGKILL)) {
            wrong++;
            break;
        }
    }
    NUM(wrong);
    show("file");
}

/* The child of a second `popen` does not keep the first one's pipe open. */
CASE(process_two_pipes)
{
    FILE *one = PTR(popen("cat > one", "w")), *two = PTR(popen("cat > two", "w"));
    NUM(fputs("to the first\n", one) >= 0);
    NUM(pclose(one));
    NUM(fputs("to the second\n", two) >= 0);
    NUM(pclose(two));
    show("one");
    show("two");
}

/* All descriptors are to be closed at `exec`, by each way of asking for it, but for the output. */
CASE(process_closes)
{
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t pid;
    for (int way = 0; way < 2; way++) {
        if (in_child()) {
            dup2(open("out", O_CREAT | O_TRUNC | O_WRONLY, 0600), 1);
            if (way == 0)
                syscall(SYS_close_range, 3, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
            else
                for (int file = 3; file < 1100; file++)
                    fcntl(file, F_SETFD, FD_CLOEXEC);
            execl(program, program, "--helper", "print", way ? "by flags" : "by range", NULL);
            leave_child(1);
        }
        join();
        show("out");
    }
    posix_spawn_file_actions_init(&actions);
    NUM(posix_spawn_file_actions_addopen(&actions, 1, "out", O_CREAT | O_WRONLY | O_TRUNC, 0640));
    ERR(posix_spawn_file_actions_addclosefrom_np(&actions, 3));
    ERR(posix_spawn(&pid, program, &actions, NULL, WORDS("print", "spawned"), environ));
    NUM(waitpid(pid, &status, 0) == pid);
    NUM(status);
    posix_spawn_file_actions_destroy(&actions);
    show("out");
    /* The number that the file has in the child is the one that it gets here. */
    int next = dup(1);
    NUM(close(next));
    put("in", "given\n");
    posix_spawn_file_actions_init(&actions);
    NUM(posix_spawn_file_actions_addopen(&actions, next, "in", O_RDONLY, 0));
    NUM(posix_spawn_file_actions_addopen(&actions, 1, "out", O_CREAT | O_WRONLY | O_TRUNC, 0640));
    char number[20];
    snprintf(number, sizeof number, "%d", next);
    ERR(posix_spawn(&pid, program, &actions, NULL, WORDS("read", number), environ));
    NUM(waitpid(pid, &status, 0) == pid);
    NUM(status);
    posix_spawn_file_actions_destroy(&actions);
    show("out");
}

/* Killed while it has files open: the others go on, and what it has written is there. */
CASE(process_killed)
{
    int ends[2], status;
    char byte;
    NUM(pipe(ends));
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR));
    pid_t pid = fork();
    if (pid == 0) {
        if (pwrite(file, "killed", 6, 0) == 6 && write(ends[1], "", 1) == 1)
            for (;;)
                pwrite(file, "killed", 6, 0);
        _exit(1);
    }
    NUM(read(ends[0], &byte, 1));
    NUM(kill(pid, SIGKILL));
    NUM(waitpid(pid, &status, 0) == pid);
    NUM(pwrite(file, "!", 1, 9));
    show("file");
    put("after", "after");
    show("after");
    struct flock lock = {.l_type = F_WRLCK};
    NUM(fcntl(file, F_SETLK, &lock));
}

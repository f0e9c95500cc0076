/*
 * Calls the C library has for files, each in every way, and what comes of them.
 *
 *   calls FOLDER OUTSIDE             every case in a process of its own
 *   calls FOLDER OUTSIDE NAME ...    these cases; a name that ends in * is the begin of names
 *   calls -1 FOLDER OUTSIDE ...      all in this one process
 *   calls -l                         names
 *
 * FOLDER is where the calls are made, OUTSIDE is elsewhere. Cases that begin with `refused_` run only when
 * they are named. CALLS_SECONDS is how long one case may take.
 */
#include "calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

const char *top_folder;
char case_folder[PATH_MAX];
char outside[PATH_MAX];
const char *program;
static const char *outside_top;
static const char *case_name;
static struct test *first_test;
static struct test **last_test = &first_test;
/* Where lines go: a copy of descriptor 1, out of the way of what the cases do with low numbers. */
static int output = 1;

void add_test(struct test *test)
{
    *last_test = test;
    last_test = &test->next;
}

bool is_refusal(const char *name)
{
    return strncmp(name, "refused_", 8) == 0;
}

/* Whether the next line is followed by a pause: LATE, below. */
static bool pauses;

int said_by(void)
{
    return output;
}

/* Lines go past the C library: what it does is what is tried. */
static void put_line(const char *line, size_t length)
{
    while (length > 0) {
        long written = syscall(SYS_write, output, line, length);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            _exit(98);
        }
        line += written;
        length -= (size_t)written;
    }
}

void say(const char *format, ...)
{
    char line[8192];
    int error = errno;
    int length = snprintf(line, sizeof line, "%s: ", case_name);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    va_end(arguments);
    if ((size_t)length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    put_line(line, (size_t)length);
    if (pauses)
        usleep(40000);
    pauses = false;
    errno = error;
}

const char *error_name(int error)
{
    const char *name = strerrorname_np(error);
    return error == 0 ? "0" : name ? name : "an error without a name";
}

void say_number(const char *call, long long result, int error)
{
    if (result == -1)
        say("%s = -1 %s", call, error_name(error));
    else
        say("%s = %lld", call, result);
}

void say_descriptor(const char *call, int result, int error)
{
    if (result < 0)
        say("%s = %d %s", call, result, error_name(error));
    else
        say("%s = a descriptor", call);
}

void say_pointer(const char *call, const void *result, int error)
{
    if (result == NULL)
        say("%s = NULL %s", call, error_name(error));
    else if (result == (void *)-1)
        say("%s = MAP_FAILED %s", call, error_name(error));
    else
        say("%s = a pointer", call);
}

void say_error(const char *call, int error)
{
    say("%s = %s", call, error_name(error));
}

uint64_t hash_of(const void *bytes, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
    return hash;
}

void say_bytes(const char *what, const void *bytes, size_t length)
{
    char text[400];
    size_t used = 0;
    if (bytes == NULL) {
        say("%s = no string", what);
        return;
    }
    for (size_t i = 0; i < length && i < 90; i++) {
        unsigned char byte = ((const unsigned char *)bytes)[i];
        if (byte >= ' ' && byte < 127 && byte != '\\')
            text[used++] = (char)byte;
        else
            used += (size_t)sprintf(text + used, "\\%02x", byte);
    }
    text[used] = 0;
    if (length > 90)
        say("%s = %zu bytes, hash %016llx", what, length, (unsigned long long)hash_of(bytes, length));
    else
        say("%s = \"%s\"", what, text);
}

void put(const char *path, const char *content)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    size_t length = strlen(content);
    if (file < 0 || write(file, content, length) != (ssize_t)length || close(file) != 0)
        say("a file cannot be made: %s: %s", path, error_name(errno));
}

/* A path in a line: where the folder is differs. */
static const char *shown(const char *path)
{
    const char *slash = path[0] == '/' ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

void show(const char *path)
{
    static char content[1 << 20];
    size_t used = 0;
    int file = open(path, O_RDONLY);
    ssize_t got = -1;
    while (file >= 0 && (got = read(file, content + used, sizeof content - used)) > 0)
        used += (size_t)got;
    if (got < 0)
        say("content of %s = %s", shown(path), error_name(errno));
    else {
        char what[PATH_MAX + 16];
        snprintf(what, sizeof what, "content of %s", shown(path));
        say_bytes(what, content, used);
    }
    if (file >= 0)
        close(file);
}

void fill_pattern(unsigned char *bytes, size_t length, size_t from)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)((from + i) * 131 + ((from + i) >> 8) * 7 + ((from + i) >> 16));
}

bool is_pattern(const unsigned char *bytes, size_t length, size_t from)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != (unsigned char)((from + i) * 131 + ((from + i) >> 8) * 7 + ((from + i) >> 16)))
            return false;
    return true;
}

void put_pattern(const char *path, size_t length)
{
    unsigned char *bytes = malloc(length);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    size_t done = 0;
    fill_pattern(bytes, length, 0);
    while (file >= 0 && done < length) {
        ssize_t written = write(file, bytes + done, length - done);
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    if (done < length || close(file) != 0)
        say("a file cannot be made: %s: %s", path, error_name(errno));
    free(bytes);
}

void say_stat(const char *what, const struct stat *stat)
{
    if (S_ISDIR(stat->st_mode))
        say("%s: mode %o, links %ld, owner %d:%d", what, stat->st_mode, (long)stat->st_nlink, stat->st_uid,
            stat->st_gid);
    else
        say("%s: mode %o, links %ld, owner %d:%d, size %lld, blocks %s, device %s", what, stat->st_mode,
            (long)stat->st_nlink, stat->st_uid, stat->st_gid, (long long)stat->st_size,
            stat->st_blocks == 0 ? "none" : "some", stat->st_rdev == 0 ? "none" : "one");
}

void show_stat(const char *path)
{
    struct stat meta;
    if (lstat(path, &meta) != 0)
        say("lstat of %s = %s", shown(path), error_name(errno));
    else
        say_stat(shown(path), &meta);
}

static int by_text(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

void show_names(const char *path)
{
    char *names[512], line[8000];
    size_t count = 0, used = 0;
    DIR *stream = opendir(path);
    struct dirent *entry;
    if (stream == NULL) {
        say("names in %s = %s", shown(path), error_name(errno));
        return;
    }
    while (count < 512 && (entry = readdir(stream)) != NULL) {
        names[count] = malloc(strlen(entry->d_name) + 16);
        sprintf(names[count++], "%s/%d", entry->d_name, entry->d_type);
    }
    closedir(stream);
    qsort(names, count, sizeof *names, by_text);
    line[0] = 0;
    for (size_t i = 0; i < count; i++) {
        if (used + strlen(names[i]) + 2 < sizeof line)
            used += (size_t)sprintf(line + used, " %s", names[i]);
        free(names[i]);
    }
    say("names in %s: %zu:%s", shown(path), count, line);
}

static pid_t child;

bool in_child(void)
{
    child = fork();
    if (child < 0)
        say("fork = %s", error_name(errno));
    /* A parent that crashes leaves nobody behind. */
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* What is said depends neither on which of the two goes on first nor on who speaks in between. */
    const char *late = getenv("LATE");
    if (late != NULL && strcmp(late, child == 0 ? "child" : "parent") == 0)
        usleep(20000);
    pauses = late != NULL && strcmp(late, "parent") == 0 && child == 0;
    return child == 0;
}

void leave_child(int status)
{
    _exit(status);
}

void join(void)
{
    int status = -1;
    pid_t pid = child;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        say("the child was ended by signal %d", WTERMSIG(status));
    else
        say("the child ended with %d", WEXITSTATUS(status));
}

void end_child(void)
{
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

void make_gate(struct gate *gate)
{
    if (pipe2(gate->ends, O_CLOEXEC) != 0)
        say("no pipe: %s", error_name(errno));
}

void open_gate(struct gate *gate)
{
    if (write(gate->ends[1], "", 1) != 1)
        say("a gate does not open: %s", error_name(errno));
}

void wait_gate(struct gate *gate)
{
    char byte;
    while (read(gate->ends[0], &byte, 1) < 0 && errno == EINTR)
        ;
}

static void remove_below(int folder, const char *name)
{
    int at = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    DIR *stream = at < 0 ? NULL : fdopendir(at);
    struct dirent *entry;
    if (stream != NULL) {
        while ((entry = readdir(stream)) != NULL)
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                remove_below(at, entry->d_name);
        closedir(stream);
    }
    if (unlinkat(folder, name, 0) != 0)
        unlinkat(folder, name, AT_REMOVEDIR);
}

void remove_tree(const char *path)
{
    remove_below(AT_FDCWD, path);
}

void *symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL)
        say("there is no %s", name);
    return found;
}

static void run_here(struct test *test)
{
    case_name = test->name;
    snprintf(case_folder, sizeof case_folder, "%s/%s", top_folder, test->name);
    snprintf(outside, sizeof outside, "%s/%s", outside_top, test->name);
    umask(022);
    /* What a run that was ended has left. */
    remove_tree(case_folder);
    remove_tree(outside);
    if (mkdir(outside, 0755) != 0 || mkdir(case_folder, 0755) != 0 || chdir(case_folder) != 0) {
        say("no folder: %s: %s", case_folder, error_name(errno));
        return;
    }
    test->run();
    if (chdir("/") == 0) {
        remove_tree(case_folder);
        remove_tree(outside);
    }
}

/* A case that hangs or crashes is one line. */
static void run_apart(struct test *test, int seconds)
{
    extern char **environ;
    char *arguments[] = {(char *)program, "-1", (char *)top_folder, (char *)outside_top, (char *)test->name, NULL};
    posix_spawnattr_t attributes;
    pid_t pid;
    int status = 0;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    int error = posix_spawn(&pid, program, NULL, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    case_name = test->name;
    if (error != 0) {
        say("cannot be begun: %s", error_name(error));
        return;
    }
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd end = {handle, POLLIN, 0};
    int ready;
    while ((ready = poll(&end, 1, seconds * 1000)) < 0 && errno == EINTR)
        ;
    if (ready == 0)
        say("TIMED OUT after %d seconds", seconds);
    /* Of what it has begun nothing stays. */
    kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(handle);
    if (ready != 0 && WIFSIGNALED(status))
        say("ENDED by signal %d", WTERMSIG(status));
    else if (ready != 0 && WEXITSTATUS(status) != 0)
        say("ENDED with %d", WEXITSTATUS(status));
}

static bool is_chosen(const char *name, char **patterns, int count)
{
    for (int i = 0; i < count; i++) {
        size_t length = strlen(patterns[i]);
        bool open_end = length > 0 && patterns[i][length - 1] == '*';
        if (open_end ? strncmp(name, patterns[i], length - 1) == 0 : strcmp(name, patterns[i]) == 0)
            return true;
    }
    return count == 0 && !is_refusal(name);
}

int main(int count, char **words)
{
    const char *limit = getenv("CALLS_SECONDS");
    int seconds = limit ? atoi(limit) : 60, at = 1, run = 0;
    bool here = false;
    program = words[0];
    if (count > 2 && strcmp(words[1], "--helper") == 0)
        return helper(count - 2, words + 2);
    if (count == 2 && strcmp(words[1], "-l") == 0) {
        for (struct test *test = first_test; test; test = test->next)
            puts(test->name);
        return 0;
    }
    if (count > 1 && strcmp(words[1], "-1") == 0) {
        here = true;
        at = 2;
    }
    if (count < at + 2 || words[0][0] != '/' || words[at][0] != '/' || words[at + 1][0] != '/') {
        fprintf(stderr, "usage: /.../calls [-1] /FOLDER /OUTSIDE [CASE ...], or calls -l\n");
        return 2;
    }
    top_folder = words[at];
    outside_top = words[at + 1];
    if (here) {
        output = fcntl(1, F_DUPFD_CLOEXEC, 900);
        if (output < 0)
            output = 1;
    }
    for (struct test *test = first_test; test; test = test->next) {
        if (!is_chosen(test->name, words + at + 2, count - at - 2))
            continue;
        run++;
        if (here) {
            alarm((unsigned)seconds);
            run_here(test);
            alarm(0);
        } else
            run_apart(test, seconds);
    }
    if (run == 0)
        fprintf(stderr, "calls: no such case\n");
    return run == 0;
}

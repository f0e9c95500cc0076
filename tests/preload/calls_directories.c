/* Directories: streams, entries, and what walks over trees. */
#include "calls.h"

#include <dirent.h>
#include <fts.h>
#include <ftw.h>
#include <stddef.h>
#include <glob.h>
#include <sys/syscall.h>

static void tree(void)
{
    mkdir("tree", 0755);
    mkdir("tree/a", 0755);
    mkdir("tree/a/deep", 0700);
    mkdir("tree/b", 0755);
    put("tree/one.c", "1");
    put("tree/two.c", "22");
    put("tree/.hidden", "333");
    put("tree/a/three.c", "4444");
    put("tree/a/deep/four.h", "55555");
    symlink("one.c", "tree/link");
    symlink("../a", "tree/b/up");
    symlink("nowhere", "tree/b/dangling");
    mkfifo("tree/fifo", 0600);
}

CASE(directory_streams)
{
    tree();
    show_names("tree");
    show_names(".");
    show_names("tree/a/deep");
    show_names("tree/b/up");
    show_names("tree/one.c");
    show_names("none");
    show_names("");
    DIR *stream = PTR(opendir("tree"));
    NUM(fcntl(dirfd(stream), F_GETFD));
    NUM((fcntl(dirfd(stream), F_GETFL) & O_DIRECTORY) != 0);
    struct stat meta;
    NUM(fstatat(dirfd(stream), "two.c", &meta, 0));
    NUM(meta.st_size);
    int count = 0;
    struct dirent *entry;
    bool same = true;
    while ((entry = readdir(stream)) != NULL) {
        count++;
        if (strcmp(entry->d_name, "..") == 0)
            continue;
        same = same && fstatat(dirfd(stream), entry->d_name, &meta, AT_SYMLINK_NOFOLLOW) == 0 && meta.st_ino == entry->d_ino;
        same = same && entry->d_type == IFTODT(meta.st_mode);
        same = same && entry->d_reclen >= offsetof(struct dirent, d_name) + strlen(entry->d_name) + 1;
    }
    NUM(count);
    YES(same);
    NUM(errno);
    PTR(readdir(stream));
    rewinddir(stream);
    count = 0;
    while (readdir(stream) != NULL)
        count++;
    NUM(count);
    NUM(closedir(stream));
}

CASE(directory_by_descriptor)
{
    tree();
    int folder = FD(open("tree", O_RDONLY | O_DIRECTORY));
    DIR *stream = PTR(fdopendir(folder));
    YES(dirfd(stream) == folder);
    int count = 0;
    while (readdir(stream) != NULL)
        count++;
    NUM(count);
    NUM(closedir(stream));
    NUM(close(folder));
    int file = FD(open("tree/one.c", O_RDONLY));
    PTR(fdopendir(file));
    PTR(fdopendir(-1));
    folder = FD(openat(AT_FDCWD, "tree/a", O_RDONLY));
    int copy = dup(folder);
    stream = PTR(fdopendir(folder));
    NUM(unlinkat(dirfd(stream), "three.c", 0));
    NUM(unlinkat(dirfd(stream), "deep", 0));
    NUM(unlinkat(dirfd(stream), "deep", AT_REMOVEDIR));
    NUM(unlinkat(copy, "deep/four.h", 0));
    NUM(closedir(stream));
    NUM(unlinkat(copy, "deep", AT_REMOVEDIR));
    show_names("tree/a");
    folder = FD(open("tree", O_RDONLY | O_PATH));
    PTR(fdopendir(folder));
}

CASE(directory_places)
{
    char names[40][256];
    long places[40];
    int count = 0, right = 0;
    char name[20];
    mkdir("many", 0755);
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "many/file%d", i);
        put(name, "");
    }
    DIR *stream = PTR(opendir("many"));
    struct dirent *entry;
    for (;;) {
        places[count] = telldir(stream);
        entry = readdir(stream);
        if (entry == NULL || count >= 39)
            break;
        strcpy(names[count++], entry->d_name);
    }
    NUM(count);
    for (int i = count - 1; i >= 0; i--) {
        seekdir(stream, places[i]);
        entry = readdir(stream);
        if (entry != NULL && strcmp(entry->d_name, names[i]) == 0)
            right++;
    }
    NUM(right);
    seekdir(stream, places[count]);
    PTR(readdir(stream));
    NUM(closedir(stream));
}

CASE(directory_changes)
{
    char name[20];
    int count = 0;
    mkdir("many", 0755);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "many/file%d", i);
        put(name, "");
    }
    /* As rm -r does it: what is read is removed while it is read. */
    DIR *stream = PTR(opendir("many"));
    struct dirent *entry;
    while ((entry = readdir(stream)) != NULL)
        if (entry->d_name[0] != '.' && unlinkat(dirfd(stream), entry->d_name, 0) == 0)
            count++;
    NUM(count);
    NUM(closedir(stream));
    show_names("many");
    NUM(rmdir("many"));
    mkdir("gone", 0755);
    stream = PTR(opendir("gone"));
    NUM(rmdir("gone"));
    count = 0;
    while (readdir(stream) != NULL)
        count++;
    NUM(closedir(stream));
    /* It starts anew when it is rewound. */
    mkdir("grows", 0755);
    stream = PTR(opendir("grows"));
    while (readdir(stream) != NULL)
        ;
    put("grows/new", "");
    rewinddir(stream);
    count = 0;
    while (readdir(stream) != NULL)
        count++;
    NUM(count);
    NUM(closedir(stream));
}

CASE(directory_large)
{
    enum { COUNT = 3000 };
    static char seen[COUNT];
    char name[80];
    int wrong = 0, twice = 0, missing = 0;
    mkdir("many", 0755);
    int folder = open("many", O_RDONLY);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "a name that is a little longer than most %d", i);
        int file = openat(folder, name, O_CREAT | O_EXCL | O_WRONLY, 0600);
        wrong += file < 0;
        close(file);
    }
    DIR *stream = fdopendir(folder);
    struct dirent *entry;
    while ((entry = readdir(stream)) != NULL) {
        int number = -1;
        if (entry->d_name[0] == '.')
            continue;
        if (sscanf(entry->d_name, "a name that is a little longer than most %d", &number) != 1 || number < 0 || number >= COUNT)
            wrong++;
        else
            twice += seen[number]++ != 0;
    }
    for (int i = 0; i < COUNT; i++)
        missing += !seen[i];
    closedir(stream);
    say("wrong %d, twice %d, missing %d", wrong, twice, missing);
}

static int without_dots(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

CASE(directory_scans)
{
    struct dirent **list = NULL;
    tree();
    int count = (int)NUM(scandir("tree", &list, NULL, alphasort));
    for (int i = 0; i < count; i++)
        say("%s %d", list[i]->d_name, list[i]->d_type);
    count = (int)NUM(scandir("tree/a", &list, without_dots, versionsort));
    for (int i = 0; i < count; i++)
        say("%s", list[i]->d_name);
    int folder = FD(open("tree", O_RDONLY));
    count = (int)NUM(scandirat(folder, "a", &list, without_dots, alphasort));
    for (int i = 0; i < count; i++)
        say("%s", list[i]->d_name);
    NUM(scandir("none", &list, NULL, alphasort));
    NUM(scandirat(-1, "a", &list, NULL, alphasort));
    NUM(scandir("tree/one.c", &list, NULL, alphasort));
}

static void found(const char *pattern, int flags)
{
    glob_t result;
    int error = glob(pattern, flags, NULL, &result);
    say("glob %s %#x: %d", pattern[0] == '/' ? pattern + strlen(case_folder) : pattern, flags, error);
    if (error == 0) {
        for (size_t i = 0; i < result.gl_pathc; i++)
            if (result.gl_pathv[i][0] != '/')
                say("  %s", result.gl_pathv[i]);
            else
                say("  %s", result.gl_pathv[i] + strlen(case_folder));
        globfree(&result);
    }
}

CASE(directory_globs)
{
    char pattern[PATH_MAX + 20];
    tree();
    found("tree/*.c", 0);
    found("tree/*/*.c", 0);
    found("tree/*", GLOB_MARK);
    found("tree/.*", GLOB_PERIOD);
    found("tree/[ot]*", 0);
    found("tree/{one,two}.c", GLOB_BRACE);
    found("tree/*/", GLOB_ONLYDIR);
    found("tree/none*", 0);
    found("tree/none*", GLOB_NOCHECK);
    found("tree/b/up/*", 0);
    found("tree/b/dang*", 0);
    snprintf(pattern, sizeof pattern, "%s/tree/a/*", case_folder);
    found(pattern, 0);
    snprintf(pattern, sizeof pattern, "%s/t*/a/d*/*", case_folder);
    found(pattern, 0);
}

static char visits[64][PATH_MAX];
static int visited;

static int by_line(const void *left, const void *right)
{
    return strcmp(left, right);
}

static void show_visits(void)
{
    qsort(visits, (size_t)visited, sizeof *visits, by_line);
    for (int i = 0; i < visited; i++)
        say("  %s", visits[i]);
    visited = 0;
}

static int visit_nftw(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    if (visited < 64)
        snprintf(visits[visited++], PATH_MAX, "%s type %d level %d base %d size %lld", path, type, walk->level, walk->base,
                 S_ISREG(stat->st_mode) ? (long long)stat->st_size : -1);
    return 0;
}

static int visit_ftw(const char *path, const struct stat *stat, int type)
{
    if (visited < 64)
        snprintf(visits[visited++], PATH_MAX, "%s type %d mode %o", path, type, type == FTW_NS ? 0 : stat->st_mode);
    return 0;
}

CASE(directory_walks)
{
    tree();
    NUM(nftw("tree", visit_nftw, 10, FTW_PHYS));
    show_visits();
    NUM(nftw("tree", visit_nftw, 10, FTW_PHYS | FTW_DEPTH | FTW_MOUNT));
    show_visits();
    /* By way of links each folder is visited once, by the name that is found first. */
    NUM(unlink("tree/b/up"));
    NUM(nftw("tree", visit_nftw, 2, 0));
    show_visits();
    NUM(nftw("tree", visit_nftw, 5, FTW_PHYS | FTW_CHDIR));
    show_visits();
    NUM(ftw("tree", visit_ftw, 5));
    show_visits();
    NUM(nftw("none", visit_nftw, 5, 0));
    NUM(nftw("tree/one.c", visit_nftw, 5, 0));
    show_visits();
}

static int compare_fts(const FTSENT **left, const FTSENT **right)
{
    return strcmp((*left)->fts_name, (*right)->fts_name);
}

CASE(directory_fts)
{
    static const int ways[] = {FTS_PHYSICAL, FTS_LOGICAL, FTS_PHYSICAL | FTS_NOCHDIR | FTS_SEEDOT, FTS_PHYSICAL | FTS_NOSTAT | FTS_XDEV};
    char first[] = "tree";
    char *roots[] = {first, NULL};
    tree();
    for (int i = 0; i < 4; i++) {
        FTS *walk = PTR(fts_open(roots, ways[i], compare_fts));
        FTSENT *entry;
        while ((entry = fts_read(walk)) != NULL)
            say("  %d %s info %d level %d", ways[i], entry->fts_path, entry->fts_info, entry->fts_level);
        NUM(errno);
        NUM(fts_close(walk));
    }
    show_names(".");
}

struct kernel_entry {
    uint64_t inode, next;
    uint16_t length;
    uint8_t type;
    char name[];
};

CASE(directory_by_syscall)
{
    static char bytes[32768] __attribute__((aligned(8)));
    char names[64][300];
    int count = 0;
    tree();
    int folder = FD(open("tree", O_RDONLY | O_DIRECTORY));
    for (;;) {
        long got = syscall(SYS_getdents64, folder, bytes, 120);
        if (got <= 0) {
            NUM(got);
            break;
        }
        for (long at = 0; at < got && count < 64;) {
            struct kernel_entry *entry = (struct kernel_entry *)(bytes + at);
            snprintf(names[count++], sizeof *names, "%s %d", entry->name, entry->type);
            at += entry->length;
        }
    }
    qsort(names, (size_t)count, sizeof *names, by_line);
    for (int i = 0; i < count; i++)
        say("  %s", names[i]);
    NUM(syscall(SYS_getdents64, folder, bytes, 5));
    NUM(lseek(folder, 0, SEEK_SET));
    YES(getdents64(folder, bytes, sizeof bytes) > 200);
    NUM(getdents64(folder, bytes, sizeof bytes));
    NUM(lseek(folder, 0, SEEK_SET));
    NUM(getdents64(folder, bytes, 3));
    int file = FD(open("tree/one.c", O_RDONLY));
    NUM(getdents64(file, bytes, sizeof bytes));
    NUM(getdents64(-1, bytes, sizeof bytes));
}

/* Two descriptions of one folder, and a copy, which shares the place. */
CASE(directory_shared_place)
{
    tree();
    DIR *one = PTR(opendir("tree")), *two = PTR(opendir("tree"));
    int first = 0, second = 0;
    while (readdir(one) != NULL)
        first++;
    while (readdir(two) != NULL)
        second++;
    NUM(first);
    NUM(second);
    closedir(one);
    closedir(two);
    int folder = open("tree", O_RDONLY), copy = dup(folder);
    one = fdopendir(folder);
    while (readdir(one) != NULL)
        ;
    two = PTR(fdopendir(copy));
    NUM(readdir(two) == NULL);
    rewinddir(two);
    NUM(readdir(two) != NULL);
    closedir(one);
    closedir(two);
    if (in_child()) {
        show_names("tree");
        leave_child(0);
    }
    join();
}

/* Paths: the working directory, links into the folder and out of it, what is too long. */
#include "calls.h"

#include <sys/statfs.h>
#include <sys/xattr.h>

/* A path without what depends on where the folders are. */
static void say_path(const char *what, const char *path)
{
    size_t inside = strlen(top_folder), away = strlen(outside);
    if (path == NULL)
        say("%s: none: %s", what, error_name(errno));
    else if (strncmp(path, case_folder, strlen(case_folder)) == 0)
        say("%s: FOLDER%s", what, path + strlen(case_folder));
    else if (strncmp(path, top_folder, inside) == 0)
        say("%s: TOP%s", what, path + inside);
    else if (strncmp(path, outside, away) == 0)
        say("%s: OUTSIDE%s", what, path + away);
    else
        say("%s: %s", what, path);
}

static const char *join_path(const char *folder, const char *name)
{
    static char paths[4][2 * PATH_MAX];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, 2 * PATH_MAX, "%s/%s", folder, name);
    return path;
}

CASE(path_real)
{
    char buffer[PATH_MAX];
    mkdir("folder", 0755);
    mkdir("folder/inner", 0755);
    put("folder/inner/file", "x");
    symlink("folder/inner", "short");
    symlink(join_path(case_folder, "folder"), "absolute");
    symlink("loop", "loop");
    static const char *const paths[] = {".", "..", "folder/inner/file", "short/file", "short/..", "short/../inner/./file",
                                        "absolute/inner//file", "folder/none", "none/file", "folder/inner/file/x",
                                        "loop", "", "folder/inner/file/", "folder/", "short/", "/", "//", "/.."};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char what[100];
        errno = 0;
        snprintf(what, sizeof what, "realpath %s", paths[i]);
        say_path(what, realpath(paths[i], buffer));
        char *made = canonicalize_file_name(paths[i]);
        snprintf(what, sizeof what, "canonical %s", paths[i]);
        say_path(what, made);
        free(made);
    }
    char *made = realpath(join_path(case_folder, "short/file"), NULL);
    say_path("absolute", made);
    free(made);
    PTR(realpath(NULL, buffer));
}

/* It is a directory, whatever its path is by now: for children and other programs as well. */
CASE(path_working_directory_moves)
{
    int top = FD(open(".", O_RDONLY));
    mkdir("a", 0755);
    NUM(chdir("a"));
    NUM(rename("../a", "../b"));
    NUM(mkdir("../a", 0755));
    if (in_child()) {
        FD(open("child", O_CREAT | O_WRONLY, 0600));
        leave_child(0);
    }
    join();
    NUM(system("echo >program"));
    FD(open("parent", O_CREAT | O_WRONLY, 0600));
    NUM(fchdir(top));
    show_names("a");
    show_names("b");
    mkdir("c", 0755);
    NUM(chdir("c"));
    NUM(rmdir("../c"));
    if (in_child()) {
        FD(open("child", O_CREAT | O_WRONLY, 0600));
        leave_child(0);
    }
    join();
    YES(system("exec 2>/dev/null; touch program") != 0);
    FD(open("parent", O_CREAT | O_WRONLY, 0600));
    NUM(fchdir(top));
    show_names(".");
}

CASE(path_working_directory)
{
    char buffer[PATH_MAX], small[4];
    mkdir("a", 0755);
    mkdir("a/b", 0755);
    symlink("a/b", "link");
    say_path("begin", getcwd(buffer, sizeof buffer));
    NUM(chdir("a"));
    say_path("a", getcwd(buffer, sizeof buffer));
    NUM(chdir("b"));
    put("file", "in b");
    say_path("b", getcwd(buffer, sizeof buffer));
    char *made = getcwd(NULL, 0);
    say_path("made", made);
    free(made);
    PTR(getcwd(small, sizeof small));
    PTR(getcwd(buffer, 0));
    PTR(getcwd(NULL, 3));
    made = get_current_dir_name();
    say_path("current", made);
    free(made);
    NUM(chdir("../.."));
    NUM(chdir("link"));
    say_path("by a link", getcwd(buffer, sizeof buffer));
    show("file");
    NUM(chdir(".."));
    say_path("above a link's target", getcwd(buffer, sizeof buffer));
    NUM(chdir("none"));
    NUM(chdir("b/file"));
    NUM(chdir(""));
    int folder = FD(open("b", O_RDONLY | O_DIRECTORY));
    NUM(chdir("/"));
    say_path("root", getcwd(buffer, sizeof buffer));
    NUM(access("a", F_OK));
    NUM(fchdir(folder));
    say_path("fchdir", getcwd(buffer, sizeof buffer));
    int file = FD(open("file", O_RDONLY));
    NUM(fchdir(file));
    NUM(fchdir(-1));
    NUM(rename("../../a", "../../moved"));
    say_path("moved", getcwd(buffer, sizeof buffer));
    show("file");
    NUM(unlink("file"));
    NUM(rmdir("../b"));
    PTR(getcwd(buffer, sizeof buffer));
    FD(open("file", O_CREAT | O_WRONLY, 0600));
    FD(open(".", O_RDONLY));
    show_names(".");
    NUM(chdir(".."));
}

CASE(path_leaving)
{
    char buffer[PATH_MAX], *made;
    put(join_path(outside, "away"), "outside");
    mkdir("folder", 0755);
    put("folder/file", "inside");
    NUM(chdir(outside));
    say_path("outside", getcwd(buffer, sizeof buffer));
    show("away");
    NUM(chdir(join_path(case_folder, "folder")));
    show("file");
    /* By way of the top, and above it. */
    say_path("top", (NUM(chdir("../..")), getcwd(buffer, sizeof buffer)));
    NUM(chdir(".."));
    made = getcwd(buffer, sizeof buffer);
    YES(strncmp(top_folder, made, strlen(made)) == 0);
    const char *name = strrchr(top_folder, '/') + 1;
    NUM(access(name, F_OK));
    NUM(access(join_path(name, "path_leaving/folder/file"), F_OK));
    NUM(chdir(name));
    say_path("again", getcwd(buffer, sizeof buffer));
    NUM(chdir("path_leaving/folder"));
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "../../../%s/path_leaving/folder/file", name);
    NUM(access(path, R_OK));
    int file = FD(open(path, O_RDONLY));
    NUM(close(file));
    snprintf(path, sizeof path, "%s/../%s//path_leaving/./folder/../folder/file", top_folder, name);
    NUM(access(path, R_OK));
    say_path("real", realpath(path, buffer));
    snprintf(path, sizeof path, "../../../../../../../../../../..%s/away", outside);
    file = FD(open(path, O_RDONLY));
    NUM(read(file, buffer, 7));
    NUM(close(file));
    int folder = FD(open("../../..", O_RDONLY | O_DIRECTORY));
    file = FD(openat(folder, join_path(name, "path_leaving/folder/file"), O_RDONLY));
    NUM(read(file, buffer, 6));
    NUM(close(file));
    int away = FD(open(outside, O_RDONLY | O_DIRECTORY));
    snprintf(path, sizeof path, "%s/folder/file", case_folder);
    NUM(faccessat(away, path, F_OK, 0));
    NUM(faccessat(away, "away", F_OK, 0));
    NUM(fchdir(away));
    NUM(access("away", F_OK));
    NUM(access("file", F_OK));
}

CASE(path_links_in)
{
    char buffer[PATH_MAX], path[PATH_MAX];
    struct stat meta;
    mkdir("folder", 0755);
    put("folder/file", "inside");
    snprintf(path, sizeof path, "%s/in", outside);
    NUM(symlink(case_folder, path));
    NUM(chdir(outside));
    show("in/folder/file");
    NUM(stat("in/folder/file", &meta));
    say_stat("by a link from outside", &meta);
    show_names("in/folder");
    say_path("real", realpath("in/folder/file", buffer));
    int file = FD(open("in/folder/new", O_CREAT | O_RDWR, 0600));
    NUM(write(file, "new", 3));
    NUM(close(file));
    NUM(rename("in/folder/new", "in/folder/newer"));
    NUM(chdir("in/folder"));
    say_path("by a link", getcwd(buffer, sizeof buffer));
    show("newer");
    NUM(lstat(path, &meta));
    NUM(S_ISLNK(meta.st_mode));
    NUM(unlink(path));
    show_names("..");
    /* A link to one file. */
    snprintf(path, sizeof path, "%s/one", outside);
    NUM(symlink(join_path(case_folder, "folder/file"), path));
    show(path);
    file = FD(open(path, O_WRONLY | O_TRUNC));
    NUM(write(file, "by a link", 9));
    NUM(close(file));
    NUM(truncate(path, 4));
    NUM(chmod(path, 0600));
    show_stat("file");
    show("file");
}

CASE(path_links_out)
{
    char buffer[PATH_MAX], path[PATH_MAX + 10];
    struct stat meta;
    snprintf(path, sizeof path, "%s/away", outside);
    put(path, "outside");
    NUM(symlink(outside, "out"));
    NUM(symlink(path, "file"));
    NUM(symlink("/dev/null", "null"));
    show("file");
    show("out/away");
    show_names("out");
    NUM(stat("file", &meta));
    say_stat("what is outside", &meta);
    NUM(readlink("null", buffer, sizeof buffer));
    int null = FD(open("null", O_WRONLY));
    NUM(write(null, "x", 1));
    NUM(close(null));
    int file = FD(open("out/new", O_CREAT | O_WRONLY, 0600));
    NUM(write(file, "new", 3));
    NUM(close(file));
    NUM(rename("out/new", "out/newer"));
    say_path("real", realpath("out/newer", buffer));
    NUM(rename("out/newer", "inside"));
    NUM(link("out/newer", "inside"));
    NUM(link(path, "inside"));
    put("mine", "mine");
    NUM(rename("mine", "out/mine"));
    NUM(link("mine", "out/mine"));
    NUM(renameat2(AT_FDCWD, "mine", AT_FDCWD, "out/newer", RENAME_EXCHANGE));
    NUM(chdir("out"));
    say_path("out", getcwd(buffer, sizeof buffer));
    show("newer");
    NUM(chdir(".."));
    NUM(access(case_folder, F_OK));
    NUM(chdir(case_folder));
    NUM(unlink("out/newer"));
    NUM(unlink("out"));
    show_names(".");
    show_names(outside);
}

CASE(path_long)
{
    static char path[3 * PATH_MAX], name[300];
    memset(name, 'n', 255);
    put(name, "longest name");
    show(name);
    NUM(unlink(name));
    memset(name, 'n', 256);
    FD(open(name, O_CREAT | O_WRONLY, 0600));
    NUM(mkdir(name, 0755));
    NUM(access(name, F_OK));
    NUM(symlink("x", name));
    /* 4095 bytes are the longest path, made of many slashes and dots. */
    put("file", "found");
    memset(path, '/', sizeof path);
    for (int i = 0; i < 4090; i += 2)
        path[i] = '.';
    strcpy(path + 4091, "file");
    NUM(strlen(path));
    NUM(access(path, F_OK));
    int file = FD(open(path, O_RDONLY));
    NUM(close(file));
    memmove(path + 2, path, 4096);
    memcpy(path, "./", 2);
    NUM(strlen(path));
    NUM(access(path, F_OK));
    FD(open(path, O_RDONLY));
    NUM(mkdir(path, 0755));
    NUM(rename(path, "x"));
    NUM(rename("x", path));
    PTR(fopen(path, "r"));
    NUM(chdir(path));
    NUM(symlink(path, "long"));
    /* The same from the root on, one byte too long and much too long. */
    put("here", "");
    for (int bytes = 4095; bytes <= 5000; bytes = bytes == 4095 ? 4096 : bytes == 4096 ? 5000 : 5001) {
        char *here = getcwd(path, PATH_MAX);
        size_t length = here == NULL ? 0 : strlen(here);
        /* A folder whose name is as long as is left: slashes do not count as one. */
        memset(path + length, '/', sizeof path - length);
        strcpy(path + bytes - 4, "name");
        say("%zu", strlen(path));
        NUM(mkdir(path, 0755));
        NUM(rmdir(path));
        NUM(mkfifo(path, 0600));
        NUM(link("here", path));
        NUM(unlink(path));
        NUM(symlink("x", path));
        NUM(rename("here", path));
        NUM(rename(path, "here"));
        NUM(truncate(path, 0));
        NUM(chmod(path, 0600));
        NUM(statfs(path, &(struct statfs){0}));
        NUM(setxattr(path, "user.a", "", 0, 0));
        NUM(pathconf(path, _PC_PATH_MAX));
        NUM(pathconf(path, _PC_NAME_MAX));
        PTR(realpath(path, NULL));
    }
    memset(path, '/', 5000);
    strcpy(path + 5000, "tmp");
    PTR(realpath(path, NULL));
    memset(path, 't', 4095);
    path[4095] = 0;
    NUM(symlink(path, "long"));
    NUM(readlink("long", path, sizeof path));
    FD(open("long", O_RDONLY));
    /* Folders so deep that no path reaches them. */
    memset(name, 'd', 200);
    name[200] = 0;
    int made = 0;
    for (int i = 0; i < 25 && mkdir(name, 0755) == 0 && chdir(name) == 0; i++)
        made++;
    NUM(made);
    put("deep", "very deep");
    show("deep");
    PTR(getcwd(path, PATH_MAX));
    char *whole = PTR(getcwd(NULL, 0));
    YES(whole != NULL && strlen(whole) > 5000);
    free(whole);
}

CASE(path_dots)
{
    mkdir("folder", 0755);
    put("folder/file", "x");
    put("file", "top");
    static const char *const paths[] = {"folder/../file", "folder//file", "./folder/./file", "folder/file/.", "folder/file/..",
                                        "folder/none/../file", "folder/..", "folder/.", "file/../file", "folder/../folder/file", "...", ".../x"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct stat meta;
        errno = 0;
        int result = stat(paths[i], &meta), error = errno;
        say("%s: %d %s", paths[i], result, error_name(error));
    }
    NUM(mkdir(".", 0755));
    NUM(mkdir("..", 0755));
    NUM(rmdir("."));
    NUM(rmdir(".."));
    NUM(rmdir("folder/."));
    NUM(rmdir("folder/.."));
    NUM(unlink("."));
    NUM(unlink("folder/.."));
    NUM(rename(".", "x"));
    NUM(rename("folder", "."));
    NUM(rename("folder/..", "y"));
    NUM(link("file", "."));
    NUM(symlink("file", "."));
    NUM(mkdir("new/", 0755));
    NUM(mkdir("new2//", 0755));
    NUM(rmdir("new/"));
    NUM(rmdir("new2//"));
    NUM(mkdir("file/", 0755));
    NUM(unlink("file/"));
    NUM(rename("file", "other/"));
    NUM(rename("folder/", "moved/"));
    NUM(rename("file/", "x"));
    show_names(".");
}

CASE(path_bytes)
{
    put("with space", "1");
    put("\xff\xfe", "2");
    put("new\nline", "3");
    put("\xc3\xa4\xc3\xb6", "4");
    show_names(".");
    show("\xff\xfe");
    NUM(access("\xff\xfe", F_OK));
    NUM(access("\xc3\xa4\xc3\xb6", F_OK));
}

/* The top folder itself, from outside and from inside. */
CASE(path_top)
{
    struct stat top, dotdot;
    NUM(stat(top_folder, &top));
    NUM(stat("..", &dotdot));
    YES(top.st_ino == dotdot.st_ino && top.st_dev == dotdot.st_dev);
    YES(S_ISDIR(top.st_mode));
    NUM(mkdir(top_folder, 0755));
    NUM(open(top_folder, O_WRONLY));
    int folder = FD(open(top_folder, O_RDONLY | O_DIRECTORY));
    NUM(faccessat(folder, "path_top", F_OK, 0));
    NUM(close(folder));
    char path[PATH_MAX + 20];
    snprintf(path, sizeof path, "%s/", top_folder);
    NUM(access(path, F_OK));
    snprintf(path, sizeof path, "%sx", top_folder);
    NUM(access(path, F_OK));
    snprintf(path, sizeof path, "%s/path_top/../path_top", top_folder);
    NUM(access(path, F_OK));
}

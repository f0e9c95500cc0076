/* Opening: flags, modes, what is refused. */
#include "calls.h"

#include <linux/openat2.h>
#include <sys/syscall.h>

CASE(open_modes)
{
    char byte;
    int file = FD(open("new", O_RDONLY));
    file = FD(open("new", O_RDWR | O_CREAT, 0640));
    NUM(write(file, "abcdef", 6));
    NUM(close(file));
    show_stat("new");
    file = FD(open("new", O_RDONLY));
    NUM(write(file, "x", 1));
    NUM(read(file, &byte, 1));
    NUM(ftruncate(file, 3));
    NUM(close(file));
    file = FD(open("new", O_WRONLY));
    NUM(read(file, &byte, 1));
    NUM(pread(file, &byte, 1, 0));
    NUM(pwrite(file, "X", 1, 2));
    NUM(close(file));
    file = FD(open("new", 3));
    NUM(read(file, &byte, 1));
    NUM(write(file, "y", 1));
    NUM(fcntl(file, F_GETFL) & O_ACCMODE);
    NUM(close(file));
    show("new");
    file = FD(open("new", O_WRONLY | O_TRUNC));
    NUM(lseek(file, 0, SEEK_END));
    NUM(close(file));
    put("new", "abc");
    file = FD(open("new", O_RDONLY | O_TRUNC));
    NUM(close(file));
    show("new");
    file = FD(creat("made", 0400));
    NUM(write(file, "made", 4));
    NUM(close(file));
    show_stat("made");
    file = FD(creat("new", 0400));
    NUM(close(file));
    show_stat("new");
    file = FD(open("suid", O_CREAT | O_WRONLY, 07777));
    NUM(close(file));
    show_stat("suid");
}

CASE(open_exclusive)
{
    int file = FD(open("file", O_CREAT | O_EXCL | O_RDWR, 0600));
    NUM(close(file));
    FD(open("file", O_CREAT | O_EXCL | O_RDWR, 0600));
    NUM(symlink("nowhere", "dangling"));
    FD(open("dangling", O_CREAT | O_EXCL | O_RDWR, 0600));
    FD(open("dangling", O_RDONLY));
    file = FD(open("dangling", O_CREAT | O_RDWR, 0600));
    NUM(write(file, "through", 7));
    NUM(close(file));
    show("nowhere");
    NUM(mkdir("folder", 0755));
    FD(open("folder", O_CREAT | O_EXCL | O_RDWR, 0600));
    FD(open("folder", O_CREAT | O_RDWR, 0600));
    FD(open("folder", O_CREAT, 0600));
    FD(open("folder/", O_CREAT | O_WRONLY, 0600));
    FD(open("none/", O_CREAT | O_WRONLY, 0600));
    FD(open("file/", O_RDONLY));
    FD(open("file/below", O_RDONLY));
    FD(open("file/below", O_CREAT | O_RDWR, 0600));
    FD(open("folder/.", O_CREAT | O_RDWR, 0600));
    FD(open("none/below", O_CREAT | O_RDWR, 0600));
}

CASE(open_directory)
{
    char byte;
    NUM(mkdir("folder", 0755));
    put("file", "file");
    int folder = FD(open("folder", O_RDONLY));
    NUM(read(folder, &byte, 1));
    NUM(pread(folder, &byte, 1, 0));
    NUM(write(folder, &byte, 1));
    NUM(ftruncate(folder, 0));
    NUM(fsync(folder));
    NUM(fdatasync(folder));
    NUM(lseek(folder, 0, SEEK_SET));
    NUM(close(folder));
    folder = FD(open("folder", O_RDONLY | O_DIRECTORY));
    NUM(close(folder));
    FD(open("file", O_RDONLY | O_DIRECTORY));
    FD(open("none", O_RDONLY | O_DIRECTORY));
    FD(open("folder", O_WRONLY));
    FD(open("folder", O_RDWR));
    FD(open("folder", O_RDONLY | O_TRUNC));
    FD(open("new", O_RDONLY | O_DIRECTORY | O_CREAT, 0755));
    show_names(".");
}

CASE(open_links)
{
    put("file", "content");
    NUM(symlink("file", "link"));
    NUM(symlink(".", "here"));
    NUM(symlink("loop2", "loop1"));
    NUM(symlink("loop1", "loop2"));
    FD(open("link", O_RDONLY | O_NOFOLLOW));
    FD(open("link", O_RDONLY | O_NOFOLLOW | O_CREAT, 0600));
    FD(open("here", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    FD(open("loop1", O_RDONLY));
    FD(open("loop1/file", O_RDONLY));
    int file = FD(open("here/here/link", O_RDONLY | O_NOFOLLOW));
    file = FD(open("here/here/file", O_RDONLY | O_NOFOLLOW));
    NUM(close(file));
    file = FD(open("here/link", O_RDONLY));
    NUM(close(file));
    show("here/here/here/link");
    file = FD(open("here/", O_RDONLY | O_NOFOLLOW));
    NUM(close(file));
}

CASE(open_path_only)
{
    struct stat meta;
    char byte, target[100];
    put("file", "content");
    NUM(symlink("file", "link"));
    NUM(mkdir("folder", 0755));
    put("folder/inner", "inner");
    int file = FD(open("file", O_PATH));
    NUM(read(file, &byte, 1));
    NUM(write(file, &byte, 1));
    NUM(pread(file, &byte, 1, 0));
    NUM(fchmod(file, 0600));
    NUM(ftruncate(file, 0));
    NUM(fsync(file));
    NUM(lseek(file, 0, SEEK_SET));
    NUM(fstat(file, &meta));
    say_stat("file by O_PATH", &meta);
    NUM((fcntl(file, F_GETFL) & O_PATH) == O_PATH);
    NUM(close(file));
    int link = FD(open("link", O_PATH | O_NOFOLLOW));
    NUM(fstat(link, &meta));
    say_stat("link by O_PATH", &meta);
    memset(target, 0, sizeof target);
    NUM(readlinkat(link, "", target, sizeof target));
    STR(target);
    NUM(close(link));
    int folder = FD(open("folder", O_PATH | O_DIRECTORY));
    file = FD(openat(folder, "inner", O_RDONLY));
    NUM(read(file, &byte, 1));
    NUM(close(file));
    NUM(fchdir(folder));
    show("inner");
    NUM(close(folder));
}

CASE(open_temporary)
{
    struct stat meta;
    char path[64], text[20] = "";
    int file = FD(open(".", O_TMPFILE | O_RDWR, 0640));
    NUM(write(file, "temporary", 9));
    NUM(fstat(file, &meta));
    say_stat("without a name", &meta);
    show_names(".");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    NUM(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    NUM(linkat(file, "", AT_FDCWD, "named2", AT_EMPTY_PATH));
    NUM(close(file));
    show_names(".");
    show("named2");
    file = FD(open(".", O_TMPFILE | O_RDWR | O_EXCL, 0640));
    NUM(write(file, "exclusive", 9));
    NUM(linkat(file, "", AT_FDCWD, "named3", AT_EMPTY_PATH));
    NUM(pread(file, text, 9, 0));
    STR(text);
    NUM(close(file));
    FD(open(".", O_TMPFILE | O_RDONLY, 0640));
    FD(open("named", O_TMPFILE | O_RDWR, 0640));
    FD(open("none", O_TMPFILE | O_RDWR, 0640));
    show_names(".");
}

CASE(open_append)
{
    char text[64] = "";
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR | O_APPEND));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(write(file, "ab", 2));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(lseek(file, 2, SEEK_SET));
    NUM(read(file, text, 3));
    STR(text);
    NUM(write(file, "cd", 2));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(pwrite(file, "ef", 2, 0));
    NUM(fcntl(file, F_SETFL, 0));
    NUM(pwrite(file, "gh", 2, 0));
    NUM(write(file, "ij", 2));
    NUM(fcntl(file, F_SETFL, O_APPEND));
    NUM(lseek(file, 0, SEEK_SET));
    NUM(write(file, "kl", 2));
    NUM(close(file));
    show("file");
    int one = open("file", O_WRONLY | O_APPEND), two = open("file", O_WRONLY | O_APPEND);
    for (int i = 0; i < 5; i++) {
        NUM(write(one, "1", 1));
        NUM(write(two, "2", 1));
    }
    NUM(close(one));
    NUM(close(two));
    show("file");
}

CASE(open_synchronous)
{
    int file = FD(open("file", O_RDWR | O_CREAT | O_SYNC, 0600));
    NUM(write(file, "sync", 4));
    NUM(fcntl(file, F_GETFL) == (O_RDWR | O_SYNC | 0100000) || fcntl(file, F_GETFL) == (O_RDWR | O_SYNC));
    NUM(close(file));
    file = FD(open("file", O_RDWR | O_DSYNC));
    NUM(pwrite(file, "dsync", 5, 4));
    NUM((fcntl(file, F_GETFL) & O_SYNC) == O_DSYNC);
    NUM(close(file));
    show("file");
    file = FD(open("file", O_RDWR | O_NONBLOCK | O_NOCTTY | O_LARGEFILE));
    NUM((fcntl(file, F_GETFL) & O_NONBLOCK) != 0);
    NUM(write(file, "n", 1));
    NUM(close(file));
    file = FD(open("file", O_RDWR | O_NOATIME));
    NUM(close(file));
    file = FD(open("file", O_RDWR | O_CLOEXEC));
    NUM(fcntl(file, F_GETFD));
    NUM(close(file));
    FD(open("file", O_RDWR | O_ASYNC));
    show("file");
}

CASE(open_direct)
{
    unsigned char *bytes = NULL;
    NUM(posix_memalign((void **)&bytes, 4096, 16384));
    fill_pattern(bytes, 16384, 0);
    int file = FD(open("file", O_RDWR | O_CREAT | O_DIRECT, 0600));
    NUM(pwrite(file, bytes, 16384, 0));
    memset(bytes, 0, 16384);
    NUM(pread(file, bytes, 8192, 4096));
    YES(is_pattern(bytes, 8192, 4096));
    NUM(pread(file, bytes, 8192, 12288));
    YES(is_pattern(bytes, 4096, 12288));
    NUM(pread(file, bytes, 4096, 16384));
    NUM((fcntl(file, F_GETFL) & O_DIRECT) != 0);
    NUM(fcntl(file, F_SETFL, 0));
    NUM(pwrite(file, "odd", 3, 5));
    NUM(close(file));
    NUM(truncate("file", 20000));
    file = FD(open("file", O_RDONLY | O_DIRECT));
    NUM(pread(file, bytes, 8192, 16384));
    NUM(close(file));
    free(bytes);
}

CASE(openat_folders)
{
    char path[PATH_MAX];
    NUM(mkdir("folder", 0755));
    int folder = FD(open("folder", O_RDONLY | O_DIRECTORY));
    int file = FD(openat(folder, "file", O_CREAT | O_RDWR, 0600));
    NUM(write(file, "relative", 8));
    FD(openat(file, "file", O_RDONLY));
    NUM(close(file));
    show("folder/file");
    file = FD(openat(AT_FDCWD, "folder/file", O_RDONLY));
    NUM(close(file));
    snprintf(path, sizeof path, "%s/folder/file", case_folder);
    file = FD(openat(-5, path, O_RDONLY));
    NUM(close(file));
    file = FD(openat(folder, "../folder/file", O_RDONLY));
    NUM(close(file));
    FD(openat(folder, "", O_RDONLY));
    FD(openat(-5, "file", O_RDONLY));
    FD(openat(-5, "", O_RDONLY));
    FD(openat(folder, "none", O_RDONLY));
    NUM(rename("folder", "moved"));
    file = FD(openat(folder, "file", O_RDONLY));
    NUM(close(file));
    int other = FD(openat(folder, "..", O_RDONLY | O_DIRECTORY));
    file = FD(openat(other, "moved/file", O_RDONLY));
    NUM(close(file));
    NUM(unlink("moved/file"));
    NUM(rmdir("moved"));
    FD(openat(folder, "file", O_CREAT | O_RDWR, 0600));
    FD(openat(folder, "..", O_RDONLY));
    NUM(close(folder));
    FD(openat(folder, "file", O_RDONLY));
    NUM(close(other));
}

static int openat2_(int at, const char *path, int flags, int mode, int resolve)
{
    struct open_how how = {.flags = (unsigned)flags, .mode = (unsigned)mode, .resolve = (unsigned)resolve};
    return (int)syscall(SYS_openat2, at, path, &how, sizeof how);
}

CASE(open_by_syscall)
{
    char text[16] = "";
    int file = FD((int)syscall(SYS_openat, AT_FDCWD, "file", O_CREAT | O_RDWR, 0600));
    NUM(syscall(SYS_write, file, "by number", 9));
    NUM(syscall(SYS_pread64, file, text, 9, 0));
    STR(text);
    NUM(write(file, "!", 1));
    NUM(syscall(SYS_lseek, file, 0, SEEK_CUR));
    NUM(syscall(SYS_close, file));
    show("file");
    file = FD(openat2_(AT_FDCWD, "file", O_RDONLY, 0, 0));
    NUM(close(file));
    FD(openat2_(AT_FDCWD, "../x", O_RDONLY, 0, RESOLVE_BENEATH));
    FD(openat2_(AT_FDCWD, "file", O_RDONLY, 0644, 0));
    FD(openat2_(AT_FDCWD, "file", 1 << 30, 0, 0));
    NUM(symlink("file", "link"));
    FD(openat2_(AT_FDCWD, "link", O_RDONLY, 0, RESOLVE_NO_SYMLINKS));
    NUM(syscall(SYS_unlink, "file"));
    show_names(".");
    /* Paths of the kernel's. */
    int etc = open("/etc", O_RDONLY);
    YES(openat2_(AT_FDCWD, "/etc/passwd", O_RDONLY, 0, RESOLVE_NO_SYMLINKS) >= 0);
    YES(openat2_(etc, "passwd", O_RDONLY, 0, RESOLVE_BENEATH) >= 0);
    YES(openat2_(etc, "../etc/passwd", O_RDONLY, 0, RESOLVE_BENEATH) < 0 && errno == EXDEV);
    /* What is wrong with the question itself. */
    struct open_how how = {0};
    NUM(syscall(SYS_openat2, AT_FDCWD, "none", &how, 8));
    NUM(syscall(SYS_openat2, AT_FDCWD, "none", NULL, sizeof how));
    how.resolve = 1 << 20;
    NUM(syscall(SYS_openat2, AT_FDCWD, "none", &how, sizeof how));
    how = (struct open_how){.flags = O_CREAT, .mode = 010000};
    NUM(syscall(SYS_openat2, AT_FDCWD, "none", &how, sizeof how));
}

CASE(open_many)
{
    enum { COUNT = 300 };
    int files[COUNT];
    bool distinct = true, whole = true;
    char name[20];
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "file%d", i);
        files[i] = open(name, O_CREAT | O_RDWR, 0600);
        distinct = distinct && files[i] >= 0 && (i == 0 || files[i] == files[i - 1] + 1);
        if (write(files[i], name, strlen(name)) != (ssize_t)strlen(name))
            whole = false;
    }
    YES(distinct);
    for (int i = 0; i < COUNT; i++) {
        char text[20] = "";
        snprintf(name, sizeof name, "file%d", i);
        if (pread(files[i], text, sizeof text, 0) != (ssize_t)strlen(name) || strcmp(text, name) != 0)
            whole = false;
        close(files[i]);
    }
    YES(whole);
}

CASE(open_unlinked)
{
    char text[20] = "";
    struct stat meta;
    int file = FD(open("file", O_CREAT | O_RDWR, 0600));
    NUM(write(file, "kept", 4));
    NUM(unlink("file"));
    NUM(write(file, " on", 3));
    NUM(pread(file, text, 20, 0));
    STR(text);
    NUM(fstat(file, &meta));
    say_stat("unlinked", &meta);
    NUM(linkat(file, "", AT_FDCWD, "again", AT_EMPTY_PATH));
    int other = FD(open("file", O_CREAT | O_EXCL | O_RDWR, 0600));
    NUM(write(other, "other", 5));
    NUM(pread(file, text, 20, 0));
    NUM(close(other));
    NUM(close(file));
    show_names(".");
    show("file");
}

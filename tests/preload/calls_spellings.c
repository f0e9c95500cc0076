/*
 * The names that the C library has for one call: those with 64, those that start with underscores, those of
 * programs that were built long ago. Each is found in the way a program finds it: by the dynamic linker.
 */
#include "calls.h"

#include <dirent.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#define EACH(name, ...)                                                             \
    for (const char *const *next_ = (const char *const[]){__VA_ARGS__, NULL}, *name; \
         (name = *next_) != NULL; next_++)

/* What came of the call by this name. */
#define TOLD(name, call)                                                \
    ({                                                                  \
        errno = 0;                                                      \
        long long result_ = (long long)(call);                          \
        int error_ = errno;                                             \
        say("%s = %lld %s", name, result_, result_ == -1 ? error_name(error_) : ""); \
        result_;                                                        \
    })

CASE(spelled_open)
{
    EACH (name, "open", "open64", "__open", "__open64", "creat", "creat64") {
        int (*call)(const char *, int, ...) = (int (*)(const char *, int, ...))symbol(name);
        if (call == NULL)
            continue;
        bool makes = strncmp(name, "creat", 5) == 0;
        int file = makes ? call(name, 0640) : call(name, O_CREAT | O_RDWR | O_EXCL, 0640);
        TOLD(name, file < 0 ? -1 : write(file, name, strlen(name)));
        close(file);
        show(name);
        show_stat(name);
        TOLD(name, makes ? call("none/x", 0600) : call("none", O_RDONLY));
    }
    EACH (name, "__open_2", "__open64_2") {
        int (*call)(const char *, int) = (int (*)(const char *, int))symbol(name);
        put("file", "x");
        int file = call("file", O_RDWR);
        TOLD(name, file < 0 ? -1 : write(file, name, strlen(name)));
        close(file);
        show("file");
        TOLD(name, call("none", O_RDONLY));
    }
    int folder = open(".", O_RDONLY);
    EACH (name, "openat", "openat64") {
        int (*call)(int, const char *, int, ...) = (int (*)(int, const char *, int, ...))symbol(name);
        int file = call(folder, name, O_CREAT | O_RDWR | O_EXCL, 0600);
        TOLD(name, file < 0 ? -1 : write(file, name, strlen(name)));
        close(file);
        show(name);
        TOLD(name, call(AT_FDCWD, "none", O_RDONLY));
    }
    EACH (name, "__openat_2", "__openat64_2") {
        int (*call)(int, const char *, int) = (int (*)(int, const char *, int))symbol(name);
        int file = call(folder, "file", O_RDONLY);
        TOLD(name, file < 0 ? -1 : close(file));
        TOLD(name, call(folder, "none", O_RDONLY));
    }
}

CASE(spelled_data)
{
    char text[40];
    struct iovec vector = {text, 5};
    put("file", "0123456789");
    int file = open("file", O_RDWR);
    EACH (name, "read", "__read") {
        ssize_t (*call)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))symbol(name);
        TOLD(name, call(file, text, 3));
    }
    EACH (name, "write", "__write") {
        ssize_t (*call)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))symbol(name);
        TOLD(name, call(file, "w", 1));
    }
    EACH (name, "lseek", "lseek64", "__lseek") {
        off_t (*call)(int, off_t, int) = (off_t (*)(int, off_t, int))symbol(name);
        TOLD(name, call(file, 1, SEEK_CUR));
        TOLD(name, call(file, -100, SEEK_SET));
    }
    EACH (name, "pread", "pread64", "__pread64") {
        ssize_t (*call)(int, void *, size_t, off_t) = (ssize_t (*)(int, void *, size_t, off_t))symbol(name);
        memset(text, 0, sizeof text);
        TOLD(name, call(file, text, 5, 4));
        STR(text);
    }
    EACH (name, "pwrite", "pwrite64", "__pwrite64") {
        ssize_t (*call)(int, const void *, size_t, off_t) = (ssize_t (*)(int, const void *, size_t, off_t))symbol(name);
        TOLD(name, call(file, "pw", 2, lseek(file, 0, SEEK_END)));
    }
    EACH (name, "preadv", "preadv64", "pwritev", "pwritev64") {
        ssize_t (*call)(int, const struct iovec *, int, off_t) =
            (ssize_t (*)(int, const struct iovec *, int, off_t))symbol(name);
        TOLD(name, call(file, &vector, 1, 2));
    }
    EACH (name, "preadv2", "preadv64v2", "pwritev2", "pwritev64v2") {
        ssize_t (*call)(int, const struct iovec *, int, off_t, int) =
            (ssize_t (*)(int, const struct iovec *, int, off_t, int))symbol(name);
        TOLD(name, call(file, &vector, 1, 2, 0));
    }
    EACH (name, "__pread_chk", "__pread64_chk") {
        ssize_t (*call)(int, void *, size_t, off_t, size_t) = (ssize_t (*)(int, void *, size_t, off_t, size_t))symbol(name);
        TOLD(name, call(file, text, 5, 0, sizeof text));
    }
    ssize_t (*read_chk)(int, void *, size_t, size_t) = (ssize_t (*)(int, void *, size_t, size_t))symbol("__read_chk");
    lseek(file, 0, SEEK_SET);
    TOLD("__read_chk", read_chk(file, text, 4, sizeof text));
    show("file");
    EACH (name, "ftruncate", "ftruncate64") {
        int (*call)(int, off_t) = (int (*)(int, off_t))symbol(name);
        TOLD(name, call(file, 5));
        TOLD(name, call(file, -5));
    }
    EACH (name, "truncate", "truncate64") {
        int (*call)(const char *, off_t) = (int (*)(const char *, off_t))symbol(name);
        TOLD(name, call("file", 7));
        TOLD(name, call("none", 5));
    }
    show("file");
    EACH (name, "dup", "__close", "close", "fsync", "fdatasync", "syncfs") {
        int (*call)(int) = (int (*)(int))symbol(name);
        TOLD(name, call(file) == -1 ? -1 : 0);
        if (strstr(name, "close"))
            file = open("file", O_RDWR);
    }
    int (*dup2_)(int, int) = (int (*)(int, int))symbol("__dup2");
    TOLD("__dup2", dup2_(file, 99));
    TOLD("pread", pread(99, text, 3, 0));
}

CASE(spelled_room)
{
    int file = open("file", O_CREAT | O_RDWR, 0600);
    EACH (name, "fallocate", "fallocate64") {
        int (*call)(int, int, off_t, off_t) = (int (*)(int, int, off_t, off_t))symbol(name);
        TOLD(name, call(file, 0, 0, 5000));
    }
    EACH (name, "posix_fallocate", "posix_fallocate64") {
        int (*call)(int, off_t, off_t) = (int (*)(int, off_t, off_t))symbol(name);
        TOLD(name, call(file, 5000, 5000));
    }
    EACH (name, "posix_fadvise", "posix_fadvise64") {
        int (*call)(int, off_t, off_t, int) = (int (*)(int, off_t, off_t, int))symbol(name);
        TOLD(name, call(file, 0, 0, POSIX_FADV_WILLNEED));
    }
    EACH (name, "mmap", "mmap64") {
        void *(*call)(void *, size_t, int, int, int, off_t) = (void *(*)(void *, size_t, int, int, int, off_t))symbol(name);
        char *bytes = call(NULL, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        TOLD(name, bytes == MAP_FAILED ? -1 : bytes[0]);
        bytes[0]++;
        munmap(bytes, 10000);
    }
    EACH (name, "sendfile", "sendfile64") {
        ssize_t (*call)(int, int, off_t *, size_t) = (ssize_t (*)(int, int, off_t *, size_t))symbol(name);
        off_t at = 9990;
        int other = open(name, O_CREAT | O_RDWR, 0600);
        TOLD(name, call(other, file, &at, 100));
        close(other);
    }
    EACH (name, "lockf", "lockf64") {
        int (*call)(int, int, off_t) = (int (*)(int, int, off_t))symbol(name);
        TOLD(name, call(file, F_TLOCK, 10));
    }
    EACH (name, "fcntl", "fcntl64", "__fcntl") {
        int (*call)(int, int, ...) = (int (*)(int, int, ...))symbol(name);
        struct flock lock = {.l_type = F_WRLCK};
        TOLD(name, call(file, F_SETLK, &lock));
        TOLD(name, call(file, F_DUPFD, 500) >= 500);
        TOLD(name, call(file, F_GETFD));
        TOLD(name, call(-1, F_GETFD));
    }
}

CASE(spelled_stat)
{
    struct stat meta;
    put("file", "0123456789");
    symlink("file", "link");
    int file = open("file", O_RDONLY), folder = open(".", O_RDONLY);
    EACH (name, "stat", "stat64", "lstat", "lstat64") {
        int (*call)(const char *, struct stat *) = (int (*)(const char *, struct stat *))symbol(name);
        TOLD(name, call("link", &meta));
        say_stat(name, &meta);
        TOLD(name, call("none", &meta));
    }
    EACH (name, "fstat", "fstat64") {
        int (*call)(int, struct stat *) = (int (*)(int, struct stat *))symbol(name);
        TOLD(name, call(file, &meta));
        say_stat(name, &meta);
        TOLD(name, call(-1, &meta));
    }
    EACH (name, "fstatat", "fstatat64") {
        int (*call)(int, const char *, struct stat *, int) = (int (*)(int, const char *, struct stat *, int))symbol(name);
        TOLD(name, call(folder, "link", &meta, AT_SYMLINK_NOFOLLOW));
        say_stat(name, &meta);
        TOLD(name, call(file, "", &meta, AT_EMPTY_PATH));
    }
    EACH (name, "statfs", "statfs64", "statvfs", "statvfs64") {
        struct statfs64 first;
        int (*call)(const char *, void *) = (int (*)(const char *, void *))symbol(name);
        TOLD(name, call("file", &first));
        TOLD(name, call("none", &first));
    }
    EACH (name, "fstatfs", "fstatfs64", "fstatvfs", "fstatvfs64") {
        struct statfs64 first;
        int (*call)(int, void *) = (int (*)(int, void *))symbol(name);
        TOLD(name, call(file, &first));
        TOLD(name, call(-1, &first));
    }
}

/* As the dynamic linker binds them in a program that was built before version 2.33 of the C library. */
#define OLD(name) __asm__(".symver old" #name ", __" #name "@GLIBC_2.2.5")
OLD(xstat);
OLD(xstat64);
OLD(fxstat);
OLD(fxstat64);
OLD(lxstat);
OLD(lxstat64);
OLD(xmknod);
__asm__(".symver oldfxstatat, __fxstatat@GLIBC_2.4");
__asm__(".symver oldfxstatat64, __fxstatat64@GLIBC_2.4");
__asm__(".symver oldxmknodat, __xmknodat@GLIBC_2.4");
int oldxstat(int, const char *, struct stat *);
int oldxstat64(int, const char *, struct stat *);
int oldlxstat(int, const char *, struct stat *);
int oldlxstat64(int, const char *, struct stat *);
int oldfxstat(int, int, struct stat *);
int oldfxstat64(int, int, struct stat *);
int oldfxstatat(int, int, const char *, struct stat *, int);
int oldfxstatat64(int, int, const char *, struct stat *, int);
int oldxmknod(int, const char *, mode_t, dev_t *);
int oldxmknodat(int, int, const char *, mode_t, dev_t *);

CASE(spelled_old)
{
    struct stat meta;
    dev_t none = 0;
    put("file", "0123456789");
    symlink("file", "link");
    int file = open("file", O_RDONLY), folder = open(".", O_RDONLY);
    NUM(oldxstat(1, "link", &meta));
    say_stat("xstat", &meta);
    NUM(oldxstat64(1, "link", &meta));
    say_stat("xstat64", &meta);
    NUM(oldlxstat(1, "link", &meta));
    say_stat("lxstat", &meta);
    NUM(oldlxstat64(1, "link", &meta));
    NUM(oldfxstat(1, file, &meta));
    say_stat("fxstat", &meta);
    NUM(oldfxstat64(1, file, &meta));
    NUM(oldfxstatat(1, folder, "link", &meta, AT_SYMLINK_NOFOLLOW));
    say_stat("fxstatat", &meta);
    NUM(oldfxstatat64(1, folder, "link", &meta, 0));
    say_stat("fxstatat64", &meta);
    NUM(oldxstat(1, "none", &meta));
    NUM(oldlxstat(1, "none", &meta));
    NUM(oldfxstat(1, -1, &meta));
    NUM(oldxstat(77, "file", &meta));
    NUM(oldfxstat(77, file, &meta));
    NUM(oldxmknod(0, "fifo", S_IFIFO | 0600, &none));
    NUM(oldxmknodat(0, folder, "fifo2", S_IFIFO | 0600, &none));
    NUM(oldxmknod(5, "fifo3", S_IFIFO | 0600, &none));
    show_names(".");
}

CASE(spelled_streams)
{
    put("file", "0123456789");
    EACH (name, "fopen", "fopen64", "_IO_fopen") {
        FILE *(*call)(const char *, const char *) = (FILE * (*)(const char *, const char *)) symbol(name);
        FILE *stream = call("file", "r+");
        TOLD(name, stream == NULL ? -1 : fgetc(stream));
        if (stream)
            fclose(stream);
        TOLD(name, call("none", "r") == NULL ? -1 : 0);
    }
    EACH (name, "freopen", "freopen64") {
        FILE *(*call)(const char *, const char *, FILE *) = (FILE * (*)(const char *, const char *, FILE *)) symbol(name);
        FILE *stream = call("file", "r", fopen("/dev/null", "r"));
        TOLD(name, stream == NULL ? -1 : fgetc(stream));
        if (stream)
            fclose(stream);
    }
    EACH (name, "fdopen", "_IO_fdopen") {
        FILE *(*call)(int, const char *) = (FILE * (*)(int, const char *)) symbol(name);
        FILE *stream = call(open("file", O_RDONLY), "r");
        TOLD(name, stream == NULL ? -1 : fgetc(stream));
        if (stream)
            fclose(stream);
    }
    FILE *stream = fopen("file", "r+");
    EACH (name, "fseeko", "fseeko64", "fseek") {
        int (*call)(FILE *, off_t, int) = (int (*)(FILE *, off_t, int))symbol(name);
        TOLD(name, call(stream, 3, SEEK_SET));
    }
    EACH (name, "ftello", "ftello64", "ftell") {
        off_t (*call)(FILE *) = (off_t(*)(FILE *))symbol(name);
        TOLD(name, call(stream));
    }
    EACH (name, "fgetpos", "fgetpos64", "fsetpos", "fsetpos64") {
        static fpos_t place;
        int (*call)(FILE *, fpos_t *) = (int (*)(FILE *, fpos_t *))symbol(name);
        TOLD(name, call(stream, &place));
    }
    EACH (name, "tmpfile", "tmpfile64") {
        FILE *(*call)(void) = (FILE * (*)(void)) symbol(name);
        FILE *made = call();
        TOLD(name, made == NULL ? -1 : fputc('x', made));
        if (made)
            fclose(made);
    }
    EACH (name, "mkstemp", "mkstemp64") {
        int (*call)(char *) = (int (*)(char *))symbol(name);
        char path[] = "madeXXXXXX";
        TOLD(name, call(path) < 0 ? -1 : access(path, F_OK));
    }
    EACH (name, "mkostemp", "mkostemp64", "mkstemps", "mkstemps64") {
        int (*call)(char *, int) = (int (*)(char *, int))symbol(name);
        char path[] = "madeXXXXXX";
        TOLD(name, call(path, 0) < 0 ? -1 : access(path, F_OK));
    }
    EACH (name, "mkostemps", "mkostemps64") {
        int (*call)(char *, int, int) = (int (*)(char *, int, int))symbol(name);
        char path[] = "madeXXXXXX.c";
        TOLD(name, call(path, 2, O_CLOEXEC) < 0 ? -1 : access(path, F_OK));
    }
}

static int take_any(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)path, (void)stat, (void)walk;
    return type == FTW_F ? 7 : 0;
}

static int take_old(const char *path, const struct stat *stat, int type)
{
    (void)path, (void)stat;
    return type == FTW_F ? 8 : 0;
}

CASE(spelled_directories)
{
    put("file", "x");
    EACH (name, "readdir", "readdir64") {
        struct dirent *(*call)(DIR *) = (struct dirent * (*)(DIR *)) symbol(name);
        DIR *stream = opendir(".");
        int count = 0;
        while (call(stream) != NULL)
            count++;
        TOLD(name, count);
        closedir(stream);
    }
    EACH (name, "readdir_r", "readdir64_r") {
        int (*call)(DIR *, struct dirent *, struct dirent **) = (int (*)(DIR *, struct dirent *, struct dirent **))symbol(name);
        DIR *stream = opendir(".");
        struct dirent entry, *result = NULL;
        int count = 0;
        while (call(stream, &entry, &result) == 0 && result != NULL)
            count++;
        TOLD(name, count);
        closedir(stream);
    }
    EACH (name, "scandir", "scandir64") {
        struct dirent **list;
        int (*call)(const char *, struct dirent ***, void *, void *) =
            (int (*)(const char *, struct dirent ***, void *, void *))symbol(name);
        TOLD(name, call(".", &list, NULL, NULL));
    }
    EACH (name, "scandirat", "scandirat64") {
        struct dirent **list;
        int (*call)(int, const char *, struct dirent ***, void *, void *) =
            (int (*)(int, const char *, struct dirent ***, void *, void *))symbol(name);
        TOLD(name, call(AT_FDCWD, ".", &list, NULL, NULL));
    }
    EACH (name, "glob", "glob64") {
        glob_t found;
        int (*call)(const char *, int, void *, glob_t *) = (int (*)(const char *, int, void *, glob_t *))symbol(name);
        TOLD(name, call("*", 0, NULL, &found));
        TOLD(name, found.gl_pathc);
    }
    EACH (name, "nftw", "nftw64") {
        int (*call)(const char *, void *, int, int) = (int (*)(const char *, void *, int, int))symbol(name);
        TOLD(name, call(".", take_any, 5, FTW_PHYS));
    }
    EACH (name, "ftw", "ftw64") {
        int (*call)(const char *, void *, int) = (int (*)(const char *, void *, int))symbol(name);
        TOLD(name, call(".", take_old, 5));
    }
    EACH (name, "getdirentries", "getdirentries64") {
        static char bytes[4096];
        off_t base = 0;
        int folder = open(".", O_RDONLY);
        ssize_t (*call)(int, char *, size_t, off_t *) = (ssize_t (*)(int, char *, size_t, off_t *))symbol(name);
        TOLD(name, call(folder, bytes, sizeof bytes, &base) > 0);
        close(folder);
    }
    EACH (name, "fts_open", "fts64_open") {
        char first[] = ".";
        char *roots[] = {first, NULL};
        FTS *(*call)(char *const *, int, void *) = (FTS * (*)(char *const *, int, void *)) symbol(name);
        FTS *walk = call(roots, FTS_PHYSICAL, NULL);
        TOLD(name, walk == NULL ? -1 : 0);
    }
}

CASE(spelled_links)
{
    char text[PATH_MAX];
    symlink("target", "link");
    put("target", "x");
    ssize_t (*readlink_chk)(const char *, char *, size_t, size_t) =
        (ssize_t (*)(const char *, char *, size_t, size_t))symbol("__readlink_chk");
    TOLD("__readlink_chk", readlink_chk("link", text, 100, sizeof text));
    ssize_t (*readlinkat_chk)(int, const char *, char *, size_t, size_t) =
        (ssize_t (*)(int, const char *, char *, size_t, size_t))symbol("__readlinkat_chk");
    TOLD("__readlinkat_chk", readlinkat_chk(AT_FDCWD, "link", text, 100, sizeof text));
    char *(*realpath_chk)(const char *, char *, size_t) = (char *(*)(const char *, char *, size_t))symbol("__realpath_chk");
    char *real = realpath_chk("link", text, sizeof text);
    say("__realpath_chk: %s", real ? strrchr(real, '/') : error_name(errno));
    char *(*getcwd_chk)(char *, size_t, size_t) = (char *(*)(char *, size_t, size_t))symbol("__getcwd_chk");
    char *at = getcwd_chk(text, sizeof text, sizeof text);
    say("__getcwd_chk: %s", at ? strrchr(at, '/') : error_name(errno));
    char *(*getwd_)(char *) = (char *(*)(char *))symbol("getwd");
    at = getwd_(text);
    say("getwd: %s", at ? strrchr(at, '/') : error_name(errno));
    EACH (name, "access", "euidaccess", "eaccess") {
        int (*call)(const char *, int) = (int (*)(const char *, int))symbol(name);
        TOLD(name, call("link", R_OK));
        TOLD(name, call("none", R_OK));
    }
}

/* Modes, owners, times, access, extended attributes, and what a file system says of itself. */
#include "calls.h"

#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <time.h>
#include <utime.h>

CASE(attribute_modes)
{
    put("file", "x");
    NUM(mkdir("folder", 0755));
    put("folder/file", "x");
    NUM(symlink("file", "link"));
    NUM(chmod("file", 0600));
    show_stat("file");
    NUM(chmod("link", 04755));
    show_stat("file");
    NUM(chmod("folder", 01777));
    show_stat("folder");
    int file = FD(open("file", O_RDONLY)), folder = FD(open("folder", O_RDONLY));
    NUM(fchmod(file, 0640));
    NUM(fchmod(folder, 0700));
    show_stat("folder");
    NUM(fchmodat(folder, "file", 0444, 0));
    NUM(fchmodat(AT_FDCWD, "link", 0400, AT_SYMLINK_NOFOLLOW));
    NUM(fchmodat(AT_FDCWD, "file", 0440, AT_SYMLINK_NOFOLLOW));
    NUM(fchmodat(AT_FDCWD, "file", 0440, 0x4000));
    show_stat("file");
    show_stat("folder/file");
    NUM(lchmod("file", 0404));
    NUM(chmod("none", 0600));
    NUM(chmod("", 0600));
    NUM(chmod("file/x", 0600));
    NUM(fchmod(-1, 0600));
    NUM(fchmodat(-1, "x", 0600, 0));
    show_stat("file");
}

CASE(attribute_owners)
{
    if (geteuid() != 0)
        return;
    put("file", "x");
    NUM(symlink("file", "link"));
    NUM(chmod("file", 06755));
    NUM(chown("file", 10, 20));
    show_stat("file");
    NUM(chown("link", -1, 21));
    show_stat("file");
    NUM(lchown("link", 11, 22));
    show_stat("link");
    int file = FD(open("file", O_RDONLY)), folder = FD(open(".", O_RDONLY));
    NUM(fchown(file, 12, -1));
    NUM(fchownat(folder, "file", -1, 30, 0));
    NUM(fchownat(folder, "link", 31, 32, AT_SYMLINK_NOFOLLOW));
    NUM(fchownat(file, "", 33, 34, AT_EMPTY_PATH));
    NUM(fchownat(file, "", 33, 34, 0));
    NUM(fchownat(folder, "file", 1, 1, 0x4000));
    show_stat("file");
    show_stat("link");
    NUM(chown("none", 1, 1));
    NUM(fchown(-1, 1, 1));
    NUM(lchown("none", 1, 1));
    NUM(chown("file", -1, -1));
    show_stat("file");
}

/* As nobody: what is allowed, what is not. */
CASE(attribute_permissions)
{
    if (geteuid() != 0)
        return;
    NUM(mkdir("closed", 0700));
    put("closed/file", "x");
    NUM(mkdir("read", 0755));
    put("read/secret", "x");
    NUM(chmod("read/secret", 0600));
    put("read/public", "x");
    NUM(mkdir("sticky", 01777));
    put("sticky/file", "x");
    NUM(mkdir("open", 0777));
    if (in_child()) {
        NUM(setgid(65534));
        NUM(setuid(65534));
        FD(open("closed/file", O_RDONLY));
        NUM(access("closed/file", F_OK));
        NUM(access("read/secret", R_OK));
        NUM(access("read/secret", F_OK));
        NUM(access("read/public", R_OK));
        NUM(access("read/public", W_OK));
        NUM(access("read/public", X_OK));
        FD(open("read/secret", O_RDONLY));
        int file = FD(open("read/public", O_RDONLY));
        NUM(fchmod(file, 0777));
        FD(open("read/public", O_WRONLY));
        FD(open("read/new", O_CREAT | O_WRONLY, 0600));
        NUM(unlink("read/public"));
        NUM(mkdir("read/new", 0700));
        NUM(unlink("sticky/file"));
        NUM(rename("sticky/file", "sticky/other"));
        NUM(chmod("read/public", 0777));
        NUM(chown("read/public", 65534, 65534));
        NUM(truncate("read/public", 0));
        NUM(chdir("closed"));
        FD(open("closed", O_RDONLY));
        file = FD(open("open/mine", O_CREAT | O_RDWR, 04755));
        show_stat("open/mine");
        NUM(chown("open/mine", 0, 0));
        NUM(chmod("open/mine", 02700));
        NUM(utimes("read/public", NULL));
        /* fs.protected_hardlinks is as it is on this machine. */
        NUM(link("read/secret", "open/secret"));
        NUM(link("read/public", "open/public"));
        NUM(link("read/secret", "open/mine"));
        NUM(link("open/mine", "open/hard"));
        FD(open("read/public", O_RDONLY | O_NOATIME));
        FD(open("open/mine", O_RDONLY | O_NOATIME));
        leave_child(0);
    }
    join();
    show_stat("open/mine");
    show_names("read");
}

CASE(attribute_creation_mask)
{
    NUM(umask(077));
    put("private", "x");
    NUM(umask(0));
    int file = open("open", O_CREAT | O_WRONLY, 0666);
    NUM(close(file));
    NUM(mkdir("folder", 0777));
    NUM(umask(027));
    NUM(mkfifo("fifo", 0777));
    FILE *stream = fopen("stream", "w");
    NUM(fclose(stream));
    NUM(umask(022));
    show_stat("private");
    show_stat("open");
    show_stat("folder");
    show_stat("fifo");
    show_stat("stream");
}

static long long since(struct timespec now, struct timespec then)
{
    return (now.tv_sec - then.tv_sec) * 1000000000LL + now.tv_nsec - then.tv_nsec;
}

static void say_times(const char *path)
{
    struct stat meta;
    if (lstat(path, &meta) != 0)
        say("times of %s: %s", path, error_name(errno));
    else
        say("times of %s: %lld.%09ld %lld.%09ld", path, (long long)meta.st_atim.tv_sec, meta.st_atim.tv_nsec,
            (long long)meta.st_mtim.tv_sec, meta.st_mtim.tv_nsec);
}

CASE(attribute_times_set)
{
    struct timespec times[2] = {{100, 123456789}, {200, 987654321}};
    struct timeval micros[2] = {{300, 123456}, {400, 654321}};
    struct utimbuf seconds = {500, 600};
    put("file", "x");
    NUM(symlink("file", "link"));
    NUM(utimensat(AT_FDCWD, "file", times, 0));
    say_times("file");
    NUM(utimensat(AT_FDCWD, "link", times, AT_SYMLINK_NOFOLLOW));
    say_times("link");
    NUM(utimes("file", micros));
    say_times("file");
    NUM(lutimes("link", micros));
    say_times("link");
    NUM(utime("link", &seconds));
    say_times("file");
    int file = FD(open("file", O_RDONLY)), folder = FD(open(".", O_RDONLY));
    NUM(futimens(file, times));
    say_times("file");
    NUM(futimes(file, micros));
    NUM(futimesat(folder, "file", micros));
    say_times("file");
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = 7;
    NUM(futimens(file, times));
    say_times("file");
    times[0].tv_nsec = 1000000000;
    NUM(futimens(file, times));
    micros[0].tv_usec = 1000000;
    NUM(utimes("file", micros));
    NUM(utimensat(AT_FDCWD, "none", NULL, 0));
    NUM(utimensat(AT_FDCWD, "", NULL, 0));
    NUM(utimensat(-1, "file", NULL, 0));
    NUM(utimensat(file, "", NULL, AT_EMPTY_PATH));
    NUM(utimensat(AT_FDCWD, "file", NULL, 0x4000));
    NUM(utimes("none", NULL));
    NUM(utime("none", NULL));
    NUM(futimens(-1, NULL));
    struct timespec old[2] = {{-5, 0}, {1LL << 32, 0}};
    NUM(utimensat(AT_FDCWD, "file", old, 0));
    say_times("file");
}

/* What changes which time: the order of a step and the step before it. */
CASE(attribute_times_kept)
{
    struct stat before, after;
    struct timespec tick = {0, 20000000};
    char text[4];
    put("file", "x");
    NUM(mkdir("folder", 0755));
#define STEP(path, call)                                                                                  \
    do {                                                                                                  \
        stat(path, &before);                                                                              \
        nanosleep(&tick, NULL);                                                                           \
        int failed_ = (int)(call) < 0;                                                                    \
        stat(path, &after);                                                                               \
        say("%s: %s, modified %s, changed %s", #call, failed_ ? "failed" : "done",                        \
            since(after.st_mtim, before.st_mtim) > 0 ? "later" : "same",                                  \
            since(after.st_ctim, before.st_ctim) > 0 ? "later" : "same");                                 \
    } while (0)
    int file = open("file", O_RDWR);
    STEP("file", write(file, "abc", 3));
    STEP("file", pread(file, text, 3, 0));
    STEP("file", fchmod(file, 0600));
    STEP("file", ftruncate(file, 2));
    STEP("file", truncate("file", 2));
    STEP("file", link("file", "hard"));
    STEP("file", rename("hard", "hard2"));
    STEP("file", unlink("hard2"));
    STEP("file", fallocate(file, 0, 0, 100));
    STEP("file", close(open("file", O_RDWR | O_TRUNC)));
    STEP("file", setxattr("file", "user.a", "b", 1, 0));
    STEP("folder", close(open("folder/new", O_CREAT | O_RDWR, 0600)));
    STEP("folder", close(open("folder/new", O_CREAT | O_RDWR, 0600)));
    STEP("folder", (int)write(open("folder/new", O_RDWR), "x", 1));
    STEP("folder", rename("folder/new", "folder/newer"));
    STEP("folder", unlink("folder/newer"));
    STEP("folder", mkdir("folder/inner", 0755));
    STEP("folder", unlink("folder/none"));
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    NUM(futimens(file, NULL));
    NUM(fstat(file, &after));
    YES(llabs(since(now, after.st_mtim)) < 600000000000LL);
}

CASE(attribute_access)
{
    put("file", "x");
    NUM(chmod("file", 0600));
    NUM(mkdir("folder", 0755));
    NUM(symlink("file", "link"));
    NUM(symlink("none", "dangling"));
    NUM(access("file", F_OK));
    NUM(access("file", R_OK | W_OK));
    NUM(access("file", X_OK));
    NUM(access("none", F_OK));
    NUM(access("file", 77));
    NUM(access("dangling", F_OK));
    NUM(access("", F_OK));
    NUM(access("file/", F_OK));
    NUM(euidaccess("file", R_OK));
    NUM(eaccess("file", X_OK));
    NUM(euidaccess("none", R_OK));
    int folder = FD(open("folder", O_RDONLY)), file = FD(open("file", O_RDONLY));
    NUM(faccessat(folder, "../file", R_OK, 0));
    NUM(faccessat(folder, "../file", R_OK, AT_EACCESS));
    NUM(faccessat(folder, "../dangling", F_OK, AT_SYMLINK_NOFOLLOW));
    NUM(faccessat(folder, "none", F_OK, 0));
    NUM(faccessat(-1, "none", F_OK, 0));
    NUM(faccessat(file, "", R_OK, AT_EMPTY_PATH));
    NUM(faccessat(AT_FDCWD, "file", R_OK, 0x4000));
}

CASE(attribute_extended)
{
    char value[70] = "", list[200] = "", *large = calloc(1, 70000);
    put("file", "x");
    NUM(symlink("file", "link"));
    NUM(mkdir("folder", 0755));
    NUM(listxattr("file", list, sizeof list));
    NUM(getxattr("file", "user.one", value, sizeof value));
    NUM(setxattr("file", "user.one", "first", 5, 0));
    NUM(setxattr("file", "user.one", "again", 5, XATTR_CREATE));
    NUM(setxattr("file", "user.two", "second", 6, XATTR_REPLACE));
    NUM(setxattr("file", "user.one", "replaced", 8, XATTR_REPLACE));
    NUM(setxattr("file", "user.empty", "", 0, XATTR_CREATE));
    NUM(getxattr("file", "user.one", value, sizeof value));
    STR(value);
    NUM(getxattr("file", "user.one", NULL, 0));
    NUM(getxattr("file", "user.one", value, 3));
    NUM(getxattr("file", "user.empty", value, sizeof value));
    NUM(getxattr("link", "user.one", value, sizeof value));
    NUM(lgetxattr("link", "user.one", value, sizeof value));
    NUM(lsetxattr("link", "user.one", "x", 1, 0));
    NUM(lsetxattr("file", "user.l", "lset", 4, 0));
    NUM(listxattr("file", NULL, 0));
    NUM(listxattr("file", list, 3));
    NUM(llistxattr("link", list, sizeof list));
    int file = FD(open("file", O_RDONLY)), folder = FD(open("folder", O_RDONLY));
    NUM(fsetxattr(file, "user.f", "by descriptor", 13, 0));
    NUM(fgetxattr(file, "user.f", value, sizeof value));
    NUM(flistxattr(file, list, sizeof list));
    NUM(fremovexattr(file, "user.f"));
    NUM(fremovexattr(file, "user.f"));
    NUM(removexattr("file", "user.one"));
    NUM(removexattr("file", "user.one"));
    NUM(lremovexattr("file", "user.l"));
    NUM(fsetxattr(folder, "user.d", "of a folder", 11, 0));
    NUM(getxattr("folder", "user.d", value, sizeof value));
    NUM(setxattr("file", "bad", "x", 1, 0));
    NUM(setxattr("file", "user.", "x", 1, 0));
    NUM(setxattr("file", "", "x", 1, 0));
    NUM(setxattr("file", "nonsense.x", "x", 1, 0));
    NUM(setxattr("file", "user.x", "x", 1, 77));
    NUM(setxattr("none", "user.x", "x", 1, 0));
    NUM(fsetxattr(-1, "user.x", "x", 1, 0));
    NUM(setxattr("file", "user.x", large, 70000, 0));
    list[0] = 0;
    memset(list, 'n', 199);
    memcpy(list, "user.", 5);
    NUM(setxattr("file", list, "long", 4, 0));
    NUM(removexattr("file", list));
    NUM(getxattr("file", "security.capability", value, sizeof value));
    NUM(getxattr("file", "system.posix_acl_access", value, sizeof value));
}

/* Gives a file set-id bits, and the capability to bind any port (struct vfs_cap_data, revision 2). */
static void give_privileges(const char *path, mode_t mode)
{
    static const unsigned capability[5] = {0x02000001, 1 << 10};
    NUM(chmod(path, mode));
    NUM(setxattr(path, "security.capability", capability, sizeof capability, 0));
}

static void show_privileges(const char *path)
{
    struct stat found = {0};
    char value[64];
    NUM(stat(path, &found));
    say("mode %o", found.st_mode);
    NUM(getxattr(path, "security.capability", value, sizeof value));
}

/* Each change of the content once. */
static void change_each(const char *path, mode_t mode)
{
    for (int change = 0; change < 9; change++) {
        give_privileges(path, mode);
        int file = open(path, change == 8 ? O_RDWR | O_TRUNC : O_RDWR), from = open("from", O_RDONLY);
        unsigned char *bytes;
        say("change %d", change);
        switch (change) {
        case 0: NUM(pwrite(file, "", 0, 0)); break;
        case 1: NUM(pwrite(file, "data", 4, 0)); break;
        case 2: NUM(ftruncate(file, 4096)); break;
        case 3: NUM(truncate(path, 4096)); break;
        case 4: NUM(fallocate(file, 0, 0, 8192)); break;
        case 5: NUM(copy_file_range(from, NULL, file, NULL, 4, 0)); break;
        case 6:
            bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            bytes[0] = 'm';
            NUM(msync(bytes, 4096, MS_SYNC));
            NUM(munmap(bytes, 4096));
            break;
        case 7: NUM(fsync(file)); break;
        default: break;
        }
        close(file);
        close(from);
        show_privileges(path);
    }
}

/* What a change of the content takes away: by root capabilities alone, by others set-id bits as well. */
CASE(attribute_privileges)
{
    if (geteuid() != 0)
        return;
    put("from", "from");
    put("file", "file");
    change_each("file", 06755);
    change_each("file", 02745);
    for (int change = 0; change < 2; change++) {
        give_privileges("file", change ? 06711 : 06701);
        NUM(chown("file", change ? 10 : -1, 20));
        show_privileges("file");
    }
    for (int member = 0; member < 2; member++) {
        put("other", "other");
        NUM(chown("other", 0, member ? 65534 : 0));
        give_privileges("other", 06767);
        int file = FD(open("other", O_RDWR));
        if (in_child()) {
            NUM(setgid(65534));
            NUM(setuid(65534));
            NUM(pwrite(file, "data", 4, 0));
            show_privileges("other");
            leave_child(0);
        }
        join();
        NUM(close(file));
        show_privileges("other");
        NUM(unlink("other"));
    }
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

CASE(attribute_extended_list)
{
    char list[4000], name[40], *names[40];
    int count = 0;
    put("file", "x");
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "user.name%d", i);
        if (setxattr("file", name, name, strlen(name), 0) != 0)
            say("setxattr %d: %s", i, error_name(errno));
    }
    ssize_t length = listxattr("file", list, sizeof list);
    for (char *at = list; at < list + length && count < 40; at += strlen(at) + 1)
        if (strncmp(at, "user.", 5) == 0)
            names[count++] = at;
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; i < count; i++) {
        char value[40] = "";
        ssize_t got = getxattr("file", names[i], value, sizeof value);
        say("%s %zd %s", names[i], got, value);
    }
}

CASE(attribute_file_systems)
{
    struct statfs one, two;
    struct statvfs three, four;
    put("file", "x");
    int file = FD(open("file", O_RDONLY));
    NUM(statfs("file", &one));
    NUM(fstatfs(file, &two));
    YES(one.f_bsize == two.f_bsize && one.f_blocks == two.f_blocks && one.f_type == two.f_type);
    YES(one.f_bsize >= 512 && one.f_blocks > 0 && one.f_bfree <= one.f_blocks && one.f_bavail <= one.f_bfree);
    NUM(one.f_namelen);
    NUM(statvfs("file", &three));
    NUM(fstatvfs(file, &four));
    YES(three.f_bsize == four.f_bsize && three.f_blocks == four.f_blocks);
    YES(three.f_frsize > 0 && three.f_files > 0 && three.f_ffree <= three.f_files && three.f_blocks == one.f_blocks);
    NUM(three.f_namemax);
    NUM((three.f_flag & ST_RDONLY) != 0);
    NUM(statfs("none", &one));
    NUM(statvfs("none", &three));
    NUM(fstatfs(-1, &one));
    NUM(fstatvfs(-1, &three));
    NUM(pathconf("file", _PC_NAME_MAX));
    NUM(pathconf(".", _PC_PATH_MAX));
    NUM(fpathconf(file, _PC_NAME_MAX));
    NUM(fpathconf(file, _PC_PIPE_BUF));
    NUM(pathconf(".", _PC_NO_TRUNC));
    NUM(pathconf(".", _PC_CHOWN_RESTRICTED));
    NUM(pathconf("none", _PC_NAME_MAX));
    NUM(fpathconf(-1, _PC_NAME_MAX));
    NUM(pathconf("file", 9999));
    YES(pathconf("file", _PC_LINK_MAX) >= 1000);
    YES(fpathconf(file, _PC_FILESIZEBITS) >= 32);
}

CASE(attribute_statx)
{
    struct statx all;
    struct stat plain;
    put("file", "0123456789");
    NUM(symlink("file", "link"));
    int file = FD(open("file", O_RDONLY)), folder = FD(open(".", O_RDONLY));
    NUM(statx(AT_FDCWD, "file", 0, STATX_BASIC_STATS, &all));
    NUM(stat("file", &plain));
    YES((all.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
    YES(all.stx_ino == plain.st_ino && makedev(all.stx_dev_major, all.stx_dev_minor) == plain.st_dev);
    YES(all.stx_mtime.tv_sec == plain.st_mtim.tv_sec && all.stx_mtime.tv_nsec == plain.st_mtim.tv_nsec);
    say("%o %d %lld", all.stx_mode, (int)all.stx_nlink, (long long)all.stx_size);
    NUM(statx(folder, "link", AT_SYMLINK_NOFOLLOW, STATX_TYPE, &all));
    YES(S_ISLNK(all.stx_mode));
    NUM(statx(file, "", AT_EMPTY_PATH, STATX_ALL, &all));
    NUM(all.stx_size);
    NUM((all.stx_mask & STATX_BTIME) != 0);
    NUM(statx(file, "", 0, STATX_ALL, &all));
    NUM(statx(AT_FDCWD, "none", 0, STATX_ALL, &all));
    NUM(statx(-1, "file", 0, STATX_ALL, &all));
    NUM(statx(AT_FDCWD, "file", 0x4000, STATX_ALL, &all));
    NUM(statx(AT_FDCWD, "file", 0, 0x80000000u, &all));
    NUM(statx(AT_FDCWD, "file", AT_STATX_FORCE_SYNC, STATX_SIZE, &all));
    NUM(statx(AT_FDCWD, "file", AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_SIZE, &all));
    NUM(fstatat(file, "", &plain, AT_EMPTY_PATH));
    NUM(plain.st_size);
    NUM(fstatat(folder, "link", &plain, AT_SYMLINK_NOFOLLOW));
    NUM(S_ISLNK(plain.st_mode));
    NUM(fstatat(folder, "file", &plain, 0x4000));
    NUM(fstatat(AT_FDCWD, "", &plain, AT_EMPTY_PATH));
    NUM(S_ISDIR(plain.st_mode));
}

CASE(attribute_blocks)
{
    struct stat meta;
    put_pattern("dense", 1 << 20);
    int file = open("sparse", O_CREAT | O_RDWR, 0600);
    NUM(ftruncate(file, 1 << 20));
    NUM(fstat(file, &meta));
    NUM(meta.st_blocks);
    int dense = open("dense", O_RDONLY);
    NUM(fsync(dense));
    NUM(fstat(dense, &meta));
    YES(meta.st_blocks * 512 >= 1 << 20 && meta.st_blocks * 512 < 3 << 19);
}

/* Names: links, renames, what is made and removed. */
#include "calls.h"

#include <sys/sysmacros.h>

CASE(name_links)
{
    struct stat meta;
    put("file", "content");
    NUM(mkdir("folder", 0755));
    NUM(link("file", "hard"));
    NUM(link("file", "folder/hard"));
    NUM(link("file", "hard"));
    NUM(link("none", "x"));
    NUM(link("folder", "x"));
    NUM(link("file", "none/x"));
    NUM(link("file/x", "x"));
    show_stat("file");
    NUM(symlink("file", "soft"));
    NUM(link("soft", "hardsoft"));
    show_stat("hardsoft");
    NUM(linkat(AT_FDCWD, "soft", AT_FDCWD, "followed", AT_SYMLINK_FOLLOW));
    show_stat("followed");
    int folder = FD(open("folder", O_RDONLY));
    NUM(linkat(folder, "hard", AT_FDCWD, "at", 0));
    NUM(linkat(AT_FDCWD, "file", folder, "at", 0));
    NUM(linkat(AT_FDCWD, "file", folder, "at", 0));
    NUM(linkat(AT_FDCWD, "file", folder, "at2", 0x8000));
    NUM(linkat(-1, "file", folder, "at2", 0));
    NUM(unlink("file"));
    NUM(stat("hard", &meta));
    NUM(meta.st_nlink);
    show("at");
    show_names("folder");
}

CASE(name_symlinks)
{
    char target[64];
    NUM(symlink("target", "link"));
    NUM(symlink("target", "link"));
    NUM(symlink("", "empty"));
    NUM(symlink("target", ""));
    NUM(symlink("target", "none/link"));
    memset(target, '#', sizeof target);
    NUM(readlink("link", target, sizeof target));
    say_bytes("target", target, 8);
    memset(target, '#', sizeof target);
    NUM(readlink("link", target, 3));
    say_bytes("target", target, 5);
    NUM(readlink("link", target, 0));
    NUM(readlink("none", target, sizeof target));
    put("file", "x");
    NUM(readlink("file", target, sizeof target));
    NUM(readlink(".", target, sizeof target));
    NUM(readlink("link/", target, sizeof target));
    int folder = FD(open(".", O_RDONLY));
    NUM(symlinkat("other", folder, "at"));
    NUM(readlinkat(folder, "at", target, sizeof target));
    NUM(readlinkat(-1, "at", target, sizeof target));
    NUM(readlinkat(folder, "", target, sizeof target));
    show_stat("link");
    NUM(unlink("link"));
    show_names(".");
}

CASE(name_renames)
{
    put("one", "1");
    put("two", "2");
    NUM(mkdir("folder", 0755));
    NUM(mkdir("full", 0755));
    put("full/file", "f");
    NUM(rename("one", "two"));
    show("two");
    NUM(rename("one", "x"));
    NUM(rename("two", "two"));
    NUM(rename("two", "folder"));
    NUM(rename("folder", "two"));
    NUM(rename("folder", "full"));
    NUM(rename("full", "folder"));
    NUM(rename("folder", "folder/below"));
    NUM(rename("two", "none/x"));
    NUM(rename("two", "folder/two"));
    NUM(rename("", "x"));
    NUM(rename("folder", ""));
    NUM(link("folder/two", "same"));
    NUM(rename("folder/two", "same"));
    NUM(access("folder/two", F_OK));
    NUM(symlink("nowhere", "link"));
    NUM(rename("link", "moved"));
    NUM(rename("folder/file", "moved"));
    show_stat("moved");
    int folder = FD(open("folder", O_RDONLY));
    NUM(renameat(folder, "two", AT_FDCWD, "out"));
    NUM(renameat(AT_FDCWD, "out", folder, "in"));
    NUM(renameat(-1, "out", folder, "in"));
    show_names("folder");
    show_names(".");
}

CASE(name_renames_flags)
{
    put("one", "1");
    put("two", "2");
    NUM(mkdir("folder", 0755));
    put("folder/file", "f");
    NUM(renameat2(AT_FDCWD, "one", AT_FDCWD, "two", RENAME_NOREPLACE));
    NUM(renameat2(AT_FDCWD, "one", AT_FDCWD, "three", RENAME_NOREPLACE));
    NUM(renameat2(AT_FDCWD, "three", AT_FDCWD, "two", RENAME_EXCHANGE));
    show("two");
    show("three");
    NUM(renameat2(AT_FDCWD, "two", AT_FDCWD, "folder", RENAME_EXCHANGE));
    show("folder");
    show("two/file");
    NUM(renameat2(AT_FDCWD, "two", AT_FDCWD, "none", RENAME_EXCHANGE));
    NUM(renameat2(AT_FDCWD, "two", AT_FDCWD, "folder", RENAME_EXCHANGE | RENAME_NOREPLACE));
    NUM(renameat2(AT_FDCWD, "two", AT_FDCWD, "folder", 1 << 10));
    NUM(renameat2(AT_FDCWD, "two", AT_FDCWD, "two/below", RENAME_EXCHANGE));
    NUM(renameat2(AT_FDCWD, "three", AT_FDCWD, "four", 0));
    show_names(".");
}

CASE(name_open_files)
{
    char text[10] = "";
    put("one", "first");
    put("two", "second");
    int one = FD(open("one", O_RDWR)), two = FD(open("two", O_RDWR));
    NUM(rename("one", "two"));
    NUM(pread(one, text, 9, 0));
    STR(text);
    memset(text, 0, sizeof text);
    NUM(pread(two, text, 9, 0));
    STR(text);
    struct stat meta;
    NUM(fstat(two, &meta));
    NUM(meta.st_nlink);
    NUM(pwrite(two, "lost", 4, 0));
    NUM(pwrite(one, "kept", 4, 0));
    NUM(close(one));
    NUM(close(two));
    show("two");
}

CASE(name_removals)
{
    put("file", "x");
    NUM(mkdir("folder", 0755));
    put("folder/file", "x");
    NUM(unlink("folder"));
    NUM(rmdir("file"));
    NUM(rmdir("folder"));
    NUM(unlink("none"));
    NUM(rmdir("none"));
    NUM(unlink(""));
    NUM(rmdir(""));
    NUM(unlinkat(AT_FDCWD, "folder", 0));
    NUM(unlinkat(AT_FDCWD, "folder", AT_REMOVEDIR));
    NUM(unlinkat(AT_FDCWD, "file", AT_REMOVEDIR));
    NUM(unlinkat(AT_FDCWD, "file", 0x4000));
    NUM(unlinkat(-1, "file", 0));
    NUM(remove("folder"));
    NUM(remove("folder/file"));
    NUM(remove("folder"));
    NUM(remove("file"));
    NUM(remove("none"));
    show_names(".");
}

CASE(name_folders)
{
    NUM(mkdir("folder", 0750));
    NUM(mkdir("folder", 0750));
    NUM(mkdir("none/folder", 0750));
    NUM(mkdir("", 0750));
    put("file", "x");
    NUM(mkdir("file", 0750));
    NUM(mkdir("file/x", 0750));
    show_stat("folder");
    NUM(mkdir("folder/inner", 01777));
    show_stat("folder/inner");
    show_stat("folder");
    int folder = FD(open("folder", O_RDONLY));
    NUM(mkdirat(folder, "at", 0700));
    NUM(mkdirat(-1, "at", 0700));
    NUM(mkdirat(AT_FDCWD, "folder/at", 0700));
    NUM(mkdirat(-1, "", 0700));
    show_names("folder");
    show_stat("folder");
}

CASE(name_of_no_type)
{
    NUM(mknod("folder", S_IFDIR | 0700, 0));
    NUM(mknod("link", S_IFLNK | 0700, 0));
    NUM(mknod("none", 0130000 | 0600, 0));
    NUM(mknod("none", 0170000 | 0600, 0));
    NUM(mknod("none/none", 0170000 | 0600, 0));
    show_names(".");
    if (geteuid() != 0)
        return;
    NUM(chmod(".", 0777));
    put("there", "x");
    if (in_child()) {
        NUM(setgid(65534));
        NUM(setuid(65534));
        NUM(mknod("device", S_IFCHR | 0600, 259));
        NUM(mknod("device", S_IFBLK | 0600, 259));
        NUM(mknod("there", S_IFBLK | 0600, 259));
        NUM(mknod("fifo", S_IFIFO | 0600, 0));
        show_names(".");
        leave_child(0);
    }
    join();
}

CASE(name_special)
{
    char text[10] = "";
    NUM(mkfifo("fifo", 0640));
    NUM(mkfifo("fifo", 0640));
    show_stat("fifo");
    NUM(mknod("plain", S_IFREG | 0600, 0));
    NUM(mknod("untyped", 0600, 0));
    show_stat("plain");
    show_stat("untyped");
    int folder = FD(open(".", O_RDONLY));
    NUM(mkfifoat(folder, "fifo2", 0600));
    NUM(mknodat(folder, "plain2", S_IFREG | 0600, 0));
    NUM(mknod("folder", S_IFDIR | 0700, 0));
    NUM(mknod("socket", S_IFSOCK | 0600, 0));
    show_stat("socket");
    FD(open("socket", O_RDONLY));
    show_names(".");
    int reader = FD(open("fifo", O_RDONLY | O_NONBLOCK));
    NUM(read(reader, text, 1));
    int writer = FD(open("fifo", O_WRONLY));
    NUM(write(writer, "fifo", 4));
    NUM(read(reader, text, 9));
    STR(text);
    NUM(lseek(writer, 0, SEEK_SET));
    struct stat meta;
    NUM(fstat(reader, &meta));
    NUM(S_ISFIFO(meta.st_mode));
    NUM(close(writer));
    NUM(close(reader));
    FD(open("fifo", O_WRONLY | O_NONBLOCK));
    if (in_child()) {
        writer = open("fifo", O_WRONLY);
        leave_child(write(writer, "child", 5) == 5 ? 0 : 1);
    }
    reader = FD(open("fifo", O_RDONLY));
    memset(text, 0, sizeof text);
    NUM(read(reader, text, 9));
    STR(text);
    join();
}

CASE(name_devices)
{
    if (geteuid() != 0)
        return;
    NUM(mknod("null", S_IFCHR | 0666, makedev(1, 3)));
    struct stat meta;
    NUM(lstat("null", &meta));
    say("%d %d", major(meta.st_rdev), minor(meta.st_rdev));
    show_stat("null");
    NUM(mknod("block", S_IFBLK | 0600, makedev(7, 1)));
    show_stat("block");
    NUM(unlink("null"));
}

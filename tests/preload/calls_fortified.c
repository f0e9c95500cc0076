/*
 * With _FORTIFY_SOURCE, and sizes that the compiler does not know: the calls are those whose names end in
 * _chk and _2.
 */
#include "calls.h"

#include <poll.h>
#include <wchar.h>

/* A number that only the running program knows. */
static size_t hidden(size_t number)
{
    volatile size_t seen = number;
    return seen;
}

CASE(fortified_data)
{
    char text[64] = "";
    put("file", "0123456789");
    volatile int flags = O_RDWR;
    int file = FD(open("file", flags));
    NUM(read(file, text, hidden(4)));
    NUM(pread(file, text + 8, hidden(4), 2));
    say_bytes("text", text, 16);
    NUM(symlink("file", "link"));
    NUM(readlink("link", text, hidden(60)));
    NUM(readlinkat(AT_FDCWD, "link", text, hidden(60)));
    PTR(getcwd(text, hidden(3)));
    char path[PATH_MAX];
    PTR(getcwd(path, hidden(sizeof path)));
    PTR(realpath("link", path));
    STR(strrchr(path, '/'));
    struct pollfd files[2] = {{file, POLLIN, 0}, {file, POLLOUT, 0}};
    NUM(poll(files, hidden(2), 0));
    struct timespec none = {0, 0};
    NUM(ppoll(files, hidden(2), &none, NULL));
    volatile int at = AT_FDCWD;
    int other = FD(openat(at, "file", flags));
    NUM(write(other, "X", hidden(1)));
    NUM(close(other));
    NUM(close(file));
    show("file");
}

CASE(fortified_streams)
{
    char text[64] = "";
    wchar_t wide[64] = L"";
    FILE *stream = PTR(fopen("file", "w+"));
    NUM(fprintf(stream, "%s %zu\n", "printed", hidden(5)));
    rewind(stream);
    PTR(fgets(text, (int)hidden(60), stream));
    STR(text);
    rewind(stream);
    memset(text, 0, sizeof text);
    NUM(fread(text, 1, hidden(60), stream));
    STR(text);
    rewind(stream);
    PTR(fgets_unlocked(text, (int)hidden(60), stream));
    rewind(stream);
    NUM(fread_unlocked(text, 1, hidden(60), stream));
    NUM(fclose(stream));
    stream = PTR(fopen("wide", "w+"));
    NUM(fwprintf(stream, L"%ls\n", L"wide"));
    rewind(stream);
    NUM(fgetws(wide, (int)hidden(60), stream) != NULL);
    NUM(wcslen(wide));
    NUM(fclose(stream));
    show("wide");
    int file = FD(open("descriptor", O_CREAT | O_RDWR, 0600));
    NUM(dprintf(file, "%s %d\n", "dprintf", 1));
    NUM(vdprintf(file, "no arguments\n", *(va_list *)text));
    NUM(close(file));
    show("descriptor");
}

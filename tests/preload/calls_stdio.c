/* Streams over files. */
#include "calls.h"

#include <stdio_ext.h>
#include <locale.h>
#include <wchar.h>

CASE(stdio_modes)
{
    static const char *const modes[] = {"r", "r+", "w", "w+", "a", "a+", "wx", "w+x", "rb", "rb+", "we", "rm", "z", ""};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        for (int there = 0; there < 2; there++) {
            char text[32] = "";
            unlink("file");
            if (there)
                put("file", "0123456789");
            errno = 0;
            FILE *stream = fopen("file", modes[i]);
            if (stream == NULL) {
                say("%s %d: %s", modes[i], there, error_name(errno));
                continue;
            }
            long begin = ftell(stream);
            size_t put_in = fwrite("ab", 1, 2, stream);
            int failed = ferror(stream) != 0;
            clearerr(stream);
            int flushed = fflush(stream);
            long middle = ftell(stream);
            int sought = fseek(stream, 1, SEEK_SET);
            size_t got = fread(text, 1, 5, stream);
            long end = ftell(stream);
            unsigned flags = (unsigned)(fcntl(fileno(stream), F_GETFL) & ~0100000);
            int closed = fclose(stream);
            say("%s %d: begin %ld, wrote %zu (%d), flushed %d, at %ld, sought %d, read %zu '%s', at %ld, flags %o, close %d",
                modes[i], there, begin, put_in, failed, flushed, middle, sought, got, text, end, flags, closed);
            show("file");
        }
    }
}

CASE(stdio_text)
{
    char line[64];
    FILE *stream = PTR(fopen("file", "w+"));
    NUM(fprintf(stream, "%s %d %5.2f\n", "one", 2, 3.14159));
    NUM(fputs("second line\n", stream) >= 0);
    NUM(fputc('c', stream));
    NUM(putc('d', stream));
    NUM(fwrite("\nlast", 1, 5, stream));
    NUM(ftell(stream));
    rewind(stream);
    PTR(fgets(line, sizeof line, stream));
    STR(line);
    NUM(fgetc(stream));
    NUM(ungetc('S', stream));
    NUM(ftell(stream));
    PTR(fgets(line, 5, stream));
    STR(line);
    NUM(getc(stream));
    NUM(fseek(stream, 0, SEEK_SET));
    int number = 0;
    float fraction = 0;
    NUM(fscanf(stream, "%63s %d %f", line, &number, &fraction));
    say("%s %d %.2f", line, number, fraction);
    NUM(fseek(stream, -4, SEEK_END));
    NUM(fread(line, 1, 60, stream));
    NUM(feof(stream));
    NUM(fgetc(stream));
    clearerr(stream);
    NUM(feof(stream));
    NUM(fseek(stream, 2, SEEK_CUR));
    NUM(fputs("beyond", stream) >= 0);
    NUM(fclose(stream));
    show("file");
}

CASE(stdio_lines)
{
    char *line = NULL;
    size_t room = 0;
    FILE *stream = PTR(fopen("file", "w"));
    for (int i = 0; i < 1000; i++)
        fprintf(stream, "line %d %.*s\n", i, i % 97, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    NUM(fclose(stream));
    show("file");
    stream = PTR(fopen("file", "r"));
    int count = 0;
    ssize_t length;
    uint64_t hash = 0;
    while ((length = getline(&line, &room, stream)) > 0) {
        hash = hash * 31 + hash_of(line, (size_t)length);
        count++;
    }
    say("%d lines, hash %016llx", count, (unsigned long long)hash);
    NUM(feof(stream));
    rewind(stream);
    NUM(getdelim(&line, &room, '9', stream));
    NUM(ftello(stream));
    fpos_t place;
    NUM(fgetpos(stream, &place));
    NUM(getline(&line, &room, stream));
    NUM(fsetpos(stream, &place));
    NUM(ftell(stream));
    NUM(fseeko(stream, 100, SEEK_CUR));
    NUM(getline(&line, &room, stream));
    STR(line);
    NUM(fclose(stream));
    free(line);
}

CASE(stdio_descriptors)
{
    char text[32] = "";
    put("file", "0123456789");
    int file = FD(open("file", O_RDWR));
    NUM(lseek(file, 4, SEEK_SET));
    FILE *stream = PTR(fdopen(file, "r+"));
    YES(fileno(stream) == file);
    NUM(ftell(stream));
    NUM(fgetc(stream));
    NUM(fseek(stream, 0, SEEK_CUR));
    NUM(fputc('X', stream));
    NUM(fflush(stream));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(pread(file, text, 10, 0));
    STR(text);
    NUM(pwrite(file, "YZ", 2, 8));
    NUM(fseek(stream, 8, SEEK_SET));
    NUM(fgetc(stream));
    NUM(fclose(stream));
    NUM(close(file));
    PTR(fdopen(-1, "r"));
    file = FD(open("file", O_RDONLY));
    PTR(fdopen(file, "w"));
    PTR(fdopen(file, "q"));
    stream = PTR(fdopen(file, "r"));
    NUM(close(file));
    NUM(fgetc(stream));
    NUM(ferror(stream) != 0);
    NUM(fclose(stream));
    file = FD(open("file", O_WRONLY));
    stream = PTR(fdopen(file, "a"));
    NUM((fcntl(file, F_GETFL) & O_APPEND) != 0);
    NUM(fputs("end", stream) >= 0);
    NUM(fclose(stream));
    show("file");
}

CASE(stdio_reopen)
{
    char text[32] = "", path[PATH_MAX + 10];
    put("one", "1111");
    put("two", "2222");
    FILE *stream = PTR(fopen("one", "r+"));
    int number = fileno(stream);
    NUM(fputc('a', stream));
    stream = PTR(freopen("two", "r", stream));
    YES(fileno(stream) == number);
    NUM(fread(text, 1, 4, stream));
    STR(text);
    stream = PTR(freopen(NULL, "r+", stream));
    snprintf(path, sizeof path, "%s/away", outside);
    put(path, "outside");
    stream = PTR(freopen(path, "r", stream));
    NUM(fread(text, 1, 7, stream));
    STR(text);
    stream = PTR(freopen("one", "a+", stream));
    NUM(fputs("zz", stream) >= 0);
    NUM(fclose(stream));
    show("one");
    /* Its own file, in other modes. */
    struct stat found = {0};
    stream = PTR(fopen("two", "r+"));
    NUM(fread(text, 1, 2, stream));
    number = fileno(stream);
    stream = PTR(freopen(NULL, "a", stream));
    NUM(ftell(stream));
    NUM(fputs("33", stream) >= 0);
    YES(fileno(stream) == number);
    stream = PTR(freopen(NULL, "r", stream));
    memset(text, 0, sizeof text);
    NUM(fread(text, 1, 10, stream));
    STR(text);
    NUM(fputs("33", stream) >= 0);
    stream = PTR(freopen(NULL, "w+", stream));
    NUM(fstat(fileno(stream), &found));
    NUM(found.st_size);
    NUM(fputs("new", stream) >= 0);
    NUM(fclose(stream));
    show("two");
    stream = PTR(fopen("one", "r"));
    PTR(freopen("none", "r", stream));
    if (in_child()) {
        PTR(freopen("standard", "w", stdout));
        printf("by printf %d\n", 5);
        puts("by puts");
        fflush(stdout);
        leave_child(0);
    }
    join();
    show("standard");
}

CASE(stdio_buffers)
{
    char buffer[64], text[64] = "";
    FILE *stream = PTR(fopen("file", "w+"));
    NUM(setvbuf(stream, NULL, _IONBF, 0));
    NUM(fputc('a', stream));
    show("file");
    NUM(fclose(stream));
    stream = PTR(fopen("file", "w+"));
    NUM(setvbuf(stream, buffer, _IOFBF, 16));
    NUM(fwrite("0123456789", 1, 10, stream));
    show_stat("file");
    NUM(fwrite("0123456789", 1, 10, stream));
    NUM(fflush(NULL));
    show("file");
    NUM(fclose(stream));
    stream = PTR(fopen("file", "w+"));
    NUM(setvbuf(stream, NULL, _IOLBF, 0));
    NUM(fputs("line\nrest", stream) >= 0);
    show_stat("file");
    setbuf(stream, NULL);
    NUM(fclose(stream));
    show("file");
    stream = PTR(fopen("file", "r"));
    NUM(__fbufsize(stream));
    NUM(fgetc(stream));
    YES(__fbufsize(stream) >= 512);
    NUM(__freading(stream) != 0);
    NUM(__fwriting(stream) != 0);
    NUM(__freadable(stream) != 0);
    NUM(__fwritable(stream) != 0);
    NUM(__fpending(stream));
    __fpurge(stream);
    NUM(fgetc(stream));
    NUM(fread(text, 1, 3, stream));
    NUM(fclose(stream));
}

CASE(stdio_unlocked)
{
    char text[32] = "";
    FILE *stream = PTR(fopen("file", "w+"));
    flockfile(stream);
    NUM(fputs_unlocked("unlocked\n", stream) >= 0);
    NUM(fputc_unlocked('a', stream));
    NUM(putc_unlocked('b', stream));
    NUM(fwrite_unlocked("cd\n", 1, 3, stream));
    NUM(fflush_unlocked(stream));
    funlockfile(stream);
    NUM(ftrylockfile(stream));
    funlockfile(stream);
    rewind(stream);
    NUM(fgetc_unlocked(stream));
    NUM(getc_unlocked(stream));
    PTR(fgets_unlocked(text, sizeof text, stream));
    STR(text);
    NUM(fread_unlocked(text, 1, 20, stream));
    NUM(feof_unlocked(stream) != 0);
    NUM(ferror_unlocked(stream) != 0);
    clearerr_unlocked(stream);
    NUM(feof_unlocked(stream) != 0);
    NUM(fileno_unlocked(stream) == fileno(stream));
    NUM(__fsetlocking(stream, FSETLOCKING_QUERY) == FSETLOCKING_INTERNAL);
    NUM(fclose(stream));
}

CASE(stdio_wide)
{
    wchar_t text[32] = L"";
    FILE *stream = PTR(fopen("file", "w+"));
    NUM(fwide(stream, 0));
    NUM(fwide(stream, 1) > 0);
    NUM(fputws(L"wide line\n", stream) >= 0);
    NUM(fputwc(L'w', stream));
    NUM(fwprintf(stream, L"%d %ls\n", 7, L"x"));
    rewind(stream);
    NUM(fgetws(text, 32, stream) != NULL);
    NUM(wcslen(text));
    NUM(fgetwc(stream));
    NUM(ungetwc(L'q', stream));
    NUM(fgetwc(stream));
    NUM(fclose(stream));
    show("file");
}

/* Characters of several bytes, bytes that are none, standard streams, and more than a buffer. */
CASE(stdio_wide_encoded)
{
    static wchar_t text[5000], long_one[4000];
    FILE *stream;
    STR(setlocale(LC_CTYPE, "C.UTF-8"));
    put("file", "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\nlast");
    stream = PTR(fopen("file", "r"));
    NUM(fgetwc(stream));
    NUM(fgetwc(stream));
    NUM(ungetwc(0x20ac, stream));
    NUM(getwc(stream));
    PTR(fgetws(text, 100, stream));
    NUM(wcslen(text));
    NUM(text[1]);
    PTR(fgetws(text, 3, stream));
    NUM(wcslen(text));
    PTR(fgetws(text, 100, stream));
    PTR(fgetws(text, 100, stream));
    NUM(feof(stream) != 0);
    NUM(ferror(stream) != 0);
    NUM(fclose(stream));
    put("broken", "x\xff\xfey");
    stream = PTR(fopen("broken", "r"));
    NUM(fgetwc(stream));
    NUM(fgetwc(stream) == WEOF);
    NUM(ferror(stream) != 0);
    NUM(fclose(stream));
    put("cut", "x\xe2\x82");
    stream = PTR(fopen("cut", "r"));
    NUM(fgetwc(stream));
    NUM(fgetwc(stream) == WEOF);
    NUM(fclose(stream));
    for (int i = 0; i < 3999; i++)
        long_one[i] = 0x3b1 + i % 20;
    stream = PTR(fopen("file", "w"));
    NUM(fwprintf(stream, L"%ls %.2f %d %s\n", long_one, 2.5, 7, "\xc3\xa9"));
    NUM(fputws(long_one, stream) > 0);
    NUM(putwc(0x1f600, stream));
    NUM(fputwc(0x7fffffff, stream) == WEOF);
    NUM(fclose(stream));
    show("file");
    if (in_child()) {
        int to = open("out", O_CREAT | O_RDWR, 0644);
        put("in", "\xc3\xa9 42 z\n");
        int from = open("in", O_RDONLY);
        dup2(to, 1);
        dup2(from, 0);
        NUM(getwchar());
        NUM(putwchar(0xe9));
        NUM(wprintf(L"%d %lc\n", 1234, 0x20ac));
        fflush(stdout);
        leave_child(0);
    }
    join();
    show("out");
    setlocale(LC_CTYPE, "C");
}

CASE(stdio_errors)
{
    put("file", "0123456789");
    NUM(mkdir("folder", 0755));
    PTR(fopen("none", "r"));
    PTR(fopen("folder", "w"));
    PTR(fopen("none/file", "w"));
    FILE *stream = PTR(fopen("folder", "r"));
    NUM(fgetc(stream));
    NUM(ferror(stream) != 0);
    NUM(fclose(stream));
    stream = PTR(fopen("file", "r"));
    NUM(fputc('x', stream));
    NUM(fseek(stream, -1, SEEK_SET));
    NUM(fseek(stream, 0, 99));
    NUM(fseek(stream, -100, SEEK_CUR));
    NUM(ftell(stream));
    NUM(fclose(stream));
    stream = PTR(fopen("file", "w"));
    NUM(fgetc(stream));
    NUM(fclose(stream));
    /* /dev/full, so that a stream of the kernel stays one. */
    stream = PTR(fopen("/dev/full", "w"));
    NUM(fputs("full", stream) >= 0);
    NUM(fflush(stream));
    NUM(fclose(stream));
}

CASE(stdio_many)
{
    enum { COUNT = 100 };
    FILE *streams[COUNT];
    char name[20];
    int good = 0;
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "file%d", i);
        streams[i] = fopen(name, "w+");
        if (streams[i] != NULL && fprintf(streams[i], "number %d\n", i) > 0)
            good++;
    }
    NUM(good);
    for (int i = 0; i < COUNT; i++) {
        int number = -1;
        rewind(streams[i]);
        if (fscanf(streams[i], "number %d", &number) == 1 && number == i)
            good--;
        if (i % 2 == 0)
            fclose(streams[i]);
    }
    NUM(good);
    NUM(fcloseall());
    NUM(fcntl(1, F_GETFD) >= 0);
    show("file99");
}

/* What is in the buffer when a process ends is written; when it ends by _exit it is not. */
CASE(stdio_at_exit)
{
    if (in_child()) {
        FILE *stream = fopen("exit", "w");
        fputs("written at exit", stream);
        exit(0);
    }
    join();
    show("exit");
    if (in_child()) {
        FILE *stream = fopen("_exit", "w");
        fputs("never written", stream);
        _exit(0);
    }
    join();
    show("_exit");
    FILE *stream = PTR(fopen("twice", "w"));
    NUM(fputs("twice ", stream) >= 0);
    if (in_child())
        exit(fclose(stream));
    join();
    NUM(fclose(stream));
    show("twice");
}

CASE(temporary_files)
{
    char name[] = "fileXXXXXX", suffixed[] = "fileXXXXXX.txt", folder[] = "folderXXXXXX", bad[] = "fileXXXXX";
    char path[PATH_MAX + 20], text[20] = "";
    struct stat meta;
    int file = FD(mkstemp(name));
    NUM(write(file, "temporary", 9));
    NUM(fstat(file, &meta));
    say_stat("mkstemp", &meta);
    NUM(strlen(name));
    NUM(access(name, F_OK));
    NUM(close(file));
    file = FD(mkostemps(suffixed, 4, O_APPEND | O_CLOEXEC));
    NUM(fcntl(file, F_GETFD));
    NUM(strcmp(suffixed + 10, ".txt"));
    NUM(close(file));
    PTR(mkdtemp(folder));
    show_stat(folder + strlen(folder));
    NUM(access(folder, F_OK));
    NUM(rmdir(folder));
    FD(mkstemp(bad));
    snprintf(path, sizeof path, "%s/absXXXXXX", case_folder);
    file = FD(mkostemp(path, 0));
    NUM(access(path, F_OK));
    NUM(close(file));
    strcpy(path, "none/fileXXXXXX");
    FD(mkstemp(path));
    /* tmpfile makes its file in /tmp, whatever TMPDIR says. */
    FILE *stream = PTR(tmpfile());
    NUM(fputs("temporary", stream) >= 0);
    rewind(stream);
    NUM(fread(text, 1, 19, stream));
    STR(text);
    NUM(fclose(stream));
    char *made = PTR(tempnam(case_folder, "pre"));
    setenv("TMPDIR", case_folder, 1);
    made = PTR(tempnam(NULL, "pre"));
    YES(strncmp(made, case_folder, strlen(case_folder)) == 0);
    free(made);
}

CASE(stdio_to_descriptors)
{
    int file = FD(open("file", O_CREAT | O_RDWR, 0600));
    NUM(dprintf(file, "%s %d\n", "printed", 5));
    NUM(lseek(file, 0, SEEK_CUR));
    NUM(dprintf(-1, "x"));
    NUM(close(file));
    show("file");
    file = FD(open("file", O_RDONLY));
    NUM(dprintf(file, "x"));
    NUM(close(file));
}

/* A stream that goes on with another file is the same stream. */
CASE(stdio_same)
{
    char text[32] = "", path[PATH_MAX + 10];
    snprintf(path, sizeof path, "%s/away", outside);
    put("one", "1111\n");
    put("two", "2222\n");
    FILE *stream = PTR(fopen("one", "r"));
    NUM(fgetc(stream));
    NUM(ungetc('u', stream));
    YES(freopen("two", "r+", stream) == stream);
    NUM(fgets(text, sizeof text, stream) != NULL);
    STR(text);
    NUM(fseek(stream, 0, SEEK_SET));
    NUM(fputs("to", stream) >= 0);
    YES(freopen("three", "w", stream) == stream);
    NUM(fprintf(stream, "%d in the third\n", 3));
    NUM(fgetc(stream));
    NUM(ferror(stream) != 0);
    YES(freopen(path, "w+", stream) == stream);
    NUM(ferror(stream) != 0);
    NUM(fputs("outside", stream) >= 0);
    rewind(stream);
    NUM(fread(text, 1, 7, stream));
    YES(freopen("one", "a", stream) == stream);
    NUM(fputs("appended\n", stream) >= 0);
    NUM(ftell(stream));
    NUM(fclose(stream));
    show("one");
    show("two");
    show("three");
    show(path);
}

/* The program's own buffering stays when a standard descriptor leads elsewhere. */
CASE(stdio_standard)
{
    if (in_child()) {
        int kernel = dup(1);
        setvbuf(stdout, NULL, _IOLBF, 0);
        for (int turn = 0; turn < 3; turn++) {
            int file = open("out", O_CREAT | O_WRONLY | O_APPEND, 0600);
            dup2(file, 1);
            close(file);
            printf("a line\nand a ");
            struct stat found;
            fstat(1, &found);
            say("%d: %lld", turn, (long long)found.st_size);
            fflush(stdout);
            dup2(kernel, 1);
        }
        leave_child(0);
    }
    join();
    show("out");
}

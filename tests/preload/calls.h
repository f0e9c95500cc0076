/*
 * What the cases of this program share. A case makes calls in a folder of its own, which is its working
 * directory, and says one line for each: the call as it is written here, what it returned, and the error.
 * What may differ between two file systems that are both right (numbers of inodes, times, the order of a
 * directory) is said as a relation, or not at all, so that the lines of two file systems can be compared.
 */
#ifndef CALLS_H
#define CALLS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
};

void add_test(struct test *test);

/* A case; its name is what it is chosen by. */
#define CASE(name)                                                          \
    static void case_##name(void);                                          \
    __attribute__((constructor)) static void register_##name(void)          \
    {                                                                       \
        static struct test entry = {#name, case_##name, NULL};              \
        add_test(&entry);                                                   \
    }                                                                       \
    static void case_##name(void)

/* A line: the name of the case, and this. It reaches the program's standard output, whatever the case has
 * done to descriptor 1. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The descriptor by which lines go: a case that closes all of them leaves this one out. */
int said_by(void);
void say_number(const char *call, long long result, int error);
void say_descriptor(const char *call, int result, int error);
void say_pointer(const char *call, const void *result, int error);
void say_error(const char *call, int error);
void say_bytes(const char *what, const void *bytes, size_t length);
const char *error_name(int error);

/* Each makes the call once, says what came of it, and has its result as its value. */
#define NUM(call)                                        \
    ({                                                   \
        errno = 0;                                       \
        long long result_ = (long long)(call);           \
        say_number(#call, result_, errno);               \
        result_;                                         \
    })
/* A descriptor: any is as good as another. */
#define FD(call)                                         \
    ({                                                   \
        errno = 0;                                       \
        int result_ = (call);                            \
        say_descriptor(#call, result_, errno);           \
        result_;                                         \
    })
#define PTR(call)                                        \
    ({                                                   \
        errno = 0;                                       \
        __auto_type result_ = (call);                    \
        say_pointer(#call, (const void *)result_, errno);\
        result_;                                         \
    })
/* A call that returns the error. */
#define ERR(call)                                        \
    ({                                                   \
        int result_ = (call);                            \
        say_error(#call, result_);                       \
        result_;                                         \
    })
#define YES(condition) say("%s = %s", #condition, (condition) ? "yes" : "no")
#define STR(string)                                      \
    ({                                                   \
        const char *string_ = (string);                  \
        say_bytes(#string, string_, string_ ? strlen(string_) : 0); \
    })

/* The folder that all cases have, as given, and the folder of this one: both absolute. */
extern const char *top_folder;
extern char case_folder[PATH_MAX];
/* A folder outside of it, of this case. */
extern char outside[PATH_MAX];
/* This program, to be executed again: `calls --helper WORD ...` does one small thing. */
extern const char *program;
int helper(int count, char **words);

/* A file with these bytes; the content of a file, said. */
void put(const char *path, const char *content);
void show(const char *path);
/* A file of so many bytes, each by its place. */
void put_pattern(const char *path, size_t length);
void fill_pattern(unsigned char *bytes, size_t length, size_t from);
bool is_pattern(const unsigned char *bytes, size_t length, size_t from);
/* What of the metadata can be compared. */
void say_stat(const char *what, const struct stat *stat);
void show_stat(const char *path);
/* Names in a folder, sorted, with their kinds. */
void show_names(const char *path);
uint64_t hash_of(const void *bytes, size_t length);

/* In the child: true. What it says comes before what its parent says after `join`. */
bool in_child(void);
void leave_child(int status) __attribute__((noreturn));
void join(void);
/* Kills it, and waits for its end. */
void end_child(void);
/* A pipe by which one process tells another to go on. */
struct gate {
    int ends[2];
};
void make_gate(struct gate *gate);
void open_gate(struct gate *gate);
void wait_gate(struct gate *gate);

/* Removes what is below a folder, and the folder. */
void remove_tree(const char *path);
void *symbol(const char *name);
/* What is not the same without the kernel: these cases run only when they are chosen. */
bool is_refusal(const char *name);

#endif

/* instructions.c - TCG plugin of QEMU: how many guest instructions run between two markers in a program.
 *
 * A marker is an instruction that does nothing, nopl disp32(%rax,%rax,1), whose last byte is a number:
 *   0f 1f 84 00 'U' 'N' 'V' n        n = 8 * path + step
 * For each operation of a path the program passes the steps
 *   BEGIN .. PAUSE   is counted
 *   PAUSE .. RESUME  is not: the wait for whatever has been started
 *   RESUME .. END    is counted
 * or DISCARD instead of END, and the operation does not count. Markers are not counted themselves. When QEMU
 * ends there is one line for each path that had operations, in the log of QEMU (-d plugin -D FILE):
 *   path 0: 2000 operations, instructions: median 118, mean 120.1, min 118, max 4711; median 0 of them in the
 *   kernel
 * Everything the processor executes in between counts, interrupts of the guest's kernel too: hence the
 * median.
 *
 * Build: cc -shared -fPIC -O2 -Wall -Wextra -o instructions.so instructions.c
 * Use:   qemu-system-x86_64 -accel tcg -smp 1 -plugin ./instructions.so -d plugin -D FILE ...
 * One virtual processor only: a thread that moves to another one would be counted there.
 *
 * The declarations below are those of QEMU's documented plugin interface ("QEMU TCG Plugins"), version 7
 * (QEMU 11.1), which takes no plugin of an older one; its header is not in Debian's packages. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_scoreboard;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct {
  struct qemu_plugin_scoreboard *score;
  size_t offset;
} qemu_plugin_u64;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
struct qemu_info;

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(struct qemu_plugin_tb *, void *), void *);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *, enum qemu_plugin_op, qemu_plugin_u64,
                                                         uint64_t);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *),
                                            enum qemu_plugin_cb_flags, void *);
uint64_t qemu_plugin_u64_sum(qemu_plugin_u64);
void qemu_plugin_outs(const char *);

#define EXPORT __attribute__((visibility("default")))
EXPORT extern int qemu_plugin_version;
int qemu_plugin_version = 7;

enum { BEGIN, PAUSE, RESUME, END, DISCARD, STEPS = 8 };
enum { PATHS = 8, OPERATIONS_MAX = 1 << 20 };

struct counts {
  uint64_t user, kernel;
};
struct path {
  struct counts before, sum; /* at the last BEGIN or RESUME; of the operation so far */
  int step;                  /* last one, END when there is no operation */
  size_t operations;
  uint64_t *all, *kernel;
};

static qemu_plugin_u64 user, kernel;
static struct path paths[PATHS];

static void count_from(struct path *p) {
  p->before = (struct counts){qemu_plugin_u64_sum(user), qemu_plugin_u64_sum(kernel)};
}

static void count_until(struct path *p) {
  p->sum.user += qemu_plugin_u64_sum(user) - p->before.user;
  p->sum.kernel += qemu_plugin_u64_sum(kernel) - p->before.kernel;
}

/* A step out of order starts over: markers are also passed by programs that were killed in between. */
static void mark(unsigned cpu, void *number) {
  unsigned n = (unsigned)(uintptr_t)number;
  struct path *p = &paths[n / STEPS];
  int step = n % STEPS, last = p->step;
  (void)cpu;
  p->step = step;
  if (step == BEGIN) {
    p->sum = (struct counts){0, 0};
    count_from(p);
  } else if (step == PAUSE && last == BEGIN) {
    count_until(p);
  } else if (step == RESUME && last == PAUSE) {
    count_from(p);
  } else if (step == END && last == RESUME) {
    count_until(p);
    if (p->operations < OPERATIONS_MAX) {
      p->kernel[p->operations] = p->sum.kernel;
      p->all[p->operations++] = p->sum.user + p->sum.kernel;
    }
  } else {
    p->step = END;
  }
}

static void translate(struct qemu_plugin_tb *tb, void *unused) {
  size_t count = qemu_plugin_tb_n_insns(tb);
  (void)unused;
  for (size_t i = 0; i < count; i++) {
    struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
    unsigned char bytes[8];
    bool is_kernel = qemu_plugin_insn_vaddr(insn) >> 63;
    if (qemu_plugin_insn_data(insn, bytes, sizeof bytes) == sizeof bytes && !memcmp(bytes, "\x0f\x1f\x84\0UNV", 7) &&
        bytes[7] < PATHS * STEPS)
      qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)bytes[7]);
    else
      qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, QEMU_PLUGIN_INLINE_ADD_U64, is_kernel ? kernel : user, 1);
  }
}

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void report(void *unused) {
  (void)unused;
  for (int i = 0; i < PATHS; i++) {
    struct path *p = &paths[i];
    size_t n = p->operations;
    char line[256];
    double sum = 0;
    if (n == 0)
      continue;
    for (size_t k = 0; k < n; k++)
      sum += (double)p->all[k];
    qsort(p->all, n, sizeof *p->all, ascending);
    qsort(p->kernel, n, sizeof *p->kernel, ascending);
    snprintf(line, sizeof line,
             "path %d: %zu operations, instructions: median %" PRIu64 ", mean %.1f, min %" PRIu64 ", max %" PRIu64
             "; median %" PRIu64 " of them in the kernel\n",
             i, n, p->all[n / 2], sum / (double)n, p->all[0], p->all[n - 1], p->kernel[n / 2]);
    qemu_plugin_outs(line);
  }
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv) {
  struct qemu_plugin_scoreboard *score = qemu_plugin_scoreboard_new(sizeof(struct counts));
  (void)info, (void)argc, (void)argv;
  user = (qemu_plugin_u64){score, offsetof(struct counts, user)};
  kernel = (qemu_plugin_u64){score, offsetof(struct counts, kernel)};
  for (int i = 0; i < PATHS; i++) {
    paths[i].step = END;
    paths[i].all = calloc(OPERATIONS_MAX, sizeof *paths[i].all);
    paths[i].kernel = calloc(OPERATIONS_MAX, sizeof *paths[i].kernel);
    if (!paths[i].all || !paths[i].kernel)
      return -1;
  }
  qemu_plugin_register_vcpu_tb_trans_cb(id, translate, NULL);
  qemu_plugin_register_atexit_cb(id, report, NULL);
  return 0;
}

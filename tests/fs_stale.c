/* Asynchronous direct writes beside readers of the page cache: once all is quiet, both ways of reading agree.
 *
 *   cc -O1 -pthread fs_stale.c -o fs_stale; ./fs_stale FILE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGES 160
#define ROUNDS 60
#define PAGE 4096

static volatile int stop;
static const char *path;

static void fail(const char *what) {
  perror(what);
  exit(2);
}

static void *reader(void *unused) {
  char page[PAGE];
  int file = open(path, O_RDONLY);
  if (file < 0) fail("open for reading");
  while (!stop)
    for (int i = 0; i < PAGES; i++)
      if (pread(file, page, PAGE, (off_t)i * PAGE) != PAGE) fail("pread");
  close(file);
  return unused;
}

static void write_all(aio_context_t context, int file, char *data) {
  static struct iocb blocks[PAGES], *list[PAGES];
  static struct io_event events[PAGES];
  for (int i = 0; i < PAGES; i++) {
    blocks[i] = (struct iocb){.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = file,
      .aio_buf = (uintptr_t)(data + i * PAGE), .aio_nbytes = PAGE, .aio_offset = (int64_t)i * PAGE};
    list[i] = &blocks[i];
  }
  for (int sent = 0; sent < PAGES;) {
    long some = syscall(SYS_io_submit, context, PAGES - sent, list + sent);
    if (some <= 0) fail("io_submit");
    if (syscall(SYS_io_getevents, context, some, some, events, NULL) != some) fail("io_getevents");
    for (int i = 0; i < some; i++)
      if (events[i].res != PAGE) fail("a write");
    sent += some;
  }
}

int main(int count, char **words) {
  if (count != 2) return 2;
  path = words[1];
  char *data, *direct, *cached = malloc(PAGES * PAGE);
  if (posix_memalign((void **)&data, PAGE, PAGES * PAGE) || posix_memalign((void **)&direct, PAGE, PAGES * PAGE)) return 2;
  int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0644);
  int plain = open(path, O_RDONLY);
  if (file < 0 || plain < 0) fail(path);
  memset(data, 1, PAGES * PAGE);
  if (pwrite(file, data, PAGES * PAGE, 0) != PAGES * PAGE) fail("pwrite");
  char *mapped = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, plain, 0);
  if (mapped == MAP_FAILED) fail("mmap");
  aio_context_t context = 0;
  if (syscall(SYS_io_setup, PAGES, &context)) fail("io_setup");
  pthread_t readers[2];
  for (int i = 0; i < 2; i++) pthread_create(&readers[i], NULL, reader, NULL);
  for (int round = 2; round < ROUNDS; round++) {
    memset(data, round, PAGES * PAGE);
    write_all(context, file, data);
  }
  stop = 1;
  for (int i = 0; i < 2; i++) pthread_join(readers[i], NULL);
  if (pread(file, direct, PAGES * PAGE, 0) != PAGES * PAGE || pread(plain, cached, PAGES * PAGE, 0) != PAGES * PAGE)
    fail("pread");
  int stale = 0, unmapped = 0, wrong = 0;
  for (int i = 0; i < PAGES; i++) {
    wrong += direct[i * PAGE] != ROUNDS - 1;
    stale += cached[i * PAGE] != ROUNDS - 1;
    unmapped += mapped[i * PAGE] != ROUNDS - 1;
  }
  printf("of %d pages %d are stale in the page cache, %d in a mapping, %d on the device\n", PAGES, stale, unmapped, wrong);
  return stale || unmapped || wrong;
}

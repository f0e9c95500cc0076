/* mark.c - passes markers of the plugin instructions.c, one for each argument: mark NUMBER...
 *
 * What the processor executes between the markers of two of these processes is counted, whoever executes it:
 * a program that cannot be changed is measured between them. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
  /* nopl disp32(%rax,%rax,1), and ret. */
  unsigned char code[] = {0x0f, 0x1f, 0x84, 0x00, 'U', 'N', 'V', 0, 0xc3};
  for (int i = 1; i < argc; i++) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
      return 1;
    code[7] = (unsigned char)atoi(argv[i]);
    memcpy(page, code, sizeof code);
    ((void (*)(void))page)();
  }
  return 0;
}

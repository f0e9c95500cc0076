# Programs that a sanitizer of the compiler looks after: its library refuses to be loaded after another one.
# shellcheck shell=sh
ASAN_OPTIONS=detect_leaks=0 LSAN_OPTIONS=detect_leaks=0
export ASAN_OPTIONS LSAN_OPTIONS
cat >program.c <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int file = open("file", O_CREAT | O_RDWR | O_TRUNC, 0644);
    char *memory = malloc(8);
    const char *preload = getenv("LD_PRELOAD");
    (void)argv;
    if (file < 0 || write(file, "0123456789", 10) != 10)
        return 1;
    if (pread(file, memory, argc > 1 ? 10 : 8, 0) < 8)
        return 2;
    printf("%.8s, %s\n", memory, preload && strstr(preload, "san.so") ? "seen" : "not seen");
    fflush(stdout);
    free(memory);
    return system("cat file && echo") != 0;
}
C
for sanitizer in address undefined leak; do
    if cc -w -g -fsanitize="$sanitizer" -o "program-$sanitizer" program.c 2>/dev/null; then
        echo "$sanitizer"
        "./program-$sanitizer"
        sh -c "exec ./program-$sanitizer"
        # One that is not in the folder.
        cp "program-$sanitizer" "$OUTSIDE/" && "$OUTSIDE/program-$sanitizer"
    fi
done
if [ -x program-address ]; then
    ./program-address over 2>&1 | grep -c heap-buffer-overflow
    printf '#!%s/program-address\n' "$PWD" >script
    chmod +x script
    ./script 2>&1 | grep -c heap-buffer-overflow
    runtime=$(cc -print-file-name=libasan.so)
    LD_PRELOAD="$runtime${LD_PRELOAD:+:$LD_PRELOAD}" cat file && echo
fi

# Libraries beside a program, which the loader looks for by itself: $ORIGIN, lists of directories, dlopen by
# path and by name, libraries that are loaded first; and the paths by which they are known afterwards.
# shellcheck shell=sh disable=SC2016
set -u
mkdir -p app/bin app/libs app/other && cd app || exit 1
echo 'int b(void) { return 42; }' >b.c
echo 'int b(void); int a(void) { return b(); }' >a.c
echo 'int two(void); int one(void) { return 1; } int sum(void) { return one() + two(); }' >one.c
echo 'int one(void); int two(void) { return 1 + one(); }' >two.c
cat >linked.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int a(void);
int main(void)
{
    char line[4096];
    Dl_info info;
    const char *path = getenv("LD_LIBRARY_PATH");
    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;
    printf("a %d, LD_LIBRARY_PATH %s\n", a(), path ? path : "not set");
    dladdr((void *)a, &info);
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, "app/") && strstr(line, "liba.so\n");
    printf("%s, %s\n", info.dli_fname, found ? "mapped" : "not mapped");
    return 0;
}
C
cat >opens.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    Dl_info info;
    void *handle = dlopen(argv[1], RTLD_NOW), *again;
    int (*a)(void);
    if (!handle) {
        printf("not loaded: %s\n", dlerror() ? "it is said why" : "nothing is said");
        return 1;
    }
    a = (int (*)(void))dlsym(handle, argc > 2 ? argv[2] : "a");
    dladdr((void *)a, &info);
    again = dlopen(argv[1], RTLD_LAZY);
    printf("%d %s %s\n", a(), info.dli_fname, again == handle ? "once" : "twice");
    dlclose(again);
    dlclose(handle);
    printf("%s\n", dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) ? "still loaded" : "closed");
    return 0;
}
C
cc -shared -fPIC b.c -o libs/libb.so
cc -shared -fPIC a.c -o liba.so -Llibs -lb -Wl,-rpath,'$ORIGIN/libs'
cc -shared -fPIC a.c -o other/liba.so -Llibs -lb
cc -shared -fPIC a.c -o other/librpath.so -Llibs -lb -Wl,--disable-new-dtags,-rpath,'${ORIGIN}/../libs'
cc opens.c -o opens -ldl
cc linked.c -o bin/linked -L. -la -ldl -Wl,-rpath,'$ORIGIN/..' -Wl,-rpath-link,libs
cc linked.c -o bare -L. -la -ldl -Wl,-rpath-link,libs
# Two that need each other.
cc -shared -fPIC two.c -o libs/libtwo.so
cc -shared -fPIC one.c -o libs/libone.so -Llibs -ltwo -Wl,-rpath,'$ORIGIN'
cc -shared -fPIC two.c -o libs/libtwo.so -Llibs -lone -Wl,-rpath,'$ORIGIN'
cat >both.c <<'C'
#include <stdio.h>
int sum(void);
int main(void) { return printf("sum %d\n", sum()) < 0; }
C
cc both.c -o both -Llibs -lone -Wl,-rpath,'$ORIGIN/libs' -Wl,-rpath-link,libs

echo 'by $ORIGIN'
bin/linked
"$PWD/bin/linked"
(cd bin && ./linked)
echo 'by a list'
LD_LIBRARY_PATH=$PWD:$PWD/libs ./bare
LD_LIBRARY_PATH=other:libs ./bare
LD_LIBRARY_PATH=/nowhere:$PWD/other:$PWD/libs sh -c './bare; :'
./bare 2>/dev/null || echo 'not found'
cp bare "$OUTSIDE/" && LD_LIBRARY_PATH=$PWD/other:$PWD/libs "$OUTSIDE/bare"
echo 'by dlopen'
./opens "$PWD/liba.so"
./opens ./liba.so
./opens other/librpath.so
./opens other/liba.so
LD_LIBRARY_PATH=$PWD/libs ./opens other/liba.so
LD_LIBRARY_PATH=$PWD/other:$PWD/libs ./opens liba.so
./opens liba.so
./opens libs/none.so
cp opens "$OUTSIDE/" && "$OUTSIDE/opens" "$PWD/liba.so"
echo 'each by the other'
./both
echo 'loaded first'
LD_PRELOAD="$PWD/libs/libb.so${LD_PRELOAD:+:$LD_PRELOAD}" sh -c 'echo first; echo "${LD_PRELOAD%%:*}"'
python3 - <<'END'
import ctypes, os
library = ctypes.CDLL(os.path.abspath("liba.so"))
print(library.a(), [line.split()[-1] for line in open("/proc/self/maps") if "liba.so" in line][0])
END

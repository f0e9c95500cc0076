# A program is made and run: a compiler, make, a linker, perl, and what they have built.
# shellcheck shell=bash disable=SC1091,SC2012,SC2035,SC2002,SC2018,SC2019,SC2094,SC1014,SC2320,SC2319
set -u
mkdir build && cd build || exit 1
cat >main.c <<END
#include <stdio.h>
int other(int);
int main(int argc, char **argv) { FILE *f = fopen("ran", "a"); fprintf(f, "%d %s\n", other(argc), argv[1]); return fclose(f); }
END
echo 'int other(int n) { return n * 21; }' >other.c
printf 'prog: main.o libother.a\n\tcc -o $@ main.o -L. -lother\nlibother.a: other.o\n\tar rcs $@ $^\n%%.o: %%.c\n\tcc -c -o $@ $<\n' >Makefile
make >log 2>&1 || cat log
make | sed 's/\[.*\]//'
./prog word && cat ran
touch -d '+1 hour' other.c && make 2>/dev/null | grep -c cc
cc -shared -fPIC -o libshared.so other.c && python3 -c 'import ctypes; print(ctypes.CDLL("./libshared.so").other(2))'
nm libother.a | grep -c ' T other' && strip prog && ./prog again && tail -n 1 ran && file_type=$(head -c 4 prog | tr -d '\177') && echo "$file_type"
perl -i.bak -pe 's/21/22/' other.c && diff other.c.bak other.c | tail -n 1
perl -MFile::Find -MFile::Copy -e 'copy("main.c", "copied.c") or die; find(sub { push @n, $_ if /\.c$/ }, "."); print join(" ", sort @n), "\n"; open F, "+<", "copied.c" or die; seek F, 5, 0; read F, $x, 6; print "$x\n"; truncate F, 10; print -s "copied.c", "\n"; opendir D, "." or die; print scalar(grep { !/^\./ } readdir D), "\n"; rename "copied.c", "renamed.c" or die; unlink "renamed.c"; print -e "renamed.c" ? "there" : "gone", "\n"'
sed -i 's/word/sentence/' ran && cat ran && sed -n '1p;w written' ran && cat written
awk '{ print > "awk." NR } END { print NR }' ran && ls awk.*
printf 'one\ntwo\n' >patched && cp patched original && printf 'one\nTWO\n' >new && diff -u original new >the.patch
patch -s patched <the.patch && cmp patched new && echo 'patched'
grep -rn TWO . | sort && grep -c . *.c
m4 -P </dev/null >m4.out 2>/dev/null; bc <<END 2>/dev/null || echo 5
2+3
END
python3 - <<'END'
import mmap, os, shutil, tempfile, json, sqlite3, pathlib, zipfile, shelve, dbm.dumb, logging.handlers, concurrent.futures, subprocess
root = pathlib.Path("py"); root.mkdir()
(root / "text").write_text("abc\n" * 1000)
with open(root / "text", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    m[0:3] = b"XYZ"; m.flush(); print(m.find(b"abc"), m.size())
print((root / "text").read_bytes()[:4], (root / "text").stat().st_size)
shutil.copytree(root, "py2"); shutil.move("py2", "py3"); print(sorted(os.listdir("py3")))
with tempfile.TemporaryDirectory(dir=".") as d:
    with tempfile.NamedTemporaryFile(dir=d) as t: t.write(b"x"); t.flush(); print(os.path.getsize(t.name))
json.dump({"a": [1, 2]}, open("j", "w")); print(json.load(open("j")))
with zipfile.ZipFile("z.zip", "w") as z: z.write("py/text"); print(z.namelist())
with shelve.open("shelf") as s: s["k"] = {"v": 1}
with shelve.open("shelf") as s: print(s["k"])
h = logging.handlers.RotatingFileHandler("log.txt", maxBytes=500, backupCount=3)
logger = logging.getLogger("x"); logger.addHandler(h)
for i in range(50): logger.warning("message %d", i)
print(sorted(p.name for p in pathlib.Path(".").glob("log.txt*")))
def work(i):
    p = f"pool{i}"; open(p, "w").write(str(i)); return int(open(p).read())
with concurrent.futures.ProcessPoolExecutor(2) as e: print(sum(e.map(work, range(20))))
with open("sub", "wb") as out: subprocess.run(["sh", "-c", "echo sub; pwd >/dev/null"], stdout=out, check=True)
print(open("sub").read(), os.access("sub", os.W_OK), sorted(e.name for e in os.scandir("py")))
a, b = os.open("sub", os.O_RDONLY), os.open("cfr", os.O_RDWR | os.O_CREAT)
print(os.copy_file_range(a, b, 100), os.sendfile(b, a, 0, 3), os.pread(b, 10, 0))
END
cat >stream.cc <<END
#include <fcntl.h>
#include <iostream>
#include <unistd.h>
int main() {
    std::cout << "to the output" << std::endl;
    std::cerr << "to the error output" << std::endl;
    dup2(open("led", O_CREAT | O_WRONLY, 0600), 1);
    std::cout << "elsewhere" << std::endl;
}
END
if c++ -o stream stream.cc 2>/dev/null; then
    ./stream >stream.out 2>stream.err && cat stream.out stream.err led
    rm led && ./stream 2>&1 | cat && cat led
fi
cat >wide.cpp <<'PROGRAM'
#include <clocale>
#include <iostream>
#include <string>
int main()
{
    std::setlocale(LC_ALL, "C.UTF-8");
    std::wstring line;
    std::getline(std::wcin, line);
    std::wcout << line << L' ' << line.size() << std::endl;
    std::wcerr << L"said" << std::endl;
}
PROGRAM
c++ -o wide wide.cpp 2>/dev/null && printf 'h\303\244\303\237\n' >in && ./wide <in >out 2>said && cat out said

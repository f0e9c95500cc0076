# What is open and locked over exec: what closes then gives its locks and its space back.
# shellcheck shell=bash
set -u
LC_ALL=C
export LC_ALL
mkdir exec && cd exec || exit 1
command -v python3 >/dev/null || exit 0
cat >"$OUTSIDE/lock.py" <<'PYTHON'
import fcntl, os, subprocess, sys

def lock(name):
    file = open(name, "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file
    except OSError as error:
        return os.strerror(error.errno)

what = sys.argv[1]
if what == "leave":
    # The child has none of the file, which closes at exec, and lives on.
    file = lock("left")
    child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    print(child.pid)
elif what == "try":
    file = lock("left")
    print(file if isinstance(file, str) else "free")
elif what == "again":
    file = lock("own")
    print(sys.argv[2], file if isinstance(file, str) else "locked")
    sys.stdout.flush()
    if sys.argv[2] != "2":
        os.execv(sys.executable, [sys.executable, sys.argv[0], what, str(int(sys.argv[2]) + 1)])
elif what == "keep":
    file = lock("kept")
    os.set_inheritable(file.fileno(), True)
    os.execv(sys.executable, [sys.executable, sys.argv[0], "kept"])
elif what == "kept":
    file = lock("kept")
    print(file if isinstance(file, str) else "lost")
elif what == "space":
    def free():
        found = os.statvfs(".")
        return found.f_bfree * found.f_frsize
    before = int(sys.argv[2]) if len(sys.argv) > 2 else free()
    if len(sys.argv) > 2:
        print("given back" if before - free() < 8 << 20 else "kept")
    else:
        file = open("unnamed", "wb")
        os.unlink("unnamed")
        file.write(b"x" * (16 << 20))
        file.flush()
        os.execv(sys.executable, [sys.executable, sys.argv[0], what, str(before)])
PYTHON
child=$(python3 "$OUTSIDE/lock.py" leave)
python3 "$OUTSIDE/lock.py" try
kill "$child"
python3 "$OUTSIDE/lock.py" again 0
python3 "$OUTSIDE/lock.py" keep
python3 "$OUTSIDE/lock.py" space
# Nobody is in a directory that was left behind by a program before.
mkdir here && cd here && sh -c 'cd .. && rmdir here && echo removed'
cd .. && ls
# Links that lead out of the folder, and the loader as a program.
mkdir leads && cd leads || exit 1
ln -s /bin/echo out && ln -s out again && ./out one && ./again two && sh -c './again three'
printf 'four\n' >text && ln -s /bin/cat read && env ./read text && find . -name read -exec {} text \; && PATH=.:$PATH read text
python3 -m venv --without-pip v && v/bin/python -c 'import os, sys; print(sys.prefix == os.path.abspath("v"), sys.prefix != sys.base_prefix)'
python3 -c 'import os, subprocess; print(subprocess.run(["./again", "five"]).returncode); os.posix_spawn("./out", ["out", "six"], os.environ); os.wait()'
ldd /bin/cat | grep -c 'libc\.so'
"$(ldd /bin/cat | sed -n 's/^[[:space:]]*\(\/[^ ]*ld-[^ ]*\).*/\1/p' | head -n 1)" /bin/cat text
cd ..

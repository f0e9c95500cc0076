#!/bin/sh
# The preload library when something is wrong: words that it does not know, devices that are not there,
# programs that it cannot reach, a program that is killed, a drive that is unplugged, a server that is
# killed. And that it does what it is for: no call of the data path reaches the kernel.
#
#   tests/preload_faults.sh UNVME
#
# UNVME_PRELOAD is the folder of libunvme_preload.so, if not where UNVME finds it.
set -eu

unvme=$(readlink -f "$1")
name=preload_faults
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/preload/place.sh
. "$root/tests/preload/place.sh"
find_library

steady=$work/steady
${CC:-cc} -Wall -Wextra -O1 -o "$steady" "$root/tests/preload/steady.c"

# A command that fails and says something, and that leaves nothing in the kernel's folder.
refused() {
    said=$1
    shift
    steps=$((steps + 1))
    if (cd "$top" && exec timeout 120 "$@") >"$work/output" 2>&1; then
        differs "has not failed: $*"
    fi
    grep -qE -- "$said" "$work/output" || differs "does not say '$said': $*"
    [ -z "$(ls -A "$top")" ] || differs "has written into the kernel's folder: $*: $(ls -A "$top")"
    rm -rf "${top:?}"/*
}

one_line() {
    [ "$(wc -l <"$work/output")" -eq 1 ] || differs 'more than one line is said'
}

good() {
    steps=$((steps + 1))
    inside "$@" >"$work/output" 2>&1 || differs "failed: $*"
}

# Until a file says something.
until_says() {
    waited=0
    until grep -qs "$1" "$2"; do
        waited=$((waited + 1))
        [ "$waited" -lt 1200 ] || fail "no '$1': $(cat "$2")"
        sleep 0.1
    done
}

until_promised() {
    waited=0
    until [ "$(od -An -N8 -tu8 "$1" 2>/dev/null | tr -d ' ')" -gt "$2" ] 2>/dev/null; do
        waited=$((waited + 1))
        [ "$waited" -lt 1200 ] || fail "the program does not go on: $(cat "$work/said")"
        sleep 0.1
    done
}

servers_end() {
    for process in $(servers); do kill "$process" 2>/dev/null || true; done
    waited=0
    until [ -z "$(servers)" ] || [ "$waited" -ge 600 ]; do
        waited=$((waited + 1))
        sleep 0.1
    done
}

slot 0000:02:00.0 256M
config=$work/preload.conf

section 'what is configured wrongly'
for line in 'wrap_dirr = x:wrap_dirr' 'ffs_format = maybe:maybe' 'ffs_prealloc = lots:lots' 'filesystem = lib_ext9.so:lib_ext9.so' \
    'storage_engine = lib_none.so:lib_none.so' 'nonsense:nonsense'; do
    printf '# a comment\nwrap_dir = %s\nstorage_dev = 0000:02:00.0\n%s\n' "$top" "${line%%:*}" >"$config"
    refused "preload.conf: line 4.*${line##*:}" env WRAPPER_CONFIG="$config" LD_PRELOAD="$library" touch "$top/file"
    one_line
done
printf 'wrap_dirr = %s\n' "$top" >"$config"
refused 'preload.conf: line 1.*wrap_dir, storage_dev' env WRAPPER_CONFIG="$config" LD_PRELOAD="$library" touch "$top/file"
printf 'wrap_dir = %s\n' "$top" >"$config"
refused 'storage_dev' env WRAPPER_CONFIG="$config" LD_PRELOAD="$library" touch "$top/file"
printf 'storage_dev = 0000:02:00.0\n' >"$config"
refused 'wrap_dir' env WRAPPER_CONFIG="$config" LD_PRELOAD="$library" touch "$top/file"
refused 'none.conf.*No such file' env WRAPPER_CONFIG="$work/none.conf" LD_PRELOAD="$library" touch "$top/file"
printf 'wrap_dir = %s\nstorage_dev = 0000:0f:00.0\n' "$top" >"$config"
refused '0000:0f:00.0' env WRAPPER_CONFIG="$config" LD_PRELOAD="$library" touch "$top/file"
one_line
refused 'no such device|0000:0f:00.0' "$unvme" run --dir "$top=0000:0f:00.0" -- touch "$top/file"
one_line
refused 'there is no file system' sh -c "'$unvme' device create 0000:0e:00.0 --size 64M >/dev/null && exec '$unvme' run --dir '$top=0000:0e:00.0' -- touch '$top/file'"
refused 'ulimit -s. is 128 KiB' sh -c "ulimit -s 128; exec '$unvme' run --dir '$top=0000:02:00.0' -- touch '$top/file'"
one_line
(ulimit -s 128 && exec "$unvme" list) >"$work/output" 2>&1 || differs 'unvme list with a small stack'
refused 'no_such_program' "$unvme" run --dir "$top=0000:02:00.0" -- no_such_program
refused 'FOLDER=DEVICE|expected' "$unvme" run --dir "$top" -- true
refused '' "$unvme" run --dir "$top=0000:02:00.0"
refused '--dir' "$unvme" run --cache 1G -- true
refused '--dir' env WRAPPER_CONFIG="$config" "$unvme" run --shared -- true
for between in '' 'exec "$@"'; do
    # shellcheck disable=SC2086
    refused 'namespace 1, already' "$unvme" run --dir "$top=0000:02:00.0" -- ${between:+sh -c "$between" sh} "$unvme" run --nsid 2 --dir "$top=0000:02:00.0" -- true
done

if [ "$(uname -m)" = x86_64 ]; then
    section 'a program that makes system calls itself'
    cat >"$work/raw.c" <<'C'
#include <fcntl.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
    long result;
    register long mode __asm__("r10") = 0644;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_openat), "D"(AT_FDCWD), "S"(argv[argc - 1]),
                     "d"(O_CREAT | O_WRONLY), "r"(mode) : "rcx", "r11", "memory");
    return result < 0;
}
C
    ${CC:-cc} -o "$work/raw" "$work/raw.c"
    steps=$((steps + 1))
    "$unvme" run --dir "$top=0000:02:00.0" -- "$work/raw" "$top/stray" >"$work/output" 2>&1 || fail 'it has failed'
    grep -q "raw: it makes system calls itself.* stray is in $top" "$work/output" || differs 'it is not named'
    one_line
    rm -f "$top/stray"
fi

section "the seed's words"
cat >"$config" <<CONFIG
wrap_dir = $top

filesystem = lib_ffs.so
ffs_prealloc = 128K
ffs_readahead = none
ffs_format = FALSE

storage_engine = lib_nvmed.so
storage_dev = 0000:02:00.0
CONFIG
steps=$((steps + 1))
(cd "$top" && WRAPPER_CONFIG=$config LD_PRELOAD=$library sh -c 'echo kept >file && cat file') >"$work/output" 2>&1 || fail 'with the words of a configuration'
grep -qx kept "$work/output" || fail 'what was written is not read'
[ -z "$(ls -A "$top")" ] || fail 'it was written into the kernel'
check 0000:02:00.0
[ "$("$unvme" fs cat 0000:02:00.0 /file)" = kept ] || fail 'it is not on the drive'

section 'a file system that is made anew, and how a server keeps pages'
cat >"$config" <<CONFIG
wrap_dir = $top
storage_dev = 0000:02:00.0
ffs_format = TRUE
shared = TRUE
policy = lru
CONFIG
configured() { env WRAPPER_CONFIG="$config" LD_PRELOAD="$library" "$@"; }
steps=$((steps + 1))
configured ls -A "$top" >"$work/output" 2>&1 || fail 'it is not made'
[ ! -s "$work/output" ] || fail 'what was there is there'
for process in $(servers); do tr '\0' ' ' <"/proc/$process/cmdline"; done >"$work/output"
grep -q -- '--policy lru' "$work/output" || fail 'its server has not the policy'
# Not while somebody has it; once nobody has, it is made again.
configured sh -c "echo >'$top/busy'; echo has it; while [ ! -e '$work/enough' ]; do sleep 0.1; done" >"$work/said" &
children=$!
until_says 'has it' "$work/said"
refused 'ffs_format.*other programs' env WRAPPER_CONFIG="$config" LD_PRELOAD="$library" touch "$top/file"
touch "$work/enough"
wait "$children" || fail 'the program that had it'
children=
configured ls -A "$top" >"$work/output" 2>&1 || fail 'it is not made again'
[ ! -s "$work/output" ] || fail 'what was there is there'
servers_end

section 'programs that cannot be reached'
cat >"$work/plain.c" <<'PROGRAM'
#include <stdio.h>
int main(int count, char **words) { FILE *f = fopen(words[count - 1], "w"); return f == NULL || fputs("x", f) < 0 || fclose(f) != 0; }
PROGRAM
${CC:-cc} -static -o "$work/static" "$work/plain.c"
${CC:-cc} -o "$work/suid" "$work/plain.c"
cp "$work/suid" "$work/plain"
[ "$(id -u)" -ne 0 ] || chown nobody "$work/suid"
chmod u+s "$work/suid"
ours 0000:02:00.0
good "$work/plain" plain
refused 'static' "$unvme" run --dir "$top=0000:02:00.0" -- "$work/static" file
refused 'set-user-id|setuid|suid' "$unvme" run --dir "$top=0000:02:00.0" -- "$work/suid" file
refused 'static' "$unvme" run --dir "$top=0000:02:00.0" -- sh -c "$work/static file"
# As the linker of Go marks its programs; and a head of 32 bits.
printf '%s\n' '__asm__(".pushsection .note.go.buildid,\"a\",@note; .long 4, 4, 4; .ascii \"Go\\0\\0\"; .long 7; .popsection");' >>"$work/plain.c"
${CC:-cc} -o "$work/goes" "$work/plain.c"
refused 'a Go program' "$unvme" run --dir "$top=0000:02:00.0" -- "$work/goes" file
refused 'a Go program' "$unvme" run --dir "$top=0000:02:00.0" -- sh -c "$work/goes file"
{ head -c 4 "$work/plain" && printf '\1' && tail -c +6 "$work/plain"; } >"$work/narrow"
chmod +x "$work/narrow"
refused '32 bits' "$unvme" run --dir "$top=0000:02:00.0" -- "$work/narrow" file
if [ "$(id -u)" -eq 0 ]; then
    refused 'set-user-id|setuid|suid' "$unvme" run --dir "$top=0000:02:00.0" -- sh -c "$work/suid file"
fi

section 'no call of the data path reaches the kernel'
if strace -o /dev/null true 2>/dev/null; then
    # Behind a server, and in a process that is alone, whose drive is a file in memory.
    for device in mem:block:256M 0000:02:00.0; do
        ours "$device"
        started=$(date +%s)
        good strace -f -y -o "$work/trace" "$steady" marks "$top/file"
        # One look in 100 ms of waiting, by each thread.
        most=$((20 + 40 * ($(date +%s) - started)))
        sed -n '/unvme-begin/,/unvme-end/p' "$work/trace" >"$work/between"
        grep -q unvme-end "$work/between" || fail 'the marks are not in the trace'
        # Who has waited long for the server looks whether it is there, now and then, on a busy machine.
        looks=$(grep -cE 'open(at)?\(.*"/proc/[0-9]+/stat"' "$work/between" || true)
        [ "$looks" -le "$most" ] || fail "$looks looks whether the server is there: $device"
        # Descriptors that stand for ours are files in memory: making and closing them, and holding their
        # numbers meanwhile, is all that is left of open and close.
        if grep -E '^[0-9]+ +(\+\+\+ )?(read|write|p(read|write)64|readv|writev|p(read|write)v2?|lseek|f(data)?sync|sync_file_range|open|openat2?|creat|stat|l?stat|fstat|newfstatat|statx|f?truncate|fallocate|flock|mkdir(at)?|link(at)?|symlink(at)?|getdents64|utimensat|sendfile|copy_file_range|rename(at2?)?|unlink(at)?)\(' \
            "$work/between" | grep -vE 'eventfd\]|open\("/proc/self/fd/|open\("/", [A-Z_|]*O_PATH|"/unvme-(begin|end)"|/media\.img>|/proc/[0-9]+/stat[">]|(fstat|newfstatat|statx)\([0-9]+</memfd:unvme-open>' >"$work/output"; then
            differs "calls reach the kernel: $device"
        fi
        steps=$((steps + 1))
        ! grep -F "$top/file" "$work/trace" | grep -v -E 'execve|unvme-' >"$work/output" || differs "paths reach the kernel: $device"
    done
else
    echo "$name: SKIPPED: strace cannot trace here"
fi

section 'killed in the middle'
for mode in '' --shared; do
    ours 0000:02:00.0
    # shellcheck disable=SC2086
    rm -f "$work/promises"
    # shellcheck disable=SC2086
    (cd "$top" && exec "$unvme" run --dir "$top=0000:02:00.0" $mode -- "$steady" write steady "$work/promises") >"$work/said" 2>&1 &
    children=$!
    until_promised "$work/promises" 20
    for process in $(pgrep -f "^$steady write" || true); do kill -KILL "$process"; done
    wait "$children" 2>/dev/null || true
    children=
    good "$steady" check steady "$work/promises"
    good rm steady
    check 0000:02:00.0
done
cat >"$work/killed.sh" <<'SCRIPT'
sqlite3 killed.db 'pragma journal_mode=wal; create table t(a integer primary key, b);' >/dev/null
n=0
while sqlite3 killed.db "pragma synchronous=full; insert into t(b) values(randomblob(5000));"; do
    n=$((n + 1))
    echo "$n" >"$PROMISED"
done
SCRIPT
export PROMISED="$work/promised"
(cd "$top" && exec "$unvme" run --dir "$top=0000:02:00.0" -- sh "$work/killed.sh") >"$work/said" 2>&1 &
children=$!
until_says '^[0-9][0-9]' "$PROMISED"
for process in $(pgrep -f "$work/killed.sh" || true) $(pgrep -f '^sqlite3 killed.db' || true); do kill -KILL "$process" 2>/dev/null || true; done
wait "$children" 2>/dev/null || true
children=
good sqlite3 killed.db "pragma integrity_check; select count(*) >= $(cat "$PROMISED") from t;"
[ "$(tr '\n' ' ' <"$work/output")" = 'ok 1 ' ] || fail 'SQLite has lost what it had promised'
good rm killed.db
check 0000:02:00.0

section 'unplugged under a running program'
for mode in '' --shared; do
    rm -f "$work/promises"
    # shellcheck disable=SC2086
    (cd "$top" && exec "$unvme" run --dir "$top=0000:02:00.0" $mode -- "$steady" write steady "$work/promises") >"$work/said" 2>&1 &
    children=$!
    until_promised "$work/promises" 20
    "$unvme" device unplug 0000:02:00.0 >/dev/null
    until_says '^error' "$work/said"
    wait "$children" 2>/dev/null || true
    children=
    cp "$work/said" "$work/output"
    grep -q '^error EIO after .* within a minute' "$work/said" || fail 'an unplugged drive is not EIO'
    for process in $(servers); do kill "$process" 2>/dev/null || true; done
    "$unvme" device plug 0000:02:00.0 >/dev/null
    good "$steady" check steady "$work/promises"
    good rm steady
    check 0000:02:00.0
done

section 'a server that is killed'
rm -f "$work/promises"
(cd "$top" && exec "$unvme" run --dir "$top=0000:02:00.0" --shared -- "$steady" -r write steady "$work/promises") >"$work/said" 2>&1 &
children=$!
until_promised "$work/promises" 20
[ -n "$(servers)" ] || fail 'there is no server'
for process in $(servers); do kill -KILL "$process"; done
until_says '^error' "$work/said"
# Whoever uses the folder next begins it again, and the first one goes on by it.
ours 0000:02:00.0 --shared
good sh -c 'echo back >other && sleep 5 && rm other'
until_says '^all written' "$work/said"
cp "$work/said" "$work/output"
grep -q '^error EIO after .* within a minute' "$work/said" || fail 'a server that is killed is not EIO'
wait "$children" 2>/dev/null || true
children=
good "$steady" check steady "$work/promises"
good rm steady
check 0000:02:00.0

section 'a server that is killed while a file of its is mapped'
cat >"$work/mapped.py" <<'PROGRAM'
import errno, mmap, os, sys, time
file = os.open('mapped', os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 8192)
memory = mmap.mmap(file, 8192)
memory[0:6] = b'synced'
memory.flush()
print('ready', flush=True)
sys.stdin.readline()
for _ in range(600):
    try:
        os.pwrite(file, b'x', 4096)
    except OSError as e:
        if e.errno == errno.EBADF:
            print('not open any more', flush=True)
            os._exit(0)
    time.sleep(0.1)
print('it goes on as if nothing were', flush=True)
os._exit(1)
PROGRAM
servers_end
ours 0000:02:00.0 --shared
mkfifo "$work/go"
(cd "$top" && exec "$unvme" run --dir "$top=0000:02:00.0" --shared -- python3 "$work/mapped.py" <"$work/go") >"$work/said" 2>&1 &
children=$!
exec 4>"$work/go"
until_says '^ready' "$work/said"
for process in $(servers); do kill -KILL "$process"; done
echo >&4
steps=$((steps + 1))
until_says '^not open any more' "$work/said"
exec 4>&-
wait "$children" 2>/dev/null || true
children=
cp "$work/said" "$work/output"
grep -q 'mapped to is theirs no more' "$work/said" || fail 'nobody is told that memory is not of a file any more'
good sh -c 'head -c 6 mapped | grep -qx synced && rm mapped'

section 'a server that is begun with few descriptors'
servers_end
ours 0000:02:00.0 --shared
(ulimit -Sn 200 && inside sh -c 'echo few >few; while [ -e few ]; do sleep 0.1; done') >"$work/said" 2>&1 &
children=$!
waited=0
until [ "$waited" -ge 600 ] || inside cat few >"$work/output" 2>&1; do
    waited=$((waited + 1))
    sleep 0.1
done
steps=$((steps + 1))
for process in $(servers); do
    [ "$(awk '/^Max open files/ { print $4 == $5 }' "/proc/$process/limits")" = 1 ] || fail 'it has not as many as it may have'
done
good rm few
wait "$children" || fail "the program failed: $(cat "$work/said")"
children=

section 'two programs, begun each for itself'
ours 0000:02:00.0
(cd "$top" && exec "$unvme" run --dir "$top=0000:02:00.0" -- sh -c 'echo first >first; while [ ! -e second ]; do sleep 0.05; done; cat second') >"$work/said" 2>&1 &
children=$!
waited=0
until [ "$waited" -ge 100 ] || inside cat first >"$work/output" 2>&1; do
    waited=$((waited + 1))
    sleep 0.1
done
grep -qx first "$work/output" || fail 'the second program does not see the file of the first'
good sh -c 'echo second >new && mv new second'
wait "$children" || fail "the first program failed: $(cat "$work/said")"
children=
grep -qx second "$work/said" || fail 'the first program does not see the file of the second'
check 0000:02:00.0

section 'many programs that begin and end at once'
cat >"$work/many.sh" <<'SCRIPT'
set -eu
echo "$1" >"file$1"
(echo child >>"file$1")
mkdir "folder$1"
mv "file$1" "folder$1/file"
[ "$(cat "folder$1/file")" = "$1
child" ]
SCRIPT
for round in 1 2 3; do
    crowd=
    for number in 1 2 3 4 5 6 7 8; do
        (cd "$top" && exec timeout 300 "$unvme" run --dir "$top=0000:02:00.0" -- sh "$work/many.sh" "$round$number") >"$work/many$number" 2>&1 &
        crowd="$crowd $!"
    done
    children=$crowd
    for process in $crowd; do wait "$process" || fail "one of many has failed: $(cat "$work"/many?)"; done
    children=
done
good sh -c '[ "$(ls -d folder* | wc -l)" -eq 24 ]'
check 0000:02:00.0
for process in $(servers); do kill "$process" 2>/dev/null || true; done
finish

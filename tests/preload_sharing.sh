#!/bin/sh
# One file system and several programs: begun by each other, each for itself, elsewhere, with other
# environments and other configurations, in the middle of each other's work, and at their ends.
#
#   tests/preload_sharing.sh UNVME
#
# UNVME_PRELOAD is the folder of libunvme_preload.so, if not where UNVME finds it.
set -eu

unvme=$(readlink -f "$1")
name=preload_sharing
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/preload/place.sh
. "$root/tests/preload/place.sh"
find_library

sharing=$work/sharing
${CC:-cc} -Wall -Wextra -O1 -o "$sharing" "$root/tests/preload/sharing.c" -lpthread

# says WHAT COMMAND...: what a command prints, with spaces for ends of lines.
says() {
    expected=$1
    shift
    steps=$((steps + 1))
    status=0
    "$@" >"$work/output" 2>&1 || status=$?
    [ "$(tr '\n' ' ' <"$work/output" | sed 's/ $//')" = "$expected" ] && [ "$status" -eq 0 ] || differs "not '$expected' (status $status): $*"
}

until_there() {
    waited=0
    until [ -e "$1" ]; do
        waited=$((waited + 1))
        [ "$waited" -lt 1200 ] || fail "there is no $1"
        sleep 0.1
    done
}

# After this the next program has the file system to itself: a server stays for some seconds.
servers_end() {
    for process in $(servers); do kill "$process" 2>/dev/null || true; done
    waited=0
    until [ -z "$(servers)" ]; do
        waited=$((waited + 1))
        [ "$waited" -lt 1200 ] || fail "servers do not end: $(servers)"
        sleep 0.1
    done
}

slot 0000:02:00.0 256M
slot 0000:03:00.0 256M
ours 0000:02:00.0

section 'memory that is part of a file, when a program ends, and when it becomes another one'
inside "$sharing" map file
says stored inside sh -c 'tail -c +5001 file | tr -d "\0"'
inside rm file
says stored inside "$sharing" map-exec file sh -c 'tail -c +5001 file | tr -d "\0"'
inside rm file

section 'a second program, while the first one has memory that is part of a file'
(inside "$sharing" map-wait file "$outside/ready" "$outside/go") >"$work/first" 2>&1 &
children=$!
until_there "$outside/ready"
says one inside "$sharing" map-store file
touch "$outside/go"
wait "$children" || fail "the first program failed: $(cat "$work/first")"
children=
says 'one two' cat "$work/first"
says 'onetwo' inside sh -c 'tail -c +5001 file | tr -d "\0"'
inside rm file
check 0000:02:00.0

section 'files that are closed while others are in the middle of calls'
says closed inside "$sharing" closing file

section 'the end of a program in the middle of calls of its threads'
for turn in 1 2 3 4 5 6; do says ended inside "$sharing" ending "file$turn"; done
for turn in 1 2 3; do says ended inside sh -c "'$sharing' ending file$turn; true"; done
check 0000:02:00.0

section 'a program that ends while another one asks for what it has'
for turn in 1 2 3 4 5 6 7 8 9 10 11 12; do
    inside sh -c "echo 'kept $turn' >kept$turn" &
    children=$!
    inside true
    wait "$children" || fail "turn $turn: a program has failed"
    children=
    says "kept $turn" inside cat "kept$turn"
done
inside sh -c 'rm kept*'

section 'a file without a name, over the end of a server that is killed'
rm -f "$outside/ready" "$outside/go"
inside sh -c "exec 3<>nameless; rm nameless; echo before >&3; sync; : >'$outside/ready'
    while [ ! -e '$outside/go' ]; do sleep 0.05; done
    cat other >/dev/null 2>&1; cat /proc/self/fd/3" >"$work/first" 2>&1 &
children=$!
until_there "$outside/ready"
for process in $(servers); do kill -KILL "$process"; done
inside sh -c 'echo other >other'
touch "$outside/go"
wait "$children" || true
children=
grep -qx before "$work/first" || fail "a file without a name is lost with a server: $(cat "$work/first")"

section 'a lock that is lost with a server that is killed'
rm -f "$outside/ready" "$outside/go"
inside bash -c "exec 3>locked 4>free; flock 3; sync; : >'$outside/ready'
    while [ ! -e '$outside/go' ]; do sleep 0.05; done
    cat other >/dev/null 2>&1; echo more >&4; { echo without >&3; } 2>/dev/null || echo refused" >"$work/first" 2>&1 &
children=$!
until_there "$outside/ready"
for process in $(servers); do kill -KILL "$process"; done
inside flock locked true
touch "$outside/go"
wait "$children" || true
children=
grep -qx refused "$work/first" || fail "a file is written without its lock: $(cat "$work/first")"
says more inside cat free

section 'what a server that is killed had not written is reported as lost, once for each open file'
for way in 'lost:EIO 0 EIO 0 EIO 0 EIO 0 0 0' 'found:EIO 0'; do
    ours 0000:02:00.0 --shared
    rm -f "$outside/ready" "$outside/go"
    inside "$sharing" "${way%%:*}" file "$outside/ready" "$outside/go" >"$work/first" 2>&1 &
    children=$!
    until_there "$outside/ready"
    for process in $(servers); do
        kill -KILL "$process"
        while kill -0 "$process" 2>/dev/null; do sleep 0.01; done
    done
    touch "$outside/go"
    wait "$children" || fail "the program failed: $(cat "$work/first")"
    children=
    says "${way#*:}" cat "$work/first"
    ours 0000:02:00.0
    inside rm file
done

section 'a program that ends with a mapping, and whose child waits for its end'
servers_end
seconds=60
says ended inside "$sharing" helper file
seconds=
says 'stored after' inside sh -c 'head -c 6 file; echo; tail -c +7001 file'
inside rm file

if unshare -p true 2>/dev/null; then
    section 'children in another PID namespace'
    seconds=60
    for mode in '' --shared; do
        servers_end
        ours 0000:02:00.0 $mode
        says child inside "$sharing" namespace file
        says childparent inside cat file
        inside rm file
    done
    seconds=
    ours 0000:02:00.0
    check 0000:02:00.0
fi

section 'a descriptor that two processes have by different ways'
says 'parent child parent child' inside "$sharing" passing file

if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    section 'programs that become another user, alone and shared, and have children'
    inside chmod 777 .
    # A thread that has not the same rights as the others would end the first one.
    for mode in '' --shared; do
        servers_end
        ours 0000:02:00.0 $mode
        denied='Permission denied 65534'
        says "$denied opened 0 $denied $denied" inside "$sharing" users theirs
        inside rm -r theirs
        says '65534 kept 65534:65534 kept' inside setpriv --reuid=65534 --regid=65534 --clear-groups \
            sh -c 'id -u; (echo kept >theirs; cat theirs; stat -c %u:%g theirs); sh -c "cat theirs; true"; rm theirs'
    done
    ours 0000:02:00.0
    inside chmod 755 .
fi

section 'another working folder, another environment'
inside mkdir -p below
says 'kept kept' inside sh -c 'echo kept >below/kept; cd below && cat kept && sh -c "cat kept"'
says 'kept kept' inside env -i "PATH=$PATH" sh -c 'cat below/kept; env -i "PATH=$PATH" sh -c "cat below/kept; true"'
# It has functions for variables of its own.
says 'kept kept' inside bash -c 'cat below/kept; bash -c "cat below/kept; true"'
says kept inside env LD_PRELOAD= sh -c 'cat below/kept; true'
says kept inside env "LD_PRELOAD=$(ls /lib/*/libdl.so.2 /lib64/libdl.so.2 2>/dev/null | head -n 1)" sh -c 'cat below/kept; true'

# A shell has the folders before the program that is to find its libraries there.
# shellcheck disable=SC2016
(cd "$top" && says "kept $top/below:/nowhere" env "LD_LIBRARY_PATH=$top/below:/nowhere" "$unvme" run --dir "$top=0000:02:00.0" -- \
    sh -c 'cat below/kept; echo "$LD_LIBRARY_PATH"')

says kept sh -c "cd '${library%/*}/..' && UNVME_PRELOAD='./$(basename "${library%/*}")' '$unvme' run --dir '$top=0000:02:00.0' -- \
    sh -c 'cd / && sh -c \"cat $top/below/kept; true\"'"

section 'a configuration with names that are not whole'
mkdir -p "$work/elsewhere"
printf 'wrap_dir = ./store\nstorage_dev = 0000:02:00.0\n' >"$work/elsewhere/c.conf"
says 'kept kept kept' sh -c "cd '$work/elsewhere' && WRAPPER_CONFIG=c.conf LD_PRELOAD='$library' sh -c \
    'cat store/below/kept; cd store && sh -c \"cat below/kept; cd below && sh -c \\\"cat kept; echo more >more\\\"\"'"
[ -z "$(ls -A "$work/elsewhere/store")" ] || fail 'files are in the kernel'"'"'s folder'
says more inside cat below/more

section 'a configuration within another one'
mkdir -p "$work/one" "$work/two"
says 'from one' "$unvme" run --dir "$work/one=0000:02:00.0" -- sh -c \
    "echo 'from one' >'$work/one/file'; '$unvme' run --dir '$work/two=0000:03:00.0' -- cp '$work/one/file' '$work/two/copy'; \
     '$unvme' run --dir '$work/two=0000:03:00.0' -- cat '$work/two/copy' >'$work/one/out'; cat '$work/one/out'"
check 0000:02:00.0
check 0000:03:00.0
says 'from one' "$unvme" fs cat 0000:02:00.0 /file
says 'from one' "$unvme" fs cat 0000:03:00.0 /copy
[ -z "$(ls -A "$work/one" "$work/two" | grep -v : || true)" ] || fail "files are in the kernel's folders"
printf 'wrap_dir = %s\nstorage_dev = 0000:03:00.0\n' "$work/two" >"$work/two.conf"
says 'kept from one kept' sh -c "cd '$work/elsewhere' && WRAPPER_CONFIG=c.conf LD_PRELOAD='$library' sh -c \
    \"cat store/below/kept && WRAPPER_CONFIG='$work/two.conf' cat '$work/two/copy'; cat store/below/kept\""
finish

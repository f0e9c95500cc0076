#!/bin/sh
# What the C library has for files, called in a folder that our preload library keeps on a drive, and what
# comes of it compared with the same calls on the kernel's file system: alone, shared, in one process, from
# another process's device and over a network. Besides the cases, in which somebody has thought of something,
# there are calls at random (random.c).
#
#   tests/preload.sh UNVME [FOLDER]    FOLDER has libunvme_preload.so, if not where UNVME finds it
#
# UNVME_PRELOAD_ALL=1 goes on after a difference. CASES='open_* map_*' makes only these calls.
# UNVME_PRELOAD_NATIVE=1 stops after what needs no library; UNVME_PRELOAD_SHORT=1 leaves out libraries that
# are wrong, and devices of others.
set -eu

unvme=$(readlink -f "$1")
name=preload
root=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -gt 1 ]; then
    UNVME_PRELOAD=$(readlink -f "$2")
    export UNVME_PRELOAD
fi
# shellcheck source=tests/preload/place.sh
. "$root/tests/preload/place.sh"
# Chosen cases; none for all.
cases=${CASES-}

compile() {
    output=$1
    shift
    # What is wrong on purpose is warned of.
    ${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -Wno-unused-result -Wno-nonnull -Wno-deprecated-declarations \
        -Wno-stringop-overflow -Wno-stringop-overread -Wno-format-truncation "$@" -o "$work/$output" \
        "$root"/tests/preload/calls*.c -lpthread 2>"$work/output" || fail "$output does not compile"
}

# The second one has the names of large files, and those with checks.
compile calls -U_FORTIFY_SOURCE
compile calls64 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -D_FILE_OFFSET_BITS=64
# Calls at random; the long form makes more of them.
${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -Wno-unused-result -Wno-nonnull -Wno-stringop-overflow \
    -Wno-stringop-overread -o "$work/random" "$root/tests/preload/random.c" 2>"$work/output" ||
    fail 'random does not compile'
if [ -z "${UNVME_PRELOAD_SHORT-}" ]; then last=150; else last=25; fi

# Seeds that are made alone, and some that have children: `at_random HOW OUTPUT`.
at_random() {
    if [ -z "$can_compare" ]; then
        # A plain folder is of any file system, and those differ in what they refuse.
        section 'calls at random: SKIPPED, without ext4 to compare with'
        return 0
    fi
    steps=$((steps + 2))
    for way in alone family; do
        "$1" mkdir "$top/$way" && "$1" "$work/random" 1 "$last" 1500 "$top/$way" "$way" >"$2.$way" 2>"$work/errors" || {
            tail -n 5 "$2.$way" "$work/errors" >"$work/output"
            fail "$1: calls at random, $way: ended with an error"
        }
        "$1" rm -rf "$top/$way"
    done
}

# The first line that is another one, with the seed, to be made again with `trace`.
compare_random() {
    [ -n "$can_compare" ] || return 0
    for way in alone family; do
        cmp -s "$work/native.$way" "$work/$1.$way" && continue
        line=$(diff "$work/native.$way" "$work/$1.$way" | sed -n '1s/[acd,].*//p')
        {
            head -n "$line" "$work/native.$way" | grep -a '^seed' | tail -n 1
            diff "$work/native.$way" "$work/$1.$way" | head -n 12
        } >"$work/output"
        differs "$1, calls at random, $way: not as on the kernel's file system (<)"
    done
}
sed -n 's/^\([^#	]*\)	.*/\1/p' "$root/tests/preload/allowed" >"$work/allowed"
calls=$work/calls
# A thread that is canceled in a call of ours does not end, and a pointer to nowhere ends the program: these
# cases would only wait for their limits, or crash.
cases_chosen=$cases
[ -n "$cases" ] || cases=$("$calls" -l | grep -vxE 'refused_.*')
# By their names: a process that has the file system to itself makes the calls of one.
cases=$("$calls" -l | while read -r case; do
    for pattern in $cases; do
        # shellcheck disable=SC2254
        case $case in $pattern) echo "$case" ;; esac
    done
done)

# The lines, in a file: by `native` or `inside`.
lines() {
    how=$1 output=$2
    shift 2
    # shellcheck disable=SC2086
    "$how" "$calls" "$@" $cases >"$output" 2>"$work/errors" || {
        cat "$output" "$work/errors" >"$work/output"
        differs "$how: $calls ended with an error"
    }
}

section 'on the kernel'
native_on
# Once each: whoever has forked, and its child, is the one that goes on later.
export LATE=child
lines native "$work/native" "$top" "$outside"
export LATE=parent
lines native "$work/again" "$top" "$outside"
unset LATE
steps=$((steps + 1))
cmp -s "$work/native" "$work/again" || {
    diff "$work/native" "$work/again" >"$work/output" || true
    fail 'two runs on the kernel differ: what is said must not'
}
# 98: a child that could not say what it had to.
grep -aE 'TIMED OUT|ENDED|the child ended with 98' "$work/native" >"$work/output" &&
    fail 'a case, or its child, has not come to its end on the kernel'

can_compare=$is_mounted
[ -n "$cases_chosen" ] || at_random native "$work/native"

if [ -z "${UNVME_PRELOAD_SHORT-}" ]; then
    section 'libraries that are wrong are found out'
    ${CC:-cc} -shared -fPIC -O1 -Wall -Wextra -o "$work/wrong.so" "$root/tests/preload/wrong.c" -ldl
    while read -r wrong case; do
        (cd "$top" && WRONG=$wrong LD_PRELOAD=$work/wrong.so "$calls" "$top" "$outside" "$case") >"$work/wrong" 2>/dev/null
        (cd "$top" && WRONG=none LD_PRELOAD=$work/wrong.so "$calls" "$top" "$outside" "$case") >"$work/right" 2>/dev/null
        (cd "$top" && "$calls" "$top" "$outside" "$case") >"$work/expected" 2>/dev/null
        steps=$((steps + 2))
        cmp -s "$work/expected" "$work/right" || fail "$case: a library that is right is found wrong"
        ! cmp -s "$work/expected" "$work/wrong" || fail "$case does not show what is wrong with $wrong"
    done <<WRONG
append open_append
truncate open_modes
exclusive open_exclusive
read read_write_sizes
place read_write
dup dup_shares
close-on-exec process_exec
map map_shared
locks record_locks
entries directory_streams
rename name_renames
errors name_removals
sync error_descriptors
streams stdio_buffers
fork process_offset
WRONG
fi

if [ -n "${UNVME_PRELOAD_NATIVE-}" ]; then
    finish
    exit 0
fi
native_off
allowed=$work/allowed

section 'alone, each case in a process that has the file system to itself'
slot 0000:02:00.0 2G
ours 0000:02:00.0
: >"$work/alone"
# One that hangs is a line that is missing.
seconds=120
for case in $cases; do
    inside "$calls" -1 "$top" "$outside" "$case" >>"$work/alone" 2>"$work/errors" || true
done
unset seconds
was_used calls
compare 'alone' "$work/native" "$work/alone"

if [ -z "$cases_chosen" ]; then
    section 'calls at random'
    at_random inside "$work/first"
    compare_random first
fi

section 'what a program alone has stored to a mapping is there after its end'
steps=$((steps + 1))
{
    inside truncate -s 8192 mapped
    inside "$calls" --helper map mapped
    inside head -c 6 mapped
    inside rm mapped
} >"$work/output" 2>&1
[ "$(cat "$work/output")" = stored ] || differs 'what was stored is not there'

section 'by one process for another, by the names with 64 and with checks'
calls=$work/calls64
lines inside "$work/begun" "$top" "$outside"
was_used calls
compare 'begun' "$work/native" "$work/begun"
check 0000:02:00.0
calls=$work/calls

section 'shared'
ours 0000:02:00.0 --shared
lines inside "$work/shared" "$top" "$outside"
was_used calls
compare 'shared' "$work/native" "$work/shared"
if [ -z "$cases_chosen" ]; then
    at_random inside "$work/shared"
    compare_random shared
fi
check 0000:02:00.0

if [ -z "${UNVME_PRELOAD_SHORT-}" ]; then
    section 'served by another process, and over a network'
    slot 0000:03:00.0 512M
    slot 0000:04:00.0 512M
    "$unvme" serve 0000:03:00.0 --socket "$work/served" >"$work/serve.log" 2>&1 &
    children="$children $!"
    "$unvme" serve 0000:04:00.0 --tcp 127.0.0.1:0 >"$work/tcp.log" 2>&1 &
    children="$children $!"
    waited=0
    until [ -S "$work/served" ] && grep -q 'tcp:127' "$work/tcp.log"; do
        waited=$((waited + 1))
        [ "$waited" -lt 600 ] || fail "nobody serves: $(cat "$work/serve.log" "$work/tcp.log")"
        sleep 0.1
    done
    cases=${CASES-open_* read_* truncation large_offsets map_shared map_fork name_* process_exec thread_hammer}
    ours "vfio-user:$work/served"
    native_on
    lines native "$work/native" "$top" "$outside"
    native_off
    lines inside "$work/vfio" "$top" "$outside"
    compare 'vfio-user' "$work/native" "$work/vfio"
    ours "$(grep -o 'tcp:127[^ ]*' "$work/tcp.log" | head -n 1)"
    lines inside "$work/tcp" "$top" "$outside"
    compare 'tcp' "$work/native" "$work/tcp"
fi

section 'what is refused'
ours mem:block:256M
cases='refused_*'
lines inside "$work/refused" "$top" "$outside"
steps=$((steps + 1))
for said in 'io_uring_setup = ENOSYS' 'io_setup = ENOSYS' 'fanotify_mark = EOPNOTSUPP'; do
    grep -q "$said" "$work/refused" || {
        cp "$work/refused" "$work/output"
        fail "not refused as it should be: no '$said'"
    }
done
! grep -E '= no$|TIMED|ENDED' "$work/refused" >"$work/output" || fail 'not refused cleanly'
finish

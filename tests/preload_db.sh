#!/bin/sh
# Databases, as others have built them, on our file system by way of the preload library, and on the kernel's
# ext4: the same output, and what was promised is there after a kill.
#
#   tests/preload_db.sh [-l] [-n] UNVME [FOLDER-OF-LIBRARY|- [PART ...]]
#
# A part is a file in tests/preload_db: sqlite, redis, postgres, mariadb, rocksdb, wiredtiger, others; without
# one, all of them. -l is for longer; -n has only the kernel's side, to see that what is run does run.
#
# In the environment, what scripts have built: WIREDTIGER (scripts/wiredtiger.sh), FS_TOOLS
# (scripts/fs-tools.sh) and SPEEDTEST (scripts/speedtest.sh); target/wiredtiger and so on if it is not set.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
long=
sides='native ours'
while getopts ln option; do
    # shellcheck disable=SC2034
    case $option in
    l) long=1 ;;
    n) sides=native ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
unvme=$(readlink -f "$1")
shift
# `-`: where the command looks for it.
if [ $# -gt 0 ]; then
    if [ "$1" != - ]; then
        UNVME_PRELOAD=$(readlink -f "$1")
        export UNVME_PRELOAD
    fi
    shift
fi
target=${CARGO_TARGET_DIR:-$root/target}
# They are used by the parts.
# shellcheck disable=SC2034
{
    wiredtiger=$(readlink -f "${WIREDTIGER:-$target/wiredtiger}")
    fs_tools=$(readlink -f "${FS_TOOLS:-$target/fs-tools}")
    speedtest=$(readlink -f "${SPEEDTEST:-$target/speedtest}")
    share=$root/share/unvme
}

# Devices and files in memory: a sync of the kernel's would be what takes the time.
if [ -w /dev/shm ]; then
    work=$(mktemp -d -p /dev/shm unvme-db.XXXXXX)
else
    work=$(mktemp -d)
fi
# Other users reach what is in it.
chmod 755 "$work"
export UNVME_HOME="$work/home"
mkdir "$work/native" "$work/ours"
slot=0000:02:00.0
device_size=${long:+1}4G
stats=$work/stats.json
steps=0
part=
side=
user=
shared=
# What stands before all that is run.
before=
# What is started and not stopped; whatever it has started, too.
servers=

# A process and all that it has started, so far.
tree() {
    printf ' %s' "$1"
    for child in $(pgrep -P "$1" || true); do
        tree "$child"
    done
}

cleanup() {
    for server in $servers; do
        # shellcheck disable=SC2046
        kill -KILL $(tree "$server") 2>/dev/null || true
    done
    umount -l "$work/native" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

fail() {
    echo "preload_db: $part, $side: $*" >&2
    for log in output server; do
        [ ! -s "$work/$log" ] || tail -n 30 "$work/$log" >&2
    done
    exit 1
}

# ---- what parts are made of ----------------------------------------------------------------------

# Runs a program where this side's files are: $dir.
on() {
    [ "$side" = native ] || set -- "$unvme" run --dir "$dir=$slot" ${shared:+"$shared"} --stats "$stats" -- "$@"
    [ -z "$user" ] || set -- setpriv --reuid="$user" --regid="$user" --init-groups "$@"
    $before "$@"
}

# A step that has to go well: good PROGRAM ARGUMENT ...; what it prints is in $work/output.
good() {
    steps=$((steps + 1))
    rm -f "$stats"
    before='timeout 600'
    on "$@" >"$work/output" 2>&1 || fail "failed: $*"
    before=
    case $side,$shared,$1 in
    native,*) ;;
    # A server opens them; or nobody does.
    *,--shared,* | *,mkdir | *,rm) ;;
    *) grep -q '"opened":[1-9]' "$stats" 2>/dev/null || fail "our file system was not used: $*" ;;
    esac
}

# The same, in a folder of ours: good_in FOLDER PROGRAM ARGUMENT ...
good_in() {
    # shellcheck disable=SC2016
    good sh -c 'cd "$1" && shift && exec "$@"' sh "$@"
}

# What is compared between the sides: said WORD ..., or by way of standard input.
said() {
    if [ $# -gt 0 ]; then echo "$*"; else cat; fi | sed "s|$dir|DIR|g" >>"$work/said.$side"
}

# The output of the last step has a line like this.
says() {
    grep -qE -- "$1" "$work/output" || fail "no line like \`$1\`"
}

# Starts a server: start PROGRAM ARGUMENT ...; it is in $server, what it prints in $work/server.
start() {
    steps=$((steps + 1))
    rm -f "$stats"
    # Nobody reads what the one before has said.
    : >"$work/server"
    (
        # No shell between it and us.
        before='exec'
        on "$@"
    ) >"$work/server" 2>&1 &
    server=$!
    servers="$servers $server"
}

# Waits until a command says yes, as long as the server is there.
until_it_is() {
    waited=0
    until "$@" >"$work/output" 2>&1; do
        kill -0 "$server" 2>/dev/null || fail "the server has ended before: $*"
        waited=$((waited + 1))
        [ "$waited" -lt 1200 ] || fail "not within two minutes: $*"
        sleep 0.1
    done
}

# One of these processes has a thread that is not dead yet, and so memory that it shares.
live() {
    for process in "$@"; do
        ! grep -qs '^State:.[^XZ]' "/proc/$process/task/"*/status || return 0
    done
    return 1
}

# The server, and all that it has started, die in the middle of whatever they do.
murder() {
    victims=
    until found=$(tree "$server") && [ "$found" = "$victims" ]; do
        victims=$found
        # Who is stopped begins no other one that nobody would kill.
        # shellcheck disable=SC2086
        kill -STOP $victims 2>/dev/null || true
    done
    # shellcheck disable=SC2086
    kill -KILL $victims 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    servers=
    # Nobody may take one for alive.
    waited=0
    # shellcheck disable=SC2086
    while live $victims; do
        waited=$((waited + 1))
        [ "$waited" -lt 600 ] || fail "killed and not dead within a minute:$victims"
        sleep 0.1
    done
}

# The server has been told to end.
ended() {
    wait "$server" || fail "the server has ended with $?"
    servers=
    [ "$side" = native ] || [ -n "$shared" ] || grep -q '"opened":[1-9]' "$stats" 2>/dev/null ||
        fail 'our file system was not used by the server'
}

needs() {
    for program in "$@"; do
        command -v "$program" >/dev/null 2>&1 || [ -x "$program" ] ||
            fail "there is no $program: make setup-test, or see the head of tests/preload_db.sh"
    done
}

# ---- sides ---------------------------------------------------------------------------------------

# An empty file system for the part.
prepare() {
    dir=$work/$side
    rm -f "$work/output" "$work/server" "$work/said.$side"
    : >"$work/said.$side"
    if [ "$side" = native ]; then
        umount -l "$dir" 2>/dev/null || true
        rm -f "$work/image"
        truncate -s "$device_size" "$work/image"
        # Without a loop device: the kernel's file system that the folder is in.
        if /sbin/mkfs.ext4 -q -F "$work/image" >/dev/null 2>&1; then
            mount -o loop "$work/image" "$dir" 2>/dev/null || find "$dir" -mindepth 1 -delete
        fi
    else
        # What the other side has is in memory as well.
        umount -l "$work/native" 2>/dev/null || true
        rm -f "$work/image"
        make_device
    fi
    chmod 755 "$dir"
}

# A device with a file system, which belong to whoever runs the part.
make_device() {
    rm -rf "$UNVME_HOME"
    mkdir "$UNVME_HOME"
    [ -z "$user" ] || chown "$user" "$UNVME_HOME"
    as_user "$unvme" device create "$slot" --size "$device_size" >"$work/output" 2>&1 || fail 'there is no device'
    as_user "$unvme" fs mkfs "$slot" >"$work/output" 2>&1 || fail 'there is no file system'
}

as_user() {
    [ -z "$user" ] || set -- setpriv --reuid="$user" --regid="$user" --init-groups "$@"
    "$@"
}

# Nothing went to the kernel's folder, and our file system is in order when the last process has left it.
finish() {
    user=
    shared=
    [ "$side" = ours ] || return 0
    steps=$((steps + 1))
    [ -z "$(ls -A "$dir")" ] || fail "the kernel has files that are ours: $(ls -A "$dir")"
    waited=0
    until "$unvme" fs check "$slot" >"$work/output" 2>&1; do
        waited=$((waited + 1))
        [ "$waited" -lt 100 ] || fail 'the file system is damaged, or somebody has it'
        sleep 0.1
    done
}

[ $# -gt 0 ] || set -- sqlite redis postgres mariadb rocksdb wiredtiger others
for part in "$@"; do
    [ -f "$here/preload_db/$part.sh" ] || fail "there is no part $part"
    part_begun=$(date +%s)
    part_steps=$steps
    for side in $sides; do
        prepare
        # shellcheck source=/dev/null
        . "$here/preload_db/$part.sh"
        finish
    done
    [ "$sides" = native ] || diff -u "$work/said.native" "$work/said.ours" >"$work/output" ||
        fail 'it does not say what it says on the kernel'
    printf 'preload_db: %-10s %3d steps, %d s\n' "$part" $((steps - part_steps)) $(($(date +%s) - part_begun))
done
printf 'preload_db: %s steps passed\n' "$steps"

# Where a program runs: in a folder of the kernel's, or in one that our library keeps on a drive. The scripts
# that source this have the folder at the same path both times, so that what is said can be compared.
#
# Before: `unvme` is the program; `name` is what messages begin with.
# shellcheck shell=sh
# What is set here is used in the scripts that source it, and the other way round.
# shellcheck disable=SC2034,SC2154

# Devices are files, whose flushes wait for a disk elsewhere.
if [ -w /dev/shm ]; then
    work=$(mktemp -d -p /dev/shm unvme-preload.XXXXXX)
else
    work=$(mktemp -d)
fi
# Users without rights reach what is below.
chmod 755 "$work"
export UNVME_HOME="$work/home"
top=$work/place/top
outside=$work/outside
stats=$work/stats.json
steps=0
differences=0
children=
is_mounted=
mkdir -p "$top" "$outside"

cleanup() {
    for child in $children; do
        kill "$child" 2>/dev/null || true
    done
    native_off
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# Also where the output of what fails goes elsewhere.
exec 3>&2

fail() {
    echo "$name: $*" >&3
    [ ! -s "$work/output" ] || tail -n 40 "$work/output" >&3
    exit 1
}

# Something is not as on the kernel; with UNVME_PRELOAD_ALL the rest is tried all the same.
differs() {
    [ -n "${UNVME_PRELOAD_ALL-}" ] || fail "$@"
    differences=$((differences + 1))
    echo "$name: $*" >&3
    cat "$work/output" >&3
}

section() {
    printf '%s: %s\n' "$name" "$*"
}

# The kernel's: ext4 on a loop device, or a plain folder for who may not have one.
native_on() {
    if [ "$(id -u)" -eq 0 ]; then
        truncate -s 4G "$work/ext4"
        PATH=$PATH:/sbin mkfs.ext4 -q -E lazy_itable_init=1 "$work/ext4"
        if mount -o loop "$work/ext4" "$top" 2>/dev/null; then
            is_mounted=1
            rm -rf "$top/lost+found"
        fi
    fi
}

native_off() {
    [ -z "$is_mounted" ] || umount "$top" 2>/dev/null || umount -l "$top"
    is_mounted=
    rm -rf "$top" "$work/ext4"
    mkdir -p "$top"
}

# Ours: `ours DEVICE OPTIONS...`; what runs next runs there.
ours() {
    device=$1
    shift
    ours_options=$*
}

slot() {
    "$unvme" device create "$1" --size "$2" >/dev/null
    "$unvme" fs mkfs "$1" >/dev/null
}

# native COMMAND ..., in the folder.
native() {
    (cd "$top" && exec timeout "${seconds:-600}" "$@")
}

# The same on the device. What was not asked of our side was not tried.
inside() {
    rm -f "$stats"
    # The options are meant to be split into words.
    # shellcheck disable=SC2086
    (cd "$top" && exec timeout "${seconds:-600}" "$unvme" run --dir "$top=$device" $ours_options --stats "$stats" -- "$@")
    status=$?
    if [ -n "$(ls -A "$top")" ]; then
        differs "files are in the kernel's folder, not on $device: $(ls -A "$top")"
        rm -rf "$top"
        mkdir "$top"
    fi
    return "$status"
}

# Where the library is: `library`.
find_library() {
    library=
    for folder in "${UNVME_PRELOAD-}" "$(dirname "$unvme")/../lib/unvme" "$(dirname "$unvme")"; do
        [ -n "$library" ] || [ ! -f "$folder/libunvme_preload.so" ] || library=$(readlink -f "$folder/libunvme_preload.so")
    done
    [ -n "$library" ] || fail 'libunvme_preload.so is not there'
}

# The servers that were begun here: by the folder of devices that they have from us.
servers() {
    for process in $(pgrep -f 'fs serve' || true); do
        if tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx "UNVME_HOME=$UNVME_HOME"; then
            echo "$process"
        fi
    done
}

# The file system of a device is in order. Whoever has served it to several processes may have it for a moment
# after the last of them.
check() {
    steps=$((steps + 1))
    waited=0
    until "$unvme" fs check "$1" >"$work/output" 2>&1; do
        waited=$((waited + 1))
        if [ "$waited" -ge 300 ] || ! grep -q 'mounted\|in use\|closed the connection' "$work/output"; then
            fail "the file system of $1 is damaged"
        fi
        sleep 0.1
    done
}

was_used() {
    grep -q '"opened":[1-9]' "$stats" 2>/dev/null || fail "the file system was not used: $*"
}

# The lines of two files, but for those that may differ; tests/preload/allowed has them, with reasons.
compare() {
    what=$1 expected=$2 actual=$3
    steps=$((steps + 1))
    if [ -n "${allowed:-}" ]; then
        for file in "$expected" "$actual"; do
            LC_ALL=C grep -avEf "$allowed" "$file" >"$file.compared" || true
        done
        expected=$expected.compared actual=$actual.compared
    fi
    diff "$expected" "$actual" >"$work/output" || differs "$what: not as on the kernel's file system (<)"
}

# At the end: how many steps there were.
finish() {
    [ "$differences" -eq 0 ] || fail "$differences comparisons are not as on the kernel"
    printf '%s: %s steps passed\n' "$name" "$steps"
}

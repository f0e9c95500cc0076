#!/bin/sh
# What RocksDB does on our file system when the device gets full, and comes back, and when it fails: a program
# of our own that is linked with the RocksDB that is installed, and says what went wrong.
#
#   tests/rocksdb_faults.sh UNVME FOLDER    FOLDER has librocksdb_unvme.so, of scripts/rocksdb.sh
set -eu

unvme=$(readlink -f "$1")
UNVME_ROCKSDB=$(readlink -f "$2")
export UNVME_ROCKSDB
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
export UNVME_HOME="$work/home"
server=
steps=0

cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

fail() {
    echo "rocksdb_faults: $*" >&2
    [ ! -s "$work/output" ] || tail -n 30 "$work/output" >&2
    exit 1
}

section() {
    printf 'rocksdb_faults: %s\n' "$*"
}

run() {
    steps=$((steps + 1))
    timeout 600 "$unvme" rocksdb -d "$device" -- "$@" >"$work/output" 2>&1 || fail "failed: $* on $device"
}

check() {
    steps=$((steps + 1))
    "$unvme" fs check "$1" >"$work/output" 2>&1 || fail "the file system of $1 is damaged"
}

${CXX:-c++} -std=c++17 -O1 -Wall -Wextra -Werror -o "$work/faults" "$root/tests/rocksdb_faults.cc" -lrocksdb

section 'a device that gets full, and has space again'
device=0000:02:00.0
"$unvme" device create "$device" --size 64M >/dev/null
"$unvme" fs mkfs "$device" >/dev/null
run "$work/faults" full
check "$device"

# Another process has the device: rules come and go while the database is open.
"$unvme" device create 0000:03:00.0 --size 256M >/dev/null
"$unvme" fs mkfs 0000:03:00.0 >/dev/null
"$unvme" serve 0000:03:00.0 --socket "$work/served" >"$work/serve.log" 2>&1 &
server=$!
waited=0
until [ -S "$work/served" ]; do
    waited=$((waited + 1))
    [ "$waited" -lt 600 ] || fail "nobody serves: $(cat "$work/serve.log")"
    sleep 0.1
done
served=vfio-user:$work/served
device="$served?cache=8M"
MEND="$unvme fault clear $served"
CORRUPT="$unvme fault add $served --opcode read --corrupt read --corrupt-bits 64"
export MEND CORRUPT

section 'reads that fail, and reads that are wrong'
BREAK="$unvme fault add $served --opcode read --status unrecovered-read-error --dnr" run "$work/faults" read
section 'writes that fail'
BREAK="$unvme fault add $served --opcode write --status write-fault --dnr" run "$work/faults" write
run "$work/faults" verify
run ldb --db=/base repair
run "$work/faults" verify
kill "$server"
wait "$server" 2>/dev/null || true
server=
check 0000:03:00.0
printf 'rocksdb_faults: %s steps passed\n' "$steps"

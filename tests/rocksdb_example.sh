#!/bin/sh
# The example in Rust, of plugins/rocksdb/example: crate rocksdb, with the library that is installed, on our
# file system; and a database that RocksDB's own tools find again.
#
#   tests/rocksdb_example.sh UNVME FOLDER TARGET
#
# FOLDER has librocksdb_unvme.so, of scripts/rocksdb.sh; what Cargo builds is in TARGET.
set -eu

unvme=$(readlink -f "$1")
UNVME_ROCKSDB=$(readlink -f "$2")
export UNVME_ROCKSDB
target=$3
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
export UNVME_HOME="$work/home"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

fail() {
    echo "rocksdb_example: $*" >&2
    [ ! -s "$work/output" ] || cat "$work/output" >&2
    exit 1
}

library=$(${CXX:-c++} -print-file-name=librocksdb.so)
[ -f "$library" ] || fail 'there is no librocksdb.so; it is in librocksdb-dev'
ROCKSDB_LIB_DIR=$(dirname "$(readlink -f "$library")") ROCKSDB_INCLUDE_DIR=/usr/include \
    cargo build --locked --manifest-path "$root/plugins/rocksdb/example/Cargo.toml" --target-dir "$target"
example=$target/debug/unvme-rocksdb-example
slot=0000:02:00.0
"$unvme" device create "$slot" --size 128M >/dev/null
"$unvme" fs mkfs "$slot" >/dev/null
timeout 120 "$example" "$UNVME_ROCKSDB/librocksdb_unvme.so" "unvme://$slot?cache=8M" >"$work/output" 2>&1 ||
    fail 'the example has failed'
for line in 'Ada was born in 1815' 'Ada 1815' 'Barbara 1928' 'Grace 1906'; do
    grep -qx "$line" "$work/output" || fail "it does not say '$line'"
done
grep -q '^/base/.*sst' "$work/output" || fail 'no file of the database'
"$unvme" fs check "$slot" >"$work/output" 2>&1 || fail 'the file system is damaged'
"$unvme" rocksdb -d "$slot" -- ldb --db=/base scan >"$work/output" 2>&1 || fail 'ldb has failed'
grep -q 'Grace.*1906' "$work/output" || fail 'ldb does not find what the example has written'
# An Env by its name alone, for programs that have options as text.
timeout 120 "$unvme" rocksdb -- ldb --env_uri="unvme://$slot" --db=/base get Ada >"$work/output" 2>&1 ||
    fail 'ldb with --env_uri has failed'
grep -qx 1815 "$work/output" || fail 'another file system by --env_uri'
if timeout 120 "$example" "$UNVME_ROCKSDB/librocksdb_unvme.so" unvme://0000:0f:00.0 >"$work/output" 2>&1; then
    fail 'there is no such device, and it is opened'
fi
grep -q 'no such device' "$work/output" || fail 'a device that is not there is not named'
echo 'rocksdb_example: passed'

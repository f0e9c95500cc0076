#!/bin/sh
# RocksDB's own programs, as the distribution has them, straight on pairs: as the guide calls them, by every
# transport, against a model, killed, and with what makes no sense.
#
#   tests/rocksdb_kv.sh UNVME FOLDER    FOLDER has libkv_rocksdb.so, of scripts/rocksdb.sh
set -eu

unvme=$(readlink -f "$1")
UNVME_ROCKSDB=$(readlink -f "$2")
export UNVME_ROCKSDB
sources=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
export UNVME_HOME="$work/home"
stats=$work/stats.json
export UNVME_ROCKSDB_STATS="$stats"
steps=0
children=
CXX=${CXX:-c++}

cleanup() {
    for child in $children; do
        kill -KILL "$child" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

fail() {
    echo "rocksdb_kv: $*" >&2
    [ ! -s "$work/output" ] || tr '\r' '\n' <"$work/output" | grep -v '^\.\.\. finished' | tail -n 30 >&2
    exit 1
}

section() {
    printf 'rocksdb_kv: %s\n' "$*"
}

# Runs a program on the pairs of a device, which says that it was used: run DEVICE PROGRAM ARGUMENT ...
run() {
    device=$1
    shift
    rm -f "$stats"
    steps=$((steps + 1))
    timeout 600 "$unvme" rocksdb --kv -d "$device" -- "$@" >"$work/output" 2>&1 || fail "failed: $* on $device"
    grep -q '"stores":[1-9]\|"retrieves":[1-9]\|"deletes":[1-9]' "$stats" || fail "the device was not used: $* on $device"
}

counted() {
    grep -q "\"$1\":[1-9]" "$stats" || fail "no $1: $(cat "$stats")"
}

said() {
    grep -q -- "$1" "$work/output" || fail "does not say '$1'"
}

# It must fail, and say something: refused TEXT COMMAND ...
refused() {
    text=$1
    shift
    steps=$((steps + 1))
    if timeout 600 "$@" >"$work/output" 2>&1; then
        fail "has not failed: $*"
    fi
    said "$text"
}

bench() {
    device=$1 benchmarks=$2
    shift 2
    run "$device" db_bench --benchmarks="$benchmarks" --num=20000 --key_size=16 --value_size=400 --seed=1 "$@"
}

model() {
    rm -f "$stats"
    steps=$((steps + 1))
    place=$1
    shift
    LD_PRELOAD=$UNVME_ROCKSDB/libkv_rocksdb.so UNVME_KV_ROCKSDB=$place timeout 600 "$work/model" "$@" \
        >"$work/output" 2>&1 || fail "the model: $* on $place"
    counted stores
}

waits_for() {
    waited=0
    until "$@" 2>/dev/null; do
        waited=$((waited + 1))
        [ "$waited" -lt 600 ] || fail "it does not come: $*"
        sleep 0.1
    done
}

"$CXX" -std=c++17 -O1 -Wall -Wextra -Werror -o "$work/model" "$sources/rocksdb_kv.cc" -lrocksdb -lpthread
slot=0000:02:00.0
"$unvme" device create "$slot" --type kv --size 512M >/dev/null

section 'kv_db_bench, as the guide has it'
mkdir "$work/folder"
cat >"$work/folder/kv_sdk_sync_config.json" <<JSON
{ "cache": "on", "slab_size": 64, "ssd_type": "kv", "device_description": [ { "dev_id": "$slot" } ] }
JSON
ln -s "$unvme" "$work/folder/kv_db_bench"
for benchmark in fillseq fillrandom filluniquerandom fillseq,readrandom readseq readrandom deleteseq deleterandom; do
    existing=
    case $benchmark in read* | delete*) existing=-use_existing_db ;; esac
    rm -f "$stats"
    steps=$((steps + 1))
    # shellcheck disable=SC2086
    (cd "$work/folder" && ./kv_db_bench -benchmarks $benchmark -num 5000 -key_size 16 -value_size 4096 -threads 1 \
        -histogram -disable_wal -kv_async $existing) >"$work/output" 2>&1 || fail "kv_db_bench $benchmark"
    said 'micros/op'
    said 'P99.99'
    grep -q '"stores":[1-9]\|"retrieves":[1-9]\|"deletes":[1-9]' "$stats" || fail "the device was not used: $benchmark"
    case $benchmark in
    fillseq,readrandom) said '(5000 of 5000 found)' ;;
    esac
done

section 'db_bench on pairs'
bench mem:kv:512M fillrandom,readrandom,overwrite,readseq,readreverse,readmissing,updaterandom,deleterandom --threads=2
said '(0 of 20000 found)'
bench mem:kv:512M fillseq,readrandom,multireadrandom --multiread_batched --batch_size=32
said '(20000 of 20000 found)'
bench "$slot" fillbatch,fillrandom,readwhilewriting,seekrandom,seekrandomwhilewriting --threads=4 --num=5000 \
    --batch_size=100 --seek_nexts=20 --reverse_iterator=true
counted batches
bench "$slot?async=1" fillrandom,readrandom,overwrite,readwhilewriting --threads=4 --num=5000
bench "$slot?cache=64M" fillseq,readrandom,readrandom --num=5000
counted cache_hits
bench "$slot" mergerandom,readrandommergerandom --merge_operator=put --num=5000
bench "$slot" fillsync --num=2000
counted flushes
bench "$slot" fillrandom,readrandom --num_column_families=2 --num=5000

section 'ldb, and what the device has'
run "$slot" db_bench --benchmarks=fillseq --num=10 --key_size=16
run "$slot" ldb --db=/any put name1 Ada
run "$slot" ldb --db=/any batchput name2 Grace name3 Barbara
run "$slot" ldb --db=/any get name2
said '^Grace$'
run "$slot" ldb --db=/any scan --from=name1 --to=name3
[ "$(cat "$work/output")" = "name1 : Ada
name2 : Grace" ] || fail 'a scan shows something else'
run "$slot" ldb --db=/any delete name1
[ "$("$unvme" kv retrieve "$slot" name3)" = Barbara ] || fail 'the device does not have what ldb has put'
"$unvme" kv list "$slot" >"$work/output"
[ "$(grep -vc unvme.kv "$work/output")" -eq 12 ] || fail 'the device has other keys'
run "$slot" ldb --db=/any create_column_family others
run "$slot" ldb --db=/any --column_family=others put name1 Edsger
run "$slot" ldb --db=/any list_column_families
said 'default, others'
run "$slot" ldb --db=/any --column_family=others get name1
said '^Edsger$'
refused 'two keyspaces' "$unvme" rocksdb --kv -d "$slot" -- ldb --db=/any create_column_family third
run "$slot" ldb --db=/any drop_column_family others

section 'against a model'
model mem:kv:256M 1 4000
model 'mem:kv:256M?async=1' 2 4000
model 'mem:kv:256M?cache=1M&async=1&depth=3' 3 4000
model 'mem:kv:256M?cache=1M' 4 4000
model 'mem:kv:256M?commands=standard' 5 4000 one
model 'mem:kv:256M?commands=vendor&completion=hybrid' 6 2000
model "$slot?atomic=0" 7 2000

section 'served by another process'
"$unvme" device create 0000:03:00.0 --type kv --size 256M >/dev/null
"$unvme" serve 0000:03:00.0 --socket "$work/served" >"$work/serve.log" 2>&1 &
children="$children $!"
"$unvme" serve "$slot" --tcp 127.0.0.1:0 >"$work/tcp.log" 2>&1 &
children="$children $!"
waits_for test -S "$work/served"
waits_for grep -q 'tcp:127' "$work/tcp.log"
name=$(grep -o 'tcp:127[^ ]*' "$work/tcp.log" | head -n 1)
for device in "vfio-user:$work/served" "$name"; do
    bench "$device" fillrandom,readrandom,readseq --num=3000
    model "$device" 8 800
    model "$device?async=1" 9 800
done
for child in $children; do
    kill "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
done
children=

section 'killed in the middle: a batch is there whole, or not at all'
"$unvme" device create 0000:04:00.0 --type kv --size 256M >/dev/null
for round in 1 2 3; do
    LD_PRELOAD=$UNVME_ROCKSDB/libkv_rocksdb.so UNVME_KV_ROCKSDB=0000:04:00.0 "$work/model" batches 1000000 \
        >"$work/batches" 2>"$work/output" &
    child=$!
    children=$child
    waits_for test -s "$work/batches"
    sleep "0.$((round * 2))"
    kill -KILL "$child" 2>/dev/null || fail "it has ended by itself"
    wait "$child" 2>/dev/null || true
    children=
    steps=$((steps + 1))
    # The last line may be half of one.
    acknowledged=$(tail -n 2 "$work/batches" | head -n 1)
    found=$(LD_PRELOAD=$UNVME_ROCKSDB/libkv_rocksdb.so UNVME_KV_ROCKSDB=0000:04:00.0 "$work/model" whole \
        2>"$work/output") || fail "round $round: a batch is not whole"
    [ "$found" -ge "$acknowledged" ] || fail "round $round: batch $found is there, and $acknowledged was acknowledged"
done

# One that is interrupted is done by whoever comes first, and if that is ldb, which only reads for this.
"$unvme" fault add 0000:04:00.0 --key pair1050 --delay 600s >"$work/output" 2>&1 || fail 'no rule for faults'
LD_PRELOAD=$UNVME_ROCKSDB/libkv_rocksdb.so UNVME_KV_ROCKSDB=0000:04:00.0 "$work/model" batches 1 \
    >"$work/batches" 2>"$work/output" &
children=$!
has_record() {
    "$unvme" kv list 0000:04:00.0 | grep -q unvme.kv/b
}
waits_for has_record
kill -KILL "$children"
wait "$children" 2>/dev/null || true
children=
"$unvme" fault clear 0000:04:00.0 >/dev/null
run 0000:04:00.0 ldb --db=/any create_column_family others
if has_record; then
    fail 'an interrupted batch is still there'
fi

section 'without power: a batch that was synced is there'
"$unvme" device create 0000:08:00.0 --type kv --size 128M >/dev/null
for page in 300 1500 2777; do
    "$unvme" fault add 0000:08:00.0 --power-cut "$page" >"$work/output" 2>&1 || fail 'no rule for the power'
    steps=$((steps + 1))
    if LD_PRELOAD=$UNVME_ROCKSDB/libkv_rocksdb.so UNVME_KV_ROCKSDB=0000:08:00.0 timeout 600 "$work/model" synced \
        1000000 >"$work/batches" 2>"$work/output"; then
        fail 'it has power'
    fi
    "$unvme" fault clear 0000:08:00.0 >/dev/null
    acknowledged=$(tail -n 1 "$work/batches")
    [ "${acknowledged:-0}" -gt 0 ] || fail "nothing was written before page $page"
    found=$(LD_PRELOAD=$UNVME_ROCKSDB/libkv_rocksdb.so UNVME_KV_ROCKSDB=0000:08:00.0 "$work/model" whole \
        2>"$work/output") || fail "page $page: a batch is not whole"
    [ "$found" -ge "$acknowledged" ] || fail "page $page: batch $found is there, and $acknowledged was acknowledged"
done

section 'a batch that cannot be forgotten'
# For a second, and what is stored meanwhile must not be undone by it; and once not at all.
"$unvme" device create 0000:07:00.0 --type kv --size 64M >/dev/null
"$unvme" fault add 0000:07:00.0 --opcode delete --delay 1s >"$work/output" 2>&1 || fail 'no rule for faults'
steps=$((steps + 1))
LD_PRELOAD=$UNVME_ROCKSDB/libkv_rocksdb.so UNVME_KV_ROCKSDB=0000:07:00.0 "$work/model" overtaken >"$work/output" 2>&1 &&
    fail 'it was not killed'
"$unvme" fault clear 0000:07:00.0 >/dev/null
run 0000:07:00.0 ldb --db=/any get key.
said '^2$'
"$unvme" fault add 0000:07:00.0 --opcode delete --count 1 --status 0x280 >"$work/output" 2>&1 || fail 'no rule for faults'
model 0000:07:00.0 left
"$unvme" fault clear 0000:07:00.0 >/dev/null

section 'a device that is full, one that fails, and what makes no sense'
"$unvme" device create 0000:05:00.0 --type kv --size 32M >/dev/null
refused 'No space left' "$unvme" rocksdb --kv -d 0000:05:00.0 -- db_bench --benchmarks=fillrandom --num=200000 \
    --value_size=1000
refused 'No space left' "$unvme" rocksdb --kv -d '0000:05:00.0?async=1' -- db_bench --benchmarks=fillrandom \
    --num=200000 --value_size=1000
run 0000:05:00.0 ldb --db=/any deleterange 0 '~'
run 0000:05:00.0 ldb --db=/any put name Ada
"$unvme" device create 0000:06:00.0 --type kv --size 32M >/dev/null
"$unvme" fault add 0000:06:00.0 --opcode store --status 0x280 >"$work/output" 2>&1 || fail 'no rule for faults'
refused 'Write Fault' "$unvme" rocksdb --kv -d 0000:06:00.0 -- ldb --db=/any put name Ada
refused 'Write Fault' "$unvme" rocksdb --kv -d '0000:06:00.0?async=1' -- db_bench --benchmarks=fillseq --num=100000
"$unvme" fault clear 0000:06:00.0 >/dev/null
run 0000:06:00.0 ldb --db=/any put name Ada
"$unvme" fault add 0000:06:00.0 --key name --status 0x281 >"$work/output" 2>&1 || fail 'no rule for faults'
refused 'Unrecovered Read Error' "$unvme" rocksdb --kv -d 0000:06:00.0 -- ldb --db=/any get name
refused 'Unrecovered Read Error' "$unvme" rocksdb --kv -d 0000:06:00.0 -- ldb --db=/any scan

"$unvme" rocksdb --kv -d "$slot" -- db_bench --benchmarks=fillseq,readrandom --num=1000 --duration=600 \
    >"$work/first" 2>&1 &
children=$!
waits_for grep -q 'fillseq.*micros' "$work/first"
refused 'another process has its database open' "$unvme" rocksdb --kv -d "$slot" -- ldb --db=/any put name Ada
kill -KILL "$children"
wait "$children" 2>/dev/null || true
children=

refused 'a key of 20 bytes: the device takes 1 to 16' "$unvme" rocksdb --kv -d 'mem:kv:64M?commands=standard' -- \
    ldb --db=/any put 12345678901234567890 value
refused 'which device' env -C "$work" "$unvme" rocksdb --kv -- ldb --db=/any get name
refused 'there is no option cach' "$unvme" rocksdb --kv -d 'mem:kv:64M?cach=1' -- ldb --db=/any get name
refused 'commands=all: any, standard or vendor' "$unvme" rocksdb --kv -d 'mem:kv:64M?commands=all' -- ldb --db=/any get name
refused 'no such device' "$unvme" rocksdb --kv -d 0000:0f:00.0 -- ldb --db=/any get name
refused 'type kv\|key-value\|pairs' "$unvme" rocksdb --kv -d mem:block:64M -- ldb --db=/any get name
refused 'not on the pairs of a device' "$unvme" rocksdb --kv -d mem:kv:64M -- ldb --db=/any repair
refused 'not linked with RocksDB' "$unvme" rocksdb --kv -d mem:kv:64M -- true
refused 'not on the pairs of a device' "$unvme" rocksdb --kv -d mem:kv:64M -- db_bench --benchmarks=fillseq --num=10 \
    --optimistic_transaction_db
cat >"$work/version.cc" <<'CXX'
#include <string>
namespace rocksdb {
std::string GetRocksVersionAsString(bool) { return "9.9.9"; }
}
CXX
"$CXX" -shared -fPIC -o "$work/version.so" "$work/version.cc"
refused 'it is for RocksDB 7.8.3, and the program has RocksDB 9.9.9' env \
    LD_PRELOAD="$work/version.so:$UNVME_ROCKSDB/libkv_rocksdb.so" ldb --version

printf 'rocksdb_kv: %s steps passed\n' "$steps"

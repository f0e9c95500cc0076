#!/bin/sh
# RocksDB's own programs, as the distribution has them, on our file system: by every transport,
# with files past the cache and by way of it, killed, on a device that gets full, beside others, and with
# what makes no sense. Each time the file system says that it was used.
#
#   tests/rocksdb.sh UNVME FOLDER [TESTS NAME...]    FOLDER has librocksdb_unvme.so, of scripts/rocksdb.sh;
#                                                    TESTS has tests of RocksDB's own, by their names
set -eu

unvme=$(readlink -f "$1")
UNVME_ROCKSDB=$(readlink -f "$2")
export UNVME_ROCKSDB
tests=
if [ $# -ge 4 ]; then
    folder=$(readlink -f "$3")
    shift 3
    for name in "$@"; do
        tests="$tests $folder/$name"
    done
fi
work=$(mktemp -d)
export UNVME_HOME="$work/home"
stats=$work/stats.json
export UNVME_ROCKSDB_STATS="$stats"
steps=0
children=

cleanup() {
    for child in $children; do
        kill "$child" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

fail() {
    echo "rocksdb: $*" >&2
    [ ! -s "$work/output" ] || tail -n 30 "$work/output" >&2
    exit 1
}

section() {
    printf 'rocksdb: %s\n' "$*"
}

# Runs a program on the file system of a device: run DEVICE PROGRAM ARGUMENT ...
run() {
    device=$1
    shift
    rm -f "$stats"
    steps=$((steps + 1))
    timeout 600 "$unvme" rocksdb -d "$device" -- "$@" >"$work/output" 2>&1 || fail "failed: $* on $device"
    grep -q '"opened":[1-9]' "$stats" || fail "the file system was not used: $* on $device"
}

# A number that the file system has counted is not 0.
counted() {
    grep -q "\"$1\":[1-9]" "$stats" || fail "no $1: $(cat "$stats")"
}

# The same, and it must fail, and say something.
refused() {
    said=$1
    shift
    steps=$((steps + 1))
    if timeout 600 "$@" >"$work/output" 2>&1; then
        fail "has not failed: $*"
    fi
    grep -q -- "$said" "$work/output" || fail "does not say '$said': $*"
}

check() {
    steps=$((steps + 1))
    "$unvme" fs check "$1" >"$work/output" 2>&1 || fail "the file system of $1 is damaged"
}

device() {
    "$unvme" device create "$1" --size "$2" >/dev/null
    "$unvme" fs mkfs "$1" >/dev/null
}

# Keys and values as the guide's tests have them, and as few as will do.
bench() {
    device=$1 benchmarks=$2
    shift 2
    run "$device" db_bench --db=/data/base --benchmarks="$benchmarks" --num=30000 --key_size=16 \
        --value_size=400 --write_buffer_size=1048576 --target_file_size_base=1048576 --verify_checksum=1 \
        --seed=1 "$@"
}

slot=0000:02:00.0
device "$slot" 512M

section 'db_bench in memory, in a slot, past the cache'
bench mem:block:512M fillseq,readseq,readrandom,overwrite,readwhilewriting,seekrandom,deleterandom --threads=2
counted writes
bench "$slot" fillrandom,readrandom,compact,readseq --paranoid_checks=1
counted cache_written_back
check "$slot"
bench "$slot" readrandom,multireadrandom --use_existing_db=1 --use_direct_reads=1 --multiread_batched=1 \
    --batch_size=32 --threads=2 --cache_size=65536
counted batched_reads
bench "$slot" fillrandom,readrandom --use_direct_reads=1 --use_direct_io_for_flush_and_compaction=1
check "$slot"
bench "$slot" seekrandom --use_existing_db=1 --async_io=1 --readahead_size=65536 --seek_nexts=200 --num=2000
counted async_reads
bench "$slot?cache=0" readrandom --use_existing_db=1 --num=5000
bench "$slot/folder?cache=8M&policy=lru&retain=0&read_ahead=64K&noatime" fillsync,readseq --num=500
counted syncs

section 'ldb and sst_dump'
run "$slot/folder" ldb --db=/data/other --create_if_missing put name Ada
run "$slot/folder" ldb --db=/data/other get name
grep -q '^Ada$' "$work/output" || fail 'ldb does not find what it has put'
run "$slot" ldb --db=/data/base checkconsistency
run "$slot" ldb --db=/data/base list_live_files_metadata
run "$slot" sst_dump --file=/data/base --command=check --verify_checksum
run "$slot/folder" ldb --db=/data/other repair
run "$slot/folder" ldb --db=/data/other get name
grep -q '^Ada$' "$work/output" || fail 'a repair has lost what was there'
run "$slot/folder" ldb --db=/data/other create_column_family others
run "$slot/folder" ldb --db=/data/other --column_family=others put name Grace
run "$slot/folder" ldb --db=/data/other --column_family=others get name
grep -q '^Grace$' "$work/output" || fail 'ldb does not find what it has put in a column family'
run "$slot/folder" ldb --db=/data/other --backup_dir=/backups/other backup
run "$slot/folder" ldb --db=/data/restored --backup_dir=/backups/other restore
run "$slot/folder" ldb --db=/data/restored --column_family=others get name
grep -q '^Grace$' "$work/output" || fail 'a restored database has lost a column family'
run "$slot/folder" ldb --db=/data/restored get name
grep -q '^Ada$' "$work/output" || fail 'a restored database has lost what was there'
run "$slot/folder" ldb --db=/data/restored drop_column_family others
run "$slot/folder" ldb --db=/data/restored list_column_families
grep -q '^{default}$' "$work/output" || fail 'ldb has not dropped a column family'
refused 'no such device' "$unvme" rocksdb -d 0000:0f:00.0 -- ldb --db=/data/other create_column_family more
"$unvme" fs ls "$slot" /folder/data/other >"$work/output"
grep -q CURRENT "$work/output" || fail 'the file system does not show what RocksDB has written'

section 'what the SDK called its flags'
cat >"$work/config.json" <<JSON
{ "ssd_type": "lba", "device_description": [ { "dev_id": "$slot" } ] }
JSON
rm -f "$stats"
timeout 600 "$unvme" rocksdb -- db_bench --mpdk="$work/config.json" --spdk_bdev=unvme_bdev0n1 --spdk_cache_size=64 \
    --use_retain_cache --use_prefetch_ctl --prefetch_threshold=65536 --use_blobfs_direct_read=false \
    --use_blobfs_direct_write --use_manual_schedule_io --use_manual_schedule_io_bg --benchmarks=fillseq,readrandom \
    --num=20000 >"$work/output" 2>&1 || fail 'db_bench with the flags of the SDK'
counted opened
refused 'unvme_bdev7n1: no such device' "$unvme" rocksdb -- db_bench --mpdk="$work/config.json" \
    --spdk_bdev=unvme_bdev7n1

section 'served by another process'
device 0000:03:00.0 256M
"$unvme" serve 0000:03:00.0 --socket "$work/served" >"$work/serve.log" 2>&1 &
children="$children $!"
"$unvme" serve 0000:02:00.0 --tcp 127.0.0.1:0 >"$work/tcp.log" 2>&1 &
children="$children $!"
waited=0
until [ -S "$work/served" ] && grep -q 'tcp:127' "$work/tcp.log"; do
    waited=$((waited + 1))
    [ "$waited" -lt 600 ] || fail "nobody serves: $(cat "$work/serve.log" "$work/tcp.log")"
    sleep 0.1
done
bench "vfio-user:$work/served" fillrandom,readrandom --num=10000
name=$(grep -o 'tcp:127[^ ]*' "$work/tcp.log" | head -n 1)
bench "$name" fillrandom,readrandom --num=5000
bench "$name" multireadrandom --use_existing_db=1 --num=5000 --use_direct_reads=1 --multiread_batched=1 --batch_size=16
for child in $children; do
    kill "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
done
children=

section 'killed in the middle: what was synced is there'
device 0000:04:00.0 512M
for round in 1 2 3; do
    benchmark=fillrandom
    [ "$round" -eq 1 ] || benchmark='overwrite --use_existing_db=1'
    rm -f "$work/killed"
    # shellcheck disable=SC2086
    timeout 600 "$unvme" rocksdb -d 0000:04:00.0 -- db_bench --db=/base --num=100000000 --value_size=400 --sync=1 \
        --write_buffer_size=262144 --benchmarks=$benchmark >"$work/killed" 2>&1 &
    child=$!
    waited=0
    until grep -qs finished "$work/killed"; do
        waited=$((waited + 1))
        [ "$waited" -lt 600 ] || fail "round $round has not begun: $(cat "$work/killed")"
        kill -0 "$child" 2>/dev/null || fail "round $round has ended: $(cat "$work/killed")"
        sleep 0.1
    done
    # It may be in a flush or a compaction by then.
    sleep 1
    kill -KILL "$(pgrep -P "$child" -x db_bench || echo "$child")" 2>/dev/null || true
    kill -KILL "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
    check 0000:04:00.0
    run 0000:04:00.0 ldb --db=/base checkconsistency
    run 0000:04:00.0 ldb --db=/base dump --count_only
    keys=$(sed -n 's/^Keys in range: //p' "$work/output")
    [ "${keys:-0}" -gt 0 ] || fail "round $round: nothing is there after a kill"
done

section 'a device that gets full'
device 0000:05:00.0 64M
head -c 20000000 /dev/zero >"$work/ballast"
"$unvme" fs put 0000:05:00.0 "$work/ballast" /ballast >/dev/null
refused 'No space left' "$unvme" rocksdb -d 0000:05:00.0 -- db_bench --db=/base --benchmarks=fillrandom --num=1000000 \
    --value_size=1000 --compression_type=none --write_buffer_size=1048576
check 0000:05:00.0
run 0000:05:00.0 ldb --db=/base dump --count_only
"$unvme" fs rm 0000:05:00.0 /ballast
run 0000:05:00.0 ldb --db=/base deleterange 0 z
run 0000:05:00.0 ldb --db=/base compact
run 0000:05:00.0 ldb --db=/base put back again

section 'beside others, and what makes no sense'
timeout 600 "$unvme" rocksdb -d "$slot" -- db_bench --db=/data/base --benchmarks=readrandom --use_existing_db=1 \
    --duration=60 >"$work/first" 2>&1 &
first=$!
children=$first
waited=0
until "$unvme" fs info "$slot" 2>&1 | grep -q 'in use\|busy\|mounted\|has it'; do
    waited=$((waited + 1))
    [ "$waited" -lt 300 ] || fail "the first one has not begun: $(cat "$work/first")"
    sleep 0.1
done
refused "$slot" "$unvme" rocksdb -d "$slot" -- ldb --db=/data/base get name
pkill -KILL -P "$first" 2>/dev/null || true
kill -KILL "$first" 2>/dev/null || true
wait "$first" 2>/dev/null || true
children=
refused 'there is no option cach' "$unvme" rocksdb -d "$slot?cach=1G" -- ldb --db=/data/base get name
refused 'cache=1: a size' "$unvme" rocksdb -d "$slot?cache=1" -- ldb --db=/data/base get name
refused 'placement=fast:1' "$unvme" rocksdb -d "$slot?placement=fast:1" -- ldb --db=/data/base get name
refused 'no such device' "$unvme" rocksdb -d 0000:0f:00.0 -- ldb --db=/data/base get name
refused 'no such program' "$unvme" rocksdb -- no_such_program
UNVME_ROCKSDB=$work refused 'make rocksdb' "$unvme" rocksdb -- ldb
check "$slot"

# By TEST_ENV_URI the tests have their files here. Some cases look for them in the kernel's file system, or
# put some of them there.
elsewhere='*.TraceReadAsyncWithCallbackWrapper/*:*.NoDuplicateTrailingEntries/*:*ChecksumHandoff*'
elsewhere=$elsewhere':*TruncateLastLog*:*.ReadOnlyRecoveryNoTruncate'
for test in $tests; do
    section "$(basename "$test")"
    device 0000:06:00.0 2G
    mkdir -p "$work/kernel"
    rm -f "$stats"
    steps=$((steps + 1))
    LD_PRELOAD=$UNVME_ROCKSDB/librocksdb_unvme.so TEST_TMPDIR=$work/kernel \
        TEST_ENV_URI='id=CompositeEnv; file_system=unvme://0000:06:00.0' timeout 3600 "$test" \
        --gtest_filter="-$elsewhere" >"$work/output" 2>&1 ||
        fail "$(basename "$test") failed"
    counted opened
    check 0000:06:00.0
    "$unvme" device remove 0000:06:00.0 --force >/dev/null
done

printf 'rocksdb: %s steps passed\n' "$steps"

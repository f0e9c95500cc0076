#!/bin/sh
# The guide's tests of RocksDB, share/unvme/unvme_rocksdb/run_tests.sh, as small as they can be: on a virtual
# SSD that is made for the run, on one that stays, and beside the kernel's file system; what they write, and
# what makes no sense.
#
#   tests/rocksdb_script.sh UNVME FOLDER    FOLDER has librocksdb_unvme.so, of scripts/rocksdb.sh
set -eu

UNVME=$(readlink -f "$1")
UNVME_ROCKSDB=$(readlink -f "$2")
export UNVME UNVME_ROCKSDB
# Nothing of what the caller has set.
unset UNVME_DEVICE UNVME_ROCKSDB_STATS NO_SPDK COMPARE READ_REPEAT SKIP_INSERT SKIP_SEQREAD SKIP_RANDREAD \
    SKIP_OVERWRITE SKIP_READWRITE SKIP_WRITESYNC KERNEL_FOLDER CACHE_SIZE RETAIN_CACHE PREFETCH_CTL \
    PREFETCH_THRESHOLD BLOBFS_DIRECT_READ BLOBFS_DIRECT_WRITE VALUE_SIZE BLOCK_SIZE || true
script=$(cd "$(dirname "$0")/.." && pwd)/share/unvme/unvme_rocksdb/run_tests.sh
work=$(mktemp -d)
child=

cleanup() {
    if [ -n "$child" ]; then
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    rm -rf "$work" "$TMPDIR"
}
mkdir "$work/scratch"
# In memory where there is room: what is tried is the script, not the disk.
TMPDIR=$work/scratch
if [ -d /dev/shm ] && [ -w /dev/shm ]; then
    rmdir "$work/scratch"
    TMPDIR=$(mktemp -d -p /dev/shm)
fi
trap cleanup EXIT
trap 'exit 1' INT TERM HUP
UNVME_HOME=$work/home
NUM_KEYS=2000
DURATION=1
export TMPDIR UNVME_HOME NUM_KEYS DURATION
steps=0
cd "$work"

fail() {
    echo "rocksdb_script: $*" >&2
    [ ! -s "$work/output" ] || tail -n 30 "$work/output" >&2
    exit 1
}

# Runs the script, in at most five minutes.
tests() {
    steps=$((steps + 1))
    timeout 300 "$script" "$@" >"$work/output" 2>"$work/errors" || {
        cat "$work/errors" >&2
        fail "failed: run_tests.sh $*"
    }
    left=$(find "$TMPDIR" -mindepth 1 | head -n 3)
    [ -z "$left" ] || fail "has left $left"
}

# It must not run, and say why: refused WORDS NAME=VALUE ... -- ARGUMENT ...
refused() {
    said=$1
    shift
    set_to=
    while [ "$1" != -- ]; do
        set_to="$set_to $1"
        shift
    done
    shift
    steps=$((steps + 1))
    # shellcheck disable=SC2086
    if timeout 300 env $set_to "$script" -o "$work/never" "$@" >"$work/output" 2>&1; then
        fail "has not failed:$set_to run_tests.sh $*"
    fi
    grep -q -- "^run_tests.sh: .*$said" "$work/output" || fail "does not say '$said':$set_to run_tests.sh $*"
    [ ! -e "$work/never" ] || fail "has begun:$set_to run_tests.sh $*"
    left=$(find "$TMPDIR" -mindepth 1 | head -n 3)
    [ -z "$left" ] || fail "has left $left:$set_to run_tests.sh $*"
}

# A line of the table: row PHASE BENCHMARK [SIDE], with numbers behind it.
row() {
    grep -Eq "^$1 +$2 +${3:+$3 +}[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ .s" "$work/output" || fail "no row of $1 ${3-}"
}

# What the file system has counted in a phase is not 0: counted FOLDER NUMBER-PHASE NAME
counted() {
    grep -q "\"$3\":[1-9]" "$1/unvme/$2.stats.json" || fail "no $3: $(cat "$1/unvme/$2.stats.json")"
}

echo 'rocksdb_script: all phases, on a virtual SSD of the run'
# Threads of db_bench speak once a second.
DURATION=2 tests
grep -q 'a virtual SSD' "$work/errors" || fail 'does not say what it runs on'
row insert fillseq
row seqread readseq
row randread readrandom
row overwrite overwrite
row readwrite readwhilewriting
row writesync overwrite
[ "$(find results -name 'testrun_*' | wc -l)" -eq 1 ] || fail 'no results/testrun_*'
folder=$(echo results/testrun_*)
counted "$folder" 1-insert writes
counted "$folder" 3-randread reads
counted "$folder" 6-writesync syncs
grep -q 'Throughput by phase' "$folder/report.html" || fail 'no picture of the phases'
grep -q 'writesync: latency' "$folder/report.html" || fail 'no picture of latencies'
grep -q 'randread: throughput over time' "$folder/report.html" || fail 'no picture of the time'
grep -q '</html>' "$folder/report.html" || fail 'the page does not end'
# What it says is what there is: drawn again, and from what db_bench has written.
"$UNVME" rocksdb-plot "$folder/results.json" --report again.html >again
cmp -s again.html "$folder/report.html" || fail 'the page is another one when it is drawn again'
"$UNVME" rocksdb-plot "$folder/unvme" --report other.html -o json | grep -q '"benchmark": "readwhilewriting"' ||
    fail 'no JSON'

echo 'rocksdb_script: a device that stays, past the cache, beside the kernel'
"$UNVME" device create 0000:05:00.0 --size 1G >/dev/null
"$UNVME" fs mkfs 0000:05:00.0 >/dev/null
export SKIP_OVERWRITE=1 SKIP_READWRITE=1 SKIP_WRITESYNC=1
NO_SPDK=2 CACHE_SIZE=16 RETAIN_CACHE=1 PREFETCH_CTL=1 PREFETCH_THRESHOLD=65536 \
    tests -d 0000:05:00.0 -o both "$(command -v db_bench)"
grep -q "^The kernel's file system is " "$work/errors" || fail 'does not say what the kernel has'
for side in unvme kernel; do
    row insert fillseq "$side"
    row seqread readseq "$side"
    row randread readrandom "$side"
done
grep -q '/ kernel$' "$work/output" || fail 'no ratios'
grep -q 'Ratio by phase' both/report.html || fail 'no picture of the ratios'
grep -q 'cache=16M&retain=1&read_ahead=4096&read_ahead_threshold=65536 ' both/unvme/2-seqread.txt ||
    fail 'the cache is another one'
"$UNVME" fs check 0000:05:00.0 >"$work/output" || fail 'the file system is damaged'
cat >config.json <<JSON
{ "ssd_type": "lba", "device_description": [ { "dev_id": "0000:05:00.0" } ] }
JSON
SKIP_INSERT=1 SKIP_SEQREAD=1 BLOBFS_DIRECT_READ=1 BLOBFS_DIRECT_WRITE=1 READ_REPEAT=2 tests -c config.json -o direct
row 'randread 1' readrandom
row 'randread 2' readrandom
grep -q 'use_blobfs_direct_read=1 --use_blobfs_direct_write=1' direct/unvme/1-randread.txt || fail 'not past the cache'
counted direct 1-randread reads
# The first device that is not in a comment is meant.
cat >several.json <<JSON
{ // "dev_id": "0000:0e:00.0"
  /* "dev_id":
     "0000:0f:00.0" */
  "ssd_type": "lba", "device_description": [
    { "dev_id": "0000:05:00.0", "core_mask": 1 }, // "dev_id": "0000:0d:00.0"
    { "dev_id": "0000:0c:00.0" } ] }
JSON
SKIP_INSERT=1 SKIP_SEQREAD=1 tests -c several.json -o several
row randread readrandom
mkdir kernel
COMPARE=0 NO_SPDK=1 SKIP_SEQREAD=1 KERNEL_FOLDER=kernel tests -o kernel-alone
row randread readrandom
[ -f kernel/mnt/rocksdb/CURRENT ] || fail 'the database is not where it was to be'
[ ! -e kernel-alone/unvme ] || fail 'runs on unvme, and was not to'

echo 'rocksdb_script: what makes no sense'
unset SKIP_OVERWRITE SKIP_READWRITE SKIP_WRITESYNC
for name in NUM_KEYS DURATION VALUE_SIZE BLOCK_SIZE CACHE_SIZE PREFETCH_THRESHOLD READ_REPEAT; do
    for value in 0 -1 1x 99999999999999999999; do
        refused "$name=$value: expected a whole number from" "$name=$value" --
    done
done
refused 'NO_SPDK=3: expected a whole number from 0 to 2' NO_SPDK=3 --
for name in RETAIN_CACHE PREFETCH_CTL BLOBFS_DIRECT_READ BLOBFS_DIRECT_WRITE COMPARE SKIP_INSERT; do
    refused "$name=2: expected 0 or 1" "$name=2" --
done
refused 'SKIP_SEQRAED: there is no such phase' SKIP_SEQRAED=1 --
refused 'all phases are skipped' SKIP_INSERT=1 SKIP_SEQREAD=1 SKIP_RANDREAD=1 SKIP_OVERWRITE=1 SKIP_READWRITE=1 \
    SKIP_WRITESYNC=1 --
refused 'a virtual SSD that is made for the run has no database' SKIP_INSERT=1 --
refused 'there is no database in' SKIP_INSERT=1 NO_SPDK=1 --
refused 'mem:block:1G: lives within one process' UNVME_DEVICE=mem:block:1G --
refused '0000:0f:00.0: no such device' -- -d 0000:0f:00.0
refused 'leave one away' -- -d 0000:05:00.0 -c config.json
refused 'none.json: cannot be read' -- -c none.json
refused 'no_such_bench: there is no such program' -- ./no_such_bench
refused 'no_such_unvme: there is no such program' UNVME=no_such_unvme --
refused 'there is no such folder' NO_SPDK=1 KERNEL_FOLDER=nowhere --
refused 'second: unknown' -- db_bench second
refused 'usage: run_tests.sh' -- -x
"$UNVME" device create 0000:06:00.0 --size 64M >/dev/null
refused 'unvme fs mkfs' -- -d 0000:06:00.0
# A phase that fails is told, with what db_bench has said, and nothing is drawn.
steps=$((steps + 1))
if timeout 300 env UNVME_ROCKSDB="$work" "$script" -o failed >"$work/output" 2>&1; then
    fail 'has not failed without the library'
fi
grep -q 'insert has failed on unvme; all it said is in failed/unvme/1-insert.txt' "$work/output" ||
    fail 'does not say which phase has failed'
grep -q 'make rocksdb' "$work/output" || fail 'does not say what is missing'
[ ! -e failed/report.html ] || fail 'draws what has failed'

# A signal ends it in the middle of a phase, and what it runs with it.
steps=$((steps + 1))
NUM_KEYS=20000000 VALUE_SIZE=100 "$script" -o ended >"$work/output" 2>&1 &
child=$!
waited=0
until grep -qs 'ops/second' ended/unvme/1-insert.txt; do
    waited=$((waited + 1))
    [ "$waited" -lt 600 ] || fail 'insert has not begun'
    kill -0 "$child" 2>/dev/null || fail 'insert has ended'
    sleep 0.1
done
kill "$child"
status=0
wait "$child" || status=$?
child=
[ "$status" -eq 143 ] || fail "ends with $status when it is told to end"
left=$(find "$TMPDIR" -mindepth 1 | head -n 3)
[ -z "$left" ] || fail "has left $left when it was told to end"

printf 'rocksdb_script: %s steps passed\n' "$steps"

#!/bin/sh
# RocksDB with Flexible Data Placement and without, share/unvme/fdp/rocksdb.sh, as short as it can be: that
# both runs are on our file system, that the first one writes by several placement handles and the second by
# one, what is written, and what makes no sense. How much is amplified takes longer to tell.
#
#   tests/rocksdb_fdp.sh UNVME FOLDER    FOLDER has librocksdb_unvme.so, of scripts/rocksdb.sh
set -eu

UNVME=$(readlink -f "$1")
UNVME_ROCKSDB=$(readlink -f "$2")
export UNVME UNVME_ROCKSDB
unset UNVME_ROCKSDB_STATS || true
script=$(cd "$(dirname "$0")/.." && pwd)/share/unvme/fdp/rocksdb.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
mkdir "$work/run"
# In memory where there is: what is tried is the script, not the disk.
RUN_FOLDER=$work/run
if [ -d /dev/shm ] && [ -w /dev/shm ]; then
    RUN_FOLDER=$(mktemp -d -p /dev/shm)
    trap 'rm -rf "$work" "$RUN_FOLDER"' EXIT
fi
export RUN_FOLDER
steps=0

fail() {
    echo "rocksdb_fdp: $*" >&2
    [ ! -s "$work/output" ] || tail -n 30 "$work/output" >&2
    exit 1
}

# refused WORDS ARGUMENT ...: it must not run, and say why.
refused() {
    said=$1
    shift
    steps=$((steps + 1))
    if timeout 300 "$script" -o "$work/never" "$@" >"$work/output" 2>&1; then
        fail "has not failed: rocksdb.sh $*"
    fi
    grep -q -- "^rocksdb.sh: .*$said" "$work/output" || fail "does not say '$said': rocksdb.sh $*"
}

# A number of results.json: number NAME.
number() {
    sed -n "s/^ *\"$1\": \([0-9.]*\),*\$/\1/p" "$work/results/results.json"
}

# is WHAT EXPRESSION: of awk.
is() {
    steps=$((steps + 1))
    awk "BEGIN { exit !($2) }" || fail "$1: $2"
}

steps=$((steps + 1))
timeout 600 "$script" -q -o "$work/results" >"$work/table" 2>"$work/output" || fail 'rocksdb.sh -q'
for file in placed.jsonl unplaced.jsonl placed-fill.log placed-overwrite.log unplaced-fill.log unplaced-overwrite.log \
    simulation.json simulation.txt results.json report.html; do
    steps=$((steps + 1))
    [ -s "$work/results/$file" ] || fail "there is no $file"
done
for run in 'with placement' without; do
    grep -Eq "^$run +([0-9.]+ +){7}[0-9.]+%" "$work/table" || fail "the table has no line '$run': $(cat "$work/table")"
done
for name in waf_placed waf_unplaced; do
    # Of the runs, and of the simulation.
    for value in $(number $name); do
        is "$name" "$value >= 0.99 && $value < 20"
    done
    [ "$(number $name | wc -l)" -eq 2 ] || fail "$name: $(number $name)"
done
is 'placement handles' "$(number handles | head -n 1) >= 4 && $(number handles | tail -n 1) == 1"
is 'what is in use' "$(number used_placed) > 0.25 && $(number used_placed) <= 1"
grep -q '<svg' "$work/results/report.html" || fail 'the page has no picture'
# What the page says it was made with can be said again: all of it is taken, but for the last word.
again=$(grep -o 'rocksdb.sh -s [0-9]* -u [0-9]* -t [0-9]* -c [0-9]* -w [0-9]* -p [0-9]' "$work/results/report.html" | head -n 1)
[ -n "$again" ] || fail 'the page does not say how it was made'
# shellcheck disable=SC2086
refused 'no_such_bench: there is no such program' ${again#rocksdb.sh } no_such_bench
refused 'no_such_bench: there is no such program' -s 2147483648 no_such_bench
! grep -q 'https*://[^w]' "$work/results/report.html" || fail 'the page loads something'

refused 'usage: ' -x
refused 'usage: ' one two
refused 'at least 256M' -s 64M
refused 'at most 1024G' -s 2048G
refused 'multiple of 2M' -s 268435457
refused 'a size such as' -s large
refused 'a size such as' -s 12345678901234
refused 'a size such as' -s 1234567890G
refused 'a reclaim unit of 1024 bytes' -u 1K
refused 'files of 1073741824 bytes' -t 1G
refused 'a whole number from 1 on' -c 0
refused 'a whole number from 1 on' -w 1.5
refused '0 to 4 are expected' -p 5
refused "no_such_bench: there is no such program; db_bench is in Debian's rocksdb-tools" no_such_bench
UNVME=no_such_unvme refused 'UNVME= says where' -q
RUN_FOLDER=$work/nowhere refused 'RUN_FOLDER=.*nowhere: a folder that is there' -q
refused '-o .*/table/below: cannot be made' -q -o "$work/table/below"
# Twice as many pairs as there is room for.
refused 'db_bench failed in the phase fill' -q -c 130000
left=$(find "$RUN_FOLDER" -mindepth 1 | head -n 3)
[ -z "$left" ] || fail "has left $left"

echo "rocksdb_fdp: $steps steps passed"

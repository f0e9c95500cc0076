#!/bin/sh
# RocksDB's own crash tests on our file system: db_stress is killed, from outside and at places within
# RocksDB, and the power of the virtual SSD below it is cut. Each time the file system is checked, and what
# was promised has to be there, by what db_stress has written down elsewhere. A kill, too, loses what was not
# synced: the page cache is in the process.
#
#   tests/rocksdb_crash.sh UNVME FOLDER TESTS [SECONDS CUTS]
#
# FOLDER has librocksdb_unvme.so, of scripts/rocksdb.sh, and TESTS has db_stress, of scripts/rocksdb-tests.sh.
# Each way to be killed is tried for SECONDS, and for each the power is cut CUTS times; without them it is one
# way, two kills and one cut. SEED=NUMBER says with which options and where; it is printed.
set -eu

unvme=$(readlink -f "$1")
UNVME_ROCKSDB=$(readlink -f "$2")
export UNVME_ROCKSDB
tests=$(readlink -f "$3")
seconds=${4-6}
cuts=${5-1}
SEED=${SEED-$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')}
work=$(mktemp -d)
export UNVME_HOME="$work/home"
export TEST_TMPDIR="$work"
slot=0000:02:00.0
# What db_stress expects, what it says, and what whoever runs it says.
expected=$work/expected
said=$work/said
output=$work/output
kills=0
cut=0
child=

cleanup() {
    # timeout ends all that it has begun.
    if [ -n "$child" ]; then
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

fail() {
    echo "rocksdb_crash: $* (SEED=$SEED)" >&2
    for file in "$output" "$said"; do
        [ ! -s "$file" ] || tail -n 30 "$file" >&2
    done
    exit 1
}

section() {
    printf 'rocksdb_crash: %s\n' "$*"
}

# What is run as db_stress: it looks at what the last one has left, and is one process then, to be killed.
cat >"$work/db_stress" <<WRAPPER
#!/bin/sh
check() {
    result=0
    "$unvme" fs check "$slot" >"$work/check" 2>&1 || result=\$?
}
check
waited=0
# The check of one that was killed meanwhile goes on, and has the device until it ends: no damage.
while [ "\$result" -eq 3 ] && [ "\$waited" -lt 600 ]; do
    sleep 0.1
    waited=\$((waited + 1))
    check
done
[ "\$result" -eq 0 ] || {
    echo "error: the file system is damaged: \$(cat "$work/check")" >&2
    exit 9
}
case "\$*" in
*--destroy_db_initially=1*) rm -f "$expected"/* ;;
esac
exec stdbuf -oL "$unvme" rocksdb -d "$slot" -- "$tests/db_stress" "\$@" >>"$said"
WRAPPER
chmod +x "$work/db_stress"

# Small tables of few keys, which several threads write; and what decides how keys and values look.
common="--expected_values_dir=$expected --max_key=20000 --test_batches_snapshots=0 --threads=6
    --write_buffer_size=1048576 --target_file_size_base=524288 --max_bytes_for_level_base=2097152
    --max_key_len=3 --key_len_percent_dist=1,30,69 --value_size_mult=32 --nooverwritepercent=1
    --use_put_entity_one_in=0 --clear_column_family_one_in=0"

# What is expected, by name: all that was acknowledged; what was at some moment; the same with the file system
# between that RocksDB tries itself with; the same without a log.
options() {
    case $1 in
    synced) set -- 1 0 0 0 ;;
    unsynced) set -- 0 0 0 1000 ;;
    injected) set -- 0 0 1 0 ;;
    unlogged) set -- 0 1 0 0 ;;
    esac
    echo "$common --sync=$1 --disable_wal=$2 --atomic_flush=$2 --sync_fault_injection=$3 --manual_wal_flush_one_in=$4"
}

# An empty file system for a database: begin NAME
begin() {
    db=$work/$1
    "$unvme" device remove "$slot" --force >/dev/null 2>&1 || true
    "$unvme" device create "$slot" --size 1G --ftl page >/dev/null
    "$unvme" fs mkfs "$slot" >/dev/null
    rm -rf "$expected"
    mkdir "$expected"
    : >"$said"
}

# Runs a program that ends with this script.
attended() {
    "$@" &
    child=$!
    result=0
    wait "$child" || result=$?
    child=
    return "$result"
}

# Runs db_stress on what there is, mostly to write: stress WHAT OPTION ...
stress() {
    what=$1
    shift
    # shellcheck disable=SC2046
    attended timeout 900 "$work/db_stress" --db="$db" --destroy_db_initially=0 --reopen=0 --progress_reports=0 \
        --writepercent=55 --delpercent=13 --delrangepercent=2 --readpercent=25 --iterpercent=5 --prefixpercent=0 \
        $(options "$what") "$@" >"$output" 2>&1
}

# What was promised is there: verify WHAT
verify() {
    : >"$said"
    rm -f "$work/stats"
    UNVME_ROCKSDB_STATS=$work/stats stress "$1" --ops_per_thread=500 || fail "$1: what was promised is not there"
    grep -q 'Crash-recovery verification passed' "$said" || fail "$1: nothing was verified"
    grep -q '"writes":[1-9]' "$work/stats" || fail "$1: the file system was not used"
    "$unvme" fs ls "$slot" "$db" | grep -q CURRENT || fail "$1: the database is not on the device"
}

# Kills by RocksDB's script, which takes the other options by chance: killed HOW WHAT
killed() {
    section "$1, $2"
    begin "rocksdb_crashtest_$1"
    how=--interval=3
    [ "$1" = blackbox ] || how='--ops_per_thread=2000 --random_kill_odd=20011'
    # shellcheck disable=SC2046,SC2086
    attended timeout $((seconds + 3600)) python3 -c 'import random, runpy, sys
random.seed(int(sys.argv[1]))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")' "$SEED" "$tests/source/tools/db_crashtest.py" "$1" \
        --stress_cmd="$work/db_stress" --duration="$seconds" $how $(options "$2") >"$output" 2>&1 || fail "$1, $2"
    now=$(grep -c '^KILLED\|^check_mode.*exitcode=-' "$output" || true)
    [ "$now" -gt 0 ] || fail "$1, $2: nothing was killed"
    kills=$((kills + now))
    "$unvme" fs ls "$slot" "$db" | grep -q CURRENT || fail "$1, $2: the database is not on the device"
    # The last run of the other one may have been with another style of compaction.
    [ "$1" = whitebox ] || verify "$2"
}

# Cuts of the power, most in the middle of work, some while what there is is opened: powerless WHAT
powerless() {
    section "power cuts, $1"
    begin cut
    verify "$1"
    number=$SEED
    for round in $(seq "$cuts"); do
        number=$(((number * 1103515245 + 12345) % 2147483648))
        # Logs that are synced are most of what is written.
        [ "$1" = synced ] && programs=20000 || programs=3000
        [ $((round % 4)) -ne 0 ] || programs=100
        programs=$((1 + number / 65536 % programs))
        "$unvme" fault add "$slot" --power-cut "$programs" --seed "$number" >/dev/null
        : >"$said"
        ! stress "$1" --ops_per_thread=100000000 --use_direct_reads=$((round % 2)) \
            --use_direct_io_for_flush_and_compaction=$((round % 2)) || fail "$1: has not seen a power cut"
        "$unvme" fault list "$slot" -o json | grep -q '"hits": 1' || fail "$1: the power was not cut at $programs"
        "$unvme" fault clear "$slot" >/dev/null
        verify "$1"
        cut=$((cut + 1))
    done
}

section "SEED=$SEED"
if [ $# -ge 5 ]; then
    for what in synced unsynced injected unlogged; do
        killed blackbox "$what"
        # It closes the database in between, which needs a log.
        [ "$what" = unlogged ] || killed whitebox "$what"
        powerless "$what"
    done
else
    killed blackbox synced
    powerless synced
fi
printf 'rocksdb_crash: %s kills and %s power cuts survived\n' "$kills" "$cut"

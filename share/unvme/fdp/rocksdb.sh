#!/bin/sh
# RocksDB on a virtual SSD with Flexible Data Placement, and on the same one without: write amplification and
# the share of the device in use over time, as a table, results.json and report.html, beside what `unvme sim`
# expects.
#
#   rocksdb.sh [-s SIZE] [-u SIZE] [-t SIZE] [-c KEYS] [-w TIMES] [-p PRIORITY] [-o FOLDER] [-j] [-q]
#              [DB_BENCH]
#
#   DB_BENCH     db_bench, of Debian's rocksdb-tools; the one in $PATH
#   -s SIZE      what hosts see of the device, 2G, at least 256M; its flash is 18 % more
#   -u SIZE      a reclaim unit: a 128th of the size, as large drives have them
#   -t SIZE      a file of RocksDB's: a 32nd of a reclaim unit
#   -c KEYS      keys of the database; as many as fill some 80 % of the device
#   -w TIMES     how often they are overwritten, 2
#   -p PRIORITY  which files are compacted first (db_bench's compaction_pri): 4, those that come next in the
#                order of keys; 3, RocksDB's own default, those that overlap least
#   -o FOLDER    where the results go, rocksdb-fdp; files of an earlier run in it are replaced
#   -j           the results as JSON on standard output: waf_placed, waf_unplaced and the rest
#   -q           as short as it can be: everything is done, and nothing is settled in the end
#
# The database is filled in order, and then overwritten at random, by an unmodified db_bench. In the first
# run the write-life-time hints of RocksDB choose the placement handle; in the second everything has one
# handle (placement=off), as on a drive without. Both devices are the same, and both are in memory, in
# /dev/shm, where there is room.
#
# In the environment:
#   UNVME        the unvme command; the one in $PATH, or of this checkout
#   RUN_FOLDER   where devices are made: /dev/shm when it has room, else $TMPDIR
set -eu

me=rocksdb.sh
usage='usage: rocksdb.sh [-s SIZE] [-u SIZE] [-t SIZE] [-c KEYS] [-w TIMES] [-p PRIORITY] [-o FOLDER] [-j] [-q] [DB_BENCH]'
here=$(cd "$(dirname "$0")" && pwd)
work=
bench=
watch=

# What is wrong with what was asked for.
wrong() {
    echo "$me: $*" >&2
    exit 2
}

fail() {
    echo "$me: $*" >&2
    exit 1
}

cleanup() {
    for child in $bench $watch; do
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    done
    [ -z "$work" ] || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() {
    echo "$me: $*" >&2
}

# size_of OPTION TEXT: its bytes.
size_of() {
    case $2 in
    # More than 64 bits hold.
    ??????????*[KMGkmg]) digits= ;;
    *) digits=${2%[KMGkmg]} ;;
    esac
    case $digits in
    '' | 0* | *[!0-9]* | ??????????????*) wrong "$1 $2: a size such as 512K, 16M or 2G is expected" ;;
    esac
    case $2 in
    *[Kk]) echo $((digits * 1024)) ;;
    *[Mm]) echo $((digits * 1048576)) ;;
    *[Gg]) echo $((digits * 1073741824)) ;;
    *) echo "$digits" ;;
    esac
}

# positive OPTION TEXT
positive() {
    case $2 in
    '' | 0* | *[!0-9]* | ??????????*) wrong "$1 $2: a whole number from 1 on is expected" ;;
    esac
}

size=2G unit='' file='' keys='' times=2 priority=4 folder=rocksdb-fdp json='' quick=''
while getopts s:u:t:c:w:p:o:jq option; do
    case $option in
    s) size=$OPTARG ;;
    u) unit=$OPTARG ;;
    t) file=$OPTARG ;;
    c) positive -c "$OPTARG" && keys=$OPTARG ;;
    w) positive -w "$OPTARG" && times=$OPTARG ;;
    p) case $OPTARG in [0-4]) priority=$OPTARG ;; *) wrong "-p $OPTARG: 0 to 4 are expected, db_bench's compaction_pri" ;; esac ;;
    o) folder=$OPTARG ;;
    j) json=1 ;;
    q) quick=1 ;;
    *) wrong "$usage" ;;
    esac
done
shift $((OPTIND - 1))
[ $# -le 1 ] || wrong "$usage"
db_bench=${1-db_bench}
if [ -n "$quick" ]; then
    size=256M times=1 keys=${keys:-20000}
fi
size=$(size_of -s "$size")
[ "$size" -ge $((256 * 1048576)) ] || wrong "-s: $size bytes are too few for a database and its compactions; at least 256M are expected"
[ "$size" -le $((1024 * 1073741824)) ] || wrong "-s: $size bytes are too many; at most 1024G are expected"
[ $((size % 2097152)) -eq 0 ] || wrong "-s: $size bytes are no multiple of 2M"
unit=$(if [ -n "$unit" ]; then size_of -u "$unit"; else echo $((size / 128)); fi)
if [ "$unit" -lt 1048576 ] || [ $((size / unit)) -lt 64 ]; then
    wrong "-u: a reclaim unit of $unit bytes; 1M to a 64th of the size, $((size / 64)) bytes, are expected"
fi
file=$(if [ -n "$file" ]; then size_of -t "$file"; else echo $((unit / 32)); fi)
if [ "$file" -lt 65536 ] || [ "$file" -gt $((size / 128)) ]; then
    wrong "-t: files of $file bytes; 64K to a 128th of the size, $((size / 128)) bytes, are expected"
fi
# A pair has 4016 bytes. What RocksDB has beside them at any time, old versions and files that are being
# compacted, grows with the size as all limits below do.
value=4000
keys=${keys:-$((size / 7100))}

if [ -z "${UNVME-}" ]; then
    UNVME=$(command -v unvme || command -v "$here/../../../bin/unvme" || true)
    [ -n "$UNVME" ] || UNVME=$here/../../../target/release/unvme
fi
[ -x "$(command -v "$UNVME")" ] || wrong "$UNVME: there is no such program; UNVME= says where unvme is"
[ -x "$(command -v "$db_bench")" ] || wrong "$db_bench: there is no such program; db_bench is in Debian's rocksdb-tools"

if ! mkdir -p -- "$folder" 2>/dev/null || [ ! -w "$folder" ]; then
    wrong "-o $folder: cannot be made or written to; a folder for the results is expected"
fi
folder=$(cd -- "$folder" && pwd)
# Flash, and the image of it that a run leaves behind before it is removed.
room=$((size * 13 / 10 / 1024))
if [ -z "${RUN_FOLDER-}" ]; then
    RUN_FOLDER=${TMPDIR:-/tmp}
    free=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
    [ "${free:-0}" -le "$room" ] || [ ! -w /dev/shm ] || RUN_FOLDER=/dev/shm
fi
if [ ! -d "$RUN_FOLDER" ] || [ ! -w "$RUN_FOLDER" ]; then
    wrong "RUN_FOLDER=$RUN_FOLDER: a folder that is there and may be written to is expected"
fi
free=$(df -Pk "$RUN_FOLDER" | awk 'NR == 2 { print $4 }')
[ "${free:-0}" -gt "$room" ] || fail "$RUN_FOLDER: $free KiB are free, $room are needed; RUN_FOLDER= says where else, -s makes it smaller"
work=$(mktemp -d "$RUN_FOLDER/unvme-fdp.XXXXXX")
export UNVME_HOME="$work/home"
slot=0000:02:00.0

# A field of the JSON of `device create`.
field() {
    sed -n "s/^ *\"$1\": \([0-9.]*\),*\$/\1/p" "$work/device.json" | head -n 1
}

# bench NAME RUN URI ARGUMENT ...: db_bench, and what is written and in use meanwhile, in RUN.jsonl. Where
# files are small RocksDB's own log of them is not: it is kept out of the device.
bench() {
    name=$1 run=$2 uri=$3
    shift 3
    rm -f "$work/$run.stats"
    UNVME_ROCKSDB_STATS=$work/$run.stats "$UNVME" rocksdb -d "$uri" -- "$db_bench" --db=/db --num="$keys" --key_size=16 \
        --value_size=$value --compression_type=none --seed=1 --write_buffer_size=$((size / 1024)) \
        --target_file_size_base="$file" --max_bytes_for_level_base=$((size / 64)) --max_bytes_for_level_multiplier=8 \
        --level_compaction_dynamic_level_bytes=1 --compaction_pri="$priority" --max_background_flushes=1 \
        --max_background_compactions=4 --level0_slowdown_writes_trigger=8 --level0_stop_writes_trigger=12 \
        --soft_pending_compaction_bytes_limit=$((size / 32)) --hard_pending_compaction_bytes_limit=$((size / 16)) \
        --use_direct_io_for_flush_and_compaction=1 --writable_file_max_buffer_size=65536 --open_files=-1 \
        --cache_size=8388608 --use_stderr_info_logger=1 "$@" >"$folder/$run-$name.log" 2>"$work/stderr" &
    bench=$!
    # Whoever opens a slot first has it: the database shall, not who watches.
    until [ "$(cut -d ' ' -f 1 "$UNVME_HOME/slots/$slot/lock" 2>/dev/null | head -n 1)" = "$bench" ]; do
        kill -0 "$bench" 2>/dev/null || break
        sleep 0.05
    done
    "$UNVME" fdp watch "$slot" --interval "$interval" -o json >>"$folder/$run.jsonl" 2>"$work/watch" &
    watch=$!
    status=0
    wait "$bench" || status=$?
    bench=
    # The last of it, and something of it where it was short.
    seen=$(lines) waited=0
    while [ "$(lines)" -le "$seen" ] && [ "$waited" -lt 600 ] && kill -0 "$watch" 2>/dev/null; do
        sleep 0.1
        waited=$((waited + 1))
    done
    kill "$watch" 2>/dev/null || true
    watched=0
    wait "$watch" || watched=$?
    watch=
    if [ "$status" -ne 0 ] || ! grep -q 'micros/op' "$folder/$run-$name.log"; then
        # Lines of RocksDB's log begin with the date.
        tr '\r' '\n' <"$work/stderr" | grep -v -e '^[0-9]*/[0-9]*/' -e '^$' | tail -n 5 >&2
        tail -n 1000 "$work/stderr" >>"$folder/$run-$name.log"
        fail "db_bench failed in the phase $name, $run; the end of its log is in $folder/$run-$name.log"
    fi
    [ "$watched" -eq 0 ] || fail "nobody has watched the phase $name, $run: $(cat "$work/watch")"
    grep -q '"opened":[1-9]' "$work/$run.stats" || fail "db_bench has not used the file system of $slot"
    rate=$(tr '\r' '\n' <"$folder/$run-$name.log" | sed -n 's/^.* \([0-9][0-9]*\) ops\/sec .*$/\1/p' | tail -n 1)
    printf '{"operations_per_second":%s}\n' "${rate:-0}" >>"$folder/$run.jsonl"
}

lines() {
    wc -l <"$folder/$run.jsonl"
}

# phase NAME RUN URI ARGUMENT ...
phase() {
    printf '{"phase":"%s"}\n' "$1" >>"$folder/$2.jsonl"
    bench "$@"
}

# Whether there are readings enough of the phase: 12, and some in its last quarter.
enough() {
    awk '/"phase"/ { count = 0; next } /"host_bytes"/ { count++ } END { exit count < 12 }' "$folder/$run.jsonl" &&
        "$UNVME" fdp plot --placed "$folder/$run.jsonl" --unplaced "$folder/$run.jsonl" >/dev/null 2>&1
}

# run NAME URI
run() {
    run=$1
    # shellcheck disable=SC2086
    "$UNVME" device create "$slot" --size "$size" --block 4096 --op 18% --ru-size "$unit" --handles 7 --fdp \
        -o json >"$work/device.json"
    "$UNVME" fs mkfs "$slot" >/dev/null
    rm -f "$folder/$run.jsonl"
    say "$run: filling with $keys pairs"
    phase fill "$run" "$2" --benchmarks=fillseq
    say "$run: overwriting $((keys * times)) pairs"
    phase overwrite "$run" "$2" --benchmarks=overwrite,stats --use_existing_db=1 --writes=$((keys * times))
    more=0
    # A fast machine, or one that has no time to watch.
    until enough; do
        [ "$more" -lt 16 ] || fail "$run: there are too few readings of what was written; -w $((times + 1)) writes more"
        more=$((more + 1))
        say "$run: overwriting $((keys * times)) pairs more, for readings enough"
        bench overwrite "$run" "$2" --benchmarks=overwrite,stats --use_existing_db=1 --writes=$((keys * times))
    done
    [ "$more" -eq 0 ] || extra="$extra; $run: overwritten $((times * more)) times more, for readings enough"
    "$UNVME" fs check "$slot" >/dev/null || fail "the file system of $slot is damaged after the run $run"
    "$UNVME" device remove "$slot" --force >/dev/null
}

interval=$(if [ -n "$quick" ]; then echo 0.1; else echo 0.5; fi)
extra=
run placed "$slot"
run unplaced "$slot?placement=off"

# Shares of the data and of the traffic by hint, in percent: the log; level 0 and the first one below; the
# next one; the rest. Where little was written the recipe keeps its own.
levels=$(tr '\r' '\n' <"$folder/unplaced-overwrite.log" | awk '
    /^\*\* Compaction Stats/ { tables++ }
    tables == 1 && /^ +L[0-9]+ / {
        level = substr($1, 2) + 0
        if (level > 0 && !base) base = level
        at = level - base < 1 ? 2 : level - base < 2 ? 3 : 4
        data[at] += $3 * ($4 == "GB" ? 1024 : $4 == "KB" ? 1 / 1024 : 1)
        written[at] += $9
        if (level == 0) written[1] = $9
    }
    function shares(of, sum) {
        sum = of[1] + of[2] + of[3] + of[4]
        for (at = 1; at < 4; at++) share[at] = int(of[at] / sum * 1000 + 0.5) / 10
        return share[1] "," share[2] "," share[3] "," 100 - share[1] - share[2] - share[3]
    }
    END {
        # Of the log there is little at any time.
        data[1] = (data[2] + data[3] + data[4]) / 100
        if (written[1] > 0 && written[2] > 0 && written[3] > 0 && written[4] > 0 && data[2] > 0 && data[3] > 0)
            print "--levels " shares(data) " --level-traffic " shares(written)
    }')

# The simulated device is like it: flash without the units that only a file keeps free, and as much in use.
units=$(($(field units) - $(field pool_units)))
used=$("$UNVME" fdp plot --placed "$folder/placed.jsonl" --unplaced "$folder/unplaced.jsonl" -o json |
    sed -n 's/^  "used_placed": \([0-9.]*\),$/\1/p' | awk '{ printf "%.1f", $1 * 100 }')
sold=$(awk -v flash="$((units * unit))" -v size="$size" 'BEGIN { printf "%.3f%%", (flash / size - 1) * 100 }')
say "simulating the same with $used % in use"
# shellcheck disable=SC2086
"$UNVME" sim --recipe rocksdb $levels --size "$((units * unit))" --ru-size "$unit" --op "$sold" --handles 7 --util "$used" \
    --file-size "$file" --fdp both --writes 20 --json "$folder/simulation.json" >"$folder/simulation.txt"

"$UNVME" fdp plot --placed "$folder/placed.jsonl" --unplaced "$folder/unplaced.jsonl" \
    --simulation "$folder/simulation.json" --title 'RocksDB with Flexible Data Placement, and without' \
    --note "$me -s $size -u $unit -t $file -c $keys -w $times -p $priority$extra" \
    --note "unvme sim --recipe rocksdb $levels --size $((units * unit)) --ru-size $unit --op $sold --handles 7 --util $used \
--file-size $file" \
    --html "$folder/report.html" --json "$folder/results.json" ${json:+-o json}
say "$folder has report.html and results.json"

#!/bin/sh
# The guide's tests of RocksDB on unvme's file system: db_bench as the distribution has it, phase by phase,
# then a table, results.json and report.html in results/testrun_<date>_<time> of the folder it is called in.
#
#   ./run_tests.sh [-d DEVICE] [-c CONFIG] [-o FOLDER] [DB_BENCH]
#
#   DB_BENCH     db_bench, of Debian's rocksdb-tools; the one in $PATH
#   -c CONFIG    whose first device is used: lba_sdk_config.json beside this script
#   -d DEVICE    or UNVME_DEVICE: this device instead. It needs a file system (unvme fs mkfs DEVICE)
#   -o FOLDER    instead of results/testrun_...; it must not be there
#
# Where neither -d nor -c is given, and there is no 0000:02:00.0, which lba_sdk_config.json names before it
# is edited, a virtual SSD in $TMPDIR is made for the run and removed. The database is /mnt/rocksdb on the
# device.
#
# In the environment (0 or 1 where no unit is said):
#   NUM_KEYS              keys of the database, 300000
#   DURATION              seconds of each phase from randread on, 10
#   VALUE_SIZE BLOCK_SIZE bytes, 1000 and 4096
#   CACHE_SIZE            page cache in MiB, 256
#   RETAIN_CACHE          pages that were read stay in it, 0
#   PREFETCH_CTL          BLOCK_SIZE bytes are read ahead, 0
#   PREFETCH_THRESHOLD    ... when so many bytes were read in order, 131072
#   BLOBFS_DIRECT_READ BLOBFS_DIRECT_WRITE   past the cache, 0; of both RocksDB and the file system
#   READ_REPEAT           how often seqread and randread are done, 1
#   NO_SPDK               1: on the kernel's file system instead; 2: on both, phase by phase, and compared
#   COMPARE=1             as NO_SPDK=2
#   KERNEL_FOLDER         where on the kernel's file system; for root ext4 on a loop device in $TMPDIR, as
#                         the virtual SSD is a file there, for others a folder there, which is removed
#   SKIP_INSERT SKIP_SEQREAD SKIP_RANDREAD SKIP_OVERWRITE SKIP_READWRITE SKIP_WRITESYNC
#   UNVME                 the unvme command; the one in $PATH, or of this checkout
# The original's defaults (500 million keys, 2 minutes, 4096 MiB) take hours; these take some two minutes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
usage='usage: run_tests.sh [-d DEVICE] [-c CONFIG] [-o FOLDER] [DB_BENCH]'
work=
mounted=
bench=

# What is wrong with what was asked for.
wrong() {
    echo "run_tests.sh: $*" >&2
    exit 2
}

fail() {
    echo "run_tests.sh: $*" >&2
    exit 1
}

cleanup() {
    if [ -n "$bench" ]; then
        kill "$bench" 2>/dev/null || true
        wait "$bench" 2>/dev/null || true
    fi
    [ -z "$mounted" ] || umount "$mounted" 2>/dev/null || umount --lazy "$mounted" 2>/dev/null || true
    [ -z "$work" ] || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Sets a variable to its default where it is not set, and looks whether it is a whole number in a range.
number() {
    eval "value=\${$1-}"
    [ -n "$value" ] || value=$2
    eval "$1=\$value"
    case $value in
    *[!0-9]* | ????????????*) wrong "$1=$value: expected a whole number from $3 to $4" ;;
    esac
    # A zero in front is no octal number.
    value=$(echo "$value" | sed 's/^0*\(.\)/\1/')
    if [ "$value" -lt "$3" ] || [ "$value" -gt "$4" ]; then
        wrong "$1=$value: expected a whole number from $3 to $4"
    fi
    eval "$1=\$value"
}

# The same, for what is on or off.
switch() {
    eval "value=\${$1-}"
    case ${value:-0} in
    1 | on | yes | true) eval "$1=1" ;;
    0 | off | no | false) eval "$1=0" ;;
    *) wrong "$1=$value: expected 0 or 1" ;;
    esac
}

device=${UNVME_DEVICE-}
config=
results=
while getopts d:c:o: option; do
    case $option in
    d) device=$OPTARG ;;
    c) config=$OPTARG ;;
    o) results=$OPTARG ;;
    *) wrong "$usage" ;;
    esac
done
shift $((OPTIND - 1))
[ $# -le 1 ] || wrong "$2: unknown; $usage"
db_bench=${1:-db_bench}
[ -z "$device" ] || [ -z "$config" ] || wrong "-c $config: the device is $device, by -d or UNVME_DEVICE; leave one away"

number NUM_KEYS 300000 1 10000000000
number DURATION 10 1 1000000
number VALUE_SIZE 1000 1 16777216
number BLOCK_SIZE 4096 512 4194304
number CACHE_SIZE 256 1 1048576
number PREFETCH_THRESHOLD 131072 1 4194304
number READ_REPEAT 1 1 100
number NO_SPDK 0 0 2
for name in COMPARE RETAIN_CACHE PREFETCH_CTL BLOBFS_DIRECT_READ BLOBFS_DIRECT_WRITE SKIP_INSERT SKIP_SEQREAD \
    SKIP_RANDREAD SKIP_OVERWRITE SKIP_READWRITE SKIP_WRITESYNC; do
    switch "$name"
done
# A name that is misspelt would be without effect.
for name in $(env | sed -n 's/^\(SKIP_[A-Za-z_]*\)=.*/\1/p'); do
    case $name in
    SKIP_INSERT | SKIP_SEQREAD | SKIP_RANDREAD | SKIP_OVERWRITE | SKIP_READWRITE | SKIP_WRITESYNC) ;;
    *) wrong "$name: there is no such phase; expected SKIP_INSERT, SKIP_SEQREAD, SKIP_RANDREAD, SKIP_OVERWRITE," \
        "SKIP_READWRITE or SKIP_WRITESYNC" ;;
    esac
done
sides=unvme
[ "$NO_SPDK" -eq 0 ] || sides=kernel
if [ "$NO_SPDK" -eq 2 ] || [ "$COMPARE" -eq 1 ]; then
    sides='unvme kernel'
fi
phases=
for phase in insert seqread randread overwrite readwrite writesync; do
    skipped=0
    eval "skipped=\$SKIP_$(echo "$phase" | tr '[:lower:]' '[:upper:]')"
    [ "$skipped" -eq 1 ] || phases="$phases $phase"
done
[ -n "$phases" ] || wrong 'SKIP_...: all phases are skipped'

command -v "$db_bench" >/dev/null ||
    wrong "$db_bench: there is no such program; db_bench is in Debian's rocksdb-tools"
# A file in this folder goes by its name alone, too.
db_bench=$(command -v "$db_bench")
unvme=$(command -v "${UNVME:-unvme}" || true)
[ -n "$unvme${UNVME-}" ] ||
    unvme=$(command -v "$here/../../../bin/unvme" || command -v "$here/../../../target/release/unvme" || true)
[ -n "$unvme" ] || wrong "${UNVME:-unvme}: there is no such program; UNVME=FILE says where it is"
unvme=$(readlink -f "$unvme")

# The device that a configuration names first, and not in a comment.
device_of() {
    sed -e 's|^//.*||' -e 's|[][[:space:]{},"]//.*||' "$1" | tr -d '\n' | sed 's|/\*[^*]*\*/||g' |
        grep -o '"dev_id"[[:space:]]*:[[:space:]]*"[^"]*"' | head -n 1 | sed 's/.*"\(.*\)"/\1/'
}

# MiB that hold the database several times over: compactions write before they delete.
size() {
    echo $((NUM_KEYS * (VALUE_SIZE + 64) * 6 / 1048576 / 2 * 2 + 2048))
}

# A virtual SSD with a file system, in a home of its own: no other one is touched.
make_scratch() {
    [ "$SKIP_INSERT" -eq 0 ] ||
        wrong "SKIP_INSERT=1: there is no $named, and a virtual SSD that is made for the run has no database"
    UNVME_HOME=$work/home
    export UNVME_HOME
    "$unvme" device create "$named" --size "$(size)M" >"$work/made" 2>&1 || fail "$(cat "$work/made")"
    "$unvme" fs mkfs "$named" >"$work/made" 2>&1 || fail "$(cat "$work/made")"
    echo "There is no $named: a virtual SSD of $(size) MiB in $work is made for this run." >&2
}

# Finds the device, and looks whether it has a file system.
find_device() {
    case $device in
    mem:*) wrong "$device: lives within one process, and each phase is one; name a device that stays, or none: a" \
        "virtual SSD is made then" ;;
    esac
    named=$device
    if [ -z "$device" ]; then
        file=${config:-$here/lba_sdk_config.json}
        [ -r "$file" ] || wrong "$file: cannot be read; expected a configuration of the SDK"
        named=$(device_of "$file")
        [ -n "$named" ] || wrong "$file: names no device; expected \"device_description\": [ { \"dev_id\": ... } ]"
    fi
    result=0
    "$unvme" fs info "$named" >"$work/info" 2>&1 || result=$?
    if [ "$result" -eq 3 ] && [ -z "$device$config" ] && [ "$named" = 0000:02:00.0 ] &&
        grep -q 'no such device' "$work/info"; then
        make_scratch
    elif [ "$result" -ne 0 ]; then
        fail "$(sed 's/^unvme: //' "$work/info")"
    elif [ "$SKIP_INSERT" -eq 1 ]; then
        "$unvme" fs stat "$named" "$database/CURRENT" >/dev/null 2>&1 ||
            wrong "SKIP_INSERT=1: $named has no database in $database; do without it once"
    fi
}

# A file system of the kernel's in a file where the virtual SSD would be, too; a folder for whom may not
# mount.
make_kernel() {
    mkdir "$kernel"
    mounted=$kernel
    mkfs=$(command -v mkfs.ext4 || command -v /sbin/mkfs.ext4 || true)
    if [ "$(id -u)" -eq 0 ] && [ -n "$mkfs" ] && truncate -s "$(size)M" "$work/image" &&
        "$mkfs" -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$work/image" >"$work/made" 2>&1 &&
        mount -o loop "$work/image" "$kernel" 2>"$work/made"; then
        echo "The kernel's file system is ext4 on a loop device of $(size) MiB in $work." >&2
    else
        mounted=
        echo "The kernel's file system is that of $work: ext4 on a loop device takes root and e2fsprogs." >&2
    fi
}

# A number of bytes as the file system takes it: pages, at most 1024.
pages() {
    pages=$((($1 + 4095) / 4096))
    [ "$pages" -le 1024 ] || pages=1024
    echo $((pages * 4096))
}

# What a file of flags has.
flags_of() {
    sed 's/#.*//' "$here/$1_flags.txt" | tr '\n' ' '
}

# Runs a phase on a file system: run_phase SIDE NUMBER PHASE
run_phase() {
    side=$1
    file=$results/$side/$2-$3
    again=1
    case $3 in
    seqread | randread) again=$READ_REPEAT ;;
    esac
    # shellcheck disable=SC2046
    set -- "$3" $(flags_of common) $(flags_of "$3")
    phase=$1
    shift
    set -- "$@" "--num=$NUM_KEYS" "--value_size=$VALUE_SIZE" "--block_size=$BLOCK_SIZE"
    case $phase in
    randread | overwrite | readwrite | writesync) set -- "$@" "--duration=$DURATION" ;;
    esac
    if [ "$again" -gt 1 ]; then
        benchmark=$(flags_of "$phase" | sed -n 's/.*--benchmarks=\([^ ]*\).*/\1/p')
        list=$benchmark
        while [ "$again" -gt 1 ]; do
            list=$list,$benchmark
            again=$((again - 1))
        done
        set -- "$@" "--benchmarks=$list"
    fi
    set -- "$@" "--use_direct_reads=$BLOBFS_DIRECT_READ" "--use_direct_io_for_flush_and_compaction=$BLOBFS_DIRECT_WRITE"
    if [ "$side" = kernel ]; then
        set -- "$db_bench" "--db=$kernel$database" "$@"
    elif [ -n "$device" ]; then
        set -- "$unvme" rocksdb -d "$device?$(options)" -- "$db_bench" "--db=$database" "$@"
    else
        set -- "$unvme" rocksdb -- "$db_bench" "--db=$database" "$@" "--mpdk=${config:-$here/lba_sdk_config.json}" \
            --spdk_bdev=unvme_bdev0n1 "--spdk_cache_size=$CACHE_SIZE" "--use_retain_cache=$RETAIN_CACHE" \
            "--use_prefetch_ctl=$PREFETCH_CTL" "--prefetch_threshold=$PREFETCH_THRESHOLD" \
            "--use_blobfs_direct_read=$BLOBFS_DIRECT_READ" "--use_blobfs_direct_write=$BLOBFS_DIRECT_WRITE"
    fi
    echo "$ $*" >"$file.txt"
    # A signal is obeyed while it is waited for.
    UNVME_ROCKSDB_STATS=$file.stats.json "$@" >>"$file.txt" 2>&1 &
    bench=$!
    status=0
    wait "$bench" || status=$?
    bench=
    if [ "$status" -ne 0 ]; then
        tail -n 20 "$file.txt" >&2
        fail "$phase has failed on $side; all it said is in $file.txt"
    fi
}

# What the flags of the SDK say, for a device that is named otherwise.
options() {
    printf 'cache=%sM&retain=%s' "$CACHE_SIZE" "$RETAIN_CACHE"
    if [ "$PREFETCH_CTL" -eq 1 ]; then
        printf '&read_ahead=%s&read_ahead_threshold=%s' "$(pages "$BLOCK_SIZE")" "$(pages "$PREFETCH_THRESHOLD")"
    fi
    [ "$BLOBFS_DIRECT_READ" -eq 0 ] || printf '&direct_reads=1'
    [ "$BLOBFS_DIRECT_WRITE" -eq 0 ] || printf '&direct_writes=1'
}

work=$(mktemp -d "${TMPDIR:-/tmp}/unvme-rocksdb.XXXXXX")
database=/mnt/rocksdb
case " $sides " in
*' unvme '*) find_device ;;
esac
case " $sides " in
*' kernel '*)
    kernel=${KERNEL_FOLDER:-$work/kernel}
    [ -z "${KERNEL_FOLDER-}" ] || [ -d "$kernel" ] || wrong "KERNEL_FOLDER=$kernel: there is no such folder"
    [ "$SKIP_INSERT" -eq 0 ] || [ -f "$kernel$database/CURRENT" ] ||
        wrong "SKIP_INSERT=1: there is no database in $kernel$database; name a KERNEL_FOLDER, and do without it once"
    [ -n "${KERNEL_FOLDER-}" ] || make_kernel
    mkdir -p "$kernel$database"
    ;;
esac
if [ -n "$results" ]; then
    [ ! -e "$results" ] || wrong "-o $results: is there already"
    if ! mkdir -p "$(dirname "$results")" 2>/dev/null || ! mkdir "$results" 2>/dev/null; then
        fail "-o $results: cannot be made; expected a folder that is not there, in one that may be written to"
    fi
else
    mkdir -p results 2>/dev/null || true
    # Another run may have begun in the same second.
    until results=results/testrun_$(date +%Y%m%d_%H%M%S) && mkdir "$results" 2>/dev/null; do
        [ -e "$results" ] || fail "$results cannot be made; -o FOLDER says where the results go"
        sleep 1
    done
fi
for side in $sides; do
    mkdir "$results/$side"
done

count=0
for phase in $phases; do
    count=$((count + 1))
    for side in $sides; do
        printf 'Start %s on %s ... ' "$phase" "$side" >&2
        run_phase "$side" "$count" "$phase"
        echo done. >&2
    done
done
set --
for side in $sides; do
    set -- "$@" "$results/$side"
done
"$unvme" rocksdb-plot "$@" --report "$results/report.html" --json "$results/results.json" ||
    fail "the results in $results cannot be drawn"

#!/bin/sh
# YCSB's core workloads on WiredTiger, MongoDB's storage engine: on the kernel's ext4, and, unmodified, on our
# file system by way of the preload library. A table, and a page with plots.
#
#   run.sh [--generator own|ycsb] [--workloads ac] [--records N] [--cache MIB] [--threads N] [--seconds S]
#          [--rounds N] [--device DEVICE] [--pages SIZE] [--kernel FOLDER] [--report FILE] [--json FILE]
#          [--wiredtiger FOLDER] [--unvme PROGRAM] [--quick]
#
#   --generator   own, the default: ycsb_wt.c beside this, with WiredTiger 11.3.1 of scripts/wiredtiger.sh;
#                 ycsb: YCSB 0.17.0 itself, fetched by Maven, with Debian's WiredTiger 3.2.1 for Java
#   --workloads   letters of a to f, `ac` if nothing is said
#   --records     of 1000 bytes, 400000
#   --cache       WiredTiger's own cache in MiB: a tenth of the data
#   --threads     as many as there are processors
#   --seconds     of each measurement, 20
#   --rounds      measurements of each workload on each side, 5: in turn, each after all has been read once
#   --device      what our side is on; a virtual device, in memory as the kernel's, is made if nothing is said
#   --pages       our page cache, 4G; the kernel has all of the memory
#   --kernel      a folder of the kernel's side; ext4 on a loop device over a file in memory if none is said
#   --report      the page, ycsb-report.html; --json: what it shows, as data
#   --wiredtiger  what scripts/wiredtiger.sh has made; target/wiredtiger of this checkout
#   --unvme       the command; the one of this checkout, or in $PATH
#   --quick       as short as it can be: everything is done, and the figures mean nothing
#
# The order of the sides changes from round to round. Both have a database that has been loaded once.
set -eu

me=run.sh
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..

wrong() {
    echo "$me: $*" >&2
    exit 2
}

fail() {
    echo "$me: $*" >&2
    [ ! -s "${work-}/output" ] || tail -n 20 "$work/output" >&2
    exit 1
}

number() {
    case $2 in
    '' | 0* | *[!0-9]* | ??????????*) wrong "$1 $2: a whole number from 1 on is expected" ;;
    esac
}

generator=own workloads=ac records=400000 cache='' threads=$(nproc) seconds=20 rounds=5 device='' pages=4G
kernel='' report=ycsb-report.html json='' wiredtiger=$root/target/wiredtiger unvme=''
while [ $# -gt 0 ]; do
    option=$1
    shift
    if [ "$option" = --quick ]; then
        records=20000 seconds=1 rounds=1
        continue
    fi
    [ $# -gt 0 ] || wrong "$option: expected a value behind it; see the head of $0"
    case $option in
    --records | --cache | --threads | --seconds | --rounds) number "$option" "$1" ;;
    esac
    case $option in
    --generator) generator=$1 ;;
    --workloads) workloads=$1 ;;
    --records) records=$1 ;;
    --cache) cache=$1 ;;
    --threads) threads=$1 ;;
    --seconds) seconds=$1 ;;
    --rounds) rounds=$1 ;;
    --device) device=$1 ;;
    --pages) pages=$1 ;;
    --kernel) kernel=$1 ;;
    --report) report=$1 ;;
    --json) json=$1 ;;
    --wiredtiger) wiredtiger=$1 ;;
    --unvme) unvme=$1 ;;
    *) wrong "$option: there is no such option; see the head of $0" ;;
    esac
    shift
done
case $generator in own | ycsb) ;; *) wrong "--generator $generator: own or ycsb is expected" ;; esac
case $workloads in '' | *[!a-f]*) wrong "--workloads $workloads: letters of a to f are expected" ;; esac
cache=${cache:-$((records / 10000))}
[ "$cache" -gt 0 ] || cache=1
if [ -z "$unvme" ]; then
    unvme=$root/target/release/unvme
    [ -x "$unvme" ] || unvme=unvme
fi
unvme=$(command -v "$unvme") || wrong "$unvme: there is no such program; --unvme says where it is"
unvme=$(readlink -f "$unvme")
command -v python3 >/dev/null || wrong 'python3 is needed, which draws the page'

# Both sides' bytes are in memory, where nothing else was asked for.
work=$(if [ -w /dev/shm ]; then mktemp -d -p /dev/shm unvme-ycsb.XXXXXX; else mktemp -d; fi)
export UNVME_HOME="${UNVME_HOME:-$work/home}"
mounted=
cleanup() {
    [ -z "$mounted" ] || umount -l "$mounted" || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mkdir "$work/results" "$work/ours"

# The database grows by what is inserted, by old versions of pages, and by a journal.
size=$(((records * 4000 / 2097152 + 512) * 2097152))
if [ -z "$kernel" ]; then
    kernel=$work/kernel
    mkdir "$kernel"
    # Written, as the benchmarks do: memory that is not there yet is not what is measured.
    head -c "$size" /dev/zero >"$work/image"
    mkfs=$(command -v mkfs.ext4 || echo /sbin/mkfs.ext4)
    "$mkfs" -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$work/image" >"$work/output" 2>&1 ||
        fail 'there is no ext4 to compare with; --kernel says where else'
    mount -o loop "$work/image" "$kernel" >"$work/output" 2>&1 ||
        fail 'ext4 cannot be mounted on a loop device, which takes root; --kernel says where else'
    mounted=$kernel
fi
if [ -z "$device" ]; then
    device=0000:02:00.0
    "$unvme" device create "$device" --size "$size" >"$work/output" 2>&1 || fail 'there is no device'
    "$unvme" fs mkfs "$device" >"$work/output" 2>&1 || fail 'there is no file system'
fi

# ---- the two generators --------------------------------------------------------------------------

prepare_own() {
    [ -f "$wiredtiger/include/wiredtiger.h" ] ||
        wrong "$wiredtiger: there is no WiredTiger; make wiredtiger, or --wiredtiger says where it is"
    wiredtiger=$(cd "$wiredtiger" && pwd)
    cc -O2 -std=gnu11 -I"$wiredtiger/include" "$here/ycsb_wt.c" -o "$work/ycsb_wt" -L"$wiredtiger/lib" -lwiredtiger \
        -Wl,-rpath,"$wiredtiger/lib" -lm -lpthread >"$work/output" 2>&1 || fail 'ycsb_wt.c cannot be compiled'
}

prepare_ycsb() {
    for program in java javac mvn; do
        command -v $program >/dev/null || wrong "$program is needed: scripts/setup.sh ycsb"
    done
    jar=/usr/share/java/wiredtiger.jar
    native=/usr/lib/libwiredtiger_java.so.0
    if ! [ -f "$jar" ] || ! [ -f "$native" ]; then
        wrong 'WiredTiger for Java is needed, Debian has it: apt-get install libwiredtiger-java libwiredtiger0'
    fi
    mkdir "$work/java"
    mvn -q -B -f "$here/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DoutputDirectory="$work/java" >"$work/output" 2>&1 || fail 'YCSB cannot be fetched'
    javac -cp "$work/java/*:$jar" -d "$work/java" "$here/YcsbWiredTiger.java" >"$work/output" 2>&1 ||
        fail 'YcsbWiredTiger.java cannot be compiled'
    # By the name that Java looks for, which only Debian's package for developers has.
    ln -s "$native" "$work/java/libwiredtiger_java.so"
}

# generate_own FOLDER RESULT PHASE ...
generate_own() {
    folder=$1 result=$2
    shift 2
    on "$work/ycsb_wt" -r "$records" -c "$cache" -t "$threads" -s "$seconds" -j "$result.json" "$folder/ycsb" "$@"
}

# Shares of a workload, as in YCSB's own files of that name.
properties() {
    case $1 in
    a) set -- 0.5 0.5 0 0 0 zipfian ;;
    b) set -- 0.95 0.05 0 0 0 zipfian ;;
    c) set -- 1 0 0 0 0 zipfian ;;
    d) set -- 0.95 0 0.05 0 0 latest ;;
    e) set -- 0 0 0.05 0.95 0 zipfian ;;
    f) set -- 0.5 0 0 0 0.5 zipfian ;;
    esac
    echo "-p readproportion=$1 -p updateproportion=$2 -p insertproportion=$3 -p scanproportion=$4" \
        "-p readmodifywriteproportion=$5 -p requestdistribution=$6"
}

# The same; a phase is a letter, behind `warm`.
generate_ycsb() {
    folder=$1/java result=$2
    shift 2
    if [ "$1" = load ]; then set -- load a; fi
    action=-t
    [ "$1" != load ] || action=-load
    config="create,cache_size=${cache}M,session_max=1000,eviction=(threads_min=4,threads_max=4),statistics=(fast)"
    config="$config,log=(enabled=true,archive=true,file_max=100MB),checkpoint=(wait=60)"
    # A process of its own: with a second one a server would have the files.
    [ $action != -load ] || on mkdir -p "$folder"
    # shellcheck disable=SC2046
    on java -Djava.library.path="$work/java" \
        -cp "$work/java:$work/java/*:/usr/share/java/wiredtiger.jar" site.ycsb.Client $action -db YcsbWiredTiger \
        -threads "$threads" -p workload=site.ycsb.workloads.CoreWorkload -p recordcount="$records" \
        -p operationcount=1000000000 $([ $action = -load ] || echo "-p maxexecutiontime=$seconds") \
        $(properties "$2") -p maxscanlength=100 -p scanlengthdistribution=uniform -p measurementtype=hdrhistogram \
        -p hdrhistogram.percentiles=50,95,99,99.9 -p wiredtiger.folder="$folder" -p wiredtiger.config="$config" \
        -p wiredtiger.warm="$([ $action = -load ] && echo false || echo true)"
}

# ---- the runs ------------------------------------------------------------------------------------

side=
# Runs a program where this side's files are.
on() {
    rm -f "$work/stats"
    if [ "$side" = unvme ]; then
        set -- "$unvme" run --cache "$pages" --dir "$work/ours=$device" --stats "$work/stats" -- "$@"
    fi
    "$@"
}

# run SIDE NAME PHASE ...
run() {
    side=$1 result=$work/results/$1.$2
    shift 2
    folder=$kernel
    [ "$side" = kernel ] || folder=$work/ours
    "generate_$generator" "$folder" "$result" "$@" >"$work/output" 2>&1 || fail "$* has failed, $side"
    cp "$work/output" "$result.txt"
    [ "$side" = kernel ] || grep -q '"opened":[1-9]' "$work/stats" 2>/dev/null || fail 'our file system was not used'
}

"prepare_$generator"
for side in kernel unvme; do
    echo "$me: loading $records records, $side" >&2
    run $side load.0 load
done
round=1
while [ "$round" -le "$rounds" ]; do
    order='kernel unvme'
    [ $((round % 2)) -eq 1 ] || order='unvme kernel'
    for workload in $(echo "$workloads" | sed 's/./& /g'); do
        for side in $order; do
            echo "$me: round $round of $rounds, workload $workload, $side" >&2
            run "$side" "$workload.$round" warm "$workload"
        done
    done
    round=$((round + 1))
done
{
    condition() { printf '%s\t%s\n' "$@"; }
    condition generator "$(if [ "$generator" = own ]; then echo 'ycsb_wt, WiredTiger 11.3.1'; else echo 'YCSB 0.17.0, WiredTiger 3.2.1'; fi)"
    condition records "$records of 1000 bytes"
    condition cache "$cache MiB, of WiredTiger"
    condition threads "$threads"
    condition measurements "$rounds of $seconds s on each side, in turn, each behind a walk over all records"
    condition "kernel's side" "$(if [ -n "$mounted" ]; then echo 'ext4 on a loop device over a file in tmpfs'; else echo "$kernel"; fi)"
    condition 'our side' "$device, a page cache of $pages"
    condition machine "$(nproc) processors, Linux $(uname -r)"
} >"$work/results/conditions"
python3 "$here/report.py" "$work/results" "$report" ${json:+"$json"}

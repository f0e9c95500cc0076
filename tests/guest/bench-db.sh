#!/bin/bash
# bench-db.sh - in the guest: databases as they are on the first NVMe controller, on the kernel's driver with
# ext4 and by `unvme run` at vfio-pci, in turns.
#
#   bench-db.sh timed UNVME WIREDTIGER YCSB ROUNDS RECORDS SECONDS
#   bench-db.sh counted UNVME WIREDTIGER YCSB ROUNDS RECORDS MARK
#
# WIREDTIGER is what scripts/wiredtiger.sh has built, YCSB the generator of share/unvme/ycsb. The controller
# has two namespaces of one size: ext4 is on the first, ours on the second. Each database is made once, with
# RECORDS records. A file system's memory goes with the drive: ext4 is unmounted, our process ends.
#
# Timed runs are of SECONDS, and each leaves ROUND.WHAT.SIDE.json in the current directory. Counted ones are
# of FEW and of MANY operations, whose difference is what the operations between take: MARK, which is mark.c,
# passes markers of the plugin instructions.c before and behind each. Their paths are 0 and 1 for wtperf on
# the kernel's side, 2 and 3 on ours, and 4 to 7 for ycsb.
set -u
die() { echo "bench-db: $*" >&2; exit 1; }
# shellcheck source-path=SCRIPTDIR source=drive.sh
. "$(dirname "$0")/drive.sh"
what=$1 unvme=$2 wiredtiger=$3 ycsb=$4 rounds=$5 records=$6 seconds=$7 mark=$7
FEW=1000 MANY=11000
kernel=/tmp/kernel ours=/tmp/ours monitor=/tmp/monitor
export UNVME_HOME=/tmp/unvme

# disk: the block device of the first namespace, when it is there; the kernel numbers them as it finds them.
disk() {
  for _ in $(seq 100); do
    for nsid in /sys/block/nvme*n*/nsid; do
      if [ "$(cat "$nsid" 2> /dev/null)" = 1 ]; then
        sleep 0.2
        echo /dev/"$(basename "$(dirname "$nsid")")"
        return
      fi
    done
    sleep 0.05
  done
  die "no first namespace"
}

# at SIDE COMMAND...: a program with $folder on that side; what it says is of interest when it fails.
at() {
  if [ "$1" = ours ]; then shift; set -- "$unvme" run --nsid 2 --dir "$ours=$address" -- "$@"; else shift; fi
  "$@" > /tmp/said 2>&1 || { cat /tmp/said >&2; die "$*"; }
}

# take SIDE: the drive goes there, and $folder is the folder on it.
take() {
  if [ "$1" = kernel ]; then
    give "$address" nvme
    mount "$(disk)" $kernel || die "mount"
    folder=$kernel
  else
    umount $kernel || die "umount"
    give "$address" vfio-pci
    folder=$ours
  fi
}

# One size for all: a log of 100 MB, which is the default, is read whole whenever a database is opened.
LOG=file_max=16M

# wtperf SIDE RUNNER OPTIONS: as the row preload.wtperf has it.
wtperf() {
  local cache=$((records / 62500))
  at "$1" "$wiredtiger/bin/wtperf" -h "$folder/wtperf" -m $monitor -O "$wiredtiger/runners/500m-btree-$2.wtperf" \
    -o "icount=$records,compression=none,report_interval=1,sample_interval=1,$3" \
    -C "cache_size=$((cache > 5 ? cache : 5))M,checkpoint=(wait=10),log=(enabled,$LOG)"
}

# ycsb SIDE OPTION... PHASE...: as the row preload.ycsb_a has it, with a tenth of the records, which are
# larger.
ycsb() {
  local side=$1 cache=$((records / 100000)); shift
  at "$side" "$ycsb" -r $((records / 10)) -c $((cache > 1 ? cache : 1)) -k 10 -j $monitor/ycsb.json \
    -C "log=(enabled=true,remove=true,path=journal,$LOG)" "$@"
}

load() {
  at "$1" mkdir "$folder/wtperf"
  wtperf "$1" populate populate_threads=2
  at "$1" mkdir "$folder/ycsb"
  ycsb "$1" -s 1 "$folder/ycsb" load
}

timed() {
  wtperf "$1" 50r50u \
    "run_time=$seconds,warmup=$seconds,threads=((count=2,reads=1),(count=2,updates=1)),close_conn=true"
  # What was read and what was updated: `Executed 123 read operations (52%) 61 ops/sec`.
  awk '/^Executed .* ops\/sec$/ { rate += $(NF - 1) } END { printf "{\"phases\": [{\"per_second\": %d}]}\n", rate }' \
    $monitor/test.stat > "$round.wtperf.$1.json"
  ycsb "$1" -s "$seconds" "$folder/ycsb" warm a
  cp $monitor/ycsb.json "$round.ycsb_a.$1.json" || die "no results of ycsb_wt"
}

# between PATH COMMAND...: steps of instructions.c, without a pause.
between() {
  local path=$1; shift
  "$mark" $((8 * path)) || die "mark"
  "$@"
  "$mark" $((8 * path + 1)) $((8 * path + 2)) $((8 * path + 3)) || die "mark"
}

# Each thread reads and updates, half and half: who is how often scheduled is not measured.
counted() {
  local path=0 operations
  [ "$1" = kernel ] || path=2
  for operations in $FEW $MANY; do
    between $path wtperf "$1" 50r50u \
      "run_ops=$operations,run_time=0,warmup=0,threads=((count=4,reads=1,updates=1)),close_conn=true"
    between $((path + 4)) ycsb "$1" -n "$operations" "$folder/ycsb" warm a
    path=$((path + 1))
  done
}

case $what in timed | counted) ;; *) die "$what: unknown" ;; esac
modprobe -a nvme vfio-pci ext4 || die "modules"
ulimit -l unlimited
mkdir $kernel $ours $monitor
address=$(first)
give "$address" vfio-pci
"$unvme" fs mkfs --force -n 2 "$address" > /dev/null || die "unvme fs mkfs"
give "$address" nvme
mkfs.ext4 -q "$(disk)" || die "mkfs.ext4"
for side in kernel ours; do take $side; load $side; done
# Round 0 is not counted: programs are read over 9p then. One round alone shows only that everything runs.
for round in $(seq $((rounds > 1 ? 0 : 1)) "$rounds"); do
  for side in kernel ours; do take $side; "$what" $side; done
done

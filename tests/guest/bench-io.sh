#!/bin/bash
# bench-io.sh - in the guest: the measurements of bench-vm.sh. Each leaves ROUND.WHAT.json in the current
# directory.
#
#   bench-io.sh drive UNVME ROUNDS SECONDS        the first NVMe controller: fio and our passthrough on the
#                                                 kernel's driver, then our VFIO path, in turns
#   bench-io.sh instructions PROGRAM READS        PROGRAM drives the first controller through VFIO
#   bench-io.sh kernel ROUNDS SECONDS             fio on all controllers in turns, each by the end of its
#                                                 serial number
set -u
die() { echo "bench-io: $*" >&2; exit 1; }
# shellcheck source-path=SCRIPTDIR source=drive.sh
. "$(dirname "$0")/drive.sh"

# appear FILE: waits for a device node.
appear() {
  for _ in $(seq 100); do [ -e "$1" ] && sleep 0.2 && return; sleep 0.05; done
  die "no $1"
}

# fio_reads WHAT ENGINE DEPTH DEVICE OPTION...
fio_reads() {
  what=$1 engine=$2 depth=$3 device=$4; shift 4
  fio --name=reads --filename="$device" --rw=randread --bs=4k --ioengine="$engine" --iodepth="$depth" "$@" \
    --time_based --runtime="$seconds" --ramp_time=0.2 --output-format=json --output="$round.$what.json" || die "fio: $what"
}

# our_reads WHAT DEPTH DEVICE
our_reads() {
  "$unvme" perf -r "$3" -w randread -o 4096 -q "$2" -t "$seconds" --warmup 0.2 --no-prefill --output json \
    > "$round.$1.json" || die "unvme perf: $1"
}

drive() {
  unvme=$1 rounds=$2 seconds=$3
  modprobe -a nvme vfio-pci || die "modules"
  ulimit -l unlimited
  address=$(first)
  for round in $(seq 0 "$rounds"); do
    give "$address" nvme; appear /dev/nvme0n1; appear /dev/ng0n1
    fio_reads fio.qd1 io_uring 1 /dev/nvme0n1 --direct=1
    fio_reads fio.passthrough io_uring_cmd 32 /dev/ng0n1 --cmd_type=nvme --fixedbufs=1
    our_reads ours.passthrough 32 kernel:/dev/ng0n1
    give "$address" vfio-pci
    our_reads ours.qd1 1 "$address"
    our_reads ours.qd32 32 "$address"
  done
}

instructions() {
  modprobe vfio-pci || die "modules"
  ulimit -l unlimited
  address=$(first)
  give "$address" vfio-pci
  "$1" "$address" "$2"
}

kernel() {
  rounds=$1 seconds=$2
  modprobe nvme || die "modules"
  appear /dev/nvme0n1; appear /dev/nvme1n1
  for round in $(seq 0 "$rounds"); do
    for depth in 1 32; do
      for controller in /sys/class/nvme/nvme*; do
        case $(cat "$controller/serial") in QEMU*) side=qemu ;; *) side=ours ;; esac
        fio_reads "kernel.$side.qd$depth" io_uring "$depth" "/dev/$(basename "$controller")n1" --direct=1
      done
    done
  done
}

# Round 0 is not counted: programs are read over 9p then.
what=${1:?what to measure}; shift
case $what in drive | instructions | kernel) "$what" "$@" ;; *) die "$what: unknown" ;; esac

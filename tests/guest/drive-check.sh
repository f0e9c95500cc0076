#!/bin/bash
# drive-check.sh - in the guest: our driver on QEMU's NVMe controllers, taken from the kernel and given back.
#
#   drive-check.sh DRIVER UNVME [short]    DRIVER is vfio-pci or uio_pci_generic, UNVME our program; short
#                                          leaves out what takes long: sweeps, resets under load, several
#                                          controllers and processes
#
# Wants the controllers of part_vfio in parts.sh: at 0000:01:00.0 namespaces of 512 and of 4096 bytes, at
# 0000:02:00.0 one of 512, at 0000:03:00.0 a zoned one. Their data is destroyed. Reported as check.sh says;
# guest.sh -V watches from the other side that no register, no command and no DMA was wrong. $first, $second,
# $zoned and $unvme have no blanks in them.
# shellcheck disable=SC2317,SC2086
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
driver=$1 unvme=/tmp/unvme-program
first=0000:01:00.0 second=0000:02:00.0 zoned=0000:03:00.0
# Executed from memory: it starts often.
cp "$2" $unvme
export UNVME_HOME=/tmp/unvme
MIB=1048576

controller() { basename "$(echo /sys/bus/pci/devices/"$1"/nvme/nvme*)"; }
# node ADDRESS NSID: its block device; the kernel numbers them in the order in which it finds them.
node() {
  local nsid
  for nsid in /sys/block/"$(controller "$1")"n*/nsid; do
    [ "$(cat "$nsid")" != "$2" ] || echo /dev/"$(basename "$(dirname "$nsid")")"
  done
}
bound() { [ "$(basename "$(readlink /sys/bus/pci/devices/"$1"/driver)")" = "$2" ]; }
perf() { $unvme perf --force "$@"; }

# What the kernel's driver and nvme-cli read of the drive is what we have to read.
kernel_reads() {
  local nvme; nvme=/dev/$(controller $first)
  nvme id-ctrl $nvme -b > /tmp/id-ctrl
  nvme id-ns $nvme -n 1 -b > /tmp/id-ns-1
  nvme id-ns $nvme -n 2 -b > /tmp/id-ns-2
  head -c 4M /dev/urandom > /tmp/kernel-data
  dd if=/tmp/kernel-data of="$(node $first 1)" bs=1M seek=64 oflag=direct
  sync
}

take_over() {
  $unvme setup config $first $second $zoned --driver $driver
  bound $first $driver
  bound $second $driver
  $unvme setup status
  $unvme list
}

identify() {
  $unvme id-ctrl $first -b | cmp - /tmp/id-ctrl
  $unvme id-ns $first -n 1 -b | cmp - /tmp/id-ns-1
  $unvme id-ns $first -n 2 -b | cmp - /tmp/id-ns-2
  [ "$($unvme id-ctrl $first --output json | python3 -c 'import json, sys; print(json.load(sys.stdin)["sn"].strip())')" = GUEST0 ]
  $unvme list-ns $first | grep -c 0x | grep -x 2
  $unvme id-ctrl $second | grep GUEST1
}

logs_and_features() {
  $unvme smart-log $first
  $unvme fw-log $first
  $unvme error-log $first
  $unvme get-feature $first -f 7
  $unvme get-feature $first -f 4 | grep -i 'value.*157$'
  $unvme set-feature $first -f 4 -v 0x150
  $unvme get-feature $first -f 4 | grep -i 'value.*150$'
  $unvme set-feature $first -f 4 -v 0x157
}

# commands NSID BLOCK: every NVM command. 8 MiB from the first, the last block, and transfers that need PRP
# lists.
commands() {
  local nsid=$1 block=$2 at count last
  at=$((8 * MIB / block)) count=$((2 * MIB / block)) last=$((1024 * MIB / block - 1))
  head -c $((2 * MIB)) /dev/urandom > /tmp/data
  $unvme write $first -n $nsid -s $at -z 2M -d /tmp/data --force
  $unvme read $first -n $nsid -s $at -z 2M | cmp - /tmp/data
  $unvme compare $first -n $nsid -s $at -z 2M -d /tmp/data
  refused 'Compare Failure' $unvme compare $first -n $nsid -s $((at + 1)) -z $((2 * MIB - block)) -d /tmp/data
  $unvme verify $first -n $nsid -s $at -c $((count / 8 - 1))
  head -c $block /dev/urandom > /tmp/block
  $unvme write $first -n $nsid -s $last -z $block -d /tmp/block --force-unit-access --force
  $unvme flush $first -n $nsid
  $unvme read $first -n $nsid -s $last -z $block | cmp - /tmp/block
  $unvme write-zeroes $first -n $nsid -s $at -c $((count / 8 - 1)) --force
  $unvme read $first -n $nsid -s $at -z $((MIB / 4)) | cmp - <(head -c $((MIB / 4)) /dev/zero)
  $unvme read $first -n $nsid -s $((at + count / 8)) -z $block | cmp - <(tail -c +$((MIB / 4 + 1)) /tmp/data | head -c $block)
  $unvme dsm $first -n $nsid -d -s $at,$((at + 64)) -b 16,32 --force
  $unvme read $first -n $nsid -s $at -z $((16 * block)) > /tmp/deallocated
  refused '' $unvme read $first -n $nsid -s $((last + 1)) -z $block
  refused '' $unvme read $first -n $nsid -s $last -z $((2 * block))
}

# What the kernel wrote before is what we read.
kernel_data() { $unvme read $first -n 1 -s $((64 * MIB / 512)) -z 4M | cmp - /tmp/kernel-data; }

verified_perf() {
  perf -r $first -n 1 -w randwrite -q 32 -o 4096 -t 1 --range 16M --verify
  perf -r $first -n 1 -w randrw -q 16 -o 4096 -t 1 --range 16M --verify --prefill
  perf -r $first -n 2 -w rw -q 4 -o 128K -t 1 --range 64M --verify --prefill
  perf -r $first -n 1 -w randread -q 1 -o 512 -t 0.5 --range 16M -L
}

one_verified_perf() { perf -r $first -n 1 -w randrw -q 16 -o 4096 -t 0.5 --range 4M --verify --prefill; }

# The second controller goes back to the kernel, and we use it through io_uring passthrough and as a block
# device.
beside_the_kernel() {
  local name
  $unvme setup reset $second
  until_so 10 test -b "/dev/$(controller $second)n1"
  name=$(controller $second)
  for way in $name ng${name#nvme}n1 ${name}n1; do
    $unvme write kernel:/dev/$way -n 1 -s 4096 -z 256K -d /tmp/kernel-data --force
    dd if=/dev/${name}n1 bs=512 skip=4096 count=512 iflag=direct | cmp - <(head -c 256K /tmp/kernel-data)
    dd if=/tmp/data of=/dev/${name}n1 bs=512 seek=4096 count=512 oflag=direct
    $unvme read kernel:/dev/$way -n 1 -s 4096 -z 256K | cmp - <(head -c 256K /tmp/data)
    perf -r kernel:/dev/$way -n 1 -w randrw -q 8 -o 4096 -t 0.5 --range 4M --verify --prefill
  done
}

matrix() {
  perf -r $first -n 1 --matrix threads=1,2 depth=1,8,32 -o 4096 -w randread -t 0.2 --range 16M --json /tmp/matrix.json
  python3 -c 'import json; assert len(json.load(open("/tmp/matrix.json"))["points"]) == 6'
}

both_namespaces() { perf -r $first -w randrw -q 8 -o 4096 -t 1 --range 16M --verify --prefill; }
two_controllers() { perf -r $first -r $second -n 1 -c 0-1 -w randrw -q 16 -o 4096 -t 2 --range 16M --verify --prefill; }

# Its completion threads sleep until an interrupt, where the function has vectors: with UIO they poll.
interrupt_driven() {
  local counted
  : > /tmp/interrupts
  $unvme kv_perf -j "$(dirname "$0")"/../../share/unvme/lba_sdk_config.json -d $second -m 0 -c 1 -s 0 -q 2 -a 32 -n 20000 -v 4096 \
    -w -x > /tmp/kv_perf.out &
  # The lines go with the program.
  while kill -0 $! && sleep 0.1; do grep "vfio-msix.*$second" /proc/interrupts >> /tmp/interrupts || :; done
  wait $!
  grep SUCCESS /tmp/kv_perf.out
  sort -u /tmp/interrupts | tail -n 20
  counted=$(awk '/vfio-msix\[[1-9]/ { sum += $2 + $3 } END { print sum + 0 }' /tmp/interrupts)
  case $driver in vfio-pci) [ "$counted" -gt 0 ] ;; esac
}

# Other processes use a drive that somebody has open.
several_processes() {
  perf -r $first -n 1 -w randread -q 8 -o 4096 -t 6 --range 16M > /tmp/perf.out &
  until_so 10 $unvme smart-log $first
  $unvme read $first -n 1 -s $((64 * MIB / 512)) -z 4M | cmp - /tmp/kernel-data
  kill -0 $!
  wait $!
}

# A reset by another process, in the middle of it: what was lost is told or sent again, and the drive is as
# good as ever.
reset_under_load() {
  local io status=0
  perf -r $second -n 1 -w randrw -q 32 -o 4096 -t 6 --range 16M --verify --prefill > /tmp/perf.out 2>&1 &
  io=$!
  until_so 10 $unvme smart-log $second
  sleep 3
  $unvme reset $second
  wait $io || status=$?
  cat /tmp/perf.out
  [ $status = 0 ] || [ $status = 1 ]
  perf -r $second -n 1 -w randrw -q 32 -o 4096 -t 1 --range 16M --verify --prefill
}

# A function level reset from under the driver: all commands are lost at once.
function_reset() {
  local io status=0
  perf -r $second -n 1 -w randread -q 32 -o 4096 -t 8 --range 16M > /tmp/perf.out 2>&1 &
  io=$!
  sleep 5
  echo 1 > /sys/bus/pci/devices/$second/reset
  wait $io || status=$?
  cat /tmp/perf.out
  [ $status -le 4 ]
  perf -r $second -n 1 -w randrw -q 32 -o 4096 -t 1 --range 16M --verify --prefill
}

# The controller answers; its namespace is of no use to us, and every command says so.
zoned_refused() {
  $unvme id-ctrl $zoned | grep GUEST2
  refused 'is zoned' $unvme read $zoned -n 1 -s 0 -z 4096
  refused 'is zoned' perf -r $zoned -n 1 -w randread -t 0.2
}

mistakes() {
  refused 0000:7f:00.0 $unvme id-ctrl 0000:7f:00.0
  refused 0000:00:1f.2 $unvme id-ctrl 0000:00:1f.2
}

give_back() {
  $unvme setup reset
  bound $first nvme
  until_so 10 test -b "/dev/$(controller $first)n1"
  until_so 10 test -b "/dev/$(controller $first)n2"
}

# What we wrote is what the kernel reads.
kernel_finds() {
  cmp -n $((4 * MIB)) -i $((64 * MIB)):0 "$(node $first 1)" /tmp/kernel-data
  dd if="$(node $first 2)" bs=4096 skip=$((1024 * MIB / 4096 - 1)) iflag=direct | cmp - /tmp/block
  ! dmesg | grep -iE 'nvme.*(timeout|abort|error|failed)|I/O error'
}

modprobe nvme
for address in $first $second $zoned; do until_so 10 test -e /sys/bus/pci/devices/$address/nvme; done
until_so 10 test -b "/dev/$(controller $first)n2"
check 'what the kernel reads' kernel_reads
check 'taken over' take_over
check identify identify
check 'what the kernel wrote' kernel_data
check 'logs and features' logs_and_features
check 'commands, blocks of 512' commands 1 512
check 'commands, blocks of 4096' commands 2 4096
if [ "${3:-}" = short ]; then
  check 'verified I/O' one_verified_perf
  check 'beside the kernel' beside_the_kernel
else
  check 'verified I/O' verified_perf
  check 'matrix' matrix
  check 'two namespaces' both_namespaces
  check 'two controllers' two_controllers
  check 'interrupts' interrupt_driven
  # Without an IOMMU nothing keeps processes apart: a drive on UIO is not shared.
  case $driver in vfio-pci) check 'several processes' several_processes ;; esac
  check 'reset under load' reset_under_load
  check 'function level reset under load' function_reset
fi
check 'a zoned namespace' zoned_refused
check 'mistakes' mistakes
check 'given back' give_back
check 'what the kernel finds' kernel_finds
exit "$failed"

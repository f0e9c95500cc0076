#!/bin/bash
# real-drives-check.sh - in the guest: the commands of docs/real-drives.md, one after the other, as a new user
# types them.
#
#   real-drives-check.sh UNVME     a guest with an IOMMU (-i), 64 or more huge pages (-H), and a controller at
#                                  0000:01:00.0; with iommu=pt on its command line the way through UIO is
#                                  gone, too
#
# What takes root is done as root, all else as the user nobody. Data is destroyed. Reported as check.sh says.
# shellcheck disable=SC2317,SC2086,SC2046
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
unvme=$1
drive=0000:01:00.0
export UNVME_HOME=/tmp/unvme-nobody

driver() { basename "$(readlink /sys/bus/pci/devices/$drive/driver)"; }
node() { echo /dev/"$(basename "$(echo /sys/bus/pci/devices/$drive/nvme/nvme*)")"; }
# user COMMAND...: as somebody without any privilege, whose limit of locked memory is that of root's shell.
user() { setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --inh-caps=-all "$@"; }
perf() { "$@" -q 32 -o 4096 -t 1 | grep IOPS; }

find_the_drive() {
  lspci -D -d ::0108 | grep $drive
  user $unvme setup status | grep "$drive .*nvme"
}

dry_run() {
  user $unvme setup config $drive --dry-run > /tmp/steps
  grep -q vfio-pci /tmp/steps
  [ "$(driver)" = nvme ]
}

# The commands of a dry run are what config would do.
dry_run_by_hand() {
  $unvme setup config $drive --dry-run > /tmp/steps
  sh -e /tmp/steps
  [ "$(driver)" = vfio-pci ]
  $unvme setup reset $drive --dry-run > /tmp/steps
  sh -e /tmp/steps
  [ "$(driver)" = nvme ]
}

take_over() {
  $unvme setup config $drive --user nobody --limits nobody
  [ "$(driver)" = vfio-pci ]
  ulimit -l unlimited
  user $unvme id-ctrl $drive | grep GUEST0
  perf user $unvme perf -r $drive -w randread
  perf user $unvme perf -r $drive --force -w randwrite --verify
}

shared_meanwhile() {
  ulimit -l unlimited
  user $unvme perf -r $drive -q 8 -o 4096 -w randread -t 6 > /tmp/perf.out &
  sleep 3
  user $unvme smart-log $drive
  user $unvme id-ctrl $drive | grep GUEST0
  perf user $unvme perf -r $drive -w randread
  wait $!
  grep IOPS /tmp/perf.out
}

firmware_slots() {
  ulimit -l unlimited
  user $unvme fw-log $drive
}

give_back() {
  $unvme setup reset $drive
  [ "$(driver)" = nvme ]
  until_so 20 test -b $(node)n1
}

uio() {
  case "$(cat /proc/cmdline)" in *iommu=pt*) ;; *) return 0 ;; esac
  $unvme setup config $drive --driver uio_pci_generic --hugepages 64
  perf $unvme perf -r $drive -w randread
  $unvme setup reset $drive --hugepages 0
  [ "$(driver)" = nvme ]
  until_so 20 test -b $(node)n1
}

beside_the_kernel() {
  local nvme ng
  nvme=$(node) ng=$(node | sed s/nvme/ng/)n1
  $unvme setup config $drive --driver nvme --user nobody
  perf user $unvme perf -r kernel:$ng -w randread
  user $unvme id-ns kernel:$ng -n 1
  $unvme smart-log kernel:$nvme
  $unvme fw-log kernel:$nvme
  perf $unvme perf -r kernel:${nvme}n1 -w randread
}

# Two of 256 MiB, by a table written by hand: the guest has no program for it.
two_partitions() {
  python3 - $1 <<- 'END'
	import struct, sys
	entry = lambda first, blocks: struct.pack("<B3sB3sII", 0, b"", 0x83, b"", first, blocks)
	table = bytes(446) + entry(2048, 524288) + entry(526336, 524288) + bytes(32) + b"\x55\xaa"
	open(sys.argv[1], "r+b").write(table)
	END
  blockdev --rereadpt $1
}

# A file system on one partition lives on while another partition is measured.
partitions() {
  local disk; disk=$(node)n1
  two_partitions $disk
  until_so 10 test -b ${disk}p2
  mkfs.ext4 -q ${disk}p1
  mkdir -p /tmp/mnt
  mount ${disk}p1 /tmp/mnt
  head -c 64M /dev/urandom > /tmp/mnt/file
  sum=$(md5sum < /tmp/mnt/file)
  $unvme perf -r kernel:${disk}p2 --force -q 32 -o 4096 -w randwrite -t 1 --verify | grep IOPS
  $unvme perf -r kernel:/tmp/mnt/file -q 8 -o 4096 -w randread -t 1 | grep IOPS
  $unvme read kernel:/tmp/mnt/file -s 0 -z 4096 | cmp - <(head -c 4096 /tmp/mnt/file)
  refused 'umount /tmp/mnt' $unvme setup config $drive
  umount /tmp/mnt
  fsck.ext4 -fn ${disk}p1
  mount ${disk}p1 /tmp/mnt
  [ "$(md5sum < /tmp/mnt/file)" = "$sum" ]
  umount /tmp/mnt
  wipefs -qa ${disk}p1 $disk
}

exchange() {
  $unvme setup config $drive --user nobody
  $unvme setup reset $drive
  echo 1 > /sys/bus/pci/devices/$drive/remove
  refused 'no such device' $unvme id-ctrl $drive
  echo 1 > /sys/bus/pci/rescan
  until_so 20 test -b $(node)n1
  user $unvme setup status | grep $drive
  $unvme setup config $drive --user nobody
  [ "$(driver)" = vfio-pci ]
  $unvme id-ctrl $drive | grep GUEST0
  $unvme setup reset $drive
}

virtual_slot() {
  user $unvme device create 0000:02:00.0 --size 64M
  user $unvme device unplug 0000:02:00.0 | grep -x 'unplugged 0000:02:00.0'
  refused '0000:02:00.0 is unplugged; plug it with: unvme device plug 0000:02:00.0' user $unvme id-ctrl 0000:02:00.0
  user $unvme device plug 0000:02:00.0 | grep -x 'plugged 0000:02:00.0'
  user $unvme id-ctrl 0000:02:00.0
  user $unvme device remove 0000:02:00.0
}

modprobe -a nvme ext4
until_so 20 test -b /dev/nvme0n1
install -d -o nobody $UNVME_HOME
check 'the drive is found' find_the_drive
check 'a dry run changes nothing' dry_run
check 'the commands of a dry run do it' dry_run_by_hand
check 'taken over by a user' take_over
check 'several processes' shared_meanwhile
check 'firmware slots' firmware_slots
check 'given back to the kernel' give_back
check 'without an IOMMU' uio
check 'beside the kernel' beside_the_kernel
check 'partitions and files' partitions
check 'exchanged' exchange
check 'a virtual slot unplugged and plugged' virtual_slot
exit "$failed"

#!/bin/bash
# kernel-check.sh - in the guest: our commands beside the kernel's NVMe driver, and nvme-cli's on the same
# drive.
#
#   kernel-check.sh UNVME       a drive of two namespaces, 4096 and 512 bytes, with storage; their data is
#                               destroyed
#   kernel-check.sh UNVME fdp   a drive with Flexible Data Placement (guest.sh -n fdp)
#   kernel-check.sh UNVME kv    a drive whose namespace 1 holds pairs and is empty (unvme serve mem:kv:256M)
#
# Reported as check.sh says. For the first: guest.sh run -n
# plain,logical_block_size=4096,physical_block_size=4096 -s 256M with a second namespace, as part_kernel in
# parts.sh has it. $unvme has no blanks in it.
# shellcheck disable=SC2317,SC2086
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
unvme=$1 kind=${2:-block}
export UNVME_HOME=/tmp/unvme
NOBODY="setpriv --reuid 65534 --regid 65534 --clear-groups"

# What one side wrote the other one reads, by every way there is.
written_here_and_there() {
  head -c 512K /dev/urandom > /tmp/data
  local at=4096 way
  for way in /dev/nvme0 /dev/ng0n1 /dev/nvme0n1; do
    at=$((at + 1024))
    $unvme write kernel:$way -n 1 -s $at -z 512K -d /tmp/data --force
    nvme read /dev/ng0n1 -n 1 -s $at -c 127 -z 524288 -d /tmp/theirs
    cmp /tmp/data /tmp/theirs
    dd if=/dev/nvme0n1 bs=4096 skip=$at count=128 iflag=direct | cmp - /tmp/data
  done
  nvme write /dev/ng0n1 -n 1 -s 9000 -c 127 -z 524288 -d /tmp/data
  for way in /dev/nvme0 /dev/ng0n1 /dev/nvme0n1; do
    $unvme read kernel:$way -n 1 -s 9000 -z 512K | cmp - /tmp/data
    $unvme compare kernel:$way -n 1 -s 9000 -z 512K -d /tmp/data
    refused 'Compare Failure' $unvme compare kernel:$way -n 1 -s 9001 -z 4096 -d /tmp/data
    $unvme verify kernel:$way -n 1 -s 9000 -c 127
    $unvme flush kernel:$way -n 1
  done
}

# zeroed WAY: Write Zeroes, and Dataset Management, which may leave the data as it is.
zeroed() {
  $unvme write kernel:$1 -n 1 -s 9000 -z 512K -d /tmp/data --force
  $unvme write-zeroes kernel:$1 -n 1 -s 9008 -c 7 --force
  $unvme read kernel:$1 -n 1 -s 9008 -z 32K | cmp - <(head -c 32K /dev/zero)
  $unvme read kernel:$1 -n 1 -s 9016 -z 4096 | cmp - <(tail -c +65537 /tmp/data | head -c 4096)
  $unvme dsm kernel:$1 -n 1 -d -s 9016,9024 -b 2,4 --force
  $unvme read kernel:$1 -n 1 -s 9018 -z 4096 | cmp - <(tail -c +73729 /tmp/data | head -c 4096)
}

identified() {
  $unvme id-ctrl kernel:/dev/nvme0 -b | cmp - <(nvme id-ctrl /dev/nvme0 -b)
  $unvme id-ns kernel:/dev/ng0n1 -n 1 -b | cmp - <(nvme id-ns /dev/nvme0 -n 1 -b)
  $unvme smart-log kernel:/dev/nvme0
  [ "$($unvme list-ns kernel:/dev/nvme0 | grep -c 0x)" = 2 ]
  [ "$($unvme list-ns kernel:/dev/ng0n2 | grep -c 0x)" = 1 ]
  refused 'namespace 2 alone' $unvme id-ns kernel:/dev/ng0n2 -n 1
}

perf_by() { $unvme perf --force -r kernel:$1 -n $2 -w randrw -q 32 -o $3 -t 1 --range 16M --verify --prefill; }

namespaces_of_both_sizes() {
  perf_by /dev/nvme0 1 4096
  perf_by /dev/nvme0 2 512
  perf_by /dev/ng0n2 2 4096
  perf_by /dev/nvme0n1 1 4096
}

# A file system lives on the drive while we use the other namespace, and a file on it.
file_system_lives_on() {
  modprobe ext4
  mkfs.ext4 -q -F /dev/nvme0n1
  mkdir -p /tmp/mnt
  mount /dev/nvme0n1 /tmp/mnt
  perf_by /dev/ng0n2 2 4096
  truncate -s 64M /tmp/mnt/disk
  $unvme perf --force -r kernel:/tmp/mnt/disk -w randrw -q 8 -o 4096 -t 1 --verify --prefill
  refused 'Write Protected' $unvme write kernel:/dev/nvme0n1 -s 0 -z 4096 -d /tmp/data --force
  $unvme read kernel:/dev/nvme0n1 -s 0 -z 4096 > /dev/null
  umount /tmp/mnt
  fsck.ext4 -f -n /dev/nvme0n1
}

reset_by() {
  $unvme reset kernel:/dev/nvme0
  dmesg | grep 'nvme0: resetting controller'
  $unvme read kernel:/dev/ng0n1 -n 1 -s 0 -z 4096 > /dev/null
}

# Each says what is missing, and what helps.
refusals() {
  refused 'modprobe nvme' $unvme id-ctrl kernel:/dev/ng9n9
  : > /tmp/empty
  refused 'truncate -s 1G' $unvme id-ctrl kernel:/tmp/empty
  chmod 600 /dev/ng0n1
  refused 'setfacl' $NOBODY $unvme id-ctrl kernel:/dev/ng0n1
  chmod 444 /dev/ng0n1
  $NOBODY $unvme read kernel:/dev/ng0n1 -s 9000 -z 4096 > /dev/null
  refused 'CAP_SYS_ADMIN' $NOBODY $unvme write kernel:/dev/ng0n1 -s 9000 -z 4096 -d /tmp/data --force
  chmod 600 /dev/ng0n1
  echo 2 > /proc/sys/kernel/io_uring_disabled
  refused 'sysctl kernel.io_uring_disabled=0' $unvme read kernel:/dev/ng0n1 -s 0 -z 4096
  echo 0 > /proc/sys/kernel/io_uring_disabled
}

# ruamw COMMAND...: what is left of each handle's reclaim unit, as either program prints it.
ruamw() { "$@" | grep -o 'RUAMW): [0-9]*\|RUAMW.*: [0-9]*' | grep -o '[0-9]*$'; }

# The numbers of both programs are the same.
fdp_numbers() {
  $unvme perf --force -r kernel:/dev/ng0n1 -w randwrite -q 4 -o 64K -t 1 --range 16M --fdp-pid 0-2
  head -c 4096 /dev/urandom > /tmp/data
  $unvme write kernel:/dev/ng0n1 -s 0 -z 4096 -d /tmp/data -T 2 -S 3 --force
  $unvme fdp stats kernel:/dev/nvme0 --output json > /tmp/ours
  nvme fdp stats /dev/nvme0 -e 1 -o json > /tmp/theirs
  python3 - << 'PYTHON'
import json
ours, theirs = (json.load(open(path)) for path in ("/tmp/ours", "/tmp/theirs"))
numbers = lambda value: sorted(int(v) for v in value.values() if str(v).isdigit())
print(ours, theirs)
assert numbers(theirs) and set(numbers(theirs)) <= set(numbers(ours)), (ours, theirs)
PYTHON
  ruamw nvme fdp status /dev/ng0n1 -n 1 | grep -q .
  diff <(ruamw $unvme fdp status kernel:/dev/ng0n1 -n 1) <(ruamw nvme fdp status /dev/ng0n1 -n 1)
  $unvme fdp update kernel:/dev/ng0n1 -n 1 --pids 1
  diff <(ruamw $unvme fdp status kernel:/dev/ng0n1 -n 1) <(ruamw nvme fdp status /dev/ng0n1 -n 1)
  $unvme fdp configs kernel:/dev/nvme0
  $unvme fdp usage kernel:/dev/nvme0
}

# Pairs through the kernel, which knows nothing of them: nvme-cli lists what we stored.
pairs() {
  local way
  for way in /dev/ng0n1 /dev/nvme0; do
    head -c 100000 /dev/urandom > /tmp/value
    $unvme kv store --force kernel:$way linux --file /tmp/value
    $unvme kv retrieve kernel:$way linux | cmp - /tmp/value
    nvme io-passthru /dev/ng0n1 --namespace-id=1 --opcode=0x06 --cdw10=64 --data-len=64 --read --raw-binary > /tmp/keys
    [ "$(od -An -tx1 -N12 /tmp/keys | tr -d ' \n')" = 0100000005006c696e757800 ]
    $unvme kv list kernel:$way | grep linux
    $unvme kv exist kernel:$way linux
    $unvme kv delete --force kernel:$way linux
    refused 'not' $unvme kv retrieve kernel:$way linux
    refused '1 to 16 are possible' $unvme kv store --force kernel:$way a-key-of-more-than-16-bytes value
  done
}

modprobe nvme
for _ in $(seq 50); do [ -e /dev/ng0n1 ] && break; sleep 0.1; done
case $kind in
  fdp) check 'FDP: our numbers are those of nvme-cli' fdp_numbers ;;
  kv) check 'pairs are passed through the kernel' pairs ;;
  *)
    check 'identify and logs are those of nvme-cli' identified
    check 'what one side writes the other one reads' written_here_and_there
    for way in /dev/nvme0 /dev/ng0n1 /dev/nvme0n1; do check "zeroes and discards by $way" zeroed $way; done
    check 'verified I/O by every way' namespaces_of_both_sizes
    check 'a reset by the kernel' reset_by
    check 'refusals say what helps' refusals
    check 'a file system lives on' file_system_lives_on ;;
esac
exit "$failed"

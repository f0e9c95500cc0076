#!/bin/bash
# admin-check.sh - in the guest: does the controller do what nvme-cli and the kernel's own driver ask of it?
#
#   admin-check.sh                 all namespaces of /dev/nvme0 are destroyed
#   admin-check.sh fabrics         the same of a controller over a network, without what only PCI has
#
# Identify, log pages, features, the commands nvme-cli sends to a namespace, namespaces created, attached,
# formatted and deleted (the kernel hears of it by an asynchronous event), firmware, resets of every kind;
# reported as check.sh says. Each check is called by its name; $controller has no blanks in it.
# shellcheck disable=SC2317,SC2086
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
controller=/dev/nvme0 transport=${1:-pci} controllers=1
[ $transport = pci ] || controllers=2

function_path() { readlink -f /sys/class/nvme/nvme0/device; }
smart() { nvme smart-log $controller | sed -n "s/^$1[[:space:]]*: *\([^ ]*\).*/\1/p"; }
# What the kernel prints when the event of a changed namespace has arrived.
event_rescans() { dmesg | grep -c 'rescanning namespaces' || true; }
readable() { dd if="$1" of=/dev/null bs=1M count=4 iflag=direct; }

identify() {
  nvme id-ctrl $controller | grep 'unvme virtual SSD'
  nvme id-ns ${controller}n1 -H | grep 'in use'
  nvme ns-descs ${controller}n1 | grep -E 'nguid +: [0-9a-f]{32}'
  nvme list-ns $controller | grep 0x1
  # A device that is served has a controller of its own beside the one over the network.
  nvme list-ctrl $controller | grep "present: $controllers"
  nvme id-iocs $controller
  nvme nvm-id-ctrl $controller
  refused 'Invalid Field' nvme id-nvmset $controller
}

logs() {
  [ "$(smart available_spare)" = 100% ]
  nvme fw-log $controller | grep 1.0
  nvme changed-ns-list-log $controller
  nvme effects-log $controller -c 0 | grep 'Format NVM'
  nvme supported-log-pages $controller | grep 'LID 0x12'
  nvme fid-support-effects-log $controller | grep 'FID 0e'
  refused 'Invalid Log Page' nvme get-log $controller -i 0xcf -l 512
  refused 'Invalid Log Page' nvme self-test-log $controller
}

error_log() {
  local before; before=$(smart num_err_log_entries)
  refused 'Invalid Command Opcode' nvme admin-passthru $controller -o 0x7e
  [ "$(smart num_err_log_entries)" = $((before + 1)) ]
  nvme error-log $controller -e 1 | grep "error_count.*: $((before + 1))\$"
  nvme error-log $controller -e 1 | grep 'Invalid Command Opcode'
}

features() {
  local fid
  for fid in 1 2 4 6 7 8 9 0xa 0xb 0xe 0x16 0x19; do nvme get-feature $controller -f $fid; done
  nvme get-feature ${controller}n1 -n 1 -f 5
  refused 'Invalid Field' nvme get-feature $controller -f 0xc
  # Linux has set the time.
  nvme get-feature $controller -f 0xe -H | grep "timestamp is.*$(date +%Y)"
  # 288 K is below the temperature, 343 K is not.
  nvme set-feature $controller -f 4 -v 0x120
  [ "$(smart critical_warning)" = 0x2 ]
  nvme set-feature $controller -f 4 -v 0x157
  [ "$(smart critical_warning)" = 0 ]
  nvme set-feature $controller -f 6 -v 0 -s
  nvme get-feature $controller -f 6 -s 2 -H | grep Disabled
  nvme set-feature $controller -f 6 -v 1 -s
  number_of_queues
}

# Queues exist, so their number stands; Linux 6.12.117 does not even send the command.
number_of_queues() {
  local asked='-f 7 -v 0x00070007' before; before=$(nvme get-feature $controller -f 7)
  refused 'Permission denied' nvme set-feature $controller $asked ||
    refused 'Command Sequence Error' nvme set-feature $controller $asked || return
  [ "$(nvme get-feature $controller -f 7)" = "$before" ]
}

blocks() {
  local n1=${controller}n1 count
  count=$((4096 / $(blockdev --getss $n1) - 1))
  head -c 4096 /dev/urandom > /tmp/data
  nvme write $n1 -s 100 -c $count -z 4096 -d /tmp/data
  nvme read $n1 -s 100 -c $count -z 4096 -d /tmp/read
  cmp /tmp/data /tmp/read
  nvme compare $n1 -s 100 -c $count -z 4096 -d /tmp/data
  refused 'Compare Failure' nvme compare $n1 -s 101 -c $count -z 4096 -d /tmp/data
  nvme write-uncor $n1 -s 100 -c $count
  refused 'Unrecovered Read Error' nvme read $n1 -s 100 -c $count -z 4096 -d /tmp/read
  refused 'Unrecovered Read Error' nvme verify $n1 -s 100 -c $count
  nvme write $n1 -s 100 -c $count -z 4096 -d /tmp/data
  nvme verify $n1 -s 100 -c $count
  nvme write-zeroes $n1 -s 100 -c $count
  nvme read $n1 -s 100 -c $count -z 4096 -d /tmp/read
  cmp -n 4096 /tmp/read /dev/zero
  nvme dsm $n1 -d -s 100 -b $((count + 1))
  nvme flush $n1
  refused 'LBA Out of Range' nvme read $n1 -s 0xfffffffff -c 0 -z 4096
  refused 'Invalid Command Opcode' nvme io-passthru $n1 -o 0x7e -n 1
}

namespaces() {
  local all rescans
  all=$(nvme id-ctrl $controller | sed -n 's/^tnvmcap *: //p')
  rescans=$(event_rescans)
  nvme delete-ns $controller -n 0xffffffff
  until_so 5 gone ${controller}n1
  nvme id-ctrl $controller | grep "^unvmcap *: $all\$"
  nvme create-ns $controller -s 131072 -c 131072 -b 512
  nvme create-ns $controller -s 16384 -c 16384 -b 4096
  refused 'Insufficient Capacity' nvme create-ns $controller -s 99999999 -c 99999999 -b 4096
  refused 'Thin Provisioning' nvme create-ns $controller -s 8192 -c 4096 -b 4096
  refused 'Invalid Format' nvme create-ns $controller -s 8192 -c 8192 -f 7
  nvme attach-ns $controller -n 1 -c $cntlid
  nvme attach-ns $controller -n 2 -c $cntlid
  until_so 5 test -b ${controller}n2
  refused 'Already Attached' nvme attach-ns $controller -n 2 -c $cntlid
  refused 'Controller List Invalid' nvme attach-ns $controller -n 2 -c 9
  block_bytes ${controller}n1 512
  block_bytes ${controller}n2 4096
  readable ${controller}n1
  readable ${controller}n2
  nvme detach-ns $controller -n 2 -c $cntlid
  until_so 5 gone ${controller}n2
  refused 'Not Attached' nvme detach-ns $controller -n 2 -c $cntlid
  nvme attach-ns $controller -n 2 -c $cntlid
  until_so 5 test -b ${controller}n2
  [ "$(event_rescans)" -gt "$rescans" ]
}

format() {
  local n2=${controller}n2
  nvme format $n2 -l 0 -f
  until_so 5 block_bytes $n2 512
  dd if=/dev/urandom of=$n2 bs=1M count=1 oflag=direct
  nvme format $n2 -l 1 -s 1 -f
  until_so 5 block_bytes $n2 4096
  cmp -n 1048576 $n2 /dev/zero
  [ "$(blockdev --getsize64 $n2)" = 67108864 ]
  refused 'Invalid Format' nvme format $n2 -l 2 -f
  refused 'Invalid Field' nvme format $n2 -l 0 -s 2 -f
}

firmware() {
  # Not a whole number of 4 KiB pieces before it is filled up: nvme-cli sends whole ones.
  python3 - << 'IMAGE'
import zlib
image = b"UNVMEFW\0" + b"2.5     " + bytes(5000)
image += bytes(-(len(image) + 4) % 4096)
open("/tmp/image", "wb").write(image + zlib.crc32(image).to_bytes(4, "little"))
IMAGE
  nvme fw-download $controller -f /tmp/image
  nvme fw-commit $controller -s 2 -a 1
  nvme fw-log $controller | grep 'afi  : 0x21'
  nvme reset $controller
  until_so 5 grep 2.5 /sys/class/nvme/nvme0/firmware_rev
  head -c 4096 /dev/urandom > /tmp/image
  nvme fw-download $controller -f /tmp/image
  refused 'Invalid Firmware Image' nvme fw-commit $controller -s 3 -a 1
  nvme fw-commit $controller -s 1 -a 3
  nvme fw-log $controller | grep 'afi  : 0x1'
}

# Commands that a reset ends are sent again by the kernel: nothing of that is seen above.
resets() {
  local io
  timeout 60 fio --name=resets --filename=${controller}n1 --size=32M --direct=1 --verify=crc32c --verify_fatal=1 --rw=randrw \
    --verify_state_save=0 --bs=4k --iodepth=16 --ioengine=libaio --time_based --runtime=8 --output-format=terse &
  io=$!
  for _ in 1 2 3; do sleep 1; nvme reset $controller; done
  sleep 1; echo 1 > "$(function_path)/reset"
  sleep 1; nvme subsystem-reset $controller; nvme reset $controller
  wait $io
  readable ${controller}n1
}

rebinding() {
  local function; function=$(function_path)
  echo "${function##*/}" > /sys/bus/pci/drivers/nvme/unbind
  gone $controller
  echo "${function##*/}" > /sys/bus/pci/drivers/nvme/bind
  until_so 5 readable ${controller}n1
  echo 1 > "$function/remove"
  gone $controller
  echo 1 > /sys/bus/pci/rescan
  until_so 5 readable ${controller}n1
}

kernel_log() {
  ! dmesg | grep -iE 'nvme.*(timeout|abort|error|failed|down)|I/O error'
}

[ $transport != pci ] || modprobe nvme
for _ in $(seq 100); do [ -b ${controller}n1 ] && break; sleep 0.1; done
cntlid=$(cat /sys/class/nvme/nvme0/cntlid)
check identify identify
check log-pages logs
check error-log error_log
check features features
check block-commands blocks
check namespaces namespaces
check format format
check firmware firmware
if [ $transport = pci ]; then
  check resets-during-io resets
  check rebinding rebinding
  check kernel-log kernel_log
fi
exit "$failed"

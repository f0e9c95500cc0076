#!/bin/bash
# hotplug-check.sh - in the guest: a drive goes while it is used, and another one comes.
#
#   hotplug-check.sh DRIVER UNVME     DRIVER is vfio-pci, or nvme for the way beside the kernel's driver
#
# Wants controllers at 0000:01:00.0 and 0000:02:00.0, QEMU's monitor (guest.sh -M), and the block device
# spare0 for the drive that is plugged. Reported as check.sh says. $first, $second and $unvme have no blanks
# in them.
# shellcheck disable=SC2317,SC2086
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
driver=$1 unvme=/tmp/unvme-program
first=0000:01:00.0 second=0000:02:00.0
SECONDS_MAX=30
cp "$2" $unvme
export UNVME_HOME=/tmp/unvme

# The name by which we open the controller at an address.
name() {
  case $driver in nvme) echo kernel:/dev/"$(basename "$(echo /sys/bus/pci/devices/"$1"/nvme/nvme*)")" ;; *) echo "$1" ;; esac
}

take() {
  case $driver in nvme) until_so 10 test -e /sys/bus/pci/devices/$1/nvme ;; *) $unvme setup config $1 --driver $driver ;; esac
  until_so 10 $unvme id-ctrl "$(name $1)"
}

# under_load ADDRESS COMMAND...: the command takes the drive away; the measurement ends in time, with words
# and a code.
under_load() {
  local address=$1 io status=0 started name; shift
  name=$(name $address)
  $unvme perf -r $name -n 1 -w randread -q 32 -o 4096 -t 60 --warmup 0 > /tmp/perf.out 2> /tmp/perf.err &
  io=$!
  sleep 5
  started=$SECONDS
  "$@"
  wait $io || status=$?
  cat /tmp/perf.err
  [ $((SECONDS - started)) -le $SECONDS_MAX ]
  [ $status = 3 ] || [ $status = 4 ] || [ $status = 1 ]
  grep -q "$name" /tmp/perf.err
  if grep -q panicked /tmp/perf.err; then return 1; fi
  until_so 10 gone /sys/bus/pci/devices/$address
  refused '' $unvme id-ctrl $name
}

# The guest is asked, and lets go of the drive.
ask() { echo "device_del nvme0" > /dev/monitor; }

# The slot's power goes without a question: indicator and controller off in Slot Control.
cut_power() {
  local port; port=$(basename "$(dirname "$(readlink -f /sys/bus/pci/devices/$second)")")
  setpci -s "$port" CAP_EXP+0x18.w=0700:0700
}

plug() {
  echo "device_add nvme,id=again,serial=AGAIN,bus=rp0,drive=spare0" > /dev/monitor
  until_so 20 test -e /sys/bus/pci/devices/$first
  take $first
  $unvme id-ctrl "$(name $first)" | grep AGAIN
  $unvme perf --force -r "$(name $first)" -n 1 -w randrw -q 16 -o 4096 -t 1 --range 16M
}

modprobe nvme
until_so 10 test -e /sys/bus/pci/devices/$second/nvme
check 'first drive' take $first
check 'second drive' take $second
check 'a drive is asked for under load' under_load $first ask
check 'the power of a slot goes under load' under_load $second cut_power
check 'another drive is plugged' plug
exit "$failed"

# shellcheck shell=bash
# drive.sh - sourced by what measures in the guest: its first NVMe controller, and whose it is. Expects die().
PCI=/sys/bus/pci

# first: the address of the first NVMe controller.
first() {
  for function in "$PCI"/devices/*; do
    if [ "$(cat "$function/class")" = 0x010802 ]; then basename "$function"; return; fi
  done
  die "no NVMe controller"
}

# give FUNCTION DRIVER
give() {
  [ ! -e "$PCI/devices/$1/driver" ] || echo "$1" > "$PCI/devices/$1/driver/unbind"
  echo "$2" > "$PCI/devices/$1/driver_override"
  echo "$1" > "$PCI/drivers_probe"
  [ "$(basename "$(readlink -f "$PCI/devices/$1/driver")")" = "$2" ] || die "$1 does not go to $2"
}

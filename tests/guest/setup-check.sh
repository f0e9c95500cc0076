#!/bin/bash
# setup-check.sh - in the guest: does `unvme setup` hand drives to user space and back, and leave those alone
# that are in use?
#
#   setup-check.sh UNVME vfio      two controllers behind an IOMMU: guest.sh run -i -n plain -n plain ...
#   setup-check.sh UNVME uio       without one, or with one that passes through, and huge pages to be had:
#                                  guest.sh run -n plain -n plain ..., or with -i -a iommu=pt
#
# What the drives hold is destroyed; reported as check.sh says.
# shellcheck disable=SC2317
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
unvme=${1:?the program to test} mode=${2:?vfio or uio}
export UNVME_HOME=/tmp/home
modprobe nvme
until_so 20 [ -b /dev/nvme0n1 ] && until_so 20 [ -b /dev/nvme1n1 ] || exit 1
# The drive that is taken and the one that is in use, by number of the kernel's: it probes in any order.
bdf() { basename "$(readlink -f "/sys/class/nvme/nvme$1/device")"; }
free=$(bdf 0) used=$(bdf 1)

driver() { basename "$(readlink "/sys/bus/pci/devices/$1/driver" || echo none)"; }
is_bound() { [ "$(driver "$1")" = "$2" ]; }
pages() { cat /proc/sys/vm/nr_hugepages; }
# left WORDS: the drive in use is refused by name with these words, and still the kernel's; taking all leaves
# it alone.
left() {
  refused "$1" "$unvme" setup config "$used"
  "$unvme" setup config --dry-run | grep "# $used .*left alone: .*$1"
  is_bound "$used" nvme
}

status() {
  "$unvme" setup status > /tmp/status
  grep -E "^$free +[-0-9]+ +nvme +nvme0 ng0n1 nvme0n1 +-$" /tmp/status
  grep '^locked memory' /tmp/status
  "$unvme" setup status -o json | python3 -c 'import json, sys; assert len(json.load(sys.stdin)["drives"]) == 2'
  "$unvme" list | grep -E "^$free +GUEST.* 1 .* 512 B +LBA"
  "$unvme" list | grep -E "^$free .*nvme +- +kernel:/dev/ng0n1$"
}

mounted() {
  # One Linux partition of 262144 sectors from 2048 on: the table of a master boot record.
  printf '\0\0\0\0\203\0\0\0\0\010\0\0\0\0\004\0' | dd of=/dev/nvme1n1 bs=1 seek=446 conv=notrunc
  printf '\125\252' | dd of=/dev/nvme1n1 bs=1 seek=510 conv=notrunc
  blockdev --rereadpt /dev/nvme1n1
  until_so 10 [ -b /dev/nvme1n1p1 ]
  modprobe ext4
  mkfs.ext4 -q -F /dev/nvme1n1p1
  mkdir -p '/tmp/a mount'
  mount /dev/nvme1n1p1 '/tmp/a mount'
  left 'nvme1n1p1 is mounted at /tmp/a mount'
  "$unvme" setup status | grep "$used.*/tmp/a mount (nvme1n1p1)"
  "$unvme" list | grep "$used.*/tmp/a mount (nvme1n1p1)"
  touch '/tmp/a mount/file'
  umount '/tmp/a mount'
}

# A mount that this process does not see: only the kernel knows that the drive is in use.
mounted_elsewhere() {
  local pid
  unshare -m sh -c 'mount /dev/nvme1n1p1 "/tmp/a mount" && touch /tmp/is-mounted; exec sleep 60' &
  pid=$!
  until_so 10 [ -e /tmp/is-mounted ]
  left 'nvme1n1 is held exclusively'
  kill "$pid"; wait "$pid" || true
}

swapped() {
  mkswap -q /dev/nvme1n1p1
  swapon /dev/nvme1n1p1
  left 'nvme1n1p1 is swapped on'
  swapoff /dev/nvme1n1p1
}

mapped() {
  modprobe dm-mod
  dmsetup create test --table '0 2048 linear /dev/nvme1n1p1 0'
  left 'nvme1n1p1 is part of the mapped device test'
  dmsetup remove test
}

members() {
  wipefs -q -a /dev/nvme1n1p1
  # Labels as pvcreate and mdadm write them, as far as blkid looks at them.
  printf 'LABELONE................LVM2 001' | dd of=/dev/nvme1n1p1 bs=512 seek=1 conv=notrunc
  left 'nvme1n1p1 is part of LVM'
  dd if=/dev/zero of=/dev/nvme1n1p1 bs=512 count=8
  printf '\374\116\053\251' | dd of=/dev/nvme1n1p1 bs=4096 seek=1 conv=notrunc
  left 'nvme1n1p1 is part of a RAID array'
  dd if=/dev/zero of=/dev/nvme1n1p1 bs=4096 count=2
}

opened() {
  local pid
  (exec 3< /dev/ng1n1; exec sleep 60) & pid=$!
  until_so 10 [ -e "/proc/$pid/fd/3" ]
  left "ng1n1 is open in process $pid ("
  kill "$pid"; wait "$pid" || true
}

wrong() {
  refused 'no such device; NVMe functions on the PCI bus are' "$unvme" setup config 0000:ff:00.0
  refused 'no NVMe controller: its class' "$unvme" setup config 0000:00:00.0
  refused 'nobody-here' "$unvme" setup config "$free" --driver nvme --user nobody-here
  refused 'huge pages of 2 MiB the kernel has only' "$unvme" setup config "$free" --hugepages 1T
  [ "$(pages)" = 0 ]
  is_bound "$free" nvme
}

unprivileged() {
  cp "$unvme" /tmp/unvme-copy
  chmod 755 /tmp/unvme-copy
  local as=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp)
  refused 'this user may not change drivers' "${as[@]}" /tmp/unvme-copy setup config "$free"
  "${as[@]}" /tmp/unvme-copy setup config "$free" --dry-run | grep 'cannot be looked at'
  "${as[@]}" /tmp/unvme-copy setup status > /tmp/status
  grep "sudo unvme setup config $free --driver nvme --user nobody" /tmp/status
  "${as[@]}" UNVME_HOME=/tmp/none /tmp/unvme-copy list | grep "^$free .*nvme"
  "$unvme" setup config "$free" --driver nvme --user nobody
  [ "$(stat -c %U /dev/ng0n1)" = nobody ]
}

# The commands that a dry run prints, run by a shell, are what the program does.
by_hand() {
  "$unvme" setup config "$free" --dry-run > /tmp/script
  is_bound "$free" nvme
  sh -e /tmp/script
  is_bound "$free" "$1"
  "$unvme" setup reset "$free"
  is_bound "$free" nvme
}

vfio() {
  local group
  [ "$("$unvme" setup config "$free $used" --user nobody | head -1)" = "$free (1b36 0010): nvme -> vfio-pci (an IOMMU guards it)" ]
  is_bound "$free" vfio-pci
  is_bound "$used" vfio-pci
  [ "$(pages)" = 0 ]
  group=$(basename "$(readlink "/sys/bus/pci/devices/$free/iommu_group")")
  [ "$(stat -c %U "/dev/vfio/$group")" = nobody ]
  "$unvme" setup status | grep -E "^$free +[-0-9]+ +vfio-pci +vfio/$group +-$"
  "$unvme" list | grep -E "^$free .*vfio-pci +- +$free$"
  "$unvme" setup config "$free" | grep "$free (1b36 0010): vfio-pci already"
}

# Taking a drive from a process would wait for that process: refused.
held() {
  local group pid
  group=$(basename "$(readlink "/sys/bus/pci/devices/$free/iommu_group")")
  (exec 3<> "/dev/vfio/$group"; exec sleep 60) & pid=$!
  until_so 10 [ -e "/proc/$pid/fd/3" ]
  refused "is open in process $pid (" "$unvme" setup reset "$free"
  kill "$pid"; wait "$pid" || true
  is_bound "$free" vfio-pci
}

uio() {
  NRHUGE=24 "$unvme" setup config "$free" "$used" --driver uio_pci_generic > /tmp/out
  grep "$free (1b36 0010): nvme -> uio_pci_generic" /tmp/out
  grep -E 'huge pages of 2 MiB.*: 24, 24 free' /tmp/out
  is_bound "$free" uio_pci_generic
  [ "$(pages)" = 24 ]
  "$unvme" setup status | grep -E "^$free +[-0-9]+ +uio_pci_generic +uio[01] +-$"
}

back() {
  "$unvme" setup reset --hugepages 0 > /tmp/out
  grep "$free (1b36 0010): $1 -> nvme" /tmp/out
  is_bound "$free" nvme
  is_bound "$used" nvme
  [ "$(pages)" = 0 ]
  until_so 20 [ -b /dev/nvme0n1 ]
  until_so 20 [ -b /dev/nvme1n1 ]
  grep -q '(null)' "/sys/bus/pci/devices/$free/driver_override"
  "$unvme" setup reset | grep 'no drive is bound'
}

check 'status and list' status
check 'mounted' mounted
check 'mounted in another namespace' mounted_elsewhere
check 'swapped on' swapped
check 'mapped' mapped
check 'members of LVM and RAID' members
check 'open in a process' opened
check 'what is not there' wrong
check 'an unprivileged user' unprivileged
if [ "$mode" = vfio ]; then
  check 'the commands of a dry run' by_hand vfio-pci
  check 'to vfio-pci' vfio
  check 'held by a process' held
  check 'back to the kernel' back vfio-pci
else
  check 'to uio_pci_generic' uio
  check 'back to the kernel' back uio_pci_generic
fi
exit "$failed"

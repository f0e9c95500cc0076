#!/bin/bash
# clusters-check.sh - in the guest: the commands of docs/clusters.md, on targets of ours.
#
#   clusters-check.sh UNVME TOOLS
#
# Three targets, as if on three machines. TOOLS is the folder that `guest.sh tools` prints. Reported as
# check.sh says. Each check is called by its name; paths have no blanks in them.
# shellcheck disable=SC2317,SC2086,SC2154
set -u -o pipefail
here=$(dirname "$0")
unvme=$1 tools=$2
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$here/check.sh"
# shellcheck source-path=SCRIPTDIR source=tcp.sh
. "$here/tcp.sh"
NQNS=(x nqn.2024-01.io.example:one nqn.2024-01.io.example:two nqn.2024-01.io.example:three)

# One discovery service names them all: the first target refers to the others.
machines() {
  local n
  for n in 1 2 3; do $unvme device create 0000:0$n:00.0 --size 256M; done
  serve one 4421 --nqn ${NQNS[1]} --referral $ADDRESS:4422 --referral $ADDRESS:4423 0000:01:00.0
  serve two 4422 --nqn ${NQNS[2]} 0000:02:00.0
  serve three 4423 --nqn ${NQNS[3]} 0000:03:00.0
}

connected() {
  nvme connect-all -t tcp -a $ADDRESS -s 4421 -q $HOSTNQN -I $HOSTID --ctrl-loss-tmo=${1:-5} --reconnect-delay=1 --fast_io_fail_tmo=2
  until_so 10 eval '[ "$(all_disks | wc -l)" = 3 ]'
}

# disk NQN: the block device of that subsystem.
disk() {
  local at
  for at in /sys/class/nvme-subsystem/*; do
    if [ "$(cat $at/subsysnqn)" = $1 ]; then echo /dev/$(basename $at | sed 's/-subsys//')n1; fi
  done
}
all_disks() { local n; for n in 1 2 3; do disk ${NQNS[n]} | grep -x '/dev/nvme[0-9]*n1'; done; }

# --- a mirror on two machines
# -----------------------------------------------------------------------------------------
mirror() {
  modprobe -a raid1 ext4
  mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --metadata=1.2 --bitmap=internal "$(disk ${NQNS[1]})" "$(disk ${NQNS[2]})"
  until_so 120 synced
  mkfs.ext4 -q -F /dev/md0
  mkdir -p /tmp/mirror
  mount /dev/md0 /tmp/mirror
  head -c 8M /dev/urandom > /tmp/mirror/before
  sync /tmp/mirror/before
}
synced() { ! grep -qE 'resync|recovery|check' /proc/mdstat && grep -q '\[UU\]' /proc/mdstat; }

# A machine dies, the mirror goes on; it comes back and catches up.
mirror_loses_a_machine() {
  stop two -KILL
  head -c 8M /dev/urandom > /tmp/mirror/meanwhile
  sync /tmp/mirror/meanwhile
  until_so 20 grep -q '_' <(grep blocks -A1 /proc/mdstat)
  (cd /tmp/mirror && sha256sum before meanwhile > /tmp/mirror.sums)
  serve two 4422 --nqn ${NQNS[2]} 0000:02:00.0
  mdadm /dev/md0 --remove failed || true
  mdadm /dev/md0 --remove detached || true
  nvme connect-all -t tcp -a $ADDRESS -s 4421 -q $HOSTNQN -I $HOSTID --ctrl-loss-tmo=5 --reconnect-delay=1 --fast_io_fail_tmo=2
  until_so 10 test -b "$(disk ${NQNS[2]})"
  mdadm /dev/md0 --add "$(disk ${NQNS[2]})" || mdadm /dev/md0 --re-add "$(disk ${NQNS[2]})"
  until_so 120 synced
}

# What the machine that was away holds is the whole mirror.
mirror_is_whole() {
  mdadm /dev/md0 --fail "$(disk ${NQNS[1]})"
  echo 3 > /proc/sys/vm/drop_caches
  (cd /tmp/mirror && sha256sum --quiet -c /tmp/mirror.sums)
  umount /tmp/mirror
  fsck.ext4 -f -n /dev/md0
  mdadm --stop /dev/md0
}

# --- a volume over three machines
# -------------------------------------------------------------------------------------
volume() {
  local n
  modprobe -a dm-mod dm-mirror ext4
  # No udev makes nodes in this guest.
  mkdir -p /tmp/lvm
  printf 'devices { obtain_device_list_from_udev=0 }\nactivation { udev_sync=0 udev_rules=0 }\n' > /tmp/lvm/lvm.conf
  export LVM_SYSTEM_DIR=/tmp/lvm
  for n in 1 2 3; do wipefs -a -q "$(disk ${NQNS[n]})"; done
  lvm pvcreate -y -ff $(all_disks)
  lvm vgcreate far $(all_disks)
  lvm lvcreate -y -n data --stripes 3 --size 360M far
  lvm vgmknodes
  mkfs.ext4 -q -F /dev/far/data
  mkdir -p /tmp/volume
  mount /dev/far/data /tmp/volume
  verified /tmp/volume/data --rw=randrw --bsrange=4k-128k --blockalign=4k --size=32M --iodepth=16
  umount /tmp/volume
  fsck.ext4 -f -n /dev/far/data
  lvm vgchange -an far
}

# --- pairs, by our own driver
# -------------------------------------------------------------------------------------------
pairs() {
  serve pairs 4424 --nqn nqn.2024-01.io.example:pairs mem:kv:256M
  local device=tcp:$ADDRESS:4424/nqn.2024-01.io.example:pairs
  $unvme kv store --force $device user:1 Ada
  $unvme kv store --force $device user:2 Grace
  [ "$($unvme kv list $device --prefix user: | tr '\n' ' ')" = 'user:1 user:2 ' ]
  [ "$($unvme kv retrieve $device user:1)" = Ada ]
  head -c 20M /dev/urandom > /tmp/large
  $unvme kv store --force $device large --file /tmp/large
  $unvme kv retrieve $device large | cmp - /tmp/large
  stop pairs
}

modprobe -a nvme-tcp nvme-fabrics
name_host
check 'three machines' machines
check 'all connected by one discovery service' connected
check 'a mirror on two' mirror
check 'a machine dies and comes back' mirror_loses_a_machine
check 'the mirror is whole' mirror_is_whole
check 'all connected' connected
check 'a volume over three' volume
check 'disconnected' nvme disconnect-all
check 'pairs over TCP' pairs
exit "$failed"

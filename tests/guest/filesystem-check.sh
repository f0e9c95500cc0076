#!/bin/bash
# filesystem-check.sh - in the guest: a file system on /dev/nvme0n1, in order and after a crash of the drive's
# server.
#
#   filesystem-check.sh whole TYPE         made, filled, unmounted, checked, read back; TYPE is ext4 or xfs
#   filesystem-check.sh crash TYPE DIR     made; files are written and synced one after the other, and noted
#                                          in DIR/synced, until someone kills the server; DIR/flag appears
#                                          when there are some
#   filesystem-check.sh recover TYPE DIR   mounted, which replays the journal; the noted files are whole;
#                                          checked
#
# Reported as check.sh says. $device and $mount have no blanks in them.
# shellcheck disable=SC2317,SC2086
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
device=/dev/nvme0n1 mount=/tmp/mount
what=$1 type=$2 dir=${3:-}

make() {
  # Nothing is done later in the background: what is synced is all there is to recover.
  case $type in
    ext4) mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 $device ;;
    xfs) mkfs.xfs -q -f $device ;;
  esac
  mount $device $mount
}

consistent() {
  case $type in
    ext4) fsck.ext4 -f -n $device ;;
    xfs) xfs_repair -n $device ;;
  esac
}

fill() {
  local i
  for i in $(seq 150); do
    mkdir -p $mount/$((i % 10))
    head -c $((i * i * 12)) /dev/urandom > $mount/$((i % 10))/$i
  done
  # What is deleted leaves space for fstrim to discard.
  rm -r $mount/3
  fstrim -v $mount
  (cd $mount && find . -type f -exec sha256sum {} + > /tmp/sums)
  [ "$(wc -l < /tmp/sums)" = 135 ]
  umount $mount
}

read_back() {
  mount -o ro $device $mount
  (cd $mount && sha256sum --quiet -c /tmp/sums)
  umount $mount
}

# Each file is synced, and then its sum is noted on the host.
write_until_it_fails() {
  local i
  for i in $(seq 100000); do
    head -c $((4096 + i * 911 % 200000)) /dev/urandom > /tmp/file
    { mkdir -p "$mount/$((i % 7))" && cp /tmp/file "$mount/$((i % 7))/$i" && sync "$mount/$((i % 7))/$i"; } || return 0
    echo "$(sha256sum < /tmp/file | cut -d ' ' -f 1)  $((i % 7))/$i" >> "$dir/synced"
    if [ "$i" = 10 ]; then touch "$dir/flag"; fi
  done
}

recover() {
  mount $device $mount
  case $type in
    ext4) dmesg | grep 'EXT4-fs.*recovery complete' ;;
    xfs) dmesg | grep 'XFS.*Ending recovery' ;;
  esac
  [ "$(wc -l < "$dir/synced")" -ge 10 ]
  (cd $mount && sha256sum --quiet -c "$dir/synced")
  touch $mount/again
  umount $mount
}

no_errors() { ! dmesg | grep -iE 'nvme.*(timeout|abort|error|failed|reset)|I/O error|corrupt'; }

modprobe nvme
modprobe "$type"
until_so 10 test -b $device || exit 1
mkdir -p $mount
case $what in
  whole)
    check "$type made" make
    check "$type filled, trimmed, unmounted" fill
    check "$type consistent" consistent
    check "$type read back" read_back
    check "$type without errors in the kernel's log" no_errors ;;
  crash)
    check "$type made" make
    echo 3000 > /sys/block/nvme0n1/queue/io_timeout
    write_until_it_fails ;;
  recover)
    check "$type recovered, synced files whole" recover
    check "$type consistent" consistent
    check "$type without errors in the kernel's log" no_errors ;;
esac
exit "$failed"

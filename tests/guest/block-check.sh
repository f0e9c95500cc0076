#!/bin/bash
# block-check.sh - in the guest: does Linux take the controller, and does every block come back as written?
#
#   block-check.sh [SIZE_MIB]     of the first NVMe namespace, destroyed from its start (default 64)
#
# Looks at what nvme-cli reads, writes and verifies with fio (queue depth 1 and 16, 512 bytes to 256 KiB),
# flushes, discards, makes a filesystem, and compares a file after unmounting. The exit code is not 0 when
# anything differs or when the kernel's log has an NVMe error.
set -eu
size=${1:-64}
fail() { echo "block-check: $*" >&2; dmesg | grep -i nvme | tail -20 >&2; exit 1; }

modprobe nvme
device=''
for _ in $(seq 100); do
  for sys in /sys/block/nvme*n*; do
    if [ -b "/dev/${sys##*/}" ]; then device=/dev/${sys##*/}; break 2; fi
  done
  sleep 0.1
done
[ -n "$device" ] || fail "no NVMe namespace appeared within 10 seconds"
name=${device##*/}
queue=/sys/block/$name/queue
bytes=$(($(cat "/sys/block/$name/size") * 512))
[ $bytes -ge $((size << 20)) ] || fail "$device has $bytes bytes, fewer than $size MiB"
block=$(cat "$queue/logical_block_size")
[ "$(cat "/sys/block/$name/ro")" = 0 ] || fail "$device is read-only"

echo "== identify"
nvme list
nvme id-ctrl "/dev/${name%n*}" | head -20
nvme id-ns "$device" | head -12
nvme smart-log "/dev/${name%n*}" > /dev/null
nvme get-feature "/dev/${name%n*}" -f 7

echo "== data: $size MiB of $device, blocks of $block bytes"
verify() {
  timeout 120 fio --name="$1" --filename="$device" --size="${size}M" --direct=1 --verify=crc32c --verify_fatal=1 \
    --verify_state_save=0 --ioengine=libaio --output-format=terse --terse-version=3 "${@:2}" > /tmp/fio.out 2>&1 ||
    { cat /tmp/fio.out >&2; fail "fio $1: data differ or an I/O failed"; }
  echo "$1: ok"
}
verify sequential-128k --rw=write --bs=128k --iodepth=1
verify random-mixed-depth-16 --rw=randwrite --bsrange="$block"-256k --blockalign="$block" --iodepth=16 --io_size="${size}M"
verify random-block-fsync --rw=randwrite --bs="$block" --iodepth=1 --fsync=16 --io_size=1M
verify several-jobs --rw=randrw --iodepth=8 --ioengine=io_uring --size="$((size / 4))M" \
  --offset_increment="$((size / 4))M" --numjobs=4 --io_size="$((size / 4))M" --bs=16k
if [ "$(cat "$queue/discard_max_bytes")" != 0 ]; then
  verify trim-then-write --rw=randtrimwrite --bs=16k --iodepth=4 --io_size="$((size / 2))M"
fi

echo "== flush, discard, write zeroes"
sync "$device"
if [ "$(cat "$queue/discard_max_bytes")" != 0 ]; then blkdiscard -f -o 1M -l 1M "$device"; echo "discard: ok"; fi
blkdiscard -f -z -o 2M -l 1M "$device"
cmp -n $((1 << 20)) -i $((2 << 20)):0 "$device" /dev/zero || fail "write zeroes left data"
echo "write zeroes: ok"

echo "== filesystem"
modprobe ext4
mkfs.ext4 -q -F "$device" "${size}M"
mkdir -p /tmp/mount
mount "$device" /tmp/mount
head -c $(((size << 20) / 4)) /dev/urandom > /tmp/file
cp /tmp/file /tmp/mount/file
umount /tmp/mount
mount -o ro "$device" /tmp/mount
cmp /tmp/file /tmp/mount/file || fail "the file differs after unmounting"
umount /tmp/mount
fsck.ext4 -f -n "$device" > /dev/null 2>&1 || fail "fsck found errors"
echo "ext4: ok"

if dmesg | grep -iE 'nvme.*(timeout|abort|error|failed|reset)|I/O error'; then fail "the kernel's log has errors"; fi
echo "== all ok"

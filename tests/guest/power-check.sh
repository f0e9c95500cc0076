#!/bin/bash
# power-check.sh - in the guest: what is on the device after the server, or the guest, has died in the middle
# of writing?
#
#   power-check.sh fill FLAG       writes 16 MiB that can be verified, flushes, creates the file FLAG, then
#                                  writes elsewhere until someone kills the server or the guest; the writes
#                                  that fail then are expected
#   power-check.sh verify          compares those 16 MiB
set -eu
device=/dev/nvme0n1
modprobe nvme
for _ in $(seq 100); do [ -b $device ] && break; sleep 0.1; done

pattern() {
  timeout 60 fio --name=pattern --filename=$device --size=16M --direct=1 --rw=write --bs=64k --ioengine=libaio --iodepth=4 \
    --verify=crc32c --verify_fatal=1 --verify_state_save=0 --output-format=terse "$@"
}

case $1 in
  fill)
    pattern --do_verify=0 --end_fsync=1
    echo 3000 > /sys/block/nvme0n1/queue/io_timeout
    touch "$2"
    timeout 60 fio --name=others --filename=$device --offset=64M --size=64M --direct=1 --rw=randwrite --bs=4k \
      --ioengine=libaio --iodepth=16 --time_based --runtime=30 --output-format=terse || true ;;
  verify) pattern --verify_only ;;
esac

#!/bin/bash
# In the guest: what data pointers lead to, read while the command is in flight: after it the driver reuses
# the memory. NSID 2 ($B, 512-byte blocks) is throttled: 64 KiB read ahead of a command make it wait for about
# four seconds.
# shellcheck source-path=SCRIPTDIR source=checkpoint.sh
. ./checkpoint.sh
modprobe nvme
B=$(node 2)
ask skip

# inflight NAME OPCODE CDW10 COMMAND...
inflight() {
  dd if="$B" of=/dev/null bs=65536 count=1 skip=2000 iflag=direct 2> /dev/null
  "${@:4}" > last 2>&1 &
  sleep 1.5
  ask inflight "$1" "$2" "$3"
  wait $! || { echo "$*: failed"; cat last; } >&2
}
inflight linux-read-128k-prp-list 0x02 1024 dd if="$B" of=/dev/null bs=131072 count=1 skip=4 iflag=direct
inflight linux-discard-in-flight 0x09 0 blkdiscard -f -o 1M -l 64K "$B"
inflight dsm-in-flight    0x09 1 nvme dsm "$B" -d -s 4096,8192 -b 8,16
inflight copy-in-flight  0x19 1000 nvme copy "$B" --sdlba=1000 --blocks=7,15 --slbs=16,64 -f 0
echo 1 > /sys/module/nvme/parameters/sgl_threshold
inflight linux-read-128k-sgl 0x02 1280 dd if="$B" of=/dev/null bs=131072 count=1 skip=5 iflag=direct

#!/bin/bash
# In the guest: what the Linux driver and nvme-cli send a virtual SSD of ours; QEMU's controller has no
# firmware and no namespace management. Last, the namespace is deleted.
# shellcheck source-path=SCRIPTDIR source=checkpoint.sh
. ./checkpoint.sh
C=/dev/nvme0
modprobe nvme
A=$(node 1)
sleep 1
ask bringup
{ uname -rv; nvme version; echo "controller $(cat /sys/class/nvme/nvme0/model) $(cat /sys/class/nvme/nvme0/firmware_rev)"; } > out/versions.txt

# --- the driver's block I/O
block() { dd if="$1" of="$2" count=1 "${@:3}"; }
ask skip
vector write-4k       1 0x01 8    7          block pattern "$A" bs=4096 seek=1 oflag=direct
vector write-128k     1 0x01 2304 255        block pattern "$A" bs=131072 seek=9 oflag=direct
vector write-fua-512  1 0x01 7    0x40000000 block pattern "$A" bs=512 seek=7 oflag=direct,dsync
vector read-8k        1 0x02 16   15         block "$A" /dev/null bs=8192 skip=1 iflag=direct
vector dsm-deallocate 1 0x09 0    -          blkdiscard -o 1M -l 64K "$A"
vector write-zeroes   1 0x08 4096 -          blkdiscard -z -o 2M -l 64K "$A"
ask skip

# --- nvme-cli: firmware
head -c 12288 pattern > image
vector fw-download      0 0x11 0x7ff -      nvme fw-download $C -f image -x 8192
vector error-fw-commit  0 0x10 -     -      nvme fw-commit $C -s 2 -a 1

# --- nvme-cli: namespaces, logs, features that QEMU's controller does not have
vector detach-ns       0 0x15 -    - nvme detach-ns $C -n 1 -c 0
vector delete-ns       0 0x0d -    - nvme delete-ns $C -n 1
vector create-ns       0 0x0d -    - nvme create-ns $C -s 131072 -c 131072 -b 512
vector attach-ns       0 0x15 -    - nvme attach-ns $C -n 1 -c 0
node 1 > last
ask skip
vector format-erase    0 0x80 -    - nvme format "$A" -l 0 -s 1 -f
vector changed-ns-list 0 0x02 -    - nvme changed-ns-list-log $C
vector supported-logs  0 0x02 -    - nvme supported-log-pages $C
vector host-behaviour  0 0x0a 0x16 - nvme get-feature $C -f 0x16
vector set-saved       0 0x09 0x80000006 - nvme set-feature $C -f 6 -v 1 -s
vector error-self-test-log 0 0x02 - - nvme self-test-log $C

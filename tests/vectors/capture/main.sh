#!/bin/bash
# In the guest: the controller's answers, the Linux driver's entries, nvme-cli's entries, refused commands.
# NSID 1 ($A) has 512-byte blocks, NSID 2 ($B) 4096-byte blocks; 1 GiB each.
# shellcheck source-path=SCRIPTDIR source=checkpoint.sh
. ./checkpoint.sh
C=/dev/nvme0
modprobe nvme
A=$(node 1)
B=$(node 2)
sleep 1
ask bringup
{ uname -rv; nvme version; echo "QEMU $(cat /sys/class/nvme/nvme0/firmware_rev)"; } > out/versions.txt

# --- responses of the controller
identify() { response "identify-$1.bin" nvme admin-passthru $C -o 6 -n "$2" --cdw10="$3" -l 4096 -r -b; ask skip; }
get_log() { response "log-$1.bin" nvme admin-passthru $C -o 2 -n 0xffffffff --cdw10="$2" -l "$3" -r -b; ask skip; }
identify cns00-nsid1 1 0x00
identify cns00-nsid2 2 0x00
identify cns01 0 0x01
identify cns02 0 0x02
identify cns03-nsid1 1 0x03
identify cns03-nsid2 2 0x03
identify cns05-nsid1 1 0x05
identify cns05-nsid2 2 0x05
identify cns06 0 0x06
identify cns07 0 0x07
identify cns08-nsid1 1 0x08
identify cns08-nsid2 2 0x08
identify cns1c 0 0xffff001c
get_log 01 0x000f0001 64
get_log 02 0x007f0002 512
get_log 03 0x007f0003 512
get_log 05 0x03ff0005 4096
response id-ctrl.json nvme id-ctrl $C -o json
response id-ns-1.json nvme id-ns $C -n 1 -o json
response id-ns-2.json nvme id-ns $C -n 2 -o json
response smart-log.json nvme smart-log $C -o json
ask skip

# --- entries the Linux driver builds for block I/O
block() { dd if="$1" of="$2" count=1 "${@:3}"; }
vector linux-write-4k           1 0x01 8     -          block pattern "$A" bs=4096 seek=1 oflag=direct
vector linux-write-8k-two-prps  1 0x01 16    -          block pattern "$A" bs=8192 seek=1 oflag=direct
vector linux-write-fua-512      1 0x01 7     0x40000000 block pattern "$A" bs=512 seek=7 oflag=direct,dsync
vector linux-read-512           1 0x02 7     0          block "$A" /dev/null bs=512 skip=7 iflag=direct
vector linux-read-4k            1 0x02 8     7          block "$A" /dev/null bs=4096 skip=1 iflag=direct
vector linux-read-8k-two-prps   1 0x02 16    15         block "$A" /dev/null bs=8192 skip=1 iflag=direct
vector linux-write-128k         1 0x01 2304  255        block pattern "$A" bs=131072 seek=9 oflag=direct
vector linux-read-high-lba      1 0x02 0x1ffff0 7       block "$A" /dev/null bs=4096 skip=262142 iflag=direct
vector linux-flush              1 0x00 -     -          sync "$A"
vector linux-dsm-deallocate     1 0x09 0     -          blkdiscard -o 1M -l 64K "$A"
vector linux-write-zeroes       1 0x08 4096  -          blkdiscard -z -o 2M -l 64K "$A"
vector linux-write-fua-4k-block 1 0x01 5     0x40000000 block pattern "$B" bs=4096 seek=5 oflag=direct,dsync
vector linux-read-4k-block      1 0x02 5     0          block "$B" /dev/null bs=4096 skip=5 iflag=direct
vector linux-dsm-4k-block       1 0x09 0     -          blkdiscard -o 1M -l 64K "$B"
ask skip

# --- entries nvme-cli builds: I/O commands
vector compare            1 0x05 8   -          nvme compare "$A" -s 8 -c 7 -z 4096 -d pattern
vector verify             1 0x0c 8   -          nvme verify "$A" -s 8 -c 7
vector write-fua          1 0x01 300 -          nvme write "$A" -s 300 -c 1 -z 1024 -f -d pattern
vector write-streams      1 0x01 302 -          nvme write "$A" -s 302 -c 1 -z 1024 --dir-type=1 --dir-spec=3 -d pattern
vector read               1 0x02 300 -          nvme read "$A" -s 300 -c 1 -z 1024 -d /dev/null
vector read-limited-retry 1 0x02 300 0x80000001 nvme read "$A" -s 300 -c 1 -z 1024 -l -d /dev/null
vector dsm-two-ranges     1 0x09 1   -          nvme dsm "$A" -d -s 4096,8192 -b 8,16
vector dsm-read-hint      1 0x09 1   -          nvme dsm "$A" -n 1 -a 0,0 --idr -s 4096,8192 -b 8,16
vector write-zeroes       1 0x08 512 15         nvme write-zeroes "$A" -s 512 -c 15
vector write-zeroes-deac  1 0x08 512 0x0200000f nvme write-zeroes "$A" -s 512 -c 15 -d
vector copy               1 0x19 1000 -         nvme copy "$A" --sdlba=1000 --blocks=7 --slbs=16 -f 0
vector flush              1 0x00 -   -          nvme flush "$A" -n 1

# --- entries nvme-cli builds: admin commands
vector identify-ctrl      0 0x06 1          - nvme id-ctrl $C
vector identify-ns        0 0x06 0          - nvme id-ns $C -n 2
vector identify-ns-list   0 0x06 2          - nvme list-ns $C
vector identify-ns-descs  0 0x06 3          - nvme ns-descs $C -n 1
vector get-log-smart      0 0x02 0x007f0002 - nvme smart-log $C
vector get-log-error      0 0x02 -          - nvme error-log $C -e 1
vector get-log-firmware   0 0x02 -          - nvme fw-log $C
vector get-queues         0 0x0a 7          - nvme get-feature $C -f 7
vector get-temperature    0 0x0a 4          - nvme get-feature $C -f 4
vector get-write-cache    0 0x0a 6          - nvme get-feature $C -f 6
vector get-temperature-capabilities 0 0x0a 0x304 - nvme get-feature $C -f 4 -s 3
vector get-timestamp      0 0x0a 0xe        - nvme get-feature $C -f 0xe -l 8
vector set-write-cache-off 0 0x09 6         - nvme set-feature $C -f 6 -v 0
vector set-write-cache-on 0 0x09 6          - nvme set-feature $C -f 6 -v 1
vector set-async-events   0 0x09 0xb        - nvme set-feature $C -f 0xb -v 0x11f
vector async-event-temperature 0 0x0c -     - nvme set-feature $C -f 4 -v 0x100
vector set-temperature    0 0x09 4          - nvme set-feature $C -f 4 -v 0x157
vector abort              0 0x08 -          - nvme admin-passthru $C -o 8 --cdw10=0x00050001
vector format             0 0x80 -          - nvme format $C -n 2 --lbaf=4 -f
sleep 1
ask skip

# --- commands the controller refuses
io() { nvme io-passthru "$A" "$@"; }
admin() { nvme admin-passthru $C "$@"; }
vector error-compare-failure      1 0x05 64         -      nvme compare "$A" -s 64 -c 7 -z 4096 -d other
vector error-lba-out-of-range-read 1 0x02 0xffffff00 0     io -o 2 -n 1 --cdw10=0xffffff00 --cdw11=0x7f -l 512 -r
vector error-lba-out-of-range-write 1 0x01 0x1ffff8 15     io -o 1 -n 1 --cdw10=0x1ffff8 --cdw12=15 -l 8192 -w -i pattern
vector error-lba-overflow         1 0x08 0xffffffff -      io -o 8 -n 1 --cdw10=0xffffffff --cdw11=0xffffffff --cdw12=0xf
vector error-transfer-over-mdts   1 0x02 0          0xffff io -o 2 -n 1 --cdw12=0xffff -l 512 -r
vector error-io-invalid-opcode    1 0x7f -          -      io -o 0x7f -n 1
vector error-write-uncorrectable-unsupported 1 0x04 600 -  nvme write-uncor "$A" -s 600 -c 3
vector error-identify-cns         0 0x06 0xee       -      admin -o 6 --cdw10=0xee -l 4096 -r
vector error-identify-nsid-zero   0 0x06 0          -      admin -o 6 --cdw10=0 -n 0 -l 4096 -r
vector error-log-page             0 0x02 0x007f00ee -      admin -o 2 --cdw10=0x007f00ee -n 0xffffffff -l 512 -r
vector error-admin-invalid-opcode 0 0x7f -          -      admin -o 0x7f
vector error-feature-identifier   0 0x0a 0xee       -      admin -o 0x0a --cdw10=0xee
vector error-feature-not-changeable 0 0x09 2        -      admin -o 9 --cdw10=2 --cdw11=0x1f
vector error-delete-sq-identifier 0 0x00 9          -      admin -o 0 --cdw10=9
vector error-delete-cq-identifier 0 0x04 9          -      admin -o 4 --cdw10=9
vector error-delete-cq-in-use     0 0x04 1          -      admin -o 4 --cdw10=1
vector error-create-sq-identifier 0 0x01 0x003f0000 -      admin -o 1 --cdw10=0x003f0000 --cdw11=0x00010001
vector error-create-sq-no-cq      0 0x01 0x003f0009 -      admin -o 1 --cdw10=0x003f0009 --cdw11=0x00090001
vector error-create-sq-size       0 0x01 0x0000000a -      admin -o 1 --cdw10=0x0000000a --cdw11=0x00010001
vector error-create-cq-identifier 0 0x05 0x003f0001 -      admin -o 5 --cdw10=0x003f0001 --cdw11=1
vector error-format-lbaf          0 0x80 0xf        -      admin -o 0x80 -n 1 --cdw10=0xf
response log-01-after-errors.bin nvme admin-passthru $C -o 2 -n 0xffffffff --cdw10=0x000f0001 -l 64 -r -b
response log-02-after-errors.bin nvme admin-passthru $C -o 2 -n 0xffffffff --cdw10=0x007f0002 -l 512 -r -b

# --- the driver deletes its queues when it resets the controller. Its next start writes about 20 entries from
# slot 0, so they survive in the ring of 32 when the admin queue's tail is past that.
ask skip
while [ "$(cat answer)" -lt 24 ] || [ "$(cat answer)" -gt 28 ]; do
  nvme get-feature "$C" -f 7 > last
  ask skip
done
nvme reset "$C"
sleep 1
ask delete-queues

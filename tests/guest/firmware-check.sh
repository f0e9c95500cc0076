#!/bin/bash
# firmware-check.sh - in the guest, on a virtual SSD that is served to it: firmware updated by our commands,
# as docs/real-drives.md says, through the kernel's driver and with the drive taken over.
#
#   firmware-check.sh UNVME        a guest of vfio-user.sh with no IOMMU and no network, so that UIO is the
#                                  way
#
# Reported as check.sh says. $unvme and $drive have no blanks in them.
# shellcheck disable=SC2317,SC2086
set -u -o pipefail
# shellcheck source-path=SCRIPTDIR source=check.sh
. "$(dirname "$0")/check.sh"
unvme=$1 drive=''
export UNVME_HOME=/tmp/unvme

# image REVISION: makes /tmp/image, an image that a virtual SSD takes; of no program's making that is tested
# here.
image() {
  python3 - "$1" <<- 'END'
	import sys, zlib
	image = b"UNVMEFW\0" + sys.argv[1].encode().ljust(8) + bytes(4096 - 20)
	open("/tmp/image", "wb").write(image + zlib.crc32(image).to_bytes(4, "little"))
	END
}

revision() { [ "$($unvme id-ctrl "$1" --output json | python3 -c 'import json, sys; print(json.load(sys.stdin)["fr"].strip())')" = "$2" ]; }

# Downloaded by one program, committed by another; active after a reset.
by_the_kernel() {
  image 3.1
  $unvme fw-log kernel:/dev/nvme0
  $unvme fw-download kernel:/dev/nvme0 --fw /tmp/image | grep 'unvme fw-commit'
  refused 'not confirmed' $unvme fw-commit kernel:/dev/nvme0 --slot 2 --action 1
  $unvme fw-commit kernel:/dev/nvme0 --slot 2 --action 1 --force
  revision kernel:/dev/nvme0 1.0
  $unvme reset kernel:/dev/nvme0
  until_so 10 revision kernel:/dev/nvme0 3.1
  $unvme fw-log kernel:/dev/nvme0 | grep 3.1
  nvme fw-log /dev/nvme0 | grep 3.1
}

wrong_image() {
  head -c 4096 /dev/urandom > /tmp/image
  $unvme fw-download kernel:/dev/nvme0 --fw /tmp/image
  refused 'Invalid Firmware Image' $unvme fw-commit kernel:/dev/nvme0 --slot 3 --action 1 --force
  revision kernel:/dev/nvme0 3.1
}

# In one command, active at once.
taken_over() {
  drive=$(basename "$(readlink -f /sys/class/nvme/nvme0/device)")
  $unvme setup config $drive --driver uio_pci_generic --hugepages 64
  image 3.2
  $unvme fw-download $drive --fw /tmp/image --slot 3 --action 3 --force
  revision $drive 3.2
  $unvme fw-log $drive | grep 3.1
  $unvme perf -r $drive -w randread -q 8 -o 4096 -t 1 | grep IOPS
  $unvme setup reset $drive --hugepages 0
  until_so 20 test -b /dev/nvme0n1
  nvme fw-log /dev/nvme0 | grep 3.2
}

modprobe nvme
until_so 20 test -b /dev/nvme0n1
check 'firmware through the kernel' by_the_kernel
check 'a wrong image' wrong_image
check 'firmware of a drive taken over' taken_over
exit "$failed"

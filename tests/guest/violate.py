#!/usr/bin/env python3
"""violate.py FUNCTION: in the guest, breaks the rules on purpose, so that guest.sh -V can be seen to notice it.

FUNCTION is a PCI address without a driver. Rings the doorbell of a queue that does not exist; then has the controller
fetch a command from an address that nobody mapped, which an IOMMU refuses.
"""

import mmap
import os
import struct
import sys
import time

CC, CSTS, AQA, ASQ, ACQ, DOORBELLS = 0x14, 0x1C, 0x24, 0x28, 0x30, 0x1000
COMMAND_REGISTER, MEMORY_SPACE, BUS_MASTER = 4, 1 << 1, 1 << 2
UNMAPPED = 0x40000000000 - 0x10000
SECONDS = 10

function = f"/sys/bus/pci/devices/{sys.argv[1]}"
with open(f"{function}/config", "r+b", buffering=0) as config:
    config.seek(COMMAND_REGISTER)
    (command,) = struct.unpack("<H", config.read(2))
    config.seek(COMMAND_REGISTER)
    config.write(struct.pack("<H", command | MEMORY_SPACE | BUS_MASTER))
bar = mmap.mmap(os.open(f"{function}/resource0", os.O_RDWR), 0x2000)
words = memoryview(bar).cast("I")


def write(register, value):
    words[register // 4] = value


def ready():
    return words[CSTS // 4] & 1


def wait_until(wanted):
    end = time.monotonic() + SECONDS
    while ready() != wanted:
        if time.monotonic() > end:
            sys.exit(f"violate: CSTS.RDY did not become {wanted}")
        time.sleep(0.01)


write(CC, 0)
wait_until(0)
write(AQA, 0x000F000F)
for register, address in ((ASQ, UNMAPPED), (ACQ, UNMAPPED + 0x1000)):
    write(register, address & 0xFFFFFFFF)
    write(register + 4, address >> 32)
write(CC, 0x00460001)
wait_until(1)
write(DOORBELLS + 8 * 500, 1)
write(DOORBELLS, 1)
time.sleep(0.5)

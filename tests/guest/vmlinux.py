#!/usr/bin/env python3
"""vmlinux.py VMLINUZ OUT: unpacks the ELF kernel from a bzImage (x86 boot protocol 2.08 or later).

QEMU enters the ELF image by PVH, which saves the guest the decompressor: seconds under emulation.
"""

import lzma
import struct
import subprocess
import sys

image = open(sys.argv[1], "rb").read()
setup_sectors = image[0x1F1]
payload_offset, payload_length = struct.unpack_from("<II", image, 0x248)
payload = image[(setup_sectors + 1) * 512 + payload_offset :][:payload_length]
if payload[:4] == b"\xfd7zX":
    kernel = lzma.LZMADecompressor().decompress(payload)
else:
    tool = {b"\x28\xb5\x2f\xfd": "zstd", b"\x02\x21\x4c\x18": "lz4"}.get(payload[:4])
    if tool is None:
        sys.exit(f"vmlinux: {sys.argv[1]}: unknown compression {payload[:4].hex()}")
    # Both tools complain about the size word that follows the stream, so their status says nothing.
    run = subprocess.run([tool, "-dc"], input=payload, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    kernel = run.stdout
if kernel[:4] != b"\x7fELF":
    sys.exit(f"vmlinux: {sys.argv[1]}: the payload is not an ELF image")
open(sys.argv[2], "wb").write(kernel)

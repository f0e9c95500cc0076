#!/usr/bin/env python3
"""Records what QEMU's vfio-user client sends: vfio_user_recorder.py SOCKET OUT

Serves a PCI function with the registers of an NVMe controller that gets ready but answers no command: enough for
QEMU to attach and for Linux's driver to set up its admin queue. Ends when the client hangs up. OUT gets one message
a line: direction (">" from QEMU, "<" our reply), command name, number of file descriptors passed, bytes.
"""

import array
import os
import socket
import struct
import sys

NAMES = {1: "version", 2: "dma-map", 3: "dma-unmap", 4: "device-get-info", 5: "device-get-region-info"}
NAMES |= {6: "device-get-region-io-fds", 7: "device-get-irq-info", 8: "device-set-irqs", 9: "region-read"}
NAMES |= {10: "region-write", 11: "dma-read", 12: "dma-write", 13: "device-reset", 15: "region-write-multi"}
REPLY, NO_REPLY, ERROR = 1, 0x10, 0x20
ENOTSUP = 95
BAR0, CONFIG = 0, 7
BAR0_BYTES, MSIX_TABLE, MSIX_VECTORS = 0x4000, 0x2000, 4
VERSION_JSON = b'{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576,"pgsizes":4096}}\0'


def config_space():
    c = bytearray(256)
    struct.pack_into("<HHHHBBBB", c, 0, 0x1B36, 0x0010, 0, 0x0010, 2, 0x02, 0x08, 0x01)  # class 010802h: NVMe
    struct.pack_into("<I", c, 0x10, 0x4)  # BAR0: memory, 64-bit
    c[0x34] = 0x40
    struct.pack_into("<BBHII", c, 0x40, 0x11, 0, MSIX_VECTORS - 1, MSIX_TABLE, MSIX_TABLE + 0x1000)
    return c


def registers():
    b = bytearray(BAR0_BYTES)
    struct.pack_into("<QI", b, 0, 0x0000_0020_0F01_03FF, 0x0001_0400)  # CAP: 1024 entries, 7.5 s, NVM; VS 1.4
    return b


class Function:
    def __init__(self):
        self.regions = {BAR0: registers(), CONFIG: config_space()}

    def read(self, region, offset, count):
        return bytes(self.regions.get(region, bytearray())[offset : offset + count])

    def write(self, region, offset, data):
        if region == CONFIG and offset in (0x10, 0x14) and len(data) == 4:
            mask = (-BAR0_BYTES & 0xFFFFFFFF, 0xFFFFFFFF)[(offset - 0x10) // 4]
            low = 0x4 if offset == 0x10 else 0
            data = struct.pack("<I", struct.unpack("<I", data)[0] & mask | low)
        store = self.regions[region]
        store[offset : offset + len(data)] = data
        if region == BAR0 and offset == 0x14:
            store[0x1C] = data[0] & 1  # CSTS.RDY follows CC.EN

    def answer(self, command, body):
        """The reply's body, or None for a command this recorder does not serve."""
        if command == 1:
            return struct.pack("<HH", 0, 0) + VERSION_JSON
        if command == 4:
            return struct.pack("<IIII", 16, 0x3, 9, 5)  # reset, PCI; nine regions, five kinds of interrupt
        if command == 5:
            index = struct.unpack_from("<I", body, 8)[0]
            size = len(self.regions.get(index, b""))
            return struct.pack("<IIIIQQ", 32, 3 if size else 0, index, 0, size, 0)
        if command == 7:
            index = struct.unpack_from("<I", body, 8)[0]
            return struct.pack("<IIII", 16, 1, index, MSIX_VECTORS if index == 2 else 0)
        if command == 9:
            offset, region, count = struct.unpack_from("<QII", body)
            return body[:16] + self.read(region, offset, count)
        if command == 10:
            offset, region, count = struct.unpack_from("<QII", body)
            self.write(region, offset, body[16 : 16 + count])
            return body[:16]
        return {2: b"", 3: body, 8: b"", 13: b""}.get(command)


def receive(s, size):
    data, fds = b"", array.array("i")
    while len(data) < size:
        part, ancillary, _, _ = s.recvmsg(size - len(data), socket.CMSG_SPACE(8 * fds.itemsize))
        if not part:
            return None, 0
        data += part
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(payload[: len(payload) // fds.itemsize * fds.itemsize])
    for fd in fds:
        os.close(fd)
    return data, len(fds)


def main():
    path, out = sys.argv[1:]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    s, _ = listener.accept()
    function = Function()
    with open(out, "w") as log:
        log.write("# direction (> from QEMU), command, file descriptors passed with it, bytes\n")
        while True:
            head, fds = receive(s, 16)
            if head is None:
                break
            message, command, size, flags, _ = struct.unpack("<HHIII", head)
            body, more = receive(s, size - 16) if size > 16 else (b"", 0)
            log.write(f"> {NAMES.get(command, command)} {fds + more} {(head + body).hex()}\n")
            reply = function.answer(command, body)
            if flags & NO_REPLY:
                continue
            kind, error = (REPLY, 0) if reply is not None else (REPLY | ERROR, ENOTSUP)
            reply = reply or b""
            answer = struct.pack("<HHIII", message, command, 16 + len(reply), kind, error) + reply
            log.write(f"< {NAMES.get(command, command)} 0 {answer.hex()}\n")
            s.sendall(answer)
    os.unlink(path)


main()

#!/usr/bin/env python3
"""Stands between an NVMe/TCP host and a target, and records the PDUs: tcp_proxy.py LISTEN TARGET OUT

LISTEN and TARGET are ports of 127.0.0.1. A line of OUT is `connection direction name bytes`: connections are numbered from 0 in
the order they were made, `>` goes to the controller and `<` to the host, and the bytes of a PDU are as they went over the wire,
digests and padding included, in the order in which the PDUs were complete. Runs until it is killed.
"""

import selectors
import socket
import struct
import sys

NAMES = {
    0x00: "ic-req",
    0x01: "ic-resp",
    0x02: "h2c-term-req",
    0x03: "c2h-term-req",
    0x04: "capsule-cmd",
    0x05: "capsule-resp",
    0x06: "h2c-data",
    0x07: "c2h-data",
    0x09: "r2t",
}
COMMON_HEADER = 8


class Half:
    """One direction of a connection."""

    def __init__(self, number, direction, source, sink, out):
        self.number, self.direction, self.source, self.sink, self.out = number, direction, source, sink, out
        self.bytes = b""

    def pump(self):
        """Passes on what there is; False when the connection has ended."""
        try:
            data = self.source.recv(1 << 16)
            self.sink.sendall(data)
        except OSError:
            return False
        self.bytes += data
        while len(self.bytes) >= COMMON_HEADER:
            plen = struct.unpack_from("<I", self.bytes, 4)[0]
            if len(self.bytes) < plen:
                break
            pdu, self.bytes = self.bytes[:plen], self.bytes[plen:]
            name = NAMES.get(pdu[0], f"type-{pdu[0]:02x}")
            print(self.number, self.direction, name, pdu.hex(), file=self.out, flush=True)
        return bool(data)


def main():
    listen, target, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    selector = selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", listen))
    selector.register(listener, selectors.EVENT_READ, None)
    connections = 0
    with open(path, "w") as out:
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    host, _ = listener.accept()
                    controller = socket.create_connection(("127.0.0.1", target))
                    for end in (host, controller):
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    for direction, source, sink in ((">", host, controller), ("<", controller, host)):
                        half = Half(connections, direction, source, sink, out)
                        selector.register(source, selectors.EVENT_READ, half)
                    connections += 1
                elif not key.data.pump():
                    for end in (key.data.source, key.data.sink):
                        if end.fileno() >= 0:
                            selector.unregister(end)
                            end.close()


main()

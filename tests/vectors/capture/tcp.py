#!/usr/bin/env python3
"""Captures the NVMe/TCP vectors of the parent folder again: tcp.py OUTDIR

Boots ../../guest/guest.sh and runs tcp.sh in it, where the kernel's host speaks with the kernel's target through tcp_proxy.py,
and keeps of each record what the vectors are for. Identifiers, nonces, public keys and the order of what the kernel does in
parallel are others each time.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
GUEST = os.path.normpath(os.path.join(HERE, "..", "..", "guest", "guest.sh"))
FABRICS, AUTHENTICATION = "7f", ("05", "06")
HEADER = "# connection (1: admin queue), direction (> to the controller), name, PDU\n"


def until_authenticated(pdus):
    """Each connection up to the answer to its last Authentication command; connections without one are left out."""
    last, ended, kept = {}, set(), []
    for i, (connection, direction, name, data) in enumerate(pdus):
        if name == "capsule-cmd" and data[16:18] == FABRICS and data[24:26] in AUTHENTICATION:
            last[connection] = i
    for i, (connection, direction, name, data) in enumerate(pdus):
        if connection not in last or connection in ended:
            continue
        kept.append((connection, direction, name, data))
        if i > last[connection] and name == "capsule-resp":
            ended.add(connection)
    return kept


def main():
    out = os.path.abspath(sys.argv[1])
    os.makedirs(out, exist_ok=True)
    tools = subprocess.run([GUEST, "tools"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="capture.", dir=out) as work:
        script = os.path.join(HERE, "tcp.sh")
        subprocess.run([GUEST, "run", "-d", work, "bash", script, tools, work], check=True)
        for name in sorted(os.listdir(work)):
            with open(os.path.join(work, name)) as f:
                lines = f.readlines()
            if name.endswith(".hex"):
                pdus = [line.split() for line in lines]
                if name.startswith("tcp-auth"):
                    pdus = until_authenticated(pdus)
                lines = [HEADER] + [" ".join(pdu) + "\n" for pdu in pdus]
            with open(os.path.join(out, name), "w") as f:
                f.writelines(lines)


main()

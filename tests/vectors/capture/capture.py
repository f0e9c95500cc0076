#!/usr/bin/env python3
"""Captures the vectors of the parent folder again: capture.py OUTDIR [UNVME]

Boots ../../guest/guest.sh with QEMU's NVMe controller and runs main.sh, inflight.sh and fdp.sh of this folder in it. With
UNVME, our program, it only runs served.sh, in a guest whose kernel drives a virtual SSD that this program serves. At each
checkpoint of a script it reads the queues out of the guest's memory through QMP; the addresses come from QEMU's trace.
Needs qemu-system-x86_64 10.0 or later on PATH (or GUEST_QEMU); with UNVME QEMU 11, which guest.sh fetches. Another version
gives other, equally valid bytes; the tables in ../README.md then change too.
"""

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GUEST = os.path.normpath(os.path.join(HERE, "..", "..", "guest"))
RUN_SECONDS = 400
SQE, CQE = 64, 16
NO_CQE = "-"


class Qmp:
    """QEMU's monitor: enough of it to copy guest memory into a file."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.lines = self.socket.makefile()
        self.lines.readline()
        self.call("qmp_capabilities")

    def call(self, command, **arguments):
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        while True:
            reply = json.loads(self.lines.readline())
            if "error" in reply:
                sys.exit(f"capture: {command}: {reply['error']['desc']}")
            if "return" in reply:
                return reply["return"]

    def memory(self, address, size):
        with tempfile.NamedTemporaryFile() as f:
            self.call("pmemsave", val=address, size=size, filename=f.name)
            return open(f.name, "rb").read()


class Ring:
    """One queue in guest memory, and what was written to it since the last look."""

    def __init__(self, address, entries, size):
        self.address, self.entries, self.size = address, entries, size
        self.seen, self.next = [bytes(size)] * entries, 0

    def fresh(self, qmp):
        raw = qmp.memory(self.address, self.entries * self.size)
        now = [raw[i * self.size : (i + 1) * self.size] for i in range(self.entries)]
        found = []
        while now[self.next] != self.seen[self.next] and len(found) < self.entries:
            found.append(now[self.next])
            self.next = (self.next + 1) % self.entries
        self.seen = now
        return found


class Session:
    """One guest: its rings, the last command of each identifier, and the vectors found so far."""

    def __init__(self, work, out):
        self.work, self.out, self.qmp = work, out, None
        self.rings, self.by_cid, self.pending, self.records, self.memory = {}, {}, {}, [], []

    def trace(self):
        return open(os.path.join(self.work, "trace")).read()

    def find_rings(self):
        """The last ones made are the driver's; the firmware made others before. One virtual CPU: one I/O queue pair."""
        trace = self.trace()
        if "vfio_region_write" in trace:
            self.find_served_rings(trace)
            return
        asq = re.findall(r"mmio_asqaddr_hi .*new_address=0x([0-9a-f]+)", trace)[-1]
        acq = re.findall(r"mmio_acqaddr_hi .*new_address=0x([0-9a-f]+)", trace)[-1]
        attr = int(re.findall(r"mmio_aqattr .*attributes=0x([0-9a-f]+)", trace)[-1], 16)
        found = {(0, SQE): (int(asq, 16), (attr & 0xFFF) + 1), (0, CQE): (int(acq, 16), (attr >> 16) + 1)}
        sqs = re.findall(r"create_sq .*addr=0x([0-9a-f]+), sqid=([1-9]\d*), cqid=\d+, qsize=(\d+)", trace)
        cqs = re.findall(r"create_cq .*addr=0x([0-9a-f]+), cqid=([1-9]\d*), vector=\d+, qsize=(\d+)", trace)
        for size, queues in ((SQE, sqs), (CQE, cqs)):
            address, qid, qsize = queues[-1]
            found[int(qid), size] = (int(address, 16), int(qsize) + 1)
        self.rings = {key: Ring(address, entries, key[1]) for key, (address, entries) in found.items()}

    def find_served_rings(self, trace):
        """Of a controller that another process serves QEMU sees registers only. The rest is in the admin queue."""
        written = re.findall(r"vfio_region_write .*:region0\+0x([0-9a-f]+), 0x([0-9a-f]+), \d", trace)
        register = {int(offset, 16): int(value, 16) for offset, value in written}
        attr = register[0x24]
        asq, acq = (register[offset] | register.get(offset + 4, 0) << 32 for offset in (0x28, 0x30))
        rings = {(0, SQE): (asq, (attr & 0xFFF) + 1), (0, CQE): (acq, (attr >> 16) + 1)}
        admin = self.qmp.memory(asq, rings[0, SQE][1] * SQE)
        for at in range(0, len(admin), SQE):
            opcode, prp1, qid, qsize = struct.unpack_from("<B23xQ8xHH", admin, at)
            if opcode in (0x01, 0x05):
                rings[qid, SQE if opcode == 0x01 else CQE] = (prp1, qsize + 1)
        self.rings = {key: Ring(address, entries, key[1]) for key, (address, entries) in rings.items()}

    def look(self):
        """New completions in order, each with its command: [(qid, sqe, cqe)], then commands without an answer."""
        if not self.rings:
            self.find_rings()
        pairs = []
        for qid in sorted({qid for qid, _ in self.rings}):
            for sqe in self.rings[qid, SQE].fresh(self.qmp):
                self.by_cid[qid, sqe[2:4]] = sqe
                self.pending[qid, sqe[2:4]] = sqe
            for cqe in self.rings[qid, CQE].fresh(self.qmp):
                sqe = self.by_cid.get((qid, cqe[12:14]))
                if sqe is None:
                    sys.exit(f"capture: completion {cqe.hex()} of queue {qid} has no command")
                self.pending.pop((qid, cqe[12:14]), None)
                pairs.append((qid, sqe, cqe))
        return pairs

    def checkpoint(self, words):
        """words: what the guest wrote after a command: NAME QID OPCODE CDW10 CDW12, or an action."""
        pairs = self.look() if words[0] not in ("inflight", "delete-queues") else []
        if words[0] == "bringup":
            self.bringup(pairs)
        elif words[0] == "inflight":
            self.look()
            self.inflight(*words[1:])
        elif words[0] == "delete-queues":
            self.delete_queues()
        elif words[0] != "skip":
            name, want = words[0], [None if w == "-" else int(w, 0) for w in words[1:]]
            for qid, sqe, cqe in pairs:
                dw = struct.unpack("<16I", sqe)
                have = (qid, sqe[0], dw[10], dw[12])
                if all(w is None or w == h for w, h in zip(want, have)):
                    self.records.append((name, qid, sqe, cqe.hex()))
                    break
            else:
                found = "".join(f"\n  queue {q}: {s.hex(' ', 4)}" for q, s, _ in pairs)
                sys.exit(f"capture: no command on the rings fits {' '.join(words)}:{found}")

    def bringup(self, pairs):
        for n, (qid, sqe, cqe) in enumerate(p for p in pairs if p[0] == 0):
            self.records.append((f"bringup-{n:02}", qid, sqe, cqe.hex()))
        for (qid, _), sqe in self.pending.items():
            self.records.append(("bringup-async-event-request", qid, sqe, NO_CQE))
        if "vfio_region_write" not in self.trace():
            self.registers()

    def registers(self):
        buses = self.qmp.call("query-pci")
        roots = [d for bus in buses for d in bus["devices"]]
        devices = roots + [d for root in roots for d in root.get("pci_bridge", {}).get("devices", [])]
        bar = next(d["regions"][0]["address"] for d in devices if d["class_info"]["class"] == 0x0108)
        with open(os.path.join(self.out, "registers.bin"), "wb") as f:
            f.write(self.qmp.memory(bar, 64))

    def inflight(self, name, opcode, cdw10):
        """A command the controller has not answered yet: its entry, and what its data pointer leads to."""
        waiting = [e for (qid, _), e in self.pending.items() if qid == 1]
        fit = [e for e in waiting if e[0] == int(opcode, 0) and struct.unpack_from("<I", e, 40)[0] == int(cdw10, 0)]
        if len(fit) != 1:
            sys.exit(f"capture: {name}: {len(fit)} commands in flight fit, of {[e.hex(' ', 4) for e in waiting]}")
        sqe = fit[0]
        self.records.append((name, 1, sqe, NO_CQE))
        first, second = struct.unpack_from("<QQ", sqe, 24)
        if sqe[0] == 0x09:
            what, address, size = "ranges", first, 16 * (sqe[40] + 1)
        elif sqe[0] == 0x19:
            what, address, size = "ranges", first, 32 * (sqe[48] + 1)
        elif sqe[1] >> 6 == 0:
            blocks = struct.unpack_from("<H", sqe, 48)[0] + 1
            what, address, size = "prp-list", second, 8 * (blocks * 512 // 4096 - 1)
        else:
            what, address, size = "sgl-segment", first, second & 0xFFFFFFFF
        self.memory.append((f"{name}.{what}", address, self.qmp.memory(address, size)))

    def delete_queues(self):
        """After a controller reset the queue entries that deleted the I/O queues are still in the admin ring."""
        ring = self.rings[0, SQE]
        raw = self.qmp.memory(ring.address, ring.entries * SQE)
        entries = [raw[i : i + SQE] for i in range(0, len(raw), SQE)]
        for name, opcode in (("linux-delete-sq", 0x00), ("linux-delete-cq", 0x04)):
            fit = [e for e in entries if e[0] == opcode and e[40:44] == b"\x01\0\0\0" and e not in ring.seen]
            if len(fit) != 1:
                sys.exit(f"capture: {name}: {len(fit)} entries fit")
            self.records.append((name, 0, fit[0], NO_CQE))

    def run(self, script, guest, socket_path, traced, qemu_args):
        for name in (script, "checkpoint.sh"):
            shutil.copy(os.path.join(HERE, name), self.work)
        pattern = bytes((i * 7 + i // 256) & 0xFF for i in range(1 << 18))
        open(os.path.join(self.work, "pattern"), "wb").write(pattern)
        open(os.path.join(self.work, "other"), "wb").write(bytes(b ^ 0xFF for b in pattern))
        qmp = os.path.join(self.work, "qmp")
        args = [a for t in traced for a in ("-trace", t)]
        args += ["-D", os.path.join(self.work, "trace"), "-qmp", f"unix:{qmp},server=on,wait=off", *qemu_args]
        command = [*guest, "-d", self.work, "-t", str(RUN_SECONDS)]
        command += [w for a in args for w in ("-q", a)] + socket_path + [f"bash ./{script}"]
        env = os.environ if socket_path else {"GUEST_QEMU": "qemu-system-x86_64", **os.environ}
        guest = subprocess.Popen(command, env=env, start_new_session=True)
        ask, answer = os.path.join(self.work, "ask"), os.path.join(self.work, "answer")
        try:
            while guest.poll() is None:
                if os.path.exists(ask):
                    self.qmp = self.qmp or Qmp(qmp)
                    words = open(ask).read().split()
                    os.unlink(ask)
                    self.checkpoint(words)
                    with open(answer + ".new", "w") as f:
                        print(self.rings[0, SQE].next, file=f)
                    os.rename(answer + ".new", answer)
                time.sleep(0.02)
        finally:
            if guest.poll() is None:
                os.killpg(guest.pid, signal.SIGTERM)
        if guest.returncode != 0:
            sys.exit(f"capture: {script}: exit code {guest.returncode}")


def write_records(path, records):
    with open(path, "w") as f:
        f.write("# name, queue, submission queue entry (64 bytes), completion queue entry (16 bytes, or -)\n")
        for name, qid, sqe, cqe in records:
            f.write(f"{name} {qid} {sqe.hex()} {cqe}\n")


def write_memory(path, memory):
    with open(path, "w") as f:
        f.write("# name, guest-physical address, bytes\n")
        for name, address, data in memory:
            f.write(f"{name} 0x{address:x} {data.hex()}\n")


def session(out, script, kind, qemu_args=()):
    with tempfile.TemporaryDirectory(prefix="capture.") as work:
        s = Session(work, out)
        os.mkdir(os.path.join(work, "out"))
        guest = [os.path.join(GUEST, "guest.sh"), "run", "-n", kind]
        s.run(script, guest, [], ["pci_nvme_mmio_*", "pci_nvme_create_*q"], qemu_args)
        for name in os.listdir(os.path.join(work, "out")):
            shutil.copy(os.path.join(work, "out", name), out)
        return s


def served(out, unvme):
    """What Linux and nvme-cli send our controller. Its answers are ours, and no vectors."""
    with tempfile.TemporaryDirectory(prefix="capture.") as work:
        socket_path = os.path.join(work, "drive")
        server = subprocess.Popen([unvme, "serve", "mem:block:256M", "--socket", socket_path], stdout=subprocess.DEVNULL)
        try:
            s = Session(work, out)
            os.mkdir(os.path.join(work, "out"))
            s.run("served.sh", [os.path.join(GUEST, "vfio-user.sh")], [socket_path], ["vfio_region_write"], [])
            shutil.copy(os.path.join(work, "out", "versions.txt"), os.path.join(out, "versions-served.txt"))
        finally:
            server.terminate()
            server.wait()
    write_records(os.path.join(out, "served.hex"), [(name, qid, sqe, NO_CQE) for name, qid, sqe, _ in s.records])


def second_namespace(backend):
    device = "nvme-ns,drive=nb,bus=nvme0,nsid=2,logical_block_size=4096,physical_block_size=4096"
    return ["-blockdev", backend, "-device", device]


def main():
    out = os.path.abspath(sys.argv[1])
    os.makedirs(out, exist_ok=True)
    if len(sys.argv) > 2:
        served(out, sys.argv[2])
        return
    with tempfile.NamedTemporaryFile() as image:
        image.truncate(1 << 30)
        backend = f"file,node-name=nb,discard=unmap,filename={image.name}"
        main_run = session(out, "main.sh", "plain", second_namespace(backend))
    throttle = "throttle-group,id=tg,x-iops-total=1,x-iops-size=16384"
    slow = ["-object", throttle, "-blockdev", "null-co,node-name=n0,size=1073741824,discard=unmap"]
    slow += ["-blockdev", "throttle,node-name=nb,throttle-group=tg,file=n0,discard=unmap"]
    slow += ["-device", "nvme-ns,drive=nb,bus=nvme0,nsid=2"]
    slow_run = session(out, "inflight.sh", "plain", slow)
    fdp_run = session(out, "fdp.sh", "fdp")
    bringup = [r for r in main_run.records if r[0].startswith("bringup")]
    linux = [r for r in main_run.records + slow_run.records if r[0].startswith("linux")]
    errors = [r for r in main_run.records if r[0].startswith("error")]
    rest = [r for r in main_run.records + slow_run.records if r not in bringup + linux + errors]
    files = {"linux-bringup": bringup, "linux": linux, "nvme-cli": rest, "errors": errors, "fdp": fdp_run.records}
    for name, records in files.items():
        write_records(os.path.join(out, name + ".hex"), records)
    write_memory(os.path.join(out, "memory.hex"), main_run.memory + slow_run.memory + fdp_run.memory)


main()

#!/usr/bin/env python3
"""bench-rows.py FOLDER JSON PARTS [smoke]: the rows of bench-vm.sh from what its guests measured in FOLDER.

PARTS are io, db or both, with a comma.

Prints a table as `make bench` does and writes the rows to JSON in the same shape. A figure below its target is printed as
such; the exit code is not 0 only when a measurement is missing.
"""

import json
import re
import sys
from itertools import chain
from pathlib import Path
from statistics import median

# id, what is measured, unit, target, which way is better
ROWS = {
    "vm.vfio.qd1": ("x", 4.5, "higher"),
    "vm.vfio.qd32": ("x", 8.0, "higher"),
    "vm.uring.vs_fio": ("x", 1.0, "higher"),
    "vm.instructions": ("insn", 250.0, "lower"),
    "vm.kernel_on_ours": ("x", 1.0, "higher"),
    "vm.wtperf": ("x", 1.11, "higher"),
    "vm.ycsb_a": ("x", 1.11, "higher"),
}


def rate(path):
    """Operations per second of a fio, unvme or database result."""
    result = json.loads(path.read_text())
    if "phases" in result:
        return result["phases"][-1]["per_second"]
    if "jobs" in result:
        return result["jobs"][0]["read"]["iops"]
    return result["points"][0]["total"]["iops"]


def rates(folder, side):
    """The rates of one side, round by round; round 0 only warms up."""
    found = {int(path.name.split(".")[0]): path for path in folder.glob(f"*.{side}.json")}
    counted = [rate(found[number]) for number in sorted(found) if number > 0]
    if not counted:
        sys.exit(f"bench-rows: no measurement of {side} in {folder}")
    return counted


def ratio(folder, ours, theirs):
    """The median of the rounds' ratios, and a note with both sides and the spread."""
    first, second = rates(folder, ours), rates(folder, theirs)
    all_ratios = [a / b for a, b in zip(first, second)]
    note = (
        f"{median(first) / 1e3:.1f} / {median(second) / 1e3:.1f} k/s, "
        f"rounds {min(all_ratios):.2f} to {max(all_ratios):.2f}"
    )
    return median(all_ratios), note


def waited(path):
    """A note of how long the served SSD's thread waited for a processor: what it waits, commands wait."""
    fields = path.read_text().split() if path.exists() else []
    if len(fields) < 2:
        return "no scheduler statistics of the server"
    ran, lacked = int(fields[0]), int(fields[1])
    return f"the server waited for its processor {100 * lacked / max(ran + lacked, 1):.0f} % of the time"


def measure_io(folder):
    """Value and note of each row of the first three guests."""
    yield "vm.vfio.qd1", *ratio(folder, "ours.qd1", "fio.qd1")
    yield "vm.vfio.qd32", *ratio(folder, "ours.qd32", "fio.passthrough")
    yield "vm.uring.vs_fio", *ratio(folder, "ours.passthrough", "fio.passthrough")
    counted = re.findall(r"median (\d+), mean ([\d.]+), min (\d+)", (folder / "instructions.txt").read_text())
    if len(counted) != 2:
        sys.exit("bench-rows: the counter of instructions has not seen both paths")
    (queue, mean, least), (block, _, _) = counted
    note = f"median through Queue (mean {mean}, min {least}); {block} through BlockQueue"
    yield "vm.instructions", float(queue), note
    depths = {depth: ratio(folder, f"kernel.ours.qd{depth}", f"kernel.qemu.qd{depth}") for depth in (1, 32)}
    note = "; ".join(f"depth {depth}: {value:.2f} ({text})" for depth, (value, text) in depths.items())
    note += "; " + waited(folder / "served.txt")
    yield "vm.kernel_on_ours", min(value for value, _ in depths.values()), note


# What the runs that are counted differ by: FEW and MANY of bench-db.sh.
COUNTED_OPERATIONS = 10000


def instructions(folder):
    """Notes of what an operation takes, in thousands of instructions, for wtperf and ycsb; none of a smoke run."""
    counted = folder / "database-instructions.txt"
    if not counted.exists():
        return "", ""
    found = re.findall(r"path (\d+): .* median (\d+), mean .*; median (\d+) of them", counted.read_text())
    paths = {int(path): (int(every), int(kernel)) for path, every, kernel in found}
    if sorted(paths) != list(range(8)):
        sys.exit("bench-rows: the counter of instructions has not seen all runs of databases")
    each = [
        [(many - few) / COUNTED_OPERATIONS / 1e3 for few, many in zip(paths[first], paths[first + 1])]
        for first in range(0, 8, 2)
    ]
    return tuple(
        f"; {ours[0]:.1f} / {theirs[0]:.1f} k instructions an operation, {ours[1]:.1f} / {theirs[1]:.1f} in the kernel: "
        f"{theirs[0] / ours[0]:.2f} x"
        for theirs, ours in (each[:2], each[2:])
    )


def measure_db(folder):
    """Value and note of each row of the guests with databases."""
    for what, counts in zip(("wtperf", "ycsb_a"), instructions(folder)):
        value, note = ratio(folder, f"{what}.ours", f"{what}.kernel")
        yield f"vm.{what}", value, note + counts


def main():
    folder, target, parts = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].split(",")
    smoke = "smoke run, too short to mean anything; " if sys.argv[4:] == ["smoke"] else ""
    where = " ".join((folder / "about.txt").read_text().split())
    rows = []
    print(f"{'id':<25} {'value':>8} {'unit':<6} {'target':>9}  {'':<5}  note")
    lacks = folder / "lacks.txt"
    measures = {"io": measure_io, "db": measure_db}
    if lacks.exists():
        del measures["db"]
        for name in ("vm.wtperf", "vm.ycsb_a"):
            print(f"{name:<25} skipped: {lacks.read_text().strip()}")
    for name, value, note in chain.from_iterable(measures[part](folder) for part in parts if part in measures):
        unit, limit, better = ROWS[name]
        reached = value >= limit if better == "higher" else value <= limit
        sign, verdict = (">=" if better == "higher" else "<="), ("ok" if reached else "BELOW")
        note = f"{smoke}{note}; {where}"
        rows.append(
            {"id": name, "value": value, "unit": unit, "target": limit, "better": better, "note": note}
        )
        limit_text = f"{sign} {limit:g}"
        print(f"{name:<25} {value:>8.3f} {unit:<6} {limit_text:>9}  {verdict:<5}  {note}")
    print(f"\nAll of this ran in a guest of {where}: ratios and counts of one machine, not rates of hardware.")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(rows, indent=2) + "\n")
    print(target)


main()

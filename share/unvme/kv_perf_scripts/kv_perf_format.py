#!/usr/bin/env python3
"""Formats the device. Destroys its data."""

from kv_perf_run import run

PCI_ADDRESS = "0000:02:00.0"

if __name__ == "__main__":
    output = run(["-z", "-d", PCI_ADDRESS])
    print(*(line for line in output.splitlines() if line.startswith("Successfully formatted")), sep="\n")

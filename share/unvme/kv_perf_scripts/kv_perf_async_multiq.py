#!/usr/bin/env python3
"""A thread on each of two asynchronous queues."""

import kv_perf_run as kv_perf

PCI_ADDRESS = "0000:02:00.0"
NUM_KEYS = 10000
# One of WRITE_READ_DELETE, WRITE_READ, ONLY_WRITE, ONLY_READ of kv_perf_run.
WORKLOAD = kv_perf.WRITE_READ_DELETE

if __name__ == "__main__":
    kv_perf.measure(
        WORKLOAD,
        PCI_ADDRESS,
        NUM_KEYS,
        core_mask="3",
        sync_mask="0",
        distributions=[("sequential", kv_perf.SEQ_INC), ("random", kv_perf.RAND)],
    )

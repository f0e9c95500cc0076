#!/usr/bin/env python3
"""Runs kv_db_bench with one benchmark after the other, on the device of kv_sdk_sync_config.json beside this file.

    run_kv_db_bench.py [NUM [VALUE_SIZE [THREADS]]]    default: 1000000 4096 1

kv_db_bench is the program of that name on the PATH, or what the environment variable KV_DB_BENCH names.
"""

import os
import re
import subprocess
import sys

# Those that read or delete have something to find: each runs behind what stores it.
BENCHMARKS = ["fillseq", "readseq", "readrandom", "deleteseq", "fillrandom", "readrandom", "deleterandom", "filluniquerandom"]

FOLDER = os.path.dirname(os.path.abspath(__file__))


def run(benchmark, num, value_size, threads):
    """Runs one; returns its line of results, or ends the script with what went wrong."""
    program = os.environ.get("KV_DB_BENCH", "kv_db_bench")
    command = [program, "-benchmarks", benchmark, "-num", num, "-key_size", "16", "-value_size", value_size]
    command += ["-threads", threads, "-histogram", "-disable_wal", "-kv_async"]
    if not benchmark.startswith("fill"):
        command.append("-use_existing_db")
    print("$", *command, flush=True)
    try:
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"{program}: {error}")
    found = re.search(rf"^{benchmark} +: .*$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or found is None:
        sys.exit(done.stderr or done.stdout)
    percentiles = re.search(r"^Percentiles: .*$", done.stdout, re.MULTILINE)
    return [found.group(0)] + ([percentiles.group(0)] if percentiles else [])


def main():
    words = sys.argv[1:]
    if len(words) > 3 or not all(word.isdecimal() and int(word) > 0 for word in words):
        sys.exit(__doc__.strip())
    num, value_size, threads = words + ["1000000", "4096", "1"][len(words):]
    for benchmark in BENCHMARKS:
        for line in run(benchmark, num, value_size, threads):
            print(" ", line)


main()

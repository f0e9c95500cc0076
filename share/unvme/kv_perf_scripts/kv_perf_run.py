"""Runs kv_perf and reads its lines: what the scripts beside this file have in common.

kv_perf is the program of that name on the PATH, or what the environment variable KV_PERF names.
"""

import os
import subprocess
import sys

# Workloads.
WRITE_READ_DELETE = ["-w", "-r", "-e"]
WRITE_READ = ["-w", "-r"]
ONLY_WRITE = ["-w"]
ONLY_READ = ["-r"]

# Key distributions.
SEQ_INC = "0"
RAND = "4"

# The configuration that all scripts start from, beside this file.
CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kv_perf_default_config.json")


def run(arguments):
    """Runs kv_perf; returns its output, or ends the script with what went wrong."""
    command = [os.environ.get("KV_PERF", "kv_perf"), "-j", CONFIG, *arguments]
    print("$", *command, flush=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"{command[0]}: {error}")
    if done.returncode != 0:
        sys.exit(done.stderr or done.stdout)
    return done.stdout


def results(output):
    """The last lines about each device: {(device, "Write"): operations per second}."""
    found = {}
    for line in output.splitlines():
        fields = line.split(":")
        if len(fields) == 4 and " Device's " in line:
            device, test = line.split(" Device's ")
            found[device, test.split(" OPS/sec")[0]] = float(fields[3])
    return found


def figures(output, name):
    """The numbers behind each `name: number`, such as "Miscompare count" or "[WRITE] Total Value Size"."""
    lines = (line.split(":", 1) for line in output.splitlines() if line.startswith(name + ":"))
    return [float(rest.split()[0]) for _, rest in lines]


def report(title, output):
    """Prints what a run came to."""
    print(title)
    for (device, test), ops in results(output).items():
        if ops > 0:
            print(f"  {device} {test}: {ops:.2f} operations per second")
    for name in ("[WRITE] Total Value Size", "Miscompare count"):
        for number in figures(output, name):
            print(f"  {name}: {number:.0f}")


def measure(workload, address, num_keys, core_mask, sync_mask, distributions, value_size="4096"):
    """One run for each key distribution."""
    for name, distribution in distributions:
        output = run([
            *workload, "-d", address, "-c", core_mask, "-s", sync_mask, "-q", core_mask,
            "-n", str(num_keys), "-v", value_size, "-p", distribution,
        ])
        report(name, output)

#!/usr/bin/env bash
# Independent sweeps beside `unvme advise`: the placement of one device that it names is measured by `unvme
# perf` among all sets of CPUs (of more than 4 CPUs: each one, and the first n), and its configuration by
# `sdk_perf_async` among all masks.
#
#   tests/advise.sh UNVME [DEVICE]
#
# Exit code 0: both are within 3 % and 10 % of the best; 3: the machine was not quiet enough for advice; 1:
# they are not. It measures, so it is no part of `make test`. The sweep of masks is of all that 2 CPUs have,
# of more CPUs of the first 3; its programs are short, so it is judged less strictly.
set -euo pipefail
unvme=$(readlink -f "$1")
device=${2:-mem:block:1G}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for try in 1 2 3; do
  status=0
  "$unvme" advise "$device" --repeat 15 --json advise.json --config sdk.json >advise.txt 2>err || status=$?
  if [ "$status" = 0 ]; then break; fi
  cat err >&2
  if [ "$status" != 1 ]; then exit 1; fi
  if [ "$try" = 3 ]; then exit 3; fi
done
exec python3 - "$unvme" "$device" <<'PYTHON'
import itertools, json, statistics, subprocess, sys

unvme, device = sys.argv[1:]
advice = json.load(open("advise.json"))

def cpus(text):
    runs = [part.split("-") for part in text.split(",")]
    return [cpu for run in runs for cpu in range(int(run[0]), int(run[-1]) + 1)]

usable = cpus(advice["topology"]["usable"])
if len(usable) <= 4:
    subsets = [s for n in range(1, len(usable) + 1) for s in itertools.combinations(usable, n)]
else:
    subsets = [(cpu,) for cpu in usable] + [tuple(usable[:n]) for n in range(2, len(usable) + 1)]
listed = [",".join(map(str, subset)) for subset in subsets]
depth = str(advice["depth"])
out = subprocess.run([unvme, "perf", "-r", device, "-q", depth, "-t", "0.2", "--repeat", "15", "--matrix",
                      "cores=" + ";".join(listed), "--output", "json"], check=True, capture_output=True, text=True)
points = {point["settings"][0]["value"]: point["spread"]["iops"]["median"] for point in json.loads(out.stdout)["points"]}
rates = {}
for choice, judged in zip(advice["plan"]["choices"], advice["judged"]):
    if choice["kind"] in ("cpu", "queues"):
        for alternative, own in zip(choice["alternatives"], judged):
            layout = advice["plan"]["cases"][alternative["case"]]["layout"]
            rates[",".join(str(placed["submit"]) for placed in layout)] = own["iops"]["median"]
named = max(rates, key=rates.get)
best = max(points, key=points.get)
for value, rate in sorted(points.items(), key=lambda point: -point[1]):
    print(f"  perf, CPUs {value}: {rate / 1e6:.2f} M IOPS" + (" <- advised" if value == named else ""))
ratio = points[named] / points[best]
print(f"advised CPUs {named}: {100 * ratio:.1f} % of the best of {len(points)} ({best})")

config = json.load(open("sdk.json"))
own = config["device_description"][0]
masks = [1 << cpu for cpu in range(min(3, len(usable)))]
sets = [sum(s) for n in range(1, len(masks) + 1) for s in itertools.combinations(masks, n)]
advised = (int(own["core_mask"], 16), int(own["cq_thread_mask"], 16))
placements = sorted({advised} | set(itertools.product(sets, sets)))
rates = {placement: [] for placement in placements}
for _ in range(9):
    for placement in placements:
        own["core_mask"], own["cq_thread_mask"] = (f"{mask:x}" for mask in placement)
        json.dump(config, open("one.json", "w"))
        out = subprocess.run([unvme, "sdk_perf_async", "--config", "one.json", "--num-keys", "30000", "--output", "json"],
                             check=True, capture_output=True, text=True)
        phases = json.loads(out.stdout)["phases"]
        rates[placement] += [phase["ops_per_second"] for phase in phases if phase["name"].endswith("multi_retrieve")]
middle = {placement: statistics.median(all) for placement, all in rates.items()}
best = max(middle, key=middle.get)
for placement, rate in sorted(middle.items(), key=lambda one: -one[1]):
    core, complete = placement
    print(f"  core_mask {core:x}, cq_thread_mask {complete:x}: {rate / 1e6:.2f} M reads/s" + (" <- advised" if placement == advised else ""))
masks = middle[advised] / middle[best]
print(f"advised masks: {100 * masks:.1f} % of the best of {len(middle)}")
sys.exit(0 if ratio >= 0.97 and masks >= 0.90 else 1)
PYTHON

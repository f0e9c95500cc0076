#!/usr/bin/env python3
"""What run.sh has measured, as a table, as a page with plots, which needs nothing else, and as JSON.

    report.py RESULTS PAGE [JSON]

RESULTS has SIDE.WORKLOAD.ROUND.json of ycsb_wt or .txt of YCSB, and `conditions`.
"""

import html
import json
import math
import pathlib
import re
import statistics
import sys
import time

# The kernel's side and ours: their names, and the colours of the reports of `unvme perf`, for light and dark.
SIDES = {"kernel": "ext4", "unvme": "unvme"}
QUANTILES = {"p50_us": "50 %", "p95_us": "95 %", "p99_us": "99 %", "p999_us": "99.9 %"}
# What YCSB calls what ycsb_wt calls otherwise.
YCSB_NAMES = {"50th": "p50_us", "95th": "p95_us", "99th": "p99_us", "99.9": "p999_us", "Average": "mean_us"}

STYLE = """
:root { color-scheme: light dark; --page: #f6f6f3; --surface: #fcfcfb; --ink: #16160f; --soft: #55544d; --grid: #e6e5df;
  --axis: #bfbeb5; --edge: #e2e1da; --accent: #1f5fae; --kernel: #84837a; --unvme: #2a78d6; }
@media (prefers-color-scheme: dark) { :root { --page: #0f0f0e; --surface: #1a1a19; --ink: #f3f3ee; --soft: #bdbcb3;
  --grid: #2b2b28; --axis: #53534d; --edge: #2e2e2b; --accent: #6da9ef; --kernel: #8d8c83; --unvme: #3987e5; } }
* { box-sizing: border-box; margin: 0; }
body { background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 1220px; margin: 0 auto; padding: 44px 24px 64px; }
.kicker { color: var(--accent); font-weight: 600; font-size: 14px; }
h1 { font-size: 30px; line-height: 1.2; margin: 4px 0 10px; }
.result { font-size: 20px; line-height: 1.35; max-width: 52em; margin-bottom: 28px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(340px, 100%), 1fr)); gap: 16px; }
figure { background: var(--surface); border: 1px solid var(--edge); border-radius: 8px; padding: 16px; min-width: 0; }
figure.wide { grid-column: 1 / -1; }
h2 { font-size: 17px; margin: 32px 0 10px; }
h3 { font-size: 16px; line-height: 1.3; }
.note { color: var(--soft); font-size: 13px; }
.legend { list-style: none; padding: 0; display: flex; gap: 16px; font-size: 13px; color: var(--soft); margin-bottom: 12px; }
.legend li::before { content: ""; display: inline-block; width: 18px; border-top: 3px solid var(--colour); margin-right: 6px;
  vertical-align: middle; }
svg { display: block; width: 100%; height: auto; margin-top: 8px; }
svg text { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
svg text.strong { fill: var(--ink); font-weight: 600; }
.grid { stroke: var(--grid); } .axis { stroke: var(--axis); } .range { stroke: var(--ink); stroke-width: 1.5; }
.bar.kernel, .dot.kernel { fill: var(--kernel); } .bar.unvme, .dot.unvme { fill: var(--unvme); }
.line { fill: none; stroke-width: 2; } .line.kernel { stroke: var(--kernel); } .line.unvme { stroke: var(--unvme); }
.scroll { overflow-x: auto; background: var(--surface); border: 1px solid var(--edge); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 10px; white-space: nowrap; }
thead th { color: var(--soft); border-bottom: 1px solid var(--axis); }
th:first-child, td:first-child { text-align: left; font-weight: 400; }
tbody tr + tr > * { border-top: 1px solid var(--grid); }
"""


def fail(message):
    sys.exit(f"report.py: {message}")


def read_own(path):
    """Rate and latencies of the last phase of ycsb_wt's JSON."""
    phase = json.loads(path.read_text())["phases"][-1]
    latencies = {name: found for name, found in phase["latency"].items() if name != "all"}
    return {"per_second": phase["per_second"], "seconds": phase["seconds"], "latency": latencies}


def read_ycsb(path):
    """The same of YCSB's lines: [READ], 50thPercentileLatency(us), 12. What was read before is not counted."""
    latencies, count, run_ms, warm_ms = {}, 0, 0.0, 0.0
    for kind, name, value in re.findall(r"^\[([A-Z-]+)\], (.+), ([0-9.]+)$", path.read_text(), re.MULTILINE):
        if name == "RunTime(ms)":
            run_ms, warm_ms = (float(value), warm_ms) if kind == "OVERALL" else (run_ms, float(value))
        elif kind in ("READ", "UPDATE", "INSERT", "SCAN", "READ-MODIFY-WRITE"):
            found = latencies.setdefault(kind.lower(), {})
            if name.startswith("Return=") and name != "Return=OK":
                fail(f"{path.name}: {value} times {kind} {name}")
            if name == "Operations":
                found["count"] = int(value)
            elif name.startswith("MaxLatency"):
                found["max_us"] = float(value)
            for word, key in YCSB_NAMES.items():
                if name.startswith(word) and "Latency" in name:
                    found[key] = float(value)
    # What is written in a read-modify-write is counted as an update, too.
    written_again = latencies.get("read-modify-write", {}).get("count", 0)
    count = sum(found.get("count", 0) for found in latencies.values()) - 2 * written_again
    seconds = (run_ms - warm_ms) / 1e3
    if count <= 0 or seconds <= 0:
        fail(f"{path.name}: there is no result in it")
    latencies = {name: found for name, found in latencies.items() if found.get("count")}
    return {"per_second": count / seconds, "seconds": seconds, "latency": latencies}


def read_all(folder):
    """{workload: {side: [round, ...]}}, and the conditions."""
    found = {}
    for path in sorted(folder.iterdir()):
        parts = path.name.split(".")
        if len(parts) != 4 or parts[1] == "load":
            continue
        side, workload, number, kind = parts
        if kind == "txt" and path.with_suffix(".json").exists():
            continue
        result = read_own(path) if kind == "json" else read_ycsb(path)
        found.setdefault(workload, {}).setdefault(side, {})[int(number)] = result
    conditions = [tuple(line.split("\t", 1)) for line in (folder / "conditions").read_text().splitlines()]
    workloads = {}
    for workload, sides in sorted(found.items()):
        if set(sides) != set(SIDES) or set(sides["kernel"]) != set(sides["unvme"]):
            fail(f"workload {workload}: both sides are needed, and as many rounds of each")
        workloads[workload] = summary({side: [rounds[number] for number in sorted(rounds)] for side, rounds in sides.items()})
    if not workloads:
        fail(f"{folder}: there are no results")
    return workloads, conditions


def summary(sides):
    """Medians: of the rates, of the rounds' ratios, and of each quantile."""
    rates = {side: [each["per_second"] for each in rounds] for side, rounds in sides.items()}
    ratios = [ours / theirs for ours, theirs in zip(rates["unvme"], rates["kernel"])]
    latency = {}
    for side, rounds in sides.items():
        for operation in rounds[0]["latency"]:
            found = [each["latency"][operation] for each in rounds if operation in each["latency"]]
            keys = ["mean_us", *QUANTILES, "max_us"]
            latency.setdefault(operation, {})[side] = {key: statistics.median(one[key] for one in found) for key in keys}
    return {
        "per_second": {side: statistics.median(each) for side, each in rates.items()},
        "rates": rates,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "latency": latency,
    }


def short(value):
    """12300 as 12.3 k."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def table(workloads):
    """Lines of text."""
    yield f"{'workload':<9} {'ext4 ops/s':>12} {'unvme ops/s':>12} {'ratio':>7}   {'operation':<18} p50, p99 us: ext4 / unvme"
    for workload, found in workloads.items():
        head = f"{workload:<9} {found['per_second']['kernel']:>12.0f} {found['per_second']['unvme']:>12.0f} {found['ratio']:>7.3f}"
        for operation, sides in found["latency"].items():
            pairs = [f"{sides['kernel'][key]:.1f} / {sides['unvme'][key]:.1f}" for key in ("p50_us", "p99_us")]
            yield f"{head}   {operation:<18} {', '.join(pairs)}"
            head = " " * len(head)


def text(x, y, words, anchor="middle", strong=False):
    kind = ' class="strong"' if strong else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{html.escape(words)}</text>'


def line(kind, x1, y1, x2, y2):
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def step(top):
    """A round distance between lines of a grid that ends above `top`."""
    size = 10 ** math.floor(math.log10(top))
    return next(size * factor for factor in (0.1, 0.2, 0.5, 1, 2, 5) if top / (size * factor) <= 6)


def rates_plot(workloads):
    """Bars of both sides for each workload, with the least and the greatest of the rounds."""
    width, height, left, base = 1132, 340, 64, 300
    top = max(max(rates) for found in workloads.values() for rates in found["rates"].values()) * 1.12
    scale = (base - 24) / top
    parts, tick = [], 0.0
    while tick <= top:
        parts += [line("grid" if tick else "axis", left, base - tick * scale, width, base - tick * scale)]
        parts += [text(left - 8, base - tick * scale + 4, short(tick), "end")]
        tick += step(top)
    room = (width - left) / len(workloads)
    bar = min(room * 0.3, 90)
    for index, (workload, found) in enumerate(workloads.items()):
        middle = left + room * (index + 0.5)
        for side, x in (("kernel", middle - bar - 3), ("unvme", middle + 3)):
            rate, all_rates = found["per_second"][side], found["rates"][side]
            tip = html.escape(f"{SIDES[side]}, workload {workload}: {rate:,.0f} operations per second")
            parts += [
                f'<rect class="bar {side}" x="{x:.1f}" y="{base - rate * scale:.1f}" width="{bar:.1f}"'
                f' height="{rate * scale:.1f}" rx="2"><title>{tip}</title></rect>',
                line("range", x + bar / 2, base - min(all_rates) * scale, x + bar / 2, base - max(all_rates) * scale),
            ]
        highest = max(max(rates) for rates in found["rates"].values())
        parts += [text(middle, base - highest * scale - 8, f"{found['ratio']:.2f} x", strong=True)]
        parts += [text(middle, base + 22, f"workload {workload.upper()}")]
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="Operations per second">{"".join(parts)}</svg>'


def latency_plot(sides, title):
    """Quantiles of both sides, with a logarithm's scale."""
    width, height, left, base = 360, 250, 52, 212
    values = [sides[side][key] for side in sides for key in QUANTILES]
    low = math.floor(math.log10(max(min(values), 0.01)))
    high = max(math.ceil(math.log10(max(max(values), 0.02))), low + 1)
    scale = (base - 16) / (high - low)
    parts = []
    for power in range(low, high + 1):
        y = base - (power - low) * scale
        parts += [line("axis" if power == low else "grid", left, y, width, y), text(left - 8, y + 4, f"{10.0 ** power:g}", "end")]
    places = [left + (width - left) * (index + 0.5) / len(QUANTILES) for index in range(len(QUANTILES))]
    for x, name in zip(places, QUANTILES.values()):
        parts += [text(x, base + 22, name)]
    for side, found in sides.items():
        points = [(x, base - (math.log10(max(found[key], 0.01)) - low) * scale) for x, key in zip(places, QUANTILES)]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts += [f'<polyline class="line {side}" points="{joined}"/>']
        for (x, y), (key, name) in zip(points, QUANTILES.items()):
            tip = html.escape(f"{SIDES[side]}, {name} of them: at most {found[key]:.1f} us")
            parts += [f'<circle class="dot {side}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{tip}</title></circle>']
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(title)}">{"".join(parts)}</svg>'


def page(workloads, conditions):
    legend = "".join(f'<li style="--colour: var(--{side})">{name}</li>' for side, name in SIDES.items())
    ratios = ", ".join(f"{found['ratio']:.2f} in workload {workload.upper()}" for workload, found in workloads.items())
    out = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        f'<link rel="icon" href="data:,">\n<title>YCSB on WiredTiger</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n'
        f'<p class="kicker">{html.escape(dict(conditions).get("generator", "YCSB"))}</p>\n<h1>YCSB on ext4 and on unvme</h1>\n'
        f'<p class="result">Operations per second of the same program on unvme, divided by those on ext4: {ratios}.</p>\n'
        f'<ul class="legend">{legend}</ul>\n<section class="charts">\n'
        '<figure class="wide"><h3>Operations per second</h3><p class="note">Medians; the lines show the least and the greatest of '
        f"the measurements, the numbers the median of their ratios.</p>{rates_plot(workloads)}</figure>\n"
    ]
    for workload, found in workloads.items():
        for operation, sides in found["latency"].items():
            title = f"Workload {workload.upper()}: {operation}"
            out += [f'<figure><h3>{title}</h3><p class="note">Latency in us of so many of them</p>{latency_plot(sides, title)}</figure>\n']
    out += ["</section>\n<h2>Latencies in us</h2>\n<div class=\"scroll\"><table><thead><tr><th>workload, operation, side</th>"]
    out += [f"<th>{name}</th>" for name in ("mean", *QUANTILES.values(), "most")] + ["</tr></thead><tbody>\n"]
    for workload, found in workloads.items():
        for operation, sides in found["latency"].items():
            for side, values in sides.items():
                cells = "".join(f"<td>{values[key]:,.1f}</td>" for key in ("mean_us", *QUANTILES, "max_us"))
                out += [f"<tr><th>{workload.upper()}, {operation}, {SIDES[side]}</th>{cells}</tr>\n"]
    out += ["</tbody></table></div>\n<h2>Conditions</h2>\n<div class=\"scroll\"><table><tbody>\n"]
    for key, value in [*conditions, ("measured", time.strftime("%Y-%m-%d %H:%M"))]:
        out += [f'<tr><th>{html.escape(key)}</th><td style="text-align: left">{html.escape(value)}</td></tr>\n']
    out += ["</tbody></table></div>\n</main>\n</body>\n</html>\n"]
    return "".join(out)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    workloads, conditions = read_all(pathlib.Path(sys.argv[1]))
    print("\n".join(table(workloads)))
    pathlib.Path(sys.argv[2]).write_text(page(workloads, conditions))
    print(f"\n{sys.argv[2]}")
    if len(sys.argv) == 4:
        data = {"conditions": dict(conditions), "workloads": workloads}
        pathlib.Path(sys.argv[3]).write_text(json.dumps(data, indent=2) + "\n")


main()

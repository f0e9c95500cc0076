//! Workloads of `unvme perf` beyond reads and writes of one size. Nothing here depends on how fast the machine
//! is.

mod home;

use home::Home;
use serde_json::Value;

/// A measurement as short as can be, of a device that is filled in a moment.
const QUICK: [&str; 7] = ["perf", "-t", "0.05", "--warmup", "0", "-r", "mem:block:4M"];

fn quick<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&QUICK, more].concat()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Bytes of a command, on average.
fn bytes_each(run: &Value) -> f64 {
    let total = &run["points"][0]["total"];
    number(&total["mib_per_second"]) * 1_048_576.0 / number(&total["iops"])
}

#[test]
fn a_mix_of_sizes_counts_the_bytes_that_were_moved() {
    let home = Home::new();
    let mix = ["--size-mix", "4K:3,64K:1", "-w", "randrw", "--report", "r.html"];
    let run = home.json(&quick(&mix));
    let each = bytes_each(&run);
    assert!((15_000.0..24_000.0).contains(&each), "{each}: about 19456 were asked for");
    assert_eq!(run["workload"]["size_mix"][1]["bytes"], 65536);
    assert_eq!(
        (&run["workload"]["size_mix"][0]["weight"], &run["workload"]["io_bytes"]),
        (&3.into(), &65536.into())
    );
    let page = std::fs::read_to_string(home.path("r.html")).expect("a report");
    assert!(
        page.contains("4 KiB 75 %, 64 KiB 25 %") && page.contains("4 KiB to 64 KiB random mix"),
        "the report"
    );
    let text = home.ok(&quick(&mix));
    assert!(text.contains("\nSizes: 4 KiB 75 %, 64 KiB 25 %\n") || text.starts_with("Sizes: "), "{text}");
    // One size with a weight is that size, and not split it is whole.
    let run = home.json(&quick(&["--size-mix", "8K:1"]));
    assert!((bytes_each(&run) - 8192.0).abs() < 1e-6, "{}", bytes_each(&run));
    // Larger than what the device takes: split, and counted once.
    let run =
        home.json(&quick(&["-r", "mem:block:8M", "--size-mix", "4K:1,2M:1", "-q", "2", "--amount", "64M"]));
    let each = bytes_each(&run);
    assert!(each > 200_000.0 && run["points"][0]["total"]["errors"] == 0, "{each}: {run}");
}

#[test]
fn an_amount_is_of_commands_of_the_mean_size() {
    let run = Home::new().json(&[
        "perf",
        "-r",
        "mem:block:4M",
        "--size-mix",
        "4K:1,12K:1",
        "--amount",
        "8M",
        "-q",
        "4",
        "-w",
        "randwrite",
    ]);
    assert_eq!(run["points"][0]["latency"]["all"]["samples"], 1024, "commands of 8 KiB");
}

#[test]
fn sizes_that_make_no_sense_are_refused_by_name() {
    let home = Home::new();
    for (args, parts) in [
        (
            &["--size-mix", "100:1"][..],
            &["--size-mix 100: ", "blocks of 512 bytes; expected multiples of that"][..],
        ),
        (&["--size-mix", "4K:1", "-o", "4K"], &["--size-mix: it says how large commands are; leave out -o"]),
        (&["--size-mix", "4K:1", "--verify"], &["--size-mix: --verify keeps account of units"]),
        (
            &["--size-mix", "4K:1,8M:1"],
            &["--range, --size-mix: not one command of 8388608 bytes is in the range"],
        ),
        (&["--size-mix", "8K:1", "--offset", "4K"], &["--offset 4K: expected a multiple of --size-mix, 8K"]),
    ] {
        home.run(&quick(args)).fails_with(2, parts);
    }
    for bad in ["4K", "4K:0", "0:1", "4K:1,4K:2"] {
        home.run(&quick(&["--size-mix", bad])).fails_with_usage("--size-mix");
    }
}

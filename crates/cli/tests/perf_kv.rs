//! `unvme perf` on key-value namespaces. Nothing here depends on how fast the machine is.

mod home;

use home::Home;
use serde_json::Value;

const DEVICE: &str = "mem:kv:64M";
/// A measurement as short as can be, of a few pairs.
const QUICK: [&str; 7] = ["perf", "-r", DEVICE, "-t", "0.05", "--warmup", "0"];
const FEW: [&str; 2] = ["--keys", "2000"];

fn quick<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let few: &[&str] = if more.contains(&"--keys") { &[] } else { &FEW };
    [&QUICK, few, more].concat()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Reads and writes of the first point.
fn samples(run: &Value) -> (f64, f64) {
    let latency = &run["points"][0]["latency"];
    let of = |kind: &str| latency[kind]["samples"].as_f64().unwrap_or(0.0);
    (of("read"), of("write"))
}

#[test]
fn each_letter_of_ycsb_has_its_share_of_reads_and_finds_all_keys() {
    let home = Home::new();
    for (letter, share, distribution) in [
        ("a", 50.0, "zipf:0.99"),
        ("b", 95.0, "zipf:0.99"),
        ("d", 95.0, "latest"),
        ("e", 95.0, "zipf:0.99"),
        ("f", 50.0, "zipf:0.99"),
    ] {
        let workload = format!("ycsb-{letter}");
        // By data: so many commands, however fast they are.
        let run = home.json(&["perf", "-r", DEVICE, "-w", &workload, "--keys", "2000", "--amount", "5M"]);
        let (reads, writes) = samples(&run);
        let found = 100.0 * reads / (reads + writes);
        assert!((found - share).abs() < 3.0, "{letter}: {reads} reads and {writes} writes");
        let (point, told) = (&run["points"][0], &run["workload"]);
        assert_eq!(
            (&point["total"]["errors"], &point["pairs"]["misses"]),
            (&0.into(), &0.into()),
            "{letter}"
        );
        assert_eq!((&told["pattern"], &told["distribution"]), (&workload.into(), &distribution.into()));
        assert_eq!((&told["io_bytes"], &told["pairs"]["keys"]), (&1000.into(), &2000.into()));
        assert_eq!(number(&point["pairs"]["listed"]) > 1000.0, letter == "e", "{point}");
        assert_eq!(run["devices"][0]["block_bytes"], 0);
    }
    let run = home.json(&quick(&["-w", "ycsb-c"]));
    assert_eq!(
        (&run["workload"]["read_percent"], &run["points"][0]["latency"]["write"]),
        (&100.into(), &Value::Null)
    );
}

#[test]
fn words_of_pairs_do_what_they_say() {
    let home = Home::new();
    // A device without a workload is asked for what it has.
    let run = home.json(&quick(&["--report", "r.html", "--csv", "p.csv"]));
    assert_eq!(
        (&run["workload"]["pattern"], &run["workload"]["io_bytes"]),
        (&"retrieve".into(), &4096.into())
    );
    let total = &run["points"][0]["total"];
    let each = number(&total["mib_per_second"]) * 1_048_576.0 / number(&total["iops"]);
    assert!((each - 4096.0).abs() < 1.0, "{each}");
    let page = std::fs::read_to_string(home.path("r.html")).expect("a report");
    assert!(page.contains("4 KiB retrieve") && page.contains("2,000 of 16 bytes"), "the report");
    let text = home.ok(&quick(&["-w", "mixed", "-M", "30", "-o", "100"]));
    assert!(text.contains("Keys: 2,000 of 16 bytes\n") && !text.contains("Misses"), "{text}");
    // All of 2,000 keys are deleted once, and then they are gone.
    let gone =
        home.json(&["perf", "-r", DEVICE, "-w", "delete", "--keys", "2000", "-o", "64", "--amount", "4M"]);
    let misses = number(&gone["points"][0]["pairs"]["misses"]);
    let done = number(&gone["points"][0]["latency"]["all"]["samples"]);
    assert!(misses > done - 2001.0 && misses < done - 1900.0, "{misses} of {done}");
    let text = home.ok(&quick(&["-w", "exist", "--no-prefill"]));
    assert!(text.contains("\nMisses: ") && text.contains(" on pairs that were not there\n"), "{text}");
}

#[test]
fn values_have_the_sizes_of_the_mix_and_each_point_of_a_sweep_its_own() {
    let home = Home::new();
    let each = |point: &Value| {
        number(&point["total"]["mib_per_second"]) * 1_048_576.0 / number(&point["total"]["iops"])
    };
    let run = home.json(&quick(&["-w", "retrieve", "--matrix", "io-size=100,3000", "key-size=4,16"]));
    let bytes: Vec<f64> = run["points"].as_array().expect("points").iter().map(each).collect();
    let expected = [100.0, 100.0, 3000.0, 3000.0];
    assert!(bytes.iter().zip(expected).all(|(found, wanted)| (found - wanted).abs() < 0.5), "{bytes:?}");
    let run = home.json(&quick(&["-w", "mixed", "--size-mix", "100:3,3000:1"]));
    let mean = each(&run["points"][0]);
    assert!((600.0..1100.0).contains(&mean), "{mean}: about 825 were stored");
    let twice = home.json(&quick(&["-w", "delete", "--repeat", "2"]));
    let point = &twice["points"][0];
    let rate = |index: usize| number(&point["repetitions"][index]["iops"]);
    assert!(rate(0) > 0.0 && rate(1) > 0.0 && number(&point["pairs"]["misses"]) > 0.0, "{point}");
}

#[test]
fn pairs_of_another_process_are_measured_over_every_queue_of_a_thread() {
    let home = Home::new();
    let _server = home.serve(&[DEVICE, "--socket", "s"]);
    let socket = format!("vfio-user:{}", home.path("s").display());
    let words = ["perf", "-r", &socket, "-w", "ycsb-f", "--keys", "500", "--amount", "1M", "-q", "4"];
    let done = home.run(
        &[&words[..], &["--force", "--prefill", "--completion", "interrupt", "--output", "json"]].concat(),
    );
    let run = done.json();
    assert_eq!(
        (&run["points"][0]["total"]["errors"], &run["points"][0]["pairs"]["misses"]),
        (&0.into(), &0.into())
    );
    assert!(done.stderr.contains("500 pairs are stored before they are measured"), "{}", done.stderr);
    let again =
        home.json(&["perf", "-r", &socket, "--keys", "500", "-o", "1000", "-t", "0.1", "--no-prefill"]);
    let missing = home.run(&["perf", "-r", &socket, "--keys", "500", "-o", "10", "-t", "0.1"]);
    assert!(
        missing.stderr.contains("pairs that are not there are misses; --prefill stores them"),
        "{}",
        missing.stderr
    );
    assert_eq!(again["points"][0]["pairs"]["misses"], 0, "what the first run has stored is there");
    let rated = ["--force", "--rate", "500", "-t", "0.2", "--burst", "4:1ms"];
    home.run(&[&words[..7], &rated[..]].concat())
        .fails_with(2, &["--burst: --rate says when commands are due"]);
    let rated = home.json(
        &[&words[..7], &["--no-prefill", "--force", "--rate", "500", "-t", "0.4", "--warmup", "0"]].concat(),
    );
    assert!(number(&rated["points"][0]["schedule"]["asked_iops"]) == 500.0, "{rated}");
}

#[test]
fn failures_are_named_with_the_key() {
    let home = Home::new();
    let rules = home.file(
        "f.json",
        br#"[{"match":{"opcode":"store","after":2500,"count":1},"act":{"status":"write-fault"}}]"#,
    );
    let done = home.run(&quick(&["-w", "store", "--amount", "12M", "--faults", &rules]));
    let named = done.stderr.contains("1 command failed") && done.stderr.contains("core 0: store of key ");
    assert!(done.code == 1 && named, "{}: {}", done.code, done.stderr);
}

#[test]
fn what_makes_no_sense_for_pairs_is_refused_by_name() {
    let home = Home::new();
    let refused = |args: &[&str], part: &str| home.run(&quick(args)).fails_with(2, &[part]);
    refused(&["-w", "randread"], "has pairs; use retrieve, store, exist, delete, mixed or ycsb-a to ycsb-f");
    refused(&["--trim", "5"], "--trim: it says nothing of `-w retrieve`");
    refused(&["--range", "1M"], "--range: it says nothing of `-w retrieve`");
    refused(&["--scan-length", "5"], "--scan-length: it says nothing of `-w retrieve`");
    refused(&["--verify"], "--verify: values are not compared");
    refused(&["-M", "5", "-w", "ycsb-a"], "-M: `-w ycsb-a` does not mix");
    refused(&["-o", "1G"], "stores values of at most");
    refused(&["--key-size", "200", "-w", "ycsb-e"], "takes keys of ");
    refused(&["--keys", "0"], "--keys 0: ");
    refused(&["-r", "mem:block:4M"], "some namespaces have blocks and some have pairs");
    let block = |args: &[&str], part: &str| {
        home.run(&[&["perf", "-r", "mem:block:4M"], args].concat()).fails_with(2, &[part]);
    };
    block(&["-w", "ycsb-a"], "has blocks; use read, write, randread");
    block(&["--kv"], "-w retrieve: ");
    block(&["--keys", "5"], "--keys: ");
    block(&["--dist", "latest"], "--dist latest: ");
    let full = home.run(&["perf", "-r", "mem:kv:16M", "--keys", "100000", "-o", "4096", "-t", "0.1"]);
    assert!(full.code != 0 && full.stderr.contains("use fewer --keys or smaller values"), "{}", full.stderr);
}

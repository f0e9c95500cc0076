//! `unvme perf`: figures that agree with each other, data that is verified, options that are refused. Nothing
//! here depends on how fast the machine is.

mod home;

use home::{DEVICE, Home, appears, pattern, wait};
use serde_json::Value;

/// A measurement as short as can be, of a device that is filled in a moment.
const QUICK: [&str; 7] = ["perf", "-t", "0.05", "--warmup", "0", "-r", "mem:block:4M"];

fn quick<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&QUICK, more].concat()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * one.abs().max(other.abs())
}

#[test]
fn the_sums_of_the_json_agree() {
    let home = Home::new();
    let run = home.json(&quick(&[
        "-r",
        "mem:block:6M,block=4096",
        "-q",
        "8",
        "--latency",
        "-w",
        "randrw",
        "-M",
        "70",
    ]));
    let point = &run["points"][0];
    assert_eq!((&point["threads"], &point["depth"]), (&1.into(), &8.into()));
    let rows = point["rows"].as_array().expect("rows");
    let labels: Vec<&str> = rows.iter().filter_map(|row| row["label"].as_str()).collect();
    assert_eq!(labels, ["VIRT (mem:block:4M) NSID 1", "VIRT (mem:block:6M,block=4096) NSID 1"]);
    let sum = |key: &str| rows.iter().map(|row| number(&row[key])).sum::<f64>();
    for key in ["iops", "mib_per_second", "errors", "miscompares"] {
        assert!(close(sum(key), number(&point["total"][key])), "{key}: {point}");
    }
    for row in rows.iter().chain([&point["total"]]) {
        let [min, average, max] =
            ["latency_us_min", "latency_us_average", "latency_us_max"].map(|key| number(&row[key]));
        assert!(0.0 < min && min <= average * 1.001 && average <= max * 1.001, "{row}");
        assert!(close(number(&row["iops"]) * 4096.0 / 1_048_576.0, number(&row["mib_per_second"])), "{row}");
    }
    // Every command that counts is in the distribution, and in the rate over time.
    let latency = &point["latency"];
    let commands = number(&point["total"]["iops"]) * 0.05;
    assert!(close(commands, number(&latency["all"]["samples"])), "{commands}: {}", latency["all"]["samples"]);
    let parts = number(&latency["read"]["samples"]) + number(&latency["write"]["samples"]);
    assert!(close(commands, parts), "{commands}, {parts}");
    let series = point["series"].as_array().expect("series");
    let average = series.iter().map(|at| number(&at["iops"])).sum::<f64>() / series.len() as f64;
    assert!(close(average, number(&point["total"]["iops"])), "{average}");
    assert!(number(&run["harness"]["ns_per_op"]) > 0.0);
    assert_eq!(run["devices"][1]["block_bytes"], 4096);
    assert_eq!(run["workload"]["read_percent"], 70);
    assert_eq!(run["command_line"][0], "unvme");
}

#[test]
fn a_matrix_measures_every_combination_in_order() {
    let home = Home::new();
    let both = std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2);
    let threads = if both { "threads=1,2" } else { "threads=1" };
    let table =
        home.ok(&quick(&["--matrix", threads, "depth=1..8,3", "--csv", "out.csv", "--json", "out.json"]));
    let run: Value =
        serde_json::from_slice(&std::fs::read(home.path("out.json")).expect("read")).expect("JSON");
    let shapes: Vec<(u64, u64)> = run["points"]
        .as_array()
        .expect("points")
        .iter()
        .filter_map(|point| Some((point["threads"].as_u64()?, point["depth"].as_u64()?)))
        .collect();
    let depths = [1, 2, 4, 8, 3];
    let counts = if both { &[1, 2][..] } else { &[1] };
    let expected: Vec<(u64, u64)> = counts.iter().flat_map(|&t| depths.map(|d| (t, d))).collect();
    assert_eq!(shapes, expected);
    // A line of the summary per depth, ascending; then the table of the best point.
    let summary: Vec<&str> =
        table.lines().skip(3).take(5).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(summary, ["1", "2", "3", "4", "8"]);
    assert_eq!(table.matches("Device Information").count(), 1, "{table}");
    assert!(table.contains("\nTotal ") && table.contains("The same loop with no device"), "{table}");
    // A line of the CSV per core and one with their sum.
    let csv = std::fs::read_to_string(home.path("out.csv")).expect("read");
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines[0].starts_with("pattern,io_bytes,read_percent,threads,depth,scope,device,core,iops,"),
        "{}",
        lines[0]
    );
    let cores: u64 = shapes.iter().map(|(threads, _)| threads + 1).sum();
    assert_eq!(lines.len() as u64, 1 + cores);
    let columns = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == columns), "{csv}");
}

#[test]
fn every_point_has_its_table_when_asked_for() {
    let text = Home::new().ok(&quick(&["--matrix", "depth=1,2", "--verbose"]));
    assert_eq!(text.matches("Device Information").count(), 3, "{text}");
    assert!(
        text.contains("Point: threads 1, depth 1\n") && text.contains("Point: threads 1, depth 2\n"),
        "{text}"
    );
}

#[test]
fn the_table_is_the_documents() {
    let text = Home::new().ok(&quick(&["-q", "4"]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "=".repeat(56));
    assert_eq!(
        lines[2],
        "Device Information                       :       IOPS      MiB/s    Average        min        max"
    );
    let row = lines[3].strip_prefix("VIRT (mem:block:4M) NSID 1 from core ").expect("a row of a core");
    assert_eq!(row.split(':').nth(1).map(|figures| figures.split_whitespace().count()), Some(5), "{text}");
    assert!(lines[5].starts_with("Total                                    : "), "{text}");
    assert!(!text.contains("Summary latency data"), "the whole list is printed on demand: {text}");
    let run = Home::new().json(&quick(&["-q", "4"]));
    assert!(number(&run["points"][0]["latency"]["all"]["samples"]) > 0.0, "percentiles are always kept");
}

#[test]
fn the_report_needs_nothing_else() {
    let home = Home::new();
    let text = home.ok(&quick(&["--matrix", "depth=1..4", "--latency", "--report", "r.html"]));
    assert!(text.ends_with("\nReport: r.html\n"), "{text}");
    let page = std::fs::read_to_string(home.path("r.html")).expect("read");
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg") && page.contains("mem:block:4M"));
    for outside in ["http:", "https:", "src=", "@import", "url(", "fetch(", "//cdn"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn what_is_written_is_read_back_and_verified() {
    let home = Home::new();
    for workload in ["randrw", "rw", "write", "randwrite", "read", "randread"] {
        let run = home.json(&quick(&["-w", workload, "--verify", "-q", "16", "-o", "8K"]));
        let total = &run["points"][0]["total"];
        assert_eq!((&total["errors"], &total["miscompares"]), (&0.into(), &0.into()), "{workload}");
        assert!(number(&total["iops"]) > 0.0, "{workload}");
        assert!(run["harness"].is_null(), "the loop without a device has no data to verify");
    }
    home.ok(&quick(&["-w", "randrw", "--verify", "--dist", "zipf:1.2", "--matrix", "depth=1..64"]));
}

#[test]
fn data_that_another_process_damaged_is_found() {
    let home = Home::with_device();
    // 16 units: even a measurement this short goes around all of them.
    let on_slot = |more: &[&str]| {
        let args = ["perf", "-t", "0.05", "-r", DEVICE, "--range", "64K", "-q", "4", "--verify"];
        home.run(&[&args, more].concat())
    };
    let written = on_slot(&["-w", "write"]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    let again = ["-w", "read", "--no-prefill"];
    let read = on_slot(&again);
    assert_eq!(read.code, 0, "{}", read.stderr);
    let mut block = home.run(&["read", DEVICE, "-s", "100", "-z", "512"]).stdout;
    block[9] ^= 1;
    home.ok_with(&["write", DEVICE, "-s", "100", "-z", "512"], &block);
    let damaged = on_slot(&again);
    damaged.fails_with(
        1,
        &[
            "returned wrong data; the first: VIRT (0000:02:00.0) NSID 1 from core ",
            ": block 100 is wrong from byte 8 on",
        ],
    );
    assert!(damaged.text().contains("returned wrong data\n"), "the table says so, too: {}", damaged.text());
}

#[test]
fn what_nobody_has_written_with_verify_is_not_called_wrong() {
    let home = Home::with_device();
    let perf = ["perf", "-t", "0.05", "-r", DEVICE, "--range", "64K", "-q", "4", "--verify"];
    let read = [&perf[..], &["-w", "read"]].concat();
    let unjudged = || {
        let done = home.run(&[&read[..], &["--output", "json"]].concat());
        assert_eq!(done.code, 0, "{}", done.stderr);
        number(&done.json()["unjudged_reads"])
    };
    // Nobody has written anything; somebody else has; then a run has.
    assert!(unjudged() > 0.0);
    home.ok_with(&["write", DEVICE, "-z", "64K"], &pattern(3, 64 << 10));
    assert!(unjudged() > 0.0);
    let text = home.ok(&read);
    assert!(
        text.contains(" could not be judged: not all of their blocks were written with --verify"),
        "{text}"
    );
    let write = [&perf[..], &["-w", "write", "--no-prefill"]].concat();
    home.ok(&write);
    assert_eq!(unjudged(), 0.0);
    home.ok(&["dsm", DEVICE, "-d", "-s", "0", "-b", "8"]);
    assert!(unjudged() > 0.0);
}

/// The point of a measurement of half a second of the model.
fn modelled(home: &Home, device: &str, more: &[&str]) -> Value {
    let perf = ["perf", "-r", device, "-t", "0.5", "--virtual-time"];
    home.json(&[&perf[..], more].concat())["points"][0].clone()
}

#[test]
fn virtual_time_is_what_the_page_on_timing_states() {
    let home = Home::new();
    let device = "mem:block:256M,block=4096,timing=tlc";
    for (workload, depth, stated) in [
        ("randread", "1", 1e9 / 80_446.0),
        ("randread", "256", 3050e6 / 4096.0),
        ("write", "1", 1e9 / 9543.0),
        ("write", "256", 3050e6 / 4096.0),
    ] {
        let point = modelled(&home, device, &["-w", workload, "-q", depth, "-L"]);
        let found = number(&point["total"]["iops"]);
        assert!(
            (found / stated - 1.0).abs() <= 0.02,
            "{workload} at depth {depth}: {found}, stated {stated}"
        );
        let again = modelled(&home, device, &["-w", workload, "-q", depth, "-L"]);
        assert_eq!(point, again, "the same seed gives the same");
    }
    // A slot, with parameters of its own: 40 us more for a read.
    home.ok(&["device", "create", DEVICE, "--size", "16M", "--block", "4096", "--timing", "tlc,read=90us"]);
    let point = modelled(&home, DEVICE, &["-w", "randread", "-q", "1", "--prefill"]);
    let found = number(&point["total"]["iops"]);
    assert!((found * 120_446e-9 - 1.0).abs() <= 0.02, "{found}");
}

#[test]
fn virtual_time_knows_what_the_flash_has_written() {
    let home = Home::new();
    let device = "mem:block:64M,block=4096,ftl=page,op=28%,timing=tlc";
    let sequential = modelled(&home, device, &["-w", "write", "-q", "32"]);
    assert_eq!(number(&sequential["write_amplification"]), 1.0);
    let random = modelled(&home, device, &["-w", "randwrite", "-q", "32", "--rate", "50000"]);
    assert!(number(&random["write_amplification"]) > 1.5, "{random}");
    assert!((number(&random["total"]["iops"]) / 50_000.0 - 1.0).abs() < 0.01, "{random}");
}

#[test]
fn a_rate_is_kept_and_both_latencies_are_told() {
    let home = Home::new();
    for arrivals in ["fixed", "poisson"] {
        let perf = ["perf", "-t", "0.5", "--warmup", "0", "-r", "mem:block:4M", "-q", "4", "--rate", "400"];
        let run = home.json(&[&perf[..], &["--arrivals", arrivals, "--report", "r.html"]].concat());
        assert_eq!(run["workload"]["arrivals"], arrivals);
        let (point, schedule) = (&run["points"][0], &run["points"][0]["schedule"]);
        let commands = number(&point["total"]["iops"]) * 0.5;
        assert!((1.0..=300.0).contains(&commands), "{commands}: 200 are due");
        assert!(close(commands, number(&schedule["from_submission"]["all"]["samples"])), "{schedule}");
        let from_due = number(&point["total"]["latency_us_average"]);
        assert!(from_due >= number(&schedule["from_submission_us_average"]) * 0.999, "{point}");
        let page = std::fs::read_to_string(home.path("r.html")).expect("read");
        assert!(page.contains("average from when a command was due, "), "both are on the page");
    }
    home.run(&quick(&["--arrivals", "poisson"])).fails_with(2, &["--arrivals: expected --rate with it"]);
}

#[test]
fn a_rate_beyond_a_device_is_said_and_waiting_counts() {
    let home = Home::new();
    let device = "mem:block:16M,block=4096,timing=tlc";
    // The model takes 80.446 us for a read: 12,431 a second, one at a time.
    let half = modelled(&home, device, &["-q", "1", "--rate", "6000"]);
    assert_eq!(half["schedule"]["is_behind"], false, "{half}");
    assert!((number(&half["total"]["iops"]) / 6_000.0 - 1.0).abs() < 0.001, "{half}");
    let twice = modelled(&home, device, &["-q", "1", "--rate", "24862"]);
    let schedule = &twice["schedule"];
    assert_eq!(schedule["is_behind"], true);
    // Half of 0.6 seconds of commands are late, the last one by 0.3 seconds; the device is as fast as ever.
    let overdue = number(&schedule["overdue_commands"]) / 24_862.0;
    assert!((0.28..0.32).contains(&overdue), "{overdue}");
    assert!((280e3..320e3).contains(&number(&twice["total"]["latency_us_max"])), "{}", twice["total"]);
    assert!((80.0..81.0).contains(&number(&schedule["from_submission_us_average"])), "{twice}");
    let perf = ["perf", "-r", device, "-t", "0.1", "--virtual-time", "-q", "1", "--rate", "24862"];
    let text = home.ok(&[&perf[..], &["--csv", "out.csv"]].concat());
    assert!(text.contains("\nAsked 24.9 k/s, got 12."), "{text}");
    assert!(text.contains(" k/s: the device or this machine is slower; "), "{text}");
    let csv = std::fs::read_to_string(home.path("out.csv")).expect("read");
    let overdue = csv.lines().nth(1).and_then(|line| line.split(',').nth_back(5)).expect("a line");
    assert!(overdue.parse::<u64>().expect("a number") > 1000, "{csv}");
}

#[test]
fn virtual_time_is_for_models_in_this_process_and_one_thread() {
    let home = Home::with_device();
    let refused = |args: &[&str], part: &str| {
        home.run(&[&["perf", "-t", "0.05", "--virtual-time"], args].concat()).fails_with(2, &[part]);
    };
    refused(&["-r", "mem:block:16M"], "--virtual-time: mem:block:16M has no timing; expected a virtual SSD");
    refused(&["-r", DEVICE], "0000:02:00.0 has no timing; expected a virtual SSD");
    refused(&["-r", "vfio-user:/nowhere"], "vfio-user:/nowhere has a time of its own; expected");
    refused(&["-r", "mem:block:16M,timing=tlc", "--matrix", "threads=1,2"], "--virtual-time: one thread");
    let served = "0000:03:00.0";
    home.ok(&["device", "create", served, "--size", "16M", "--timing", "tlc"]);
    let server = home.serve(&[served]);
    refused(&["-r", served], "0000:03:00.0 is in use by another process");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_slot_is_filled_before_the_first_writes_and_not_again() {
    let home = Home::new();
    let create =
        ["device", "create", DEVICE, "--size", "16M", "--block", "4096", "--fdp", "--ru-size", "64K"];
    home.ok(&create);
    let mut written = 0;
    let mut perf = |more: &[&str]| {
        // A few pages, which filling would be thousands of.
        let args = ["perf", "-r", DEVICE, "-w", "randwrite", "-t", "0.05", "--rate", "1000"];
        let run = home.run(&[&args, more].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        let text = home.ok(&["fdp", "stats", DEVICE]);
        let words = text.lines().next().and_then(|line| line.split(' ').next_back());
        let all: u64 = words.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{text}"));
        let (more, said) = (all - written, run.stderr.contains("16M in use are written once before"));
        written = all;
        (more >= 16 << 20, said)
    };
    let found = [perf(&[]), perf(&[]), perf(&["--prefill"])];
    assert_eq!(found, [(true, true), (false, false), (true, false)]);
}

#[test]
fn a_slot_keeps_its_data_when_it_is_only_read() {
    let home = Home::with_device();
    let data = pattern(5, 8192);
    home.ok_with(&["write", DEVICE], &data);
    let read = home.run(&["perf", "-t", "0.05", "-r", DEVICE, "-w", "randread"]);
    assert_eq!(read.code, 0, "{}", read.stderr);
    assert!(read.stderr.contains("--prefill writes them all"), "{}", read.stderr);
    assert_eq!(home.run(&["read", DEVICE, "-z", "8K"]).stdout, data);
    home.ok(&["perf", "-t", "0.05", "-r", DEVICE, "-w", "randread", "--prefill"]);
    assert_ne!(home.run(&["read", DEVICE, "-z", "8K"]).stdout, data);
}

#[test]
fn a_device_that_is_not_virtual_is_not_written_without_force() {
    let home = Home::new();
    let socket = home.path("nvme.sock");
    let path = socket.to_str().expect("UTF-8");
    let _server = home.serve(&["mem:block:4M", "--socket", path]);
    let name = format!("vfio-user:{path}");
    let args = ["perf", "-t", "0.05", "-r", &name, "-w", "randwrite", "-q", "4"];
    home.run(&args).fails_with(5, &["this overwrites what is on it", "--force"]);
    let text = home.ok(&[&args[..], &["--force"]].concat());
    assert!(text.contains("VFIO-USER (vfio-user:") && text.contains("NSID 1 from core "), "{text}");
}

#[test]
fn commands_beyond_the_transfer_size_of_a_device_are_measured_and_that_is_said() {
    let home = Home::new();
    let perf = ["perf", "-t", "0.2", "--warmup", "0", "-r", "mem:block:32M", "-o", "5M", "-q", "2"];
    let done = home.run(&[&perf[..], &["-w", "randrw", "--verify", "--output", "json"]].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(
        done.stderr.contains("-o 5M goes in 3 commands of at most 2M, and counts once"),
        "{}",
        done.stderr
    );
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let total = &json["points"][0]["total"];
    assert!(close(number(&total["iops"]) * 5.0, number(&total["mib_per_second"])), "{total}");
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    let home = Home::new();
    for (args, parts) in [
        (&["-c", "0x8000000000000000"][..], &["-c: core 63 is not there; this process may use "][..]),
        (&["-o", "100"], &["-o 100:", "blocks of 512 bytes; expected a multiple of that"]),
        (&["-o", "0"], &["-o 0:", "expected a multiple"]),
        (&["-o", "1G"], &["--range, -o: not one command of 1073741824 bytes is in the range"]),
        (&["--range", "512"], &["--range, -o: not one command of 4096 bytes is in the range"]),
        (&["-w", "read", "-M", "50"], &["-M: `-w read` does not mix; use rw or randrw"]),
        (
            &["-w", "write", "--dist", "zipf:1"],
            &["--dist: the addresses of `-w write` are sequential; use randwrite"],
        ),
        (&["--matrix", "depth=1", "depth=2"], &["--matrix: depth is given twice"]),
        (&["--matrix", "threads=1024"], &["--threads: each thread has a core of its own, and 1024 threads"]),
        (
            &["--verify", "-o", "1M", "-q", "4"],
            &["--verify: each thread needs more units of its own than its 4 commands, and has 4"],
        ),
        (&["--offset", "100"], &["--offset 100: expected a multiple of -o, 4K"]),
        (&["--offset", "4M"], &["--offset, --range, -o: not one command of 4096 bytes is in the range"]),
        (&["--compare"], &["--compare: expected several devices"]),
        (&["--compare", "--matrix", "depth=1"], &["--compare: expected several devices"]),
        (&["-n", "7"], &["there is no namespace 7; attached namespaces are 1"]),
    ] {
        home.run(&quick(args)).fails_with(2, parts);
    }
    home.run(&["perf", "-r", "mem:block:1T,media=null", "-o", "1G", "-q", "4095"])
        .fails_with(2, &["-o, -q: the buffers take 4396972769280 bytes"]);
    home.run(&["perf", "-r", "0000:0f:00.0"]).fails_with(3, &["0000:0f:00.0"]);
    home.run(&quick(&["--report", "no/such/folder.html"])).fails_with(4, &["write no/such/folder.html"]);
}

#[test]
fn values_that_cannot_be_understood_say_what_was_expected() {
    let home = Home::new();
    for (args, parts) in [
        (&["-c", "0x"][..], &["--cores", "a mask of cores such as 0x3, or a list such as 0-1,3"][..]),
        (&["-c", "1-0"], &["--cores", "goes backwards"]),
        (&["-q", "0"], &["--depth", "1..=4095"]),
        (&["-q", "4096"], &["--depth", "1..=4095"]),
        (&["-M", "101"], &["--read-percent", "0..=100"]),
        (&["-w", "append"], &["--workload", "randrw"]),
        (&["--dist", "pareto"], &["--dist", "expected uniform, latest, or zipf:THETA"]),
        (&["--matrix", "size"], &["--matrix", "expected SETTING=LIST"]),
        (&["--matrix", "verify=1"], &["--matrix", "`verify` is not a setting; expected one of device"]),
        (&["--amount", "0%"], &["--amount", "expected a size such as 10G, or a percentage"]),
        (&["--interval", "0"], &["--interval", "at least 0.001"]),
        (&["--rate", "0"], &["--rate"]),
        (&["--prefill", "--no-prefill"], &["cannot be used with"]),
    ] {
        let done = home.run(&[&["perf", "-r", "mem:block:4M"], args].concat());
        assert_eq!(done.code, 2, "{args:?}: {}", done.stderr);
        for part in parts {
            assert!(done.stderr.contains(part), "{args:?}: `{part}` is not in: {}", done.stderr);
        }
    }
    let done = home.run(&["perf", "-r", "mem:block:4M", "-t", "0"]);
    assert!(done.code == 2 && done.stderr.contains("at least a millisecond"), "{}", done.stderr);
}

#[test]
fn a_file_that_cannot_be_written_does_not_cost_the_result() {
    let home = Home::new();
    let done = home.run(&quick(&["--csv", "/dev/full", "--report", "r.html"]));
    done.fails_with(4, &["write /dev/full: No space left on device"]);
    let text = done.text();
    assert!(text.contains("\nTotal ") && text.ends_with("\nReport: r.html\n"), "{text}");
    assert!(!text.contains("CSV:"), "{text}");
}

#[test]
fn a_server_that_dies_in_the_middle_ends_the_run_with_the_name_of_the_device() {
    let home = Home::with_device();
    let server = home.serve(&[DEVICE, "--socket", "s"]);
    let mut process = home
        .command(&["perf", "-r", "vfio-user:s", "-t", "600", "--json", "out.json"])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("start");
    let tasks = format!("/proc/{}/task", process.id());
    while std::fs::read_dir(&tasks).map_or(0, Iterator::count) < 2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(process.try_wait().expect("wait").is_none(), "it ended by itself");
    }
    server.kill();
    assert_eq!(wait(&mut process), 4);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut process.stderr.take().expect("piped"), &mut text).expect("read");
    let last = text.lines().last().unwrap_or_default();
    // The server may be gone before the device is open.
    let last = last.strip_prefix("unvme: open ").or(last.strip_prefix("unvme: ")).unwrap_or_default();
    let said = last.strip_prefix("vfio-user:s").expect(&text);
    assert!(said.starts_with(": ") || said.starts_with(" namespace 1: "), "{text}");
}

#[test]
fn a_device_that_keeps_no_data_is_not_filled() {
    // Filling 8 TiB, even with nothing, takes many minutes.
    let home = Home::new();
    let args = ["perf", "-t", "0.05", "-r", "mem:block:8T,media=null"];
    home.ok(&args);
    home.run(&[&args[..], &["--verify"]].concat()).fails_with(2, &["--verify: ", "keeps no data"]);
}

#[test]
fn a_slot_that_is_named_twice_is_refused_for_what_it_is() {
    let home = Home::with_device();
    home.run(&["perf", "-t", "0.05", "-r", DEVICE, "-r", "02:00.0"])
        .fails_with(3, &["02:00.0", "this process has the device open already"]);
}

#[test]
fn ctrl_c_ends_the_measurement_and_prints_what_there_is() {
    let home = Home::new();
    let mut process = home
        .command(&["perf", "-r", "mem:block:4M", "-t", "600", "--json", "out.json"])
        .args(["--csv", "out.csv", "--report", "r.html"])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("start");
    // The file is there once signals are handled; a second thread, once something is measured.
    assert!(appears(&home.path("out.json")));
    let tasks = format!("/proc/{}/task", process.id());
    let tasks = || std::fs::read_dir(&tasks).map_or(0, Iterator::count);
    while tasks() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(process.try_wait().expect("wait").is_none(), "it ended by itself");
    }
    let status = std::process::Command::new("kill").args(["-INT", &process.id().to_string()]).status();
    assert!(status.expect("kill").success());
    let mut text = String::new();
    std::io::Read::read_to_string(&mut process.stdout.take().expect("piped"), &mut text).expect("read");
    assert_eq!(wait(&mut process), 130, "{text}");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut process.stderr.take().expect("piped"), &mut said).expect("read");
    assert!(said.ends_with("unvme: interrupted: the figures are of the time until then\n"), "{said}");
    assert!(text.starts_with("Stopped early.\n") && text.contains("\nTotal "), "{text}");
    let run: Value =
        serde_json::from_slice(&std::fs::read(home.path("out.json")).expect("read")).expect("JSON");
    assert_eq!(run["points"].as_array().map(Vec::len), Some(1));
    assert_eq!(run["interrupted"], true);
    let csv = std::fs::read_to_string(home.path("out.csv")).expect("read");
    assert!(csv.lines().skip(1).all(|line| line.ends_with(",true,,")), "{csv}");
    let page = std::fs::read_to_string(home.path("r.html")).expect("read");
    assert!(page.contains("Stopped early: "));
}

const PLACED: &str = "mem:block:64M,block=4096,fdp,handles=4,ru=1M";

#[test]
fn the_report_says_which_placement_identifiers_writes_carried() {
    let home = Home::new();
    let args = ["perf", "-t", "0.05", "--warmup", "0", "-r", PLACED, "-w", "randwrite", "--fdp-pid", "0-1,3"];
    let run = home.json(&[&args[..], &["--fdp-select", "random"]].concat());
    let placement = &run["workload"]["placement"];
    assert_eq!(placement["identifiers"], serde_json::json!([0, 1, 3]));
    assert_eq!(placement["select"], "random");
    assert_eq!(run["points"][0]["total"]["errors"], 0);
    let text = home.ok(&[&args[..], &["--report", "out.html"]].concat());
    assert!(text.contains("Writes placed: placement identifiers 0, 1, 3, round-robin\n"), "{text}");
    let report = std::fs::read_to_string(home.path("out.html")).expect("report");
    assert!(report.contains("placement identifiers 0, 1, 3, round-robin"));
    let plain = home.json(&quick(&["-w", "randwrite"]));
    assert!(plain["workload"].get("placement").is_none(), "{plain}");
}

#[test]
fn placement_identifiers_that_make_no_sense_are_refused_before_the_first_command() {
    let home = Home::new();
    let with = |more: &[&str]| home.run(&[&["perf", "-t", "0.05", "-r", PLACED], more].concat());
    with(&["-w", "randwrite", "--fdp-pid", "0,4"])
        .fails_with(2, &["--fdp-pid: ", "no placement identifier 4; the namespace has 4: 0 to 3"]);
    with(&["-w", "randread", "--fdp-pid", "0"]).fails_with(2, &["--fdp-pid: `-w randread` does not write"]);
    with(&["-w", "randwrite", "--fdp-pid", "65536"]).fails_with_usage("such as 0,2 or 0-3");
    with(&["-w", "randwrite", "--fdp-pid", "3-1"]).fails_with_usage("3-1 goes backwards");
    with(&["-w", "randwrite", "--fdp-select", "random"]).fails_with(2, &["--fdp-select: expected --fdp-pid"]);
    let none = home.run(&quick(&["-w", "randwrite", "--fdp-pid", "0"]));
    none.fails_with(1, &["--fdp-pid", "no Flexible Data Placement"]);
}

/// The figures of a key over the repetitions of a point.
fn repeated(point: &Value, key: &str) -> Vec<f64> {
    let repetitions = point["repetitions"].as_array().unwrap_or_else(|| panic!("no repetitions: {point}"));
    repetitions.iter().map(|repetition| number(&repetition[key])).collect()
}

#[test]
fn repetitions_are_all_in_the_json_and_their_spread_is_everywhere() {
    let home = Home::new();
    let args =
        quick(&["--repeat", "4", "-L", "--matrix", "depth=1,8", "--report", "r.html", "--json", "r.json"]);
    let text = home.ok(&args);
    assert!(
        text.contains("Of 4 repetitions, these are the figures of the one with the median rate."),
        "{text}"
    );
    assert!(
        text.contains("Repetitions: median (least to greatest)\nPoint               Times  IOPS"),
        "{text}"
    );
    let run: Value =
        serde_json::from_slice(&std::fs::read(home.path("r.json")).expect("read")).expect("JSON");
    assert_eq!(run["points"].as_array().map(Vec::len), Some(2));
    for point in run["points"].as_array().expect("points") {
        for key in ["iops", "mib_per_second", "latency_us_average", "latency_us_p99", "latency_us_max"] {
            let mut figures = repeated(point, key);
            assert_eq!(figures.len(), 4);
            figures.sort_by(f64::total_cmp);
            let spread = &point["spread"][key];
            let wanted = [figures[0], (figures[1] + figures[2]) / 2.0, figures[3]];
            for (figure, wanted) in ["min", "median", "max"].iter().zip(wanted) {
                assert!(close(number(&spread[figure]), wanted), "{key} {figure}: {point}");
            }
        }
        let mut rates = repeated(point, "iops");
        rates.sort_by(f64::total_cmp);
        assert_eq!(number(&point["total"]["iops"]), rates[1], "the lower of both in the middle");
    }
    let page = std::fs::read_to_string(home.path("r.html")).expect("report");
    for part in ["Throughput by repetition", "class=\"range c0\"", "<h2>Repetitions "] {
        assert!(page.contains(part), "{part}");
    }
    let once = home.json(&quick(&[]));
    assert!(once["points"][0].get("repetitions").is_none() && once["points"][0].get("spread").is_none());
    for count in ["0", "1001"] {
        home.run(&quick(&["--repeat", count])).fails_with_usage("1..=1000");
    }
}

#[test]
fn each_repetition_has_a_seed_of_its_own_and_they_are_the_same_the_next_time() {
    let home = Home::new();
    let device = "mem:block:64M,block=4096,timing=tlc";
    let args = ["-w", "randread", "-q", "16", "--repeat", "3"];
    let point = modelled(&home, device, &args);
    let rates = repeated(&point, "iops");
    assert!(rates[0] != rates[1] && rates[1] != rates[2], "{rates:?}");
    assert_eq!(point, modelled(&home, device, &args));
}

#[test]
fn a_device_that_completes_nothing_fails_and_wins_no_comparison() {
    let home = Home::with_device();
    home.ok(&["fault", "add", DEVICE, "--opcode", "read", "--delay", "1s"]);
    let perf = ["perf", "-t", "0.05", "--warmup", "0", "-r", DEVICE, "-q", "2"];
    let none = "no command completed in the time measured: ";
    let done = home.run(&[&perf[..], &["--output", "json"]].concat());
    assert!(done.code == 1 && done.stderr.contains(&format!("{none}threads 1, depth 2")), "{}", done.stderr);
    let run = done.json();
    let point = &run["points"][0];
    assert_eq!((&point["total"]["iops"], &point["total"]["latency_us_average"]), (&0.0.into(), &Value::Null));
    let other = ["-r", "mem:block:4M", "--compare", "--repeat", "2"];
    let done = home.run(&[&perf[..], &other].concat());
    assert!(done.code == 1 && done.stderr.contains(none), "{}", done.stderr);
    let text = done.text();
    assert!(text.contains("A: no completions in 2 of 2 repetitions: its latency is not compared"), "{text}");
    assert!(!text.contains("Average latency") && !text.contains("p99 latency"), "{text}");
}

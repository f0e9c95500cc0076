//! Workloads of `unvme perf` beyond reads and writes of one size. Nothing here depends on how fast the
//! machine is.

mod home;

use home::{DEVICE, Home};
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

#[test]
fn deallocations_are_counted_apart_and_nothing_that_was_written_is_lost_by_them() {
    let home = Home::new();
    let run = home.json(&quick(&["-w", "randrw", "--trim", "50", "--verify", "--report", "r.html"]));
    let point = &run["points"][0];
    assert_eq!((&point["total"]["errors"], &point["total"]["miscompares"]), (&0.into(), &0.into()));
    let latency = &point["latency"];
    let (reads, writes) = (number(&latency["read"]["samples"]), number(&latency["write"]["samples"]));
    let trims = number(&point["trims"]["count"]);
    assert!(trims > 0.5 * writes && trims < 2.0 * writes, "{trims} beside {writes} writes");
    let commands = number(&point["total"]["iops"]) * 0.05;
    assert!((commands - reads - writes).abs() < 1e-3 * commands, "{commands}, {reads}, {writes}");
    assert!((bytes_each(&run) - 4096.0).abs() < 1e-6, "they move no data");
    assert!(number(&point["trims"]["latency_us_average"]) > 0.0);
    assert_eq!(run["workload"]["trim_percent"], 50);
    let page = std::fs::read_to_string(home.path("r.html")).expect("a report");
    assert!(page.contains("50 % of the commands that do not read"), "the report");
    let text = home.ok(&quick(&["-w", "randwrite", "--trim", "100"]));
    assert!(text.contains("\nDeallocations: ") && text.contains(" p99\n"), "{text}");
    // The device knows of it.
    let home = Home::with_device();
    // On a busy machine some time may pass before the first one is sent.
    let used = ["0.2", "5", "60"].into_iter().find_map(|seconds| {
        let words =
            ["perf", "-r", DEVICE, "--force", "--prefill", "-t", seconds, "-w", "randwrite", "--trim", "100"];
        let done = home.measured(&words);
        assert!(done.code != 0 || done.stderr.is_empty(), "{}", done.stderr);
        let used = number(&home.json(&["id-ns", DEVICE, "-n", "1"])["nuse"]);
        (used < f64::from(64 << 11)).then_some(used)
    });
    assert!(used.is_some(), "all blocks are in use");
    let run = home.json(&quick(&["-w", "randwrite"]));
    assert!(
        run["points"][0].get("trims").is_none() && run["workload"].get("trim_percent").is_none(),
        "{run}"
    );
}

#[test]
fn deallocations_that_make_no_sense_are_refused_by_name() {
    let home = Home::new();
    for (args, parts) in [
        (&["--trim", "10"][..], &["--trim: `-w randread` does not write"][..]),
        (&["-w", "write", "--trim", "100", "--amount", "1M"], &["--trim 100: no data is moved"]),
    ] {
        home.run(&quick(args)).fails_with(2, parts);
    }
    home.run(&quick(&["--trim", "101"])).fails_with_usage("0..=100");
}

#[test]
fn a_flush_goes_out_after_so_many_writes_and_is_counted_apart() {
    let home = Home::new();
    let few =
        ["perf", "-r", "mem:block:4M", "-w", "randwrite", "-q", "4", "--amount", "4M", "--flush-every", "8"];
    let run = home.json(&[&few[..], &["--report", "r.html"]].concat());
    let point = &run["points"][0];
    assert_eq!(
        (&point["flushes"]["count"], &point["latency"]["all"]["samples"]),
        (&128.into(), &1024.into())
    );
    let [average, p99] = ["latency_us_average", "latency_us_p99"].map(|key| number(&point["flushes"][key]));
    assert!(average > 0.0 && p99 > 0.0, "{point}");
    assert_eq!(run["workload"]["flush_every"], 8);
    let page = std::fs::read_to_string(home.path("r.html")).expect("a report");
    assert!(page.contains("one after every 8 writes of a thread to a namespace"), "the report");
    assert!(page.contains("Flushes: 128, "), "the report");
    let text = home.ok(&few);
    assert!(text.contains("\nFlushes: 128, "), "{text}");
    // At a rate, and with reads between: after writes alone.
    let mixed =
        ["-w", "randrw", "-M", "50", "--amount", "4M", "--rate", "1000000", "--flush-every", "1", "--verify"];
    let run = home.json(&quick(&mixed));
    let point = &run["points"][0];
    assert_eq!(point["total"]["miscompares"], 0);
    let (flushes, writes) =
        (number(&point["flushes"]["count"]), number(&point["latency"]["write"]["samples"]));
    assert!((flushes - writes).abs() <= 40.0, "{flushes} after {writes} writes");
}

#[test]
fn flushes_that_fail_are_failures_of_their_own_name() {
    let home = Home::new();
    let rules = home.file("f.json", br#"[{"match":{"opcode":"flush"},"act":{"status":"write-fault"}}]"#);
    let done = home.run(&quick(&["-w", "write", "--flush-every", "4", "--faults", &rules]));
    assert!(
        done.code == 1 && done.stderr.contains("core 0: flush: Write Fault"),
        "{}: {}",
        done.code,
        done.stderr
    );
    let rules = home.file("f.json", br#"[{"match":{"opcode":"dsm"},"act":{"status":"write-fault"}}]"#);
    let done = home.run(&quick(&["-w", "write", "--trim", "50", "--faults", &rules]));
    assert!(done.stderr.contains("core 0: deallocation of 8 blocks from block "), "{}", done.stderr);
    home.run(&quick(&["--flush-every", "1"])).fails_with(2, &["--flush-every: `-w randread` does not write"]);
    home.run(&quick(&["-w", "write", "--flush-every", "0"])).fails_with_usage("--flush-every");
}

/// A device whose time is a model's: what is asked of it takes as long each time.
const MODELLED: [&str; 9] = [
    "perf",
    "-r",
    "mem:block:16M,ftl=page,timing=tlc,media=tags",
    "--virtual-time",
    "-t",
    "1",
    "--warmup",
    "0",
    "--no-prefill",
];

fn modelled(home: &Home, more: &[&str]) -> Value {
    home.json(&[&MODELLED, more].concat())
}

#[test]
fn think_time_is_added_to_the_time_of_each_command_and_not_to_its_latency() {
    let home = Home::new();
    let think = ["-w", "randwrite", "-q", "1", "--think", "1ms"];
    let (alone, thoughtful) = (modelled(&home, &think[..4]), modelled(&home, &think));
    let total = &thoughtful["points"][0]["total"];
    let (iops, latency) = (number(&total["iops"]), number(&total["latency_us_average"]));
    assert!((iops * (latency + 1000.0) / 1e6 - 1.0).abs() < 0.01, "{iops} at {latency} us and 1 ms");
    assert!(latency < 2.0 * number(&alone["points"][0]["total"]["latency_us_average"]) + 1.0, "{latency}");
    assert_eq!(thoughtful["workload"]["think_us"], 1000.0);
    let text = home.ok(&quick(&["--think", "1ms", "-q", "4"]));
    assert!(text.contains("Think time: 1.00 ms after each command\n"), "{text}");
}

#[test]
fn bursts_come_as_often_as_the_pause_lets_them() {
    let home = Home::new();
    let run = modelled(&home, &["-w", "randwrite", "-q", "8", "--burst", "4:10ms", "--report", "r.html"]);
    let iops = number(&run["points"][0]["total"]["iops"]);
    assert!((380.0..=404.0).contains(&iops), "{iops}: four each 10 ms");
    let burst = &run["workload"]["burst"];
    assert_eq!((&burst["commands"], &burst["pause_us"]), (&4.into(), &10_000.0.into()));
    let page = std::fs::read_to_string(home.path("r.html")).expect("a report");
    assert!(page.contains("4 commands, then nothing for 10.0 ms"), "the report");
    let sweep = modelled(&home, &["--matrix", "burst=1:10ms,8:10ms", "-w", "randrw", "--think", "1us"]);
    let rate = |index: usize| number(&sweep["points"][index]["total"]["iops"]);
    assert!(rate(1) > 7.5 * rate(0), "{} after {}", rate(1), rate(0));
    let checked = home.json(&quick(&["--burst", "8:1us", "--verify", "-w", "randrw", "--think", "1us"]));
    assert_eq!(checked["points"][0]["total"]["miscompares"], 0);
}

#[test]
fn breaks_that_make_no_sense_are_refused_by_name() {
    let home = Home::new();
    let refused = |args: &[&str], part: &str| home.run(&quick(args)).fails_with(2, &[part]);
    refused(&["--think", "1ms", "--rate", "100"], "--think: --rate says when commands are due");
    refused(&["--burst", "1:1ms", "--rate", "100"], "--burst: --rate says when commands are due");
    home.run(&quick(&["--think", "1"])).fails_with_usage("with a unit of us, ms or s");
    home.run(&quick(&["--burst", "1"])).fails_with_usage("expected COMMANDS:TIME, such as 32:1ms");
}

#[test]
fn threads_that_sleep_leave_the_processor_to_others() {
    let home = Home::new();
    let _server = home.serve(&["mem:block:4M", "--socket", "s"]);
    let socket = format!("vfio-user:{}", home.path("s").display());
    let slow = ["perf", "-r", &socket, "-q", "1", "--rate", "50", "-t", "1", "--warmup", "0", "--no-prefill"];
    let ways = ["--matrix", "completion=poll,interrupt,hybrid", "--csv", "p.csv", "--report", "r.html"];
    let run = home.json(&[&slow[..], &ways].concat());
    let busy = |index: usize| number(&run["points"][index]["cpu"]["percent"]);
    let (poll, interrupt, hybrid) = (busy(0), busy(1), busy(2));
    assert!(interrupt < poll && hybrid < poll && interrupt > 0.0, "{poll} {interrupt} {hybrid}");
    assert_eq!(run["points"][1]["workload"]["completion"], "interrupt");
    for point in run["points"].as_array().expect("points") {
        assert_eq!(point["total"]["errors"], 0, "{point}");
        assert!(number(&point["cpu"]["us_per_command"]) > 0.0, "{point}");
    }
    let csv = std::fs::read_to_string(home.path("p.csv")).expect("a table");
    let figures = csv.lines().last().expect("a line").split(',').skip(22).take(2);
    assert!(figures.filter_map(|figure| figure.parse::<f64>().ok()).count() == 2, "{csv}");
    let page = std::fs::read_to_string(home.path("r.html")).expect("a report");
    assert!(page.contains("CPU %"), "the report");
    let text = home.ok(&[&slow[..7], &["-t", "0.1", "--no-prefill", "--completion", "interrupt"]].concat());
    assert!(text.contains("Completion: interrupt\n") && text.contains("\nProcessor: "), "{text}");
}

#[test]
fn commands_are_found_by_interrupts_of_several_queues_of_a_thread() {
    let home = Home::new();
    let servers = ["s", "t"].map(|socket| home.serve(&["mem:block:4M", "--socket", socket]));
    let names = ["s", "t"].map(|socket| format!("vfio-user:{}", home.path(socket).display()));
    for how in ["interrupt", "hybrid"] {
        let words = ["perf", "-r", &names[0], "-r", &names[1], "--amount", "8M", "-q", "4", "-w", "randrw"];
        let run = home.json(&[&words[..], &["--force", "--verify", "--completion", how]].concat());
        let total = &run["points"][0]["total"];
        assert_eq!((&total["errors"], &total["miscompares"]), (&0.into(), &0.into()), "{total}");
        let rows = run["points"][0]["rows"].as_array().expect("rows");
        assert!(rows.len() == 2 && rows.iter().all(|row| number(&row["iops"]) > 0.0), "{rows:?}");
    }
    drop(servers);
    let done = home.run(&quick(&["--completion", "hybrid"]));
    let note = "a device of this process works only while it is polled: --completion hybrid polls";
    assert!(done.code == 0 && done.stderr.contains(note), "{}", done.stderr);
    home.run(&quick(&["--completion", "sleep"]))
        .fails_with_usage("[possible values: poll, interrupt, hybrid]");
}

/// Ten writes of 8 KiB, a read, a deallocation and a flush each, 1 ms apart.
fn iolog() -> String {
    let request = |at: u64| {
        let (us, offset) = (1000 * at, 65_536 * at);
        format!(
            "{us} f write {offset} 8192\n{us} f read {offset} 4096\n{us} f trim {offset} 4096\n{us} f sync 0 0\n"
        )
    };
    let requests: String = (0..10).map(request).collect();
    format!("fio version 3 iolog\n0 f add\n0 f open\n{requests}")
}

#[test]
fn a_trace_is_replayed_by_its_own_clock_with_all_that_is_in_it() {
    let home = Home::new();
    let trace = home.file("t.iolog", iolog().as_bytes());
    let timed = ["--no-prefill", "-r", "mem:block:16M,ftl=page,timing=tlc,media=tags", "--virtual-time"];
    let replay = [&["perf", "--trace", &trace], &timed[..]].concat();
    let run = home.json(&[&replay[..], &["--report", "r.html"]].concat());
    let point = &run["points"][0];
    let counts = ["trims", "flushes"].map(|kind| number(&point[kind]["count"]));
    let moved = ["read", "write"].map(|kind| number(&point["latency"][kind]["samples"]));
    assert_eq!((counts, moved), ([10.0; 2], [10.0; 2]), "{point}");
    // Twenty reads and writes in the 9 ms of the trace and what the last ones take.
    let iops = number(&point["total"]["iops"]);
    assert!((1800.0..2222.0).contains(&iops), "{iops}");
    assert!((number(&point["schedule"]["asked_iops"]) - 20.0 / 0.009).abs() < 1.0, "{point}");
    let shape = &run["workload"]["trace"];
    assert_eq!((&shape["requests"], &shape["speed"]), (&40.into(), &"1".into()));
    assert_eq!(run["workload"]["io_bytes"], 8192);
    let page = std::fs::read_to_string(home.path("r.html")).expect("a report");
    assert!(
        page.contains("trace with requests up to 8 KiB") && page.contains("by its own clock"),
        "the report"
    );
    let sweep = home.json(&[&replay[..], &["--matrix", "trace-speed=0.1,max"]].concat());
    let rate = |index: usize| number(&sweep["points"][index]["total"]["iops"]);
    assert!((200.0..222.3).contains(&rate(0)) && rate(1) > 1.5 * iops, "{} {}", rate(0), rate(1));
    assert_eq!(sweep["points"][1]["workload"]["trace"]["speed"], Value::Null);
    // Cut short, what was due is said.
    let short = home.json(&[&replay[..], &["-t", "0.0045"]].concat());
    assert_eq!(short["points"][0]["latency"]["write"]["samples"], 5, "{short}");
}

#[test]
fn requests_of_a_trace_go_where_it_says() {
    let home = Home::new();
    let trace = home.file("t.iolog", iolog().as_bytes());
    let act = r#""act":{"status":"write-fault"}"#;
    for (matched, text) in [
        (r#""opcode":"write","lba":"1152""#, "write of 16 blocks from block 1152: Write Fault"),
        (r#""opcode":"read","lba":"1152""#, "read of 8 blocks from block 1152: Write Fault"),
        (r#""opcode":"dsm","count":1"#, "deallocation of 8 blocks from block 0: Write Fault"),
        (r#""opcode":"flush","count":1"#, "core 0: flush: Write Fault"),
    ] {
        let rules = home.file("f.json", format!("[{{\"match\":{{{matched}}},{act}}}]").as_bytes());
        let words =
            ["perf", "-r", "mem:block:4M", "--trace", &trace, "--trace-speed", "max", "--faults", &rules];
        let done = home.run(&words);
        assert!(done.code == 1 && done.stderr.contains("1 command failed"), "{}", done.stderr);
        assert!(done.stderr.contains(text), "{text}: {}", done.stderr);
    }
    // One of two volumes, through a pipe; requests are split where they are too long for a command.
    let cloud = home.file("c.csv", b"7,W,0,4194304,1577808000000000\n9,R,1048576,512,1577808000000100\n");
    let run = home.json(&["perf", "-r", "mem:block:4M", "--trace", &cloud, "--trace-device", "7"]);
    assert_eq!(
        (&run["workload"]["io_bytes"], &run["points"][0]["total"]["errors"]),
        (&4_194_304.into(), &0.into())
    );
    assert_eq!(run["points"][0]["latency"]["all"]["samples"], 1);
}

#[test]
fn traces_that_cannot_be_replayed_are_refused_before_the_first_command() {
    let home = Home::new();
    let trace = home.file("t.iolog", iolog().as_bytes());
    let refused = |args: &[&str], part: &str| {
        let words = [&["perf", "-r", "mem:block:4M", "--trace", &trace], args].concat();
        home.run(&words).fails_with(2, &[part]);
    };
    refused(&["-w", "read"], "-w: --trace says what is done; leave one of them out");
    refused(&["--rate", "5"], "--rate: --trace says what is done");
    refused(&["--verify"], "--verify: what a trace writes is not known");
    refused(&["--trace-device", "g"], "--trace-device: ");
    refused(&["-r", "mem:block:8M"], "--trace: one namespace replays it");
    home.run(&quick(&["--trace-speed", "2"])).fails_with(2, &["--trace-speed: expected --trace with it"]);
    let far = home.file("far.csv", b"w,1099511627776,4096\n");
    home.run(&["perf", "-r", "mem:block:4M", "--trace", &far]).fails_with(
        2,
        &["far.csv reaches 1048578M, and VIRT (mem:block:4M) NSID 1 has 4M; use a larger device"],
    );
    let bad = home.file("bad.csv", b"w,0,4096\nx,0,1\n");
    home.run(&["perf", "-r", "mem:block:4M", "--trace", &bad])
        .fails_with(2, &["bad.csv:2: `x` is no operation"]);
    home.run(&["perf", "-r", "mem:block:4M", "--trace", &bad, "--trace-speed", "0"])
        .fails_with_usage("expected a factor above 0 such as 1, 0.5 or 10, or max");
}

#[test]
fn most_commands_go_to_the_hot_part_of_the_range() {
    // Reads fail in the hot part alone: what comes back is cold.
    let home = Home::new();
    let rules = home.file(
        "f.json",
        br#"[{"match":{"opcode":"read","lba":"0-1631"},"act":{"status":"unrecovered-read-error"}}]"#,
    );
    let words = ["perf", "-r", "mem:block:4M", "--amount", "64M", "--dist", "hot:20:80", "--faults", &rules];
    let done = home.run(&[&words[..], &["--output", "json"]].concat());
    let point = &done.json()["points"][0];
    let (hot, cold) = (number(&point["total"]["errors"]), number(&point["latency"]["all"]["samples"]));
    assert_eq!(hot + cold, 16384.0, "{}", done.stderr);
    assert!((0.78..0.82).contains(&(hot / 16384.0)), "{hot}");
    assert_eq!(done.json()["workload"]["distribution"], "hot:20:80");
    let refused = home.run(&quick(&["--dist", "hot:20:80", "-w", "read"]));
    refused.fails_with(2, &["--dist: the addresses of `-w read` are sequential; use randread"]);
    home.run(&quick(&["--dist", "hot:0:80"])).fails_with_usage("hot:SPACE:COMMANDS");
}

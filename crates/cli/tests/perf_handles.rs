//! `unvme perf --handle`: runs that are there, figures that agree, words that are refused. Nothing here
//! depends on how fast the machine is.

mod home;

use home::Home;

const QUICK: [&str; 7] = ["perf", "-t", "0.05", "--warmup", "0", "-r", "mem:block:16M"];

fn quick<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&QUICK, more].concat()
}

const READER: &str = "name=db,rw=randread,bs=4k,depth=1,sched=share:8,complete=hybrid,cache=read:1M";
const WRITER: &str = "name=backup,rw=write,bs=128K,depth=8,sched=share:1,offset=8M";

#[test]
fn each_is_measured_alone_and_all_side_by_side() {
    let home = Home::new();
    let outcome = home.json(&quick(&["--handle", READER, "--handle", WRITER, "--handle-window", "1M"]));
    assert_eq!(outcome["window_bytes"], 1 << 20);
    assert_eq!(outcome["handles"][1]["first_block"], 16_384);
    assert_eq!(outcome["handles"][0]["policies"], "cache=read:1M:s3fifo,sched=share:8,complete=hybrid");
    let runs = outcome["runs"].as_array().expect("runs");
    let names: Vec<&str> = runs.iter().filter_map(|run| run["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "db alone",
            "backup alone",
            "side by side, first come first served",
            "side by side, with their policies"
        ]
    );
    for run in runs {
        for own in run["handles"].as_array().expect("handles") {
            assert_eq!(own["errors"], 0);
            let rate = own["iops"].as_f64().expect("a rate");
            assert!(rate > 0.0, "{own}");
            let bytes = if own["name"] == "db" { 4096.0 } else { 131_072.0 };
            let moved = own["mib_per_second"].as_f64().expect("a rate") * f64::from(1 << 20);
            assert!((moved - rate * bytes).abs() < 1e-6 * moved, "{own}");
        }
    }
    // Alone it needs no second look: one run, and a cache that has hits to tell of.
    let outcome = home.json(&quick(&["--handle", "rw=randread,cache=read:8M,rate=2000,range=4M"]));
    let runs = outcome["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 1);
    let run = &runs[0];
    assert!(run["handles"][0]["hit_percent"].is_number(), "{run}");
}

#[test]
fn nothing_is_touched_beyond_the_range_that_holds_for_all() {
    let home = Home::new();
    let own = "rw=write,offset=8M,range=2M";
    let outcome =
        home.json(&quick(&["--offset", "4M", "--range", "1M", "--handle", "rw=write", "--handle", own]));
    let handles = outcome["handles"].as_array().expect("handles");
    let parts = handles.iter().map(|own| (own["first_block"].as_u64(), own["blocks"].as_u64()));
    assert!(parts.eq([(Some(8192), Some(2048)), (Some(16_384), Some(4096))]), "{outcome}");
}

#[test]
fn the_report_shows_the_spread_of_each_handle() {
    let home = Home::new();
    let path = home.path("handles.html");
    let path_text = path.to_str().expect("text");
    let output = home.ok(&quick(&["--handle", READER, "--handle", WRITER, "--report", path_text]));
    assert!(output.contains("db: ") && output.contains("at the 99th percentile alone"), "{output}");
    let page = std::fs::read_to_string(&path).expect("the report");
    for part in ["Latency of db", "Latency of backup", "side by side, with their policies", "Data moved"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn words_that_are_none_are_named_with_those_that_are() {
    let home = Home::new();
    for (more, part) in [
        (&["--handle", "rv=read"][..], "`rv=read`: it is not known; known are name, rw, bs"),
        (&["--handle", "sched=fair"], "fifo, deadline:TIME, share:WEIGHT, priority:N"),
        (&["--handle", "bs=1000"], "whole blocks of 512 bytes"),
        (&["--handle", "offset=32M"], "that there are"),
        (&["--handle", "name=a", "--handle", "name=a"], "two are called a"),
        (&["--handle", "", "-w", "read"], "-w: with --handle, each handle says it in its own words"),
        (&["--handle", "", "--trim", "5"], "--trim: with --handle, each handle"),
        (&["--handle", "", "--dist", "zipf:0.9"], "--dist: with --handle, each handle"),
        (&["--handle", "", "--trace-speed", "2"], "--trace-speed: with --handle, each handle"),
        (&["--handle", "", "--fdp-pid", "1"], "--fdp-pid: with --handle, each handle"),
        (&["--handle", "", "--flush-every", "1"], "--flush-every: with --handle, each handle"),
        (&["--handle", "", "--offset", "32M"], "that there are"),
        (&["--handle", "", "-r", "mem:block:4M"], "expected one device"),
        (&["--handle", "", "--matrix", "depth=1,2"], "cannot be used with"),
        (&["--handle", "cache=read:64K"], "1048576 or more"),
    ] {
        let done = home.run(&quick(more));
        assert!(done.code == 2 && done.stderr.contains(part), "{more:?}: {}", done.stderr);
    }
}

/// At a byte a second the first request alone takes more than an hour.
#[test]
fn a_limit_does_not_hold_the_end_up() {
    let home = Home::new();
    let started = std::time::Instant::now();
    let done = home.run(&quick(&["--handle", "name=slow,rw=randread,depth=4,limit=bytes:1"]));
    assert!(started.elapsed() < std::time::Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(done.code == 0 || done.stderr.contains("no command completed"), "{}", done.stderr);
}

//! `unvme sim`: the recipes' numbers at reduced size, output that is the same each time, options and traces
//! that are refused. Nothing here depends on how fast the machine is.

mod home;

use home::Home;
use serde_json::Value;

/// A device of 512 units of 256 pages: large enough for the numbers, small enough for a moment.
const SMALL: [&str; 5] = ["sim", "--size", "512M", "--ru-size", "1M"];

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SMALL, more].concat()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn rows(simulation: &Value) -> &Vec<Value> {
    simulation["rows"].as_array().expect("rows")
}

/// The plateau of the row with this utilisation, with FDP or without.
fn plateau(simulation: &Value, util: f64, fdp: bool) -> f64 {
    let mut found = rows(simulation).iter().filter(|row| number(&row["util"]) == util && row["fdp"] == fdp);
    number(&found.next().unwrap_or_else(|| panic!("no row {util} {fdp}"))["plateau"])
}

#[test]
fn a_cache_settles_where_it_was_published_and_fdp_brings_it_to_one() {
    let home = Home::new();
    let cache = ["--recipe", "cachelib", "--util", "50,100", "--writes", "12", "--prefill=false"];
    let found = home.json(&small(&cache));
    let off = [0.5, 1.0].map(|util| plateau(&found, util, false));
    let on = [0.5, 1.0].map(|util| plateau(&found, util, true));
    assert!((1.1..1.45).contains(&off[0]) && (2.6..4.0).contains(&off[1]), "without FDP: {off:?}");
    assert!((1.0..1.01).contains(&on[0]) && (1.0..1.12).contains(&on[1]), "with FDP: {on:?}");
    assert_eq!(rows(&found)[0]["published"]["value"], "1.22");
    // It starts at one and climbs after the first lap of the ring.
    let twelfths: Vec<f64> =
        rows(&found)[2]["twelfths"].as_array().expect("list").iter().map(number).collect();
    assert!(twelfths.len() == 12 && twelfths[0] < 1.2 && twelfths[11] > 2.0 * twelfths[0], "{twelfths:?}");
}

#[test]
fn files_of_levels_die_together_with_fdp_and_those_much_smaller_than_a_unit_do_not() {
    let home = Home::new();
    let tree = ["--recipe", "rocksdb", "--file-size", "512K", "--writes", "10"];
    let found = home.json(&small(&tree));
    let (off, on) = (plateau(&found, 0.8, false), plateau(&found, 0.8, true));
    assert!((1.3..2.0).contains(&off) && (1.0..1.03).contains(&on), "{off} {on}");
    let random = ["--recipe", "rocksdb", "--file-size", "128K", "--file-victim", "random", "--writes", "10"];
    let found = home.json(&small(&random));
    let on = plateau(&found, 0.8, true);
    assert!((1.2..2.0).contains(&on), "{on}");
}

#[test]
fn streams_that_overwrite_each_other_are_not_helped_by_fdp() {
    let home = Home::new();
    let found = home.json(&small(&["--recipe", "adversarial", "--fdp", "on", "--writes", "12"]));
    let on = plateau(&found, 1.0, true);
    assert!((1.8..4.6).contains(&on), "{on}");
}

#[test]
fn uniform_writes_are_amplified_as_theory_says_and_trims_help_as_it_says() {
    let home = Home::new();
    for more in [&["--op", "28%"][..], &["--op", "15%", "--trim", "20%"]] {
        let found = home.json(&small(&[&["--workload", "uniform", "--writes", "10"], more].concat()));
        let row = &rows(&found)[0];
        let (measured, theory) = (number(&row["plateau"]), number(&row["theory"]["value"]));
        let with_reserve = number(&row["theory"]["with_reserve"]);
        assert!(with_reserve > theory, "{row}");
        assert!(
            (theory * 0.97..with_reserve * 1.03).contains(&measured),
            "{more:?}: {measured}, theory {theory}"
        );
    }
}

#[test]
fn sequential_writes_are_never_moved() {
    let home = Home::new();
    for util in ["30", "100"] {
        let found = home.json(&small(&["--workload", "sequential", "--util", util, "--writes", "4"]));
        let row = &rows(&found)[0];
        assert_eq!(row["media_pages"], row["host_pages"], "{util}");
        assert_eq!((number(&row["plateau"]), number(&row["theory"]["value"])), (1.0, 1.0));
        assert_eq!(row["handles"][0]["moved_pages"], 0);
    }
}

#[test]
fn a_random_map_is_much_milder_than_independent_draws_and_popularity_is_heard() {
    let home = Home::new();
    let settle = |workload: &str| {
        let found = home.json(&small(&["--workload", workload, "--op", "14%", "--writes", "8"]));
        plateau(&found, 1.0, false)
    };
    let (map, uniform, zipf) = (settle("random-map"), settle("uniform"), settle("zipf=1.2"));
    assert!((2.1..2.8).contains(&map) && (4.0..4.6).contains(&uniform), "{map} {uniform}");
    assert!((zipf - uniform).abs() > 0.1, "{zipf} {uniform}");
}

#[test]
fn hot_and_cold_data_is_amplified_as_theory_says_mixed_and_apart() {
    let home = Home::new();
    let hot_cold = ["--workload", "hotcold=10/90", "--op", "28%", "--writes", "12"];
    let apart = home.json(&small(&[&hot_cold[..], &["--isolation", "persistently"]].concat()));
    let (mixed, kept) = (plateau(&apart, 1.0, false), plateau(&apart, 1.0, true));
    assert!(mixed > kept * 1.1, "{mixed} {kept}");
    let fifo = home.json(&small(&[&hot_cold[..], &["--policy", "fifo", "--fdp", "off"]].concat()));
    for row in [&rows(&apart)[1], &rows(&fifo)[0]] {
        let (low, high) = (number(&row["theory"]["value"]), number(&row["theory"]["with_reserve"]));
        let found = number(&row["plateau"]);
        assert!((low * 0.97..high * 1.03).contains(&found), "{found}, theory {low} to {high}");
    }
    assert!(rows(&apart)[0]["theory"].is_null() && apart["workload"]["name"] == "hotcold", "{apart}");
    assert_eq!(apart["workload"]["streams"], serde_json::json!(["hot", "cold"]));
}

#[test]
fn several_writers_have_pages_shares_and_handles_of_their_own() {
    let home = Home::new();
    let log =
        ["-w", "sequential,space=25,share=50,burst=4,handle=1", "-w", "uniform,handle=0", "-w", "zipf=0.9"];
    let found = home.json(&small(&[&log[..], &["--writes", "4", "--fdp", "on"]].concat()));
    assert_eq!(found["workload"]["streams"], serde_json::json!(["2 uniform", "1 sequential", "3 zipf 0.9"]));
    let handles = rows(&found)[0]["handles"].as_array().expect("handles");
    let pages: Vec<f64> = handles.iter().map(|handle| number(&handle["host_pages"])).collect();
    let all: f64 = pages.iter().sum();
    for (share, expected) in pages.iter().map(|pages| pages / all).zip([0.25, 0.5, 0.25]) {
        assert!((share - expected).abs() < 0.01, "{pages:?}");
    }
    let text = home.ok(&small(&[&log[..], &["--writes", "1", "--html", "one.html", "--fdp", "on"]].concat()));
    assert!(
        text.contains("1 sequential: 25 % of the pages, 50 % of the writes, 4 pages at a time, handle 1"),
        "{text}"
    );
    let page = std::fs::read_to_string(home.path("one.html")).expect("read");
    assert!(page.contains("pages in 1 run<"), "one run is one run");
}

#[test]
fn reclaim_that_is_given_time_leaves_less_to_wait_for_and_moves_as_much() {
    let home = Home::new();
    let args = ["--size", "64M", "--ru-size", "256K", "--timing", "tlc", "--writes", "3", "--op", "28%"];
    let run = |more: &[&str]| {
        home.json(&[&["sim", "--workload", "uniform", "--util", "100"], &args[..], more].concat())
    };
    let (busy, idle) = (run(&[]), run(&["--idle", "20ms/512K"]));
    let p99 = |found: &Value| number(&rows(found)[0]["latency"]["p99_us"]);
    assert!(p99(&idle) < p99(&busy) / 4.0, "{} and {}", p99(&idle), p99(&busy));
    let (busy_waf, idle_waf) = (plateau(&busy, 1.0, false), plateau(&idle, 1.0, false));
    assert!((idle_waf / busy_waf - 1.0).abs() < 0.05, "{busy_waf} and {idle_waf}");
    let seconds = number(&rows(&idle)[0]["samples"][95]["seconds"]);
    assert!(seconds > 384.0 * 0.02, "{seconds}");
    let text = home.ok(&small(&["--idle", "1s/1M", "--writes", "1"]));
    assert!(text.contains("idle 1s after each 1 MiB"), "{text}");
}

#[test]
fn the_same_seed_prints_the_same_bytes_on_any_number_of_threads_and_another_one_does_not() {
    let home = Home::new();
    let run = |more: &[&str]| {
        let args =
            ["--recipe", "cachelib", "--util", "50,100", "--writes", "2", "-o", "json", "--html", "r.html"];
        let text = home.ok(&small(&[&args, more].concat()));
        (text, std::fs::read_to_string(home.path("r.html")).expect("read"))
    };
    let once = run(&["--seed", "5", "--threads", "1"]);
    assert_eq!(once, run(&["--seed", "5", "--threads", "1"]));
    assert_eq!(once.0, run(&["--seed", "5", "--threads", "2"]).0);
    assert_ne!(once.0, run(&["--seed", "6", "--threads", "1"]).0);
    assert!(!once.0.contains("clock"));
    let timed = home.ok(&small(&["--writes", "0.1", "-o", "json", "--clock"]));
    assert!(timed.contains("media_pages_per_second"));
}

#[test]
fn the_sums_of_the_json_agree() {
    let home = Home::new();
    let found = home.json(&small(&[
        "--recipe",
        "adversarial",
        "--groups",
        "2",
        "--policy",
        "cost-benefit",
        "--writes",
        "3",
    ]));
    assert_eq!(found["device"]["physical_bytes"], 512u64 << 20);
    for row in rows(&found) {
        let sum = |key: &str| {
            let handles = row["handles"].as_array().expect("handles");
            handles.iter().map(|handle| number(&handle[key])).sum::<f64>()
        };
        assert_eq!(sum("host_pages"), number(&row["host_pages"]));
        assert_eq!(number(&row["host_pages"]), 3.0 * 131_072.0);
        assert_eq!(sum("host_pages") + sum("moved_pages"), number(&row["media_pages"]));
        assert_eq!(sum("erased_units"), number(&row["erased_units"]));
        assert_eq!(row["samples"].as_array().map(Vec::len), Some(96));
        let last = &row["samples"][95];
        assert_eq!(number(&last["device_writes"]), 3.0);
        assert!(number(&last["mapped"]) > 0.9 && number(&last["free"]) < 0.1, "{last}");
        assert!(number(&row["overprovisioning_effective"]) < number(&found["device"]["overprovisioning"]));
    }
}

#[test]
fn a_device_is_filled_first_where_a_utilisation_is_given_and_the_mapped_share_is_in_every_table() {
    let home = Home::new();
    let run = |more: &[&str]| {
        let args = ["--workload", "zipf=1.2", "--op", "14%", "--writes", "6"];
        let found = home.json(&small(&[&args, more].concat()));
        let row = &rows(&found)[0];
        assert_eq!(number(&row["host_pages"]), 6.0 * 131_072.0, "what filling took is not counted");
        (number(&row["mapped"]), number(&row["plateau"]))
    };
    let (empty, filled) = (run(&[]), run(&["--util", "100"]));
    assert!(empty.0 < 0.9 && filled.0 == 1.0, "{empty:?} {filled:?}");
    assert!(filled.1 > 1.5 * empty.1, "{empty:?} {filled:?}");
    assert_eq!((run(&["--prefill"]), run(&["--util", "100", "--prefill=false"])), (filled, empty));
    assert_eq!(run(&["--util", "80"]).0, 0.8);
    let csv = home.file("t.csv", b"w,0,4096\nw,4096,4096\n");
    let trace = ["--trace", &csv, "--writes", "1", "--clock", "--timing", "tlc", "--html", "r.html"];
    let text = home.ok(&small(&[&trace[..], &["--util", "90"]].concat()));
    assert_eq!(text.matches("   90%     90% off").count(), 5, "{text}");
    assert!(text.contains("the device is with every page in use written once at first"), "{text}");
    let page = std::fs::read_to_string(home.path("r.html")).expect("read");
    assert_eq!(page.matches("Mapped, %").count(), 3);
}

#[test]
fn parameters_of_the_timing_are_heard_and_refused_by_name() {
    let home = Home::new();
    let lasts = |timing: &str| {
        let args = ["--workload", "sequential", "--writes", "0.5", "--timing", timing];
        let found = home.json(&small(&args));
        let last = &rows(&found)[0]["samples"][95];
        (found["device"]["timing"].as_str().expect("text").to_owned(), number(&last["seconds"]))
    };
    let file = home.file("slow.timing", b"preset = tlc # but slow\nprog = 5ms\n");
    let (tlc, slow) = (lasts("tlc"), lasts("tlc,prog=5ms"));
    assert_eq!((tlc.0.as_str(), slow.0.as_str()), ("tlc", "tlc,prog=5ms"));
    assert_eq!(lasts(&format!("@{file}")), slow);
    // 65 536 pages at 744 600 per second; 32 dies with 24 pages in 5 ms, and their erasures, are 150 700.
    assert!((tlc.1 / (65_536.0 / 744_600.0) - 1.0).abs() < 0.02, "{tlc:?}");
    assert!((slow.1 / (65_536.0 / 153_600.0) - 1.0).abs() < 0.03, "{slow:?}");
    let refused = |timing: &str, part: &str| {
        let run = home.run(&small(&["--timing", timing]));
        assert!(
            run.code == 2 && run.stderr.contains("--timing") && run.stderr.contains(part),
            "{}",
            run.stderr
        );
    };
    refused("tlc,prog=2h", "prog: expected 0ns to 1s, not `2h`");
    refused("@missing.timing", "read missing.timing: No such file");
}

#[test]
fn a_trace_may_come_packed_or_through_standard_input() {
    let home = Home::new();
    let plain = b"w,0,4096\nw,4096,4096\n";
    let run = |path: &str| home.run(&small(&["--trace", path, "--writes", "0.1", "-o", "json"])).text();
    let rows_of = |text: &str| text[text.find("\"rows\"").expect("rows")..].to_owned();
    let expected = rows_of(&run(&home.file("t.csv", plain)));
    let gz = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x2b\xd7\x31\xd0\x31\x31\xb0\x34\xe3\x2a\x07\x53\x10\x36\x00\xf8\x04\x3a\x81\x15\x00\x00\x00";
    assert_eq!(rows_of(&run(&home.file("t.csv.gz", gz))), expected);
    let stdin = home.ok_with(&small(&["--trace", "-", "--writes", "0.1", "-o", "json"]), plain);
    assert!(stdin.contains("Trace standard input"), "{stdin}");
    assert_eq!(rows_of(&stdin), expected);
    home.run(&small(&["--trace", &home.file("cut.gz", &gz[..20]), "--writes", "0.1"]))
        .fails_with(4, &["read ", "cut.gz"]);
}

#[test]
fn virtual_time_gives_latencies_and_hours() {
    let home = Home::new();
    let args = ["--size", "64M", "--ru-size", "256K", "--timing", "tlc", "--writes", "2", "--op", "28%"];
    let found = home.json(&[&["sim", "--workload", "uniform"], &args[..]].concat());
    let row = &rows(&found)[0];
    let latency = |key: &str| number(&row["latency"][key]);
    assert!(latency("p50_us") > 1.0 && latency("p50_us") <= latency("p99_us"), "{}", row["latency"]);
    assert!(latency("p99_us") <= latency("max_us"), "{}", row["latency"]);
    let seconds: Vec<f64> =
        row["samples"].as_array().expect("samples").iter().map(|at| number(&at["seconds"])).collect();
    assert!(seconds.windows(2).all(|pair| pair[0] < pair[1]) && seconds[95] > 0.01, "{seconds:?}");
    let text = home.ok(&[&["sim", "--workload", "uniform"], &args[..]].concat());
    assert!(text.contains("Latency of writes of 4 KiB at depth 32") && text.contains("timing tlc"), "{text}");
}

#[test]
fn a_trace_is_replayed_as_often_as_it_takes_and_its_placements_are_heard() {
    let home = Home::new();
    let mut csv = String::from("op,offset,length,pid\n");
    for page in 0..64 {
        csv += &format!("w,{},4096,{}\nr,0,4096,0\n", page * 4096, page % 2);
    }
    csv += "t,0,131072,0\n";
    let path = home.file("t.csv", csv.as_bytes());
    let text = home.ok(&["sim", "--trace", &path, "--size", "64M", "--ru-size", "256K", "--writes", "2"]);
    assert!(text.contains("Trace t.csv") && text.contains("placement 1"), "{text}");
    let found = home.json(&[
        "sim",
        "--trace",
        &path,
        "--size",
        "64M",
        "--ru-size",
        "256K",
        "--writes",
        "2",
        "--fdp",
        "on",
    ]);
    let strange = home.file("a\u{1b}[31m.csv", b"w,0,4096\nw,4096,4096\n");
    let text = home.ok(&small(&["--trace", &strange, "--writes", "0.1"]));
    assert!(text.contains("Trace a\u{fffd}[31m.csv") && !text.contains('\u{1b}'), "{text}");
    let row = &rows(&found)[0];
    assert_eq!(number(&row["host_pages"]), 2.0 * 16_384.0);
    assert_eq!(number(&row["trimmed_pages"]), 511.0 * 32.0, "the last trims come behind the last write");
    assert_eq!(row["handles"][0]["host_pages"], row["handles"][1]["host_pages"]);
    home.run(&["sim", "--trace", &path])
        .fails_with(2, &["--writes: 64 pages are written in all", "at least 96"]);
    let large = home.file("large.csv", b"w,1099511627776,4096\n");
    let args = ["sim", "--trace", &large, "--writes", "1"];
    home.run(&args)
        .fails_with(2, &["--size: large.csv reaches 1099511631872 bytes", "make the device larger"]);
}

#[test]
fn the_sentence_says_what_fdp_did_also_when_that_is_nothing() {
    let home = Home::new();
    let sentence = |more: &[&str]| {
        home.ok(&small(&[&["--fdp", "both", "--writes", "4", "--html", "r.html"], more].concat()));
        let page = std::fs::read_to_string(home.path("r.html")).expect("read");
        page[page.find("class=\"result\">").expect("a sentence")..].chars().take(140).collect::<String>()
    };
    let cache = sentence(&["--recipe", "cachelib"]);
    assert!(cache.contains("FDP brings write amplification from 1."), "{cache}");
    let uniform = sentence(&["--workload", "uniform"]);
    assert!(uniform.contains("settles at 3.") && uniform.contains("without FDP and at 3."), "{uniform}");
}

#[test]
fn a_bad_line_of_a_trace_is_named_with_its_number_and_text() {
    let home = Home::new();
    let path = home.file("bad.log", b"fio version 2 iolog\n/dev/a open\n/dev/a write 0 x\n");
    home.run(&["sim", "--trace", &path])
        .fails_with(2, &["bad.log:3: expected a length, not `x`: `/dev/a write 0 x`"]);
    home.run(&["sim", "--trace", "missing.csv"]).fails_with(4, &["read missing.csv: No such file"]);
    let path = home.file("t.csv", b"w,0,4096\n");
    home.run(&["sim", "--trace", &path, "--trace-format", "blkparse"])
        .fails_with(2, &["t.csv:1: expected a device"]);
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    let home = Home::new();
    for (args, parts) in [
        (
            &["--op", "0.5%"][..],
            &["--op: 0.5% is too little", "512 reclaim units", "the least that works is "][..],
        ),
        (
            &["--size", "513M", "--ru-size", "2M"],
            &["--size: 537919488 bytes are not possible", "such as 536870912"],
        ),
        (&["--ru-size", "5000"], &["--ru-size: 5000 bytes", "a multiple of 4K"]),
        (
            &["--size", "256K", "--ru-size", "64K"],
            &["--size: 4 reclaim units are too few, 4 are open or free", "make the flash larger"],
        ),
        (&["--size", "4T"], &["--size: ", "less than 4T"]),
        (&["--soc", "4%"], &["--soc: only --recipe cachelib has this option"]),
        (&["--burst", "4"], &["--burst: only --recipe cachelib and rocksdb has this option"]),
        (&["--trim", "50%"], &["--trim: ", "below 50%"]),
        (&["--workload", "sequential", "--trim", "5%"], &["--trim: a sequential workload"]),
        (&["--recipe", "cachelib", "--trim", "5%"], &["--trim: only a --workload"]),
        (&["--recipe", "rocksdb", "--levels", "50,50"], &["--levels, --level-traffic: 2 and 4 levels"]),
        (
            &["--recipe", "rocksdb", "--levels", "50,40", "--level-traffic", "50,50"],
            &["--levels: the shares add up to 90 %"],
        ),
        (&["--recipe", "rocksdb", "--file-size", "128M"], &["--file-size: 2 files fit", "at least 8"]),
        (
            &["--recipe", "adversarial", "--stream-traffic", "50,50"],
            &["--stream-traffic: expected three shares"],
        ),
        (&["--recipe", "cachelib", "--handles", "1"], &["--handles: 1 for the 2 streams"]),
        (&["--workload", "hotcold=10/90", "--trim", "5%"], &["--trim: only a single --workload"]),
        (&["-w", "uniform,share=90", "-w", "uniform,share=90"], &["--workload: share= adds up to 180 %"]),
        (&["--util", "0"], &["--util: 0 pages are in use"]),
        (&["--writes", "0.0001"], &["--writes: 13 pages are written in all"]),
        (&["--html", "no/such/folder.html"], &["write no/such/folder.html"]),
    ] {
        let code = if args[0] == "--html" { 4 } else { 2 };
        let is_sized = args.iter().any(|arg| arg.ends_with("size") && *arg != "--file-size");
        let args = if is_sized { [&["sim"], args].concat() } else { small(args) };
        home.run(&args).fails_with(code, parts);
    }
    home.run(&small(&["--trim", "50%", "--html", "none.html"])).fails_with(2, &["--trim: "]);
    assert!(!home.path("none.html").exists(), "a wrong option leaves no empty report");
    for (args, part) in [
        (&["--workload", "pareto"][..], "expected uniform, zipf=THETA"),
        (&["--util", "101"], "no percentage"),
        (&["--recipe", "mysql"], "cachelib"),
        (&["--policy", "lru"], "cost-benefit"),
        (&["--writes=-1"], "--writes"),
        (&["--idle", "10/64M"], "such as 10ms/64M"),
        (&["--workload", "uniform,share=x"], "no percentage"),
        (&["--workload", "uniform", "--recipe", "cachelib"], "cannot be used with"),
        (&["--groups", "0"], "--groups"),
    ] {
        home.run(&small(args)).fails_with_usage(part);
    }
}

#[test]
fn the_report_and_the_pictures_need_nothing_else() {
    let home = Home::new();
    std::fs::create_dir(home.path("p")).expect("folder");
    let args =
        ["--recipe", "cachelib", "--util", "80,100", "--writes", "2", "--html", "r.html", "--pictures", "p"];
    let text = home.ok(&small(&[&args[..], &["--csv", "r.csv"]].concat()));
    assert!(text.ends_with("CSV: r.csv\nReport: r.html\nPictures: p\n"), "{text}");
    let page = std::fs::read_to_string(home.path("r.html")).expect("read");
    assert!(page.starts_with("<!doctype html>") && page.contains("Write amplification over time"));
    assert_eq!(page.matches("<figure").count(), 4);
    assert!(page.contains(" pages written by the host</title>") && page.contains("id=\"data\">{"));
    balanced(&page[page.find("<main>").expect("main")..page.find("</main>").expect("main") + 7]);
    let pictures = ["cachelib-waf.svg", "cachelib-utilisation.svg", "cachelib-sweep.svg"];
    for picture in pictures.map(|name| std::fs::read_to_string(home.path("p").join(name)).expect("read")) {
        assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && picture.len() < 60_000);
        balanced(&picture);
        outside(&picture.replacen("http://www.w3.org/2000/svg", "", 1));
    }
    outside(&page);
    let csv = std::fs::read_to_string(home.path("r.csv")).expect("read");
    assert_eq!(csv.lines().count(), 1 + 4 * 96);
    home.run(&small(&["--writes", "1", "--pictures", "missing"]))
        .fails_with(4, &["write missing/uniform-waf.svg"]);
}

/// Nothing is loaded from anywhere.
fn outside(text: &str) {
    for outside in ["http:", "https:", "src=", "@import", "url(", "fetch(", "//cdn"] {
        assert!(!text.contains(outside), "{outside}");
    }
}

/// Every element that is opened is closed, in the right order.
fn balanced(markup: &str) {
    let mut open = Vec::new();
    for tag in markup.split('<').skip(1).map(|rest| &rest[..rest.find('>').expect("a tag ends")]) {
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else {
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

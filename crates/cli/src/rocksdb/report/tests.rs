use std::path::Path;

use super::output::Output;
use super::results::{Interval, Latency, Results};
use super::*;

const FILL: &str = include_str!("vectors/fillseq.txt");
const TWICE: &str = include_str!("vectors/readrandom-twice.txt");
const MIXED: &str = include_str!("vectors/readwhilewriting.txt");
const REFUSED: &str = include_str!("vectors/fillsync-refused.txt");
/// As version 5 writes it.
const OLD: &str = "RocksDB:    version 5.6\n\
    fillseq      :       2.886 micros/op 346497 ops/sec;   38.3 MB/s\n\
    Microseconds per write:\n\
    Count: 100 Average: 2.8860  StdDev: 1.5\n\
    Min: 1.0000  Median: 2.5000  Max: 90.0000\n\
    Percentiles: P50: 2.50 P75: 3.10 P99: 9.00 P99.9: 80.00 P99.99: 90.00\n\
    ------------------------------------------------------\n\
    [       2,       3 )       60  60.000%  60.000% ############\n";

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    folder
}

fn read(paths: &[&Path]) -> Result<Results> {
    Results::read(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
}

fn both() -> (tempfile::TempDir, Results) {
    let counted = "{\"device\":\"0000:02:00.0\",\"reads\":7,\"cache_hits\":3,\"cache_misses\":1}\n";
    let folder = folder(&[
        ("unvme/1-insert.txt", FILL),
        ("unvme/1-insert.stats.json", &[counted, counted].concat()),
        ("unvme/2-readwrite.txt", MIXED),
        ("kernel/1-insert.txt", &FILL.replace("85605 ops/sec", "42802 ops/sec")),
        ("kernel/2-readwrite.txt", MIXED),
        ("kernel/3-twice.txt", TWICE),
    ]);
    let results =
        read(&[&folder.path().join("unvme"), &folder.path().join("kernel")]).expect("both are good");
    (folder, results)
}

fn page_of(results: &Results) -> String {
    let mut out = Vec::new();
    experiment::write(&page::experiment(results), results, &mut out).expect("memory takes it");
    String::from_utf8(out).expect("UTF-8")
}

fn table_of(results: &Results) -> String {
    let mut out = Vec::new();
    table::write(results, &mut out).expect("memory takes it");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn a_benchmark_has_its_figures_its_histogram_and_its_statistics() {
    let output = Output::parse(FILL);
    assert_eq!(output.command.as_deref(), Some("db_bench --db=/mnt/rocksdb --benchmarks=fillseq"));
    assert_eq!(output.about["RocksDB"], "version 7.8.3");
    assert_eq!(output.about["Keys"], "16 bytes each (+ 0 bytes user-defined timestamp)");
    assert_eq!(output.tickers["rocksdb.bytes.written"], 2_064_000);
    let [fill] = output.benchmarks.as_slice() else { panic!("{:?}", output.benchmarks) };
    assert_eq!((fill.name.as_str(), fill.micros_per_op, fill.ops_per_second), ("fillseq", 11.668, 85605.0));
    assert_eq!((fill.seconds, fill.operations, fill.mb_per_second), (Some(0.023), Some(2000), Some(82.9)));
    assert_eq!(fill.found, None);
    let latency = fill.latency.as_ref().expect("it was recorded");
    assert_eq!(latency.count, 2000);
    assert_eq!(latency.buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 2000);
    assert!(latency.buckets.windows(2).all(|pair| pair[0].to_us < pair[1].to_us));
    // Too short for its thread to speak.
    assert_eq!(fill.series, [(0.023, 85605.0)]);
}

#[test]
fn each_of_several_benchmarks_has_its_own() {
    let output = Output::parse(TWICE);
    let rates: Vec<f64> = output.benchmarks.iter().map(|own| own.ops_per_second).collect();
    assert_eq!(rates, [126_576.0, 151_499.0]);
    assert_eq!(output.benchmarks[0].found, Some((3000, 3000)));
    let medians = output.benchmarks.iter().map(|own| own.latency.as_ref().map(|latency| latency.p50_us));
    assert_eq!(medians.collect::<Vec<_>>(), [Some(1.82), Some(1.59)]);
}

#[test]
fn the_rate_over_time_is_that_of_the_readers_and_adds_up_to_all_they_did() {
    let output = Output::parse(MIXED);
    let [mixed] = output.benchmarks.as_slice() else { panic!("{:?}", output.benchmarks) };
    let (mut begin, mut all) = (0.0, 0.0);
    for (end, rate) in &mixed.series {
        all += (end - begin) * rate;
        begin = *end;
    }
    assert!((all - 626_998.0).abs() < 1.0, "{all}: {:?}", mixed.series);
    assert_eq!(mixed.series.len(), 3);
    // Thread 0 writes: with its 23000 of the first second it would be more.
    let first = mixed.series[0].1;
    assert!((245_000.0..255_000.0).contains(&first), "{first}");
}

#[test]
fn the_text_of_an_old_version_is_read_too() {
    let output = Output::parse(OLD);
    let [fill] = output.benchmarks.as_slice() else { panic!("{:?}", output.benchmarks) };
    assert_eq!((fill.ops_per_second, fill.mb_per_second, fill.operations), (346_497.0, Some(38.3), None));
    assert_eq!(fill.latency.as_ref().map(|latency| (latency.p99_us, latency.max_us)), Some((9.0, 90.0)));
    assert!(fill.series.is_empty(), "nobody knows how long it took");
}

#[test]
fn broken_text_is_passed_over() {
    for text in [
        "",
        "\u{0}\u{1b}[2J",
        ":",
        "a : micros/op ops/sec",
        "a : -1 micros/op 3 ops/sec",
        "a : NaN micros/op 3 ops/sec",
        "a b : 1 micros/op 3 ops/sec",
        "Microseconds per read:\n[ 1, 2 ] x",
        "2026 ... thread 0: (1,2",
        "... thread x: (1,1) ops and (1,1) ops/second in (1,1) seconds",
        "rocksdb.bytes.written COUNT : -5",
    ] {
        assert!(Output::parse(text).benchmarks.is_empty(), "{text}");
    }
    // Cut anywhere it is less, and no panic.
    for text in [FILL, MIXED, TWICE, OLD] {
        for end in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let output = Output::parse(&text[..end]);
            assert!(output.benchmarks.len() <= 2);
        }
    }
    let odd = "2026/11/25-13:45:42  ... thread 1: (1,1) ops and (1,1) ops/second in (0,1e300) seconds\n\
        x : 1e300 micros/op 1e300 ops/sec 1e300 seconds 18446744073709551615 operations; 1e300 MB/s\n";
    assert_eq!(Output::parse(odd).benchmarks.len(), 1);
}

#[test]
fn files_of_a_folder_are_phases_in_their_order() {
    let (_folder, results) = both();
    assert_eq!(results.phases(), ["insert", "readwrite", "twice 1", "twice 2"]);
    let names: Vec<&str> = results.sides.iter().map(|side| side.name.as_str()).collect();
    assert_eq!(names, ["unvme", "kernel"]);
    let insert = results.sides[0].phase("insert").expect("it is there");
    // Two mounts; what is no number is no counter.
    assert_eq!(insert.file_system.values().copied().collect::<Vec<_>>(), [6, 2, 14]);
}

#[test]
fn sides_are_compared_with_the_last_one() {
    let (_folder, results) = both();
    let table = table_of(&results);
    let mut lines = table.lines().filter(|line| line.starts_with("insert"));
    let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    assert!(first.contains("unvme") && first.ends_with(" 2.00"), "{first}");
    assert!(second.contains("kernel") && second.trim_end().ends_with('s'), "{second}");
    assert!(table.lines().next().is_some_and(|line| line.ends_with("Max      / kernel")), "{table}");
    let page = page_of(&results);
    for part in [
        "unvme is faster than kernel in 1 of 2 phases: 1.00 to 2.00 times its operations per second.",
        "Throughput by phase",
        "Ratio by phase",
        "insert: throughput over time",
        "readwrite: latency",
        "Hits of the page cache by phase",
        "What the file system did",
        "<title>insert, unvme\n75.0 %</title>",
        "What RocksDB did",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn folders_of_one_name_are_told_apart() {
    let folder = folder(&[("one/unvme/a.txt", FILL), ("two/unvme/a.txt", FILL)]);
    let results = read(&[&folder.path().join("one/unvme"), &folder.path().join("two/unvme")]).expect("both");
    let names: Vec<&str> = results.sides.iter().map(|side| side.name.as_str()).collect();
    assert_eq!(names, ["unvme", "unvme 2"]);
    assert!(table_of(&results).contains("/ unvme 2"));
}

#[test]
fn a_report_is_drawn_again_from_its_json() {
    let (_folder, results) = both();
    let json = serde_json::to_string(&results).expect("it is written");
    let again = Results::parse(&json).expect("it is read");
    assert_eq!(page_of(&again), page_of(&results));
    assert_eq!(table_of(&again), table_of(&results));
}

#[test]
fn a_report_that_is_drawn_again_alone_keeps_the_version_that_has_measured() {
    let (folder, mut results) = both();
    results.tool_version = "0.0.1-earlier".to_owned();
    let json = folder.path().join("results.json");
    std::fs::write(&json, serde_json::to_string(&results).expect("it is written")).expect("a file");
    let again = read(&[&json]).expect("it is read");
    assert_eq!(again.tool_version, "0.0.1-earlier");
    assert!(page_of(&again).contains("unvme 0.0.1-earlier"));
    let beside = read(&[&json, &folder.path().join("kernel")]).expect("both are read");
    assert_eq!(beside.tool_version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn more_benchmarks_than_anybody_draws_are_refused_before_they_are_compared() {
    let line = |name: usize| format!("b{name} : 1.0 micros/op 3 ops/sec 1.0 seconds 5 operations;\n");
    let many = |count: usize| (0..count).map(line).collect::<String>();
    let folder = folder(&[("most.txt", &many(256)), ("more.txt", &many(100_000))]);
    let most = read(&[&folder.path().join("most.txt")]).expect("as many as are drawn");
    assert_eq!(most.phases().len(), 256);
    let error = read(&[&folder.path().join("more.txt")]).expect_err("too many");
    let told = format!("{error:#}");
    assert!(told.ends_with("more.txt: 100000 benchmarks; expected at most 256"), "{told}");
}

#[test]
fn what_is_no_result_is_an_error_that_names_the_file() {
    let folder = folder(&[
        ("refused.txt", REFUSED),
        ("empty/a.log", ""),
        ("bad.json", "{\"sides\":3}"),
        ("twice/1-a.txt", FILL),
        ("twice/2-a.txt", FILL),
        ("counted/a.txt", FILL),
        ("counted/a.stats.json", "[]\n"),
    ]);
    for (name, part) in [
        ("refused.txt", "no benchmark of db_bench has ended in it; its last line is \"db_bench: ./tools"),
        ("empty", "no *.txt in it"),
        ("bad.json", "expected what `unvme rocksdb-plot --json` writes: "),
        ("twice", "a: is there twice"),
        ("counted", "line 1: expected what UNVME_ROCKSDB_STATS writes"),
        ("nothing", "No such file"),
    ] {
        let error = read(&[&folder.path().join(name)]).expect_err(name);
        let told = format!("{error:#}");
        assert!(told.contains(part) && told.contains(name), "{name}: {told}");
    }
}

#[test]
fn json_of_anybody_is_refused_or_drawn() {
    let (_folder, results) = both();
    let json = serde_json::to_value(&results).expect("it is written");
    for (path, value, part) in [
        ("/sides", serde_json::json!([]), "there are no sides"),
        ("/sides/0/phases", serde_json::json!([]), "0 phases; expected 1 to 256"),
        ("/sides/0/phases/0/ops_per_second", serde_json::json!(-1.0), "insert: ops_per_second is -1e0"),
        ("/sides/0/phases/0/latency/max_us", serde_json::json!(1e300), "max_us is 1e300; expected 0 to 1e15"),
        ("/sides/0/phases/1/series/0/second", serde_json::json!("x"), "invalid type"),
        ("/sides/0/phases/0/operations", serde_json::json!(-5), "invalid value"),
    ] {
        let mut bad = json.clone();
        *bad.pointer_mut(path).expect("it is there") = value;
        let error = Results::parse(&bad.to_string()).expect_err(path);
        assert!(error.contains(part), "{path}: {error}");
    }
    let mut odd = results;
    let phase = &mut odd.sides[0].phases[0];
    phase.name = "<script>alert(1)</script>".to_owned();
    phase.series = vec![Interval { second: 0.0, ops_per_second: 0.0 }; 3];
    phase.latency =
        Some(Latency { buckets: phase.latency.clone().expect("one").buckets, ..Latency::default() });
    phase.ops_per_second = 0.0;
    phase.mb_per_second = Some(1e-323);
    phase.found = Some((1, u64::MAX));
    phase.file_system.insert("cache_hits".to_owned(), u64::MAX);
    for bucket in &mut phase.latency.as_mut().expect("one").buckets {
        (bucket.to_us, bucket.count) = (0.0, u64::MAX);
    }
    let again =
        Results::parse(&serde_json::to_string(&odd).expect("it is written")).expect("odd, and no more");
    let page = page_of(&again);
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("1 of 18446744073709551615 keys that a thread looked for were found."));
    assert!(!table_of(&again).contains('\u{1b}'));
    // The least that a figure can be, and nothing beside it that is more.
    for phase in odd.sides.iter_mut().flat_map(|side| &mut side.phases) {
        phase.ops_per_second = 1e-323;
        phase.series = vec![Interval { second: 1e-323, ops_per_second: 1e-323 }; 3];
        for bucket in phase.latency.iter_mut().flat_map(|own| &mut own.buckets) {
            (bucket.to_us, bucket.count) = (5e-324, 1);
        }
    }
    let least = Results::parse(&serde_json::to_string(&odd).expect("it is written")).expect("figures");
    assert!(page_of(&least).ends_with("</html>\n"));
}

use clap::Parser;

use super::*;
use crate::guide::record::PairSize;

const US: Duration = Duration::from_micros(1);

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: KvPerf,
}

fn args(words: &str) -> KvPerf {
    Line::parse_from(std::iter::once("kv_perf").chain(words.split_whitespace())).args
}

fn record(operations: &[(Kind, usize)]) -> Record {
    let mut record = Record::new().expect("record");
    for &(kind, index) in operations {
        let size = PairSize { index, key_bytes: 16, value_bytes: 4096 >> index };
        record.succeeded(kind, size, Duration::ZERO, 8 * US);
    }
    record
}

fn of<'a>(phase: &'a str, record: &'a Record, elapsed: Duration, sizes: &'a [u32]) -> Results<'a> {
    Results { phase, device: 0, thread: 1, record, elapsed, sizes, verified: false }
}

#[test]
fn the_information_about_a_test_is_that_of_the_original() {
    let args = args("-n 1000 -v 4096 2048 -w -r -j sample_config.json -g 5");
    assert_eq!(
        test_information(&args, &args.value_size, args.counts()),
        "\n[KV Perf Test Information: sample_config.json]\n\
         \x20 ***RUN AS LOW CMD MODE***\n\
         \x20 - test list (0: false, 1: true)\n\
         \x20     format: 0\n\
         \x20     write_test: 1\n\
         \x20     read_test: 1\n\
         \x20     verify_read: 0\n\
         \x20     delete_test: 0\n\
         \x20     blend : 0\n\
         \x20 - key_size: 16 (default: 16)\n\
         \x20 - value_size (default: 4096)\n\
         \x20     value_size[0]: 4096\n\
         \x20     value_size[1]: 2048\n\
         \x20     max_value_size: 4096\n\
         \x20 - num_keys: 1000 (default: 1000)\n\
         \x20 - num_tests: 1 (default: 1)\n\
         \x20 - key_offset: 0 (default: 0)\n\
         \x20 - key_dist: 0 (default: 0)\n\
         \x20 - seed (default: 0)\n\
         \x20     seed[0]: 5\n\
         \x20use_cache: 0\n\
         \x20send_get_log: 0\n\n\n"
    );
}

#[test]
fn a_blend_has_three_numbers_of_each() {
    let args = args("-b -n 100 80 30 -p 2 0 4 -L -j x.json");
    let text = test_information(&args, &args.value_size, args.counts());
    assert!(!text.contains("LOW CMD MODE"), "{text}");
    for part in [
        "  - num_keys (default: 1000)\n      num_keys[WRITE]: 100\n      num_keys[READ]: 80\n      num_keys[DEL]: 30\n",
        "      key_dist[WRITE]: 2\n      key_dist[READ]: 0\n      key_dist[DEL]: 4\n",
        "      default\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn devices_are_told_with_the_write_amplification_they_have() {
    let seen = Use { total_bytes: Some(1 << 30), used_bytes: None, used_percent: Some(1.5), waf: Some(1.2) };
    assert_eq!(
        device_information("Before Test", &[("0000:02:00.0".to_owned(), seen)]),
        "--------------------------------------------------------------------------\n\
         Device Information: Before Test\n\n\
         Device ID: 0000:02:00.0\n\
         \tTotal Size of the NVMe Device: 1024 MB\n\
         \tUsed Size of the NVMe Device: 1.50 %\n\
         \tWAF: 1.200000\n\n\
         --------------------------------------------------------------------------\n"
    );
}

#[test]
fn results_of_a_short_test_are_in_microseconds() {
    let record = record(&[(Kind::Store, 0), (Kind::Store, 1), (Kind::Store, 0), (Kind::Store, 1)]);
    let text = results(&of("Write", &record, 40 * US, &[4096, 2048]));
    assert_eq!(
        text,
        "[0 ms]\n\n\
         Device [0] Thread Index: 1 results for Write\n\
         [WRITE]:[READ]:[DEL] = 4:0:0\n\
         [WRITE] operations: 2, Key size: 16, Value size: 4096\n\
         [WRITE] operations: 2, Key size: 16, Value size: 2048\n\
         [WRITE] Total Key Size: 64\n\
         [WRITE] Total Value Size: 12288\n\
         Latency: 10.0000 usec\n\
         OPS/sec: 100000.00, Throughput: 300000.00 KB\n\
         Test time: 40 usec\n\
         \x20    lat(usec): min=8.000, max=8.000, mean=8.000\n\
         \x20    lat percentiles (usec):\n\
         \x20    | 1.00%=[8.000]  5.00%=[8.000] 10.00%=[8.000] 20.00%=[8.000] \n\
         \x20    |30.00%=[8.000] 40.00%=[8.000] 50.00%=[8.000] 60.00%=[8.000] \n\
         \x20    |70.00%=[8.000] 80.00%=[8.000] 90.00%=[8.000] 95.00%=[8.000] \n\
         \x20    |99.00%=[8.000] 99.50%=[8.000] 99.90%=[8.000] 99.95%=[8.000] \n\
         \x20    |99.99%=[8.000] \n"
    );
}

#[test]
fn results_of_a_long_test_are_in_milliseconds_and_tell_miscompares() {
    let mut record = record(&[(Kind::Retrieve, 0)]);
    record.miscompares = 1;
    let read = Results { verified: true, ..of("Read", &record, 2500 * 1000 * US, &[4096]) };
    let text = results(&read);
    assert!(text.contains("OPS/sec: 0.40, Throughput: 1.60 KB\nTest time: 2500 msec\n"), "{text}");
    assert!(
        text.starts_with("[2500 ms]\n") && text.ends_with("Test time: 2500 msec\nMiscompare count: 1\n"),
        "{text}"
    );
}

#[test]
fn a_blend_tells_the_latency_of_each_kind_and_no_throughput() {
    let record = record(&[(Kind::Store, 0), (Kind::Store, 0), (Kind::Delete, 0)]);
    let text = results(&of("Blend", &record, 30 * US, &[4096]));
    assert!(
        text.contains("OPS/sec: 100000.00, Test time: 30 usec\n   [Total Blended IO Latency]\n     lat("),
        "{text}"
    );
    assert!(text.contains("] \n\n   [Store Latency]\n     lat(usec): min=8.000"), "{text}");
    assert!(text.ends_with("   [Delete Latency]\n\n") && !text.contains("Retrieve"), "{text}");
    assert!(text.contains("[DEL] Total Value Size: 4096\n"), "{text}");
}

#[test]
fn the_rates_of_a_device_are_four_fields_between_colons() {
    let text = rates("0000:02:00.0", [125_745.672, 0.0, 1.0, 0.5]);
    assert_eq!(
        text,
        "0000:02:00.0 Device's Write OPS/sec: 125745.67\n\
         0000:02:00.0 Device's Read OPS/sec: 0.00\n\
         0000:02:00.0 Device's Delete OPS/sec: 1.00\n\
         0000:02:00.0 Device's Blend OPS/sec: 0.50\n"
    );
    assert_eq!(text.lines().next().map(|line| line.split(':').count()), Some(4), "as the scripts read it");
}

//! The lines of `kv_perf`, which its users' scripts read.

use std::fmt::Write;
use std::time::Duration;

use super::args::KvPerf;
use crate::guide::about::Use;
use crate::guide::pair::KEY_BYTES;
use crate::guide::record::{Kind, Record};
use crate::guide::samples;

/// Above and below the information about devices.
const RULE: &str = "--------------------------------------------------------------------------";
/// Kinds of operation by their names here.
const KINDS: [(Kind, &str); 3] = [(Kind::Store, "WRITE"), (Kind::Retrieve, "READ"), (Kind::Delete, "DEL")];

/// What is going to be done.
pub(super) fn test_information(args: &KvPerf, sizes: &[u32], counts: [u64; 3]) -> String {
    let mut out = String::new();
    let flags = [
        ("format:", args.format),
        ("write_test:", args.write),
        ("read_test:", args.read),
        ("verify_read:", args.verify),
        ("delete_test:", args.delete),
        ("blend :", args.blend),
    ];
    // Writing to a string does not fail.
    let _ = (|| {
        writeln!(out, "\n[KV Perf Test Information: {}]", samples::found(&args.json_conf).display())?;
        if args.is_low_level() {
            writeln!(out, "  ***RUN AS LOW CMD MODE***")?;
        }
        writeln!(out, "  - test list (0: false, 1: true)")?;
        for (name, flag) in flags {
            writeln!(out, "      {name} {}", u8::from(flag))?;
        }
        writeln!(out, "  - key_size: {KEY_BYTES} (default: {KEY_BYTES})")?;
        writeln!(out, "  - value_size (default: 4096)")?;
        for (index, size) in sizes.iter().enumerate() {
            writeln!(out, "      value_size[{index}]: {size}")?;
        }
        writeln!(out, "      max_value_size: {}", sizes.iter().max().unwrap_or(&0))?;
        let workloads: [u64; 3] = std::array::from_fn(|index| {
            args.workload.get(index).or(args.workload.first()).map_or(0, |&n| n.into())
        });
        numbers(&mut out, args.blend, "num_keys", " (default: 1000)", counts)?;
        writeln!(out, "  - num_tests: {} (default: 1)", args.num_tests)?;
        numbers(&mut out, args.blend, "key_offset", " (default: 0)", args.offsets())?;
        numbers(&mut out, args.blend, "key_dist", " (default: 0)", workloads)?;
        writeln!(out, "  - seed (default: 0)")?;
        for (index, seed) in args.seed.iter().enumerate() {
            writeln!(out, "      seed[{index}]: {seed}")?;
        }
        if args.seed.is_empty() {
            writeln!(out, "      default")?;
        }
        writeln!(out, " use_cache: {}", u8::from(args.use_cache))?;
        writeln!(out, " send_get_log: {}\n\n", u8::from(args.send_get_log))
    })();
    out
}

/// A number, or in a blend three of them.
fn numbers(out: &mut String, blend: bool, name: &str, default: &str, numbers: [u64; 3]) -> std::fmt::Result {
    if !blend {
        return writeln!(out, "  - {name}: {}{default}", numbers[0]);
    }
    writeln!(out, "  - {name}{default}")?;
    KINDS
        .iter()
        .zip(numbers)
        .try_for_each(|((_, kind), number)| writeln!(out, "      {name}[{kind}]: {number}"))
}

/// How large and how full devices are, and what was written on top of what was asked for.
pub(super) fn device_information(when: &str, devices: &[(String, Use)]) -> String {
    let mut out = format!("{RULE}\nDevice Information: {when}\n\n");
    for (name, seen) in devices {
        out += &format!("Device ID: {name}\n");
        if let Some(bytes) = seen.total_bytes {
            out += &format!("\tTotal Size of the NVMe Device: {} MB\n", bytes >> 20);
        }
        if let Some(percent) = seen.used_percent {
            out += &format!("\tUsed Size of the NVMe Device: {percent:.2} %\n");
        }
        if let Some(waf) = seen.waf {
            out += &format!("\tWAF: {waf:.6}\n");
        }
        out += "\n";
    }
    out + RULE + "\n"
}

/// What a thread found out in a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Results<'a> {
    /// `Write`, `Read`, `Delete` or `Blend`.
    pub(super) phase: &'a str,
    /// Place of the device.
    pub(super) device: usize,
    /// Place of the thread among those of the device.
    pub(super) thread: u32,
    /// What it found out.
    pub(super) record: &'a Record,
    /// How long it took.
    pub(super) elapsed: Duration,
    /// Sizes of values; none for pairs of a file, each of which has its own.
    pub(super) sizes: &'a [u32],
    /// Data was verified in this phase.
    pub(super) verified: bool,
}

impl Results<'_> {
    /// True for a mix of operations.
    fn is_blend(&self) -> bool {
        self.phase == "Blend"
    }

    /// Operations per second, by the milliseconds of a test that takes longer than a second.
    pub(super) fn ops_per_second(&self) -> f64 {
        self.record.operations() as f64 / self.seconds()
    }

    fn seconds(&self) -> f64 {
        // No test takes no time; one that does not even take a microsecond did nothing.
        self.elapsed.as_secs_f64().max(1e-6)
    }
}

/// The block of results of a thread, with latencies.
pub(super) fn results(results: &Results<'_>) -> String {
    let Results { phase, device, thread, record, elapsed, .. } = *results;
    let count = |kind| record.tally(kind).count();
    let mut out = format!(
        "[{} ms]\n\nDevice [{device}] Thread Index: {thread} results for {phase}\n",
        elapsed.as_millis()
    );
    let [store, retrieve, delete] = KINDS.map(|(kind, _)| count(kind));
    out += &format!("[WRITE]:[READ]:[DEL] = {store}:{retrieve}:{delete}\n");
    let mut value_bytes = 0;
    for (kind, name) in KINDS {
        value_bytes += operations(&mut out, results, kind, name);
    }
    out += &match record.operations() {
        0 => "Latency: no completions\n".to_owned(),
        count => format!("Latency: {:.4} usec\n", elapsed.as_micros().max(1) as f64 / count as f64),
    };
    out += &format!("OPS/sec: {:.2}, ", results.ops_per_second());
    if !results.is_blend() {
        let kilobytes = value_bytes as f64 / 1024.0;
        out += &format!("Throughput: {:.2} KB\n", kilobytes / results.seconds());
    }
    out += &match elapsed.as_secs() {
        0 => format!("Test time: {} usec\n", elapsed.as_micros()),
        _ => format!("Test time: {} msec\n", elapsed.as_millis()),
    };
    out + &latencies(results)
}

/// Lines about operations of one kind; the bytes of their values.
fn operations(out: &mut String, results: &Results<'_>, kind: Kind, name: &str) -> u64 {
    let tally = results.record.tally(kind);
    if tally.count() == 0 {
        return 0;
    }
    for (&size, &count) in results.sizes.iter().zip(&tally.by_size) {
        *out += &format!("[{name}] operations: {count}, Key size: {KEY_BYTES}, Value size: {size}\n");
    }
    if results.sizes.is_empty() {
        *out += &format!("[{name}] operations: {}\n", tally.count());
    }
    *out += &format!("[{name}] Total Key Size: {}\n", tally.key_bytes);
    *out += &format!("[{name}] Total Value Size: {}\n", tally.value_bytes);
    tally.value_bytes
}

fn latencies(results: &Results<'_>) -> String {
    let record = results.record;
    if !results.is_blend() {
        let mut out = record.stat().to_string();
        if results.verified && results.phase == "Read" {
            out += &format!("Miscompare count: {}\n", record.miscompares);
        }
        return out;
    }
    let titles = ["Store", "Retrieve", "Delete"];
    let parts = KINDS
        .iter()
        .zip(titles)
        .map(|((kind, _), title)| (format!("{title} Latency"), record.tally(*kind).stat.clone()));
    let all = std::iter::once(("Total Blended IO Latency".to_owned(), record.stat()));
    all.chain(parts)
        .filter(|(_, stat)| stat.samples() > 0)
        .map(|(title, stat)| format!("   [{title}]\n{stat}\n"))
        .collect()
}

/// The last lines about a device.
pub(super) fn rates(name: &str, rates: [f64; 4]) -> String {
    let phases = ["Write", "Read", "Delete", "Blend"];
    let line = |(phase, rate): (&str, f64)| format!("{name} Device's {phase} OPS/sec: {rate:.2}\n");
    phases.into_iter().zip(rates).map(line).collect()
}

#[cfg(test)]
mod tests;

//! What RocksDB's db_bench writes: a line for each benchmark, its histograms, its statistics, and what its
//! threads say every so many seconds. Of the text of 7.8.3 and of versions before and after; what is not
//! known is passed over.

use std::collections::BTreeMap;

use super::results::{Bucket, Latency};
use super::series::{Progress, series};

/// What db_bench says of itself and of what it is to do: `Keys:       16 bytes each`.
pub(super) const ABOUT: [&str; 10] =
    ["RocksDB", "Date", "CPU", "CPUCache", "Keys", "Values", "Entries", "RawSize", "Compression", "WARNING"];

/// What of RocksDB's statistics is kept.
pub(super) const TICKERS: [&str; 8] = [
    "rocksdb.bytes.written",
    "rocksdb.bytes.read",
    "rocksdb.wal.bytes",
    "rocksdb.wal.synced",
    "rocksdb.flush.write.bytes",
    "rocksdb.compact.read.bytes",
    "rocksdb.compact.write.bytes",
    "rocksdb.stall.micros",
];

/// What the first line of a file says before the command that has written the rest.
const COMMAND: &str = "$ ";

/// The output of one db_bench.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) command: Option<String>,
    pub(super) about: BTreeMap<String, String>,
    pub(super) benchmarks: Vec<Benchmark>,
    pub(super) tickers: BTreeMap<String, u64>,
}

/// The line of a benchmark, and what follows it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Benchmark {
    pub(super) name: String,
    pub(super) micros_per_op: f64,
    pub(super) ops_per_second: f64,
    pub(super) seconds: Option<f64>,
    pub(super) operations: Option<u64>,
    pub(super) mb_per_second: Option<f64>,
    /// Keys that were found, and those that were looked for.
    pub(super) found: Option<(u64, u64)>,
    pub(super) latency: Option<Latency>,
    /// The end of each interval in seconds, and the operations of a second in it.
    pub(super) series: Vec<(f64, f64)>,
}

impl Output {
    pub(super) fn parse(text: &str) -> Self {
        let mut output = Self::default();
        let mut progress: Vec<Progress> = Vec::new();
        let mut latency: Option<Latency> = None;
        for line in text.lines().map(str::trim_end) {
            if let Some(next) = Progress::parse(line) {
                progress.push(next);
            } else if let Some(mut benchmark) = Benchmark::parse(line) {
                output.keep(latency.take());
                benchmark.series = series(&benchmark, &std::mem::take(&mut progress));
                output.benchmarks.push(benchmark);
            } else if line.starts_with("Microseconds per ") {
                output.keep(latency.take());
                latency = Some(Latency::default());
            } else if !latency.as_mut().is_some_and(|latency| latency.add(line)) {
                output.add(line);
            }
        }
        output.keep(latency);
        output
    }

    /// A histogram is that of the last benchmark; of several the one of most operations.
    fn keep(&mut self, latency: Option<Latency>) {
        let (Some(latency), Some(last)) = (latency, self.benchmarks.last_mut()) else { return };
        if latency.count > last.latency.as_ref().map_or(0, |own| own.count) {
            last.latency = Some(latency);
        }
    }

    fn add(&mut self, line: &str) {
        if let Some(command) = line.strip_prefix(COMMAND) {
            self.command.get_or_insert_with(|| command.to_owned());
        } else if let Some((name, count)) = line.split_once(" COUNT : ") {
            if let (true, Ok(count)) = (TICKERS.contains(&name), count.parse()) {
                self.tickers.insert(name.to_owned(), count);
            }
        } else if let Some((name, value)) = line.split_once(':')
            && ABOUT.contains(&name)
        {
            self.about.entry(name.to_owned()).or_insert_with(|| value.trim().to_owned());
        }
    }
}

impl Benchmark {
    /// `fillseq : 7.999 micros/op 215431 ops/sec 0.186 seconds 40000 operations;   85.5 MB/s`; without
    /// seconds and operations before version 7.
    fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.split_once(" : ").or_else(|| line.split_once(": "))?;
        let name = name.trim();
        let (figures, extra) = rest.split_once(';').unwrap_or((rest, ""));
        let words: Vec<&str> = figures.split_whitespace().collect();
        let before = |unit: &str| {
            let at = words.iter().position(|word| *word == unit)?;
            words.get(at.checked_sub(1)?).copied()
        };
        if name.is_empty() || name.contains(char::is_whitespace) {
            return None;
        }
        let mut benchmark = Self {
            name: name.to_owned(),
            micros_per_op: number(before("micros/op")?)?,
            ops_per_second: number(before("ops/sec")?)?,
            seconds: before("seconds").and_then(number),
            operations: before("operations").and_then(|word| word.parse().ok()),
            ..Self::default()
        };
        let words: Vec<&str> = extra.split_whitespace().collect();
        for pair in words.windows(2) {
            if let [figure, "MB/s"] = pair {
                benchmark.mb_per_second = number(figure);
            }
        }
        for four in words.windows(4) {
            if let [found, "of", all, "found)"] = four {
                let found = found.trim_start_matches('(').parse().ok();
                benchmark.found = found.zip(all.parse().ok());
            }
        }
        Some(benchmark)
    }
}

impl Latency {
    /// A line of a histogram; false when it is none.
    fn add(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split_whitespace().collect();
        let behind = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            number(words.get(at.checked_add(1)?)?)
        };
        match words.first() {
            Some(&"Count:") => {
                self.count = words.get(1).and_then(|count| count.parse().ok()).unwrap_or(0);
                self.average_us = behind("Average:").unwrap_or(0.0);
            }
            Some(&"Min:") => {
                self.min_us = behind("Min:").unwrap_or(0.0);
                self.max_us = behind("Max:").unwrap_or(0.0);
            }
            Some(&"Percentiles:") => {
                self.p50_us = behind("P50:").unwrap_or(0.0);
                self.p99_us = behind("P99:").unwrap_or(0.0);
                self.p99_9_us = behind("P99.9:").unwrap_or(0.0);
                self.p99_99_us = behind("P99.99:").unwrap_or(0.0);
            }
            Some(first) if first.starts_with("-----") => {}
            Some(first) if first.starts_with(['(', '[']) => match Bucket::parse(line) {
                Some(bucket) => self.buckets.push(bucket),
                None => return false,
            },
            _ => return false,
        }
        true
    }
}

impl Bucket {
    /// `(      10,      15 ]       83   0.208%  99.453% `: more than 10, at most 15.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once(',')?;
        let (to, rest) = rest.split_once(']')?;
        let count = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self { to_us: number(to.trim())?, count })
    }
}

/// A figure; db_bench has none below 0.
pub(super) fn number(word: &str) -> Option<f64> {
    word.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

//! What a lane has seen: latencies, errors, the rate over time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::blend::Kind;

/// Longest latency that is told from longer ones: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// When a lane counts, on its thread's watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Completions from here on count.
    pub(super) from_ns: u64,
    /// Completions from here on do not count any more.
    pub(super) until_ns: u64,
    /// Length of an interval of the rate over time.
    pub(super) interval_ns: u64,
    /// Intervals are joined two by two when there are more than these, as where nobody knows how long it
    /// will take.
    pub(super) intervals_max: usize,
}

/// What happened in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slice {
    /// Commands that succeeded.
    pub(super) commands: u64,
    /// The sum of their latencies.
    pub(super) latency_ns: u64,
    pub(super) latency_max_ns: u64,
}

impl Slice {
    pub(super) fn add(&mut self, other: &Self) {
        self.commands += other.commands;
        self.latency_ns = self.latency_ns.saturating_add(other.latency_ns);
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
    }
}

/// Intervals twice as long.
pub(super) fn halve(slices: &mut Vec<Slice>) {
    let joined = slices.chunks(2).map(|pair| {
        let mut both = pair[0];
        pair[1..].iter().for_each(|slice| both.add(slice));
        both
    });
    *slices = joined.collect();
}

/// What is told of a lane while it is at work.
#[derive(Debug, Default)]
pub(super) struct Live {
    commands: AtomicU64,
    latency_ns: AtomicU64,
}

impl Live {
    /// Commands that have succeeded so far, and the sum of their latencies.
    pub(super) fn so_far(&self) -> (u64, u64) {
        (self.commands.load(Ordering::Relaxed), self.latency_ns.load(Ordering::Relaxed))
    }

    /// Only one thread adds.
    fn add(&self, slice: &Slice) {
        let (commands, latency_ns) = self.so_far();
        self.commands.store(commands + slice.commands, Ordering::Relaxed);
        self.latency_ns.store(latency_ns.wrapping_add(slice.latency_ns), Ordering::Relaxed);
    }
}

impl Window {
    fn contains(&self, now_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&now_ns)
    }
}

/// An empty histogram of nanoseconds.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).context("make a histogram")
}

/// Commands that were submitted and found together: one entry of a histogram, once for all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    start_ns: u64,
    end_ns: u64,
    read: bool,
    commands: u64,
}

/// Latencies from submission, where commands are due at times of their own.
#[derive(Debug)]
pub(super) struct FromSubmission {
    window: Window,
    /// Of reads and writes, in nanoseconds.
    pub(super) latencies: Histogram<u64>,
}

impl FromSubmission {
    pub(super) fn new(window: Window) -> Result<Self> {
        Ok(Self { window, latencies: histogram()? })
    }

    #[cold]
    pub(super) fn succeeded(&mut self, submitted_ns: u64, end_ns: u64) {
        if self.window.contains(end_ns) {
            self.latencies.saturating_record((end_ns - submitted_ns).max(1));
        }
    }
}

/// The counters of one lane.
#[derive(Debug)]
pub(super) struct Counters {
    window: Window,
    interval_ns: u64,
    batch: Batch,
    /// Latencies of reads that succeeded, in nanoseconds.
    pub(super) reads: Histogram<u64>,
    /// Latencies of writes that succeeded, in nanoseconds.
    pub(super) writes: Histogram<u64>,
    /// Bytes that commands of different sizes have moved; `None` where all have one size.
    pub(super) bytes: Option<u64>,
    /// Latencies of deallocations, where there are any; they are in none of the figures above and below.
    pub(super) trims: Option<Histogram<u64>>,
    /// The same of flushes.
    pub(super) flushes: Option<Histogram<u64>>,
    /// Pairs that were asked for and were not there; `None` where blocks are measured.
    pub(super) misses: Option<u64>,
    /// Keys that lists had.
    pub(super) listed: u64,
    /// With a rate: latencies from submission; those above are from when a command was due.
    pub(super) from_submission: Option<FromSubmission>,
    /// With a rate: commands that were due by the end and not submitted.
    pub(super) overdue: u64,
    /// What happened in each interval, as far as something did.
    pub(super) intervals: Vec<Slice>,
    /// Somebody looks on.
    pub(super) live: Option<Arc<Live>>,
    /// Commands that failed, whenever they did.
    pub(super) errors: u64,
    /// Reads with wrong data, whenever they were.
    pub(super) miscompares: u64,
    /// Reads of data of which nothing is known, whenever they were.
    pub(super) unjudged: u64,
    /// The first command that failed or returned wrong data.
    pub(super) first_failure: Option<String>,
}

impl Counters {
    pub(super) fn new(window: Window) -> Result<Self> {
        Ok(Self {
            window,
            interval_ns: window.interval_ns.max(1),
            batch: Batch::default(),
            reads: histogram()?,
            writes: histogram()?,
            bytes: None,
            trims: None,
            flushes: None,
            misses: None,
            listed: 0,
            from_submission: None,
            overdue: 0,
            intervals: Vec::new(),
            live: None,
            errors: 0,
            miscompares: 0,
            unjudged: 0,
            first_failure: None,
        })
    }

    /// A command that succeeded.
    #[inline]
    pub(super) fn succeeded(&mut self, read: bool, start_ns: u64, end_ns: u64) {
        let batch = &mut self.batch;
        if batch.start_ns == start_ns && batch.end_ns == end_ns && batch.read == read {
            batch.commands += 1;
            return;
        }
        self.settle();
        self.batch = Batch { start_ns, end_ns, read, commands: 1 };
    }

    /// The bytes of a command that succeeded, where commands have different sizes.
    pub(super) fn moved(&mut self, bytes: u64, end_ns: u64) {
        if let Some(moved) = self.bytes.as_mut().filter(|_| self.window.contains(end_ns)) {
            *moved += bytes;
        }
    }

    /// A pair was not there, or a list had so many keys.
    pub(super) fn found(&mut self, missed: bool, listed: u64, end_ns: u64) {
        if let Some(misses) = self.misses.as_mut().filter(|_| self.window.contains(end_ns)) {
            *misses += u64::from(missed);
            self.listed += listed;
        }
    }

    /// A command that moves no data has succeeded.
    pub(super) fn done_aside(&mut self, kind: Kind, start_ns: u64, end_ns: u64) {
        let latencies = match kind {
            Kind::Trim => self.trims.as_mut(),
            Kind::Flush => self.flushes.as_mut(),
            Kind::Data => None,
        };
        if let Some(latencies) = latencies.filter(|_| self.window.contains(end_ns)) {
            latencies.saturating_record((end_ns - start_ns).max(1));
        }
    }

    /// A command that failed.
    #[cold]
    pub(super) fn failed(&mut self, what: impl FnOnce() -> String) {
        self.errors += 1;
        self.first_failure.get_or_insert_with(what);
    }

    /// A read with wrong data.
    #[cold]
    pub(super) fn miscompared(&mut self, what: impl FnOnce() -> String) {
        self.miscompares += 1;
        self.first_failure.get_or_insert_with(what);
    }

    /// Ends the window at `now_ns`, if that is before its end.
    pub(super) fn close(&mut self, now_ns: u64) {
        self.settle();
        self.window.until_ns = self.window.until_ns.min(now_ns);
        if let Some(device) = &mut self.from_submission {
            device.window = self.window;
        }
    }

    /// Enters what is still on the slip.
    pub(super) fn settle(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.commands == 0 || !self.window.contains(batch.end_ns) {
            return;
        }
        let latencies = if batch.read { &mut self.reads } else { &mut self.writes };
        latencies.saturating_record_n((batch.end_ns - batch.start_ns).max(1), batch.commands);
        let latency_max_ns = batch.end_ns - batch.start_ns;
        let latency_ns = latency_max_ns.saturating_mul(batch.commands);
        let slice = Slice { commands: batch.commands, latency_ns, latency_max_ns };
        if let Some(live) = &self.live {
            live.add(&slice);
        }
        let index = ((batch.end_ns - self.window.from_ns) / self.interval_ns) as usize;
        match self.intervals.get_mut(index) {
            Some(known) => known.add(&slice),
            None => self.begin_interval(batch.end_ns, &slice),
        }
    }

    /// Enters something after the last interval so far.
    #[cold]
    #[inline(never)]
    fn begin_interval(&mut self, end_ns: u64, slice: &Slice) {
        let mut index = ((end_ns - self.window.from_ns) / self.interval_ns) as usize;
        while index >= self.window.intervals_max.max(2) {
            halve(&mut self.intervals);
            self.interval_ns *= 2;
            index /= 2;
        }
        self.intervals.resize(self.intervals.len().max(index + 1), Slice::default());
        self.intervals[index].add(slice);
    }

    /// Length of an interval.
    pub(super) fn interval_ns(&self) -> u64 {
        self.interval_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { from_ns: 1_000, until_ns: 2_000, interval_ns: 250, intervals_max: 4 };

    fn commands(counters: &Counters) -> Vec<u64> {
        counters.intervals.iter().map(|slice| slice.commands).collect()
    }

    #[test]
    fn only_what_completes_within_the_window_counts() {
        let mut counters = Counters::new(WINDOW).expect("counters");
        for end_ns in [999, 1_000, 1_999, 2_000] {
            counters.succeeded(true, end_ns - 500, end_ns);
        }
        counters.settle();
        assert_eq!((counters.reads.len(), counters.writes.len()), (2, 0));
        assert_eq!(commands(&counters), [1, 0, 0, 1]);
        assert_eq!(counters.intervals[3], Slice { commands: 1, latency_ns: 500, latency_max_ns: 500 });
    }

    #[test]
    fn commands_of_a_batch_count_one_by_one() {
        let mut counters = Counters::new(WINDOW).expect("counters");
        for _ in 0..3 {
            counters.succeeded(true, 1_000, 1_300);
        }
        for _ in 0..2 {
            counters.succeeded(false, 1_000, 1_300);
        }
        counters.settle();
        counters.settle();
        assert_eq!((counters.reads.len(), counters.writes.len()), (3, 2));
        assert_eq!((counters.reads.max(), counters.writes.min()), (300, 300));
        assert_eq!(commands(&counters), [0, 5]);
        assert_eq!(counters.intervals[1], Slice { commands: 5, latency_ns: 1500, latency_max_ns: 300 });
    }

    #[test]
    fn bytes_count_within_the_window_where_sizes_differ() {
        let mut counters = Counters { bytes: Some(0), ..Counters::new(WINDOW).expect("counters") };
        [999, 1_000, 1_999, 2_000].into_iter().for_each(|end_ns| counters.moved(4096, end_ns));
        assert_eq!(counters.bytes, Some(8192));
        let mut alike = Counters::new(WINDOW).expect("counters");
        alike.moved(4096, 1_500);
        assert_eq!(alike.bytes, None);
    }

    #[test]
    fn deallocations_count_within_the_window_and_apart() {
        let trims = Some(histogram().expect("histogram"));
        let mut counters = Counters { trims, ..Counters::new(WINDOW).expect("counters") };
        [999, 1_000, 1_999, 2_000]
            .into_iter()
            .for_each(|end_ns| counters.done_aside(Kind::Trim, 500, end_ns));
        counters.settle();
        assert_eq!(counters.trims.as_ref().map(|trims| (trims.len(), trims.min())), Some((2, 500)));
        assert_eq!((counters.writes.len(), counters.intervals.len()), (0, 0));
    }

    #[test]
    fn intervals_are_joined_where_there_would_be_too_many() {
        let window = Window { from_ns: 0, until_ns: u64::MAX, interval_ns: 10, intervals_max: 4 };
        let mut counters =
            Counters { live: Some(Arc::default()), ..Counters::new(window).expect("counters") };
        for end_ns in [5, 15, 39, 100] {
            counters.succeeded(true, end_ns - 5, end_ns);
        }
        counters.settle();
        assert_eq!((commands(&counters), counters.interval_ns()), (vec![3, 0, 1], 40));
        assert_eq!(counters.live.expect("somebody").so_far(), (4, 20));
    }

    #[test]
    fn the_first_failure_is_kept() {
        let mut counters = Counters::new(WINDOW).expect("counters");
        counters.failed(|| "one".to_owned());
        counters.miscompared(|| "two".to_owned());
        assert_eq!(
            (counters.errors, counters.miscompares, counters.first_failure.as_deref()),
            (1, 1, Some("one"))
        );
    }
}

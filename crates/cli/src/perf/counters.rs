//! What a lane has seen: latencies, errors, the rate over time.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

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
    /// Intervals of the rate over time.
    pub(super) intervals: usize,
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
    /// With a rate: latencies from submission; those above are from when a command was due.
    pub(super) from_submission: Option<FromSubmission>,
    /// With a rate: commands that were due by the end and not submitted.
    pub(super) overdue: u64,
    /// Commands that succeeded in each interval.
    pub(super) intervals: Vec<u64>,
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
            interval_ns: ((window.until_ns - window.from_ns) / window.intervals as u64).max(1),
            batch: Batch::default(),
            reads: histogram()?,
            writes: histogram()?,
            from_submission: None,
            overdue: 0,
            intervals: vec![0; window.intervals],
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
        let index = (batch.end_ns - self.window.from_ns) / self.interval_ns;
        // What integer division leaves over belongs to the last one.
        let index = (index as usize).min(self.intervals.len() - 1);
        self.intervals[index] += batch.commands;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { from_ns: 1_000, until_ns: 2_000, intervals: 4 };

    #[test]
    fn only_what_completes_within_the_window_counts() {
        let mut counters = Counters::new(WINDOW).expect("counters");
        for end_ns in [999, 1_000, 1_999, 2_000] {
            counters.succeeded(true, end_ns - 500, end_ns);
        }
        counters.settle();
        assert_eq!((counters.reads.len(), counters.writes.len()), (2, 0));
        assert_eq!(counters.intervals, [1, 0, 0, 1]);
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
        assert_eq!(counters.intervals, [0, 5, 0, 0]);
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

//! What a thread found out in a test: how many operations, how long they took, and what was wrong.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use unvme_guide::latency::LatencyStat;

use crate::perf;

/// Value sizes that are counted apart.
pub(crate) const SIZES_MAX: usize = 8;
/// Kinds of operation.
pub(crate) const KINDS: usize = 4;

/// An operation on a pair, or on the blocks that stand for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Store, or write blocks.
    Store,
    /// Retrieve, or read blocks.
    Retrieve,
    /// Delete, or deallocate blocks.
    Delete,
    Exist,
}

impl Kind {
    /// All kinds, each at its place in a [`Record`].
    pub(crate) const ALL: [Self; KINDS] = [Self::Store, Self::Retrieve, Self::Delete, Self::Exist];

    /// What messages call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Retrieve => "retrieve",
            Self::Delete => "delete",
            Self::Exist => "exist",
        }
    }
}

/// Operations of one kind that succeeded.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Operations by the size of their value.
    pub(crate) by_size: [u64; SIZES_MAX],
    /// Bytes of their keys.
    pub(crate) key_bytes: u64,
    /// Bytes of their values, whether or not those were moved.
    pub(crate) value_bytes: u64,
    /// Their latencies, as the guide's programs print them.
    pub(crate) stat: LatencyStat,
    /// Their latencies in nanoseconds, for the report.
    pub(crate) ns: Histogram<u64>,
}

impl Tally {
    /// Operations of all sizes.
    pub(crate) fn count(&self) -> u64 {
        self.by_size.iter().sum()
    }
}

/// How large a pair is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PairSize {
    /// Which of the value sizes.
    pub(crate) index: usize,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
}

/// What a thread found out in a test.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    tallies: [Tally; KINDS],
    /// Operations over time.
    pub(crate) series: Series,
    /// Keys that were not there where that is no failure.
    pub(crate) missing: u64,
    /// Values that were not what had been stored.
    pub(crate) miscompares: u64,
    /// Operations that failed.
    pub(crate) failures: u64,
    /// The first of those, in words.
    pub(crate) first_failure: Option<String>,
    /// That one was ended by this host, and why is not said yet.
    is_first_ended: bool,
    /// Operations that an asynchronous queue was given.
    pub(crate) submitted: u64,
    /// Those of them whose end was told.
    pub(crate) completed: u64,
}

impl Record {
    pub(crate) fn new() -> Result<Self> {
        let tally = Tally {
            by_size: [0; SIZES_MAX],
            key_bytes: 0,
            value_bytes: 0,
            stat: LatencyStat::default(),
            ns: perf::histogram()?,
        };
        Ok(Self {
            tallies: std::array::from_fn(|_| tally.clone()),
            series: Series::default(),
            missing: 0,
            miscompares: 0,
            failures: 0,
            first_failure: None,
            is_first_ended: false,
            submitted: 0,
            completed: 0,
        })
    }

    /// What operations of this kind came to.
    pub(crate) fn tally(&self, kind: Kind) -> &Tally {
        &self.tallies[kind as usize]
    }

    /// An operation that succeeded, from its beginning to its end since the test began.
    pub(crate) fn succeeded(&mut self, kind: Kind, size: PairSize, begin: Duration, end: Duration) {
        let tally = &mut self.tallies[kind as usize];
        let latency = end.saturating_sub(begin);
        tally.by_size[size.index] += 1;
        tally.key_bytes += u64::from(size.key_bytes);
        tally.value_bytes += u64::from(size.value_bytes);
        tally.stat.add(latency);
        tally.ns.saturating_record((latency.as_nanos() as u64).max(1));
        self.series.add(end);
    }

    /// An operation that failed.
    pub(crate) fn failed(&mut self, what: impl FnOnce() -> String) {
        self.failures += 1;
        self.first_failure.get_or_insert_with(what);
    }

    /// An operation that this host has ended, with no answer of the device: why is asked of the controller
    /// when all are done.
    pub(crate) fn ended(&mut self, what: impl FnOnce() -> String) {
        self.is_first_ended |= self.first_failure.is_none();
        self.failed(what);
    }

    /// Says of the first failure why this host has ended it, where that is what has happened to it.
    pub(crate) fn give_reason(&mut self, why: impl FnOnce() -> Option<String>) {
        if !std::mem::take(&mut self.is_first_ended) {
            return;
        }
        if let (Some(failure), Some(why)) = (&mut self.first_failure, why()) {
            *failure = format!("{failure}: {why}");
        }
    }

    /// Operations of all kinds that succeeded.
    pub(crate) fn operations(&self) -> u64 {
        self.tallies.iter().map(Tally::count).sum()
    }

    /// Latencies of all kinds together.
    pub(crate) fn stat(&self) -> LatencyStat {
        let mut all = LatencyStat::default();
        self.tallies.iter().for_each(|tally| all.merge(&tally.stat));
        all
    }

    /// Adds what another thread found out in the same test.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (tally, more) in self.tallies.iter_mut().zip(&other.tallies) {
            tally.stat.merge(&more.stat);
            tally.key_bytes += more.key_bytes;
            tally.value_bytes += more.value_bytes;
            for (count, more) in tally.by_size.iter_mut().zip(more.by_size) {
                *count += more;
            }
            // Both have the bounds of `perf::histogram`, so that one takes the other whole.
            for value in more.ns.iter_recorded() {
                tally.ns.saturating_record_n(value.value_iterated_to(), value.count_at_value());
            }
        }
        self.series.merge(&other.series);
        self.missing += other.missing;
        self.miscompares += other.miscompares;
        self.failures += other.failures;
        self.first_failure = self.first_failure.take().or_else(|| other.first_failure.clone());
        self.submitted += other.submitted;
        self.completed += other.completed;
    }
}

/// Intervals of a series before they become twice as long.
const INTERVALS_MAX: usize = 512;
/// The first interval.
const INTERVAL_NS: u64 = 1 << 20;

/// How many operations ended in each interval of a test whose length nobody knows before: when there are too
/// many intervals, two become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    interval_ns: u64,
    counts: Vec<u64>,
}

impl Default for Series {
    fn default() -> Self {
        Self { interval_ns: INTERVAL_NS, counts: Vec::new() }
    }
}

impl Series {
    /// An operation has ended, so long after the beginning.
    pub(crate) fn add(&mut self, at: Duration) {
        let at = at.as_nanos() as u64;
        while at / self.interval_ns >= INTERVALS_MAX as u64 {
            self.widen();
        }
        let index = (at / self.interval_ns) as usize;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
    }

    fn widen(&mut self) {
        self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
        self.interval_ns *= 2;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        while self.interval_ns < other.interval_ns {
            self.widen();
        }
        while other.interval_ns < self.interval_ns {
            other.widen();
        }
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// The rate over `total`, the length of the test: at most `points` pairs of the end of an interval, in
    /// seconds, and the operations per second in it.
    pub(crate) fn rates(&self, total: Duration, points: usize) -> Vec<(f64, f64)> {
        let mut series = self.clone();
        while series.counts.len() > points {
            series.widen();
        }
        let interval = series.interval_ns as f64 / 1e9;
        let total = total.as_secs_f64();
        let rate = |(index, &count): (usize, &u64)| {
            let begin = index as f64 * interval;
            // The last one ends with the test.
            let end = (begin + interval).min(total.max(begin + interval / 8.0));
            (end, count as f64 / (end - begin))
        };
        series.counts.iter().enumerate().map(rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(index: usize) -> PairSize {
        PairSize { index, key_bytes: 16, value_bytes: 4096 >> index }
    }

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn operations_are_counted_by_kind_and_size() {
        let mut record = Record::new().expect("record");
        record.succeeded(Kind::Store, size(1), US, 4 * US);
        record.succeeded(Kind::Store, size(0), US, 6 * US);
        record.succeeded(Kind::Delete, size(0), 9 * US, 8 * US);
        assert_eq!(record.tally(Kind::Store).by_size[..3], [1, 1, 0]);
        assert_eq!((record.operations(), record.tally(Kind::Retrieve).count()), (3, 0));
        assert_eq!((record.stat().min(), record.stat().max()), (0.0, 5.0), "a latency is never negative");
        assert_eq!(record.tally(Kind::Store).ns.max() / 100, 50);
    }

    #[test]
    fn records_of_threads_add_up() {
        let mut one = Record::new().expect("record");
        one.succeeded(Kind::Store, size(0), Duration::ZERO, 7 * US);
        let mut two = Record::new().expect("record");
        two.succeeded(Kind::Store, size(3), Duration::ZERO, 9 * US);
        two.failed(|| "broken".to_owned());
        two.miscompares = 2;
        one.merge(&two);
        assert_eq!(one.tally(Kind::Store).by_size, [1, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(one.tally(Kind::Store).ns.len(), 2);
        assert_eq!((one.tally(Kind::Store).key_bytes, one.tally(Kind::Store).value_bytes), (32, 4096 + 512));
        assert_eq!((one.failures, one.miscompares, one.first_failure.as_deref()), (1, 2, Some("broken")));
    }

    #[test]
    fn a_series_becomes_coarser_and_loses_nothing() {
        let mut fine = Series::default();
        let mut coarse = Series::default();
        (0..100).for_each(|ms| fine.add(Duration::from_millis(ms)));
        (0..100).for_each(|s| coarse.add(Duration::from_secs(s)));
        assert!(coarse.counts.len() <= INTERVALS_MAX && coarse.interval_ns > INTERVAL_NS);
        assert_eq!(coarse.counts.iter().sum::<u64>(), 100);
        fine.merge(&coarse);
        assert_eq!(fine.counts.iter().sum::<u64>(), 200);
        assert_eq!((fine.interval_ns, fine.counts.len()), (coarse.interval_ns, coarse.counts.len()));
    }

    #[test]
    fn rates_are_per_second_and_the_last_interval_ends_with_the_test() {
        let mut series = Series::default();
        (0..4).for_each(|_| series.add(Duration::from_nanos(INTERVAL_NS / 4)));
        series.add(Duration::from_nanos(INTERVAL_NS + 10));
        let rounded = |total: u64, points| {
            let rates = series.rates(Duration::from_nanos(total), points);
            rates.iter().map(|(end, rate)| ((end * 1e9).round(), rate.round())).collect::<Vec<_>>()
        };
        // 4 in 1.048576 ms, 1 in half of that; 5 in twice as long.
        assert_eq!(rounded(INTERVAL_NS * 3 / 2, 100), [(1_048_576.0, 3815.0), (1_572_864.0, 1907.0)]);
        assert_eq!(rounded(INTERVAL_NS * 2, 1), [(2_097_152.0, 2384.0)]);
    }
}

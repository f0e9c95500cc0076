//! From a histogram of nanoseconds to what a report keeps of it.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::scale::micros;

/// The percentiles that a report lists whatever the number of samples.
const PERCENTS: [f64; 13] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.99, 99.999];

/// Those beyond, listed where there are samples enough to tell them.
const RARE_PERCENTS: [f64; 4] = [99.9999, 99.99999, 99.999_999, 99.999_999_9];

/// Latencies that somebody else measured are cut at this: a year.
const LONGEST_NS: u64 = 365 * 86_400 * 1_000_000_000;

/// And numbers of commands at this, so that all of them can be added up.
const MOST_COMMANDS: u64 = 1 << 48;

/// Samples beyond a percentile that it takes to tell it from chance.
const SAMPLES_BEYOND: f64 = 100.0;

/// The percentiles that are told beside a table.
const TOLD_PERCENTS: [f64; 10] =
    [50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 99.99999, 99.999_999, 99.999_999_9];

/// Buckets per doubling of the latency: 2.2 % wide, finer than any plot shows, yet a few hundred lines of
/// JSON.
pub(super) const BUCKETS_PER_OCTAVE: i32 = 32;

/// Latency of one point: of all commands, and of reads and writes apart when the workload mixes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// All commands.
    pub(crate) all: Distribution,
    /// Reads alone, when the workload mixes.
    pub(crate) read: Option<Distribution>,
    /// Writes alone, when the workload mixes.
    pub(crate) write: Option<Distribution>,
}

/// How latency is spread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Distribution {
    /// Commands counted.
    pub(crate) samples: u64,
    /// Percentiles in ascending order.
    pub(crate) percentiles: Vec<Percentile>,
    /// Non-empty buckets in ascending order.
    pub(crate) buckets: Vec<Bucket>,
}

/// `percent` of the commands took at most `us`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentile {
    /// 0 to 100.
    pub(crate) percent: f64,
    /// Microseconds.
    pub(crate) us: f64,
}

/// `count` commands took at most `value_us` and more than the bucket before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bucket {
    /// The longest latency in the bucket.
    pub(crate) value_us: f64,
    /// Commands in the bucket.
    pub(crate) count: u64,
}

impl Latency {
    /// Latency of a workload of one kind. `None` when nothing was recorded.
    pub(crate) fn from_histogram_ns(all: &Histogram<u64>) -> Option<Self> {
        Some(Self { all: Distribution::from_histogram_ns(all)?, read: None, write: None })
    }

    /// Latency of a workload that reads and writes. `None` when nothing was recorded. A side without a
    /// command is left out.
    pub(crate) fn from_read_and_write_ns(read: &Histogram<u64>, write: &Histogram<u64>) -> Option<Self> {
        let mut all = Histogram::new(read.sigfig().max(write.sigfig())).ok()?;
        all.add(read).ok()?;
        all.add(write).ok()?;
        Some(Self {
            all: Distribution::from_histogram_ns(&all)?,
            read: Distribution::from_histogram_ns(read),
            write: Distribution::from_histogram_ns(write),
        })
    }

    pub(super) fn is_finite(&self) -> bool {
        let parts = [Some(&self.all), self.read.as_ref(), self.write.as_ref()];
        parts.into_iter().flatten().all(|part| {
            part.percentiles.iter().all(|at| at.percent.is_finite() && at.us.is_finite())
                && part.buckets.iter().all(|bucket| bucket.value_us.is_finite())
        })
    }
}

impl Distribution {
    /// Condenses a histogram of nanoseconds. `None` when it is empty.
    pub(crate) fn from_histogram_ns(ns: &Histogram<u64>) -> Option<Self> {
        if ns.is_empty() {
            return None;
        }
        let rare = RARE_PERCENTS.into_iter().filter(|&percent| is_told_by(percent, ns.len()));
        let percentiles = PERCENTS
            .into_iter()
            .chain(rare)
            .map(|percent| Percentile { percent, us: ns.value_at_percentile(percent) as f64 / 1e3 })
            .collect();
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut slot = None;
        for step in ns.iter_recorded() {
            let value_us = step.value_iterated_to() as f64 / 1e3;
            let count = step.count_since_last_iteration();
            let here = Some(octave_slot(value_us, BUCKETS_PER_OCTAVE));
            match buckets.last_mut() {
                Some(last) if slot == here => {
                    last.count += count;
                    last.value_us = value_us;
                }
                _ => buckets.push(Bucket { value_us, count }),
            }
            slot = here;
        }
        Some(Self { samples: ns.len(), percentiles, buckets })
    }

    /// Condenses numbers of commands by nanoseconds. `None` when there are none.
    pub(crate) fn from_steps_ns(steps: &BTreeMap<u64, u64>) -> Option<Self> {
        let mut ns = Histogram::new(3).ok()?;
        for (&value, &count) in steps {
            ns.record_n(value.min(LONGEST_NS), count.min(MOST_COMMANDS)).ok()?;
        }
        Self::from_histogram_ns(&ns)
    }

    /// The percentiles from the median on that there are samples enough for, in one line; `None` when there
    /// is none.
    pub(super) fn told(&self) -> Option<String> {
        let told = TOLD_PERCENTS.into_iter().filter(|&percent| is_told_by(percent, self.samples));
        let told =
            told.filter_map(|percent| Some(format!("p{percent} {}", micros(self.percentile_us(percent)?))));
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join(", "))
    }

    /// The latency at one of the listed percentiles.
    pub(crate) fn percentile_us(&self, percent: f64) -> Option<f64> {
        self.percentiles.iter().find(|at| (at.percent - percent).abs() < 1e-10).map(|at| at.us)
    }
}

/// True when there are enough of `samples` beyond a percentile.
fn is_told_by(percent: f64, samples: u64) -> bool {
    // The share beyond is the difference of two close numbers: its rounding is no reason.
    samples as f64 * (100.0 - percent) / 100.0 >= SAMPLES_BEYOND - 0.01
}

/// Index of the logarithmic bucket that holds `us`, counted from one nanosecond.
pub(super) fn octave_slot(us: f64, per_octave: i32) -> i32 {
    ((us * 1e3).max(1.0).log2() * f64::from(per_octave)).floor() as i32
}

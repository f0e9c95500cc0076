//! `latency_stat.h`.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::c_long;
use std::fmt::Write as _;

use super::stdio::print;
use crate::boundary::quietly;

const BUCKETS: usize = 790;
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];
/// Percentiles in a row.
const ROW: usize = 4;

/// `struct timeval`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Timeval {
    pub(crate) tv_sec: c_long,
    pub(crate) tv_usec: c_long,
}

impl Timeval {
    /// Microseconds.
    pub(crate) fn micros(self) -> i128 {
        i128::from(self.tv_sec) * 1_000_000 + i128::from(self.tv_usec)
    }
}

/// `struct latency_stat`.
#[repr(C)]
pub(crate) struct LatencyStat {
    max: u64,
    min: u64,
    samples: u64,
    sum: u64,
    count_for_bucket: [u32; BUCKETS],
    mean: f64,
    variance: f64,
}

const _: () = assert!(size_of::<LatencyStat>() == 3208 && std::mem::offset_of!(LatencyStat, mean) == 3192);

impl LatencyStat {
    fn reset(&mut self) {
        *self = Self {
            max: 0,
            min: u64::MAX,
            samples: 0,
            sum: 0,
            count_for_bucket: [0; BUCKETS],
            mean: 0.0,
            variance: 0.0,
        };
    }

    fn add(&mut self, micros: u64) {
        self.max = self.max.max(micros);
        self.min = self.min.min(micros);
        self.samples = self.samples.saturating_add(1);
        self.sum = self.sum.saturating_add(micros);
        // Welford's way: neither needs the samples again, nor loses digits.
        let delta = micros as f64 - self.mean;
        self.mean += delta / self.samples as f64;
        self.variance += (delta * (micros as f64 - self.mean) - self.variance) / self.samples as f64;
        let count = &mut self.count_for_bucket[bucket(micros)];
        *count = count.saturating_add(1);
    }

    /// What is printed: nothing for fewer than two samples.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        if self.samples < 2 {
            return text;
        }
        let _ = writeln!(text, "     lat(usec): min={}, max={}, mean={:.3}", self.min, self.max, self.mean);
        text.push_str("     lat percentiles (usec):\n");
        for row in PERCENTILES.chunks(ROW) {
            text.push_str("     |");
            for percentile in row {
                let _ = write!(text, " {percentile:4.2}%=[{:5.0}] ", self.percentile(*percentile));
            }
            text.push('\n');
        }
        text
    }

    /// The upper end of the bucket in which a percentile is, at most the largest sample.
    fn percentile(&self, percentile: f64) -> f64 {
        let rank = (self.samples as f64 * percentile / 100.0).ceil().max(1.0);
        let mut seen = 0.0;
        for (index, count) in self.count_for_bucket.iter().enumerate() {
            seen += f64::from(*count);
            if seen >= rank {
                return (upper_end(index).min(self.max)) as f64;
            }
        }
        self.max as f64
    }
}

/// Steps of a decade: up to this many units, in steps of this many.
const STEPS: [(u64, u64); 4] = [(100, 1), (200, 2), (500, 5), (1000, 10)];

/// The largest value of a bucket in microseconds.
fn upper_end(index: usize) -> u64 {
    let (mut unit, mut left) = (1, index);
    loop {
        let mut from = if unit == 1 { 0 } else { 100 };
        for (to, step) in STEPS {
            if to <= from {
                continue;
            }
            let buckets = ((to - from) / step) as usize;
            if left < buckets {
                return (from + (left as u64 + 1) * step) * unit;
            }
            left -= buckets;
            from = to;
        }
        unit *= 10;
    }
}

/// The bucket of a value: the first whose upper end is not below it; what is longer than all is in the last.
fn bucket(micros: u64) -> usize {
    let (mut low, mut high) = (0, BUCKETS - 1);
    while low < high {
        let middle = (low + high) / 2;
        if upper_end(middle) < micros { low = middle + 1 } else { high = middle }
    }
    low
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reset_latency_stat(stat: *mut LatencyStat) {
    // SAFETY: what latency_stat.h asks for, or null.
    if let Some(stat) = unsafe { stat.as_mut() } {
        stat.reset();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn add_latency_stat(stat: *mut LatencyStat, start: *const Timeval, end: *const Timeval) {
    quietly((), || {
        // SAFETY: what latency_stat.h asks for, or null.
        if let (Some(stat), Some(start), Some(end)) = unsafe { (stat.as_mut(), start.as_ref(), end.as_ref()) }
        {
            stat.add(u64::try_from(end.micros() - start.micros()).unwrap_or(0));
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn print_latency_stat(stat: *mut LatencyStat) {
    quietly((), || {
        // SAFETY: what latency_stat.h asks for, or null.
        if let Some(stat) = unsafe { stat.as_ref() } {
            print(&stat.describe());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: impl IntoIterator<Item = u64>) -> LatencyStat {
        let mut stat = LatencyStat {
            max: 1,
            min: 1,
            samples: 1,
            sum: 1,
            count_for_bucket: [1; BUCKETS],
            mean: 1.0,
            variance: 1.0,
        };
        stat.reset();
        samples.into_iter().for_each(|micros| stat.add(micros));
        stat
    }

    #[test]
    fn buckets_are_1_2_5_and_10_wide_and_then_tenfold() {
        let ends: Vec<u64> = [0, 99, 100, 149, 150, 209, 210, 259, 260, 309].map(upper_end).to_vec();
        assert_eq!(ends, [1, 100, 102, 200, 205, 500, 510, 1000, 1020, 2000]);
        assert_eq!([0, 1, 2, 100, 101, 102, 103].map(bucket), [0, 0, 1, 99, 100, 100, 101]);
        assert_eq!([1000, 1001, 1020, 1021].map(bucket), [259, 260, 260, 261]);
        assert_eq!(upper_end(BUCKETS - 1), 2_000_000);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_1_to_100_are_those_numbers() {
        let stat = of(1..=100);
        assert_eq!((stat.min, stat.max, stat.samples, stat.sum), (1, 100, 100, 5050));
        assert!((stat.mean - 50.5).abs() < 1e-9);
        assert!((stat.variance - 833.25).abs() < 1e-6, "{}", stat.variance);
        let text = stat.describe();
        assert!(
            text.starts_with("     lat(usec): min=1, max=100, mean=50.500\n     lat percentiles (usec):\n")
        );
        assert!(
            text.contains("     | 1.00%=[    1]  5.00%=[    5]  10.00%=[   10]  20.00%=[   20] \n"),
            "{text}"
        );
        assert!(text.contains("99.99%=[  100]"), "{text}");
    }

    #[test]
    fn defect_12_an_end_before_its_start_counts_as_nothing_and_one_sample_prints_nothing() {
        let mut stat = of([]);
        let (start, end) = (Timeval { tv_sec: 2, tv_usec: 0 }, Timeval { tv_sec: 1, tv_usec: 999_999 });
        // SAFETY: three structures of this function.
        unsafe { add_latency_stat(&raw mut stat, &raw const start, &raw const end) };
        assert_eq!((stat.samples, stat.min, stat.max), (1, 0, 0));
        assert_eq!(stat.describe(), "");
    }
}

//! `latency_stat.h`.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::ffi::c_long;
use std::fmt;

use unvme_guide::elapsed::TimeOfDay;
use unvme_guide::latency::{BUCKETS, Extent, bucket_of};

use super::stdio::print;
use crate::boundary::quietly;

/// `struct timeval`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Timeval {
    pub(crate) tv_sec: c_long,
    pub(crate) tv_usec: c_long,
}

impl From<Timeval> for TimeOfDay {
    fn from(time: Timeval) -> Self {
        Self { seconds: time.tv_sec, micros: time.tv_usec }
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
        let count = &mut self.count_for_bucket[bucket_of(micros)];
        *count = count.saturating_add(1);
    }
}

impl fmt::Display for LatencyStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (self.min as f64, self.max as f64);
        let extent = Extent { samples: self.samples, min, max, mean: self.mean, is_fine: false };
        let counts = || self.count_for_bucket.iter().map(|count| (*count).into());
        extent.write(f, |percent| extent.percentile(percent, counts()))
    }
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
            stat.add(TimeOfDay::from(*start).micros_until((*end).into()));
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn print_latency_stat(stat: *mut LatencyStat) {
    quietly((), || {
        // SAFETY: what latency_stat.h asks for, or null.
        if let Some(stat) = unsafe { stat.as_ref() } {
            print(&stat.to_string());
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
    fn percentiles_of_1_to_100_are_those_numbers() {
        let stat = of(1..=100);
        assert_eq!((stat.min, stat.max, stat.samples, stat.sum), (1, 100, 100, 5050));
        assert!((stat.mean - 50.5).abs() < 1e-9);
        assert!((stat.variance - 833.25).abs() < 1e-6, "{}", stat.variance);
        let text = stat.to_string();
        assert!(
            text.starts_with("     lat(usec): min=1, max=100, mean=50.500\n     lat percentiles (usec):\n")
        );
        assert!(
            text.contains("     | 1.00%=[    1]  5.00%=[    5] 10.00%=[   10] 20.00%=[   20] \n"),
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
        assert_eq!(stat.to_string(), "");
    }
}

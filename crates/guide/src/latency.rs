//! The buckets in which the guide's statistic counts latencies, and the block in which it tells them.
//!
//! A bucket is 1 us wide up to 100 us, 2 us up to 200, 5 us up to 500 and 10 us up to 1000; then the last
//! three widths come again ten, a hundred and a thousand times as wide. The last bucket ends at two seconds
//! and takes everything that is longer, so that its percentiles are at most that; the extremes and the mean
//! are exact.
//!
//! The original's statistic knows whole microseconds. A [`LatencyStat`] knows nanoseconds: its extremes and
//! its mean are exact, what takes less than 10 us is counted in buckets of 10 ns, too, and is told with three
//! decimals. Otherwise what takes less than a microsecond would be told to take nothing.

use std::fmt;
use std::time::Duration;

/// Buckets of a statistic.
pub const BUCKETS: usize = 790;
/// Percentiles that are printed.
pub const PERCENTS: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];
/// Percentiles on a line.
const PER_LINE: usize = 4;
/// Fine buckets: width in nanoseconds and number. Three decimals and five whole digits are equally wide.
const FINE_NS: u64 = 10;
const FINE_BUCKETS: usize = 1000;
/// Buckets up to 1000 us: 100 of 1 us, and those of the widths below.
const FIRST_DECADES: usize = 260;
/// Buckets of each further decade.
const DECADE: usize = 160;
/// End in the unit of the decade, width, and number of buckets of each part of a decade that begins at 100.
const PARTS: [(u64, u64, usize); 3] = [(200, 2, 50), (500, 5, 60), (1000, 10, 50)];

/// The bucket of a latency in microseconds.
pub fn bucket_of(us: u64) -> usize {
    if us <= 100 {
        return us.saturating_sub(1) as usize;
    }
    let mut scale = 1;
    let mut first = 100;
    while us > 1000 * scale {
        first += DECADE;
        scale *= 10;
        if first >= BUCKETS {
            return BUCKETS - 1;
        }
    }
    let mut begin = 100;
    for (end, width, buckets) in PARTS {
        if us <= end * scale {
            let offset = (us - begin * scale).div_ceil(width * scale) - 1;
            return (first + offset as usize).min(BUCKETS - 1);
        }
        first += buckets;
        begin = end;
    }
    BUCKETS - 1
}

/// The longest latency of a bucket, in microseconds.
pub fn bucket_end(bucket: usize) -> u64 {
    if bucket < 100 {
        return bucket as u64 + 1;
    }
    let mut rest = bucket - 100;
    let mut scale = 1;
    if bucket >= FIRST_DECADES {
        scale = 10u64.pow(((bucket - 100) / DECADE) as u32);
        rest = (bucket - 100) % DECADE;
    }
    let mut begin = 100;
    for (end, width, buckets) in PARTS {
        if rest < buckets {
            return (begin + width * (rest as u64 + 1)) * scale;
        }
        rest -= buckets;
        begin = end;
    }
    begin * scale
}

/// What was counted: how often, the extremes in microseconds, their mean.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Operations counted.
    pub samples: u64,
    /// The shortest latency.
    pub min: f64,
    /// The longest latency.
    pub max: f64,
    /// The mean latency.
    pub mean: f64,
    /// Whether parts of a microsecond are known.
    pub is_fine: bool,
}

impl Extent {
    /// The latency in microseconds within which `percent` of the operations stayed, `counts` of them in each
    /// bucket: the end of a bucket, or the longest latency where that is shorter.
    pub fn percentile(&self, percent: f64, counts: impl Iterator<Item = u64>) -> f64 {
        let end = |bucket| (bucket_end(bucket) as f64).min(self.max);
        place(self.wanted(percent), counts).map_or(self.max, end)
    }

    /// Operations within a percentile, at least one.
    fn wanted(&self, percent: f64) -> u64 {
        (self.samples as f64 * percent / 100.0).ceil().max(1.0) as u64
    }

    /// The block that the original prints: nothing for less than two samples, which have no distribution.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl fmt::Write, percentile: impl Fn(f64) -> f64) -> fmt::Result {
        if self.samples < 2 {
            return Ok(());
        }
        let (min, max) = (self.told(self.min), self.told(self.max));
        writeln!(out, "     lat(usec): min={min}, max={max}, mean={:.3}", self.mean)?;
        writeln!(out, "     lat percentiles (usec):")?;
        for line in PERCENTS.chunks(PER_LINE) {
            write!(out, "     |")?;
            for &percent in line {
                write!(out, "{percent:5.2}%=[{:>5}] ", self.told(percentile(percent)))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// A time in microseconds as it is printed.
    fn told(&self, us: f64) -> String {
        let decimals = if self.is_fine && us < (FINE_BUCKETS as u64 * FINE_NS) as f64 / 1e3 { 3 } else { 0 };
        format!("{us:.decimals$}")
    }
}

/// The bucket that the operation of this number, from 1 on, is in.
fn place(number: u64, counts: impl Iterator<Item = u64>) -> Option<usize> {
    let mut counted = 0;
    counts.enumerate().find_map(|(bucket, count)| {
        counted += count;
        (counted >= number).then_some(bucket)
    })
}

/// Latencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyStat {
    min_ns: u64,
    max_ns: u64,
    samples: u64,
    sum_ns: u64,
    counts: Box<[u64]>,
    /// Of what is shorter than the end of the last of them.
    fine: Box<[u64]>,
}

impl Default for LatencyStat {
    fn default() -> Self {
        Self {
            min_ns: u64::MAX,
            max_ns: 0,
            samples: 0,
            sum_ns: 0,
            counts: vec![0; BUCKETS].into_boxed_slice(),
            fine: vec![0; FINE_BUCKETS].into_boxed_slice(),
        }
    }
}

impl LatencyStat {
    /// Counts an operation.
    pub fn add(&mut self, latency: Duration) {
        let ns = latency.as_nanos() as u64;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.samples += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.counts[bucket_of(ns / 1000)] += 1;
        if let Some(count) = self.fine.get_mut((ns / FINE_NS) as usize) {
            *count += 1;
        }
    }

    /// Counts all that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.samples += other.samples;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        let parts = [(&mut self.counts, &other.counts), (&mut self.fine, &other.fine)];
        for (count, more) in parts.into_iter().flat_map(|(counts, more)| counts.iter_mut().zip(more)) {
            *count += more;
        }
    }

    /// Operations counted.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The shortest latency in microseconds; 0 when nothing was counted.
    pub fn min(&self) -> f64 {
        if self.samples == 0 { 0.0 } else { self.min_ns as f64 / 1e3 }
    }

    /// The longest latency in microseconds.
    pub fn max(&self) -> f64 {
        self.max_ns as f64 / 1e3
    }

    /// The mean latency in microseconds; 0 when nothing was counted.
    pub fn mean(&self) -> f64 {
        self.sum_ns as f64 / 1e3 / self.samples.max(1) as f64
    }

    /// The latency in microseconds within which `percent` of the operations stayed: the end of a bucket, or
    /// the longest latency where that is shorter.
    pub fn percentile(&self, percent: f64) -> f64 {
        let extent = self.extent();
        // Whatever has a fine bucket is shorter than all that has none.
        match place(extent.wanted(percent), self.fine.iter().copied()) {
            Some(bucket) => (((bucket as u64 + 1) * FINE_NS) as f64 / 1e3).min(self.max()),
            None => extent.percentile(percent, self.counts.iter().copied()),
        }
    }

    fn extent(&self) -> Extent {
        let (min, max, mean) = (self.min(), self.max(), self.mean());
        Extent { samples: self.samples, min, max, mean, is_fine: true }
    }
}

impl fmt::Display for LatencyStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.extent().write(f, |percent| self.percentile(percent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_as_wide_as_those_of_the_original() {
        let ends: Vec<u64> = (0..BUCKETS).map(bucket_end).collect();
        assert_eq!((ends[0], ends[99], ends[100], ends[149]), (1, 100, 102, 200));
        assert_eq!((ends[150], ends[209], ends[210], ends[259]), (205, 500, 510, 1000));
        assert_eq!((ends[260], ends[309], ends[310], ends[419]), (1020, 2000, 2050, 10_000));
        assert_eq!((ends[420], ends[579], ends[580], ends[739]), (10_200, 100_000, 102_000, 1_000_000));
        assert_eq!((ends[740], ends[789]), (1_020_000, 2_000_000));
        assert!(ends.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn a_latency_is_in_the_first_bucket_that_it_does_not_exceed() {
        for (bucket, end) in (0..BUCKETS).map(|bucket| (bucket, bucket_end(bucket))) {
            assert_eq!(bucket_of(end), bucket, "{end}");
            assert_eq!(bucket_of(end + 1), (bucket + 1).min(BUCKETS - 1), "{end} and one more");
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn buckets_are_1_2_5_and_10_wide_and_then_tenfold() {
        let ends: Vec<u64> = [0, 99, 100, 149, 150, 209, 210, 259, 260, 309].map(bucket_end).to_vec();
        assert_eq!(ends, [1, 100, 102, 200, 205, 500, 510, 1000, 1020, 2000]);
        assert_eq!([0, 1, 2, 100, 101, 102, 103].map(bucket_of), [0, 0, 1, 99, 100, 100, 101]);
        assert_eq!([1000, 1001, 1020, 1021].map(bucket_of), [259, 260, 260, 261]);
        assert_eq!(bucket_end(BUCKETS - 1), 2_000_000);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    /// The original's columns: a percentage has five, with a blank before the two that are shorter.
    #[test]
    fn the_block_is_printed_as_the_original_prints_it() {
        let mut stat = LatencyStat::default();
        for us in 1..=100 {
            stat.add(Duration::from_micros(us));
        }
        stat.add(Duration::from_micros(7266));
        assert_eq!(
            stat.to_string(),
            "     lat(usec): min=1.000, max=7266, mean=121.941\n\
             \x20    lat percentiles (usec):\n\
             \x20    | 1.00%=[2.010]  5.00%=[6.010] 10.00%=[   11] 20.00%=[   21] \n\
             \x20    |30.00%=[   31] 40.00%=[   41] 50.00%=[   51] 60.00%=[   61] \n\
             \x20    |70.00%=[   71] 80.00%=[   81] 90.00%=[   91] 95.00%=[   96] \n\
             \x20    |99.00%=[  100] 99.50%=[ 7266] 99.90%=[ 7266] 99.95%=[ 7266] \n\
             \x20    |99.99%=[ 7266] \n"
        );
    }

    #[test]
    fn less_than_two_samples_have_no_block() {
        let mut stat = LatencyStat::default();
        assert_eq!((stat.to_string(), stat.min(), stat.mean()), (String::new(), 0.0, 0.0));
        stat.add(Duration::from_micros(5));
        assert_eq!((stat.to_string(), stat.min(), stat.max()), (String::new(), 5.0, 5.0));
    }

    #[test]
    fn parts_of_a_microsecond_count() {
        let mut stat = LatencyStat::default();
        for ns in [400, 850, 851, 853, 9_994, 10_000, 12_500, 30_000, 30_000, 30_000] {
            stat.add(Duration::from_nanos(ns));
        }
        assert_eq!((stat.min(), stat.max()), (0.4, 30.0));
        assert_eq!([10.0, 20.0, 40.0, 50.0].map(|p| stat.percentile(p)), [0.41, 0.86, 0.86, 10.0]);
        assert_eq!([60.0, 70.0, 80.0].map(|p| stat.percentile(p)), [10.0, 12.0, 30.0]);
        let text = stat.to_string();
        assert!(text.starts_with("     lat(usec): min=0.400, max=30, mean=12.545\n"), "{text}");
        assert!(
            text.contains("     | 1.00%=[0.410]  5.00%=[0.410] 10.00%=[0.410] 20.00%=[0.860] \n"),
            "{text}"
        );
    }

    #[test]
    fn merging_is_counting_all_at_once() {
        let (mut one, mut two, mut both) =
            (LatencyStat::default(), LatencyStat::default(), LatencyStat::default());
        for us in [3, 900, 15_000] {
            one.add(Duration::from_micros(us));
            both.add(Duration::from_micros(us));
        }
        for us in [1, 3_000_000] {
            two.add(Duration::from_micros(us));
            both.add(Duration::from_micros(us));
        }
        one.merge(&two);
        assert_eq!(one, both);
        assert_eq!((one.percentile(50.0), one.percentile(99.0)), (900.0, 2_000_000.0));
        one.merge(&LatencyStat::default());
        assert_eq!(one, both);
    }
}

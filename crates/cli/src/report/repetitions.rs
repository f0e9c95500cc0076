//! One point that was measured several times.

use serde::{Deserialize, Serialize};

use super::model::Point;
use super::summary::p99;
use unvme_advise::statistics::Spread;

/// The figures of one repetition, those of all devices and cores together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Repetition {
    /// Completed commands per second.
    pub(crate) iops: f64,
    /// Data moved per second.
    pub(crate) mib_per_second: f64,
    /// Mean latency, when a command completed.
    pub(crate) latency_us_average: Option<f64>,
    /// 99th percentile of the latency, when it was recorded.
    pub(crate) latency_us_p99: Option<f64>,
    /// Longest latency, when a command completed.
    pub(crate) latency_us_max: Option<f64>,
    /// Commands that failed.
    pub(crate) errors: u64,
    /// Reads whose data was wrong.
    pub(crate) miscompares: u64,
}

/// How far the repetitions of a point are apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PointSpread {
    pub(crate) iops: Spread,
    pub(crate) mib_per_second: Spread,
    /// When a command completed each time.
    pub(crate) latency_us_average: Option<Spread>,
    /// When it was recorded each time.
    pub(crate) latency_us_p99: Option<Spread>,
    /// When a command completed each time.
    pub(crate) latency_us_max: Option<Spread>,
}

impl Repetition {
    /// What one measurement of a point came to.
    pub(crate) fn of(point: &Point) -> Self {
        let total = &point.total;
        Self {
            iops: total.iops,
            mib_per_second: total.mib_per_second,
            latency_us_average: total.latency_us_average,
            latency_us_p99: p99(point),
            latency_us_max: total.latency_us_max,
            errors: total.errors,
            miscompares: total.miscompares,
        }
    }

    /// Whether no command completed.
    pub(super) fn is_empty(&self) -> bool {
        self.iops <= 0.0
    }

    pub(super) fn is_finite(&self) -> bool {
        let latencies = [self.latency_us_average, self.latency_us_p99, self.latency_us_max];
        let mut figures = [self.iops, self.mib_per_second].into_iter().chain(latencies.into_iter().flatten());
        figures.all(f64::is_finite)
    }
}

impl PointSpread {
    /// `None` where there are no repetitions.
    fn of(repetitions: &[Repetition]) -> Option<Self> {
        let of = |figure: fn(&Repetition) -> f64| {
            Spread::of(&repetitions.iter().map(figure).collect::<Vec<f64>>())
        };
        // Of repetitions of which one has no latency there is no spread: its absence is not a small figure.
        let of_all = |figure: fn(&Repetition) -> Option<f64>| {
            let figures: Option<Vec<f64>> = repetitions.iter().map(figure).collect();
            Spread::of(&figures?)
        };
        Some(Self {
            iops: of(|repetition| repetition.iops)?,
            mib_per_second: of(|repetition| repetition.mib_per_second)?,
            latency_us_average: of_all(|repetition| repetition.latency_us_average),
            latency_us_p99: of_all(|repetition| repetition.latency_us_p99),
            latency_us_max: of_all(|repetition| repetition.latency_us_max),
        })
    }

    pub(super) fn is_finite(&self) -> bool {
        let latencies = [self.latency_us_average, self.latency_us_p99, self.latency_us_max];
        let mut figures = [self.iops, self.mib_per_second].into_iter().chain(latencies.into_iter().flatten());
        figures.all(|figure| figure.is_finite())
    }
}

/// One point of several measurements of it, in the order measured. It is the one with the median rate,
/// whole, so that its figures agree with each other (of an even number, the lower of both in the middle);
/// failures are those of all. One measurement is the point itself; `None` where there is none.
pub(crate) fn combine(mut measured: Vec<Point>) -> Option<Point> {
    if measured.len() < 2 {
        return measured.pop();
    }
    let repetitions: Vec<Repetition> = measured.iter().map(Repetition::of).collect();
    let mut by_rate: Vec<usize> = (0..measured.len()).collect();
    by_rate.sort_by(|&one, &other| repetitions[one].iops.total_cmp(&repetitions[other].iops));
    let middle = by_rate[(by_rate.len() - 1) / 2];
    let mut point = measured[middle].clone();
    for (index, row) in point.rows.iter_mut().enumerate() {
        let same = || measured.iter().filter_map(|point| point.rows.get(index));
        row.errors = same().map(|row| row.errors).sum();
        row.miscompares = same().map(|row| row.miscompares).sum();
    }
    point.total.errors = repetitions.iter().map(|repetition| repetition.errors).sum();
    point.total.miscompares = repetitions.iter().map(|repetition| repetition.miscompares).sum();
    point.spread = PointSpread::of(&repetitions);
    point.repetitions = repetitions;
    Some(point)
}

impl Point {
    /// Repetitions in which no command completed, of how many. None of a point with deallocations or flushes:
    /// they have no part in the rate.
    pub(super) fn stalled(&self) -> (usize, usize) {
        let all = repetitions(self);
        let stalled = all.iter().filter(|repetition| repetition.is_empty()).count();
        let has_asides = self.asides().iter().any(|(_, aside)| aside.count > 0);
        (if has_asides { 0 } else { stalled }, all.len())
    }
}

/// The repetitions of a point; one that was measured once has one.
pub(super) fn repetitions(point: &Point) -> Vec<Repetition> {
    if point.repetitions.is_empty() { vec![Repetition::of(point)] } else { point.repetitions.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn measured(iops: f64, errors: u64) -> Point {
        let mut point = sample::point(1, 8);
        point.total.iops = iops;
        (point.rows[0].iops, point.rows[0].errors, point.total.errors) = (iops, errors, errors);
        point
    }

    #[test]
    fn the_repetition_with_the_median_rate_stands_for_all() {
        let point =
            combine([30.0, 10.0, 20.0, 40.0].map(|iops| measured(iops, 1)).to_vec()).expect("a point");
        assert_eq!((point.total.iops, point.rows[0].iops), (20.0, 20.0));
        assert_eq!((point.total.errors, point.rows[0].errors), (4, 4));
        let rates: Vec<f64> = point.repetitions.iter().map(|repetition| repetition.iops).collect();
        assert_eq!(rates, [30.0, 10.0, 20.0, 40.0]);
        let spread = point.spread.expect("a spread");
        assert_eq!(spread.iops, Spread { median: 25.0, min: 10.0, max: 40.0, mad: 10.0 });
        assert!(spread.latency_us_p99.is_some());
        let once = measured(5.0, 0);
        assert_eq!(combine(vec![once.clone()]), Some(once));
        assert_eq!(combine(Vec::new()), None);
    }
}

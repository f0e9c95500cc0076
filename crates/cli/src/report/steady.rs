//! Whether a series of rounds has become steady, as SNIA's performance test specification asks it.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Furthest that the rounds may be apart, of their average.
const EXCURSION_MAX: f64 = 0.20;
/// Most that the line of best fit may rise or fall over them, of their average.
const SLOPE_MAX: f64 = 0.10;

/// The figure that is to be steady.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SteadyFigure {
    Iops,
    Throughput,
    Latency,
}

impl SteadyFigure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::Throughput => "MiB/s",
            Self::Latency => "average latency",
        }
    }
}

/// Rounds that were measured until they were steady.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SteadyState {
    pub(crate) figure: SteadyFigure,
    /// Of each round: IOPS, MiB/s or microseconds.
    pub(crate) rounds: Vec<f64>,
    /// How many of them, the last, were looked at together.
    pub(crate) window: u32,
    /// They were steady.
    pub(crate) reached: bool,
    /// Average of the window.
    pub(crate) average: f64,
    /// Greatest less least of the window, of its average.
    pub(crate) excursion: f64,
    /// What the line of best fit rises by over the window, of its average.
    pub(crate) slope: f64,
}

impl SteadyState {
    /// Looks at the last `window` of the rounds. With fewer, nothing is steady.
    pub(crate) fn of(figure: SteadyFigure, rounds: &[f64], window: usize) -> Self {
        let last = &rounds[rounds.len().saturating_sub(window)..];
        let count = last.len().max(1) as f64;
        let average = last.iter().sum::<f64>() / count;
        let greatest = last.iter().copied().fold(f64::MIN, f64::max);
        let least = last.iter().copied().fold(f64::MAX, f64::min);
        let share = |value: f64| if average > 0.0 { value / average } else { 0.0 };
        let excursion = if last.is_empty() { 0.0 } else { share(greatest - least) };
        let slope = share(rise(last));
        let reached =
            last.len() == window && average > 0.0 && excursion <= EXCURSION_MAX && slope.abs() <= SLOPE_MAX;
        let rounds = rounds.to_vec();
        Self { figure, rounds, window: window as u32, reached, average, excursion, slope }
    }

    /// The verdict, in a sentence.
    pub(crate) fn sentence(&self) -> String {
        let (count, window) = (self.rounds.len(), self.window);
        let (excursion, slope) = (self.excursion * 100.0, self.slope * 100.0);
        let name = self.figure.name();
        let found = format!("apart by {excursion:.1} % (20 at most), slope {slope:+.1} % (10 at most)");
        match self.reached {
            true => format!("Steady {name} after {count} rounds: the last {window} are {found}."),
            false => format!("Not steady after {count} rounds: {name} of the last {window} are {found}."),
        }
    }

    pub(super) fn is_finite(&self) -> bool {
        let figures = [self.average, self.excursion, self.slope];
        figures.iter().chain(&self.rounds).all(|figure| figure.is_finite())
    }
}

/// What the line of least squares through `values`, one apart, rises by from the first to the last.
fn rise(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    if count < 2.0 {
        return 0.0;
    }
    let middle = (count - 1.0) / 2.0;
    let average = values.iter().sum::<f64>() / count;
    let at = || values.iter().enumerate().map(|(place, value)| (place as f64 - middle, value - average));
    let slope = at().map(|(x, y)| x * y).sum::<f64>() / at().map(|(x, _)| x * x).sum::<f64>();
    slope * (count - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_rounds_within_the_limits_are_steady() {
        let of = |rounds: &[f64]| SteadyState::of(SteadyFigure::Iops, rounds, 5);
        assert!(of(&[500.0, 100.0, 101.0, 99.0, 100.0, 100.0]).reached, "what was before does not count");
        assert!(!of(&[100.0, 100.0, 100.0, 100.0]).reached, "too few");
        let apart = of(&[100.0, 121.0, 100.0, 100.0, 100.0]);
        assert!(!apart.reached && apart.excursion > 0.2 && apart.slope.abs() < 0.1, "{apart:?}");
        let rising = of(&[94.0, 97.0, 100.0, 103.0, 106.0]);
        assert!(!rising.reached && rising.excursion < 0.2, "{rising:?}");
        assert!((rising.slope - 0.12).abs() < 1e-9, "{rising:?}");
        assert!(of(&[96.0, 98.0, 100.0, 102.0, 104.0]).reached);
        assert!(!of(&[0.0; 5]).reached, "nothing is not steady");
    }
}

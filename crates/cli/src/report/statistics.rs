//! What figures of repeated measurements say: their middle, and their spread.

use serde::{Deserialize, Serialize};

/// The middle of some figures, and how far they are spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// The middle one, or the mean of both in the middle.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The greatest.
    pub(crate) max: f64,
    /// Median absolute deviation from the median, as it is: not scaled to a standard deviation.
    pub(crate) mad: f64,
}

impl Spread {
    /// `None` where there are no figures.
    pub(crate) fn of(figures: &[f64]) -> Option<Self> {
        let median = median(figures)?;
        let deviations: Vec<f64> = figures.iter().map(|figure| (figure - median).abs()).collect();
        Some(Self {
            median,
            min: figures.iter().copied().fold(f64::INFINITY, f64::min),
            max: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mad: self::median(&deviations)?,
        })
    }

    pub(super) fn is_finite(&self) -> bool {
        [self.median, self.min, self.max, self.mad].iter().all(|figure| figure.is_finite())
    }
}

fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_figures_is_that_of_a_textbook() {
        // Deviations from 2 are 1 1 0 0 2 4 7; their middle one is 1.
        let spread = Spread::of(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]).expect("figures");
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 9.0, mad: 1.0 });
        assert_eq!(Spread::of(&[4.0, 1.0]).map(|spread| (spread.median, spread.mad)), Some((2.5, 1.5)));
        assert_eq!(Spread::of(&[]), None);
    }
}

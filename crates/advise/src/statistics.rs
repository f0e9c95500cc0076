//! What figures of repeated measurements say: their middle, their spread, and whether two sets of them
//! differ.
//!
//! Differences are judged by the Mann-Whitney U test (Mann and Whitney 1947), which asks for nothing but
//! independent figures: rates are not spread normally. Up to 60 figures the distribution of U is
//! counted out over all ways to deal the ranks, equal figures sharing their middle rank; beyond, it is the
//! normal approximation with corrections for continuity and for ties. The interval of a ratio is the
//! percentile bootstrap of the medians (Efron 1979), with a seed of its own: it is the same each time.

use serde::{Deserialize, Serialize};
use unvme::random;

/// A difference is shown when chance alone would show one as large less often than this.
pub const SIGNIFICANCE: f64 = 0.05;
/// Figures of both sets together for which the distribution of U is counted out.
const EXACT_MAX: usize = 60;
/// Pairs of resampled sets that an interval is found from.
const RESAMPLES: usize = 2000;
/// Share of the ratios that the interval leaves out at each end: it holds 95 %.
const INTERVAL_TAIL: f64 = 0.025;
/// Repetitions of each side that are asked for at most.
const ENOUGH_MAX: u32 = 1000;
/// Seed of the resampling.
const SEED: u64 = 1;

/// The middle of some figures, and how far they are spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one, or the mean of both in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Median absolute deviation from the median, as it is: not scaled to a standard deviation.
    pub mad: f64,
}

impl Spread {
    /// `None` where there are no figures.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let median = median(figures)?;
        let deviations: Vec<f64> = figures.iter().map(|figure| (figure - median).abs()).collect();
        Some(Self {
            median,
            min: figures.iter().copied().fold(f64::INFINITY, f64::min),
            max: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mad: self::median(&deviations)?,
        })
    }

    /// True when every figure is a finite number.
    pub fn is_finite(&self) -> bool {
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

/// How the distribution of U was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// All ways to deal the ranks were counted.
    MannWhitneyExact,
    /// Normal approximation, corrected for continuity and ties.
    MannWhitneyNormal,
}

impl Method {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::MannWhitneyExact => "Mann-Whitney U test, exact",
            Self::MannWhitneyNormal => "Mann-Whitney U test, normal approximation with tie correction",
        }
    }
}

/// What a test found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Test {
    /// How the distribution was found.
    pub method: Method,
    /// The smaller one of both U.
    pub u: f64,
    /// How often chance alone gives a difference as large, in either direction.
    pub p: f64,
    /// The least p that as many figures can give.
    pub p_least: f64,
}

impl Test {
    /// True when no figures, however different, would show a difference.
    pub fn cannot_tell(&self) -> bool {
        self.p_least >= SIGNIFICANCE
    }
}

/// The two-sided test of two sets of figures. `None` where one of them is empty.
pub fn mann_whitney(one: &[f64], other: &[f64]) -> Option<Test> {
    if one.is_empty() || other.is_empty() {
        return None;
    }
    let ranks = Ranks::of(one, other);
    let (n, m) = (one.len() as f64, other.len() as f64);
    let u_one = ranks.doubled_sum as f64 / 2.0 - n * (n + 1.0) / 2.0;
    let u = u_one.min(n * m - u_one);
    let (method, p) = if one.len() + other.len() <= EXACT_MAX {
        (Method::MannWhitneyExact, exact(&ranks.doubled, one.len(), ranks.doubled_sum))
    } else {
        (Method::MannWhitneyNormal, normal(u, (n, m), ranks.ties))
    };
    Some(Test { method, u, p, p_least: p_least(one.len() as u32, other.len() as u32) })
}

/// Ranks of the figures of both sets together.
struct Ranks {
    /// Twice the rank of each figure: the middle of ranks that are shared may end in a half.
    doubled: Vec<usize>,
    /// Those of the first set.
    doubled_sum: usize,
    /// The sum of t³ - t over every t figures that are equal.
    ties: f64,
}

impl Ranks {
    fn of(one: &[f64], other: &[f64]) -> Self {
        let tagged = |first: bool| move |&figure: &f64| (figure, first);
        let mut all: Vec<(f64, bool)> = one.iter().map(tagged(true)).collect();
        all.extend(other.iter().map(tagged(false)));
        all.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut ranks = Self { doubled: Vec::with_capacity(all.len()), doubled_sum: 0, ties: 0.0 };
        for equal in all.chunk_by(|one, other| one.0 == other.0) {
            // Ranks from k + 1 to k + t; twice their mean.
            let doubled = 2 * ranks.doubled.len() + equal.len() + 1;
            ranks.doubled.extend(equal.iter().map(|_| doubled));
            ranks.doubled_sum += doubled * equal.iter().filter(|(_, first)| *first).count();
            let t = equal.len() as f64;
            ranks.ties += t * t * t - t;
        }
        ranks
    }
}

/// The share of all ways to deal `chosen` of the ranks whose sum is as far from the middle as `sum` is.
fn exact(doubled: &[usize], chosen: usize, sum: usize) -> f64 {
    let most: usize = doubled.iter().sum();
    // Ways to choose so many ranks with this sum.
    let mut ways = vec![vec![0.0f64; most + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for &rank in doubled {
        for count in (1..=chosen).rev() {
            let (fewer, more) = ways.split_at_mut(count);
            let (from, to) = (&fewer[count - 1], &mut more[0]);
            to[rank..].iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }
    let middle = chosen * (doubled.len() + 1);
    let far = sum.abs_diff(middle);
    let of = &ways[chosen];
    let extreme: f64 = (0..=most).filter(|sum| sum.abs_diff(middle) >= far).map(|sum| of[sum]).sum();
    (extreme / of.iter().sum::<f64>()).min(1.0)
}

/// The approximation for sets of `n` and `m`.
fn normal(u: f64, (n, m): (f64, f64), ties: f64) -> f64 {
    let all = n + m;
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    two_sided(z)
}

/// The share of a normal distribution that is at least `z` standard deviations from its middle: erfc(z / √2)
/// by the Chebyshev fit of Numerical Recipes (section 6.2, `erfcc`), with 7 digits.
fn two_sided(z: f64) -> f64 {
    const FIT: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + x / 2.0);
    let fit = FIT.iter().rev().fold(0.0, |sum, factor| sum * t + factor);
    (t * (fit - x * x).exp()).min(1.0)
}

/// The least p of sets of `n` and `m`: two of all ways to deal the ranks are the most extreme.
fn p_least(n: u32, m: u32) -> f64 {
    let fewer = n.min(m);
    let ways = (1..=fewer).fold(1.0, |ways, k| ways * f64::from(n + m - fewer + k) / f64::from(k));
    (2.0 / ways).min(1.0)
}

/// The least number of figures on each side that can show a difference, and the p they give then.
pub fn enough() -> (u32, f64) {
    let all = (1..=ENOUGH_MAX).map(|n| (n, p_least(n, n)));
    all.into_iter().find(|&(_, p)| p < SIGNIFICANCE).unwrap_or((ENOUGH_MAX, 0.0))
}

/// How the median of one set relates to that of another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The ratio.
    pub ratio: f64,
    /// The ends of the 95 % interval; `None` with a single figure on a side.
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// Of the median of `other` to that of `base`. `None` where there is none, or that of `base` is 0.
    pub fn of(base: &[f64], other: &[f64]) -> Option<Self> {
        let ratio = of_medians(base, other)?;
        let interval = (base.len() > 1 && other.len() > 1).then(|| bootstrap(base, other)).flatten();
        Some(Self { ratio, interval })
    }
}

fn of_medians(base: &[f64], other: &[f64]) -> Option<f64> {
    Some(median(other)? / median(base)?).filter(|ratio| ratio.is_finite())
}

fn bootstrap(base: &[f64], other: &[f64]) -> Option<(f64, f64)> {
    let mut state = SEED;
    let mut below = |end: usize| {
        state = state.wrapping_add(random::STEP);
        ((u128::from(random::mix(state)) * end as u128) >> 64) as usize
    };
    let mut again =
        |figures: &[f64]| -> Vec<f64> { figures.iter().map(|_| figures[below(figures.len())]).collect() };
    let mut ratios: Vec<f64> =
        (0..RESAMPLES).filter_map(|_| of_medians(&again(base), &again(other))).collect();
    ratios.sort_by(f64::total_cmp);
    let last = ratios.len().checked_sub(1)?;
    let cut = (last as f64 * INTERVAL_TAIL).floor() as usize;
    Some((ratios[cut], ratios[last - cut]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() <= 1e-4 * wanted
    }

    #[test]
    fn the_spread_of_figures_is_that_of_a_textbook() {
        // Deviations from 2 are 1 1 0 0 2 4 7; their middle one is 1.
        let spread = Spread::of(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]).expect("figures");
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 9.0, mad: 1.0 });
        assert_eq!(Spread::of(&[4.0, 1.0]).map(|spread| (spread.median, spread.mad)), Some((2.5, 1.5)));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn tortoises_and_hares_come_in_as_in_the_tables() {
        // T H H H H H T T T T T H: the tortoises are before 6 + 1 + 1 + 1 + 1 + 1 = 11 hares. Of the
        // 924 ways to come in, 1+1+2+3+5+7+11+13+18+22+28+32 = 143 have a U of 11 or less.
        let tortoises = [1.0, 7.0, 8.0, 9.0, 10.0, 11.0];
        let hares = [2.0, 3.0, 4.0, 5.0, 6.0, 12.0];
        let test = mann_whitney(&tortoises, &hares).expect("two sets");
        assert_eq!((test.u, test.method), (11.0, Method::MannWhitneyExact));
        assert!(near(test.p, 286.0 / 924.0), "{}", test.p);
        assert_eq!(mann_whitney(&hares, &tortoises), Some(test));
    }

    #[test]
    fn the_least_p_is_two_of_all_ways_to_deal_the_ranks() {
        for (n, ways) in [(1, 2.0), (3, 20.0), (4, 70.0), (5, 252.0)] {
            let low: Vec<f64> = (0..n).map(f64::from).collect();
            let high: Vec<f64> = low.iter().map(|figure| figure + 100.0).collect();
            let test = mann_whitney(&low, &high).expect("two sets");
            assert_eq!(test.u, 0.0);
            assert!(near(test.p, 2.0 / ways) && near(test.p_least, 2.0 / ways), "{n}: {test:?}");
            assert_eq!(test.cannot_tell(), n < 4);
        }
        let (each, p) = enough();
        assert!(each == 4 && near(p, 2.0 / 70.0), "{each} {p}");
    }

    #[test]
    fn equal_figures_share_their_middle_rank() {
        // Ranks 1, 2.5, 2.5, 4; two of them add up to 3.5 3.5 5 5 6.5 6.5: four of six are 1.5 from 5.
        let test = mann_whitney(&[1.0, 2.0], &[2.0, 3.0]).expect("two sets");
        assert!(test.u == 0.5 && near(test.p, 4.0 / 6.0), "{test:?}");
        // Three against three show nothing, however equal each three are.
        assert!(near(mann_whitney(&[1.0; 3], &[2.0; 3]).expect("two sets").p, 0.1));
        assert_eq!(mann_whitney(&[7.0; 5], &[7.0; 5]).expect("two sets").p, 1.0);
        assert_eq!(mann_whitney(&[7.0; 50], &[7.0; 50]).expect("two sets").p, 1.0);
        assert_eq!(mann_whitney(&[], &[7.0]), None);
    }

    #[test]
    fn large_sets_are_judged_by_the_normal_distribution() {
        assert!(near(two_sided(0.0), 1.0) && near(two_sided(1.959_964), 0.05));
        assert!(near(two_sided(3.290_527), 0.001));
        // (200 - 127 - 0.5) / sqrt(400 * 41 / 12) = 72.5 / 36.968 = 1.96115.
        assert!(near(normal(127.0, (20.0, 20.0), 0.0), 0.049_862), "{}", normal(127.0, (20.0, 20.0), 0.0));
        // Pairs that are equal: 20 * (8 - 2) = 120; 400 / 12 * (41 - 120 / 1560) = 36.934 squared.
        assert!(near(normal(127.0, (20.0, 20.0), 120.0), 0.049_649));
        // Where both can be done they agree to what the approximation is good for.
        let one: Vec<f64> = (0..30).map(f64::from).collect();
        let other: Vec<f64> = one.iter().map(|figure| figure + 8.5).collect();
        let counted = mann_whitney(&one, &other).expect("two sets");
        assert!((counted.p - normal(counted.u, (30.0, 30.0), 0.0)).abs() < 1e-3, "{counted:?}");
        let more: Vec<f64> = (0..31).map(f64::from).collect();
        assert_eq!(mann_whitney(&one, &more).map(|test| test.method), Some(Method::MannWhitneyNormal));
    }

    #[test]
    fn the_interval_of_a_ratio_is_the_same_each_time_and_holds_it() {
        let (base, other) = ([100.0, 101.0, 99.0, 102.0, 98.0], [200.0, 199.0, 203.0, 197.0, 201.0]);
        let found = Ratio::of(&base, &other).expect("a ratio");
        let (low, high) = found.interval.expect("an interval");
        assert_eq!(found.ratio, 2.0);
        // No median is beyond the figures.
        let (least, most) = (197.0 / 102.0, 203.0 / 98.0);
        assert!((least..2.0).contains(&low), "{found:?}");
        assert!(high > 2.0 && high <= most, "{found:?}");
        assert_eq!(Ratio::of(&base, &other), Some(found));
        assert_eq!(Ratio::of(&[1.0], &other).map(|ratio| ratio.interval), Some(None));
        assert_eq!(Ratio::of(&[0.0], &other), None);
    }
}

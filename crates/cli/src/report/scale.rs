//! Axis scales with round ticks, and numbers as a reader wants them.

/// Maps a value to its place between the ends of an axis.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    kind: Kind,
    /// Ends in the transformed space.
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

/// An axis of percentiles ends at the latency that one command in a million exceeds.
pub(super) const NINES_MAX: f64 = 6.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Linear,
    Log,
    Nines,
}

impl Scale {
    /// From 0 to at least `max`, with ticks at multiples of 1, 2 or 5.
    pub(super) fn linear(max: f64) -> Self {
        // A step of nothing has no end of ticks.
        let max = if max > 0.0 && (max / 6.0).is_normal() { max } else { 1.0 };
        let step = step_above(max / 6.0);
        let count = (max / step - 1e-9).ceil();
        let ticks = (0..=count as u32).map(|tick| plain(f64::from(tick) * step)).collect();
        Self { kind: Kind::Linear, low: 0.0, high: count * step, ticks }
    }

    /// The numbers of things that are counted from 1, with ticks at some of them.
    pub(super) fn counted(count: usize) -> Self {
        let last = count.max(2) as f64;
        let step = step_above((last - 1.0) / 10.0).max(1.0);
        let multiples = (1..).map(|tick| f64::from(tick) * step).take_while(|&tick| tick <= last);
        let ticks = std::iter::once(1.0).chain(multiples.filter(|&tick| tick > 1.0)).collect();
        Self { kind: Kind::Linear, low: 1.0, high: last, ticks }
    }

    /// Logarithmic with ticks at powers of two; half a step of room at both ends.
    pub(super) fn powers_of_two(min: f64, max: f64) -> Self {
        let (min, max) = positive_range(min, max);
        let (low, high) = (min.log2() - 0.3, max.log2() + 0.3);
        let first = low.ceil() as i32;
        let last = high.floor() as i32;
        let stride = ((last - first) / 14 + 1) as usize;
        let ticks = (first..=last).step_by(stride).map(|power| 2f64.powi(power)).collect();
        Self { kind: Kind::Log, low: low * 2f64.log10(), high: high * 2f64.log10(), ticks }
    }

    /// Logarithmic between round values at or outside `min` and `max`; ticks at 1, 2 and 5 of each decade, or
    /// at the decades alone when there are many.
    pub(super) fn decades(min: f64, max: f64) -> Self {
        let (min, max) = positive_range(min, max);
        let (mut low, mut high) = (round_below(min), step_above(max));
        if high <= low * 1.001 {
            (low, high) = (round_below(low * 0.99), step_above(high * 1.01));
        }
        let every: Vec<f64> = round_values(low, high);
        let ticks = if every.len() <= 10 {
            every
        } else {
            let first = (low.log10() - 1e-9).ceil() as i32;
            let last = (high.log10() + 1e-9).floor() as i32;
            (first..=last).map(|power| 10f64.powi(power)).collect()
        };
        Self { kind: Kind::Log, low: low.log10(), high: high.log10(), ticks }
    }

    /// Percentages by the number of nines: 90, 99 and 99.9 are equally far apart. `samples` bounds how far
    /// the axis reaches, as a percentile beyond one in `samples` says nothing.
    pub(super) fn nines(samples: u64) -> Self {
        let high = (2.0 * samples.max(5) as f64).log10().min(NINES_MAX);
        let ticks = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999];
        let ticks = ticks.into_iter().filter(|&percent| nines(percent) <= high + 1e-9).collect();
        Self { kind: Kind::Nines, low: 0.0, high, ticks }
    }

    /// Where `value` lies: 0 at the low end, 1 at the high end. A value beyond an end is drawn on it.
    pub(super) fn fraction(&self, value: f64) -> f64 {
        let place = match self.kind {
            Kind::Linear => value,
            Kind::Log => value.max(f64::MIN_POSITIVE).log10(),
            Kind::Nines => nines(value),
        };
        ((place - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The values that get a tick, ascending.
    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }
}

/// Without the digits that multiples of a tenth have at their end.
fn plain(value: f64) -> f64 {
    if value.abs() < 1e6 { (value * 1e9).round() / 1e9 } else { value }
}

/// 1 for 90 %, 2 for 99 %, and so on.
pub(super) fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).max(1e-12).log10()
}

fn positive_range(min: f64, max: f64) -> (f64, f64) {
    // Round values beyond these are 0, or infinite.
    let is_usable = |value: f64| (1e-300..=1e300).contains(&value);
    let min = if is_usable(min) { min } else { 1e-3 };
    let max = if max >= min && is_usable(max) { max } else { min };
    (min, max)
}

/// All of 1, 2 and 5 times a power of ten from `low` to `high`.
fn round_values(low: f64, high: f64) -> Vec<f64> {
    let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    decades
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
        .filter(|value| (low * 0.999..=high * 1.001).contains(value))
        .collect()
}

/// The smallest round value that is not below `value`, which must be above 0.
fn step_above(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let digit = value / decade;
    let digits = [1.0, 2.0, 5.0, 10.0];
    decade * digits.into_iter().find(|round| digit <= round * (1.0 + 1e-9)).unwrap_or(10.0)
}

/// The largest round value that is not above `value`, which must be above 0.
fn round_below(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let digit = value / decade;
    let digits = [5.0, 2.0, 1.0];
    decade * digits.into_iter().find(|round| digit >= round * (1.0 - 1e-9)).unwrap_or(1.0)
}

/// Three significant digits with the prefixes k, M and G: `1.82 M`, `352 k`, `17`.
pub(crate) fn si(value: f64) -> String {
    scaled(value, &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")])
}

/// Three significant digits of a time given in microseconds: `0.55 µs`, `12.3 ms`.
pub(crate) fn micros(us: f64) -> String {
    scaled(us, &[(1.0, "µs"), (1e3, "ms"), (1e6, "s")])
}

/// In place of a latency where no command completed.
pub(crate) const NO_COMPLETIONS: &str = "no completions";

/// As [`micros`]; in words where no command completed.
pub(super) fn micros_or_none(us: Option<f64>) -> String {
    us.map_or_else(|| NO_COMPLETIONS.to_owned(), micros)
}

/// A mean latency by its name: `9.76 µs average`; in words where no command completed.
pub(super) fn average(us: Option<f64>) -> String {
    us.map_or_else(|| NO_COMPLETIONS.to_owned(), |us| format!("{} average", micros(us)))
}

/// A rate of data given in MiB per second: `399 MiB/s`, `6.95 GiB/s`.
pub(super) fn mebibytes(mib: f64) -> String {
    scaled(mib, &[(1.0, "MiB/s"), (1024.0, "GiB/s"), (1024.0 * 1024.0, "TiB/s")])
}

/// A size: `4 KiB`, `1 GiB`, `7.28 TiB`.
pub(crate) fn bytes(count: u64) -> String {
    let units = [
        (1.0, "B"),
        (1024.0, "KiB"),
        (1024f64.powi(2), "MiB"),
        (1024f64.powi(3), "GiB"),
        (1024f64.powi(4), "TiB"),
    ];
    trimmed(&scaled(count as f64, &units))
}

/// Removes the zeros that end a fraction, for tick labels: `1.50 M` becomes `1.5 M`.
pub(super) fn trimmed(text: &str) -> String {
    let (number, unit) = text.split_once(' ').map_or((text, None), |(number, unit)| (number, Some(unit)));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    unit.map_or_else(|| number.to_owned(), |unit| format!("{number} {unit}"))
}

/// A whole number with its thousands apart: `1,821,344`.
pub(super) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
    let mut text = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Picks the largest unit in which the rounded number is at least 1.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let fits = |&&(factor, _): &&(f64, &str)| value.abs() / factor >= 0.9995;
    let &(factor, unit) = units.iter().rev().find(fits).unwrap_or(&units[0]);
    let number = value / factor;
    let size = number.abs();
    let decimals = match size {
        _ if factor == 1.0 && unit.len() < 2 && number.fract() == 0.0 => 0,
        _ if size == 0.0 || size >= 99.95 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.0995 => 2,
        _ => 3,
    };
    let space = if unit.is_empty() { "" } else { " " };
    format!("{number:.decimals$}{space}{unit}")
}

#[cfg(test)]
mod tests {
    use super::{Scale, bytes, mebibytes, micros, si, thousands, trimmed};

    #[test]
    fn numbers_keep_three_digits_and_move_to_the_next_prefix_when_they_round_up() {
        assert_eq!([si(0.0), si(17.0), si(352_400.0), si(1_821_344.0)], ["0", "17", "352 k", "1.82 M"]);
        assert_eq!([si(999.6), si(999_600.0), si(46.7e6)], ["1.00 k", "1.00 M", "46.7 M"]);
        assert_eq!([micros(0.0214), micros(0.55), micros(999.7)], ["0.021 µs", "0.55 µs", "1.00 ms"]);
        assert_eq!(
            [micros(12_345.0), mebibytes(399.81), mebibytes(7118.0)],
            ["12.3 ms", "400 MiB/s", "6.95 GiB/s"]
        );
        assert_eq!([bytes(512), bytes(4096), bytes(1 << 30)], ["512 B", "4 KiB", "1 GiB"]);
        assert_eq!([trimmed("1.50 M"), trimmed("100 k"), trimmed("2.00")], ["1.5 M", "100 k", "2"]);
        assert_eq!([thousands(999.4), thousands(1_821_344.0)], ["999", "1,821,344"]);
    }

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        assert_eq!(Scale::linear(1.82e6).ticks(), [0.0, 500e3, 1e6, 1.5e6, 2e6]);
        assert_eq!(Scale::linear(1.0).ticks(), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(Scale::powers_of_two(1.0, 8.0).ticks(), [1.0, 2.0, 4.0, 8.0]);
        let near = |ticks: &[f64], wanted: &[f64]| {
            ticks.len() == wanted.len()
                && ticks.iter().zip(wanted).all(|(tick, want)| (tick / want - 1.0).abs() < 1e-9)
        };
        assert!(near(Scale::decades(0.6, 40.0).ticks(), &[0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]));
        assert!(near(Scale::decades(0.6, 4000.0).ticks(), &[1.0, 10.0, 100.0, 1000.0]));
        assert_eq!(Scale::nines(1000).ticks(), [50.0, 90.0, 99.0, 99.9]);
    }

    #[test]
    fn what_is_counted_begins_at_one() {
        assert_eq!(Scale::counted(4).ticks(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(Scale::counted(25).ticks(), [1.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        let scale = Scale::counted(4);
        assert!(scale.fraction(1.0) == 0.0 && scale.fraction(4.0) == 1.0);
        assert_eq!(Scale::counted(1).fraction(1.0), 0.0);
    }

    #[test]
    fn an_axis_of_equal_or_absent_values_still_has_two_ends() {
        for scale in [
            Scale::linear(0.0),
            Scale::linear(f64::NAN),
            Scale::linear(1e-323),
            Scale::linear(f64::MIN_POSITIVE),
            Scale::decades(5e-324, 5.0),
            Scale::decades(5.0, f64::MAX),
            Scale::decades(5.0, 5.0),
            Scale::decades(0.0, 0.0),
            Scale::powers_of_two(32.0, 32.0),
            Scale::nines(0),
        ] {
            let places = [0.0, 1.0, 32.0, 1e9].map(|value| scale.fraction(value));
            assert!(places.iter().all(|place| (0.0..=1.0).contains(place)), "{scale:?} {places:?}");
            assert!((1..100).contains(&scale.ticks().len()), "{scale:?}");
        }
    }

    #[test]
    fn values_are_placed_by_ratio_and_percentages_by_nines() {
        let scale = Scale::decades(1.0, 100.0);
        assert!((scale.fraction(10.0) - 0.5).abs() < 1e-9);
        let nines = Scale::nines(500_000);
        assert!((nines.fraction(99.9) - 0.5).abs() < 1e-9 && (nines.fraction(90.0) - 1.0 / 6.0).abs() < 1e-9);
    }
}

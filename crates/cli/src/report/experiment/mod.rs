//! A page about something that was measured phase by phase, or over time: any number of curves, bars and
//! tables, which need not come from `unvme perf`.
//!
//! Whoever has such a result fills an [`Experiment`] and calls [`write`]; text is escaped, and points that
//! are not finite numbers are left out. Two curves over time are
//!
//! ```ignore
//! let curve = |name: &str, colour, points| Curve { name: name.into(), colour, is_dashed: false, points };
//! let waf = Curves {
//!     title: "Write amplification over time".into(),
//!     note: "Bytes that flash has written for each byte of the host".into(),
//!     x: Quantity::Seconds,
//!     y: Quantity::Number("WAF"),
//!     curves: vec![curve("no FDP", 1, without), curve("FDP", 0, with)],
//!     is_wide: true,
//! };
//! ```
//!
//! and a bar for each phase is a [`Bars`] with a [`Group`] per phase. A [`Quantity`] says how an axis is
//! called, how its values are written, and whether it is logarithmic.

mod bars;
mod page;

use super::figures::seconds_tick;
use super::heat::HeatMap;
use super::plot::{Axis, Chart, Dot, Line};
use super::scale::{Scale, micros, si, trimmed};

pub(crate) use page::write;

/// Colours of the style sheet; one beyond the last is the first again.
const COLOURS: usize = 12;
/// Points of a curve that have a hint, at most.
const HINTS: usize = 96;
/// Curves whose names are written at their ends, too.
const LABELS: usize = 4;

/// A whole page.
#[derive(Debug, Default)]
pub(crate) struct Experiment {
    /// What kind of page it is, in small letters above the title.
    pub(crate) kicker: String,
    pub(crate) title: String,
    /// The result in one sentence.
    pub(crate) result: String,
    /// What was measured where, in lines.
    pub(crate) about: Vec<String>,
    /// What went wrong, for all to see.
    pub(crate) warnings: Vec<String>,
    pub(crate) cards: Vec<Card>,
    /// In pairs beside each other, but for the wide ones.
    pub(crate) figures: Vec<Figure>,
    pub(crate) maps: Vec<HeatMap>,
    pub(crate) tables: Vec<Table>,
    pub(crate) facts: Vec<Facts>,
    /// Files and commands that a reader is to copy.
    pub(crate) listings: Vec<Listing>,
    /// How to do it again, a line for each command.
    pub(crate) commands: Vec<String>,
}

/// A key figure: `344 k` of the unit `ops/s`.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) title: String,
    pub(crate) figure: String,
    pub(crate) unit: &'static str,
    pub(crate) note: String,
}

#[derive(Debug)]
pub(crate) enum Figure {
    Curves(Curves),
    Bars(Bars),
}

/// Curves in one plot.
#[derive(Debug)]
pub(crate) struct Curves {
    pub(crate) title: String,
    /// One line that says what is plotted.
    pub(crate) note: String,
    pub(crate) x: Quantity,
    pub(crate) y: Quantity,
    pub(crate) curves: Vec<Curve>,
    /// As wide as the page.
    pub(crate) is_wide: bool,
}

#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Index of the colour; a name has the same in all figures of a page.
    pub(crate) colour: usize,
    pub(crate) is_dashed: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Bars from left to right, in groups.
#[derive(Debug)]
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) quantity: Quantity,
    pub(crate) groups: Vec<Group>,
    /// A line at this value, such as 1 for ratios.
    pub(crate) rule: Option<f64>,
    pub(crate) is_wide: bool,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
}

#[derive(Debug)]
pub(crate) struct Bar {
    /// What the legend calls it; the same in all groups.
    pub(crate) name: String,
    pub(crate) colour: usize,
    pub(crate) value: f64,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    /// In small letters beside the title.
    pub(crate) note: &'static str,
    /// The first is that of the rows' heads.
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<TableRow>,
}

#[derive(Debug)]
pub(crate) struct TableRow {
    pub(crate) head: String,
    pub(crate) cells: Vec<String>,
    /// A line is drawn above it.
    pub(crate) starts_group: bool,
}

/// What is so, by name.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) title: String,
    pub(crate) terms: Vec<(String, String)>,
}

/// A file or commands, as they are.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) title: String,
    pub(crate) text: String,
}

/// What an axis or a bar counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Quantity {
    /// A time since the beginning.
    Seconds,
    /// A rate of what is named.
    PerSecond(&'static str),
    /// A latency; the axis is logarithmic.
    Micros,
    /// 0 to 100 of what is named.
    Percent(&'static str),
    /// A percentage, with equal distances between 90, 99 and 99.9.
    Percentile,
    /// A plain number of what is named.
    Number(&'static str),
}

impl Quantity {
    fn name(self) -> &'static str {
        match self {
            Self::Seconds => "Time",
            Self::Micros => "Latency",
            Self::Percentile => "Percentile",
            Self::PerSecond(name) | Self::Percent(name) | Self::Number(name) => name,
        }
    }

    /// A value as a reader wants it.
    fn show(self, value: f64) -> String {
        match self {
            Self::Seconds => seconds_tick(value),
            Self::PerSecond(_) => format!("{}/s", si(value)),
            Self::Micros => micros(value),
            Self::Percent(_) => format!("{value:.1} %"),
            Self::Percentile => format!("{value:.4} %"),
            Self::Number(_) => format!("{value:.2}"),
        }
    }

    fn axis(self, values: impl Iterator<Item = f64>) -> Axis {
        let (min, max) =
            values.fold((f64::INFINITY, 0.0_f64), |(min, max), value| (min.min(value), max.max(value)));
        let name = self.name();
        match self {
            Self::Seconds => Axis { name, scale: Scale::linear(max), tick: seconds_tick },
            Self::PerSecond(_) => Axis { name, scale: Scale::linear(max), tick: |tick| trimmed(&si(tick)) },
            Self::Micros => {
                Axis { name, scale: Scale::decades(min, max), tick: |tick| trimmed(&micros(tick)) }
            }
            Self::Percent(_) => Axis { name, scale: Scale::linear(100.0), tick: |tick| format!("{tick} %") },
            Self::Percentile => {
                // The last of n is the percentile of half of it.
                let samples = 0.5 / (1.0 - max / 100.0).clamp(1e-9, 0.5);
                Axis { name, scale: Scale::nines(samples as u64), tick: |tick| format!("{tick}%") }
            }
            Self::Number(_) => {
                Axis { name, scale: Scale::linear(max), tick: |tick| trimmed(&format!("{tick:.2}")) }
            }
        }
    }
}

impl Curves {
    fn chart(&self) -> Chart {
        let named = (2..=LABELS).contains(&self.curves.len());
        let line = |curve: &Curve| {
            let points = curve.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
            let stride = curve.points.len().div_ceil(HINTS).max(1);
            let tip = |x: f64, y: f64| format!("{}\n{}: {}", curve.name, self.x.show(x), self.y.show(y));
            let dot = |(index, &(x, y)): (usize, &(f64, f64))| Dot {
                x,
                y,
                tip: (index % stride == 0).then(|| tip(x, y)),
                ..Dot::default()
            };
            Line {
                name: curve.name.clone(),
                colour: curve.colour % COLOURS,
                dashed: curve.is_dashed,
                end_label: named.then(|| curve.name.clone()),
                points: points.enumerate().map(dot).collect(),
                // One point has no line.
                dots: curve.points.len() < 2,
                ..Line::default()
            }
        };
        let lines: Vec<Line> = self.curves.iter().map(line).collect();
        let dots = || lines.iter().flat_map(|line| &line.points);
        let x = self.x.axis(dots().map(|dot| dot.x));
        let y = self.y.axis(dots().map(|dot| dot.y));
        let mut chart = Chart::new(&self.title, &self.note, x, y, lines);
        chart.wide = self.is_wide;
        chart
    }
}

#[cfg(test)]
mod tests;

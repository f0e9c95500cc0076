//! Runs of `unvme perf` side by side: which points measure the same, and whether their figures differ.
//!
//! The first side is the base; each other one is compared with it, point by point and metric by metric.
//! - [`text`]: for a terminal
//! - [`page`]: one HTML file with all sides in each picture
//!
//! Not done here: reading files.

mod figures;
pub(crate) mod page;
pub(crate) mod text;

use std::io::{self, Write};

use serde::Serialize;

use super::html::tables::pattern;
use super::model::{Point, Run, Setting};
use super::repetitions::{Repetition, repetitions};
use super::scale::{mebibytes, micros, si};
use crate::count::count;
use unvme_advise::statistics::{Ratio, SIGNIFICANCE, Spread, Test, enough, mann_whitney};

/// Settings that the workload, the threads or the depth of a point say, or that may differ.
const COMPARED_OTHERWISE: [&str; 9] =
    ["device", "namespace-id", "threads", "depth", "io-size", "workload", "read-percent", "dist", "rate"];

/// Sides that can be told apart by a letter.
pub(crate) const SIDES_MAX: usize = 26;

/// Several runs, and how the others compare with the first.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) tool_version: String,
    /// A difference is shown where p is below this.
    pub(crate) significance: f64,
    pub(crate) sides: Vec<Side>,
    /// In the order of the first side's points, for one other side after another.
    pub(crate) points: Vec<Compared>,
    /// What was measured on one side alone, in words.
    pub(crate) unmatched: Vec<Unmatched>,
}

/// A run, and what it goes by.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) letter: char,
    /// Where it was read from.
    pub(crate) file: Option<String>,
    /// What it is a side of, where the sides are values of one setting in one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) setting: Option<Setting>,
    pub(crate) run: Run,
}

/// A point that two sides have measured.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    /// In words: `4 KiB random read, 1 thread, depth 32`.
    pub(crate) what: String,
    pub(crate) phase: Option<String>,
    pub(crate) threads: u32,
    pub(crate) depth: u32,
    pub(crate) base: char,
    pub(crate) other: char,
    pub(crate) metrics: Vec<MetricCompared>,
    /// Sides with repetitions in which no command completed: their latency is not compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stalled: Vec<Stalled>,
}

/// Repetitions of a point in which no command completed.
#[derive(Debug, Serialize)]
pub(crate) struct Stalled {
    pub(crate) side: char,
    pub(crate) repetitions: usize,
    /// Repetitions of the side.
    pub(crate) of: usize,
}

impl Stalled {
    fn of(side: char, point: &Point) -> Option<Self> {
        let (repetitions, of) = point.stalled();
        (repetitions > 0).then_some(Self { side, repetitions, of })
    }

    /// In words.
    pub(crate) fn sentence(&self) -> String {
        let Self { side, repetitions, of } = self;
        let of = count(*of as u64, "repetition");
        format!("{side}: no completions in {repetitions} of {of}: its latency is not compared")
    }
}

/// A point that only one of two sides has measured.
#[derive(Debug, Serialize)]
pub(crate) struct Unmatched {
    /// Who has it.
    pub(crate) side: char,
    /// Who has not.
    pub(crate) missing: char,
    pub(crate) what: String,
}

/// One metric of a point.
#[derive(Debug, Serialize)]
pub(crate) struct MetricCompared {
    pub(crate) metric: Metric,
    /// Repetitions of the base and of the other side.
    pub(crate) repetitions: (u32, u32),
    pub(crate) base: Spread,
    pub(crate) other: Spread,
    /// Of the other side's median to that of the base.
    pub(crate) ratio: Option<Ratio>,
    pub(crate) test: Test,
    pub(crate) verdict: Verdict,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    Iops,
    MibPerSecond,
    LatencyUsAverage,
    LatencyUsP99,
}

impl Metric {
    const ALL: [Self; 4] = [Self::Iops, Self::MibPerSecond, Self::LatencyUsAverage, Self::LatencyUsP99];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::MibPerSecond => "Bandwidth",
            Self::LatencyUsAverage => "Average latency",
            Self::LatencyUsP99 => "p99 latency",
        }
    }

    fn more_is_better(self) -> bool {
        matches!(self, Self::Iops | Self::MibPerSecond)
    }

    fn of(self, repetition: &Repetition) -> Option<f64> {
        match self {
            Self::Iops => Some(repetition.iops),
            Self::MibPerSecond => Some(repetition.mib_per_second),
            // Files of earlier versions say 0 where no command completed.
            Self::LatencyUsAverage => repetition.latency_us_average.filter(|_| !repetition.is_empty()),
            Self::LatencyUsP99 => repetition.latency_us_p99,
        }
    }

    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Iops => si(value),
            Self::MibPerSecond => mebibytes(value),
            Self::LatencyUsAverage | Self::LatencyUsP99 => micros(value),
        }
    }
}

/// What the test says of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Better,
    Worse,
    NoDifferenceShown,
    TooFewRepetitions,
}

/// Writes the comparison as indented JSON with a newline at the end. Errors: what `out` returns.
fn write_json(comparison: &Comparison, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, comparison)?;
    out.write_all(b"\n")
}

impl MetricCompared {
    fn of(metric: Metric, base: &[Repetition], other: &[Repetition]) -> Option<Self> {
        let figures = |side: &[Repetition]| -> Option<Vec<f64>> {
            side.iter().map(|repetition| metric.of(repetition)).collect()
        };
        let (base, other) = (figures(base)?, figures(other)?);
        let test = mann_whitney(&base, &other)?;
        let ratio = Ratio::of(&base, &other);
        let repetitions = (base.len() as u32, other.len() as u32);
        let (base, other) = (Spread::of(&base)?, Spread::of(&other)?);
        let verdict = if test.cannot_tell() {
            Verdict::TooFewRepetitions
        } else if test.p >= SIGNIFICANCE || other.median == base.median {
            Verdict::NoDifferenceShown
        } else if (other.median > base.median) == metric.more_is_better() {
            Verdict::Better
        } else {
            Verdict::Worse
        };
        Some(Self { metric, repetitions, base, other, ratio, test, verdict })
    }

    /// The verdict in words; `other` is the letter of the other side.
    pub(crate) fn words(&self, other: char) -> String {
        match self.verdict {
            Verdict::Better => format!("{other} is better"),
            Verdict::Worse => format!("{other} is worse"),
            Verdict::NoDifferenceShown => "no difference shown".to_owned(),
            Verdict::TooFewRepetitions => {
                let (base, others) = self.repetitions;
                let (each, p) = enough();
                format!(
                    "no difference shown: {base} against {others} repetitions give a p of {:.2} at best, {each} \
                     against {each} one of {p:.3}",
                    self.test.p_least
                )
            }
        }
    }

    /// How much worse the other side is shown to be, in percent of the base. 0 when it is not.
    fn worse_percent(&self) -> f64 {
        match (self.verdict, self.ratio) {
            (Verdict::Worse, Some(ratio)) => (ratio.ratio - 1.0).abs() * 100.0,
            // The base has 0, the other side more of what should be little.
            (Verdict::Worse, None) => f64::INFINITY,
            _ => 0.0,
        }
    }

    /// p to three digits behind the point, which is never 0.
    pub(crate) fn p_words(&self) -> String {
        if self.test.p < 0.001 { "<0.001".to_owned() } else { format!("{:.3}", self.test.p) }
    }

    /// The ratio and its interval: `0.95 (0.93 to 0.97)`.
    pub(crate) fn ratio_words(&self) -> String {
        let Some(Ratio { ratio, interval }) = self.ratio else { return "-".to_owned() };
        match interval {
            Some((low, high)) => format!("{ratio:.3} ({low:.3} to {high:.3})"),
            None => format!("{ratio:.3}"),
        }
    }
}

impl Comparison {
    /// Of at least two sides. `Err` has the words for it when no point of another side measures what one of
    /// the first does.
    pub(crate) fn new(runs: Vec<(Option<String>, Run)>) -> Result<Self, String> {
        let side = |(letter, (file, run))| Side { letter, file, setting: None, run };
        Self::of(('A'..='Z').zip(runs).map(side).collect())
    }

    /// Of the points of one run, which has a side for each value of the setting `name`. Errors: as with
    /// [`Comparison::new`], or there are fewer values than two, or more than [`SIDES_MAX`].
    pub(crate) fn within(run: &Run, name: &str) -> Result<Self, String> {
        let mut settings: Vec<Setting> = Vec::new();
        for setting in run.points.iter().flat_map(|point| &point.settings) {
            if setting.name == name && !settings.contains(setting) {
                settings.push(setting.clone());
            }
        }
        if !(2..=SIDES_MAX).contains(&settings.len()) {
            let values = settings.len();
            return Err(format!(
                "{name} has {values} values in this run; expected 2 to {SIDES_MAX} to compare"
            ));
        }
        let side = |(letter, setting): (char, Setting)| {
            let has = |point: &&Point| point.settings.contains(&setting);
            let points = run.points.iter().filter(has).map(|point| {
                let mut point = point.clone();
                point.settings.retain(|other| *other != setting);
                point
            });
            let mut own = Run { points: points.collect(), ..run.clone() };
            if name == "device" {
                own.devices.retain(|device| device.name == setting.value);
            }
            Side { letter, file: None, setting: Some(setting), run: own }
        };
        Self::of(('A'..='Z').zip(settings).map(side).collect())
    }

    fn of(sides: Vec<Side>) -> Result<Self, String> {
        let mut comparison = Self {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            significance: SIGNIFICANCE,
            sides: Vec::new(),
            points: Vec::new(),
            unmatched: Vec::new(),
        };
        if let Some((base, others)) = sides.split_first() {
            others.iter().for_each(|other| comparison.add(base, other));
        }
        comparison.sides = sides;
        if comparison.points.is_empty() {
            let whats = |side: &Side| {
                let whats: Vec<String> = side.run.points.iter().map(|point| what(&side.run, point)).collect();
                if whats.is_empty() { "nothing".to_owned() } else { whats.join("; ") }
            };
            let all: Vec<String> =
                comparison.sides.iter().map(|side| format!("{} has {}", side.name(), whats(side))).collect();
            return Err(format!(
                "nothing to compare, as no point of another run measures what one of the first does: {}",
                all.join(", ")
            ));
        }
        Ok(comparison)
    }

    fn add(&mut self, base: &Side, other: &Side) {
        for point in &base.run.points {
            let what = what(&base.run, point);
            let Some(found) = base.partner(point, other) else {
                self.unmatched.push(Unmatched { side: base.letter, missing: other.letter, what });
                continue;
            };
            let (one, two) = (repetitions(point), repetitions(found));
            let compare = |metric: Metric| MetricCompared::of(metric, &one, &two);
            self.points.push(Compared {
                what,
                phase: point.phase.clone(),
                threads: point.threads,
                depth: point.depth,
                base: base.letter,
                other: other.letter,
                metrics: Metric::ALL.into_iter().filter_map(compare).collect(),
                stalled: [(base.letter, point), (other.letter, found)]
                    .into_iter()
                    .filter_map(|(side, point)| Stalled::of(side, point))
                    .collect(),
            });
        }
        for point in &other.run.points {
            if other.partner(point, base).is_none() {
                let what = what(&other.run, point);
                self.unmatched.push(Unmatched { side: other.letter, missing: base.letter, what });
            }
        }
    }

    /// What is shown to be worse by more than `percent`, in words.
    pub(crate) fn worse_by_more_than(&self, percent: f64) -> Vec<String> {
        let all =
            self.points.iter().flat_map(|point| point.metrics.iter().map(move |metric| (point, metric)));
        let worse = all.filter(|(_, metric)| metric.worse_percent() > percent).map(|(point, metric)| {
            let (name, by) = (metric.metric.name(), metric.worse_percent());
            format!("{} of {}, {}, is {by:.1} % worse", name, point.other, point.what)
        });
        // However few repetitions there are: a side that completes nothing is worse.
        let stalled = self.points.iter().flat_map(|point| {
            let others = point.stalled.iter().filter(move |stalled| stalled.side == point.other);
            others.map(move |stalled| format!("{}, of {}", stalled.sentence(), point.what))
        });
        worse.chain(stalled).collect()
    }

    /// How many tests there are, and how many say so.
    pub(crate) fn sentence(&self) -> String {
        let of = |verdict: Verdict| {
            let metrics = self.points.iter().flat_map(|point| &point.metrics);
            metrics.filter(|metric| metric.verdict == verdict).count()
        };
        let none = of(Verdict::NoDifferenceShown) + of(Verdict::TooFewRepetitions);
        let figures = |number: usize| count(number as u64, "figure");
        format!(
            "{} better, {} worse, {none} with no difference shown",
            figures(of(Verdict::Better)),
            of(Verdict::Worse)
        )
    }

    /// How differences are judged, in words.
    pub(crate) fn judged(&self) -> String {
        let mut methods: Vec<&str> = Vec::new();
        for metric in self.points.iter().flat_map(|point| &point.metrics) {
            let name = metric.test.method.name();
            if !methods.contains(&name) {
                methods.push(name);
            }
        }
        format!(
            "{}, two-sided: a difference is shown where p < {SIGNIFICANCE}. Of 20 such tests of things that do not \
             differ, one shows a difference by chance. Ratios are of medians, with their bootstrap 95 % interval.",
            methods.join("; ")
        )
    }
}

impl Side {
    /// The letter, the devices and the file: `A: mem:block:1G (a.json)`.
    pub(crate) fn name(&self) -> String {
        if let Some(Setting { name, value }) = &self.setting {
            return format!("{}: {name} {value}", self.letter);
        }
        let devices: Vec<&str> = self.run.devices.iter().map(|device| device.name.as_str()).collect();
        let file = self.file.as_ref().map_or_else(String::new, |file| format!(" ({file})"));
        format!("{}: {}{file}", self.letter, devices.join(", "))
    }

    /// The point of another side that measures what `point` does here.
    fn partner<'a>(&self, point: &Point, other: &'a Self) -> Option<&'a Point> {
        other.run.points.iter().find(|found| match self.setting {
            Some(_) => (&found.phase, &found.settings) == (&point.phase, &point.settings),
            None => key(&other.run, found) == key(&self.run, point),
        })
    }
}

/// What tells points apart that cannot be compared: blocks or pairs, how many namespaces at once, which
/// commands, threads and depth. Names of devices, transports, durations and data are what may differ.
fn key(run: &Run, point: &Point) -> impl PartialEq {
    let workload = run.workload_of(point);
    // Of a device without a size nothing is known but its name.
    let pairs = run.devices.iter().any(|device| device.block_bytes == 0 && device.capacity_bytes > 0);
    let other: Vec<Setting> = point
        .settings
        .iter()
        .filter(|setting| !COMPARED_OTHERWISE.contains(&setting.name.as_str()))
        .cloned()
        .collect();
    (
        (pairs, namespaces(run, point), workload.pattern.clone(), workload.io_bytes, workload.read_percent),
        (workload.distribution.clone(), workload.rate_limit_iops, other),
        (point.phase.clone(), point.threads, point.depth, workload.shape.clone()),
    )
}

/// How many namespaces a point is of: a row has one, and its core.
fn namespaces(run: &Run, point: &Point) -> usize {
    let mut labels: Vec<&str> = point.rows.iter().map(|row| row.label.as_str()).collect();
    labels.sort_unstable();
    labels.dedup();
    if labels.is_empty() { run.devices.len() } else { labels.len() }
}

fn what(run: &Run, point: &Point) -> String {
    let workload = run.workload_of(point);
    let mut what = match &point.phase {
        Some(phase) => phase.clone(),
        None => pattern(workload),
    };
    if workload.distribution != "uniform" && !workload.distribution.is_empty() {
        what += &format!(" ({})", workload.distribution);
    }
    if let Some(limit) = workload.rate_limit_iops {
        what += &format!(" at {limit} IOPS");
    }
    let namespaces = namespaces(run, point);
    if namespaces > 1 {
        what += &format!(", {namespaces} namespaces at once");
    }
    format!("{what}, {}, depth {}", count(u64::from(point.threads), "thread"), point.depth)
}

#[cfg(test)]
mod tests;

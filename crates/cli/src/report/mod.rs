//! What `unvme perf` measured, and the ways to show it: text table, JSON, CSV and a self-contained HTML page.
//!
//! [`Run`] is the whole result and the only input of every renderer, so a report can be drawn again from the
//! JSON of an earlier run. Units are part of each field's name; a latency is in microseconds everywhere.
//!
//! - [`table`]: the text that the terminal gets, one [`Point`] at a time, and the summary of a sweep
//! - [`csv`]: one line per device and core of each point, for a spreadsheet
//! - [`html`]: one file with figures and plots; it loads nothing and works without JavaScript
//! - [`compare`]: several runs side by side, and whether they differ
//! - [`sim`]: what `unvme sim` found, and all of the above for it
//! - [`experiment`]: a page about anything else that was measured by phases or over time
//!
//! Not done here: measuring, and reading the clock, the machine or the device.

pub(crate) mod compare;
pub(crate) mod csv;
pub(crate) mod experiment;
mod figures;
mod grid;
pub(crate) mod heat;
pub(crate) mod html;
mod latency;
mod markup;
mod model;
mod plot;
mod repetitions;
pub(crate) mod scale;
mod schedule;
mod shape;
pub(crate) mod sim;
mod steady;
mod summary;
pub(crate) mod table;
mod timeline;

pub(crate) use latency::{Distribution, Latency, Percentile};
pub(crate) use model::{
    DeviceIdentity, HarnessCost, JobFigures, Machine, PlacedWrites, Point, Row, RowRates, Run, Sample,
    Setting, Workload,
};
pub(crate) use repetitions::combine;
pub(crate) use schedule::Schedule;
pub(crate) use shape::{
    BurstShape, CommandFigures, CpuUse, PairFigures, PairsShape, Shape, SizeShare, TraceShape,
};
pub(crate) use steady::{SteadyFigure, SteadyState};

use std::io::{self, Write};

use summary::Summary;

use crate::count::count;

/// The point with the highest rate.
pub(crate) fn peak(run: &Run) -> Option<&Point> {
    Summary::new(run).peak()
}

/// What tells a point from others, in words: `threads 1, depth 32`.
pub(crate) fn place(point: &Point) -> String {
    let phase = point.phase.iter().cloned();
    let settings = point.settings.iter().map(|setting| format!("{} {}", setting.name, setting.value));
    let own: Vec<String> = phase.chain(settings).collect();
    match Summary::is_alike(point) {
        true => format!("threads {}, depth {}", point.threads, point.depth),
        false => own.join(", "),
    }
}

/// The rate over time of measurements one after the other, as one.
pub(crate) fn joined_series(points: &[Point]) -> Vec<Sample> {
    let mut series: Vec<Sample> = Vec::new();
    let mut begun = 0.0;
    for point in points {
        series.extend(point.series.iter().map(|sample| Sample { second: begun + sample.second, ..*sample }));
        begun = series.last().map_or(begun, |last| last.second);
    }
    series
}

/// The result in one sentence.
pub(crate) fn sentence(run: &Run) -> String {
    Summary::new(run).sentence()
}

/// What the measuring loop itself costs, in a sentence or two; `None` when that was not measured.
pub(crate) fn harness(run: &Run) -> Option<String> {
    Summary::new(run).harness()
}

/// How many commands failed and how many reads returned wrong data, in words; `None` when all went well.
pub(crate) fn failures(run: &Run) -> Option<String> {
    let totals = || run.points.iter().map(|point| &point.total);
    let errors = totals().map(|row| row.errors).sum();
    summary::failures(errors, totals().map(|row| row.miscompares).sum())
}

/// The points at which no command completed, in words, also in one of several repetitions; `None` when some
/// did each time.
pub(crate) fn stalled(run: &Run) -> Option<String> {
    let told = run.points.iter().filter_map(|point| {
        let at = place(point);
        match point.stalled() {
            (0, _) => None,
            (_, 1) => Some(at),
            (stalled, all) => Some(format!("{at} in {stalled} of {}", count(all as u64, "repetition"))),
        }
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("no command completed in the time measured: {}", told.join("; ")))
}

/// How many reads could not be verified, in words; `None` when all could, or none were to be.
pub(crate) fn unjudged(run: &Run) -> Option<String> {
    summary::unjudged(run.unjudged_reads.unwrap_or_default())
}

/// Writes the run as indented JSON with a newline at the end. Errors: `InvalidData` when a figure is not a
/// finite number: JSON has no way to write one, and a file that cannot be read back is worse than none.
/// Otherwise what `out` returns.
pub(crate) fn write_json(run: &Run, out: &mut impl Write) -> io::Result<()> {
    if let Some(label) = run.non_finite() {
        let text = format!("a figure of {label} is not a finite number");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    serde_json::to_writer_pretty(&mut *out, run)?;
    out.write_all(b"\n")
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

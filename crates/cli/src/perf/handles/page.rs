//! The result as a page: how latencies are spread, of each handle alone and beside the others.

use std::io::{self, Write};

use super::outcome::{Figures, Outcome};
use super::text;
use crate::report::experiment::{
    self, Bar, Bars, Card, Curve, Curves, Experiment, Facts, Figure, Group, Quantity, Table, TableRow,
};

/// Handles whose latencies are drawn.
const DRAWN: usize = 8;
const COLUMNS: [&str; 10] =
    ["Handle", "IOPS", "MiB/s", "Average us", "p50 us", "p99 us", "p99.9 us", "CPU %", "Hits %", "Errors"];

pub(super) fn write(outcome: &Outcome, out: &mut impl Write) -> io::Result<()> {
    experiment::write(&experiment(outcome), outcome, out)
}

fn experiment(outcome: &Outcome) -> Experiment {
    let mut figures: Vec<Figure> =
        outcome.handles.iter().take(DRAWN).map(|own| Figure::Curves(spread(outcome, &own.name))).collect();
    figures.push(Figure::Bars(rates(outcome)));
    let mut warnings = Vec::new();
    if outcome.interrupted {
        warnings.push("interrupted: runs are shorter, or missing".to_owned());
    }
    let failed = outcome.runs.iter().flat_map(|run| &run.handles).find_map(|own| own.first_failure.as_ref());
    warnings.extend(failed.map(|first| format!("commands failed; the first: {first}")));
    Experiment {
        kicker: "I/O handles".to_owned(),
        title: outcome.device.label(),
        result: outcome.sentence(),
        about: vec![format!(
            "{} and {}, unvme {}; {} seconds each, {} bytes in flight between them",
            outcome.machine.cpu_model,
            outcome.machine.kernel,
            outcome.tool_version,
            outcome.seconds,
            outcome.window_bytes
        )],
        warnings,
        cards: cards(outcome),
        figures,
        listings: Vec::new(),
        maps: Vec::new(),
        tables: outcome.runs.iter().map(table).collect(),
        facts: vec![Facts {
            title: "Handles".to_owned(),
            terms: outcome
                .handles
                .iter()
                .map(|own| {
                    let what = format!(
                        "{} of {} bytes, depth {}; {}",
                        own.pattern, own.io_bytes, own.depth, own.policies
                    );
                    (own.name.clone(), what)
                })
                .collect(),
        }],
        commands: vec![outcome.command_line.join(" ")],
    }
}

fn cards(outcome: &Outcome) -> Vec<Card> {
    let Some(first) = outcome.handles.first() else { return Vec::new() };
    outcome
        .of(&first.name)
        .map(|(run, own)| Card {
            title: format!("{}, 99th percentile", first.name),
            figure: own.percentile(99.0).map_or_else(|| "-".to_owned(), |us| format!("{us:.1}")),
            unit: "us",
            note: run.name.clone(),
        })
        .collect()
}

/// What part of the commands of a handle took at most how long, in each run.
fn spread(outcome: &Outcome, name: &str) -> Curves {
    let curve = |(nth, (run, own)): (usize, (&super::outcome::Run, &Figures))| Curve {
        name: run.name.clone(),
        colour: nth,
        is_dashed: false,
        points: cumulated(own),
    };
    Curves {
        title: format!("Latency of {name}"),
        note: "Alone and beside the others: what part of the commands took at most how long".to_owned(),
        x: Quantity::Percentile,
        y: Quantity::Micros,
        curves: outcome.of(name).enumerate().map(curve).collect(),
        is_wide: outcome
            .handles
            .iter()
            .position(|of| of.name == name)
            .is_none_or(|nth| is_alone(nth, outcome.handles.len())),
    }
}

/// Whether the figure of this handle has a row for itself: the first one has, and one that nothing is beside.
fn is_alone(nth: usize, count: usize) -> bool {
    nth == 0 || nth + 1 == count && nth % 2 == 1
}

fn cumulated(own: &Figures) -> Vec<(f64, f64)> {
    let Some(latency) = &own.latency else { return Vec::new() };
    let mut below = 0;
    let mut points = Vec::new();
    for bucket in &latency.buckets {
        // The middle of a bucket: all of the last one is not 100 %.
        let percent = 100.0 * (below as f64 + bucket.count as f64 / 2.0) / latency.samples.max(1) as f64;
        points.push((percent, bucket.value_us));
        below += bucket.count;
    }
    points
}

fn rates(outcome: &Outcome) -> Bars {
    let group = |run: &super::outcome::Run| Group {
        name: run.name.clone(),
        bars: run
            .handles
            .iter()
            .map(|own| Bar {
                name: own.name.clone(),
                colour: outcome.handles.iter().position(|of| of.name == own.name).unwrap_or(0),
                value: own.mib_per_second,
            })
            .collect(),
    };
    Bars {
        title: "Data moved".to_owned(),
        note: "MiB in a second, of each handle in each run".to_owned(),
        quantity: Quantity::Number("MiB/s"),
        groups: outcome.runs.iter().map(group).collect(),
        rule: None,
        is_wide: true,
    }
}

fn table(run: &super::outcome::Run) -> Table {
    let row = |own: &Figures| {
        let [head, cells @ ..] = text::row(own);
        TableRow { head, cells: cells.to_vec(), starts_group: false }
    };
    Table {
        title: run.name.clone(),
        note: "latencies in microseconds",
        columns: COLUMNS.to_vec(),
        rows: run.handles.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_alone;

    #[test]
    fn no_figure_has_an_empty_place_beside_it() {
        for (count, wide) in [
            (1, &[true][..]),
            (2, &[true, true]),
            (3, &[true, false, false]),
            (4, &[true, false, false, true]),
        ] {
            let found: Vec<bool> = (0..count).map(|nth| is_alone(nth, count)).collect();
            assert_eq!(found, wide);
        }
    }
}

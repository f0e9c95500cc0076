//! The page: write amplification and use over time, and beside what a simulation says.

use super::result::{Outcome, Sample, Side};
use crate::report::experiment::{Card, Curve, Curves, Experiment, Facts, Figure, Quantity, Table, TableRow};
use crate::report::scale::bytes;

/// Colours of a run without placement and of one with it, as `unvme sim` has them.
const WITHOUT: usize = 1;
const WITH: usize = 0;

pub(super) fn experiment(outcome: &Outcome) -> Experiment {
    let mut figures = vec![Figure::Curves(over_time(outcome))];
    figures.extend(beside_simulation(outcome).map(Figure::Curves));
    Experiment {
        kicker: "Flexible Data Placement".to_owned(),
        title: outcome.title.clone(),
        result: format!(
            "With {:.0} % of the device in use, write amplification settles at {:.3} with placement and at {:.3} \
             without.",
            outcome.used_placed * 100.0,
            outcome.waf_placed,
            outcome.waf_unplaced
        ),
        about: vec![format!("unvme {}", outcome.tool_version)],
        cards: cards(outcome),
        figures,
        listings: Vec::new(),
        maps: Vec::new(),
        tables: vec![table(outcome)],
        facts: facts(outcome),
        commands: outcome.notes.clone(),
        ..Experiment::default()
    }
}

fn cards(outcome: &Outcome) -> Vec<Card> {
    let waf = |title: &str, side: &Side| Card {
        title: title.to_owned(),
        figure: format!("{:.3}", side.waf),
        unit: "",
        note: match outcome.expected_of(side) {
            Some(expected) => format!("last quarter; simulated: {expected:.3}"),
            None => "last quarter".to_owned(),
        },
    };
    let moved = |side: &Side| (side.waf - 1.0).max(0.0);
    let mut cards = vec![
        waf("WAF without placement", &outcome.unplaced),
        waf("WAF with placement", &outcome.placed),
        Card {
            title: "In use".to_owned(),
            figure: format!("{:.1}", outcome.used_placed * 100.0),
            unit: "%",
            note: format!("without placement {:.1} %", outcome.used_unplaced * 100.0),
        },
    ];
    if moved(&outcome.unplaced) > 0.0 {
        let share = 100.0 * (1.0 - moved(&outcome.placed) / moved(&outcome.unplaced));
        cards.push(Card {
            title: "Moved by reclaim".to_owned(),
            figure: format!("{:.0}", share.abs()),
            unit: if share < 0.0 { "% more" } else { "% less" },
            note: "with placement, for each byte of the host".to_owned(),
        });
    }
    cards
}

/// The picture that the two lines of RocksDB with and without FDP became known by.
fn over_time(outcome: &Outcome) -> Curves {
    let mut curves = Vec::new();
    for (side, colour) in outcome.sides().into_iter().zip([WITHOUT, WITH]) {
        curves.push(curve(&format!("WAF, {}", side.name), colour, false, side, |at| {
            Some((at.second, at.waf?))
        }));
        curves.push(curve(&format!("in use, {}", side.name), colour, true, side, |at| {
            Some((at.second, at.used))
        }));
    }
    let phases: Vec<String> = outcome
        .sides()
        .iter()
        .filter_map(|side| {
            let last = side.phases.last()?;
            Some(format!("{}: {} from {:.0} s on", side.name, last.name, last.second))
        })
        .collect();
    let mut note =
        "Bytes that the media were written with for each of the host's, in each interval; share of the device in use"
            .to_owned();
    if !phases.is_empty() {
        note = format!("{note}; {}", phases.join(", "));
    }
    Curves {
        title: "Write amplification and use over time".to_owned(),
        note,
        x: Quantity::Seconds,
        y: Quantity::Number("WAF, share in use"),
        curves,
        is_wide: true,
    }
}

fn curve(
    name: &str,
    colour: usize,
    is_dashed: bool,
    side: &Side,
    point: impl Fn(&Sample) -> Option<(f64, f64)>,
) -> Curve {
    Curve {
        name: name.to_owned(),
        colour,
        is_dashed,
        points: side.samples.iter().filter_map(point).collect(),
    }
}

/// Both by what the host has written, as time means nothing to the simulation.
fn beside_simulation(outcome: &Outcome) -> Option<Curves> {
    let simulated = outcome.simulated.as_ref()?;
    let flash = simulated.physical_bytes.max(1) as f64;
    let mut curves = Vec::new();
    for (side, colour) in outcome.sides().into_iter().zip([WITHOUT, WITH]) {
        curves.push(curve(side.name, colour, false, side, |at| {
            Some((at.phase_bytes? as f64 / flash, at.waf?))
        }));
    }
    let end = curves.iter().flat_map(|curve| &curve.points).map(|(x, _)| *x).fold(0.0, f64::max);
    let expected =
        [(&simulated.curve_unplaced, "without", WITHOUT), (&simulated.curve_placed, "with placement", WITH)];
    for (points, name, colour) in expected {
        curves.push(Curve {
            name: format!("{name}, simulated"),
            colour,
            is_dashed: true,
            points: points.iter().copied().filter(|(x, _)| *x <= end).collect(),
        });
    }
    Some(Curves {
        title: "Beside the simulation".to_owned(),
        note: format!(
            "Write amplification by what the host has written in the last phase, in multiples of the flash of {}; \
             dashed: unvme sim, which begins with {:.0} % in use",
            bytes(simulated.physical_bytes),
            simulated.used * 100.0
        ),
        x: Quantity::Number("Written by the host, times the flash"),
        y: Quantity::Number("WAF"),
        curves,
        is_wide: true,
    })
}

fn table(outcome: &Outcome) -> Table {
    let three = |waf: Option<f64>| waf.map_or_else(|| "-".to_owned(), |waf| format!("{waf:.3}"));
    let row = |side: &Side| {
        let mut cells: Vec<String> = side.quarters.iter().map(|waf| three(*waf)).collect();
        cells.push(three(Some(side.waf_total)));
        cells.push(three(outcome.expected_of(side)));
        cells.push(format!("{:.1} %", side.used * 100.0));
        cells.push(bytes(side.host_bytes));
        cells.push(bytes(side.media_bytes));
        cells.push(side.operations_per_second.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")));
        cells.push(side.handles.to_string());
        cells.push(format!("{:.0} s", side.seconds));
        TableRow { head: side.name.to_owned(), cells, starts_group: false }
    };
    Table {
        title: "Write amplification".to_owned(),
        note: "in each quarter of the last phase, by what the host has written; in all; as simulated",
        columns: vec![
            "Run",
            "1st",
            "2nd",
            "3rd",
            "4th",
            "All",
            "Simulated",
            "In use",
            "Host",
            "Media",
            "Operations/s",
            "Handles",
            "Time",
        ],
        rows: outcome.sides().into_iter().map(row).collect(),
    }
}

fn facts(outcome: &Outcome) -> Vec<Facts> {
    let Some(simulated) = &outcome.simulated else { return Vec::new() };
    let sold = simulated.physical_bytes as f64 / simulated.exported_bytes.max(1) as f64 - 1.0;
    let term = |name: &str, value: String| (name.to_owned(), value);
    vec![Facts {
        title: "Device".to_owned(),
        terms: vec![
            term("Hosts see", bytes(outcome.placed.capacity_bytes)),
            term("Flash", format!("{}, {:.1} % more", bytes(simulated.physical_bytes), sold * 100.0)),
            term("Reclaim units", format!("{} of {}", simulated.units, bytes(simulated.unit_bytes))),
        ],
    }]
}

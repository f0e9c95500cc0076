//! What `unvme sim` found, and the ways to show it: text, JSON, CSV, a self-contained HTML page, and
//! pictures.
//!
//! [`Simulation`] is the whole result and the only input of every renderer.

pub(crate) mod csv;
mod figures;
mod model;
pub(crate) mod page;
pub(crate) mod picture;
pub(crate) mod text;

pub(crate) use model::{
    Device, Handle, PLATEAU, Parameter, Published, Row, SAMPLES, Sample, Simulation, TWELFTHS, Theory,
    Traffic, WallClock, WriteLatency,
};

use std::io::{self, Write};

use super::scale::trimmed;
use crate::count::count;

/// Writes the simulation as indented JSON with a newline at the end. Errors: what `out` returns.
pub(crate) fn write_json(simulation: &Simulation, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, simulation)?;
    out.write_all(b"\n")
}

/// The theory's value, and what the reserve makes of it where that shows.
fn theory(row: &Row) -> String {
    let Some(theory) = &row.theory else { return "-".to_owned() };
    let (low, high) = (format!("{:.3}", theory.value), format!("{:.3}", theory.with_reserve));
    if low == high { low } else { format!("{low}-{high}") }
}

/// What the columns mean that do not say it themselves.
fn notes(simulation: &Simulation) -> Vec<String> {
    let mut notes = Vec::new();
    for row in &simulation.rows {
        let texts = [
            row.theory.as_ref().map(|theory| format!("Theory: {}.", theory.formula)),
            row.published.as_ref().map(|published| format!("Published: {}.", published.source)),
        ];
        for text in texts.into_iter().flatten() {
            if !notes.contains(&text) {
                notes.push(text);
            }
        }
    }
    notes.sort_by_key(|note| note.starts_with("Published"));
    notes
}

/// `1 reclaim group, initially isolated handles`.
fn groups(device: &Device) -> String {
    let groups = count(device.groups, "reclaim group");
    format!("{groups}, {} isolated handles", device.isolation)
}

/// A handle's number; nothing for the units that reclaim has filled.
fn number_of(handle: &Handle) -> String {
    handle.handle.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// A time as people say it: `45 s`, `12.5 min`, `16.2 h`.
fn span(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.1} s"),
        ..7200.0 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// The result in one sentence: the fullest device, with FDP and without.
fn sentence(simulation: &Simulation) -> String {
    let fullest = |fdp: bool| {
        let rows = simulation.rows.iter().filter(|row| row.fdp == fdp);
        rows.max_by(|a, b| a.util.total_cmp(&b.util))
    };
    let util = |row: &Row| trimmed(&format!("{:.1}", row.util * 100.0));
    match (fullest(false), fullest(true)) {
        (Some(off), Some(on)) if on.plateau > 0.995 * off.plateau => format!(
            "With {} % of the device in use, write amplification settles at {:.3} without FDP and at {:.3} with it.",
            util(on),
            off.plateau,
            on.plateau
        ),
        (Some(off), Some(on)) => format!(
            "With {} % of the device in use, FDP brings write amplification from {:.2} down to {:.3}.",
            util(on),
            off.plateau,
            on.plateau
        ),
        (Some(row), None) | (None, Some(row)) => {
            format!(
                "With {} % of the device in use, write amplification settles at {:.3}.",
                util(row),
                row.plateau
            )
        }
        (None, None) => "Nothing was simulated.".to_owned(),
    }
}

//! Write amplification and use that come from the readings of two runs.

use std::io::{self, Write};

use serde::Serialize;

use super::super::watch::Reading;
use super::lines::{Recording, Simulated};

/// Intervals that a run is divided into for its curves.
const INTERVALS: usize = 96;
/// Parts of the last phase; write amplification has settled in the last one.
const PARTS: u64 = 4;
/// Readings that a phase needs: one at each end, and one between.
const READINGS_MIN: usize = 3;

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Side {
    pub(super) name: &'static str,
    /// What the last quarter of the last phase had, by what hosts have written.
    pub(super) waf: f64,
    /// What all of the run had.
    pub(super) waf_total: f64,
    /// What each quarter of the last phase had.
    pub(super) quarters: Vec<Option<f64>>,
    /// Share of the namespace that held data in the last quarter of the last phase, on average.
    pub(super) used: f64,
    pub(super) host_bytes: u64,
    pub(super) media_bytes: u64,
    pub(super) capacity_bytes: u64,
    pub(super) seconds: f64,
    pub(super) operations_per_second: Option<f64>,
    /// Most placement handles that were seen with a unit written in part.
    pub(super) handles: u64,
    pub(super) phases: Vec<Phase>,
    pub(super) samples: Vec<Sample>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    pub(super) name: String,
    /// When it began, in seconds since the run did.
    pub(super) second: f64,
}

/// The end of an interval.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    pub(super) second: f64,
    /// Bytes that hosts have written since the run began.
    pub(super) host_bytes: u64,
    /// Those since the last phase began; `None` before.
    pub(super) phase_bytes: Option<u64>,
    /// Write amplification within the interval; `None` when nothing was written.
    pub(super) waf: Option<f64>,
    /// Share of the namespace that holds data.
    pub(super) used: f64,
}

impl Side {
    /// Errors: there are too few readings, or nothing was written.
    pub(super) fn new(name: &'static str, recording: &Recording) -> Result<Self, String> {
        let readings = &recording.readings;
        let begun = recording.phases.last().map_or(0, |(first, _)| *first);
        let last_phase = readings.get(begun..).unwrap_or_default();
        let (Some(first), Some(last), [start, .., end]) = (readings.first(), readings.last(), last_phase)
        else {
            return Err(too_few(last_phase.len()));
        };
        if last_phase.len() < READINGS_MIN {
            return Err(too_few(last_phase.len()));
        }
        let quarters = quarters(last_phase, start, end);
        let waf = quarters.last().copied().flatten();
        let (Some(waf), Some(waf_total)) = (waf, last.amplification_since(first)) else {
            return Err("nothing was written in the last quarter of the last phase".to_owned());
        };
        let settled = settled(last_phase, start, end);
        let used = settled.iter().map(Reading::used_share).sum::<f64>() / settled.len().max(1) as f64;
        let phase = |(at, name): &(usize, String)| {
            let second = readings.get(*at).map(|reading| reading.time - first.time)?;
            Some(Phase { name: name.clone(), second })
        };
        Ok(Self {
            name,
            waf,
            waf_total,
            quarters,
            used,
            host_bytes: last.host_bytes - first.host_bytes,
            media_bytes: last.media_bytes - first.media_bytes,
            capacity_bytes: last.capacity_bytes,
            seconds: last.time - first.time,
            operations_per_second: recording.rate(),
            handles: readings.iter().map(|reading| reading.handles_open).max().unwrap_or(0),
            phases: recording.phases.iter().filter_map(phase).collect(),
            samples: samples(readings, first, start),
        })
    }
}

fn too_few(readings: usize) -> String {
    format!(
        "{readings} lines of `unvme fdp watch -o json` in the last phase; at least {READINGS_MIN} are expected"
    )
}

/// The first reading by which the host had written so much of the phase: its `part`th quarter's end.
fn boundary<'a>(phase: &'a [Reading], start: &Reading, end: &'a Reading, part: u64) -> &'a Reading {
    let bytes = u128::from(end.host_bytes - start.host_bytes) * u128::from(part) / u128::from(PARTS);
    let is_behind = |reading: &&Reading| u128::from(reading.host_bytes - start.host_bytes) >= bytes;
    phase.iter().find(is_behind).unwrap_or(end)
}

fn quarters(phase: &[Reading], start: &Reading, end: &Reading) -> Vec<Option<f64>> {
    let ends: Vec<&Reading> = (0..=PARTS).map(|part| boundary(phase, start, end, part)).collect();
    ends.windows(2).map(|pair| pair[1].amplification_since(pair[0])).collect()
}

/// The readings of the last quarter.
fn settled<'a>(phase: &'a [Reading], start: &Reading, end: &'a Reading) -> &'a [Reading] {
    let from = boundary(phase, start, end, PARTS - 1);
    let at = phase.iter().position(|reading| reading == from).unwrap_or(0);
    &phase[at..]
}

fn samples(readings: &[Reading], first: &Reading, phase: &Reading) -> Vec<Sample> {
    let stride = readings.len().div_ceil(INTERVALS).max(1);
    let mut ends: Vec<&Reading> = readings.iter().step_by(stride).collect();
    if !readings.len().saturating_sub(1).is_multiple_of(stride) {
        // The last one, however near it is.
        ends.extend(readings.last());
    }
    let sample = |pair: &[&Reading]| Sample {
        second: pair[1].time - first.time,
        host_bytes: pair[1].host_bytes - first.host_bytes,
        phase_bytes: pair[1].host_bytes.checked_sub(phase.host_bytes).filter(|_| pair[1].time > phase.time),
        waf: pair[1].amplification_since(pair[0]),
        used: pair[1].used_share(),
    };
    ends.windows(2).map(sample).collect()
}

/// What a simulation says.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Expected {
    pub(super) waf_placed: f64,
    pub(super) waf_unplaced: f64,
    pub(super) used: f64,
    pub(super) physical_bytes: u64,
    pub(super) exported_bytes: u64,
    pub(super) unit_bytes: u64,
    pub(super) units: u64,
    /// The host's writes in multiples of the flash, and the write amplification at that.
    pub(super) curve_placed: Vec<(f64, f64)>,
    pub(super) curve_unplaced: Vec<(f64, f64)>,
}

/// All of it: what is written as JSON.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) title: String,
    pub(super) tool_version: &'static str,
    pub(super) waf_placed: f64,
    pub(super) waf_unplaced: f64,
    pub(super) used_placed: f64,
    pub(super) used_unplaced: f64,
    pub(super) simulated: Option<Expected>,
    pub(super) placed: Side,
    pub(super) unplaced: Side,
    pub(super) notes: Vec<String>,
}

impl Outcome {
    pub(super) fn new(
        title: String,
        notes: Vec<String>,
        placed: Side,
        unplaced: Side,
        simulated: Option<Simulated>,
    ) -> Self {
        Self {
            title,
            tool_version: env!("CARGO_PKG_VERSION"),
            waf_placed: placed.waf,
            waf_unplaced: unplaced.waf,
            used_placed: placed.used,
            used_unplaced: unplaced.used,
            simulated: simulated.and_then(|simulated| expected(&simulated)),
            placed,
            unplaced,
            notes,
        }
    }

    /// Both runs, without placement first.
    pub(super) fn sides(&self) -> [&Side; 2] {
        [&self.unplaced, &self.placed]
    }

    /// What a run has in the simulation.
    pub(super) fn expected_of(&self, side: &Side) -> Option<f64> {
        let simulated = self.simulated.as_ref()?;
        let is_placed = side.name == self.placed.name;
        Some(if is_placed { simulated.waf_placed } else { simulated.waf_unplaced })
    }

    pub(super) fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{:<16} {:>31} {:>8} {:>8} {:>9} {:>8} {:>11} {:>9} {:>8} {:>7}",
            "",
            "WAF in each quarter",
            "settled",
            "all",
            "simulated",
            "in use",
            "host bytes",
            "ops/s",
            "handles",
            "time"
        )?;
        for side in self.sides() {
            let quarter = |waf: &Option<f64>| waf.map_or_else(|| "-".to_owned(), |waf| format!("{waf:.3}"));
            let quarters: Vec<String> = side.quarters.iter().map(quarter).collect();
            let rate = side.operations_per_second.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
            writeln!(
                out,
                "{:<16} {:>31} {:>8.3} {:>8.3} {:>9} {:>7.1}% {:>11} {:>9} {:>8} {:>6.0}s",
                side.name,
                quarters.join("   "),
                side.waf,
                side.waf_total,
                quarter(&self.expected_of(side)),
                side.used * 100.0,
                crate::report::scale::bytes(side.host_bytes),
                rate,
                side.handles,
                side.seconds
            )?;
        }
        Ok(())
    }
}

fn expected(simulated: &Simulated) -> Option<Expected> {
    let (placed, unplaced) = (simulated.row(true)?, simulated.row(false)?);
    let curve = |row: &super::lines::SimulatedRow| {
        row.samples.iter().map(|at| (at.device_writes, at.write_amplification)).collect()
    };
    Some(Expected {
        waf_placed: placed.plateau,
        waf_unplaced: unplaced.plateau,
        used: placed.util,
        physical_bytes: simulated.device.physical_bytes,
        exported_bytes: simulated.device.exported_bytes,
        unit_bytes: simulated.device.unit_bytes,
        units: simulated.device.units,
        curve_placed: curve(placed),
        curve_unplaced: curve(unplaced),
    })
}

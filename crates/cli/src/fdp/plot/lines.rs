//! The files: lines of `fdp watch` with remarks between them, and what `unvme sim` has written.

use serde::Deserialize;

use super::super::watch::Reading;

/// Readings of one run.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) readings: Vec<Reading>,
    /// Where phases begin: the number of the reading that is the first of it, and its name.
    pub(super) phases: Vec<(usize, String)>,
    /// What programs said, with the number of the reading that follows.
    pub(super) rates: Vec<(usize, f64)>,
}

/// What stands between readings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remark {
    phase: Option<String>,
    operations_per_second: Option<f64>,
}

impl Recording {
    /// Errors: which line is none, or says less than the one before.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut recording = Self::default();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            recording.add(line).map_err(|e| format!("line {}: {e}", index + 1))?;
        }
        Ok(recording)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        if let Ok(reading) = serde_json::from_str::<Reading>(line) {
            if let Some(earlier) = self.readings.last() {
                let has_grown =
                    reading.host_bytes >= earlier.host_bytes && reading.media_bytes >= earlier.media_bytes;
                if !has_grown || reading.time < earlier.time {
                    return Err("its counters or its time are lower than those before".to_owned());
                }
            }
            self.readings.push(reading);
            return Ok(());
        }
        let remark: Remark = serde_json::from_str(line)
            .map_err(|e| format!("a line of `unvme fdp watch -o json`, or a remark, is expected: {e}"))?;
        let next = self.readings.len();
        self.phases.extend(remark.phase.map(|phase| (next, phase)));
        self.rates.extend(remark.operations_per_second.map(|rate| (next, rate)));
        Ok(())
    }
}

/// What of a simulation is drawn beside.
#[derive(Debug, Deserialize)]
pub(super) struct Simulated {
    pub(super) device: SimulatedDevice,
    pub(super) rows: Vec<SimulatedRow>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SimulatedDevice {
    pub(super) physical_bytes: u64,
    pub(super) exported_bytes: u64,
    pub(super) unit_bytes: u64,
    pub(super) units: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct SimulatedRow {
    pub(super) util: f64,
    pub(super) fdp: bool,
    pub(super) plateau: f64,
    pub(super) samples: Vec<SimulatedSample>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SimulatedSample {
    pub(super) device_writes: f64,
    pub(super) write_amplification: f64,
}

impl Simulated {
    /// Errors: it is not a simulation with placement and without.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let simulated: Self = serde_json::from_str(text)
            .map_err(|e| format!("what `unvme sim --fdp both --json` writes is expected: {e}"))?;
        for fdp in [true, false] {
            if simulated.row(fdp).is_none() {
                let which = if fdp { "with" } else { "without" };
                return Err(format!("there is no row {which} FDP; `unvme sim --fdp both` has both"));
            }
        }
        Ok(simulated)
    }

    /// The first row with FDP, or without.
    pub(super) fn row(&self, fdp: bool) -> Option<&SimulatedRow> {
        self.rows.iter().find(|row| row.fdp == fdp)
    }
}

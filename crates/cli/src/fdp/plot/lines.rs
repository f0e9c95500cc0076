//! The files: lines of `fdp watch` with remarks between them, and what `unvme sim` has written.

use serde::Deserialize;

use super::super::watch::Reading;

/// Readings of one run.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) readings: Vec<Reading>,
    /// Where phases begin: the number of the reading that is the first of it, and its name.
    pub(super) phases: Vec<(usize, String)>,
    /// What programs said, with how many phases had begun by then.
    pub(super) rates: Vec<(usize, f64)>,
}

/// Seconds since 1970 beyond this are nobody's.
const TIME_MAX: f64 = 1e12;
/// As are rates, and figures of a simulation.
const FIGURE_MAX: f64 = 1e12;

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

    fn add_reading(&mut self, reading: Reading) -> Result<(), String> {
        check(&reading)?;
        if let Some(earlier) = self.readings.last() {
            let has_grown =
                reading.host_bytes >= earlier.host_bytes && reading.media_bytes >= earlier.media_bytes;
            if !has_grown || reading.time < earlier.time {
                return Err("its counters or its time are lower than those before".to_owned());
            }
        }
        self.readings.push(reading);
        Ok(())
    }

    /// What was said last of the last phase; of all that was said where there are no phases.
    pub(super) fn rate(&self) -> Option<f64> {
        let (phases, rate) = self.rates.last()?;
        (*phases == self.phases.len()).then_some(*rate)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let no_reading = match serde_json::from_str(line) {
            Ok(reading) => return self.add_reading(reading),
            Err(e) => e,
        };
        let expected = "a line of `unvme fdp watch -o json`";
        let remark: Remark = serde_json::from_str(line).map_err(|e| {
            if has_time(line) {
                format!("{expected} is expected: {no_reading}")
            } else {
                format!("{expected}, or a remark, is expected: {e}")
            }
        })?;
        if remark.phase.is_none() && remark.operations_per_second.is_none() {
            return Err(format!(
                "{expected}, or a remark, is expected: there is no `time`, `phase` or `operations_per_second`"
            ));
        }
        self.phases.extend(remark.phase.map(|phase| (self.readings.len(), phase)));
        if let Some(rate) = remark.operations_per_second {
            figure("operations_per_second", rate)?;
            self.rates.push((self.phases.len(), rate));
        }
        Ok(())
    }
}

/// Whether it is, or was to be, a reading.
fn has_time(line: &str) -> bool {
    line.split("\"time\"").skip(1).any(|rest| rest.trim_start().starts_with(':'))
}

/// Errors: a device has no such figures.
fn check(reading: &Reading) -> Result<(), String> {
    let (time, used, capacity) = (reading.time, reading.used_bytes, reading.capacity_bytes);
    if !(0.0..=TIME_MAX).contains(&time) {
        return Err(format!("time is {time:e}; expected 0 to {TIME_MAX:e} seconds since 1970"));
    }
    if capacity == 0 {
        return Err("capacity_bytes is 0; expected the bytes of a namespace".to_owned());
    }
    if used > capacity {
        return Err(format!("used_bytes is {used}; expected at most capacity_bytes, {capacity}"));
    }
    Ok(())
}

fn figure(name: &str, value: f64) -> Result<(), String> {
    if (0.0..=FIGURE_MAX).contains(&value) {
        return Ok(());
    }
    Err(format!("{name} is {value:e}; expected 0 to {FIGURE_MAX:e}"))
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

impl SimulatedRow {
    fn check(&self) -> Result<(), String> {
        figure("util", self.util)?;
        figure("plateau", self.plateau)?;
        self.samples.iter().try_for_each(|at| {
            figure("device_writes", at.device_writes)?;
            figure("write_amplification", at.write_amplification)
        })
    }
}

impl Simulated {
    /// Errors: it is not a simulation with placement and without, or has figures that are none.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let simulated: Self = serde_json::from_str(text)
            .map_err(|e| format!("what `unvme sim --fdp both --json` writes is expected: {e}"))?;
        for fdp in [true, false] {
            if simulated.row(fdp).is_none() {
                let which = if fdp { "with" } else { "without" };
                return Err(format!("there is no row {which} FDP; `unvme sim --fdp both` has both"));
            }
        }
        simulated.rows.iter().try_for_each(SimulatedRow::check)?;
        Ok(simulated)
    }

    /// The first row with FDP, or without.
    pub(super) fn row(&self, fdp: bool) -> Option<&SimulatedRow> {
        self.rows.iter().find(|row| row.fdp == fdp)
    }
}

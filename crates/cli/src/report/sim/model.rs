//! The data of a simulation.

use serde::Serialize;

/// Parts that a run is divided into for its table.
pub(crate) const TWELFTHS: usize = 12;
/// Points of a plot over the run, a multiple of [`TWELFTHS`].
pub(crate) const SAMPLES: usize = 8 * TWELFTHS;
/// Samples at the end of a run that make its plateau: a quarter.
pub(crate) const PLATEAU: usize = SAMPLES / 4;

/// Everything one invocation of `unvme sim` found out. Nothing in it depends on the computer or the time,
/// unless the clock was asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Simulation {
    /// Version of the tool that simulated.
    pub(crate) tool_version: String,
    /// What was done to the device.
    pub(crate) workload: Traffic,
    /// What the device is.
    pub(crate) device: Device,
    /// One row per utilisation and per FDP on or off, in the order asked for.
    pub(crate) rows: Vec<Row>,
}

/// What hosts do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Traffic {
    /// The word that was typed: `uniform`, `cachelib`, `trace`.
    pub(crate) name: String,
    /// In words.
    pub(crate) title: String,
    /// Names of its streams, by handle.
    pub(crate) streams: Vec<String>,
    /// Every page in use was written once before the first interval.
    pub(crate) prefilled: bool,
    /// Its parameters and their values.
    pub(crate) parameters: Vec<Parameter>,
    /// Seed of everything random.
    pub(crate) seed: u64,
}

/// A parameter and its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) value: String,
}

/// What is the same for all rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Device {
    /// Flash.
    pub(crate) physical_bytes: u64,
    /// What hosts see of it.
    pub(crate) exported_bytes: u64,
    /// Size of a reclaim unit.
    pub(crate) unit_bytes: u64,
    pub(crate) units: u32,
    pub(crate) groups: u16,
    /// `initially` or `persistently` isolated handles.
    pub(crate) isolation: &'static str,
    /// Which unit is reclaimed next.
    pub(crate) policy: String,
    /// Physical / exported - 1.
    pub(crate) overprovisioning: f64,
    /// How long the flash takes; `none` where time is not simulated.
    pub(crate) timing: String,
}

/// One run of the workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Share of the exported pages that the workload uses.
    pub(crate) util: f64,
    /// Whether streams have handles of their own.
    pub(crate) fdp: bool,
    /// Share of the exported pages that hold data at the end.
    pub(crate) mapped: f64,
    /// Units that are open, or kept free.
    pub(crate) reserve_units: u32,
    /// Overprovisioning without those.
    pub(crate) overprovisioning_effective: f64,
    /// Pages that the host wrote.
    pub(crate) host_pages: u64,
    /// Pages that were programmed: the host's and those that reclaim moved.
    pub(crate) media_pages: u64,
    pub(crate) erased_units: u64,
    /// Pages deallocated.
    pub(crate) trimmed_pages: u64,
    /// Programmed pages for each page of the host in each twelfth of the run.
    pub(crate) twelfths: Vec<f64>,
    /// The same in the last quarter of the run.
    pub(crate) plateau: f64,
    /// What analysis says it should be.
    pub(crate) theory: Option<Theory>,
    /// What others have measured or printed.
    pub(crate) published: Option<Published>,
    pub(crate) handles: Vec<Handle>,
    /// Latency of writes, when time was simulated.
    pub(crate) latency: Option<WriteLatency>,
    /// What the simulation itself took, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clock: Option<WallClock>,
    pub(crate) samples: Vec<Sample>,
}

/// The value of a formula.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Theory {
    /// With the overprovisioning as sold.
    pub(crate) value: f64,
    /// With what is left of it beside the reserve.
    pub(crate) with_reserve: f64,
    /// Which formula, and what it leaves out.
    pub(crate) formula: &'static str,
}

/// What others have measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Published {
    pub(crate) value: &'static str,
    pub(crate) source: &'static str,
}

/// What came through one reclaim unit handle, or through reclaim itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Handle {
    /// `None` for the units that reclaim has filled.
    pub(crate) handle: Option<u16>,
    /// The stream, or the streams, that it took.
    pub(crate) stream: String,
    pub(crate) host_pages: u64,
    /// Pages that reclaim moved out of units that it had filled.
    pub(crate) moved_pages: u64,
    /// Units that it had filled and that were erased.
    pub(crate) erased_units: u64,
}

/// Latency of writes of one page in microseconds of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct WriteLatency {
    /// Commands that the host kept outstanding.
    pub(crate) depth: u16,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p99_9_us: f64,
    pub(crate) p99_99_us: f64,
    pub(crate) max_us: f64,
}

/// What a row cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct WallClock {
    pub(crate) seconds: f64,
    /// Pages programmed, the host's and reclaim's, per second.
    pub(crate) media_pages_per_second: f64,
    /// Pages that the host wrote per second.
    pub(crate) host_pages_per_second: f64,
}

/// One interval of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// Its end: pages that the host has written, in multiples of the physical capacity.
    pub(crate) device_writes: f64,
    /// Its end in virtual time, when that was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
    /// Programmed pages for each page of the host within it.
    pub(crate) write_amplification: f64,
    /// Share of the exported pages that are mapped at its end.
    pub(crate) mapped: f64,
    /// Share of the units that are free at its end.
    pub(crate) free: f64,
}

impl Row {
    /// `80 %, FDP`.
    pub(crate) fn label(&self) -> String {
        format!("{} %, {}", percent(self.util), if self.fdp { "FDP" } else { "no FDP" })
    }

    /// The mapped share in percent, with a digit where it is not whole: `80`, `60.4`.
    pub(crate) fn mapped(&self) -> String {
        super::super::scale::trimmed(&format!("{:.1}", self.mapped * 100.0))
    }
}

/// A share in percent without the noise of its binary form.
pub(super) fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

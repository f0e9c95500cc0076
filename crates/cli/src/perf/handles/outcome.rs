//! What came of it, for people and for programs.

use serde::Serialize;

use crate::report::scale::NO_COMPLETIONS;
use crate::report::{DeviceIdentity, Distribution, Machine};

/// Everything that was found out.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) tool_version: String,
    pub(super) started: String,
    pub(super) command_line: Vec<String>,
    pub(super) machine: Machine,
    pub(super) device: DeviceIdentity,
    /// What each run was to take.
    pub(super) seconds: f64,
    /// What may be in flight while several handles are awake.
    pub(super) window_bytes: u64,
    pub(super) handles: Vec<Player>,
    pub(super) runs: Vec<Run>,
    pub(super) interrupted: bool,
}

/// A handle: what it is, and what it was to do.
#[derive(Debug, Serialize)]
pub(super) struct Player {
    pub(super) name: String,
    pub(super) pattern: String,
    pub(super) io_bytes: u64,
    pub(super) depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<u64>,
    pub(super) first_block: u64,
    pub(super) blocks: u64,
    pub(super) policies: String,
}

/// Some of them at once.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) handles: Vec<Figures>,
}

/// What one of them came to.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub(super) name: String,
    pub(super) iops: f64,
    pub(super) mib_per_second: f64,
    /// When a command completed.
    pub(super) latency_us_average: Option<f64>,
    pub(super) latency: Option<Distribution>,
    /// What its thread took of a processor, in percent.
    pub(super) cpu_percent: f64,
    /// Pages that were there, of those that were asked for, in percent; without a cache nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hit_percent: Option<f64>,
    pub(super) errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_failure: Option<String>,
}

impl Figures {
    /// A percentile of the latency in microseconds; `None` when no command completed.
    pub(super) fn percentile(&self, percent: f64) -> Option<f64> {
        let all = self.latency.iter().flat_map(|latency| &latency.percentiles);
        all.clone().find(|at| (at.percent - percent).abs() < 1e-9).map(|at| at.us)
    }
}

impl Outcome {
    /// The runs that a handle took part in, and what it came to.
    pub(super) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Run, &'a Figures)> + 'a {
        let own = move |run: &'a Run| run.handles.iter().find(|own| own.name == name).map(|own| (run, own));
        self.runs.iter().filter_map(own)
    }

    /// The handles of which no command completed, in words; `None` when some did of each.
    pub(super) fn stalled(&self) -> Option<String> {
        let all = self.runs.iter().flat_map(|run| run.handles.iter().map(move |own| (run, own)));
        let stalled = all.filter(|(_, own)| own.iops <= 0.0);
        let told: Vec<String> = stalled.map(|(run, own)| format!("{} of {}", own.name, run.name)).collect();
        (!told.is_empty()).then(|| format!("no command completed in the time measured: {}", told.join("; ")))
    }

    /// What the first one waits at most, of all but one in a hundred, in one sentence.
    pub(super) fn sentence(&self) -> String {
        let Some(first) = self.handles.first() else { return String::new() };
        let p99: Vec<(&str, Option<f64>)> =
            self.of(&first.name).map(|(run, own)| (run.name.as_str(), own.percentile(99.0))).collect();
        match p99.as_slice() {
            [] => format!("{}: nothing was measured.", first.name),
            [(_, None)] => format!("{}: no command completed.", first.name),
            [(_, Some(alone))] => format!("{}: {alone:.1} us at the 99th percentile.", first.name),
            [(_, alone), others @ ..] => {
                let none = || NO_COMPLETIONS.to_owned();
                let shown = |us: Option<f64>| us.map_or_else(none, |us| format!("{us:.1} us"));
                let times = |us: Option<f64>| match (us, alone.filter(|&alone| alone > 0.0)) {
                    (Some(us), Some(alone)) => format!(" ({:.1} times)", us / alone),
                    _ => String::new(),
                };
                let together: Vec<String> =
                    others.iter().map(|(name, us)| format!("{}{} {name}", shown(*us), times(*us))).collect();
                let alone = shown(*alone);
                format!("{}: {alone} at the 99th percentile alone, {}.", first.name, together.join(", "))
            }
        }
    }
}

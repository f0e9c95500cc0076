//! The whole result.

use serde::Serialize;
use unvme_advise::statistics::Spread;
use unvme_advise::{
    Assignment, Cell, Choice, ChoiceKind, Configuration, Cpus, Figures, Findings, Goal, Judged, Location,
    Noise, PerCore, Plan, Quantity, Topology, Worth, judge,
};
use unvme_guide::config::SsdType;

use crate::report::Machine;
use crate::report::scale::si;

/// Everything `unvme advise` found out.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    tool: &'static str,
    pub(super) tool_version: &'static str,
    pub(super) started: String,
    pub(super) command_line: Vec<String>,
    pub(super) machine: Machine,
    /// The directory with the copy of another machine.
    pub(super) other_machine: Option<String>,
    pub(super) topology: Topology,
    /// The devices that were given.
    pub(super) devices: Vec<DeviceFound>,
    /// Devices that could not be opened.
    pub(super) skipped: Vec<Skipped>,
    /// What is to be known of the figures.
    pub(super) notes: Vec<String>,
    /// NVMe drives, where no device was given.
    pub(super) drives_of_machine: Vec<Location>,
    pub(super) goal: Goal,
    pub(super) depth: u16,
    /// The namespace that was asked for.
    pub(super) nsid: Option<u32>,
    pub(super) io_bytes: u64,
    /// Whether figures are of this machine.
    pub(super) is_measured: bool,
    pub(super) cache_line: Option<CacheLine>,
    pub(super) plan: Plan,
    pub(super) figures: Vec<Figures>,
    /// The choices of the plan, judged; none where the figures are not complete.
    pub(super) judged: Vec<Vec<Judged>>,
    /// Why nothing follows.
    pub(super) noise: Option<Noise>,
    pub(super) advice: Option<Advice>,
    pub(super) interrupted: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct DeviceFound {
    #[serde(flatten)]
    pub(super) location: Location,
    pub(super) ssd_type: SsdType,
}

#[derive(Debug, Serialize)]
pub(super) struct Skipped {
    pub(super) name: String,
    pub(super) reason: String,
}

/// Round trips of a cache line in nanoseconds; `None` from a CPU to itself.
#[derive(Debug, Serialize)]
pub(super) struct CacheLine {
    pub(super) cpus: Vec<u32>,
    pub(super) round_trip_ns: Vec<Vec<Option<Spread>>>,
}

/// What to do.
#[derive(Debug, Serialize)]
pub(super) struct Advice {
    pub(super) findings: Findings,
    /// The devices on a core that were used.
    pub(super) per_core: PerCore,
    pub(super) polls: bool,
    /// Queues are synchronous.
    pub(super) is_synchronous: bool,
    pub(super) assignment: Assignment,
    pub(super) configurations: Vec<Configuration>,
    pub(super) taskset: String,
    pub(super) unit: Vec<String>,
    pub(super) frequency: Vec<String>,
    pub(super) interrupts: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Outcome {
    pub(super) fn new(
        command_line: Vec<String>,
        started: String,
        machine: Machine,
        topology: Topology,
    ) -> Self {
        Self {
            tool: "advise",
            tool_version: env!("CARGO_PKG_VERSION"),
            started,
            command_line,
            machine,
            other_machine: None,
            topology,
            devices: Vec::new(),
            skipped: Vec::new(),
            notes: Vec::new(),
            drives_of_machine: Vec::new(),
            goal: Goal::default(),
            depth: 0,
            nsid: None,
            io_bytes: 0,
            is_measured: false,
            cache_line: None,
            plan: Plan::default(),
            figures: Vec::new(),
            judged: Vec::new(),
            noise: None,
            advice: None,
            interrupted: false,
        }
    }

    /// Judges the choices of the plan.
    pub(super) fn judge(&mut self) {
        let all = self.plan.choices.iter().map(|choice| judge(&self.plan, &self.figures, choice));
        self.judged = all.collect::<Option<_>>().unwrap_or_default();
    }

    /// Choices with their figures.
    pub(super) fn choices(&self) -> impl Iterator<Item = (&Choice, &[Judged])> {
        self.plan.choices.iter().zip(self.judged.iter().map(Vec::as_slice))
    }

    pub(super) fn configurations(&self) -> &[Configuration] {
        self.advice.as_ref().map_or(&[], |advice| &advice.configurations)
    }

    /// The notes in one line.
    pub(super) fn notes_line(&self) -> String {
        self.advice.as_ref().map_or_else(String::new, |advice| advice.notes.join("; "))
    }

    /// What a cell shows, if it was measured.
    pub(super) fn cell(&self, cell: &Cell) -> Option<Spread> {
        let case = cell.case?;
        let devices = self.plan.cases.get(case)?.devices() as f64;
        self.figures.get(case)?.spread(|sample| match cell.quantity {
            Quantity::KiopsPerDevice => Some(sample.iops / devices / 1e3),
            Quantity::P9999 => sample.p9999_us,
            Quantity::Max => sample.max_us,
        })
    }

    /// The placement of one device with the highest rate: its CPUs, each with a thread that polls, and the
    /// rate.
    pub(super) fn best(&self) -> Option<(Cpus, f64)> {
        let polled = |kind: ChoiceKind| matches!(kind, ChoiceKind::Cpu | ChoiceKind::Queues);
        let all = self.choices().filter(|(choice, _)| polled(choice.kind));
        let rows = all.flat_map(|(choice, judged)| choice.alternatives.iter().zip(judged));
        let rows = rows.filter(|(own, _)| self.plan.leaves_cpus(own.case));
        let best = rows.max_by(|a, b| a.1.iops.median.total_cmp(&b.1.iops.median))?;
        let layout = &self.plan.cases.get(best.0.case)?.layout;
        Some((layout.iter().map(|placed| placed.submit).collect(), best.1.iops.median))
    }

    /// The command that measures the best placement by itself.
    pub(super) fn best_command(&self) -> Option<String> {
        let (cpus, _) = self.best()?;
        let device = &self.devices.first()?.location.name;
        let size = if self.io_bytes == 4096 { String::new() } else { format!(" -o {}", self.io_bytes) };
        let nsid = self.nsid.map_or_else(String::new, |nsid| format!(" -n {nsid}"));
        Some(format!("unvme perf -r {device}{nsid} -c {cpus} -q {}{size}", self.depth))
    }

    /// The result in one sentence.
    pub(super) fn sentence(&self) -> String {
        if self.interrupted {
            return "Interrupted: nothing is advised from a part of the measurements".to_owned();
        }
        if let Some(noise) = &self.noise {
            return format!("No advice from this run: {}", noise.reason);
        }
        let of = match self.other_machine {
            Some(_) => "By the rules of the guide, for another machine",
            None if !self.is_measured => "By the rules of the guide, not measured",
            None => "Measured",
        };
        match (&self.advice, self.best()) {
            (Some(advice), Some((cpus, iops))) => format!(
                "{of}: {} IOPS of one device at best, polled on {}; {} for {}",
                si(iops),
                on(&cpus),
                on(&advice.assignment.cpus()),
                crate::count::count(self.devices.len() as u64, "device")
            ),
            (Some(advice), None) => format!("{of}: {}", on(&advice.assignment.cpus())),
            (None, _) => of.to_owned(),
        }
    }
}

/// CPUs in words.
pub(super) fn on(cpus: &Cpus) -> String {
    format!("CPU{} {cpus}", if cpus.len() == 1 { "" } else { "s" })
}

/// What an alternative is worth, for people.
pub(super) fn worth(worth: &Worth) -> String {
    let percent = |ratio: f64| format!("{:+.0} %", (ratio - 1.0) * 100.0);
    match worth {
        Worth::Base => "-".to_owned(),
        Worth::Times { ratio, interval: Some((low, high)) } => {
            format!("{} ({} to {})", percent(*ratio), percent(*low), percent(*high))
        }
        Worth::Times { ratio, interval: None } => percent(*ratio),
        Worth::None => "no difference on this machine".to_owned(),
        Worth::TooFew => "too few measurements to tell".to_owned(),
    }
}

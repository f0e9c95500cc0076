//! The data of a performance run.

use crate::count::count;
use std::fmt;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::latency::Latency;
use super::repetitions::{PointSpread, Repetition};
use super::schedule::Schedule;
use super::shape::{CommandFigures, CpuUse, PairFigures, Shape};
use super::steady::SteadyState;

/// Placement identifiers that a line names; a namespace of a drive has fewer.
const IDENTIFIERS_SHOWN: usize = 16;

/// Everything one invocation of `unvme perf` found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Version of the tool that measured.
    pub(crate) tool_version: String,
    /// When the run began, RFC 3339.
    pub(crate) started: String,
    /// The arguments as typed, program first.
    pub(crate) command_line: Vec<String>,
    /// Where it ran.
    pub(crate) machine: Machine,
    /// The namespaces that were measured.
    pub(crate) devices: Vec<DeviceIdentity>,
    /// What was asked of them.
    pub(crate) workload: Workload,
    /// One point per combination of thread count and depth, in the order measured.
    pub(crate) points: Vec<Point>,
    /// What the measuring loop itself costs, when it was measured.
    pub(crate) harness: Option<HarnessCost>,
    /// Reads of data that nobody is known to have written, where data was verified: they could not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unjudged_reads: Option<u64>,
    /// A signal ended it early: the last point is shorter than asked for, and others may be missing.
    #[serde(default)]
    pub(crate) interrupted: bool,
}

/// The computer a run took place on. Its name and address are left out on purpose: reports are passed around.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Model name of the processor.
    pub(crate) cpu_model: String,
    /// Logical processors that the process may use; 0 where nothing is known of the machine.
    pub(crate) cores: u32,
    /// Installed memory.
    pub(crate) memory_bytes: u64,
    /// Kernel name and release.
    pub(crate) kernel: String,
    /// Memory reserved as huge pages, 0 for none.
    pub(crate) hugepages_bytes: u64,
}

/// One namespace of one controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceIdentity {
    /// The name it was opened by, e.g. `mem:block:1G`.
    pub(crate) name: String,
    /// How it is reached, a short word in capitals: `VIRT`, `PCIE`, `VFIO-USER`, `TCP`.
    pub(crate) transport: String,
    /// Model Number, trailing blanks removed.
    pub(crate) model: String,
    /// Serial Number, trailing blanks removed.
    pub(crate) serial: String,
    /// Firmware Revision, trailing blanks removed.
    pub(crate) firmware: String,
    /// Namespace Identifier.
    pub(crate) nsid: u32,
    /// Logical block size; 0 where there are no blocks but keys and values.
    pub(crate) block_bytes: u32,
    /// Namespace size (NSZE in bytes); 0 where nothing but name and transport is known.
    pub(crate) capacity_bytes: u64,
}

impl DeviceIdentity {
    /// The label of this device's rows: `VIRT (mem:block:1G) NSID 1`.
    pub(crate) fn label(&self) -> String {
        format!("{} ({}) NSID {}", self.transport, self.name, self.nsid)
    }
}

/// What each thread asked of each device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Workload {
    /// The word given to `-w`: `read`, `write`, `randread`, `randwrite`, `rw` or `randrw`.
    pub(crate) pattern: String,
    /// Size of one command's data; of the largest where they differ.
    pub(crate) io_bytes: u64,
    /// Share of reads, 0 to 100.
    pub(crate) read_percent: u32,
    /// How addresses are drawn: `uniform`, `zipf:` and the exponent, or `hot:` and the percentages of the
    /// range and of the commands that it gets.
    pub(crate) distribution: String,
    /// Duration of each point; of all of them where a number of commands was asked for; 0 where an amount of
    /// data was.
    pub(crate) seconds: f64,
    /// The data that each point moves, where that and not a duration ends it: `10G`, or `200%` of what is in
    /// use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) amount: Option<String>,
    /// Whether what was read was compared with what had been written.
    pub(crate) verify: bool,
    /// Commands that became due per second, over all threads, if that was set.
    pub(crate) rate_limit_iops: Option<u64>,
    /// How they were spread over time: `fixed` or `poisson`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arrivals: Option<String>,
    /// Seconds were those of the device's model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) virtual_time: bool,
    /// Commands of each thread, where their number and not a duration was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commands: Option<u64>,
    /// Where writes went, when that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) placement: Option<PlacedWrites>,
    /// How commands differ, where they do.
    #[serde(default, flatten)]
    pub(crate) shape: Shape,
}

/// The placement identifiers that writes carried (Flexible Data Placement).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlacedWrites {
    /// The identifiers, in the order given.
    pub(crate) identifiers: Vec<u16>,
    /// How a write got one of them: `round-robin` or `random`.
    pub(crate) select: String,
}

impl fmt::Display for PlacedWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = self.identifiers.iter().take(IDENTIFIERS_SHOWN).map(ToString::to_string);
        let listed: Vec<String> = listed.collect();
        let noun = if self.identifiers.len() == 1 { "identifier" } else { "identifiers" };
        write!(f, "placement {noun} {}", listed.join(", "))?;
        match self.identifiers.len() {
            1 => Ok(()),
            count if count > IDENTIFIERS_SHOWN => {
                write!(f, " and {} more, {}", count - IDENTIFIERS_SHOWN, self.select)
            }
            _ => write!(f, ", {}", self.select),
        }
    }
}

/// The measurement of one thread count at one depth, or of one phase of a program that has several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// The phase, where phases and not thread counts and depths tell points apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<String>,
    /// Settings that tell it from the others of its phase or run, in the order asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) settings: Vec<Setting>,
    /// What was asked of the devices, where that is not what the run says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workload: Option<Workload>,
    /// Each of several jobs that ran at once; all figures above and below are of all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) jobs: Vec<JobFigures>,
    /// Threads, each with queue pairs of its own.
    pub(crate) threads: u32,
    /// Commands that each thread keeps outstanding on each device.
    pub(crate) depth: u32,
    /// One row per device and core.
    pub(crate) rows: Vec<Row>,
    /// All rows together; see [`Row::total`].
    pub(crate) total: Row,
    /// Latency distribution over all rows, when it was recorded.
    pub(crate) latency: Option<Latency>,
    /// How the rate that was set was kept; all other latencies are from when a command was due, then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<Schedule>,
    /// The rate over time, all rows together.
    pub(crate) series: Vec<Sample>,
    /// Bytes that the flash of virtual SSDs in this process has written for each byte of the host, from the
    /// first command of the point to its last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) write_amplification: Option<f64>,
    /// What the threads took of the processor, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<CpuUse>,
    /// Of pairs, where those were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pairs: Option<PairFigures>,
    /// Deallocations, where there were to be some; they are in no other figure but that of failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trims: Option<CommandFigures>,
    /// Flushes, the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) flushes: Option<CommandFigures>,
    /// Each measurement in order, where there were several: the figures above are then those of the one with
    /// the median rate, and failures those of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) repetitions: Vec<Repetition>,
    /// How far the repetitions are apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spread: Option<PointSpread>,
    /// Whether it became steady, where it was measured in rounds until it would: its repetitions are the
    /// last rounds, then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) steady: Option<SteadyState>,
}

/// A setting of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// The option without its dashes: `io-size`.
    pub(crate) name: String,
    /// Its value as typed: `4K`.
    pub(crate) value: String,
}

/// One of several jobs that ran at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobFigures {
    pub(crate) name: String,
    pub(crate) threads: u32,
    pub(crate) depth: u32,
    pub(crate) workload: Workload,
    /// All of its devices and cores.
    pub(crate) total: Row,
    pub(crate) latency: Option<Latency>,
}

/// Figures of one device on one core, or of all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The device, see [`DeviceIdentity::label`]; `Total` for a sum.
    pub(crate) label: String,
    /// The core, `None` for a sum.
    pub(crate) core: Option<u32>,
    /// Completed commands per second.
    pub(crate) iops: f64,
    /// Data moved per second.
    pub(crate) mib_per_second: f64,
    /// Mean latency, when a command completed.
    pub(crate) latency_us_average: Option<f64>,
    /// Shortest latency, when a command completed.
    pub(crate) latency_us_min: Option<f64>,
    /// Longest latency, when a command completed.
    pub(crate) latency_us_max: Option<f64>,
    /// Commands that completed with an error status or not at all.
    pub(crate) errors: u64,
    /// Reads whose data was not what had been written.
    pub(crate) miscompares: u64,
}

/// What turns counts into the rates of a [`Row`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowRates {
    /// Measured time; must be above 0.
    pub(crate) seconds: f64,
    /// Data that the commands of the histogram moved.
    pub(crate) bytes: u64,
    /// Commands that failed; they are not in the histogram.
    pub(crate) errors: u64,
    /// Reads whose data was wrong; they are in the histogram.
    pub(crate) miscompares: u64,
}

impl Point {
    /// Rows of so many threads with so many commands each, and nothing else that is known.
    pub(crate) fn of_rows(threads: u32, depth: u32, rows: Vec<Row>) -> Self {
        Self {
            phase: None,
            settings: Vec::new(),
            workload: None,
            jobs: Vec::new(),
            threads,
            depth,
            total: Row::total(&rows),
            rows,
            latency: None,
            schedule: None,
            series: Vec::new(),
            write_amplification: None,
            cpu: None,
            pairs: None,
            trims: None,
            flushes: None,
            repetitions: Vec::new(),
            spread: None,
            steady: None,
        }
    }
}

impl Row {
    /// A row from a histogram that holds the latency of every completed command in nanoseconds.
    pub(crate) fn from_histogram_ns(label: String, core: u32, ns: &Histogram<u64>, rates: RowRates) -> Self {
        assert!(rates.seconds > 0.0, "a rate needs a duration");
        let iops = ns.len() as f64 / rates.seconds;
        let us = |ns_of: fn(&Histogram<u64>) -> f64| (!ns.is_empty()).then(|| ns_of(ns) / 1e3);
        Self {
            label,
            core: Some(core),
            iops,
            mib_per_second: rates.bytes as f64 / rates.seconds / f64::from(1 << 20),
            latency_us_average: us(Histogram::mean),
            latency_us_min: us(|ns| ns.min() as f64),
            latency_us_max: us(|ns| ns.max() as f64),
            errors: rates.errors,
            miscompares: rates.miscompares,
        }
    }

    /// The sum of `rows`: rates and counts add up, the average is weighted by rate, the extremes are those of
    /// the rows in which something completed.
    pub(crate) fn total(rows: &[Self]) -> Self {
        let iops: f64 = rows.iter().map(|row| row.iops).sum();
        let active = || rows.iter().filter(|row| row.iops > 0.0);
        // The rate of the rows whose average is known, and the sum of both.
        let averages = active().filter_map(|row| Some((row.iops, row.latency_us_average?)));
        let add = |(rate, sum): (f64, f64), (own, us): (f64, f64)| (rate + own, sum + own * us);
        let (rate, weighted) = averages.fold((0.0, 0.0), add);
        Self {
            label: "Total".to_owned(),
            core: None,
            iops,
            mib_per_second: rows.iter().map(|row| row.mib_per_second).sum(),
            latency_us_average: (rate > 0.0).then(|| weighted / rate),
            latency_us_min: active().filter_map(|row| row.latency_us_min).reduce(f64::min),
            latency_us_max: active().filter_map(|row| row.latency_us_max).reduce(f64::max),
            errors: rows.iter().map(|row| row.errors).sum(),
            miscompares: rows.iter().map(|row| row.miscompares).sum(),
        }
    }

    fn is_finite(&self) -> bool {
        let latencies = [self.latency_us_average, self.latency_us_min, self.latency_us_max];
        let mut figures = [self.iops, self.mib_per_second].into_iter().chain(latencies.into_iter().flatten());
        figures.all(f64::is_finite)
    }
}

/// The rate in one interval of a point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// End of the interval, from the start of the point.
    pub(crate) second: f64,
    /// Completed commands per second in the interval.
    pub(crate) iops: f64,
    /// Mean latency in the interval, when something completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) latency_us_average: Option<f64>,
    /// Longest latency in the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) latency_us_max: Option<f64>,
    /// Bytes that the flash of virtual SSDs has written in it for each byte of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) write_amplification: Option<f64>,
}

impl Sample {
    /// Of which no more is known.
    pub(crate) fn of_rate(second: f64, iops: f64) -> Self {
        Self { second, iops, latency_us_average: None, latency_us_max: None, write_amplification: None }
    }

    fn is_finite(&self) -> bool {
        let latency = self.latency_us_average.iter().chain(&self.latency_us_max);
        let mut others = latency.chain(&self.write_amplification);
        self.second.is_finite() && self.iops.is_finite() && others.all(|figure| figure.is_finite())
    }
}

/// The measuring loop with no device behind it: address generation, clock and bookkeeping.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HarnessCost {
    /// Commands that the loop pretended to have outstanding, as at the peak.
    pub(crate) depth: u32,
    /// Iterations per second of one thread.
    pub(crate) ops_per_second: f64,
    /// The same as time per iteration.
    pub(crate) ns_per_op: f64,
}

impl Run {
    /// What was asked at a point.
    pub(crate) fn workload_of<'a>(&'a self, point: &'a Point) -> &'a Workload {
        point.workload.as_ref().unwrap_or(&self.workload)
    }

    /// Name of the first part that holds a NaN or an infinity.
    pub(super) fn non_finite(&self) -> Option<String> {
        if let Some(cost) = self.harness
            && !(cost.ops_per_second.is_finite() && cost.ns_per_op.is_finite())
        {
            return Some("the harness cost".to_owned());
        }
        let broken = self.points.iter().find(|point| {
            let rows = point.rows.iter().chain([&point.total]).all(Row::is_finite);
            let series = point.series.iter().all(Sample::is_finite);
            let latency = point.latency.as_ref().is_none_or(Latency::is_finite);
            let repetitions = point.repetitions.iter().all(Repetition::is_finite)
                && point.spread.as_ref().is_none_or(PointSpread::is_finite);
            let jobs = point
                .jobs
                .iter()
                .all(|job| job.total.is_finite() && job.latency.as_ref().is_none_or(Latency::is_finite));
            let steady = point.steady.as_ref().is_none_or(SteadyState::is_finite);
            let schedule = point.schedule.as_ref().is_none_or(Schedule::is_finite);
            let asides = point.asides().iter().all(|(_, figures)| figures.is_finite());
            let cpu = point.cpu.as_ref().is_none_or(CpuUse::is_finite);
            !(rows && series && latency && repetitions && schedule && jobs && steady && asides && cpu)
        })?;
        Some(match &broken.phase {
            Some(phase) => format!("the phase {phase}"),
            None => format!("the point of {} at depth {}", count(broken.threads, "thread"), broken.depth),
        })
    }
}

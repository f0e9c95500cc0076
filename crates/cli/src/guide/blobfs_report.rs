//! What the calls of `blobfs_perf` took, and the report of it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use unvme::{Block, Device};

use super::document::command_line;
use super::record::Series;
use crate::perf;
use crate::report::{DeviceIdentity, Latency, Point, Row, RowRates, Run, Sample, Shape, Workload};

/// Points of the rate over time.
const SERIES_POINTS: usize = 80;

/// Calls that a session has made. What it does between them, to make data and to look at them, does not
/// count.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    pub(super) bytes: u64,
    busy: Duration,
    ns: Histogram<u64>,
    series: Series,
}

impl Calls {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { bytes: 0, busy: Duration::ZERO, ns: perf::histogram()?, series: Series::default() })
    }

    /// A call that moves so many bytes.
    pub(super) fn time<R>(&mut self, bytes: usize, call: impl FnOnce() -> unvme_fs::Result<R>) -> Result<R> {
        let start = Instant::now();
        let done = call()?;
        let took = start.elapsed();
        self.busy += took;
        self.bytes += bytes as u64;
        self.ns.saturating_record(took.as_nanos() as u64);
        self.series.add(self.busy);
        Ok(done)
    }

    /// A call that moves nothing: what was moved before is there afterwards.
    pub(super) fn time_end<R>(&mut self, call: impl FnOnce() -> Result<R>) -> Result<R> {
        let start = Instant::now();
        let done = call()?;
        self.busy += start.elapsed();
        Ok(done)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.busy.as_secs_f64().max(1e-9)
    }
}

/// What a session did in a phase.
pub(super) struct SessionOf<'a> {
    pub(super) file: &'a str,
    pub(super) cpu: u32,
    pub(super) miscompares: u64,
    pub(super) calls: &'a Calls,
}

/// A phase: what all sessions did at the same time.
pub(super) struct PhaseOf<'a> {
    pub(super) name: &'a str,
    pub(super) sessions: Vec<SessionOf<'a>>,
}

/// What was measured.
pub(super) struct About<'a> {
    /// When it began, RFC 3339.
    pub(super) started: String,
    pub(super) device: (&'a Device, &'a Block),
    pub(super) block_bytes: u64,
    pub(super) is_verified: bool,
}

/// What a report is drawn from.
pub(super) fn run(about: &About<'_>, phases: &[PhaseOf<'_>]) -> Result<Run> {
    let (device, block) = about.device;
    let identity = device.identity();
    let names: Vec<&str> = phases.iter().map(|phase| phase.name).collect();
    let longest =
        |phase: &PhaseOf<'_>| phase.sessions.iter().map(|it| it.calls.seconds()).fold(0.0, f64::max);
    let calls = phases.iter().flat_map(|phase| &phase.sessions).map(|it| it.calls.ns.len()).max();
    Ok(Run {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: about.started.clone(),
        command_line: command_line(),
        machine: perf::machine(),
        devices: vec![DeviceIdentity {
            name: device.name().to_owned(),
            transport: perf::transport(device.transport()).to_owned(),
            model: identity.model.clone(),
            serial: identity.serial.clone(),
            firmware: identity.firmware.clone(),
            nsid: block.nsid().0,
            block_bytes: block.block_bytes(),
            capacity_bytes: block.bytes(),
        }],
        workload: Workload {
            pattern: names.join(", "),
            io_bytes: about.block_bytes,
            read_percent: 0,
            distribution: "files, one of each session".to_owned(),
            seconds: phases.iter().map(longest).sum(),
            verify: about.is_verified,
            rate_limit_iops: None,
            arrivals: None,
            virtual_time: false,
            amount: None,
            commands: calls,
            placement: None,
            shape: Shape::default(),
        },
        points: phases.iter().map(point).collect::<Result<_>>()?,
        harness: None,
        unjudged_reads: None,
        interrupted: false,
    })
}

fn point(phase: &PhaseOf<'_>) -> Result<Point> {
    let mut all = perf::histogram()?;
    let mut series = Series::default();
    let mut longest = Duration::ZERO;
    let mut rows = Vec::new();
    for session in &phase.sessions {
        let calls = session.calls;
        all.add(&calls.ns).context("add up latencies")?;
        series.merge(&calls.series);
        longest = longest.max(calls.busy);
        let rates = RowRates {
            seconds: calls.seconds(),
            bytes: calls.bytes,
            errors: 0,
            miscompares: session.miscompares,
        };
        rows.push(Row::from_histogram_ns(session.file.to_owned(), session.cpu, &calls.ns, rates));
    }
    let rates = series.rates(longest, SERIES_POINTS);
    Ok(Point {
        phase: Some(phase.name.to_owned()),
        latency: Latency::from_histogram_ns(&all),
        series: rates.into_iter().map(|(second, iops)| Sample::of_rate(second, iops)).collect(),
        ..Point::of_rows(phase.sessions.len() as u32, 1, rows)
    })
}

//! The whole result of a program: for programs as JSON, and as the run that a report is drawn from.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use unvme_guide::config::SsdType;
use unvme_guide::latency::{LatencyStat, PERCENTS};
use unvme_guide::session::{Member, QueueKind, Session};

use super::about::Use;
use super::phase::{LaneOutcome, Phase};
use super::record::{Kind, Record};
use crate::exit::Failed;
use crate::output::Format;
use crate::perf;
use crate::report::{
    self, DeviceIdentity, Latency, Machine, Point, Row, RowRates, Run, Sample, Shape, Workload,
};

/// Points of the rate over time.
const SERIES_POINTS: usize = 80;

/// Everything a program found out.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    tool: &'static str,
    tool_version: &'static str,
    started: String,
    command_line: Vec<String>,
    machine: Machine,
    config: serde_json::Value,
    warnings: Vec<String>,
    devices: Vec<DeviceFound>,
    value_sizes: Vec<u32>,
    verified: bool,
    phases: Vec<PhaseFound>,
    success: bool,
    failure: Option<String>,
    #[serde(skip)]
    run: Run,
}

/// A device, and how full it was.
#[derive(Debug, Serialize)]
struct DeviceFound {
    name: String,
    ssd_type: SsdType,
    model: String,
    serial: String,
    firmware: String,
    before: Use,
    after: Use,
}

#[derive(Debug, Serialize)]
struct PhaseFound {
    name: String,
    test: u32,
    elapsed_us: u64,
    ops_per_second: f64,
    bytes_per_second: f64,
    operations: u64,
    missing: u64,
    miscompares: u64,
    failures: u64,
    first_failure: Option<String>,
    kinds: BTreeMap<&'static str, KindFound>,
    threads: Vec<ThreadFound>,
}

#[derive(Debug, Serialize)]
struct KindFound {
    operations: u64,
    latency_us: LatencyFound,
}

#[derive(Debug, Serialize)]
struct ThreadFound {
    device: String,
    cpu: u32,
    queue: &'static str,
    queue_depth: u32,
    elapsed_us: u64,
    operations: u64,
    ops_per_second: f64,
    submitted: u64,
    completed: u64,
    latency_us: LatencyFound,
}

#[derive(Debug, Serialize)]
struct LatencyFound {
    samples: u64,
    /// `null` without samples, as are those that follow.
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    percentiles: Vec<PercentileFound>,
}

#[derive(Debug, Serialize)]
struct PercentileFound {
    percent: f64,
    us: f64,
}

impl LatencyFound {
    fn of(stat: &LatencyStat) -> Self {
        let percentiles =
            PERCENTS.iter().map(|&percent| PercentileFound { percent, us: stat.percentile(percent) });
        let is_empty = stat.samples() == 0;
        let figure = |us: f64| (!is_empty).then_some(us);
        Self {
            samples: stat.samples(),
            min: figure(stat.min()),
            max: figure(stat.max()),
            mean: figure(stat.mean()),
            percentiles: if is_empty { Vec::new() } else { percentiles.collect() },
        }
    }
}

/// What a document is made of.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    /// Name of the program.
    pub(crate) tool: &'static str,
    /// When it began, RFC 3339.
    pub(crate) started: String,
    /// The session it used.
    pub(crate) session: &'a Session,
    /// What was said and is not followed.
    pub(crate) warnings: Vec<String>,
    pub(crate) value_sizes: Vec<u32>,
    /// Order of the keys, in words.
    pub(crate) order: String,
    /// Values were compared with what had been stored.
    pub(crate) verified: bool,
    /// Operations of each thread in a phase.
    pub(crate) commands: u64,
    /// How full each device was before.
    pub(crate) before: Vec<Use>,
    /// How full each device was after.
    pub(crate) after: Vec<Use>,
    /// What was done.
    pub(crate) phases: &'a [Phase],
    /// What went wrong, if anything.
    pub(crate) failure: Option<String>,
}

impl Document {
    pub(crate) fn new(findings: Findings<'_>) -> Result<Self> {
        let Findings { tool, session, phases, .. } = findings;
        let found = phases.iter().map(phase_found);
        let phases_found = found.collect::<Result<Vec<_>>>()?;
        let run = run(&findings)?;
        let uses = findings.before.iter().zip(&findings.after);
        let devices = session.members().iter().zip(uses).map(|(member, (&before, &after))| {
            let identity = member.device().identity();
            DeviceFound {
                name: member.name().to_owned(),
                ssd_type: member.ssd_type(),
                model: identity.model.clone(),
                serial: identity.serial.clone(),
                firmware: identity.firmware.clone(),
                before,
                after,
            }
        });
        Ok(Self {
            tool,
            tool_version: env!("CARGO_PKG_VERSION"),
            started: findings.started.clone(),
            command_line: run.command_line.clone(),
            machine: run.machine.clone(),
            config: serde_json::to_value(session.config()).context("describe the configuration")?,
            warnings: findings.warnings,
            devices: devices.collect(),
            value_sizes: findings.value_sizes,
            verified: findings.verified,
            phases: phases_found,
            success: findings.failure.is_none(),
            failure: findings.failure,
            run,
        })
    }

    /// Ends a program: writes the report, shows `shown` when the result is to be JSON, and fails as the test
    /// did.
    pub(crate) fn finish(&self, report: Option<&Path>, form: Format, shown: &impl Serialize) -> Result<()> {
        // The report first, as the reader of the output may go away.
        let saved = self.save_report(report);
        if form == Format::Json {
            form.show(shown, |_| Ok(()))?;
        }
        saved?;
        self.failure.clone().map_or(Ok(()), |failure| Err(Failed(failure).into()))
    }

    /// Writes the report, if there is to be one.
    pub(crate) fn save_report(&self, path: Option<&Path>) -> Result<()> {
        perf::save(path, |out| report::html::write(&self.run, out))
    }
}

/// The words that were typed, the program by its name alone.
pub(crate) fn command_line() -> Vec<String> {
    let mut words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(program) = words.first_mut()
        && let Some(name) = Path::new(program.as_str()).file_name()
    {
        *program = name.to_string_lossy().into_owned();
    }
    words
}

/// Bytes of the values that operations moved.
fn moved_bytes(record: &Record) -> u64 {
    record.tally(Kind::Store).value_bytes + record.tally(Kind::Retrieve).value_bytes
}

fn phase_found(phase: &Phase) -> Result<PhaseFound> {
    let record = phase.record()?;
    let kinds = Kind::ALL.into_iter().filter(|&kind| record.tally(kind).count() > 0).map(|kind| {
        let tally = record.tally(kind);
        (kind.name(), KindFound { operations: tally.count(), latency_us: LatencyFound::of(&tally.stat) })
    });
    Ok(PhaseFound {
        name: phase.name.clone(),
        test: phase.test,
        elapsed_us: phase.elapsed().as_micros() as u64,
        ops_per_second: phase.ops_per_second(),
        bytes_per_second: moved_bytes(&record) as f64 / phase.elapsed().as_secs_f64().max(1e-6),
        operations: record.operations(),
        missing: record.missing,
        miscompares: record.miscompares,
        failures: record.failures,
        first_failure: record.first_failure.clone(),
        kinds: kinds.collect(),
        threads: phase.lanes.iter().map(thread_found).collect(),
    })
}

fn thread_found(lane: &LaneOutcome) -> ThreadFound {
    let record = &lane.outcome.record;
    ThreadFound {
        device: lane.device.clone(),
        cpu: lane.cpu,
        queue: match lane.queue {
            QueueKind::Sync => "sync",
            QueueKind::Async => "async",
        },
        queue_depth: lane.depth,
        elapsed_us: lane.outcome.elapsed.as_micros() as u64,
        operations: record.operations(),
        ops_per_second: lane.ops_per_second(),
        submitted: record.submitted,
        completed: record.completed,
        latency_us: LatencyFound::of(&record.stat()),
    }
}

/// What a report is drawn from.
fn run(findings: &Findings<'_>) -> Result<Run> {
    let names: Vec<&str> = findings.phases.iter().map(|phase| phase.name.as_str()).collect();
    let io_bytes = findings.value_sizes.iter().max().copied().unwrap_or(0);
    let tests = findings.phases.iter().map(|phase| phase.test).max().unwrap_or(0);
    let point = |phase| point(phase, tests > 0);
    Ok(Run {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: findings.started.clone(),
        command_line: command_line(),
        machine: perf::machine(),
        devices: findings.session.members().iter().map(|member| identity(member)).collect(),
        workload: Workload {
            pattern: if tests > 0 { findings.tool.to_owned() } else { names.join(", ") },
            io_bytes: io_bytes.into(),
            read_percent: 0,
            distribution: findings.order.clone(),
            seconds: findings.phases.iter().map(|phase| phase.elapsed().as_secs_f64()).sum(),
            verify: findings.verified,
            rate_limit_iops: None,
            arrivals: None,
            virtual_time: false,
            amount: None,
            commands: Some(findings.commands),
            placement: None,
            shape: Shape::default(),
        },
        points: findings.phases.iter().map(point).collect::<Result<_>>()?,
        harness: None,
        unjudged_reads: None,
        interrupted: false,
    })
}

fn identity(member: &Member) -> DeviceIdentity {
    let device = member.device();
    let identity = device.identity();
    DeviceIdentity {
        name: member.name().to_owned(),
        transport: perf::transport(device.transport()).to_owned(),
        model: identity.model.clone(),
        serial: identity.serial.clone(),
        firmware: identity.firmware.clone(),
        nsid: member.nsid().0,
        block_bytes: if member.ssd_type() == SsdType::Kv { 0 } else { member.sector_bytes() },
        capacity_bytes: member.total_bytes(),
    }
}

fn point(phase: &Phase, numbered: bool) -> Result<Point> {
    let record = phase.record()?;
    let rows: Vec<Row> = phase.lanes.iter().map(row).collect::<Result<_>>()?;
    let total = total(&rows, phase, &record);
    let store = &record.tally(Kind::Store).ns;
    let retrieve = &record.tally(Kind::Retrieve).ns;
    let mut latency = Latency::from_histogram_ns(&all_kinds(&record)?);
    if let Some(latency) = latency.as_mut().filter(|_| !store.is_empty() && !retrieve.is_empty()) {
        let mixed = Latency::from_read_and_write_ns(retrieve, store);
        (latency.read, latency.write) = mixed.map_or((None, None), |mixed| (mixed.read, mixed.write));
    }
    let rates = record.series.rates(phase.elapsed(), SERIES_POINTS);
    let depth = phase.lanes.iter().map(|lane| lane.depth).max().unwrap_or(1);
    Ok(Point {
        phase: Some(if numbered { format!("{} {}", phase.name, phase.test) } else { phase.name.clone() }),
        total,
        latency,
        series: rates.into_iter().map(|(second, iops)| Sample::of_rate(second, iops)).collect(),
        ..Point::of_rows(phase.lanes.len() as u32, depth, rows)
    })
}

/// The sum of all threads, by the clock: they do a number of operations, so that one may end long before
/// another.
fn total(rows: &[Row], phase: &Phase, record: &Record) -> Row {
    let seconds = phase.elapsed().max(Duration::from_micros(1)).as_secs_f64();
    Row {
        iops: phase.ops_per_second(),
        mib_per_second: moved_bytes(record) as f64 / seconds / f64::from(1 << 20),
        latency_us_average: (record.operations() > 0).then(|| record.stat().mean()),
        ..Row::total(rows)
    }
}

fn all_kinds(record: &Record) -> Result<hdrhistogram::Histogram<u64>> {
    let mut all = perf::histogram()?;
    for kind in Kind::ALL {
        all.add(&record.tally(kind).ns).context("add up latencies")?;
    }
    Ok(all)
}

fn row(lane: &LaneOutcome) -> Result<Row> {
    let record = &lane.outcome.record;
    let rates = RowRates {
        seconds: lane.outcome.elapsed.max(Duration::from_micros(1)).as_secs_f64(),
        bytes: moved_bytes(record),
        errors: record.failures,
        miscompares: record.miscompares,
    };
    Ok(Row::from_histogram_ns(lane.device.clone(), lane.cpu, &all_kinds(record)?, rates))
}

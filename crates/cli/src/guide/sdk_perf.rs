//! `sdk_perf` and `sdk_perf_async`: how fast pairs are stored, retrieved, asked for and deleted, one after
//! the other or many at a time.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use unvme_guide::config::SsdType;
use unvme_guide::elapsed::{Cumulative, Elapsed, TimeOfDay};
use unvme_guide::session::{QueueKind, Session, SessionOptions};

use super::about::Use;
use super::console::Console;
use super::document::{Document, Findings};
use super::ids::{Ids, Workload};
use super::in_flight::Router;
use super::lane::{self, Expect, Lane, LaneOptions, Request};
use super::load_configuration;
use super::pair::{Content, KeyForm, Pairs, Values, value_size};
use super::phase::{self, Bar, LaneOutcome, Phase};
use super::record::Kind;
use crate::exit::usage;
use crate::numbers;
use crate::output::Format;
use crate::perf;

/// Operations between two numbers of the progress lines.
const DISPLAY_COUNT: u64 = 10_000;

/// Arguments of `sdk_perf` and `sdk_perf_async`. The original programs have none: all have defaults.
#[derive(Clone, Debug, Args)]
pub(crate) struct SdkPerf {
    /// Configuration file [default: ./kv_sdk_sync_config.json, of sdk_perf_async ./kv_sdk_async_config.json,
    /// which as shipped is for a block device]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Pairs of each thread
    #[arg(long, value_name = "N", default_value = "100000", value_parser = numbers::above_zero)]
    num_keys: u32,
    /// Bytes of each value
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = value_size)]
    value_size: u32,
    /// Compare checksums of what is retrieved with those of what was stored
    #[arg(long)]
    verify: bool,
    /// Form of the result on standard output
    #[arg(long, visible_alias = "output-format", value_name = "FORMAT", default_value = "text")]
    output: Format,
    /// Write a report with plots to a file: one HTML page that needs nothing else
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// A step of the test.
struct Step {
    kind: Kind,
    expect: Expect,
    /// Order of the pairs.
    workload: Workload,
    /// Its name in results, synchronous and asynchronous.
    names: [&'static str; 2],
}

const STEPS: [Step; 5] = [
    Step {
        kind: Kind::Store,
        expect: Expect::Success,
        workload: Workload::Ascending,
        names: ["kv_store", "kv_sdk_multi_store"],
    },
    Step {
        kind: Kind::Retrieve,
        expect: Expect::Success,
        workload: Workload::Descending,
        names: ["kv_retrieve", "kv_sdk_multi_retrieve"],
    },
    Step {
        kind: Kind::Exist,
        expect: Expect::Success,
        workload: Workload::Ascending,
        names: ["kv_exist", "kv_sdk_multi_exist"],
    },
    Step {
        kind: Kind::Delete,
        expect: Expect::Success,
        workload: Workload::Ascending,
        names: ["kv_delete", "kv_sdk_multi_delete"],
    },
    Step {
        kind: Kind::Exist,
        expect: Expect::Missing,
        workload: Workload::Ascending,
        names: ["kv_exist", "kv_sdk_multi_exist_after_delete"],
    },
];

impl SdkPerf {
    /// Runs `sdk_perf`, or with an asynchronous queue `sdk_perf_async`.
    pub(crate) fn run(&self, queue: QueueKind) -> Result<()> {
        let is_async = queue == QueueKind::Async;
        let tool = tool(is_async);
        let default = if is_async { "./kv_sdk_async_config.json" } else { "./kv_sdk_sync_config.json" };
        let console = Console::new(tool, self.output);
        let started = perf::now();
        console.say(format_args!("{tool} start"))?;
        let begin = TimeOfDay::now();
        let (config, mut warnings) =
            load_configuration(self.config.clone().unwrap_or_else(|| default.into()))?;
        if let Some(path) = &self.report {
            perf::touch(path)?;
        }
        let router = Router::default();
        let session = Session::open(config, SessionOptions::new(router.handler()))?;
        warnings.extend(session.warnings().iter().cloned());
        warnings.iter().try_for_each(|warning| console.warn(warning))?;
        let lanes = self.lanes(&session, &router, queue, console)?;
        console.note(format_args!(
            "[TEST INFO] value_size={} insert_count={}, num_threads={}",
            self.value_size,
            self.num_keys,
            lanes.len()
        ))?;
        console.write(Elapsed::since("kv_sdk_init", begin))?;
        let test = Test { args: self, console, is_async, session: &session, lanes };
        let before = test.uses("before", "Before")?;
        let (phases, failed) = test.steps()?;
        let after = test.uses("after", "After")?;
        let failure = failed.or_else(|| phases.iter().find_map(Phase::failure));
        let document = Document::new(Findings {
            tool,
            started,
            session: &session,
            warnings,
            value_sizes: vec![self.value_size],
            order: "ascending, retrieved descending".to_owned(),
            verified: self.verify,
            commands: self.num_keys.into(),
            before,
            after,
            phases: &phases,
            failure,
        })?;
        let begin = TimeOfDay::now();
        session.close()?;
        console.write(Elapsed::since("kv_sdk_finalize", begin))?;
        document.finish(self.report.as_deref(), self.output, &document)
    }

    /// A thread for each CPU and each device that has a queue there.
    fn lanes(
        &self,
        session: &Session,
        router: &Router,
        queue: QueueKind,
        console: Console,
    ) -> Result<Vec<Lane>> {
        let mut cpus: Vec<u32> = session.members().iter().flat_map(|member| member.cpus()).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let mut lanes = Vec::new();
        for cpu in cpus {
            let there = session.members().iter().filter(|member| member.cpus().contains(&cpu));
            let mut handles = String::new();
            for member in there {
                handles += &format!("{},", handle(member.index()));
                if !member.cpus().iter().any(|&cpu| member.has_queue(cpu, queue)) {
                    return Err(usage(format!(
                        "{}: no CPU has a queue that is {queue}; see `sync_mask`",
                        member.name()
                    )));
                }
                lanes.push(LaneOptions {
                    device: member.index(),
                    cpu,
                    queue,
                    pairs: self.pairs(session, member.index())?,
                    lends: false,
                });
            }
            console.note(format_args!("current core({cpu}) is allowed to access on handle [{handles}]"))?;
        }
        lane::lanes(session, router, lanes)
    }

    fn pairs(&self, session: &Session, device: usize) -> Result<Pairs> {
        let member = &session.members()[device];
        // The time of day is all that tells one run from the next.
        let salt = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let content = if self.verify { Content::Random { salt } } else { Content::Letters };
        let values = Values { sizes: vec![self.value_size], content };
        if member.ssd_type() == SsdType::Kv {
            return Ok(Pairs::Made { form: KeyForm::First, values });
        }
        let block_bytes = member.sector_bytes();
        if self.value_size == 0 || !self.value_size.is_multiple_of(block_bytes) {
            return Err(usage(format!(
                "--value-size {}: {} has blocks of {block_bytes} bytes, and a value is whole blocks",
                self.value_size,
                member.name()
            )));
        }
        Ok(Pairs::Blocks { block_bytes, values })
    }
}

/// The program's name.
fn tool(is_async: bool) -> &'static str {
    if is_async { "sdk_perf_async" } else { "sdk_perf" }
}

/// What stands for a device in what is printed.
fn handle(device: usize) -> usize {
    device + 1
}

/// A test on an open session.
struct Test<'a> {
    args: &'a SdkPerf,
    console: Console,
    is_async: bool,
    session: &'a Session,
    lanes: Vec<Lane>,
}

impl Test<'_> {
    fn tool(&self) -> &'static str {
        tool(self.is_async)
    }

    /// Tells how full the devices are.
    fn uses(&self, when: &str, capital: &str) -> Result<Vec<Use>> {
        let mut uses = Vec::new();
        for member in self.session.members() {
            let seen = Use::of(member);
            self.console.note(lines_of(member.index(), &seen, when, capital))?;
            uses.push(seen);
        }
        Ok(uses)
    }

    /// All steps that the devices have, until one fails; what did.
    fn steps(&self) -> Result<(Vec<Phase>, Option<String>)> {
        let mut phases = Vec::new();
        let blocks = self.session.config().ssd_type == SsdType::Lba;
        for step in STEPS.iter().filter(|step| !(blocks && step.kind == Kind::Exist)) {
            let phase = self.step(step)?;
            let record = phase.record()?;
            let name = step.names[usize::from(self.is_async)];
            let ops = phase.rates_added();
            let value_bytes = self.args.value_size.into();
            if record.operations() > 0 {
                let stat = record.stat();
                let told = Cumulative { what: name, ops, value_bytes, stat: Some(&stat) };
                self.console.write(format_args!("{told}\n\n"))?;
            }
            if self.args.verify && step.kind == Kind::Retrieve {
                self.console.write(format_args!("Miscompare count: {}\n\n\n", record.miscompares))?;
            }
            let failed = record.failures > 0;
            let first = phase.failure();
            phases.push(phase);
            if failed {
                return Ok((phases, first));
            }
        }
        Ok((phases, None))
    }

    fn step(&self, step: &Step) -> Result<Phase> {
        let count = u64::from(self.args.num_keys);
        let requests = |place: usize| {
            let ids = Ids { workload: step.workload, first: place as u64 * count, count, seed: 0 };
            let pairs = &self.lanes[place].pairs;
            let verify = self.args.verify && step.kind == Kind::Retrieve;
            let mut scratch = Vec::new();
            ids.iter().map(move |id| {
                let check = verify.then(|| pairs.checksum(id, &mut scratch));
                Request { kind: step.kind, id, check }
            })
        };
        let told = |place: usize, lane: &LaneOutcome| self.tell(step, place, lane);
        let name = step.names[usize::from(self.is_async)];
        let bar = Bar::new(self.tool(), count * self.lanes.len() as u64);
        phase::run(name, 0, &self.lanes, step.expect, requests, told, Some(&bar))
    }

    /// The progress of a thread, which is done.
    fn tell(&self, step: &Step, place: usize, lane: &LaneOutcome) -> Result<()> {
        let suffix = if self.is_async { "_async" } else { "" };
        let handle = handle(self.lanes[place].member.index());
        let head =
            format!("[cid={}][tid={place}][handle={handle}]kv_{}{suffix}: ", lane.cpu, step.kind.name());
        if let Some(first) = &lane.outcome.record.first_failure {
            return self.console.note(format_args!("{head}{first}"));
        }
        let count = u64::from(self.args.num_keys);
        let mut numbers: Vec<u64> = (0..count).step_by(DISPLAY_COUNT as usize).collect();
        if step.workload == Workload::Descending {
            numbers.reverse();
        }
        let numbers: String = numbers.iter().map(|number| format!("{number} ")).collect();
        self.console.note(format_args!("{head}{numbers}Done"))
    }
}

/// How full a device is, in the lines of the original.
fn lines_of(device: usize, seen: &Use, when: &str, capital: &str) -> String {
    let mut out = format!("[DEVICE #{device} information {when} test]\n");
    if let Some(bytes) = seen.total_bytes {
        out += &format!("  -Total Size of the NVMe Device: {} MB\n", bytes >> 20);
    }
    match (seen.used_bytes, seen.used_percent) {
        (Some(bytes), _) => out += &format!("  -Used Size of the NVMe Device: {} MB\n", bytes >> 20),
        (None, Some(percent)) => out += &format!("  -Used Size of the NVMe Device: {percent:.2} %\n"),
        (None, None) => {}
    }
    if let Some(waf) = seen.waf {
        out += &format!("  -WAF {capital} doing I/O: {waf:.6}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_told_by_percent_or_by_megabytes() {
        let kv =
            Use { total_bytes: Some(1 << 30), used_percent: Some(12.345), waf: Some(1.0), used_bytes: None };
        assert_eq!(
            lines_of(0, &kv, "before", "Before"),
            "[DEVICE #0 information before test]\n\
             \x20 -Total Size of the NVMe Device: 1024 MB\n\
             \x20 -Used Size of the NVMe Device: 12.35 %\n\
             \x20 -WAF Before doing I/O: 1.000000\n"
        );
        let lba = Use { used_bytes: Some(5 << 20), waf: None, ..kv };
        assert_eq!(
            lines_of(1, &lba, "after", "After"),
            "[DEVICE #1 information after test]\n\
             \x20 -Total Size of the NVMe Device: 1024 MB\n\
             \x20 -Used Size of the NVMe Device: 5 MB\n"
        );
    }
}

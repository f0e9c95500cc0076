//! `sdk_iterate` and `sdk_iterate_async`: pairs with one prefix are stored, and found by an iterator.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use unvme::{Status, lock};
use unvme_guide::config::SsdType;
use unvme_guide::elapsed::{Elapsed, TimeOfDay};
use unvme_guide::latency::LatencyStat;
use unvme_guide::session::{
    Finished, Handler, ITERATE_BYTES, IterateType, IteratorEntry, Member, OpError, Prefix, QueueChoice,
    QueueKind, Session, SessionOptions,
};
use unvme_guide::{DeviceConfig, SdkConfig};
use unvme_spec::samsung_kv::{self, IterateKeys};

use super::about::Use;
use super::console::Console;
use super::document::{Document, Findings};
use super::ids::{Ids, Workload};
use super::in_flight::Router;
use super::lane::{self, Expect, Lane, LaneOptions, Request};
use super::load_configuration;
use super::pair::{Content, KeyForm, Pairs, Values, value_size};
use super::phase::{self, Phase};
use super::record::Kind;
use crate::exit::{Failed, usage};
use crate::numbers;
use crate::output::Format;
use crate::perf;

/// The device of the original programs, which have no configuration.
const DEVICE: &str = "0000:02:00.0";
/// Keys of the programs begin with four zeroes.
const PREFIX: Prefix = Prefix { prefix: 0, bitmask: u32::MAX };
/// Reads that `sdk_iterate_async` has outstanding at once.
const READS: usize = 20;
/// Tokens of reads; those of operations on pairs have a thread in this place, and there is one.
const READ_TOKENS: u64 = 1 << 63;
/// A read that takes longer than this is lost.
const READ_LIMIT: Duration = Duration::from_secs(60);

/// Arguments of `sdk_iterate` and `sdk_iterate_async`. The original programs have none: all have defaults.
#[derive(Clone, Debug, Args)]
pub(crate) struct SdkIterate {
    /// Configuration file [default: none, the device is placed automatically]
    #[arg(long, value_name = "FILE", conflicts_with = "device")]
    config: Option<PathBuf>,
    /// Device
    #[arg(long, value_name = "DEVICE", default_value = DEVICE)]
    device: String,
    /// Pairs [default: 20, of sdk_iterate_async 100000]
    #[arg(long, value_name = "N", value_parser = numbers::above_zero)]
    num_keys: Option<u32>,
    /// Bytes of each value
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = value_size)]
    value_size: u32,
    /// Form of the result on standard output
    #[arg(long, visible_alias = "output-format", value_name = "FORMAT", default_value = "text")]
    output: Format,
    /// Write a report with plots to a file: one HTML page that needs nothing else
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl SdkIterate {
    /// Runs `sdk_iterate`, or with an asynchronous queue `sdk_iterate_async`.
    pub(crate) fn run(&self, queue: QueueKind) -> Result<()> {
        let is_async = queue == QueueKind::Async;
        let tool = if is_async { "sdk_iterate_async" } else { "sdk_iterate" };
        let console = Console::new(tool, self.output);
        let started = perf::now();
        console.say(format_args!("{tool} start"))?;
        let begin = TimeOfDay::now();
        let (config, mut warnings) = self.configuration()?;
        if let Some(path) = &self.report {
            perf::touch(path)?;
        }
        let (router, reads) = (Router::default(), Arc::new(Reads::default()));
        let session = Session::open(config, SessionOptions::new(handler(&router, &reads)))?;
        warnings.extend(session.warnings().iter().cloned());
        warnings.iter().try_for_each(|warning| console.warn(warning))?;
        console.write(Elapsed::since("sdk_init", begin))?;
        let count = self.num_keys.unwrap_or(if is_async { 100_000 } else { 20 });
        console.note(format_args!("{tool} value_size={} insert_count={count}", self.value_size))?;
        let begin = TimeOfDay::now();
        let lanes = self.lanes(&session, &router, queue)?;
        console.note("Setup App: Done")?;
        console.write(Elapsed { count: count.into(), ..Elapsed::since("Setup App", begin) })?;
        let member = Arc::clone(&lanes[0].member);
        let test = Test { args: self, console, is_async, member, lanes, reads, count };
        let before = Use::of(&test.member);
        let mut phases = Vec::new();
        let mut found = Found::default();
        let failed = test.all(&mut phases, &mut found).err().map(|error| format!("{error:#}"));
        let after = Use::of(&test.member);
        let failure = failed.or_else(|| phases.iter().find_map(Phase::failure));
        let document = Document::new(Findings {
            tool,
            started,
            session: &session,
            warnings,
            value_sizes: vec![self.value_size],
            order: "ascending".to_owned(),
            verified: false,
            commands: count.into(),
            before: vec![before],
            after: vec![after],
            phases: &phases,
            failure,
        })?;
        let begin = TimeOfDay::now();
        drop(test);
        console.note("Teardown Memory: Done")?;
        console.write(Elapsed { count: count.into(), ..Elapsed::since("Teardown Memory", begin) })?;
        let begin = TimeOfDay::now();
        session.close()?;
        console.write(Elapsed::since("kv_sdk_finalize", begin))?;
        let shown = WithIterator { document: &document, iterator: found };
        document.finish(self.report.as_deref(), self.output, &shown)
    }

    fn configuration(&self) -> Result<(SdkConfig, Vec<String>)> {
        let (config, warnings) = match &self.config {
            Some(path) => load_configuration(path)?,
            None => {
                let devices = vec![DeviceConfig::new(self.device.as_str())];
                let mut config = SdkConfig { devices, ..SdkConfig::default() };
                let warnings = config.settle()?;
                (config, warnings)
            }
        };
        if config.ssd_type != SsdType::Kv {
            return Err(usage("iterators need a key-value device: \"ssd_type\": \"kv\""));
        }
        Ok((config, warnings))
    }

    /// One thread, on the first CPU with the kind of queue that is needed.
    fn lanes(&self, session: &Session, router: &Router, queue: QueueKind) -> Result<Vec<Lane>> {
        let Some(member) = session.members().first() else { bail!("no device is open") };
        let Some(cpu) = member.cpus().into_iter().find(|&cpu| member.has_queue(cpu, queue)) else {
            let name = member.name();
            return Err(usage(format!("{name}: no CPU has a queue that is {queue}; see `sync_mask`")));
        };
        let values = Values { sizes: vec![self.value_size], content: Content::Letters };
        let pairs = Pairs::Made { form: KeyForm::Last, values };
        lane::lanes(
            session,
            router,
            vec![LaneOptions { device: member.index(), cpu, queue, pairs, lends: false }],
        )
    }
}

/// A document, and what the iterator brought.
#[derive(Serialize)]
struct WithIterator<'a> {
    #[serde(flatten)]
    document: &'a Document,
    iterator: Found,
}

/// What the iterator brought.
#[derive(Clone, Debug, Default, Serialize)]
struct Found {
    /// Its identifier.
    id: u8,
    /// Reads that were answered.
    reads: u64,
    /// Keys in them.
    keys: u64,
    /// Whether the last read said that there are no more.
    end: bool,
    /// Mean latency of the reads in microseconds; `None` when there were none.
    read_latency_us_mean: Option<f64>,
}

/// What asynchronous reads have brought, in the order in which they ended.
#[derive(Debug, Default)]
struct Reads {
    answers: Mutex<Vec<ReadAnswer>>,
    arrival: Condvar,
}

#[derive(Clone, Debug)]
struct ReadAnswer {
    token: u64,
    at: Instant,
    status: Status,
    data: Vec<u8>,
}

impl Reads {
    fn complete(&self, finished: &Finished) {
        let mut data = vec![0; finished.outcome.data_bytes];
        let bytes = finished.outcome.copy_data(&mut data);
        data.truncate(bytes);
        let answer =
            ReadAnswer { token: finished.token, at: Instant::now(), status: finished.outcome.status, data };
        lock(&self.answers).push(answer);
        self.arrival.notify_all();
    }

    /// All answers, when there are `count`; `None` when they do not come within `limit`.
    fn wait(&self, count: usize, limit: Duration) -> Option<Vec<ReadAnswer>> {
        let is_short = |answers: &mut Vec<ReadAnswer>| answers.len() < count;
        let answers = lock::wait_while(&self.arrival, lock(&self.answers), limit, is_short);
        (answers.len() >= count).then(|| answers.clone())
    }
}

fn handler(router: &Router, reads: &Arc<Reads>) -> Handler {
    let (pairs, reads) = (router.handler(), Arc::clone(reads));
    Arc::new(move |finished: Finished| match finished.token & READ_TOKENS {
        0 => pairs(finished),
        _ => reads.complete(&finished),
    })
}

/// A test on an open session.
struct Test<'a> {
    args: &'a SdkIterate,
    console: Console,
    is_async: bool,
    member: Arc<Member>,
    lanes: Vec<Lane>,
    reads: Arc<Reads>,
    count: u32,
}

impl Test<'_> {
    /// Everything in order, until something fails.
    fn all(&self, phases: &mut Vec<Phase>, found: &mut Found) -> Result<()> {
        let mut step = |kind| {
            phases.push(self.step(kind)?);
            match phases.last().and_then(Phase::failure) {
                Some(failure) => bail!("{failure}"),
                None => Ok(()),
            }
        };
        step(Kind::Store)?;
        step(Kind::Retrieve)?;
        let iterated = self.iterate(found);
        // What was stored is taken away again, whatever the iterator did.
        step(Kind::Delete)?;
        iterated
    }

    fn name(&self, name: &str) -> String {
        format!("{name}{}", if self.is_async { "_async" } else { "" })
    }

    /// One operation on all pairs.
    fn step(&self, kind: Kind) -> Result<Phase> {
        let ids = Ids { workload: Workload::Ascending, first: 0, count: self.count.into(), seed: 0 };
        let name = self.name(&format!("kv_{}", kind.name()));
        let start = TimeOfDay::now();
        let requests = |_| ids.iter().map(move |id| Request { kind, id, check: None });
        let phase = phase::run(&name, 0, &self.lanes, Expect::Success, requests, |_, _| Ok(()), None)?;
        let end = TimeOfDay::now();
        let record = phase.record()?;
        if record.failures == 0 {
            self.console.note(format_args!("{name}: Done"))?;
            let stat = record.stat();
            self.console.write(Elapsed {
                end,
                count: self.count.into(),
                value_bytes: self.args.value_size.into(),
                stat: self.is_async.then_some(&stat),
                ..Elapsed::since(&name, start)
            })?;
        }
        Ok(phase)
    }

    /// Opens an iterator, reads it to its end, and closes it.
    fn iterate(&self, found: &mut Found) -> Result<()> {
        self.information()?;
        let start = TimeOfDay::now();
        let iterator =
            self.member.iterate_open(QueueChoice::Auto, 0, IterateType::Key, PREFIX).map_err(refused)?;
        self.console.write(Elapsed { count: 1, ..Elapsed::since("kv_iterate_open", start) })?;
        self.console.note(format_args!("Iterate open success : iterator id={iterator}"))?;
        self.information()?;
        found.id = iterator;
        let mut keys = HashSet::new();
        let read = if self.is_async {
            self.read_many(iterator, found, &mut keys)
        } else {
            self.read_all(iterator, found, &mut keys)
        };
        let start = TimeOfDay::now();
        let closed = self.member.iterate_close(QueueChoice::Auto, iterator);
        self.console.write(Elapsed { count: 1, ..Elapsed::since("kv_iterate_close", start) })?;
        read?;
        closed.map_err(refused)?;
        self.console.note("Iterate Close Result: ret=0x0")?;
        if found.keys > 0 {
            self.console.note(format_args!("num_keys_read = {}", found.keys))?;
        }
        let missing = (0..self.count).filter(|&id| !keys.contains(&KeyForm::Last.key(id.into())[..])).count();
        if found.end && missing > 0 {
            bail!("the iterator came to its end without {missing} of {} keys", self.count);
        }
        Ok(())
    }

    /// What the device says about its iterators.
    fn information(&self) -> Result<()> {
        let entries = self.member.iterate_info().map_err(refused)?;
        entries.iter().enumerate().try_for_each(|(place, entry)| self.console.note(information(place, entry)))
    }

    /// Reads until the end, one after the other.
    fn read_all(&self, iterator: u8, found: &mut Found, keys: &mut HashSet<Vec<u8>>) -> Result<()> {
        let mut buffer = [0; ITERATE_BYTES];
        let mut stat = LatencyStat::default();
        let start = TimeOfDay::now();
        while !found.end {
            let begin = Instant::now();
            self.console.note(format_args!("Iterate Read Request={ITERATE_BYTES}"))?;
            let read = self.member.iterate_read(QueueChoice::Auto, iterator, &mut buffer).map_err(refused)?;
            stat.add(begin.elapsed());
            let ended = if read.end { samsung_kv::status::ITERATE_END } else { Status::SUCCESS };
            self.console.note(read_result(read.bytes, format_args!("ret={:#x}", ended.code())))?;
            count_keys(&buffer[..read.bytes], found, keys);
            found.end = read.end;
        }
        found.read_latency_us_mean = (stat.samples() > 0).then(|| stat.mean());
        self.console.write(Elapsed { count: 1, ..Elapsed::since("kv_iterate_read", start) })
    }

    /// Submits all reads, then waits for them; those behind the end have nothing.
    fn read_many(&self, iterator: u8, found: &mut Found, keys: &mut HashSet<Vec<u8>>) -> Result<()> {
        let start = TimeOfDay::now();
        let mut begins = Vec::new();
        for read in 0..READS {
            begins.push(Instant::now());
            self.console.note(format_args!("Iterate Read Request={ITERATE_BYTES}"))?;
            let token = READ_TOKENS | read as u64;
            self.member.iterate_read_async(QueueChoice::Auto, iterator, token).map_err(refused)?;
            while self.lanes[0].polls && self.member.process_completions(None) > 0 {}
        }
        let answers = loop {
            if self.lanes[0].polls {
                self.member.process_completions(None);
            }
            let limit = if self.lanes[0].polls { Duration::ZERO } else { READ_LIMIT };
            match self.reads.wait(READS, limit) {
                Some(answers) => break answers,
                None if begins[0].elapsed() > READ_LIMIT => {
                    bail!("{READS} reads were queued, and not all ended")
                }
                None => std::thread::yield_now(),
            }
        };
        let mut stat = LatencyStat::default();
        for answer in &answers {
            let begin = begins[(answer.token & !READ_TOKENS) as usize];
            stat.add(answer.at.duration_since(begin));
            let end = answer.status.kind() == samsung_kv::status::ITERATE_END;
            let status = format_args!("status={}", answer.status.code());
            self.console.note(read_result(answer.data.len(), status))?;
            if !end && !answer.status.is_success() {
                bail!("iterate read: {}", lane::status_text(answer.status));
            }
            count_keys(&answer.data, found, keys);
            found.end |= end;
        }
        found.read_latency_us_mean = (stat.samples() > 0).then(|| stat.mean());
        self.console.write(Elapsed { stat: Some(&stat), ..Elapsed::since("kv_iterate_read_async", start) })
    }
}

/// A read that ended, as the original has it; `ended` is how.
fn read_result(bytes: usize, ended: std::fmt::Arguments<'_>) -> String {
    format!("Iterate Read Result: it->kv.key.length=0 it->kv.value.length={bytes} {ended}")
}

/// Why an iterator does not work, in the words in which statuses are told.
fn refused(error: OpError) -> anyhow::Error {
    match error {
        OpError::Status(_) => Failed(lane::error_text(&error)).into(),
        error => error.into(),
    }
}

fn count_keys(buffer: &[u8], found: &mut Found, keys: &mut HashSet<Vec<u8>>) {
    found.reads += 1;
    for key in IterateKeys::new(buffer) {
        found.keys += 1;
        keys.insert(key.to_vec());
    }
}

/// A line about an iterator of a device.
fn information(place: usize, entry: &IteratorEntry) -> String {
    format!(
        "iterate_handle_info[{}] : info.handle_id={} info.status={} info.type={} info.prefix={:08x} info.bitmask={:08x} info.is_eof={}",
        place + 1,
        entry.id,
        entry.status,
        entry.kind,
        u32::from_be_bytes(entry.prefix),
        u32::from_be_bytes(entry.bitmask),
        entry.is_eof
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iterator_is_told_in_the_line_of_the_original() {
        let entry = IteratorEntry {
            id: 2,
            status: 1,
            kind: 1,
            keyspace: 0,
            prefix: [0x30, 0x31, 0, 0],
            bitmask: [0xff, 0xff, 0, 0],
            is_eof: 0,
            reserved: [0; 3],
        };
        assert_eq!(
            information(1, &entry),
            "iterate_handle_info[2] : info.handle_id=2 info.status=1 info.type=1 info.prefix=30310000 \
             info.bitmask=ffff0000 info.is_eof=0"
        );
    }
}

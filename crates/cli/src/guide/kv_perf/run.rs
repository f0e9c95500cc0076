//! All of `kv_perf` in order.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use unvme_guide::SdkConfig;
use unvme_guide::config::SsdType;
use unvme_guide::session::{QueueKind, Session, SessionOptions};

use super::args::KvPerf;
use super::job::{self, Plan};
use super::smart::{self, Stop};
use super::text;
use crate::exit::{Failed, usage};
use crate::guide::about::Use;
use crate::guide::console::Console;
use crate::guide::document::{Document, Findings};
use crate::guide::ids::Ids;
use crate::guide::in_flight::Router;
use crate::guide::lane::{self, Expect, Lane, LaneOptions, Request};
use crate::guide::phase::{self, Bar, LaneOutcome, Phase};
use crate::guide::record::Kind;
use crate::output::Format;
use crate::perf::{self, Random};

/// Does what was typed.
pub(super) fn run(args: &KvPerf) -> Result<()> {
    if let Some(refusal) = args.refusal() {
        return Err(usage(refusal));
    }
    let started = perf::now();
    let console = Console::new("kv_perf", args.output);
    console.say("Starting tests...")?;
    let (config, mut warnings) = job::configuration(args)?;
    let listed = job::listed(args)?;
    let counts = job::counts_told(args, listed.as_ref());
    let sizes: Vec<u32> = if args.read_file.is_some() { Vec::new() } else { args.value_size.clone() };
    console.write(text::test_information(args, &sizes, counts))?;
    if let Some(path) = &args.report {
        perf::touch(path)?;
    }
    let router = Router::default();
    let session = Session::open(config, SessionOptions::new(router.handler()))?;
    warnings.extend(session.warnings().iter().cloned());
    for warning in &warnings {
        console.warn(warning)?;
    }
    let test = Test { args, console, session: &session, listed, sizes };
    let before = test.uses();
    console.write(text::device_information("Before Test", &test.named(&before)))?;
    let mut phases = Vec::new();
    let failed = test.phases(&router, &mut phases).err();
    let after = test.uses();
    console.write(text::device_information("After Test", &test.named(&after)))?;
    let failure =
        failed.as_ref().map(|error| format!("{error:#}")).or_else(|| phases.iter().find_map(Phase::failure));
    let document = Document::new(Findings {
        tool: "kv_perf",
        started,
        session: &session,
        warnings,
        value_sizes: test.sizes.clone(),
        order: order(args, session.config()),
        verified: args.verify,
        commands: commands(args, &phases),
        before,
        after,
        phases: &phases,
        failure: failure.clone(),
    })?;
    session.close()?;
    test.finish(&document, &phases, failure.is_none())?;
    match (failed, failure) {
        (Some(error), _) => Err(error),
        (None, Some(failure)) => Err(Failed(failure).into()),
        (None, None) => Ok(()),
    }
}

/// Operations of each thread in a phase; on pairs of a file as many as there were.
fn commands(args: &KvPerf, phases: &[Phase]) -> u64 {
    if args.read_file.is_none() {
        return args.counts().iter().take(if args.blend { 3 } else { 1 }).sum();
    }
    let lanes = phases.iter().flat_map(|phase| &phase.lanes);
    lanes.map(|lane| lane.outcome.record.operations()).max().unwrap_or(0)
}

/// Order of the keys in words.
fn order(args: &KvPerf, config: &SdkConfig) -> String {
    let last = if config.ssd_type == SsdType::Lba {
        super::args::RANGE_LAST_LBA
    } else {
        super::args::RANGE_LAST_KV
    };
    let names = args.workloads(last).map(|workload| workload.name());
    if args.blend { names.join(", ") } else { names[0].to_owned() }
}

/// A test on an open session.
struct Test<'a> {
    args: &'a KvPerf,
    console: Console,
    session: &'a Session,
    /// Pairs of a file.
    listed: Option<job::Listed>,
    sizes: Vec<u32>,
}

impl Test<'_> {
    fn uses(&self) -> Vec<Use> {
        self.session.members().iter().map(|member| Use::of(member)).collect()
    }

    fn named(&self, uses: &[Use]) -> Vec<(String, Use)> {
        let names = self.session.members().iter().map(|member| member.name().to_owned());
        names.zip(uses.iter().copied()).collect()
    }

    /// Everything that is done to the devices; phases that came to their end are in `phases`, whatever comes
    /// after.
    fn phases(&self, router: &Router, phases: &mut Vec<Phase>) -> Result<()> {
        if self.args.format {
            for member in self.session.members() {
                member.format(true)?;
                self.console.say(format_args!("Successfully formatted the device: {}", member.name()))?;
            }
        }
        let stop = Stop::default();
        let alone = !self.args.has_test();
        std::thread::scope(|scope| {
            let watched = self.session.members().first().filter(|_| self.args.send_get_log).map(|member| {
                let (stop, text) = (&stop, self.console.is_text());
                scope.spawn(move || smart::watch(member, stop, text, alone))
            });
            let done = if alone { Ok(()) } else { self.tests(router, phases) };
            stop.stop();
            match watched.map(std::thread::ScopedJoinHandle::join) {
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                Some(Ok(read)) => done.and(read.map(drop).map_err(Into::into)),
                None => done,
            }
        })
    }

    fn tests(&self, router: &Router, phases: &mut Vec<Phase>) -> Result<()> {
        // The time of day is all that tells one run from the next.
        let salt = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let plans = job::plans(self.args, self.session, self.listed.as_ref(), salt)?;
        let lanes = self.lanes(router, &plans)?;
        let mut checks = Vec::new();
        for (plan, lane) in plans.iter().zip(&lanes) {
            checks.push(if self.args.verify { checksums(plan, lane)? } else { Vec::new() });
            self.console.say("Creating test data...Done")?;
        }
        let kinds = [
            (self.args.write || self.args.verify, "Write", Kind::Store),
            (self.args.read || self.args.verify, "Read", Kind::Retrieve),
            (self.args.delete, "Delete", Kind::Delete),
        ];
        let operations: u64 = plans.iter().map(|plan| plan.ids[0].count).sum();
        for number in 0..self.args.num_tests {
            for plan in &plans {
                let Plan { device, thread, .. } = plan;
                self.console.say(format_args!(
                    "Device [{device}] Thread Index: {thread} Test {number} is running..."
                ))?;
            }
            for (_, name, kind) in kinds.into_iter().filter(|(wanted, ..)| *wanted) {
                let requests = |place: usize| {
                    let ids: Ids = plans[place].ids[0];
                    let checks = if kind == Kind::Retrieve { checks[place].as_slice() } else { &[] };
                    ids.iter().enumerate().map(move |(at, id)| Request {
                        kind,
                        id,
                        check: checks.get(at).copied(),
                    })
                };
                let told = |place: usize, lane: &LaneOutcome| self.tell(name, &plans[place], lane);
                let bar = Bar::new("kv_perf", operations);
                let expect = if kind == Kind::Delete { Expect::SuccessOrMissing } else { Expect::Success };
                phases.push(phase::run(name, number, &lanes, expect, requests, told, Some(&bar))?);
                if phases.last().is_some_and(|phase| phase.failure().is_some()) {
                    return self.counts(phases);
                }
            }
            if self.args.blend {
                let requests = |place: usize| blended(plans[place].ids);
                let told = |place: usize, lane: &LaneOutcome| self.tell("Blend", &plans[place], lane);
                let operations = plans.iter().flat_map(|plan| plan.ids).map(|ids| ids.count).sum();
                let bar = Bar::new("kv_perf", operations);
                let expect = Expect::SuccessOrMissing;
                phases.push(phase::run("Blend", number, &lanes, expect, requests, told, Some(&bar))?);
            }
        }
        self.counts(phases)
    }

    fn lanes(&self, router: &Router, plans: &[Plan]) -> Result<Vec<Lane>> {
        let lane = |plan: &Plan| {
            let queue = self.session.members()[plan.device].queue_kind(plan.cpu).unwrap_or(QueueKind::Sync);
            LaneOptions {
                device: plan.device,
                cpu: plan.cpu,
                queue,
                pairs: plan.pairs.clone(),
                lends: self.args.is_low_level(),
            }
        };
        lane::lanes(self.session, router, plans.iter().map(lane).collect())
    }

    /// Tells what a thread found out, as soon as it has.
    fn tell(&self, phase: &str, plan: &Plan, lane: &LaneOutcome) -> Result<()> {
        if lane.outcome.record.failures > 0 {
            // There is nothing to be proud of; what failed is told at the end.
            return Ok(());
        }
        self.console.write(text::results(&text::Results {
            phase,
            device: plan.device,
            thread: plan.thread,
            record: &lane.outcome.record,
            elapsed: lane.outcome.elapsed,
            sizes: &self.sizes,
            verified: self.args.verify,
        }))
    }

    /// Tells how many asynchronous operations there were in the last phase, by device.
    fn counts(&self, phases: &[Phase]) -> Result<()> {
        let Some(last) = phases.last() else { return Ok(()) };
        for (device, member) in self.session.members().iter().enumerate() {
            let lanes = || last.lanes.iter().filter(|lane| lane.device == member.name());
            let completed: u64 = lanes().map(|lane| lane.outcome.record.completed).sum();
            let submitted: u64 = lanes().map(|lane| lane.outcome.record.submitted).sum();
            self.console.say(format_args!(
                "[Device no: {device}, Received Callbacks Count: {completed}, Submitted I/Os Count: {submitted}]"
            ))?;
        }
        Ok(())
    }

    /// The last lines, or the document, and the report.
    fn finish(&self, document: &Document, phases: &[Phase], success: bool) -> Result<()> {
        // The report first, as the reader of the output may go away.
        let saved = document.save_report(self.args.report.as_deref());
        for member in self.session.members() {
            let rate = |name: &str| {
                let last = phases.iter().rev().find(|phase| phase.name == name);
                last.map_or(0.0, |phase| phase.device_ops_per_second(member.name()))
            };
            self.console.write(text::rates(member.name(), ["Write", "Read", "Delete", "Blend"].map(rate)))?;
        }
        self.console.say(if success { "SUCCESS" } else { "FAIL" })?;
        if self.args.output == Format::Json {
            Format::Json.show(document, |_| Ok(()))?;
        }
        saved
    }
}

/// Checksums of the values of a thread, in the order of its ids.
fn checksums(plan: &Plan, lane: &Lane) -> Result<Vec<u64>> {
    let count = plan.ids[0].count;
    let (mut checksums, mut scratch) = (Vec::new(), Vec::new());
    usize::try_from(count)
        .ok()
        .and_then(|count| checksums.try_reserve_exact(count).ok())
        .ok_or_else(|| usage(format!("-x: there is no memory for the checksums of {count} values")))?;
    checksums.extend(plan.ids[0].iter().map(|id| lane.pairs.checksum(id, &mut scratch)));
    Ok(checksums)
}

/// Stores, retrieves and deletes, each in its own order, in a random mix.
fn blended(ids: [Ids; 3]) -> impl Iterator<Item = Request> {
    let kinds = [Kind::Store, Kind::Retrieve, Kind::Delete];
    let mut random = Random::new(ids[0].seed, 1);
    let mut left = ids.map(|ids| ids.count);
    let mut next = ids.map(Ids::iter);
    std::iter::from_fn(move || {
        let mut place = random.below(left.iter().sum::<u64>().max(1));
        let chosen = left.iter().position(|&count| match place.checked_sub(count) {
            Some(rest) => {
                place = rest;
                false
            }
            None => true,
        })?;
        left[chosen] -= 1;
        let id = next[chosen].next()?;
        Some(Request { kind: kinds[chosen], id, check: None })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guide::ids::Workload;

    #[test]
    fn a_blend_has_as_many_of_each_as_asked_for_and_mixes_them() {
        let ids = [100, 80, 30].map(|count| Ids { workload: Workload::Ascending, first: 5, count, seed: 3 });
        let requests: Vec<Request> = blended(ids).collect();
        let of = |kind| requests.iter().filter(move |request| request.kind == kind).map(|request| request.id);
        assert_eq!(requests.len(), 210);
        assert!(of(Kind::Store).eq(5..105) && of(Kind::Retrieve).eq(5..85) && of(Kind::Delete).eq(5..35));
        let first: Vec<Kind> = requests.iter().take(30).map(|request| request.kind).collect();
        assert!(
            [Kind::Store, Kind::Retrieve, Kind::Delete].iter().all(|kind| first.contains(kind)),
            "{first:?}"
        );
    }
}

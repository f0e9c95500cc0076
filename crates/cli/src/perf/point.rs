//! One point: threads that measure, and what the report says about them.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use unvme::QueueOptions;

use super::addresses::{Addresses, Mix, Random};
use super::cores;
use super::counters::{Counters, FromSubmission, Live, Slice, Window, halve, histogram};
use super::job::{Job, Target};
use super::lane::{Lane, Plan};
use super::pace::Pace;
use super::rest::{Rest, processor_ns};
use super::session::{Session, Stage};
use super::watch::Watch;
use crate::report::{
    CommandFigures, CpuUse, HarnessCost, JobFigures, Latency, PairFigures, Point, Row, RowRates, Sample,
    Schedule,
};

/// Idle turns between two looks at the watch.
const TURNS_PER_LOOK: u32 = 64;
/// Longest measurement of the loop without a device, and how long it runs before.
const HARNESS_TIME: Duration = Duration::from_millis(200);
const HARNESS_WARMUP: Duration = Duration::from_millis(20);
/// Fewer commands than this say nothing of what one of them costs.
const HARNESS_COMMANDS_MIN: u64 = 1000;
/// Intervals of the rate over time: no shorter than this, and no more than these.
const INTERVAL_MIN: Duration = Duration::from_millis(20);
const INTERVALS: usize = 20;
/// Looks at the flash that are kept where nobody has said how far apart they are to be.
const SAMPLES_MAX: usize = 4096;
/// Intervals of a point at most; `--interval` is checked before.
const SERIES_MAX: u64 = 2_000_000;

/// What one lane came to.
struct Seen {
    /// Index of the job.
    job: usize,
    /// Index of the namespace.
    target: usize,
    core: usize,
    counters: Counters,
    /// Measured time.
    seconds: f64,
}

/// Bytes that hosts and the flash had written at a time of the watch.
type Written = (u64, (u64, u64));

/// A point, and the first thing that went wrong in it.
pub(super) struct Outcome {
    pub(super) point: Point,
    pub(super) first_failure: Option<String>,
    /// Reads of data of which nothing is known.
    pub(super) unjudged: u64,
}

/// Looks on while a point is measured.
pub(super) struct Onlooker<'a> {
    /// Gets the time that has passed, and what has happened in it.
    pub(super) tick: &'a dyn Fn(Duration, &[Arc<Live>]),
    /// Between two looks.
    pub(super) pause: Duration,
}

fn window(job: &Job, interval: Option<Duration>) -> Window {
    let from_ns = job.warmup.as_nanos() as u64;
    let (interval, intervals_max) = match (interval, job.time) {
        (Some(interval), _) => (interval, usize::MAX),
        (None, Some(time)) => {
            let most = (time.as_nanos() / INTERVAL_MIN.as_nanos()).clamp(1, INTERVALS as u128) as u32;
            (time / most, INTERVALS + 1)
        }
        (None, None) => (INTERVAL_MIN, 2 * INTERVALS),
    };
    let until_ns = job.time.map_or(u64::MAX, |time| from_ns + time.as_nanos() as u64);
    Window { from_ns, until_ns, interval_ns: interval.as_nanos() as u64, intervals_max }
}

/// One thread's part of a stage.
#[derive(Clone, Copy)]
struct Post {
    /// Index of its job, and of the thread in that.
    job: usize,
    thread: usize,
    core: usize,
    /// It keeps account of what flash writes.
    is_first: bool,
}

fn posts(stage: &Stage) -> Vec<Post> {
    let all = stage.jobs.iter().enumerate().flat_map(|(job, of)| (0..of.threads()).map(move |at| (job, at)));
    let post = |(place, (job, thread)): (usize, (usize, usize))| Post {
        job,
        thread,
        core: stage.jobs[job].cores[thread],
        is_first: place == 0,
    };
    all.enumerate().map(post).collect()
}

/// Measures one point; each `round` draws from a seed of its own. Errors: a queue cannot be made, or the
/// connection to a device fails. Commands that fail are counted instead.
pub(super) fn measure(
    session: &Session,
    stage: &Stage,
    round: u32,
    onlooker: Option<Onlooker<'_>>,
) -> Result<Outcome> {
    let posts = posts(stage);
    let start = Barrier::new(posts.len());
    session.forget_for(stage);
    let before = session.written();
    // Set when a thread gives up, so that the others do not go on for nothing.
    let abort = AtomicBool::new(false);
    let live: Vec<Arc<Live>> = posts.iter().map(|_| Arc::default()).collect();
    let results: Vec<Result<Work>> = thread::scope(|scope| {
        let threads: Vec<_> = posts
            .iter()
            .zip(&live)
            .map(|(&post, live)| {
                let (start, abort) = (&start, &abort);
                let live = onlooker.is_some().then(|| Arc::clone(live));
                scope.spawn(move || {
                    let result = Worker { session, stage, post, round }.run(start, abort, live);
                    if result.is_err() {
                        abort.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        if let Some(Onlooker { tick, pause }) = onlooker {
            let watch = Watch::start(session.virtual_time.as_ref());
            while threads.iter().any(|thread| !thread.is_finished()) {
                thread::sleep(pause);
                tick(Duration::from_nanos(watch.ns()), &live);
            }
        }
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let (mut seen, mut written, mut cores) = (Vec::new(), Vec::new(), Some(0.0));
    for result in results {
        let work = result?;
        seen.extend(work.lanes);
        written.extend(work.written);
        cores = cores.zip(work.processor).map(|(sum, own)| sum + own);
    }
    // By job and namespace, then by core, as the document has it.
    seen.sort_by_key(|seen| (seen.job, seen.target, seen.core));
    let amplification = write_amplification(before, session.written());
    Summing { stage, seen: &seen, written: &written, cores }.outcome(amplification)
}

/// What a thread has done.
struct Work {
    lanes: Vec<Seen>,
    written: Vec<Written>,
    /// Its processor time in each second that was measured; `None` in virtual time.
    processor: Option<f64>,
}

/// A thread at its post.
struct Worker<'a> {
    session: &'a Session,
    stage: &'a Stage,
    post: Post,
    round: u32,
}

impl<'a> Worker<'a> {
    fn job(&self) -> &'a Job {
        &self.stage.jobs[self.post.job]
    }

    /// Its lanes, for as long as the window says.
    fn run(&self, start: &Barrier, abort: &AtomicBool, live: Option<Arc<Live>>) -> Result<Work> {
        let (session, job, Post { core, .. }) = (self.session, self.job(), self.post);
        let lanes = cores::bind(core).and_then(|()| self.open_lanes(live));
        // Whatever came of it: the others wait.
        start.wait();
        let mut lanes = lanes?;
        let window = window(job, session.interval);
        let watch = Watch::start(session.virtual_time.as_ref());
        let stop = || session.is_stopped() || abort.load(Ordering::Relaxed);
        let mut samples = Vec::new();
        let flash = self.post.is_first && session.has_flash();
        let marks = Marks {
            until_ns: window.until_ns,
            next_ns: window.from_ns,
            interval_ns: if flash { window.interval_ns } else { u64::MAX },
            is_limited: job.limit.is_some(),
        };
        let mut rest = Rest::new(job.completion, &mut lanes);
        let mut began = None;
        let end_ns = turn_until((&mut lanes, rest.as_mut()), watch, marks, &stop, |now_ns| {
            began.get_or_insert_with(|| (watch.ns(), processor_ns()));
            if !flash {
                return;
            }
            samples.push((now_ns, session.written()));
            // As where nobody knows how long it takes, intervals are joined.
            if samples.len() > SAMPLES_MAX && session.interval.is_none() {
                let mut keep = false;
                samples.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
        })?;
        let processor = began.filter(|_| !watch.is_virtual()).map(|(from_ns, before_ns)| {
            let took_ns = processor_ns().saturating_sub(before_ns);
            took_ns as f64 / watch.ns().saturating_sub(from_ns).max(1) as f64
        });
        if flash {
            samples.push((end_ns, session.written()));
        }
        let seconds = (end_ns.saturating_sub(window.from_ns) as f64 / 1e9).max(1e-9);
        for lane in &mut lanes {
            lane.close(end_ns);
        }
        for lane in &mut lanes {
            lane.drain(watch)?;
            if job.mix.pattern.writes() {
                lane.read_back(watch, stop)?;
            }
        }
        let seen = |(target, lane): (usize, Lane<'_>)| Seen {
            job: self.post.job,
            target,
            core,
            counters: lane.into_counters(),
            seconds,
        };
        Ok(Work { lanes: lanes.into_iter().enumerate().map(seen).collect(), written: samples, processor })
    }

    fn open_lanes(&self, live: Option<Arc<Live>>) -> Result<Vec<Lane<'a>>> {
        let (job, session) = (self.job(), self.session);
        let open = |(place, target): (usize, &'a Target)| {
            let mut plan = plan(job, target, self.post.thread, self.round)?;
            plan.counters = Counters::new(window(job, session.interval))?;
            plan.counters.live.clone_from(&live);
            plan.counters.bytes = job.has_sizes().then_some(0);
            plan.counters.trims = job.has_trims().then(histogram).transpose()?;
            plan.counters.flushes = job.has_flushes().then(histogram).transpose()?;
            let index = self.post.thread * job.targets.len() + place;
            plan.limit = job.limit_of(index);
            plan.breaks = job.breaks();
            if job.asked().is_some() {
                plan.counters.from_submission = Some(FromSubmission::new(window(job, session.interval))?);
            }
            if let Some(iops) = job.rate {
                // From the other end: addresses have the first streams of the seed.
                let random = Random::new(job.seed(self.round), u64::MAX - index as u64);
                plan.pace = Some(Pace::new(iops as f64 / job.lanes() as f64, job.arrivals, random));
            }
            plan.counters.misses = job.has_pairs().then_some(0);
            match &target.keys {
                Some(_) => Lane::on_pairs(&target.device.kv(target.nsid)?, plan),
                None => Lane::on_device(&target.block()?, plan),
            }
        };
        job.targets.iter().enumerate().map(open).collect()
    }
}

/// When a thread does something else than to keep its lanes busy, on its watch.
#[derive(Clone, Copy)]
struct Marks {
    /// The end.
    until_ns: u64,
    /// When it looks at the flash, and how long after that again.
    next_ns: u64,
    interval_ns: u64,
    /// It ends when all there was to do is done.
    is_limited: bool,
}

impl Marks {
    fn first(&self) -> u64 {
        self.until_ns.min(self.next_ns)
    }

    /// Looks at the flash if it is time to.
    #[cold]
    fn look(&mut self, now_ns: u64, look: &mut impl FnMut(u64)) {
        if now_ns >= self.next_ns {
            look(now_ns);
            let passed = (now_ns - self.next_ns) / self.interval_ns.max(1) + 1;
            self.next_ns = self.next_ns.saturating_add(passed.saturating_mul(self.interval_ns.max(1)));
        }
    }
}

/// Keeps the lanes busy. Returns when the measurement ended.
fn turn_until(
    (lanes, rest): (&mut [Lane<'_>], Option<&mut Rest>),
    watch: Watch<'_>,
    mut marks: Marks,
    stop: &impl Fn() -> bool,
    mut look: impl FnMut(u64),
) -> Result<u64> {
    if watch.is_virtual() || rest.is_some() {
        return step_until((lanes, rest), watch, marks, stop, look);
    }
    let mut idle = 0;
    let mut mark_ns = marks.first();
    loop {
        let mut looked = None;
        for lane in lanes.iter_mut() {
            looked = lane.turn(watch)?.or(looked);
        }
        if looked.is_none() {
            // Without a pause: on recent processors it takes longer than a turn, and in an emulated one it
            // leaves the guest, for a lock that the device's work is done under.
            idle += 1;
            if idle % TURNS_PER_LOOK == 0 {
                looked = Some(watch.ns());
            }
        }
        let Some(now) = looked else { continue };
        if now >= mark_ns {
            if now >= marks.until_ns {
                return Ok(marks.until_ns);
            }
            marks.look(now, &mut look);
            mark_ns = marks.first();
        }
        if stop() || marks.is_limited && lanes.iter().all(Lane::is_done) {
            return Ok(now);
        }
    }
}

/// As [`turn_until`], of a thread that rests, or in virtual time: it goes on when nothing is left to do at a
/// time.
fn step_until(
    (lanes, mut rest): (&mut [Lane<'_>], Option<&mut Rest>),
    watch: Watch<'_>,
    mut marks: Marks,
    stop: &impl Fn() -> bool,
    mut look: impl FnMut(u64),
) -> Result<u64> {
    loop {
        let now = watch.ns();
        if now >= marks.until_ns {
            return Ok(marks.until_ns);
        }
        marks.look(now, &mut look);
        if stop() || marks.is_limited && lanes.iter().all(Lane::is_done) {
            return Ok(now);
        }
        let mut moved = false;
        for lane in lanes.iter_mut() {
            moved |= lane.step(watch)?;
        }
        if moved {
            rest.iter_mut().for_each(|rest| rest.end(now));
            continue;
        }
        let admission_ns = lanes.iter().filter_map(Lane::next_admission_ns).min();
        let until_ns = admission_ns.map_or(marks.first(), |ns| ns.min(marks.first()));
        match &mut rest {
            Some(rest) if !watch.is_virtual() => rest.wait(lanes, watch, until_ns)?,
            _ => watch.pass(Some(until_ns)),
        }
    }
}

fn plan<'a>(job: &Job, target: &'a Target, thread: usize, round: u32) -> Result<Plan<'a>> {
    let mix = Mix { seed: job.seed(round), ..job.mix };
    let stream = thread as u64;
    let share = share(&target.units, stream, job.threads() as u64);
    let addresses = match &target.ledger {
        // A share for each thread: what one expects to read nobody else writes.
        Some(_) => Addresses::new(&mix, share, stream, 0)?,
        None => {
            let skip = share.start - target.units.start;
            Addresses::new(&mix, target.units.clone(), stream, skip)?
        }
    };
    Ok(Plan {
        device: target.identity.name.as_str(),
        depth: job.depth,
        queue_depth_max: target.queue_depth_max(),
        completion: job.completion,
        unit: target.unit,
        addresses,
        placements: job.placements(mix.seed, stream),
        blend: job.blend(target.unit, mix.seed, stream),
        breaks: None,
        replay: job.replay_of(target.unit),
        pairs: job.pairs(target, mix.seed, stream),
        ledger: target.ledger.as_deref(),
        counters: Counters::new(window(job, None))?,
        pace: None,
        limit: None,
    })
}

fn share(units: &Range<u64>, index: u64, count: u64) -> Range<u64> {
    let each = (units.end - units.start) / count;
    units.start + index * each..units.start + (index + 1) * each
}

/// Of bytes written by hosts and by the flash, before and after.
fn write_amplification(before: (u64, u64), after: (u64, u64)) -> Option<f64> {
    let (host, media) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    (host > 0).then(|| media as f64 / host as f64)
}

/// Makes a point of what lanes have seen.
struct Summing<'a> {
    stage: &'a Stage,
    seen: &'a [Seen],
    written: &'a [Written],
    /// Processor time of all threads in each second that was measured.
    cores: Option<f64>,
}

impl Summing<'_> {
    fn job(&self, seen: &Seen) -> &Job {
        &self.stage.jobs[seen.job]
    }

    /// The row that a lane is.
    fn row(&self, seen: &Seen) -> Result<Row> {
        let (job, counters) = (self.job(seen), &seen.counters);
        let mut both = counters.reads.clone();
        both.add(&counters.writes)?;
        let rates = RowRates {
            seconds: seen.seconds,
            bytes: counters.bytes.unwrap_or(both.len() * job.workload.io_bytes),
            errors: counters.errors,
            miscompares: counters.miscompares,
        };
        let device = job.targets[seen.target].identity.label();
        let label = match &job.name {
            Some(name) => format!("{name}: {device}"),
            None => device,
        };
        Ok(Row::from_histogram_ns(label, seen.core as u32, &both, rates))
    }

    fn outcome(&self, write_amplification: Option<f64>) -> Result<Outcome> {
        let rows: Vec<Row> = self.seen.iter().map(|seen| self.row(seen)).collect::<Result<_>>()?;
        let stage = self.stage;
        let (threads, total) = (stage.threads() as u32, Row::total(&rows));
        let point = Point {
            phase: stage.phase.clone(),
            settings: stage.at.clone(),
            workload: None,
            jobs: self.jobs(&rows)?,
            threads,
            depth: stage.depth().into(),
            cpu: self.cores.map(|cores| CpuUse::new(cores, threads, total.iops)),
            total,
            latency: self.latency(None)?,
            schedule: self.schedule()?,
            series: self.series(),
            write_amplification,
            trims: self.aside(|counters| counters.trims.as_ref())?,
            flushes: self.aside(|counters| counters.flushes.as_ref())?,
            pairs: self.pairs(),
            repetitions: Vec::new(),
            spread: None,
            steady: None,
            rows,
        };
        let first_failure = self.seen.iter().find_map(|seen| {
            let label = self.job(seen).targets[seen.target].identity.label();
            let what = seen.counters.first_failure.as_ref()?;
            Some(format!("{label} from core {}: {what}", seen.core))
        });
        let unjudged = self.seen.iter().map(|seen| seen.counters.unjudged).sum();
        Ok(Outcome { point, first_failure, unjudged })
    }

    /// Each job by itself, where there are several.
    fn jobs(&self, rows: &[Row]) -> Result<Vec<JobFigures>> {
        if self.stage.jobs.len() < 2 {
            return Ok(Vec::new());
        }
        let figures = |(index, job): (usize, &Job)| {
            let own = self.seen.iter().zip(rows).filter(|(seen, _)| seen.job == index);
            let own: Vec<Row> = own.map(|(_, row)| row.clone()).collect();
            Ok(JobFigures {
                name: job.name.clone().unwrap_or_default(),
                threads: job.threads() as u32,
                depth: job.depth.into(),
                workload: job.workload.clone(),
                total: Row::total(&own),
                latency: self.latency(Some(index))?,
            })
        };
        self.stage.jobs.iter().enumerate().map(figures).collect()
    }

    /// How the rate was kept, if there was one.
    fn schedule(&self) -> Result<Option<Schedule>> {
        let rates: Vec<f64> = self.stage.jobs.iter().filter_map(Job::asked).collect();
        // Of jobs of which some have none there is no rate to keep.
        if rates.len() < self.stage.jobs.len() {
            return Ok(None);
        }
        let mut latencies = histogram()?;
        for device in self.seen.iter().filter_map(|seen| seen.counters.from_submission.as_ref()) {
            latencies.add(&device.latencies)?;
        }
        let overdue = self.seen.iter().map(|seen| seen.counters.overdue).sum();
        let seconds = self.seen.iter().map(|seen| seen.seconds).fold(0.0, f64::max);
        Ok(Some(Schedule::new(rates.iter().sum(), seconds, overdue, &latencies)))
    }

    /// What there was of pairs, where they are measured.
    fn pairs(&self) -> Option<PairFigures> {
        let misses = self.seen.iter().filter_map(|seen| seen.counters.misses).reduce(|sum, own| sum + own)?;
        let listed = self.seen.iter().map(|seen| seen.counters.listed).sum();
        Some(PairFigures { misses, listed })
    }

    /// Commands that are counted apart, where there are some.
    fn aside(&self, of: fn(&Counters) -> Option<&Histogram<u64>>) -> Result<Option<CommandFigures>> {
        let mut all: Option<Histogram<u64>> = None;
        for latencies in self.seen.iter().filter_map(|seen| of(&seen.counters)) {
            match &mut all {
                None => all = Some(latencies.clone()),
                Some(sum) => sum.add(latencies)?,
            }
        }
        Ok(all.map(|all| CommandFigures::from_histogram_ns(&all)))
    }

    /// The latency of a job, or of all of them.
    fn latency(&self, job: Option<usize>) -> Result<Option<Latency>> {
        let (mut reads, mut writes) = (histogram()?, histogram()?);
        let mut shares = Vec::new();
        for seen in self.seen.iter().filter(|seen| job.is_none_or(|job| job == seen.job)) {
            reads.add(&seen.counters.reads)?;
            writes.add(&seen.counters.writes)?;
            shares.push(self.job(seen).mix.read_percent);
        }
        let all = |share| shares.iter().all(|&own| own == share);
        Ok(match () {
            () if all(0) => Latency::from_histogram_ns(&writes),
            () if all(100) => Latency::from_histogram_ns(&reads),
            () => Latency::from_read_and_write_ns(&reads, &writes),
        })
    }

    /// The rate and what goes with it over time, as far as every lane has come.
    fn series(&self) -> Vec<Sample> {
        let interval_ns = self.seen.iter().map(|seen| seen.counters.interval_ns()).max().unwrap_or(1);
        let measured = self.seen.iter().map(|seen| seen.seconds).fold(f64::INFINITY, f64::min);
        let measured_ns = (measured * 1e9 * 1.000_001) as u64;
        let mut slices = vec![Slice::default(); (measured_ns / interval_ns.max(1)).min(SERIES_MAX) as usize];
        for seen in self.seen {
            let (mut own, mut own_ns) = (seen.counters.intervals.clone(), seen.counters.interval_ns());
            while own_ns < interval_ns {
                halve(&mut own);
                own_ns *= 2;
            }
            slices.iter_mut().zip(&own).for_each(|(slice, own)| slice.add(own));
        }
        let warmup_ns = self.stage.jobs.first().map_or(0, |job| job.warmup.as_nanos() as u64);
        let interval = interval_ns as f64 / 1e9;
        let sample = |(index, slice): (usize, &Slice)| {
            let from_ns = warmup_ns + index as u64 * interval_ns;
            let us = |ns: f64| (slice.commands > 0).then_some(ns / 1e3);
            Sample {
                second: (index + 1) as f64 * interval,
                iops: slice.commands as f64 / interval,
                latency_us_average: us(slice.latency_ns as f64 / slice.commands.max(1) as f64),
                latency_us_max: us(slice.latency_max_ns as f64),
                write_amplification: self.amplification(from_ns..from_ns + interval_ns),
            }
        };
        slices.iter().enumerate().map(sample).collect()
    }

    /// What flash wrote between two looks at it that are nearest to the ends of an interval.
    fn amplification(&self, interval: Range<u64>) -> Option<f64> {
        let nearest = |ns: u64| self.written.iter().min_by_key(|(at, _)| at.abs_diff(ns));
        let ((from, before), (until, after)) = (nearest(interval.start)?, nearest(interval.end)?);
        // A look that is far off says nothing of this interval.
        let close = |at: u64, ns: u64| at.abs_diff(ns) <= (interval.end - interval.start) / 2;
        match close(*from, interval.start) && close(*until, interval.end) {
            true => write_amplification(*before, *after),
            false => None,
        }
    }
}

/// Measures the loop of a stage's first job with no device, on the first core. `None` with `--verify`: there
/// is no data to check; and on a machine so busy that the loop hardly ran. Errors: when buffers cannot be
/// had.
pub(super) fn harness(session: &Session, stage: &Stage) -> Result<Option<HarnessCost>> {
    let Some(job) = stage.jobs.first() else { return Ok(None) };
    let Some(target) = job.targets.first().filter(|target| target.ledger.is_none()) else { return Ok(None) };
    // What the loop costs this machine is nothing to the model.
    // And a trace is gone through once; of pairs it is another loop.
    if session.virtual_time.is_some() || job.replay_of(target.unit).is_some() || job.has_pairs() {
        return Ok(None);
    }
    let from_ns = HARNESS_WARMUP.as_nanos() as u64;
    let time = HARNESS_TIME.min(job.time.unwrap_or(HARNESS_TIME));
    let interval = (time / INTERVALS as u32).max(Duration::from_micros(50));
    let interval_ns = interval.as_nanos() as u64;
    let until_ns = from_ns + time.as_nanos() as u64;
    let window = Window { from_ns, until_ns, interval_ns, intervals_max: INTERVALS + 1 };
    let (counters, processor) = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cores::bind(job.cores[0])?;
            let queue = target.block()?.queue(&QueueOptions { depth: 1, ..QueueOptions::default() })?;
            let plan = Plan { counters: Counters::new(window)?, ..plan(job, target, 0, 0)? };
            let mut lanes = [Lane::on_nothing(&queue, plan)?];
            let marks = Marks { until_ns, next_ns: from_ns, interval_ns: u64::MAX, is_limited: false };
            let mut began = None;
            let look = |_| began = began.or_else(|| Some(processor_ns()));
            let end_ns = turn_until((&mut lanes, None), Watch::wall(), marks, &|| false, look)?;
            let processor = began.map(|began| processor_ns().saturating_sub(began));
            let [mut lane] = lanes;
            lane.close(end_ns);
            anyhow::Ok((lane.into_counters(), processor))
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    // Processor time of the thread, not time that passed: other threads that run on the core are not a cost
    // of the loop.
    let commands = counters.reads.len() + counters.writes.len();
    let Some(ns) = processor.filter(|_| commands >= HARNESS_COMMANDS_MIN) else { return Ok(None) };
    let ns_per_op = ns.max(1) as f64 / commands as f64;
    Ok(Some(HarnessCost { depth: job.depth.into(), ops_per_second: 1e9 / ns_per_op, ns_per_op }))
}

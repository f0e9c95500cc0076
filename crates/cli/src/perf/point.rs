//! One point: threads that measure, and what the report says about them.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use unvme::QueueOptions;

use super::addresses::{Addresses, Random};
use super::cores;
use super::counters::{Counters, FromSubmission, Window, histogram};
use super::job::{Job, Shape, Target};
use super::lane::{Lane, Plan};
use super::pace::Pace;
use super::progress::PAUSE;
use super::watch::Watch;
use crate::report::{HarnessCost, Latency, Point, Row, RowRates, Sample, Schedule};

/// Idle turns between two looks at the watch.
const TURNS_PER_LOOK: u32 = 64;
/// Longest measurement of the loop without a device, and how long it runs before.
const HARNESS_TIME: Duration = Duration::from_millis(200);
const HARNESS_WARMUP: Duration = Duration::from_millis(20);
/// Intervals of the rate over time: no shorter than this, and no more than these.
const INTERVAL_MIN: Duration = Duration::from_millis(20);
const INTERVALS: usize = 20;

/// What one lane came to.
struct Seen {
    /// Index of the namespace.
    target: usize,
    core: usize,
    counters: Counters,
    /// Measured time.
    seconds: f64,
}

/// A point, and the first thing that went wrong in it.
pub(super) struct Outcome {
    pub(super) point: Point,
    pub(super) first_failure: Option<String>,
    /// Reads of data of which nothing is known.
    pub(super) unjudged: u64,
}

fn window(warmup: Duration, time: Duration) -> Window {
    let from_ns = warmup.as_nanos() as u64;
    let most = (time.as_nanos() / INTERVAL_MIN.as_nanos()).max(1) as usize;
    Window { from_ns, until_ns: from_ns + time.as_nanos() as u64, intervals: INTERVALS.min(most) }
}

/// Measures one point. `tick` is called with the elapsed time now and then, if somebody wants to see it.
/// Errors: a queue cannot be made, or the connection to a device fails. Commands that fail are counted
/// instead.
pub(super) fn measure(job: &Job, shape: Shape, tick: Option<&dyn Fn(Duration)>) -> Result<Outcome> {
    let start = Barrier::new(shape.threads);
    let before = job.written();
    // Set when a thread gives up, so that the others do not go on for nothing.
    let abort = AtomicBool::new(false);
    let results: Vec<Result<Vec<Seen>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..shape.threads)
            .map(|index| {
                let (start, abort) = (&start, &abort);
                scope.spawn(move || {
                    let result = work(job, shape, index, start, abort);
                    if result.is_err() {
                        abort.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        if let Some(tick) = tick {
            let watch = Watch::start(job.virtual_time.as_ref());
            while threads.iter().any(|thread| !thread.is_finished()) {
                thread::sleep(PAUSE);
                tick(Duration::from_nanos(watch.ns()));
            }
        }
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let mut seen = Vec::new();
    for result in results {
        seen.extend(result?);
    }
    // By namespace, then by core, as the document has it.
    seen.sort_by_key(|seen| (seen.target, seen.core));
    summarize(job, shape, &seen, write_amplification(before, job.written()))
}

/// A thread: its lanes, for as long as the window says.
fn work(job: &Job, shape: Shape, index: usize, start: &Barrier, abort: &AtomicBool) -> Result<Vec<Seen>> {
    let core = job.cores[index];
    let lanes = cores::bind(core).and_then(|()| open_lanes(job, shape, index));
    // Whatever came of it: the others wait.
    start.wait();
    let mut lanes = lanes?;
    let window = window(job.warmup, job.time);
    let watch = Watch::start(job.virtual_time.as_ref());
    let stop = || job.is_stopped() || abort.load(Ordering::Relaxed);
    let end_ns = turn_until(&mut lanes, watch, window.until_ns, &stop)?;
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
    let seen =
        |(target, lane): (usize, Lane<'_>)| Seen { target, core, counters: lane.into_counters(), seconds };
    Ok(lanes.into_iter().enumerate().map(seen).collect())
}

/// Keeps the lanes busy. Returns when the measurement ended.
fn turn_until(
    lanes: &mut [Lane<'_>],
    watch: Watch<'_>,
    until_ns: u64,
    stop: &impl Fn() -> bool,
) -> Result<u64> {
    if watch.is_virtual() {
        return step_until(lanes, watch, until_ns, stop);
    }
    let mut idle = 0;
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
        if now >= until_ns {
            return Ok(until_ns);
        }
        if stop() {
            return Ok(now);
        }
    }
}

/// As [`turn_until`], in virtual time: it goes on when nothing is left to do at a time.
fn step_until(
    lanes: &mut [Lane<'_>],
    watch: Watch<'_>,
    until_ns: u64,
    stop: &impl Fn() -> bool,
) -> Result<u64> {
    loop {
        let now = watch.ns();
        if now >= until_ns {
            return Ok(until_ns);
        }
        if stop() {
            return Ok(now);
        }
        let mut moved = false;
        for lane in lanes.iter_mut() {
            moved |= lane.step(watch)?;
        }
        if !moved {
            let admission_ns = lanes.iter().filter_map(Lane::next_admission_ns).min();
            watch.pass(Some(admission_ns.map_or(until_ns, |ns| ns.min(until_ns))));
        }
    }
}

fn open_lanes<'a>(job: &'a Job, shape: Shape, index: usize) -> Result<Vec<Lane<'a>>> {
    let lanes = (shape.threads * job.targets.len()) as f64;
    let open = |(place, target): (usize, &'a Target)| {
        let block = target.block()?;
        let mut plan = plan(job, target, shape, index)?;
        if let Some(iops) = job.rate {
            // From the other end: addresses have the first streams of the seed.
            let stream = u64::MAX - (index * job.targets.len() + place) as u64;
            let random = Random::new(job.mix.seed, stream);
            plan.pace = Some(Pace::new(iops as f64 / lanes, job.arrivals, random));
            plan.counters.from_submission = Some(FromSubmission::new(window(job.warmup, job.time))?);
        }
        Lane::on_device(&block, plan)
    };
    job.targets.iter().enumerate().map(open).collect()
}

fn plan<'a>(job: &Job, target: &'a Target, shape: Shape, index: usize) -> Result<Plan<'a>> {
    let stream = index as u64;
    let share = share(target.units, stream, shape.threads as u64);
    let addresses = match &target.ledger {
        // A share for each thread: what one expects to read nobody else writes.
        Some(_) => Addresses::new(&job.mix, share, stream, 0)?,
        None => Addresses::new(&job.mix, 0..target.units, stream, share.start)?,
    };
    let counters = Counters::new(window(job.warmup, job.time))?;
    let ledger = target.ledger.as_ref();
    let device = target.identity.name.as_str();
    let placements = job.placements(stream);
    Ok(Plan {
        device,
        depth: shape.depth,
        queue_depth_max: target.queue_depth_max(),
        unit: target.unit,
        addresses,
        placements,
        ledger,
        counters,
        pace: None,
    })
}

fn share(units: u64, index: u64, count: u64) -> Range<u64> {
    let each = units / count;
    index * each..(index + 1) * each
}

/// Of bytes written by hosts and by the flash, before and after.
fn write_amplification(before: (u64, u64), after: (u64, u64)) -> Option<f64> {
    let (host, media) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    (host > 0).then(|| media as f64 / host as f64)
}

fn summarize(job: &Job, shape: Shape, seen: &[Seen], write_amplification: Option<f64>) -> Result<Outcome> {
    let io_bytes = job.workload.io_bytes;
    let (mut reads, mut writes) = (histogram()?, histogram()?);
    let mut rows = Vec::new();
    for seen in seen {
        let counters = &seen.counters;
        reads.add(&counters.reads)?;
        writes.add(&counters.writes)?;
        let mut both = counters.reads.clone();
        both.add(&counters.writes)?;
        let rates = RowRates {
            seconds: seen.seconds,
            io_bytes,
            errors: counters.errors,
            miscompares: counters.miscompares,
        };
        let label = job.targets[seen.target].identity.label();
        rows.push(Row::from_histogram_ns(label, seen.core as u32, &both, rates));
    }
    let point = Point {
        phase: None,
        threads: shape.threads as u32,
        depth: shape.depth.into(),
        total: Row::total(&rows),
        latency: latency(job, &reads, &writes),
        schedule: schedule(job, seen)?,
        series: series(job, seen),
        write_amplification,
        repetitions: Vec::new(),
        spread: None,
        rows,
    };
    let first_failure = seen.iter().find_map(|seen| {
        let label = job.targets[seen.target].identity.label();
        let what = seen.counters.first_failure.as_ref()?;
        Some(format!("{label} from core {}: {what}", seen.core))
    });
    let unjudged = seen.iter().map(|seen| seen.counters.unjudged).sum();
    Ok(Outcome { point, first_failure, unjudged })
}

/// How the rate was kept, if there was one.
fn schedule(job: &Job, seen: &[Seen]) -> Result<Option<Schedule>> {
    let Some(rate) = job.rate else { return Ok(None) };
    let mut latencies = histogram()?;
    for device in seen.iter().filter_map(|seen| seen.counters.from_submission.as_ref()) {
        latencies.add(&device.latencies)?;
    }
    let overdue = seen.iter().map(|seen| seen.counters.overdue).sum();
    let seconds = seen.iter().map(|seen| seen.seconds).fold(0.0, f64::max);
    Ok(Some(Schedule::new(rate as f64, seconds, overdue, &latencies)))
}

fn latency(job: &Job, reads: &Histogram<u64>, writes: &Histogram<u64>) -> Option<Latency> {
    match job.mix.read_percent {
        0 => Latency::from_histogram_ns(writes),
        100 => Latency::from_histogram_ns(reads),
        _ => Latency::from_read_and_write_ns(reads, writes),
    }
}

/// The rate over time, as far as every lane has come.
fn series(job: &Job, seen: &[Seen]) -> Vec<Sample> {
    let window = window(job.warmup, job.time);
    let interval = job.time.as_secs_f64() / window.intervals as f64;
    let measured = seen.iter().map(|seen| seen.seconds).fold(f64::INFINITY, f64::min);
    let whole =
        (0..window.intervals).take_while(|&index| (index + 1) as f64 * interval <= measured * 1.000_001);
    whole
        .map(|index| {
            let commands: u64 = seen.iter().map(|seen| seen.counters.intervals[index]).sum();
            Sample { second: (index + 1) as f64 * interval, iops: commands as f64 / interval }
        })
        .collect()
}

/// Measures the loop with no device at `depth`, on the first core. `None` with `--verify`: there is no data
/// to check. Errors: when buffers cannot be had.
pub(super) fn harness(job: &Job, depth: u16) -> Result<Option<HarnessCost>> {
    let Some(target) = job.targets.first().filter(|target| target.ledger.is_none()) else { return Ok(None) };
    // What the loop costs this machine is nothing to the model.
    if job.virtual_time.is_some() {
        return Ok(None);
    }
    let window = window(HARNESS_WARMUP, HARNESS_TIME.min(job.time));
    let counters = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cores::bind(job.cores[0])?;
            let queue = target.block()?.queue(&QueueOptions { depth: 1, ..QueueOptions::default() })?;
            let plan = Plan {
                counters: Counters::new(window)?,
                ..plan(job, target, Shape { threads: 1, depth }, 0)?
            };
            let mut lanes = [Lane::on_nothing(&queue, plan)?];
            let watch = Watch::wall();
            let end_ns = turn_until(&mut lanes, watch, window.until_ns, &|| false)?;
            let [mut lane] = lanes;
            lane.close(end_ns);
            anyhow::Ok(lane.into_counters())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    // The middle of the intervals: whoever else wanted the core for a while is not a cost of the loop.
    let mut intervals = counters.intervals;
    intervals.sort_unstable();
    let commands = intervals[intervals.len() / 2].max(1) as f64;
    let seconds = (window.until_ns - window.from_ns) as f64 / 1e9 / intervals.len() as f64;
    let (ops_per_second, ns_per_op) = (commands / seconds, seconds / commands * 1e9);
    Ok(Some(HarnessCost { depth: depth.into(), ops_per_second, ns_per_op }))
}

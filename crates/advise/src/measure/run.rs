//! One measurement of a layout.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use unvme::worker::{CompletionThread, Done, SharedQueue};
use unvme::{Error, Result, lock};

use super::lane::{Flight, Lane, phase};
use super::{Completing, Placed, Sample, Subject};
use crate::ping::{join, pin};

/// Polls that find nothing before the thread lets others run.
const IDLE_POLLS: u32 = 64;
/// How long commands may take to end after a measurement.
const DRAIN: Duration = Duration::from_secs(10);
/// Interval of checks for signals and failures, and of those for the start of all threads.
const STEP: Duration = Duration::from_millis(20);
const START_STEP: Duration = Duration::from_micros(50);

/// How a layout is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Commands that each queue keeps outstanding.
    pub depth: u16,
    /// Time before it is measured.
    pub warmup: Duration,
    /// Time of the measurement.
    pub time: Duration,
    /// Where the addresses begin.
    pub seed: u64,
    /// Ends the measurement early when it becomes true.
    pub stop: Option<&'a AtomicBool>,
}

/// Measures a layout of `subjects` once.
///
/// # Errors
/// A queue or a thread cannot be made; a CPU cannot be used; a command fails, or does not end.
pub fn measure(subjects: &[Subject], layout: &[Placed], options: Options<'_>) -> Result<Sample> {
    let phase = Arc::new(AtomicU8::new(phase::WARMUP));
    let open = |(place, placed): (usize, &Placed)| {
        let subject = subjects.get(placed.device).ok_or_else(|| {
            Error::Argument(format!("device {} of {} is in the layout", placed.device, subjects.len()))
        })?;
        let seed = options.seed.wrapping_add((place as u64) << 32);
        Lane::open(subject, *placed, options.depth, seed, &phase)
    };
    let lanes = layout.iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
    let threads = start_completion_threads(&lanes)?;
    let mut by_cpu: BTreeMap<u32, Vec<Lane<'_>>> = BTreeMap::new();
    for lane in lanes {
        by_cpu.entry(lane.submit).or_default().push(lane);
    }
    let control = Control { phase: &phase, ready: AtomicUsize::new(0), failed: AtomicBool::new(false) };
    let count = by_cpu.len();
    let (elapsed, ended) = thread::scope(|scope| {
        let mut submitters = Vec::new();
        let mut failed = None;
        for (cpu, lanes) in by_cpu {
            let control = &control;
            let builder = thread::Builder::new().name(format!("advise{cpu}"));
            match builder.spawn_scoped(scope, move || control.submit(cpu, lanes)) {
                Ok(thread) => submitters.push(thread),
                Err(source) => {
                    control.failed.store(true, Ordering::SeqCst);
                    failed = Some(Error::Io { what: "start a thread".into(), source });
                    break;
                }
            }
        }
        while control.ready.load(Ordering::Acquire) < count && !control.is_over(options.stop) {
            thread::sleep(START_STEP);
        }
        control.wait(options.warmup, options.stop);
        let began = Instant::now();
        phase.store(phase::MEASURE, Ordering::SeqCst);
        control.wait(options.time, options.stop);
        phase.store(phase::STOP, Ordering::SeqCst);
        let elapsed = began.elapsed();
        let ended: Vec<Ended<'_>> = submitters.into_iter().map(join).collect();
        (elapsed, failed.map_or(Ok(ended), Err))
    });
    drop(threads);
    sample(elapsed, ended?)
}

/// What all threads of a measurement share.
struct Control<'a> {
    phase: &'a AtomicU8,
    /// Submitting threads that are on their CPUs, or have failed.
    ready: AtomicUsize,
    /// A thread has failed: the others end.
    failed: AtomicBool,
}

/// What a submitting thread hands back.
struct Ended<'a> {
    /// Open until the completion threads have ended, which serve them.
    lanes: Vec<Lane<'a>>,
    on_cpu: f64,
    error: Option<Error>,
}

fn sample(elapsed: Duration, mut ended: Vec<Ended<'_>>) -> Result<Sample> {
    if let Some(error) = ended.iter_mut().find_map(|ended| ended.error.take()) {
        return Err(error);
    }
    let mut all: Option<Histogram<u64>> = None;
    let mut completed = 0;
    for lane in ended.iter().flat_map(|ended| &ended.lanes) {
        let record = lock(&lane.flight.record);
        completed += record.completed;
        match &mut all {
            None => all = Some(record.latency_ns.clone()),
            Some(all) => {
                all.add(&record.latency_ns).map_err(|e| Error::Argument(format!("add up latencies: {e}")))?
            }
        }
    }
    let all = all.filter(|all| !all.is_empty());
    let at = |quantile: f64| all.as_ref().map(|all| all.value_at_quantile(quantile) as f64 / 1e3);
    Ok(Sample {
        iops: completed as f64 / elapsed.as_secs_f64().max(1e-9),
        mean_us: all.as_ref().map(|all| all.mean() / 1e3),
        p99_us: at(0.99),
        p9999_us: at(0.9999),
        max_us: all.as_ref().map(|all| all.max() as f64 / 1e3),
        on_cpu: ended.iter().map(|ended| ended.on_cpu).fold(1.0, f64::min),
    })
}

/// Queues that a completion thread serves, and what is in flight on each.
type Served = BTreeMap<u32, (Vec<Arc<SharedQueue>>, Vec<Arc<Flight>>)>;

fn start_completion_threads(lanes: &[Lane<'_>]) -> Result<Vec<CompletionThread>> {
    let mut served = Served::new();
    for lane in lanes {
        if let Completing::Thread(cpu) = lane.complete {
            let (queues, flights) = served.entry(cpu).or_default();
            queues.push(Arc::clone(lane.queue()));
            flights.push(Arc::clone(&lane.flight));
        }
    }
    let start = |(cpu, (queues, flights)): (u32, (_, Vec<Arc<Flight>>))| {
        let deliver = Box::new(move |place: usize, done: &mut Vec<Done>| flights[place].complete(done));
        CompletionThread::start(cpu, true, queues, Some(deliver))
    };
    served.into_iter().map(start).collect()
}

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
}

impl Control<'_> {
    fn is_over(&self, stop: Option<&AtomicBool>) -> bool {
        self.failed.load(Ordering::Relaxed) || stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Waits for `time`, or until a thread fails or the measurement is stopped.
    fn wait(&self, time: Duration, stop: Option<&AtomicBool>) {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_over(stop) {
                return;
            }
            thread::sleep(left.min(STEP));
        }
    }

    /// Submits to the queues of one CPU until the measurement ends, then waits for what is in flight.
    fn submit<'a>(&self, cpu: u32, mut lanes: Vec<Lane<'a>>) -> Ended<'a> {
        let pinned = pin(cpu);
        self.ready.fetch_add(1, Ordering::Release);
        let ran = pinned.and_then(|()| self.run(cpu, &mut lanes));
        let (on_cpu, error) = match ran.and_then(|on_cpu| drain(&mut lanes).map(|()| on_cpu)) {
            Ok(on_cpu) => (on_cpu, lanes.iter().find_map(Lane::failure)),
            Err(error) => (0.0, Some(error)),
        };
        if error.is_some() {
            self.failed.store(true, Ordering::Relaxed);
        }
        Ended { lanes, on_cpu, error }
    }

    /// Submits until the measurement ends; returns the share of the time in which the thread had its CPU.
    fn run(&self, cpu: u32, lanes: &mut [Lane<'_>]) -> Result<f64> {
        // A completion thread on the same CPU runs only when this one lets it.
        let shares = lanes.iter().any(|lane| lane.complete == Completing::Thread(cpu));
        let mut measured: Option<(Instant, Duration)> = None;
        let mut idle = 0u32;
        while !self.failed.load(Ordering::Relaxed) {
            match self.phase.load(Ordering::Relaxed) {
                phase::STOP => break,
                phase::MEASURE if measured.is_none() => {
                    measured = Some((Instant::now(), processor_time()));
                }
                _ => {}
            }
            let mut moved = false;
            for lane in &mut *lanes {
                moved |= lane.turn()?;
            }
            idle = if moved { 0 } else { idle.wrapping_add(1) };
            if idle > 0 && (shares || idle.is_multiple_of(IDLE_POLLS)) {
                thread::yield_now();
            } else if idle > 0 {
                std::hint::spin_loop();
            }
        }
        let Some((began, processor)) = measured else { return Ok(0.0) };
        let used = processor_time().saturating_sub(processor).as_secs_f64();
        Ok((used / began.elapsed().as_secs_f64().max(1e-9)).min(1.0))
    }
}

fn drain(lanes: &mut [Lane<'_>]) -> Result<()> {
    let began = Instant::now();
    for lane in lanes {
        while lane.outstanding() > 0 {
            if !lane.poll() {
                thread::yield_now();
            }
            if began.elapsed() > DRAIN {
                return Err(Error::Argument(format!(
                    "{} commands did not end within {} seconds of the measurement",
                    lane.outstanding(),
                    DRAIN.as_secs()
                )));
            }
        }
    }
    Ok(())
}

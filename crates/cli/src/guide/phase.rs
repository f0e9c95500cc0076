//! Phases of a program: all threads do one thing at the same time, and what came of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use unvme_guide::session::QueueKind;

use super::lane::{Expect, Lane, Outcome, Request};
use super::record::Record;
use crate::perf::{self, Progress};

/// Pause between two looks at how far the threads are.
const LOOK: Duration = Duration::from_millis(100);

/// What all threads did in one phase.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) name: String,
    /// The how manieth time it was done, from 0.
    pub(crate) test: u32,
    /// What each thread came to.
    pub(crate) lanes: Vec<LaneOutcome>,
}

/// What a thread did in a phase.
#[derive(Clone, Debug)]
pub(crate) struct LaneOutcome {
    /// Name of its device.
    pub(crate) device: String,
    pub(crate) cpu: u32,
    /// What its queue is.
    pub(crate) queue: QueueKind,
    /// Depth of its queue; 1 for a synchronous one.
    pub(crate) depth: u32,
    /// What it found out, and how long that took.
    pub(crate) outcome: Outcome,
}

impl Phase {
    /// What all threads found out.
    pub(crate) fn record(&self) -> Result<Record> {
        let mut all = Record::new()?;
        self.lanes.iter().for_each(|lane| all.merge(&lane.outcome.record));
        Ok(all)
    }

    /// The sum of the rates of all threads, as the original's blocks have it: more than
    /// [`Self::ops_per_second`] where not all threads were busy all the time.
    pub(crate) fn rates_added(&self) -> f64 {
        self.lanes.iter().map(LaneOutcome::ops_per_second).sum()
    }

    /// Operations per second of all threads together.
    pub(crate) fn ops_per_second(&self) -> f64 {
        rate(&self.lanes)
    }

    /// Operations per second of the threads of one device.
    pub(crate) fn device_ops_per_second(&self, device: &str) -> f64 {
        rate(self.lanes.iter().filter(|lane| lane.device == device))
    }

    /// From the first thread's beginning to the last one's end.
    pub(crate) fn elapsed(&self) -> Duration {
        span(&self.lanes)
    }

    /// The first failure, with what it is about.
    pub(crate) fn failure(&self) -> Option<String> {
        let told = self.lanes.iter().find_map(|lane| {
            let first = lane.outcome.record.first_failure.as_ref()?;
            Some(format!("{}: {}: {first}", self.name, lane.device))
        });
        let miscompares: u64 = self.lanes.iter().map(|lane| lane.outcome.record.miscompares).sum();
        told.or_else(|| {
            (miscompares > 0)
                .then(|| format!("{}: {miscompares} values were not what had been stored", self.name))
        })
    }
}

/// From the first beginning of some threads to the last end.
fn span<'a>(lanes: impl IntoIterator<Item = &'a LaneOutcome, IntoIter: Clone>) -> Duration {
    let lanes = lanes.into_iter();
    let first = lanes.clone().map(|lane| lane.outcome.start).min();
    let last = lanes.map(|lane| lane.outcome.start + lane.outcome.elapsed).max();
    first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first)
}

/// Operations per second of some threads, from the first one's beginning to the last one's end.
fn rate<'a>(lanes: impl IntoIterator<Item = &'a LaneOutcome, IntoIter: Clone>) -> f64 {
    let lanes = lanes.into_iter();
    let operations: u64 = lanes.clone().map(|lane| lane.outcome.record.operations()).sum();
    // As for a single thread.
    operations as f64 / span(lanes).as_secs_f64().max(1e-6)
}

impl LaneOutcome {
    /// Operations per second.
    pub(crate) fn ops_per_second(&self) -> f64 {
        let operations = self.outcome.record.operations() as f64;
        // No test takes no time; one that does not even take a microsecond did nothing.
        operations / self.outcome.elapsed.as_secs_f64().max(1e-6)
    }
}

/// Runs a phase: on each thread what `requests` says for it, by its place. `told` gets each thread's outcome
/// in the thread, as soon as it is there. Errors: when a thread or its memory cannot be had; what devices
/// refuse is in the records.
pub(crate) fn run<R: Iterator<Item = Request>>(
    name: &str,
    test: u32,
    lanes: &[Lane],
    expect: Expect,
    requests: impl Fn(usize) -> R + Sync,
    told: impl Fn(usize, &LaneOutcome) -> Result<()> + Sync,
    progress: Option<&Bar>,
) -> Result<Phase> {
    let done = AtomicU64::new(0);
    let (requests, told, done) = (&requests, &told, &done);
    let lanes = thread::scope(|scope| {
        let threads: Vec<_> = lanes
            .iter()
            .enumerate()
            .map(|(place, lane)| {
                scope.spawn(move || {
                    // A CPU that this process does not have was warned of; the thread runs on any.
                    let _ = perf::bind(lane.cpu as usize);
                    let outcome = lane.run(requests(place), expect, done)?;
                    let outcome = LaneOutcome {
                        device: lane.member.name().to_owned(),
                        cpu: lane.cpu,
                        queue: lane.queue,
                        depth: lane.depth,
                        outcome,
                    };
                    // What is told must not run on in the line of the bar.
                    match progress {
                        Some(bar) => bar.0.aside(|| told(place, &outcome))?,
                        None => told(place, &outcome)?,
                    }
                    Ok(outcome)
                })
            })
            .collect();
        if let Some(bar) = progress.filter(|bar| bar.0.is_shown()) {
            bar.0.say(name.to_owned());
            while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
                bar.0.set(done.load(Ordering::Relaxed));
                thread::sleep(LOOK);
            }
        }
        let join = |thread: thread::ScopedJoinHandle<'_, Result<LaneOutcome>>| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    Ok(Phase { name: name.to_owned(), test, lanes })
}

/// A bar on standard error, for the operations of one phase after the other; nothing when that is no
/// terminal.
#[derive(Debug)]
pub(crate) struct Bar(Progress);

impl Bar {
    pub(crate) fn new(title: &str, operations: u64) -> Self {
        Self(Progress::new(title, operations))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::guide::record::{Kind, PairSize};

    #[test]
    fn threads_that_take_turns_are_no_faster_than_one() -> Result<()> {
        let begin = Instant::now();
        let lane = |device: &str, at: u64| {
            let mut record = Record::new()?;
            (0..100).for_each(|_| {
                record.succeeded(Kind::Store, PairSize::default(), Duration::ZERO, Duration::from_micros(1));
            });
            let start = begin + Duration::from_millis(at);
            Ok(LaneOutcome {
                device: device.to_owned(),
                cpu: 0,
                queue: QueueKind::Sync,
                depth: 1,
                outcome: Outcome { record, start, elapsed: Duration::from_millis(10) },
            })
        };
        let lanes = [lane("a", 5), lane("a", 15), lane("b", 20)].into_iter().collect::<Result<_>>()?;
        let phase = Phase { name: String::new(), test: 0, lanes };
        assert_eq!(phase.elapsed(), Duration::from_millis(25));
        assert_eq!(phase.ops_per_second().round(), 12_000.0);
        assert_eq!(phase.device_ops_per_second("a").round(), 10_000.0);
        assert_eq!(phase.device_ops_per_second("c"), 0.0);
        assert_eq!(phase.rates_added().round(), 30_000.0);
        Ok(())
    }
}

//! Completion threads.
//!
//! A thread serves some lanes of some devices: it lets host-driven devices work, takes what has completed and calls the
//! handler. Something is always expected to come soon after something came: it looks for a while, for as long as it has
//! lately taken until there was something. Then it sleeps.
//!
//! What wakes it depends on the device. One that runs by itself interrupts. One inside this process makes progress only
//! when somebody lets it, so while commands are outstanding there the thread does not sleep, except for moments once
//! nothing has happened for long; without any it sleeps until a submitter wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Member;
use super::lane::{BATCH, Ended, Lane};
use super::patience::Patience;
use super::sleeper::Sleeper;
use unvme::{Error, Result};

/// Longest look for something to come, and the look of a thread for which that would not have been enough.
const SPIN_MAX: Duration = Duration::from_micros(50);
const SPIN_MIN: Duration = Duration::from_micros(5);
/// Sleeps end now and then where a device interrupts: one that has died does not.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Sleeps of a thread that is woken for everything.
const LONG_SLEEP: Duration = Duration::from_secs(60);
/// Weight of the past in the learnt time until something comes: 7/8.
const LEARN_SHIFT: u32 = 3;

/// A running completion thread.
pub(super) struct Completer {
    sleeper: Arc<Sleeper>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a thread works on: members, and which of their lanes.
pub(super) type Rounds = Vec<(Arc<Member>, usize)>;

impl Completer {
    /// Starts a thread, pinned to `cpu` where that is possible.
    pub(super) fn start(cpu: u32, pin: bool, sleeper: Arc<Sleeper>, rounds: Rounds) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut work = Work {
            rounds,
            sleeper: Arc::clone(&sleeper),
            stop: Arc::clone(&stop),
            batch: Vec::with_capacity(BATCH),
            learnt: Duration::ZERO,
        };
        let thread = thread::Builder::new()
            .name(format!("unvme-cq{cpu}"))
            .spawn(move || {
                if pin {
                    pin_to(cpu);
                }
                work.run();
            })
            .map_err(|source| Error::Io { what: "start a completion thread".into(), source })?;
        Ok(Self { sleeper, stop, thread: Some(thread) })
    }

    /// Ends the thread, which has nothing to do any more. From within it, it ends when it gets that far.
    pub(super) fn stop(&mut self) {
        // Sequentially consistent: the fence that `Sleeper::wake` wants before it.
        self.stop.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.sleeper.wake();
        let Some(thread) = self.thread.take() else { return };
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("a completion thread has panicked");
        }
    }
}

/// Best effort: a thread that stays where the system puts it does the same, only elsewhere.
fn pin_to(cpu: u32) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    if let Err(e) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(cpu, error = %e, "pin a completion thread");
    }
}

struct Work {
    rounds: Rounds,
    sleeper: Arc<Sleeper>,
    stop: Arc<AtomicBool>,
    batch: Vec<Ended>,
    /// Learnt time from nothing being there until something comes.
    learnt: Duration,
}

impl Work {
    fn run(&mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            if self.round() == 0 {
                self.wait();
            }
        }
    }

    /// Serves each lane once; returns the number of operations.
    fn round(&mut self) -> usize {
        let Self { rounds, batch, .. } = self;
        rounds.iter().map(|(member, lane)| member.process(member.lane(*lane), batch)).sum()
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.rounds.iter().map(|(member, lane)| member.lane(*lane))
    }

    /// Something outstanding nobody will announce: it has to be looked for.
    fn must_look(&self) -> bool {
        self.lanes().any(|lane| lane.interrupt().is_none() && lane.outstanding() > 0)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Nothing was there: waits until something has come and has been dealt with.
    fn wait(&mut self) {
        let started = Instant::now();
        let expected = self.learnt * 2;
        let budget = if expected <= SPIN_MAX { expected.max(SPIN_MIN) } else { SPIN_MIN };
        if !self.look_for(budget) {
            while !self.is_stopped() && !self.sleep_once() {}
        }
        let took = started.elapsed();
        self.learnt = self.learnt - self.learnt / (1 << LEARN_SHIFT) + took / (1 << LEARN_SHIFT);
    }

    /// Looks until something comes (true) or, when nothing has to be looked for any more, `budget` has passed.
    fn look_for(&mut self, budget: Duration) -> bool {
        let Some((member, lane)) = self.rounds.first().cloned() else { return false };
        let mut patience = Patience::new(member.lane(lane).advancer());
        let started = Instant::now();
        loop {
            patience.pause();
            if self.is_stopped() || self.round() > 0 {
                return true;
            }
            if !self.must_look() && started.elapsed() >= budget {
                return false;
            }
        }
    }

    /// Sleeps once. True when something had come, before or after.
    fn sleep_once(&mut self) -> bool {
        // First the counters, then a look, then the sleep: an interrupt after the look leaves its counter set.
        let mut interrupted = false;
        for lane in self.lanes() {
            if let Some(interrupt) = lane.interrupt() {
                interrupt.drain();
                interrupted = true;
            }
        }
        if self.round() > 0 {
            return true;
        }
        let limit = if interrupted { SLEEP_MAX } else { LONG_SLEEP };
        // What others have taken off a queue since the look brings no interrupt any more.
        let is_needed = || self.is_stopped() || self.must_look() || self.lanes().any(Lane::has_ended);
        self.sleeper.sleep(self.lanes().filter_map(Lane::interrupt), limit, is_needed);
        for lane in self.lanes() {
            lane.check();
        }
        self.round() > 0 || (self.must_look() && self.look_for(Duration::ZERO))
    }
}

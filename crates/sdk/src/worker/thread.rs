//! Completion threads.
//!
//! A thread serves some queues of some workers: it lets host-driven devices work, takes what has completed
//! and hands it on. Something is always expected to come soon after something came: it looks for a while, for
//! as long as it has lately taken until there was something. Then it sleeps.
//!
//! What wakes it depends on the device. One that runs by itself interrupts. One inside this process makes
//! progress only when somebody lets it, so while commands are outstanding there the thread does not sleep,
//! except for moments once nothing has happened for long; without any it sleeps until a submitter wakes it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::command::Done;
use super::queue::{BATCH, SharedQueue};
use super::sleeper::Sleeper;
use crate::{Error, Result};

/// Longest look for something to come, and the look of a thread for which that would not have been enough.
const SPIN_MAX: Duration = Duration::from_micros(50);
const SPIN_MIN: Duration = Duration::from_micros(5);
/// Sleeps end now and then where a device interrupts: one that has died does not.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Sleeps of a thread that is woken for everything.
const LONG_SLEEP: Duration = Duration::from_secs(60);
/// Weight of the past in the learnt time until something comes: 7/8.
const LEARN_SHIFT: u32 = 3;

/// What a completion thread does with what it takes off the queue of that place: it leaves nothing in the
/// list.
pub type Deliver = Box<dyn FnMut(usize, &mut Vec<Done>) + Send>;

/// A thread that serves queues: it sleeps while there is nothing to do, and wakes up for completions.
///
/// With a function to deliver to, that is called with what was submitted with tokens; without, this is left
/// for those who poll. Either way calls are answered and futures woken. It ends when this is dropped, which
/// is for when its queues are not used any more: futures on them would wait for it for ever.
pub struct CompletionThread {
    sleeper: Arc<Sleeper>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CompletionThread {
    /// Starts a thread that serves these queues for as long as they are used: futures and sleepers rely on
    /// it. It is named after `cpu`, and pinned to it with `pin` where that is possible. Queues that have a
    /// thread already keep it.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Driver`] when the system has no thread or descriptor left.
    pub fn start(
        cpu: u32,
        pin: bool,
        queues: Vec<Arc<SharedQueue>>,
        deliver: Option<Deliver>,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let sleeper = Arc::new(Sleeper::new()?);
        let served = queues.clone();
        let mut work = Work {
            queues,
            deliver,
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
        served.iter().for_each(|queue| queue.serve_by(&sleeper));
        // It may have gone to sleep over what came before submitters knew whom to wake.
        fence(Ordering::SeqCst);
        sleeper.wake();
        Ok(Self { sleeper, stop, thread: Some(thread) })
    }

    /// Ends the thread, which has nothing to do any more. From within it, it ends when it gets that far.
    pub fn stop(&mut self) {
        // Sequentially consistent: the fence that `Sleeper::wake` wants before it.
        self.stop.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.sleeper.wake();
        let Some(thread) = self.thread.take() else { return };
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("a completion thread has panicked");
        }
    }
}

impl Drop for CompletionThread {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for CompletionThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionThread").finish_non_exhaustive()
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
    queues: Vec<Arc<SharedQueue>>,
    deliver: Option<Deliver>,
    sleeper: Arc<Sleeper>,
    stop: Arc<AtomicBool>,
    batch: Vec<Done>,
    /// Learnt time from nothing being there until something comes.
    learnt: Duration,
}

impl Work {
    fn run(&mut self) {
        while !self.is_stopped() {
            if !self.round() {
                self.wait();
            }
        }
    }

    /// Serves each queue once; true when there was something.
    fn round(&mut self) -> bool {
        let Self { queues, deliver, batch, .. } = self;
        let mut found = false;
        for (place, queue) in queues.iter().enumerate() {
            found |= match deliver {
                None => queue.tend(),
                Some(deliver) => {
                    let count = queue.harvest(batch);
                    if count > 0 {
                        deliver(place, batch);
                        batch.clear();
                    }
                    queue.delivered(count);
                    count > 0
                }
            };
        }
        found
    }

    /// Something outstanding nobody will announce: it has to be looked for.
    fn must_look(&self) -> bool {
        self.queues.iter().any(|queue| {
            // What is left for pollers is not looked for again.
            let is_awaited = || self.deliver.is_some() || queue.is_awaited();
            queue.interrupt.is_none() && queue.outstanding() > 0 && is_awaited()
        })
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

    /// Looks until something comes (true) or, when nothing has to be looked for any more, `budget` has
    /// passed.
    fn look_for(&mut self, budget: Duration) -> bool {
        let Some(queue) = self.queues.first().cloned() else { return false };
        let mut patience = queue.patience();
        let started = Instant::now();
        loop {
            patience.pause();
            if self.is_stopped() || self.round() {
                return true;
            }
            if !self.must_look() && started.elapsed() >= budget {
                return false;
            }
        }
    }

    /// Sleeps once. True when something had come, before or after.
    fn sleep_once(&mut self) -> bool {
        // First the counters, then a look, then the sleep: an interrupt after the look leaves its counter
        // set.
        let mut interrupted = false;
        for interrupt in self.queues.iter().filter_map(|queue| queue.interrupt.as_ref()) {
            interrupt.drain();
            interrupted = true;
        }
        if self.round() {
            return true;
        }
        let limit = if interrupted { SLEEP_MAX } else { LONG_SLEEP };
        // What others have taken off a queue since the look brings no interrupt any more.
        let delivers = self.deliver.is_some();
        let has_ended = || delivers && self.queues.iter().any(|queue| queue.has_ended());
        let is_needed = || self.is_stopped() || self.must_look() || has_ended();
        let interrupts = self.queues.iter().filter_map(|queue| queue.interrupt.as_ref());
        self.sleeper.sleep(interrupts, limit, is_needed);
        self.queues.iter().for_each(|queue| queue.check());
        self.round() || (self.must_look() && self.look_for(Duration::ZERO))
    }
}

//! Waiting on a queue, of whatever kind: look, sleep, and see to commands that take too long.
//!
//! The loops are here once; a kind of queue says in [`Wait`] how it looks and what it sleeps on. None of this
//! is on the way of a command whose owner only polls, but for the countdown to the next look at the clock.

use std::time::Duration;

use unvme_bus::Clock;
use unvme_spec::{Cid, Qid};

use crate::Error;
use crate::options::{CompletionMode, QueueOptions};
use crate::watch::{Overdue, Watch};

/// Longest sleep: the command time-outs are looked at in between.
pub(crate) const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Rounds of looking between two looks at time-outs and at the controller.
const ROUNDS_TO_ATTEND: u32 = 64;
/// A wait without a look at time-outs, in polls: after 64 of them comes one, whichever kind of queue it is.
const IDLE_WAIT_COST: i32 = 1 << 10;
/// A wait looks for at most this long; commands that take longer are slept for.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// Weight of the past: 7/8.
const LEARN_SHIFT: u32 = 3;

/// A waiting time in nanoseconds, learnt.
#[derive(Debug, Default)]
struct Learnt(u64);

impl Learnt {
    /// How long to look: twice the time learnt. `None` when that is not worth it.
    pub(crate) fn budget(&self) -> Option<Duration> {
        let budget = Duration::from_nanos(self.0.saturating_mul(2));
        (budget <= SPIN_MAX).then(|| budget.max(SPIN_MAX / 10))
    }

    /// Takes note of a wait.
    pub(crate) fn note(&mut self, nanoseconds: u64) {
        self.0 = self.0 - (self.0 >> LEARN_SHIFT) + (nanoseconds >> LEARN_SHIFT);
    }
}

/// What every kind of queue has for whoever waits on it.
pub(crate) struct Waiter {
    pub(crate) id: Qid,
    pub(crate) mode: CompletionMode,
    pub(crate) clock: Clock,
    /// The device works only when it is let: nobody sleeps.
    pub(crate) host_driven: bool,
    /// Counts down to the next look at the clock.
    pub(crate) countdown: i32,
    /// Why the queue does not work any more.
    pub(crate) dead: Option<String>,
    /// What went wrong and nobody has been told yet.
    pub(crate) trouble: Option<Error>,
    pub(crate) watch: Watch,
    learnt: Learnt,
}

impl Waiter {
    pub(crate) fn new(id: Qid, clock: &Clock, options: &QueueOptions) -> Self {
        Self {
            id,
            mode: options.mode,
            clock: clock.clone(),
            host_driven: false,
            countdown: 0,
            dead: None,
            trouble: None,
            watch: Watch::new(options.command_timeout, options.abort_grace),
            learnt: Learnt::default(),
        }
    }

    /// The error of a queue that does not work any more.
    pub(crate) fn gone(&self) -> Option<Error> {
        self.dead.as_ref().map(|reason| Error::Gone { reason: reason.clone() })
    }

    fn elapsed(&self, started: u64) -> Duration {
        Duration::from_nanos(self.clock.now().saturating_sub(started))
    }
}

/// A kind of queue, as far as waiting goes.
pub(crate) trait Wait {
    fn waiter(&self) -> &Waiter;

    fn waiter_mut(&mut self) -> &mut Waiter;

    fn outstanding(&self) -> usize;

    /// Tells the device about everything submitted since the last call.
    fn ring(&mut self) -> Result<(), Error>;

    /// Whether a completion can be taken, after a look for one.
    fn look(&mut self) -> Result<bool, Error>;

    /// Whether a completion can be taken, as far as is known.
    fn is_ready(&self) -> bool;

    /// Whether nothing will complete any more.
    fn is_over(&self) -> bool {
        self.waiter().dead.is_some()
    }

    /// Everything that is not the everyday: broken protocol, resets by others, commands that take too long.
    fn attend(&mut self);

    /// Between two looks of a wait that spins and has so much time left.
    fn pause(&mut self, rounds: u32, left: Duration);

    /// Forgets what the device has signalled so far, ahead of the last look before a sleep: what it signals
    /// after that look ends the sleep.
    fn arm(&mut self) {}

    /// Sleeps until the device signals, or `limit` has passed.
    fn sleep(&mut self, limit: Duration) -> Result<(), Error>;

    /// The next command that takes too long, if it is time to look for one.
    fn overdue(&mut self, now: u64) -> Option<Overdue>;

    /// Asks whoever has a command to end it; whether that helped shows in its completion.
    fn abort(&mut self, cid: Cid) -> Result<(), Error>;

    /// Ends a command that could not be aborted, and whatever has to end with it.
    fn give_up(&mut self, cid: Cid, why: &Error);

    /// As [`crate::Queue::wait`].
    fn wait(&mut self, limit: Duration) -> Result<bool, Error>
    where
        Self: Sized,
    {
        wait(self, limit)
    }

    /// Aborts commands that take too long, and gives up those that cannot even be aborted.
    fn check_time(&mut self)
    where
        Self: Sized,
    {
        check_time(self);
    }
}

fn wait<Q: Wait>(queue: &mut Q, limit: Duration) -> Result<bool, Error> {
    if queue.waiter().countdown < 0 {
        queue.attend();
    }
    queue.ring()?;
    if let Some(e) = queue.waiter_mut().trouble.take() {
        return Err(e);
    }
    if queue.look()? {
        return finish(queue);
    }
    if queue.outstanding() == 0 {
        return queue.waiter().gone().map_or(Ok(false), Err);
    }
    match queue.waiter().mode {
        CompletionMode::Interrupt if !queue.waiter().host_driven => sleep(queue, limit),
        CompletionMode::Hybrid if !queue.waiter().host_driven => spin_or_sleep(queue, limit),
        _ => spin(queue, limit),
    }
}

fn spin<Q: Wait>(queue: &mut Q, limit: Duration) -> Result<bool, Error> {
    let started = queue.waiter().clock.now();
    let mut rounds = 0u32;
    loop {
        if queue.look()? {
            return finish(queue);
        }
        rounds = rounds.wrapping_add(1);
        let is_due = rounds.is_multiple_of(ROUNDS_TO_ATTEND) || queue.waiter().countdown < 0;
        if is_due && attend(queue) {
            return finish(queue);
        }
        let left = limit.saturating_sub(queue.waiter().elapsed(started));
        if left.is_zero() {
            // It counts as polls do that find nothing: also whoever never waits for long looks after the
            // queue.
            queue.waiter_mut().countdown -= IDLE_WAIT_COST;
            return Ok(false);
        }
        queue.pause(rounds, left);
    }
}

fn sleep<Q: Wait>(queue: &mut Q, limit: Duration) -> Result<bool, Error> {
    let started = queue.waiter().clock.now();
    loop {
        queue.arm();
        if queue.look()? || attend(queue) {
            return finish(queue);
        }
        let left = limit.saturating_sub(queue.waiter().elapsed(started));
        if left.is_zero() {
            return Ok(false);
        }
        queue.sleep(left.min(SLEEP_MAX).min(queue.waiter().watch.interval()))?;
    }
}

fn spin_or_sleep<Q: Wait>(queue: &mut Q, limit: Duration) -> Result<bool, Error> {
    let started = queue.waiter().clock.now();
    let spun = match queue.waiter().learnt.budget() {
        Some(budget) => spin(queue, budget.min(limit))?,
        None => false,
    };
    let ready = spun || sleep(queue, limit)?;
    let waiter = queue.waiter_mut();
    waiter.learnt.note(waiter.clock.now().saturating_sub(started));
    Ok(ready)
}

/// Looks at time-outs and at the controller while nothing completes; true when the caller must stop waiting.
fn attend<Q: Wait>(queue: &mut Q) -> bool {
    queue.waiter_mut().countdown = -1;
    queue.attend();
    queue.waiter().trouble.is_some() || queue.is_ready() || queue.is_over()
}

/// The end of a wait: trouble comes first, and what can be taken stays for the next poll.
fn finish<Q: Wait>(queue: &mut Q) -> Result<bool, Error> {
    match queue.waiter_mut().trouble.take() {
        Some(e) => Err(e),
        None => Ok(queue.is_ready()),
    }
}

fn check_time<Q: Wait>(queue: &mut Q) {
    let now = queue.waiter().clock.now();
    while let Some(Overdue { cid, was_aborted }) = queue.overdue(now) {
        let what = format!("command {:#06x} on queue {}", cid.0, queue.waiter().id);
        if was_aborted {
            let why = queue.waiter().watch.timeout(what);
            queue.give_up(cid, &why);
            queue.waiter_mut().trouble = Some(why);
            continue;
        }
        tracing::warn!(what, "no answer: Abort");
        if let Err(e) = queue.abort(cid) {
            // A status leaves the grace period to run; a dead admin queue has led to a reset already.
            tracing::warn!(what, error = %e, "Abort");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_waits_are_looked_for_and_long_ones_are_slept_for() {
        let mut learnt = Learnt::default();
        assert_eq!(learnt.budget(), Some(Duration::from_micros(5)));
        for _ in 0..100 {
            learnt.note(16_000);
        }
        let budget = learnt.budget().expect("worth it");
        assert!((Duration::from_micros(30)..=Duration::from_micros(32)).contains(&budget), "{budget:?}");
        for _ in 0..100 {
            learnt.note(80_000);
        }
        assert_eq!(learnt.budget(), None);
    }
}

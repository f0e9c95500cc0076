//! How a caller waits that nobody wakes: it looks, at first at once, then less and less often; or in another
//! [`Manner`].

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use unvme_bus::Clock;
use unvme_driver::Advancer;

use super::manner::Manner;

/// Rounds without a system call, which a device in this process needs few of.
const SPINS: u32 = 64;
/// Rounds that offer the CPU to others, before the first sleep.
const YIELDS: u32 = 2048;
/// Rounds of somebody who only looks, between two offers of the CPU.
const SPINS_TO_YIELD: u32 = 16;
/// From this waiting time on a caller sleeps between two looks.
const SLEEP_AFTER: Duration = Duration::from_millis(1);
/// Shortest and longest sleep.
const SLEEP_MIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// What a round is worth on a virtual clock, which whoever waits moves.
const ROUND: Duration = Duration::from_micros(1);

/// One wait.
pub struct Patience<'a> {
    advancer: Option<&'a Advancer>,
    rounds: u32,
    since: Option<Instant>,
    manner: Manner<'a>,
    /// The round of a sleep that was to end before the command.
    slept: Option<u32>,
}

impl<'a> Patience<'a> {
    /// A wait for a device; `advancer` is there when it makes progress only inside this process.
    pub(super) fn new(advancer: Option<&'a Advancer>) -> Self {
        Self { advancer, rounds: 0, since: None, manner: Manner::Patient, slept: None }
    }

    /// The same in another manner. Who sleeps until the device interrupts has a bed; here are those for whom
    /// it does not.
    pub(super) fn in_manner(self, manner: Manner<'a>) -> Self {
        let since = matches!(manner, Manner::Hybrid(_)).then(Instant::now);
        Self { manner, since, ..self }
    }

    /// What is waited for was sent at this time.
    pub fn since(self, sent: Instant) -> Self {
        Self { since: Some(sent), ..self }
    }

    /// Passes a moment between two looks.
    pub fn pause(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        if let Manner::Hybrid(habit) = self.manner
            && self.rounds == 1
            && let Some(sleep) = habit.sleep(self.waited())
        {
            self.slept = Some(1);
            self.sleep(sleep);
            self.advancer.map(Advancer::advance);
            return;
        }
        if let Some(advancer) = self.advancer {
            pass_time(Some(advancer));
            if advancer.advance() > 0 {
                return;
            }
        }
        match self.manner {
            Manner::Patient => self.pause_patiently(),
            Manner::Spin | Manner::Hybrid(_) => match self.rounds.is_multiple_of(SPINS_TO_YIELD) {
                true if self.rounds >= SPINS => thread::yield_now(),
                _ => std::hint::spin_loop(),
            },
            Manner::Sleep => {
                let sleep = (self.waited() / 16).clamp(SLEEP_MIN, SLEEP_MAX);
                self.sleep(sleep);
            }
        }
    }

    fn pause_patiently(&mut self) {
        if self.rounds < SPINS {
            std::hint::spin_loop();
            return;
        }
        let waited = self.waited();
        if self.rounds < YIELDS || waited < SLEEP_AFTER {
            thread::yield_now();
            return;
        }
        // A sixteenth of what has passed is little against it, whatever it is.
        thread::sleep((waited / 16).clamp(SLEEP_MIN, SLEEP_MAX));
    }

    fn waited(&mut self) -> Duration {
        self.since.get_or_insert_with(Instant::now).elapsed()
    }

    /// Sleeps to the point. On a virtual clock that time passes at once.
    fn sleep(&self, time: Duration) {
        if let Some(Clock::Virtual(_)) = self.advancer.map(Advancer::clock) {
            self.advancer.into_iter().for_each(|advancer| advancer.clock().advance(time));
            return;
        }
        // Linux lets a thread oversleep by 50 us, so as to wake several at once, unless it is told otherwise.
        let is_told = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).is_ok();
        thread::sleep(time);
        if is_told {
            let _ = rustix::thread::set_current_timer_slack(None);
        }
    }

    /// Nothing without a sleep that was to end before the command; whether this is the first look after it.
    pub(crate) fn overslept(&self) -> Option<bool> {
        self.slept.map(|round| round == self.rounds)
    }

    /// What was waited for has come: how long it took is learnt.
    pub fn end(mut self) {
        if let Manner::Hybrid(habit) = self.manner {
            let overslept = self.overslept();
            habit.note(self.waited(), overslept);
        }
    }
}

/// A virtual clock moves when somebody waits.
pub(super) fn pass_time(advancer: Option<&Advancer>) {
    if let Some(advancer) = advancer {
        advancer.clock().advance(ROUND);
    }
}

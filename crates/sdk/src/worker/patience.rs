//! How a caller waits that nobody wakes: it looks, at first at once, then less and less often.

use std::thread;
use std::time::{Duration, Instant};

use unvme_driver::Advancer;

/// Rounds without a system call, which a device in this process needs few of.
const SPINS: u32 = 64;
/// Rounds that offer the CPU to others, before the first sleep.
const YIELDS: u32 = 2048;
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
}

impl<'a> Patience<'a> {
    /// A wait for a device; `advancer` is there when it makes progress only inside this process.
    pub(super) fn new(advancer: Option<&'a Advancer>) -> Self {
        Self { advancer, rounds: 0, since: None }
    }

    /// Passes a moment between two looks.
    pub fn pause(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        if let Some(advancer) = self.advancer {
            pass_time(Some(advancer));
            if advancer.advance() > 0 {
                return;
            }
        }
        if self.rounds < SPINS {
            std::hint::spin_loop();
            return;
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if self.rounds < YIELDS || waited < SLEEP_AFTER {
            thread::yield_now();
            return;
        }
        // A sixteenth of what has passed is little against it, whatever it is.
        thread::sleep((waited / 16).clamp(SLEEP_MIN, SLEEP_MAX));
    }
}

/// A virtual clock moves when somebody waits.
pub(super) fn pass_time(advancer: Option<&Advancer>) {
    if let Some(advancer) = advancer {
        advancer.clock().advance(ROUND);
    }
}

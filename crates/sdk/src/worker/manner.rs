//! How somebody waits for a command, and what is learnt from it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How a caller waits for the end of its command.
#[derive(Clone, Copy, Debug, Default)]
pub enum Manner<'a> {
    /// It looks, at first at once, then less and less often, and sleeps when it takes long.
    #[default]
    Patient,
    /// It looks until the command has ended.
    Spin,
    /// It sleeps until the device interrupts; on a queue without an interrupt, for short whiles.
    Sleep,
    /// It sleeps for as long as is known to be too short, then looks.
    Hybrid(&'a Habit),
}

/// What is worth a sleep at all.
const SLEEP_MIN_NS: u64 = 8_000;
/// No sleep is longer: somebody has to look after the device.
const SLEEP_MAX_NS: u64 = 50_000_000;
/// Weight of the past: 7/8.
const LEARN_SHIFT: u32 = 3;
/// Parts of the mean that are slept: of 1024, at the beginning, and at most.
const PART_START: u32 = 512;
const PART_MAX: u32 = 960;
/// What is added to the part after a sleep that was too short, and taken away after one that was too long: of
/// ten sleeps about one is, by little, and the others are as long as they can be. What wakes a thread up late
/// differs from time to time, and fewer would leave much to be looked for.
const PART_MORE: u32 = 1;
const PART_LESS: u32 = 9;

/// How long commands of one kind take mostly, and how much of that may be slept: the rest goes into waking
/// up, and into what differs between commands.
#[derive(Debug)]
pub struct Habit {
    mean_ns: AtomicU64,
    part: AtomicU32,
}

impl Default for Habit {
    fn default() -> Self {
        Self { mean_ns: AtomicU64::new(0), part: AtomicU32::new(PART_START) }
    }
}

impl Habit {
    /// How long to sleep for a command that was sent `passed` ago; nothing when that is not worth it.
    #[inline]
    pub fn sleep(&self, passed: Duration) -> Option<Duration> {
        let part = self.part.load(Ordering::Relaxed);
        let whole = self.mean_ns.load(Ordering::Relaxed) * u64::from(part) / 1024;
        let left = whole.saturating_sub(passed.as_nanos() as u64).min(SLEEP_MAX_NS);
        (left >= SLEEP_MIN_NS).then(|| Duration::from_nanos(left))
    }

    /// What commands have taken lately.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean_ns.load(Ordering::Relaxed))
    }

    /// A command took so long.
    pub fn learn(&self, took: Duration) {
        // Of two who learn at a time one may be forgotten.
        let took = took.as_nanos() as u64;
        let mean = self.mean_ns.load(Ordering::Relaxed);
        let new = match mean {
            0 => took,
            // One that was late for another reason, as when the processor was somebody else's, is not to be
            // believed: the way up is slower than the way down.
            mean if took > mean => mean + ((took - mean).min(mean / 8).max(1) >> LEARN_SHIFT),
            mean => mean - ((mean - took).min(mean / 2) >> LEARN_SHIFT),
        };
        self.mean_ns.store(new, Ordering::Relaxed);
    }

    /// A command took so long, and was waited for without a sleep, or with one at whose end it had ended.
    pub fn note(&self, took: Duration, overslept: Option<bool>) {
        let part = self.part.load(Ordering::Relaxed);
        let more = || self.part.store((part + PART_MORE).min(PART_MAX), Ordering::Relaxed);
        match overslept {
            Some(true) => {
                self.part.store(part.saturating_sub(PART_LESS), Ordering::Relaxed);
                // How long it took is not known, but that it was less.
                if took < self.mean() {
                    self.learn(took);
                }
            }
            Some(false) => {
                self.learn(took);
                more();
            }
            None => {
                self.learn(took);
                // Also without a sleep, when there was time for one: else there would never be one again.
                if took.as_nanos() >= u128::from(2 * SLEEP_MIN_NS) {
                    more();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits of `latency`, with a wake-up that takes `late`; the part that was looked for, and how many of a
    /// hundred were too long, of the last waits.
    fn learnt(habit: &Habit, latency: impl Fn(u64) -> u64, late: u64) -> (f64, u64) {
        let (mut looked, mut all, mut long) = (0, 0, 0);
        for nth in 0..20_000 {
            let takes = latency(nth);
            let slept = habit.sleep(Duration::ZERO).map(|sleep| sleep.as_nanos() as u64 + late);
            let overslept = slept.map(|slept| slept >= takes);
            habit.note(Duration::from_nanos(takes.max(slept.unwrap_or(0))), overslept);
            if nth >= 10_000 {
                looked += takes.saturating_sub(slept.unwrap_or(0));
                all += takes;
                long += u64::from(overslept == Some(true));
            }
        }
        (looked as f64 / all as f64, long)
    }

    #[test]
    fn most_of_the_time_is_slept_and_few_sleeps_are_too_long() {
        let (looked, long) = learnt(&Habit::default(), |_| 80_000, 10_000);
        assert!(looked < 0.05 && long < 1100, "{looked} {long}");
        // Latencies from 60 to 100 us.
        let (looked, long) = learnt(&Habit::default(), |nth| 60_000 + nth * 7919 % 40_000, 10_000);
        assert!(looked < 0.30 && long < 1100, "{looked} {long}");
    }

    #[test]
    fn what_is_over_at_once_is_not_slept_for_and_a_device_that_gets_faster_is_noticed() {
        let habit = Habit::default();
        assert_eq!(learnt(&habit, |_| 5_000, 10_000), (1.0, 0));
        learnt(&habit, |_| 1_000_000, 10_000);
        assert!(habit.sleep(Duration::ZERO) > Some(Duration::from_micros(800)));
        let (looked, long) = learnt(&habit, |_| 60_000, 10_000);
        assert!(looked < 0.10 && long < 1100, "{looked} {long}");
        assert_eq!(habit.sleep(Duration::from_secs(1)), None);
    }
}

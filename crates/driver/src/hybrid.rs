//! How long commands have lately taken, for those who look for a while and then sleep
//! ([`crate::CompletionMode::Hybrid`]).

use std::time::Duration;

/// A wait looks for at most this long; commands that take longer are slept for.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// Weight of the past: 7/8.
const LEARN_SHIFT: u32 = 3;

/// A waiting time in nanoseconds, learnt.
#[derive(Debug, Default)]
pub(crate) struct Learnt(u64);

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

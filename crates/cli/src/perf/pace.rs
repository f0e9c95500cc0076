//! `--rate`: no more commands per second than asked for.

/// Lets commands through at a rate. Time that nobody used is not made up for by a burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    ns_per_command: f64,
    /// When the next command is due, in nanoseconds.
    due_ns: f64,
}

impl Pace {
    /// `iops` commands per second, which is above 0.
    pub(super) fn new(iops: f64) -> Self {
        Self { ns_per_command: 1e9 / iops, due_ns: 0.0 }
    }

    /// How many of `wanted` commands may go at `now_ns`, which never goes back.
    pub(super) fn admit(&mut self, now_ns: u64, wanted: usize) -> usize {
        let now = now_ns as f64;
        // At most what is wanted was missed: the rest of the past is forgotten.
        self.due_ns = self.due_ns.max(now - self.ns_per_command * wanted as f64);
        let due = ((now - self.due_ns) / self.ns_per_command).floor().max(0.0) as usize;
        let admitted = due.min(wanted);
        self.due_ns += self.ns_per_command * admitted as f64;
        admitted
    }

    /// When the next command may go.
    pub(super) fn next_ns(&self) -> u64 {
        // Rounded up, or it would not be time yet.
        (self.due_ns + self.ns_per_command).max(0.0).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lets_a_second_of_commands_through() {
        let mut pace = Pace::new(1000.0);
        let admitted: usize = (0..=1_000_000u64).map(|step| pace.admit(step * 1000, 8)).sum();
        assert!((999..=1001).contains(&admitted), "{admitted}");
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let mut pace = Pace::new(1000.0);
        pace.admit(1_000_000, 4);
        assert_eq!(pace.admit(10_000_000_000, 4), 4);
        assert_eq!(pace.admit(10_000_000_000, 4), 0);
        assert_eq!(pace.admit(10_001_000_000, 4), 1);
    }
}

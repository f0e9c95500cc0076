//! `--rate`: commands become due at a rate, whatever the device makes of it (an open loop).

use clap::ValueEnum;

use super::addresses::Random;

/// How the commands of a rate are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Arrivals {
    /// At equal distances
    Fixed,
    /// At random, independent of each other, as from many users: the distances are exponential
    Poisson,
}

impl Arrivals {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Poisson => "poisson",
        }
    }
}

/// The schedule of a lane. A command that was due and could not go stays due: what is late is made up for.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    arrivals: Arrivals,
    ns_per_command: f64,
    random: Random,
    /// When the next command is due, in nanoseconds.
    due_ns: f64,
}

impl Pace {
    /// `iops` commands per second, which is above 0, from time 0 on.
    pub(super) fn new(iops: f64, arrivals: Arrivals, random: Random) -> Self {
        let mut pace = Self { arrivals, ns_per_command: 1e9 / iops, random, due_ns: 0.0 };
        pace.go_on();
        pace
    }

    fn go_on(&mut self) {
        self.due_ns += match self.arrivals {
            Arrivals::Fixed => self.ns_per_command,
            Arrivals::Poisson => {
                // In (0, 1]: the logarithm is finite.
                let share = ((self.random.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
                -share.ln() * self.ns_per_command
            }
        };
    }

    /// Takes the next command if it is due at `now_ns`: when it was, at that time or before.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.next_ns();
        if due_ns > now_ns {
            return None;
        }
        self.go_on();
        Some(due_ns)
    }

    /// When the next command is due.
    pub(super) fn next_ns(&self) -> u64 {
        // Rounded up, or it would not be time yet.
        self.due_ns.ceil() as u64
    }

    /// Commands that are due before `now_ns` and were not taken, as many as the rate makes of that time.
    pub(super) fn overdue(&self, now_ns: u64) -> u64 {
        ((now_ns as f64 - self.due_ns) / self.ns_per_command).ceil().max(0.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(arrivals: Arrivals) -> Pace {
        Pace::new(1000.0, arrivals, Random::new(1, 0))
    }

    fn take_all(pace: &mut Pace, now_ns: u64) -> Vec<u64> {
        std::iter::from_fn(|| pace.take(now_ns)).collect()
    }

    #[test]
    fn a_second_lets_a_second_of_commands_through() {
        let mut pace = pace(Arrivals::Fixed);
        let taken: usize = (0..=1_000_000u64).map(|step| take_all(&mut pace, step * 1000).len()).sum();
        assert_eq!(taken, 1000);
    }

    #[test]
    fn what_was_due_during_a_pause_is_made_up_for_and_counts_from_when_it_was_due() {
        let mut pace = pace(Arrivals::Fixed);
        assert_eq!(take_all(&mut pace, 1_500_000), [1_000_000]);
        assert_eq!(pace.overdue(5_500_000), 4);
        assert_eq!(take_all(&mut pace, 5_500_000), [2_000_000, 3_000_000, 4_000_000, 5_000_000]);
        assert_eq!((pace.overdue(5_500_000), pace.next_ns()), (0, 6_000_000));
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread_of_their_law() {
        let mut pace = pace(Arrivals::Poisson);
        let due = take_all(&mut pace, 100_000_000_000);
        assert!((99_000..=101_000).contains(&due.len()), "{}", due.len());
        assert!(due.is_sorted());
        let distances: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        let mean = distances.iter().sum::<f64>() / distances.len() as f64;
        let square = distances.iter().map(|at| (at - mean).powi(2)).sum::<f64>() / distances.len() as f64;
        // The standard deviation of exponential distances is their mean.
        assert!((square.sqrt() / mean - 1.0).abs() < 0.02, "{mean} {square}");
        let beyond = distances.iter().filter(|&&at| at > 1.0).count() as f64 / distances.len() as f64;
        assert!((beyond - (-1f64).exp()).abs() < 0.01, "{beyond}");
    }
}

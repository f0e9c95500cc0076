//! What is told while a point is measured: by the bar, and by the lines of `--status-interval`.

use std::cell::Cell;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::counters::Live;
use super::progress::{PAUSE, Progress};
use crate::report::scale::{micros, si};

/// Lines on standard error, so often.
#[derive(Debug)]
pub(super) struct Status {
    every: Option<Duration>,
    /// What the last line told of.
    told: Cell<Told>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Told {
    elapsed: Duration,
    commands: u64,
    latency_ns: u64,
}

impl Told {
    fn at(elapsed: Duration, live: &[Arc<Live>]) -> Self {
        let all = live.iter().map(|live| live.so_far());
        let (commands, latency_ns) = all
            .fold((0, 0u64), |(commands, ns), (more, more_ns)| (commands + more, ns.wrapping_add(more_ns)));
        Self { elapsed, commands, latency_ns }
    }

    /// Rate, and latency when something has completed, from `before` on.
    fn since(&self, before: &Self) -> String {
        let commands = self.commands.saturating_sub(before.commands);
        let seconds = (self.elapsed.saturating_sub(before.elapsed)).as_secs_f64().max(1e-9);
        let rate = format!("{} IOPS", si(commands as f64 / seconds));
        if commands == 0 {
            return rate;
        }
        let ns = self.latency_ns.wrapping_sub(before.latency_ns) as f64 / commands as f64;
        format!("{rate}, {} average", micros(ns / 1e3))
    }
}

impl Status {
    pub(super) fn new(every: Option<f64>) -> Self {
        Self { every: every.map(Duration::from_secs_f64), told: Cell::default() }
    }

    /// True when lines are wanted.
    pub(super) fn is_wanted(&self) -> bool {
        self.every.is_some()
    }

    /// Time between two looks.
    pub(super) fn pause(&self) -> Duration {
        self.every.map_or(PAUSE, |every| every.min(PAUSE))
    }

    /// The next point begins.
    pub(super) fn begin(&self) {
        self.told.set(Told::default());
    }

    /// Prints a line if it is time to.
    pub(super) fn tick(&self, elapsed: Duration, live: &[Arc<Live>], what: &str, progress: &Progress) {
        let before = self.told.get();
        if self.every.is_none_or(|every| elapsed.saturating_sub(before.elapsed) < every) {
            return;
        }
        let now = Told::at(elapsed, live);
        self.told.set(now);
        let line = format!("unvme: {what}: {:.1} s: {}", elapsed.as_secs_f64(), now.since(&before));
        // With stderr gone there is nobody left to tell.
        progress.aside(|| {
            let _ = writeln!(std::io::stderr(), "{line}");
        });
    }
}

/// Rate so far, for the bar.
pub(super) fn so_far(elapsed: Duration, live: &[Arc<Live>]) -> String {
    Told::at(elapsed, live).since(&Told::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_of_the_time_since_the_last() {
        let told =
            |ms, commands, latency_ns| Told { elapsed: Duration::from_millis(ms), commands, latency_ns };
        assert_eq!(
            told(1500, 3000, 90_000_000).since(&told(500, 1000, 30_000_000)),
            "2.00 k IOPS, 30.0 \u{b5}s average"
        );
        assert_eq!(told(2500, 3000, 0).since(&told(1500, 3000, 0)), "0 IOPS");
    }
}

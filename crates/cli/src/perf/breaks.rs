//! `--think` and `--burst`: when nothing is submitted although there would be room.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use unvme::DmaBuf;

use crate::numbers;

/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Most commands of a burst.
const COMMANDS_MAX: u32 = 1_000_000_000;

const SYNTAX: &str = "expected a time above 0 and up to an hour, with a unit of us, ms or s, such as 100us";

/// A time without commands, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause(pub(super) Duration);

impl FromStr for Pause {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("us", 1), ("ms", 1_000), ("s", 1_000_000)];
        let parsed = units.into_iter().find_map(|(unit, each)| {
            let number = numbers::u32(text.strip_suffix(unit)?).ok()?;
            Some(Duration::from_micros(u64::from(number) * each))
        });
        let is_possible = |pause: &Duration| *pause > Duration::ZERO && *pause <= PAUSE_MAX;
        parsed.filter(is_possible).map(Self).ok_or_else(|| SYNTAX.to_owned())
    }
}

impl Pause {
    pub(super) fn us(self) -> f64 {
        self.0.as_nanos() as f64 / 1e3
    }
}

/// The value of `--burst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    pub(super) commands: u32,
    pub(super) pause: Pause,
}

impl FromStr for Burst {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected COMMANDS:TIME, such as 32:1ms; of TIME, {SYNTAX}");
        let (commands, pause) = text.split_once(':').ok_or_else(expected)?;
        let commands = numbers::u32(commands).ok().filter(|commands| (1..=COMMANDS_MAX).contains(commands));
        match (commands, pause.parse()) {
            (Some(commands), Ok(pause)) => Ok(Self { commands, pause }),
            _ => Err(expected()),
        }
    }
}

/// A slot that is not used before a time, and its buffer.
struct Resting {
    until_ns: u64,
    slot: (u32, DmaBuf),
}

/// The breaks of one lane.
pub(super) struct Breaks {
    think_ns: u64,
    /// Commands of a burst, and how long nothing comes after them.
    burst: Option<(u32, u64)>,
    /// Commands of this burst so far.
    sent: u32,
    /// When the next burst may begin.
    resume_ns: u64,
    /// In the order in which they may be used again.
    resting: VecDeque<Resting>,
}

impl fmt::Debug for Breaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resting = self.resting.len();
        f.debug_struct("Breaks").field("resting", &resting).field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl Breaks {
    /// `None` where there are none.
    pub(super) fn new(think: Option<Pause>, burst: Option<Burst>) -> Option<Self> {
        let ns = |pause: Pause| pause.0.as_nanos() as u64;
        (think.is_some() || burst.is_some()).then(|| Self {
            think_ns: think.map_or(0, ns),
            burst: burst.map(|burst| (burst.commands, ns(burst.pause))),
            sent: 0,
            resume_ns: 0,
            resting: VecDeque::new(),
        })
    }

    /// True where each slot rests after its commands.
    pub(super) fn thinks(&self) -> bool {
        self.think_ns > 0
    }

    /// True when a command may go.
    pub(super) fn admits(&self, now_ns: u64) -> bool {
        now_ns >= self.resume_ns
    }

    /// A command has gone.
    pub(super) fn submitted(&mut self, now_ns: u64) {
        let Some((commands, pause_ns)) = self.burst else { return };
        self.sent += 1;
        if self.sent >= commands {
            (self.sent, self.resume_ns) = (0, now_ns.saturating_add(pause_ns));
        }
    }

    /// The slot that was freed last rests from now on.
    pub(super) fn rest(&mut self, free: &mut Vec<(u32, DmaBuf)>, now_ns: u64) {
        if self.thinks() {
            let until_ns = now_ns.saturating_add(self.think_ns);
            self.resting.extend(free.pop().map(|slot| Resting { until_ns, slot }));
        }
    }

    /// Slots that have rested are free again.
    pub(super) fn wake(&mut self, free: &mut Vec<(u32, DmaBuf)>, now_ns: u64) {
        while self.resting.front().is_some_and(|resting| resting.until_ns <= now_ns) {
            free.extend(self.resting.pop_front().map(|resting| resting.slot));
        }
    }

    /// Slots that rest.
    pub(super) fn resting(&self) -> usize {
        self.resting.len()
    }

    /// When something may go that may not now, with or without slots that are free.
    pub(super) fn next_ns(&self, is_free: bool) -> Option<u64> {
        let woken = self.resting.front().map(|resting| resting.until_ns);
        let resumed = Some(self.resume_ns).filter(|_| is_free && self.burst.is_some());
        woken.into_iter().chain(resumed).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_have_a_unit() {
        let parsed = |text: &str| text.parse::<Pause>().map(|pause| pause.0);
        assert_eq!(parsed("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(parsed("3ms"), Ok(Duration::from_millis(3)));
        assert_eq!(parsed("3600s"), Ok(PAUSE_MAX));
        assert_eq!("1ms".parse::<Pause>().map(Pause::us), Ok(1000.0));
        for bad in ["", "0us", "1", "us", "-1us", "1.5ms", "3601s", "1m", "1h", "5000000000us"] {
            assert_eq!(parsed(bad), Err(SYNTAX.to_owned()), "{bad}");
        }
    }

    #[test]
    fn bursts_are_a_number_and_a_pause() {
        let burst = "32:1ms".parse::<Burst>().expect("a burst");
        assert_eq!((burst.commands, burst.pause.0), (32, Duration::from_millis(1)));
        for bad in ["", "32", "0:1ms", "32:", "32:1", "32:0ms", "x:1ms", "1000000001:1ms"] {
            let error = bad.parse::<Burst>().expect_err(bad);
            assert!(error.contains("expected COMMANDS:TIME, such as 32:1ms"), "{bad}: {error}");
        }
    }

    #[test]
    fn nothing_goes_between_two_bursts() {
        let burst = "2:1us".parse().expect("a burst");
        let mut breaks = Breaks::new(None, Some(burst)).expect("breaks");
        let mut sent = |now_ns| {
            let admits = breaks.admits(now_ns);
            if admits {
                breaks.submitted(now_ns);
            }
            admits
        };
        assert_eq!(
            [0, 10, 10, 500, 1009, 1010, 1010, 2009, 2010].map(&mut sent),
            [true, true, false, false, false, true, true, false, true]
        );
        assert_eq!((breaks.next_ns(true), breaks.next_ns(false)), (Some(2010), None));
        assert!(Breaks::new(None, None).is_none());
    }
}

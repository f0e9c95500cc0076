//! Time-outs of commands, without a clock in the everyday path.
//!
//! A command gets its deadline when the watch first sees it, which is up to an interval after it was
//! submitted. It is acted upon the second time it is seen beyond its deadline: at least 64 polls that found
//! nothing, 65536 polls, or a wait lie between two looks, so the completion of a command that only its owner
//! forgot to poll has been taken by then.

use std::time::Duration;

use unvme_spec::Cid;

use crate::Error;

/// Time between two questions whether the other side is still there.
const PRESENCE_INTERVAL: Duration = Duration::from_millis(1);
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const INTERVAL_MAX: Duration = Duration::from_millis(100);

/// Low bits of a slot's deadline: how far the command has come. Nanoseconds lose two bits to it.
const STAGE_MASK: u64 = 3;
const RUNNING: u64 = 0;
const SUSPECT: u64 = 1;
const ABORTED: u64 = 2;
const ABORTED_SUSPECT: u64 = 3;

/// A command to act upon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overdue {
    pub(crate) cid: Cid,
    /// The controller has been asked to abort it, and did not in the grace period.
    pub(crate) was_aborted: bool,
}

pub(crate) struct Watch {
    timeout: Duration,
    grace: Duration,
    next_presence: u64,
    next_look: u64,
}

impl Watch {
    pub(crate) fn new(timeout: Duration, grace: Duration) -> Self {
        Self { timeout, grace, next_presence: 0, next_look: 0 }
    }

    /// Time between two looks.
    pub(crate) fn interval(&self) -> Duration {
        (self.timeout.min(self.grace) / 8).clamp(INTERVAL_MIN, INTERVAL_MAX)
    }

    /// How long the controller has for an Abort.
    pub(crate) fn grace(&self) -> Duration {
        self.grace
    }

    pub(crate) fn timeout(&self, what: String) -> Error {
        Error::Timeout { what, milliseconds: self.timeout.saturating_add(self.grace).as_millis() as u64 }
    }

    /// True when it is time to ask whether the other side is still there.
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        let due = now >= self.next_presence;
        if due {
            self.next_presence = now + PRESENCE_INTERVAL.as_nanos() as u64;
        }
        due
    }

    /// Has the next look be at once.
    pub(crate) fn look_again(&mut self) {
        self.next_look = 0;
    }

    /// Looks at all commands the device has, each with its deadline, if it is time. The worst one that must
    /// be acted upon, if there is one.
    pub(crate) fn next<'a>(
        &mut self,
        now: u64,
        commands: impl Iterator<Item = (Cid, &'a mut u64)>,
    ) -> Option<Overdue> {
        if now < self.next_look {
            return None;
        }
        self.next_look = now + self.interval().as_nanos() as u64;
        let after = |limit: Duration, stage| (now.saturating_add(nanoseconds(limit)) & !STAGE_MASK) | stage;
        let mut overdue = None;
        for (cid, deadline) in commands {
            if *deadline == 0 {
                *deadline = after(self.timeout, RUNNING).max(STAGE_MASK + 1);
            }
            if now < *deadline & !STAGE_MASK {
                continue;
            }
            match *deadline & STAGE_MASK {
                stage @ (RUNNING | ABORTED) => *deadline |= stage + 1,
                SUSPECT if overdue.is_none() => {
                    *deadline = after(self.grace, ABORTED);
                    overdue = Some(Overdue { cid, was_aborted: false });
                }
                ABORTED_SUSPECT => return Some(Overdue { cid, was_aborted: true }),
                _ => {}
            }
        }
        overdue
    }
}

/// A limit that 64 bits do not hold, 584 years, is as good as none.
pub(crate) fn nanoseconds(limit: Duration) -> u64 {
    u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_beyond_64_bits_never_passes() {
        // 2^64 ns and one more: cut off it would be a nanosecond.
        assert_eq!(nanoseconds(Duration::new(18_446_744_073, 709_551_617)), u64::MAX);
        assert_eq!(nanoseconds(Duration::MAX), u64::MAX);
        assert_eq!(nanoseconds(Duration::from_secs(30)), 30_000_000_000);
        let watch = Watch::new(Duration::MAX, Duration::MAX);
        assert!(matches!(watch.timeout(String::new()), Error::Timeout { .. }));
    }
}

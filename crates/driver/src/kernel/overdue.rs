//! Time-outs of commands the kernel has, without a clock in the everyday path.
//!
//! An NVMe command's limit is the kernel's to keep: it aborts the command at the limit, waits as long again and resets the
//! controller, and the command returns. Only when it did not, [`RESET_TIME`] and a grace period later, is the command given
//! up here.
//! Reads and writes of the block layer are cancelled at their limit, and given up a grace period later.

use std::time::Duration;

use super::uring::Uring;
use crate::Error;
use crate::watch::{look_interval, nanoseconds};

/// What the kernel's two limits take longer than that, as its timers go by whole seconds, and its reset of a controller.
const RESET_TIME: Duration = Duration::from_secs(5);
/// Low bit of a deadline: the operation has been cancelled. Nanoseconds lose one bit to it.
const CANCELLED: u64 = 1;

/// A command to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    Cancel(u32),
    GiveUp(u32),
}

pub(super) struct Limits {
    limit: Duration,
    grace: Duration,
    /// Ends of the first limit are answered with a cancellation.
    cancels: bool,
    next_look: u64,
}

impl Limits {
    /// For NVMe commands of `timeout`.
    pub(super) fn passthrough(timeout: Duration, grace: Duration) -> Self {
        let limit = timeout.saturating_mul(2).saturating_add(RESET_TIME).saturating_add(grace);
        Self { limit, grace, cancels: false, next_look: 0 }
    }

    /// For reads and writes.
    pub(super) fn block(timeout: Duration, grace: Duration) -> Self {
        Self { limit: timeout, grace, cancels: true, next_look: 0 }
    }

    /// Time between two looks.
    pub(super) fn interval(&self) -> Duration {
        look_interval(self.limit.min(self.grace))
    }

    pub(super) fn timeout(&self, what: String) -> Error {
        let total = if self.cancels { self.limit.saturating_add(self.grace) } else { self.limit };
        Error::Timeout { what, milliseconds: total.as_millis() as u64 }
    }

    /// Looks at all commands, if it is time, and says which has to be acted upon.
    pub(super) fn next(&mut self, now: u64, ring: &mut Uring) -> Option<Overdue> {
        if now < self.next_look {
            return None;
        }
        let after = |limit: Duration| now.saturating_add(nanoseconds(limit));
        for (index, deadline) in ring.deadlines() {
            if *deadline == 0 {
                *deadline = (after(self.limit) & !CANCELLED).max(CANCELLED + 1);
            }
            if now < *deadline & !CANCELLED {
                continue;
            }
            if self.cancels && *deadline & CANCELLED == 0 {
                *deadline = after(self.grace) | CANCELLED;
                return Some(Overdue::Cancel(index));
            }
            return Some(Overdue::GiveUp(index));
        }
        // Only now: the next command that is overdue is found at once.
        self.next_look = now.saturating_add(nanoseconds(self.interval()));
        None
    }
}

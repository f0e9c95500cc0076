//! Doorbells that are written when they must not be.
//!
//! Doorbells are memory that the host writes without telling anyone, so a doorbell of a queue that does not
//! exist holds a value of its own, and one that holds another has been written. A valid doorbell is looked at
//! when its queue is served; all others are looked at now and then.

use std::sync::atomic::Ordering;

use unvme_bus::lock;

use super::{Doorbells, Queues, Rung};

/// What the doorbell of a queue that does not exist holds. No doorbell has this as a valid value.
const ABSENT: u32 = u32::from_ne_bytes([ABSENT_BYTE; 4]);
const ABSENT_BYTE: u8 = 0xff;
/// Rounds over all queues without work between two looks at every doorbell: a look takes as long as a few
/// rounds.
const IDLE_ROUNDS_PER_LOOK: u32 = 1024;

/// How a doorbell is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadDoorbell {
    /// It is that of a queue that does not exist.
    Register,
    /// Its value is beyond the end of the queue.
    Value,
}

impl Doorbells {
    /// No queue exists.
    pub(crate) fn mark_all_absent(&self) {
        self.memory().fill(0, self.memory().len(), ABSENT_BYTE);
    }

    /// The queue whose doorbell is at `offset` does not exist any more.
    pub(crate) fn mark_absent(&self, offset: usize) {
        self.memory().store_u32(offset, ABSENT, Ordering::Relaxed);
    }

    fn is_marked_absent(&self, offset: usize) -> bool {
        self.memory().load_u32(offset, Ordering::Relaxed) == ABSENT
    }
}

impl Queues {
    /// A doorbell, by its place among all of them, is written through the register interface instead of
    /// shared memory; false when there is no such queue.
    pub(crate) fn write_doorbell(&self, index: usize, value: u32) -> bool {
        let Some(cell) = self.submission.get(index / 2) else { return false };
        let exists = if index.is_multiple_of(2) {
            lock(cell).is_some()
        } else {
            lock(&self.completion[index / 2]).is_some()
        };
        if exists {
            self.doorbells.memory().store_u32(index * 4, value, Ordering::Release);
        }
        exists
    }

    /// Looks at every doorbell, once in many calls, and tells `report` what is wrong.
    #[inline]
    pub(crate) fn watch_doorbells(&self, report: impl Fn(BadDoorbell)) {
        // Two callers at once may lose a count, which costs nothing.
        let rounds = self.idle_rounds.load(Ordering::Relaxed).wrapping_add(1);
        self.idle_rounds.store(rounds, Ordering::Relaxed);
        if rounds.is_multiple_of(IDLE_ROUNDS_PER_LOOK) {
            self.look_at_doorbells(report);
        }
    }

    #[cold]
    fn look_at_doorbells(&self, report: impl Fn(BadDoorbell)) {
        for offset in (0..self.doorbells.memory().len()).step_by(4) {
            if self.doorbells.is_marked_absent(offset) {
                continue;
            }
            let (index, is_tail) = (offset / 8, offset % 8 == 0);
            let written =
                if is_tail { self.is_stray_tail(index) } else { self.is_stray_head(index, &report) };
            if written {
                report(BadDoorbell::Register);
            }
        }
    }

    /// True when the tail doorbell of a submission queue that does not exist was written. A tail beyond an
    /// existing queue is found when the queue is served.
    fn is_stray_tail(&self, index: usize) -> bool {
        let Some(cell) = self.submission.get(index) else { return self.take_stray(index * 8) };
        // A queue that somebody is at work on exists, or is about to.
        match cell.try_lock() {
            Ok(queue) if queue.is_none() => self.take_stray(index * 8),
            _ => false,
        }
    }

    /// The same for a head doorbell. A head beyond an existing queue is found here, unless commands wait for
    /// room in that queue.
    fn is_stray_head(&self, index: usize, report: &impl Fn(BadDoorbell)) -> bool {
        let Some(cell) = self.completion.get(index) else { return self.take_stray(index * 8 + 4) };
        let Ok(mut queue) = cell.try_lock() else { return false };
        let Some(queue) = queue.as_mut() else { return self.take_stray(index * 8 + 4) };
        if let Rung::Invalid { first_time: true } = queue.room(&self.doorbells) {
            report(BadDoorbell::Value);
        }
        false
    }

    /// Marks the doorbell of no queue as such again; true when it was not.
    fn take_stray(&self, offset: usize) -> bool {
        let written = !self.doorbells.is_marked_absent(offset);
        if written {
            self.doorbells.mark_absent(offset);
        }
        written
    }
}

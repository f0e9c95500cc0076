//! Hosts that are too slow.

use std::time::Duration;

use super::{Connection, Ending, Late, Phase};
use crate::fabrics::QueueState;

/// Bytes that count as progress though they complete nothing: less does not keep a connection open that has
/// something due.
const PROGRESS_BYTES: usize = 4 << 10;

/// When something has happened last. A connection has no clock between calls of [`Connection::advance`]: what
/// happens in between is noted, and gets its time in the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    /// When the phase began; `None` until the clock is seen.
    since: Option<u64>,
    /// Since when nothing has gone on.
    still_since: Option<u64>,
    /// Bytes that have moved since then.
    moved: usize,
    /// Since when the host has to prove who it is; `None` when it has, or need not.
    unproven_since: Option<u64>,
}

impl Watch {
    /// A new phase.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Bytes have been received or sent.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
        if self.moved >= PROGRESS_BYTES {
            self.progress();
        }
    }

    /// Something is whole that was not.
    pub(super) fn progress(&mut self) {
        self.moved = 0;
        self.still_since = None;
    }

    fn see(&mut self, now: u64, awaits_proof: bool) {
        self.since.get_or_insert(now);
        self.still_since.get_or_insert(now);
        self.unproven_since = awaits_proof.then(|| *self.unproven_since.get_or_insert(now));
    }
}

impl Connection {
    /// Looks at the clock: a host that is too late is done with.
    pub(super) fn look_at_clock(&mut self, now: u64) {
        if !self.is_due() {
            self.watch.progress();
        }
        self.watch.see(now, self.queue.awaits_proof());
        let is_late = |deadline: Option<u64>| deadline.is_some_and(|deadline| deadline <= now);
        if !is_late(self.deadline()) {
            return;
        }
        match self.phase {
            Phase::Greeting => self.enter(Phase::Ended(Ending::Late(Late::Greeting))),
            Phase::Running if self.queue.state() == QueueState::Open => {
                self.enter(Phase::Ended(Ending::Late(Late::Connect)));
            }
            Phase::Running if is_late(self.proof_deadline()) => {
                self.queue.give_up_proof();
                self.close(Ending::Queue);
            }
            Phase::Running => self.enter(Phase::Ended(Ending::Late(Late::Stalled))),
            Phase::Closing(ending) => self.enter(Phase::Ended(ending)),
            Phase::Ended(_) => {}
        }
    }

    /// When the host is too late, if nothing happens until then.
    pub(super) fn deadline(&self) -> Option<u64> {
        let limits = &self.limits;
        match self.phase {
            Phase::Greeting => after(self.watch.since, limits.handshake),
            Phase::Running if self.queue.state() == QueueState::Open => {
                after(self.watch.since, limits.connect)
            }
            Phase::Running => {
                let stall = if self.is_due() { after(self.watch.still_since, limits.stall) } else { None };
                [stall, self.proof_deadline()].into_iter().flatten().min()
            }
            Phase::Closing(_) => after(self.watch.since, limits.linger),
            Phase::Ended(_) => None,
        }
    }

    /// When a host that has connected must have proven who it is: until then it has a controller that others
    /// do not get.
    fn proof_deadline(&self) -> Option<u64> {
        after(self.watch.unproven_since, self.limits.connect)
    }

    /// Whether the host has something to do that others wait for: to send the rest of a PDU, to send data
    /// that it was asked for, to take what is sent to it.
    fn is_due(&self) -> bool {
        self.is_receiving() || self.transfers.expected_bytes() > 0 || self.wants_output()
    }
}

fn after(since: Option<u64>, allowed: Duration) -> Option<u64> {
    let allowed = u64::try_from(allowed.as_nanos()).unwrap_or(u64::MAX);
    Some(since?.saturating_add(allowed))
}

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
    /// When the clock was seen last.
    pub(super) now: u64,
    /// When the phase began; `None` until the clock is seen.
    since: Option<u64>,
    /// The rest of a PDU.
    pub(super) input: Still,
    /// Data that was asked for: no command makes up for it.
    pub(super) data: Still,
    /// What is to be taken by the host.
    pub(super) output: Still,
    /// Since when the host has to prove who it is; `None` when it has, or need not.
    unproven_since: Option<u64>,
}

/// One thing that a host has to do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Still {
    /// Since when nothing has gone on; `None` until the clock is seen, and while there is nothing to do.
    since: Option<u64>,
    /// Bytes that have moved since then.
    moved: usize,
}

impl Still {
    /// Bytes have moved.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
        if self.moved >= PROGRESS_BYTES {
            self.progress();
        }
    }

    /// Something is whole that was not.
    pub(super) fn progress(&mut self) {
        *self = Self::default();
    }

    fn see(&mut self, now: u64, is_due: bool) {
        match is_due {
            true => self.since = Some(*self.since.get_or_insert(now)),
            false => self.progress(),
        }
    }
}

impl Watch {
    /// A new phase.
    pub(super) fn restart(&mut self) {
        *self = Self { now: self.now, ..Self::default() };
    }
}

impl Connection {
    /// Looks at the clock: a host that is too late is done with.
    pub(super) fn look_at_clock(&mut self, now: u64) {
        let is_receiving = self.is_receiving() && !self.is_paused;
        let expects_data = self.transfers.expected_bytes() > 0;
        let wants_output = self.wants_output();
        let watch = &mut self.watch;
        watch.now = now;
        watch.since.get_or_insert(now);
        watch.input.see(now, is_receiving);
        watch.data.see(now, expects_data);
        watch.output.see(now, wants_output);
        let awaits_proof = self.queue.awaits_proof();
        watch.unproven_since = awaits_proof.then(|| *watch.unproven_since.get_or_insert(now));
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
                let Watch { input, data, output, .. } = &self.watch;
                let stalls = [input, data, output].map(|still| after(still.since, limits.stall));
                let others = [self.transfer_deadline(), self.proof_deadline()];
                stalls.into_iter().chain(others).flatten().min()
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

    /// When the oldest command must have its data, or the host what it has read, whatever else has moved
    /// meanwhile: it has memory that others may need.
    fn transfer_deadline(&self) -> Option<u64> {
        let oldest = self.queue.oldest_transfer()?;
        let allowed = if self.queue.is_greedy() { self.limits.stall } else { self.limits.transfer };
        after(Some(oldest), allowed)
    }
}

fn after(since: Option<u64>, allowed: Duration) -> Option<u64> {
    let allowed = u64::try_from(allowed.as_nanos()).unwrap_or(u64::MAX);
    Some(since?.saturating_add(allowed))
}

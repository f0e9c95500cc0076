//! The admin queue of a client: rings in memory that the client writes as it likes.

use std::sync::atomic::Ordering;

use unvme_bus::space::{Direction, View};
use unvme_spec::{Cqe, Sqe, Status};
use zerocopy::{FromBytes, FromZeros};

const SQE_BYTES: u64 = size_of::<Sqe>() as u64;
const CQE_BYTES: u64 = size_of::<Cqe>() as u64;

/// The client broke the rules of queues, or took their memory away: its controller has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken(pub(super) &'static str);

/// Where both rings are and how far they have come.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdminRings {
    sq: u64,
    sq_entries: u32,
    sq_head: u32,
    cq: u64,
    cq_entries: u32,
    cq_tail: u32,
    phase: bool,
}

/// A command as it was in the ring.
pub(super) struct Popped {
    pub(super) sqe: Sqe,
}

impl AdminRings {
    /// Rings at `sq` and `cq`, if they can be used: whole pages of addresses, 2 entries or more, all of it
    /// mapped.
    pub(super) fn new(view: &View, sq: (u64, u32), cq: (u64, u32)) -> Option<Self> {
        let fits = is_mapped(view, sq.0, u64::from(sq.1).checked_mul(SQE_BYTES)?, Direction::Read)
            && is_mapped(view, cq.0, u64::from(cq.1).checked_mul(CQE_BYTES)?, Direction::Write);
        let aligned = sq.0.is_multiple_of(4096) && cq.0.is_multiple_of(4096);
        (fits && aligned && sq.1 >= 2 && cq.1 >= 2).then_some(Self {
            sq: sq.0,
            sq_entries: sq.1,
            sq_head: 0,
            cq: cq.0,
            cq_entries: cq.1,
            cq_tail: 0,
            phase: true,
        })
    }

    /// The next command, when the client has rung for one and `owed` completions and one more have a place.
    pub(super) fn pop(
        &mut self,
        view: &View,
        tail: u32,
        cq_head: u32,
        owed: usize,
    ) -> Result<Option<Popped>, Broken> {
        if tail >= self.sq_entries {
            return Err(Broken("its admin submission queue's doorbell is beyond the queue"));
        }
        if tail == self.sq_head || self.room(cq_head)? <= owed {
            return Ok(None);
        }
        let at = self.sq.saturating_add(u64::from(self.sq_head).saturating_mul(SQE_BYTES));
        let Some((region, offset)) = view.resolve(at, SQE_BYTES as usize, Direction::Read) else {
            return Err(Broken("its admin submission queue is not mapped"));
        };
        let mut bytes = [0; SQE_BYTES as usize];
        // A copy: the client may change the entry at any moment.
        region.read(offset, &mut bytes);
        self.sq_head = next(self.sq_head, self.sq_entries);
        // Of 64 bytes, as many as an entry has.
        let sqe = Sqe::read_from_bytes(&bytes).unwrap_or_else(|_| Sqe::new_zeroed());
        Ok(Some(Popped { sqe }))
    }

    /// Completions that have a place.
    fn room(&self, cq_head: u32) -> Result<usize, Broken> {
        if cq_head >= self.cq_entries {
            return Err(Broken("its admin completion queue's doorbell is beyond the queue"));
        }
        let used = self.cq_tail.wrapping_sub(cq_head).wrapping_add(if self.cq_tail < cq_head {
            self.cq_entries
        } else {
            0
        });
        Ok(self.cq_entries.saturating_sub(1).saturating_sub(used) as usize)
    }

    /// Posts a completion. There is a place for it: [`AdminRings::pop`] saw to that.
    pub(super) fn post(&mut self, view: &View, cid: u16, status: Status, result: u64) -> Result<(), Broken> {
        let mut entry = Cqe::new_zeroed();
        entry.dw0 = result as u32;
        entry.dw1 = (result >> 32) as u32;
        entry.sq_head = self.sq_head as u16;
        entry.cid = cid;
        entry.set_status(status, self.phase);
        let at = self.cq.saturating_add(u64::from(self.cq_tail).saturating_mul(CQE_BYTES));
        let Some((region, offset)) = view.resolve(at, CQE_BYTES as usize, Direction::Write) else {
            return Err(Broken("its admin completion queue is not mapped"));
        };
        if !(region.as_ptr().addr().saturating_add(offset)).is_multiple_of(8) {
            return Err(Broken("its admin completion queue is not aligned"));
        }
        let [low, high] = entry.to_words();
        region.store_u64(offset, low, Ordering::Relaxed);
        // Release: pairs with the client's Acquire load of the word with the phase tag.
        region.store_u64(offset.saturating_add(8), high, Ordering::Release);
        self.cq_tail = next(self.cq_tail, self.cq_entries);
        if self.cq_tail == 0 {
            self.phase = !self.phase;
        }
        Ok(())
    }
}

fn next(index: u32, entries: u32) -> u32 {
    let next = index.saturating_add(1);
    if next >= entries { 0 } else { next }
}

/// True when every byte of a range is mapped for that direction, in however many pieces.
pub(super) fn is_mapped(view: &View, iova: u64, bytes: u64, direction: Direction) -> bool {
    let Some(end) = iova.checked_add(bytes) else { return false };
    let mut at = iova;
    while at < end {
        let left = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
        match view.find(at, left, direction) {
            Some(place) if place.bytes > 0 => at = at.saturating_add(place.bytes as u64),
            _ => return false,
        }
    }
    true
}

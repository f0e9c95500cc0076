//! The queues of a controller.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use unvme_bus::{AddressSpace, Published, Region, lock};
use unvme_spec::{Cid, Qid, Status};

use super::{CompletionQueue, Doorbells, SubmissionQueue};
use crate::features::HotFeatures;
use crate::interrupts::Interrupts;
use crate::namespace::NamespaceTable;

const INVALID_QUEUE_IDENTIFIER: Status = Status::INVALID_QUEUE_IDENTIFIER.with_do_not_retry();

/// The queues of a controller by their identifiers, that of the admin queue included, and their doorbells.
pub(crate) struct Queues {
    pub(crate) doorbells: Doorbells,
    /// Locked in ascending order, submission before completion queues; only the admin queue's thread and
    /// resets hold more than one of each.
    pub(crate) submission: Box<[Mutex<Option<SubmissionQueue>>]>,
    pub(crate) completion: Box<[Mutex<Option<CompletionQueue>>]>,
    /// A bit per submission queue that exists, so that a server looks at no others.
    existing: [AtomicU64; 2],
    /// Rounds over all queues in which there was nothing to do.
    pub(super) idle_rounds: AtomicU32,
}

impl Queues {
    /// Room for so many queues of either kind, none of which exists, and their doorbells in `memory`.
    pub(crate) fn new(count: usize, memory: Region) -> Self {
        Self {
            doorbells: Doorbells::new(memory),
            submission: (0..count).map(|_| Mutex::new(None)).collect(),
            completion: (0..count).map(|_| Mutex::new(None)).collect(),
            existing: [AtomicU64::new(0), AtomicU64::new(0)],
            idle_rounds: AtomicU32::new(0),
        }
    }

    /// Installs a submission queue; its identifier is free and in range.
    pub(crate) fn install_submission(&self, queue: SubmissionQueue) {
        let id = queue.id;
        let mut cell = lock(&self.submission[usize::from(id)]);
        // While the cell is locked, so that nobody takes the doorbell for that of no queue.
        self.doorbells.clear_tail(id);
        *cell = Some(queue);
        drop(cell);
        self.existing[usize::from(id) / 64].fetch_or(1 << (id % 64), Ordering::Release);
    }

    /// Takes a submission queue out; commands not yet served are dropped with it.
    pub(crate) fn take_submission(&self, id: u16) -> Option<SubmissionQueue> {
        let mut cell = lock(self.submission.get(usize::from(id))?);
        let queue = cell.take()?;
        self.doorbells.mark_absent(Doorbells::tail_offset(id));
        drop(cell);
        self.existing[usize::from(id) / 64].fetch_and(!(1 << (id % 64)), Ordering::Release);
        Some(queue)
    }

    /// Installs a completion queue; its identifier is free and in range.
    pub(crate) fn install_completion(&self, queue: CompletionQueue) {
        let id = queue.id;
        let mut cell = lock(&self.completion[usize::from(id)]);
        self.doorbells.clear_head(id);
        *cell = Some(queue);
    }

    /// Deletes a completion queue that no submission queue completes to.
    pub(crate) fn delete_completion(&self, qid: Qid) -> Result<(), Status> {
        let cell = self.completion.get(usize::from(qid.0)).ok_or(INVALID_QUEUE_IDENTIFIER)?;
        let mut queue = lock(cell);
        match queue.as_ref() {
            None => Err(INVALID_QUEUE_IDENTIFIER),
            Some(queue) if queue.users > 0 => Err(Status::INVALID_QUEUE_DELETION.with_do_not_retry()),
            Some(_) => {
                *queue = None;
                self.doorbells.mark_absent(Doorbells::head_offset(qid.0));
                Ok(())
            }
        }
    }

    /// One more submission queue completes to this completion queue.
    pub(crate) fn count_user(&self, cqid: Qid) -> Result<(), Status> {
        let missing = Status::COMPLETION_QUEUE_INVALID.with_do_not_retry();
        let cell = self.completion.get(usize::from(cqid.0)).ok_or(missing)?;
        let mut queue = lock(cell);
        let queue = queue.as_mut().ok_or(missing)?;
        queue.users += 1;
        Ok(())
    }

    /// True when the host has created an I/O queue of either kind.
    pub(crate) fn has_io_queues(&self) -> bool {
        self.submission.iter().skip(1).any(|cell| lock(cell).is_some())
            || self.completion.iter().skip(1).any(|cell| lock(cell).is_some())
    }

    /// True when a completion queue signals this interrupt vector.
    pub(crate) fn is_vector_in_use(&self, vector: u16) -> bool {
        self.completion.iter().any(|cell| lock(cell).as_ref().is_some_and(|q| q.vector == Some(vector)))
    }

    pub(crate) fn submission_exists(&self, qid: Qid) -> bool {
        self.submission.get(usize::from(qid.0)).is_some_and(|cell| lock(cell).is_some())
    }

    pub(crate) fn completion_exists(&self, qid: Qid) -> bool {
        self.completion.get(usize::from(qid.0)).is_some_and(|cell| lock(cell).is_some())
    }

    /// Identifiers of the submission queues that exist, in ascending order.
    #[inline]
    pub(crate) fn existing(&self) -> impl Iterator<Item = u16> + '_ {
        self.existing.iter().enumerate().flat_map(|(word, existing)| {
            let mut bits = existing.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as u16)?;
                bits &= bits - 1;
                Some(word as u16 * 64 + bit)
            })
        })
    }

    /// Waits until no queue uses a mapping of `memory` that has been taken away.
    pub(crate) fn drop_stale_mappings(&self, memory: &AddressSpace) {
        for cell in &self.submission {
            if let Some(queue) = lock(cell).as_mut() {
                queue.refresh(memory);
            }
        }
        for cell in &self.completion {
            if let Some(queue) = lock(cell).as_mut() {
                queue.refresh(memory);
            }
        }
    }

    /// Waits until no I/O queue uses an older version of `namespaces`.
    pub(crate) fn drain(&self, namespaces: &Published<NamespaceTable>) {
        for cell in self.submission.iter().skip(1) {
            if let Some(queue) = lock(cell).as_mut() {
                namespaces.refresh(&mut queue.namespaces);
            }
        }
    }

    /// When a completion that is held, or an interrupt, is due.
    pub(crate) fn next_due(&self, features: &HotFeatures) -> Option<u64> {
        let of_queue = |cell: &Mutex<Option<CompletionQueue>>| {
            let guard = lock(cell);
            let queue = guard.as_ref()?;
            let interrupt = queue.unannounced_since.zip(queue.vector).and_then(|(since, vector)| {
                let (_, nanoseconds) = features.coalescing_of(vector)?;
                Some(since.saturating_add(nanoseconds))
            });
            queue.next_due().into_iter().chain(interrupt).min()
        };
        self.completion.iter().filter_map(of_queue).min()
    }

    /// Ends a command that has been executed and is held until it is due; false when there is no such
    /// command. The admin submission queue is locked by the caller.
    pub(crate) fn abort_held(&self, sqid: Qid, cid: Cid, interrupts: &Interrupts) -> bool {
        let cqid = match sqid {
            Qid::ADMIN => Some(0),
            Qid(id) => self.submission.get(usize::from(id)).and_then(|cell| Some(lock(cell).as_ref()?.cqid)),
        };
        let Some(cell) = cqid.and_then(|id| self.completion.get(usize::from(id))) else { return false };
        let mut guard = lock(cell);
        let Some(queue) = guard.as_mut() else { return false };
        let aborted = queue.abort_held(sqid.0, cid.0);
        // It is complete before the Abort is (Base 5.1.1).
        queue.announce_now(interrupts);
        aborted
    }
}

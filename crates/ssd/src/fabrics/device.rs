//! A queue of a controller of a device: rings that the controller knows as any others, in memory that both
//! ends of are here.
//!
//! The controller executes what is in them as it does for a host at a bus, so that everything it can do, and
//! every fault it is told to have, is the same over a network.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unvme_bus::space::Direction;
use unvme_bus::{Clock, DmaAccess, Function, Region, lock};
use unvme_spec::regs::{Aqa, offset};
use unvme_spec::{Sqe, Status};

use super::staging::Pool;
use crate::Ssd;
use crate::association::{Association, EndReason};
use crate::queue::{
    CQE_BYTES, CompletionQueue, CompletionQueueParts, Doorbells, Ring, SQE_BYTES, SubmissionQueue,
    SubmissionQueueParts,
};

/// How long to leave a controller alone that has commands and does not answer them, in nanoseconds.
const LOOK_AGAIN_NS: u64 = 5_000_000;
/// Bytes of a page of the smallest size there is: data is in one block, which no page size divides.
const PAGE_BYTES: u32 = 4096;
const PHASE: u64 = 1 << 48;

/// See the module.
pub(super) struct DeviceQueue {
    pub(super) ssd: Arc<Ssd>,
    pub(super) association: Arc<Association>,
    pub(super) qid: u16,
    /// Submission ring, and the completion ring behind it.
    rings: Region,
    rings_iova: u64,
    entries: u32,
    tail: u32,
    head: u32,
    phase: bool,
    /// There are entries that the controller has not been told of.
    is_to_ring: bool,
    /// Commands that the controller has.
    running: u32,
    /// Of them, Asynchronous Event Requests, which stay.
    patient: u32,
    resets: u32,
    /// When the controller is to be looked at again.
    due: Option<u64>,
}

/// What the controller says of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) cid: u16,
    pub(super) status: Status,
    /// Bytes of data for the host, in the place of what other hosts are told of their submission queues.
    pub(super) sent: u32,
    pub(super) result: u64,
}

impl DeviceQueue {
    /// Rings for `commands` at a time, in memory of the pool. The admin queue's are made known to the
    /// controller, which the host enables; those of an I/O queue are installed. `resets` is how often the
    /// controller had been reset when it was found to be ready.
    pub(super) fn new(
        ssd: Arc<Ssd>,
        association: Arc<Association>,
        qid: u16,
        commands: u16,
        resets: u32,
        pool: &mut Pool,
    ) -> Option<Self> {
        // One entry more than there are commands: a full ring could not be told from an empty one.
        let entries = u32::from(commands) + 1;
        let sq_bytes = entries as usize * SQE_BYTES;
        let rings =
            Region::anonymous(sq_bytes.next_multiple_of(PAGE_BYTES as usize) + entries as usize * CQE_BYTES)
                .ok()?;
        let rings_iova = pool.spare_iova(rings.len());
        pool.space().map(rings_iova, &rings, DmaAccess::READ_WRITE).ok()?;
        let queue = Self {
            resets,
            ssd,
            association,
            qid,
            rings,
            rings_iova,
            entries,
            tail: 0,
            head: 0,
            phase: true,
            is_to_ring: false,
            running: 0,
            patient: 0,
            due: None,
        };
        if qid == 0 { queue.announce_admin() } else { queue.install(pool) }?;
        Some(queue)
    }

    fn cq_offset(&self) -> usize {
        (self.entries as usize * SQE_BYTES).next_multiple_of(PAGE_BYTES as usize)
    }

    /// The registers of the admin queue, which no host sets over a network.
    fn announce_admin(&self) -> Option<()> {
        let sizes = (self.entries - 1) as u16;
        let aqa = Aqa::new().with_asqs_z(sizes).with_acqs_z(sizes);
        let acq = self.rings_iova + self.cq_offset() as u64;
        self.ssd.bar_write(0, offset::AQA, &aqa.into_bits().to_le_bytes()).ok()?;
        self.ssd.bar_write(0, offset::ASQ, &self.rings_iova.to_le_bytes()).ok()?;
        self.ssd.bar_write(0, offset::ACQ, &acq.to_le_bytes()).ok()
    }

    fn install(&self, pool: &Pool) -> Option<()> {
        let host = pool.space().view();
        let sq_bytes = self.entries as usize * SQE_BYTES;
        let cq_bytes = self.entries as usize * CQE_BYTES;
        let sq_ring = Ring::find(&host, self.rings_iova, sq_bytes, Direction::Read)?;
        let cq_iova = self.rings_iova + self.cq_offset() as u64;
        let cq_ring = Ring::find(&host, cq_iova, cq_bytes, Direction::Write)?;
        let mut completion = CompletionQueue::new(CompletionQueueParts {
            id: self.qid,
            entries: self.entries,
            vector: None,
            ring: cq_ring,
            host: host.clone(),
            space: Some(Arc::clone(pool.space())),
        });
        completion.users = 1;
        self.ssd.queues.install_completion(completion);
        self.ssd.queues.install_submission(SubmissionQueue::new(SubmissionQueueParts {
            cntlid: self.ssd.controller_id(),
            id: self.qid,
            cqid: self.qid,
            entries: self.entries,
            ring: sq_ring,
            page_bytes: PAGE_BYTES,
            host,
            space: Some(Arc::clone(pool.space())),
            namespaces: self.ssd.namespaces.reader(),
            is_timed: !self.ssd.config.timing.is_none(),
        }));
        Some(())
    }

    /// CC.EN is clear, or was never set. A controller that has failed still takes commands, and does not
    /// execute them.
    #[inline]
    pub(super) fn is_disabled(&self) -> bool {
        self.ssd.is_stopped() && !self.ssd.is_fatal.load(Ordering::Relaxed)
    }

    /// The controller has been reset since the last time: it has none of the commands it had, and an admin
    /// queue begins anew.
    pub(super) fn notice_reset(&mut self) -> bool {
        let resets = self.association.resets();
        if resets == self.resets {
            return false;
        }
        self.resets = resets;
        self.rings.fill(0, self.rings.len(), 0);
        (self.tail, self.head, self.phase) = (0, 0, true);
        (self.is_to_ring, self.running, self.patient, self.due) = (false, 0, 0, None);
        true
    }

    /// Hands a command to the controller, which is told of it in [`DeviceQueue::advance`]. There are no more
    /// commands than the rings were made for.
    #[inline]
    pub(super) fn push(&mut self, sqe: &Sqe, is_patient: bool) {
        self.rings.write_words(self.tail as usize * SQE_BYTES, sqe.to_words());
        self.tail = if self.tail + 1 == self.entries { 0 } else { self.tail + 1 };
        self.is_to_ring = true;
        self.running += 1;
        self.patient += u32::from(is_patient);
    }

    /// Lets the controller work; returns how much it did.
    #[inline]
    pub(super) fn advance(&mut self, clock: &Clock) -> usize {
        if self.is_to_ring {
            self.is_to_ring = false;
            let doorbell = Doorbells::tail_offset(self.qid);
            self.ssd.queues.doorbells.memory().store_u32(doorbell, self.tail, Ordering::Release);
        }
        self.ssd.advance(Some(self.qid), clock)
    }

    /// The next command that the controller has executed.
    #[inline]
    pub(super) fn next_completion(&mut self) -> Option<Completion> {
        let at = self.cq_offset() + self.head as usize * CQE_BYTES;
        // Acquire: pairs with the Release of the controller's post; the result and the data are there as
        // well.
        let tagged = self.rings.load_u64(at + 8, Ordering::Acquire);
        if (tagged & PHASE != 0) != self.phase {
            return None;
        }
        let result = self.rings.load_u64(at, Ordering::Relaxed);
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
        self.running = self.running.saturating_sub(1);
        Some(Completion {
            cid: (tagged >> 32) as u16,
            status: Status::from_raw((tagged >> 49) as u16),
            sent: tagged as u32,
            result,
        })
    }

    /// An Asynchronous Event Request has been answered.
    pub(super) fn event_request_answered(&mut self) {
        self.patient = self.patient.saturating_sub(1);
    }

    /// The completions that have been taken are the controller's to write again.
    #[inline]
    pub(super) fn consumed(&self) {
        let doorbell = Doorbells::head_offset(self.qid);
        self.ssd.queues.doorbells.memory().store_u32(doorbell, self.head, Ordering::Release);
    }

    /// Finds out when the controller has to be looked at again, after it had nothing to do.
    pub(super) fn note_due(&mut self, now: u64) {
        self.due = None;
        if self.running <= self.patient {
            return;
        }
        let held = self.ssd.queues.completion.get(usize::from(self.qid));
        let due = held.and_then(|cell| lock(cell).as_ref().and_then(CompletionQueue::next_due));
        // What is held for longer may be aborted before, by the admin queue, which tells nobody.
        self.due = Some(due.unwrap_or(u64::MAX).min(now.saturating_add(LOOK_AGAIN_NS)));
    }

    pub(super) fn due(&self) -> Option<u64> {
        self.due
    }

    /// The controller does not reach what the pool has unmapped: it takes a new snapshot now, rather than
    /// with the next command.
    #[cold]
    pub(super) fn drop_stale_mappings(&self) {
        let at = usize::from(self.qid);
        if let Some(cell) = self.ssd.queues.submission.get(at)
            && let Some(queue) = lock(cell).as_mut()
        {
            queue.refresh(&self.ssd.memory);
        }
        if let Some(cell) = self.ssd.queues.completion.get(at)
            && let Some(queue) = lock(cell).as_mut()
        {
            queue.refresh(&self.ssd.memory);
        }
    }

    /// The controller does not have the queue any more, whoever else may have taken its place.
    pub(super) fn close(&mut self) {
        if self.qid == 0 {
            self.association.end(EndReason::AdminGone);
            self.ssd.stop_serving();
            self.ssd.remove_queues();
            // The host that connects again claims anew: it must not be refused for itself.
            self.ssd.release_claims();
        } else {
            // A reset has done so already, unless it came between the two; the seat is still ours.
            self.ssd.remove_submission(self.qid);
            if let Some(cell) = self.ssd.queues.completion.get(usize::from(self.qid)) {
                *lock(cell) = None;
                self.ssd.queues.doorbells.mark_absent(Doorbells::head_offset(self.qid));
            }
        }
        self.association.leave_seat(self.qid);
    }
}

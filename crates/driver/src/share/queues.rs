//! The I/O queues of a client: queues of the drive, in the client's memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use unvme_bus::{Clock, Doorbell, EventFd, Region};
use unvme_spec::{Qid, Status};

use super::rings::Broken;
use crate::pcie::PcieDevice;

/// Bytes of the two doorbells of a queue pair in the client's page.
const PAIR_BYTES: usize = 8;

/// Whether the drive has a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueState {
    /// It has been asked to create it.
    Creating,
    /// It has it.
    Live,
    /// It has been asked to delete it.
    Deleting,
}

/// An interrupt vector of the drive, and which of the client's it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vector {
    client: u16,
    pub(super) drive: u16,
}

struct SubmissionQueue {
    entries: u32,
    cqid: u16,
    tail: u32,
    doorbell: Doorbell,
    state: QueueState,
}

struct CompletionQueue {
    entries: u32,
    head: u32,
    doorbell: Doorbell,
    vector: Option<Vector>,
    state: QueueState,
}

/// All I/O queues of one client.
pub(super) struct Queues {
    device: Arc<PcieDevice>,
    /// Doorbells as the client writes them: submission tail and completion head of queue 0, of queue 1, and
    /// so on.
    page: Region,
    submission: BTreeMap<u16, SubmissionQueue>,
    completion: BTreeMap<u16, CompletionQueue>,
    /// Identifiers that nobody else may use. They stay the client's when it resets its controller: its host
    /// will create the same queues again.
    claimed: BTreeSet<u16>,
    /// Where the client's interrupts go.
    events: Vec<Option<EventFd>>,
}

impl Queues {
    pub(super) fn new(device: Arc<PcieDevice>, page: Region, vectors: u16) -> Self {
        Self {
            device,
            page,
            submission: BTreeMap::new(),
            completion: BTreeMap::new(),
            claimed: BTreeSet::new(),
            events: vec![None; usize::from(vectors)],
        }
    }

    /// True when the drive has none of the client's queues, and has not been asked for any.
    pub(super) fn is_empty(&self) -> bool {
        self.submission.is_empty() && self.completion.is_empty()
    }

    /// What the client has last written to a doorbell: the tail of a submission queue or the head of a
    /// completion queue.
    pub(super) fn doorbell(&self, qid: u16, is_completion: bool) -> u32 {
        // Acquire: pairs with the client's Release store; the entries were written before it.
        self.place(qid, is_completion).map_or(0, |at| self.page.load_u32(at, Ordering::Acquire))
    }

    /// Clears the doorbells of the admin queue, for a client that starts again.
    pub(super) fn clear_admin_doorbells(&self) {
        for is_completion in [false, true] {
            self.clear(0, is_completion);
        }
    }

    fn clear(&self, qid: u16, is_completion: bool) {
        if let Some(at) = self.place(qid, is_completion) {
            self.page.store_u32(at, 0, Ordering::Relaxed);
        }
    }

    fn place(&self, qid: u16, is_completion: bool) -> Option<usize> {
        let pair = usize::from(qid).checked_mul(PAIR_BYTES)?;
        let at = pair.checked_add(if is_completion { 4 } else { 0 })?;
        (at.checked_add(4)? <= self.page.len()).then_some(at)
    }

    /// Where interrupt `vector` of the client goes from now on. Errors: those of
    /// [`unvme_bus::Function::set_vector`].
    pub(super) fn listen(&mut self, vector: u16, event: Option<EventFd>) -> Result<(), unvme_bus::BusError> {
        for queue in self.completion.values() {
            if let Some(of_queue) = queue.vector.filter(|of_queue| of_queue.client == vector) {
                self.device.function.set_vector(of_queue.drive, event.clone())?;
            }
        }
        if let Some(place) = self.events.get_mut(usize::from(vector)) {
            *place = event;
        }
        Ok(())
    }

    /// Interrupts the client on behalf of its admin queue.
    pub(super) fn signal_admin(&self) {
        if let Some(Some(event)) = self.events.first() {
            event.signal();
        }
    }

    /// Notes a completion queue that the drive is about to be asked for; the vector of the drive that it is
    /// to use when it has interrupts. Errors: the status that refuses it.
    pub(super) fn add_completion(
        &mut self,
        qid: Qid,
        entries: u32,
        interrupt: Option<u16>,
    ) -> Result<Option<u16>, Status> {
        if self.completion.contains_key(&qid.0) {
            return Err(Status::INVALID_QUEUE_IDENTIFIER);
        }
        if interrupt.is_some_and(|vector| usize::from(vector) >= self.events.len()) {
            return Err(Status::INVALID_INTERRUPT_VECTOR);
        }
        self.claim(qid)?;
        let vector = match interrupt.map(|client| self.route(client)).transpose() {
            Ok(vector) => vector,
            Err(status) => {
                self.disclaim(qid.0);
                return Err(status);
            }
        };
        self.clear(qid.0, true);
        let doorbell = self.device.cq_doorbell(qid);
        let queue = CompletionQueue { entries, head: 0, doorbell, vector, state: QueueState::Creating };
        self.completion.insert(qid.0, queue);
        Ok(vector.map(|vector| vector.drive))
    }

    /// Lets a free vector of the drive interrupt the client.
    fn route(&self, client: u16) -> Result<Vector, Status> {
        let drive = self.device.claim_vector().ok_or(Status::INVALID_INTERRUPT_VECTOR)?;
        let event = self.events.get(usize::from(client)).cloned().flatten();
        if let Err(e) = self.device.function.set_vector(drive, event) {
            tracing::warn!(vector = drive, error = %e, "interrupt of a client");
            self.device.return_vector(drive);
            return Err(Status::INTERNAL_ERROR);
        }
        Ok(Vector { client, drive })
    }

    /// Notes a submission queue that the drive is about to be asked for. Errors: the status that refuses it.
    pub(super) fn add_submission(&mut self, qid: Qid, entries: u32, cqid: Qid) -> Result<(), Status> {
        if self.submission.contains_key(&qid.0) {
            return Err(Status::INVALID_QUEUE_IDENTIFIER);
        }
        if self.completion.get(&cqid.0).is_none_or(|queue| queue.state != QueueState::Live) {
            return Err(Status::COMPLETION_QUEUE_INVALID);
        }
        self.claim(qid)?;
        self.clear(qid.0, false);
        let doorbell = self.device.sq_doorbell(qid);
        let queue = SubmissionQueue { entries, cqid: cqid.0, tail: 0, doorbell, state: QueueState::Creating };
        self.submission.insert(qid.0, queue);
        Ok(())
    }

    fn claim(&mut self, qid: Qid) -> Result<(), Status> {
        let is_possible = qid != Qid::ADMIN && self.place(qid.0, true).is_some();
        if is_possible && (self.claimed.contains(&qid.0) || self.device.base.queues.claim(qid.0.into())) {
            self.claimed.insert(qid.0);
            return Ok(());
        }
        Err(Status::INVALID_QUEUE_IDENTIFIER)
    }

    /// Gives an identifier back that no queue of the client has any more.
    fn disclaim(&mut self, qid: u16) {
        let in_use = self.submission.contains_key(&qid) || self.completion.contains_key(&qid);
        if !in_use && self.claimed.remove(&qid) {
            self.device.return_queue(Qid(qid), None);
        }
    }

    /// The drive has created a queue, or refused to.
    pub(super) fn created(&mut self, qid: u16, is_completion: bool, done: bool) {
        match (is_completion, done) {
            (true, true) => {
                self.completion.entry(qid).and_modify(|queue| queue.state = QueueState::Live);
            }
            (false, true) => {
                self.submission.entry(qid).and_modify(|queue| queue.state = QueueState::Live);
            }
            (_, false) => {
                self.deleted(qid, is_completion, true);
                self.disclaim(qid);
            }
        }
    }

    /// Notes that the drive is about to be asked to delete a queue. Errors: the status that refuses it.
    pub(super) fn remove(&mut self, qid: Qid, is_completion: bool) -> Result<(), Status> {
        let posts_to = |queue: &SubmissionQueue| queue.cqid == qid.0;
        if is_completion && self.submission.values().any(posts_to) {
            return match self.completion.contains_key(&qid.0) {
                true => Err(Status::INVALID_QUEUE_DELETION),
                false => Err(Status::INVALID_QUEUE_IDENTIFIER),
            };
        }
        let state = if is_completion {
            self.completion.get_mut(&qid.0).map(|queue| &mut queue.state)
        } else {
            self.submission.get_mut(&qid.0).map(|queue| &mut queue.state)
        };
        match state {
            Some(state @ QueueState::Live) => {
                *state = QueueState::Deleting;
                Ok(())
            }
            _ => Err(Status::INVALID_QUEUE_IDENTIFIER),
        }
    }

    /// The drive has deleted a queue, or (not `done`) still has it.
    pub(super) fn deleted(&mut self, qid: u16, is_completion: bool, done: bool) {
        match (is_completion, done) {
            (true, false) => {
                self.completion.entry(qid).and_modify(|queue| queue.state = QueueState::Live);
            }
            (false, false) => {
                self.submission.entry(qid).and_modify(|queue| queue.state = QueueState::Live);
            }
            (true, true) => {
                if let Some(vector) = self.completion.remove(&qid).and_then(|queue| queue.vector) {
                    self.silence(vector);
                }
            }
            (false, true) => {
                self.submission.remove(&qid);
            }
        }
    }

    /// The client itself has deleted a queue: somebody else may have its identifier.
    pub(super) fn released(&mut self, qid: u16) {
        self.disclaim(qid);
    }

    fn silence(&self, vector: Vector) {
        // The function may be gone already.
        let _ = self.device.function.set_vector(vector.drive, None);
        self.device.return_vector(vector.drive);
    }

    /// A queue that is there, for whoever deletes all of them: submission queues before completion queues.
    pub(super) fn next_to_delete(&self) -> Option<(u16, bool)> {
        let there = |state: &QueueState| *state == QueueState::Live;
        let submission = self.submission.iter().find(|(_, queue)| there(&queue.state));
        if let Some((&qid, _)) = submission {
            return Some((qid, false));
        }
        let completion = self.completion.iter().find(|(_, queue)| there(&queue.state));
        completion.filter(|_| self.submission.is_empty()).map(|(&qid, _)| (qid, true))
    }

    /// True when the client has a submission queue of that identifier.
    pub(super) fn has_submission(&self, qid: Qid) -> bool {
        self.submission.get(&qid.0).is_some_and(|queue| queue.state == QueueState::Live)
    }

    /// Carries what the client has rung to the drive; how many doorbells that were. Errors: [`Broken`] for a
    /// value beyond the queue.
    pub(super) fn relay(&mut self, clock: &Clock) -> Result<usize, Broken> {
        let mut rung = 0usize;
        let page = self.page.clone();
        let load = |qid: u16, of: usize| {
            let at = usize::from(qid).saturating_mul(PAIR_BYTES).saturating_add(of);
            // Acquire: pairs with the client's Release store. The entries it wrote before are visible to the
            // drive when the doorbell is, which is rung after this load.
            page.load_u32(at, Ordering::Acquire)
        };
        for (&qid, queue) in self.completion.iter_mut() {
            let head = load(qid, 4);
            if head == queue.head || queue.state != QueueState::Live {
                continue;
            }
            if head >= queue.entries {
                return Err(Broken("a completion queue's doorbell is beyond the queue"));
            }
            queue.head = head;
            rung = rung.saturating_add(ring(&queue.doorbell, head));
        }
        for (&qid, queue) in self.submission.iter_mut() {
            let tail = load(qid, 0);
            if queue.state != QueueState::Live {
                continue;
            }
            if tail != queue.tail {
                if tail >= queue.entries {
                    return Err(Broken("a submission queue's doorbell is beyond the queue"));
                }
                queue.tail = tail;
                rung = rung.saturating_add(ring(&queue.doorbell, tail));
            }
            if self.device.host_driven {
                rung = rung.saturating_add(self.device.function.advance(Some(qid), clock));
            }
        }
        Ok(rung)
    }

    /// Forgets everything, for a drive that has forgotten its queues, or a client that is gone.
    pub(super) fn forget(&mut self) {
        self.submission.clear();
        for queue in std::mem::take(&mut self.completion).into_values() {
            if let Some(vector) = queue.vector {
                self.silence(vector);
            }
        }
        for qid in std::mem::take(&mut self.claimed) {
            self.device.return_queue(Qid(qid), None);
        }
    }
}

/// 1: a doorbell that has been rung. When the connection fails the drive is gone, which shows elsewhere.
fn ring(doorbell: &Doorbell, value: u32) -> usize {
    if let Err(e) = doorbell.ring(value) {
        tracing::debug!(error = %e, "doorbell of a client");
    }
    1
}

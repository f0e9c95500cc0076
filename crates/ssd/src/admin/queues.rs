//! Create and Delete I/O Submission and Completion Queue (Base 5.2).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_bus::lock;
use unvme_bus::space::Direction;
use unvme_spec::admin::{CreateIoCq, CreateIoSq};
use unvme_spec::{Qid, Sqe, Status};

use crate::Ssd;
use crate::queue::{
    CQE_BYTES, CompletionQueue, CompletionQueueParts, Ring, SQE_BYTES, SubmissionQueue, SubmissionQueueParts,
};

const INVALID_QUEUE_IDENTIFIER: Status = Status::INVALID_QUEUE_IDENTIFIER.with_do_not_retry();

impl Ssd {
    pub(super) fn create_io_cq(
        &self,
        admin: &SubmissionQueue,
        sqe: &Sqe,
        create: CreateIoCq,
    ) -> Result<u64, Status> {
        self.check_io_queue_id(create.qid)?;
        if self.queues.completion_exists(create.qid) {
            return Err(INVALID_QUEUE_IDENTIFIER);
        }
        let entry_size_set = lock(&self.configuration).iocqes() == 4;
        self.check_queue_size(create.size, entry_size_set)?;
        check_contiguous(create.contiguous)?;
        if create.interrupt.is_some_and(|vector| vector >= self.interrupts.vectors()) {
            return Err(Status::INVALID_INTERRUPT_VECTOR.with_do_not_retry());
        }
        let ring = find_ring(admin, sqe, create.size as usize * CQE_BYTES, Direction::Write)?;
        self.queues.install_completion(CompletionQueue::new(CompletionQueueParts {
            id: create.qid.0,
            entries: create.size,
            vector: create.interrupt,
            ring,
            host: admin.host.clone(),
            space: None,
        }));
        Ok(0)
    }

    pub(super) fn create_io_sq(
        &self,
        admin: &SubmissionQueue,
        sqe: &Sqe,
        create: CreateIoSq,
    ) -> Result<u64, Status> {
        self.check_io_queue_id(create.qid)?;
        if self.queues.submission_exists(create.qid) {
            return Err(INVALID_QUEUE_IDENTIFIER);
        }
        let entry_size_set = lock(&self.configuration).iosqes() == 6;
        self.check_queue_size(create.size, entry_size_set)?;
        self.check_io_queue_id(create.cqid)?;
        check_contiguous(create.contiguous)?;
        let ring = find_ring(admin, sqe, create.size as usize * SQE_BYTES, Direction::Read)?;
        self.queues.count_user(create.cqid)?;
        self.queues.install_submission(SubmissionQueue::new(SubmissionQueueParts {
            cntlid: self.cntlid,
            id: create.qid.0,
            cqid: create.cqid.0,
            entries: create.size,
            ring,
            page_bytes: admin.page_bytes,
            host: admin.host.clone(),
            space: None,
            namespaces: self.namespaces.reader(),
            is_timed: !self.config.timing.is_none(),
        }));
        self.arbiter.join(create.qid.0, create.priority);
        Ok(0)
    }

    pub(super) fn delete_io_cq(&self, qid: Qid) -> Result<u64, Status> {
        self.check_io_queue_id(qid)?;
        self.queues.delete_completion(qid).map(|()| 0)
    }

    /// Commands that wait in the queue are not executed; the host knows from this completion that they never
    /// will be (Base 3.3.1.3).
    pub(super) fn delete_io_sq(&self, qid: Qid) -> Result<u64, Status> {
        self.check_io_queue_id(qid)?;
        let queue = self.remove_submission(qid.0).ok_or(INVALID_QUEUE_IDENTIFIER)?;
        if let Some(cell) = self.queues.completion.get(usize::from(queue.cqid))
            && let Some(completion) = lock(cell).as_mut()
        {
            completion.users = completion.users.saturating_sub(1);
            // What has been executed is answered while the host still listens; what has not never will be.
            completion.post_all_of(qid.0);
            completion.announce_now(&self.interrupts);
        }
        Ok(0)
    }

    /// An I/O queue identifier within what Number of Queues has allocated; the admin queue's is not.
    fn check_io_queue_id(&self, qid: Qid) -> Result<(), Status> {
        match (1..=self.config.io_queues).contains(&qid.0) {
            true => Ok(()),
            false => Err(INVALID_QUEUE_IDENTIFIER),
        }
    }

    /// A queue has at least two entries and at most CAP.MQES + 1, and CC must have said how large they are.
    fn check_queue_size(&self, size: u32, entry_size_set: bool) -> Result<(), Status> {
        match entry_size_set && (2..=self.config.queue_entries).contains(&size) {
            true => Ok(()),
            false => Err(Status::INVALID_QUEUE_SIZE.with_do_not_retry()),
        }
    }
}

/// CAP.CQR asks for contiguous queues, whose address is PRP1 itself.
fn check_contiguous(contiguous: bool) -> Result<(), Status> {
    if contiguous { Ok(()) } else { Err(Status::INVALID_FIELD.with_do_not_retry()) }
}

fn find_ring(admin: &SubmissionQueue, sqe: &Sqe, bytes: usize, direction: Direction) -> Result<Ring, Status> {
    let [iova, _] = sqe.dptr;
    if iova & u64::from(admin.page_bytes - 1) != 0 {
        return Err(Status::PRP_OFFSET_INVALID.with_do_not_retry());
    }
    Ring::find(&admin.host, iova, bytes, direction).ok_or(Status::DATA_TRANSFER_ERROR)
}

//! The queues of a device, and which of them an operation takes.

use std::sync::Arc;

use unvme::worker::{Route, SharedQueue, Worker};

use super::{OpError, QueueChoice, QueueKind};

/// The queues of a device, by kind. It has at least one of either kind.
#[derive(Debug)]
pub(super) struct Workers([Option<Worker>; 2]);

impl Workers {
    pub(super) fn new(synchronous: Option<Worker>, asynchronous: Option<Worker>) -> Self {
        Self([synchronous, asynchronous])
    }

    #[inline]
    fn of(&self, kind: QueueKind) -> Option<&Worker> {
        self.0[usize::from(kind == QueueKind::Async)].as_ref()
    }

    /// Those that are not waited for.
    pub(super) fn asynchronous(&self) -> Option<&Worker> {
        self.of(QueueKind::Async)
    }

    /// Those there are.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Worker> {
        self.0.iter().flatten()
    }

    pub(super) fn queues_of(&self, kind: QueueKind) -> impl Iterator<Item = &SharedQueue> {
        self.shared_of(kind).map(|queue| &**queue)
    }

    /// The queues of a kind, for those who keep them.
    pub(super) fn shared_of(&self, kind: QueueKind) -> impl Iterator<Item = &Arc<SharedQueue>> {
        self.of(kind).into_iter().flat_map(Worker::queues)
    }

    /// All queues.
    pub(super) fn queues(&self) -> impl Iterator<Item = &SharedQueue> {
        self.iter().flat_map(Worker::queues).map(|queue| &**queue)
    }

    #[inline]
    pub(super) fn on_cpu(&self, cpu: u32, kind: QueueKind) -> Option<&SharedQueue> {
        self.of(kind)?.on_cpu(cpu)
    }

    /// The queues an operation of this kind may take, the best one first: those of its kind, that of the
    /// caller's CPU in front; where the device has none of the kind, those of the other. Errors:
    /// [`OpError::WrongQueue`] when a CPU was asked for that has no such queue.
    #[inline]
    pub(super) fn route(&self, choice: QueueChoice, kind: QueueKind) -> Result<Route<'_>, OpError> {
        if let QueueChoice::Cpu(cpu) = choice {
            let queue = self.on_cpu(cpu, kind).ok_or(OpError::WrongQueue { cpu, wanted: kind })?;
            return Ok(queue.route());
        }
        match self.of(kind).or_else(|| self.iter().next()) {
            Some(worker) => Ok(worker.nearest()),
            None => Err(OpError::Closed),
        }
    }
}

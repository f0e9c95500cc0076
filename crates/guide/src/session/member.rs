//! A device of a session.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use unvme::Error;
use unvme::worker::{Command, Descriptor, Done, Medium, SharedQueue, Worker};
use unvme_driver::KvVerdict;
use unvme_spec::Status;
use unvme_spec::fdp::PlacementId;
use unvme_spec::samsung_kv::status::OfPair;

use super::handling::Handling;
use super::journal::{Journal, Topic};
use super::listed::Listed;
use super::memory::Memory;
use super::operation::{Pending, Work};
use super::workers::Workers;
use super::{Finished, Handler, OpError, Outcome, QueueChoice, QueueKind, Returned};
use crate::config::SsdType;
use unvme::Device;

/// What all members of a session have.
pub(super) struct Shared {
    /// Tells sessions apart.
    pub(super) session: u64,
    pub(super) handler: Handler,
    pub(super) journal: Journal,
    /// Time between two tries to submit to a full queue; `None`: one try.
    pub(super) submit_retry: Option<Duration>,
    /// How long to try.
    pub(super) command_timeout: Duration,
    pub(super) closed: AtomicBool,
}

/// A device of a session. Any thread may call anything.
///
/// Blocking operations run on a synchronous queue: that of the caller's CPU when it is free, otherwise
/// another one. They can be called in a handler, too. The thread is never moved to another CPU. A device
/// without synchronous queues runs them on its asynchronous ones, and the other way round, unless a CPU is
/// asked for by number.
pub struct Member {
    pub(super) index: usize,
    pub(super) device: Device,
    pub(super) medium: Medium,
    pub(super) workers: Workers,
    pub(super) memory: Memory,
    /// Whether more is known of an operation than its token and its completion.
    pub(super) remembers: bool,
    /// What is known, with a token for each.
    pub(super) pending: Pending,
    pub(super) listed: Listed,
    /// The placement identifiers the device has, ascending, once somebody has asked.
    pub(super) placements: OnceLock<Vec<PlacementId>>,
    pub(super) shared: Arc<Shared>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("index", &self.index)
            .field("name", &self.device.name())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl Member {
    /// Its place in the configuration.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// The device itself: identity, controller.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What kind of device it is used as.
    pub fn ssd_type(&self) -> SsdType {
        match self.medium {
            Medium::Pairs(_) => SsdType::Kv,
            Medium::Blocks(_) => SsdType::Lba,
        }
    }

    /// The kind of queue a CPU has. A CPU that has both, as on a machine with a single one, is called
    /// synchronous.
    pub fn queue_kind(&self, cpu: u32) -> Option<QueueKind> {
        [QueueKind::Sync, QueueKind::Async].into_iter().find(|&kind| self.has_queue(cpu, kind))
    }

    /// Whether a CPU has a queue of a kind.
    pub fn has_queue(&self, cpu: u32, kind: QueueKind) -> bool {
        self.workers.on_cpu(cpu, kind).is_some()
    }

    /// CPUs with a queue, ascending.
    pub fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.workers.queues().map(SharedQueue::cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// Commands the asynchronous queues take, each; of the synchronous ones when there are no others.
    pub fn queue_depth(&self) -> usize {
        let depths = |kind| self.workers.queues_of(kind).map(SharedQueue::capacity);
        depths(QueueKind::Async).chain(depths(QueueKind::Sync)).next().unwrap_or(0)
    }

    /// Commands outstanding on the queues of a CPU.
    pub fn outstanding(&self, cpu: u32) -> usize {
        self.workers.queues().filter(|queue| queue.cpu() == cpu).map(SharedQueue::in_queue).sum()
    }

    /// Asynchronous operations that were taken and whose handler has not returned.
    pub fn unfinished(&self) -> u64 {
        self.workers.iter().map(Worker::outstanding).sum()
    }

    /// Commands in the queues, those of blocking calls among them.
    pub(super) fn in_queues(&self) -> u64 {
        self.workers.queues().map(|queue| queue.in_queue() as u64).sum()
    }

    /// Polls asynchronous queues once, that of one CPU or all, calls the handler for what has ended, and
    /// returns its number. For devices without completion threads; harmless with them.
    pub fn process_completions(&self, cpu: Option<u32>) -> usize {
        let mut batch = Vec::new();
        let queues = self.workers.queues().filter(|queue| cpu.is_none_or(|cpu| cpu == queue.cpu()));
        queues.map(|queue| self.process(queue, &mut batch)).sum()
    }

    /// A descriptor that is readable (level) while [`Member::process_completions`] would call the handler, or
    /// has to look: for `poll`, `epoll` and event loops. It is for devices without completion threads, and
    /// from the first call on it is whoever watches it that makes progress: they process completions when it
    /// is readable, and now and then when it is not for long, because a device that has died does not
    /// interrupt. Where the device does not interrupt ([`super::SessionOptions::interrupts`]) it is readable
    /// as long as asynchronous operations are under way.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a device whose completions a thread delivers, or without asynchronous
    /// queues; [`Error::Io`], [`Error::Driver`] when the system has no descriptor left.
    pub fn descriptor(&self) -> Result<Descriptor, Error> {
        let unsupported =
            |reason: &str| Error::Unsupported { name: self.name().to_owned(), reason: reason.to_owned() };
        let Some(worker) = self.workers.asynchronous() else {
            return Err(unsupported("it has no asynchronous queue whose completions could be waited for"));
        };
        if worker.queues().iter().any(|queue| queue.is_served()) {
            return Err(unsupported("a thread delivers its completions; open it for polling, without one"));
        }
        worker.descriptor()
    }

    /// Lets a queue's device work and calls the handler for what has ended; returns its number. `batch` is
    /// empty before and after.
    pub(super) fn process(&self, queue: &SharedQueue, batch: &mut Vec<Done>) -> usize {
        let count = queue.harvest(batch);
        self.deliver(batch);
        queue.delivered(count);
        count
    }

    /// Calls the handler for what has ended.
    pub(super) fn deliver(&self, batch: &mut Vec<Done>) {
        for done in batch.drain(..) {
            let (token, work) =
                if self.remembers { self.pending.take(done.token) } else { (done.token, Work::Nothing) };
            self.finish(token, work.end(done, &self.memory));
        }
    }

    /// Calls the handler. No lock is held.
    pub(super) fn finish(&self, token: u64, outcome: Outcome) {
        if self.shared.journal.has(Topic::Error) {
            self.note_end(token, &outcome);
        }
        let _handling = Handling::of(self.shared.session);
        let finished = Finished { member: self.index, token, outcome };
        // A panic ends here: beyond are operations whose handler has still to be called, and the thread that
        // does it. What the handler leaves half done is its own; nothing of the session's is lent to it.
        if panic::catch_unwind(AssertUnwindSafe(|| (self.shared.handler)(finished))).is_err() {
            self.note_panic(token);
        }
    }

    #[cold]
    fn note_panic(&self, token: u64) {
        tracing::error!(device = self.name(), token, "a handler has panicked");
        self.shared.journal.write(
            Topic::Error,
            self.name(),
            format_args!("operation {token:#x}: its handler has panicked"),
        );
    }

    #[cold]
    fn note_end(&self, token: u64, outcome: &Outcome) {
        let what = format_args!("operation {token:#x}: {}", self.told(outcome.status));
        self.shared.journal.write(topic_of(outcome.status), self.name(), what);
    }

    /// Logs how a blocking command has ended, if that is wanted.
    #[inline]
    pub(super) fn note(
        &self,
        command: Command<'_>,
        answer: Result<Done, Returned>,
    ) -> Result<Done, Returned> {
        if self.shared.journal.has(Topic::Error) {
            self.note_answer(command, &answer);
        }
        answer
    }

    #[cold]
    fn note_answer(&self, command: Command<'_>, answer: &Result<Done, Returned>) {
        let opcode = command.opcode();
        let journal = &self.shared.journal;
        match answer {
            Ok(Done { status, .. }) => {
                let status_text = self.told(*status);
                let what = format_args!("opcode {opcode:#04x}: {status_text}");
                journal.write(topic_of(*status), self.name(), what);
            }
            Err(e) => journal.write(Topic::Error, self.name(), format_args!("opcode {opcode:#04x}: {e}")),
        }
    }

    /// How a status of this device is told; one that no device has sent, with the reason why.
    fn told(&self, status: Status) -> String {
        let text = match self.medium {
            Medium::Pairs(_) => OfPair(status).to_string(),
            Medium::Blocks(_) => status.to_string(),
        };
        let ended_by = || self.device.controller().ended_by();
        match (status.kind() == Status::ABORTED_BY_HOST).then(ended_by).flatten() {
            Some(why) => format!("{text}: {why}"),
            None => text,
        }
    }

    /// For operations that turn out to need no queue: they are refused as if they did. Errors:
    /// [`OpError::Closed`]; [`OpError::WrongQueue`].
    #[inline]
    pub(super) fn check_queue(&self, choice: QueueChoice, kind: QueueKind) -> Result<(), OpError> {
        if self.shared.closed.load(Ordering::Relaxed) {
            return Err(OpError::Closed);
        }
        match choice {
            QueueChoice::Auto => Ok(()),
            QueueChoice::Cpu(_) => self.workers.route(choice, kind).map(drop),
        }
    }

    /// Whether this thread is in the handler of this member's session.
    pub(super) fn is_in_handler(&self) -> bool {
        Handling::is_in(self.shared.session)
    }
}

/// What a status is logged as: that a key is there or not is an answer, and no error.
fn topic_of(status: Status) -> Topic {
    match KvVerdict::of(status) {
        KvVerdict::Full | KvVerdict::Failed => Topic::Error,
        _ => Topic::Operation,
    }
}

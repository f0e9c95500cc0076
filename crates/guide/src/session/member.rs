//! A device of a session.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use unvme_driver::{Completion, DmaBuf, KvNamespace, KvVerdict, Namespace};
use unvme_spec::Status;
use unvme_spec::fdp::PlacementId;

use super::handling::Handling;
use super::journal::{Journal, Topic};
use super::lane::{BATCH, Command, Data, Ended, Lane, SPARE_BYTES, Submitter};
use super::lanes::{Candidates, Lanes};
use super::listed::Listed;
use super::memory::Memory;
use super::operation::Pending;
use super::patience::Patience;
use super::{Finished, Handler, OpError, Outcome, QueueChoice, QueueKind};
use crate::config::SsdType;
use unvme::Device;

/// What is behind the queues.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Kv(KvNamespace),
    Blocks(Namespace),
}

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
/// Blocking operations run on a synchronous queue: that of the caller's CPU when it is free, otherwise another one. They
/// can be called in a handler, too. The thread is never moved to another CPU. A device without synchronous queues
/// runs them on its asynchronous ones, and the other way round, unless a CPU is asked for by number.
pub struct Member {
    pub(super) index: usize,
    pub(super) device: Device,
    pub(super) target: Target,
    pub(super) lanes: Lanes,
    pub(super) memory: Memory,
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
            .field("lanes", &self.lanes.all())
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
        match self.target {
            Target::Kv(_) => SsdType::Kv,
            Target::Blocks(_) => SsdType::Lba,
        }
    }

    /// The kind of queue a CPU has. A CPU that has both, as on a machine with a single one, is called synchronous.
    pub fn queue_kind(&self, cpu: u32) -> Option<QueueKind> {
        [QueueKind::Sync, QueueKind::Async].into_iter().find(|&kind| self.has_queue(cpu, kind))
    }

    /// Whether a CPU has a queue of a kind.
    pub fn has_queue(&self, cpu: u32, kind: QueueKind) -> bool {
        self.lanes.on_cpu(cpu, kind).is_some()
    }

    /// CPUs with a queue, ascending.
    pub fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.lanes.all().iter().map(|lane| lane.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// Commands the asynchronous queues take, each; of the synchronous ones when there are no others.
    pub fn queue_depth(&self) -> usize {
        let depths = |kind| self.lanes.all().iter().filter(move |lane| lane.kind == kind).map(Lane::capacity);
        depths(QueueKind::Async).chain(depths(QueueKind::Sync)).next().unwrap_or(0)
    }

    /// Commands outstanding on the queues of a CPU.
    pub fn outstanding(&self, cpu: u32) -> usize {
        self.lanes.all().iter().filter(|lane| lane.cpu == cpu).map(Lane::in_queue).sum()
    }

    /// Asynchronous operations that were taken and whose handler has not returned.
    pub fn unfinished(&self) -> u64 {
        self.lanes.all().iter().map(Lane::outstanding).sum()
    }

    /// Commands in the queues, those of blocking calls among them.
    pub(super) fn in_queues(&self) -> u64 {
        self.lanes.all().iter().map(|lane| lane.in_queue() as u64).sum()
    }

    /// Polls asynchronous queues once, that of one CPU or all, calls the handler for what has ended, and returns its
    /// number. For devices without completion threads; harmless with them.
    pub fn process_completions(&self, cpu: Option<u32>) -> usize {
        let mut batch = Vec::new();
        let lanes = self.lanes.all().iter().filter(|lane| cpu.is_none_or(|cpu| cpu == lane.cpu));
        lanes.map(|lane| self.process(lane, &mut batch)).sum()
    }

    /// Lets a lane's device work and calls the handler for what has ended; returns its number. `batch` is empty before
    /// and after.
    pub(super) fn process(&self, lane: &Lane, batch: &mut Vec<Ended>) -> usize {
        if lane.outstanding() == 0 {
            return 0;
        }
        lane.advance();
        lane.harvest(BATCH, batch);
        let count = batch.len();
        for Ended { pending, completion } in batch.drain(..) {
            self.finish(pending.token, pending.work.end(completion, &self.memory));
        }
        lane.delivered(count);
        count
    }

    /// Calls the handler. No lock is held.
    pub(super) fn finish(&self, token: u64, outcome: Outcome) {
        if self.shared.journal.has(Topic::Error) {
            self.note_end(token, &outcome);
        }
        let _handling = Handling::of(self.shared.session);
        let finished = Finished { member: self.index, token, outcome };
        // A panic ends here: beyond are operations whose handler has still to be called, and the thread that does it. What
        // the handler leaves half done is its own; nothing of the session's is lent to it.
        if panic::catch_unwind(AssertUnwindSafe(|| (self.shared.handler)(finished))).is_err() {
            self.note_panic(token);
        }
    }

    /// Calls the handler for an operation that needed no command; in a handler later, from whoever serves the lane: handlers
    /// that submit the next operation would otherwise call each other without end.
    ///
    /// # Errors
    /// [`OpError::QueueFull`] when too many operations have ended already, [`OpError::Closed`]. The handler is not called.
    pub(super) fn finish_at_once(
        &self,
        choice: QueueChoice,
        pending: Pending,
        completion: Completion,
    ) -> Result<(), OpError> {
        let ended = Ended { pending, completion };
        if self.is_in_handler() {
            return self.lanes.candidates(choice, QueueKind::Async)?.first.add_ended(ended);
        }
        let Ended { pending, completion } = ended;
        self.finish(pending.token, pending.work.end(completion, &self.memory));
        Ok(())
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
        let what = format_args!("operation {token:#x}: {}", outcome.status);
        self.shared.journal.write(topic_of(outcome.status), self.name(), what);
    }

    /// Logs how a blocking command has ended, if that is wanted.
    #[inline]
    fn note(&self, command: Command<'_>, answer: Result<Completion, OpError>) -> Result<Completion, OpError> {
        if self.shared.journal.has(Topic::Error) {
            self.note_answer(command, &answer);
        }
        answer
    }

    #[cold]
    fn note_answer(&self, command: Command<'_>, answer: &Result<Completion, OpError>) {
        let opcode = command.opcode();
        let journal = &self.shared.journal;
        match answer {
            Ok(Completion { status, .. }) => {
                journal.write(topic_of(*status), self.name(), format_args!("opcode {opcode:#04x}: {status}"));
            }
            Err(e) => journal.write(Topic::Error, self.name(), format_args!("opcode {opcode:#04x}: {e}")),
        }
    }

    pub(super) fn lane(&self, index: usize) -> &Lane {
        self.lanes.get(index)
    }

    /// As [`Member::call`] without a buffer, on whichever kind of queue the CPU has that is asked for.
    pub(super) fn call_either(
        &self,
        choice: QueueChoice,
        command: Command<'_>,
    ) -> Result<Completion, OpError> {
        match choice {
            QueueChoice::Cpu(cpu) if !self.has_queue(cpu, QueueKind::Sync) => {
                let candidates = self.lanes.candidates(choice, QueueKind::Async)?;
                self.call_elsewhere(&candidates, command, &mut None)
            }
            choice => self.call(choice, command, &mut None),
        }
    }

    /// Sends a command and waits for it. `buf` comes back with the completion, or stays where it is on an error.
    #[inline]
    pub(super) fn call(
        &self,
        choice: QueueChoice,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
    ) -> Result<Completion, OpError> {
        let candidates = self.lanes.candidates(choice, QueueKind::Sync)?;
        let answer = match candidates.first.try_call(command, buf) {
            Some(Err(OpError::QueueFull)) | None => self.call_elsewhere(&candidates, command, buf),
            Some(answer) => answer,
        };
        self.note(command, answer)
    }

    /// Sends a command that moves `data` and waits for it; `count` says how many bytes one that has succeeded has brought.
    #[inline]
    pub(super) fn exchange(
        &self,
        choice: QueueChoice,
        command: Command<'_>,
        mut data: Data<'_>,
        count: impl Fn(&Completion) -> usize,
    ) -> Result<Completion, OpError> {
        let candidates = self.lanes.candidates(choice, QueueKind::Sync)?;
        match candidates.first.try_exchange(command, &mut data, &count) {
            Some(Err(OpError::QueueFull)) | None => {}
            Some(answer) => return self.note(command, answer),
        }
        let bytes = if data.len() <= SPARE_BYTES { SPARE_BYTES } else { data.len() };
        let mut buf = self.memory.alloc(bytes)?;
        data.fill(&mut buf);
        let answer = self.call_elsewhere(&candidates, command, &mut Some(buf));
        let mut completion = self.note(command, answer)?;
        data.take(&completion, count);
        candidates.first.keep(completion.buf.take());
        Ok(completion)
    }

    /// The first choice is taken: any other, or else the first one that gets free.
    #[cold]
    fn call_elsewhere(
        &self,
        candidates: &Candidates<'_>,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
    ) -> Result<Completion, OpError> {
        for lane in candidates.all() {
            match lane.try_call(command, buf) {
                Some(Err(OpError::QueueFull)) | None => {}
                Some(answer) => return answer,
            }
        }
        let lane = candidates.first;
        let mut patience = Patience::new(lane.advancer());
        let started = Instant::now();
        loop {
            match lane.call(command, buf) {
                Err(OpError::QueueFull) if started.elapsed() < self.shared.command_timeout => {
                    if !lane.is_served() || self.is_in_handler() {
                        // Without a handler: the caller may hold what one would wait for.
                        lane.make_room();
                    }
                    patience.pause();
                }
                answer => return answer,
            }
        }
    }

    /// Submits an asynchronous command. A queue that is full is tried again as the configuration says.
    #[inline]
    pub(super) fn submit(
        &self,
        choice: QueueChoice,
        command: Command<'_>,
        buf: Option<DmaBuf>,
        pending: Pending,
    ) -> Result<(), OpError> {
        self.submit_keeping(choice, command, &mut { buf }, pending)
    }

    /// As [`Member::submit`]; a buffer whose command is not taken stays where it is.
    #[inline]
    pub(super) fn submit_keeping(
        &self,
        choice: QueueChoice,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
        pending: Pending,
    ) -> Result<(), OpError> {
        let mut pending = Some(pending);
        let lane = match self.lanes.candidates(choice, QueueKind::Async) {
            Ok(candidates) => candidates.first,
            Err(e) => {
                self.abandon(pending);
                return Err(e);
            }
        };
        match lane.submit(command, buf, &mut pending, Submitter::Program) {
            Err(OpError::QueueFull) => self.submit_later(lane, command, buf, &mut pending),
            answer => answer,
        }
        .inspect_err(|_| self.abandon(pending))
    }

    /// The operation was not taken.
    #[cold]
    fn abandon(&self, pending: Option<Pending>) {
        if let Some(pending) = pending {
            pending.work.abandon(&self.memory);
        }
    }

    /// Tries to submit again for as long as the configuration says.
    #[cold]
    fn submit_later(
        &self,
        lane: &Lane,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
        pending: &mut Option<Pending>,
    ) -> Result<(), OpError> {
        let Some(interval) = self.shared.submit_retry else { return Err(OpError::QueueFull) };
        let submitter = if self.is_in_handler() { Submitter::Handler } else { Submitter::Program };
        let started = Instant::now();
        let mut patience = Patience::new(lane.advancer());
        while started.elapsed() < self.shared.command_timeout {
            let tried = Instant::now();
            self.free_slots(lane);
            match lane.submit(command, buf, pending, submitter) {
                Err(OpError::QueueFull) if submitter == Submitter::Handler && lane.is_backed_up() => break,
                Err(OpError::QueueFull) => {}
                answer => return answer,
            }
            patience.pause();
            while tried.elapsed() < interval {
                std::thread::yield_now();
            }
        }
        Err(OpError::QueueFull)
    }

    /// Does what the caller can do for a full lane to have room again.
    fn free_slots(&self, lane: &Lane) {
        if self.is_in_handler() {
            // Whoever called the handler may be the only one to serve the lane.
            lane.make_room();
        } else if !lane.is_served() {
            self.process(lane, &mut Vec::new());
        }
    }

    /// For operations that turn out to need no queue: they are refused as if they did.
    ///
    /// # Errors
    /// [`OpError::Closed`]; [`OpError::WrongQueue`].
    #[inline]
    pub(super) fn check_queue(&self, choice: QueueChoice, kind: QueueKind) -> Result<(), OpError> {
        if self.shared.closed.load(Ordering::Relaxed) {
            return Err(OpError::Closed);
        }
        match choice {
            QueueChoice::Auto => Ok(()),
            QueueChoice::Cpu(_) => self.lanes.candidates(choice, kind).map(drop),
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

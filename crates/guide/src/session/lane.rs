//! A queue pair that any thread may use.
//!
//! The driver's queue has one owner; here it is whoever holds the lane's lock. Submitting takes the lock for as long as
//! writing an entry takes. A blocking call looks once for its completion while it has the lock anyway: a device in this
//! process has answered by then, and the call has cost one lock. After that it only tries the lock, and whoever gets it
//! distributes what has completed: to other blocking calls through their slots, to the handler through
//! [`Core::ended`]. So several callers have commands in flight on one lane, and none waits for a lock held over a wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use unvme_bus::{EventFd, lock};
use unvme_driver::{Advancer, Completion, DmaBuf, KvCommand, Payload, Queue, Rejected};
use unvme_spec::{Sqe, Status};

use super::operation::Pending;
use super::patience::Patience;
use super::sleeper::Sleeper;
use super::{OpError, QueueKind};

/// Most completions taken under one lock.
pub(super) const BATCH: usize = 32;
/// Operations that have ended, and whose handler waits to be called, in places of a lane: beyond this many handlers cannot
/// submit more. They reach it only when they submit several for each that ends.
const BACKLOG_MAX: usize = 8;

/// Who submits an asynchronous operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Submitter {
    /// The program. It takes no place while as many operations as there are places have ended and nobody calls their
    /// handlers.
    Program,
    /// A handler, which others wait for until it returns: it is put off only when handlers multiply operations.
    Handler,
}

/// A queue pair, for all threads.
pub(super) struct Lane {
    pub(super) cpu: u32,
    pub(super) kind: QueueKind,
    core: Mutex<Core>,
    /// By slot: the blocking call that waits there has been answered.
    answered: Box<[AtomicBool]>,
    advancer: Option<Advancer>,
    interrupt: Option<EventFd>,
    /// The completion thread that serves this lane.
    sleeper: Option<Arc<Sleeper>>,
    /// Asynchronous operations taken; written under the lock.
    submitted: AtomicU64,
    /// Asynchronous operations of which the handler has returned.
    delivered: AtomicU64,
}

/// What the lock protects.
pub(super) struct Core {
    /// `None` once the lane is closed.
    queue: Option<Queue>,
    /// Nothing more is taken.
    closing: bool,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// Asynchronous operations that are over and whose handler has not been called.
    ended: VecDeque<Ended>,
    /// The buffer of blocking calls that move little, so that they need not go to the slab for one.
    spare: Option<DmaBuf>,
}

/// Bytes of a lane's spare buffer: what is copied under the lock.
pub(super) const SPARE_BYTES: usize = 16 << 10;

/// What a blocking call moves.
pub(super) enum Data<'a> {
    /// To the device.
    Out(&'a [u8]),
    /// From the device.
    In(&'a mut [u8]),
}

impl Data<'_> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Out(data) => data.len(),
            Self::In(data) => data.len(),
        }
    }

    /// Before the command.
    #[inline]
    pub(super) fn fill(&self, buf: &mut DmaBuf) {
        if let Self::Out(data) = self {
            buf.write(0, data);
        }
    }

    /// After the command: the first bytes of what it brought, as many as `count` says.
    #[inline]
    pub(super) fn take(&mut self, completion: &Completion, count: impl FnOnce(&Completion) -> usize) {
        if let (Self::In(out), Some(buf)) = (self, &completion.buf)
            && completion.status.is_success()
        {
            let bytes = count(completion).min(out.len());
            buf.read(0, &mut out[..bytes]);
        }
    }
}

/// A command of either kind of device.
#[derive(Clone, Copy)]
pub(super) enum Command<'a> {
    /// Checked by a key-value namespace.
    Kv(KvCommand<'a>),
    /// An entry, and the bytes it moves.
    Entry(Sqe, usize),
}

impl Command<'_> {
    pub(super) fn opcode(&self) -> u8 {
        match self {
            Self::Kv(command) => command.sqe().opcode,
            Self::Entry(sqe, _) => sqe.opcode,
        }
    }

    #[inline(always)]
    fn submit(self, queue: &mut Queue, buf: Option<DmaBuf>, token: u64) -> Result<(), Rejected> {
        match self {
            Self::Kv(command) => queue.submit_kv(command, buf, token),
            Self::Entry(sqe, bytes) => queue.submit(sqe, buf.map(|buf| Payload { buf, bytes }), token),
        }
    }
}

/// One place for an outstanding command; its index is the driver's token.
enum Slot {
    Free,
    /// A blocking call.
    Call,
    /// A blocking call that somebody else has taken the completion of.
    Answered(Completion),
    Pending(Pending),
}

/// An asynchronous operation that is over.
pub(super) struct Ended {
    pub(super) pending: Pending,
    pub(super) completion: Completion,
}

impl Core {
    fn new(queue: Queue) -> Self {
        let capacity = queue.capacity();
        Self {
            queue: Some(queue),
            closing: false,
            slots: (0..capacity).map(|_| Slot::Free).collect(),
            // Slot numbers are below the deepest queue, 4095.
            free: (0..capacity).rev().map(|slot| slot as u16).collect(),
            ended: VecDeque::with_capacity(capacity),
            spare: None,
        }
    }

    /// Writes an entry and tells the device. On success `buf` and `pending` are taken; without `pending` it is a blocking
    /// call.
    ///
    /// Always inlined, as the driver's submit is: the entry is then put together in registers.
    #[inline(always)]
    fn submit(
        &mut self,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
        pending: &mut Option<Pending>,
        submitter: Submitter,
    ) -> Result<u16, OpError> {
        if pending.is_some() && self.is_backed_up(submitter) {
            return Err(OpError::QueueFull);
        }
        let Some(queue) = self.queue.as_mut().filter(|_| !self.closing) else { return Err(OpError::Closed) };
        let Some(slot) = self.free.pop() else { return Err(OpError::QueueFull) };
        if let Err(rejected) = command.submit(queue, buf.take(), slot.into()) {
            *buf = rejected.buf;
            self.free.push(slot);
            return Err(rejected.error.into());
        }
        self.slots[usize::from(slot)] = pending.take().map_or(Slot::Call, Slot::Pending);
        if let Err(e) = queue.ring() {
            // The command is in the queue: it comes back when the connection is found to be gone.
            tracing::warn!(error = %e, "doorbell");
        }
        Ok(slot)
    }

    /// Whether too many operations have ended whose handler has not been called.
    #[inline]
    fn is_backed_up(&self, submitter: Submitter) -> bool {
        let most = match submitter {
            Submitter::Program => self.slots.len(),
            Submitter::Handler => BACKLOG_MAX * (self.slots.len() + BATCH),
        };
        self.ended.len() >= most
    }
}

/// How a look at the queue goes about it.
#[derive(Clone, Copy)]
struct Look {
    /// Lets a host-driven device work first.
    advance: bool,
    /// The slot of the caller.
    own: Option<u16>,
    /// Most completions to take.
    max: usize,
}

impl Lane {
    pub(super) fn new(cpu: u32, kind: QueueKind, queue: Queue, sleeper: Option<Arc<Sleeper>>) -> Self {
        Self {
            cpu,
            kind,
            answered: (0..queue.capacity()).map(|_| AtomicBool::new(false)).collect(),
            advancer: queue.advancer(),
            interrupt: queue.interrupt().cloned(),
            core: Mutex::new(Core::new(queue)),
            sleeper,
            submitted: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
        }
    }

    /// Commands that can be outstanding.
    pub(super) fn capacity(&self) -> usize {
        self.answered.len()
    }

    /// Whether a completion thread serves this lane.
    pub(super) fn is_served(&self) -> bool {
        self.sleeper.is_some()
    }

    /// Whether that is the thread of this bed.
    pub(super) fn is_served_by(&self, sleeper: &Arc<Sleeper>) -> bool {
        self.sleeper.as_ref().is_some_and(|own| Arc::ptr_eq(own, sleeper))
    }

    /// What the device signals when something has completed; `None` when it has to be looked for.
    pub(super) fn interrupt(&self) -> Option<&EventFd> {
        self.interrupt.as_ref()
    }

    /// Lets the device work, when it makes progress only inside this process.
    pub(super) fn advancer(&self) -> Option<&Advancer> {
        self.advancer.as_ref()
    }

    /// Whether nothing a handler could wait for frees a place before it returns.
    pub(super) fn is_backed_up(&self) -> bool {
        self.lock().is_backed_up(Submitter::Handler)
    }

    /// Whether the device makes progress only inside this process.
    pub(super) fn is_host_driven(&self) -> bool {
        self.advancer.is_some()
    }

    /// Asynchronous operations taken whose handler has not returned.
    #[inline]
    pub(super) fn outstanding(&self) -> u64 {
        // In this order: an operation that is delivered between the two looks counts as outstanding, never as less than none.
        let delivered = self.delivered.load(Ordering::Acquire);
        self.submitted.load(Ordering::Acquire) - delivered
    }

    /// Commands in the queue, blocking calls included.
    pub(super) fn in_queue(&self) -> usize {
        self.lock().queue.as_ref().map_or(0, Queue::outstanding)
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // No caller's code runs under this lock; what is behind it is whole between statements.
        lock(&self.core)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Core>> {
        lock::try_lock(&self.core)
    }

    /// Sends a command and waits for it.
    ///
    /// # Errors
    /// With `buf` as it was: [`OpError::QueueFull`], [`OpError::Closed`], or what the driver says.
    #[inline]
    pub(super) fn call(&self, command: Command<'_>, buf: &mut Option<DmaBuf>) -> Result<Completion, OpError> {
        self.call_locked(self.lock(), command, buf)
    }

    /// As [`Lane::call`]; `None` when somebody else has the lane.
    #[inline]
    pub(super) fn try_call(
        &self,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
    ) -> Option<Result<Completion, OpError>> {
        Some(self.call_locked(self.try_lock()?, command, buf))
    }

    #[inline(always)]
    fn call_locked(
        &self,
        mut core: MutexGuard<'_, Core>,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
    ) -> Result<Completion, OpError> {
        let slot = core.submit(command, buf, &mut None, Submitter::Program)?;
        let look = Look { advance: true, own: Some(slot), max: BATCH };
        if let Some(completion) = self.look(&mut core, look) {
            return Ok(completion);
        }
        drop(core);
        Ok(self.wait_for(slot))
    }

    /// Sends a command with the lane's spare buffer and waits for it; `count` says how many bytes a command that has succeeded
    /// has brought. `None`, and nothing done, when somebody else has the lane or its buffer, or `data` does not fit.
    #[inline]
    pub(super) fn try_exchange(
        &self,
        command: Command<'_>,
        data: &mut Data<'_>,
        count: impl Fn(&Completion) -> usize,
    ) -> Option<Result<Completion, OpError>> {
        if data.len() > SPARE_BYTES {
            return None;
        }
        let mut core = self.try_lock()?;
        let mut buf = Some(core.spare.take()?);
        buf.iter_mut().for_each(|buf| data.fill(buf));
        let slot = match core.submit(command, &mut buf, &mut None, Submitter::Program) {
            Ok(slot) => slot,
            Err(e) => {
                core.spare = buf;
                return Some(Err(e));
            }
        };
        let look = Look { advance: true, own: Some(slot), max: BATCH };
        if let Some(mut completion) = self.look(&mut core, look) {
            data.take(&completion, count);
            core.spare = completion.buf.take();
            return Some(Ok(completion));
        }
        drop(core);
        let mut completion = self.wait_for(slot);
        data.take(&completion, count);
        self.keep(completion.buf.take());
        Some(Ok(completion))
    }

    /// Keeps a buffer of [`SPARE_BYTES`] for the next blocking call, if the lane is open and has none.
    pub(super) fn keep(&self, buf: Option<DmaBuf>) {
        let mut core = self.lock();
        if core.spare.is_none() && core.queue.is_some() {
            core.spare = buf.filter(|buf| buf.len() == SPARE_BYTES);
        }
    }

    /// Waits for the completion of a blocking call, and distributes those of others meanwhile.
    #[cold]
    fn wait_for(&self, slot: u16) -> Completion {
        let mut patience = Patience::new(self.advancer.as_ref());
        let look = Look { advance: false, own: Some(slot), max: BATCH };
        loop {
            // Acquire: pairs with the Release of whoever took the completion.
            if self.answered[usize::from(slot)].load(Ordering::Acquire) {
                return self.take_answer(slot);
            }
            if let Some(mut core) = self.try_lock()
                && let Some(completion) = self.look(&mut core, look)
            {
                return completion;
            }
            patience.pause();
        }
    }

    fn take_answer(&self, slot: u16) -> Completion {
        let mut core = self.lock();
        self.answered[usize::from(slot)].store(false, Ordering::Relaxed);
        let answer = std::mem::replace(&mut core.slots[usize::from(slot)], Slot::Free);
        core.free.push(slot);
        match answer {
            Slot::Answered(completion) => completion,
            // The flag is set only together with the answer.
            _ => aborted(),
        }
    }

    /// Takes what has completed. Returns the caller's own completion; blocking calls of others are answered, asynchronous
    /// operations go to [`Core::ended`].
    #[inline]
    fn look(&self, core: &mut Core, look: Look) -> Option<Completion> {
        let Core { queue, slots, free, ended, .. } = core;
        let queue = queue.as_mut()?;
        // What nobody delivers must not grow: beyond that the queue fills up, which its submitters notice.
        let max = look.max.min((BACKLOG_MAX * slots.len()).saturating_sub(ended.len()).max(1));
        let mut mine = None;
        let completions = if look.advance { queue.poll(max) } else { queue.take(max) };
        for completion in completions {
            let slot = completion.token as u16;
            let Some(place) = slots.get_mut(usize::from(slot)) else { continue };
            if look.own == Some(slot) {
                *place = Slot::Free;
                free.push(slot);
                mine = Some(completion);
                continue;
            }
            match std::mem::replace(place, Slot::Free) {
                Slot::Call => {
                    *place = Slot::Answered(completion);
                    // Release: pairs with the Acquire of the caller that waits.
                    self.answered[usize::from(slot)].store(true, Ordering::Release);
                }
                Slot::Pending(pending) => {
                    free.push(slot);
                    ended.push_back(Ended { pending, completion });
                }
                // The driver returns each token once.
                other @ (Slot::Free | Slot::Answered(_)) => {
                    debug_assert!(false, "a token that is not outstanding has completed");
                    *place = other;
                }
            }
        }
        if !ended.is_empty() {
            self.wake();
        }
        mine
    }

    /// Sends an asynchronous command.
    ///
    /// # Errors
    /// As [`Lane::call`]; `buf` and `pending` are as they were then.
    #[inline]
    pub(super) fn submit(
        &self,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
        pending: &mut Option<Pending>,
        submitter: Submitter,
    ) -> Result<(), OpError> {
        {
            let mut core = self.lock();
            core.submit(command, buf, pending, submitter)?;
            // Written under the lock alone, so no read-modify-write is needed.
            self.submitted.store(self.submitted.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        if self.is_host_driven() {
            self.wake();
        }
        Ok(())
    }

    /// Wakes the completion thread if it sleeps.
    #[inline]
    fn wake(&self) {
        if let Some(sleeper) = &self.sleeper {
            // Pairs with the fence of a thread that has said that it sleeps and looks a last time: one of the two sees the
            // other.
            fence(Ordering::SeqCst);
            sleeper.wake();
        }
    }

    /// Lets a host-driven device work, without the lock: submitters are not kept waiting. Returns whether it did anything.
    #[inline]
    pub(super) fn advance(&self) -> bool {
        self.advancer.as_ref().is_some_and(|advancer| advancer.advance() > 0)
    }

    /// Looks after a device that interrupts: its commands' time-outs, and whether it is still there. Those of the others
    /// are looked after by who polls them.
    pub(super) fn check(&self) {
        if self.interrupt.is_none() || self.outstanding() == 0 {
            return;
        }
        let mut core = self.lock();
        if let Some(queue) = &mut core.queue
            && let Err(e) = queue.wait(Duration::ZERO)
        {
            tracing::warn!(cpu = self.cpu, error = %e, "queue");
        }
    }

    /// Moves up to `max` operations that are over to `batch`. Each must be accounted for by [`Lane::delivered`].
    pub(super) fn harvest(&self, max: usize, batch: &mut Vec<Ended>) {
        let mut core = self.lock();
        if core.ended.len() < max {
            let look = Look { advance: false, own: None, max: max - core.ended.len() };
            self.look(&mut core, look);
        }
        let count = max.min(core.ended.len());
        batch.extend(core.ended.drain(..count));
    }

    /// The handlers of `count` operations have returned.
    pub(super) fn delivered(&self, count: usize) {
        self.delivered.fetch_add(count as u64, Ordering::Release);
    }

    /// Adds an operation that has ended without a command.
    ///
    /// # Errors
    /// [`OpError::QueueFull`] when nobody calls the handlers of those that are there; [`OpError::Closed`].
    pub(super) fn add_ended(&self, ended: Ended) -> Result<(), OpError> {
        {
            let mut core = self.lock();
            if core.closing {
                return Err(OpError::Closed);
            }
            if core.is_backed_up(Submitter::Handler) {
                return Err(OpError::QueueFull);
            }
            core.ended.push_back(ended);
            self.submitted.store(self.submitted.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        self.wake();
        Ok(())
    }

    /// Whether operations are over whose handler has not been called.
    pub(super) fn has_ended(&self) -> bool {
        !self.lock().ended.is_empty()
    }

    /// Frees slots for a handler that submits to a full queue: what has completed waits in [`Core::ended`] until the
    /// handler has returned.
    pub(super) fn make_room(&self) {
        self.advance();
        let mut core = self.lock();
        if !core.is_backed_up(Submitter::Handler) {
            self.look(&mut core, Look { advance: false, own: None, max: BATCH });
        }
    }

    /// Takes nothing more from now on.
    pub(super) fn stop_taking(&self) {
        self.lock().closing = true;
    }

    /// Gives the queue back, and ends what is still outstanding with [`Status::ABORTED_BY_HOST`].
    pub(super) fn close(&self) {
        let mut core = self.lock();
        core.closing = true;
        core.spare = None;
        // The queue first: as long as it is there, the device may still reach the memory of its commands.
        drop(core.queue.take());
        let Core { slots, free, ended, .. } = &mut *core;
        for (index, place) in slots.iter_mut().enumerate() {
            match std::mem::replace(place, Slot::Free) {
                Slot::Call => {
                    *place = Slot::Answered(aborted());
                    self.answered[index].store(true, Ordering::Release);
                }
                Slot::Pending(pending) => {
                    free.push(index as u16);
                    ended.push_back(Ended { pending, completion: aborted() });
                }
                other => *place = other,
            }
        }
    }
}

/// The end of a command that the device was not waited for.
fn aborted() -> Completion {
    Completion { token: 0, status: Status::ABORTED_BY_HOST, result: 0, buf: None }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane")
            .field("cpu", &self.cpu)
            .field("kind", &self.kind)
            .field("capacity", &self.capacity())
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}

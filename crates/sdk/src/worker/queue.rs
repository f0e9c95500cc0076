//! A queue pair that any thread may use.
//!
//! The driver's queue has one owner; here it is whoever holds the lock. Submitting takes the lock for as long
//! as writing an entry takes. A blocking call looks once for its completion while it has the lock anyway: a
//! device in this process has answered by then, and the call has cost one lock. After that it only tries the
//! lock, and whoever gets it distributes what has completed: to other calls and to futures through their
//! slots, to pollers in the order it came. So several callers have commands in flight on one queue, and none
//! waits for a lock held over a wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Waker;
use std::time::Duration;

use unvme_bus::{EventFd, lock};
use unvme_driver::{Advancer, Completion, DmaBuf, DmaPool, Queue};

use super::bed::{Bed, Beds};
use super::command::{Command, Data, Done, Load, Medium, Reason, Refused};
use super::core::{Core, Look, Owner, Seen};
use super::future::Run;
use super::manner::Manner;
use super::patience::Patience;
use super::route::Route;
use super::sleeper::Sleeper;
use crate::Op;

/// Most completions taken under one lock.
pub const BATCH: usize = 32;
/// Bytes of a queue's spare buffers: what is copied under the lock.
pub const SPARE_BYTES: usize = 16 << 10;
/// Most spare buffers a queue keeps, one for each call that copies at the same time.
pub(super) const SPARES_MAX: usize = 8;

/// Longest sleep of a call that an interrupt wakes.
const INTERRUPT_MAX: Duration = Duration::from_millis(50);

/// Who submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitter {
    /// The program. It takes no place while as many completions as there are places wait to be polled.
    Program,
    /// Somebody who is handling a completion, which others wait for: it is put off only when each handled
    /// completion leads to several commands.
    Handler,
}

/// A queue pair of a [`super::Worker`], for all threads.
pub struct SharedQueue {
    pub(super) cpu: u32,
    pub(super) medium: Medium,
    /// Where buffers come from.
    pool: DmaPool,
    /// How long a call waits for a place.
    pub(super) timeout: Duration,
    core: Mutex<Core>,
    seen: Seen,
    pub(super) advancer: Option<Advancer>,
    pub(super) interrupt: Option<EventFd>,
    /// The completion thread that serves this queue.
    sleeper: OnceLock<Arc<Sleeper>>,
    /// What becomes readable when somebody should poll.
    descriptor: OnceLock<EventFd>,
}

impl SharedQueue {
    pub(super) fn new(cpu: u32, medium: Medium, pool: DmaPool, timeout: Duration, queue: Queue) -> Self {
        Self {
            cpu,
            medium,
            pool,
            timeout,
            seen: Seen {
                answered: (0..queue.capacity()).map(|_| AtomicBool::new(false)).collect(),
                submitted: AtomicU64::new(0),
                delivered: AtomicU64::new(0),
                beds: Beds::default(),
                interrupt: queue.interrupt().cloned(),
            },
            advancer: queue.advancer(),
            interrupt: queue.interrupt().cloned(),
            core: Mutex::new(Core::new(queue)),
            sleeper: OnceLock::new(),
            descriptor: OnceLock::new(),
        }
    }

    /// The CPU it is for.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Commands that can be outstanding.
    pub fn capacity(&self) -> usize {
        self.seen.answered.len()
    }

    /// Commands in the queue, those of blocking calls included.
    pub fn in_queue(&self) -> usize {
        let core = self.lock();
        core.queue.as_ref().map_or(0, Queue::outstanding)
    }

    /// Commands of tokens and futures that were taken and that nobody has been told of yet.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        // In this order: a command that is delivered between the two looks counts as outstanding, never as
        // less than none.
        let delivered = self.seen.delivered.load(Ordering::Acquire);
        self.seen.submitted.load(Ordering::Acquire) - delivered
    }

    /// A zeroed, page aligned buffer that the device can reach.
    ///
    /// # Errors
    /// [`Reason::Driver`] when memory is used up.
    pub fn alloc(&self, bytes: usize) -> Result<DmaBuf, Reason> {
        self.pool.alloc(bytes).map_err(|e| Reason::Driver(e.into()))
    }

    /// This queue, and no other.
    #[inline]
    pub fn route(&self) -> Route<'_> {
        Route { first: self, others: &[], start: 0, manner: Manner::Patient }
    }

    /// As [`super::Worker::call`], on this queue.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn call(&self, op: Op<'_>, data: Data<'_>) -> Result<Done, Refused> {
        self.route().call(op, data)
    }

    /// As [`super::Worker::submit`], on this queue.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn submit(&self, op: Op<'_>, data: Data<'_>, token: u64) -> Result<(), Refused> {
        self.route().submit(op, data, token)
    }

    /// As [`super::Worker::run`], on this queue.
    pub fn run<'a>(&'a self, op: Op<'a>, data: Data<'a>) -> Run<'a> {
        self.route().run(op, data)
    }

    /// Whether a completion thread serves this queue.
    #[inline]
    pub fn is_served(&self) -> bool {
        self.sleeper.get().is_some()
    }

    /// Whether somebody looks after the queue for those who only wait to be woken.
    pub(super) fn is_looked_after(&self) -> bool {
        self.is_served() || self.descriptor.get().is_some()
    }

    /// A thread serves the queue from now on; the first one that does stays.
    pub(super) fn serve_by(&self, sleeper: &Arc<Sleeper>) {
        let _ = self.sleeper.set(Arc::clone(sleeper));
        self.lock().places.is_on_its_own = false;
    }

    /// Somebody watches `event` from now on, and polls when it is signalled.
    pub(super) fn watch_by(&self, event: EventFd) {
        let _ = self.descriptor.set(event);
        let mut core = self.lock();
        core.places.is_on_its_own = false;
        self.release(core);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        // No caller's code runs under this lock but the cloning of a waker; what is behind it is whole
        // between statements.
        lock(&self.core)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Core>> {
        lock::try_lock(&self.core)
    }

    /// Lets go of the lock, and tells whoever has to know what has happened under it.
    #[inline]
    pub(super) fn release<'a>(&'a self, core: MutexGuard<'a, Core>) {
        if core.places.woken.is_empty() && self.descriptor.get().is_none() {
            return;
        }
        self.tell(core);
    }

    #[cold]
    fn tell<'a>(&'a self, mut core: MutexGuard<'a, Core>) {
        if let Some(event) = self.descriptor.get() {
            let must_look = self.interrupt.is_none() && !self.is_served() && self.outstanding() > 0;
            let is_due = !core.ended.is_empty() || must_look;
            if is_due && !core.is_signalled {
                event.signal();
            } else if !is_due && core.is_signalled {
                event.drain();
            }
            core.is_signalled = is_due;
        }
        // Waking runs code of others, which may come back to this queue. The list keeps its memory: others
        // may need it before this is over.
        while !core.places.woken.is_empty() {
            let mut woken = [const { None }; BATCH];
            let count = core.places.woken.len().min(BATCH);
            woken.iter_mut().zip(core.places.woken.drain(..count)).for_each(|(to, waker)| *to = Some(waker));
            drop(core);
            woken.into_iter().flatten().for_each(Waker::wake);
            core = self.lock();
        }
    }

    #[inline]
    pub(super) fn call_now(
        &self,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
        manner: Manner<'_>,
    ) -> Result<Completion, Reason> {
        self.call_locked(self.lock(), command, buf, manner)
    }

    /// As [`SharedQueue::call_now`]; `None` when somebody else has the queue.
    #[inline]
    pub(super) fn try_call(
        &self,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
        manner: Manner<'_>,
    ) -> Option<Result<Completion, Reason>> {
        Some(self.call_locked(self.try_lock()?, command, buf, manner))
    }

    #[inline(always)]
    fn call_locked(
        &self,
        mut core: MutexGuard<'_, Core>,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
        manner: Manner<'_>,
    ) -> Result<Completion, Reason> {
        let slot = core.place(Owner::Call)?;
        if let Err(e) = core.submit(slot, command, buf, Owner::Call) {
            self.release(core);
            return Err(e);
        }
        if let Some(completion) = self.look(&mut core, Look { advance: true, own: Some(slot), max: BATCH }) {
            self.release(core);
            return Ok(completion);
        }
        self.release(core);
        Ok(self.wait_for(slot, manner))
    }

    /// Sends a command with a spare buffer of the queue and waits for it. `None`, and nothing done, when
    /// somebody else has the queue or its buffers, or the command moves too much for one.
    #[inline]
    pub(super) fn try_exchange(
        &self,
        command: Command<'_>,
        data: &mut Data<'_>,
        manner: Manner<'_>,
    ) -> Option<Result<Done, Reason>> {
        let bytes = command.bytes();
        if bytes > SPARE_BYTES {
            return None;
        }
        let mut core = self.try_lock()?;
        let mut buf = Some(core.spares.pop()?);
        buf.iter_mut().for_each(|buf| data.fill(buf, bytes));
        let sent = core.place(Owner::Call).and_then(|slot| {
            core.submit(slot, command, &mut buf, Owner::Call)?;
            Ok(slot)
        });
        let slot = match sent {
            Ok(slot) => slot,
            Err(e) => {
                core.keep(buf);
                self.release(core);
                return Some(Err(e));
            }
        };
        if let Some(completion) = self.look(&mut core, Look { advance: true, own: Some(slot), max: BATCH }) {
            let mut done = Done::of(completion, command.reading, 0);
            data.take(&done);
            core.keep(done.buf.take());
            self.release(core);
            return Some(Ok(done));
        }
        self.release(core);
        let mut done = Done::of(self.wait_for(slot, manner), command.reading, 0);
        data.take(&done);
        self.keep(done.buf.take());
        Some(Ok(done))
    }

    /// A spare buffer for a call that copies `bytes` while somebody else has the queue.
    pub(super) fn spare(&self, bytes: usize) -> Option<DmaBuf> {
        if bytes <= SPARE_BYTES { self.lock().spares.pop() } else { None }
    }

    /// Keeps a buffer of [`SPARE_BYTES`] for a later blocking call, if the queue is open and has few.
    pub fn keep(&self, buf: Option<DmaBuf>) {
        self.lock().keep(buf);
    }

    /// Waits for the completion of a blocking call, and distributes those of others meanwhile.
    #[cold]
    fn wait_for(&self, slot: u16, manner: Manner<'_>) -> Completion {
        let queues = [self];
        let bed = matches!(manner, Manner::Sleep).then(|| Bed::new(&queues)).flatten();
        let mut patience = self.patience_in(manner);
        let completion = self.watch(slot, || match &bed {
            Some(bed) => bed.doze(INTERRUPT_MAX),
            None => patience.pause(),
        });
        patience.end();
        completion
    }

    fn watch(&self, slot: u16, mut pause: impl FnMut()) -> Completion {
        let look = Look { advance: false, own: Some(slot), max: BATCH };
        let answered = &self.seen.answered[usize::from(slot)];
        loop {
            // Acquire: pairs with the Release of whoever took the completion.
            if answered.load(Ordering::Acquire) {
                let mut core = self.lock();
                answered.store(false, Ordering::Relaxed);
                // The flag is set only together with the answer.
                let answer = core.take_answer(slot).unwrap_or_else(Done::aborted);
                self.release(core);
                return answer;
            }
            if let Some(mut core) = self.try_lock() {
                let own = self.look(&mut core, look);
                self.release(core);
                if let Some(completion) = own {
                    return completion;
                }
            }
            pause();
        }
    }

    /// Takes what has completed off the queue, for whoever waits for it.
    pub(super) fn distribute(&self) {
        let mut core = self.lock();
        self.look(&mut core, Look { advance: false, own: None, max: BATCH });
        self.release(core);
    }

    pub(super) fn beds(&self) -> &Beds {
        &self.seen.beds
    }

    /// Takes what has completed, and wakes the completion thread if somebody has to poll. The lock is then
    /// let go of with [`SharedQueue::release`].
    #[inline]
    pub(super) fn look(&self, core: &mut Core, look: Look) -> Option<Completion> {
        let before = core.ended.len();
        let own = core.look(&self.seen, look);
        if !core.ended.is_empty() {
            self.wake();
            if core.ended.len() > before {
                self.seen.beds.wake();
            }
        }
        own
    }

    /// Submits a command with a token, for whoever polls. It is sent at once.
    ///
    /// # Errors
    /// [`Reason::Full`], [`Reason::Closed`], or what the driver says; `load` is as it was then.
    #[inline]
    pub fn send(
        &self,
        command: Command<'_>,
        load: &mut Load,
        token: u64,
        submitter: Submitter,
    ) -> Result<(), Reason> {
        let owner = Owner::Poller { token, is_copy: load.is_copy, submitter };
        let mut core = self.lock();
        let slot = core.place(owner)?;
        let sent = core.submit(slot, command, &mut load.buf, owner);
        if sent.is_ok() {
            self.seen.count();
        }
        self.release(core);
        sent?;
        self.wake_for_work();
        Ok(())
    }

    /// A future's command was taken; called under the lock.
    pub(super) fn counts(&self, _: &Core) {
        self.seen.count();
    }

    /// After a submission: a thread that has to look for completions does not sleep over it.
    #[inline]
    pub(super) fn wake_for_work(&self) {
        if self.interrupt.is_none() {
            self.wake();
        }
    }

    /// Wakes the completion thread if it sleeps.
    #[inline]
    pub(super) fn wake(&self) {
        if let Some(sleeper) = self.sleeper.get() {
            // Pairs with the fence of a thread that has said that it sleeps and looks a last time: one of the
            // two sees the other.
            fence(Ordering::SeqCst);
            sleeper.wake();
        }
    }

    /// Lets a host-driven device work, without the lock: submitters are not kept waiting. Returns whether it
    /// did anything.
    #[inline]
    pub fn advance(&self) -> bool {
        self.advancer.as_ref().is_some_and(|advancer| advancer.advance() > 0)
    }

    /// Takes completions that are there, the oldest first, at most [`BATCH`]; returns their number. A
    /// host-driven device is let work first, futures whose commands are over are woken. Never waits. Memory
    /// of `done` that is kept from call to call is allocated once.
    ///
    /// ```
    /// use unvme::worker::{Data, WorkerOptions};
    /// use unvme::{Nsid, Op, OpenOptions, open};
    ///
    /// # fn main() -> Result<(), unvme::Error> {
    /// let device = open("mem:block:64M", &OpenOptions::default())?;
    /// let worker = device.block(Nsid(1))?.worker(&WorkerOptions::default())?;
    /// // A thread that stays with one queue: submits there, and polls there.
    /// let queue = worker.nearest().first();
    /// queue.submit(Op::Flush, Data::None, 7)?;
    /// let mut done = Vec::new();
    /// while queue.poll(&mut done) == 0 {}
    /// assert_eq!(done[0].token, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn poll(&self, done: &mut Vec<Done>) -> usize {
        let count = self.harvest(done);
        self.delivered(count);
        count
    }

    /// As [`SharedQueue::poll`], for those who handle what they take: it counts as outstanding until they say
    /// so with [`SharedQueue::delivered`].
    pub fn harvest(&self, done: &mut Vec<Done>) -> usize {
        let watched = self.interrupt.as_ref();
        let watched = watched.filter(|_| self.descriptor.get().is_some() && !self.is_served());
        if let Some(interrupt) = watched {
            // First the counter, then the look: an interrupt in between leaves it set.
            interrupt.drain();
        }
        if self.outstanding() == 0 && self.seen.beds.is_empty() {
            return 0;
        }
        self.advance();
        let mut core = self.lock();
        let max = BATCH.saturating_sub(core.ended.len());
        let before = core.queue.as_ref().map_or(0, Queue::outstanding);
        if max > 0 {
            core.look(&self.seen, Look { advance: false, own: None, max });
        }
        let taken = before - core.queue.as_ref().map_or(0, Queue::outstanding);
        let count = BATCH.min(core.ended.len());
        done.extend(core.ended.drain(..count));
        self.release(core);
        if taken >= max
            && let Some(interrupt) = watched
        {
            // There may be more, whose interrupt has been taken off the counter.
            interrupt.signal();
        }
        if count == 0 && !self.is_served() {
            self.check();
        }
        count
    }

    /// `count` completions that were harvested have been handled.
    pub fn delivered(&self, count: usize) {
        self.told(count);
        if self.descriptor.get().is_some() {
            self.release(self.lock());
        }
    }

    /// Of `count` commands somebody has been told.
    pub(super) fn told(&self, count: usize) {
        self.seen.delivered.fetch_add(count as u64, Ordering::Release);
    }

    /// Looks at the queue for futures, and for pollers who will come; returns whether anything was there.
    pub(super) fn tend(&self) -> bool {
        if self.outstanding() == 0 && self.seen.beds.is_empty() {
            return false;
        }
        self.advance();
        let before = self.outstanding();
        let mut core = self.lock();
        let (ended, woken) = (core.ended.len(), core.places.woken.len());
        core.look(&self.seen, Look { advance: false, own: None, max: BATCH });
        let found =
            core.ended.len() > ended || core.places.woken.len() > woken || self.outstanding() < before;
        self.release(core);
        found
    }

    /// Looks after a device that interrupts: its commands' time-outs, and whether it is still there. Those of
    /// the others are looked after by who polls them.
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

    /// Adds a completion that took no command, such as what a cache has answered: it is polled like the
    /// others, in its turn.
    ///
    /// # Errors
    /// [`Reason::Full`] when nobody polls those that are there, [`Reason::Closed`].
    pub fn post(&self, done: Done) -> Result<(), Reason> {
        let mut core = self.lock();
        if core.closing {
            return Err(Reason::Closed);
        }
        if core.is_backed_up(Submitter::Handler) {
            return Err(Reason::Full);
        }
        core.ended.push_back(done);
        self.seen.count();
        self.release(core);
        self.wake();
        Ok(())
    }

    /// Whether a command of a token or a future is under way.
    pub(super) fn is_awaited(&self) -> bool {
        self.outstanding() > self.lock().ended.len() as u64
    }

    /// Whether completions wait to be polled.
    pub(super) fn has_ended(&self) -> bool {
        !self.lock().ended.is_empty()
    }

    /// Whether nothing a handler could wait for frees a place before it returns.
    pub fn is_backed_up(&self) -> bool {
        self.lock().is_backed_up(Submitter::Handler)
    }

    /// Frees places for somebody who cannot poll now, such as a handler of completions: what has completed
    /// waits to be polled.
    pub fn make_room(&self) {
        self.advance();
        let mut core = self.lock();
        if !core.is_backed_up(Submitter::Handler) {
            self.look(&mut core, Look { advance: false, own: None, max: BATCH });
        }
        self.release(core);
    }

    /// Passes a moment of a wait for this queue.
    pub fn patience(&self) -> Patience<'_> {
        Patience::new(self.advancer.as_ref())
    }

    /// The same in another manner.
    pub fn patience_in<'a>(&'a self, manner: Manner<'a>) -> Patience<'a> {
        self.patience().in_manner(manner)
    }

    /// Takes nothing more from now on.
    pub(super) fn stop_taking(&self) {
        self.lock().closing = true;
    }

    /// Gives the queue back, and ends what is still outstanding with [`unvme_spec::Status::ABORTED_BY_HOST`].
    pub(super) fn close(&self) {
        let mut core = self.lock();
        core.close(&self.seen);
        self.release(core);
        self.wake();
    }
}

impl AsRef<SharedQueue> for SharedQueue {
    fn as_ref(&self) -> &Self {
        self
    }
}

unvme_bus::debug_parts!(SharedQueue { cpu, capacity(), outstanding() });

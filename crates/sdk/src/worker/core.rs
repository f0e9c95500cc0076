//! What the lock of a shared queue protects: the driver's queue, and who waits for which of its commands.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use unvme_bus::EventFd;
use unvme_driver::{Completion, DmaBuf, Queue};

use super::bed::Beds;
use super::command::{Command, Done, Reading, Reason};
use super::queue::{BATCH, SPARE_BYTES, SPARES_MAX, Submitter};
use super::waiters::Waiters;

/// Completions that wait to be polled, in places of a queue: beyond this many not even handlers can submit.
/// They reach it only when they submit several for each that ends.
const BACKLOG_MAX: usize = 8;

/// Who is told of a completion.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    /// The thread that waits for it.
    Call,
    /// The future that waits for it.
    Future,
    /// Whoever polls.
    Poller { token: u64, is_copy: bool, submitter: Submitter },
}

/// One place for an outstanding command; its index is the driver's token.
enum Slot {
    Free,
    /// Somebody waits who looks whether it has been answered.
    Call,
    /// A future waits, and is woken.
    Future(Option<Waker>),
    /// The future that waited has been dropped; the command has its buffer until it completes.
    Orphan,
    /// Somebody else has taken the completion of one that waits.
    Answered(Completion),
    /// Its completion goes to whoever polls.
    Token {
        token: u64,
        reading: Reading,
        is_copy: bool,
    },
}

/// How a look at the queue goes about it.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// Lets a host-driven device work first.
    pub(super) advance: bool,
    /// The slot of the caller.
    pub(super) own: Option<u16>,
    /// Most completions to take.
    pub(super) max: usize,
}

/// What others see of a queue without its lock.
pub(super) struct Seen {
    /// By slot: the blocking call that waits there has been answered.
    pub(super) answered: Box<[AtomicBool]>,
    /// Commands with a token or a future that were taken; written under the lock.
    pub(super) submitted: AtomicU64,
    /// Those of them that somebody has been told of.
    pub(super) delivered: AtomicU64,
    /// Those who sleep until the device interrupts.
    pub(super) beds: Beds,
    /// What it signals then.
    pub(super) interrupt: Option<EventFd>,
}

impl Seen {
    /// One more was taken. Only under the lock, so no read-modify-write is needed.
    #[inline]
    pub(super) fn count(&self) {
        self.submitted.store(self.submitted.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// There may be more than was taken, whose interrupts have been taken off the counter.
    #[cold]
    fn look_again(&self) {
        if !self.beds.is_empty() {
            self.interrupt.iter().for_each(EventFd::signal);
        }
    }
}

/// The slots that are free, and who waits for one.
pub(super) struct Places {
    free: Vec<u16>,
    /// Futures that wait for a place.
    pub(super) waiters: Waiters,
    /// Futures that are to be woken once the lock is released: waking one may run anything.
    pub(super) woken: Vec<Waker>,
    /// Nobody looks after the queue but those who wait: the first in line does.
    pub(super) is_on_its_own: bool,
}

impl Places {
    /// Gives a place back: to the future that has waited for one the longest, if any does.
    #[inline]
    pub(super) fn release(&mut self, slot: u16) {
        if self.waiters.is_empty() {
            self.free.push(slot);
        } else {
            self.grant(slot);
        }
    }

    #[cold]
    fn grant(&mut self, slot: u16) {
        match self.waiters.grant(slot) {
            Ok(waker) => {
                self.woken.push(waker);
                self.wake_first();
            }
            Err(slot) => self.free.push(slot),
        }
    }

    /// Somebody else may be the first in line now.
    fn wake_first(&mut self) {
        if self.is_on_its_own {
            self.woken.extend(self.waiters.first().cloned());
        }
    }
}

/// See the module.
pub(super) struct Core {
    /// `None` once the queue is closed.
    pub(super) queue: Option<Queue>,
    /// Nothing more is taken.
    pub(super) closing: bool,
    slots: Box<[Slot]>,
    pub(super) places: Places,
    /// Completions that nobody has polled.
    pub(super) ended: VecDeque<Done>,
    /// Buffers for blocking calls that move little, so that they need not allocate one.
    pub(super) spares: Vec<DmaBuf>,
    /// The descriptor of whoever watches for completions is readable.
    pub(super) is_signalled: bool,
}

impl Core {
    pub(super) fn new(queue: Queue) -> Self {
        let capacity = queue.capacity();
        Self {
            queue: Some(queue),
            closing: false,
            slots: (0..capacity).map(|_| Slot::Free).collect(),
            places: Places {
                // Slot numbers are below the deepest queue, 4095.
                free: (0..capacity).rev().map(|slot| slot as u16).collect(),
                waiters: Waiters::default(),
                woken: Vec::with_capacity(2 * BATCH),
                is_on_its_own: true,
            },
            ended: VecDeque::with_capacity(capacity),
            spares: Vec::with_capacity(SPARES_MAX),
            is_signalled: false,
        }
    }

    /// A place, if there is one. Errors: [`Reason::Full`], [`Reason::Closed`].
    #[inline(always)]
    pub(super) fn place(&mut self, owner: Owner) -> Result<u16, Reason> {
        if let Owner::Poller { submitter, .. } = owner
            && self.is_backed_up(submitter)
        {
            return Err(Reason::Full);
        }
        if self.queue.is_none() || self.closing {
            return Err(Reason::Closed);
        }
        self.places.free.pop().ok_or(Reason::Full)
    }

    /// Writes an entry and tells the device. On success `buf` is taken.
    ///
    /// Always inlined, as the driver's submit is: the entry is then put together in registers.
    #[inline(always)]
    pub(super) fn submit(
        &mut self,
        slot: u16,
        command: Command<'_>,
        buf: &mut Option<DmaBuf>,
        owner: Owner,
    ) -> Result<(), Reason> {
        let Some(queue) = self.queue.as_mut() else { return Err(Reason::Closed) };
        if let Err(rejected) = command.submit(queue, buf.take(), slot.into()) {
            *buf = rejected.buf;
            self.places.release(slot);
            return Err(Reason::Driver(rejected.error));
        }
        self.slots[usize::from(slot)] = match owner {
            Owner::Call => Slot::Call,
            Owner::Future => Slot::Future(None),
            Owner::Poller { token, is_copy, .. } => Slot::Token { token, reading: command.reading, is_copy },
        };
        if let Err(e) = queue.ring() {
            // The command is in the queue: it comes back when the connection is found to be gone.
            tracing::warn!(error = %e, "doorbell");
        }
        Ok(())
    }

    /// Whether too many completions wait that nobody has polled.
    #[inline]
    pub(super) fn is_backed_up(&self, submitter: Submitter) -> bool {
        let most = match submitter {
            Submitter::Program => self.slots.len(),
            Submitter::Handler => BACKLOG_MAX * (self.slots.len() + BATCH),
        };
        self.ended.len() >= most
    }

    /// Takes what has completed. Returns the caller's own completion; other calls and futures are answered,
    /// what was submitted with a token goes to [`Core::ended`].
    #[inline]
    pub(super) fn look(&mut self, seen: &Seen, look: Look) -> Option<Completion> {
        let Self { queue, slots, places, ended, .. } = self;
        let queue = queue.as_mut()?;
        // What nobody polls must not grow: beyond that the queue fills up, which its submitters notice.
        let max = look.max.min((BACKLOG_MAX * slots.len()).saturating_sub(ended.len()).max(1));
        let (mut mine, mut taken) = (None, 0);
        let completions = if look.advance { queue.poll(max) } else { queue.take(max) };
        for completion in completions {
            taken += 1;
            let slot = completion.token as u16;
            let Some(place) = slots.get_mut(usize::from(slot)) else { continue };
            if look.own == Some(slot) {
                *place = Slot::Free;
                places.release(slot);
                mine = Some(completion);
                continue;
            }
            match std::mem::replace(place, Slot::Free) {
                Slot::Token { token, reading, is_copy } => {
                    ended.push_back(Done { is_copy, ..Done::of(completion, reading, token) });
                    places.release(slot);
                }
                waiting => answer(slot, place, waiting, completion, places, seen),
            }
        }
        if taken >= max {
            seen.look_again();
        }
        mine
    }

    /// See [`super::SharedQueue::keep`].
    #[inline]
    pub(super) fn keep(&mut self, buf: Option<DmaBuf>) {
        if self.spares.len() < SPARES_MAX && self.queue.is_some() {
            self.spares.extend(buf.filter(|buf| buf.len() == SPARE_BYTES));
        }
    }

    /// The answer that is left in a slot, which is free then.
    pub(super) fn take_answer(&mut self, slot: u16) -> Option<Completion> {
        let place = &mut self.slots[usize::from(slot)];
        if !matches!(place, Slot::Answered(_)) {
            return None;
        }
        let answer = std::mem::replace(place, Slot::Free);
        self.places.release(slot);
        match answer {
            Slot::Answered(completion) => Some(completion),
            _ => None,
        }
    }

    /// Has `waker` woken when the command of a future's slot completes; the one before is returned, to be
    /// dropped where no lock is held.
    pub(super) fn watch(&mut self, slot: u16, waker: &Waker) -> Option<Waker> {
        match &mut self.slots[usize::from(slot)] {
            Slot::Future(Some(known)) if known.will_wake(waker) => None,
            Slot::Future(known) => known.replace(waker.clone()),
            _ => None,
        }
    }

    /// The future of a slot has gone away. What is returned is to be dropped where no lock is held.
    pub(super) fn orphan(&mut self, slot: u16) -> (Option<Completion>, Option<Waker>) {
        let place = &mut self.slots[usize::from(slot)];
        match std::mem::replace(place, Slot::Orphan) {
            Slot::Future(waker) => (None, waker),
            other => {
                *place = other;
                (self.take_answer(slot), None)
            }
        }
    }

    /// A future does not wait for a place any more: one that it has been given already is somebody else's.
    /// What is returned is to be dropped where no lock is held.
    pub(super) fn leave(&mut self, ticket: u32) -> Option<Waker> {
        if let Some(slot) = self.places.waiters.take(ticket) {
            self.places.release(slot);
            return None;
        }
        let left = self.places.waiters.leave(ticket);
        self.places.wake_first();
        left
    }

    /// Gives the queue back, and ends what is still outstanding.
    pub(super) fn close(&mut self, seen: &Seen) {
        self.closing = true;
        self.spares.clear();
        // The queue first: as long as it is there, the device may still reach the memory of its commands.
        drop(self.queue.take());
        let Self { slots, places, ended, .. } = self;
        places.waiters.dismiss(&mut places.woken);
        for (slot, place) in slots.iter_mut().enumerate() {
            let slot = slot as u16;
            match std::mem::replace(place, Slot::Free) {
                Slot::Token { token, reading, is_copy } => {
                    ended.push_back(Done { is_copy, ..Done::of(Done::aborted(), reading, token) });
                    places.release(slot);
                }
                over @ (Slot::Free | Slot::Answered(_)) => *place = over,
                waiting => answer(slot, place, waiting, Done::aborted(), places, seen),
            }
        }
    }
}

/// Leaves a completion to the call or future that waits for it.
fn answer(
    slot: u16,
    place: &mut Slot,
    waiting: Slot,
    completion: Completion,
    places: &mut Places,
    seen: &Seen,
) {
    match waiting {
        Slot::Call => {
            *place = Slot::Answered(completion);
            // Release: pairs with the Acquire of the caller that waits.
            seen.answered[usize::from(slot)].store(true, Ordering::Release);
            // Somebody else has taken the interrupt that was for it.
            seen.beds.wake();
        }
        Slot::Future(waker) => {
            *place = Slot::Answered(completion);
            seen.delivered.fetch_add(1, Ordering::Release);
            places.woken.extend(waker);
        }
        Slot::Orphan => {
            seen.delivered.fetch_add(1, Ordering::Release);
            places.release(slot);
        }
        // The driver returns each token once.
        other => {
            debug_assert!(false, "a token that is not outstanding has completed");
            *place = other;
        }
    }
}

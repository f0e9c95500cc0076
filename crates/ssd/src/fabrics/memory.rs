//! Memory for data between the network and the media: one bound for all of a server.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use unvme_bus::{EventFd, lock};

/// Most bytes of staging memory that all queues of a server have at a time. Commands that find none wait in
/// the order in which they came; while some wait, every queue gives back what it does not use.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: u64,
    /// What is compared with the limit.
    budgeted: AtomicU64,
    /// What is not: see [`MemoryBudget::take_anyway`].
    beyond: AtomicU64,
    /// Commands that wait; read without the lock.
    waiting: AtomicUsize,
    state: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next_ticket: u64,
    line: VecDeque<Waiter>,
    /// Queues that have memory, by the ticket they were given, and how they are woken up.
    holders: Vec<(u64, EventFd)>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    wake: Option<EventFd>,
}

/// A place in the line of those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitTicket(u64);

impl MemoryBudget {
    /// Unless told otherwise: 1 GiB.
    pub const DEFAULT_BYTES: u64 = 1 << 30;

    /// At most `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self {
            limit: bytes,
            budgeted: AtomicU64::new(0),
            beyond: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// The bound in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that are taken now: those that queues keep for their next commands, and what capsules have
    /// brought beyond the bound, are among them.
    pub fn used(&self) -> u64 {
        self.budgeted.load(Ordering::Relaxed).saturating_add(self.beyond.load(Ordering::Relaxed))
    }

    /// True while commands wait: memory that is not in use is to be given back.
    #[inline]
    pub(super) fn is_pressed(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Whether nobody waits who came before whoever has this ticket, or none.
    pub(super) fn is_turn_of(&self, ticket: Option<WaitTicket>) -> bool {
        if !self.is_pressed() {
            return true;
        }
        let first = lock(&self.state).line.front().map(|first| first.ticket);
        first.is_none_or(|first| ticket == Some(WaitTicket(first)))
    }

    /// Takes `bytes` unless that is too much, or others have waited for longer. Who has waited keeps its
    /// place until it leaves it, see [`MemoryBudget::forget`].
    pub(super) fn take(&self, bytes: u64, ticket: Option<WaitTicket>) -> bool {
        let fits = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.is_turn_of(ticket)
            && self.budgeted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    /// Takes `bytes` however much that is: data that is already on its way, in a capsule, whose size is
    /// small. It does not count, so that nobody waits in vain for what belongs to a command that itself
    /// waits.
    pub(super) fn take_anyway(&self, bytes: u64) {
        self.beyond.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives `bytes` back that were taken.
    pub(super) fn give(&self, bytes: u64) {
        self.take_back(bytes);
        if self.is_pressed() {
            wake_first(&lock(&self.state));
        }
    }

    /// As [`MemoryBudget::give`], by who is the first in the line, with nothing in it for the others.
    pub(super) fn take_back(&self, bytes: u64) {
        // SeqCst, as all that is done to these two: either who gives sees that somebody waits, or who waits
        // sees what was given.
        self.budgeted.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Gives `bytes` back that were taken anyway.
    pub(super) fn give_beyond(&self, bytes: u64) {
        self.beyond.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Waits for its turn; the first one in an empty line makes all others give back what they do not use,
    /// which they go on doing while there is a line.
    pub(super) fn wait(&self, wake: Option<EventFd>) -> WaitTicket {
        let mut state = lock(&self.state);
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.line.push_back(Waiter { ticket, wake });
        self.waiting.store(state.line.len(), Ordering::SeqCst);
        if state.line.len() == 1 {
            state.holders.iter().for_each(|(_, wake)| wake.signal());
        }
        WaitTicket(ticket)
    }

    /// Waits no longer.
    pub(super) fn forget(&self, ticket: WaitTicket) {
        let mut state = lock(&self.state);
        state.line.retain(|waiter| waiter.ticket != ticket.0);
        self.waiting.store(state.line.len(), Ordering::SeqCst);
        // What is left may do for the next one.
        wake_first(&state);
    }

    /// A queue that may have memory to give back wants to be woken up for it.
    pub(super) fn enter(&self, wake: EventFd) -> WaitTicket {
        let mut state = lock(&self.state);
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.holders.push((ticket, wake));
        WaitTicket(ticket)
    }

    /// That queue is gone.
    pub(super) fn leave(&self, ticket: WaitTicket) {
        lock(&self.state).holders.retain(|(holder, _)| *holder != ticket.0);
    }
}

fn wake_first(state: &Waiting) {
    if let Some(Waiter { wake: Some(wake), .. }) = state.line.front() {
        wake.signal();
    }
}

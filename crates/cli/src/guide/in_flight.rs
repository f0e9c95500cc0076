//! Operations of a thread that are under way on an asynchronous queue.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;
use unvme::{DmaBuf, lock};
use unvme_guide::session::{Finished, Handler, Outcome};

use super::lane::{Answer, Operation};
use super::pair;
use super::record::Record;

/// The thread is in the high half of a token, the slot in the low one.
const THREAD_SHIFT: u32 = 32;

/// Hands what has ended to the thread that submitted it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Router(Arc<OnceLock<Vec<Arc<InFlight>>>>);

impl Router {
    /// What a session calls.
    pub(crate) fn handler(&self) -> Handler {
        let threads = Arc::clone(&self.0);
        Arc::new(move |finished: Finished| {
            let thread = (finished.token >> THREAD_SHIFT) as usize;
            // Before the threads are known nothing was submitted.
            if let Some(in_flight) = threads.get().and_then(|threads| threads.get(thread)) {
                in_flight.complete(finished.token as u32, finished.outcome);
            }
        })
    }

    /// Says who the threads are, once; returns what holds the operations of each.
    pub(crate) fn connect(&self, depths: &[usize]) -> Result<Vec<Arc<InFlight>>> {
        let threads = depths.iter().zip(0u64..).map(|(&depth, thread)| InFlight::new(thread, depth));
        let threads = threads.collect::<Result<Vec<_>>>()?;
        Ok(self.0.get_or_init(|| threads).clone())
    }
}

/// What came of asking for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The token to submit the operation with.
    Token(u64),
    /// All slots are taken.
    Full,
    /// Something has failed: no more are to be submitted.
    Failed,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// There is room for more.
    Room,
    /// Nothing is under way.
    Idle,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug)]
struct Slot {
    operation: Operation,
    begin: Duration,
}

struct State {
    start: Instant,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    record: Record,
    /// Buffers that have come back.
    buffers: Vec<DmaBuf>,
    /// Free slots that the thread waits for; more than there are when it does not wait.
    wanted: usize,
}

/// Operations of one thread that are under way.
pub(crate) struct InFlight {
    thread: u64,
    state: Mutex<State>,
    completed: Condvar,
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl InFlight {
    fn new(thread: u64, depth: usize) -> Result<Arc<Self>> {
        let depth = depth.max(1);
        let state = State {
            start: Instant::now(),
            slots: vec![None; depth],
            free: (0..depth as u32).rev().collect(),
            record: Record::new()?,
            buffers: Vec::new(),
            wanted: usize::MAX,
        };
        Ok(Arc::new(Self { thread, state: Mutex::new(state), completed: Condvar::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned state means that a handler panicked; what it had counted is still what was seen.
        lock(&self.state)
    }

    /// Begins a test with an empty record.
    pub(crate) fn begin(&self, start: Instant) -> Result<()> {
        let mut state = self.lock();
        state.start = start;
        state.record = Record::new()?;
        Ok(())
    }

    /// Ends a test in which everything has completed.
    pub(crate) fn end(&self) -> Result<Record> {
        Ok(std::mem::replace(&mut self.lock().record, Record::new()?))
    }

    /// A buffer of an operation that has completed.
    pub(crate) fn take_buffer(&self) -> Option<DmaBuf> {
        self.lock().buffers.pop()
    }

    /// Takes a slot for an operation that begins now.
    pub(crate) fn claim(&self, operation: Operation) -> Claim {
        let mut state = self.lock();
        if state.record.failures > 0 {
            return Claim::Failed;
        }
        let Some(slot) = state.free.pop() else { return Claim::Full };
        let begin = state.start.elapsed();
        state.slots[slot as usize] = Some(Slot { operation, begin });
        state.record.submitted += 1;
        Claim::Token(self.thread << THREAD_SHIFT | u64::from(slot))
    }

    /// Takes back an operation that was not submitted in the end.
    pub(crate) fn cancel(&self, token: u64) {
        let mut state = self.lock();
        state.slots[token as u32 as usize] = None;
        state.free.push(token as u32);
        state.record.submitted -= 1;
    }

    /// An operation that was not submitted has failed for good.
    pub(crate) fn fail(&self, what: impl FnOnce() -> String) {
        self.lock().record.failed(what);
    }

    /// Waits until there is room, or until everything has completed, at most for `limit`; true when so.
    ///
    /// Room is an eighth of all slots: a thread that is woken for each single one does little else than wake
    /// up.
    pub(crate) fn wait(&self, until: Until, limit: Duration) -> bool {
        let mut state = self.lock();
        let wanted = match until {
            Until::Room => state.slots.len().div_ceil(8),
            Until::Idle => state.slots.len(),
        };
        state.wanted = wanted;
        let mut state = lock::wait_while(&self.completed, state, limit, |state| state.free.len() < wanted);
        state.wanted = usize::MAX;
        state.free.len() >= wanted
    }

    fn complete(&self, slot: u32, mut outcome: Outcome) {
        let mut state = self.lock();
        let Some(Slot { operation, begin }) = state.slots.get(slot as usize).copied().flatten() else {
            return;
        };
        let end = state.start.elapsed();
        let mut checksum = None;
        if operation.check.is_some() {
            // A checksum takes a while, and nobody else has this slot.
            drop(state);
            let mut value = vec![0; outcome.data_bytes];
            let bytes = outcome.copy_data(&mut value);
            checksum = Some(pair::checksum(&value[..bytes]));
            state = self.lock();
        }
        // Blocks have no size of their own: what was read is all there is.
        let value_bytes = outcome.value_bytes.max(outcome.data_bytes as u64);
        let answer = Answer { status: outcome.status, value_bytes, checksum };
        operation.enter(&answer, begin, end, &mut state.record);
        state.record.completed += 1;
        state.slots[slot as usize] = None;
        state.free.push(slot);
        if operation.lent {
            state.buffers.extend(outcome.data.take());
        }
        let wake = state.free.len() >= state.wanted;
        drop(state);
        if wake {
            self.completed.notify_one();
        }
    }
}

//! Blocks that were freed are used again once nobody can be on his way to them any more.
//!
//! Whoever submits commands without a lock says since when he does so. What was freed later waits for him.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unvme::lock::lock;

use crate::space::Run;

/// Nothing is under way.
const IDLE: u64 = u64::MAX;

/// Since when somebody has commands under way.
pub(crate) struct Slot(AtomicU64);

/// What was freed by a transaction.
type Freed = (u64, Vec<Run>);

/// All who submit, and what waits for them.
#[derive(Default)]
pub(crate) struct Epochs {
    now: AtomicU64,
    slots: Mutex<Vec<Arc<Slot>>>,
    waiting: Mutex<Vec<Freed>>,
}

impl Epochs {
    /// Somebody who is going to submit.
    pub(crate) fn join(&self) -> Arc<Slot> {
        let slot = Arc::new(Slot(AtomicU64::new(IDLE)));
        lock(&self.slots).push(Arc::clone(&slot));
        slot
    }

    /// He does so no more.
    pub(crate) fn leave(&self, slot: &Arc<Slot>) {
        lock(&self.slots).retain(|other| !Arc::ptr_eq(other, slot));
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Nobody finds these blocks any more who looks from now on.
    pub(crate) fn retire(&self, freed: Vec<Run>) {
        if !freed.is_empty() {
            let mut waiting = lock(&self.waiting);
            waiting.push((self.now.fetch_add(1, Ordering::SeqCst), freed));
        }
    }

    /// What can be used again.
    pub(crate) fn ready(&self) -> Vec<Run> {
        let mut waiting = lock(&self.waiting);
        if waiting.is_empty() {
            return Vec::new();
        }
        let oldest = lock(&self.slots).iter().map(|slot| slot.0.load(Ordering::SeqCst)).min().unwrap_or(IDLE);
        let mut ready = Vec::new();
        waiting.retain_mut(|(when, runs)| {
            let is_waiting = *when >= oldest;
            if !is_waiting {
                ready.append(runs);
            }
            is_waiting
        });
        ready
    }
}

/// Commands of one who submits, in two generations: the older one's beginning is what he says.
pub(crate) struct Flights {
    slot: Arc<Slot>,
    counts: [u64; 2],
    starts: [u64; 2],
    current: usize,
    submitted: u64,
}

/// Commands until a new generation is thought of.
const GENERATION: u64 = 256;

impl Flights {
    pub(crate) fn new(slot: Arc<Slot>) -> Self {
        Self { slot, counts: [0; 2], starts: [0; 2], current: 0, submitted: 0 }
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Before somebody looks where blocks are. Returns the generation of his command.
    #[inline]
    pub(crate) fn begin(&mut self, epochs: &Epochs) -> u8 {
        self.submitted += 1;
        if self.counts == [0; 2] {
            self.starts[self.current] = epochs.now();
            self.slot.0.store(self.starts[self.current], Ordering::SeqCst);
        } else if self.submitted.is_multiple_of(GENERATION) && self.counts[1 - self.current] == 0 {
            // The one that was current is the older one from now on, and the only one that counts.
            self.slot.0.store(self.starts[self.current], Ordering::SeqCst);
            self.current = 1 - self.current;
            self.starts[self.current] = epochs.now();
        }
        self.counts[self.current] += 1;
        self.current as u8
    }

    /// A command of a generation is over.
    #[inline]
    pub(crate) fn end(&mut self, generation: u8) {
        self.counts[usize::from(generation)] -= 1;
        if self.counts == [0; 2] {
            self.slot.0.store(IDLE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_waits_for_those_who_were_on_their_way() {
        let epochs = Epochs::default();
        let run = |start| Run { start, blocks: 1 };
        let mut flights = Flights::new(epochs.join());
        epochs.retire(vec![run(1)]);
        assert_eq!(epochs.ready(), [run(1)]);
        let first = flights.begin(&epochs);
        epochs.retire(vec![run(2)]);
        assert_eq!(epochs.ready(), []);
        // Always something under way, and the first one still is.
        let mut last = first;
        for _ in 0..2 * GENERATION {
            let next = flights.begin(&epochs);
            if last != first {
                flights.end(last);
            } else if next != first {
                last = next;
                continue;
            } else {
                flights.end(next);
                continue;
            }
            last = next;
        }
        epochs.retire(vec![run(3)]);
        assert_eq!(epochs.ready(), []);
        flights.end(first);
        // The younger ones began later than the first two were freed.
        for _ in 0..2 * GENERATION {
            let next = flights.begin(&epochs);
            flights.end(last);
            last = next;
        }
        let ready = epochs.ready();
        assert!(ready.contains(&run(2)) && ready.contains(&run(3)), "{ready:?}");
        flights.end(last);
        epochs.leave(&Arc::clone(flights.slot()));
        epochs.retire(vec![run(4)]);
        assert_eq!(epochs.ready(), [run(4)]);
    }
}

//! Those who wait for a place in a queue, in the order they came.
//!
//! A place that gets free is the first waiter's from that moment on: nobody can come in between, and each
//! place wakes one waiter. One that goes away hands its place to the next.

use std::collections::VecDeque;
use std::task::Waker;

/// So many wait without anything being allocated for them, whenever they come.
const ROOM: usize = 32;

/// Who waits for a place.
pub(super) struct Waiters {
    /// Indices of those without a place, the first one first. One that has gone away is left in it.
    line: VecDeque<u32>,
    all: Vec<Waiter>,
    /// Indices of those of `all` that nobody uses.
    unused: Vec<u32>,
}

enum Waiter {
    Unused,
    Waiting(Waker),
    /// It has gone away, and is still in line.
    Gone,
    /// It has been given this slot.
    Granted(u16),
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            line: VecDeque::with_capacity(ROOM),
            all: Vec::with_capacity(ROOM),
            unused: Vec::with_capacity(ROOM),
        }
    }
}

impl Waiters {
    /// Whether nobody waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// The next in line. Nothing is allocated while no more wait than [`ROOM`], or than have at some time.
    pub(super) fn add(&mut self, waker: Waker) -> u32 {
        let index = match self.unused.pop() {
            Some(index) => index,
            None => {
                self.all.push(Waiter::Unused);
                // Room for all to be unused, so that giving one back never allocates.
                self.unused.reserve(self.all.len());
                (self.all.len() - 1) as u32
            }
        };
        self.all[index as usize] = Waiter::Waiting(waker);
        self.line.push_back(index);
        index
    }

    /// Gives `slot` to the first in line, who is to be woken; gives it back when nobody is.
    pub(super) fn grant(&mut self, slot: u16) -> Result<Waker, u16> {
        while let Some(index) = self.line.pop_front() {
            match std::mem::replace(&mut self.all[index as usize], Waiter::Granted(slot)) {
                Waiter::Waiting(waker) => return Ok(waker),
                _ => self.release(index),
            }
        }
        Err(slot)
    }

    /// The slot that a waiter has been given, who is none any more then.
    pub(super) fn take(&mut self, index: u32) -> Option<u16> {
        let Waiter::Granted(slot) = self.all[index as usize] else { return None };
        self.release(index);
        Some(slot)
    }

    /// Has `waker` woken instead; the one before is returned, to be dropped where no lock is held.
    pub(super) fn update(&mut self, index: u32, waker: &Waker) -> Option<Waker> {
        match &mut self.all[index as usize] {
            Waiter::Waiting(known) if !known.will_wake(waker) => {
                Some(std::mem::replace(known, waker.clone()))
            }
            _ => None,
        }
    }

    /// Goes away without a place. What is returned is to be dropped where no lock is held.
    pub(super) fn leave(&mut self, index: u32) -> Option<Waker> {
        let left = match std::mem::replace(&mut self.all[index as usize], Waiter::Gone) {
            Waiter::Waiting(waker) => Some(waker),
            _ => None,
        };
        // Those in front who have gone are forgotten, so that a line that nobody is let in from does not
        // grow.
        while let Some(&index) = self.line.front()
            && matches!(self.all[index as usize], Waiter::Gone)
        {
            self.line.pop_front();
            self.release(index);
        }
        left
    }

    /// Whoever looks after a queue that nobody else polls: the first in line.
    pub(super) fn first(&self) -> Option<&Waker> {
        self.line.iter().find_map(|index| match &self.all[*index as usize] {
            Waiter::Waiting(waker) => Some(waker),
            _ => None,
        })
    }

    /// Whether that is this one.
    pub(super) fn is_first(&self, index: u32) -> bool {
        let waits = |index: &&u32| matches!(self.all[**index as usize], Waiter::Waiting(_));
        self.line.iter().find(waits) == Some(&index)
    }

    /// Takes everybody out of the line, to be woken.
    pub(super) fn dismiss(&mut self, woken: &mut Vec<Waker>) {
        for index in std::mem::take(&mut self.line) {
            match std::mem::replace(&mut self.all[index as usize], Waiter::Unused) {
                Waiter::Waiting(waker) => {
                    // Its future looks at the queue, finds it closed, and does not come back to this list.
                    woken.push(waker);
                }
                _ => self.release(index),
            }
        }
    }

    fn release(&mut self, index: u32) {
        self.all[index as usize] = Waiter::Unused;
        self.unused.push(index);
    }
}

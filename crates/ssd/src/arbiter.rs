//! Weighted Round Robin with Urgent Priority Class (Base 3.4.4.2): which class of submission queues is next.
//!
//! It is at work where the host has chosen it and has queues of more than one class; without that all queues
//! are alike, each is served on its own, and nothing of this is looked at.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use unvme_bus::lock::{lock, try_lock};
use unvme_spec::admin::QueuePriority;

/// Flash operations of a die that are under way before its controller takes no further command: one at work
/// and one behind it. What is not taken waits in its queue, where its class counts.
const OPERATIONS_PER_DIE: u32 = 2;

/// A bit per queue identifier.
type Members = u128;

/// Which queues are of which class, and how far the round is.
pub(crate) struct Arbiter {
    /// The host has chosen it, and has queues of several classes.
    is_on: AtomicBool,
    classes: Mutex<Classes>,
    round: Mutex<Round>,
    /// The controller has been enabled since the round was begun.
    is_stale: AtomicBool,
    under_way: Mutex<UnderWay>,
    /// Flash operations that may be under way; `None` where commands take no time.
    window: Option<u64>,
}

#[derive(Default)]
struct Classes {
    is_chosen: bool,
    /// In the order of [`QueuePriority::raw`].
    members: [Members; 4],
}

/// Where the round over the classes with a weight is.
#[derive(Default)]
pub(crate) struct Round {
    /// Commands of each class in a round, in the order of [`WEIGHTED`].
    weights: [u32; 3],
    turn: usize,
    /// Commands that the class at its turn may still have in this round.
    credits: u32,
    /// The queue of each class that was served last.
    last: [u16; 4],
}

/// Commands that were taken and are not done yet.
#[derive(Default)]
struct UnderWay {
    /// When they will be, and how many flash operations they are.
    commands: BinaryHeap<Reverse<(u64, u64)>>,
    operations: u64,
}

/// The classes with a weight, in the order of a round.
const WEIGHTED: [QueuePriority; 3] = [QueuePriority::High, QueuePriority::Medium, QueuePriority::Low];

impl Arbiter {
    /// For a device with so many dies whose operations take time.
    pub(crate) fn new(timed_dies: Option<u32>) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            classes: Mutex::default(),
            round: Mutex::default(),
            is_stale: AtomicBool::new(false),
            under_way: Mutex::default(),
            window: timed_dies.map(|dies| u64::from(dies) * u64::from(OPERATIONS_PER_DIE)),
        }
    }

    /// Whether queues are served by their classes.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The controller is enabled, with this mechanism or with plain round robin. It has no I/O queues.
    pub(crate) fn choose(&self, is_chosen: bool) {
        *lock(&self.classes) = Classes { is_chosen, ..Classes::default() };
        *lock(&self.under_way) = UnderWay::default();
        self.is_stale.store(true, Ordering::Relaxed);
        self.is_on.store(false, Ordering::Relaxed);
    }

    /// A submission queue is there.
    pub(crate) fn join(&self, qid: u16, priority: QueuePriority) {
        self.change(|members| {
            if let Some(class) = members.get_mut(usize::from(priority.raw())) {
                *class |= bit(qid);
            }
        });
    }

    /// A submission queue is there no more.
    pub(crate) fn part(&self, qid: u16) {
        self.change(|members| {
            members.iter_mut().for_each(|class| *class &= !bit(qid));
        });
    }

    fn change(&self, change: impl FnOnce(&mut [Members; 4])) {
        let mut classes = lock(&self.classes);
        change(&mut classes.members);
        let several = classes.members.iter().filter(|members| **members != 0).count() > 1;
        self.is_on.store(classes.is_chosen && several, Ordering::Relaxed);
    }

    /// The queues of a class, from behind the one that was served last on.
    pub(crate) fn members(&self, round: &Round, class: QueuePriority) -> impl Iterator<Item = u16> + use<> {
        let members = lock(&self.classes).members.get(usize::from(class.raw())).copied().unwrap_or_default();
        let last = round.last.get(usize::from(class.raw())).copied().unwrap_or_default();
        let before = bit(last) | bit(last).wrapping_sub(1);
        let mut rest = [members & !before, members & before];
        std::iter::from_fn(move || {
            let part = rest.iter_mut().find(|part| **part != 0)?;
            let qid = part.trailing_zeros() as u16;
            *part &= !bit(qid);
            Some(qid)
        })
    }

    /// The round, unless somebody else is at it: a controller decides one thing after another. With other
    /// weights than it was begun with, or after a reset, it begins anew.
    pub(crate) fn round(&self, weights: [u32; 3]) -> Option<MutexGuard<'_, Round>> {
        let mut round = try_lock(&self.round)?;
        if round.weights != weights || self.is_stale.swap(false, Ordering::Relaxed) {
            *round = Round { weights, ..Round::default() };
        }
        Some(round)
    }

    /// A command was taken that will be done at `due`, and is so many flash operations.
    pub(crate) fn begun(&self, due: u64, operations: usize) {
        // One without any takes a place as well.
        let operations = (operations as u64).max(1);
        let mut under_way = lock(&self.under_way);
        under_way.commands.push(Reverse((due, operations)));
        under_way.operations += operations;
    }

    /// Whether commands take time, and are taken one by one.
    pub(crate) fn is_timed(&self) -> bool {
        self.window.is_some()
    }

    /// Whether one more command is taken at `now`.
    pub(crate) fn has_room(&self, now: impl FnOnce() -> u64) -> bool {
        let Some(window) = self.window else { return true };
        let now = now();
        let mut under_way = lock(&self.under_way);
        while let Some(&Reverse((due, operations))) = under_way.commands.peek()
            && due <= now
        {
            under_way.commands.pop();
            under_way.operations -= operations;
        }
        under_way.operations < window
    }

    /// When there is room for more than now.
    pub(crate) fn next_due(&self) -> Option<u64> {
        if !self.is_on() {
            return None;
        }
        lock(&self.under_way).commands.peek().map(|Reverse((due, _))| *due)
    }
}

impl Round {
    /// The class whose turn it is.
    pub(crate) fn class(&self) -> QueuePriority {
        WEIGHTED.get(self.turn).copied().unwrap_or(QueuePriority::High)
    }

    /// What the class may have: what is left of this round, or its part of a new one.
    pub(crate) fn credits(&mut self) -> u32 {
        if self.credits == 0 {
            self.credits = self.weights.get(self.turn).copied().unwrap_or(1);
        }
        self.credits
    }

    /// The class has had so many commands; the next one has its turn when that was all.
    pub(crate) fn spend(&mut self, commands: u32) {
        self.credits = self.credits.saturating_sub(commands);
        if self.credits == 0 {
            self.go_on();
        }
    }

    /// What waits of the class cannot be had now, or there is none.
    pub(crate) fn pass(&mut self, class: QueuePriority) {
        if self.class() == class {
            self.go_on();
        }
    }

    fn go_on(&mut self) {
        self.credits = 0;
        self.turn = (self.turn + 1) % WEIGHTED.len();
    }

    /// A queue was served.
    pub(crate) fn note(&mut self, class: QueuePriority, qid: u16) {
        if let Some(last) = self.last.get_mut(usize::from(class.raw())) {
            *last = qid;
        }
    }
}

/// Identifiers are below 128: there are as many queues as doorbells in a page.
const fn bit(qid: u16) -> Members {
    1 << (qid % 128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_at_work_with_several_classes_and_only_where_it_was_chosen() {
        let arbiter = Arbiter::new(None);
        for chosen in [false, true] {
            arbiter.choose(chosen);
            arbiter.join(1, QueuePriority::Medium);
            arbiter.join(70, QueuePriority::Medium);
            assert!(!arbiter.is_on(), "one class");
            arbiter.join(2, QueuePriority::Low);
            assert_eq!(arbiter.is_on(), chosen);
            arbiter.part(2);
            assert!(!arbiter.is_on(), "one class again");
        }
        let mut round = Round::default();
        let members = |round: &Round| arbiter.members(round, QueuePriority::Medium).collect::<Vec<_>>();
        assert_eq!(members(&round), [1, 70]);
        round.note(QueuePriority::Medium, 1);
        assert_eq!(members(&round), [70, 1]);
        round.note(QueuePriority::Medium, 127);
        assert_eq!(members(&round), [1, 70]);
    }

    #[test]
    fn what_is_under_way_is_bounded_until_it_is_done() {
        let arbiter = Arbiter::new(Some(4));
        arbiter.begun(100, 7);
        assert!(arbiter.has_room(|| 0), "7 of 8 operations");
        arbiter.begun(50, 0);
        assert!(!arbiter.has_room(|| 49), "a command without one counts as well");
        assert!(arbiter.has_room(|| 50));
        assert!(Arbiter::new(None).has_room(|| panic!("no clock is read")));
    }
}

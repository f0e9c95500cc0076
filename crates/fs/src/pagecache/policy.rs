//! The order in which pages are given up.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Weak;

use super::{FileCache, Frame, Policy};
use crate::node::Node;

/// A page in an order. It may be gone, or another one: `ticket` tells.
pub(super) struct Entry {
    pub node: Weak<Node>,
    pub ino: u64,
    pub index: u64,
    pub ticket: u64,
}

impl Entry {
    /// What a ghost remembers of it.
    fn mark(&self) -> u64 {
        (self.ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.index).wrapping_mul(0xff51_afd7_ed55_8ccd)
    }
}

/// Where a page stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// S3-FIFO: came lately.
    Small,
    /// S3-FIFO: was used again.
    Main,
    /// LRU: was used at this time.
    Used(u64),
}

impl Place {
    /// Where a page goes on that cannot be given up now.
    pub(super) fn later(self, stamp: u64) -> Self {
        match self {
            Self::Used(then) => Self::Used(stamp.max(then + 1)),
            other => other,
        }
    }

    /// Where a page goes on that was used; `None` when it is to be given up.
    pub(super) fn judge(self, frame: &Frame) -> Option<Self> {
        match self {
            Self::Small if frame.heat() > 1 => {
                frame.set_heat(0);
                Some(Self::Main)
            }
            Self::Main if frame.heat() > 0 => {
                frame.set_heat(frame.heat() - 1);
                Some(Self::Main)
            }
            Self::Used(then) if frame.stamp() > then => Some(Self::Used(frame.stamp())),
            _ => None,
        }
    }
}

/// All pages, in the order of a policy.
pub(super) struct Queues {
    policy: Policy,
    /// Pages of the small queue that it keeps.
    small_max: usize,
    budget: usize,
    small: VecDeque<Entry>,
    main: VecDeque<Entry>,
    ghosts: VecDeque<u64>,
    is_ghost: HashSet<u64>,
    used: BTreeMap<(u64, u64), Entry>,
    /// Tells pages that were used at the same time apart.
    turn: u64,
    /// Entries at which those are looked for whose pages are gone.
    sweep_at: usize,
}

impl Queues {
    pub(super) fn new(policy: Policy, budget: usize) -> Self {
        Self {
            policy,
            small_max: (budget / 10).max(1),
            budget,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            is_ghost: HashSet::new(),
            used: BTreeMap::new(),
            turn: 0,
            sweep_at: Self::sweep_min(budget),
        }
    }

    fn sweep_min(budget: usize) -> usize {
        4 * budget + 1024
    }

    /// A page that has come, to the file `own`, whose lock is held.
    pub(super) fn push_new(&mut self, entry: Entry, own: &FileCache) {
        let node = entry.node.as_ptr();
        let place = match self.policy {
            Policy::Lru => Place::Used(entry.ticket),
            _ if self.is_ghost.remove(&entry.mark()) => Place::Main,
            _ => Place::Small,
        };
        self.push(entry, place);
        if self.small.len() + self.main.len() + self.used.len() >= self.sweep_at {
            self.sweep(node, own);
        }
    }

    pub(super) fn push(&mut self, entry: Entry, place: Place) {
        match place {
            Place::Small => self.small.push_back(entry),
            Place::Main => self.main.push_back(entry),
            Place::Used(stamp) => {
                self.turn += 1;
                self.used.insert((stamp, self.turn), entry);
            }
        }
    }

    /// The page that is considered next.
    pub(super) fn pop(&mut self) -> Option<(Entry, Place)> {
        if self.policy == Policy::Lru {
            return self.used.pop_first().map(|((stamp, _), entry)| (entry, Place::Used(stamp)));
        }
        let from_small = self.small.len() > self.small_max || self.main.is_empty();
        if from_small {
            self.small.pop_front().map(|entry| (entry, Place::Small))
        } else {
            self.main.pop_front().map(|entry| (entry, Place::Main))
        }
    }

    /// A page was given up: when it comes again soon, it is one that stays.
    pub(super) fn evicted(&mut self, entry: &Entry, place: Place) {
        if place != Place::Small {
            return;
        }
        self.is_ghost.insert(entry.mark());
        self.ghosts.push_back(entry.mark());
        while self.ghosts.len() > self.budget {
            let Some(oldest) = self.ghosts.pop_front() else { break };
            self.is_ghost.remove(&oldest);
        }
    }

    /// Entries of pages that are gone must not become more and more: files are truncated and removed.
    fn sweep(&mut self, own: *const Node, cache: &FileCache) {
        let has = |cache: &FileCache, entry: &Entry| {
            cache.get(entry.index).is_some_and(|frame| frame.ticket == entry.ticket)
        };
        let is_there = |entry: &Entry| {
            if std::ptr::eq(entry.node.as_ptr(), own) {
                return has(cache, entry);
            }
            entry.node.upgrade().is_some_and(|node| match node.state.try_read() {
                Ok(state) => has(&state.cache, entry),
                // Next time.
                Err(_) => true,
            })
        };
        self.small.retain(is_there);
        self.main.retain(is_there);
        self.used.retain(|_, entry| is_there(entry));
        let left = self.small.len() + self.main.len() + self.used.len();
        self.sweep_at = Self::sweep_min(self.budget).max(2 * left);
    }
}

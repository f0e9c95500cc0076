//! The order in which pages are given up.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::frames::FrameNo;
use super::pages::Word;
use crate::spread::{ByNumber, spread};

/// What is given up first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// S3-FIFO: pages that are used once leave early, those that are used again stay.
    #[default]
    S3Fifo,
    /// The page that was not used for the longest time.
    Lru,
}

/// A page in an order. It may be gone, or have another frame: then this is not about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub owner: u64,
    pub index: u64,
    pub frame: FrameNo,
}

impl Entry {
    /// What a ghost remembers of it.
    fn mark(&self) -> u64 {
        spread(spread(self.owner) ^ self.index)
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
    /// Where a page goes on that was used, at `stamp` the last time; `None` when it is to be given up.
    pub(super) fn judge(self, word: &Word, stamp: u64) -> Option<Self> {
        match self {
            Self::Small if word.heat() > 1 => {
                word.set_heat(0);
                Some(Self::Main)
            }
            Self::Main if word.heat() > 0 => {
                word.set_heat(word.heat() - 1);
                Some(Self::Main)
            }
            Self::Used(then) if stamp > then => Some(Self::Used(stamp)),
            _ => None,
        }
    }
}

/// Pages in an order, and memory for more of them.
#[derive(Debug)]
pub(super) struct Queues {
    order: Order,
    /// Pages of the small queue that it keeps.
    small_max: usize,
    budget: usize,
    small: VecDeque<Entry>,
    main: VecDeque<Entry>,
    ghosts: VecDeque<u64>,
    is_ghost: ByNumber<()>,
    used: BTreeMap<(u64, u64), Entry>,
    /// Those whose turn it was, and that could not be given up: they wait to be written, or their owners were
    /// busy. In the order, they would keep those behind them from being given up.
    kept: VecDeque<(Entry, Place)>,
    /// Tells pages that were used at the same time apart.
    turn: u64,
    /// Entries at which those are looked for whose pages are gone.
    sweep_at: usize,
    /// Frames of the memory that nobody has used: the next ones that it gives to pages.
    fresh: Range<u32>,
    /// How many more it may take.
    fresh_left: u32,
    /// Those that had a page, and have none.
    free: Vec<FrameNo>,
    /// Pages that there are.
    pub pages: usize,
}

impl Queues {
    /// For pages in so many `frames` of those that there are.
    pub(super) fn new(order: Order, budget: usize, frames: u32) -> Self {
        Self {
            order,
            small_max: (budget / 10).max(1),
            budget,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            is_ghost: ByNumber::default(),
            used: BTreeMap::new(),
            kept: VecDeque::new(),
            turn: 0,
            sweep_at: Self::sweep_min(budget),
            fresh: 0..0,
            fresh_left: frames,
            free: Vec::new(),
            pages: 0,
        }
    }

    /// Whether somebody has to go before somebody comes.
    pub(super) fn is_full(&self) -> bool {
        self.pages >= self.budget
    }

    /// A frame for one page more. `None`: all have one. `next` is where the memory begins that nobody has
    /// used.
    pub(super) fn take_frame(&mut self, next: &AtomicU32) -> Option<FrameNo> {
        /// Few, so that a few pages of each shard are together on a huge page.
        const BATCH: u32 = 16;
        let frame = match self.free.pop() {
            Some(frame) => frame,
            None => {
                if self.fresh.is_empty() {
                    let count = self.fresh_left.min(BATCH);
                    self.fresh_left -= count;
                    let first = next.fetch_add(count, Ordering::Relaxed);
                    self.fresh = first..first + count;
                }
                FrameNo(self.fresh.next()?)
            }
        };
        self.pages += 1;
        Some(frame)
    }

    /// A page was given up.
    pub(super) fn give_back(&mut self, frame: FrameNo) {
        self.pages -= 1;
        self.free.push(frame);
    }

    fn sweep_min(budget: usize) -> usize {
        4 * budget + 1024
    }

    /// A page that has come.
    pub(super) fn push_new(&mut self, entry: Entry, now: u64) {
        let place = match self.order {
            Order::Lru => Place::Used(now),
            _ if self.is_ghost.remove(&entry.mark()).is_some() => Place::Main,
            _ => Place::Small,
        };
        self.push(entry, place);
    }

    /// Entries, of pages that are there and of others.
    pub(super) fn len(&self) -> usize {
        self.small.len() + self.main.len() + self.used.len() + self.kept.len()
    }

    /// Whether there are so many entries that those whose pages are gone should be looked for.
    pub(super) fn is_to_be_swept(&self) -> bool {
        self.len() >= self.sweep_at
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

    /// A page whose turn it was cannot be given up for now.
    pub(super) fn keep(&mut self, entry: Entry, place: Place) {
        self.kept.push_back((entry, place));
    }

    /// The page that could not be given up for the longest time.
    pub(super) fn pop_kept(&mut self) -> Option<(Entry, Place)> {
        self.kept.pop_front()
    }

    /// The page that is considered next.
    pub(super) fn pop(&mut self) -> Option<(Entry, Place)> {
        if self.order == Order::Lru {
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
        self.is_ghost.insert(entry.mark(), ());
        self.ghosts.push_back(entry.mark());
        while self.ghosts.len() > self.budget {
            let Some(oldest) = self.ghosts.pop_front() else { break };
            self.is_ghost.remove(&oldest);
        }
    }

    /// Entries of pages that are gone must not become more and more: owners go, and give up what they have. A
    /// page that went and came again to the same memory has several. `is_there` may say so of a page that is
    /// not, and whose memory another one has.
    pub(super) fn sweep(&mut self, is_there: impl Fn(&Entry) -> bool) {
        let mut seen = HashSet::new();
        let mut is_one =
            |entry: &Entry| is_there(entry) && seen.insert((entry.owner, entry.index, entry.frame.0));
        self.small.retain(&mut is_one);
        self.main.retain(&mut is_one);
        self.used.retain(|_, entry| is_one(entry));
        self.kept.retain(|(entry, _)| is_one(entry));
        self.sweep_at = Self::sweep_min(self.budget).max(2 * self.len());
    }
}

//! The memory of one device's I/O buffers and cached values, within a budget.
//!
//! Buffers come in sizes that are powers of two, from 128 bytes to 2 MiB. Memory is taken from the system in
//! chunks of 2 MiB when a size first needs one, never more than the budget, on huge pages when there are any.
//! Each size has a list of free buffers for every processor, so that two of them seldom meet; a buffer goes
//! back to the list it came from, whoever drops it and wherever: also when a queue ends with commands
//! outstanding.
//!
//! When its list is empty, a request takes, in this order: a new chunk, a buffer from the list of another
//! processor, a chunk of another size that is not in use at all. Then it is refused. It never waits. The last
//! chunks are kept for sizes that have none yet, and a size keeps its last one: small buffers without number
//! cannot leave a device unable to read a list of keys.
//!
//! What a refused caller does next is not decided here: [`crate::ReadCache::alloc`] drops values of the cache
//! and tries again.

mod buf;
mod class;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::{fmt, thread};

use unvme_bus::{BusError, DmaBuf, DmaPool, DmaShelf, Pages, lock};

pub use buf::SlabBuf;
pub(crate) use class::BYTES_MAX as SLAB_BUF_BYTES_MAX;
use class::BYTES_MAX;
use class::CHUNK_BYTES;
pub(crate) use class::{CLASSES, Class};

/// Smallest budget in bytes: every size can have a chunk, and some have more.
pub const SLAB_BYTES_MIN: usize = 44 << 20;
/// Processors with lists of their own; beyond that some share one.
const SHELVES_MAX: usize = 64;

/// How much memory, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabOptions {
    /// Budget in bytes, at least [`SLAB_BYTES_MIN`]; rounded down to whole chunks of 2 MiB.
    pub bytes: usize,
    /// Pages to ask the system for.
    pub pages: Pages,
}

/// Why there is no buffer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlabError {
    /// Everything is in use. A buffer that is dropped, or a value that is dropped from the cache, makes room.
    #[error(
        "no buffer of {bytes} bytes is left of the slab's {budget_bytes}; drop some, or give the slab more"
    )]
    Exhausted {
        /// Bytes that were asked for.
        bytes: usize,
        /// The slab's budget in bytes.
        budget_bytes: usize,
    },
    /// No buffer is that large.
    #[error("a slab has no buffers of {bytes} bytes; the largest are {BYTES_MAX}")]
    TooLarge {
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// The budget cannot work.
    #[error("a slab of {bytes} bytes is too small; it needs {SLAB_BYTES_MIN} or more")]
    BudgetTooSmall {
        /// The budget that was asked for.
        bytes: usize,
    },
    /// The system, or the device's address space, has no memory left.
    #[error("a slab's memory: {0}")]
    System(#[from] BusError),
}

/// What a slab is doing. Counted where it happens: numbers taken while others allocate are each right, but
/// not all of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabStats {
    /// Most bytes the slab takes from the system.
    pub budget_bytes: usize,
    /// Bytes taken from the system so far.
    pub mapped_bytes: usize,
    /// Those of `mapped_bytes` that are on huge pages.
    pub huge_bytes: usize,
    /// Bytes of buffers in use, each counted with its full size.
    pub used_bytes: usize,
    /// Most bytes that were in use. An upper bound: each processor's most, which need not have been at the
    /// same time.
    pub used_bytes_max: usize,
    /// Requests that were refused.
    pub refusals: u64,
}

/// A device's buffers within a budget. Clones share them.
#[derive(Clone)]
pub struct Slab(Arc<Inner>);

struct Inner {
    pool: DmaPool,
    pages: Pages,
    chunks_max: usize,
    /// By size, then by processor.
    shelves: Box<[Box<[DmaShelf]>]>,
    ledger: Mutex<Ledger>,
    /// Chunks not taken yet, for a look without the lock.
    left: AtomicUsize,
    refusals: AtomicU64,
}

/// Who has which chunks.
struct Ledger {
    chunks: usize,
    huge_chunks: usize,
    by_class: [usize; CLASSES],
}

impl Slab {
    /// A slab whose buffers the function of `pool` can reach. Memory is taken from the system when it is
    /// first needed.
    ///
    /// # Errors
    /// [`SlabError::BudgetTooSmall`].
    pub fn new(pool: &DmaPool, options: &SlabOptions) -> Result<Self, SlabError> {
        if options.bytes < SLAB_BYTES_MIN {
            return Err(SlabError::BudgetTooSmall { bytes: options.bytes });
        }
        let processors = thread::available_parallelism().map_or(1, usize::from).min(SHELVES_MAX);
        let shelves = Class::all()
            .map(|class| (0..processors).map(|_| DmaShelf::new(class.bytes())).collect())
            .collect();
        let chunks_max = options.bytes / CHUNK_BYTES;
        Ok(Self(Arc::new(Inner {
            pool: pool.clone(),
            pages: options.pages,
            chunks_max,
            shelves,
            ledger: Mutex::new(Ledger { chunks: 0, huge_chunks: 0, by_class: [0; CLASSES] }),
            left: AtomicUsize::new(chunks_max),
            refusals: AtomicU64::new(0),
        })))
    }

    /// A buffer of `bytes`, at most 2 MiB. It is aligned to its size, or to 4 KiB if that is less, contiguous
    /// for the device, and holds what its last owner left in it.
    ///
    /// # Errors
    /// [`SlabError::Exhausted`], [`SlabError::TooLarge`], [`SlabError::System`]. Never waits.
    #[inline]
    pub fn alloc(&self, bytes: usize) -> Result<SlabBuf, SlabError> {
        self.alloc_at_hand(bytes).or_else(|_| self.alloc_reclaimed(bytes)).inspect_err(|_| {
            self.0.refusals.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// A buffer of more than [`Slab::alloc`] has, in memory of its own that is no part of the budget and goes
    /// back to the system with it.
    ///
    /// # Errors
    /// [`SlabError::System`].
    #[cold]
    pub(crate) fn alloc_large(&self, bytes: usize) -> Result<DmaBuf, SlabError> {
        Ok(self.0.pool.alloc_on(bytes, self.0.pages)?)
    }

    /// As [`Slab::alloc`], without looking for chunks that other sizes do not use; a refusal is not counted.
    #[inline]
    pub(crate) fn alloc_at_hand(&self, bytes: usize) -> Result<SlabBuf, SlabError> {
        let class = Class::holding(bytes).ok_or(SlabError::TooLarge { bytes })?;
        let shelves = &self.0.shelves[class.index()];
        let here = rustix::thread::sched_getcpu() % shelves.len();
        match shelves[here].take(bytes) {
            Some(buf) => Ok(SlabBuf::new(buf)),
            None => self.0.alloc_elsewhere(class, here, bytes),
        }
    }

    /// Makes a buffer that came back from the device, or was taken for it, one of this slab again; any other
    /// buffer is returned.
    ///
    /// # Errors
    /// The buffer, when it is not from this slab.
    pub fn adopt(&self, buf: DmaBuf) -> Result<SlabBuf, DmaBuf> {
        let class = Class::holding(buf.region().len());
        let is_ours =
            class.is_some_and(|class| self.0.shelves[class.index()].iter().any(|shelf| shelf.owns(&buf)));
        if is_ours { Ok(SlabBuf::new(buf)) } else { Err(buf) }
    }

    /// What the slab is doing.
    pub fn stats(&self) -> SlabStats {
        let shelves = || self.0.shelves.iter().flatten();
        let used = |count: fn(&DmaShelf) -> usize| shelves().map(|s| count(s) * s.piece_bytes()).sum();
        let ledger = self.0.lock();
        let mapped_bytes = ledger.chunks * CHUNK_BYTES;
        SlabStats {
            budget_bytes: self.0.chunks_max * CHUNK_BYTES,
            mapped_bytes,
            huge_bytes: ledger.huge_chunks * CHUNK_BYTES,
            used_bytes: used(DmaShelf::taken),
            // Chunks that moved between sizes are in the most of both.
            used_bytes_max: mapped_bytes.min(used(DmaShelf::taken_max)),
            refusals: self.0.refusals.load(Ordering::Relaxed),
        }
    }

    /// Which sizes have chunks that another could get.
    pub(crate) fn can_give(&self) -> [bool; CLASSES] {
        self.0.lock().by_class.map(|chunks| chunks >= 2)
    }

    /// As [`Slab::alloc`]; a refusal is not counted.
    #[cold]
    pub(crate) fn alloc_reclaimed(&self, bytes: usize) -> Result<SlabBuf, SlabError> {
        let class = Class::holding(bytes).ok_or(SlabError::TooLarge { bytes })?;
        let shelf = &self.0.shelves[class.index()][0];
        if self.0.reclaim_for(class)
            && let Some(buf) = shelf.take(bytes)
        {
            return Ok(SlabBuf::new(buf));
        }
        // Others may have dropped some, or taken what was reclaimed.
        self.alloc_at_hand(bytes)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        // Numbers are whole after every statement: a panic elsewhere does not spoil them.
        lock(&self.ledger)
    }

    fn exhausted(&self, bytes: usize) -> SlabError {
        SlabError::Exhausted { bytes, budget_bytes: self.chunks_max * CHUNK_BYTES }
    }

    fn alloc_elsewhere(&self, class: Class, here: usize, bytes: usize) -> Result<SlabBuf, SlabError> {
        let shelves = &self.shelves[class.index()];
        let mut reason = None;
        match self.new_chunk(class) {
            Ok(Some(chunk)) => shelves[here].add(chunk),
            Ok(None) => {}
            Err(e) => reason = Some(e),
        }
        // From here round to here again, once each.
        let (before, after) = shelves.split_at(here);
        let found = after.iter().chain(before).find_map(|shelf| shelf.take(bytes));
        found.map(SlabBuf::new).ok_or_else(|| reason.map_or_else(|| self.exhausted(bytes), SlabError::System))
    }

    /// A chunk that nobody has had yet, if the budget has one for this size.
    fn new_chunk(&self, class: Class) -> Result<Option<DmaBuf>, BusError> {
        if self.left.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let mut ledger = self.lock();
        let left = self.chunks_max - ledger.chunks;
        let kept = ledger.by_class.iter().filter(|chunks| **chunks == 0).count();
        let has_one = ledger.by_class[class.index()] > 0;
        if left == 0 || (has_one && left <= kept) {
            return Ok(None);
        }
        let chunk = self.pool.alloc_on(CHUNK_BYTES, self.pages)?;
        ledger.chunks += 1;
        ledger.huge_chunks += usize::from(chunk.region().is_huge());
        ledger.by_class[class.index()] += 1;
        self.left.store(left - 1, Ordering::Relaxed);
        Ok(Some(chunk))
    }

    /// Moves a chunk of which nothing is in use from another size to this one.
    fn reclaim_for(&self, class: Class) -> bool {
        // Held throughout, so that no size loses its last chunk to two callers at a time. Whoever holds a
        // shelf's own lock never asks for this one.
        let mut ledger = self.lock();
        for other in Class::all() {
            if other == class || ledger.by_class[other.index()] < 2 {
                continue;
            }
            if let Some(chunk) = self.shelves[other.index()].iter().find_map(DmaShelf::reclaim) {
                ledger.by_class[other.index()] -= 1;
                ledger.by_class[class.index()] += 1;
                self.shelves[class.index()][0].add(chunk);
                return true;
            }
        }
        false
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slab").field(&self.stats()).finish()
    }
}

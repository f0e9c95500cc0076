//! Pages in memory, by owner and index, within a budget of all owners together.
//!
//! The owners are whoever has pages: files of a file system, parts of a namespace whose blocks are cached. An
//! owner keeps its [`Pages`] behind a lock of its own: whoever reads shares it, whoever changes them has it
//! alone. What is common to all is the order in which pages are given up, and their memory, which is one
//! [`Region`]. Nobody waits for the lock of another owner to get room: a page whose owner is busy stays a
//! little longer.
//!
//! A page that is there is found without a lock of the cache: one word has its place in memory, how often it
//! was used, and what is to be done with it.

mod frames;
mod order;
mod pages;
mod shown;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use unvme_bus::{BusError, Region, lock};

use crate::spread::spread;
use crate::stripe::Tally;

use frames::Frames;
pub use frames::{FrameNo, PAGE};
pub use order::Order;
use order::{Entry, Place, Queues};
pub use pages::{CHUNK, Pages, Word};
use shown::Shown;
pub use shown::{ShownPages, ShownSize};

/// What a cache has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages that were asked for and there.
    pub hits: u64,
    /// Pages that had to be read because somebody asked for them.
    pub misses: u64,
    /// Pages that were read before anybody asked for them.
    pub read_ahead: u64,
    /// Of these, pages that somebody asked for later.
    pub read_ahead_hits: u64,
    /// Pages that were given up for others.
    pub evicted: u64,
    /// Pages that were written to the device.
    pub written_back: u64,
    /// Pages that are there now.
    pub pages: u64,
    /// Of these, pages that wait to be written.
    pub dirty: u64,
}

#[derive(Debug)]
struct Counters {
    hits: Tally,
    misses: Tally,
    read_ahead: Tally,
    read_ahead_hits: Tally,
    evicted: Tally,
    written_back: Tally,
    dirty: Tally,
}

/// A part of all pages, those of some chunks of each owner: so that not everybody waits for one lock.
#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    queues: Mutex<Queues>,
    /// Goes on with each page that comes: the time that pages are used at.
    clock: AtomicU64,
}

/// Where the cache finds those whose pages it gives up.
pub trait Owners {
    /// Does something with the pages of an owner, unless somebody else has them: it does not wait.
    fn with<R>(&self, owner: u64, act: impl FnOnce(&mut Pages) -> R) -> Found<R>;
}

/// What became of somebody who was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<R> {
    /// There is no such owner any more, nor are its pages.
    Gone,
    /// Somebody has them.
    Busy,
    /// This is what was done with them.
    There(R),
}

/// The pages of an owner whose lock is held.
#[derive(Debug)]
pub struct Own<'a, O> {
    /// Who else there is.
    pub others: &'a O,
    /// The owner.
    pub owner: u64,
    /// Its pages.
    pub pages: &'a mut Pages,
}

/// All memory is taken by pages that wait to be written, or whose owners are busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no page of the cache can be given up: all wait to be written, or are in use")]
pub struct NoRoom;

/// What all owners share. See the [module](self).
#[derive(Debug)]
pub struct Cache {
    order: Order,
    /// Pages that are kept.
    budget: usize,
    counters: Counters,
    shards: Box<[Shard]>,
    frames: Frames,
}

/// What becomes of a page that was considered.
enum Verdict {
    Gone,
    Evicted(FrameNo),
    Again(Place),
    Kept,
}

impl Cache {
    /// A cache of `bytes` bytes. One of none keeps nothing.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn new(bytes: usize, order: Order) -> Result<Self, BusError> {
        Self::make(bytes, order, false)
    }

    /// As [`Cache::new`], in memory that other processes can read: see [`Cache::shown`].
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn shared(bytes: usize, order: Order) -> Result<Self, BusError> {
        Self::make(bytes, order, true)
    }

    fn make(bytes: usize, order: Order, is_shared: bool) -> Result<Self, BusError> {
        /// Pages of a shard, at least.
        const SHARD_MIN: usize = 1024;
        /// Frames beyond what pages may have: for those of owners that are in use.
        const BEYOND: usize = 1024;
        /// Pages that can have numbers.
        const PAGES_MAX: usize = 1 << 30;
        let budget = (bytes / PAGE).min(PAGES_MAX);
        let shards = match budget / SHARD_MIN {
            0 => 1,
            many => (many.next_power_of_two() / 2).clamp(1, 32),
        };
        let each = budget.div_ceil(shards);
        // Memory that nobody touches is not there: what is beyond costs nothing.
        let frames = if budget == 0 { 0 } else { 2 * each + BEYOND };
        let all = frames.max(1) * shards;
        let (memory, shown) = match is_shared {
            true => (Region::published("unvme-pages", all * PAGE)?, Some(Shown::new(all, budget)?)),
            false => (Region::anonymous(all * PAGE)?, None),
        };
        let stamps = if order == Order::Lru { frames * shards } else { 0 };
        // A small cache is to be exact.
        let portion = (budget as i64 / 1024).clamp(1, 64);
        let tally = || Tally::new(64);
        let counters = Counters {
            hits: tally(),
            misses: tally(),
            read_ahead: tally(),
            read_ahead_hits: tally(),
            evicted: tally(),
            written_back: tally(),
            dirty: Tally::new(portion),
        };
        let shard = |_| Shard {
            queues: Mutex::new(Queues::new(order, each, frames as u32)),
            clock: AtomicU64::new(0),
        };
        Ok(Self {
            order,
            budget,
            counters,
            shards: (0..shards).map(shard).collect(),
            frames: Frames::new(memory, stamps, shown),
        })
    }

    /// What other processes need to read pages by [`ShownPages`], if they can.
    pub fn shown(&self) -> Option<(ShownSize, [BorrowedFd<'_>; 3])> {
        let shown = self.frames.shown.as_ref()?;
        let [table, used] = shown.descriptors()?;
        Some((shown.size, [self.frames.memory.backing()?.0, table, used]))
    }

    /// Pages that are kept.
    #[inline]
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// Pages that one request may bring without pushing out its own.
    pub fn request_pages(&self) -> u64 {
        (self.budget as u64 / 4).max(1)
    }

    /// What it has done, and what is there now.
    pub fn counts(&self) -> Counts {
        let of = |count: &Tally| count.total().max(0) as u64;
        let Counters { hits, misses, read_ahead, read_ahead_hits, evicted, written_back, dirty } =
            &self.counters;
        Counts {
            hits: of(hits),
            misses: of(misses),
            read_ahead: of(read_ahead),
            read_ahead_hits: of(read_ahead_hits),
            evicted: of(evicted),
            written_back: of(written_back),
            pages: self.shards.iter().map(|shard| lock(&shard.queues).pages as u64).sum(),
            dirty: of(dirty),
        }
    }

    /// Has memory be there for pages that come next, as many as have come, up to 64 MiB: the system takes
    /// longer to find it than a page takes to be written. For a thread that has nothing better to do, now and
    /// then. Returns for how many pages there is memory.
    pub fn prepare(&self) -> usize {
        self.frames.prepare(self.budget)
    }

    fn shard(&self, owner: u64, index: u64) -> &Shard {
        let hash = spread(spread(owner) ^ (index / CHUNK));
        &self.shards[hash as usize & (self.shards.len() - 1)]
    }

    /// Pages that wait to be written, nearly.
    #[inline]
    pub fn dirty_about(&self) -> usize {
        self.counters.dirty.about().max(0) as usize
    }

    /// So many pages were there that somebody has asked for.
    #[inline]
    pub fn count_hits(&self, pages: u64) {
        self.counters.hits.add(pages as i64);
    }

    /// So many pages were read because somebody has asked for them, and so many before.
    pub fn count_reads(&self, misses: u64, ahead: u64) {
        self.counters.misses.add(misses as i64);
        self.counters.read_ahead.add(ahead as i64);
    }

    #[inline]
    fn touch(&self, owner: u64, index: u64, word: &Word) {
        if word.warm() {
            self.counters.read_ahead_hits.add(1);
        }
        if self.order == Order::Lru {
            let now = self.shard(owner, index).clock.load(Ordering::Relaxed);
            self.frames.set_stamp(word.frame(), now);
        }
    }

    /// Copies bytes from `skip` of a page on. Returns whether it is there.
    #[inline]
    pub fn read(&self, owner: u64, pages: &Pages, index: u64, skip: usize, out: &mut [u8]) -> bool {
        let Some(word) = pages.get(index) else { return false };
        self.touch(owner, index, word);
        debug_assert!(skip + out.len() <= PAGE);
        self.frames.memory.read(word.frame().offset() + skip, out);
        true
    }

    /// Has a page hold bytes from `skip` on. Returns whether it is there.
    #[inline]
    pub fn write(&self, owner: u64, pages: &mut Pages, index: u64, skip: usize, data: &[u8]) -> bool {
        let Some(word) = pages.get(index) else { return false };
        self.touch(owner, index, word);
        debug_assert!(skip + data.len() <= PAGE);
        self.frames.change(word.frame(), |memory, offset| memory.write(offset + skip, data));
        true
    }

    /// Has a page, if it is there, hold zeros from `skip` on.
    pub fn clear_tail(&self, pages: &mut Pages, index: u64, skip: usize) {
        if let Some(word) = pages.get(index) {
            self.frames.change(word.frame(), |memory, offset| memory.fill(offset + skip, PAGE - skip, 0));
        }
    }

    /// The memory of a page that is there, and where in it that is.
    pub fn memory(&self, pages: &Pages, index: u64) -> Option<(&Region, usize)> {
        Some((&self.frames.memory, pages.get(index)?.frame().offset()))
    }

    /// A page of an owner that has none there.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn insert<O: Owners>(&self, own: &mut Own<'_, O>, index: u64, page: &[u8]) -> Result<(), NoRoom> {
        let shard = self.shard(own.owner, index);
        let mut queues = lock(&shard.queues);
        if queues.is_full() {
            self.make_room(&mut queues, own);
        }
        let frame = queues.take_frame(&self.frames.fresh).ok_or(NoRoom)?;
        debug_assert_eq!(page.len(), PAGE);
        self.frames.put(frame, own.owner, index, page);
        let now = shard.clock.fetch_add(1, Ordering::Relaxed) + 1;
        self.frames.set_stamp(frame, now);
        own.pages.put(index, frame);
        queues.push_new(Entry { owner: own.owner, index, frame }, now);
        if queues.is_to_be_swept() {
            queues.sweep(|entry| Self::is_there(own, entry));
        }
        Ok(())
    }

    /// Gives up a page or a few of those that were used least.
    fn make_room<O: Owners>(&self, queues: &mut Queues, own: &mut Own<'_, O>) {
        const TRIES: usize = 64;
        // They have had their turn. Where one has to stay, so do most likely those behind it.
        for _ in 0..TRIES {
            if !queues.is_full() {
                return;
            }
            let Some((entry, place)) = queues.pop_kept() else { break };
            if !self.consider(queues, own, &entry, place) {
                break;
            }
        }
        for _ in 0..TRIES {
            if !queues.is_full() {
                return;
            }
            let Some((entry, place)) = queues.pop().or_else(|| queues.pop_kept()) else { return };
            self.consider(queues, own, &entry, place);
        }
    }

    /// Gives up a page, or says where it goes on. False when it cannot be given up now.
    fn consider<O: Owners>(
        &self,
        queues: &mut Queues,
        own: &mut Own<'_, O>,
        entry: &Entry,
        place: Place,
    ) -> bool {
        let verdict = if entry.owner == own.owner {
            self.judge(own.pages, entry, place)
        } else {
            match own.others.with(entry.owner, |pages| self.judge(pages, entry, place)) {
                Found::Gone => Verdict::Gone,
                Found::Busy => Verdict::Kept,
                Found::There(verdict) => verdict,
            }
        };
        match verdict {
            Verdict::Gone => {}
            Verdict::Again(place) => queues.push(*entry, place),
            Verdict::Kept => {
                queues.keep(*entry, place);
                return false;
            }
            Verdict::Evicted(frame) => {
                self.counters.evicted.add(1);
                queues.evicted(entry, place);
                self.frames.take(frame, entry.owner, entry.index);
                queues.give_back(frame);
            }
        }
        true
    }

    fn judge(&self, pages: &mut Pages, entry: &Entry, place: Place) -> Verdict {
        let Some(word) = pages.get(entry.index).filter(|word| word.frame() == entry.frame) else {
            return Verdict::Gone;
        };
        for _ in 0..self.frames.uses(entry.frame) {
            self.touch(entry.owner, entry.index, word);
        }
        let stamp = self.frames.stamp(entry.frame);
        if word.is_dirty() || word.is_marked() {
            return Verdict::Kept;
        }
        match place.judge(word, stamp) {
            Some(next) => Verdict::Again(next),
            None => pages.take(entry.index).map_or(Verdict::Gone, Verdict::Evicted),
        }
    }

    fn is_there<O: Owners>(own: &Own<'_, O>, entry: &Entry) -> bool {
        let has = |pages: &Pages| pages.get(entry.index).is_some_and(|word| word.frame() == entry.frame);
        if entry.owner == own.owner {
            return has(own.pages);
        }
        match own.others.with(entry.owner, |pages| has(pages)) {
            Found::Gone => false,
            // Next time.
            Found::Busy => true,
            Found::There(is_there) => is_there,
        }
    }

    /// A page has to be written, sooner or later. Returns whether that is new.
    pub fn mark_dirty(&self, pages: &mut Pages, index: u64) -> bool {
        let is_new = pages.mark_dirty(index);
        if is_new {
            self.counters.dirty.add(1);
        }
        is_new
    }

    /// Pages were written to the device. Returns how many of them were dirty.
    pub fn mark_written(&self, pages: &mut Pages, indexes: Range<u64>) -> u64 {
        self.counters.written_back.add((indexes.end - indexes.start) as i64);
        let cleaned = pages.mark_clean(indexes);
        self.counters.dirty.add(-cleaned);
        cleaned as u64
    }

    /// Pages are about to be written to the device as they are now: they are dirty no longer, and marked.
    /// Returns how many were dirty.
    pub fn begin_writing(&self, pages: &mut Pages, indexes: Range<u64>) -> u64 {
        let cleaned = pages.mark_clean(indexes.clone());
        self.counters.dirty.add(-cleaned);
        indexes.for_each(|index| pages.mark(index));
        cleaned as u64
    }

    /// Pages were written to the device, or could not be: then they are dirty again. Returns how many of them
    /// are dirty that were not.
    pub fn end_writing(&self, pages: &mut Pages, indexes: Range<u64>, is_written: bool) -> u64 {
        pages.unmark(indexes.clone());
        if is_written {
            self.counters.written_back.add((indexes.end - indexes.start) as i64);
            return 0;
        }
        indexes.map(|index| u64::from(self.mark_dirty(pages, index))).sum()
    }

    /// Gives up pages of an owner, written or not. Returns how many of them had its mark.
    #[must_use]
    pub fn drop_range(&self, owner: u64, pages: &mut Pages, range: Range<u64>) -> u64 {
        let before = pages.marked();
        for some in pages.there(&range).chunk_by(|a, b| a / CHUNK == b / CHUNK) {
            let mut queues = lock(&self.shard(owner, some[0]).queues);
            for &index in some {
                self.counters.dirty.add(-pages.mark_clean(index..index + 1));
                if let Some(frame) = pages.take(index) {
                    self.frames.take(frame, owner, index);
                    queues.give_back(frame);
                }
            }
        }
        before - pages.marked()
    }
}

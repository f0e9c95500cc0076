//! Pages of files in memory: by file and index, within a budget of all files together.
//!
//! The pages of a file are behind the lock of its inode: whoever reads shares it, whoever changes them has it
//! alone. What is common to all files is only the order in which pages are given up. Nobody waits for the
//! lock of another file to get room: a page whose file is busy stays a little longer.

mod ahead;
mod file;
mod policy;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use unvme::Region;
use unvme::lock::lock;

use crate::error::{Error, Result};
use crate::layout::BLOCK;
use crate::node::{Node, Nodes};
use crate::spread::spread;
use crate::stripe::Tally;

pub(crate) use ahead::Ahead;
use file::CHUNK;
pub(crate) use file::{FileCache, Word};
use policy::{Entry, Place, Queues};

/// The order in which pages are given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// S3-FIFO: pages that are used once leave early, those that are used again stay.
    #[default]
    S3Fifo,
    /// The page that was not used for the longest time goes first.
    Lru,
    /// No page is kept: everything is read from the device and written to it at once.
    None,
}

/// How the page cache works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes of pages that are kept.
    pub bytes: usize,
    /// What is given up first.
    pub policy: Policy,
    /// Percent of the pages that may wait to be written.
    pub dirty_percent: usize,
    /// How long a page may wait to be written.
    pub dirty_age: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            policy: Policy::S3Fifo,
            dirty_percent: 40,
            dirty_age: Duration::from_secs(5),
        }
    }
}

/// What the page cache has done since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
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

/// The least and the greatest read-ahead, and the unit of both, in bytes.
const AHEAD: std::ops::RangeInclusive<u64> = BLOCK as u64..=4 << 20;

/// How a file uses the page cache. It lasts as long as somebody has the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// Reads go to the device, past the cache.
    pub direct_read: bool,
    /// Writes go to the device, past the cache.
    pub direct_write: bool,
    /// Pages stay when they were read; without it they are given up with the first read that hits.
    pub retain: bool,
    /// Bytes that are read in order before more is read than was asked for; 4 KiB to 4 MiB.
    pub read_ahead_threshold: u64,
    /// Bytes that are read ahead; 4 KiB to 4 MiB, or 0 for none.
    pub read_ahead: u64,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self {
            direct_read: false,
            direct_write: false,
            retain: true,
            read_ahead_threshold: 128 << 10,
            read_ahead: 512 << 10,
        }
    }
}

impl FileSettings {
    /// Whether its numbers can be.
    ///
    /// # Errors
    /// [`Error::Format`].
    pub(crate) fn check(&self) -> Result<()> {
        let is_size = |bytes: u64| AHEAD.contains(&bytes) && bytes.is_multiple_of(BLOCK as u64);
        for (what, bytes, can_be) in [
            ("threshold of reading ahead", self.read_ahead_threshold, is_size(self.read_ahead_threshold)),
            ("read-ahead", self.read_ahead, self.read_ahead == 0 || is_size(self.read_ahead)),
        ] {
            if !can_be {
                return Err(Error::Format(format!(
                    "a {what} of {bytes} bytes; it is 4 KiB to 4 MiB, in steps of 4 KiB"
                )));
            }
        }
        Ok(())
    }
}

/// [`FileSettings`] of a file that is in use.
pub(crate) struct Switches {
    pub direct_read: AtomicBool,
    pub direct_write: AtomicBool,
    pub retain: AtomicBool,
    pub threshold: AtomicU64,
    pub ahead: AtomicU64,
}

impl Default for Switches {
    fn default() -> Self {
        let start = FileSettings::default();
        Self {
            direct_read: start.direct_read.into(),
            direct_write: start.direct_write.into(),
            retain: start.retain.into(),
            threshold: start.read_ahead_threshold.into(),
            ahead: start.read_ahead.into(),
        }
    }
}

impl Switches {
    pub(crate) fn get(&self) -> FileSettings {
        FileSettings {
            direct_read: self.direct_read.load(Ordering::Relaxed),
            direct_write: self.direct_write.load(Ordering::Relaxed),
            retain: self.retain.load(Ordering::Relaxed),
            read_ahead_threshold: self.threshold.load(Ordering::Relaxed),
            read_ahead: self.ahead.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set(&self, new: &FileSettings) {
        self.direct_read.store(new.direct_read, Ordering::Relaxed);
        self.direct_write.store(new.direct_write, Ordering::Relaxed);
        self.retain.store(new.retain, Ordering::Relaxed);
        self.threshold.store(new.read_ahead_threshold, Ordering::Relaxed);
        self.ahead.store(new.read_ahead, Ordering::Relaxed);
    }
}

/// What was done, and what waits.
struct Counters {
    hits: Tally,
    misses: Tally,
    read_ahead: Tally,
    read_ahead_hits: Tally,
    evicted: Tally,
    written_back: Tally,
    dirty: Tally,
}

/// A part of all pages, those of some chunks of each file: so that not everybody waits for one lock.
#[repr(align(128))]
struct Shard {
    queues: Mutex<Queues>,
    /// Goes on with each page that comes: the time that pages are used at.
    clock: AtomicU64,
}

/// A file with pages to be written, and since when.
type Waiting = (Instant, u64);

/// What all files share.
pub(crate) struct Cache {
    pub options: CacheOptions,
    /// Pages that are kept.
    budget: usize,
    counters: Counters,
    shards: Box<[Shard]>,
    frames: Frames,
    waiting: Mutex<VecDeque<Waiting>>,
}

/// A file whose lock is held, with its pages.
pub(crate) struct Held<'a> {
    pub nodes: &'a Nodes,
    pub node: &'a Node,
    pub file: &'a mut FileCache,
}

/// Memory of a page, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameNo(u32);

impl FrameNo {
    fn offset(self) -> usize {
        self.0 as usize * BLOCK
    }
}

/// The memory of all pages, and when each was used, if anybody wants to know.
struct Frames {
    memory: Region,
    stamps: Box<[AtomicU64]>,
}

impl Frames {
    fn stamp(&self, frame: FrameNo) -> u64 {
        self.stamps.get(frame.0 as usize).map_or(0, |stamp| stamp.load(Ordering::Relaxed))
    }

    fn set_stamp(&self, frame: FrameNo, now: u64) {
        if let Some(stamp) = self.stamps.get(frame.0 as usize) {
            stamp.store(now, Ordering::Relaxed);
        }
    }
}

/// What becomes of a page that was considered.
enum Verdict {
    Gone,
    Evicted(FrameNo),
    Again(Place),
}

impl Cache {
    /// # Errors
    /// [`Error::Device`] when there is not enough memory.
    pub(crate) fn new(options: CacheOptions) -> Result<Self> {
        /// Pages of a shard, at least.
        const SHARD_MIN: usize = 1024;
        /// Frames beyond what pages may have: for those of files that are in use.
        const BEYOND: usize = 1024;
        /// Pages that can have numbers.
        const PAGES_MAX: usize = 1 << 30;
        let budget = if options.policy == Policy::None { 0 } else { (options.bytes / BLOCK).min(PAGES_MAX) };
        let shards = match budget / SHARD_MIN {
            0 => 1,
            many => (many.next_power_of_two() / 2).clamp(1, 32),
        };
        let each = budget.div_ceil(shards);
        // Memory that nobody touches is not there: what is beyond costs nothing.
        let frames = if budget == 0 { 0 } else { 2 * each + BEYOND };
        let memory = Region::anonymous(frames.max(1) * shards * BLOCK)
            .map_err(|e| Error::Device(format!("a page cache of {} bytes: {e}", options.bytes)))?;
        let stamps = if options.policy == Policy::Lru { frames * shards } else { 0 };
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
        let shard = |nth: usize| {
            let own = (nth * frames) as u32..((nth + 1) * frames) as u32;
            Shard { queues: Mutex::new(Queues::new(options.policy, each, own)), clock: AtomicU64::new(0) }
        };
        Ok(Self {
            options,
            budget,
            counters,
            shards: (0..shards).map(shard).collect(),
            frames: Frames { memory, stamps: (0..stamps).map(|_| AtomicU64::new(0)).collect() },
            waiting: Mutex::default(),
        })
    }

    /// Nothing is kept.
    pub(crate) fn is_off(&self) -> bool {
        self.budget == 0
    }

    /// Pages that one request may bring without pushing out its own.
    pub(crate) fn request_pages(&self) -> u64 {
        (self.budget as u64 / 4).max(1)
    }

    pub(crate) fn statistics(&self) -> CacheStatistics {
        let of = |count: &Tally| count.total().max(0) as u64;
        let Counters { hits, misses, read_ahead, read_ahead_hits, evicted, written_back, dirty } =
            &self.counters;
        CacheStatistics {
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

    fn shard(&self, ino: u64, index: u64) -> &Shard {
        let hash = spread(spread(ino) ^ (index / CHUNK));
        &self.shards[hash as usize & (self.shards.len() - 1)]
    }

    /// Too many pages wait to be written.
    pub(crate) fn is_too_dirty(&self) -> bool {
        let dirty = self.counters.dirty.about().max(0) as usize;
        dirty * 100 > self.budget * self.options.dirty_percent.min(100)
    }

    /// So many pages were there that somebody has asked for.
    #[inline]
    pub(crate) fn count_hits(&self, pages: u64) {
        self.counters.hits.add(pages as i64);
    }

    /// So many pages were read because somebody has asked for them, and so many before.
    pub(crate) fn count_reads(&self, misses: u64, ahead: u64) {
        self.counters.misses.add(misses as i64);
        self.counters.read_ahead.add(ahead as i64);
    }

    #[inline]
    fn touch(&self, ino: u64, index: u64, word: &Word) {
        if word.warm() {
            self.counters.read_ahead_hits.add(1);
        }
        if self.options.policy == Policy::Lru {
            let now = self.shard(ino, index).clock.load(Ordering::Relaxed);
            self.frames.set_stamp(word.frame(), now);
        }
    }

    /// Copies bytes from `skip` of a page on. Returns whether it is there.
    #[inline]
    pub(crate) fn read(&self, ino: u64, file: &FileCache, index: u64, skip: usize, out: &mut [u8]) -> bool {
        let Some(word) = file.get(index) else { return false };
        self.touch(ino, index, word);
        debug_assert!(skip + out.len() <= BLOCK);
        self.frames.memory.read(word.frame().offset() + skip, out);
        true
    }

    /// Has a page hold bytes from `skip` on. Returns whether it is there.
    pub(crate) fn write(&self, ino: u64, file: &mut FileCache, index: u64, skip: usize, data: &[u8]) -> bool {
        let Some(word) = file.get(index) else { return false };
        self.touch(ino, index, word);
        debug_assert!(skip + data.len() <= BLOCK);
        self.frames.memory.write(word.frame().offset() + skip, data);
        true
    }

    /// Has a page, if it is there, hold zeros from `skip` on.
    pub(crate) fn clear_tail(&self, file: &mut FileCache, index: u64, skip: usize) {
        if let Some(word) = file.get(index) {
            self.frames.memory.fill(word.frame().offset() + skip, BLOCK - skip, 0);
        }
    }

    /// The memory of a page that is there, and where in it that is.
    pub(crate) fn memory(&self, file: &FileCache, index: u64) -> Option<(&Region, usize)> {
        Some((&self.frames.memory, file.get(index)?.frame().offset()))
    }

    /// A page of a file that has none there.
    ///
    /// # Errors
    /// ENOMEM when all memory is taken by pages that wait to be written, or whose files are busy.
    pub(crate) fn insert(&self, held: &mut Held<'_>, index: u64, page: &[u8]) -> Result<()> {
        let ino = held.node.ino;
        let shard = self.shard(ino, index);
        let mut queues = lock(&shard.queues);
        if queues.is_full() {
            self.make_room(&mut queues, held);
        }
        let frame = queues.take_frame().ok_or(Error::Posix(Errno::NOMEM))?;
        debug_assert_eq!(page.len(), BLOCK);
        self.frames.memory.write(frame.offset(), page);
        let now = shard.clock.fetch_add(1, Ordering::Relaxed) + 1;
        self.frames.set_stamp(frame, now);
        held.file.put(index, frame);
        queues.push_new(Entry { ino, index, frame }, now);
        if queues.is_to_be_swept() {
            queues.sweep(|entry| Self::is_there(held, entry));
        }
        Ok(())
    }

    /// Gives up a page or a few of those that were used least.
    fn make_room(&self, queues: &mut Queues, held: &mut Held<'_>) {
        const TRIES: usize = 64;
        for _ in 0..TRIES {
            let Some((entry, place)) = queues.pop() else { return };
            let verdict = if entry.ino == held.node.ino {
                self.judge(held.file, &entry, place)
            } else {
                match held.nodes.find(entry.ino) {
                    None => Verdict::Gone,
                    Some(node) => match node.state.try_write() {
                        Ok(mut state) => self.judge(&mut state.cache, &entry, place),
                        Err(_) => Verdict::Again(place),
                    },
                }
            };
            match verdict {
                Verdict::Gone => {}
                Verdict::Again(place) => queues.push(entry, place),
                Verdict::Evicted(frame) => {
                    self.counters.evicted.add(1);
                    queues.evicted(&entry, place);
                    queues.give_back(frame);
                    if !queues.is_full() {
                        return;
                    }
                }
            }
        }
    }

    fn judge(&self, file: &mut FileCache, entry: &Entry, place: Place) -> Verdict {
        let Some(word) = file.get(entry.index).filter(|word| word.frame() == entry.frame) else {
            return Verdict::Gone;
        };
        let stamp = self.frames.stamp(entry.frame);
        if word.is_dirty() {
            return Verdict::Again(place.later(stamp));
        }
        match place.judge(word, stamp) {
            Some(next) => Verdict::Again(next),
            None => file.take(entry.index).map_or(Verdict::Gone, Verdict::Evicted),
        }
    }

    fn is_there(held: &Held<'_>, entry: &Entry) -> bool {
        let has = |file: &FileCache| file.get(entry.index).is_some_and(|word| word.frame() == entry.frame);
        if entry.ino == held.node.ino {
            return has(held.file);
        }
        held.nodes.find(entry.ino).is_some_and(|node| match node.state.try_read() {
            Ok(state) => has(&state.cache),
            // Next time.
            Err(_) => true,
        })
    }

    /// A page has to be written, sooner or later.
    pub(crate) fn mark_dirty(&self, node: &Node, file: &mut FileCache, index: u64) {
        let is_first = file.dirty().is_empty();
        if file.mark_dirty(index) {
            self.counters.dirty.add(1);
            if is_first {
                self.wait_again(node);
            }
        }
    }

    /// Pages were written to the device, to blocks of their own.
    pub(crate) fn mark_written(&self, file: &mut FileCache, indexes: Range<u64>) {
        self.counters.written_back.add((indexes.end - indexes.start) as i64);
        self.counters.dirty.add(-file.mark_clean(indexes));
    }

    /// Gives up pages of a file, written or not. Returns how many blocks are set aside no longer.
    #[must_use]
    pub(crate) fn drop_range(&self, ino: u64, file: &mut FileCache, range: Range<u64>) -> u64 {
        let before = file.set_aside();
        for some in file.there(&range).chunk_by(|a, b| a / CHUNK == b / CHUNK) {
            let mut queues = lock(&self.shard(ino, some[0]).queues);
            for &index in some {
                self.counters.dirty.add(-file.mark_clean(index..index + 1));
                if let Some(frame) = file.take(index) {
                    queues.give_back(frame);
                }
            }
        }
        before - file.set_aside()
    }

    /// The file that has waited longest to be written, if it has waited for `age`.
    pub(crate) fn next_waiting(&self, nodes: &Nodes, age: Duration) -> Option<Arc<Node>> {
        let mut waiting = lock(&self.waiting);
        while let Some(&(since, ino)) = waiting.front() {
            if since.elapsed() < age {
                return None;
            }
            waiting.pop_front();
            if let Some(node) = nodes.find(ino) {
                node.is_waiting.store(false, Ordering::Release);
                return Some(node);
            }
        }
        None
    }

    /// A file has pages that wait to be written.
    pub(crate) fn wait_again(&self, node: &Node) {
        if !node.is_waiting.swap(true, Ordering::AcqRel) {
            lock(&self.waiting).push_back((Instant::now(), node.ino));
        }
    }
}

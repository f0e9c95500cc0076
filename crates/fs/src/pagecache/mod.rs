//! Pages of files in memory: by file and index, within a budget of all files together.
//!
//! The pages of a file are behind the lock of its inode: whoever reads shares it, whoever changes them has it
//! alone. What is common to all files is only the order in which pages are given up. Nobody waits for the
//! lock of another file to get room: a page whose file is busy stays a little longer.

mod ahead;
mod file;
mod policy;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use unvme::lock::lock;

use crate::error::{Error, Result};
use crate::layout::{BLOCK, Page};
use crate::node::Node;

pub(crate) use ahead::Ahead;
pub(crate) use file::{FileCache, Frame};
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

/// What all files count together.
#[derive(Default)]
pub(crate) struct Counters {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub read_ahead: AtomicU64,
    pub read_ahead_hits: AtomicU64,
    pub evicted: AtomicU64,
    pub written_back: AtomicU64,
    pub frames: AtomicUsize,
    pub dirty: AtomicUsize,
    /// Goes on with each page that comes: the time that pages are used at.
    pub clock: AtomicU64,
    /// Pages that were given up, and whose memory is there.
    pub spare: Mutex<Vec<Box<Frame>>>,
    /// How many pages there are at most, with those.
    pub frames_max: usize,
}

/// A file with pages to be written, and since when.
type Waiting = (Instant, Weak<Node>);

/// What all files share.
pub(crate) struct Cache {
    pub options: CacheOptions,
    /// Pages that are kept.
    budget: usize,
    pub counters: Arc<Counters>,
    queues: Mutex<Queues>,
    waiting: Mutex<std::collections::VecDeque<Waiting>>,
}

/// What becomes of a page that was considered.
enum Verdict {
    Gone,
    Evicted,
    Again(Place),
}

impl Cache {
    pub(crate) fn new(options: CacheOptions) -> Self {
        let budget = if options.policy == Policy::None { 0 } else { options.bytes / BLOCK };
        Self {
            options,
            budget,
            counters: Arc::new(Counters { frames_max: budget, ..Counters::default() }),
            queues: Mutex::new(Queues::new(options.policy, budget)),
            waiting: Mutex::default(),
        }
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
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counters = &self.counters;
        CacheStatistics {
            hits: of(&counters.hits),
            misses: of(&counters.misses),
            read_ahead: of(&counters.read_ahead),
            read_ahead_hits: of(&counters.read_ahead_hits),
            evicted: of(&counters.evicted),
            written_back: of(&counters.written_back),
            pages: counters.frames.load(Ordering::Relaxed) as u64,
            dirty: counters.dirty.load(Ordering::Relaxed) as u64,
        }
    }

    /// Too many pages wait to be written.
    pub(crate) fn is_too_dirty(&self) -> bool {
        self.counters.dirty.load(Ordering::Relaxed) * 100 > self.budget * self.options.dirty_percent.min(100)
    }

    /// A page of `node`, whose lock is held, and whose pages are `file`.
    pub(crate) fn insert(&self, node: &Arc<Node>, file: &mut FileCache, index: u64, page: &Page) {
        if self.counters.frames.load(Ordering::Relaxed) >= self.budget {
            self.make_room(node, file);
        }
        let now = self.counters.clock.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = Entry { node: Arc::downgrade(node), ino: node.ino, index, ticket: now };
        let spare = lock(&self.counters.spare).pop();
        file.put(index, Frame::new(spare, page, now));
        lock(&self.queues).push_new(entry, file);
    }

    /// Gives up a page or a few of those that were used least.
    fn make_room(&self, own: &Arc<Node>, file: &mut FileCache) {
        const TRIES: usize = 64;
        for _ in 0..TRIES {
            let Some((entry, place)) = lock(&self.queues).pop() else { return };
            let verdict = if std::ptr::eq(entry.node.as_ptr(), Arc::as_ptr(own)) {
                Self::judge(file, &entry, place)
            } else {
                match entry.node.upgrade() {
                    None => Verdict::Gone,
                    Some(node) => match node.state.try_write() {
                        Ok(mut state) => Self::judge(&mut state.cache, &entry, place),
                        Err(_) => Verdict::Again(place),
                    },
                }
            };
            match verdict {
                Verdict::Gone => {}
                Verdict::Again(place) => lock(&self.queues).push(entry, place),
                Verdict::Evicted => {
                    self.counters.evicted.fetch_add(1, Ordering::Relaxed);
                    lock(&self.queues).evicted(&entry, place);
                    if self.counters.frames.load(Ordering::Relaxed) < self.budget {
                        return;
                    }
                }
            }
        }
    }

    fn judge(file: &mut FileCache, entry: &Entry, place: Place) -> Verdict {
        let Some(frame) = file.get(entry.index).filter(|frame| frame.ticket == entry.ticket) else {
            return Verdict::Gone;
        };
        if frame.is_dirty {
            return Verdict::Again(place.later(frame.stamp()));
        }
        match place.judge(frame) {
            Some(next) => Verdict::Again(next),
            None => {
                file.take(entry.index);
                Verdict::Evicted
            }
        }
    }

    /// A page has to be written, sooner or later.
    pub(crate) fn mark_dirty(&self, node: &Arc<Node>, file: &mut FileCache, index: u64) {
        if file.mark_dirty(index) {
            self.wait_again(node);
        }
    }

    /// The file that has waited longest to be written, if it has waited for `age`.
    pub(crate) fn next_waiting(&self, age: Duration) -> Option<Arc<Node>> {
        let mut waiting = lock(&self.waiting);
        while let Some((since, node)) = waiting.front() {
            if since.elapsed() < age {
                return None;
            }
            let node = node.upgrade();
            waiting.pop_front();
            if let Some(node) = node {
                node.is_waiting.store(false, Ordering::Release);
                return Some(node);
            }
        }
        None
    }

    /// A file has pages that wait to be written.
    pub(crate) fn wait_again(&self, node: &Arc<Node>) {
        if !node.is_waiting.swap(true, Ordering::AcqRel) {
            lock(&self.waiting).push_back((Instant::now(), Arc::downgrade(node)));
        }
    }
}

//! Pages of files in memory: a [`unvme::cache`] whose owners are inodes.
//!
//! The pages of a file are behind the lock of its inode: whoever reads shares it, whoever changes them has it
//! alone. A page that has the cache's mark is one that blocks are set aside for: the file has none there yet.

mod ahead;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use unvme::Region;
use unvme::cache::{Found, Order, Own, Owners, ShownSize};
pub(crate) use unvme::cache::{Pages, Word};
use unvme::lock::lock;

use crate::error::{Error, Result};
use crate::layout::BLOCK;
use crate::node::{Node, Nodes};

pub(crate) use ahead::Ahead;

// A page is a block of the file system.
const _: () = assert!(unvme::cache::PAGE == BLOCK);

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

impl Policy {
    /// All of them, as they are typed.
    pub const NAMES: [&'static str; 3] = ["s3fifo", "lru", "none"];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::S3Fifo => "s3fifo",
            Self::Lru => "lru",
            Self::None => "none",
        }
    }

    /// The one that is typed so.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::S3Fifo, Self::Lru, Self::None].into_iter().find(|policy| policy.name() == name)
    }
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
    /// Pages are in memory that clients of a [server](crate::share::Server) read.
    pub is_shared: bool,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            policy: Policy::S3Fifo,
            dirty_percent: 40,
            dirty_age: Duration::from_secs(5),
            is_shared: false,
        }
    }
}

/// What the page cache has done since the mount.
pub use unvme::cache::Counts as CacheStatistics;

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

/// A file with pages to be written, and since when.
type Waiting = (Instant, u64);

/// What all files share.
pub(crate) struct Cache {
    pub options: CacheOptions,
    pages: unvme::cache::Cache,
    waiting: Mutex<VecDeque<Waiting>>,
}

/// A file whose lock is held, with its pages.
pub(crate) struct Held<'a> {
    pub nodes: &'a Nodes,
    pub node: &'a Node,
    pub file: &'a mut Pages,
}

impl Owners for Nodes {
    fn with<R>(&self, owner: u64, act: impl FnOnce(&mut Pages) -> R) -> Found<R> {
        let Some(node) = self.find(owner) else { return Found::Gone };
        match node.state.try_write() {
            Ok(mut state) => Found::There(act(&mut state.cache)),
            Err(_) => Found::Busy,
        }
    }
}

impl Cache {
    /// # Errors
    /// [`Error::Device`] when there is not enough memory.
    pub(crate) fn new(options: CacheOptions) -> Result<Self> {
        let (bytes, order) = match options.policy {
            Policy::S3Fifo => (options.bytes, Order::S3Fifo),
            Policy::Lru => (options.bytes, Order::Lru),
            Policy::None => (0, Order::S3Fifo),
        };
        let make = if options.is_shared && bytes > 0 {
            unvme::cache::Cache::shared
        } else {
            unvme::cache::Cache::new
        };
        let pages = make(bytes, order)
            .map_err(|e| Error::Device(format!("a page cache of {} bytes: {e}", options.bytes)))?;
        Ok(Self { options, pages, waiting: Mutex::default() })
    }

    /// What other processes need to read pages, if they can.
    pub(crate) fn shown(&self) -> Option<(ShownSize, [BorrowedFd<'_>; 3])> {
        self.pages.shown()
    }

    /// Nothing is kept.
    pub(crate) fn is_off(&self) -> bool {
        self.pages.budget() == 0
    }

    /// Pages that one request may bring without pushing out its own.
    pub(crate) fn request_pages(&self) -> u64 {
        self.pages.request_pages()
    }

    /// See [`unvme::cache::Cache::prepare`].
    pub(crate) fn prepare(&self) {
        self.pages.prepare();
    }

    pub(crate) fn statistics(&self) -> CacheStatistics {
        self.pages.counts()
    }

    /// Too many pages wait to be written.
    pub(crate) fn is_too_dirty(&self) -> bool {
        self.pages.dirty_about() * 100 > self.pages.budget() * self.options.dirty_percent.min(100)
    }

    /// So many pages were there that somebody has asked for.
    #[inline]
    pub(crate) fn count_hits(&self, pages: u64) {
        self.pages.count_hits(pages);
    }

    /// So many pages were read because somebody has asked for them, and so many before.
    pub(crate) fn count_reads(&self, misses: u64, ahead: u64) {
        self.pages.count_reads(misses, ahead);
    }

    /// Copies bytes from `skip` of a page on. Returns whether it is there.
    #[inline]
    pub(crate) fn read(&self, ino: u64, file: &Pages, index: u64, skip: usize, out: &mut [u8]) -> bool {
        self.pages.read(ino, file, index, skip, out)
    }

    /// Has a page hold bytes from `skip` on. Returns whether it is there.
    #[inline]
    pub(crate) fn write(&self, ino: u64, file: &mut Pages, index: u64, skip: usize, data: &[u8]) -> bool {
        self.pages.write(ino, file, index, skip, data)
    }

    /// Has a page, if it is there, hold zeros from `skip` on.
    pub(crate) fn clear_tail(&self, file: &mut Pages, index: u64, skip: usize) {
        self.pages.clear_tail(file, index, skip);
    }

    /// The memory of a page that is there, and where in it that is.
    pub(crate) fn memory(&self, file: &Pages, index: u64) -> Option<(&Region, usize)> {
        self.pages.memory(file, index)
    }

    /// A page of a file that has none there.
    ///
    /// # Errors
    /// ENOMEM when all memory is taken by pages that wait to be written, or whose files are busy.
    pub(crate) fn insert(&self, held: &mut Held<'_>, index: u64, page: &[u8]) -> Result<()> {
        let mut own = Own { others: held.nodes, owner: held.node.ino, pages: &mut *held.file };
        self.pages.insert(&mut own, index, page).map_err(|_| Error::Posix(Errno::NOMEM))
    }

    /// A page has to be written, sooner or later.
    pub(crate) fn mark_dirty(&self, node: &Node, file: &mut Pages, index: u64) {
        let is_first = file.dirty().is_empty();
        if self.pages.mark_dirty(file, index) && is_first {
            self.wait_again(node);
        }
    }

    /// Pages were written to the device, to blocks of their own.
    pub(crate) fn mark_written(&self, file: &mut Pages, indexes: Range<u64>) {
        self.pages.mark_written(file, indexes);
    }

    /// Gives up pages of a file, written or not. Returns how many blocks are set aside no longer.
    #[must_use]
    pub(crate) fn drop_range(&self, ino: u64, file: &mut Pages, range: Range<u64>) -> u64 {
        self.pages.drop_range(ino, file, range)
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

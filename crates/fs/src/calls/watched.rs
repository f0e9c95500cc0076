//! Files whose pages other processes read by themselves: how long each is, in memory that they map.
//!
//! A place has an inode number, a size, and a number that goes on when it is given to another file. Who has
//! changed a file writes its size down before it says that it is done; whoever is the last to do so sees what
//! everybody has done. A file that is [mapped](super::maps) has no size there: it is read by asking.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use rustix::fs::OFlags;
use rustix::io::Errno;
use unvme::Region;
use unvme::lock::{lock, read, write};

use super::OpenId;
use super::process::Process;
use crate::error::{Error, Result};
use crate::vnode::Vnode;

/// Files that can be watched at a time: others are read by asking.
const PLACES: usize = 1 << 16;
/// Bytes of a place: inode number, size, how often it was given away.
const PLACE_BYTES: usize = 32;
const SIZE: usize = 8;
/// Bytes of all of them.
pub(crate) const PLACES_BYTES: usize = PLACES * PLACE_BYTES;
/// In place of a size: ask.
const ASK: u64 = u64::MAX;

/// A file that is watched.
struct Watch {
    node: Vnode,
    place: usize,
    /// Processes and their open files, changed under the lock of all.
    holders: AtomicUsize,
    /// How many are about to cut it: nobody is to see what they have cleared, at the size it had before.
    cutting: Mutex<usize>,
}

/// All files that are watched.
pub(super) struct Watches {
    region: Region,
    files: RwLock<HashMap<u64, Arc<Watch>>>,
    free: Mutex<Vec<usize>>,
}

/// What a process watches, by what it has open.
pub(super) type Watching = Mutex<HashMap<OpenId, u64>>;

impl Watches {
    pub(super) fn new() -> Result<Self> {
        let region = Region::published("unvme-sizes", PLACES_BYTES);
        let region = region.map_err(|e| Error::Device(e.to_string()))?;
        Ok(Self { region, files: RwLock::default(), free: Mutex::new((0..PLACES).rev().collect()) })
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.region.backing()?.0)
    }

    /// Writes a file's size down, after it may have changed; `is_mapped` says whether it is mapped now.
    pub(super) fn refresh(&self, ino: u64, is_mapped: impl Fn() -> bool) {
        let Some(watch) = read(&self.files).get(&ino).cloned() else { return };
        let cutting = lock(&watch.cutting);
        let size = if *cutting > 0 || is_mapped() { ASK } else { watch.node.attributes().size };
        if watch.holders.load(Ordering::Relaxed) > 0 {
            self.region.store_u64(watch.place * PLACE_BYTES + SIZE, size, Ordering::Release);
        }
    }

    /// A file is about to be cut. Returns whether anybody watches it: then it says when it was.
    pub(super) fn cut(&self, ino: u64) -> bool {
        let Some(watch) = read(&self.files).get(&ino).cloned() else { return false };
        let mut cutting = lock(&watch.cutting);
        *cutting += 1;
        if watch.holders.load(Ordering::Relaxed) > 0 {
            self.region.store_u64(watch.place * PLACE_BYTES + SIZE, ASK, Ordering::SeqCst);
        }
        true
    }

    /// It was, or could not be.
    pub(super) fn was_cut(&self, ino: u64) {
        if let Some(watch) = read(&self.files).get(&ino) {
            let mut cutting = lock(&watch.cutting);
            *cutting = cutting.saturating_sub(1);
        }
    }

    fn add(&self, node: &Vnode) -> Result<usize> {
        let mut files = write(&self.files);
        if let Some(watch) = files.get(&node.ino()) {
            watch.holders.fetch_add(1, Ordering::Relaxed);
            return Ok(watch.place);
        }
        let place = lock(&self.free).pop().ok_or(Error::Posix(Errno::NFILE))?;
        self.give(place, node.ino());
        let (holders, cutting) = (AtomicUsize::new(1), Mutex::default());
        files.insert(node.ino(), Arc::new(Watch { node: node.clone(), place, holders, cutting }));
        Ok(place)
    }

    /// A place is another file's. Who still looks there for the one before sees that before he believes a
    /// size.
    fn give(&self, place: usize, ino: u64) {
        let [_, _, given] = self.region.words::<3>(place * PLACE_BYTES);
        given.fetch_add(1, Ordering::SeqCst);
        self.region.store_u64(place * PLACE_BYTES + SIZE, ASK, Ordering::SeqCst);
        self.region.store_u64(place * PLACE_BYTES, ino, Ordering::SeqCst);
    }

    fn release(&self, ino: u64) {
        let mut files = write(&self.files);
        let Some(watch) = files.get(&ino) else { return };
        if watch.holders.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let Some(watch) = files.remove(&ino) else { return };
        drop(files);
        let alone = lock(&watch.cutting);
        self.give(watch.place, 0);
        lock(&self.free).push(watch.place);
        drop(alone);
    }
}

impl Process {
    /// An open file is to be read without asking: the place where its size is. It lasts until the file is
    /// closed.
    pub(crate) fn watch(&self, open: OpenId) -> Result<(u64, usize)> {
        let watches = self.watches().ok_or(Error::Posix(Errno::OPNOTSUPP))?;
        let node = self.open_file(open, OFlags::RDONLY)?;
        let mut watching = lock(&self.watching);
        let is_new = watching.insert(open, node.ino()).is_none();
        let place = watches.add(&node)?;
        if !is_new {
            watches.release(node.ino());
        }
        drop(watching);
        self.refresh(node.ino());
        Ok((node.ino(), place))
    }

    pub(super) fn forget_watch(&self, open: OpenId) {
        if let (Some(ino), Some(watches)) = (lock(&self.watching).remove(&open), self.watches()) {
            watches.release(ino);
        }
    }

    pub(super) fn forget_watches(&self) {
        let all: Vec<OpenId> = lock(&self.watching).keys().copied().collect();
        all.into_iter().for_each(|open| self.forget_watch(open));
    }

    /// Writes a file's size down for those who watch it.
    fn refresh(&self, ino: u64) {
        self.maps().refresh(ino);
    }
}

/// The sizes of a server's files.
#[derive(Debug)]
pub(crate) struct Sizes(Region);

impl Sizes {
    pub(crate) fn open(fd: BorrowedFd<'_>) -> Result<Self> {
        let region = Region::sealed(fd, PLACES_BYTES, false);
        Ok(Self(region.map_err(|e| Error::Device(e.to_string()))?))
    }

    /// Replaces the mapping by private zeroes: see [`Region::detach`].
    pub(crate) fn detach(&self) -> Result<()> {
        self.0.detach().map_err(|e| Error::Device(e.to_string()))
    }

    /// How long a file is, if it can be read without asking.
    #[inline]
    pub(crate) fn of(&self, ino: u64, place: usize) -> Option<u64> {
        let [whose, size, given] = self.0.words::<3>(place % PLACES * PLACE_BYTES);
        let before = given.load(Ordering::Acquire);
        if whose.load(Ordering::Acquire) != ino {
            return None;
        }
        let size = size.load(Ordering::Acquire);
        // The place was not given to another file in between.
        (size != ASK && given.load(Ordering::Relaxed) == before).then_some(size)
    }
}

//! Files that programs have mapped shared (`mmap`).
//!
//! While a file is mapped, the content of its mapped ranges is in [memory](super::memory) of its own, whose
//! descriptor programs map: nothing reports what they store there. So reads and writes go through that memory
//! as well, and what differs from the file is written back to it: by `msync`, `fsync`, every few seconds, and
//! when the last mapping ends. The file's size and its times are always its own.
//!
//! Loading and writing back hold the lock of a file for one chunk and then leave it to others, so that only
//! the thread that does it is busy for long.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use unvme::lock::{lock, read, write};

use super::memory::{Buffers, FD_MIN, Memory, pages_of};
use super::process::{Process, Processes};
use super::ranges::RangeSet;
use super::watched::Watches;
use super::{OpenId, Request};
use crate::error::{Error, Result};
use crate::stripe::Stripes;
use crate::vnode::Vnode;

/// Mapped bytes from which on calls on a file are long ones: see [`Process::is_long`].
const LARGE: u64 = 8 << 20;
/// How long a long call leaves the lock of a mapped file to others between two chunks.
const PAUSE: Duration = Duration::from_micros(100);

/// A file that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Inode number: what the mapping is called from now on, as it stays when the file is closed.
    pub ino: u64,
    /// Bytes of the file.
    pub size: u64,
}

/// A file that is mapped.
struct Map {
    node: Vnode,
    /// What programs map; see [`super::memory`].
    fd: Arc<OwnedFd>,
    /// Mappings, changed under the lock of all maps.
    holders: AtomicUsize,
    /// Mappings that have ended, changed under the lock of all maps.
    ended: AtomicUsize,
    /// What is loaded: `None` before the memory has its size, and after the last mapping has ended. Its
    /// holder may wait for the device, but not for longer than one chunk takes.
    loaded: Mutex<Option<RangeSet>>,
    /// Threads that wait for `loaded`, or are about to.
    waiting: AtomicUsize,
    /// Programs may store to the memory: it is to be compared with the file.
    is_stored_to: AtomicBool,
    /// More than [`LARGE`] bytes are mapped.
    is_large: AtomicBool,
}

/// All files that are mapped.
#[derive(Default)]
pub(super) struct Maps {
    maps: RwLock<HashMap<u64, Arc<Map>>>,
    count: AtomicUsize,
    /// Files that are large: most of the time none is.
    large: AtomicUsize,
    /// Held by those who change a file that is not mapped, on each CPU: who maps one waits for them.
    changing: Stripes<RwLock<()>>,
    /// Whose sizes others look at; none when nobody does.
    pub(super) watches: OnceLock<Watches>,
}

/// What a process has mapped: how often, and whether it may store there.
pub(super) type Held = Mutex<HashMap<u64, (usize, bool)>>;

/// A file that may be changed.
enum Entered<'a> {
    /// It is not mapped, and will not be for as long as this is held.
    Plain(RwLockReadGuard<'a, ()>),
    Mapped(Arc<Map>),
}

impl Maps {
    /// Whether any file is mapped.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    fn find(&self, ino: u64) -> Option<Arc<Map>> {
        if !self.is_any() {
            return None;
        }
        read(&self.maps).get(&ino).cloned()
    }

    fn enter(&self, ino: u64) -> Entered<'_> {
        let plain = read(self.changing.own());
        match self.find(ino) {
            None => Entered::Plain(plain),
            Some(map) => Entered::Mapped(map),
        }
    }

    /// Changes a file by `act`, which may write up to byte `end`, and then its memory, if it is mapped, by
    /// `mirror`.
    pub(super) fn change<R>(
        &self,
        node: &Vnode,
        end: u64,
        act: impl FnOnce() -> Result<R>,
        mirror: impl FnOnce(&Memory<'_>, &R) -> Result<()>,
    ) -> Result<R> {
        let done = self.change_data(node, end, act, mirror);
        self.refresh(node.ino());
        done
    }

    /// Cuts a file, or has it be longer.
    pub(super) fn resize(&self, node: &Vnode, size: u64) -> Result<()> {
        let is_watched = self.watches.get().is_some_and(|watches| watches.cut(node.ino()));
        let done = self.change_data(node, size, || node.truncate(size), |_, ()| Ok(()));
        if is_watched && let Some(watches) = self.watches.get() {
            watches.was_cut(node.ino());
        }
        self.refresh(node.ino());
        done
    }

    /// A file has another size, perhaps, or is mapped, or not any more.
    pub(super) fn refresh(&self, ino: u64) {
        if let Some(watches) = self.watches.get() {
            watches.refresh(ino, || self.find(ino).is_some());
        }
    }

    fn change_data<R>(
        &self,
        node: &Vnode,
        end: u64,
        act: impl FnOnce() -> Result<R>,
        mirror: impl FnOnce(&Memory<'_>, &R) -> Result<()>,
    ) -> Result<R> {
        loop {
            let map = match self.enter(node.ino()) {
                Entered::Plain(_held) => return act(),
                Entered::Mapped(map) => map,
            };
            let mut loaded = map.lock();
            if loaded.is_none() && !self.is_current(&map) {
                continue;
            }
            let Some(loaded) = &mut *loaded else { return act() };
            let memory = Memory { node: &map.node, fd: &map.fd, loaded };
            let before = map.node.attributes().size;
            if end > before {
                // Bytes that programs have stored beyond the end are no content of a file that grows.
                memory.clear(before..u64::MAX)?;
            }
            let done = act()?;
            if map.node.attributes().size != before {
                memory.set_size()?;
            }
            mirror(&memory, &done)?;
            return Ok(done);
        }
    }

    /// Whether this is how its file is mapped: another one may be by the time that its lock is had.
    fn is_current(&self, map: &Arc<Map>) -> bool {
        self.find(map.node.ino()).is_some_and(|found| Arc::ptr_eq(&found, map))
    }

    /// Reads a file.
    pub(super) fn read_at(&self, node: &Vnode, offset: u64, out: &mut [u8]) -> Result<usize> {
        loop {
            let Some(map) = self.find(node.ino()) else { return node.read_at(offset, out) };
            let mut loaded = map.lock();
            match &mut *loaded {
                Some(loaded) => return Memory { node, fd: &map.fd, loaded }.read_at(offset, out),
                None if self.is_current(&map) => return node.read_at(offset, out),
                None => {}
            }
        }
    }

    /// What was stored to a file's memory is in the file from here on.
    pub(super) fn write_back(&self, ino: u64) -> Result<()> {
        let Some(map) = self.find(ino) else { return Ok(()) };
        map.write_back(&|| true)
    }

    fn store_to(&self, ino: u64) {
        if let Some(map) = self.find(ino) {
            map.is_stored_to.store(true, Ordering::SeqCst);
        }
    }

    /// As [`Maps::write_back`], of all files, as long as it `goes_on`.
    pub(super) fn write_back_all(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        if !self.is_any() {
            return Ok(());
        }
        let maps: Vec<_> = read(&self.maps).values().cloned().collect();
        let done: Vec<_> = maps.iter().map(|map| map.write_back(goes_on)).collect();
        done.into_iter().collect()
    }

    /// Whether calls that write a mapped file back, or load it, are long ones.
    fn is_large(&self, ino: u64) -> bool {
        self.large.load(Ordering::Relaxed) > 0
            && self
                .find(ino)
                .is_some_and(|map| map.is_large.load(Ordering::Relaxed) && map.node.attributes().size > LARGE)
    }

    fn add(&self, node: &Vnode, is_stored_to: bool) -> Result<u64> {
        let map = {
            let mut maps = write(&self.maps);
            let map = match maps.entry(node.ino()) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(free) => {
                    let fd = super::memory::create()?;
                    self.count.fetch_add(1, Ordering::AcqRel);
                    free.insert(Arc::new(Map::new(node.clone(), fd)))
                }
            };
            map.holders.fetch_add(1, Ordering::Relaxed);
            map.is_stored_to.fetch_or(is_stored_to, Ordering::SeqCst);
            Arc::clone(map)
        };
        // Those who found that it was not mapped are done; from here on everybody finds that it is.
        self.changing.iter().for_each(|stripe| drop(write(stripe)));
        let mut loaded = map.lock();
        if loaded.is_none() {
            let memory = Memory { node, fd: &map.fd, loaded: loaded.get_or_insert_default() };
            if let Err(e) = memory.set_size() {
                *loaded = None;
                drop(loaded);
                self.release(node.ino())?;
                return Err(e);
            }
        }
        drop(loaded);
        self.refresh(node.ino());
        Ok(node.attributes().size)
    }

    /// Loads a range of a file that the caller has mapped, as long as it `goes_on`.
    fn load(&self, ino: u64, range: &Range<u64>, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let map = self.find(ino).ok_or(Error::Posix(Errno::INVAL))?;
        let range = pages_of(range);
        let mut at = range.start;
        let is_large = range.end.saturating_sub(at) > LARGE;
        while goes_on() {
            let next = {
                let mut loaded = map.lock();
                let loaded = loaded.as_mut().ok_or(Error::Posix(Errno::INVAL))?;
                // Under the lock, as the end of the last mapping counts it out.
                if is_large && !map.is_large.swap(true, Ordering::Relaxed) {
                    self.large.fetch_add(1, Ordering::Relaxed);
                }
                Memory { node: &map.node, fd: &map.fd, loaded }.load_some(at..range.end)?
            };
            match next {
                Some(next) => at = next,
                None => return Ok(()),
            }
            map.pause();
        }
        Err(Errno::IO.into())
    }

    fn hold_again(&self, ino: u64, times: usize) {
        if let Some(map) = write(&self.maps).get(&ino) {
            map.holders.fetch_add(times, Ordering::Relaxed);
        }
    }

    /// A mapping has ended. The last one to end writes the file back, and again if another mapping came and
    /// ended in the meantime.
    fn release(&self, ino: u64) -> Result<()> {
        let Some(map) = self.find(ino) else { return Ok(()) };
        let mut done = Ok(());
        let mut written = None;
        {
            let _maps = write(&self.maps);
            map.ended.fetch_add(1, Ordering::Relaxed);
        }
        loop {
            let mut loaded = map.lock();
            let mut maps = write(&self.maps);
            let ended = map.ended.load(Ordering::Relaxed);
            if map.holders.load(Ordering::Relaxed) > 1 || written == Some(ended) {
                if map.holders.fetch_sub(1, Ordering::Relaxed) == 1 {
                    maps.remove(&ino);
                    self.count.fetch_sub(1, Ordering::AcqRel);
                    self.large.fetch_sub(map.is_large.load(Ordering::Relaxed).into(), Ordering::Relaxed);
                    *loaded = None;
                }
                break;
            }
            drop((maps, loaded));
            written = Some(ended);
            done = done.and(map.write_back(&|| true));
        }
        self.refresh(ino);
        done
    }
}

impl Map {
    fn new(node: Vnode, fd: Arc<OwnedFd>) -> Self {
        let [holders, ended, waiting] = [0; 3].map(AtomicUsize::new);
        let [is_stored_to, is_large] = [false; 2].map(AtomicBool::new);
        Self { node, fd, holders, ended, loaded: Mutex::default(), waiting, is_stored_to, is_large }
    }

    fn lock(&self) -> MutexGuard<'_, Option<RangeSet>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let loaded = lock(&self.loaded);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        loaded
    }

    /// Lets other threads have the lock between two chunks: the mutex is not fair.
    fn pause(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(PAUSE);
        }
    }

    /// Writes back what was stored before the call, chunk by chunk, as long as it `goes_on`. Pages for which
    /// the device has no space do not keep others from being written.
    fn write_back(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        if !self.is_stored_to.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut buffers = Buffers::new();
        let (mut at, mut done) = (0, Ok(()));
        while goes_on() {
            let is_more = {
                let mut loaded = self.lock();
                let Some(loaded) = &mut *loaded else { break };
                let memory = Memory { node: &self.node, fd: &self.fd, loaded };
                memory.write_back_some(&mut at, &mut buffers)
            };
            match is_more {
                Ok(true) => {}
                Ok(false) => break,
                Err(e @ Error::Posix(Errno::NOSPC)) => done = Err(e),
                Err(e) => return Err(e),
            }
            self.pause();
        }
        done
    }
}

impl Process {
    /// An open file is mapped shared: from here on it is in memory, which [`Process::map_memory`] gives. Each
    /// call is ended by one of [`Process::unmap`], or with the process. What is stored there is in the file
    /// sooner or later when `is_stored_to` is set, or since [`Process::store_to`] was called.
    ///
    /// # Errors
    /// EBADF, EACCES when it is not open for reading, or for writing when it is stored to; ENODEV when it is
    /// no file; ENOSPC, ENOMEM when there is not enough memory.
    pub fn map(&self, open: OpenId, is_stored_to: bool) -> Result<Mapped> {
        self.map_range(open, is_stored_to, 0..u64::MAX)
    }

    /// As [`Process::map`], of the pages that a range of bytes is in, which may go beyond the end of the
    /// file: they alone have the file's content in memory. Holes cost neither time nor memory.
    ///
    /// # Errors
    /// As there.
    pub fn map_range(&self, open: OpenId, is_stored_to: bool, range: Range<u64>) -> Result<Mapped> {
        self.map_while(open, is_stored_to, &range, &|| true)
    }

    pub(crate) fn map_while(
        &self,
        open: OpenId,
        is_stored_to: bool,
        range: &Range<u64>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Mapped> {
        let node = self.file(open)?;
        if node.file_type() != FileType::RegularFile {
            return Err(Errno::NODEV.into());
        }
        self.open_file(open, OFlags::RDONLY).map_err(|_| Errno::ACCESS)?;
        let is_writable = self.open_file(open, OFlags::WRONLY).is_ok();
        if is_stored_to && !is_writable {
            return Err(Errno::ACCESS.into());
        }
        let ino = node.ino();
        let size = self.maps().add(&node, is_stored_to)?;
        {
            let mut mapped = lock(&self.mapped);
            let held = mapped.entry(ino).or_insert((0, false));
            held.0 += 1;
            held.1 |= is_writable;
        }
        if let Err(e) = self.load_while(ino, range, goes_on) {
            // The first error is the caller's; a process that has ended has no mapping any more.
            let _ = self.unmap(ino);
            return Err(e);
        }
        Ok(Mapped { ino, size })
    }

    /// More of a mapped file is mapped, as by `mremap`: the pages that a range of bytes is in.
    ///
    /// # Errors
    /// EINVAL when it is not mapped; ENOSPC, ENOMEM when there is not enough memory; those of the device.
    pub fn load_map(&self, ino: u64, range: Range<u64>) -> Result<()> {
        self.load_while(ino, &range, &|| true)
    }

    pub(crate) fn load_while(&self, ino: u64, range: &Range<u64>, goes_on: &dyn Fn() -> bool) -> Result<()> {
        if !lock(&self.mapped).contains_key(&ino) {
            return Err(Errno::INVAL.into());
        }
        self.maps().load(ino, range, goes_on)
    }

    /// Whether a mapping of an open file may take long to make: it has much to load.
    pub(crate) fn is_long_to_map(&self, open: OpenId, range: &Range<u64>) -> bool {
        range.end.saturating_sub(range.start) > LARGE
            && self.file(open).is_ok_and(|node| node.attributes().size > LARGE)
    }

    /// Whether a call on a mapped file, by its inode number, may take long.
    pub(crate) fn is_long_on(&self, ino: u64) -> bool {
        self.maps().is_large(ino)
    }

    /// Whether a request may take long because it writes a mapped file back first.
    pub(crate) fn is_long(&self, request: &Request<'_>) -> bool {
        if self.maps().large.load(Ordering::Relaxed) == 0 {
            return false;
        }
        match request {
            Request::Sync { open, .. }
            | Request::WriteBack { open }
            | Request::Seek { open, .. }
            | Request::Copy { open, .. } => self.file(*open).is_ok_and(|node| self.is_long_on(node.ino())),
            Request::ChangeMode { at, .. }
            | Request::ChangeOwner { at, .. }
            | Request::ChangeTimes { at, .. } => self.ino_of(at).is_some_and(|ino| self.is_long_on(ino)),
            Request::SyncAll => true,
            _ => false,
        }
    }

    /// The memory of a file that this process has mapped, from the file's first byte on. It may be stored to
    /// when the file was open for writing.
    ///
    /// # Errors
    /// EINVAL when it is not mapped.
    pub fn map_memory(&self, ino: u64) -> Result<OwnedFd> {
        let is_writable = lock(&self.mapped).get(&ino).ok_or(Error::Posix(Errno::INVAL))?.1;
        let map = self.maps().find(ino).ok_or(Error::Posix(Errno::INVAL))?;
        if is_writable {
            return Ok(rustix::io::fcntl_dupfd_cloexec(&map.fd, FD_MIN).or_else(|_| fcntl_any(&map.fd))?);
        }
        let path = format!("/proc/self/fd/{}", map.fd.as_raw_fd());
        Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// A file that is mapped will be stored to: `mprotect`.
    ///
    /// # Errors
    /// EINVAL when it is not mapped; EACCES when it was not open for writing.
    pub fn store_to(&self, ino: u64) -> Result<()> {
        if !lock(&self.mapped).get(&ino).ok_or(Error::Posix(Errno::INVAL))?.1 {
            return Err(Errno::ACCESS.into());
        }
        self.maps().store_to(ino);
        Ok(())
    }

    /// What was stored to a mapped file is in the file from here on: `msync`. [`super::Request::Sync`] makes
    /// it durable, and does this first.
    ///
    /// # Errors
    /// EINVAL when it is not mapped; ENOSPC; those of the device.
    pub fn sync_map(&self, ino: u64) -> Result<()> {
        if !lock(&self.mapped).contains_key(&ino) {
            return Err(Errno::INVAL.into());
        }
        self.maps().write_back(ino)
    }

    /// A mapping has ended: `munmap`.
    ///
    /// # Errors
    /// EINVAL when it is not mapped; as [`Process::sync_map`] when it was the last one.
    pub fn unmap(&self, ino: u64) -> Result<()> {
        let mut mapped = lock(&self.mapped);
        let held = mapped.get_mut(&ino).ok_or(Error::Posix(Errno::INVAL))?;
        held.0 -= 1;
        if held.0 == 0 {
            mapped.remove(&ino);
        }
        drop(mapped);
        self.maps().release(ino)
    }

    /// All mappings of this process have ended: `execve`, or the end. When what is returned is dropped, they
    /// are written back, which may wait for the device.
    pub(crate) fn forget_maps(&self) -> EndedMaps {
        EndedMaps { all: Arc::clone(self.processes()), ended: std::mem::take(&mut *lock(&self.mapped)) }
    }

    /// A child has the same mappings.
    pub(super) fn copy_maps(&self, child: &Self) {
        let mapped = lock(&self.mapped).clone();
        for (&ino, &(times, _)) in &mapped {
            self.maps().hold_again(ino, times);
        }
        *lock(&child.mapped) = mapped;
    }
}

/// Mappings that have ended, and are still to be written back.
pub(crate) struct EndedMaps {
    all: Arc<Processes>,
    ended: HashMap<u64, (usize, bool)>,
}

impl Drop for EndedMaps {
    fn drop(&mut self) {
        for (ino, (times, _)) in std::mem::take(&mut self.ended) {
            for _ in 0..times {
                if let Err(e) = self.all.maps.release(ino) {
                    tracing::error!("a mapped file, inode {ino}, could not be written: {e}");
                }
            }
        }
    }
}

fn fcntl_any(fd: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0)
}

#[cfg(test)]
impl Processes {
    /// Does something while a mapped file is, as far as others can tell, written back.
    pub(crate) fn while_written_back(&self, ino: u64, act: impl FnOnce()) {
        let map = self.maps.find(ino).expect("it is mapped");
        let _loaded = lock(&map.loaded);
        act();
    }
}

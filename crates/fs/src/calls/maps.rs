//! Files that programs have mapped shared (`mmap`).
//!
//! While a file is mapped its data are in memory of their own, whose descriptor programs map: what they store
//! there nobody is told of. So everything that is read or written meanwhile goes by way of that memory, and
//! what differs from the file is written to it: by `msync`, `fsync`, every now and then, and when the last
//! mapping ends. The file's size and its times are always its own.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard};

use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use unvme::lock::{lock, read, write};

use super::OpenId;
use super::process::{Process, Processes};
use super::watched::Watches;
use crate::error::{Error, Result};
use crate::stripe::Stripes;
use crate::vnode::Vnode;

/// Compared, and brought into memory, at a time.
const CHUNK: usize = 256 << 10;
/// Written at least.
const PAGE: usize = 4096;
/// Descriptors are moved out of the way of those of programs, which expect small numbers in a row.
const FD_MIN: i32 = 512;

/// A file that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Inode number: what the mapping is called from now on, as it stays when the file is closed.
    pub ino: u64,
    /// Bytes of the file.
    pub size: u64,
}

/// A file's memory.
struct Map {
    node: Vnode,
    /// Mappings, changed under the lock of all maps.
    holders: AtomicUsize,
    /// None before the data are in it, and when nobody has it mapped any more. Whoever has it may wait for
    /// the device.
    memory: Mutex<Option<Arc<OwnedFd>>>,
    /// The same, for those who do not wait, from when the data are in it on.
    loaded: OnceLock<Arc<OwnedFd>>,
    /// Somebody may store to it: it is to be compared with the file.
    is_stored_to: AtomicBool,
}

/// All files that are mapped.
#[derive(Default)]
pub(super) struct Maps {
    maps: RwLock<HashMap<u64, Arc<Map>>>,
    count: AtomicUsize,
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

    /// Changes a file by `act`, and then its memory, if it is mapped, by `mirror`.
    pub(super) fn change<R>(
        &self,
        node: &Vnode,
        act: impl FnOnce() -> Result<R>,
        mirror: impl FnOnce(&Memory<'_>, &R) -> Result<()>,
    ) -> Result<R> {
        let done = self.change_data(node, act, mirror);
        self.refresh(node.ino());
        done
    }

    /// Cuts a file, or has it be longer.
    pub(super) fn resize(&self, node: &Vnode, size: u64) -> Result<()> {
        let is_watched = self.watches.get().is_some_and(|watches| watches.cut(node.ino()));
        let done = self.change_data(node, || node.truncate(size), |memory, ()| memory.resize());
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
        act: impl FnOnce() -> Result<R>,
        mirror: impl FnOnce(&Memory<'_>, &R) -> Result<()>,
    ) -> Result<R> {
        loop {
            let map = match self.enter(node.ino()) {
                Entered::Plain(_held) => return act(),
                Entered::Mapped(map) => map,
            };
            let memory = lock(&map.memory);
            if memory.is_none() && !self.is_current(&map) {
                continue;
            }
            let done = act()?;
            if let Some(fd) = &*memory {
                mirror(&Memory { node: &map.node, fd }, &done)?;
            }
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
            let memory = lock(&map.memory);
            match &*memory {
                Some(fd) => return Memory { node, fd }.read_at(offset, out),
                None if self.is_current(&map) => return node.read_at(offset, out),
                None => {}
            }
        }
    }

    /// What was stored to a file's memory is in the file from here on.
    pub(super) fn write_back(&self, ino: u64) -> Result<()> {
        let Some(map) = self.find(ino) else { return Ok(()) };
        map.write_back_if_stored_to()
    }

    fn store_to(&self, ino: u64) {
        if let Some(map) = self.find(ino) {
            map.is_stored_to.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn write_back_all(&self) -> Result<()> {
        if !self.is_any() {
            return Ok(());
        }
        let maps: Vec<_> = read(&self.maps).values().cloned().collect();
        let done: Vec<_> = maps.iter().map(|map| map.write_back_if_stored_to()).collect();
        done.into_iter().collect()
    }

    fn add(&self, node: &Vnode, is_stored_to: bool) -> Result<u64> {
        let map = {
            let mut maps = write(&self.maps);
            let map = maps.entry(node.ino()).or_insert_with(|| {
                self.count.fetch_add(1, Ordering::AcqRel);
                let (memory, loaded) = Default::default();
                let (holders, is_stored_to) = (AtomicUsize::new(0), AtomicBool::new(false));
                Arc::new(Map { node: node.clone(), holders, memory, loaded, is_stored_to })
            });
            map.holders.fetch_add(1, Ordering::Relaxed);
            map.is_stored_to.fetch_or(is_stored_to, Ordering::SeqCst);
            Arc::clone(map)
        };
        // Those who found that it was not mapped are done; from here on everybody finds that it is.
        self.changing.iter().for_each(|stripe| drop(write(stripe)));
        let mut memory = lock(&map.memory);
        if memory.is_none() {
            match load(node) {
                Ok(loaded) => *memory = Some(Arc::clone(map.loaded.get_or_init(|| Arc::new(loaded)))),
                Err(e) => {
                    drop(memory);
                    self.release(node.ino())?;
                    return Err(e);
                }
            }
        }
        drop(memory);
        self.refresh(node.ino());
        Ok(node.attributes().size)
    }

    fn hold_again(&self, ino: u64, times: usize) {
        if let Some(map) = write(&self.maps).get(&ino) {
            map.holders.fetch_add(times, Ordering::Relaxed);
        }
    }

    /// A mapping has ended.
    fn release(&self, ino: u64) -> Result<()> {
        let Some(map) = self.find(ino) else { return Ok(()) };
        let mut memory = lock(&map.memory);
        let mut maps = write(&self.maps);
        if map.holders.fetch_sub(1, Ordering::Relaxed) > 1 {
            return Ok(());
        }
        drop(maps);
        // Whoever maps it meanwhile waits for the memory.
        let done = map.write_back(&memory);
        maps = write(&self.maps);
        if map.holders.load(Ordering::Relaxed) == 0 {
            maps.remove(&ino);
            self.count.fetch_sub(1, Ordering::AcqRel);
            *memory = None;
        }
        drop((maps, memory));
        self.refresh(ino);
        done
    }
}

/// Brings a file into memory.
fn load(node: &Vnode) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("unvme-mapped", flags)?;
    let fd = rustix::io::fcntl_dupfd_cloexec(&fd, FD_MIN).unwrap_or(fd);
    let memory = Memory { node, fd: &fd };
    memory.take(0..node.attributes().size, true)?;
    Ok(fd)
}

/// The memory of a file, for those who have it alone.
pub(super) struct Memory<'a> {
    node: &'a Vnode,
    fd: &'a OwnedFd,
}

impl Memory<'_> {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let left = self.node.attributes().size.saturating_sub(offset);
        let room = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < room {
            match rustix::io::pread(self.fd, &mut out[done..room], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(done)
    }

    /// What has been written to the file.
    pub(super) fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(self.fd, &data[done..], offset + done as u64) {
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// The file has another size.
    pub(super) fn resize(&self) -> Result<()> {
        Ok(rustix::fs::ftruncate(self.fd, self.node.attributes().size)?)
    }

    /// Takes what the file has in a range, and its size.
    pub(super) fn take(&self, range: Range<u64>, is_new: bool) -> Result<()> {
        self.resize()?;
        let mut buffer = vec![0; CHUNK];
        let mut at = range.start;
        while at < range.end {
            let room = buffer.len().min((range.end - at) as usize);
            let read = self.node.read_at(at, &mut buffer[..room])?;
            if read == 0 {
                break;
            }
            // What is not in memory reads as zeroes.
            if !is_new || buffer[..read].iter().any(|&byte| byte != 0) {
                self.write_at(at, &buffer[..read])?;
            }
            at += read as u64;
        }
        Ok(())
    }
}

impl Map {
    /// As [`Map::write_back`], without waiting for others when there is nothing to do.
    fn write_back_if_stored_to(&self) -> Result<()> {
        if !self.is_stored_to.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.write_back(&lock(&self.memory))
    }

    fn write_back(&self, memory: &MutexGuard<'_, Option<Arc<OwnedFd>>>) -> Result<()> {
        let Some(fd) = &**memory else { return Ok(()) };
        if !self.is_stored_to.load(Ordering::SeqCst) {
            return Ok(());
        }
        let memory = Memory { node: &self.node, fd };
        let size = self.node.attributes().size;
        let (mut ours, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut at = 0;
        while at < size {
            // Pages that nobody has touched are not there, and are zeroes in the file too.
            at = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
                Ok(found) => found / PAGE as u64 * PAGE as u64,
                Err(_) => break,
            };
            let room = CHUNK.min(size.saturating_sub(at) as usize);
            let read = memory.read_at(at, &mut ours[..room])?;
            let there = self.node.read_at(at, &mut theirs[..read])?;
            if read == 0 || there < read {
                break;
            }
            for mut range in differing(&ours[..read], &theirs[..read]) {
                // A device that fails, or is full, says so of what is left.
                while !range.is_empty() {
                    range.start += self.node.write_at(at + range.start as u64, &ours[range.clone()])?;
                }
            }
            at += read as u64;
        }
        Ok(())
    }
}

/// Pages, neighbours together, that are not the same.
fn differing(ours: &[u8], theirs: &[u8]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (page, (a, b)) in ours.chunks(PAGE).zip(theirs.chunks(PAGE)).enumerate() {
        let range = page * PAGE..page * PAGE + a.len();
        match found.last_mut() {
            _ if a == b => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => found.push(range),
        }
    }
    found
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
        let node = self.file(open)?;
        if node.file_type() != FileType::RegularFile {
            return Err(Errno::NODEV.into());
        }
        self.open_file(open, OFlags::RDONLY).map_err(|_| Errno::ACCESS)?;
        let is_writable = self.open_file(open, OFlags::WRONLY).is_ok();
        if is_stored_to && !is_writable {
            return Err(Errno::ACCESS.into());
        }
        let size = self.maps().add(&node, is_stored_to)?;
        let mut mapped = lock(&self.mapped);
        let held = mapped.entry(node.ino()).or_insert((0, false));
        held.0 += 1;
        held.1 |= is_writable;
        Ok(Mapped { ino: node.ino(), size })
    }

    /// The memory of a file that this process has mapped, from the file's first byte on. It may be stored to
    /// when the file was open for writing.
    ///
    /// # Errors
    /// EINVAL when it is not mapped.
    pub fn map_memory(&self, ino: u64) -> Result<OwnedFd> {
        let is_writable = lock(&self.mapped).get(&ino).ok_or(Error::Posix(Errno::INVAL))?.1;
        let map = self.maps().find(ino).ok_or(Error::Posix(Errno::INVAL))?;
        let fd = map.loaded.get().ok_or(Error::Posix(Errno::INVAL))?;
        if is_writable {
            return Ok(rustix::io::fcntl_dupfd_cloexec(fd, FD_MIN).or_else(|_| fcntl_any(fd))?);
        }
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
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
        let _memory = lock(&map.memory);
        act();
    }
}

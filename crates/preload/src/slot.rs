//! What all processes know of an open file: its offset and its flags, in memory that they share and that
//! outlives `exec`.
//!
//! A descriptor of ours is one of an empty file in memory, opened anew for each of our files, whose own
//! offset is the number of the slot. So a copy of the descriptor, in this process or another one, leads to
//! the same slot, as POSIX wants it of an open file description.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, SeekFrom};
use rustix::io::{Errno, FdFlags};
use rustix::mm::{MapFlags, ProtFlags};
use unvme_fs::calls::{FileHandle, Request};

use crate::errno::Result;
use crate::family::Collected;
use crate::{family, own};

/// Open files of a family of processes, at most.
pub(crate) const SLOTS: usize = 1 << 16;

/// Its name among the descriptors of a process.
pub(crate) const NAME: &str = "unvme-open";

/// Descriptors of our own are not where programs look for theirs.
const FIRST_OWN: c_int = 900;

/// An open file description.
#[repr(C)]
pub(crate) struct Slot {
    pub offset: AtomicU64,
    /// As `F_GETFL` tells.
    pub flags: AtomicU32,
    /// Processes that have it.
    pub holders: AtomicU32,
    /// Its name with the file system: an `OpenId`.
    pub open: AtomicU64,
    pub ino: AtomicU64,
    /// Type and permissions, as `st_mode`.
    pub mode: AtomicU32,
    /// Which folder.
    pub mount: AtomicU32,
    /// When it was taken: seconds of the monotonic clock.
    pub taken: AtomicU64,
    /// 1 when it has a lock of its own, of `flock` or of `F_OFD_SETLK`, which any of its processes may have
    /// taken.
    pub is_locked: AtomicU32,
    /// Which of those files that had the number.
    pub generation: AtomicU32,
    rest: [u64; 1],
}

const _: () = assert!(size_of::<Slot>() == 64);

/// What is in memory that all share: the slots, and behind them the numbers of processes.
const BYTES: usize = SLOTS * size_of::<Slot>() + family::PLACES * size_of::<AtomicU32>();

/// The two files in memory.
pub(crate) struct Arena {
    marks: c_int,
    memory: c_int,
    pub slots: &'static [Slot],
    pub family: &'static [AtomicU32],
    next: AtomicU32,
    /// Which file the marks are.
    pub identity: (u64, u64),
}

static ARENA: OnceLock<std::result::Result<Arena, Errno>> = OnceLock::new();

/// Moves a descriptor of our own out of the way. It stays open at `exec`.
pub(crate) fn set_apart(fd: OwnedFd) -> c_int {
    // Where the limit is lower, it stays where it is.
    let moved = rustix::io::fcntl_dupfd_cloexec(&fd, FIRST_OWN).unwrap_or(fd);
    let _ = rustix::io::fcntl_setfd(&moved, FdFlags::empty());
    own::note(moved.as_raw_fd());
    moved.into_raw_fd()
}

pub(crate) use crate::own::out_of_the_way;

type Shared = (&'static [Slot], &'static [AtomicU32]);

fn map(memory: BorrowedFd<'_>) -> std::result::Result<Shared, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, which is never unmapped. Both are atomics, for which all bytes are values; the
    // file has so many bytes, and those who made it are our own family.
    unsafe {
        let at = rustix::mm::mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, memory, 0)?;
        let slots: &[Slot] = std::slice::from_raw_parts(at.cast(), SLOTS);
        let family = std::slice::from_raw_parts(at.cast::<Slot>().add(SLOTS).cast(), family::PLACES);
        Ok((slots, family))
    }
}

fn create() -> std::result::Result<Arena, Errno> {
    let marks = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    // Nothing can be written to it, either.
    rustix::fs::fcntl_add_seals(&marks, SealFlags::GROW | SealFlags::SHRINK | SealFlags::WRITE)?;
    let memory = rustix::fs::memfd_create("unvme-slots", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&memory, BYTES as u64)?;
    let shared = map(rustix::fd::AsFd::as_fd(&memory))?;
    family::join(shared.1);
    assemble(set_apart(marks), set_apart(memory), shared)
}

fn assemble(marks: c_int, memory: c_int, (slots, family): Shared) -> std::result::Result<Arena, Errno> {
    // SAFETY: it is open, and nobody closes it: see `own`.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(marks) })?;
    Ok(Arena { marks, memory, slots, family, next: AtomicU32::new(0), identity: (stat.st_dev, stat.st_ino) })
}

/// Takes on what the process was that has become this one by `exec`, or has made it: the numbers of two
/// descriptors. What does not fit is not taken.
pub(crate) fn inherit(marks: c_int, memory: c_int) {
    if marks < 0 || memory < 0 {
        return;
    }
    let inherited = || {
        // SAFETY: only asked about, and mapped: any number will do.
        let (mark, file) = unsafe { (BorrowedFd::borrow_raw(marks), BorrowedFd::borrow_raw(memory)) };
        let stat = rustix::fs::fstat(file)?;
        rustix::fs::fstat(mark)?;
        if stat.st_size as usize != BYTES {
            return Err(Errno::INVAL);
        }
        assemble(marks, memory, map(file)?)
    };
    if let Ok(arena) = inherited() {
        own::note(marks);
        own::note(memory);
        family::join(arena.family);
        let _ = ARENA.set(Ok(arena));
    }
}

/// A process that `fork` has made is one of the family.
pub(crate) fn join(pid: u32) {
    if let Some(Ok(arena)) = ARENA.get() {
        family::add(arena.family, pid);
    }
}

/// This process has ended.
pub(crate) fn leave() {
    if let Some(Ok(arena)) = ARENA.get() {
        family::leave(arena.family);
    }
}

fn arena() -> Result<&'static Arena> {
    ARENA.get_or_init(create).as_ref().map_err(|e| *e)
}

/// Makes the two files, if they are not there: processes that come of this one share them, whoever opens a
/// file first.
pub(crate) fn prepare() {
    let _ = arena();
}

/// The numbers of the two descriptors, if anything was ever open.
pub(crate) fn descriptors() -> Option<(c_int, c_int)> {
    ARENA.get()?.as_ref().ok().map(|arena| (arena.marks, arena.memory))
}

/// The next image of this process has both, whatever the program has asked for all of its descriptors.
pub(crate) fn keep_open() {
    for fd in own_descriptors() {
        // SAFETY: they are open, and nobody closes them: see `own`.
        let _ = rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(fd) }, FdFlags::empty());
    }
}

/// As [`descriptors`], one by one.
pub(crate) fn own_descriptors() -> impl Iterator<Item = c_int> {
    descriptors().into_iter().flat_map(|(marks, memory)| [marks, memory])
}

/// A slot by its number.
pub(crate) fn get(number: u32) -> Option<&'static Slot> {
    arena().ok()?.slots.get(number as usize)
}

/// Takes a free slot. Its one holder is this process.
pub(crate) fn take() -> Result<(u32, &'static Slot)> {
    let arena = arena()?;
    if let Some(taken) = take_free(arena) {
        return Ok(taken);
    }
    // Processes that were killed have given nothing back.
    let begun = family::now();
    loop {
        let collected = family::collect(arena);
        if let Some(taken) = take_free(arena) {
            return Ok(taken);
        }
        if collected == Collected::Nothing || family::now() > begun + family::SECONDS_MIN + 1 {
            return Err(Errno::NFILE);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn take_free(arena: &'static Arena) -> Option<(u32, &'static Slot)> {
    let start = arena.next.load(Ordering::Relaxed);
    for step in 0..SLOTS as u32 {
        let number = start.wrapping_add(step) % SLOTS as u32;
        let slot = &arena.slots[number as usize];
        if slot.holders.load(Ordering::Relaxed) == 0
            && slot.holders.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            arena.next.store(number + 1, Ordering::Relaxed);
            slot.offset.store(0, Ordering::Relaxed);
            slot.is_locked.store(0, Ordering::Relaxed);
            slot.taken.store(family::now(), Ordering::Release);
            return Some((number, slot));
        }
    }
    None
}

impl Slot {
    /// Opens its file again, for another server or another process.
    pub(crate) fn adopt(&self, flags: u32) -> Request<'static> {
        let (ino, generation) = (self.ino.load(Ordering::Relaxed), self.generation.load(Ordering::Relaxed));
        FileHandle { ino, generation }.adopt(flags)
    }
}

/// This process has it no more.
pub(crate) fn give_back(slot: &Slot) {
    slot.holders.fetch_sub(1, Ordering::AcqRel);
}

/// A descriptor that stands for a slot.
pub(crate) fn descriptor(number: u32, close_on_exec: bool) -> Result<OwnedFd> {
    let arena = arena()?;
    let path = format!("/proc/self/fd/{}", arena.marks);
    // Who reads it without us is told that it cannot be, and does not take it for an empty file.
    let flags = if close_on_exec { OFlags::WRONLY | OFlags::CLOEXEC } else { OFlags::WRONLY };
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::fs::seek(&fd, SeekFrom::Start(number.into()))?;
    Ok(fd)
}

/// The slot that a descriptor stands for, if it does.
pub(crate) fn of_descriptor(fd: BorrowedFd<'_>) -> Option<u32> {
    let arena = ARENA.get()?.as_ref().ok()?;
    if fd.as_raw_fd() == arena.marks {
        return None;
    }
    let stat = rustix::fs::fstat(fd).ok()?;
    if (stat.st_dev, stat.st_ino) != arena.identity {
        return None;
    }
    u32::try_from(rustix::fs::tell(fd).ok()?).ok().filter(|&number| (number as usize) < SLOTS)
}

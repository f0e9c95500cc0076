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

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, SeekFrom};
use rustix::io::{Errno, FdFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::errno::Result;

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
    rest: [u64; 3],
}

const _: () = assert!(size_of::<Slot>() == 64);

/// The two files in memory.
struct Arena {
    marks: c_int,
    memory: c_int,
    slots: &'static [Slot],
    next: AtomicU32,
    /// Which file the marks are.
    identity: (u64, u64),
}

static ARENA: OnceLock<std::result::Result<Arena, Errno>> = OnceLock::new();

/// Moves a descriptor of our own out of the way. It stays open at `exec`.
pub(crate) fn set_apart(fd: OwnedFd) -> c_int {
    // Where the limit is lower, it stays where it is.
    let moved = rustix::io::fcntl_dupfd_cloexec(&fd, FIRST_OWN).unwrap_or(fd);
    let _ = rustix::io::fcntl_setfd(&moved, FdFlags::empty());
    moved.into_raw_fd()
}

/// Does something that opens descriptors of our own, which stay: programs choose small numbers themselves
/// (`exec 6<file` in a shell), so ours are not among them.
pub(crate) fn out_of_the_way<R>(act: impl FnOnce() -> R) -> R {
    /// The first number that is left to us, where the limit allows so many.
    const FIRST: u64 = 512;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let first = FIRST.min(limit / 2) as c_int;
    let mut taken = Vec::new();
    if let Ok(one) = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        while let Ok(next) = rustix::io::fcntl_dupfd_cloexec(&one, 0) {
            if next.as_raw_fd() >= first {
                break;
            }
            taken.push(next);
        }
        taken.push(one);
    }
    let done = act();
    drop(taken);
    done
}

fn map(memory: BorrowedFd<'_>) -> std::result::Result<&'static [Slot], Errno> {
    let bytes = SLOTS * size_of::<Slot>();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, which is never unmapped. Slots are atomics, for which all bytes are values; the
    // file has so many bytes, and those who made it are our own family.
    unsafe {
        let at = rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, memory, 0)?;
        Ok(std::slice::from_raw_parts(at.cast(), SLOTS))
    }
}

fn create() -> std::result::Result<Arena, Errno> {
    let marks = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    // Nothing can be written to it, either.
    rustix::fs::fcntl_add_seals(&marks, SealFlags::GROW | SealFlags::SHRINK | SealFlags::WRITE)?;
    let memory = rustix::fs::memfd_create("unvme-slots", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&memory, (SLOTS * size_of::<Slot>()) as u64)?;
    let slots = map(rustix::fd::AsFd::as_fd(&memory))?;
    assemble(set_apart(marks), set_apart(memory), slots)
}

fn assemble(marks: c_int, memory: c_int, slots: &'static [Slot]) -> std::result::Result<Arena, Errno> {
    // SAFETY: it is open, and nobody closes it: see `is_own`.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(marks) })?;
    Ok(Arena { marks, memory, slots, next: AtomicU32::new(0), identity: (stat.st_dev, stat.st_ino) })
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
        if stat.st_size as usize != SLOTS * size_of::<Slot>() {
            return Err(Errno::INVAL);
        }
        assemble(marks, memory, map(file)?)
    };
    if let Ok(arena) = inherited() {
        let _ = ARENA.set(Ok(arena));
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

/// Whether a descriptor is our own, and nobody else's to close.
pub(crate) fn is_own(fd: c_int) -> bool {
    fd >= 0 && descriptors().is_some_and(|(marks, memory)| fd == marks || fd == memory)
}

/// A slot by its number.
pub(crate) fn get(number: u32) -> Option<&'static Slot> {
    arena().ok()?.slots.get(number as usize)
}

/// Takes a free slot. Its one holder is this process.
pub(crate) fn take() -> Result<(u32, &'static Slot)> {
    let arena = arena()?;
    let start = arena.next.load(Ordering::Relaxed);
    for step in 0..SLOTS as u32 {
        let number = start.wrapping_add(step) % SLOTS as u32;
        let slot = &arena.slots[number as usize];
        if slot.holders.load(Ordering::Relaxed) == 0
            && slot.holders.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            arena.next.store(number + 1, Ordering::Relaxed);
            slot.offset.store(0, Ordering::Relaxed);
            return Ok((number, slot));
        }
    }
    Err(Errno::NFILE)
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

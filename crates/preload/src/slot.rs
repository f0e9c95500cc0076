//! What all processes know of an open file: its offset and its flags, in memory that they share and that
//! outlives `exec`.
//!
//! A descriptor of ours is one of an empty file in memory, a mark, which is made anew for each of our files
//! and is known by its inode. So a copy of the descriptor, in this process or another one, leads to the same
//! slot, as POSIX wants it of an open file description.
//!
//! It is an `O_PATH` descriptor. The kernel refuses it (EBADF) for all calls on data, locks, offsets and
//! events, so a program that makes such a call itself, and not by the C library, is told. With another kind
//! of descriptor that has no data, `fsync` would return 0. Copies, close-on-exec, `fstat`, sockets that pass
//! it on and names in `/proc` are the kernel's. Waiting for it, and calls on terminals and sockets, which it
//! is not, are answered by `ready` and `kinds`.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::{DupFlags, Errno, FdFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::mount::OpenTreeFlags;
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
    /// The server that had everything that was written when `fsync` reported last, or when it was opened: see
    /// `table::OpenFile::take_lost`. 0 in single-process mode.
    pub synced: AtomicU32,
    /// The same of `syncfs`.
    pub all_synced: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// What is in memory that all share: the slots, behind them the inodes of their marks, and the numbers of
/// processes.
const BYTES: usize = SLOTS * (size_of::<Slot>() + size_of::<AtomicU64>()) + PROCESSES;
const PROCESSES: usize = family::PLACES * size_of::<AtomicU32>();

/// The file in memory.
pub(crate) struct Arena {
    memory: c_int,
    pub slots: &'static [Slot],
    /// The inode of each slot's mark, or of its last one.
    marks: &'static [AtomicU64],
    pub family: &'static [AtomicU32],
    next: AtomicU32,
    /// The file system that has this file and all marks.
    pub device: u64,
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

type Shared = (&'static [Slot], &'static [AtomicU64], &'static [AtomicU32]);

fn map(memory: BorrowedFd<'_>) -> std::result::Result<Shared, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, which is never unmapped. All are atomics, for which all bytes are values; the
    // file has BYTES bytes, each part is aligned as the one before it, and our family has made it.
    unsafe {
        let at = rustix::mm::mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, memory, 0)?;
        let slots: &[Slot] = std::slice::from_raw_parts(at.cast(), SLOTS);
        let marks: *mut AtomicU64 = at.cast::<Slot>().add(SLOTS).cast();
        let family = std::slice::from_raw_parts(marks.add(SLOTS).cast(), family::PLACES);
        Ok((slots, std::slice::from_raw_parts(marks, SLOTS), family))
    }
}

fn create() -> std::result::Result<Arena, Errno> {
    let memory = rustix::fs::memfd_create("unvme-slots", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&memory, BYTES as u64)?;
    let shared = map(memory.as_fd())?;
    family::join(shared.2);
    assemble(set_apart(memory), shared)
}

fn assemble(memory: c_int, (slots, marks, family): Shared) -> std::result::Result<Arena, Errno> {
    // SAFETY: it is open, and nobody closes it: see `own`.
    let device = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(memory) })?.st_dev;
    Ok(Arena { memory, slots, marks, family, next: AtomicU32::new(0), device })
}

/// Takes on what the process was that has become this one by `exec`, or has made it: the number of a
/// descriptor. What does not fit is not taken.
pub(crate) fn inherit(memory: c_int) {
    if memory < 0 {
        return;
    }
    let inherited = || {
        // SAFETY: only asked about, and mapped: any number will do.
        let file = unsafe { BorrowedFd::borrow_raw(memory) };
        if rustix::fs::fstat(file)?.st_size as usize != BYTES {
            return Err(Errno::INVAL);
        }
        assemble(memory, map(file)?)
    };
    if let Ok(arena) = inherited() {
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

/// Makes the file, if it is not there: this process and its children share it, whichever opens a file first.
pub(crate) fn prepare() {
    let _ = arena();
}

/// The number of the descriptor, if anything was ever open.
pub(crate) fn descriptor_of_memory() -> Option<c_int> {
    ARENA.get()?.as_ref().ok().map(|arena| arena.memory)
}

/// The next image of this process has it, whatever the program has asked for all of its descriptors.
pub(crate) fn keep_open() {
    for fd in own_descriptors() {
        // SAFETY: they are open, and nobody closes them: see `own`.
        let _ = rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(fd) }, FdFlags::empty());
    }
}

/// As [`descriptor_of_memory`], of which there is one or none.
pub(crate) fn own_descriptors() -> impl Iterator<Item = c_int> {
    descriptor_of_memory().into_iter()
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
            arena.marks[number as usize].store(0, Ordering::Relaxed);
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

/// A descriptor that stands for a slot: of a mark that is open for nothing.
///
/// The lowest number is the program's. From the first moment on it is one that the kernel refuses for data:
/// another thread may still use the file that it was closed for.
pub(crate) fn descriptor(number: u32, close_on_exec: bool) -> Result<OwnedFd> {
    let arena = arena()?;
    let place = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let create = || rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let (place, mark) = match create() {
        Ok(mark) => (Some(place), mark),
        // It is the last number that the process may have.
        Err(Errno::MFILE) => {
            drop(place);
            (None, create()?)
        }
        Err(errno) => return Err(errno),
    };
    // It cannot be opened by its name in `/proc`, but by root, who cannot write to it.
    rustix::fs::fchmod(&mark, Mode::empty())?;
    let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&mark, seals)?;
    let ino = rustix::fs::fstat(&mark)?.st_ino;
    let fd = match place {
        Some(place) => opened_at(place, mark, close_on_exec)?,
        None => kept_itself(mark, close_on_exec)?,
    };
    arena.marks[number as usize].store(ino, Ordering::Release);
    Ok(fd)
}

/// A descriptor for a mark, that is open for nothing, with the number of another one.
fn opened_at(mut place: OwnedFd, mark: OwnedFd, close_on_exec: bool) -> Result<OwnedFd> {
    let flags = if close_on_exec { DupFlags::CLOEXEC } else { DupFlags::empty() };
    match open_for_nothing(&mark) {
        Ok(fd) => rustix::io::dup3(&fd, &mut place, flags)?,
        Err(Errno::MFILE) => {
            drop(place);
            let low = rustix::io::fcntl_dupfd_cloexec(&mark, 0)?;
            drop(mark);
            return kept_itself(low, close_on_exec);
        }
        Err(errno) => return Err(errno),
    }
    Ok(place)
}

/// A mark, open for nothing: as `O_PATH` has it.
fn open_for_nothing(mark: &OwnedFd) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    match rustix::mount::open_tree(mark, c"", flags) {
        // Linux before 5.2, and sandboxes that do not know it. It is half as fast.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {
            let path = format!("/proc/self/fd/{}", mark.as_raw_fd());
            rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        }
        opened => opened,
    }
}

/// The mark itself, where the process may have no more descriptors: as good as any other for the library.
fn kept_itself(mark: OwnedFd, close_on_exec: bool) -> Result<OwnedFd> {
    let flags = if close_on_exec { FdFlags::CLOEXEC } else { FdFlags::empty() };
    rustix::io::fcntl_setfd(&mark, flags)?;
    Ok(mark)
}

/// The slot that a descriptor stands for, if it does.
pub(crate) fn of_descriptor(fd: BorrowedFd<'_>) -> Option<u32> {
    let arena = ARENA.get()?.as_ref().ok()?;
    let found = rustix::fs::fstat(fd).ok()?;
    of_mark(arena, found.st_dev, found.st_ino)
}

/// The slot that a file of the kernel's is the mark of.
pub(crate) fn of_mark(arena: &Arena, device: u64, ino: u64) -> Option<u32> {
    if device != arena.device {
        return None;
    }
    arena.marks.iter().position(|mark| mark.load(Ordering::Acquire) == ino).map(|number| number as u32)
}

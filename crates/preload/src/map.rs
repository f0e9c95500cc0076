//! Files in memory: `mmap`.
//!
//! A private mapping is memory of the process that what is in the file is copied to. A shared one is of a
//! file in memory that stands for ours as long as it is mapped: reads and writes go there as well, so all
//! see the same.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, MAP_TYPE,
    O_ACCMODE, O_RDWR, PROT_EXEC, PROT_READ, PROT_WRITE, off_t, size_t,
};
use rustix::io::Errno;
use unvme::lock::lock;
use unvme_fs::calls::{Reply, Request};

use crate::errno::Result;
use crate::mount::Mount;
use crate::table::{self, Held};
use crate::{data, errno, gate, real};

/// A mapping of one of our files, or a piece of one.
#[derive(Clone, Copy)]
struct Mapping {
    start: usize,
    end: usize,
    /// What a shared one is of; `None` for memory of the process.
    shared: Option<(&'static Mount, u64)>,
    /// Which byte of the file is at `start`.
    offset: u64,
    /// Pieces of one mapping have the same.
    whole: u64,
}

impl Mapping {
    fn overlaps(&self, start: usize, end: usize) -> bool {
        self.start < end && start < self.end
    }

    /// The same mapping, from an address within it on.
    fn from(self, start: usize) -> Self {
        Self { start, offset: self.offset + (start - self.start) as u64, ..self }
    }
}

static NEXT: AtomicU64 = AtomicU64::new(0);
static MAPPINGS: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

/// How many there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Nobody else changes this as long as somebody has it: see `process`.
pub(crate) fn still() -> Box<dyn std::any::Any> {
    Box::new(lock(&MAPPINGS))
}

fn note(start: usize, bytes: usize, shared: Option<(&'static Mount, u64)>, offset: u64) {
    let whole = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut mappings = gate::leaf(&MAPPINGS);
    let end = start + bytes.next_multiple_of(4096);
    mappings.push(Mapping { start, end, shared, offset, whole });
    COUNT.store(mappings.len(), Ordering::Relaxed);
}

/// Mappings of more bytes than this skip the holes of a file: it costs two calls for each run of data.
const SPARSE: size_t = 1 << 20;

/// The next data of a file, or the next hole; `None` when there is no more data.
fn seek(held: &Held, offset: u64, is_hole: bool) -> Result<Option<u64>> {
    match held.mount.ask(&Request::Seek { open: held.open(), offset, is_hole }) {
        Ok(Reply::Number(found)) => Ok(Some(found)),
        Ok(_) => Err(Errno::IO),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Fills memory of zeros with what a file has from an offset on. Holes stay memory that nothing has touched.
unsafe fn fill(held: &Held, at: *mut c_void, bytes: size_t, offset: u64) -> Result<()> {
    let index = |found: u64| usize::try_from(found - offset).unwrap_or(bytes).min(bytes);
    let mut done = 0;
    while done < bytes {
        let mut end = bytes;
        if bytes > SPARSE {
            let Some(data) = seek(held, offset + done as u64, false)? else { break };
            // No hole: the file was cut in between, and has no more data the next time.
            end = index(seek(held, data, true)?.unwrap_or(data));
            done = index(data);
        }
        while done < end {
            let out = std::slice::from_raw_parts_mut(at.cast::<u8>().add(done), end - done);
            let read = data::read_at(held, offset + done as u64, out)?;
            if read == 0 {
                return Ok(());
            }
            done += read;
        }
    }
    Ok(())
}

fn failed() -> Errno {
    errno::last()
}

unsafe fn map_private(
    held: &Held,
    at: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    offset: u64,
) -> Result<*mut c_void> {
    let mut flags = flags & !MAP_TYPE | MAP_PRIVATE | MAP_ANONYMOUS;
    if protection & PROT_WRITE == 0 {
        // As the kernel does for files: pages that cannot be stored to are not accounted for.
        flags |= MAP_NORESERVE;
    }
    let memory = real::mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if memory == libc::MAP_FAILED {
        return Err(failed());
    }
    let filled = fill(held, memory, bytes, offset);
    let protected = filled.and_then(|()| {
        let is_right = protection == PROT_READ | PROT_WRITE || libc::mprotect(memory, bytes, protection) == 0;
        if is_right { Ok(()) } else { Err(failed()) }
    });
    if let Err(errno) = protected {
        real::munmap(memory, bytes);
        return Err(errno);
    }
    note(memory as usize, bytes, None, offset);
    Ok(memory)
}

unsafe fn map_shared(
    held: &Held,
    at: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    offset: off_t,
) -> Result<*mut c_void> {
    let start = offset as u64;
    let range = start..start.saturating_add(bytes as u64);
    let (mapped, memory) = held.mount.map(held.open(), protection & PROT_WRITE != 0, range)?;
    let found = real::mmap(at, bytes, protection, flags, memory.as_raw_fd(), offset);
    if found == libc::MAP_FAILED {
        let errno = failed();
        let _ = held.mount.unmap(mapped.ino);
        return Err(errno);
    }
    note(found as usize, bytes, Some((held.mount, mapped.ino)), start);
    Ok(found)
}

unsafe fn map_ours(
    held: &Held,
    at: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    offset: off_t,
) -> Result<*mut c_void> {
    if offset % 4096 != 0 {
        return Err(Errno::INVAL);
    }
    held.check_open()?;
    let known = PROT_READ | PROT_WRITE | PROT_EXEC;
    if bytes == 0 || protection & !known != 0 {
        return Err(Errno::INVAL);
    }
    if offset < 0 {
        return Err(Errno::OVERFLOW);
    }
    let is_fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if is_fixed && !(at as usize).is_multiple_of(4096) {
        return Err(Errno::INVAL);
    }
    if !matches!(flags & MAP_TYPE, MAP_PRIVATE | MAP_SHARED | libc::MAP_SHARED_VALIDATE) {
        return Err(Errno::INVAL);
    }
    let is_shared = flags & MAP_TYPE != MAP_PRIVATE;
    if is_shared && protection & PROT_WRITE != 0 && held.flags() & O_ACCMODE != O_RDWR {
        return Err(Errno::ACCESS);
    }
    held.check_readable().map_err(|_| Errno::ACCESS)?;
    if !held.is_regular() {
        return Err(Errno::NODEV);
    }
    if is_shared {
        map_shared(held, at, bytes, protection, flags, offset)
    } else {
        map_private(held, at, bytes, protection, flags, offset as u64)
    }
}

/// Takes out what is at these addresses: pieces of mappings, whose rest stays.
fn carve(mappings: &mut Vec<Mapping>, start: usize, end: usize) -> Vec<Mapping> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < mappings.len() {
        let found = mappings[at];
        if !found.overlaps(start, end) {
            at += 1;
            continue;
        }
        mappings.swap_remove(at);
        pieces.push(Mapping { end: found.end.min(end), ..found.from(found.start.max(start)) });
        // The rest does not overlap, wherever it is put.
        if found.start < start {
            mappings.push(Mapping { end: start, ..found });
        }
        if end < found.end {
            mappings.push(found.from(end));
        }
    }
    COUNT.store(mappings.len(), Ordering::Relaxed);
    pieces
}

/// Files of which no piece is left have a mapping less, one for each mapping.
fn without_pieces(mappings: &[Mapping], mut gone: Vec<Mapping>) -> Vec<Mapping> {
    gone.sort_by_key(|piece| piece.whole);
    gone.dedup_by_key(|piece| piece.whole);
    gone.retain(|piece| !mappings.iter().any(|other| other.whole == piece.whole));
    gone
}

fn release(gone: Vec<Mapping>) {
    let _inside = gate::enter();
    for (mount, ino) in gone.iter().filter_map(|mapping| mapping.shared) {
        if let Err(errno) = mount.unmap(ino) {
            let (device, error) = (&mount.config.device, std::io::Error::from(errno));
            crate::state::say(&format!(
                "{device}: what was stored to a mapping of file {ino} is lost: {error}"
            ));
        }
    }
}

fn end_of(start: usize, bytes: usize) -> usize {
    start.saturating_add(bytes).checked_next_multiple_of(4096).unwrap_or(usize::MAX)
}

/// Nothing of ours is mapped at these addresses any more.
fn forget(start: usize, bytes: usize) {
    let mut mappings = gate::leaf(&MAPPINGS);
    let gone = carve(&mut mappings, start, end_of(start, bytes));
    let gone = without_pieces(&mappings, gone);
    drop(mappings);
    release(gone);
}

/// What was at some addresses is at others, or there as well.
fn note_moved((at, old): (usize, usize), (moved, new): (usize, usize), flags: c_int) {
    let mut mappings = gate::leaf(&MAPPINGS);
    // Nothing as the old length makes a second mapping of the same.
    let looked_at = end_of(at, old.max(1));
    let mut pieces = carve(&mut mappings, at, looked_at);
    if old == 0 || flags & libc::MREMAP_DONTUNMAP != 0 {
        mappings.extend_from_slice(&pieces);
    }
    let gone = carve(&mut mappings, moved, end_of(moved, new));
    let (old_end, new_end) = (looked_at, end_of(moved, new));
    for piece in &mut pieces {
        let is_last = piece.end == old_end;
        piece.start = moved + (piece.start - at);
        piece.end = if is_last { new_end } else { (moved + (piece.end - at)).min(new_end) };
    }
    let (kept, cut): (Vec<_>, Vec<_>) = pieces.into_iter().partition(|piece| piece.start < piece.end);
    mappings.extend(kept);
    COUNT.store(mappings.len(), Ordering::Relaxed);
    let gone = without_pieces(&mappings, gone.into_iter().chain(cut).collect());
    drop(mappings);
    release(gone);
}

/// Has a mapping that is about to grow have the content of the file there: before a program can see it.
fn prepare_growth(at: usize, old: usize, new: usize) -> Result<()> {
    // Nothing as the old length makes a second mapping of the same.
    if new <= old {
        return Ok(());
    }
    let found = overlapping(at, old.max(1)).into_iter().max_by_key(|found| found.end);
    let Some((found, (mount, ino))) = found.and_then(|found| Some((found, found.shared?))) else {
        return Ok(());
    };
    let end = end_of(at, new);
    if found.end >= end {
        return Ok(());
    }
    // The kernel may have made one mapping of two neighbors: the last one says what comes behind it.
    let start = found.from(found.end).offset;
    let _inside = gate::enter();
    mount.load_map(ino, start..start.saturating_add((end - found.end) as u64))
}

/// Mappings that have something at these addresses.
fn overlapping(start: usize, bytes: usize) -> Vec<Mapping> {
    let end = start.saturating_add(bytes);
    gate::leaf(&MAPPINGS).iter().filter(|found| found.overlaps(start, end)).copied().collect()
}

/// Advice on what is at these addresses. Memory that stands for a private mapping has nothing behind it that
/// it could be filled from again: it stays.
fn advise(at: *mut c_void, bytes: usize, advice: c_int) -> Option<Result<()>> {
    let is_asked = matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE);
    if !is_asked || !is_any() || !(at as usize).is_multiple_of(4096) {
        return None;
    }
    let is_private = overlapping(at as usize, bytes).iter().any(|found| found.shared.is_none());
    is_private.then_some(match advice {
        libc::MADV_DONTNEED => Ok(()),
        _ => Err(Errno::INVAL),
    })
}

/// Writes what was stored at these addresses to the files, and has it be durable.
fn sync(start: usize, bytes: usize) -> Result<()> {
    let found = overlapping(start, bytes);
    let _inside = gate::enter();
    for (mount, ino) in found.iter().filter_map(|mapping| mapping.shared) {
        let flags = libc::O_RDONLY as u32;
        // As long as it is mapped, the number is this file's.
        let adopt = Request::Adopt { ino, generation: None, flags };
        if let Reply::Opened(open, ..) = mount.ask(&adopt)? {
            // What was stored is written first.
            let done = mount.ask(&Request::Sync { open, data_only: true });
            let _ = mount.ask(&Request::Release { open });
            done?;
        }
    }
    Ok(())
}

fn is_any() -> bool {
    crate::state::is_on() && !gate::is_inside() && COUNT.load(Ordering::Relaxed) > 0
}

fn is_any_shared(is_it: impl Fn(&Mount, u64) -> bool) -> bool {
    gate::leaf(&MAPPINGS).iter().filter_map(|mapping| mapping.shared).any(|(of, ino)| is_it(of, ino))
}

/// Whether files are in memory that programs may store to.
pub(crate) fn has_any(mount: &Mount) -> bool {
    is_any_shared(|of, _| of.number == mount.number)
}

/// Whether a file is.
pub(crate) fn has(mount: &Mount, ino: u64) -> bool {
    is_any_shared(|of, file| of.number == mount.number && file == ino)
}

exported! {
    fn mmap(
        at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t,
    ) -> *mut c_void {
        if flags & MAP_FIXED != 0 && is_any() {
            forget(at as usize, bytes);
        }
        if flags & MAP_ANONYMOUS != 0 {
            return real::mmap(at, bytes, protection, flags, fd, offset);
        }
        let Some(held) = table::get(fd) else { return real::mmap(at, bytes, protection, flags, fd, offset) };
        map_ours(&held, at, bytes, protection, flags, offset).unwrap_or_else(|errno| {
            errno::set(errno);
            libc::MAP_FAILED
        })
    }

    fn mmap64(
        at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t,
    ) -> *mut c_void {
        mmap(at, bytes, protection, flags, fd, offset)
    }

    fn munmap(at: *mut c_void, bytes: size_t) -> c_int {
        // Before, as another thread's next mapping may be there afterwards.
        if (at as usize).is_multiple_of(4096) && bytes > 0 && is_any() {
            forget(at as usize, bytes);
        }
        real::munmap(at, bytes)
    }

    fn mremap(at: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void) -> *mut c_void {
        if is_any() && let Err(errno) = prepare_growth(at as usize, old, new) {
            errno::set(errno);
            return libc::MAP_FAILED;
        }
        let moved = real::mremap(at, old, new, flags, to);
        if moved != libc::MAP_FAILED && is_any() {
            note_moved((at as usize, old), (moved as usize, new), flags);
        }
        moved
    }

    fn mprotect(at: *mut c_void, bytes: size_t, protection: c_int) -> c_int {
        if protection & PROT_WRITE != 0 && is_any() {
            // Before anything can be stored. What may not be stored to, the kernel refuses.
            let found = overlapping(at as usize, bytes);
            let _inside = gate::enter();
            for (mount, ino) in found.into_iter().filter_map(|mapping| mapping.shared) {
                let _ = mount.store_to(ino);
            }
        }
        real::mprotect(at, bytes, protection)
    }

    fn msync(at: *mut c_void, bytes: size_t, flags: c_int) -> c_int {
        let done = real::msync(at, bytes, flags);
        if done == 0 && is_any() && flags & libc::MS_SYNC != 0 {
            return errno::done(sync(at as usize, bytes));
        }
        done
    }

    fn madvise(at: *mut c_void, bytes: size_t, advice: c_int) -> c_int {
        match advise(at, bytes, advice) {
            Some(answer) => errno::done(answer),
            None => real::madvise(at, bytes, advice),
        }
    }
}

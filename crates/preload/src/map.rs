//! Files in memory: `mmap`.
//!
//! A private mapping is memory of the process that what is in the file is copied to. A shared one is of a
//! file in memory that stands for ours as long as it is mapped: reads and writes go there as well, so all
//! see the same.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MAP_SHARED, MAP_TYPE, O_ACCMODE, O_RDWR,
    PROT_EXEC, PROT_READ, PROT_WRITE, off_t, size_t,
};
use rustix::io::Errno;
use unvme::lock::lock;
use unvme_fs::calls::{Reply, Request};

use crate::errno::Result;
use crate::mount::Mount;
use crate::table::{self, Held};
use crate::{data, errno, gate, real};

/// A shared mapping of one of our files.
#[derive(Clone, Copy)]
struct Mapping {
    start: usize,
    end: usize,
    mount: &'static Mount,
    ino: u64,
    /// Pieces of one mapping have the same.
    whole: u64,
}

static NEXT: AtomicU64 = AtomicU64::new(0);
static MAPPINGS: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

/// Fills memory with what a file has from an offset on.
unsafe fn fill(held: &Held, at: *mut c_void, bytes: size_t, offset: u64) -> Result<()> {
    let mut done = 0;
    while done < bytes {
        let out = std::slice::from_raw_parts_mut(at.cast::<u8>().add(done), bytes - done);
        let read = data::read_at(held, offset + done as u64, out)?;
        if read == 0 {
            break;
        }
        done += read;
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
    let flags = flags & !MAP_TYPE | MAP_PRIVATE | MAP_ANONYMOUS;
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
    let (mapped, memory) = held.mount.map(held.open(), protection & PROT_WRITE != 0)?;
    let found = real::mmap(at, bytes, protection, flags, memory.as_raw_fd(), offset);
    if found == libc::MAP_FAILED {
        let errno = failed();
        let _ = held.mount.unmap(mapped.ino);
        return Err(errno);
    }
    let start = found as usize;
    let end = start + bytes.next_multiple_of(4096);
    let whole = NEXT.fetch_add(1, Ordering::Relaxed);
    lock(&MAPPINGS).push(Mapping { start, end, mount: held.mount, ino: mapped.ino, whole });
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
    held.check_readable().map_err(|_| Errno::ACCESS)?;
    let known = PROT_READ | PROT_WRITE | PROT_EXEC;
    if bytes == 0 || offset % 4096 != 0 || protection & !known != 0 {
        return Err(Errno::INVAL);
    }
    if offset < 0 {
        return Err(Errno::OVERFLOW);
    }
    let is_fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if is_fixed && !(at as usize).is_multiple_of(4096) {
        return Err(Errno::INVAL);
    }
    if !held.is_regular() {
        return Err(Errno::NODEV);
    }
    match flags & MAP_TYPE {
        MAP_PRIVATE => map_private(held, at, bytes, protection, flags, offset as u64),
        MAP_SHARED | libc::MAP_SHARED_VALIDATE => {
            if protection & PROT_WRITE != 0 && held.flags() & O_ACCMODE != O_RDWR {
                return Err(Errno::ACCESS);
            }
            map_shared(held, at, bytes, protection, flags, offset)
        }
        _ => Err(Errno::INVAL),
    }
}

/// Nothing of ours is mapped at these addresses any more.
fn forget(start: usize, bytes: usize) {
    let end = start.saturating_add(bytes.next_multiple_of(4096));
    let mut gone = Vec::new();
    let mut mappings = lock(&MAPPINGS);
    let mut at = 0;
    while at < mappings.len() {
        let found = mappings[at];
        if found.end <= start || end <= found.start {
            at += 1;
            continue;
        }
        if found.start < start && end < found.end {
            // A hole in the middle: two of one.
            mappings[at].end = start;
            mappings.push(Mapping { start: end, ..found });
            at += 1;
        } else if found.start < start {
            mappings[at].end = start;
            at += 1;
        } else if end < found.end {
            mappings[at].start = end;
            at += 1;
        } else {
            gone.push(mappings.swap_remove(at));
        }
    }
    gone.retain(|piece| !mappings.iter().any(|other| other.whole == piece.whole));
    gone.dedup_by_key(|piece| piece.whole);
    drop(mappings);
    let _inside = gate::enter();
    for mapping in gone {
        let _ = mapping.mount.unmap(mapping.ino);
    }
}

/// Mappings that have something at these addresses.
fn overlapping(start: usize, bytes: usize) -> Vec<Mapping> {
    let end = start.saturating_add(bytes);
    let mappings = lock(&MAPPINGS);
    mappings.iter().filter(|found| found.start < end && start < found.end).copied().collect()
}

/// Writes what was stored at these addresses to the files, and has it be durable.
fn sync(start: usize, bytes: usize) -> Result<()> {
    let found = overlapping(start, bytes);
    let _inside = gate::enter();
    for mapping in found {
        mapping.mount.sync_map(mapping.ino)?;
        let flags = libc::O_RDONLY as u32;
        if let Reply::Opened(open, ..) = mapping.mount.ask(&Request::Adopt { ino: mapping.ino, flags })? {
            let done = mapping.mount.ask(&Request::Sync { open, data_only: true });
            let _ = mapping.mount.ask(&Request::Close { open });
            done?;
        }
    }
    Ok(())
}

fn is_any() -> bool {
    crate::start::is_on() && !gate::is_inside() && !lock(&MAPPINGS).is_empty()
}

/// Whether files are in memory that programs may store to.
pub(crate) fn has_any(mount: &Mount) -> bool {
    lock(&MAPPINGS).iter().any(|mapping| mapping.mount.number == mount.number)
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
        let done = real::munmap(at, bytes);
        if done == 0 && is_any() {
            forget(at as usize, bytes);
        }
        done
    }

    fn mremap(at: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void) -> *mut c_void {
        let moved = real::mremap(at, old, new, flags, to);
        if moved != libc::MAP_FAILED && is_any() {
            let mut mappings = lock(&MAPPINGS);
            if let Some(found) = mappings.iter_mut().find(|found| found.start == at as usize) {
                found.start = moved as usize;
                found.end = moved as usize + new.next_multiple_of(4096);
            }
        }
        moved
    }

    fn mprotect(at: *mut c_void, bytes: size_t, protection: c_int) -> c_int {
        if protection & PROT_WRITE != 0 && is_any() {
            // Before anything can be stored. What may not be stored to, the kernel refuses.
            let found = overlapping(at as usize, bytes);
            let _inside = gate::enter();
            for mapping in found {
                let _ = mapping.mount.store_to(mapping.ino);
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
}

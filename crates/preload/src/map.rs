//! Files in memory: `mmap`.
//!
//! A private mapping is memory of the process that what is in the file is copied to. A shared one is of a
//! file in memory that stands for ours as long as it is mapped: reads and writes go there as well, so all
//! see the same.

use std::ffi::{c_int, c_void};

use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MAP_SHARED, MAP_TYPE, O_ACCMODE, O_RDWR,
    PROT_EXEC, PROT_READ, PROT_WRITE, off_t, size_t,
};
use rustix::io::Errno;

use crate::errno::Result;
use crate::table::{self, Held, OpenFile};
use crate::{data, errno, real};

/// Whether a file is in memory that somebody shares.
#[inline]
pub(crate) fn is_mapped(_held: &Held) -> bool {
    false
}

/// Writes what was changed in memory to the file.
pub(crate) fn write_back(_held: &Held) -> Result<()> {
    Ok(())
}

/// A file is closed; its mappings stay.
pub(crate) fn note_close(_file: &OpenFile) {}

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
        return Err(Errno::from_raw_os_error(errno::get()));
    }
    if let Err(errno) = fill(held, memory, bytes, offset) {
        real::munmap(memory, bytes);
        return Err(errno);
    }
    if protection != PROT_READ | PROT_WRITE && libc::mprotect(memory, bytes, protection) != 0 {
        let errno = Errno::from_raw_os_error(errno::get());
        real::munmap(memory, bytes);
        return Err(errno);
    }
    Ok(memory)
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
    if bytes == 0 || offset < 0 || offset % 4096 != 0 || protection & !known != 0 {
        return Err(Errno::INVAL);
    }
    if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 && !(at as usize).is_multiple_of(4096) {
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
            if protection & PROT_WRITE == 0 {
                return map_private(held, at, bytes, protection, flags, offset as u64);
            }
            Err(Errno::NODEV)
        }
        _ => Err(Errno::INVAL),
    }
}

exported! {
    fn mmap(
        at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t,
    ) -> *mut c_void {
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
        real::munmap(at, bytes)
    }

    fn msync(at: *mut c_void, bytes: size_t, flags: c_int) -> c_int {
        real::msync(at, bytes, flags)
    }
}

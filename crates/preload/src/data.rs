//! Reading and writing.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{O_DIRECT, O_DSYNC, O_SYNC, SEEK_CUR, SEEK_END, SEEK_SET, iovec, off_t, size_t, ssize_t};
use rustix::io::Errno;
use unvme_fs::calls::{Reply, Request};
use unvme_fs::{Allocation, Vnode};

use crate::errno::{self, Result, bytes, done};
use crate::table::{self, Held};
use crate::{limit, memory, place, real};

/// The longest read or write, as Linux has it.
const LONGEST: usize = 0x7fff_f000;

/// Pieces of a vector that go together.
const TOGETHER: usize = 1 << 20;

/// Flags of `sync_file_range`.
const SYNC_FILE_RANGE_WAIT_BEFORE: c_uint = 1;
const SYNC_FILE_RANGE_WAIT_AFTER: c_uint = 4;

const SEEK_DATA: c_int = 3;
const SEEK_HOLE: c_int = 4;

/// Memory for what is read at `at`: as far as it can be written to, and no farther than the end of the file
/// where that matters, since a file may be much shorter than the memory for it.
///
/// # Errors
/// EFAULT when nothing of it can be written to; those of a descriptor that cannot be read.
///
/// # Safety
/// As for `read(2)`.
#[inline]
unsafe fn output<'a>(
    held: &Held,
    at: impl FnOnce() -> u64,
    (buf, count): (*mut c_void, usize),
) -> Result<&'a mut [u8]> {
    if count == 0 {
        return Ok(&mut []);
    }
    /// Bytes that are probed without a look at the size of the file.
    const PROBED: usize = 1 << 20;
    if count <= PROBED && memory::check_writable(buf, count).is_ok() {
        return Ok(std::slice::from_raw_parts_mut(buf.cast(), count));
    }
    part_of_output(held, at(), buf, count.min(LONGEST))
}

#[cold]
unsafe fn part_of_output<'a>(held: &Held, at: u64, buf: *mut c_void, count: usize) -> Result<&'a mut [u8]> {
    held.check_readable()?;
    if held.is_directory() {
        return Err(Errno::ISDIR);
    }
    match size(held)?.saturating_sub(at).min(count as u64) as usize {
        0 => Ok(&mut []),
        left => Ok(std::slice::from_raw_parts_mut(buf.cast(), memory::writable(buf, left)?)),
    }
}

/// What is written: as far as it can be read, as the kernel has it.
///
/// # Errors
/// EFAULT when nothing of it can be read.
///
/// # Safety
/// As for `write(2)`.
unsafe fn input<'a>(buf: *const c_void, count: usize) -> Result<&'a [u8]> {
    if count == 0 {
        return Ok(&[]);
    }
    Ok(std::slice::from_raw_parts(buf.cast(), memory::readable(buf, count.min(LONGEST))?))
}

/// Bytes of a file.
///
/// # Errors
/// EIO.
pub(crate) fn size(held: &Held) -> Result<u64> {
    crate::attributes::of_open(held).map(|found| found.size)
}

/// Reads from an offset on.
#[inline]
pub(crate) fn read_at(held: &Held, offset: u64, out: &mut [u8]) -> Result<usize> {
    held.check_readable()?;
    if held.is_directory() {
        return Err(Errno::ISDIR);
    }
    let read = match held.direct() {
        Some(vnode) => {
            let is_direct = held.flags() & O_DIRECT != 0;
            errno::of(if is_direct { vnode.read_direct(offset, out) } else { vnode.read_at(offset, out) })?
        }
        None => {
            // The pages that a server shows are its cache.
            let shown = if held.flags() & O_DIRECT == 0 { held.read_shown(offset, out) } else { None };
            match shown {
                Some(read) => read,
                None => match held.mount.call(&Request::Read { open: held.open(), offset }, &[], out)? {
                    Reply::Number(read) => read as usize,
                    _ => return Err(Errno::IO),
                },
            }
        }
    };
    held.mount.counters.read.add(1);
    Ok(read)
}

fn after_write(held: &Held, end: u64) -> Result<()> {
    held.mount.counters.written.add(1);
    let flags = held.flags();
    if held.mount.config.prealloc > 0 {
        reserve(held, end);
    }
    if flags & (O_SYNC | O_DSYNC) != 0 {
        sync_one(held, flags & O_SYNC != O_SYNC)?;
    }
    Ok(())
}

/// Reserves space behind the end of a file that has grown. Without it the file is as well, only in more
/// pieces.
fn reserve(held: &Held, end: u64) {
    let step = held.mount.config.prealloc;
    let steps = end.div_ceil(step).min(u32::MAX.into()) as u32;
    if held.reserved.fetch_max(steps, Ordering::Relaxed) < steps && !end.is_multiple_of(step) {
        let mode = libc::FALLOC_FL_KEEP_SIZE;
        let bytes = u64::from(steps) * step - end;
        let _ = held.call(&Request::Allocate { open: held.open(), mode, offset: end, bytes });
    }
}

/// The file to write to without a request. A file that may have set-id bits or capabilities needs one, which
/// removes what the thread's user takes away.
#[inline]
fn written_direct(held: &Held) -> Option<&Vnode> {
    held.direct().filter(|vnode| !vnode.may_grant_privileges())
}

/// Writes from an offset on.
#[inline]
pub(crate) fn write_at(held: &Held, offset: u64, data: &[u8]) -> Result<usize> {
    held.check_writable()?;
    let data = &data[..limit::room(offset, data.len())?];
    let written = match written_direct(held) {
        Some(vnode) => {
            let is_direct = held.flags() & O_DIRECT != 0;
            errno::of(if is_direct {
                vnode.write_direct(offset, data)
            } else {
                vnode.write_at(offset, data)
            })?
        }
        None => match held.mount.call(&Request::Write { open: held.open(), offset }, data, &mut [])? {
            Reply::Number(written) => written as usize,
            _ => return Err(Errno::IO),
        },
    };
    after_write(held, offset + written as u64)?;
    Ok(written)
}

/// Writes behind the end, and says where that was. The file's offset stays.
fn append_at(held: &Held, data: &[u8]) -> Result<(u64, usize)> {
    held.check_writable()?;
    let data = if limit::is_any() { &data[..limit::room(size(held)?, data.len())?] } else { data };
    let (at, written) = match written_direct(held) {
        Some(vnode) => errno::of(vnode.append(data))?,
        None => match held.mount.call(&Request::Append { open: held.open() }, data, &mut [])? {
            Reply::Appended(at, written) => (at, written as usize),
            _ => return Err(Errno::IO),
        },
    };
    after_write(held, at + written as u64)?;
    Ok((at, written))
}

/// As [`append_at`], and the file's offset is behind it.
fn append(held: &Held, data: &[u8]) -> Result<usize> {
    if data.is_empty() {
        // Nothing is written, and the offset stays.
        return held.check_writable().map(|()| 0);
    }
    let (at, written) = append_at(held, data)?;
    held.slot.offset.store(at + written as u64, Ordering::Relaxed);
    Ok(written)
}

/// Writes at an offset, which appends where the file does: Linux does so whatever the offset is.
fn write_placed(held: &Held, offset: u64, data: &[u8]) -> Result<usize> {
    if held.appends() {
        append_at(held, data).map(|(_, written)| written)
    } else {
        write_at(held, offset, data)
    }
}

/// Reads where the file's offset is, which moves on.
pub(crate) fn read_next(held: &Held, out: &mut [u8]) -> Result<usize> {
    loop {
        let at = held.slot.offset.load(Ordering::Acquire);
        let read = read_at(held, at, out)?;
        let next = at + read as u64;
        // Another reader of the same open file may have been faster: what he has read is not read again.
        if held.slot.offset.compare_exchange(at, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Ok(read);
        }
    }
}

/// Writes where the file's offset is, which moves on first: of two writers each has a place of his own.
pub(crate) fn write_next(held: &Held, data: &[u8]) -> Result<usize> {
    if held.appends() {
        return append(held, data);
    }
    held.check_writable()?;
    let bytes = data.len() as u64;
    let at = held.slot.offset.fetch_add(bytes, Ordering::AcqRel);
    let written = write_at(held, at, data);
    let is_short = *written.as_ref().unwrap_or(&0) < data.len();
    if is_short {
        let end = at + *written.as_ref().unwrap_or(&0) as u64;
        let _ = held.slot.offset.compare_exchange(at + bytes, end, Ordering::AcqRel, Ordering::Relaxed);
    }
    written
}

/// # Errors
/// EINVAL when the bytes would end behind what an offset can say; those of `check`, which comes before.
fn room_of(offset: off_t, count: usize, check: impl FnOnce() -> Result<()>) -> Result<u64> {
    let at = offset_of(offset)?;
    check()?;
    let end = at.checked_add(count.min(LONGEST) as u64).filter(|&end| end <= off_t::MAX as u64);
    end.map(|_| at).ok_or(Errno::INVAL)
}

fn offset_of(offset: off_t) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Errno::INVAL)
}

/// # Safety
/// As for `readv(2)`.
unsafe fn vectors<'a>(iov: *const iovec, count: c_int) -> Result<&'a [iovec]> {
    const MOST: c_int = 1024;
    match count {
        0 => Ok(&[]),
        1..=MOST => {
            memory::check_readable(iov.cast(), count as usize * size_of::<iovec>())?;
            let all = std::slice::from_raw_parts(iov, count as usize);
            let sum = all.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len));
            sum.filter(|&sum| sum <= isize::MAX as usize).map(|_| all).ok_or(Errno::INVAL)
        }
        _ => Err(Errno::INVAL),
    }
}

/// Writes at its offset also where the file appends.
const RWF_NOAPPEND: c_int = 0x20;
/// What is written is not to stay in memory: a hint.
const RWF_DONTCACHE: c_int = 0x80;
/// Flags of `preadv2` and `pwritev2`.
const KNOWN_FLAGS: c_int = libc::RWF_HIPRI
    | libc::RWF_DSYNC
    | libc::RWF_SYNC
    | libc::RWF_NOWAIT
    | libc::RWF_APPEND
    | RWF_NOAPPEND
    | RWF_DONTCACHE;

/// What is said to flags that there are not: nothing when there is nothing to be done either.
///
/// # Safety
/// As for `readv(2)`.
unsafe fn unsupported(iov: *const iovec, count: c_int) -> Result<usize> {
    if vectors(iov, count)?.iter().all(|part| part.iov_len == 0) { Ok(0) } else { Err(Errno::OPNOTSUPP) }
}

/// # Safety
/// As for `readv(2)`.
unsafe fn read_vectors(
    held: &Held,
    iov: &[iovec],
    at: Option<u64>,
    mut next: impl FnMut(&Held, u64, &mut [u8]) -> Result<usize>,
) -> Result<usize> {
    held.check_readable()?;
    let mut sum = 0;
    for part in iov {
        let now = || at.map_or_else(|| held.slot.offset.load(Ordering::Relaxed), |at| at + sum as u64);
        let out = output(held, now, (part.iov_base, part.iov_len));
        let done = out.and_then(|out| next(held, sum as u64, out));
        let read = match done {
            Err(_) if sum > 0 => break,
            other => other?,
        };
        sum += read;
        if read < part.iov_len {
            break;
        }
    }
    Ok(sum)
}

/// # Safety
/// As for `writev(2)`.
unsafe fn write_vectors(
    held: &Held,
    iov: &[iovec],
    mut next: impl FnMut(&Held, u64, &[u8]) -> Result<usize>,
) -> Result<usize> {
    held.check_writable()?;
    let total: usize = iov.iter().map(|part| part.iov_len).fold(0, usize::saturating_add);
    if total <= TOGETHER && iov.len() > 1 {
        // Together, so that nobody's data come in between.
        let mut all = Vec::with_capacity(total);
        for part in iov {
            let data = match input(part.iov_base, part.iov_len) {
                Err(_) if !all.is_empty() => break,
                data => data?,
            };
            all.extend_from_slice(data);
            if data.len() < part.iov_len {
                break;
            }
        }
        return next(held, 0, &all);
    }
    let mut sum = 0;
    for part in iov {
        let written = match input(part.iov_base, part.iov_len).and_then(|data| next(held, sum as u64, data)) {
            Err(_) if sum > 0 => break,
            other => other?,
        };
        sum += written;
        if written < part.iov_len {
            break;
        }
    }
    Ok(sum)
}

/// Makes what was written durable.
///
/// # Errors
/// EBADF; EIO, also once when the server that had it was killed.
pub(crate) fn sync_one(held: &Held, data_only: bool) -> Result<()> {
    held.check_open()?;
    held.mount.counters.synced.add(1);
    let synced = match held.direct() {
        Some(vnode) => errno::of(if data_only { vnode.sync_data() } else { vnode.sync() }),
        None => held.call(&Request::Sync { open: held.open(), data_only }).map(drop),
    };
    report_loss(held, &held.slot.synced, synced)
}

/// What a call reports that has waited for what was written: the loss of it comes first.
fn report_loss(held: &Held, known: &AtomicU32, done: Result<()>) -> Result<()> {
    // Where this call has found out that the server was killed, it has reported the loss, too.
    if done == Err(Errno::IO) {
        held.mount.find_server();
    }
    if held.take_lost(known) { Err(Errno::IO) } else { done }
}

fn sync_all(held: &Held) -> Result<()> {
    held.check_open()?;
    report_loss(held, &held.slot.all_synced, held.call(&Request::SyncAll).map(drop))
}

fn write_back(held: &Held, waits: bool) -> Result<()> {
    let done = held.call(&Request::WriteBack { open: held.open() }).map(drop);
    if waits { report_loss(held, &held.slot.synced, done) } else { done }
}

unsafe fn read_any(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t {
    let Some(held) = table::get(fd) else { return real::read(fd, buf, count) };
    let out = output(&held, || held.slot.offset.load(Ordering::Relaxed), (buf, count));
    bytes(out.and_then(|out| read_next(&held, out)))
}

unsafe fn pread_any(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t {
    let Some(held) = table::get(fd) else { return real::pread(fd, buf, count, offset) };
    let at = room_of(offset, count, || held.check_readable());
    bytes(at.and_then(|at| read_at(&held, at, output(&held, || at, (buf, count))?)))
}

unsafe fn pwrite_any(fd: c_int, buf: *const c_void, count: size_t, offset: off_t) -> ssize_t {
    let Some(held) = table::get(fd) else { return real::pwrite(fd, buf, count, offset) };
    let place = |at| input(buf, count).map(|data| (at, data));
    let room = room_of(offset, count, || held.check_writable());
    bytes(room.and_then(place).and_then(|(at, data)| write_placed(&held, at, data)))
}

unsafe fn lseek_any(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    let Some(held) = table::get(fd) else { return real::lseek(fd, offset, whence) };
    match seek(&held, offset, whence) {
        Ok(at) => at,
        Err(errno) => {
            errno::set(errno);
            -1
        }
    }
}

/// Moves the offset of a file.
pub(crate) fn seek(held: &Held, offset: off_t, whence: c_int) -> Result<off_t> {
    held.check_open()?;
    let from = |base: u64| (base as i64).checked_add(offset).ok_or(Errno::INVAL);
    let to = match whence {
        SEEK_SET => offset,
        SEEK_CUR => from(held.slot.offset.load(Ordering::Relaxed))?,
        SEEK_END if held.is_directory() => return Err(Errno::INVAL),
        SEEK_END => from(size(held)?)?,
        SEEK_DATA | SEEK_HOLE => {
            if offset < 0 || offset as u64 >= size(held)? {
                return Err(Errno::NXIO);
            }
            let seek =
                Request::Seek { open: held.open(), offset: offset as u64, is_hole: whence == SEEK_HOLE };
            match held.call(&seek)? {
                Reply::Number(at) => at as off_t,
                _ => return Err(Errno::IO),
            }
        }
        _ => return Err(Errno::INVAL),
    };
    if to < 0 {
        return Err(Errno::INVAL);
    }
    if held.is_directory() {
        crate::directory::seek_descriptor(held);
    }
    held.slot.offset.store(to as u64, Ordering::Relaxed);
    Ok(to)
}

exported! {
    fn read(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t {
        read_any(fd, buf, count)
    }

    fn __read(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t {
        read_any(fd, buf, count)
    }

    fn __read_chk(fd: c_int, buf: *mut c_void, count: size_t, _room: size_t) -> ssize_t {
        read_any(fd, buf, count)
    }

    fn write(fd: c_int, buf: *const c_void, count: size_t) -> ssize_t {
        let Some(held) = table::get(fd) else { return real::write(fd, buf, count) };
        let data = held.check_writable().and_then(|()| input(buf, count));
        bytes(data.and_then(|data| write_next(&held, data)))
    }

    fn __write(fd: c_int, buf: *const c_void, count: size_t) -> ssize_t {
        write(fd, buf, count)
    }

    fn pread(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t {
        pread_any(fd, buf, count, offset)
    }

    fn pread64(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t {
        pread_any(fd, buf, count, offset)
    }

    fn __pread64(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t {
        pread_any(fd, buf, count, offset)
    }

    fn __pread_chk(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t, _room: size_t) -> ssize_t {
        pread_any(fd, buf, count, offset)
    }

    fn __pread64_chk(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t, _room: size_t) -> ssize_t {
        pread_any(fd, buf, count, offset)
    }

    fn pwrite(fd: c_int, buf: *const c_void, count: size_t, offset: off_t) -> ssize_t {
        pwrite_any(fd, buf, count, offset)
    }

    fn pwrite64(fd: c_int, buf: *const c_void, count: size_t, offset: off_t) -> ssize_t {
        pwrite_any(fd, buf, count, offset)
    }

    fn __pwrite64(fd: c_int, buf: *const c_void, count: size_t, offset: off_t) -> ssize_t {
        pwrite_any(fd, buf, count, offset)
    }

    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
        let Some(held) = table::get(fd) else { return real::readv(fd, iov, count) };
        let iov = held.check_readable().and_then(|()| vectors(iov, count));
        bytes(iov.and_then(|iov| read_vectors(&held, iov, None, |held, _, out| read_next(held, out))))
    }

    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
        let Some(held) = table::get(fd) else { return real::writev(fd, iov, count) };
        let iov = held.check_writable().and_then(|()| vectors(iov, count));
        bytes(iov.and_then(|iov| write_vectors(&held, iov, |held, _, data| write_next(held, data))))
    }

    fn preadv(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        let Some(held) = table::get(fd) else { return real::preadv(fd, iov, count, offset) };
        bytes(offset_of(offset).and_then(|at| {
            held.check_readable()?;
            read_vectors(&held, vectors(iov, count)?, Some(at), |held, more, out| read_at(held, at + more, out))
        }))
    }

    fn preadv64(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        preadv(fd, iov, count, offset)
    }

    fn pwritev(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        let Some(held) = table::get(fd) else { return real::pwritev(fd, iov, count, offset) };
        bytes(offset_of(offset).and_then(|at| {
            held.check_writable()?;
            write_vectors(&held, vectors(iov, count)?, |held, more, data| write_placed(held, at + more, data))
        }))
    }

    fn pwritev64(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        pwritev(fd, iov, count, offset)
    }

    fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        let Some(held) = table::get(fd) else { return real::preadv2(fd, iov, count, offset, flags) };
        if offset < -1 {
            return bytes(Err(Errno::INVAL));
        }
        if flags & !KNOWN_FLAGS != 0 {
            return bytes(held.check_readable().and_then(|()| unsupported(iov, count)));
        }
        drop(held);
        if offset == -1 { readv(fd, iov, count) } else { preadv(fd, iov, count, offset) }
    }

    fn preadv64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        preadv2(fd, iov, count, offset, flags)
    }

    fn pwritev2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        if !table::is_ours(fd) {
            return real::pwritev2(fd, iov, count, offset, flags);
        }
        let Some(held) = table::get(fd) else { return real::pwritev2(fd, iov, count, offset, flags) };
        if offset < -1 {
            return bytes(Err(Errno::INVAL));
        }
        if flags & !KNOWN_FLAGS != 0 {
            return bytes(held.check_writable().and_then(|()| unsupported(iov, count)));
        }
        let appended = |held: &Held| {
            held.check_writable()?;
            let iov = vectors(iov, count)?;
            write_vectors(held, iov, |held, _, data| match offset {
                -1 => append(held, data),
                _ => append_at(held, data).map(|(_, written)| written),
            })
        };
        let placed = |held: &Held| {
            held.check_writable()?;
            let iov = vectors(iov, count)?;
            let at = if offset == -1 { held.slot.offset.load(Ordering::Acquire) } else { offset as u64 };
            let written = write_vectors(held, iov, |held, more, data| write_at(held, at + more, data))?;
            if offset == -1 {
                held.slot.offset.store(at + written as u64, Ordering::Release);
            }
            Ok(written)
        };
        let written = if flags & (libc::RWF_APPEND | RWF_NOAPPEND) == libc::RWF_APPEND | RWF_NOAPPEND {
            bytes(Err(Errno::INVAL))
        } else if flags & libc::RWF_APPEND != 0 {
            bytes(appended(&held))
        } else if flags & RWF_NOAPPEND != 0 {
            bytes(placed(&held))
        } else if offset == -1 {
            writev(fd, iov, count)
        } else {
            pwritev(fd, iov, count, offset)
        };
        if written > 0
            && flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0
            && let Err(errno) = sync_one(&held, flags & libc::RWF_SYNC == 0)
        {
            errno::set(errno);
            return -1;
        }
        written
    }

    fn pwritev64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        pwritev2(fd, iov, count, offset, flags)
    }

    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
        lseek_any(fd, offset, whence)
    }

    fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t {
        lseek_any(fd, offset, whence)
    }

    fn __lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
        lseek_any(fd, offset, whence)
    }

    fn fsync(fd: c_int) -> c_int {
        let Some(held) = table::get(fd) else { return real::fsync(fd) };
        done(sync_one(&held, false))
    }

    fn fdatasync(fd: c_int) -> c_int {
        let Some(held) = table::get(fd) else { return real::fdatasync(fd) };
        done(sync_one(&held, true))
    }

    fn sync() {
        real::sync();
        if crate::state::is_on() && !crate::gate::is_inside() {
            let _inside = crate::gate::enter();
            crate::mount::all().iter().filter(|mount| mount.is_mounted()).for_each(|mount| {
                let _ = mount.call(&Request::SyncAll, &[], &mut []);
            });
        }
    }

    fn syncfs(fd: c_int) -> c_int {
        let Some(held) = table::get(fd) else { return real::syncfs(fd) };
        done(sync_all(&held))
    }

    fn sync_file_range(fd: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int {
        let Some(held) = table::get(fd) else { return real::sync_file_range(fd, offset, bytes, flags) };
        let is_wrong = offset < 0 || bytes < 0 || offset.checked_add(bytes).is_none() || flags & !7 != 0;
        done(if held.check_open().is_err() {
            Err(Errno::BADF)
        } else if is_wrong {
            Err(Errno::INVAL)
        } else if held.is_directory() || flags == 0 {
            Ok(())
        } else {
            write_back(&held, flags & (SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER) != 0)
        })
    }

    fn ftruncate(fd: c_int, size: off_t) -> c_int {
        let Some(held) = table::get(fd) else { return real::ftruncate(fd, size) };
        done(truncate_open(&held, size))
    }

    fn ftruncate64(fd: c_int, size: off_t) -> c_int {
        ftruncate(fd, size)
    }

    fn truncate(path: *const std::ffi::c_char, size: off_t) -> c_int {
        if size < 0 {
            return real::truncate(path, size);
        }
        let size = size as u64;
        let truncate = |mount: &'static crate::mount::Mount, at: unvme_fs::calls::At<'_>| {
            limit::check(size, || match mount.ask(&Request::Attributes { at })? {
                Reply::Attributes(found) => Ok(found.size),
                _ => Err(Errno::IO),
            })?;
            mount.ask(&Request::Truncate { at, size })
        };
        match place::call(libc::AT_FDCWD, path, true, truncate) {
            Ok(place::Outcome::Kernel) => real::truncate(path, size as off_t),
            Ok(place::Outcome::Other(path)) => real::truncate(path.as_ptr(), size as off_t),
            other => done(other.map(drop)),
        }
    }

    fn truncate64(path: *const std::ffi::c_char, size: off_t) -> c_int {
        truncate(path, size)
    }

    fn fallocate(fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int {
        let Some(held) = table::get(fd) else { return real::fallocate(fd, mode, offset, bytes) };
        done(allocate(&held, mode, offset, bytes))
    }

    fn fallocate64(fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int {
        fallocate(fd, mode, offset, bytes)
    }

    fn posix_fallocate(fd: c_int, offset: off_t, bytes: off_t) -> c_int {
        let Some(held) = table::get(fd) else { return real::posix_fallocate(fd, offset, bytes) };
        allocate(&held, 0, offset, bytes).err().map_or(0, Errno::raw_os_error)
    }

    fn posix_fallocate64(fd: c_int, offset: off_t, bytes: off_t) -> c_int {
        posix_fallocate(fd, offset, bytes)
    }

    fn posix_fadvise(fd: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int {
        let Some(held) = table::get(fd) else { return real::posix_fadvise(fd, offset, bytes, advice) };
        if held.check_open().is_err() {
            return libc::EBADF;
        }
        if bytes < 0 || !(0..=5).contains(&advice) {
            return libc::EINVAL;
        }
        let is_needed = advice == libc::POSIX_FADV_WILLNEED;
        if (is_needed || advice == libc::POSIX_FADV_DONTNEED) && held.is_regular() {
            let (offset, bytes) = (offset.max(0) as u64, bytes as u64);
            // It is advice: nothing comes of it that a program could rely on.
            let _ = held.call(&Request::Advise { open: held.open(), offset, bytes, is_needed });
        }
        0
    }

    fn posix_fadvise64(fd: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int {
        posix_fadvise(fd, offset, bytes, advice)
    }

    fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t {
        let Some(held) = table::get(fd) else { return real::readahead(fd, offset, count) };
        let advise = |offset: u64| {
            held.check_readable()?;
            if !held.is_regular() {
                return Err(Errno::INVAL);
            }
            let bytes = count.max(1) as u64;
            held.call(&Request::Advise { open: held.open(), offset, bytes, is_needed: true }).map(|_| 0)
        };
        bytes(offset_of(offset).and_then(advise))
    }
}

fn truncate_open(held: &Held, size: off_t) -> Result<()> {
    let size = offset_of(size)?;
    held.check_open()?;
    held.check_writable().map_err(|_| Errno::INVAL)?;
    if !held.is_regular() {
        return Err(Errno::INVAL);
    }
    limit::check(size, || self::size(held))?;
    let at = held.at();
    held.call(&Request::Truncate { at, size }).map(drop)
}

fn allocate(held: &Held, mode: c_int, offset: off_t, bytes: off_t) -> Result<()> {
    held.check_open()?;
    if offset < 0 || bytes <= 0 {
        return Err(Errno::INVAL);
    }
    errno::of(Allocation::from_mode(mode))?;
    held.check_writable()?;
    let (offset, bytes) = (offset as u64, bytes as u64);
    if mode & !libc::FALLOC_FL_KEEP_SIZE == 0 {
        limit::check(offset.saturating_add(bytes), || size(held))?;
    }
    held.call(&Request::Allocate { open: held.open(), mode, offset, bytes }).map(drop)
}

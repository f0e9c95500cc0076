//! Copies from one descriptor to another one.

use std::ffi::{c_int, c_uint, c_void};

use libc::{off_t, size_t, ssize_t};
use rustix::io::Errno;
use unvme_fs::calls::{Reply, Request};

use crate::data::{read_at, read_next, write_at, write_next};
use crate::errno::{Result, bytes};
use crate::table::{self, Held};
use crate::{errno, real};

const PIECE: usize = 1 << 18;

/// One end of a copy.
enum End {
    Ours(Held),
    Kernel(c_int),
}

impl End {
    fn new(fd: c_int) -> Self {
        table::get(fd).map_or(Self::Kernel(fd), Self::Ours)
    }

    /// # Safety
    /// `at` is null or an offset.
    unsafe fn read(&self, at: *mut off_t, out: &mut [u8]) -> Result<usize> {
        let read = match self {
            Self::Ours(held) if at.is_null() => read_next(held, out)?,
            Self::Ours(held) => read_at(held, u64::try_from(*at).map_err(|_| Errno::INVAL)?, out)?,
            Self::Kernel(fd) if at.is_null() => {
                of_kernel(real::read(*fd, out.as_mut_ptr().cast::<c_void>(), out.len()))?
            }
            Self::Kernel(fd) => of_kernel(real::pread(*fd, out.as_mut_ptr().cast(), out.len(), *at))?,
        };
        if !at.is_null() {
            *at += read as off_t;
        }
        Ok(read)
    }

    /// # Safety
    /// As for [`Self::read`].
    unsafe fn write(&self, at: *mut off_t, data: &[u8]) -> Result<usize> {
        let written = match self {
            Self::Ours(held) if at.is_null() => write_next(held, data)?,
            Self::Ours(held) => write_at(held, u64::try_from(*at).map_err(|_| Errno::INVAL)?, data)?,
            Self::Kernel(fd) if at.is_null() => {
                of_kernel(real::write(*fd, data.as_ptr().cast(), data.len()))?
            }
            Self::Kernel(fd) => of_kernel(real::pwrite(*fd, data.as_ptr().cast(), data.len(), *at))?,
        };
        if !at.is_null() {
            *at += written as off_t;
        }
        Ok(written)
    }

    /// What was read and could not be written is read again by whoever comes next.
    unsafe fn take_back(&self, at: *mut off_t, unwritten: usize) {
        match self {
            _ if !at.is_null() => *at -= unwritten as off_t,
            Self::Ours(held) => {
                held.slot.offset.fetch_sub(unwritten as u64, std::sync::atomic::Ordering::AcqRel);
            }
            Self::Kernel(fd) => {
                real::lseek(*fd, -(unwritten as off_t), libc::SEEK_CUR);
            }
        }
    }
}

fn of_kernel(result: ssize_t) -> Result<usize> {
    usize::try_from(result).map_err(|_| errno::last())
}

unsafe fn copy(
    (from, from_at): (&End, *mut off_t),
    (to, to_at): (&End, *mut off_t),
    count: size_t,
) -> Result<usize> {
    let mut buffer = vec![0; count.min(PIECE)];
    let mut sum = 0;
    while sum < count {
        let some = (count - sum).min(PIECE);
        let read = match from.read(from_at, &mut buffer[..some]) {
            Err(_) if sum > 0 => break,
            other => other?,
        };
        if read == 0 {
            break;
        }
        let written = match to.write(to_at, &buffer[..read]) {
            Ok(written) => written,
            Err(errno) => {
                from.take_back(from_at, read);
                if sum > 0 {
                    break;
                }
                return Err(errno);
            }
        };
        sum += written;
        if written < read {
            from.take_back(from_at, read - written);
            break;
        }
    }
    Ok(sum)
}

/// As [`copy`], for `sendfile`: where both ends are one open file, each goes on from where that was.
unsafe fn send(from: &End, from_at: *mut off_t, to: &End, count: size_t) -> Result<usize> {
    use std::sync::atomic::Ordering::{Acquire, Release};
    match (from, to) {
        (End::Ours(source), End::Ours(target)) if std::ptr::eq(source.slot, target.slot) => {
            let start = source.slot.offset.load(Acquire) as off_t;
            let (mut read, mut written) = (start, start);
            let read_at = if from_at.is_null() { &raw mut read } else { from_at };
            let copied = copy((from, read_at), (to, &raw mut written), count)?;
            target.slot.offset.store(written as u64, Release);
            Ok(copied)
        }
        _ => copy((from, from_at), (to, std::ptr::null_mut()), count),
    }
}

/// Waits until a pipe has something, or room for something.
unsafe fn await_pipe(fd: c_int, events: i16, waits: bool) -> Result<()> {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    match libc::poll(&mut one, 1, if waits { -1 } else { 0 }) {
        0 => Err(Errno::AGAIN),
        found if found < 0 => Err(errno::last()),
        _ => Ok(()),
    }
}

/// Bytes that a pipe which has room takes without waiting for a reader.
unsafe fn room_of_pipe(fd: c_int) -> Result<usize> {
    const PAGE: usize = 4096;
    let bytes = usize::try_from(real::fcntl(fd, libc::F_GETPIPE_SZ, 0)).map_err(|_| Errno::INVAL)?;
    let mut queued: c_int = 0;
    if real::ioctl(fd, libc::FIONREAD, &raw mut queued as usize) != 0 {
        return Err(Errno::INVAL);
    }
    // Each byte that waits may have a page for itself.
    Ok((bytes / PAGE).saturating_sub(queued.max(0) as usize).max(1) * PAGE)
}

/// Between a pipe and one of our files: what is there, as far as there is room for it.
unsafe fn splice_once(
    (from, from_at): (c_int, *mut off_t),
    (to, to_at): (c_int, *mut off_t),
    count: size_t,
    waits: bool,
) -> Result<usize> {
    check_ends(from, to, |kind| kind == libc::S_IFIFO)?;
    if table::get(to).is_some_and(|held| held.appends())
        || table::get(from).is_some_and(|held| held.is_directory())
    {
        return Err(Errno::INVAL);
    }
    let mut most = count.min(PIECE);
    // Nobody is inside meanwhile.
    if table::is_ours(from) {
        await_pipe(to, libc::POLLOUT, waits)?;
        most = most.min(room_of_pipe(to)?);
    } else {
        await_pipe(from, libc::POLLIN, waits)?;
    }
    let (from, to) = (End::new(from), End::new(to));
    let mut buffer = vec![0; most];
    let read = from.read(from_at, &mut buffer)?;
    let written = to.write(to_at, &buffer[..read]);
    let unwritten = read - *written.as_ref().unwrap_or(&0);
    if unwritten > 0 {
        from.take_back(from_at, unwritten);
    }
    written
}

/// Copies from one of our files to another one of the same file system.
unsafe fn copy_ours(
    (from, from_at): (&Held, *mut off_t),
    (to, to_at): (&Held, *mut off_t),
    count: size_t,
) -> Result<usize> {
    use std::sync::atomic::Ordering::AcqRel;
    if from.is_directory() || to.is_directory() {
        return Err(Errno::ISDIR);
    }
    from.check_readable()?;
    to.check_writable()?;
    if to.appends() {
        return Err(Errno::BADF);
    }
    let place = |held: &Held, at: *mut off_t| -> u64 {
        if at.is_null() { held.slot.offset.load(std::sync::atomic::Ordering::Acquire) } else { *at as u64 }
    };
    let (offset, to_offset) = (place(from, from_at), place(to, to_at));
    for at in [offset, to_offset] {
        at.checked_add(count as u64).ok_or(Errno::OVERFLOW)?;
    }
    for at in [offset, to_offset] {
        i64::try_from(at).map_err(|_| Errno::INVAL)?;
    }
    let count = crate::limit::room(to_offset, count)?;
    let request = Request::Copy { open: from.open(), offset, to: to.open(), to_offset, bytes: count as u64 };
    let Reply::Number(copied) = from.call(&request)? else { return Err(Errno::IO) };
    for (held, at) in [(from, from_at), (to, to_at)] {
        if at.is_null() {
            held.slot.offset.fetch_add(copied, AcqRel);
        } else {
            *at += copied as off_t;
        }
    }
    Ok(copied as usize)
}

/// Whether one end can be read and the other one written, and one of the kernel's that is read is of a kind.
unsafe fn check_ends(from: c_int, to: c_int, is_kind: impl Fn(u32) -> bool) -> Result<()> {
    for (fd, is_read) in [(from, true), (to, false)] {
        match table::get(fd) {
            Some(held) if is_read => held.check_readable()?,
            Some(held) => held.check_writable()?,
            None => {
                let flags = real::fcntl(fd, libc::F_GETFL, 0);
                let access = flags & libc::O_ACCMODE;
                let wrong = if is_read { libc::O_WRONLY } else { libc::O_RDONLY };
                if flags < 0 || access == wrong {
                    return Err(Errno::BADF);
                }
                let mut found: libc::stat = std::mem::zeroed();
                if is_read && real::fstat(fd, &mut found) == 0 && !is_kind(found.st_mode & libc::S_IFMT) {
                    return Err(Errno::INVAL);
                }
            }
        }
    }
    Ok(())
}

exported! {
    fn sendfile(out: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        if !table::is_ours(out) && !table::is_ours(from) {
            return real::sendfile(out, from, offset, count);
        }
        let count = count.min(0x7fff_f000);
        if let Err(errno) = check_ends(from, out, |kind| kind == libc::S_IFREG || kind == libc::S_IFBLK) {
            return bytes(Err(errno));
        }
        if table::get(out).is_some_and(|held| held.appends())
            || table::get(from).is_some_and(|held| held.is_directory())
        {
            return bytes(Err(Errno::INVAL));
        }
        bytes(send(&End::new(from), offset, &End::new(out), count))
    }

    fn sendfile64(out: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        sendfile(out, from, offset, count)
    }

    fn copy_file_range(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags: c_uint,
    ) -> ssize_t {
        let ends = (table::get(from), table::get(to));
        for held in [&ends.0, &ends.1].into_iter().flatten() {
            if let Err(errno) = held.check_open() {
                return bytes(Err(errno));
            }
        }
        match ends {
            (None, None) => real::copy_file_range(from, from_at, to, to_at, count, flags),
            _ if real::fcntl(from, libc::F_GETFD, 0) < 0 || real::fcntl(to, libc::F_GETFD, 0) < 0 => {
                bytes(Err(Errno::BADF))
            }
            _ if flags != 0 => bytes(Err(Errno::INVAL)),
            (Some(from), Some(to)) if from.mount.number == to.mount.number => {
                bytes(copy_ours((&from, from_at), (&to, to_at), count.min(1 << 30)))
            }
            _ => bytes(Err(Errno::XDEV)),
        }
    }

    fn splice(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags: c_uint,
    ) -> ssize_t {
        if !table::is_ours(from) && !table::is_ours(to) {
            return real::splice(from, from_at, to, to_at, count, flags);
        }
        if count == 0 {
            return 0;
        }
        // One end is a pipe.
        if table::is_ours(from) && table::is_ours(to) {
            return bytes(Err(Errno::INVAL));
        }
        let waits = flags & libc::SPLICE_F_NONBLOCK == 0;
        bytes(splice_once((from, from_at), (to, to_at), count, waits))
    }

    fn tee(from: c_int, to: c_int, count: size_t, flags: c_uint) -> ssize_t {
        if !table::is_ours(from) && !table::is_ours(to) {
            return real::tee(from, to, count, flags);
        }
        // Both ends are pipes.
        bytes(check_ends(from, to, |_| true).and(Err(Errno::INVAL)))
    }
}

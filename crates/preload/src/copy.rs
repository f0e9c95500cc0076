//! Copies from one descriptor to another one.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use libc::{off_t, size_t, ssize_t};
use rustix::io::Errno;
use unvme_fs::calls::{Reply, Request};

use crate::data::{read_at, write_at};
use crate::errno::{Result, bytes};
use crate::table::{self, Held};
use crate::{errno, memory, real};

/// Bytes that `sendfile` reads before it writes them.
const PIECE: usize = 1 << 18;

/// An offset that a caller gives by reference: read when a call begins, and written when it ends.
pub(crate) struct Given {
    pointer: *mut off_t,
    pub value: off_t,
}

impl Given {
    /// None for a null pointer, which stands for the offset of the open file.
    ///
    /// # Errors
    /// EFAULT for memory that cannot be read.
    pub(crate) unsafe fn load(pointer: *mut off_t) -> Result<Option<Self>> {
        if pointer.is_null() {
            return Ok(None);
        }
        memory::check_readable(pointer.cast(), size_of::<off_t>())?;
        Ok(Some(Self { pointer, value: pointer.read_unaligned() }))
    }

    /// # Errors
    /// EFAULT for memory that cannot be written: what was copied stays copied, as with the kernel.
    pub(crate) unsafe fn store(&self) -> Result<()> {
        memory::check_writable(self.pointer.cast(), size_of::<off_t>())?;
        self.pointer.write_unaligned(self.value);
        Ok(())
    }
}

/// # Errors
/// EINVAL for a negative one.
pub(crate) fn offset_of(offset: off_t) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Errno::INVAL)
}

pub(crate) fn of_kernel(result: ssize_t) -> Result<usize> {
    usize::try_from(result).map_err(|_| errno::last())
}

/// Waits until a pipe has something, or space for something.
pub(crate) unsafe fn await_pipe(fd: c_int, events: i16, waits: bool) -> Result<()> {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    match libc::poll(&mut one, 1, if waits { -1 } else { 0 }) {
        0 => Err(Errno::AGAIN),
        found if found < 0 => Err(errno::last()),
        _ => Ok(()),
    }
}

pub(crate) unsafe fn is_pipe(fd: c_int) -> bool {
    let mut found: libc::stat = std::mem::zeroed();
    real::fstat(fd, &mut found) == 0 && found.st_mode & libc::S_IFMT == libc::S_IFIFO
}

/// One end of a `sendfile`. A file of ours is looked up for each piece: a thread that waits for the kernel's
/// end is not inside a call, so that it does not keep a `fork` of another thread waiting.
struct End {
    fd: c_int,
    /// The open file of ours that the descriptor stood for at the beginning.
    ours: Option<u32>,
}

impl End {
    fn new(fd: c_int) -> Self {
        Self { fd, ours: table::get(fd).map(|held| held.number) }
    }

    /// # Errors
    /// EBADF when another thread has closed it.
    fn held(&self) -> Result<Option<Held>> {
        match self.ours {
            None => Ok(None),
            Some(number) => {
                table::get(self.fd).filter(|held| held.number == number).map(Some).ok_or(Errno::BADF)
            }
        }
    }

    /// The offset of the open file. None for one of the kernel's that has none.
    unsafe fn offset(&self) -> Result<Option<off_t>> {
        Ok(match self.held()? {
            Some(held) => Some(held.slot.offset.load(Acquire) as off_t),
            None => Some(real::lseek(self.fd, 0, libc::SEEK_CUR)).filter(|&at| at >= 0),
        })
    }

    unsafe fn set_offset(&self, at: off_t) -> Result<()> {
        match self.held()? {
            Some(held) => held.slot.offset.store(at as u64, Release),
            None => {
                real::lseek(self.fd, at, libc::SEEK_SET);
            }
        }
        Ok(())
    }

    unsafe fn read(&self, at: off_t, out: &mut [u8]) -> Result<usize> {
        match self.held()? {
            Some(held) => read_at(&held, offset_of(at)?, out),
            None => of_kernel(real::pread(self.fd, out.as_mut_ptr().cast(), out.len(), at)),
        }
    }

    /// Without an offset: where the kernel's end is, which moves on.
    unsafe fn write(&self, at: Option<off_t>, data: &[u8]) -> Result<usize> {
        match (self.held()?, at) {
            (Some(held), Some(at)) => write_at(&held, offset_of(at)?, data),
            (Some(_), None) => Err(Errno::INVAL),
            (None, _) => of_kernel(real::write(self.fd, data.as_ptr().cast(), data.len())),
        }
    }

    /// # Errors
    /// EAGAIN for a pipe that is full and does not wait: the kernel says so before it looks at the file.
    unsafe fn check_space(&self) -> Result<()> {
        let waits = self.ours.is_some() || real::fcntl(self.fd, libc::F_GETFL, 0) & libc::O_NONBLOCK == 0;
        if waits || !is_pipe(self.fd) { Ok(()) } else { await_pipe(self.fd, libc::POLLOUT, false) }
    }
}

/// Copies from an offset on, which moves behind what the other end has accepted, and not farther.
unsafe fn copy(
    (from, from_at): (&End, &mut off_t),
    (to, to_at): (&End, &mut Option<off_t>),
    count: size_t,
) -> Result<usize> {
    let mut buffer = vec![0; count.min(PIECE)];
    let mut sum = 0;
    while sum < count {
        let some = (count - sum).min(PIECE);
        let written = match from.read(*from_at, &mut buffer[..some]) {
            Ok(0) => break,
            Ok(read) => to.write(*to_at, &buffer[..read]).map(|written| (read, written)),
            Err(errno) => Err(errno),
        };
        let (read, written) = match written {
            Err(_) if sum > 0 => break,
            other => other?,
        };
        sum += written;
        *from_at += written as off_t;
        if let Some(at) = to_at {
            *at += written as off_t;
        }
        if written < read {
            break;
        }
    }
    if sum == 0 {
        to.check_space()?;
    }
    Ok(sum)
}

/// `sendfile`. As with the kernel, offsets are those at its beginning, and change at its end: one open file
/// may be both ends.
unsafe fn send(from: &End, given: Option<&mut Given>, to: &End, count: size_t) -> Result<usize> {
    let begins = match &given {
        Some(given) => given.value,
        None => from.offset()?.ok_or(Errno::SPIPE)?,
    };
    offset_of(begins)?;
    let (mut from_at, mut to_at) = (begins, None);
    if to.ours.is_some() {
        to_at = to.offset()?;
    }
    let copied = copy((from, &mut from_at), (to, &mut to_at), count)?;
    if copied > 0 {
        if let Some(at) = to_at {
            to.set_offset(at)?;
        }
        match given {
            Some(given) => given.value = from_at,
            None => from.set_offset(from_at)?,
        }
    }
    Ok(copied)
}

/// Copies from one of our files to another one of the same file system.
fn copy_ours(
    (from, from_at): (&Held, &mut Option<Given>),
    (to, to_at): (&Held, &mut Option<Given>),
    count: size_t,
) -> Result<usize> {
    if from.is_directory() || to.is_directory() {
        return Err(Errno::ISDIR);
    }
    from.check_readable()?;
    to.check_writable()?;
    if to.appends() {
        return Err(Errno::BADF);
    }
    let place = |held: &Held, at: &Option<Given>| -> u64 {
        at.as_ref().map_or_else(|| held.slot.offset.load(Acquire), |at| at.value as u64)
    };
    let (offset, to_offset) = (place(from, &*from_at), place(to, &*to_at));
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
        match at {
            None => {
                held.slot.offset.fetch_add(copied, AcqRel);
            }
            Some(at) => at.value += copied as off_t,
        }
    }
    Ok(copied as usize)
}

/// `copy_file_range` with an end that is ours.
unsafe fn copy_range(
    (from, from_at): (c_int, *mut off_t),
    (to, to_at): (c_int, *mut off_t),
    count: size_t,
    flags: c_uint,
) -> Result<usize> {
    if real::fcntl(from, libc::F_GETFD, 0) < 0 || real::fcntl(to, libc::F_GETFD, 0) < 0 {
        return Err(Errno::BADF);
    }
    let (mut from_at, mut to_at) = (Given::load(from_at)?, Given::load(to_at)?);
    if flags != 0 {
        return Err(Errno::INVAL);
    }
    let copied = match (table::get(from), table::get(to)) {
        (Some(from), Some(to)) if from.mount.number == to.mount.number => {
            copy_ours((&from, &mut from_at), (&to, &mut to_at), count.min(1 << 30))?
        }
        _ => return Err(Errno::XDEV),
    };
    if copied > 0 {
        for at in [from_at, to_at].iter().flatten() {
            at.store()?;
        }
    }
    Ok(copied)
}

/// Whether one end can be read and the other one written, and one of the kernel's that is read is of a kind.
pub(crate) unsafe fn check_ends(from: c_int, to: c_int, is_kind: impl Fn(u32) -> bool) -> Result<()> {
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
        let mut given = match Given::load(offset) {
            Ok(given) => given,
            Err(errno) => return bytes(Err(errno)),
        };
        if let Err(errno) = check_ends(from, out, |kind| kind == libc::S_IFREG || kind == libc::S_IFBLK) {
            return bytes(Err(errno));
        }
        if table::get(out).is_some_and(|held| held.appends())
            || table::get(from).is_some_and(|held| held.is_directory())
        {
            return bytes(Err(Errno::INVAL));
        }
        let count = count.min(0x7fff_f000);
        let sent = send(&End::new(from), given.as_mut(), &End::new(out), count);
        bytes(given.map_or(Ok(()), |given| given.store()).and(sent))
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
            _ => bytes(copy_range((from, from_at), (to, to_at), count, flags)),
        }
    }
}

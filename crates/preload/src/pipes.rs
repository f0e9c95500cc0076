//! Copies between pipes and our files.

use std::ffi::{c_int, c_uint};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use libc::{off_t, size_t, ssize_t};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use unvme::lock::lock;

use crate::copy::{Given, await_pipe, check_ends, is_pipe, of_kernel, offset_of};
use crate::data::{read_at, write_at};
use crate::errno::{Result, bytes};
use crate::table::{self, Held};
use crate::{own, real};

/// Bytes that a pipe of the default size has space for.
const PIECE: usize = 1 << 16;
const PAGE: usize = 4096;
/// The flags of `splice` and `tee`.
const FLAGS: c_uint = 0xf;

/// One thread of this process copies from a pipe into a file: what it has seen in the pipe is what it
/// removes. Held inside a call alone, so that `fork` finds it free.
static SPLICING: Mutex<()> = Mutex::new(());

/// Bytes that a pipe that has space accepts without waiting for a reader.
///
/// # Errors
/// EINVAL when it is no pipe.
unsafe fn room_of_pipe(fd: c_int) -> Result<usize> {
    let bytes = usize::try_from(real::fcntl(fd, libc::F_GETPIPE_SZ, 0)).map_err(|_| Errno::INVAL)?;
    let mut queued: c_int = 0;
    if real::ioctl(fd, libc::FIONREAD, &raw mut queued as usize) != 0 {
        return Err(Errno::INVAL);
    }
    // Each byte that is queued may have a page for itself.
    Ok((bytes / PAGE).saturating_sub(queued.max(0) as usize).max(1) * PAGE)
}

/// A pipe of our own, through which bytes of another pipe are read before they are removed from that one.
struct Sight {
    reads: OwnedFd,
    writes: OwnedFd,
}

impl Drop for Sight {
    fn drop(&mut self) {
        own::forget(self.reads.as_raw_fd());
        own::forget(self.writes.as_raw_fd());
    }
}

impl Sight {
    fn new() -> Result<Self> {
        let (reads, writes) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // Away from the numbers that the program counts on.
        let apart = |fd: OwnedFd| rustix::io::fcntl_dupfd_cloexec(&fd, own::FIRST).unwrap_or(fd);
        let (reads, writes) = (apart(reads), apart(writes));
        own::note(reads.as_raw_fd());
        own::note(writes.as_raw_fd());
        Ok(Self { reads, writes })
    }

    unsafe fn read(&self, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            let rest = &mut out[done..];
            match of_kernel(real::read(self.reads.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len()))? {
                0 => return Err(Errno::IO),
                read => done += read,
            }
        }
        Ok(())
    }

    /// Reads what is first in a pipe, which stays there. Fewer than `most` bytes when there are no more, and
    /// none at its end.
    ///
    /// # Errors
    /// EAGAIN when the pipe is empty.
    unsafe fn peek(&self, pipe: c_int, most: usize) -> Result<Vec<u8>> {
        let seen = of_kernel(real::tee(pipe, self.writes.as_raw_fd(), most, libc::SPLICE_F_NONBLOCK))?;
        let mut data = vec![0; seen];
        self.read(&mut data)?;
        Ok(data)
    }

    /// Removes up to `count` bytes from a pipe: those that were there.
    unsafe fn remove(&self, pipe: c_int, count: usize) -> Result<Vec<u8>> {
        let (none, mut removed) = (std::ptr::null_mut(), vec![0; count]);
        let mut done = 0;
        while done < count {
            let to = self.writes.as_raw_fd();
            let moved = real::splice(pipe, none, to, none, count - done, libc::SPLICE_F_NONBLOCK);
            match of_kernel(moved) {
                Ok(moved) if moved > 0 => {
                    self.read(&mut removed[done..done + moved])?;
                    done += moved;
                }
                // A reader that is not this process's has been faster.
                Ok(_) | Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        removed.truncate(done);
        Ok(removed)
    }
}

/// Where the next byte of an open file is copied from or to: the caller's offset, or the file's own.
fn position(held: &Held, given: &Option<Given>) -> Result<u64> {
    given.as_ref().map_or_else(|| Ok(held.slot.offset.load(Acquire)), |given| offset_of(given.value))
}

fn advance(held: &Held, given: &mut Option<Given>, bytes: usize) {
    match given {
        Some(given) => given.value += bytes as off_t,
        None => {
            held.slot.offset.fetch_add(bytes as u64, AcqRel);
        }
    }
}

/// Copies what a pipe has, up to `count` bytes: the file's bytes first, and then they are removed from the
/// pipe. What the file has no space for, or fails to write, stays in the pipe.
///
/// Readers in other processes, and those that do not use `splice`, may remove bytes in between: then the file
/// gets those that were removed here.
unsafe fn copy_seen(pipe: c_int, file: &Held, at: &mut Option<Given>, count: usize) -> Result<usize> {
    let _one = lock(&SPLICING);
    let sight = Sight::new()?;
    let mut sum = 0;
    while sum < count {
        let step = sight.peek(pipe, (count - sum).min(PIECE)).and_then(|seen| {
            let offset = position(file, &*at)?;
            let written = if seen.is_empty() { 0 } else { write_at(file, offset, &seen)? };
            let removed = sight.remove(pipe, written)?;
            if removed != seen[..removed.len()] {
                write_at(file, offset, &removed)?;
            }
            Ok(removed.len())
        });
        match step {
            Ok(0) => break,
            Ok(copied) => {
                advance(file, at, copied);
                sum += copied;
            }
            Err(_) if sum > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(sum)
}

unsafe fn from_pipe(
    pipe: c_int,
    to: c_int,
    at: &mut Option<Given>,
    count: usize,
    waits: bool,
) -> Result<usize> {
    loop {
        // No thread is inside a call while it waits.
        await_pipe(pipe, libc::POLLIN, waits)?;
        let file = table::get(to).ok_or(Errno::BADF)?;
        match copy_seen(pipe, &file, at, count) {
            Err(Errno::AGAIN) if waits => {}
            done => return done,
        }
    }
}

/// Writes to a pipe that has space for all of it, as far as is known.
///
/// # Errors
/// EAGAIN when another writer has been faster, where the kernel does not wait when it is told so.
unsafe fn write_pipe(pipe: c_int, data: &[u8]) -> Result<usize> {
    let one = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    match of_kernel(real::pwritev2(pipe, &one, 1, -1, libc::RWF_NOWAIT)) {
        Err(Errno::OPNOTSUPP) => of_kernel(real::write(pipe, data.as_ptr().cast(), data.len())),
        done => done,
    }
}

unsafe fn to_pipe(
    from: c_int,
    at: &mut Option<Given>,
    pipe: c_int,
    count: usize,
    waits: bool,
) -> Result<usize> {
    loop {
        await_pipe(pipe, libc::POLLOUT, waits)?;
        let mut buffer = vec![0; count.min(room_of_pipe(pipe)?)];
        let file = table::get(from).ok_or(Errno::BADF)?;
        let read = read_at(&file, position(&file, &*at)?, &mut buffer)?;
        if read == 0 {
            return Ok(0);
        }
        match write_pipe(pipe, &buffer[..read]) {
            Err(Errno::AGAIN) if waits => {}
            Ok(written) => {
                advance(&file, at, written);
                return Ok(written);
            }
            Err(errno) => return Err(errno),
        }
    }
}

unsafe fn splice_any(
    (from, from_at): (c_int, *mut off_t),
    (to, to_at): (c_int, *mut off_t),
    count: size_t,
    flags: c_uint,
) -> Result<usize> {
    if count == 0 {
        return Ok(0);
    }
    if flags & !FLAGS != 0 {
        return Err(Errno::INVAL);
    }
    // Which end is ours: the other one is a pipe.
    let (reads, pipe, pipe_at) =
        if table::is_ours(from) { (true, to, to_at) } else { (false, from, from_at) };
    if real::fcntl(pipe, libc::F_GETFD, 0) < 0 {
        return Err(Errno::BADF);
    }
    if is_pipe(pipe) && !pipe_at.is_null() {
        return Err(Errno::SPIPE);
    }
    let mut at = Given::load(if reads { from_at } else { to_at })?;
    check_ends(from, to, |kind| kind == libc::S_IFIFO)?;
    if table::is_ours(pipe)
        || !is_pipe(pipe)
        || table::get(to).is_some_and(|held| held.appends())
        || table::get(from).is_some_and(|held| held.is_directory())
    {
        return Err(Errno::INVAL);
    }
    let is_blocking = real::fcntl(pipe, libc::F_GETFL, 0) & libc::O_NONBLOCK == 0;
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && is_blocking;
    let count = count.min(0x7fff_f000);
    let done = match reads {
        true => to_pipe(from, &mut at, pipe, count, waits)?,
        false => from_pipe(pipe, to, &mut at, count, waits)?,
    };
    at.map_or(Ok(()), |at| at.store())?;
    Ok(done)
}

exported! {
    fn splice(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags: c_uint,
    ) -> ssize_t {
        if !table::is_ours(from) && !table::is_ours(to) {
            return real::splice(from, from_at, to, to_at, count, flags);
        }
        bytes(splice_any((from, from_at), (to, to_at), count, flags))
    }

    fn tee(from: c_int, to: c_int, count: size_t, flags: c_uint) -> ssize_t {
        if !table::is_ours(from) && !table::is_ours(to) {
            return real::tee(from, to, count, flags);
        }
        // Both ends are pipes.
        bytes(check_ends(from, to, |_| true).and(Err(Errno::INVAL)))
    }
}

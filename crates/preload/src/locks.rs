//! Advisory locks: `fcntl`, `flock` and `lockf`.

use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{
    F_RDLCK, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, SEEK_CUR, SEEK_END, SEEK_SET, off_t,
};
use rustix::io::Errno;
use unvme_fs::calls::{OpenId, Range, Reply, Request};
use unvme_fs::share::has_ended;

use crate::errno::{self, Result, number};
use crate::table::{self, Held};
use crate::{data, memory, real, signals};

/// How long somebody who waits for a lock sleeps between two looks, at most.
const NAP_MAX: Duration = Duration::from_millis(5);

/// The bytes that C says.
fn range(held: &Held, lock: &libc::flock, is_of_open: bool) -> Result<Range> {
    let base = match c_int::from(lock.l_whence) {
        SEEK_SET => 0,
        SEEK_CUR => held.slot.offset.load(Ordering::Relaxed) as off_t,
        SEEK_END => data::size(held)? as off_t,
        _ => return Err(Errno::INVAL),
    };
    let first = base.checked_add(lock.l_start).ok_or(Errno::OVERFLOW)?;
    let (start, end) = match lock.l_len {
        0 => (first, off_t::MAX),
        len if len > 0 => (first, first.checked_add(len - 1).ok_or(Errno::OVERFLOW)?),
        len => (first.checked_add(len).ok_or(Errno::INVAL)?, first - 1),
    };
    if start < 0 || end < start {
        return Err(Errno::INVAL);
    }
    let end = if end == off_t::MAX { u64::MAX } else { end as u64 };
    let is_exclusive = c_int::from(lock.l_type) == F_WRLCK;
    Ok(Range { is_of_open, is_exclusive, start: start as u64, end })
}

/// Asks until nobody is in the way, or a handler of a signal has run that ends what waits. Between two looks
/// nobody is inside: others may close the file, or the file system may change hands.
fn wait(held: Held, fd: c_int, request: impl Fn(OpenId) -> Request<'static>) -> Result<()> {
    let mut nap = Duration::from_micros(50);
    let mut held = held;
    let before = signals::interruptions();
    loop {
        // Another server may have given it another name.
        match held.call(&request(held.open())) {
            Err(Errno::AGAIN) => {}
            other => return other.map(drop),
        }
        drop(held);
        if signals::interruptions() == before {
            let time = libc::timespec { tv_sec: 0, tv_nsec: nap.as_nanos() as i64 };
            // SAFETY: a time that is there. Whatever ends it, the next look comes a little sooner.
            unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
        }
        if signals::interruptions() != before {
            return Err(Errno::INTR);
        }
        nap = (nap * 2).min(NAP_MAX);
        held = table::get(fd).ok_or(Errno::BADF)?;
    }
}

fn wait_for_range(held: Held, fd: c_int, range: Range) -> Result<()> {
    let done = wait(held, fd, |open| Request::AwaitLock { open, range });
    if done == Err(Errno::INTR)
        && let Some(held) = table::get(fd)
    {
        // Who asks only who is in the way does not wait: nobody finds a circle with this process in it.
        let _ = held.call(&Request::FindLock { open: held.open(), range });
    }
    done
}

/// The locks of `fcntl`.
///
/// # Safety
/// `lock` is null or one.
pub(crate) unsafe fn fcntl(held: Held, fd: c_int, cmd: c_int, lock: *mut libc::flock) -> c_int {
    number(fcntl_lock(held, fd, cmd, lock).map(|()| 0))
}

unsafe fn fcntl_lock(held: Held, fd: c_int, cmd: c_int, lock: *mut libc::flock) -> Result<()> {
    if matches!(cmd, libc::F_GETLK | libc::F_OFD_GETLK) {
        memory::check_writable(lock.cast(), size_of::<libc::flock>())?;
    } else {
        memory::check_readable(lock.cast(), size_of::<libc::flock>())?;
    }
    let is_of_open = matches!(cmd, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    let kind = c_int::from((*lock).l_type);
    let range = range(&held, &*lock, is_of_open)?;
    if !matches!(cmd, libc::F_GETLK | libc::F_OFD_GETLK) {
        match kind {
            F_RDLCK => held.check_readable()?,
            F_WRLCK => held.check_writable()?,
            _ => {}
        }
    }
    if is_of_open && (*lock).l_pid != 0 {
        return Err(Errno::INVAL);
    }
    let open = held.open();
    match (cmd, kind) {
        (libc::F_GETLK | libc::F_OFD_GETLK, F_RDLCK | F_WRLCK) => {
            match find(&held, range)? {
                None => (*lock).l_type = F_UNLCK as i16,
                Some((other, pid)) => {
                    (*lock).l_type = if other.is_exclusive { F_WRLCK } else { F_RDLCK } as i16;
                    (*lock).l_whence = SEEK_SET as i16;
                    (*lock).l_start = other.start as off_t;
                    (*lock).l_len =
                        if other.end == u64::MAX { 0 } else { (other.end - other.start + 1) as off_t };
                    (*lock).l_pid = if other.is_of_open { -1 } else { pid as i32 };
                }
            }
            Ok(())
        }
        (libc::F_GETLK | libc::F_OFD_GETLK, _) => Err(Errno::INVAL),
        (_, F_UNLCK) => held.call(&Request::Unlock { open, range }).map(drop),
        (libc::F_SETLK | libc::F_OFD_SETLK, F_RDLCK | F_WRLCK) => lock_now(&held, range),
        (_, F_RDLCK | F_WRLCK) => wait_for_range(held, fd, range),
        _ => Err(Errno::INVAL),
    }
}

/// Looks at a process that has ended, at most.
const TRIES: usize = 500;

/// A lock that is in the way, and who has it. A process that was killed has none, also before the server has
/// heard of its end.
fn find(held: &Held, range: Range) -> Result<Option<(Range, u32)>> {
    for _ in 0..TRIES {
        match held.call(&Request::FindLock { open: held.open(), range })? {
            Reply::Lock(Some((_, pid))) if pid != 0 && has_ended(pid) => {}
            Reply::Lock(found) => return Ok(found),
            _ => return Err(Errno::IO),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}

/// Takes a lock, if nobody who is alive is in the way.
fn lock_now(held: &Held, range: Range) -> Result<()> {
    for _ in 0..TRIES {
        match held.call(&Request::Lock { open: held.open(), range }) {
            Err(Errno::AGAIN) => {}
            other => return other.map(drop),
        }
        if find(held, range)?.is_some() {
            return Err(Errno::AGAIN);
        }
    }
    Err(Errno::AGAIN)
}

exported! {
    fn flock(fd: c_int, operation: c_int) -> c_int {
        let Some(held) = table::get(fd) else { return real::flock(fd, operation) };
        let is_exclusive = match operation & !LOCK_NB {
            LOCK_SH => Some(false),
            LOCK_EX => Some(true),
            LOCK_UN => None,
            _ => {
                errno::set(Errno::INVAL);
                return -1;
            }
        };
        let is_neither = held.check_readable().is_err() && held.check_writable().is_err();
        if held.check_open().is_err() || is_exclusive.is_some() && is_neither {
            errno::set(Errno::BADF);
            return -1;
        }
        let request = |open| Request::Flock { open, is_exclusive };
        let done = if operation & LOCK_NB != 0 || is_exclusive.is_none() {
            held.call(&request(held.open())).map(drop)
        } else {
            wait(held, fd, request)
        };
        number(done.map(|()| 0))
    }

    fn lockf(fd: c_int, cmd: c_int, bytes: off_t) -> c_int {
        if !table::is_ours(fd) {
            return real::lockf(fd, cmd, bytes);
        }
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_whence = SEEK_CUR as i16;
        lock.l_len = bytes;
        lock.l_type = F_WRLCK as i16;
        match cmd {
            libc::F_ULOCK => {
                lock.l_type = F_UNLCK as i16;
                crate::open::fcntl(fd, libc::F_SETLK, &raw mut lock as usize)
            }
            libc::F_LOCK => crate::open::fcntl(fd, libc::F_SETLKW, &raw mut lock as usize),
            libc::F_TLOCK => crate::open::fcntl(fd, libc::F_SETLK, &raw mut lock as usize),
            libc::F_TEST => {
                if crate::open::fcntl(fd, libc::F_GETLK, &raw mut lock as usize) != 0 {
                    return -1;
                }
                if c_int::from(lock.l_type) == F_UNLCK {
                    return 0;
                }
                errno::set(Errno::ACCESS);
                -1
            }
            _ => {
                errno::set(Errno::INVAL);
                -1
            }
        }
    }

    fn lockf64(fd: c_int, cmd: c_int, bytes: off_t) -> c_int {
        lockf(fd, cmd, bytes)
    }
}

//! How long files of this process may become: `RLIMIT_FSIZE`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::Resource;

use crate::errno::Result;

static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Before `main`, and when the program has changed it.
pub(crate) fn note() {
    let limit = rustix::process::getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    LIMIT.store(limit, Ordering::Relaxed);
}

/// Who goes beyond it is sent a signal, and hears of it when that does not end him.
fn exceed() -> Errno {
    // SAFETY: to this thread, as the kernel does.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGXFSZ) };
    Errno::FBIG
}

/// How many of some bytes may be written from an offset on.
///
/// # Errors
/// EFBIG at the limit or behind it.
#[inline]
pub(crate) fn room(offset: u64, bytes: usize) -> Result<usize> {
    let limit = LIMIT.load(Ordering::Relaxed);
    if limit == u64::MAX || bytes == 0 {
        return Ok(bytes);
    }
    match limit.saturating_sub(offset) {
        0 => Err(exceed()),
        left => Ok(bytes.min(usize::try_from(left).unwrap_or(usize::MAX))),
    }
}

/// Whether there is a limit at all.
pub(crate) fn is_any() -> bool {
    LIMIT.load(Ordering::Relaxed) != u64::MAX
}

/// Whether a file of `before` bytes may become one of `after`.
///
/// # Errors
/// EFBIG.
pub(crate) fn check(after: u64, before: impl FnOnce() -> Result<u64>) -> Result<()> {
    if after <= LIMIT.load(Ordering::Relaxed) || after <= before()? { Ok(()) } else { Err(exceed()) }
}

mod behind {
    use super::*;

    functions! {
        fn setrlimit(resource: c_int, limit: *const c_void) -> c_int;
        fn prlimit(pid: libc::pid_t, resource: c_int, new: *const c_void, old: *mut c_void) -> c_int;
    }
}

unsafe fn set(resource: c_int, limit: *const c_void) -> c_int {
    let done = behind::setrlimit(resource, limit);
    if resource == libc::RLIMIT_FSIZE as c_int {
        note();
    }
    done
}

unsafe fn set_of(pid: libc::pid_t, resource: c_int, new: *const c_void, old: *mut c_void) -> c_int {
    let done = behind::prlimit(pid, resource, new, old);
    if resource == libc::RLIMIT_FSIZE as c_int {
        note();
    }
    done
}

exported! {
    fn setrlimit(resource: c_int, limit: *const c_void) -> c_int {
        set(resource, limit)
    }

    fn setrlimit64(resource: c_int, limit: *const c_void) -> c_int {
        set(resource, limit)
    }

    fn prlimit(pid: libc::pid_t, resource: c_int, new: *const c_void, old: *mut c_void) -> c_int {
        set_of(pid, resource, new, old)
    }

    fn prlimit64(pid: libc::pid_t, resource: c_int, new: *const c_void, old: *mut c_void) -> c_int {
        set_of(pid, resource, new, old)
    }
}

//! The process that is told of events on a descriptor, and the signal (`F_SETOWN`, `F_SETSIG`). No file has
//! such an event: the values are stored for programs that read them back.

use std::ffi::c_int;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use libc::{F_GETOWN, F_SETOWN};
use rustix::io::Errno;

use crate::errno::Result;
use crate::memory;

/// Calls of `fcntl` that `libc` has no names for: `F_SETOWN_EX` and what follows it are about the process.
pub(crate) const F_SETSIG: c_int = 10;
pub(crate) const F_GETSIG: c_int = 11;
pub(crate) const F_SETOWN_EX: c_int = 15;
pub(crate) const F_GETOWNER_UIDS: c_int = 17;

/// What a number is of: `F_OWNER_TID` and its like.
const THREAD: c_int = 0;
const PROCESS: c_int = 1;
const GROUP: c_int = 2;

/// The largest signal.
const SIGNAL_MAX: usize = 64;

/// What descriptors of one open file have in common.
#[derive(Default)]
pub(crate) struct Owner {
    kind: AtomicI32,
    /// 0 for none.
    id: AtomicI32,
    signal: AtomicI32,
    /// Real and effective user of the process that has set it.
    users: [AtomicU32; 2],
}

fn exists(kind: c_int, id: c_int) -> bool {
    let to = if kind == GROUP { -id } else { id };
    let before = crate::errno::get();
    // SAFETY: no signal is sent.
    let is_there = unsafe { libc::kill(to, 0) } == 0 || crate::errno::get() == libc::EPERM;
    crate::errno::put(before);
    // A thread is no process, and has a directory all the same.
    is_there || kind == THREAD && Path::new(&format!("/proc/{id}")).exists()
}

fn set(owner: &Owner, kind: c_int, id: c_int) -> Result<c_int> {
    if id != 0 && !exists(kind, id) {
        return Err(Errno::SRCH);
    }
    owner.kind.store(kind, Ordering::Relaxed);
    owner.id.store(id, Ordering::Relaxed);
    let users = [rustix::process::getuid(), rustix::process::geteuid()];
    for (to, user) in owner.users.iter().zip(users) {
        to.store(user.as_raw(), Ordering::Relaxed);
    }
    Ok(0)
}

/// The calls of `fcntl` about it.
///
/// # Errors
/// EINVAL, ESRCH, EFAULT.
///
/// # Safety
/// As for `fcntl`.
pub(crate) unsafe fn fcntl(owner: &Owner, cmd: c_int, arg: usize) -> Result<c_int> {
    const F_GETOWN_EX: c_int = F_SETOWN_EX + 1;
    let (kind, id) = (owner.kind.load(Ordering::Relaxed), owner.id.load(Ordering::Relaxed));
    match cmd {
        F_GETOWN => Ok(if kind == GROUP { -id } else { id }),
        F_SETOWN => match arg as c_int {
            c_int::MIN => Err(Errno::INVAL),
            group @ ..0 => set(owner, GROUP, -group),
            process => set(owner, PROCESS, process),
        },
        F_SETSIG if arg > SIGNAL_MAX => Err(Errno::INVAL),
        F_SETSIG => {
            owner.signal.store(arg as c_int, Ordering::Relaxed);
            Ok(0)
        }
        F_GETSIG => Ok(owner.signal.load(Ordering::Relaxed)),
        F_SETOWN_EX => {
            memory::check_readable(arg as *const _, size_of::<[c_int; 2]>())?;
            match (arg as *const [c_int; 2]).read_unaligned() {
                [kind @ THREAD..=GROUP, id] => set(owner, kind, id),
                _ => Err(Errno::INVAL),
            }
        }
        F_GETOWN_EX => put(arg, [kind, id]),
        F_GETOWNER_UIDS => put(arg, [0, 1].map(|which: usize| owner.users[which].load(Ordering::Relaxed))),
        _ => Err(Errno::INVAL),
    }
}

unsafe fn put<T>(to: usize, value: T) -> Result<c_int> {
    memory::check_writable(to as *const _, size_of::<T>())?;
    (to as *mut T).write_unaligned(value);
    Ok(0)
}

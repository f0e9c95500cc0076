//! Calls that change the user or the groups of the process, or of a thread.
//!
//! A process that gives root up for good, so that neither its real nor its saved user is root, gets another
//! connection: see [`Client::change_user`](unvme_fs::share::Client::change_user). The memory of offsets and
//! flags stays the one that it has in common with its family: `{ setpriv ... command; echo done; } >log`
//! relies on it.

use std::ffi::{c_char, c_int, c_long};

use libc::{gid_t, uid_t};

use crate::mount::{self, Backend};
use crate::{gate, identity, real, share, state};

/// Before this process becomes another user: what it has to itself as root goes to a server, as long as one
/// can be started that may open the device.
fn before_user(uid: uid_t) {
    if !state::is_on()
        || gate::is_inside()
        || matches!(uid, 0 | uid_t::MAX)
        || !rustix::process::geteuid().is_root()
    {
        return;
    }
    let is_any_alone = {
        let _inside = gate::enter();
        mount::all().iter().any(|mount| matches!(mount.backend(), Some(Backend::Alone(_))))
    };
    if !is_any_alone {
        return;
    }
    let closed = gate::close();
    let ending = share::share_all_alone(&closed);
    drop(closed);
    // The C library changes all threads and ends the program where one may and another one may not: the
    // program has seen to its own, and knows nothing of ours.
    ending.into_iter().for_each(|thread| drop(thread.join()));
}

/// After all threads of this process have become another user, its files are that user's.
fn as_user(changed: c_int) -> c_int {
    if changed != 0 || !state::is_on() || gate::is_inside() {
        return changed;
    }
    let failed = crate::errno::get();
    let closed = gate::close();
    let is_another = identity::note_process();
    mount::all().iter().for_each(|mount| mount.identify(is_another, &closed));
    drop(closed);
    crate::errno::put(failed);
    changed
}

/// Whether no other thread of this process can act for another user.
fn is_only_thread() -> bool {
    // Each thread is a directory there, besides `.` and `..`.
    rustix::fs::stat("/proc/self/task").is_ok_and(|task| task.st_nlink == 3)
}

/// After the calling thread alone has become another user.
fn as_thread(changed: c_long) -> c_long {
    if changed != 0 || !state::is_on() || gate::is_inside() {
        return changed;
    }
    identity::note_thread((identity::NONE, identity::NONE));
    // For good, and no thread is left that can go back.
    if identity::is_stated_otherwise() && is_only_thread() {
        as_user(0);
    }
    changed
}

/// A call that changes users or groups, by its number.
///
/// # Safety
/// As for `syscall(2)`.
pub(crate) unsafe fn by_number(n: c_long, [a, b, c]: [usize; 3]) -> Option<c_long> {
    let effective = match n {
        libc::SYS_setuid => a,
        libc::SYS_setreuid | libc::SYS_setresuid => b,
        libc::SYS_setgid | libc::SYS_setregid | libc::SYS_setresgid | libc::SYS_setgroups => 0,
        libc::SYS_setfsuid => return Some(setfsuid(a as uid_t).into()),
        libc::SYS_setfsgid => return Some(setfsgid(a as gid_t).into()),
        _ => return None,
    };
    before_user(effective as uid_t);
    Some(as_thread(real::syscall(n, a, b, c, 0, 0, 0)))
}

mod behind {
    use super::*;

    functions! {
        fn setfsuid(uid: uid_t) -> c_int;
        fn setfsgid(gid: gid_t) -> c_int;
    }
}

exported! {
    fn setuid(uid: uid_t) -> c_int {
        before_user(uid);
        as_user(real::setuid(uid))
    }

    fn seteuid(uid: uid_t) -> c_int {
        before_user(uid);
        as_user(real::seteuid(uid))
    }

    fn setreuid(first: uid_t, effective: uid_t) -> c_int {
        before_user(effective);
        as_user(real::setreuid(first, effective))
    }

    fn setresuid(first: uid_t, effective: uid_t, saved: uid_t) -> c_int {
        before_user(effective);
        as_user(real::setresuid(first, effective, saved))
    }

    fn setgid(gid: gid_t) -> c_int {
        as_user(real::setgid(gid))
    }

    fn setegid(gid: gid_t) -> c_int {
        as_user(real::setegid(gid))
    }

    fn setregid(first: gid_t, effective: gid_t) -> c_int {
        as_user(real::setregid(first, effective))
    }

    fn setresgid(first: gid_t, effective: gid_t, saved: gid_t) -> c_int {
        as_user(real::setresgid(first, effective, saved))
    }

    fn setgroups(count: libc::size_t, groups: *const gid_t) -> c_int {
        as_user(real::setgroups(count, groups))
    }

    fn initgroups(user: *const c_char, group: gid_t) -> c_int {
        as_user(real::initgroups(user, group))
    }

    /// Returns the one before, whether it has changed or not: what came of it the kernel tells.
    fn setfsuid(uid: uid_t) -> c_int {
        before_user(uid);
        let before = behind::setfsuid(uid);
        let now = behind::setfsuid(identity::NONE) as u32;
        identity::note_fs(|(_, gid)| (now, gid));
        before
    }

    fn setfsgid(gid: gid_t) -> c_int {
        let before = behind::setfsgid(gid);
        let now = behind::setfsgid(identity::NONE) as u32;
        identity::note_fs(|(uid, _)| (uid, now));
        before
    }
}

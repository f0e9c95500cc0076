//! Processes whose children are in another PID namespace, and those of another user namespace.

use std::ffi::c_int;

use crate::mount::{self, Backend};
use crate::{gate, share, state};

mod behind {
    use super::c_int;

    functions! {
        fn unshare(flags: c_int) -> c_int;
        fn setns(fd: c_int, kind: c_int) -> c_int;
    }
}

/// Before this process has children in another PID namespace, or is of another user namespace: what it has to
/// itself goes to a server. It cannot go later: after `unshare(CLONE_NEWPID)` no thread can be made, and the
/// first process would be the namespace's `init`, with which everything in it ends; and only a process of one
/// thread can go to another user namespace.
fn before_namespace() {
    if !state::is_on() || gate::is_inside() {
        return;
    }
    for mount in mount::all().iter().filter(|mount| !mount.is_memory()) {
        if let Err(e) = mount.ensure() {
            state::say(&e);
        }
    }
    let closed = gate::close();
    let ending = share::share_all_alone(&closed);
    for mount in mount::all() {
        // What cannot go has a server in this process.
        if matches!(mount.backend(), Some(Backend::Alone(_))) {
            drop(share::prepare_fork(mount, &closed));
        }
    }
    drop(closed);
    ending.into_iter().for_each(|thread| drop(thread.join()));
}

exported! {
    fn unshare(flags: c_int) -> c_int {
        if flags & (libc::CLONE_NEWPID | libc::CLONE_NEWUSER) != 0 {
            before_namespace();
        }
        behind::unshare(flags)
    }

    fn setns(fd: c_int, kind: c_int) -> c_int {
        // 0 is whichever kind of namespace the descriptor is of.
        if kind == 0 || kind & (libc::CLONE_NEWPID | libc::CLONE_NEWUSER) != 0 {
            before_namespace();
        }
        behind::setns(fd, kind)
    }
}

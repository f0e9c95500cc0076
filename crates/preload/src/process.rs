//! Processes: what `fork` and `exec` do to files that are open.

use std::ffi::c_int;

use crate::{gate, mount};

unsafe extern "C" fn before_fork() {}

unsafe extern "C" fn in_parent() {}

unsafe extern "C" fn in_child() {
    gate::forget_others();
    mount::all().iter().for_each(mount::Mount::forget);
}

/// Descriptors that are our own beside those of the slots.
pub(crate) fn own_descriptors() -> impl Iterator<Item = c_int> {
    std::iter::empty()
}

/// Before `main`.
pub(crate) fn start() {
    // SAFETY: functions that stay as long as the process.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

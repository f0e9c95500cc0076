//! Whether this library has something to do, and how it speaks to people and to later processes.

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::stdio::stderr;

use crate::errno::Result;

/// The same as text, for those who have no file.
pub(crate) const TEXT: &str = "UNVME_PRELOAD_CONFIG";

/// What one process tells the next one, which `exec` makes of it: a descriptor, the folders, for whom it is,
/// connections and open files.
pub(crate) const HANDED: &str = "UNVME_PRELOAD_HANDED";

/// The virtual working directory at `exec`.
pub(crate) const WORKING_DIRECTORY: &str = "UNVME_PRELOAD_CWD";

static IS_ON: AtomicBool = AtomicBool::new(false);
static IS_FIRST: AtomicBool = AtomicBool::new(true);

/// From now on folders are wrapped.
pub(crate) fn turn_on() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// A process before this one was started with the same configuration.
pub(crate) fn note_earlier() {
    IS_FIRST.store(false, Ordering::Relaxed);
}

/// How often files have got other names with a file system.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Files have other names with the file system from now on.
pub(crate) fn note_change() {
    CHANGES.fetch_add(1, Ordering::Release);
}

/// Does something that finds a directory first and then asks for something in it: once more, when the file
/// system has changed hands in between, and the directory is not known there by its old name.
pub(crate) fn steadily<R>(act: impl Fn() -> Result<R>) -> Result<R> {
    let before = CHANGES.load(Ordering::Acquire);
    match act() {
        Err(Errno::BADF) if CHANGES.load(Ordering::Acquire) != before => act(),
        done => done,
    }
}

/// Whether any folder is wrapped.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Whether no process before this one was started with the same configuration.
pub(crate) fn is_first() -> bool {
    IS_FIRST.load(Ordering::Relaxed)
}

/// Tells people something, in one line.
pub(crate) fn say(text: &str) {
    let line = format!("unvme: {text}\n");
    let _ = rustix::io::write(stderr(), line.as_bytes());
}

/// Ends the process, with a line that says why.
pub(crate) fn die(text: &str) -> ! {
    say(text);
    // SAFETY: it ends at once: nothing of it may run on.
    unsafe { libc::_exit(78) }
}

/// Ends the process, and nothing more.
pub(crate) fn leave(status: c_int) -> ! {
    loop {
        // SAFETY: the C library's own has nothing more to do than this.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// A variable of the environment. Programs may have a `getenv` of their own: shells do.
pub(crate) fn variable(name: &str) -> Option<Vec<u8>> {
    std::env::var_os(name).map(|value| value.as_bytes().to_vec())
}

//! Programs that this library cannot be loaded into: linked statically, or run as another user.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use unvme_fs::{Unreachable, out_of_reach};

use crate::errno::{self, Result, text};
use crate::{gate, memory, mount, place, state};

/// Why the library would not be in a program. What cannot be read is for the kernel to refuse.
fn why_not(program: &[u8]) -> Option<Unreachable> {
    let _inside = gate::enter();
    out_of_reach(Path::new(OsStr::from_bytes(program))).ok()?.map(|(_, why)| why)
}

/// Whether a program is about files of ours, as far as can be seen: by where it begins, or by its arguments.
unsafe fn is_about_ours(argv: *const *const c_char) -> Option<&'static mount::Mount> {
    if let Some(mount) = place::our_mount() {
        return Some(mount);
    }
    let mut at = argv;
    while !at.is_null() && !(*at).is_null() {
        if let Ok(place::Place::Ours(mount, ..)) = place::resolve(libc::AT_FDCWD, *at) {
            return Some(mount);
        }
        at = at.add(1);
    }
    None
}

/// Refuses to start a program that would not find its files where it is told to look for them.
///
/// # Errors
/// EACCES.
///
/// # Safety
/// As for `execve`.
pub(crate) unsafe fn check(path: *const c_char, argv: *const *const c_char) -> Result<()> {
    let Ok(name) = text(path) else { return Ok(()) };
    check_as(name, name, argv)
}

/// As [`check`], of a program that is open.
///
/// # Errors
/// As there.
///
/// # Safety
/// As there.
pub(crate) unsafe fn check_open(fd: c_int, argv: *const *const c_char) -> Result<()> {
    let path = format!("/proc/self/fd/{fd}");
    check_as(path.as_bytes(), path.as_bytes(), argv)
}

/// As [`check`], of what is at a path of the kernel's, and has another name for the user.
///
/// # Errors
/// As there; EFAULT when an argument cannot be read.
///
/// # Safety
/// As there.
pub(crate) unsafe fn check_as(path: &[u8], name: &[u8], argv: *const *const c_char) -> Result<()> {
    if !state::is_on() || gate::is_inside() {
        return Ok(());
    }
    memory::check_texts(argv)?;
    let Some(mount) = is_about_ours(argv) else { return Ok(()) };
    let Some(why) = why_not(path) else { return Ok(()) };
    state::say(&format!(
        "{}: {why}: its files in {} would not be on {}",
        String::from_utf8_lossy(name),
        String::from_utf8_lossy(&mount.folder),
        mount.config.device
    ));
    Err(Errno::ACCESS)
}

/// -1 and `errno`, if a program is refused.
pub(crate) fn refused(checked: Result<()>) -> Option<c_int> {
    checked.err().map(|errno| {
        errno::set(errno);
        -1
    })
}

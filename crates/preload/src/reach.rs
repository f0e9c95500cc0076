//! Programs that this library cannot be loaded into: linked statically, or run as another user.

use std::ffi::{CStr, CString, c_char, c_int};

use rustix::io::Errno;

use crate::errno::{self, Result, text};
use crate::{mount, place, real, start};

/// Scripts that begin with scripts, as far as Linux follows them.
const SCRIPTS_MAX: usize = 5;

/// Why the library would not be in a program.
unsafe fn why_not(path: &CStr) -> Option<&'static str> {
    let mut path = path.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let mut found: libc::stat = std::mem::zeroed();
        if real::stat(path.as_ptr(), &mut found) != 0 {
            return None;
        }
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let is_user = found.st_mode & libc::S_ISUID != 0 && found.st_uid != uid;
        let is_group = found.st_mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
        if is_user || is_group && found.st_gid != gid {
            return Some("set-user-id");
        }
        let start = head(&path)?;
        let Some(line) = start.strip_prefix(b"#!") else {
            return (start.starts_with(b"\x7fELF") && !has_interpreter(&start))
                .then_some("linked statically");
        };
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let name = line.trim_ascii().split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
        path = CString::new(name).ok()?;
    }
    None
}

/// The beginning of a file of the kernel's.
unsafe fn head(path: &CStr) -> Option<Vec<u8>> {
    let fd = real::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return None;
    }
    let mut start = vec![0; 4096];
    let read = real::read(fd, start.as_mut_ptr().cast(), start.len());
    real::close(fd);
    start.truncate(usize::try_from(read).ok()?);
    Some(start)
}

/// Whether the loader starts a program of 64 bits. What is no such program is for the kernel to refuse.
fn has_interpreter(start: &[u8]) -> bool {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let mut whole = [0; 8];
        whole.get_mut(..bytes)?.copy_from_slice(start.get(at..at.checked_add(bytes)?)?);
        Some(u64::from_le_bytes(whole))
    };
    let (Some(2), Some(at), Some(size), Some(count)) =
        (number(4, 1), number(32, 8), number(54, 2), number(56, 2))
    else {
        return true;
    };
    (0..count).any(|nth| {
        let place = at.saturating_add(nth.saturating_mul(size));
        usize::try_from(place).ok().and_then(|place| number(place, 4)) == Some(PT_INTERP)
    })
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
    if !start::is_on() || crate::gate::is_inside() {
        return Ok(());
    }
    let Ok(name) = text(path) else { return Ok(()) };
    let Some(why) = CString::new(name).ok().and_then(|path| why_not(&path)) else { return Ok(()) };
    let Some(mount) = is_about_ours(argv) else { return Ok(()) };
    start::say(&format!(
        "{}: it is {why}, so no library can be loaded before its own: its files in {} would not be on {}",
        String::from_utf8_lossy(name),
        String::from_utf8_lossy(&mount.folder),
        mount.config.device
    ));
    Err(Errno::ACCESS)
}

/// As [`check`], of a program that a shell would find.
///
/// # Errors
/// As there.
///
/// # Safety
/// As there.
pub(crate) unsafe fn check_found(file: *const c_char, argv: *const *const c_char) -> Result<()> {
    let Ok(name) = text(file) else { return Ok(()) };
    if name.contains(&b'/') {
        return check(file, argv);
    }
    let places = start::variable(c"PATH").unwrap_or_default();
    for folder in places.split(|&byte| byte == b':') {
        if let Ok(path) = CString::new([folder, b"/", name].concat())
            && real::access(path.as_ptr(), libc::X_OK) == 0
        {
            return check(path.as_ptr(), argv);
        }
    }
    Ok(())
}

/// -1 and `errno`, if a program is refused.
pub(crate) fn refused(checked: Result<()>) -> Option<c_int> {
    checked.err().map(|errno| {
        errno::set(errno);
        -1
    })
}

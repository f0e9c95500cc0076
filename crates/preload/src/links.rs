//! Other names of what is in a folder: those of descriptors, symbolic links of the kernel's that lead there,
//! and other spellings of the folder.
//!
//! These are questions about the kernel's files, which are asked for all of them: they take no memory, and
//! leave `errno` as it was.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, PATH_MAX};
use unvme_fs::calls::OpenId;

use crate::errno::{self, text};
use crate::mount::{self, Mount};
use crate::pathname::Text;
use crate::place::{self, Place};
use crate::{gate, real, slot, state, table};

/// Device and inode of each folder, as the kernel has them.
static FOLDERS: OnceLock<Vec<(u64, u64)>> = OnceLock::new();

/// Before `main`: what the folders are.
pub(crate) fn start() {
    let identity = |mount: &Mount| {
        let path = std::ffi::CString::new(mount.folder.as_slice()).ok()?;
        let found = rustix::fs::stat(path.as_c_str()).ok()?;
        Some((found.st_dev, found.st_ino))
    };
    let _ = FOLDERS.set(mount::all().iter().map(|mount| identity(mount).unwrap_or_default()).collect());
}

/// The folder that a directory of the kernel's is, by whatever name it was found.
pub(crate) fn folder(found: &libc::stat) -> Option<Place> {
    folder_of(found.st_mode, found.st_dev, found.st_ino)
}

/// As [`folder`], by the numbers.
pub(crate) fn folder_of(mode: u32, device: u64, ino: u64) -> Option<Place> {
    if mode & libc::S_IFMT != libc::S_IFDIR {
        return None;
    }
    let number = FOLDERS.get()?.iter().position(|&folder| folder == (device, ino))?;
    Some(Place::Ours(mount::by_number(number as u32)?, OpenId::ROOT, b"/".to_vec()))
}

/// What is behind the name of this process in `/proc`.
pub(crate) fn own(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(b"/proc/")?;
    if let Some(rest) = rest.strip_prefix(b"self/").or_else(|| rest.strip_prefix(b"thread-self/")) {
        return Some(rest);
    }
    let (pid, rest) = number(rest)?;
    // SAFETY: it takes nothing.
    (pid == unsafe { libc::getpid() }).then_some(())?;
    rest.strip_prefix(b"/")
}

fn number(text: &[u8]) -> Option<(c_int, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    Some((std::str::from_utf8(&text[..end]).ok()?.parse().ok()?, &text[end..]))
}

/// The descriptor of this process that a path names, and what is behind that.
pub(crate) fn descriptor(path: &[u8]) -> Option<(c_int, &[u8])> {
    let (fd, rest) = if let Some(name) = path.strip_prefix(b"/dev/") {
        let standard = [(&b"stdin"[..], 0), (b"stdout", 1), (b"stderr", 2)];
        let standard = standard.iter().find_map(|(word, fd)| Some((*fd, name.strip_prefix(*word)?)));
        standard.or_else(|| number(name.strip_prefix(b"fd/")?))?
    } else {
        number(own(path)?.strip_prefix(b"fd/")?)?
    };
    match rest {
        b"" => Some((fd, rest)),
        b"/" => Some((fd, b".")),
        [b'/', rest @ ..] => Some((fd, rest)),
        _ => None,
    }
}

/// The path of a directory of the kernel's that is open.
pub(crate) fn path_of_kernel(fd: c_int) -> Option<Text> {
    let mut name = Text::new();
    name.push(b"/proc/self/fd/")?;
    let mut digits = [0; 12];
    let mut at = digits.len();
    let mut left = u32::try_from(fd).ok()?;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    name.push(&digits[at..])?;
    target(&name)
}

/// Where a symbolic link of the kernel's leads.
fn target(name: &Text) -> Option<Text> {
    let before = errno::get();
    let mut found = [0_u8; PATH_MAX as usize];
    // SAFETY: a C string, and memory of its own.
    let bytes = unsafe { real::readlinkat(AT_FDCWD, name.pointer(), found.as_mut_ptr().cast(), found.len()) };
    errno::put(before);
    let mut target = Text::new();
    target.push(found.get(..usize::try_from(bytes).ok()?)?)?;
    Some(target)
}

fn stat(name: &Text) -> Option<libc::stat> {
    let before = errno::get();
    // SAFETY: all bytes are values; a C string.
    let found = unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        (real::stat(name.pointer(), &mut found) == 0).then_some(found)
    };
    errno::put(before);
    found
}

/// Where a path of the kernel's leads that the kernel does not find, or that is a folder: `None` when it is
/// not ours.
///
/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn instead(dir: c_int, path: *const c_char, follows: bool) -> Option<Place> {
    let before = errno::get();
    let mut found: libc::stat = std::mem::zeroed();
    let result = real::fstatat(dir, path, &mut found, if follows { 0 } else { AT_SYMLINK_NOFOLLOW });
    let failed = errno::get();
    errno::put(before);
    match result {
        0 => folder(&found),
        _ if failed == libc::ENOENT => through_links(dir, text(path).ok()?),
        _ => None,
    }
}

/// Where a path of the kernel's leads that has symbolic links to a folder in it: `None` when it does not come
/// to one.
pub(crate) fn through_links(dir: c_int, path: &[u8]) -> Option<Place> {
    if path.is_empty() {
        return None;
    }
    let mut whole = place::whole(dir, path)?;
    for _ in 0..place::CROSSINGS_MAX {
        let length = whole.bytes().iter().rposition(|&byte| byte != b'/')? + 1;
        // The longest part that is there for the kernel is the folder, or a link that leads below it.
        let mut front = Text::join(b"", &whole.bytes()[..length])?;
        loop {
            let rest = &whole.bytes()[front.bytes().len()..];
            if let Some(found) = stat(&front) {
                let Place::Ours(mount, base, root) = folder(&found)? else { return None };
                let behind = rest.iter().position(|&byte| byte != b'/').map(|at| rest[at..].to_vec());
                return Some(Place::Ours(mount, base, behind.unwrap_or(root)));
            }
            let slash = front.bytes().iter().rposition(|&byte| byte == b'/')?;
            if let Some(target) = target(&front) {
                let above = if target.bytes().starts_with(b"/") { b"" } else { &front.bytes()[..slash] };
                let mut next = if above.is_empty() {
                    Text::join(b"", target.bytes())?
                } else {
                    Text::join(above, target.bytes())?
                };
                next.push(rest)?;
                whole = next;
                break;
            }
            if slash == 0 {
                return None;
            }
            front.cut(slash);
        }
        if let Some(found) = place::from_root(whole.bytes()) {
            return Some(found);
        }
    }
    None
}

/// The slot of a file of ours that the kernel has opened anew by a name in `/proc` or `/dev`: what it has
/// opened is the mark, which has no data.
///
/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn slot_behind(path: *const c_char, fd: c_int) -> Option<&'static slot::Slot> {
    let name = text(path).ok()?;
    let is_special = name.starts_with(b"/dev/")
        || name.starts_with(b"/proc/")
        || !name.starts_with(b"/") && name.iter().all(u8::is_ascii_digit);
    if !is_special || !state::is_on() || gate::is_inside() {
        return None;
    }
    // SAFETY: it has just been opened.
    slot::get(slot::of_descriptor(std::os::fd::BorrowedFd::borrow_raw(fd))?)
}

/// The descriptor of ours that a path names as a whole.
///
/// # Safety
/// `path` is a C string or null.
pub(crate) unsafe fn held(path: *const c_char) -> Option<table::Held> {
    if !state::is_on() || path.is_null() || gate::is_inside() {
        return None;
    }
    let (fd, rest) = descriptor(text(path).ok()?)?;
    if rest.is_empty() { table::get(fd) } else { None }
}

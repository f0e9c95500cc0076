//! Which paths are ours, and where the working directory is.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::AT_FDCWD;
use rustix::io::Errno;
use unvme::lock::write;
use unvme_fs::calls::{At, OpenId, Reply, Request};

use crate::errno::{Result, text};
use crate::mount::{self, Mount};
use crate::{real, start, table};

/// How often a path may lead out of a folder and into another one.
pub(crate) const CROSSINGS_MAX: usize = 40;

/// The working directory.
#[derive(Clone)]
struct Working {
    /// From the machine's root on; empty when nobody knows.
    path: Vec<u8>,
    /// When it is in a folder: which one, and the directory, which is open for this.
    ours: Option<(&'static Mount, OpenId)>,
}

static WORKING: RwLock<Working> = RwLock::new(Working { path: Vec::new(), ours: None });
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Nobody else changes this as long as somebody has it: see `process`.
pub(crate) fn still() -> Box<dyn std::any::Any> {
    Box::new(write(&WORKING))
}

/// Where a path leads to.
pub(crate) enum Place {
    /// The kernel's: as it came.
    Kernel,
    /// The kernel's, by another path than the one that came.
    Other(CString),
    /// A folder's, from an open directory on.
    Ours(&'static Mount, OpenId, Vec<u8>),
}

fn kernel_working_directory() -> Vec<u8> {
    rustix::process::getcwd(Vec::new()).map(CString::into_bytes).unwrap_or_default()
}

/// At the start: where the process was before `exec`, if that was ours.
pub(crate) fn start(handed: Option<Vec<u8>>) {
    let path = handed.unwrap_or_else(kernel_working_directory);
    note(path);
}

/// Notes where the working directory is. Ours is opened when it is needed.
fn note(path: Vec<u8>) {
    let is_ours = within(&path).is_some();
    *crate::gate::leaf_write(&WORKING) = Working { path, ours: None };
    IS_OURS.store(is_ours, Ordering::Release);
}

/// The rest of a path below a prefix, if it is there or below.
fn below<'a>(path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(folder)?;
    match rest.first() {
        None => Some(rest),
        Some(b'/') => Some(&rest[1..]),
        Some(_) => None,
    }
}

/// Which folder a path without `.`, `..` and double slashes is in.
fn within(path: &[u8]) -> Option<(&'static Mount, &[u8])> {
    mount::all()
        .iter()
        .filter_map(|mount| {
            let rest = below(path, &mount.folder).or_else(|| below(path, &mount.alias))?;
            Some((mount, rest))
        })
        .min_by_key(|(_, rest)| rest.len())
}

/// A path without `.` and double slashes, up to where it is in a folder; what is behind stays. `..` is
/// followed where it can be.
fn find(path: &[u8]) -> Option<(&'static Mount, Vec<u8>)> {
    let mut at: Vec<u8> = Vec::with_capacity(path.len() + 1);
    let mut from = 0;
    while from < path.len() {
        if path[from] == b'/' {
            from += 1;
            continue;
        }
        let end = path[from..].iter().position(|&byte| byte == b'/').map_or(path.len(), |len| from + len);
        match &path[from..end] {
            b"." => {}
            b".." => at = above(&at),
            name => {
                at.push(b'/');
                at.extend_from_slice(name);
            }
        }
        let next =
            path[end..].iter().position(|&byte| byte != b'/').map_or(&b""[..], |len| &path[end + len..]);
        let is_left = next.starts_with(b"..") && (next.len() == 2 || next[2] == b'/');
        let found = mount::all().iter().find(|mount| at == mount.folder || at == mount.alias);
        if let Some(mount) = found.filter(|_| !is_left) {
            let rest = path[end..].iter().position(|&byte| byte != b'/').map_or(path.len(), |len| end + len);
            // A folder may be in another one.
            let deeper = mount::all()
                .iter()
                .any(|other| other.number != mount.number && below(&other.folder, &mount.folder).is_some());
            if !deeper || within_deeper(mount, &path[rest..]).is_none() {
                // The folder itself is the root.
                let rest = if rest == path.len() { b"/" } else { &path[rest..] };
                return Some((mount, rest.to_vec()));
            }
        }
        from = end;
    }
    None
}

/// Whether a path in a folder leads to one that is in it.
fn within_deeper(mount: &Mount, rest: &[u8]) -> Option<&'static Mount> {
    let mut path = mount.folder.clone();
    path.push(b'/');
    path.extend_from_slice(rest);
    let (found, _) = within(&path)?;
    (found.number != mount.number).then_some(found)
}

/// The directory above one of the kernel's, whatever its name leads to.
fn above(path: &[u8]) -> Vec<u8> {
    let mut text = path.to_vec();
    text.extend_from_slice(b"/..");
    let real = CString::new(text).ok().and_then(|path| {
        // SAFETY: a C string; what comes back is the C library's to free.
        unsafe {
            let found = real::realpath(path.as_ptr(), std::ptr::null_mut());
            if found.is_null() {
                return None;
            }
            let copied = std::ffi::CStr::from_ptr(found).to_bytes().to_vec();
            libc::free(found.cast());
            Some(copied)
        }
    });
    match real {
        Some(path) if path == b"/" => Vec::new(),
        Some(path) => path,
        None => path[..path.iter().rposition(|&byte| byte == b'/').unwrap_or(0)].to_vec(),
    }
}

/// Whether a path that does not begin with a slash may lead into a folder from outside by its names.
fn may_enter(path: &[u8]) -> bool {
    let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    match &path[..end] {
        b"." | b".." => true,
        name => mount::all()
            .iter()
            .flat_map(|mount| {
                mount.folder.split(|&byte| byte == b'/').chain(mount.alias.split(|&byte| byte == b'/'))
            })
            .any(|part| part == name),
    }
}

fn join(above: &[u8], path: &[u8]) -> Vec<u8> {
    let mut joined = above.to_vec();
    joined.push(b'/');
    joined.extend_from_slice(path);
    joined
}

/// The working directory, open, when it is ours.
fn working() -> Option<Result<(&'static Mount, OpenId)>> {
    if !IS_OURS.load(Ordering::Acquire) {
        return None;
    }
    let here = crate::gate::leaf_read(&WORKING).clone();
    if let Some(ours) = here.ours {
        return Some(Ok(ours));
    }
    let (mount, rest) = within(&here.path)?;
    let opened = open_directory(mount, OpenId::ROOT, rest);
    Some(opened.map(|open| {
        crate::gate::leaf_write(&WORKING).ours = Some((mount, open));
        (mount, open)
    }))
}

fn open_directory(mount: &'static Mount, base: OpenId, path: &[u8]) -> Result<OpenId> {
    let at = At { base, path: if path.is_empty() { b"." } else { path }, follows: true };
    let flags = (libc::O_DIRECTORY | libc::O_PATH) as u32;
    match mount.call(&Request::Open { at, flags, mode: 0 }, &[], &mut [])? {
        Reply::Opened(open, ..) => Ok(open),
        _ => Err(Errno::NOENT),
    }
}

/// Where a path leads to, from a directory on.
///
/// # Errors
/// EBADF and ENOTDIR of the directory.
///
/// # Safety
/// `path` is a C string or null.
pub(crate) unsafe fn resolve(dir: c_int, path: *const c_char) -> Result<Place> {
    if !start::is_on() || path.is_null() {
        return Ok(Place::Kernel);
    }
    if crate::gate::is_inside() {
        return resolve_inside(dir, text(path)?);
    }
    resolve_bytes(dir, text(path)?)
}

/// A path in the middle of a call: of our own work, which does not use the folders, or of a handler of a
/// signal that has come meanwhile. A server does what a handler asks for as well; in this process what is
/// under way may have to end first.
fn resolve_inside(dir: c_int, path: &[u8]) -> Result<Place> {
    if path.first() != Some(&b'/') && (dir != AT_FDCWD || !IS_OURS.load(Ordering::Acquire)) {
        return Ok(Place::Kernel);
    }
    match resolve_bytes(dir, path)? {
        Place::Ours(mount, ..) if !mount.is_shared() => Err(Errno::AGAIN),
        place => Ok(place),
    }
}

/// As [`resolve`], for a path without a NUL.
pub(crate) fn resolve_bytes(dir: c_int, path: &[u8]) -> Result<Place> {
    if path.first() == Some(&b'/') {
        if let Some(place) = descriptor_link(path) {
            return Ok(place);
        }
        if let Some(below) = path.strip_prefix(b"/proc/self/cwd/")
            && IS_OURS.load(Ordering::Acquire)
        {
            return resolve_bytes(AT_FDCWD, if below.is_empty() { b"." } else { below });
        }
        return Ok(match find(path) {
            Some((mount, rest)) => Place::Ours(mount, OpenId::ROOT, rest),
            None => Place::Kernel,
        });
    }
    if path.is_empty() {
        return Ok(Place::Kernel);
    }
    if dir == AT_FDCWD {
        if let Some(here) = working() {
            let (mount, open) = here?;
            return Ok(Place::Ours(mount, open, path.to_vec()));
        }
        if !may_enter(path) {
            return Ok(Place::Kernel);
        }
        let here = crate::gate::leaf_read(&WORKING).path.clone();
        return Ok(match find(&join(&here, path)) {
            Some((mount, rest)) => Place::Ours(mount, OpenId::ROOT, rest),
            None => Place::Kernel,
        });
    }
    if let Some(held) = table::get(dir) {
        if !held.is_directory() {
            return Err(Errno::NOTDIR);
        }
        return Ok(Place::Ours(held.mount, held.open(), path.to_vec()));
    }
    if !may_enter(path) {
        return Ok(Place::Kernel);
    }
    let here = {
        let _inside = crate::gate::enter();
        std::fs::read_link(format!("/proc/self/fd/{dir}")).unwrap_or_default()
    };
    Ok(match find(&join(here.as_os_str().as_bytes(), path)) {
        Some((mount, rest)) => Place::Ours(mount, OpenId::ROOT, rest),
        None => Place::Kernel,
    })
}

/// `/proc/self/fd/N` and `/dev/fd/N` of one of ours.
fn descriptor_link(path: &[u8]) -> Option<Place> {
    let rest = path.strip_prefix(b"/proc/self/fd/").or_else(|| path.strip_prefix(b"/dev/fd/"))?;
    let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    let fd: c_int = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    let below = rest.get(end + 1..).unwrap_or_default();
    let held = table::get(fd)?;
    Some(Place::Ours(held.mount, held.open(), below.to_vec()))
}

/// A path that leads out of a folder, as the kernel or another folder has it.
fn outside(mount: &Mount, path: &[u8]) -> Vec<u8> {
    if path.first() == Some(&b'/') { path.to_vec() } else { join(&mount.folder, path) }
}

/// Where a path leads to that has left a folder.
pub(crate) fn follow(mount: &Mount, path: &[u8]) -> Result<Place> {
    let path = outside(mount, path);
    match resolve_bytes(AT_FDCWD, &path)? {
        Place::Kernel => Ok(Place::Other(CString::new(path).map_err(|_| Errno::INVAL)?)),
        other => Ok(other),
    }
}

/// A path from an open directory on, as one from the folder on.
pub(crate) fn below_folder(mount: &'static Mount, base: OpenId, path: Vec<u8>) -> Vec<u8> {
    if base == OpenId::ROOT {
        return path;
    }
    let here = crate::gate::leaf_read(&WORKING);
    let above = match here.ours {
        Some((of, open)) if of.number == mount.number && open == base => {
            here.path.get(mount.folder.len()..).unwrap_or_default().to_vec()
        }
        _ => match mount.ask(&Request::Path { open: base }) {
            Ok(Reply::Bytes(above)) => above,
            _ => return path,
        },
    };
    if path.is_empty() { above } else { join(&above, &path) }
}

/// What came of a call on a path.
pub(crate) enum Outcome {
    /// It is the kernel's, as it came.
    Kernel,
    /// It is the kernel's, by this path.
    Other(CString),
    /// It was done.
    Done(&'static Mount, Reply),
}

/// Does a call on a path, wherever it leads.
///
/// # Errors
/// Those of the call.
///
/// # Safety
/// `path` is a C string or null.
pub(crate) unsafe fn call(
    dir: c_int,
    path: *const c_char,
    follows: bool,
    request: impl Fn(&'static Mount, At<'_>) -> Result<Reply>,
) -> Result<Outcome> {
    call_at(resolve_through_links(dir, path)?, follows, request)
}

/// As [`resolve`]; what the kernel does not find may be behind a symbolic link to a folder.
///
/// # Errors
/// As there.
///
/// # Safety
/// As there.
pub(crate) unsafe fn resolve_through_links(dir: c_int, path: *const c_char) -> Result<Place> {
    let place = resolve(dir, path)?;
    if let Place::Kernel = place
        && start::is_on()
        && !path.is_null()
        && !crate::gate::is_inside()
        && real::faccessat(dir, path, libc::F_OK, libc::AT_SYMLINK_NOFOLLOW) != 0
        && crate::errno::get() == libc::ENOENT
        && let Some(found) = through_links(dir, text(path)?)
    {
        return Ok(found);
    }
    Ok(place)
}

/// As [`call`], from a place on.
pub(crate) fn call_at(
    mut place: Place,
    follows: bool,
    request: impl Fn(&'static Mount, At<'_>) -> Result<Reply>,
) -> Result<Outcome> {
    for _ in 0..CROSSINGS_MAX {
        let (mount, base, path) = match place {
            Place::Kernel => return Ok(Outcome::Kernel),
            Place::Other(path) => return Ok(Outcome::Other(path)),
            Place::Ours(mount, base, path) => (mount, base, path),
        };
        let _inside = crate::gate::enter();
        let at = At { base, path: &path, follows };
        match request(mount, at)? {
            Reply::Outside(_, path) => place = follow(mount, &path)?,
            reply => return Ok(Outcome::Done(mount, reply)),
        }
    }
    Err(Errno::LOOP)
}

/// The directory of a path's last name, `.` if it is the only one; and that name, with slashes behind it.
pub(crate) fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    (if start == 0 { b"." } else { &path[..start] }, &path[start..])
}

/// Where the last name of a path is in the end: its directory may be outside of the folder.
fn settle(mut place: Place) -> Result<Place> {
    for _ in 0..CROSSINGS_MAX {
        let Place::Ours(mount, base, path) = place else { return Ok(place) };
        let (above, name) = split_last(&path);
        let at = At { base, path: above, follows: true };
        let found = {
            let _inside = crate::gate::enter();
            mount.ask(&Request::Access { at, wanted: 0 })?
        };
        match found {
            Reply::Outside(_, outside) => place = follow(mount, &join(&outside, name))?,
            _ => return Ok(Place::Ours(mount, base, path)),
        }
    }
    Err(Errno::LOOP)
}

/// What is wrong with a path of the kernel's beside one of ours, if anything is.
///
/// # Safety
/// The path is a C string or null.
unsafe fn check_kernel((dir, path): (c_int, *const c_char)) -> Result<()> {
    let name = text(path)?;
    if name.is_empty() {
        return Err(Errno::NOENT);
    }
    if name[0] != b'/' && dir != AT_FDCWD && real::fcntl(dir, libc::F_GETFD, 0) < 0 {
        return Err(Errno::BADF);
    }
    Ok(())
}

/// What came of a call on two paths.
pub(crate) enum Both {
    /// Both are the kernel's: by these paths, where they are not those that came.
    Kernel(Option<CString>, Option<CString>),
    /// It was done.
    Done,
}

/// Does a call on two paths.
///
/// # Errors
/// EXDEV when they are not in one file system; those of the call.
///
/// # Safety
/// The paths are C strings or null.
pub(crate) unsafe fn call_two(
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    follows: bool,
    request: impl for<'a> Fn(At<'a>, At<'a>) -> Request<'a>,
) -> Result<Both> {
    let (mut first, mut second) =
        (resolve_through_links(from.0, from.1)?, resolve_through_links(to.0, to.1)?);
    let mut has_settled = false;
    for _ in 0..CROSSINGS_MAX {
        let (mount, base, path, other, other_base, other_path) = match (&first, &second) {
            (Place::Ours(mount, base, path), Place::Ours(other, other_base, other_path)) => {
                (*mount, *base, path, *other, *other_base, other_path)
            }
            (Place::Ours(..), _) | (_, Place::Ours(..)) if !has_settled => {
                // One of them may leave its folder yet.
                has_settled = true;
                (first, second) = (settle(first)?, settle(second)?);
                continue;
            }
            (Place::Ours(..), _) => {
                check_kernel(to)?;
                return Err(Errno::XDEV);
            }
            (_, Place::Ours(..)) => {
                check_kernel(from)?;
                return Err(Errno::XDEV);
            }
            _ => {
                let path = |place: Place| if let Place::Other(path) = place { Some(path) } else { None };
                return Ok(Both::Kernel(path(first), path(second)));
            }
        };
        if mount.number != other.number {
            return Err(Errno::XDEV);
        }
        let _inside = crate::gate::enter();
        let at = At { base, path, follows };
        let to = At { base: other_base, path: other_path, follows: false };
        match mount.call(&request(at, to), &[], &mut [])? {
            Reply::Outside(false, path) => first = follow(mount, &path)?,
            Reply::Outside(true, path) => second = follow(mount, &path)?,
            _ => return Ok(Both::Done),
        }
    }
    Err(Errno::LOOP)
}

/// The working directory's path when it is ours.
///
/// # Errors
/// ENOENT when it was removed.
pub(crate) fn our_working_directory() -> Option<Result<Vec<u8>>> {
    let (mount, open) = match working()? {
        Ok(found) => found,
        Err(e) => return Some(Err(e)),
    };
    let _inside = crate::gate::enter();
    Some(match mount.call(&Request::Path { open }, &[], &mut []) {
        Ok(Reply::Bytes(path)) => {
            let mut whole = mount.folder.clone();
            whole.extend_from_slice(&path);
            Ok(whole)
        }
        Ok(_) => Err(Errno::NOENT),
        Err(e) => Err(e),
    })
}

/// After the kernel's working directory has changed.
pub(crate) fn note_kernel_change() {
    leave();
    note(kernel_working_directory());
}

/// The directory that was open for it is not any more: it is opened again by its path.
pub(crate) fn forget_working() {
    crate::gate::leaf_write(&WORKING).ours = None;
}

fn leave() {
    let before = crate::gate::leaf_write(&WORKING).ours.take();
    if let Some((mount, open)) = before {
        let _inside = crate::gate::enter();
        let _ = mount.call(&Request::Close { open }, &[], &mut []);
    }
}

/// Goes to a directory of ours. The kernel's working directory is the folder then.
///
/// # Errors
/// ENOENT, ENOTDIR, EACCES.
pub(crate) fn change(mount: &'static Mount, base: OpenId, path: &[u8]) -> Result<Option<Place>> {
    let inside = crate::gate::enter();
    let at = At { base, path: if path.is_empty() { b"." } else { path }, follows: true };
    let flags = (libc::O_DIRECTORY | libc::O_PATH) as u32;
    let open = match mount.call(&Request::Open { at, flags, mode: 0 }, &[], &mut [])? {
        Reply::Opened(open, ..) => open,
        Reply::Outside(_, path) => return follow(mount, &path).map(Some),
        _ => return Err(Errno::NOENT),
    };
    let here = At { base: open, path: b".", follows: true };
    if let Err(errno) = mount.ask(&Request::Access { at: here, wanted: unvme_fs::EXECUTE }) {
        let _ = mount.ask(&Request::Close { open });
        return Err(errno);
    }
    let folder = CString::new(mount.folder.clone()).map_err(|_| Errno::INVAL)?;
    rustix::process::chdir(folder.as_c_str())?;
    let path = match mount.call(&Request::Path { open }, &[], &mut []) {
        Ok(Reply::Bytes(path)) => path,
        _ => Vec::new(),
    };
    drop(inside);
    leave();
    let mut whole = mount.folder.clone();
    whole.extend_from_slice(&path);
    *crate::gate::leaf_write(&WORKING) = Working { path: whole, ours: Some((mount, open)) };
    IS_OURS.store(true, Ordering::Release);
    Ok(None)
}

/// The folder that the working directory is in.
pub(crate) fn our_mount() -> Option<&'static Mount> {
    if !IS_OURS.load(Ordering::Acquire) {
        return None;
    }
    let here = crate::gate::leaf_read(&WORKING);
    here.ours.map(|(mount, _)| mount).or_else(|| within(&here.path).map(|(mount, _)| mount))
}

/// The path of the working directory for the next program, when it is ours.
pub(crate) fn handed() -> Option<Vec<u8>> {
    our_working_directory().and_then(Result::ok)
}

/// Where a path of the kernel's leads to that goes through symbolic links: `None` when it does not come to a
/// folder.
pub(crate) fn through_links(dir: c_int, path: &[u8]) -> Option<Place> {
    if path.is_empty() {
        return None;
    }
    // What is asked for here is the kernel's.
    let _inside = crate::gate::enter();
    let whole = match (path.first(), dir) {
        (Some(b'/'), _) => path.to_vec(),
        (_, AT_FDCWD) => join(&crate::gate::leaf_read(&WORKING).path, path),
        _ => {
            let here = std::fs::read_link(format!("/proc/self/fd/{dir}")).ok()?;
            join(here.as_os_str().as_bytes(), path)
        }
    };
    // The longest part that is there, and where it is.
    let trimmed = whole.iter().rposition(|&byte| byte != b'/').map(|at| &whole[..=at])?;
    let mut end = trimmed.len();
    loop {
        let front = std::path::Path::new(std::ffi::OsStr::from_bytes(&trimmed[..end]));
        if let Ok(target) = std::fs::read_link(front) {
            // A link at its end, to what may not be there for the kernel.
            let parent = front.parent().and_then(|parent| parent.canonicalize().ok())?;
            let joined = parent.join(target);
            let mut text = joined.as_os_str().as_bytes().to_vec();
            text.extend_from_slice(&trimmed[end..]);
            return find(&text).map(|(mount, rest)| Place::Ours(mount, OpenId::ROOT, rest));
        }
        if let Ok(real) = front.canonicalize() {
            let mut text = real.as_os_str().as_bytes().to_vec();
            text.extend_from_slice(&trimmed[end..]);
            return find(&text).map(|(mount, rest)| Place::Ours(mount, OpenId::ROOT, rest));
        }
        end = trimmed[..end].iter().rposition(|&byte| byte == b'/').filter(|&at| at > 0)?;
    }
}

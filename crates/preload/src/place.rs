//! Which paths are ours, and where the working directory is.

use std::ffi::{CString, c_char, c_int};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::AT_FDCWD;
use rustix::io::Errno;
use unvme::lock::{lock, write};
use unvme_fs::calls::{At, FileHandle, OpenId, Reply, Request};

use crate::errno::{Result, text};
use crate::mount::{self, Mount};
use crate::pathname::Text;
use crate::{links, real, state, table};

/// How often a path may lead out of a folder and into another one.
pub(crate) const CROSSINGS_MAX: usize = 40;

/// The working directory.
#[derive(Clone)]
struct Working {
    /// From the machine's root on; empty when nobody knows.
    path: Vec<u8>,
    /// When it is in a folder: which one, and the directory, which is open for this.
    ours: Option<(&'static Mount, OpenId)>,
    /// Which directory that was or is, whatever its path is by now.
    file: Option<FileHandle>,
}

static WORKING: RwLock<Working> = RwLock::new(Working { path: Vec::new(), ours: None, file: None });
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
    links::start();
    crate::program::start();
    let kernels = kernel_working_directory();
    let folder_of = |path: &[u8]| within(path).map(|(mount, _)| mount.number);
    // The kernel is in the folder then: a child that was sent elsewhere is not.
    let handed = handed.filter(|path| folder_of(path).is_some() && folder_of(path) == folder_of(&kernels));
    note(handed.unwrap_or(kernels));
}

/// Notes where the working directory is. Ours is opened when it is needed.
fn note(path: Vec<u8>) {
    let is_ours = within(&path).is_some();
    *crate::gate::leaf_write(&WORKING) = Working { path, ours: None, file: None };
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

/// The names of a path, with where each ends; without `.`.
fn parts(path: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            from += path[from..].iter().position(|&byte| byte != b'/')?;
            let end = path[from..].iter().position(|&byte| byte == b'/').map_or(path.len(), |len| from + len);
            let name = &path[from..end];
            from = end;
            if name != b"." {
                return Some((name, end));
            }
        }
    })
}

/// What is behind a place in a path, without the slashes before it.
fn behind(path: &[u8], end: usize) -> &[u8] {
    let rest = path.get(end..).unwrap_or_default();
    rest.iter().position(|&byte| byte != b'/').map_or(b"", |at| &rest[at..])
}

/// Which folder a path is in that goes on from a directory of the kernel's, and what is behind the folder. As
/// long as it is in none, no memory is taken: the caller may be a handler of a signal that has interrupted
/// the program's allocator.
fn find(above: &[u8], path: &[u8]) -> Option<(&'static Mount, Vec<u8>)> {
    if parts(above).chain(parts(path)).any(|(name, _)| name == b"..") {
        return find_joined(above, path);
    }
    let enters = |folder: &[u8]| {
        let mut names = folder.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        let mut given = parts(above).map(|(name, _)| (name, 0)).chain(parts(path));
        let mut end = 0;
        names.all(|wanted| given.next().is_some_and(|(name, at)| (end = at, name == wanted).1)).then_some(end)
    };
    let mut found = None;
    for mount in mount::all() {
        if enters(&mount.folder).or_else(|| enters(&mount.alias)).is_some() {
            found = Some(mount);
            break;
        }
    }
    found?;
    find_joined(above, path)
}

fn find_joined(above: &[u8], path: &[u8]) -> Option<(&'static Mount, Vec<u8>)> {
    let mut whole = Text::new();
    whole.push_joined(above, path)?;
    find_by_steps(whole.bytes())
}

/// As [`find`], name by name: `..` is followed where it can be.
fn find_by_steps(path: &[u8]) -> Option<(&'static Mount, Vec<u8>)> {
    let mut at = Text::new();
    for (name, end) in parts(path) {
        match name {
            b".." => above(&mut at),
            name => at.push(b"/").and_then(|()| at.push(name))?,
        }
        let rest = behind(path, end);
        let is_left = rest.starts_with(b"..") && (rest.len() == 2 || rest[2] == b'/');
        let found = mount::all().iter().find(|mount| at.bytes() == mount.folder || at.bytes() == mount.alias);
        if let Some(mount) = found.filter(|_| !is_left) {
            // A folder may be in another one.
            let deeper = mount::all()
                .iter()
                .any(|other| other.number != mount.number && below(&other.folder, &mount.folder).is_some());
            if !deeper || within_deeper(mount, rest).is_none() {
                // The folder itself is the root.
                return Some((mount, if rest.is_empty() { b"/" } else { rest }.to_vec()));
            }
        }
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

/// Goes to the directory above one of the kernel's, whatever its name leads to.
fn above(at: &mut Text) {
    let before = crate::errno::get();
    let mut real = [0; libc::PATH_MAX as usize];
    let length = at.bytes().len();
    let is_there = at.push(b"/..").is_some() && {
        // SAFETY: a C string, and memory for the longest path.
        unsafe { !real::realpath(at.pointer(), real.as_mut_ptr()).is_null() }
    };
    at.cut(length);
    if is_there {
        // SAFETY: the C library has put a C string there.
        let found = unsafe { std::ffi::CStr::from_ptr(real.as_ptr()) }.to_bytes();
        at.cut(0);
        let _ = at.push(if found == b"/" { b"" } else { found });
    } else {
        at.cut(at.bytes().iter().rposition(|&byte| byte == b'/').unwrap_or(0));
    }
    crate::errno::put(before);
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
    Some(open_again(mount, rest, here.file).map(|(open, file)| {
        let mut here = crate::gate::leaf_write(&WORKING);
        (here.ours, here.file) = (Some((mount, open)), Some(file));
        (mount, open)
    }))
}

/// Opens the working directory for another server, or after `exec`, where only its path is known.
fn open_again(mount: &'static Mount, path: &[u8], file: Option<FileHandle>) -> Result<(OpenId, FileHandle)> {
    let flags = (libc::O_DIRECTORY | libc::O_PATH) as u32;
    let at = At { base: OpenId::ROOT, path: if path.is_empty() { b"." } else { path }, follows: true };
    let request = match file {
        Some(file) => file.adopt(flags),
        None => Request::Open { at, flags, mode: 0 },
    };
    match mount.call(&request, &[], &mut []) {
        Ok(Reply::Opened(open, file, ..)) => Ok((open, file)),
        // It was removed.
        Ok(_) | Err(Errno::STALE) => Err(Errno::NOENT),
        Err(errno) => Err(errno),
    }
}

/// Bytes of a path that the kernel does not take, without its NUL.
const PATH_BYTES: usize = libc::PATH_MAX as usize;

/// Whether the kernel would take a path for none, however it is made up.
///
/// # Safety
/// `path` is a C string or null.
pub(crate) unsafe fn is_too_long(path: *const c_char) -> bool {
    !path.is_null() && text(path).is_ok_and(|path| path.len() >= PATH_BYTES)
}

/// Where a path leads to, from a directory on.
///
/// # Errors
/// EBADF and ENOTDIR of the directory.
///
/// # Safety
/// `path` is a C string or null.
pub(crate) unsafe fn resolve(dir: c_int, path: *const c_char) -> Result<Place> {
    resolve_as(dir, path, true)
}

/// As [`resolve`]; a link at the end may be meant itself.
///
/// # Errors
/// As there; ENAMETOOLONG for a path that the kernel would not take, whoever's it is.
///
/// # Safety
/// As there.
pub(crate) unsafe fn resolve_as(dir: c_int, path: *const c_char, follows: bool) -> Result<Place> {
    if !state::is_on() || path.is_null() {
        return Ok(Place::Kernel);
    }
    let path = text(path)?;
    if path.len() >= PATH_BYTES {
        return Err(Errno::NAMETOOLONG);
    }
    if !follows && links::descriptor(path).is_some_and(|(_, rest)| rest.is_empty()) {
        // The name of a descriptor is a link of the kernel's.
        return Ok(Place::Kernel);
    }
    if crate::gate::is_inside() {
        return resolve_inside(dir, path);
    }
    resolve_bytes(dir, path)
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
    let ours = |found: Option<(&'static Mount, Vec<u8>)>| {
        found.map_or(Place::Kernel, |(mount, rest)| Place::Ours(mount, OpenId::ROOT, rest))
    };
    if path.first() == Some(&b'/') {
        if let Some((fd, rest)) = links::descriptor(path)
            && let Some(held) = table::get(fd)
        {
            return Ok(Place::Ours(held.mount, held.open(), rest.to_vec()));
        }
        if let Some(below) = links::own(path).and_then(|path| path.strip_prefix(b"cwd/"))
            && IS_OURS.load(Ordering::Acquire)
        {
            return resolve_bytes(AT_FDCWD, if below.is_empty() { b"." } else { below });
        }
        return Ok(ours(find(b"", path)));
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
        let mut here = Text::new();
        let is_right = here.push_joined(&crate::gate::leaf_read(&WORKING).path, b"");
        return Ok(ours(is_right.and_then(|()| find(here.bytes(), path))));
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
    Ok(ours(links::path_of_kernel(dir).and_then(|here| find(here.bytes(), path))))
}

/// The folder that a path from the machine's root on is in.
pub(crate) fn from_root(path: &[u8]) -> Option<Place> {
    find(b"", path).map(|(mount, rest)| Place::Ours(mount, OpenId::ROOT, rest))
}

/// A path of the kernel's from the machine's root on.
pub(crate) fn whole(dir: c_int, path: &[u8]) -> Option<Text> {
    match (path.first(), dir) {
        (Some(b'/'), _) => Text::join(b"", path),
        (_, AT_FDCWD) => Text::join(&crate::gate::leaf_read(&WORKING).path, path),
        _ => Text::join(links::path_of_kernel(dir)?.bytes(), path),
    }
}

/// A path that leads out of a folder, as the kernel or another folder has it.
fn outside(mount: &Mount, path: &[u8]) -> Vec<u8> {
    if path.first() == Some(&b'/') { path.to_vec() } else { join(&mount.folder, path) }
}

/// Where a path leads to that has left a folder.
pub(crate) fn follow(mount: &Mount, path: &[u8], follows: bool) -> Result<Place> {
    let path = CString::new(outside(mount, path)).map_err(|_| Errno::INVAL)?;
    match resolve_bytes(AT_FDCWD, path.to_bytes())? {
        Place::Kernel => {
            // SAFETY: a C string.
            let found = unsafe { links::instead(AT_FDCWD, path.as_ptr(), follows) };
            Ok(found.unwrap_or(Place::Other(path)))
        }
        other => Ok(other),
    }
}

/// A path from an open directory on, as one from the folder on: empty where that is not known without asking.
pub(crate) fn below_folder(mount: &'static Mount, base: OpenId, dir: c_int, path: Vec<u8>) -> Vec<u8> {
    if base == OpenId::ROOT || path.is_empty() {
        return path;
    }
    let here = crate::gate::leaf_read(&WORKING);
    if let Some((of, open)) = here.ours
        && of.number == mount.number
        && open == base
    {
        return join(here.path.get(mount.folder.len()..).unwrap_or_default(), &path);
    }
    drop(here);
    match table::get(dir).filter(|held| held.open() == base).map(|held| lock(&held.path).clone()) {
        Some(above) if !above.is_empty() => join(&above, &path),
        _ => Vec::new(),
    }
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
    state::steadily(|| call_at(resolve_through_links(dir, path, follows)?, follows, &request))
}

/// As [`resolve_as`]; what the kernel does not find may be behind a symbolic link to a folder.
///
/// # Errors
/// As there.
///
/// # Safety
/// As there.
pub(crate) unsafe fn resolve_through_links(dir: c_int, path: *const c_char, follows: bool) -> Result<Place> {
    let place = resolve_as(dir, path, follows)?;
    if let Place::Kernel = place
        && state::is_on()
        && !path.is_null()
        && !crate::gate::is_inside()
        && let Some(found) = links::instead(dir, path, follows)
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
            Reply::Outside(_, path) => place = follow(mount, &path, follows)?,
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
///
/// # Errors
/// Those of looking for the directory.
pub(crate) fn settle(mut place: Place) -> Result<Place> {
    for _ in 0..CROSSINGS_MAX {
        let Place::Ours(mount, base, path) = place else { return Ok(place) };
        if path.is_empty() {
            // An open file.
            return Ok(Place::Ours(mount, base, path));
        }
        let (above, name) = split_last(&path);
        let at = At { base, path: above, follows: true };
        let found = {
            let _inside = crate::gate::enter();
            mount.ask(&Request::Access { at, wanted: 0 })?
        };
        match found {
            Reply::Outside(_, outside) => place = follow(mount, &join(&outside, name), false)?,
            _ => return Ok(Place::Ours(mount, base, path)),
        }
    }
    Err(Errno::LOOP)
}

/// What a call on two paths looks for by the first one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Old {
    /// A name, and with it only the directory that it is in.
    Name,
    /// What it leads to.
    File { follows: bool },
}

impl Old {
    fn follows(self) -> bool {
        self == Self::File { follows: true }
    }

    /// What is wrong with the first path, if anything is, though the second one is not even looked at. It is
    /// left where it leads to in the end.
    ///
    /// # Safety
    /// The path is a C string or null.
    unsafe fn settle(self, mut place: Place, (dir, path): (c_int, *const c_char)) -> Result<Place> {
        for _ in 0..CROSSINGS_MAX {
            place = settle(place)?;
            match (&place, self) {
                (Place::Ours(..), Self::Name) => {}
                (Place::Ours(mount, base, path), Self::File { follows }) => {
                    let at = At { base: *base, path, follows };
                    let found = {
                        let _inside = crate::gate::enter();
                        mount.ask(&Request::Attributes { at })?
                    };
                    if let Reply::Outside(_, path) = found {
                        place = follow(mount, &path, follows)?;
                        continue;
                    }
                }
                (Place::Kernel, _) => check_kernel((dir, path), self)?,
                (Place::Other(path), _) => check_kernel((AT_FDCWD, path.as_ptr()), self)?,
            }
            return Ok(place);
        }
        Err(Errno::LOOP)
    }
}

/// What is said of two names that are not in one file system, where nothing is wrong with the first one: what
/// is wrong with the second one, whose place is settled, or EXDEV.
///
/// # Safety
/// The path is a C string or null.
pub(crate) unsafe fn apart(second: &Place, to: (c_int, *const c_char), old: Old) -> Errno {
    check_new(second, to, old).err().unwrap_or(Errno::XDEV)
}

/// # Safety
/// As for [`apart`].
unsafe fn check_new(second: &Place, to: (c_int, *const c_char), old: Old) -> Result<()> {
    let (there, path) = match second {
        Place::Ours(..) if old == Old::Name => return Ok(()),
        Place::Ours(mount, base, path) => {
            let _inside = crate::gate::enter();
            let at = At { base: *base, path, follows: false };
            (mount.ask(&Request::Attributes { at }).map(drop), path.as_slice())
        }
        Place::Kernel | Place::Other(_) => {
            let at = if let Place::Other(path) = second { (AT_FDCWD, path.as_ptr()) } else { to };
            check_kernel(at, Old::Name)?;
            if old == Old::Name {
                return Ok(());
            }
            (check_kernel(at, Old::File { follows: false }), text(at.1)?)
        }
    };
    match there {
        Ok(()) => Err(Errno::EXIST),
        Err(Errno::NOENT) if !path.ends_with(b"/") => Ok(()),
        other => other,
    }
}

/// What is wrong with a path of the kernel's beside one of ours, if anything is.
///
/// # Safety
/// The path is a C string or null.
unsafe fn check_kernel((dir, path): (c_int, *const c_char), looked_for: Old) -> Result<()> {
    let name = text(path)?;
    if name.is_empty() {
        return Err(Errno::NOENT);
    }
    let (path, flags) = match looked_for {
        Old::File { follows: true } => (name, 0),
        Old::File { follows: false } => (name, libc::AT_SYMLINK_NOFOLLOW),
        Old::Name => (split_last(name).0, 0),
    };
    let path = CString::new(path).expect("it was a C string");
    if real::faccessat(dir, path.as_ptr(), libc::F_OK, flags | libc::AT_EACCESS) < 0 {
        return Err(crate::errno::last());
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
    old: Old,
    request: impl for<'a> Fn(At<'a>, At<'a>) -> Request<'a>,
) -> Result<Both> {
    state::steadily(|| call_two_once(from, to, old, &request))
}

unsafe fn call_two_once(
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    old: Old,
    request: &impl for<'a> Fn(At<'a>, At<'a>) -> Request<'a>,
) -> Result<Both> {
    let follows = old.follows();
    let mut first = resolve_through_links(from.0, from.1, follows)?;
    let mut second = match resolve_through_links(to.0, to.1, false) {
        Ok(second) => second,
        Err(errno) => {
            // The kernel looks at the first one before.
            old.settle(first, from)?;
            return Err(errno);
        }
    };
    let mut has_settled = false;
    for _ in 0..CROSSINGS_MAX {
        let (mount, base, path, other_base, other_path) = match (&first, &second) {
            (Place::Ours(mount, base, path), Place::Ours(other, other_base, other_path))
                if mount.number == other.number =>
            {
                (*mount, *base, path, *other_base, other_path)
            }
            (Place::Ours(..), _) | (_, Place::Ours(..)) if !has_settled => {
                // One of them may leave its folder yet.
                has_settled = true;
                first = old.settle(first, from)?;
                second = settle(second)?;
                continue;
            }
            (Place::Ours(..), _) | (_, Place::Ours(..)) => return Err(apart(&second, to, old)),
            _ => {
                let path = |place: Place| if let Place::Other(path) = place { Some(path) } else { None };
                return Ok(Both::Kernel(path(first), path(second)));
            }
        };
        let _inside = crate::gate::enter();
        let at = At { base, path, follows };
        let to = At { base: other_base, path: other_path, follows: false };
        match mount.call(&request(at, to), &[], &mut [])? {
            Reply::Outside(false, path) => first = follow(mount, &path, follows)?,
            Reply::Outside(true, path) => second = follow(mount, &path, false)?,
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

/// Another server has the file system: it opens the working directory at once. After this process has given
/// up root it may not be opened by its number any more, as the kernel's may not by a file handle.
pub(crate) fn reopen_working(mount: &'static Mount) {
    if our_mount().is_some_and(|here| here.number == mount.number) {
        crate::gate::leaf_write(&WORKING).ours = None;
        // What is wrong is said by the first call that needs it.
        let _ = working();
    }
}

fn leave() {
    let before = crate::gate::leaf_write(&WORKING).ours.take();
    if let Some((mount, open)) = before {
        let _inside = crate::gate::enter();
        let _ = mount.call(&Request::Release { open }, &[], &mut []);
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
    let (open, file) = match mount.call(&Request::Open { at, flags, mode: 0 }, &[], &mut [])? {
        Reply::Opened(open, file, ..) => (open, file),
        Reply::Outside(_, path) => return follow(mount, &path, true).map(Some),
        _ => return Err(Errno::NOENT),
    };
    let here = At { base: open, path: b".", follows: true };
    if let Err(errno) = mount.ask(&Request::Access { at: here, wanted: unvme_fs::EXECUTE }) {
        let _ = mount.ask(&Request::Release { open });
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
    *crate::gate::leaf_write(&WORKING) = Working { path: whole, ours: Some((mount, open)), file: Some(file) };
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

/// The path of the working directory for the next program, when it is ours. Of one that was removed it is the
/// one that it had: there is nothing any more.
pub(crate) fn handed() -> Option<Vec<u8>> {
    our_working_directory().map(|path| path.unwrap_or_else(|_| crate::gate::leaf_read(&WORKING).path.clone()))
}

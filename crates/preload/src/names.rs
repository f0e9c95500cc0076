//! Names: making and removing them, links, and where they lead.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint};
use std::sync::atomic::Ordering;

use libc::{
    AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, PATH_MAX, RENAME_EXCHANGE, RENAME_NOREPLACE,
    RENAME_WHITEOUT, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, dev_t, mode_t, size_t, ssize_t,
};
use rustix::io::Errno;
use unvme::lock::lock;
use unvme_fs::calls::{At, OpenId, Reply, Request};

use crate::errno::{self, Result, bytes, done, pointer, set, text};
use crate::mount::Mount;
use crate::open::masked;
use crate::place::{self, Both, Old, Outcome, Place};
use crate::{gate, links, memory, real, state, table};

/// The path that a call of the kernel's takes.
fn or(path: Option<&CString>, given: *const c_char) -> *const c_char {
    path.map_or(given, |path| path.as_ptr())
}

/// Where a path is at whose end something is made: symbolic links may lead to a folder.
///
/// # Errors
/// As for [`place::resolve`].
///
/// # Safety
/// As there.
pub(crate) unsafe fn place_of_new(dir: c_int, path: *const c_char) -> Result<Place> {
    let place = place::resolve_as(dir, path, false)?;
    if let Place::Kernel = place
        && state::is_on()
        && !path.is_null()
        && !gate::is_inside()
    {
        let name = text(path)?;
        let end = name.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        if let Some(at) = name[..end].iter().rposition(|&byte| byte == b'/')
            && at > 0
            && let Some(Place::Ours(mount, base, mut rest)) = links::through_links(dir, &name[..at])
        {
            rest.push(b'/');
            rest.extend_from_slice(&name[at + 1..]);
            return Ok(Place::Ours(mount, base, rest));
        }
    }
    Ok(place)
}

unsafe fn make(
    dir: c_int,
    path: *const c_char,
    mode: mode_t,
    device: dev_t,
    target: &[u8],
) -> Result<Outcome> {
    state::steadily(|| {
        let place = place_of_new(dir, path)?;
        place::call_at(place, false, |mount, at| mount.ask(&Request::Make { at, mode, rdev: device, target }))
    })
}

unsafe fn mkdir_any(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    match make(dir, path, S_IFDIR | masked(mode & 0o1777), 0, b"") {
        Ok(Outcome::Kernel) if dir == AT_FDCWD => real::mkdir(path, mode),
        Ok(Outcome::Kernel) => real::mkdirat(dir, path, mode),
        Ok(Outcome::Other(path)) => real::mkdir(path.as_ptr(), mode),
        other => done(other.map(drop)),
    }
}

unsafe fn mknod_any(dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    let kind = if mode & S_IFMT == 0 { S_IFREG } else { mode & S_IFMT };
    let wrong = match kind {
        S_IFREG | libc::S_IFCHR | libc::S_IFBLK | S_IFIFO | libc::S_IFSOCK => None,
        S_IFDIR => Some(Errno::PERM),
        _ => Some(Errno::INVAL),
    };
    if let Some(wrong) = wrong
        && matches!(place::resolve(dir, path), Ok(Place::Ours(..)))
    {
        return done(Err(wrong));
    }
    match make(dir, path, kind | masked(mode & 0o7777), device, b"") {
        Ok(Outcome::Kernel) => real::mknodat(dir, path, mode, device),
        Ok(Outcome::Other(path)) => real::mknod(path.as_ptr(), mode, device),
        other => done(other.map(drop)),
    }
}

unsafe fn symlink_any(target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
    let made = text(target).and_then(|target| {
        if target.is_empty() {
            return Err(Errno::NOENT);
        }
        make(dir, path, S_IFLNK | 0o777, 0, target)
    });
    match made {
        Ok(Outcome::Kernel) => real::symlinkat(target, dir, path),
        Ok(Outcome::Other(path)) => real::symlink(target, path.as_ptr()),
        other => done(other.map(drop)),
    }
}

unsafe fn remove_any(dir: c_int, path: *const c_char, is_directory: bool) -> c_int {
    match place::call(dir, path, false, |mount, at| mount.ask(&Request::Remove { at, is_directory })) {
        Ok(Outcome::Kernel) => real::unlinkat(dir, path, if is_directory { AT_REMOVEDIR } else { 0 }),
        Ok(Outcome::Other(path)) if is_directory => real::rmdir(path.as_ptr()),
        Ok(Outcome::Other(path)) => real::unlink(path.as_ptr()),
        other => done(other.map(drop)),
    }
}

unsafe fn rename_any(from: (c_int, *const c_char), to: (c_int, *const c_char), flags: c_uint) -> c_int {
    let exchanges = flags & RENAME_EXCHANGE != 0;
    if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) != 0
        || exchanges && flags != RENAME_EXCHANGE
    {
        return done(Err(Errno::INVAL));
    }
    match place::call_two(from, to, Old::Name, |from, to| Request::Rename { from, to, flags }) {
        Ok(Both::Kernel(None, None)) if flags == 0 => real::renameat(from.0, from.1, to.0, to.1),
        Ok(Both::Kernel(first, second)) => {
            real::renameat2(from.0, or(first.as_ref(), from.1), to.0, or(second.as_ref(), to.1), flags)
        }
        Ok(Both::Done) => 0,
        Err(errno) => done(Err(errno)),
    }
}

unsafe fn link_any(from: (c_int, *const c_char), to: (c_int, *const c_char), flags: c_int) -> c_int {
    if flags & AT_EMPTY_PATH != 0 && text(from.1).is_ok_and(<[u8]>::is_empty) {
        if let Some((mount, open)) = table::get(from.0).map(|held| (held.mount.number, held.open())) {
            return done(link_open(mount, open, to));
        }
        if from.0 == AT_FDCWD {
            return link_any((AT_FDCWD, c".".as_ptr()), to, flags & !AT_EMPTY_PATH);
        }
        if real::fcntl(from.0, libc::F_GETFD, 0) < 0 {
            return done(Err(Errno::BADF));
        }
        return match to_of_kernel(to) {
            Ok(path) => {
                let dir = if path.is_some() { AT_FDCWD } else { to.0 };
                real::linkat(from.0, from.1, dir, or(path.as_ref(), to.1), flags)
            }
            Err(errno) => done(Err(errno)),
        };
    }
    let old = Old::File { follows: flags & AT_SYMLINK_FOLLOW != 0 };
    match place::call_two(from, to, old, |from, to| Request::Link { from, to }) {
        Ok(Both::Kernel(first, second)) => {
            real::linkat(from.0, or(first.as_ref(), from.1), to.0, or(second.as_ref(), to.1), flags)
        }
        other => done(other.map(drop)),
    }
}

/// The kernel's path of a new name for one of the kernel's files, where it is not the one that came.
unsafe fn to_of_kernel(to: (c_int, *const c_char)) -> Result<Option<CString>> {
    match place::settle(place_of_new(to.0, to.1)?)? {
        Place::Kernel => Ok(None),
        Place::Other(path) => Ok(Some(path)),
        ours @ Place::Ours(..) => Err(place::apart(&ours, to, Old::File { follows: false })),
    }
}

/// Gives an open file a name.
unsafe fn link_open(mount: u32, open: OpenId, to: (c_int, *const c_char)) -> Result<()> {
    if text(to.1)?.is_empty() {
        return Err(Errno::NOENT);
    }
    let mut place = place_of_new(to.0, to.1)?;
    for _ in 0..place::CROSSINGS_MAX {
        place = place::settle(place)?;
        let (found, base, path) = match &place {
            Place::Ours(found, base, path) if found.number == mount => (*found, *base, path),
            _ => return Err(place::apart(&place, to, Old::File { follows: false })),
        };
        let from = At { base: open, path: b"", follows: true };
        let at = At { base, path, follows: false };
        match found.call(&Request::Link { from, to: at }, &[], &mut [])? {
            Reply::Outside(_, path) => place = place::follow(found, &path, false)?,
            _ => return Ok(()),
        }
    }
    Err(Errno::LOOP)
}

unsafe fn readlink_any(dir: c_int, path: *const c_char, buf: *mut c_char, room: size_t) -> ssize_t {
    if room == 0 {
        return bytes(Err(Errno::INVAL));
    }
    if let Some(target) = descriptor_path(path) {
        return bytes(target.and_then(|target| put_bytes(&target, buf, room)));
    }
    if state::is_on()
        && text(path).is_ok_and(<[u8]>::is_empty)
        && let Some(held) = table::get(dir)
    {
        let at = held.at();
        let found = held.call(&Request::ReadLink { at });
        return bytes(match found {
            Ok(Reply::Bytes(target)) => put_bytes(&target, buf, room),
            _ => Err(Errno::NOENT),
        });
    }
    match place::call(dir, path, false, |mount, at| mount.ask(&Request::ReadLink { at })) {
        Ok(Outcome::Kernel) => real::readlinkat(dir, path, buf, room),
        Ok(Outcome::Other(path)) => real::readlink(path.as_ptr(), buf, room),
        Ok(Outcome::Done(_, Reply::Bytes(target))) => bytes(put_bytes(&target, buf, room)),
        Ok(Outcome::Done(..)) => bytes(Err(Errno::INVAL)),
        Err(errno) => bytes(Err(errno)),
    }
}

unsafe fn put_bytes(found: &[u8], buf: *mut c_char, room: size_t) -> Result<usize> {
    let some = found.len().min(room);
    memory::check_writable(buf.cast(), some)?;
    std::ptr::copy_nonoverlapping(found.as_ptr(), buf.cast(), some);
    Ok(some)
}

/// What `/proc/self/fd/N` is a link to, when the descriptor is ours.
unsafe fn descriptor_path(path: *const c_char) -> Option<Result<Vec<u8>>> {
    if !state::is_on() || path.is_null() || gate::is_inside() {
        return None;
    }
    let text = text(path).ok()?;
    if links::own(text) == Some(b"cwd") {
        return place::our_working_directory();
    }
    if links::own(text) == Some(b"exe") {
        return crate::program::own_path().map(|path| Ok(path.to_vec()));
    }
    if text.starts_with(b"/dev/std") {
        // A link to that.
        return None;
    }
    links::held(path).map(|held| path_of_open(&held))
}

/// The whole path of an open file, as it is now.
fn path_of_open(held: &table::Held) -> Result<Vec<u8>> {
    let mut whole = held.mount.folder.clone();
    let opened = lock(&held.path).clone();
    let links = crate::attributes::of_open(held)?.links;
    if links == 0 {
        whole.push(b'/');
        whole.extend_from_slice(opened.strip_prefix(b"/").unwrap_or(&opened));
        whole.extend_from_slice(b" (deleted)");
        return Ok(whole);
    }
    let below = match held.is_directory() {
        true => table::path_of(held)?,
        false => match still_there(held, &opened) {
            Some(path) => path,
            // It was renamed, or opened by a program before this one.
            None => table::path_of(held)?,
        },
    };
    whole.extend_from_slice(&below);
    Ok(whole)
}

/// The path that a file was opened by, if it is still there, without symbolic links.
fn still_there(held: &table::Held, opened: &[u8]) -> Option<Vec<u8>> {
    if opened.is_empty() {
        return None;
    }
    let (directory, name) = Directory::above(held.mount, OpenId::ROOT, opened).ok()?;
    let at = At { base: directory.open, path: name, follows: false };
    match held.call(&Request::Attributes { at }) {
        Ok(Reply::Attributes(found)) if found.ino == held.slot.ino.load(Ordering::Relaxed) => {}
        _ => return None,
    }
    let mut path = directory.path().ok()?;
    path.push(b'/');
    path.extend_from_slice(name);
    Some(path)
}

/// A directory that is open as long as somebody has this.
struct Directory {
    mount: &'static Mount,
    open: OpenId,
}

impl Directory {
    /// That of a path's last name, and the name.
    fn above<'a>(mount: &'static Mount, base: OpenId, path: &'a [u8]) -> Result<(Self, &'a [u8])> {
        let (above, name) = place::split_last(path);
        let at = At { base, path: above, follows: true };
        let open = match mount.call(&Request::Open { at, flags: O_PATH, mode: 0 }, &[], &mut [])? {
            Reply::Opened(open, ..) => open,
            _ => return Err(Errno::NOENT),
        };
        let end = name.iter().position(|&byte| byte == b'/').unwrap_or(name.len());
        Ok((Self { mount, open }, &name[..end]))
    }

    fn path(&self) -> Result<Vec<u8>> {
        match self.mount.call(&Request::Path { open: self.open }, &[], &mut [])? {
            Reply::Bytes(path) => Ok(path),
            _ => Err(Errno::IO),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = self.mount.call(&Request::Release { open: self.open }, &[], &mut []);
    }
}

/// The whole path of what a path leads to, without symbolic links.
///
/// # Errors
/// As for `realpath`.
///
/// # Safety
/// A C string or null.
pub(crate) unsafe fn real_path(path: *const c_char) -> Result<Option<Vec<u8>>> {
    if let Some(held) = links::held(path) {
        return path_of_open(&held).map(Some);
    }
    if let Some(own) = descriptor_path(path) {
        return own.map(Some);
    }
    let mut place = place::resolve_through_links(AT_FDCWD, path, true)?;
    // Where a link was found, open until what it leads to is found.
    let mut _before: Option<Directory> = None;
    for _ in 0..place::CROSSINGS_MAX {
        let (mount, base, rest) = match place {
            Place::Kernel => return Ok(None),
            Place::Other(path) => {
                let found = real::realpath(path.as_ptr(), std::ptr::null_mut());
                if found.is_null() {
                    return Err(errno::last());
                }
                let copied = CStr::from_ptr(found).to_bytes().to_vec();
                libc::free(found.cast());
                return Ok(Some(copied));
            }
            Place::Ours(mount, base, path) => (mount, base, path),
        };
        let _inside = gate::enter();
        let at = At { base, path: &rest, follows: true };
        let (open, mode) = match mount.call(&Request::Open { at, flags: O_PATH, mode: 0 }, &[], &mut [])? {
            Reply::Outside(_, path) => {
                place = place::follow(mount, &path, true)?;
                continue;
            }
            Reply::Opened(open, _, mode, _) => (open, mode),
            _ => return Err(Errno::IO),
        };
        let found = Directory { mount, open };
        let (directory, name) = if mode & S_IFMT == S_IFDIR {
            (found, &b""[..])
        } else {
            // A file has no path of its own: that of its directory, and the name that was not a link.
            let (directory, name) = Directory::above(mount, base, &rest)?;
            let at = At { base: directory.open, path: name, follows: false };
            if let Ok(Reply::Bytes(target)) = mount.call(&Request::ReadLink { at }, &[], &mut []) {
                place = match target.first() {
                    Some(b'/') => place::follow(mount, &target, true)?,
                    _ => Place::Ours(mount, directory.open, target),
                };
                _before = Some(directory);
                continue;
            }
            (directory, name)
        };
        let mut whole = mount.folder.clone();
        whole.extend_from_slice(&directory.path()?);
        if !name.is_empty() {
            whole.push(b'/');
            whole.extend_from_slice(name);
        }
        return Ok(Some(whole));
    }
    Err(Errno::LOOP)
}

const O_PATH: u32 = libc::O_PATH as u32;

unsafe fn realpath_any(path: *const c_char, out: *mut c_char) -> *mut c_char {
    let found = match real_path(path) {
        // The C library resolves what the kernel would not take as it is.
        Ok(None) => return real::realpath(path, out),
        Err(Errno::NAMETOOLONG) if place::is_too_long(path) => return real::realpath(path, out),
        Ok(Some(found)) => found,
        Err(errno) => return pointer(Err(errno)),
    };
    if found.len() >= PATH_MAX as usize {
        return pointer(Err(Errno::NAMETOOLONG));
    }
    put_text(&found, out, PATH_MAX as usize)
}

/// Puts a path where the caller wants it, or into memory of its own.
unsafe fn put_text(text: &[u8], out: *mut c_char, room: usize) -> *mut c_char {
    let to = if out.is_null() { libc::malloc(room.max(text.len() + 1)).cast() } else { out };
    if to.is_null() {
        return pointer(Err(Errno::NOMEM));
    }
    if let Err(errno) = memory::check_writable(to.cast(), text.len() + 1) {
        return pointer(Err(errno));
    }
    std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
    *to.add(text.len()) = 0;
    to
}

unsafe fn getcwd_any(out: *mut c_char, room: size_t) -> *mut c_char {
    if !state::is_on() || gate::is_inside() {
        return real::getcwd(out, room);
    }
    match place::our_working_directory() {
        None => real::getcwd(out, room),
        Some(Err(errno)) => pointer(Err(errno)),
        Some(Ok(_)) if room == 0 && !out.is_null() => pointer(Err(Errno::INVAL)),
        Some(Ok(path)) if room != 0 && path.len() + 1 > room => pointer(Err(Errno::RANGE)),
        Some(Ok(path)) => put_text(&path, out, room),
    }
}

/// After the kernel has changed the working directory, or has not.
fn gone(result: c_int) -> c_int {
    if result == 0 && state::is_on() && !gate::is_inside() {
        place::note_kernel_change();
    }
    result
}

unsafe fn go(place: Place, path: *const c_char) -> c_int {
    let mut place = place;
    for _ in 0..place::CROSSINGS_MAX {
        let result = match place {
            Place::Kernel | Place::Other(_) => {
                let path = if let Place::Other(path) = &place { path.as_ptr() } else { path };
                return gone(real::chdir(path));
            }
            Place::Ours(mount, base, ref path) => place::change(mount, base, path),
        };
        match result {
            Ok(None) => return 0,
            Ok(Some(next)) => place = next,
            Err(errno) => {
                set(errno);
                return -1;
            }
        }
    }
    set(Errno::LOOP);
    -1
}

exported! {
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
        mkdir_any(AT_FDCWD, path, mode)
    }

    fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
        mkdir_any(dir, path, mode)
    }

    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        mknod_any(AT_FDCWD, path, mode, device)
    }

    fn mknodat(dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        mknod_any(dir, path, mode, device)
    }

    fn __xmknod(_version: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int {
        mknod_any(AT_FDCWD, path, mode, *device)
    }

    fn __xmknodat(_version: c_int, dir: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int {
        mknod_any(dir, path, mode, *device)
    }

    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
        mknod_any(AT_FDCWD, path, S_IFIFO | mode & 0o7777, 0)
    }

    fn mkfifoat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
        mknod_any(dir, path, S_IFIFO | mode & 0o7777, 0)
    }

    fn symlink(target: *const c_char, path: *const c_char) -> c_int {
        symlink_any(target, AT_FDCWD, path)
    }

    fn symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
        symlink_any(target, dir, path)
    }

    fn unlink(path: *const c_char) -> c_int {
        remove_any(AT_FDCWD, path, false)
    }

    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        if flags & !AT_REMOVEDIR != 0 {
            set(Errno::INVAL);
            return -1;
        }
        remove_any(dir, path, flags & AT_REMOVEDIR != 0)
    }

    fn rmdir(path: *const c_char) -> c_int {
        remove_any(AT_FDCWD, path, true)
    }

    fn remove(path: *const c_char) -> c_int {
        let before = errno::get();
        if unlink(path) == 0 {
            return 0;
        }
        if errno::get() == libc::EISDIR || errno::get() == libc::EPERM {
            errno::put(before);
            return rmdir(path);
        }
        -1
    }

    fn rename(from: *const c_char, to: *const c_char) -> c_int {
        rename_any((AT_FDCWD, from), (AT_FDCWD, to), 0)
    }

    fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int {
        rename_any((from_dir, from), (to_dir, to), 0)
    }

    fn renameat2(
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint,
    ) -> c_int {
        rename_any((from_dir, from), (to_dir, to), flags)
    }

    fn link(from: *const c_char, to: *const c_char) -> c_int {
        link_any((AT_FDCWD, from), (AT_FDCWD, to), 0)
    }

    fn linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int {
        if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
            set(Errno::INVAL);
            return -1;
        }
        link_any((from_dir, from), (to_dir, to), flags)
    }

    fn readlink(path: *const c_char, buf: *mut c_char, room: size_t) -> ssize_t {
        readlink_any(AT_FDCWD, path, buf, room)
    }

    fn __readlink_chk(path: *const c_char, buf: *mut c_char, room: size_t, _have: size_t) -> ssize_t {
        readlink_any(AT_FDCWD, path, buf, room)
    }

    fn readlinkat(dir: c_int, path: *const c_char, buf: *mut c_char, room: size_t) -> ssize_t {
        readlink_any(dir, path, buf, room)
    }

    fn __readlinkat_chk(
        dir: c_int, path: *const c_char, buf: *mut c_char, room: size_t, _have: size_t,
    ) -> ssize_t {
        readlink_any(dir, path, buf, room)
    }

    fn realpath(path: *const c_char, out: *mut c_char) -> *mut c_char {
        realpath_any(path, out)
    }

    fn __realpath_chk(path: *const c_char, out: *mut c_char, _have: size_t) -> *mut c_char {
        realpath_any(path, out)
    }

    fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
        realpath_any(path, std::ptr::null_mut())
    }

    fn getcwd(out: *mut c_char, room: size_t) -> *mut c_char {
        getcwd_any(out, room)
    }

    fn __getcwd_chk(out: *mut c_char, room: size_t, _have: size_t) -> *mut c_char {
        getcwd_any(out, room)
    }

    fn getwd(out: *mut c_char) -> *mut c_char {
        getcwd_any(out, PATH_MAX as usize)
    }

    fn get_current_dir_name() -> *mut c_char {
        getcwd_any(std::ptr::null_mut(), 0)
    }

    fn chdir(path: *const c_char) -> c_int {
        let changed = state::steadily(|| {
            let place = place::resolve_through_links(AT_FDCWD, path, true)?;
            if go(place, path) == 0 { Ok(()) } else { Err(errno::last()) }
        });
        done(changed)
    }

    fn fchdir(fd: c_int) -> c_int {
        let Some(held) = table::get(fd) else {
            return gone(real::fchdir(fd));
        };
        let result = match held.is_directory() {
            true => place::change(held.mount, held.open(), b".").map(drop),
            false => Err(Errno::NOTDIR),
        };
        done(result)
    }

    fn chroot(path: *const c_char) -> c_int {
        match place::resolve(AT_FDCWD, path) {
            Ok(Place::Ours(..)) => done(Err(Errno::PERM)),
            _ => real::chroot(path),
        }
    }

    fn pathconf(path: *const c_char, name: c_int) -> c_long {
        match place::call(AT_FDCWD, path, true, |mount, at| mount.ask(&Request::Attributes { at })) {
            Ok(Outcome::Kernel) => real::pathconf(path, name),
            Ok(Outcome::Other(path)) => real::pathconf(path.as_ptr(), name),
            Ok(Outcome::Done(..)) => limit(name),
            // As the C library says it: without a look at the path.
            Err(_) if !depends_on_path(name) => limit(name),
            Err(errno) => c_long::from(done(Err(errno))),
        }
    }

    fn fpathconf(fd: c_int, name: c_int) -> c_long {
        if table::is_ours(fd) { limit(name) } else { real::fpathconf(fd, name) }
    }
}

/// Whether the C library looks at the file to know a limit.
fn depends_on_path(name: c_int) -> bool {
    matches!(
        name,
        libc::_PC_LINK_MAX
            | libc::_PC_FILESIZEBITS
            | libc::_PC_2_SYMLINKS
            | libc::_PC_CHOWN_RESTRICTED
            | libc::_PC_NAME_MAX
            | libc::_PC_SYNC_IO
            | libc::_PC_ASYNC_IO
            | libc::_PC_ALLOC_SIZE_MIN
            | libc::_PC_REC_MIN_XFER_SIZE
            | libc::_PC_REC_XFER_ALIGN
            | libc::_PC_REC_INCR_XFER_SIZE
            | libc::_PC_REC_MAX_XFER_SIZE
    )
}

/// As ext4 has them.
fn limit(name: c_int) -> c_long {
    match name {
        libc::_PC_LINK_MAX => unvme_fs::LINKS_MAX.into(),
        libc::_PC_NAME_MAX => unvme_fs::NAME_MAX as c_long,
        libc::_PC_PATH_MAX | libc::_PC_PIPE_BUF | libc::_PC_REC_XFER_ALIGN | libc::_PC_ALLOC_SIZE_MIN => 4096,
        libc::_PC_REC_MIN_XFER_SIZE | libc::_PC_REC_INCR_XFER_SIZE => 4096,
        libc::_PC_MAX_CANON | libc::_PC_MAX_INPUT => 255,
        libc::_PC_NO_TRUNC | libc::_PC_CHOWN_RESTRICTED | libc::_PC_2_SYMLINKS | libc::_PC_SYNC_IO => 1,
        libc::_PC_FILESIZEBITS => 64,
        libc::_PC_VDISABLE => 0,
        libc::_PC_SYMLINK_MAX | libc::_PC_ASYNC_IO | libc::_PC_PRIO_IO => -1,
        _ => {
            set(Errno::INVAL);
            -1
        }
    }
}

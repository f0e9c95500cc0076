//! Extended attributes.

use std::ffi::{c_char, c_int, c_void};

use libc::{AT_FDCWD, size_t, ssize_t};
use rustix::io::Errno;
use unvme_fs::calls::{At, Reply, Request};

use crate::errno::{Result, bytes, done, text};
use crate::mount::Mount;
use crate::place::{self, Outcome, Place};
use crate::table::{self, Held};
use crate::{memory, real};

unsafe fn put_value(found: &[u8], value: *mut c_void, room: size_t) -> Result<usize> {
    if room == 0 {
        return Ok(found.len());
    }
    if found.len() > room {
        return Err(Errno::RANGE);
    }
    memory::check_writable(value, found.len())?;
    std::ptr::copy_nonoverlapping(found.as_ptr(), value.cast(), found.len());
    Ok(found.len())
}

/// A call that has bytes for its result, on a path.
unsafe fn bytes_at(
    path: *const c_char,
    follows: bool,
    (value, room): (*mut c_void, size_t),
    request: impl Fn(&'static Mount, At<'_>) -> Result<Reply>,
    kernel: impl FnOnce(*const c_char) -> ssize_t,
) -> ssize_t {
    match place::call(AT_FDCWD, path, follows, request) {
        Ok(Outcome::Kernel) => kernel(path),
        Ok(Outcome::Other(path)) => kernel(path.as_ptr()),
        Ok(Outcome::Done(_, Reply::Bytes(found))) => bytes(put_value(&found, value, room)),
        Ok(Outcome::Done(..)) => bytes(Err(Errno::IO)),
        Err(errno) => bytes(Err(errno)),
    }
}

unsafe fn bytes_of_open(held: &Held, value: *mut c_void, room: size_t, request: &Request<'_>) -> ssize_t {
    bytes(held.check_open().and_then(|()| held.call(request)).and_then(|reply| match reply {
        Reply::Bytes(found) => put_value(&found, value, room),
        _ => Err(Errno::IO),
    }))
}

unsafe fn value_of<'a>(value: *const c_void, room: size_t) -> Result<&'a [u8]> {
    match room {
        0 => Ok(&[]),
        _ if room > unvme_fs::XATTR_MAX => Err(Errno::TOOBIG),
        _ => {
            memory::check_readable(value, room)?;
            Ok(std::slice::from_raw_parts(value.cast(), room))
        }
    }
}

unsafe fn setxattr_at(
    path: *const c_char,
    follows: bool,
    name: *const c_char,
    (value, room, flags): (*const c_void, size_t, c_int),
    kernel: impl FnOnce(*const c_char) -> c_int,
) -> c_int {
    // Not looked at before it is known whose the path is.
    let place = match place::resolve_through_links(AT_FDCWD, path, follows) {
        Ok(Place::Kernel) => return kernel(path),
        Ok(place) => place,
        Err(errno) => return done(Err(errno)),
    };
    let set = || -> Result<Outcome> {
        let (name, value) = (new_value(name, value, room, flags))?;
        place::call_at(place, follows, |mount, at| mount.ask(&set_request(at, name, value, flags)))
    };
    match set() {
        Ok(Outcome::Other(path)) => kernel(path.as_ptr()),
        other => done(other.map(drop)),
    }
}

/// The name of an attribute.
unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a [u8]> {
    let name = text(name)?;
    if name.is_empty() || name.len() > unvme_fs::NAME_MAX { Err(Errno::RANGE) } else { Ok(name) }
}

/// An attribute's name and value, which are looked at before the file is.
unsafe fn new_value<'a>(
    name: *const c_char,
    value: *const c_void,
    room: size_t,
    flags: c_int,
) -> Result<(&'a [u8], &'a [u8])> {
    if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
        return Err(Errno::INVAL);
    }
    Ok((name_of(name)?, value_of(value, room)?))
}

fn set_request<'a>(at: At<'a>, name: &'a [u8], value: &'a [u8], flags: c_int) -> Request<'a> {
    Request::SetXattr { at, name, value, flags }
}

fn get_request<'a>(at: At<'a>, name: &'a [u8]) -> Request<'a> {
    Request::GetXattr { at, name }
}

unsafe fn getxattr_at(
    path: *const c_char,
    follows: bool,
    name: *const c_char,
    out: (*mut c_void, size_t),
    kernel: impl FnOnce(*const c_char) -> ssize_t,
) -> ssize_t {
    let wanted = name_of(name);
    bytes_at(path, follows, out, |mount, at| mount.ask(&get_request(at, wanted?)), kernel)
}

fn remove_request<'a>(at: At<'a>, name: &'a [u8]) -> Request<'a> {
    Request::RemoveXattr { at, name }
}

unsafe fn removexattr_at(
    path: *const c_char,
    follows: bool,
    name: *const c_char,
    kernel: impl FnOnce(*const c_char) -> c_int,
) -> c_int {
    let wanted = name_of(name);
    match place::call(AT_FDCWD, path, follows, |mount, at| mount.ask(&remove_request(at, wanted?))) {
        Ok(Outcome::Kernel) => kernel(path),
        Ok(Outcome::Other(path)) => kernel(path.as_ptr()),
        other => done(other.map(drop)),
    }
}

exported! {
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, room: size_t) -> ssize_t {
        let kernel = |path| real::getxattr(path, name, value, room);
        getxattr_at(path, true, name, (value, room), kernel)
    }

    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, room: size_t) -> ssize_t {
        let kernel = |path| real::lgetxattr(path, name, value, room);
        getxattr_at(path, false, name, (value, room), kernel)
    }

    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, room: size_t) -> ssize_t {
        let Some(held) = table::get(fd) else { return real::fgetxattr(fd, name, value, room) };
        let at = held.at();
        match name_of(name) {
            Ok(name) => bytes_of_open(&held, value, room, &get_request(at, name)),
            Err(errno) => bytes(Err(errno)),
        }
    }

    fn setxattr(
        path: *const c_char, name: *const c_char, value: *const c_void, room: size_t, flags: c_int,
    ) -> c_int {
        let kernel = |path| real::setxattr(path, name, value, room, flags);
        setxattr_at(path, true, name, (value, room, flags), kernel)
    }

    fn lsetxattr(
        path: *const c_char, name: *const c_char, value: *const c_void, room: size_t, flags: c_int,
    ) -> c_int {
        let kernel = |path| real::lsetxattr(path, name, value, room, flags);
        setxattr_at(path, false, name, (value, room, flags), kernel)
    }

    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, room: size_t, flags: c_int) -> c_int {
        let Some(held) = table::get(fd) else { return real::fsetxattr(fd, name, value, room, flags) };
        let at = held.at();
        let set = || {
            let (name, value) = new_value(name, value, room, flags)?;
            held.check_open()?;
            held.call(&set_request(at, name, value, flags))
        };
        done(set().map(drop))
    }

    fn listxattr(path: *const c_char, list: *mut c_char, room: size_t) -> ssize_t {
        bytes_at(path, true, (list.cast(), room), |mount, at| mount.ask(&Request::ListXattrs { at }), |path| real::listxattr(path, list, room))
    }

    fn llistxattr(path: *const c_char, list: *mut c_char, room: size_t) -> ssize_t {
        bytes_at(path, false, (list.cast(), room), |mount, at| mount.ask(&Request::ListXattrs { at }), |path| real::llistxattr(path, list, room))
    }

    fn flistxattr(fd: c_int, list: *mut c_char, room: size_t) -> ssize_t {
        let Some(held) = table::get(fd) else { return real::flistxattr(fd, list, room) };
        let at = held.at();
        bytes_of_open(&held, list.cast(), room, &Request::ListXattrs { at })
    }

    fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
        removexattr_at(path, true, name, |path| real::removexattr(path, name))
    }

    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int {
        removexattr_at(path, false, name, |path| real::lremovexattr(path, name))
    }

    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
        let Some(held) = table::get(fd) else { return real::fremovexattr(fd, name) };
        let at = held.at();
        let remove = || {
            let name = name_of(name)?;
            held.check_open()?;
            held.call(&remove_request(at, name))
        };
        done(remove().map(drop))
    }
}

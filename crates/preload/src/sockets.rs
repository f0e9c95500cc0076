//! Sockets that have names in a folder: they are in one of the kernel's, by the numbers of their inodes.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;

use libc::{
    AF_UNIX, AT_FDCWD, S_IFSOCK, mmsghdr, msghdr, size_t, sockaddr, sockaddr_un, socklen_t, ssize_t, timespec,
};
use rustix::io::Errno;
use unvme::lock::lock;
use unvme_fs::calls::{At, Reply, Request};

use crate::errno::{Result, bytes, done};
use crate::kinds::is_no_socket;
use crate::mount;
use crate::place::{self, Outcome, Place};
use crate::{gate, memory, real, state};

/// Sockets that this process has given names: where each is, and its name as it was given.
static BOUND: Mutex<Vec<(Vec<u8>, Vec<u8>)>> = Mutex::new(Vec::new());

/// Where a socket is whose name is ours: in a folder of the kernel's, by the number of its inode.
fn socket_path(device: u64, ino: u64) -> std::path::PathBuf {
    let user = rustix::process::geteuid().as_raw();
    std::path::PathBuf::from(format!("/tmp/.unvme-sockets-{user}/{device:x}-{ino}"))
}

unsafe fn socket_address(
    address: *const sockaddr,
    bytes: socklen_t,
    is_new: bool,
) -> Result<Option<sockaddr_un>> {
    if !state::is_on()
        || gate::is_inside()
        || address.is_null()
        || (bytes as usize) <= HEAD
        // The kernel says what is wrong with memory that is not there.
        || memory::check_readable(address.cast(), (bytes as usize).min(size_of::<sockaddr_un>())).is_err()
        || c_int::from((*address).sa_family) != AF_UNIX
    {
        return Ok(None);
    }
    let given = &*address.cast::<sockaddr_un>();
    let room = (bytes as usize - HEAD).min(given.sun_path.len());
    let name: Vec<u8> =
        given.sun_path[..room].iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    if name.is_empty() {
        return Ok(None);
    }
    let path = CString::new(name.as_slice()).map_err(|_| Errno::INVAL)?;
    let place = if is_new {
        crate::names::place_of_new(AT_FDCWD, path.as_ptr())?
    } else {
        place::resolve_through_links(AT_FDCWD, path.as_ptr(), true)?
    };
    if !matches!(place, Place::Ours(..)) {
        return Ok(None);
    }
    if is_new {
        let mode = S_IFSOCK | crate::open::masked(0o777);
        let made = place::call_at(place, false, |mount, at: At<'_>| {
            mount.ask(&Request::Make { at, mode, rdev: 0, target: b"" })
        });
        if let Err(errno) = made {
            return Err(if errno == Errno::EXIST { Errno::ADDRINUSE } else { errno });
        }
    }
    let place = place::resolve_through_links(AT_FDCWD, path.as_ptr(), true)?;
    let found = place::call_at(place, true, |mount, at| mount.ask(&Request::Attributes { at }))?;
    let Outcome::Done(mount, Reply::Attributes(found)) = found else { return Ok(None) };
    if found.mode & libc::S_IFMT != S_IFSOCK {
        return Err(Errno::CONNREFUSED);
    }
    let device = mount.device.load(std::sync::atomic::Ordering::Relaxed);
    let path = socket_path(device, found.ino);
    if is_new {
        if let Some(folder) = path.parent() {
            let _ = rustix::fs::mkdir(folder, rustix::fs::Mode::RWXU);
        }
        let _ = rustix::fs::unlink(&path);
        lock(&BOUND).push((path.as_os_str().as_bytes().to_vec(), name));
    }
    let mut other: sockaddr_un = std::mem::zeroed();
    other.sun_family = AF_UNIX as u16;
    for (to, from) in other.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = *from as c_char;
    }
    Ok(Some(other))
}

const HEAD: usize = std::mem::offset_of!(sockaddr_un, sun_path);

/// The name of a socket, from where it is.
fn name_of(path: &[u8]) -> Option<Vec<u8>> {
    if let Some((_, name)) = lock(&BOUND).iter().rfind(|(known, _)| known == path) {
        return Some(name.clone());
    }
    let user = rustix::process::geteuid().as_raw();
    let text = std::str::from_utf8(path).ok()?;
    let (device, ino) = text.strip_prefix(&format!("/tmp/.unvme-sockets-{user}/"))?.split_once('-')?;
    let device = u64::from_str_radix(device, 16).ok()?;
    let is_device = |mount: &&mount::Mount| mount.device.load(std::sync::atomic::Ordering::Relaxed) == device;
    let mount = mount::all().iter().find(is_device)?;
    let _inside = gate::enter();
    let adopt = Request::Adopt { ino: ino.parse().ok()?, generation: None, flags: libc::O_PATH as u32 };
    let Ok(Reply::Opened(open, ..)) = mount.call(&adopt, &[], &mut []) else { return None };
    let found = mount.call(&Request::Path { open }, &[], &mut []);
    let _ = mount.call(&Request::Release { open }, &[], &mut []);
    match found {
        Ok(Reply::Bytes(path)) => Some([mount.folder.as_slice(), &path].concat()),
        _ => None,
    }
}

/// Puts the name of a socket where the kernel has put where it is.
unsafe fn rename(address: *mut sockaddr, room: socklen_t, length: *mut socklen_t) {
    let told = *length as usize;
    if !state::is_on() || gate::is_inside() || address.is_null() || told <= HEAD || room as usize <= HEAD {
        return;
    }
    let address = address.cast::<sockaddr_un>();
    if c_int::from((*address).sun_family) != AF_UNIX {
        return;
    }
    let some = told.min(room as usize) - HEAD;
    let path: &[u8] = std::slice::from_raw_parts((&raw const (*address).sun_path).cast(), some);
    let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
    if !path.starts_with(b"/tmp/.unvme-sockets-") {
        return;
    }
    let Some(mut name) = name_of(path) else { return };
    name.push(0);
    name.truncate(size_of::<sockaddr_un>() - HEAD);
    let some = name.len().min(room as usize - HEAD);
    std::ptr::copy_nonoverlapping(name.as_ptr(), (&raw mut (*address).sun_path).cast(), some);
    *length = (HEAD + name.len()) as socklen_t;
}

/// Does something with a message whose address is where the socket is.
unsafe fn addressed(message: *const msghdr, act: impl FnOnce(*const msghdr) -> ssize_t) -> ssize_t {
    if memory::check_readable(message.cast(), size_of::<msghdr>()).is_err() {
        return act(message);
    }
    match socket_address((*message).msg_name.cast(), (*message).msg_namelen, false) {
        Ok(None) => act(message),
        Ok(Some(mut other)) => {
            let mut changed = *message;
            changed.msg_name = (&raw mut other).cast();
            changed.msg_namelen = size_of::<sockaddr_un>() as socklen_t;
            act(&changed)
        }
        Err(errno) => bytes(Err(errno)),
    }
}

/// Bytes that a caller has for an address; 0 when that cannot be read, which the kernel refuses.
unsafe fn room_for_address(length: *const socklen_t) -> socklen_t {
    match memory::check_readable(length.cast(), size_of::<socklen_t>()) {
        Ok(()) => length.read_unaligned(),
        Err(_) => 0,
    }
}

mod behind {
    use super::*;

    functions! {
        fn sendto(
            fd: c_int, buf: *const c_void, count: size_t, flags: c_int, to: *const sockaddr, bytes: socklen_t,
        ) -> ssize_t;
        fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
        fn getsockname(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int;
        fn getpeername(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int;
        fn recvmmsg(
            fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int, timeout: *mut timespec,
        ) -> c_int;
    }
}

exported! {
    fn bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
        if is_no_socket(fd) {
            return -1;
        }
        match socket_address(address, bytes, true) {
            Ok(None) => real::bind(fd, address, bytes),
            Ok(Some(other)) => real::bind(fd, (&raw const other).cast(), size_of::<sockaddr_un>() as socklen_t),
            Err(errno) => done(Err(errno)),
        }
    }

    fn connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
        if is_no_socket(fd) {
            return -1;
        }
        match socket_address(address, bytes, false) {
            Ok(None) => real::connect(fd, address, bytes),
            Ok(Some(other)) => {
                real::connect(fd, (&raw const other).cast(), size_of::<sockaddr_un>() as socklen_t)
            }
            Err(errno) => done(Err(errno)),
        }
    }

    fn sendto(
        fd: c_int, buf: *const c_void, count: size_t, flags: c_int, to: *const sockaddr, length: socklen_t,
    ) -> ssize_t {
        if is_no_socket(fd) {
            return -1;
        }
        match socket_address(to, length, false) {
            Ok(None) => behind::sendto(fd, buf, count, flags, to, length),
            Ok(Some(other)) => {
                let length = size_of::<sockaddr_un>() as socklen_t;
                behind::sendto(fd, buf, count, flags, (&raw const other).cast(), length)
            }
            Err(errno) => bytes(Err(errno)),
        }
    }

    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        if is_no_socket(fd) {
            return -1;
        }
        addressed(message, |message| behind::sendmsg(fd, message, flags))
    }

    fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        if is_no_socket(fd) {
            return -1;
        }
        let room = room_for_address(length);
        let result = behind::getsockname(fd, address, length);
        if result == 0 {
            rename(address, room, length);
        }
        result
    }

    fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        if is_no_socket(fd) {
            return -1;
        }
        let room = room_for_address(length);
        let result = behind::getpeername(fd, address, length);
        if result == 0 {
            rename(address, room, length);
        }
        result
    }

    /// Descriptors of ours may come from another process.
    fn recvmmsg(
        fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int, timeout: *mut timespec,
    ) -> c_int {
        if is_no_socket(fd) {
            return -1;
        }
        let received = behind::recvmmsg(fd, messages, count, flags, timeout);
        for at in 0..usize::try_from(received).unwrap_or(0) {
            crate::process::receive(&raw const (*messages.add(at)).msg_hdr);
        }
        received
    }
}

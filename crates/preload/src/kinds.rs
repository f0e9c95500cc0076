//! What a file is not: a terminal, or a socket. The kernel does not know what stands for ours to be a file
//! (`slot`), and programs tell by these answers what they have been given.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{mmsghdr, pid_t, size_t, sockaddr, socklen_t, ssize_t, termios};
use rustix::io::Errno;

use crate::errno::set;
use crate::ready::is_file;

/// Whether a descriptor is of a file of ours, with the error that is said of one.
pub(crate) fn is_no_socket(fd: c_int) -> bool {
    let is_file = is_file(fd);
    if is_file {
        set(Errno::NOTSOCK);
    }
    is_file
}

fn is_no_terminal(fd: c_int) -> bool {
    let is_file = is_file(fd);
    if is_file {
        set(Errno::NOTTY);
    }
    is_file
}

/// Functions that are -1 for a file: their names, what says so, and their other arguments.
macro_rules! no_file {
    ($($check:ident: fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        mod behind {
            use super::*;

            functions! {
                $(fn $name(fd: c_int $(, $arg: $type)*) -> $ret;)*
                fn isatty(fd: c_int) -> c_int;
                fn ttyname(fd: c_int) -> *mut c_char;
                fn ttyname_r(fd: c_int, name: *mut c_char, room: size_t) -> c_int;
            }
        }

        exported! {
            $(fn $name(fd: c_int $(, $arg: $type)*) -> $ret {
                if $check(fd) {
                    return -1;
                }
                behind::$name(fd $(, $arg)*)
            })*
        }
    };
}

no_file! {
    is_no_terminal: fn tcgetattr(to: *mut termios) -> c_int;
    is_no_terminal: fn tcsetattr(when: c_int, from: *const termios) -> c_int;
    is_no_terminal: fn tcdrain() -> c_int;
    is_no_terminal: fn tcflow(action: c_int) -> c_int;
    is_no_terminal: fn tcflush(queue: c_int) -> c_int;
    is_no_terminal: fn tcsendbreak(time: c_int) -> c_int;
    is_no_terminal: fn tcgetpgrp() -> pid_t;
    is_no_terminal: fn tcsetpgrp(group: pid_t) -> c_int;
    is_no_terminal: fn tcgetsid() -> pid_t;
    is_no_terminal: fn sockatmark() -> c_int;
    is_no_socket: fn accept(address: *mut sockaddr, bytes: *mut socklen_t) -> c_int;
    is_no_socket: fn accept4(address: *mut sockaddr, bytes: *mut socklen_t, flags: c_int) -> c_int;
    is_no_socket: fn getsockopt(level: c_int, name: c_int, to: *mut c_void, bytes: *mut socklen_t) -> c_int;
    is_no_socket: fn setsockopt(level: c_int, name: c_int, from: *const c_void, bytes: socklen_t) -> c_int;
    is_no_socket: fn listen(backlog: c_int) -> c_int;
    is_no_socket: fn shutdown(how: c_int) -> c_int;
    is_no_socket: fn recv(to: *mut c_void, count: size_t, flags: c_int) -> ssize_t;
    is_no_socket: fn __recv_chk(to: *mut c_void, count: size_t, room: size_t, flags: c_int) -> ssize_t;
    is_no_socket: fn recvfrom(
        to: *mut c_void, count: size_t, flags: c_int, address: *mut sockaddr, bytes: *mut socklen_t
    ) -> ssize_t;
    is_no_socket: fn __recvfrom_chk(
        to: *mut c_void, count: size_t, room: size_t, flags: c_int, address: *mut sockaddr,
        bytes: *mut socklen_t
    ) -> ssize_t;
    is_no_socket: fn send(from: *const c_void, count: size_t, flags: c_int) -> ssize_t;
    is_no_socket: fn sendmmsg(messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
}

exported! {
    fn __send(fd: c_int, from: *const c_void, count: size_t, flags: c_int) -> ssize_t {
        send(fd, from, count, flags)
    }

    fn isatty(fd: c_int) -> c_int {
        if is_no_terminal(fd) { 0 } else { behind::isatty(fd) }
    }

    fn ttyname(fd: c_int) -> *mut c_char {
        if is_no_terminal(fd) { std::ptr::null_mut() } else { behind::ttyname(fd) }
    }

    fn ttyname_r(fd: c_int, name: *mut c_char, room: size_t) -> c_int {
        if is_no_terminal(fd) { libc::ENOTTY } else { behind::ttyname_r(fd, name, room) }
    }
}

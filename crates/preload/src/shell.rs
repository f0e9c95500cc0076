//! Shells that the C library would start: `system` and `popen`.

use std::ffi::{c_char, c_int};

use libc::{FILE, pid_t};
use rustix::io::Errno;

use crate::errno::set;
use crate::{children, gate, process, real, state};

mod behind {
    use super::*;

    functions! {
        fn pclose(file: *mut FILE) -> c_int;
    }
}

unsafe fn wait_for(child: pid_t) -> c_int {
    let mut status = 0;
    loop {
        if libc::waitpid(child, &mut status, 0) == child {
            return status;
        }
        if crate::errno::get() != libc::EINTR {
            return -1;
        }
    }
}

/// In a child: the shell.
unsafe fn shell(command: *const c_char) -> ! {
    let argv = [c"sh".as_ptr(), c"-c".as_ptr(), command, std::ptr::null()];
    process::execve_any(c"/bin/sh".as_ptr(), argv.as_ptr(), process::environ());
    state::leave(127)
}

unsafe fn system_any(command: *const c_char) -> c_int {
    if command.is_null() {
        return c_int::from(real::access(c"/bin/sh".as_ptr(), libc::X_OK) == 0);
    }
    let (mut block, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
    let handlers = children::ignore_signals();
    libc::sigemptyset(&mut block);
    libc::sigaddset(&mut block, libc::SIGCHLD);
    libc::pthread_sigmask(libc::SIG_BLOCK, &block, &mut before);
    let child = process::fork_any();
    if child == 0 {
        handlers.restore();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        shell(command);
    }
    let status = if child > 0 { wait_for(child) } else { -1 };
    children::heed_signals();
    libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    status
}

unsafe fn popen_any(command: *const c_char, mode: *const c_char) -> *mut FILE {
    let letters = crate::errno::text(mode).unwrap_or_default();
    let is_read = match letters.first() {
        Some(b'r') => true,
        Some(b'w') => false,
        _ => {
            set(Errno::INVAL);
            return std::ptr::null_mut();
        }
    };
    let mut ends = [0; 2];
    if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
        return std::ptr::null_mut();
    }
    let (own, other) = if is_read { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
    let child = process::fork_any();
    if child == 0 {
        // Those of earlier calls are not the child's. There is one thread here.
        gate::leaf(&children::PIPES).iter().filter(|pipe| pipe.fd != other).for_each(|pipe| {
            real::close(pipe.fd);
        });
        if other == c_int::from(is_read) {
            real::fcntl(other, libc::F_SETFD, 0);
        }
        crate::open::dup2(other, c_int::from(is_read));
        shell(command);
    }
    real::close(other);
    let file = if child > 0 {
        real::fdopen(own, if is_read { c"r" } else { c"w" }.as_ptr())
    } else {
        std::ptr::null_mut()
    };
    if file.is_null() {
        real::close(own);
        return file;
    }
    if !letters.contains(&b'e') {
        real::fcntl(own, libc::F_SETFD, 0);
    }
    gate::leaf(&children::PIPES).push(children::Pipe { file: file as usize, fd: own, child });
    file
}

exported! {
    fn system(command: *const c_char) -> c_int {
        system_any(command)
    }

    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
        popen_any(command, mode)
    }

    fn pclose(file: *mut FILE) -> c_int {
        let found = {
            let mut pipes = gate::leaf(&children::PIPES);
            let at = pipes.iter().position(|pipe| pipe.file == file as usize);
            at.map(|at| pipes.swap_remove(at))
        };
        let Some(pipe) = found else { return behind::pclose(file) };
        libc::fclose(file);
        wait_for(pipe.child)
    }
}

//! Shells that the C library would start: `system` and `popen`.

use std::any::Any;
use std::ffi::{c_char, c_int};
use std::sync::Mutex;

use libc::{FILE, pid_t};
use rustix::io::Errno;
use unvme::lock::lock;

use crate::errno::set;
use crate::{gate, process, real, start};

mod behind {
    use super::*;

    functions! {
        fn pclose(file: *mut FILE) -> c_int;
    }
}

/// Nobody else changes what is here as long as somebody has this: see `process`.
pub(crate) fn still() -> Box<dyn Any> {
    Box::new((lock(&PIPES), lock(&IGNORING)))
}

/// In a child nobody is in `system`.
pub(crate) fn become_child() {
    *gate::leaf(&IGNORING) = None;
}

/// A stream of `popen`, and the process at its other end.
struct Pipe {
    file: usize,
    fd: c_int,
    child: pid_t,
}

static PIPES: Mutex<Vec<Pipe>> = Mutex::new(Vec::new());

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
    start::leave(127)
}

unsafe fn system_any(command: *const c_char) -> c_int {
    if command.is_null() {
        return c_int::from(real::access(c"/bin/sh".as_ptr(), libc::X_OK) == 0);
    }
    let (mut block, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
    let handlers = ignore_signals();
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
    heed_signals();
    libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    status
}

/// What a program does at the signals that `system` ignores.
#[derive(Clone, Copy)]
struct Handlers {
    interrupt: libc::sigaction,
    quit: libc::sigaction,
}

impl Handlers {
    unsafe fn restore(&self) {
        libc::sigaction(libc::SIGINT, &self.interrupt, std::ptr::null_mut());
        libc::sigaction(libc::SIGQUIT, &self.quit, std::ptr::null_mut());
    }
}

/// How many threads are in `system`, and the handlers from before the first of them.
static IGNORING: Mutex<Option<(usize, Handlers)>> = Mutex::new(None);

unsafe fn ignore_signals() -> Handlers {
    let mut ignoring = gate::leaf(&IGNORING);
    if let Some((count, handlers)) = ignoring.as_mut() {
        *count += 1;
        return *handlers;
    }
    let mut ignore: libc::sigaction = std::mem::zeroed();
    ignore.sa_sigaction = libc::SIG_IGN;
    let mut handlers = Handlers { interrupt: std::mem::zeroed(), quit: std::mem::zeroed() };
    libc::sigaction(libc::SIGINT, &ignore, &mut handlers.interrupt);
    libc::sigaction(libc::SIGQUIT, &ignore, &mut handlers.quit);
    *ignoring = Some((1, handlers));
    handlers
}

unsafe fn heed_signals() {
    let mut ignoring = gate::leaf(&IGNORING);
    if let Some((count, handlers)) = ignoring.as_mut() {
        *count -= 1;
        if *count == 0 {
            handlers.restore();
            *ignoring = None;
        }
    }
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
        gate::leaf(&PIPES).iter().filter(|pipe| pipe.fd != other).for_each(|pipe| {
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
    gate::leaf(&PIPES).push(Pipe { file: file as usize, fd: own, child });
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
            let mut pipes = gate::leaf(&PIPES);
            let at = pipes.iter().position(|pipe| pipe.file == file as usize);
            at.map(|at| pipes.swap_remove(at))
        };
        let Some(pipe) = found else { return behind::pclose(file) };
        libc::fclose(file);
        wait_for(pipe.child)
    }
}

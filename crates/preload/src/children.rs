//! What is known of processes that `system` and `popen` have made.

use std::any::Any;
use std::ffi::c_int;
use std::sync::Mutex;

use libc::pid_t;
use unvme::lock::lock;

use crate::gate;

/// Nobody else changes what is here as long as somebody has this: see `process`.
pub(crate) fn still() -> Box<dyn Any> {
    Box::new((lock(&PIPES), lock(&IGNORING)))
}

/// In a child nobody is in `system`.
pub(crate) fn become_child() {
    *gate::leaf(&IGNORING) = None;
}

/// A stream of `popen`, and the process at its other end.
pub(crate) struct Pipe {
    pub file: usize,
    pub fd: c_int,
    pub child: pid_t,
}

pub(crate) static PIPES: Mutex<Vec<Pipe>> = Mutex::new(Vec::new());

/// What a program does at the signals that `system` ignores.
#[derive(Clone, Copy)]
pub(crate) struct Handlers {
    interrupt: libc::sigaction,
    quit: libc::sigaction,
}

impl Handlers {
    pub(crate) unsafe fn restore(&self) {
        libc::sigaction(libc::SIGINT, &self.interrupt, std::ptr::null_mut());
        libc::sigaction(libc::SIGQUIT, &self.quit, std::ptr::null_mut());
    }
}

/// How many threads are in `system`, and the handlers from before the first of them.
static IGNORING: Mutex<Option<(usize, Handlers)>> = Mutex::new(None);

pub(crate) unsafe fn ignore_signals() -> Handlers {
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

pub(crate) unsafe fn heed_signals() {
    let mut ignoring = gate::leaf(&IGNORING);
    if let Some((count, handlers)) = ignoring.as_mut() {
        *count -= 1;
        if *count == 0 {
            handlers.restore();
            *ignoring = None;
        }
    }
}

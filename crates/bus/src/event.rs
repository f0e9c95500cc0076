//! Interrupts as eventfds, and the clock a function is handed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::BusError;

/// A counter in the kernel that one side adds to and the other side sleeps on: one interrupt vector.
#[derive(Clone, Debug)]
pub struct EventFd {
    fd: Arc<OwnedFd>,
    /// Made by another process, which may have left it in a state in which writing blocks.
    foreign: bool,
}

impl EventFd {
    /// A new, unsignalled, non-blocking eventfd.
    pub fn new() -> Result<Self, BusError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| BusError::os("create an eventfd", e))?;
        Ok(Self { fd: Arc::new(fd), foreign: false })
    }

    /// Takes over a descriptor received from another process. It may be anything: signalling it is best
    /// effort.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd), foreign: true }
    }

    /// Adds one. A counter that is full, or a descriptor that is not an eventfd, changes nothing: the
    /// sleeper, if there is one, is awake already.
    pub fn signal(&self) {
        if self.foreign {
            // The writer must not hang because the owner filled the counter and never reads it. An owner that
            // fills it right after the look can still make it hang: Linux has no write to an eventfd that
            // never blocks.
            let mut room = [PollFd::new(&*self.fd, PollFlags::OUT)];
            if !matches!(poll(&mut room, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1)) {
                return;
            }
        }
        let _ = rustix::io::write(&*self.fd, &1u64.to_ne_bytes());
    }

    /// Resets the counter; true when it had been signalled.
    pub fn drain(&self) -> bool {
        let mut count = [0u8; 8];
        matches!(rustix::io::read(&*self.fd, &mut count), Ok(8))
    }

    /// Sleeps until signalled or until `timeout` has passed; true when signalled. The counter is left as it
    /// is.
    pub fn wait(&self, timeout: Duration) -> Result<bool, BusError> {
        let limit = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let mut fds = [PollFd::new(&*self.fd, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(e) => Err(BusError::os("wait for an interrupt", io::Error::from(e))),
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Nanoseconds since an arbitrary origin, on the wall or made up by a test.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The system's monotonic clock, counted from this origin.
    Wall(Instant),
    /// A clock that moves when its owner says so.
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// A monotonic wall clock. All of a process agree, since several hosts may drive one device, and the
    /// first one starts at zero.
    pub fn wall() -> Self {
        static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        Self::Wall(*ORIGIN)
    }

    /// A clock at zero that stands still until [`Clock::advance`] is called on it or on one of its clones.
    pub fn manual() -> Self {
        Self::Virtual(Arc::new(AtomicU64::new(0)))
    }

    /// Nanoseconds since the origin.
    #[inline]
    pub fn now(&self) -> u64 {
        match self {
            Self::Wall(origin) => origin.elapsed().as_nanos() as u64,
            Self::Virtual(now) => now.load(Ordering::Relaxed),
        }
    }

    /// Moves a virtual clock; a wall clock moves by itself and is left alone.
    pub fn advance(&self, by: Duration) {
        if let Self::Virtual(now) = self {
            now.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

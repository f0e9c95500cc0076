//! What sleeps until a connection has something, whichever connection that is at the moment.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use unvme_bus::EventFd;
use unvme_fabric::Stream;

use crate::Error;

/// An epoll instance, which can itself be polled: readable when the connection is, or when somebody has waked
/// it.
pub(crate) struct Sleeper {
    /// The epoll instance. Draining it changes nothing: it is readable for as long as there is something.
    ready: EventFd,
    wake: EventFd,
}

impl Sleeper {
    pub(crate) fn new() -> Result<Self, Error> {
        let os = |e: rustix::io::Errno| Error::Bus(unvme_bus::BusError::os("make an epoll instance", e));
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(os)?;
        let wake = EventFd::new()?;
        epoll::add(&epoll, &wake, EventData::new_u64(0), EventFlags::IN).map_err(os)?;
        Ok(Self { ready: EventFd::from_fd(epoll), wake })
    }

    /// Looks after a connection. It is let go of when its descriptor is closed.
    pub(crate) fn watch(&self, stream: &Stream) -> Result<(), Error> {
        epoll::add(&self.ready, stream.as_fd(), EventData::new_u64(1), EventFlags::IN)
            .map_err(|e| Error::Bus(unvme_bus::BusError::os("watch a connection", e)))
    }

    /// Whether room to send is worth waking up for, too.
    pub(crate) fn watch_room(&self, stream: &Stream, is_blocked: bool) {
        let flags = if is_blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        if let Err(e) = epoll::modify(&self.ready, stream.as_fd(), EventData::new_u64(1), flags) {
            tracing::debug!(error = %e, "watch a connection");
        }
    }

    /// What another thread sleeps on.
    pub(crate) fn event(&self) -> &EventFd {
        &self.ready
    }

    /// Ends the sleep of whoever sleeps, or will.
    pub(crate) fn wake(&self) {
        self.wake.signal();
    }

    /// Forgets that somebody has been waked.
    pub(crate) fn settle(&self) {
        self.wake.drain();
    }

    /// Sleeps until there is something, or `limit` has passed.
    pub(crate) fn sleep(&self, limit: Duration) {
        // Whoever sleeps looks again afterwards, whatever has ended the sleep.
        if self.ready.wait(limit).unwrap_or(true) {
            self.settle();
        }
    }
}

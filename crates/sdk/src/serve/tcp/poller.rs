//! Waiting for sockets: epoll.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::{Error, Result};

/// Most events that one wait brings; the others come with the next.
const EVENTS_MAX: usize = 256;

/// What is awaited of a socket. Its end is awaited in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interest {
    /// That it has bytes.
    pub(super) input: bool,
    /// That it takes bytes.
    pub(super) output: bool,
}

impl Interest {
    pub(super) const INPUT: Self = Self { input: true, output: false };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.input);
        flags.set(EventFlags::OUT, self.output);
        flags
    }
}

/// Something to do about the descriptor that was added with `key`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) key: u64,
    /// Nothing can be sent to it any more, and what it has not brought it may never bring.
    pub(super) is_broken: bool,
}

/// A set of descriptors. One that is closed leaves it by itself.
pub(super) struct Poller {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poller {
    pub(super) fn new() -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|e| failed("make an epoll", e))?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS_MAX) })
    }

    pub(super) fn add(&self, fd: impl AsFd, key: u64, interest: Interest) -> Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(key), interest.flags())
            .map_err(|e| failed("watch a descriptor", e))
    }

    pub(super) fn change(&self, fd: impl AsFd, key: u64, interest: Interest) -> Result<()> {
        epoll::modify(&self.epoll, fd, EventData::new_u64(key), interest.flags())
            .map_err(|e| failed("watch a descriptor", e))
    }

    /// Waits for something, for at most `timeout`; `None` is for ever. What there is to do is then in
    /// [`Poller::ready`].
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.map(|it| Timespec {
            tv_sec: i64::try_from(it.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: it.subsec_nanos().into(),
        });
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(failed("wait for sockets", e)),
        }
    }

    /// What the last wait has brought.
    pub(super) fn ready(&self) -> impl Iterator<Item = Ready> + '_ {
        self.events.iter().map(|event| {
            let (flags, data) = (event.flags, event.data);
            Ready { key: data.u64(), is_broken: flags.intersects(EventFlags::HUP | EventFlags::ERR) }
        })
    }
}

fn failed(what: &str, errno: Errno) -> Error {
    Error::Io { what: format!("serve: {what}"), source: errno.into() }
}

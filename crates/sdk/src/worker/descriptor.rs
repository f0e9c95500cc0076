//! A descriptor for reactors: readable when somebody should poll.

use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use unvme_bus::EventFd;

use super::queue::SharedQueue;
use crate::{Error, Result};

/// An epoll descriptor over what tells of completions: an eventfd of each queue, which the queue keeps
/// readable while somebody should poll it, and its interrupt, where nobody else sleeps on that.
pub(super) fn over<'q>(queues: impl Iterator<Item = &'q SharedQueue>) -> Result<OwnedFd> {
    let failed =
        |e: rustix::io::Errno| Error::Io { what: "make a pollable descriptor".into(), source: e.into() };
    let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
    let mut watched = Vec::new();
    for queue in queues {
        let event = EventFd::new().map_err(|e| Error::driver("make a pollable descriptor", e.into()))?;
        epoll::add(&epoll, &event, EventData::new_u64(0), EventFlags::IN).map_err(failed)?;
        if let Some(interrupt) = queue.interrupt.as_ref().filter(|_| !queue.is_served()) {
            epoll::add(&epoll, interrupt, EventData::new_u64(0), EventFlags::IN).map_err(failed)?;
        }
        watched.push((queue, event));
    }
    // Only when nothing can fail any more: a queue that is watched is looked at by nobody else.
    for (queue, event) in watched {
        queue.watch_by(event);
    }
    Ok(epoll)
}

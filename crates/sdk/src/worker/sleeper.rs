//! A thread that sleeps until somebody has work for it.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use unvme_bus::EventFd;

use crate::{Error, Result};

/// The bed of one thread.
pub(super) struct Sleeper {
    event: EventFd,
    /// The thread sleeps, or is about to: it looks a last time after it has said so.
    asleep: AtomicBool,
}

impl Sleeper {
    pub(super) fn new() -> Result<Self> {
        let event = EventFd::new()
            .map_err(|e| Error::driver("start a completion thread", unvme_driver::Error::Bus(e)))?;
        Ok(Self { event, asleep: AtomicBool::new(false) })
    }

    /// Wakes the thread if it sleeps: one look at a shared flag when it does not. Callers order this after
    /// what they have done with a sequentially consistent fence.
    #[inline]
    pub(super) fn wake(&self) {
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.event.signal();
        }
    }

    /// Sleeps until woken, until one of `interrupts` is signalled, or for `limit`; not at all when
    /// `is_needed` says, after everybody can see that the thread is going to sleep, that there is work.
    pub(super) fn sleep<'a>(
        &'a self,
        interrupts: impl Iterator<Item = &'a EventFd>,
        limit: Duration,
        is_needed: impl FnOnce() -> bool,
    ) {
        self.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence before `wake`.
        fence(Ordering::SeqCst);
        if !is_needed() {
            let mut fds: Vec<PollFd<'a>> = vec![PollFd::new(&self.event, PollFlags::IN)];
            fds.extend(interrupts.map(|event| PollFd::new(event, PollFlags::IN)));
            let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            // Interrupted or not: the thread looks for work next.
            let _ = poll(&mut fds, Some(&limit));
        }
        self.asleep.store(false, Ordering::Relaxed);
        self.event.drain();
    }
}

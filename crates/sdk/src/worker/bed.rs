//! Those who sleep until a device interrupts, or until somebody else has taken what they wait for.
//!
//! An interrupt is one for all who use a queue, and whoever is awake first takes it off its counter. He then
//! looks at the queue, and wakes the others by descriptors of their own, which nobody else takes anything
//! off: what is signalled before somebody sleeps ends the sleep.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use unvme_bus::{EventFd, lock};

use super::queue::SharedQueue;

/// Longest sleep of one whom the device wakes: somebody has to look whether it is there.
const SLEEP_MAX: Duration = Duration::from_millis(50);

thread_local! {
    /// What wakes this thread; nothing when the system has no descriptor left.
    static OWN: Option<EventFd> = EventFd::new().ok();
}

/// Those who sleep on a queue.
#[derive(Default)]
pub(super) struct Beds {
    count: AtomicU32,
    list: Mutex<Vec<EventFd>>,
}

impl Beds {
    /// Whether nobody sleeps, nor is about to.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Wakes everybody: something was taken off the queue that one of them may wait for.
    #[inline]
    pub(super) fn wake(&self) {
        // Pairs with the sequentially consistent count of one that looks a last time before it sleeps.
        fence(Ordering::SeqCst);
        if !self.is_empty() {
            lock(&self.list).iter().for_each(EventFd::signal);
        }
    }

    fn add(&self, event: &EventFd) {
        lock(&self.list).push(event.clone());
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn remove(&self, event: &EventFd) {
        let mut list = lock(&self.list);
        let own = event.as_fd().as_raw_fd();
        if let Some(at) = list.iter().position(|other| other.as_fd().as_raw_fd() == own) {
            list.swap_remove(at);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The bed of a thread that waits for something of some queues, all of which interrupt. It is there before
/// the last look before a sleep.
pub(crate) struct Bed<'a, Q: AsRef<SharedQueue>> {
    queues: &'a [Q],
    own: EventFd,
}

impl<'a, Q: AsRef<SharedQueue>> Bed<'a, Q> {
    /// Nothing when one of the queues does not interrupt, or there is no descriptor left.
    pub(super) fn new(queues: &'a [Q]) -> Option<Self> {
        if queues.iter().any(|queue| queue.as_ref().interrupt.is_none()) {
            return None;
        }
        let own = OWN.with(Option::clone)?;
        // Of an earlier sleep.
        own.drain();
        queues.iter().for_each(|queue| queue.as_ref().beds().add(&own));
        Some(Self { queues, own })
    }

    /// Sleeps until one of the queues interrupts, somebody wakes it, or the time is over; then hands on what
    /// has ended to whoever waits for it.
    pub(crate) fn doze(&self, limit: Duration) {
        let interrupts = || self.queues.iter().filter_map(|queue| queue.as_ref().interrupt.as_ref());
        let mut fds = vec![PollFd::new(&self.own, PollFlags::IN)];
        fds.extend(interrupts().map(|event| PollFd::new(event, PollFlags::IN)));
        let limit = Timespec::try_from(limit.min(SLEEP_MAX)).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let _ = poll(&mut fds, Some(&limit));
        // First the counters, then the look: what is signalled in between ends the next sleep.
        self.own.drain();
        for queue in self.queues.iter().map(AsRef::as_ref) {
            if queue.interrupt.as_ref().is_some_and(EventFd::drain) {
                queue.distribute();
            }
        }
    }
}

impl<Q: AsRef<SharedQueue>> Drop for Bed<'_, Q> {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| queue.as_ref().beds().remove(&self.own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_sleep_are_woken_and_each_takes_only_what_is_its_own() {
        let (beds, events) = (Beds::default(), [(); 3].map(|()| EventFd::new().expect("a descriptor")));
        events.iter().for_each(|event| beds.add(event));
        beds.wake();
        assert!(events[0].drain() && events[1].drain());
        beds.remove(&events[0]);
        beds.wake();
        assert!(!events[0].drain() && events[1].drain() && events[2].drain());
        beds.remove(&events[1]);
        beds.remove(&events[2]);
        assert!(beds.is_empty());
    }
}

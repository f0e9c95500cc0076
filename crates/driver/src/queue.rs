//! A queue of a controller: the same verbs, whatever carries its commands.

use std::time::Duration;

use unvme_bus::{DmaBuf, EventFd};
use unvme_spec::{Qid, Sqe};

use crate::Error;
use crate::command::{Completion, KvCommand, Payload, Rejected};
use crate::fabrics::TcpQueue;
use crate::kernel::KernelQueue;
use crate::options::CompletionMode;
use crate::pcie::{Advancer, Ring};
use crate::wait::{Wait, Waiter};

/// A queue pair and its slots. One owner at a time: a queue is `Send`, and all its methods take `&mut self`.
///
/// The steps of a command on a [`Ring`] are inlined into the caller; those of the other kinds, which make
/// system calls, are calls of their own, and nothing of theirs is in the caller's way.
// u8: the compiler widens a tag of its own choice to the alignment of what follows, here 16 bytes, and each
// step compares a number of 128 bits.
#[repr(u8)]
#[non_exhaustive]
pub enum Queue {
    /// Rings in memory shared with a PCI function.
    Ring(Ring),
    /// An io_uring on what the kernel's driver offers.
    Kernel(KernelQueue),
    /// A connection to a target on the network.
    Tcp(Box<TcpQueue>),
}

/// The same on each kind of queue.
macro_rules! on_each {
    ($queue:expr, $each:ident => $what:expr) => {
        match $queue {
            Queue::Ring($each) => $what,
            Queue::Kernel($each) => $what,
            Queue::Tcp($each) => $what,
        }
    };
}

/// The same on a queue that is no [`Ring`], whose steps are inlined where they are taken.
macro_rules! elsewhere {
    ($queue:expr, $each:ident => $what:expr) => {
        match $queue {
            Queue::Ring(_) => unreachable!("the steps of a ring are inlined"),
            Queue::Kernel($each) => $what,
            Queue::Tcp($each) => $what,
        }
    };
}

impl Queue {
    /// Takes a command: fills in the command identifier and the data pointer and writes the entry. The device
    /// learns of it with [`Queue::ring`]. The two commands of a fused pair are submitted one right after the
    /// other. Errors: [`Rejected`] with the buffer: [`Error::Full`], [`Error::InvalidArgument`] for more
    /// bytes than the buffer or the controller takes and for a buffer of another controller's pool,
    /// [`Error::Gone`] or what kept the queue from being created again after a reset.
    #[inline(always)]
    pub fn submit(&mut self, sqe: Sqe, payload: Option<Payload>, token: u64) -> Result<(), Rejected> {
        match self {
            Self::Ring(ring) => ring.submit(sqe, payload, token),
            // Words: a reference to the entry would keep it in memory for the ring, too.
            _ => self.submit_elsewhere(sqe.to_words(), payload, token),
        }
    }

    #[inline(never)]
    fn submit_elsewhere(
        &mut self,
        words: [u64; 8],
        payload: Option<Payload>,
        token: u64,
    ) -> Result<(), Rejected> {
        let sqe: Sqe = zerocopy::transmute!(words);
        elsewhere!(self, queue => queue.submit(sqe, payload, token))
    }

    /// Takes a command of a [`crate::KvNamespace`] like [`Queue::submit`]. `buf` is what it moves data to or
    /// from; a command that moves none takes a buffer along all the same. Errors: as [`Queue::submit`];
    /// [`Error::InvalidArgument`] also for a buffer that is missing, and for a key of more than 16 bytes on a
    /// queue without [`crate::QueueOptions::long_keys`]; [`Error::Exhausted`] when no memory is left to
    /// describe a transfer beyond 2 MiB.
    #[inline(always)]
    pub fn submit_kv(
        &mut self,
        command: KvCommand<'_>,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> Result<(), Rejected> {
        let bytes = command.bytes;
        if bytes > 0 && buf.is_none() {
            return Err(without_buffer(bytes));
        }
        let payload = buf.map(|buf| Payload { buf, bytes });
        on_each!(self, queue => queue.submit_kv(command, payload, token))
    }

    /// Tells the device about everything submitted since the last call; nothing when there is nothing new.
    /// Errors: [`Error::Bus`] when the connection fails.
    #[inline(always)]
    pub fn ring(&mut self) -> Result<(), Error> {
        match self {
            Self::Ring(ring) => ring.ring(),
            _ => self.ring_elsewhere(),
        }
    }

    #[inline(never)]
    fn ring_elsewhere(&mut self) -> Result<(), Error> {
        elsewhere!(self, queue => queue.ring())
    }

    /// Up to `max` completions that are there now; never blocks on a device that works.
    ///
    /// A controller that stopped working is noticed here: commands beyond their time are aborted, then the
    /// controller is reset, which can take as long as the controller's own limits allow. A lost connection to
    /// a controller on the network is made anew here as well as in [`Queue::wait`], which takes as long as a
    /// connection may.
    #[inline(always)]
    pub fn poll(&mut self, max: usize) -> Completions<'_> {
        self.prepare();
        if let Self::Ring(ring) = self {
            ring.advance();
        }
        Completions { queue: self, left: max, found: false }
    }

    /// Waits until a completion is there (true) or `timeout` has passed (false), as the queue's
    /// [`CompletionMode`] says. Rings first. False at once when nothing is outstanding. Errors: what went
    /// wrong with this queue since the last call: [`Error::Protocol`], [`Error::Timeout`], [`Error::Gone`].
    /// Outstanding commands are returned by [`Queue::poll`] all the same.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        on_each!(self, queue => queue.wait(timeout))
    }

    /// As [`Queue::poll`], without letting a host-driven device work: for those who let it work with an
    /// [`Advancer`].
    #[inline(always)]
    pub fn take(&mut self, max: usize) -> Completions<'_> {
        self.prepare();
        Completions { queue: self, left: max, found: false }
    }

    /// The device's work on this queue, when it makes progress only inside its host: for a thread that lets
    /// it work while others submit. `None` for devices that run by themselves.
    pub fn advancer(&self) -> Option<Advancer> {
        match self {
            Self::Ring(ring) => ring.advancer(),
            Self::Kernel(_) | Self::Tcp(_) => None,
        }
    }

    /// What the device signals for this queue's completions: for a thread that sleeps without holding the
    /// queue. It drains the event first, then polls, then sleeps. `None` for a queue in
    /// [`CompletionMode::Poll`].
    pub fn interrupt(&self) -> Option<&EventFd> {
        on_each!(self, queue => queue.interrupt())
    }

    /// Commands submitted whose completion [`Queue::poll`] has not returned yet.
    #[inline]
    pub fn outstanding(&self) -> usize {
        on_each!(self, queue => queue.outstanding())
    }

    /// Commands that can be outstanding.
    #[inline]
    pub fn capacity(&self) -> usize {
        on_each!(self, queue => queue.capacity())
    }

    /// False while the connection to a controller on the network is lost and being made anew: whoever has no
    /// time to wait for it may drop the queue with what is outstanding.
    pub fn is_connected(&self) -> bool {
        match self {
            Self::Ring(_) | Self::Kernel(_) => true,
            Self::Tcp(queue) => queue.is_connected(),
        }
    }

    /// Identifier of the queue, submission and completion side alike.
    pub fn id(&self) -> Qid {
        self.waiter().id
    }

    /// How the queue waits.
    pub fn mode(&self) -> CompletionMode {
        self.waiter().mode
    }

    /// What precedes taking completions.
    #[inline(always)]
    fn prepare(&mut self) {
        match self {
            Self::Ring(ring) => ring.prepare(),
            _ => self.prepare_elsewhere(),
        }
    }

    #[inline(never)]
    fn prepare_elsewhere(&mut self) {
        elsewhere!(self, queue => queue.prepare());
    }

    #[inline(never)]
    fn pop_elsewhere(&mut self) -> Option<Completion> {
        elsewhere!(self, queue => queue.pop())
    }

    #[inline(never)]
    fn end_poll_elsewhere(&mut self, found: bool) {
        elsewhere!(self, queue => queue.end_poll(found));
    }

    fn waiter(&self) -> &Waiter {
        on_each!(self, queue => queue.waiter())
    }
}

#[cold]
fn without_buffer(bytes: usize) -> Rejected {
    let reason = format!("the command moves {bytes} bytes and came without a buffer");
    Rejected { error: Error::InvalidArgument(reason), buf: None }
}

unvme_bus::debug_parts!(Queue { id(), capacity(), outstanding(), mode() });

/// Completions as they are taken off a queue. Dropping it tells the device how far it got; what was not taken
/// stays.
#[derive(Debug)]
pub struct Completions<'a> {
    queue: &'a mut Queue,
    left: usize,
    found: bool,
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    // Always inlined, as is the queue's `pop`: the caller then takes the completion apart in registers.
    #[inline(always)]
    fn next(&mut self) -> Option<Completion> {
        if self.left == 0 {
            return None;
        }
        let completion = match &mut *self.queue {
            Queue::Ring(ring) => ring.pop(),
            queue => queue.pop_elsewhere(),
        }?;
        self.left -= 1;
        self.found = true;
        Some(completion)
    }
}

impl Drop for Completions<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        match &mut *self.queue {
            Queue::Ring(ring) => ring.end_poll(self.found),
            queue => queue.end_poll_elsewhere(self.found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Controller;

    #[test]
    fn a_queue_moves_between_threads_and_a_controller_is_shared_by_them() {
        const fn sends<T: Send>() {}
        const fn shares<T: Send + Sync>() {}
        sends::<Queue>();
        shares::<Controller>();
    }

    #[test]
    fn a_buffer_is_one_word_and_a_completion_half_a_cache_line() {
        assert_eq!(size_of::<Option<DmaBuf>>(), 8);
        assert_eq!(size_of::<Completion>(), 32);
    }
}

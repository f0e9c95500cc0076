//! What goes into a queue and comes out of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use unvme_bus::{Clock, DmaBuf, EventFd, Function};
use unvme_spec::{Qid, Sqe, Status};

use crate::kernel::{KernelCompletions, KernelQueue};
use crate::kv::KvCommand;
use crate::tcp::{TcpCompletions, TcpQueue};
use crate::{Error, Ring};

/// Most commands a queue takes: 4095 slots leave 4 bits of the command identifier for a count of reuse.
pub const DEPTH_MAX: u16 = 4095;

/// How a queue's owner learns of completions in [`Queue::wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionMode {
    /// Look at the ring until something is there. Needs no interrupt vector.
    #[default]
    Poll,
    /// Sleep until the queue's interrupt.
    Interrupt,
    /// Look for as long as commands have recently taken, then sleep.
    Hybrid,
}

/// How a queue describes buffers to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPointers {
    /// Physical Region Pages: every controller understands them.
    Prp,
    /// One SGL data block per command; an error when the controller does not support SGLs.
    Sgl,
    /// SGL for transfers that would need a PRP list, when the controller supports SGLs.
    #[default]
    Auto,
}

/// Options of a queue.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// Commands that can be outstanding, 1 to [`DEPTH_MAX`] and below the controller's maximum
    /// ([`crate::Controller::queue_depth_max`]).
    pub depth: u16,
    /// How to wait.
    pub mode: CompletionMode,
    /// How to describe buffers.
    pub data_pointers: DataPointers,
    /// Memory for keys of more than 16 bytes, which travel outside their entry: 256 bytes for each command.
    pub long_keys: bool,
    /// How long a command may take before it is aborted; then the controller is reset.
    pub command_timeout: Duration,
    /// How long after the Abort the command may still take before the controller is reset.
    pub abort_grace: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            depth: 128,
            mode: CompletionMode::default(),
            data_pointers: DataPointers::default(),
            long_keys: false,
            command_timeout: Duration::from_secs(30),
            abort_grace: Duration::from_secs(5),
        }
    }
}

/// A buffer that goes to the device with a command.
#[derive(Debug)]
pub struct Payload {
    /// The buffer; transfers start at its first byte.
    pub buf: DmaBuf,
    /// Bytes the command transfers, at most the buffer's length. 0 gives the device no data pointer.
    pub bytes: usize,
}

impl Payload {
    /// The whole of a buffer.
    pub fn whole(buf: DmaBuf) -> Self {
        Self { bytes: buf.len(), buf }
    }
}

/// A command that has finished.
#[derive(Debug)]
pub struct Completion {
    /// What the caller passed to `submit`.
    pub token: u64,
    /// What the device said; [`Status::ABORTED_BY_HOST`] when a reset ended the command.
    pub status: Status,
    /// Command specific result, dwords 0 and 1.
    pub result: u64,
    /// The buffer that went with the command. Missing when there was none, or when the controller was lost without a
    /// sign that it has stopped: memory a device may still write is never given back.
    pub buf: Option<DmaBuf>,
}

/// A command that was not accepted.
pub struct Rejected {
    /// Why.
    pub error: Error,
    /// The buffer that would have gone with it.
    pub buf: Option<DmaBuf>,
}

impl fmt::Debug for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("error", &self.error).finish_non_exhaustive()
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Rejected {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Self {
        rejected.error
    }
}

/// A queue pair and its slots. One owner at a time: a queue is `Send`, and all its methods take `&mut self`.
#[derive(Debug)]
#[non_exhaustive]
pub enum Queue {
    /// Rings in memory shared with a PCI function.
    Ring(Ring),
    /// An io_uring on what the kernel's driver offers.
    Kernel(KernelQueue),
    /// A connection to a target on the network.
    Tcp(Box<TcpQueue>),
}

impl Queue {
    /// Takes a command: fills in the command identifier and the data pointer and writes the entry. The device learns of
    /// it with [`Queue::ring`]. The two commands of a fused pair are submitted one right after the other.
    ///
    /// # Errors
    /// [`Rejected`] with the buffer: [`Error::Full`], [`Error::InvalidArgument`] for more bytes than the buffer or the
    /// controller takes and for a buffer of another controller's pool, [`Error::Gone`] or what kept the queue from being created again after a reset.
    #[inline(always)]
    pub fn submit(&mut self, sqe: Sqe, payload: Option<Payload>, token: u64) -> Result<(), Rejected> {
        match self {
            Self::Ring(ring) => ring.submit(sqe, payload, token),
            Self::Kernel(queue) => queue.submit(sqe, payload, token),
            Self::Tcp(queue) => queue.submit(sqe, payload, token),
        }
    }

    /// Takes a command of a [`crate::KvNamespace`] like [`Queue::submit`]. `buf` is what it moves data to or from; a
    /// command that moves none takes a buffer along all the same.
    ///
    /// # Errors
    /// As [`Queue::submit`]; [`Error::InvalidArgument`] also for a buffer that is missing, and for a key of more than 16
    /// bytes on a queue without [`QueueOptions::long_keys`]; [`Error::Exhausted`] when no memory is left to describe a
    /// transfer beyond 2 MiB.
    #[inline(always)]
    pub fn submit_kv(
        &mut self,
        command: KvCommand<'_>,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> Result<(), Rejected> {
        match self {
            Self::Ring(ring) => ring.submit_kv(command, buf, token),
            Self::Kernel(queue) => queue.submit_kv(command, buf, token),
            Self::Tcp(queue) => queue.submit_kv(command, buf, token),
        }
    }

    /// Tells the device about everything submitted since the last call; nothing when there is nothing new.
    ///
    /// # Errors
    /// [`Error::Bus`] when the connection fails.
    #[inline]
    pub fn ring(&mut self) -> Result<(), Error> {
        match self {
            Self::Ring(ring) => ring.ring(),
            Self::Kernel(queue) => queue.ring(),
            Self::Tcp(queue) => queue.ring(),
        }
    }

    /// Up to `max` completions that are there now; never blocks on a device that works.
    ///
    /// A controller that stopped working is noticed here: commands beyond their time are aborted, then the controller
    /// is reset, which can take as long as the controller's own limits allow. A lost connection to a controller on the
    /// network is made anew here as well as in [`Queue::wait`], which takes as long as a connection may.
    #[inline]
    pub fn poll(&mut self, max: usize) -> Completions<'_> {
        match self {
            Self::Ring(ring) => Completions::Ring(ring.poll(max)),
            Self::Kernel(queue) => Completions::Kernel(queue.poll(max)),
            Self::Tcp(queue) => Completions::Tcp(queue.poll(max)),
        }
    }

    /// Waits until a completion is there (true) or `timeout` has passed (false), as the queue's [`CompletionMode`]
    /// says. Rings first. False at once when nothing is outstanding.
    ///
    /// # Errors
    /// What went wrong with this queue since the last call: [`Error::Protocol`], [`Error::Timeout`],
    /// [`Error::Gone`]. Outstanding commands are returned by [`Queue::poll`] all the same.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        match self {
            Self::Ring(ring) => ring.wait(timeout),
            Self::Kernel(queue) => queue.wait(timeout),
            Self::Tcp(queue) => queue.wait(timeout),
        }
    }

    /// As [`Queue::poll`], without letting a host-driven device work: for those who let it work with an [`Advancer`].
    #[inline]
    pub fn take(&mut self, max: usize) -> Completions<'_> {
        match self {
            Self::Ring(ring) => Completions::Ring(ring.take(max)),
            Self::Kernel(queue) => Completions::Kernel(queue.poll(max)),
            Self::Tcp(queue) => Completions::Tcp(queue.poll(max)),
        }
    }

    /// The device's work on this queue, when it makes progress only inside its host: for a thread that lets it work
    /// while others submit. `None` for devices that run by themselves.
    pub fn advancer(&self) -> Option<Advancer> {
        match self {
            Self::Ring(ring) => ring.advancer(),
            Self::Kernel(_) => None,
            Self::Tcp(_) => None,
        }
    }

    /// What the device signals for this queue's completions: for a thread that sleeps without holding the queue. It
    /// drains the event first, then polls, then sleeps. `None` for a queue in [`CompletionMode::Poll`].
    pub fn interrupt(&self) -> Option<&EventFd> {
        match self {
            Self::Ring(ring) => ring.interrupt(),
            Self::Kernel(queue) => queue.interrupt(),
            Self::Tcp(queue) => queue.interrupt(),
        }
    }

    /// Commands submitted whose completion [`Queue::poll`] has not returned yet.
    #[inline]
    pub fn outstanding(&self) -> usize {
        match self {
            Self::Ring(ring) => ring.outstanding(),
            Self::Kernel(queue) => queue.outstanding(),
            Self::Tcp(queue) => queue.outstanding(),
        }
    }

    /// Commands that can be outstanding.
    #[inline]
    pub fn capacity(&self) -> usize {
        match self {
            Self::Ring(ring) => ring.capacity(),
            Self::Kernel(queue) => queue.capacity(),
            Self::Tcp(queue) => queue.capacity(),
        }
    }

    /// Identifier of the queue, submission and completion side alike.
    pub fn id(&self) -> Qid {
        match self {
            Self::Ring(ring) => ring.id(),
            Self::Kernel(queue) => queue.id(),
            Self::Tcp(queue) => queue.id(),
        }
    }

    /// How the queue waits.
    pub fn mode(&self) -> CompletionMode {
        match self {
            Self::Ring(ring) => ring.mode(),
            Self::Kernel(queue) => queue.mode(),
            Self::Tcp(queue) => queue.mode(),
        }
    }
}

/// Lets a host-driven device work on one queue, from any thread and while the queue is in use. It keeps the function, and
/// not the queue: after that has gone it does nothing.
#[derive(Clone)]
pub struct Advancer {
    pub(crate) function: Arc<dyn Function>,
    pub(crate) lane: Qid,
    pub(crate) clock: Clock,
}

impl Advancer {
    /// Lets the device work for a bounded while; returns how many units of work it did.
    #[inline]
    pub fn advance(&self) -> usize {
        self.function.advance(Some(self.lane.0), &self.clock)
    }

    /// The clock the device is handed; whoever waits moves it when it is a virtual one.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl fmt::Debug for Advancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advancer").field("lane", &self.lane).finish_non_exhaustive()
    }
}

/// Completions as they are taken off a queue. Dropping it tells the device how far it got; what was not taken stays.
#[derive(Debug)]
#[non_exhaustive]
pub enum Completions<'a> {
    /// From a [`Ring`].
    Ring(crate::ring::RingCompletions<'a>),
    /// From a [`KernelQueue`].
    Kernel(KernelCompletions<'a>),
    /// From a [`TcpQueue`].
    Tcp(TcpCompletions<'a>),
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    #[inline(always)]
    fn next(&mut self) -> Option<Completion> {
        match self {
            Self::Ring(completions) => completions.next(),
            Self::Kernel(completions) => completions.next(),
            Self::Tcp(completions) => completions.next(),
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

//! Submit and poll: the fast way to a namespace.

use std::time::Duration;

use unvme_driver::{
    Completions, Controller, DmaBuf, Error as DriverError, Namespace, Payload, Queue, QueueOptions, Rejected,
};
use unvme_spec::Sqe;
use unvme_spec::nvm::{AccessFlags, BlockRange};

use crate::op::without_buffer;
use crate::{Error, Op, Result};

/// A queue pair of one namespace, for one thread at a time.
///
/// A buffer goes to the device with [`BlockQueue::submit`] and comes back with the completion: nobody can
/// touch memory the device still writes. Nothing is allocated or locked between the two.
///
/// ```
/// use std::time::Duration;
/// use unvme::{Nsid, Op, OpenOptions, QueueOptions, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = open("mem:block:64M", &OpenOptions::default())?;
/// let mut queue = device.block(Nsid(1))?.queue(&QueueOptions { depth: 2, ..QueueOptions::default() })?;
/// let mut data = queue.alloc(4096)?;
/// data.fill(0x5a);
/// queue.submit(Op::write(0, 8), Some(data), 1)?;
/// queue.submit(Op::Flush, None, 2)?;
/// queue.ring()?;
/// while queue.outstanding() > 0 {
///     queue.wait(Duration::from_secs(1))?;
///     for completion in queue.poll(2) {
///         assert!(completion.status.is_success());
///         assert_eq!(completion.buf.is_some(), completion.token == 1);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BlockQueue {
    queue: Queue,
    namespace: Namespace,
    controller: Controller,
}

impl BlockQueue {
    pub(crate) fn create(
        what: &str,
        controller: &Controller,
        namespace: Namespace,
        options: &QueueOptions,
    ) -> Result<Self> {
        let queue = controller.create_queue(options).map_err(|e| Error::driver(what, e))?;
        Ok(Self { queue, namespace, controller: controller.clone() })
    }

    /// Takes a command; the device learns of it with [`BlockQueue::ring`]. The transfer takes the first bytes
    /// of the buffer, as many as the range has. `token` comes back with the completion.
    ///
    /// # Errors
    /// [`Rejected`] with the buffer: the queue is full, the range is not on the namespace or too long for one
    /// command, or the buffer is missing or too short.
    #[inline(always)]
    pub fn submit(
        &mut self,
        op: Op<'_>,
        mut buf: Option<DmaBuf>,
        token: u64,
    ) -> std::result::Result<(), Rejected> {
        match op.on_blocks(&self.namespace, &mut buf) {
            Ok((sqe, bytes)) => match buf {
                Some(buf) => self.queue.submit(sqe, Some(Payload { buf, bytes }), token),
                None if bytes == 0 => self.queue.submit(sqe, None, token),
                None => Err(Rejected { error: without_buffer(bytes), buf }),
            },
            Err(error) => Err(Rejected { error, buf }),
        }
    }

    /// [`Op::Read`] without flags.
    ///
    /// # Errors
    /// As [`BlockQueue::submit`].
    #[inline(always)]
    pub fn read(&mut self, range: BlockRange, buf: DmaBuf, token: u64) -> std::result::Result<(), Rejected> {
        self.submit_access(self.namespace.read(range, AccessFlags::default()), range, buf, token)
    }

    /// [`Op::Write`] without options.
    ///
    /// # Errors
    /// As [`BlockQueue::submit`].
    #[inline(always)]
    pub fn write(&mut self, range: BlockRange, buf: DmaBuf, token: u64) -> std::result::Result<(), Rejected> {
        self.submit_access(self.namespace.write(range, AccessFlags::default()), range, buf, token)
    }

    #[inline(always)]
    fn submit_access(
        &mut self,
        sqe: std::result::Result<Sqe, DriverError>,
        range: BlockRange,
        buf: DmaBuf,
        token: u64,
    ) -> std::result::Result<(), Rejected> {
        match sqe {
            Ok(sqe) => {
                let bytes = self.namespace.bytes(range);
                self.queue.submit(sqe, Some(Payload { buf, bytes }), token)
            }
            Err(error) => Err(Rejected { error, buf: Some(buf) }),
        }
    }

    /// Up to `max` commands that have finished.
    #[inline(always)]
    pub fn poll(&mut self, max: usize) -> Completions<'_> {
        self.queue.poll(max)
    }
}

/// What the queues of blocks and of pairs have alike.
macro_rules! queue_methods {
    ($queue:ident, $namespace:ty, $namespace_is:literal) => {
        impl $queue {
            /// A zeroed, page aligned buffer the device can reach.
            ///
            /// # Errors
            /// [`Error::Driver`] when memory is used up.
            pub fn alloc(&self, bytes: usize) -> Result<DmaBuf> {
                self.controller.alloc(bytes).map_err(|e| Error::driver("allocate a buffer", e))
            }

            /// Tells the device about everything submitted since the last call.
            ///
            /// # Errors
            /// The connection to the device failed.
            #[inline(always)]
            pub fn ring(&mut self) -> std::result::Result<(), DriverError> {
                self.queue.ring()
            }

            /// Waits until something has finished (true) or `timeout` has passed (false). Rings first.
            ///
            /// # Errors
            /// What went wrong with the queue since the last call; outstanding commands are returned by
            /// [`Self::poll`] all the same.
            pub fn wait(&mut self, timeout: Duration) -> std::result::Result<bool, DriverError> {
                self.queue.wait(timeout)
            }

            /// The controller that the queue is one of.
            pub fn controller(&self) -> &Controller {
                &self.controller
            }

            /// Commands submitted and not polled yet.
            #[inline]
            pub fn outstanding(&self) -> usize {
                self.queue.outstanding()
            }

            /// Commands that can be outstanding.
            #[inline]
            pub fn capacity(&self) -> usize {
                self.queue.capacity()
            }

            #[doc = $namespace_is]
            #[inline]
            pub fn namespace(&self) -> &$namespace {
                &self.namespace
            }

            /// The driver's queue, for commands this type does not have.
            #[inline]
            pub fn raw(&mut self) -> &mut Queue {
                &mut self.queue
            }
        }
    };
}

pub(crate) use queue_methods;

queue_methods!(BlockQueue, Namespace, "The namespace: its size, and ranges for byte offsets.");

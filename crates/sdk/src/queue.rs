//! Submit and poll: the fast way to a namespace.

use std::time::Duration;

use unvme_driver::{
    Completions, Controller, DmaBuf, Error as DriverError, Namespace, Payload, Queue, QueueOptions, Rejected,
    WriteOptions,
};
use unvme_spec::Sqe;
use unvme_spec::nvm::{AccessFlags, BlockRange};

use crate::{Error, Result};

/// A command on a range of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockOp {
    /// Blocks to the buffer.
    Read(BlockRange, AccessFlags),
    /// The buffer to blocks. Whether the namespace has the placement identifier, if there is one, is not looked at: a
    /// device takes its first placement handle for one that it has not. [`crate::Block::placements`] lists them.
    Write(BlockRange, WriteOptions),
    /// Blocks against the buffer: [`unvme_spec::Status::COMPARE_FAILURE`] when they differ.
    Compare(BlockRange, AccessFlags),
    /// Checks that the blocks can be read; no buffer.
    Verify(BlockRange),
    /// Sets the blocks to zero; no buffer.
    WriteZeroes {
        /// The blocks.
        range: BlockRange,
        /// The device should also give their space back.
        deallocate: bool,
    },
    /// Marks the blocks as unreadable until they are written; no buffer.
    WriteUncorrectable(BlockRange),
    /// Makes everything that was completed before durable; no buffer.
    Flush,
}

/// A queue pair of one namespace, for one thread at a time.
///
/// A buffer goes to the device with [`BlockQueue::submit`] and comes back with the completion: nobody can touch memory
/// the device still writes. Nothing is allocated or locked between the two.
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

    /// A zeroed, page aligned buffer the device can reach.
    ///
    /// # Errors
    /// [`Error::Driver`] when memory is used up.
    pub fn alloc(&self, bytes: usize) -> Result<DmaBuf> {
        self.controller.alloc(bytes).map_err(|e| Error::driver("allocate a buffer", e))
    }

    /// Takes a command; the device learns of it with [`BlockQueue::ring`]. The transfer takes the first bytes of the
    /// buffer, as many as the range has. `token` comes back with the completion.
    ///
    /// # Errors
    /// [`Rejected`] with the buffer: the queue is full, the range is not on the namespace or too long for one command,
    /// or the buffer is missing or too short.
    #[inline(always)]
    pub fn submit(
        &mut self,
        op: BlockOp,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> std::result::Result<(), Rejected> {
        match self.encode(op) {
            Ok((sqe, 0)) => self.queue.submit(sqe, buf.map(|buf| Payload { buf, bytes: 0 }), token),
            Ok((sqe, bytes)) => match buf {
                Some(buf) => self.queue.submit(sqe, Some(Payload { buf, bytes }), token),
                None => Err(without_buffer(bytes)),
            },
            Err(error) => Err(Rejected { error, buf }),
        }
    }

    /// [`BlockOp::Read`] without flags.
    ///
    /// # Errors
    /// As [`BlockQueue::submit`].
    #[inline(always)]
    pub fn read(&mut self, range: BlockRange, buf: DmaBuf, token: u64) -> std::result::Result<(), Rejected> {
        self.submit_access(self.namespace.read(range, AccessFlags::default()), range, buf, token)
    }

    /// [`BlockOp::Write`] without options.
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

    /// The entry of a command, and the bytes it transfers.
    ///
    /// Always inlined, as everything between here and the queue: a constant kind of command then leaves one path, on which
    /// the entry is put together in registers.
    #[inline(always)]
    fn encode(&self, op: BlockOp) -> std::result::Result<(Sqe, usize), DriverError> {
        let namespace = &self.namespace;
        Ok(match op {
            BlockOp::Read(range, flags) => (namespace.read(range, flags)?, namespace.bytes(range)),
            BlockOp::Write(range, options) => (namespace.write(range, options)?, namespace.bytes(range)),
            BlockOp::Compare(range, flags) => (namespace.compare(range, flags)?, namespace.bytes(range)),
            BlockOp::Verify(range) => (namespace.verify(range, AccessFlags::default())?, 0),
            BlockOp::WriteZeroes { range, deallocate } => {
                (namespace.write_zeroes(range, AccessFlags::default(), deallocate)?, 0)
            }
            BlockOp::WriteUncorrectable(range) => (namespace.write_uncorrectable(range)?, 0),
            BlockOp::Flush => (namespace.flush(), 0),
        })
    }

    /// Tells the device about everything submitted since the last call.
    ///
    /// # Errors
    /// The connection to the device failed.
    #[inline(always)]
    pub fn ring(&mut self) -> std::result::Result<(), DriverError> {
        self.queue.ring()
    }

    /// Up to `max` commands that have finished.
    #[inline(always)]
    pub fn poll(&mut self, max: usize) -> Completions<'_> {
        self.queue.poll(max)
    }

    /// Waits until something has finished (true) or `timeout` has passed (false). Rings first.
    ///
    /// # Errors
    /// What went wrong with the queue since the last call; outstanding commands are returned by [`BlockQueue::poll`]
    /// all the same.
    pub fn wait(&mut self, timeout: Duration) -> std::result::Result<bool, DriverError> {
        self.queue.wait(timeout)
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

    /// The namespace: its size, and ranges for byte offsets.
    #[inline]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The driver's queue, for commands this type does not have.
    #[inline]
    pub fn raw(&mut self) -> &mut Queue {
        &mut self.queue
    }
}

#[cold]
fn without_buffer(bytes: usize) -> Rejected {
    let reason = format!("the command moves {bytes} bytes and came without a buffer");
    Rejected { error: DriverError::InvalidArgument(reason), buf: None }
}

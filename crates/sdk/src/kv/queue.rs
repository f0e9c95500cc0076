//! Submit and poll: the fast way to a key-value namespace.

use std::time::Duration;

use unvme_driver::{
    Completions, Controller, DmaBuf, Error as DriverError, KvCommand, KvKey, KvNamespace, Payload, Queue,
    QueueOptions, Rejected, StoreOptions,
};
use unvme_spec::Status;
use unvme_spec::samsung_kv::{IterateType, Prefix};

use crate::{Error, Result};

/// A key-value command. `bytes` counts from the start of the buffer that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvOp<'a> {
    /// The buffer becomes the value of the key.
    Store {
        /// The key.
        key: KvKey<'a>,
        /// Bytes of the value; 0 takes no buffer.
        bytes: usize,
        /// Options.
        options: StoreOptions,
    },
    /// The value to the buffer. [`KvCompletion::value_bytes`] is the size of the whole value, which may be more or less.
    Retrieve {
        /// The key.
        key: KvKey<'a>,
        /// First byte of the value that is wanted; anything but 0 takes the vendor commands, and a multiple of 512.
        offset: u32,
        /// Bytes of the buffer; 0 asks for the size alone.
        bytes: usize,
    },
    /// Removes a pair; no buffer.
    Delete(KvKey<'a>),
    /// Asks whether a key exists; no buffer.
    Exist(KvKey<'a>),
    /// Adds the buffer to the end of a value: vendor commands.
    Append {
        /// The key.
        key: KvKey<'a>,
        /// Bytes to add.
        bytes: usize,
    },
    /// Keys to the buffer, see [`unvme_spec::kv::ListReader`]: standard commands.
    List {
        /// First key; empty for the beginning.
        start: &'a [u8],
        /// Bytes of the buffer.
        bytes: usize,
    },
    /// Opens an iterator; no buffer. Its identifier is [`KvCompletion::value_bytes`]. Vendor commands.
    IterateOpen {
        /// Keyspace.
        keyspace: u8,
        /// What it does.
        kind: IterateType,
        /// Which keys.
        prefix: Prefix,
    },
    /// Closes an iterator; no buffer. Vendor commands.
    IterateClose {
        /// Keyspace.
        keyspace: u8,
        /// Identifier.
        iterator: u8,
    },
    /// Reads from an iterator into a buffer of 32 KiB; [`KvCompletion::value_bytes`] of it are valid. Vendor commands.
    IterateRead {
        /// Keyspace.
        keyspace: u8,
        /// Identifier.
        iterator: u8,
    },
    /// Makes everything that was completed before durable; no buffer.
    Flush,
}

/// A key-value command that has finished.
#[derive(Debug)]
pub struct KvCompletion {
    /// What the caller passed to `submit`.
    pub token: u64,
    /// What the device said, whole; [`unvme_driver::KvVerdict::of`] says what that means in either dialect.
    pub status: Status,
    /// The command's result: bytes of the whole value, for a Retrieve that succeeded.
    pub value_bytes: u32,
    /// The buffer that went with the command.
    pub buf: Option<DmaBuf>,
}

/// A queue pair of one namespace, for one thread at a time.
///
/// A buffer goes to the device with its command and comes back with the completion: nobody can touch memory the device
/// still writes. Nothing is allocated or locked between the two, but for transfers of more than 2 MiB to a device that
/// knows no SGLs. Keys are copied.
#[derive(Debug)]
pub struct KvQueue {
    queue: Queue,
    namespace: KvNamespace,
    controller: Controller,
}

impl KvQueue {
    pub(crate) fn create(
        what: &str,
        controller: &Controller,
        namespace: KvNamespace,
        options: &QueueOptions,
    ) -> Result<Self> {
        let options = QueueOptions { long_keys: namespace.has_vendor(), ..options.clone() };
        let queue = controller.create_queue(&options).map_err(|e| Error::driver(what, e))?;
        Ok(Self { queue, namespace, controller: controller.clone() })
    }

    /// A zeroed, page aligned buffer the device can reach.
    ///
    /// # Errors
    /// [`Error::Driver`] when memory is used up.
    pub fn alloc(&self, bytes: usize) -> Result<DmaBuf> {
        self.controller.alloc(bytes).map_err(|e| Error::driver("allocate a buffer", e))
    }

    /// Takes a command; the device learns of it with [`KvQueue::ring`]. `token` comes back with the completion.
    ///
    /// # Errors
    /// [`Rejected`] with the buffer: the queue is full, the device has no such command or limit, or the buffer is missing
    /// or too short.
    #[inline(always)]
    pub fn submit(
        &mut self,
        op: KvOp<'_>,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> std::result::Result<(), Rejected> {
        self.submit_made(self.encode(op), buf, token)
    }

    /// [`KvOp::Store`] without options. The payload's bytes are the value.
    ///
    /// # Errors
    /// As [`KvQueue::submit`].
    #[inline(always)]
    pub fn store(&mut self, key: KvKey<'_>, value: Payload, token: u64) -> std::result::Result<(), Rejected> {
        let Payload { buf, bytes } = value;
        self.submit_made(self.namespace.store(key, bytes, StoreOptions::default()), Some(buf), token)
    }

    /// [`KvOp::Retrieve`] from the start of the value, as much as the payload's bytes take.
    ///
    /// # Errors
    /// As [`KvQueue::submit`].
    #[inline(always)]
    pub fn retrieve(
        &mut self,
        key: KvKey<'_>,
        into: Payload,
        token: u64,
    ) -> std::result::Result<(), Rejected> {
        let Payload { buf, bytes } = into;
        self.submit_made(self.namespace.retrieve(key, 0, bytes), Some(buf), token)
    }

    #[inline(always)]
    fn submit_made(
        &mut self,
        made: std::result::Result<KvCommand<'_>, DriverError>,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> std::result::Result<(), Rejected> {
        match made {
            Ok(command) => self.queue.submit_kv(command, buf, token),
            Err(error) => Err(Rejected { error, buf }),
        }
    }

    /// Always inlined, as in [`crate::BlockQueue`]: a constant kind of command leaves one path.
    #[inline(always)]
    fn encode<'a>(&self, op: KvOp<'a>) -> std::result::Result<KvCommand<'a>, DriverError> {
        let namespace = &self.namespace;
        match op {
            KvOp::Store { key, bytes, options } => namespace.store(key, bytes, options),
            KvOp::Retrieve { key, offset, bytes } => namespace.retrieve(key, offset, bytes),
            KvOp::Delete(key) => namespace.delete(key),
            KvOp::Exist(key) => namespace.exist(key),
            KvOp::Append { key, bytes } => namespace.append(key, bytes),
            KvOp::List { start, bytes } => namespace.list(start, bytes),
            KvOp::IterateOpen { keyspace, kind, prefix } => namespace.iterate_open(keyspace, kind, prefix),
            KvOp::IterateClose { keyspace, iterator } => namespace.iterate_close(keyspace, iterator),
            KvOp::IterateRead { keyspace, iterator } => namespace.iterate_read(keyspace, iterator),
            KvOp::Flush => Ok(namespace.flush()),
        }
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
    pub fn poll(&mut self, max: usize) -> KvCompletions<'_> {
        KvCompletions(self.queue.poll(max))
    }

    /// Waits until something has finished (true) or `timeout` has passed (false). Rings first.
    ///
    /// # Errors
    /// What went wrong with the queue since the last call; outstanding commands are returned by [`KvQueue::poll`] all
    /// the same.
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

    /// The namespace and its limits.
    #[inline]
    pub fn namespace(&self) -> &KvNamespace {
        &self.namespace
    }

    /// The driver's queue, for commands this type does not have.
    #[inline]
    pub fn raw(&mut self) -> &mut Queue {
        &mut self.queue
    }
}

/// Key-value completions as they are taken off a queue; what was not taken stays.
#[derive(Debug)]
pub struct KvCompletions<'a>(Completions<'a>);

impl Iterator for KvCompletions<'_> {
    type Item = KvCompletion;

    #[inline(always)]
    fn next(&mut self) -> Option<KvCompletion> {
        let completion = self.0.next()?;
        Some(KvCompletion {
            token: completion.token,
            status: completion.status,
            value_bytes: KvNamespace::value_bytes(completion.result),
            buf: completion.buf,
        })
    }
}

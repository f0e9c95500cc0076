//! Submit and poll: the fast way to a key-value namespace.

use std::time::Duration;

use unvme_driver::{
    Completions, Controller, DmaBuf, Error as DriverError, KvCommand, KvKey, KvNamespace, Payload, Queue,
    QueueOptions, Rejected, StoreOptions,
};
use unvme_spec::Status;

use crate::op::without_buffer;
use crate::queue::queue_methods;
use crate::{Error, Op, Result};

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
/// A buffer goes to the device with its command and comes back with the completion: nobody can touch memory
/// the device still writes. Nothing is allocated or locked between the two, but for transfers of more than 2
/// MiB to a device that knows no SGLs. Keys are copied.
///
/// ```
/// use std::time::Duration;
/// use unvme::{Nsid, Op, OpenOptions, QueueOptions, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = open("mem:kv:64M", &OpenOptions::default())?;
/// let mut queue = device.kv(Nsid(1))?.queue(&QueueOptions::default())?;
/// let mut value = queue.alloc(4096)?;
/// value.write(0, b"Ada");
/// queue.submit(Op::store(&b"user:1"[..], 3), Some(value), 1)?;
/// assert!(queue.wait(Duration::from_secs(1))?);
/// let stored = queue.poll(1).next().expect("it has finished");
/// queue.submit(Op::retrieve(&b"user:1"[..], 4096), stored.buf, 2)?;
/// assert!(queue.wait(Duration::from_secs(1))?);
/// let retrieved = queue.poll(1).next().expect("it has finished");
/// assert_eq!((retrieved.token, retrieved.value_bytes), (2, 3));
/// # Ok(())
/// # }
/// ```
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

    /// Takes a command; the device learns of it with [`KvQueue::ring`]. `token` comes back with the
    /// completion.
    ///
    /// # Errors
    /// [`Rejected`] with the buffer: the queue is full, the device has no such command or limit, or the
    /// buffer is missing or too short.
    #[inline(always)]
    pub fn submit(
        &mut self,
        op: Op<'_>,
        buf: Option<DmaBuf>,
        token: u64,
    ) -> std::result::Result<(), Rejected> {
        if let Op::Entry(sqe, bytes) = op {
            return match buf {
                Some(buf) => self.queue.submit(*sqe, Some(Payload { buf, bytes }), token),
                None if bytes == 0 => self.queue.submit(*sqe, None, token),
                None => Err(Rejected { error: without_buffer(bytes), buf }),
            };
        }
        self.submit_made(op.on_pairs(&self.namespace), buf, token)
    }

    /// [`Op::Store`] without options. The payload's bytes are the value.
    ///
    /// # Errors
    /// As [`KvQueue::submit`].
    #[inline(always)]
    pub fn store(&mut self, key: KvKey<'_>, value: Payload, token: u64) -> std::result::Result<(), Rejected> {
        let Payload { buf, bytes } = value;
        self.submit_made(self.namespace.store(key, bytes, StoreOptions::default()), Some(buf), token)
    }

    /// [`Op::Retrieve`] from the start of the value, as much as the payload's bytes take.
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

    /// Up to `max` commands that have finished.
    #[inline(always)]
    pub fn poll(&mut self, max: usize) -> KvCompletions<'_> {
        KvCompletions(self.queue.poll(max))
    }
}

queue_methods!(KvQueue, KvNamespace, "The namespace and its limits.");

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

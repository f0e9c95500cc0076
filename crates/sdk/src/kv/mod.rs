//! A key-value namespace: simple calls that wait.

mod batch;
mod limits;
mod list;
mod queue;
mod retrieve;
pub mod scan;

use unvme_driver::{
    Completion, Controller, DmaBuf, Error as DriverError, KvCommand, KvKey, KvNamespace, KvOptions,
    KvVerdict, Queue, QueueOptions, StoreOptions,
};
use unvme_spec::{Nsid, Status};

use crate::block::collect;
use crate::worker::{Medium, Worker, WorkerOptions};
use crate::{Error, Result};

pub use batch::BatchOp;
pub use limits::{DialectLimits, KvLimits, KvUsage};
pub use list::KeyIter;
pub use queue::{KvCompletion, KvCompletions, KvQueue};
pub use retrieve::Retrieved;

use scan::Order;

/// Commands of one call that are outstanding at a time.
const DEPTH: u16 = 8;
/// Smallest buffer a call takes from the pool: values up to this size are retrieved by one command.
const BUFFER_BYTES_MIN: usize = 64 << 10;
/// Largest buffer that is kept for the next call.
const BUFFER_BYTES_KEPT: usize = 2 << 20;

/// A key-value namespace, or one keyspace of it.
///
/// The calls here wait until they are done; they are for those who do not count microseconds. [`Kv::queue`]
/// is for those who do. Both work with the Key Value Command Set and with the vendor commands of Samsung's KV
/// SSDs; what a device cannot do is an error that says so.
///
/// ```
/// use unvme::{Nsid, OpenOptions, StoreOptions, open};
///
/// # fn main() -> Result<(), unvme::Error> {
/// let device = open("mem:kv:64M", &OpenOptions::default())?;
/// let mut kv = device.kv(Nsid(1))?;
/// kv.store(b"user:1", b"Ada", StoreOptions::default())?;
/// kv.store(b"user:2", b"Grace", StoreOptions::IF_NOT_EXISTS)?;
/// assert_eq!(kv.retrieve(b"user:1")?.as_deref(), Some(&b"Ada"[..]));
/// assert_eq!(kv.retrieve(b"user:3")?, None);
/// let keys = kv.prefix(b"user:")?.collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(keys, [b"user:1", b"user:2"]);
/// assert!(kv.delete(b"user:2")?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Kv {
    /// Device and namespace, for errors.
    name: String,
    controller: Controller,
    namespace: KvNamespace,
    keyspace: u8,
    /// Made by the first call that needs it.
    queue: Option<Queue>,
    /// Data of a command, kept from call to call.
    buf: Option<DmaBuf>,
    /// In which order the device lists keys, once that is known.
    order: Option<Order>,
}

impl Kv {
    pub(crate) fn open(
        device: &str,
        controller: &Controller,
        nsid: Nsid,
        options: KvOptions,
    ) -> Result<Self> {
        let name = format!("{device} namespace {nsid}");
        let namespace =
            KvNamespace::open_with(controller, nsid, options).map_err(|e| Error::driver(name.as_str(), e))?;
        Ok(Self {
            name,
            controller: controller.clone(),
            namespace,
            keyspace: 0,
            queue: None,
            buf: None,
            order: None,
        })
    }

    /// The same namespace's keyspace of that number: 0, or 1 with the vendor commands. Keyspaces have their
    /// own keys.
    ///
    /// # Errors
    /// [`Error::Argument`] for a keyspace there is not.
    pub fn keyspace(&self, keyspace: u8) -> Result<Self> {
        if keyspace >= self.namespace.keyspaces() {
            return Err(Error::Argument(format!(
                "{}: keyspace {keyspace}: the device has {}, numbered from 0{}",
                self.name,
                self.namespace.keyspaces(),
                if self.namespace.has_vendor() { "" } else { "; others take Samsung's vendor commands" }
            )));
        }
        Ok(Self {
            name: self.name.clone(),
            controller: self.controller.clone(),
            namespace: self.namespace,
            keyspace,
            queue: None,
            buf: None,
            order: self.order,
        })
    }

    /// A queue pair of its own, for both keyspaces: submit and poll.
    ///
    /// # Errors
    /// [`Error::Argument`] for a depth out of range, [`Error::Driver`] when no queue is left.
    pub fn queue(&self, options: &QueueOptions) -> Result<KvQueue> {
        KvQueue::create(&self.name, &self.controller, self.namespace, options)
    }

    /// Queue pairs for all threads of the program, and for both keyspaces.
    ///
    /// # Errors
    /// As [`Worker::open`].
    pub fn worker(&self, options: &WorkerOptions) -> Result<Worker> {
        Worker::create(&self.name, &self.controller, Medium::Pairs(self.namespace), options)
    }

    /// What the driver knows of the namespace.
    pub fn namespace(&self) -> &KvNamespace {
        &self.namespace
    }

    /// Stores `value` under `key`. It is durable after [`Kv::flush`].
    ///
    /// # Errors
    /// [`Error::Argument`] for a key or value of a length that the device does not take,
    /// [`Error::Unsupported`] for compression on a device without the vendor commands; [`Error::Device`] when
    /// the device refused, also because of the condition in `options`: [`Error::kv_verdict`] tells;
    /// [`Error::Driver`].
    pub fn store(&mut self, key: &[u8], value: &[u8], options: StoreOptions) -> Result<()> {
        let command = self.made(self.namespace.store(self.key(key), value.len(), options))?;
        let buf = self.filled(value)?;
        let completion = self.run(command, buf)?;
        self.check("store", completion.status)?;
        self.keep(completion.buf);
        Ok(())
    }

    /// Adds `data` to the end of the value of `key`, on a device with the vendor commands.
    ///
    /// # Errors
    /// As [`Kv::store`].
    pub fn append(&mut self, key: &[u8], data: &[u8]) -> Result<()> {
        let command = self.made(self.namespace.append(self.key(key), data.len()))?;
        let buf = self.filled(data)?;
        let completion = self.run(command, buf)?;
        self.check("append", completion.status)?;
        self.keep(completion.buf);
        Ok(())
    }

    /// Deletes `key` and its value; false when there was no such key.
    ///
    /// On a namespace that is configured not to tell (Key Value Configuration, 20h), for which there is no
    /// vendor command, the answer is that of a moment before: an Exist goes in front.
    ///
    /// # Errors
    /// [`Error::Argument`] for a key of a length that the device does not take; [`Error::Device`],
    /// [`Error::Driver`].
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        if !self.namespace.delete_tells(self.key(key)) && !self.exist(key)? {
            return Ok(false);
        }
        let command = self.made(self.namespace.delete(self.key(key)))?;
        self.ask("delete", command)
    }

    /// True when there is such a key.
    ///
    /// # Errors
    /// As [`Kv::delete`].
    pub fn exist(&mut self, key: &[u8]) -> Result<bool> {
        let command = self.made(self.namespace.exist(self.key(key)))?;
        self.ask("exist", command)
    }

    /// Makes everything that was stored or deleted before durable.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Driver`].
    pub fn flush(&mut self) -> Result<()> {
        let completion = self.run(self.namespace.flush(), None)?;
        self.check("flush", completion.status)
    }

    /// Sends a command that is made already, with the buffer it moves data to or from, and waits for it. The
    /// status is the caller's to look at.
    ///
    /// # Errors
    /// [`Error::Argument`] when the buffer is missing or too short; [`Error::Driver`].
    pub fn command(&mut self, command: KvCommand<'_>, buf: Option<DmaBuf>) -> Result<Completion> {
        self.run(command, buf)
    }

    fn key<'k>(&self, bytes: &'k [u8]) -> KvKey<'k> {
        KvKey { keyspace: self.keyspace, bytes }
    }

    fn ask(&mut self, what: &str, command: KvCommand<'_>) -> Result<bool> {
        let completion = self.run(command, None)?;
        match KvVerdict::of(completion.status) {
            KvVerdict::NotFound => Ok(false),
            _ => self.check(what, completion.status).map(|()| true),
        }
    }

    fn made<T>(&self, made: std::result::Result<T, DriverError>) -> Result<T> {
        // The driver's messages name the namespace; the device is ours to name.
        made.map_err(|e| Error::driver(self.device_name(), e))
    }

    fn device_name(&self) -> &str {
        self.name.rsplit_once(" namespace ").map_or(self.name.as_str(), |(device, _)| device)
    }

    fn check(&self, what: &str, status: Status) -> Result<()> {
        if status.is_success() {
            return Ok(());
        }
        let what = format!("{}: {what}", self.name);
        Err(match status.kind() {
            // Nothing was said about a pair.
            Status::ABORTED_BY_HOST => Error::refused(what, status, &self.controller),
            _ => Error::Pair { what, status },
        })
    }

    /// A buffer of at least `bytes`: the one that was kept, when that is long enough.
    fn buffer(&mut self, bytes: usize) -> Result<DmaBuf> {
        match self.buf.take() {
            Some(buf) if buf.len() >= bytes => Ok(buf),
            _ => {
                let bytes = bytes.max(BUFFER_BYTES_MIN).next_power_of_two();
                self.controller.alloc(bytes).map_err(|e| Error::driver(self.name.as_str(), e))
            }
        }
    }

    /// A buffer with `data` in it; none for no data.
    fn filled(&mut self, data: &[u8]) -> Result<Option<DmaBuf>> {
        if data.is_empty() {
            return Ok(None);
        }
        let mut buf = self.buffer(data.len())?;
        buf.write(0, data);
        Ok(Some(buf))
    }

    /// Keeps a buffer for the next call, unless it is so long that others should have it.
    fn keep(&mut self, buf: Option<DmaBuf>) {
        if let Some(buf) = buf.filter(|buf| buf.len() <= BUFFER_BYTES_KEPT) {
            self.buf = Some(buf);
        }
    }

    fn make_queue(name: &str, controller: &Controller, namespace: &KvNamespace) -> Result<Queue> {
        let depth = DEPTH.min(controller.queue_depth_max());
        let options = QueueOptions { depth, long_keys: namespace.has_vendor(), ..QueueOptions::default() };
        controller.create_queue(&options).map_err(|e| Error::driver(name, e))
    }

    /// Drops the queue when an error has left commands of a call on it.
    fn part_from_queue(&mut self) {
        self.queue.take_if(|queue| queue.outstanding() > 0);
    }

    /// Sends one command and waits for it.
    fn run(&mut self, command: KvCommand<'_>, buf: Option<DmaBuf>) -> Result<Completion> {
        let mut finished = None;
        let queue = match &mut self.queue {
            Some(queue) => queue,
            none => none.insert(Self::make_queue(&self.name, &self.controller, &self.namespace)?),
        };
        let outcome = match queue.submit_kv(command, buf, 0) {
            Ok(()) => collect(&self.name, queue, |completion| finished = Some(completion)),
            Err(rejected) => Err(Error::driver(self.name.as_str(), rejected.error)),
        };
        self.part_from_queue();
        outcome?;
        finished.ok_or_else(|| {
            let source = DriverError::Protocol("the command has no completion".to_owned());
            Error::Driver { what: self.name.clone(), source }
        })
    }
}

impl Error {
    /// What the status of a key-value command says about the pair; `None` when no status is what went wrong.
    pub fn kv_verdict(&self) -> Option<KvVerdict> {
        self.status().map(KvVerdict::of)
    }
}

//! Operations on pairs.

use unvme_driver::{Completion, KvCommand, KvKey, KvNamespace, KvVerdict};
use unvme_spec::{Status, samsung_kv};

use super::lane::{Command, Data};
use super::member::Target;
use super::operation::{Pending, Work, answered, status_of_delete, value_bytes_from};
use super::{Member, OpError, QueueChoice, QueueKind, Retrieved, StoreOptions};
use crate::cache::Hit;

/// The name of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// Keyspace, 0 or 1.
    pub keyspace: u8,
    /// 4 to 255 bytes; 1 to 16 on a device that has the standard command set alone.
    pub bytes: &'a [u8],
}

impl Member {
    pub(super) fn pairs(&self) -> Result<&KvNamespace, OpError> {
        match &self.target {
            Target::Kv(namespace) => Ok(namespace),
            Target::Blocks(_) => Err(OpError::Unsupported("a block device has no pairs".into())),
        }
    }

    /// As [`Member::pairs`], for a command that moves so many bytes.
    #[inline]
    fn pairs_for(&self, bytes: usize) -> Result<&KvNamespace, OpError> {
        let pairs = self.pairs()?;
        // Beyond, neither the vendor commands nor the slab's buffers go.
        if bytes > samsung_kv::VALUE_BYTES_MAX as usize {
            return Err(OpError::Status(samsung_kv::status::INVALID_VALUE_SIZE));
        }
        Ok(pairs)
    }

    /// Stores a pair; a value has at most 2 MiB.
    ///
    /// # Errors
    /// [`OpError::Status`] with the vendor's status for a key, keyspace or value that cannot be, or with what the device
    /// says; [`OpError::Unsupported`] on a block device; [`OpError::SlabExhausted`]; [`OpError::WrongQueue`];
    /// [`OpError::QueueFull`] when it stays so for the time a command may take; [`OpError::Closed`].
    pub fn store(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        value: &[u8],
        options: StoreOptions,
    ) -> Result<(), OpError> {
        let command = self.store_command(key, value.len(), options)?;
        if !self.memory.caches() {
            return check(self.exchange(queue, Command::Kv(command), Data::Out(value), |_| 0)?.status);
        }
        // Before the copy: what the cache does waits for memory, and would wait for the copy's writes as well.
        let claim = self.memory.claim_write(key);
        let mut buf = match self.memory.filled(value) {
            Ok(buf) => Some(buf),
            Err(e) => {
                self.memory.end_without(claim);
                return Err(e);
            }
        };
        match self.call(queue, Command::Kv(command), &mut buf) {
            Ok(completion) if completion.status.is_success() => {
                self.memory.end_store(claim, completion.buf, value.len());
                Ok(())
            }
            answer => {
                self.memory.end_without(claim);
                check(answer?.status)
            }
        }
    }

    /// Adds to the end of a value. Vendor commands alone can.
    ///
    /// # Errors
    /// As [`Member::store`]; [`OpError::Unsupported`] when the device has no such command.
    pub fn append(&self, queue: QueueChoice, key: Key<'_>, value: &[u8]) -> Result<(), OpError> {
        let command = self.append_command(key, value.len())?;
        let mut buf = Some(self.memory.filled(value)?);
        let claim = self.memory.claim_write(key);
        let answer = self.call(queue, Command::Kv(command), &mut buf);
        self.memory.end_without(claim);
        check(answer?.status)
    }

    /// Retrieves a value from byte `offset` on, a multiple of 512, as much as `out` takes. A buffer that is too small is no
    /// error: compare [`Retrieved::copied`] with [`Retrieved::value_bytes`].
    ///
    /// # Errors
    /// As [`Member::store`].
    pub fn retrieve(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        offset: u32,
        out: &mut [u8],
    ) -> Result<Retrieved, OpError> {
        if self.must_cut(offset) {
            return self.retrieve_cut(queue, key, offset, out);
        }
        let command = self.retrieve_command(key, offset, out.len())?;
        if !self.memory.caches() {
            let count = |completion: &Completion| value_bytes_from(completion.result, offset) as usize;
            let room = out.len();
            let completion = self.exchange(queue, Command::Kv(command), Data::In(out), count)?;
            check(completion.status)?;
            let value_bytes = value_bytes_from(completion.result, offset);
            return Ok(Retrieved { copied: room.min(value_bytes as usize), value_bytes });
        }
        self.retrieve_cached(queue, command, key, offset, out)
    }

    /// As [`Member::retrieve`], from the cache or with it being told.
    fn retrieve_cached(
        &self,
        queue: QueueChoice,
        command: KvCommand<'_>,
        key: Key<'_>,
        offset: u32,
        out: &mut [u8],
    ) -> Result<Retrieved, OpError> {
        if let Some(Hit { value_bytes, copied }) = self.memory.lookup(key, offset, out) {
            self.check_queue(queue, QueueKind::Sync)?;
            return Ok(Retrieved { copied, value_bytes: (value_bytes - offset as usize) as u64 });
        }
        let mut buf = Some(self.memory.alloc(out.len())?);
        let claim = self.memory.claim_fill(key);
        let completion = self.call(queue, Command::Kv(command), &mut buf)?;
        check(completion.status)?;
        let value_bytes = value_bytes_from(completion.result, offset);
        let copied = out.len().min(value_bytes as usize);
        if let Some(buf) = &completion.buf {
            buf.read(0, &mut out[..copied]);
        }
        self.memory.end_fill(claim, offset, completion);
        Ok(Retrieved { copied, value_bytes })
    }

    /// Deletes a pair. Without `check_existence` it is no error when there is none.
    ///
    /// # Errors
    /// As [`Member::store`].
    pub fn delete(&self, queue: QueueChoice, key: Key<'_>, check_existence: bool) -> Result<(), OpError> {
        let command = self.delete_command(key)?;
        let claim = self.memory.claim_write(key);
        let answer = self.call(queue, Command::Kv(command), &mut None);
        self.memory.end_without(claim);
        check(status_of_delete(answer?.status, check_existence))
    }

    /// Whether there is a pair of this key. The device is always asked.
    ///
    /// # Errors
    /// As [`Member::store`].
    pub fn exist(&self, queue: QueueChoice, key: Key<'_>) -> Result<bool, OpError> {
        let command = self.exist_command(key)?;
        let status = self.call(queue, Command::Kv(command), &mut None)?.status;
        match KvVerdict::of(status) {
            KvVerdict::Done => Ok(true),
            KvVerdict::NotFound => Ok(false),
            _ => Err(OpError::Status(status)),
        }
    }

    /// Asynchronous [`Member::store`]: `value` is copied before this returns.
    ///
    /// # Errors
    /// As [`Member::store`], of those that are known before the device answers. The handler is not called then.
    pub fn store_async(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        value: &[u8],
        options: StoreOptions,
        token: u64,
    ) -> Result<(), OpError> {
        let command = self.store_command(key, value.len(), options)?;
        let buf = self.memory.filled(value)?;
        let work = Work::Write {
            stored: Some(value.len()),
            claim: self.memory.claim_write(key).hold(),
            lent: false,
        };
        self.submit(queue, Command::Kv(command), Some(buf), Pending { token, work })
    }

    /// Asynchronous [`Member::append`].
    ///
    /// # Errors
    /// As [`Member::store_async`].
    pub fn append_async(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        value: &[u8],
        token: u64,
    ) -> Result<(), OpError> {
        let command = self.append_command(key, value.len())?;
        let buf = self.memory.filled(value)?;
        let work = Work::Write { stored: None, claim: self.memory.claim_write(key).hold(), lent: false };
        self.submit(queue, Command::Kv(command), Some(buf), Pending { token, work })
    }

    /// Asynchronous [`Member::retrieve`] of up to `bytes` bytes, into a buffer that the handler is given.
    ///
    /// # Errors
    /// As [`Member::store_async`].
    pub fn retrieve_async(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        offset: u32,
        bytes: usize,
        token: u64,
    ) -> Result<(), OpError> {
        if self.must_cut(offset) {
            return self.retrieve_cut_async(queue, key, offset, bytes, token);
        }
        let command = self.retrieve_command(key, offset, bytes)?;
        let mut buf = self.memory.alloc(bytes)?;
        if let Some(hit) = self.memory.lookup_into(key, offset, &mut buf) {
            self.check_queue(queue, QueueKind::Async)?;
            let pending = Pending { token, work: Work::Retrieve { offset, bytes, claim: None } };
            return self.finish_at_once(queue, pending, answered(hit.value_bytes as u64, buf));
        }
        let work = Work::Retrieve { offset, bytes, claim: self.memory.claim_fill(key).hold() };
        self.submit(queue, Command::Kv(command), Some(buf), Pending { token, work })
    }

    /// Asynchronous [`Member::delete`].
    ///
    /// # Errors
    /// As [`Member::store_async`].
    pub fn delete_async(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        check_existence: bool,
        token: u64,
    ) -> Result<(), OpError> {
        let command = self.delete_command(key)?;
        let work = Work::Delete { check_existence, claim: self.memory.claim_write(key).hold() };
        self.submit(queue, Command::Kv(command), None, Pending { token, work })
    }

    /// Asynchronous [`Member::exist`]: the handler is given success, or the status that there is no such key, for which
    /// [`KvVerdict::of`] has one name.
    ///
    /// # Errors
    /// As [`Member::store_async`].
    pub fn exist_async(&self, queue: QueueChoice, key: Key<'_>, token: u64) -> Result<(), OpError> {
        let command = self.exist_command(key)?;
        self.submit(queue, Command::Kv(command), None, Pending { token, work: Work::Command })
    }

    #[inline]
    pub(super) fn store_command<'a>(
        &self,
        key: Key<'a>,
        bytes: usize,
        options: StoreOptions,
    ) -> Result<KvCommand<'a>, OpError> {
        let pairs = self.pairs_for(bytes)?;
        pairs.store(key.into(), bytes, options).map_err(|e| refused(pairs, key, bytes, e))
    }

    fn append_command<'a>(&self, key: Key<'a>, bytes: usize) -> Result<KvCommand<'a>, OpError> {
        let pairs = self.pairs_for(bytes)?;
        pairs.append(key.into(), bytes).map_err(|e| refused(pairs, key, bytes, e))
    }

    #[inline]
    pub(super) fn retrieve_command<'a>(
        &self,
        key: Key<'a>,
        offset: u32,
        bytes: usize,
    ) -> Result<KvCommand<'a>, OpError> {
        if !offset.is_multiple_of(samsung_kv::OFFSET_ALIGNMENT) {
            return Err(OpError::Status(samsung_kv::status::MISALIGNED_VALUE_OFFSET));
        }
        let pairs = self.pairs_for(bytes)?;
        pairs.retrieve(key.into(), offset, bytes).map_err(|e| refused(pairs, key, bytes, e))
    }

    #[inline]
    fn delete_command<'a>(&self, key: Key<'a>) -> Result<KvCommand<'a>, OpError> {
        let pairs = self.pairs()?;
        pairs.delete(key.into()).map_err(|e| refused(pairs, key, 0, e))
    }

    #[inline]
    fn exist_command<'a>(&self, key: Key<'a>) -> Result<KvCommand<'a>, OpError> {
        let pairs = self.pairs()?;
        pairs.exist(key.into()).map_err(|e| refused(pairs, key, 0, e))
    }
}

impl<'a> From<Key<'a>> for KvKey<'a> {
    #[inline]
    fn from(key: Key<'a>) -> Self {
        Self { keyspace: key.keyspace, bytes: key.bytes }
    }
}

/// Why no command could be made, as the status that the vendor's devices have for it where there is one.
#[cold]
fn refused(pairs: &KvNamespace, key: Key<'_>, bytes: usize, error: unvme_driver::Error) -> OpError {
    let value_bytes_max = pairs.standard_value_bytes_max().max(pairs.vendor_value_bytes_max());
    if !(pairs.key_bytes_min()..=pairs.key_bytes_max()).contains(&key.bytes.len()) {
        OpError::Status(samsung_kv::status::INVALID_KEY_SIZE)
    } else if key.keyspace >= pairs.keyspaces() {
        OpError::Status(samsung_kv::status::INVALID_KEYSPACE)
    } else if bytes > value_bytes_max {
        OpError::Status(samsung_kv::status::INVALID_VALUE_SIZE)
    } else {
        error.into()
    }
}

pub(super) fn check(status: Status) -> Result<(), OpError> {
    if status.is_success() { Ok(()) } else { Err(OpError::Status(status)) }
}

//! Operations on buffers of the caller's own: nothing is copied.
//!
//! A buffer comes from the device's controller ([`unvme::Controller::alloc`]) and goes with the command. It comes back with the
//! result, in the [`super::Outcome`], or in [`Returned`]; only a device that was lost without a sign that it has stopped keeps it.

use std::fmt;

use unvme_driver::DmaBuf;
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Status};

use super::kv::check;
use super::lane::Command;
use super::operation::{Pending, Work};
use super::{Key, Member, OpError, Outcome, QueueChoice, Retrieved, StoreOptions};

/// An operation that was not done, and the buffer that was to go with it.
pub struct Returned {
    /// Why.
    pub error: OpError,
    /// The buffer.
    pub buf: Option<DmaBuf>,
}

impl fmt::Debug for Returned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Returned").field("error", &self.error).finish_non_exhaustive()
    }
}

impl fmt::Display for Returned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Returned {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<Returned> for OpError {
    fn from(returned: Returned) -> Self {
        returned.error
    }
}

/// A command, and the operation that waits for it: what is submitted with a lent buffer.
type Prepared<'a> = Result<(Command<'a>, Work), OpError>;

impl Member {
    /// [`Member::store`] of the first `bytes` bytes of `buf`.
    ///
    /// # Errors
    /// As [`Member::store`].
    pub fn store_from(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        buf: DmaBuf,
        bytes: usize,
        options: StoreOptions,
    ) -> Result<DmaBuf, Returned> {
        self.run_lent(queue, self.prepare_store(key, bytes, options), buf).map(|(_, buf)| buf)
    }

    /// [`Member::retrieve`] into the first `bytes` bytes of `buf`. The device is always asked.
    ///
    /// # Errors
    /// As [`Member::retrieve`].
    pub fn retrieve_into(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        offset: u32,
        buf: DmaBuf,
        bytes: usize,
    ) -> Result<(Retrieved, DmaBuf), Returned> {
        let (outcome, buf) = self.run_lent(queue, self.prepare_retrieve(key, offset, bytes), buf)?;
        Ok((Retrieved { copied: outcome.data_bytes, value_bytes: outcome.value_bytes }, buf))
    }

    /// Asynchronous [`Member::store_from`]: the buffer comes back as [`Outcome::data`].
    ///
    /// # Errors
    /// As [`Member::store_async`]. The handler is not called then.
    pub fn store_from_async(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        buf: DmaBuf,
        bytes: usize,
        options: StoreOptions,
        token: u64,
    ) -> Result<(), Returned> {
        self.submit_lent(queue, self.prepare_store(key, bytes, options), buf, token)
    }

    /// Asynchronous [`Member::retrieve_into`]: the buffer comes back as [`Outcome::data`].
    ///
    /// # Errors
    /// As [`Member::retrieve_async`]. The handler is not called then.
    pub fn retrieve_into_async(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        offset: u32,
        buf: DmaBuf,
        bytes: usize,
        token: u64,
    ) -> Result<(), Returned> {
        self.submit_lent(queue, self.prepare_retrieve(key, offset, bytes), buf, token)
    }

    /// [`Member::read`] of `blocks` blocks into the beginning of `buf`.
    ///
    /// # Errors
    /// As [`Member::read`].
    pub fn read_into(
        &self,
        queue: QueueChoice,
        lba: u64,
        blocks: u32,
        buf: DmaBuf,
    ) -> Result<DmaBuf, Returned> {
        self.run_lent(queue, self.prepare_read(lba, blocks), buf).map(|(_, buf)| buf)
    }

    /// [`Member::write`] of `blocks` blocks from the beginning of `buf`.
    ///
    /// # Errors
    /// As [`Member::write`].
    pub fn write_from(
        &self,
        queue: QueueChoice,
        lba: u64,
        blocks: u32,
        buf: DmaBuf,
    ) -> Result<DmaBuf, Returned> {
        self.run_lent(queue, self.prepare_write(lba, blocks), buf).map(|(_, buf)| buf)
    }

    /// Asynchronous [`Member::read_into`]: the buffer comes back as [`Outcome::data`].
    ///
    /// # Errors
    /// As [`Member::read_async`]. The handler is not called then.
    pub fn read_into_async(
        &self,
        queue: QueueChoice,
        lba: u64,
        blocks: u32,
        buf: DmaBuf,
        token: u64,
    ) -> Result<(), Returned> {
        self.submit_lent(queue, self.prepare_read(lba, blocks), buf, token)
    }

    /// Asynchronous [`Member::write_from`]: the buffer comes back as [`Outcome::data`].
    ///
    /// # Errors
    /// As [`Member::write_async`]. The handler is not called then.
    pub fn write_from_async(
        &self,
        queue: QueueChoice,
        lba: u64,
        blocks: u32,
        buf: DmaBuf,
        token: u64,
    ) -> Result<(), Returned> {
        self.submit_lent(queue, self.prepare_write(lba, blocks), buf, token)
    }

    fn prepare_store<'a>(&self, key: Key<'a>, bytes: usize, options: StoreOptions) -> Prepared<'a> {
        let command = self.store_command(key, bytes, options)?;
        let claim = self.memory.claim_write(key).hold();
        Ok((Command::Kv(command), Work::Write { stored: Some(bytes), claim, lent: true }))
    }

    fn prepare_retrieve<'a>(&self, key: Key<'a>, offset: u32, bytes: usize) -> Prepared<'a> {
        let command = self.retrieve_command(key, offset, bytes)?;
        let claim = self.memory.claim_fill(key).hold();
        Ok((Command::Kv(command), Work::Retrieve { offset, bytes, claim }))
    }

    fn prepare_read(&self, lba: u64, blocks: u32) -> Prepared<'static> {
        let (namespace, range) = (self.blocks()?, BlockRange::new(Lba(lba), blocks));
        let bytes = namespace.bytes(range);
        Ok((Command::Entry(namespace.read(range, AccessFlags::default())?, bytes), Work::Read { bytes }))
    }

    fn prepare_write(&self, lba: u64, blocks: u32) -> Prepared<'static> {
        let (namespace, range) = (self.blocks()?, BlockRange::new(Lba(lba), blocks));
        let command = Command::Entry(namespace.write(range, AccessFlags::default())?, namespace.bytes(range));
        Ok((command, Work::Write { stored: None, claim: None, lent: true }))
    }

    fn run_lent(
        &self,
        queue: QueueChoice,
        prepared: Prepared<'_>,
        buf: DmaBuf,
    ) -> Result<(Outcome, DmaBuf), Returned> {
        let (command, work) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err(Returned { error, buf: Some(buf) }),
        };
        let mut buf = Some(buf);
        let completion = match self.call(queue, command, &mut buf) {
            Ok(completion) => completion,
            Err(error) => {
                work.abandon(&self.memory);
                return Err(Returned { error, buf });
            }
        };
        let mut outcome = work.end(completion, &self.memory);
        match (check(outcome.status), outcome.data.take()) {
            (Ok(()), Some(buf)) => Ok((outcome, buf)),
            (Err(error), buf) => Err(Returned { error, buf }),
            // A command that has succeeded gives its buffer back.
            (Ok(()), None) => Err(Returned { error: OpError::Status(Status::INTERNAL_ERROR), buf: None }),
        }
    }

    fn submit_lent(
        &self,
        queue: QueueChoice,
        prepared: Prepared<'_>,
        buf: DmaBuf,
        token: u64,
    ) -> Result<(), Returned> {
        let mut buf = Some(buf);
        let answer = prepared.and_then(|(command, work)| {
            self.submit_keeping(queue, command, &mut buf, Pending { token, work })
        });
        answer.map_err(|error| Returned { error, buf })
    }
}

//! Iterators over the keys of a device: its own where it has them, emulated by List otherwise.

use unvme_driver::{KvVerdict, LogRequest};
use unvme_spec::samsung_kv::{self, IterateType, Prefix};
use unvme_spec::samsung_log::{IteratorEntry, IteratorLog, lid};

use super::kv::check;
use super::lane::Command;
use super::operation::{Pending, Work};
use super::{Member, OpError, QueueChoice};

/// Bytes of the buffer of an iterate read.
pub const ITERATE_BYTES: usize = samsung_kv::ITERATE_BUFFER_BYTES as usize;

/// What an iterate read has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IterateRead {
    /// Bytes of the buffer that are filled: the number of keys (32 bits, little endian), then for each its length (32 bits),
    /// the key, and zeroes up to a multiple of four.
    pub bytes: usize,
    /// Nothing is left; these may be the last keys.
    pub end: bool,
}

impl Member {
    /// Opens an iterator over the keys of a keyspace of which the first four bytes, as a big-endian number, equal
    /// `prefix.prefix` in the bits of `prefix.bitmask`. Returns its identifier, 1 to 16, the lowest that is free.
    /// [`IterateType::KeyDelete`] deletes the pairs in the background; [`Member::iterate_info`] tells when it is done.
    ///
    /// # Errors
    /// [`OpError::Status`]: an invalid keyspace; [`samsung_kv::status::ITERATE_NO_HANDLE`];
    /// [`samsung_kv::status::ITERATE_ALREADY_OPEN`] for the same prefix and bitmask. [`OpError::Argument`] for a bitmask that is
    /// not ones from the most significant bit on. [`OpError::Unsupported`] on a block device.
    pub fn iterate_open(
        &self,
        queue: QueueChoice,
        keyspace: u8,
        kind: IterateType,
        prefix: Prefix,
    ) -> Result<u8, OpError> {
        let pairs = self.pairs()?;
        if keyspace >= pairs.keyspaces() {
            return Err(OpError::Status(samsung_kv::status::INVALID_KEYSPACE));
        }
        if !pairs.has_vendor() {
            return self.open_listing(queue, kind, prefix);
        }
        let command = pairs.iterate_open(keyspace, kind, prefix)?;
        self.memory.open_iterator(keyspace, kind, prefix, || {
            let completion = self.call_either(queue, Command::Kv(command))?;
            check(completion.status)?;
            Ok(completion.result as u8)
        })
    }

    /// Closes an iterator.
    ///
    /// # Errors
    /// [`OpError::Status`] when it is not open; [`OpError::Unsupported`] on a block device.
    pub fn iterate_close(&self, queue: QueueChoice, iterator: u8) -> Result<(), OpError> {
        let pairs = self.pairs()?;
        if !pairs.has_vendor() {
            return self.close_listing(iterator);
        }
        let command = pairs.iterate_close(0, iterator)?;
        check(self.call_either(queue, Command::Kv(command))?.status)?;
        self.memory.closed_iterator(iterator);
        Ok(())
    }

    /// Reads the next keys of an iterator. After the end there are none, and no error.
    ///
    /// # Errors
    /// [`OpError::Status`] when it is not open or does not return keys; [`OpError::Unsupported`] on a block device.
    pub fn iterate_read(
        &self,
        queue: QueueChoice,
        iterator: u8,
        out: &mut [u8; ITERATE_BYTES],
    ) -> Result<IterateRead, OpError> {
        let pairs = self.pairs()?;
        if !pairs.has_vendor() {
            return self.read_listing(queue, iterator, out);
        }
        let command = pairs.iterate_read(0, iterator)?;
        let mut buf = Some(self.memory.alloc(ITERATE_BYTES)?);
        let completion = self.call(queue, Command::Kv(command), &mut buf)?;
        let end = match KvVerdict::of(completion.status) {
            KvVerdict::Done => false,
            KvVerdict::EndOfIteration => true,
            _ => return Err(OpError::Status(completion.status)),
        };
        let bytes = (completion.result as u32 as usize).min(ITERATE_BYTES);
        if let Some(buf) = completion.buf {
            buf.read(0, &mut out[..bytes]);
        }
        Ok(IterateRead { bytes, end })
    }

    /// Asynchronous [`Member::iterate_read`]. The handler is given success or
    /// [`samsung_kv::status::ITERATE_END`]; `data_bytes` is the number of bytes either way. Reads of one iterator that are
    /// submitted to one queue end in their order. A device without iterators is listed by the caller's thread, in which the
    /// handler is then called.
    ///
    /// # Errors
    /// Those that are known before the device answers. The handler is not called then.
    pub fn iterate_read_async(&self, queue: QueueChoice, iterator: u8, token: u64) -> Result<(), OpError> {
        let pairs = self.pairs()?;
        if !pairs.has_vendor() {
            return self.read_listing_at_once(queue, iterator, token);
        }
        let command = pairs.iterate_read(0, iterator)?;
        let buf = self.memory.alloc(ITERATE_BYTES)?;
        self.submit(queue, Command::Kv(command), Some(buf), Pending { token, work: Work::IterateRead })
    }

    /// The iterators by identifier: entry `n` is iterator `n + 1`.
    ///
    /// # Errors
    /// [`OpError::Status`] when the device has no such log page; [`OpError::Unsupported`] on a block device.
    pub fn iterate_info(&self) -> Result<[IteratorEntry; 16], OpError> {
        let pairs = self.pairs()?;
        if !pairs.has_vendor() {
            return Ok(self.listings());
        }
        let nsid = pairs.nsid();
        // A device that works only while it is looked at deletes in the background now; whoever waits for its end calls this.
        for lane in self.lanes.all() {
            lane.advance();
        }
        let request = LogRequest { nsid, lid: lid::ITERATORS, ..LogRequest::default() };
        let log: IteratorLog = self.device.controller().get_log_as(request)?;
        Ok(log.iterators)
    }
}

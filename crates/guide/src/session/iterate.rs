//! Iterators over the keys of a device: its own where it has them, emulated by List otherwise.

use unvme::Op;
use unvme::worker::Data;
use unvme_driver::{KvVerdict, LogRequest};
use unvme_spec::samsung_kv::{self, IterateType, Prefix};
use unvme_spec::samsung_log::{IteratorEntry, IteratorLog, lid};

use super::call::succeeded;
use super::operation::Work;
use super::{Member, OpError, QueueChoice};

/// Bytes of the buffer of an iterate read.
pub const ITERATE_BYTES: usize = samsung_kv::ITERATE_BUFFER_BYTES as usize;

/// What an iterate read has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IterateRead {
    /// Bytes of the buffer that are filled: the number of keys (32 bits, little endian), then for each its
    /// length (32 bits), the key, and zeroes up to a multiple of four.
    pub bytes: usize,
    /// Nothing is left; these may be the last keys.
    pub end: bool,
}

impl Member {
    /// Opens an iterator over the keys of a keyspace of which the first four bytes, as a big-endian number,
    /// equal `prefix.prefix` in the bits of `prefix.bitmask`. Returns its identifier, 1 to 16, the lowest
    /// that is free. [`IterateType::KeyDelete`] deletes the pairs in the background; [`Member::iterate_info`]
    /// tells when it is done.
    ///
    /// # Errors
    /// [`OpError::Status`]: an invalid keyspace; [`samsung_kv::status::ITERATE_NO_HANDLE`];
    /// [`samsung_kv::status::ITERATE_ALREADY_OPEN`] for the same prefix and bitmask. [`OpError::Argument`]
    /// for a bitmask that is not ones from the most significant bit on. [`OpError::Unsupported`] on a block
    /// device.
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
        let open = Op::IterateOpen { keyspace, kind, prefix };
        self.command(queue, open, &mut Data::None)?;
        self.memory.open_iterator(keyspace, kind, prefix, || {
            Ok(succeeded(self.wait_either(queue, open)?)?.result as u8)
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
        succeeded(self.wait_either(queue, Op::IterateClose { keyspace: 0, iterator })?)?;
        self.memory.closed_iterator(iterator);
        Ok(())
    }

    /// Reads the next keys of an iterator. After the end there are none, and no error.
    ///
    /// # Errors
    /// [`OpError::Status`] when it is not open or does not return keys; [`OpError::Unsupported`] on a block
    /// device.
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
        let read = Op::IterateRead { keyspace: 0, iterator };
        let command = self.command(queue, read, &mut Data::None)?;
        let done = self.wait(queue, command, Data::In(out))?;
        match KvVerdict::of(done.status) {
            KvVerdict::Done => Ok(IterateRead { bytes: done.bytes, end: false }),
            KvVerdict::EndOfIteration => Ok(IterateRead { bytes: done.bytes, end: true }),
            _ => Err(OpError::Status(done.status)),
        }
    }

    /// Asynchronous [`Member::iterate_read`]. The handler is given success or
    /// [`samsung_kv::status::ITERATE_END`]; `data_bytes` is the number of bytes either way. Reads of one
    /// iterator that are submitted to one queue end in their order. A device without iterators is listed by
    /// the caller's thread, in which the handler is then called.
    ///
    /// # Errors
    /// Those that are known before the device answers. The handler is not called then.
    pub fn iterate_read_async(&self, queue: QueueChoice, iterator: u8, token: u64) -> Result<(), OpError> {
        let pairs = self.pairs()?;
        if !pairs.has_vendor() {
            return self.read_listing_at_once(queue, iterator, token);
        }
        let read = Op::IterateRead { keyspace: 0, iterator };
        let command = self.command(queue, read, &mut Data::None)?;
        let load = self.load(command, Data::None)?;
        Ok(self.send(queue, command, load, token, Work::Nothing)?)
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
        // A device that works only while it is looked at deletes in the background now; whoever waits for its
        // end calls this.
        for queue in self.workers.queues() {
            queue.advance();
        }
        let request = LogRequest { nsid, lid: lid::ITERATORS, ..LogRequest::default() };
        let log: IteratorLog = self.device.controller().get_log_as(request)?;
        Ok(log.iterators)
    }
}

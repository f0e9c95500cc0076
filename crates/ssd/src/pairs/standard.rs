//! The Key Value Command Set (KV 1.3, section 3).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_bus::space::Direction;
use unvme_spec::kv::{Command, KEY_BYTES_MAX, Key, LIST_HEADER_BYTES, ListWriter, StoreOptions};
use unvme_spec::{Sqe, Status};

use super::{INVALID_FIELD, STANDARD_KEYSPACE, find_data, find_first, pointer};
use crate::Ssd;
use crate::dptr::DataPointer;
use crate::kv::{KeyValue, KvError, Listing, Part, StorePolicy, VALUE_BYTES_MAX};
use crate::queue::SubmissionQueue;
use crate::reply::Reply;

/// Most bytes of keys that one List returns, whatever the host has room for: the answer is put together in
/// memory, and no other command of the queue is executed meanwhile.
const LIST_BYTES_MAX: u32 = 16 << 20;

impl From<KvError> for Status {
    /// What the standard command set calls an error of the store.
    fn from(error: KvError) -> Self {
        match error {
            KvError::NotFound => Self::KEY_NOT_FOUND.with_do_not_retry(),
            KvError::Exists => Self::KEY_EXISTS.with_do_not_retry(),
            KvError::TooLong => Self::INVALID_VALUE_SIZE.with_do_not_retry(),
            KvError::Full => Self::CAPACITY_EXCEEDED,
            KvError::Unrecovered => Self::UNRECOVERED_ERROR,
            KvError::Media(status) => status,
        }
    }
}

impl Ssd {
    #[inline]
    pub(super) fn execute_standard(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Result<Reply, Status> {
        match Command::parse(sqe) {
            Command::Retrieve { key, buffer_bytes, raw } => {
                sq.kv.counters.retrieve.submitted();
                self.retrieve_pair(sq, sqe, key, buffer_bytes, raw)
            }
            Command::Store { key, value_bytes, options } => {
                sq.kv.counters.store.submitted();
                self.store_pair(sq, sqe, key, value_bytes, options)
            }
            Command::List { start, buffer_bytes } => self.list_keys(sq, sqe, start, buffer_bytes),
            Command::Delete(key) => {
                sq.kv.counters.delete.submitted();
                self.delete_pair(sq, sqe, key)
            }
            Command::Exist(key) => {
                let pairs = sq.namespaces.pairs(sqe.nsid)?;
                let key = pairs.store.key(STANDARD_KEYSPACE, checked(&key)?);
                if pairs.store.exist(&key, &mut sq.kv.scratch)? {
                    Ok(Reply::DONE)
                } else {
                    Err(KvError::NotFound.into())
                }
            }
            Command::Flush => {
                sq.namespaces.pairs(sqe.nsid)?.store.sync()?;
                self.keep_placement_events(&sq.clock);
                self.subsystem.save_state()?;
                Ok(Reply::DONE)
            }
            _ => Err(Status::INVALID_OPCODE.with_do_not_retry()),
        }
    }

    #[inline]
    fn store_pair(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        key: Key,
        value_bytes: u32,
        options: StoreOptions,
    ) -> Result<Reply, Status> {
        let SubmissionQueue { namespaces, host, pieces, page_bytes, counters, kv, .. } = sq;
        let pairs = namespaces.pairs(sqe.nsid)?;
        let key = pairs.store.key(STANDARD_KEYSPACE, checked(&key)?);
        let StoreOptions { must_exist, must_not_exist, no_compression: _ } = options;
        if must_exist && must_not_exist {
            return Err(INVALID_FIELD);
        }
        if value_bytes > VALUE_BYTES_MAX {
            return Err(Status::INVALID_VALUE_SIZE.with_do_not_retry());
        }
        let bytes = self.check_bytes(value_bytes.into())?;
        let value = find_data(pointer(host, sqe, *page_bytes, bytes, Direction::Read), pieces)?;
        // The host may forbid compression and cannot ask for it: it is left to the command set that can.
        let policy = StorePolicy { must_not_exist, must_exist, compress: false };
        pairs.store.store(&key, value, policy, &mut kv.scratch)?;
        kv.turn_bytes += u64::from(value_bytes);
        counters.write(value_bytes.into());
        self.persist_pairs(pairs)?;
        kv.counters.store.succeeded(value_bytes);
        Ok(Reply::DONE)
    }

    #[inline]
    fn retrieve_pair(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        key: Key,
        buffer_bytes: u32,
        raw: bool,
    ) -> Result<Reply, Status> {
        let SubmissionQueue { namespaces, host, pieces, page_bytes, counters, kv, next_read, .. } = sq;
        let pairs = namespaces.pairs(sqe.nsid)?;
        let key = pairs.store.key(STANDARD_KEYSPACE, checked(&key)?);
        let bytes = self.check_bytes(buffer_bytes.into())?;
        // No value is longer: PRP entries behind that are not read.
        let buffer = pointer(host, sqe, *page_bytes, bytes, Direction::Write);
        let target = find_first(buffer, VALUE_BYTES_MAX as usize, pieces)?;
        let part = Part { offset: 0, raw, next_read: *next_read };
        let length = pairs.store.retrieve(&key, part, target, &mut kv.scratch).inspect_err(|error| {
            counters.media_errors += u64::from(*error == KvError::Unrecovered);
        })?;
        let sent = u64::from(length).min(bytes as u64) as u32;
        kv.turn_bytes += u64::from(sent);
        counters.read(sent.into());
        kv.counters.retrieve.succeeded(length);
        Ok(Reply { sent, ..Reply::of(length.into()) })
    }

    fn delete_pair(&self, sq: &mut SubmissionQueue, sqe: &Sqe, key: Key) -> Result<Reply, Status> {
        let SubmissionQueue { namespaces, kv, .. } = sq;
        let pairs = namespaces.pairs(sqe.nsid)?;
        let key = pairs.store.key(STANDARD_KEYSPACE, checked(&key)?);
        pairs.store.delete_if(&key, pairs.is_delete_missing_an_error(), &mut kv.scratch)?;
        self.persist_pairs(pairs)?;
        kv.counters.delete.succeeded(0);
        Ok(Reply::DONE)
    }

    /// Keys in ascending order from `start` on, as many as the host has room for.
    fn list_keys(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        start: Key,
        buffer_bytes: u32,
    ) -> Result<Reply, Status> {
        let SubmissionQueue { namespaces, host, pieces, page_bytes, kv, .. } = sq;
        let KeyValue { store, .. } = namespaces.pairs(sqe.nsid)?;
        let start = start.as_bytes().ok_or(INVALID_FIELD)?;
        if (buffer_bytes as usize) < LIST_HEADER_BYTES {
            return Err(INVALID_FIELD);
        }
        let buffer_bytes = self.check_bytes(buffer_bytes.into())?;
        let bytes = buffer_bytes.min(LIST_BYTES_MAX as usize);
        find_first(pointer(host, sqe, *page_bytes, buffer_bytes, Direction::Write), bytes, pieces)?;
        let mut page = vec![0; bytes];
        let mut keys = ListWriter::new(&mut page).ok_or(INVALID_FIELD)?;
        let listing = Listing {
            keyspace: STANDARD_KEYSPACE,
            start,
            after_start: false,
            key_bytes_max: KEY_BYTES_MAX,
            prefix: 0,
            mask: 0,
        };
        let mut has_more = false;
        let listed = store.list(listing, |key| {
            let fits = keys.push(key);
            has_more |= fits && key != start;
            fits
        });
        // That keys cannot be read is said by the command that would have nothing to say but that it is over.
        if !has_more {
            listed?;
        }
        let used = keys.finish();
        kv.turn_bytes += used as u64;
        DataPointer::scatter(host, pieces, page.get(..used).unwrap_or(&page));
        Ok(Reply::sending(used as u32))
    }
}

/// A key that a pair can have. None is too short for an error of its own, and one that is too long is a field
/// with a value that it cannot have (KV 3.1).
#[inline]
fn checked(key: &Key) -> Result<&[u8], Status> {
    match key.as_bytes() {
        Some([]) => Err(Status::INVALID_KEY_SIZE.with_do_not_retry()),
        Some(bytes) => Ok(bytes),
        None => Err(INVALID_FIELD),
    }
}

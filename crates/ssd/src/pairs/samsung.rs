//! The vendor commands of Samsung's KV SSDs. What is wrong with a command is looked for in this order:
//! namespace, data pointer type, keyspace, key, option, size, offset.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_bus::Mappings;
use unvme_bus::space::{Direction, Place};
use unvme_spec::samsung_kv::{
    Command, ITERATE_BUFFER_BYTES, IterateType, KEY_BYTES_MIN, Key, OFFSET_ALIGNMENT, Prefix, ValueSize,
    delete_option, retrieve_option, status, store_option,
};
use unvme_spec::{DataPointerKind, Sqe, Status, samsung_kv};

use super::{INVALID_FIELD, find_data, pointer};
use crate::Ssd;
use crate::dptr::DataPointer;
use crate::kv::iterator::vendor_status;
use crate::kv::{KEY_BYTES_MAX, KEYSPACES, KvError, Part, StorePolicy, VALUE_BYTES_MAX};
use crate::queue::SubmissionQueue;
use crate::reply::Reply;

/// Most dwords of a value that one command moves. Samsung's drives, as log page C0h says of them, move
/// [`samsung_kv::VALUE_BYTES_MAX`]; so do hosts that know no better.
const VALUE_DWORDS_MAX: u32 = VALUE_BYTES_MAX / 4;

/// A store or append as the entry has it.
#[derive(Clone, Copy)]
struct Value {
    key: Key,
    size: ValueSize,
    offset: u32,
    option: u8,
}

impl Ssd {
    #[inline]
    pub(super) fn execute_samsung(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Result<Reply, Status> {
        match Command::parse(sqe) {
            Command::Retrieve { key, dwords, offset, option } => {
                sq.kv.counters.retrieve.submitted();
                self.retrieve_from(sq, sqe, key, dwords, Part { offset, ..Part::default() }, option)
            }
            Command::Store { key, size, offset, option } => {
                sq.kv.counters.store.submitted();
                self.store_vendor(sq, sqe, Value { key, size, offset, option })
            }
            Command::Append { key, size, offset, option } => {
                sq.kv.counters.append.submitted();
                self.append(sq, sqe, Value { key, size, offset, option })
            }
            Command::Delete { key, option } => {
                sq.kv.counters.delete.submitted();
                self.delete_vendor(sq, sqe, key, option)
            }
            Command::Exist { key, option } => self.exist_vendor(sq, sqe, key, option),
            Command::Batch { commands, dwords } => self.batch(sq, sqe, commands, dwords),
            Command::IterateOpen { kind, prefix } => self.iterate_open(sq, sqe, kind, prefix),
            Command::IterateClose { iterator } => {
                let (pairs, _) = self.vendor_target(&sq.namespaces, sqe)?;
                pairs.iterators.close(self.cntlid, iterator)?;
                Ok(Reply::DONE)
            }
            Command::IterateInvalid { .. } => Err(status::ITERATE_ERROR.with_do_not_retry()),
            Command::IterateRead { iterator, dwords, option } => {
                self.iterate_read(sq, sqe, iterator, dwords, option)
            }
            _ => Err(Status::INVALID_OPCODE.with_do_not_retry()),
        }
    }

    #[inline]
    fn store_vendor(&self, sq: &mut SubmissionQueue, sqe: &Sqe, value: Value) -> Result<Reply, Status> {
        let SubmissionQueue { namespaces, host, pieces, page_bytes, counters, kv, .. } = sq;
        let (pairs, keyspace) = self.vendor_target(namespaces, sqe)?;
        let keyspace = self.checked_target(sqe, keyspace)?;
        let key = find_key(&value.key, host, *page_bytes, pieces, &mut kv.long_key)?;
        let policy = policy_of(value.option)?;
        let bytes = self.checked_value(&value)?;
        let data = find_data(pointer(host, sqe, *page_bytes, bytes, Direction::Read), pieces)?;
        let key = pairs.store.key(keyspace, key);
        pairs.store.store(&key, data, policy, &mut kv.scratch).map_err(vendor_status)?;
        kv.turn_bytes += bytes as u64;
        counters.write(bytes as u64);
        self.persist_pairs(pairs)?;
        kv.counters.store.succeeded(bytes as u32);
        Ok(Reply::DONE)
    }

    /// Dword 0 of the completion is the size of the value afterwards.
    fn append(&self, sq: &mut SubmissionQueue, sqe: &Sqe, value: Value) -> Result<Reply, Status> {
        let SubmissionQueue { namespaces, host, pieces, page_bytes, counters, kv, .. } = sq;
        let (pairs, keyspace) = self.vendor_target(namespaces, sqe)?;
        let keyspace = self.checked_target(sqe, keyspace)?;
        let key = find_key(&value.key, host, *page_bytes, pieces, &mut kv.long_key)?;
        // A value is appended to whether it is there or not, and compressed or not.
        if value.option & !(store_option::COMPRESS | store_option::BACKGROUND_COMPRESS) != 0 {
            return Err(status::INVALID_OPTION.with_do_not_retry());
        }
        let bytes = self.checked_value(&value)?;
        let data = find_data(pointer(host, sqe, *page_bytes, bytes, Direction::Read), pieces)?;
        let key = pairs.store.key(keyspace, key);
        let length = pairs.store.append(&key, data, &mut kv.scratch).map_err(vendor_status)?;
        kv.turn_bytes += bytes as u64;
        counters.write(bytes as u64);
        self.persist_pairs(pairs)?;
        kv.counters.append.succeeded(bytes as u32);
        Ok(Reply::of(length.into()))
    }

    #[inline]
    fn retrieve_from(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        key: Key,
        dwords: u32,
        part: Part,
        option: u8,
    ) -> Result<Reply, Status> {
        let SubmissionQueue { namespaces, host, pieces, page_bytes, counters, kv, next_read, .. } = sq;
        let (pairs, keyspace) = self.vendor_target(namespaces, sqe)?;
        let keyspace = self.checked_target(sqe, keyspace)?;
        let key = find_key(&key, host, *page_bytes, pieces, &mut kv.long_key)?;
        if option & !retrieve_option::ALL != 0 {
            return Err(status::INVALID_OPTION.with_do_not_retry());
        }
        if dwords > VALUE_DWORDS_MAX {
            return Err(status::INVALID_VALUE_SIZE.with_do_not_retry());
        }
        if !part.offset.is_multiple_of(OFFSET_ALIGNMENT) {
            return Err(status::MISALIGNED_VALUE_OFFSET.with_do_not_retry());
        }
        // A value that was compressed is decompressed, asked for or not: nothing in an answer could say that
        // it is not.
        let wanted = if option & retrieve_option::SIZE_ONLY != 0 { 0 } else { dwords * 4 };
        let bytes = self.check_bytes(wanted.into())?;
        let target = find_data(pointer(host, sqe, *page_bytes, bytes, Direction::Write), pieces)?;
        let key = pairs.store.key(keyspace, key);
        let part = Part { next_read: *next_read, ..part };
        let length = pairs.store.retrieve(&key, part, target, &mut kv.scratch).map_err(|error| {
            counters.media_errors += u64::from(error == KvError::Unrecovered);
            vendor_status(error)
        })?;
        if part.offset > 0 && part.offset >= length {
            return Err(status::INVALID_VALUE_OFFSET.with_do_not_retry());
        }
        let sent = (length - part.offset).min(wanted);
        kv.turn_bytes += u64::from(sent);
        counters.read(sent.into());
        kv.counters.retrieve.succeeded(length);
        Ok(Reply { sent, ..Reply::of(length.into()) })
    }

    fn delete_vendor(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        key: Key,
        option: u8,
    ) -> Result<Reply, Status> {
        let SubmissionQueue { namespaces, host, pieces, page_bytes, kv, .. } = sq;
        let (pairs, keyspace) = self.vendor_target(namespaces, sqe)?;
        let keyspace = self.checked_target(sqe, keyspace)?;
        let key = find_key(&key, host, *page_bytes, pieces, &mut kv.long_key)?;
        if option & !delete_option::CHECK_EXISTENCE != 0 {
            return Err(status::INVALID_OPTION.with_do_not_retry());
        }
        let key = pairs.store.key(keyspace, key);
        let must_exist = option & delete_option::CHECK_EXISTENCE != 0;
        pairs.store.delete_if(&key, must_exist, &mut kv.scratch).map_err(vendor_status)?;
        self.persist_pairs(pairs)?;
        kv.counters.delete.succeeded(0);
        Ok(Reply::DONE)
    }

    fn exist_vendor(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        key: Key,
        option: u8,
    ) -> Result<Reply, Status> {
        let SubmissionQueue { namespaces, host, pieces, page_bytes, kv, .. } = sq;
        let (pairs, keyspace) = self.vendor_target(namespaces, sqe)?;
        let keyspace = self.checked_target(sqe, keyspace)?;
        let key = find_key(&key, host, *page_bytes, pieces, &mut kv.long_key)?;
        if option != 0 {
            return Err(status::INVALID_OPTION.with_do_not_retry());
        }
        match pairs.store.exist(&pairs.store.key(keyspace, key), &mut kv.scratch).map_err(vendor_status)? {
            true => Ok(Reply::DONE),
            false => Err(vendor_status(KvError::NotFound)),
        }
    }

    fn iterate_open(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        kind: Result<IterateType, u8>,
        prefix: Prefix,
    ) -> Result<Reply, Status> {
        let (pairs, keyspace) = self.vendor_target(&sq.namespaces, sqe)?;
        let keyspace = self.checked_target(sqe, keyspace)?;
        let kind = kind.map_err(|_| status::ITERATE_ERROR.with_do_not_retry())?;
        Ok(Reply::of(pairs.iterators.open(self.cntlid, kind, keyspace, prefix)?.into()))
    }

    /// Dword 0 of the completion is the number of bytes; the last ones come with the end of the iteration.
    fn iterate_read(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        iterator: u8,
        dwords: u32,
        option: u8,
    ) -> Result<Reply, Status> {
        let SubmissionQueue { namespaces, host, pieces, page_bytes, kv, .. } = sq;
        let (pairs, _) = self.vendor_target(namespaces, sqe)?;
        self.check_pointer(sqe)?;
        if option != 0 {
            return Err(status::INVALID_OPTION.with_do_not_retry());
        }
        if dwords != ITERATE_BUFFER_BYTES / 4 {
            return Err(status::INVALID_VALUE_SIZE.with_do_not_retry());
        }
        let bytes = self.check_bytes(ITERATE_BUFFER_BYTES.into())?;
        find_data(pointer(host, sqe, *page_bytes, bytes, Direction::Write), pieces)?;
        let mut buffer = vec![0; bytes];
        let read =
            pairs.iterators.read((self.cntlid, iterator), &pairs.store, &mut buffer, &mut kv.scratch)?;
        kv.turn_bytes += read.bytes as u64;
        DataPointer::scatter(host, pieces, buffer.get(..read.bytes).unwrap_or(&buffer));
        let status = if read.ended { status::ITERATE_END } else { Status::SUCCESS };
        Ok(Reply { status, result: read.bytes as u64, ..Reply::sending(read.bytes as u32) })
    }

    /// Bytes of a value that is stored or appended.
    #[inline]
    fn checked_value(&self, value: &Value) -> Result<usize, Status> {
        let bytes = value.size.bytes().filter(|&bytes| bytes <= VALUE_BYTES_MAX.into());
        let bytes = bytes.ok_or(status::INVALID_VALUE_SIZE.with_do_not_retry())?;
        if value.offset != 0 {
            return Err(status::INVALID_VALUE_OFFSET.with_do_not_retry());
        }
        self.check_bytes(bytes)
    }
}

impl Ssd {
    /// The vendor's commands know PRPs only. Over a network, where there are none, their data is in one
    /// block.
    #[inline]
    pub(super) fn check_pointer(&self, sqe: &Sqe) -> Result<(), Status> {
        match sqe.data_pointer_kind() {
            DataPointerKind::Prp => Ok(()),
            DataPointerKind::Sgl if self.association.is_some() => Ok(()),
            _ => Err(INVALID_FIELD),
        }
    }

    /// Checks the data pointer's type and the keyspace.
    #[inline]
    fn checked_target(&self, sqe: &Sqe, keyspace: u32) -> Result<u8, Status> {
        self.check_pointer(sqe)?;
        checked_keyspace(keyspace)
    }
}

#[inline]
pub(super) fn checked_keyspace(keyspace: u32) -> Result<u8, Status> {
    match u8::try_from(keyspace) {
        Ok(keyspace) if keyspace < KEYSPACES => Ok(keyspace),
        _ => Err(status::INVALID_KEYSPACE.with_do_not_retry()),
    }
}

/// The key's bytes: those in the entry, or from host memory into `long`.
#[inline]
fn find_key<'a>(
    key: &'a Key,
    host: &Mappings,
    page_bytes: u32,
    pieces: &mut Vec<Place>,
    long: &'a mut [u8; KEY_BYTES_MAX],
) -> Result<&'a [u8], Status> {
    if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
        return Err(status::INVALID_KEY_SIZE.with_do_not_retry());
    }
    match key {
        Key::Inline { .. } => key.as_inline().ok_or(Status::INTERNAL_ERROR),
        Key::Memory { prp, length } => {
            let bytes = usize::from(*length);
            let sqe = Sqe { dptr: *prp, ..Sqe::default() };
            let long = long.get_mut(..bytes).ok_or(Status::INTERNAL_ERROR)?;
            DataPointer { host, sqe: &sqe, page_bytes, bytes, direction: Direction::Read }
                .fetch(pieces, long)?;
            Ok(long)
        }
    }
}

/// What the options of a store mean. Compressing in the background is compressing.
#[inline]
pub(super) fn policy_of(option: u8) -> Result<StorePolicy, Status> {
    let policy = StorePolicy {
        must_not_exist: option & store_option::IDEMPOTENT != 0,
        must_exist: option & store_option::UPDATE_ONLY != 0,
        compress: option & (store_option::COMPRESS | store_option::BACKGROUND_COMPRESS) != 0,
    };
    if option & !store_option::ALL != 0 || (policy.must_not_exist && policy.must_exist) {
        return Err(status::INVALID_OPTION.with_do_not_retry());
    }
    Ok(policy)
}

/// Dwords of a data buffer that is not a value's.
pub(super) fn checked_dwords(dwords: u32) -> Result<u32, Status> {
    match dwords <= samsung_kv::VALUE_BYTES_MAX / 4 {
        true => Ok(dwords * 4),
        false => Err(status::INVALID_VALUE_SIZE.with_do_not_retry()),
    }
}

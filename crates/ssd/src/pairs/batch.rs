//! The vendor's Batch command: up to eight stores and deletes in one.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_bus::space::{Direction, Place};
use unvme_spec::samsung_kv::{
    BATCH_COMMANDS_MAX, BatchCommand, BatchReader, KEY_BYTES_MIN, batch_result, delete_option, opcode, status,
};
use unvme_spec::{Sqe, Status};

use super::samsung::{checked_dwords, checked_keyspace, policy_of};
use super::{INVALID_FIELD, pointer};
use crate::Ssd;
use crate::kv::iterator::vendor_status;
use crate::kv::{HostData, KeyValue, KvError, KvLane};
use crate::queue::SubmissionQueue;
use crate::reply::Reply;

/// Delete, as the open host code's description of a batch numbers it; the command's own number is taken as
/// well.
const DELETE_IN_BATCH: u8 = 0xa0;

/// Why a command of a batch was not executed: its result, and what that is as a status.
struct Failure {
    result: u8,
    status: Status,
}

impl Failure {
    const fn new(result: u8, status: Status) -> Self {
        Self { result, status: status.with_do_not_retry() }
    }
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Self {
        let result = match error {
            KvError::NotFound => batch_result::KEY_NOT_FOUND,
            KvError::Exists => batch_result::IDEMPOTENT_STORE_FAIL,
            KvError::TooLong => batch_result::INVALID_VALUE_SIZE,
            KvError::Full => batch_result::CAPACITY_EXCEEDED,
            KvError::Unrecovered | KvError::Media(_) => batch_result::UNRECOVERED_ERROR,
        };
        Self { result, status: vendor_status(error) }
    }
}

impl Ssd {
    /// Executes the commands in order, each by itself: one that fails does not stop the next. Dword 0 of the
    /// completion has all results, and its status is that of the first command that failed. A batch that
    /// cannot be read as one fails as a whole, before any command is executed.
    pub(super) fn batch(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        commands: u8,
        dwords: u32,
    ) -> Result<Reply, Status> {
        let SubmissionQueue { namespaces, host, pieces, page_bytes, counters, kv, .. } = sq;
        let (pairs, _) = self.vendor_target(namespaces, sqe)?;
        self.check_pointer(sqe)?;
        if commands == 0 || usize::from(commands) > BATCH_COMMANDS_MAX {
            return Err(INVALID_FIELD);
        }
        let bytes = self.check_bytes(checked_dwords(dwords)?.into())?;
        let pointer = pointer(host, sqe, *page_bytes, bytes, Direction::Read);
        pointer.walk(pieces)?;
        let mut data = vec![0; bytes];
        pointer.gather(pieces, &mut data)?;
        let malformed = status::INVALID_VALUE_SIZE.with_do_not_retry();
        let list: Option<Vec<_>> = BatchReader::new(&data, commands).ok_or(malformed)?.collect();
        let mut reply = Reply::DONE;
        let mut results = 0;
        for (index, (command, at)) in (0..).zip(list.ok_or(malformed)?) {
            // The store copies a value from host memory, as it does for Store.
            let value = part_of(pieces, at, command.value.len());
            let value = HostData { host, pieces: &value, bytes: command.value.len() as u32 };
            match execute(pairs, kv, command, value) {
                Ok(stored) => counters.write(stored),
                Err(Failure { result, status }) => {
                    results = batch_result::with(results, index, result);
                    reply.status = if reply.status.is_success() { status } else { reply.status };
                }
            }
        }
        kv.turn_bytes += bytes as u64;
        self.persist_pairs(pairs)?;
        reply.result = results.into();
        Ok(reply)
    }
}

/// Executes one command; returns the bytes it has stored.
fn execute(
    pairs: &KeyValue,
    kv: &mut KvLane,
    command: BatchCommand<'_>,
    value: HostData<'_>,
) -> Result<u64, Failure> {
    let BatchCommand { opcode, keyspace, option, key, .. } = command;
    let keyspace = checked_keyspace(keyspace.into())
        .map_err(|status| Failure::new(batch_result::INVALID_KEYSPACE, status))?;
    if key.len() < KEY_BYTES_MIN {
        return Err(Failure::new(batch_result::INVALID_KEY_SIZE, status::INVALID_KEY_SIZE));
    }
    let key = pairs.store.key(keyspace, key);
    match opcode {
        opcode::STORE => {
            kv.counters.store.submitted();
            let policy =
                policy_of(option).map_err(|status| Failure::new(batch_result::INVALID_OPTION, status))?;
            pairs.store.store(&key, value, policy, &mut kv.scratch).map_err(|error| match error {
                KvError::NotFound => Failure { result: batch_result::UPDATE_STORE_FAIL, ..error.into() },
                _ => error.into(),
            })?;
            kv.counters.store.succeeded(value.bytes);
            Ok(value.bytes.into())
        }
        opcode::DELETE | DELETE_IN_BATCH => {
            kv.counters.delete.submitted();
            if option & !delete_option::CHECK_EXISTENCE != 0 {
                return Err(Failure::new(batch_result::INVALID_OPTION, status::INVALID_OPTION));
            }
            let must_exist = option & delete_option::CHECK_EXISTENCE != 0;
            pairs.store.delete_if(&key, must_exist, &mut kv.scratch)?;
            kv.counters.delete.succeeded(0);
            Ok(0)
        }
        _ => Err(Failure::new(batch_result::UNSUPPORTED_OPCODE, Status::INVALID_OPCODE)),
    }
}

/// The pieces of `bytes` bytes from `start` on of what `pieces` describe.
fn part_of(pieces: &[Place], start: usize, bytes: usize) -> Vec<Place> {
    let (mut skip, mut left) = (start, bytes);
    let mut part = Vec::new();
    for place in pieces {
        let skipped = skip.min(place.bytes);
        skip -= skipped;
        let mut place = *place;
        place.offset += skipped;
        place.bytes = (place.bytes - skipped).min(left);
        left -= place.bytes;
        if place.bytes > 0 {
            part.push(place);
        }
    }
    part
}

//! What is remembered of an asynchronous operation until its command completes, and what becomes of it then.

use unvme_driver::{Completion, DmaBuf, KvNamespace, KvVerdict};
use unvme_spec::{Status, samsung_kv};

use super::Outcome;
use super::memory::{HeldClaim, Memory};

/// An asynchronous operation whose command is outstanding.
pub(super) struct Pending {
    /// The caller's.
    pub(super) token: u64,
    pub(super) work: Work,
}

/// What the completion is read for.
pub(super) enum Work {
    /// The status.
    Command,
    /// The status of something that may change a pair.
    Write {
        /// Bytes of the whole value that the command stores from its buffer; `None` when it does something else.
        stored: Option<usize>,
        claim: HeldClaim,
        /// The buffer is the caller's and goes back to him.
        lent: bool,
    },
    /// Delete of a pair.
    Delete {
        /// A key that does not exist is an error.
        check_existence: bool,
        claim: HeldClaim,
    },
    /// So many bytes at the beginning of the buffer.
    Read {
        /// Bytes.
        bytes: usize,
    },
    /// A value, or a part of it.
    Retrieve {
        /// First byte of the value that is wanted.
        offset: u32,
        /// Bytes there is room for.
        bytes: usize,
        claim: HeldClaim,
    },
    /// A part of a value, of which all up to its end was asked for.
    RetrieveCut {
        /// First byte of the value that is wanted.
        offset: u32,
        /// Bytes there is room for.
        bytes: usize,
    },
    /// Keys of an iterator.
    IterateRead,
}

/// Bytes of a value from `offset` on, when the result of a retrieve says how many it has.
pub(super) fn value_bytes_from(result: u64, offset: u32) -> u64 {
    u64::from(KvNamespace::value_bytes(result).saturating_sub(offset))
}

/// As [`value_bytes_from`], for a device that was asked for the whole value.
///
/// # Errors
/// The status that the vendor's devices have for an offset at or beyond the end.
pub(super) fn cut(result: u64, offset: u32) -> Result<u64, Status> {
    let left = KvNamespace::value_bytes(result).checked_sub(offset).filter(|left| *left > 0);
    left.map(u64::from).ok_or(samsung_kv::status::INVALID_VALUE_OFFSET)
}

/// A delete of a key that was not there, as its caller wants to see it.
pub(super) fn status_of_delete(status: Status, check_existence: bool) -> Status {
    if !check_existence && KvVerdict::of(status) == KvVerdict::NotFound { Status::SUCCESS } else { status }
}

impl Work {
    /// How the operation has ended. The cache is told here, before the caller is.
    pub(super) fn end(self, mut completion: Completion, memory: &Memory) -> Outcome {
        let status = completion.status;
        let mut outcome =
            Outcome { status, result: completion.result, value_bytes: 0, data_bytes: 0, data: None };
        let room = completion.buf.as_ref().map_or(0, DmaBuf::len);
        match self {
            Self::Command => completion.buf = None,
            Self::Write { stored, claim, lent: true } => {
                let buf = completion.buf.take();
                if let Some(bytes) = stored.filter(|_| claim.is_some()) {
                    completion.buf = buf.as_ref().and_then(|buf| memory.copy(buf, bytes));
                }
                memory.end_held(claim, &mut completion, 0, stored);
                completion.buf = buf;
            }
            Self::Write { stored, claim, lent: false } => {
                memory.end_held(claim, &mut completion, 0, stored);
                completion.buf = None;
            }
            Self::Delete { check_existence, claim } => {
                memory.end_held(claim, &mut completion, 0, None);
                outcome.status = status_of_delete(status, check_existence);
            }
            Self::Read { bytes } if status.is_success() => outcome.data_bytes = bytes.min(room),
            Self::Retrieve { offset, bytes, claim } if status.is_success() => {
                memory.end_held(claim, &mut completion, offset, None);
                outcome.value_bytes = value_bytes_from(outcome.result, offset);
                outcome.data_bytes = bytes.min(room).min(outcome.value_bytes as usize);
            }
            Self::RetrieveCut { offset, bytes } if status.is_success() => {
                match cut(outcome.result, offset) {
                    Ok(left) => outcome.value_bytes = left,
                    Err(refusal) => outcome.status = refusal,
                }
                let from = offset as usize;
                outcome.data_bytes = bytes.min(room.saturating_sub(from)).min(outcome.value_bytes as usize);
                if let Some(buf) = completion.buf.as_ref().filter(|_| outcome.data_bytes > 0) {
                    buf.region().copy_to(from, buf.region(), 0, outcome.data_bytes);
                }
            }
            Self::IterateRead
                if matches!(KvVerdict::of(status), KvVerdict::Done | KvVerdict::EndOfIteration) =>
            {
                outcome.data_bytes = (outcome.result as u32 as usize).min(room);
            }
            Self::Read { .. } | Self::Retrieve { .. } | Self::RetrieveCut { .. } | Self::IterateRead => {}
        }
        outcome.data = completion.buf;
        outcome
    }

    /// The command was never submitted.
    pub(super) fn abandon(self, memory: &Memory) {
        if let Self::Write { claim, .. } | Self::Delete { claim, .. } = self {
            memory.end_held(claim, &mut unsent(), 0, None);
        }
    }
}

/// The completion that a command would have had.
pub(super) fn answered(result: u64, buf: DmaBuf) -> Completion {
    Completion { token: 0, status: Status::SUCCESS, result, buf: Some(buf) }
}

/// The completion of a command that was never submitted.
fn unsent() -> Completion {
    Completion { token: 0, status: Status::ABORTED_BY_HOST, result: 0, buf: None }
}

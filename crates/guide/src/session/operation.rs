//! What is remembered of an asynchronous operation until its command completes, and what becomes of it then.

use std::sync::Mutex;

use unvme::worker::Done;
use unvme_bus::lock;
use unvme_driver::{DmaBuf, KvNamespace};
use unvme_spec::{Status, samsung_kv};

use super::Outcome;
use super::memory::{HeldClaim, Memory};

/// What more than the completion itself an operation ends with.
#[derive(Default)]
pub(super) enum Work {
    /// Nothing.
    #[default]
    Nothing,
    /// The cache is told of something that may have changed a pair.
    Write {
        /// Bytes of the whole value that the command stores from its buffer; `None` when it does something
        /// else.
        stored: Option<usize>,
        claim: HeldClaim,
    },
    /// The cache is told of a value that was retrieved.
    Retrieve {
        /// First byte of the value that is wanted.
        offset: u32,
        claim: HeldClaim,
    },
    /// A part of a value, of which all up to its end was asked for.
    RetrieveCut {
        /// First byte of the value that is wanted.
        offset: u32,
        /// Bytes there is room for.
        bytes: usize,
    },
}

/// Bytes of a value from `offset` on, when the device was asked for the whole value. Errors: the status that
/// the vendor's devices have for an offset at or beyond the end.
pub(super) fn cut(result: u64, offset: u32) -> Result<u64, Status> {
    let left = KvNamespace::value_bytes(result).checked_sub(offset).filter(|left| *left > 0);
    left.map(u64::from).ok_or(samsung_kv::status::INVALID_VALUE_OFFSET)
}

impl Work {
    /// How the operation has ended. The cache is told here, before the caller is.
    pub(super) fn end(self, mut done: Done, memory: &Memory) -> Outcome {
        match self {
            Self::Nothing => {}
            Self::Write { stored, claim } => {
                if done.is_copy() {
                    memory.end_held(claim, &mut done, 0, stored);
                } else {
                    // The caller gets the buffer back, and the cache a copy of it.
                    let buf = done.buf.take();
                    if let Some(bytes) = stored.filter(|_| claim.is_some()) {
                        done.buf = buf.as_ref().and_then(|buf| memory.copy(buf, bytes));
                    }
                    memory.end_held(claim, &mut done, 0, stored);
                    done.buf = buf;
                }
            }
            Self::Retrieve { offset, claim } => memory.end_held(claim, &mut done, offset, None),
            Self::RetrieveCut { offset, bytes } if done.status.is_success() => {
                done.bytes = 0;
                done.value_bytes = 0;
                match cut(done.result, offset) {
                    Ok(left) => done.value_bytes = left,
                    Err(refusal) => done.status = refusal,
                }
                let (from, room) = (offset as usize, done.buf.as_ref().map_or(0, DmaBuf::len));
                done.bytes = bytes.min(room.saturating_sub(from)).min(done.value_bytes as usize);
                if let Some(buf) = done.buf.as_ref().filter(|_| done.bytes > 0) {
                    buf.region().copy_to(from, buf.region(), 0, done.bytes);
                }
            }
            Self::RetrieveCut { .. } => {}
        }
        Outcome::of(done)
    }

    /// The command was never submitted.
    pub(super) fn abandon(self, memory: &Memory) {
        if let Self::Write { claim, .. } = self {
            memory.end_unsent(claim);
        }
    }
}

/// Operations that are remembered, by the token that goes with their command.
#[derive(Default)]
pub(super) struct Pending(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// The caller's token, and what there is to do.
    entries: Vec<(u64, Work)>,
    free: Vec<usize>,
}

impl Pending {
    /// Remembers an operation; returns the token of its command.
    pub(super) fn add(&self, token: u64, work: Work) -> u64 {
        let Table { entries, free } = &mut *lock(&self.0);
        let entry = (token, work);
        match free.pop() {
            Some(place) => {
                entries[place] = entry;
                place as u64
            }
            None => {
                entries.push(entry);
                entries.len() as u64 - 1
            }
        }
    }

    /// The operation whose command had this token.
    pub(super) fn take(&self, token: u64) -> (u64, Work) {
        let Table { entries, free } = &mut *lock(&self.0);
        let place = token as usize;
        free.push(place);
        std::mem::take(&mut entries[place])
    }
}

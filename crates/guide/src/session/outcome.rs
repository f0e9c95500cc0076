//! What an asynchronous operation ends with.

use std::sync::Arc;

use unvme::worker::Done;
use unvme_driver::DmaBuf;
use unvme_spec::Status;

/// Called once for every asynchronous operation that was taken.
///
/// It runs on a completion thread; in the caller of [`super::Member::process_completions`]; in the thread
/// that submits, when the cache had the answer, or when the queue was full and nobody else polls it; or in
/// the thread that closes the session. It is not called within itself: what a handler submits and the cache
/// answers is handed on when it has returned. No lock is held meanwhile: it may submit, run blocking
/// operations, open and close iterators. It cannot close the session. A panic in it is logged and goes no
/// further.
pub type Handler = Arc<dyn Fn(Finished) + Send + Sync>;

/// An asynchronous operation that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Index of the device in the session.
    pub member: usize,
    /// What the caller passed when it submitted.
    pub token: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an operation ended.
pub struct Outcome {
    /// What the device said, whole. [`Status::ABORTED_BY_HOST`] when the device was lost or the session
    /// closed first.
    pub status: Status,
    /// Command specific result: dwords 0 and 1 of the completion. For retrieve the size of the whole value,
    /// for iterate read the bytes, from the cache as well.
    pub result: u64,
    /// Retrieve: size of the value from the offset on, in bytes, which can be more than there was room for.
    pub value_bytes: u64,
    /// Retrieve, iterate read, block read: bytes that were read, to [`Outcome::data`] or to where the caller
    /// wanted them.
    pub data_bytes: usize,
    /// The buffer that was lent, or the one that was allocated for what was read.
    pub data: Option<DmaBuf>,
}

impl Outcome {
    /// Of a command. Nobody is told of a copy of what was written.
    #[inline]
    pub(super) fn of(done: Done) -> Self {
        let is_copy = done.is_copy();
        let Done { status, result, value_bytes, bytes, buf, .. } = done;
        Self { status, result, value_bytes, data_bytes: bytes, data: buf.filter(|_| !is_copy) }
    }

    /// Of a retrieve that the cache has answered: bytes of the whole value, and what was copied from `offset`
    /// on.
    pub(super) fn of_hit(value_bytes: usize, offset: u32, copied: usize) -> Self {
        let left = value_bytes - offset as usize;
        Self {
            status: Status::SUCCESS,
            result: value_bytes as u64,
            value_bytes: left as u64,
            data_bytes: copied,
            data: None,
        }
    }

    /// Copies what was read to the beginning of `out`, as much as there is and fits; returns the number of
    /// bytes.
    pub fn copy_data(&self, out: &mut [u8]) -> usize {
        let bytes = self.data_bytes.min(out.len());
        match &self.data {
            Some(data) if bytes > 0 => {
                data.read(0, &mut out[..bytes]);
                bytes
            }
            _ => 0,
        }
    }
}

unvme_bus::debug_parts!(Outcome { status, result, value_bytes, data_bytes });

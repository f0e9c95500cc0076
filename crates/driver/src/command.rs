//! What goes into a queue and comes out of it.

use std::fmt;

use unvme_bus::{DmaBuf, PoolId};
use unvme_spec::admin::opcode;
use unvme_spec::command::CommandSet;
use unvme_spec::feature::fid;
use unvme_spec::log_page::lid;
use unvme_spec::{Sqe, Status};

use crate::Error;

/// A buffer that goes to the device with a command.
#[derive(Debug)]
pub struct Payload {
    /// The buffer; transfers start at its first byte.
    pub buf: DmaBuf,
    /// Bytes the command transfers, at most the buffer's length. 0 gives the device no data pointer.
    pub bytes: usize,
}

impl Payload {
    /// The whole of a buffer.
    pub fn whole(buf: DmaBuf) -> Self {
        Self { bytes: buf.len(), buf }
    }
}

impl Payload {
    /// Itself, for a controller that takes so many bytes and whose buffers are of this pool.
    #[inline]
    pub(crate) fn check(self, transfer_bytes_max: usize, pool: PoolId) -> Result<Self, Rejected> {
        let error = if self.bytes > self.buf.len() || self.bytes > transfer_bytes_max {
            too_long(self.buf.len(), transfer_bytes_max)
        } else if self.buf.pool() != pool {
            Error::InvalidArgument(FOREIGN_BUFFER.to_owned())
        } else {
            return Ok(self);
        };
        Err(Rejected { error, buf: Some(self.buf) })
    }
}

/// The error of a transfer that a buffer of so many bytes, or the controller, does not take.
#[cold]
pub(crate) fn too_long(buf_bytes: usize, transfer_bytes_max: usize) -> Error {
    Error::InvalidArgument(format!(
        "the transfer is longer than its buffer ({buf_bytes} bytes) or than the limit of {transfer_bytes_max} bytes"
    ))
}

/// What is said of a buffer of another pool.
pub(crate) const FOREIGN_BUFFER: &str = "the buffer belongs to another controller, whose addresses mean other memory \
     to this one; allocate it from the controller it is sent to";

/// What is said of a key that has no place to travel in.
pub(crate) const NO_KEY_MEMORY: &str =
    "the key travels in memory, which the queue was created without (QueueOptions::long_keys)";

/// A command that has finished.
#[derive(Debug)]
pub struct Completion {
    /// What the caller passed to `submit`.
    pub token: u64,
    /// What the device said; [`Status::ABORTED_BY_HOST`] when a reset ended the command.
    pub status: Status,
    /// Command specific result, dwords 0 and 1.
    pub result: u64,
    /// The buffer that went with the command. Missing when there was none, or when the controller was lost
    /// without a sign that it has stopped: memory a device may still write is never given back.
    pub buf: Option<DmaBuf>,
}

/// A command that was not accepted.
pub struct Rejected {
    /// Why.
    pub error: Error,
    /// The buffer that would have gone with it.
    pub buf: Option<DmaBuf>,
}

unvme_bus::debug_parts!(Rejected { error });

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Rejected {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Self {
        rejected.error
    }
}

/// A checked command, for [`crate::Queue::submit_kv`]: the entry, and what does not fit in it.
#[derive(Clone, Copy, Debug)]
pub struct KvCommand<'a> {
    pub(crate) sqe: Sqe,
    /// Bytes of the data buffer that the command moves.
    pub(crate) bytes: usize,
    /// The key, when it has to travel in memory.
    pub(crate) long_key: Option<&'a [u8]>,
    /// The vendor commands know no SGLs.
    pub(crate) is_prp_only: bool,
}

impl KvCommand<'_> {
    /// The entry. The address of a key that travels in memory is the queue's to fill in, as are the command
    /// identifier and the data pointer.
    pub fn sqe(&self) -> &Sqe {
        &self.sqe
    }

    /// Bytes of the data buffer that the command moves.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline(always)]
    pub(crate) fn standard(sqe: Sqe, bytes: usize) -> Self {
        Self { sqe, bytes, long_key: None, is_prp_only: false }
    }
}

/// What to call an admin command in an error.
pub(crate) fn command_name(sqe: &Sqe) -> String {
    let Some(facts) = CommandSet::Admin.facts(sqe.opcode) else {
        return format!("admin command {:#04x}", sqe.opcode);
    };
    let number = sqe.cdw10 as u8;
    let about = |of: &str, name: Option<&str>| {
        let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
        format!("{} of {of} {number:#04x}{name}", facts.name)
    };
    match sqe.opcode {
        opcode::GET_FEATURES | opcode::SET_FEATURES => about("feature", fid::name(number)),
        opcode::GET_LOG_PAGE => about("page", lid::name(number)),
        _ => facts.name.to_owned(),
    }
}

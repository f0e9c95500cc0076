//! What a handle is asked to do without waiting for it, and what becomes of it.

use unvme_bus::DmaBuf;
use unvme_spec::Status;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Blocks to the buffer.
    Read,
    /// The buffer to blocks.
    Write,
    /// What was written before is to be durable; no buffer.
    Flush,
    /// Blocks are not needed any more; no buffer.
    Discard,
}

/// Something that is to be done.
///
/// ```
/// use unvme::handle::{Request, RequestKind};
///
/// assert_eq!(Request::read(8, 1), Request { kind: RequestKind::Read, lba: 8, blocks: 1 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What.
    pub kind: RequestKind,
    /// The first block, counted from the beginning of the handle's partition. A function that chooses a queue
    /// sees it counted from the beginning of the namespace.
    pub lba: u64,
    /// How many blocks.
    pub blocks: u32,
}

impl Request {
    /// A read.
    pub const fn read(lba: u64, blocks: u32) -> Self {
        Self { kind: RequestKind::Read, lba, blocks }
    }

    /// A write.
    pub const fn write(lba: u64, blocks: u32) -> Self {
        Self { kind: RequestKind::Write, lba, blocks }
    }

    /// A flush.
    pub const fn flush() -> Self {
        Self { kind: RequestKind::Flush, lba: 0, blocks: 0 }
    }

    /// A deallocation.
    pub const fn discard(lba: u64, blocks: u32) -> Self {
        Self { kind: RequestKind::Discard, lba, blocks }
    }
}

/// A request that is over.
#[derive(Debug)]
pub struct Completed {
    /// What came with it.
    pub token: u64,
    /// What the device said; success when it was not needed.
    pub status: Status,
    /// The buffer that came with it.
    pub buf: Option<DmaBuf>,
}

/// A request that was not taken, with its buffer.
#[derive(Debug)]
pub struct NotTaken {
    /// Why.
    pub error: crate::Error,
    /// There was no room; some have to be polled first.
    pub is_full: bool,
    /// The buffer.
    pub buf: Option<DmaBuf>,
}

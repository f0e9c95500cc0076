//! What can go wrong between a host and a function.

use std::io;

/// An error of the connection or of an argument; never of the device's own logic.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BusError {
    /// The operating system refused.
    #[error("{what}: {source}")]
    Os {
        /// What was attempted, with the name of the thing.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The other side closed the connection or died; nothing on this function works any more.
    #[error("{0}: the other side is gone")]
    Gone(String),
    /// The other side did not answer in time.
    #[error("{what}: no answer within {milliseconds} ms")]
    Timeout {
        /// What was attempted.
        what: String,
        /// The limit that passed.
        milliseconds: u64,
    },
    /// The other side broke the protocol.
    #[error("{0}")]
    Protocol(String),
    /// An access outside a BAR, the configuration space or a region.
    #[error("{what}: {length} bytes at offset {offset:#x} are outside its {size:#x} bytes")]
    OutOfRange {
        /// What was accessed.
        what: &'static str,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Size of what was accessed.
        size: u64,
    },
    /// A DMA mapping that overlaps another one, is not page aligned, or is not there.
    #[error("DMA range {iova:#x}+{length:#x}: {reason}")]
    Dma {
        /// First I/O virtual address.
        iova: u64,
        /// Bytes.
        length: u64,
        /// Why it was refused.
        reason: &'static str,
    },
    /// The machine is not set up for what was asked.
    #[error("{problem}; {remedy}")]
    Setup {
        /// What is missing or in the way, with the name of the thing.
        problem: String,
        /// The command or the setting that helps.
        remedy: String,
    },
    /// The function does not have what was asked for.
    #[error("{0}")]
    Unsupported(String),
}

impl BusError {
    /// That `bytes` from `offset` lie within the `size` bytes of `what`. Errors: [`BusError::OutOfRange`]
    /// when they do not.
    #[inline]
    pub fn check_range(what: &'static str, offset: u64, bytes: usize, size: u64) -> Result<(), Self> {
        let length = bytes as u64;
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Self::OutOfRange { what, offset, length, size }),
        }
    }

    /// An operating system error with what was attempted.
    pub fn os(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Os { what: what.into(), source: source.into() }
    }

    /// A machine that is not set up, and what helps.
    pub(crate) fn setup(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Setup { problem: problem.into(), remedy: remedy.into() }
    }
}

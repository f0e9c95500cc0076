//! What can go wrong, by what the caller can do about it.

use std::io;

use rustix::io::Errno;

/// An error of the file system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What POSIX has a number for: a name that is not there, a device that is full.
    #[error("{}", io::Error::from(*.0))]
    Posix(Errno),
    /// The device did not do what it was asked to.
    #[error("{0}")]
    Device(String),
    /// What is on the device is not what was written there.
    #[error("block {block}: {what}; `unvme fs check` looks at the whole file system")]
    Damaged {
        /// File system block.
        block: u64,
        /// What was expected, and what is there.
        what: String,
    },
    /// The device holds no file system, or one that this version cannot mount; or options make no sense.
    #[error("{0}")]
    Format(String),
    /// An earlier error, which is named, has made the file system read-only.
    #[error("the file system is read-only: {0}")]
    ReadOnly(String),
    /// Somebody else has the file system.
    #[error("{0}")]
    Busy(String),
}

/// Result of the file system.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The number that POSIX has for it.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Posix(errno) => *errno,
            Self::Device(_) | Self::Damaged { .. } => Errno::IO,
            Self::Format(_) => Errno::INVAL,
            Self::ReadOnly(_) => Errno::ROFS,
            Self::Busy(_) => Errno::BUSY,
        }
    }

    pub(crate) fn damaged(block: u64, what: impl Into<String>) -> Self {
        Self::Damaged { block, what: what.into() }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::Posix(errno)
    }
}

impl From<unvme::Error> for Error {
    fn from(error: unvme::Error) -> Self {
        Self::Device(error.to_string())
    }
}

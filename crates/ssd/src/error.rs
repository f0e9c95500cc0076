//! Why a virtual SSD could not be made or its state not be kept.

use std::io;
use std::path::PathBuf;

/// An error of the virtual SSD's surroundings. What a host does wrong is a [`unvme_spec::Status`] instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SsdError {
    /// A configuration value outside its range.
    #[error("{key}: {value} is not possible; expected {expected}")]
    Config {
        /// Name of the field in [`crate::SsdConfig`].
        key: &'static str,
        /// What was given.
        value: String,
        /// What is possible.
        expected: String,
    },
    /// A file of the device could not be used.
    #[error("{}: {what}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The device's stored state is not what this version writes.
    #[error("{}: {reason}; restore the file from a copy, or remove the device and create it again", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, with line and column.
        reason: String,
    },
    /// The device was written by a later version.
    #[error("{}: {what} has format {found}, and this version knows up to {known}; use a newer unvme", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// What in it.
        what: &'static str,
        /// The format that was found.
        found: u32,
        /// The last one that is known.
        known: u32,
    },
    /// The device was written by an earlier version, and nothing in it is wrong.
    #[error(
        "{}: {what} has format {found}, and this version knows {known}; copy the data out with the unvme that wrote it",
        path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// What in it.
        what: &'static str,
        /// The format that was found.
        found: u32,
        /// The one that is known.
        known: u32,
    },
    /// A rule for faults cannot be.
    #[error("faults: {0}")]
    Fault(#[from] crate::FaultError),
    /// The flash translation layer cannot be what the configuration says.
    #[error("flash: {0}")]
    Ftl(#[from] unvme_flash::ftl::FtlError),
    /// The model of its timing cannot be.
    #[error(transparent)]
    Timing(#[from] unvme_flash::timing::TimingError),
    /// Memory could not be mapped.
    #[error(transparent)]
    Bus(#[from] unvme_bus::BusError),
}

impl SsdError {
    /// True when there is no space left for a file, and nothing is broken.
    pub(crate) fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Self::File { source, .. }
            if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }
}

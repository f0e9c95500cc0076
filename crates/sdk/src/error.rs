//! What can go wrong, by what the caller can do about it.

use std::io;
use std::path::{Path, PathBuf};

use unvme_driver::Controller;
use unvme_spec::{Nsid, Status, samsung_kv};

/// An error of the SDK. Each message names the thing, what was expected and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No device has this name; the text lists what is there.
    #[error("{name}: no such device; {available}")]
    NotFound {
        /// The name that was asked for.
        name: String,
        /// Slots that exist, and the syntax of the other names.
        available: String,
    },
    /// The name cannot be the name of a device.
    #[error("{name}: {reason}")]
    Name {
        /// The name that was asked for.
        name: String,
        /// What is wrong with it and what was expected.
        reason: String,
    },
    /// The name is right, this version cannot drive such a device.
    #[error("{name}: {reason}")]
    Unsupported {
        /// The name that was asked for.
        name: String,
        /// What is not supported.
        reason: String,
    },
    /// A virtual slot is held by another process.
    #[error("{name}: in use by {}; {reason}", holder(*.pid))]
    InUse {
        /// The slot.
        name: String,
        /// The holder, where its lock file says so.
        pid: Option<u32>,
        /// Why it cannot be reached through its holder, and what to do.
        reason: String,
    },
    /// A drive is in use and must be left alone.
    #[error("{name}: in use: {by}; {remedy}")]
    DriveInUse {
        /// The drive.
        name: String,
        /// Who uses it, all that was found.
        by: String,
        /// How to end that, or what to do instead.
        remedy: String,
    },
    /// The machine is not set up for what was asked: a module, a permission, an IOMMU, huge pages.
    #[error("{problem}; {remedy}")]
    Setup {
        /// What is missing, with the name of the thing.
        problem: String,
        /// The command that helps, or what state things are in.
        remedy: String,
    },
    /// A virtual slot is unplugged, or was while this process had it.
    #[error("{name} is unplugged; plug it with: unvme device plug {name}")]
    Unplugged {
        /// The slot.
        name: String,
    },
    /// A virtual slot of this name exists.
    #[error("{name}: a virtual device exists at this address; remove it first or choose another address")]
    Exists {
        /// The slot.
        name: String,
    },
    /// A file of a virtual slot does not hold what it should.
    #[error("{}:{line}:{column}: {}{reason}", .path.display(), key.as_ref().map(|k| format!("`{k}`: ")).unwrap_or_default())]
    Config {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
        /// The key at or before that place.
        key: Option<String>,
        /// What is wrong and what was expected.
        reason: String,
    },
    /// The caller asked for something that makes no sense on this device.
    #[error("{0}")]
    Argument(String),
    /// The device completed a command with an error status.
    #[error("{what}: the device answered {status}")]
    Device {
        /// The command, and where it applied.
        what: String,
        /// The status, whole.
        status: Status,
    },
    /// The device refused to change a namespace that another host has claimed: a file system on it is
    /// mounted, for instance.
    #[error("{what}: refused, as it would change what is in use: {holders}; unmount it, or end that process")]
    Claimed {
        /// The command, and where it applied.
        what: String,
        /// Who has claimed which namespace.
        holders: String,
        /// [`Status::RESERVATION_CONFLICT`].
        status: Status,
    },
    /// The host ended a command, since the controller was reset or lost; whether it was executed is not
    /// known.
    #[error(
        "{what}: ended before it was answered, and whether it was executed is not known: {reason} ({status})"
    )]
    Ended {
        /// The command, and where it applied.
        what: String,
        /// What has happened to the controller.
        reason: String,
        /// [`Status::ABORTED_BY_HOST`].
        status: Status,
    },
    /// The device completed a command on pairs with an error status, which is of either dialect.
    #[error("{what}: the device answered {}", samsung_kv::status::OfPair(*.status))]
    Pair {
        /// The command, and where it applied.
        what: String,
        /// The status, whole.
        status: Status,
    },
    /// The connection to the device failed, or the device does not follow the specification.
    #[error("{what}: {source}")]
    Driver {
        /// What was attempted, with the name of the device.
        what: String,
        /// The reason.
        source: unvme_driver::Error,
    },
    /// The virtual SSD could not be made or brought back.
    #[cfg(feature = "local")]
    #[error("{name}: {source}")]
    Ssd {
        /// The device.
        name: String,
        /// The reason.
        source: unvme_ssd::SsdError,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted, with the name of the thing.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// The result of everything that can fail here.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the host has ended a command, where nobody knows more.
const LOST: &str = "the device was lost on the way";

pub(crate) fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl Error {
    /// An operating system error on a file.
    pub fn file(verb: &str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { what: format!("{verb} {}", path.display()), source: source.into() }
    }

    /// What a command on `what` came to, whose status is no success: an answer of the device, or the host's
    /// end of it.
    pub(crate) fn refused(what: String, status: Status, controller: &Controller) -> Self {
        match status.kind() {
            Status::RESERVATION_CONFLICT => Self::claimed(what, status, controller),
            _ => Self::of_status(what, status, || controller.ended_by()),
        }
    }

    /// The status with those whose claims are behind it, as far as the device names them.
    fn claimed(what: String, status: Status, controller: &Controller) -> Self {
        match controller.claims(Nsid::ALL) {
            Ok(text) if !text.is_empty() => {
                let holders = text.trim_end().replace('\n', ", ");
                Self::Claimed { what, holders, status }
            }
            // What the device has answered is known in any case.
            Ok(_) | Err(_) => Self::Device { what, status },
        }
    }

    /// As [`Error::driver`], of a controller that can be asked why.
    pub(crate) fn of_controller(what: &str, source: unvme_driver::Error, controller: &Controller) -> Self {
        match source {
            unvme_driver::Error::Status { what: command, status } => {
                Self::refused(format!("{what}: {command}"), status, controller)
            }
            source => Self::driver(what, source),
        }
    }

    fn of_status(what: String, status: Status, ended_by: impl FnOnce() -> Option<String>) -> Self {
        match status.kind() {
            // No device has said that.
            Status::ABORTED_BY_HOST => {
                Self::Ended { what, reason: ended_by().unwrap_or_else(|| LOST.to_owned()), status }
            }
            _ => Self::Device { what, status },
        }
    }

    /// What a driver call on `what` failed with, by what the caller can do about it.
    pub fn driver(what: impl Into<String>, source: unvme_driver::Error) -> Self {
        let what = what.into();
        match source {
            unvme_driver::Error::Status { what: command, status } => {
                Self::of_status(format!("{what}: {command}"), status, || None)
            }
            unvme_driver::Error::Unsupported(reason) => Self::Unsupported { name: what, reason },
            unvme_driver::Error::InvalidArgument(reason) => Self::Argument(format!("{what}: {reason}")),
            source => Self::Driver { what, source },
        }
    }

    /// The status the device answered, if that is what went wrong.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Device { status, .. }
            | Self::Claimed { status, .. }
            | Self::Pair { status, .. }
            | Self::Ended { status, .. } => Some(*status),
            _ => None,
        }
    }
}

//! What can go wrong for a host.

use unvme_bus::BusError;
use unvme_spec::Status;

/// An error, by what the caller can do about it.
///
/// What a device says about an I/O command is not an error but the [`Status`] of its completion.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection to the function failed or refused an argument.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The controller does not work any more and could not be reset. Open it again.
    #[error("the controller is gone: {reason}")]
    Gone {
        /// Why it was given up.
        reason: String,
    },
    /// A target on the network could not be reached, or the connection to it was lost. Try again later, or
    /// elsewhere.
    #[error("{0}")]
    Unreachable(String),
    /// The target does not let this host in, or one of the two could not prove who it is. Other keys or
    /// another list of hosts may help.
    #[error("{0}")]
    Denied(String),
    /// Every slot of the queue is taken. Poll, then submit again.
    #[error("the queue is full: all {capacity} slots are taken by outstanding commands")]
    Full {
        /// Commands the queue takes.
        capacity: u32,
    },
    /// The controller did not answer in time. If it had been brought up, it has been reset.
    #[error("{what}: no answer within {milliseconds} ms")]
    Timeout {
        /// What was asked of it.
        what: String,
        /// The limit that passed.
        milliseconds: u64,
    },
    /// Somebody else reset the controller, which then forgot the command; it may have been executed. If the
    /// controller had been brought up, it has been again.
    #[error("{what}: somebody else has reset the controller")]
    Reset {
        /// What was asked of it.
        what: String,
    },
    /// The device completed an admin command with an error.
    #[error("{what}: {status}")]
    Status {
        /// The command.
        what: String,
        /// What the device said, whole.
        status: Status,
    },
    /// The device broke the protocol. The controller has been reset.
    #[error("the device broke the protocol: {0}")]
    Protocol(String),
    /// The device does not have what was asked for.
    #[error("{0}")]
    Unsupported(String),
    /// All queues or interrupt vectors are in use. Drop one first.
    #[error("{0}")]
    Exhausted(String),
    /// An argument is wrong; nothing was sent to the device.
    #[error("{0}")]
    InvalidArgument(String),
}

impl Error {
    /// An error status of an admin command, or success.
    pub(crate) fn check(what: impl FnOnce() -> String, status: Status) -> Result<(), Self> {
        if status.is_success() { Ok(()) } else { Err(Self::Status { what: what(), status }) }
    }

    /// What [`Error::Gone`] keeps of the error that a controller or a queue was given up for.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Gone { reason } => reason.clone(),
            other => other.to_string(),
        }
    }

    /// The status, when this is one.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

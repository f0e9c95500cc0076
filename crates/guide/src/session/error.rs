//! Why an operation was not done.

use std::fmt;

use unvme::worker::{Data, Reason, Refused};
use unvme_driver::{DmaBuf, Error as DriverError};
use unvme_spec::Status;

use super::QueueKind;

/// Why an operation was not done, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The device refused, or was certain to: limits that both dialects state are checked before a command is
    /// sent, and answered with the status the device has for them.
    #[error("the device answered {0}")]
    Status(Status),
    /// An argument makes no sense; nothing was sent.
    #[error("{0}")]
    Argument(String),
    /// The device or its kind does not have this operation; nothing was sent.
    #[error("{0}")]
    Unsupported(String),
    /// The queue that was asked for is not there, or of the other kind.
    #[error("CPU {cpu} has no {wanted} queue")]
    WrongQueue {
        /// The CPU that was asked for.
        cpu: u32,
        /// The kind of queue the operation needs.
        wanted: QueueKind,
    },
    /// Every slot of the queue is taken, and stayed so for as long as the configuration says to try.
    #[error("the queue is full")]
    QueueFull,
    /// No memory of the slab is left, not even after taking back what the cache had.
    #[error("the slab has no room for {bytes} bytes")]
    SlabExhausted {
        /// Bytes that were needed.
        bytes: usize,
    },
    /// The session is closed or being closed.
    #[error("the session is closed")]
    Closed,
    /// The session cannot be closed from within a handler, which closing waits for.
    #[error("a session cannot be closed by one of its own handlers")]
    Reentered,
    /// The connection to the device failed, or the device does not work any more.
    #[error(transparent)]
    Driver(DriverError),
}

impl OpError {
    /// The status, if that is what it is.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status(status) => Some(*status),
            _ => None,
        }
    }
}

impl From<DriverError> for OpError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Status { status, .. } => Self::Status(status),
            DriverError::Full { .. } => Self::QueueFull,
            DriverError::InvalidArgument(reason) => Self::Argument(reason),
            DriverError::Unsupported(reason) => Self::Unsupported(reason),
            other => Self::Driver(other),
        }
    }
}

impl From<Reason> for OpError {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Full => Self::QueueFull,
            Reason::Closed => Self::Closed,
            Reason::Driver(error) => error.into(),
        }
    }
}

/// An operation that was not done, and the buffer that was to go with it.
pub struct Returned {
    /// Why.
    pub error: OpError,
    /// The buffer that was lent.
    pub buf: Option<DmaBuf>,
}

impl Returned {
    pub(super) fn new(error: OpError, data: Data<'_>) -> Self {
        Self { error, buf: data.into_lent() }
    }

    /// Without a buffer that is not the caller's.
    pub(super) fn if_lent(mut self, is_lent: bool) -> Self {
        self.buf = self.buf.filter(|_| is_lent);
        self
    }
}

unvme_bus::debug_parts!(Returned { error });

impl fmt::Display for Returned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Returned {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<Returned> for OpError {
    fn from(returned: Returned) -> Self {
        returned.error
    }
}

impl From<OpError> for Returned {
    fn from(error: OpError) -> Self {
        Self { error, buf: None }
    }
}

impl From<Refused> for Returned {
    fn from(refused: Refused) -> Self {
        Self { error: refused.reason.into(), buf: refused.buf }
    }
}

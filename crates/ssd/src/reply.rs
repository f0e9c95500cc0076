//! How a command that was executed is answered.

use unvme_spec::Status;

/// In place of the bytes sent: it is an Asynchronous Event Request that is answered, which has no data. A
/// fabric tells it so from another command with its identifier.
pub(crate) const EVENT_SENT: u32 = u32::MAX;

/// See the module. The end of an iteration is a status with a result and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reply {
    pub(crate) status: Status,
    /// Bytes of data that the host gets.
    pub(crate) sent: u32,
    /// Dwords 0 and 1 of the completion.
    pub(crate) result: u64,
}

impl Reply {
    /// Success without a result.
    pub(crate) const DONE: Self = Self::of(0);

    pub(crate) const fn of(result: u64) -> Self {
        Self { status: Status::SUCCESS, sent: 0, result }
    }

    /// Success with so many bytes of data.
    #[inline]
    pub(crate) const fn sending(sent: u32) -> Self {
        Self { sent, ..Self::DONE }
    }

    /// The same, of an Asynchronous Event Request.
    pub(crate) const fn of_event(self) -> Self {
        Self { sent: EVENT_SENT, ..self }
    }

    /// The same with a status that takes the place of its own: what fails by that has sent nothing.
    #[inline]
    pub(crate) fn with_status(self, status: Status) -> Self {
        let is_sent = status == self.status || status.is_success();
        Self { status, sent: if is_sent { self.sent } else { 0 }, ..self }
    }
}

impl From<Status> for Reply {
    /// A status, and nothing else.
    #[inline]
    fn from(status: Status) -> Self {
        Self { status, ..Self::DONE }
    }
}

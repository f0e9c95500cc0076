//! Asynchronous Event Request and Abort (Base 5.1.2, 5.1.1), and what hosts are told of unasked.

use unvme_bus::lock;
use unvme_spec::feature::AsyncEventConfiguration;
use unvme_spec::log_page::{AsyncEvent, error_event, event_type, lid};
use unvme_spec::{Cid, Qid, Status};

use super::Answer;
use crate::Ssd;
use crate::queue::BadDoorbell;

impl Ssd {
    /// Which events the host wants to hear of.
    pub(crate) fn wanted_events(&self) -> AsyncEventConfiguration {
        lock(&self.features).async_events()
    }

    /// The host wrote a doorbell that it should not have written, or not so.
    #[cold]
    pub(crate) fn doorbell_error(&self, error: BadDoorbell) {
        let info = match error {
            BadDoorbell::Register => error_event::INVALID_DOORBELL_REGISTER,
            BadDoorbell::Value => error_event::INVALID_DOORBELL_VALUE,
        };
        lock(&self.subsystem.errors).record_doorbell();
        self.events.raise(AsyncEvent::of(event_type::ERROR, info, lid::ERROR_INFORMATION));
    }

    pub(super) fn async_event_request(&self, cid: u16) -> Answer {
        match self.events.request(cid) {
            true => Answer::Later,
            false => Answer::Now(Err(Status::AER_LIMIT_EXCEEDED)),
        }
    }

    /// Aborts an outstanding Asynchronous Event Request, or a command that has been executed and would be
    /// answered later. Every other command has been answered by the time an Abort is executed, or waits in a
    /// queue of the host's memory where it cannot be reached: bit 0 of the result says that it was not
    /// aborted.
    pub(super) fn abort(&self, sqid: Qid, cid: Cid) -> Result<u64, Status> {
        let is_request = sqid == Qid::ADMIN && self.events.abort(cid.0);
        let aborted = is_request || self.queues.abort_held(sqid, cid, &self.interrupts);
        Ok(u64::from(!aborted))
    }
}

//! The admin queue: shared by all threads, one of which at a time looks at the ring.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use unvme_bus::{Doorbell, EventFd, lock};
use unvme_spec::{Sqe, admin};

use super::device::PcieDevice;
use super::lifecycle::FATAL;
use super::pace::Pace;
use super::pair::{Pair, Refused};
use crate::command::{Completion, FOREIGN_BUFFER, Payload, command_name};
use crate::mailbox::Mailbox;
use crate::{Error, Event};

/// Commands that can be outstanding on the admin queue.
pub(crate) const ADMIN_DEPTH: u16 = 31;
/// Between two looks at a controller that owes an answer, whether it is still enabled.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Who may send commands.
#[derive(Debug, PartialEq, Eq)]
enum Gate {
    /// Everybody.
    Open,
    /// Only whoever is bringing the controller up; the others wait.
    Suspended,
    /// Nobody: the controller is gone.
    Closed(String),
}

/// Whether a command is part of bringing the controller up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A user of the controller.
    User,
    /// The holder of the lifecycle lock.
    BringUp,
    /// Somebody who lets go: a device that is gone is not followed for it.
    Leaving,
}

struct State {
    pair: Pair,
    gate: Gate,
    mail: Mailbox,
}

pub(crate) struct AdminQueue {
    state: Mutex<State>,
    /// Interrupt vector 0, when the function has interrupts.
    pub(crate) interrupt: Option<EventFd>,
}

impl AdminQueue {
    pub(crate) fn new(pair: Pair, interrupt: Option<EventFd>) -> Self {
        let state = State { pair, gate: Gate::Suspended, mail: Mailbox::default() };
        Self { state: Mutex::new(state), interrupt }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every method leaves the state whole before anything that could panic.
        lock(&self.state)
    }

    /// Base addresses of the submission and the completion queue, and the entries of each.
    pub(crate) fn layout(&self) -> ((u64, u64), (u32, u32)) {
        let state = self.lock();
        (state.pair.addresses(), state.pair.entries())
    }

    /// Refuses transfers of more than `bytes` from now on.
    pub(crate) fn limit_transfers(&self, bytes: usize) {
        self.lock().pair.limit_transfers(bytes);
    }

    /// Sends a command and waits for its completion, whatever its status. Errors: [`Error::Timeout`] after
    /// `limit`, [`Error::Reset`], [`Error::Gone`], [`Error::Protocol`], [`Error::Bus`],
    /// [`Error::InvalidArgument`]. The caller decides about a reset.
    pub(crate) fn execute(
        &self,
        device: &PcieDevice,
        caller: Caller,
        sqe: Sqe,
        payload: Option<Payload>,
        limit: Duration,
    ) -> Result<Completion, Error> {
        let mut pace = Pace::new(device, limit);
        let (token, epoch) = self.start(device, caller, sqe, payload, &mut pace)?;
        let follows = caller == Caller::User && device.function.is_movable();
        let mut next_look = pace.elapsed() + LOOK_INTERVAL;
        loop {
            let mut state = self.lock();
            let drained = state.drain(device);
            if let Some(completion) = state.mail.take(token) {
                return Ok(completion);
            }
            if follows && device.function.is_gone() {
                // What the device has not completed ends there, this command among them.
                drop(state);
                device.notice_gone(epoch);
                device.lifecycle().check()?;
                continue;
            }
            let looks = pace.elapsed() >= next_look;
            if looks && state.is_left_alone(device, caller) {
                drop(state);
                if let Err(e) = device.reset_since(epoch, FATAL) {
                    tracing::warn!(error = %e, "controller reset");
                }
                next_look = pace.elapsed() + LOOK_INTERVAL;
                continue;
            }
            let trouble = match drained {
                Err(e) => Some(e),
                Ok(()) if device.function.is_gone() => Some(device.gone_error()),
                Ok(()) if looks && state.is_orphaned(device, caller) => {
                    Some(Error::Reset { what: command_name(&sqe) })
                }
                Ok(()) if pace.is_expired() => Some(pace.timeout(command_name(&sqe))),
                Ok(()) => None,
            };
            if let Some(e) = trouble {
                state.mail.abandon(token);
                return Err(e);
            }
            drop(state);
            if looks {
                next_look = pace.elapsed() + LOOK_INTERVAL;
            }
            pace.pause(self.interrupt.as_ref());
        }
    }

    /// Sends a command: its token, and the epoch it was sent in.
    fn start(
        &self,
        device: &PcieDevice,
        caller: Caller,
        sqe: Sqe,
        mut payload: Option<Payload>,
        pace: &mut Pace<'_>,
    ) -> Result<(u64, u64), Error> {
        loop {
            let mut state = self.lock();
            match &state.gate {
                Gate::Closed(reason) => return Err(Error::Gone { reason: reason.clone() }),
                Gate::Suspended if caller != Caller::BringUp => {}
                _ => {
                    state.drain(device)?;
                    let token = state.mail.token();
                    let bytes = payload.as_ref().map_or(0, |payload| payload.bytes);
                    match state.pair.submit(sqe, payload.take(), token) {
                        Ok(()) => {
                            state.mail.sent();
                            state.pair.ring()?;
                            // A reset from now on ends it, and closes the gate under this lock.
                            return Ok((token, device.base.epoch()));
                        }
                        Err((Refused::TooLong, _)) => return Err(too_long(&state.pair, bytes)),
                        Err((Refused::ForeignBuffer, _)) => {
                            return Err(Error::InvalidArgument(FOREIGN_BUFFER.to_owned()));
                        }
                        // Admin commands carry no keys.
                        Err((Refused::NoList | Refused::NoKeyMemory, _)) => {
                            let reason = "no memory is left for the PRP list of a transfer";
                            return Err(Error::Exhausted(reason.to_owned()));
                        }
                        Err((Refused::Full, buf)) => payload = buf.map(|buf| Payload { buf, bytes }),
                    }
                }
            }
            drop(state);
            if pace.is_expired() {
                return Err(pace.timeout(command_name(&sqe)));
            }
            pace.pause(self.interrupt.as_ref());
        }
    }

    /// Sends a command of a process the drive is shared with, data pointers and all, without waiting; `None`
    /// while there is no room for it. The token is for [`AdminQueue::collect`] or [`AdminQueue::abandon`].
    /// Errors: [`Error::Gone`], [`Error::Protocol`], [`Error::Bus`]. The caller decides about a reset.
    pub(crate) fn forward(&self, device: &PcieDevice, sqe: Sqe) -> Result<Option<u64>, Error> {
        let mut state = self.lock();
        match &state.gate {
            Gate::Closed(reason) => return Err(Error::Gone { reason: reason.clone() }),
            Gate::Suspended => return Ok(None),
            Gate::Open => {}
        }
        state.drain(device)?;
        let token = state.mail.token();
        if state.pair.submit(sqe, None, token).is_err() {
            return Ok(None);
        }
        state.mail.sent();
        state.pair.ring()?;
        Ok(Some(token))
    }

    /// What became of a command that was forwarded; `None` while the drive has it. Errors: as
    /// [`AdminQueue::forward`].
    pub(crate) fn collect(&self, device: &PcieDevice, token: u64) -> Result<Option<Completion>, Error> {
        let mut state = self.lock();
        let drained = state.drain(device);
        match state.mail.take(token) {
            Some(completion) => Ok(Some(completion)),
            None => drained.map(|()| None),
        }
    }

    /// Says that nobody will collect a command.
    pub(crate) fn abandon(&self, token: u64) {
        self.lock().mail.abandon(token);
    }

    /// Events reported so far.
    pub(crate) fn events_count(&self) -> u64 {
        self.lock().mail.events_count()
    }

    /// The results of the events from number `first` on, each with its number; those long past are forgotten.
    /// The requests of the events are sent again, so that there are more even when the holder asks for none.
    /// Errors: as [`AdminQueue::forward`].
    pub(crate) fn events_since(&self, device: &PcieDevice, first: u64) -> Result<Vec<(u64, u64)>, Error> {
        let mut state = self.lock();
        if state.gate != Gate::Open {
            return Ok(Vec::new());
        }
        state.drain(device)?;
        state.arm_events()?;
        Ok(state.mail.events_since(first))
    }

    /// Exchanges the doorbells for those of a device that has moved.
    pub(crate) fn set_doorbells(&self, submission: Doorbell, completion: Doorbell) {
        self.lock().pair.set_doorbells(submission, completion);
    }

    /// Keeps users out while the controller is being reset.
    pub(crate) fn suspend(&self) {
        self.lock().gate = Gate::Suspended;
    }

    /// Lets users in again.
    pub(crate) fn resume(&self) {
        self.lock().gate = Gate::Open;
    }

    /// Turns users away for good.
    pub(crate) fn close(&self, reason: &str) {
        self.lock().gate = Gate::Closed(reason.to_owned());
    }

    /// Ends every outstanding command and empties the rings.
    pub(crate) fn flush(&self, stopped: bool) {
        let mut state = self.lock();
        state.pair.abort_all(stopped);
        while let Some(completion) = state.pair.pop() {
            state.mail.deliver(completion);
        }
        state.pair.restart();
    }

    /// Gives up the rings' memory: the device may still write it.
    pub(crate) fn quarantine(&self) {
        self.lock().pair.quarantine();
    }

    /// Keeps `count` Asynchronous Event Requests with the controller from now on.
    pub(crate) fn arm_events(&self, count: u32) -> Result<(), Error> {
        let mut state = self.lock();
        state.mail.want_events(count);
        state.arm_events()
    }

    /// The events that have arrived; their requests are sent again.
    pub(crate) fn take_events(&self, device: &PcieDevice) -> Result<Vec<Event>, Error> {
        let mut state = self.lock();
        if let Gate::Closed(reason) = &state.gate {
            let reason = reason.clone();
            let left = state.mail.take_events();
            return if left.is_empty() { Err(Error::Gone { reason }) } else { Ok(left) };
        }
        state.drain(device)?;
        let events = state.mail.take_events();
        if state.gate == Gate::Open {
            state.arm_events()?;
        }
        Ok(events)
    }
}

impl State {
    /// True when the controller will not answer: it is not enabled, and not because it is being reset here,
    /// which ends the command. A reset closes the gate before it touches the controller, and the caller holds
    /// the lock of both.
    fn is_orphaned(&self, device: &PcieDevice, caller: Caller) -> bool {
        (caller == Caller::BringUp || self.gate == Gate::Open) && device.has_lost_enable()
    }

    /// True when the controller has said that it answers nothing any more. A reset ends the command; who
    /// brings the controller up waits for the answer all the same, since it holds what a reset needs.
    fn is_left_alone(&self, device: &PcieDevice, caller: Caller) -> bool {
        caller != Caller::BringUp && self.gate == Gate::Open && device.has_failed()
    }

    /// Takes what has completed off the ring and gives it to whom it belongs.
    fn drain(&mut self, device: &PcieDevice) -> Result<(), Error> {
        device.advance(self.pair.qid());
        while let Some(completion) = self.pair.pop() {
            self.mail.deliver(completion);
        }
        if self.pair.owes_head() {
            self.pair.acknowledge()?;
        }
        match self.pair.violation() {
            None => Ok(()),
            Some(entry) => Err(Error::Protocol(format!(
                "completion on the admin queue for command {:#06x}, which is not outstanding",
                entry.cid
            ))),
        }
    }

    fn arm_events(&mut self) -> Result<(), Error> {
        while let Some(token) = self.mail.event_token() {
            if self.pair.submit(admin::Command::AsyncEventRequest.encode(), None, token).is_err() {
                break;
            }
            self.mail.event_sent();
        }
        Ok(self.pair.ring()?)
    }
}

fn too_long(pair: &Pair, bytes: usize) -> Error {
    Error::InvalidArgument(format!(
        "a transfer of {bytes} bytes: the buffer must hold them and the limit is {} bytes",
        pair.transfer_bytes_max()
    ))
}

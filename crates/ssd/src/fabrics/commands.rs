//! Fabrics commands: properties, authentication, the end of a queue (Base 6).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::fmt;

use unvme_bus::{Clock, Function};
use unvme_fabric::chap::Outcome;
use unvme_spec::auth::{SECURITY_PROTOCOL, SECURITY_PROTOCOL_SPECIFIC};
use unvme_spec::fabrics::{Authentication, Command, DISCOVERY_NQN, Property, status};
use unvme_spec::regs::offset;
use unvme_spec::{Sqe, Status};

use super::desk::DeskTicket;
use super::guest::origin;
use super::queue::{At, FabricsQueue, QueueState};
use super::refusals::Refused;
use crate::Ssd;

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();

/// A message of a host that authenticates: what is to be done about it can be much arithmetic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proving {
    slot: u16,
    command: Authentication,
    ticket: DeskTicket,
    /// When to look whether it is its turn.
    again_at: u64,
}

impl FabricsQueue {
    /// Executes a Fabrics command, whose data is there.
    #[cold]
    pub(super) fn execute_fabrics(&mut self, at: u16) {
        let Some(slot) = self.slots.get(at) else { return };
        let sqe: Sqe = slot.sqe;
        match Command::parse(&sqe) {
            Command::Connect(connect) => self.connect(at, connect),
            Command::PropertyGet(property) => {
                let answer = self.property(property);
                self.executed(at, answer, 0);
            }
            Command::PropertySet(property) => {
                let answer = self.set_property(property);
                self.executed(at, answer, 0);
            }
            Command::AuthenticationSend(command) => {
                if let Err(status) = self.begin_proving(at, command) {
                    self.executed(at, Err(status), 0);
                }
            }
            Command::AuthenticationReceive(command) => {
                let answer = self.authentication_receive(at, command);
                self.executed(at, answer.map(|_| 0), answer.unwrap_or_default());
            }
            Command::Disconnect { record_format } => {
                let answer = match record_format {
                    0 => Ok(0),
                    _ => Err(status::INCOMPATIBLE_FORMAT.with_do_not_retry()),
                };
                if answer.is_ok() {
                    self.state = QueueState::Disconnected;
                }
                self.executed(at, answer, 0);
            }
            _ => self.executed(at, Err(Status::INVALID_OPCODE.with_do_not_retry()), 0),
        }
    }

    fn property(&mut self, property: Property) -> Result<u64, Status> {
        let at = u64::from(property.offset);
        let is_wide = property.is_wide.ok_or(INVALID_FIELD)?;
        let wide_expected = match at {
            offset::CAP => true,
            offset::VS | offset::CC | offset::CSTS | offset::NSSR | offset::CRTO => false,
            _ => return Err(INVALID_FIELD),
        };
        if is_wide != wide_expected {
            return Err(INVALID_FIELD);
        }
        let mut bytes = [0; 8];
        match &self.at {
            At::Device(device) => {
                let (word, _) = bytes.split_at_mut(if is_wide { 8 } else { 4 });
                device.ssd.bar_read(0, at, word).map_err(|_| Status::INTERNAL_ERROR)?;
            }
            At::Discovery(discovery) => bytes = discovery.property(at).to_le_bytes(),
            At::Unconnected => return Err(Status::INTERNAL_ERROR),
        }
        Ok(u64::from_le_bytes(bytes))
    }

    fn set_property(&mut self, property: Property) -> Result<u64, Status> {
        let at = u64::from(property.offset);
        if property.is_wide != Some(false) || !matches!(at, offset::CC | offset::CSTS | offset::NSSR) {
            return Err(INVALID_FIELD);
        }
        let value = property.value as u32;
        match &mut self.at {
            At::Device(device) => {
                let answer = set_register(&device.ssd, at, value);
                // At once: what comes next may enable the controller, and it begins with empty rings.
                if device.notice_reset() {
                    self.abort_running();
                }
                answer
            }
            At::Discovery(discovery) => {
                for request in discovery.set_property(at, value) {
                    self.executed(request, Err(Status::ABORTED_SQ_DELETION), 0);
                }
                Ok(0)
            }
            At::Unconnected => Err(Status::INTERNAL_ERROR),
        }
    }

    /// Puts a message in the line for the arithmetic. A host that has one there awaits its answer.
    fn begin_proving(&mut self, at: u16, command: Authentication) -> Result<(), Status> {
        check_protocol(command)?;
        if self.proving.is_some() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry());
        }
        let ticket = self.target.desk().enter(origin(&self.peer.address));
        self.proving = Some(Proving { slot: at, command, ticket, again_at: 0 });
        Ok(())
    }

    /// Looks at a message when it is its turn. Returns how much was done.
    #[cold]
    pub(super) fn prove(&mut self, clock: &Clock) -> usize {
        let Some(proving) = &mut self.proving else { return 0 };
        if self.now < proving.again_at {
            return 0;
        }
        let Proving { slot, command, ticket, .. } = *proving;
        let began = clock.now();
        if let Err(again_at) = self.target.desk().take_turn(ticket, began) {
            proving.again_at = again_at;
            return 0;
        }
        self.proving = None;
        let answer = self.authentication_send(slot, command);
        self.target.desk().end_turn(began, clock.now());
        self.executed(slot, answer, 0);
        1
    }

    /// When [`FabricsQueue::prove`] has something to look at.
    pub(super) fn prove_again_at(&self) -> Option<u64> {
        self.proving.map(|proving| proving.again_at)
    }

    /// Nobody waits for the answer.
    pub(super) fn stop_proving(&mut self) {
        if let Some(Proving { ticket, .. }) = self.proving.take() {
            self.target.desk().leave(ticket);
        }
    }

    fn authentication_send(&mut self, at: u16, command: Authentication) -> Result<u64, Status> {
        let slot = self.slots.get(at).ok_or(Status::INTERNAL_ERROR)?;
        let mut message = vec![0; slot.bytes as usize];
        if let Some(staging) = slot.buffer.and_then(|buffer| self.pool.staging(buffer, slot.bytes)) {
            staging.region.read(staging.offset, &mut message);
        }
        message.truncate(command.bytes as usize);
        let authentication =
            self.authentication.as_mut().ok_or(Status::INVALID_OPCODE.with_do_not_retry())?;
        authentication.send(&message);
        self.note_outcome();
        Ok(0)
    }

    /// Returns how many bytes are sent.
    fn authentication_receive(&mut self, at: u16, command: Authentication) -> Result<u32, Status> {
        check_protocol(command)?;
        if self.proving.is_some() {
            // What it would fetch is the answer to a message that has not been looked at.
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry());
        }
        let slot = self.slots.get(at).ok_or(Status::INTERNAL_ERROR)?;
        let authentication =
            self.authentication.as_mut().ok_or(Status::INVALID_OPCODE.with_do_not_retry())?;
        let message = authentication.receive(slot.bytes.min(command.bytes));
        let bytes = slot.bytes;
        if let Some(staging) = slot.buffer.and_then(|buffer| self.pool.staging(buffer, bytes)) {
            staging.region.fill(staging.offset, staging.bytes, 0);
            let known = message.get(..staging.bytes).unwrap_or(&message);
            staging.region.write(staging.offset, known);
        }
        self.note_outcome();
        Ok(bytes)
    }

    /// Says in the log why a host that has connected is not let in all the same.
    #[cold]
    pub(super) fn tell_unproven(&self, why: &dyn fmt::Display) {
        let subsystem = match &self.at {
            At::Unconnected => None,
            At::Device(device) => Some(device.association.subnqn()),
            At::Discovery(_) => Some(DISCOVERY_NQN),
        };
        let (peer, host) = (self.peer.address.as_str(), self.host());
        self.target.refusals().tell(&Refused { peer, host, subsystem, why });
    }

    /// How far the host's authentication is.
    fn note_outcome(&mut self) {
        let Some(authentication) = &self.authentication else { return };
        match authentication.outcome() {
            Outcome::Pending => {}
            Outcome::Authenticated => self.host_is_proven(),
            Outcome::Failed(failure) => {
                self.tell_unproven(&format_args!("it did not authenticate: {failure}"));
                self.must_authenticate = true;
                // What it is told is sent before the connection closes.
                self.state = QueueState::Disconnected;
            }
        }
    }
}

fn check_protocol(command: Authentication) -> Result<(), Status> {
    let is_ours = command.security_protocol == SECURITY_PROTOCOL
        && command.specific_0 == SECURITY_PROTOCOL_SPECIFIC
        && command.specific_1 == SECURITY_PROTOCOL_SPECIFIC;
    if is_ours { Ok(()) } else { Err(INVALID_FIELD) }
}

fn set_register(ssd: &Ssd, at: u64, value: u32) -> Result<u64, Status> {
    ssd.bar_write(0, at, &value.to_le_bytes()).map(|()| 0).map_err(|_| Status::INTERNAL_ERROR)
}

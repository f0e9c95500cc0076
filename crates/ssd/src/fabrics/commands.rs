//! Fabrics commands: properties, authentication, the end of a queue (Base 6).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_bus::Function;
use unvme_fabric::chap::Outcome;
use unvme_spec::auth::{SECURITY_PROTOCOL, SECURITY_PROTOCOL_SPECIFIC};
use unvme_spec::fabrics::{Authentication, Command, Property, status};
use unvme_spec::regs::offset;
use unvme_spec::{Sqe, Status};

use super::queue::{At, FabricsQueue, QueueState};
use crate::Ssd;

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();

impl FabricsQueue {
    /// Executes a Fabrics command, whose data is there.
    #[cold]
    pub(super) fn execute_fabrics(&mut self, at: u16) {
        let Some(slot) = self.slots.get(at) else { return };
        let sqe: Sqe = slot.sqe;
        match Command::parse(&sqe) {
            Command::Connect(connect) => self.connect(at, &sqe, connect),
            Command::PropertyGet(property) => {
                let answer = self.property(property);
                self.executed(at, answer, 0);
            }
            Command::PropertySet(property) => {
                let answer = self.set_property(property);
                self.executed(at, answer, 0);
            }
            Command::AuthenticationSend(command) => {
                let answer = self.authentication_send(at, command);
                self.executed(at, answer, 0);
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

    fn authentication_send(&mut self, at: u16, command: Authentication) -> Result<u64, Status> {
        check_protocol(command)?;
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

    /// How far the host's authentication is.
    fn note_outcome(&mut self) {
        let Some(authentication) = &self.authentication else { return };
        match authentication.outcome() {
            Outcome::Pending => {}
            Outcome::Authenticated => self.must_authenticate = false,
            Outcome::Failed(failure) => {
                tracing::warn!(
                    peer = self.peer.address,
                    host = self.host(),
                    ?failure,
                    "a host did not authenticate"
                );
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

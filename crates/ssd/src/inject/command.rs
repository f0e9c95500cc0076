//! The vendor's admin commands that manage rules. They work through every transport, and on a device whose
//! other commands fail: no rule is about them.
//!
//! Their layout is in [`unvme_spec::fault`].
//!
//! Text to add is as [`crate::parse_faults`] reads it: all of it is added, or nothing. The list is an array
//! of `{"rule": {...}, "matched": n, "hits": n}`. Whatever is wrong is Invalid Field in Command with Do Not
//! Retry; Fault Receive says it in words.

use serde::Serialize;
use unvme_bus::lock;
use unvme_spec::fault::{self, FaultReceive, FaultSend, FaultText};
use unvme_spec::{Sqe, Status};

use crate::fault::{FAULT_TEXT_BYTES_MAX, FaultError, FaultReport, FaultRule, parse_faults};
use crate::queue::SubmissionQueue;
use crate::reply::Reply;
use crate::{Ssd, SsdError};

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();

#[derive(Serialize)]
struct Listed<'a> {
    rule: &'a FaultRule,
    matched: u64,
    hits: u64,
}

impl Ssd {
    /// Adds a rule and returns its number. It is kept in the device's state like those of Fault Send. Errors:
    /// [`SsdError::Fault`] for a value out of range, or one rule too many.
    pub fn add_fault(&self, rule: FaultRule) -> Result<u32, SsdError> {
        let id = self.faults.add(rule)?;
        self.rules_changed();
        Ok(id)
    }

    /// Adds rules that end with this device, as those of [`crate::SsdConfig::faults`] do: all of them, or
    /// none. Returns their numbers. Errors: as [`Ssd::add_fault`].
    pub fn add_passing_faults(&self, rules: Vec<FaultRule>) -> Result<Vec<u32>, SsdError> {
        Ok(self.faults.add_all(rules, false)?)
    }

    /// Removes the rule with this number, or all with `None`; how many there were.
    pub fn clear_faults(&self, id: Option<u32>) -> usize {
        let cleared = self.faults.clear(id);
        self.rules_changed();
        cleared
    }

    /// The rules, and what has come of them.
    pub fn faults(&self) -> Vec<FaultReport> {
        self.faults.list()
    }

    fn rules_changed(&self) {
        self.faults.take_moved();
        self.subsystem.saving.changed();
        if self.subsystem.save_state().is_err() {
            tracing::error!("the rules could not be saved");
        }
    }

    /// True for the commands of this module, on a device that offers them.
    pub(crate) fn is_fault_command(&self, sqe: &Sqe) -> bool {
        self.config.fault_commands && matches!(sqe.opcode, fault::opcode::SEND | fault::opcode::RECEIVE)
    }

    /// Executes one of them.
    pub(crate) fn fault_command(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Result<Reply, Status> {
        match sqe.opcode {
            fault::opcode::SEND => self.fault_send(sq, sqe).map(Reply::of).map_err(|refusal| match refusal {
                Refusal::Status(status) => status,
                Refusal::Words(error) => {
                    tracing::debug!(%error, "Fault Send");
                    *lock(&self.faults.last_error) = error.to_string();
                    INVALID_FIELD
                }
            }),
            _ => self.fault_receive(sq, sqe),
        }
    }

    fn fault_send(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Result<u64, Refusal> {
        match FaultSend::parse(sqe) {
            FaultSend::Add { bytes, passing } => {
                let bytes = text_bytes(bytes)?;
                let text = self.receive(sq, sqe, bytes)?;
                let text = String::from_utf8(text).map_err(|error| {
                    let at = error.utf8_error().valid_up_to();
                    FaultError::new(format!("the text is not UTF-8 from byte {at} on"))
                })?;
                let added = self.faults.add_all(parse_faults(&text)?, !passing)?;
                self.rules_changed();
                let first = added.first().copied().unwrap_or(0);
                Ok(added.len() as u64 | u64::from(first) << 32)
            }
            FaultSend::Clear(id) => match self.faults.clear(Some(id)) {
                0 => Err(FaultError::new(format!("there is no rule {id}")).into()),
                cleared => {
                    self.rules_changed();
                    Ok(cleared as u64)
                }
            },
            FaultSend::ClearAll => Ok(self.clear_faults(None) as u64),
            FaultSend::Unplug => {
                self.unplug_soon();
                Ok(0)
            }
            FaultSend::Unknown(operation) => {
                Err(FaultError::new(format!("operation {operation} is not one of 1 to 4")).into())
            }
        }
    }

    fn fault_receive(&self, sq: &mut SubmissionQueue, sqe: &Sqe) -> Result<Reply, Status> {
        let receive = FaultReceive::parse(sqe);
        let room = text_bytes(receive.bytes).map_err(|_| INVALID_FIELD)?;
        let text = match receive.text {
            FaultText::List => {
                let reports = self.faults();
                let listed: Vec<Listed<'_>> = reports
                    .iter()
                    .map(|report| Listed { rule: &report.rule, matched: report.matched, hits: report.hits })
                    .collect();
                serde_json::to_vec(&listed).map_err(|_| Status::INTERNAL_ERROR)?
            }
            FaultText::LastError => lock(&self.faults.last_error).clone().into_bytes(),
            FaultText::Unknown(_) => return Err(INVALID_FIELD),
        };
        Ok(Reply { result: text.len() as u64, ..self.send(sq, sqe, &text, room)? })
    }
}

/// Why a Fault Send was not done.
enum Refusal {
    Status(Status),
    Words(FaultError),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<FaultError> for Refusal {
    fn from(error: FaultError) -> Self {
        Self::Words(error)
    }
}

fn text_bytes(bytes: u32) -> Result<usize, FaultError> {
    let bytes = bytes as usize;
    match bytes <= FAULT_TEXT_BYTES_MAX {
        true => Ok(bytes),
        false => {
            Err(FaultError::new(format!("{bytes} bytes of text; expected at most {FAULT_TEXT_BYTES_MAX}")))
        }
    }
}

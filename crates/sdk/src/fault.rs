//! Faults by script, on devices that take them: virtual ones, here or served by another process.

use unvme_driver::{Controller, Error as DriverError};
use unvme_spec::fault::{FaultReceive, FaultSend, FaultText, TEXT_BYTES_MAX};
use unvme_spec::{Sqe, Status};

use crate::{Device, Error, Result};

/// Bytes of the first buffer for a list of rules; a longer one is asked for again.
const LIST_BYTES: u32 = 64 << 10;

/// Rules that were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultsAdded {
    /// How many.
    pub count: u32,
    /// Number of the first; the others have the next ones that were free.
    pub first: u32,
}

impl Device {
    /// Adds rules to the device: JSON, one rule or a list of them, as `docs/faults.md` describes. All of them
    /// are added, or none. They stay until they are cleared, also when the device is closed.
    ///
    /// # Errors
    /// [`Error::Argument`] says what is wrong with the text, with line and column; [`Error::Unsupported`]
    /// when the device takes no rules; as [`Device::admin`].
    pub fn add_faults(&self, rules: &str) -> Result<FaultsAdded> {
        self.send_faults(rules, false)
    }

    /// [`Device::add_faults`] for rules that end with the process that has the device: this one, or its
    /// server.
    ///
    /// # Errors
    /// As [`Device::add_faults`].
    pub fn add_passing_faults(&self, rules: &str) -> Result<FaultsAdded> {
        self.send_faults(rules, true)
    }

    fn send_faults(&self, rules: &str, passing: bool) -> Result<FaultsAdded> {
        if rules.is_empty() || rules.len() > TEXT_BYTES_MAX as usize {
            let bytes = rules.len();
            let expected = format!("rules of {bytes} bytes; expected 1 to {TEXT_BYTES_MAX}");
            return Err(Error::Argument(format!("{}: faults: {expected}", self.name())));
        }
        let command = FaultSend::Add { bytes: rules.len() as u32, passing }.encode();
        let result = self.fault_send(command, rules.as_bytes())?;
        Ok(FaultsAdded { count: result as u32, first: (result >> 32) as u32 })
    }

    /// Clears one rule, or all of them; how many there were.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such rule; as [`Device::add_faults`].
    pub fn clear_faults(&self, id: Option<u32>) -> Result<u32> {
        let command = id.map_or(FaultSend::ClearAll, FaultSend::Clear).encode();
        Ok(self.fault_send(command, &[])? as u32)
    }

    /// The rules and what has come of them: JSON, an array of `{"rule": {...}, "matched": n, "hits": n}`.
    ///
    /// # Errors
    /// As [`Device::add_faults`].
    pub fn faults(&self) -> Result<String> {
        self.supported(self.admin(|controller| fault_text(controller, FaultText::List)))
    }

    fn fault_send(&self, command: Sqe, data: &[u8]) -> Result<u64> {
        let sent = self.admin(|controller| Ok(controller.admin_send(command, data)?.result));
        match sent {
            Err(Error::Device { status, .. }) if status.kind() == Status::INVALID_FIELD => {
                let words = self.admin(|controller| fault_text(controller, FaultText::LastError))?;
                Err(Error::Argument(format!("{}: faults: {words}", self.name())))
            }
            other => self.supported(other),
        }
    }

    fn supported<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error {
            Error::Device { status, .. } if status.kind() == Status::INVALID_OPCODE => Error::Unsupported {
                name: self.name().to_owned(),
                reason: "it takes no rules for faults; virtual devices do".to_owned(),
            },
            other => other,
        })
    }
}

fn fault_text(controller: &Controller, text: FaultText) -> std::result::Result<String, DriverError> {
    let mut room = LIST_BYTES;
    loop {
        let (done, mut data) =
            controller.admin_receive(FaultReceive { text, bytes: room }.encode(), room as usize)?;
        let bytes = (done.result as u32).min(TEXT_BYTES_MAX);
        if bytes > room {
            room = bytes;
            continue;
        }
        data.truncate(bytes as usize);
        return String::from_utf8(data)
            .map_err(|_| DriverError::Protocol("Fault Receive: the text is not UTF-8".to_owned()));
    }
}

//! Fault Send and Fault Receive: a vendor's admin commands with which a host has an `unvme` device fail by
//! script.
//!
//! | | Fault Send (C1h) | Fault Receive (C2h) |
//! |---|---|---|
//! | data, UTF-8 | to the controller: rules | from the controller: text, no zero byte at its end |
//! | CDW10 | bytes of the text | bytes of the buffer |
//! | CDW11 | 1 add, 2 clear one, 3 clear all, 4 unplug | 0 list of rules, 1 what was wrong with the last |
//! | CDW12 | add: bit 0, forget the rules when the device is closed; clear one: its number | - |
//! | completion dword 0 | rules added or cleared | bytes of the whole text, however many the buffer took |
//! | completion dword 1 | number of the first rule added | - |

use crate::Sqe;
pub use crate::command::table::fault as opcode;

/// Most bytes of text that one command moves.
pub const TEXT_BYTES_MAX: u32 = 1 << 20;

/// What Fault Send does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultSend {
    /// Add the rules in so many bytes of text.
    Add {
        /// Bytes of the text.
        bytes: u32,
        /// They end with the device's process; all others are part of its saved state.
        passing: bool,
    },
    /// Clear the rule with this number.
    Clear(u32),
    /// Clear all rules.
    ClearAll,
    /// Unplug the device, when this command has been answered: all its controllers are gone, as after a rule
    /// that unplugs.
    Unplug,
    /// An operation this crate does not know.
    Unknown(u32),
}

impl FaultSend {
    /// Reads a submission queue entry with the opcode [`opcode::SEND`].
    pub const fn parse(sqe: &Sqe) -> Self {
        match sqe.cdw11 {
            1 => Self::Add { bytes: sqe.cdw10, passing: sqe.cdw12 & 1 != 0 },
            2 => Self::Clear(sqe.cdw12),
            3 => Self::ClearAll,
            4 => Self::Unplug,
            other => Self::Unknown(other),
        }
    }

    /// Writes opcode and command dwords; command identifier and data pointer are the queue's to fill in.
    pub fn encode(self) -> Sqe {
        let (cdw10, cdw11, cdw12) = match self {
            Self::Add { bytes, passing } => (bytes, 1, passing as u32),
            Self::Clear(id) => (0, 2, id),
            Self::ClearAll => (0, 3, 0),
            Self::Unplug => (0, 4, 0),
            Self::Unknown(operation) => (0, operation, 0),
        };
        Sqe { opcode: opcode::SEND, cdw10, cdw11, cdw12, ..Sqe::default() }
    }
}

/// What Fault Receive returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultText {
    /// The rules, with what has come of them.
    List,
    /// What was wrong with the last Fault Send.
    LastError,
    /// Something this crate does not know.
    Unknown(u32),
}

/// Fault Receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultReceive {
    /// Which text.
    pub text: FaultText,
    /// Bytes of the buffer.
    pub bytes: u32,
}

impl FaultReceive {
    /// Reads a submission queue entry with the opcode [`opcode::RECEIVE`].
    pub const fn parse(sqe: &Sqe) -> Self {
        let text = match sqe.cdw11 {
            0 => FaultText::List,
            1 => FaultText::LastError,
            other => FaultText::Unknown(other),
        };
        Self { text, bytes: sqe.cdw10 }
    }

    /// Writes opcode and command dwords; command identifier and data pointer are the queue's to fill in.
    pub fn encode(self) -> Sqe {
        let cdw11 = match self.text {
            FaultText::List => 0,
            FaultText::LastError => 1,
            FaultText::Unknown(other) => other,
        };
        Sqe { opcode: opcode::RECEIVE, cdw10: self.bytes, cdw11, ..Sqe::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_where_they_are_documented() {
        let words = |sqe: Sqe| (sqe.opcode, sqe.cdw10, sqe.cdw11, sqe.cdw12);
        for (send, expected) in [
            (FaultSend::Add { bytes: 77, passing: false }, (0xc1, 77, 1, 0)),
            (FaultSend::Add { bytes: 78, passing: true }, (0xc1, 78, 1, 1)),
            (FaultSend::Clear(9), (0xc1, 0, 2, 9)),
            (FaultSend::ClearAll, (0xc1, 0, 3, 0)),
            (FaultSend::Unplug, (0xc1, 0, 4, 0)),
            (FaultSend::Unknown(5), (0xc1, 0, 5, 0)),
        ] {
            assert_eq!(words(send.encode()), expected);
            assert_eq!(FaultSend::parse(&send.encode()), send);
        }
        for (text, cdw11) in [(FaultText::List, 0), (FaultText::LastError, 1), (FaultText::Unknown(2), 2)] {
            let receive = FaultReceive { text, bytes: 4096 };
            assert_eq!(words(receive.encode()), (0xc2, 4096, cdw11, 0));
            assert_eq!(FaultReceive::parse(&receive.encode()), receive);
        }
    }
}

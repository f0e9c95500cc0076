//! Claim Send and Claim Receive: a vendor's admin commands with which a host keeps all others from changing
//! a namespace of an `unvme` device, for as long as its controller is enabled.
//!
//! | | Claim Send (C5h) | Claim Receive (C6h) |
//! |---|---|---|
//! | namespace | the one that is claimed | the one asked about, or FFFFFFFFh for all |
//! | data, UTF-8 | to the controller: who claims it, in words | from the controller: a line for each claim |
//! | CDW10 | bytes of the words | bytes of the buffer |
//! | CDW11 | 1 claim alone, 2 claim with others, 3 release | - |
//! | completion dword 0 | - | bytes of the whole text, however many the buffer took |
//!
//! While a namespace is claimed alone, no other controller changes its contents, format or existence; while
//! it is claimed with others, no controller does. Commands that would are Reservation Conflict, and so is a
//! claim that the existing ones do not admit. A claim ends with its release, with a reset of its controller
//! and with the controller. A controller that knows these commands has [`SIGNATURE`] in its Identify data.

use crate::Sqe;
pub use crate::command::table::claim as opcode;
use crate::identify::IdentifyController;

/// First bytes of the vendor specific part of Identify Controller of a device that has these commands.
pub const SIGNATURE: &[u8; 16] = b"unvme claims 1\0\0";

/// Most bytes of words that say who claims a namespace.
pub const HOLDER_BYTES_MAX: u32 = 256;

/// Most bytes of the text that Claim Receive returns.
pub const TEXT_BYTES_MAX: u32 = 1 << 20;

/// Whether a controller has the commands of this module.
pub fn is_supported(identify: &IdentifyController) -> bool {
    identify.vs.starts_with(SIGNATURE)
}

/// What Claim Send does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimSend {
    /// Claim the namespace: this controller alone changes it.
    Alone {
        /// Bytes of the words that say who claims it.
        bytes: u32,
    },
    /// Claim the namespace with others: no controller changes it.
    WithOthers {
        /// Bytes of the words that say who claims it.
        bytes: u32,
    },
    /// Release one claim of this controller on the namespace.
    Release,
    /// An operation this crate does not know.
    Unknown(u32),
}

impl ClaimSend {
    /// Reads a submission queue entry with the opcode [`opcode::SEND`].
    pub const fn parse(sqe: &Sqe) -> Self {
        match sqe.cdw11 {
            1 => Self::Alone { bytes: sqe.cdw10 },
            2 => Self::WithOthers { bytes: sqe.cdw10 },
            3 => Self::Release,
            other => Self::Unknown(other),
        }
    }

    /// Writes opcode, namespace and command dwords; command identifier and data pointer are the queue's to
    /// fill in.
    pub fn encode(self, nsid: u32) -> Sqe {
        let (cdw10, cdw11) = match self {
            Self::Alone { bytes } => (bytes, 1),
            Self::WithOthers { bytes } => (bytes, 2),
            Self::Release => (0, 3),
            Self::Unknown(operation) => (0, operation),
        };
        Sqe { opcode: opcode::SEND, nsid, cdw10, cdw11, ..Sqe::default() }
    }
}

/// The entry of Claim Receive, for a buffer of `bytes` bytes.
pub fn receive(nsid: u32, bytes: u32) -> Sqe {
    Sqe { opcode: opcode::RECEIVE, nsid, cdw10: bytes, ..Sqe::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_where_they_are_documented() {
        for (send, expected) in [
            (ClaimSend::Alone { bytes: 20 }, (0xc5, 7, 20, 1)),
            (ClaimSend::WithOthers { bytes: 21 }, (0xc5, 7, 21, 2)),
            (ClaimSend::Release, (0xc5, 7, 0, 3)),
            (ClaimSend::Unknown(4), (0xc5, 7, 0, 4)),
        ] {
            let sqe = send.encode(7);
            assert_eq!((sqe.opcode, sqe.nsid, sqe.cdw10, sqe.cdw11), expected);
            assert_eq!(ClaimSend::parse(&sqe), send);
        }
        let sqe = receive(u32::MAX, 4096);
        assert_eq!((sqe.opcode, sqe.nsid, sqe.cdw10, sqe.cdw11), (0xc6, u32::MAX, 4096, 0));
    }
}

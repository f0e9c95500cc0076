//! Why a connection ends, and what the host is told of it.

use std::fmt;
use std::io;

use unvme_spec::tcp::fatal_error;

/// A fatal transport error: what the Terminate Request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// FES, see [`fatal_error`].
    pub status: u16,
    /// FEI: the byte offset of the field that is wrong, or the digest that was received; 0 where nothing is
    /// said.
    pub information: u32,
}

impl Fatal {
    pub(super) const SEQUENCE: Self = Self { status: fatal_error::SEQUENCE_ERROR, information: 0 };
    pub(super) const OUT_OF_RANGE: Self = Self { status: fatal_error::DATA_OUT_OF_RANGE, information: 0 };
    pub(super) const LIMIT: Self = Self { status: fatal_error::LIMIT_EXCEEDED, information: 0 };

    /// A field of the header, by its byte offset.
    pub(super) const fn field(offset: u32) -> Self {
        Self { status: fatal_error::INVALID_HEADER_FIELD, information: offset }
    }

    /// A parameter that is not supported, by its byte offset.
    pub(super) const fn unsupported(offset: u32) -> Self {
        Self { status: fatal_error::UNSUPPORTED_PARAMETER, information: offset }
    }

    /// The header digest that was received and is not that of the header.
    pub(super) const fn digest(received: u32) -> Self {
        Self { status: fatal_error::HEADER_DIGEST_ERROR, information: received }
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match fatal_error::name(self.status, true) {
            Some(name) => write!(f, "{name} ({:#x})", self.information),
            None => write!(f, "fatal error {:#x} ({:#x})", self.status, self.information),
        }
    }
}

/// What a host was too slow with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Late {
    /// Its ICReq.
    Greeting,
    /// Its Connect.
    Connect,
    /// The rest of a PDU, data that it was asked for, or taking what is sent to it.
    Stalled,
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The host has closed the stream.
    Closed,
    /// The socket has failed.
    Socket(io::ErrorKind),
    /// The host has sent a Terminate Request with this status.
    TerminatedByHost(u16),
    /// The host has broken the protocol, and was told so.
    Fatal(Fatal),
    /// The host was too slow.
    Late(Late),
    /// The queue has ended: the host has disconnected, its keep alive timer has run out, its controller is
    /// gone.
    Queue,
    /// The server stops.
    Stopped,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed by the host"),
            Self::Socket(kind) => write!(f, "socket: {kind}"),
            Self::TerminatedByHost(status) => match fatal_error::name(*status, false) {
                Some(name) => write!(f, "terminated by the host: {name}"),
                None => write!(f, "terminated by the host: fatal error {status:#x}"),
            },
            Self::Fatal(fatal) => write!(f, "terminated: {fatal}"),
            Self::Late(Late::Greeting) => f.write_str("no ICReq in time"),
            Self::Late(Late::Connect) => f.write_str("no Connect in time"),
            Self::Late(Late::Stalled) => f.write_str("no byte has moved for too long"),
            Self::Queue => f.write_str("the queue has ended"),
            Self::Stopped => f.write_str("the server stops"),
        }
    }
}

//! NVMe over Fabrics: capsules that are no commands of a local controller, and the Discovery log page (Base
//! 3.3.2, 6, 5.1.12.3).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout,
    little_endian::{U16, U64},
};

pub use crate::command::table::fabrics as fctype;
use crate::{Qid, Sqe, Status, admin};

/// NQN of the discovery service that every host knows (Base 4.7).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Most bytes of an NVMe Qualified Name, without the terminating zero (Base 4.7).
pub const NQN_BYTES_MAX: usize = 223;
/// CNTLID in the Connect data of a host that takes any controller (dynamic controller model, Base 3.1.3).
pub const CNTLID_DYNAMIC: u16 = 0xffff;
/// CNTLID of a host that takes any controller with the state it has (static controller model).
pub const CNTLID_STATIC: u16 = 0xfffe;

/// Statuses of Fabrics commands: their codes have other meanings in other command sets (Base figure 105).
pub mod status {
    use super::Status;

    /// Incompatible Format: the record format is not supported.
    pub const INCOMPATIBLE_FORMAT: Status = Status::new(1, 0x80);
    /// Controller Busy: it is associated with a host, or there is no room for another.
    pub const CONTROLLER_BUSY: Status = Status::new(1, 0x81);
    /// Connect Invalid Parameters: dword 0 of the result says which.
    pub const CONNECT_INVALID_PARAMETERS: Status = Status::new(1, 0x82);
    /// Connect Restart Discovery: what the Discovery log page said is out of date.
    pub const CONNECT_RESTART_DISCOVERY: Status = Status::new(1, 0x83);
    /// Connect Invalid Host: the host may not enter.
    pub const CONNECT_INVALID_HOST: Status = Status::new(1, 0x84);
    /// Invalid Queue Type: a queue of this kind cannot be deleted.
    pub const INVALID_QUEUE_TYPE: Status = Status::new(1, 0x85);
    /// Discover Restart: the log page has changed while it was read.
    pub const DISCOVER_RESTART: Status = Status::new(1, 0x90);
    /// Authentication Required.
    pub const AUTHENTICATION_REQUIRED: Status = Status::new(1, 0x91);

    /// The specification's name of a status of a Fabrics command.
    pub const fn name(status: Status) -> Option<&'static str> {
        Some(match status.kind() {
            INCOMPATIBLE_FORMAT => "Incompatible Format",
            CONTROLLER_BUSY => "Controller Busy",
            CONNECT_INVALID_PARAMETERS => "Connect Invalid Parameters",
            CONNECT_RESTART_DISCOVERY => "Connect Restart Discovery",
            CONNECT_INVALID_HOST => "Connect Invalid Host",
            INVALID_QUEUE_TYPE => "Invalid Queue Type",
            DISCOVER_RESTART => "Discover Restart",
            AUTHENTICATION_REQUIRED => "Authentication Required",
            _ => return status.name(),
        })
    }
}

/// Connect (Base 6.3). Its data is [`ConnectData`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connect {
    /// RECFMT: format of the entry and of its data; 0.
    pub record_format: u16,
    /// Queue that this connection is to be.
    pub qid: Qid,
    /// SQSIZE: entries of the queue, zero-based.
    pub sqsize_z: u16,
    /// CATTR: attributes.
    pub attributes: u8,
    /// KATO in milliseconds; 0 disables the Keep Alive Timer. Reserved for I/O queues.
    pub keep_alive_ms: u32,
}

impl Connect {
    /// CATTR: SQ flow control is not used, and SQHD of completions is reserved.
    pub const DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;
    /// CATTR: the host uses Individual I/O Queue Deletion.
    pub const INDIVIDUAL_QUEUE_DELETION: u8 = 1 << 3;
}

/// Property Get or Set: a register of the controller (Base 6.5, 6.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Property {
    /// Byte offset of the property, as in [`crate::regs::offset`].
    pub offset: u32,
    /// 8 bytes rather than 4. `None` for an ATTRIB that is reserved.
    pub is_wide: Option<bool>,
    /// Value to set; 0 in Property Get.
    pub value: u64,
}

/// Authentication Send or Receive (Base 6.1, 6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// SECP: E9h for NVMe.
    pub security_protocol: u8,
    /// SPSP0: 01h.
    pub specific_0: u8,
    /// SPSP1: 01h.
    pub specific_1: u8,
    /// TL or AL: bytes of data.
    pub bytes: u32,
}

/// A Fabrics command, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Property Set.
    PropertySet(Property),
    /// Connect.
    Connect(Connect),
    /// Property Get; its `value` is 0.
    PropertyGet(Property),
    /// Authentication Send.
    AuthenticationSend(Authentication),
    /// Authentication Receive.
    AuthenticationReceive(Authentication),
    /// Disconnect, with RECFMT.
    Disconnect {
        /// Format of the entry; 0.
        record_format: u16,
    },
    /// Any other type.
    Unknown(u8),
}

impl Command {
    /// FCTYPE of an entry whose opcode is [`admin::opcode::FABRICS`].
    pub const fn fctype(sqe: &Sqe) -> u8 {
        sqe.nsid as u8
    }

    /// Understands an entry whose opcode is [`admin::opcode::FABRICS`].
    pub const fn parse(sqe: &Sqe) -> Self {
        let property = Property {
            offset: sqe.cdw11,
            is_wide: match sqe.cdw10 & 7 {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            },
            value: sqe.cdw12 as u64 | (sqe.cdw13 as u64) << 32,
        };
        let [_, specific_0, specific_1, security_protocol] = sqe.cdw10.to_le_bytes();
        let authentication = Authentication { security_protocol, specific_0, specific_1, bytes: sqe.cdw11 };
        match Self::fctype(sqe) {
            fctype::PROPERTY_SET => Self::PropertySet(property),
            fctype::PROPERTY_GET => Self::PropertyGet(Property { value: 0, ..property }),
            fctype::CONNECT => Self::Connect(Connect {
                record_format: sqe.cdw10 as u16,
                qid: Qid((sqe.cdw10 >> 16) as u16),
                sqsize_z: sqe.cdw11 as u16,
                attributes: (sqe.cdw11 >> 16) as u8,
                keep_alive_ms: sqe.cdw12,
            }),
            fctype::AUTHENTICATION_SEND => Self::AuthenticationSend(authentication),
            fctype::AUTHENTICATION_RECEIVE => Self::AuthenticationReceive(authentication),
            fctype::DISCONNECT => Self::Disconnect { record_format: sqe.cdw10 as u16 },
            other => Self::Unknown(other),
        }
    }

    /// The entry of this command; its command identifier and data pointer are 0.
    pub const fn encode(&self) -> Sqe {
        let (fctype, cdw10, cdw11, cdw12, cdw13) = match *self {
            Self::PropertySet(it) => {
                (fctype::PROPERTY_SET, attribute(it), it.offset, it.value as u32, (it.value >> 32) as u32)
            }
            Self::PropertyGet(it) => (fctype::PROPERTY_GET, attribute(it), it.offset, 0, 0),
            Self::Connect(it) => (
                fctype::CONNECT,
                it.record_format as u32 | (it.qid.0 as u32) << 16,
                it.sqsize_z as u32 | (it.attributes as u32) << 16,
                it.keep_alive_ms,
                0,
            ),
            Self::AuthenticationSend(it) => (fctype::AUTHENTICATION_SEND, security(it), it.bytes, 0, 0),
            Self::AuthenticationReceive(it) => (fctype::AUTHENTICATION_RECEIVE, security(it), it.bytes, 0, 0),
            Self::Disconnect { record_format } => (fctype::DISCONNECT, record_format as u32, 0, 0, 0),
            Self::Unknown(fctype) => (fctype, 0, 0, 0, 0),
        };
        Sqe {
            opcode: admin::opcode::FABRICS,
            flags: 0x40,
            cid: 0,
            nsid: fctype as u32,
            cdw2: 0,
            cdw3: 0,
            mptr: 0,
            dptr: [0; 2],
            cdw10,
            cdw11,
            cdw12,
            cdw13,
            cdw14: 0,
            cdw15: 0,
        }
    }
}

const fn attribute(property: Property) -> u32 {
    match property.is_wide {
        Some(true) => 1,
        Some(false) => 0,
        None => 7,
    }
}

const fn security(it: Authentication) -> u32 {
    u32::from_le_bytes([0, it.specific_0, it.specific_1, it.security_protocol])
}

/// Data of Connect: 1024 bytes (Base figure 546).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ConnectData {
    /// Host Identifier.
    pub hostid: [u8; 16],
    /// Controller to connect to, or [`CNTLID_DYNAMIC`] or [`CNTLID_STATIC`].
    pub cntlid: U16,
    _reserved18: [u8; 238],
    /// NQN of the subsystem, terminated by a zero.
    pub subnqn: [u8; 256],
    /// NQN of the host, terminated by a zero.
    pub hostnqn: [u8; 256],
    _reserved768: [u8; 256],
}

layout!(ConnectData, 1024, { cntlid: 16, subnqn: 256, hostnqn: 512 });

/// Result of a Connect that succeeded: dword 0 of the completion (Base figure 548).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connected {
    /// Controller of the association.
    pub cntlid: u16,
    /// ATR: the host authenticates by Authentication Send and Receive before anything else.
    pub must_authenticate: bool,
    /// ASCR: it does so on a channel that is secure.
    pub must_authenticate_securely: bool,
}

impl Connected {
    /// From dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            cntlid: dword as u16,
            must_authenticate: dword & 1 << 17 != 0,
            must_authenticate_securely: dword & 1 << 18 != 0,
        }
    }

    /// Dword 0.
    pub const fn to_dword(self) -> u32 {
        self.cntlid as u32
            | (self.must_authenticate as u32) << 17
            | (self.must_authenticate_securely as u32) << 18
    }
}

/// Which parameter of Connect is invalid: dword 0 of the completion with Connect Invalid Parameters (Base
/// figure 547).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InvalidParameter {
    /// In the data, rather than in the entry.
    pub in_data: bool,
    /// IPO: byte offset of the parameter there.
    pub offset: u16,
}

impl InvalidParameter {
    /// From dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        Self { in_data: dword & 1 << 16 != 0, offset: dword as u16 }
    }

    /// Dword 0.
    pub const fn to_dword(self) -> u32 {
        self.offset as u32 | (self.in_data as u32) << 16
    }
}

/// The text of a name that ends at the first zero; `None` when there is none within `bytes`, when it is empty
/// or longer than [`NQN_BYTES_MAX`], or not UTF-8.
pub fn nqn(bytes: &[u8; 256]) -> Option<&str> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let text = core::str::from_utf8(bytes.get(..end)?).ok()?;
    (!text.is_empty() && text.len() <= NQN_BYTES_MAX).then_some(text)
}

/// A name as its 256 bytes; `None` when it is longer than [`NQN_BYTES_MAX`].
pub fn nqn_bytes(name: &str) -> Option<[u8; 256]> {
    let mut bytes = [0; 256];
    if name.len() > NQN_BYTES_MAX {
        return None;
    }
    bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    Some(bytes)
}

codes! {
    /// Transport types: TRTYPE.
    pub mod trtype: u8 {
        RDMA = 1, "RDMA";
        FIBRE_CHANNEL = 2, "Fibre Channel";
        TCP = 3, "TCP";
        LOOP = 254, "Inside one host";
    }

    /// Address families: ADRFAM.
    pub mod adrfam: u8 {
        IPV4 = 1, "IPv4";
        IPV6 = 2, "IPv6";
    }

    /// Subsystem types: SUBTYPE.
    pub mod subtype: u8 {
        REFERRAL = 1, "Referral: another discovery service";
        NVM = 2, "A subsystem with namespaces";
        CURRENT_DISCOVERY = 3, "This discovery service";
    }

    /// Transport requirements: TREQ.
    pub mod treq: u8 {
        NOT_SPECIFIED = 0, "Nothing is said about a secure channel";
        SECURE_CHANNEL_REQUIRED = 1, "A secure channel is required";
        SECURE_CHANNEL_NOT_REQUIRED = 2, "A secure channel is not required";
        DISABLE_SQ_FLOW_CONTROL = 1 << 2, "The controller can do without SQ flow control";
    }

    /// Security of NVMe/TCP: SECTYPE, byte 0 of TSAS (TCP Transport figure 5).
    pub mod sectype: u8 {
        NONE = 0, "None";
        TLS_1_2 = 1, "TLS 1.2 or later; obsolete";
        TLS_1_3 = 2, "TLS 1.3 or later";
    }
}

/// Head of the Discovery log page: 1024 bytes (Base figure 294).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// Generation counter: changes with the page.
    pub genctr: U64,
    /// Number of records.
    pub numrec: U64,
    /// Record format: 0.
    pub recfmt: U16,
    _reserved18: [u8; 1006],
}

layout!(DiscoveryHeader, 1024, { numrec: 8, recfmt: 16 });

/// A record of the Discovery log page: 1024 bytes (Base figure 295).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DiscoveryRecord {
    /// Transport, see [`trtype`].
    pub trtype: u8,
    /// Address family, see [`adrfam`].
    pub adrfam: u8,
    /// Kind of subsystem, see [`subtype`].
    pub subtype: u8,
    /// Transport requirements, see [`treq`].
    pub treq: u8,
    /// Port of the subsystem.
    pub portid: U16,
    /// Controller, or [`CNTLID_DYNAMIC`] or [`CNTLID_STATIC`].
    pub cntlid: U16,
    /// Most entries of the admin queue.
    pub asqsz: U16,
    /// Flags of the entry.
    pub eflags: U16,
    _reserved12: [u8; 20],
    /// Transport service: a port number in ASCII, padded with blanks or zeroes.
    pub trsvcid: [u8; 32],
    _reserved64: [u8; 192],
    /// NQN of the subsystem, terminated by a zero.
    pub subnqn: [u8; 256],
    /// Address in ASCII, padded with blanks or zeroes.
    pub traddr: [u8; 256],
    /// What the transport has to say; for TCP [`sectype`] in byte 0.
    pub tsas: [u8; 256],
}

layout!(DiscoveryRecord, 1024, { trsvcid: 32, subnqn: 256, traddr: 512, tsas: 768 });

//! Directives (Base 8.1.8): what a write is told about its data, and which kinds a namespace understands.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Nsid, Sqe, admin, fdp::PlacementId};

codes! {
    /// Directive Types (Base figure 562).
    pub mod dtype: u8 {
        IDENTIFY = 0x00, "Identify: about directives themselves. In a write: no directive";
        STREAMS = 0x01, "Streams";
        DATA_PLACEMENT = 0x02, "Data Placement: DSPEC is a placement identifier";
    }

    /// Directive Operations of the Identify directive.
    pub mod identify_operation: u8 {
        RETURN_PARAMETERS = 0x01, "Directive Receive: Return Parameters, [`super::IdentifyParameters`]";
        ENABLE_DIRECTIVE = 0x01,
            "Directive Send: Enable Directive, with [`super::EnableDirective`] in command dword 12";
    }
}

/// Directive of a write: DTYPE in bits 23:20 of command dword 12, DSPEC in bits 31:16 of command dword 13.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directive {
    /// Directive Type, 4 bits, see [`dtype`]; 0 is a write without a directive.
    pub dtype: u8,
    /// Directive Specific.
    pub dspec: u16,
}

const DTYPE_SHIFT: u32 = 20;
const DTYPE_MASK: u32 = 0xf;
const DSPEC_SHIFT: u32 = 16;

impl Directive {
    /// The Data Placement directive for `pid`.
    pub const fn placement(pid: PlacementId) -> Self {
        Self { dtype: dtype::DATA_PLACEMENT, dspec: pid.0 }
    }

    /// The placement identifier, when the directive is Data Placement.
    #[inline]
    pub const fn placement_id(self) -> Option<PlacementId> {
        if self.dtype == dtype::DATA_PLACEMENT { Some(PlacementId(self.dspec)) } else { None }
    }
}

impl Sqe {
    /// Directive of a write, or of another command that has one at this place.
    #[inline]
    pub const fn directive(&self) -> Directive {
        Directive {
            dtype: (self.cdw12 >> DTYPE_SHIFT & DTYPE_MASK) as u8,
            dspec: (self.cdw13 >> DSPEC_SHIFT) as u16,
        }
    }

    /// Sets the directive of a write. The low half of command dword 13 stays.
    #[inline]
    pub const fn set_directive(&mut self, directive: Directive) {
        let dtype = (directive.dtype as u32 & DTYPE_MASK) << DTYPE_SHIFT;
        self.cdw12 = self.cdw12 & !(DTYPE_MASK << DTYPE_SHIFT) | dtype;
        self.cdw13 = self.cdw13 & 0xffff | (directive.dspec as u32) << DSPEC_SHIFT;
    }
}

/// Directive Receive (Base 5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectiveReceive {
    /// Namespace, or [`Nsid::ALL`].
    pub nsid: Nsid,
    /// Length of the transfer in dwords, 1 to 2^32.
    pub dwords: u64,
    /// Directive Operation; its meaning depends on the type.
    pub operation: u8,
    /// Directive Type, see [`dtype`].
    pub dtype: u8,
    /// Directive Specific.
    pub dspec: u16,
    /// Command dword 12, whose meaning depends on type and operation.
    pub cdw12: u32,
}

/// Directive Send (Base 5.1.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectiveSend {
    /// Namespace, or [`Nsid::ALL`].
    pub nsid: Nsid,
    /// Length of the transfer in dwords, 1 to 2^32, for operations that have data.
    pub dwords: u64,
    /// Directive Operation; its meaning depends on the type.
    pub operation: u8,
    /// Directive Type, see [`dtype`].
    pub dtype: u8,
    /// Directive Specific.
    pub dspec: u16,
    /// Command dword 12, whose meaning depends on type and operation; see [`EnableDirective`].
    pub cdw12: u32,
}

const fn dwords(sqe: &Sqe) -> u64 {
    sqe.cdw10 as u64 + 1
}

const fn cdw11(operation: u8, dtype: u8, dspec: u16) -> u32 {
    operation as u32 | (dtype as u32) << 8 | (dspec as u32) << 16
}

impl DirectiveReceive {
    /// Length of the transfer in bytes.
    pub const fn bytes(&self) -> u64 {
        self.dwords * 4
    }

    pub(crate) const fn parse(sqe: &Sqe) -> Self {
        let [operation, dtype, low, high] = sqe.cdw11.to_le_bytes();
        let dspec = u16::from_le_bytes([low, high]);
        Self { nsid: Nsid(sqe.nsid), dwords: dwords(sqe), operation, dtype, dspec, cdw12: sqe.cdw12 }
    }

    pub(crate) fn encode(self) -> Sqe {
        Sqe {
            opcode: admin::opcode::DIRECTIVE_RECEIVE,
            nsid: self.nsid.0,
            cdw10: self.dwords.wrapping_sub(1) as u32,
            cdw11: cdw11(self.operation, self.dtype, self.dspec),
            cdw12: self.cdw12,
            ..Sqe::default()
        }
    }
}

impl DirectiveSend {
    /// Length of the transfer in bytes, for operations that have data.
    pub const fn bytes(&self) -> u64 {
        self.dwords * 4
    }

    pub(crate) const fn parse(sqe: &Sqe) -> Self {
        let DirectiveReceive { nsid, dwords, operation, dtype, dspec, cdw12 } = DirectiveReceive::parse(sqe);
        Self { nsid, dwords, operation, dtype, dspec, cdw12 }
    }

    pub(crate) fn encode(self) -> Sqe {
        let Self { nsid, dwords, operation, dtype, dspec, cdw12 } = self;
        let receive = DirectiveReceive { nsid, dwords, operation, dtype, dspec, cdw12 };
        Sqe { opcode: admin::opcode::DIRECTIVE_SEND, ..receive.encode() }
    }
}

/// Command dword 12 of Enable Directive, an operation of the Identify directive.
#[bitfield_struct::bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct EnableDirective {
    /// ENDIR: enable the directive rather than disable it.
    pub enable: bool,
    #[bits(7)]
    __: u8,
    /// TDTYPE: the directive's type, see [`dtype`].
    pub target: u8,
    __: u16,
}

/// Parameters of the Identify directive (Base 8.1.8.2.1): 4096 bytes. Each field is a set of bits by
/// directive type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IdentifyParameters {
    /// Directives Supported.
    pub supported: DirectiveSet,
    /// Directives Enabled.
    pub enabled: DirectiveSet,
    /// Directives Persistent Across Controller Level Resets.
    pub persistent: DirectiveSet,
    _reserved96: [u8; 4000],
}

layout!(IdentifyParameters, 4096, { enabled: 32, persistent: 64 });

/// A bit for each of the 256 directive types: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DirectiveSet([u8; 32]);

layout!(DirectiveSet, 32, {});

impl DirectiveSet {
    /// The set of `types`.
    pub fn of(types: &[u8]) -> Self {
        let mut set = Self::default();
        for &dtype in types {
            // A directive type has 8 bits: the byte's index has 5 of them.
            set.0[usize::from(dtype >> 3)] |= 1 << (dtype & 7);
        }
        set
    }

    /// The directive type is in the set.
    pub const fn contains(&self, dtype: u8) -> bool {
        self.0[(dtype >> 3) as usize] & 1 << (dtype & 7) != 0
    }
}

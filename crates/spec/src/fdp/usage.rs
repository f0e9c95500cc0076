//! Reclaim Unit Handle Usage, log page 21h, and FDP Statistics, log page 22h (Base 5.1.12.1.29, 5.1.12.1.30).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, little_endian::U128};

/// Header of log page 21h: 8 bytes, followed by a [`RuhUsage`] per reclaim unit handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RuhUsageHeader {
    /// Number of Reclaim Unit Handles.
    pub nruh: u16,
    _reserved2: [u8; 6],
}

layout!(RuhUsageHeader, 8, { nruh: 0 });

impl RuhUsageHeader {
    /// A header of `nruh` handles.
    pub const fn new(nruh: u16) -> Self {
        Self { nruh, _reserved2: [0; 6] }
    }
}

open_codes! {
    /// Reclaim Unit Handle Attributes: who chose that a handle is used.
    #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable)]
    #[repr(transparent)]
    pub struct RuhUse(u8), "attribute" {
        /// No namespace uses the handle.
        UNUSED = 0, "Unused";
        /// A host named it in the list of placement handles of a namespace.
        HOST_SPECIFIED = 1, "Host Specified";
        /// The controller chose it for a namespace that was created without such a list.
        CONTROLLER_SPECIFIED = 2, "Controller Specified";
    }
}

/// Reclaim Unit Handle Usage Descriptor: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RuhUsage {
    /// Reclaim Unit Handle Attributes.
    pub ruha: RuhUse,
    _reserved1: [u8; 7],
}

layout!(RuhUsage, 8, { ruha: 0 });

impl RuhUsage {
    /// A handle that is used as `ruha` says.
    pub const fn new(ruha: RuhUse) -> Self {
        Self { ruha, _reserved1: [0; 7] }
    }
}

/// The descriptors of log page 21h in `bytes`, by reclaim unit handle: as many as the header says and the
/// bytes hold. `None` when they are too short for the header.
pub fn ruh_usages(bytes: &[u8]) -> Option<impl Iterator<Item = RuhUsage> + '_> {
    let (header, rest) = RuhUsageHeader::read_from_prefix(bytes).ok()?;
    Some(super::entries(rest, usize::from(header.nruh)))
}

/// FDP Statistics, log page 22h: 64 bytes. The counters are of an endurance group, in bytes, since FDP was
/// enabled.
///
/// Write amplification over a time is what MBMW grew by, divided by what HBMW grew by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Statistics {
    /// Host Bytes with Metadata Written.
    pub hbmw: U128,
    /// Media Bytes with Metadata Written: for the host and to move data.
    pub mbmw: U128,
    /// Media Bytes Erased.
    pub mbe: U128,
    _reserved48: [u8; 16],
}

layout!(Statistics, 64, { mbmw: 16, mbe: 32 });

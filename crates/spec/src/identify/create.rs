//! What the host says when it creates a namespace (Namespace Management; NVM 4.1.6).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Host software specified fields of a namespace of the NVM Command Set: 4096 bytes. Offsets are those of
/// [`super::IdentifyNamespace`] as far as 383.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NamespaceCreate {
    /// Namespace Size in logical blocks.
    pub nsze: u64,
    /// Namespace Capacity in logical blocks.
    pub ncap: u64,
    _reserved16: [u8; 10],
    /// Formatted LBA Size: index of the format in bits 3:0 and 6:5, bit 4 metadata at the end of the block.
    pub flbas: u8,
    _reserved27: [u8; 2],
    /// End-to-end Data Protection Type Settings.
    pub dps: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities: bit 0 shared.
    pub nmic: u8,
    _reserved31: [u8; 61],
    /// ANA Group Identifier; 0 lets the controller choose.
    pub anagrpid: u32,
    _reserved96: [u8; 4],
    /// NVM Set Identifier; 0 lets the controller choose.
    pub nvmsetid: u16,
    /// Endurance Group Identifier; 0 lets the controller choose.
    pub endgid: u16,
    _reserved104: [u8; 280],
    /// Logical Block Storage Tag Mask.
    pub lbstm: u64,
    /// Number of Placement Handles.
    pub nphndls: u16,
    _reserved394: [u8; 118],
    /// Placement Handle Associated RUH, `nphndls` of them.
    pub phndl: [u16; 128],
    _reserved768: [u8; 3328],
}

layout!(NamespaceCreate, 4096, {
    flbas: 26, dps: 29, nmic: 30, anagrpid: 92, nvmsetid: 100, endgid: 102, lbstm: 384, nphndls: 392, phndl: 512,
});

impl NamespaceCreate {
    /// Index into the controller's LBA formats, 6 bits.
    pub const fn format_index(&self) -> u8 {
        self.flbas & 0xf | (self.flbas >> 5 & 3) << 4
    }
}

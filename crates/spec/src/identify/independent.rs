//! I/O Command Set Independent Identify Namespace (CNS 08h; Base figure 319).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What is known of a namespace whatever its command set: 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IndependentNamespace {
    /// Common Namespace Features: bit 3 identifiers are never reused, bit 4 rotational media, bit 5 VWCNP.
    pub nsfeat: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities: bit 0 shared.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator: bit 7 supported, bits 6:0 percent left.
    pub fpi: u8,
    /// ANA Group Identifier.
    pub anagrpid: u32,
    /// Namespace Attributes: bit 0 write protected.
    pub nsattr: u8,
    _reserved9: u8,
    /// NVM Set Identifier.
    pub nvmsetid: u16,
    /// Endurance Group Identifier.
    pub endgid: u16,
    /// Namespace Status, see [`nstat`].
    pub nstat: u8,
    /// Key Per I/O Status.
    pub kpios: u8,
    /// Maximum Key Tag.
    pub maxkt: u16,
    _reserved18: [u8; 2],
    /// Reachability Group Identifier.
    pub rgrpid: u32,
    _reserved24: [u8; 4072],
}

layout!(IndependentNamespace, 4096, { anagrpid: 4, nvmsetid: 10, nstat: 14, maxkt: 16, rgrpid: 20 });

/// Bits of NSTAT, Namespace Status.
pub mod nstat {
    /// The namespace is ready.
    pub const READY: u8 = 1 << 0;
}

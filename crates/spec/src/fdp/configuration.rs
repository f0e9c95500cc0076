//! FDP Configurations, log page 20h (Base 5.1.12.1.28): what an endurance group can be made of.

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most reclaim unit handles a namespace can be given: entries of the list in
/// [`crate::identify::NamespaceCreate`].
pub const RUH_MAX: usize = 128;

/// Header of the log page: 16 bytes, followed by the descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ConfigurationsHeader {
    /// Number of FDP Configurations, zero-based.
    pub n_z: u16,
    /// Version of the log page: 0.
    pub version: u8,
    _reserved3: u8,
    /// Bytes of the whole log page, header included.
    pub size: u32,
    _reserved8: [u8; 8],
}

layout!(ConfigurationsHeader, 16, { version: 2, size: 4 });

/// FDP Attributes of a configuration.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Fdpa {
    /// Reclaim Group Identifier Format, see [`super::Rgif`].
    #[bits(4)]
    pub rgif: u8,
    /// FDPVWC: there is a volatile write cache in this configuration.
    pub volatile_write_cache: bool,
    #[bits(2)]
    __: u8,
    /// The configuration is valid: the FDP feature can choose it.
    pub valid: bool,
}

/// One configuration: 64 bytes, followed by `nruh` [`RuhDescriptor`]s and vendor specific bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ConfigurationDescriptor {
    /// Descriptor Size in bytes, what follows included; a multiple of 8.
    pub dsze: u16,
    /// FDP Attributes.
    pub fdpa: Fdpa,
    /// Vendor Specific Size: bytes behind the reclaim unit handle descriptors.
    pub vss: u8,
    /// Number of Reclaim Groups.
    pub nrg: u32,
    /// Number of Reclaim Unit Handles.
    pub nruh: u16,
    /// Max Placement Identifiers: how many of them a Reclaim Unit Handle Update can list, zero-based.
    pub maxpids_z: u16,
    /// Number of Namespaces Supported; 0 means no limit of its own.
    pub nnss: u32,
    /// Reclaim Unit Nominal Size in bytes.
    pub runs: u64,
    /// Estimated Reclaim Unit Time Limit in seconds; 0 means none.
    pub erutl: u32,
    _reserved28: [u8; 36],
}

layout!(ConfigurationDescriptor, 64, { fdpa: 2, nrg: 4, nruh: 8, maxpids_z: 10, nnss: 12, runs: 16, erutl: 24 });

open_codes! {
    /// Reclaim Unit Handle Type: what garbage collection may mix.
    #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable)]
    #[repr(transparent)]
    pub struct RuhType(u8), "type" {
        /// Data that is moved may share a reclaim unit with data of other handles.
        INITIALLY_ISOLATED = 1, "Initially Isolated";
        /// Data that is moved stays apart from other handles'.
        PERSISTENTLY_ISOLATED = 2, "Persistently Isolated";
    }
}

/// Reclaim Unit Handle Descriptor: 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RuhDescriptor {
    /// Reclaim Unit Handle Type.
    pub ruht: RuhType,
    _reserved1: [u8; 3],
}

layout!(RuhDescriptor, 4, { ruht: 0 });

impl RuhDescriptor {
    /// A handle of type `ruht`.
    pub const fn new(ruht: RuhType) -> Self {
        Self { ruht, _reserved1: [0; 3] }
    }
}

/// A configuration with its handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration<'a> {
    /// The fixed part.
    pub descriptor: ConfigurationDescriptor,
    /// The reclaim unit handles, `nruh` of them.
    pub handles: &'a [RuhDescriptor],
}

impl Configuration<'_> {
    /// Bytes of the descriptor with its handles, padded to a multiple of 8; `None` beyond what DSZE can say.
    pub const fn bytes(&self) -> Option<u16> {
        let handles = self.handles.len().saturating_mul(size_of::<RuhDescriptor>());
        let bytes = handles.saturating_add(size_of::<ConfigurationDescriptor>()).saturating_add(7) & !7;
        if bytes <= u16::MAX as usize { Some(bytes as u16) } else { None }
    }
}

/// Reader of the log page.
#[derive(Clone, Debug)]
pub struct Configurations<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Configurations<'a> {
    /// A reader of the log page in `bytes`; `None` when they are too short for the header.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = ConfigurationsHeader::read_from_prefix(bytes).ok()?;
        Some(Self { rest, left: u32::from(header.n_z).saturating_add(1) })
    }

    /// Configurations that the header announces and that have not been read yet.
    pub const fn left(&self) -> u32 {
        self.left
    }
}

impl<'a> Iterator for Configurations<'a> {
    type Item = Configuration<'a>;

    /// The next configuration; `None` behind the last, and at one that is cut short or contradicts itself.
    fn next(&mut self) -> Option<Self::Item> {
        self.left.checked_sub(1)?;
        let (descriptor, _) = ConfigurationDescriptor::read_from_prefix(self.rest).ok()?;
        let (whole, rest) = self.rest.split_at_checked(usize::from(descriptor.dsze))?;
        let behind = whole.get(size_of::<ConfigurationDescriptor>()..)?;
        let (handles, _) =
            <[RuhDescriptor]>::ref_from_prefix_with_elems(behind, usize::from(descriptor.nruh)).ok()?;
        (self.rest, self.left) = (rest, self.left.saturating_sub(1));
        Some(Configuration { descriptor, handles })
    }
}

/// Writes the log page into `out`, with DSZE, NRUH and VSS of each descriptor from the handles it has, and
/// returns its length in bytes. `None`, and nothing that can be used in `out`, when it does not fit there or
/// there is no configuration to write.
pub fn write_configurations(configurations: &[Configuration<'_>], out: &mut [u8]) -> Option<usize> {
    let n_z = u16::try_from(configurations.len().checked_sub(1)?).ok()?;
    let mut at = size_of::<ConfigurationsHeader>();
    for configuration in configurations {
        let dsze = configuration.bytes()?;
        let end = at.checked_add(usize::from(dsze))?;
        let place = out.get_mut(at..end)?;
        place.fill(0);
        let nruh = u16::try_from(configuration.handles.len()).ok()?;
        let descriptor = ConfigurationDescriptor { dsze, vss: 0, nruh, ..configuration.descriptor };
        let (fixed, behind) = place.split_at_mut_checked(size_of::<ConfigurationDescriptor>())?;
        descriptor.write_to(fixed).ok()?;
        configuration.handles.write_to_prefix(behind).ok()?;
        at = end;
    }
    let header = ConfigurationsHeader { n_z, size: u32::try_from(at).ok()?, ..Default::default() };
    header.write_to_prefix(out).ok()?;
    Some(at)
}

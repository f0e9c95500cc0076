//! Namespace Identification Descriptors (CNS 03h; Base figure 315).
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::IDENTIFY_BYTES;

codes! {
    /// Namespace Identifier Types.
    pub mod nidt: u8 {
        EUI64 = 1, "IEEE Extended Unique Identifier, 8 bytes";
        NGUID = 2, "Namespace Globally Unique Identifier, 16 bytes";
        UUID = 3, "Namespace UUID, 16 bytes (RFC 9562)";
        CSI = 4, "Command Set Identifier, 1 byte";
    }
}

const HEADER_BYTES: usize = 4;

/// One identifier of a namespace. Identifiers are most significant byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceIdDescriptor<'a> {
    /// IEEE Extended Unique Identifier.
    Eui64([u8; 8]),
    /// Namespace Globally Unique Identifier.
    Nguid([u8; 16]),
    /// Namespace UUID.
    Uuid([u8; 16]),
    /// Command Set Identifier, see [`super::csi`].
    Csi(u8),
    /// A type this crate does not know, or a known one of the wrong length.
    Unknown {
        /// NIDT.
        kind: u8,
        /// NID.
        identifier: &'a [u8],
    },
}

impl<'a> NamespaceIdDescriptor<'a> {
    fn new(kind: u8, identifier: &'a [u8]) -> Self {
        let unknown = Self::Unknown { kind, identifier };
        match kind {
            nidt::EUI64 => identifier.try_into().map_or(unknown, Self::Eui64),
            nidt::NGUID => identifier.try_into().map_or(unknown, Self::Nguid),
            nidt::UUID => identifier.try_into().map_or(unknown, Self::Uuid),
            nidt::CSI => match identifier {
                [csi] => Self::Csi(*csi),
                _ => unknown,
            },
            _ => unknown,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Eui64(_) => nidt::EUI64,
            Self::Nguid(_) => nidt::NGUID,
            Self::Uuid(_) => nidt::UUID,
            Self::Csi(_) => nidt::CSI,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    fn identifier(&self) -> &[u8] {
        match self {
            Self::Eui64(identifier) => identifier,
            Self::Nguid(identifier) | Self::Uuid(identifier) => identifier,
            Self::Csi(csi) => core::slice::from_ref(csi),
            Self::Unknown { identifier, .. } => identifier,
        }
    }
}

/// Writes a descriptor list. `None` when the descriptors do not fit in 4096 bytes, or one is empty or longer
/// than 255 bytes.
pub fn write_descriptors(descriptors: &[NamespaceIdDescriptor<'_>]) -> Option<[u8; IDENTIFY_BYTES]> {
    let mut list = [0; IDENTIFY_BYTES];
    let mut rest = list.as_mut_slice();
    for descriptor in descriptors {
        let identifier = descriptor.identifier();
        let length = u8::try_from(identifier.len()).ok().filter(|&length| length != 0)?;
        let (header, after) = rest.split_first_chunk_mut::<HEADER_BYTES>()?;
        *header = [descriptor.kind(), length, 0, 0];
        let (body, after) = after.split_at_mut_checked(identifier.len())?;
        body.copy_from_slice(identifier);
        rest = after;
    }
    Some(list)
}

/// The descriptors of a list that the other side wrote. A zero length or a descriptor that does not fit ends
/// it.
#[derive(Clone, Debug)]
pub struct DescriptorIter<'a> {
    rest: &'a [u8],
}

impl<'a> DescriptorIter<'a> {
    /// Reads the list in `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for DescriptorIter<'a> {
    type Item = NamespaceIdDescriptor<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&[kind, length, _, _], after) = self.rest.split_first_chunk::<HEADER_BYTES>()?;
        if length == 0 {
            return None;
        }
        let (identifier, after) = after.split_at_checked(usize::from(length))?;
        self.rest = after;
        Some(NamespaceIdDescriptor::new(kind, identifier))
    }
}

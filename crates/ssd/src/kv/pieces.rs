//! How a big value is cut, and what says where its pieces are: `docs/disk-format.md` as code.
//!
//! Everything read here may be damaged: nothing is assumed about it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{BLOCK_BYTES, EXTENT_DATA_BYTES};
use super::{KEYSPACES, VALUE_BYTES_MAX};

/// What says where the pieces of a big value are is a block of its own before the rest of the value.
pub(super) const MANIFEST_BYTES: usize = BLOCK_BYTES;
/// Offset in the manifest of the length that a compressed value has when it is not.
const PLAIN_BYTES_AT: usize = MANIFEST_BYTES - 4;
const EXTENTS_MAX: usize = VALUE_BYTES_MAX as usize / EXTENT_DATA_BYTES + 1;
/// Data of a value in one part.
pub(super) const PART_DATA_BYTES: usize = 14 * BLOCK_BYTES;
/// Keyspace of the keys that parts are found by; no host has it.
pub(super) const PART_KEYSPACE: u8 = KEYSPACES;
/// The value's number and the part's.
pub(super) const PART_KEY_BYTES: usize = 12;

const _: () = assert!(EXTENTS_MAX * size_of::<ExtentEntry>() + size_of::<ManifestHead>() <= PLAIN_BYTES_AT);

/// An extent in a big value's manifest.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ExtentEntry {
    pub(super) segment: U32,
    pub(super) nonce: U32,
    /// Checksum of the extent's block checksums.
    pub(super) checks: U64,
}

/// The first bytes of a manifest.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ManifestHead {
    /// What the value's parts are found by; no other value has it.
    pub(super) value: U64,
    /// Entries of the list of extents, which follows.
    pub(super) extents: U32,
    pub(super) parts: U32,
}

/// Where a big value is.
#[derive(Clone, Debug, Default)]
pub(super) struct Manifest {
    /// What its parts are found by.
    pub(super) value: u64,
    pub(super) extents: Vec<ExtentEntry>,
    pub(super) parts: usize,
    /// Length of a value of which the pieces are its compressed form; 0 for one that is not compressed.
    pub(super) plain_bytes: u32,
}

impl Manifest {
    /// The block that is on the media.
    pub(super) fn encode(&self) -> [u8; MANIFEST_BYTES] {
        let mut block = [0; MANIFEST_BYTES];
        let head = ManifestHead {
            value: self.value.into(),
            extents: (self.extents.len() as u32).into(),
            parts: (self.parts as u32).into(),
        };
        for (to, from) in block.iter_mut().zip(head.as_bytes().iter().chain(self.extents.as_bytes())) {
            *to = *from;
        }
        if let Some(last) = block.last_chunk_mut() {
            *last = self.plain_bytes.to_le_bytes();
        }
        block
    }

    /// What a block says; `None` when it is not the manifest of a value of that length, or compressed length.
    pub(super) fn read(block: &[u8], value_bytes: u32) -> Option<Self> {
        let (head, rest) = ManifestHead::ref_from_prefix(block).ok()?;
        let pieces = Pieces::of(value_bytes);
        if (head.extents.get() as usize, head.parts.get() as usize) != (pieces.extents, pieces.parts) {
            return None;
        }
        let list = rest.get(..pieces.extents.checked_mul(size_of::<ExtentEntry>())?)?;
        let extents = <[ExtentEntry]>::ref_from_bytes(list).ok()?.to_vec();
        let plain_bytes = u32::from_le_bytes(block.get(PLAIN_BYTES_AT..)?.try_into().ok()?);
        Some(Self { value: head.value.get(), extents, parts: pieces.parts, plain_bytes })
    }
}

/// A rest that would fill an extent but for this has one.
pub(super) const EXTENT_LEFT_BYTES_MAX: usize = 92 << 10;

/// How a big value is cut: extents, then parts, and what is left of it is kept beside its manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    pub(super) extents: usize,
    pub(super) parts: usize,
    /// Bytes beside the manifest.
    pub(super) rest: usize,
}

impl Pieces {
    /// The pieces of a value of so many bytes.
    pub(super) fn of(value_bytes: u32) -> Self {
        let bytes = value_bytes as usize;
        let (full, left) = (bytes / EXTENT_DATA_BYTES, bytes % EXTENT_DATA_BYTES);
        if left >= EXTENT_DATA_BYTES.saturating_sub(EXTENT_LEFT_BYTES_MAX) {
            return Self { extents: full.saturating_add(1), parts: 0, rest: 0 };
        }
        Self { extents: full, parts: left / PART_DATA_BYTES, rest: left % PART_DATA_BYTES }
    }

    /// Bytes of the value before its parts begin.
    pub(super) fn in_extents(&self) -> usize {
        self.extents.saturating_mul(EXTENT_DATA_BYTES)
    }

    /// Bytes of the value in parts.
    pub(super) fn in_parts(&self) -> usize {
        self.parts.saturating_mul(PART_DATA_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_cut_into_extents_parts_and_a_rest() {
        let (extent, part) = (2_093_056, 57_344);
        for (value, extents, parts, rest) in [
            (0, 0, 0, 0),
            (part - 1, 0, 0, 57_343),
            (part, 0, 1, 0),
            (1 << 20, 0, 18, 16_384),
            (extent - 94_209, 0, 34, 49_151),
            (extent - 94_208, 1, 0, 0),
            (extent, 1, 0, 0),
            (extent + part + 1, 1, 1, 1),
        ] {
            assert_eq!(Pieces::of(value), Pieces { extents, parts, rest }, "{value}");
        }
        assert_eq!(Pieces::of(VALUE_BYTES_MAX), Pieces { extents: 128, parts: 9, rest: 8192 });
        for value in (0..VALUE_BYTES_MAX).step_by(12_347) {
            let pieces = Pieces::of(value);
            let bytes = pieces.in_extents() + pieces.in_parts() + pieces.rest;
            assert!(bytes >= value as usize && bytes - value as usize <= EXTENT_LEFT_BYTES_MAX);
            assert!(bytes == value as usize || (pieces.parts, pieces.rest) == (0, 0));
        }
    }

    #[test]
    fn a_manifest_is_that_of_a_value_of_its_length() {
        let entry = ExtentEntry { segment: 7.into(), nonce: 8.into(), checks: 9.into() };
        let manifest = Manifest { value: 5, extents: vec![entry], parts: 1, plain_bytes: 0x0102_0304 };
        let block = manifest.encode();
        assert_eq!(block[4090..], [0, 0, 4, 3, 2, 1]);
        let read = Manifest::read(&block, 2_093_056 + 57_344).unwrap();
        assert_eq!((read.value, read.parts, read.extents[0].as_bytes()), (5, 1, entry.as_bytes()));
        assert_eq!(read.plain_bytes, manifest.plain_bytes);
        assert!(Manifest::read(&block, 57_344).is_none());
        assert!(Manifest::read(&block[..20], 2_093_056 + 57_344).is_none());
    }
}

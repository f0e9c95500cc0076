//! How much of a store checksums of blocks take, behind the data.

use super::CHUNK_BYTES;

/// What has a checksum.
pub(crate) const SECTOR_BYTES: usize = 512;
/// Bytes of a checksum.
pub(crate) const ENTRY_BYTES: u64 = 4;

/// Bytes of the area of checksums of media of so many bytes: a chunk for header and marks, and the entries.
pub(crate) fn area_bytes(capacity: u64) -> u64 {
    CHUNK_BYTES + (capacity / SECTOR_BYTES as u64 * ENTRY_BYTES).next_multiple_of(CHUNK_BYTES)
}

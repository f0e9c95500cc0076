//! Values too big for a segment: whole segments of their own, the extents, and a record with the list of
//! them.
//!
//! An extent is never moved. It belongs to the record that lists it, wherever reclaim moves that, and goes
//! when it dies.

use zerocopy::IntoBytes;

use super::layout::{
    BLOCK_BYTES, DATA_START, EXTENT_BLOCKS, EXTENT_CHECKS_AT, EXTENT_DATA_BYTES, ExtentEntry, SegmentKind,
    extents_of,
};
use super::record::Block;
use super::segment::{Purpose, State};
use super::{KvError, KvStore, checksum};

impl KvStore {
    /// Writes the part of a big value that is kept in extents, from `read`, and lists them in `extents`; on
    /// an error too, those that were taken.
    pub(super) fn write_extents(
        &self,
        value_bytes: u32,
        block: &mut Block,
        mut read: impl FnMut(&mut [u8]),
        extents: &mut Vec<ExtentEntry>,
    ) -> Result<(), KvError> {
        for number in 0..extents_of(value_bytes) {
            let segment = self.take_segment(Purpose::Host, State::Extent)?;
            self.start_segment(segment, SegmentKind::Extent);
            let nonce = self.segments.pool().segment(segment).nonce;
            let bytes = EXTENT_DATA_BYTES.min(value_bytes as usize - number * EXTENT_DATA_BYTES);
            let checks = self.write_extent(segment, bytes, block, &mut read);
            self.program_extent(segment, bytes);
            extents.push(ExtentEntry { segment: segment.into(), nonce: nonce.into(), checks: checks.into() });
        }
        Ok(())
    }

    /// Fills an extent; returns the checksum of its checksums.
    fn write_extent(
        &self,
        segment: u32,
        bytes: usize,
        block: &mut Block,
        read: &mut impl FnMut(&mut [u8]),
    ) -> u64 {
        let base = self.segments.base(segment) as usize;
        let mut checks = [0u8; EXTENT_BLOCKS * 4];
        for (number, check) in checks.chunks_exact_mut(4).enumerate() {
            let start = number * BLOCK_BYTES;
            if start >= bytes {
                break;
            }
            let buffer = &mut block.0[..BLOCK_BYTES.min(bytes - start)];
            read(buffer);
            check.copy_from_slice(&checksum::of_block(buffer).to_le_bytes());
            self.memory.write_uncached(base + DATA_START + start, buffer);
        }
        self.memory.write(base + EXTENT_CHECKS_AT, &checks);
        checksum::of_metadata(self.segments.identity.secret, checks.as_bytes())
    }

    /// Extents whose record is dead, or has never come to be.
    pub(super) fn retire_extents(&self, extents: &[ExtentEntry]) {
        let mut pool = self.segments.pool();
        for extent in extents {
            // A manifest that was damaged and passed its checksum must not free what is not its own.
            let number = extent.segment.get();
            if pool.segment(number).state == State::Extent && pool.segment(number).nonce == extent.nonce.get()
            {
                pool.quarantine(number);
            }
        }
    }
}

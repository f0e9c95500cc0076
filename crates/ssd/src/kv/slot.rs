//! What the index knows about a key: where its newest record is, and how many older ones there still are.

use super::layout::{RECORD_ALIGNMENT, RecordKind};

/// A slot's word. Zero is no slot: the media begins with a segment header, never with a record.
///
/// | bits | |
/// |---|---|
/// | 0..46 | media offset of the record / 16 |
/// | 46 | the record is a tombstone |
/// | 47 | the record is a part of a value, not a pair |
/// | 48..52 | lines of the record to prefetch; 15 for 15 and more |
/// | 52..64 | older records of the key on the media; [`OLDER_MAX`]: see the shard's table of large counts |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u64);

const PLACE_BITS: u32 = 46;
const TOMBSTONE: u64 = 1 << PLACE_BITS;
const PART: u64 = 1 << 47;
const LINES_AT: u32 = 48;
const LINES_MASK: u64 = 15;
const OLDER_AT: u32 = 52;
/// Largest count of older records that fits.
pub(super) const OLDER_MAX: u64 = (1 << (64 - OLDER_AT)) - 1;

/// Hint for records of at least this many lines.
pub(super) const LINES_MANY: usize = LINES_MASK as usize;

impl Slot {
    /// A slot without older records.
    #[inline]
    pub(super) fn new(place: u64, record_bytes: usize, kind: RecordKind) -> Self {
        let lines = (record_bytes / 64 + 1).min(LINES_MANY) as u64;
        let mark = match kind {
            RecordKind::Value | RecordKind::Big => 0,
            RecordKind::Tombstone => TOMBSTONE,
            RecordKind::Part => PART,
        };
        Self((place / RECORD_ALIGNMENT as u64) | mark | lines << LINES_AT)
    }

    /// Media offset of the record.
    #[inline]
    pub(super) fn place(self) -> u64 {
        (self.0 & (TOMBSTONE - 1)) * RECORD_ALIGNMENT as u64
    }

    #[inline]
    pub(super) fn is_tombstone(self) -> bool {
        self.0 & TOMBSTONE != 0
    }

    /// True for a part of a value, which is no pair.
    #[inline]
    pub(super) fn is_part(self) -> bool {
        self.0 & PART != 0
    }

    /// Lines worth fetching ahead.
    #[inline]
    pub(super) fn lines(self) -> usize {
        (self.0 >> LINES_AT & LINES_MASK) as usize
    }

    #[inline]
    pub(super) fn older(self) -> u64 {
        self.0 >> OLDER_AT
    }

    #[inline]
    pub(super) fn with_older(self, older: u64) -> Self {
        Self(self.0 & ((1 << OLDER_AT) - 1) | older.min(OLDER_MAX) << OLDER_AT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_keeps_the_largest_numbers() {
        let place = (1 << 50) - 16;
        let slot = Slot::new(place, 1 << 21, RecordKind::Tombstone).with_older(OLDER_MAX);
        assert_eq!((slot.place(), slot.is_tombstone(), slot.is_part()), (place, true, false));
        assert_eq!((slot.lines(), slot.older()), (15, 4095));
        let part = Slot::new(place, 1 << 21, RecordKind::Part).with_older(OLDER_MAX);
        assert_eq!((part.place(), part.is_tombstone(), part.is_part()), (place, false, true));
        assert_eq!(Slot::new(48, 48, RecordKind::Value).0, 3 | 1 << 48);
    }
}

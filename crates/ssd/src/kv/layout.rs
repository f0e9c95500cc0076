//! What is on the media: `docs/disk-format.md` as code.
//!
//! Everything read here may be damaged: nothing is assumed about it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use unvme_bus::random;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::pieces::{MANIFEST_BYTES, PART_DATA_BYTES, PART_KEY_BYTES, PART_KEYSPACE};
use super::{KEY_BYTES_MAX, KEYSPACES, VALUE_BYTES_MAX, checksum};
use crate::store::CHUNK_BYTES;

/// Version of the format. Another one is refused.
pub(super) const FORMAT_VERSION: u32 = 4;

/// A segment is a chunk of the namespace.
pub(super) const SEGMENT_BYTES: usize = CHUNK_BYTES as usize;
/// The first page of a segment describes it; records, or an extent's data, begin behind it.
pub(super) const DATA_START: usize = 4096;
/// Offsets of the two copies of the segment header.
pub(super) const HEADER_AT: [usize; 2] = [0, DATA_START - size_of::<SegmentHeader>()];
/// Offset of the store's superblock, in the segments that have one.
pub(super) const SUPERBLOCK_AT: usize = 64;
/// Offset of the end of the last record whose command was completed, as [`tail_word`] has it.
pub(super) const TAIL_AT: usize = 192;
/// Offset of an extent's block checksums.
pub(super) const EXTENT_CHECKS_AT: usize = 256;
/// Offset of the directory: what the segments of a group are, in the segments that have one.
pub(super) const DIRECTORY_AT: usize = 2304;
/// Segments of a group: as many entries have room in a first page.
pub(super) const GROUP_SEGMENTS: usize = (HEADER_AT[1] - DIRECTORY_AT) / size_of::<DirectoryEntry>();
/// Offset of a sealed log segment's trailer; the summary ends there.
pub(super) const TRAILER_AT: usize = SEGMENT_BYTES - size_of::<Trailer>();

/// A value has a checksum per this many bytes.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Data of a value in one extent.
pub(super) const EXTENT_DATA_BYTES: usize = SEGMENT_BYTES - DATA_START;
pub(super) const EXTENT_BLOCKS: usize = EXTENT_DATA_BYTES / BLOCK_BYTES;

/// Records begin at multiples of this.
pub(super) const RECORD_ALIGNMENT: usize = 16;
/// Values of at least a block begin at a cache line.
pub(super) const LINE_BYTES: usize = 64;
pub(super) const HEAD_BYTES_MIN: usize = size_of::<RecordHeader>();
const BLOCKS_MAX: usize = EXTENT_BLOCKS;
/// Header, key and checksums of the longest record.
pub(super) const HEAD_BYTES_MAX: usize = HEAD_BYTES_MIN + (KEY_BYTES_MAX + 1) + 4 * BLOCKS_MAX;

const SEGMENT_MAGIC: [u8; 8] = *b"UNVMEKV\n";
const SUPERBLOCK_MAGIC: [u8; 8] = *b"UNVMEKVP";
const TRAILER_MAGIC: [u8; 8] = *b"UNVMEKVS";

// Sizes are what the offsets above were made for.
const _: () = assert!(size_of::<SegmentHeader>() == 64 && size_of::<Trailer>() == 64);
const _: () = assert!(size_of::<RecordHeader>() == 32 && size_of::<SummaryEntry>() == 16);
const _: () = assert!(size_of::<Superblock>() == 72 && size_of::<DirectoryEntry>() == 32);
const _: () = assert!(SUPERBLOCK_AT + size_of::<Superblock>() <= TAIL_AT);
const _: () = assert!(EXTENT_CHECKS_AT + 4 * EXTENT_BLOCKS <= DIRECTORY_AT);
const _: () = assert!(DIRECTORY_AT + GROUP_SEGMENTS * size_of::<DirectoryEntry>() <= HEADER_AT[1]);

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentKind {
    /// Nothing: it can be used for anything.
    Free,
    /// Records.
    Log,
    /// A part of one value.
    Extent,
}

impl SegmentKind {
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::Free => 1,
            Self::Log => 2,
            Self::Extent => 3,
        }
    }

    pub(super) const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Free),
            2 => Some(Self::Log),
            3 => Some(Self::Extent),
            _ => None,
        }
    }
}

/// The first bytes of each segment that has ever been used, twice.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SegmentHeader {
    magic: [u8; 8],
    version: U32,
    kind: U32,
    /// Which store this is a segment of: a new number at each format.
    pub(super) store: U64,
    /// Seed of the store's checksums.
    pub(super) secret: U64,
    /// Grows with each use of any segment.
    pub(super) incarnation: U64,
    /// What the records of this use of the segment are known by.
    pub(super) nonce: U32,
    pub(super) index: U32,
    pub(super) segments: U32,
    reserved: U32,
    check: U64,
}

/// What the first page of a segment says.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeaderRead {
    /// A header of this version.
    Valid(SegmentKind, SegmentHeader),
    /// A header of another version.
    Version(u32),
    /// No header.
    Nothing,
}

/// Identity of a store; in each of its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) store: u64,
    pub(super) secret: u64,
    pub(super) segments: u32,
}

impl SegmentHeader {
    pub(super) fn new(
        kind: SegmentKind,
        identity: Identity,
        index: u32,
        incarnation: u64,
        nonce: u32,
    ) -> Self {
        let mut header = Self {
            magic: SEGMENT_MAGIC,
            version: FORMAT_VERSION.into(),
            kind: kind.number().into(),
            store: identity.store.into(),
            secret: identity.secret.into(),
            incarnation: incarnation.into(),
            nonce: nonce.into(),
            index: index.into(),
            segments: identity.segments.into(),
            reserved: 0.into(),
            check: 0.into(),
        };
        header.check = header.checksum().into();
        header
    }

    fn checksum(&self) -> u64 {
        checksum::of_metadata(0, self.as_bytes().get(..56).unwrap_or_default())
    }

    pub(super) fn identity(&self) -> Identity {
        Identity { store: self.store.get(), secret: self.secret.get(), segments: self.segments.get() }
    }

    /// One copy of a header. The version is looked at alone: of another one nothing else is known.
    pub(super) fn read(bytes: &[u8]) -> HeaderRead {
        let Ok((header, _)) = Self::read_from_prefix(bytes) else { return HeaderRead::Nothing };
        if header.magic != SEGMENT_MAGIC {
            return HeaderRead::Nothing;
        }
        let is_intact = header.check.get() == header.checksum();
        if header.version.get() != FORMAT_VERSION {
            // A flipped bit in the version is found by the checksum; a new version's header may be checked
            // otherwise.
            return HeaderRead::Version(header.version.get());
        }
        match SegmentKind::from_number(header.kind.get()) {
            Some(kind) if is_intact => HeaderRead::Valid(kind, header),
            _ => HeaderRead::Nothing,
        }
    }
}

/// Which store it is, and which life of its memory was the last to write to it. Two segments have one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Superblock {
    magic: [u8; 8],
    version: U32,
    segments: U32,
    store: U64,
    secret: U64,
    /// Grows each time; the higher one counts.
    generation: U64,
    /// Random each time: an index is of the moment at which the superblock had this number.
    moment: U64,
    /// What the store under the media said of itself when this one was opened; see `Store::life`.
    pub(super) life: [u8; 16],
    check: U64,
}

impl Superblock {
    pub(super) fn new(identity: Identity, generation: u64, life: Option<[u8; 16]>) -> Self {
        let mut superblock = Self {
            magic: SUPERBLOCK_MAGIC,
            version: FORMAT_VERSION.into(),
            segments: identity.segments.into(),
            store: identity.store.into(),
            secret: identity.secret.into(),
            generation: generation.into(),
            moment: random::number().into(),
            life: life.unwrap_or_default(),
            check: 0.into(),
        };
        superblock.check = superblock.checksum().into();
        superblock
    }

    fn checksum(&self) -> u64 {
        checksum::of_metadata(0, self.as_bytes().get(..64).unwrap_or_default())
    }

    /// One copy of the superblock; `None` when it is damaged, or another version's.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (superblock, _) = Self::read_from_prefix(bytes).ok()?;
        let is_intact = superblock.magic == SUPERBLOCK_MAGIC
            && superblock.version.get() == FORMAT_VERSION
            && superblock.check.get() == superblock.checksum();
        is_intact.then_some(superblock)
    }

    pub(super) fn identity(&self) -> Identity {
        Identity { store: self.store.get(), secret: self.secret.get(), segments: self.segments.get() }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.get()
    }

    pub(super) fn moment(&self) -> u64 {
        self.moment.get()
    }
}

/// What a segment is, as the directory has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) kind: SegmentKind,
    pub(super) incarnation: u64,
    pub(super) nonce: u32,
    /// Offset up to which a sync has covered a log segment's records; [`SEGMENT_BYTES`] when it has covered
    /// all of it, the summary included.
    pub(super) synced_end: u32,
}

/// A segment in the directory.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DirectoryEntry {
    incarnation: U64,
    nonce: U32,
    kind: U32,
    synced_end: U32,
    reserved: U32,
    check: U64,
}

impl DirectoryEntry {
    pub(super) fn new(listed: &Listed, secret: u64, segment: u32) -> Self {
        let mut entry = Self {
            incarnation: listed.incarnation.into(),
            nonce: listed.nonce.into(),
            kind: listed.kind.number().into(),
            synced_end: listed.synced_end.into(),
            reserved: 0.into(),
            check: 0.into(),
        };
        entry.check = entry.checksum(secret, segment).into();
        entry
    }

    /// The segment's number is in it: an entry is not another segment's.
    fn checksum(&self, secret: u64, segment: u32) -> u64 {
        let seed = secret.wrapping_add(u64::from(segment));
        checksum::of_metadata(seed, self.as_bytes().get(..24).unwrap_or_default())
    }

    /// What an entry says; `None` when it is damaged, or there is none.
    pub(super) fn read(bytes: &[u8], secret: u64, segment: u32) -> Option<Listed> {
        let entry = Self::read_from_bytes(bytes).ok()?;
        let listed = Listed {
            kind: SegmentKind::from_number(entry.kind.get())?,
            incarnation: entry.incarnation.get(),
            nonce: entry.nonce.get(),
            synced_end: entry.synced_end.get(),
        };
        (entry.check.get() == entry.checksum(secret, segment)).then_some(listed)
    }
}

/// What is at [`TAIL_AT`] when records end at `end`: in the upper half what tells it from one that is
/// damaged, or of another use of the segment.
#[inline]
pub(super) fn tail_word(end: usize, nonce: u32) -> u64 {
    let end = end as u32;
    u64::from(end) | u64::from(end ^ nonce) << 32
}

/// The end of the records that [`tail_word`] stands for; `None` when it is damaged.
pub(super) fn tail_of(word: u64, nonce: u32) -> Option<usize> {
    let end = word as u32;
    let is_intact = (word >> 32) as u32 == end ^ nonce;
    (is_intact && (DATA_START..=TRAILER_AT).contains(&(end as usize))).then_some(end as usize)
}

/// Where the summary of so many records begins, rounded down to a page: no page of records is a page of their
/// summary, so that one lost page takes no record together with what tells that it was there.
#[inline]
pub(super) const fn summary_start(entries: usize) -> usize {
    TRAILER_AT.saturating_sub(entries.saturating_mul(size_of::<SummaryEntry>()))
        & !(DATA_START.saturating_sub(1))
}

/// The last bytes of a sealed log segment.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Trailer {
    magic: [u8; 8],
    nonce: U32,
    /// Entries of the summary.
    entries: U32,
    /// Offset of the end of the last record.
    end: U32,
    reserved: [U32; 7],
    /// Checksum of the summary.
    summary: U64,
    /// Checksum of what is before it.
    check: U64,
}

impl Trailer {
    pub(super) fn new(secret: u64, nonce: u32, end: usize, summary: &[SummaryEntry]) -> Self {
        let mut trailer = Self {
            magic: TRAILER_MAGIC,
            nonce: nonce.into(),
            entries: (summary.len() as u32).into(),
            end: (end as u32).into(),
            reserved: [0.into(); 7],
            summary: checksum::of_metadata(secret ^ u64::from(nonce), summary.as_bytes()).into(),
            check: 0.into(),
        };
        trailer.check = trailer.checksum(secret).into();
        trailer
    }

    fn checksum(&self, secret: u64) -> u64 {
        checksum::of_metadata(secret, self.as_bytes().get(..56).unwrap_or_default())
    }

    /// The trailer of the segment's present use; `None` when there is none or it is damaged.
    pub(super) fn read(bytes: &[u8], secret: u64, nonce: u32) -> Option<Self> {
        let trailer = Self::read_from_bytes(bytes).ok()?;
        let is_intact = trailer.magic == TRAILER_MAGIC
            && trailer.nonce.get() == nonce
            && trailer.check.get() == trailer.checksum(secret);
        let end = DATA_START.checked_add(trailer.entries().checked_mul(size_of::<SummaryEntry>())?)?;
        (is_intact && end <= TRAILER_AT && trailer.end() <= TRAILER_AT).then_some(trailer)
    }

    /// Number of entries of the summary.
    pub(super) fn entries(&self) -> usize {
        self.entries.get() as usize
    }

    /// Offset of the end of the last record.
    pub(super) fn end(&self) -> usize {
        self.end.get() as usize
    }

    /// True when the summary is as it was written.
    pub(super) fn vouches_for(&self, summary: &[SummaryEntry], secret: u64) -> bool {
        let seed = secret ^ u64::from(self.nonce.get());
        checksum::of_metadata(seed, summary.as_bytes()) == self.summary.get()
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A pair with all of its value.
    Value,
    /// The key has been deleted.
    Tombstone,
    /// A pair with the list of its extents, what its parts are known by, and the rest of its value.
    Big,
    /// A part of a big value.
    Part,
}

impl RecordKind {
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Value => 0,
            Self::Tombstone => 1,
            Self::Big => 2,
            Self::Part => 3,
        }
    }

    pub(super) const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Value),
            1 => Some(Self::Tombstone),
            2 => Some(Self::Big),
            3 => Some(Self::Part),
            _ => None,
        }
    }
}

/// What an entry of a summary stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Record(RecordKind),
    /// Bytes in which nothing was that had been promised.
    Hole,
    /// Bytes in which records were lost that had been promised; whose they were is not known.
    Lost,
}

/// A record in a segment's summary, or (without a hash) bytes that hold none.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SummaryEntry {
    pub(super) hash: U64,
    /// Offset in units of 16 bytes (17 bits), kind and [`ENTRY_TWIN`] (4 bits), sequence number (43 bits).
    word: U64,
}

const ENTRY_KIND_AT: u32 = 17;
const ENTRY_SEQUENCE_AT: u32 = 21;
/// Added to the kind of a record which [may be a twin](RecordHead::may_be_twin).
const ENTRY_TWIN: u64 = 4;
const ENTRY_LOST: u64 = 8;
const ENTRY_HOLE: u64 = 9;

/// Sequence numbers are below this.
pub(super) const SEQUENCE_END: u64 = 1 << (64 - ENTRY_SEQUENCE_AT);

impl SummaryEntry {
    /// An entry for a record at `offset` of its segment.
    #[inline]
    pub(super) fn new(hash: u64, offset: usize, head: &RecordHead) -> Self {
        let twin = if head.may_be_twin { ENTRY_TWIN } else { 0 };
        let kind = u64::from(head.kind.number()) | twin;
        let unit = (offset / RECORD_ALIGNMENT) as u64;
        let word = unit | kind << ENTRY_KIND_AT | head.sequence << ENTRY_SEQUENCE_AT;
        Self { hash: hash.into(), word: word.into() }
    }

    /// An entry for bytes from `offset` on that hold no record.
    pub(super) fn gap(offset: usize, is_lost: bool) -> Self {
        let kind = if is_lost { ENTRY_LOST } else { ENTRY_HOLE };
        let unit = (offset / RECORD_ALIGNMENT) as u64;
        Self { hash: 0.into(), word: (unit | kind << ENTRY_KIND_AT).into() }
    }

    pub(super) fn offset(&self) -> usize {
        ((self.word.get() & 0x1_ffff) as usize).saturating_mul(RECORD_ALIGNMENT)
    }

    fn kind_bits(&self) -> u64 {
        self.word.get() >> ENTRY_KIND_AT & 15
    }

    pub(super) fn kind(&self) -> EntryKind {
        match self.kind_bits() {
            ENTRY_LOST => EntryKind::Lost,
            ENTRY_HOLE.. => EntryKind::Hole,
            kind => match RecordKind::from_number((kind & 3) as u8) {
                Some(kind) => EntryKind::Record(kind),
                None => EntryKind::Hole,
            },
        }
    }

    /// See [`RecordHead::may_be_twin`].
    pub(super) fn may_be_twin(&self) -> bool {
        self.kind_bits() & !3 == ENTRY_TWIN
    }

    /// The record it stands for, if it does.
    pub(super) fn record(&self) -> Option<RecordKind> {
        match self.kind() {
            EntryKind::Record(kind) => Some(kind),
            EntryKind::Hole | EntryKind::Lost => None,
        }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.word.get() >> ENTRY_SEQUENCE_AT
    }
}

/// The first bytes of a record.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RecordHeader {
    /// Of the rest of the header, the key and the block checksums.
    pub(super) check: U64,
    pub(super) sequence: U64,
    /// Bytes of data in the record.
    stored_bytes: U32,
    /// Length of the value.
    value_bytes: U32,
    /// The segment's; what is left of an earlier use of the segment has another one.
    pub(super) nonce: U32,
    key_bytes: u8,
    keyspace: u8,
    kind: u8,
    flags: u8,
}

const FLAG_COMPRESSED: u8 = 1;
const FLAG_TWIN: u8 = 2;

/// Offset of the nonce in a record.
pub(super) const NONCE_AT: usize = 24;

/// What a record's header says, each number within its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHead {
    pub(super) kind: RecordKind,
    pub(super) keyspace: u8,
    pub(super) key_bytes: usize,
    /// Bytes of data in the record.
    pub(super) stored_bytes: usize,
    /// Length of the value; of a big one that is compressed, of its compressed form.
    pub(super) value_bytes: u32,
    pub(super) compressed: bool,
    /// There may be records of another key with the same hash. Of two such keys, all records of the one that
    /// came later say so: where none does, one hash is one key, and nobody has to look at the keys.
    pub(super) may_be_twin: bool,
    pub(super) sequence: u64,
}

impl RecordHead {
    /// `None` for numbers that no record has.
    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, _) = RecordHeader::ref_from_prefix(bytes).ok()?;
        let head = Self {
            kind: RecordKind::from_number(header.kind)?,
            keyspace: header.keyspace,
            key_bytes: usize::from(header.key_bytes),
            stored_bytes: header.stored_bytes.get() as usize,
            value_bytes: header.value_bytes.get(),
            compressed: header.flags & FLAG_COMPRESSED != 0,
            may_be_twin: header.flags & FLAG_TWIN != 0,
            sequence: header.sequence.get(),
        };
        let has_its_shape = match head.kind {
            RecordKind::Part => {
                head == Self { may_be_twin: head.may_be_twin, ..Self::of_part(head.sequence) }
            }
            RecordKind::Big => head.keyspace < KEYSPACES && head.stored_bytes >= MANIFEST_BYTES,
            RecordKind::Value | RecordKind::Tombstone => head.keyspace < KEYSPACES,
        };
        let possible = head.key_bytes > 0
            && head.stored_bytes <= EXTENT_DATA_BYTES
            && head.value_bytes <= VALUE_BYTES_MAX
            && head.sequence < SEQUENCE_END;
        (possible && has_its_shape).then_some(head)
    }

    /// The head of a part: all of them are alike.
    pub(super) const fn of_part(sequence: u64) -> Self {
        Self {
            kind: RecordKind::Part,
            keyspace: PART_KEYSPACE,
            key_bytes: PART_KEY_BYTES,
            stored_bytes: PART_DATA_BYTES,
            value_bytes: PART_DATA_BYTES as u32,
            compressed: false,
            may_be_twin: false,
            sequence,
        }
    }

    /// Writes the header, without its checksum.
    pub(super) fn encode(&self, nonce: u32) -> RecordHeader {
        RecordHeader {
            check: 0.into(),
            sequence: self.sequence.into(),
            stored_bytes: (self.stored_bytes as u32).into(),
            value_bytes: self.value_bytes.into(),
            nonce: nonce.into(),
            key_bytes: self.key_bytes as u8,
            keyspace: self.keyspace,
            kind: self.kind.number(),
            flags: if self.compressed { FLAG_COMPRESSED } else { 0 }
                | if self.may_be_twin { FLAG_TWIN } else { 0 },
        }
    }

    /// Blocks of the record's data.
    #[inline]
    pub(super) fn blocks(&self) -> usize {
        self.stored_bytes.div_ceil(BLOCK_BYTES)
    }

    /// Offset of the block checksums in the record.
    #[inline]
    pub(super) fn checks_at(&self) -> usize {
        HEAD_BYTES_MIN.saturating_add(self.key_bytes.next_multiple_of(4))
    }

    /// Bytes of header, key and checksums.
    #[inline]
    pub(super) fn head_bytes(&self) -> usize {
        self.checks_at().saturating_add(self.blocks().saturating_mul(4))
    }

    /// Bytes of the record: the same wherever it is, so that it can be moved.
    #[inline]
    pub(super) fn record_bytes(&self) -> usize {
        // A head ends at a multiple of 4: the data may begin this much behind it.
        let slack = if self.is_aligned() { LINE_BYTES.saturating_sub(4) } else { 0 };
        self.head_bytes()
            .saturating_add(slack)
            .saturating_add(self.stored_bytes)
            .next_multiple_of(RECORD_ALIGNMENT)
    }

    /// Offset of the data in the segment, for a record at offset `at`.
    #[inline]
    pub(super) fn data_at(&self, at: usize) -> usize {
        let behind = at.saturating_add(self.head_bytes());
        if self.is_aligned() { behind.next_multiple_of(LINE_BYTES) } else { behind }
    }

    #[inline]
    fn is_aligned(&self) -> bool {
        self.stored_bytes >= BLOCK_BYTES
    }

    /// True when the record fits into an empty segment.
    pub(super) fn fits_a_segment(&self) -> bool {
        DATA_START.saturating_add(self.record_bytes()) <= summary_start(1)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::kv::pieces::{EXTENT_LEFT_BYTES_MAX, ExtentEntry, ManifestHead};

    macro_rules! rows {
        ($layout:ty: $($field:ident),+) => {
            [$(format!("| {} | {} |", offset_of!($layout, $field), stringify!($field))),+].to_vec()
        };
    }

    /// The tables of `docs/disk-format.md` begin with an offset and a name; those that the code has must be
    /// there.
    #[test]
    fn the_document_has_the_offsets_of_the_code() {
        let document = include_str!("../../../../docs/disk-format.md");
        let rows = [
            rows!(SegmentHeader: magic, version, kind, store, secret, incarnation, nonce, index, segments, reserved, check),
            rows!(Superblock: magic, version, segments, store, secret, generation, moment, life, check),
            rows!(DirectoryEntry: incarnation, nonce, kind, synced_end, reserved, check),
            rows!(Trailer: magic, nonce, entries, end, reserved, summary, check),
            rows!(RecordHeader: check, sequence, stored_bytes, value_bytes, nonce, key_bytes, keyspace, kind, flags),
            rows!(SummaryEntry: hash, word),
            rows!(ManifestHead: value, extents, parts),
            rows!(ExtentEntry: segment, nonce, checks),
            [PART_DATA_BYTES, EXTENT_DATA_BYTES, EXTENT_DATA_BYTES - EXTENT_LEFT_BYTES_MAX]
                .map(|bytes| bytes.to_string())
                .to_vec(),
            vec![
                format!("| {} | header |", HEADER_AT[0]),
                format!("| {SUPERBLOCK_AT} | superblock |"),
                format!("| {TAIL_AT} | end of the log |"),
                format!("| {DIRECTORY_AT} | directory |"),
                format!("| {EXTENT_CHECKS_AT} | block checksums |"),
                format!("| {} | header, again |", HEADER_AT[1]),
                format!("| {DATA_START} | data |"),
                format!("| {TRAILER_AT} | trailer |"),
                format!("Format version: {FORMAT_VERSION}"),
            ],
        ];
        for row in rows.concat() {
            assert!(document.contains(&row), "docs/disk-format.md lacks: {row}");
        }
    }

    #[test]
    fn numbers_that_no_record_has_are_refused() {
        let head = RecordHead {
            kind: RecordKind::Value,
            keyspace: 1,
            key_bytes: 255,
            stored_bytes: EXTENT_DATA_BYTES,
            value_bytes: VALUE_BYTES_MAX,
            compressed: true,
            may_be_twin: true,
            sequence: SEQUENCE_END - 1,
        };
        let parse = |head: &RecordHead| RecordHead::parse(head.encode(5).as_bytes());
        assert_eq!(parse(&head), Some(head));
        let part = RecordHead { may_be_twin: true, ..RecordHead::of_part(3) };
        assert_eq!(parse(&part), Some(part));
        assert!(head.head_bytes() <= HEAD_BYTES_MAX);
        for wrong in [
            RecordHead { keyspace: 2, ..head },
            RecordHead { key_bytes: 0, ..head },
            RecordHead { stored_bytes: EXTENT_DATA_BYTES + 1, ..head },
            RecordHead { value_bytes: VALUE_BYTES_MAX + 1, ..head },
            RecordHead { kind: RecordKind::Big, stored_bytes: MANIFEST_BYTES - 1, ..head },
            RecordHead { kind: RecordKind::Part, ..head },
            RecordHead { key_bytes: 11, ..RecordHead::of_part(3) },
            RecordHead { keyspace: 0, ..RecordHead::of_part(3) },
            RecordHead { stored_bytes: 4096, ..RecordHead::of_part(3) },
            RecordHead { kind: RecordKind::Value, ..RecordHead::of_part(3) },
            RecordHead { sequence: SEQUENCE_END, ..head },
        ] {
            assert_eq!(parse(&wrong), None, "{wrong:?}");
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(head.encode(5).as_bytes());
        bytes[30] = 4;
        assert_eq!(RecordHead::parse(&bytes), None);
        assert_eq!(RecordHead::parse(&bytes[..31]), None);
    }

    #[test]
    fn a_summary_entry_keeps_the_largest_numbers() {
        let offset = SEGMENT_BYTES - RECORD_ALIGNMENT;
        for (kind, may_be_twin) in [
            (RecordKind::Value, false),
            (RecordKind::Value, true),
            (RecordKind::Tombstone, false),
            (RecordKind::Tombstone, true),
            (RecordKind::Big, false),
            (RecordKind::Big, true),
            (RecordKind::Part, false),
            (RecordKind::Part, true),
        ] {
            let head = RecordHead {
                kind,
                keyspace: 0,
                key_bytes: 1,
                stored_bytes: MANIFEST_BYTES,
                value_bytes: 0,
                compressed: false,
                may_be_twin,
                sequence: SEQUENCE_END - 1,
            };
            let entry = SummaryEntry::new(u64::MAX, offset, &head);
            assert_eq!((entry.offset(), entry.record()), (offset, Some(kind)));
            assert_eq!((entry.sequence(), entry.may_be_twin()), (SEQUENCE_END - 1, may_be_twin));
        }
        for (is_lost, kind) in [(false, EntryKind::Hole), (true, EntryKind::Lost)] {
            let gap = SummaryEntry::gap(offset, is_lost);
            assert_eq!((gap.offset(), gap.kind(), gap.record()), (offset, kind, None));
            assert!(!gap.may_be_twin());
        }
    }

    #[test]
    fn the_end_of_the_log_is_that_of_its_segment_and_of_no_damaged_one() {
        let word = tail_word(4112, 7);
        assert_eq!((tail_of(word, 7), tail_of(word, 8)), (Some(4112), None));
        assert_eq!(tail_of(0, 0), None);
        for bit in 0..64 {
            assert_eq!(tail_of(word ^ 1 << bit, 7), None, "bit {bit}");
        }
    }

    #[test]
    fn no_page_of_records_is_a_page_of_their_summary() {
        assert_eq!((summary_start(1), summary_start(252)), (SEGMENT_BYTES - 4096, SEGMENT_BYTES - 4096));
        assert_eq!(summary_start(253), SEGMENT_BYTES - 8192);
    }

    #[test]
    fn an_entry_of_the_directory_is_its_segments_alone() {
        let listed = Listed { kind: SegmentKind::Log, incarnation: 3, nonce: 4, synced_end: 4096 };
        let entry = DirectoryEntry::new(&listed, 9, 5);
        assert_eq!(DirectoryEntry::read(entry.as_bytes(), 9, 5), Some(listed));
        assert_eq!(DirectoryEntry::read(entry.as_bytes(), 9, 6), None);
        assert_eq!(DirectoryEntry::read(&[0; 32], 9, 5), None);
    }
}

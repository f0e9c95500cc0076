//! Values of which too few fill a segment: cut into pieces.
//!
//! As much as fills them goes to segments of its own, the **extents**. An extent is never moved: it belongs
//! to the record that lists it, wherever reclaim moves that, and goes when it dies. What is left is cut into
//! **parts**, small enough for the segments of the log to be filled with them, and a rest that lies in the
//! value's record beside the list of all of it, the manifest.
//!
//! **Parts** are records like others, and reclaim moves them as it moves those. So the index knows where they
//! are, under keys that no host can have: a number drawn for the value, and the number of the part. Each of
//! these keys has one record, or copies of it, and no value but that is ever found by it.
//!
//! They are written before the record that has the manifest, and go after it. What a process that dies in
//! between leaves is nobody's: opening claims the parts of all values that count, and lets go of all others.
//! They die with their value, and like its record they may come back with it for as long as what superseded
//! it is not durable: see [`super::segment`].

use std::collections::HashSet;

use unvme_bus::mem::order_uncached;
use unvme_bus::random;
use zerocopy::IntoBytes;

use super::append::AppendHead;
use super::index::{Hit, LockedShard};
use super::layout::{
    BLOCK_BYTES, DATA_START, EXTENT_BLOCKS, EXTENT_CHECKS_AT, EXTENT_DATA_BYTES, RecordHead, RecordKind,
    SegmentKind,
};
use super::pieces::{ExtentEntry, MANIFEST_BYTES, Manifest, PART_KEY_BYTES, PART_KEYSPACE, Pieces};
use super::read::Reading;
use super::record::{Block, HeadBuffer, StoredRecord};
use super::segment::{Purpose, SEGMENT_CAPACITY, State, charge};
use super::slot::Slot;
use super::write::{Source, next_sequence};
use super::{Key, KvError, KvStore, VALUE_BYTES_MAX, checksum};
use crate::store::NOWHERE;

/// A key that a part is found by.
#[derive(Clone, Copy)]
struct PartKey([u8; PART_KEY_BYTES]);

impl PartKey {
    fn new(value: u64, number: usize) -> Self {
        let mut bytes = [0; PART_KEY_BYTES];
        let (of_value, of_part) = bytes.split_at_mut(8);
        of_value.copy_from_slice(&value.to_le_bytes());
        of_part.copy_from_slice(&(number as u32).to_le_bytes());
        Self(bytes)
    }
}

/// Capacity that a record takes with all that belongs to it.
pub(super) fn cost_of(head: &RecordHead) -> u64 {
    let record = charge(head.record_bytes());
    if head.kind != RecordKind::Big {
        return record;
    }
    let pieces = Pieces::of(head.value_bytes);
    let part = charge(RecordHead::of_part(0).record_bytes());
    record + pieces.extents as u64 * SEGMENT_CAPACITY + pieces.parts as u64 * part
}

/// The head of the record that a value gets when it is cut, in the form in which it is stored.
pub(super) fn cut(head: &RecordHead) -> RecordHead {
    let value_bytes = head.stored_bytes as u32;
    let stored_bytes = MANIFEST_BYTES + Pieces::of(value_bytes).rest;
    RecordHead { kind: RecordKind::Big, stored_bytes, value_bytes, ..*head }
}

/// True when a value is to be cut: it has to be, or takes less capacity so.
pub(super) fn is_to_be_cut(head: &RecordHead) -> bool {
    /// What is saved is at least one part in so many.
    const WORTH_IT: u64 = 64;
    if !head.fits_a_segment() {
        return true;
    }
    let whole = charge(head.record_bytes());
    // Up to this a record is charged no more than it has.
    whole > head.record_bytes() as u64 + head.stored_bytes as u64 / WORTH_IT
        && cost_of(&cut(head)) < whole - whole / WORTH_IT
}

impl KvStore {
    fn key_of_part<'a>(&self, key: &'a PartKey) -> Key<'a> {
        let hash = checksum::of_key(self.segments.identity.secret, PART_KEYSPACE, &key.0);
        Key { keyspace: PART_KEYSPACE, bytes: &key.0, hash }
    }

    /// The hashes by which the parts of a value are found.
    pub(super) fn hashes_of_parts(&self, manifest: &Manifest) -> impl Iterator<Item = u64> {
        let value = manifest.value;
        (0..manifest.parts).map(move |number| self.key_of_part(&PartKey::new(value, number)).hash)
    }

    /// Writes the pieces of a big value but the rest from `source`, and lists them in `manifest`; on an error
    /// too, those that were written.
    pub(super) fn write_pieces(
        &self,
        value_bytes: u32,
        source: &mut Source<'_>,
        (head_buffer, block): (&mut HeadBuffer, &mut Block),
        (lane, append): (usize, &mut AppendHead),
        manifest: &mut Manifest,
    ) -> Result<(), KvError> {
        let pieces = Pieces::of(value_bytes);
        manifest.value = random::number();
        for number in 0..pieces.extents {
            let segment = self.take_segment(Purpose::Host, State::Extent)?;
            self.start_segment(segment, SegmentKind::Extent);
            let nonce = self.segments.pool().segment(segment).nonce;
            let bytes = EXTENT_DATA_BYTES.min(value_bytes as usize - number * EXTENT_DATA_BYTES);
            let checks = self.write_extent(segment, bytes, block, source);
            self.program_extent(segment, bytes);
            let entry = ExtentEntry { segment: segment.into(), nonce: nonce.into(), checks: checks.into() };
            manifest.extents.push(entry);
        }
        while manifest.parts < pieces.parts {
            let key = PartKey::new(manifest.value, manifest.parts);
            let bytes = self.write_part(&self.key_of_part(&key), source, (head_buffer, block), append)?;
            self.lanes[lane].count(0, bytes as u64);
            manifest.parts += 1;
        }
        Ok(())
    }

    /// Fills an extent; returns the checksum of its checksums.
    fn write_extent(&self, segment: u32, bytes: usize, block: &mut Block, source: &mut Source<'_>) -> u64 {
        let base = self.segments.base(segment) as usize;
        let mut checks = [0u8; EXTENT_BLOCKS * 4];
        for (number, check) in checks.chunks_exact_mut(4).enumerate() {
            let start = number * BLOCK_BYTES;
            if start >= bytes {
                break;
            }
            let buffer = &mut block.0[..BLOCK_BYTES.min(bytes - start)];
            source.read(buffer);
            check.copy_from_slice(&checksum::of_block(buffer).to_le_bytes());
            self.memory.write_uncached(base + DATA_START + start, buffer);
        }
        self.memory.write(base + EXTENT_CHECKS_AT, &checks);
        checksum::of_metadata(self.segments.identity.secret, checks.as_bytes())
    }

    /// Appends a part and enters it into the index. Returns the bytes of its record.
    fn write_part(
        &self,
        key: &Key<'_>,
        source: &mut Source<'_>,
        (head_buffer, block): (&mut HeadBuffer, &mut Block),
        append: &mut AppendHead,
    ) -> Result<usize, KvError> {
        let mut head = RecordHead::of_part(0);
        let bytes = head.record_bytes();
        self.make_room(append, bytes, Purpose::Host)?;
        let Some(open) = append.open.as_mut() else { return Err(KvError::Full) };
        head_buffer.set_key(key.bytes);
        self.write_data(open, &head, None, source, (head_buffer, block));
        let mut shard = self.index.lock(key.hash);
        if !shard.has_room() {
            return Err(KvError::Full);
        }
        head.sequence = next_sequence(&mut shard)?;
        head.may_be_twin = shard.state.has_twins;
        self.write_head(open, &head, head_buffer);
        order_uncached();
        shard.insert(key.hash, Slot::new(open.place(), bytes, RecordKind::Part), 0);
        drop(shard);
        self.finish_record(open, &head, key.hash);
        Ok(bytes)
    }

    /// The pieces of a value whose record is dead, or has never come to be. No shard is locked.
    pub(super) fn retire_pieces(&self, manifest: &Manifest) {
        let mut buffer = HeadBuffer::new();
        for number in 0..manifest.parts {
            let key = PartKey::new(manifest.value, number);
            let key = self.key_of_part(&key);
            let mut shard = self.index.lock(key.hash);
            if let Some(hit) = self.find_part_locked(&shard, &key, &mut buffer) {
                self.remove_part(&mut shard, key.hash, &hit);
            }
        }
        let mut pool = self.segments.pool();
        for extent in &manifest.extents {
            // A manifest that was damaged and passed its checksum must not free what is not its own.
            let number = extent.segment.get();
            if pool.segment(number).state == State::Extent && pool.segment(number).nonce == extent.nonce.get()
            {
                pool.quarantine(number);
            }
        }
    }

    /// The slot of a part. One whose head is damaged is taken to be the one with its hash.
    fn find_part_locked(
        &self,
        shard: &LockedShard<'_>,
        key: &Key<'_>,
        buffer: &mut HeadBuffer,
    ) -> Option<Hit> {
        let hits = (0..).map_while(|nth| shard.find(key.hash, nth));
        hits.filter(|hit| hit.slot.is_part()).find(|hit| {
            let head = self.load_head(hit.slot.place(), buffer);
            head.is_none_or(|head| self.is_of(&head, buffer, key))
        })
    }

    /// A part is nobody's any more.
    fn remove_part(&self, shard: &mut LockedShard<'_>, hash: u64, hit: &Hit) {
        self.segments.die(hit.slot.place(), RecordHead::of_part(0).record_bytes());
        shard.remove(hash, hit);
    }

    /// Lets go of a part that no value claims.
    pub(super) fn drop_part(&self, hash: u64, place: u64) {
        let mut shard = self.index.lock(hash);
        if let Some(hit) = shard.find_place(hash, place).filter(|hit| hit.slot.is_part()) {
            self.remove_part(&mut shard, hash, &hit);
        }
    }

    /// Lets go of all parts that no value claims: of values that died when their manifests could not be read.
    pub(super) fn drop_orphans(&self) {
        // Nobody writes a value meanwhile: its parts are there before it is.
        let _lanes: Vec<_> = self.lanes.iter().map(|lane| lane.head.lock()).collect();
        let (mut claimed, mut parts) = (HashSet::new(), Vec::new());
        let mut buffer = HeadBuffer::new();
        for number in 0..self.index.shards() {
            self.index.lock_shard(number).for_each(|hash, slot| {
                if slot.is_part() {
                    return parts.push((hash, slot.place()));
                }
                let head = self.load_head(slot.place(), &mut buffer);
                let manifest = head.and_then(|head| self.load_manifest(slot.place(), &head, &buffer));
                claimed.extend(manifest.iter().flat_map(|manifest| self.hashes_of_parts(manifest)));
            });
        }
        for (hash, place) in parts.into_iter().filter(|(hash, _)| !claimed.contains(hash)) {
            self.drop_part(hash, place);
        }
    }

    /// Length of a big value that is compressed, when it is not. `None` when it is damaged.
    #[cold]
    pub(super) fn plain_bytes(&self, record: &StoredRecord<'_>) -> Option<u32> {
        let manifest = self.load_manifest(record.place, record.head, record.buffer)?;
        let possible = record.head.value_bytes..=VALUE_BYTES_MAX;
        Some(manifest.plain_bytes).filter(|bytes| possible.contains(bytes))
    }

    /// Reads bytes `from..to` of a big value, in the form in which it is stored.
    #[cold]
    pub(super) fn read_big(
        &self,
        record: &StoredRecord<'_>,
        (from, to): (usize, usize),
        block: &mut Block,
        mut emit: impl FnMut(&[u8]),
    ) -> Reading {
        let Some(manifest) = self.load_manifest(record.place, record.head, record.buffer) else {
            return Reading::Damaged;
        };
        let value_bytes = record.head.value_bytes as usize;
        let pieces = Pieces::of(record.head.value_bytes);
        // What of a piece that begins at `start` is wanted.
        let wanted = |start: usize, bytes: usize| {
            let (first, last) = (from.max(start), to.min(start + bytes));
            (first < last).then(|| (first - start, last - start))
        };
        for (number, extent) in manifest.extents.iter().enumerate() {
            let start = number * EXTENT_DATA_BYTES;
            let bytes = EXTENT_DATA_BYTES.min(value_bytes - start);
            if let Some(range) = wanted(start, bytes)
                && !self.read_extent(extent, bytes, range, block, &mut emit)
            {
                return Reading::Damaged;
            }
        }
        let bytes = super::pieces::PART_DATA_BYTES;
        let mut buffer = HeadBuffer::new();
        for number in 0..pieces.parts {
            if let Some(range) = wanted(pieces.in_extents() + number * bytes, bytes) {
                let key = PartKey::new(manifest.value, number);
                // The next one is brought close meanwhile: it lies anywhere.
                let next = PartKey::new(manifest.value, number + 1);
                let next_read = self.place_of(&self.key_of_part(&next)).unwrap_or(NOWHERE);
                let key = self.key_of_part(&key);
                match self.read_part(&key, (range, next_read), &mut buffer, block, &mut emit) {
                    Reading::Intact => {}
                    other => return other,
                }
            }
        }
        let Some((first, last)) = wanted(pieces.in_extents() + pieces.in_parts(), pieces.rest) else {
            return Reading::Intact;
        };
        let range = (first + MANIFEST_BYTES, last + MANIFEST_BYTES);
        let is_there = range.1 <= record.head.stored_bytes && self.read_stored(record, range, block, emit);
        Reading::of(is_there)
    }

    fn read_part(
        &self,
        key: &Key<'_>,
        (range, next_read): ((usize, usize), u64),
        buffer: &mut HeadBuffer,
        block: &mut Block,
        mut emit: impl FnMut(&[u8]),
    ) -> Reading {
        for nth in 0.. {
            let Some(hit) = self.index.find(key.hash, nth) else {
                // Slots that moved while several were looked at may have been missed.
                return if nth == 0 { Reading::Damaged } else { Reading::Moved };
            };
            if !hit.slot.is_part() {
                continue;
            }
            let reading = match self.load_head(hit.slot.place(), buffer) {
                Some(head) if self.is_of(&head, buffer, key) => {
                    let (place, head) = (hit.slot.place(), &head);
                    let record = StoredRecord { place, head, buffer, next_read };
                    Reading::of(self.read_stored(&record, range, block, &mut emit))
                }
                Some(_) => continue,
                None => Reading::Damaged,
            };
            return if self.index.is_current(key.hash, &hit) { reading } else { Reading::Moved };
        }
        Reading::Damaged
    }
}

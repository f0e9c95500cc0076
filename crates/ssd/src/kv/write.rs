//! Storing, appending and deleting.
//!
//! A value's bytes go to the append head of the command's queue first, without any lock of the index. Then
//! the key's shard is locked: conditions are checked, the record gets its sequence number, its head is
//! written, and the index entry is changed. A head that is not there makes the bytes behind it nothing, so a
//! process that dies in between has written nothing. The locks are taken in the order append head, reclaim,
//! shard, pool of segments.

use unvme_bus::lock;
use unvme_bus::mem::order_uncached;

use super::append::{AppendHead, OpenSegment};
use super::big::{cost_of, cut, is_to_be_cut};
use super::host::HostCursor;
use super::index::{Hit, LockedShard};
use super::layout::{BLOCK_BYTES, EXTENT_DATA_BYTES, RecordHead, RecordKind, SEQUENCE_END, SummaryEntry};
use super::ordered::Change;
use super::pieces::{MANIFEST_BYTES, Manifest};
use super::read::Reading;
use super::record::{Block, HeadBuffer, StoredRecord};
use super::segment::{Purpose, charge};
use super::slot::Slot;
use super::{HostData, Key, KvError, KvScratch, KvStore, StorePolicy, VALUE_BYTES_MAX, checksum};
use crate::store::NOWHERE;

/// Values above this length are not compressed: it would take a buffer of that size.
const COMPRESSED_BYTES_MAX: usize = 2 << 20;

/// Up to this length a value is moved while its key's shard is locked, which saves waiting for its writes to
/// be done.
const LOCKED_BYTES_MAX: usize = 4 * BLOCK_BYTES;

/// Where a value's bytes come from.
pub(super) enum Source<'a> {
    Host(HostCursor<'a>),
    Bytes(&'a [u8]),
}

impl Source<'_> {
    #[inline]
    pub(super) fn read(&mut self, out: &mut [u8]) {
        match self {
            Source::Host(cursor) => cursor.read(out),
            Source::Bytes(bytes) => {
                let (now, later) = bytes.split_at(out.len().min(bytes.len()));
                out[..now.len()].copy_from_slice(now);
                out[now.len()..].fill(0);
                *bytes = later;
            }
        }
    }
}

/// What has to hold when the record takes effect.
#[derive(Clone, Copy)]
enum Condition {
    Policy(StorePolicy),
    /// The key's newest record is still the one at this place.
    Unchanged(u64),
}

impl Condition {
    /// Whether it holds when the key's pair is at that place.
    #[inline]
    fn check(self, existing: Option<u64>) -> Result<(), Refused> {
        match self {
            Self::Policy(policy) => Ok(check_policy(policy, existing.is_some())?),
            Self::Unchanged(place) if existing == Some(place) => Ok(()),
            Self::Unchanged(_) => Err(Refused::Changed),
        }
    }
}

/// A value on its way to the media.
struct NewRecord<'a> {
    head: RecordHead,
    source: Source<'a>,
    /// Where the pieces of a big value are.
    manifest: Option<Manifest>,
    condition: Condition,
    /// Bytes that the host has given, key and value.
    host_bytes: u64,
}

/// Why a record did not take effect.
enum Refused {
    Error(KvError),
    /// The key's record is another one now.
    Changed,
}

impl From<KvError> for Refused {
    fn from(error: KvError) -> Self {
        Self::Error(error)
    }
}

/// Buffers for one record.
struct Buffers<'a> {
    head: &'a mut HeadBuffer,
    old: &'a mut HeadBuffer,
    block: &'a mut Block,
}

/// The record that a new one supersedes.
pub(super) struct Old {
    hit: Hit,
    /// `None` when it is damaged.
    head: Option<RecordHead>,
    /// Where the pieces of a big value are; `None` also when that cannot be read.
    manifest: Option<Manifest>,
}

impl KvStore {
    /// Stores a pair.
    ///
    /// Fails with [`KvError::NotFound`] and [`KvError::Exists`] as the policy says, [`KvError::Unrecovered`]
    /// when that cannot be told, [`KvError::TooLong`], [`KvError::Full`], [`KvError::Media`]. The key has the
    /// value it had before, then.
    #[inline]
    pub(crate) fn store(
        &self,
        key: &Key<'_>,
        value: HostData<'_>,
        policy: StorePolicy,
        scratch: &mut KvScratch,
    ) -> Result<(), KvError> {
        if value.bytes > VALUE_BYTES_MAX {
            return Err(KvError::TooLong);
        }
        if policy.must_exist || policy.must_not_exist {
            self.vouch()?;
            // Again under the lock; this one saves moving a value for nothing.
            let exists = self.exists_damaged_or_not(key, scratch);
            check_policy(policy, exists)?;
        }
        let packed = if policy.compress { self.pack(value, scratch) } else { None };
        let source = match packed {
            Some(_) => Source::Bytes(&scratch.packed),
            None => Source::Host(HostCursor::new(value)),
        };
        let head = new_head(key, value.bytes, packed);
        let host_bytes = key.bytes.len() as u64 + u64::from(value.bytes);
        let condition = Condition::Policy(policy);
        let record = NewRecord { head, source, manifest: None, condition, host_bytes };
        let buffers = Buffers { head: &mut scratch.head, old: &mut scratch.old, block: &mut scratch.block };
        match self.write_pair(key, record, buffers, scratch.lane) {
            Ok(()) => Ok(()),
            Err(Refused::Error(error)) => Err(error),
            // Only appending has a condition that can fail so.
            Err(Refused::Changed) => Err(KvError::Exists),
        }
    }

    /// Adds to the end of a value; without one, as [`KvStore::store`]. Returns the new length.
    ///
    /// # Errors
    /// [`KvError::TooLong`] when the sum is, [`KvError::Unrecovered`] when the old value is damaged,
    /// [`KvError::Full`], [`KvError::Media`]. The key has the value it had before, then.
    pub(crate) fn append(
        &self,
        key: &Key<'_>,
        value: HostData<'_>,
        scratch: &mut KvScratch,
    ) -> Result<u32, KvError> {
        self.vouch()?;
        loop {
            let mut whole = Vec::new();
            let old = match self.read_whole(key, &mut whole, scratch) {
                Ok(place) => Some(place),
                Err(KvError::NotFound) => None,
                Err(error) => return Err(error),
            };
            let kept = whole.len();
            let bytes = u32::try_from(kept).ok().and_then(|k| k.checked_add(value.bytes));
            let bytes = bytes.filter(|&b| b <= VALUE_BYTES_MAX).ok_or(KvError::TooLong)?;
            whole.resize(bytes as usize, 0);
            HostCursor::new(value).read(&mut whole[kept..]);
            let condition = match old {
                Some(place) => Condition::Unchanged(place),
                None => Condition::Policy(StorePolicy { must_not_exist: true, ..StorePolicy::default() }),
            };
            let record = NewRecord {
                head: new_head(key, bytes, None),
                source: Source::Bytes(&whole),
                manifest: None,
                condition,
                host_bytes: key.bytes.len() as u64 + u64::from(value.bytes),
            };
            let buffers =
                Buffers { head: &mut scratch.head, old: &mut scratch.old, block: &mut scratch.block };
            match self.write_pair(key, record, buffers, scratch.lane) {
                Ok(()) => return Ok(bytes),
                // Somebody else has stored, appended or deleted meanwhile, or reclaim has moved the record.
                Err(Refused::Changed | Refused::Error(KvError::Exists)) => {}
                Err(Refused::Error(error)) => return Err(error),
            }
        }
    }

    /// Deletes a pair, which need not be there unless `must_exist`.
    ///
    /// # Errors
    /// [`KvError::NotFound`], [`KvError::Unrecovered`] when that cannot be told, and as [`KvStore::delete`].
    pub(crate) fn delete_if(
        &self,
        key: &Key<'_>,
        must_exist: bool,
        scratch: &mut KvScratch,
    ) -> Result<(), KvError> {
        if must_exist {
            self.vouch()?;
        }
        let existed = self.delete(key, scratch)?;
        if existed || !must_exist { Ok(()) } else { Err(KvError::NotFound) }
    }

    /// Deletes a pair; false when there is none.
    ///
    /// # Errors
    /// [`KvError::Full`] when not even the note of the deletion finds space, [`KvError::Media`].
    pub(crate) fn delete(&self, key: &Key<'_>, scratch: &mut KvScratch) -> Result<bool, KvError> {
        if !self.exists_damaged_or_not(key, scratch) {
            return Ok(false);
        }
        for other in 0..self.lanes.len() {
            // On a full store, another queue may have the segment that was left for deletions.
            let number = scratch.lane.wrapping_add(other) % self.lanes.len();
            let mut append = self.lanes[number].head.lock();
            match self.delete_through(number, (&mut *append, Purpose::Delete), key, scratch) {
                Err(KvError::Full) => {}
                result => return result,
            }
        }
        // A media whose file system is full: the last segment with space is that of reclaim's copies, which
        // takes tombstones, too. Each process that deletes a pair would need a segment otherwise.
        let mut reclaimer = lock(&self.reclaimer);
        let number = scratch.lane % self.lanes.len();
        self.delete_through(number, (reclaimer.head(), Purpose::Reclaim), key, scratch)
    }

    /// Deletes a pair by a tombstone at an append head; lane `number` accounts for it.
    fn delete_through(
        &self,
        number: usize,
        (append, purpose): (&mut AppendHead, Purpose),
        key: &Key<'_>,
        scratch: &mut KvScratch,
    ) -> Result<bool, KvError> {
        let lane = &self.lanes[number];
        let mut head = RecordHead { kind: RecordKind::Tombstone, ..new_head(key, 0, None) };
        let bytes = head.record_bytes();
        self.make_room(append, bytes, purpose)?;
        let Some(open) = append.open.as_mut() else { return Err(KvError::Full) };
        scratch.head.set_key(key.bytes);
        let mut shard = self.index.lock(key.hash);
        let old = match self.find_locked(&mut shard, key, &mut scratch.old) {
            // A tombstone that is damaged hides nothing any more: another one takes its place.
            Some(old) if !old.hit.slot.is_tombstone() || old.head.is_none() => old,
            _ => return Ok(false),
        };
        head.sequence = next_sequence(&mut shard)?;
        head.may_be_twin = shard.state.has_twins;
        self.write_head(open, &head, &mut scratch.head);
        let older = shard.older(key.hash, old.hit.slot) + 1;
        shard.set(key.hash, &old.hit, Slot::new(open.place(), bytes, RecordKind::Tombstone), older);
        // Saturating: a summary may have called the record a tombstone.
        let was_pair = u64::from(!old.hit.slot.is_tombstone());
        shard.state.pairs = shard.state.pairs.saturating_sub(was_pair);
        self.note_change(&mut shard, || Change::removed(key));
        self.retire_record(&old);
        // The tombstone takes no more than the pair did.
        let freed = self.freed_by_pair(&old).max(charge(bytes));
        self.budget.give(number, freed - charge(bytes));
        drop(shard);
        if let Some(manifest) = &old.manifest {
            self.retire_pieces(manifest);
        }
        self.finish_record(open, &head, key.hash);
        lane.count(0, bytes as u64);
        Ok(true)
    }

    /// True when the key has a pair, be it damaged.
    fn exists_damaged_or_not(&self, key: &Key<'_>, scratch: &mut KvScratch) -> bool {
        self.look_up(key, scratch) != Ok(false)
    }

    /// Copies a whole value to `out`, decompressed; returns the record's place.
    fn read_whole(&self, key: &Key<'_>, out: &mut Vec<u8>, scratch: &mut KvScratch) -> Result<u64, KvError> {
        self.attempt(key, || {
            out.clear();
            let (hit, head) = match self.find_pair(key, &mut scratch.head) {
                super::read::Found::Pair(hit, head) => (hit, head),
                super::read::Found::Absent => return Some(Err(KvError::NotFound)),
                super::read::Found::Damaged => return Some(Err(KvError::Unrecovered)),
                super::read::Found::Changed => return None,
            };
            let place = hit.slot.place();
            let record = StoredRecord { place, head: &head, buffer: &scratch.head, next_read: NOWHERE };
            let reading = if head.compressed {
                let plain = self.read_packed(&record, &mut scratch.block, &mut scratch.packed, out);
                plain.map_or_else(|reading| reading, |_| Reading::Intact)
            } else {
                let range = (0, head.value_bytes as usize);
                self.read_value(&record, range, &mut scratch.block, |bytes| out.extend_from_slice(bytes))
            };
            if !self.index.is_current(key.hash, &hit) {
                return None;
            }
            reading.result(place)
        })
    }

    /// Compresses the host's value; `None` when that saves nothing. Returns the compressed length.
    fn pack(&self, value: HostData<'_>, scratch: &mut KvScratch) -> Option<u32> {
        let bytes = value.bytes as usize;
        if bytes == 0 || bytes > COMPRESSED_BYTES_MAX {
            return None;
        }
        scratch.plain.clear();
        scratch.plain.resize(bytes, 0);
        HostCursor::new(value).read(&mut scratch.plain);
        scratch.packed.clear();
        scratch.packed.resize(lz4_flex::block::get_maximum_output_size(bytes), 0);
        let packed = lz4_flex::block::compress_into(&scratch.plain, &mut scratch.packed).ok()?;
        scratch.packed.truncate(packed);
        (packed < bytes).then_some(packed as u32)
    }

    /// Writes a pair and makes it the newest of its key.
    #[inline]
    fn write_pair(
        &self,
        key: &Key<'_>,
        mut record: NewRecord<'_>,
        buffers: Buffers<'_>,
        lane: usize,
    ) -> Result<(), Refused> {
        let number = lane % self.lanes.len();
        let lane = &self.lanes[number];
        let mut append = lane.head.lock();
        if is_to_be_cut(&record.head) {
            return self.write_big(key, record, buffers, number, &mut append);
        }
        let cost = charge(record.head.record_bytes());
        self.write_record(key, &mut record, buffers, number, &mut append, (cost, 0))
    }

    /// Writes a value in pieces.
    #[cold]
    fn write_big(
        &self,
        key: &Key<'_>,
        mut record: NewRecord<'_>,
        buffers: Buffers<'_>,
        number: usize,
        append: &mut AppendHead,
    ) -> Result<(), Refused> {
        let plain_bytes = if record.head.compressed { record.head.value_bytes } else { 0 };
        record.head = cut(&record.head);
        let cost = cost_of(&record.head);
        let taken = self.take_budget(number, cost, key, buffers.old)?;
        let manifest = record.manifest.insert(Manifest { plain_bytes, ..Manifest::default() });
        let (room, lane) = ((&mut *buffers.head, &mut *buffers.block), (number, &mut *append));
        let result = self
            .write_pieces(record.head.value_bytes, &mut record.source, room, lane, manifest)
            .map_err(Refused::from)
            .and_then(|()| self.write_record(key, &mut record, buffers, number, append, (cost, taken)));
        if result.is_err() {
            self.budget.give(number, taken);
            record.manifest.iter().for_each(|manifest| self.retire_pieces(manifest));
        }
        result
    }

    /// Takes capacity for a record. On a full store, what it supersedes counts as free:
    /// [`KvStore::write_record`] looks again whether it does supersede that.
    #[inline]
    fn take_budget(
        &self,
        lane: usize,
        cost: u64,
        key: &Key<'_>,
        buffer: &mut HeadBuffer,
    ) -> Result<u64, KvError> {
        if self.budget.take(lane, cost) {
            return Ok(cost);
        }
        let freed = match self.find_pair(key, buffer) {
            super::read::Found::Pair(_, head) => cost_of(&head),
            _ => 0,
        };
        let needed = cost.saturating_sub(freed);
        if freed > 0 && self.budget.take(lane, needed) { Ok(needed) } else { Err(KvError::Full) }
    }

    /// Appends a record that costs so much, of which so much has been taken from the budget, and makes it the
    /// newest of its key.
    ///
    /// The order of things within is also made for speed: an atomic exchange waits until all earlier writes
    /// have left the processor, so those of the accounts come before the record is written, and none comes
    /// after.
    fn write_record(
        &self,
        key: &Key<'_>,
        record: &mut NewRecord<'_>,
        buffers: Buffers<'_>,
        number: usize,
        append: &mut AppendHead,
        (cost, taken): (u64, u64),
    ) -> Result<(), Refused> {
        let bytes = record.head.record_bytes();
        self.make_room(append, bytes, Purpose::Host)?;
        let Some(open) = append.open.as_mut() else { return Err(KvError::Full.into()) };
        buffers.head.set_key(key.bytes);
        let is_short = record.head.stored_bytes <= LOCKED_BYTES_MAX;
        let NewRecord { head, source, manifest, condition, host_bytes } = record;
        if !is_short {
            self.write_data(open, head, manifest.as_ref(), source, (buffers.head, buffers.block));
        }
        let mut shard = self.index.lock(key.hash);
        let old = self.find_locked(&mut shard, key, buffers.old);
        let existing = old.as_ref().filter(|old| !old.hit.slot.is_tombstone());
        condition.check(existing.map(|old| old.hit.slot.place()))?;
        if old.is_none() && !shard.has_room() {
            return Err(KvError::Full.into());
        }
        head.sequence = next_sequence(&mut shard)?;
        head.may_be_twin = shard.state.has_twins;
        let freed = old.as_ref().map_or(0, |old| self.freed_by(&shard, key.hash, old));
        if taken + freed < cost && !self.budget.take(number, cost - taken - freed) {
            return Err(KvError::Full.into());
        }
        if taken + freed > cost {
            self.budget.give(number, taken + freed - cost);
        }
        if let Some(old) = old.as_ref().filter(|_| freed > 0) {
            self.retire_record(old);
        }
        if is_short {
            self.write_data(open, head, manifest.as_ref(), source, (buffers.head, buffers.block));
        }
        self.write_head(open, head, buffers.head);
        if head.stored_bytes >= BLOCK_BYTES {
            order_uncached();
        }
        let slot = Slot::new(open.place(), bytes, head.kind);
        match &old {
            Some(old) => {
                let older = shard.older(key.hash, old.hit.slot) + 1;
                shard.set(key.hash, &old.hit, slot, older);
            }
            None => shard.insert(key.hash, slot, 0),
        }
        if existing.is_none() {
            shard.state.pairs += 1;
        }
        // A damaged pair was not listed.
        if existing.is_none_or(|old| old.head.is_none()) {
            self.note_change(&mut shard, || Change::added(key));
        }
        drop(shard);
        self.finish_record(open, head, key.hash);
        self.lanes[number].count(*host_bytes, written_bytes(bytes, manifest.as_ref()));
        // Behind the lock: parts have shards of their own.
        if let Some(manifest) = old.as_ref().filter(|_| freed > 0).and_then(|old| old.manifest.as_ref()) {
            self.retire_pieces(manifest);
        }
        Ok(())
    }

    /// Notes that a key has come or gone, if there is an ordered set to be told.
    #[inline]
    fn note_change(&self, shard: &mut LockedShard<'_>, change: impl FnOnce() -> Change) {
        let number = shard.number();
        if let Some(changes) = &mut shard.state.changes {
            self.ordered.note(number, changes, change());
        }
    }

    /// Moves a value's bytes to the media, a block at a time, and notes their checksums.
    #[inline]
    pub(super) fn write_data(
        &self,
        open: &OpenSegment,
        head: &RecordHead,
        manifest: Option<&Manifest>,
        source: &mut Source<'_>,
        (head_buffer, block): (&mut HeadBuffer, &mut Block),
    ) {
        let data = open.base as usize + head.data_at(open.at);
        let mut start = 0;
        if let Some(manifest) = manifest {
            let bytes = manifest.encode();
            head_buffer.set_check(head, 0, checksum::of_block(&bytes));
            self.memory.write(data, &bytes);
            start = MANIFEST_BYTES;
        }
        while start < head.stored_bytes {
            let bytes = BLOCK_BYTES.min(head.stored_bytes - start);
            let buffer = &mut block.0[..bytes];
            if bytes == BLOCK_BYTES && self.bypasses_caches {
                self.write_block(source, data + start, buffer);
            } else {
                source.read(buffer);
                self.memory.write(data + start, buffer);
            }
            head_buffer.set_check(head, start / BLOCK_BYTES, checksum::of_block(buffer));
            start += bytes;
        }
    }

    /// Moves a block to the media past the caches, and leaves it in `buffer`: its checksum is computed while
    /// the writes are on their way.
    #[inline]
    fn write_block(&self, source: &mut Source<'_>, at: usize, buffer: &mut [u8]) {
        if let Source::Host(cursor) = source
            && let Some((region, offset)) = cursor.take_piece(buffer.len())
        {
            return region.copy_to_uncached_kept(offset, &self.memory, at, buffer);
        }
        source.read(buffer);
        self.memory.write_uncached(at, buffer);
    }

    #[inline]
    pub(super) fn finish_record(&self, open: &mut OpenSegment, head: &RecordHead, hash: u64) {
        let entry = SummaryEntry::new(hash, open.at, head);
        self.advance(open, head.record_bytes(), entry);
    }

    /// The newest record of a key, under its lock. A damaged one with the key's hash is taken to be the
    /// key's. Another key with its hash makes what is written from now on say so.
    #[inline]
    fn find_locked(
        &self,
        shard: &mut LockedShard<'_>,
        key: &Key<'_>,
        buffer: &mut HeadBuffer,
    ) -> Option<Old> {
        for nth in 0.. {
            let hit = shard.find(key.hash, nth)?;
            let head = self.load_head(hit.slot.place(), buffer);
            if head.is_none_or(|head| self.is_of(&head, buffer, key)) {
                let manifest = match &head {
                    Some(head) if head.kind == RecordKind::Big => {
                        self.load_manifest(hit.slot.place(), head, buffer)
                    }
                    _ => None,
                };
                return Some(Old { hit, head, manifest });
            }
            shard.state.has_twins = true;
        }
        None
    }

    /// Capacity that superseding a record gives back.
    #[inline]
    fn freed_by(&self, shard: &LockedShard<'_>, hash: u64, old: &Old) -> u64 {
        // A tombstone that nothing needs any more has given its space back already.
        let is_gone = old.hit.slot.is_tombstone() && shard.older(hash, old.hit.slot) == 0;
        if is_gone { 0 } else { self.freed_by_pair(old) }
    }

    #[inline]
    fn freed_by_pair(&self, old: &Old) -> u64 {
        match &old.head {
            None => 0,
            // What cannot be found is not free.
            Some(head) if head.kind == RecordKind::Big && old.manifest.is_none() => {
                charge(head.record_bytes())
            }
            Some(head) => cost_of(head),
        }
    }

    /// A record is superseded: its bytes are dead. The shard is locked: before the segment is used again, its
    /// entries are looked at under the locks of their shards.
    #[inline]
    fn retire_record(&self, old: &Old) {
        if let Some(head) = &old.head {
            self.segments.die(old.hit.slot.place(), head.record_bytes());
        }
    }
}

fn new_head(key: &Key<'_>, value_bytes: u32, packed: Option<u32>) -> RecordHead {
    RecordHead {
        kind: RecordKind::Value,
        keyspace: key.keyspace,
        key_bytes: key.bytes.len(),
        stored_bytes: packed.unwrap_or(value_bytes) as usize,
        value_bytes,
        compressed: packed.is_some(),
        may_be_twin: false,
        sequence: 0,
    }
}

fn check_policy(policy: StorePolicy, exists: bool) -> Result<(), KvError> {
    if policy.must_exist && !exists {
        return Err(KvError::NotFound);
    }
    if policy.must_not_exist && exists { Err(KvError::Exists) } else { Ok(()) }
}

/// The sequence number of a shard's next record.
#[inline]
pub(super) fn next_sequence(shard: &mut LockedShard<'_>) -> Result<u64, KvError> {
    let sequence = shard.state.sequence;
    if sequence >= SEQUENCE_END {
        return Err(KvError::Full);
    }
    shard.state.sequence += 1;
    Ok(sequence)
}

/// Bytes of a record and of the data in its extents, whose headers were counted when they were written, as
/// its parts were.
fn written_bytes(record_bytes: usize, manifest: Option<&Manifest>) -> u64 {
    (record_bytes + manifest.map_or(0, |manifest| manifest.extents.len()) * EXTENT_DATA_BYTES) as u64
}

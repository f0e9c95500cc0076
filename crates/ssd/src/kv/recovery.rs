//! Opening a store, after whatever end it had.
//!
//! **The rule.** Of the records of a key that are intact on the media, the one with the highest sequence
//! number counts; a tombstone that counts means that there is no pair. Everything else follows:
//!
//! - A record that was superseded may come back only if what superseded it is not on the media. So its
//!   segment is not erased before that is durable (see [`super::segment`]).
//! - A tombstone has to stay for as long as there is an older record of its key anywhere. The index counts
//!   those, opening counts them anew, and reclaim copies a tombstone until the count is zero.
//! - A record that was cut short, or of which a power cut has lost pages, is not intact, and the record
//!   before it counts. Only of what had been promised nothing can have been lost so: of what a sync has
//!   covered (the directory says up to where), and, when nothing but the process has died since, of
//!   everything before the end of the log. There a record that is not intact is damage. It counts, and its
//!   pair is reported as unrecovered instead of an older value being returned.
//! - Where something promised is missing and no summary names it, any key may have had a newer record there:
//!   the store is in doubt, and vouches for nothing until that is accepted. An entry in the segment's summary
//!   keeps it so.
//! - A summary in which everything had been promised is believed, which makes opening fast; else records are
//!   read and checked.
//! - Two copies of a record, of which reclaim made one, have the same number and the same content: one of
//!   them counts as an older record.
//!
//! A flipped byte in one record's head must not cost its neighbours: scanning goes on at the next multiple of
//! 16 bytes, where only a record of this use of this segment can be taken for one.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use unvme_bus::{lock, random};
use zerocopy::IntoBytes;

use super::big::cost_of;
use super::budget::Budget;
use super::directory::{Entry, find_superblock};
use super::index::LockedShard;
use super::layout::{
    DATA_START, EntryKind, FORMAT_VERSION, HeaderRead, Identity, Listed, RECORD_ALIGNMENT, RecordKind,
    SEGMENT_BYTES, SUPERBLOCK_AT, SegmentHeader, SegmentKind, SummaryEntry, Superblock, TRAILER_AT, Trailer,
};
use super::programs::PAGE;
use super::record::{Block, HeadBuffer};
use super::saved::Moment;
use super::scan::{Promise, Scanned};
use super::segment::{Purpose, State, worth};
use super::slot::Slot;
use super::survey::{Survey, read_header, survey};
use super::{Damage, KvStore, STORE_BYTES_MIN};
use crate::SsdError;
use crate::media::Media;
use crate::store::CHUNK_BYTES;

/// A record found on the media. 24 bytes: there may be hundreds of millions.
#[derive(Clone, Copy)]
struct Record {
    hash: u64,
    /// Sequence number; in the lowest three bits the kind, and whether it may be a twin.
    order: u64,
    /// Place / 16 in 46 bits, size / 16 above.
    place: u64,
}

impl Record {
    fn new(entry: &SummaryEntry, kind: RecordKind, base: u64, bytes: usize) -> Self {
        let place = (base + entry.offset() as u64) / RECORD_ALIGNMENT as u64;
        let units = (bytes / RECORD_ALIGNMENT) as u64;
        let order = entry.sequence() << 3 | u64::from(entry.may_be_twin()) << 2 | u64::from(kind.number());
        Self { hash: entry.hash.get(), order, place: place | units << 46 }
    }

    fn sequence(&self) -> u64 {
        self.order >> 3
    }

    /// See `RecordHead::may_be_twin`.
    fn may_be_twin(&self) -> bool {
        self.order & 4 != 0
    }

    fn kind(&self) -> RecordKind {
        RecordKind::from_number((self.order & 3) as u8).unwrap_or(RecordKind::Value)
    }

    fn is_part(&self) -> bool {
        self.kind() == RecordKind::Part
    }

    fn place(&self) -> u64 {
        (self.place & ((1 << 46) - 1)) * RECORD_ALIGNMENT as u64
    }

    fn bytes(&self) -> usize {
        (self.place >> 46) as usize * RECORD_ALIGNMENT
    }
}

/// A log segment whose records have to be looked at.
struct Unread {
    segment: u32,
    nonce: u32,
    has_header: bool,
    promise: Promise,
    /// A summary that nobody promised to be true.
    names: Vec<SummaryEntry>,
    is_all_synced: bool,
    /// Nothing says where the log ended, and all of it had been promised.
    is_open_ended: bool,
}

/// What has been found so far.
struct Recovery {
    surveys: Vec<Survey>,
    /// At most the process has died since the store was written to: what it has written is there.
    is_same_life: bool,
    /// By shard.
    records: Vec<Vec<Record>>,
    /// Places of records with values that are not intact.
    damaged: HashSet<u64>,
    /// Records that count for nothing, by hash and sequence number.
    dropped: Vec<(u64, u64)>,
    /// Values in pieces that are the newest of their keys.
    big: Vec<u64>,
    /// Parts of values, by hash and place.
    parts: Vec<(u64, u64)>,
    used: u64,
    segment: Vec<u8>,
    buffer: HeadBuffer,
    other: HeadBuffer,
    block: Box<Block>,
}

impl KvStore {
    /// Makes an empty store over `chunks` (indices of [`CHUNK_BYTES`] pieces of the media), whatever they
    /// held: for a new namespace and for formatting one. What was there is gone even after a power cut.
    ///
    /// # Errors
    /// [`SsdError::Config`] when the namespace is smaller than [`STORE_BYTES_MIN`] or the media keeps no
    /// data; what the store under the media reports.
    pub(crate) fn create(media: Arc<Media>, chunks: Arc<[u32]>) -> Result<Self, SsdError> {
        check_size(&chunks)?;
        let identity =
            Identity { store: random::number(), secret: random::number(), segments: chunks.len() as u32 };
        // The store before this one may leave superblocks: they must not count any more.
        let generation = find_superblock(&media, &chunks).map_or(0, |superblock| superblock.generation());
        let generation = generation.saturating_add(1);
        let store = Self::assemble(media, chunks, identity)?;
        let media = &store.media;
        let no_space = |_| SsdError::Config {
            key: "bytes",
            value: "a new key-value namespace".into(),
            expected: "4 MiB of free space under the media".into(),
        };
        media.reserve(store.segments.chunk(0)).map_err(no_space)?;
        // The first segment says which store this is. Once it says so durably, everything else is nobody's.
        let base = store.segments.base(0) as usize;
        let superblock = Superblock::new(identity, generation, None);
        let mut page = [0; DATA_START];
        page[SUPERBLOCK_AT..SUPERBLOCK_AT + size_of::<Superblock>()].copy_from_slice(superblock.as_bytes());
        store.memory.write(base, &page);
        store.write_header(0, SegmentKind::Free, 1, 0);
        media.store().sync()?;
        store.memory.fill(base + DATA_START, SEGMENT_BYTES - DATA_START, 0);
        media.release((1..store.segments.count() as u32).map(|segment| store.segments.chunk(segment)))?;
        let [_, second] = store.segments.hosts(0);
        media.reserve(store.segments.chunk(second)).map_err(no_space)?;
        *lock(&store.moment) = Moment::of(&store.write_superblock(generation));
        store.drop_index();
        store.segments.pool().segment(0).incarnation = 1;
        store.write_free_header(0, 1, 0);
        // A second superblock that the store before this one has left must not come back.
        media.store().sync()?;
        Ok(store)
    }

    /// Opens what [`KvStore::create`] made, after any kind of end.
    ///
    /// # Errors
    /// [`SsdError::State`] when there is no store there or another version wrote it.
    pub(crate) fn open(media: Arc<Media>, chunks: Arc<[u32]>) -> Result<Self, SsdError> {
        check_size(&chunks)?;
        let (identity, superblock) = find_identity(&media, &chunks)?;
        let life = media.store().life();
        let mut store = Self::assemble(media, chunks, identity)?;
        let mut recovery = Recovery {
            surveys: Vec::new(),
            is_same_life: superblock.is_some_and(|superblock| Some(superblock.life) == life),
            records: (0..store.index.shards()).map(|_| Vec::new()).collect(),
            damaged: HashSet::new(),
            dropped: Vec::new(),
            big: Vec::new(),
            parts: Vec::new(),
            used: 0,
            segment: vec![0; SEGMENT_BYTES],
            buffer: HeadBuffer::new(),
            other: HeadBuffer::new(),
            block: Block::boxed(),
        };
        recovery.survey(&store);
        let loaded = superblock.as_ref().and_then(|superblock| {
            let loaded = store.load_index(superblock, &recovery.surveys)?;
            *lock(&store.moment) = Moment::of(superblock);
            Some(loaded)
        });
        match loaded {
            Some(used_bytes) => recovery.used = used_bytes,
            None => {
                recovery.read_segments(&store);
                recovery.fill_index(&store);
                recovery.claim_pieces(&store);
                recovery.note_lost_segments(&store);
            }
        }
        recovery.quarantine_extents(&store);
        recovery.repair(&store);
        store.budget = Budget::new(store.budget.total(), recovery.used, store.lanes.len());
        store.segments.pool().remove_used_from_free();
        if loaded.is_some() {
            store.is_saved = AtomicBool::new(true);
            return Ok(store);
        }
        // Only now that every segment has its summary: of what an earlier life has left, more may be missing
        // than of what this one writes.
        let generation = superblock.map_or(0, |superblock| superblock.generation()).saturating_add(1);
        *lock(&store.moment) = Moment::of(&store.write_superblock(generation));
        if recovery.is_same_life {
            // All of it is there for as long as the machine is, and nobody has been promised more.
            return Ok(store);
        }
        // What was found becomes what is there: a power cut from now on must not make less of it.
        store.sync().map_err(|status| SsdError::State {
            path: store.media.store().state_path(),
            reason: format!("the media could not be flushed ({status:?})"),
        })?;
        Ok(store)
    }
}

fn check_size(chunks: &[u32]) -> Result<(), SsdError> {
    let bytes = chunks.len() as u64 * CHUNK_BYTES;
    if bytes >= STORE_BYTES_MIN {
        return Ok(());
    }
    Err(SsdError::Config {
        key: "bytes",
        value: bytes.to_string(),
        expected: format!("at least {STORE_BYTES_MIN} for a key-value namespace"),
    })
}

/// Which store it is: its superblock says so, and should both copies of that be damaged, so do headers.
fn find_identity(media: &Media, chunks: &[u32]) -> Result<(Identity, Option<Superblock>), SsdError> {
    if let Some(superblock) = find_superblock(media, chunks)
        && superblock.identity().segments as usize == chunks.len()
    {
        return Ok((superblock.identity(), Some(superblock)));
    }
    let fits = |header: &SegmentHeader, index: usize| {
        header.index.get() as usize == index && header.segments.get() as usize == chunks.len()
    };
    let mut version = None;
    for (index, &chunk) in chunks.iter().enumerate() {
        match read_header(media, chunk) {
            HeaderRead::Valid(_, header) if fits(&header, index) => return Ok((header.identity(), None)),
            HeaderRead::Version(other) if version.is_none() => version = Some(other),
            _ => {}
        }
    }
    let path = media.store().media_path();
    match version {
        Some(found) if found > FORMAT_VERSION => {
            Err(SsdError::Newer { path, what: "the key-value store", found, known: FORMAT_VERSION })
        }
        Some(found) => {
            Err(SsdError::Older { path, what: "the key-value store", found, known: FORMAT_VERSION })
        }
        None => {
            let reason = "there is no key-value store in the namespace".into();
            Err(SsdError::State { path: media.store().state_path(), reason })
        }
    }
}

impl Recovery {
    fn survey(&mut self, store: &KvStore) {
        let mut pool = store.segments.pool();
        for segment in 0..store.segments.count() as u32 {
            let survey = survey(store, segment);
            if let Survey::Known { listed, .. } = &survey {
                let info = pool.segment(segment);
                info.incarnation = listed.incarnation;
                info.nonce = listed.nonce;
                info.synced_end = listed.synced_end.min(SEGMENT_BYTES as u32);
                pool.incarnation = pool.incarnation.max(listed.incarnation);
                if listed.kind != SegmentKind::Free {
                    store.segments.set_nonce(segment, listed.nonce);
                } else {
                    // That it is free may not be durable yet.
                    pool.wait_erased(segment);
                }
            }
            self.surveys.push(survey);
        }
    }

    fn read_segments(&mut self, store: &KvStore) {
        self.make_room(store);
        let mut unread = Vec::new();
        for segment in 0..store.segments.count() as u32 {
            if let Some(Survey::Known { listed, has_header }) = self.surveys.get(segment as usize)
                && listed.kind == SegmentKind::Log
            {
                let (listed, has_header) = (*listed, *has_header);
                unread.extend(self.believe_summary(store, segment, listed, has_header));
            }
        }
        // What is there of values that nobody promised is seen when all of their parts have been looked for.
        let mut asked = false;
        let mut scanned: Vec<_> = Vec::with_capacity(unread.len());
        for segment in unread {
            let mut asks = false;
            let found = self.scan(store, &segment, &mut |_| {
                asks = true;
                true
            });
            asked |= asks;
            scanned.push((segment, found, asks));
        }
        let parts = if asked { self.find_parts(&scanned) } else { HashSet::new() };
        for (segment, found, asks) in scanned {
            let found = match asks {
                true => self.scan(store, &segment, &mut |hash| parts.contains(&hash)),
                false => found,
            };
            self.finish_segment(store, &segment, found);
        }
    }

    /// Hashes of all parts that there are.
    fn find_parts(&self, scanned: &[(Unread, Scanned, bool)]) -> HashSet<u64> {
        let believed = self.records.iter().flatten().filter(|record| record.is_part());
        let found = scanned.iter().flat_map(|(_, found, _)| {
            let is_whole = |entry: &&SummaryEntry| {
                entry.record() == Some(RecordKind::Part) && !found.damaged.contains(&entry.offset())
            };
            found.entries.iter().filter(is_whole).map(|entry| entry.hash.get())
        });
        believed.map(|record| record.hash).chain(found).collect()
    }

    /// Memory for as many records as summaries say there are, so that none has to be moved.
    fn make_room(&mut self, store: &KvStore) {
        let entries: usize = (0..)
            .zip(&self.surveys)
            .filter_map(|(segment, survey)| match survey {
                Survey::Known { listed, .. } if listed.kind == SegmentKind::Log => {
                    Some(store.load_trailer(segment, listed.nonce)?.entries())
                }
                _ => None,
            })
            .sum();
        // Shards differ by a few standard deviations at most.
        let each = entries / self.records.len();
        let each = each + 4 * each.isqrt();
        self.records.iter_mut().for_each(|records| records.reserve(each));
    }

    /// Adds the records of a segment whose summary is to be believed; what else there is to know of it, when
    /// its records have to be looked at.
    fn believe_summary(
        &mut self,
        store: &KvStore,
        segment: u32,
        listed: Listed,
        has_header: bool,
    ) -> Option<Unread> {
        let nonce = listed.nonce;
        let is_all_synced = listed.synced_end as usize == SEGMENT_BYTES;
        let is_promised = self.is_same_life || is_all_synced;
        let summary = store.load_summary(segment, nonce);
        if let Some((entries, end)) = &summary
            && is_promised
        {
            self.add(store, segment, entries, *end);
            seal(store, segment, entries, *end);
            return None;
        }
        if store.media.reserve(store.segments.chunk(segment)).is_err() {
            // There is nothing, and no space to say so.
            let gap = [SummaryEntry::gap(DATA_START, true)];
            let is_missing = is_promised || listed.synced_end as usize > DATA_START;
            seal(store, segment, if is_missing { &gap } else { &[] }, DATA_START);
            return None;
        }
        let tail = store.load_tail(segment, nonce);
        let synced = listed.synced_end as usize;
        let promise = match tail {
            Some(tail) if is_all_synced => Promise::Until(tail),
            Some(tail) if is_promised => Promise::Until(tail.max(synced)),
            None if is_promised => Promise::Whole,
            _ => Promise::Until(synced),
        };
        let names = summary.map(|(entries, _)| entries).unwrap_or_default();
        let is_open_ended = is_promised && tail.is_none();
        Some(Unread { segment, nonce, has_header, promise, names, is_all_synced, is_open_ended })
    }

    /// Looks at the records of a segment.
    fn scan(&mut self, store: &KvStore, unread: &Unread, has_part: &mut dyn FnMut(u64) -> bool) -> Scanned {
        let Unread { segment, nonce, promise, ref names, .. } = *unread;
        store.memory.read(store.segments.base(segment) as usize, &mut self.segment);
        let buffers = (&mut self.buffer, &mut *self.block);
        store.scan((segment, nonce), &self.segment, (promise, names), has_part, buffers)
    }

    /// Adds the records that were found in a segment, and gives it a summary.
    fn finish_segment(&mut self, store: &KvStore, unread: &Unread, mut scanned: Scanned) {
        let Unread { segment, nonce, .. } = *unread;
        let base = store.segments.base(segment) as usize;
        // Without anything that says where the log ended it may have gone on: certain it is not when the
        // header tells that there was nothing yet, or records are left and no summary can be missing.
        let may_be_empty = scanned.entries.is_empty() && !unread.has_header;
        if unread.is_open_ended && (unread.is_all_synced || may_be_empty) {
            scanned.entries.push(SummaryEntry::gap(scanned.end, true));
        }
        // In this order: an end of the log that takes in what is lost, without a summary that says so, would
        // have been read as a promise.
        store.write_summary(segment, nonce, scanned.end, &scanned.entries);
        store.write_tail(segment, nonce, scanned.end);
        // Full pages were counted as they filled.
        let programmed = scanned.end / PAGE * PAGE;
        store.program_tail(segment, (programmed, scanned.end), &scanned.entries, Purpose::Host);
        self.add(store, segment, &scanned.entries, scanned.end);
        self.damaged.extend(scanned.damaged.iter().map(|&at| (base + at) as u64));
        self.dropped.extend(&scanned.dropped);
        seal(store, segment, &scanned.entries, scanned.end);
    }

    /// Writes headers and entries that are not what they should be. A header comes back only now that its
    /// segment has a summary: that it was missing had to be known until then.
    fn repair(&self, store: &KvStore) {
        let pool = store.segments.pool();
        for (segment, survey) in (0..).zip(&self.surveys) {
            let Survey::Known { listed, has_header } = survey else { continue };
            let has_space = |number| store.media.reserve(store.segments.chunk(number)).is_ok();
            if !has_header && has_space(segment) {
                tracing::warn!(segment, "the header of a segment of pairs was damaged and is repaired");
                store.write_header(segment, listed.kind, listed.incarnation, listed.nonce);
            }
            let is_listed = |entry: &Entry| matches!(entry, Entry::Listed(there) if there == listed);
            if !store.load_entries(segment).iter().all(is_listed)
                && store.segments.hosts(segment).into_iter().all(has_space)
            {
                store.write_entry(segment, listed);
            }
        }
        drop(pool);
    }

    /// Adds a segment's records, which lie one behind the other up to `end`.
    fn add(&mut self, store: &KvStore, segment: u32, entries: &[SummaryEntry], end: usize) {
        let base = store.segments.base(segment);
        for (number, entry) in entries.iter().enumerate() {
            let next = entries.get(number + 1).map_or(end, SummaryEntry::offset);
            let bytes = next.saturating_sub(entry.offset());
            let Some(kind) = entry.record() else { continue };
            let shard = store.index.shard_number(entry.hash.get());
            if let Some(records) = self.records.get_mut(shard) {
                records.push(Record::new(entry, kind, base, bytes));
            }
        }
    }

    /// Finds the newest record of each key, a shard at a time: that is small enough for the caches.
    fn fill_index(&mut self, store: &KvStore) {
        for number in 0..self.records.len() {
            let records = group(&std::mem::take(&mut self.records[number]));
            let mut shard = store.index.lock_shard(number);
            shard.reserve(records.chunk_by(|a, b| a.hash == b.hash).count());
            for group in records.chunk_by(|a, b| a.hash == b.hash) {
                self.settle_hash(store, &mut shard, group);
            }
            // Those of records that count for nothing are not used again either: they are still there.
            let dropped = self.dropped.iter().filter(|(hash, _)| store.index.shard_number(*hash) == number);
            let dropped = dropped.map(|(_, sequence)| *sequence);
            let sequences = records.iter().map(Record::sequence).chain(dropped);
            shard.state.sequence = sequences.max().unwrap_or(0) + 1;
            shard.state.has_twins = records.iter().any(Record::may_be_twin);
        }
    }

    /// Records with one hash, newest first: nearly always of one key.
    fn settle_hash(&mut self, store: &KvStore, shard: &mut LockedShard<'_>, group: &[Record]) {
        if group.iter().any(Record::is_part) {
            let (parts, pairs): (Vec<_>, Vec<_>) = group.iter().partition(|record| record.is_part());
            // Parts with one hash are copies of one, or such that nobody claims are among them.
            self.settle_several(store, shard, &parts);
            return self.settle_pairs(store, shard, &pairs);
        }
        self.settle_pairs(store, shard, group);
    }

    fn settle_pairs(&mut self, store: &KvStore, shard: &mut LockedShard<'_>, group: &[Record]) {
        let [newest, older @ ..] = group else { return };
        let has_copies = older.first().is_some_and(|second| second.order == newest.order);
        if has_copies || group.iter().any(Record::may_be_twin) {
            return self.settle_several(store, shard, group);
        }
        self.settle(store, shard, newest, older.len() as u64);
    }

    /// Looks at the keys.
    fn settle_several(&mut self, store: &KvStore, shard: &mut LockedShard<'_>, group: &[Record]) {
        let mut rest = group.to_vec();
        while let Some(newest) = self.take_newest(store, &mut rest) {
            let key = store.load_head(newest.place(), &mut self.buffer);
            let before = rest.len();
            rest.retain(|record| {
                let other = store.load_head(record.place(), &mut self.other);
                match (&key, &other) {
                    (Some(a), Some(b)) => (a.keyspace, self.buffer.key(a)) != (b.keyspace, self.other.key(b)),
                    // Whose record it is cannot be told any more. One hash is one key but for once in an age.
                    _ => false,
                }
            });
            self.settle(store, shard, &newest, (before - rest.len()) as u64);
        }
    }

    /// Takes the newest record. Of two copies of it, one that can be read; of those the one reclaim copied
    /// from: a segment of copies that was begun last, with the last free segment, is then found to be dead.
    fn take_newest(&mut self, store: &KvStore, rest: &mut Vec<Record>) -> Option<Record> {
        let first = *rest.first()?;
        let copies = rest.iter().take_while(|record| record.order == first.order).count();
        let pool = store.segments.pool();
        let age = |place| store.segments.of(place).map(|number| pool.segments[number as usize].incarnation);
        let best = (0..copies).min_by_key(|&copy| {
            let place = rest[copy].place();
            let is_damaged =
                self.damaged.contains(&place) || store.load_head(place, &mut self.other).is_none();
            (is_damaged, age(place))
        });
        Some(rest.remove(best.unwrap_or(0)))
    }

    /// Enters a key's newest record into the index.
    fn settle(&mut self, store: &KvStore, shard: &mut LockedShard<'_>, newest: &Record, older: u64) {
        let kind = newest.kind();
        let slot = Slot::new(newest.place(), newest.bytes(), kind);
        if !shard.has_room() {
            return store.lose(
                newest.place(),
                None,
                "there are more records than the namespace has room for",
            );
        }
        shard.insert(newest.hash, slot, if kind == RecordKind::Part { 0 } else { older });
        if kind == RecordKind::Tombstone && older == 0 {
            return;
        }
        if let Some(segment) = store.segments.of(newest.place()) {
            store.segments.add_live(segment, newest.bytes() as u32);
        }
        match kind {
            // Its value counts for it.
            RecordKind::Part => return self.parts.push((newest.hash, newest.place())),
            RecordKind::Big => self.big.push(newest.place()),
            RecordKind::Value | RecordKind::Tombstone => {}
        }
        shard.state.pairs += u64::from(kind != RecordKind::Tombstone);
        self.used += super::segment::charge(newest.bytes());
    }

    /// Gives their pieces to big values; all others are nobody's.
    fn claim_pieces(&mut self, store: &KvStore) {
        let mut claimed = HashSet::new();
        for place in std::mem::take(&mut self.big) {
            let Some(head) = store.load_head(place, &mut self.buffer) else { continue };
            let Some(manifest) = store.load_manifest(place, &head, &self.buffer) else { continue };
            self.used += cost_of(&head) - super::segment::charge(head.record_bytes());
            claimed.extend(store.hashes_of_parts(&manifest));
            let mut pool = store.segments.pool();
            for extent in manifest.extents {
                let number = extent.segment.get();
                let is_its_own = match self.surveys.get(number as usize) {
                    Some(Survey::Known { listed, .. }) => {
                        listed.kind == SegmentKind::Extent && listed.nonce == extent.nonce.get()
                    }
                    // Nothing else knows it; who lists the segment owns it.
                    Some(Survey::Unused | Survey::Lost) => true,
                    None => false,
                };
                let segment = pool.segment(number);
                if is_its_own && segment.state == State::Free {
                    segment.state = State::Extent;
                    segment.nonce = extent.nonce.get();
                    store.segments.set_nonce(number, extent.nonce.get());
                }
            }
        }
        let orphans = std::mem::take(&mut self.parts);
        for (hash, place) in orphans.into_iter().filter(|(hash, _)| !claimed.contains(hash)) {
            store.drop_part(hash, place);
        }
    }
}

impl Recovery {
    /// Extents of values that do not count: what superseded those may not be durable, and a power cut would
    /// bring them back. They are free after a sync, as if their values had been superseded just now.
    fn quarantine_extents(&self, store: &KvStore) {
        let mut pool = store.segments.pool();
        for (segment, survey) in (0..).zip(&self.surveys) {
            if let Survey::Known { listed, .. } = survey
                && listed.kind == SegmentKind::Extent
                && pool.segment(segment).state == State::Free
            {
                pool.segment(segment).state = State::Extent;
                pool.quarantine(segment);
            }
        }
    }

    /// Segments of which nothing is known any more, if they are not extents of a value: which pairs were in
    /// them nobody knows.
    fn note_lost_segments(&self, store: &KvStore) {
        let lost = self.surveys.iter().enumerate().filter(|(_, survey)| matches!(survey, Survey::Lost));
        for (segment, _) in lost {
            let segment = segment as u32;
            if store.segments.pool().segment(segment).state == State::Free {
                seal(store, segment, &[SummaryEntry::gap(DATA_START, true)], SEGMENT_BYTES);
            }
        }
    }
}

/// Records with those of one hash beside each other, the newest first. All of a bucket of the index come
/// together as well, which brings each of its lines close once.
fn group(records: &[Record]) -> Vec<Record> {
    let mask = (records.len() / 2).next_power_of_two() as u64 - 1;
    let bin = |record: &Record| (record.hash & mask) as usize;
    let mut ends = vec![0usize; mask as usize + 1];
    records.iter().for_each(|record| ends[bin(record)] += 1);
    let mut sum = 0;
    for end in &mut ends {
        sum += std::mem::replace(end, sum);
    }
    let Some(&first) = records.first() else { return Vec::new() };
    let mut grouped = vec![first; records.len()];
    for record in records {
        let at = &mut ends[bin(record)];
        grouped[*at] = *record;
        *at += 1;
    }
    let mut start = 0;
    for end in ends {
        let same = &mut grouped[start..end];
        same.sort_unstable_by(|a, b| (a.hash, b.order, b.place).cmp(&(b.hash, a.order, a.place)));
        start = end;
    }
    grouped
}

/// A log segment has been read.
fn seal(store: &KvStore, segment: u32, entries: &[SummaryEntry], end: usize) {
    let base = store.segments.base(segment);
    let mut is_lossy = false;
    for (number, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.kind() == EntryKind::Lost) {
        let next = entries.get(number + 1).map_or(end, SummaryEntry::offset);
        let bytes = next.saturating_sub(entry.offset());
        let what = match bytes {
            0 => {
                "an unknown number of bytes of the log is lost; nobody knows which pairs were in them".into()
            }
            _ => format!("{bytes} bytes of the log are lost; nobody knows which pairs were in them"),
        };
        store.lose(base + entry.offset() as u64, None, &what);
        is_lossy = true;
    }
    let mut pool = store.segments.pool();
    let info = pool.segment(segment);
    (info.is_lossy, info.is_pinned) = (is_lossy, is_lossy);
    pool.seal(segment, worth(entries.len(), end));
    drop(pool);
    if is_lossy {
        store.doubt();
    }
}

impl KvStore {
    /// Notes that something is lost, for [`KvStore::check`].
    pub(super) fn lose(&self, offset: u64, key: Option<(u8, Vec<u8>)>, what: &str) {
        let mut losses = lock(&self.losses);
        if losses.len() < super::LOSSES_MAX {
            losses.push(Damage { offset, key, what: what.into() });
        }
    }

    /// A sealed segment's summary and the offset of the end of its last record; `None` when it is damaged.
    pub(super) fn load_summary(&self, segment: u32, nonce: u32) -> Option<(Vec<SummaryEntry>, usize)> {
        let base = self.segments.base(segment) as usize;
        let secret = self.segments.identity.secret;
        let trailer = self.load_trailer(segment, nonce)?;
        let mut entries = vec![SummaryEntry::gap(0, false); trailer.entries()];
        let start = TRAILER_AT - size_of_val(entries.as_slice());
        self.memory.read(base + start, entries.as_mut_bytes());
        trailer.vouches_for(&entries, secret).then(|| (entries, trailer.end()))
    }

    fn load_trailer(&self, segment: u32, nonce: u32) -> Option<Trailer> {
        let mut trailer = [0; size_of::<Trailer>()];
        self.memory.read(self.segments.base(segment) as usize + TRAILER_AT, &mut trailer);
        Trailer::read(&trailer, self.segments.identity.secret, nonce)
    }

    /// Entries of a sealed segment: from its summary, or, when that is damaged, from its records. False when
    /// some may be missing, because a record is damaged too.
    pub(super) fn entries_of(
        &self,
        segment: u32,
        nonce: u32,
        buffer: &mut HeadBuffer,
        block: &mut Block,
    ) -> (Vec<SummaryEntry>, bool) {
        if let Some((entries, _)) = self.load_summary(segment, nonce) {
            return (entries, true);
        }
        let base = self.segments.base(segment);
        self.lose(base, None, "the segment's summary is damaged; its records were read one by one");
        let mut copy = vec![0; SEGMENT_BYTES];
        self.memory.read(base as usize, &mut copy);
        // Whether values are whole is not asked here.
        let promise = (Promise::Whole, [].as_slice());
        let scanned = self.scan((segment, nonce), &copy, promise, &mut |_| true, (buffer, block));
        let is_whole = scanned.is_whole() && self.load_tail(segment, nonce) == Some(scanned.end);
        (scanned.entries, is_whole)
    }
}

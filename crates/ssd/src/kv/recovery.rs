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

use unvme_bus::{lock, random};
use zerocopy::IntoBytes;

use super::budget::Budget;
use super::directory::{Entry, find_superblock};
use super::index::LockedShard;
use super::layout::{
    DATA_START, DIRECTORY_AT, EntryKind, FORMAT_VERSION, HEADER_AT, HeaderRead, Identity, LINE_BYTES, Listed,
    RECORD_ALIGNMENT, RecordKind, SEGMENT_BYTES, SUPERBLOCK_AT, SegmentHeader, SegmentKind, SummaryEntry,
    Superblock,
};
use super::programs::PAGE;
use super::record::{Block, HeadBuffer};
use super::scan::Promise;
use super::segment::{Purpose, State, worth};
use super::slot::Slot;
use super::write::cost_of;
use super::{Damage, KvStore, STORE_BYTES_MIN};
use crate::SsdError;
use crate::media::Media;
use crate::store::CHUNK_BYTES;

/// A record found on the media. 24 bytes: there may be hundreds of millions.
#[derive(Clone, Copy)]
struct Record {
    hash: u64,
    /// Sequence number, kind in the lowest two bits.
    order: u64,
    /// Place / 16 in 46 bits, size / 16 above.
    place: u64,
}

impl Record {
    fn new(entry: &SummaryEntry, kind: RecordKind, base: u64, bytes: usize) -> Self {
        let kind = match kind {
            RecordKind::Value => 0,
            RecordKind::Tombstone => 1,
            RecordKind::Big => 2,
        };
        let place = (base + entry.offset() as u64) / RECORD_ALIGNMENT as u64;
        let units = (bytes / RECORD_ALIGNMENT) as u64;
        Self { hash: entry.hash.get(), order: entry.sequence() << 2 | kind, place: place | units << 46 }
    }

    fn sequence(&self) -> u64 {
        self.order >> 2
    }

    fn is_tombstone(&self) -> bool {
        self.order & 3 == 1
    }

    fn is_big(&self) -> bool {
        self.order & 3 == 2
    }

    fn place(&self) -> u64 {
        (self.place & ((1 << 46) - 1)) * RECORD_ALIGNMENT as u64
    }

    fn bytes(&self) -> usize {
        (self.place >> 46) as usize * RECORD_ALIGNMENT
    }
}

/// What is known of a segment.
enum Survey {
    /// It has never been used.
    Unused,
    /// What its header and the directory agree on, or the one of them that counts.
    Known { listed: Listed, has_header: bool },
    /// It has been used, and nothing that tells what for is intact.
    Lost,
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
    /// Records with extents that are the newest of their keys.
    big: Vec<u64>,
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
        store.write_superblock(generation);
        store.segments.pool().segment(0).incarnation = 1;
        store.write_free_header(0, 1, 0);
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
            used: 0,
            segment: vec![0; SEGMENT_BYTES],
            buffer: HeadBuffer::new(),
            other: HeadBuffer::new(),
            block: Block::boxed(),
        };
        recovery.survey(&store);
        recovery.read_segments(&store);
        recovery.fill_index(&store);
        recovery.claim_extents(&store);
        recovery.note_lost_segments(&store);
        recovery.repair(&store);
        store.budget = Budget::new(store.budget.total(), recovery.used, store.lanes.len());
        store.segments.pool().remove_used_from_free();
        // Only now that every segment has its summary: of what an earlier life has left, more may be missing
        // than of what this one writes.
        store.write_superblock(superblock.map_or(0, |superblock| superblock.generation()).saturating_add(1));
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

/// The header of a segment: of its two copies, the one that was written last.
fn read_header(media: &Media, chunk: u32) -> HeaderRead {
    let Some(memory) = media.memory().filter(|_| media.is_reserved(u64::from(chunk))) else {
        return HeaderRead::Nothing;
    };
    let mut found = HeaderRead::Nothing;
    for at in HEADER_AT {
        let mut bytes = [0; size_of::<SegmentHeader>()];
        memory.read(chunk as usize * SEGMENT_BYTES + at, &mut bytes);
        found = match (found, SegmentHeader::read(&bytes)) {
            (HeaderRead::Valid(kind, header), HeaderRead::Valid(other_kind, other)) => {
                let is_later =
                    order(other_kind, other.incarnation.get()) > order(kind, header.incarnation.get());
                if is_later { HeaderRead::Valid(other_kind, other) } else { HeaderRead::Valid(kind, header) }
            }
            (found @ HeaderRead::Valid(..), _) | (found, HeaderRead::Nothing) => found,
            (_, other) => other,
        };
    }
    found
}

/// Of two things that a segment is said to be, the later one is the greater: it is erased after it was used.
fn order(kind: SegmentKind, incarnation: u64) -> (u64, bool) {
    (incarnation, kind == SegmentKind::Free)
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
        for segment in 0..store.segments.count() as u32 {
            if let Some(Survey::Known { listed, has_header }) = self.surveys.get(segment as usize)
                && listed.kind == SegmentKind::Log
            {
                let (listed, has_header) = (*listed, *has_header);
                self.read_segment(store, segment, listed, has_header);
            }
        }
    }

    fn read_segment(&mut self, store: &KvStore, segment: u32, listed: Listed, has_header: bool) {
        let nonce = listed.nonce;
        let is_all_synced = listed.synced_end as usize == SEGMENT_BYTES;
        let is_promised = self.is_same_life || is_all_synced;
        let summary = store.load_summary(segment, nonce);
        if let Some((entries, end)) = &summary
            && is_promised
        {
            self.add(store, segment, entries, *end);
            return seal(store, segment, entries, *end);
        }
        if store.media.reserve(store.segments.chunk(segment)).is_err() {
            // There is nothing, and no space to say so.
            let gap = [SummaryEntry::gap(DATA_START, true)];
            return seal(store, segment, if is_promised { &gap } else { &[] }, DATA_START);
        }
        let base = store.segments.base(segment) as usize;
        store.memory.read(base, &mut self.segment);
        let tail = store.load_tail(segment, nonce);
        let synced = listed.synced_end as usize;
        let promise = match tail {
            Some(tail) if is_all_synced => Promise::Until(tail),
            Some(tail) if is_promised => Promise::Until(tail.max(synced)),
            None if is_promised => Promise::Whole,
            _ => Promise::Until(synced),
        };
        let names = summary.map(|(entries, _)| entries).unwrap_or_default();
        let mut scanned =
            store.scan((segment, nonce), &self.segment, (promise, &names), &mut self.buffer, &mut self.block);
        // Without anything that says where the log ended it may have gone on: certain it is not when the
        // header tells that there was nothing yet, or records are left and no summary can be missing.
        let is_open_ended = is_promised && tail.is_none();
        if is_open_ended && (is_all_synced || (scanned.entries.is_empty() && !has_header)) {
            scanned.entries.push(SummaryEntry::gap(scanned.end, true));
        }
        store.write_tail(segment, nonce, scanned.end);
        store.write_summary(segment, nonce, scanned.end, &scanned.entries);
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
            let mut records = std::mem::take(&mut self.records[number]);
            records.sort_unstable_by(|a, b| (a.hash, b.order, b.place).cmp(&(b.hash, a.order, a.place)));
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
        }
    }

    /// Records with one hash, newest first: nearly always of one key.
    fn settle_hash(&mut self, store: &KvStore, shard: &mut LockedShard<'_>, group: &[Record]) {
        let [single] = group else { return self.settle_several(store, shard, group) };
        self.settle(store, shard, single, 0);
    }

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
        let slot = Slot::new(newest.place(), newest.bytes(), newest.is_tombstone());
        if !shard.has_room() {
            return store.lose(
                newest.place(),
                None,
                "there are more records than the namespace has room for",
            );
        }
        shard.insert(newest.hash, slot, older);
        if !newest.is_tombstone() {
            shard.state.pairs += 1;
        }
        if newest.is_tombstone() && older == 0 {
            return;
        }
        if let Some(segment) = store.segments.of(newest.place()) {
            store.segments.add_live(segment, newest.bytes() as u32);
        }
        self.used += super::segment::charge(newest.bytes());
        if newest.is_big() {
            self.big.push(newest.place());
        }
    }

    /// Gives the extents of big values to them; all others are free.
    fn claim_extents(&mut self, store: &KvStore) {
        for place in std::mem::take(&mut self.big) {
            let Some(head) = store.load_head(place, &mut self.buffer) else { continue };
            let Some(extents) = store.load_manifest(place, &head, &self.buffer) else { continue };
            self.used += cost_of(&head) - super::segment::charge(head.record_bytes());
            let mut pool = store.segments.pool();
            for extent in extents {
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
    }
}

impl Recovery {
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

/// What is said of a segment in the three places that do.
fn survey(store: &KvStore, segment: u32) -> Survey {
    let chunk = store.segments.chunk(segment);
    let header = match read_header(&store.media, chunk as u32) {
        HeaderRead::Valid(kind, header) => {
            let is_ours = header.identity() == store.segments.identity && header.index.get() == segment;
            is_ours.then_some(Listed {
                kind,
                incarnation: header.incarnation.get(),
                nonce: header.nonce.get(),
                synced_end: 0,
            })
        }
        HeaderRead::Version(_) | HeaderRead::Nothing => None,
    };
    let entries = store.load_entries(segment);
    let listed = entries.iter().filter_map(|entry| match entry {
        Entry::Listed(listed) => Some(*listed),
        Entry::Blank | Entry::Damaged => None,
    });
    let Some(mut newest) = listed.clone().chain(header).max_by_key(|l| order(l.kind, l.incarnation)) else {
        // One damaged page is where nothing was; several are where nobody knows what was.
        let damaged = entries.iter().filter(|entry| matches!(entry, Entry::Damaged)).count();
        let is_lost = damaged + usize::from(has_been_used(store, segment)) > 1;
        return if is_lost { Survey::Lost } else { Survey::Unused };
    };
    let is_same = |other: &Listed| {
        (other.kind, other.incarnation, other.nonce) == (newest.kind, newest.incarnation, newest.nonce)
    };
    let has_header = header.as_ref().is_some_and(is_same);
    // Copies differ in that when one of them is stale.
    newest.synced_end = listed.filter(is_same).map(|listed| listed.synced_end).max().unwrap_or(0);
    Survey::Known { listed: newest, has_header }
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

/// True when there is something in a segment's first page, beside what it has for others, or at its first
/// record.
fn has_been_used(store: &KvStore, segment: u32) -> bool {
    let mut start = [0; DATA_START + LINE_BYTES];
    if store.media.is_reserved(store.segments.chunk(segment)) {
        store.memory.read(store.segments.base(segment) as usize, &mut start);
    }
    if store.segments.hosts(segment).contains(&segment)
        || store.segments.hosts(segment + 1).contains(&segment)
    {
        start[SUPERBLOCK_AT..SUPERBLOCK_AT + size_of::<Superblock>()].fill(0);
        start[DIRECTORY_AT..HEADER_AT[1]].fill(0);
    }
    start.iter().any(|&byte| byte != 0)
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
        use super::layout::{TRAILER_AT, Trailer};
        let base = self.segments.base(segment) as usize;
        let secret = self.segments.identity.secret;
        let mut trailer = [0; size_of::<Trailer>()];
        self.memory.read(base + TRAILER_AT, &mut trailer);
        let trailer = Trailer::read(&trailer, secret, nonce)?;
        let mut entries = vec![SummaryEntry::gap(0, false); trailer.entries()];
        let start = TRAILER_AT - size_of_val(entries.as_slice());
        self.memory.read(base + start, entries.as_mut_bytes());
        trailer.vouches_for(&entries, secret).then(|| (entries, trailer.end()))
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
        let scanned = self.scan((segment, nonce), &copy, (Promise::Whole, &[]), buffer, block);
        let is_whole = scanned.is_whole() && self.load_tail(segment, nonce) == Some(scanned.end);
        (scanned.entries, is_whole)
    }
}

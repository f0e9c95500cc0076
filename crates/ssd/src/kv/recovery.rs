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
//!   before it counts. In a segment that a sync has covered (its header has the mark) nothing can have been
//!   lost; there a record that is not intact is damage, and the pair is reported as unrecovered instead of an
//!   older value being returned.
//! - So a marked segment's summary is believed, which makes opening fast; an unmarked one's records are read
//!   and checked.
//! - Two copies of a record, of which reclaim made one, have the same number and the same content: one of
//!   them counts as an older record.
//!
//! A flipped byte in one record's head must not cost its neighbours: scanning goes on at the next multiple of
//! 16 bytes, where only a record of this use of this segment can be taken for one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unvme_bus::{lock, random};
use zerocopy::IntoBytes;

use super::budget::Budget;
use super::index::LockedShard;
use super::layout::{
    CLEAN_AT, DATA_START, FORMAT_VERSION, HEADER_AT, HeaderRead, Identity, LINE_BYTES, RECORD_ALIGNMENT,
    RecordKind, SEGMENT_BYTES, SegmentHeader, SegmentKind, SummaryEntry, TAIL_AT, clean_mark,
};
use super::programs::PAGE;
use super::record::{Block, HeadBuffer};
use super::scan::{Scanned, Torn};
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

/// What a segment's first page says.
enum Survey {
    Segment(SegmentKind, SegmentHeader),
    /// Never used, or another store's.
    Unknown,
    /// There is something where a header should be.
    Damaged,
}

/// What has been found so far.
struct Recovery {
    surveys: Vec<Survey>,
    /// By shard.
    records: Vec<Vec<Record>>,
    /// Records with values that are not intact.
    torn: Vec<Torn>,
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
        let store = Self::assemble(media, chunks, identity)?;
        let media = &store.media;
        let no_space = |_| SsdError::Config {
            key: "bytes",
            value: "a new key-value namespace".into(),
            expected: "2 MiB of free space under the media".into(),
        };
        media.reserve(store.segments.chunk(0)).map_err(no_space)?;
        // The first segment says which store this is. Once it says so durably, everything else is nobody's.
        store.write_free_header(0, 1, 0);
        media.store().sync()?;
        let base = store.segments.base(0) as usize;
        store.memory.fill(base + DATA_START, SEGMENT_BYTES - DATA_START, 0);
        media.release((1..store.segments.count() as u32).map(|segment| store.segments.chunk(segment)))?;
        Ok(store)
    }

    /// Opens what [`KvStore::create`] made, after any kind of end.
    ///
    /// # Errors
    /// [`SsdError::State`] when there is no store there or another version wrote it.
    pub(crate) fn open(media: Arc<Media>, chunks: Arc<[u32]>) -> Result<Self, SsdError> {
        check_size(&chunks)?;
        let identity = find_identity(&media, &chunks)?;
        let mut store = Self::assemble(media, chunks, identity)?;
        let mut recovery = Recovery {
            surveys: Vec::new(),
            records: (0..store.index.shards()).map(|_| Vec::new()).collect(),
            torn: Vec::new(),
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
        recovery.note_headless(&store);
        store.budget = Budget::new(store.budget.total(), recovery.used, store.lanes.len());
        store.segments.pool().remove_used_from_free();
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

/// The header of a segment, from either copy.
fn read_header(media: &Media, chunk: u32) -> HeaderRead {
    let Some(memory) = media.memory().filter(|_| media.is_reserved(u64::from(chunk))) else {
        return HeaderRead::Nothing;
    };
    let mut version = None;
    for at in HEADER_AT {
        let mut bytes = [0; size_of::<SegmentHeader>()];
        memory.read(chunk as usize * SEGMENT_BYTES + at, &mut bytes);
        match SegmentHeader::read(&bytes) {
            HeaderRead::Nothing => {}
            HeaderRead::Version(other) => version = Some(other),
            valid @ HeaderRead::Valid(..) => return valid,
        }
    }
    version.map_or(HeaderRead::Nothing, HeaderRead::Version)
}

/// What a segment's header says that it is.
pub(super) fn segment_kind(media: &Media, chunk: u32) -> Option<SegmentKind> {
    match read_header(media, chunk) {
        HeaderRead::Valid(kind, _) => Some(kind),
        HeaderRead::Version(_) | HeaderRead::Nothing => None,
    }
}

/// Which store it is: the first segment says so, and when that is damaged, most others do.
fn find_identity(media: &Media, chunks: &[u32]) -> Result<Identity, SsdError> {
    let refuse = |reason: String| SsdError::State { path: media.store().state_path(), reason };
    let fits = |header: &SegmentHeader, index: usize| {
        header.index.get() as usize == index && header.segments.get() as usize == chunks.len()
    };
    let mut found = None;
    for (index, &chunk) in chunks.iter().enumerate() {
        match read_header(media, chunk) {
            HeaderRead::Valid(_, header) if fits(&header, index) => {
                found = Some(header.identity());
                break;
            }
            HeaderRead::Version(version) if index == 0 => {
                return Err(refuse(format!(
                    "the key-value store has format {version}; this version reads format {FORMAT_VERSION}"
                )));
            }
            _ => {}
        }
    }
    found.ok_or_else(|| refuse("there is no key-value store in the namespace".into()))
}

impl Recovery {
    fn survey(&mut self, store: &KvStore) {
        let mut pool = store.segments.pool();
        for segment in 0..store.segments.count() as u32 {
            let survey = match read_header(&store.media, store.segments.chunk(segment) as u32) {
                HeaderRead::Valid(kind, header)
                    if header.identity() == store.segments.identity && header.index.get() == segment =>
                {
                    Survey::Segment(kind, header)
                }
                HeaderRead::Nothing if has_been_used(store, segment) => Survey::Damaged,
                _ => Survey::Unknown,
            };
            if let Survey::Segment(kind, header) = &survey {
                let info = pool.segment(segment);
                info.incarnation = header.incarnation.get();
                info.nonce = header.nonce.get();
                pool.incarnation = pool.incarnation.max(header.incarnation.get());
                if *kind == SegmentKind::Free {
                    // That it is free may not be durable yet.
                    pool.wait_erased(segment);
                }
            }
            self.surveys.push(survey);
        }
    }

    fn read_segments(&mut self, store: &KvStore) {
        for segment in 0..store.segments.count() as u32 {
            if let Some(Survey::Segment(SegmentKind::Log, header)) = self.surveys.get(segment as usize) {
                let nonce = header.nonce.get();
                self.read_segment(store, segment, nonce);
            }
        }
    }

    fn read_segment(&mut self, store: &KvStore, segment: u32, nonce: u32) {
        let base = store.segments.base(segment) as usize;
        let mark = store.memory.load_u64(base + CLEAN_AT, Ordering::Relaxed);
        let is_clean = mark == clean_mark(store.segments.identity.secret, nonce);
        let summary = if is_clean { store.load_summary(segment, nonce) } else { None };
        if let Some((entries, end)) = summary {
            self.add(store, segment, &entries, end);
            let mut pool = store.segments.pool();
            pool.seal(segment, worth(entries.len(), end));
            return;
        }
        store.memory.read(base, &mut self.segment);
        let scanned = store.scan(segment, nonce, &self.segment, &mut self.buffer, &mut self.block);
        if is_clean {
            store.lose(
                base as u64,
                None,
                "the segment's summary is damaged; its records were read one by one",
            );
        }
        store.write_summary(segment, nonce, scanned.end, &scanned.entries);
        // Full pages were counted as they filled.
        let programmed = scanned.end / PAGE * PAGE;
        store.program_tail(segment, (programmed, scanned.end), &scanned.entries, Purpose::Host);
        self.add(store, segment, &scanned.entries, scanned.end);
        store.segments.pool().seal(segment, worth(scanned.entries.len(), scanned.end));
        self.note_losses(store, segment, scanned);
    }

    fn note_losses(&mut self, store: &KvStore, segment: u32, scanned: Scanned) {
        let base = store.segments.base(segment);
        for (from, to) in &scanned.holes {
            let what = format!("{} bytes of the log hold no intact record", to - from);
            store.lose(base + *from as u64, None, &what);
        }
        let tail = store.memory.load_u64(base as usize + TAIL_AT, Ordering::Relaxed) as usize;
        if tail > scanned.end && tail <= SEGMENT_BYTES && scanned.torn.is_empty() {
            let what = format!("{} bytes at the end of the log hold no intact record", tail - scanned.end);
            store.lose(base + scanned.end as u64, None, &what);
        }
        self.torn.extend(scanned.torn);
    }

    /// Of the records of a shard with values that are not intact, those that were the newest of their keys
    /// are a loss.
    fn note_torn(&self, store: &KvStore, number: usize, records: &[Record]) {
        for torn in self.torn.iter().filter(|torn| store.index.shard_number(torn.hash) == number) {
            let first = records.partition_point(|record| record.hash < torn.hash);
            let newest = records.get(first).filter(|record| record.hash == torn.hash);
            if newest.is_none_or(|record| record.sequence() < torn.sequence) {
                let what = "the value is damaged or incomplete; an older one counts, if there is one";
                store.lose(torn.place, Some(torn.key.clone()), what);
            }
        }
    }

    /// Adds a segment's records, which lie one behind the other up to `end`.
    fn add(&mut self, store: &KvStore, segment: u32, entries: &[SummaryEntry], end: usize) {
        let base = store.segments.base(segment);
        for (number, entry) in entries.iter().enumerate() {
            let next = entries.get(number + 1).map_or(end, SummaryEntry::offset);
            let Some(kind) = entry.kind() else { continue };
            let bytes = next.saturating_sub(entry.offset());
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
            self.note_torn(store, number, &records);
            // Those of records that are not intact are not used again either: they are still there.
            let torn = self.torn.iter().filter(|torn| store.index.shard_number(torn.hash) == number);
            let sequences = records.iter().map(Record::sequence).chain(torn.map(|torn| torn.sequence));
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
            (store.load_head(place, &mut self.other).is_none(), age(place))
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
                    Some(Survey::Segment(SegmentKind::Extent, header)) => header.nonce == extent.nonce,
                    // The header is damaged; who lists the segment owns it.
                    Some(Survey::Unknown | Survey::Damaged) => true,
                    _ => false,
                };
                let segment = pool.segment(number);
                if is_its_own && segment.state == State::Free {
                    segment.state = State::Extent;
                    segment.nonce = extent.nonce.get();
                }
            }
        }
    }
}

impl Recovery {
    /// Segments whose headers are damaged, if they are not extents of a value: which pairs were in them
    /// nobody knows.
    fn note_headless(&self, store: &KvStore) {
        let damaged = self.surveys.iter().enumerate().filter(|(_, survey)| matches!(survey, Survey::Damaged));
        for (segment, _) in damaged {
            let segment = segment as u32;
            if store.segments.pool().segment(segment).state == State::Free {
                let what =
                    "a segment's header is damaged; pairs that were in it are lost, or older ones count";
                store.lose(store.segments.base(segment), None, what);
            }
        }
    }
}

/// True when there is something in a segment's first page or at its first record.
fn has_been_used(store: &KvStore, segment: u32) -> bool {
    let mut start = [0; DATA_START + LINE_BYTES];
    if store.media.is_reserved(store.segments.chunk(segment)) {
        store.memory.read(store.segments.base(segment) as usize, &mut start);
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
        let mut entries = vec![SummaryEntry::new(0, 0, None, 0); trailer.entries()];
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
        let scanned = self.scan(segment, nonce, &copy, buffer, block);
        let tail = self.memory.load_u64(base as usize + TAIL_AT, Ordering::Relaxed);
        let is_whole = scanned.holes.is_empty() && scanned.torn.is_empty() && tail == scanned.end as u64;
        (scanned.entries, is_whole)
    }
}

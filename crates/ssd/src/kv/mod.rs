//! The log-structured store behind a Key Value namespace.
//!
//! | module | concept |
//! |---|---|
//! | `pairs`, `iterator` | what a namespace holds beside its store: the vendor's iterators |
//! | `counters` | what commands are counted |
//! | `index`, `slot` | hash of a key to its newest record, in memory |
//! | `layout`, `checksum` | what is on the media (`docs/disk-format.md`) |
//! | `segment`, `append`, `budget` | the log: segments, append heads, capacity |
//! | `directory` | which segments live |
//! | `record`, `big`, `host` | records, values of many segments, host memory |
//! | `read`, `write` | retrieving; storing, appending, deleting |
//! | `programs` | pages of the log, as a flash translation layer counts them |
//! | `reclaim`, `sync` | getting space back, and when that is safe |
//! | `recovery`, `scan`, `check` | opening a store, and what is lost |
//! | `saved` | the index as a file, for opening at once |
//! | `ordered` | the keys in order |
//!
//! Pairs are appended to a log and never changed in place. The index in memory knows the newest record of
//! each key; records that are not, are dead, and reclaim gets their space back. Why that is safe at every
//! moment, for a process that dies and for power that fails, is told in `recovery` and `segment`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unvme_bus::space::Place;
use unvme_bus::{Mappings, Region, SpinLock};
use unvme_spec::Status;

use crate::SsdError;
use crate::media::Media;
use append::AppendHead;
use budget::Budget;
use index::Index;
use layout::{Identity, SEGMENT_BYTES};
use ordered::Ordered;
pub(crate) use pairs::{KeyValue, KvLane};
use programs::Programs;
use reclaim::Reclaimer;
use record::{Block, HeadBuffer};
use saved::Moment;
use segment::Segments;

mod append;
mod big;
mod budget;
mod check;
mod checksum;
pub(crate) mod counters;
mod directory;
mod host;
mod index;
pub(crate) mod iterator;
mod layout;
mod ordered;
mod pairs;
mod pieces;
mod programs;
mod read;
mod reclaim;
mod record;
mod recovery;
mod saved;
mod scan;
mod segment;
mod slot;
mod survey;
mod sync;
mod write;

#[cfg(test)]
mod tests;

/// Losses that are remembered to be told; more would not be read.
const LOSSES_MAX: usize = 10_000;
/// Longest key in bytes. The standard command set stops at 16.
pub(crate) const KEY_BYTES_MAX: usize = 255;
/// Longest value in bytes.
pub(crate) const VALUE_BYTES_MAX: u32 = 256 << 20;
/// Number of keyspaces: Samsung's vendor set has two, the standard set uses keyspace 0.
pub(crate) const KEYSPACES: u8 = 2;
/// Smallest namespace in bytes that can hold a store.
pub(crate) const STORE_BYTES_MIN: u64 = 16 << 20;

/// Why an operation on the store did not happen. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KvError {
    /// The key has no value (and the operation needs one).
    NotFound,
    /// The key has a value (and the operation needs it not to).
    Exists,
    /// The value would be longer than [`VALUE_BYTES_MAX`].
    TooLong,
    /// There is no space for the pair.
    Full,
    /// The pair is there, and the media holds it damaged; or it may be, and what is there is an older one.
    Unrecovered,
    /// The store under the media failed.
    Media(Status),
}

impl KvError {
    fn from_media(status: Status) -> Self {
        if status == Status::CAPACITY_EXCEEDED { Self::Full } else { Self::Media(status) }
    }
}

/// A key, and what it hashes to in one store: made by [`KvStore::key`], once per command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    keyspace: u8,
    bytes: &'a [u8],
    hash: u64,
}

/// Host memory of a command: pieces in order that add up to `bytes`.
#[derive(Clone, Copy)]
pub(crate) struct HostData<'a> {
    pub(crate) host: &'a Mappings,
    pub(crate) pieces: &'a [Place],
    pub(crate) bytes: u32,
}

/// What a store command asks for beside the value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StorePolicy {
    /// Only when the key has no value yet; else [`KvError::Exists`].
    pub(crate) must_not_exist: bool,
    /// Only when the key has a value; else [`KvError::NotFound`].
    pub(crate) must_exist: bool,
    /// Compress the value when that saves space.
    pub(crate) compress: bool,
}

/// What of a value to retrieve.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    /// First byte of the value to copy; at or beyond its end nothing is copied.
    pub(crate) offset: u32,
    /// As stored: a compressed value is not decompressed, and `offset` and lengths are those of its
    /// compressed form.
    pub(crate) raw: bool,
    /// Media offset the next command will read from (what [`KvStore::prefetch_record`] returned), or
    /// [`crate::store::NOWHERE`]: it is brought close while this value is copied.
    pub(crate) next_read: u64,
}

/// Buffers of one submission queue, and which append head it writes to. One serves all stores.
pub(crate) struct KvScratch {
    lane: usize,
    /// Head of the record that is read or written.
    head: HeadBuffer,
    /// Head of a record that is only looked at.
    old: HeadBuffer,
    block: Box<Block>,
    packed: Vec<u8>,
    plain: Vec<u8>,
}

impl KvScratch {
    /// Scratch of a queue; queues with different numbers write to different segments where there are enough
    /// of them.
    pub(crate) fn new(lane: u16) -> Self {
        Self {
            lane: usize::from(lane),
            head: HeadBuffer::new(),
            old: HeadBuffer::new(),
            block: Block::boxed(),
            packed: Vec::new(),
            plain: Vec::new(),
        }
    }
}

/// Which keys to list, in order: byte-wise, a shorter key before the longer ones it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing<'a> {
    pub(crate) keyspace: u8,
    /// Where to start; empty for the beginning.
    pub(crate) start: &'a [u8],
    /// Leave `start` itself out: to go on behind the last key of an earlier listing.
    pub(crate) after_start: bool,
    /// Keys longer than this are left out.
    pub(crate) key_bytes_max: usize,
    /// Only keys whose first four bytes, as a big-endian number with zeroes for missing ones, equal `prefix`
    /// in the bits of `mask`. A mask of 0 takes all.
    pub(crate) prefix: u32,
    /// See `prefix`.
    pub(crate) mask: u32,
}

/// Numbers about a store. All of them are exact at a moment without commands under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvStats {
    /// Pairs that exist.
    pub pairs: u64,
    /// Bytes of the capacity that live records use (NUSE), keys, checksums and padding included.
    pub used_bytes: u64,
    /// Bytes that live records can use (NSZE).
    pub capacity_bytes: u64,
    /// Key and value bytes the host has stored and appended since the store was opened.
    pub host_bytes_written: u64,
    /// Bytes written to the media since the store was opened, by the host's commands and by reclaim.
    pub media_bytes_written: u64,
    /// Of those, by reclaim, which copied so much.
    pub reclaimed_bytes: u64,
    /// Memory of the index.
    pub index_bytes: u64,
    /// Memory of the ordered key set; 0 while nobody has listed.
    pub ordered_bytes: u64,
    /// All memory the store holds, the two above included.
    pub memory_bytes: u64,
}

/// Something that is lost, or not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Media offset where it is.
    pub offset: u64,
    /// The pair, when it can be named: keyspace and key.
    pub key: Option<(u8, Vec<u8>)>,
    /// What happened, as text for people.
    pub what: String,
}

/// One Key Value namespace's pairs, over its chunks of the media. Any thread may call anything.
pub(crate) struct KvStore {
    media: Arc<Media>,
    memory: Region,
    bypasses_caches: bool,
    segments: Segments,
    programs: Programs,
    index: Index,
    budget: Budget,
    lanes: Box<[Lane]>,
    reclaimer: Mutex<Reclaimer>,
    /// There are few free segments: background work has something to look at.
    is_scarce: AtomicBool,
    ordered: Ordered,
    /// Written to the media beside records.
    other_media_bytes: AtomicU64,
    reclaimed_bytes: AtomicU64,
    /// What was found to be lost when the store was opened and since.
    losses: Mutex<Vec<Damage>>,
    /// Records were lost, and nobody knows whose: whatever else there is of a key may be older than one of
    /// them.
    is_in_doubt: AtomicBool,
    /// Which index that was saved counts. Locked while one is saved, and while what it would have is erased.
    moment: Mutex<Moment>,
    /// The index that was saved is what there is.
    is_saved: AtomicBool,
    /// Somebody else has the chunks now: nothing is written to them when the store is dropped.
    is_abandoned: AtomicBool,
}

/// An append head and what it has counted, on lines of their own.
#[repr(align(128))]
struct Lane {
    head: SpinLock<AppendHead>,
    host_bytes: AtomicU64,
    media_bytes: AtomicU64,
}

impl Lane {
    /// Counts what was written. The head is locked: nobody else adds.
    #[inline]
    fn count(&self, host_bytes: u64, media_bytes: u64) {
        let add = |counter: &AtomicU64, bytes| {
            counter.store(counter.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        };
        add(&self.host_bytes, host_bytes);
        add(&self.media_bytes, media_bytes);
    }
}

impl KvStore {
    /// A store without anything in it, in memory or on the media.
    fn assemble(media: Arc<Media>, chunks: Arc<[u32]>, identity: Identity) -> Result<Self, SsdError> {
        let Some(memory) = media.memory().cloned() else {
            return Err(SsdError::Config {
                key: "namespaces",
                value: "a key-value namespace".into(),
                expected: "media that keeps data".into(),
            });
        };
        let lanes = segment::lanes(chunks.len());
        // No record takes less than this, with its entry in the summary.
        let pairs_max = (chunks.len() * SEGMENT_BYTES / 64) as u64;
        let index = Index::new(pairs_max)?;
        let total = segment::capacity_bytes(chunks.len());
        let lane = || Lane {
            head: SpinLock::default(),
            host_bytes: AtomicU64::new(0),
            media_bytes: AtomicU64::new(0),
        };
        Ok(Self {
            bypasses_caches: media.bypasses_caches(),
            programs: Programs::new(&media),
            media,
            memory,
            segments: Segments::new(identity, chunks),
            budget: Budget::new(total, 0, lanes),
            lanes: (0..lanes).map(|_| lane()).collect(),
            reclaimer: Mutex::new(Reclaimer::new()),
            is_scarce: AtomicBool::new(true),
            ordered: Ordered::new(index.shards()),
            index,
            other_media_bytes: AtomicU64::new(0),
            reclaimed_bytes: AtomicU64::new(0),
            losses: Mutex::default(),
            is_in_doubt: AtomicBool::new(false),
            moment: Mutex::default(),
            is_saved: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        })
    }

    /// Gives the chunks up: to be called before they are erased or handed to another store, when nobody uses
    /// this one.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Refuses what depends on every record being there, while some may be missing.
    #[inline]
    pub(crate) fn vouch(&self) -> Result<(), KvError> {
        // Relaxed: it is set before the store is used, and what an operator accepts while it is used counts
        // from some moment on.
        if self.is_in_doubt.load(Ordering::Relaxed) { Err(KvError::Unrecovered) } else { Ok(()) }
    }

    /// Records were lost, and nobody knows whose.
    fn doubt(&self) {
        self.is_in_doubt.store(true, Ordering::Relaxed);
    }

    /// What was lost is given up.
    fn end_doubt(&self) {
        self.is_in_doubt.store(false, Ordering::Relaxed);
    }

    /// A key of this store. `bytes` has 1 to [`KEY_BYTES_MAX`] bytes and `keyspace` is below [`KEYSPACES`]:
    /// callers have checked that.
    #[inline]
    pub(crate) fn key<'a>(&self, keyspace: u8, bytes: &'a [u8]) -> Key<'a> {
        debug_assert!((1..=KEY_BYTES_MAX).contains(&bytes.len()) && keyspace < KEYSPACES);
        Key { keyspace, bytes, hash: checksum::of_key(self.segments.identity.secret, keyspace, bytes) }
    }

    /// Numbers about the store.
    pub(crate) fn stats(&self) -> KvStats {
        let sum = |count: fn(&Lane) -> &AtomicU64| {
            self.lanes.iter().map(|lane| count(lane).load(Ordering::Relaxed)).sum::<u64>()
        };
        let pairs = (0..self.index.shards()).map(|number| self.index.lock_shard(number).state.pairs).sum();
        let reclaimed_bytes = self.reclaimed_bytes.load(Ordering::Relaxed);
        let other = self.other_media_bytes.load(Ordering::Relaxed);
        let index_bytes = self.index.memory_bytes();
        let ordered_bytes = self.ordered.memory_bytes();
        KvStats {
            pairs,
            used_bytes: self.budget.used(),
            capacity_bytes: self.budget.total(),
            host_bytes_written: sum(|lane| &lane.host_bytes),
            media_bytes_written: sum(|lane| &lane.media_bytes) + reclaimed_bytes + other,
            reclaimed_bytes,
            index_bytes,
            ordered_bytes,
            memory_bytes: index_bytes + ordered_bytes + self.segments.memory_bytes(),
        }
    }

    fn count_media_bytes(&self, bytes: u64) {
        self.other_media_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn count_reclaimed_bytes(&self, bytes: u64) {
        self.reclaimed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for KvStore {
    fn drop(&mut self) {
        if !self.is_abandoned.load(Ordering::Acquire) && self.close().is_err() {
            tracing::error!("a key-value store could not be flushed when it was closed");
        }
    }
}

//! The index as a file, so that a store which was closed opens without reading its log.
//!
//! Closing a store saves what it knows, beside the media: the index's buckets as they lie in memory, the
//! state of its shards, and what each segment is. Opening takes that over, if it is of this moment.
//!
//! **Which moment it is of.** Each superblock has a number of its own, drawn at random, and the file has that
//! of the superblock at the time. The first change after that (a segment is taken, or erased: nothing else
//! changes the media) writes a new superblock before it, and what was saved counts no more. A power cut that
//! takes the new superblock away takes only what no sync had covered: then what was saved is what is there,
//! or a segment's header tells that it is not.
//!
//! **Nothing depends on it.** A file that is damaged in any way, or not there, is as good as none: the log is
//! read then. What it says of segments has to be what their headers and the directory say. It makes up for
//! nothing that is lost, either: whatever is there is found by its place, and has the nonce of its segment
//! and checksums of its own.
//!
//! It is not synced: what a power cut leaves half written has no checksum.

use std::collections::HashMap;
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use twox_hash::XxHash3_64;
use unvme_bus::lock;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::KvStore;
use super::index::ShardState;
use super::layout::{DATA_START, FORMAT_VERSION, SegmentKind, Superblock};
use super::segment::{Pool, State};
use super::slot::Slot;
use super::survey::Survey;

const MAGIC: [u8; 8] = *b"UNVMEKVI";
/// Buckets are copied in pieces of this size, which fits into a processor's caches.
const PIECE_BYTES: usize = 256 << 10;
const HAS_TWINS: u32 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    version: U32,
    segments: U32,
    store: U64,
    moment: U64,
    shards: U32,
    reserved: U32,
    used_bytes: U64,
    buckets_bytes: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SavedSegment {
    incarnation: U64,
    nonce: U32,
    /// 0: free, or of no use any more; else as in the header.
    kind: U32,
    live: U32,
    worth: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SavedShard {
    sequence: U64,
    pairs: U64,
    used: U64,
    level: U32,
    large: U32,
    flags: U32,
    reserved: U32,
}

/// A count of older records that does not fit into a slot.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SavedLarge {
    hash: U64,
    place: U64,
    older: U64,
}

/// Which index that was saved counts.
#[derive(Default)]
pub(super) struct Moment {
    /// Of the superblock.
    pub(super) generation: u64,
    pub(super) number: u64,
}

impl Moment {
    pub(super) fn of(superblock: &Superblock) -> Self {
        Self { generation: superblock.generation(), number: superblock.moment() }
    }
}

impl KvStore {
    /// To be called before what is on the media changes: what was saved counts no more.
    #[inline]
    pub(super) fn begin_change(&self) {
        // Relaxed: it is set while append heads and reclaim are locked, and nothing is being erased.
        if self.is_saved.load(Ordering::Relaxed) {
            drop(self.begin_changes());
        }
    }

    /// As [`KvStore::begin_change`]; nothing is saved while the guard is held.
    pub(super) fn begin_changes(&self) -> MutexGuard<'_, Moment> {
        let mut moment = lock(&self.moment);
        if self.is_saved.swap(false, Ordering::Relaxed) {
            *moment = Moment::of(&self.write_superblock(moment.generation.saturating_add(1)));
        }
        moment
    }

    /// Saves the index, if everything is on the media and known. That it cannot be saved costs time when the
    /// store is opened, and nothing else.
    pub(super) fn save_index(&self) {
        let store = self.media.store();
        let is_known = !self.is_in_doubt() && lock(&self.losses).is_empty();
        if !store.persists() || store.is_read_only() || !is_known {
            return;
        }
        let lanes: Vec<_> = self.lanes.iter().map(|lane| lane.head.lock()).collect();
        let reclaimer = lock(&self.reclaimer);
        let moment = lock(&self.moment);
        if self.segments.pool().has_unsynced() {
            return;
        }
        let place = self.segments.chunk(0);
        match store.save_index(place, &mut |out| self.write_index(&moment, out)) {
            Ok(()) => self.is_saved.store(true, Ordering::Relaxed),
            Err(error) => tracing::info!(%error, "the index of a key-value store could not be saved"),
        }
        drop((moment, reclaimer, lanes));
    }

    /// Forgets what was saved: the namespace goes.
    pub(crate) fn drop_index(&self) {
        self.media.store().drop_index(self.segments.chunk(0));
    }

    fn write_index(&self, moment: &Moment, out: &mut dyn Write) -> io::Result<()> {
        let buckets_bytes = self.index.buckets_bytes();
        let mut out = Sealing { hash: self.seal_of(moment.number), out };
        let head = Head {
            magic: MAGIC,
            version: FORMAT_VERSION.into(),
            segments: self.segments.identity.segments.into(),
            store: self.segments.identity.store.into(),
            moment: moment.number.into(),
            shards: (self.index.shards() as u32).into(),
            reserved: 0.into(),
            used_bytes: self.budget.used().into(),
            buckets_bytes: (buckets_bytes as u64).into(),
        };
        out.write_all(head.as_bytes())?;
        let segments: Vec<SavedSegment> = {
            let pool = self.segments.pool();
            (0..pool.segments.len() as u32).map(|number| self.describe(&pool, number)).collect()
        };
        out.write_all(segments.as_bytes())?;
        let (mut shards, mut large) = (Vec::new(), Vec::new());
        for number in 0..self.index.shards() {
            let shard = self.index.lock_shard(number);
            shards.push(SavedShard {
                sequence: shard.state.sequence.into(),
                pairs: shard.state.pairs.into(),
                used: (shard.state.used as u64).into(),
                level: shard.level().into(),
                large: (shard.state.large.len() as u32).into(),
                flags: if shard.state.has_twins { HAS_TWINS } else { 0 }.into(),
                reserved: 0.into(),
            });
            large.extend(shard.state.large.iter().map(|(&(hash, place), &older)| SavedLarge {
                hash: hash.into(),
                place: place.into(),
                older: older.into(),
            }));
        }
        out.write_all(shards.as_bytes())?;
        out.write_all(large.as_bytes())?;
        let mut piece = vec![0; PIECE_BYTES.min(buckets_bytes)];
        for at in (0..buckets_bytes).step_by(PIECE_BYTES) {
            let bytes = PIECE_BYTES.min(buckets_bytes - at);
            self.index.copy_buckets(at, &mut piece[..bytes]);
            out.write_all(&piece[..bytes])?;
        }
        let Sealing { hash, out } = out;
        out.write_all(&hash.finish().to_le_bytes())
    }

    fn describe(&self, pool: &Pool, number: u32) -> SavedSegment {
        let info = &pool.segments[number as usize];
        let kind = match info.state {
            // Its records are dead, and still count as older ones.
            State::Open | State::Sealed | State::Quarantined(false) => SegmentKind::Log.number(),
            State::Extent => SegmentKind::Extent.number(),
            State::Free | State::Quarantined(true) | State::Erased => 0,
        };
        SavedSegment {
            incarnation: info.incarnation.into(),
            nonce: info.nonce.into(),
            kind: kind.into(),
            live: self.segments.live(number).into(),
            worth: info.worth.into(),
        }
    }

    /// Only who knows the store's secret can make a file that passes.
    fn seal_of(&self, moment: u64) -> XxHash3_64 {
        XxHash3_64::with_seed(self.segments.identity.secret ^ moment)
    }

    /// Takes over the index that was saved when the superblock was written, if it agrees with what is known
    /// of each segment. Returns the capacity in use; `None`, and nothing has changed but the index, when
    /// there is none that counts.
    pub(super) fn load_index(&mut self, superblock: &Superblock, surveys: &[Survey]) -> Option<u64> {
        let file = self.media.store().load_index(self.segments.chunk(0))?;
        let loaded = self.read_index(superblock, surveys, file);
        if loaded.is_none() {
            self.index.clear();
        }
        loaded
    }

    fn read_index(
        &self,
        superblock: &Superblock,
        surveys: &[Survey],
        mut file: Box<dyn Read>,
    ) -> Option<u64> {
        let mut hash = self.seal_of(superblock.moment());
        let mut fetch = |bytes: &mut [u8]| {
            file.read_exact(bytes).ok()?;
            hash.write(bytes);
            Some(())
        };
        let mut head = Head::new_zeroed();
        fetch(head.as_mut_bytes())?;
        let is_ours = head.magic == MAGIC
            && head.version.get() == FORMAT_VERSION
            && head.segments.get() == self.segments.identity.segments
            && head.store.get() == self.segments.identity.store
            && head.moment.get() == superblock.moment()
            && head.shards.get() as usize == self.index.shards();
        if !is_ours {
            return None;
        }
        let mut segments = vec![SavedSegment::new_zeroed(); self.segments.count()];
        fetch(segments.as_mut_bytes())?;
        let is_as_saved = |(saved, survey): (&SavedSegment, &Survey)| saved.agrees(survey);
        if surveys.len() != segments.len() || !segments.iter().zip(surveys).all(is_as_saved) {
            return None;
        }
        let mut shards = vec![SavedShard::new_zeroed(); self.index.shards()];
        fetch(shards.as_mut_bytes())?;
        for (number, shard) in shards.iter().enumerate() {
            let mut large = HashMap::new();
            for _ in 0..shard.large.get() {
                let mut entry = SavedLarge::new_zeroed();
                fetch(entry.as_mut_bytes())?;
                large.insert((entry.hash.get(), entry.place.get()), entry.older.get());
            }
            let state = ShardState {
                sequence: shard.sequence.get(),
                used: usize::try_from(shard.used.get()).ok()?,
                pairs: shard.pairs.get(),
                has_twins: shard.flags.get() & HAS_TWINS != 0,
                large,
                changes: None,
            };
            self.index.restore(number, shard.level.get(), state)?;
        }
        if head.buckets_bytes.get() != self.index.buckets_bytes() as u64 {
            return None;
        }
        self.read_buckets(&segments, &mut fetch)?;
        let mut seal = [0; 8];
        let expected = hash.finish();
        file.read_exact(&mut seal).ok()?;
        if u64::from_le_bytes(seal) != expected {
            return None;
        }
        self.restore_segments(&segments);
        Some(head.used_bytes.get())
    }

    fn read_buckets(
        &self,
        segments: &[SavedSegment],
        fetch: &mut impl FnMut(&mut [u8]) -> Option<()>,
    ) -> Option<()> {
        // Whoever follows a slot relies on its place to be one of a record.
        let is_place = |slot: Slot| {
            let segment = self.segments.of(slot.place()).and_then(|number| segments.get(number as usize));
            segment.is_some_and(|segment| segment.kind.get() == SegmentKind::Log.number())
                && slot.place() as usize % super::layout::SEGMENT_BYTES >= DATA_START
        };
        let bytes = self.index.buckets_bytes();
        let mut piece = vec![0; PIECE_BYTES.min(bytes)];
        let mut used = vec![0; self.index.shards()];
        for at in (0..bytes).step_by(PIECE_BYTES) {
            let piece = &mut piece[..PIECE_BYTES.min(bytes - at)];
            fetch(piece)?;
            self.index.fill_buckets(at, piece, is_place, &mut used)?;
        }
        self.index.has_used(&used).then_some(())
    }

    fn restore_segments(&self, segments: &[SavedSegment]) {
        let mut pool = self.segments.pool();
        for (number, saved) in (0..).zip(segments) {
            let state = match SegmentKind::from_number(saved.kind.get()) {
                Some(SegmentKind::Log) => State::Sealed,
                Some(SegmentKind::Extent) => State::Extent,
                // What is known of it is what the media says.
                Some(SegmentKind::Free) | None => continue,
            };
            let segment = pool.segment(number);
            segment.state = state;
            segment.worth = saved.worth.get();
            self.segments.clear_live(number);
            self.segments.add_live(number, saved.live.get());
        }
    }
}

impl SavedSegment {
    /// True when it says the same as the media.
    fn agrees(&self, survey: &Survey) -> bool {
        match (SegmentKind::from_number(self.kind.get()), survey) {
            (_, Survey::Lost) | (Some(_), Survey::Unused) => false,
            (Some(kind), Survey::Known { listed, .. }) => {
                (listed.kind, listed.incarnation, listed.nonce)
                    == (kind, self.incarnation.get(), self.nonce.get())
            }
            // An extent that was given up is one until it is used for something else.
            (None, Survey::Known { listed, .. }) => listed.kind != SegmentKind::Log,
            (None, Survey::Unused) => true,
        }
    }
}

/// Writes, and takes a checksum of what is written.
struct Sealing<'a> {
    hash: XxHash3_64,
    out: &'a mut dyn Write,
}

impl Sealing<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.write(bytes);
        self.out.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn the_document_has_the_offsets_of_the_code() {
        let document = include_str!("../../../../docs/disk-format.md");
        let rows = [
            (offset_of!(Head, magic), "magic"),
            (offset_of!(Head, version), "version"),
            (offset_of!(Head, segments), "segments"),
            (offset_of!(Head, store), "store"),
            (offset_of!(Head, moment), "moment"),
            (offset_of!(Head, shards), "shards"),
            (offset_of!(Head, reserved), "reserved"),
            (offset_of!(Head, used_bytes), "used_bytes"),
            (offset_of!(Head, buckets_bytes), "buckets_bytes"),
        ];
        let saved = document.split("## Saved index").nth(1).expect("it is described");
        for (offset, name) in rows {
            assert!(
                saved.contains(&format!("| {offset} | {name} |")),
                "docs/disk-format.md lacks {offset}: {name}"
            );
        }
        for row in [
            format!("| head | {} |", size_of::<Head>()),
            format!("| segments | {} each |", size_of::<SavedSegment>()),
            format!("| shards of the index | {} each |", size_of::<SavedShard>()),
            format!("| large counts | {} each |", size_of::<SavedLarge>()),
        ] {
            assert!(saved.contains(&row), "docs/disk-format.md lacks: {row}");
        }
    }
}

//! Segments: which are free, in use, or on their way back.
//!
//! A segment whose records are all dead is not free yet. What superseded them (a newer record, a copy that
//! reclaim made) may not be on the media: after a power cut the dead ones would be the newest again. So it
//! waits until a sync that began after the last of them died is done. Then its header is overwritten, and it
//! waits for a second sync, because only a header that is durable keeps an old summary from vouching for what
//! has been written over.
//!
//! ```text
//! Free -> Open -> Sealed -> Quarantined -(sync)-> Erased -(sync)-> Free
//! ```
//!
//! Each step is stamped with the number of syncs begun so far; a sync covers what was stamped before it
//! began.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use unvme_bus::{lock, random};

use super::layout::{DATA_START, Identity, SEGMENT_BYTES, summary_start};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// An append head writes to it.
    Open,
    /// Full; its summary is written.
    Sealed,
    /// Part of a big value.
    Extent,
    /// Dead, and waiting for a sync. True: it was an extent.
    Quarantined(bool),
    /// Its header says free, and it waits for a sync.
    Erased,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) state: State,
    pub(super) nonce: u32,
    pub(super) incarnation: u64,
    /// Sync number at which it came into its state.
    pub(super) stamp: u64,
    /// Offset up to which a sync has covered its records, as the directory has it; [`SEGMENT_BYTES`]: all of
    /// it.
    pub(super) synced_end: u32,
    /// Reclaim cannot move all of its records: one is damaged, or nobody knows which were lost in it.
    pub(super) is_pinned: bool,
    /// Records were lost in it, and nobody knows whose they were.
    pub(super) is_lossy: bool,
    /// Bytes that emptying a sealed segment makes available, before those that are live are taken off.
    pub(super) worth: u32,
}

/// What a free segment is wanted for: how many free ones have to be left for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A host's data: a deletion needs one when nothing else fits, and reclaim one to get any further.
    Host,
    /// A tombstone, which makes space.
    Delete,
    /// Copies of live records, whose segment becomes free by that.
    Reclaim,
}

impl Purpose {
    /// Free segments that are left for others.
    pub(super) fn leaves_free(self) -> usize {
        match self {
            Self::Host => KEPT_FREE,
            Self::Delete => 1,
            Self::Reclaim => 0,
        }
    }
}

/// All segments of a store.
pub(super) struct Segments {
    pub(super) identity: Identity,
    chunks: Arc<[u32]>,
    /// Segment of each chunk of the media; `u32::MAX` for others' chunks.
    by_chunk: Box<[u32]>,
    /// By chunk of the media: nonce of the present use of its segment.
    nonces: Box<[AtomicU32]>,
    /// Bytes of records that are the newest of their key, or tombstones that are needed. Of an open segment
    /// only what has died, as a negative number: the rest is added when it is sealed.
    live: Box<[AtomicU32]>,
    pool: Mutex<Pool>,
}

/// The part of the segments' state that changes under a lock.
pub(super) struct Pool {
    pub(super) segments: Vec<Segment>,
    free: Vec<u32>,
    quarantined: Vec<u32>,
    erased: Vec<u32>,
    /// Taken from `quarantined`, and not in `erased` yet.
    erasing: usize,
    /// Segments that append heads write to.
    open: Vec<u32>,
    /// Sealed, and not covered by a sync since.
    unsynced: Vec<u32>,
    /// Syncs begun so far.
    pub(super) syncs: u64,
    pub(super) incarnation: u64,
}

/// Live bytes a segment can hold for the capacity's purposes: short of the whole by headers, and by the tail
/// that stays unused because the next record does not fit.
pub(super) const SEGMENT_CAPACITY: u64 = SEGMENT_BYTES as u64 - (8 << 10) - CHARGED_AS_IS;
/// A record up to this size is charged as it is; more, and it is charged its share of a segment full of its
/// like.
const CHARGED_AS_IS: u64 = 64 << 10;
/// Free segments that a host's data leaves: one for deletions, and one for reclaim.
pub(super) const KEPT_FREE: usize = 2;
/// Each record has an entry in the summary.
const ENTRY_BYTES: u64 = 16;

/// Append heads for the host's data in a store of that many segments.
pub(super) fn lanes(segments: usize) -> usize {
    (segments / 16).clamp(1, 8)
}

/// NSZE of a store of that many segments. The rest: a segment for each append head and for reclaim's, one
/// that reclaim needs free, one for deletions, and a share that keeps reclaim from copying a segment for
/// every few bytes.
pub(super) fn capacity_bytes(segments: usize) -> u64 {
    let reserve = lanes(segments) + 3 + (segments * 7 / 100).max(1);
    segments.saturating_sub(reserve) as u64 * SEGMENT_CAPACITY
}

/// [`Segment::worth`] of a segment whose records end at `end`. A tail that was merely too short for the next
/// record is worth nothing: there will be one like it in the next segment.
pub(super) fn worth(entries: usize, end: usize) -> u32 {
    let tail = summary_start(entries).saturating_sub(end);
    let tail = if tail as u64 > CHARGED_AS_IS { tail } else { 0 };
    (end.saturating_sub(DATA_START) + tail) as u32
}

/// Capacity that a record takes.
pub(super) fn charge(record_bytes: usize) -> u64 {
    let bytes = record_bytes as u64 + ENTRY_BYTES;
    if bytes <= CHARGED_AS_IS {
        return bytes;
    }
    let in_a_segment = ((SEGMENT_BYTES as u64 - (8 << 10)) / bytes).max(1);
    SEGMENT_CAPACITY.div_ceil(in_a_segment).max(bytes)
}

impl Segments {
    pub(super) fn new(identity: Identity, chunks: Arc<[u32]>) -> Self {
        let last = chunks.iter().max().map_or(0, |&chunk| chunk as usize + 1);
        let mut by_chunk = vec![u32::MAX; last].into_boxed_slice();
        for (segment, &chunk) in chunks.iter().enumerate() {
            by_chunk[chunk as usize] = segment as u32;
        }
        let blank = Segment {
            state: State::Free,
            nonce: 0,
            incarnation: 0,
            stamp: 0,
            synced_end: 0,
            is_pinned: false,
            is_lossy: false,
            worth: 0,
        };
        let pool = Pool {
            segments: vec![blank; chunks.len()],
            // Taken from the end: the first segments first.
            free: (0..chunks.len() as u32).rev().collect(),
            quarantined: Vec::new(),
            erased: Vec::new(),
            erasing: 0,
            open: Vec::new(),
            unsynced: Vec::new(),
            syncs: 0,
            incarnation: 1,
        };
        let live = chunks.iter().map(|_| AtomicU32::new(0)).collect();
        let nonces = by_chunk.iter().map(|_| AtomicU32::new(0)).collect();
        Self { identity, chunks, by_chunk, nonces, live, pool: Mutex::new(pool) }
    }

    pub(super) fn pool(&self) -> MutexGuard<'_, Pool> {
        lock(&self.pool)
    }

    pub(super) fn count(&self) -> usize {
        self.chunks.len()
    }

    /// Chunk of the media behind a segment.
    pub(super) fn chunk(&self, segment: u32) -> u64 {
        u64::from(self.chunks[segment as usize])
    }

    /// Media offset of a segment.
    pub(super) fn base(&self, segment: u32) -> u64 {
        self.chunk(segment) * SEGMENT_BYTES as u64
    }

    /// The segment a media offset lies in; `None` when it is not this store's.
    #[inline]
    pub(super) fn of(&self, place: u64) -> Option<u32> {
        let segment = *self.by_chunk.get((place / SEGMENT_BYTES as u64) as usize)?;
        (segment != u32::MAX).then_some(segment)
    }

    /// The nonce that a record at a media offset has: any other one is what was there before.
    #[inline]
    pub(super) fn nonce_at(&self, place: u64) -> u32 {
        // Relaxed: who has found a record in the index sees what was written before it was entered there.
        let nonce = self.nonces.get((place / SEGMENT_BYTES as u64) as usize);
        nonce.map_or(0, |nonce| nonce.load(Ordering::Relaxed))
    }

    /// A segment is used anew, or was found to be used.
    pub(super) fn set_nonce(&self, segment: u32, nonce: u32) {
        self.nonces[self.chunk(segment) as usize].store(nonce, Ordering::Relaxed);
    }

    /// Bytes at `place` that were live are dead.
    #[inline]
    pub(super) fn die(&self, place: u64, bytes: usize) {
        if let Some(segment) = self.of(place) {
            // Relaxed: who acts on the sum looks at the index again, under its lock.
            self.live[segment as usize].fetch_sub(bytes as u32, Ordering::Relaxed);
        }
    }

    pub(super) fn add_live(&self, segment: u32, bytes: u32) {
        self.live[segment as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn live(&self, segment: u32) -> u32 {
        self.live[segment as usize].load(Ordering::Relaxed)
    }

    /// Bytes that emptying a segment would make available.
    pub(super) fn gain(&self, number: u32, segment: &Segment) -> u32 {
        // What has died in it since it was opened may be more than what was added when it was sealed, for a
        // moment.
        let live = self.live(number) as i32;
        segment.worth.saturating_sub(live.max(0) as u32)
    }

    pub(super) fn clear_live(&self, segment: u32) {
        self.live[segment as usize].store(0, Ordering::Relaxed);
    }

    /// Memory of the tables in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let each = size_of::<Segment>() + size_of::<AtomicU32>() + 2 * size_of::<u32>();
        (self.chunks.len() * each + self.by_chunk.len() * 2 * size_of::<u32>()) as u64
    }
}

impl Pool {
    pub(super) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// True when there are more free segments than have to be left for others.
    pub(super) fn has_free(&self, purpose: Purpose) -> bool {
        self.free.len() > purpose.leaves_free()
    }

    /// Takes a free segment and gives it an incarnation of its own. `None` when those that are left are for
    /// others.
    pub(super) fn take(&mut self, purpose: Purpose, state: State) -> Option<u32> {
        if !self.has_free(purpose) {
            return None;
        }
        let number = self.free.pop()?;
        // Saturating: a damaged header may have said that there have been as many as there can be.
        self.incarnation = self.incarnation.saturating_add(1);
        let segment = Segment {
            state,
            // What is left from earlier uses of the segment must not pass for records of this one, not even
            // when a power cut has made the counter go back.
            nonce: random::number() as u32,
            incarnation: self.incarnation,
            stamp: self.syncs,
            synced_end: 0,
            is_pinned: false,
            is_lossy: false,
            worth: 0,
        };
        *self.segment(number) = segment;
        if state == State::Open {
            self.open.push(number);
        }
        Some(number)
    }

    /// Segments that wait for syncs to become free.
    pub(super) fn on_the_way(&self) -> usize {
        self.quarantined.len() + self.erasing + self.erased.len()
    }

    pub(super) fn segment(&mut self, number: u32) -> &mut Segment {
        &mut self.segments[number as usize]
    }

    /// Puts a segment back that was taken and not written to.
    pub(super) fn give_back(&mut self, number: u32) {
        self.open.retain(|&open| open != number);
        self.segment(number).state = State::Free;
        self.free.push(number);
    }

    /// True while records are in a segment that is not sealed, or that no sync has covered since.
    pub(super) fn has_unsynced(&self) -> bool {
        !self.open.is_empty() || !self.unsynced.is_empty()
    }

    /// As [`Pool::give_back`]; all others are taken before it.
    pub(super) fn give_back_last(&mut self, number: u32) {
        self.give_back(number);
        self.postpone(number);
    }

    /// The free segment that will be taken when `nth` others have been.
    pub(super) fn next_free(&self, nth: usize) -> Option<u32> {
        self.free.iter().rev().nth(nth).copied()
    }

    /// Makes a free segment the last one to be taken.
    pub(super) fn postpone(&mut self, number: u32) {
        if let Some(at) = self.free.iter().rposition(|&free| free == number) {
            self.free[..=at].rotate_right(1);
        }
    }

    /// Segments that append heads write to, with their nonces.
    pub(super) fn open(&self) -> impl Iterator<Item = (u32, u32)> {
        self.open.iter().map(|&number| (number, self.segments[number as usize].nonce))
    }

    /// A segment is full, or the store is closed.
    pub(super) fn seal(&mut self, number: u32, worth: u32) {
        let syncs = self.syncs;
        let segment = self.segment(number);
        segment.worth = worth;
        segment.state = State::Sealed;
        segment.stamp = syncs;
        self.open.retain(|&open| open != number);
        self.unsynced.push(number);
    }

    /// A segment's data is dead.
    pub(super) fn quarantine(&mut self, number: u32) {
        let syncs = self.syncs;
        let segment = self.segment(number);
        segment.state = State::Quarantined(segment.state == State::Extent);
        segment.stamp = syncs;
        self.quarantined.push(number);
    }

    /// The header of a segment from [`Pool::take_quarantined`] says free.
    pub(super) fn erase(&mut self, number: u32) {
        self.erasing -= 1;
        self.wait_erased(number);
    }

    /// A segment's header says free; that is durable after the next sync.
    pub(super) fn wait_erased(&mut self, number: u32) {
        let syncs = self.syncs;
        let segment = self.segment(number);
        segment.state = State::Erased;
        segment.stamp = syncs;
        self.erased.push(number);
    }

    /// A sync begins; returns what it covers.
    pub(super) fn begin_sync(&mut self) -> u64 {
        let covered = self.syncs;
        self.syncs += 1;
        covered
    }

    /// Segments that a sync has made free are free.
    pub(super) fn release_erased(&mut self, covered: u64) {
        let done = self.take_covered(|pool| &mut pool.erased, covered);
        for number in done {
            self.give_back(number);
        }
    }

    /// Quarantined segments that a sync has covered.
    pub(super) fn take_quarantined(&mut self, covered: u64) -> Vec<u32> {
        let done = self.take_covered(|pool| &mut pool.quarantined, covered);
        self.erasing += done.len();
        done
    }

    /// Sealed segments that a sync has covered and that are not marked so yet.
    pub(super) fn take_unsynced(&mut self, covered: u64) -> Vec<u32> {
        let mut done = self.take_covered(|pool| &mut pool.unsynced, covered);
        // A segment that was reclaimed meanwhile is listed once for each time it was sealed.
        done.retain(|&number| self.segments[number as usize].state == State::Sealed);
        done
    }

    fn take_covered(&mut self, list: impl Fn(&mut Self) -> &mut Vec<u32>, covered: u64) -> Vec<u32> {
        let (done, waiting) = std::mem::take(list(self))
            .into_iter()
            .partition(|&number| self.segments[number as usize].stamp <= covered);
        *list(self) = waiting;
        done
    }

    /// Takes segments off the free list that are in use, as they are found when a store is opened.
    pub(super) fn remove_used_from_free(&mut self) {
        let Self { free, segments, .. } = self;
        free.retain(|&number| segments[number as usize].state == State::Free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_segment_is_free_after_two_syncs_that_began_later() {
        let identity = Identity { store: 1, secret: 2, segments: 8 };
        let segments = Segments::new(identity, (0..8).collect());
        let mut pool = segments.pool();
        let number = pool.take(Purpose::Host, State::Open).unwrap();
        let early = pool.begin_sync();
        pool.seal(number, 0);
        pool.quarantine(number);
        assert!(pool.take_quarantined(early).is_empty());
        let first = pool.begin_sync();
        assert_eq!(pool.take_quarantined(first), [number]);
        assert_eq!(pool.on_the_way(), 1);
        pool.erase(number);
        assert_eq!(pool.on_the_way(), 1);
        pool.release_erased(first);
        assert_eq!(pool.free_count(), 7);
        let second = pool.begin_sync();
        pool.release_erased(second);
        assert_eq!(pool.free_count(), 8);
    }

    #[test]
    fn a_host_cannot_take_the_segments_that_deletions_and_reclaim_need() {
        let identity = Identity { store: 1, secret: 2, segments: 8 };
        let segments = Segments::new(identity, (0..8).collect());
        let mut pool = segments.pool();
        let taken = std::iter::from_fn(|| pool.take(Purpose::Host, State::Open)).count();
        assert_eq!(taken, 6);
        assert!(pool.take(Purpose::Delete, State::Open).is_some());
        assert!(pool.take(Purpose::Delete, State::Open).is_none());
        assert!(pool.take(Purpose::Reclaim, State::Open).is_some());
        assert!(pool.take(Purpose::Reclaim, State::Open).is_none());
    }

    #[test]
    fn a_record_of_half_a_segment_and_a_bit_is_charged_all_of_it() {
        assert_eq!(charge(48), 64);
        assert_eq!(charge(4176), 4192);
        assert_eq!(charge(1_100_000), SEGMENT_CAPACITY);
        assert_eq!(charge(700_000), SEGMENT_CAPACITY / 2);
        assert_eq!(charge(600_000), SEGMENT_CAPACITY.div_ceil(3));
    }
}

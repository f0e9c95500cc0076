//! What a sync makes possible: segments are marked as complete, and dead ones come back.

use std::sync::atomic::Ordering;

use unvme_spec::Status;

use super::big::cost_of;
use super::index::{Hit, LockedShard};
use super::layout::{RecordKind, SEGMENT_BYTES, SegmentKind, SummaryEntry};
use super::record::{Block, HeadBuffer};
use super::segment::{Pool, State};
use super::{KvError, KvStore};

/// Index entries are fetched this many records ahead.
const AHEAD: usize = 8;

/// What a sync of the media covers; from [`KvStore::begin_sync`].
struct SyncToken {
    /// Number of the sync.
    covered: u64,
    /// Segments that append heads write to: number, nonce, and where their records end.
    open: Vec<(u32, u32, usize)>,
}

impl KvStore {
    /// Makes everything stored so far survive a power cut.
    ///
    /// # Errors
    /// What the media reports.
    pub(crate) fn sync(&self) -> Result<(), Status> {
        let token = self.begin_sync();
        self.media.sync()?;
        self.end_sync(token);
        Ok(())
    }

    /// To be called before the media is synced, for [`KvStore::end_sync`].
    fn begin_sync(&self) -> SyncToken {
        let mut pool = self.segments.pool();
        let covered = pool.begin_sync();
        let ends =
            pool.open().filter_map(|(number, nonce)| Some((number, nonce, self.load_tail(number, nonce)?)));
        SyncToken { covered, open: ends.collect() }
    }

    /// The media has been synced since the token was made: the directory says what that has covered, and dead
    /// segments that waited for it are a step further.
    fn end_sync(&self, token: SyncToken) {
        let quarantined = {
            let mut pool = self.segments.pool();
            pool.release_erased(token.covered);
            for (number, nonce, end) in token.open {
                if pool.segment(number).nonce == nonce {
                    self.note_synced(&mut pool, number, end);
                }
            }
            for number in pool.take_unsynced(token.covered) {
                self.note_synced(&mut pool, number, SEGMENT_BYTES);
            }
            pool.take_quarantined(token.covered)
        };
        if quarantined.is_empty() {
            return;
        }
        let _changing = self.begin_changes();
        let (mut buffer, mut block) = (HeadBuffer::new(), Block::boxed());
        for number in quarantined {
            self.erase(number, &mut buffer, &mut block);
        }
    }

    /// A sync has covered a log segment up to `end`.
    fn note_synced(&self, pool: &mut Pool, number: u32, end: usize) {
        let segment = pool.segment(number);
        let is_log = matches!(segment.state, State::Open | State::Sealed);
        if is_log && end as u32 > segment.synced_end {
            segment.synced_end = end as u32;
            self.enter(pool, number, SegmentKind::Log);
        }
    }

    /// A sync, and another one for what the first one has erased.
    pub(super) fn sync_and_release(&self) -> Result<(), KvError> {
        for _ in 0..2 {
            self.sync().map_err(KvError::Media)?;
        }
        Ok(())
    }

    /// Writes everything that is open to the media, and saves the index, so that opening the store again has
    /// nothing to search: for shutdown. The store can be used further.
    ///
    /// # Errors
    /// What the media reports.
    pub(crate) fn close(&self) -> Result<(), Status> {
        if self.is_saved.load(Ordering::Relaxed) {
            // Nothing has changed since.
            return Ok(());
        }
        for lane in &self.lanes {
            self.seal(&mut lane.head.lock());
        }
        self.finish_reclaim()?;
        self.sync()?;
        // What the directory says about that is only now on its way.
        self.media.sync()?;
        self.save_index();
        Ok(())
    }

    /// A quarantined segment's records are durably dead: its header says free from now on, and they count no
    /// more as older records of their keys.
    fn erase(&self, number: u32, buffer: &mut HeadBuffer, block: &mut Block) {
        let info = *self.segments.pool().segment(number);
        let entries = match info.state {
            State::Quarantined(false) => self.entries_of(number, info.nonce, buffer, block).0,
            _ => Vec::new(),
        };
        self.write_free_header(number, info.incarnation, info.nonce);
        for (at, entry) in entries.iter().enumerate() {
            if let Some(later) = entries.get(at + AHEAD) {
                self.index.prefetch(later.hash.get());
            }
            if entry.record().is_some() {
                self.forget(number, entry, buffer);
            }
        }
        self.segments.clear_live(number);
        self.segments.pool().erase(number);
    }

    /// A segment is nobody's from now on, as its header and the directory say.
    pub(super) fn write_free_header(&self, number: u32, incarnation: u64, nonce: u32) {
        self.write_header(number, SegmentKind::Free, incarnation, nonce);
        self.enter(&self.segments.pool(), number, SegmentKind::Free);
        self.count_first_pages(number);
        self.program_free_header(number);
    }

    /// A record is no more. It is an older record of its key, or a tombstone without any.
    fn forget(&self, segment: u32, entry: &SummaryEntry, buffer: &mut HeadBuffer) {
        let hash = entry.hash.get();
        let place = self.segments.base(segment) + entry.offset() as u64;
        let mut shard = self.index.lock(hash);
        if let Some(hit) = shard.find_place(hash, place) {
            if !hit.slot.is_tombstone() && !hit.slot.is_part() {
                // Reclaim has not found it in the segment: a summary that was damaged since, or lied.
                shard.state.pairs = shard.state.pairs.saturating_sub(1);
                self.lose(place, None, "a record was in a segment whose summary is damaged");
            }
            shard.remove(hash, &hit);
            return;
        }
        if entry.record() == Some(RecordKind::Part) {
            // No key counts it.
            return;
        }
        let Some(hit) = shard.find_only(hash).or_else(|| self.find_same_key(&shard, hash, place, buffer))
        else {
            return;
        };
        let older = shard.older(hash, hit.slot);
        shard.set(hash, &hit, hit.slot, older.saturating_sub(1));
        if hit.slot.is_tombstone()
            && older == 1
            && let Some(head) = self.load_head(hit.slot.place(), buffer)
        {
            // Nothing is left for it to hide.
            self.segments.die(hit.slot.place(), head.record_bytes());
            drop(shard);
            self.budget.give(0, cost_of(&head));
        }
    }

    /// Of several slots with one hash, that of the key whose record is at `place`. If it cannot be told, a
    /// count stays too high, which keeps a tombstone that is not needed.
    #[cold]
    fn find_same_key(
        &self,
        shard: &LockedShard<'_>,
        hash: u64,
        place: u64,
        buffer: &mut HeadBuffer,
    ) -> Option<Hit> {
        let dead = self.load_head(place, buffer)?;
        let key = buffer.key(&dead).to_vec();
        (0..).map_while(|nth| shard.find(hash, nth)).find(|hit| {
            self.load_head(hit.slot.place(), buffer)
                .is_some_and(|head| head.keyspace == dead.keyspace && buffer.key(&head) == key)
        })
    }
}

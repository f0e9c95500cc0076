//! Reclaim: live records are copied out of segments in which most is dead.
//!
//! Victims are chosen by cost and benefit: what is free afterwards, for what has to be copied, and the longer
//! the segment has been left alone the rather. A copy is byte for byte the record it was made from, with its
//! sequence number; only what ties it to its segment is new. Until the victim is erased its records are older
//! records of their keys, and counted.

use std::sync::atomic::Ordering;

use unvme_bus::lock;
use unvme_spec::Status;

use super::KvError;
use super::KvStore;
use super::append::AppendHead;
use super::layout::{RecordKind, SEGMENT_BYTES, SummaryEntry};
use super::record::{Block, HeadBuffer};
use super::segment::{Purpose, Segment, State};
use super::slot::Slot;

/// Victims looked for at a time: looking costs a pass over all segments.
const VICTIMS_MAX: usize = 32;
/// What emptying a victim has to make available when a host waits for space.
const GAIN_BYTES_MIN: u32 = 32 << 10;
/// The same in the background: four bytes are copied for each that becomes free, at most.
const BACKGROUND_GAIN_BYTES_MIN: u32 = SEGMENT_BYTES as u32 / 5;
/// Segments emptied for one of a host's commands, at most. Each gives [`GAIN_BYTES_MIN`]: so many are more
/// than one of space, unless records lie so that their copies take no less. Then more copying would not help,
/// and the host waits.
pub(super) const ROUNDS_MAX: usize = 2 * SEGMENT_BYTES / GAIN_BYTES_MIN as usize;
/// Index entries are fetched this many records ahead.
const AHEAD: usize = 8;

/// What reclaim is at.
pub(super) struct Reclaimer {
    head: AppendHead,
    /// Victims found, the best last.
    victims: Vec<u32>,
    current: Option<Victim>,
    buffer: HeadBuffer,
    block: Box<Block>,
}

/// A segment that is being emptied.
struct Victim {
    segment: u32,
    entries: Vec<SummaryEntry>,
    next: usize,
    /// A record could not be moved.
    is_stuck: bool,
}

/// What became of a record in a victim.
enum Moved {
    /// It was dead.
    Dead,
    /// Bytes copied.
    Copied(usize),
    /// Its head is damaged: it stays.
    Stuck,
}

impl Reclaimer {
    pub(super) fn new() -> Self {
        Self {
            head: AppendHead::default(),
            victims: Vec::new(),
            current: None,
            buffer: HeadBuffer::new(),
            block: Block::boxed(),
        }
    }

    pub(super) fn head(&mut self) -> &mut AppendHead {
        &mut self.head
    }
}

impl KvStore {
    /// Background work: reclaims space when it gets scarce, at most about `budget_bytes` of copying. True
    /// when there is more to do. Never waits for another thread.
    pub(crate) fn maintain(&self, budget_bytes: usize) -> bool {
        self.maintain_ordered();
        if !self.is_scarce.load(Ordering::Relaxed) {
            return false;
        }
        let Ok(mut reclaimer) = self.reclaimer.try_lock() else { return false };
        let more = self.maintain_space(&mut reclaimer, budget_bytes);
        if !more {
            // Until the next segment is taken there is nothing that another look would find.
            self.is_scarce.store(false, Ordering::Relaxed);
        }
        more
    }

    fn maintain_space(&self, reclaimer: &mut Reclaimer, budget_bytes: usize) -> bool {
        let (free, on_the_way) = {
            let pool = self.segments.pool();
            (pool.free_count(), pool.on_the_way())
        };
        let low = self.low_water();
        if free + on_the_way < low {
            return self.reclaim_some(reclaimer, budget_bytes, BACKGROUND_GAIN_BYTES_MIN).unwrap_or(false);
        }
        // Enough is free or on its way; two syncs bring it home.
        free < low.div_ceil(2) && self.sync_and_release().is_ok()
    }

    /// Free segments below which space is reclaimed in the background.
    pub(super) fn low_water(&self) -> usize {
        (self.segments.count() / 64).max(4)
    }

    /// Reclaims until a host can be given a segment, or there is nothing left to reclaim. Called with an
    /// append head locked.
    #[cold]
    pub(super) fn reclaim_now(&self, purpose: Purpose) -> Result<(), KvError> {
        let mut reclaimer = lock(&self.reclaimer);
        // Each round empties a segment of which something is dead; more rounds than segments make no
        // progress.
        for _ in 0..(self.segments.count() + 2).min(ROUNDS_MAX) {
            let (has_free, on_the_way) = {
                let pool = self.segments.pool();
                (pool.has_free(purpose), pool.on_the_way())
            };
            if has_free {
                return Ok(());
            }
            // A sync may be expensive: it should bring back several segments.
            let enough = (self.segments.count() / 64).clamp(1, 16);
            if on_the_way < enough && self.reclaim_or_free_dead(&mut reclaimer)? {
                continue;
            }
            if self.segments.pool().on_the_way() == 0 {
                return Err(KvError::Full);
            }
            self.sync_and_release()?;
        }
        if self.segments.pool().free_count() > 1 { Ok(()) } else { Err(KvError::Full) }
    }

    /// The media has no space for the segments that are free: empties some that have. False when there are
    /// none that can be. Called with an append head locked.
    #[cold]
    pub(super) fn reclaim_space(&self) -> Result<bool, KvError> {
        let is_emptied = self.reclaim_or_free_dead(&mut lock(&self.reclaimer))?;
        // Also those before the one for whose copies there was no space.
        let are_coming = self.segments.pool().on_the_way() > 0;
        self.sync_and_release()?;
        Ok(is_emptied || are_coming)
    }

    /// Reclaims a segment's worth; without room for copies, segments that need none. False when there is
    /// nothing to do.
    fn reclaim_or_free_dead(&self, reclaimer: &mut Reclaimer) -> Result<bool, KvError> {
        match self.reclaim_some(reclaimer, SEGMENT_BYTES, GAIN_BYTES_MIN) {
            Err(KvError::Full) => {
                reclaimer.current = None;
                reclaimer.victims = self.find_victims(GAIN_BYTES_MIN);
                reclaimer.victims.retain(|&number| self.segments.live(number) == 0);
                if reclaimer.victims.is_empty() {
                    return Ok(false);
                }
                self.reclaim_some(reclaimer, 1, GAIN_BYTES_MIN)
            }
            done => done,
        }
    }

    /// Copies live records out of victims until about `budget_bytes` have been copied or looked at. False
    /// when there is no victim worth it.
    fn reclaim_some(
        &self,
        reclaimer: &mut Reclaimer,
        budget_bytes: usize,
        gain_min: u32,
    ) -> Result<bool, KvError> {
        let mut spent = 0;
        while spent < budget_bytes {
            if reclaimer.current.is_none() && !self.choose_victim(reclaimer, gain_min) {
                return Ok(false);
            }
            let Some(victim) = &mut reclaimer.current else { return Ok(false) };
            let Some(&entry) = victim.entries.get(victim.next) else {
                if let Some(victim) = reclaimer.current.take() {
                    self.finish_victim(&victim);
                }
                spent += super::layout::DATA_START;
                continue;
            };
            if let Some(later) = victim.entries.get(victim.next + AHEAD) {
                self.index.prefetch(later.hash.get());
            }
            let segment = victim.segment;
            match self.move_record(reclaimer, segment, entry)? {
                Moved::Dead => spent += super::layout::RECORD_ALIGNMENT,
                Moved::Copied(bytes) => spent += bytes,
                Moved::Stuck => {
                    if let Some(victim) = &mut reclaimer.current {
                        victim.is_stuck = true;
                    }
                }
            }
            if let Some(victim) = &mut reclaimer.current {
                victim.next += 1;
            }
        }
        Ok(true)
    }

    /// Empties the segment that is being emptied, if there is one, and seals the one that its records go to.
    /// Sealed when it is half done, the two of them may be all that is left: then no segment is free, and
    /// nothing can be emptied any more.
    ///
    /// # Errors
    /// What the media reports.
    pub(super) fn finish_reclaim(&self) -> Result<(), Status> {
        let mut reclaimer = lock(&self.reclaimer);
        let mut has_synced = false;
        while reclaimer.current.is_some() {
            match self.reclaim_some(&mut reclaimer, 1, u32::MAX) {
                Ok(_) => {}
                // What was emptied before is still on its way.
                Err(KvError::Full) if !has_synced => {
                    has_synced = true;
                    self.sync()?;
                    self.sync()?;
                }
                Err(KvError::Media(status)) => return Err(status),
                Err(_) => break,
            }
        }
        self.seal(reclaimer.head());
        Ok(())
    }

    fn choose_victim(&self, reclaimer: &mut Reclaimer, gain_min: u32) -> bool {
        loop {
            while let Some(segment) = reclaimer.victims.pop() {
                let info = *self.segments.pool().segment(segment);
                if self.is_worth_emptying(segment, &info, gain_min) {
                    let Reclaimer { buffer, block, .. } = reclaimer;
                    let (entries, is_whole) = self.entries_of(segment, info.nonce, buffer, block);
                    // Where entries are missing there may be records that count.
                    reclaimer.current = Some(Victim { segment, entries, next: 0, is_stuck: !is_whole });
                    return true;
                }
            }
            reclaimer.victims = self.find_victims(gain_min);
            if reclaimer.victims.is_empty() {
                return false;
            }
        }
    }

    fn is_worth_emptying(&self, number: u32, segment: &Segment, gain_min: u32) -> bool {
        segment.state == State::Sealed
            && !segment.is_pinned
            && self.segments.gain(number, segment) >= gain_min
    }

    /// The segments that are best to empty, the best last.
    fn find_victims(&self, gain_min: u32) -> Vec<u32> {
        let pool = self.segments.pool();
        let mut scored: Vec<(f64, u32)> = Vec::new();
        for (number, info) in pool.segments.iter().enumerate() {
            if self.is_worth_emptying(number as u32, info, gain_min) {
                let gain = f64::from(self.segments.gain(number as u32, info));
                let cost = f64::from(info.worth) + f64::from(info.worth) - gain;
                let age = pool.incarnation.saturating_sub(info.incarnation) as f64 + 1.0;
                // What needs no copying comes first: there may be no room for copies.
                let score =
                    if self.segments.live(number as u32) == 0 { f64::INFINITY } else { gain * age / cost };
                scored.push((score, number as u32));
            }
        }
        drop(pool);
        let wanted = VICTIMS_MAX.min(self.segments.count() / 16 + 1);
        scored.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        scored.truncate(wanted);
        scored.into_iter().rev().map(|(_, number)| number).collect()
    }

    /// All of a victim's records are dead or copied.
    fn finish_victim(&self, victim: &Victim) {
        let mut pool = self.segments.pool();
        if victim.is_stuck {
            pool.segment(victim.segment).is_pinned = true;
        } else {
            pool.quarantine(victim.segment);
        }
    }

    /// Copies what lives out of a sealed segment, and lets everything else in it go.
    pub(super) fn empty(&self, segment: u32) -> Result<(), KvError> {
        let mut reclaimer = lock(&self.reclaimer);
        if reclaimer.current.as_ref().is_some_and(|victim| victim.segment == segment) {
            reclaimer.current = None;
        }
        let info = *self.segments.pool().segment(segment);
        if info.state != State::Sealed {
            return Ok(());
        }
        let Reclaimer { buffer, block, .. } = &mut *reclaimer;
        let (entries, _) = self.entries_of(segment, info.nonce, buffer, block);
        for entry in entries {
            if let Moved::Stuck = self.move_record(&mut reclaimer, segment, entry)? {
                return Err(KvError::Unrecovered);
            }
        }
        let mut pool = self.segments.pool();
        pool.segment(segment).is_lossy = false;
        pool.quarantine(segment);
        Ok(())
    }

    /// Gives the space of all segments back in which nothing lives.
    #[cfg(test)]
    pub(super) fn empty_all_dead(&self) {
        for segment in 0..self.segments.count() as u32 {
            let state = self.segments.pool().segment(segment).state;
            if state == State::Sealed && self.segments.live(segment) == 0 {
                self.empty(segment).expect("nothing to copy");
            }
        }
        self.sync_and_release().expect("a sync");
    }

    fn move_record(
        &self,
        reclaimer: &mut Reclaimer,
        segment: u32,
        entry: SummaryEntry,
    ) -> Result<Moved, KvError> {
        let hash = entry.hash.get();
        let place = self.segments.base(segment) + entry.offset() as u64;
        let newest = self.index.find_place(hash, place).filter(|_| entry.record().is_some());
        // A tombstone that hides nothing is not copied, nor is a segment begun for it.
        if newest.is_none_or(|hit| hit.slot.is_tombstone() && hit.slot.older() == 0) {
            return Ok(Moved::Dead);
        }
        let Some(head) = self.load_head(place, &mut reclaimer.buffer) else {
            // Dead by now, perhaps; if not, a later pass over this segment would find the same.
            return Ok(if self.index.is_newest(hash, place) { Moved::Stuck } else { Moved::Dead });
        };
        let bytes = head.record_bytes();
        self.make_room(&mut reclaimer.head, bytes, Purpose::Reclaim)?;
        let Some(open) = reclaimer.head.open.as_mut() else { return Err(KvError::Full) };
        let target = open.base as usize + head.data_at(open.at);
        let source = self.data_of(place, &head) as usize;
        // As it is, damage included: what its checksums say stays true.
        self.memory.copy_to(source, &self.memory, target, head.stored_bytes);
        let mut shard = self.index.lock(hash);
        let Some(hit) = shard.find_place(hash, place) else { return Ok(Moved::Dead) };
        let older = shard.older(hash, hit.slot);
        if head.kind == RecordKind::Tombstone && older == 0 {
            return Ok(Moved::Dead);
        }
        self.write_head(open, &head, &mut reclaimer.buffer);
        // Parts have no older records that could ever count.
        let older = if head.kind == RecordKind::Part { 0 } else { older + 1 };
        shard.set(hash, &hit, Slot::new(open.place(), bytes, head.kind), older);
        self.segments.die(place, bytes);
        drop(shard);
        self.finish_record(open, &head, hash);
        self.count_reclaimed_bytes(bytes as u64);
        Ok(Moved::Copied(bytes))
    }
}

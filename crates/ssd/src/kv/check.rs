//! Reading everything, to say what is lost; and giving up what is.

use std::collections::{BTreeSet, HashSet};

use unvme_bus::lock;
use unvme_spec::Status;

use super::layout::{RecordKind, SummaryEntry};
use super::read::Reading;
use super::record::{Block, HeadBuffer, StoredRecord};
use super::segment::State;
use super::{Damage, KvError, KvScratch, KvStore};
use crate::store::NOWHERE;

/// A record that is the newest of its key and cannot be read.
struct Damaged {
    hash: u64,
    place: u64,
    /// Keyspace and key, when the head is intact.
    key: Option<(u8, Vec<u8>)>,
}

impl KvStore {
    /// Reads everything and names what is lost or damaged, what was found when the store was opened included.
    /// Commands may go on meanwhile.
    pub(crate) fn check(&self) -> Vec<Damage> {
        let mut damages = lock(&self.losses).clone();
        damages.extend(self.find_damaged().into_iter().map(|Damaged { place, key, .. }| {
            let what = match key {
                Some(_) => "the value is damaged",
                None => "a record's head is damaged; its pair cannot be read or named",
            };
            Damage { offset: place, key, what: what.into() }
        }));
        damages
    }

    /// Reads all records that count.
    fn find_damaged(&self) -> Vec<Damaged> {
        let (mut buffer, mut block) = (HeadBuffer::new(), Block::boxed());
        let (mut records, mut found) = (Vec::new(), Vec::new());
        for number in 0..self.index.shards() {
            records.clear();
            self.index.lock_shard(number).for_each(|hash, slot| {
                // Parts are looked at with the values they are of.
                if !slot.is_part() {
                    records.push((hash, slot.place()));
                }
            });
            for &(hash, place) in &records {
                if self.find_damage(hash, place, &mut buffer, &mut block).is_none() {
                    continue;
                }
                // Again with writers and reclaim kept out: it may have been superseded, or moved, and written
                // over meanwhile.
                let _reclaim_kept_out = lock(&self.reclaimer);
                let shard = self.index.lock_shard(number);
                let hits = (0..).map_while(|nth| shard.find(hash, nth)).filter(|hit| !hit.slot.is_part());
                let places = hits.map(|hit| hit.slot.place());
                found.extend(places.filter_map(|at| self.find_damage(hash, at, &mut buffer, &mut block)));
            }
        }
        found
    }

    fn find_damage(
        &self,
        hash: u64,
        place: u64,
        buffer: &mut HeadBuffer,
        block: &mut Block,
    ) -> Option<Damaged> {
        let Some(head) = self.load_head(place, buffer) else {
            return Some(Damaged { hash, place, key: None });
        };
        let record = StoredRecord { place, head: &head, buffer, next_read: NOWHERE };
        let intact = match head.kind {
            // Of a value, under a key that no host has: what the index takes for a pair is none.
            RecordKind::Part => return Some(Damaged { hash, place, key: None }),
            RecordKind::Tombstone => true,
            RecordKind::Value => self.read_stored(&record, (0, head.stored_bytes), block, |_| {}),
            RecordKind::Big => {
                let range = (0, head.value_bytes as usize);
                self.read_value(&record, range, block, |_| {}) == Reading::Intact
            }
        };
        let key = (head.keyspace, buffer.key(&head).to_vec());
        (!intact).then_some(Damaged { hash, place, key: Some(key) })
    }

    /// True while records are missing that nobody can name.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.vouch().is_err()
    }

    /// Gives up what cannot be read, and returns what that was: pairs with damaged values are deleted, and so
    /// are all that an unreadable record may have been of; segments in which records were lost without a
    /// trace are emptied. From then on what is left counts, though it may be older than what was lost.
    ///
    /// When this is cut short, some is given up and the rest is as it was.
    ///
    /// # Errors
    /// [`KvError::Full`] when there is no space for the notes of deletions, or to empty a segment;
    /// [`KvError::Media`].
    pub(crate) fn accept_loss(&self) -> Result<Vec<Damage>, KvError> {
        if self.media.store().is_read_only() {
            return Err(KvError::Media(Status::NAMESPACE_WRITE_PROTECTED));
        }
        // All records so far are in segments that can be emptied.
        self.close().map_err(KvError::Media)?;
        let given_up = self.check();
        let damaged = self.find_damaged();
        let unnamed: HashSet<u64> = damaged.iter().filter(|d| d.key.is_none()).map(|d| d.hash).collect();
        // Older values of a key must not come back, and theirs are the only heads that still have it.
        let older = if unnamed.is_empty() { BTreeSet::new() } else { self.keys_of(&unnamed) };
        let mut scratch = KvScratch::new(0);
        for (keyspace, key) in damaged.iter().filter_map(|damaged| damaged.key.as_ref()).chain(&older) {
            self.delete(&self.key(*keyspace, key), &mut scratch)?;
        }
        let mut emptied: BTreeSet<u32> = self.lossy_segments();
        for Damaged { hash, place, .. } in damaged.iter().filter(|damaged| damaged.key.is_none()) {
            let mut shard = self.index.lock(*hash);
            if let Some(hit) = shard.find_place(*hash, *place) {
                let was_pair = u64::from(!hit.slot.is_tombstone());
                shard.state.pairs = shard.state.pairs.saturating_sub(was_pair);
                shard.remove(*hash, &hit);
            }
            emptied.extend(self.segments.of(*place));
        }
        self.drop_orphans();
        for segment in emptied {
            self.empty(segment)?;
        }
        self.sync_and_release()?;
        lock(&self.losses).clear();
        self.end_doubt();
        Ok(given_up)
    }

    /// Keys of all records with one of these hashes whose heads are intact.
    fn keys_of(&self, hashes: &HashSet<u64>) -> BTreeSet<(u8, Vec<u8>)> {
        let (mut buffer, mut block) = (HeadBuffer::new(), Block::boxed());
        let mut keys = BTreeSet::new();
        for number in 0..self.segments.count() as u32 {
            let info = *self.segments.pool().segment(number);
            if info.state != State::Sealed {
                continue;
            }
            let (entries, _) = self.entries_of(number, info.nonce, &mut buffer, &mut block);
            let is_pair = |entry: &&SummaryEntry| {
                entry.record().is_some_and(|kind| kind != RecordKind::Part)
                    && hashes.contains(&entry.hash.get())
            };
            for entry in entries.iter().filter(is_pair) {
                let place = self.segments.base(number) + entry.offset() as u64;
                // What the summary says of a record is not what the record has to say.
                if let Some(head) = self.load_head(place, &mut buffer)
                    && head.kind != RecordKind::Part
                {
                    keys.insert((head.keyspace, buffer.key(&head).to_vec()));
                }
            }
        }
        keys
    }

    fn lossy_segments(&self) -> BTreeSet<u32> {
        let pool = self.segments.pool();
        (0..).zip(&pool.segments).filter(|(_, info)| info.is_lossy).map(|(number, _)| number).collect()
    }
}

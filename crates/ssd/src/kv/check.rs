//! Reading everything, to say what is lost.

use unvme_bus::lock;

use super::layout::{RecordKind, SEGMENT_BYTES, SegmentKind};
use super::record::{Block, HeadBuffer, StoredRecord};
use super::{Damage, KvStore};
use crate::store::NOWHERE;

impl KvStore {
    /// Reads everything and names what is lost or damaged, what was found when the store was opened included.
    /// Commands may go on meanwhile.
    pub(crate) fn check(&self) -> Vec<Damage> {
        let mut damages = lock(&self.losses).clone();
        self.check_headers(&mut damages);
        let (mut buffer, mut block) = (HeadBuffer::new(), Block::boxed());
        let mut records = Vec::new();
        for number in 0..self.index.shards() {
            records.clear();
            self.index.lock_shard(number).for_each(|hash, slot| records.push((hash, slot.place())));
            for &(hash, place) in &records {
                if self.check_record(place, &mut buffer, &mut block).is_none() {
                    continue;
                }
                // Again with writers kept out: it may have been superseded, or moved, and written over
                // meanwhile.
                let shard = self.index.lock_shard(number);
                let places = (0..).map_while(|nth| shard.find(hash, nth)).map(|hit| hit.slot.place());
                damages.extend(places.filter_map(|at| self.check_record(at, &mut buffer, &mut block)));
            }
        }
        damages
    }

    fn check_record(&self, place: u64, buffer: &mut HeadBuffer, block: &mut Block) -> Option<Damage> {
        let Some(head) = self.load_head(place, buffer) else {
            let what = "a record's head is damaged; its pair cannot be read or named".into();
            return Some(Damage { offset: place, key: None, what });
        };
        let record = StoredRecord { place, head: &head, buffer, next_read: NOWHERE };
        let intact = match head.kind {
            RecordKind::Tombstone => true,
            RecordKind::Value => self.read_stored(&record, (0, head.stored_bytes), block, |_| {}),
            RecordKind::Big => self.read_value(&record, (0, head.value_bytes as usize), block, |_| {}),
        };
        (!intact).then(|| Damage {
            offset: place,
            key: Some((head.keyspace, buffer.key(&head).to_vec())),
            what: "the value is damaged".into(),
        })
    }

    /// Headers of segments in use that are damaged in both copies: the next opening would not know them.
    fn check_headers(&self, damages: &mut Vec<Damage>) {
        use super::segment::State;
        for number in 0..self.segments.count() as u32 {
            let info = *self.segments.pool().segment(number);
            let expected = match info.state {
                State::Open | State::Sealed => SegmentKind::Log,
                State::Extent => SegmentKind::Extent,
                State::Free | State::Quarantined(_) | State::Erased => continue,
            };
            let chunk = self.segments.chunk(number);
            let is_there = super::recovery::segment_kind(&self.media, chunk as u32) == Some(expected);
            // It may have been given up since.
            if !is_there && self.segments.pool().segment(number).incarnation == info.incarnation {
                damages.push(Damage {
                    offset: chunk * SEGMENT_BYTES as u64,
                    key: None,
                    what: "a segment's header is damaged; its pairs will be lost when the device is opened again".into(),
                });
            }
        }
    }
}

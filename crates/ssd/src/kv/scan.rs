//! Finding a segment's records without its summary.

use super::layout::{
    BLOCK_BYTES, DATA_START, EXTENT_DATA_BYTES, NONCE_AT, RECORD_ALIGNMENT, RecordHead, RecordKind,
    SummaryEntry, TRAILER_AT,
};
use super::record::{Block, HeadBuffer};
use super::{KvStore, checksum};

/// What was found in a segment.
pub(super) struct Scanned {
    /// Intact records, and holes where others were before intact ones.
    pub(super) entries: Vec<SummaryEntry>,
    /// Offset of the end of the last intact record.
    pub(super) end: usize,
    /// Where intact records should have been, from and to.
    pub(super) holes: Vec<(usize, usize)>,
    /// Records with an intact head and a value that is not.
    pub(super) torn: Vec<Torn>,
}

pub(super) struct Torn {
    /// Media offset.
    pub(super) place: u64,
    pub(super) hash: u64,
    pub(super) sequence: u64,
    pub(super) key: (u8, Vec<u8>),
}

impl KvStore {
    /// Looks at `copy`, a copy of a whole log segment, for records of its present use that are intact, values
    /// included.
    pub(super) fn scan(
        &self,
        segment: u32,
        nonce: u32,
        copy: &[u8],
        buffer: &mut HeadBuffer,
        block: &mut Block,
    ) -> Scanned {
        let secret = self.segments.identity.secret;
        let base = self.segments.base(segment);
        let mut found = Scanned { entries: Vec::new(), end: DATA_START, holes: Vec::new(), torn: Vec::new() };
        let mut at = DATA_START;
        // Where something that is no intact record began.
        let mut hole = None;
        let mut torn_in_hole = false;
        while at + super::layout::HEAD_BYTES_MIN <= TRAILER_AT {
            // The nonce tells most places apart without a checksum.
            let is_candidate = copy.get(at + NONCE_AT..at + NONCE_AT + 4) == Some(&nonce.to_le_bytes());
            let head = if is_candidate { buffer.take(secret, copy, at) } else { None };
            let Some(head) = head else {
                hole.get_or_insert(at);
                at += RECORD_ALIGNMENT;
                continue;
            };
            let key = (head.keyspace, buffer.key(&head).to_vec());
            let hash = checksum::of_key(secret, head.keyspace, &key.1);
            if !self.is_value_intact(copy, base, at, &head, buffer, block) {
                let place = base + at as u64;
                found.torn.push(Torn { place, hash, sequence: head.sequence, key });
                hole.get_or_insert(at);
                torn_in_hole = true;
                at += head.record_bytes();
                continue;
            }
            if let Some(start) = hole.take() {
                found.entries.push(SummaryEntry::new(0, start, None, 0));
                if !torn_in_hole {
                    found.holes.push((start, at));
                }
                torn_in_hole = false;
            }
            found.entries.push(SummaryEntry::new(hash, at, Some(head.kind), head.sequence));
            at += head.record_bytes();
            found.end = at;
        }
        found
    }

    fn is_value_intact(
        &self,
        copy: &[u8],
        base: u64,
        at: usize,
        head: &RecordHead,
        buffer: &HeadBuffer,
        block: &mut Block,
    ) -> bool {
        let data = head.data_at(at);
        let Some(stored) = copy.get(data..data + head.stored_bytes) else { return false };
        let blocks_match = stored
            .chunks(BLOCK_BYTES)
            .enumerate()
            .all(|(number, bytes)| checksum::of_block(bytes) == buffer.check(head, number));
        if !blocks_match || head.kind != RecordKind::Big {
            return blocks_match;
        }
        let Some(extents) = self.load_manifest(base + at as u64, head, buffer) else { return false };
        extents.iter().enumerate().all(|(number, extent)| {
            let left = (head.value_bytes as usize).saturating_sub(number * EXTENT_DATA_BYTES);
            let bytes = left.min(EXTENT_DATA_BYTES);
            self.media.is_reserved(self.segments.chunk(extent.segment.get()))
                && self.read_extent(extent, bytes, (0, bytes), block, |_| {})
        })
    }
}

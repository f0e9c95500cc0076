//! Finding a segment's records without its summary.

use super::layout::{
    BLOCK_BYTES, DATA_START, EXTENT_DATA_BYTES, HEAD_BYTES_MIN, NONCE_AT, RECORD_ALIGNMENT, RecordHead,
    RecordKind, SummaryEntry, TRAILER_AT,
};
use super::record::{Block, HeadBuffer};
use super::{KvStore, checksum};

/// Which of a segment's bytes are there for certain, unless they were lost.
#[derive(Clone, Copy, Debug)]
pub(super) enum Promise {
    /// Those before this offset.
    Until(usize),
    /// All that were written, however far that is.
    Whole,
}

impl Promise {
    fn covers(self, at: usize) -> bool {
        match self {
            Self::Until(end) => at < end,
            Self::Whole => true,
        }
    }
}

/// What was found in a segment.
pub(super) struct Scanned {
    /// Records, those included that are damaged and had been promised, and what lies between them.
    pub(super) entries: Vec<SummaryEntry>,
    /// Offset of the end of the last entry.
    pub(super) end: usize,
    /// Offsets of the records whose values are not intact.
    pub(super) damaged: Vec<usize>,
    /// Records that had not been promised, and that count for nothing: hash and sequence number.
    pub(super) dropped: Vec<(u64, u64)>,
}

impl Scanned {
    /// True when every byte up to the end is an intact record's.
    pub(super) fn is_whole(&self) -> bool {
        self.damaged.is_empty()
            && self.dropped.is_empty()
            && self.entries.iter().all(|e| e.record().is_some())
    }

    /// Ends a gap between intact records. What of it had been promised is lost, unless `names`, a summary
    /// that nobody promised to be true, knows the records.
    fn close_gap(&mut self, (from, to): (usize, usize), promise: Promise, names: &[SummaryEntry]) {
        if !promise.covers(from) {
            self.entries.push(SummaryEntry::gap(from, false));
            return;
        }
        let is_named =
            |entry: &&SummaryEntry| (from..to).contains(&entry.offset()) && entry.record().is_some();
        let mut named = names.iter().filter(is_named).peekable();
        if named.peek().is_none_or(|first| first.offset() != from) {
            self.entries.push(SummaryEntry::gap(from, true));
        }
        for entry in named {
            self.damaged.push(entry.offset());
            self.entries.push(*entry);
        }
    }
}

impl KvStore {
    /// Looks at `copy`, a copy of a whole log segment, for the records of its present use, values included. A
    /// head in which one bit has flipped is corrected, there and on the media. `has_part` says whether there
    /// is a part with this hash: values that lack one are not intact.
    pub(super) fn scan(
        &self,
        (segment, nonce): (u32, u32),
        copy: &[u8],
        (promise, names): (Promise, &[SummaryEntry]),
        has_part: &mut dyn FnMut(u64) -> bool,
        (buffer, block): (&mut HeadBuffer, &mut Block),
    ) -> Scanned {
        let base = self.segments.base(segment);
        let mut found =
            Scanned { entries: Vec::new(), end: DATA_START, damaged: Vec::new(), dropped: Vec::new() };
        let mut at = DATA_START;
        // Where something that is no record began.
        let mut gap = None;
        while at + HEAD_BYTES_MIN <= TRAILER_AT {
            let Some(head) = self.find_head((base, nonce), copy, at, gap.is_none(), buffer) else {
                gap.get_or_insert(at);
                at += RECORD_ALIGNMENT;
                continue;
            };
            let hash = checksum::of_key(self.segments.identity.secret, head.keyspace, buffer.key(&head));
            let is_intact = self.is_value_intact(copy, (base, at), &head, has_part, (buffer, block));
            if is_intact || promise.covers(at) {
                if let Some(start) = gap.take() {
                    found.close_gap((start, at), promise, names);
                }
                if !is_intact {
                    found.damaged.push(at);
                }
                found.entries.push(SummaryEntry::new(hash, at, &head));
                found.end = at + head.record_bytes();
            } else {
                found.dropped.push((hash, head.sequence));
                gap.get_or_insert(at);
            }
            at += head.record_bytes();
        }
        if let Promise::Until(end) = promise
            && found.end < end
        {
            found.close_gap((found.end, end), promise, names);
            found.end = end;
        }
        found
    }

    /// The head of a record at `at`. Where the last record has ended, one must begin if there is another:
    /// only there a damaged one is worth correcting.
    fn find_head(
        &self,
        (base, nonce): (u64, u32),
        copy: &[u8],
        at: usize,
        must_begin: bool,
        buffer: &mut HeadBuffer,
    ) -> Option<RecordHead> {
        let secret = self.segments.identity.secret;
        // The nonce tells most places apart without a checksum.
        let is_candidate = copy.get(at + NONCE_AT..at + NONCE_AT + 4) == Some(&nonce.to_le_bytes());
        let intact = if is_candidate { buffer.take(secret, copy, at) } else { None };
        if intact.is_some() || !must_begin {
            return intact;
        }
        let head = buffer.take_corrected(secret, copy, at, nonce)?;
        self.memory.write(base as usize + at, buffer.bytes(&head));
        Some(head)
    }

    fn is_value_intact(
        &self,
        copy: &[u8],
        (base, at): (u64, usize),
        head: &RecordHead,
        has_part: &mut dyn FnMut(u64) -> bool,
        (buffer, block): (&HeadBuffer, &mut Block),
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
        let Some(manifest) = self.load_manifest(base + at as u64, head, buffer) else { return false };
        let has_extents = manifest.extents.iter().enumerate().all(|(number, extent)| {
            let left = (head.value_bytes as usize).saturating_sub(number * EXTENT_DATA_BYTES);
            let bytes = left.min(EXTENT_DATA_BYTES);
            self.media.is_reserved(self.segments.chunk(extent.segment.get()))
                && self.read_extent(extent, bytes, (0, bytes), block, |_| {})
        });
        has_extents && self.hashes_of_parts(&manifest).all(has_part)
    }
}

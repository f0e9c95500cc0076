//! Records as they are read from the media and written to it.

use zerocopy::IntoBytes;

use super::append::OpenSegment;
use super::layout::{
    BLOCK_BYTES, EXTENT_BLOCKS, EXTENT_CHECKS_AT, EXTENT_DATA_BYTES, HEAD_BYTES_MAX, HEAD_BYTES_MIN,
    LINE_BYTES, NONCE_AT, RecordHead, RecordKind, SEGMENT_BYTES,
};
use super::pieces::{ExtentEntry, MANIFEST_BYTES, Manifest};
use super::{Key, KvStore, checksum};
use crate::store::NOWHERE;

/// A record's head, and room for reading one.
pub(super) struct HeadBuffer(Box<[u8; HEAD_BYTES_MAX]>);

impl HeadBuffer {
    pub(super) fn new() -> Self {
        Self(Box::new([0; HEAD_BYTES_MAX]))
    }

    /// The key of a head that was loaded.
    #[inline]
    pub(super) fn key(&self, head: &RecordHead) -> &[u8] {
        &self.0[HEAD_BYTES_MIN..HEAD_BYTES_MIN + head.key_bytes]
    }

    /// Checksum of a block of the data.
    #[inline]
    pub(super) fn check(&self, head: &RecordHead, block: usize) -> u32 {
        let at = head.checks_at() + block * 4;
        let bytes = self.0.get(at..at + 4).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    }

    pub(super) fn set_check(&mut self, head: &RecordHead, block: usize, check: u32) {
        let at = head.checks_at() + block * 4;
        self.0[at..at + 4].copy_from_slice(&check.to_le_bytes());
    }

    /// Writes the key, with its padding.
    #[inline]
    pub(super) fn set_key(&mut self, key: &[u8]) {
        let padded = HEAD_BYTES_MIN + key.len().next_multiple_of(4);
        self.0[padded - 4..padded].fill(0);
        self.0[HEAD_BYTES_MIN..HEAD_BYTES_MIN + key.len()].copy_from_slice(key);
    }

    /// Writes the header over key and checksums, which are there, and returns the whole head.
    #[inline]
    pub(super) fn finish(&mut self, secret: u64, head: &RecordHead, nonce: u32) -> &[u8] {
        self.0[..HEAD_BYTES_MIN].copy_from_slice(head.encode(nonce).as_bytes());
        let check = checksum::of_metadata(secret, &self.0[8..head.head_bytes()]);
        self.0[..8].copy_from_slice(&check.to_le_bytes());
        &self.0[..head.head_bytes()]
    }

    /// Takes a head out of a copy of its segment. `None` when there is none that is intact.
    pub(super) fn take(&mut self, secret: u64, segment: &[u8], at: usize) -> Option<RecordHead> {
        let head = RecordHead::parse(segment.get(at..)?)?;
        let bytes = segment.get(at..at + head.head_bytes())?;
        let end = at + head.record_bytes();
        self.0.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (end <= segment.len() && self.is_intact(secret, &head)).then_some(head)
    }

    /// Takes a head out of a copy of its segment of which one bit has flipped, and corrects that. `None` when
    /// it is no head, or more has happened to it.
    #[cold]
    pub(super) fn take_corrected(
        &mut self,
        secret: u64,
        segment: &[u8],
        at: usize,
        nonce: u32,
    ) -> Option<RecordHead> {
        let available = segment.get(at..)?;
        let bytes = available.len().min(HEAD_BYTES_MAX);
        self.0[..bytes].copy_from_slice(&available[..bytes]);
        // A flipped bit in the header may have made it any length; one behind it has not, nor has it changed
        // the nonce.
        let whole = RecordHead::parse(&self.0[..bytes]).filter(|_| self.nonce() == nonce);
        let bits = 8 * whole.map_or(HEAD_BYTES_MIN, |head| head.head_bytes()).min(bytes);
        for bit in 0..bits {
            self.0[bit / 8] ^= 1 << (bit % 8);
            let head = RecordHead::parse(&self.0[..bytes]).filter(|head| {
                let fits = head.head_bytes() <= bytes && head.record_bytes() <= available.len();
                fits && self.nonce() == nonce && self.is_intact(secret, head)
            });
            if head.is_some() {
                return head;
            }
            self.0[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }

    /// The head that was taken, as it lies on the media.
    pub(super) fn bytes(&self, head: &RecordHead) -> &[u8] {
        &self.0[..head.head_bytes()]
    }

    /// Nonce of the record's segment.
    #[inline]
    fn nonce(&self) -> u32 {
        let bytes = self.0.get(NONCE_AT..NONCE_AT + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    }

    #[inline]
    fn is_intact(&self, secret: u64, head: &RecordHead) -> bool {
        let check = checksum::of_metadata(secret, &self.0[8..head.head_bytes()]);
        self.0[..8] == check.to_le_bytes()
    }
}

impl KvStore {
    /// Reads the head of the record at `place`. `None` when it is damaged, or what was there in an earlier
    /// use of the segment: a page that is not as it was written last may hold an intact record.
    #[inline]
    pub(super) fn load_head(&self, place: u64, buffer: &mut HeadBuffer) -> Option<RecordHead> {
        let at = place as usize;
        let available = SEGMENT_BYTES - at % SEGMENT_BYTES;
        // Most heads are as long as this; a copy whose length is a constant is the fastest.
        let loaded = LINE_BYTES.min(available);
        if loaded == LINE_BYTES {
            self.memory.read(at, &mut buffer.0[..LINE_BYTES]);
        } else {
            self.memory.read(at, &mut buffer.0[..loaded]);
        }
        let head = RecordHead::parse(&buffer.0[..loaded])?;
        let bytes = head.head_bytes();
        if head.record_bytes() > available {
            return None;
        }
        if bytes > loaded {
            self.memory.read(at + loaded, &mut buffer.0[loaded..bytes]);
        }
        let is_present = buffer.nonce() == self.segments.nonce_at(place);
        (is_present && buffer.is_intact(self.segments.identity.secret, &head)).then_some(head)
    }

    /// True when the head that was loaded is that of a record of `key`.
    #[inline]
    pub(super) fn is_of(&self, head: &RecordHead, buffer: &HeadBuffer, key: &Key<'_>) -> bool {
        head.keyspace == key.keyspace && buffer.key(head) == key.bytes
    }

    /// Media offset of the data of the record at `place`.
    #[inline]
    pub(super) fn data_of(&self, place: u64, head: &RecordHead) -> u64 {
        let within = place as usize % SEGMENT_BYTES;
        place - within as u64 + head.data_at(within) as u64
    }

    /// Writes the head of the record that is next in a segment.
    #[inline]
    pub(super) fn write_head(&self, open: &OpenSegment, head: &RecordHead, buffer: &mut HeadBuffer) {
        let bytes = buffer.finish(self.segments.identity.secret, head, open.nonce);
        self.memory.write(open.place() as usize, bytes);
    }

    /// Reads bytes `from..to` of a record's data in blocks, checks each block, and hands the wanted part of
    /// each to `emit`. False when a block is damaged; what came before it has been handed over.
    #[inline]
    pub(super) fn read_stored(
        &self,
        record: &StoredRecord<'_>,
        range: (usize, usize),
        block: &mut Block,
        mut emit: impl FnMut(&[u8]),
    ) -> bool {
        let (from, to) = range;
        let (head, data) = (record.head, self.data_of(record.place, record.head) as usize);
        let mut next_read = record.next_read;
        let mut number = from / BLOCK_BYTES;
        while number * BLOCK_BYTES < to {
            let start = number * BLOCK_BYTES;
            let bytes = BLOCK_BYTES.min(head.stored_bytes - start);
            let buffer = &mut block.0[..bytes];
            self.memory.read_ahead(data + start, buffer, next_read as usize);
            if checksum::of_block(buffer) != record.buffer.check(head, number) {
                return false;
            }
            emit(&buffer[from.max(start) - start..to.min(start + bytes) - start]);
            next_read = NOWHERE;
            number += 1;
        }
        true
    }

    /// Where the pieces of a big value are, from its record.
    pub(super) fn load_manifest(
        &self,
        place: u64,
        head: &RecordHead,
        buffer: &HeadBuffer,
    ) -> Option<Manifest> {
        if head.kind != RecordKind::Big {
            return None;
        }
        let mut block = vec![0; MANIFEST_BYTES];
        self.memory.read(self.data_of(place, head) as usize, &mut block);
        if checksum::of_block(&block) != buffer.check(head, 0) {
            return None;
        }
        let known = |e: &ExtentEntry| (e.segment.get() as usize) < self.segments.count();
        Manifest::read(&block, head.value_bytes).filter(|manifest| manifest.extents.iter().all(known))
    }

    /// Reads bytes `from..to` of the data of an extent that holds `bytes` of it, like
    /// [`KvStore::read_stored`]. One that is not the value's any more may still hold its data, until it is
    /// written over: it is damaged all the same.
    pub(super) fn read_extent(
        &self,
        extent: &ExtentEntry,
        bytes: usize,
        range: (usize, usize),
        block: &mut Block,
        mut emit: impl FnMut(&[u8]),
    ) -> bool {
        let (from, to) = range;
        let base = self.segments.base(extent.segment.get()) as usize;
        if self.segments.nonce_at(base as u64) != extent.nonce.get() {
            return false;
        }
        let mut checks = vec![0; EXTENT_BLOCKS * 4];
        self.memory.read(base + EXTENT_CHECKS_AT, &mut checks);
        let secret = self.segments.identity.secret;
        if checksum::of_metadata(secret, &checks) != extent.checks.get() {
            return false;
        }
        let bytes = bytes.min(EXTENT_DATA_BYTES);
        for number in from / BLOCK_BYTES..to.div_ceil(BLOCK_BYTES) {
            let start = number * BLOCK_BYTES;
            let buffer = &mut block.0[..BLOCK_BYTES.min(bytes - start)];
            self.memory.read(base + super::layout::DATA_START + start, buffer);
            let expected = checks.get(number * 4..number * 4 + 4);
            if expected != Some(checksum::of_block(buffer).to_le_bytes().as_slice()) {
                return false;
            }
            let end = start + buffer.len();
            emit(&buffer[from.max(start) - start..to.min(end) - start]);
        }
        true
    }
}

/// A record whose head has been loaded.
#[derive(Clone, Copy)]
pub(super) struct StoredRecord<'a> {
    pub(super) place: u64,
    pub(super) head: &'a RecordHead,
    pub(super) buffer: &'a HeadBuffer,
    /// Where the next command will read, or [`NOWHERE`].
    pub(super) next_read: u64,
}

/// Room for a block of a value: what is checked is what is used, however often the memory it came from
/// changes.
#[repr(align(64))]
pub(super) struct Block(pub(super) [u8; BLOCK_BYTES]);

impl Block {
    pub(super) fn boxed() -> Box<Self> {
        Box::new(Self([0; BLOCK_BYTES]))
    }
}

//! Retrieving: without a lock, and without writing anything that another core looks at.
//!
//! Between finding a record and having copied it, it may be superseded, reclaimed and written over. Records
//! never change while they are the newest of their key, so whoever looks again afterwards and finds the same
//! record in the index has read the right bytes. A checksum that is wrong means damage only then.

use unvme_bus::lock;

use super::host::HostCursor;
use super::index::Hit;
use super::layout::{RecordHead, RecordKind};
use super::record::{Block, HeadBuffer, StoredRecord};
use super::slot::LINES_MANY;
use super::{HostData, Key, KvError, KvScratch, KvStore, Part};
use crate::store::NOWHERE;

/// Attempts before the key's writers are kept out.
const ATTEMPTS_MAX: usize = 8;

/// What the index and the media say about a key.
pub(super) enum Found {
    Pair(Hit, RecordHead),
    Absent,
    Damaged,
    /// A writer was in the way: look again.
    Changed,
}

/// What came of reading a value's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Intact,
    Damaged,
    /// A part of it was moved meanwhile: look again.
    Moved,
}

impl Reading {
    #[inline]
    pub(super) fn of(is_intact: bool) -> Self {
        if is_intact { Self::Intact } else { Self::Damaged }
    }

    /// What is returned for a record that is still there. `None`: look again.
    #[inline]
    pub(super) fn result<T>(self, value: T) -> Option<Result<T, KvError>> {
        match self {
            Self::Intact => Some(Ok(value)),
            Self::Damaged => Some(Err(KvError::Unrecovered)),
            Self::Moved => None,
        }
    }
}

impl KvStore {
    /// Brings the index entry of a key close, for a command some places ahead in its queue.
    #[inline]
    pub(crate) fn prefetch_index(&self, key: &Key<'_>) {
        self.index.prefetch(key.hash);
    }

    /// Brings the first lines of a key's record close, for the next command; its index entry should have
    /// arrived. Returns where on the media the rest is, for [`Part::next_read`], or [`NOWHERE`].
    #[inline]
    pub(crate) fn prefetch_record(&self, key: &Key<'_>) -> u64 {
        let Some(hit) = self.index.find(key.hash, 0) else { return NOWHERE };
        let (place, lines) = (hit.slot.place(), hit.slot.lines());
        if lines < LINES_MANY {
            self.memory.prefetch(place as usize, lines + 1);
            return NOWHERE;
        }
        self.memory.prefetch(place as usize, 2);
        place
    }

    /// Where on the media the key's record is, if it has one; it may be elsewhere in a moment.
    pub(crate) fn place_of(&self, key: &Key<'_>) -> Option<u64> {
        self.index.find(key.hash, 0).map(|hit| hit.slot.place())
    }

    /// True when the key has a value.
    pub(crate) fn exist(&self, key: &Key<'_>, scratch: &mut KvScratch) -> Result<bool, KvError> {
        self.vouch()?;
        self.look_up(key, scratch)
    }

    /// [`KvStore::exist`], as far as anybody knows.
    pub(super) fn look_up(&self, key: &Key<'_>, scratch: &mut KvScratch) -> Result<bool, KvError> {
        self.attempt(key, || match self.find_pair(key, &mut scratch.old) {
            Found::Pair(hit, _) => self.index.is_current(key.hash, &hit).then_some(Ok(true)),
            Found::Absent => Some(Ok(false)),
            Found::Damaged => Some(Err(KvError::Unrecovered)),
            Found::Changed => None,
        })
    }

    /// Copies as much of a value as the host's memory holds, and returns the whole value's length (with
    /// `raw`, the stored length). A host that only wants the length gives no memory. On an error the memory
    /// may have been written.
    #[inline]
    pub(crate) fn retrieve(
        &self,
        key: &Key<'_>,
        part: Part,
        target: HostData<'_>,
        scratch: &mut KvScratch,
    ) -> Result<u32, KvError> {
        self.vouch()?;
        self.attempt(key, || self.try_retrieve(key, part, target, scratch))
    }

    /// Calls `read` until no writer is in its way.
    #[inline]
    pub(super) fn attempt<T>(
        &self,
        key: &Key<'_>,
        mut read: impl FnMut() -> Option<Result<T, KvError>>,
    ) -> Result<T, KvError> {
        for _ in 0..ATTEMPTS_MAX {
            match read() {
                // The place may have been reused for the same key while it was read: looked at again with
                // writers kept out.
                Some(Err(KvError::Unrecovered)) => break,
                Some(result) => return result,
                None => {}
            }
        }
        // Nor does reclaim move parts of the value.
        let _reclaim_kept_out = lock(&self.reclaimer);
        let _writers_kept_out = self.index.lock(key.hash);
        read().unwrap_or(Err(KvError::Unrecovered))
    }

    #[inline]
    fn try_retrieve(
        &self,
        key: &Key<'_>,
        part: Part,
        target: HostData<'_>,
        scratch: &mut KvScratch,
    ) -> Option<Result<u32, KvError>> {
        let (hit, head) = match self.find_pair(key, &mut scratch.head) {
            Found::Pair(hit, head) => (hit, head),
            Found::Absent => return Some(Err(KvError::NotFound)),
            Found::Damaged => return Some(Err(KvError::Unrecovered)),
            Found::Changed => return None,
        };
        let record = StoredRecord {
            place: hit.slot.place(),
            head: &head,
            buffer: &scratch.head,
            next_read: part.next_read,
        };
        let is_packed = head.compressed && !part.raw;
        let Some(length) = self.length_of(&record, part.raw) else {
            return self.index.is_current(key.hash, &hit).then_some(Err(KvError::Unrecovered));
        };
        let end = length.min(part.offset.saturating_add(target.bytes)) as usize;
        let range = (part.offset as usize, end);
        let mut cursor = HostCursor::new(target);
        let reading = if range.0 >= range.1 {
            Reading::Intact
        } else if is_packed {
            let plain =
                self.read_packed(&record, &mut scratch.block, &mut scratch.packed, &mut scratch.plain);
            match plain.map(|plain| plain.get(range.0..range.1)) {
                Ok(wanted) => Reading::of(wanted.map(|wanted| cursor.write(wanted)).is_some()),
                Err(reading) => reading,
            }
        } else {
            self.read_value(&record, range, &mut scratch.block, |bytes| cursor.write(bytes))
        };
        if !self.index.is_current(key.hash, &hit) {
            return None;
        }
        reading.result(length)
    }

    /// Finds a key's record. A pair that is returned is to be looked for again after its bytes have been
    /// used.
    #[inline]
    pub(super) fn find_pair(&self, key: &Key<'_>, buffer: &mut HeadBuffer) -> Found {
        let mut first = None;
        for nth in 0.. {
            let Some(hit) = self.index.find(key.hash, nth) else {
                // Slots that moved while several were looked at may have been missed.
                let moved = first.is_some_and(|hit: Hit| !self.index.is_current(key.hash, &hit));
                return if moved { Found::Changed } else { Found::Absent };
            };
            first = first.or(Some(hit));
            match self.load_head(hit.slot.place(), buffer) {
                Some(head) if self.is_of(&head, buffer, key) => {
                    if !hit.slot.is_tombstone() {
                        return Found::Pair(hit, head);
                    }
                    let current = self.index.is_current(key.hash, &hit);
                    return if current { Found::Absent } else { Found::Changed };
                }
                head => {
                    if !self.index.is_current(key.hash, &hit) {
                        return Found::Changed;
                    }
                    if head.is_none() {
                        return Found::Damaged;
                    }
                }
            }
        }
        Found::Absent
    }

    /// Reads bytes `from..to` of a value that is not compressed (or of its stored form).
    #[inline]
    pub(super) fn read_value(
        &self,
        record: &StoredRecord<'_>,
        range: (usize, usize),
        block: &mut Block,
        emit: impl FnMut(&[u8]),
    ) -> Reading {
        match record.head.kind {
            RecordKind::Big => self.read_big(record, range, block, emit),
            _ if range.1 > record.head.stored_bytes => Reading::Damaged,
            _ => Reading::of(self.read_stored(record, range, block, emit)),
        }
    }

    /// Length of a value, or with `raw` of the form in which it is stored. `None` when it is damaged.
    #[inline]
    fn length_of(&self, record: &StoredRecord<'_>, raw: bool) -> Option<u32> {
        let head = record.head;
        match (head.compressed, head.kind) {
            (true, RecordKind::Big) if !raw => self.plain_bytes(record),
            (true, kind) if raw && kind != RecordKind::Big => Some(head.stored_bytes as u32),
            _ => Some(head.value_bytes),
        }
    }

    /// Reads and decompresses a whole value. Errors: what came of reading it, when that was not all of it.
    pub(super) fn read_packed<'a>(
        &self,
        record: &StoredRecord<'_>,
        block: &mut Block,
        packed: &mut Vec<u8>,
        plain: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Reading> {
        let lengths = self.length_of(record, true).zip(self.length_of(record, false));
        let (stored, whole) = lengths.ok_or(Reading::Damaged)?;
        packed.clear();
        match self.read_value(record, (0, stored as usize), block, |bytes| packed.extend_from_slice(bytes)) {
            Reading::Intact => {}
            other => return Err(other),
        }
        plain.clear();
        plain.resize(whole as usize, 0);
        match lz4_flex::block::decompress_into(packed, plain) {
            Ok(bytes) if bytes == plain.len() => Ok(plain),
            _ => Err(Reading::Damaged),
        }
    }
}

//! Append heads: where records are written next.

use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;

use super::layout::{
    DATA_START, DIRECTORY_AT, HEADER_AT, RECORD_ALIGNMENT, SegmentHeader, SegmentKind, SummaryEntry, TAIL_AT,
    TRAILER_AT, Trailer, summary_start, tail_of, tail_word,
};
use super::reclaim::ROUNDS_MAX;
use super::segment::{Purpose, State, worth};
use super::{KvError, KvStore};

/// Where the media has no space any more, so many segments are tried: some have had it since they were used.
const ATTEMPTS_MAX: usize = 256;

/// An append head; idle without a segment.
#[derive(Default)]
pub(super) struct AppendHead {
    pub(super) open: Option<OpenSegment>,
    /// Memory of the last segment's summary, for the next one's.
    spare: Vec<SummaryEntry>,
}

/// A segment that records are appended to.
pub(super) struct OpenSegment {
    pub(super) segment: u32,
    /// Media offset of the segment.
    pub(super) base: u64,
    pub(super) nonce: u32,
    /// Offset of the next record.
    pub(super) at: usize,
    /// Pages before this offset have been counted as programmed.
    pub(super) programmed: usize,
    /// Whose records it takes.
    pub(super) purpose: Purpose,
    /// Bytes of the records appended.
    bytes: u32,
    summary: Vec<SummaryEntry>,
}

impl OpenSegment {
    /// True when a record of that size fits, with its entry in the summary.
    #[inline]
    pub(super) fn fits(&self, record_bytes: usize) -> bool {
        self.at + record_bytes <= summary_start(self.summary.len() + 1)
    }

    /// Media offset of the next record.
    #[inline]
    pub(super) fn place(&self) -> u64 {
        self.base + self.at as u64
    }
}

impl KvStore {
    /// Makes sure that the head's segment has room for a record.
    ///
    /// # Errors
    /// [`KvError::Full`] when no space can be found, [`KvError::Media`] when the media fails.
    #[inline]
    pub(super) fn make_room(
        &self,
        head: &mut AppendHead,
        record_bytes: usize,
        purpose: Purpose,
    ) -> Result<(), KvError> {
        if head.open.as_ref().is_some_and(|open| open.fits(record_bytes)) {
            return Ok(());
        }
        self.open_next(head, purpose)
    }

    #[cold]
    fn open_next(&self, head: &mut AppendHead, purpose: Purpose) -> Result<(), KvError> {
        self.seal(head);
        let segment = self.take_segment(purpose, State::Open)?;
        self.start_segment(segment, SegmentKind::Log);
        let nonce = self.segments.pool().segment(segment).nonce;
        head.open = Some(OpenSegment {
            segment,
            base: self.segments.base(segment),
            nonce,
            at: DATA_START,
            programmed: DATA_START,
            purpose,
            bytes: 0,
            summary: std::mem::take(&mut head.spare),
        });
        Ok(())
    }

    /// A free segment with space on the media; for a host's command, reclaim makes one if need be. A host's
    /// data gets one only when the segments that are left for deletions and for reclaim have space, too, and
    /// a deletion only when the one for reclaim has: they make room where there is none.
    pub(super) fn take_segment(&self, purpose: Purpose, state: State) -> Result<u32, KvError> {
        self.begin_change();
        let (mut attempts, mut rounds) = (0, 0);
        loop {
            let (taken, free) = {
                let mut pool = self.segments.pool();
                let taken = pool.take(purpose, state);
                if let Some(segment) = taken {
                    self.segments.set_nonce(segment, pool.segment(segment).nonce);
                }
                (taken, pool.free_count())
            };
            if free < self.low_water() {
                self.is_scarce.store(true, Ordering::Relaxed);
            }
            if let Some(segment) = taken {
                let reserved = self.reserve(segment);
                if reserved == Err(KvError::Full) && attempts < ATTEMPTS_MAX.min(free) {
                    attempts += 1;
                    self.segments.pool().give_back_last(segment);
                    continue;
                }
                let taken = reserved.and_then(|()| self.reserve_spares(purpose.leaves_free()));
                return match taken.and_then(|()| self.program_header(segment, purpose)) {
                    Ok(()) => Ok(segment),
                    Err(error) => {
                        self.segments.pool().give_back(segment);
                        let is_short = error == KvError::Full && purpose != Purpose::Reclaim;
                        if is_short && rounds < ROUNDS_MAX && self.reclaim_space()? {
                            (attempts, rounds) = (0, rounds + 1);
                            continue;
                        }
                        Err(error)
                    }
                };
            }
            if purpose == Purpose::Reclaim {
                return Err(KvError::Full);
            }
            self.reclaim_now(purpose)?;
        }
    }

    /// Gives the next `count` free segments space.
    fn reserve_spares(&self, count: usize) -> Result<(), KvError> {
        for nth in 0..count {
            let limit = ATTEMPTS_MAX.min(self.segments.pool().free_count());
            for attempt in 0.. {
                let Some(segment) = self.segments.pool().next_free(nth) else { break };
                match self.reserve(segment) {
                    Err(KvError::Full) if attempt < limit => self.segments.pool().postpone(segment),
                    Err(error) => return Err(error),
                    Ok(()) => break,
                }
            }
        }
        Ok(())
    }

    /// Gives a segment space, and the pages that are going to say what it is.
    fn reserve(&self, segment: u32) -> Result<(), KvError> {
        let hosts = self.segments.hosts(segment);
        let mut needed = std::iter::once(segment).chain(hosts);
        needed
            .try_for_each(|number| self.media.reserve(self.segments.chunk(number)))
            .map_err(KvError::from_media)
    }

    /// Writes a segment's first page, and what it is going to be to the directory. In this order: an entry of
    /// the directory without the header that belongs to it means that the header was lost.
    pub(super) fn start_segment(&self, segment: u32, kind: SegmentKind) {
        let info = *self.segments.pool().segment(segment);
        let base = self.segments.base(segment) as usize;
        // What lies around it is not the segment's own: the superblock, and the directory.
        self.memory.fill(base + TAIL_AT, DIRECTORY_AT - TAIL_AT, 0);
        self.write_tail(segment, info.nonce, DATA_START);
        self.write_header(segment, kind, info.incarnation, info.nonce);
        self.enter(&self.segments.pool(), segment, kind);
        self.count_first_pages(segment);
    }

    /// Both copies of a segment's header.
    pub(super) fn write_header(&self, segment: u32, kind: SegmentKind, incarnation: u64, nonce: u32) {
        let header = SegmentHeader::new(kind, self.segments.identity, segment, incarnation, nonce);
        let base = self.segments.base(segment) as usize;
        for at in HEADER_AT {
            self.memory.write(base + at, header.as_bytes());
        }
    }

    /// Notes where a segment's records end.
    pub(super) fn write_tail(&self, segment: u32, nonce: u32, end: usize) {
        let at = self.segments.base(segment) as usize + TAIL_AT;
        self.memory.store_u64(at, tail_word(end, nonce), Ordering::Release);
    }

    /// Where a segment's records end, as its first page says; `None` when that is damaged.
    pub(super) fn load_tail(&self, segment: u32, nonce: u32) -> Option<usize> {
        let at = self.segments.base(segment) as usize + TAIL_AT;
        // Acquire: pairs with the Release in `advance`: what is before the end has been written.
        tail_of(self.memory.load_u64(at, Ordering::Acquire), nonce)
    }

    /// A segment's first page has been written, and those that list it.
    pub(super) fn count_first_pages(&self, segment: u32) {
        let pages = 1 + self.segments.hosts(segment).iter().filter(|&&host| host != segment).count();
        self.count_media_bytes((pages * DATA_START) as u64);
    }

    /// The record at the head is written: the next one comes behind it.
    #[inline]
    pub(super) fn advance(&self, open: &mut OpenSegment, record_bytes: usize, entry: SummaryEntry) {
        open.at += record_bytes;
        open.bytes += record_bytes as u32;
        open.summary.push(entry);
        debug_assert!(open.at.is_multiple_of(RECORD_ALIGNMENT));
        // When the store is opened after a kill, this tells a lost record from the end of the log. Release: a
        // sync that finds it covers what is before it.
        let tail_at = open.base as usize + TAIL_AT;
        self.memory.store_u64(tail_at, tail_word(open.at, open.nonce), Ordering::Release);
        self.program_full_pages(open);
    }

    /// Closes the head's segment: writes its summary, so that nobody has to read its records to know what
    /// they are.
    pub(super) fn seal(&self, head: &mut AppendHead) {
        let Some(open) = head.open.take() else { return };
        self.write_summary(open.segment, open.nonce, open.at, &open.summary);
        self.program_tail(open.segment, (open.programmed, open.at), &open.summary, open.purpose);
        self.segments.add_live(open.segment, open.bytes);
        self.segments.pool().seal(open.segment, worth(open.summary.len(), open.at));
        head.spare = open.summary;
        head.spare.clear();
    }

    /// Writes a summary, unless what is before `end` leaves no room for it: the records of such a segment,
    /// which no append head has written so, are looked for each time.
    pub(super) fn write_summary(&self, segment: u32, nonce: u32, end: usize, summary: &[SummaryEntry]) {
        if end > summary_start(summary.len()) {
            return;
        }
        let trailer = Trailer::new(self.segments.identity.secret, nonce, end, summary);
        let trailer_at = self.segments.base(segment) as usize + TRAILER_AT;
        let bytes = summary.as_bytes();
        self.memory.write(trailer_at - bytes.len(), bytes);
        self.memory.write(trailer_at, trailer.as_bytes());
        self.count_media_bytes((bytes.len() + size_of::<Trailer>()) as u64);
    }
}

//! Pages of the log, as a flash translation layer counts them.
//!
//! Pairs lie where the store puts them, with or without such a layer. With one, it is told which pages of the
//! log are programmed and which segments are erased, and keeps accounts of them like of logical blocks: it
//! programs a page for each, moves it when its reclaim unit is emptied, and forgets it when the segment is
//! erased. Write amplification, wear, SMART and the statistics of data placement hold for pairs too.
//!
//! A page counts once it is full, or when its segment is sealed: until then it waits in the device's buffer,
//! so small records do not count a page each. What a sync notes in the directory does not count.
//!
//! Hosts' records go to the first reclaim unit handle of the namespace, copies made by the store's own
//! reclaim to the second if there is one: they live longer.

use std::sync::atomic::{AtomicU16, Ordering};

use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::Placement;
use unvme_spec::Status;

use super::append::OpenSegment;
use super::layout::{DATA_START, SEGMENT_BYTES, SummaryEntry, summary_start};
use super::segment::Purpose;
use super::{KvError, KvStore};
use crate::media::Media;

/// A page in the arithmetic of segments.
pub(super) const PAGE: usize = PAGE_BYTES as usize;

/// Where pages of the log are counted.
pub(super) struct Programs {
    /// There is a translation layer that counts.
    is_on: bool,
    groups: u16,
    host: AtomicU16,
    reclaim: AtomicU16,
}

impl Programs {
    pub(super) fn new(media: &Media) -> Self {
        let groups = media.flash().map(|flash| flash.ftl_config().groups);
        Self {
            is_on: groups.is_some(),
            groups: groups.unwrap_or(1),
            host: AtomicU16::new(0),
            reclaim: AtomicU16::new(0),
        }
    }

    fn placement(&self, segment_chunk: u64, purpose: Purpose) -> Placement {
        let handle = if purpose == Purpose::Reclaim { &self.reclaim } else { &self.host };
        let group = (segment_chunk % u64::from(self.groups)) as u16;
        Placement { handle: handle.load(Ordering::Relaxed), group }
    }
}

impl KvStore {
    /// The namespace's pairs go to these reclaim unit handles from now on.
    pub(crate) fn place(&self, ruhs: &[u16]) {
        let first = ruhs.first().copied().unwrap_or_default();
        self.programs.host.store(first, Ordering::Relaxed);
        self.programs.reclaim.store(ruhs.get(1).copied().unwrap_or(first), Ordering::Relaxed);
    }

    /// The pages that say what a segment is: its own first one, and those of the directory.
    fn first_pages(&self, segment: u32) -> impl Iterator<Item = u32> {
        let hosts = self.segments.hosts(segment).into_iter().filter(move |&host| host != segment);
        std::iter::once(segment).chain(hosts)
    }

    /// The first page of a segment is going to be written, and what it is to the directory.
    ///
    /// # Errors
    /// When nothing can be programmed any more: nothing must be written to the segment.
    pub(super) fn program_header(&self, segment: u32, purpose: Purpose) -> Result<(), KvError> {
        if !self.programs.is_on {
            return Ok(());
        }
        self.first_pages(segment)
            .try_for_each(|number| self.program(number, (0, DATA_START), purpose))
            .map_err(KvError::from_media)
    }

    /// Records were appended: counts the pages that are full.
    #[inline]
    pub(super) fn program_full_pages(&self, open: &mut OpenSegment) {
        if self.programs.is_on && open.at - open.programmed >= PAGE {
            let end = open.at / PAGE * PAGE;
            self.program_rest(open.segment, (open.programmed, end), open.purpose);
            open.programmed = end;
        }
    }

    /// The log of a segment, of which pages before `programmed` have been counted, ends at `end`; its summary
    /// is written.
    #[cold]
    pub(super) fn program_tail(
        &self,
        segment: u32,
        (programmed, end): (usize, usize),
        summary: &[SummaryEntry],
        purpose: Purpose,
    ) {
        if !self.programs.is_on {
            return;
        }
        let log_end = end.next_multiple_of(PAGE);
        let summary_at = summary_start(summary.len());
        self.program_rest(segment, (programmed, log_end), purpose);
        self.program_rest(segment, (summary_at.max(log_end), SEGMENT_BYTES), purpose);
    }

    /// An extent holds so many bytes of a value.
    pub(super) fn program_extent(&self, segment: u32, bytes: usize) {
        if self.programs.is_on {
            self.program_rest(
                segment,
                (DATA_START, (DATA_START + bytes).next_multiple_of(PAGE)),
                Purpose::Host,
            );
        }
    }

    /// A segment is erased, and its first page and the directory say so.
    #[cold]
    pub(super) fn program_free_header(&self, segment: u32) {
        let Some(flash) = self.media.flash() else { return };
        if flash.discharge(self.segments.base(segment), SEGMENT_BYTES as u64).is_ok() {
            for number in self.first_pages(segment) {
                self.program_rest(number, (0, DATA_START), Purpose::Host);
            }
        }
    }

    /// Counts pages of data that is on the media in any case. When that is impossible, because the flash is
    /// worn out or has lost power, they are not counted, and the next segment is refused.
    #[cold]
    fn program_rest(&self, segment: u32, range: (usize, usize), purpose: Purpose) {
        if let Err(status) = self.program(segment, range, purpose) {
            tracing::debug!(segment, %status, "pages of pairs could not be counted");
        }
    }

    fn program(&self, segment: u32, (from, to): (usize, usize), purpose: Purpose) -> Result<(), Status> {
        let Some(flash) = self.media.flash().filter(|_| from < to) else { return Ok(()) };
        let at = self.programs.placement(self.segments.chunk(segment), purpose);
        flash.charge(self.segments.base(segment) + from as u64, (to - from) as u64, at)
    }
}

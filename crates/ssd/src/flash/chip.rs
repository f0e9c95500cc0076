//! What programming, moving and erasing do to the store.

use unvme_bus::Region;
use unvme_bus::mem::order_uncached;
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::{FtlConfig, Nand, Opened, Origin, ProgramFailure};
use unvme_flash::timing::{Cause, FlashOp, OpList};
use unvme_spec::Status;

use super::journal::Journal;
use super::power::Permit;
use super::record::{self, FLAG_ELSEWHERE, FLAG_MOVED, Record};
use super::superblock::Superblock;
use super::{CHUNK_PAGES, Flash};
use crate::store::{CHUNK_BYTES, tags};

/// A page's data.
pub(super) type Block = [u8; PAGE_BYTES as usize];

/// Where the data of a host's write comes from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// The host's memory, all of a page of it.
    Host { memory: &'a Region, offset: usize },
    /// Put together from what was there and what the host wrote.
    Block(&'a Block),
    /// There is none: the media keeps none, or the data lies elsewhere.
    Nothing,
}

/// What is known of a unit beside what the layer knows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnitBook {
    pub(super) erased: u32,
    pub(super) stream: u16,
    /// Number of the last sync that had begun when the unit was freed: a later one has to be over before it
    /// is programmed.
    pub(super) freed: u64,
}

/// What is counted for recovery. Changes under the write lock.
pub(super) struct Books {
    pub(super) superblock: Superblock,
    pub(super) unit_pages: u32,
    pub(super) units: Box<[UnitBook]>,
    /// Number of the last program.
    pub(super) sequence: u64,
    /// Pages hosts have written.
    pub(super) host_pages: u64,
    /// Programs up to this one survive a power cut.
    pub(super) durable: u64,
    /// Syncs begun, and the last of them that is over.
    pub(super) syncs: u64,
    pub(super) synced: u64,
    pub(super) journal: Journal,
    /// Number of the last checkpoint.
    pub(super) checkpoint: u64,
    /// Why a unit could not be opened.
    refusal: Option<Status>,
    /// Chunks of what hosts see whose data lies elsewhere.
    elsewhere: Box<[bool]>,
    /// What is being programmed, for its checksum.
    kept: Box<Block>,
}

impl Books {
    pub(super) fn new(superblock: Superblock, config: &FtlConfig, erased: &[u32]) -> Self {
        let unit = |number: u32| UnitBook {
            erased: erased.get(number as usize).copied().unwrap_or(0),
            ..UnitBook::default()
        };
        let chunks = config.logical_pages.div_ceil(CHUNK_PAGES) as usize;
        Self {
            superblock,
            unit_pages: config.unit_pages,
            units: (0..config.units).map(unit).collect(),
            sequence: 0,
            host_pages: 0,
            durable: 0,
            // Whoever makes books has synced what was there.
            syncs: 1,
            synced: 1,
            journal: Journal::default(),
            checkpoint: 0,
            refusal: None,
            elsewhere: vec![false; chunks].into(),
            kept: Box::new([0; PAGE_BYTES as usize]),
        }
    }

    /// Erasures of all units.
    pub(super) fn erased(&self) -> Vec<u32> {
        self.units.iter().map(|unit| unit.erased).collect()
    }

    /// Erasures per unit.
    pub(super) fn average_erased(&self) -> u64 {
        self.units.iter().map(|unit| u64::from(unit.erased)).sum::<u64>() / self.units.len().max(1) as u64
    }

    /// The data of a logical page lies elsewhere, or does not any more.
    pub(super) fn set_elsewhere(&mut self, lpn: u32, elsewhere: bool) {
        if let Some(flag) = self.elsewhere.get_mut((lpn / CHUNK_PAGES) as usize) {
            *flag = elsewhere;
        }
    }

    #[inline]
    pub(super) fn is_elsewhere(&self, lpn: u32) -> bool {
        self.elsewhere.get((lpn / CHUNK_PAGES) as usize).copied().unwrap_or(false)
    }

    /// A sync that has begun after a unit was freed is over.
    fn is_ready(&self, unit: u32) -> bool {
        self.units[unit as usize].freed < self.synced
    }

    /// Why a unit could not be opened the last time.
    pub(super) fn take_refusal(&mut self) -> Option<Status> {
        self.refusal.take()
    }
}

/// The store as the layer works on it, for one call of the layer.
pub(crate) struct Chip<'a> {
    flash: &'a Flash,
    books: &'a mut Books,
    source: Source<'a>,
    ops: &'a mut OpList,
}

impl<'a> Chip<'a> {
    pub(super) fn new(
        flash: &'a Flash,
        books: &'a mut Books,
        source: Source<'a>,
        ops: &'a mut OpList,
    ) -> Self {
        Self { flash, books, source, ops }
    }

    /// Copies what the host writes to a page; returns the checksum where one is kept.
    #[inline]
    fn put(&mut self, ppn: u32, bytes: usize) -> u32 {
        let Flash { backing, layout, persists, .. } = self.flash;
        let at = layout.page(ppn) as usize;
        match (backing.memory(), self.source) {
            (Some(media), Source::Host { memory, offset }) if *persists => {
                let kept = &mut self.books.kept[..bytes];
                memory.copy_to_uncached_kept(offset, media, at, kept);
                record::crc(kept)
            }
            (Some(media), Source::Host { memory, offset }) if backing.bypasses_caches() => {
                memory.copy_to_uncached(offset, media, at, bytes);
                0
            }
            (Some(media), Source::Host { memory, offset }) => {
                memory.copy_to(offset, media, at, bytes);
                0
            }
            (Some(media), Source::Block(block)) => {
                media.write(at, &block[..bytes]);
                if *persists { record::crc(&block[..bytes]) } else { 0 }
            }
            (Some(_), Source::Nothing) => 0,
            (None, source) => {
                self.put_tag(ppn, source);
                0
            }
        }
    }

    #[cold]
    fn put_tag(&self, ppn: u32, source: Source<'_>) {
        let Some(media) = self.flash.backing.tags() else { return };
        let mut tag = [0; tags::TAG_BYTES];
        match source {
            Source::Host { memory, offset } => memory.read(offset, &mut tag),
            Source::Block(block) => tag.copy_from_slice(&block[..tags::TAG_BYTES]),
            Source::Nothing => return,
        }
        let place = tags::place(self.flash.layout.page(ppn));
        media.store_u64(place, u64::from_le_bytes(tag), std::sync::atomic::Ordering::Relaxed);
    }

    /// Copies a page to another one; returns the checksum that it had where one is kept.
    fn move_page(&mut self, from: u32, to: u32, elsewhere: bool) -> u32 {
        let Flash { backing, layout, persists, .. } = self.flash;
        let page = |ppn| layout.page(ppn) as usize;
        if let Some(tags) = backing.tags() {
            let ordering = std::sync::atomic::Ordering::Relaxed;
            let place = |ppn| tags::place(layout.page(ppn));
            tags.store_u64(place(to), tags.load_u64(place(from), ordering), ordering);
        }
        let Some(media) = backing.memory() else { return 0 };
        if !elsewhere {
            media.copy_to_uncached(page(from), media, page(to), PAGE_BYTES as usize);
        }
        if !persists {
            return 0;
        }
        match Record::read(media, layout.record(from), self.books.superblock.secret, from) {
            Some(record) => record.data_crc,
            None => {
                // Without its record the data cannot be vouched for, here or there.
                media.read(page(from), &mut self.books.kept[..]);
                !record::crc(&self.books.kept[..])
            }
        }
    }

    fn write_record(&mut self, ppn: u32, lpn: u32, data_crc: u32, flags: u16) {
        let Some(media) = self.flash.memory() else { return };
        let Books { superblock, unit_pages, units, sequence, host_pages, .. } = &*self.books;
        let unit = &units[(ppn / unit_pages) as usize];
        let record = Record {
            sequence: *sequence,
            lpn,
            data_crc,
            erased: unit.erased,
            stream: unit.stream,
            flags,
            host_pages: *host_pages as u32,
            check: 0,
        };
        // The data first: a record says that it is there.
        order_uncached();
        media.write_words(self.flash.layout.record(ppn) as usize, record.seal(superblock.secret, ppn));
    }

    /// The power fails in the middle of a program.
    #[cold]
    fn tear(&mut self, ppn: u32, origin: Origin) {
        let Flash { backing, layout, .. } = self.flash;
        let half = PAGE_BYTES as usize / 2;
        match (origin, backing.memory()) {
            (Origin::Host, _) => _ = self.put(ppn, half),
            (Origin::Reclaim { from }, Some(media)) => {
                media.copy_to(layout.page(from) as usize, media, layout.page(ppn) as usize, half);
            }
            (Origin::Reclaim { .. }, None) => {}
        }
        if let Some(media) = self.flash.memory().filter(|_| self.flash.persists) {
            media.write_words(layout.record(ppn) as usize, [0; 4]);
        }
        self.flash.power_failed(self.books);
    }
}

impl Nand for Chip<'_> {
    fn admit(&mut self, unit: u32) -> bool {
        let answer = self.flash.admit(self.books, unit);
        self.books.refusal = answer.err();
        answer.is_ok()
    }

    fn is_ready(&self, unit: u32) -> bool {
        !self.flash.persists || self.books.is_ready(unit)
    }

    fn open(&mut self, opened: Opened) {
        let first = u64::from(opened.unit) * u64::from(self.books.unit_pages);
        self.flash.grains.touch(first..first + u64::from(self.books.unit_pages));
        self.books.units[opened.unit as usize].stream = opened.stream;
        self.flash.is_behind.store(true, std::sync::atomic::Ordering::Relaxed);
        self.flash.watch.opened(opened);
    }

    #[inline]
    fn program(&mut self, ppn: u32, lpn: u32, origin: Origin) -> Result<(), ProgramFailure> {
        match self.flash.power.permit() {
            Permit::Whole => {}
            Permit::Half => {
                self.tear(ppn, origin);
                return Err(ProgramFailure);
            }
            Permit::None => return Err(ProgramFailure),
        }
        self.books.sequence += 1;
        let elsewhere = self.books.is_elsewhere(lpn);
        let (data_crc, moved) = match origin {
            Origin::Host => {
                self.books.host_pages += 1;
                (self.put(ppn, PAGE_BYTES as usize), 0)
            }
            Origin::Reclaim { from } => {
                self.flash.watch.moved(from / self.books.unit_pages, lpn);
                self.ops.note(FlashOp::Read { ppn: from }, Cause::Reclaim);
                (self.move_page(from, ppn, elsewhere), FLAG_MOVED)
            }
        };
        if self.flash.persists {
            let flags = moved | if elsewhere { FLAG_ELSEWHERE } else { 0 };
            self.write_record(ppn, lpn, data_crc, flags);
        }
        let cause = if moved == 0 { Cause::Host } else { Cause::Reclaim };
        self.ops.note(FlashOp::Program { ppn }, cause);
        Ok(())
    }

    fn close(&mut self, unit: u32, written: u32) {
        self.flash.watch.closed(unit, written);
    }

    fn erase(&mut self, unit: u32) {
        let syncs = self.books.syncs;
        let book = &mut self.books.units[unit as usize];
        book.erased += 1;
        book.freed = syncs;
        self.flash.watch.erased(unit);
        self.ops.note(FlashOp::Erase { unit }, Cause::Reclaim);
    }
}

impl Flash {
    /// Makes a free unit ready to be programmed.
    ///
    /// What is in it is dead, but what superseded it may not be on the media yet: after a power cut it would
    /// be the newest again. So a sync that has begun after the unit was freed has to be over. One covers all
    /// units freed before it, those are opened before others, and the layer keeps a pool of free ones
    /// ([`FlashConfig::pooled`](super::FlashConfig::pooled)): a sync is done once for as many as that.
    #[cold]
    fn admit(&self, books: &mut Books, unit: u32) -> Result<(), Status> {
        if self.power.is_off() {
            return Err(Status::WRITE_FAULT);
        }
        if self.persists && !books.is_ready(unit) {
            self.sync_now(books)?;
        }
        let pages = u64::from(books.unit_pages);
        let first = u64::from(unit) * pages;
        if self.backing.memory().is_some() {
            let first = self.layout.page(0) + first * PAGE_BYTES;
            self.backing.reserve_range(first, pages * PAGE_BYTES)?;
        }
        if self.persists {
            let records = self.layout.record(0) + first * record::RECORD_BYTES;
            self.backing.reserve_range(records, pages * record::RECORD_BYTES)?;
        }
        debug_assert!(self.layout.pages.is_multiple_of(CHUNK_BYTES));
        Ok(())
    }
}

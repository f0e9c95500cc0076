//! Commands on logical blocks: extents of what hosts see, a page at a time.

use std::sync::atomic::Ordering;

use unvme_bus::{Region, lock};
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::{FtlError, Placement};
use unvme_flash::timing::{Cause, FlashOp, OpList};
use unvme_spec::Status;

use super::chip::{Block, Chip, Source};
use super::record::{self, Record};
use super::{Flash, Inner};
use crate::store::{Extent, NOWHERE, tags};

/// Pages deallocated with the lock held, before others have their turn.
const TRIM_PAGES: u32 = 1 << 16;

/// A part of one logical page.
#[derive(Clone, Copy)]
struct Part {
    lpn: u32,
    /// First byte within the page.
    within: usize,
    bytes: usize,
    /// Bytes of the extent before it.
    done: usize,
}

impl Part {
    const fn is_whole(&self) -> bool {
        self.bytes == PAGE_BYTES as usize
    }
}

#[inline]
fn for_each_part(extent: Extent, mut visit: impl FnMut(Part) -> Result<(), Status>) -> Result<(), Status> {
    let mut done = 0;
    while done < extent.bytes {
        let offset = extent.offset + done as u64;
        let within = (offset % PAGE_BYTES) as usize;
        let bytes = (extent.bytes - done).min(PAGE_BYTES as usize - within);
        visit(Part { lpn: (offset / PAGE_BYTES) as u32, within, bytes, done })?;
        done += bytes;
    }
    Ok(())
}

/// What reading a page's bytes has come to.
enum Copied {
    /// They are out.
    Yes,
    /// The page is not mapped: zeroes.
    Zeroes,
}

impl Flash {
    /// A read of this offset comes after the next one: its entry of the map is brought close.
    #[inline]
    pub(crate) fn prefetch_map(&self, offset: u64) {
        self.map.prefetch((offset / PAGE_BYTES) as u32);
    }

    /// The next read is at this offset: where on the store that is.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) -> u64 {
        match self.map.get((offset / PAGE_BYTES) as u32) {
            Some(ppn) => self.layout.page(ppn) + offset % PAGE_BYTES,
            None => NOWHERE,
        }
    }

    /// Copies an extent to host memory. `next_read` is what [`Flash::prefetch`] has returned for the next
    /// command.
    #[inline]
    pub(crate) fn read(
        &self,
        extent: Extent,
        host: &Region,
        host_offset: usize,
        next_read: u64,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        for_each_part(extent, |part| {
            let to = host_offset + part.done;
            let copied = self.copy(part, ops, |ppn| match self.memory() {
                Some(memory) => {
                    let from = self.layout.page(ppn) as usize + part.within;
                    memory.copy_to_ahead(from, host, to, part.bytes, next_read as usize);
                }
                None => self.copy_tag(ppn, part, host, to),
            })?;
            if let Copied::Zeroes = copied {
                host.fill(to, part.bytes, 0);
            }
            Ok(())
        })
    }

    /// Copies a part of one page out.
    pub(crate) fn fetch(&self, extent: Extent, out: &mut [u8], ops: &mut OpList) -> Result<(), Status> {
        for_each_part(extent, |part| {
            let out = &mut out[part.done..part.done + part.bytes];
            let copied = self.copy(part, ops, |ppn| match self.memory() {
                Some(memory) => memory.read(self.layout.page(ppn) as usize + part.within, out),
                None => tags::expand(self.tag(ppn), part.within, out),
            })?;
            if let Copied::Zeroes = copied {
                out.fill(0);
            }
            Ok(())
        })
    }

    /// Calls `copy` with the physical page of a part until it was that for all of the call. See `grains`.
    #[inline]
    fn copy(&self, part: Part, ops: &mut OpList, mut copy: impl FnMut(u32)) -> Result<Copied, Status> {
        loop {
            let Some((ppn, is_marked)) = self.map.get_marked(part.lpn) else { return self.absent(part.lpn) };
            let number = self.grains.number(ppn);
            if self.map.get(part.lpn) != Some(ppn) {
                continue;
            }
            if is_marked && !self.verify(part.lpn, ppn, number)? {
                continue;
            }
            copy(ppn);
            if self.grains.is_same(ppn, number) {
                ops.note(FlashOp::Read { ppn }, Cause::Host);
                return Ok(Copied::Yes);
            }
        }
    }

    /// A page that is not mapped: zeroes, unless it should be.
    fn absent(&self, lpn: u32) -> Result<Copied, Status> {
        if self.lost.contains(lpn) { Err(Status::UNRECOVERED_READ_ERROR) } else { Ok(Copied::Zeroes) }
    }

    /// Compares a page's data with its record: the first time it is read after opening. False when it was
    /// written anew meanwhile. Errors: unrecovered Read Error when they differ.
    #[cold]
    fn verify(&self, lpn: u32, ppn: u32, number: u32) -> Result<bool, Status> {
        let Some(memory) = self.memory() else { return Ok(true) };
        let secret = lock(&self.inner).books.superblock.secret;
        let mut block: Block = [0; PAGE_BYTES as usize];
        memory.read(self.layout.page(ppn) as usize, &mut block);
        let record = Record::read(memory, self.layout.record(ppn), secret, ppn);
        if !self.grains.is_same(ppn, number) {
            return Ok(false);
        }
        match record {
            Some(record) if record.lpn == lpn && record.data_crc == record::crc(&block) => {
                self.map.clear_mark(lpn, ppn);
                Ok(true)
            }
            _ => {
                tracing::error!(lpn, ppn, "a page is not as it was written");
                Err(Status::UNRECOVERED_READ_ERROR)
            }
        }
    }

    fn tag(&self, ppn: u32) -> u64 {
        self.backing
            .tags()
            .map_or(0, |tags| tags.load_u64(tags::place(self.layout.page(ppn)), Ordering::Relaxed))
    }

    #[cold]
    fn copy_tag(&self, ppn: u32, part: Part, host: &Region, to: usize) {
        let mut block: Block = [0; PAGE_BYTES as usize];
        tags::expand(self.tag(ppn), part.within, &mut block[..part.bytes]);
        host.write(to, &block[..part.bytes]);
    }

    /// Writes an extent from host memory.
    #[inline]
    pub(crate) fn write(
        &self,
        extent: Extent,
        host: &Region,
        host_offset: usize,
        at: Placement,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        for_each_part(extent, |part| {
            let offset = host_offset + part.done;
            let mut inner = lock(&self.inner);
            if part.is_whole() {
                return self.program(&mut inner, part.lpn, at, Source::Host { memory: host, offset }, ops);
            }
            self.change(&mut inner, part, at, ops, |bytes| host.read(offset, bytes))
        })
    }

    /// Writes an extent from `data`, which has as many bytes.
    #[cold]
    pub(crate) fn write_bytes(
        &self,
        extent: Extent,
        data: &[u8],
        at: Placement,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        for_each_part(extent, |part| {
            let data = &data[part.done..part.done + part.bytes];
            let mut inner = lock(&self.inner);
            match data.try_into() {
                Ok(block) => self.program(&mut inner, part.lpn, at, Source::Block(block), ops),
                Err(_) => self.change(&mut inner, part, at, ops, |bytes| bytes.copy_from_slice(data)),
            }
        })
    }

    /// Writes a page. The lock is held.
    #[inline]
    pub(super) fn program(
        &self,
        inner: &mut Inner,
        lpn: u32,
        at: Placement,
        source: Source<'_>,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        let Inner { ftl, books } = inner;
        match ftl.write(lpn, at, &mut Chip::new(self, books, source, ops)) {
            // The power may have gone while reclaim moved what this write paid for: then nobody is told that
            // it is done.
            Ok(_) if self.power.is_off() => Err(Status::WRITE_FAULT),
            Ok(_) => {
                self.lost.remove(lpn, 1);
                Ok(())
            }
            Err(error) => Err(self.refused(books, error)),
        }
    }

    #[cold]
    fn refused(&self, books: &mut super::Books, error: FtlError) -> Status {
        // Taken in any case: one that reclaim has met is not the reason for what fails later.
        match (error, books.take_refusal()) {
            _ if self.power.is_off() => Status::WRITE_FAULT,
            (FtlError::Refused, Some(status)) => status,
            (FtlError::WornOut, _) => Status::WRITE_TO_READ_ONLY_RANGE.with_do_not_retry(),
            _ => Status::WRITE_FAULT,
        }
    }

    /// Writes a part of a page: what was there is read, changed and written anew. The lock is held.
    fn change(
        &self,
        inner: &mut Inner,
        part: Part,
        at: Placement,
        ops: &mut OpList,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), Status> {
        if self.power.is_off() {
            return Err(Status::WRITE_FAULT);
        }
        if self.backing.memory().is_none() && self.backing.tags().is_none() {
            return self.program_part(inner, part, at, Source::Nothing, ops);
        }
        let mut block: Block = [0; PAGE_BYTES as usize];
        self.load(inner, part.lpn, &mut block, ops)?;
        change(&mut block[part.within..part.within + part.bytes]);
        self.program_part(inner, part, at, Source::Block(&block), ops)
    }

    /// Writes the page of a part, the rest of which the host has not written.
    fn program_part(
        &self,
        inner: &mut Inner,
        part: Part,
        at: Placement,
        source: Source<'_>,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        self.program(inner, part.lpn, at, source, ops)?;
        self.padded_bytes.fetch_add(PAGE_BYTES - part.bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    /// A whole page as it is. The lock is held: nobody writes meanwhile.
    fn load(&self, inner: &Inner, lpn: u32, block: &mut Block, ops: &mut OpList) -> Result<(), Status> {
        let Some((ppn, is_marked)) = self.map.get_marked(lpn) else { return self.absent(lpn).map(|_| ()) };
        ops.note(FlashOp::Read { ppn }, Cause::Host);
        let Some(memory) = self.memory() else {
            tags::expand(self.tag(ppn), 0, block);
            return Ok(());
        };
        memory.read(self.layout.page(ppn) as usize, block);
        let secret = inner.books.superblock.secret;
        let is_intact = || {
            Record::read(memory, self.layout.record(ppn), secret, ppn)
                .is_some_and(|record| record.lpn == lpn && record.data_crc == record::crc(block))
        };
        // A new checksum over what is left of the page would make damage pass for data.
        if is_marked && !is_intact() {
            return Err(Status::UNRECOVERED_READ_ERROR);
        }
        Ok(())
    }

    /// Zeroes an extent: whole pages are deallocated, parts of pages that are mapped are written.
    pub(crate) fn zero(&self, extent: Extent, at: Placement, ops: &mut OpList) -> Result<(), Status> {
        let end = extent.offset + extent.bytes as u64;
        let (first, behind) = (extent.offset.next_multiple_of(PAGE_BYTES), end / PAGE_BYTES * PAGE_BYTES);
        if first < behind {
            self.trim((first / PAGE_BYTES) as u32, ((behind - first) / PAGE_BYTES) as u32)?;
        }
        for_each_part(extent, |part| {
            if part.is_whole() || self.map.get(part.lpn).is_none() {
                return Ok(());
            }
            self.change(&mut lock(&self.inner), part, at, ops, |bytes| bytes.fill(0))
        })
    }

    /// Deallocates whole pages.
    pub(super) fn trim(&self, first: u32, pages: u32) -> Result<(), Status> {
        let mut done = 0;
        while done < pages {
            let some = (pages - done).min(TRIM_PAGES);
            self.trim_some(first + done, some)?;
            done += some;
        }
        Ok(())
    }

    fn trim_some(&self, first: u32, pages: u32) -> Result<(), Status> {
        let mut inner = lock(&self.inner);
        if self.power.is_off() {
            return Err(Status::WRITE_FAULT);
        }
        let end = first + pages;
        let is_news = |lpn: &u32| self.map.get(*lpn).is_some() || self.lost.contains(*lpn);
        let Some(mapped) = (first..end).find(is_news) else { return Ok(()) };
        if self.persists {
            self.make_room_in_journal(&mut inner)?;
            inner.books.note_trim(self.memory(), &self.layout, mapped, end - mapped);
        }
        for lpn in mapped..end {
            inner.ftl.trim(lpn);
        }
        self.lost.remove(mapped, end - mapped);
        Ok(())
    }

    /// Compares a part of one page and, when it is equal, writes it, as one step.
    pub(crate) fn compare_and_write(
        &self,
        extent: Extent,
        expected: &[u8],
        new: &[u8],
        at: Placement,
        ops: &mut OpList,
    ) -> Result<bool, Status> {
        let within = (extent.offset % PAGE_BYTES) as usize;
        let part = Part { lpn: (extent.offset / PAGE_BYTES) as u32, within, bytes: extent.bytes, done: 0 };
        let mut inner = lock(&self.inner);
        let mut block: Block = [0; PAGE_BYTES as usize];
        self.load(&inner, part.lpn, &mut block, ops)?;
        let target = &mut block[within..within + part.bytes];
        if *target != *expected {
            return Ok(false);
        }
        target.copy_from_slice(new);
        self.program_part(&mut inner, part, at, Source::Block(&block), ops).map(|()| true)
    }

    /// A write on media that keeps no data: only the layer knows of it.
    pub(crate) fn pretend_write(
        &self,
        extent: Extent,
        at: Placement,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        for_each_part(extent, |part| {
            let mut inner = lock(&self.inner);
            self.program_part(&mut inner, part, at, Source::Nothing, ops)
        })
    }

    /// A read on media that keeps no data.
    pub(crate) fn pretend_read(&self, extent: Extent, ops: &mut OpList) {
        let _ = for_each_part(extent, |part| {
            if let Some(ppn) = self.map.get(part.lpn) {
                ops.note(FlashOp::Read { ppn }, Cause::Host);
            }
            Ok(())
        });
    }
}

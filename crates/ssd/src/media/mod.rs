//! Where the data is that commands name: on a store, or on flash on a store.

mod atomic;
mod checksum;
mod space;
mod tags;
mod units;

use std::sync::Arc;

use unvme_bus::Region;
use unvme_flash::ftl::Placement;
use unvme_flash::timing::{Cause, FlashOp, OpList};
use unvme_spec::Status;

use crate::flash::Flash;
use crate::store::sums::SECTOR_BYTES;
use crate::store::{Backing, CHUNK_BYTES, Extent, Store};
use crate::{SsdConfig, SsdError};
use atomic::{Atomicity, Content};
use checksum::Sums;
use space::Unused;
pub(crate) use units::UNIT_BYTES;
use units::Units;

/// Where the device's data is. Commands name chunks of what hosts see; without a translation layer chunk `n`
/// is chunk `n` of the store, with one it is wherever that has put it. Key Value namespaces use their chunks
/// of the store in either case.
pub(crate) struct Media {
    backing: Arc<Backing>,
    units: Units,
    unused: Unused,
    sums: Option<Sums>,
    atomicity: Atomicity,
    flash: Option<Flash>,
    /// Chunks hosts can be given.
    chunks: u64,
}

impl Media {
    /// Media without a translation layer.
    #[cfg(test)]
    pub(crate) fn new(store: Box<dyn Store>) -> Result<Self, SsdError> {
        let chunks = store.bytes() / CHUNK_BYTES;
        Self::assemble(Arc::new(Backing::new(store)), Parts::default(), chunks)
    }

    /// The media of a device; the store has the bytes that the configuration asks for. Errors: when there is
    /// no memory for tables, or the store cannot be what the configuration says.
    pub(crate) fn open(config: &SsdConfig, store: Box<dyn Store>) -> Result<Self, SsdError> {
        let backing = Arc::new(Backing::new(store));
        let flash = config
            .flash
            .as_ref()
            .map(|flash| Flash::open(flash, config.bytes, Arc::clone(&backing)))
            .transpose()?;
        let sums = if config.checksum { Some(Sums::open(config.bytes, &backing)?) } else { None };
        Self::assemble(backing, Parts { flash, sums }, config.bytes / CHUNK_BYTES)
    }

    fn assemble(backing: Arc<Backing>, parts: Parts, chunks: u64) -> Result<Self, SsdError> {
        let Parts { flash, sums } = parts;
        // Flash has versions of its own, and so have pairs.
        let keeps_data = backing.memory().is_some() || backing.tags().is_some();
        let versioned = if keeps_data && flash.is_none() { chunks * CHUNK_BYTES } else { 0 };
        let unused = Unused::new(versioned / CHUNK_BYTES);
        // Flash writes pages to new places.
        let atomicity = if versioned == 0 { Atomicity::NotNeeded } else { Atomicity::open(&backing)? };
        let media = Self { units: Units::new(versioned)?, unused, sums, atomicity, backing, flash, chunks };
        media.finish_writes()?;
        Ok(media)
    }

    /// Finishes the writes that a killed process has begun: blocks that were being written are new.
    fn finish_writes(&self) -> Result<(), SsdError> {
        let (Atomicity::Redo(redo), Some(memory)) = (&self.atomicity, self.backing.memory()) else {
            return Ok(());
        };
        let pending = redo.pending(self.chunks * CHUNK_BYTES, &self.backing)?;
        for write in &pending {
            // Blocks were written in chunks that have space, and checksums that had it.
            self.reserve_blocks(write.offset / CHUNK_BYTES).map_err(|status| SsdError::State {
                path: self.store().media_path(),
                reason: format!("a write that was cut off could not be finished: {status}"),
            })?;
            memory.write(write.offset as usize, &write.data);
            if let Some(sums) = &self.sums {
                sums.seal(memory, write.offset, &write.data);
            }
        }
        if !pending.is_empty() {
            tracing::info!(writes = pending.len(), "finished the writes that a killed process had begun");
        }
        // Only now: a kill in between leaves all of them to the next process.
        redo.clear();
        Ok(())
    }

    /// Replaces a part of a unit, which the caller holds. Errors: Write Fault.
    #[inline]
    fn put(&self, memory: &Region, offset: u64, content: Content<'_>) -> Result<(), Status> {
        match &self.sums {
            None => self.put_bytes(memory, offset, content),
            Some(sums) => {
                let mut block = [0; UNIT_BYTES];
                let content = match content {
                    Content::Host { region, offset, bytes } => {
                        // The host may change it in the meantime: what is written is what is summed.
                        region.read(offset, &mut block[..bytes]);
                        Content::Bytes(&block[..bytes])
                    }
                    other => other,
                };
                self.put_summed(sums, memory, offset, content)
            }
        }
    }

    #[inline]
    fn put_bytes(&self, memory: &Region, offset: u64, content: Content<'_>) -> Result<(), Status> {
        let (at, bypasses_caches) = (offset as usize, self.backing.bypasses_caches());
        match (&self.atomicity, content) {
            (Atomicity::Redo(redo), Content::Zeroes(bytes)) => {
                redo.write(offset, content, |_, _| memory.fill(at, bytes, 0));
            }
            (Atomicity::Redo(redo), _) if bypasses_caches => redo.write(offset, content, |log, data| {
                log.copy_to_uncached(data, memory, at, content.len());
            }),
            (Atomicity::Redo(redo), _) => redo.write(offset, content, |log, data| {
                log.copy_to(data, memory, at, content.len());
            }),
            (Atomicity::Calls, _) => return self.put_by_call(offset, content),
            (Atomicity::NotNeeded, Content::Host { region, offset, bytes }) => match bypasses_caches {
                true => region.copy_to_uncached(offset, memory, at, bytes),
                false => region.copy_to(offset, memory, at, bytes),
            },
            (Atomicity::NotNeeded, Content::Bytes(bytes)) => memory.write(at, bytes),
            (Atomicity::NotNeeded, Content::Zeroes(bytes)) => memory.fill(at, bytes, 0),
        }
        Ok(())
    }

    #[cold]
    fn put_by_call(&self, offset: u64, content: Content<'_>) -> Result<(), Status> {
        let mut block = [0; UNIT_BYTES];
        let bytes = match content {
            Content::Host { region, offset, bytes } => {
                region.read(offset, &mut block[..bytes]);
                &block[..bytes]
            }
            Content::Bytes(bytes) => bytes,
            Content::Zeroes(bytes) => &block[..bytes],
        };
        self.backing.write_page(offset, bytes)
    }

    /// [`Media::put`] with checksums, of content that does not change in the meantime.
    #[inline]
    fn put_summed(
        &self,
        sums: &Sums,
        memory: &Region,
        offset: u64,
        content: Content<'_>,
    ) -> Result<(), Status> {
        let write = || {
            sums.writing(memory, offset, content.len());
            match content {
                Content::Bytes(bytes) => memory.write_uncached(offset as usize, bytes),
                _ => memory.fill(offset as usize, content.len(), 0),
            }
            match content {
                Content::Bytes(bytes) => sums.seal(memory, offset, bytes),
                _ => sums.clear(memory, offset, content.len()),
            }
        };
        match &self.atomicity {
            Atomicity::NotNeeded => write(),
            Atomicity::Redo(redo) => redo.write(offset, content, |_, _| write()),
            Atomicity::Calls => {
                sums.writing(memory, offset, content.len());
                self.put_by_call(offset, content)?;
                match content {
                    Content::Bytes(bytes) => sums.seal(memory, offset, bytes),
                    _ => sums.clear(memory, offset, content.len()),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn store(&self) -> &dyn Store {
        self.backing.store()
    }

    /// The translation layer and its flash; `None` when data lies where hosts put it.
    #[inline]
    pub(crate) fn flash(&self) -> Option<&Flash> {
        self.flash.as_ref()
    }

    /// Chunks that namespaces can have.
    pub(crate) fn chunks(&self) -> u64 {
        self.chunks
    }

    /// True when the store keeps no data: commands are checked and completed, and nothing moves.
    #[inline]
    pub(crate) fn is_null(&self) -> bool {
        self.backing.memory().is_none() && self.backing.tags().is_none()
    }

    /// The data as memory; `None` when the store keeps none. Who reads or writes it keeps to chunks that are
    /// reserved, and has a way of its own to tell a whole write from half a one.
    pub(crate) fn memory(&self) -> Option<&Region> {
        self.backing.memory()
    }

    /// True when the store's memory went away under the device: what is read is not what was written.
    pub(crate) fn is_lost(&self) -> bool {
        self.backing.is_lost()
    }

    /// True when writes had better go past the processor's caches.
    pub(crate) fn bypasses_caches(&self) -> bool {
        self.backing.bypasses_caches()
    }

    /// True when a chunk's blocks may differ from zeroes.
    pub(crate) fn is_reserved(&self, chunk: u64) -> bool {
        match &self.flash {
            Some(flash) => flash.is_mapped(chunk) || self.backing.is_reserved(chunk),
            None => self.backing.is_reserved(chunk),
        }
    }

    /// Gives a chunk of the store space if it has none yet: for who uses the store's memory.
    #[inline]
    pub(crate) fn reserve(&self, chunk: u64) -> Result<(), Status> {
        self.backing.reserve(chunk)
    }

    /// Gives a chunk of logical blocks space if it needs any before it is written.
    #[inline]
    pub(crate) fn reserve_blocks(&self, chunk: u64) -> Result<(), Status> {
        if self.flash.is_some() {
            return Ok(());
        }
        if let Some(sums) = &self.sums {
            sums.begin(chunk, &self.backing)?;
        }
        self.backing.reserve(chunk)
    }

    /// Gives the space of chunks back; they read as zeroes from now on. No command may be under way on them.
    pub(crate) fn release(&self, chunks: impl IntoIterator<Item = u64>) -> Result<(), SsdError> {
        let Some(flash) = &self.flash else {
            return self.release_chunks(chunks);
        };
        let mut any = false;
        chunks.into_iter().try_for_each(|chunk| {
            any |= flash.release(chunk)?;
            self.backing.release([chunk])
        })?;
        if any { flash.sync_released() } else { Ok(()) }
    }

    /// Makes everything written before survive a power cut. Once that has failed it never succeeds again.
    pub(crate) fn sync(&self) -> Result<(), Status> {
        match &self.flash {
            Some(flash) => flash.sync(),
            None => self.backing.sync(),
        }?;
        if let Some(sums) = &self.sums {
            sums.synced(&self.backing);
        }
        Ok(())
    }

    /// Everything that a later start would otherwise have to search for is written down.
    pub(crate) fn close(&self) -> Result<(), Status> {
        if let Some(sums) = &self.sums {
            self.backing.sync()?;
            sums.close(&self.backing);
        }
        self.flash.as_ref().map_or(Ok(()), Flash::close)
    }

    /// What host memory is to be written in whole multiples of, for a caller that has it in pieces: a page of
    /// flash is programmed once, and a logical block of `block_bytes` is old or new as a whole. 1 when it
    /// does not matter.
    pub(crate) fn grain_bytes(&self, block_bytes: u64) -> u64 {
        match (&self.flash, self.backing.memory()) {
            (Some(_), _) => UNIT_BYTES as u64,
            (None, Some(_)) => block_bytes,
            (None, None) => 1,
        }
    }

    /// A command from `bytes`, which has been put together from pieces; as [`Media::write`].
    #[cold]
    pub(crate) fn write_bytes(
        &self,
        extent: Extent,
        bytes: &[u8],
        at: Placement,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        if let Some(flash) = &self.flash {
            return flash.write_bytes(extent, bytes, at, ops);
        }
        note(ops, extent, |ppn| FlashOp::Program { ppn });
        let Some(memory) = self.backing.memory() else { return Err(Status::INTERNAL_ERROR) };
        self.write_units(extent, |offset, count| {
            let done = (offset - extent.offset) as usize;
            self.put(memory, offset, Content::Bytes(&bytes[done..done + count]))
        })
    }

    /// Announces that the page at `offset` will be read soon, behind another one: looking it up must not wait
    /// then.
    #[inline]
    pub(crate) fn prefetch_map(&self, offset: u64) {
        if let Some(flash) = &self.flash {
            flash.prefetch_map(offset);
        }
    }

    /// Announces that `offset` will be read next; returns where that is, for [`Media::read`].
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) -> u64 {
        match &self.flash {
            Some(flash) => flash.prefetch(offset),
            None => {
                self.units.prefetch(offset);
                offset
            }
        }
    }

    /// Media to host memory. `next_read` is where the next command will read, or
    /// [`NOWHERE`](crate::store::NOWHERE). Errors: unrecovered Read Error for a page that is not as it was
    /// written.
    #[inline]
    pub(crate) fn read(
        &self,
        extent: Extent,
        host: &Region,
        host_offset: usize,
        next_read: u64,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        if let Some(flash) = &self.flash {
            return flash.read(extent, host, host_offset, next_read, ops);
        }
        note(ops, extent, |ppn| FlashOp::Read { ppn });
        let Some(memory) = self.backing.memory() else {
            self.read_tags(extent, host, host_offset);
            return Ok(());
        };
        let chunk = extent.offset / CHUNK_BYTES;
        if !self.backing.is_reserved(chunk) {
            host.fill(host_offset, extent.bytes, 0);
            return Ok(());
        }
        if let Some(sums) = &self.sums {
            return self.read_checked(sums, extent, |offset, bytes| {
                host.write(host_offset + (offset - extent.offset) as usize, bytes);
            });
        }
        self.units.read(extent, |offset, bytes| {
            let done = (offset - extent.offset) as usize;
            if !self.backing.is_reserved(chunk) {
                return host.fill(host_offset + done, bytes, 0);
            }
            memory.copy_to_ahead(offset as usize, host, host_offset + done, bytes, next_read as usize);
        });
        Ok(())
    }

    /// Host memory to media; the chunk has been reserved. Errors: Capacity Exceeded or Write Fault when the
    /// store fails, as it may where the chunk was given back meanwhile; with a translation layer: Attempted
    /// Write to Read Only Range when it is worn out. Pages before the one that failed have been written.
    #[inline]
    pub(crate) fn write(
        &self,
        extent: Extent,
        host: &Region,
        host_offset: usize,
        at: Placement,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        if let Some(flash) = &self.flash {
            return flash.write(extent, host, host_offset, at, ops);
        }
        note(ops, extent, |ppn| FlashOp::Program { ppn });
        let Some(memory) = self.backing.memory() else {
            self.write_tags(extent, host, host_offset);
            return Ok(());
        };
        self.write_units(extent, |offset, bytes| {
            let done = (offset - extent.offset) as usize;
            self.put(memory, offset, Content::Host { region: host, offset: host_offset + done, bytes })
        })
    }

    /// Calls `write` for each unit's part of an extent, held, of a chunk that has space; again for all of
    /// them when the space was given back in between. Errors: the first one of `write`, and then no further
    /// unit is written.
    #[inline]
    fn write_units(
        &self,
        extent: Extent,
        mut write: impl FnMut(u64, usize) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let chunk = extent.offset / CHUNK_BYTES;
        loop {
            let (mut has_space, mut done) = (true, Ok(()));
            self.units.write(extent, |offset, bytes| {
                has_space &= self.backing.is_reserved(chunk);
                if has_space && done.is_ok() {
                    self.unused.clear(offset);
                    done = write(offset, bytes);
                }
            });
            if has_space || done.is_err() {
                return done;
            }
            self.reserve_blocks(chunk)?;
        }
    }

    /// Reads units of a chunk that has space and compares them with their checksums; `take` gets each part of
    /// the extent, again when a writer was in the way. Errors: unrecovered Read Error when one does not fit.
    fn read_checked(&self, sums: &Sums, extent: Extent, take: impl FnMut(u64, &[u8])) -> Result<(), Status> {
        let Some(memory) = self.backing.memory() else { return Err(Status::INTERNAL_ERROR) };
        match self.compare(sums, memory, extent, take) {
            None => Ok(()),
            Some(at) => {
                tracing::error!(at, "a block is not as it was written");
                Err(Status::UNRECOVERED_READ_ERROR)
            }
        }
    }

    /// As [`Media::read_checked`]; returns where one does not fit.
    fn compare(
        &self,
        sums: &Sums,
        memory: &Region,
        extent: Extent,
        mut take: impl FnMut(u64, &[u8]),
    ) -> Option<u64> {
        let (chunk, sector) = (extent.offset / CHUNK_BYTES, SECTOR_BYTES as u64);
        let mut wrong = None;
        self.units.read(extent, |offset, bytes| {
            let mut block = [0; UNIT_BYTES];
            // Whole sectors, also where a piece of host memory ends within one.
            let start = offset / sector * sector;
            let end = (offset + bytes as u64).next_multiple_of(sector);
            let block = &mut block[..(end - start) as usize];
            let has_space = self.backing.is_reserved(chunk);
            if has_space {
                memory.read(start as usize, block);
            }
            if has_space && !sums.fits(memory, start, block) {
                wrong = wrong.or(Some(offset));
                return;
            }
            // It was a writer's that has ended meanwhile.
            wrong = wrong.filter(|&at| at != offset);
            let within = (offset - start) as usize;
            take(offset, &block[within..within + bytes]);
        });
        wrong
    }

    /// True when blocks have checksums here.
    pub(crate) fn has_sums(&self) -> bool {
        self.sums.is_some()
    }

    /// True when an extent is as it was written, as far as there are checksums of it.
    pub(crate) fn is_intact(&self, extent: Extent) -> bool {
        match (&self.sums, self.backing.memory()) {
            (Some(sums), Some(memory)) if self.backing.is_reserved(extent.offset / CHUNK_BYTES) => {
                self.compare(sums, memory, extent, |_, _| {}).is_none()
            }
            _ => true,
        }
    }

    /// Reads an extent for nobody. Errors: as [`Media::read`].
    pub(crate) fn verify(&self, extent: Extent) -> Result<(), Status> {
        match &self.sums {
            Some(sums) if self.backing.is_reserved(extent.offset / CHUNK_BYTES) => {
                self.read_checked(sums, extent, |_, _| {})
            }
            _ => Ok(()),
        }
    }

    /// Notes what a command on media that keeps no data would have done.
    #[inline]
    pub(crate) fn pretend(
        &self,
        extent: Extent,
        write: Option<Placement>,
        ops: &mut OpList,
    ) -> Result<(), Status> {
        match (&self.flash, write) {
            (Some(flash), Some(at)) => return flash.pretend_write(extent, at, ops),
            (Some(flash), None) => flash.pretend_read(extent, ops),
            (None, Some(_)) => note(ops, extent, |ppn| FlashOp::Program { ppn }),
            (None, None) => note(ops, extent, |ppn| FlashOp::Read { ppn }),
        }
        Ok(())
    }

    /// True when media and host memory hold the same bytes. Errors: as [`Media::read`].
    pub(crate) fn equals(
        &self,
        extent: Extent,
        host: &Region,
        host_offset: usize,
        ops: &mut OpList,
    ) -> Result<bool, Status> {
        let mut ours = [0; UNIT_BYTES];
        let mut theirs = [0; UNIT_BYTES];
        let mut equal = true;
        let mut offset = extent.offset;
        while offset < extent.offset + extent.bytes as u64 && equal {
            let done = (offset - extent.offset) as usize;
            let within = (offset % UNIT_BYTES as u64) as usize;
            let bytes = (extent.bytes - done).min(UNIT_BYTES - within);
            self.fetch(Extent { offset, bytes }, &mut ours[..bytes], ops)?;
            host.read(host_offset + done, &mut theirs[..bytes]);
            equal = ours[..bytes] == theirs[..bytes];
            offset += bytes as u64;
        }
        Ok(equal)
    }

    /// Copies a part of one 4 KiB unit out.
    fn fetch(&self, extent: Extent, out: &mut [u8], ops: &mut OpList) -> Result<(), Status> {
        if let Some(flash) = &self.flash {
            return flash.fetch(extent, out, ops);
        }
        note(ops, extent, |ppn| FlashOp::Read { ppn });
        let is_present = || self.backing.is_reserved(extent.offset / CHUNK_BYTES);
        match self.backing.memory() {
            Some(_) if is_present() && self.sums.is_some() => {
                let Some(sums) = &self.sums else { return Ok(()) };
                self.read_checked(sums, extent, |_, bytes| out.copy_from_slice(bytes))?;
            }
            Some(memory) if is_present() => self.units.read(extent, |offset, _| match is_present() {
                true => memory.read(offset as usize, out),
                false => out.fill(0),
            }),
            Some(_) => out.fill(0),
            None => self.fetch_tags(extent, out),
        }
        Ok(())
    }

    /// Compares and, when equal, writes, as one atomic step. All of it lies within one unit. Errors: as
    /// [`Media::read`] and [`Media::write`].
    pub(crate) fn compare_and_write(
        &self,
        extent: Extent,
        expected: &[u8],
        new: &[u8],
        at: Placement,
        ops: &mut OpList,
    ) -> Result<bool, Status> {
        if let Some(flash) = &self.flash {
            return flash.compare_and_write(extent, expected, new, at, ops);
        }
        let Some(memory) = self.backing.memory() else {
            return Ok(self.compare_and_write_tags(extent, expected, new));
        };
        let (mut equal, mut fits) = (false, true);
        self.write_units(extent, |offset, bytes| {
            let mut ours = vec![0; bytes];
            memory.read(offset as usize, &mut ours);
            fits = self.sums.as_ref().is_none_or(|sums| sums.fits(memory, offset, &ours));
            equal = fits && ours == expected;
            if equal { self.put(memory, offset, Content::Bytes(new)) } else { Ok(()) }
        })?;
        if !fits {
            return Err(Status::UNRECOVERED_READ_ERROR);
        }
        if equal {
            note(ops, extent, |ppn| FlashOp::Program { ppn });
        }
        Ok(equal)
    }
}

/// What media can have besides its backing.
#[derive(Default)]
struct Parts {
    flash: Option<Flash>,
    sums: Option<Sums>,
}

/// Notes an operation for each page of an extent: without a translation layer, pages are where hosts put
/// them.
#[inline]
fn note(ops: &mut OpList, extent: Extent, op: impl Fn(u32) -> FlashOp) {
    if ops.is_on() {
        note_each(ops, extent, op);
    }
}

#[cold]
fn note_each(ops: &mut OpList, extent: Extent, op: impl Fn(u32) -> FlashOp) {
    let page = UNIT_BYTES as u64;
    let pages = extent.offset / page..(extent.offset + extent.bytes as u64).div_ceil(page);
    for number in pages {
        // Larger media than 2^32 pages wraps around: the model knows fewer dies than that.
        ops.note(op(number as u32), Cause::Host);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::MemoryStore;

    /// A store that takes its time and counts how often it is asked for space.
    struct Slow(MemoryStore, Arc<AtomicU32>);

    impl Store for Slow {
        fn bytes(&self) -> u64 {
            self.0.bytes()
        }
        fn memory(&self) -> Option<&Region> {
            self.0.memory()
        }
        fn holds_data(&self, _chunk: u64) -> bool {
            false
        }
        fn reserve(&self, _chunk: u64) -> Result<(), SsdError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        }
        fn release(&self, chunk: u64) -> Result<(), SsdError> {
            self.0.release(chunk)
        }
        fn sync(&self) -> Result<(), SsdError> {
            Ok(())
        }
        fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
            Ok(None)
        }
        fn save_state(&self, _state: &[u8]) -> Result<(), SsdError> {
            Ok(())
        }
    }

    #[test]
    fn a_chunk_that_several_queues_write_to_first_is_reserved_once() {
        let count = Arc::new(AtomicU32::new(0));
        let store = Slow(MemoryStore::new(CHUNK_BYTES).unwrap(), Arc::clone(&count));
        let media = Media::new(Box::new(store)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    media.reserve(0).unwrap();
                    assert!(media.is_reserved(0));
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}

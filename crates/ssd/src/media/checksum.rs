//! Checksums of blocks, for media without a translation layer: a CRC-32C of each sector of 512 bytes, in an
//! area of the store behind the data. A block of 4 KiB has eight.
//!
//! **Entries.** Zero is the entry of a sector of zeroes, so what was never written needs none. While a sector
//! is written its entry is [`WRITING`]: should the process be killed in the meantime, what is there is taken
//! as it is, and the sector is not an error. The redo log ([`atomic`](super::atomic)) has finished the write
//! before.
//!
//! **A power cut** takes pages that were not synced, data and entries alike, in any order. So each region of
//! the media is marked, durably, before it is written, or loses space, after it was marked no more. After a
//! power cut what does not fit its entry in a region that was marked counts as it is: it may be a write that
//! was cut. All others are errors. A process that was killed leaves nothing half done but what is
//! [`WRITING`].
//!
//! **A chunk without space** has no entries but zeroes: they would count when it has space again. What a kill
//! or a power cut has left of them, in regions that were marked, is cleared.
#![deny(clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use unvme_bus::{Region, lock};
use unvme_spec::Status;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::units::UNIT_BYTES;
use crate::SsdError;
use crate::store::sums::{ENTRY_BYTES, SECTOR_BYTES};
use crate::store::{Backing, CHUNK_BYTES, Store};

/// Entries of a chunk.
const CHUNK_ENTRIES_BYTES: u64 = CHUNK_BYTES / SECTOR_BYTES as u64 * ENTRY_BYTES;
/// Entry of a sector that is being written.
const WRITING: u32 = u32::MAX;

const MAGIC: [u8; 8] = *b"UNVMESUM";
const VERSION: u32 = 1;
/// Where the marks are, in the first page of the area.
const MARKS_AT: u64 = 64;
const MARK_WORDS: usize = 256;
const REGIONS_MAX: u64 = MARK_WORDS as u64 * 64;
/// Regions of small media.
const REGION_CHUNKS_MIN: u64 = 32;
/// Syncs after which a region that was not written meanwhile is marked no more.
const ROUND_SYNCS: u32 = 64;

/// The first bytes of the area, as they are on the media; little-endian.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: u32,
    reserved: u32,
    /// What [`Store::life`](crate::Store::life) was when it was opened last.
    life: [u8; 16],
}

const _: () = assert!(size_of::<Header>() == 32);

/// See the module.
pub(super) struct Sums {
    /// Where the area begins: the header and marks, and a chunk further the entries.
    area: u64,
    region_chunks: u64,
    /// Regions that are marked on the media, and those written since the last round began.
    marked: Box<[AtomicU64]>,
    written: Box<[AtomicU64]>,
    /// Marks are kept: the store outlives the process.
    is_marking: AtomicBool,
    /// Syncs of this round; held while marks on the media change.
    syncs: Mutex<u32>,
}

fn words() -> Box<[AtomicU64]> {
    (0..MARK_WORDS).map(|_| AtomicU64::new(0)).collect()
}

/// The entry of a sector: what CRC-32C of zeroes is becomes zero.
fn entry_of(sector: &[u8]) -> u32 {
    /// CRC-32C of 512 zeroes.
    const OF_ZEROES: u32 = 0x30fc_edc0;
    match crc_fast::crc32_iscsi(sector) ^ OF_ZEROES {
        // One in four thousand million is a little less protected.
        WRITING => WRITING - 1,
        entry => entry,
    }
}

pub(super) fn unwritable(store: &dyn Store) -> SsdError {
    let reason = "the area of checksums could not be written to; the log says why".into();
    SsdError::State { path: store.media_path(), reason }
}

impl Sums {
    /// The checksums of media of `capacity` bytes. After a power cut, what may have been cut is made to fit
    /// here. Errors: [`SsdError::Newer`], [`SsdError::State`] when there is no space for the marks, or the
    /// store fails.
    pub(super) fn open(capacity: u64, backing: &Backing) -> Result<Self, SsdError> {
        let chunks = capacity / CHUNK_BYTES;
        let sums = Self {
            area: capacity,
            region_chunks: chunks.div_ceil(REGIONS_MAX).max(REGION_CHUNKS_MIN),
            marked: words(),
            written: words(),
            is_marking: AtomicBool::new(backing.store().persists() && !backing.store().is_read_only()),
            syncs: Mutex::new(0),
        };
        let Some(memory) = backing.memory() else { return Ok(sums) };
        if !backing.store().persists() {
            return Ok(sums);
        }
        let failed = |_| unwritable(backing.store());
        let is_new = !backing.is_reserved(capacity / CHUNK_BYTES);
        let life = backing.store().life().unwrap_or_default();
        if !is_new {
            let mut header = Header::new_zeroed();
            memory.read(capacity as usize, header.as_mut_bytes());
            if header.magic == MAGIC && header.version > VERSION {
                let (path, found) = (backing.store().media_path(), header.version);
                return Err(SsdError::Newer { path, what: "its area of checksums", found, known: VERSION });
            }
            if header.magic != MAGIC {
                tracing::warn!("the header of the area of checksums is damaged; it is written again");
            } else {
                for (at, word) in (capacity + MARKS_AT..).step_by(8).zip(&sums.marked) {
                    word.store(memory.load_u64(at as usize, Ordering::Relaxed), Ordering::Relaxed);
                }
            }
            let is_cut = header.life != life || life == [0; 16];
            sums.settle(chunks, is_cut, memory, backing);
        }
        if backing.store().is_read_only() {
            return Ok(sums);
        }
        backing.reserve(capacity / CHUNK_BYTES).map_err(failed)?;
        let header = Header { magic: MAGIC, version: VERSION, reserved: 0, life };
        memory.write(capacity as usize, header.as_bytes());
        backing.sync().map_err(failed)?;
        Ok(sums)
    }

    fn place(&self, offset: u64) -> usize {
        (self.area + CHUNK_BYTES + offset / SECTOR_BYTES as u64 * ENTRY_BYTES) as usize
    }

    fn entry<'a>(&self, memory: &'a Region, offset: u64) -> &'a AtomicU32 {
        memory.atomic_u32(self.place(offset))
    }

    /// In regions that were marked: makes entries fit where a process was killed in the middle of a write, or
    /// after a power cut, wherever they do not; chunks without space lose theirs.
    fn settle(&self, chunks: u64, is_cut: bool, memory: &Region, backing: &Backing) {
        let mut cut = 0_u64;
        for chunk in (0..chunks).filter(|&chunk| self.is_marked(chunk)) {
            if !backing.is_reserved(chunk) {
                self.gone(chunk, backing);
            } else if backing.reserve(self.entries_chunk(chunk)).is_ok() {
                cut += self.settle_chunk(chunk, is_cut, memory);
            }
        }
        if cut > 0 {
            tracing::warn!(
                pages = cut,
                "pages that were being written when the device went are taken as they are"
            );
        }
    }

    /// Makes entries of a chunk fit; returns how many pages' did not.
    fn settle_chunk(&self, chunk: u64, is_cut: bool, memory: &Region) -> u64 {
        let mut cut = 0;
        let mut block = [0; UNIT_BYTES];
        for offset in (chunk * CHUNK_BYTES..(chunk + 1) * CHUNK_BYTES).step_by(UNIT_BYTES) {
            let is_writing = |sector| self.entry(memory, sector).load(Ordering::Relaxed) == WRITING;
            let was_writing = sectors(offset, UNIT_BYTES).any(is_writing);
            if !was_writing && !is_cut {
                continue;
            }
            memory.read(offset as usize, &mut block);
            if was_writing || !self.fits(memory, offset, &block) {
                self.seal(memory, offset, &block);
                cut += 1;
            }
        }
        cut
    }

    /// The chunk of the store that a chunk's entries are in.
    fn entries_chunk(&self, chunk: u64) -> u64 {
        self.place(chunk * CHUNK_BYTES) as u64 / CHUNK_BYTES
    }

    fn region(&self, chunk: u64) -> (usize, u64) {
        let region = chunk / self.region_chunks;
        ((region / 64) as usize % MARK_WORDS, 1 << (region % 64))
    }

    fn is_marked(&self, chunk: u64) -> bool {
        let (word, bit) = self.region(chunk);
        self.marked[word].load(Ordering::SeqCst) & bit != 0
    }

    /// A chunk is about to be written: its entries have space, and its region is marked. Errors: Capacity
    /// Exceeded or Write Fault.
    #[inline]
    pub(super) fn begin(&self, chunk: u64, backing: &Backing) -> Result<(), Status> {
        backing.reserve(self.entries_chunk(chunk))?;
        if !self.is_marking.load(Ordering::Relaxed) || self.is_noted(chunk) {
            return Ok(());
        }
        self.mark(&[chunk], backing)
    }

    /// Chunks are about to lose their space: their regions are marked. What has no entries needs none for
    /// that. Errors: Write Fault.
    pub(super) fn begin_going(&self, chunks: &[u64], backing: &Backing) -> Result<(), Status> {
        if !self.is_marking.load(Ordering::Relaxed) {
            return Ok(());
        }
        let unmarked: Vec<u64> = chunks.iter().copied().filter(|&chunk| !self.is_noted(chunk)).collect();
        if unmarked.is_empty() { Ok(()) } else { self.mark(&unmarked, backing) }
    }

    /// Notes that a chunk's region is written in this round. True when it is marked.
    #[inline]
    fn is_noted(&self, chunk: u64) -> bool {
        let (word, bit) = self.region(chunk);
        if self.written[word].load(Ordering::Relaxed) & bit == 0 {
            // SeqCst, and that of the marks: who takes a mark back sees this, or it is seen here.
            self.written[word].fetch_or(bit, Ordering::SeqCst);
        }
        self.is_marked(chunk)
    }

    /// Marks the regions of chunks, with one sync for all of them.
    #[cold]
    fn mark(&self, chunks: &[u64], backing: &Backing) -> Result<(), Status> {
        let _alone = lock(&self.syncs);
        let mut new = [0; MARK_WORDS];
        for &chunk in chunks.iter().filter(|&&chunk| !self.is_marked(chunk)) {
            let (word, bit) = self.region(chunk);
            new[word] |= bit;
        }
        let new: Vec<(usize, u64)> = (0..).zip(new).filter(|&(_, bits)| bits != 0).collect();
        if new.is_empty() {
            return Ok(());
        }
        for &(word, bits) in &new {
            self.write_marks(word, self.marked[word].load(Ordering::SeqCst) | bits, backing);
        }
        backing.sync()?;
        for (word, bits) in new {
            self.marked[word].fetch_or(bits, Ordering::SeqCst);
        }
        Ok(())
    }

    fn write_marks(&self, word: usize, marks: u64, backing: &Backing) {
        if let Some(memory) = backing.memory() {
            memory.store_u64((self.area + MARKS_AT) as usize + word * 8, marks, Ordering::Relaxed);
        }
    }

    /// Everything written before a sync is durable. Now and then, regions that are not written any more are
    /// marked no more.
    pub(super) fn synced(&self, backing: &Backing) {
        let mut syncs = lock(&self.syncs);
        *syncs += 1;
        if *syncs < ROUND_SYNCS || !self.is_marking.load(Ordering::Relaxed) {
            return;
        }
        *syncs = 0;
        for (word, (marked, written)) in self.marked.iter().zip(&self.written).enumerate() {
            // Not written in all of the round: every sync of it has covered what was written before.
            let idle = marked.load(Ordering::SeqCst) & !written.swap(0, Ordering::SeqCst);
            if idle == 0 {
                continue;
            }
            marked.fetch_and(!idle, Ordering::SeqCst);
            // Who has begun in between has found its region marked.
            marked.fetch_or(idle & written.load(Ordering::SeqCst), Ordering::SeqCst);
            self.write_marks(word, marked.load(Ordering::SeqCst), backing);
        }
    }

    /// Nobody writes any more, and everything is durable: nothing is marked.
    pub(super) fn close(&self, backing: &Backing) {
        if self.is_marking.load(Ordering::Relaxed) {
            let _alone = lock(&self.syncs);
            for (word, marked) in self.marked.iter().enumerate() {
                marked.store(0, Ordering::SeqCst);
                self.write_marks(word, 0, backing);
            }
        }
    }

    /// Sectors of a unit are about to be written. The caller holds the unit.
    #[inline]
    pub(super) fn writing(&self, memory: &Region, offset: u64, bytes: usize) {
        for sector in sectors(offset, bytes) {
            self.entry(memory, sector).store(WRITING, Ordering::Relaxed);
        }
        // Before the data, for who finds this after a kill.
        fence(Ordering::SeqCst);
    }

    /// Sectors of a unit have been written: `block` is what they hold. The caller holds the unit.
    #[inline]
    pub(super) fn seal(&self, memory: &Region, offset: u64, block: &[u8]) {
        fence(Ordering::SeqCst);
        for (sector, bytes) in sectors(offset, block.len()).zip(block.chunks(SECTOR_BYTES)) {
            self.entry(memory, sector).store(entry_of(bytes), Ordering::Relaxed);
        }
    }

    /// Sectors hold zeroes. The caller holds their units.
    pub(super) fn clear(&self, memory: &Region, offset: u64, bytes: usize) {
        fence(Ordering::SeqCst);
        sectors(offset, bytes).for_each(|sector| self.entry(memory, sector).store(0, Ordering::Relaxed));
    }

    /// A chunk's data is about to go; [`Sums::begin_going`] has been told. Nobody is at work on it.
    pub(super) fn going(&self, chunk: u64, backing: &Backing) {
        if let Some(memory) = self.entries_of(chunk, backing) {
            fence(Ordering::SeqCst);
            memory.fill(self.place(chunk * CHUNK_BYTES), CHUNK_ENTRIES_BYTES as usize, 0xff);
            fence(Ordering::SeqCst);
        }
    }

    /// A chunk whose data was about to go has kept it, or some of it.
    pub(super) fn stays(&self, chunk: u64, backing: &Backing) {
        if let Some(memory) = self.entries_of(chunk, backing) {
            self.settle_chunk(chunk, false, memory);
        }
    }

    /// A chunk has no data any more: zeroes.
    pub(super) fn gone(&self, chunk: u64, backing: &Backing) {
        let Some(memory) = self.entries_of(chunk, backing) else { return };
        let (start, mut page) = (self.place(chunk * CHUNK_BYTES), [0; UNIT_BYTES]);
        fence(Ordering::SeqCst);
        for at in (start..start + CHUNK_ENTRIES_BYTES as usize).step_by(UNIT_BYTES) {
            // What is zero need not be written back.
            memory.read(at, &mut page);
            if page != [0; UNIT_BYTES] {
                memory.fill(at, UNIT_BYTES, 0);
            }
        }
        fence(Ordering::SeqCst);
    }

    /// The memory that a chunk's entries are in; `None` when they have no space: they are zeroes.
    fn entries_of<'a>(&self, chunk: u64, backing: &'a Backing) -> Option<&'a Region> {
        backing.memory().filter(|_| backing.is_reserved(self.entries_chunk(chunk)))
    }

    /// True when sectors of a unit hold what was written to them.
    #[inline]
    pub(super) fn fits(&self, memory: &Region, offset: u64, block: &[u8]) -> bool {
        sectors(offset, block.len()).zip(block.chunks(SECTOR_BYTES)).all(|(sector, bytes)| {
            let entry = self.entry(memory, sector).load(Ordering::Relaxed);
            entry == WRITING || entry == entry_of(bytes)
        })
    }
}

fn sectors(offset: u64, bytes: usize) -> impl Iterator<Item = u64> {
    (offset..offset + bytes as u64).step_by(SECTOR_BYTES)
}

//! Checkpoints: the map, the units and the counters as of one program. Two places, written in turn.
//!
//! A checkpoint is written in steps, with a sync after each: the old one in its place is done away with, and
//! everything that the new one speaks of is on the media; what is behind its header; its header. Only then is
//! the journal begun anew. Whatever happens meanwhile, the checkpoint before it and what came after that one
//! are still there, and a checkpoint that is not whole has no header: one that has a header and does not fit
//! it is damaged.

use twox_hash::XxHash3_64;
use unvme_bus::Region;
use unvme_flash::ftl::{FtlStats, Image, StreamStats, UnitImage, UnitState};
use unvme_spec::Status;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::journal::Journal;
use super::layout::Layout;
use super::record::{ERASED_END, SEQUENCE_END};
use super::{Flash, Inner};
use crate::store::{Backing, CHUNK_BYTES};

/// Bytes before the map.
const HEADER_BYTES: u64 = 4096;
const ENTRY_BYTES: u64 = 4;
const UNIT_BYTES: u64 = 24;
const STREAM_BYTES: u64 = 32;
/// Fewest pages of a unit.
const UNIT_PAGES_MIN: u64 = super::UNIT_BYTES_MIN / 4096;
const MAGIC: [u8; 8] = *b"UNVMECKP";
/// Entry of the map of a page whose data is lost: reading it is an error.
const LOST: u32 = u32::MAX;
/// Entries of the map that are read and written at a time.
const BATCH: usize = 1024;

/// Most bytes a checkpoint takes, whatever the geometry. Layers have more units than streams.
pub(super) const fn bytes_max(logical_pages: u32, physical_pages: u64) -> u64 {
    let units = physical_pages / UNIT_PAGES_MIN + 1;
    HEADER_BYTES + logical_pages as u64 * ENTRY_BYTES + units * (UNIT_BYTES + 2 * STREAM_BYTES)
}

/// The header, as it is on the media; little-endian. Behind it: the map (an entry of 4 bytes for each logical
/// page: the physical page plus one, or zero), the units, the streams.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Header {
    pub(super) magic: [u8; 8],
    /// Counts checkpoints: the higher one counts.
    pub(super) number: u64,
    /// Number of the last program.
    pub(super) sequence: u64,
    pub(super) logical_pages: u32,
    pub(super) units: u32,
    pub(super) streams: u32,
    pub(super) reserved: u32,
    /// Counters of the layer, in the order of [`FtlStats`], without those that follow from others.
    pub(super) stats: [u64; 9],
    /// XXH3 of what is behind the header; the seed is the store's secret.
    pub(super) body: u64,
    /// XXH3 of what is before; the seed is the store's secret.
    pub(super) check: u64,
}

const _: () = assert!(size_of::<Header>() == 128);
const _: () = assert!(std::mem::offset_of!(Header, body) == 112);

/// A unit, as it is on the media; little-endian.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Unit {
    erased: u32,
    written: u32,
    /// 0 free, 1 open, 2 closed, 3 failing, 4 bad.
    state: u16,
    stream: u16,
    reserved: u32,
    /// Pages hosts had written when it was closed, or opened if it is open.
    since: u64,
}

const _: () = assert!(size_of::<Unit>() as u64 == UNIT_BYTES);

/// A checkpoint that was read.
pub(super) struct Checkpoint {
    pub(super) number: u64,
    pub(super) sequence: u64,
    pub(super) image: Image,
    /// Physical page of each logical one.
    pub(super) map: Vec<Option<u32>>,
    /// Logical pages whose data is lost.
    pub(super) lost: Vec<u32>,
}

/// What is in the place of a checkpoint.
pub(super) enum Found {
    Checkpoint(Box<Checkpoint>),
    Nothing,
    Damaged(String),
}

fn stats_words(stats: &FtlStats) -> [u64; 9] {
    [
        stats.host_pages,
        stats.reclaim_pages,
        stats.levelled_pages,
        stats.forced_pages,
        stats.erased_units,
        stats.erased_pages,
        stats.trimmed_pages,
        stats.failed_pages,
        stats.moved_at_once_max,
    ]
}

fn stats_of(words: [u64; 9]) -> FtlStats {
    let [
        host_pages,
        reclaim_pages,
        levelled_pages,
        forced_pages,
        erased_units,
        erased_pages,
        trimmed_pages,
        failed_pages,
        moved_at_once_max,
    ] = words;
    FtlStats {
        host_pages,
        reclaim_pages,
        levelled_pages,
        forced_pages,
        erased_units,
        erased_pages,
        trimmed_pages,
        failed_pages,
        moved_at_once_max,
        ..FtlStats::default()
    }
}

fn unit_image(unit: &Unit) -> Option<UnitImage> {
    let state = match unit.state {
        0 => UnitState::Free,
        1 => UnitState::Open,
        2 => UnitState::Closed,
        3 => UnitState::Failing,
        4 => UnitState::Bad,
        _ => return None,
    };
    let Unit { erased, written, stream, since, .. } = *unit;
    if erased >= ERASED_END {
        return None;
    }
    Some(UnitImage { erased, state, written, stream, since })
}

fn unit_on_media(unit: &UnitImage) -> Unit {
    let UnitImage { erased, state, written, stream, since } = *unit;
    let state = match state {
        UnitState::Free => 0,
        UnitState::Open => 1,
        UnitState::Closed => 2,
        UnitState::Failing => 3,
        UnitState::Bad => 4,
    };
    Unit { erased, written, state, stream, reserved: 0, since }
}

impl Header {
    fn expected_check(&self, secret: u64) -> u64 {
        let covered = &self.as_bytes()[..std::mem::offset_of!(Self, check)];
        XxHash3_64::oneshot_with_seed(secret, covered)
    }

    fn body_bytes(&self) -> u64 {
        u64::from(self.logical_pages) * ENTRY_BYTES
            + u64::from(self.units) * UNIT_BYTES
            + u64::from(self.streams) * STREAM_BYTES
    }
}

/// Writes or reads the body piece by piece, and sums it up.
struct Body<'a> {
    memory: &'a Region,
    at: usize,
    sum: twox_hash::xxhash3_64::Hasher,
}

impl<'a> Body<'a> {
    fn new(memory: &'a Region, slot: u64, secret: u64) -> Self {
        let sum = twox_hash::xxhash3_64::Hasher::with_seed(secret);
        Self { memory, at: (slot + HEADER_BYTES) as usize, sum }
    }

    fn write(&mut self, bytes: &[u8]) {
        use std::hash::Hasher;
        self.memory.write(self.at, bytes);
        self.sum.write(bytes);
        self.at += bytes.len();
    }

    fn read(&mut self, bytes: &mut [u8]) {
        use std::hash::Hasher;
        self.memory.read(self.at, bytes);
        self.sum.write(bytes);
        self.at += bytes.len();
    }

    fn finish(&self) -> u64 {
        use std::hash::Hasher;
        self.sum.finish()
    }
}

impl Flash {
    /// Writes a checkpoint and begins the journal anew. Errors: write Fault or Capacity Exceeded; the
    /// checkpoint before stays.
    pub(super) fn write_checkpoint(&self, inner: &mut Inner) -> Result<(), Status> {
        let Some(memory) = self.memory() else { return Ok(()) };
        let Inner { ftl, books } = inner;
        let number = books.checkpoint + 1;
        let slot = self.layout.checkpoints[(number % 2) as usize];
        let image = ftl.image();
        let mut header = Header {
            magic: MAGIC,
            number,
            sequence: books.sequence,
            logical_pages: self.layout.logical_pages,
            units: image.units.len() as u32,
            streams: image.streams.len() as u32,
            reserved: 0,
            stats: stats_words(&image.stats),
            body: 0,
            check: 0,
        };
        self.backing.reserve_range(slot, HEADER_BYTES + header.body_bytes())?;
        memory.fill(slot as usize, HEADER_BYTES as usize, 0);
        self.sync_now(books)?;
        let secret = books.superblock.secret;
        let mut body = Body::new(memory, slot, secret);
        let mut batch = Vec::with_capacity(BATCH);
        for first in (0..self.layout.logical_pages).step_by(BATCH) {
            let lpns = first..(first + BATCH as u32).min(self.layout.logical_pages);
            batch.clear();
            batch.extend(lpns.map(|lpn| match self.map.get(lpn) {
                Some(ppn) => ppn + 1,
                None if self.lost.contains(lpn) => LOST,
                None => 0,
            }));
            body.write(batch.as_bytes());
        }
        for unit in &image.units {
            body.write(unit_on_media(unit).as_bytes());
        }
        for stream in &image.streams {
            let words = [stream.host_pages, stream.moved_pages, stream.received_pages, stream.erased_units];
            body.write(words.as_bytes());
        }
        header.body = body.finish();
        header.check = header.expected_check(secret);
        self.backing.sync()?;
        memory.write(slot as usize, header.as_bytes());
        books.checkpoint = number;
        self.sync_now(books)?;
        books.journal = Journal::begun(&self.layout, number);
        Ok(())
    }
}

/// Reads a checkpoint.
pub(super) fn read(memory: &Region, layout: &Layout, secret: u64, slot: usize, backing: &Backing) -> Found {
    let slot = layout.checkpoints[slot];
    if !backing.is_reserved(slot / CHUNK_BYTES) {
        return Found::Nothing;
    }
    let mut header = Header::new_zeroed();
    memory.read(slot as usize, header.as_mut_bytes());
    if header.as_bytes().iter().all(|byte| *byte == 0) {
        return Found::Nothing;
    }
    let is_possible = header.magic == MAGIC
        && header.check == header.expected_check(secret)
        && header.logical_pages == layout.logical_pages
        && header.sequence < SEQUENCE_END
        && header.stats.iter().all(|count| *count < SEQUENCE_END)
        && HEADER_BYTES + header.body_bytes() <= layout.checkpoint_bytes;
    if !is_possible {
        return Found::Damaged("the header of a checkpoint is damaged or of an earlier geometry".into());
    }
    match read_body(memory, slot, secret, &header) {
        Some(checkpoint) => Found::Checkpoint(Box::new(checkpoint)),
        None => Found::Damaged("a checkpoint is damaged".into()),
    }
}

fn read_body(memory: &Region, slot: u64, secret: u64, header: &Header) -> Option<Checkpoint> {
    let mut body = Body::new(memory, slot, secret);
    let mut map = Vec::with_capacity(header.logical_pages as usize);
    let mut lost = Vec::new();
    let mut batch = [0u32; BATCH];
    while map.len() < header.logical_pages as usize {
        let some = (header.logical_pages as usize - map.len()).min(BATCH);
        let batch = &mut batch[..some];
        body.read(batch.as_mut_bytes());
        for &entry in &*batch {
            if entry == LOST {
                lost.push(map.len() as u32);
            }
            map.push(if entry == LOST { None } else { entry.checked_sub(1) });
        }
    }
    let mut units = Vec::with_capacity(header.units as usize);
    for _ in 0..header.units {
        let mut unit = Unit::default();
        body.read(unit.as_mut_bytes());
        units.push(unit_image(&unit)?);
    }
    let mut streams = Vec::with_capacity(header.streams as usize);
    for _ in 0..header.streams {
        let mut words = [0u64; 4];
        body.read(words.as_mut_bytes());
        let [host_pages, moved_pages, received_pages, erased_units] = words;
        streams.push(StreamStats { host_pages, moved_pages, received_pages, erased_units });
    }
    let image = Image { units, stats: stats_of(header.stats), streams };
    let (number, sequence) = (header.number, header.sequence);
    (body.finish() == header.body).then_some(Checkpoint { number, sequence, image, map, lost })
}

//! The superblock: that this is a device's flash, and how it is divided. Beside it, how much of it survives a
//! power cut.

use twox_hash::XxHash3_64;
use unvme_bus::{Region, random};
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::Isolation;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::FlashGeometry;
use super::layout::Layout;
use super::recovery::unwritable;
use crate::SsdError;
use crate::store::{Backing, CHUNK_BYTES};

pub(super) const MAGIC: [u8; 8] = *b"UNVMEFTL";
pub(super) const VERSION: u32 = 1;
/// Most handles a superblock can describe.
const HANDLES_MAX: usize = 128;
/// Offsets behind each superblock of the two watermarks, which are written in turn.
const WATERMARKS: [u64; 2] = [4096, 4096 + 64];

/// A superblock, as it is on the media; little-endian.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Image {
    pub(super) magic: [u8; 8],
    pub(super) version: u32,
    pub(super) unit_pages: u32,
    /// Grows with each change of the geometry: the higher one counts.
    pub(super) epoch: u64,
    /// Seed of all checks, new in each epoch: nothing from before it passes for anything.
    pub(super) secret: u64,
    pub(super) physical_pages: u64,
    pub(super) logical_pages: u32,
    pub(super) groups: u16,
    pub(super) handles: u16,
    /// RUHT of each handle: 1 initially, 2 persistently isolated.
    pub(super) isolation: [u8; HANDLES_MAX],
    /// XXH3 (seed 0) of what is before.
    pub(super) check: u64,
}

const _: () = assert!(size_of::<Image>() == 184);
const _: () = assert!(std::mem::offset_of!(Image, isolation) == 48);

/// What a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) epoch: u64,
    pub(super) secret: u64,
    pub(super) geometry: FlashGeometry,
}

/// What is in the place of a superblock.
pub(super) enum Found {
    Superblock(Box<Image>, Superblock),
    Nothing,
    /// Of another format.
    Format(u32),
    /// Nothing that could be read; the reason.
    Damaged(String),
}

impl Superblock {
    pub(super) fn new(geometry: FlashGeometry) -> Self {
        Self { epoch: 1, secret: random::number(), geometry }
    }

    /// The superblock of the next epoch.
    pub(super) fn next(&self, geometry: FlashGeometry) -> Self {
        Self { epoch: self.epoch + 1, ..Self::new(geometry) }
    }

    fn image(&self, layout: &Layout) -> Image {
        let mut image = Image::new_zeroed();
        image.magic = MAGIC;
        image.version = VERSION;
        image.unit_pages = (self.geometry.unit_bytes / PAGE_BYTES) as u32;
        image.epoch = self.epoch;
        image.secret = self.secret;
        image.physical_pages = layout.physical_pages;
        image.logical_pages = layout.logical_pages;
        image.groups = self.geometry.groups;
        image.handles = self.geometry.handles.len() as u16;
        for (byte, handle) in image.isolation.iter_mut().zip(&self.geometry.handles) {
            *byte = if *handle == Isolation::Initially { 1 } else { 2 };
        }
        image.check = image.expected_check();
        image
    }

    /// Writes both copies, so that one of them is intact at any moment.
    pub(super) fn write(&self, memory: &Region, layout: &Layout, backing: &Backing) -> Result<(), SsdError> {
        let failed = |_| unwritable(backing.store());
        backing.reserve_range(layout.superblocks[0], CHUNK_BYTES).map_err(failed)?;
        backing.reserve_range(layout.journal, layout.journal_bytes).map_err(failed)?;
        for at in layout.superblocks {
            memory.write(at as usize, self.image(layout).as_bytes());
            backing.sync().map_err(failed)?;
        }
        Ok(())
    }
}

impl Image {
    fn expected_check(&self) -> u64 {
        XxHash3_64::oneshot(&self.as_bytes()[..std::mem::offset_of!(Self, check)])
    }

    fn parse(&self) -> Option<Superblock> {
        let handles = self.isolation.get(..usize::from(self.handles))?;
        let isolation = |byte: &u8| match byte {
            1 => Some(Isolation::Initially),
            2 => Some(Isolation::Persistently),
            _ => None,
        };
        let geometry = FlashGeometry {
            unit_bytes: u64::from(self.unit_pages) * PAGE_BYTES,
            groups: self.groups,
            handles: handles.iter().map(isolation).collect::<Option<_>>()?,
        };
        Some(Superblock { epoch: self.epoch, secret: self.secret, geometry })
    }
}

/// What is wrong with a superblock of another format.
pub(super) fn other_format(found: u32) -> String {
    format!("the flash has format {found}; this version reads format {VERSION}")
}

/// Reads a superblock.
pub(super) fn read(memory: &Region, at: u64) -> Found {
    let mut image = Image::new_zeroed();
    memory.read(at as usize, image.as_mut_bytes());
    if image.as_bytes().iter().all(|byte| *byte == 0) {
        return Found::Nothing;
    }
    if image.magic == MAGIC && image.check == image.expected_check() {
        if image.version != VERSION {
            return Found::Format(image.version);
        }
        if let Some(superblock) = image.parse() {
            return Found::Superblock(Box::new(image), superblock);
        }
    }
    Found::Damaged("the superblock is damaged".into())
}

/// Notes that programs up to `sequence` survive a power cut.
pub(super) fn write_watermark(memory: &Region, layout: &Layout, secret: u64, sequence: u64, turn: u64) {
    for at in layout.superblocks {
        let place = at + WATERMARKS[(turn % 2) as usize];
        let check = XxHash3_64::oneshot_with_seed(secret, &sequence.to_le_bytes());
        memory.write_words(place as usize, [sequence, check]);
    }
}

/// The highest watermark there is.
pub(super) fn read_watermark(memory: &Region, layout: &Layout, secret: u64) -> u64 {
    let places = layout.superblocks.into_iter().flat_map(|at| WATERMARKS.map(|watermark| at + watermark));
    let read = |place: u64| {
        let [sequence, check]: [u64; 2] = memory.read_words(place as usize);
        (check == XxHash3_64::oneshot_with_seed(secret, &sequence.to_le_bytes())).then_some(sequence)
    };
    places.filter_map(read).max().unwrap_or(0)
}

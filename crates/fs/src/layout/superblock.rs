//! The superblock: block 0, and a copy in the last block.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::inode::INODES_PER_BLOCK;
use super::{BLOCK, Header, Page};
use crate::error::{Error, Result};

/// Version of the format: another one cannot be mounted.
pub(crate) const VERSION: u32 = 1;

/// Blocks of a group: as many as its map, one block, has bits for.
pub(crate) const GROUP_BLOCKS: u64 = (BLOCK as u64 - MAP_START as u64) * 8;

/// Where the bits of a map begin.
pub(crate) const MAP_START: usize = 64;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Superblock {
    pub version: U32,
    pub block_bytes: U32,
    pub uuid: [u8; 16],
    /// Whoever does not know one of these may still mount.
    pub compatible: U64,
    /// Whoever does not know one of these may read.
    pub read_only: U64,
    /// Whoever does not know one of these must not mount.
    pub incompatible: U64,
    /// Blocks of the whole file system.
    pub blocks: U64,
    pub journal_start: U64,
    pub journal_blocks: U64,
    /// First block of the first group.
    pub groups_start: U64,
    pub groups: U32,
    pub inodes_per_group: U32,
    /// Seed of the hash of names.
    pub hash_seed: U64,
    /// Nanoseconds since 1970.
    pub created: U64,
    /// UTF-8, zeros behind it.
    pub label: [u8; 64],
}

const _: () = assert!(size_of::<Superblock>() == 168);
const _: () = assert!(std::mem::offset_of!(Superblock, label) == 104);

impl Superblock {
    /// From a page whose header was checked.
    ///
    /// # Errors
    /// [`Error::Format`] for what this version cannot mount, [`Error::Damaged`] for numbers that do not fit
    /// together.
    pub(crate) fn parse(page: &Page, device_blocks: u64) -> Result<Self> {
        let (found, _) = Self::read_from_prefix(&page[Header::BYTES..]).expect("a page is longer");
        if found.version.get() != VERSION {
            return Err(Error::Format(format!(
                "the file system has format version {}; this program knows version {VERSION}",
                found.version
            )));
        }
        if found.incompatible.get() != 0 || found.read_only.get() != 0 {
            return Err(Error::Format(format!(
                "the file system uses features that this program does not know: incompatible {:#x}, \
                 read-only {:#x}",
                found.incompatible, found.read_only
            )));
        }
        if found.block_bytes.get() as usize != BLOCK {
            return Err(Error::Format(format!(
                "the file system has blocks of {} bytes; this program knows {BLOCK}",
                found.block_bytes
            )));
        }
        if found.blocks.get() > device_blocks {
            return Err(Error::Format(format!(
                "the file system has {} blocks of {BLOCK} bytes, and the device {device_blocks}: it was made \
                 on a larger one",
                found.blocks
            )));
        }
        match Geometry::of(&found) {
            Some(_) => Ok(found),
            None => Err(Error::damaged(Header::of(page).block.get(), "the superblock contradicts itself")),
        }
    }

    pub(crate) fn put(&self, page: &mut Page) {
        page[Header::BYTES..Header::BYTES + size_of::<Self>()].copy_from_slice(self.as_bytes());
    }

    /// What the headers of its blocks say.
    pub(crate) fn fs(&self) -> u64 {
        u64::from_le_bytes(self.uuid[..8].try_into().expect("8 of 16 bytes"))
    }
}

/// Where things are, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub blocks: u64,
    pub journal_start: u64,
    pub journal_blocks: u64,
    pub groups_start: u64,
    pub groups: u32,
    pub inodes_per_group: u32,
}

impl Geometry {
    fn of(superblock: &Superblock) -> Option<Self> {
        let new = Self {
            blocks: superblock.blocks.get(),
            journal_start: superblock.journal_start.get(),
            journal_blocks: superblock.journal_blocks.get(),
            groups_start: superblock.groups_start.get(),
            groups: superblock.groups.get(),
            inodes_per_group: superblock.inodes_per_group.get(),
        };
        new.is_sound().then_some(new)
    }

    fn is_sound(&self) -> bool {
        let journal_end = self.journal_start.checked_add(self.journal_blocks);
        let inodes = u64::from(self.inodes_per_group);
        self.blocks < 1 << 48
            && self.journal_start >= 1
            && self.journal_blocks >= 64
            && journal_end.is_some_and(|end| end <= self.groups_start)
            && self.groups >= 1
            && inodes >= 32
            && inodes.is_multiple_of(INODES_PER_BLOCK)
            && inodes <= GROUP_BLOCKS
            && self.table_blocks() + 3 < GROUP_BLOCKS
            && u64::from(self.groups - 1)
                .checked_mul(GROUP_BLOCKS)
                .and_then(|most| most.checked_add(self.groups_start + self.table_blocks() + 3))
                .is_some_and(|least| least < self.blocks)
    }

    /// Of a superblock that was parsed.
    pub(crate) fn new(superblock: &Superblock) -> Self {
        Self::of(superblock).expect("checked when it was parsed")
    }

    /// Blocks that hold the inodes of a group.
    pub(crate) fn table_blocks(&self) -> u64 {
        u64::from(self.inodes_per_group).div_ceil(INODES_PER_BLOCK)
    }

    /// The copy of the superblock.
    pub(crate) fn copy_block(&self) -> u64 {
        self.blocks - 1
    }

    pub(crate) fn group_start(&self, group: u32) -> u64 {
        self.groups_start + u64::from(group) * GROUP_BLOCKS
    }

    /// Blocks that `group` has, its own metadata included.
    pub(crate) fn group_len(&self, group: u32) -> u64 {
        GROUP_BLOCKS.min(self.copy_block() - self.group_start(group))
    }

    pub(crate) fn inode_map(&self, group: u32) -> u64 {
        self.group_start(group) + 1
    }

    /// Blocks at the beginning of a group that are not for files.
    pub(crate) fn group_overhead(&self) -> u64 {
        2 + self.table_blocks()
    }

    /// The group of a block of files or trees, and its place there; `None` for any other block.
    pub(crate) fn group_of(&self, block: u64) -> Option<(u32, u64)> {
        let from_start = block.checked_sub(self.groups_start)?;
        let group = u32::try_from(from_start / GROUP_BLOCKS).ok()?;
        let place = from_start % GROUP_BLOCKS;
        (group < self.groups && place >= self.group_overhead() && place < self.group_len(group))
            .then_some((group, place))
    }

    /// Whether all blocks of the range are for files and trees.
    pub(crate) fn holds_data(&self, start: u64, blocks: u64) -> bool {
        blocks > 0
            && match (self.group_of(start), start.checked_add(blocks - 1).and_then(|end| self.group_of(end)))
            {
                (Some((first, _)), Some((last, _))) => first == last,
                _ => false,
            }
    }

    pub(crate) fn inodes(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.inodes_per_group)
    }

    /// Group of an inode, and its place there.
    pub(crate) fn inode_place(&self, ino: u64) -> Option<(u32, u64)> {
        let index = ino.checked_sub(1)?;
        let per = u64::from(self.inodes_per_group);
        (index < self.inodes()).then_some(((index / per) as u32, index % per))
    }

    /// Block of an inode, and which of it.
    pub(crate) fn inode_block(&self, ino: u64) -> Option<(u64, usize)> {
        let (group, place) = self.inode_place(ino)?;
        let block = self.group_start(group) + 2 + place / INODES_PER_BLOCK;
        Some((block, (place % INODES_PER_BLOCK) as usize))
    }
}

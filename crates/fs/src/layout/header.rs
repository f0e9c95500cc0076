//! What every block of metadata begins with: what it is, whose, when it was written, and a CRC.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Page;
use crate::error::{Error, Result};

/// "uNfs", as it is read in a dump.
const MAGIC: U32 = U32::from_bytes(*b"uNfs");

/// What a block of metadata is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    Superblock = 1,
    BlockMap = 2,
    InodeMap = 3,
    Inodes = 4,
    Tree = 5,
    JournalHead = 6,
    Descriptor = 7,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Superblock => "a superblock",
            Self::BlockMap => "a map of blocks",
            Self::InodeMap => "a map of inodes",
            Self::Inodes => "inodes",
            Self::Tree => "a page of a tree",
            Self::JournalHead => "the head of the journal",
            Self::Descriptor => "a record of the journal",
        }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    magic: U32,
    kind: U16,
    zero: U16,
    /// CRC-32C of the block, with zeros here.
    crc: U32,
    spare: U32,
    /// The first half of the file system's UUID: what an earlier one left is not taken for this one's.
    pub fs: U64,
    /// The block's own number.
    pub block: U64,
    /// The inode or the group that it belongs to.
    pub owner: U64,
    /// The transaction that wrote it.
    pub tx: U64,
}

const _: () = assert!(size_of::<Header>() == Header::BYTES);
const CRC: std::ops::Range<usize> = 8..12;

impl Header {
    pub(crate) const BYTES: usize = 48;

    /// What it says it is: one of [`Kind`], if it is whole.
    pub(crate) fn kind(&self) -> u16 {
        self.kind.get()
    }

    /// The header of `page`.
    pub(crate) fn of(page: &Page) -> Self {
        let (header, _) = Self::read_from_prefix(page).expect("a page is longer than its header");
        header
    }
}

/// Whose block one expects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub kind: Kind,
    pub fs: u64,
    pub block: u64,
    /// `None`: anybody's.
    pub owner: Option<u64>,
}

/// Makes the header of an otherwise empty page.
pub(crate) fn stamp(page: &mut Page, expected: &Expected) {
    page.fill(0);
    let header = Header {
        magic: MAGIC,
        kind: (expected.kind as u16).into(),
        zero: U16::ZERO,
        crc: U32::ZERO,
        spare: U32::ZERO,
        fs: expected.fs.into(),
        block: expected.block.into(),
        owner: expected.owner.unwrap_or(0).into(),
        tx: U64::ZERO,
    };
    page[..Header::BYTES].copy_from_slice(header.as_bytes());
}

/// Makes a page ready to be written by transaction `tx`. Returns its CRC.
pub(crate) fn seal(page: &mut Page, tx: u64) -> u32 {
    page[Header::BYTES - 8..Header::BYTES].copy_from_slice(&tx.to_le_bytes());
    page[CRC].fill(0);
    let crc = crc_fast::crc32_iscsi(page);
    page[CRC].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// The header that a page has when transaction `tx` writes it, and its CRC: as [`seal`], without a copy.
pub(crate) fn sealed(page: &Page, tx: u64) -> ([u8; Header::BYTES], u32) {
    let mut header: [u8; Header::BYTES] = page[..Header::BYTES].try_into().expect("a page is longer");
    header[Header::BYTES - 8..].copy_from_slice(&tx.to_le_bytes());
    header[CRC].fill(0);
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&header);
    digest.update(&page[Header::BYTES..]);
    let crc = digest.finalize() as u32;
    header[CRC].copy_from_slice(&crc.to_le_bytes());
    (header, crc)
}

/// Whether a page is an undamaged block of metadata of the file system `fs`, of any kind.
pub(crate) fn whole(page: &Page, fs: u64) -> bool {
    let header = Header::of(page);
    header.magic == MAGIC && header.fs.get() == fs && sealed(page, header.tx.get()).1 == header.crc.get()
}

/// Whether a page that was read is what one expects.
///
/// # Errors
/// [`Error::Damaged`] says what is wrong.
pub(crate) fn check(page: &Page, expected: &Expected) -> Result<()> {
    let header = Header::of(page);
    let damaged = |what: String| Err(Error::damaged(expected.block, what));
    let wanted = expected.kind.name();
    if header.magic != MAGIC {
        return damaged(format!("{wanted} is expected, and there is no metadata"));
    }
    if sealed(page, header.tx.get()).1 != header.crc.get() {
        return damaged(format!("{wanted} is expected, and its checksum is wrong"));
    }
    if header.kind.get() != expected.kind as u16 {
        return damaged(format!("{wanted} is expected, and a block of kind {} is there", header.kind));
    }
    if header.fs.get() != expected.fs {
        return damaged(format!("{wanted} is expected, and there is one of another file system"));
    }
    if header.block.get() != expected.block {
        return damaged(format!("{wanted} is expected, and there is what belongs to block {}", header.block));
    }
    match expected.owner {
        Some(owner) if header.owner.get() != owner => {
            damaged(format!("{wanted} of {owner} is expected, and there is one of {}", header.owner))
        }
        _ => Ok(()),
    }
}

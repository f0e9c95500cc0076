//! The journal on the media: its head, and the descriptors that records begin with.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK, Header, Page};

/// Where replay begins. There are two blocks of it, written in turn; the one with the higher transaction
/// counts.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Head {
    /// The first transaction that may have to be replayed.
    pub tail_tx: U64,
    /// Where its record is, or will be: blocks from the beginning of the ring.
    pub tail: U64,
    /// As in [`Descriptor`], at that moment.
    pub free_blocks: U64,
    pub free_inodes: U64,
    /// 1 when the file system was left in order.
    pub clean: U32,
    pub zero: U32,
}

/// What the first block of a record says about it. A record is whole when its descriptors and every image
/// carry its transaction and the checksums that are told here: no other mark says that it is committed.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// Descriptors of the record, this one included.
    pub descriptors: U32,
    /// Which of them this is.
    pub index: U32,
    /// Entries of the whole record.
    pub entries: U32,
    /// Those that are images, which come first and in this order behind the descriptors.
    pub images: U32,
    /// Blocks that are free when the transaction is done.
    pub free_blocks: U64,
    /// Inodes that are free then.
    pub free_inodes: U64,
}

/// A block of metadata that the transaction wrote, or, behind those, one that it freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Entry {
    pub block: U64,
    /// Of the image.
    pub crc: U32,
    pub zero: U32,
}

const _: () = assert!(size_of::<Head>() == 40);
const _: () = assert!(size_of::<Descriptor>() == 32);
const _: () = assert!(size_of::<Entry>() == 16);

const ENTRIES_START: usize = Header::BYTES + size_of::<Descriptor>();

/// Entries that one descriptor holds.
pub(crate) const ENTRIES_PER_BLOCK: usize = (BLOCK - ENTRIES_START) / size_of::<Entry>();

/// The first `count` entries of a descriptor.
pub(crate) fn entries_of(page: &Page, count: usize) -> impl Iterator<Item = Entry> {
    page[ENTRIES_START..]
        .chunks_exact(size_of::<Entry>())
        .take(count)
        .map(|bytes| Entry::read_from_bytes(bytes).expect("a chunk of its size"))
}

/// Sets an entry of a descriptor.
pub(crate) fn put_entry(page: &mut Page, index: usize, entry: &Entry) {
    let at = ENTRIES_START + index * size_of::<Entry>();
    page[at..at + size_of::<Entry>()].copy_from_slice(entry.as_bytes());
}

macro_rules! behind_header {
    ($name:ty) => {
        impl $name {
            pub(crate) fn of(page: &Page) -> Self {
                let (found, _) = Self::read_from_prefix(&page[Header::BYTES..]).expect("a page is longer");
                found
            }

            pub(crate) fn put(&self, page: &mut Page) {
                page[Header::BYTES..Header::BYTES + size_of::<Self>()].copy_from_slice(self.as_bytes());
            }
        }
    };
}

behind_header!(Head);
behind_header!(Descriptor);

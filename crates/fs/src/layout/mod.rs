//! What is where on the media. `docs/fs-format.md` has the reasons.

mod header;
mod inode;
mod record;
mod superblock;

pub(crate) use header::{Expected, Header, Kind, check, seal, sealed, stamp, whole};
pub use inode::Time;
pub(crate) use inode::{
    INODES_PER_BLOCK, Inline, Inode, InodeBytes, Kinds, SYMLINK_INLINE, decode, encode, inode_bytes,
    put_inode_bytes,
};
pub(crate) use record::{Descriptor, ENTRIES_PER_BLOCK, Entry, Head, entries_of, put_entry};
pub(crate) use superblock::{GROUP_BLOCKS, Geometry, MAP_START, Superblock, VERSION};

/// Bytes of a block of the file system, on devices of any block size up to this.
pub(crate) const BLOCK: usize = 4096;

/// A block of metadata.
pub(crate) type Page = [u8; BLOCK];

/// The root directory.
pub(crate) const ROOT_INO: u64 = 1;

/// Whose tree lists the files that have no name any more.
pub(crate) const ORPHANS_INO: u64 = 2;

/// The first inode number that a file can have.
pub(crate) const FIRST_INO: u64 = 8;

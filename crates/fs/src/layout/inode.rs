//! An inode: 252 bytes, sixteen in a block.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::FileType;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK, Header, Page};

/// Inodes of a block.
pub(crate) const INODES_PER_BLOCK: u64 = 16;

/// Bytes of an inode.
const INODE_BYTES: usize = 252;

/// An inode as it is on the media.
pub(crate) type InodeBytes = [u8; INODE_BYTES];

/// Bytes of what is kept within the inode: a short symbolic link, or the first extents.
pub(crate) const INLINE_BYTES: usize = 120;

/// Bytes of a symbolic link that needs no block.
pub(crate) const SYMLINK_INLINE: usize = INLINE_BYTES;

const _: () = assert!(Header::BYTES + INODES_PER_BLOCK as usize * INODE_BYTES <= BLOCK);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Stamp {
    seconds: I64,
    nanoseconds: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Disk {
    mode: U32,
    uid: U32,
    gid: U32,
    links: U32,
    size: U64,
    blocks: U64,
    times: [Stamp; 4],
    generation: U32,
    flags: U32,
    rdev: U64,
    parent: U64,
    tree: U64,
    xattrs: U64,
    names: U64,
    inline_kind: u8,
    inline_len: u8,
    hint: u8,
    zero: u8,
    inline: [u8; INLINE_BYTES],
}

const _: () = assert!(size_of::<Disk>() == INODE_BYTES);
const _: () = assert!(std::mem::offset_of!(Disk, inline) == 132);

/// A moment: seconds since 1970, and nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Time {
    /// Seconds since 1970, or before.
    pub seconds: i64,
    /// Nanoseconds of the second, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Time {
    /// Now.
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    pub(crate) fn from_nanoseconds(since_1970: u64) -> Self {
        let (seconds, nanoseconds) = (since_1970 / 1_000_000_000, since_1970 % 1_000_000_000);
        Self { seconds: seconds as i64, nanoseconds: nanoseconds as u32 }
    }

    /// Nanoseconds since 1970; 0 for anything before.
    pub(crate) fn nanoseconds(self) -> u64 {
        u64::try_from(self.seconds)
            .map_or(0, |seconds| seconds.saturating_mul(1_000_000_000) + u64::from(self.nanoseconds))
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let borrow = i64::from(before.subsec_nanos() > 0);
                Self {
                    seconds: -(before.as_secs() as i64) - borrow,
                    nanoseconds: (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000,
                }
            }
        }
    }
}

/// What an inode keeps within itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Inline {
    /// Nothing: no data yet, or they are in the tree.
    #[default]
    None,
    /// A symbolic link's target.
    Symlink(Vec<u8>),
    /// A regular file's extents, as the tree has them.
    Extents(Vec<u8>),
}

/// An inode, as programs of this crate see it. What `stat` tells comes first, in as few cache lines as it
/// takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Inode {
    /// Type and permissions, as `st_mode`; 0 is no inode.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks that it has, those of its trees included.
    pub blocks: u64,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    pub created: Time,
    /// What a device node stands for.
    pub rdev: u64,
    /// Tells the inode from an earlier one of the same number.
    pub generation: u32,
    pub flags: u32,
    /// The directory that a directory is in.
    pub parent: u64,
    /// Root page of the names of a directory, of the extents of a file, or of a long symbolic link; or 0.
    pub tree: u64,
    /// Root page of the extended attributes, or 0.
    pub xattrs: u64,
    /// Names in a directory.
    pub names: u64,
    pub inline: Inline,
    /// Expected life of the data: values of `F_SET_RW_HINT`.
    pub hint: u8,
}

/// Questions about `st_mode`.
pub(crate) trait Kinds {
    fn file_type(&self) -> FileType;

    fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    fn is_file(&self) -> bool {
        self.file_type() == FileType::RegularFile
    }

    fn is_symlink(&self) -> bool {
        self.file_type() == FileType::Symlink
    }
}

impl Kinds for Inode {
    fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

fn at(index: usize) -> std::ops::Range<usize> {
    let start = Header::BYTES + index * INODE_BYTES;
    start..start + INODE_BYTES
}

/// The bytes of inode `index` of a block.
pub(crate) fn inode_bytes(page: &Page, index: usize) -> InodeBytes {
    page[at(index)].try_into().expect("of its size")
}

/// Has inode `index` of a block be these bytes.
pub(crate) fn put_inode_bytes(page: &mut Page, index: usize, bytes: &InodeBytes) {
    page[at(index)].copy_from_slice(bytes);
}

/// Inode `index` of a block; `None` when nobody has it, `Err` with what is wrong about it.
pub(crate) fn decode(page: &Page, index: usize) -> Result<Option<Inode>, String> {
    let disk = Disk::read_from_bytes(&page[at(index)]).expect("of its size");
    if disk.mode.get() == 0 {
        return Ok(None);
    }
    let time = |index: usize| {
        let stamp: &Stamp = &disk.times[index];
        Time { seconds: stamp.seconds.get(), nanoseconds: stamp.nanoseconds.get() }
    };
    let bytes = disk.inline.get(..usize::from(disk.inline_len)).ok_or("what is inline has a wrong length")?;
    let inline = match disk.inline_kind {
        0 => Inline::None,
        1 => Inline::Symlink(bytes.to_vec()),
        2 => Inline::Extents(bytes.to_vec()),
        kind => return Err(format!("what is inline has kind {kind}")),
    };
    let inode = Inode {
        mode: disk.mode.get(),
        uid: disk.uid.get(),
        gid: disk.gid.get(),
        links: disk.links.get(),
        size: disk.size.get(),
        blocks: disk.blocks.get(),
        accessed: time(0),
        modified: time(1),
        changed: time(2),
        created: time(3),
        generation: disk.generation.get(),
        flags: disk.flags.get(),
        rdev: disk.rdev.get(),
        parent: disk.parent.get(),
        tree: disk.tree.get(),
        xattrs: disk.xattrs.get(),
        names: disk.names.get(),
        hint: disk.hint,
        inline,
    };
    if inode.file_type() == FileType::Unknown {
        return Err(format!("mode {:#o} is of no type", inode.mode));
    }
    if inode.size > i64::MAX as u64 {
        return Err(format!("a size of {} bytes", inode.size));
    }
    Ok(Some(inode))
}

/// Sets inode `index` of a block; `None` gives it up, and keeps its generation.
pub(crate) fn encode(page: &mut Page, index: usize, inode: Option<&Inode>) {
    let place = &mut page[at(index)];
    let Some(inode) = inode else {
        place[..4].fill(0);
        return;
    };
    let stamp = |time: Time| Stamp { seconds: time.seconds.into(), nanoseconds: time.nanoseconds.into() };
    let (inline_kind, bytes): (u8, &[u8]) = match &inode.inline {
        Inline::None => (0, &[]),
        Inline::Symlink(bytes) => (1, bytes),
        Inline::Extents(bytes) => (2, bytes),
    };
    let mut inline = [0; INLINE_BYTES];
    inline[..bytes.len()].copy_from_slice(bytes);
    let disk = Disk {
        mode: inode.mode.into(),
        uid: inode.uid.into(),
        gid: inode.gid.into(),
        links: inode.links.into(),
        size: inode.size.into(),
        blocks: inode.blocks.into(),
        times: [stamp(inode.accessed), stamp(inode.modified), stamp(inode.changed), stamp(inode.created)],
        generation: inode.generation.into(),
        flags: inode.flags.into(),
        rdev: inode.rdev.into(),
        parent: inode.parent.into(),
        tree: inode.tree.into(),
        xattrs: inode.xattrs.into(),
        names: inode.names.into(),
        inline_kind,
        inline_len: bytes.len() as u8,
        hint: inode.hint,
        zero: 0,
        inline,
    };
    place.copy_from_slice(disk.as_bytes());
}

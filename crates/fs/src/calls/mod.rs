//! What POSIX programs ask of a file system, as data: so that one process can ask another one.
//!
//! | module | concept |
//! |---|---|
//! | this one | [`Request`] and [`Reply`]: a call's arguments and results, without memory of its own |
//! | `process` | [`Process`]: who asks, with what it has open and locked; does what a request says |
//! | `maps`, `memory`, `ranges` | files that are mapped shared; the memory of one; what of it is loaded |
//! | `watched` | how long files are that others read without asking |
//! | `waiting` | who waits for whose lock |
//! | `path_of` | the path of an open file |
//! | `paths` | calls on paths, from a directory on, that may lead out of the file system |

mod acting;
mod maps;
mod memory;
mod path_of;
mod paths;
mod process;
mod ranges;
mod waiting;
mod watched;

use serde::{Deserialize, Serialize};

use crate::paths::Walk;
use crate::system::Usage;
use crate::vnode::Attributes;

pub use acting::acting_as;
pub(crate) use maps::EndedMaps;
pub use maps::Mapped;
pub use process::{Process, Processes};
pub(crate) use watched::Sizes;

/// A file that somebody has open; [`OpenId::ROOT`] is the root directory, which everybody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OpenId(pub u64);

impl OpenId {
    /// The root directory.
    pub const ROOT: Self = Self(0);
}

/// What a path leads to from an open directory on; with an empty path the open file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At<'a> {
    /// Where the path begins.
    pub base: OpenId,
    /// The path, which does not begin with a slash.
    pub path: &'a [u8],
    /// A symbolic link at the end leads on.
    pub follows: bool,
}

/// A moment that a file is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewTime {
    /// As it is (`UTIME_OMIT`).
    Keep,
    /// Now (`UTIME_NOW`).
    Now,
    /// Seconds since 1970, and nanoseconds.
    At(i64, u32),
}

/// What locks a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// An open file has it (`F_OFD_SETLK`), and not a process (`F_SETLK`).
    pub is_of_open: bool,
    /// Nobody else may have it.
    pub is_exclusive: bool,
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` is up to the end, wherever that is.
    pub end: u64,
}

/// One call. Data to be written and room for data to be read come beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are the arguments of the calls they are named after")]
pub enum Request<'a> {
    /// `openat`: [`Reply::Opened`]. `mode` is without what a umask takes away.
    Open {
        #[serde(borrow)]
        at: At<'a>,
        flags: u32,
        mode: u32,
    },
    /// Opens what an earlier holder of the file system had open, by its inode number: [`Reply::Opened`].
    /// ESTALE when the number is another file's by now, for who knows the generation.
    Adopt { ino: u64, generation: Option<u32>, flags: u32 },
    /// `close` of the last descriptor that this process has: locks are given back.
    Close { open: OpenId },
    /// The end of an open file that no program has had: locks of the process on the file stay.
    Release { open: OpenId },
    /// `close` of one descriptor of several: locks of the process on the file are given back.
    CloseOne { open: OpenId },
    /// `fstatat`: [`Reply::Attributes`].
    Attributes { at: At<'a> },
    /// `faccessat`; `wanted` as there.
    Access { at: At<'a>, wanted: u32 },
    /// `readlinkat`: [`Reply::Bytes`].
    ReadLink { at: At<'a> },
    /// `mkdirat`, `mknodat`, `symlinkat`: `mode` has the type.
    Make { at: At<'a>, mode: u32, rdev: u64, target: &'a [u8] },
    /// `unlinkat`.
    Remove { at: At<'a>, is_directory: bool },
    /// `renameat2`.
    Rename { from: At<'a>, to: At<'a>, flags: u32 },
    /// `linkat`.
    Link { from: At<'a>, to: At<'a> },
    /// `fchmodat`.
    ChangeMode { at: At<'a>, mode: u32 },
    /// `fchownat`.
    ChangeOwner { at: At<'a>, uid: Option<u32>, gid: Option<u32> },
    /// `utimensat`.
    ChangeTimes { at: At<'a>, accessed: NewTime, modified: NewTime },
    /// `truncate`, `ftruncate`.
    Truncate { at: At<'a>, size: u64 },
    /// `getxattr`: [`Reply::Bytes`].
    GetXattr { at: At<'a>, name: &'a [u8] },
    /// `setxattr`.
    SetXattr { at: At<'a>, name: &'a [u8], value: &'a [u8], flags: i32 },
    /// `removexattr`.
    RemoveXattr { at: At<'a>, name: &'a [u8] },
    /// `listxattr`: [`Reply::Bytes`], a NUL behind each name.
    ListXattrs { at: At<'a> },
    /// `pread`: [`Reply::Number`] of bytes.
    Read { open: OpenId, offset: u64 },
    /// `pwrite`: [`Reply::Number`] of bytes.
    Write { open: OpenId, offset: u64 },
    /// `write` with `O_APPEND`: [`Reply::Appended`].
    Append { open: OpenId },
    /// `fallocate`.
    Allocate { open: OpenId, mode: i32, offset: u64, bytes: u64 },
    /// `lseek` with `SEEK_DATA` or `SEEK_HOLE`: [`Reply::Number`].
    Seek { open: OpenId, offset: u64, is_hole: bool },
    /// `copy_file_range`: [`Reply::Number`] of bytes.
    Copy { open: OpenId, offset: u64, to: OpenId, to_offset: u64, bytes: u64 },
    /// `fsync`, `fdatasync`.
    Sync { open: OpenId, data_only: bool },
    /// `sync`, `syncfs`.
    SyncAll,
    /// `sync_file_range`: what waits is on its way.
    WriteBack { open: OpenId },
    /// `posix_fadvise` with `POSIX_FADV_WILLNEED`, or with `POSIX_FADV_DONTNEED`.
    Advise { open: OpenId, offset: u64, bytes: u64, is_needed: bool },
    /// `getdents64`: [`Reply::Entries`], as many as fit into `bytes`.
    List { open: OpenId, cookie: u64, bytes: usize },
    /// `fcntl` with `F_SETLK`: EAGAIN when somebody is in the way. Who wants to wait asks again.
    Lock { open: OpenId, range: Range },
    /// As [`Request::Lock`], by those who ask again on EAGAIN, until nobody is in the way: EDEADLK when a
    /// process would wait for itself.
    AwaitLock { open: OpenId, range: Range },
    /// `fcntl` with `F_SETLK` and `F_UNLCK`.
    Unlock { open: OpenId, range: Range },
    /// `fcntl` with `F_GETLK`: [`Reply::Lock`].
    FindLock { open: OpenId, range: Range },
    /// `flock`; `None` gives it back. EAGAIN when somebody is in the way.
    Flock { open: OpenId, is_exclusive: Option<bool> },
    /// `statfs`: [`Reply::Usage`].
    Usage,
    /// Where an open directory is, from the root on, with a slash before each name: [`Reply::Bytes`]. Of a
    /// file it is one of its names, for which the directories are looked through.
    Path { open: OpenId },
}

/// An entry of a directory: the cookie of the next one, inode number, type as in `d_type`, name.
pub type Listed = (u64, u64, u8, Vec<u8>);

/// Which file, also for another server: numbers of inodes are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHandle {
    /// The inode's number.
    pub ino: u64,
    /// Which of those that had it.
    pub generation: u32,
}

impl FileHandle {
    /// Opens it, if it is still there.
    pub fn adopt(self, flags: u32) -> Request<'static> {
        Request::Adopt { ino: self.ino, generation: Some(self.generation), flags }
    }
}

/// What comes of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It was done.
    Done,
    /// A path leads out of the file system; the second one of two when the flag is set. [`Walk::Outside`]
    /// says how.
    Outside(bool, Vec<u8>),
    /// A file is open: by this name, which one, of this type and mode; and it is new.
    Opened(OpenId, FileHandle, u32, bool),
    /// What `stat` tells.
    Attributes(Attributes),
    /// A link's target, the value of an attribute, their names, or a path.
    Bytes(Vec<u8>),
    /// Bytes, or an offset.
    Number(u64),
    /// Where data were appended, and how many bytes.
    Appended(u64, u64),
    /// Entries of a directory; none at its end.
    Entries(Vec<Listed>),
    /// A lock that is in the way, if any is, and the process that has it, or 0 when an open file has it.
    Lock(Option<(Range, u32)>),
    /// How full the file system is, and its 64-bit identity.
    Usage(Usage, u64),
}

impl From<Walk<Self>> for Reply {
    fn from(walk: Walk<Self>) -> Self {
        match walk {
            Walk::Found(reply) => reply,
            Walk::Outside(path) => Self::Outside(false, path),
        }
    }
}

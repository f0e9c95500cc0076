//! A POSIX file system in user space, on a block namespace of any transport.
//!
//! ```
//! use unvme::{Nsid, OpenOptions, open};
//! use unvme_fs::{Credentials, FileSystem, MakeOptions, MountOptions, NewFile, make};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = open("mem:block:64M", &OpenOptions::default())?;
//! let block = device.block(Nsid(1))?;
//! make(&block, device.name(), &MakeOptions::default(), |_, _| ())?;
//! let fs = FileSystem::mount(&block, device.name(), &MountOptions::default())?;
//! let who = Credentials::root();
//! let file = fs.root()?.create(b"greeting", &NewFile::regular(0o644), &who)?;
//! file.write_at(0, b"hello")?;
//! file.sync()?;
//! let mut read = [0; 5];
//! assert_eq!(fs.root()?.lookup(b"greeting", &who)?.read_at(0, &mut read)?, 5);
//! assert_eq!(&read, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! Everything waits, takes `&self`, and may be called from any thread; each CPU has a queue pair of its own.
//! What has changed together is on the media together or not at all: a journal sees to it, with one record
//! for as many operations as come by. Data never come before they are written: blocks belong to a file once
//! its data are in them, and durable. Data wait in a page cache to be written, unless they are written past
//! it ([`Vnode::write_direct`]).
//!
//! | module | concept |
//! |---|---|
//! | `layout` | what is where on the media; `docs/fs-format.md` |
//! | `disk` | the device: reads, writes, flushes, deallocations, counted |
//! | `buffer` | blocks of metadata in memory |
//! | `journal` | transactions, their records, and their replay |
//! | `page`, `tree` | pages of keys and values, and trees of them |
//! | `bits`, `space` | which blocks and inodes are free |
//! | `stripe` | things that each CPU has some of set aside |
//! | `extents` | which blocks a file has |
//! | `directory`, `dentries` | names and where they lead, on the media and in memory |
//! | `node` | inodes in memory |
//! | `pagecache` | pages of files in memory, and which are given up first |
//! | `access` | who may do what |
//! | `privileges` | set-id bits and capabilities, which a change of a file takes away |
//! | `data`, `buffered`, `names` | operations on data, past the page cache and by way of it, and on names |
//! | `rename` | how a name is moved, and whiteouts |
//! | `xattrs` | extended attributes |
//! | `locks` | advisory locks |
//! | `queue`, `epoch` | calls that do not wait, and blocks that are freed meanwhile |
//! | `placement` | which placement handle what is written goes to |
//! | `paths` | from a path to what it leads to |
//! | `holder` | who has the file system |
//! | `keeper` | writing and committing what has waited long |
//! | `system`, `vnode` | [`FileSystem`] and [`Vnode`], what programs use |
//! | `check` | [`check()`] and [`repair`]: whether everything fits together, and having it do so |
//! | `make` | [`make()`]: a new file system |
//! | `reach`, `dynamic` | programs whose files cannot be ours; the libraries that programs need |
//! | [`calls`] | what POSIX programs ask, as data, and who asks |
//! | [`share`] | asking from another process |
#![forbid(unsafe_code)]

mod access;
mod bits;
mod buffer;
mod buffered;
pub mod calls;
mod check;
mod data;
mod dentries;
mod directory;
mod disk;
mod dynamic;
mod epoch;
mod error;
mod extents;
mod holder;
mod journal;
mod keeper;
mod layout;
mod locks;
mod make;
mod names;
mod node;
mod page;
mod pagecache;
mod paths;
mod placement;
mod privileges;
mod queue;
mod reach;
mod rename;
pub mod share;
mod space;
mod stripe;
mod system;
mod tree;
mod vnode;
mod xattrs;

pub use access::{Credentials, EXECUTE, READ, WRITE};
pub use check::{Problem, Survey, check, repair};
pub use data::{Allocation, Seek};
pub use directory::NAME_MAX;
pub use disk::{Event, Traffic};
pub use dynamic::{Dynamic, is_sanitizer};
pub use error::{Error, Result};
pub use layout::Time;
pub use locks::{Lock, LockKind};
pub use make::{MakeOptions, make};
pub use names::{LINKS_MAX, NewFile, TARGET_MAX};
pub use pagecache::{CacheOptions, CacheStatistics, FileSettings, Policy};
pub use paths::Walk;
pub use placement::{Placement, PlacementTable};
pub use queue::{FileCompletion, FileCompletions, FileId, FileQueue, Refused};
pub use reach::{Unreachable, out_of_reach};
pub use rename::Rename;
pub use system::{Description, FileSystem, MountOptions, Usage};
pub use vnode::{Attributes, Entry, FileExtent, NewAttributes, Vnode};
pub use xattrs::{SetXattr, XATTR_MAX};

pub use rustix::fs::FileType;
pub use rustix::io::Errno;

//! Calls on paths.

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::At;
use crate::access::{Credentials, READ, WRITE};
use crate::error::{Error, Result};
use crate::names::NewFile;
use crate::paths::{Parent, Walk};
use crate::rename::Rename;
use crate::system::FileSystem;
use crate::vnode::Vnode;

/// Symbolic links that lead to where a file is made.
const LINKS_MAX: usize = 40;

/// Whether the end of a path is none that can be given or taken.
fn is_no_name(name: &[u8]) -> bool {
    matches!(name, b"" | b"." | b"..")
}

/// Why a name is not made: it exists, or whether it does cannot be found out, or `otherwise`.
fn refusal(found: Result<Vnode>, otherwise: Errno) -> Error {
    match found {
        Ok(_) => Errno::EXIST.into(),
        Err(Error::Posix(Errno::NOENT)) => otherwise.into(),
        Err(e) => e,
    }
}

impl FileSystem {
    /// Opens a file by its path, as open(2) does where the root of the file system is the process's: symbolic
    /// links and `..` stay in it. What open files have besides their node (access, `O_APPEND`, `O_DIRECT`,
    /// `O_SYNC`) is the caller's.
    ///
    /// # Errors
    /// Those of open(2); ENXIO for devices, sockets and FIFOs.
    pub fn open(&self, path: &[u8], flags: OFlags, mode: u32, who: &Credentials) -> Result<Vnode> {
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        let root = Vnode::new(&self.0, self.0.root()?.clone());
        let follows = !flags.contains(OFlags::NOFOLLOW);
        let mut path = path.to_vec();
        for _ in 0..LINKS_MAX {
            let from_root = Path { fs: self, who, base: &root, path: &path, follows };
            match from_root.open(flags, mode)? {
                Walk::Found((node, is_new)) => {
                    if truncates(flags, is_new) {
                        node.truncate(0)?;
                    }
                    return Ok(node);
                }
                Walk::Outside(outside) => path = inside(outside),
            }
        }
        Err(Errno::LOOP.into())
    }
}

/// Whether an open truncates the file that it has found. `O_PATH` ignores `O_TRUNC`.
pub(super) fn truncates(flags: OFlags, is_new: bool) -> bool {
    flags.contains(OFlags::TRUNC) && !flags.contains(OFlags::PATH) && !is_new
}

/// The path of [`Walk::Outside`] where the root has nothing around it: its `..` is the root.
fn inside(outside: Vec<u8>) -> Vec<u8> {
    match outside.strip_prefix(b"..") {
        Some(b"") => b"/".to_vec(),
        Some(rest) => rest.to_vec(),
        None => outside,
    }
}

/// In whose name a path is followed, and where it begins.
pub(super) struct Path<'a> {
    pub fs: &'a FileSystem,
    pub who: &'a Credentials,
    pub base: &'a Vnode,
    pub path: &'a [u8],
    pub follows: bool,
}

impl<'a> Path<'a> {
    pub(super) fn new(fs: &'a FileSystem, who: &'a Credentials, base: &'a Vnode, at: &At<'a>) -> Self {
        Self { fs, who, base, path: at.path, follows: at.follows }
    }

    /// What it leads to.
    pub(super) fn find(&self) -> Result<Walk<Vnode>> {
        if self.path.is_empty() {
            return Ok(Walk::Found(self.base.clone()));
        }
        self.fs.0.walk_from(Some(self.base.node()), self.path, self.follows, self.who)?.then(|node| {
            let found = self.base.with(node);
            found.check_there()?;
            Ok(found)
        })
    }

    pub(super) fn parent(&self) -> Result<Walk<Parent<'a>>> {
        self.fs.0.walk_to_parent(self.base.node(), self.path, self.who)
    }

    /// `mkdir`, `mknod`, `symlink`.
    pub(super) fn make(&self, new: &NewFile<'_>) -> Result<Walk<Vnode>> {
        self.parent()?.then(|parent| {
            let directory = self.base.with(parent.directory);
            if is_no_name(parent.name) {
                return Err(Errno::EXIST.into());
            }
            if parent.is_directory && new.file_type != FileType::Directory {
                // As Linux has it: a name that is there exists, another one cannot be made with a slash.
                return Err(refusal(directory.lookup(parent.name, self.who), Errno::NOENT));
            }
            let is_device = matches!(new.file_type, FileType::CharacterDevice | FileType::BlockDevice);
            // A device without a number is nobody's: it stands for a name that is gone.
            let is_whiteout = new.file_type == FileType::CharacterDevice && new.rdev == 0;
            if is_device && !is_whiteout && !self.who.is_root() {
                return Err(refusal(directory.lookup(parent.name, self.who), Errno::PERM));
            }
            directory.create(parent.name, new, self.who)
        })
    }

    /// `unlink`, `rmdir`.
    pub(super) fn remove(&self, is_rmdir: bool) -> Result<Walk<()>> {
        self.parent()?.then(|parent| {
            let directory = self.base.with(parent.directory);
            match (parent.name, is_rmdir) {
                (b"", true) => Err(Errno::BUSY.into()),
                (b"" | b"." | b"..", false) => Err(Errno::ISDIR.into()),
                (b".", true) => Err(Errno::INVAL.into()),
                (b"..", true) => Err(Errno::NOTEMPTY.into()),
                (name, true) => directory.rmdir(name, self.who),
                (name, false) => {
                    if parent.is_directory {
                        let found = directory.lookup(name, self.who)?;
                        let is_directory = found.file_type() == FileType::Directory;
                        return Err(if is_directory { Errno::ISDIR } else { Errno::NOTDIR }.into());
                    }
                    directory.unlink(name, self.who)
                }
            }
        })
    }

    /// `rename`; `Err` in the walk of the second path is told by the flag.
    pub(super) fn rename(&self, to: &Self, how: Rename) -> Result<std::result::Result<(), (bool, Vec<u8>)>> {
        let from = match self.parent()? {
            Walk::Found(parent) => parent,
            Walk::Outside(path) => return Ok(Err((false, path))),
        };
        let target = match to.parent()? {
            Walk::Found(parent) => parent,
            Walk::Outside(path) => return Ok(Err((true, path))),
        };
        if is_no_name(from.name) {
            return Err(Errno::BUSY.into());
        }
        if is_no_name(target.name) {
            return Err(if !how.replaces() { Errno::EXIST } else { Errno::BUSY }.into());
        }
        let (directory, target_directory) = (self.base.with(from.directory), to.base.with(target.directory));
        if from.is_directory || target.is_directory {
            // Slashes are behind a name: what is there decides, in the kernel's order.
            let is_directory = |found: &Vnode| found.file_type() == FileType::Directory;
            let found = directory.lookup(from.name, self.who)?;
            let other = target_directory.lookup(target.name, self.who);
            let is_right = match how {
                _ if !how.replaces() && other.is_ok() => return Err(Errno::EXIST.into()),
                Rename::Exchange => {
                    let other = other?;
                    !target.is_directory || is_directory(&other)
                }
                _ => !target.is_directory || is_directory(&found),
            };
            if !is_right || from.is_directory && !is_directory(&found) {
                return Err(Errno::NOTDIR.into());
            }
        }
        directory.rename(from.name, (&target_directory, target.name), how, self.who)?;
        Ok(Ok(()))
    }

    /// `link`.
    pub(super) fn link(&self, to: &Self) -> Result<std::result::Result<(), (bool, Vec<u8>)>> {
        let from = match self.find()? {
            Walk::Found(found) => found,
            Walk::Outside(path) => return Ok(Err((false, path))),
        };
        let target = match to.parent()? {
            Walk::Found(parent) => parent,
            Walk::Outside(path) => return Ok(Err((true, path))),
        };
        let directory = to.base.with(target.directory);
        if is_no_name(target.name) {
            return Err(Errno::EXIST.into());
        }
        if target.is_directory {
            return Err(refusal(directory.lookup(target.name, self.who), Errno::NOENT));
        }
        if !self.may_link(&from) {
            return Err(refusal(directory.lookup(target.name, self.who), Errno::PERM));
        }
        from.link(&directory, target.name, self.who)?;
        Ok(Ok(()))
    }

    /// Whether somebody may give a file another name, as `fs.protected_hardlinks` of the kernel has it: where
    /// it is set, others than the owner only what they can read and write and what does not run as its owner.
    fn may_link(&self, file: &Vnode) -> bool {
        if file.is_owned_by(self.who) {
            return true;
        }
        let is_safe = file.file_type() == FileType::RegularFile
            && !crate::privileges::is_set_id(file.attributes().mode)
            && file.check_access(self.who, READ | WRITE).is_ok();
        is_safe || !std::fs::read("/proc/sys/fs/protected_hardlinks").is_ok_and(|set| set.starts_with(b"1"))
    }

    /// `open`. Returns whether the file is new, too.
    pub(super) fn open(&self, flags: OFlags, mode: u32) -> Result<Walk<(Vnode, bool)>> {
        if flags.contains(OFlags::TMPFILE) {
            if flags & OFlags::RWMODE == OFlags::RDONLY {
                return Err(Errno::INVAL.into());
            }
            return self.find()?.then(|directory| {
                if directory.file_type() != FileType::Directory {
                    return Err(Errno::NOTDIR.into());
                }
                directory.check_access(self.who, WRITE | crate::access::EXECUTE)?;
                let made = directory.create_unnamed(mode & 0o7777, self.who)?;
                if flags.contains(OFlags::EXCL) {
                    made.stay_nameless();
                }
                Ok((made, true))
            });
        }
        if flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
            return Err(Errno::INVAL.into());
        }
        let found = if flags.contains(OFlags::CREATE) {
            self.find_or_make(flags, mode)?
        } else {
            self.find()?.then(|found| Ok((found, false)))?
        };
        found.then(|(found, is_new)| {
            if !is_new {
                self.check_open(&found, flags)?;
            }
            Ok((found, is_new))
        })
    }

    /// Finds a file, or makes it.
    fn find_or_make(&self, flags: OFlags, mode: u32) -> Result<Walk<(Vnode, bool)>> {
        let (mut base, mut path) = (self.base.clone(), self.path.to_vec());
        for _ in 0..LINKS_MAX {
            let step = Path { base: &base, path: &path, ..*self };
            let parent = match step.parent()? {
                Walk::Found(parent) => parent,
                Walk::Outside(path) => return Ok(Walk::Outside(path)),
            };
            let is_none = is_no_name(parent.name);
            if is_none && flags.contains(OFlags::EXCL) {
                return Err(Errno::EXIST.into());
            }
            if is_none || parent.is_directory {
                return Err(Errno::ISDIR.into());
            }
            let directory = self.base.with(parent.directory);
            let found = match directory.lookup(parent.name, self.who) {
                Err(Error::Posix(Errno::NOENT)) => {
                    match directory.create(parent.name, &NewFile::regular(mode & 0o7777), self.who) {
                        // Somebody was faster.
                        Err(Error::Posix(Errno::EXIST)) => continue,
                        made => return Ok(Walk::Found((made?, true))),
                    }
                }
                found => found?,
            };
            if flags.contains(OFlags::EXCL) {
                return Err(Errno::EXIST.into());
            }
            if found.file_type() != FileType::Symlink || !self.follows {
                return Ok(Walk::Found((found, false)));
            }
            let target = found.target()?;
            if target.starts_with(b"/") {
                return Ok(Walk::Outside(target));
            }
            (base, path) = (directory, target);
        }
        Err(Errno::LOOP.into())
    }

    /// Whether a file that is there may be opened so, and cut.
    fn check_open(&self, found: &Vnode, flags: OFlags) -> Result<()> {
        let is_directory = found.file_type() == FileType::Directory;
        if flags.contains(OFlags::DIRECTORY) && !is_directory {
            return Err(Errno::NOTDIR.into());
        }
        if flags.contains(OFlags::PATH) {
            return Ok(());
        }
        let access = flags & OFlags::RWMODE;
        let (can_read, can_write) = (access != OFlags::WRONLY, access != OFlags::RDONLY);
        if is_directory && (can_write || flags.contains(OFlags::CREATE)) {
            return Err(Errno::ISDIR.into());
        }
        match found.file_type() {
            FileType::RegularFile | FileType::Directory => {}
            FileType::Symlink => return Err(Errno::LOOP.into()),
            // Nobody is behind a device, a socket or a pipe of this file system.
            _ => return Err(Errno::NXIO.into()),
        }
        let wanted = if can_read { READ } else { 0 } | if can_write { WRITE } else { 0 };
        found.check_access(self.who, wanted)?;
        if flags.contains(OFlags::NOATIME) && !found.is_owned_by(self.who) {
            return Err(Errno::PERM.into());
        }
        if flags.contains(OFlags::TRUNC) && is_directory {
            return Err(Errno::ISDIR.into());
        }
        if flags.contains(OFlags::TRUNC) && !can_write {
            // Linux has it so: the mode to write is needed, the descriptor does not write.
            found.check_access(self.who, WRITE)?;
        }
        Ok(())
    }
}

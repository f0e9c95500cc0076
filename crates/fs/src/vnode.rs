//! A file that somebody has: what POSIX does with it.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::FileType;
use rustix::io::Errno;
use unvme::lock::{read, write};

use crate::access::{self, Credentials};
use crate::data::{Allocation, Seek};
use crate::error::{Error, Result};
use crate::folder::Target;
use crate::layout::{BLOCK, Inode, Kinds, Time};
use crate::names::{NewFile, Place, Rename};
use crate::node::{Node, State};
use crate::space::Need;
use crate::system::System;
use crate::tree::Tree;

/// A file, a folder, or anything else that can have a name. As long as somebody has one, the file is there,
/// whether it has names or not.
pub struct Vnode {
    system: Arc<System>,
    node: Arc<Node>,
}

/// What `stat` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub ino: u64,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Names; of a folder 2, and one for each folder in it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub sectors: u64,
    /// What a device node stands for.
    pub rdev: u64,
    /// Tells the inode from an earlier one of the same number.
    pub generation: u32,
    /// Last access.
    pub accessed: Time,
    /// Last change of the data.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// When it was made.
    pub created: Time,
}

impl Attributes {
    /// The type.
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

/// What `chmod`, `chown` and `utimensat` change: what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewAttributes {
    /// Permissions.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<Time>,
    /// Last change of the data.
    pub modified: Option<Time>,
}

/// A name of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where a listing goes on behind it.
    pub cookie: u64,
    /// Inode number.
    pub ino: u64,
    /// Type.
    pub file_type: FileType,
    /// The name.
    pub name: Vec<u8>,
}

impl Vnode {
    pub(crate) fn new(system: &Arc<System>, node: Arc<Node>) -> Self {
        node.pins.fetch_add(1, Ordering::AcqRel);
        Self { system: Arc::clone(system), node }
    }

    fn with(&self, node: Arc<Node>) -> Self {
        Self::new(&self.system, node)
    }

    fn place<'a>(&'a self, name: &'a [u8]) -> Place<'a> {
        Place { folder: &self.node, name }
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.node.ino
    }

    /// What `stat` tells.
    pub fn attributes(&self) -> Attributes {
        let state = read(&self.node.state);
        let inode = &state.inode;
        Attributes {
            ino: self.node.ino,
            mode: inode.mode,
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            size: if inode.is_folder() { inode.blocks * BLOCK as u64 } else { inode.size },
            sectors: inode.blocks * (BLOCK as u64 / 512),
            rdev: inode.rdev,
            generation: inode.generation,
            accessed: inode.accessed,
            modified: inode.modified,
            changed: inode.changed,
            created: inode.created,
        }
    }

    /// Whether somebody may do what [`crate::READ`], [`crate::WRITE`] and [`crate::EXECUTE`] say.
    ///
    /// # Errors
    /// EACCES.
    pub fn check_access(&self, who: &Credentials, wanted: u32) -> Result<()> {
        access::check(&read(&self.node.state).inode, who, wanted)
    }

    /// Changes what is not data.
    ///
    /// # Errors
    /// EPERM when `who` may not; EROFS; [`Error::Device`].
    pub fn set_attributes(&self, new: &NewAttributes, who: &Credentials) -> Result<()> {
        self.system.check_writable()?;
        let mut state = write(&self.node.state);
        Self::check_there(&state)?;
        let mut inode = state.inode.clone();
        change(&mut inode, new, who)?;
        inode.changed = Time::now();
        state.inode = inode;
        self.system.transact(Need::Delete, 0, |tx| self.system.log(tx, self.node.ino, &mut state))
    }

    /// What a name in this folder leads to; `.` and `..` are names.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES, ENAMETOOLONG.
    pub fn lookup(&self, name: &[u8], who: &Credentials) -> Result<Self> {
        let found = self.with(self.system.lookup(&self.node, name, who)?);
        // From here on it stays; somebody may have removed it just before.
        if read(&found.node.state).is_gone { Err(Errno::NOENT.into()) } else { Ok(found) }
    }

    /// Makes a file with a name in this folder.
    ///
    /// # Errors
    /// EEXIST, ENOENT when the folder itself has no name any more, ENOTDIR, EACCES, ENOSPC, EINVAL.
    pub fn create(&self, name: &[u8], new: &NewFile<'_>, who: &Credentials) -> Result<Self> {
        Ok(self.with(self.system.create(&self.node, Some(name), new, who)?))
    }

    /// Makes a regular file without a name: `O_TMPFILE`. [`Vnode::link`] can give it one.
    ///
    /// # Errors
    /// As [`Vnode::create`].
    pub fn create_unnamed(&self, permissions: u32, who: &Credentials) -> Result<Self> {
        if !read(&self.node.state).inode.is_folder() {
            return Err(Errno::NOTDIR.into());
        }
        Ok(self.with(self.system.create(&self.node, None, &NewFile::regular(permissions), who)?))
    }

    /// Gives this file another name, in a folder of the same file system.
    ///
    /// # Errors
    /// EEXIST, EPERM for a folder, EMLINK, EACCES, ENOSPC, EXDEV.
    pub fn link(&self, folder: &Self, name: &[u8], who: &Credentials) -> Result<()> {
        self.check_same(folder)?;
        self.system.link(&self.node, folder.place(name), who)
    }

    fn check_same(&self, other: &Self) -> Result<()> {
        if Arc::ptr_eq(&self.system, &other.system) { Ok(()) } else { Err(Errno::XDEV.into()) }
    }

    /// Removes a name that leads to anything but a folder.
    ///
    /// # Errors
    /// ENOENT, EISDIR, EACCES, EPERM.
    pub fn unlink(&self, name: &[u8], who: &Credentials) -> Result<()> {
        self.system.remove(self.place(name), false, who)
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY, EACCES, EPERM.
    pub fn rmdir(&self, name: &[u8], who: &Credentials) -> Result<()> {
        self.system.remove(self.place(name), true, who)
    }

    /// Moves a name of this folder. All of it happens, or nothing, also when the power is cut.
    ///
    /// # Errors
    /// Those of `renameat2`.
    pub fn rename(
        &self,
        name: &[u8],
        (to_folder, to_name): (&Self, &[u8]),
        how: Rename,
        who: &Credentials,
    ) -> Result<()> {
        self.check_same(to_folder)?;
        self.system.rename(self.place(name), to_folder.place(to_name), how, who)
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// EINVAL for anything else.
    pub fn target(&self) -> Result<Vec<u8>> {
        self.system.target(&self.node)
    }

    /// Shows the names of this folder, behind the one with `cookie`, or from the first one with 0, until it
    /// is told to stop. `.` and `..` come first. Names that come or go meanwhile may be shown or not; all
    /// others are shown once.
    ///
    /// # Errors
    /// ENOTDIR; [`Error::Damaged`], [`Error::Device`].
    pub fn list(&self, cookie: u64, mut show: impl FnMut(Entry) -> ControlFlow<()>) -> Result<()> {
        let state = read(&self.node.state);
        if !state.inode.is_folder() {
            return Err(Errno::NOTDIR.into());
        }
        for (own, ino, name) in [(1, self.node.ino, "."), (2, state.inode.parent, "..")] {
            let entry = Entry { cookie: own, ino, file_type: FileType::Directory, name: name.into() };
            if cookie < own && show(entry).is_break() {
                return Ok(());
            }
        }
        if state.inode.tree == 0 {
            return Ok(());
        }
        let tree = Tree { root: state.inode.tree, owner: self.node.ino };
        tree.visit(&self.system.buffers, cookie + 1, |key, value| match Target::parse(value) {
            Some((target, name)) => {
                show(Entry { cookie: key, ino: target.ino, file_type: target.file_type, name: name.to_vec() })
            }
            None => ControlFlow::Continue(()),
        })
    }

    /// Nobody changes an inode that is free again.
    fn check_there(state: &State) -> Result<()> {
        if state.is_gone { Err(Errno::STALE.into()) } else { Ok(()) }
    }

    fn check_file(inode: &Inode) -> Result<()> {
        match inode.file_type() {
            FileType::RegularFile => Ok(()),
            FileType::Directory => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Reads from `offset` on. Returns how many bytes there were.
    ///
    /// # Errors
    /// EISDIR, EINVAL; [`Error::Device`].
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.with_extents(|state| self.system.read(state, offset, out))
    }

    /// The next data, or the next hole.
    ///
    /// # Errors
    /// ENXIO behind the last one.
    pub fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        self.with_extents(|state| self.system.seek(state, offset, what))
    }

    /// Looks at a regular file while nobody changes it.
    fn with_extents<R>(&self, act: impl FnOnce(&State) -> Result<R>) -> Result<R> {
        let state = read(&self.node.state);
        Self::check_file(&state.inode)?;
        if state.extents.is_some() {
            return act(&state);
        }
        drop(state);
        let mut state = write(&self.node.state);
        self.system.load_extents(self.node.ino, &mut state)?;
        act(&state)
    }

    fn change_data<R>(&self, act: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        self.system.check_writable()?;
        let mut state = write(&self.node.state);
        Self::check_there(&state)?;
        Self::check_file(&state.inode)?;
        act(&mut state)
    }

    /// Writes at `offset`, and returns how many bytes were written: fewer when the device gets full. They are
    /// on the device when this returns, and durable after [`Vnode::sync_data`].
    ///
    /// # Errors
    /// EFBIG, ENOSPC, EISDIR, EROFS; [`Error::Device`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.change_data(|state| self.system.write(&self.node, state, offset, data))
    }

    /// Writes behind the end: `O_APPEND`. Returns where, and how many bytes.
    ///
    /// # Errors
    /// As [`Vnode::write_at`].
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        self.change_data(|state| {
            let end = state.inode.size;
            Ok((end, self.system.write(&self.node, state, end, data)?))
        })
    }

    /// Sets the size.
    ///
    /// # Errors
    /// EFBIG, EISDIR, EINVAL, EROFS; [`Error::Device`].
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.change_data(|state| self.system.truncate(&self.node, state, size))
    }

    /// `fallocate` on the bytes of `range`.
    ///
    /// # Errors
    /// ENOSPC, EFBIG, EINVAL for an empty range; [`Error::Device`].
    pub fn allocate(&self, range: Range<u64>, what: Allocation) -> Result<()> {
        self.change_data(|state| self.system.allocate(&self.node, state, range, what))
    }

    /// Makes everything about the file durable: `fsync`.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::ReadOnly`].
    pub fn sync(&self) -> Result<()> {
        self.system.fsync(&self.node, true)
    }

    /// Makes the data durable, and what is needed to read them: `fdatasync`.
    ///
    /// # Errors
    /// As [`Vnode::sync`].
    pub fn sync_data(&self) -> Result<()> {
        self.system.fsync(&self.node, false)
    }
}

/// Changes what is not data, if `who` may.
fn change(inode: &mut Inode, new: &NewAttributes, who: &Credentials) -> Result<()> {
    let not_permitted = || Err(Error::Posix(Errno::PERM));
    if new.uid.is_some() || new.gid.is_some() {
        let (uid, gid) = (new.uid.unwrap_or(inode.uid), new.gid.unwrap_or(inode.gid));
        let is_own = who.uid == inode.uid && uid == inode.uid && (gid == inode.gid || who.is_in(gid));
        if !who.is_root() && !is_own {
            return not_permitted();
        }
        if inode.is_file() && inode.mode & 0o111 != 0 || !who.is_root() {
            inode.mode = crate::data::without_set_id(inode.mode);
        }
        (inode.uid, inode.gid) = (uid, gid);
    }
    if let Some(permissions) = new.permissions {
        if !who.owns(inode) {
            return not_permitted();
        }
        let mut permissions = permissions & 0o7777;
        if !who.is_root() && !who.is_in(inode.gid) {
            permissions &= !0o2000;
        }
        inode.mode = inode.file_type().as_raw_mode() | permissions;
    }
    if new.accessed.is_some() || new.modified.is_some() {
        if !who.owns(inode) {
            return not_permitted();
        }
        inode.accessed = new.accessed.unwrap_or(inode.accessed);
        inode.modified = new.modified.unwrap_or(inode.modified);
    }
    Ok(())
}

impl Clone for Vnode {
    fn clone(&self) -> Self {
        self.with(Arc::clone(&self.node))
    }
}

impl Drop for Vnode {
    fn drop(&mut self) {
        if self.node.pins.fetch_sub(1, Ordering::AcqRel) == 1 && !self.system.is_read_only {
            let has_names = self.node.state.try_read().is_ok_and(|state| state.inode.links > 0);
            if !has_names && self.system.journal.check_alive().is_ok() {
                self.system.reap_idle(&self.node);
            }
        }
    }
}

//! A file that somebody has: what POSIX does with it.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FileType;
use rustix::io::Errno;
use unvme::lock::read;

use crate::access::{self, Credentials};
use crate::data::{Allocation, Seek};
use crate::directory::Target;
use crate::error::{Error, Result};
use crate::layout::{BLOCK, Inode, Kinds, Time};
use crate::locks::Lock;
use crate::names::{NewFile, Place};
use crate::node::{Node, State};
use crate::pagecache::FileSettings;
use crate::privileges::{self, SET_ID};
use crate::rename::Rename;
use crate::space::Need;
use crate::system::Grip;
use crate::tree::Tree;
use crate::xattrs::SetXattr;

/// A file, a directory, or anything else that can have a name. As long as somebody has one, the file is
/// there, whether it has names or not.
pub struct Vnode {
    system: Arc<Grip>,
    node: Arc<Node>,
}

/// What `stat` tells.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Attributes {
    /// Inode number.
    pub ino: u64,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Names; of a directory 2, and one for each directory in it.
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

/// Consecutive blocks of a file that are consecutive on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Where it is in the file, in bytes.
    pub offset: u64,
    /// Where it is on the device, in bytes.
    pub device_offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// It has no data yet, and reads as zeros.
    pub is_unwritten: bool,
}

/// A name of a directory.
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
    pub(crate) fn new(system: &Arc<Grip>, node: Arc<Node>) -> Self {
        node.pins.fetch_add(1, Ordering::AcqRel);
        Self { system: system.own(), node }
    }

    pub(crate) fn with(&self, node: Arc<Node>) -> Self {
        Self::new(&self.system, node)
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    fn place<'a>(&'a self, name: &'a [u8]) -> Place<'a> {
        Place { directory: &self.node, name }
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.node.ino
    }

    /// The type.
    pub fn file_type(&self) -> FileType {
        self.node.file_type
    }

    /// Where the data of a regular file are. What waits to be written is written first.
    ///
    /// # Errors
    /// As [`Vnode::read_at`].
    pub fn extents(&self) -> Result<Vec<FileExtent>> {
        if !read(&self.node.state).cache.dirty().is_empty() {
            self.system.write_back(&self.node, &mut self.node.lock())?;
        }
        let bytes = |blocks: u64| blocks * BLOCK as u64;
        self.with_extents(|state| {
            let extents = state.extents.iter().flat_map(|extents| extents.iter());
            let shown = extents.map(|(at, extent)| FileExtent {
                offset: bytes(at),
                device_offset: bytes(extent.start),
                bytes: bytes(extent.blocks),
                is_unwritten: extent.is_unwritten,
            });
            Ok(shown.collect())
        })
    }

    /// What `stat` tells.
    pub fn attributes(&self) -> Attributes {
        let state = read(&self.node.state);
        attributes(&self.node, &state)
    }

    /// Whether somebody may do what [`crate::READ`], [`crate::WRITE`] and [`crate::EXECUTE`] say.
    ///
    /// # Errors
    /// EACCES.
    pub fn check_access(&self, who: &Credentials, wanted: u32) -> Result<()> {
        access::check(&read(&self.node.state).inode, who, wanted)
    }

    /// Whether somebody is its owner, or root.
    pub(crate) fn is_owned_by(&self, who: &Credentials) -> bool {
        who.owns(&read(&self.node.state).inode)
    }

    /// Changes what is not data.
    ///
    /// # Errors
    /// EPERM when `who` may not; EROFS; [`Error::Device`].
    pub fn set_attributes(&self, new: &NewAttributes, who: &Credentials) -> Result<()> {
        self.system.check_writable()?;
        let mut state = self.node.lock();
        Self::check_not_gone(&state)?;
        let mut inode = state.inode.clone();
        change(&mut inode, new, who)?;
        let is_chown = new.uid.is_some() || new.gid.is_some();
        let loses = is_chown && !inode.is_directory();
        if loses && self.system.drop_capabilities(&self.node, &mut state)? {
            (inode.xattrs, inode.blocks) = (state.inode.xattrs, state.inode.blocks);
        }
        if inode.mode & SET_ID != 0 {
            self.node.may_grant.store(true, Ordering::Relaxed);
        }
        inode.changed = Time::now();
        self.system.transact_on(&mut state, Need::Delete, 0, |tx, state| {
            state.inode = inode;
            self.system.log(tx, self.node.ino, state)
        })
    }

    /// Whether a change of the content may have something to remove by [`Vnode::drop_privileges`]: an answer
    /// without a lock, which may be wrong if it is yes.
    #[inline]
    pub fn may_grant_privileges(&self) -> bool {
        self.node.may_grant.load(Ordering::Relaxed)
    }

    /// Removes what a change of the content by `who` takes away, before the change: the set-id bits unless
    /// `who` is root, and the capabilities of `security.capability` (`file_remove_privs` of the kernel).
    /// [`Vnode::write_at`] and the other operations on data do not: they do not know who asks.
    ///
    /// # Errors
    /// EROFS; [`Error::Damaged`], [`Error::Device`].
    pub fn drop_privileges(&self, who: &Credentials) -> Result<()> {
        if self.may_grant_privileges() { self.system.drop_privileges(&self.node, who) } else { Ok(()) }
    }

    /// What a name in this directory leads to; `.` and `..` are names.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES, ENAMETOOLONG.
    pub fn lookup(&self, name: &[u8], who: &Credentials) -> Result<Self> {
        let found = self.with(self.system.lookup(&self.node, name, who)?);
        found.check_there()?;
        Ok(found)
    }

    /// From here on it stays; somebody may have removed it just before.
    pub(crate) fn check_there(&self) -> Result<()> {
        if read(&self.node.state).is_gone { Err(Errno::NOENT.into()) } else { Ok(()) }
    }

    /// Makes a file with a name in this directory.
    ///
    /// # Errors
    /// EEXIST, ENOENT when the directory itself has no name any more, ENOTDIR, EACCES, ENOSPC, EINVAL.
    pub fn create(&self, name: &[u8], new: &NewFile<'_>, who: &Credentials) -> Result<Self> {
        self.system.create(&self.node, Some(name), new, who, |node| self.with(node))
    }

    /// Makes a regular file without a name: `O_TMPFILE`. [`Vnode::link`] can give it one.
    ///
    /// # Errors
    /// As [`Vnode::create`].
    pub fn create_unnamed(&self, permissions: u32, who: &Credentials) -> Result<Self> {
        if self.node.file_type != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        self.system.create(&self.node, None, &NewFile::regular(permissions), who, |node| self.with(node))
    }

    /// Sees to it that a file without a name does not get one (`O_TMPFILE | O_EXCL`).
    pub(crate) fn stay_nameless(&self) {
        self.node.lock().stays_nameless = true;
    }

    /// Gives this file another name, in a directory of the same file system.
    ///
    /// # Errors
    /// EEXIST, EPERM for a directory, EMLINK, EACCES, ENOSPC, EXDEV; ENOENT for one whose last name was
    /// removed.
    pub fn link(&self, directory: &Self, name: &[u8], who: &Credentials) -> Result<()> {
        self.check_same(directory)?;
        self.system.link(&self.node, directory.place(name), who)
    }

    /// Whether it belongs to a file system.
    pub(crate) fn is_of(&self, system: &Grip) -> bool {
        self.system.is_same(system)
    }

    fn check_same(&self, other: &Self) -> Result<()> {
        if self.system.is_same(&other.system) { Ok(()) } else { Err(Errno::XDEV.into()) }
    }

    /// Removes a name that leads to anything but a directory.
    ///
    /// # Errors
    /// ENOENT, EISDIR, EACCES, EPERM.
    pub fn unlink(&self, name: &[u8], who: &Credentials) -> Result<()> {
        self.system.remove(self.place(name), false, who)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY, EACCES, EPERM.
    pub fn rmdir(&self, name: &[u8], who: &Credentials) -> Result<()> {
        self.system.remove(self.place(name), true, who)
    }

    /// Moves a name of this directory. All of it happens, or nothing, also when the power is cut.
    ///
    /// # Errors
    /// Those of `renameat2`.
    pub fn rename(
        &self,
        name: &[u8],
        (to_directory, to_name): (&Self, &[u8]),
        how: Rename,
        who: &Credentials,
    ) -> Result<()> {
        self.check_same(to_directory)?;
        self.system.rename(self.place(name), to_directory.place(to_name), how, who)
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// EINVAL for anything else.
    pub fn target(&self) -> Result<Vec<u8>> {
        self.system.target(&self.node)
    }

    /// Shows the names of this directory, behind the one with `cookie`, or from the first one with 0, until
    /// it is told to stop. `.` and `..` come first. Names that come or go meanwhile may be shown or not; all
    /// others are shown once.
    ///
    /// # Errors
    /// ENOTDIR; [`Error::Damaged`], [`Error::Device`].
    pub fn list(&self, cookie: u64, mut show: impl FnMut(Entry) -> ControlFlow<()>) -> Result<()> {
        let state = read(&self.node.state);
        if !state.inode.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        self.system.note_read(&self.node, &state);
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
    fn check_not_gone(state: &State) -> Result<()> {
        if state.is_gone { Err(Errno::STALE.into()) } else { Ok(()) }
    }

    fn check_file(&self) -> Result<()> {
        match self.node.file_type {
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
        if self.system.cache.is_off() || self.node.switches.direct_read.load(Ordering::Relaxed) {
            return self.read_direct(offset, out);
        }
        self.check_file()?;
        let done = self.system.read_buffered(&self.node, offset, out)?;
        if !self.node.switches.retain.load(Ordering::Relaxed) {
            let pages = offset / BLOCK as u64..(offset + done as u64) / BLOCK as u64;
            let mut state = self.node.lock();
            self.system.expel_pages(&self.node, &mut state, pages)?;
        }
        Ok(done)
    }

    /// As [`Vnode::read_at`], from the device, past the cache: `O_DIRECT`, of any alignment.
    ///
    /// # Errors
    /// As [`Vnode::read_at`].
    pub fn read_direct(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let pages = offset / BLOCK as u64..offset.saturating_add(out.len() as u64).div_ceil(BLOCK as u64);
        let done = self.with_extents(|state| {
            if state.cache.dirty().range(pages.clone()).next().is_some() {
                return Ok(None);
            }
            self.system.note_read(&self.node, state);
            self.system.read_device(state, offset, out).map(Some)
        })?;
        match done {
            Some(bytes) => Ok(bytes),
            None => {
                let mut state = self.node.lock();
                self.system.write_back(&self.node, &mut state)?;
                self.system.load_extents(self.node.ino, &mut state)?;
                self.system.read_device(&state, offset, out)
            }
        }
    }

    /// The next data, or the next hole.
    ///
    /// # Errors
    /// ENXIO behind the last one.
    pub fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        if !read(&self.node.state).cache.dirty().is_empty() {
            self.system.write_back(&self.node, &mut self.node.lock())?;
        }
        self.with_extents(|state| self.system.seek(state, offset, what))
    }

    /// Looks at a regular file while nobody changes it.
    fn with_extents<R>(&self, act: impl FnOnce(&State) -> Result<R>) -> Result<R> {
        self.check_file()?;
        let state = read(&self.node.state);
        if state.extents.is_some() {
            return act(&state);
        }
        drop(state);
        let mut state = self.node.lock();
        self.system.load_extents(self.node.ino, &mut state)?;
        act(&state)
    }

    fn change_data<R>(&self, act: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        self.system.check_writable()?;
        self.check_file()?;
        let mut state = self.node.lock();
        Self::check_not_gone(&state)?;
        let done = act(&mut state);
        drop(state);
        if self.system.cache.is_too_dirty() {
            self.system.write_back_some();
        }
        done
    }

    fn is_direct_write(&self) -> bool {
        self.system.cache.is_off() || self.node.switches.direct_write.load(Ordering::Relaxed)
    }

    /// Writes at `offset`, and returns how many bytes were written: fewer when the device gets full. They are
    /// durable after [`Vnode::sync_data`].
    ///
    /// # Errors
    /// EFBIG, ENOSPC, EISDIR, EROFS; [`Error::Device`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        if self.is_direct_write() {
            return self.write_direct(offset, data);
        }
        self.change_data(|state| self.system.write(&self.node, state, offset, data, false))
    }

    /// As [`Vnode::write_at`], to the device, past the cache: `O_DIRECT`, of any alignment. The data are on
    /// the device when this returns. Whole blocks that are there already are written beside other readers and
    /// writers.
    ///
    /// # Errors
    /// As [`Vnode::write_at`].
    pub fn write_direct(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.system.check_writable()?;
        let shared = {
            let state = read(&self.node.state);
            let is_file = state.inode.is_file() && !state.is_gone;
            is_file.then(|| self.system.overwrite(&self.node, &state, offset, data)).flatten()
        };
        match shared {
            Some(done) => done,
            None => self.change_data(|state| self.system.write(&self.node, state, offset, data, true)),
        }
    }

    /// Writes behind the end: `O_APPEND`. Returns where, and how many bytes.
    ///
    /// # Errors
    /// As [`Vnode::write_at`].
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        let is_direct = self.is_direct_write();
        self.change_data(|state| {
            let end = state.size;
            Ok((end, self.system.write(&self.node, state, end, data, is_direct)?))
        })
    }

    /// Copies bytes of this file to another one, or to itself: `copy_file_range`. Returns how many there
    /// were.
    ///
    /// # Errors
    /// EINVAL when the ranges are of the same file and overlap; those of reading and writing.
    pub fn copy_range(&self, offset: u64, to: &Self, to_offset: u64, bytes: u64) -> Result<u64> {
        const PIECE: u64 = 1 << 20;
        let bytes = self.copied_bytes(offset, to, to_offset, bytes)?;
        let mut buffer = vec![0; bytes.min(PIECE) as usize];
        let mut done = 0;
        while done < bytes {
            let some = (bytes - done).min(PIECE) as usize;
            let there = match self.read_at(offset + done, &mut buffer[..some]) {
                Err(_) if done > 0 => break,
                other => other?,
            };
            if there == 0 {
                break;
            }
            let written = match to.write_at(to_offset + done, &buffer[..there]) {
                Err(_) if done > 0 => break,
                other => other?,
            };
            done += written as u64;
            if written < there {
                break;
            }
        }
        Ok(done)
    }

    /// How many bytes [`Vnode::copy_range`] would copy at most.
    pub(crate) fn copied_bytes(&self, offset: u64, to: &Self, to_offset: u64, bytes: u64) -> Result<u64> {
        self.check_same(to)?;
        // What the copy itself adds behind the end is not copied.
        let bytes = bytes.min(self.attributes().size.saturating_sub(offset));
        let overlaps = offset < to_offset.saturating_add(bytes) && to_offset < offset + bytes;
        if self.node.ino == to.node.ino && overlaps {
            return Err(Errno::INVAL.into());
        }
        Ok(bytes)
    }

    /// How the file uses the page cache.
    pub fn settings(&self) -> FileSettings {
        self.node.switches.get()
    }

    /// Has the file use the page cache in another way, for as long as somebody has it.
    ///
    /// # Errors
    /// [`Error::Format`] for a number that cannot be.
    pub fn set_settings(&self, new: &FileSettings) -> Result<()> {
        new.check()?;
        self.node.switches.set(new);
        Ok(())
    }

    /// Brings `range` into memory, or as much of it as a quarter of the cache holds (`POSIX_FADV_WILLNEED`).
    ///
    /// # Errors
    /// As [`Vnode::read_at`].
    pub fn prefetch(&self, range: Range<u64>) -> Result<()> {
        self.check_file()?;
        self.system.prefetch(&self.node, range)
    }

    /// Writes the pages of the file that wait for it. They are durable with the next [`Vnode::sync`]
    /// (`sync_file_range`).
    ///
    /// # Errors
    /// As [`Vnode::write_at`].
    pub fn write_back(&self) -> Result<()> {
        self.check_file()?;
        self.system.write_back(&self.node, &mut self.node.lock())
    }

    /// Gives up the pages of the file that are in memory; those that wait to be written are written first.
    ///
    /// # Errors
    /// As [`Vnode::write_at`].
    pub fn drop_cache(&self) -> Result<()> {
        self.system.expel_pages(&self.node, &mut self.node.lock(), 0..u64::MAX)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// ENODATA, EACCES, EOPNOTSUPP for a name of no known class.
    pub fn xattr(&self, name: &[u8], who: &Credentials) -> Result<Vec<u8>> {
        self.system.get_xattr(&self.node, name, who)
    }

    /// The names of all extended attributes that `who` may know of.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Device`].
    pub fn xattrs(&self, who: &Credentials) -> Result<Vec<Vec<u8>>> {
        self.system.list_xattrs(&self.node, who)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// EEXIST, ENODATA by `how`; E2BIG, ENOSPC, EPERM, EACCES, EOPNOTSUPP.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], how: SetXattr, who: &Credentials) -> Result<()> {
        self.system.set_xattr(&self.node, name, Some(value), how, who)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// ENODATA, EPERM, EACCES.
    pub fn remove_xattr(&self, name: &[u8], who: &Credentials) -> Result<()> {
        self.system.set_xattr(&self.node, name, None, SetXattr::Any, who)
    }

    /// Takes an advisory lock on bytes, in place of what its owner has there: `fcntl(F_SETLK)`, or `F_SETLKW`
    /// when it `waits`.
    ///
    /// # Errors
    /// EAGAIN when somebody is in the way; EDEADLK; EINVAL.
    pub fn lock(&self, lock: Lock, waits: bool) -> Result<()> {
        self.node.locks.set(lock, false, waits)
    }

    /// Gives bytes `start..=end` back that an owner has locked; all of them, when the owner closes the file.
    pub fn unlock(&self, owner: u64, start: u64, end: u64) {
        self.node.locks.unset(owner, start, end, false);
    }

    /// A lock that would be in the way: `fcntl(F_GETLK)`.
    pub fn find_lock(&self, lock: &Lock) -> Option<Lock> {
        self.node.locks.find(lock)
    }

    /// Takes an advisory lock on the whole file: `flock`.
    ///
    /// # Errors
    /// As [`Vnode::lock`].
    pub fn flock(&self, owner: u64, kind: crate::LockKind, waits: bool) -> Result<()> {
        self.node.locks.set(Lock { owner, kind, start: 0, end: u64::MAX }, true, waits)
    }

    /// Ranges that an owner has locked.
    pub(crate) fn locks_of(&self, owner: u64) -> Vec<Lock> {
        self.node.locks.of(owner, false)
    }

    /// The lock of the whole file, if an owner has it.
    pub(crate) fn flock_of(&self, owner: u64) -> Option<Lock> {
        self.node.locks.of(owner, true).pop()
    }

    /// Gives the lock of the whole file back.
    pub fn funlock(&self, owner: u64) {
        self.node.locks.unset(owner, 0, u64::MAX, true);
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

pub(crate) fn attributes(node: &Node, state: &State) -> Attributes {
    let inode = &state.inode;
    let later = |time: Time, at: &AtomicU64| match at.load(Ordering::Relaxed) {
        0 => time,
        at => time.max(Time::from_nanoseconds(at)),
    };
    Attributes {
        ino: node.ino,
        mode: inode.mode,
        links: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        size: if inode.is_directory() { inode.blocks * BLOCK as u64 } else { state.size },
        sectors: (inode.blocks + state.cache.marked()) * (BLOCK as u64 / 512),
        rdev: inode.rdev,
        generation: inode.generation,
        accessed: later(inode.accessed, &node.read),
        modified: later(inode.modified, &node.written),
        changed: later(inode.changed, &node.written),
        created: inode.created,
    }
}

/// What `stat` tells; `None` when its inode is free again.
pub(crate) fn attributes_of(node: &Node) -> Option<Attributes> {
    let state = read(&node.state);
    (!state.is_gone).then(|| attributes(node, &state))
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
        if !inode.is_directory() {
            inode.mode &= !privileges::lost_with_owner(inode, who);
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

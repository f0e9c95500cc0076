//! Who asks: with what it has open and locked.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use unvme::lock::{lock, read, write};

use super::acting::acting;
use super::maps::{Held, Maps};
use super::path_of::path_of;
use super::paths::{Path, truncates};
use super::waiting::Waits;
use super::watched::{Watches, Watching};
use super::{At, FileHandle, Listed, NewTime, OpenId, Range, Reply, Request};
use crate::access::Credentials;
use crate::data::{Allocation, SIZE_MAX, Seek};
use crate::error::{Error, Result};
use crate::layout::Time;
use crate::locks::{Lock, LockKind};
use crate::names::NewFile;
use crate::paths::Walk;
use crate::rename::Rename;
use crate::system::FileSystem;
use crate::vnode::{Attributes, NewAttributes, Vnode};
use crate::xattrs::SetXattr;

/// Files that all processes together may have open.
const OPENS_MAX: usize = 1 << 20;

/// A file that somebody has open: what POSIX calls an open file description, without its offset.
struct Open {
    node: Vnode,
    flags: OFlags,
    /// Processes that have it.
    holders: usize,
}

/// A file that a process had when it ended, and the open file when nobody else has that.
struct Ended(Vnode, Option<OpenId>);

/// All processes that use a mounted file system, and what they have open.
pub struct Processes {
    fs: FileSystem,
    opens: RwLock<HashMap<OpenId, Open>>,
    /// Process identifiers, for those who ask who has a lock.
    pids: Mutex<BTreeMap<u64, u32>>,
    next: AtomicU64,
    pub(super) maps: Maps,
    waits: Waits,
}

/// A process that uses the file system. When it is dropped, its files are closed and its locks given back.
pub struct Process {
    all: Arc<Processes>,
    id: u64,
    held: Mutex<HashSet<OpenId>>,
    /// What it had when it ended, until calls of it that were under way have ended, too.
    ended: Mutex<Vec<Ended>>,
    pub(super) mapped: Held,
    pub(super) watching: Watching,
    who: RwLock<Arc<Credentials>>,
}

impl Processes {
    /// Nobody yet.
    pub fn new(fs: FileSystem) -> Arc<Self> {
        // What somebody had open at an earlier mount is nobody's here: no identifier comes twice, also where
        // two mounts follow each other at once.
        let next = AtomicU64::new(1 + (unvme::random::number() >> 32 << 28));
        Arc::new(Self {
            fs,
            opens: RwLock::default(),
            pids: Mutex::default(),
            next,
            maps: Maps::default(),
            waits: Waits::default(),
        })
    }

    /// The file system.
    pub fn fs(&self) -> &FileSystem {
        &self.fs
    }

    /// One more process.
    pub fn enter(self: &Arc<Self>, pid: u32, who: Credentials) -> Process {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.pids).insert(id, pid);
        let who = RwLock::new(Arc::new(who));
        let (held, mapped, watching) = Default::default();
        Process { all: Arc::clone(self), id, held, ended: Mutex::default(), mapped, watching, who }
    }

    /// From here on processes may [watch](Process::watch) files; the descriptor of their sizes. None when the
    /// cache of the file system is not shared.
    ///
    /// # Errors
    /// [`Error::Device`] when there is no memory.
    pub(crate) fn show(&self) -> Result<Option<BorrowedFd<'_>>> {
        if self.fs.shown_pages().is_none() {
            return Ok(None);
        }
        if self.maps.watches.get().is_none() {
            // Of two who make it at a time one is thrown away.
            let _ = self.maps.watches.set(Watches::new()?);
        }
        Ok(self.maps.watches.get().and_then(Watches::descriptor))
    }

    /// Whether anybody has a file mapped: then what is read and written goes by [`Process::call`].
    #[inline]
    pub fn is_any_mapped(&self) -> bool {
        self.maps.is_any()
    }

    /// What was stored to mapped files is in the files from here on.
    ///
    /// # Errors
    /// ENOSPC; those of the device.
    pub fn write_back_maps(&self) -> Result<()> {
        self.write_back_maps_while(&|| true)
    }

    /// As [`Processes::write_back_maps`], as long as it `goes_on`.
    pub(crate) fn write_back_maps_while(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        self.maps.write_back_all(goes_on)
    }

    /// Files that are open.
    pub fn opens(&self) -> usize {
        read(&self.opens).len()
    }

    fn owner_of_open(open: OpenId) -> u64 {
        open.0 << 1 | 1
    }

    /// A process has an open file no more. Returns the file when nobody has it: who drops it may wait for the
    /// device, which frees what has no name.
    fn release(&self, open: OpenId) -> Option<Vnode> {
        let mut opens = write(&self.opens);
        let found = opens.get_mut(&open)?;
        found.holders -= 1;
        if found.holders > 0 {
            return None;
        }
        let gone = opens.remove(&open)?;
        drop(opens);
        unlock(&gone.node, Self::owner_of_open(open));
        Some(gone.node)
    }
}

/// Gives back what somebody has locked of a file.
fn unlock(node: &Vnode, owner: u64) {
    node.unlock(owner, 0, u64::MAX);
    node.funlock(owner);
}

fn range_of(lock: &Lock) -> Range {
    Range {
        is_of_open: lock.owner & 1 != 0,
        is_exclusive: lock.kind == LockKind::Exclusive,
        start: lock.start,
        end: lock.end,
    }
}

impl Process {
    /// Another process that has the same files open: what `fork` makes. Locks of the process stay with the
    /// first one.
    pub fn fork(&self, pid: u32) -> Self {
        let child = self.all.enter(pid, Credentials::clone(&read(&self.who)));
        let held = lock(&self.held).clone();
        let mut opens = write(&self.all.opens);
        for open in &held {
            if let Some(found) = opens.get_mut(open) {
                found.holders += 1;
            }
        }
        drop(opens);
        *lock(&child.held) = held;
        self.copy_maps(&child);
        child
    }

    pub(super) fn watches(&self) -> Option<&Watches> {
        self.all.maps.watches.get()
    }

    pub(super) fn maps(&self) -> &Maps {
        &self.all.maps
    }

    pub(super) fn processes(&self) -> &Arc<Processes> {
        &self.all
    }

    /// It is another process from now on, or acts for another user.
    pub fn set_identity(&self, pid: u32, who: Credentials) {
        lock(&self.all.pids).insert(self.id, pid);
        *write(&self.who) = Arc::new(who);
    }

    /// In whose name the calling thread acts.
    fn who(&self) -> Arc<Credentials> {
        acting().unwrap_or_else(|| Arc::clone(&read(&self.who)))
    }

    /// Whether a process that is not trusted may [`Request::Adopt`] a file: its own, or, to read it, what it
    /// has mapped. An inode number leads past the directories that a path has to pass; `open_by_handle_at`
    /// asks for `CAP_DAC_READ_SEARCH` for the same reason.
    ///
    /// # Errors
    /// EACCES; those of reading the inode.
    pub(crate) fn check_adoption(&self, ino: u64, flags: u32) -> Result<()> {
        let is_readable = flags == OFlags::RDONLY.bits() && lock(&self.mapped).contains_key(&ino);
        let is_owned = || Ok::<_, Error>(self.all.fs.node(ino)?.is_owned_by(&self.who()));
        if is_readable || is_owned()? { Ok(()) } else { Err(Errno::ACCESS.into()) }
    }

    /// An open file, for those who are in the same process and want no request for everything.
    ///
    /// # Errors
    /// EBADF.
    pub fn file(&self, open: OpenId) -> Result<Vnode> {
        if open == OpenId::ROOT {
            return self.all.fs.root();
        }
        if !lock(&self.held).contains(&open) {
            return Err(Errno::BADF.into());
        }
        read(&self.all.opens).get(&open).map(|found| found.node.clone()).ok_or(Error::Posix(Errno::BADF))
    }

    /// The file system.
    pub fn fs(&self) -> &FileSystem {
        &self.all.fs
    }

    /// Locks of byte ranges that it has, or that `open` has, on an open file.
    pub fn locks(&self, open: OpenId) -> Result<Vec<Range>> {
        let node = self.file(open)?;
        let owners = [self.id << 1, Processes::owner_of_open(open)];
        Ok(owners.iter().flat_map(|&owner| node.locks_of(owner)).map(|held| range_of(&held)).collect())
    }

    /// Whether `open` has the whole file (`flock`), and alone.
    pub fn flock(&self, open: OpenId) -> Result<Option<bool>> {
        let held = self.file(open)?.flock_of(Processes::owner_of_open(open));
        Ok(held.map(|held| held.kind == LockKind::Exclusive))
    }

    pub(super) fn open_file(&self, open: OpenId, wanted: OFlags) -> Result<Vnode> {
        self.open_data(open, wanted).map(|(node, _)| node)
    }

    /// As [`Process::open_file`], and whether it was opened with `O_DIRECT`.
    fn open_data(&self, open: OpenId, wanted: OFlags) -> Result<(Vnode, bool)> {
        let bad = || Error::Posix(Errno::BADF);
        if !lock(&self.held).contains(&open) {
            return Err(bad());
        }
        let opens = read(&self.all.opens);
        let found = opens.get(&open).ok_or_else(bad)?;
        let access = found.flags & OFlags::RWMODE;
        let can = found.flags & OFlags::PATH != OFlags::PATH && (access == OFlags::RDWR || access == wanted);
        if can { Ok((found.node.clone(), found.flags.contains(OFlags::DIRECT))) } else { Err(bad()) }
    }

    /// Removes what gives privileges before that many bytes of a file change, in the name of the caller.
    fn drop_privileges(&self, node: &Vnode, bytes: u64) -> Result<()> {
        if bytes > 0 && node.may_grant_privileges() { node.drop_privileges(&self.who()) } else { Ok(()) }
    }

    /// Does what a request says. `input` is what is to be written, `output` room for what is read.
    ///
    /// # Errors
    /// Those of the call.
    pub fn call(&self, request: &Request<'_>, input: &[u8], output: &mut [u8]) -> Result<Reply> {
        match request {
            Request::Read { open, offset } => {
                let (node, is_direct) = self.open_data(*open, OFlags::RDONLY)?;
                // What programs have stored to a mapping is in its memory alone.
                let read = match is_direct && !self.maps().is_any() {
                    true => node.read_direct(*offset, output)?,
                    false => self.maps().read_at(&node, *offset, output)?,
                };
                Ok(Reply::Number(read as u64))
            }
            Request::Write { open, offset } => {
                let (node, is_direct) = self.open_data(*open, OFlags::WRONLY)?;
                let write = || {
                    self.drop_privileges(&node, input.len() as u64)?;
                    match is_direct {
                        true => node.write_direct(*offset, input),
                        false => node.write_at(*offset, input),
                    }
                };
                let end = offset.saturating_add(input.len() as u64);
                let written = self.maps().change(&node, end, write, |memory, &written| {
                    memory.write_at(*offset, &input[..written])
                })?;
                Ok(Reply::Number(written as u64))
            }
            Request::Append { open } => {
                let node = self.open_file(*open, OFlags::WRONLY)?;
                let append = || {
                    self.drop_privileges(&node, input.len() as u64)?;
                    node.append(input)
                };
                let (at, written) =
                    self.maps().change(&node, u64::MAX, append, |memory, &(at, written)| {
                        memory.write_at(at, &input[..written])
                    })?;
                Ok(Reply::Appended(at, written as u64))
            }
            Request::Close { open } => self.close(*open),
            Request::Release { open } => self.release(*open),
            Request::CloseOne { open } => self.give_back(*open),
            Request::SyncAll => {
                self.all.maps.write_back_all(&|| true)?;
                self.all.fs.sync().map(|()| Reply::Done)
            }
            Request::Usage => {
                let identity = self.all.fs.description().uuid.first_chunk::<8>().copied().unwrap_or_default();
                Ok(Reply::Usage(self.all.fs.usage(), u64::from_le_bytes(identity)))
            }
            Request::Open { .. }
            | Request::Adopt { .. }
            | Request::Attributes { .. }
            | Request::Access { .. }
            | Request::ReadLink { .. }
            | Request::Make { .. }
            | Request::Remove { .. }
            | Request::Rename { .. }
            | Request::Link { .. } => self.call_on_names(request),
            Request::ChangeMode { .. }
            | Request::ChangeOwner { .. }
            | Request::ChangeTimes { .. }
            | Request::Truncate { .. }
            | Request::GetXattr { .. }
            | Request::SetXattr { .. }
            | Request::RemoveXattr { .. }
            | Request::ListXattrs { .. } => self.call_on_attributes(request),
            _ => self.call_on_open(request),
        }
    }

    /// Finds the base of a path, and what the path leads to.
    fn on<R>(&self, at: &At<'_>, act: impl FnOnce(&Path<'_>) -> Result<R>) -> Result<R> {
        let base = self.file(at.base)?;
        let who = self.who();
        act(&Path::new(&self.all.fs, &who, &base, at))
    }

    /// The inode number of what a path leads to, if that is a file here.
    pub(super) fn ino_of(&self, at: &At<'_>) -> Option<u64> {
        let mut ino = None;
        let found = self.with(at, |node, _| {
            ino = Some(node.ino());
            Ok(Reply::Done)
        });
        found.ok().and(ino)
    }

    /// What a path leads to.
    fn with(&self, at: &At<'_>, act: impl FnOnce(&Vnode, &Credentials) -> Result<Reply>) -> Result<Reply> {
        self.on(at, |path| Ok(path.find()?.then(|found| act(&found, path.who))?.into()))
    }

    fn call_on_names(&self, request: &Request<'_>) -> Result<Reply> {
        match request {
            Request::Open { at, flags, mode } => {
                let flags = OFlags::from_bits_retain(*flags);
                self.on(at, |path| {
                    let opened = path.open(flags, *mode)?.then(|(node, is_new)| {
                        if truncates(flags, is_new) {
                            self.resize(&node, 0)?;
                        }
                        self.add(node, flags, is_new)
                    });
                    Ok(opened?.into())
                })
            }
            Request::Adopt { ino, generation, flags } => {
                let node = self.all.fs.node(*ino)?;
                if generation.is_some_and(|known| known != node.attributes().generation) {
                    return Err(Errno::STALE.into());
                }
                self.add(node, OFlags::from_bits_retain(*flags), false)
            }
            Request::Attributes { at } => self.with(at, |node, _| Ok(Reply::Attributes(node.attributes()))),
            Request::Access { at, wanted } => self.with(at, |node, who| {
                // F_OK asks for nothing.
                if *wanted & 7 != 0 {
                    node.check_access(who, *wanted & 7)?;
                }
                Ok(Reply::Done)
            }),
            Request::ReadLink { at } => {
                let at = At { follows: false, ..*at };
                self.with(&at, |node, _| Ok(Reply::Bytes(node.target()?)))
            }
            Request::Make { at, mode, rdev, target } => {
                let file_type = FileType::from_raw_mode(*mode);
                let new = NewFile { file_type, permissions: *mode & 0o7777, rdev: *rdev, target };
                self.on(at, |path| Ok(path.make(&new)?.then(|_| Ok(Reply::Done))?.into()))
            }
            Request::Remove { at, is_directory } => {
                self.on(at, |path| Ok(path.remove(*is_directory)?.then(|()| Ok(Reply::Done))?.into()))
            }
            Request::Rename { from, to, flags } => {
                let how = Rename::from_flags(*flags)?;
                self.on_two(from, to, |from, to| from.rename(to, how))
            }
            Request::Link { from, to } => self.on_two(from, to, |from, to| from.link(to)),
            _ => Err(Errno::NOSYS.into()),
        }
    }

    fn on_two(
        &self,
        from: &At<'_>,
        to: &At<'_>,
        act: impl FnOnce(&Path<'_>, &Path<'_>) -> Result<std::result::Result<(), (bool, Vec<u8>)>>,
    ) -> Result<Reply> {
        let done = self.on(from, |from| self.on(to, |to| act(from, to)))?;
        Ok(match done {
            Ok(()) => Reply::Done,
            Err((is_second, path)) => Reply::Outside(is_second, path),
        })
    }

    fn call_on_attributes(&self, request: &Request<'_>) -> Result<Reply> {
        let set = |at: &At<'_>, new: &NewAttributes| {
            self.with(at, |node, who| {
                // What is stored to memory already is older.
                self.maps().write_back(node.ino())?;
                node.set_attributes(new, who).map(|()| Reply::Done)
            })
        };
        match request {
            Request::ChangeMode { at, mode } => {
                set(at, &NewAttributes { permissions: Some(*mode), ..NewAttributes::default() })
            }
            Request::ChangeOwner { at, uid, gid } => {
                set(at, &NewAttributes { uid: *uid, gid: *gid, ..NewAttributes::default() })
            }
            Request::ChangeTimes { at, accessed, modified } => self.change_times(at, *accessed, *modified),
            Request::Truncate { at, size } => self.with(at, |node, who| {
                if at.path.is_empty() {
                    // The open file says whether it may be written.
                    self.open_file(at.base, OFlags::WRONLY).map_err(|_| Errno::INVAL)?;
                } else {
                    node.check_access(who, crate::access::WRITE)?;
                }
                self.resize(node, *size).map(|()| Reply::Done)
            }),
            Request::GetXattr { at, name } => {
                self.with(at, |node, who| Ok(Reply::Bytes(node.xattr(name, who)?)))
            }
            Request::SetXattr { at, name, value, flags } => {
                let how = SetXattr::from_flags(*flags)?;
                self.with(at, |node, who| node.set_xattr(name, value, how, who).map(|()| Reply::Done))
            }
            Request::RemoveXattr { at, name } => {
                self.with(at, |node, who| node.remove_xattr(name, who).map(|()| Reply::Done))
            }
            Request::ListXattrs { at } => self.with(at, |node, who| {
                let mut names = Vec::new();
                for name in node.xattrs(who)? {
                    names.extend_from_slice(&name);
                    names.push(0);
                }
                Ok(Reply::Bytes(names))
            }),
            _ => Err(Errno::NOSYS.into()),
        }
    }

    /// `truncate`: a size that is not changed takes privileges away, too.
    fn resize(&self, node: &Vnode, size: u64) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        if node.may_grant_privileges() {
            node.drop_privileges(&self.who())?;
        }
        self.maps().resize(node, size)
    }

    fn change_times(&self, at: &At<'_>, accessed: NewTime, modified: NewTime) -> Result<Reply> {
        let now = Time::now();
        let time = |new| match new {
            NewTime::Keep => None,
            NewTime::Now => Some(now),
            NewTime::At(seconds, nanoseconds) => Some(Time { seconds, nanoseconds }),
        };
        let new =
            NewAttributes { accessed: time(accessed), modified: time(modified), ..NewAttributes::default() };
        self.with(at, |node, who| {
            self.maps().write_back(node.ino())?;
            let is_now = accessed == NewTime::Now && modified == NewTime::Now;
            let is_owner = who.uid == 0 || who.uid == node.attributes().uid;
            if is_now && !is_owner {
                node.check_access(who, crate::access::WRITE)?;
                // Who may write may have both times be now.
                let owner = Credentials { are_checked: true, ..who.clone() };
                return node.set_attributes(&new, &owner).map(|()| Reply::Done);
            }
            node.set_attributes(&new, who).map(|()| Reply::Done)
        })
    }

    fn call_on_open(&self, request: &Request<'_>) -> Result<Reply> {
        let end = |offset: u64, bytes: u64| if bytes == 0 { u64::MAX } else { offset.saturating_add(bytes) };
        match request {
            Request::Allocate { open, mode, offset, bytes } => {
                let node = self.open_file(*open, OFlags::WRONLY)?;
                let range = *offset..offset.checked_add(*bytes).ok_or(Error::Posix(Errno::FBIG))?;
                let how = Allocation::from_mode(*mode)?;
                let allocate = || {
                    self.drop_privileges(&node, *bytes)?;
                    node.allocate(range.clone(), how)
                };
                let done = self.maps().change(&node, range.end, allocate, |memory, ()| match how {
                    Allocation::Reserve { .. } => Ok(()),
                    Allocation::PunchHole | Allocation::ZeroRange { .. } => memory.clear(range.clone()),
                });
                done.map(|()| Reply::Done)
            }
            Request::Seek { open, offset, is_hole } => {
                let what = if *is_hole { Seek::Hole } else { Seek::Data };
                let node = self.file(*open)?;
                self.maps().write_back(node.ino())?;
                Ok(Reply::Number(node.seek(*offset, what)?))
            }
            Request::Copy { open, offset, to, to_offset, bytes } => {
                let from = self.open_file(*open, OFlags::RDONLY)?;
                let to = self.open_file(*to, OFlags::WRONLY)?;
                self.maps().write_back(from.ino())?;
                let copy = || {
                    let bytes = from.copied_bytes(*offset, &to, *to_offset, *bytes)?;
                    self.drop_privileges(&to, bytes)?;
                    from.copy_range(*offset, &to, *to_offset, bytes)
                };
                let end = to_offset.saturating_add(*bytes);
                let copied = self.maps().change(&to, end, copy, |memory, copied| {
                    memory.refresh(*to_offset..to_offset.saturating_add(*copied))
                })?;
                Ok(Reply::Number(copied))
            }
            Request::Sync { open, data_only } => {
                let node = self.file(*open)?;
                self.maps().write_back(node.ino())?;
                if *data_only { node.sync_data() } else { node.sync() }.map(|()| Reply::Done)
            }
            Request::WriteBack { open } => {
                let node = self.file(*open)?;
                self.maps().write_back(node.ino())?;
                node.write_back().map(|()| Reply::Done)
            }
            Request::Advise { open, offset, bytes, is_needed } => {
                let node = self.file(*open)?;
                let advised = match is_needed {
                    true => node.prefetch(*offset..end(*offset, *bytes).min(node.attributes().size)),
                    false => node.write_back().and_then(|()| node.drop_cache()),
                };
                advised.map(|()| Reply::Done)
            }
            Request::List { open, cookie, bytes } => self.list(*open, *cookie, *bytes),
            Request::Path { open } => Ok(Reply::Bytes(path_of(&self.all.fs, &self.file(*open)?)?)),
            _ => self.call_on_locks(request),
        }
    }

    fn call_on_locks(&self, request: &Request<'_>) -> Result<Reply> {
        let owner = |open: &OpenId, range: &Range| {
            if range.is_of_open { Processes::owner_of_open(*open) } else { self.id << 1 }
        };
        let kind = |is_exclusive| if is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
        let lock_of = |open: &OpenId, range: &Range| Lock {
            owner: owner(open, range),
            kind: kind(range.is_exclusive),
            start: range.start,
            end: range.end,
        };
        match request {
            Request::Lock { open, range } | Request::AwaitLock { open, range } => {
                let node = match range.is_exclusive {
                    true => self.open_file(*open, OFlags::WRONLY)?,
                    false => self.open_file(*open, OFlags::RDONLY)?,
                };
                let new = lock_of(open, range);
                let done = node.lock(new, false);
                if matches!(request, Request::AwaitLock { .. }) && !range.is_of_open {
                    self.note_waiting(&node, &new, &done)?;
                }
                done.map(|()| Reply::Done)
            }
            Request::Unlock { open, range } => {
                self.file(*open)?.unlock(owner(open, range), range.start, range.end);
                Ok(Reply::Done)
            }
            Request::FindLock { open, range } => {
                // Who has given up asks this: a thread that waits on will ask for the lock again.
                self.all.waits.remove(owner(open, range));
                let found = self.file(*open)?.find_lock(&lock_of(open, range));
                Ok(Reply::Lock(found.map(|held| {
                    let pid = lock(&self.all.pids).get(&(held.owner >> 1)).copied();
                    (range_of(&held), if held.owner & 1 == 0 { pid.unwrap_or(0) } else { 0 })
                })))
            }
            Request::Flock { open, is_exclusive } => {
                let (node, owner) = (self.file(*open)?, Processes::owner_of_open(*open));
                match is_exclusive {
                    Some(is_exclusive) => node.flock(owner, kind(*is_exclusive), false)?,
                    None => node.funlock(owner),
                }
                Ok(Reply::Done)
            }
            _ => Err(Errno::NOSYS.into()),
        }
    }

    /// Notes for whom a process waits that did not get a lock, or that it does not wait any more.
    fn note_waiting(&self, node: &Vnode, new: &Lock, done: &Result<()>) -> Result<()> {
        match done {
            Err(Error::Posix(Errno::AGAIN)) => match node.find_lock(new) {
                // Open files belong to nobody in particular, as Linux sees it.
                Some(held) if held.owner & 1 == 0 => self.all.waits.add(new.owner, held.owner),
                _ => Ok(()),
            },
            _ => {
                self.all.waits.remove(new.owner);
                Ok(())
            }
        }
    }

    /// Notes that a file is open.
    fn add(&self, node: Vnode, flags: OFlags, is_new: bool) -> Result<Reply> {
        let Attributes { ino, generation, mode, .. } = node.attributes();
        let open = OpenId(self.all.next.fetch_add(1, Ordering::Relaxed));
        let mut opens = write(&self.all.opens);
        if opens.len() >= OPENS_MAX {
            return Err(Errno::NFILE.into());
        }
        opens.insert(open, Open { node, flags, holders: 1 });
        drop(opens);
        lock(&self.held).insert(open);
        Ok(Reply::Opened(open, FileHandle { ino, generation }, mode, is_new))
    }

    fn close(&self, open: OpenId) -> Result<Reply> {
        self.give_back(open)?;
        self.release(open)
    }

    fn release(&self, open: OpenId) -> Result<Reply> {
        // Of two threads that close it at a time, one does.
        if !lock(&self.held).remove(&open) {
            return Err(Errno::BADF.into());
        }
        self.forget_watch(open);
        drop(self.all.release(open));
        Ok(Reply::Done)
    }

    /// Closes all open files but these: what `execve` does with those that are to be closed then.
    pub fn keep_only(&self, kept: &[OpenId]) {
        let kept: HashSet<OpenId> = kept.iter().copied().collect();
        let others: Vec<OpenId> = lock(&self.held).difference(&kept).copied().collect();
        for open in others {
            // Another thread may have been faster.
            let _ = self.close(open);
        }
    }

    /// It has ended: nobody finds anything of it open or locked from here on. What has to wait for the device
    /// is left to when it is dropped, and so are locks that calls get which are still under way.
    pub(crate) fn end(&self) {
        let held = std::mem::take(&mut *lock(&self.held));
        let mut ended = lock(&self.ended);
        for open in held {
            let Some(node) = read(&self.all.opens).get(&open).map(|found| found.node.clone()) else {
                continue;
            };
            unlock(&node, self.id << 1);
            let gone = self.all.release(open).map(|_| open);
            ended.push(Ended(node, gone));
        }
    }

    /// Any descriptor that is closed gives back what the process has locked of the file, but for one that
    /// only names it.
    fn give_back(&self, open: OpenId) -> Result<Reply> {
        let node = self.file(open)?;
        let is_name = |found: &Open| found.flags.contains(OFlags::PATH);
        if !read(&self.all.opens).get(&open).is_some_and(is_name) {
            node.unlock(self.id << 1, 0, u64::MAX);
        }
        Ok(Reply::Done)
    }

    fn list(&self, open: OpenId, cookie: u64, bytes: usize) -> Result<Reply> {
        /// What `struct dirent64` has beside the name and its NUL.
        const HEAD: usize = 19;
        let mut entries: Vec<Listed> = Vec::new();
        let mut left = bytes.min(1 << 20);
        let node = self.file(open)?;
        if node.file_type() == FileType::Directory && node.attributes().links == 0 {
            // It was removed, and `.` and `..` with it.
            return Ok(Reply::Entries(entries));
        }
        let mut is_full = false;
        node.list(cookie, |entry| {
            let size = (HEAD + entry.name.len() + 1).next_multiple_of(8);
            if size > left {
                is_full = true;
                return ControlFlow::Break(());
            }
            left -= size;
            let kind = (entry.file_type.as_raw_mode() >> 12) as u8;
            entries.push((entry.cookie, entry.ino, kind, entry.name));
            ControlFlow::Continue(())
        })?;
        if entries.is_empty() && is_full {
            return Err(Errno::INVAL.into());
        }
        Ok(Reply::Entries(entries))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        drop(self.forget_maps());
        self.forget_watches();
        for Ended(node, gone) in std::mem::take(&mut *lock(&self.ended)) {
            unlock(&node, self.id << 1);
            if let Some(open) = gone {
                unlock(&node, Processes::owner_of_open(open));
            }
        }
        self.all.waits.remove(self.id << 1);
        lock(&self.all.pids).remove(&self.id);
    }
}

impl From<Walk<()>> for Reply {
    fn from(walk: Walk<()>) -> Self {
        match walk {
            Walk::Found(()) => Self::Done,
            Walk::Outside(path) => Self::Outside(false, path),
        }
    }
}

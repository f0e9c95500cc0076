//! The file system as the kernel asks for it, by FUSE.
//!
//! The kernel checks permissions, keeps names and attributes for as long as it likes, and has the locks:
//! nobody else changes anything. Files and directories are not opened here: what the kernel knows stays until
//! it forgets it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use unvme::lock::lock;
use unvme_fs::{
    Allocation, Attributes, Credentials, Error, FileSystem, NewAttributes, NewFile, Rename, Seek, SetXattr,
    Time, Vnode,
};

use super::options::Synchronous;
use super::pages::Invalidator;
use super::privileges::drop_privileges;

/// How long the kernel may keep what it was told.
const KEEP: Duration = Duration::from_secs(3600);

/// The longest write, in bytes.
const WRITE_MAX: u32 = 1 << 20;

const SHARDS: usize = 64;

/// A file that the kernel knows.
#[derive(Default)]
struct KnownFile {
    /// `None` for an inode that could not be read when a listing named it.
    node: Option<Vnode>,
    /// Lookups that the kernel has not forgotten yet.
    lookups: u64,
    /// The kernel has read or written pages of it since it knows it, and may have them in its page cache.
    has_pages: bool,
}

/// Files that the kernel knows, by inode number.
type Known = HashMap<u64, KnownFile>;

/// The file system.
pub(super) struct Fuse {
    fs: FileSystem,
    known: Box<[Mutex<Known>]>,
    synchronous: Synchronous,
    invalidator: Invalidator,
}

thread_local! {
    /// Data on their way to the kernel.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

type Result<T> = std::result::Result<T, Errno>;

fn errno(error: Error) -> Errno {
    if !matches!(error, Error::Posix(_)) {
        tracing::debug!("{error}");
    }
    Errno::from_i32(error.errno().raw_os_error())
}

fn to_system(time: Time) -> SystemTime {
    let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole =
        if time.seconds >= 0 { UNIX_EPOCH.checked_add(seconds) } else { UNIX_EPOCH.checked_sub(seconds) };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

fn kind_of(file_type: unvme_fs::FileType) -> FileType {
    match file_type {
        unvme_fs::FileType::Directory => FileType::Directory,
        unvme_fs::FileType::Symlink => FileType::Symlink,
        unvme_fs::FileType::Fifo => FileType::NamedPipe,
        unvme_fs::FileType::Socket => FileType::Socket,
        unvme_fs::FileType::CharacterDevice => FileType::CharDevice,
        unvme_fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn attr(found: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(found.ino),
        size: found.size,
        blocks: found.sectors,
        atime: to_system(found.accessed),
        mtime: to_system(found.modified),
        ctime: to_system(found.changed),
        crtime: to_system(found.created),
        kind: kind_of(found.file_type()),
        perm: (found.mode & 0o7777) as u16,
        nlink: found.links,
        uid: found.uid,
        gid: found.gid,
        rdev: found.rdev as u32,
        blksize: 4096,
        flags: 0,
    }
}

/// The attributes of a negative entry, which FUSE marks by inode number 0.
const NOBODY: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};

/// The attributes of a name in a listing whose inode cannot be read. The size is out of range, so that the
/// kernel (`fuse_invalid_attr`) shows the name, keeps no attributes, and sends a FORGET; a kernel without
/// that check asks again before it uses them, because they expire at once ([`UNKNOWN_KEEP`]).
fn unknown(entry: &unvme_fs::Entry) -> FileAttr {
    FileAttr { ino: INodeNo(entry.ino), size: u64::MAX, kind: kind_of(entry.file_type), ..NOBODY }
}

/// How long the kernel may keep attributes that are not known.
const UNKNOWN_KEEP: Duration = Duration::ZERO;

/// A time of SETATTR. fuser 0.18 subtracts the nanoseconds of a time before 1970, which count forward from
/// its seconds (`struct timespec`): seconds and nanoseconds are what it has subtracted.
fn time_of(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::SpecificTime(time) => match time.duration_since(UNIX_EPOCH) {
            Ok(_) => Time::from(time),
            Err(before) => Time {
                seconds: 0i64.wrapping_sub_unsigned(before.duration().as_secs()),
                nanoseconds: before.duration().subsec_nanos(),
            },
        },
        TimeOrNow::Now => Time::now(),
    }
}

fn has(flags: OpenFlags, wanted: OFlags) -> bool {
    OFlags::from_bits_retain(flags.0 as u32).intersects(wanted)
}

impl Fuse {
    pub(super) fn new(
        fs: FileSystem,
        synchronous: Synchronous,
        invalidator: Invalidator,
    ) -> io::Result<Self> {
        let root = fs.root().map_err(|e| io::Error::other(e.to_string()))?;
        let known: Box<[Mutex<Known>]> = (0..SHARDS).map(|_| Mutex::default()).collect();
        let ino = root.ino();
        let first = KnownFile { node: Some(root), lookups: 1, has_pages: false };
        lock(&known[ino as usize % SHARDS]).insert(ino, first);
        Ok(Self { fs, known, synchronous, invalidator })
    }

    fn shard(&self, ino: u64) -> &Mutex<Known> {
        &self.known[ino as usize % SHARDS]
    }

    fn node(&self, ino: INodeNo) -> Result<Vnode> {
        if let Some(node) = lock(self.shard(ino.0)).get(&ino.0).and_then(|known| known.node.clone()) {
            return Ok(node);
        }
        self.fs.node(ino.0).map_err(errno)
    }

    /// The file of a request that reads or writes pages of the kernel's cache, before it does so.
    fn node_of_pages(&self, ino: INodeNo) -> Result<Vnode> {
        if let Some(known) = lock(self.shard(ino.0)).get_mut(&ino.0) {
            known.has_pages = true;
            if let Some(node) = &known.node {
                return Ok(node.clone());
            }
        }
        self.fs.node(ino.0).map_err(errno)
    }

    /// Whether the kernel may have pages of a file that it got before now.
    fn has_pages(&self, ino: INodeNo) -> bool {
        lock(self.shard(ino.0)).get(&ino.0).is_none_or(|known| known.has_pages)
    }

    /// The kernel is told of a file once more.
    fn tell(&self, node: &Vnode) -> (FileAttr, Generation) {
        let found = node.attributes();
        let mut shard = lock(self.shard(found.ino));
        let known = shard.entry(found.ino).or_default();
        known.node.get_or_insert_with(|| node.clone());
        known.lookups += 1;
        (attr(&found), Generation(found.generation.into()))
    }

    /// Counts a lookup of an inode that could not be read: the kernel takes it back with a FORGET.
    fn tell_unknown(&self, ino: u64) {
        lock(self.shard(ino)).entry(ino).or_default().lookups += 1;
    }

    fn forgotten(&self, ino: u64, times: u64) {
        let mut shard = lock(self.shard(ino));
        let gone = match shard.get_mut(&ino) {
            Some(known) => {
                known.lookups = known.lookups.saturating_sub(times);
                known.lookups == 0
            }
            None => false,
        };
        let node = gone.then(|| shard.remove(&ino));
        drop(shard);
        // What has no names any more is given up now, without the lock.
        drop(node);
    }

    fn who(req: &Request) -> Credentials {
        Credentials { uid: req.uid(), gid: req.gid(), are_checked: true, ..Credentials::default() }
    }

    fn make(&self, req: &Request, parent: INodeNo, name: &OsStr, new: &NewFile<'_>) -> Result<Vnode> {
        let directory = self.node(parent)?;
        let node = directory.create(name.as_bytes(), new, &Self::who(req)).map_err(errno)?;
        self.settle_names(&directory)?;
        Ok(node)
    }

    /// Makes changes of names in a directory durable, with `sync` or `dirsync`. Both directories of a
    /// renaming are changed by one transaction: either of them will do.
    fn settle_names(&self, directory: &Vnode) -> Result<()> {
        if self.synchronous == Synchronous::Nothing { Ok(()) } else { directory.sync().map_err(errno) }
    }

    /// Makes a change of a file durable, with `sync`.
    fn settle(&self, node: &Vnode) -> Result<()> {
        if self.synchronous == Synchronous::Everything { node.sync().map_err(errno) } else { Ok(()) }
    }

    /// Does something to a file, and makes it durable with `sync`.
    fn alter<R>(&self, ino: INodeNo, act: impl FnOnce(&Vnode) -> unvme_fs::Result<R>) -> Result<R> {
        let node = self.node(ino)?;
        let done = act(&node).map_err(errno)?;
        self.settle(&node)?;
        Ok(done)
    }

    /// Does something to the names of a directory, and makes it durable with `sync` or `dirsync`.
    fn alter_names(&self, ino: INodeNo, act: impl FnOnce(&Vnode) -> unvme_fs::Result<()>) -> Result<()> {
        let directory = self.node(ino)?;
        act(&directory).map_err(errno)?;
        self.settle_names(&directory)
    }

    fn enter(&self, made: Result<Vnode>, reply: ReplyEntry) {
        match made {
            Ok(node) => {
                let (attr, generation) = self.tell(&node);
                reply.entry(&KEEP, &attr, generation);
            }
            Err(e) => reply.error(e),
        }
    }

    fn change(
        &self,
        req: &Request,
        ino: INodeNo,
        size: Option<u64>,
        new: &NewAttributes,
    ) -> Result<FileAttr> {
        let node = self.node(ino)?;
        if let Some(size) = size {
            node.truncate(size).map_err(errno)?;
        }
        if *new != NewAttributes::default() {
            node.set_attributes(new, &Self::who(req)).map_err(errno)?;
        }
        self.settle(&node)?;
        Ok(attr(&node.attributes()))
    }

    fn sync(&self, ino: INodeNo, is_data: bool) -> Result<()> {
        let node = self.node(ino)?;
        if is_data { node.sync_data() } else { node.sync() }.map_err(errno)
    }

    fn write(&self, node: &Vnode, offset: u64, data: &[u8], flags: OpenFlags) -> Result<u32> {
        let is_direct = has(flags, OFlags::DIRECT);
        let written = if is_direct { node.write_direct(offset, data) } else { node.write_at(offset, data) };
        let written = written.map_err(errno)?;
        if has(flags, OFlags::DSYNC | OFlags::SYNC) || self.synchronous == Synchronous::Everything {
            node.sync_data().map_err(errno)?;
        }
        Ok(written as u32)
    }
}

fn answer(done: Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

fn answer_xattr(found: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match found {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(e) => reply.error(e),
    }
}

impl Filesystem for Fuse {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wanted in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_BIG_WRITES,
        ] {
            // An older kernel does without.
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(WRITE_MAX);
        let _ = config.set_max_readahead(WRITE_MAX);
        let _ = config.set_max_background(256);
        let _ = config.set_time_granularity(Duration::from_nanos(1));
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.node(parent).map(|at| at.lookup(name.as_bytes(), &Self::who(req)));
        match found {
            // Nobody but the kernel makes names: it remembers those that there are not, too.
            Ok(Err(Error::Posix(unvme_fs::Errno::NOENT))) => reply.entry(&KEEP, &NOBODY, Generation(0)),
            Ok(found) => self.enter(found.map_err(errno), reply),
            Err(e) => reply.error(e),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.forgotten(ino.0, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(ino) {
            Ok(node) => reply.attr(&KEEP, &attr(&node.attributes())),
            Err(e) => reply.error(e),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let new = NewAttributes {
            permissions: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            accessed: atime.map(time_of),
            modified: mtime.map(time_of),
        };
        match self.change(req, ino, size, &new) {
            Ok(attr) => reply.attr(&KEEP, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.node(ino).and_then(|node| node.target().map_err(errno)) {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(e),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let file_type = match unvme_fs::FileType::from_raw_mode(mode) {
            unvme_fs::FileType::Unknown => unvme_fs::FileType::RegularFile,
            known => known,
        };
        let new = NewFile { file_type, rdev: rdev.into(), ..NewFile::regular(mode & 0o7777 & !umask) };
        self.enter(self.make(req, parent, name, &new), reply);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let new = NewFile::directory(mode & 0o7777 & !umask);
        self.enter(self.make(req, parent, name, &new), reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.alter_names(parent, |at| at.unlink(name.as_bytes(), &Self::who(req))), reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.alter_names(parent, |at| at.rmdir(name.as_bytes(), &Self::who(req))), reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let new = NewFile {
            file_type: unvme_fs::FileType::Symlink,
            target: target.as_os_str().as_bytes(),
            ..NewFile::regular(0o777)
        };
        self.enter(self.make(req, parent, link_name, &new), reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = self.node(parent).and_then(|from| {
            let to = self.node(newparent)?;
            let how = Rename::from_flags(flags.bits()).map_err(errno)?;
            from.rename(name.as_bytes(), (&to, newname.as_bytes()), how, &Self::who(req)).map_err(errno)?;
            self.settle_names(&to)
        });
        answer(done, reply);
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let linked = self.node(ino).and_then(|node| {
            let directory = self.node(newparent)?;
            node.link(&directory, newname.as_bytes(), &Self::who(req)).map_err(errno)?;
            self.settle_names(&directory)?;
            Ok(node)
        });
        self.enter(linked, reply);
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // The kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // Only direct I/O has an owner: of a file that is open for it, pages may be mapped and read, too.
        let is_direct = lock_owner.is_some();
        let found = if is_direct { self.node(ino) } else { self.node_of_pages(ino) };
        let node = match found {
            Ok(node) => node,
            Err(e) => return reply.error(e),
        };
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size as usize {
                buffer.resize(size as usize, 0);
            }
            let out = &mut buffer[..size as usize];
            let done = if has(flags, OFlags::DIRECT) {
                node.read_direct(offset, out)
            } else {
                node.read_at(offset, out)
            };
            match done {
                Ok(bytes) => reply.data(&out[..bytes]),
                Err(e) => reply.error(errno(e)),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // A write of pages holds their locks until the reply, so nothing invalidates them before.
        let is_direct = lock_owner.is_some();
        let node = if is_direct { self.node(ino) } else { self.node_of_pages(ino) };
        let done = node.and_then(|node| Self::write(self, &node, offset, data, flags));
        if is_direct && self.has_pages(ino) {
            return self.invalidator.reply_after(ino, (offset, data.len()), done, reply);
        }
        match done {
            Ok(written) => reply.written(written),
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Closing a file promises nothing; the kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        answer(self.sync(ino, datasync), reply);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.node(ino).and_then(|node| {
            let add = |entry: unvme_fs::Entry| {
                let kind = kind_of(entry.file_type);
                match reply.add(INodeNo(entry.ino), entry.cookie, kind, OsStr::from_bytes(&entry.name)) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            };
            node.list(offset, add).map_err(errno)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        // Most replies have room for about that many.
        const SOME: usize = 32;
        let node = match self.node(ino) {
            Ok(node) => node,
            Err(e) => return reply.error(e),
        };
        let (mut from, mut is_empty) = (offset, true);
        loop {
            let mut entries = Vec::with_capacity(SOME);
            let take = |entry| {
                entries.push(entry);
                if entries.len() < SOME { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            if let Err(e) = node.list(from, take) {
                // An empty reply is the end of the directory. After a reply with names the kernel asks again
                // from the last of them, and gets the error then.
                return if is_empty { reply.error(errno(e)) } else { reply.ok() };
            }
            let Some(last) = entries.last() else { return reply.ok() };
            from = last.cookie;
            for entry in entries {
                let name = OsStr::from_bytes(&entry.name);
                // Listing needs no search permission; the kernel checks that for what follows.
                let found = match node.lookup(&entry.name, &Credentials::root()) {
                    Ok(found) => Some(found),
                    // Removed since it was listed.
                    Err(Error::Posix(unvme_fs::Errno::NOENT)) => continue,
                    // The name exists: LOOKUP and GETATTR report the error.
                    Err(e) => {
                        tracing::debug!("{name:?}: {e}");
                        None
                    }
                };
                let attributes = found.as_ref().map(Vnode::attributes);
                let (keep, attr, generation) = match &attributes {
                    Some(found) => (KEEP, attr(found), found.generation),
                    None => (UNKNOWN_KEEP, unknown(&entry), 0),
                };
                if reply.add(attr.ino, entry.cookie, name, &keep, &attr, Generation(generation.into())) {
                    return reply.ok();
                }
                is_empty = false;
                // The kernel counts no lookup of `.` and `..`.
                match found {
                    _ if entry.name == b"." || entry.name == b".." => {}
                    Some(found) => {
                        self.tell(&found);
                    }
                    None => self.tell_unknown(entry.ino),
                }
            }
        }
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        answer(self.sync(ino, datasync), reply);
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let usage = self.fs.usage();
        let (free, block) = (usage.free_blocks, usage.block_bytes as u32);
        reply.statfs(usage.blocks, free, free, usage.inodes, usage.free_inodes, block, 255, block);
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let set = |node: &Vnode| {
            let how = SetXattr::from_flags(flags)?;
            node.set_xattr(name.as_bytes(), value, how, &Self::who(req))
        };
        answer(self.alter(ino, set), reply);
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let node = self.node(ino);
        let found = node.and_then(|node| node.xattr(name.as_bytes(), &Self::who(req)).map_err(errno));
        answer_xattr(found, size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let who = Credentials { are_checked: false, ..Self::who(req) };
        let names = self.node(ino).and_then(|node| node.xattrs(&who).map_err(errno));
        let list = names.map(|names| {
            names.into_iter().flat_map(|mut name| {
                name.push(0);
                name
            })
        });
        answer_xattr(list.map(Iterator::collect), size, reply);
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.alter(ino, |node| node.remove_xattr(name.as_bytes(), &Self::who(req))), reply);
    }

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel has checked it.
        reply.ok();
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.make(req, parent, name, &NewFile::regular(mode & 0o7777 & !umask)) {
            Ok(node) => {
                let (attr, generation) = self.tell(&node);
                reply.created(&KEEP, &attr, generation, FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(e) => reply.error(e),
        }
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(end) = offset.checked_add(length) else { return reply.error(Errno::EFBIG) };
        let allocate = |node: &Vnode| {
            let how = Allocation::from_mode(mode)?;
            drop_privileges(req, node)?;
            node.allocate(offset..end, how)
        };
        answer(self.alter(ino, allocate), reply);
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // `SEEK_DATA` and `SEEK_HOLE` of Linux; the kernel asks for nothing else.
        let what = match whence {
            3 => Seek::Data,
            4 => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.node(ino).and_then(|node| node.seek(offset, what).map_err(errno)) {
            Ok(found) => reply.offset(found as i64),
            Err(e) => reply.error(e),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The answer has 32 bits.
        let len = len.min(1 << 30);
        let copied = self.node(ino_in).and_then(|from| {
            self.alter(ino_out, |to| {
                drop_privileges(req, to)?;
                from.copy_range(offset_in, to, offset_out, len)
            })
        });
        match copied {
            Ok(bytes) => reply.written(bytes as u32),
            Err(e) => reply.error(e),
        }
    }
}

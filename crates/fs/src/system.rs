//! A mounted file system.

use std::mem;
use std::ops::{ControlFlow, Deref};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use rustix::io::Errno;
use unvme::Block;
use unvme::lock::{lock, read};
use unvme::worker::WorkerOptions;

use crate::buffer::Buffers;
use crate::dentries::Dentries;
use crate::disk::{Disk, Durable, Event, Traffic};
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::journal::{Damage, Journal, Replayed, Tx, recover};
use crate::keeper::Keeper;
use crate::layout::{
    self, BLOCK, Expected, Geometry, Inode, Kind, Kinds, ORPHANS_INO, Page, ROOT_INO, Superblock, Time,
    decode,
};
use crate::node::{Done, Node, Nodes, State};
use crate::pagecache::{Cache, CacheOptions, CacheStatistics};
use crate::placement::{Class, Placement};
use crate::space::{Need, Space};
use crate::stripe::Stripes;
use crate::tree::{GROWTH, Tree};
use crate::vnode::Vnode;

/// How a file system is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Nothing is written; a journal that was not replayed is read all the same.
    pub is_read_only: bool,
    /// The device is told of space that is free.
    pub deallocate: bool,
    /// Bytes of metadata that are kept in memory.
    pub metadata_bytes: usize,
    /// Pages of files in memory.
    pub cache: CacheOptions,
    /// Times of access are kept as Linux does it by default (`relatime`); without it they never change
    /// (`noatime`).
    pub keeps_access_times: bool,
    /// Times of access are kept of directories, too; without it they never change (`nodiratime`).
    pub keeps_directory_access_times: bool,
    /// Which placement handles of the device are used for what.
    pub placement: Placement,
    /// How long what was done may wait to be on the media when nobody asks for it.
    pub commit_interval: Duration,
    /// Files without names stay until [`FileSystem::reap_unnamed`]: somebody had them open, and is about to
    /// open them again here.
    pub keeps_unnamed: bool,
    /// The queues below.
    pub worker: WorkerOptions,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            is_read_only: false,
            deallocate: true,
            metadata_bytes: 256 << 20,
            cache: CacheOptions::default(),
            keeps_access_times: true,
            keeps_directory_access_times: true,
            placement: Placement::default(),
            commit_interval: Duration::from_secs(5),
            keeps_unnamed: false,
            worker: WorkerOptions::default(),
        }
    }
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks for files and their metadata.
    pub blocks: u64,
    /// Blocks that are free.
    pub free_blocks: u64,
    /// Inodes there can be.
    pub inodes: u64,
    /// Inodes that are free.
    pub free_inodes: u64,
}

/// What a file system is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Format version.
    pub version: u32,
    /// UUID.
    pub uuid: [u8; 16],
    /// Its name for people.
    pub label: String,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Nanoseconds since 1970.
    pub created: u64,
    /// Records of the journal that were replayed when it was mounted.
    pub replayed: u64,
    /// It was left in order: there was nothing to bring in order.
    pub is_clean: bool,
    /// The superblock could not be read, and its copy was taken: why.
    pub copy_taken: Option<String>,
    /// The journal is damaged, so that durable changes may be missing: how, and what to do. The mount is
    /// read-only then.
    pub damage: Option<String>,
}

pub(crate) struct System {
    pub disk: Arc<Disk>,
    pub buffers: Arc<Buffers>,
    pub space: Arc<Space>,
    pub journal: Journal,
    pub geometry: Geometry,
    pub nodes: Nodes,
    /// Looked up when somebody wants it.
    root: OnceLock<Arc<Node>>,
    pub dentries: Dentries,
    /// Files of which something is in memory alone.
    listed: Stripes<Mutex<Vec<u64>>>,
    pub cache: Cache,
    pub keeps_access_times: bool,
    pub keeps_directory_access_times: bool,
    /// Seconds since 1970, of late.
    pub seconds: AtomicU64,
    pub seed: u64,
    pub is_read_only: bool,
    /// Held while a directory changes its place.
    pub moving: Mutex<()>,
    later: Later,
    /// What was wrong with the journal.
    pub damage: Damage,
    description: Description,
    superblock: Superblock,
}

/// A mount, held by those who use a file system on one CPU: so that they do not count on the same cache line
/// as all others.
pub(crate) struct Grip(Arc<Mount>);

impl Deref for Grip {
    type Target = Mount;

    fn deref(&self) -> &Mount {
        &self.0
    }
}

impl Grip {
    /// That of the CPU the caller is on; this one when nobody has that any more.
    #[inline]
    pub(crate) fn own(self: &Arc<Self>) -> Arc<Self> {
        let own = self.0.grips.get().and_then(|grips| grips.own().upgrade());
        own.unwrap_or_else(|| Arc::clone(self))
    }

    /// Whether both are of one mount.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What all who use a file system hold. The last one to go leaves it in order.
pub(crate) struct Mount {
    /// Of all CPUs.
    grips: OnceLock<Stripes<Weak<Grip>>>,
    system: Arc<System>,
    /// `None` when nothing is written.
    keeper: Option<Keeper>,
    /// Last: given back when everything is written.
    _holder: Holder,
}

impl Deref for Mount {
    type Target = System;

    fn deref(&self) -> &System {
        &self.system
    }
}

/// A mounted file system. Any thread may use it, and it can be cloned; it is left in order by
/// [`FileSystem::unmount`], or when the last clone and the last [`Vnode`] are gone.
#[derive(Clone)]
pub struct FileSystem(pub(crate) Arc<Grip>, #[expect(dead_code, reason = "they are held")] Arc<Grips>);

/// What is done when somebody comes to it.
#[derive(Default)]
struct Later {
    /// Files that were to be given up, or cut off, when the device failed. They stay in memory.
    unfinished: Mutex<Vec<Arc<Node>>>,
    /// Held by whoever goes through the list of those of which something is in memory alone: from when it is
    /// empty until they are written, so that nobody takes an empty list for nothing to be done.
    listing: Mutex<()>,
}

/// The grips of all CPUs.
type Grips = Stripes<Arc<Grip>>;

pub(crate) fn read_superblock(disk: &Disk, block: u64) -> Result<Superblock> {
    let mut page: Page = [0; BLOCK];
    disk.read(block, &mut page)?;
    let fs = layout::Header::of(&page).fs.get();
    layout::check(&page, &Expected { kind: Kind::Superblock, fs, block, owner: Some(0) })?;
    Superblock::parse(&page, disk.blocks())
}

/// The superblock, or its copy, and why that was needed.
fn find_superblock(disk: &Disk) -> Result<(Superblock, Option<String>)> {
    let first = match read_superblock(disk, 0) {
        Err(e @ (Error::Damaged { .. } | Error::Device(_))) => e,
        other => return other.map(|found| (found, None)),
    };
    let second = match read_superblock(disk, disk.blocks() - 1) {
        Ok(found) => {
            tracing::warn!("{}: {first}; the copy of the superblock is used", disk.name());
            return Ok((found, Some(first.to_string())));
        }
        Err(e) => e,
    };
    match (first, second) {
        // What cannot be read may be a file system.
        (e @ Error::Device(_), _) | (_, e @ (Error::Device(_) | Error::Format(_))) => Err(e),
        (first, _) => Err(Error::Format(format!(
            "{}: there is no file system: {first}; `unvme fs mkfs` makes one",
            disk.name()
        ))),
    }
}

fn describe(
    superblock: &Superblock,
    geometry: &Geometry,
    replayed: &Replayed,
    copy_taken: Option<String>,
    damage: Option<String>,
) -> Description {
    let end = superblock.label.iter().position(|&byte| byte == 0).unwrap_or(64);
    Description {
        version: superblock.version.get(),
        uuid: superblock.uuid,
        label: String::from_utf8_lossy(&superblock.label[..end]).into_owned(),
        journal_bytes: geometry.journal_blocks * BLOCK as u64,
        created: superblock.created.get(),
        replayed: replayed.records,
        is_clean: replayed.is_clean,
        copy_taken,
        damage,
    }
}

impl FileSystem {
    /// Mounts the file system of a namespace. What a crash has interrupted is brought in order first, in a
    /// time that depends on the journal alone.
    ///
    /// A file system whose journal is damaged is mounted read-only, whatever `options` say:
    /// [`Description::damage`] tells why.
    ///
    /// # Errors
    /// [`Error::Format`] when there is none, or one that this version cannot mount; [`Error::Busy`] when
    /// another program has it; [`Error::Damaged`]; [`Error::Device`].
    pub fn mount(block: &Block, name: &str, options: &MountOptions) -> Result<Self> {
        let (system, holder, _) = System::open(block, name, options, false)?;
        let system = Arc::new(system);
        let mut keeper = None;
        if !system.is_read_only {
            // From here on the media says that it is in use, and stale records cannot count.
            system.journal.finish(false)?;
            if !options.keeps_unnamed {
                system.reap_orphans()?;
            }
            keeper = Some(Keeper::start(&system, options.commit_interval)?);
        }
        let mount = Arc::new(Mount { grips: OnceLock::new(), system, keeper, _holder: holder });
        let grips = Stripes::new(|| Arc::new(Grip(Arc::clone(&mount))));
        mount.grips.get_or_init(|| grips.map(Arc::downgrade));
        Ok(Self(Arc::clone(grips.own()), Arc::new(grips)))
    }

    /// The root directory.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Device`].
    pub fn root(&self) -> Result<Vnode> {
        Ok(Vnode::new(&self.0, Arc::clone(self.0.root()?)))
    }

    /// The file of an inode number, as [`Vnode::ino`] said it.
    ///
    /// # Errors
    /// ESTALE when there is none; [`Error::Damaged`], [`Error::Device`].
    pub fn node(&self, ino: u64) -> Result<Vnode> {
        let found = Vnode::new(&self.0, self.0.node(ino)?);
        // Somebody may have given it up just before.
        found.check_there().map_err(|_| Error::Posix(Errno::STALE))?;
        Ok(found)
    }

    /// Makes everything durable that was done before.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Device`].
    pub fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    /// Makes everything durable, and leaves the file system in order. It can be used on.
    ///
    /// # Errors
    /// As [`FileSystem::sync`].
    pub fn unmount(&self) -> Result<()> {
        if self.0.is_read_only {
            return Ok(());
        }
        self.0.sync()?;
        self.0.journal.finish(true)
    }

    /// Gives up files without names that nobody has opened since the mount.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Device`].
    pub fn reap_unnamed(&self) -> Result<()> {
        self.0.check_writable()?;
        self.0.reap_orphans()
    }

    /// Leaves it in order, and lets go of the device while some still have files of it: nothing they do from
    /// now on reaches the device. Files without names are still there at the next mount that keeps them.
    ///
    /// # Errors
    /// As [`FileSystem::sync`].
    pub fn hand_over(&self) -> Result<()> {
        self.unmount()?;
        self.abandon();
        Ok(())
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        let geometry = &self.0.geometry;
        let (free_blocks, free_inodes) = self.0.space.free();
        let blocks = (0..geometry.groups).map(|group| geometry.group_len(group) - geometry.group_overhead());
        Usage {
            block_bytes: BLOCK as u64,
            blocks: blocks.sum(),
            free_blocks,
            inodes: geometry.inodes(),
            free_inodes,
        }
    }

    /// What it is.
    pub fn description(&self) -> &Description {
        &self.0.description
    }

    /// What it has asked the device for.
    pub fn traffic(&self) -> Traffic {
        self.0.disk.traffic()
    }

    /// What the page cache has done.
    pub fn cache_statistics(&self) -> CacheStatistics {
        self.0.cache.statistics()
    }

    /// What other processes need to read pages of files, if they can.
    pub(crate) fn shown_pages(&self) -> Option<(unvme::cache::ShownSize, [std::os::fd::BorrowedFd<'_>; 3])> {
        self.0.cache.shown()
    }

    /// Ends it as a crash does: nothing more is written, and what was not committed is lost.
    #[doc(hidden)]
    pub fn abandon(&self) {
        self.0.journal.kill(&Error::Device("it was abandoned".into()));
    }

    /// Remembers what goes to the device from now on.
    #[doc(hidden)]
    pub fn start_recording(&self) {
        self.0.disk.start_recording();
    }

    /// What went there since the last call.
    #[doc(hidden)]
    pub fn take_events(&self) -> Vec<Event> {
        self.0.disk.take_events()
    }
}

/// What is wrong: with what, and how.
type Told = Vec<(String, String)>;

impl System {
    /// Reads what is needed to use a file system. For those who check or repair one, `is_tolerant`: what is
    /// damaged is told, where it can be done without.
    pub(crate) fn open(
        block: &Block,
        name: &str,
        options: &MountOptions,
        is_tolerant: bool,
    ) -> Result<(Self, Holder, Told)> {
        let disk = Arc::new(Disk::open(block, name, &options.worker, options.placement)?);
        let mut told = Vec::new();
        let (superblock, copy_taken) = find_superblock(&disk)?;
        if let Some(why) = &copy_taken {
            told.push(("the superblock".to_owned(), why.clone()));
        } else if is_tolerant
            && let Err(e @ (Error::Damaged { .. } | Error::Device(_))) =
                read_superblock(&disk, superblock.blocks.get() - 1)
        {
            told.push(("the copy of the superblock".to_owned(), e.to_string()));
        }
        let (geometry, fs) = (Geometry::new(&superblock), superblock.fs());
        let holder = Holder::take(block, name, &superblock.uuid, options.is_read_only)?;
        let mut replayed = recover(&disk, &geometry, fs, is_tolerant, &mut told)?;
        let damage = mem::take(&mut replayed.damage);
        // A repair writes; any other change would make it worse.
        let is_read_only = options.is_read_only || !damage.lost.is_empty() && !is_tolerant;
        let buffers = Arc::new(Buffers::new(Arc::clone(&disk), fs, options.metadata_bytes));
        let space = Arc::new(Space::new(
            geometry,
            Arc::clone(&disk),
            Arc::clone(&buffers),
            replayed.free,
            options.deallocate && !is_read_only,
        ));
        let parts = (Arc::clone(&disk), Arc::clone(&buffers), Arc::clone(&space));
        let journal = Journal::new(parts.0, parts.1, parts.2, geometry, fs, &replayed);
        journal.report(name, &damage, is_tolerant);
        let system = Self {
            disk,
            buffers,
            space,
            journal,
            geometry,
            nodes: Nodes::new(options.metadata_bytes),
            root: OnceLock::new(),
            dentries: Dentries::new(),
            listed: Stripes::default(),
            cache: Cache::new(options.cache)?,
            keeps_access_times: options.keeps_access_times && !is_read_only,
            keeps_directory_access_times: options.keeps_directory_access_times,
            seconds: AtomicU64::new(0),
            seed: superblock.hash_seed.get(),
            is_read_only,
            moving: Mutex::new(()),
            later: Later::default(),
            description: describe(&superblock, &geometry, &replayed, copy_taken, damage.reason()),
            damage,
            superblock,
        };
        match system.read_inode(ORPHANS_INO) {
            Ok(inode) => system.journal.set_orphans(inode.tree),
            // The check finds out for itself.
            Err(Error::Damaged { .. } | Error::Posix(_)) if is_tolerant => {}
            Err(e) => return Err(e),
        }
        system.set_clock(Time::now());
        Ok((system, holder, told))
    }

    /// Has the superblock and its copy say what was found.
    pub(crate) fn rewrite_superblocks(&self) -> Result<()> {
        for block in [self.geometry.copy_block(), 0] {
            let fs = self.superblock.fs();
            let mut page: Page = [0; BLOCK];
            layout::stamp(&mut page, &Expected { kind: Kind::Superblock, fs, block, owner: Some(0) });
            self.superblock.put(&mut page);
            layout::seal(&mut page, 0);
            self.disk.write(block, &page, Durable::Now, Class::Metadata)?;
        }
        Ok(())
    }

    /// Whether anything can be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.journal.check_alive()?;
        if self.is_read_only { Err(Errno::ROFS.into()) } else { Ok(()) }
    }

    /// Tells the time, for what needs it only roughly.
    pub(crate) fn set_clock(&self, now: Time) {
        self.seconds.store(now.seconds as u64, Ordering::Relaxed);
    }

    fn read_inode(&self, ino: u64) -> Result<Inode> {
        self.read_inode_of(ino).map(|(inode, _)| inode)
    }

    /// An inode, and the last transaction that may have changed it: that of its block.
    fn read_inode_of(&self, ino: u64) -> Result<(Inode, u64)> {
        let (buffer, index) = self.journal.inode_buffer(ino)?;
        let found = buffer.with(|page| decode(page, index));
        let inode: Inode = found
            .map_err(|what| Error::damaged(buffer.block, format!("inode {ino}: {what}")))?
            .ok_or(Error::Posix(Errno::STALE))?;
        // Numbers of transactions only grow: it is that one, or of somebody who has changed the block since.
        Ok((inode, buffer.tx()))
    }

    /// The root directory.
    #[inline]
    pub(crate) fn root(&self) -> Result<&Arc<Node>> {
        match self.root.get() {
            Some(root) => Ok(root),
            None => {
                let root = self.node(ROOT_INO)?;
                Ok(self.root.get_or_init(|| root))
            }
        }
    }

    pub(crate) fn node(&self, ino: u64) -> Result<Arc<Node>> {
        if let Some(node) = self.nodes.find(ino) {
            node.touch();
            return Ok(node);
        }
        let read = || {
            // A number is used when its bit says so; its block may never have been written.
            let (group, place) = self.geometry.inode_place(ino).ok_or(Error::Posix(Errno::STALE))?;
            let map = self.buffers.get(self.geometry.inode_map(group), Kind::InodeMap, group.into())?;
            if !map.with(|page| crate::bits::is_marked(page, place)) {
                return Err(Errno::STALE.into());
            }
            self.read_inode_of(ino)
        };
        // Once without the lock, for what has to come from the device: others do not wait for it.
        read()?;
        let load = || read().map(|(inode, tx)| Node::new(ino, inode, tx));
        self.nodes.get(ino, (&self.dentries, self.done()), load)
    }

    /// What is durable.
    pub(crate) fn done(&self) -> Done {
        Done { committed: self.journal.committed(), flushed: self.disk.flushed() }
    }

    /// One operation on metadata. Locks of inodes are taken before. When it fails, nothing of it is on the
    /// media; what is in memory is the caller's: see [`System::transact_on`].
    pub(crate) fn transact<R>(
        &self,
        need: Need,
        growth: u64,
        act: impl FnOnce(&mut Tx<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut tx = self.journal.begin(growth, need)?;
        let done = act(&mut tx);
        if let Err(e) = &done {
            tx.abort();
            if let Error::Damaged { .. } = e {
                // Whoever goes on makes it worse.
                self.journal.kill(e);
            }
        }
        done
    }

    /// As [`System::transact`], of an operation that changes one inode in memory: when it fails, that is as
    /// it was.
    pub(crate) fn transact_on<R>(
        &self,
        state: &mut State,
        need: Need,
        growth: u64,
        act: impl FnOnce(&mut Tx<'_>, &mut State) -> Result<R>,
    ) -> Result<R> {
        let before = state.save();
        let mut has_begun = false;
        let done = self.transact(need, growth, |tx| {
            has_begun = true;
            act(tx, state)
        });
        if done.is_err() && has_begun {
            state.restore(before);
        }
        done
    }

    /// Has the transaction say what an inode is now.
    pub(crate) fn log(&self, tx: &mut Tx<'_>, ino: u64, state: &mut State) -> Result<()> {
        tx.put_inode(ino, Some(&state.inode))?;
        state.tx = tx.id();
        state.is_lazy = false;
        Ok(())
    }

    /// Has a transaction say the times that only memory knows.
    pub(crate) fn log_times(&self, ino: u64, state: &mut State) -> Result<()> {
        if state.is_lazy && !state.is_gone {
            self.transact_on(state, Need::Delete, 0, |tx, state| self.log(tx, ino, state))?;
        }
        Ok(())
    }

    /// Something about a file is in memory alone: a sync looks at it.
    #[inline]
    pub(crate) fn list(&self, node: &Node) {
        if !node.is_listed.load(Ordering::Relaxed) && !node.is_listed.swap(true, Ordering::SeqCst) {
            lock(self.listed.own()).push(node.ino);
        }
    }

    /// Taken before [`System::take_listed`], and before the lock of any inode.
    pub(crate) fn listing(&self) -> MutexGuard<'_, ()> {
        lock(&self.later.listing)
    }

    /// The files of which something is in memory alone, in the order of their numbers. What changes from now
    /// on is listed again.
    pub(crate) fn take_listed(&self) -> Vec<Arc<Node>> {
        let mut listed: Vec<u64> = Vec::new();
        for list in self.listed.iter() {
            listed.append(&mut lock(list));
        }
        listed.sort_unstable();
        listed.dedup();
        let nodes: Vec<_> = listed.into_iter().filter_map(|ino| self.nodes.find(ino)).collect();
        // Before they are looked at: what changes later is listed again.
        nodes.iter().for_each(|node| node.is_listed.store(false, Ordering::SeqCst));
        nodes
    }

    fn sync(&self) -> Result<()> {
        self.check_writable()?;
        let written = {
            let _listing = self.listing();
            self.write_back_all(&self.take_listed(), true)
        };
        // What could be written is durable in any case.
        self.finish_all();
        let committed = self.journal.commit_and_settle(self.journal.running());
        self.space.release();
        written.and(committed)
    }

    /// A file has lost its last name.
    pub(crate) fn add_orphan(&self, tx: &mut Tx<'_>, ino: u64) -> Result<()> {
        let root = tx.orphans();
        Tree { root, owner: ORPHANS_INO }.insert(tx, ino, &[]).map(drop)
    }

    pub(crate) fn remove_orphan(&self, tx: &mut Tx<'_>, ino: u64) -> Result<()> {
        let root = tx.orphans();
        Tree { root, owner: ORPHANS_INO }.remove(tx, ino).map(drop)
    }

    /// Files that a crash has left without names, and those whose end it has left half cut off.
    fn reap_orphans(&self) -> Result<()> {
        let mut found = Vec::new();
        let tree = Tree { root: self.journal.orphans(), owner: ORPHANS_INO };
        tree.visit(&self.buffers, 0, |ino, _| {
            found.push(ino);
            ControlFlow::Continue(())
        })?;
        for ino in found {
            let node = match self.node(ino) {
                Err(Error::Posix(Errno::STALE)) => {
                    tracing::warn!("{}: inode {ino}, which has no name, is not there", self.disk.name());
                    self.transact(Need::Delete, GROWTH, |tx| self.remove_orphan(tx, ino))?;
                    continue;
                }
                other => other?,
            };
            self.finish(&node)?;
        }
        Ok(())
    }

    /// Gives up a file without names, or cuts off what is behind the end of another one.
    fn finish(&self, node: &Arc<Node>) -> Result<()> {
        let (has_names, is_file) = {
            let state = read(&node.state);
            (state.inode.links > 0, state.inode.is_file())
        };
        match (has_names, is_file) {
            (false, _) => self.reap(node),
            (true, true) => self.cut_off(node),
            // It has nothing behind its end: the list is wrong.
            (true, false) => self.transact(Need::Delete, GROWTH, |tx| self.remove_orphan(tx, node.ino)),
        }
    }

    /// The device has failed while a file was given up, or cut off: that goes on later.
    pub(crate) fn note_unfinished(&self, node: &Arc<Node>, e: &Error) {
        tracing::warn!("{}: inode {} is given up later, or its end: {e}", self.disk.name(), node.ino);
        lock(&self.later.unfinished).push(Arc::clone(node));
    }

    /// Goes on with what the device has kept from being finished.
    pub(crate) fn finish_all(&self) {
        let mut left = mem::take(&mut *lock(&self.later.unfinished));
        left.retain(|node| !read(&node.state).is_gone && self.finish(node).is_err());
        lock(&self.later.unfinished).append(&mut left);
    }

    /// Gives back what a file without names has, once nobody has it any more.
    pub(crate) fn reap(&self, node: &Arc<Node>) -> Result<()> {
        let mut state = node.lock();
        if state.inode.links > 0 || state.is_gone || node.pins.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        self.check_writable()?;
        let ino = node.ino;
        if state.inode.is_file() {
            self.drop_pages(node, &mut state, 0..u64::MAX);
            self.remove_blocks(ino, &mut state, 0, u64::MAX)?;
        }
        let pages = self.pages_of(ino, &state.inode)?;
        self.transact(Need::Delete, 2 * GROWTH, |tx| {
            self.remove_orphan(tx, ino)?;
            self.give_up(tx, ino, &mut state, &pages)
        })
    }

    /// Pages of the trees of an inode that has no extents. A directory is empty by now, and its tree a page
    /// or a few.
    pub(crate) fn pages_of(&self, ino: u64, inode: &Inode) -> Result<Vec<u64>> {
        let mut pages = Vec::new();
        for root in [inode.tree, inode.xattrs] {
            if root != 0 {
                Tree { root, owner: ino }.pages(&self.buffers, &mut |page| pages.push(page))?;
            }
        }
        Ok(pages)
    }

    /// Gives back an inode and its pages: the last thing that a transaction does.
    pub(crate) fn give_up(&self, tx: &mut Tx<'_>, ino: u64, state: &mut State, pages: &[u64]) -> Result<()> {
        pages.iter().try_for_each(|&page| tx.free_page(page))?;
        tx.free_inode(ino)?;
        // While the transaction is open: its number is nobody else's before that is committed.
        state.is_gone = true;
        self.nodes.remove(ino);
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.stop();
        }
        if !self.is_read_only
            && self.journal.check_alive().is_ok()
            && let Err(e) = self.sync().and_then(|()| self.journal.finish(true))
        {
            tracing::error!("{}: {e}", self.disk.name());
        }
    }
}

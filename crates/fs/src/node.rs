//! Inodes in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockWriteGuard};

use rustix::fs::FileType;
use unvme::lock::{lock, write};

use crate::dentries::Dentries;
use crate::disk::Disk;
use crate::error::Result;
use crate::extents::Extents;
use crate::layout::{Inode, Kinds, Time};
use crate::locks::Locks;
use crate::pagecache::{Ahead, Pages, Switches};
use crate::privileges;
use crate::stripe::Apart;
use unvme::spread::{ByNumber, spread};

const SHARDS: u64 = 64;

/// Inodes whose numbers are that close share a shard: those of one directory are mostly used by one thread.
const NEAR: u64 = 256;

/// Bytes that a node takes, about.
const NODE_BYTES: usize = 1024;

/// What an inode is, right now. What `stat` tells comes first.
#[repr(C)]
pub(crate) struct State {
    /// Bytes of a regular file, or of a symbolic link's target.
    pub size: u64,
    /// The last transaction that has changed it.
    pub tx: u64,
    /// Its times are newer than what any transaction has.
    pub is_lazy: bool,
    /// Its inode is free again.
    pub is_gone: bool,
    /// It had names once, or is not to get any: it does not get one by its descriptor.
    pub stays_nameless: bool,
    /// Its end is being cut off: it is in the list of files without names, although it has some.
    pub is_being_cut: bool,
    /// As the next transaction says it. Of a file whose last pages are not written yet it has a smaller size.
    pub inode: Inode,
    /// Pages in memory.
    pub cache: Pages,
    /// Blocks that are set aside for the tree of its extents, beside those for pages.
    pub tree_aside: u64,
    /// Read when they are needed.
    pub extents: Option<Extents>,
}

/// What of a state a transaction changes, from before it.
pub(crate) struct Saved {
    inode: Inode,
    tx: u64,
    is_lazy: bool,
}

impl State {
    pub(crate) fn save(&self) -> Saved {
        Saved { inode: self.inode.clone(), tx: self.tx, is_lazy: self.is_lazy }
    }

    /// The transaction was taken back. Where blocks are is to be read again.
    pub(crate) fn restore(&mut self, saved: Saved) {
        Saved { inode: self.inode, tx: self.tx, is_lazy: self.is_lazy } = saved;
        // What they were is on the media, or on its way there.
        self.extents = None;
    }
}

/// An inode that is known to this mount. What `stat` needs comes first.
#[repr(C)]
pub(crate) struct Node {
    pub ino: u64,
    /// Where it is in the table of names, or 0.
    pub dentry: AtomicU64,
    /// Who has it open, or knows it by its number.
    pub pins: AtomicU64,
    /// Nanoseconds since 1970 of a write, and of a read, that shared the lock; or 0.
    pub written: AtomicU64,
    pub read: AtomicU64,
    /// It never changes.
    pub file_type: FileType,
    /// It was asked for since somebody last thought about giving it up.
    is_used: AtomicBool,
    /// A change of it may have set-id bits or capabilities to remove. Set before it gets any, and cleared
    /// when none were found, under the lock of its state.
    pub may_grant: AtomicBool,
    pub state: RwLock<State>,
    /// The flush that makes all data durable that were written.
    pub unflushed: AtomicU64,
    /// It is in the list of those that a sync has to look at.
    pub is_listed: AtomicBool,
    /// Its pages are in the list of those that wait to be written.
    pub is_waiting: AtomicBool,
    /// Goes on when data, or where they are, have changed.
    pub version: AtomicU64,
    /// Goes on when data were written past the cache.
    pub writes: AtomicU64,
    pub switches: Switches,
    pub ahead: Mutex<Ahead>,
    pub locks: Locks,
}

impl Node {
    pub(crate) fn new(ino: u64, inode: Inode, tx: u64) -> Arc<Self> {
        let file_type = inode.file_type();
        let may_grant = AtomicBool::new(privileges::may_grant(&inode));
        let state = State {
            size: inode.size,
            inode,
            extents: None,
            cache: Pages::default(),
            tree_aside: 0,
            tx,
            is_lazy: false,
            is_gone: false,
            stays_nameless: false,
            is_being_cut: false,
        };
        Arc::new(Self {
            ino,
            file_type,
            is_used: AtomicBool::new(true),
            may_grant,
            dentry: AtomicU64::new(0),
            pins: AtomicU64::new(0),
            state: RwLock::new(state),
            unflushed: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            version: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            switches: Switches::default(),
            ahead: Mutex::default(),
            locks: Locks::default(),
        })
    }

    /// Has it alone. Times of those who shared it are in it then.
    pub(crate) fn lock(&self) -> RwLockWriteGuard<'_, State> {
        let mut state = write(&self.state);
        self.fold(&mut state);
        state
    }

    fn fold(&self, state: &mut State) {
        let take = |at: &AtomicU64| match at.load(Ordering::Relaxed) {
            0 => None,
            _ => Some(Time::from_nanoseconds(at.swap(0, Ordering::Relaxed))),
        };
        if let Some(time) = take(&self.written) {
            state.inode.modified = state.inode.modified.max(time);
            state.inode.changed = state.inode.changed.max(time);
            state.is_lazy = true;
        }
        if let Some(time) = take(&self.read) {
            state.inode.accessed = state.inode.accessed.max(time);
            state.is_lazy = true;
        }
    }

    /// Data, or where they are, have changed.
    pub(crate) fn bump(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Data were written.
    #[inline]
    pub(crate) fn mark_unflushed(&self, disk: &Disk) {
        let flush = disk.next_flush();
        if self.unflushed.load(Ordering::Relaxed) < flush {
            self.unflushed.fetch_max(flush, Ordering::AcqRel);
        }
    }

    /// It is in use.
    #[inline]
    pub(crate) fn touch(&self) {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Nobody has it, and the media has all of it.
    fn is_idle(node: &Arc<Self>, done: Done) -> bool {
        node.pins.load(Ordering::Acquire) == 0
            && node.unflushed.load(Ordering::Acquire) <= done.flushed
            && node.written.load(Ordering::Relaxed) == 0
            && node
                .state
                .try_read()
                .is_ok_and(|state| !state.is_lazy && state.cache.is_empty() && state.tx <= done.committed)
    }
}

/// What is durable: all transactions up to one, and what was written before a flush.
#[derive(Clone, Copy)]
pub(crate) struct Done {
    pub committed: u64,
    pub flushed: u64,
}

/// Some of them, by their numbers.
struct Shard {
    table: ByNumber<Arc<Node>>,
    /// So many are there when those that nobody uses are looked for.
    sweep_at: usize,
}

/// All of them.
pub(crate) struct Nodes {
    shards: Box<[Apart<Mutex<Shard>>]>,
    /// Nodes of a shard that are kept although nobody has them.
    kept: usize,
}

impl Nodes {
    /// Keeps as many as fit in about `bytes` when nobody needs more.
    pub(crate) fn new(bytes: usize) -> Self {
        let kept = (bytes / NODE_BYTES / SHARDS as usize).max(64);
        let shard = || Apart(Mutex::new(Shard { table: ByNumber::default(), sweep_at: kept }));
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), kept }
    }

    fn shard(&self, ino: u64) -> &Mutex<Shard> {
        &self.shards[(spread(ino / NEAR) % SHARDS) as usize].0
    }

    /// The node of a number; `load` reads it when it is not known.
    pub(crate) fn get(
        &self,
        ino: u64,
        (dentries, done): (&Dentries, Done),
        load: impl FnOnce() -> Result<Arc<Node>>,
    ) -> Result<Arc<Node>> {
        let mut shard = lock(self.shard(ino));
        if let Some(node) = shard.table.get(&ino) {
            node.touch();
            return Ok(Arc::clone(node));
        }
        // The lock is held meanwhile: nobody else brings the same inode, changes it and lets it go.
        let node = load()?;
        self.sweep(&mut shard, dentries, done);
        Ok(Arc::clone(shard.table.entry(ino).or_insert(node)))
    }

    /// The node of a number, if it is known.
    pub(crate) fn find(&self, ino: u64) -> Option<Arc<Node>> {
        lock(self.shard(ino)).table.get(&ino).cloned()
    }

    /// One that is new. Returns the one to use: somebody may know its number already.
    pub(crate) fn put(&self, node: Arc<Node>, (dentries, done): (&Dentries, Done)) -> Arc<Node> {
        let mut shard = lock(self.shard(node.ino));
        self.sweep(&mut shard, dentries, done);
        Arc::clone(shard.table.entry(node.ino).or_insert(node))
    }

    /// Gives up those that nobody has, and nobody has asked for since the last time, when there are many.
    fn sweep(&self, shard: &mut Shard, dentries: &Dentries, done: Done) {
        if shard.table.len() < shard.sweep_at {
            return;
        }
        shard.table.retain(|_, node| {
            if node.is_used.swap(false, Ordering::Relaxed) || !Node::is_idle(node, done) {
                return true;
            }
            // Nobody gets it from there afterwards; who has got it before counts.
            dentries.forget(node);
            Arc::strong_count(node) > 1 || !Node::is_idle(node, done)
        });
        shard.sweep_at = self.kept.max(shard.table.len() + self.kept / 4);
    }

    pub(crate) fn remove(&self, ino: u64) {
        lock(self.shard(ino)).table.remove(&ino);
    }
}

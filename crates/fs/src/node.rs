//! Inodes in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockWriteGuard};

use unvme::lock::{lock, write};

use crate::error::Result;
use crate::extents::Extents;
use crate::layout::{Inode, Time};
use crate::locks::Locks;
use crate::pagecache::{Ahead, Counters, FileCache, Switches};
use crate::spread::ByNumber;

const SHARDS: u64 = 64;

/// Nodes of a shard that are kept although nobody has them.
const KEPT: usize = 4096;

/// What an inode is, right now.
pub(crate) struct State {
    /// As the next transaction says it. Of a file whose last pages are not written yet it has a smaller size.
    pub inode: Inode,
    /// Bytes of a regular file, or of a symbolic link's target.
    pub size: u64,
    /// Read when they are needed.
    pub extents: Option<Extents>,
    /// Pages in memory.
    pub cache: FileCache,
    /// The last transaction that has changed it.
    pub tx: u64,
    /// Its times are newer than what any transaction has.
    pub is_lazy: bool,
    /// Its inode is free again.
    pub is_gone: bool,
}

/// An inode that is known to this mount.
pub(crate) struct Node {
    pub ino: u64,
    pub state: RwLock<State>,
    /// Who has it open, or knows it by its number.
    pub pins: AtomicU64,
    /// Data were written in place since the last fsync.
    pub is_unflushed: AtomicBool,
    /// Its pages are in the list of those that wait to be written.
    pub is_waiting: AtomicBool,
    /// Goes on when data, or where they are, have changed.
    pub version: AtomicU64,
    /// Goes on when data were written past the cache.
    pub writes: AtomicU64,
    /// Nanoseconds since 1970 of a write, and of a read, that shared the lock; or 0.
    pub written: AtomicU64,
    pub read: AtomicU64,
    pub switches: Switches,
    pub ahead: Mutex<Ahead>,
    pub locks: Locks,
}

impl Node {
    pub(crate) fn new(ino: u64, inode: Inode, tx: u64, counters: &Arc<Counters>) -> Arc<Self> {
        let state = State {
            size: inode.size,
            inode,
            extents: None,
            cache: FileCache::new(counters),
            tx,
            is_lazy: false,
            is_gone: false,
        };
        Arc::new(Self {
            ino,
            state: RwLock::new(state),
            pins: AtomicU64::new(0),
            is_unflushed: AtomicBool::new(false),
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

    /// Data were written in place.
    pub(crate) fn mark_unflushed(&self) {
        if !self.is_unflushed.load(Ordering::Relaxed) {
            self.is_unflushed.store(true, Ordering::Release);
        }
    }

    fn is_idle(node: &Arc<Self>) -> bool {
        Arc::strong_count(node) == 1
            && node.pins.load(Ordering::Acquire) == 0
            && !node.is_unflushed.load(Ordering::Acquire)
            && node.written.load(Ordering::Relaxed) == 0
            && node.state.try_read().is_ok_and(|state| !state.is_lazy && state.cache.dirty().is_empty())
    }
}

/// Some of them, by their numbers.
type Shard = Mutex<ByNumber<Arc<Node>>>;

/// All of them.
pub(crate) struct Nodes {
    shards: Box<[Shard]>,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, ino: u64) -> &Shard {
        &self.shards[(ino % SHARDS) as usize]
    }

    /// The node of a number; `load` reads it when it is not known.
    pub(crate) fn get(&self, ino: u64, load: impl FnOnce() -> Result<Arc<Node>>) -> Result<Arc<Node>> {
        let mut shard = lock(self.shard(ino));
        if let Some(node) = shard.get(&ino) {
            return Ok(Arc::clone(node));
        }
        // The lock is held meanwhile: nobody else brings the same inode, changes it and lets it go.
        let node = load()?;
        if shard.len() > KEPT {
            shard.retain(|_, node| !Node::is_idle(node));
        }
        Ok(Arc::clone(shard.entry(ino).or_insert(node)))
    }

    /// One that is new.
    pub(crate) fn put(&self, node: &Arc<Node>) {
        lock(self.shard(node.ino)).insert(node.ino, Arc::clone(node));
    }

    pub(crate) fn remove(&self, ino: u64) {
        lock(self.shard(ino)).remove(&ino);
    }

    /// All that are known now.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.shards.iter().flat_map(|shard| lock(shard).values().cloned().collect::<Vec<_>>()).collect()
    }
}

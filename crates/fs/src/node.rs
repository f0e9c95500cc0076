//! Inodes in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use unvme::lock::lock;

use crate::error::Result;
use crate::extents::Extents;
use crate::layout::Inode;

const SHARDS: u64 = 64;

/// Nodes of a shard that are kept although nobody has them.
const KEPT: usize = 4096;

/// What an inode is, right now.
pub(crate) struct State {
    pub inode: Inode,
    /// Read when they are needed.
    pub extents: Option<Extents>,
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
}

impl Node {
    pub(crate) fn new(ino: u64, inode: Inode, tx: u64) -> Arc<Self> {
        Arc::new(Self {
            ino,
            state: RwLock::new(State { inode, extents: None, tx, is_lazy: false, is_gone: false }),
            pins: AtomicU64::new(0),
            is_unflushed: AtomicBool::new(false),
        })
    }

    fn is_idle(node: &Arc<Self>) -> bool {
        Arc::strong_count(node) == 1
            && node.pins.load(Ordering::Acquire) == 0
            && !node.is_unflushed.load(Ordering::Acquire)
            && node.state.try_read().is_ok_and(|state| !state.is_lazy)
    }
}

/// Some of them, by their numbers.
type Shard = Mutex<HashMap<u64, Arc<Node>>>;

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

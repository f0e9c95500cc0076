//! Blocks of metadata in memory, as the running transaction has them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use unvme::lock::{lock, read, write};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::layout::{self, BLOCK, Expected, Kind, Page};
use crate::page;
use crate::stripe::Apart;
use unvme::spread::{ByNumber, spread};

const SHARDS: u64 = 64;

/// Blocks that are that close share a shard: those of one directory are mostly used by one thread.
const NEAR: u64 = 256;

/// A block of metadata. Whoever changes it holds what it belongs to: the lock of its inode, or of its group.
pub(crate) struct Buffer {
    pub block: u64,
    state: RwLock<State>,
    /// It was freed: the transaction that did so does not write it.
    is_dropped: AtomicBool,
    /// It was looked up since the cache last thought about giving it up.
    is_used: AtomicBool,
}

struct State {
    /// Shared with a commit under way: whoever changes it then changes a copy.
    page: Arc<Page>,
    /// The transaction that has changed it last.
    tx: u64,
    /// The last transaction whose image of it is not in its place yet, or 0.
    pending: u64,
}

impl Buffer {
    fn new(block: u64, page: Page) -> Arc<Self> {
        Arc::new(Self {
            block,
            state: RwLock::new(State { page: Arc::new(page), tx: 0, pending: 0 }),
            is_dropped: AtomicBool::new(false),
            is_used: AtomicBool::new(true),
        })
    }

    /// Looks at it.
    #[inline]
    pub(crate) fn with<R>(&self, look: impl FnOnce(&Page) -> R) -> R {
        look(&read(&self.state).page)
    }

    /// The transaction that has changed it last, or 0.
    pub(crate) fn tx(&self) -> u64 {
        read(&self.state).tx
    }

    /// Changes it for transaction `tx`; also tells whether this is that transaction's first change.
    pub(crate) fn change<R>(&self, tx: u64, change: impl FnOnce(&mut Page) -> R) -> (R, bool) {
        let mut state = write(&self.state);
        let is_first = state.tx != tx;
        state.tx = tx;
        (change(Arc::make_mut(&mut state.page)), is_first)
    }

    /// The page as it is now, for the commit of `tx`; `None` when it was freed.
    pub(crate) fn image(&self, tx: u64) -> Option<Arc<Page>> {
        if self.is_dropped() {
            return None;
        }
        let mut state = write(&self.state);
        state.pending = tx;
        Some(Arc::clone(&state.page))
    }

    /// The image of transaction `tx` is in its place.
    pub(crate) fn placed(&self, tx: u64) {
        let mut state = write(&self.state);
        if state.pending == tx {
            state.pending = 0;
        }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Whether the media holds the same.
    fn is_clean(&self, committed: u64) -> bool {
        // Somebody who changes it may want the shard that is locked here.
        self.state.try_read().is_ok_and(|state| state.pending == 0 && state.tx <= committed)
    }
}

/// Some of them.
#[derive(Default)]
struct Shard {
    /// By their blocks.
    table: ByNumber<Arc<Buffer>>,
    /// So many are there when those that nobody has used lately are given up.
    sweep_at: usize,
    /// How often that was.
    sweeps: u64,
}

/// All of them.
pub(crate) struct Buffers {
    disk: Arc<Disk>,
    fs: u64,
    /// How many of a shard are kept.
    kept: usize,
    shards: Box<[Apart<Mutex<Shard>>]>,
    /// The last transaction that is on the media.
    committed: AtomicU64,
}

impl Buffers {
    /// Keeps about `bytes` of them when nobody needs more.
    pub(crate) fn new(disk: Arc<Disk>, fs: u64, bytes: usize) -> Self {
        let kept = (bytes / BLOCK / SHARDS as usize).max(16);
        let shard = || Apart(Mutex::new(Shard { sweep_at: kept, ..Shard::default() }));
        Self { disk, fs, kept, shards: (0..SHARDS).map(|_| shard()).collect(), committed: AtomicU64::new(0) }
    }

    fn shard(&self, block: u64) -> &Mutex<Shard> {
        &self.shards[(spread(block / NEAR) % SHARDS) as usize].0
    }

    pub(crate) fn expected(&self, block: u64, kind: Kind, owner: u64) -> Expected {
        Expected { kind, fs: self.fs, block, owner: Some(owner) }
    }

    /// The block, read from the device when it is not here.
    pub(crate) fn get(&self, block: u64, kind: Kind, owner: u64) -> Result<Arc<Buffer>> {
        loop {
            let sweeps = {
                let shard = lock(self.shard(block));
                if let Some(buffer) = shard.table.get(&block) {
                    if !buffer.is_used.load(Ordering::Relaxed) {
                        buffer.is_used.store(true, Ordering::Relaxed);
                    }
                    return Ok(Arc::clone(buffer));
                }
                shard.sweeps
            };
            let page = self.read(block, kind, owner)?;
            let mut shard = lock(self.shard(block));
            if let Some(buffer) = shard.table.get(&block) {
                // Somebody else was faster, and may have changed it already.
                return Ok(Arc::clone(buffer));
            }
            if shard.sweeps == sweeps {
                let buffer = Buffer::new(block, page);
                self.insert(&mut shard, &buffer);
                return Ok(buffer);
            }
            // Somebody may have read it, changed it and let it go meanwhile: this is what was there before.
        }
    }

    fn read(&self, block: u64, kind: Kind, owner: u64) -> Result<Page> {
        if block >= self.disk.blocks() {
            return Err(Error::damaged(block, format!("the device has {} blocks", self.disk.blocks())));
        }
        let mut page: Page = [0; BLOCK];
        self.disk.read(block, &mut page)?;
        layout::check(&page, &self.expected(block, kind, owner))?;
        if kind == Kind::Tree {
            page::check(&page, block)?;
        }
        Ok(page)
    }

    /// A block that is new: an empty page with its header.
    pub(crate) fn create(&self, block: u64, kind: Kind, owner: u64) -> Arc<Buffer> {
        let mut page: Page = [0; BLOCK];
        layout::stamp(&mut page, &self.expected(block, kind, owner));
        let buffer = Buffer::new(block, page);
        self.insert(&mut lock(self.shard(block)), &buffer);
        buffer
    }

    fn insert(&self, shard: &mut Shard, buffer: &Arc<Buffer>) {
        self.sweep(shard);
        shard.table.insert(buffer.block, Arc::clone(buffer));
    }

    /// A block that is new unless it is here.
    pub(crate) fn get_or_create(&self, block: u64, kind: Kind, owner: u64) -> Arc<Buffer> {
        let here = lock(self.shard(block)).table.get(&block).cloned();
        here.unwrap_or_else(|| self.create(block, kind, owner))
    }

    /// An image of a committed transaction that is not in its place.
    pub(crate) fn put(&self, block: u64, page: Page, tx: u64) -> Arc<Buffer> {
        let buffer = Buffer::new(block, page);
        write(&buffer.state).pending = tx;
        self.insert(&mut lock(self.shard(block)), &buffer);
        buffer
    }

    /// The block belongs to nobody any more.
    pub(crate) fn drop_block(&self, block: u64) {
        if let Some(buffer) = lock(self.shard(block)).table.remove(&block) {
            buffer.is_dropped.store(true, Ordering::Release);
        }
    }

    /// Transactions up to this one are on the media from now on: what they have changed can be given up, once
    /// it is in its place.
    pub(crate) fn note_committed(&self, committed: u64) {
        self.committed.store(committed, Ordering::Release);
    }

    /// Gives up what nobody has used since the last time, when there is much.
    fn sweep(&self, shard: &mut Shard) {
        if shard.table.len() < shard.sweep_at {
            return;
        }
        shard.sweeps += 1;
        let committed = self.committed.load(Ordering::Acquire);
        shard.table.retain(|_, buffer| {
            let was_used = buffer.is_used.swap(false, Ordering::Relaxed);
            was_used || Arc::strong_count(buffer) > 1 || !buffer.is_clean(committed)
        });
        shard.sweep_at = self.kept.max(shard.table.len() + self.kept / 4);
    }
}

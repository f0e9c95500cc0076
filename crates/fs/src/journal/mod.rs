//! Transactions: what changes together is on the media together, or not at all.
//!
//! Operations join the running transaction ([`Journal::begin`]), change blocks, and leave it. A commit closes
//! it, waits for those who are in it, and writes one record: descriptors, and an image of each block that was
//! changed. The next transaction runs meanwhile. Images go to their places when the ring is half full.
//!
//! Whoever begins holds its inode locks already and takes no more of them: that is why a commit, which waits
//! for those who have begun, always comes to its end.

mod commit;
mod replay;
mod tx;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use unvme::lock::{lock, wait};

use crate::buffer::{Buffer, Buffers};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::layout::{Geometry, Page};
use crate::space::{Need, Run, Space};

pub(crate) use replay::{Replayed, forget, replay};
pub(crate) use tx::Tx;

/// What the running transaction has.
struct Running {
    id: u64,
    /// Operations that are in it.
    active: usize,
    /// Nobody joins any more.
    is_closing: bool,
    /// Blocks that it has changed, and those that operations in it still may.
    blocks: usize,
    changed: Vec<Arc<Buffer>>,
    revoked: Vec<u64>,
    freed: Vec<Run>,
    freed_inodes: Vec<u64>,
    /// As the media will say it.
    free_blocks: u64,
    free_inodes: u64,
}

impl Running {
    /// One that has done nothing.
    fn new(id: u64, (free_blocks, free_inodes): (u64, u64)) -> Self {
        Self {
            id,
            active: 0,
            is_closing: false,
            blocks: 0,
            changed: Vec::new(),
            revoked: Vec::new(),
            freed: Vec::new(),
            freed_inodes: Vec::new(),
            free_blocks,
            free_inodes,
        }
    }
}

/// Where the ring is written.
struct Ring {
    /// Blocks from its beginning: the next record.
    head: u64,
    /// Blocks that records take, whose images are not all in their places.
    used: u64,
    /// The next transaction that is written.
    next_tx: u64,
    /// Images that are not in their places.
    pending: HashMap<u64, (Arc<Page>, u64, Arc<Buffer>)>,
    /// The free blocks and inodes as of the last commit.
    free: (u64, u64),
    /// Which of the two heads is written next.
    turn: u64,
}

/// The journal.
pub(crate) struct Journal {
    disk: Arc<Disk>,
    buffers: Arc<Buffers>,
    space: Arc<Space>,
    geometry: Geometry,
    fs: u64,
    running: Mutex<Running>,
    changed: Condvar,
    ring: Mutex<Ring>,
    committed: AtomicU64,
    dead: OnceLock<String>,
}

/// Blocks of the journal's own heads.
const HEADS: u64 = 2;

impl Journal {
    pub(crate) fn new(
        disk: Arc<Disk>,
        buffers: Arc<Buffers>,
        space: Arc<Space>,
        geometry: Geometry,
        fs: u64,
        start: &Replayed,
    ) -> Self {
        let pending = start
            .images
            .iter()
            .map(|(&block, (page, tx))| {
                let buffer = buffers.put(block, **page, *tx);
                (block, (Arc::clone(page), *tx, buffer))
            })
            .collect();
        let running = Running::new(start.next_tx, start.free);
        let ring = Ring {
            head: start.head,
            used: start.used,
            next_tx: start.next_tx,
            pending,
            free: start.free,
            turn: start.turn,
        };
        Self {
            disk,
            buffers,
            space,
            geometry,
            fs,
            running: Mutex::new(running),
            changed: Condvar::new(),
            ring: Mutex::new(ring),
            committed: AtomicU64::new(start.next_tx - 1),
            dead: OnceLock::new(),
        }
    }

    fn ring_blocks(&self) -> u64 {
        self.geometry.journal_blocks - HEADS
    }

    /// The last transaction that is on the media.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// The one that operations join now.
    pub(crate) fn running(&self) -> u64 {
        lock(&self.running).id
    }

    /// Free blocks and inodes, as the running transaction has them.
    pub(crate) fn free_counts(&self) -> (u64, u64) {
        let running = lock(&self.running);
        (running.free_blocks, running.free_inodes)
    }

    /// They were counted anew.
    pub(crate) fn set_free_counts(&self, (blocks, inodes): (u64, u64)) {
        let mut running = lock(&self.running);
        (running.free_blocks, running.free_inodes) = (blocks, inodes);
    }

    /// Nothing is changed from now on, because of `reason`; the first one counts.
    pub(crate) fn kill(&self, reason: &Error) {
        if self.dead.set(reason.to_string()).is_ok() {
            tracing::error!("{}: the file system is read-only from now on: {reason}", self.disk.name());
        }
    }

    /// Whether anything can be changed.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.dead.get().map_or(Ok(()), |reason| Err(Error::ReadOnly(reason.clone())))
    }

    /// Joins the running transaction, for an operation that changes up to `blocks` blocks of metadata and
    /// needs up to `growth` new ones.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; ENOSPC; those of a commit, if one is needed to make room.
    pub(crate) fn begin(&self, blocks: usize, growth: u64, need: Need) -> Result<Tx<'_>> {
        self.check_alive()?;
        if self.space.reserve(growth, need).is_err() {
            // What was freed comes back with a commit.
            self.commit(self.running())?;
            self.space.reserve(growth, need)?;
        }
        let max = (self.ring_blocks() / 3) as usize;
        let mut running = lock(&self.running);
        loop {
            if running.is_closing {
                running = wait(&self.changed, running);
            } else if running.blocks + blocks > max && running.blocks > 0 {
                let id = running.id;
                drop(running);
                if let Err(e) = self.commit(id) {
                    self.space.give_back(growth);
                    return Err(e);
                }
                running = lock(&self.running);
            } else {
                break;
            }
        }
        running.active += 1;
        running.blocks += blocks;
        Ok(Tx::new(self, running.id, blocks, growth))
    }
}

//! Transactions: what changes together is on the media together, or not at all.
//!
//! Operations join the running transaction ([`Journal::begin`]), change blocks, and leave it. A commit closes
//! it, waits for those who are in it, and writes one record: descriptors, and an image of each block that was
//! changed. The next transaction runs meanwhile. Images go to their places when the ring is half full.
//!
//! Operations of different CPUs join different parts of the transaction, and so share no cache line; a commit
//! puts the parts together. An operation that cannot go on takes back what it has changed ([`Tx::abort`]).
//!
//! Whoever begins holds its inode locks already and takes no more of them: that is why a commit, which waits
//! for those who have begun, always comes to its end.

mod commit;
mod replay;
mod salvage;
mod tx;

use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use unvme::lock::{lock, wait};

use crate::buffer::{Buffer, Buffers};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::layout::{Geometry, Header, Kind, Page};
use crate::space::{Need, Run, Space};
use crate::stripe::Stripes;
use unvme::spread::ByNumber;

pub(crate) use replay::{Replayed, recover};
pub(crate) use salvage::Damage;
use tx::Lists;
pub(crate) use tx::Tx;

/// What operations have changed.
#[derive(Default)]
struct Changes {
    buffers: Vec<Arc<Buffer>>,
    revoked: Vec<u64>,
    freed: Vec<Run>,
    freed_inodes: Vec<u64>,
    /// More, or fewer, blocks and inodes are free on the media.
    free: (i64, i64),
}

impl Changes {
    fn append(&mut self, more: &mut Self) {
        self.buffers.append(&mut more.buffers);
        self.revoked.append(&mut more.revoked);
        self.freed.append(&mut more.freed);
        self.freed_inodes.append(&mut more.freed_inodes);
        let (blocks, inodes) = mem::take(&mut more.free);
        (self.free.0, self.free.1) = (self.free.0 + blocks, self.free.1 + inodes);
    }
}

/// What the operations of one CPU have in the running transaction.
struct Part {
    /// The running transaction.
    id: u64,
    /// Operations that are in it.
    active: usize,
    /// Nobody joins any more.
    is_closing: bool,
    /// Blocks that its operations may still change, of those that the transaction has room for.
    room: usize,
    changes: Changes,
    /// For operations to come: lists that are empty, and have memory.
    spare: Vec<Lists>,
}

/// A part, and the place to wait until it has opened, or until nobody is in it.
struct Stripe {
    part: Mutex<Part>,
    changed: Condvar,
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
    pending: ByNumber<(Arc<Page>, u64, Arc<Buffer>)>,
    /// The free blocks and inodes as of the last commit.
    free: (u64, u64),
    /// Which of the two heads is written next.
    turn: u64,
    /// The newer head says that the ring holds nothing: a mount believes it without a look at the ring.
    is_clean: bool,
}

/// The journal.
pub(crate) struct Journal {
    disk: Arc<Disk>,
    buffers: Arc<Buffers>,
    space: Arc<Space>,
    geometry: Geometry,
    fs: u64,
    stripes: Stripes<Stripe>,
    /// The transaction that operations join now.
    running: AtomicU64,
    /// Blocks that it still has room for, and that no part was given.
    room: AtomicUsize,
    ring: Mutex<Ring>,
    committed: AtomicU64,
    dead: OnceLock<String>,
    /// The root of the tree of files without names.
    orphans: Mutex<u64>,
}

/// Blocks of the journal's own heads.
const HEADS: u64 = 2;

/// Blocks of metadata that an operation changes at most.
const TOUCHED: usize = 64;

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
        buffers.note_committed(start.next_tx - 1);
        let part = || Part {
            id: start.next_tx,
            active: 0,
            is_closing: false,
            room: 0,
            changes: Changes::default(),
            spare: Vec::new(),
        };
        let ring = Ring {
            head: start.head,
            used: start.used,
            next_tx: start.next_tx,
            pending,
            free: start.free,
            turn: start.turn,
            is_clean: start.is_clean,
        };
        let journal = Self {
            disk,
            buffers,
            space,
            geometry,
            fs,
            stripes: Stripes::new(|| Stripe { part: Mutex::new(part()), changed: Condvar::new() }),
            running: AtomicU64::new(start.next_tx),
            room: AtomicUsize::new(0),
            ring: Mutex::new(ring),
            committed: AtomicU64::new(start.next_tx - 1),
            dead: OnceLock::new(),
            orphans: Mutex::new(0),
        };
        journal.room.store(journal.room_max(), Ordering::Relaxed);
        journal
    }

    fn ring_blocks(&self) -> u64 {
        self.geometry.journal_blocks - HEADS
    }

    /// Blocks that a transaction may change: one operation always can.
    fn room_max(&self) -> usize {
        (self.ring_blocks() as usize / 3).max(TOUCHED)
    }

    /// The last transaction that is on the media.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// The one that operations join now.
    pub(crate) fn running(&self) -> u64 {
        self.running.load(Ordering::Acquire)
    }

    /// The root of the tree of files without names.
    pub(crate) fn orphans(&self) -> u64 {
        *lock(&self.orphans)
    }

    /// It is there from now on.
    pub(crate) fn set_orphans(&self, root: u64) {
        *lock(&self.orphans) = root;
    }

    /// Free blocks and inodes, as the running transaction has them.
    pub(crate) fn free_counts(&self) -> (u64, u64) {
        let (blocks, inodes) = lock(&self.ring).free;
        let more = self.stripes.iter().map(|stripe| lock(&stripe.part).changes.free);
        let (more_blocks, more_inodes) = more.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        (blocks.wrapping_add_signed(more_blocks), inodes.wrapping_add_signed(more_inodes))
    }

    /// They were counted anew.
    pub(crate) fn set_free_counts(&self, free: (u64, u64)) {
        let mut ring = lock(&self.ring);
        self.stripes.iter().for_each(|stripe| lock(&stripe.part).changes.free = (0, 0));
        ring.free = free;
    }

    /// Drops the images of pages of trees that are not to be written to their addresses.
    pub(crate) fn drop_images(&self, is_unused: impl Fn(u64) -> bool) {
        lock(&self.ring).pending.retain(|&block, (page, tx, buffer)| {
            let is_dropped = Header::of(page).kind() == Kind::Tree as u16 && is_unused(block);
            if is_dropped {
                buffer.placed(*tx);
            }
            !is_dropped
        });
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

    /// Joins the running transaction, for an operation that changes up to [`TOUCHED`] blocks of metadata and
    /// needs up to `growth` new ones.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; ENOSPC; those of a commit, if one is needed to make room.
    pub(crate) fn begin(&self, growth: u64, need: Need) -> Result<Tx<'_>> {
        self.check_alive()?;
        if self.space.reserve(growth, need).is_err() {
            // What was freed comes back with a commit.
            self.reclaim()?;
            self.space.reserve(growth, need)?;
        }
        let stripe = self.stripes.own();
        let mut part = lock(&stripe.part);
        loop {
            if part.is_closing {
                part = wait(&stripe.changed, part);
            } else if part.room < TOUCHED && !self.grant(&mut part) {
                let id = part.id;
                drop(part);
                if let Err(e) = self.commit(id) {
                    self.space.give_back(growth);
                    return Err(e);
                }
                part = lock(&stripe.part);
            } else {
                break;
            }
        }
        part.active += 1;
        part.room -= TOUCHED;
        let lists = part.spare.pop().unwrap_or_default();
        Ok(Tx::new(self, stripe, part.id, growth, lists))
    }

    /// Gives a part some of the room that the transaction has. Returns whether it is enough for an operation.
    fn grant(&self, part: &mut Part) -> bool {
        let some = (self.room_max() / 8).clamp(TOUCHED, 4 * TOUCHED);
        let take = |room: usize| (room > 0).then(|| room - room.min(some));
        if let Ok(room) = self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) {
            part.room += room.min(some);
        }
        part.room >= TOUCHED
    }
}

//! An operation's part of the running transaction.

use std::sync::Arc;

use unvme::lock::lock;

use super::Journal;
use crate::bits;
use crate::buffer::{Buffer, Buffers};
use crate::error::{Error, Result};
use crate::layout::{self, INODES_PER_BLOCK, Inode, Kind, Page};
use crate::space::Run;

/// What one operation does. It is done when this is dropped; there is no way back.
pub(crate) struct Tx<'a> {
    journal: &'a Journal,
    id: u64,
    /// Blocks that it said it would change.
    blocks: usize,
    /// New blocks that are set aside for it.
    growth: u64,
    changed: Vec<Arc<Buffer>>,
    revoked: Vec<u64>,
    freed: Vec<Run>,
    freed_inodes: Vec<u64>,
    is_begun: bool,
    /// Pages of trees, more or fewer.
    pages: i64,
    /// More, or fewer, blocks and inodes are free on the media.
    free: (i64, i64),
}

impl<'a> Tx<'a> {
    pub(super) fn new(journal: &'a Journal, id: u64, blocks: usize, growth: u64) -> Self {
        Self {
            journal,
            id,
            blocks,
            growth,
            changed: Vec::new(),
            revoked: Vec::new(),
            freed: Vec::new(),
            freed_inodes: Vec::new(),
            is_begun: false,
            pages: 0,
            free: (0, 0),
        }
    }

    /// Pages of trees that it has made, less those that it has freed.
    pub(crate) fn pages(&self) -> i64 {
        self.pages
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn buffers(&self) -> &'a Buffers {
        &self.journal.buffers
    }

    /// Changes a block.
    pub(crate) fn change<R>(&mut self, buffer: &Arc<Buffer>, change: impl FnOnce(&mut Page) -> R) -> R {
        self.is_begun = true;
        let (result, is_first) = buffer.change(self.id, change);
        if is_first {
            self.changed.push(Arc::clone(buffer));
        }
        result
    }

    fn mark(&mut self, run: Run, is_used: bool) -> Result<()> {
        let geometry = &self.journal.geometry;
        let Some((group, place)) =
            geometry.group_of(run.start).filter(|_| geometry.holds_data(run.start, run.blocks))
        else {
            return Err(Error::damaged(
                run.start,
                format!("{} blocks from here on belong to no file", run.blocks),
            ));
        };
        self.journal.space.load(group)?;
        let buffer = self.buffers().get(geometry.group_start(group), Kind::BlockMap, group.into())?;
        let changed = self.change(&buffer, |page| bits::mark(page, place, run.blocks, is_used));
        self.free.0 += if is_used { -(changed as i64) } else { changed as i64 };
        if changed != run.blocks {
            let state = if is_used { "used" } else { "free" };
            return Err(Error::damaged(
                run.start,
                format!("of {} blocks some are {state} already", run.blocks),
            ));
        }
        Ok(())
    }

    /// Blocks that were taken belong to a file from now on.
    pub(crate) fn use_run(&mut self, run: Run) -> Result<()> {
        self.mark(run, true)
    }

    /// Blocks belong to nobody any more. They may be within several groups.
    pub(crate) fn free_run(&mut self, run: Run) -> Result<()> {
        self.mark(run, false)?;
        self.freed.push(run);
        Ok(())
    }

    /// A new page of a tree, out of what was set aside.
    pub(crate) fn alloc_page(&mut self, goal: u64, owner: u64) -> Result<Arc<Buffer>> {
        assert!(self.growth > 0, "an operation needs more blocks than it said");
        let run = self.journal.space.take(goal, 1)?;
        self.growth -= 1;
        self.pages += 1;
        self.use_run(run)?;
        let buffer = self.buffers().create(run.start, Kind::Tree, owner);
        self.change(&buffer, |_| ());
        Ok(buffer)
    }

    /// A page belongs to no tree any more.
    pub(crate) fn free_page(&mut self, block: u64) {
        self.buffers().drop_block(block);
        self.revoked.push(block);
        self.pages -= 1;
        // A page that was in a tree is in its map; if it is not, there is one block less.
        if let Err(e) = self.free_run(Run { start: block, blocks: 1 }) {
            tracing::warn!("{e}");
        }
    }

    /// Sets what an inode says.
    pub(crate) fn put_inode(&mut self, ino: u64, inode: Option<&Inode>) -> Result<()> {
        let (buffer, index) = self.journal.inode_buffer(ino)?;
        self.change(&buffer, |page| layout::encode(page, index, inode));
        Ok(())
    }

    fn inode_map(&self, ino: u64) -> Result<(Arc<Buffer>, u32, u64)> {
        let geometry = &self.journal.geometry;
        let (group, place) =
            geometry.inode_place(ino).ok_or_else(|| Error::damaged(0, format!("there is no inode {ino}")))?;
        Ok((self.buffers().get(geometry.inode_map(group), Kind::InodeMap, group.into())?, group, place))
    }

    /// An inode that was taken is used from now on.
    pub(crate) fn use_inode(&mut self, ino: u64) -> Result<()> {
        let (map, group, place) = self.inode_map(ino)?;
        let (block, _) = self.journal.geometry.inode_block(ino).expect("it has a place");
        let buffers = self.buffers();
        self.free.1 -= self.change(&map, |page| {
            let first = place - place % INODES_PER_BLOCK;
            if (first..first + INODES_PER_BLOCK).all(|place| !bits::is_marked(page, place)) {
                // Under the lock of the map: the next one to take an inode of this block finds it.
                buffers.get_or_create(block, Kind::Inodes, group.into());
            }
            bits::mark(page, place, 1, true)
        }) as i64;
        Ok(())
    }

    /// An inode is nobody's any more.
    pub(crate) fn free_inode(&mut self, ino: u64) -> Result<()> {
        let (map, group, place) = self.inode_map(ino)?;
        self.journal.space.load(group)?;
        self.put_inode(ino, None)?;
        self.free.1 += self.change(&map, |page| bits::mark(page, place, 1, false)) as i64;
        self.freed_inodes.push(ino);
        Ok(())
    }

    /// Whether it has changed anything: what then goes wrong leaves it half done.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        self.journal.space.give_back(self.growth);
        let mut running = lock(&self.journal.running);
        running.active -= 1;
        running.blocks = running.blocks - self.blocks + self.changed.len();
        running.changed.append(&mut self.changed);
        running.revoked.append(&mut self.revoked);
        running.freed.append(&mut self.freed);
        running.freed_inodes.append(&mut self.freed_inodes);
        running.free_blocks = running.free_blocks.wrapping_add_signed(self.free.0);
        running.free_inodes = running.free_inodes.wrapping_add_signed(self.free.1);
        if running.active == 0 && running.is_closing {
            self.journal.changed.notify_all();
        }
    }
}

impl Journal {
    /// The block that holds an inode, and which of it.
    pub(crate) fn inode_buffer(&self, ino: u64) -> Result<(Arc<Buffer>, usize)> {
        let (block, index) = self
            .geometry
            .inode_block(ino)
            .ok_or_else(|| Error::damaged(0, format!("there is no inode {ino}")))?;
        let (group, _) = self.geometry.inode_place(ino).expect("it has a block");
        Ok((self.buffers.get(block, Kind::Inodes, group.into())?, index))
    }
}

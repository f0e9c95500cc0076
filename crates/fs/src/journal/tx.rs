//! An operation's part of the running transaction.

use std::mem;
use std::sync::{Arc, MutexGuard};

use unvme::lock::lock;

use super::{Changes, Journal, Stripe, TOUCHED};
use crate::bits;
use crate::buffer::{Buffer, Buffers};
use crate::error::{Error, Result};
use crate::layout::{self, INODES_PER_BLOCK, Inode, InodeBytes, Kind, Page};
use crate::page;
use crate::space::Run;

/// Lists that are kept for operations to come, for each CPU.
const SPARE_MAX: usize = 4;

/// How a change is taken back.
enum Undo {
    /// A page was written anew: all of it, as it was.
    Page(Arc<Buffer>, Box<Page>),
    /// A page of a tree was made.
    Made(Arc<Buffer>),
    /// A key was added.
    Added(Arc<Buffer>, u64),
    /// A key was removed: with its value.
    Removed(Arc<Buffer>, u64, Vec<u8>),
    /// A value was replaced by one of the same length.
    Overwritten(Arc<Buffer>, u64, Vec<u8>),
    /// Bits of a map were set, or cleared.
    Marked { map: Arc<Buffer>, place: u64, len: u64, is_used: bool },
    /// An inode of a block says something else.
    Inode(Arc<Buffer>, usize, Box<InodeBytes>),
}

/// What an operation writes down.
#[derive(Default)]
pub(super) struct Lists {
    changes: Changes,
    undo: Vec<Undo>,
}

/// What one operation does. It is done when this is dropped; [`Tx::abort`] takes everything back before.
pub(crate) struct Tx<'a> {
    journal: &'a Journal,
    stripe: &'a Stripe,
    id: u64,
    /// New blocks that are set aside for it.
    growth: u64,
    changes: Changes,
    undo: Vec<Undo>,
    /// Pages of trees, more or fewer.
    pages: i64,
    /// The list of files without names, until the operation has ended or is taken back.
    orphans: Option<MutexGuard<'a, u64>>,
}

impl<'a> Tx<'a> {
    pub(super) fn new(
        journal: &'a Journal,
        stripe: &'a Stripe,
        id: u64,
        growth: u64,
        Lists { changes, undo }: Lists,
    ) -> Self {
        Self { journal, stripe, id, growth, changes, undo, pages: 0, orphans: None }
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

    /// The root of the tree of files without names. Nobody else changes it as long as this is under way.
    pub(crate) fn orphans(&mut self) -> u64 {
        let journal = self.journal;
        **self.orphans.get_or_insert_with(|| lock(&journal.orphans))
    }

    fn change<R>(&mut self, buffer: &Arc<Buffer>, change: impl FnOnce(&mut Page) -> R) -> R {
        let (result, is_first) = buffer.change(self.id, change);
        if is_first {
            self.changes.buffers.push(Arc::clone(buffer));
        }
        result
    }

    /// Adds a key to a page, where there is room for it.
    pub(crate) fn add(&mut self, buffer: &Arc<Buffer>, key: u64, value: &[u8]) {
        self.change(buffer, |page| page::add(page, key, value));
        self.undo.push(Undo::Added(Arc::clone(buffer), key));
    }

    /// Removes a key of a page.
    pub(crate) fn remove(&mut self, buffer: &Arc<Buffer>, index: usize) {
        let (key, value) = self.change(buffer, |page| {
            let removed = (page::key(page, index), page::value(page, index).to_vec());
            page::remove(page, index);
            removed
        });
        self.undo.push(Undo::Removed(Arc::clone(buffer), key, value));
    }

    /// Sets a value of the same length in its place.
    pub(crate) fn overwrite(&mut self, buffer: &Arc<Buffer>, index: usize, value: &[u8]) {
        let (key, old) = self.change(buffer, |page| {
            let old = (page::key(page, index), page::value(page, index).to_vec());
            page::overwrite(page, index, value);
            old
        });
        self.undo.push(Undo::Overwritten(Arc::clone(buffer), key, old));
    }

    /// Changes a page in any other way.
    pub(crate) fn rewrite<R>(&mut self, buffer: &Arc<Buffer>, change: impl FnOnce(&mut Page) -> R) -> R {
        let is_made = |undo: &Undo| matches!(undo, Undo::Made(made) if Arc::ptr_eq(made, buffer));
        if !self.undo.iter().any(is_made) {
            self.undo.push(Undo::Page(Arc::clone(buffer), buffer.with(|page| Box::new(*page))));
        }
        self.change(buffer, change)
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
        let map = self.buffers().get(geometry.group_start(group), Kind::BlockMap, group.into())?;
        let changed = self.change(&map, |page| bits::mark(page, place, run.blocks, is_used));
        if changed != run.blocks {
            // It is not known any more who has what: nothing is to be changed from now on.
            let state = if is_used { "used" } else { "free" };
            return Err(Error::damaged(
                run.start,
                format!("of {} blocks some are {state} already", run.blocks),
            ));
        }
        self.changes.free.0 += if is_used { -(changed as i64) } else { changed as i64 };
        self.undo.push(Undo::Marked { map, place, len: run.blocks, is_used });
        Ok(())
    }

    /// Blocks that were taken belong to a file from now on.
    pub(crate) fn use_run(&mut self, run: Run) -> Result<()> {
        self.mark(run, true)
    }

    /// Blocks belong to nobody any more. They may be within several groups.
    pub(crate) fn free_run(&mut self, run: Run) -> Result<()> {
        self.mark(run, false)?;
        self.changes.freed.push(run);
        Ok(())
    }

    /// A new page of a tree, out of what was set aside.
    pub(crate) fn alloc_page(&mut self, goal: u64, owner: u64) -> Result<Arc<Buffer>> {
        assert!(self.growth > 0, "an operation needs more blocks than it said");
        let run = self.journal.space.take(goal, 1)?;
        if let Err(e) = self.use_run(run) {
            self.journal.space.put_back(run);
            return Err(e);
        }
        self.growth -= 1;
        self.pages += 1;
        let buffer = self.buffers().create(run.start, Kind::Tree, owner);
        self.undo.push(Undo::Made(Arc::clone(&buffer)));
        self.change(&buffer, |_| ());
        Ok(buffer)
    }

    /// A page belongs to no tree any more.
    ///
    /// # Errors
    /// Its map cannot be read, or says something else.
    pub(crate) fn free_page(&mut self, block: u64) -> Result<()> {
        self.free_run(Run { start: block, blocks: 1 })?;
        self.changes.revoked.push(block);
        self.pages -= 1;
        Ok(())
    }

    /// Sets what an inode says.
    pub(crate) fn put_inode(&mut self, ino: u64, inode: Option<&Inode>) -> Result<()> {
        let (buffer, index) = self.journal.inode_buffer(ino)?;
        let before = self.change(&buffer, |page| {
            let before = Box::new(layout::inode_bytes(page, index));
            layout::encode(page, index, inode);
            before
        });
        self.undo.push(Undo::Inode(buffer, index, before));
        Ok(())
    }

    fn inode_map(&self, ino: u64) -> Result<(Arc<Buffer>, u32, u64)> {
        let geometry = &self.journal.geometry;
        let (group, place) =
            geometry.inode_place(ino).ok_or_else(|| Error::damaged(0, format!("there is no inode {ino}")))?;
        Ok((self.buffers().get(geometry.inode_map(group), Kind::InodeMap, group.into())?, group, place))
    }

    fn mark_inode(&mut self, map: Arc<Buffer>, place: u64, is_used: bool, look: impl FnOnce(&Page)) {
        let changed = self.change(&map, |page| {
            look(page);
            bits::mark(page, place, 1, is_used) as i64
        });
        self.changes.free.1 += if is_used { -changed } else { changed };
        if changed > 0 {
            self.undo.push(Undo::Marked { map, place, len: 1, is_used });
        }
    }

    /// An inode that was taken is used from now on.
    pub(crate) fn use_inode(&mut self, ino: u64) -> Result<()> {
        let (map, group, place) = self.inode_map(ino)?;
        let (block, _) = self.journal.geometry.inode_block(ino).expect("it has a place");
        let buffers = self.buffers();
        self.mark_inode(map, place, true, |page| {
            let first = place - place % INODES_PER_BLOCK;
            if (first..first + INODES_PER_BLOCK).all(|place| !bits::is_marked(page, place)) {
                // Under the lock of the map: the next one to take an inode of this block finds it.
                buffers.get_or_create(block, Kind::Inodes, group.into());
            }
        });
        Ok(())
    }

    /// An inode is nobody's any more.
    pub(crate) fn free_inode(&mut self, ino: u64) -> Result<()> {
        let (map, group, place) = self.inode_map(ino)?;
        self.journal.space.load(group)?;
        self.put_inode(ino, None)?;
        self.mark_inode(map, place, false, |_| ());
        self.changes.freed_inodes.push(ino);
        Ok(())
    }

    /// Takes everything back. What it has changed is as it was, and in the transaction all the same.
    pub(crate) fn abort(&mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Page(buffer, before) => self.change(&buffer, |page| *page = *before),
                Undo::Made(buffer) => {
                    self.buffers().drop_block(buffer.block);
                    self.journal.space.put_back(Run { start: buffer.block, blocks: 1 });
                    self.growth += 1;
                }
                Undo::Added(buffer, key) => self.change(&buffer, |page| {
                    if let Ok(index) = page::find(page, key) {
                        page::remove(page, index);
                    }
                }),
                Undo::Removed(buffer, key, value) => {
                    self.change(&buffer, |page| page::add(page, key, &value));
                }
                Undo::Overwritten(buffer, key, value) => self.change(&buffer, |page| {
                    if let Ok(index) = page::find(page, key) {
                        page::overwrite(page, index, &value);
                    }
                }),
                Undo::Marked { map, place, len, is_used } => {
                    self.change(&map, |page| bits::mark(page, place, len, !is_used));
                }
                Undo::Inode(buffer, index, before) => {
                    self.change(&buffer, |page| layout::put_inode_bytes(page, index, &before));
                }
            }
        }
        let buffers = mem::take(&mut self.changes.buffers);
        self.changes = Changes { buffers, ..Changes::default() };
        self.pages = 0;
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        // Pages that belong to no tree any more: nothing leads to them.
        self.changes.revoked.iter().for_each(|&block| self.journal.buffers.drop_block(block));
        self.journal.space.give_back(self.growth);
        let freed = self.changes.freed.iter().map(|run| run.blocks).sum();
        self.journal.space.note_freed(freed, self.changes.freed_inodes.len() as u64);
        self.undo.clear();
        let mut part = lock(&self.stripe.part);
        part.active -= 1;
        part.room += TOUCHED.saturating_sub(self.changes.buffers.len());
        part.changes.append(&mut self.changes);
        if part.spare.len() < SPARE_MAX {
            part.spare.push(Lists { changes: mem::take(&mut self.changes), undo: mem::take(&mut self.undo) });
        }
        if part.active == 0 && part.is_closing {
            self.stripe.changed.notify_all();
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

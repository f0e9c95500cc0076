//! A tree of pages: 64-bit keys, values of up to [`page::VALUE_MAX`] bytes. Directories, extents and extended
//! attributes are such trees. The root page never moves.
//!
//! Whoever changes a tree holds the lock of the inode that it belongs to; so does, shared, whoever reads.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::buffer::{Buffer, Buffers};
use crate::error::{Error, Result};
use crate::journal::Tx;
use crate::layout::{Header, Kind, Page};
use crate::page;

/// Blocks that an insertion may need.
pub(crate) const GROWTH: u64 = page::LEVELS_MAX as u64 + 1;

/// What is wrong where two ways lead to the same page.
const TWICE: &str = "a page of a tree is there twice";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    pub root: u64,
    pub owner: u64,
}

/// The way to a leaf: each page, and which of its children was taken.
type Way = Vec<(Arc<Buffer>, usize)>;

impl Tree {
    /// A new tree, of an empty page.
    pub(crate) fn create(tx: &mut Tx<'_>, goal: u64, owner: u64) -> Result<Self> {
        let buffer = tx.alloc_page(goal, owner)?;
        tx.rewrite(&buffer, |page| page::init(page, 0));
        Ok(Self { root: buffer.block, owner })
    }

    fn get_page(&self, buffers: &Buffers, block: u64) -> Result<Arc<Buffer>> {
        buffers.get(block, Kind::Tree, self.owner)
    }

    fn child(&self, buffers: &Buffers, parent: &Buffer, index: usize) -> Result<Arc<Buffer>> {
        let (block, level) = parent.with(|page| (page::child(page, index), page::level(page)));
        let child = self.get_page(buffers, block)?;
        if child.with(page::level) + 1 != level {
            return Err(Error::damaged(
                block,
                format!("a page of a tree: its level does not fit under {level}"),
            ));
        }
        Ok(child)
    }

    fn way(&self, buffers: &Buffers, key: u64) -> Result<(Way, Arc<Buffer>)> {
        let mut way = Vec::new();
        let mut at = self.get_page(buffers, self.root)?;
        while let Some(index) = at.with(|page| (page::level(page) > 0).then(|| page::descend(page, key))) {
            let child = self.child(buffers, &at, index)?;
            way.push((std::mem::replace(&mut at, child), index));
        }
        Ok((way, at))
    }

    /// As [`Tree::visit`], of a few keys that are in one page nearly always: nothing is remembered of the
    /// way. Returns the page that `from` is in, or would be, and all that was visited.
    pub(crate) fn visit_few(
        &self,
        buffers: &Buffers,
        from: u64,
        end: u64,
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<Arc<Buffer>>> {
        let mut at = self.get_page(buffers, self.root)?;
        while let Some(index) = at.with(|page| (page::level(page) > 0).then(|| page::descend(page, from))) {
            at = self.child(buffers, &at, index)?;
        }
        let is_over = at.with(|page| {
            let (Ok(first) | Err(first)) = page::find(page, from);
            for index in first..page::count(page) {
                let key = page::key(page, index);
                if key >= end || visit(key, page::value(page, index)).is_break() {
                    return true;
                }
            }
            false
        });
        if is_over {
            return Ok(Some(at));
        }
        // It may go on in the next page: all of it once more.
        let mut is_any = false;
        self.visit(buffers, from, |key, value| {
            if key >= end {
                return ControlFlow::Break(());
            }
            is_any = true;
            visit(key, value)
        })?;
        Ok((!is_any).then_some(at))
    }

    /// Shows every key from `from` on, in order, until it is told to stop.
    pub(crate) fn visit(
        &self,
        buffers: &Buffers,
        from: u64,
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let (mut way, mut leaf) = self.way(buffers, from)?;
        loop {
            let end = leaf.with(|page| {
                let (Ok(first) | Err(first)) = page::find(page, from);
                (first..page::count(page))
                    .try_for_each(|index| visit(page::key(page, index), page::value(page, index)))
            });
            if end.is_break() {
                return Ok(());
            }
            // The next leaf: up to where there is a next child, and down on its left side.
            loop {
                let Some((inner, index)) = way.pop() else { return Ok(()) };
                if index + 1 < inner.with(page::count) {
                    let mut child = self.child(buffers, &inner, index + 1)?;
                    way.push((inner, index + 1));
                    while child.with(page::level) > 0 {
                        let below = self.child(buffers, &child, 0)?;
                        way.push((child, 0));
                        child = below;
                    }
                    leaf = child;
                    break;
                }
            }
        }
    }

    /// Sets the value of a key. Returns whether it is new.
    pub(crate) fn insert(&self, tx: &mut Tx<'_>, key: u64, value: &[u8]) -> Result<bool> {
        self.insert_at(tx, None, key, value)
    }

    /// As [`Tree::insert`], of a key of which it may be known which page it belongs to.
    pub(crate) fn insert_at(
        &self,
        tx: &mut Tx<'_>,
        leaf: Option<&Arc<Buffer>>,
        key: u64,
        value: &[u8],
    ) -> Result<bool> {
        debug_assert!(value.len() <= page::VALUE_MAX);
        if let Some(leaf) = leaf
            && leaf.with(|page| page::fits(page, value.len()) && page::find(page, key).is_err())
        {
            tx.add(leaf, key, value);
            return Ok(true);
        }
        let (mut way, leaf) = self.way(tx.buffers(), key)?;
        let found = leaf.with(|page| page::find(page, key).map(|at| (at, page::value(page, at).len())));
        if let Ok((index, len)) = found {
            if len == value.len() {
                tx.overwrite(&leaf, index, value);
                return Ok(false);
            }
            tx.remove(&leaf, index);
        }
        self.add(tx, &mut way, leaf, (key, value))?;
        Ok(found.is_err())
    }

    /// Adds a key to a page that does not have it, and makes room above and beside when it is full.
    fn add(
        &self,
        tx: &mut Tx<'_>,
        way: &mut Way,
        target: Arc<Buffer>,
        (key, value): (u64, &[u8]),
    ) -> Result<()> {
        let mut target = target;
        if target.with(|page| page::fits(page, value.len())) {
            tx.add(&target, key, value);
            return Ok(());
        }
        if target.block == self.root {
            target = self.push_down(tx, way, &target)?;
        }
        let right = tx.alloc_page(target.block, self.owner)?;
        let old: Page = target.with(|page| *page);
        let (Ok(index) | Err(index)) = page::find(&old, key);
        let cut = page::middle(&old, index);
        tx.rewrite(&right, |page| {
            page::init(page, page::level(&old));
            page::append(page, &old, cut..page::count(&old));
        });
        tx.rewrite(&target, |page| {
            page::init(page, page::level(&old));
            page::append(page, &old, 0..cut);
        });
        let separator = page::key(&old, cut);
        let (parent, _) = way.pop().expect("the root was pushed down");
        self.add(tx, way, parent, (separator, &right.block.to_le_bytes()))?;
        // Half a page may still be too full for a long value: then it is cut once more.
        let (mut way, half) = self.way_to_level(tx.buffers(), key, page::level(&old))?;
        self.add(tx, &mut way, half, (key, value))
    }

    fn way_to_level(&self, buffers: &Buffers, key: u64, level: u8) -> Result<(Way, Arc<Buffer>)> {
        let mut way = Vec::new();
        let mut at = self.get_page(buffers, self.root)?;
        while let Some(index) = at.with(|page| (page::level(page) > level).then(|| page::descend(page, key)))
        {
            let child = self.child(buffers, &at, index)?;
            way.push((std::mem::replace(&mut at, child), index));
        }
        Ok((way, at))
    }

    /// Moves what the root has into a page of its own below it.
    fn push_down(&self, tx: &mut Tx<'_>, way: &mut Way, root: &Arc<Buffer>) -> Result<Arc<Buffer>> {
        let below = tx.alloc_page(self.root, self.owner)?;
        let old: Page = root.with(|page| *page);
        if page::level(&old) == page::LEVELS_MAX {
            return Err(Error::damaged(self.root, "a tree has too many levels"));
        }
        tx.rewrite(&below, |page| page[Header::BYTES..].copy_from_slice(&old[Header::BYTES..]));
        tx.rewrite(root, |page| {
            page::init(page, page::level(&old) + 1);
            page::insert(page, 0, 0, &below.block.to_le_bytes());
        });
        way.push((Arc::clone(root), 0));
        Ok(below)
    }

    /// Removes a key. Returns whether it was there.
    pub(crate) fn remove(&self, tx: &mut Tx<'_>, key: u64) -> Result<bool> {
        self.remove_at(tx, None, key)
    }

    /// As [`Tree::remove`], of a key of which it may be known which page it is in.
    pub(crate) fn remove_at(&self, tx: &mut Tx<'_>, leaf: Option<&Arc<Buffer>>, key: u64) -> Result<bool> {
        if let Some(leaf) = leaf
            && let Some(index) = leaf.with(|page| {
                let index = page::find(page, key).ok()?;
                (page::used(page) > page::ROOM / 4 + page::VALUE_MAX).then_some(index)
            })
        {
            // It is not the one with which the page gets too empty.
            tx.remove(leaf, index);
            return Ok(true);
        }
        let (mut way, leaf) = self.way(tx.buffers(), key)?;
        let Ok(index) = leaf.with(|page| page::find(page, key)) else { return Ok(false) };
        tx.remove(&leaf, index);
        let mut at = leaf;
        while let Some((parent, index)) = way.pop() {
            let (used, count) = at.with(|page| (page::used(page), page::count(page)));
            if count > 0 && (used > page::ROOM / 4 || !self.merge(tx, &parent, index)?) {
                break;
            }
            if count == 0 {
                self.unlink_child(tx, &parent, index);
                tx.free_page(at.block)?;
            }
            at = parent;
        }
        self.pull_up(tx)?;
        Ok(true)
    }

    /// Takes a child off its parent; the one that becomes the first takes everything below it.
    fn unlink_child(&self, tx: &mut Tx<'_>, parent: &Arc<Buffer>, index: usize) {
        tx.rewrite(parent, |page| {
            let first = page::key(page, 0);
            page::remove(page, index);
            if index == 0 && page::count(page) > 0 {
                page::set_key(page, 0, first);
            }
        });
    }

    /// Puts a child and the one right of it into one page, if they fit. The last one goes with that left of
    /// it.
    fn merge(&self, tx: &mut Tx<'_>, parent: &Arc<Buffer>, index: usize) -> Result<bool> {
        let count = parent.with(page::count);
        if count < 2 {
            return Ok(false);
        }
        let left_index = index.min(count - 2);
        let pair = self.child(tx.buffers(), parent, left_index).and_then(|left| {
            let right = self.child(tx.buffers(), parent, left_index + 1)?;
            Ok((left, right))
        });
        let (left, right) = match pair {
            // It only saves space.
            Err(Error::Device(_)) => return Ok(false),
            other => other?,
        };
        let moved: Page = right.with(|page| *page);
        if left.with(page::used) + page::used(&moved) > page::ROOM * 3 / 4 {
            return Ok(false);
        }
        tx.rewrite(&left, |page| {
            let old = *page;
            page::init(page, page::level(&old));
            page::append(page, &old, 0..page::count(&old));
            page::append(page, &moved, 0..page::count(&moved));
        });
        self.unlink_child(tx, parent, left_index + 1);
        tx.free_page(right.block)?;
        Ok(true)
    }

    /// A root with one child takes its place; one without any is a leaf again.
    fn pull_up(&self, tx: &mut Tx<'_>) -> Result<()> {
        let root = self.get_page(tx.buffers(), self.root)?;
        loop {
            let (level, count) = root.with(|page| (page::level(page), page::count(page)));
            if level == 0 || count > 1 {
                return Ok(());
            }
            if count == 0 {
                tx.rewrite(&root, |page| page::init(page, 0));
                return Ok(());
            }
            let child = match self.child(tx.buffers(), &root, 0) {
                // It only saves a step.
                Err(Error::Device(_)) => return Ok(()),
                other => other?,
            };
            let copy: Page = child.with(|page| *page);
            tx.rewrite(&root, |page| page[Header::BYTES..].copy_from_slice(&copy[Header::BYTES..]));
            tx.free_page(child.block)?;
        }
    }

    /// Shows what can be read of a tree, damaged or not: its pages, and its keys with their values. What
    /// cannot be read is told, and passed over.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn salvage(
        &self,
        buffers: &Buffers,
        page: &mut dyn FnMut(u64),
        value: &mut dyn FnMut(u64, &[u8]),
        told: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let mut seen = HashSet::new();
        let mut page = |block: u64| {
            page(block);
            seen.insert(block)
        };
        match self.get_page(buffers, self.root) {
            Ok(root) => self.salvage_below(buffers, &root, &mut page, value, told),
            Err(e @ Error::Device(_)) => Err(e),
            Err(e) => {
                told(e);
                Ok(())
            }
        }
    }

    /// `page` returns whether it is shown for the first time.
    fn salvage_below(
        &self,
        buffers: &Buffers,
        at: &Buffer,
        page: &mut dyn FnMut(u64) -> bool,
        value: &mut dyn FnMut(u64, &[u8]),
        told: &mut dyn FnMut(Error),
    ) -> Result<()> {
        if !page(at.block) {
            told(Error::damaged(at.block, TWICE));
            return Ok(());
        }
        let (level, count) = at.with(|page| (page::level(page), page::count(page)));
        if level == 0 {
            at.with(|page| {
                (0..count).for_each(|index| value(page::key(page, index), page::value(page, index)))
            });
            return Ok(());
        }
        for index in 0..count {
            // A child is one level below: there are no circles.
            match self.child(buffers, at, index) {
                Ok(child) => self.salvage_below(buffers, &child, page, value, told)?,
                Err(e @ Error::Device(_)) => return Err(e),
                Err(e) => told(e),
            }
        }
        Ok(())
    }

    /// Shows every page of the tree, children before their parents.
    pub(crate) fn pages(&self, buffers: &Buffers, visit: &mut dyn FnMut(u64)) -> Result<()> {
        let root = self.get_page(buffers, self.root)?;
        self.pages_below(buffers, &root, &mut HashSet::new(), visit)
    }

    fn pages_below(
        &self,
        buffers: &Buffers,
        at: &Buffer,
        seen: &mut HashSet<u64>,
        visit: &mut dyn FnMut(u64),
    ) -> Result<()> {
        if !seen.insert(at.block) {
            return Err(Error::damaged(at.block, TWICE));
        }
        let (level, count) = at.with(|page| (page::level(page), page::count(page)));
        if level > 0 {
            for index in 0..count {
                let child = self.child(buffers, at, index)?;
                self.pages_below(buffers, &child, seen, visit)?;
            }
        }
        visit(at.block);
        Ok(())
    }
}

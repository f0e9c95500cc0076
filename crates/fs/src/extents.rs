//! Which blocks a file has: extents, in memory and on the media.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use crate::buffer::Buffers;
use crate::error::{Error, Result};
use crate::journal::Tx;
use crate::layout::{Geometry, Inline, Inode};
use crate::space::Run;
use crate::tree::Tree;

/// Extents that an inode holds within itself.
const INLINE_MAX: usize = 6;

/// Bytes of one within an inode.
const INLINE_BYTES: usize = 20;

/// No file has a block behind this one.
const FILE_BLOCKS_MAX: u64 = 1 << 51;

/// The longest extent, in blocks.
const BLOCKS_MAX: u64 = 1 << 30;

/// Marks a length whose blocks were never written.
const UNWRITTEN: u32 = 1 << 31;

/// Consecutive blocks of a file that are consecutive on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First block of the device.
    pub start: u64,
    pub blocks: u64,
    /// They read as zeros.
    pub is_unwritten: bool,
}

impl Extent {
    fn bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.start.to_le_bytes());
        let len = self.blocks as u32 | if self.is_unwritten { UNWRITTEN } else { 0 };
        bytes[8..].copy_from_slice(&len.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (start, len) = bytes.split_first_chunk::<8>()?;
        let len = u32::from_le_bytes(len.try_into().ok()?);
        let (start, blocks) = (u64::from_le_bytes(*start), u64::from(len & !UNWRITTEN));
        (blocks > 0).then_some(Self { start, blocks, is_unwritten: len & UNWRITTEN != 0 })
    }
}

/// Keys and values of the extents within an inode, as a tree has them.
pub(crate) fn inline_extents(bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let parts = bytes.chunks(INLINE_BYTES).map(|bytes| {
        let (key, bytes) = bytes.split_at(bytes.len().min(8));
        (key.try_into().map_or(u64::MAX, u64::from_le_bytes), bytes.to_vec())
    });
    parts.collect()
}

/// All extents of a file, by its own blocks.
#[derive(Default)]
pub(crate) struct Extents {
    map: BTreeMap<u64, Extent>,
    /// The media has them in a tree.
    is_tree: bool,
    /// What that does not say yet: extents that are new or different, and those that are gone.
    changes: BTreeMap<u64, Option<Extent>>,
}

impl Extents {
    /// Reads them.
    pub(crate) fn load(buffers: &Buffers, geometry: &Geometry, ino: u64, inode: &Inode) -> Result<Self> {
        let mut found = Self { is_tree: inode.tree != 0, ..Self::default() };
        let mut broken = None;
        let mut add = |key: u64, bytes: &[u8]| {
            let extent =
                Extent::parse(bytes).filter(|extent| geometry.holds_data(extent.start, extent.blocks));
            let is_behind = found.map.last_key_value().is_none_or(|(at, last)| at + last.blocks <= key);
            match extent {
                Some(extent) if is_behind && key < FILE_BLOCKS_MAX => {
                    found.map.insert(key, extent);
                    ControlFlow::Continue(())
                }
                _ => {
                    broken = Some(key);
                    ControlFlow::Break(())
                }
            }
        };
        if inode.tree != 0 {
            Tree { root: inode.tree, owner: ino }.visit(buffers, 0, &mut add)?;
        } else if let Inline::Extents(bytes) = &inode.inline {
            for (key, bytes) in inline_extents(bytes) {
                if add(key, &bytes).is_break() {
                    break;
                }
            }
        }
        match broken {
            Some(key) => Err(Error::damaged(0, format!("inode {ino}: its extent at block {key} cannot be"))),
            None => Ok(found),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Extent)> {
        self.map.iter().map(|(&at, extent)| (at, extent))
    }

    /// The extent that block `at` of the file is in, from there on.
    pub(crate) fn at(&self, at: u64) -> Option<Extent> {
        let (&first, extent) = self.map.range(..=at).next_back()?;
        let skip = at - first;
        (skip < extent.blocks).then(|| Extent {
            start: extent.start + skip,
            blocks: extent.blocks - skip,
            is_unwritten: extent.is_unwritten,
        })
    }

    /// As [`Extents::at`], and where that extent, or the hole, ends.
    pub(crate) fn piece(&self, at: u64) -> (Option<Extent>, u64) {
        match self.at(at) {
            Some(extent) => (Some(extent), at + extent.blocks),
            None => (None, self.next(at).unwrap_or(FILE_BLOCKS_MAX)),
        }
    }

    /// How many blocks of a range there are not.
    pub(crate) fn missing(&self, range: Range<u64>) -> u64 {
        let (mut at, mut missing) = (range.start, 0);
        while at < range.end {
            let (found, end) = self.piece(at);
            let end = end.min(range.end);
            missing += if found.is_none() { end - at } else { 0 };
            at = end;
        }
        missing
    }

    /// Whether pages that are all apart from others can still be told within the inode.
    pub(crate) fn fits_inode(&self, pages: u64) -> bool {
        !self.is_tree && self.map.len() as u64 + pages <= INLINE_MAX as u64
    }

    /// Where the first extent behind block `at` of the file begins.
    pub(crate) fn next(&self, at: u64) -> Option<u64> {
        self.map.range(at + 1..).next().map(|(&first, _)| first)
    }

    /// Where new blocks for block `at` of the file had best be.
    pub(crate) fn goal(&self, at: u64) -> Option<u64> {
        self.map.range(..at).next_back().map(|(_, extent)| extent.start + extent.blocks)
    }

    /// Whether blocks from `at` of the file on have data.
    pub(crate) fn has_data_from(&self, at: u64) -> bool {
        let from_the_end = self.map.iter().rev().take_while(|(first, extent)| **first + extent.blocks > at);
        from_the_end.into_iter().any(|(_, extent)| !extent.is_unwritten)
    }

    fn set(&mut self, at: u64, extent: Extent) {
        self.map.insert(at, extent);
        if self.is_tree {
            self.changes.insert(at, Some(extent));
        }
    }

    fn unset(&mut self, at: u64) -> Option<Extent> {
        if self.is_tree {
            self.changes.insert(at, None);
        }
        self.map.remove(&at)
    }

    /// Adds blocks where there are none.
    pub(crate) fn insert(&mut self, mut at: u64, mut extent: Extent) {
        let fits = |a: &Extent, b: &Extent| {
            a.start + a.blocks == b.start
                && a.is_unwritten == b.is_unwritten
                && a.blocks + b.blocks <= BLOCKS_MAX
        };
        let left = self.map.range(..at).next_back().map(|(&first, left)| (first, *left));
        if let Some((first, left)) =
            left.filter(|(first, left)| first + left.blocks == at && fits(left, &extent))
        {
            (at, extent.start, extent.blocks) = (first, left.start, left.blocks + extent.blocks);
        }
        let end = at + extent.blocks;
        if let Some(right) = self.map.get(&end).copied().filter(|right| fits(&extent, right)) {
            self.unset(end);
            extent.blocks += right.blocks;
        }
        self.set(at, extent);
    }

    /// Takes the first piece out of blocks `at..end` of the file; `None` when there is none left.
    pub(crate) fn remove_first(&mut self, at: u64, end: u64) -> Option<(u64, Extent)> {
        if at >= end {
            return None;
        }
        let first = match self.map.range(..=at).next_back() {
            Some((&first, extent)) if first + extent.blocks > at => first,
            _ => *self.map.range(at..end).next()?.0,
        };
        let whole = self.unset(first)?;
        let (from, to) = (at.max(first), end.min(first + whole.blocks));
        let part =
            |from: u64, to: u64| Extent { start: whole.start + (from - first), blocks: to - from, ..whole };
        if from > first {
            self.set(first, part(first, from));
        }
        if to < first + whole.blocks {
            self.set(to, part(to, first + whole.blocks));
        }
        Some((from, part(from, to)))
    }

    /// Blocks of an unwritten extent have their data now.
    pub(crate) fn written(&mut self, at: u64, blocks: u64) {
        let mut done = at;
        while let Some((from, extent)) = self.remove_first(done, at + blocks) {
            done = from + extent.blocks;
            self.insert(from, Extent { is_unwritten: false, ..extent });
        }
    }

    /// Has the media say the same.
    pub(crate) fn store(&mut self, tx: &mut Tx<'_>, ino: u64, inode: &mut Inode) -> Result<()> {
        if inode.tree == 0 && self.map.len() <= INLINE_MAX {
            let bytes: Vec<u8> = self
                .map
                .iter()
                .flat_map(|(at, extent)| at.to_le_bytes().into_iter().chain(extent.bytes()))
                .collect();
            inode.inline = if bytes.is_empty() { Inline::None } else { Inline::Extents(bytes) };
            return Ok(());
        }
        let changes = std::mem::take(&mut self.changes);
        let tree = Tree { root: inode.tree, owner: ino };
        if self.map.is_empty() {
            // All that is left of the tree goes at once.
            let mut pages = Vec::new();
            tree.pages(tx.buffers(), &mut |page| pages.push(page))?;
            inode.blocks = inode.blocks.saturating_sub(pages.len() as u64);
            pages.into_iter().try_for_each(|page| tx.free_page(page))?;
            inode.tree = 0;
            self.is_tree = false;
            return Ok(());
        }
        let before = tx.pages();
        if inode.tree == 0 {
            let goal = self.map.first_key_value().map_or(0, |(_, extent)| extent.start);
            let tree = Tree::create(tx, goal, ino)?;
            for (&at, extent) in &self.map {
                tree.insert(tx, at, &extent.bytes())?;
            }
            inode.tree = tree.root;
            inode.inline = Inline::None;
            self.is_tree = true;
        } else {
            for (at, change) in changes {
                match change {
                    Some(extent) => drop(tree.insert(tx, at, &extent.bytes())?),
                    None => drop(tree.remove(tx, at)?),
                }
            }
        }
        inode.blocks = inode.blocks.wrapping_add_signed(tx.pages() - before);
        Ok(())
    }
}

impl From<Extent> for Run {
    fn from(extent: Extent) -> Self {
        Self { start: extent.start, blocks: extent.blocks }
    }
}

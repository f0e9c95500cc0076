//! Data by way of the page cache: writing, and writing back. Reading is in `read`.

mod read;

use std::sync::{Arc, RwLockWriteGuard};

use rustix::io::Errno;
use unvme::lock::read;

use crate::data::{EXTENT_GROWTH, STEP};
use crate::disk::Piece;
use crate::error::{Error, Result};
use crate::extents::Extent;
use crate::layout::BLOCK;
use crate::node::{Node, State};
use crate::pagecache::Word;
use crate::placement::Class;
use crate::space::{Need, Run};
use crate::system::System;

const BLOCK_64: u64 = BLOCK as u64;

/// Pages that one command run of a write-back takes.
const PIECE_PAGES: u64 = 1024;

/// Files that are written back together at most, and pages of them, about.
const TOGETHER: usize = 64;
const TOGETHER_PAGES: u64 = 1024;

/// Extents that a page of a tree has room for, at least: it may be half full.
const TREE_PAGES: u64 = 48;

/// Where pages go that are written back.
struct Target {
    /// First page.
    index: u64,
    start: u64,
    pages: u64,
    found: Found,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Blocks that the file has, with data in them.
    Written,
    /// Blocks that it has, without.
    Unwritten,
    /// New ones.
    New,
}

/// Whether the cache had room for what was put there.
fn has_room(inserted: Result<()>) -> Result<bool> {
    match inserted {
        Err(Error::Posix(Errno::NOMEM)) => Ok(false),
        other => other.map(|()| true),
    }
}

impl System {
    /// Sets blocks aside for pages that have none. Returns for how many of them there were blocks.
    fn set_aside(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        pages: std::ops::Range<u64>,
    ) -> Result<Vec<u64>> {
        let mut lacking = Vec::new();
        let mut at = pages.start;
        while at < pages.end {
            let (found, end) = state.extents.as_ref().expect("loaded before").piece(at);
            let end = end.min(pages.end);
            if found.is_none() {
                let is_lacking = |&index: &u64| !state.cache.get(index).is_some_and(Word::is_marked);
                lacking.extend((at..end).filter(is_lacking));
            }
            at = end;
        }
        if lacking.is_empty() {
            return Ok(lacking);
        }
        let trees = Self::tree_need(state, lacking.len() as u64).saturating_sub(state.tree_aside);
        if self.space.reserve(lacking.len() as u64 + trees, Need::More).is_ok() {
            state.tree_aside += trees;
            return Ok(lacking);
        }
        // What was freed comes back with a commit; what is set aside for trees, when they are written.
        self.write_back(node, state)?;
        self.journal.reclaim()?;
        let trees = Self::tree_need(state, lacking.len() as u64).saturating_sub(state.tree_aside);
        let there = self.space.available().0.saturating_sub(trees).min(lacking.len() as u64);
        if there == 0 {
            return Err(Errno::NOSPC.into());
        }
        self.space.reserve(there + trees, Need::More)?;
        state.tree_aside += trees;
        lacking.truncate(there as usize);
        Ok(lacking)
    }

    /// Blocks that the tree of a file's extents may need when all its pages are written that have no blocks,
    /// and `more` that come: each of them can be an extent.
    fn tree_need(state: &State, more: u64) -> u64 {
        let pages = state.cache.marked() + more;
        if pages == 0 || state.extents.as_ref().is_some_and(|extents| extents.fits_inode(pages)) {
            return 0;
        }
        1 + pages / TREE_PAGES
    }

    /// Gives back what is set aside for the tree of a file's extents, and not needed any more.
    fn trim_tree_aside(&self, state: &mut State) {
        let need = Self::tree_need(state, 0);
        if let Some(more) = state.tree_aside.checked_sub(need) {
            self.space.give_back(more);
            state.tree_aside = need;
        }
    }

    /// Writes by way of the cache. Returns how many bytes were written, which are fewer when the device gets
    /// full.
    pub(crate) fn write_buffered(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let most = self.cache.request_pages() as usize * BLOCK;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let piece = &data[done..data.len().min(done + most - (at % BLOCK_64) as usize)];
            let (bytes, ended) = self.write_some_buffered(node, state, at, piece);
            done += bytes;
            let rest = &piece[bytes..];
            let more = match has_room(ended) {
                Ok(false) => self.write_past(node, state, at + bytes as u64, rest),
                // Without an error nothing is left.
                other => other.map(|_| 0),
            };
            match more {
                Ok(more) if more < rest.len() => return Ok(done + more),
                Ok(more) => done += more,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Writes what the cache has room for and the device blocks: how many bytes, and why not all.
    fn write_some_buffered(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        offset: u64,
        data: &[u8],
    ) -> (usize, Result<()>) {
        let mut pages = offset / BLOCK_64..(offset + data.len() as u64).div_ceil(BLOCK_64);
        let set_aside = match self.set_aside(node, state, pages.clone()) {
            Ok(set_aside) => set_aside,
            Err(e) => return (0, Err(e)),
        };
        let mut ended = Ok(());
        // The first page that got none ends it.
        let is_lacking = |index: &u64| {
            state.extents.as_ref().expect("loaded before").at(*index).is_none()
                && !state.cache.get(*index).is_some_and(Word::is_marked)
                && set_aside.binary_search(index).is_err()
        };
        if let Some(first) = pages.clone().find(is_lacking) {
            pages.end = first;
            ended = Err(Errno::NOSPC.into());
        }
        let mut left = set_aside.len() as u64;
        let mut done = 0;
        for index in pages {
            let at = offset + done as u64;
            let skip = (at % BLOCK_64) as usize;
            let bytes = (BLOCK - skip).min(data.len() - done);
            let part = &data[done..done + bytes];
            if let Err(e) = self.write_page(node, state, index, skip, part) {
                ended = Err(e);
                break;
            }
            if set_aside.binary_search(&index).is_ok() {
                state.cache.mark(index);
                left -= 1;
            }
            self.cache.mark_dirty(node, &mut state.cache, index);
            done += bytes;
        }
        self.space.give_back(left);
        if left > 0 {
            self.trim_tree_aside(state);
        }
        if done > 0 {
            state.size = state.size.max(offset + done as u64);
        }
        (done, ended)
    }

    fn write_page(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        index: u64,
        skip: usize,
        part: &[u8],
    ) -> Result<()> {
        if self.cache.write(node.ino, &mut state.cache, index, skip, part) {
            return Ok(());
        }
        if part.len() == BLOCK {
            return self.insert_page(node, state, index, part);
        }
        self.load_page(node, state, index)?;
        self.cache.write(node.ino, &mut state.cache, index, skip, part);
        Ok(())
    }

    /// Writes every page of a file that waits for it. They are durable with the next flush.
    pub(crate) fn write_back(&self, node: &Arc<Node>, state: &mut State) -> Result<()> {
        self.write_back_held(&mut [(node, state)], usize::MAX)
    }

    /// Writes most of the pages of a file that wait for it, and lets others have the file in between. What is
    /// left is for [`System::write_back`]: whoever writes faster than the device never gets it to the end.
    pub(crate) fn write_back_most(&self, node: &Arc<Node>) -> Result<()> {
        let pages = read(&node.state).cache.dirty().len() as u64;
        for _ in 0..pages / TOGETHER_PAGES {
            self.write_back_held(&mut [(node, &mut *node.lock())], 1)?;
        }
        Ok(())
    }

    /// Writes pages of files whose locks are held: all of them, or as many as some plans take.
    fn write_back_held(&self, held: &mut [(&Arc<Node>, &mut State)], plans: usize) -> Result<()> {
        for _ in 0..plans {
            let (mut plan, mut pages) = (Vec::new(), 0);
            for (at, (node, state)) in held.iter_mut().enumerate() {
                if state.is_gone || state.cache.dirty().is_empty() {
                    continue;
                }
                if let Err(e) = self.load_extents(node.ino, state) {
                    self.forget_plan(held, &plan);
                    return Err(e);
                }
                node.bump();
                match self.targets(node, state) {
                    Ok(targets) => {
                        pages += targets.iter().map(|target| target.pages).sum::<u64>();
                        plan.push((at, targets));
                    }
                    Err(e) => {
                        self.forget_plan(held, &plan);
                        return Err(e);
                    }
                }
                if pages >= TOGETHER_PAGES {
                    break;
                }
            }
            if plan.is_empty() {
                break;
            }
            if let Err(e) = self.write_plan(held, &plan) {
                self.forget_plan(held, &plan);
                return Err(e);
            }
        }
        // A file whose last pages wait still is as long as what has been written of it.
        let whole = held.iter_mut().filter(|(_, state)| state.cache.dirty().is_empty());
        whole.into_iter().try_for_each(|(node, state)| self.log_size(node, state))
    }

    /// Gives back the blocks of a plan that no file has got.
    fn forget_plan(&self, held: &[(&Arc<Node>, &mut State)], plan: &[(usize, Vec<Target>)]) {
        for (at, target) in
            plan.iter().flat_map(|(at, targets)| targets.iter().map(move |target| (at, target)))
        {
            let state = &held[*at].1;
            // What is on the device, in blocks of its own, is not dirty any more.
            let is_waiting = state.cache.get(target.index).is_some_and(Word::is_dirty);
            if target.found == Found::New && is_waiting {
                self.space.put_back(Run { start: target.start, blocks: target.pages });
            }
        }
    }

    /// Has the next transaction say how long a file is.
    fn log_size(&self, node: &Node, state: &mut State) -> Result<()> {
        if state.inode.size == state.size || state.is_gone {
            return Ok(());
        }
        self.transact_on(state, Need::Delete, 0, |tx, state| {
            state.inode.size = state.size;
            self.log(tx, node.ino, state)
        })
    }

    /// Where the next pages go: a few runs, for one transaction.
    fn targets(&self, node: &Node, state: &State) -> Result<Vec<Target>> {
        let extents = state.extents.as_ref().expect("loaded before");
        let mut targets: Vec<Target> = Vec::new();
        let mut dirty = state.cache.dirty().iter().copied().peekable();
        let mut goal = None;
        while targets.len() < STEP {
            let Some(index) = dirty.next() else { break };
            let mut pages = 1;
            let (found, end) = extents.piece(index);
            while pages < PIECE_PAGES && index + pages < end && dirty.next_if_eq(&(index + pages)).is_some() {
                pages += 1;
            }
            let target = match found {
                Some(Extent { start, is_unwritten, .. }) => {
                    let found = if is_unwritten { Found::Unwritten } else { Found::Written };
                    Target { index, start, pages, found }
                }
                None => {
                    let near = goal.unwrap_or_else(|| self.goal(node.ino, extents, index));
                    match self.space.take(near, pages) {
                        Ok(run) => Target { index, start: run.start, pages: run.blocks, found: Found::New },
                        Err(e) if targets.is_empty() => return Err(e),
                        Err(_) => break,
                    }
                }
            };
            goal = Some(target.start + target.pages);
            let is_short = target.pages < pages;
            targets.push(target);
            if is_short {
                break;
            }
        }
        Ok(targets)
    }

    /// Writes pages to where they go, and has transactions say so.
    fn write_plan(&self, held: &mut [(&Arc<Node>, &mut State)], plan: &[(usize, Vec<Target>)]) -> Result<()> {
        let mut pieces: Vec<Piece<'_>> = Vec::new();
        for (at, targets) in plan {
            let state = &held[*at].1;
            let page = |index: u64| self.cache.memory(&state.cache, index).expect("it is to be written");
            pieces.extend(targets.iter().map(|target| Piece {
                start: target.start,
                pages: (target.index..target.index + target.pages).map(page).collect(),
                class: Class::Data(state.inode.hint),
            }));
        }
        self.disk.write_pieces(pieces)?;
        plan.iter().try_for_each(|(at, targets)| {
            let (node, state) = &mut held[*at];
            self.log_targets(node, state, targets)
        })
    }

    /// Has a transaction say that pages are where they were written to.
    fn log_targets(&self, node: &Node, state: &mut State, targets: &[Target]) -> Result<()> {
        node.mark_unflushed(&self.disk);
        let end = targets.last().map_or(0, |target| (target.index + target.pages) * BLOCK_64);
        let size = state.inode.size.max(end.min(state.size));
        let is_in_place = targets.iter().all(|target| target.found == Found::Written);
        if !is_in_place || size != state.inode.size {
            let growth = if is_in_place { 0 } else { EXTENT_GROWTH };
            self.transact_on(state, Need::Delete, growth, |tx, state| {
                let extents = state.extents.as_mut().expect("loaded before");
                for target in targets {
                    match target.found {
                        Found::Written => {}
                        Found::Unwritten => extents.written(target.index, target.pages),
                        Found::New => {
                            let (start, blocks) = (target.start, target.pages);
                            tx.use_run(Run { start, blocks })?;
                            extents.insert(target.index, Extent { start, blocks, is_unwritten: false });
                            state.inode.blocks += blocks;
                        }
                    }
                }
                extents.store(tx, node.ino, &mut state.inode)?;
                state.inode.size = size;
                self.log(tx, node.ino, state)
            })?;
        }
        for target in targets {
            self.cache.mark_written(&mut state.cache, target.index..target.index + target.pages);
        }
        self.trim_tree_aside(state);
        Ok(())
    }

    /// Gives up the pages of a range, written or not.
    pub(crate) fn drop_pages(&self, node: &Node, state: &mut State, range: std::ops::Range<u64>) {
        node.bump();
        self.space.give_back(self.cache.drop_range(node.ino, &mut state.cache, range));
        self.trim_tree_aside(state);
    }

    /// Has pages of a range be on the device, and not in memory.
    pub(crate) fn expel_pages(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        range: std::ops::Range<u64>,
    ) -> Result<()> {
        if state.cache.dirty().range(range.clone()).next().is_some() {
            self.write_back(node, state)?;
        }
        if state.cache.has_any(range.clone()) {
            self.drop_pages(node, state, range);
        }
        Ok(())
    }

    /// Has what is behind the end of a file, in its last page, be zeros: it is about to grow.
    pub(crate) fn zero_tail(&self, node: &Arc<Node>, state: &mut State) -> Result<()> {
        let end = state.size.div_ceil(BLOCK_64);
        if state.extents.as_ref().expect("loaded before").has_data_from(end) {
            // A truncation did not come to its end.
            node.bump();
            self.remove_blocks(node.ino, state, end, u64::MAX)?;
        }
        let skip = (state.size % BLOCK_64) as usize;
        let index = state.size / BLOCK_64;
        let is_data = |state: &State| {
            let extents = state.extents.as_ref().expect("loaded before");
            extents.at(index).is_some_and(|extent| !extent.is_unwritten)
        };
        if skip == 0 || !is_data(state) {
            return Ok(());
        }
        if self.cache.is_off() || !has_room(self.load_page(node, state, index))? {
            // It is not in memory.
            let zeros = [0; BLOCK];
            return self.zero_in_place(node, state, state.size, &zeros[skip..]);
        }
        self.cache.clear_tail(&mut state.cache, index, skip);
        self.cache.mark_dirty(node, &mut state.cache, index);
        Ok(())
    }

    /// Has zeros within one page, in memory or on the device.
    pub(crate) fn zero_part(&self, node: &Arc<Node>, state: &mut State, at: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.expel_pages(node, state, at / BLOCK_64..at / BLOCK_64 + 1)?;
        let zeros = [0; BLOCK];
        self.zero_in_place(node, state, at, &zeros[..bytes])
    }

    /// Writes files back until not too many pages wait for it.
    pub(crate) fn write_back_some(&self) {
        while self.cache.is_too_dirty() {
            let Some(node) = self.cache.next_waiting(&self.nodes, std::time::Duration::ZERO) else { return };
            if let Err(e) = self.write_back_waiting(node) {
                tracing::warn!("{}: some files are written later: {e}", self.disk.name());
                return;
            }
        }
    }

    /// Writes a file that has waited for it, and others that have.
    pub(crate) fn write_back_waiting(&self, first: Arc<Node>) -> Result<()> {
        let more = std::iter::from_fn(|| self.cache.next_waiting(&self.nodes, std::time::Duration::ZERO));
        let mut nodes: Vec<_> = std::iter::once(first).chain(more.take(TOGETHER - 1)).collect();
        nodes.sort_unstable_by_key(|node| node.ino);
        nodes.dedup_by_key(|node| node.ino);
        self.write_back_all(&nodes, false)
    }

    /// Writes files, in the order of their numbers, several at a time; and has a transaction say their times,
    /// if these are wanted, too. What fails keeps nobody else from being written.
    pub(crate) fn write_back_all(&self, nodes: &[Arc<Node>], with_times: bool) -> Result<()> {
        let mut done = Ok(());
        let mut left = nodes;
        while !left.is_empty() {
            let mut states: Vec<RwLockWriteGuard<'_, State>> = Vec::new();
            let mut pages = 0;
            // It is told again below.
            let _ = self.write_back_most(&left[0]);
            for node in left.iter().take(TOGETHER) {
                // Few pages together, so that those who want the files do not wait for long; a file with many
                // is the first one of its turn.
                let state = node.lock();
                pages += state.cache.dirty().len() as u64;
                if pages > TOGETHER_PAGES && !states.is_empty() {
                    break;
                }
                states.push(state);
            }
            let (some, others) = left.split_at(states.len());
            left = others;
            let mut held: Vec<_> = some.iter().zip(states.iter_mut().map(|state| &mut **state)).collect();
            let mut written = self.write_back_held(&mut held, usize::MAX);
            if written.is_err() && held.len() > 1 {
                written = Ok(());
                for (node, state) in &mut held {
                    written = written.and(self.write_back(node, state));
                }
            }
            if with_times {
                for (node, state) in &mut held {
                    written = written.and(self.log_times(node.ino, state));
                }
            }
            if written.is_err() {
                for (node, state) in &held {
                    self.list(node);
                    if !state.cache.dirty().is_empty() {
                        self.cache.wait_again(node);
                    }
                }
            }
            done = done.and(written);
        }
        done
    }

    /// Has a transaction say the times of files that only memory knows. Data that wait to be written wait on.
    pub(crate) fn log_listed_times(&self) -> Result<()> {
        let _listing = self.listing();
        let mut done = Ok(());
        for node in self.take_listed() {
            let mut state = node.lock();
            let logged = self.log_times(node.ino, &mut state);
            if logged.is_err() || !state.cache.dirty().is_empty() {
                self.list(&node);
            }
            done = done.and(logged);
        }
        done
    }
}

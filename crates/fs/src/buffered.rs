//! Data by way of the page cache.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use unvme::lock::{lock, read};

use crate::data::{EXTENT_GROWTH, STEP};
use crate::disk::Piece;
use crate::error::{Error, Result};
use crate::extents::Extent;
use crate::layout::{BLOCK, Page, Time};
use crate::node::{Node, State};
use crate::placement::Class;
use crate::space::{Need, Run};
use crate::system::System;

const BLOCK_64: u64 = BLOCK as u64;

/// Pages that one command run of a write-back takes.
const PIECE_PAGES: u64 = 1024;

/// How often a read looks again before it keeps everybody else out.
const TRIES: usize = 4;

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

impl System {
    /// Copies what there is of `offset..` from pages in memory and holes. `Err`: the first page that is
    /// neither.
    fn copy_cached(state: &State, offset: u64, out: &mut [u8]) -> std::result::Result<(), u64> {
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let (index, skip) = (at / BLOCK_64, (at % BLOCK_64) as usize);
            let bytes = (BLOCK - skip).min(rest.len());
            let (part, more) = rest.split_at_mut(bytes);
            match state.cache.hit(index) {
                Some(page) => part.copy_from_slice(&page[skip..skip + bytes]),
                None => {
                    let (found, _) = state.extents.as_ref().expect("loaded before").piece(index);
                    match found {
                        Some(extent) if !extent.is_unwritten => return Err(index),
                        _ => part.fill(0),
                    }
                }
            }
            rest = more;
            at += bytes as u64;
        }
        Ok(())
    }

    /// Bytes that there are to be read.
    fn there(state: &State, offset: u64, wanted: usize) -> usize {
        state.size.saturating_sub(offset).min(wanted as u64) as usize
    }

    /// Reads by way of the cache. Returns how many bytes there were.
    pub(crate) fn read_buffered(&self, node: &Arc<Node>, offset: u64, out: &mut [u8]) -> Result<usize> {
        let most = self.cache.request_pages() as usize * BLOCK;
        if out.len() <= most {
            return self.read_some_buffered(node, offset, out);
        }
        let mut done = 0;
        for part in out.chunks_mut(most) {
            let bytes = self.read_some_buffered(node, offset + done as u64, part)?;
            done += bytes;
            if bytes < part.len() {
                break;
            }
        }
        Ok(done)
    }

    fn read_some_buffered(&self, node: &Arc<Node>, offset: u64, out: &mut [u8]) -> Result<usize> {
        let pages = |bytes: usize| ((offset % BLOCK_64) as usize + bytes).div_ceil(BLOCK) as u64;
        let mut has_missed = false;
        for _ in 0..TRIES {
            let (start, fresh, version, asked) = {
                let state = read(&node.state);
                if state.extents.is_none() {
                    drop(state);
                    self.load_extents(node.ino, &mut node.lock())?;
                    continue;
                }
                let there = Self::there(&state, offset, out.len());
                let missing = match Self::copy_cached(&state, offset, &mut out[..there]) {
                    Ok(()) => {
                        if !has_missed {
                            self.cache.counters.hits.fetch_add(pages(there), Ordering::Relaxed);
                        }
                        self.note_read(node, &state);
                        return Ok(there);
                    }
                    Err(missing) => missing,
                };
                has_missed = true;
                let version = (node.version.load(Ordering::SeqCst), node.writes.load(Ordering::SeqCst));
                let (asked, window) =
                    Self::window(node, &state, missing, offset + there as u64, self.cache.request_pages());
                let mut fresh = vec![0; ((window - missing) * BLOCK_64) as usize];
                self.read_blocks(&state, missing, &mut fresh)?;
                (missing, fresh, version, asked)
            };
            let mut state = node.lock();
            let is_same = node.version.load(Ordering::SeqCst) == version.0;
            if state.cache.is_empty() {
                // Before the other number is looked at: who writes past the cache looks at them the other way
                // round.
                node.bump();
            }
            if is_same && node.writes.load(Ordering::SeqCst) == version.1 {
                self.insert_pages(node, &mut state, start, &fresh, asked);
            }
            let there = Self::there(&state, offset, out.len());
            if Self::copy_cached(&state, offset, &mut out[..there]).is_ok() {
                self.note_read(node, &state);
                return Ok(there);
            }
        }
        // Others change it all the time, or push its pages out: they wait now.
        let mut state = node.lock();
        self.load_extents(node.ino, &mut state)?;
        let there = Self::there(&state, offset, out.len());
        self.write_back(node, &mut state)?;
        self.read_device(&state, offset, &mut out[..there])
    }

    /// The end of the pages that are asked for, and of those that are read, from page `missing` on: up to the
    /// next one that is there.
    fn window(node: &Node, state: &State, missing: u64, end: u64, most: u64) -> (u64, u64) {
        let asked = end.div_ceil(BLOCK_64);
        let settings = node.switches.get();
        let bytes = lock(&node.ahead).miss(missing * BLOCK_64, (asked - missing) * BLOCK_64, &settings);
        let last = state.size.div_ceil(BLOCK_64);
        let window = (missing + bytes / BLOCK_64).min(missing + most).max(asked).min(last);
        let next = (missing + 1..window).find(|&index| state.cache.get(index).is_some());
        let window = next.unwrap_or(window);
        (asked.min(window), window)
    }

    /// Reads whole blocks of a file whose lock is held. What is behind its end is zeros.
    fn read_blocks(&self, state: &State, index: u64, out: &mut [u8]) -> Result<()> {
        let extents = state.extents.as_ref().expect("loaded before");
        let mut at = index;
        let mut rest = &mut *out;
        while !rest.is_empty() {
            let (found, end) = extents.piece(at);
            let bytes = ((end - at).min((rest.len() / BLOCK) as u64) * BLOCK_64) as usize;
            let (part, more) = rest.split_at_mut(bytes);
            match found {
                Some(extent) if !extent.is_unwritten => self.disk.read(extent.start, part)?,
                _ => part.fill(0),
            }
            rest = more;
            at += (bytes / BLOCK) as u64;
        }
        let there = state.size.saturating_sub(index * BLOCK_64).min(out.len() as u64) as usize;
        out[there..].fill(0);
        Ok(())
    }

    /// Puts pages that were read into the cache, unless they are there, or holes.
    fn insert_pages(&self, node: &Arc<Node>, state: &mut State, start: u64, bytes: &[u8], asked: u64) {
        let (mut misses, mut ahead) = (0, 0);
        for (index, page) in (start..).zip(bytes.chunks_exact(BLOCK)) {
            let extents = state.extents.as_ref().expect("loaded before");
            let is_data = extents.at(index).is_some_and(|extent| !extent.is_unwritten);
            if !is_data || state.cache.get(index).is_some() {
                continue;
            }
            let page: &Page = page.try_into().expect("a block");
            self.cache.insert(node, &mut state.cache, index, page);
            if index >= asked {
                state.cache.is_ahead(index);
                ahead += 1;
            } else {
                misses += 1;
            }
        }
        self.cache.counters.misses.fetch_add(misses, Ordering::Relaxed);
        self.cache.counters.read_ahead.fetch_add(ahead, Ordering::Relaxed);
    }

    /// Has a page in memory, to be changed in part.
    fn load_page(&self, node: &Arc<Node>, state: &mut State, index: u64) -> Result<()> {
        if state.cache.get(index).is_some() {
            return Ok(());
        }
        let mut page: Page = [0; BLOCK];
        self.read_blocks(state, index, &mut page)?;
        self.cache.insert(node, &mut state.cache, index, &page);
        Ok(())
    }

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
                let is_lacking =
                    |&index: &u64| !state.cache.get(index).is_some_and(|frame| frame.is_set_aside);
                lacking.extend((at..end).filter(is_lacking));
            }
            at = end;
        }
        if lacking.is_empty() || self.space.reserve(lacking.len() as u64, Need::More).is_ok() {
            return Ok(lacking);
        }
        // What was freed comes back with a commit; what is set aside for trees, when they are written.
        self.write_back(node, state)?;
        self.journal.commit(self.journal.running())?;
        let there = self.space.available().0.min(lacking.len() as u64);
        if there == 0 {
            return Err(Errno::NOSPC.into());
        }
        self.space.reserve(there, Need::More)?;
        lacking.truncate(there as usize);
        Ok(lacking)
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
            let some = (most - (at % BLOCK_64) as usize).min(data.len() - done);
            match self.write_some_buffered(node, state, at, &data[done..done + some]) {
                Ok(bytes) => {
                    done += bytes;
                    if bytes < some {
                        break;
                    }
                }
                Err(Error::Posix(_)) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_some_buffered(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let mut pages = offset / BLOCK_64..(offset + data.len() as u64).div_ceil(BLOCK_64);
        let set_aside = self.set_aside(node, state, pages.clone())?;
        // The first page that got none ends it.
        let is_lacking = |index: &u64| {
            state.extents.as_ref().expect("loaded before").at(*index).is_none()
                && !state.cache.get(*index).is_some_and(|frame| frame.is_set_aside)
                && set_aside.binary_search(index).is_err()
        };
        if let Some(first) = pages.clone().find(is_lacking) {
            pages.end = first;
        }
        let mut left = set_aside.len() as u64;
        let mut done = 0;
        let mut wrong = None;
        for index in pages {
            let at = offset + done as u64;
            let skip = (at % BLOCK_64) as usize;
            let bytes = (BLOCK - skip).min(data.len() - done);
            let part = &data[done..done + bytes];
            if let Err(e) = self.write_page(node, state, index, skip, part) {
                wrong = Some(e);
                break;
            }
            if set_aside.binary_search(&index).is_ok() {
                state.cache.mark_set_aside(index);
                left -= 1;
            }
            self.cache.mark_dirty(node, &mut state.cache, index);
            done += bytes;
        }
        self.space.give_back(left);
        if done == 0 {
            return Err(wrong.unwrap_or(Error::Posix(Errno::NOSPC)));
        }
        state.size = state.size.max(offset + done as u64);
        Ok(done)
    }

    fn write_page(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        index: u64,
        skip: usize,
        part: &[u8],
    ) -> Result<()> {
        if let Some(frame) = state.cache.get_mut(index) {
            frame.page[skip..skip + part.len()].copy_from_slice(part);
            return Ok(());
        }
        if let Ok(whole) = <&Page>::try_from(part) {
            self.cache.insert(node, &mut state.cache, index, whole);
            return Ok(());
        }
        self.load_page(node, state, index)?;
        if let Some(frame) = state.cache.get_mut(index) {
            frame.page[skip..skip + part.len()].copy_from_slice(part);
        }
        Ok(())
    }

    /// Writes every page of a file that waits for it. They are durable with the next flush.
    pub(crate) fn write_back(&self, node: &Arc<Node>, state: &mut State) -> Result<()> {
        if state.cache.dirty().is_empty() {
            return self.log_size(node, state);
        }
        self.load_extents(node.ino, state)?;
        node.bump();
        while !state.cache.dirty().is_empty() {
            let targets = self.targets(node, state)?;
            let done = self.write_targets(node, state, &targets);
            if let Err(e) = done {
                for target in targets.iter().filter(|target| target.found == Found::New) {
                    let is_used = state.extents.as_ref().is_some_and(|map| map.at(target.index).is_some());
                    if !is_used {
                        self.space.put_back(Run { start: target.start, blocks: target.pages });
                    }
                }
                return Err(e);
            }
        }
        self.log_size(node, state)
    }

    /// Has the next transaction say how long a file is.
    fn log_size(&self, node: &Node, state: &mut State) -> Result<()> {
        if state.inode.size == state.size || state.is_gone {
            return Ok(());
        }
        state.inode.size = state.size;
        self.transact(Need::Delete, 0, |tx| self.log(tx, node.ino, state))
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

    fn write_targets(&self, node: &Arc<Node>, state: &mut State, targets: &[Target]) -> Result<()> {
        let page = |index: u64| &state.cache.get(index).expect("it is to be written").page;
        let pieces: Vec<Piece<'_>> = targets
            .iter()
            .map(|target| Piece {
                start: target.start,
                pages: (target.index..target.index + target.pages).map(page).collect(),
            })
            .collect();
        self.disk.write_pieces(&pieces, Class::Data(state.inode.hint))?;
        drop(pieces);
        node.mark_unflushed();
        let end = targets.last().map_or(0, |target| (target.index + target.pages) * BLOCK_64);
        let size = state.inode.size.max(end.min(state.size));
        let is_in_place = targets.iter().all(|target| target.found == Found::Written);
        if !is_in_place || size != state.inode.size {
            let growth = if is_in_place { 0 } else { EXTENT_GROWTH };
            self.transact(Need::Delete, growth, |tx| {
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
            state.cache.mark_clean(target.index..target.index + target.pages);
            self.cache.counters.written_back.fetch_add(target.pages, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives up the pages of a range, written or not.
    pub(crate) fn drop_pages(&self, node: &Node, state: &mut State, range: std::ops::Range<u64>) {
        node.bump();
        self.space.give_back(state.cache.drop_range(range));
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
        let skip = (state.size % BLOCK_64) as usize;
        let index = state.size / BLOCK_64;
        let is_data = |state: &State| {
            let extents = state.extents.as_ref().expect("loaded before");
            extents.at(index).is_some_and(|extent| !extent.is_unwritten)
        };
        if skip == 0 || !is_data(state) {
            return Ok(());
        }
        if self.cache.is_off() {
            let zeros = [0; BLOCK];
            return self.zero_in_place(node, state, state.size, &zeros[skip..]);
        }
        self.load_page(node, state, index)?;
        if let Some(frame) = state.cache.get_mut(index) {
            frame.page[skip..].fill(0);
        }
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

    /// Notes that data were read, if anybody wants to know.
    pub(crate) fn note_read(&self, node: &Node, state: &State) {
        const DAY: u64 = 86_400;
        let inode = &state.inode;
        if !self.keeps_access_times || node.read.load(Ordering::Relaxed) != 0 {
            return;
        }
        let is_old = inode.accessed <= inode.modified
            || inode.accessed <= inode.changed
            || inode.accessed.seconds as u64 + DAY < self.seconds.load(Ordering::Relaxed);
        if is_old {
            node.read.store(Time::now().nanoseconds(), Ordering::Relaxed);
        }
    }

    /// Writes files back until not too many pages wait for it.
    pub(crate) fn write_back_some(&self) {
        while self.cache.is_too_dirty() {
            let Some(node) = self.cache.next_waiting(std::time::Duration::ZERO) else { return };
            if let Err(e) = self.write_back_waiting(&node) {
                tracing::warn!("{}: inode {} is written later: {e}", self.disk.name(), node.ino);
                return;
            }
        }
    }

    /// Writes a file that has waited for it.
    pub(crate) fn write_back_waiting(&self, node: &Arc<Node>) -> Result<()> {
        let mut state = node.lock();
        if state.is_gone {
            return Ok(());
        }
        let done = self.write_back(node, &mut state);
        if done.is_err() && !state.cache.dirty().is_empty() {
            self.cache.wait_again(node);
        }
        done
    }
}

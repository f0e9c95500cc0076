//! Reading by way of the page cache.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unvme::lock::{lock, read};

use super::{BLOCK_64, has_room};
use crate::error::Result;
use crate::layout::{BLOCK, Kinds, Page, Time};
use crate::node::{Node, State};
use crate::pagecache::Held;
use crate::system::System;

/// How often a read looks again before it keeps everybody else out.
const TRIES: usize = 4;

impl System {
    /// Copies what there is of `offset..` from pages in memory and holes. `Err`: the first page that is
    /// neither.
    fn copy_cached(
        &self,
        ino: u64,
        state: &State,
        offset: u64,
        out: &mut [u8],
    ) -> std::result::Result<(), u64> {
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let (index, skip) = (at / BLOCK_64, (at % BLOCK_64) as usize);
            let bytes = (BLOCK - skip).min(rest.len());
            let (part, more) = rest.split_at_mut(bytes);
            if !self.cache.read(ino, &state.cache, index, skip, part) {
                let (found, _) = state.extents.as_ref().expect("loaded before").piece(index);
                match found {
                    Some(extent) if !extent.is_unwritten => return Err(index),
                    _ => part.fill(0),
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
                let missing = match self.copy_cached(node.ino, &state, offset, &mut out[..there]) {
                    Ok(()) => {
                        if !has_missed {
                            self.cache.count_hits(pages(there));
                        }
                        self.note_read(node, &state);
                        return Ok(there);
                    }
                    Err(missing) => missing,
                };
                has_missed = true;
                let version = Self::version(node);
                let (asked, window) =
                    Self::window(node, &state, missing, offset + there as u64, self.cache.request_pages());
                let mut fresh = vec![0; ((window - missing) * BLOCK_64) as usize];
                self.read_blocks(&state, missing, &mut fresh)?;
                (missing, fresh, version, asked)
            };
            let mut state = node.lock();
            let has_room = self.insert_read(node, &mut state, start, &fresh, asked, version)?;
            let there = Self::there(&state, offset, out.len());
            if self.copy_cached(node.ino, &state, offset, &mut out[..there]).is_ok() {
                self.note_read(node, &state);
                return Ok(there);
            }
            if !has_room {
                // The device has what the cache has no room for.
                break;
            }
        }
        // Others change it all the time, or push its pages out: they wait now.
        let mut state = node.lock();
        self.load_extents(node.ino, &mut state)?;
        let there = Self::there(&state, offset, out.len());
        let pages = offset / BLOCK_64..(offset + there as u64).div_ceil(BLOCK_64);
        if there > 0 && state.cache.dirty().range(pages).next().is_some() {
            self.write_back(node, &mut state)?;
        }
        let done = self.read_device(&state, offset, &mut out[..there])?;
        self.note_read(node, &state);
        Ok(done)
    }

    /// Brings pages of a range into memory that are not there: as many as a quarter of the cache holds.
    pub(crate) fn prefetch(&self, node: &Arc<Node>, range: std::ops::Range<u64>) -> Result<()> {
        if self.cache.is_off() {
            return Ok(());
        }
        let most = (self.cache.options.bytes / BLOCK / 4) as u64;
        let mut index = range.start / BLOCK_64;
        let end = range.end.div_ceil(BLOCK_64).min(index.saturating_add(most));
        while index < end {
            let (found, window, fresh, version) = {
                let state = read(&node.state);
                if state.extents.is_none() {
                    drop(state);
                    self.load_extents(node.ino, &mut node.lock())?;
                    continue;
                }
                let end = end.min(state.size.div_ceil(BLOCK_64));
                let Some(found) = Self::first_missing(&state, index..end) else { return Ok(()) };
                let window = Self::until_cached(&state, found, end.min(found + self.cache.request_pages()));
                let version = Self::version(node);
                let mut fresh = vec![0; ((window - found) * BLOCK_64) as usize];
                self.read_blocks(&state, found, &mut fresh)?;
                (found, window, fresh, version)
            };
            let mut state = node.lock();
            if !self.insert_read(node, &mut state, found, &fresh, found, version)? {
                return Ok(());
            }
            index = window;
        }
        Ok(())
    }

    /// The first page with data that is not in memory.
    fn first_missing(state: &State, range: std::ops::Range<u64>) -> Option<u64> {
        let extents = state.extents.as_ref().expect("loaded before");
        let mut index = range.start;
        while index < range.end {
            let (found, end) = extents.piece(index);
            let end = end.min(range.end);
            if found.is_some_and(|extent| !extent.is_unwritten)
                && let Some(missing) = (index..end).find(|&at| state.cache.get(at).is_none())
            {
                return Some(missing);
            }
            index = end;
        }
        None
    }

    /// What tells whether a file has changed: its version, and how often it was written past the cache.
    fn version(node: &Node) -> (u64, u64) {
        (node.version.load(Ordering::SeqCst), node.writes.load(Ordering::SeqCst))
    }

    /// Where the pages from one on that are not in memory end: `end`, or one that is.
    fn until_cached(state: &State, missing: u64, end: u64) -> u64 {
        (missing + 1..end).find(|&index| state.cache.get(index).is_some()).unwrap_or(end)
    }

    /// Puts pages into the cache that were read when the file's version was this one, unless it has changed.
    /// False when there is no room for all of them.
    fn insert_read(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        start: u64,
        bytes: &[u8],
        asked: u64,
        version: (u64, u64),
    ) -> Result<bool> {
        self.load_extents(node.ino, state)?;
        let is_same = node.version.load(Ordering::SeqCst) == version.0;
        if state.cache.is_empty() {
            // Before the other number is looked at: who writes past the cache looks at them the other way
            // round.
            node.bump();
        }
        if is_same && node.writes.load(Ordering::SeqCst) == version.1 {
            return has_room(self.insert_pages(node, state, start, bytes, asked));
        }
        Ok(true)
    }

    /// The end of the pages that are asked for, and of those that are read, from page `missing` on: up to the
    /// next one that is there.
    fn window(node: &Node, state: &State, missing: u64, end: u64, most: u64) -> (u64, u64) {
        let asked = end.div_ceil(BLOCK_64);
        let settings = node.switches.get();
        let bytes = lock(&node.ahead).miss(missing * BLOCK_64, (asked - missing) * BLOCK_64, &settings);
        let last = state.size.div_ceil(BLOCK_64);
        let window = (missing + bytes / BLOCK_64).min(missing + most).max(asked).min(last);
        let window = Self::until_cached(state, missing, window);
        (asked.min(window), window)
    }

    /// Reads whole blocks of a file whose lock is held. What is behind its end is zeros.
    pub(super) fn read_blocks(&self, state: &State, index: u64, out: &mut [u8]) -> Result<()> {
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
    fn insert_pages(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        start: u64,
        bytes: &[u8],
        asked: u64,
    ) -> Result<()> {
        let (mut misses, mut ahead, mut inserted) = (0, 0, Ok(()));
        for (index, page) in (start..).zip(bytes.chunks_exact(BLOCK)) {
            let extents = state.extents.as_ref().expect("loaded before");
            let is_data = extents.at(index).is_some_and(|extent| !extent.is_unwritten);
            if !is_data || state.cache.get(index).is_some() {
                continue;
            }
            inserted = self.insert_page(node, state, index, page);
            if inserted.is_err() {
                break;
            }
            if index >= asked {
                state.cache.mark_ahead(index);
                ahead += 1;
            } else {
                misses += 1;
            }
        }
        self.cache.count_reads(misses, ahead);
        inserted
    }

    pub(super) fn insert_page(&self, node: &Node, state: &mut State, index: u64, page: &[u8]) -> Result<()> {
        let mut held = Held { nodes: &self.nodes, node, file: &mut state.cache };
        self.cache.insert(&mut held, index, page)
    }

    /// Has a page in memory, to be changed in part.
    pub(super) fn load_page(&self, node: &Arc<Node>, state: &mut State, index: u64) -> Result<()> {
        if state.cache.get(index).is_some() {
            return Ok(());
        }
        let mut page: Page = [0; BLOCK];
        self.read_blocks(state, index, &mut page)?;
        self.insert_page(node, state, index, &page)
    }

    /// Notes that data were read, if anybody wants to know.
    pub(crate) fn note_read(&self, node: &Node, state: &State) {
        const DAY: i64 = 86_400;
        let inode = &state.inode;
        if !self.keeps_access_times || node.read.load(Ordering::Relaxed) != 0 {
            return;
        }
        if !self.keeps_directory_access_times && inode.is_directory() {
            return;
        }
        let is_old = inode.accessed <= inode.modified
            || inode.accessed <= inode.changed
            || inode.accessed.seconds.saturating_add(DAY)
                < self.seconds.load(Ordering::Relaxed).cast_signed();
        if is_old {
            node.read.store(Time::now().nanoseconds(), Ordering::Relaxed);
            self.list(node);
        }
    }
}

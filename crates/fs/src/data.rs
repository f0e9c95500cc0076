//! The data of a file: reading, writing, and what changes which blocks it has.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::error::Result;
use crate::extents::{Extent, Extents};
use crate::journal::Tx;
use crate::layout::{BLOCK, Kinds, Time};
use crate::node::{Node, State};
use crate::placement::Class;
use crate::space::{Need, Run};
use crate::system::System;
use crate::tree::GROWTH;

/// Extents that one transaction takes away.
pub(crate) const STEP: usize = 8;

/// New blocks that a change of extents may need.
pub(crate) const EXTENT_GROWTH: u64 = 3 * GROWTH;

/// Offsets and sizes are `off_t`.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;

const BLOCK_64: u64 = BLOCK as u64;

/// Which part of a file is asked for by `lseek`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next data.
    Data,
    /// The next hole; the end of the file is one.
    Hole,
}

/// What `fallocate` does with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Reserves blocks; the file grows unless its size is kept.
    Reserve {
        /// `FALLOC_FL_KEEP_SIZE`.
        keep_size: bool,
    },
    /// Gives the blocks back: the range reads as zeros. The size stays.
    PunchHole,
    /// The range reads as zeros, and has blocks.
    ZeroRange {
        /// `FALLOC_FL_KEEP_SIZE`.
        keep_size: bool,
    },
}

impl Allocation {
    /// What the bits of `fallocate(2)` mean.
    ///
    /// # Errors
    /// EOPNOTSUPP for those that are not implemented.
    pub fn from_mode(mode: i32) -> Result<Self> {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
        match mode - FallocateFlags::KEEP_SIZE {
            none if none.is_empty() => Ok(Self::Reserve { keep_size }),
            FallocateFlags::PUNCH_HOLE if keep_size => Ok(Self::PunchHole),
            FallocateFlags::ZERO_RANGE => Ok(Self::ZeroRange { keep_size }),
            _ => Err(Errno::OPNOTSUPP.into()),
        }
    }
}

impl System {
    /// The extents of a file, read when they are needed.
    fn extents<'a>(&self, ino: u64, state: &'a mut State) -> Result<&'a mut Extents> {
        if state.extents.is_none() {
            state.extents = Some(Extents::load(&self.buffers, &self.geometry, ino, &state.inode)?);
        }
        Ok(state.extents.as_mut().expect("loaded above"))
    }

    /// Has the extents in memory.
    pub(crate) fn load_extents(&self, ino: u64, state: &mut State) -> Result<()> {
        self.extents(ino, state).map(drop)
    }

    /// Reads from the device what there is of a file whose extents are in memory, and none of whose pages
    /// waits to be written. Returns how many bytes there were.
    pub(crate) fn read_device(&self, state: &State, offset: u64, out: &mut [u8]) -> Result<usize> {
        let extents = state.extents.as_ref().expect("loaded before");
        let there = state.size.saturating_sub(offset).min(out.len() as u64) as usize;
        let mut rest = &mut out[..there];
        let mut at = offset;
        while !rest.is_empty() {
            let (block, skip) = (at / BLOCK_64, (at % BLOCK_64) as usize);
            let (found, end) = extents.piece(block);
            let bytes = (end * BLOCK_64 - at).min(rest.len() as u64) as usize;
            let (part, more) = rest.split_at_mut(bytes);
            match found {
                Some(extent) if !extent.is_unwritten => self.read_part(extent.start, skip, part)?,
                _ => part.fill(0),
            }
            rest = more;
            at += bytes as u64;
        }
        Ok(there)
    }

    /// Reads bytes from `skip` of device block `start` on.
    fn read_part(&self, start: u64, skip: usize, out: &mut [u8]) -> Result<()> {
        let mut block = start;
        let mut rest = out;
        if skip > 0 || rest.len() < BLOCK {
            let bytes = rest.len().min(BLOCK - skip);
            let (part, more) = rest.split_at_mut(bytes);
            let mut page = [0; BLOCK];
            self.disk.read(block, &mut page)?;
            part.copy_from_slice(&page[skip..skip + bytes]);
            (block, rest) = (block + 1, more);
        }
        let (whole, tail) = rest.split_at_mut(rest.len() / BLOCK * BLOCK);
        self.disk.read(block, whole)?;
        if !tail.is_empty() {
            let mut page = [0; BLOCK];
            self.disk.read(block + (whole.len() / BLOCK) as u64, &mut page)?;
            tail.copy_from_slice(&page[..tail.len()]);
        }
        Ok(())
    }

    /// Writes bytes from `skip` of device block `start` on. What is beside them in their blocks is kept, or
    /// becomes zeros where the blocks are new.
    fn write_part(&self, start: u64, skip: usize, data: &[u8], (is_new, hint): (bool, u8)) -> Result<()> {
        let class = Class::Data(hint);
        let mut block = start;
        let mut rest = data;
        let patch = |block: u64, skip: usize, part: &[u8]| {
            let mut page = [0; BLOCK];
            if !is_new {
                self.disk.read(block, &mut page)?;
            }
            page[skip..skip + part.len()].copy_from_slice(part);
            self.disk.write_data(block, &page, class)
        };
        if skip > 0 || rest.len() < BLOCK {
            let (part, more) = rest.split_at(rest.len().min(BLOCK - skip));
            patch(block, skip, part)?;
            (block, rest) = (block + 1, more);
        }
        let (whole, tail) = rest.split_at(rest.len() / BLOCK * BLOCK);
        self.disk.write_data(block, whole, class)?;
        if tail.is_empty() { Ok(()) } else { patch(block + (whole.len() / BLOCK) as u64, 0, tail) }
    }

    /// Blocks for a file, as many as can be had of `want`, set aside and taken. What the transaction needs
    /// that gives them to the file is left.
    fn take_blocks(&self, goal: u64, want: u64) -> Result<Run> {
        let mut reserved = want;
        let mut has_committed = false;
        while let Err(e) = self.space.reserve(reserved + EXTENT_GROWTH, Need::More) {
            let there = self.space.available().0.saturating_sub(EXTENT_GROWTH);
            if there > 0 && there < reserved {
                reserved = there;
            } else if !has_committed {
                // What was freed comes back.
                self.journal.reclaim()?;
                has_committed = true;
            } else {
                return Err(e);
            }
        }
        match self.space.take(goal, reserved) {
            Ok(run) => {
                self.space.give_back(reserved - run.blocks + EXTENT_GROWTH);
                Ok(run)
            }
            Err(e) => {
                self.space.give_back(reserved + EXTENT_GROWTH);
                Err(e)
            }
        }
    }

    /// Where blocks for block `at` of a file had best be.
    pub(crate) fn goal(&self, ino: u64, extents: &Extents, at: u64) -> u64 {
        extents.goal(at).unwrap_or_else(|| {
            let (group, place) = self.geometry.inode_place(ino).unwrap_or((0, 0));
            let spread =
                place * 16 % (self.geometry.group_len(group) - self.geometry.group_overhead()).max(1);
            self.geometry.group_start(group) + self.geometry.group_overhead() + spread
        })
    }

    /// Writes to a file, past the cache or by way of it. Returns how many bytes were written, which are fewer
    /// when the device gets full.
    pub(crate) fn write(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        offset: u64,
        data: &[u8],
        is_direct: bool,
    ) -> Result<usize> {
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > SIZE_MAX) {
            return Err(Errno::FBIG.into());
        }
        if data.is_empty() {
            return Ok(0);
        }
        self.extents(node.ino, state)?;
        if offset > state.size {
            self.zero_tail(node, state)?;
        }
        // Before pages are brought into memory: who writes past the cache meanwhile writes once more.
        node.bump();
        let done = if is_direct {
            self.write_past(node, state, offset, data)?
        } else {
            self.write_buffered(node, state, offset, data)?
        };
        let now = Time::now();
        (state.inode.modified, state.inode.changed) = (now, now);
        state.is_lazy = true;
        self.list(node);
        node.bump();
        Ok(done)
    }

    /// Writes past the cache where blocks of a file are: whole blocks that have their data, by whoever shares
    /// the lock. `None`: it needs the lock alone.
    pub(crate) fn overwrite(
        &self,
        node: &Node,
        state: &State,
        offset: u64,
        data: &[u8],
    ) -> Option<Result<usize>> {
        let blocks = offset / BLOCK_64..offset.checked_add(data.len() as u64)? / BLOCK_64;
        let is_whole =
            offset.is_multiple_of(BLOCK_64) && data.len().is_multiple_of(BLOCK) && !data.is_empty();
        if !is_whole || blocks.end * BLOCK_64 > state.size || state.cache.has_any(blocks.clone()) {
            return None;
        }
        let extents = state.extents.as_ref()?;
        let mut parts = Vec::new();
        let mut at = blocks.start;
        while at < blocks.end {
            let extent = extents.at(at).filter(|extent| !extent.is_unwritten)?;
            let count = extent.blocks.min(blocks.end - at);
            parts.push((extent.start, count as usize * BLOCK));
            at += count;
        }
        let mut rest = data;
        for (start, bytes) in parts {
            let (part, more) = rest.split_at(bytes);
            if let Err(e) = self.disk.write_data(start, part, Class::Data(state.inode.hint)) {
                return Some(Err(e));
            }
            rest = more;
        }
        node.mark_unflushed(&self.disk);
        node.written.store(Time::now().nanoseconds(), Ordering::Relaxed);
        self.list(node);
        node.writes.fetch_add(1, Ordering::SeqCst);
        Some(Ok(data.len()))
    }

    /// Writes past the cache, which has nothing of the range afterwards, and nothing that waits to be written
    /// of a file that grows.
    pub(crate) fn write_past(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let end = offset + data.len() as u64;
        if end > state.inode.size {
            self.write_back(node, state)?;
        }
        self.expel_pages(node, state, offset / BLOCK_64..end.div_ceil(BLOCK_64))?;
        self.write_direct(node, state, offset, data)
    }

    fn write_direct(&self, node: &Node, state: &mut State, offset: u64, data: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < data.len() {
            match self.write_some(node, state, offset + done as u64, &data[done..]) {
                Ok(bytes) => done += bytes,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Writes as much as is of one extent, or of none.
    fn write_some(&self, node: &Node, state: &mut State, at: u64, data: &[u8]) -> Result<usize> {
        let (block, skip) = (at / BLOCK_64, (at % BLOCK_64) as usize);
        let extents = state.extents.as_ref().expect("loaded before");
        let wanted = (skip + data.len()).div_ceil(BLOCK) as u64;
        let found = extents.at(block);
        let (start, blocks) = match found {
            Some(extent) => (extent.start, extent.blocks.min(wanted)),
            None => {
                let there = extents.next(block).map_or(u64::MAX, |next| next - block);
                let run = self.take_blocks(self.goal(node.ino, extents, block), wanted.min(there))?;
                (run.start, run.blocks)
            }
        };
        let bytes = (blocks as usize * BLOCK - skip).min(data.len());
        let is_new = found.is_none_or(|extent| extent.is_unwritten);
        if let Err(e) = self.write_part(start, skip, &data[..bytes], (is_new, state.inode.hint)) {
            if found.is_none() {
                self.space.untake(Run { start, blocks });
            }
            return Err(e);
        }
        let end = at + bytes as u64;
        node.mark_unflushed(&self.disk);
        if !is_new && end <= state.inode.size {
            return Ok(bytes);
        }
        let growth = if is_new { EXTENT_GROWTH } else { 0 };
        let done = self.transact_on(state, Need::More, growth, |tx, state| {
            let extents = state.extents.as_mut().expect("loaded before");
            if found.is_none() {
                tx.use_run(Run { start, blocks })?;
                extents.insert(block, Extent { start, blocks, is_unwritten: false });
                state.inode.blocks += blocks;
            } else if is_new {
                extents.written(block, blocks);
            }
            if is_new {
                extents.store(tx, node.ino, &mut state.inode)?;
            }
            state.inode.size = state.inode.size.max(end);
            self.log(tx, node.ino, state)
        });
        match done {
            Ok(()) => {
                state.size = state.size.max(end);
                Ok(bytes)
            }
            Err(e) => {
                if found.is_none() {
                    self.space.untake(Run { start, blocks });
                }
                Err(e)
            }
        }
    }

    /// Writes zeros within one block, if it has been written.
    pub(crate) fn zero_in_place(&self, node: &Node, state: &State, at: u64, zeros: &[u8]) -> Result<()> {
        let extents = state.extents.as_ref().expect("loaded before");
        match extents.at(at / BLOCK_64) {
            Some(extent) if !extent.is_unwritten && !zeros.is_empty() => {
                node.mark_unflushed(&self.disk);
                self.write_part(extent.start, (at % BLOCK_64) as usize, zeros, (false, state.inode.hint))
            }
            _ => Ok(()),
        }
    }

    /// Sets the size of a file.
    pub(crate) fn truncate(&self, node: &Arc<Node>, state: &mut State, size: u64) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        self.extents(node.ino, state)?;
        if size > state.size {
            self.zero_tail(node, state)?;
            self.write_back(node, state)?;
        }
        let first = size.div_ceil(BLOCK_64);
        let is_shrinking = size < state.size;
        let is_long = {
            let extents = state.extents.as_ref().expect("loaded above");
            is_shrinking && extents.iter().filter(|(at, extent)| at + extent.blocks > first).count() > STEP
        };
        // Pages that are not written yet are behind the size that the media knows.
        let logged = if is_shrinking { state.inode.size.min(size) } else { size };
        let growth = match is_long {
            true => GROWTH,
            false if is_shrinking && state.inode.tree != 0 => EXTENT_GROWTH,
            false => 0,
        };
        let now = Time::now();
        // Before anybody can have the blocks: whoever reads without the lock looks again.
        node.bump();
        self.transact_on(state, Need::Delete, growth, |tx, state| {
            if is_long {
                self.add_orphan(tx, node.ino)?;
            } else if is_shrinking {
                self.remove_some(tx, node.ino, state, first..u64::MAX)?;
            }
            state.inode.size = logged;
            (state.inode.modified, state.inode.changed) = (now, now);
            self.log(tx, node.ino, state)
        })?;
        state.size = size;
        if is_shrinking {
            self.drop_pages(node, state, first..u64::MAX);
            let skip = (size % BLOCK_64) as usize;
            if skip > 0 {
                self.cache.clear_tail(&mut state.cache, size / BLOCK_64, skip);
            }
        }
        state.is_being_cut |= is_long && state.inode.links > 0;
        if is_long && let Err(e) = self.cut(node.ino, state, first) {
            self.note_unfinished(node, &e);
            return Err(e);
        }
        Ok(())
    }

    /// Gives back all blocks of a file from one on, and takes the file off the list of those of which that is
    /// to be done: unless it has no names, and stays there until nobody has it any more.
    fn cut(&self, ino: u64, state: &mut State, first: u64) -> Result<()> {
        self.remove_blocks(ino, state, first, u64::MAX)?;
        if state.inode.links > 0 {
            self.transact(Need::Delete, GROWTH, |tx| self.remove_orphan(tx, ino))?;
            state.is_being_cut = false;
        }
        Ok(())
    }

    /// What a crash, or an error of the device, has left of a truncation.
    pub(crate) fn cut_off(&self, node: &Node) -> Result<()> {
        let mut state = node.lock();
        // Blocks behind the end that somebody has reserved meanwhile go, too: they hold nothing.
        let size = state.size;
        self.extents(node.ino, &mut state)?;
        self.cut(node.ino, &mut state, size.div_ceil(BLOCK_64))
    }

    /// Gives back blocks `from..to` of a file, a few extents in each transaction.
    pub(crate) fn remove_blocks(&self, ino: u64, state: &mut State, from: u64, to: u64) -> Result<()> {
        self.extents(ino, state)?;
        loop {
            let extents = state.extents.as_ref().expect("loaded above");
            let is_any =
                from < to && extents.at(from).is_some() || extents.next(from).is_some_and(|next| next < to);
            if !is_any {
                return Ok(());
            }
            self.transact_on(state, Need::Delete, EXTENT_GROWTH, |tx, state| {
                self.remove_some(tx, ino, state, from..to)?;
                self.log(tx, ino, state)
            })?;
        }
    }

    /// Gives back a few extents of those in a range of a file's blocks.
    pub(crate) fn remove_some(
        &self,
        tx: &mut Tx<'_>,
        ino: u64,
        state: &mut State,
        range: std::ops::Range<u64>,
    ) -> Result<()> {
        let extents = state.extents.as_mut().expect("loaded before");
        for _ in 0..STEP {
            let Some((_, extent)) = extents.remove_first(range.start, range.end) else { break };
            tx.free_run(extent.into())?;
            state.inode.blocks = state.inode.blocks.saturating_sub(extent.blocks);
        }
        extents.store(tx, ino, &mut state.inode)
    }

    /// `fallocate`.
    pub(crate) fn allocate(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        range: std::ops::Range<u64>,
        what: Allocation,
    ) -> Result<()> {
        if range.is_empty() {
            return Err(Errno::INVAL.into());
        }
        if range.end > SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        self.extents(node.ino, state)?;
        let grows = match what {
            Allocation::Reserve { keep_size } | Allocation::ZeroRange { keep_size } => !keep_size,
            Allocation::PunchHole => false,
        };
        if grows && range.end > state.size {
            self.zero_tail(node, state)?;
        }
        self.write_back(node, state)?;
        node.bump();
        if !matches!(what, Allocation::Reserve { .. }) {
            self.zero(node, state, &range)?;
        }
        if what != Allocation::PunchHole {
            self.reserve_range(node, state, &range)?;
        }
        let now = Time::now();
        let size = if grows { state.size.max(range.end) } else { state.size };
        self.transact_on(state, Need::Delete, 0, |tx, state| {
            if grows {
                state.inode.size = size;
            }
            (state.inode.modified, state.inode.changed) = (now, now);
            self.log(tx, node.ino, state)
        })?;
        state.size = size;
        Ok(())
    }

    /// Has a range read as zeros: whole blocks are given back.
    fn zero(&self, node: &Arc<Node>, state: &mut State, range: &std::ops::Range<u64>) -> Result<()> {
        let (first, last) = (range.start.div_ceil(BLOCK_64), range.end / BLOCK_64);
        if first > last {
            return self.zero_part(node, state, range.start, (range.end - range.start) as usize);
        }
        self.zero_part(node, state, range.start, (first * BLOCK_64 - range.start) as usize)?;
        self.zero_part(node, state, last * BLOCK_64, (range.end - last * BLOCK_64) as usize)?;
        self.drop_pages(node, state, first..last);
        self.remove_blocks(node.ino, state, first, last)
    }

    /// Has every block of a range be there, if only unwritten.
    fn reserve_range(&self, node: &Node, state: &mut State, range: &std::ops::Range<u64>) -> Result<()> {
        let (mut at, end) = (range.start / BLOCK_64, range.end.div_ceil(BLOCK_64));
        let missing = state.extents.as_ref().expect("loaded before").missing(at..end);
        if missing > self.space.available().0 {
            // What was freed comes back.
            self.journal.reclaim()?;
            if missing > self.space.available().0 {
                return Err(Errno::NOSPC.into());
            }
        }
        while at < end {
            let extents = state.extents.as_ref().expect("loaded before");
            if let Some(extent) = extents.at(at) {
                at += extent.blocks;
                continue;
            }
            let next = extents.next(at).map_or(end, |next| next.min(end));
            let run = self.take_blocks(self.goal(node.ino, extents, at), next - at)?;
            let done = self.transact_on(state, Need::More, EXTENT_GROWTH, |tx, state| {
                tx.use_run(run)?;
                let extents = state.extents.as_mut().expect("loaded before");
                extents.insert(at, Extent { start: run.start, blocks: run.blocks, is_unwritten: true });
                state.inode.blocks += run.blocks;
                extents.store(tx, node.ino, &mut state.inode)?;
                self.log(tx, node.ino, state)
            });
            if let Err(e) = done {
                self.space.untake(run);
                return Err(e);
            }
            at += run.blocks;
        }
        Ok(())
    }

    /// `SEEK_DATA` and `SEEK_HOLE`, of a file whose extents are in memory.
    pub(crate) fn seek(&self, state: &State, offset: u64, what: Seek) -> Result<u64> {
        let size = state.size;
        if offset >= size {
            return Err(Errno::NXIO.into());
        }
        let extents = state.extents.as_ref().expect("loaded before");
        let mut at = offset;
        while at < size {
            let block = at / BLOCK_64;
            let (found, end) = extents.piece(block);
            let is_data = found.is_some_and(|extent| !extent.is_unwritten);
            if is_data == (what == Seek::Data) {
                return Ok(at);
            }
            at = end * BLOCK_64;
        }
        match what {
            Seek::Hole => Ok(size),
            Seek::Data => Err(Errno::NXIO.into()),
        }
    }

    /// Makes a file durable: its data, and every name that leads to it.
    pub(crate) fn fsync(&self, node: &Arc<Node>, with_times: bool) -> Result<()> {
        self.write_back_most(node)?;
        let tx = {
            let mut state = node.lock();
            if !state.is_gone {
                self.write_back(node, &mut state)?;
            }
            // Without, the times can wait: fdatasync.
            if with_times || !state.inode.is_file() {
                self.log_times(node.ino, &mut state)?;
            }
            state.tx
        };
        if self.disk.flushed() < node.unflushed.load(Ordering::Acquire) {
            self.journal.commit_and_settle(tx)
        } else {
            self.check_writable().and_then(|()| self.journal.commit(tx))
        }
    }
}

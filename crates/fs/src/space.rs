//! Which blocks and inodes can be had. What is taken here is not used on the media before a transaction says
//! so, and what a transaction frees comes back here when that is committed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use unvme::lock::lock;

use crate::bits::Bits;
use crate::buffer::Buffers;
use crate::disk::Disk;
use crate::epoch::Epochs;
use crate::error::Result;
use crate::layout::{Geometry, Kind};
use crate::stripe::{Apart, Leave, Stock, Tally};

/// Consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub start: u64,
    pub blocks: u64,
}

impl Run {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.blocks
    }
}

/// Who asks for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// To keep more.
    More,
    /// For another name: programs that find the device full make files, to put something right.
    Name,
    /// To be able to delete.
    Delete,
}

struct Group {
    /// Bits that are set are free; `None` until the group is looked at.
    blocks: Option<Bits>,
    inodes: Option<Bits>,
}

/// The free blocks and inodes.
pub(crate) struct Space {
    geometry: Geometry,
    disk: Arc<Disk>,
    buffers: Arc<Buffers>,
    groups: Box<[Apart<Mutex<Group>>]>,
    /// Blocks that can be taken: those of transactions under way are set aside.
    available: Stock,
    inodes: Stock,
    /// Blocks and inodes that nobody has any more, and that a commit will bring back.
    freed: (Tally, Tally),
    /// Blocks that only those who delete can have, and half of them those who make names.
    kept: i64,
    /// Where the last directory went.
    turn: AtomicU32,
    deallocates: bool,
    epochs: Epochs,
    /// Held while something comes back: who needs space waits for it.
    releasing: Mutex<()>,
}

impl Space {
    pub(crate) fn new(
        geometry: Geometry,
        disk: Arc<Disk>,
        buffers: Arc<Buffers>,
        free: (u64, u64),
        deallocates: bool,
    ) -> Self {
        let groups =
            (0..geometry.groups).map(|_| Apart(Mutex::new(Group { blocks: None, inodes: None }))).collect();
        let kept = (geometry.blocks as i64 / 50).clamp(64, 1024);
        Self {
            geometry,
            disk,
            buffers,
            groups,
            available: Stock::new(free.0, 256, kept),
            inodes: Stock::new(free.1, 16, 0),
            freed: (Tally::new(64), Tally::new(64)),
            kept,
            turn: AtomicU32::new(0),
            deallocates,
            epochs: Epochs::default(),
            releasing: Mutex::default(),
        }
    }

    /// Who is on his way to blocks.
    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Blocks and inodes that can be had.
    pub(crate) fn available(&self) -> (u64, u64) {
        let of = |stock: &Stock, kept: i64| (stock.total() - kept).max(0) as u64;
        (of(&self.available, self.kept), of(&self.inodes, 0))
    }

    /// Blocks and inodes that are free, those included that a commit has to bring back first.
    pub(crate) fn free(&self) -> (u64, u64) {
        let (blocks, inodes) = self.available();
        let of = |tally: &Tally| tally.total().max(0) as u64;
        (blocks + of(&self.freed.0), inodes + of(&self.freed.1))
    }

    /// An operation has freed blocks and inodes.
    pub(crate) fn note_freed(&self, blocks: u64, inodes: u64) {
        if blocks > 0 {
            self.freed.0.add(blocks as i64);
        }
        if inodes > 0 {
            self.freed.1.add(inodes as i64);
        }
    }

    /// Sets blocks aside.
    pub(crate) fn reserve(&self, blocks: u64, need: Need) -> Result<()> {
        let leave = match need {
            Need::More => Leave::Kept,
            Need::Name => Leave::Half,
            Need::Delete => Leave::None,
        };
        if self.available.take(blocks, leave) { Ok(()) } else { Err(Errno::NOSPC.into()) }
    }

    /// What was set aside and not taken.
    pub(crate) fn give_back(&self, blocks: u64) {
        self.available.put(blocks);
    }

    fn with_blocks<R>(&self, group: u32, act: impl FnOnce(&mut Bits) -> R) -> Result<R> {
        let mut state = lock(&self.groups[group as usize].0);
        if state.blocks.is_none() {
            let buffer = self.buffers.get(self.geometry.group_start(group), Kind::BlockMap, group.into())?;
            let len = self.geometry.group_len(group) as usize;
            state.blocks = Some(buffer.with(|page| Bits::free_of(page, len)));
        }
        Ok(act(state.blocks.as_mut().expect("loaded above")))
    }

    fn with_inodes<R>(&self, group: u32, act: impl FnOnce(&mut Bits) -> R) -> Result<R> {
        let mut state = lock(&self.groups[group as usize].0);
        if state.inodes.is_none() {
            let buffer = self.buffers.get(self.geometry.inode_map(group), Kind::InodeMap, group.into())?;
            let len = self.geometry.inodes_per_group as usize;
            state.inodes = Some(buffer.with(|page| Bits::free_of(page, len)));
        }
        Ok(act(state.inodes.as_mut().expect("loaded above")))
    }

    /// The maps on the media were written anew: they are read again, and so many blocks and inodes are free.
    pub(crate) fn reset(&self, free: (u64, u64)) {
        for group in &self.groups {
            *lock(&group.0) = Group { blocks: None, inodes: None };
        }
        self.available.set(free.0);
        self.inodes.set(free.1);
    }

    /// Has the maps of a group in memory: before a transaction frees something there. They would take what is
    /// not committed yet for free, otherwise.
    pub(crate) fn load(&self, group: u32) -> Result<()> {
        self.with_blocks(group, |_| ())?;
        self.with_inodes(group, |_| ())
    }

    /// Takes up to `want` consecutive blocks of those that were set aside, as near behind `goal` as there
    /// are.
    pub(crate) fn take(&self, goal: u64, want: u64) -> Result<Run> {
        let (first, place) = self.geometry.group_of(goal).unwrap_or((0, self.geometry.group_overhead()));
        for turn in 0..self.geometry.groups {
            let group = (first + turn) % self.geometry.groups;
            let from = if turn == 0 { place } else { self.geometry.group_overhead() };
            if let Some((start, blocks)) =
                self.with_blocks(group, |bits| bits.take_run(from as usize, want as usize))?
            {
                let start = self.geometry.group_start(group) + start as u64;
                return Ok(Run { start, blocks: blocks as u64 });
            }
        }
        Err(Errno::NOSPC.into())
    }

    /// What was taken, and not used in any transaction. It is set aside no longer.
    pub(crate) fn untake(&self, run: Run) {
        self.put_back(run);
        self.give_back(run.blocks);
    }

    /// What was taken, and not used in any transaction. It is set aside still.
    pub(crate) fn put_back(&self, run: Run) {
        if let Some((group, place)) = self.geometry.group_of(run.start) {
            // The group was loaded when it was taken.
            let _ = self.with_blocks(group, |bits| bits.set_run(place as usize, run.blocks as usize));
        }
    }

    /// What a committed transaction has freed. Nobody waits for the device here: [`Space::release`] does.
    pub(crate) fn retire(&self, freed: Vec<Run>) {
        self.epochs.retire(freed);
    }

    /// Has what committed transactions have freed be free, as far as nobody is on his way there. The device
    /// is told first: afterwards somebody may have it.
    pub(crate) fn release(&self) {
        let _releasing = lock(&self.releasing);
        let mut freed = self.epochs.ready();
        if freed.is_empty() {
            return;
        }
        freed.sort_unstable();
        let mut joined: Vec<Run> = Vec::with_capacity(freed.len());
        for run in freed {
            match joined.last_mut() {
                Some(last) if last.end() == run.start => last.blocks += run.blocks,
                _ => joined.push(run),
            }
        }
        if self.deallocates {
            let ranges: Vec<_> = joined.iter().map(|run| (run.start, run.blocks)).collect();
            if let Err(e) = self.disk.deallocate(&ranges) {
                // It is advice: the space is free all the same.
                tracing::warn!("{e}");
            }
        }
        for run in joined {
            let mut at = run.start;
            while at < run.end() {
                let Some((group, place)) = self.geometry.group_of(at) else { break };
                let blocks = (run.end() - at).min(self.geometry.group_len(group) - place);
                // A group that cannot be read keeps its blocks to itself.
                let _ = self.with_blocks(group, |bits| bits.set_run(place as usize, blocks as usize));
                at += blocks;
            }
            self.give_back(run.blocks);
            self.freed.0.add(-(run.blocks as i64));
        }
    }

    /// Takes an inode: for a directory in a group of its own, for anything else near its directory.
    pub(crate) fn take_inode(&self, parent: u64, is_directory: bool) -> Result<u64> {
        if !self.inodes.take(1, Leave::None) {
            return Err(Errno::NOSPC.into());
        }
        let first = match self.geometry.inode_place(parent) {
            Some((group, _)) if !is_directory => group,
            _ => self.turn.fetch_add(1, Ordering::Relaxed) % self.geometry.groups,
        };
        for turn in 0..self.geometry.groups {
            let group = (first + turn) % self.geometry.groups;
            let taken = self.with_inodes(group, |bits| bits.take_run(0, 1));
            if let Some((place, _)) = taken.inspect_err(|_| self.inodes.put(1))? {
                return Ok(u64::from(group) * u64::from(self.geometry.inodes_per_group) + place as u64 + 1);
            }
        }
        self.inodes.put(1);
        Err(Errno::NOSPC.into())
    }

    /// Inodes that committed transactions have freed.
    pub(crate) fn release_inodes(&self, inos: &[u64]) {
        inos.iter().for_each(|&ino| self.untake_inode(ino));
        self.freed.1.add(-(inos.len() as i64));
    }

    /// An inode that was taken, and not used in any transaction.
    pub(crate) fn untake_inode(&self, ino: u64) {
        if let Some((group, place)) = self.geometry.inode_place(ino) {
            let _ = self.with_inodes(group, |bits| bits.set_run(place as usize, 1));
            self.inodes.put(1);
        }
    }
}

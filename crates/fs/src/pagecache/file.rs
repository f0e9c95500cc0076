//! The pages of one file.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use unvme::lock::lock;

use super::Counters;
use crate::layout::Page;
use crate::spread::ByNumber;

/// Pages of a chunk.
const CHUNK: u64 = 64;

/// How often a page was used, at most.
const HEAT_MAX: u8 = 3;

/// A page.
pub(crate) struct Frame {
    heat: AtomicU8,
    stamp: AtomicU64,
    /// Tells it from an earlier page of the same index.
    pub ticket: u64,
    pub is_dirty: bool,
    /// A block is set aside for it: the file has none here yet.
    pub is_set_aside: bool,
    /// It was read before anybody asked.
    is_ahead: AtomicBool,
    pub page: Page,
}

impl Frame {
    /// A page, in the memory of one that was given up if there is any.
    pub(super) fn new(spare: Option<Box<Self>>, page: &Page, ticket: u64) -> Box<Self> {
        if let Some(mut frame) = spare {
            frame.heat = AtomicU8::new(0);
            frame.stamp = AtomicU64::new(ticket);
            frame.ticket = ticket;
            (frame.is_dirty, frame.is_set_aside) = (false, false);
            frame.is_ahead = AtomicBool::new(false);
            frame.page = *page;
            return frame;
        }
        Box::new(Self {
            heat: AtomicU8::new(0),
            stamp: AtomicU64::new(ticket),
            ticket,
            is_dirty: false,
            is_set_aside: false,
            is_ahead: AtomicBool::new(false),
            page: *page,
        })
    }

    /// When it was used last.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Relaxed)
    }

    pub(super) fn heat(&self) -> u8 {
        self.heat.load(Ordering::Relaxed)
    }

    pub(super) fn set_heat(&self, heat: u8) {
        self.heat.store(heat, Ordering::Relaxed);
    }
}

struct Chunk {
    frames: [Option<Box<Frame>>; CHUNK as usize],
    used: u32,
}

/// All pages of a file that are in memory.
pub(crate) struct FileCache {
    chunks: ByNumber<Chunk>,
    len: usize,
    dirty: BTreeSet<u64>,
    /// Blocks that are set aside for pages.
    set_aside: u64,
    counters: Arc<Counters>,
}

impl FileCache {
    pub(crate) fn new(counters: &Arc<Counters>) -> Self {
        Self {
            chunks: ByNumber::default(),
            len: 0,
            dirty: BTreeSet::new(),
            set_aside: 0,
            counters: Arc::clone(counters),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Pages that have to be written.
    pub(crate) fn dirty(&self) -> &BTreeSet<u64> {
        &self.dirty
    }

    pub(crate) fn set_aside(&self) -> u64 {
        self.set_aside
    }

    #[inline]
    pub(crate) fn get(&self, index: u64) -> Option<&Frame> {
        if self.len == 0 {
            return None;
        }
        self.chunks.get(&(index / CHUNK))?.frames[(index % CHUNK) as usize].as_deref()
    }

    /// A page that somebody reads.
    #[inline]
    pub(crate) fn hit(&self, index: u64) -> Option<&Page> {
        let frame = self.get(index)?;
        self.touch(frame);
        Some(&frame.page)
    }

    fn touch(&self, frame: &Frame) {
        let heat = frame.heat();
        if heat < HEAT_MAX {
            frame.set_heat(heat + 1);
        }
        let now = self.counters.clock.load(Ordering::Relaxed);
        if frame.stamp() != now {
            frame.stamp.store(now, Ordering::Relaxed);
        }
        if frame.is_ahead.load(Ordering::Relaxed) {
            frame.is_ahead.store(false, Ordering::Relaxed);
            self.counters.read_ahead_hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn slot(&mut self, index: u64) -> Option<&mut Option<Box<Frame>>> {
        Some(&mut self.chunks.get_mut(&(index / CHUNK))?.frames[(index % CHUNK) as usize])
    }

    /// A page that somebody writes to.
    pub(crate) fn get_mut(&mut self, index: u64) -> Option<&mut Frame> {
        self.touch(self.get(index)?);
        self.slot(index)?.as_deref_mut()
    }

    /// It was read before anybody has asked for it.
    pub(crate) fn is_ahead(&self, index: u64) {
        if let Some(frame) = self.get(index) {
            frame.is_ahead.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn put(&mut self, index: u64, frame: Box<Frame>) {
        let chunk = self
            .chunks
            .entry(index / CHUNK)
            .or_insert_with(|| Chunk { frames: [const { None }; CHUNK as usize], used: 0 });
        let old = chunk.frames[(index % CHUNK) as usize].replace(frame);
        debug_assert!(old.is_none(), "a page came twice");
        chunk.used += 1;
        self.len += 1;
        self.counters.frames.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives a page up.
    pub(super) fn take(&mut self, index: u64) {
        let Some(chunk) = self.chunks.get_mut(&(index / CHUNK)) else { return };
        let Some(frame) = chunk.frames[(index % CHUNK) as usize].take() else { return };
        chunk.used -= 1;
        if chunk.used == 0 {
            self.chunks.remove(&(index / CHUNK));
        }
        self.len -= 1;
        let frames = self.counters.frames.fetch_sub(1, Ordering::Relaxed) - 1;
        let mut spare = lock(&self.counters.spare);
        if frames + spare.len() < self.counters.frames_max {
            spare.push(frame);
        }
    }

    /// Returns whether it is the first one of the file.
    pub(super) fn mark_dirty(&mut self, index: u64) -> bool {
        let is_first = self.dirty.is_empty();
        let Some(frame) = self.slot(index).and_then(Option::as_deref_mut) else { return false };
        if std::mem::replace(&mut frame.is_dirty, true) {
            return false;
        }
        self.dirty.insert(index);
        self.counters.dirty.fetch_add(1, Ordering::Relaxed);
        is_first
    }

    /// A block is set aside for a page.
    pub(crate) fn mark_set_aside(&mut self, index: u64) {
        if let Some(frame) = self.slot(index).and_then(Option::as_deref_mut) {
            self.set_aside += u64::from(!std::mem::replace(&mut frame.is_set_aside, true));
        }
    }

    /// Pages are on the device, in blocks of their own.
    pub(crate) fn mark_clean(&mut self, indexes: Range<u64>) {
        for index in indexes {
            let Some(frame) = self.slot(index).and_then(Option::as_deref_mut) else { continue };
            let was_set_aside = std::mem::replace(&mut frame.is_set_aside, false);
            let was_dirty = std::mem::replace(&mut frame.is_dirty, false);
            self.set_aside -= u64::from(was_set_aside);
            if was_dirty {
                self.dirty.remove(&index);
                self.counters.dirty.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Gives up pages, written or not. Returns how many blocks are set aside no longer.
    #[must_use]
    pub(crate) fn drop_range(&mut self, range: Range<u64>) -> u64 {
        if self.len == 0 || range.is_empty() {
            return 0;
        }
        let mut indexes: Vec<u64> = Vec::new();
        let chunks = range.start / CHUNK..(range.end - 1) / CHUNK + 1;
        let mut look = |chunk: u64, frames: &Chunk| {
            for (at, frame) in frames.frames.iter().enumerate() {
                let index = chunk * CHUNK + at as u64;
                if frame.is_some() && range.contains(&index) {
                    indexes.push(index);
                }
            }
        };
        if chunks.end - chunks.start < self.chunks.len() as u64 {
            chunks.for_each(|chunk| {
                if let Some(frames) = self.chunks.get(&chunk) {
                    look(chunk, frames);
                }
            });
        } else {
            self.chunks
                .iter()
                .filter(|(at, _)| chunks.contains(at))
                .for_each(|(&at, frames)| look(at, frames));
        }
        let before = self.set_aside;
        for index in indexes {
            self.mark_clean(index..index + 1);
            self.take(index);
        }
        before - self.set_aside
    }

    /// Whether there is any page of a range.
    pub(crate) fn has_any(&self, range: Range<u64>) -> bool {
        // Of a long range nobody looks at every page: to expel pages that are not there costs little.
        self.len > 0
            && (range.end - range.start > 1024 || range.into_iter().any(|index| self.get(index).is_some()))
    }
}

impl Drop for FileCache {
    fn drop(&mut self) {
        self.counters.frames.fetch_sub(self.len, Ordering::Relaxed);
        self.counters.dirty.fetch_sub(self.dirty.len(), Ordering::Relaxed);
    }
}

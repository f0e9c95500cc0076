//! The memory of all pages: one region, so that it can be shared with others as a whole.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use unvme_bus::Region;

use super::shown::Shown;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Memory of a page, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameNo(pub(super) u32);

impl FrameNo {
    /// Where in the memory of the cache it is.
    #[inline]
    pub fn offset(self) -> usize {
        self.0 as usize * PAGE
    }
}

/// The memory of all pages, and when each was used, if anybody wants to know.
#[derive(Debug)]
pub(super) struct Frames {
    pub memory: Region,
    stamps: Box<[AtomicU64]>,
    /// The first frame of those that no shard has taken.
    pub fresh: AtomicU32,
    /// The first frame whose memory nobody has taken from the system before it is needed.
    prepared: AtomicUsize,
    /// The system does not give it before.
    is_refused: AtomicBool,
    /// What others see of it.
    pub shown: Option<Shown>,
}

impl Frames {
    /// Memory of frames in `memory`, with as many stamps.
    pub(super) fn new(memory: Region, stamps: usize, shown: Option<Shown>) -> Self {
        let stamps = (0..stamps).map(|_| AtomicU64::new(0)).collect();
        Self {
            memory,
            stamps,
            fresh: AtomicU32::new(0),
            prepared: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
            shown,
        }
    }

    /// Takes memory from the system for frames that are used next, as much as is used already, within limits,
    /// and not all at once. Returns for how many frames there is memory, in use or not, as far as is known.
    pub(super) fn prepare(&self, frames_max: usize) -> usize {
        /// Who uses less may never use more.
        const USED_MIN: usize = (8 << 20) / PAGE;
        const AHEAD_MAX: usize = (64 << 20) / PAGE;
        /// Frames at a time, a huge page of memory; and so often.
        const STEP: usize = (2 << 20) / PAGE;
        const STEPS_MAX: usize = 8;
        let used = self.fresh.load(Ordering::Relaxed) as usize;
        let end = (used + used.min(AHEAD_MAX)).min(frames_max) / STEP * STEP;
        let mut ready = self.prepared.load(Ordering::Relaxed).max(used / STEP * STEP);
        for _ in 0..STEPS_MAX {
            if used < USED_MIN || ready >= end || self.is_refused.load(Ordering::Relaxed) {
                break;
            }
            if self.memory.slice(ready * PAGE, STEP * PAGE).populate(STEP * PAGE).is_err() {
                // It is there when it is touched.
                self.is_refused.store(true, Ordering::Relaxed);
                break;
            }
            ready += STEP;
            self.prepared.store(ready, Ordering::Relaxed);
        }
        self.prepared.load(Ordering::Relaxed).max(used)
    }

    /// Changes the memory of a frame that has a page.
    #[inline]
    pub(super) fn change(&self, frame: FrameNo, act: impl FnOnce(&Region, usize)) {
        let act = || act(&self.memory, frame.offset());
        match &self.shown {
            Some(shown) => shown.change(frame, act),
            None => act(),
        }
    }

    /// A frame gets a page.
    pub(super) fn put(&self, frame: FrameNo, owner: u64, index: u64, page: &[u8]) {
        let act = || self.memory.write(frame.offset(), page);
        match &self.shown {
            Some(shown) => shown.put(frame, owner, index, act),
            None => act(),
        }
    }

    /// A frame has no page any more.
    pub(super) fn take(&self, frame: FrameNo, owner: u64, index: u64) {
        if let Some(shown) = &self.shown {
            shown.take(frame, owner, index);
        }
    }

    /// How often other processes have read a page of late, up to a few times.
    pub(super) fn uses(&self, frame: FrameNo) -> u32 {
        self.shown.as_ref().map_or(0, |shown| shown.uses(frame))
    }

    #[inline]
    pub(super) fn stamp(&self, frame: FrameNo) -> u64 {
        self.stamps.get(frame.0 as usize).map_or(0, |stamp| stamp.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set_stamp(&self, frame: FrameNo, now: u64) {
        if let Some(stamp) = self.stamps.get(frame.0 as usize) {
            stamp.store(now, Ordering::Relaxed);
        }
    }
}

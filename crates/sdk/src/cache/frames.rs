//! The memory of all pages: one region, so that it can be shared with others as a whole.

use std::sync::atomic::{AtomicU64, Ordering};

use unvme_bus::Region;

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
}

impl Frames {
    /// Memory of frames in `memory`, with as many stamps.
    pub(super) fn new(memory: Region, stamps: usize) -> Self {
        Self { memory, stamps: (0..stamps).map(|_| AtomicU64::new(0)).collect() }
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

//! Logical to physical pages.

use std::sync::atomic::Ordering;

use unvme_bus::{BusError, Region};

const ENTRY_BYTES: usize = 4;
/// The bit of an entry that belongs to who shares the map with the layer; the layer clears it when it maps
/// the page anew.
const MARK: u32 = 1 << 31;

/// Where each logical page is: 4 bytes for each. Clones share the entries, and any thread may read them while
/// the layer writes them.
///
/// An entry is the physical page plus one, or zero for a page that is not mapped, so that a new map costs no
/// memory until it is written. In a region because that is memory that can be prefetched.
#[derive(Clone)]
pub struct Map {
    entries: Region,
    pages: u32,
}

impl Map {
    /// A map of `pages` logical pages, none of them mapped.
    pub(super) fn new(pages: u32) -> Result<Self, BusError> {
        Ok(Self { entries: Region::anonymous((pages.max(1) as usize) * ENTRY_BYTES)?, pages })
    }

    /// Nothing is mapped any more.
    pub(super) fn clear(&self) {
        self.entries.discard(0, self.entries.len());
    }

    /// Number of logical pages.
    #[inline]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The physical page of a logical one below [`Map::pages`]; `None` when it is not mapped.
    #[inline]
    pub fn get(&self, lpn: u32) -> Option<u32> {
        // Acquire: pairs with the Release in `set`; who sees the page sees what was programmed into it.
        let entry = self.entries.atomic_u32(lpn as usize * ENTRY_BYTES).load(Ordering::Acquire) & !MARK;
        entry.checked_sub(1)
    }

    /// Announces that an entry will be read soon.
    #[inline]
    pub fn prefetch(&self, lpn: u32) {
        self.entries.prefetch(lpn as usize * ENTRY_BYTES, 1);
    }

    #[inline]
    pub(super) fn set(&self, lpn: u32, ppn: Option<u32>) {
        let entry = ppn.map_or(0, |ppn| ppn + 1);
        self.entries.atomic_u32(lpn as usize * ENTRY_BYTES).store(entry, Ordering::Release);
    }

    /// The data of a mapped page is at `ppn` from now on, as it was: the mark stays.
    #[inline]
    pub(super) fn relocate(&self, lpn: u32, ppn: u32) {
        let entry = self.entries.atomic_u32(lpn as usize * ENTRY_BYTES);
        // Only the mark can change meanwhile, and only from set to clear.
        let mark = entry.load(Ordering::Relaxed) & MARK;
        entry.store((ppn + 1) | mark, Ordering::Release);
    }

    /// Like [`Map::get`], with whether the entry carries the mark.
    #[inline]
    pub fn get_marked(&self, lpn: u32) -> Option<(u32, bool)> {
        let entry = self.entries.atomic_u32(lpn as usize * ENTRY_BYTES).load(Ordering::Acquire);
        (entry & !MARK).checked_sub(1).map(|ppn| (ppn, entry & MARK != 0))
    }

    /// Sets the mark of a mapped page.
    pub fn mark(&self, lpn: u32) {
        self.entries.atomic_u32(lpn as usize * ENTRY_BYTES).fetch_or(MARK, Ordering::Relaxed);
    }

    /// Clears the mark of a page that still is at `ppn`.
    pub fn clear_mark(&self, lpn: u32, ppn: u32) {
        let entry = self.entries.atomic_u32(lpn as usize * ENTRY_BYTES);
        // When it fails the page was written anew, without a mark.
        let _ = entry.compare_exchange((ppn + 1) | MARK, ppn + 1, Ordering::AcqRel, Ordering::Relaxed);
    }
}

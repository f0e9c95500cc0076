//! How a reader without a lock notices that a page is written anew while it copies.
//!
//! Physical pages are grouped in grains of 2 MiB, whatever the units are. When a unit is opened, and before
//! anything is programmed into it, the number of each of its grains goes up. A reader
//!
//! 1. loads the map's entry: physical page P;
//! 2. loads the number of P's grain;
//! 3. loads the entry again: it is still P, so at this moment nobody has opened P's unit since P was mapped
//!    there;
//! 4. copies;
//! 5. loads the number again: if it is the same nobody had opened P's unit while it copied.
//!
//! Numbers of all grains fit in a cache that reading fills with data: what costs is the map, and that is
//! looked up ahead.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use unvme_bus::BusError;

/// Pages of a grain as a power of two.
const GRAIN_SHIFT: u32 = 9;

pub(super) struct Grains(Box<[AtomicU32]>);

impl Grains {
    pub(super) fn new(physical_pages: u64) -> Result<Self, BusError> {
        let count = (physical_pages >> GRAIN_SHIFT) + 1;
        Ok(Self((0..count).map(|_| AtomicU32::new(0)).collect()))
    }

    #[inline]
    fn of(&self, ppn: u32) -> &AtomicU32 {
        &self.0[(ppn >> GRAIN_SHIFT) as usize]
    }

    /// Step 2. Acquire: what opened the unit is seen with the number, and step 3 comes after it.
    #[inline]
    pub(super) fn number(&self, ppn: u32) -> u32 {
        self.of(ppn).load(Ordering::Acquire)
    }

    /// Step 5, after the copy: true when what was copied is what was there at step 3.
    #[inline]
    pub(super) fn is_same(&self, ppn: u32, before: u32) -> bool {
        // Acquire fence: the copy's loads come before this load. Pairs with the fence in `touch`.
        fence(Ordering::Acquire);
        self.of(ppn).load(Ordering::Relaxed) == before
    }

    /// Pages are about to be programmed anew. What is programmed after this is not mistaken for what was
    /// there.
    pub(super) fn touch(&self, pages: std::ops::Range<u64>) {
        for grain in pages.start >> GRAIN_SHIFT..=(pages.end - 1) >> GRAIN_SHIFT {
            // Release: who sees the number sees that the map had left the unit (step 3).
            self.0[grain as usize].fetch_add(1, Ordering::Release);
        }
        // Release fence: who sees a byte programmed after it sees the number in step 5.
        fence(Ordering::Release);
    }
}

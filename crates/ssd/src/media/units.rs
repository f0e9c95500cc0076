//! Atomicity without a lock on the read path.
//!
//! A logical block is written whole or not at all as far as any reader can see, whichever queues the commands
//! are on. Each unit of media has a version: a writer makes it odd, writes, and makes it even again; a reader
//! copies and looks whether the version stayed the same, and copies again if not. Readers write nothing that
//! another core would have to fetch.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use unvme_bus::{BusError, Region};

use super::Extent;

/// Atomicity is kept per this many bytes, which no logical block exceeds or straddles.
pub(crate) const UNIT_BYTES: usize = 4096;

/// Units beyond this number share versions, which costs a needless second copy now and then and 4 MiB at
/// most.
const VERSIONS_MAX: u64 = 1 << 20;
const VERSION_BYTES: usize = 4;
/// Turns to wait for before the processor is left to others.
const SPINS: u32 = 1000;

pub(crate) struct Units {
    /// 32-bit words, a power of two of them; in a region because that is memory that can be prefetched.
    versions: Region,
    mask: usize,
}

impl Units {
    pub(crate) fn new(bytes: u64) -> Result<Self, BusError> {
        let count = (bytes / UNIT_BYTES as u64).clamp(1, VERSIONS_MAX).next_power_of_two() as usize;
        Ok(Self { versions: Region::anonymous(count * VERSION_BYTES)?, mask: count - 1 })
    }

    #[inline]
    fn place(&self, offset: u64) -> usize {
        ((offset / UNIT_BYTES as u64) as usize & self.mask) * VERSION_BYTES
    }

    #[inline]
    fn version(&self, offset: u64) -> &AtomicU32 {
        self.versions.atomic_u32(self.place(offset))
    }

    /// Brings the version of a unit close that will be read next: versions of random units are as far away as
    /// the units themselves.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) {
        self.versions.prefetch(self.place(offset), 1);
    }

    /// Calls `copy` for each unit's part of `extent`, again for as long as a writer was in the way.
    #[inline]
    pub(crate) fn read(&self, extent: Extent, mut copy: impl FnMut(u64, usize)) {
        for_each_unit(extent, |offset, bytes| {
            let version = self.version(offset);
            let mut turns = 0;
            loop {
                let before = version.load(Ordering::Acquire);
                if before & 1 == 0 {
                    copy(offset, bytes);
                    // Acquire fence: the copy's loads come before the second load of the version.
                    fence(Ordering::Acquire);
                    if version.load(Ordering::Relaxed) == before {
                        break;
                    }
                }
                wait(&mut turns);
            }
        });
    }

    /// Calls `copy` for each unit's part of `extent`, with all other writers of the unit kept out.
    #[inline]
    pub(crate) fn write(&self, extent: Extent, mut copy: impl FnMut(u64, usize)) {
        for_each_unit(extent, |offset, bytes| {
            let version = self.version(offset);
            let locked = take(version);
            // Release fence: a reader that sees any byte of this write also sees the odd version.
            fence(Ordering::Release);
            copy(offset, bytes);
            version.store(locked.wrapping_add(1), Ordering::Release);
        });
    }

    /// Calls `act` with all writers of all units of a chunk kept out, and readers that have begun. Who takes
    /// several units takes them in this order, and nobody waits for one with another taken.
    pub(super) fn hold(&self, chunk: Extent, act: impl FnOnce()) {
        for_each_unit(chunk, |offset, _| _ = take(self.version(offset)));
        // As in `write`.
        fence(Ordering::Release);
        act();
        for_each_unit(chunk, |offset, _| _ = self.version(offset).fetch_add(1, Ordering::Release));
    }
}

/// Makes a version odd; returns it.
#[inline]
fn take(version: &AtomicU32) -> u32 {
    let mut turns = 0;
    loop {
        let before = version.load(Ordering::Relaxed);
        let odd = before.wrapping_add(1);
        if before & 1 == 0
            && version.compare_exchange_weak(before, odd, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return odd;
        }
        wait(&mut turns);
    }
}

/// Somebody else is at work on a unit: for some hundred nanoseconds, or for as long as it takes to give space
/// back to a file system.
#[cold]
fn wait(turns: &mut u32) {
    *turns += 1;
    if *turns < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

#[inline]
fn for_each_unit(extent: Extent, mut visit: impl FnMut(u64, usize)) {
    let mut offset = extent.offset;
    let mut left = extent.bytes;
    while left > 0 {
        let bytes = left.min(UNIT_BYTES - (offset % UNIT_BYTES as u64) as usize);
        visit(offset, bytes);
        offset += bytes as u64;
        left -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_cut_at_unit_boundaries() {
        let mut seen = Vec::new();
        for_each_unit(Extent { offset: 3584, bytes: 512 + 4096 + 512 }, |o, b| seen.push((o, b)));
        assert_eq!(seen, [(3584, 512), (4096, 4096), (8192, 512)]);
    }

    #[test]
    fn a_reader_never_sees_half_a_write() {
        let units = Units::new(4096).unwrap();
        let words: Vec<AtomicU32> = (0..64).map(|_| AtomicU32::new(0)).collect();
        let extent = Extent { offset: 0, bytes: 512 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 1..=20_000 {
                    units.write(extent, |_, _| words.iter().for_each(|w| w.store(value, Ordering::Relaxed)));
                }
            });
            let mut last = 0;
            while last < 20_000 {
                let mut copy = Vec::with_capacity(64);
                units.read(extent, |_, _| {
                    copy.clear();
                    copy.extend(words.iter().map(|w| w.load(Ordering::Relaxed)));
                });
                assert!(copy.iter().all(|&w| w == copy[0]), "torn: {copy:?}");
                assert!(copy[0] >= last);
                last = copy[0];
            }
        });
    }
}

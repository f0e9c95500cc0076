//! Pieces of one shared object, mapped in another order.
// UNSAFETY: maps over a range of address space this module has reserved.
#![allow(unsafe_code)]

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::{HUGE_PAGE_BYTES, Region};
use crate::BusError;

impl Region {
    /// The huge pages at `offsets` of this region, one after the other in that order, as a region of their
    /// own. The others are given back to the system, so nothing else may use this region any more. The result
    /// has no descriptor: no single offset describes it. Errors: [`BusError::Os`] when there is not enough
    /// address space.
    pub(crate) fn gather(&self, offsets: &[usize]) -> Result<Self, BusError> {
        let failed = |e| BusError::os(format!("map {} huge pages of memory", offsets.len()), e);
        let (fd, base) = self.backing().ok_or_else(|| failed(rustix::io::Errno::BADF))?;
        let bytes = offsets.len() * HUGE_PAGE_BYTES;
        let reserve = bytes + HUGE_PAGE_BYTES;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                reserve,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(failed)?;
        let reserved = Self::from_mapping(start.cast(), reserve, None, true);
        let skip = start.addr().next_multiple_of(HUGE_PAGE_BYTES) - start.addr();
        let gathered = reserved.slice(skip, bytes);
        for (index, offset) in offsets.iter().enumerate() {
            let place = gathered.slice(index * HUGE_PAGE_BYTES, HUGE_PAGE_BYTES);
            // Populated: the pages are there already, and their places can be asked for at once.
            let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the range is within the reservation, aligned to huge pages, and nothing refers to it
            // yet.
            unsafe {
                mmap(place.as_ptr().cast(), HUGE_PAGE_BYTES, protection, flags, fd, base + *offset as u64)
            }
            .map_err(failed)?;
        }
        for offset in (0..self.len()).step_by(HUGE_PAGE_BYTES) {
            if !offsets.contains(&offset) {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                // Pages that cannot be given back now are when the buffer is.
                let _ = fallocate(fd, flags, base + offset as u64, HUGE_PAGE_BYTES as u64);
            }
        }
        Ok(gathered)
    }
}

//! Memory of another process that nobody can cut.
// UNSAFETY: maps memory.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::{Mapping, PAGE_BYTES, Region};
use crate::BusError;

impl Region {
    /// Maps `bytes`, whole pages, of memory that another process made by [`Region::shared`], from its start.
    /// It is sealed against being cut, which is checked: so it cannot be lost, and takes no handler of
    /// signals, for which a program that is not ours is no place. The descriptor is not needed any more.
    ///
    /// # Errors
    /// [`BusError::OutOfRange`] when it is smaller than that, [`BusError::Protocol`] when it is not sealed,
    /// [`BusError::Os`] when it cannot be mapped.
    pub fn sealed(fd: BorrowedFd<'_>, bytes: usize, writable: bool) -> Result<Self, BusError> {
        let seals = rustix::fs::fcntl_get_seals(fd).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) || bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(BusError::Protocol(format!(
                "a mapping of {bytes} bytes of shared memory: whole pages, sealed against shrinking, are expected"
            )));
        }
        let size =
            rustix::fs::fstat(fd).map_err(|e| BusError::os("inspect shared memory", e))?.st_size as u64;
        if bytes as u64 > size {
            let length = bytes as u64;
            return Err(BusError::OutOfRange { what: "shared memory", offset: 0, length, size });
        }
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new shared mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0) }
            .map_err(|e| BusError::os(format!("map {bytes} bytes of shared memory"), e))?;
        Ok(Self::from_mapping(start.cast(), bytes, None, false))
    }

    /// Replaces the mapping of this process by private zeroes, at the same address: clones and slices stay
    /// valid, and reach the shared memory no more. For a process that is about to run code which may not see
    /// that memory: a child by `fork`, or one that has changed its user. The descriptor, where the region has
    /// one, stays open.
    ///
    /// # Errors
    /// [`BusError::Os`] when the kernel refuses: then the mapping is as it was.
    pub fn detach(&self) -> Result<(), BusError> {
        let Mapping { start, bytes, .. } = *self.mapping;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range is this value's own mapping, whole, which is unmapped by its last owner alone. No
        // reference to its contents exists but those to atomics, for which zeroes are values.
        unsafe { mmap_anonymous(start.as_ptr().cast(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }
            .map(drop)
            .map_err(|e| BusError::os(format!("detach {bytes} bytes of shared memory"), e))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;
    use crate::Pages;

    #[test]
    fn detached_memory_reads_as_zeroes_and_reaches_nobody() {
        let ours = Region::shared_on("ours", 2 * PAGE_BYTES, Pages::Ordinary).expect("memory");
        let (fd, _) = ours.backing().expect("shared");
        let theirs = Region::sealed(fd, 2 * PAGE_BYTES, true).expect("mapped");
        ours.store_u32(0, 7, Ordering::Release);
        let clone = theirs.clone();
        theirs.detach().expect("detached");
        assert_eq!(clone.load_u32(0, Ordering::Acquire), 0);
        clone.store_u32(PAGE_BYTES, 8, Ordering::Release);
        assert_eq!(ours.load_u32(PAGE_BYTES, Ordering::Acquire), 0);
        assert_eq!(ours.load_u32(0, Ordering::Acquire), 7);
    }

    #[test]
    fn memory_that_is_sealed_is_shared_and_other_memory_is_refused() {
        let ours = Region::shared_on("ours", 2 * PAGE_BYTES, Pages::Ordinary).expect("memory");
        let (fd, _) = ours.backing().expect("shared");
        let theirs = Region::sealed(fd, 2 * PAGE_BYTES, true).expect("mapped");
        theirs.store_u32(PAGE_BYTES, 7, Ordering::Release);
        assert_eq!(ours.load_u32(PAGE_BYTES, Ordering::Acquire), 7);
        let seen = Region::sealed(fd, PAGE_BYTES, false).expect("mapped");
        ours.store_u32(0, 8, Ordering::Release);
        assert_eq!(seen.load_u32(0, Ordering::Acquire), 8);
        for bytes in [0, 100, 3 * PAGE_BYTES] {
            assert!(Region::sealed(fd, bytes, true).is_err(), "{bytes}");
        }
        let other = memfd_create("other", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&other, PAGE_BYTES as u64).expect("its size");
        let refused = Region::sealed(std::os::fd::AsFd::as_fd(&other), PAGE_BYTES, true);
        assert!(matches!(refused, Err(BusError::Protocol(_))));
    }
}

//! Registers of a device, mapped.
// UNSAFETY: maps device memory, and maps over it when the device is gone.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::guard::{Cover, DEVICE_BYTES_MAX, Watch, replace};
use super::{PAGE_BYTES, Region};
use crate::BusError;

impl Region {
    /// Most bytes of [`Region::device`].
    pub(crate) const DEVICE_BYTES_MAX: usize = DEVICE_BYTES_MAX;

    /// Maps `bytes` of device memory behind `fd` from `offset`: whole pages, at most
    /// [`Region::DEVICE_BYTES_MAX`]. When the device goes away its memory reads as all ones and stores go
    /// nowhere, and `gone` is set with the first access that finds that out: no access raises SIGBUS.
    ///
    /// Device memory takes aligned accesses of its registers' sizes alone: of a region made here only
    /// [`Region::atomic_u32`] and what builds on it may be used, nothing that copies or fills. Errors:
    /// [`BusError::Os`] when it cannot be mapped, [`BusError::Unsupported`] beyond the number of such
    /// mappings.
    pub(crate) fn device(
        fd: &Arc<OwnedFd>,
        offset: u64,
        bytes: usize,
        gone: &Arc<AtomicBool>,
    ) -> Result<Self, BusError> {
        let is_whole = bytes.is_multiple_of(PAGE_BYTES) && offset.is_multiple_of(PAGE_BYTES as u64);
        if bytes == 0 || bytes > Self::DEVICE_BYTES_MAX || !is_whole {
            return Err(BusError::Protocol(format!(
                "device memory of {bytes} bytes at offset {offset:#x}: whole pages, at most {}, are expected",
                Self::DEVICE_BYTES_MAX / PAGE_BYTES
            )));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new shared mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, offset) }
            .map_err(|e| BusError::os(format!("map {bytes} bytes of device memory"), e))?;
        let backing = Some((Arc::clone(fd), offset));
        let watch = Watch { gone: Some(Arc::clone(gone)), event: None };
        Self::from_mapping(start.cast(), bytes, backing, false).guarded(Cover::Ones, watch)
    }

    /// Takes the device's memory away from a region of [`Region::device`], as if the device had gone: the
    /// kernel has no more mapping of the device, and what reads it reads all ones.
    pub(crate) fn withdraw(&self) {
        if self.mapping.guard.is_none() {
            return;
        }
        // SAFETY: the whole mapping is replaced, which this value keeps alive; it is guarded, so all accesses
        // to it are atomics, and one that is under way sees the device or all ones.
        if let Err(e) = unsafe { replace(self.mapping.start.as_ptr(), self.mapping.bytes, Cover::Ones) } {
            tracing::warn!(error = %e, "take a mapping of device memory away");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::atomic::Ordering;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn memory(bytes: u64) -> Arc<OwnedFd> {
        let fd = memfd_create("device", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&fd, bytes).expect("its size");
        Arc::new(fd)
    }

    #[test]
    fn memory_of_a_device_that_went_away_reads_all_ones_and_says_so() {
        let fd = memory(4 * 4096);
        let gone = Arc::new(AtomicBool::new(false));
        let region = Region::device(&fd, 4096, 2 * 4096, &gone).expect("mapped");
        region.store_u32(4096 + 8, 7, Ordering::Release);
        assert_eq!(region.load_u32(4096 + 8, Ordering::Acquire), 7);
        // Pages beyond the end of the file: what the kernel does with a device's when it is removed.
        ftruncate(&*fd, 0).expect("cut");
        assert!(!gone.load(Ordering::SeqCst));
        region.store_u32(4096 + 8, 9, Ordering::Release);
        assert!(gone.load(Ordering::SeqCst));
        assert_eq!(region.load_u32(4096 + 12, Ordering::Acquire), u32::MAX);
        assert_eq!(region.load_u32(0, Ordering::Acquire), u32::MAX);
    }

    #[test]
    fn withdrawn_memory_reads_all_ones_though_the_device_is_there() {
        let fd = memory(4096);
        let gone = Arc::new(AtomicBool::new(false));
        let region = Region::device(&fd, 0, 4096, &gone).expect("mapped");
        let slice = region.slice(64, 4);
        slice.store_u32(0, 1, Ordering::Release);
        region.withdraw();
        assert_eq!(slice.load_u32(0, Ordering::Acquire), u32::MAX);
        assert!(!gone.load(Ordering::SeqCst));
    }

    #[test]
    fn mappings_that_are_not_whole_pages_or_too_many_are_refused() {
        let fd = memory(8192);
        let gone = Arc::new(AtomicBool::new(false));
        for (offset, bytes) in [(0, 0), (0, 100), (100, 4096), (0, (1 << 20) + 4096)] {
            assert!(matches!(Region::device(&fd, offset, bytes, &gone), Err(BusError::Protocol(_))));
        }
    }

    /// Set for the child process of the test below: what it is to do.
    const CHILD: &str = "UNVME_BUS_GUARD_CHILD";

    #[test]
    fn other_bus_errors_still_end_the_program() {
        if std::env::var_os(CHILD).is_some() {
            let gone = Arc::new(AtomicBool::new(false));
            let guarded = memory(4096);
            let region = Region::device(&guarded, 0, 4096, &gone).expect("mapped");
            // What nobody guards: a mapping that was made without this module.
            let other = memory(4096);
            let (protection, shared) = (ProtFlags::READ, MapFlags::SHARED);
            // SAFETY: a new mapping at an address of the kernel's choice; it is read once, raw, and raises
            // the signal.
            unsafe {
                let start = mmap(std::ptr::null_mut(), 4096, protection, shared, &*other, 0).expect("mapped");
                ftruncate(&*other, 0).expect("cut");
                start.cast::<u32>().read_volatile();
            }
            drop(region);
            std::process::exit(0);
        }
        let program = std::env::current_exe().expect("the test program");
        let name = "mem::device::tests::other_bus_errors_still_end_the_program";
        let status = Command::new(program)
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .stderr(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .status()
            .expect("a child");
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
    }
}

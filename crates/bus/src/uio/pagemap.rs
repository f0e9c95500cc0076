//! Where memory is, physically.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::mem::{HUGE_PAGE_BYTES, PAGE_BYTES};
use crate::{BusError, Region};

/// Bytes of an entry of `/proc/PID/pagemap`, one for each page of [`PAGE_BYTES`]
/// (`Documentation/admin-guide/mm/pagemap.rst` of Linux).
const ENTRY_BYTES: u64 = 8;
/// The page is in memory.
const PRESENT: u64 = 1 << 63;
/// Page frame number; 0 for whoever may not know.
const FRAME_MASK: u64 = (1 << 55) - 1;

/// Physical addresses of this process's memory.
#[derive(Debug)]
pub(super) struct Pagemap(File);

impl Pagemap {
    pub(super) fn open() -> Result<Self, BusError> {
        let file =
            File::open("/proc/self/pagemap").map_err(|e| BusError::os("open /proc/self/pagemap", e))?;
        Ok(Self(file))
    }

    /// Where `region` is, which is made of huge pages and touched. Errors: [`BusError::Dma`] for memory of
    /// other pages or that is not contiguous, [`BusError::Setup`] without the privilege.
    pub(super) fn address(&self, region: &Region) -> Result<u64, BusError> {
        let start = region.as_ptr().addr() as u64;
        let length = region.len() as u64;
        let refuse = |reason| BusError::Dma { iova: start, length, reason };
        if !region.is_huge() {
            return Err(refuse("physical addresses are those of huge pages, and this is ordinary memory"));
        }
        let first = self.lookup(start)?;
        let page = HUGE_PAGE_BYTES as u64;
        let mut at = (start + 1).next_multiple_of(page);
        while at < start + length {
            if self.lookup(at)?.checked_sub(first) != Some(at - start) {
                return Err(refuse("it is not contiguous in physical memory"));
            }
            at += page;
        }
        Ok(first)
    }

    fn lookup(&self, address: u64) -> Result<u64, BusError> {
        let page = PAGE_BYTES as u64;
        let mut bytes = [0; ENTRY_BYTES as usize];
        self.0
            .read_exact_at(&mut bytes, address / page * ENTRY_BYTES)
            .map_err(|e| BusError::os("read /proc/self/pagemap", e))?;
        physical(u64::from_ne_bytes(bytes), address % page)
    }
}

/// The physical address that an entry gives to a byte `offset` into its page.
fn physical(entry: u64, offset: u64) -> Result<u64, BusError> {
    if entry & PRESENT == 0 {
        return Err(BusError::Protocol(
            "/proc/self/pagemap: a page that was touched is not there".to_owned(),
        ));
    }
    match entry & FRAME_MASK {
        0 => Err(BusError::setup(
            "the kernel does not tell this process where its memory is, which a function without an IOMMU has to know",
            "run as root (the capability CAP_SYS_ADMIN), or use an IOMMU and vfio-pci, which needs no privilege",
        )),
        frame => frame.checked_mul(PAGE_BYTES as u64).map(|address| address + offset).ok_or_else(|| {
            BusError::Protocol(format!("/proc/self/pagemap: no address space has a page {frame:#x}"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pages;

    #[test]
    fn entries_are_taken_apart_as_linux_documents_them() {
        assert_eq!(physical(0x8100_0000_0012_3456, 0x10).expect("present"), 0x1_2345_6010);
        // Soft-dirty and exclusive bits, and the last page frame of 52 address bits.
        assert_eq!(physical(0x8180_00ff_ffff_ffff, 0).expect("present"), 0xf_ffff_ffff_f000);
        // More than 64 bits of address.
        assert!(matches!(physical(0x81ff_ffff_ffff_ffff, 0), Err(BusError::Protocol(_))));
        assert!(matches!(physical(0x0000_0000_0012_3456, 0), Err(BusError::Protocol(_))));
        let text = physical(0x8000_0000_0000_0000, 0).expect_err("hidden").to_string();
        assert!(text.contains("CAP_SYS_ADMIN"), "{text}");
    }

    #[test]
    fn ordinary_memory_has_no_address_that_stays() {
        let region = Region::shared_on("test", 4096, Pages::Ordinary).expect("memory");
        let pagemap = Pagemap::open().expect("open");
        assert!(matches!(pagemap.address(&region), Err(BusError::Dma { .. })));
    }
}

//! The memory that queues of the kernel's driver use: a function without registers, whose mappings are remembered so
//! that rings can register them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use unvme_bus::mem::HUGE_PAGE_BYTES;
use unvme_bus::{BarLayout, BusError, DmaAccess, EventFd, Function, Region};

/// Mappings start at multiples of this: it is what a pool takes from the system at a time.
pub(super) const UNIT_BYTES: u64 = HUGE_PAGE_BYTES as u64;

/// A mapped range.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    /// First I/O virtual address, a multiple of [`UNIT_BYTES`].
    pub(super) iova: u64,
    /// The memory.
    pub(super) region: Region,
}

/// What a [`unvme_bus::DmaPool`] of a kernel's device is made for. There is no PCI function that could be reached: all
/// but the mappings is refused.
#[derive(Debug, Default)]
pub(super) struct Memory {
    mapped: Mutex<Vec<Mapped>>,
}

impl Memory {
    fn mapped(&self) -> MutexGuard<'_, Vec<Mapped>> {
        // A list that is whole after every statement.
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lowest address that is mapped: pools go up from there.
    pub(super) fn first(&self) -> Option<u64> {
        self.mapped().iter().map(|it| it.iova).min()
    }

    /// The mapping that holds `iova`.
    pub(super) fn find(&self, iova: u64) -> Option<Mapped> {
        let holds =
            |it: &&Mapped| iova.checked_sub(it.iova).is_some_and(|skip| skip < it.region.len() as u64);
        self.mapped().iter().find(holds).cloned()
    }
}

impl Function for Memory {
    fn config_read(&self, _: usize, _: &mut [u8]) -> Result<(), BusError> {
        Err(without("configuration space"))
    }

    fn config_write(&self, _: usize, _: &[u8]) -> Result<(), BusError> {
        Err(without("configuration space"))
    }

    fn bar(&self, _: usize) -> Result<Option<BarLayout>, BusError> {
        Ok(None)
    }

    fn bar_read(&self, _: usize, _: u64, _: &mut [u8]) -> Result<(), BusError> {
        Err(without("registers"))
    }

    fn bar_write(&self, _: usize, _: u64, _: &[u8]) -> Result<(), BusError> {
        Err(without("registers"))
    }

    fn dma_map(&self, iova: u64, region: &Region, _: DmaAccess) -> Result<(), BusError> {
        let length = region.len() as u64;
        if !iova.is_multiple_of(UNIT_BYTES) {
            return Err(BusError::Dma { iova, length, reason: "a multiple of 2 MiB is expected" });
        }
        self.mapped().push(Mapped { iova, region: region.clone() });
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        // Rings that registered the memory keep it for as long as they live: nothing there is pulled away.
        let mut mapped = self.mapped();
        let before = mapped.len();
        mapped.retain(|it| it.iova != iova || it.region.len() as u64 != length);
        if mapped.len() == before {
            return Err(BusError::Dma { iova, length, reason: "it is not mapped" });
        }
        Ok(())
    }

    fn vectors(&self) -> u16 {
        0
    }

    fn set_vector(&self, _: u16, _: Option<EventFd>) -> Result<(), BusError> {
        Err(without("interrupt vectors"))
    }

    fn reset(&self) -> Result<(), BusError> {
        Err(without("reset of the function"))
    }
}

fn without(what: &str) -> BusError {
    BusError::Unsupported(format!(
        "the device belongs to the kernel's driver, which gives no access to its {what}; take the drive over with \
         `unvme setup config ADDRESS` to have that"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_found_by_any_address_in_it_until_it_is_unmapped() {
        let memory = Memory::default();
        let region = Region::anonymous(4 << 20).unwrap();
        memory.dma_map(0x1_0000_0000, &region, DmaAccess::READ_WRITE).unwrap();
        assert_eq!(memory.find(0x1_003f_ffff).unwrap().iova, 0x1_0000_0000);
        assert!(memory.find(0x1_0040_0000).is_none());
        assert!(memory.find(0xffff_ffff).is_none());
        assert!(memory.dma_unmap(0x1_0000_0000, 2 << 20).is_err(), "half of it");
        memory.dma_unmap(0x1_0000_0000, 4 << 20).unwrap();
        assert!(memory.find(0x1_0000_0000).is_none());
    }

    #[test]
    fn a_mapping_that_rings_could_not_look_up_is_refused() {
        let region = Region::anonymous(4096).unwrap();
        assert!(Memory::default().dma_map(0x1_0000_1000, &region, DmaAccess::READ_WRITE).is_err());
    }

    #[test]
    fn what_only_a_pci_function_has_is_refused_with_the_way_to_have_it() {
        let error = Memory::default().reset().unwrap_err().to_string();
        assert!(error.contains("unvme setup config"), "{error}");
    }
}

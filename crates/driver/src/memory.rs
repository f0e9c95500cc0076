//! The memory of queues that reach no PCI function, beside the kernel's driver and over the network: a function without
//! registers, whose mappings are remembered so that rings can register them.

use std::sync::{Mutex, MutexGuard};

use unvme_bus::mem::HUGE_PAGE_BYTES;
use unvme_bus::{BarLayout, BusError, DmaAccess, EventFd, Function, Region, lock};

/// Mappings start at multiples of this: it is what a pool takes from the system at a time.
pub(crate) const UNIT_BYTES: u64 = HUGE_PAGE_BYTES as u64;

/// A mapped range.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    /// First I/O virtual address, a multiple of [`UNIT_BYTES`].
    pub(crate) iova: u64,
    /// The memory.
    pub(crate) region: Region,
}

/// Who has the controller, so that there is no PCI function that could be reached.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// The kernel's driver.
    Kernel,
    /// A target on the network.
    Target,
}

/// What a [`unvme_bus::DmaPool`] of such a device is made for: all but the mappings is refused.
#[derive(Debug)]
pub(crate) struct Memory {
    mapped: Mutex<Vec<Mapped>>,
    owner: Owner,
}

impl Memory {
    /// For a device of the kernel's driver.
    pub(crate) fn beside_kernel() -> Self {
        Self { mapped: Mutex::default(), owner: Owner::Kernel }
    }

    /// For a device on the network.
    pub(crate) fn for_network() -> Self {
        Self { mapped: Mutex::default(), owner: Owner::Target }
    }

    fn without(&self, what: &str) -> BusError {
        BusError::Unsupported(match self.owner {
            Owner::Kernel => format!(
                "the device belongs to the kernel's driver, which gives no access to its {what}; take the drive over \
                 with `unvme setup config ADDRESS` to have that"
            ),
            Owner::Target => {
                format!(
                    "the device is on the network, which gives no access to its {what}; that is its server's"
                )
            }
        })
    }

    fn mapped(&self) -> MutexGuard<'_, Vec<Mapped>> {
        // A list that is whole after every statement.
        lock(&self.mapped)
    }

    /// The lowest address that is mapped: pools go up from there.
    pub(crate) fn first(&self) -> Option<u64> {
        self.mapped().iter().map(|it| it.iova).min()
    }

    /// The mapping that holds `iova`.
    pub(crate) fn find(&self, iova: u64) -> Option<Mapped> {
        let holds =
            |it: &&Mapped| iova.checked_sub(it.iova).is_some_and(|skip| skip < it.region.len() as u64);
        self.mapped().iter().find(holds).cloned()
    }
}

impl Function for Memory {
    fn config_read(&self, _: usize, _: &mut [u8]) -> Result<(), BusError> {
        Err(self.without("configuration space"))
    }

    fn config_write(&self, _: usize, _: &[u8]) -> Result<(), BusError> {
        Err(self.without("configuration space"))
    }

    fn bar(&self, _: usize) -> Result<Option<BarLayout>, BusError> {
        Ok(None)
    }

    fn bar_read(&self, _: usize, _: u64, _: &mut [u8]) -> Result<(), BusError> {
        Err(self.without("registers"))
    }

    fn bar_write(&self, _: usize, _: u64, _: &[u8]) -> Result<(), BusError> {
        Err(self.without("registers"))
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
        Err(self.without("interrupt vectors"))
    }

    fn reset(&self) -> Result<(), BusError> {
        Err(self.without("reset of the function"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_found_by_any_address_in_it_until_it_is_unmapped() {
        let memory = Memory::beside_kernel();
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
        assert!(Memory::beside_kernel().dma_map(0x1_0000_1000, &region, DmaAccess::READ_WRITE).is_err());
    }

    #[test]
    fn what_only_a_pci_function_has_is_refused_with_the_way_to_have_it() {
        let error = Memory::beside_kernel().reset().unwrap_err().to_string();
        assert!(error.contains("unvme setup config"), "{error}");
    }
}

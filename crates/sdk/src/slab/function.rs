//! A PCI function that maps memory and does nothing else.

use std::sync::Arc;

use unvme_bus::{AddressSpace, BarLayout, BusError, DmaAccess, EventFd, Function, Region};

pub(crate) struct Bare {
    space: AddressSpace,
    refuses: bool,
}

impl Bare {
    pub(crate) fn function(space: AddressSpace) -> Arc<dyn Function> {
        Arc::new(Self { space, refuses: false })
    }

    pub(crate) fn refusing(space: AddressSpace) -> Arc<dyn Function> {
        Arc::new(Self { space, refuses: true })
    }
}

impl Function for Bare {
    fn config_read(&self, _: usize, out: &mut [u8]) -> Result<(), BusError> {
        out.fill(0);
        Ok(())
    }

    fn config_write(&self, _: usize, _: &[u8]) -> Result<(), BusError> {
        Ok(())
    }

    fn bar(&self, _: usize) -> Result<Option<BarLayout>, BusError> {
        Ok(None)
    }

    fn bar_read(&self, _: usize, _: u64, out: &mut [u8]) -> Result<(), BusError> {
        out.fill(0);
        Ok(())
    }

    fn bar_write(&self, _: usize, _: u64, _: &[u8]) -> Result<(), BusError> {
        Ok(())
    }

    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        if self.refuses {
            return Err(BusError::Dma { iova, length: region.len() as u64, reason: "no more mappings" });
        }
        self.space.map(iova, region, access)
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        self.space.unmap(iova, length)
    }

    fn vectors(&self) -> u16 {
        1
    }

    fn set_vector(&self, _: u16, _: Option<EventFd>) -> Result<(), BusError> {
        Ok(())
    }

    fn reset(&self) -> Result<(), BusError> {
        Ok(())
    }
}

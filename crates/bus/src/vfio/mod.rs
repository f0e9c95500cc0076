//! Functions of this machine behind an IOMMU: `vfio-pci` by IOMMU groups, with an IOMMU of type 1.
//!
//! The kernel's driver `vfio-pci` hands a function to a process: its registers as memory, its interrupts as
//! eventfds, its view of memory as mappings the process makes. What the process gets wrong reaches no memory
//! but its own.
//!
//! What it does not implement: the newer interface by iommufd and `/dev/vfio/devices`, and functions without
//! an IOMMU (`enable_unsafe_noiommu_mode`; [`crate::uio`] is for those). A group has one user: two functions
//! of one group cannot be opened, together or one by one. Legacy interrupts (INTx) and MSI are not used.

mod abi;
mod container;
mod irqs;
mod open;
mod regions;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::function::CONFIG_SPACE_BYTES;
use crate::pci::bar::{Bar, read_exactly, write_exactly};
use crate::pci::gone;
use crate::{
    BarLayout, BusError, Dma, DmaAccess, DmaAddressing, EventFd, Function, PciAddress, PciFunction, Region,
};
use container::Container;
use regions::ConfigRegion;

/// Base address registers of a function.
const BARS: usize = 6;
/// How often a reset is tried that the kernel refuses because something else holds the device for a moment.
const RESET_TRIES: u32 = 50;
const RESET_PAUSE: Duration = Duration::from_millis(20);

/// A function bound to `vfio-pci`, opened by this process.
///
/// When the device is pulled out, or the kernel asks for it back (it does before a hot removal, and when
/// somebody unbinds the driver), the function is let go as soon as anything notices, which
/// [`Function::is_gone`] does whenever it is asked: mappings of its registers read all ones from then on and
/// its descriptors are closed, so that the kernel can finish the removal while queues, buffers and this value
/// still exist. A process that is asked nothing and does nothing keeps the kernel waiting. Descriptors that a
/// vfio-user server passed to another process are beyond reach.
pub struct VfioFunction {
    address: PciAddress,
    bars: [Option<Bar>; BARS],
    config: ConfigRegion,
    vectors: u16,
    is_resettable: bool,
    addresses: Range<u64>,
    /// Signalled when the kernel wants the device back.
    request: Option<EventFd>,
    gone: Arc<AtomicBool>,
    released: Once,
    device: Arc<OwnedFd>,
    group: OwnedFd,
    container: Container,
}

crate::debug_parts!(VfioFunction { address, vectors, gone });

impl VfioFunction {
    /// Takes a function over that is bound to `vfio-pci`. It is given back when the last clone, window and
    /// doorbell of it have been dropped. Errors: [`BusError::Setup`] with what is missing (another driver, no
    /// IOMMU, a group with other devices, no permission, somebody else uses it) and the command that helps;
    /// [`BusError::Os`].
    pub fn open(function: &PciFunction) -> Result<Arc<Self>, BusError> {
        let address = function.address;
        let open::Handles { container, group, device } = open::open(function)?;
        let facts = open::device_facts(function, &device)?;
        let addresses = container.addresses()?;
        let vectors = irqs::enable(&device)?;
        let request = irqs::request_event(&device);
        let gone = Arc::new(AtomicBool::new(false));
        let device = Arc::new(device);
        let mut bars = [const { None }; BARS];
        for (index, bar) in bars.iter_mut().enumerate() {
            *bar = regions::bar(&device, index as u32, &gone)?;
        }
        let config = regions::config(&device)?;
        tracing::debug!(%address, vectors, ?addresses, "VFIO function opened");
        Ok(Arc::new(Self {
            address,
            bars,
            config,
            vectors,
            is_resettable: facts.is_resettable,
            addresses,
            request,
            gone,
            released: Once::new(),
            device,
            group,
            container,
        }))
    }

    /// Where it is.
    pub fn address(&self) -> PciAddress {
        self.address
    }

    fn find_bar(&self, index: usize) -> Result<&Bar, BusError> {
        let bar = self.bars.get(index).and_then(Option::as_ref);
        bar.ok_or_else(|| BusError::Unsupported(format!("{} has no BAR {index}", self.address)))
    }

    fn gone_error(&self) -> BusError {
        BusError::Gone(self.address.to_string())
    }

    /// What failed, or that the device is gone, which explains it.
    fn explain(&self, e: BusError) -> BusError {
        if self.is_gone() { self.gone_error() } else { e }
    }

    /// Offset in the device's file of `bytes` of configuration space from `offset`.
    fn place_config(&self, offset: usize, bytes: usize) -> Result<u64, BusError> {
        let size = self.config.bytes.min(CONFIG_SPACE_BYTES as u64);
        BusError::check_range("configuration space", offset as u64, bytes, size)?;
        Ok(self.config.offset + offset as u64)
    }

    /// True when the kernel wants the device back, or it does not answer: its registers and its class code,
    /// which is no register of the device that could have any value, are all ones.
    fn has_left(&self) -> bool {
        if self.request.as_ref().is_some_and(EventFd::drain) {
            return true;
        }
        let mut words = self.bars.iter().flatten().filter_map(Bar::first_word);
        words.next() == Some(u32::MAX) && {
            let mut class = [0; 4];
            let at = self.config.offset + gone::CLASS_OFFSET;
            read_exactly(&self.device, at, &mut class).is_err() || class == [0xff; 4]
        }
    }

    /// Lets the device go while this value lives on: first the mappings, so that nothing refers to the
    /// device's file any more; then the file, which stops the device; then the container, which takes the
    /// device's view of memory away.
    fn release(&self) {
        self.released.call_once(|| {
            self.gone.store(true, Ordering::SeqCst);
            tracing::warn!(address = %self.address, "the device has gone: it is let go");
            self.bars.iter().flatten().for_each(Bar::withdraw);
            for fd in [&*self.device, &self.group, &self.container.fd] {
                gone::close_behind(fd);
            }
        });
    }
}

impl Dma for VfioFunction {
    fn dma_addressing(&self) -> DmaAddressing {
        DmaAddressing::Chosen(self.addresses.clone())
    }

    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        self.container.map(iova, region, access).map_err(|e| self.explain(e))
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        if self.gone.load(Ordering::SeqCst) {
            // The container is gone, and every mapping with it.
            self.release();
            return Ok(());
        }
        self.container.unmap(iova, length).map_err(|e| self.explain(e))
    }
}

impl Function for VfioFunction {
    fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
        let at = self.place_config(offset, out.len())?;
        read_exactly(&self.device, at, out).map_err(|e| self.explain(e))
    }

    fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
        let at = self.place_config(offset, data.len())?;
        write_exactly(&self.device, at, data).map_err(|e| self.explain(e))
    }

    fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError> {
        Ok(self.bars.get(index).and_then(Option::as_ref).map(|bar| bar.layout.clone()))
    }

    fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
        let outcome = self.find_bar(index)?.read(offset, out);
        outcome.map_err(|e| self.explain(e))
    }

    fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let outcome = self.find_bar(index)?.write(offset, data);
        outcome.map_err(|e| self.explain(e))
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
        BusError::check_range("interrupt vectors", vector.into(), 1, self.vectors.into())?;
        irqs::deliver(&self.device, vector, event.as_ref()).map_err(|e| self.explain(e))
    }

    /// The kernel waits for transactions that are under way, resets the function by the best means it has,
    /// waits as long as the specification gives it (100 ms, and longer while it answers that it is not
    /// ready), and puts configuration space back, bus mastering and MSI-X included. Accesses to windows
    /// meanwhile are held up by it.
    fn reset(&self) -> Result<(), BusError> {
        if self.is_gone() {
            return Err(self.gone_error());
        }
        if !self.is_resettable {
            return Err(BusError::Unsupported(format!("{}: the function has no reset", self.address)));
        }
        let mut tries = 0;
        loop {
            match abi::call(&*self.device, abi::DEVICE_RESET, 0) {
                Ok(_) => return Ok(()),
                Err(e) if Errno::from_io_error(&e) == Some(Errno::AGAIN) && tries < RESET_TRIES => {
                    tries += 1;
                    thread::sleep(RESET_PAUSE);
                }
                Err(e) => return Err(self.explain(BusError::os(format!("{}: reset it", self.address), e))),
            }
        }
    }

    fn is_gone(&self) -> bool {
        // Set by whoever found a mapping gone as well; then the rest is let go here.
        if !self.released.is_completed() && (self.gone.load(Ordering::SeqCst) || self.has_left()) {
            self.release();
        }
        self.released.is_completed()
    }
}

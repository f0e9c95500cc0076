//! The seam between a host and a device: one PCI function.

use std::ops::Range;

use crate::{BusError, Clock, EventFd, Region};

/// What a device may do with a mapped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaAccess {
    /// The device may read host memory.
    pub read: bool,
    /// The device may write host memory.
    pub write: bool,
}

impl DmaAccess {
    /// Reading and writing.
    pub const READ_WRITE: Self = Self { read: true, write: true };
    /// Reading alone.
    pub const READ_ONLY: Self = Self { read: true, write: false };
}

/// A part of a BAR that is memory both sides can map: accesses to it need no call.
#[derive(Clone, Debug)]
pub struct Window {
    /// Offset of the window within the BAR, a multiple of the page size.
    pub offset: u64,
    /// The shared memory; its length is the window's. To be served over vfio-user it must have a descriptor,
    /// the same for all windows of a BAR, and lie as far into it as the window lies into the BAR, or equally
    /// further: the protocol has one descriptor and one base for each BAR.
    pub region: Region,
}

/// Size of a BAR and the parts of it that can be mapped.
#[derive(Clone, Debug)]
pub struct BarLayout {
    /// Bytes, a power of two.
    pub bytes: u64,
    /// Parts that are shared memory, in ascending order; everything else goes through
    /// [`Function::bar_read`] and [`Function::bar_write`].
    pub windows: Vec<Window>,
}

/// How a function addresses a host's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DmaAddressing {
    /// By addresses the host chooses within this range, for each call of [`Dma::dma_map`].
    Chosen(Range<u64>),
    /// By physical addresses: nothing translates. Where memory is says [`Dma::dma_address`], and only memory
    /// that stays where it is can be used.
    Physical,
}

/// Addresses a host chooses when the function does not mind: not below 4 GiB, so that a zeroed or truncated
/// pointer is a fault, and of 39 bits, which is what the narrowest common IOMMU translates.
pub const IOVA_RANGE: Range<u64> = 1 << 32..1 << 39;

/// Bytes of PCI Express extended configuration space.
pub const CONFIG_SPACE_BYTES: usize = 4096;

/// How a host's memory is mapped for a device. All that a [`crate::DmaPool`] needs of one: a queue that
/// reaches its device by other ways than registers has an [`crate::AddressSpace`] and no function.
pub trait Dma: Send + Sync {
    /// Lets the device reach `region` at I/O virtual addresses `iova..iova + region.len()`. Errors:
    /// [`BusError::Dma`] for a range that is not page aligned, wraps around or overlaps another one.
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError>;

    /// Takes back ranges that lie wholly within `iova..iova + length`. When this returns the device does not
    /// touch them any more. Errors: [`BusError::Dma`] when nothing is mapped there or a mapping would be cut
    /// in two.
    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError>;

    /// How addresses for [`Dma::dma_map`] are found.
    fn dma_addressing(&self) -> DmaAddressing {
        DmaAddressing::Chosen(IOVA_RANGE)
    }

    /// The physical address of `region`, for a device with [`DmaAddressing::Physical`]. Errors:
    /// [`BusError::Dma`] for memory that is not contiguous or could be moved, [`BusError::Setup`] when the
    /// system does not tell, [`BusError::Unsupported`] for a device whose addresses are chosen.
    fn dma_address(&self, region: &Region) -> Result<u64, BusError> {
        let _ = region;
        Err(BusError::Unsupported("the function's addresses are chosen by the host".to_owned()))
    }
}

/// A PCI function: what a device implements and a host drives, in one process or across a socket.
///
/// All methods may be called from several threads.
pub trait Function: Dma {
    /// Reads configuration space. Errors: [`BusError::OutOfRange`] beyond [`CONFIG_SPACE_BYTES`], or an error
    /// of the connection.
    fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError>;

    /// Writes configuration space; read-only bits are ignored, as hardware does. Errors:
    /// [`BusError::OutOfRange`] beyond [`CONFIG_SPACE_BYTES`], or an error of the connection.
    fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError>;

    /// Layout of BAR `index` (0 to 5); `None` when the function has no such BAR. Errors: an error of the
    /// connection.
    fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError>;

    /// Reads registers, any size and alignment the other side accepts. Errors: [`BusError::OutOfRange`], or
    /// an error of the connection.
    fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> Result<(), BusError>;

    /// Writes registers. Errors: [`BusError::OutOfRange`], or an error of the connection.
    fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> Result<(), BusError>;

    /// Number of interrupt vectors (MSI-X table size).
    fn vectors(&self) -> u16;

    /// Delivers interrupt `vector` to `event`, or to nobody. Errors: [`BusError::OutOfRange`] for a vector
    /// the function does not have.
    fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError>;

    /// Function level reset. Errors: an error of the connection.
    fn reset(&self) -> Result<(), BusError>;

    /// True when the device makes progress only inside [`Function::advance`]: whoever waits must call it and
    /// must not sleep.
    fn is_host_driven(&self) -> bool {
        false
    }

    /// Lets a host-driven device work for a bounded while: on what `lane` (the number of a queue, as its
    /// doorbells are numbered) has submitted, or on everything when `None`. Returns how many units of work
    /// were done. A device that decides between its queues may work on others first.
    ///
    /// Devices that run by themselves do nothing here.
    fn advance(&self, lane: Option<u16>, clock: &Clock) -> usize {
        let _ = (lane, clock);
        0
    }

    /// Earliest clock reading at which a host-driven device has something to do though nothing is submitted;
    /// `None` when it has nothing to come. Whoever waits for it alone, on a virtual clock, can go on to that.
    fn next_event(&self) -> Option<u64> {
        None
    }

    /// True when the device is known to be gone for good: from now on every call fails, or reads all ones.
    /// Cheap enough to be asked every millisecond by a host that only polls shared memory, which nothing ever
    /// arrives in again.
    fn is_gone(&self) -> bool {
        false
    }

    /// What has stopped the device, or keeps it from answering, where it can say more than its registers do:
    /// one in this process knows which rule of a script it was. In words, for messages.
    fn stopped_by(&self) -> Option<String> {
        None
    }

    /// True when the device can move to another process that it is reached through from then on: a function
    /// that [`Function::is_gone`] may come back with [`Function::follow`].
    fn is_movable(&self) -> bool {
        false
    }

    /// Follows a device that is gone from the process it was reached through to where it is now, which takes
    /// as long as it takes somebody to open it. Then the function is not gone any more and as after a reset:
    /// mappings are what they were, vectors deliver to nobody, and the windows of its BARs are other memory.
    /// Errors: [`BusError::Gone`] when it is gone for good, with the reason.
    fn follow(&self) -> Result<(), BusError> {
        Err(BusError::Gone("the device does not move to another process".to_owned()))
    }
}

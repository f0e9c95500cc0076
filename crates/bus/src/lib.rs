//! Memory and registers shared by a host and a PCI function.
//!
//! The crate knows pages, I/O virtual addresses, PCI configuration space, eventfds and the vfio-user
//! protocol. What a function does behind its registers is none of its business.
//!
//! | module | concept |
//! |---|---|
//! | [`mem`] | [`Region`]: memory another party may write at any time, behind bounds-checked accessors |
//! | [`space`] | [`AddressSpace`]: a device's view of host memory, I/O virtual address to [`Region`] |
//! | [`slab`] | [`DmaPool`], [`DmaShelf`], [`DmaBuf`], [`DmaParts`]: buffers, mapped once for a function |
//! | [`function`] | [`Function`]: the seam between the two sides; [`Dma`]: the part of it that maps memory |
//! | [`mmio`] | [`Registers`] and [`Doorbell`]: typed access to a function's BAR |
//! | [`event`] | [`EventFd`]: an interrupt, [`Clock`]: the time a function is handed |
//! | [`pci`] | [`PciAddress`]: how a PCI function is named, and which ones the system has |
//! | [`socket`] | [`Piece`] and [`Room`]: a stream socket that sends from and receives into shared memory |
//! | [`mod@lock`] | [`lock()`]: the standard library's locks, held on to after a panic |
//! | [`file_size`] | writing files under a limit of their size, without a signal
//! | [`published`] | [`Published`]: a value that changes rarely and is read all the time |
//! | [`random`] | random numbers of the system, and of series that can be repeated |
//! | [`secret`] | [`SecretBytes`]: memory that no core dump has, and that is cleared |
//! | [`spin`] | [`SpinLock`]: a lock whose release waits for nothing |
//! | [`vfio`] | [`vfio::VfioFunction`]: a function of this machine behind an IOMMU |
//! | [`uio`] | [`uio::UioFunction`]: a function of this machine without one |
//! | [`vfio_user`] | the same seam over a UNIX socket and shared memory |
//!
//! All `unsafe` of the project's data path is in [`mem`], [`socket`] and [`spin`]; that of [`vfio`] is its
//! system calls, that of [`secret`] memory for keys.
//!
//! What it does not implement: iommufd and VFIO without an IOMMU, dirty page logging, migration, I/O port
//! BARs, INTx, MSI.

pub mod event;
pub mod file_size;
pub mod function;
pub mod lock;
pub mod mem;
pub mod mmio;
pub mod pci;
pub mod published;
pub mod random;
pub mod secret;
pub mod slab;
pub mod socket;
pub mod space;
pub mod spin;
pub mod uio;
pub mod vfio;
pub mod vfio_user;

mod debug;
mod error;

pub use error::BusError;
pub use event::{Clock, EventFd};
pub use function::{BarLayout, Dma, DmaAccess, DmaAddressing, Function, Window};
pub use lock::lock;
pub use mem::{Pages, Region};
pub use mmio::{Doorbell, Registers};
pub use pci::{NotAnAddress, PciAddress, PciBus, PciFunction};
pub use published::{Published, Reader};
pub use secret::SecretBytes;
pub use slab::{DmaBuf, DmaParts, DmaPool, DmaShelf, PoolId};
pub use socket::{Piece, Room};
pub use space::{AddressSpace, Mappings};
pub use spin::{SpinGuard, SpinLock};

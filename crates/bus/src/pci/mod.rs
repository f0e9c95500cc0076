//! PCI functions: how they are named, and what the system has.
//!
//! Everything here reads `sysfs` (`Documentation/ABI/testing/sysfs-bus-pci` of Linux) and changes nothing.

mod address;
pub(crate) mod bar;
mod function;
pub(crate) mod gone;
mod scan;

pub use address::{NotAnAddress, PciAddress};
pub use function::{DRIVER_UIO, DRIVER_VFIO, PciFunction};
pub use scan::{CLASS_NVM_EXPRESS, PciBus};

//! User-space NVMe SDK: block devices by name, polled, on any transport.
//!
//! ```
//! use unvme::{Nsid, OpenOptions, open};
//!
//! # fn main() -> Result<(), unvme::Error> {
//! let device = open("mem:block:64M", &OpenOptions::default())?;
//! let mut block = device.block(Nsid(1))?;
//! block.write_at(8, &[0x5a; 512])?;
//! let mut data = [0; 512];
//! block.read_at(8, &mut data)?;
//! assert_eq!(data, [0x5a; 512]);
//! # Ok(())
//! # }
//! ```
//!
//! | module | concept |
//! |---|---|
//! | `open` | [`open()`]: from a name to a device, the one place where transports are chosen |
//! | `name` | [`DeviceName`]: `0000:02:00.0`, `mem:block:1G`, `vfio-user:SOCKET` |
//! | [`registry`] | [`Registry`]: virtual slots, devices in a folder |
//! | `device` | [`Device`]: identity, namespaces, the controller |
//! | `block` | [`Block`]: calls that wait, of any length |
//! | `queue` | [`BlockQueue`]: submit and poll, with buffers that travel with their commands |
//! | `serve` | [`serve()`]: offering a virtual device to other processes (feature `local`) |
//!
//! Errors are one enum, [`Error`]; a status that a device answered is always whole.
//!
//! What it does not implement: devices of the kernel's driver, VFIO devices, NVMe over TCP, key-value devices, caching.
#![forbid(unsafe_code)]

mod address;
mod block;
mod device;
mod error;
#[cfg(feature = "local")]
mod local;
mod name;
mod open;
mod queue;
pub mod registry;
#[cfg(feature = "local")]
mod serve;
mod size;

pub use address::{NotAnAddress, PciAddress};
pub use block::Block;
pub use device::{Device, Identity, Transport};
pub use error::{Error, Result};
pub use name::{DeviceName, MemoryDevice, NAME_SYNTAX};
pub use open::{OpenOptions, open, open_function};
pub use queue::{BlockOp, BlockQueue};
pub use registry::Registry;
#[cfg(feature = "local")]
pub use serve::{ServeOptions, serve};
pub use size::{NotASize, Size};

pub use unvme_bus::{Clock, EventFd, Function, Region};
pub use unvme_driver::{
    Completion, CompletionMode, Completions, Controller, ControllerOptions, DEPTH_MAX, DataPointers, DmaBuf,
    DmaPool, Error as DriverError, Event, EventKind, FeatureValue, LogRequest, Namespace, Payload, Queue,
    QueueOptions, Rejected,
};
pub use unvme_spec::nvm::{AccessFlags, BlockRange};
pub use unvme_spec::{Cqe, Lba, Nsid, Sqe, Status};

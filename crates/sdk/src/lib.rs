//! User-space NVMe SDK: block and key-value devices by name, polled, on any transport.
//!
//! ```
//! use unvme::{Nsid, OpenOptions, StoreOptions, open};
//!
//! # fn main() -> Result<(), unvme::Error> {
//! let device = open("mem:block:64M", &OpenOptions::default())?;
//! let mut block = device.block(Nsid(1))?;
//! block.write_at(8, &[0x5a; 512])?;
//! let mut data = [0; 512];
//! block.read_at(8, &mut data)?;
//! assert_eq!(data, [0x5a; 512]);
//!
//! let device = open("mem:kv:64M", &OpenOptions::default())?;
//! let mut kv = device.kv(Nsid(1))?;
//! kv.store(b"key", b"value", StoreOptions::default())?;
//! assert_eq!(kv.retrieve(b"key")?.as_deref(), Some(&b"value"[..]));
//! for key in kv.prefix(b"k")? {
//!     assert_eq!(key?, b"key");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | module | concept |
//! |---|---|
//! | `open` | [`open()`]: from a name to a device, the one place where transports are chosen |
//! | `name` | [`DeviceName`]: `0000:02:00.0`, `mem:block:1G`, `vfio-user:SOCKET`, `tcp:HOST:PORT/NQN` |
//! | [`registry`] | [`Registry`]: virtual slots, devices in a folder |
//! | `device` | [`Device`]: identity, namespaces, the controller |
//! | `block` | [`Block`]: calls that wait, of any length |
//! | `queue` | [`BlockQueue`]: submit and poll, with buffers that travel with their commands |
//! | [`fdp`] | Flexible Data Placement: [`Device::fdp`], and writes that say where their data goes |
//! | `kv` | [`Kv`]: key-value calls that wait, [`KvQueue`]: submit and poll |
//! | [`scan`] | [`scan::Scan`]: a listing of keys that takes several commands |
//! | `machine` | [`system_root()`]: a copy that stands for this machine's own trees |
//! | [`fabrics`] | NVMe/TCP: this host's name, targets it knows, keys, discovery, who may enter |
//! | `serve` | [`serve()`] offers a virtual device to processes, [`serve_tcp`] to machines (with `local`) |
//!
//! Errors are one enum, [`Error`]; a status that a device answered is always whole.
//!
//! What it does not implement: fabrics other than TCP; on a key-value device, storing values of more bytes
//! than one command moves, and without Samsung's vendor commands also keys of more than 16 bytes, parts of
//! values, appending and compression.
#![forbid(unsafe_code)]

mod block;
mod device;
mod drive;
mod error;
pub mod fabrics;
mod fault;
pub mod fdp;
#[cfg(feature = "local")]
mod flash;
mod json;
mod kv;
#[cfg(feature = "local")]
mod local;
mod machine;
mod name;
mod open;
mod queue;
pub mod registry;
#[cfg(feature = "local")]
mod serve;
mod share;
mod size;

pub use block::Block;
pub use device::{Device, Identity, NamespaceEntry, Transport};
pub use error::{Error, Result};
pub use fault::FaultsAdded;
#[cfg(feature = "local")]
pub use flash::ftl_geometry;
pub use kv::{
    BatchOp, DialectLimits, KeyIter, Kv, KvCompletion, KvCompletions, KvLimits, KvOp, KvQueue, KvUsage,
    Retrieved, scan,
};
#[cfg(feature = "local")]
pub use local::{CheckedFlash, CheckedSlot, check};
pub use machine::{SYSTEM_ROOT_VARIABLE, system_root};
pub use name::{DeviceName, MemoryDevice, NAME_SYNTAX, TcpName};
pub use open::{OpenOptions, open, open_function};
pub use queue::{BlockOp, BlockQueue};
pub use registry::Registry;
#[cfg(feature = "local")]
pub use serve::{
    AnaState, ListenOptions, ServeOptions, ServedSubsystem, TCP_THREADS_MAX, TcpServeOptions, serve,
    serve_tcp,
};
pub use size::{NotASize, Size};

pub use unvme_bus::{
    BarLayout, BusError, Clock, Dma, DmaAccess, EventFd, Function, NotAnAddress, Pages, PciAddress, Region,
    Window,
};
// Not for programs: the crates above take locks and number series as those below do.
#[doc(hidden)]
pub use unvme_bus::{lock, random};
pub use unvme_driver::{
    Completion, CompletionMode, Completions, Controller, ControllerOptions, DEPTH_MAX, DataPointers, DmaBuf,
    DmaPool, Error as DriverError, Event, EventKind, FeatureValue, KvBatchOp, KvCommand, KvKey, KvNamespace,
    KvOptions, KvVerdict, LogRequest, Namespace, Payload, Queue, QueueOptions, Rejected, StoreCondition,
    StoreOptions, VendorCommands, WriteOptions,
};
pub use unvme_spec::nvm::{AccessFlags, BlockRange};
pub use unvme_spec::{Cqe, Lba, Nsid, Sqe, Status};
#[cfg(feature = "local")]
pub use unvme_ssd::{CheckedNamespace, Damage, FlashDamage};

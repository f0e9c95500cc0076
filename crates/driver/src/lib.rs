//! The host side of NVMe: bring-up, queues, commands.
//!
//! A [`Controller`] is opened on any [`unvme_bus::Function`]; threads get [`Queue`]s of their own from it and
//! use three verbs: `submit` writes an entry, `ring` tells the device about all entries written since, `poll`
//! returns what has completed. A buffer travels with its command and comes back with the completion, so
//! nobody can touch memory the device still writes.
//!
//! | noun | concept |
//! |---|---|
//! | [`Controller`] | bring-up, reset, events, and the admin commands, typed |
//! | [`Queue`], [`Ring`] | a queue pair, and what goes in and out of it |
//! | [`KernelQueue`] | the same beside the kernel's driver: passthrough, and the block layer |
//! | [`TcpTarget`], [`TcpQueue`], [`discover()`] | the same over the network: NVMe/TCP |
//! | [`Namespace`] | checked commands of the NVM Command Set, writes with a placement among them |
//! | [`FdpConfiguration`] | Flexible Data Placement: what a controller offers, records and counts |
//! | [`KvNamespace`] | checked commands of the Key Value Command Set and of Samsung's key-value SSDs |
//! | [`Sharing`], [`SharedController`] | one drive for several processes |
//! | [`Event`] | what the controller reports on its own |
//!
//! ```
//! use std::time::Duration;
//! use unvme_driver::{Controller, ControllerOptions, Namespace, Payload, QueueOptions};
//! use unvme_spec::{Lba, Nsid, nvm::{AccessFlags, BlockRange}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let store = Box::new(unvme_ssd::MemoryStore::new(4 << 20)?);
//! # let function = unvme_ssd::Ssd::new(unvme_ssd::SsdConfig::block(4 << 20, 4096), store)?;
//! let controller = Controller::open(function, ControllerOptions::default())?;
//! let namespace = Namespace::open(&controller, Nsid(1))?;
//! let mut queue = controller.create_queue(&QueueOptions::default())?;
//!
//! let read = namespace.read(BlockRange::new(Lba(0), 1), AccessFlags::default())?;
//! queue.submit(read, Some(Payload::whole(controller.alloc(4096)?)), 42)?;
//! queue.ring()?;
//! while queue.outstanding() > 0 {
//!     queue.wait(Duration::from_secs(1))?;
//!     for completion in queue.poll(32) {
//!         assert_eq!(completion.token, 42);
//!         assert!(completion.status.is_success());
//!         assert_eq!(completion.buf.expect("it went with the command").to_vec(), [0; 4096]);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing is allocated, locked or looked up between submit and completion, no clock is read and, on a ring,
//! no system call made; the driver starts no thread.
//!
//! What it does not implement: metadata and protection information, memory page sizes other than 4 KiB,
//! weighted round robin over the network, controller memory buffers, host memory buffers, SGLs of more than
//! one data block, Fabrics other than TCP, and discovery that goes on (what a discovery service reports of
//! changes).
#![deny(unsafe_code)]

mod admin;
mod arbitration;
mod base;
mod bring_up;
mod claim;
mod claims;
mod command;
mod controller;
mod error;
mod event;
mod fabrics;
mod fdp;
mod kernel;
mod kv;
mod limits;
mod mailbox;
mod namespace;
mod numbers;
mod options;
mod pcie;
mod queue;
mod repeat;
mod share;
mod tcp;
mod wait;
mod watch;

pub use admin::{FeatureValue, LogRequest};
pub use arbitration::WEIGHTS;
pub use claim::ClaimKind;
pub use command::{Completion, KvCommand, Payload, Rejected};
pub use controller::{Controller, Keeper};
pub use error::Error;
pub use event::{Event, EventKind};
pub use fabrics::{DiscoveryEntry, TcpQueue, discover};
pub use fdp::{FdpConfiguration, FdpEventSource};
pub use kernel::KernelQueue;
pub use kv::{
    KvBatchOp, KvKey, KvNamespace, KvOptions, KvVerdict, StoreCondition, StoreOptions, VendorCommands,
};
pub use namespace::{DSM_RANGES_MAX, Namespace, WriteOptions};
pub use options::{CompletionMode, ControllerOptions, DEPTH_MAX, DataPointers, QueueOptions};
pub use pcie::{Advancer, Ring};
pub use queue::{Completions, Queue};
pub use share::{SHARES_MAX, SharedController, Sharing};
pub use tcp::{HostIdentity, Reconnect, TcpDigests, TcpTarget};
pub use unvme_bus::{DmaBuf, DmaPool, PoolId};

/// The `target` of those events of `tracing` that are for whoever runs the program, whatever it logs: that it
/// waits, and for what. Their message is the whole of it.
pub const NOTICES: &str = "unvme::notice";

/// For the fuzz target of the same name; no part of the interface.
#[doc(hidden)]
pub use tcp::fuzzing::tcp_host;

//! The host side of NVMe: bring-up, queues, commands.
//!
//! A [`Controller`] is opened on any [`unvme_bus::Function`]; threads get [`Queue`]s of their own from it and use
//! three verbs: `submit` writes an entry, `ring` tells the device about all entries written since, `poll` returns what
//! has completed. A buffer travels with its command and comes back with the completion, so nobody can touch memory the
//! device still writes.
//!
//! | noun | concept |
//! |---|---|
//! | [`Controller`] | bring-up, reset, events, and the admin commands, typed |
//! | [`Queue`], [`Ring`] | a queue pair, and what goes in and out of it |
//! | [`Namespace`] | checked commands of the NVM Command Set |
//! | [`Event`] | what the controller reports on its own |
//!
//! Nothing is allocated, locked or looked up between submit and completion, no clock is read and no system call made;
//! the driver starts no thread.
//!
//! What it does not implement: metadata and protection information, memory page sizes other than 4 KiB, weighted round
//! robin arbitration, controller memory buffers, host memory buffers, SGLs of more than one data block, Fabrics.
#![deny(unsafe_code)]

mod admin;
mod admin_queue;
mod controller;
mod device;
mod dptr;
mod error;
mod event;
mod lifecycle;
mod namespace;
mod pace;
mod pair;
mod pci;
mod queue;
mod ring;
mod watch;

pub use admin::{FeatureValue, LogRequest};
pub use controller::{Controller, ControllerOptions};
pub use error::Error;
pub use event::{Event, EventKind};
pub use namespace::{DSM_RANGES_MAX, Namespace};
pub use queue::{
    Completion, CompletionMode, Completions, DEPTH_MAX, DataPointers, Payload, Queue, QueueOptions, Rejected,
};
pub use ring::{Ring, RingCompletions};
pub use unvme_bus::{DmaBuf, DmaPool};

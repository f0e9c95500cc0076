//! The device side of NVMe: a virtual SSD.
//!
//! [`Ssd`] is a PCI function ([`unvme_bus::Function`]) with the registers, queues and commands of an NVMe controller.
//! It makes progress only inside [`Ssd::advance`](unvme_bus::Function::advance): in the host's own polling loop, or in
//! a server's. Nobody who drives it can tell it from a drive, and it trusts nobody who does.
//!
//! | module | concept |
//! |---|---|
//! | `ssd`, `pci` | the function: configuration space, registers, reset |
//! | `queue`, `engine` | rings and doorbells to commands, commands to completions |
//! | `doorbell` | doorbells that are written when they must not be |
//! | `dptr` | walking PRP lists and SGLs |
//! | `nvm` | the NVM command set |
//! | `admin` | the admin command set |
//! | `kv` | the Key Value command sets, and the log-structured store behind them |
//! | `namespace` | logical blocks or pairs, and where on the media they are |
//! | `media` | [`Store`]: memory, a file, nothing at all |
//!
//! What it does not implement: metadata and protection information, Copy, Zoned Namespaces, directives and
//! Flexible Data Placement, reservations, sanitize, security commands, device self-test, telemetry and the persistent
//! event log, keep alive, shadow doorbells, Host and Controller Memory Buffers, thin provisioning, several controllers in
//! one subsystem, NVMe-MI, SR-IOV, weighted round robin arbitration, bit buckets in SGLs. There is one power state.
//!
//! Of Key Value, reservations are missing. List returns at most 16 MiB of keys at a time. Values are compressed when the
//! vendor's Store asks for it and never by the standard one; the vendor's Retrieve always decompresses them. The vendor's
//! statuses are of type 3, which generic tools take for path errors.
//!
//! Deallocated blocks are zeroed; their space goes back to the file system when a namespace is formatted or deleted. No
//! limit is put on the size of a Dataset Management command: a huge one is executed whole before its queue goes on. The
//! ring of a queue has to lie within one mapping of host memory. Interrupts go to eventfds: masks in the MSI-X table are
//! kept and not obeyed, whoever listens obeys them.
#![forbid(unsafe_code)]

mod admin;
mod config;
mod doorbell;
mod dptr;
mod engine;
mod error;
mod interrupts;
mod kv;
mod media;
mod namespace;
mod nvm;
mod pci;
mod queue;
mod smart;
mod ssd;

pub use admin::{FIRMWARE_IMAGE_BYTES_MAX, firmware_image};
pub use config::{
    CHUNK_BYTES, IO_QUEUES_MAX, NAMESPACES_MAX, NamespaceConfig, NamespaceKind, QUEUE_ENTRIES_MAX, SsdConfig,
};
pub use error::SsdError;
pub use kv::{Damage, KvStats};
pub use media::{FileStore, MemoryStore, NullStore, Store};
pub use ssd::{CheckedNamespace, Ssd};

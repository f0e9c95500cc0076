//! The device side of NVMe: a virtual SSD.
//!
//! [`Ssd`] is a PCI function ([`unvme_bus::Function`]) with the registers, queues and commands of an NVMe
//! controller. It makes progress only inside [`Ssd::advance`](unvme_bus::Function::advance): in the host's
//! own polling loop, or in a server's. Nobody who drives it can tell it from a drive, and it trusts nobody
//! who does.
//!
//! | module | concept |
//! |---|---|
//! | `limits`, `config` | how much there is of each; what a device is to be |
//! | `controllers`, `association` | which controllers a device has, and whose they are |
//! | `store` | [`Store`]: memory, a file, tags of pages, nothing at all |
//! | `flash` | data out of place, below the layer of [`unvme_flash`] |
//! | `media` | either of them, by what commands name |
//! | `kv` | the log-structured store behind pairs |
//! | `fault` | faults by script: rules that say which commands fail, and how |
//! | `fdp` | Flexible Data Placement: who places what where, and what becomes of it |
//! | `features`, `events`, `identity` | what else a controller keeps |
//! | `error_log`, `firmware`, `smart` | what else its subsystem keeps |
//! | `namespace` | logical blocks or pairs, and where on the media they are |
//! | `saved` | what of all that survives the process |
//! | `queue`, `interrupts` | rings and doorbells, vectors |
//! | `arbiter` | classes of queues, and how far their round is |
//! | `held` | completions that wait for their time |
//! | `dptr` | walking PRP lists and SGLs |
//! | `ssd`, `pci` | the function: configuration space, registers, reset |
//! | `subsystem` | what several controllers of a device share, and which there are |
//! | `turns` | which queue is served next |
//! | `engine` | queues to commands, commands to completions |
//! | `admin`, `nvm`, `pairs` | the command sets: admin, NVM, Key Value |
//! | `placement`, `inject` | placement looked after, faults injected |
//! | `due`, `removal` | when a command is answered; the end of a device |
//! | [`fabrics`] | the device over a network, without the network |
//! | [`tcp`] | NVMe/TCP: PDUs to commands and back, without a socket |
//!
//! A module needs none that is above it: `cargo xtask floors` has their order.
//!
//! What it does not implement: metadata and protection information, Copy, Zoned Namespaces, streams,
//! reservations, sanitize, security commands, device self-test, telemetry and the persistent event log, keep
//! alive at a bus, shadow doorbells, Host and Controller Memory Buffers, thin provisioning, several endurance
//! groups, NVM Sets, NVMe-MI, SR-IOV, bit buckets in SGLs. There is one
//! power state. Of flash, what [`unvme_flash`] does not model.
//!
//! Of Key Value, reservations are missing. List returns at most 16 MiB of keys at a time. Values are
//! compressed when the vendor's Store asks for it and never by the standard one; the vendor's Retrieve always
//! decompresses them. The vendor's statuses are of type 3, which generic tools take for path errors.
//!
//! Without flash, deallocated blocks are zeroed; their space goes back to the file system when a namespace is
//! formatted or deleted. No limit is put on the size of a Dataset Management command: a huge one is executed
//! whole before its queue goes on. The ring of a queue has to lie within one mapping of host memory.
//! Interrupts go to eventfds: masks in the MSI-X table are kept and not obeyed, whoever listens obeys them.
#![forbid(unsafe_code)]

mod admin;
mod arbiter;
mod association;
mod claims;
mod config;
mod controllers;
mod dptr;
mod due;
mod engine;
mod error;
mod error_log;
mod events;
pub mod fabrics;
mod fault;
mod fdp;
mod features;
mod firmware;
mod flash;
mod held;
mod hex;
mod identity;
mod inject;
mod interrupts;
mod kv;
mod limits;
mod media;
mod namespace;
mod nvm;
mod pairs;
mod pci;
mod placement;
mod queue;
mod removal;
mod reply;
mod saved;
mod smart;
mod ssd;
mod store;
mod subsystem;
pub mod tcp;
mod turns;

pub use config::{NamespaceConfig, NamespaceKind, SsdConfig};
pub use controllers::CONTROLLERS_MAX;
pub use error::SsdError;
pub use fault::{
    CorruptData, Corruption, FAULT_DELAY_MAX, FAULT_FLIPS_MAX, FAULT_KEY_BYTES_MAX, FAULT_TEXT_BYTES_MAX,
    FAULTS_MAX, FaultAction, FaultDelay, FaultError, FaultKey, FaultMatch, FaultOpcode, FaultReport,
    FaultRule, Flips, LbaRange, WrongCompletion, parse_fault_event, parse_fault_hex, parse_fault_key,
    parse_fault_status, parse_faults,
};
pub use firmware::{FIRMWARE_IMAGE_BYTES_MAX, firmware_image};
pub use flash::{FlashConfig, FlashDamage, FlashGeometry, FlashStats, UNIT_BYTES_MIN};
pub use kv::{Damage, KvStats};
pub use limits::{IO_QUEUES_MAX, NAMESPACES_MAX, QUEUE_ENTRIES_MAX};
pub use namespace::CheckedBlocks;
pub use ssd::{CheckedNamespace, Ssd};
pub use store::{CHUNK_BYTES, FileStore, MemoryStore, Store};

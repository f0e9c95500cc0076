//! NVMe on the wire: registers, queue entries, commands, Identify, features and log pages.
//!
//! Layouts, codes and the specification's names, and nothing else: no memory, no sockets, no time, no policy.
//! Both the host side and the device side use this crate, so its tests compare against literal bytes that
//! neither side produced.
//!
//! Section numbers refer to the NVM Express Base Specification 2.1 and the NVM Command Set Specification 1.1
//! unless another document is named.
//!
//! All layouts are little-endian; the structs hold native integers, so a big-endian target does not compile.
//!
//! What it does not implement: metadata and end-to-end protection information, Zoned Namespaces,
//! streams, reservations, sanitize, security send and receive, virtualization, telemetry.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the wire structs hold native integers: a little-endian target is required");

#[macro_use]
mod codes;
#[macro_use]
mod layout;

pub mod admin;
pub mod auth;
pub mod claim;
pub mod command;
pub mod directive;
pub mod fabrics;
pub mod fault;
pub mod fdp;
pub mod feature;
pub mod identify;
pub mod kv;
pub mod log_page;
pub mod nvm;
pub mod queue;
pub mod regs;
pub mod samsung_kv;
pub mod samsung_log;
pub mod sgl;
pub mod status;
pub mod tcp;

mod ids;
pub mod prp;

pub use ids::{Cid, Lba, Nsid, Qid};
pub use queue::{Cqe, DataPointerKind, Fuse, Sqe};
pub use status::Status;

//! Setting up the machine's drives for user space, and giving them back.
//!
//! A drive belongs to one driver of the kernel at a time: `nvme`, which makes block devices of it, or
//! `vfio-pci` or `uio_pci_generic`, which hand it to a process. Changing that takes the drive away from
//! whoever uses it, so most of what is here looks for who does. The planning functions decide, and a [`Plan`]
//! is data: it can be shown ([`Step::commands`]) or done ([`Plan::execute`]).
//!
//! | file | concept |
//! |---|---|
//! | `system` | [`System`]: the trees of the kernel, or a copy of them |
//! | `drive` | [`Drive`]: an NVMe function, and what the kernel's driver makes of it |
//! | `evidence`, `usage` | [`Evidence`]: who uses a drive, [`Use`]: one reason to leave it alone |
//! | `mounts`, `openers`, `signature` | evidence: mounts and swap areas, open files, superblocks |
//! | `plan`, `step`, `run` | what to do, what that is as commands, doing and undoing it |
//! | `status` | [`Status`]: what is set up, and what a user is missing |
//! | `huge_pages`, `kernel_module`, `account` | huge pages, modules of the kernel, users and groups |
//!
//! Nothing of this outlives a reboot, except a raised limit of locked memory.
//!
//! What it does not implement: machines without `/sys`, drives that are not on a PCI bus.
#![forbid(unsafe_code)]

mod account;
mod drive;
mod evidence;
mod huge_pages;
mod kernel_module;
mod mounts;
mod openers;
mod plan;
mod run;
mod signature;
mod status;
mod step;
mod system;
mod usage;

pub use account::Owner;
pub use drive::{Drive, KernelNamespace, drives};
pub use evidence::{Evidence, Examined};
pub use huge_pages::{HUGE_PAGE_BYTES, HugePages, huge_pages};
pub use plan::{
    ConfigOptions, Decision, Outcome, Plan, ResetOptions, UIO_HUGE_PAGES, plan_config, plan_reset,
};
pub use status::{DriveStatus, Missing, Status, status};
pub use step::{Driver, HugePageCount, Step};
pub use system::System;
pub use usage::{How, Use};

#[cfg(test)]
mod tests;

//! The device over a network, without the network: subsystems, ports, associations and their queues (Base
//! 3.3.2, 6; NVMe/TCP is `tcp`'s).
//!
//! A [`Target`] is what a server offers. A [`FabricsQueue`] is one connection's: the connection hands it
//! command capsules, the queue runs them on a controller of the device, and the connection sends what comes
//! back. Nobody else touches a queue.
//!
//! | module | concept |
//! |---|---|
//! | `target` | what is offered: subsystems, ports, referrals |
//! | `access` | which hosts may enter, and with which keys |
//! | `refusals` | telling of hosts that were refused |
//! | `port` | where the target is reached, and the ANA state of its subsystems there |
//! | `subsystem` | a device by the name it is offered under |
//! | `guest`, `places` | hosts as they are told apart, and who of them has a controller |
//! | `queue`, `begin`, `progress` | one queue of one association: what it is, capsules in, completions out |
//! | `connect`, `commands` | Fabrics commands, which no controller of a device executes |
//! | `desk` | whose proof is worked on next |
//! | `device` | a queue of a controller of a device: its rings |
//! | `discovery` | the discovery controller |
//! | `slots` | commands that have begun |
//! | `transfer` | where a command's data is, how many bytes and in which direction |
//! | `memory`, `staging` | memory for what hosts do, its bound, and each host's share |
//! | `holds` | how long hosts have kept memory |
//!
//! What it does not implement: SGLs of more than one descriptor, static controllers, several ANA groups,
//! reservations, Centralized Discovery.

mod access;
mod begin;
mod commands;
mod connect;
mod desk;
mod device;
mod discovery;
mod guest;
mod holds;
mod memory;
mod places;
mod port;
mod progress;
mod queue;
mod refusals;
mod slots;
mod staging;
mod subsystem;
mod target;
mod transfer;

pub use crate::association::{AnaState, EndReason, PortId};
pub use access::{Access, HostAccess};
pub use guest::origin;
pub use memory::MemoryBudget;
pub use port::{AddressFamily, Peer, PortOptions, Referral, TlsPeer};
pub(crate) use queue::TRANSPORT_BYTES_PER_ENTRY;
pub use queue::{Begun, DataWanted, FabricsQueue, Fatal, Finished, QueueState, SlotId, Staging};
pub use refusals::{Refusals, Refused};
pub use target::{DEFAULT_GROUPS, Target, TargetOptions};

//! A [`Function`](crate::Function) across a UNIX socket: the vfio-user protocol, version 0.1.
//!
//! Messages set things up (registers, configuration space, interrupts, memory); then both sides work on
//! shared memory. Host memory reaches the device as descriptors in DMA_MAP, [windows](crate::Window) of a BAR
//! reach the host as a descriptor in DEVICE_GET_REGION_INFO, interrupts are eventfds.
//!
//! | type | concept |
//! |---|---|
//! | [`Server`] | a function on a socket file for one client at a time, or one for each of several |
//! | [`Session`] | one client's connection without the socket: bytes and descriptors in, bytes out |
//! | [`Client`] | a function that somebody else serves |
//!
//! Clients known to work are QEMU's `vfio-user-pci` and rust-vmm's `vfio_user`. Their habits, and those of
//! SPDK's initiator as its sources show them, are noted where the code respects them.
//!
//! Each side checks what the other sends: a wrong message is an error reply or the end of the connection.
//! Memory this crate shares is sealed against shrinking ([`Region::shared`](crate::Region::shared)); memory
//! of others is taken as it comes, because hugetlbfs files and most other hosts' memory cannot be sealed, and
//! a device without mapped doorbells is of little use. When its owner takes it away, the access that finds
//! that out finds zeroes ([`Region::is_lost`](crate::Region::is_lost)), and a server ends that client's
//! connection. A client owns the eventfds it assigns: one that makes its eventfd blocking and fills it in the
//! instant between our look at it and our write holds up the thread that signals. None of this is a way to
//! read or write anything else.
//!
//! Not implemented: DMA by message on the server's side (memory without a descriptor is accepted, and not
//! reachable), INTx and MSI, migration, dirty page logging, ioeventfd-style region descriptors.

mod bars;
mod client;
mod ranges;
mod request;
mod server;
mod session;
mod socket;
mod version;
pub(crate) mod wire;

pub use client::Client;
pub use server::{CLIENTS_MAX, Driven, MakeFunction, Server};
pub use session::{Reply, Session};
pub use wire::{DATA_BYTES_MAX, MESSAGE_BYTES_MAX};

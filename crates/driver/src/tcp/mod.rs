//! Devices over the network: NVMe/TCP.
//!
//! A [`TcpDevice`] is an association with a controller: an admin queue, shared by all, and I/O queues, one connection each.
//! When one of the connections breaks the target ends all of them, and so does the device: the association is made anew, and
//! each queue connects again when its owner looks at it. No thread is started: whoever polls, submits, waits or keeps alive
//! does that work.
//!
//! | module | concept |
//! |---|---|
//! | [`target`] | where to connect to, and as whom |
//! | `connect`, `authenticate`, `bring_up` | a connection, until its queue takes commands; an association |
//! | `device`, `admin` | what all users of an association share; losing it and getting it back |
//! | `queue` | an I/O queue, and what is done when its connection breaks |
//! | `link` | mechanics of one queue: `slots`, `outbox`, `inbox` and the PDUs in `pdu` |
//! | `discover` | what a discovery service knows |
//! | `fuzzing` | what a target sends, without a target |

mod admin;
mod authenticate;
mod bring_up;
mod connect;
mod device;
mod discover;
pub(crate) mod fuzzing;
mod inbox;
mod link;
mod outbox;
mod pdu;
mod queue;
mod sleeper;
mod slots;
mod target;

pub(crate) use device::TcpDevice;
pub use discover::{DiscoveryEntry, discover};
pub use queue::{TcpCompletions, TcpQueue};
pub use target::{HostIdentity, Reconnect, TcpDigests, TcpTarget};

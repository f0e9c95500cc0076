//! NVMe/TCP: PDUs, the sockets they travel through, and the slots of a connection's commands.
//!
//! | module | concept |
//! |---|---|
//! | [`target`] | where to connect to, and as whom |
//! | `dial` | a socket to a target, and what the two sides agree on |
//! | `link` | mechanics of one queue: `slots`, `outbox`, `inbox` and the PDUs in `pdu` |
//! | `sleeper` | what sleeps until a connection has something |
//! | `fuzzing` | what a target sends, without a target |

mod dial;
pub(crate) mod fuzzing;
mod inbox;
mod link;
mod outbox;
mod pdu;
mod sleeper;
mod slots;
mod target;

pub(crate) use dial::{dial, initialize};
pub(crate) use link::{Broken, Link, LinkConfig, Manner};
pub(crate) use pdu::Agreement;
pub(crate) use sleeper::Sleeper;
pub use target::{HostIdentity, Reconnect, TcpDigests, TcpTarget};

//! Controllers on the network: an association with one, made, kept and made anew.
//!
//! A [`TcpDevice`] is an association with a controller: an admin queue, shared by all, and I/O queues, one
//! connection each. When one of the connections breaks the target ends all of them, and so does the device:
//! the association is made anew, and each queue connects again when its owner looks at it. No thread is
//! started: whoever polls, submits, waits or keeps alive does that work.
//!
//! | module | concept |
//! |---|---|
//! | `connect`, `authenticate` | a connection, until its queue takes commands |
//! | `associate` | an association, until queues can be connected |
//! | `device`, `admin` | what all users of an association share; losing it and getting it back |
//! | `queue` | an I/O queue, and what is done when its connection breaks |
//! | `discover` | what a discovery service knows |

mod admin;
mod associate;
mod authenticate;
mod connect;
mod device;
mod discover;
mod queue;

pub(crate) use device::TcpDevice;
pub use discover::{DiscoveryEntry, discover};
pub use queue::TcpQueue;

//! Asking from another process: one has the file system mounted and serves it, others come to it.
//!
//! | module | concept |
//! |---|---|
//! | `wire` | what goes between the two, as bytes; [`Identity`] |
//! | `packet` | messages and descriptors over a socket |
//! | `slot` | shared memory that calls go through |
//! | `server`, `worker` | [`Server`]: sockets of clients, and threads that do what is asked |
//! | `place` | where a server is found |
//! | `hold` | [`Hold`]: who may serve there, or have the file system to itself |
//! | `identity` | whether clients are who they say they are |
//! | `link`, `client` | [`Client`]: one connection; who asks, over `fork`, `execve` and the end of a server |
//!
//! A client is trusted with its own process alone, a server with all of its clients: it is of the same user,
//! or root. A client that ends, however it ends, is a process that ended: its files are closed and its locks
//! given back when the kernel closes its socket.

mod client;
mod hold;
mod identity;
mod link;
mod packet;
mod place;
mod server;
mod slot;
mod wire;
mod worker;

pub use client::{Client, Forked, Starter, Watched};
pub use hold::Hold;
pub use identity::has_ended;
pub use place::socket_path;
pub use server::{Reserved, Server, ServerOptions, Stopper};
pub use wire::{Identity, is_answer, is_call};

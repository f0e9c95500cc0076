//! Asking from another process: one has the file system mounted and serves it, others come to it.
//!
//! | module | concept |
//! |---|---|
//! | `wire` | what goes between the two, as bytes; [`Identity`] |
//! | `packet` | messages and descriptors over a socket |
//! | `slot` | shared memory that calls go through |
//! | `server`, `worker` | [`Server`], and the threads that do what is asked |
//! | `accept` | the thread that accepts clients and their messages |
//! | `realm` | the control page and the threads that the clients of one user have |
//! | `long` | calls that take long, and their threads |
//! | `place` | where a server is found |
//! | `hold` | [`Hold`]: who may serve there, or have the file system to itself |
//! | `finish` | ending a server without clients |
//! | `identity` | whether clients are who they say they are |
//! | `process` | whether the server's process has ended, as far as a client can see it |
//! | `link`, `client` | [`Client`]: one connection; who asks, over `fork`, `execve` and the end of a server |
//!
//! A client is trusted with its own process alone, a server with all of its clients. Whose process a client
//! is the kernel says: each packet has its sender's credentials with it (`SCM_CREDENTIALS`), and a connection
//! answers for the user that it was made for. A process that has given up a user for good gets another
//! connection, by [`Client::change_user`]: the server closes the one before, also where other processes
//! still have its memory or its socket. The pages of the cache are shown to those alone who may read the
//! device itself: root, and the user who has the file system mounted. A client that ends, however it ends,
//! is a process that ended: its files are closed and its locks given back when the kernel closes its socket.

mod accept;
mod client;
mod finish;
mod hold;
mod identity;
mod link;
mod long;
mod packet;
mod place;
mod process;
mod realm;
mod server;
mod slot;
mod wire;
mod worker;

pub use client::{Client, Forked, Starter, Watched};
pub use finish::end_idle_server;
pub use hold::Hold;
pub use identity::{has_ended, is_root_within_reach, stated_user};
pub use place::{alone_socket, socket_path};
pub use server::{Reserved, Server, ServerOptions, Stopper};
pub use wire::{Identity, is_answer, is_call};

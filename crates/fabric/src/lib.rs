//! What both ends of NVMe over Fabrics share: byte streams (TCP, TLS 1.3), digests, keys and authentication.
//!
//! Neither a host nor a controller: what the bytes mean is theirs.
//!
//! | module | concept |
//! |---|---|
//! | [`stream`] | [`Stream`]: a connection, bare or under TLS, from and into shared memory |
//! | [`tls`] | [`Acceptor`]: the target's side of TLS 1.3 with pre-shared keys |
//! | [`digest`] | [`Digest`]: CRC32C of headers and data |
//! | [`secret`] | [`Secret`]: what in-band authentication proves, `DHHC-1:..` |
//! | [`psk`] | [`Psk`] and [`TlsPsk`]: keys of TLS, `NVMeTLSkey-1:..` |
//! | [`chap`] | [`chap::Host`] and [`chap::Controller`]: DH-HMAC-CHAP, without sockets |
//!
//! What it does not implement: keys with an identity of version 0 as nvme-cli 2.13 derives them, TLS keys
//! made by authentication (secure channel concatenation), transports other than TCP.
#![deny(unsafe_code)]

pub mod chap;
pub mod digest;
pub mod psk;
pub mod secret;
pub mod stream;
pub mod tls;

mod error;
mod hash;
mod interchange;

pub use digest::Digest;
pub use error::FabricError;
pub use hash::Hash;
pub use psk::{Psk, PskVersion, TlsPsk};
pub use secret::Secret;
pub use stream::{Handshake, Stream};
pub use tls::{Acceptor, Claimed};

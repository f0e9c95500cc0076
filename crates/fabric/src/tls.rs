//! TLS 1.3 with a pre-shared key, as NVMe/TCP uses it (NVMe/TCP Transport 3.6.1), by OpenSSL behind the
//! feature `tls`.
//!
//! One cipher suite, the one every implementation has: TLS_AES_128_GCM_SHA256, always with an ephemeral key
//! exchange. No certificates, no tickets, no early data, no earlier version.

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod openssl;
#[cfg(feature = "tls")]
mod record;

#[cfg(not(feature = "tls"))]
pub use absent::Acceptor;
#[cfg(not(feature = "tls"))]
pub(crate) use absent::Session;
#[cfg(feature = "tls")]
pub use openssl::Acceptor;
#[cfg(feature = "tls")]
pub(crate) use openssl::Session;

/// Longest identity of a key that OpenSSL takes: the names of host and subsystem, and 10 or 55 bytes more.
pub const IDENTITY_BYTES_MAX: usize = 256;

//! TLS 1.3 with a pre-shared key, as NVMe/TCP uses it (NVMe/TCP Transport 3.6.1), by OpenSSL behind the
//! feature `tls`.
//!
//! The cipher suite is that of the key's hash function: TLS_AES_128_GCM_SHA256 for SHA-256, which every
//! implementation has, and TLS_AES_256_GCM_SHA384 for SHA-384, always with an ephemeral key exchange. No
//! certificates, no tickets, no early data, no earlier version.

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod external;
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

/// The key that a host says it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Identity of the key.
    pub identity: String,
    /// The target has such a key. That the host has it is proven by the end of the handshake alone.
    pub is_known: bool,
}

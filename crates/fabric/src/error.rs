//! What can go wrong between two ends of a fabric.

use std::io;

/// An error of a connection or of a key; never of what the bytes mean.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The operating system refused.
    #[error("{what}: {source}")]
    Os {
        /// What was attempted, with the name of the thing.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The other side did not answer in time.
    #[error("{what}: no answer within {milliseconds} ms")]
    Timeout {
        /// What was attempted.
        what: String,
        /// The limit that passed.
        milliseconds: u64,
    },
    /// A key that cannot be used. The message never has any of it.
    #[error("{kind}: {reason}")]
    Key {
        /// What it was to be, with its form.
        kind: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The other side of a TLS connection is not who it should be, or speaks another protocol.
    #[error("{what}: {reason}")]
    Tls {
        /// What was attempted.
        what: String,
        /// What the TLS library says.
        reason: String,
    },
    /// This build has no TLS.
    #[error("this build has no TLS: build with the feature `tls`, which needs OpenSSL")]
    NoTls,
}

impl FabricError {
    pub(crate) fn os(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Os { what: what.into(), source: source.into() }
    }
}

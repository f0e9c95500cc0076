//! What a host has to prove, or has proven.

use unvme_fabric::{Psk, chap};

/// Keys by which a host shows that it is who it says it is. Two are alike when the same keys are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proof {
    /// For DH-HMAC-CHAP; `None` when its name is enough.
    pub(crate) keys: Option<chap::Keys>,
    /// That of the TLS connection it has come by; `None` without TLS.
    pub(crate) tls: Option<Psk>,
}

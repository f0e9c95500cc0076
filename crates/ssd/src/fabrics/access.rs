//! Which hosts may enter a subsystem, and what they have to prove.

use unvme_fabric::{Psk, chap};

use super::port::TlsPeer;
use crate::association::Proof;

/// Who may connect to a subsystem.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// Any host.
    #[default]
    Any,
    /// These hosts; every other one is refused with Connect Invalid Host. Discovery shows the subsystem to
    /// those of them that have proven what is asked of them here.
    Hosts(Vec<HostAccess>),
}

/// A host that may enter.
#[derive(Clone, Debug, Default)]
pub struct HostAccess {
    /// Its NQN.
    pub nqn: String,
    /// What it has to prove to know before anything else (DH-HMAC-CHAP); `None` when its name is enough.
    pub keys: Option<chap::Keys>,
    /// It enters by TLS alone, with this key: whoever comes without is not it.
    pub tls: Option<Psk>,
}

impl Access {
    /// What a host that comes by `tls` has to prove, its TLS key included. Errors: why it may not enter.
    pub(super) fn terms(&self, hostnqn: &str, tls: Option<&TlsPeer>) -> Result<Proof, &'static str> {
        let key = tls.and_then(|tls| tls.key.clone());
        if matches!(self, Self::Any) {
            return Ok(Proof { keys: None, tls: key });
        }
        let Some(host) = self.host(hostnqn) else { return Err("it is not among the hosts that may enter") };
        match &host.tls {
            Some(_) if tls.is_none() => Err("it has a TLS key and has to come by TLS, which it did not"),
            Some(_) if host.tls != key => Err("it came with a TLS key that counts no more"),
            _ => Ok(Proof { keys: host.keys.clone(), tls: key }),
        }
    }

    /// True when a host that proves this much may enter.
    pub(super) fn is_met(&self, hostnqn: &str, proof: &Proof) -> bool {
        let is_met = |host: &HostAccess| {
            (host.keys.is_none() || host.keys == proof.keys) && (host.tls.is_none() || host.tls == proof.tls)
        };
        matches!(self, Self::Any) || self.host(hostnqn).is_some_and(is_met)
    }

    /// True when some host has to prove who it is.
    pub(super) fn asks_for_proof(&self) -> bool {
        match self {
            Self::Any => false,
            Self::Hosts(hosts) => hosts.iter().any(|host| host.keys.is_some()),
        }
    }

    /// What is known of a host.
    pub(super) fn host(&self, hostnqn: &str) -> Option<&HostAccess> {
        match self {
            Self::Any => None,
            Self::Hosts(hosts) => hosts.iter().find(|host| host.nqn == hostnqn),
        }
    }
}

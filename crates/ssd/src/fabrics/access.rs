//! Which hosts may enter a subsystem, and what they have to prove.

use unvme_fabric::chap;

/// Who may connect to a subsystem.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// Any host.
    #[default]
    Any,
    /// These hosts; every other one is refused with Connect Invalid Host, and discovery does not show it the
    /// subsystem.
    Hosts(Vec<HostAccess>),
}

/// A host that may enter.
#[derive(Clone, Debug, Default)]
pub struct HostAccess {
    /// Its NQN.
    pub nqn: String,
    /// What it has to prove to know before anything else (DH-HMAC-CHAP); `None` when its name is enough.
    pub keys: Option<chap::Keys>,
    /// It enters by TLS alone: it has a key, and whoever comes without is not it.
    pub requires_tls: bool,
}

impl Access {
    /// True when a host may enter.
    pub(super) fn admits(&self, hostnqn: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Hosts(_) => self.host(hostnqn).is_some(),
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

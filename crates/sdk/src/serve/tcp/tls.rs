//! Keys of the hosts that come by TLS.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use unvme_bus::lock;

use unvme_fabric::{Acceptor, FabricError, Psk, PskVersion, TlsPsk};
use unvme_spec::fabrics::DISCOVERY_NQN;
use unvme_ssd::fabrics::TlsPeer;

use super::admission::requires_tls;
use crate::fabrics::Access;
use crate::{Error, Result};

/// How hosts come in at all ports of a server.
pub(super) struct Doors(RwLock<Arc<Keyring>>);

impl Doors {
    pub(super) fn new(keyring: Keyring) -> Self {
        Self(RwLock::new(Arc::new(keyring)))
    }

    pub(super) fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&lock::read(&self.0))
    }

    /// Other keys, for those who come from now on.
    pub(super) fn set(&self, keyring: Keyring) {
        *lock::write(&self.0) = Arc::new(keyring);
    }
}

/// The TLS keys of hosts.
#[derive(Default)]
pub(super) struct Keyring {
    /// `None` where no host has a key.
    pub(super) acceptor: Option<Acceptor>,
    /// Every host has one: nobody enters without TLS.
    pub(super) requires_tls: bool,
    /// By the NQN of the host.
    pub(super) keys: HashMap<String, Psk>,
}

impl Keyring {
    /// Knows the key of each host for each subsystem of `nqns` that it may use, and for discovery.
    pub(super) fn new(access: &Access, nqns: &[&str]) -> Result<Self> {
        let failed = |e: FabricError| Error::Argument(format!("serve: TLS: {e}"));
        let mut derived: HashMap<String, TlsPsk> = HashMap::new();
        let mut keys = HashMap::new();
        for host in &access.hosts {
            let Some(psk) = &host.keys.tls else { continue };
            for nqn in nqns.iter().filter(|nqn| host.may_use(nqn)).chain(&[DISCOVERY_NQN]) {
                let versions = derive(psk, &host.nqn, nqn)?.into_iter();
                derived.extend(versions.map(|key| (key.identity().to_owned(), key)));
            }
            keys.insert(host.nqn.clone(), psk.clone());
        }
        if keys.is_empty() {
            return Ok(Self::default());
        }
        let acceptor = Acceptor::new(move |identity| derived.get(identity).cloned()).map_err(failed)?;
        Ok(Self { acceptor: Some(acceptor), requires_tls: requires_tls(access), keys })
    }

    /// Who has come by the key with an identity that this ring has.
    pub(super) fn peer_of(&self, identity: &str) -> Option<TlsPeer> {
        let peer = peer_of(identity)?;
        let key = self.keys.get(&peer.hostnqn).cloned();
        Some(TlsPeer { key, ..peer })
    }
}

/// The keys of TLS between a host and a subsystem: in all versions whose names there is room for.
fn derive(psk: &Psk, host: &str, nqn: &str) -> Result<Vec<TlsPsk>> {
    let mut keys = Vec::new();
    for version in PskVersion::ALL {
        match psk.tls(version, host, nqn) {
            Ok(key) => keys.push(key),
            Err(error) => tracing::warn!(host, nqn, ?version, %error, "TLS: left out"),
        }
    }
    if keys.is_empty() {
        return Err(Error::Argument(format!("serve: the names of {host} and {nqn} are too long for TLS")));
    }
    Ok(keys)
}

/// Who the identity of a key says has come: `NVMeVRHH HOSTNQN SUBNQN`, and more in later versions (TCP
/// Transport 3.6.1.3).
fn peer_of(identity: &str) -> Option<TlsPeer> {
    let mut words = identity.split(' ').skip(1);
    let mut name = || words.next().filter(|name| !name.is_empty()).map(str::to_owned);
    Some(TlsPeer { hostnqn: name()?, subnqn: name()?, key: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_of_a_key_says_who_has_come_and_for_what() {
        let expected = Some(TlsPeer { hostnqn: "nqn.a".into(), subnqn: "nqn.b".into(), key: None });
        assert_eq!(peer_of("NVMe0R01 nqn.a nqn.b"), expected);
        assert_eq!(
            peer_of("NVMe1R01 nqn.a nqn.b VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ"),
            expected
        );
        assert_eq!(peer_of("NVMe0R01 nqn.a"), None);
        for identity in ["", "NVMe0R01  nqn.b", "NVMe0R01 nqn.a ", "NVMe0R01"] {
            assert_eq!(peer_of(identity), None, "{identity}");
        }
    }

    /// From libnvme's tests (test/psk.c).
    const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    #[test]
    fn a_version_without_room_for_the_names_is_left_out() {
        let psk: Psk = KEY.parse().expect("a key");
        let long = |bytes: usize| format!("nqn.{}", "n".repeat(bytes - 4));
        let versions = |host: usize, nqn: usize| derive(&psk, &long(host), &long(nqn)).map(|keys| keys.len());
        assert_eq!(versions(100, 101).expect("short enough for all"), 3);
        // The derivation of the oldest has no room for both names.
        assert_eq!(versions(223, 223).expect("two fit"), 2);
    }
}

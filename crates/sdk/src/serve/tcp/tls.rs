//! Keys of the hosts that come by TLS.

use std::collections::HashMap;

use unvme_fabric::tls::IDENTITY_BYTES_MAX;
use unvme_fabric::{Acceptor, FabricError, Psk, PskVersion, TlsPsk};
use unvme_spec::fabrics::DISCOVERY_NQN;
use unvme_ssd::fabrics::TlsPeer;

use crate::fabrics::Access;
use crate::{Error, Result};

/// Bytes of an identity beside the names of host and subsystem: `NVMe0R01` and two blanks.
const IDENTITY_BESIDE_NAMES: usize = 10;

/// Knows the key of each host for each subsystem of `nqns` that it may use, and for discovery; `None` when no
/// host has one.
pub(super) fn acceptor(access: &Access, nqns: &[&str]) -> Result<Option<Acceptor>> {
    let failed = |e: FabricError| Error::Argument(format!("serve: TLS: {e}"));
    let mut keys: HashMap<String, TlsPsk> = HashMap::new();
    for host in &access.hosts {
        let Some(psk) = &host.keys.tls else { continue };
        for nqn in nqns.iter().filter(|nqn| host.may_use(nqn)).chain(&[DISCOVERY_NQN]) {
            let derived = derive(psk, &host.nqn, nqn)?;
            keys.extend(derived.into_iter().map(|key| (key.identity().to_owned(), key)));
        }
    }
    if keys.is_empty() {
        return Ok(None);
    }
    Acceptor::new(move |identity| keys.get(identity).cloned()).map(Some).map_err(failed)
}

/// The keys of TLS between a host and a subsystem: in all versions whose names there is room for.
fn derive(psk: &Psk, host: &str, nqn: &str) -> Result<Vec<TlsPsk>> {
    let mut keys = Vec::new();
    for version in PskVersion::ALL {
        match psk.tls(version, host, nqn) {
            Ok(key) if key.identity().len() <= IDENTITY_BYTES_MAX => keys.push(key),
            Ok(_) => {
                tracing::warn!(host, nqn, ?version, "TLS: the identity of the key is too long; left out")
            }
            Err(error) => tracing::warn!(host, nqn, ?version, %error, "TLS: left out"),
        }
    }
    if keys.is_empty() {
        return Err(Error::Argument(format!(
            "serve: the names of {host} and {nqn} are too long for TLS: together they can have {} bytes",
            IDENTITY_BYTES_MAX - IDENTITY_BESIDE_NAMES
        )));
    }
    Ok(keys)
}

/// Who the identity of a key says has come: `NVMeVRHH HOSTNQN SUBNQN`, and more in later versions (TCP
/// Transport 3.6.1.3).
pub(super) fn peer_of(identity: &str) -> Option<TlsPeer> {
    let mut words = identity.split(' ').skip(1);
    let mut name = || words.next().filter(|name| !name.is_empty()).map(str::to_owned);
    Some(TlsPeer { hostnqn: name()?, subnqn: name()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_of_a_key_says_who_has_come_and_for_what() {
        let expected = Some(TlsPeer { hostnqn: "nqn.a".into(), subnqn: "nqn.b".into() });
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
    fn a_version_without_room_for_the_names_is_left_out_and_a_key_without_any_is_refused() {
        let psk: Psk = KEY.parse().expect("a key");
        let long = |bytes: usize| format!("nqn.{}", "n".repeat(bytes - 4));
        let versions = |host: usize, nqn: usize| derive(&psk, &long(host), &long(nqn)).map(|keys| keys.len());
        assert_eq!(versions(100, 101).expect("short enough for all"), 3);
        // The digest of the newer versions does not fit.
        assert_eq!(versions(100, 120).expect("one fits"), 1);
        let refused = versions(223, 223).expect_err("none fits").to_string();
        assert!(refused.contains("nqn.nnn") && refused.contains("246 bytes"), "{refused}");
    }
}

//! Who may enter.

use std::net::IpAddr;

use unvme_fabric::chap;
use unvme_ssd::fabrics::{Access as Admitted, HostAccess};

use crate::fabrics::{Access, is_loopback};
use crate::{Error, Result};

/// Refuses to offer devices that anybody on the network could write.
pub(super) fn check(access: &Access, address: IpAddr) -> Result<()> {
    if !access.says_nothing() || is_loopback(address) {
        return Ok(());
    }
    Err(Error::Argument(format!(
        "serve: {address} is reached from other machines, and anybody there could write the devices; name the hosts that may \
         (--allow-host NQN, or --access FILE with their keys), or say --allow-any-host"
    )))
}

/// Refuses rules for hosts that nobody would be held to.
pub(super) fn check_hosts(access: &Access) -> Result<()> {
    match access.hosts.first() {
        Some(host) if access.any_host => Err(Error::Argument(format!(
            "serve: any host may enter, so what is said of {} would count for nothing; name the hosts, or let all of them in",
            host.nqn
        ))),
        _ => Ok(()),
    }
}

/// Refuses subsystems in the access file that are not served: most of them are mistyped, and the host would
/// be kept out without a word.
pub(super) fn check_subsystems(access: &Access, served: &[&str]) -> Result<()> {
    let named =
        access.hosts.iter().flat_map(|host| host.subsystems.iter().flatten().map(move |nqn| (host, nqn)));
    for (host, nqn) in named {
        if !served.contains(&nqn.as_str()) {
            return Err(Error::Argument(format!(
                "serve: {} may use the subsystem {nqn}, which is not served; served are {}",
                host.nqn,
                served.join(", ")
            )));
        }
    }
    Ok(())
}

/// True when every host that may enter has a TLS key: then nobody enters without.
pub(super) fn requires_tls(access: &Access) -> bool {
    !access.says_nothing() && !access.any_host && access.hosts.iter().all(|host| host.keys.tls.is_some())
}

/// Who may enter one subsystem.
pub(super) fn access_of(access: &Access, nqn: &str) -> Admitted {
    if access.any_host || access.says_nothing() {
        return Admitted::Any;
    }
    let hosts = access.hosts.iter().filter(|host| host.may_use(nqn));
    let admitted = hosts.map(|host| HostAccess {
        nqn: host.nqn.clone(),
        keys: host
            .keys
            .host
            .clone()
            .map(|own| chap::Keys { host: own, controller: host.keys.controller.clone() }),
        requires_tls: host.keys.tls.is_some(),
    });
    Admitted::Hosts(admitted.collect())
}

//! Who may enter.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use unvme_bus::{EventFd, lock};
use unvme_fabric::chap;
use unvme_ssd::fabrics::{Access as Admitted, HostAccess, Target};

use super::tls::{Doors, Keyring};
use crate::fabrics::{Access, is_loopback};
use crate::{Error, Result};

/// Changes who may enter a server that runs. Clones are for the same server.
#[derive(Clone, Debug)]
pub struct AccessUpdates(Arc<Update>);

#[derive(Debug)]
struct Update {
    next: Mutex<Option<Access>>,
    news: EventFd,
}

impl AccessUpdates {
    /// For the server that gets it in [`super::TcpServeOptions::access_updates`]. Errors: [`Error::Driver`]
    /// when the system has no descriptor left.
    pub fn new() -> Result<Self> {
        let news = EventFd::new().map_err(|e| Error::driver("serve", unvme_driver::Error::Bus(e)))?;
        Ok(Self(Arc::new(Update { next: Mutex::default(), news })))
    }

    /// Another set of rules, soon: hosts that they would not let in are disconnected, the others notice
    /// nothing. Rules that make no sense change nothing. Either is logged.
    pub fn set(&self, access: Access) {
        *lock(&self.0.next) = Some(access);
        self.0.news.signal();
    }

    pub(super) fn news(&self) -> &EventFd {
        &self.0.news
    }

    pub(super) fn take(&self) -> Option<Access> {
        self.0.news.drain();
        lock(&self.0.next).take()
    }
}

/// What the rules of a server depend on and apply to.
pub(super) struct Admission<'a> {
    pub(super) target: &'a Target,
    pub(super) doors: &'a Doors,
    /// Where it listens.
    pub(super) addresses: Vec<IpAddr>,
    /// NQNs of the subsystems that it was started with.
    pub(super) nqns: Vec<&'a str>,
}

impl Admission<'_> {
    /// Lets in whom `access` lets in, and nobody else. Errors: what makes no sense; then nothing has changed.
    pub(super) fn change(&self, access: &Access) -> Result<()> {
        check_hosts(access)?;
        self.addresses.iter().try_for_each(|address| check(access, *address))?;
        check_subsystems(access, &self.nqns)?;
        let keyring = Keyring::new(access, &self.nqns)?;
        self.doors.set(keyring);
        for nqn in &self.nqns {
            // One that is served no more has no rules.
            self.target.set_access(nqn, access_of(access, nqn));
        }
        self.target.set_secure(requires_tls(access));
        Ok(())
    }

    /// The same for rules that were read again, which is logged either way.
    pub(super) fn update(&self, access: &Access) {
        match self.change(access) {
            Ok(()) => tracing::warn!(hosts = access.hosts.len(), "who may enter has been read again"),
            Err(error) => tracing::error!("who may enter stays as it was: {error}"),
        }
    }
}

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
        tls: host.keys.tls.clone(),
    });
    Admitted::Hosts(admitted.collect())
}

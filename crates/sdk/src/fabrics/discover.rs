//! Asking discovery services, and those they refer to.

use std::collections::VecDeque;

use unvme_driver::DiscoveryEntry;
use unvme_spec::fabrics::{subtype, trtype};

use super::connect::discovery_at;
use super::{Endpoint, PORT_DEFAULT};
use crate::name::TcpName;
use crate::{Error, Registry, Result};

/// Discovery services that are asked in one go: referrals can go round in circles, or on for ever.
const SERVICES_MAX: usize = 32;

/// A subsystem, and who told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// The discovery service.
    pub service: Endpoint,
    /// What it said.
    pub entry: DiscoveryEntry,
}

impl Discovered {
    /// Where it is, for what is reached by TCP at an address that can be one.
    pub fn endpoint(&self) -> Option<Endpoint> {
        let port = match self.entry.service.as_str() {
            "" => PORT_DEFAULT,
            service => service.parse().ok()?,
        };
        (self.entry.transport == trtype::TCP).then(|| Endpoint::new(self.entry.address.as_str(), port))
    }

    /// What it is opened by: for subsystems with namespaces that are reached by TCP.
    pub fn name(&self) -> Option<TcpName> {
        let endpoint = self.endpoint().filter(|_| self.entry.kind == subtype::NVM)?;
        let name = TcpName::new(endpoint, self.entry.nqn.as_str());
        // What a service says may be anything: what is no name cannot be opened.
        let is_name =
            name.to_string().strip_prefix("tcp:").is_some_and(|text| text.parse() == Ok(name.clone()));
        is_name.then_some(name)
    }
}

/// What was found.
#[derive(Debug)]
pub struct Discovery {
    /// Subsystems in the order in which they were told of, referrals included.
    pub found: Vec<Discovered>,
    /// Services that were referred to and could not be asked.
    pub failed: Vec<(Endpoint, Error)>,
}

/// Asks the discovery service at an endpoint, and then those that it refers to, each once and at most 32.
/// `registry` says where this host's name and keys are.
///
/// # Errors
/// [`Error::Driver`] when the first service cannot be asked; those of [`super::host_identity`] and
/// [`super::KnownTargets::load`].
pub fn discover(at: &Endpoint, registry: &Registry) -> Result<Discovery> {
    let mut discovery = Discovery { found: Vec::new(), failed: Vec::new() };
    let mut asked: Vec<Endpoint> = vec![at.clone()];
    let mut waiting = VecDeque::from([at.clone()]);
    while let Some(service) = waiting.pop_front() {
        let target = discovery_at(&service, registry)?;
        let entries = match unvme_driver::discover(&target) {
            Ok(entries) => entries,
            Err(e) => {
                let error = Error::driver(format!("discover {service}"), e);
                if service == *at {
                    return Err(error);
                }
                discovery.failed.push((service, error));
                continue;
            }
        };
        for entry in entries {
            let found = Discovered { service: service.clone(), entry };
            let next = found.endpoint().filter(|_| found.entry.kind == subtype::REFERRAL);
            if let Some(next) = next
                && !asked.contains(&next)
                && asked.len() < SERVICES_MAX
            {
                asked.push(next.clone());
                waiting.push_back(next);
            }
            discovery.found.push(found);
        }
    }
    Ok(discovery)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(transport: u8, kind: u8, address: &str, service: &str, nqn: &str) -> Discovered {
        let entry = DiscoveryEntry {
            transport,
            address_family: 1,
            kind,
            requirements: 0,
            port_id: 1,
            cntlid: 0xffff,
            admin_entries_max: 32,
            flags: 0,
            address: address.into(),
            service: service.into(),
            nqn: nqn.into(),
            security: 0,
        };
        Discovered { service: Endpoint::new("::1", 8009), entry }
    }

    #[test]
    fn a_subsystem_on_tcp_has_a_name_that_opens_it_and_nothing_else_has() {
        let name = |it: Discovered| it.name().map(|name| name.to_string());
        let nvm = |address, service, nqn| found(3, 2, address, service, nqn);
        assert_eq!(name(nvm("10.0.0.1", "4421", "nqn.a")), Some("tcp:10.0.0.1:4421/nqn.a".into()));
        assert_eq!(name(nvm("fe80::1", "", "nqn.a")), Some("tcp:[fe80::1]:4420/nqn.a".into()));
        assert_eq!(name(found(1, 2, "10.0.0.1", "4420", "nqn.a")), None, "RDMA");
        assert_eq!(name(found(3, 1, "10.0.0.1", "4420", "nqn.a")), None, "a referral");
        for (address, service, nqn) in [
            ("10.0.0.1", "nvme", "nqn.a"),
            ("10.0.0.1", "70000", "nqn.a"),
            ("a b", "1", "nqn.a"),
            ("a", "1", "\x1b[2J"),
        ] {
            assert_eq!(name(nvm(address, service, nqn)), None, "{address}:{service}/{nqn}");
        }
    }
}

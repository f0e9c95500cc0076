//! What a name and this machine's files say about a connection.

use std::time::Duration;

use unvme_driver::{Reconnect, TcpDigests, TcpTarget};
use unvme_spec::fabrics::DISCOVERY_NQN;

use super::{Endpoint, KnownTargets, host_identity};
use crate::name::TcpName;
use crate::{Registry, Result};

/// A subsystem, as the driver connects to it; `reconnect` is how long a lost one is tried again when the name
/// does not say. Errors: those of [`host_identity`] and [`KnownTargets::load`].
pub(crate) fn target_of(name: &TcpName, registry: &Registry, reconnect: Duration) -> Result<TcpTarget> {
    let mut target = target_at(&name.endpoint, &name.nqn, registry)?;
    target.digests = TcpDigests { header: name.header_digest, data: name.data_digest };
    target.keep_alive = name.keep_alive.unwrap_or(target.keep_alive);
    let give_up_after = name.reconnect.unwrap_or(reconnect);
    target.reconnect = Reconnect { give_up_after, ..target.reconnect };
    Ok(target)
}

/// The discovery service at an endpoint.
pub(super) fn discovery_at(endpoint: &Endpoint, registry: &Registry) -> Result<TcpTarget> {
    let mut target = target_at(endpoint, DISCOVERY_NQN, registry)?;
    target.reconnect.give_up_after = Duration::ZERO;
    Ok(target)
}

fn target_at(endpoint: &Endpoint, nqn: &str, registry: &Registry) -> Result<TcpTarget> {
    let keys = KnownTargets::load(registry)?.keys(endpoint, nqn)?;
    let host = host_identity(registry)?;
    let mut target = TcpTarget::new(endpoint.host.as_str(), endpoint.port, nqn, host);
    (target.secret, target.controller_secret, target.tls) = (keys.host, keys.controller, keys.tls);
    Ok(target)
}

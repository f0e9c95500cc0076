//! Ports: where a target is reached, and how well each subsystem is reached there.

use unvme_fabric::Psk;
use unvme_spec::fabrics::adrfam;

use crate::association::{AnaState, PortId};

/// Kind of address (ADRFAM).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl AddressFamily {
    /// ADRFAM.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Ipv4 => adrfam::IPV4,
            Self::Ipv6 => adrfam::IPV6,
        }
    }
}

/// A port of a target.
#[derive(Clone, Debug, Default)]
pub struct PortOptions {
    /// Its identifier.
    pub id: PortId,
    /// Kind of its address.
    pub family: AddressFamily,
    /// Address that hosts connect to, as the Discovery log page says it (TRADDR).
    pub address: String,
    /// TCP port number in decimal (TRSVCID).
    pub service: String,
    /// Hosts have to use TLS (TREQ, SECTYPE). The connection's transport sees to that.
    pub is_secure: bool,
    /// State of all subsystems at this port that have none of their own.
    pub ana: AnaState,
}

/// Another discovery service that this target names.
#[derive(Clone, Debug, Default)]
pub struct Referral {
    /// Its port.
    pub port: PortOptions,
    /// Its NQN; that of the well-known discovery service when empty.
    pub nqn: String,
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its address, for messages.
    pub address: String,
    /// Address at which it has reached the target: what the Discovery log page says of a port that is open at
    /// all addresses.
    pub local: String,
    /// What TLS has proven about it; `None` without TLS.
    pub tls: Option<TlsPeer>,
}

/// What the identity of a pre-shared key says: who may use it, and for what; and the key itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPeer {
    /// NQN of the host.
    pub hostnqn: String,
    /// NQN of the subsystem.
    pub subnqn: String,
    /// The key as it was configured, which may be another one by the time the host asks for something.
    pub key: Option<Psk>,
}

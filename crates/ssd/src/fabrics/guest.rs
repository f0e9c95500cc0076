//! Whom places and memory are shared among.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bits of an IPv6 address that its owner chooses at will: all addresses that differ in them are one.
const IPV6_OWN_BITS: u32 = 64;

/// A host, as far as a target can tell it from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Guest {
    /// It has proven its name: DH-HMAC-CHAP, or the identity of its TLS key.
    Proven(String),
    /// It has said a name, which others can say as well: where it comes from counts first.
    Named {
        /// See [`origin`].
        origin: String,
        /// NQN of the host.
        hostnqn: String,
    },
}

impl Guest {
    /// Whoever has not said a name yet.
    pub(super) fn stranger(origin: String) -> Self {
        Self::Named { origin, hostnqn: String::new() }
    }

    /// True when both count as one when places are shared: a name that was proven, or an address.
    pub(super) fn is_kin(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Named { origin: one, .. }, Self::Named { origin: two, .. }) => one == two,
            _ => self == other,
        }
    }
}

/// Where a peer comes from, by its address as [`Peer`](super::Peer) has it: without the port, and without
/// what its owner chooses at will.
pub fn origin(address: &str) -> String {
    let ip = address.parse::<SocketAddr>().map(|socket| socket.ip()).or_else(|_| address.parse::<IpAddr>());
    match ip.map(|ip| ip.to_canonical()) {
        Ok(IpAddr::V4(ip)) => ip.to_string(),
        Ok(IpAddr::V6(ip)) => Ipv6Addr::from_bits(ip.to_bits() >> IPV6_OWN_BITS << IPV6_OWN_BITS).to_string(),
        Err(_) => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_an_address_without_what_its_owner_chooses() {
        assert_eq!(origin("192.0.2.1:4420"), "192.0.2.1");
        assert_eq!(origin("[::ffff:192.0.2.1]:7"), "192.0.2.1");
        assert_eq!(origin("[2001:db8:1:2:3:4:5:6]:4420"), "2001:db8:1:2::");
        assert_eq!(origin("2001:db8:1:2:ffff::"), "2001:db8:1:2::");
        assert_eq!(origin(""), "");
    }
}

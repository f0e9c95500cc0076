//! Where a target listens: a host and a port.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Port of NVMe/TCP that IANA has assigned to I/O controllers.
pub const PORT_DEFAULT: u16 = 4420;
/// Bytes a host name can have.
const HOST_BYTES_MAX: usize = 253;

/// A host, as an address or as a name that is not resolved yet, and a TCP port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// An IPv4 address, an IPv6 address without brackets, or a name.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Endpoint {
    /// An endpoint at an address.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// The addresses behind it, in the order the system's resolver has them.
    ///
    /// # Errors
    /// What the resolver reports.
    pub fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        (self.host.as_str(), self.port).to_socket_addrs().map(Iterator::collect)
    }

    /// True when both are one place, however it is spelled: they have an address in common. False when one
    /// cannot be resolved.
    pub(super) fn is_same_place(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let (Ok(mine), Ok(others)) = (self.resolve(), other.resolve()) else { return false };
        mine.iter().any(|address| others.contains(address))
    }

    /// What a person typed who may leave the port out, and on a server (`host` given) the host as well.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    pub fn parse_with(text: &str, host: Option<&str>) -> Result<Self, String> {
        let expected = || format!("`{text}`: {}", expected(host));
        if let Some(host) = host
            && let Some(port) = port(text.strip_prefix(':').unwrap_or(text))
        {
            return Ok(Self::new(host, port));
        }
        let (host, rest) = split_host(text).ok_or_else(expected)?;
        let port = match rest {
            "" => PORT_DEFAULT,
            rest => rest.strip_prefix(':').and_then(port).ok_or_else(expected)?,
        };
        Ok(Self::new(host, port))
    }
}

fn expected(host: Option<&str>) -> String {
    let alone = if host.is_some() { ", or a port alone" } else { "" };
    format!(
        "expected an address and a port such as 10.0.0.1:{PORT_DEFAULT} or [fe80::1]:{PORT_DEFAULT}{alone}"
    )
}

impl FromStr for Endpoint {
    type Err = String;

    /// `HOST:PORT`, an IPv6 address in brackets; `:PORT` may be left out and is 4420 then.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse_with(text, None)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::new(address.ip().to_string(), address.port())
    }
}

/// A port, which is never 0 for those who connect; a server takes 0 for any that is free.
fn port(text: &str) -> Option<u16> {
    // `parse` would take a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A host and what is behind it.
fn split_host(text: &str) -> Option<(String, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        // A zone such as %eth0 is the resolver's business.
        let (plain, _zone) = address.split_once('%').unwrap_or((address, ""));
        let is_address = plain.parse::<Ipv6Addr>().is_ok() && is_plain(address);
        return is_address.then(|| (address.to_owned(), rest));
    }
    let at = text.find(':').unwrap_or(text.len());
    let (host, rest) = text.split_at(at);
    (is_plain(host) && !host.is_empty() && host.len() <= HOST_BYTES_MAX).then(|| (host.to_owned(), rest))
}

/// No character that means something in a device name.
fn is_plain(host: &str) -> bool {
    host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte))
}

/// True for addresses that only this machine reaches.
#[cfg(any(test, feature = "local"))]
pub(crate) fn is_loopback(address: std::net::IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_written_as_they_are_read() {
        for (text, shown) in [
            ("10.0.0.1:4420", "10.0.0.1:4420"),
            ("10.0.0.1", "10.0.0.1:4420"),
            ("storage-1.example:8009", "storage-1.example:8009"),
            ("[::1]:4421", "[::1]:4421"),
            ("[fe80::1%eth0]:4421", "[fe80::1%eth0]:4421"),
            ("[::1]", "[::1]:4420"),
        ] {
            let endpoint: Endpoint = text.parse().expect(text);
            assert_eq!(endpoint.to_string(), shown);
            assert_eq!(shown.parse(), Ok(endpoint));
        }
    }

    #[test]
    fn a_server_is_given_a_port_alone_and_is_on_the_loopback_then() {
        for text in ["4420", ":4420"] {
            assert_eq!(Endpoint::parse_with(text, Some("127.0.0.1")), Ok(Endpoint::new("127.0.0.1", 4420)));
        }
        assert_eq!(Endpoint::parse_with("0.0.0.0:0", Some("127.0.0.1")), Ok(Endpoint::new("0.0.0.0", 0)));
    }

    #[test]
    fn one_place_has_several_spellings() {
        let local = Endpoint::new("127.0.0.1", 4420);
        assert!(local.is_same_place(&Endpoint::new("localhost", 4420)));
        assert!(!local.is_same_place(&Endpoint::new("localhost", 4421)));
        assert!(!local.is_same_place(&Endpoint::new("127.0.0.2", 4420)));
        assert!(!local.is_same_place(&Endpoint::new("", 4420)));
    }

    #[test]
    fn wrong_endpoints_say_what_was_expected() {
        for text in [
            "",
            ":",
            "host:",
            "host:x",
            "host:+1",
            "host:65536",
            "[::1",
            "[host]:1",
            "a b:1",
            "a/b:1",
            ":1",
            "::1",
        ] {
            let message = Endpoint::from_str(text).expect_err(text);
            assert!(message.contains("expected an address and a port such as 10.0.0.1:4420"), "{message}");
        }
    }

    #[test]
    fn only_this_machine_reaches_the_loopback() {
        for (text, is) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
        ] {
            assert_eq!(is_loopback(text.parse().expect(text)), is, "{text}");
        }
    }
}

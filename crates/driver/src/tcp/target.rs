//! What to connect to, and as whom.

use std::fmt;
use std::time::Duration;

use unvme_fabric::{Psk, Secret};
use unvme_spec::fabrics::{NQN_BYTES_MAX, nqn_bytes};

use crate::Error;

/// Who the host says it is. Targets tell hosts apart by the name, and connections of one host by both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// NVMe Qualified Name of the host, at most 223 bytes.
    pub nqn: String,
    /// Host Identifier; not all zeroes.
    pub id: [u8; 16],
}

/// Checksums that are asked for: CRC32C. Each is used when the target agrees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpDigests {
    /// Over the headers of PDUs: an error ends the connection.
    pub header: bool,
    /// Over data: an error ends the command, with the status Transient Transport Error.
    pub data: bool,
}

/// What to do about a connection that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconnect {
    /// Time between the first attempt, which is made at once, and the second. It doubles from attempt to
    /// attempt.
    pub first_delay: Duration,
    /// Longest time between two attempts.
    pub delay_max: Duration,
    /// Time without a connection after which the device is given up for good, with [`Error::Gone`]. 0 gives
    /// up at once. Connections that do not last as long as `delay_max` do not end that time. A reset tries
    /// once more.
    pub give_up_after: Duration,
}

impl Reconnect {
    /// How long to wait after a wait of `delay` was in vain.
    pub(crate) fn after(&self, delay: Duration) -> Duration {
        delay.saturating_mul(2).clamp(self.first_delay, self.delay_max)
    }
}

impl Default for Reconnect {
    fn default() -> Self {
        Self {
            first_delay: Duration::from_millis(100),
            delay_max: Duration::from_secs(5),
            give_up_after: Duration::from_secs(10),
        }
    }
}

/// The shortest time that an interval can be: the target's unit.
const DELAY_MIN: Duration = Duration::from_millis(1);

/// A subsystem behind NVMe/TCP.
#[derive(Clone)]
pub struct TcpTarget {
    /// Name or address of the machine.
    pub host: String,
    /// TCP port: 4420 for devices, 8009 for discovery services.
    pub port: u16,
    /// NVMe Qualified Name of the subsystem; [`unvme_spec::fabrics::DISCOVERY_NQN`] for a discovery service.
    pub nqn: String,
    /// Who we are.
    pub host_identity: HostIdentity,
    /// Checksums to ask for.
    pub digests: TcpDigests,
    /// Keep Alive Timeout: the target drops a host that it has not heard of for that long, and the host a
    /// target. 0 is without. Whoever polls a queue, or calls [`crate::Controller::keep_alive`], keeps the
    /// connection alive.
    pub keep_alive: Duration,
    /// What to do about a connection that is lost.
    pub reconnect: Reconnect,
    /// Our secret, for targets that want hosts to authenticate (DH-HMAC-CHAP).
    pub secret: Option<Secret>,
    /// The target's secret: it has to prove that it knows it.
    pub controller_secret: Option<Secret>,
    /// Connect by TLS 1.3 with this pre-shared key.
    pub tls: Option<Psk>,
}

impl TcpTarget {
    /// A target without checksums, keys and TLS, that is kept alive every 15 seconds.
    pub fn new(
        host: impl Into<String>,
        port: u16,
        nqn: impl Into<String>,
        host_identity: HostIdentity,
    ) -> Self {
        Self {
            host: host.into(),
            port,
            nqn: nqn.into(),
            host_identity,
            digests: TcpDigests::default(),
            keep_alive: Duration::from_secs(15),
            reconnect: Reconnect::default(),
            secret: None,
            controller_secret: None,
            tls: None,
        }
    }

    /// Errors: [`Error::InvalidArgument`] for what no target would take.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (what, name) in [("the subsystem", &self.nqn), ("the host", &self.host_identity.nqn)] {
            if name.is_empty() || nqn_bytes(name).is_none() {
                return Err(Error::InvalidArgument(format!(
                    "the NQN of {what} has {} bytes: 1 to {NQN_BYTES_MAX} are expected",
                    name.len()
                )));
            }
        }
        if self.host_identity.id == [0; 16] {
            return Err(Error::InvalidArgument("the host identifier is all zeroes".to_owned()));
        }
        if self.keep_alive.as_millis() > u128::from(u32::MAX) {
            return Err(Error::InvalidArgument("a keep alive time of more than 49 days".to_owned()));
        }
        if !self.keep_alive.is_zero() && self.keep_alive < DELAY_MIN {
            return Err(Error::InvalidArgument(format!("a keep alive time of less than {DELAY_MIN:?}")));
        }
        let Reconnect { first_delay, delay_max, .. } = self.reconnect;
        if first_delay < DELAY_MIN || first_delay > delay_max {
            return Err(Error::InvalidArgument(format!(
                "{first_delay:?} between attempts to connect: {DELAY_MIN:?} to {delay_max:?} are possible"
            )));
        }
        Ok(())
    }

    /// What errors call it.
    pub(crate) fn shown(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for TcpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpTarget")
            .field("address", &self.shown())
            .field("nqn", &self.nqn)
            .field("host", &self.host_identity.nqn)
            .field("digests", &self.digests)
            .field("authenticates", &self.secret.is_some())
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(nqn: &str) -> TcpTarget {
        let host = HostIdentity { nqn: "nqn.2014-08.org.nvmexpress:uuid:1".to_owned(), id: [1; 16] };
        TcpTarget::new("::1", 4420, nqn, host)
    }

    #[test]
    fn names_are_1_to_223_bytes_long() {
        assert!(target(&"n".repeat(223)).check().is_ok());
        assert!(target(&"n".repeat(224)).check().is_err());
        assert!(target("").check().is_err());
    }

    #[test]
    fn an_identifier_of_zeroes_and_endless_time_are_refused() {
        let mut it = target("nqn.x");
        it.host_identity.id = [0; 16];
        assert!(it.check().is_err());
        let mut it = target("nqn.x");
        it.keep_alive = Duration::MAX;
        assert!(it.check().is_err());
        it.keep_alive = Duration::from_micros(999);
        assert!(it.check().is_err());
    }

    #[test]
    fn delays_between_attempts_are_at_least_a_millisecond_and_double_up_to_the_longest() {
        let mut it = target("nqn.x");
        it.reconnect.first_delay = Duration::ZERO;
        assert!(it.check().is_err());
        it.reconnect.first_delay = Duration::from_secs(6);
        assert!(it.check().is_err());
        let policy = Reconnect { delay_max: Duration::MAX, ..Reconnect::default() };
        assert_eq!(policy.after(Duration::ZERO), Duration::from_millis(100));
        assert_eq!(policy.after(Duration::from_millis(100)), Duration::from_millis(200));
        assert_eq!(policy.after(Duration::MAX), Duration::MAX);
    }

    #[test]
    fn an_ipv6_address_is_shown_in_brackets() {
        assert_eq!(target("nqn.x").shown(), "[::1]:4420");
    }
}

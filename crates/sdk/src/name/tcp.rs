//! Subsystems of other machines: what follows `tcp:`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use unvme_spec::fabrics::{DISCOVERY_NQN, NQN_BYTES_MAX};

use crate::fabrics::Endpoint;

/// Longest time in seconds that an option can name: a day.
const SECONDS_MAX: u64 = 24 * 60 * 60;
/// The options, for messages.
const OPTIONS: &str = "hdgst, ddgst, keep-alive=SECONDS or reconnect=SECONDS";

/// What follows `tcp:`. Displays the whole name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpName {
    /// Where the target listens.
    pub endpoint: Endpoint,
    /// NQN of the subsystem.
    pub nqn: String,
    /// Checksums of PDU headers.
    pub header_digest: bool,
    /// Checksums of data.
    pub data_digest: bool,
    /// Keep Alive Timeout; zero for none, `None` for the driver's own.
    pub keep_alive: Option<Duration>,
    /// How long to try to connect again after the connection is lost; zero for not at all, `None` for the
    /// driver's own.
    pub reconnect: Option<Duration>,
}

impl TcpName {
    /// A subsystem, with no option.
    pub fn new(endpoint: Endpoint, nqn: impl Into<String>) -> Self {
        Self {
            endpoint,
            nqn: nqn.into(),
            header_digest: false,
            data_digest: false,
            keep_alive: None,
            reconnect: None,
        }
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        let (key, value) = option.split_once('=').map_or((option, None), |(key, value)| (key, Some(value)));
        match (key, value) {
            ("hdgst", None) if !self.header_digest => self.header_digest = true,
            ("ddgst", None) if !self.data_digest => self.data_digest = true,
            ("keep-alive", Some(value)) if self.keep_alive.is_none() => {
                self.keep_alive = Some(seconds(key, value)?);
            }
            ("reconnect", Some(value)) if self.reconnect.is_none() => {
                self.reconnect = Some(seconds(key, value)?);
            }
            _ => return Err(format!("`{option}` is no option; expected {OPTIONS}, each once")),
        }
        Ok(())
    }
}

fn seconds(key: &str, value: &str) -> Result<Duration, String> {
    let number = value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse::<u64>().ok()).flatten();
    match number {
        Some(number) if number <= SECONDS_MAX => Ok(Duration::from_secs(number)),
        _ => Err(format!("{key}: expected 0 to {SECONDS_MAX} seconds, not `{value}`")),
    }
}

/// An NVMe Qualified Name of a subsystem or of a host (Base 4.7). Errors: what is wrong with it and what was
/// expected.
pub(crate) fn check_nqn(nqn: &str) -> Result<(), String> {
    let well_formed = nqn.starts_with("nqn.")
        && nqn.len() <= NQN_BYTES_MAX
        && !nqn.chars().any(|c| c.is_control() || c.is_whitespace() || c == ',');
    match well_formed {
        true => Ok(()),
        false => Err(format!(
            "`{nqn}` is no NQN; expected up to {NQN_BYTES_MAX} bytes without blanks and commas such as \
             nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
        )),
    }
}

impl FromStr for TcpName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "expected tcp:HOST:PORT/NQN, such as tcp:10.0.0.1:4420/nqn.2014-08.org.example:ssd";
        let (endpoint, rest) = text.split_once('/').ok_or_else(|| match text.parse::<Endpoint>() {
            Ok(at) => format!("{form}; `unvme discover {at}` shows the names there are"),
            Err(_) => form.to_owned(),
        })?;
        let endpoint: Endpoint = endpoint.parse().map_err(|reason| format!("{reason}; {form}"))?;
        if endpoint.port == 0 {
            return Err(format!("port 0 is nobody's; {form}"));
        }
        let mut parts = rest.split(',');
        let nqn = parts.next().unwrap_or_default();
        check_nqn(nqn)?;
        if nqn == DISCOVERY_NQN {
            return Err(format!(
                "this is the discovery service, no device; ask it with `unvme discover {endpoint}`"
            ));
        }
        let mut name = Self::new(endpoint, nqn);
        parts.try_for_each(|option| name.set(option))?;
        Ok(name)
    }
}

impl fmt::Display for TcpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp:{}/{}", self.endpoint, self.nqn)?;
        if self.header_digest {
            f.write_str(",hdgst")?;
        }
        if self.data_digest {
            f.write_str(",ddgst")?;
        }
        if let Some(time) = self.keep_alive {
            write!(f, ",keep-alive={}", time.as_secs())?;
        }
        if let Some(time) = self.reconnect {
            write!(f, ",reconnect={}", time.as_secs())?;
        }
        Ok(())
    }
}

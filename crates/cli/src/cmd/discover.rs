//! `discover`.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use unvme::Registry;
use unvme::fabrics::{Discovered, Endpoint, KnownTargets, discover};
use unvme_spec::fabrics::{adrfam, sectype, subtype, treq, trtype};

use crate::cmd::list::warn_of_bad;
use crate::columns::{Rule, write_table};
use crate::output::Output;
use crate::value::{Fields, fields};

/// Arguments of `discover`.
#[derive(Debug, Args)]
#[command(after_help = "\
A subsystem is opened by the name that is shown for it. Discovery services that are referred to are
asked as well; one that cannot be is named on standard error, and so is an entry of
$UNVME_HOME/fabrics.json that is wrong. That file has the keys: a service is asked by those of a
subsystem at its address, and a server of unvme shows a host with a key what it may use once it
has proven who it is.

Examples:
  unvme discover 10.0.0.1
  unvme discover [fe80::1]:8009 --output json")]
pub(crate) struct Discover {
    /// Discovery service: an address or a name, and a port unless it is 4420
    #[arg(value_name = "ADDR[:PORT]")]
    at: Endpoint,
    #[command(flatten)]
    output: Output,
}

const HEADERS: [&str; 5] = ["Type", "Address", "Port ID", "Security", "Open as"];

impl Discover {
    pub(crate) fn run(self) -> Result<()> {
        let registry = Registry::from_environment()?;
        warn_of_bad(&KnownTargets::load(&registry)?);
        let discovery = discover(&self.at, &registry)?;
        let json = fields! { "records": discovery.found.iter().map(json).collect::<Vec<_>>() };
        self.output.output.show(json, |out| {
            let rows: Vec<_> = discovery.found.iter().map(cells).collect();
            write_table(out, &HEADERS, Rule::Dashes, &rows)
        })?;
        for (_, error) in &discovery.failed {
            writeln!(std::io::stderr(), "{}", told(error))?;
        }
        Ok(())
    }
}

/// Text of a service, which may hold anything.
fn plain(text: &str) -> String {
    text.escape_default().to_string()
}

/// Of a service that could not be asked: another one has said where it is, in words of its own.
fn told(error: &unvme::Error) -> String {
    format!("unvme: {}", plain(&error.to_string()))
}

fn cells(found: &Discovered) -> [String; 5] {
    let entry = &found.entry;
    let address = found.endpoint().map_or_else(|| entry.address.clone(), |endpoint| endpoint.to_string());
    [
        type_of(entry.kind).to_owned(),
        plain(&address),
        entry.port_id.to_string(),
        security(entry.security).to_owned(),
        found.name().map_or_else(|| plain(&entry.nqn), |name| name.to_string()),
    ]
}

/// With the keys and the words of nvme-cli, and the name beside them.
fn json(found: &Discovered) -> Fields {
    let entry = &found.entry;
    fields! {
        "trtype": transport(entry.transport),
        "adrfam": match entry.address_family {
                adrfam::IPV4 => "ipv4",
                adrfam::IPV6 => "ipv6",
                _ => "unrecognized",
            },
        "subtype": type_of(entry.kind),
        "treq": match entry.requirements & 3 {
                treq::SECURE_CHANNEL_REQUIRED => "required",
                treq::SECURE_CHANNEL_NOT_REQUIRED => "not required",
                _ => "not specified",
            },
        "portid": entry.port_id, "trsvcid": plain(&entry.service), "subnqn": plain(&entry.nqn),
        "traddr": plain(&entry.address), "sectype": security(entry.security),
        "service": found.service.to_string(), "name": found.name().map(|name| name.to_string()),
    }
}

fn type_of(kind: u8) -> &'static str {
    match kind {
        subtype::REFERRAL => "discovery subsystem referral",
        subtype::NVM => "nvme subsystem",
        subtype::CURRENT_DISCOVERY => "current discovery subsystem",
        _ => "unrecognized",
    }
}

fn transport(kind: u8) -> &'static str {
    match kind {
        trtype::RDMA => "rdma",
        trtype::FIBRE_CHANNEL => "fc",
        trtype::TCP => "tcp",
        trtype::LOOP => "loop",
        _ => "unrecognized",
    }
}

fn security(kind: u8) -> &'static str {
    match kind {
        sectype::NONE => "none",
        sectype::TLS_1_2 => "tls",
        sectype::TLS_1_3 => "tls13",
        _ => "reserved",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_service_do_nothing_to_the_terminal() {
        let error = unvme::Error::NotFound { name: "\x1b[2J:4420".into(), available: String::new() };
        let line = told(&error);
        assert!(line.contains("\\u{1b}[2J:4420") && !line.contains('\x1b'), "{line}");
    }
}

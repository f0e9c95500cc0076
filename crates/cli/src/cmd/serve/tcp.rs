//! `serve --tcp`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use unvme::fabrics::{Access, Endpoint};
use unvme::{
    AccessUpdates, AnaState, Error, EventFd, ListenOptions, ServedSubsystem, Size, TCP_THREADS_MAX,
    TcpServeOptions, serve_tcp,
};

use crate::exit::usage;
use crate::output::Output;
use crate::value::{Fields, Value, fields};

/// Where a server listens that is given a port alone.
const LOOPBACK: &str = "127.0.0.1";
/// Least memory of a server: what one command of every kind of device can take, and some.
const MEMORY_MIN: Size = Size(16 << 20);
/// Most connections of a server.
const CONNECTIONS_MAX: u64 = 65_536;

/// Options of `serve` that are about the network.
#[derive(Debug, Args)]
pub(super) struct Tcp {
    /// Serve by NVMe/TCP at an address and port; a port alone is this machine's. May be repeated
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_at)]
    tcp: Vec<Endpoint>,
    /// NQN of the device, in place of its own; with several devices once for each, in their order
    #[arg(long, value_name = "NQN", requires = "tcp")]
    nqn: Vec<String>,
    /// JSON file with the hosts that may enter and their keys; nobody else may be able to read it. SIGHUP has
    /// it read again
    #[arg(long, value_name = "FILE", requires = "tcp")]
    access: Option<PathBuf>,
    /// Host that may enter, by its name alone. May be repeated
    #[arg(long, value_name = "NQN", requires = "tcp")]
    allow_host: Vec<String>,
    /// Let in whoever comes, from any machine that reaches the address
    #[arg(long, requires = "tcp", conflicts_with_all = ["allow_host", "access"])]
    allow_any_host: bool,
    /// Most memory for all hosts: data on its way, queues and commands; each host has a share
    #[arg(long, value_name = "SIZE", default_value = "1G", requires = "tcp")]
    memory: Size,
    /// Threads; one on each --core, and without those half of the processors and at most 4, unless said
    /// otherwise
    #[arg(long, value_name = "N", requires = "tcp", value_parser = clap::value_parser!(u64).range(1..=TCP_THREADS_MAX as u64))]
    threads: Option<u64>,
    /// How well the devices are reached at a port: optimized, non-optimized, inaccessible or lost
    #[arg(long, value_name = "PORT=STATE", requires = "tcp", value_parser = ana)]
    ana: Vec<(Endpoint, AnaState)>,
    /// Discovery service elsewhere that hosts are told of. May be repeated
    #[arg(long, value_name = "ADDR[:PORT]", requires = "tcp")]
    referral: Vec<Endpoint>,
    /// Say in Identify Namespace (CNS 00h) how large a key-value namespace is, in blocks of 512 bytes, for
    /// hosts that look for namespaces by NCAP alone, such as SPDK's; a host that knows no command sets may
    /// take the namespace for blocks
    #[arg(long, requires = "tcp")]
    kv_ncap: bool,
    /// Most connections at a time; for one more the oldest without a controller is closed
    #[arg(long, value_name = "N", default_value = "4096", requires = "tcp", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    max_connections: u64,
}

/// Which hosts may enter, as far as a file says so.
#[derive(Clone)]
pub(super) struct Rules {
    file: PathBuf,
    /// Those of the command line, who may enter beside them.
    allowed: Vec<String>,
    updates: AccessUpdates,
}

impl Rules {
    fn read(&self) -> Result<Access, Error> {
        let mut access = Access::load(&self.file)?;
        self.allowed.iter().try_for_each(|nqn| access.allow(nqn))?;
        if access.holds_keys() {
            forbid_core_dumps();
        }
        Ok(access)
    }

    /// Has the server go by what the file says now.
    pub(super) fn read_again(&self) {
        match self.read() {
            Ok(access) => self.updates.set(access),
            Err(error) => tracing::error!("who may enter stays as it was: {error}"),
        }
    }
}

/// Keys in memory of ours are in no core dump, but what OpenSSL makes of them for each connection is: a
/// process that has the keys of others leaves none.
fn forbid_core_dumps() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "a core dump of this process may have keys in it");
    }
}

fn listen_at(text: &str) -> Result<Endpoint, String> {
    Endpoint::parse_with(text, Some(LOOPBACK))
}

/// A port, which may be named without its address, and its state.
fn ana(text: &str) -> Result<(Endpoint, AnaState), String> {
    let expected = "expected PORT=STATE, such as 4421=non-optimized";
    let (port, state) = text.split_once('=').ok_or(expected)?;
    let state = match state {
        "optimized" => AnaState::Optimized,
        "non-optimized" => AnaState::NonOptimized,
        "inaccessible" => AnaState::Inaccessible,
        "lost" => AnaState::PersistentLoss,
        other => return Err(format!("`{other}`: expected optimized, non-optimized, inaccessible or lost")),
    };
    Ok((Endpoint::parse_with(port, Some(""))?, state))
}

impl Tcp {
    pub(super) fn is_asked_for(&self) -> bool {
        !self.tcp.is_empty()
    }

    /// The rules for hosts that are in a file, which can be read again.
    pub(super) fn rules(&self) -> Result<Option<Rules>> {
        let rules = |file: &PathBuf| -> Result<Rules> {
            let (file, allowed, updates) = (file.clone(), self.allow_host.clone(), AccessUpdates::new()?);
            Ok(Rules { file, allowed, updates })
        };
        self.access.as_ref().map(rules).transpose()
    }

    /// What was asked for, as far as it is about the network.
    pub(super) fn options(&self, rules: Option<&Rules>) -> Result<TcpServeOptions> {
        let mut access = Access { any_host: self.allow_any_host, ..Access::default() };
        match rules {
            Some(rules) => access = rules.read()?,
            None => self.allow_host.iter().try_for_each(|nqn| access.allow(nqn))?,
        }
        if self.memory < MEMORY_MIN {
            return Err(usage(format!("serve: --memory {}: at least {MEMORY_MIN} is expected", self.memory)));
        }
        Ok(TcpServeOptions {
            listen: self.listen()?,
            nqns: self.nqn.clone(),
            access,
            access_updates: rules.map(|rules| rules.updates.clone()),
            memory_bytes: self.memory.0,
            threads: self.threads.map(|threads| threads as usize),
            referrals: self.referral.clone(),
            kv_ncap: self.kv_ncap,
            connections_max: self.max_connections as usize,
            ..TcpServeOptions::default()
        })
    }

    fn listen(&self) -> Result<Vec<ListenOptions>> {
        let mut listen: Vec<_> = self
            .tcp
            .iter()
            .map(|endpoint| ListenOptions { endpoint: endpoint.clone(), ana: AnaState::default() })
            .collect();
        for (at, state) in &self.ana {
            let is_meant = |it: &Endpoint| it.port == at.port && (at.host.is_empty() || it.host == at.host);
            let mut meant = listen.iter_mut().filter(|listen| is_meant(&listen.endpoint)).peekable();
            if meant.peek().is_none() {
                return Err(usage(format!("serve: --ana {}: there is no --tcp with this port", at.port)));
            }
            meant.for_each(|listen| listen.ana = *state);
        }
        Ok(listen)
    }
}

/// Serves until the end.
pub(super) fn run(
    devices: &[String],
    options: &TcpServeOptions,
    stop: &EventFd,
    output: Output,
) -> Result<()> {
    let announce = |served: &[ServedSubsystem]| {
        let pid = std::process::id();
        let written = output.output.show(json(served, pid), |out| {
            for subsystem in served {
                for name in &subsystem.names {
                    writeln!(out, "serving {} as {name} (process {pid}); Ctrl-C ends it", subsystem.device)?;
                }
            }
            Ok(())
        });
        if written.is_err() {
            // Nobody listens on standard output, which is no reason not to serve.
            let _ = writeln!(std::io::stderr(), "unvme: serving {}", devices.join(", "));
        }
    };
    Ok(serve_tcp(devices, options, stop, announce)?)
}

fn json(served: &[ServedSubsystem], pid: u32) -> Fields {
    let subsystem = |it: &ServedSubsystem| {
        let names: Vec<Value> = it.names.iter().map(|name| Value::Text(name.to_string())).collect();
        fields! { "device": it.device.as_str(), "nqn": it.nqn.as_str(), "names": names }
    };
    fields! { "subsystems": served.iter().map(subsystem).collect::<Vec<_>>(), "pid": pid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_port_is_named_by_its_number_or_its_address() {
        assert_eq!(ana("4421=non-optimized"), Ok((Endpoint::new("", 4421), AnaState::NonOptimized)));
        assert_eq!(
            ana("10.0.0.1:4421=lost"),
            Ok((Endpoint::new("10.0.0.1", 4421), AnaState::PersistentLoss))
        );
        for text in ["4421", "4421=good"] {
            assert!(ana(text).expect_err(text).contains("expected "), "{text}");
        }
    }
}

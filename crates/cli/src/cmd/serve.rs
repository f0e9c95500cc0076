//! `serve`.

mod tcp;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use unvme::{EventFd, ServeOptions, TcpServeOptions, serve};

use crate::completion;
use crate::exit::usage;
use crate::fault::read_rules;
use crate::numbers;
use crate::output::Output;
use crate::perf::machine::memory_available;
use crate::value::fields;

/// Milliseconds without work before a server of a socket naps, and one of the network sleeps. Their clients
/// differ: the former's are noticed by looking at their memory, the latter's wake the server.
const IDLE_SOCKET_MS: u64 = 50;
const IDLE_TCP_MS: u64 = 2;

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Others who open the virtual device by its name attach to the server, each with a controller of
its own; so does any vfio-user host, such as QEMU. With --tcp hosts on any machine do by NVMe/TCP:
the driver of this program, the kernel's, or anybody else's. The server ends with Ctrl-C; it ends
alike with SIGTERM and SIGHUP, and with exit code 6 when its last device is unplugged.

With --access SIGHUP does not end the server but has it read the file again: hosts that may not
enter any more, or not by the keys they came with, are disconnected, and the others notice
nothing. A file that cannot be read, or makes no sense, changes nothing. Hosts that are refused
are named on standard error with the reason, a number of them each minute.

Examples:
  unvme serve 0000:02:00.0
  unvme serve mem:block:1G --socket /tmp/nvme.sock --core 1 --busy-poll
  unvme serve --tcp 4420 mem:kv:1G                        # this machine alone
  unvme serve --tcp 10.0.0.1:4420 --access hosts.json 0000:02:00.0 0000:03:00.0
  unvme serve --tcp 10.0.0.1:4420 --tcp 10.1.0.1:4421 --ana 4421=non-optimized \\
      --allow-host nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6 02:00.0")]
pub(crate) struct Serve {
    /// Virtual device: 0000:02:00.0, mem:block:SIZE or mem:kv:SIZE; several with --tcp
    #[arg(value_name = "DEVICE", required = true, add = ArgValueCompleter::new(completion::devices))]
    devices: Vec<String>,
    /// Socket to listen on; a virtual device has a place of its own for it
    #[arg(long, value_name = "PATH", conflicts_with = "tcp")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    tcp: tcp::Tcp,
    /// Processor to do the device's work on; with --tcp several, with a thread on each
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    core: Vec<usize>,
    /// Milliseconds without work before the server rests: 50, or 2 with --tcp
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    idle: Option<u64>,
    /// Never rest: the lowest latency, and a processor that is always busy
    #[arg(long, conflicts_with = "idle")]
    busy_poll: bool,
    /// Memory of mem: devices to take from the system before anybody is served; half of what is free unless
    /// said otherwise, and 0 for none: then the first touch of each 2 MiB takes longer
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes)]
    populate: Option<u64>,
    /// Rules for faults, as `unvme fault add --file` reads them; they end with the server
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Serve {
    pub(crate) fn run(self) -> Result<()> {
        let stop = EventFd::new().context("serve")?;
        let rules = self.tcp.rules()?;
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("serve: handle signals")?;
        let (stopper, again) = (stop.clone(), rules.clone());
        thread::spawn(move || {
            for signal in signals.forever() {
                match &again {
                    Some(rules) if signal == SIGHUP => rules.read_again(),
                    _ => stopper.signal(),
                }
            }
        });
        let faults = self.faults.as_deref().map_or_else(|| Ok(Vec::new()), read_rules)?;
        let idle = self.idle.unwrap_or(if self.tcp.is_asked_for() { IDLE_TCP_MS } else { IDLE_SOCKET_MS });
        let spin = (!self.busy_poll).then(|| Duration::from_millis(idle));
        let populate_bytes = self.populate.unwrap_or_else(|| memory_available().unwrap_or(0) / 2);
        if self.tcp.is_asked_for() {
            let options = TcpServeOptions {
                cores: self.core,
                spin,
                faults,
                populate_bytes,
                ..self.tcp.options(rules.as_ref())?
            };
            return tcp::run(&self.devices, &options, &stop, self.output);
        }
        let ([name], [] | [_]) = (self.devices.as_slice(), self.core.as_slice()) else {
            return Err(usage(
                "serve: one device, on one core, unless --tcp ADDR:PORT says where to serve several",
            ));
        };
        let options = ServeOptions {
            registry: None,
            socket: self.socket,
            core: self.core.first().copied(),
            spin,
            faults,
            populate_bytes,
        };
        let announce = |path: &Path| {
            let pid = std::process::id();
            let json = fields! { "device": name.as_str(), "socket": path.display().to_string(), "pid": pid };
            let line = format!("serving {name} on {} (process {pid}); Ctrl-C ends it", path.display());
            if self.output.output.say(json, line).is_err() {
                // Nobody listens on standard output, which is no reason not to serve.
                let _ = writeln!(std::io::stderr(), "unvme: serving {name}");
            }
        };
        Ok(serve(name, &options, &stop, announce)?)
    }
}

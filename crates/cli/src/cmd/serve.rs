//! `serve`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use unvme::{EventFd, ServeOptions, serve};

use crate::fault::read_rules;
use crate::output::{Output, Screen};
use crate::target::DeviceArg;
use crate::value::Fields;

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Others who open the virtual device by its name attach to the server, each with a controller of
its own; so does any vfio-user host, such as QEMU. The server ends with Ctrl-C; it ends alike
with SIGTERM and SIGHUP, and with exit code 6 when the device is unplugged.

Examples:
  unvme serve 0000:02:00.0
  unvme serve mem:block:1G --socket /tmp/nvme.sock --core 1 --busy-poll")]
pub(crate) struct Serve {
    #[command(flatten)]
    device: DeviceArg,
    /// Socket to listen on; a virtual device has a place of its own for it
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Processor to do the device's work on
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Milliseconds without work before the server naps between two looks at the queues
    #[arg(long, value_name = "MS", default_value = "50", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    idle: u64,
    /// Never nap: the lowest latency, and a processor that is always busy
    #[arg(long, conflicts_with = "idle")]
    busy_poll: bool,
    /// Rules for faults, as `unvme fault add --file` reads them; they end with the server
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Serve {
    pub(crate) fn run(self) -> Result<()> {
        let stop = EventFd::new().context("serve")?;
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("serve: handle signals")?;
        let stopper = stop.clone();
        thread::spawn(move || {
            if signals.forever().next().is_some() {
                stopper.signal();
            }
        });
        let options = ServeOptions {
            registry: None,
            socket: self.socket,
            core: self.core,
            spin: (!self.busy_poll).then(|| Duration::from_millis(self.idle)),
            faults: self.faults.as_deref().map_or_else(|| Ok(Vec::new()), read_rules)?,
        };
        let name = &self.device.device;
        let announce = |path: &Path| {
            let pid = std::process::id();
            let json = Fields::new()
                .with("device", name.as_str())
                .with("socket", path.display().to_string())
                .with("pid", pid);
            let line = format!("serving {name} on {} (process {pid}); Ctrl-C ends it", path.display());
            if Screen::new().say(self.output.output, json, line).is_err() {
                // Nobody listens on standard output, which is no reason not to serve.
                let _ = writeln!(std::io::stderr(), "unvme: serving {name}");
            }
        };
        Ok(serve(name, &options, &stop, announce)?)
    }
}

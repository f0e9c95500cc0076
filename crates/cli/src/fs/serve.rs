//! `fs serve`: a mounted file system for programs of this machine, without the kernel.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use unvme_fs::calls::Processes;
use unvme_fs::share::{Hold, Reserved, Server, ServerOptions, socket_path};
use unvme_fs::{CacheOptions, FileSystem, MakeOptions, MountOptions, Policy, make};

use super::place::{NSID, Place};
use crate::numbers;
use crate::output::Output;
use crate::value::fields;

/// How long those who had files open that have no names have to open them again.
const KEPT: Duration = Duration::from_secs(10);

/// Arguments of `fs serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Programs that several processes share a file system by are its clients; those that run under
`unvme run` start it themselves. It ends with SIGTERM, SIGINT or SIGHUP, or when nobody was
there for --idle seconds, and leaves the file system in order. A mem: device, which is empty,
gets a file system first.

Examples:
  unvme fs serve 0000:02:00.0
  unvme fs serve mem:block:1G --socket /tmp/fs.sock --idle 60 --cache 256M")]
pub(crate) struct Serve {
    #[command(flatten)]
    place: Place,
    /// Socket to listen on; each device has a place of its own for it
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// End when nobody was connected for so long
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    idle: Option<u64>,
    /// Memory for pages of files
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes)]
    cache: Option<u64>,
    /// Which pages are given up first, or that none are kept
    #[arg(long, value_name = "POLICY", default_value = "s3fifo", value_parser = Policy::NAMES)]
    policy: String,
    /// Calls that can wait for the device at a time
    #[arg(long, value_name = "COUNT", default_value = "16", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,
    /// Allow nothing to be written
    #[arg(short, long)]
    read_only: bool,
    /// Keep files without names for 10 seconds: somebody had them open, and opens them again here. Process
    /// PID does so before all others
    #[arg(long, value_name = "PID", conflicts_with = "read_only", num_args = 0..=1, require_equals = true)]
    keep_unnamed: Option<Option<u32>>,
    /// Descriptor to write a byte to when clients can connect; the server leaves its terminal then
    #[arg(long, value_name = "FD")]
    ready_fd: Option<u32>,
    /// Descriptor of the socket's lock file, which another process leaves to this one
    #[arg(long, value_name = "FD")]
    lock_fd: Option<u32>,
    #[command(flatten)]
    output: Output,
}

/// Each client costs two descriptors: as many as this process may have.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "raise the limit of descriptors");
    }
}

impl Serve {
    pub(super) fn run(self) -> Result<()> {
        // Before there is anything to leave in order.
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("serve: handle signals")?;
        let device_name = &self.place.device.device;
        let socket = match &self.socket {
            Some(path) => std::path::absolute(path)?,
            None => socket_path(device_name, self.place.namespace.namespace_id.unwrap_or(NSID))?,
        };
        // Whoever has it comes first: the device is left alone until then.
        let hold = match self.lock_fd {
            Some(fd) => Hold::inherit(&socket, fd),
            None => Hold::take(&socket),
        }
        .with_context(|| format!("serve {device_name}"))?;
        let (device, block) = self.place.open_held()?;
        if device.name().starts_with("mem:") {
            // It has been empty until now, and is nobody else's.
            make(&block, device.name(), &MakeOptions::default(), |_, _| ())?;
        }
        let fs = FileSystem::mount(&block, device.name(), &self.mount_options())?;
        raise_descriptor_limit();
        let reserved = self.keep_unnamed.flatten().map(|pid| Reserved { pid, limit: KEPT });
        let options = ServerOptions { workers: self.threads.into(), reserved, ..ServerOptions::default() };
        let mut hold = Some(hold);
        let server = Server::start_held(&mut hold, Processes::new(fs.clone()), &socket, &options);
        let server = server.with_context(|| format!("serve on {}", socket.display()))?;
        let stopper = server.stopper();
        thread::spawn(move || {
            if signals.forever().next().is_some() {
                stopper.stop();
            }
        });
        if self.keep_unnamed.is_some() {
            let fs = fs.clone();
            thread::spawn(move || {
                thread::sleep(KEPT);
                if let Err(e) = fs.reap_unnamed() {
                    tracing::error!("give up files without names: {e}");
                }
            });
        }
        self.announce(&socket)?;
        server.keep_hold();
        server.wait_idle(self.idle.map_or(Duration::MAX, Duration::from_secs));
        // Clients are processes that end with it. Whoever comes next waits until the device is free again.
        let hold = server.end();
        let left = fs.unmount();
        drop((fs, block, device));
        drop(hold);
        Ok(left?)
    }

    fn mount_options(&self) -> MountOptions {
        let defaults = MountOptions::default();
        let bytes = self.cache.map_or(defaults.cache.bytes, |bytes| bytes as usize);
        let policy = Policy::from_name(&self.policy).unwrap_or_default();
        MountOptions {
            is_read_only: self.read_only,
            keeps_unnamed: self.keep_unnamed.is_some(),
            cache: CacheOptions { bytes, policy, is_shared: true, ..defaults.cache },
            ..defaults
        }
    }

    fn announce(&self, socket: &std::path::Path) -> Result<()> {
        let (name, pid) = (self.place.device.device.as_str(), std::process::id());
        let json = fields! { "device": name, "socket": socket.display().to_string(), "pid": pid };
        let line = format!("serving the file system of {name} on {} (process {pid})", socket.display());
        if self.output.output.say(json, line).is_err() {
            // Nobody listens on standard output, which is no reason not to serve.
            let _ = writeln!(std::io::stderr(), "unvme: serving {name}");
        }
        let Some(ready) = self.ready_fd else { return Ok(()) };
        // A signal of the terminal is for those who use the server, which ends after them.
        let _ = rustix::process::setsid();
        let path = format!("/proc/self/fd/{ready}");
        let told = File::options().write(true).open(&path).and_then(|mut file| file.write_all(b"\n"));
        told.with_context(|| format!("--ready-fd {ready}"))
    }
}

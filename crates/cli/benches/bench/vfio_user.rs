//! The same device in another process, through vfio-user.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};
use unvme::{EventFd, OpenOptions, ServeOptions, open};

use crate::cores;
use crate::load::{Load, fill, memory_device};
use crate::pairs::{Effort, interleave};
use crate::row::{Better, Row};

pub(crate) const READ: &str = "vfio_user.read";
/// First argument of the process that is the server; socket, core and capacity follow.
pub(crate) const SERVE: &str = "--serve";
const DEPTH: u16 = 32;

/// Random reads through vfio-user, server and host on a core each, against the in-process device on the
/// host's core.
pub(crate) fn read(effort: &Effort) -> Result<Row> {
    let [server_core, host_core] = cores::pair()?;
    let folder = tempfile::tempdir().context("make a folder for the socket")?;
    let socket = folder.path().join("nvme.sock");
    let before = cores::round_trip_ns([server_core, host_core])?;
    let server = Server::start(&socket, server_core, effort.media_bytes)?;
    let pairs = cores::on(host_core, || {
        let served = open(&format!("vfio-user:{}", socket.display()), &OpenOptions::default())?;
        fill(&served, effort.media_bytes)?;
        let (local, _memory) = memory_device(effort.media_bytes)?;
        let mut far = Load::new(&served, DEPTH, false)?;
        let mut near = Load::new(&local, DEPTH, false)?;
        interleave(effort, || far.rate(effort.side), || near.rate(effort.side))
    })?;
    drop(server);
    let after = cores::round_trip_ns([server_core, host_core])?;
    let note = format!(
        "{}; server process on core {server_core}, host on core {host_core}, both always polling; a cache line's round \
         trip between them takes {before:.0} ns before, {after:.0} ns after",
        pairs.rates()
    );
    Ok(Row { id: READ, value: pairs.ratio, unit: "x", target: 0.8, better: Better::Higher, note })
}

/// The server's process, which ends when this value is dropped.
struct Server {
    process: Child,
}

impl Server {
    /// Returns when clients can attach.
    fn start(socket: &Path, core: usize, bytes: u64) -> Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        let process = Command::new(program)
            .arg(SERVE)
            .arg(socket)
            .args([core.to_string(), bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the server")?;
        let mut server = Self { process };
        let stdout = server.process.stdout.take().context("the server has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("wait for the server")?;
        ensure!(line.starts_with("ready"), "the server did not start");
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It stops when its standard input ends.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// The server's side: serves until standard input ends.
pub(crate) fn serve(socket: &str, core: &str, bytes: &str) -> Result<()> {
    let stop = EventFd::new()?;
    let stopper = stop.clone();
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stopper.signal();
    });
    let options = ServeOptions {
        registry: None,
        socket: Some(socket.into()),
        core: Some(core.parse().context("core")?),
        spin: None,
        faults: Vec::new(),
        populate_bytes: 0,
    };
    let ready = |_: &Path| {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "ready").and_then(|()| out.flush());
    };
    unvme::serve(&format!("mem:block:{bytes},block=4096"), &options, &stop, ready)?;
    Ok(())
}

//! The same device over NVMe/TCP, on the loopback: `unvme serve` on one core, the host on the other.
//!
//! What a row compares with is [`tcp_bare`](crate::tcp_bare): the same bytes over the same kind of sockets,
//! on the same two cores, from and to as much memory, without NVMe.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use unvme::{BlockQueue, Device, Nsid, OpenOptions, QueueOptions, open};

use crate::cores;
use crate::kv_load::{Kind, KvLoad, capacity};
use crate::load::{Load, PAGE_BYTES, fill, memory_device};
use crate::pairs::{Effort, Pairs, interleave};
use crate::row::{Better, NO_TARGET, Row};
use crate::tcp_bare::{self, Buffers, Client, Message, Shape};

pub(crate) const QD1: &str = "tcp.qd1";
pub(crate) const READ: &str = "tcp.read";
pub(crate) const WRITE: &str = "tcp.write";
pub(crate) const BIG: &str = "tcp.big";
pub(crate) const BIG_WRITE: &str = "tcp.big.write";
pub(crate) const HUGE: &str = "tcp.huge";
pub(crate) const HUGE_WRITE: &str = "tcp.huge.write";
pub(crate) const KV: &str = "tcp.kv";
pub(crate) const VS_LOCAL: &str = "tcp.vs_local";
pub(crate) const IDLE: &str = "tcp.idle";

/// Command Capsule: common header and entry.
const COMMAND_BYTES: usize = 72;
/// Header of data to the host, or Response Capsule.
const ANSWER_BYTES: usize = 24;
const DEPTH: u16 = 128;
/// Data of a big command, and how many are out.
const BIG_BYTES: usize = 128 << 10;
const BIG_DEPTH: u16 = 8;
/// The same of a huge one.
const HUGE_BYTES: usize = 1 << 20;
const HUGE_DEPTH: u16 = 4;
const NQN: &str = "nqn.2024-01.io.unvme:bench";
/// Commands between two looks at the clock.
const COMMANDS_PER_LOOK: u64 = 256;
const START_LIMIT: Duration = Duration::from_secs(20);

/// Latency at depth 1 against the round trip of as many bytes.
pub(crate) fn qd1(effort: &Effort) -> Result<Row> {
    let (pairs, note) = versus_bare(effort, false, PAGE_BYTES, 1)?;
    let micros = |rate: f64| 1e6 / rate;
    let note = format!("{:.1} / {:.1} us, {note}", micros(pairs.first), micros(pairs.second));
    Ok(Row { id: QD1, value: 1.0 / pairs.ratio, unit: "x", target: 1.25, better: Better::Lower, note })
}

/// Random reads.
pub(crate) fn read(effort: &Effort) -> Result<Row> {
    let (pairs, note) = versus_bare(effort, false, PAGE_BYTES, DEPTH)?;
    Ok(short_row(READ, &pairs, &note))
}

/// Random writes, whose data goes with the command.
pub(crate) fn write(effort: &Effort) -> Result<Row> {
    let (pairs, note) = versus_bare(effort, true, PAGE_BYTES, DEPTH)?;
    Ok(short_row(WRITE, &pairs, &note))
}

/// Reads of 128 KiB.
pub(crate) fn big(effort: &Effort) -> Result<Row> {
    long_row(BIG, effort, false, BIG_BYTES, BIG_DEPTH)
}

/// Writes of 128 KiB, whose data is asked for.
pub(crate) fn big_write(effort: &Effort) -> Result<Row> {
    long_row(BIG_WRITE, effort, true, BIG_BYTES, BIG_DEPTH)
}

/// Reads of 1 MiB.
pub(crate) fn huge(effort: &Effort) -> Result<Row> {
    long_row(HUGE, effort, false, HUGE_BYTES, HUGE_DEPTH)
}

/// Writes of 1 MiB.
pub(crate) fn huge_write(effort: &Effort) -> Result<Row> {
    long_row(HUGE_WRITE, effort, true, HUGE_BYTES, HUGE_DEPTH)
}

fn short_row(id: &'static str, pairs: &Pairs, note: &str) -> Row {
    let note = format!("{}; {note}", pairs.rates());
    Row { id, value: pairs.ratio, unit: "x", target: 0.85, better: Better::Higher, note }
}

fn long_row(id: &'static str, effort: &Effort, is_write: bool, bytes: usize, depth: u16) -> Result<Row> {
    let (pairs, note) = versus_bare(effort, is_write, bytes, depth)?;
    let gigabytes = |rate: f64| rate * bytes as f64 / 1e9;
    let (ours, bare) = (gigabytes(pairs.first), gigabytes(pairs.second));
    let note = format!("{ours:.2} / {bare:.2} GB/s, {depth} outstanding; {note}");
    Ok(Row { id, value: pairs.ratio, unit: "x", target: 0.85, better: Better::Higher, note })
}

/// Our load on a served device and the bare exchange of as many bytes, in turns.
fn versus_bare(effort: &Effort, is_write: bool, bytes: usize, depth: u16) -> Result<(Pairs, String)> {
    let (out, back) = if is_write { (bytes, 0) } else { (0, bytes) };
    let shape = Shape {
        request: Message { head: COMMAND_BYTES, body: out },
        answer: Message { head: ANSWER_BYTES, body: back },
        in_flight: usize::from(depth),
    };
    on_two_cores(|server_core, host_core| {
        let server = Server::start(server_core, &block_device(effort.media_bytes))?;
        let port = tcp_bare::serve(server_core)?;
        cores::on(host_core, || {
            let device = server.open()?;
            fill(&device, effort.media_bytes)?;
            let mut load = Load::of_bytes(&device, depth, is_write, bytes)?;
            let mut buffers = Buffers::new(shape);
            let mut bare = Client::new(port, shape, effort.media_bytes, &mut buffers)?;
            interleave(effort, || rate(&mut load, effort.side), || bare.rate(effort.side))
        })
    })
}

/// Retrieves of 4 KiB values against block reads, both over TCP.
pub(crate) fn kv(effort: &Effort) -> Result<Row> {
    let pairs_stored = if effort.smoke { 2_000 } else { 100_000 };
    let bytes = capacity(pairs_stored, PAGE_BYTES);
    let (pairs, note) = on_two_cores(|server_core, host_core| {
        let kv_server = Server::start(server_core, &format!("mem:kv:{bytes}"))?;
        let block_bytes = (pairs_stored * PAGE_BYTES as u64).next_multiple_of(2 << 20);
        let block_server = Server::start(server_core, &block_device(block_bytes))?;
        cores::on(host_core, || {
            let (kv, block) = (kv_server.open()?, block_server.open()?);
            fill(&block, block_bytes)?;
            KvLoad::on(&kv, (pairs_stored, PAGE_BYTES), DEPTH, Kind::Store)?.run_fill(pairs_stored)?;
            let mut retrieves = KvLoad::on(&kv, (pairs_stored, PAGE_BYTES), DEPTH, Kind::Retrieve)?;
            let mut reads = Load::new(&block, DEPTH, false)?;
            interleave(effort, || retrieves.rate(effort.side), || rate(&mut reads, effort.side))
        })
    })?;
    let note = format!("{}, {pairs_stored} pairs; {note}", pairs.rates());
    Ok(Row { id: KV, value: pairs.ratio, unit: "x", target: 0.9, better: Better::Higher, note })
}

/// How far from the device in this process: at three depths. The figure is that of the largest.
pub(crate) fn vs_local(effort: &Effort) -> Result<Row> {
    let mut each = Vec::new();
    let (last, note) = on_two_cores(|server_core, host_core| {
        let server = Server::start(server_core, &block_device(effort.media_bytes))?;
        cores::on(host_core, || {
            let far = server.open()?;
            fill(&far, effort.media_bytes)?;
            let (near, _memory) = memory_device(effort.media_bytes)?;
            let mut last = None;
            for depth in [1, 32, DEPTH] {
                let mut far = Load::new(&far, depth, false)?;
                let mut near = Load::new(&near, depth, false)?;
                let pairs = interleave(effort, || rate(&mut far, effort.side), || near.rate(effort.side))?;
                each.push(format!("depth {depth}: {:.3} / {:.3} M/s", pairs.first / 1e6, pairs.second / 1e6));
                last = Some(pairs);
            }
            last.context("no depth")
        })
    })?;
    let note = format!("{}; {note}", each.join(", "));
    Ok(Row { id: VS_LOCAL, value: last.ratio, unit: "x", target: NO_TARGET, better: Better::Higher, note })
}

/// What a server costs that has a hundred connections and nothing to do.
pub(crate) fn idle(effort: &Effort) -> Result<Row> {
    const CONTROLLERS: usize = 50;
    let watched = if effort.smoke { Duration::from_millis(500) } else { Duration::from_secs(10) };
    let [server_core, _] = cores::pair()?;
    let server = Server::start(server_core, &block_device(64 << 20))?;
    let devices: Vec<Device> = (0..CONTROLLERS).map(|_| server.open()).collect::<Result<_>>()?;
    let queues: Vec<BlockQueue> = devices
        .iter()
        .map(|device| Ok(device.block(Nsid(1))?.queue(&QueueOptions::default())?))
        .collect::<Result<_>>()?;
    // What it does about the connections themselves is over.
    thread::sleep(watched / 5);
    let (before, began) = (server.cpu_time()?, Instant::now());
    thread::sleep(watched);
    let used = server.cpu_time()?.saturating_sub(before);
    let value = 100.0 * used.as_secs_f64() / began.elapsed().as_secs_f64();
    let note = format!(
        "{} connections of {CONTROLLERS} hosts that keep them alive, {:.1} s",
        queues.len() + devices.len(),
        watched.as_secs_f64()
    );
    Ok(Row { id: IDLE, value, unit: "%", target: 1.0, better: Better::Lower, note })
}

fn rate(load: &mut Load, side: Duration) -> Result<f64> {
    crate::pairs::rate(side, || load.run(COMMANDS_PER_LOOK))
}

fn block_device(bytes: u64) -> String {
    format!("mem:block:{bytes},block=4096")
}

/// Runs `measure` with the server's core and the host's, and says what a cache line costs between them.
fn on_two_cores<T>(measure: impl FnOnce(usize, usize) -> Result<T>) -> Result<(T, String)> {
    let [server_core, host_core] = cores::pair()?;
    let before = cores::round_trip_ns([server_core, host_core])?;
    let measured = measure(server_core, host_core)?;
    let after = cores::round_trip_ns([server_core, host_core])?;
    let note = format!(
        "server on core {server_core}, host on core {host_core}; a cache line's round trip between them takes \
         {before:.0} ns before, {after:.0} ns after"
    );
    Ok((measured, note))
}

/// `unvme serve`, which stops when this value is dropped.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// Returns when hosts can connect.
    fn start(core: usize, device: &str) -> Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        // A process is kept on the cores of the thread that starts it.
        let process = cores::on(core, || {
            Command::new(env!("CARGO_BIN_EXE_unvme"))
                .args([
                    "serve",
                    "--tcp",
                    &format!("127.0.0.1:{port}"),
                    "--nqn",
                    NQN,
                    "--threads",
                    "1",
                    device,
                ])
                .stdout(Stdio::null())
                .spawn()
                .context("start the server")
        })?;
        let mut server = Self { process, port };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.process.try_wait()? {
                bail!("the server of {device} ended: {status}");
            }
            if began.elapsed() > START_LIMIT {
                bail!("the server of {device} does not listen");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    fn open(&self) -> Result<Device> {
        let name = format!("tcp:127.0.0.1:{}/{NQN}", self.port);
        open(&name, &OpenOptions::default()).with_context(|| format!("open {name}"))
    }

    /// Time that its threads have been on a core.
    fn cpu_time(&self) -> Result<Duration> {
        let tasks = Path::new("/proc").join(self.process.id().to_string()).join("task");
        let mut ns = 0;
        for task in fs::read_dir(&tasks).with_context(|| format!("read {}", tasks.display()))? {
            // On the core, waiting for it, turns.
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            ns += text.split_whitespace().next().context("schedstat is empty")?.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(ns))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.process.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.process.wait();
    }
}

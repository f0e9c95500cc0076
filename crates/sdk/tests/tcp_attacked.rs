//! A server under three attacks at once, and two hosts that have done nothing wrong: connections that prove
//! nothing, an admitted host that keeps all the memory it can get, and processes of this machine whose memory
//! goes away under the device. The two read what they have written, and come in whenever they like.
//!
//! `UNVME_SOAK_SECONDS` says for how long, and that the time of each command is looked at as well: see `make
//! soak`.
#![cfg(feature = "local")]
// The numbers are of interest when the test passes, too.
#![allow(clippy::print_stdout)]

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use unvme::fabrics::{Access, AllowedHost, Endpoint, Keys};
use unvme::registry::{BlockBytes, DeviceSpec};
use unvme::{
    AnaState, EventFd, ListenOptions, Nsid, OpenOptions, PciAddress, Registry, Size, TcpServeOptions, open,
    serve_tcp,
};
use unvme_bus::vfio_user::Client;
use unvme_bus::{Dma, DmaAccess, Function, Region};
use unvme_fabric::Secret;

// The host's bytes, by offsets of the specification.
#[allow(dead_code, unreachable_pub)]
#[path = "../../ssd/tests/wire/pdu.rs"]
mod pdu;

use pdu::{Sqe, Wishes};

const SLOT: &str = "0000:01:00.0";
const NQN: &str = "nqn.2026-01.org.example:attacked";
const EVIL: &str = "nqn.2026-01.org.example:evil";
const INNOCENT: [&str; 2] = [
    "nqn.2014-08.org.nvmexpress:uuid:0f6d1d3e-7a9b-4a52-8d3e-5c0a1b2c3d4e",
    "nqn.2014-08.org.nvmexpress:uuid:1f6d1d3e-7a9b-4a52-8d3e-5c0a1b2c3d4e",
];
/// Kernel's names for the host, if the machine has them.
const SYSTEM_NQN: &str = "/etc/nvme/hostnqn";
const SECONDS_VARIABLE: &str = "UNVME_SOAK_SECONDS";
const SECONDS: u64 = 8;
const MEMORY_BYTES: u64 = 64 << 20;
/// Connections that prove nothing: as many as there are controllers.
const STRANGERS: usize = 127;
/// Writes without data of each queue of the greedy host, and its queues.
const WRITES: u16 = 999;
const QUEUES: u16 = 3;
const MIB: u32 = 1 << 20;
/// A command of at most [`SMALL`] is answered within this time, of a hundred of them ninety-nine: the others
/// may have met a machine that did something else.
const PROMPT: Duration = Duration::from_millis(100);
const SMALL: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// The end of the attacks, and what there was of them.
#[derive(Default)]
struct Attack {
    is_over: AtomicBool,
    strangers: AtomicUsize,
    greedy: AtomicUsize,
    lost: AtomicUsize,
}

impl Attack {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while self.goes_on() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// An attacker's end of a connection; `None` once the server has had enough of it.
struct Rude {
    stream: TcpStream,
    cid: u16,
}

impl Rude {
    fn connect(address: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut rude = Self { stream, cid: 0 };
        rude.stream.write_all(&pdu::ic_req(&Wishes::default())).ok()?;
        rude.receive()?;
        Some(rude)
    }

    fn receive(&mut self) -> Option<pdu::Pdu> {
        let mut bytes = vec![0; 8];
        self.stream.read_exact(&mut bytes).ok()?;
        let plen = u32::from_le_bytes(bytes[4..8].try_into().ok()?) as usize;
        bytes.resize(plen, 0);
        self.stream.read_exact(bytes.get_mut(8..)?).ok()?;
        Some(pdu::Pdu(bytes))
    }

    fn send(&mut self, sqe: Sqe, data: &[u8]) -> Option<()> {
        self.cid = self.cid.wrapping_add(1);
        let sqe = if data.is_empty() { sqe } else { sqe.in_capsule(data.len() as u32) };
        let mut bytes = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
        bytes.extend_from_slice(&(72 + data.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&sqe.cid(self.cid).0);
        bytes.extend_from_slice(data);
        self.stream.write_all(&bytes).ok()
    }

    /// Connect; the controller's identifier.
    fn join(&mut self, host: &str, qid: u16, cntlid: u16, sqsize: u16) -> Option<u16> {
        self.send(Sqe::connect(qid, sqsize, 4), &pdu::connect_data(cntlid, NQN, host))?;
        let answer = self.receive().filter(|answer| answer.status() == 0)?;
        Some(answer.cqe_u32(0) as u16)
    }

    /// Whether the server has closed the connection.
    fn is_closed(&self) -> bool {
        let _ = self.stream.set_nonblocking(true);
        let closed = match (&self.stream).read(&mut [0; 4096]) {
            Ok(count) => count == 0,
            Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
        };
        let _ = self.stream.set_nonblocking(false);
        closed
    }
}

/// Connections that claim to be a host and prove nothing, each made anew when it is closed.
fn strangers(attack: &Attack, address: SocketAddr) {
    let mut there: Vec<Option<Rude>> = (0..STRANGERS).map(|_| None).collect();
    while attack.goes_on() {
        for (number, place) in there.iter_mut().enumerate() {
            if place.as_ref().is_none_or(Rude::is_closed) && attack.goes_on() {
                *place = Rude::connect(address).and_then(|mut rude| {
                    rude.join(INNOCENT[number % 2], 0, 0xffff, 31)?;
                    attack.strangers.fetch_add(1, Ordering::Relaxed);
                    Some(rude)
                });
            }
        }
        attack.rest(Duration::from_secs(1));
    }
}

/// A host that may enter, and keeps all it can get: writes whose data never comes, and a command now and
/// then.
fn greedy(attack: &Attack, address: SocketAddr) {
    while attack.goes_on() {
        let attempt = || {
            let mut admin = Rude::connect(address)?;
            let cntlid = admin.join(EVIL, 0, 0xffff, 31)?;
            admin.send(Sqe::property_set(0x14, 0x0046_0061), &[])?;
            admin.receive()?;
            let mut queues = Vec::new();
            for qid in 1..=QUEUES {
                let mut queue = Rude::connect(address)?;
                queue.join(EVIL, qid, cntlid, WRITES + 1)?;
                for _ in 0..WRITES {
                    queue.send(Sqe::write(0, MIB / 512).transported(MIB), &[])?;
                    attack.greedy.fetch_add(1, Ordering::Relaxed);
                }
                queues.push(queue);
            }
            while attack.goes_on() && !queues.iter().any(Rude::is_closed) {
                queues.iter_mut().try_for_each(|queue| queue.send(Sqe::flush(), &[]))?;
                attack.rest(Duration::from_secs(2));
            }
            Some(())
        };
        if attempt().is_none() {
            attack.rest(Duration::from_millis(100));
        }
    }
}

/// A process that attaches to the device, and takes its memory away under a command.
fn lose_memory(attack: &Attack, socket: &Path) {
    /// Queues, and where a command's data is, in a file.
    const FILE_BYTES: u64 = 1 << 20;
    const KEPT_BYTES: u64 = 8192;
    const IOVA: u64 = 0x10_0000;
    let attempt = || -> Option<()> {
        let client = Client::connect(socket).ok()?;
        let file = tempfile::tempfile().ok()?;
        file.set_len(FILE_BYTES).ok()?;
        let memory = Region::file(&file, FILE_BYTES as usize).ok()?;
        client.dma_map(IOVA, &memory, DmaAccess::READ_WRITE).ok()?;
        client.bar_write(0, 0x24, &0x000f_000fu32.to_le_bytes()).ok()?;
        client.bar_write(0, 0x28, &IOVA.to_le_bytes()).ok()?;
        client.bar_write(0, 0x30, &(IOVA + 4096).to_le_bytes()).ok()?;
        client.bar_write(0, 0x14, &0x0046_0061u32.to_le_bytes()).ok()?;
        // Identify Controller, to where there is nothing soon.
        let mut sqe = [0; 64];
        sqe[0] = 0x06;
        sqe[24..32].copy_from_slice(&(IOVA + FILE_BYTES / 2).to_le_bytes());
        sqe[40] = 1;
        memory.write(0, &sqe);
        file.set_len(KEPT_BYTES).ok()?;
        client.bar_write(0, 0x1000, &1u32.to_le_bytes()).ok()?;
        let until = Instant::now() + Duration::from_secs(5);
        while !client.is_gone() && attack.goes_on() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        client.is_gone().then_some(())
    };
    while attack.goes_on() {
        if attempt().is_some() {
            attack.lost.fetch_add(1, Ordering::Relaxed);
        }
        attack.rest(Duration::from_millis(200));
    }
}

/// What an innocent host has done.
#[derive(Debug, Default)]
struct Done {
    opened: usize,
    commands: usize,
    /// Times of small commands.
    times: Vec<Duration>,
}

/// Opens the device, writes, reads and compares, a while, and anew.
fn work(number: usize, name: &str, options: &OpenOptions, until: Instant) -> Done {
    let mut done = Done::default();
    let mut seed = number as u8;
    while done.opened < 2 || Instant::now() < until {
        // A refusal is one of `CONTROLLER_BUSY` at most, while somebody leaves.
        let since = Instant::now();
        let device = loop {
            match open(name, options) {
                Ok(device) => break device,
                Err(error) => assert!(since.elapsed() < PATIENCE, "host {number} is kept out: {error}"),
            }
        };
        let mut block = device.block(Nsid(1)).expect("blocks");
        done.opened += 1;
        let pause = Instant::now() + Duration::from_secs(2);
        while Instant::now() < pause {
            for bytes in [512, 4096, SMALL, MIB as usize] {
                seed = seed.wrapping_add(7);
                let data: Vec<u8> = (0..bytes).map(|at| (at as u8) ^ ((at >> 8) as u8) ^ seed).collect();
                let mut back = vec![0; bytes];
                let lba = number as u64 * 8192 + u64::from(seed) * 8;
                let started = Instant::now();
                block.write_at(lba, &data).expect("write");
                let written = Instant::now();
                block.read_at(lba, &mut back).expect("read");
                assert!(back == data, "host {number} reads what it has not written, {bytes} bytes");
                if bytes <= SMALL {
                    done.times.extend([written - started, written.elapsed()]);
                }
                done.commands += 2;
            }
        }
    }
    done
}

/// A folder of an innocent host: its name, and its key for the subsystem.
fn settle(folder: &Path, nqn: &str, secret: &Secret) -> Registry {
    fs::create_dir_all(folder).expect("a folder");
    fs::write(folder.join("hostnqn"), nqn).expect("a name");
    let targets = format!(r#"{{"targets":[{{"nqn":"{NQN}","dhchap_key":"{}"}}]}}"#, &*secret.to_text());
    let path = folder.join("fabrics.json");
    fs::write(&path, targets).expect("a key");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
    Registry::at(folder)
}

fn attacked(name: &str, address: SocketAddr, socket: &Path, homes: &[Registry], time: Duration) -> Vec<Done> {
    let attack = Attack::default();
    let done = thread::scope(|scope| {
        let attackers = [
            scope.spawn(|| strangers(&attack, address)),
            scope.spawn(|| greedy(&attack, address)),
            scope.spawn(|| lose_memory(&attack, socket)),
        ];
        let since = Instant::now();
        let is_full = || attack.greedy.load(Ordering::Relaxed) >= usize::from(QUEUES * WRITES);
        while !is_full() || attack.strangers.load(Ordering::Relaxed) < STRANGERS {
            assert!(since.elapsed() < PATIENCE, "the attacks do not begin");
            thread::sleep(Duration::from_millis(10));
        }
        let until = Instant::now() + time;
        let hosts: Vec<_> = homes
            .iter()
            .enumerate()
            .map(|(number, registry)| {
                let options = OpenOptions { registry: Some(registry.clone()), ..OpenOptions::default() };
                scope.spawn(move || work(number, name, &options, until))
            })
            .collect();
        let done: Vec<_> = hosts.into_iter().map(thread::ScopedJoinHandle::join).collect();
        attack.is_over.store(true, Ordering::Relaxed);
        attackers.into_iter().for_each(|attacker| attacker.join().expect("an attacker"));
        done.into_iter().map(|host| host.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    println!("{:?} of attacks: {attack:?}", time);
    assert!(attack.lost.load(Ordering::Relaxed) > 0, "no memory went away");
    done
}

impl std::fmt::Debug for Attack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [strangers, greedy, lost] =
            [&self.strangers, &self.greedy, &self.lost].map(|count| count.load(Ordering::Relaxed));
        write!(f, "{strangers} strangers, {greedy} writes without data, {lost} clients without memory")
    }
}

fn address_of(name: &str) -> SocketAddr {
    let rest = name.strip_prefix("tcp:").expect("a tcp: name");
    rest.split_once('/').expect("an NQN").0.parse().expect("an address")
}

#[test]
fn two_hosts_work_while_a_server_is_attacked_in_three_ways() {
    let seconds = std::env::var(SECONDS_VARIABLE).ok().map(|it| it.parse().expect(SECONDS_VARIABLE));
    let folder = tempfile::tempdir().expect("a folder");
    let own: PathBuf = folder.path().join("server");
    let registry = Registry::at(&own);
    let slot: PciAddress = SLOT.parse().expect("an address");
    let created = registry.create(slot, &DeviceSpec::block(Size(64 << 20), BlockBytes::B512, "S1"));
    let socket = created.expect("a slot").socket_path();
    let system = fs::read_to_string(SYSTEM_NQN).ok().map(|name| name.trim().to_owned());
    let names: Vec<String> =
        INNOCENT.iter().map(|&name| system.clone().unwrap_or_else(|| name.to_owned())).collect();
    let secret = Secret::generate(None).expect("random numbers");
    let mut hosts: Vec<AllowedHost> = Vec::new();
    for nqn in names.iter().chain(&INNOCENT.map(str::to_owned)) {
        if !hosts.iter().any(|host| host.nqn == *nqn) {
            let keys = Keys { host: Some(secret.clone()), ..Keys::default() };
            hosts.push(AllowedHost { nqn: nqn.clone(), subsystems: None, keys });
        }
    }
    hosts.push(AllowedHost { nqn: EVIL.to_owned(), subsystems: None, keys: Keys::default() });
    let homes = [0, 1].map(|number| settle(&folder.path().join(number.to_string()), &names[number], &secret));
    let listen = ListenOptions { endpoint: Endpoint::new("127.0.0.1", 0), ana: AnaState::Optimized };
    let options = TcpServeOptions {
        listen: vec![listen],
        nqns: vec![NQN.to_owned()],
        registry: Some(registry),
        access: Access { hosts, any_host: false },
        memory_bytes: MEMORY_BYTES,
        threads: Some(2),
        ..TcpServeOptions::default()
    };
    let stop = EventFd::new().expect("an eventfd");
    let (ready, started) = std::sync::mpsc::channel();
    let done = thread::scope(|scope| {
        let stopper = stop.clone();
        let server = scope.spawn(move || {
            serve_tcp(&[SLOT.to_owned()], &options, &stopper, |served| {
                ready.send(served[0].names[0].to_string()).expect("the test waits");
            })
        });
        let name = started.recv().expect("it serves");
        let time = Duration::from_secs(seconds.unwrap_or(SECONDS));
        let tried = std::panic::catch_unwind(|| attacked(&name, address_of(&name), &socket, &homes, time));
        stop.signal();
        server.join().expect("no panic").expect("served");
        tried.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    for (number, mut host) in done.into_iter().enumerate() {
        host.times.sort_unstable();
        let most = host.times[host.times.len() * 99 / 100];
        let (opened, commands) = (host.opened, host.commands);
        println!("host {number}: {opened} times in, {commands} commands; 99 of 100 small ones in {most:?}");
        assert!(seconds.is_none() || most <= PROMPT, "host {number}: {most:?}");
    }
}

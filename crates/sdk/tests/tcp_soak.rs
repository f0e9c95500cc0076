//! A target of NVMe/TCP and ten thousand hosts that come and go, polite and rude ones, then a thousand at
//! once: afterwards there are no more descriptors, no more threads and no more memory than before, and it
//! still serves.
//!
//! One test in a process of its own: it counts what the process has.
#![cfg(feature = "local")]
// The numbers are of interest when the test passes, too.
#![allow(clippy::print_stdout)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use unvme::fabrics::Endpoint;
use unvme::{AnaState, EventFd, ListenOptions, Registry, TcpServeOptions, serve_tcp};

// The host's bytes, by offsets of the specification.
#[allow(dead_code, unreachable_pub)]
#[path = "../../ssd/tests/wire/pdu.rs"]
mod pdu;

use pdu::{Pdu, Sqe, Wishes};

/// Connections one after the other.
const CONNECTIONS: usize = 10_000;
/// Connections at a time.
const AT_ONCE: usize = 1000;
/// Of those, how many connect to a controller: fewer than there can be.
const ASSOCIATIONS: usize = 32;
/// Connections before the first count: buffers that are made once have been made.
const WARM_UP: usize = 500;
/// Memory that may be resident afterwards beyond what it was before: what allocators keep, a thousandth of
/// what the connections had together.
const MEMORY_BYTES: usize = 24 << 20;
const PATIENCE: Duration = Duration::from_secs(30);
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:0f6d1d3e-7a9b-4a52-8d3e-5c0a1b2c3d4e";

/// What this process has.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    memory_bytes: usize,
}

impl Held {
    fn now() -> Self {
        let count = |path: &str| std::fs::read_dir(path).expect("procfs").count();
        let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
        let pages: usize =
            statm.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("resident pages");
        Self {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            memory_bytes: pages * 4096,
        }
    }
}

/// A host's end of a connection.
struct Host {
    stream: TcpStream,
    cid: u16,
}

impl Host {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        stream.set_nodelay(true).expect("a socket option");
        Self { stream, cid: 0 }
    }

    fn send(&mut self, bytes: &[u8]) {
        // A target that has closed the connection need not take it.
        let _ = self.stream.write_all(bytes);
    }

    fn greet(&mut self) {
        self.send(&pdu::ic_req(&Wishes::default()));
        let answer = self.receive().expect("an ICResp");
        assert_eq!(answer.kind(), 1);
    }

    fn receive(&mut self) -> Option<Pdu> {
        let mut bytes = vec![0; 8];
        self.stream.read_exact(&mut bytes).ok()?;
        let plen = u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes")) as usize;
        bytes.resize(plen, 0);
        self.stream.read_exact(&mut bytes[8..]).ok()?;
        Some(Pdu(bytes))
    }

    fn capsule(sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let plen = (72 + data.len()) as u32;
        let mut bytes = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
        bytes.extend_from_slice(&plen.to_le_bytes());
        bytes.extend_from_slice(&sqe.0);
        bytes.extend_from_slice(data);
        bytes
    }

    /// A command; the first PDU that comes back.
    fn run(&mut self, sqe: Sqe, data: &[u8]) -> Pdu {
        self.cid += 1;
        let sqe = if data.is_empty() { sqe } else { sqe.in_capsule(data.len() as u32) };
        self.send(&Self::capsule(&sqe.cid(self.cid), data));
        self.receive().expect("an answer")
    }

    /// Connect; the controller's identifier.
    fn join(&mut self, nqn: &str, qid: u16, cntlid: u16) -> u16 {
        let answer = self.run(Sqe::connect(qid, 31, 4), &pdu::connect_data(cntlid, nqn, HOST));
        assert_eq!(answer.status(), 0, "Connect");
        answer.cqe_u32(0) as u16
    }

    fn enabled(address: &str, nqn: &str) -> (Self, u16) {
        let mut admin = Self::connect(address);
        admin.greet();
        let cntlid = admin.join(nqn, 0, 0xffff);
        assert_eq!(admin.run(Sqe::property_set(0x14, 0x0046_0061), &[]).status(), 0);
        (admin, cntlid)
    }
}

/// Hosts of all kinds in turn.
fn visit(address: &str, nqn: &str, kind: usize) {
    match kind % 10 {
        // Nothing at all.
        0 => drop(Host::connect(address)),
        // Another protocol: a Terminate Request, then the end.
        1 | 2 => {
            let mut host = Host::connect(address);
            host.send(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n");
            assert_eq!(host.receive().expect("a Terminate Request").kind(), 3);
        }
        3 => {
            let mut host = Host::connect(address);
            host.send(&pdu::ic_req(&Wishes::default())[..77]);
        }
        4 | 5 => Host::connect(address).greet(),
        // An association that is left without a word.
        6 | 7 => drop(Host::enabled(address, nqn)),
        // An I/O queue with a write under way, whose data does not come.
        8 => {
            let (_admin, cntlid) = Host::enabled(address, nqn);
            let mut host = Host::connect(address);
            host.greet();
            host.join(nqn, 1, cntlid);
            assert_eq!(host.run(Sqe::write(0, 256).transported(131_072), &[]).kind(), 9, "an R2T");
        }
        // A read whose data nobody takes.
        _ => {
            let (_admin, cntlid) = Host::enabled(address, nqn);
            let mut host = Host::connect(address);
            host.greet();
            host.join(nqn, 1, cntlid);
            for cid in 0..16 {
                host.send(&Host::capsule(&Sqe::read(0, 1024).cid(cid), &[]));
            }
            let _ = host.stream.shutdown(Shutdown::Read);
        }
    }
}

/// A thousand connections that are all there, some of them with controllers; then they go.
fn crowd(address: &str, nqn: &str) {
    let mut hosts: Vec<Host> = (0..AT_ONCE).map(|_| Host::connect(address)).collect();
    for host in &mut hosts {
        host.send(&pdu::ic_req(&Wishes::default()));
    }
    for host in &mut hosts {
        assert_eq!(host.receive().expect("an ICResp").kind(), 1);
    }
    for host in hosts.iter_mut().step_by(AT_ONCE / ASSOCIATIONS).take(ASSOCIATIONS) {
        host.join(nqn, 0, 0xffff);
    }
    println!("{AT_ONCE} at once: {:?}", Held::now());
}

/// Waits until there are no more descriptors than before; connections that were sent a Terminate Request
/// linger.
fn settle(before: Held) -> Held {
    let since = Instant::now();
    loop {
        let now = Held::now();
        if now.descriptors <= before.descriptors || since.elapsed() > PATIENCE {
            return now;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn serve(address: &str, nqn: &str) {
    for kind in 0..WARM_UP {
        visit(address, nqn, kind);
    }
    crowd(address, nqn);
    std::thread::sleep(Duration::from_millis(200));
    // The clients' sockets are closed; the server's are once it has seen that.
    let mut before = Held::now();
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(50));
        let now = Held::now();
        if now.descriptors == before.descriptors {
            break;
        }
        before = now;
    }
    println!("before: {before:?}");
    let since = Instant::now();
    for kind in 0..CONNECTIONS {
        visit(address, nqn, kind);
    }
    println!("{CONNECTIONS} one after the other: {:?}", since.elapsed());
    crowd(address, nqn);
    let after = settle(before);
    println!("after: {after:?}");
    assert!(after.descriptors <= before.descriptors, "descriptors: {before:?}, {after:?}");
    assert!(after.threads <= before.threads, "threads: {before:?}, {after:?}");
    let grown = after.memory_bytes.saturating_sub(before.memory_bytes);
    assert!(grown <= MEMORY_BYTES, "{grown} bytes of memory more: {before:?}, {after:?}");
    let (mut host, cntlid) = Host::enabled(address, nqn);
    let mut queue = Host::connect(address);
    queue.greet();
    queue.join(nqn, 1, cntlid);
    assert_eq!(queue.run(Sqe::write(7, 1), &[0x5a; 512]).status(), 0);
    assert_eq!(queue.run(Sqe::read(7, 1), &[]).payload().1, [0x5a; 512]);
    assert_eq!(host.run(Sqe::property_get(0x1c), &[]).cqe_u32(0) & 3, 1, "CSTS");
}

#[test]
fn ten_thousand_connections_and_a_thousand_at_once_leave_nothing_behind() {
    let home = tempfile::tempdir().expect("a folder");
    let listen = ListenOptions { endpoint: Endpoint::new("127.0.0.1", 0), ana: AnaState::Optimized };
    let options = TcpServeOptions {
        listen: vec![listen],
        registry: Some(Registry::at(home.path())),
        threads: Some(1),
        ..TcpServeOptions::default()
    };
    let stop = EventFd::new().expect("an eventfd");
    let (ready, started) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let stopper = stop.clone();
        let server = scope.spawn(move || {
            serve_tcp(&["mem:block:64M".to_owned()], &options, &stopper, |served| {
                ready.send(served.to_vec()).expect("the test waits");
            })
        });
        let served = started.recv().expect("it serves");
        let address = served[0].names[0].endpoint.to_string();
        let tried = std::panic::catch_unwind(|| serve(&address, &served[0].nqn));
        stop.signal();
        server.join().expect("no panic").expect("served");
        if let Err(panic) = tried {
            std::panic::resume_unwind(panic);
        }
    });
}

//! A target of our own and hosts of our own, in one process: many at once, large values, little memory, rude
//! peers.
#![cfg(feature = "local")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use unvme::fabrics::Endpoint;
use unvme::{
    AnaState, BatchOp, Block, Device, EventFd, Kv, ListenOptions, Nsid, OpenOptions, Registry, Result,
    StoreOptions, TcpServeOptions, Transport, open, serve_tcp,
};
use unvme_ssd::{FaultAction, FaultDelay, FaultMatch, FaultRule};

/// A server in a thread of its own.
struct Server {
    stop: EventFd,
    names: Vec<String>,
    thread: Option<JoinHandle<Result<()>>>,
    home: tempfile::TempDir,
}

fn options() -> TcpServeOptions {
    let listen = ListenOptions { endpoint: Endpoint::new("127.0.0.1", 0), ana: AnaState::Optimized };
    TcpServeOptions { listen: vec![listen], threads: Some(1), ..TcpServeOptions::default() }
}

impl Server {
    fn start(devices: &[&str], options: TcpServeOptions) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let options = TcpServeOptions { registry: Some(Registry::at(home.path())), ..options };
        let devices: Vec<String> = devices.iter().map(|&name| name.to_owned()).collect();
        let stop = EventFd::new().expect("an eventfd");
        let (ready, started) = std::sync::mpsc::channel();
        let stopper = stop.clone();
        let thread = thread::spawn(move || {
            serve_tcp(&devices, &options, &stopper, |served| {
                let names = served.iter().map(|it| it.names[0].to_string()).collect();
                ready.send(names).expect("the test waits");
            })
        });
        let names = started.recv().expect("it serves");
        Self { stop, names, thread: Some(thread), home }
    }

    fn open(&self, index: usize, suffix: &str) -> Device {
        let options =
            OpenOptions { registry: Some(Registry::at(self.home.path())), ..OpenOptions::default() };
        open(&format!("{}{suffix}", self.names[index]), &options).expect("open")
    }

    fn block(&self, index: usize) -> Block {
        self.open(index, "").block(Nsid(1)).expect("blocks")
    }

    fn kv(&self, index: usize) -> Kv {
        self.open(index, "").kv(Nsid(1)).expect("pairs")
    }

    fn address(&self) -> String {
        let rest = self.names[0].strip_prefix("tcp:").expect("a tcp: name");
        rest.split_once('/').expect("an NQN").0.to_owned()
    }

    fn end(mut self) {
        self.stop.signal();
        self.thread.take().expect("once").join().expect("no panic").expect("served");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            // A test that fails says why itself.
            let _ = thread.join();
        }
    }
}

#[test]
fn several_hosts_work_at_once_on_one_device() {
    let server = Server::start(&["mem:block:64M"], TcpServeOptions { threads: Some(2), ..options() });
    assert_eq!(server.open(0, "").transport(), Transport::Tcp);
    thread::scope(|scope| {
        for host in 0..4u64 {
            let server = &server;
            scope.spawn(move || {
                let mut block = server.block(0);
                let start = host * 8192;
                for round in 0..4u8 {
                    let data = vec![host as u8 * 16 + round; 1 << 20];
                    block.write_at(start, &data).expect("write");
                    let mut back = vec![0; 1 << 20];
                    block.read_at(start, &mut back).expect("read");
                    assert_eq!(back, data);
                }
            });
        }
    });
    server.end();
}

#[test]
fn digests_are_checked_both_ways() {
    let server = Server::start(&["mem:block:16M"], options());
    for suffix in [",hdgst", ",ddgst", ",hdgst,ddgst"] {
        let mut block = server.open(0, suffix).block(Nsid(1)).expect("blocks");
        let data: Vec<u8> = (0..1u32 << 20).map(|at| (at >> 3) as u8).collect();
        block.write_at(0, &data).expect("write");
        let mut back = vec![0; data.len()];
        block.read_at(0, &mut back).expect("read");
        assert_eq!(back, data, "{suffix}");
    }
    server.end();
}

#[test]
fn values_of_many_mebibytes_go_through_a_server_with_little_memory() {
    let budget = TcpServeOptions { memory_bytes: 24 << 20, ..options() };
    let server = Server::start(&["mem:kv:256M"], budget);
    thread::scope(|scope| {
        for host in 0..3u8 {
            let server = &server;
            scope.spawn(move || {
                let mut kv = server.kv(0);
                for round in 0..2u8 {
                    let value = vec![host * 16 + round; 16 << 20];
                    let key = [b'k', host];
                    kv.store(&key, &value, StoreOptions::default()).expect("store");
                    assert!(
                        kv.retrieve(&key).expect("retrieve").as_deref() == Some(&value[..]),
                        "{host} {round}"
                    );
                }
            });
        }
    });
    // More than all of the memory: refused, and the connection goes on.
    let mut kv = server.kv(0);
    let refused = kv.store(b"huge", &vec![1; 32 << 20], StoreOptions::default()).expect_err("too large");
    assert!(refused.status().is_some(), "{refused}");
    kv.store(b"small", b"fits", StoreOptions::default()).expect("store");
    assert_eq!(kv.retrieve(b"small").expect("retrieve").as_deref(), Some(&b"fits"[..]));
    server.end();
}

#[test]
fn keys_of_255_bytes_are_used_as_any_others() {
    let server = Server::start(&["mem:kv:64M"], options());
    let key = |name: u8| vec![name; 255];
    let value = |bytes: usize| -> Vec<u8> { (0..bytes).map(|at| (at * 7 % 251) as u8).collect() };
    for suffix in ["", ",hdgst,ddgst"] {
        let mut kv = server.open(0, suffix).kv(Nsid(1)).expect("pairs");
        for (name, bytes) in (b'a'..).zip([0, 100, 4096, 1 << 20]) {
            let (key, value) = (key(name), value(bytes));
            assert!(!kv.exist(&key).expect("exist"), "{bytes} bytes{suffix}");
            assert_eq!(kv.retrieve(&key).expect("retrieve"), None);
            kv.store(&key, &value, StoreOptions::default()).expect("store");
            assert!(kv.exist(&key).expect("exist"));
            assert_eq!(kv.value_bytes(&key).expect("value_bytes"), Some(bytes as u64));
            assert!(kv.retrieve(&key).expect("retrieve") == Some(value), "{bytes} bytes{suffix}");
        }
        let tail = value(5000);
        kv.append(&key(b'b'), &tail).expect("append");
        assert_eq!(kv.retrieve(&key(b'b')).expect("retrieve"), Some([value(100), tail].concat()));
        kv.store(b"short", b"beside them", StoreOptions::default()).expect("store");
        let mut keys: Vec<_> = kv.list().expect("list").map(|key| key.expect("a key")).collect();
        keys.sort();
        assert_eq!(keys, [key(b'a'), key(b'b'), key(b'c'), key(b'd'), b"short".to_vec()]);
        let with: Vec<_> =
            kv.prefix(&key(b'c')[..40]).expect("prefix").map(|key| key.expect("a key")).collect();
        assert_eq!(with, [key(b'c')]);
        let ops: Vec<_> = keys.iter().map(|key| BatchOp::Delete(key)).collect();
        assert!(kv.batch(&ops[1..]).expect("batch").iter().all(|status| status.is_success()));
        assert!(kv.delete(&key(b'a')).expect("delete") && !kv.delete(&key(b'a')).expect("delete"));
        assert_eq!(kv.list().expect("list").count(), 0);
    }
    server.end();
}

#[test]
fn rude_peers_disturb_nobody() {
    let server = Server::start(&["mem:block:16M"], options());
    let mut block = server.block(0);
    let mut rude: Vec<TcpStream> =
        (0..32).map(|_| TcpStream::connect(server.address()).expect("connect")).collect();
    for (index, stream) in rude.iter_mut().enumerate() {
        match index % 4 {
            // Silent.
            0 => {}
            // Half a header.
            1 => stream.write_all(&[0, 0, 128]).expect("send"),
            // Not NVMe/TCP at all, as long as it is not hung up on.
            2 => drop(stream.write_all(b"GET / HTTP/1.1\r\n\r\n")),
            // A record of TLS, which is not set up.
            _ => drop(stream.write_all(&[0x16, 3, 1, 0, 200])),
        }
    }
    block.write_at(0, &[7; 4096]).expect("write");
    let mut back = [0; 4096];
    block.read_at(0, &mut back).expect("read");
    assert_eq!(back, [7; 4096]);
    // Who wants TLS is told, and hung up on.
    let mut told = Vec::new();
    rude[3].set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    let end = rude[3].read_to_end(&mut told);
    let is_late = end.is_err_and(|e| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert!(!is_late, "it is still connected");
    assert!(told.is_empty() || told[0] == 0x03, "a C2HTermReq: {told:x?}");
    drop(rude);
    server.end();
}

#[test]
fn a_server_ends_in_time_though_hosts_are_connected_and_others_are_silent() {
    let server = Server::start(&["mem:block:16M", "mem:kv:16M"], options());
    let (_block, _kv) = (server.block(0), server.kv(1));
    let _silent = TcpStream::connect(server.address()).expect("connect");
    let started = Instant::now();
    server.end();
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn of_more_connections_than_allowed_the_oldest_that_say_nothing_are_closed() {
    let server = Server::start(&["mem:block:16M"], TcpServeOptions { connections_max: 8, ..options() });
    let silent = || TcpStream::connect(server.address()).expect("connect");
    let streams: Vec<TcpStream> = (0..12).map(|_| silent()).collect();
    let is_closed = |stream: &TcpStream, patience: Duration| {
        stream.set_read_timeout(Some(patience)).expect("a time-out");
        matches!((&mut &*stream).read(&mut [0]), Ok(0))
    };
    let (oldest, others) = streams.split_at(4);
    assert!(oldest.iter().all(|stream| is_closed(stream, Duration::from_secs(60))));
    assert!(!others.iter().any(|stream| is_closed(stream, Duration::from_millis(1))));
    // A host finds its places, and keeps them however many come.
    let mut block = server.block(0);
    let more: Vec<TcpStream> = (0..12).map(|_| silent()).collect();
    assert!(others.iter().all(|stream| is_closed(stream, Duration::from_secs(60))));
    block.write_at(0, &[7; 4096]).expect("write");
    drop(more);
    server.end();
}

/// Processor time of this process, in ticks of a hundredth of a second.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a kernel");
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    let fields: Vec<&str> = rest.split_whitespace().collect();
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}

#[test]
#[ignore = "measures this process, which runs other tests; run it alone"]
fn a_hundred_idle_connections_cost_next_to_nothing() {
    let server = Server::start(&["mem:block:16M"], options());
    let hosts: Vec<Block> = (0..25).map(|_| server.block(0)).collect();
    let queues: Vec<_> = hosts
        .iter()
        .flat_map(|block| (0..3).map(|_| block.queue(&unvme::QueueOptions::default()).expect("a queue")))
        .collect();
    assert_eq!(queues.len() + hosts.len(), 100);
    thread::sleep(Duration::from_millis(500));
    let before = ticks();
    thread::sleep(Duration::from_secs(10));
    let spent = ticks() - before;
    assert!(spent <= 10, "{spent} hundredths of a second in 10 s");
    drop(queues);
    server.end();
}

/// A host that knows nothing but bytes.
struct Host {
    socket: TcpStream,
}

impl Host {
    /// Queue `qid` of a controller; its CNTLID.
    fn connect(server: &Server, qid: u16, cntlid: u16) -> (Self, u16) {
        let socket = TcpStream::connect(server.address()).expect("connect");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
        let mut host = Self { socket };
        // ICReq: HLEN and PLEN are 128.
        let mut greeting = [0; 128];
        (greeting[2], greeting[4]) = (128, 128);
        host.socket.write_all(&greeting).expect("send");
        assert_eq!(host.next().expect("ICResp")[0], 1);
        let nqn = server.names[0].split_once('/').expect("an NQN").1;
        let own = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
        let mut data = [0; 1024];
        data[..16].fill(0x11);
        data[16..18].copy_from_slice(&cntlid.to_le_bytes());
        data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
        data[512..512 + own.len()].copy_from_slice(own.as_bytes());
        host.send([0x7f, 1, 1], [u32::from(qid) << 16, 31 | 4 << 16, 0], &data);
        let response = host.next().expect("a response");
        assert_eq!(u16::from_le_bytes([response[22], response[23]]) >> 1, 0, "Connect");
        let cntlid = u16::from_le_bytes([response[8], response[9]]);
        (host, cntlid)
    }

    /// A command with data in its capsule, or none: opcode, namespace and identifier, and dwords 10 to 12.
    fn send(&mut self, [opcode, nsid, cid]: [u8; 3], dwords: [u32; 3], data: &[u8]) {
        let mut pdu = vec![0; 72];
        (pdu[0], pdu[2], pdu[3]) = (4, 72, if data.is_empty() { 0 } else { 72 });
        pdu[4..8].copy_from_slice(&(72 + data.len() as u32).to_le_bytes());
        let entry = &mut pdu[8..];
        (entry[0], entry[1], entry[2], entry[4]) = (opcode, 0x40, cid, nsid);
        entry[32..36].copy_from_slice(&(data.len() as u32).to_le_bytes());
        entry[39] = if data.is_empty() { 0x5a } else { 0x01 };
        for (at, dword) in dwords.iter().enumerate() {
            entry[40 + at * 4..44 + at * 4].copy_from_slice(&dword.to_le_bytes());
        }
        pdu.extend_from_slice(data);
        self.socket.write_all(&pdu).expect("send");
    }

    /// The next PDU; `None` when the connection is closed.
    fn next(&mut self) -> Option<Vec<u8>> {
        let mut pdu = vec![0; 8];
        self.socket.read_exact(&mut pdu).ok()?;
        let plen = u32::from_le_bytes(pdu[4..8].try_into().expect("4 bytes"));
        pdu.resize(plen as usize, 0);
        self.socket.read_exact(&mut pdu[8..]).ok()?;
        Some(pdu)
    }
}

#[test]
fn what_has_begun_is_answered_before_a_server_ends_though_its_admin_queue_is_idle() {
    let delay = Some(FaultDelay { min: Duration::from_millis(500), max: Duration::from_millis(500) });
    let matching = FaultMatch { queue: Some(1), ..FaultMatch::default() };
    let action = FaultAction { delay, ..FaultAction::default() };
    let faults = vec![FaultRule { matching, action, ..FaultRule::default() }];
    let server = Server::start(&["mem:block:64M,block=512"], TcpServeOptions { faults, ..options() });
    let (mut admin, cntlid) = Host::connect(&server, 0, 0xffff);
    // Property Set of CC: enabled.
    admin.send([0x7f, 0, 2], [0, 0x14, 0x0046_0061], &[]);
    admin.next().expect("a response");
    let (mut io, _) = Host::connect(&server, 1, cntlid);
    for cid in 0..16 {
        io.send([0x01, 1, cid], [0, 0, 0], &[cid; 512]);
    }
    // They are on their way to the media now.
    thread::sleep(Duration::from_millis(100));
    let started = Instant::now();
    server.stop.signal();
    thread::sleep(Duration::from_millis(50));
    // These have come too late.
    for cid in 16..20 {
        io.send([0x01, 1, cid], [0, 0, 0], &[cid; 512]);
    }
    let mut answered: Vec<_> = std::iter::from_fn(|| io.next()).map(|response| response[8 + 12]).collect();
    answered.sort_unstable();
    assert_eq!(answered, (0..16).collect::<Vec<_>>());
    assert_eq!(admin.next(), None);
    server.end();
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

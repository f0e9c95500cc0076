//! A target by hand: bytes are put together here, as the specification has them, and not by our encoder. It
//! does what is right until a script says otherwise.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use unvme_driver::{Controller, ControllerOptions, HostIdentity, Reconnect, TcpTarget};

pub(crate) const NQN: &str = "nqn.2026-01.example:scripted";
/// Bytes of an in-capsule write at most: IOCCSZ of (64 + 4096) / 16.
pub(crate) const IN_CAPSULE_BYTES: usize = 4096;

/// A command as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Capsule {
    pub(crate) sqe: [u8; 64],
    pub(crate) data: Vec<u8>,
}

impl Capsule {
    pub(crate) fn opcode(&self) -> u8 {
        self.sqe[0]
    }

    pub(crate) fn cid(&self) -> u16 {
        u16::from_le_bytes([self.sqe[2], self.sqe[3]])
    }

    pub(crate) fn dword(&self, number: usize) -> u32 {
        u32::from_le_bytes(self.sqe[number * 4..number * 4 + 4].try_into().unwrap())
    }

    /// Length of the SGL descriptor.
    pub(crate) fn bytes(&self) -> u32 {
        self.dword(8)
    }
}

/// What a script has done with a command.
pub(crate) enum Next {
    /// Nothing: it is answered as it should be.
    Honest,
    /// It has been dealt with.
    Done,
    /// The connection is to be closed.
    Close,
}

/// Looks at each command: the connection's queue, and the number of the association.
pub(crate) type Script = dyn Fn(&mut Peer, &Capsule) -> Next + Send + Sync;

/// One connection.
pub(crate) struct Peer {
    stream: TcpStream,
    pub(crate) qid: u16,
    pub(crate) association: u32,
    pub(crate) digests: u8,
    /// CC.SHN has been set.
    is_shut: bool,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    greeting: Mutex<Vec<u8>>,
    stop: AtomicBool,
    /// Accepts and closes at once.
    is_down: AtomicBool,
    associations: AtomicU32,
    queues: AtomicU32,
    open: Mutex<Vec<TcpStream>>,
}

pub(crate) struct Scripted {
    shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

/// ICResp: no digests, MAXH2CDATA of 4096.
pub(crate) fn ic_resp() -> Vec<u8> {
    let mut bytes = vec![0; 128];
    bytes[..8].copy_from_slice(&[0x01, 0, 128, 0, 128, 0, 0, 0]);
    bytes[12..16].copy_from_slice(&4096u32.to_le_bytes());
    bytes
}

impl Scripted {
    pub(crate) fn start(script: impl Fn(&mut Peer, &Capsule) -> Next + Send + Sync + 'static) -> Self {
        Self::greeting(ic_resp(), script)
    }

    /// With an ICResp of the test's own.
    pub(crate) fn greeting(
        greeting: Vec<u8>,
        script: impl Fn(&mut Peer, &Capsule) -> Next + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            script: Box::new(script),
            greeting: Mutex::new(greeting),
            stop: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            associations: AtomicU32::new(0),
            queues: AtomicU32::new(4),
            open: Mutex::default(),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || accept(&listener, &shared))
        };
        Self { shared, address, thread: Some(thread) }
    }

    pub(crate) fn target(&self) -> TcpTarget {
        let host = HostIdentity { nqn: "nqn.2026-01.example:host".to_owned(), id: [7; 16] };
        let mut target = TcpTarget::new("127.0.0.1", self.address.port(), NQN, host);
        target.keep_alive = Duration::ZERO;
        target.reconnect = Reconnect {
            first_delay: Duration::from_millis(5),
            delay_max: Duration::from_millis(50),
            give_up_after: Duration::from_secs(300),
        };
        target
    }

    pub(crate) fn open(&self) -> Controller {
        Controller::open_tcp(self.target(), ControllerOptions::default()).expect("open")
    }

    /// Closes every connection; accepts none while `stays_down`.
    pub(crate) fn cut(&self, stays_down: bool) {
        self.shared.is_down.store(stays_down, Ordering::SeqCst);
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    pub(crate) fn come_back(&self) {
        self.shared.is_down.store(false, Ordering::SeqCst);
    }

    /// Grants so many I/O queues from the next association on.
    pub(crate) fn grant(&self, queues: u32) {
        self.shared.queues.store(queues, Ordering::SeqCst);
    }

    pub(crate) fn associations(&self) -> u32 {
        self.shared.associations.load(Ordering::SeqCst)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.cut(true);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the target's thread");
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut peers = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        if shared.stop.load(Ordering::SeqCst) {
            break;
        }
        if shared.is_down.load(Ordering::SeqCst) {
            continue;
        }
        stream.set_nodelay(true).expect("nodelay");
        shared.open.lock().unwrap().push(stream.try_clone().expect("clone"));
        let shared = Arc::clone(shared);
        peers.push(std::thread::spawn(move || {
            let mut peer = Peer { stream, qid: 0, association: 0, digests: 0, is_shut: false, shared };
            // The end of the stream is how most tests end.
            let _ = peer.run();
            let _ = peer.stream.shutdown(std::net::Shutdown::Both);
        }));
    }
    for peer in peers {
        peer.join().expect("a connection's thread");
    }
}

/// CRC32C, bit by bit.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

impl Peer {
    fn run(&mut self) -> std::io::Result<()> {
        let mut request = [0; 128];
        self.stream.read_exact(&mut request)?;
        assert_eq!(&request[..12], &[0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, request[11]], "an ICReq");
        let greeting = self.shared.greeting.lock().unwrap().clone();
        self.digests = greeting.get(11).copied().unwrap_or(0);
        self.stream.write_all(&greeting)?;
        loop {
            let capsule = self.capsule()?;
            if capsule.opcode() == 0x7f && capsule.sqe[4] == 0x01 {
                self.qid = (capsule.dword(10) >> 16) as u16;
            }
            let shared = Arc::clone(&self.shared);
            match (shared.script)(self, &capsule) {
                Next::Honest => self.honest(&capsule)?,
                Next::Done => {}
                Next::Close => return Ok(()),
            }
        }
    }

    /// The next command, with the data in its capsule. Anything else is a failure of the host.
    fn capsule(&mut self) -> std::io::Result<Capsule> {
        let (header, data) = self.pdu()?;
        if header[0] == 0x02 {
            // A Terminate Request: the host has had enough.
            assert_eq!((header[2], header.len() <= 24), (24, true));
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        assert_eq!(header[0], 0x04, "a command capsule is expected: {header:02x?}");
        Ok(Capsule { sqe: header[8..72].try_into().unwrap(), data })
    }

    /// The next PDU: its header and its data.
    pub(crate) fn pdu(&mut self) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
        let mut header = vec![0; 8];
        self.stream.read_exact(&mut header)?;
        let (hlen, pdo) = (usize::from(header[2]), usize::from(header[3]));
        let plen = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
        let mut rest = vec![0; plen - 8];
        self.stream.read_exact(&mut rest)?;
        header.extend_from_slice(&rest);
        if self.digests & 1 != 0 && header[0] > 3 {
            let sent = u32::from_le_bytes(header[hlen..hlen + 4].try_into().unwrap());
            assert_eq!(sent, crc32c(&header[..hlen]), "the host's header digest");
        }
        let mut data = if pdo == 0 { Vec::new() } else { header[pdo..].to_vec() };
        if self.digests & 2 != 0 && !data.is_empty() && header[0] > 3 {
            let at = data.len() - 4;
            let sent = u32::from_le_bytes(data[at..].try_into().unwrap());
            data.truncate(at);
            assert_eq!(sent, crc32c(&data), "the host's data digest");
        }
        header.truncate(hlen);
        Ok((header, data))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        // A host that has closed is seen by the next read.
        let _ = self.stream.write_all(bytes);
    }

    /// A Response Capsule.
    pub(crate) fn response(&self, cid: u16, status: u16, result: u64) -> Vec<u8> {
        let mut entry = result.to_le_bytes().to_vec();
        entry.extend_from_slice(&[0; 4]);
        entry.extend_from_slice(&cid.to_le_bytes());
        entry.extend_from_slice(&(status << 1).to_le_bytes());
        self.sealed(0x05, 0, &entry, None)
    }

    /// C2HData; flags: 4 is LAST_PDU, 8 SUCCESS.
    pub(crate) fn data(&self, cid: u16, flags: u8, offset: u32, data: &[u8]) -> Vec<u8> {
        let mut fields = cid.to_le_bytes().to_vec();
        fields.extend_from_slice(&[0, 0]);
        fields.extend_from_slice(&offset.to_le_bytes());
        fields.extend_from_slice(&(data.len() as u32).to_le_bytes());
        fields.extend_from_slice(&[0; 4]);
        self.sealed(0x07, flags, &fields, Some(data))
    }

    /// R2T.
    pub(crate) fn r2t(&self, cid: u16, tag: u16, offset: u32, bytes: u32) -> Vec<u8> {
        let mut fields = cid.to_le_bytes().to_vec();
        fields.extend_from_slice(&tag.to_le_bytes());
        fields.extend_from_slice(&offset.to_le_bytes());
        fields.extend_from_slice(&bytes.to_le_bytes());
        fields.extend_from_slice(&[0; 4]);
        self.sealed(0x09, 0, &fields, None)
    }

    /// A PDU with the digests that were agreed on.
    fn sealed(&self, pdu_type: u8, flags: u8, fields: &[u8], data: Option<&[u8]>) -> Vec<u8> {
        let (head_digest, data_digest) = (self.digests & 1 != 0, self.digests & 2 != 0 && data.is_some());
        let hlen = 8 + fields.len();
        let start = hlen + if head_digest { 4 } else { 0 };
        let plen = start + data.map_or(0, <[u8]>::len) + if data_digest { 4 } else { 0 };
        let flags = flags | u8::from(head_digest) | u8::from(data_digest) << 1;
        let mut pdu =
            vec![pdu_type, flags, hlen as u8, if data.is_some() { start as u8 } else { 0 }, 0, 0, 0, 0];
        pdu[4..8].copy_from_slice(&(plen as u32).to_le_bytes());
        pdu.extend_from_slice(fields);
        if head_digest {
            let digest = crc32c(&pdu);
            pdu.extend_from_slice(&digest.to_le_bytes());
        }
        if let Some(data) = data {
            pdu.extend_from_slice(data);
            if data_digest {
                pdu.extend_from_slice(&crc32c(data).to_le_bytes());
            }
        }
        pdu
    }

    /// Asks for a write's data and takes it, in one R2T.
    pub(crate) fn fetch(&mut self, capsule: &Capsule) -> std::io::Result<Vec<u8>> {
        if !capsule.data.is_empty() || capsule.bytes() == 0 {
            return Ok(capsule.data.clone());
        }
        let ask = self.r2t(capsule.cid(), 0x5a5a, 0, capsule.bytes());
        self.send(&ask);
        let mut all = Vec::new();
        while all.len() < capsule.bytes() as usize {
            let (header, data) = self.pdu()?;
            assert_eq!(header[0], 0x06, "H2CData is expected: {header:02x?}");
            assert_eq!(header[8..12], [self.low(capsule.cid()), self.high(capsule.cid()), 0x5a, 0x5a]);
            let offset = u32::from_le_bytes(header[12..16].try_into().unwrap()) as usize;
            assert_eq!((offset, data.len() <= 4096), (all.len(), true), "in order, within MAXH2CDATA");
            all.extend_from_slice(&data);
            assert_eq!(header[1] & 4 != 0, all.len() == capsule.bytes() as usize, "LAST_PDU");
        }
        Ok(all)
    }

    fn low(&self, value: u16) -> u8 {
        value as u8
    }

    fn high(&self, value: u16) -> u8 {
        (value >> 8) as u8
    }

    /// What an honest target answers.
    fn honest(&mut self, capsule: &Capsule) -> std::io::Result<()> {
        let cid = capsule.cid();
        let (mut status, mut result, mut data) = (0, 0, None);
        match (self.qid, capsule.opcode()) {
            (_, 0x7f) => result = self.fabrics(capsule),
            (0, 0x06) => data = Some(identify(capsule.dword(10) as u8)),
            (0, 0x09) if capsule.dword(10) as u8 == 7 => {
                let queues = u64::from(self.shared.queues.load(Ordering::SeqCst)) - 1;
                result = queues | queues << 16;
            }
            (0, 0x0c) => return Ok(()),
            (0, _) => {}
            (_, 0x02) => data = Some(pattern(capsule)),
            (_, 0x01) => {
                self.fetch(capsule)?;
            }
            _ => status = 1,
        }
        let mut answer = Vec::new();
        if let Some(data) = data {
            answer = self.data(cid, 4, 0, &data);
        }
        answer.extend_from_slice(&self.response(cid, status, result));
        self.send(&answer);
        Ok(())
    }

    fn fabrics(&mut self, capsule: &Capsule) -> u64 {
        match capsule.sqe[4] {
            0x01 => {
                assert_eq!(&capsule.data[256..256 + NQN.len()], NQN.as_bytes());
                let count = match self.qid {
                    0 => self.shared.associations.fetch_add(1, Ordering::SeqCst) + 1,
                    _ => self.shared.associations.load(Ordering::SeqCst),
                };
                self.association = count;
                // CNTLID.
                u64::from(count)
            }
            // CAP: MQES 127, TO 2, the NVM Command Set.
            0x04 if capsule.dword(11) == 0 => 127 | 2 << 24 | 1 << 37,
            // VS 2.0.
            0x04 if capsule.dword(11) == 8 => 0x0002_0000,
            // CSTS: RDY, and SHST of a shutdown that is complete.
            0x04 => 1 | u64::from(self.is_shut) << 3,
            0x00 if capsule.dword(11) == 0x14 => {
                self.is_shut = capsule.dword(12) & 0xc000 != 0;
                0
            }
            _ => 0,
        }
    }
}

/// Identify Controller with what the host looks at.
pub(crate) fn identify(cns: u8) -> Vec<u8> {
    let mut data = vec![0; 4096];
    if cns == 1 {
        data[1792..1796].copy_from_slice(&((64 + IN_CAPSULE_BYTES as u32) / 16).to_le_bytes());
        data[1796..1800].copy_from_slice(&1u32.to_le_bytes());
    }
    data
}

/// What a read returns: its first block, again and again.
pub(crate) fn pattern(capsule: &Capsule) -> Vec<u8> {
    vec![capsule.dword(10) as u8 ^ 0xa5; capsule.bytes() as usize]
}

//! A scripted NVMe/TCP host without a socket: it knows bytes and hides nothing of them. What it sends and
//! expects is written down by offsets of the specification, not by the structures the device uses.
// Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub)]

pub mod pdu;
pub mod player;
#[path = "../host/random.rs"]
pub mod random;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use unvme_bus::{Clock, Piece, Room};
use unvme_ssd::fabrics::{Access, FabricsQueue, Peer, PortId, PortOptions, Target, TargetOptions};
use unvme_ssd::tcp::{Connection, Ending, Limits};
use unvme_ssd::{MemoryStore, NamespaceConfig, Ssd, SsdConfig};

pub use pdu::{BLOCK_BYTES, Pdu, Sqe, Wishes};
pub use random::Random;

pub const SUBSYSTEM: &str = "nqn.2026-01.org.example:subsystem";
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:0f6d1d3e-7a9b-4a52-8d3e-5c0a1b2c3d4e";
/// Bytes of the device.
pub const DEVICE_BYTES: u64 = 64 << 20;
/// CC: enabled, 64-byte and 16-byte entries, all command sets.
pub const CC_ENABLED: u64 = 0x0046_0061;
/// Calls in which nothing happens, after which nothing will.
const QUIET_CALLS: usize = 3;

/// A target with one subsystem of one namespace, at port 1.
pub fn target() -> Arc<Target> {
    target_of(TargetOptions::default())
}

/// A device of one namespace.
pub fn device() -> Arc<Ssd> {
    let config = SsdConfig {
        namespaces: vec![NamespaceConfig::blocks(BLOCK_BYTES as u32)],
        ..SsdConfig::block(DEVICE_BYTES, BLOCK_BYTES as u32)
    };
    let store = MemoryStore::new(config.bytes).expect("memory for the media");
    Ssd::new(config, Box::new(store)).expect("a device")
}

/// A device of pairs, with the vendor's commands.
pub fn pairs() -> Arc<Ssd> {
    let config = SsdConfig::kv(DEVICE_BYTES);
    let store = MemoryStore::new(config.store_bytes().expect("a size")).expect("memory for the media");
    Ssd::new(config, Box::new(store)).expect("a device")
}

pub fn target_of(options: TargetOptions) -> Arc<Target> {
    target_for(device(), options)
}

pub fn target_for(device: Arc<Ssd>, options: TargetOptions) -> Arc<Target> {
    let target = Target::new(options);
    target.add_subsystem(SUBSYSTEM, device, Access::Any).expect("a subsystem");
    let port = PortOptions {
        id: PortId(1),
        address: "127.0.0.1".to_owned(),
        service: "4420".to_owned(),
        ..PortOptions::default()
    };
    target.add_port(port).expect("a port");
    target
}

/// One connection, and the host at its other end.
pub struct Wire {
    pub connection: Connection,
    pub clock: Clock,
    pub wishes: Wishes,
    /// CPDA of the controller.
    pub cpda_z: u8,
    /// Bytes that the controller has sent and nobody has looked at.
    pub output: Vec<u8>,
    /// Bytes that are moved by one call at most.
    pub chunk: usize,
    /// Controller of the association, once it is connected.
    pub cntlid: u16,
    next_cid: u16,
}

impl Wire {
    pub fn new(target: &Arc<Target>, limits: Limits) -> Self {
        Self::on(target, limits, Clock::manual())
    }

    pub fn on(target: &Arc<Target>, limits: Limits, clock: Clock) -> Self {
        let queue = FabricsQueue::new(target, PortId(1), Peer::default());
        let connection = Connection::new(queue, limits);
        Self {
            connection,
            clock,
            wishes: Wishes::default(),
            cpda_z: limits.cpda_z,
            output: Vec::new(),
            chunk: usize::MAX,
            cntlid: 0xffff,
            next_cid: 0,
        }
    }

    /// A connection whose initialization is over.
    pub fn greeted(target: &Arc<Target>, limits: Limits, wishes: Wishes) -> Self {
        let mut wire = Self::new(target, limits);
        wire.greet(wishes);
        wire
    }

    /// ICReq, and a look at the ICResp.
    pub fn greet(&mut self, wishes: Wishes) {
        self.feed(&pdu::ic_req(&wishes));
        let answer: Vec<u8> = self.output.drain(..128).collect();
        assert_eq!(answer[..8], [1, 0, 128, 0, 128, 0, 0, 0], "the common header of ICResp");
        self.cpda_z = answer[10];
        self.wishes = wishes;
    }

    /// An admin queue of an enabled controller.
    pub fn admin(target: &Arc<Target>, limits: Limits, wishes: Wishes) -> Self {
        let mut wire = Self::greeted(target, limits, wishes);
        wire.connect(0, 31, 0xffff, 0);
        let enabled = wire.run(Sqe::property_set(0x14, CC_ENABLED), &[]);
        assert_eq!(enabled.status(), 0, "CC.EN");
        wire
    }

    /// An admin queue, and I/O queue 1 of `entries` that does without flow control.
    pub fn pair(target: &Arc<Target>, limits: Limits, wishes: Wishes, entries: u16) -> (Self, Self) {
        let admin = Self::admin(target, limits, wishes);
        let wire = admin.join(target, limits, 1, entries);
        (admin, wire)
    }

    /// Another I/O queue of the association of an admin queue.
    pub fn join(&self, target: &Arc<Target>, limits: Limits, qid: u16, entries: u16) -> Self {
        let mut wire = Self::on(target, limits, self.clock.clone());
        wire.greet(self.wishes);
        wire.connect(qid, entries - 1, self.cntlid, 4);
        wire
    }

    /// Connect; the CNTLID.
    pub fn connect(&mut self, qid: u16, sqsize_z: u16, cntlid: u16, attributes: u8) -> u16 {
        let data = pdu::connect_data(cntlid, SUBSYSTEM, HOST);
        let answer = self.run(Sqe::connect(qid, sqsize_z, attributes), &data);
        assert_eq!(answer.status(), 0, "Connect of queue {qid}");
        self.cntlid = answer.cqe_u32(0) as u16;
        self.cntlid
    }

    pub fn cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    /// A command with its data in the capsule, and its response.
    pub fn run(&mut self, sqe: Sqe, data: &[u8]) -> Pdu {
        let cid = self.cid();
        let sqe = if data.is_empty() { sqe } else { sqe.in_capsule(data.len() as u32) };
        self.feed(&self.capsule(&sqe.cid(cid), data));
        let answer =
            self.next().unwrap_or_else(|| panic!("a response; ended: {:?}", self.connection.ending()));
        assert_eq!((answer.kind(), answer.cid()), (5, cid), "a Response Capsule to this command: {answer:?}");
        answer
    }

    /// The bytes of a Command Capsule, as this connection has it.
    pub fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let mut header = vec![4, 0, 72, 0, 0, 0, 0, 0];
        header.extend_from_slice(&sqe.0);
        self.seal(header, data)
    }

    /// The bytes of H2CData.
    pub fn data(&self, cid: u16, ttag: u16, offset: u32, data: &[u8], is_last: bool) -> Vec<u8> {
        let mut header = vec![6, if is_last { 4 } else { 0 }, 24, 0, 0, 0, 0, 0];
        header.extend_from_slice(&cid.to_le_bytes());
        header.extend_from_slice(&ttag.to_le_bytes());
        header.extend_from_slice(&offset.to_le_bytes());
        header.extend_from_slice(&(data.len() as u32).to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        self.seal(header, data)
    }

    /// Lengths, digests and padding of a PDU whose common header says the rest.
    pub fn seal(&self, mut header: Vec<u8>, data: &[u8]) -> Vec<u8> {
        let hlen = header.len();
        let digest = if self.wishes.header_digest { 4 } else { 0 };
        header[1] |= digest as u8 >> 2;
        let mut plen = hlen + digest;
        if !data.is_empty() {
            let pdo = plen.next_multiple_of(4 * (usize::from(self.cpda_z) + 1));
            header[3] = pdo as u8;
            plen = pdo + data.len() + if self.wishes.data_digest { 4 } else { 0 };
            header[1] |= if self.wishes.data_digest { 2 } else { 0 };
        }
        header[4..8].copy_from_slice(&(plen as u32).to_le_bytes());
        let mut bytes = header;
        if digest > 0 {
            bytes.extend_from_slice(&pdu::crc32c(&bytes).to_le_bytes());
        }
        if !data.is_empty() {
            bytes.resize(usize::from(bytes[3]), 0);
            bytes.extend_from_slice(data);
            if self.wishes.data_digest {
                bytes.extend_from_slice(&pdu::crc32c(data).to_le_bytes());
            }
        }
        bytes
    }

    /// Sends bytes to the controller, lets it work, and takes what it sends, until nothing happens any more.
    /// Returns how many bytes it took: all, unless it has ended or its output is not taken.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        let mut quiet = 0;
        while quiet < QUIET_CALLS {
            let moved = self.give(&bytes[taken..]);
            taken += moved;
            let work = moved + self.connection.advance(&self.clock) + self.take();
            quiet = if work == 0 { quiet + 1 } else { 0 };
        }
        taken
    }

    /// One receive call.
    pub fn give(&mut self, bytes: &[u8]) -> usize {
        let most = bytes.len().min(self.chunk);
        if most == 0 {
            return 0;
        }
        self.connection.receive(|rooms| Ok(fill(rooms, &bytes[..most])))
    }

    /// One send call.
    pub fn take(&mut self) -> usize {
        let (chunk, output) = (self.chunk, &mut self.output);
        self.connection.send(|pieces| Ok(drain(pieces, chunk, output)))
    }

    /// The stream ends.
    pub fn hang_up(&mut self) {
        self.connection.receive(|_| Ok(0));
    }

    /// Nothing arrives for so long.
    pub fn wait(&mut self, time: Duration) {
        self.clock.advance(time);
        self.connection.advance(&self.clock);
    }

    /// The next PDU that the controller has sent.
    pub fn next(&mut self) -> Option<Pdu> {
        let plen = u32::from_le_bytes(self.output.get(4..8)?.try_into().ok()?) as usize;
        (plen >= 8 && self.output.len() >= plen).then(|| Pdu(self.output.drain(..plen).collect()))
    }

    pub fn ending(&self) -> Option<Ending> {
        self.connection.ending()
    }
}

/// Copies bytes into rooms; how many fit.
pub fn fill(rooms: &mut [Room<'_>], bytes: &[u8]) -> usize {
    let mut done = 0;
    for room in rooms {
        done += room.copy_from(0, &bytes[done..]);
    }
    done
}

/// Copies at most `most` bytes out of pieces.
pub fn drain(pieces: &[Piece<'_>], most: usize, output: &mut Vec<u8>) -> usize {
    let start = output.len();
    for piece in pieces {
        let count = piece.len().min(most - (output.len() - start));
        let at = output.len();
        output.resize(at + count, 0);
        piece.copy_to(&mut output[at..]);
    }
    output.len() - start
}

/// A socket that takes nothing.
pub fn would_block<T>() -> io::Result<T> {
    Err(io::ErrorKind::WouldBlock.into())
}

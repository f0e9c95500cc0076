//! A host at the other end of a network, for tests: it makes capsules, and there is no network.
// Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::sync::Arc;

use unvme_bus::Clock;
use unvme_fabric::chap::{Host, Keys, Names, Policy, Step};
use unvme_spec::{Cqe, Sqe, Status};
use unvme_ssd::fabrics::{
    Access, Begun, DataWanted, FabricsQueue, Finished, Peer, PortId, PortOptions, QueueState, SlotId, Target,
    TargetOptions,
};
use unvme_ssd::{MemoryStore, NamespaceConfig, Ssd, SsdConfig};

pub const SUBSYSTEM: &str = "nqn.2026-01.example:disk";
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
pub const PORT: PortId = PortId(1);
/// Data in a capsule, and data that the transport moves.
pub const IN_CAPSULE: u8 = 0x01;
pub const TRANSPORT: u8 = 0x5a;
/// Bytes of media of the devices made here.
pub const MEDIA_BYTES: u64 = 64 << 20;

pub fn device(config: SsdConfig) -> Arc<Ssd> {
    let store = MemoryStore::new(config.store_bytes().unwrap()).expect("memory for the media");
    Ssd::new(config, Box::new(store)).expect("a device")
}

/// 512-byte blocks.
pub fn blocks() -> Arc<Ssd> {
    let namespaces = vec![NamespaceConfig::blocks(512)];
    device(SsdConfig { namespaces, ..SsdConfig::block(MEDIA_BYTES, 512) })
}

pub fn pairs() -> Arc<Ssd> {
    device(SsdConfig::kv(MEDIA_BYTES))
}

pub fn port(id: PortId) -> PortOptions {
    PortOptions { id, address: "192.0.2.1".into(), service: "4420".into(), ..PortOptions::default() }
}

/// One device at one port, for anybody.
pub fn target(device: Arc<Ssd>) -> Arc<Target> {
    target_for(device, Access::Any, TargetOptions::default())
}

pub fn target_for(device: Arc<Ssd>, access: Access, options: TargetOptions) -> Arc<Target> {
    let target = Target::new(options);
    target.add_subsystem(SUBSYSTEM, device, access).expect("a subsystem");
    target.add_port(port(PORT)).expect("a port");
    target
}

/// Connect's data.
pub fn connect_data(subsystem: &str, host: &str, cntlid: u16) -> Vec<u8> {
    let mut data = vec![0; 1024];
    data[0..16].copy_from_slice(&[0x11; 16]);
    data[16..18].copy_from_slice(&cntlid.to_le_bytes());
    data[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
    data[512..512 + host.len()].copy_from_slice(host.as_bytes());
    data
}

pub fn sqe(opcode: u8, nsid: u32) -> Sqe {
    Sqe { opcode, nsid, ..Sqe::default() }
}

/// What a command ends with, and what it sends.
#[derive(Debug)]
pub struct Answer {
    pub cqe: Cqe,
    pub data: Vec<u8>,
}

impl Answer {
    pub fn status(&self) -> Status {
        self.cqe.status().kind()
    }

    pub fn ok(self) -> Vec<u8> {
        assert!(self.cqe.status().is_success(), "{:?}", self.cqe.status());
        self.data
    }

    pub fn result(&self) -> u64 {
        assert!(self.cqe.status().is_success(), "{:?}", self.cqe.status());
        self.cqe.result()
    }
}

/// One connection of a host.
pub struct Line {
    pub queue: FabricsQueue,
    pub clock: Clock,
    pub finished: Vec<Finished>,
    next_cid: u16,
}

impl Line {
    pub fn new(target: &Arc<Target>) -> Self {
        Self::at(target, PORT, &Clock::manual())
    }

    pub fn at(target: &Arc<Target>, port: PortId, clock: &Clock) -> Self {
        Self::of(FabricsQueue::new(target, port, Peer::default()), clock)
    }

    /// A connection to `port`, which the host has reached at the address `local`.
    pub fn reached_at(target: &Arc<Target>, port: PortId, local: &str) -> Self {
        let peer = Peer { local: local.to_owned(), ..Peer::default() };
        Self::of(FabricsQueue::new(target, port, peer), &Clock::manual())
    }

    /// A connection of a host at the address `address`.
    pub fn from(target: &Arc<Target>, address: &str, clock: &Clock) -> Self {
        let peer = Peer { address: address.to_owned(), ..Peer::default() };
        Self::of(FabricsQueue::new(target, PORT, peer), clock)
    }

    fn of(queue: FabricsQueue, clock: &Clock) -> Self {
        Self { queue, clock: clock.clone(), finished: Vec::new(), next_cid: 0x7000 }
    }

    /// An admin queue that has connected, of a controller that is enabled.
    pub fn admin(target: &Arc<Target>) -> Self {
        let mut line = Self::new(target);
        line.connect(0, 0xffff, 31, 0).ok();
        line.enable();
        line
    }

    /// I/O queue `qid` of the association that `admin` began.
    pub fn io(target: &Arc<Target>, admin: &mut Line, qid: u16, sqsize: u16) -> Self {
        let mut line = Self::at(target, PORT, &admin.clock);
        let cntlid = admin.cntlid();
        line.connect(qid, cntlid, sqsize, 0).ok();
        line
    }

    /// CNTLID by Identify Controller.
    pub fn cntlid(&mut self) -> u16 {
        let page = self.identify(1, 0);
        u16::from_le_bytes([page[78], page[79]])
    }

    pub fn identify(&mut self, cns: u32, nsid: u32) -> Vec<u8> {
        self.receive(Sqe { cdw10: cns, ..sqe(0x06, nsid) }, 4096).ok()
    }

    pub fn connect(&mut self, qid: u16, cntlid: u16, sqsize: u16, attributes: u8) -> Answer {
        let data = connect_data(SUBSYSTEM, HOST, cntlid);
        self.send(connect(qid, sqsize, attributes, 0), &data)
    }

    pub fn enable(&mut self) {
        // CC: all command sets, entries of 64 and 16 bytes, EN.
        self.set_property(0x14, 0x0046_0061);
        assert_eq!(self.property(0x1c, 0), 1, "CSTS.RDY");
    }

    pub fn property(&mut self, offset: u32, size: u32) -> u64 {
        let get = Sqe { cdw10: size, cdw11: offset, ..sqe(0x7f, 0x04) };
        self.plain(get).result()
    }

    pub fn set_property(&mut self, offset: u32, value: u32) {
        let set = Sqe { cdw11: offset, cdw12: value, ..sqe(0x7f, 0x00) };
        self.plain(set).ok();
    }

    /// A command without data.
    pub fn plain(&mut self, sqe: Sqe) -> Answer {
        self.run(sqe, TRANSPORT, 0, &[])
    }

    /// A command with data in the capsule.
    pub fn send(&mut self, sqe: Sqe, data: &[u8]) -> Answer {
        self.run(sqe, IN_CAPSULE, data.len() as u32, data)
    }

    /// A command whose data is asked for.
    pub fn transfer(&mut self, sqe: Sqe, data: &[u8]) -> Answer {
        self.run(sqe, TRANSPORT, data.len() as u32, data)
    }

    /// A command whose data comes from the controller, for a buffer of so many bytes.
    pub fn receive(&mut self, sqe: Sqe, bytes: u32) -> Answer {
        self.run(sqe, TRANSPORT, bytes, &[])
    }

    /// The capsule of a command: identifier, flags and SGL are filled in. Returns its identifier, and what
    /// becomes of it.
    pub fn begin(&mut self, mut sqe: Sqe, descriptor: u8, bytes: u32) -> (u16, Begun) {
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = self.next_cid;
        sqe.flags |= 0x40;
        sqe.dptr = [0, u64::from(bytes) | u64::from(descriptor) << 56];
        (sqe.cid, self.queue.begin(&sqe))
    }

    pub fn fill(&mut self, wanted: DataWanted, data: &[u8]) {
        assert_eq!(wanted.bytes as usize, data.len());
        let memory = self.queue.memory(wanted.slot).expect("memory for the data");
        assert_eq!(memory.bytes, data.len());
        memory.region.write(memory.offset, data);
        self.queue.data_arrived(wanted.slot);
    }

    pub fn run(&mut self, sqe: Sqe, descriptor: u8, bytes: u32, data: &[u8]) -> Answer {
        match self.start(sqe, descriptor, bytes, data) {
            Ok(cid) => self.wait_for(cid),
            Err(refused) => refused,
        }
    }

    /// A command with its data: its identifier, or the answer of one that is refused.
    pub fn start(&mut self, sqe: Sqe, descriptor: u8, bytes: u32, data: &[u8]) -> Result<u16, Answer> {
        let (cid, begun) = self.begin(sqe, descriptor, bytes);
        match begun {
            Begun::Run(_) => {}
            Begun::NeedsData(wanted) => self.fill(wanted, data),
            Begun::Refused(cqe) => {
                assert_eq!(cqe.cid, cid);
                return Err(Answer { cqe, data: Vec::new() });
            }
            other => panic!("{other:?}"),
        }
        Ok(cid)
    }

    /// As [`Line::connect`]; `None` when the association ends before there is an answer: a queue that has
    /// ended gives none.
    pub fn connect_unless_ended(&mut self, qid: u16, cntlid: u16, sqsize: u16) -> Option<Answer> {
        let data = connect_data(SUBSYSTEM, HOST, cntlid);
        let cid = match self.start(connect(qid, sqsize, 0, 0), IN_CAPSULE, data.len() as u32, &data) {
            Ok(cid) => cid,
            Err(refused) => return Some(refused),
        };
        while !matches!(self.queue.state(), QueueState::Ended(_)) {
            self.poll();
            if let Some(answer) = self.take(cid) {
                return Some(answer);
            }
        }
        None
    }

    pub fn poll(&mut self) -> usize {
        self.queue.poll(&self.clock, &mut self.finished)
    }

    /// The answer to a command; its slot is free.
    pub fn wait_for(&mut self, cid: u16) -> Answer {
        for _ in 0..1000 {
            if let Some(answer) = self.take(cid) {
                return answer;
            }
            self.poll();
        }
        panic!("no answer to command {cid:#x}: {:?}", self.queue);
    }

    pub fn take(&mut self, cid: u16) -> Option<Answer> {
        let at = self.finished.iter().position(|finished| finished.cqe.cid == cid)?;
        let finished = self.finished.remove(at);
        let mut data = vec![0; finished.bytes as usize];
        if !data.is_empty() {
            let memory = self.queue.memory(finished.slot).expect("memory of the data");
            assert!(data.len() <= memory.bytes);
            memory.region.read(memory.offset, &mut data);
        }
        self.queue.release(finished.slot);
        Some(Answer { cqe: finished.cqe, data })
    }

    pub fn slot_of(begun: Begun) -> SlotId {
        match begun {
            Begun::Run(slot) | Begun::Waits(slot) => slot,
            Begun::NeedsData(wanted) => wanted.slot,
            other => panic!("{other:?}"),
        }
    }
}

/// Connect for a queue of `sqsize` + 1 entries.
pub fn connect(qid: u16, sqsize: u16, attributes: u8, kato_ms: u32) -> Sqe {
    Sqe {
        cdw10: u32::from(qid) << 16,
        cdw11: u32::from(sqsize) | u32::from(attributes) << 16,
        cdw12: kato_ms,
        ..sqe(0x7f, 0x01)
    }
}

pub fn read(block: u32, blocks: u32) -> Sqe {
    Sqe { cdw10: block, cdw12: blocks - 1, ..sqe(0x02, 1) }
}

pub fn write(block: u32, blocks: u32) -> Sqe {
    Sqe { cdw10: block, cdw12: blocks - 1, ..sqe(0x01, 1) }
}

/// SECP E9h, SPSP1 and SPSP0 01h.
pub fn security(fctype: u32, bytes: u32) -> Sqe {
    Sqe { cdw10: 0xe901_0100, cdw11: bytes, ..sqe(0x7f, fctype) }
}

/// Carries messages until the host is done with its proof.
pub fn authenticate(line: &mut Line, names: Names, keys: Keys, policy: Policy) -> Step {
    let mut host = Host::new(names, keys, policy, 1);
    loop {
        match host.step() {
            Step::Send(message) => {
                let bytes = message.len() as u32;
                line.run(security(0x05, bytes), IN_CAPSULE, bytes, &message).ok();
            }
            Step::Receive { bytes } => {
                let message = line.run(security(0x06, bytes), TRANSPORT, bytes, &[]).ok();
                host.received(&message);
            }
            done => return done,
        }
    }
}

/// Bytes of memory that this process has.
pub fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("of every process");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("pages") * 4096
}

/// Bytes that say where they come from.
pub fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| seed ^ (i as u8) ^ ((i >> 8) as u8).wrapping_mul(31)).collect()
}

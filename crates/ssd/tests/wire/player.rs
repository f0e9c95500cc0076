//! A host with many commands under way, next to an array that has what the device should have.

use std::collections::{BTreeMap, VecDeque};

use super::{BLOCK_BYTES, Pdu, Random, Sqe, Wire};

/// Blocks that it uses.
pub const BLOCKS: u64 = 1024;

/// A command under way.
struct Doing {
    lba: u64,
    blocks: u64,
    /// What is written, or what a read has to bring.
    data: Vec<u8>,
    is_read: bool,
    /// Bytes that a read has brought.
    arrived: usize,
    /// R2Ts that are not answered with all their data.
    open: u32,
    /// Bytes that were asked for.
    asked: u32,
}

/// Data that an R2T asked for and that is not sent yet.
struct Owed {
    cid: u16,
    ttag: u16,
    next: u32,
    end: u32,
}

/// Random reads, writes and flushes on a connection, at most `depth` at a time and never two that touch the
/// same block.
pub struct Player {
    pub random: Random,
    pub depth: usize,
    /// MAXH2CDATA of the controller.
    pub h2c_bytes_max: u32,
    /// Most bytes of a command.
    pub bytes_max: u64,
    disk: Vec<u8>,
    doing: BTreeMap<u16, Doing>,
    owed: Vec<Owed>,
    /// Everything that was sent.
    pub sent: Vec<u8>,
    queue: VecDeque<u8>,
    next_cid: u16,
    pub finished: usize,
}

impl Player {
    pub fn new(random: Random, depth: usize, h2c_bytes_max: u32) -> Self {
        Self {
            random,
            depth,
            h2c_bytes_max,
            bytes_max: 64 << 10,
            disk: vec![0; BLOCKS as usize * BLOCK_BYTES],
            doing: BTreeMap::new(),
            owed: Vec::new(),
            sent: Vec::new(),
            queue: VecDeque::new(),
            next_cid: 0,
            finished: 0,
        }
    }

    /// Runs `count` commands to their end.
    pub fn play(&mut self, wire: &mut Wire, count: usize) {
        let goal = self.finished + count;
        let mut idle = 0;
        while self.finished < goal {
            while self.doing.len() < self.depth && self.finished + self.doing.len() < goal {
                if !self.start(wire) {
                    break;
                }
                if self.random.below(4) == 0 {
                    break;
                }
            }
            self.answer(wire);
            let given = self.give(wire);
            let done = given + wire.connection.advance(&wire.clock) + wire.take();
            while let Some(pdu) = wire.next() {
                self.look(wire, &pdu);
            }
            idle = if done == 0 { idle + 1 } else { 0 };
            assert!(idle < 1000, "nothing goes on: {:?}, {} under way", wire.ending(), self.doing.len());
        }
    }

    /// Sends some of what is queued, in one call.
    fn give(&mut self, wire: &mut Wire) -> usize {
        if self.queue.is_empty() {
            return 0;
        }
        let most = match self.random.below(4) {
            0 => 1 + self.random.below(100) as usize,
            1 => 1 + self.random.below(10_000) as usize,
            _ => usize::MAX,
        };
        let bytes = self.queue.make_contiguous();
        let given = wire.give(&bytes[..bytes.len().min(most)]);
        self.sent.extend(self.queue.drain(..given));
        given
    }

    /// Begins a command on blocks that no other one touches.
    fn start(&mut self, wire: &Wire) -> bool {
        let most = (self.bytes_max / BLOCK_BYTES as u64).min(BLOCKS);
        let blocks =
            1 + if self.random.below(2) == 0 { self.random.below(8) } else { self.random.below(most) };
        let blocks = blocks.min(most);
        let lba = self.random.below(BLOCKS - blocks + 1);
        if self.doing.values().any(|other| lba < other.lba + other.blocks && other.lba < lba + blocks) {
            return false;
        }
        self.next_cid = self.next_cid.wrapping_add(1);
        let cid = self.next_cid;
        let range = lba as usize * BLOCK_BYTES..(lba + blocks) as usize * BLOCK_BYTES;
        let mut doing =
            Doing { lba, blocks, data: Vec::new(), is_read: false, arrived: 0, open: 0, asked: 0 };
        match self.random.below(8) {
            0 => {
                doing.blocks = 0;
                self.queue.extend(wire.capsule(&Sqe::flush().cid(cid), &[]));
            }
            1..4 => {
                doing.is_read = true;
                doing.data = self.disk[range].to_vec();
                self.queue.extend(wire.capsule(&Sqe::read(lba, blocks as u32).cid(cid), &[]));
            }
            _ => {
                let data = self.random.bytes(range.len());
                self.disk[range].copy_from_slice(&data);
                let sqe = Sqe::write(lba, blocks as u32).cid(cid);
                let is_small = data.len() <= 8192 && self.random.below(4) != 0;
                let (sqe, with) = match is_small {
                    true => (sqe.in_capsule(data.len() as u32), data.as_slice()),
                    false => (sqe.transported(data.len() as u32), &[][..]),
                };
                self.queue.extend(wire.capsule(&sqe, with));
                doing.data = data;
            }
        }
        self.doing.insert(cid, doing);
        true
    }

    /// Queues some of the data that was asked for.
    fn answer(&mut self, wire: &Wire) {
        while !self.owed.is_empty() && self.random.below(4) != 0 {
            let index = self.random.below(self.owed.len() as u64) as usize;
            let owed = &mut self.owed[index];
            let left = (owed.end - owed.next).min(self.h2c_bytes_max);
            let bytes =
                if self.random.below(2) == 0 { left } else { 1 + self.random.below(u64::from(left)) as u32 };
            let end = owed.next + bytes;
            let doing = self.doing.get_mut(&owed.cid).expect("data for a command under way");
            let data = &doing.data[owed.next as usize..end as usize];
            self.queue.extend(wire.data(owed.cid, owed.ttag, owed.next, data, end == owed.end));
            owed.next = end;
            if end == owed.end {
                doing.open -= 1;
                self.owed.swap_remove(index);
            }
        }
    }

    fn look(&mut self, wire: &Wire, pdu: &Pdu) {
        if wire.wishes.header_digest {
            pdu.check_header_digest();
        }
        let cid = pdu.cid();
        let doing = self.doing.get_mut(&cid).unwrap_or_else(|| panic!("a command under way: {pdu:?}"));
        match pdu.kind() {
            9 => {
                let (ttag, offset, bytes) = pdu.r2t();
                assert_eq!(offset, doing.asked, "each byte is asked for once, in order");
                doing.asked += bytes;
                doing.open += 1;
                assert!(doing.open <= wire.wishes.maxr2t_z + 1, "R2Ts outstanding");
                assert!(doing.asked as usize <= doing.data.len(), "R2Ts beyond the data");
                self.owed.push(Owed { cid, ttag, next: offset, end: offset + bytes });
            }
            7 => {
                assert!(doing.is_read);
                let alignment = 4 * (usize::from(wire.wishes.hpda_z) + 1);
                assert!(usize::from(pdu.0[3]).is_multiple_of(alignment), "PDO {}", pdu.0[3]);
                let (offset, data) = pdu.payload();
                assert_eq!(offset as usize, doing.arrived);
                assert_eq!(data, &doing.data[doing.arrived..doing.arrived + data.len()], "what was written");
                doing.arrived += data.len();
                assert_eq!(pdu.flags() & 4 != 0, doing.arrived == doing.data.len(), "LAST_PDU");
                if pdu.flags() & 8 != 0 {
                    self.end(cid);
                }
            }
            5 => {
                assert_eq!(pdu.status(), 0);
                self.end(cid);
            }
            other => panic!("type {other:#x}"),
        }
    }

    fn end(&mut self, cid: u16) {
        let doing = self.doing.remove(&cid).expect("a command under way");
        if doing.is_read {
            assert_eq!(doing.arrived, doing.data.len(), "all data before the response");
        }
        assert_eq!(doing.open, 0, "no response before the data that was asked for");
        self.finished += 1;
    }
}

//! What the targets that drive a whole virtual SSD share: reading the fuzzer's input, and a host's registers
//! and rings.
// Each target uses a part of it.
#![allow(dead_code, unused_imports)]

pub mod input;

use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use input::Input;
use unvme_bus::{Clock, Dma, DmaAccess, Function, Region};
use unvme_spec::{Cqe, Sqe};
use unvme_ssd::Ssd;

pub const CC: u64 = 0x14;
pub const CSTS: u64 = 0x1c;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
/// 64-byte and 16-byte entries, 4 KiB pages, all command sets, weighted round robin, enabled.
const CC_ENABLED: u32 = 0x0046_0861;

/// Addresses of the host's queues: numbers that no other address in an input is near.
pub const SUBMISSION_AT: u64 = 0x6b1d_0000_0000;
pub const COMPLETION_AT: u64 = 0x7c2e_0000_0000;
/// Bytes of the memory of the submission and of the completion queues.
pub const QUEUES_BYTES: usize = 8192;
/// Queue 1 begins here in its region, queue 0 at the beginning.
const SECOND: usize = 4096;
/// What completion queues are filled with before use: an entry of it has the phase tag of nobody's first lap.
const BLANK: u8 = 0;

/// Entries of a queue: 0 is the admin queue.
pub const ENTRIES: [(u32, u32); 2] = [(32, 32), (64, 16)];

/// A host of two queue pairs in memory of its own, which the device may read (submission) or write
/// (completion) only.
pub struct Host {
    pub ssd: Arc<Ssd>,
    pub clock: Clock,
    pub submission: Region,
    pub completion: Region,
    doorbells: Region,
    /// Where the next completion of each queue will be, and the phase tag it will have.
    next: [(u32, bool); 2],
    cid: u16,
}

impl Host {
    /// A host at a device that is not enabled. The regions are used again by the next one.
    pub fn attach(ssd: Arc<Ssd>, submission: Region, completion: Region) -> Self {
        submission.fill(0, QUEUES_BYTES, 0);
        ssd.dma_map(SUBMISSION_AT, &submission, DmaAccess::READ_ONLY).unwrap();
        ssd.dma_map(COMPLETION_AT, &completion, DmaAccess { read: false, write: true }).unwrap();
        let doorbells = ssd.bar(0).unwrap().unwrap().windows[0].region.clone();
        let next = [(0, true); 2];
        Self { ssd, clock: Clock::manual(), submission, completion, doorbells, next, cid: 0 }
    }

    pub fn read32(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.ssd.bar_read(0, offset, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    pub fn write32(&self, offset: u64, value: u32) {
        self.ssd.bar_write(0, offset, &value.to_le_bytes()).unwrap();
    }

    pub fn write64(&self, offset: u64, value: u64) {
        self.ssd.bar_write(0, offset, &value.to_le_bytes()).unwrap();
    }

    pub fn is_enabled(&self) -> bool {
        self.read32(CC) & 1 == 1 && self.read32(CSTS) & 0b11 == 1
    }

    /// Controller reset and bring-up, whatever was before.
    pub fn enable(&mut self) {
        self.write32(CC, 0);
        assert_eq!(self.read32(CSTS) & 0b11, 0, "CSTS.RDY and CSTS.CFS after CC.EN was cleared");
        self.completion.fill(0, QUEUES_BYTES, BLANK);
        self.next = [(0, true); 2];
        let (submission, completion) = ENTRIES[0];
        self.write32(AQA, (completion - 1) << 16 | (submission - 1));
        self.write64(ASQ, SUBMISSION_AT);
        self.write64(ACQ, COMPLETION_AT);
        self.write32(CC, CC_ENABLED);
        assert_eq!(self.read32(CSTS) & 0b11, 1, "CSTS.RDY after CC.EN was set");
    }

    /// An admin command at the place of the queue that the device looks at next, and its completion.
    pub fn admin_at(&mut self, index: u32, sqe: Sqe) -> Cqe {
        let cid = self.write(0, index, sqe);
        self.ring_tail(0, (index + 1) % ENTRIES[0].0);
        self.advance(None);
        let cqe = self.take(0).expect("an admin command is answered");
        self.acknowledge(0);
        assert_eq!(cqe.cid, cid);
        cqe
    }

    /// Creates queue pair 1, as the first two commands after [`Host::enable`].
    pub fn create_queue_pair(&mut self) {
        let (submission, completion) = ENTRIES[1];
        let create = |opcode, at, entries: u32, cdw11| Sqe {
            opcode,
            dptr: [at + SECOND as u64, 0],
            cdw10: (entries - 1) << 16 | 1,
            cdw11,
            ..Sqe::default()
        };
        let cqe = self.admin_at(0, create(0x05, COMPLETION_AT, completion, 0b01));
        assert!(cqe.status().is_success(), "Create I/O Completion Queue: {}", cqe.status());
        let cqe = self.admin_at(1, create(0x01, SUBMISSION_AT, submission, 1 << 16 | 0b01));
        assert!(cqe.status().is_success(), "Create I/O Submission Queue: {}", cqe.status());
    }

    /// Offset of a submission queue entry in its region.
    fn entry(queue: usize, index: u32) -> usize {
        queue * SECOND + index as usize * 64
    }

    /// Writes an entry with a new command identifier, which is returned.
    pub fn write(&mut self, queue: usize, index: u32, mut sqe: Sqe) -> u16 {
        self.cid = self.cid.wrapping_add(1);
        sqe.cid = self.cid;
        self.submission.write_words::<8>(Self::entry(queue, index), zerocopy::transmute!(sqe));
        sqe.cid
    }

    /// The entry as it is in memory.
    pub fn entry_at(&self, queue: usize, index: u32) -> Sqe {
        zerocopy::transmute!(self.submission.read_words::<8>(Self::entry(queue, index)))
    }

    pub fn ring_tail(&self, queue: usize, value: u32) {
        self.ring(queue * 2, value);
    }

    /// Doorbells are numbered as they lie in memory: tail 0, head 0, tail 1 and so on.
    pub fn ring(&self, doorbell: usize, value: u32) {
        self.doorbells.store_u32(doorbell * 4, value, Ordering::Release);
    }

    pub fn advance(&self, lane: Option<u16>) -> usize {
        self.ssd.advance(lane, &self.clock)
    }

    /// The next completion of a queue, without ringing its doorbell.
    pub fn take(&mut self, queue: usize) -> Option<Cqe> {
        let (index, phase) = self.next[queue];
        let words = self.completion.read_words::<2>(queue * SECOND + index as usize * 16);
        let cqe: Cqe = zerocopy::transmute!(words);
        if cqe.phase() != phase {
            return None;
        }
        let index = (index + 1) % ENTRIES[queue].1;
        self.next[queue] = (index, phase ^ (index == 0));
        Some(cqe)
    }

    /// Frees the entries that were taken.
    pub fn acknowledge(&self, queue: usize) {
        self.ring(queue * 2 + 1, self.next[queue].0);
    }

    /// Identify Controller, on queues that were just made: the device is itself.
    pub fn check_identity(&mut self, data: u64, memory: &Region, offset: usize) {
        let identify = Sqe { opcode: 0x06, dptr: [data, 0], cdw10: 1, ..Sqe::default() };
        let cqe = self.admin_at(2, identify);
        assert!(cqe.status().is_success(), "Identify Controller: {}", cqe.status());
        let mut ids = [0; 4];
        memory.read(offset, &mut ids);
        assert_eq!(ids, [0x36, 0x1b, 0x36, 0x1b], "PCI vendor identifiers");
    }
}

//! A small NVMe host for tests: it knows addresses, entries and doorbells, and hides nothing of them.
// Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub)]

pub mod blocks;
pub mod pairs;
pub mod placement;
pub mod random;
pub mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use unvme_bus::{Clock, Dma, DmaAccess, Function, Region};
use unvme_spec::{Cqe, Sqe, Status};
use unvme_ssd::{MemoryStore, NamespaceConfig, Ssd, SsdConfig, Store};

/// I/O virtual address of the host's memory.
pub const BASE: u64 = 0x1_0000_0000;
/// Bytes of the host's memory.
pub const MEMORY_BYTES: usize = 16 << 20;
/// Offset of the data buffers; queues are before it.
pub const DATA: usize = 8 << 20;
/// Bytes of media of the devices made here.
pub const MEDIA_BYTES: u64 = 64 << 20;

const ADMIN_ENTRIES: u32 = 32;
/// Each queue has this much of the memory: enough for 1024 submission entries.
const QUEUE_BYTES: usize = 64 << 10;
/// Where PRP lists are built.
const LISTS: usize = MEMORY_BYTES - (1 << 20);

struct Ring {
    offset: usize,
    entries: u32,
    index: u32,
    phase: bool,
    /// Of a submission queue: where the device was when it last said so.
    head: u32,
}

pub struct Host {
    pub ssd: Arc<Ssd>,
    pub memory: Region,
    pub clock: Clock,
    doorbells: Region,
    submission: BTreeMap<u16, Ring>,
    completion: BTreeMap<u16, Ring>,
    next_cid: u16,
}

/// A configuration with one namespace of `block_bytes` over all of [`MEDIA_BYTES`].
pub fn config(block_bytes: u32) -> SsdConfig {
    SsdConfig {
        namespaces: vec![NamespaceConfig::blocks(block_bytes)],
        ..SsdConfig::block(MEDIA_BYTES, block_bytes)
    }
}

/// A device in memory.
pub fn device(config: SsdConfig) -> Arc<Ssd> {
    let store = MemoryStore::new(config.bytes).expect("memory for the media");
    device_on(config, Box::new(store))
}

pub fn device_on(config: SsdConfig, store: Box<dyn Store>) -> Arc<Ssd> {
    Ssd::new(config, store).expect("a device")
}

/// A host at a new device in memory, not enabled yet.
pub fn attached(config: SsdConfig) -> Host {
    Host::attach(device(config))
}

impl Host {
    /// A host and a device of 64 MiB, enabled, with I/O queue pair 1 of 64 entries.
    pub fn with_queues(block_bytes: u32) -> Self {
        let mut host = Self::started(block_bytes);
        host.create_queue_pair(1, 64);
        host
    }

    /// A host and a device of 64 MiB, enabled.
    pub fn started(block_bytes: u32) -> Self {
        let mut host = Self::attach(device(config(block_bytes)));
        host.enable();
        host
    }

    /// A host at a device it has not enabled yet.
    pub fn attach(ssd: Arc<Ssd>) -> Self {
        let memory = Region::anonymous(MEMORY_BYTES).expect("memory for the host");
        ssd.dma_map(BASE, &memory, DmaAccess::READ_WRITE).expect("a mapping");
        let doorbells = ssd.bar(0).expect("a BAR").expect("BAR 0").windows[0].region.clone();
        let (submission, completion) = (BTreeMap::new(), BTreeMap::new());
        Self { ssd, memory, clock: Clock::manual(), doorbells, submission, completion, next_cid: 0 }
    }

    /// Sets up the admin queue and CC (64-byte and 16-byte entries, 4 KiB pages), and expects CSTS.RDY.
    pub fn enable(&mut self) {
        self.enable_with(0);
    }

    /// The same with other bits of CC as well.
    pub fn enable_with(&mut self, more: u32) {
        self.set_admin_queue();
        self.write32(0x14, 0x0046_0001 | more);
        assert_eq!(self.read32(0x1c) & 1, 1, "CSTS.RDY after CC.EN");
    }

    /// Writes AQA, ASQ and ACQ.
    pub fn set_admin_queue(&mut self) {
        self.write32(0x24, (ADMIN_ENTRIES - 1) << 16 | (ADMIN_ENTRIES - 1));
        self.write64(0x28, BASE);
        self.write64(0x30, BASE + QUEUE_BYTES as u64);
        self.forget_queues();
        self.know_completion(0, ADMIN_ENTRIES);
        self.know_submission(0, ADMIN_ENTRIES);
    }

    /// Clears CC.EN.
    pub fn disable(&mut self) {
        self.write32(0x14, 0x0046_0000);
        assert_eq!(self.read32(0x1c) & 1, 0, "CSTS.RDY after clearing CC.EN");
        self.forget_queues();
    }

    pub fn forget_queues(&mut self) {
        self.submission.clear();
        self.completion.clear();
    }

    pub fn read32(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.ssd.bar_read(0, offset, &mut bytes).expect("a register");
        u32::from_le_bytes(bytes)
    }

    pub fn read64(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.ssd.bar_read(0, offset, &mut bytes).expect("a register");
        u64::from_le_bytes(bytes)
    }

    pub fn write32(&self, offset: u64, value: u32) {
        self.ssd.bar_write(0, offset, &value.to_le_bytes()).expect("a register");
    }

    pub fn write64(&self, offset: u64, value: u64) {
        self.ssd.bar_write(0, offset, &value.to_le_bytes()).expect("a register");
    }

    /// Offset in the host's memory of a submission queue.
    pub fn submission_offset(qid: u16) -> usize {
        usize::from(qid) * 2 * QUEUE_BYTES
    }

    /// Offset in the host's memory of a completion queue.
    pub fn completion_offset(qid: u16) -> usize {
        Self::submission_offset(qid) + QUEUE_BYTES
    }

    /// Makes the host keep track of a queue that the device has been told to create at its usual place.
    pub fn know_submission(&mut self, qid: u16, entries: u32) {
        let offset = Self::submission_offset(qid);
        self.submission.insert(qid, Ring { offset, entries, index: 0, phase: true, head: 0 });
    }

    pub fn know_completion(&mut self, qid: u16, entries: u32) {
        let offset = Self::completion_offset(qid);
        self.memory.fill(offset, entries as usize * 16, 0);
        self.completion.insert(qid, Ring { offset, entries, index: 0, phase: true, head: 0 });
    }

    /// Create I/O Completion Queue at its usual place, physically contiguous, interrupts on vector `qid`.
    pub fn create_cq(&mut self, qid: u16, entries: u32) -> Result<u64, Status> {
        let mut sqe = sqe(0x05, 0);
        sqe.dptr = [BASE + Self::completion_offset(qid) as u64, 0];
        sqe.cdw10 = (entries - 1) << 16 | u32::from(qid);
        sqe.cdw11 = u32::from(qid) << 16 | 0b11;
        let answer = self.admin(sqe)?;
        self.know_completion(qid, entries);
        Ok(answer)
    }

    /// Create I/O Submission Queue at its usual place, physically contiguous, completing to `cqid`.
    pub fn create_sq(&mut self, qid: u16, cqid: u16, entries: u32) -> Result<u64, Status> {
        self.create_sq_of(qid, cqid, entries, 0)
    }

    /// The same with a priority class.
    pub fn create_sq_of(&mut self, qid: u16, cqid: u16, entries: u32, class: u32) -> Result<u64, Status> {
        let mut sqe = sqe(0x01, 0);
        sqe.dptr = [BASE + Self::submission_offset(qid) as u64, 0];
        sqe.cdw10 = (entries - 1) << 16 | u32::from(qid);
        sqe.cdw11 = u32::from(cqid) << 16 | class << 1 | 1;
        let answer = self.admin(sqe)?;
        self.know_submission(qid, entries);
        Ok(answer)
    }

    pub fn create_queue_pair(&mut self, qid: u16, entries: u32) {
        self.create_cq(qid, entries).expect("a completion queue");
        self.create_sq(qid, qid, entries).expect("a submission queue");
    }

    /// Writes an entry with a new command identifier, without ringing the doorbell.
    pub fn push(&mut self, qid: u16, mut sqe: Sqe) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = self.next_cid;
        let ring = self.submission.get_mut(&qid).expect("a submission queue");
        self.memory.write_words::<8>(ring.offset + ring.index as usize * 64, zerocopy::transmute!(sqe));
        ring.index = (ring.index + 1) % ring.entries;
        sqe.cid
    }

    /// The device has said how far it is.
    pub fn taken(&mut self, qid: u16, head: u16) {
        self.submission.get_mut(&qid).expect("a submission queue").head = head.into();
    }

    /// Entries that were pushed since then.
    pub fn waiting(&self, qid: u16) -> u32 {
        let ring = &self.submission[&qid];
        (ring.index + ring.entries - ring.head) % ring.entries
    }

    /// Rings a tail doorbell for all entries pushed.
    pub fn ring(&self, qid: u16) {
        self.ring_tail(qid, self.submission[&qid].index);
    }

    pub fn ring_tail(&self, qid: u16, value: u32) {
        self.doorbells.store_u32(usize::from(qid) * 8, value, Ordering::Release);
    }

    pub fn ring_head(&self, qid: u16, value: u32) {
        self.doorbells.store_u32(usize::from(qid) * 8 + 4, value, Ordering::Release);
    }

    /// Lets the device work on every queue.
    pub fn advance(&self) -> usize {
        self.ssd.advance(None, &self.clock)
    }

    /// The next completion, if there is one, without freeing its entry.
    pub fn peek(&self, cqid: u16) -> Option<Cqe> {
        let ring = &self.completion[&cqid];
        let words = self.memory.read_words::<2>(ring.offset + ring.index as usize * 16);
        let cqe: Cqe = zerocopy::transmute!(words);
        (cqe.phase() == ring.phase).then_some(cqe)
    }

    /// Takes the next completion and rings the head doorbell.
    pub fn poll(&mut self, cqid: u16) -> Option<Cqe> {
        let cqe = self.peek(cqid)?;
        let ring = self.completion.get_mut(&cqid).expect("a completion queue");
        ring.index = (ring.index + 1) % ring.entries;
        ring.phase ^= ring.index == 0;
        let head = ring.index;
        self.ring_head(cqid, head);
        Some(cqe)
    }

    /// Executes one command on a queue pair whose queues have the same number and returns its completion.
    pub fn execute(&mut self, qid: u16, sqe: Sqe) -> Cqe {
        let cid = self.push(qid, sqe);
        self.ring(qid);
        self.advance();
        let cqe = self.poll(qid).expect("a completion");
        assert_eq!((cqe.cid, cqe.sq_id), (cid, qid), "the completion is another command's");
        cqe
    }

    /// Executes an admin command: its result, or type and code of its status.
    pub fn admin(&mut self, sqe: Sqe) -> Result<u64, Status> {
        outcome(self.execute(0, sqe))
    }

    /// Executes a command on I/O queue pair 1: its result, or type and code of its status.
    pub fn io(&mut self, sqe: Sqe) -> Result<u64, Status> {
        outcome(self.execute(1, sqe))
    }

    /// Executes an admin command with a buffer at the start of the data area, and returns its first `bytes`.
    pub fn admin_in(&mut self, mut sqe: Sqe, bytes: usize) -> Result<Vec<u8>, Status> {
        self.memory.fill(DATA, bytes, 0xee);
        self.set_prps(&mut sqe, DATA, bytes);
        self.admin(sqe)?;
        Ok(self.bytes(DATA, bytes))
    }

    pub fn bytes(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.memory.read(offset, &mut data);
        data
    }

    /// Points PRP1 and PRP2, with a list of 4 KiB pages when it takes one, to `bytes` of the host's memory.
    pub fn set_prps(&self, sqe: &mut Sqe, offset: usize, bytes: usize) {
        let first = 4096 - offset % 4096;
        let pages: Vec<u64> =
            (offset + first..offset + bytes.max(first)).step_by(4096).map(|at| BASE + at as u64).collect();
        let second = match pages.len() {
            0 => 0,
            1 => pages[0],
            count => {
                assert!(count <= 512, "one list page");
                for (index, page) in pages.iter().enumerate() {
                    self.memory.store_u64(LISTS + index * 8, *page, Ordering::Relaxed);
                }
                BASE + LISTS as u64
            }
        };
        sqe.dptr = [BASE + offset as u64, second];
    }
}

/// An entry with nothing but an opcode and a namespace.
pub fn sqe(opcode: u8, nsid: u32) -> Sqe {
    Sqe { opcode, nsid, ..Sqe::default() }
}

/// Result of a completion, or type and code of its status.
pub fn outcome(cqe: Cqe) -> Result<u64, Status> {
    if cqe.status().is_success() { Ok(cqe.result()) } else { Err(cqe.status().kind()) }
}

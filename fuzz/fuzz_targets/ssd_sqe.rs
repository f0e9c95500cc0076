//! A host that does anything: raw commands on the admin queue and on an I/O queue, with data pointers to
//! anywhere, any doorbell values, register writes, memory that comes and goes.
//!
//! The device never panics, touches no memory that is not mapped for it, answers every command it takes
//! exactly once, and works again after a controller reset.
//!
//! Input: steps, each a byte that says what and the step's own bytes; see `Run::step`.
#![no_main]

use std::collections::VecDeque;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use unvme_bus::{Dma, DmaAccess, Function, Region};
use unvme_spec::{Cqe, Sqe};
use unvme_ssd::{MemoryStore, NamespaceConfig, NamespaceKind, Ssd, SsdConfig};

#[path = "../rig/mod.rs"]
mod rig;
use rig::{CC, ENTRIES, Host, Input, QUEUES_BYTES};

const MEDIA_BYTES: u64 = 40 << 20;
/// Namespace 1 has blocks, this one pairs, and there is room for more.
const PAIRS: u32 = 2;
/// Opcodes of the Key Value command set and of the vendor's.
const PAIR_OPCODES: [u8; 16] =
    [0x00, 0x01, 0x01, 0x02, 0x06, 0x10, 0x14, 0x81, 0x81, 0x83, 0x85, 0x90, 0xa1, 0xb1, 0xb2, 0xb3];
const GUARD: u8 = 0xa5;
const GUARD_BYTES: usize = 16 << 10;
/// Memory the device may read and write, between two guards, and behind it memory that it may only read.
const OPEN_BYTES: usize = 128 << 10;
const READABLE_BYTES: usize = 64 << 10;
const OPEN_AT: u64 = 0x5000_0000;
const READABLE_AT: u64 = OPEN_AT + OPEN_BYTES as u64;
/// Memory that a step may map anywhere.
const SPARE_BYTES: usize = 16 << 10;

const AER: u8 = 0x0c;
const DELETE_SQ: u8 = 0x00;
const DELETE_CQ: u8 = 0x04;

static MEMORY: LazyLock<Memory> = LazyLock::new(|| Memory {
    open: Region::anonymous(OPEN_BYTES + 2 * GUARD_BYTES).unwrap(),
    readable: Region::anonymous(READABLE_BYTES).unwrap(),
    spare: Region::anonymous(SPARE_BYTES).unwrap(),
    submission: Region::anonymous(QUEUES_BYTES).unwrap(),
    completion: Region::anonymous(QUEUES_BYTES).unwrap(),
});

struct Memory {
    open: Region,
    readable: Region,
    spare: Region,
    submission: Region,
    completion: Region,
}

/// An address that a device will find worth trying: mostly mapped, often near an edge. Never in the host's
/// own queues: a host that has them overwritten cannot be asked what it saw.
fn address(input: &mut Input) -> u64 {
    let (kind, offset) = (input.u8(), u64::from(input.u16()));
    let page = offset << 12;
    match kind & 0x0f {
        0..=4 => OPEN_AT + page % OPEN_BYTES as u64,
        5 | 6 => OPEN_AT + offset,
        7 => OPEN_AT + OPEN_BYTES as u64 - offset % 8192,
        8 => READABLE_AT + page % READABLE_BYTES as u64,
        9 => READABLE_AT + offset,
        10 => READABLE_AT + READABLE_BYTES as u64 - offset % 8192,
        11 => OPEN_AT.wrapping_sub(offset),
        12 => u64::MAX - offset,
        13 => offset,
        14 => 1 << (offset & 63),
        _ => input.u64() & !(0x7fff << 40),
    }
}

/// An SGL descriptor or a pair of PRPs.
fn pointer(input: &mut Input) -> [u64; 2] {
    let kind = input.u8();
    let first = address(input);
    let second = match kind & 1 {
        0 => address(input),
        _ => u64::from(input.word()) | u64::from(kind & 0xfe) << 55,
    };
    [first, second]
}

fn command(input: &mut Input) -> Sqe {
    let sqe = any_command(input);
    if sqe.nsid != PAIRS {
        return sqe;
    }
    let kind = input.u8();
    Sqe {
        opcode: if kind & 0x80 == 0 { PAIR_OPCODES[usize::from(kind & 0x0f)] } else { sqe.opcode },
        // The key of one command set, the keyspace of the other.
        cdw2: input.word(),
        cdw3: if kind & 0x40 == 0 { u32::from(kind >> 4 & 3) } else { input.word() },
        mptr: input.word().into(),
        cdw15: input.word(),
        ..sqe
    }
}

fn any_command(input: &mut Input) -> Sqe {
    Sqe {
        opcode: input.u8(),
        flags: input.u8(),
        nsid: match input.u8() {
            255 => u32::MAX,
            n => (n % 131).into(),
        },
        dptr: pointer(input),
        cdw10: input.word(),
        cdw11: input.word(),
        cdw12: input.word(),
        cdw13: input.word(),
        cdw14: input.word(),
        ..Sqe::default()
    }
}

/// What the host knows of queue 0, the only one whose commands may wait.
#[derive(Default)]
struct AdminModel {
    head: u32,
    /// Taken and to be answered now.
    due: VecDeque<u16>,
    /// Asynchronous Event Requests: to be answered some time, or never.
    waiting: Vec<u16>,
}

struct Run {
    host: Host,
    admin: AdminModel,
    /// Where the device is in queue 1; `None` once the host has deleted it.
    io_head: Option<u32>,
    has_cq: bool,
    tails: [u32; 2],
    open_is_mapped: bool,
    readable: Vec<u8>,
}

impl Run {
    fn start() -> Self {
        let memory = &*MEMORY;
        memory.open.fill(0, memory.open.len(), GUARD);
        memory.readable.fill(0, READABLE_BYTES, 0);
        let store = MemoryStore::new(MEDIA_BYTES).unwrap();
        let namespaces = vec![
            NamespaceConfig { bytes: Some(4 << 20), kind: NamespaceKind::Blocks(512) },
            NamespaceConfig { bytes: Some(16 << 20), kind: NamespaceKind::KeyValue },
        ];
        let config = SsdConfig { namespaces, ..SsdConfig::block(MEDIA_BYTES, 512) };
        let ssd = Ssd::new(config, Box::new(store)).unwrap();
        ssd.dma_map(READABLE_AT, &memory.readable, DmaAccess::READ_ONLY).unwrap();
        let host = Host::attach(ssd, memory.submission.clone(), memory.completion.clone());
        let mut run = Self {
            host,
            admin: AdminModel::default(),
            io_head: None,
            has_cq: false,
            tails: [0; 2],
            open_is_mapped: false,
            readable: vec![0; READABLE_BYTES],
        };
        run.map_open();
        run.bring_up();
        run
    }

    fn map_open(&mut self) {
        let open = MEMORY.open.slice(GUARD_BYTES, OPEN_BYTES);
        // Fails when a step has mapped the spare memory here.
        self.open_is_mapped = self.host.ssd.dma_map(OPEN_AT, &open, DmaAccess::READ_WRITE).is_ok();
    }

    fn bring_up(&mut self) {
        self.host.enable();
        self.host.create_queue_pair();
        self.admin = AdminModel { head: 2, ..AdminModel::default() };
        (self.io_head, self.has_cq) = (Some(0), true);
        self.tails = [2, 0];
    }

    fn step(&mut self, input: &mut Input) {
        let what = input.u8();
        match what & 0x0f {
            0..=2 => self.push(1, command(input)),
            3 | 4 => self.push(0, command(input)),
            5 => {
                let mut bytes = [0; 64];
                let given = input.take(64);
                bytes[..given.len()].copy_from_slice(given);
                let mut sqe: Sqe = zerocopy::transmute!(bytes);
                sqe.dptr = sqe.dptr.map(|word| word & !(0x7fff << 40));
                self.push(usize::from(what >> 7), sqe);
            }
            6 | 7 => {
                // What was pushed is rung, on both queues.
                self.host.ring_tail(0, self.tails[0]);
                self.host.ring_tail(1, self.tails[1]);
                self.advance(None);
            }
            8 => {
                let doorbell = usize::from(what >> 4);
                self.host.ring(doorbell, input.word());
                self.advance(if input.u8() & 1 == 0 { None } else { Some(doorbell as u16 / 2) });
            }
            9 => {
                self.host.acknowledge(0);
                self.host.acknowledge(1);
            }
            10 => self.bait(input),
            11 => self.write_registers(input),
            12 => self.enable_oddly(input),
            13 => self.remap(what, input),
            14 => {
                let (offset, value) = (usize::from(input.u16()), input.u32());
                let _ = self.host.ssd.config_write(offset, &value.to_le_bytes());
                self.look();
            }
            // Long enough without work for the device to look at every doorbell there is.
            _ if what >> 4 == 1 => (0..1100).for_each(|_| self.advance(None)),
            _ => self.host.clock.advance(std::time::Duration::from_micros(input.u16().into())),
        }
    }

    fn push(&mut self, queue: usize, sqe: Sqe) {
        let entries = ENTRIES[queue].0;
        // An entry that the device has not taken yet stays what it is.
        let head = if queue == 0 { self.admin.head } else { self.io_head.unwrap_or(0) };
        if (self.tails[queue] + 1) % entries == head {
            return;
        }
        self.host.write(queue, self.tails[queue], sqe);
        self.tails[queue] = (self.tails[queue] + 1) % entries;
    }

    fn advance(&mut self, lane: Option<u16>) {
        self.host.advance(lane);
        while let Some(cqe) = self.host.take(0) {
            self.admin_completed(cqe);
        }
        assert!(self.admin.due.is_empty(), "a command was taken and not answered");
        while self.has_cq
            && let Some(cqe) = self.host.take(1)
        {
            self.io_completed(cqe);
        }
    }

    fn admin_completed(&mut self, cqe: Cqe) {
        assert_eq!(cqe.sq_id, 0, "a completion on the admin queue");
        assert!(u32::from(cqe.sq_head) < ENTRIES[0].0);
        while self.admin.head != u32::from(cqe.sq_head) {
            let sqe = self.host.entry_at(0, self.admin.head);
            match sqe.opcode {
                AER => self.admin.waiting.push(sqe.cid),
                _ => self.admin.due.push_back(sqe.cid),
            }
            self.admin.head = (self.admin.head + 1) % ENTRIES[0].0;
        }
        if let Some(at) = self.admin.waiting.iter().position(|&cid| cid == cqe.cid) {
            self.admin.waiting.remove(at);
            return;
        }
        assert_eq!(self.admin.due.pop_front(), Some(cqe.cid), "answered in order and once");
        // The command that was answered is the last one taken.
        let last = (self.admin.head + ENTRIES[0].0 - 1) % ENTRIES[0].0;
        let sqe = self.host.entry_at(0, last);
        if cqe.status().is_success() && sqe.cdw10 & 0xffff == 1 {
            match sqe.opcode {
                DELETE_SQ => self.io_head = None,
                DELETE_CQ => self.has_cq = false,
                _ => {}
            }
        }
    }

    fn io_completed(&mut self, cqe: Cqe) {
        // Queues that the input has created may complete here too.
        let (1, Some(head)) = (cqe.sq_id, self.io_head) else { return };
        assert_eq!(cqe.cid, self.host.entry_at(1, head).cid, "answered in order and once");
        let head = (head + 1) % ENTRIES[1].0;
        assert_eq!(u32::from(cqe.sq_head), head);
        self.io_head = Some(head);
    }

    /// Lays out PRP lists, SGL segments and entries of queues to be.
    fn bait(&mut self, input: &mut Input) {
        let (place, count) = (usize::from(input.u16()) * 16, input.u8() & 31);
        for index in 0..usize::from(count) {
            let words = pointer(input);
            let at = place + index * 16;
            if place & 0x8000 == 0 {
                MEMORY.open.write_words(GUARD_BYTES + at % OPEN_BYTES, words);
            } else {
                let at = at % READABLE_BYTES;
                MEMORY.readable.write_words(at, words);
                self.readable[at..at + 8].copy_from_slice(&words[0].to_le_bytes());
                self.readable[at + 8..at + 16].copy_from_slice(&words[1].to_le_bytes());
            }
        }
    }

    fn write_registers(&mut self, input: &mut Input) {
        let (kind, offset) = (input.u8(), u64::from(input.u16()));
        let offset = match kind & 3 {
            0 => offset % 0x40,
            1 => 0x1000 + offset % 0x20,
            _ => offset,
        };
        let length = 1 << (kind >> 4 & 7);
        let mut bytes = input.take(length).to_vec();
        bytes.resize(length, 0);
        let _ = self.host.ssd.bar_write(0, offset, &bytes);
        // A doorbell may be what was written.
        self.look();
        self.advance(None);
    }

    /// Starts again when the last step has stopped the controller.
    fn look(&mut self) {
        if !self.host.is_enabled() {
            self.host.advance(None);
            self.bring_up();
        }
    }

    /// A controller with admin queues anywhere, of any size.
    fn enable_oddly(&mut self, input: &mut Input) {
        self.host.write32(CC, 0);
        self.host.write32(0x24, input.word());
        self.host.write64(0x28, address(input));
        self.host.write64(0x30, address(input));
        self.host.write32(CC, input.word() | 1);
        self.host.ring_tail(0, input.word());
        self.host.advance(None);
        self.host.ring(1, input.word());
        self.host.advance(Some(0));
        self.bring_up();
    }

    fn remap(&mut self, what: u8, input: &mut Input) {
        match what >> 4 & 3 {
            0 if self.open_is_mapped => {
                self.open_is_mapped = self.host.ssd.dma_unmap(OPEN_AT, OPEN_BYTES as u64).is_err();
            }
            0 | 1 => self.map_open(),
            2 => {
                let at = address(input) & !0xfff;
                let _ = self.host.ssd.dma_map(at, &MEMORY.spare, DmaAccess::READ_WRITE);
            }
            _ => {
                let _ = self.host.ssd.dma_unmap(address(input) & !0xfff, SPARE_BYTES as u64);
                self.open_is_mapped = false;
                self.map_open();
            }
        }
    }

    /// Nothing is left over, and the device is alive.
    fn finish(mut self) {
        // A valid tail, and room: everything is taken, one command at a time if need be, whatever the
        // doorbells said.
        for _ in 0..ENTRIES[1].0 {
            self.step(&mut Input::new(&[9]));
            self.step(&mut Input::new(&[6]));
        }
        if let Some(head) = self.io_head.filter(|_| self.has_cq) {
            assert_eq!(head, self.tails[1], "the I/O queue stands still");
        }
        self.check_memory();
        self.host.enable();
        self.host.create_queue_pair();
        if self.open_is_mapped {
            self.host.check_identity(OPEN_AT, &MEMORY.open, GUARD_BYTES);
            self.check_memory();
        }
    }

    fn check_memory(&self) {
        let mut bytes = vec![0; GUARD_BYTES];
        for start in [0, GUARD_BYTES + OPEN_BYTES] {
            MEMORY.open.read(start, &mut bytes);
            assert!(bytes.iter().all(|&byte| byte == GUARD), "the device wrote outside its mapping");
        }
        let mut bytes = vec![0; READABLE_BYTES];
        MEMORY.readable.read(0, &mut bytes);
        assert!(bytes == self.readable, "the device wrote to memory it may only read");
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let mut run = Run::start();
    while !input.is_empty() {
        run.step(&mut input);
    }
    run.finish();
});

//! PRP lists and SGL segments laid out by the input, walked by the device and by the model below: the device
//! moves the bytes that the list names and no others, or none at all, and answers with the status that the
//! model gives.
//!
//! Input: steps. Bit 7 of the first byte set: a command on queue 1; clear: words to lay out, for lists and
//! segments.
#![no_main]

use std::sync::{LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use unvme_bus::{Dma, DmaAccess, Region};
use unvme_spec::Sqe;
use unvme_ssd::{MemoryStore, Ssd, SsdConfig, Store};

#[path = "../rig/mod.rs"]
mod rig;
use rig::{ENTRIES, Host, Input, QUEUES_BYTES};

const MEDIA_BYTES: u64 = 4 << 20;
const BLOCK: usize = 512;
const PAGE: u64 = 4096;

// Status codes as the specification numbers them (Base, figure 102): type in bits 10:8, code in bits 7:0.
const SUCCESS: u16 = 0x000;
const INVALID_FIELD: u16 = 0x002;
const DATA_TRANSFER_ERROR: u16 = 0x004;
const INVALID_SGL_SEGMENT: u16 = 0x00d;
const INVALID_SGL_COUNT: u16 = 0x00e;
const DATA_SGL_LENGTH_INVALID: u16 = 0x00f;
const SGL_TYPE_INVALID: u16 = 0x011;
const PRP_OFFSET_INVALID: u16 = 0x013;
const COMPARE_FAILURE: u16 = 0x285;

/// Limits of the device: descriptors and segments of one command.
const DESCRIPTORS_MAX: u32 = 4096;
const SEGMENTS_MAX: u32 = 256;

const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const COMPARE: u8 = 0x05;

/// Where host memory is: three areas in a row, the third of which the device may only read, and one that it
/// may only write. First address, bytes, readable, writable.
const AREAS: [(u64, usize, bool, bool); 4] = [
    (0x1000_0000, 64 << 10, true, true),
    (0x1001_0000, 64 << 10, true, true),
    (0x1002_0000, 32 << 10, true, false),
    (0x2000_0000, 32 << 10, false, true),
];

/// More would only make an input slow: each is compared with the model byte for byte.
const COMMANDS_MAX: u32 = 8;

/// Memory before and behind each area that the device must not touch.
const GUARD_BYTES: usize = 4096;

struct Bench {
    host: Host,
    /// Each area with its guards.
    areas: Vec<Region>,
    media: Region,
    tail: u32,
}

static BENCH: LazyLock<Mutex<Bench>> = LazyLock::new(|| Mutex::new(Bench::new()));

impl Bench {
    fn new() -> Self {
        let store = MemoryStore::new(MEDIA_BYTES).unwrap();
        // A new device's one namespace has the media's chunks in their order.
        let media = store.memory().unwrap().clone();
        let ssd = Ssd::new(SsdConfig::block(MEDIA_BYTES, BLOCK as u32), Box::new(store)).unwrap();
        let area = |&(at, bytes, read, write): &(u64, usize, bool, bool)| {
            let region = Region::anonymous(bytes + 2 * GUARD_BYTES).unwrap();
            ssd.dma_map(at, &region.slice(GUARD_BYTES, bytes), DmaAccess { read, write }).unwrap();
            region
        };
        let areas = AREAS.iter().map(area).collect();
        let queues = || Region::anonymous(QUEUES_BYTES).unwrap();
        let mut host = Host::attach(ssd, queues(), queues());
        host.enable();
        host.create_queue_pair();
        let mut bench = Self { host, areas, media, tail: 0 };
        bench.fill_media();
        bench
    }

    /// Every block is written once: it has space, and contents of its own.
    fn fill_media(&mut self) {
        let (at, bytes, ..) = AREAS[0];
        for start in (0..MEDIA_BYTES as usize).step_by(bytes) {
            for word in (0..bytes).step_by(8) {
                let value = ((start + word) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                self.areas[0].write_words(GUARD_BYTES + word, [value]);
            }
            let sqe = transfer(WRITE, start / BLOCK, bytes / BLOCK, 0x40, [at, bytes as u64]);
            assert_eq!(self.execute(sqe), SUCCESS);
        }
    }

    /// Type and code of the status.
    fn execute(&mut self, sqe: Sqe) -> u16 {
        let cid = self.host.write(1, self.tail, sqe);
        self.tail = (self.tail + 1) % ENTRIES[1].0;
        self.host.ring_tail(1, self.tail);
        assert_eq!(self.host.advance(Some(1)), 1);
        let cqe = self.host.take(1).expect("a command is answered");
        self.host.acknowledge(1);
        assert_eq!((cqe.cid, u32::from(cqe.sq_head)), (cid, self.tail));
        cqe.status_phase >> 1 & 0x7ff
    }

    fn snapshot(&self) -> Memory {
        let read = |region: &Region| {
            let mut bytes = vec![0; region.len()];
            region.read(0, &mut bytes);
            bytes
        };
        Memory(self.areas.iter().map(read).collect())
    }

    fn check(&mut self, sqe: Sqe, before: Memory) {
        let bytes = (sqe.cdw12 as usize + 1) * BLOCK;
        let at = sqe.cdw10 as usize * BLOCK;
        let mut media = vec![0; bytes];
        self.media.read(at, &mut media);
        let mut expected = before;
        let walked =
            Walk { memory: &expected, writes: sqe.opcode == READ, left: bytes, pieces: Vec::new() }.run(&sqe);
        let status = match walked {
            Ok(pieces) => expected.apply(sqe.opcode, &pieces, &mut media),
            Err(status) => status,
        };
        assert_eq!(self.execute(sqe), status, "{sqe:x?}");
        assert!(self.snapshot().0 == expected.0, "host memory after {sqe:x?}");
        let mut after = vec![0; bytes];
        self.media.read(at, &mut after);
        assert!(after == media, "media after {sqe:x?}");
    }
}

fn transfer(opcode: u8, lba: usize, blocks: usize, flags: u8, dptr: [u64; 2]) -> Sqe {
    Sqe { opcode, flags, nsid: 1, dptr, cdw10: lba as u32, cdw12: blocks as u32 - 1, ..Sqe::default() }
}

/// The areas' bytes, guards included.
struct Memory(Vec<Vec<u8>>);

impl Memory {
    /// Area and index of a byte that the device may access.
    fn find(&self, address: u64, writes: bool) -> Option<(usize, usize)> {
        AREAS.iter().enumerate().find_map(|(area, &(at, bytes, readable, writable))| {
            let allowed = if writes { writable } else { readable };
            let offset = address.checked_sub(at).filter(|&offset| offset < bytes as u64 && allowed)?;
            Some((area, GUARD_BYTES + offset as usize))
        })
    }

    fn load<const N: usize>(&self, address: u64) -> Result<[u8; N], u16> {
        let mut bytes = [0; N];
        for (at, byte) in (0..).zip(&mut bytes) {
            let address = address.checked_add(at).ok_or(DATA_TRANSFER_ERROR)?;
            let (area, index) = self.find(address, false).ok_or(DATA_TRANSFER_ERROR)?;
            *byte = self.0[area][index];
        }
        Ok(bytes)
    }

    fn apply(&mut self, opcode: u8, pieces: &[(u64, usize)], media: &mut [u8]) -> u16 {
        let mut same = true;
        let addresses = pieces.iter().flat_map(|&(at, bytes)| at..at + bytes as u64);
        for (address, byte) in addresses.zip(media) {
            let (area, index) = self.find(address, opcode == READ).expect("walked");
            let host = &mut self.0[area][index];
            match opcode {
                READ => *host = *byte,
                WRITE => *byte = *host,
                _ => same &= host == byte,
            }
        }
        if same { SUCCESS } else { COMPARE_FAILURE }
    }
}

/// The model: one rule of the specification after the other, a byte at a time.
struct Walk<'a> {
    memory: &'a Memory,
    writes: bool,
    left: usize,
    pieces: Vec<(u64, usize)>,
}

impl Walk<'_> {
    fn run(mut self, sqe: &Sqe) -> Result<Vec<(u64, usize)>, u16> {
        match sqe.flags >> 6 {
            0 => self.prp(sqe.dptr)?,
            3 => return Err(INVALID_FIELD),
            _ => self.sgl(sqe.dptr)?,
        }
        Ok(self.pieces)
    }

    fn add(&mut self, address: u64, bytes: usize) -> Result<(), u16> {
        let reachable = (0..bytes as u64)
            .all(|i| address.checked_add(i).is_some_and(|at| self.memory.find(at, self.writes).is_some()));
        if !reachable {
            return Err(DATA_TRANSFER_ERROR);
        }
        self.left -= bytes;
        self.pieces.push((address, bytes));
        Ok(())
    }

    fn prp(&mut self, [first, second]: [u64; 2]) -> Result<(), u16> {
        if first % 4 != 0 {
            return Err(PRP_OFFSET_INVALID);
        }
        self.add(first, self.left.min((PAGE - first % PAGE) as usize))?;
        if self.left == 0 {
            return Ok(());
        }
        let is_list = self.left > PAGE as usize;
        if second % if is_list { 8 } else { PAGE } != 0 {
            return Err(PRP_OFFSET_INVALID);
        }
        if !is_list {
            return self.add(second, self.left);
        }
        let mut entry = second;
        while self.left > 0 {
            let value = u64::from_le_bytes(self.memory.load(entry)?);
            if value % PAGE != 0 {
                return Err(PRP_OFFSET_INVALID);
            }
            if entry % PAGE == PAGE - 8 && self.left > PAGE as usize {
                entry = value;
            } else {
                self.add(value, self.left.min(PAGE as usize))?;
                entry += 8;
            }
        }
        Ok(())
    }

    fn sgl(&mut self, dptr: [u64; 2]) -> Result<(), u16> {
        let (mut descriptor, mut seen) = (dptr, 0u32);
        for _ in 0..SEGMENTS_MAX {
            let [address, word] = descriptor;
            let (length, kind, sub) = (word as u32, word >> 60, word >> 56 & 0xf);
            if kind != 2 && kind != 3 {
                self.data(descriptor)?;
                return self.end();
            }
            if sub != 0 {
                return Err(SGL_TYPE_INVALID);
            }
            if length == 0 || length % 16 != 0 {
                return Err(INVALID_SGL_SEGMENT);
            }
            seen = seen.saturating_add(length / 16);
            if seen > DESCRIPTORS_MAX {
                return Err(INVALID_SGL_COUNT);
            }
            let mut next = None;
            for index in 0..u64::from(length / 16) {
                let at = address.checked_add(index * 16).ok_or(DATA_TRANSFER_ERROR)?;
                let bytes: [u8; 16] = self.memory.load(at)?;
                let entry: [u64; 2] = zerocopy::transmute!(bytes);
                match entry[1] >> 60 {
                    2 | 3 if kind == 3 || index + 1 < u64::from(length / 16) => {
                        return Err(INVALID_SGL_SEGMENT);
                    }
                    2 | 3 => next = Some(entry),
                    _ => self.data(entry)?,
                }
            }
            match next {
                Some(next) => descriptor = next,
                None if kind == 3 => return self.end(),
                None => return Err(INVALID_SGL_SEGMENT),
            }
        }
        Err(INVALID_SGL_COUNT)
    }

    fn data(&mut self, [address, word]: [u64; 2]) -> Result<(), u16> {
        if word >> 56 != 0 {
            return Err(SGL_TYPE_INVALID);
        }
        self.add(address, self.left.min(word as u32 as usize))
    }

    fn end(&self) -> Result<(), u16> {
        if self.left == 0 { Ok(()) } else { Err(DATA_SGL_LENGTH_INVALID) }
    }
}

/// Mostly a page of an area, or near the end of one.
fn address(input: &mut Input) -> u64 {
    let kind = input.u8();
    let page = u64::from(input.u8());
    match kind >> 4 {
        0..=5 => AREAS[0].0 + page % 42 * PAGE,
        6 | 7 => AREAS[3].0 + page % 9 * PAGE,
        8..=11 => AREAS[0].0 + page % 42 * PAGE + u64::from(input.u16()),
        12 => AREAS[usize::from(kind & 3)].0 + AREAS[usize::from(kind & 3)].1 as u64 - page * 4,
        13 => AREAS[0].0 + page % 42 * PAGE + (PAGE - 8),
        14 => u64::MAX - page * 8,
        _ => input.u64(),
    }
}

/// Length and type of an SGL descriptor.
fn length(input: &mut Input) -> u64 {
    let kind = input.u8();
    let length = match kind & 3 {
        0 => u32::from(input.u8()) * 16,
        1 => u32::from(input.u8()) * 512,
        _ => input.word(),
    };
    let kind = match kind >> 2 & 7 {
        0..=3 => 0x00,
        4 => 0x20,
        5 | 6 => 0x30,
        _ => input.u8(),
    };
    u64::from(length) | u64::from(kind) << 56
}

fn lay_out(bench: &Bench, what: u8, input: &mut Input) {
    let area = usize::from(what & 3);
    let (start, count) = (usize::from(input.u16()) * 8, input.u8());
    for index in 0..usize::from(count) {
        let word = match what >> 2 & 3 {
            0 => address(input),
            1 | 2 if index % 2 == 1 => length(input),
            1 | 2 => address(input),
            _ => input.u64(),
        };
        let at = (start + index * 8) % AREAS[area].1;
        bench.areas[area].write_words(GUARD_BYTES + at, [word]);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bench = BENCH.lock().unwrap();
    let mut input = Input::new(data);
    // What is in memory at first depends on nothing but the input.
    for (area, &(_, bytes, ..)) in bench.areas.iter().zip(&AREAS) {
        area.fill(0, bytes + 2 * GUARD_BYTES, 0x5a);
    }
    let mut commands = 0;
    while !input.is_empty() && commands < COMMANDS_MAX {
        let what = input.u8();
        if what & 0x80 == 0 {
            lay_out(&bench, what, &mut input);
            continue;
        }
        commands += 1;
        let blocks = 1 + usize::from(input.u16()) % 256;
        let lba = usize::from(input.u16()) % (MEDIA_BYTES as usize / BLOCK - blocks);
        let dptr =
            [address(&mut input), if what & 0x60 == 0 { address(&mut input) } else { length(&mut input) }];
        let flags = (what & 0x60) << 1;
        let opcode = [READ, WRITE, COMPARE, READ][usize::from(what & 3)];
        let before = bench.snapshot();
        bench.check(transfer(opcode, lba, blocks, flags, dptr), before);
    }
});

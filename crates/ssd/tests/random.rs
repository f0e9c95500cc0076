//! Random commands: legal ones against a model, hostile ones against everything that must not happen.

mod host;

use std::ops::Range;
use std::sync::Arc;

use host::random::Random;
use host::{BASE, DATA, Host, attached, config, device, sqe};
use unvme_bus::{Dma, DmaAccess, Region};
use unvme_spec::{Sqe, Status};
use unvme_ssd::Ssd;

/// What a namespace should contain.
struct Model {
    data: Vec<u8>,
    bad: Vec<bool>,
    block_bytes: usize,
}

/// A read, a write or a comparison through PRPs from anywhere in a page, or through an SGL of several pieces.
fn point_to_data(host: &Host, random: &mut Random, sqe: &mut Sqe, bytes: usize) -> Vec<(usize, usize)> {
    if random.below(2) == 0 {
        let offset = DATA + random.below(1024) as usize * 4;
        host.set_prps(sqe, offset, bytes);
        return vec![(offset, bytes)];
    }
    let mut pieces = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let length = if pieces.len() < 7 { 1 + random.below(left as u64) as usize } else { left };
        // A megabyte for each, so that they do not overlap.
        pieces.push((DATA + pieces.len() * (512 << 10) + random.below(5000) as usize, length));
        left -= length;
    }
    let list = DATA - 4096 + random.below(64) as usize * 16;
    for (index, &(offset, length)) in pieces.iter().enumerate() {
        host.memory.write_words(list + index * 16, [BASE + offset as u64, length as u64]);
    }
    sqe.flags = 0x40;
    sqe.dptr = [BASE + list as u64, (pieces.len() * 16) as u64 | 0x30 << 56];
    pieces
}

/// Blocks of a command, and where the model keeps them.
struct Target {
    marks: Range<usize>,
    bytes: Range<usize>,
    fits: bool,
}

impl Model {
    /// Executes a random command and compares the answer, and data, with the model's.
    fn check(&mut self, host: &mut Host, random: &mut Random) {
        let blocks = self.bad.len();
        let count = 1 + random.below(random.0 % 64 + 1) as usize;
        let lba = (random.below(blocks as u64 + 4) as usize).min(blocks + 1);
        let target = Target {
            marks: lba..lba + count,
            bytes: lba * self.block_bytes..(lba + count) * self.block_bytes,
            fits: lba + count <= blocks,
        };
        let opcode =
            random.pick(&[0x01, 0x01, 0x01, 0x02, 0x02, 0x02, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0c, 0x00]);
        let command = Sqe { cdw10: lba as u32, cdw12: count as u32 - 1, ..sqe(opcode, 1) };
        let answer = match opcode {
            0x00 => return assert_eq!(host.io(sqe(0x00, 1)), Ok(0)),
            0x01 | 0x02 | 0x05 => return self.check_data(host, random, command, target),
            0x09 => {
                host.memory.write_words(DATA, [(count as u64) << 32, lba as u64]);
                host.io(Sqe { cdw11: 0b100, dptr: [BASE + DATA as u64, 0], ..sqe(0x09, 1) })
            }
            _ => host.io(command),
        };
        assert_eq!(
            answer,
            self.expected(&target, opcode == 0x0c),
            "opcode {opcode:#x}, {count} blocks at {lba}"
        );
        if target.fits && opcode != 0x0c {
            let uncorrectable = opcode == 0x04;
            self.bad[target.marks].fill(uncorrectable);
            if !uncorrectable {
                self.data[target.bytes].fill(0);
            }
        }
    }

    /// The status of a command that does or does not look at its blocks.
    fn expected(&self, target: &Target, looks: bool) -> Result<u64, Status> {
        match target.fits {
            false => Err(Status::LBA_OUT_OF_RANGE),
            true if looks && self.bad[target.marks.clone()].contains(&true) => {
                Err(Status::UNRECOVERED_READ_ERROR)
            }
            true => Ok(0),
        }
    }

    /// Write (01h), Read (02h) and Compare (05h).
    fn check_data(&mut self, host: &mut Host, random: &mut Random, mut sqe: Sqe, target: Target) {
        let length = target.bytes.len();
        let pieces = point_to_data(host, random, &mut sqe, length);
        let same = sqe.opcode == 0x05 && target.fits && random.below(4) > 0;
        let data = match same {
            true => self.data[target.bytes.clone()].to_vec(),
            false => (0..length).map(|_| random.next() as u8).collect(),
        };
        let mut rest = &data[..];
        for &(offset, length) in &pieces {
            let (now, later) = rest.split_at(length);
            host.memory.write(offset, now);
            rest = later;
        }
        let mut expected = self.expected(&target, sqe.opcode != 0x01);
        if sqe.opcode == 0x05 && expected == Ok(0) && data != self.data[target.bytes.clone()] {
            expected = Err(Status::COMPARE_FAILURE);
        }
        assert_eq!(host.io(sqe), expected, "opcode {:#x}, blocks {:?}", sqe.opcode, target.marks);
        if expected != Ok(0) {
            return;
        }
        let seen: Vec<u8> = pieces.iter().flat_map(|&(offset, length)| host.bytes(offset, length)).collect();
        match sqe.opcode {
            0x01 => {
                self.data[target.bytes].copy_from_slice(&data);
                self.bad[target.marks].fill(false);
            }
            0x02 => assert!(seen == self.data[target.bytes], "read of blocks {:?}", target.marks),
            _ => {}
        }
        assert!(sqe.opcode == 0x02 || seen == data, "the device wrote to what it should read");
    }
}

#[test]
fn a_namespace_behaves_like_a_vector_of_bytes() {
    for (block_bytes, seed) in [(512usize, 0x5eed_0512), (4096, 0x5eed_4096)] {
        let mut random = Random::new(seed);
        // Six megabytes: three chunks of media, so that commands straddle them.
        let bytes = 6 << 20;
        let namespace = unvme_ssd::NamespaceConfig {
            bytes: Some(bytes),
            kind: unvme_ssd::NamespaceKind::Blocks(block_bytes as u32),
        };
        let mut host = attached(unvme_ssd::SsdConfig { namespaces: vec![namespace], ..config(512) });
        host.enable();
        host.create_queue_pair(1, 32);
        let blocks = bytes as usize / block_bytes;
        let mut model = Model { data: vec![0; bytes as usize], bad: vec![false; blocks], block_bytes };
        for _ in 0..6000 {
            model.check(&mut host, &mut random);
        }
        assert!(host.read32(0x1c) == 1, "CSTS.RDY and nothing else");
    }
}

/// Memory for hostile commands: what the device may write lies between guards that it must not touch, and
/// next to it is memory that it may only read.
struct Minefield {
    writable: Region,
    readable: Region,
}

const GUARD_BYTES: usize = 64 << 10;
const OPEN_BYTES: usize = 256 << 10;
const WRITABLE_AT: u64 = 0x5000_0000;
const READABLE_AT: u64 = WRITABLE_AT + OPEN_BYTES as u64;

impl Minefield {
    fn lay(ssd: &Arc<Ssd>) -> Self {
        let writable = Region::anonymous(OPEN_BYTES + 2 * GUARD_BYTES).unwrap();
        let readable = Region::anonymous(OPEN_BYTES).unwrap();
        writable.fill(0, writable.len(), 0xa5);
        ssd.dma_map(WRITABLE_AT, &writable.slice(GUARD_BYTES, OPEN_BYTES), DmaAccess::READ_WRITE).unwrap();
        ssd.dma_map(READABLE_AT, &readable, DmaAccess::READ_ONLY).unwrap();
        Self { writable, readable }
    }

    /// Fills both with what looks like PRP lists and SGL segments.
    fn bait(&self, random: &mut Random) {
        for at in (0..OPEN_BYTES).step_by(16) {
            let length = random.pick(&[0, 16, 32, 512, 4096, 0x1_0000, u32::MAX.into()]);
            let kind = random.pick(&[0x00u64, 0x00, 0x00, 0x10, 0x20, 0x30, 0x01, 0x5a]) << 56;
            let words = [address(random), if random.below(2) == 0 { address(random) } else { length | kind }];
            self.writable.write_words(GUARD_BYTES + at, words);
            self.readable.write_words(at, words);
        }
    }

    fn check_guards(&self) {
        for start in [0, GUARD_BYTES + OPEN_BYTES] {
            let mut guard = vec![0; GUARD_BYTES];
            self.writable.read(start, &mut guard);
            assert!(guard.iter().all(|&byte| byte == 0xa5), "the device wrote outside its mapping");
        }
    }

    fn readable_sum(&self) -> u64 {
        let mut bytes = vec![0; OPEN_BYTES];
        self.readable.read(0, &mut bytes);
        bytes.chunks(8).fold(0u64, |sum, word| {
            sum.rotate_left(7) ^ u64::from_le_bytes(word.try_into().expect("eight bytes"))
        })
    }
}

/// An address that a device will find worth trying: mostly mapped, often near an edge, often badly aligned.
fn address(random: &mut Random) -> u64 {
    let page = random.below((2 * OPEN_BYTES / 4096) as u64) * 4096;
    match random.below(8) {
        0..=3 => WRITABLE_AT + page,
        4 => WRITABLE_AT + page + random.below(4096),
        5 => READABLE_AT + OPEN_BYTES as u64 - random.below(8192),
        6 => random.pick(&[0, WRITABLE_AT - 4096, u64::MAX, u64::MAX - 4095, 1 << 52]),
        // Never where the host's queues are: a host that overwrites its own queues cannot be asked what it
        // saw.
        _ => (random.next() | 1 << 40) & !(0xff << 32),
    }
}

fn hostile(random: &mut Random, opcodes: &[u8]) -> Sqe {
    let opcode = if random.below(20) == 0 { random.next() as u8 } else { random.pick(opcodes) };
    let small = |random: &mut Random| match random.below(9) {
        0..=3 => random.below(16) as u32,
        4 => 0,
        5 => random.below(0x2_0000) as u32,
        6 => 1 << random.below(32),
        7 => u32::MAX,
        _ => random.next() as u32,
    };
    let mut sqe = Sqe {
        opcode,
        flags: random.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x40, 0x40, 0x80, 0xc0, 1, 2, 3, 0x41, 0xff]),
        nsid: random.pick(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 2, 129, u32::MAX]),
        dptr: [address(random), address(random)],
        mptr: random.next(),
        cdw10: small(random),
        cdw11: random.pick(&[0, 0, 0, 0, 0, 0, 1, 4, u32::MAX]),
        cdw12: small(random),
        cdw13: small(random),
        cdw14: random.pick(&[0, 0, 1 << 23, u32::MAX]),
        cdw15: small(random),
        ..Sqe::default()
    };
    if sqe.flags & 0xc0 != 0 && random.below(2) == 0 {
        let kind = random.pick(&[0x00u64, 0x20, 0x30, 0x10, 0x41]) << 56;
        sqe.dptr[1] = random.pick(&[16, 32, 48, 512, 4096, 65536, 31]) | kind;
    }
    sqe
}

#[test]
fn hostile_io_commands_never_panic_and_never_write_where_they_must_not() {
    let mut random = Random::new(0x5eed_0bad);
    let mut host = Host::with_queues(512);
    let field = Minefield::lay(&host.ssd);
    let opcodes = [0x00, 0x01, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0c];
    let (mut sum, mut succeeded) = (0, 0);
    for round in 0..100_000 {
        if round % 5000 == 0 {
            field.bait(&mut random);
            sum = field.readable_sum();
        }
        let cid = host.push(1, hostile(&mut random, &opcodes));
        host.ring(1);
        host.advance();
        let cqe = host.poll(1).expect("every command is answered");
        assert_eq!((cqe.cid, host.poll(1)), (cid, None), "command {round}");
        succeeded += u32::from(cqe.status().is_success());
        if round % 5000 == 4999 {
            field.check_guards();
            assert_eq!(field.readable_sum(), sum, "the device wrote to memory it may only read");
        }
    }
    assert!(
        (10_000..90_000).contains(&succeeded),
        "{succeeded} commands succeeded: that tests one side only"
    );
    assert_eq!(host.io(sqe(0x00, 1)), Ok(0), "the device still works");
}

#[test]
fn hostile_admin_commands_never_panic_and_leave_a_device_that_can_be_reset() {
    let mut random = Random::new(0x5eed_adad);
    let mut host = Host::attach(device(config(512)));
    host.enable();
    let field = Minefield::lay(&host.ssd);
    let opcodes = [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x0d, 0x10, 0x11, 0x15, 0x80];
    let mut sum = 0;
    for round in 0..20_000 {
        if round % 1000 == 0 {
            field.bait(&mut random);
            sum = field.readable_sum();
        }
        host.push(0, hostile(&mut random, &opcodes));
        host.ring(0);
        host.advance();
        while host.poll(0).is_some() {}
        if round % 1000 == 999 {
            field.check_guards();
            assert_eq!(field.readable_sum(), sum, "the device wrote to memory it may only read");
        }
    }
    assert_eq!(host.read32(0x1c), 1, "CSTS.RDY and nothing else");
    host.disable();
    host.enable();
    host.create_queue_pair(1, 8);
    let identify = host.admin_in(Sqe { cdw10: 1, ..sqe(0x06, 0) }, 4096).unwrap();
    assert_eq!(identify[..4], [0x36, 0x1b, 0x36, 0x1b]);
}

//! Accesses of any size to any offset of configuration space and of any BAR, with resets, mappings and
//! interrupt vectors between them. An access succeeds exactly when it is within bounds; what is read-only
//! stays; registers never contradict each other; and in the end the device works.
//!
//! Input: steps, each a byte that says what and the step's own bytes.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use unvme_bus::{Dma, DmaAccess, EventFd, Function, Region};
use unvme_ssd::{MemoryStore, Ssd, SsdConfig};

#[path = "../rig/mod.rs"]
mod rig;
use rig::{CC, COMPLETION_AT, CSTS, Host, Input, QUEUES_BYTES, SUBMISSION_AT};

const MEDIA_BYTES: u64 = 16 << 20;
const DATA_AT: u64 = 0x1000_0000;
const CONFIG_BYTES: u64 = 4096;
const BAR_BYTES: u64 = 0x4000;

static MEMORY: LazyLock<[Region; 4]> =
    LazyLock::new(|| [4096, QUEUES_BYTES, QUEUES_BYTES, 8192].map(|bytes| Region::anonymous(bytes).unwrap()));
static EVENT: LazyLock<EventFd> = LazyLock::new(|| EventFd::new().unwrap());

/// A register, or its neighbourhood, or anywhere.
fn offset(input: &mut Input) -> u64 {
    match input.u8() & 7 {
        0 | 1 => u64::from(input.u8() & 0x7c),
        2 => 0x1000 + u64::from(input.u8()) * 4,
        3 => 0x2000 + u64::from(input.u16()) % 0x2000,
        4 | 5 => input.u16().into(),
        6 => u64::MAX - u64::from(input.u8()),
        _ => input.u64(),
    }
}

fn length(input: &mut Input) -> usize {
    match input.u8() {
        n @ 0..=0x7f => (n & 0x1f).into(),
        n @ 0x80..=0xef => 1 << (n & 7),
        n => usize::from(n & 0xf) * 2048,
    }
}

fn bytes(input: &mut Input, length: usize) -> Vec<u8> {
    let mut bytes = input.take(length).to_vec();
    bytes.resize(length, 0);
    bytes
}

fn fits(offset: u64, length: usize, size: u64) -> bool {
    offset.checked_add(length as u64).is_some_and(|end| end <= size)
}

fn step(host: &Host, input: &mut Input) {
    let ssd = &host.ssd;
    let what = input.u8();
    match what & 0x0f {
        0 | 1 => {
            let (offset, mut out) = (offset(input), vec![0xee; length(input)]);
            let read = ssd.config_read(offset as usize, &mut out);
            assert_eq!(
                read.is_ok(),
                fits(offset, out.len(), CONFIG_BYTES),
                "configuration space at {offset:#x}"
            );
        }
        2 | 3 => {
            let (offset, length) = (offset(input), length(input));
            let written = ssd.config_write(offset as usize, &bytes(input, length));
            assert_eq!(
                written.is_ok(),
                fits(offset, length, CONFIG_BYTES),
                "configuration space at {offset:#x}"
            );
        }
        4 | 5 => {
            let (bar, offset, mut out) = (usize::from(what >> 5), offset(input), vec![0xee; length(input)]);
            let size = if bar == 0 { BAR_BYTES } else { 0 };
            let read = ssd.bar_read(bar, offset, &mut out);
            assert_eq!(read.is_ok(), fits(offset, out.len(), size), "BAR {bar} at {offset:#x}");
        }
        6..=9 => {
            let (bar, offset, length) = (usize::from(what >> 6), offset(input), length(input));
            let size = if bar == 0 { BAR_BYTES } else { 0 };
            let written = ssd.bar_write(bar, offset, &bytes(input, length));
            assert_eq!(written.is_ok(), fits(offset, length, size), "BAR {bar} at {offset:#x}");
        }
        10 => {
            // The registers that make a controller, with values that might.
            host.write32(CC, 0);
            host.write32(0x24, input.u32() & 0x00ff_00ff);
            host.write64(0x28, SUBMISSION_AT + u64::from(input.u8() & 3) * 2048);
            host.write64(0x30, COMPLETION_AT + u64::from(input.u8() & 3) * 2048);
            host.write32(CC, 0x0046_0001 ^ u32::from(input.u16()));
        }
        11 => {
            host.advance(if what & 0x10 == 0 { None } else { Some(input.u8().into()) });
        }
        12 => {
            let vector = input.u16();
            let event = (what & 0x10 == 0).then(|| EVENT.clone());
            assert_eq!(ssd.set_vector(vector, event).is_ok(), vector < ssd.vectors());
        }
        13 => {
            let _ = ssd.dma_map(offset(input), &MEMORY[3], DmaAccess::READ_WRITE);
        }
        14 => {
            // The queues' own memory, too: a controller whose queues are gone waits, and stays quiet.
            let at = if what & 0x10 == 0 { SUBMISSION_AT } else { COMPLETION_AT };
            if ssd.dma_unmap(at, QUEUES_BYTES as u64).is_ok() {
                host.advance(None);
                let (region, access) = match what & 0x10 {
                    0 => (&host.submission, DmaAccess::READ_ONLY),
                    _ => (&host.completion, DmaAccess::READ_WRITE),
                };
                ssd.dma_map(at, region, access).unwrap();
            }
        }
        _ => ssd.reset().unwrap(),
    }
}

/// What holds after every step.
fn check(host: &Host) {
    let mut identity = [0; 16];
    host.ssd.config_read(0, &mut identity).unwrap();
    assert_eq!(identity[..4], [0x36, 0x1b, 0x10, 0x00], "vendor and device");
    assert_eq!(identity[8..12], [0x02, 0x02, 0x08, 0x01], "revision and class");
    let mut bar = [0; 8];
    host.ssd.config_read(0x10, &mut bar).unwrap();
    assert_eq!(u64::from_le_bytes(bar) % BAR_BYTES, 4, "BAR 0 is 64-bit memory, aligned to its size");
    assert_eq!(
        (host.read32(0x00), host.read32(0x04), host.read32(0x08)),
        (0x1403_0fff, 0x0840_0830, 0x0002_0000)
    );
    let (cc, csts) = (host.read32(CC), host.read32(CSTS));
    assert!(csts & 0b11 != 0b11, "ready and failed: CSTS {csts:#x}");
    assert!(cc & 1 == 1 || csts & 0b11 == 0, "disabled, yet CSTS is {csts:#x}");
    assert!(cc & 1 == 0 || csts & 0b11 != 0, "enabled, yet CSTS is {csts:#x}");
}

fuzz_target!(|data: &[u8]| {
    let [memory, submission, completion, _] = &*MEMORY;
    let store = Box::new(MemoryStore::null(MEDIA_BYTES));
    let ssd = Ssd::new(SsdConfig::block(MEDIA_BYTES, 512), store).unwrap();
    ssd.dma_map(DATA_AT, memory, DmaAccess::READ_WRITE).unwrap();
    let mut host = Host::attach(ssd, submission.clone(), completion.clone());
    let mut input = Input::new(data);
    while !input.is_empty() {
        step(&host, &mut input);
        check(&host);
    }
    host.ssd.reset().unwrap();
    host.enable();
    host.create_queue_pair();
    host.check_identity(DATA_AT, memory, 0);
});

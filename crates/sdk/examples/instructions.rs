//! Reads 4 KiB at a time, one command outstanding, with markers for `tests/guest/instructions.c`: how many
//! instructions a read takes between its submission and its completion. Without that counter the markers do
//! nothing.
//!
//! `instructions DEVICE [READS]`: path 0 goes through `Queue`, path 1 through `BlockQueue`. What is counted
//! is submit and ring, then the poll that finds the completion; between them the program sleeps for much
//! longer than a read takes, so that it is there.
// UNSAFETY: a marker is an instruction that no compiler would choose, so it has to be written in assembly.
#![allow(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use unvme::{
    AccessFlags, BlockQueue, BlockRange, Completion, DmaBuf, DriverError, Lba, Nsid, OpenOptions, Payload,
    QueueOptions, open,
};

const READ_BYTES: usize = 4096;
/// Time for the device: well beyond what a read takes, under emulation on a busy machine too.
const PATIENCE: Duration = Duration::from_millis(1);
/// How long a completion that was not there may still take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Stride of the reads in commands: no two neighbours follow each other.
const STRIDE: u64 = 7919;

/// Paths: the driver's queue, and that of the SDK's block device.
const QUEUE: u8 = 0;
const BLOCK_QUEUE: u8 = 1;
/// Steps of an operation, as the counter numbers them.
const BEGIN: u8 = 0;
const PAUSE: u8 = 1;
const RESUME: u8 = 2;
const END: u8 = 3;
const DISCARD: u8 = 4;
const STEPS: u8 = 8;

/// Passes a marker.
#[inline(always)]
fn mark<const PATH: u8, const STEP: u8>() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a nop of eight bytes: it has no effect on registers, flags or memory.
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x84, 0x00, 0x55, 0x4e, 0x56, {number}",
            number = const PATH * STEPS + STEP,
            options(nostack, preserves_flags)
        );
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("usage: instructions DEVICE [READS]")?;
    let reads: u64 = arguments.next().map_or(Ok(1000), |reads| reads.parse())?;
    let device = open(&name, &OpenOptions::default())?;
    let block = device.block(Nsid(1))?;
    let blocks = READ_BYTES as u32 / block.block_bytes();
    let places = block.blocks() / u64::from(blocks);
    let ranges: Vec<BlockRange> = (0..reads)
        .map(|read| BlockRange::new(Lba(read * STRIDE % places * u64::from(blocks)), blocks))
        .collect();
    let mut queue = block.queue(&QueueOptions { depth: 1, ..QueueOptions::default() })?;
    read_all::<QUEUE>(&mut queue, &ranges)?;
    read_all::<BLOCK_QUEUE>(&mut queue, &ranges)
}

/// Submits a read and rings.
#[inline(always)]
fn start<const PATH: u8>(queue: &mut BlockQueue, range: BlockRange, buf: DmaBuf) -> Result<(), DriverError> {
    if PATH == QUEUE {
        let sqe = queue.namespace().read(range, AccessFlags::default())?;
        queue.raw().submit(sqe, Some(Payload { buf, bytes: READ_BYTES }), range.start.0)?;
        queue.raw().ring()
    } else {
        queue.read(range, buf, range.start.0)?;
        queue.ring()
    }
}

#[inline(always)]
fn take<const PATH: u8>(queue: &mut BlockQueue) -> Option<Completion> {
    if PATH == QUEUE { queue.raw().poll(1).next() } else { queue.poll(1).next() }
}

/// Reads `ranges` one by one.
#[inline(never)]
fn read_all<const PATH: u8>(queue: &mut BlockQueue, ranges: &[BlockRange]) -> Result<(), Box<dyn Error>> {
    let mut buf = Some(queue.alloc(READ_BYTES)?);
    for &range in ranges {
        let some = buf.take().ok_or("the buffer did not come back")?;
        mark::<PATH, BEGIN>();
        start::<PATH>(queue, range, some)?;
        mark::<PATH, PAUSE>();
        std::thread::sleep(PATIENCE);
        mark::<PATH, RESUME>();
        let mut taken = take::<PATH>(queue);
        if taken.is_some() {
            mark::<PATH, END>();
        } else {
            mark::<PATH, DISCARD>();
            queue.wait(TIMEOUT)?;
            taken = take::<PATH>(queue);
        }
        let completion = taken.ok_or("no completion in time")?;
        if !completion.status.is_success() || completion.token != range.start.0 {
            return Err(format!("{range:?}: {}", completion.status).into());
        }
        buf = completion.buf;
    }
    Ok(())
}

//! The timing model on the wall clock: does the device take as long as its model says?

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use unvme::{BlockRange, ControllerOptions, Device, Lba, Nsid, QueueOptions, Status, open_function};
use unvme_flash::timing::{Cause, Command, CommandKind, FlashOp, NotedOp, Timing, TimingConfig};
use unvme_ssd::{CHUNK_BYTES, MemoryStore, Ssd, SsdConfig};

use crate::cores;
use crate::load::{PAGE_BYTES, Random};
use crate::pairs::{Effort, median};
use crate::row::{Better, Row};

pub(crate) const ERROR: &str = "ftl.wall_error";

const PRESET: &str = "tlc";
const DEPTHS: [u16; 2] = [1, 8];
/// What an error is allowed to be: so much of the latency, and so many nanoseconds.
const TOLERANCE: (f64, f64) = (0.02, 2000.0);

/// Random reads of a device with the `tlc` timing, against a model of our own that is told when each was
/// submitted.
pub(crate) fn error(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let timing = TimingConfig::preset(PRESET)?;
        let config = SsdConfig { timing, ..SsdConfig::block(effort.media_bytes, PAGE_BYTES as u32) };
        let ssd = Ssd::new(config, Box::new(MemoryStore::new(effort.media_bytes)?))?;
        let device = open_function("bench device", ssd, &ControllerOptions::default())?;
        let mut notes = Vec::new();
        let mut worst = 0.0f64;
        for depth in DEPTHS {
            let reads = measure(&device, depth, if effort.smoke { 50 } else { 4000 })?;
            let measured = median(reads.iter().map(|read| read.measured));
            let modelled = median(reads.iter().map(|read| read.modelled));
            let error = measured - modelled;
            worst = worst.max(error.abs() / (TOLERANCE.0 * modelled + TOLERANCE.1));
            notes.push(format!(
                "depth {depth}: {:.2} us, model {:.2}, off by {:+.2}",
                measured / 1e3,
                modelled / 1e3,
                error / 1e3
            ));
        }
        let note = format!(
            "of the 2 % + 2 us allowed; median latency of 4 KiB random reads, {PRESET}; {}; one thread on core {core}",
            notes.join("; ")
        );
        Ok(Row { id: ERROR, value: worst, unit: "x", target: 1.0, better: Better::Lower, note })
    })
}

/// One read, in nanoseconds from submission to completion.
struct Read {
    measured: f64,
    modelled: f64,
}

/// Reads `count` pages, `depth` at a time.
fn measure(device: &Device, depth: u16, count: usize) -> Result<Vec<Read>> {
    let block = device.block(Nsid(1))?;
    let pages = block.bytes() / PAGE_BYTES as u64;
    let mut queue = block.queue(&QueueOptions { depth, ..QueueOptions::default() })?;
    let mut free = (0..depth).map(|_| queue.alloc(PAGE_BYTES)).collect::<Result<Vec<_>, _>>()?;
    let unit_pages = (CHUNK_BYTES / PAGE_BYTES as u64) as u32;
    let mut model = TimingConfig::preset(PRESET)?.build(unit_pages)?.context("the preset has a model")?;
    let mut random = Random::new(u64::from(depth));
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    // By token, which is the number of the read: when it was submitted, and when the model says that it is
    // due.
    let mut submitted: Vec<(u64, u64)> = Vec::with_capacity(count);
    let mut reads = Vec::with_capacity(count);
    while reads.len() < count {
        while submitted.len() < count
            && let Some(buf) = free.pop()
        {
            let page = random.below(pages);
            let (at, token) = (now(), submitted.len() as u64);
            submitted.push((at, due(&mut model, at, page)));
            queue.read(BlockRange::new(Lba(page), 1), buf, token)?;
        }
        queue.ring()?;
        for completion in queue.poll(usize::MAX) {
            ensure!(completion.status == Status::SUCCESS, "read {}: {}", completion.token, completion.status);
            let &(at, due) = submitted.get(completion.token as usize).context("a read that was submitted")?;
            reads.push(Read { measured: (now() - at) as f64, modelled: (due - at) as f64 });
            free.extend(completion.buf);
        }
    }
    Ok(reads)
}

/// What the model says about a read of a device on which pages lie where hosts put them.
fn due(model: &mut Timing, now: u64, page: u64) -> u64 {
    let op = FlashOp::Read { ppn: page as u32 };
    let ops = [NotedOp { op, cause: Cause::Host }];
    model.schedule(
        now,
        &Command { kind: CommandKind::Read, bytes: PAGE_BYTES as u64, durable: false, ops: &ops },
    )
}

//! Handles of one device: how well one is kept apart from another, and what waiting costs.
//!
//! Both rows are on a virtual SSD that takes as long as flash (`timing=tlc`): on memory nothing waits for
//! anything. A read of 4 KiB takes 81 us there, and 128 KiB go to the write buffer in about 70 us.
//!
//! - `handle.isolation`: the reader has depth 1 and a share of 8, the writer depth 32 and a share of 1, each
//!   on a thread of its own, with the window as it is by default. The writer has been at it for a while when
//!   the reader begins, so that the buffer is full and flash is written behind it.
//! - `handle.hybrid`: one thread reads, and does nothing for four times as long as the read took, so that the
//!   device is in use for 20 % of the time. What counts is the processor time of that thread: one that
//!   polls does so while a read is under way, and not in between. Where hybrid reads take more than 1.1 times
//!   as long as polled ones (at the median), the row is 1, whatever they cost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use unvme::handle::{Handle, HandleOptions, Request};
use unvme::{Device, Nsid, OpenOptions, open};

use crate::pairs::{Effort, median};
use crate::row::{Better, Row};

pub(crate) const ISOLATION: &str = "handle.isolation";
pub(crate) const HYBRID: &str = "handle.hybrid";

const DEVICE: &str = "mem:block:256M,timing=tlc";
const SMALL: usize = 4096;
const BIG: usize = 128 << 10;
const DEPTH: u64 = 32;
/// How long a hybrid read may take, of a polled one.
const LATENCY_MAX: f64 = 1.1;
/// How long one side of a pair takes, of what others take: a percentile needs many reads.
const PHASE: u32 = 3;
/// What passes between two reads, of what a read takes.
const PAUSE: u32 = 4;

/// A device with data, and a handle of it.
fn device() -> Result<Device> {
    let device = open(DEVICE, &OpenOptions::default())?;
    let mut block = device.block(Nsid(1))?;
    let data = vec![7; 1 << 20];
    let blocks = data.len() as u64 / u64::from(block.block_bytes());
    for nth in 0..block.bytes() / data.len() as u64 {
        block.write_at(nth * blocks, &data)?;
    }
    Ok(device)
}

fn handle(device: &Device, policies: &str) -> Result<Handle> {
    let options = HandleOptions { blocks: None, policies: policies.parse()? };
    Ok(device.handle(Nsid(1), &options)?)
}

/// Reads at random for a while, with pauses of so many times what a read took. Returns what each took, in
/// nanoseconds and ascending, and the processor time in a second.
fn reads(handle: &Handle, time: Duration, pause: u32) -> Result<(Vec<u64>, f64)> {
    let mut took = Vec::new();
    let mut out = [0; SMALL];
    let blocks = SMALL as u64 / u64::from(handle.block_bytes());
    let started = Instant::now();
    let before = processor();
    let mut place = 1_u64;
    while started.elapsed() < time {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let from = Instant::now();
        handle.read((place >> 33) % (handle.blocks() / blocks) * blocks, &mut out)?;
        let read = from.elapsed();
        took.push(read.as_nanos() as u64);
        if pause > 0 {
            std::thread::sleep(read * pause);
        }
    }
    let used = processor().saturating_sub(before).as_secs_f64() / started.elapsed().as_secs_f64();
    took.sort_unstable();
    Ok((took, used))
}

fn processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn percentile(ascending: &[u64], percent: usize) -> f64 {
    let last = ascending.len().saturating_sub(1);
    ascending.get(last * percent / 100).map_or(0.0, |&ns| ns as f64 / 1e3)
}

/// Writes as much as it can until told to stop.
fn press(handle: &Handle, stop: &AtomicBool) -> Result<u64> {
    let blocks = BIG as u64 / u64::from(handle.block_bytes());
    let mut free = (0..DEPTH).map(|_| handle.alloc(BIG)).collect::<unvme::Result<Vec<_>>>()?;
    let (mut done, mut ended, mut at) = (Vec::new(), 0, 0);
    loop {
        let is_over = stop.load(Ordering::Relaxed);
        while !is_over && let Some(buf) = free.pop() {
            at = (at + blocks) % (handle.blocks() - blocks);
            handle.submit(Request::write(at, blocks as u32), Some(buf), 0).map_err(|no| no.error)?;
        }
        if is_over && handle.outstanding() == 0 {
            return Ok(ended);
        }
        handle.wait(&mut done, Duration::from_millis(10));
        ended += done.len() as u64;
        free.extend(done.drain(..).filter_map(|done| done.buf));
    }
}

pub(crate) fn isolation(effort: &Effort) -> Result<Row> {
    let device = device()?;
    let time = PHASE * effort.side;
    let (mut ratios, mut said) = (Vec::new(), (0.0, 0.0, 0.0));
    for _ in 0..effort.pairs {
        let reader = handle(&device, "sched=share:8")?;
        let (alone, _) = reads(&reader, time, 0)?;
        let writer = handle(&device, "sched=share:1")?;
        let stop = AtomicBool::new(false);
        let (beside, written, wrote) = std::thread::scope(|scope| {
            let started = Instant::now();
            let writing = scope.spawn(|| press(&writer, &stop));
            std::thread::sleep(time / 4);
            let beside = reads(&reader, time, 0);
            stop.store(true, Ordering::Relaxed);
            let written = writing.join().map_err(|_| anyhow!("the writer panicked"));
            (beside, written, started.elapsed())
        });
        let ((beside, _), written) = (beside?, written??);
        let (alone, beside) = (percentile(&alone, 99), percentile(&beside, 99));
        said = (alone, beside, written as f64 / 8.0 / wrote.as_secs_f64());
        ratios.push(beside / alone);
    }
    Ok(Row {
        id: ISOLATION,
        value: median(ratios.into_iter()),
        unit: "x",
        target: 2.0,
        better: Better::Lower,
        note: format!(
            "p99 of 4 KiB reads, QD1, {:.0} us beside 128 KiB writes, QD32, by shares of 8 and 1 / {:.0} us alone; writes \
             {:.0} MiB/s; tlc",
            said.1, said.0, said.2
        ),
    })
}

pub(crate) fn hybrid(effort: &Effort) -> Result<Row> {
    let device = device()?;
    let time = PHASE * effort.side;
    let (polling, hybrid) = (handle(&device, "complete=poll")?, handle(&device, "complete=hybrid")?);
    // It learns first, however short the measurement is.
    let learning = Instant::now();
    while learning.elapsed() < time {
        reads(&hybrid, Duration::from_millis(5), 0)?;
    }
    let (mut ratios, mut latencies, mut said) = (Vec::new(), Vec::new(), (0.0, 0.0));
    for _ in 0..effort.pairs {
        let (polled, polling_used) = reads(&polling, time, PAUSE)?;
        let (slept, hybrid_used) = reads(&hybrid, time, PAUSE)?;
        said = (hybrid_used, polling_used);
        ratios.push(hybrid_used / polling_used);
        latencies.push(percentile(&slept, 50) / percentile(&polled, 50));
    }
    let (ratio, latency) = (median(ratios.into_iter()), median(latencies.into_iter()));
    Ok(Row {
        id: HYBRID,
        value: if latency <= LATENCY_MAX { ratio } else { 1.0 },
        unit: "x",
        target: 0.35,
        better: Better::Lower,
        note: format!(
            "processor time, {:.1} % hybrid / {:.1} % polling, of 4 KiB reads at 20 % load; hybrid reads take {latency:.3} \
             times as long; tlc",
            said.0 * 100.0,
            said.1 * 100.0
        ),
    })
}

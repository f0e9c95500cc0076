//! The block device in this process.

use std::sync::Barrier;
use std::thread;

use anyhow::{Context, Result};
use unvme::Device;

use crate::bare::CopyLoop;
use crate::load::{Load, memory_device, null_device};
use crate::pairs::{Effort, interleave};
use crate::row::{Better, Row};
use crate::{allocs as counter, cores};

pub(crate) const READ: &str = "block.read.vs_copy";
pub(crate) const WRITE: &str = "block.write.vs_copy";
pub(crate) const NULL_RATE: &str = "block.null.rate";
pub(crate) const TWO_CORES: &str = "block.two_cores";
pub(crate) const QD1: &str = "block.qd1_cost";
pub(crate) const ALLOCS: &str = "block.allocs";

/// Commands outstanding where data moves.
const DEPTH: u16 = 32;
/// Commands outstanding where none does.
const NULL_DEPTH: u16 = 128;

/// Random reads, against a loop that copies the same pages.
pub(crate) fn read(effort: &Effort) -> Result<Row> {
    let (note, ratio) = versus_copy(effort, false)?;
    Ok(Row { id: READ, value: ratio, unit: "x", target: 0.95, better: Better::Higher, note })
}

/// Random writes, against a loop that copies to the same pages.
pub(crate) fn write(effort: &Effort) -> Result<Row> {
    let (note, ratio) = versus_copy(effort, true)?;
    Ok(Row { id: WRITE, value: ratio, unit: "x", target: 0.9, better: Better::Higher, note })
}

fn versus_copy(effort: &Effort, write: bool) -> Result<(String, f64)> {
    cores::on_first(|core| {
        let (device, memory) = memory_device(effort.media_bytes)?;
        let mut load = Load::new(&device, DEPTH, write)?;
        let mut bare = CopyLoop::new(memory, load.more_buffers(DEPTH)?, write);
        let pairs = interleave(effort, || load.rate(effort.side), || bare.rate(effort.side))?;
        let note = format!("{}; one thread on core {core}; {}", pairs.rates(), huge_pages()?);
        Ok((note, pairs.ratio))
    })
}

/// Commands on a device that moves no data.
pub(crate) fn null_rate(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let device = null_device(effort.media_bytes)?;
        let mut load = Load::new(&device, NULL_DEPTH, false)?;
        // The second side is the same: the ratio says how steady the machine is.
        let mut again = Load::new(&device, NULL_DEPTH, false)?;
        let measured = interleave(effort, || load.rate(effort.side), || again.rate(effort.side))?;
        let rate = measured.first;
        let note = format!("{:.1} ns per command; one thread on core {core}; {}", 1e9 / rate, processor());
        Ok(Row { id: NULL_RATE, value: rate / 1e6, unit: "M/s", target: 50.0, better: Better::Higher, note })
    })
}

/// Two cores with a queue each, against one core with one. The lone core alternates, in case they differ.
pub(crate) fn two_cores(effort: &Effort) -> Result<Row> {
    let pair = cores::pair()?;
    let (device, _memory) = memory_device(effort.media_bytes)?;
    let before = cores::round_trip_ns(pair)?;
    let mut turn = 0;
    let pairs = interleave(
        effort,
        || together(&device, pair, effort),
        || {
            turn += 1;
            alone(&device, pair[turn % 2], effort)
        },
    )?;
    let after = cores::round_trip_ns(pair)?;
    let note = format!(
        "{}; depth {DEPTH}, a thread each on cores {} and {}, alone on either in turn; a cache line's round trip \
         between them takes {before:.0} ns before, {after:.0} ns after",
        pairs.rates(),
        pair[0],
        pair[1]
    );
    Ok(Row { id: TWO_CORES, value: pairs.ratio, unit: "x", target: 1.9, better: Better::Higher, note })
}

fn alone(device: &Device, core: usize, effort: &Effort) -> Result<f64> {
    cores::on(core, || Load::new(device, DEPTH, false)?.rate(effort.side))
}

fn together(device: &Device, pair: [usize; 2], effort: &Effort) -> Result<f64> {
    let start = Barrier::new(pair.len());
    thread::scope(|scope| {
        let threads = pair.map(|core| {
            let start = &start;
            scope.spawn(move || {
                let load = cores::pin(core).and_then(|()| Load::new(device, DEPTH, false));
                // Whatever came of it: the other one waits.
                start.wait();
                load?.rate(effort.side)
            })
        });
        threads.into_iter().map(cores::join).sum()
    })
}

/// One command at a time, against one of many.
pub(crate) fn qd1(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let (device, _memory) = memory_device(effort.media_bytes)?;
        let mut one = Load::new(&device, 1, false)?;
        let mut many = Load::new(&device, DEPTH, false)?;
        let pairs = interleave(effort, || many.rate(effort.side), || one.rate(effort.side))?;
        let note = format!(
            "{:.0} ns at depth 1 / {:.0} ns at depth {DEPTH}; one thread on core {core}",
            1e9 / pairs.second,
            1e9 / pairs.first
        );
        Ok(Row { id: QD1, value: pairs.ratio, unit: "x", target: 2.0, better: Better::Lower, note })
    })
}

/// Allocations between submit and completion.
pub(crate) fn allocs(effort: &Effort) -> Result<Row> {
    let commands = if effort.smoke { 10_000 } else { 1_000_000 };
    let (device, _memory) = memory_device(effort.media_bytes.min(64 << 20))?;
    let mut counts = Vec::new();
    for write in [false, true] {
        let mut load = Load::new(&device, DEPTH, write)?;
        // Tables that are made on first use are no cost of a command.
        load.run(1_000)?;
        let before = counter::count();
        let done = load.run(commands)?;
        counts.push((counter::count() - before) as f64 / done as f64);
    }
    // A counter that counts nothing would say 0, too.
    let before = counter::count();
    drop(std::hint::black_box(Box::new(before)));
    anyhow::ensure!(counter::count() > before, "the counting allocator is not in use");
    let value = counts.iter().copied().fold(0.0, f64::max);
    let note = format!("{commands} reads, then as many writes, depth {DEPTH}; the worse of the two");
    Ok(Row { id: ALLOCS, value, unit: "/cmd", target: 0.0, better: Better::Lower, note })
}

/// How much of this process's memory is on huge pages: both sides of a ratio use the same memory.
pub(crate) fn huge_pages() -> Result<String> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").context("ask for huge pages")?;
    let kibibytes = text.lines().find_map(|line| {
        line.strip_prefix("AnonHugePages:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    let mebibytes = kibibytes.context("find AnonHugePages in /proc/self/smaps_rollup")? >> 10;
    Ok(format!("{mebibytes} MiB on transparent huge pages"))
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = value("model name").unwrap_or_else(|| "unknown processor".to_owned());
    match value("cpu MHz") {
        Some(clock) => format!("{model}, {clock} MHz"),
        None => model,
    }
}

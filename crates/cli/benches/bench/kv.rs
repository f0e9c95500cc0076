//! The key-value device in this process.

use std::sync::Barrier;
use std::thread;

use anyhow::{Context, Result};
use unvme::Nsid;

use crate::block::huge_pages;
use crate::cores;
use crate::kv_load::{DEPTH, Kind, KvDevice, KvLoad, pairs};
use crate::load::{Load, PAGE_BYTES, memory_device};
use crate::pairs::{Effort, interleave};
use crate::row::{Better, Row};

pub(crate) const RETRIEVE: &str = "kv.retrieve.vs_block";
pub(crate) const STORE: &str = "kv.store.vs_block";
pub(crate) const SMALL: &str = "kv.small.retrieve";
pub(crate) const TWO_CORES: &str = "kv.two_cores";

/// Bytes of a small value.
pub(crate) const SMALL_BYTES: usize = 100;

/// Retrieves of 4 KiB values, against block reads of as many pages.
pub(crate) fn retrieve(effort: &Effort) -> Result<Row> {
    let (note, ratio) = versus_block(effort, Kind::Retrieve)?;
    Ok(Row { id: RETRIEVE, value: ratio, unit: "x", target: 0.6, better: Better::Higher, note })
}

/// Stores of 4 KiB values over older ones, reclaim included, against block writes.
pub(crate) fn store(effort: &Effort) -> Result<Row> {
    let (note, ratio) = versus_block(effort, Kind::Store)?;
    Ok(Row { id: STORE, value: ratio, unit: "x", target: 0.6, better: Better::Higher, note })
}

fn versus_block(effort: &Effort, kind: Kind) -> Result<(String, f64)> {
    cores::on_first(|core| {
        let pairs = pairs(effort);
        let kv = KvDevice::filled(pairs, PAGE_BYTES)?;
        let mut load = KvLoad::new(&kv, DEPTH, kind)?;
        let bytes = (pairs * PAGE_BYTES as u64).next_multiple_of(2 << 20);
        let (device, _memory) = memory_device(bytes)?;
        let mut block = Load::new(&device, DEPTH, kind == Kind::Store)?;
        if kind == Kind::Store {
            // Reclaim is at work from here on.
            load.run(pairs * 2)?;
        }
        let before = kv.ssd.kv_stats(Nsid(1)).unwrap_or_default();
        let measured = interleave(effort, || load.rate(effort.side), || block.rate(effort.side))?;
        let after = kv.ssd.kv_stats(Nsid(1)).unwrap_or_default();
        let mut note = format!(
            "{}; {pairs} pairs, 16-byte keys, 4 KiB values, device half full, depth {DEPTH}; one thread on core {core}; {}",
            measured.rates(),
            huge_pages()?
        );
        if kind == Kind::Store {
            let written = (after.media_bytes_written - before.media_bytes_written) as f64;
            let given = (after.host_bytes_written - before.host_bytes_written).max(1) as f64;
            note += &format!("; {:.2} bytes written to the media for each of the host's", written / given);
        }
        Ok((note, measured.ratio))
    })
}

/// Retrieves of 100-byte values.
pub(crate) fn small(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let pairs = pairs(effort);
        let kv = KvDevice::filled(pairs, SMALL_BYTES)?;
        let mut load = KvLoad::new(&kv, DEPTH, Kind::Retrieve)?;
        // The second side is the same: the ratio says how steady the machine is.
        let mut again = KvLoad::new(&kv, DEPTH, Kind::Retrieve)?;
        let measured = interleave(effort, || load.rate(effort.side), || again.rate(effort.side))?;
        let note = format!(
            "{:.0} ns each; {pairs} pairs, 16-byte keys, 100-byte values, depth {DEPTH}; one thread on core {core}",
            1e9 / measured.first
        );
        let value = measured.first / 1e6;
        Ok(Row { id: SMALL, value, unit: "M/s", target: 3.0, better: Better::Higher, note })
    })
}

/// Two cores with a queue each, against one core with one.
pub(crate) fn two_cores(effort: &Effort) -> Result<Row> {
    let pair = cores::pair()?;
    let pairs = pairs(effort);
    let kv = cores::on(pair[0], || KvDevice::filled(pairs, PAGE_BYTES))?;
    let before = cores::round_trip_ns(pair)?;
    let mut turn = 0;
    let measured = interleave(
        effort,
        || together(&kv, pair, effort),
        || {
            turn += 1;
            cores::on(pair[turn % 2], || KvLoad::new(&kv, DEPTH, Kind::Retrieve)?.rate(effort.side))
        },
    )?;
    let after = cores::round_trip_ns(pair)?;
    let note = format!(
        "{}; retrieve of 4 KiB, {pairs} pairs, depth {DEPTH}, a thread each on cores {} and {}, alone on either in \
         turn; a cache line's round trip between them takes {before:.0} ns before, {after:.0} ns after",
        measured.rates(),
        pair[0],
        pair[1]
    );
    Ok(Row { id: TWO_CORES, value: measured.ratio, unit: "x", target: 1.8, better: Better::Higher, note })
}

fn together(kv: &KvDevice, pair: [usize; 2], effort: &Effort) -> Result<f64> {
    let start = Barrier::new(pair.len());
    thread::scope(|scope| {
        let threads = pair.map(|core| {
            let start = &start;
            scope.spawn(move || {
                let load = cores::pin(core).and_then(|()| KvLoad::new(kv, DEPTH, Kind::Retrieve));
                // Whatever came of it: the other one waits.
                start.wait();
                load.context("make a load")?.rate(effort.side)
            })
        });
        threads.into_iter().map(cores::join).sum()
    })
}

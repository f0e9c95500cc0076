//! What a key-value device costs beside time: memory, and opening it again.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use unvme::{ControllerOptions, Device, KvKey, Nsid, open_function};
use unvme_ssd::{CHUNK_BYTES, FileStore, Ssd, SsdConfig};

use crate::cores;
use crate::kv::SMALL_BYTES;
use crate::kv_load::{DEPTH, KEY_BYTES, Kind, KvDevice, KvLoad, key_of, pairs};
use crate::pairs::Effort;
use crate::row::{Better, Row};

pub(crate) const INDEX: &str = "kv.index_bytes";
pub(crate) const REOPEN: &str = "kv.reopen";

/// Memory per pair beyond its key: with the ordered set of keys, that List has made, and which holds the
/// keys.
pub(crate) fn index(effort: &Effort) -> Result<Row> {
    let pairs = pairs(effort);
    let kv = KvDevice::filled(pairs, SMALL_BYTES)?;
    let stats = || kv.ssd.kv_stats(Nsid(1)).context("there is a key-value namespace");
    let unlisted = stats()?.memory_bytes as f64 / pairs as f64;
    let mut listing = kv.device.kv(Nsid(1))?;
    let first = listing.list()?.next().context("there are keys")??;
    ensure!(first.len() == KEY_BYTES, "the first key has {} bytes", first.len());
    let listed = stats()?.memory_bytes as f64 / pairs as f64;
    let note = format!(
        "{pairs} pairs, 16-byte keys; {unlisted:.1} in all before anybody lists keys, {listed:.1} with the keys in order"
    );
    let value = unlisted.max(listed - KEY_BYTES as f64);
    Ok(Row { id: INDEX, value, unit: "B", target: 64.0, better: Better::Lower, note })
}

/// Seconds in which a device of ten million pairs in a file is opened, and answers.
pub(crate) fn reopen(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let pairs = if effort.smoke { 20_000 } else { 10_000_000 };
        let fewer = reopen_seconds(pairs / 10)?;
        let value = reopen_seconds(pairs)?;
        let note = format!(
            "{pairs} pairs of 16 and {SMALL_BYTES} bytes in a file, in the page cache; a tenth of them takes {fewer:.3} s, \
             {:.1} times less; one thread on core {core}",
            value / fewer
        );
        Ok(Row { id: REOPEN, value, unit: "s", target: 10.0, better: Better::Lower, note })
    })
}

fn reopen_seconds(pairs: u64) -> Result<f64> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).context("make a folder")?;
    let bytes = (pairs * 224).next_multiple_of(CHUNK_BYTES).max(64 << 20);
    let (device, ssd) = in_file(folder.path(), bytes)?;
    let filled = KvDevice { device, ssd, pairs, value_bytes: SMALL_BYTES };
    KvLoad::new(&filled, DEPTH, Kind::Store)?.run_fill(pairs)?;
    drop(filled);
    let start = Instant::now();
    let (device, ssd) = in_file(folder.path(), bytes)?;
    let mut kv = device.kv(Nsid(1))?;
    let key = key_of(pairs / 2);
    let there = kv.command(kv.namespace().exist(KvKey::new(&key))?, None)?.status.is_success();
    let seconds = start.elapsed().as_secs_f64();
    let found = ssd.kv_stats(Nsid(1)).map_or(0, |stats| stats.pairs);
    ensure!(there && found == pairs, "{found} of {pairs} pairs were there again");
    Ok(seconds)
}

fn in_file(folder: &Path, bytes: u64) -> Result<(Device, Arc<Ssd>)> {
    let ssd = Ssd::new(SsdConfig::kv(bytes), Box::new(FileStore::open(folder, bytes)?))?;
    let function: Arc<Ssd> = Arc::clone(&ssd);
    Ok((open_function("bench device", function, &ControllerOptions::default())?, ssd))
}

//! What a key-value device costs beside time: memory, and opening it again.

use std::fs;
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
pub(crate) const REOPEN_KILLED: &str = "kv.reopen.killed";
pub(crate) const REOPEN_BYTES: &str = "kv.reopen.bytes";

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

/// Seconds in which a device of ten million pairs in a file that was closed is opened, and answers.
pub(crate) fn reopen(effort: &Effort) -> Result<Row> {
    reopen_seconds(effort, REOPEN, 0.3, |reopened| reopened.closed)
}

/// The same, of one whose process was killed.
pub(crate) fn reopen_killed(effort: &Effort) -> Result<Row> {
    reopen_seconds(effort, REOPEN_KILLED, 1.5, |reopened| reopened.killed)
}

/// Bytes that opening a device that was closed takes from its files, per pair.
pub(crate) fn reopen_bytes(effort: &Effort) -> Result<Row> {
    let pairs = reopened_pairs(effort);
    let Reopened { closed, killed } = reopened(pairs)?;
    let per_pair = |opened: Opened| opened.bytes as f64 / pairs as f64;
    let killed = per_pair(killed);
    let note = format!("{pairs} pairs; read from files, and mapped of the media; {killed:.1} after a kill");
    Ok(Row {
        id: REOPEN_BYTES,
        value: per_pair(closed),
        unit: "B",
        target: 64.0,
        better: Better::Lower,
        note,
    })
}

fn reopen_seconds(
    effort: &Effort,
    id: &'static str,
    target: f64,
    choose: fn(Reopened) -> Opened,
) -> Result<Row> {
    cores::on_first(|core| {
        let pairs = reopened_pairs(effort);
        let fewer = choose(reopened(pairs / 10)?).seconds;
        let value = choose(reopened(pairs)?).seconds;
        let note = format!(
            "{pairs} pairs of 16 and {SMALL_BYTES} bytes in a file, in the page cache; a tenth of them takes {fewer:.3} s, \
             {:.1} times less; one thread on core {core}",
            value / fewer
        );
        Ok(Row { id, value, unit: "s", target, better: Better::Lower, note })
    })
}

fn reopened_pairs(effort: &Effort) -> u64 {
    if effort.smoke { 20_000 } else { 10_000_000 }
}

/// What opening took.
struct Opened {
    seconds: f64,
    /// Read from files, and mapped of the media.
    bytes: u64,
}

struct Reopened {
    closed: Opened,
    killed: Opened,
}

fn reopened(pairs: u64) -> Result<Reopened> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).context("make a folder")?;
    let bytes = (pairs * 224).next_multiple_of(CHUNK_BYTES).max(64 << 20);
    let (device, ssd) = in_file(folder.path(), bytes)?;
    let filled = KvDevice { device, ssd, pairs, value_bytes: SMALL_BYTES };
    KvLoad::new(&filled, DEPTH, Kind::Store)?.run_fill(pairs)?;
    // Nobody closes it, and it does nothing any more: that is how a kill leaves it.
    std::mem::forget(filled);
    let killed = open_again(folder.path(), bytes, pairs)?;
    let closed = open_again(folder.path(), bytes, pairs)?;
    Ok(Reopened { closed, killed })
}

fn open_again(folder: &Path, bytes: u64, pairs: u64) -> Result<Opened> {
    let read_before = bytes_read()?;
    let start = Instant::now();
    let (device, ssd) = in_file(folder, bytes)?;
    let mut kv = device.kv(Nsid(1))?;
    let key = key_of(pairs / 2);
    let there = kv.command(kv.namespace().exist(KvKey::new(&key))?, None)?.status.is_success();
    let seconds = start.elapsed().as_secs_f64();
    let read = bytes_read()? - read_before;
    let found = ssd.kv_stats(Nsid(1)).map_or(0, |stats| stats.pairs);
    ensure!(there && found == pairs, "{found} of {pairs} pairs were there again");
    Ok(Opened { seconds, bytes: read + mapped_bytes()? })
}

/// Bytes that this process has read by system calls.
fn bytes_read() -> Result<u64> {
    let io = fs::read_to_string("/proc/self/io").context("read /proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    Ok(line.context("no rchar in /proc/self/io")?.trim().parse()?)
}

/// Bytes of the newest mapping of the media that are mapped.
fn mapped_bytes() -> Result<u64> {
    let maps = fs::read_to_string("/proc/self/smaps").context("read /proc/self/smaps")?;
    let of_media = maps.split("\nVmFlags").filter(|mapping| mapping.contains("media.img"));
    let rss = of_media.filter_map(|mapping| {
        let line = mapping.lines().find_map(|line| line.strip_prefix("Rss:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    // The one that was abandoned has more: it has been written.
    Ok(rss.min().context("the media is not mapped")? << 10)
}

fn in_file(folder: &Path, bytes: u64) -> Result<(Device, Arc<Ssd>)> {
    let ssd = Ssd::new(SsdConfig::kv(bytes), Box::new(FileStore::open(folder, bytes)?))?;
    let function: Arc<Ssd> = Arc::clone(&ssd);
    Ok((open_function("bench device", function, &ControllerOptions::default())?, ssd))
}

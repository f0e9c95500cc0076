//! Small pairs, against RocksDB: an index and a log in a drive against an LSM tree in a library.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cores;
use crate::kv::SMALL_BYTES;
use crate::kv_load::{DEPTH, Kind, KvDevice, KvLoad, pairs};
use crate::pairs::{Effort, interleave};
use crate::peer::Peer;
use crate::row::{Better, Row};

pub(crate) const READ: &str = "kv.small.vs_rocksdb_read";
pub(crate) const WRITE: &str = "kv.small.vs_rocksdb_write";

/// Random retrieves, against `readrandom` with a block cache that holds everything.
pub(crate) fn read(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let pairs = pairs(effort);
        let kv = KvDevice::filled(pairs, SMALL_BYTES)?;
        let mut load = KvLoad::new(&kv, DEPTH, Kind::Retrieve)?;
        let mut rocksdb = Database::start(core, pairs)?;
        rocksdb.peer.ask("fill")?;
        let read = format!("read {}", effort.side.as_millis());
        // The first read compacts, and is not counted.
        let measured = interleave(effort, || load.rate(effort.side), || rocksdb.peer.ask(&read))?;
        let note = format!("{}; {}", measured.rates(), conditions(pairs, core));
        Ok(Row { id: READ, value: measured.ratio, unit: "x", target: 3.0, better: Better::Higher, note })
    })
}

/// Every pair stored once in random order on an empty device, against `fillrandom` without the write-ahead
/// log.
pub(crate) fn write(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let pairs = pairs(effort);
        let mut rocksdb = Database::start(core, pairs)?;
        // Each fill takes seconds: fewer of them, each of them long.
        let effort = Effort { pairs: effort.pairs.min(3), ..*effort };
        let measured = interleave(&effort, || fill(pairs), || rocksdb.peer.ask("fill"))?;
        let note = format!("{}; {}", measured.rates(), conditions(pairs, core));
        Ok(Row { id: WRITE, value: measured.ratio, unit: "x", target: 4.0, better: Better::Higher, note })
    })
}

fn fill(pairs: u64) -> Result<f64> {
    let kv = KvDevice::empty(pairs, SMALL_BYTES)?;
    let mut load = KvLoad::new(&kv, DEPTH, Kind::Store)?;
    let start = std::time::Instant::now();
    load.run_fill(pairs)?;
    Ok(pairs as f64 / start.elapsed().as_secs_f64())
}

fn conditions(pairs: u64, core: usize) -> String {
    format!(
        "{pairs} pairs, 16-byte keys, 100-byte values; RocksDB on a memory file system; both on core {core}"
    )
}

/// A database in memory, and the process that has it.
struct Database {
    peer: Peer,
    folder: PathBuf,
}

impl Database {
    fn start(core: usize, pairs: u64) -> Result<Self> {
        let program = Peer::compile("rocksdb", &vec!["-lrocksdb".to_owned()])
            .context("RocksDB's library and headers are needed (Debian: librocksdb-dev)")?;
        let folder = Path::new("/dev/shm").join(format!("unvme-bench-rocksdb-{}", std::process::id()));
        let arguments = [folder.display().to_string(), pairs.to_string(), SMALL_BYTES.to_string()];
        Ok(Self { peer: Peer::start("rocksdb", &program, core, &arguments)?, folder })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.peer.stop();
        // What is left is in memory, and named after this process.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

//! What it costs that blocks are old or new after a kill.

use std::path::Path;

use anyhow::{Context, Result};
use unvme::{Device, Region};
use unvme_ssd::{FileStore, SsdConfig, SsdError, Store};

use crate::cores;
use crate::load::{Load, PAGE_BYTES, device_of, fill};
use crate::pairs::{Effort, interleave};
use crate::row::{Better, Row};

pub(crate) const WRITE: &str = "block.write.atomic";

/// Commands outstanding.
const DEPTH: u16 = 32;

/// A store in files whose device has no redo log.
struct Unlogged(FileStore);

impl Store for Unlogged {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn memory(&self) -> Option<&Region> {
        self.0.memory()
    }
    fn life(&self) -> Option<[u8; 16]> {
        self.0.life()
    }
    fn holds_data(&self, chunk: u64) -> bool {
        self.0.holds_data(chunk)
    }
    fn reserve(&self, chunk: u64) -> Result<(), SsdError> {
        self.0.reserve(chunk)
    }
    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        self.0.release(chunk)
    }
    fn sync(&self) -> Result<(), SsdError> {
        self.0.sync()
    }
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        self.0.load_state()
    }
    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        self.0.save_state(state)
    }
}

/// Random writes to a device in files, against one whose writes do not go through a redo log.
pub(crate) fn write(effort: &Effort) -> Result<Row> {
    cores::on_first(|core| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).context("make a folder")?;
        let logged = in_files(&folder.path().join("logged"), effort.media_bytes, true)?;
        let unlogged = in_files(&folder.path().join("unlogged"), effort.media_bytes, false)?;
        let mut with = Load::new(&logged, DEPTH, true)?;
        let mut without = Load::new(&unlogged, DEPTH, true)?;
        let pairs = interleave(effort, || with.rate(effort.side), || without.rate(effort.side))?;
        let note = format!(
            "{}; with the redo log of a device in files against without; one thread on core {core}",
            pairs.rates()
        );
        Ok(Row { id: WRITE, value: pairs.ratio, unit: "x", target: 0.9, better: Better::Higher, note })
    })
}

fn in_files(folder: &Path, bytes: u64, has_log: bool) -> Result<Device> {
    std::fs::create_dir(folder).context("make a folder")?;
    let store = FileStore::open(folder, bytes)?;
    let store: Box<dyn Store> = if has_log { Box::new(store) } else { Box::new(Unlogged(store)) };
    let device = device_of(SsdConfig::block(bytes, PAGE_BYTES as u32), store)?;
    fill(&device, bytes)?;
    Ok(device)
}

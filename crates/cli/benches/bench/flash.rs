//! What the flash translation layer costs: a device with it against one without, with no timing.

use anyhow::Result;
use unvme::Device;
use unvme_ssd::{FlashConfig, MemoryStore, SsdConfig};

use crate::block::huge_pages;
use crate::cores;
use crate::load::{Load, PAGE_BYTES, device_of, fill};
use crate::pairs::{Effort, interleave};
use crate::row::{Better, Row};

pub(crate) const READ_COST: &str = "ftl.read_cost";
pub(crate) const WRITE_COST: &str = "ftl.write_cost";

/// Commands outstanding.
const DEPTH: u16 = 32;

/// Random reads of a full device.
pub(crate) fn read_cost(effort: &Effort) -> Result<Row> {
    let (note, value) = cost(effort, effort.media_bytes, false)?;
    Ok(Row { id: READ_COST, value, unit: "x", target: 0.9, better: Better::Higher, note })
}

/// Random writes to the half of a device that is in use.
pub(crate) fn write_cost(effort: &Effort) -> Result<Row> {
    let (note, value) = cost(effort, effort.media_bytes / 2, true)?;
    Ok(Row { id: WRITE_COST, value, unit: "x", target: 0.6, better: Better::Higher, note })
}

fn cost(effort: &Effort, used_bytes: u64, write: bool) -> Result<(String, f64)> {
    cores::on_first(|core| {
        let plain = device(effort.media_bytes, used_bytes, None)?;
        let flash = device(effort.media_bytes, used_bytes, Some(FlashConfig::default()))?;
        let pages = used_bytes / PAGE_BYTES as u64;
        let mut with = Load::new(&flash, DEPTH, write)?.within(pages);
        let mut without = Load::new(&plain, DEPTH, write)?.within(pages);
        if write {
            // Everything once more, at random: from then on reclaim has work.
            with.run(pages)?;
            without.run(pages)?;
        }
        let pairs = interleave(effort, || with.rate(effort.side), || without.rate(effort.side))?;
        let note = format!(
            "{}; depth {DEPTH}, one thread on core {core}; units of 8 MiB, 18 % overprovisioning; {}",
            pairs.rates(),
            huge_pages()?
        );
        Ok((note, pairs.ratio))
    })
}

fn device(bytes: u64, used_bytes: u64, flash: Option<FlashConfig>) -> Result<Device> {
    // A smaller device has smaller units: there are fewer of them than it takes otherwise.
    let flash = flash.map(|mut flash| {
        flash.geometry.unit_bytes = flash.geometry.unit_bytes.min(bytes / 128);
        flash
    });
    let config = SsdConfig { flash, ..SsdConfig::block(bytes, PAGE_BYTES as u32) };
    let store = MemoryStore::new(config.store_bytes()?)?;
    let device = device_of(config, Box::new(store))?;
    fill(&device, used_bytes)?;
    Ok(device)
}

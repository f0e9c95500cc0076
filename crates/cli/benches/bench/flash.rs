//! What the flash translation layer costs, and what checksums do: a device with either against one without,
//! with no timing.

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

pub(crate) const CHECKED_READ: &str = "block.checksum.read";
pub(crate) const CHECKED_WRITE: &str = "block.checksum.write";

/// Commands outstanding.
const DEPTH: u16 = 32;

/// Random reads of a full device.
pub(crate) fn read_cost(effort: &Effort) -> Result<Row> {
    let (note, value) = cost(effort, flash(effort), effort.media_bytes, false)?;
    Ok(Row { id: READ_COST, value, unit: "x", target: 0.9, better: Better::Higher, note })
}

/// Random writes to the half of a device that is in use.
pub(crate) fn write_cost(effort: &Effort) -> Result<Row> {
    let (note, value) = cost(effort, flash(effort), effort.media_bytes / 2, true)?;
    Ok(Row { id: WRITE_COST, value, unit: "x", target: 0.6, better: Better::Higher, note })
}

/// Random reads of a full device whose blocks have checksums.
pub(crate) fn checked_read(effort: &Effort) -> Result<Row> {
    let (note, value) = cost(effort, checked(effort), effort.media_bytes, false)?;
    Ok(Row { id: CHECKED_READ, value, unit: "x", target: 0.4, better: Better::Higher, note })
}

/// Random writes to it.
pub(crate) fn checked_write(effort: &Effort) -> Result<Row> {
    let (note, value) = cost(effort, checked(effort), effort.media_bytes, true)?;
    Ok(Row { id: CHECKED_WRITE, value, unit: "x", target: 0.4, better: Better::Higher, note })
}

/// A device, and what is to be said of it.
type Described = (SsdConfig, &'static str);

fn flash(effort: &Effort) -> Described {
    let mut flash = FlashConfig::default();
    // A smaller device has smaller units: there are fewer of them than it takes otherwise.
    flash.geometry.unit_bytes = flash.geometry.unit_bytes.min(effort.media_bytes / 128);
    (SsdConfig { flash: Some(flash), ..plain(effort) }, "units of 8 MiB, 18 % overprovisioning")
}

fn checked(effort: &Effort) -> Described {
    (SsdConfig { checksum: true, ..plain(effort) }, "a CRC-32C per 512 bytes")
}

fn plain(effort: &Effort) -> SsdConfig {
    SsdConfig::block(effort.media_bytes, PAGE_BYTES as u32)
}

fn cost(effort: &Effort, with: Described, used_bytes: u64, write: bool) -> Result<(String, f64)> {
    cores::on_first(|core| {
        let (config, what) = with;
        let plain = device(plain(effort), used_bytes)?;
        let special = device(config, used_bytes)?;
        let pages = used_bytes / PAGE_BYTES as u64;
        let mut with = Load::new(&special, DEPTH, write)?.within(pages);
        let mut without = Load::new(&plain, DEPTH, write)?.within(pages);
        if write {
            // Everything once more, at random: from then on reclaim has work.
            with.run(pages)?;
            without.run(pages)?;
        }
        let pairs = interleave(effort, || with.rate(effort.side), || without.rate(effort.side))?;
        let note =
            format!("{}; depth {DEPTH}, one thread on core {core}; {what}; {}", pairs.rates(), huge_pages()?);
        Ok((note, pairs.ratio))
    })
}

fn device(config: SsdConfig, used_bytes: u64) -> Result<Device> {
    let store = MemoryStore::new(config.store_bytes()?)?;
    let device = device_of(config, Box::new(store))?;
    fill(&device, used_bytes)?;
    Ok(device)
}

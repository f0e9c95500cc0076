//! `telemetry-log`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use unvme::{Device, LogRequest, Nsid};
use unvme_spec::identify::lpa;
use unvme_spec::log_page::lid;

use crate::count::count;
use crate::exit::usage;
use crate::output::Output;
use crate::target::DeviceArg;
use crate::value::fields;

/// Bytes of a telemetry data block, and of the log's header (Base 5.1.12.1.8).
const BLOCK_BYTES: u64 = 512;
/// Create Telemetry Host-Initiated Data, a bit of the log specific parameter.
const CREATE: u8 = 1;
/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 64 << 10;

/// Arguments of `telemetry-log`.
#[derive(Debug, Args)]
#[command(after_help = "\
What is in the blocks is the vendor's. The virtual SSD has no telemetry: its state is in its files.

Example: unvme telemetry-log kernel:/dev/nvme0 --output-file telemetry.bin")]
pub(crate) struct TelemetryLog {
    #[command(flatten)]
    device: DeviceArg,
    /// File for the log, its header included
    #[arg(short = 'O', long, value_name = "FILE")]
    output_file: PathBuf,
    /// 1 has the controller collect the data now, 0 takes what it has collected
    #[arg(short = 'g', long, value_name = "0|1", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=1))]
    host_generate: u8,
    /// What the controller has collected by itself
    #[arg(short, long)]
    controller_init: bool,
    /// Data areas to take: 1, up to 2, up to 3 or up to 4
    #[arg(short, long, value_name = "AREA", default_value = "3", value_parser = clap::value_parser!(u8).range(1..=4))]
    data_area: u8,
    /// Retain the asynchronous event of what the controller has collected
    #[arg(short, long)]
    rae: bool,
    #[command(flatten)]
    output: Output,
}

impl TelemetryLog {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let has = device.admin(|controller| controller.identify_controller())?.lpa;
        let needed = if self.data_area == 4 { lpa::TELEMETRY_AREA_4 } else { lpa::TELEMETRY };
        if has & needed != needed {
            let what = if self.data_area == 4 { "telemetry data area 4" } else { "telemetry" };
            return Err(usage(format!("{}: the device has no {what} (LPA is {has:#x})", device.name())));
        }
        let create = !self.controller_init && self.host_generate == 1;
        let header = self.read(&device, 0, BLOCK_BYTES, if create { CREATE } else { 0 })?;
        let blocks = last_block(&header, self.data_area).context("telemetry-log: the header is too short")?;
        let bytes = (blocks + 1) * BLOCK_BYTES;
        let path = self.output_file.display();
        let file = File::create(&self.output_file).with_context(|| format!("create {path}"))?;
        let mut file = BufWriter::new(file);
        file.write_all(&header).with_context(|| format!("write {path}"))?;
        let mut offset = BLOCK_BYTES;
        while offset < bytes {
            let piece = PIECE_BYTES.min(bytes - offset);
            let data = self.read(&device, offset, piece, 0)?;
            file.write_all(&data).with_context(|| format!("write {path}"))?;
            offset += piece;
        }
        file.flush().with_context(|| format!("write {path}"))?;
        let json = fields! { "file": path.to_string(), "bytes": bytes, "data_area": self.data_area };
        self.output.output.say(json, format!("telemetry-log: Success, {} to {path}", count(bytes, "byte")))
    }

    fn read(&self, device: &Device, offset: u64, bytes: u64, lsp: u8) -> Result<Vec<u8>> {
        let lid = if self.controller_init { lid::TELEMETRY_CONTROLLER } else { lid::TELEMETRY_HOST };
        let request = LogRequest {
            nsid: Nsid::ALL,
            lid,
            lsp,
            offset,
            bytes: bytes as usize,
            retain_async_event: self.rae,
            ..Default::default()
        };
        Ok(device.admin(|controller| controller.get_log(&request))?)
    }
}

/// Number of the last block of the data areas up to `area`, from the log's header.
fn last_block(header: &[u8], area: u8) -> Option<u64> {
    let short = |at: usize| Some(u64::from(u16::from_le_bytes(header.get(at..at + 2)?.try_into().ok()?)));
    let last = match area {
        1 => short(8)?,
        2 => short(10)?,
        3 => short(12)?,
        _ => u64::from(u32::from_le_bytes(header.get(16..20)?.try_into().ok()?)),
    };
    // An area that is not there says 0: what is before it counts.
    let before = if area > 1 { last_block(header, area - 1)? } else { 0 };
    Some(last.max(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_ends_where_the_header_says_and_not_before_the_one_in_front_of_it() {
        let mut header = [0; 512];
        header[8..10].copy_from_slice(&3u16.to_le_bytes());
        header[12..14].copy_from_slice(&300u16.to_le_bytes());
        header[16..20].copy_from_slice(&70_000u32.to_le_bytes());
        let last = |area| last_block(&header, area);
        assert_eq!([last(1), last(2), last(3), last(4)], [Some(3), Some(3), Some(300), Some(70_000)]);
        assert_eq!(last_block(&header[..9], 1), None);
    }
}

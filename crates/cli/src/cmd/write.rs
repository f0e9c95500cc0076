//! `write`.

use anyhow::Result;
use clap::Args;

use super::transfer::{Data, Range, pump};
use crate::output::{Output, Screen};
use crate::target::{DeviceArg, Force, NamespaceArg};
use crate::value::Fields;

/// Arguments of `write`.
#[derive(Debug, Args)]
#[command(after_help = "\
All of the input is written when neither a count nor a size is given; it must be whole blocks then.
With a count or a size, zeroes follow the end of the input up to the last block.

Examples:
  echo hello | unvme write 0000:02:00.0 -s 0 -z 512
  unvme write 0000:02:00.0 -s 2048 --data image.bin")]
pub(crate) struct Write {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    data: Data,
    /// Each command completes only when its data is on the media
    #[arg(short, long)]
    force_unit_access: bool,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl Write {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let mut block = self.namespace.block(&device)?;
        let extent = self.range.extent(self.data.data_size, block.block_bytes())?;
        self.range.check(&block, extent.map_or(0, |extent| extent.blocks))?;
        let start = self.range.start_block;
        let what = format!("write destroys what is on namespace {} from block {start} on", block.nsid());
        self.force.confirm(&device, &what)?;
        let moved = pump(&self.data, extent, start, block.block_bytes(), |lba, data| {
            let written = match self.force_unit_access {
                true => block.write_through_at(lba, data),
                false => block.write_at(lba, data),
            };
            Ok(written?)
        })?;
        let blocks = moved.bytes / u64::from(block.block_bytes());
        let json = Fields::new()
            .with("nsid", block.nsid().0)
            .with("start_block", start)
            .with("blocks", blocks)
            .with("bytes", moved.bytes - moved.padding)
            .with("padding", moved.padding);
        let mut line = format!("write: Success, {} bytes", moved.bytes - moved.padding);
        if moved.padding > 0 {
            line = format!("{line} and {} of zeroes behind them", moved.padding);
        }
        Screen::new().say(self.output.output, json, line)
    }
}

//! `write`.

use anyhow::Result;
use clap::Args;
use unvme::{AccessFlags, Block, WriteOptions};
use unvme_spec::directive::dtype;
use unvme_spec::fdp::PlacementId;
use unvme_spec::nvm::opcode::WRITE;

use super::transfer::{Data, Extent, Look, Looked, Range, pump};
use crate::count::count;
use crate::exit::usage;
use crate::numbers;
use crate::output::Output;
use crate::target::{DeviceArg, Force, NamespaceArg};
use crate::value::fields;

/// Force Unit Access, a bit of a command's control word.
const FUA: u16 = 1 << 14;

/// Arguments of `write`.
#[derive(Debug, Args)]
#[command(after_help = "\
All of the input is written when neither a count nor a size is given; it must be whole blocks then.
With a count or a size, zeroes follow the end of the input up to the last block.

Examples:
  echo hello | unvme write 0000:02:00.0 -s 0 -z 512
  unvme write 0000:02:00.0 -s 2048 --data image.bin
  unvme write 0000:02:00.0 -s 4096 --data image.bin --dir-type 2 --dir-spec 1")]
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
    /// Directive: 0 none, 2 data placement
    #[arg(short = 'T', long, value_name = "TYPE", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=2))]
    dir_type: u8,
    /// With data placement: the placement identifier, one of `unvme fdp status`
    #[arg(short = 'S', long, value_name = "PID", default_value = "0", value_parser = numbers::u16)]
    dir_spec: u16,
    #[command(flatten)]
    look: Look,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl Write {
    pub(crate) fn run(self) -> Result<()> {
        let options = self.options()?;
        let device = self.device.open()?;
        let mut block = self.namespace.block(&device)?;
        let extent = self.range.extent(self.data.data_size, block.block_bytes())?;
        self.range.check(&block, extent.map_or(0, |extent| extent.blocks))?;
        let start = self.range.start_block;
        if !self.look.show(self.command(&block, extent), false)? {
            return Ok(());
        }
        let what = format!("write destroys what is on namespace {} from block {start} on", block.nsid());
        self.force.confirm(&device, &what)?;
        let block_bytes = block.block_bytes();
        let moved =
            self.look.timed("write", || {
                pump(&self.data, extent, start, block_bytes, |lba, data| {
                    Ok(block.write_with(lba, data, options)?)
                })
            })?;
        if moved.bytes == 0 {
            return Err(usage("the input is empty: nothing was written"));
        }
        let blocks = moved.bytes / u64::from(block.block_bytes());
        let json = fields! {
            "nsid": block.nsid().0, "start_block": start, "blocks": blocks,
            "bytes": moved.bytes - moved.padding, "padding": moved.padding,
        };
        let mut line = format!("write: Success, {}", count(moved.bytes - moved.padding, "byte"));
        if moved.padding > 0 {
            line = format!("{line} and {} of zeroes behind them", moved.padding);
        }
        self.output.output.say(json, line)
    }

    fn command(&self, block: &Block, extent: Option<Extent>) -> Looked {
        let fua = if self.force_unit_access { FUA } else { 0 };
        Looked {
            opcode: WRITE,
            control: fua | u16::from(self.dir_type) << 4,
            dspec: self.dir_spec,
            ..Looked::new(block, self.range.start_block, extent.map_or(1, |extent| extent.blocks))
        }
    }

    fn options(&self) -> Result<WriteOptions> {
        let placement = match (self.dir_type, self.dir_spec) {
            (0, 0) => None,
            (dtype::DATA_PLACEMENT, pid) => Some(PlacementId(pid)),
            (other, pid) => {
                return Err(usage(format!(
                    "--dir-type {other} --dir-spec {pid}: expected --dir-type 2 (data placement)"
                )));
            }
        };
        let flags = if self.force_unit_access { AccessFlags::FUA } else { AccessFlags::default() };
        Ok(WriteOptions { flags, placement })
    }
}

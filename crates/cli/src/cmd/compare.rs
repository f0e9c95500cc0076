//! `compare`.

use anyhow::Result;
use clap::Args;
use unvme_spec::nvm::opcode::COMPARE;

use super::transfer::{Data, Look, Looked, Range, pump};
use crate::count::count;
use crate::output::Output;
use crate::target::{DeviceArg, NamespaceArg};
use crate::value::fields;

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
The device compares; a difference is its status Compare Failure, exit code 1.

Example: unvme compare 0000:02:00.0 -s 2048 --data image.bin")]
pub(crate) struct Compare {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    look: Look,
    #[command(flatten)]
    output: Output,
}

impl Compare {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let mut block = self.namespace.block(&device)?;
        let extent = self.range.extent(self.data.data_size, block.block_bytes())?;
        self.range.check(&block, extent.map_or(0, |extent| extent.blocks))?;
        let start = self.range.start_block;
        let named = extent.map_or(1, |extent| extent.blocks);
        if !self.look.show(Looked { opcode: COMPARE, ..Looked::new(&block, start, named) }, false)? {
            return Ok(());
        }
        let block_bytes = block.block_bytes();
        let moved = self.look.timed("compare", || {
            pump(&self.data, extent, start, block_bytes, |lba, data| Ok(block.compare(lba, data)?))
        })?;
        let blocks = moved.bytes / u64::from(block.block_bytes());
        let json = fields! { "nsid": block.nsid().0, "start_block": start, "blocks": blocks, "equal": true };
        self.output.output.say(json, format!("compare: Success, {}", count(moved.bytes, "byte")))
    }
}

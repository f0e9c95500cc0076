//! `write-zeroes`, `write-uncor`, `verify`.

use anyhow::Result;
use clap::Args;

use super::transfer::Range;
use crate::count::count;
use crate::output::Output;
use crate::target::{DeviceArg, Force, NamespaceArg};
use crate::value::fields;

/// Arguments of `write-zeroes`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme write-zeroes 0000:02:00.0 -s 0 -c 2047      2048 blocks")]
pub(crate) struct WriteZeroes {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    #[command(flatten)]
    range: Range,
    /// The device should give the space of the blocks back
    #[arg(short, long)]
    deac: bool,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl WriteZeroes {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let mut block = self.namespace.block(&device)?;
        let blocks = self.range.blocks(&block)?;
        let start = self.range.start_block;
        let what = format!("write-zeroes destroys {} from block {start} on", count(blocks, "block"));
        self.force.confirm(&device, &what)?;
        block.write_zeroes(start, blocks, self.deac)?;
        let json = fields! {
            "nsid": block.nsid().0, "start_block": start, "blocks": blocks, "deallocate": self.deac,
        };
        self.output.output.say(json, "NVME Write Zeroes Success")
    }
}

/// Arguments of `write-uncor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Reading one of the blocks is Unrecovered Read Error from then on, until it is written again.

Example: unvme write-uncor 0000:02:00.0 -s 100 -c 7         8 blocks")]
pub(crate) struct WriteUncor {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl WriteUncor {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let mut block = self.namespace.block(&device)?;
        let blocks = self.range.blocks(&block)?;
        let start = self.range.start_block;
        let what = format!("write-uncor destroys {} from block {start} on", count(blocks, "block"));
        self.force.confirm(&device, &what)?;
        block.write_uncorrectable(start, blocks)?;
        let json = fields! { "nsid": block.nsid().0, "start_block": start, "blocks": blocks };
        self.output.output.say(json, "NVME Write Uncorrectable Success")
    }
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    output: Output,
}

impl Verify {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let mut block = self.namespace.block(&device)?;
        let blocks = self.range.blocks(&block)?;
        let start = self.range.start_block;
        block.verify(start, blocks)?;
        let json = fields! { "nsid": block.nsid().0, "start_block": start, "blocks": blocks };
        self.output.output.say(json, "NVME Verify Success")
    }
}

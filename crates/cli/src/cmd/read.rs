//! `read`.

use std::fs::File;
use std::io::{self, BufWriter};

use anyhow::{Context, Result};
use clap::Args;

use super::transfer::{Data, Extent, Range, drain};
use crate::count::count;
use crate::exit::usage;
use crate::output::{Format, Output};
use crate::target::{DeviceArg, NamespaceArg};
use crate::value::fields;

/// Arguments of `read`.
#[derive(Debug, Args)]
#[command(after_help = "\
One block is read when neither a count nor a size is given.

Examples:
  unvme read 0000:02:00.0 -s 0 -z 4096 | xxd
  unvme read 0000:02:00.0 -s 1024 -c 7 --data blocks.bin     8 blocks to a file")]
pub(crate) struct Read {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    output: Output,
}

impl Read {
    pub(crate) fn run(self) -> Result<()> {
        if self.output.output == Format::Json && self.data.path().is_none() {
            return Err(usage(
                "read: standard output has the data; name a file with --data to get JSON there",
            ));
        }
        let device = self.device.open()?;
        let mut block = self.namespace.block(&device)?;
        let one = Extent { blocks: 1, bytes: block.block_bytes().into() };
        let extent = self.range.extent(self.data.data_size, block.block_bytes())?.unwrap_or(one);
        self.range.check(&block, extent.blocks)?;
        let start = self.range.start_block;
        let Some(path) = self.data.path() else {
            return drain(&mut block, start, extent, &mut BufWriter::new(io::stdout()))
                .context("read to standard output");
        };
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        drain(&mut block, start, extent, &mut BufWriter::new(file))
            .with_context(|| format!("read to {}", path.display()))?;
        let json = fields! {
            "nsid": block.nsid().0, "start_block": start, "blocks": extent.blocks, "bytes": extent.bytes,
        };
        self.output.output.say(json, format!("read: Success, {}", count(extent.bytes, "byte")))
    }
}

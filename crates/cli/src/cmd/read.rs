//! `read`.

use std::fs::File;
use std::io::{self, BufWriter};

use anyhow::{Context, Result};
use clap::Args;
use unvme_spec::nvm::opcode::READ;

use super::transfer::{Data, Extent, Look, Looked, Range, drain};
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
    look: Look,
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
        let command = Looked { opcode: READ, ..Looked::new(&block, start, extent.blocks) };
        if !self.look.show(command, self.data.path().is_none())? {
            return Ok(());
        }
        let Some(path) = self.data.path() else {
            let mut out = BufWriter::new(io::stdout());
            let drained = self.look.timed("read", || drain(&mut block, start, extent, &mut out));
            return drained.context("read to standard output");
        };
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        self.look
            .timed("read", || drain(&mut block, start, extent, &mut BufWriter::new(file)))
            .with_context(|| format!("read to {}", path.display()))?;
        let json = fields! {
            "nsid": block.nsid().0, "start_block": start, "blocks": extent.blocks, "bytes": extent.bytes,
        };
        self.output.output.say(json, format!("read: Success, {}", count(extent.bytes, "byte")))
    }
}

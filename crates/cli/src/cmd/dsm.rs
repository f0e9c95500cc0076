//! `dsm`.

use anyhow::Result;
use clap::Args;
use unvme::Payload;
use unvme_spec::nvm::{Command, DsmRange};
use zerocopy::IntoBytes;

use crate::exit::usage;
use crate::numbers;
use crate::output::Output;
use crate::target::{DeviceArg, Force, NamespaceArg};
use crate::value::fields;

/// Most ranges of one command.
const RANGES_MAX: usize = 256;

/// Arguments of `dsm`.
#[derive(Debug, Args)]
#[command(after_help = "\
The lists are separated by commas and have one entry for each range.

Example: unvme dsm 0000:02:00.0 --ad --slbs 0,4096 --blocks 8,256")]
pub(crate) struct Dsm {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// First block of each range
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', required = true, value_parser = numbers::u64)]
    slbs: Vec<u64>,
    /// Number of blocks of each range; unlike a block count, not minus one
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', required = true, value_parser = numbers::u32)]
    blocks: Vec<u32>,
    /// Context attributes of each range; zeroes when left out
    #[arg(short = 'a', long, value_name = "LIST", value_delimiter = ',', value_parser = numbers::u32)]
    ctx_attrs: Vec<u32>,
    /// Deallocate: the data of the ranges is not needed any more
    #[arg(short = 'd', long)]
    ad: bool,
    /// Hint: the ranges will be written as one
    #[arg(short = 'w', long)]
    idw: bool,
    /// Hint: the ranges will be read as one
    #[arg(short = 'r', long)]
    idr: bool,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl Dsm {
    pub(crate) fn run(mut self) -> Result<()> {
        let count = self.slbs.len();
        if self.ctx_attrs.is_empty() {
            self.ctx_attrs.resize(count, 0);
        }
        let (blocks, attributes) = (self.blocks.len(), self.ctx_attrs.len());
        if blocks != count || attributes != count || count > RANGES_MAX {
            return Err(usage(format!(
                "dsm: {count} first blocks, {blocks} numbers of blocks, {attributes} attributes; \
                 expected one of each for 1 to {RANGES_MAX} ranges"
            )));
        }
        let device = self.device.open()?;
        let mut block = self.namespace.block(&device)?;
        if self.ad {
            self.force.confirm(&device, "dsm --ad destroys the data of the ranges")?;
        }
        let ranges: Vec<DsmRange> = (0..count)
            .map(|i| DsmRange { attributes: self.ctx_attrs[i], blocks: self.blocks[i], start: self.slbs[i] })
            .collect();
        let hints = u8::from(self.idr) | u8::from(self.idw) << 1;
        let command = Command::DatasetManagement { ranges: count as u32, deallocate: self.ad, hints };
        let mut buf = device.admin(|controller| controller.alloc(count * size_of::<DsmRange>()))?;
        buf.write(0, ranges.as_bytes());
        block.command("Dataset Management", command.encode(block.nsid()), Some(Payload::whole(buf)))?;
        let json = fields! { "nsid": block.nsid().0, "ranges": count as u64, "deallocate": self.ad };
        self.output.output.say(json, "NVMe DSM: success")
    }
}

//! `flush`.

use anyhow::Result;
use clap::Args;
use unvme::Nsid;

use crate::numbers;
use crate::output::Output;
use crate::target::DeviceArg;
use crate::value::fields;

#[derive(Debug, Args)]
pub(crate) struct Flush {
    #[command(flatten)]
    device: DeviceArg,
    /// Namespace; all that are attached when left out
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    namespace_id: Option<u32>,
    #[command(flatten)]
    output: Output,
}

impl Flush {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let namespaces = match self.namespace_id {
            Some(nsid) => vec![Nsid(nsid)],
            None => device.namespaces()?,
        };
        for nsid in &namespaces {
            device.block(*nsid)?.flush()?;
        }
        let list: Vec<u32> = namespaces.iter().map(|nsid| nsid.0).collect();
        self.output.output.say(fields! { "flushed": list }, "NVMe Flush: success")
    }
}

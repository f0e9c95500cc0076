//! `fdp status`, `fdp update`.

use anyhow::Result;
use clap::Args;
use unvme::{Block, Device};
use unvme_spec::fdp::PlacementId;
use unvme_spec::identify::csi;

use crate::exit::usage;
use crate::numbers;
use crate::output::Output;
use crate::show::fdp as show;
use crate::target::{DeviceArg, Force, NamespaceArg};
use crate::value::fields;

/// The namespace that was named, or the only one, which has blocks: I/O Management goes through a queue for
/// those.
pub(super) fn blocks(namespace: NamespaceArg, device: &Device) -> Result<Block> {
    let nsid = namespace.choose_any(device)?;
    match device.admin(|controller| controller.namespace_command_set(nsid))? {
        csi::NVM => Ok(device.block(nsid)?),
        _ => Err(usage(format!(
            "{}: namespace {nsid} holds pairs, which are not written with placement identifiers; `unvme fdp usage` shows \
             whose reclaim unit handles are, `unvme fdp stats` what was written",
            device.name()
        ))),
    }
}

/// Arguments of `fdp status`.
#[derive(Debug, Args)]
#[command(after_help = "\
A line per placement identifier of the namespace: what a write names with the Data Placement
directive. Available Media Writes are in logical blocks.")]
pub(crate) struct Status {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    #[command(flatten)]
    output: Output,
}

impl Status {
    pub(super) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let handles = blocks(self.namespace, &device)?.handles()?;
        self.output.output.show(show::status(&handles), |out| show::write_status(out, &handles))
    }
}

/// Arguments of `fdp update`.
#[derive(Debug, Args)]
#[command(after_help = "\
A reclaim unit that was not full is left as it is: the rest of it is not written any more.

Example: unvme fdp update 0000:02:00.0 -p 0,1")]
pub(crate) struct Update {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Placement identifiers, separated by commas
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', required = true, value_parser = numbers::u16)]
    pids: Vec<u16>,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl Update {
    pub(super) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let what = "fdp update leaves reclaim units as they are, full or not";
        self.force.confirm(&device, what)?;
        let pids: Vec<PlacementId> = self.pids.iter().copied().map(PlacementId).collect();
        blocks(self.namespace, &device)?.update_handles(&pids)?;
        self.output.output.say(fields! { "pids": self.pids }, "update: Success")
    }
}

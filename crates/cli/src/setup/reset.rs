//! `setup reset`.

use anyhow::Result;
use clap::Args;
use unvme_setup::{ResetOptions, System, plan_reset};

use super::drives::DriveArgs;
use super::{outcome, pages};
use crate::output::Output;

/// Arguments of `setup reset`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without an address: all NVMe drives that are bound to vfio-pci or uio_pci_generic. A drive that a
process has open is not touched. Huge pages stay reserved; `--hugepages 0` gives them back.

Example: sudo unvme setup reset 0000:0b:00.0 --hugepages 0")]
pub(crate) struct Reset {
    #[command(flatten)]
    drives: DriveArgs,
    /// Leave this many huge pages of 2 MiB, or of this size together
    #[arg(long, value_name = "N|SIZE", value_parser = pages::pages)]
    hugepages: Option<u64>,
    /// The huge pages of this NUMA node
    #[arg(long, value_name = "NODE", requires = "hugepages")]
    node: Option<u32>,
    /// Print the commands that would do it, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
}

impl Reset {
    pub(crate) fn run(self) -> Result<()> {
        let system = System::from_environment();
        let options = ResetOptions {
            addresses: self.drives.addresses()?,
            huge_pages: self.hugepages,
            node: self.node,
            dry_run: self.dry_run,
        };
        let plan = plan_reset(&system, &options)?;
        outcome::carry_out(&system, &plan, self.dry_run, self.output.output)
    }
}

//! `setup config`.

use anyhow::Result;
use clap::Args;
use unvme_setup::{ConfigOptions, Driver, Owner, System, plan_config};

use super::drives::DriveArgs;
use super::{outcome, pages};
use crate::output::Output;

/// Arguments of `setup config`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without an address: all NVMe drives that are not in use. Without --driver: vfio-pci where the
drive is in an IOMMU group, else uio_pci_generic. Either all of it happens, or nothing: when a
step fails, the drives go back to the driver they had.

vfio-pci needs no huge pages and no root: --user gives a drive to a user. uio_pci_generic needs
both; it gets 1024 huge pages (2 GiB) when --hugepages and NRHUGE say nothing. --driver nvme
leaves a drive to the kernel: with --user, its /dev/nvmeX and /dev/ngXnY are for that user.

Examples:
  unvme setup config 0000:0b:00.0 --dry-run
  sudo unvme setup config 0000:0b:00.0 --user $USER --limits $USER
  sudo NRHUGE=2048 unvme setup config \"0000:0b:00.0 0000:0c:00.0\"")]
pub(crate) struct Config {
    #[command(flatten)]
    drives: DriveArgs,
    /// Driver to bind to: vfio-pci, uio_pci_generic or nvme
    #[arg(long, value_name = "DRIVER")]
    driver: Option<Driver>,
    /// Have this many huge pages of 2 MiB, or of this size together [env: NRHUGE]
    #[arg(long, value_name = "N|SIZE", value_parser = pages::pages)]
    hugepages: Option<u64>,
    /// Have the huge pages on this NUMA node
    #[arg(long, value_name = "NODE")]
    node: Option<u32>,
    /// Give the drives to this user
    #[arg(long, value_name = "USER", conflicts_with = "group")]
    user: Option<String>,
    /// Give the drives to this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Let this user lock as much memory as he likes, from his next login on
    #[arg(long, value_name = "USER")]
    limits: Option<String>,
    /// Print the commands that would do it, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
}

impl Config {
    pub(crate) fn run(self) -> Result<()> {
        let system = System::from_environment();
        let owner = match (self.user, self.group) {
            (Some(user), _) => Some(Owner::User(user)),
            (None, group) => group.map(Owner::Group),
        };
        let options = ConfigOptions {
            addresses: self.drives.addresses()?,
            driver: self.driver,
            huge_pages: self.hugepages.map_or_else(pages::from_environment, |pages| Ok(Some(pages)))?,
            node: self.node,
            owner,
            limits: self.limits,
            dry_run: self.dry_run,
        };
        let plan = plan_config(&system, &options)?;
        outcome::carry_out(&system, &plan, self.dry_run, self.output.output)
    }
}

//! `unvme setup`: the machine's drives for user space, and back.
//!
//! | module | concept |
//! |---|---|
//! | `config`, `reset` | `setup config`, `setup reset` |
//! | `outcome` | showing a plan: what becomes of which drive, or the commands that would do it |
//! | `status` | `setup status` |
//! | `drives`, `pages` | arguments: drives by address, huge pages by number or size |

mod config;
mod drives;
mod outcome;
mod pages;
mod reset;
mod status;

use clap::Subcommand;

use crate::cmd::commands;

commands! {
/// `setup`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A drive that is mounted, swapped on, part of LVM, RAID or ZFS, open in a process, or that the system
boots from is never touched. Nothing of it but --limits survives a reboot: to have it again, run the
command when the system starts, for example from a systemd unit.

Examples:
  unvme setup status
  unvme setup config 0000:0b:00.0 --dry-run             # the commands it would run
  sudo unvme setup config 0000:0b:00.0 --user $USER     # then `unvme perf -r 0000:0b:00.0`
  sudo unvme setup reset 0000:0b:00.0                   # back to the kernel")]
pub(crate) enum Command {
    /// Hand drives to user space: bind them to vfio-pci or uio_pci_generic
    Config(config::Config),
    /// Give drives back to the kernel's nvme driver
    Reset(reset::Reset),
    /// Show the drives, who uses them, and what is missing to use them from here
    Status(status::Status),
}
}

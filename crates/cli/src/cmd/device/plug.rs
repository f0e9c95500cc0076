//! `device unplug`, `device plug`.

use anyhow::Result;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use unvme::registry::Plugged;
use unvme::{PciAddress, Registry};

use crate::completion;
use crate::output::Output;
use crate::value::fields;

/// Arguments of `device unplug`.
#[derive(Debug, Args)]
#[command(after_help = "\
As pulling a drive out: every process that has the device open sees its commands fail at once,
whether it opened the device itself or reaches it through another process. The device keeps all
that was acknowledged. `unvme device list` shows it, `unvme list` does not, and it cannot be
opened until it is plugged again.")]
pub(crate) struct Unplug {
    /// PCI address
    #[arg(value_name = "ADDRESS", add = ArgValueCompleter::new(completion::slots))]
    address: PciAddress,
    #[command(flatten)]
    output: Output,
}

impl Unplug {
    pub(crate) fn run(self) -> Result<()> {
        let outcome = Registry::from_environment()?.unplug(self.address)?;
        say(self.address, "unplugged", outcome, &self.output)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Plug {
    /// PCI address
    #[arg(value_name = "ADDRESS", add = ArgValueCompleter::new(completion::slots))]
    address: PciAddress,
    #[command(flatten)]
    output: Output,
}

impl Plug {
    pub(crate) fn run(self) -> Result<()> {
        let outcome = Registry::from_environment()?.plug(self.address)?;
        say(self.address, "plugged", outcome, &self.output)
    }
}

/// Says what a slot is now, and whether it was so before.
fn say(address: PciAddress, state: &'static str, outcome: Plugged, output: &Output) -> Result<()> {
    let changed = outcome == Plugged::Changed;
    let json = fields! { "address": address.to_string(), "state": state, "changed": changed };
    let line = match outcome {
        Plugged::Changed => format!("{state} {address}"),
        Plugged::Already => format!("{address} is {state} already"),
    };
    output.output.say(json, line)
}

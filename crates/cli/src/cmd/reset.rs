//! `reset`, `subsystem-reset`.

use anyhow::Result;
use clap::Args;

use crate::output::Output;
use crate::target::DeviceArg;
use crate::value::fields;

#[derive(Debug, Args)]
pub(crate) struct Reset {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    output: Output,
}

impl Reset {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        device.admin(|controller| controller.reset())?;
        self.output.output.say(fields! { "reset": device.name() }, "reset: Success")
    }
}

#[derive(Debug, Args)]
pub(crate) struct SubsystemReset {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    output: Output,
}

impl SubsystemReset {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        device.admin(|controller| controller.subsystem_reset())?;
        let json = fields! { "subsystem_reset": device.name() };
        self.output.output.say(json, "subsystem-reset: Success")
    }
}

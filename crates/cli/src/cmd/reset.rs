//! `reset`, `subsystem-reset`.

use anyhow::Result;
use clap::Args;

use crate::output::{Output, Screen};
use crate::target::DeviceArg;
use crate::value::Fields;

/// Arguments of `reset`.
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
        Screen::new().say(self.output.output, Fields::new().with("reset", device.name()), "reset: Success")
    }
}

/// Arguments of `subsystem-reset`.
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
        let json = Fields::new().with("subsystem_reset", device.name());
        Screen::new().say(self.output.output, json, "subsystem-reset: Success")
    }
}

//! `fault clear`.

use anyhow::Result;
use clap::Args;

use crate::count::count;
use crate::numbers;
use crate::output::Output;
use crate::target::DeviceArg;
use crate::value::fields;

/// Arguments of `fault clear`.
#[derive(Debug, Args)]
#[command(after_help = "\
What a rule has done to the device as a whole, read-only media for instance, ends with it.

Example: unvme fault clear 0000:02:00.0 3")]
pub(crate) struct Clear {
    #[command(flatten)]
    device: DeviceArg,
    /// Number of the rule; all of them when left out
    #[arg(value_name = "ID", value_parser = numbers::above_zero)]
    id: Option<u32>,
    #[command(flatten)]
    output: Output,
}

impl Clear {
    pub(crate) fn run(self) -> Result<()> {
        let cleared = self.device.open()?.clear_faults(self.id)?;
        let line = format!("cleared {}", count(cleared, "rule"));
        self.output.output.say(fields! { "cleared": cleared }, line)
    }
}

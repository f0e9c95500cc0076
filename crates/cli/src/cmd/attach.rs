//! `attach-ns`, `detach-ns`.

use anyhow::Result;
use clap::Args;
use unvme::{Device, Nsid};

use crate::numbers;
use crate::output::{Output, Screen};
use crate::target::DeviceArg;
use crate::value::Fields;

/// What both commands take.
#[derive(Debug, Args)]
struct Attachment {
    #[command(flatten)]
    device: DeviceArg,
    /// Namespace
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    namespace_id: u32,
    /// Controllers, separated by commas; the one of the device when left out
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = numbers::u16)]
    controllers: Vec<u16>,
    #[command(flatten)]
    output: Output,
}

impl Attachment {
    fn run(self, verb: &str, command: impl FnOnce(&Device, Nsid, &[u16]) -> unvme::Result<()>) -> Result<()> {
        let device = self.device.open()?;
        let mut controllers = self.controllers;
        if controllers.is_empty() {
            controllers.push(device.identity().controller_id);
        }
        controllers.sort_unstable();
        controllers.dedup();
        command(&device, Nsid(self.namespace_id), &controllers)?;
        let json = Fields::new().with("nsid", self.namespace_id).with("controllers", controllers);
        let line = format!("{verb}: Success, nsid:{}", self.namespace_id);
        Screen::new().say(self.output.output, json, line)
    }
}

/// Arguments of `attach-ns`.
#[derive(Debug, Args)]
pub(crate) struct AttachNs {
    #[command(flatten)]
    attachment: Attachment,
}

impl AttachNs {
    pub(crate) fn run(self) -> Result<()> {
        self.attachment
            .run("attach-ns", |device, nsid, list| device.admin(|c| c.attach_namespace(nsid, list)))
    }
}

/// Arguments of `detach-ns`.
#[derive(Debug, Args)]
pub(crate) struct DetachNs {
    #[command(flatten)]
    attachment: Attachment,
}

impl DetachNs {
    pub(crate) fn run(self) -> Result<()> {
        self.attachment
            .run("detach-ns", |device, nsid, list| device.admin(|c| c.detach_namespace(nsid, list)))
    }
}

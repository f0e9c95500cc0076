//! `attach-ns`, `detach-ns`.

use anyhow::Result;
use clap::Args;
use unvme::{Device, Nsid};

use crate::numbers;
use crate::output::Output;
use crate::target::DeviceArg;
use crate::value::fields;

/// What both commands take.
#[derive(Debug, Args)]
struct Attachment {
    #[command(flatten)]
    device: DeviceArg,
    /// Namespace
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    namespace_id: u32,
    /// Controllers, separated by commas; those of all processes that use the device when left out
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = numbers::u16)]
    controllers: Vec<u16>,
    #[command(flatten)]
    output: Output,
}

impl Attachment {
    /// `selects` says whether the command is for a controller that has, or has not, the namespace.
    fn run(
        self,
        verb: &str,
        selects: impl Fn(bool) -> bool,
        command: impl FnOnce(&Device, Nsid, &[u16]) -> unvme::Result<()>,
    ) -> Result<()> {
        let device = self.device.open()?;
        let mut controllers = self.controllers;
        if controllers.is_empty() {
            let attached = device.admin(|c| c.controllers(Some(Nsid(self.namespace_id))))?;
            controllers = device.controllers()?;
            controllers.retain(|id| selects(attached.contains(id)));
        }
        if controllers.is_empty() {
            // For the device to say what is wrong with it.
            controllers.push(device.identity().controller_id);
        }
        controllers.sort_unstable();
        controllers.dedup();
        command(&device, Nsid(self.namespace_id), &controllers)?;
        let json = fields! { "nsid": self.namespace_id, "controllers": controllers };
        let line = format!("{verb}: Success, nsid:{}", self.namespace_id);
        self.output.output.say(json, line)
    }
}

#[derive(Debug, Args)]
pub(crate) struct AttachNs {
    #[command(flatten)]
    attachment: Attachment,
}

impl AttachNs {
    pub(crate) fn run(self) -> Result<()> {
        self.attachment.run(
            "attach-ns",
            |has| !has,
            |device, nsid, list| device.admin(|c| c.attach_namespace(nsid, list)),
        )
    }
}

#[derive(Debug, Args)]
pub(crate) struct DetachNs {
    #[command(flatten)]
    attachment: Attachment,
}

impl DetachNs {
    pub(crate) fn run(self) -> Result<()> {
        self.attachment.run(
            "detach-ns",
            |has| has,
            |device, nsid, list| device.admin(|c| c.detach_namespace(nsid, list)),
        )
    }
}

//! What a command is about: a device, a namespace on it; and asking before its data is destroyed.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::Result;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use unvme::{Block, Device, Nsid, OpenOptions, open};

use crate::completion;
use crate::exit::{NotConfirmed, usage};
use crate::numbers;

/// The device a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArg {
    /// Device: 0000:02:00.0, kernel:/dev/ng0n1, mem:block:SIZE, mem:kv:SIZE, vfio-user:SOCKET or
    /// tcp:HOST:PORT/NQN
    #[arg(value_name = "DEVICE", add = ArgValueCompleter::new(completion::devices))]
    pub(crate) device: String,
}

impl DeviceArg {
    pub(crate) fn open(&self) -> Result<Device> {
        Ok(open(&self.device, &OpenOptions::default())?)
    }
}

/// The namespace a command is about.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct NamespaceArg {
    /// Namespace; may be left out when only one is attached
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    pub(crate) namespace_id: Option<u32>,
}

impl NamespaceArg {
    /// The namespace that was named, or the only one with blocks.
    pub(crate) fn choose(self, device: &Device) -> Result<Nsid> {
        self.choose_among(device, blocks_or_what_there_is)
    }

    /// The namespace that was named, or the only one there is, whatever its command set.
    pub(crate) fn choose_any(self, device: &Device) -> Result<Nsid> {
        self.choose_among(device, |device| device.admin(|controller| controller.active_namespaces()))
    }

    fn choose_among(
        self,
        device: &Device,
        all: impl FnOnce(&Device) -> unvme::Result<Vec<Nsid>>,
    ) -> Result<Nsid> {
        if let Some(nsid) = self.namespace_id {
            return Ok(Nsid(nsid));
        }
        match all(device)?.as_slice() {
            [only] => Ok(*only),
            [] => Err(usage(format!(
                "{}: no namespace is attached; create one with `unvme create-ns` and attach it with `unvme attach-ns`",
                device.name()
            ))),
            several => {
                let list: Vec<String> = several.iter().map(ToString::to_string).collect();
                let list = list.join(", ");
                Err(usage(format!(
                    "{}: namespaces are {list}; choose one with --namespace-id",
                    device.name()
                )))
            }
        }
    }

    /// The blocks of the namespace.
    pub(crate) fn block(self, device: &Device) -> Result<Block> {
        Ok(device.block(self.choose(device)?)?)
    }
}

/// Permission to destroy data.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Force {
    /// Do not ask before data is destroyed
    #[arg(long)]
    pub(crate) force: bool,
}

impl Force {
    /// Asks, where the device is not virtual: `what` says what would happen.
    pub(crate) fn confirm(self, device: &Device, what: &str) -> Result<()> {
        if self.force || device.is_virtual() {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            return refused(device.name(), what, "not confirmed, and there is no terminal to ask on");
        }
        ask(device.name(), what)
    }

    /// Asks for what takes all of a namespace or a device with it: of a virtual one as well, where somebody
    /// is at the terminal to answer.
    pub(crate) fn confirm_all(self, device: &Device, what: &str) -> Result<()> {
        match device.is_virtual() {
            true => self.confirm_virtual(device.name(), what),
            false => self.confirm(device, what),
        }
    }

    /// The same for a virtual device that is not opened for it.
    pub(crate) fn confirm_virtual(self, name: &str, what: &str) -> Result<()> {
        if self.force || !io::stdin().is_terminal() { Ok(()) } else { ask(name, what) }
    }
}

fn refused(name: &str, what: &str, why: &str) -> Result<()> {
    let message = format!("{name}: {what}: {why}; use --force to do it without a question");
    Err(NotConfirmed(message).into())
}

/// Asks on the terminal.
fn ask(name: &str, what: &str) -> Result<()> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{name}: {what}. Type yes to go on: ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() == "yes" { Ok(()) } else { refused(name, what, "not confirmed") }
}

/// Namespaces of blocks; where there are none all others, so that opening one says why its blocks cannot be
/// used.
pub(crate) fn blocks_or_what_there_is(device: &Device) -> unvme::Result<Vec<Nsid>> {
    let blocks = device.namespaces()?;
    if blocks.is_empty() { device.admin(|controller| controller.active_namespaces()) } else { Ok(blocks) }
}

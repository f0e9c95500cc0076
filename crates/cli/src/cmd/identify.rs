//! `id-ctrl`, `id-ns`, `ns-descs`, `list-ctrl`, `list-ns`.

use anyhow::Result;
use clap::Args;
use unvme::{Device, Nsid};
use unvme_spec::identify::{IdentifyController, IdentifyNamespace, KvNamespaceIdentify, cns, csi};
use unvme_spec::{admin, identify};
use zerocopy::IntoBytes;

use crate::exit::usage;
use crate::numbers;
use crate::output::{Output, write_raw};
use crate::show;
use crate::target::{DeviceArg, NamespaceArg};
use crate::value::{Fields, Value, fields};

/// Arguments of `id-ctrl`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme id-ctrl 0000:02:00.0 --output json")]
pub(crate) struct IdCtrl {
    #[command(flatten)]
    device: DeviceArg,
    /// Explain attributes and capabilities bit by bit
    #[arg(short = 'H', long)]
    human_readable: bool,
    /// Write the 4096 bytes as they are
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl IdCtrl {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let data: IdentifyController = device.admin(|controller| controller.identify_controller())?;
        if self.raw_binary {
            return write_raw(data.as_bytes());
        }
        self.output.output.show(show::identify::controller(&data), |out| {
            show::identify::write_controller(out, &data, self.human_readable)
        })
    }
}

/// Arguments of `id-ns`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unvme id-ns 0000:02:00.0 -n 1
  unvme id-ns 0000:02:00.0 -n 1 --csi 1        what the key-value command set says of it")]
pub(crate) struct IdNs {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Also a namespace that exists and is not attached
    #[arg(long)]
    force: bool,
    /// I/O command set: 0 NVM, 1 key value; that of the namespace when left out
    #[arg(short = 'y', long, value_name = "CSI", value_parser = numbers::u8)]
    csi: Option<u8>,
    /// Explain features and capabilities bit by bit
    #[arg(short = 'H', long)]
    human_readable: bool,
    /// Write the 4096 bytes as they are
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl IdNs {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let nsid = self.namespace.choose_any(&device)?;
        let command_set = match self.csi {
            Some(csi) => csi,
            // A namespace that is not attached has no descriptors to tell it.
            None if self.force || nsid == Nsid::ALL => csi::NVM,
            None => device.admin(|controller| controller.namespace_command_set(nsid))?,
        };
        match command_set {
            csi::NVM => self.show_blocks(&device, nsid),
            csi::KEY_VALUE => self.show_pairs(&device, nsid),
            other => Err(usage(format!("--csi {other}: expected 0 (NVM) or 1 (key value)"))),
        }
    }

    fn show_pairs(&self, device: &Device, nsid: Nsid) -> Result<()> {
        let cns = match self.force {
            true => cns::COMMAND_SET_ALLOCATED_NAMESPACE,
            false => cns::COMMAND_SET_NAMESPACE,
        };
        let command = admin::Identify { nsid, cns, csi: csi::KEY_VALUE, ..Default::default() };
        let data: KvNamespaceIdentify = device.admin(|controller| controller.identify_as(command))?;
        if self.raw_binary {
            return write_raw(data.as_bytes());
        }
        self.output.output.show(show::key_value::namespace(&data), |out| {
            show::key_value::write_namespace(out, nsid.0, &data)
        })
    }

    fn show_blocks(&self, device: &Device, nsid: Nsid) -> Result<()> {
        let cns = if self.force { cns::ALLOCATED_NAMESPACE } else { cns::NAMESPACE };
        let command = admin::Identify { nsid, cns, ..Default::default() };
        let data: IdentifyNamespace = device.admin(|controller| controller.identify_as(command))?;
        if self.raw_binary {
            return write_raw(data.as_bytes());
        }
        self.output.output.show(show::identify::namespace(&data), |out| {
            show::identify::write_namespace(out, nsid.0, &data, self.human_readable)
        })
    }
}

/// Arguments of `ns-descs`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme ns-descs 0000:02:00.0 -n 1")]
pub(crate) struct NsDescs {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Write the 4096 bytes as they are
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl NsDescs {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let nsid = self.namespace.choose_any(&device)?;
        let command = admin::Identify { nsid, cns: cns::NAMESPACE_DESCRIPTORS, ..Default::default() };
        let data = device.admin(|controller| controller.identify(command))?;
        if self.raw_binary {
            return write_raw(&data);
        }
        let list = show::descriptors::read(&data);
        self.output
            .output
            .show(show::descriptors::json(&list), |out| show::descriptors::write(out, nsid.0, &list))
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListCtrl {
    #[command(flatten)]
    device: DeviceArg,
    /// Only the controllers this namespace is attached to
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    namespace_id: Option<u32>,
    #[command(flatten)]
    output: Output,
}

impl ListCtrl {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let nsid = self.namespace_id.map(Nsid);
        let controllers = device.admin(|controller| controller.controllers(nsid))?;
        let list: Vec<Fields> = controllers.iter().map(|id| fields! { "ctrl_id": *id }).collect();
        let json = fields! { "num_ctrl": controllers.len() as u64, "ctrl_list": list };
        self.output.output.show(json, |out| {
            writeln!(out, "num of ctrls present: {}", controllers.len())?;
            for (index, id) in controllers.iter().enumerate() {
                writeln!(out, "[{index:4}]:{}", Value::Hex((*id).into()))?;
            }
            Ok(())
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListNs {
    #[command(flatten)]
    device: DeviceArg,
    /// Also namespaces that are not attached
    #[arg(short, long)]
    all: bool,
    /// Start the list with this namespace
    #[arg(short, long, value_name = "NSID", default_value = "1", value_parser = numbers::u32)]
    namespace_id: u32,
    /// Only namespaces of this I/O command set: 0 NVM, 1 key value
    #[arg(short = 'y', long, value_name = "CSI", value_parser = numbers::u8, conflicts_with = "all")]
    csi: Option<u8>,
    #[command(flatten)]
    output: Output,
}

impl ListNs {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let mut namespaces = device.admin(|controller| match (self.all, self.csi) {
            (true, _) => controller.allocated_namespaces(),
            (false, None) => controller.active_namespaces(),
            (false, Some(csi)) => controller.command_set_namespaces(csi),
        })?;
        namespaces.retain(|nsid| nsid.0 >= self.namespace_id);
        // nvme-cli shows what one list holds.
        namespaces.truncate(identify::NamespaceList::CAPACITY);
        let list: Vec<Fields> = namespaces.iter().map(|nsid| fields! { "nsid": nsid.0 }).collect();
        self.output.output.show(fields! { "nsid_list": list }, |out| {
            for (index, nsid) in namespaces.iter().enumerate() {
                writeln!(out, "[{index:4}]:{}", Value::Hex(nsid.0.into()))?;
            }
            Ok(())
        })
    }
}

//! `list`.

mod drives;

use std::io::Write;

use anyhow::Result;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use unvme::fabrics::{KnownTarget, KnownTargets};
use unvme::{Device, Error, Nsid, OpenOptions, Registry, open};
use unvme_spec::admin;
use unvme_spec::fabrics::DISCOVERY_NQN;
use unvme_spec::identify::{KvNamespaceIdentify, cns, csi};

use super::subsystems;
use crate::columns::{Rule, write_table};
use crate::completion;
use crate::output::Output;
use crate::show::si;
use crate::value::{Fields, Value, fields};

/// Arguments of `list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Namespaces of virtual devices, of the targets whose addresses $UNVME_HOME/fabrics.json has, and of
drives that the kernel's driver has, then the drives of the machine with the names they are opened
by. Drives are not opened, so this takes no permission; name one to have it opened. A device that
cannot be opened is named on standard error, and the others are listed all the same; so is an
entry of fabrics.json that is wrong.")]
pub(crate) struct List {
    /// Devices; all virtual devices, known targets and the drives of this machine when left out
    #[arg(value_name = "DEVICE", add = ArgValueCompleter::new(completion::devices))]
    devices: Vec<String>,
    /// By NVM subsystem, with controllers and namespaces in tables of their own
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    output: Output,
}

/// One namespace of one device.
pub(super) struct Row {
    address: String,
    /// What it is opened by.
    name: String,
    serial: String,
    model: String,
    pub(super) nsid: u32,
    /// `None` where the device was not asked.
    pub(super) used_bytes: Option<u128>,
    pub(super) bytes: u128,
    pub(super) kind: &'static str,
    /// `None` where there are none: pairs.
    blocks: Option<Blocks>,
    firmware: String,
}

struct Blocks {
    count: u64,
    bytes: u32,
    /// `None` where the device was not asked.
    metadata_bytes: Option<u16>,
}

const HEADERS: [&str; 8] =
    ["BDF Address", "SN", "Model", "Namespace", "Usage", "Format", "SSD Type", "FW Rev"];

impl List {
    pub(crate) fn run(self) -> Result<()> {
        if self.verbose {
            let (found, failed) = subsystems::gather(&self.devices)?;
            self.output
                .output
                .show(subsystems::long_json(&found), |out| subsystems::write_long(out, &found))?;
            return subsystems::tell(failed);
        }
        let all = self.devices.is_empty();
        let mut rows = Vec::new();
        let mut failed = Vec::new();
        let names = if all { all_names(&mut failed)? } else { self.devices };
        for name in &names {
            match open(name, &OpenOptions::default()).and_then(|device| rows_of(&device)) {
                Ok(more) => rows.extend(more),
                Err(e) => failed.push(e),
            }
        }
        let listed = if all { drives::list() } else { Ok(drives::Listed::default()) };
        let listed = listed.unwrap_or_else(|e| {
            failed.push(e);
            drives::Listed::default()
        });
        rows.extend(listed.namespaces);
        let json = fields! { "Devices": rows.iter().map(Row::json).collect::<Vec<_>>() };
        // Machines without drives see what they always saw.
        let json = match listed.functions.as_slice() {
            [] => json,
            functions => json.with("Functions", functions.iter().map(drives::Line::json).collect::<Vec<_>>()),
        };
        self.output.output.show(json, |out| {
            write_table(out, &HEADERS, Rule::Dashes, &rows.iter().map(Row::cells).collect::<Vec<_>>())?;
            drives::write(out, &listed.functions)
        })?;
        subsystems::tell(failed)
    }
}

/// Virtual devices that are plugged, and the targets of `fabrics.json` whose addresses are there.
pub(super) fn all_names(failed: &mut Vec<Error>) -> Result<Vec<String>, Error> {
    let registry = Registry::from_environment()?;
    let slots = registry.list()?;
    let plugged = slots.iter().filter(|slot| !slot.is_unplugged()).map(|slot| slot.address.to_string());
    let mut names: Vec<String> = plugged.collect();
    match KnownTargets::load(&registry) {
        Ok(known) => {
            warn_of_bad(&known);
            let devices = known.targets.iter().filter(|target| target.nqn != DISCOVERY_NQN);
            names.extend(devices.filter_map(KnownTarget::name).map(|name| name.to_string()));
        }
        Err(e) => failed.push(e),
    }
    Ok(names)
}

/// Names the entries of `fabrics.json` that are wrong: their targets cannot be used, and the others can.
pub(crate) fn warn_of_bad(known: &KnownTargets) {
    for bad in &known.bad {
        // Nobody listens on standard error, which is no reason not to go on.
        let _ = writeln!(std::io::stderr(), "unvme: warning: this target is left out: {}", bad.error());
    }
}

pub(super) fn rows_of(device: &Device) -> Result<Vec<Row>, Error> {
    let identity = device.identity();
    let mut rows = Vec::new();
    for nsid in device.admin(|controller| controller.active_namespaces())? {
        let (kind, used_bytes, bytes, blocks) = match device.admin(|c| c.namespace_command_set(nsid))? {
            csi::KEY_VALUE => {
                let data = pairs_of(device, nsid)?;
                ("KV", data.nuse.into(), data.nsze.into(), None)
            }
            _ => {
                let (used_bytes, bytes, blocks) = blocks_of(device, nsid)?;
                ("LBA", used_bytes, bytes, blocks)
            }
        };
        rows.push(Row {
            address: device.name().to_owned(),
            name: device.name().to_owned(),
            serial: identity.serial.clone(),
            model: identity.model.clone(),
            nsid: nsid.0,
            used_bytes: Some(used_bytes),
            bytes,
            kind,
            blocks,
            firmware: identity.firmware.clone(),
        });
    }
    Ok(rows)
}

fn blocks_of(device: &Device, nsid: Nsid) -> Result<(u128, u128, Option<Blocks>), Error> {
    let data = device.admin(|controller| controller.identify_namespace(nsid))?;
    let format = data.format();
    let bytes = format.block_bytes().unwrap_or(0);
    let size = |count: u64| u128::from(count) * u128::from(bytes);
    Ok((
        size(data.nuse),
        size(data.nsze),
        Some(Blocks { count: data.nsze, bytes, metadata_bytes: Some(format.ms) }),
    ))
}

/// Identify Namespace of the Key Value command set.
pub(crate) fn pairs_of(device: &Device, nsid: Nsid) -> Result<KvNamespaceIdentify, Error> {
    let command =
        admin::Identify { nsid, cns: cns::COMMAND_SET_NAMESPACE, csi: csi::KEY_VALUE, ..Default::default() };
    device.admin(|controller| controller.identify_as(command))
}

impl Row {
    fn cells(&self) -> [String; 8] {
        [
            self.address.clone(),
            self.serial.clone(),
            self.model.clone(),
            self.nsid.to_string(),
            format!("{} / {}", self.used_bytes.map_or("?".to_owned(), si::bytes), si::bytes(self.bytes)),
            self.format(),
            self.kind.to_owned(),
            self.firmware.clone(),
        ]
    }

    pub(super) fn format(&self) -> String {
        match &self.blocks {
            None => "-".to_owned(),
            Some(Blocks { bytes, metadata_bytes: Some(metadata), .. }) => format!("{bytes} B + {metadata} B"),
            Some(Blocks { bytes, .. }) => format!("{bytes} B"),
        }
    }

    /// For the long form, where controllers are told about by themselves.
    pub(super) fn long_json(&self) -> Fields {
        let keep = ["UsedBytes", "MaximumLBA", "PhysicalSize", "SectorSize", "SSDType"];
        let fields = self.json().0.into_iter().filter(|(name, _)| keep.contains(&name.as_str()));
        let named = [("NameSpace".to_owned(), self.nsid.into()), ("NSID".to_owned(), self.nsid.into())];
        Fields(named.into_iter().chain(fields).collect())
    }

    fn json(&self) -> Fields {
        // Sizes fit in 64 bits as long as a device's blocks do not exceed them by far; beyond, the most there
        // is.
        let number = |value: u128| Value::Number(u64::try_from(value).unwrap_or(u64::MAX));
        fields! {
            "NameSpace": self.nsid, "DevicePath": self.name.as_str(), "Firmware": self.firmware.as_str(),
            "ModelNumber": self.model.as_str(), "SerialNumber": self.serial.as_str(),
            "UsedBytes": self.used_bytes.map(number),
            "MaximumLBA": self.blocks.as_ref().map_or(0, |blocks| blocks.count),
            "PhysicalSize": number(self.bytes),
            "SectorSize": self.blocks.as_ref().map_or(1, |blocks| blocks.bytes), "SSDType": self.kind,
        }
    }
}

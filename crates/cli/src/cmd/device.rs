//! `device create`, `list`, `show`, `check`, `unplug`, `plug`, `remove`.

mod check;
mod create;
mod flash;
mod plug;

use anyhow::Result;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use unvme::registry::{BlockBytes, DeviceSpec, DeviceType, Slot};
use unvme::{Error, PciAddress, Registry, Size};

use crate::cmd::commands;
use crate::completion;
use crate::output::Output;
use crate::target::Force;
use crate::value::{Fields, Value, fields};

/// Columns of a name in the text of a device.
const NAME_WIDTH: usize = 15;

commands! {
/// Virtual devices.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a virtual device
    Create(Box<create::Create>),
    /// List the virtual devices
    List(List),
    /// Show one virtual device
    Show(Show),
    /// Verify what a virtual device holds, pairs and flash, and name what is lost
    Check(check::Check),
    /// Unplug a virtual device, also from under whoever uses it; it keeps its data
    Unplug(plug::Unplug),
    /// Plug a virtual device that was unplugged
    Plug(plug::Plug),
    /// Remove a virtual device and its data
    Remove(Remove),
}
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    output: Output,
}

impl List {
    pub(crate) fn run(self) -> Result<()> {
        let registry = Registry::from_environment()?;
        let mut rows = Vec::new();
        for slot in registry.list()? {
            // One that cannot be read is listed with the reason, so that it can be found and removed.
            rows.push(match slot.spec() {
                Ok(spec) => describe(&slot, &spec)?,
                Err(e) => {
                    fields! { "address": slot.address.to_string(), "error": e.to_string() }
                }
            });
        }
        self.output.output.show(fields! { "devices": rows.clone() }, |out| {
            if rows.is_empty() {
                return writeln!(out, "no virtual devices in {}", registry.home().display());
            }
            writeln!(
                out,
                "{:14} {:6} {:>8} {:>8} {:6} State",
                "Address", "Type", "Size", "On disk", "Media"
            )?;
            for row in &rows {
                let text = |name: &str| find(row, name).map_or(String::new(), Value::to_string);
                let size = |name: &str| match find(row, name) {
                    Some(Value::Number(bytes)) => rounded(*bytes),
                    _ => String::new(),
                };
                match find(row, "error") {
                    Some(error) => writeln!(out, "{:14} {error}", text("address"))?,
                    None => writeln!(
                        out,
                        "{:14} {:6} {:>8} {:>8} {:6} {}",
                        text("address"),
                        text("type"),
                        size("capacity_bytes"),
                        size("disk_bytes"),
                        text("media"),
                        text("state")
                    )?,
                }
            }
            Ok(())
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// PCI address
    #[arg(value_name = "ADDRESS", add = ArgValueCompleter::new(completion::slots))]
    address: PciAddress,
    #[command(flatten)]
    output: Output,
}

impl Show {
    pub(crate) fn run(self) -> Result<()> {
        let slot = find_slot(&Registry::from_environment()?, self.address)?;
        let spec = slot.spec()?;
        let fields = describe(&slot, &spec)?;
        self.output.output.show(&fields, |out| {
            fields.write_lines(out, NAME_WIDTH)?;
            for (index, namespace) in spec.namespaces.iter().enumerate() {
                let name = format!("namespace {}", index + 1);
                let size = Size(namespace.bytes);
                match namespace.logical_block().map(BlockBytes::get) {
                    Some(block) => {
                        writeln!(out, "{name:NAME_WIDTH$}: {size} in blocks of {block} bytes when new")?
                    }
                    None => writeln!(out, "{name:NAME_WIDTH$}: {size} for pairs when new")?,
                }
            }
            flash::write(out, &spec)
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// PCI address
    #[arg(value_name = "ADDRESS", add = ArgValueCompleter::new(completion::slots))]
    address: PciAddress,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl Remove {
    pub(crate) fn run(self) -> Result<()> {
        let registry = Registry::from_environment()?;
        let slot = find_slot(&registry, self.address)?;
        let what = "remove destroys the device and what is on it";
        self.force.confirm_virtual(&slot.address.to_string(), what)?;
        registry.remove(self.address)?;
        let json = fields! { "removed": self.address.to_string() };
        self.output.output.say(json, format!("removed {}", self.address))
    }
}

fn find_slot(registry: &Registry, address: PciAddress) -> Result<Slot> {
    Ok(registry.find(address).ok_or_else(|| registry.not_found(&address.to_string()))?)
}

fn find<'a>(fields: &'a Fields, name: &str) -> Option<&'a Value> {
    fields.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// A size in the largest unit that leaves it at one or above, rounded: below ten with a decimal, if it has
/// one.
fn rounded(bytes: u64) -> String {
    let units = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    let Some((shift, letter)) = units.into_iter().find(|(shift, _)| bytes >> shift > 0) else {
        return bytes.to_string();
    };
    let tenths = (u128::from(bytes) * 10 + (1 << (shift - 1))) >> shift;
    match (tenths / 10, tenths % 10) {
        (whole @ 0..10, decimal @ 1..) => format!("{whole}.{decimal}{letter}"),
        (whole, decimal) => format!("{}{letter}", whole + u128::from(decimal >= 5)),
    }
}

/// Whether the slot can be opened, and who has it open.
fn state(slot: &Slot) -> Result<String, Error> {
    let holder = slot.holder()?.map(|pid| pid.map_or("?".to_owned(), |pid| pid.to_string()));
    Ok(match (slot.is_unplugged(), holder) {
        (true, None) => "unplugged".to_owned(),
        (true, Some(pid)) => format!("unplugged, process {pid} has not given it back"),
        (false, None) => "free".to_owned(),
        (false, Some(pid)) if slot.socket_path().exists() => format!("served by process {pid}"),
        (false, Some(pid)) => format!("in use by process {pid}"),
    })
}

fn describe(slot: &Slot, spec: &DeviceSpec) -> Result<Fields, Error> {
    let state = state(slot)?;
    let namespaces: Vec<Fields> = spec
        .namespaces
        .iter()
        .map(|n| {
            let block_bytes = n.logical_block().map(BlockBytes::get);
            fields! { "bytes": n.bytes, "type": n.kind.name(), "block_bytes": block_bytes }
        })
        .collect();
    let keyspace_field = (spec.device_type == DeviceType::Kv).then(|| spec.keyspace_field.name());
    Ok(fields! {
        "address": slot.address.to_string(), "type": spec.device_type.name(), "keyspace_field": keyspace_field,
        "capacity_bytes": spec.capacity_bytes, "disk_bytes": slot.disk_bytes()?, "media": spec.media.name(),
        "checksum": spec.checksum, "timing": spec.timing.to_string(),
        "serial": spec.serial.as_str(), "model": spec.model.as_str(),
        "state": state, "folder": slot.folder().display().to_string(),
        "socket": slot.socket_path().display().to_string(), "namespaces": namespaces,
        "ftl": spec.ftl.as_ref().map(|ftl| flash::fields(ftl, spec)).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_and_not_cut_off() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (4096, "4K"),
            (1536 << 20, "1.5G"),
            (2 << 30, "2G"),
            ((2 << 30) - 4096, "2G"),
            ((10 << 30) - 4096, "10G"),
            ((15 << 30) + (700 << 20), "16G"),
            (8 << 40, "8T"),
        ] {
            assert_eq!(rounded(bytes), text, "{bytes}");
        }
    }
}

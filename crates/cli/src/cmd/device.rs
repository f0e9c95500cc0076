//! `device create`, `list`, `show`, `check`, `remove`.

mod check;

use std::str::FromStr;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use unvme::registry::{
    BlockBytes, CAPACITY_UNIT, DeviceSpec, DeviceType, KeyspaceField, MODEL_DEFAULT, MediaKind,
    NamespaceSpec, Slot,
};
use unvme::{Error, NotASize, PciAddress, Registry, Size};

use crate::output::{Output, Screen};
use crate::value::{Fields, Value};

/// Virtual devices.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a virtual device
    Create(Create),
    /// List the virtual devices
    List(List),
    /// Show one virtual device
    Show(Show),
    /// Read everything in a virtual device's key-value namespaces and name what is lost
    Check(check::Check),
    /// Remove a virtual device and its data
    Remove(Remove),
}

impl Command {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Create(command) => command.run(),
            Self::List(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Remove(command) => command.run(),
        }
    }
}

/// Types of devices that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Type {
    /// Logical blocks
    Block,
    /// Keys and values
    Kv,
}

/// Where vendor key-value commands name their keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Keyspace {
    /// In command dword 3
    Cdw3,
    /// In place of the namespace, as the uNVMe SDK sends it
    Nsid,
}

/// A namespace to start with: `1G`, or `kv:1G` when it is of another type than the device.
#[derive(Clone, Copy, Debug)]
struct NamespaceRequest {
    kind: Option<DeviceType>,
    size: Size,
}

impl FromStr for NamespaceRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, size) = match text.split_once(':') {
            Some(("kv", size)) => (Some(DeviceType::Kv), size),
            Some(("block", size)) => (Some(DeviceType::Block), size),
            Some((other, _)) => return Err(format!("`{other}` is no type, expected block or kv")),
            None => (None, text),
        };
        Ok(Self { kind, size: size.parse().map_err(|error: NotASize| error.to_string())? })
    }
}

/// Where the data is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Media {
    /// A sparse file, which grows as blocks are written
    File,
    /// Nowhere: for measuring everything but the media
    Null,
}

/// Arguments of `device create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unvme device create 0000:02:00.0 --size 4G
  unvme device create --size 1T --block 4096           at the first free address
  unvme device create 03:00.0 --size 4G --namespaces 1G,2G
  unvme device create 04:00.0 --type kv --size 4G
  unvme device create 05:00.0 --type kv --size 4G --namespaces 2G,block:2G")]
pub(crate) struct Create {
    /// PCI address, such as 0000:02:00.0; the first free one when left out
    #[arg(value_name = "ADDRESS")]
    address: Option<PciAddress>,
    /// Capacity, such as 4G; a multiple of 2M
    #[arg(short, long, value_name = "SIZE")]
    size: Size,
    /// Type of the device
    #[arg(short, long = "type", value_name = "TYPE", default_value = "block")]
    device_type: Type,
    /// Bytes of a logical block, 512 or 4096; can be changed with `unvme format`
    #[arg(short, long, value_name = "BYTES", default_value = "512")]
    block: BlockBytes,
    /// Sizes of the namespaces, of the device's type or with one in front; one of the whole capacity when left out
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    namespaces: Vec<NamespaceRequest>,
    /// Where vendor key-value commands name their keyspace
    #[arg(long, value_name = "FIELD", default_value = "cdw3")]
    keyspace_field: Keyspace,
    /// Where the data is kept
    #[arg(short, long, value_name = "MEDIA", default_value = "file")]
    media: Media,
    /// Serial number, up to 20 characters; made from the address when left out
    #[arg(long, value_name = "TEXT")]
    serial: Option<String>,
    /// Model number, up to 40 characters
    #[arg(long, value_name = "TEXT", default_value = MODEL_DEFAULT)]
    model: String,
    #[command(flatten)]
    output: Output,
}

impl Create {
    pub(crate) fn run(self) -> Result<()> {
        let registry = Registry::from_environment()?;
        let address = self.address.map_or_else(|| registry.free_address(), Ok)?;
        let serial = self.serial.clone().unwrap_or_else(|| serial_of(address));
        let mut spec = match self.device_type {
            Type::Block => DeviceSpec::block(self.size, self.block, serial),
            Type::Kv => DeviceSpec::kv(self.size, serial),
        };
        spec.model = self.model.clone();
        spec.media = match self.media {
            Media::File => MediaKind::File,
            Media::Null => MediaKind::Null,
        };
        if !self.namespaces.is_empty() {
            spec.namespaces = self
                .namespaces
                .iter()
                .map(|request| match request.kind.unwrap_or(spec.device_type) {
                    DeviceType::Kv => NamespaceSpec::key_value(request.size.0),
                    _ => NamespaceSpec::blocks(request.size.0, self.block),
                })
                .collect();
        }
        spec.keyspace_field = match self.keyspace_field {
            Keyspace::Cdw3 => KeyspaceField::Cdw3,
            Keyspace::Nsid => KeyspaceField::Nsid,
        };
        let slot = registry.create(address, &spec)?;
        let line = format!("created {address}: {} in {}", self.size, slot.folder().display());
        Screen::new().say(self.output.output, describe(&slot, &spec)?, line)
    }
}

/// A serial number that differs from that of every other slot of this registry.
fn serial_of(address: PciAddress) -> String {
    let PciAddress { domain, bus, device, function } = address;
    format!("UNVME{domain:04X}{bus:02X}{device:02X}{function:X}")
}

/// Arguments of `device list`.
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
                    Fields::new().with("address", slot.address.to_string()).with("error", e.to_string())
                }
            });
        }
        Screen::new().show(self.output.output, Fields::new().with("devices", rows.clone()), |out| {
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

/// Arguments of `device show`.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// PCI address
    #[arg(value_name = "ADDRESS")]
    address: PciAddress,
    #[command(flatten)]
    output: Output,
}

impl Show {
    pub(crate) fn run(self) -> Result<()> {
        let slot = find_slot(&Registry::from_environment()?, self.address)?;
        let spec = slot.spec()?;
        let fields = describe(&slot, &spec)?;
        Screen::new().show(self.output.output, &fields, |out| {
            fields.write_lines(out, 15)?;
            for (index, namespace) in spec.namespaces.iter().enumerate() {
                let name = format!("namespace {}", index + 1);
                let size = Size(namespace.bytes);
                match namespace.logical_block().map(BlockBytes::get) {
                    Some(block) => writeln!(out, "{name:15}: {size} in blocks of {block} bytes when new")?,
                    None => writeln!(out, "{name:15}: {size} for pairs when new")?,
                }
            }
            Ok(())
        })
    }
}

/// Arguments of `device remove`.
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// PCI address
    #[arg(value_name = "ADDRESS")]
    address: PciAddress,
    #[command(flatten)]
    output: Output,
}

impl Remove {
    pub(crate) fn run(self) -> Result<()> {
        Registry::from_environment()?.remove(self.address)?;
        let json = Fields::new().with("removed", self.address.to_string());
        Screen::new().say(self.output.output, json, format!("removed {}", self.address))
    }
}

fn find_slot(registry: &Registry, address: PciAddress) -> Result<Slot> {
    Ok(registry.find(address).ok_or_else(|| registry.not_found(&address.to_string()))?)
}

fn find<'a>(fields: &'a Fields, name: &str) -> Option<&'a Value> {
    fields.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// A size in the largest unit that leaves it at one or above, rounded: below ten with a decimal, if it has one.
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

fn describe(slot: &Slot, spec: &DeviceSpec) -> Result<Fields, Error> {
    let media = match spec.media {
        MediaKind::File => "file",
        MediaKind::Null => "null",
    };
    let state = match slot.holder()? {
        None => "free".to_owned(),
        Some(pid) => {
            let pid = pid.map_or("?".to_owned(), |pid| pid.to_string());
            let verb = if slot.socket_path().exists() { "served" } else { "in use" };
            format!("{verb} by process {pid}")
        }
    };
    let namespaces: Vec<Fields> = spec
        .namespaces
        .iter()
        .map(|n| {
            let fields = Fields::new().with("bytes", n.bytes).with("type", n.kind.name());
            match n.logical_block() {
                Some(block) => fields.with("block_bytes", block.get()),
                None => fields,
            }
        })
        .collect();
    let mut fields =
        Fields::new().with("address", slot.address.to_string()).with("type", spec.device_type.name());
    if spec.device_type == DeviceType::Kv {
        fields = fields.with("keyspace_field", spec.keyspace_field.name());
    }
    Ok(fields
        .with("capacity_bytes", spec.capacity_bytes)
        .with("disk_bytes", slot.disk_bytes()?)
        .with("media", media)
        .with("serial", spec.serial.as_str())
        .with("model", spec.model.as_str())
        .with("state", state)
        .with("folder", slot.folder().display().to_string())
        .with("socket", slot.socket_path().display().to_string())
        .with("namespaces", namespaces))
}

const _: () = assert!(CAPACITY_UNIT.0 == 2 << 20, "the help says 2M");

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

//! `device create`.

use std::str::FromStr;

use anyhow::Result;
use clap::{Args, ValueEnum};
use unvme::registry::{
    BlockBytes, CAPACITY_UNIT, DeviceSpec, DeviceType, KeyspaceField, MODEL_DEFAULT, MediaKind, NamespaceSpec,
};
use unvme::{NotASize, PciAddress, Registry, Size};

use super::{describe, flash};
use crate::output::Output;

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
    /// A tag of each page instead of its data, in memory: for devices with flash that are larger than the
    /// disk
    Tags,
}

/// Arguments of `device create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unvme device create 0000:02:00.0 --size 4G
  unvme device create --size 1T --block 4096           at the first free address
  unvme device create 03:00.0 --size 4G --namespaces 1G,2G
  unvme device create 08:00.0 --size 4G --checksum
  unvme device create 04:00.0 --type kv --size 4G
  unvme device create 05:00.0 --type kv --size 4G --namespaces 2G,block:2G
  unvme device create 06:00.0 --size 8G --fdp --timing tlc,dies=16,prog=700us
  unvme device create 07:00.0 --size 1T --op 28% --ru-size 64M --handles 4 --media tags

An option of the flash asks for a translation layer, --ftl page. What it means is printed: a part
of the overprovisioning is taken by units that are open, the rest decides how much reclaim writes.")]
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
    /// Sizes of the namespaces, of the device's type or with one in front; one of the whole capacity when
    /// left out
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    namespaces: Vec<NamespaceRequest>,
    /// Where vendor key-value commands name their keyspace
    #[arg(long, value_name = "FIELD", default_value = "cdw3")]
    keyspace_field: Keyspace,
    /// Where the data is kept
    #[arg(short, long, value_name = "MEDIA", default_value = "file")]
    media: Media,
    /// Keep a CRC-32C of each block: one that is not as it was written is an error to read. For block
    /// devices without flash
    #[arg(long)]
    checksum: bool,
    #[command(flatten)]
    flash: flash::FlashArgs,
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
            Media::Tags => MediaKind::Tags,
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
        spec.checksum = self.checksum;
        (spec.ftl, spec.timing) = (self.flash.ftl(self.size)?, self.flash.timing.clone());
        let slot = registry.create(address, &spec)?;
        self.output.output.show(describe(&slot, &spec)?, |out| {
            writeln!(out, "created {address}: {} in {}", self.size, slot.folder().display())?;
            flash::write(out, &spec)
        })
    }
}

/// A serial number that differs from that of every other slot of this registry.
fn serial_of(address: PciAddress) -> String {
    let PciAddress { domain, bus, device, function } = address;
    format!("UNVME{domain:04X}{bus:02X}{device:02X}{function:X}")
}

const _: () = assert!(CAPACITY_UNIT.0 == 2 << 20, "the help says 2M");

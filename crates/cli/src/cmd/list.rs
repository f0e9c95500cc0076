//! `list`.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use unvme::{Device, Error, Nsid, OpenOptions, Registry, open};
use unvme_spec::admin;
use unvme_spec::identify::{KvNamespaceIdentify, cns, csi};

use crate::output::{Output, Screen};
use crate::show::si;
use crate::value::{Fields, Value};

/// Arguments of `list`.
#[derive(Debug, Args)]
#[command(after_help = "\
A device that cannot be opened is named on standard error, and the others are listed all the same.")]
pub(crate) struct List {
    /// Devices; all virtual devices when left out
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// One namespace of one device.
struct Row {
    address: String,
    serial: String,
    model: String,
    nsid: u32,
    used_bytes: u128,
    bytes: u128,
    /// `None` for pairs.
    blocks: Option<Blocks>,
    firmware: String,
}

struct Blocks {
    count: u64,
    bytes: u32,
    metadata_bytes: u16,
}

const HEADERS: [&str; 8] =
    ["BDF Address", "SN", "Model", "Namespace", "Usage", "Format", "SSD Type", "FW Rev"];

impl List {
    pub(crate) fn run(self) -> Result<()> {
        let names = if self.devices.is_empty() {
            Registry::from_environment()?.list()?.iter().map(|slot| slot.address.to_string()).collect()
        } else {
            self.devices
        };
        let mut rows = Vec::new();
        let mut failed = Vec::new();
        for name in &names {
            match open(name, &OpenOptions::default()).and_then(|device| rows_of(&device)) {
                Ok(more) => rows.extend(more),
                Err(e) => failed.push(e),
            }
        }
        let json: Vec<Fields> = rows.iter().map(Row::json).collect();
        Screen::new()
            .show(self.output.output, Fields::new().with("Devices", json), |out| write_table(out, &rows))?;
        // The last is the one main tells about; with it comes the exit code.
        let last = failed.pop();
        for error in failed {
            writeln!(std::io::stderr(), "unvme: {error}")?;
        }
        last.map_or(Ok(()), |error| Err(error.into()))
    }
}

fn rows_of(device: &Device) -> Result<Vec<Row>, Error> {
    let identity = device.identity();
    let mut rows = Vec::new();
    for nsid in device.admin(|controller| controller.active_namespaces())? {
        let (used_bytes, bytes, blocks) = match device.admin(|c| c.namespace_command_set(nsid))? {
            csi::KEY_VALUE => {
                let data = pairs_of(device, nsid)?;
                (data.nuse.into(), data.nsze.into(), None)
            }
            _ => blocks_of(device, nsid)?,
        };
        rows.push(Row {
            address: device.name().to_owned(),
            serial: identity.serial.clone(),
            model: identity.model.clone(),
            nsid: nsid.0,
            used_bytes,
            bytes,
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
        Some(Blocks { count: data.nsze, bytes, metadata_bytes: format.ms }),
    ))
}

/// Identify Namespace of the Key Value command set.
pub(crate) fn pairs_of(device: &Device, nsid: Nsid) -> Result<KvNamespaceIdentify, Error> {
    let command =
        admin::Identify { nsid, cns: cns::COMMAND_SET_NAMESPACE, csi: csi::KEY_VALUE, ..Default::default() };
    device.admin(|controller| controller.identify_as(command))
}

impl Row {
    fn kind(&self) -> &'static str {
        if self.blocks.is_some() { "LBA" } else { "KV" }
    }

    fn cells(&self) -> [String; 8] {
        [
            self.address.clone(),
            self.serial.clone(),
            self.model.clone(),
            self.nsid.to_string(),
            format!("{} / {}", si::bytes(self.used_bytes), si::bytes(self.bytes)),
            self.blocks
                .as_ref()
                .map_or("-".to_owned(), |b| format!("{} B + {} B", b.bytes, b.metadata_bytes)),
            self.kind().to_owned(),
            self.firmware.clone(),
        ]
    }

    fn json(&self) -> Fields {
        // Sizes fit in 64 bits as long as a device's blocks do not exceed them by far; beyond, the most there is.
        let number = |value: u128| Value::Number(u64::try_from(value).unwrap_or(u64::MAX));
        Fields::new()
            .with("NameSpace", self.nsid)
            .with("DevicePath", self.address.as_str())
            .with("Firmware", self.firmware.as_str())
            .with("ModelNumber", self.model.as_str())
            .with("SerialNumber", self.serial.as_str())
            .with("UsedBytes", number(self.used_bytes))
            .with("MaximumLBA", self.blocks.as_ref().map_or(0, |blocks| blocks.count))
            .with("PhysicalSize", number(self.bytes))
            .with("SectorSize", self.blocks.as_ref().map_or(1, |blocks| blocks.bytes))
            .with("SSDType", self.kind())
    }
}

fn write_table(out: &mut dyn Write, rows: &[Row]) -> std::io::Result<()> {
    let cells: Vec<[String; 8]> = rows.iter().map(Row::cells).collect();
    let widths: [usize; 8] = std::array::from_fn(|column| {
        cells.iter().map(|row| row[column].len()).chain([HEADERS[column].len()]).max().unwrap_or(0)
    });
    let mut line = |row: [&str; 8]| {
        let padded: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", padded.join("  ").trim_end())
    };
    line(HEADERS)?;
    let rules = widths.map(|width| "-".repeat(width));
    line(rules.each_ref().map(String::as_str))?;
    cells.iter().try_for_each(|row| line(row.each_ref().map(String::as_str)))
}

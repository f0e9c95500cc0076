//! `get-feature`, `set-feature`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use unvme::{Device, Nsid};
use unvme_spec::admin::{GetFeatures, SetFeatures};
use unvme_spec::feature::{FdpEvents, Select, TIMESTAMP_MS_MAX, Timestamp, fid};
use zerocopy::IntoBytes;

use super::transfer::read_input;
use crate::exit::usage;
use crate::numbers;
use crate::output::{Output, write_raw};
use crate::show::{feature as show, hex};
use crate::target::{DeviceArg, Force, NamespaceArg};
use crate::value::{Fields, fields};

/// Most bytes of a feature's data structure.
const DATA_BYTES_MAX: u32 = 4096;

/// Bytes of the data structure of a feature; 0 when it has none.
fn data_bytes(feature_id: u8) -> u32 {
    match feature_id {
        fid::TIMESTAMP => 8,
        fid::HOST_IDENTIFIER => 8,
        fid::HOST_BEHAVIOR_SUPPORT => 512,
        fid::AUTONOMOUS_POWER_STATE_TRANSITION => 256,
        fid::LBA_RANGE_TYPE => 4096,
        // As many as the count of them can say, in whole dwords.
        fid::FLEXIBLE_DATA_PLACEMENT_EVENTS => 512,
        _ => 0,
    }
}

/// Command dword 11 where it names what the feature is about, and nothing was named: the one endurance group
/// that most devices have, all event types.
fn subject(feature_id: u8) -> u32 {
    match feature_id {
        fid::FLEXIBLE_DATA_PLACEMENT => 1,
        fid::FLEXIBLE_DATA_PLACEMENT_EVENTS => FdpEvents::new().with_event_types(u8::MAX).into_bits(),
        _ => 0,
    }
}

/// The namespace a feature is about: the one that was named, or the only one for features that have a value
/// per namespace.
fn namespace(device: &Device, named: Option<u32>, feature_id: u8) -> Result<Nsid> {
    match (named, feature_id) {
        (None, fid::ERROR_RECOVERY | fid::LBA_RANGE_TYPE | fid::NAMESPACE_WRITE_PROTECTION) => {
            NamespaceArg { namespace_id: None }.choose(device)
        }
        (None, fid::FLEXIBLE_DATA_PLACEMENT_EVENTS) => NamespaceArg { namespace_id: None }.choose_any(device),
        (named, _) => Ok(Nsid(named.unwrap_or(0))),
    }
}

/// Arguments of `get-feature`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unvme get-feature 0000:02:00.0 -f 7 -H         number of queues, explained
  unvme get-feature 0000:02:00.0 -f 6 -s 3       what can be done with the write cache's switch")]
pub(crate) struct GetFeature {
    #[command(flatten)]
    device: DeviceArg,
    /// Feature
    #[arg(short, long, value_name = "FID", value_parser = numbers::u8)]
    feature_id: u8,
    /// Which value: 0 current, 1 default, 2 saved, 3 supported capabilities
    #[arg(short, long, value_name = "SEL", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=3))]
    sel: u8,
    /// Namespace, for features that have a value for each
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    namespace_id: Option<u32>,
    /// Bytes of the feature's data structure; known for the features of the specification
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = numbers::u32)]
    data_len: Option<u32>,
    /// What else the feature needs to know, such as an interrupt vector; 0 when left out, endurance group 1
    /// for FDP
    #[arg(short, long, value_name = "CDW11", value_parser = numbers::u32)]
    cdw11: Option<u32>,
    /// Explain the value
    #[arg(short = 'H', long)]
    human_readable: bool,
    /// Write the data structure as it is
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl GetFeature {
    pub(crate) fn run(self) -> Result<()> {
        let select = Select::from_raw(self.sel);
        let bytes = match select {
            Select::SupportedCapabilities => 0,
            _ => self.data_len.unwrap_or_else(|| data_bytes(self.feature_id)),
        };
        if bytes > DATA_BYTES_MAX {
            return Err(usage(format!("--data-len {bytes}: expected at most {DATA_BYTES_MAX} bytes")));
        }
        let device = self.device.open()?;
        let nsid = namespace(&device, self.namespace_id, self.feature_id)?;
        let cdw11 = self.cdw11.unwrap_or_else(|| subject(self.feature_id));
        let command = GetFeatures { nsid, fid: self.feature_id, select, cdw11, ..Default::default() };
        let feature = device.admin(|controller| controller.get_feature(command, bytes as usize))?;
        if self.raw_binary {
            let value = feature.value.to_le_bytes();
            return write_raw(if feature.data.is_empty() { &value } else { &feature.data });
        }
        let name = show::name(self.feature_id);
        let explained = match select {
            Select::SupportedCapabilities => Fields::new(),
            _ => show::fields(self.feature_id, feature.value, &feature.data),
        };
        let mut json = fields! {
            "feature_id": self.feature_id, "name": name, "select": show::select_name(select),
            "value": feature.value,
        };
        if select == Select::SupportedCapabilities {
            json = json.with("capabilities", show::capabilities(feature.value));
        } else {
            let fields = explained
                .0
                .iter()
                .map(|(name, value)| (name.split_whitespace().collect::<Vec<_>>().join(" "), value.clone()));
            json = json.with("fields", Fields(fields.collect()));
        }
        if !feature.data.is_empty() {
            json = json.with("data", hex::text(&feature.data));
        }
        self.output.output.show(json, |out| {
            let (id, kind, value) = (self.feature_id, show::select_name(select), feature.value);
            writeln!(out, "get-feature:{id:#04x} ({name}), {kind} value:{value:#010x}")?;
            if select == Select::SupportedCapabilities {
                for line in show::capabilities(value) {
                    writeln!(out, "  {line}")?;
                }
            } else if self.human_readable {
                for (name, value) in &explained.0 {
                    writeln!(out, "\t{name}: {value}")?;
                }
            }
            if feature.data.is_empty() { Ok(()) } else { hex::write(out, &feature.data) }
        })
    }
}

/// Arguments of `set-feature`.
#[derive(Debug, Args)]
#[command(after_help = "\
A value that is not saved is gone with the next reset, and every program that opens a device
resets it: without --save only the device's answer is of use.

Examples:
  unvme set-feature 0000:02:00.0 -f 6 -v 0 --save      switch the volatile write cache off
  unvme set-feature 0000:02:00.0 -f 0xe -v 1700000000000
                                                       set the time, in milliseconds since 1970
  unvme set-feature 0000:02:00.0 -f 0x1d -c 1 --save   enable FDP with configuration 0")]
pub(crate) struct SetFeature {
    #[command(flatten)]
    device: DeviceArg,
    /// Feature
    #[arg(short, long, value_name = "FID", value_parser = numbers::u8)]
    feature_id: u8,
    /// New value: command dword 11, or the number in the feature's data structure; 0 when left out, endurance
    /// group 1 for FDP
    #[arg(short, long, value_name = "VALUE", value_parser = numbers::u64)]
    value: Option<u64>,
    /// Command dword 12, for features that use it
    #[arg(short, long, value_name = "CDW12", default_value = "0", value_parser = numbers::u32)]
    cdw12: u32,
    /// Keep the value over resets and power cycles
    #[arg(short, long)]
    save: bool,
    /// Namespace, for features that have a value for each
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    namespace_id: Option<u32>,
    /// File with the feature's data structure; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Bytes of the data structure; known for the features of the specification
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = numbers::u32)]
    data_len: Option<u32>,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl SetFeature {
    pub(crate) fn run(self) -> Result<()> {
        let given = self.value();
        let data = self.read_data(given)?;
        let value = match u32::try_from(given) {
            Ok(value) => value,
            Err(_) if self.feature_id == fid::TIMESTAMP => 0,
            Err(_) => return Err(usage(format!("--value {given:#x}: expected at most 32 bits"))),
        };
        let device = self.device.open()?;
        if self.save {
            let (id, name) = (self.feature_id, show::name(self.feature_id));
            let what = format!("set-feature {id:#04x} ({name}) is kept over power cycles");
            self.force.confirm(&device, &what)?;
        }
        let nsid = namespace(&device, self.namespace_id, self.feature_id)?;
        let command = SetFeatures {
            nsid,
            fid: self.feature_id,
            save: self.save,
            cdw11: if self.feature_id == fid::TIMESTAMP { 0 } else { value },
            cdw12: self.cdw12,
            ..Default::default()
        };
        let result = device.admin(|controller| controller.set_feature(command, &data))?;
        let name = show::name(self.feature_id);
        let json = fields! {
            "feature_id": self.feature_id, "name": name, "value": given, "cdw12": self.cdw12,
            "save": self.save, "result": result,
        };
        let line = format!(
            "set-feature:{:#04x} ({name}), value:{:#010x}, cdw12:{:#010x}, save:{}",
            self.feature_id,
            given,
            self.cdw12,
            u8::from(self.save)
        );
        self.output.output.say(json, line)
    }

    fn value(&self) -> u64 {
        self.value.unwrap_or_else(|| match self.feature_id {
            fid::FLEXIBLE_DATA_PLACEMENT => subject(self.feature_id).into(),
            _ => 0,
        })
    }

    /// The data structure: from the file, or from the value where the structure is little else.
    fn read_data(&self, value: u64) -> Result<Vec<u8>> {
        let length = self.data_len.unwrap_or_else(|| data_bytes(self.feature_id));
        if length > DATA_BYTES_MAX {
            return Err(usage(format!("--data-len {length}: expected at most {DATA_BYTES_MAX} bytes")));
        }
        if let Some(path) = &self.data {
            let data = read_input(Some(path), u64::from(DATA_BYTES_MAX) + 1)?;
            if length != 0 && data.len() != length as usize || data.len() > DATA_BYTES_MAX as usize {
                let (name, bytes) = (show::name(self.feature_id), data.len());
                let expected =
                    if length == 0 { format!("at most {DATA_BYTES_MAX}") } else { length.to_string() };
                return Err(usage(format!("{}: {bytes} bytes, {name} takes {expected}", path.display())));
            }
            return Ok(data);
        }
        match (self.feature_id, length) {
            (_, 0) => Ok(Vec::new()),
            (fid::TIMESTAMP, _) if value > TIMESTAMP_MS_MAX => {
                Err(usage(format!("--value {value}: a timestamp has 48 bits of milliseconds")))
            }
            (fid::TIMESTAMP, _) => Ok(Timestamp::new(value, 0).as_bytes().to_vec()),
            (id, length) => Err(usage(format!(
                "{} is set with a data structure of {length} bytes; name a file with --data",
                show::name(id)
            ))),
        }
    }
}

//! `device.json`: what a virtual slot is.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use unvme_flash::timing::TimingSpec;

use super::FILE_MODE;
use super::ftl::FtlSpec;
use crate::json::{place_of, syntax_error};
use crate::{Error, Result, Size, regular};

/// A capacity is a multiple of this, and each namespace takes whole units of it.
pub const CAPACITY_UNIT: Size = Size(2 << 20);
/// Smallest capacity of a virtual device.
pub const CAPACITY_MIN: Size = CAPACITY_UNIT;
/// Largest capacity of a virtual device: what common file systems allow one file.
pub const CAPACITY_MAX: Size = Size(8 << 40);
/// Namespaces a virtual device can be created with.
pub const NAMESPACES_MAX: usize = 64;
/// Bytes a serial number can have (Identify Controller SN).
pub const SERIAL_BYTES_MAX: usize = 20;
/// Bytes a model number can have (Identify Controller MN).
pub const MODEL_BYTES_MAX: usize = 40;
/// Model number of a virtual device that was not given one.
pub const MODEL_DEFAULT: &str = "unvme virtual SSD";
/// Bytes `device.json` can have: a longer file is something else.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The only layout of `device.json` there is.
const FORMAT_VERSION: u32 = 1;

/// Type of a virtual device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DeviceType {
    /// Logical blocks: namespaces of the NVM Command Set.
    #[default]
    Block,
    /// Pairs: at least one namespace of the Key Value Command Set.
    Kv,
}

impl DeviceType {
    /// Its name in `device.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Kv => "kv",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    fn is_block(&self) -> bool {
        *self == Self::Block
    }
}

/// Where a key-value device expects the keyspace of a vendor command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyspaceField {
    /// In command dword 3, beside the namespace.
    #[default]
    Cdw3,
    /// In place of the namespace identifier, as the uNVMe SDK sends it.
    Nsid,
}

impl KeyspaceField {
    /// Its name in `device.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cdw3 => "cdw3",
            Self::Nsid => "nsid",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Smallest namespace of the Key Value Command Set.
pub const KV_NAMESPACE_MIN: Size = Size(16 << 20);

/// Where a virtual device keeps its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaKind {
    /// A file in the slot's folder. It is sparse: it grows as blocks are written.
    #[default]
    File,
    /// Nowhere: writes vanish and reads move no data. For measuring what is not the media. What hosts change
    /// on such a device (formats, namespaces, firmware) is forgotten when it is closed.
    Null,
    /// A tag of each page instead of its data, in memory: what was written where can be told, not what. For
    /// devices with a flash translation layer that are larger than anything which could hold their data.
    Tags,
}

impl MediaKind {
    /// Its name in `device.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Null => "null",
            Self::Tags => "tags",
        }
    }
}

/// Bytes of a logical block, 512 or 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct BlockBytes(u32);

impl BlockBytes {
    /// Logical blocks of 512 bytes.
    pub const B512: Self = Self(512);
    /// Logical blocks of 4096 bytes.
    pub const B4096: Self = Self(4096);

    /// The number of bytes.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for BlockBytes {
    fn default() -> Self {
        Self::B512
    }
}

impl TryFrom<u32> for BlockBytes {
    type Error = String;

    fn try_from(bytes: u32) -> std::result::Result<Self, String> {
        match bytes {
            512 | 4096 => Ok(Self(bytes)),
            other => Err(format!("a logical block has 512 or 4096 bytes, not {other}")),
        }
    }
}

impl From<BlockBytes> for u32 {
    fn from(bytes: BlockBytes) -> Self {
        bytes.0
    }
}

impl std::str::FromStr for BlockBytes {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let size: Size =
            text.parse().map_err(|_| format!("a logical block has 512 or 4096 bytes, not {text}"))?;
        Self::try_from(u32::try_from(size.0).unwrap_or(u32::MAX))
    }
}

/// A namespace a virtual device starts with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSpec {
    /// Size in bytes: a multiple of the logical block, or of [`CAPACITY_UNIT`] and at least
    /// [`KV_NAMESPACE_MIN`].
    pub bytes: u64,
    /// What it holds.
    #[serde(rename = "type", default, skip_serializing_if = "DeviceType::is_block")]
    pub kind: DeviceType,
    /// Size of a logical block, 512 when there is nothing here. Pairs have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<BlockBytes>,
}

impl NamespaceSpec {
    /// A namespace of logical blocks.
    pub const fn blocks(bytes: u64, block_bytes: BlockBytes) -> Self {
        Self { bytes, kind: DeviceType::Block, block_bytes: Some(block_bytes) }
    }

    /// A namespace of pairs.
    pub const fn key_value(bytes: u64) -> Self {
        Self { bytes, kind: DeviceType::Kv, block_bytes: None }
    }

    /// Size of its logical blocks; `None` when it holds pairs.
    pub fn logical_block(&self) -> Option<BlockBytes> {
        (self.kind == DeviceType::Block).then(|| self.block_bytes.unwrap_or_default())
    }
}

/// A virtual device, as `device.json` describes it. What hosts did to it since (formats, namespaces,
/// firmware) is in the device's own metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Layout of this file, 1.
    #[serde(default, deserialize_with = "version")]
    version: u32,
    /// Type of the device.
    #[serde(rename = "type", default)]
    pub device_type: DeviceType,
    /// Capacity of the media in bytes: [`CAPACITY_MIN`] to [`CAPACITY_MAX`] in steps of [`CAPACITY_UNIT`].
    #[serde(deserialize_with = "capacity")]
    pub capacity_bytes: u64,
    /// Where the data is.
    #[serde(default)]
    pub media: MediaKind,
    /// Serial number: 1 to 20 printable ASCII characters.
    #[serde(deserialize_with = "serial")]
    pub serial: String,
    /// Model number: 1 to 40 printable ASCII characters.
    #[serde(default = "model_default", deserialize_with = "model")]
    pub model: String,
    /// Where vendor commands name their keyspace; key-value devices only.
    #[serde(default, skip_serializing_if = "KeyspaceField::is_default")]
    pub keyspace_field: KeyspaceField,
    /// Flash translation layer; without one, logical blocks are where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ftl: Option<FtlSpec>,
    /// Each block has a checksum, and one that is not as it was written is an error to read; block devices
    /// without an ftl only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checksum: bool,
    /// How long the flash takes: a preset, with parameters of its own behind it.
    #[serde(default, skip_serializing_if = "TimingSpec::is_none")]
    pub timing: TimingSpec,
    /// Namespaces it starts with, numbered from 1; together no larger than the capacity.
    pub namespaces: Vec<NamespaceSpec>,
}

impl DeviceSpec {
    /// A block device of one namespace that takes the whole capacity.
    pub fn block(capacity: Size, block_bytes: BlockBytes, serial: impl Into<String>) -> Self {
        Self {
            version: FORMAT_VERSION,
            device_type: DeviceType::Block,
            capacity_bytes: capacity.0,
            media: MediaKind::File,
            serial: serial.into(),
            model: MODEL_DEFAULT.into(),
            keyspace_field: KeyspaceField::Cdw3,
            ftl: None,
            checksum: false,
            timing: TimingSpec::default(),
            namespaces: vec![NamespaceSpec::blocks(capacity.0, block_bytes)],
        }
    }

    /// A key-value device of one namespace that takes the whole capacity.
    pub fn kv(capacity: Size, serial: impl Into<String>) -> Self {
        Self {
            device_type: DeviceType::Kv,
            namespaces: vec![NamespaceSpec::key_value(capacity.0)],
            ..Self::block(capacity, BlockBytes::B512, serial)
        }
    }

    /// Checks what the types do not: bounds, text, the sum of the namespaces.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the key and what was expected.
    pub fn check(&self) -> Result<()> {
        let wrong = |key: &str, reason: String| Err(Error::Argument(format!("`{key}`: {reason}")));
        if let Err(reason) = check_capacity(self.capacity_bytes) {
            return wrong("capacity_bytes", reason);
        }
        if let Err(reason) = check_text(&self.serial, SERIAL_BYTES_MAX) {
            return wrong("serial", reason);
        }
        if let Err(reason) = check_text(&self.model, MODEL_BYTES_MAX) {
            return wrong("model", reason);
        }
        match self.check_together() {
            Err((key, reason)) => wrong(key, reason),
            Ok(()) => Ok(()),
        }
    }

    /// What depends on more than one key: the key to blame, and why.
    fn check_together(&self) -> std::result::Result<(), (&'static str, String)> {
        check_namespaces(&self.namespaces, self.capacity_bytes).map_err(|reason| ("namespaces", reason))?;
        let holds_pairs = self.namespaces.iter().any(|namespace| namespace.kind == DeviceType::Kv);
        match (self.device_type, holds_pairs) {
            (DeviceType::Block, true) => {
                Err(("namespaces", "a device of type block has no namespace of type kv".into()))
            }
            (DeviceType::Kv, false) => {
                Err(("namespaces", "a device of type kv has a namespace of type kv".into()))
            }
            _ if holds_pairs && self.media != MediaKind::File => {
                Err(("media", "a device that keeps no data cannot hold pairs, expected `file`".into()))
            }
            _ if !holds_pairs && self.keyspace_field != KeyspaceField::default() => {
                Err(("keyspace_field", "only a device of type kv has keyspaces".into()))
            }
            _ => self.check_checksum().and_then(|()| self.check_flash()),
        }
    }

    /// What checksums of blocks are for: what has none.
    fn check_checksum(&self) -> std::result::Result<(), (&'static str, String)> {
        let refuse = |reason: &str| Err(("checksum", reason.to_owned()));
        match (self.device_type, &self.ftl, self.media) {
            _ if !self.checksum => Ok(()),
            (DeviceType::Kv, ..) => {
                refuse("only for a device of type block: pairs have checksums by themselves")
            }
            (_, Some(_), _) => refuse("only for a device without an ftl: flash has checksums by itself"),
            (_, None, MediaKind::File) => Ok(()),
            _ => refuse("a device that keeps no data has no checksums, expected media `file`"),
        }
    }

    /// What the flash translation layer has to go with.
    fn check_flash(&self) -> std::result::Result<(), (&'static str, String)> {
        match (&self.ftl, self.media) {
            (None, MediaKind::Tags) => {
                Err(("media", "only a device with an ftl keeps tags of its pages".into()))
            }
            (Some(_), MediaKind::Null) => {
                Err(("media", "a device with an ftl keeps its data (`file`) or its tags (`tags`)".into()))
            }
            (None, _) => Ok(()),
            (Some(ftl), _) => ftl.check(self.capacity_bytes).map_err(|reason| ("ftl", reason)),
        }
    }

    /// Reads and checks a `device.json`. Errors: [`Error::Io`]; [`Error::Config`] with line, column and key.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let mut text = String::new();
        let file = regular::open(path).map_err(|e| Error::file("open", path, e))?;
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| Error::file("read", path, e))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(Error::Argument(format!(
                "{}: more than {FILE_BYTES_MAX} bytes; this is no device description",
                path.display()
            )));
        }
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let spec: Self = serde_json::from_str(text).map_err(|e| syntax_error(text, path, &e))?;
        if let Err((key, reason)) = spec.check_together() {
            let (line, column) = place_of(text, &format!("\"{key}\""));
            return Err(Error::Config { path: path.into(), line, column, key: Some(key.into()), reason });
        }
        Ok(spec)
    }

    /// Writes the description so that it is on the disk when this returns. Errors: [`Error::Io`].
    pub(crate) fn store(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::file("write", path, std::io::Error::from(e)))?;
        text.push('\n');
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .map_err(|e| Error::file("write", path, e))
    }
}

fn check_capacity(bytes: u64) -> std::result::Result<(), String> {
    if (CAPACITY_MIN.0..=CAPACITY_MAX.0).contains(&bytes) && bytes.is_multiple_of(CAPACITY_UNIT.0) {
        return Ok(());
    }
    let (min, max) = (CAPACITY_MIN, CAPACITY_MAX);
    Err(format!("a capacity is {min} to {max} in steps of {CAPACITY_UNIT}, not {}", Size(bytes)))
}

fn check_text(text: &str, bytes_max: usize) -> std::result::Result<(), String> {
    let printable = text.bytes().all(|b| matches!(b, b' '..=b'~'));
    if text.trim() == text && (1..=bytes_max).contains(&text.len()) && printable {
        return Ok(());
    }
    Err(format!("expected 1 to {bytes_max} printable ASCII characters with no space at either end"))
}

fn check_namespaces(namespaces: &[NamespaceSpec], capacity_bytes: u64) -> std::result::Result<(), String> {
    if namespaces.len() > NAMESPACES_MAX {
        return Err(format!("{} namespaces, a device has at most {NAMESPACES_MAX}", namespaces.len()));
    }
    let mut total = 0u64;
    for (index, namespace) in namespaces.iter().enumerate() {
        let (number, bytes) = (index + 1, namespace.bytes);
        match namespace.logical_block().map(|block| u64::from(block.get())) {
            Some(block) if bytes == 0 || !bytes.is_multiple_of(block) => {
                return Err(format!(
                    "namespace {number} has {bytes} bytes, which is no positive multiple of its {block}-byte block"
                ));
            }
            None if namespace.block_bytes.is_some() => {
                return Err(format!("namespace {number} is of type kv, which has no block_bytes"));
            }
            None if bytes < KV_NAMESPACE_MIN.0 || !bytes.is_multiple_of(CAPACITY_UNIT.0) => {
                return Err(format!(
                    "namespace {number} of type kv has {bytes} bytes, expected at least {KV_NAMESPACE_MIN} in steps of {CAPACITY_UNIT}"
                ));
            }
            _ => {}
        }
        total = total.saturating_add(namespace.bytes.div_ceil(CAPACITY_UNIT.0));
    }
    if total > capacity_bytes / CAPACITY_UNIT.0 {
        let units = capacity_bytes / CAPACITY_UNIT.0;
        return Err(format!("they take {total} units of {CAPACITY_UNIT}, the device has {units}"));
    }
    Ok(())
}

fn version<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        FORMAT_VERSION => Ok(FORMAT_VERSION),
        other => Err(serde::de::Error::custom(format!(
            "version {other} of the description is not known, this program reads version {FORMAT_VERSION}"
        ))),
    }
}

fn capacity<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<u64, D::Error> {
    let bytes = u64::deserialize(deserializer)?;
    check_capacity(bytes).map(|()| bytes).map_err(serde::de::Error::custom)
}

fn serial<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    check_text(&text, SERIAL_BYTES_MAX).map(|()| text).map_err(serde::de::Error::custom)
}

fn model<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    check_text(&text, MODEL_BYTES_MAX).map(|()| text).map_err(serde::de::Error::custom)
}

fn model_default() -> String {
    MODEL_DEFAULT.into()
}

#[cfg(test)]
mod tests;

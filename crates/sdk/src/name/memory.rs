//! Devices that live and die with the process: what follows `mem:`.

use std::fmt;
use std::str::FromStr;

use crate::Size;
use crate::registry::{
    BlockBytes, CAPACITY_MAX, CAPACITY_MIN, CAPACITY_UNIT, DeviceSpec, DeviceType, FtlSpec, KV_NAMESPACE_MIN,
    KeyspaceField, MediaKind, TimingSpec,
};

/// What follows `mem:`. Displays the whole name, each option that is not at its default spelled out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryDevice {
    /// Logical blocks, or pairs.
    pub device_type: DeviceType,
    /// Capacity, all of it in one namespace.
    pub capacity: Size,
    /// Size of a logical block.
    pub block_bytes: BlockBytes,
    /// [`MediaKind::Null`] moves no data; [`MediaKind::File`], the default, means memory here.
    pub media: MediaKind,
    /// Where vendor commands for pairs name their keyspace.
    pub keyspace_field: KeyspaceField,
    /// Flash translation layer.
    pub ftl: Option<FtlSpec>,
    /// How long the flash takes.
    pub timing: TimingSpec,
}

/// Options of both types, for error messages.
const FLASH_OPTIONS: &str =
    "ftl=page, op=18%, ru=8M, groups=1, handles=8, policy=greedy, fdp, timing=tlc[:dies=16...]";

impl MemoryDevice {
    /// A plain device of a type and a capacity.
    pub fn new(device_type: DeviceType, capacity: Size) -> Self {
        Self {
            device_type,
            capacity,
            block_bytes: BlockBytes::default(),
            media: MediaKind::File,
            keyspace_field: KeyspaceField::default(),
            ftl: None,
            timing: TimingSpec::default(),
        }
    }

    /// The description of a slot that is such a device.
    pub(crate) fn spec(&self, serial: &str) -> DeviceSpec {
        let mut spec = match self.device_type {
            DeviceType::Block => DeviceSpec::block(self.capacity, self.block_bytes, serial),
            DeviceType::Kv => DeviceSpec::kv(self.capacity, serial),
        };
        (spec.media, spec.keyspace_field) = (self.media, self.keyspace_field);
        (spec.ftl, spec.timing) = (self.ftl, self.timing.clone());
        spec
    }

    /// Sets what an option says: `key=value`, or `key` alone.
    fn set(&mut self, part: &str) -> Result<(), String> {
        let (key, value) = part.split_once('=').map_or((part, None), |(key, value)| (key, Some(value)));
        match (self.device_type, key, value) {
            (_, "fdp", None) => self.flash().fdp = Some(0),
            (_, "fdp", Some(index)) => self.flash().fdp = Some(number(key, index)?),
            (_, _, None) => return Err(self.no_option(part)),
            (DeviceType::Block, "block", Some(value)) => self.block_bytes = in_option(key, value)?,
            (DeviceType::Block, "media", Some(value)) => {
                self.media = match value {
                    "memory" => MediaKind::File,
                    "null" => MediaKind::Null,
                    "tags" => MediaKind::Tags,
                    other => return Err(format!("media: expected memory, null or tags, not `{other}`")),
                };
            }
            (DeviceType::Kv, "keyspace", Some(value)) => {
                self.keyspace_field = match value {
                    "cdw3" => KeyspaceField::Cdw3,
                    "nsid" => KeyspaceField::Nsid,
                    other => return Err(format!("keyspace: expected cdw3 or nsid, not `{other}`")),
                };
            }
            (_, "timing", Some(value)) => self.timing = in_option(key, value)?,
            (_, "op", Some(value)) => self.flash().overprovisioning = in_option(key, value)?,
            (_, "ru", Some(value)) => self.flash().unit_bytes = in_option::<Size>(key, value)?.0,
            (_, "groups", Some(value)) => self.flash().groups = number(key, value)?,
            (_, "handles", Some(value)) => self.flash().handles = number(key, value)?,
            (_, "policy", Some(value)) => self.flash().policy = in_option(key, value)?,
            (_, "ftl", Some("page")) => _ = self.flash(),
            // Whether another option asks for one is known when all have been read.
            (_, "ftl", Some("none")) => {}
            (_, "ftl", Some(other)) => return Err(format!("ftl: expected page or none, not `{other}`")),
            (_, _, Some(_)) if !self.timing.is_none() && TimingSpec::has_parameter(key) => {
                return Err(format!("`{part}` is a parameter of the timing: timing=tlc:{part}"));
            }
            _ => return Err(self.no_option(part)),
        }
        Ok(())
    }

    /// The translation layer, which an option asks for: there is one from now on.
    fn flash(&mut self) -> &mut FtlSpec {
        let capacity = self.capacity;
        self.ftl.get_or_insert_with(|| FtlSpec::new(capacity))
    }

    fn no_option(&self, part: &str) -> String {
        let own = match self.device_type {
            DeviceType::Block => "block=512, block=4096, media=null, media=tags",
            DeviceType::Kv => "keyspace=nsid",
        };
        format!("`{part}` is no option; expected {own}, {FLASH_OPTIONS}, each once")
    }
}

fn in_option<T: FromStr<Err: fmt::Display>>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|e| format!("{key}: {e}"))
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|_| digits);
    number.ok_or_else(|| format!("{key}: expected a small number, not `{value}`"))
}

impl FromStr for MemoryDevice {
    type Err = String;

    /// Parses what follows `mem:`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let (device_type, least) = match kind {
            "block" => (DeviceType::Block, CAPACITY_MIN),
            "kv" => (DeviceType::Kv, KV_NAMESPACE_MIN),
            _ => return Err("expected mem:block:SIZE or mem:kv:SIZE, such as mem:block:1G".into()),
        };
        let mut parts = rest.split(',');
        let capacity: Size = parts.next().unwrap_or("").parse().map_err(|e| format!("{e}"))?;
        if !(least..=CAPACITY_MAX).contains(&capacity) || !capacity.0.is_multiple_of(CAPACITY_UNIT.0) {
            return Err(format!(
                "SIZE is {least} to {CAPACITY_MAX} in steps of {CAPACITY_UNIT}, not {capacity}"
            ));
        }
        let mut device = Self::new(device_type, capacity);
        let mut seen: Vec<&str> = Vec::new();
        for part in parts {
            let key = part.split_once('=').map_or(part, |(key, _)| key);
            if seen.contains(&key) {
                return Err(device.no_option(part));
            }
            seen.push(key);
            device.set(part)?;
        }
        if device.ftl.is_some() && rest.split(',').any(|part| part == "ftl=none") {
            return Err("ftl: the other options ask for a translation layer, expected page".into());
        }
        device.spec("MEM").check().map_err(|e| e.to_string())?;
        Ok(device)
    }
}

impl fmt::Display for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device_type, capacity, block_bytes, .. } = self;
        match device_type {
            DeviceType::Block => write!(f, "mem:block:{capacity},block={}", block_bytes.get())?,
            DeviceType::Kv => write!(f, "mem:kv:{capacity}")?,
        }
        if self.keyspace_field != KeyspaceField::default() {
            write!(f, ",keyspace={}", self.keyspace_field.name())?;
        }
        if self.media != MediaKind::File {
            write!(f, ",media={}", self.media.name())?;
        }
        if let Some(ftl) = &self.ftl {
            let FtlSpec { kind, overprovisioning, unit_bytes, groups, handles, policy, fdp } = ftl;
            write!(f, ",ftl={},op={overprovisioning},ru={}", kind.name(), Size(*unit_bytes))?;
            write!(f, ",groups={groups},handles={handles},policy={policy}")?;
            if let Some(index) = fdp {
                write!(f, ",fdp={index}")?;
            }
        }
        if !self.timing.is_none() {
            write!(f, ",timing={}", self.timing.in_name())?;
        }
        Ok(())
    }
}

//! Names of devices: which transport a name means.

use std::fmt;
use std::path::PathBuf;

use crate::registry::{
    BlockBytes, CAPACITY_MAX, CAPACITY_MIN, CAPACITY_UNIT, DeviceType, KV_NAMESPACE_MIN, KeyspaceField,
    MediaKind,
};
use crate::{Error, PciAddress, Result, Size};

/// How each kind of name is written.
pub const NAME_SYNTAX: &str = "a PCI address such as 0000:02:00.0 for a virtual device, \
mem:block:SIZE[,block=512|4096][,media=null] or mem:kv:SIZE[,keyspace=nsid] for one that lives and dies with the \
process, or vfio-user:SOCKET for one that another process serves";

/// A device name, understood. Whether such a device is there is another question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceName {
    /// A virtual slot.
    Slot(PciAddress),
    /// A device inside this process.
    Memory(MemoryDevice),
    /// The socket of a vfio-user server.
    VfioUser(PathBuf),
}

/// What follows `mem:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

impl DeviceName {
    /// Understands a name.
    ///
    /// # Errors
    /// [`Error::Name`] saying what was expected; [`Error::Unsupported`] for a transport of another version;
    /// `None` when the text has no form of a device name at all, so that the caller can list what is there.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Ok(None);
        };
        match scheme {
            "mem" => parse_memory(text, rest).map(|device| Some(Self::Memory(device))),
            "vfio-user" if rest.is_empty() => {
                Err(wrong(text, "expected the path of a socket, such as vfio-user:/run/nvme.sock"))
            }
            "vfio-user" => Ok(Some(Self::VfioUser(rest.into()))),
            "kernel" => Err(unsupported(text, "devices of the kernel's NVMe driver are")),
            "tcp" => Err(unsupported(text, "NVMe over TCP is")),
            _ => Ok(text.parse().ok().map(Self::Slot)),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(address) => address.fmt(f),
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Memory(MemoryDevice { device_type: DeviceType::Kv, capacity, keyspace_field, .. }) => {
                let keyspace = if *keyspace_field == KeyspaceField::Nsid { ",keyspace=nsid" } else { "" };
                write!(f, "mem:kv:{capacity}{keyspace}")
            }
            Self::Memory(MemoryDevice { capacity, block_bytes, media, .. }) => {
                write!(f, "mem:block:{capacity},block={}", block_bytes.get())?;
                f.write_str(if *media == MediaKind::Null { ",media=null" } else { "" })
            }
        }
    }
}

fn wrong(name: &str, reason: impl Into<String>) -> Error {
    Error::Name { name: name.into(), reason: reason.into() }
}

fn unsupported(name: &str, what: &str) -> Error {
    let reason = format!("{what} not supported in this version; a name is {NAME_SYNTAX}");
    Error::Unsupported { name: name.into(), reason }
}

fn parse_memory(name: &str, rest: &str) -> Result<MemoryDevice> {
    let (kind, rest) = rest.split_once(':').unwrap_or((rest, ""));
    let (device_type, least) = match kind {
        "block" => (DeviceType::Block, CAPACITY_MIN),
        "kv" => (DeviceType::Kv, KV_NAMESPACE_MIN),
        _ => return Err(wrong(name, "expected mem:block:SIZE or mem:kv:SIZE, such as mem:block:1G")),
    };
    let mut parts = rest.split(',');
    let size = parts.next().unwrap_or("");
    let capacity: Size = size.parse().map_err(|e| wrong(name, format!("{e}")))?;
    if !(least..=CAPACITY_MAX).contains(&capacity) || !capacity.0.is_multiple_of(CAPACITY_UNIT.0) {
        let reason = format!("SIZE is {least} to {CAPACITY_MAX} in steps of {CAPACITY_UNIT}, not {capacity}");
        return Err(wrong(name, reason));
    }
    let mut device = MemoryDevice {
        device_type,
        capacity,
        block_bytes: BlockBytes::default(),
        media: MediaKind::File,
        keyspace_field: KeyspaceField::default(),
    };
    let mut seen: Vec<&str> = Vec::new();
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let again = seen.contains(&key);
        seen.push(key);
        match (device_type, key) {
            (DeviceType::Block, "block") if !again && part != key => {
                device.block_bytes = value.parse().map_err(|e: String| wrong(name, format!("block: {e}")))?;
            }
            (DeviceType::Block, "media") if !again => {
                device.media = match value {
                    "memory" => MediaKind::File,
                    "null" => MediaKind::Null,
                    other => {
                        return Err(wrong(name, format!("media: expected memory or null, not `{other}`")));
                    }
                };
            }
            (DeviceType::Kv, "keyspace") if !again => {
                device.keyspace_field = match value {
                    "cdw3" => KeyspaceField::Cdw3,
                    "nsid" => KeyspaceField::Nsid,
                    other => {
                        return Err(wrong(name, format!("keyspace: expected cdw3 or nsid, not `{other}`")));
                    }
                };
            }
            (DeviceType::Block, _) => {
                let reason =
                    format!("`{part}` is no option; expected block=512, block=4096 or media=null, each once");
                return Err(wrong(name, reason));
            }
            (DeviceType::Kv, _) => {
                return Err(wrong(name, format!("`{part}` is no option; expected keyspace=nsid, once")));
            }
        }
    }
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<DeviceName> {
        DeviceName::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn names_say_which_transport_they_mean() {
        let address = PciAddress { domain: 0, bus: 2, device: 0, function: 0 };
        assert_eq!(parse("02:00.0"), Some(DeviceName::Slot(address)));
        assert_eq!(parse("0000:02:00.0"), Some(DeviceName::Slot(address)));
        assert_eq!(parse("vfio-user:/run/a b:c"), Some(DeviceName::VfioUser("/run/a b:c".into())));
        let plain = MemoryDevice {
            device_type: DeviceType::Block,
            capacity: Size(1 << 30),
            block_bytes: BlockBytes::B512,
            media: MediaKind::File,
            keyspace_field: KeyspaceField::Cdw3,
        };
        assert_eq!(parse("mem:block:1G"), Some(DeviceName::Memory(plain)));
        let null = MemoryDevice { block_bytes: BlockBytes::B4096, media: MediaKind::Null, ..plain };
        assert_eq!(parse("mem:block:1G,media=null,block=4096"), Some(DeviceName::Memory(null)));
        assert_eq!(DeviceName::Memory(null).to_string(), "mem:block:1G,block=4096,media=null");
        let pairs = MemoryDevice { device_type: DeviceType::Kv, ..plain };
        assert_eq!(parse("mem:kv:1G"), Some(DeviceName::Memory(pairs)));
        let vendor = MemoryDevice { keyspace_field: KeyspaceField::Nsid, ..pairs };
        assert_eq!(parse("mem:kv:1G,keyspace=nsid"), Some(DeviceName::Memory(vendor)));
        assert_eq!(DeviceName::Memory(vendor).to_string(), "mem:kv:1G,keyspace=nsid");
        assert_eq!(DeviceName::Memory(pairs).to_string(), "mem:kv:1G");
        for text in ["", "nvme0", "0000-02-00.0", "x:y", ":", "/dev/nvme0"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn wrong_names_say_what_was_expected() {
        for (text, expected) in [
            ("mem:", "expected mem:block:SIZE"),
            ("mem:block", "`` is not a size"),
            ("mem:block:", "`` is not a size"),
            ("mem:block:1X", "`1X` is not a size"),
            ("mem:block:1K", "SIZE is 2M to 8T in steps of 2M, not 1K"),
            ("mem:block:3M", "SIZE is 2M to 8T in steps of 2M, not 3M"),
            ("mem:block:16T", "SIZE is 2M to 8T in steps of 2M, not 16T"),
            ("mem:block:1G,", "`` is no option"),
            ("mem:block:1G,block", "`block` is no option"),
            ("mem:block:1G,block=1024", "block: a logical block has 512 or 4096 bytes, not 1024"),
            ("mem:block:1G,block=512,block=512", "`block=512` is no option"),
            ("mem:block:1G,media=tape", "media: expected memory or null, not `tape`"),
            ("mem:kv:2M", "SIZE is 16M to 8T in steps of 2M, not 2M"),
            ("mem:kv:1G,block=512", "`block=512` is no option; expected keyspace=nsid"),
            ("mem:kv:1G,media=null", "`media=null` is no option; expected keyspace=nsid"),
            ("mem:kv:1G,keyspace=2", "keyspace: expected cdw3 or nsid, not `2`"),
            ("mem:tape:1G", "expected mem:block:SIZE or mem:kv:SIZE"),
            ("vfio-user:", "expected the path of a socket"),
            ("kernel:/dev/ng0n1", "not supported in this version"),
            ("tcp:host:4420/nqn", "NVMe over TCP is not supported in this version"),
        ] {
            let message = DeviceName::parse(text).expect_err(text).to_string();
            assert!(message.starts_with(text) && message.contains(expected), "{text}: {message}");
        }
    }
}

//! From the tree of a text to what a configuration file says: which keys there are, and what each accepts.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::RangeInclusive;

use super::file::{ConfigFile, DeviceEntry};
use super::nearest::nearest;
use super::syntax::{Fault, Member, Node, Value, place, shortened};
use super::{
    CacheAlgorithm, CacheReclaim, DEV_ID_BYTES_MAX, DEVICES_MAX, LOG_FILE_BYTES_MAX, LOG_LEVEL_MAX,
    MEMORY_MB_MAX, QUEUE_DEPTH_MAX, SUBMIT_RETRY_US_MAX, SlabPolicy, SsdType,
};
use crate::placement::CpuSet;
use unvme::{DeviceName, Error};

/// The key that holds the devices.
pub(super) const DEVICES: &str = "device_description";

const FILE_KEYS: [&str; 12] = [
    "cache",
    "cache_algorithm",
    "cache_reclaim_policy",
    "slab_size",
    "app_hugemem_size",
    "slab_alloc_policy",
    "ssd_type",
    "driver",
    "submit_retry_interval",
    "log_level",
    "log_file",
    DEVICES,
];

const DEVICE_KEYS: [&str; 5] = ["dev_id", "core_mask", "sync_mask", "cq_thread_mask", "queue_depth"];

type Read<T> = Result<T, Fault>;

/// What the file says.
pub(super) fn file(text: &str, root: &Node<'_>) -> Read<ConfigFile> {
    let mut file = ConfigFile::default();
    let members = members(root, None)?;
    for (index, member) in members.iter().enumerate() {
        unrepeated(text, members, index)?;
        match member.key.as_str() {
            "cache" => file.cache = Some(choice(member, &[("on", true), ("off", false)])?),
            "cache_algorithm" => {
                file.cache_algorithm = Some(choice(member, &[("radix", CacheAlgorithm::Radix)])?);
            }
            "cache_reclaim_policy" => {
                file.cache_reclaim_policy = Some(choice(member, &[("lru", CacheReclaim::Lru)])?);
            }
            "slab_size" => file.slab_bytes = Some(megabytes(member)?),
            "app_hugemem_size" => file.app_memory_bytes = Some(megabytes(member)?),
            "slab_alloc_policy" => {
                let policies = [("huge", SlabPolicy::Huge), ("posix", SlabPolicy::Posix)];
                file.slab_policy = Some(choice(member, &policies)?);
            }
            "ssd_type" => {
                file.ssd_type = Some(choice(member, &[("kv", SsdType::Kv), ("lba", SsdType::Lba)])?)
            }
            "submit_retry_interval" => {
                let range = -1..=i64::from(SUBMIT_RETRY_US_MAX);
                file.submit_retry_us =
                    Some(integer(member, range, "microseconds, or -1 for no retry")? as i32);
            }
            "log_level" => {
                let range = 0..=i64::from(LOG_LEVEL_MAX);
                file.log_level = Some(integer(member, range, "how much is logged")? as u8);
            }
            "log_file" => file.log_file = Some(string(member, LOG_FILE_BYTES_MAX, "a path")?.into()),
            // Which driver to use was a choice once; there is one.
            "driver" => drop(string(member, LOG_FILE_BYTES_MAX, "a name")?),
            DEVICES => file.devices = Some(devices(text, member)?),
            _ => return Err(unknown(member, &FILE_KEYS, &DEVICE_KEYS)),
        }
    }
    Ok(file)
}

fn devices(text: &str, member: &Member<'_>) -> Read<Vec<DeviceEntry>> {
    let nodes = match &member.node.value {
        Value::Object(_) => std::slice::from_ref(&member.node),
        Value::Array(nodes) => nodes.as_slice(),
        other => {
            let reason = format!("expected an object or an array of objects, found {}", other.shown());
            return Err(at_value(member, reason));
        }
    };
    if nodes.is_empty() {
        return Err(at_value(member, "expected at least one device, found none"));
    }
    let mut devices: Vec<DeviceEntry> = Vec::new();
    for node in nodes {
        if devices.len() >= DEVICES_MAX {
            let reason = format!("{} devices; at most {DEVICES_MAX} are possible", nodes.len());
            return Err(Fault { at: node.at, key: Some(DEVICES.into()), reason });
        }
        let entry = device(text, node)?;
        if let Some(first) = devices.iter().position(|d| super::same_device(&d.dev_id, &entry.dev_id)) {
            let at = dev_id(node).map_or(node.at, |member| member.node.at);
            let number = first.saturating_add(1);
            let reason =
                format!("{} is device {number} of the list already; each device is named once", entry.dev_id);
            return Err(Fault { at, key: Some("dev_id".into()), reason });
        }
        devices.push(entry);
    }
    Ok(devices)
}

fn dev_id<'n, 'a>(node: &'n Node<'a>) -> Option<&'n Member<'a>> {
    match &node.value {
        Value::Object(members) => members.iter().find(|member| member.key == "dev_id"),
        _ => None,
    }
}

fn device(text: &str, node: &Node<'_>) -> Read<DeviceEntry> {
    let mut entry = DeviceEntry::default();
    let members = members(node, Some(DEVICES))?;
    for (index, member) in members.iter().enumerate() {
        unrepeated(text, members, index)?;
        match member.key.as_str() {
            "dev_id" => entry.dev_id = device_name(member)?,
            "core_mask" => entry.core_mask = Some(mask(member)?),
            "sync_mask" => entry.sync_mask = Some(mask(member)?),
            "cq_thread_mask" => entry.cq_thread_mask = Some(mask(member)?),
            "queue_depth" => {
                let range = 1..=i64::from(QUEUE_DEPTH_MAX);
                entry.queue_depth = Some(integer(member, range, "commands")? as u32);
            }
            _ => return Err(unknown(member, &DEVICE_KEYS, &FILE_KEYS)),
        }
    }
    if dev_id(node).is_none() {
        let reason = "the device has no `dev_id`; expected its name, such as \"dev_id\": \"0000:02:00.0\"";
        return Err(Fault { at: node.at, key: Some("dev_id".into()), reason: reason.into() });
    }
    Ok(entry)
}

fn device_name(member: &Member<'_>) -> Read<String> {
    let name = string(member, DEV_ID_BYTES_MAX, "the name of a device")?;
    match DeviceName::parse(&name) {
        Err(Error::Name { reason, .. }) => Err(at_value(member, reason)),
        // Names that this build cannot open, or that are not there, are for opening to refuse.
        _ => Ok(name),
    }
}

fn members<'n, 'a>(node: &'n Node<'a>, key: Option<&str>) -> Read<&'n [Member<'a>]> {
    match &node.value {
        Value::Object(members) => Ok(members),
        other => {
            let reason = format!("expected an object, found {}", other.shown());
            Err(Fault { at: node.at, key: key.map(str::to_owned), reason })
        }
    }
}

fn at_key(member: &Member<'_>, reason: impl Into<String>) -> Fault {
    Fault { at: member.at, key: Some(shortened(&member.key)), reason: reason.into() }
}

fn at_value(member: &Member<'_>, reason: impl Into<String>) -> Fault {
    Fault { at: member.node.at, key: Some(shortened(&member.key)), reason: reason.into() }
}

fn unrepeated(text: &str, members: &[Member<'_>], index: usize) -> Read<()> {
    let mut before = members.iter().take(index);
    let Some(member) = members.get(index) else { return Ok(()) };
    match before.find(|first| first.key == member.key) {
        None => Ok(()),
        Some(first) => {
            let (line, column) = place(text, first.at);
            Err(at_key(member, format!("the key was given already, on line {line}, column {column}")))
        }
    }
}

/// `elsewhere` are the keys of the other kind of object.
fn unknown(member: &Member<'_>, here: &[&str], elsewhere: &[&str]) -> Fault {
    let key = member.key.as_str();
    let reason = if elsewhere.contains(&key) {
        if DEVICE_KEYS.contains(&key) {
            format!("this is a key of a device; it goes into `{DEVICES}`")
        } else {
            "this is no key of a device; it goes outside of the device's object".to_owned()
        }
    } else if let Some(near) = nearest(key, here) {
        format!("there is no such key; did you mean `{near}`?")
    } else {
        format!("there is no such key; expected one of {}", here.join(", "))
    };
    at_key(member, reason)
}

fn choice<T: Copy>(member: &Member<'_>, choices: &[(&str, T)]) -> Read<T> {
    let found = match &member.node.value {
        Value::Text(text) => choices.iter().find(|(name, _)| name == text),
        _ => None,
    };
    if let Some((_, choice)) = found {
        return Ok(*choice);
    }
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    let expected = names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(" or ");
    let mut reason = format!("expected {expected}, found {}", member.node.value.shown());
    if let Value::Text(text) = &member.node.value
        && let Some(near) = nearest(text, &names)
    {
        reason.push_str(&format!("; did you mean \"{near}\"?"));
    }
    Err(at_value(member, reason))
}

fn string(member: &Member<'_>, bytes_max: usize, what: &str) -> Read<String> {
    let Value::Text(text) = &member.node.value else {
        let reason = format!("expected {what} in double quotes, found {}", member.node.value.shown());
        return Err(at_value(member, reason));
    };
    if text.is_empty() || text.len() > bytes_max {
        let reason = format!("expected {what} of 1 to {bytes_max} bytes, found {}", text.len());
        return Err(at_value(member, reason));
    }
    if text.contains('\0') {
        return Err(at_value(member, format!("expected {what}, found one with a NUL character")));
    }
    Ok(text.clone())
}

/// A decimal integer within `range`, which is within 64 bits; `unit` says what it counts.
fn integer(member: &Member<'_>, range: RangeInclusive<i64>, unit: &str) -> Read<i64> {
    let found = member.node.value.shown();
    let expected = format!("expected a number from {} to {} ({unit})", range.start(), range.end());
    let wrong = |more: &str| Err(at_value(member, format!("{expected}, found {found}{more}")));
    let Value::Word(word) = &member.node.value else {
        let number = matches!(&member.node.value, Value::Text(text) if text.parse::<i64>().is_ok());
        return wrong(if number { " in quotes" } else { "" });
    };
    let digits = word.strip_prefix('-').unwrap_or(word);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return wrong(", which is no decimal integer");
    }
    // In C a leading zero would make it octal: say what is meant.
    if digits.len() > 1 && digits.starts_with('0') {
        return wrong("; leave out the zeros in front");
    }
    match word.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => wrong(""),
    }
}

fn megabytes(member: &Member<'_>) -> Read<u64> {
    const MEGABYTE_SHIFT: u32 = 20;
    let megabytes = integer(member, 0..=MEMORY_MB_MAX as i64, "MB")?;
    Ok(megabytes.unsigned_abs() << MEGABYTE_SHIFT)
}

fn mask(member: &Member<'_>) -> Read<u64> {
    let text = match &member.node.value {
        Value::Text(text) => text.as_str(),
        Value::Word(word) if word.contains('-') => {
            return Err(at_value(
                member,
                format!("expected a mask, found `{}`; a list of CPUs is in quotes", shortened(word)),
            ));
        }
        Value::Word(word) => word,
        other => {
            let reason = format!("expected a mask such as \"0xF\", found {}", other.shown());
            return Err(at_value(member, reason));
        }
    };
    text.parse::<CpuSet>().map(|cpus| cpus.0).map_err(|e| at_value(member, shortened_error(text, &e)))
}

fn shortened_error(text: &str, error: &crate::placement::NotCpus) -> String {
    use crate::placement::NotCpus;
    let text = shortened(text.trim());
    match error {
        NotCpus::Mask(_) => NotCpus::Mask(text),
        NotCpus::List(_) => NotCpus::List(text),
    }
    .to_string()
}

//! Rules to text, as [`super::parse_faults`] reads it: what is as it would be without a word is left out.

use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::rule::{
    CorruptData, Corruption, FaultAction, FaultDelay, FaultKey, FaultMatch, FaultRule, Flips, LbaRange,
    WrongCompletion,
};
use crate::hex::hexadecimal;

impl Serialize for FaultRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        put(&mut map, "id", self.id)?;
        if self.matching != FaultMatch::default() {
            map.serialize_entry("match", &Matching(&self.matching))?;
        }
        map.serialize_entry("act", &Acting(&self.action))?;
        map.end()
    }
}

impl std::fmt::Display for FaultRule {
    /// The rule as text, in one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| std::fmt::Error)?;
        f.write_str(&text)
    }
}

fn put<M: SerializeMap>(map: &mut M, key: &str, value: Option<impl Serialize>) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(key, &value))
}

/// A value that is not what it is without a word.
fn unless<T: PartialEq>(value: T, usual: T) -> Option<T> {
    (value != usual).then_some(value)
}

struct Matching<'a>(&'a FaultMatch);

impl Serialize for Matching<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let matching = self.0;
        let mut map = serializer.serialize_map(None)?;
        put(&mut map, "opcode", matching.opcode.map(|opcode| opcode.to_string()))?;
        put(&mut map, "namespace", matching.namespace)?;
        put(&mut map, "lba", matching.lba.map(|range| range.to_string()))?;
        match &matching.key {
            Some(FaultKey::Exact(bytes)) => map.serialize_entry("key", &key_text(bytes))?,
            Some(FaultKey::Prefix(bytes)) => map.serialize_entry("key_prefix", &key_text(bytes))?,
            None => {}
        }
        put(&mut map, "queue", matching.queue)?;
        put(&mut map, "program", matching.program)?;
        put(&mut map, "after", unless(matching.after, 0))?;
        put(&mut map, "every", unless(matching.every, 1))?;
        put(&mut map, "count", matching.count)?;
        put(&mut map, "probability", matching.probability)?;
        put(&mut map, "seed", unless(matching.seed, 0))?;
        map.end()
    }
}

struct Acting<'a>(&'a FaultAction);

impl Serialize for Acting<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let action = self.0;
        let mut map = serializer.serialize_map(None)?;
        put(&mut map, "status", action.status.map(|status| format!("{:#05x}", status.raw())))?;
        put(&mut map, "more", unless(action.logged, true))?;
        put(&mut map, "executed", unless(action.executed, false))?;
        put(&mut map, "delay", action.delay.map(|delay| delay.to_string()))?;
        put(&mut map, "drop", unless(action.dropped, false))?;
        put(&mut map, "corrupt", action.corrupt.as_ref().map(Corrupting))?;
        put(&mut map, "completion", action.completion.map(|completion| completion.to_string()))?;
        put(&mut map, "fatal", unless(action.fatal, false))?;
        put(&mut map, "read_only", unless(action.read_only, false))?;
        put(&mut map, "event", action.event.map(Event))?;
        put(&mut map, "unplug", unless(action.unplug, false))?;
        put(&mut map, "power_cut", unless(action.power_cut, false))?;
        map.end()
    }
}

struct Corrupting<'a>(&'a Corruption);

impl Serialize for Corrupting<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let data = match self.0.data {
            CorruptData::Read => "read",
            CorruptData::Write => "write",
        };
        map.serialize_entry("data", data)?;
        match &self.0.flips {
            Flips::Random(bits) => map.serialize_entry("bits", bits)?,
            Flips::At { offset, mask } => {
                map.serialize_entry("offset", offset)?;
                map.serialize_entry("xor", &hexadecimal(mask))?;
            }
        }
        map.end()
    }
}

struct Event(unvme_spec::log_page::AsyncEvent);

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &self.0.event_type())?;
        map.serialize_entry("info", &self.0.info())?;
        map.serialize_entry("log_page", &self.0.log_page())?;
        map.end()
    }
}

/// A key as text where it is printable and cannot be taken for digits, in hexadecimal otherwise.
fn key_text(bytes: &[u8]) -> String {
    let printable = bytes.iter().all(|byte| (0x20..0x7f).contains(byte)) && !bytes.starts_with(b"0x");
    match std::str::from_utf8(bytes) {
        Ok(text) if printable => text.to_owned(),
        _ => format!("0x{}", hexadecimal(bytes)),
    }
}

impl std::fmt::Display for LbaRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { first, last } = self;
        f.pad(&if first == last { first.to_string() } else { format!("{first}-{last}") })
    }
}

impl std::fmt::Display for FaultDelay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |time: Duration| match time.as_micros() {
            us if us % 1_000_000 == 0 => format!("{}s", us / 1_000_000),
            us if us % 1000 == 0 => format!("{}ms", us / 1000),
            us => format!("{us}us"),
        };
        let (min, max) = (shown(self.min), shown(self.max));
        f.pad(&if min == max { max } else { format!("{min}-{max}") })
    }
}

impl std::fmt::Display for WrongCompletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::CommandId => "cid",
            Self::QueueId => "sqid",
            Self::Duplicate => "duplicate",
        })
    }
}

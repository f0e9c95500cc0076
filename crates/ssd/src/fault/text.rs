//! Rules as text: JSON, one rule or a list of them, and nothing unknown in it.
//!
//! ```json
//! {
//!   "match": { "opcode": "write", "namespace": 1, "lba": "100-200", "after": 2, "count": 1 },
//!   "act":   { "status": "0x281", "dnr": true }
//! }
//! ```
//!
//! A number may be in quotes, and is hexadecimal there with `0x`. What is wrong is told with the key, line
//! and column.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use unvme_spec::Status;
use unvme_spec::log_page::AsyncEvent;

use super::object::{Keyed, Object, Scalar, read, value};
use super::rule::{CorruptData, Corruption, FaultAction, FaultKey, FaultMatch, FaultRule, Flips};
use super::word::{hexadecimal, parse_fault_key, parse_fault_status, shortened};
use super::{FAULT_TEXT_BYTES_MAX, FAULTS_MAX, FaultError};

/// Reads rules: an object is one rule, an array is a list of them. Every value has been checked against its
/// bounds. Errors: [`FaultError`] with line and column.
pub fn parse_faults(text: &str) -> Result<Vec<FaultRule>, FaultError> {
    if text.len() > FAULT_TEXT_BYTES_MAX {
        let reason = format!("{} bytes of text; expected at most {FAULT_TEXT_BYTES_MAX}", text.len());
        return Err(FaultError::new(reason));
    }
    serde_json::from_str::<Rules>(text).map(|rules| rules.0).map_err(|error| FaultError::of_json(&error))
}

/// Rules, in an array or one alone.
struct Rules(Vec<FaultRule>);

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Rules;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rule or an array of rules")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Rules, A::Error> {
                Ok(Rules(vec![read(map)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Rules, A::Error> {
                let mut rules = Vec::new();
                while let Some(rule) = seq.next_element::<FaultRule>()? {
                    if rules.len() == FAULTS_MAX {
                        return Err(de::Error::custom(format!("more than {FAULTS_MAX} rules")));
                    }
                    rules.push(rule);
                }
                Ok(Rules(rules))
            }
        }

        deserializer.deserialize_any(OneOrMore)
    }
}

impl<'de> Deserialize<'de> for FaultRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Object::deserialize(deserializer)?.0)
    }
}

impl Keyed for FaultRule {
    const KEYS: &'static [&'static str] = &["id", "match", "act"];

    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "id" => self.id = Some(value(map, |v| v.narrow(u32::MAX.into()))?),
            "match" => self.matching = map.next_value::<Object<_>>()?.0,
            _ => self.action = map.next_value::<Object<_>>()?.0,
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        FaultRule::check(self).map_err(|error| error.to_string())
    }
}

impl Keyed for FaultMatch {
    const KEYS: &'static [&'static str] = &[
        "opcode",
        "namespace",
        "lba",
        "key",
        "key_prefix",
        "queue",
        "program",
        "after",
        "every",
        "count",
        "probability",
        "seed",
    ];

    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "opcode" => self.opcode = Some(value(map, Scalar::parse)?),
            "namespace" => self.namespace = Some(value(map, |v| v.narrow(u32::MAX.into()))?),
            "lba" => self.lba = Some(value(map, Scalar::parse)?),
            "key" | "key_prefix" if self.key.is_some() => {
                return Err(de::Error::custom(
                    "beside the other of key and key_prefix; expected one of them",
                ));
            }
            "key" => self.key = Some(FaultKey::Exact(value(map, key_bytes)?)),
            "key_prefix" => self.key = Some(FaultKey::Prefix(value(map, key_bytes)?)),
            "queue" => self.queue = Some(value(map, |v| v.narrow(u16::MAX.into()))?),
            "program" => self.program = Some(value(map, Scalar::number)?),
            "after" => self.after = value(map, Scalar::number)?,
            "every" => self.every = value(map, Scalar::number)?,
            "count" => self.count = Some(value(map, Scalar::number)?),
            "probability" => self.probability = Some(value(map, Scalar::fraction)?),
            _ => self.seed = value(map, Scalar::number)?,
        }
        Ok(())
    }
}

/// A key in text as it is, or in hexadecimal with `0x`.
fn key_bytes(scalar: &Scalar) -> Result<Vec<u8>, String> {
    match scalar {
        Scalar::Text(text) => parse_fault_key(text),
        _ => Err(scalar.refused("a string")),
    }
}

impl Keyed for FaultAction {
    const KEYS: &'static [&'static str] = &[
        "status",
        "dnr",
        "more",
        "executed",
        "delay",
        "drop",
        "corrupt",
        "completion",
        "fatal",
        "read_only",
        "event",
        "unplug",
        "power_cut",
    ];

    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "status" => {
                let hints = self.status.unwrap_or(Status::SUCCESS).raw();
                let status = value(map, |v| match v {
                    Scalar::Number(number) => parse_fault_status(&number.to_string()),
                    Scalar::Text(text) => parse_fault_status(text)
                        .map_err(|expected| format!("`{}`: {expected}", shortened(text))),
                    _ => Err(v.refused("a number or a name")),
                })?;
                self.status = Some(Status::from_raw(status.raw() | hints));
            }
            "dnr" => {
                if value(map, Scalar::flag)? {
                    self.status = Some(self.status.unwrap_or(Status::SUCCESS).with_do_not_retry());
                }
            }
            "more" => self.logged = value(map, Scalar::flag)?,
            "executed" => self.executed = value(map, Scalar::flag)?,
            "delay" => self.delay = Some(value(map, Scalar::parse)?),
            "drop" => self.dropped = value(map, Scalar::flag)?,
            "corrupt" => self.corrupt = Some(map.next_value::<Object<CorruptionText>>()?.0.into()),
            "completion" => self.completion = Some(value(map, Scalar::parse)?),
            "fatal" => self.fatal = value(map, Scalar::flag)?,
            "read_only" => self.read_only = value(map, Scalar::flag)?,
            "event" => self.event = Some(map.next_value::<Object<EventText>>()?.0.into()),
            "unplug" => self.unplug = value(map, Scalar::flag)?,
            _ => self.power_cut = value(map, Scalar::flag)?,
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        match self.status {
            // `dnr` alone: it has nothing to say no retry of.
            Some(status) if status.is_success() && status.do_not_retry() => {
                Err("dnr: there is no status beside it that is an error".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// `corrupt` as it is written.
#[derive(Default)]
struct CorruptionText {
    writes: Option<bool>,
    bits: Option<u32>,
    offset: Option<u64>,
    mask: Option<Vec<u8>>,
}

impl Keyed for CorruptionText {
    const KEYS: &'static [&'static str] = &["data", "bits", "offset", "xor"];

    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "data" => {
                self.writes = Some(value(map, |v| match v {
                    Scalar::Text(text) if text == "read" => Ok(false),
                    Scalar::Text(text) if text == "write" => Ok(true),
                    _ => Err(v.refused("read or write")),
                })?);
            }
            "bits" => self.bits = Some(value(map, |v| v.narrow(u32::MAX.into()))?),
            "offset" => self.offset = Some(value(map, Scalar::number)?),
            _ => {
                let digits = |text: &str| hexadecimal(text);
                self.mask = Some(value(map, |v| match v {
                    Scalar::Text(text) => {
                        digits(text).ok_or_else(|| v.refused("hexadecimal digits in pairs"))
                    }
                    _ => Err(v.refused("a string of hexadecimal digits")),
                })?);
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Self { writes: None, .. } => Err("data is missing; expected read or write".to_owned()),
            Self { bits: Some(_), offset: None, mask: None, .. } => Ok(()),
            Self { bits: Some(_), .. } => Err("bits beside offset or xor; expected one of them".to_owned()),
            Self { offset: Some(_), mask: None, .. } => Err("xor is missing beside offset".to_owned()),
            _ => Ok(()),
        }
    }
}

impl From<CorruptionText> for Corruption {
    fn from(text: CorruptionText) -> Self {
        let data = if text.writes == Some(true) { CorruptData::Write } else { CorruptData::Read };
        let flips = match text.mask {
            Some(mask) => Flips::At { offset: text.offset.unwrap_or(0), mask },
            None => Flips::Random(text.bits.unwrap_or(1)),
        };
        Self { data, flips }
    }
}

/// `event` as it is written.
#[derive(Default)]
struct EventText {
    kind: u8,
    info: u8,
    log_page: u8,
}

impl Keyed for EventText {
    const KEYS: &'static [&'static str] = &["type", "info", "log_page"];

    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let number = value(map, |v| v.narrow(u8::MAX.into()))?;
        match key {
            "type" => self.kind = number,
            "info" => self.info = number,
            _ => self.log_page = number,
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        match self.kind {
            0..=7 => Ok(()),
            other => Err(format!("type: {other} is not possible; expected 0 to 7")),
        }
    }
}

impl From<EventText> for AsyncEvent {
    fn from(text: EventText) -> Self {
        Self::of(text.kind, text.info, text.log_page)
    }
}

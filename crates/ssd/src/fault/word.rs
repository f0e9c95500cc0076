//! What a rule says in one word, in text as well as in options: numbers, ranges, times, statuses, events.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::str::FromStr;
use std::time::Duration;

use unvme_spec::Status;
use unvme_spec::log_page::AsyncEvent;

use super::rule::{FaultDelay, LbaRange, WrongCompletion};

/// A number as people write them: decimal, or hexadecimal with `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if digits(hex) => u64::from_str_radix(hex, 16).ok(),
        None if digits(text) => text.parse().ok(),
        _ => None,
    }
}

/// Bytes in hexadecimal, two digits each, with or without `0x`.
pub(super) fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks_exact(2).map(byte).collect()
}

/// Enough of a text for a message.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

/// Bytes of a key: text as it is, or hexadecimal with `0x`. Errors: what was expected.
pub fn parse_fault_key(text: &str) -> Result<Vec<u8>, String> {
    match text.starts_with("0x") {
        true => hexadecimal(text).ok_or_else(|| "expected an even number of hexadecimal digits".to_owned()),
        false => Ok(text.as_bytes().to_vec()),
    }
}

/// Bytes in hexadecimal, two digits each. Errors: what was expected.
pub fn parse_fault_hex(text: &str) -> Result<Vec<u8>, String> {
    hexadecimal(text).ok_or_else(|| "expected hexadecimal digits in pairs, such as 80ff".to_owned())
}

/// An asynchronous event as type, information and log page: `1,0,2`. Errors: what was expected.
pub fn parse_fault_event(text: &str) -> Result<AsyncEvent, String> {
    let numbers: Option<Vec<u8>> = text.split(',').map(|part| u8::try_from(number(part)?).ok()).collect();
    match numbers.as_deref() {
        Some(&[kind @ 0..=7, info, log_page]) => Ok(AsyncEvent::of(kind, info, log_page)),
        _ => Err("expected TYPE,INFO,LOG such as 1,0,2, with a type up to 7".to_owned()),
    }
}

impl FromStr for LbaRange {
    type Err = String;

    /// `100-200`, or `100` for one block.
    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err("expected blocks such as 100 or 100-200, in ascending order".to_owned()),
        }
    }
}

impl FromStr for FaultDelay {
    type Err = String;

    /// `50ms`, or `50us-2ms` for a time chosen at random.
    fn from_str(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        match (duration(min), duration(max)) {
            (Some(min), Some(max)) if min <= max => Ok(Self { min, max }),
            _ => Err("expected a time such as 50ms or 100us-2ms, with a unit of us, ms or s".to_owned()),
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
    let (digits, microseconds) = match text {
        _ if text.ends_with("us") => (text.strip_suffix("us")?, 1),
        _ if text.ends_with("ms") => (text.strip_suffix("ms")?, 1000),
        _ => (text.strip_suffix('s')?, 1_000_000),
    };
    Some(Duration::from_micros(number(digits)?.checked_mul(microseconds)?))
}

/// A status by number, or by the specification's name in lower case with hyphens. Errors: what was expected.
pub fn parse_fault_status(text: &str) -> Result<Status, String> {
    const RAW_MAX: u64 = 0x7fff;
    match number(text) {
        // The numbers of nvme-cli: type in bits 10:8, code in bits 7:0, and Do Not Retry as 4000h.
        Some(raw) if raw <= RAW_MAX => Ok(Status::from_raw(raw as u16)),
        Some(_) => Err("expected at most 0x7fff".to_owned()),
        None => (0..0x800)
            .map(Status::from_raw)
            .find(|status| status_name(*status).as_deref() == Some(text))
            .ok_or_else(|| {
                "expected a number such as 0x281, or the specification's name with hyphens, such as \
                 unrecovered-read-error or write-fault"
                    .to_owned()
            }),
    }
}

/// The name that [`parse_fault_status`] reads.
fn status_name(status: Status) -> Option<String> {
    let words = status.name()?.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    Some(words.collect::<Vec<_>>().join("-").to_ascii_lowercase())
}

impl FromStr for WrongCompletion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cid" => Ok(Self::CommandId),
            "sqid" => Ok(Self::QueueId),
            "duplicate" => Ok(Self::Duplicate),
            _ => Err("expected cid, sqid or duplicate".to_owned()),
        }
    }
}

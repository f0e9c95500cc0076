//! What blkparse prints of a blktrace:
//! `major,minor cpu sequence time pid action rwbs sector + sectors [process]`.
//!
//! A request passes several actions. Those in which it was issued to the device (D) are taken; where a trace
//! has none of them, those in which it was queued (Q), else those in which it was completed (C).

use std::io::BufRead;

use anyhow::Result;

use super::lines::Lines;
use super::{Extent, Kind, SECTOR_BYTES, Take};

/// The actions that are taken, the best first.
const ACTIONS: [&str; 3] = ["D", "Q", "C"];

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// Nothing that reaches the device.
    Nothing,
    /// The statistics behind the last event.
    Statistics,
    /// `action` is an index of [`ACTIONS`].
    Request { action: usize, device: &'a str, extent: Extent },
}

pub(super) fn read<T: Take>(lines: &mut Lines<impl BufRead>) -> Result<T> {
    let mut by_action: [T; ACTIONS.len()] = Default::default();
    while let Some(line) = lines.next()? {
        match parse(line) {
            Ok(Line::Nothing) => {}
            Ok(Line::Statistics) => break,
            Ok(Line::Request { action, device, extent }) => {
                let device = device.to_owned();
                lines.give_of(&mut by_action[action], extent, &device)?;
            }
            Err(reason) => return Err(lines.refuse(&reason)),
        }
    }
    Ok(by_action.into_iter().find(|requests| !requests.is_empty()).unwrap_or_default())
}

/// True for `8,16`.
pub(super) fn is_device(word: &str) -> bool {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    word.split_once(',').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

fn parse(line: &str) -> Result<Line<'_>, String> {
    let mut words = line.split_ascii_whitespace();
    let device = words.next().unwrap_or_default();
    if device.starts_with("CPU") || device == "Total" {
        return Ok(Line::Statistics);
    }
    if !is_device(device) {
        return Err(format!("expected a device such as 259,0 and not `{device}`"));
    }
    let mut time = "";
    for what in ["a processor", "a sequence number", "a time", "a process"] {
        let word = words.next().ok_or_else(|| format!("expected {what}"))?;
        if !word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(format!("expected {what}, not `{word}`"));
        }
        if what == "a time" {
            time = word;
        }
    }
    let at_ns = nanoseconds(time).ok_or_else(|| format!("expected a time, not `{time}`"))?;
    let action = words.next().ok_or("expected an action")?;
    let Some(action) = ACTIONS.iter().position(|&taken| taken == action) else {
        // Merges, plugs, remaps, messages: nothing of its own reaches the device.
        return Ok(Line::Nothing);
    };
    let rwbs = words.next().ok_or("expected what the request does (RWBS)")?;
    // The letters before W or D are a flush's; those behind say more about it.
    let kind = match rwbs.trim_start_matches('F').chars().next() {
        Some('W') => Kind::Write,
        Some('D') => Kind::Trim,
        Some('R') => Kind::Read,
        _ if rwbs.starts_with('F') => {
            let extent = Extent { kind: Kind::Flush, offset: 0, bytes: 0, at_ns };
            return Ok(Line::Request { action, device, extent });
        }
        _ => return Ok(Line::Nothing),
    };
    let sector = match words.next() {
        // A flush has no sectors, a command that was passed through has bytes in parentheses.
        None => return Ok(Line::Nothing),
        Some(word) if word.starts_with(['[', '(']) => return Ok(Line::Nothing),
        Some(word) => word.parse::<u64>().map_err(|_| format!("expected a sector, not `{word}`"))?,
    };
    let sectors = match (words.next(), words.next()) {
        (Some("+"), Some(word)) => {
            word.parse::<u64>().map_err(|_| format!("expected a number of sectors, not `{word}`"))?
        }
        (None, _) => return Err("expected `+` and a number of sectors".into()),
        (Some("+"), None) => return Err("expected a number of sectors behind `+`".into()),
        (Some(word), _) if word.starts_with(['[', '(']) => return Ok(Line::Nothing),
        (Some(word), _) => return Err(format!("expected `+` and a number of sectors, not `{word}`")),
    };
    let bytes = |sectors: u64| {
        sectors.checked_mul(SECTOR_BYTES).ok_or_else(|| format!("{sectors} sectors are beyond every device"))
    };
    let extent = Extent { kind, offset: bytes(sector)?, bytes: bytes(sectors)?, at_ns };
    Ok(Line::Request { action, device, extent })
}

/// Of seconds with a fraction.
fn nanoseconds(seconds: &str) -> Option<u64> {
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let fraction = fraction.get(..9).unwrap_or(fraction);
    let scale = 10u64.pow(9u32.checked_sub(u32::try_from(fraction.len()).ok()?)?);
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(fraction.parse::<u64>().ok()?.checked_mul(scale)?)
}

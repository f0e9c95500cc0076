//! fio's iolog. After a line with the version come `file action` and `file action offset length`, in bytes;
//! in version 3 each line has the time before it, in microseconds; in version 2 some lines wait for so many.

use std::io::BufRead;

use anyhow::Result;

use super::lines::Lines;
use super::{Extent, Kind, Take};

const NS_PER_US: u64 = 1000;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// Nothing that reaches the device.
    Nothing,
    /// Nothing happens for so long.
    Wait {
        us: u64,
    },
    Request {
        file: String,
        extent: Extent,
    },
}

pub(super) fn read<T: Take>(lines: &mut Lines<impl BufRead>) -> Result<T> {
    let is_timed = match lines.next()? {
        Some("fio version 2 iolog") => false,
        Some("fio version 3 iolog") => true,
        _ => {
            return Err(
                lines.refuse("expected `fio version 2 iolog` or `fio version 3 iolog` as the first line")
            );
        }
    };
    let mut requests = T::default();
    let mut waited_us = 0u64;
    while let Some(line) = lines.next()? {
        match parse(line, is_timed) {
            Ok(Line::Nothing) => {}
            Ok(Line::Wait { us }) => waited_us = waited_us.saturating_add(us),
            Ok(Line::Request { file, mut extent }) => {
                if !is_timed {
                    extent.at_ns = waited_us.saturating_mul(NS_PER_US);
                }
                lines.give_of(&mut requests, extent, &file)?;
            }
            Err(reason) => return Err(lines.refuse(&reason)),
        }
    }
    Ok(requests)
}

fn parse(line: &str, is_timed: bool) -> Result<Line, String> {
    let mut words = line.split_ascii_whitespace();
    let us = if is_timed { number("a time", words.next())? } else { 0 };
    let file = words.next().ok_or("expected the name of a file")?.to_owned();
    let action = words.next().ok_or("expected an action behind the name of the file")?;
    let kind = match action {
        "add" | "open" | "close" => {
            return match words.next() {
                None => Ok(Line::Nothing),
                Some(_) => Err(format!("nothing was expected behind `{action}`")),
            };
        }
        "write" => Some(Kind::Write),
        "trim" => Some(Kind::Trim),
        "read" => Some(Kind::Read),
        "sync" | "datasync" => Some(Kind::Flush),
        "sync_file_range" | "wait" => None,
        _ => {
            let expected = "add, open, close, wait, read, write, trim, sync or datasync";
            return Err(format!("`{action}` is no action, expected {expected}"));
        }
    };
    let offset = number("an offset", words.next())?;
    let bytes = number("a length", words.next())?;
    if words.next().is_some() {
        return Err("nothing was expected behind the length".into());
    }
    let at_ns = us.saturating_mul(NS_PER_US);
    Ok(match kind {
        Some(kind) => Line::Request { file, extent: Extent { kind, offset, bytes, at_ns } },
        None if action == "wait" => Line::Wait { us: offset },
        None => Line::Nothing,
    })
}

fn number(what: &str, word: Option<&str>) -> Result<u64, String> {
    let word = word.ok_or_else(|| format!("expected {what}"))?;
    word.parse().map_err(|_| format!("expected {what}, not `{word}`"))
}

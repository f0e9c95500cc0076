//! fio's iolog. After a line with the version come `file action` and `file action offset length`, in bytes;
//! in version 3 each line has the time before it.

use std::io::BufRead;

use anyhow::Result;

use super::lines::Lines;
use super::{Extent, Request};
use crate::sim::op::Kind;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// Nothing that writes.
    Nothing,
    Request {
        file: String,
        extent: Extent,
    },
}

pub(super) fn read(lines: &mut Lines<impl BufRead>) -> Result<Vec<Request>> {
    let is_timed = match lines.next()? {
        Some("fio version 2 iolog") => false,
        Some("fio version 3 iolog") => true,
        _ => {
            return Err(
                lines.refuse("expected `fio version 2 iolog` or `fio version 3 iolog` as the first line")
            );
        }
    };
    let mut requests = Vec::new();
    while let Some(line) = lines.next()? {
        match parse(line, is_timed) {
            Ok(Line::Nothing) => {}
            Ok(Line::Request { file, extent }) => {
                lines.add_of(&mut requests, extent, &file)?;
            }
            Err(reason) => return Err(lines.refuse(&reason)),
        }
    }
    Ok(requests)
}

fn parse(line: &str, is_timed: bool) -> Result<Line, String> {
    let mut words = line.split_ascii_whitespace();
    if is_timed {
        number("a time", words.next())?;
    }
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
        "read" | "sync" | "datasync" | "sync_file_range" | "wait" => None,
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
    Ok(kind.map_or(Line::Nothing, |kind| Line::Request { file, extent: Extent { kind, offset, bytes } }))
}

fn number(what: &str, word: Option<&str>) -> Result<u64, String> {
    let word = word.ok_or_else(|| format!("expected {what}"))?;
    word.parse().map_err(|_| format!("expected {what}, not `{word}`"))
}

//! A line per request: `op,offset,length` and, optionally, a placement identifier.
//!
//! With a header the columns may be in any order, and others among them are not looked at; names are those of
//! the table below. Without one they are in the order above. Numbers are decimal, or hexadecimal with 0x;
//! offset and length are bytes. A time is in the unit that its column's name ends with.

use std::io::BufRead;

use anyhow::Result;

use super::lines::Lines;
use super::{Extent, Kind, Request, Take};
use crate::numbers;

/// Most columns of a line.
const COLUMNS_MAX: usize = 64;
/// Names of the columns, those with one meaning together.
const OP: &[&str] = &["op", "type", "operation", "action"];
const OFFSET: &[&str] = &["offset", "offset_bytes"];
const LENGTH: &[&str] = &["length", "size", "bytes", "length_bytes"];
const PLACEMENT: &[&str] = &["placement", "pid", "handle", "stream"];
/// And nanoseconds of one.
const TIME: [(&str, f64); 4] = [("time_ns", 1.0), ("time_us", 1e3), ("time_ms", 1e6), ("time_s", 1e9)];

/// Which column holds what.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Columns {
    op: usize,
    offset: usize,
    length: usize,
    placement: Option<usize>,
    /// And nanoseconds of its unit.
    time: Option<(usize, f64)>,
}

pub(super) fn read<T: Take>(lines: &mut Lines<impl BufRead>) -> Result<T> {
    let plain = Columns { op: 0, offset: 1, length: 2, placement: Some(3), time: None };
    let header = match lines.peek()? {
        Some(line) if has_header(line) => Some(columns(line)),
        _ => None,
    };
    let (columns, strict) = match header {
        Some(columns) => {
            lines.next()?;
            (columns.map_err(|reason| lines.refuse(&reason))?, false)
        }
        None => (plain, true),
    };
    let mut requests = T::default();
    while let Some(line) = lines.next()? {
        match parse(line, columns, strict) {
            Ok((extent, stream)) => {
                lines.give(&mut requests, Request { extent, file: 0, stream, times: 1 })?;
            }
            Err(reason) => return Err(lines.refuse(&reason)),
        }
    }
    Ok(requests)
}

/// A header names an operation and has no number.
fn has_header(line: &str) -> bool {
    let mut cells = line.split(',').map(|cell| cell.trim().to_ascii_lowercase());
    cells.any(|cell| OP.contains(&cell.as_str()) || OFFSET.contains(&cell.as_str()))
}

fn columns(line: &str) -> Result<Columns, String> {
    let cells: Vec<String> = cells(line)?.iter().map(|cell| cell.to_ascii_lowercase()).collect();
    let find = |names: &[&str]| cells.iter().position(|cell| names.contains(&cell.as_str()));
    let need = |names: &[&str]| {
        find(names).ok_or_else(|| format!("the header has no column `{}`", names.join("` or `")))
    };
    let timed = |(name, ns)| find(&[name]).map(|at| (at, ns));
    let time = TIME.into_iter().find_map(timed);
    let (op, offset, length) = (need(OP)?, need(OFFSET)?, need(LENGTH)?);
    Ok(Columns { op, offset, length, placement: find(PLACEMENT), time })
}

/// The cells of a line.
pub(super) fn cells(line: &str) -> Result<Vec<&str>, String> {
    let cells: Vec<&str> = line.split(',').take(COLUMNS_MAX + 1).map(str::trim).collect();
    if cells.len() > COLUMNS_MAX {
        return Err(format!("more than {COLUMNS_MAX} columns"));
    }
    Ok(cells)
}

/// A request and its stream.
fn parse(line: &str, columns: Columns, strict: bool) -> Result<(Extent, u16), String> {
    let cells = cells(line)?;
    let count = cells.len();
    if strict && !(3..=4).contains(&count) {
        return Err(format!("expected op,offset,length or op,offset,length,placement, not {count} columns"));
    }
    let cell = |at: usize, what: &str| {
        cells.get(at).copied().filter(|cell| !cell.is_empty()).ok_or_else(|| format!("expected {what}"))
    };
    let op = cell(columns.op, "an operation")?;
    let kind = match op.to_ascii_lowercase().as_str() {
        "w" | "write" => Kind::Write,
        "t" | "trim" | "d" | "discard" | "deallocate" => Kind::Trim,
        "r" | "read" => Kind::Read,
        "f" | "flush" => Kind::Flush,
        _ => return Err(format!("`{op}` is no operation, expected write, read, trim or flush")),
    };
    let number = |at: usize, what: &str| {
        let cell = cell(at, what)?;
        numbers::u64(cell).map_err(|_| format!("expected {what}, not `{cell}`"))
    };
    let offset = number(columns.offset, "an offset in bytes")?;
    let bytes = number(columns.length, "a length in bytes")?;
    let stream = match columns.placement.and_then(|at| cells.get(at)) {
        None | Some(&"") => 0,
        Some(cell) => numbers::u16(cell)
            .ok()
            .filter(|&stream| stream < unvme::registry::HANDLES_MAX)
            .ok_or_else(|| {
                let last = unvme::registry::HANDLES_MAX - 1;
                format!("expected a placement from 0 to {last}, not `{cell}`")
            })?,
    };
    let at_ns = match columns.time {
        None => 0,
        Some((at, ns)) => {
            let cell = cell(at, "a time")?;
            let time = cell.parse::<f64>().ok().filter(|&time| time >= 0.0);
            (time.ok_or_else(|| format!("expected a time, not `{cell}`"))? * ns) as u64
        }
    };
    Ok((Extent { kind, offset, bytes, at_ns }, stream))
}

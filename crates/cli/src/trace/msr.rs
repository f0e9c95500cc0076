//! Traces of MSR Cambridge as they are published: `timestamp,host,disk,type,offset,size,response time`, where
//! times are in units of 100 ns since 1601, and offset and size in bytes. Each disk of each host is a file.

use std::io::BufRead;

use anyhow::Result;

use super::lines::Lines;
use super::{Extent, Kind, Take};

/// 1970 in the units of the timestamps, and nanoseconds of one of them.
const EPOCH: u64 = 116_444_736_000_000_000;
const NS_PER_TICK: u64 = 100;
/// Cells of a line.
const CELLS: usize = 7;

/// True for a line of such a trace.
pub(super) fn is_line(line: &str) -> bool {
    parse(line).is_ok()
}

pub(super) fn read<T: Take>(lines: &mut Lines<impl BufRead>) -> Result<T> {
    let mut requests = T::default();
    while let Some(line) = lines.next()? {
        match parse(line) {
            Ok((disk, extent)) => lines.give_of(&mut requests, extent, &disk)?,
            Err(reason) => return Err(lines.refuse(&reason)),
        }
    }
    Ok(requests)
}

/// The disk, and what is done there.
fn parse(line: &str) -> Result<(String, Extent), String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let &[time, host, disk, kind, offset, size, response] = cells.as_slice() else {
        return Err(format!("expected {CELLS} columns, not {}", cells.len()));
    };
    let number =
        |what: &str, text: &str| text.parse::<u64>().map_err(|_| format!("expected {what}, not `{text}`"));
    let at_ns = number("a timestamp", time)?.saturating_sub(EPOCH).saturating_mul(NS_PER_TICK);
    number("a response time", response)?;
    let disk = format!("{host}.{}", number("the number of a disk", disk)?);
    let (offset, bytes) = (number("an offset", offset)?, number("a size", size)?);
    match kind.to_ascii_lowercase().as_str() {
        "write" => Ok((disk, Extent { kind: Kind::Write, offset, bytes, at_ns })),
        "read" => Ok((disk, Extent { kind: Kind::Read, offset, bytes, at_ns })),
        other => Err(format!("expected Read or Write, not `{other}`")),
    }
}

//! The traces that CacheLib publishes for its benchmark: a line per key and second, with the columns `key`,
//! `op` and `size`, and, as the year has it, `op_count`, `key_size` and others. They are operations on a
//! cache; what they are to a device is decided here.
//!
//! An object is its key and its value, in whole pages, and each key has a place on the device: as many pages
//! as its largest object takes, in the order in which keys are first set. SET writes the object to its place
//! and deallocates what an earlier one has had beyond it; DELETE deallocates the object; GET reads the object
//! that is there. The size of a cache and its evictions are not in a trace: every key keeps its place.

use std::collections::HashMap;
use std::io::BufRead;

use anyhow::Result;
use unvme_flash::PAGE_BYTES;

use super::csv::cells;
use super::lines::Lines;
use super::{BYTES_MAX, Extent, Kind, Request, Take};

/// Columns where there is no header: the order that CacheBench takes then.
const PLAIN: Columns = Columns { key: 0, op: 1, size: 2, op_count: Some(3), key_size: Some(4), time: None };
/// Most operations of a line, which is about one second.
const COUNT_MAX: u64 = 1 << 20;

/// Which column holds what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    key: usize,
    op: usize,
    size: usize,
    op_count: Option<usize>,
    key_size: Option<usize>,
    /// Seconds.
    time: Option<usize>,
}

/// A request on pages, counted from the beginning of a key's place.
#[derive(Clone, Copy, Debug)]
struct OnPages {
    key: u32,
    first: u32,
    pages: u32,
    kind: Kind,
    times: u16,
    second: u32,
}

/// What a line says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    /// So many pages, so many times.
    Set {
        pages: u32,
        times: u64,
    },
    Delete,
    /// So many times.
    Get {
        times: u64,
    },
}

/// Pages of a key's place, and of the object that is there.
#[derive(Clone, Copy, Debug, Default)]
struct Object {
    place: u32,
    held: u32,
}

/// True for the header of such a trace, and for a line of one without a header.
pub(super) fn is_line(line: &str) -> bool {
    let op = line.split(',').nth(PLAIN.op).map(str::trim);
    columns(line).is_some() || matches!(op, Some("GET" | "SET" | "DELETE" | "GET_LEASE" | "SET_LEASE"))
}

fn columns(line: &str) -> Option<Columns> {
    let find = |name: &str| line.split(',').position(|cell| cell.trim().eq_ignore_ascii_case(name));
    Some(Columns {
        key: find("key")?,
        op: find("op")?,
        size: find("size")?,
        op_count: find("op_count"),
        key_size: find("key_size"),
        time: find("op_time"),
    })
}

pub(super) fn read<T: Take>(lines: &mut Lines<impl BufRead>) -> Result<T> {
    let header = lines.peek()?.and_then(columns);
    if header.is_some() {
        lines.next()?;
    }
    let columns = header.unwrap_or(PLAIN);
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let mut objects: Vec<Object> = Vec::new();
    let mut requests: Vec<OnPages> = Vec::new();
    while let Some(line) = lines.next()? {
        let (key, op, second) = match parse(line, columns) {
            Ok(None) => continue,
            Ok(Some((_, Op::Get { .. }, _))) if !T::READS => continue,
            Ok(Some(found)) => found,
            Err(reason) => return Err(lines.refuse(&reason)),
        };
        let number = match (numbers.get(key), op) {
            (Some(&number), _) => number,
            // An object from before the trace has no place.
            (None, Op::Delete | Op::Get { .. }) => continue,
            (None, Op::Set { .. }) => {
                let number = objects.len() as u32;
                numbers.insert(key.to_owned(), number);
                objects.push(Object::default());
                number
            }
        };
        let object = &mut objects[number as usize];
        let request = |first, pages, kind, times| OnPages { key: number, first, pages, kind, times, second };
        let (kind, pages, times) = match op {
            Op::Set { pages, times } => (Kind::Write, pages, times),
            Op::Get { times } => (Kind::Read, object.held, times),
            Op::Delete => (Kind::Trim, 0, 0),
        };
        let mut left = if pages > 0 { times } else { 0 };
        while left > 0 {
            let some = left.min(u16::MAX.into()) as u16;
            requests.push(request(0, pages, kind, some));
            left -= u64::from(some);
        }
        if kind == Kind::Read {
            continue;
        }
        let held = std::mem::replace(&mut object.held, pages);
        object.place = object.place.max(pages);
        if held > pages {
            requests.push(request(pages, held - pages, Kind::Trim, 1));
        }
    }
    place(lines, &requests, &objects)
}

/// Hands on the requests, the places of the keys one after the other.
fn place<T: Take>(lines: &Lines<impl BufRead>, requests: &[OnPages], objects: &[Object]) -> Result<T> {
    let mut end = 0u64;
    let mut starts = Vec::with_capacity(objects.len());
    for object in objects {
        starts.push(end);
        end += u64::from(object.place);
    }
    let mut taken = T::default();
    if end * PAGE_BYTES > BYTES_MAX {
        let reason = format!("its {} keys have more than {BYTES_MAX} bytes together", objects.len());
        return Err(lines.refuse_all(&reason));
    }
    for &OnPages { key, first, pages, kind, times, second } in requests {
        let offset = (starts[key as usize] + u64::from(first)) * PAGE_BYTES;
        let at_ns = u64::from(second) * 1_000_000_000;
        let extent = Extent { kind, offset, bytes: u64::from(pages) * PAGE_BYTES, at_ns };
        let request = Request { extent, file: 0, stream: 0, times };
        taken.take(request).map_err(|reason| lines.refuse_all(&reason))?;
    }
    Ok(taken)
}

/// A key, what is done to it, and in which second; `None` for what does nothing.
fn parse(line: &str, columns: Columns) -> Result<Option<(&str, Op, u32)>, String> {
    let cells = cells(line)?;
    let cell = |at: usize, what: &str| {
        cells.get(at).copied().filter(|cell| !cell.is_empty()).ok_or_else(|| format!("expected {what}"))
    };
    let number = |at: usize, what: &str| {
        let cell = cell(at, what)?;
        cell.parse::<u64>().map_err(|_| format!("expected {what}, not `{cell}`"))
    };
    // A column that is not there, or has nothing in it.
    let optional = |at: Option<usize>, what: &str, otherwise: u64| match at {
        Some(at) if cells.get(at).is_some_and(|cell| !cell.is_empty()) => number(at, what),
        _ => Ok(otherwise),
    };
    let key = cell(columns.key, "a key")?;
    let op = cell(columns.op, "an operation")?;
    let bytes = number(columns.size, "a size in bytes")?;
    let key_bytes = optional(columns.key_size, "the size of a key in bytes", key.len() as u64)?;
    let times = optional(columns.op_count, "a number of operations", 1)?;
    if times > COUNT_MAX {
        return Err(format!("expected up to {COUNT_MAX} operations in a line, not {times}"));
    }
    let second = optional(columns.time, "a time in seconds", 0)?;
    let second = u32::try_from(second).map_err(|_| format!("expected a time in seconds, not `{second}`"))?;
    let object = bytes.checked_add(key_bytes).filter(|&object| object <= BYTES_MAX);
    let object = object.ok_or_else(|| format!("its object has more than {BYTES_MAX} bytes"))?;
    match op {
        "GET" | "SET" | "DELETE" | "GET_LEASE" | "SET_LEASE" if times == 0 => Ok(None),
        "GET" | "GET_LEASE" => Ok(Some((key, Op::Get { times }, second))),
        // At most 2^31.
        "SET" | "SET_LEASE" => {
            let pages = object.div_ceil(PAGE_BYTES).max(1) as u32;
            Ok(Some((key, Op::Set { pages, times }, second)))
        }
        "DELETE" => Ok(Some((key, Op::Delete, second))),
        _ => Err(format!("`{op}` is no operation, expected GET, SET, DELETE, GET_LEASE or SET_LEASE")),
    }
}

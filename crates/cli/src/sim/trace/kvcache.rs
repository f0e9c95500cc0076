//! The traces that CacheLib publishes for its benchmark: a line per key and second, with the columns `key`,
//! `op` and `size`, and, as the year has it, `op_count`, `key_size` and others. They are operations on a
//! cache; what they are to a device is decided here.
//!
//! An object is its key and its value, in whole pages, and each key has a place on the device: as many pages
//! as its largest object takes, in the order in which keys are first set. SET writes the object to its place
//! and deallocates what an earlier one has had beyond it; DELETE deallocates the object. GET reads, and is
//! left out like all reads. The size of a cache and its evictions are not in a trace: every key keeps its
//! place.

use std::collections::HashMap;
use std::io::BufRead;

use anyhow::Result;
use unvme_flash::PAGE_BYTES;

use super::csv::cells;
use super::lines::Lines;
use super::{BYTES_MAX, Request};
use crate::sim::op::Kind;

/// Columns where there is no header: the order that CacheBench takes then.
const PLAIN: Columns = Columns { key: 0, op: 1, size: 2, op_count: Some(3), key_size: Some(4) };
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
    })
}

pub(super) fn read(lines: &mut Lines<impl BufRead>) -> Result<Vec<Request>> {
    let header = lines.peek()?.and_then(columns);
    if header.is_some() {
        lines.next()?;
    }
    let columns = header.unwrap_or(PLAIN);
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let mut objects: Vec<Object> = Vec::new();
    // Requests with their pages counted from the beginning of the key's place, and the key of each.
    let (mut requests, mut keys) = (Vec::new(), Vec::new());
    while let Some(line) = lines.next()? {
        let (key, op) = match parse(line, columns) {
            Ok(None) => continue,
            Ok(Some(found)) => found,
            Err(reason) => return Err(lines.refuse(&reason)),
        };
        let number = match (numbers.get(key), op) {
            (Some(&number), _) => number,
            // An object from before the trace has no place.
            (None, Op::Delete) => continue,
            (None, Op::Set { .. }) => {
                let number = objects.len() as u32;
                numbers.insert(key.to_owned(), number);
                objects.push(Object::default());
                number
            }
        };
        let object = &mut objects[number as usize];
        let (pages, times) = match op {
            Op::Set { pages, times } => (pages, times),
            Op::Delete => (0, 0),
        };
        let (kept, held) = (pages, std::mem::replace(&mut object.held, pages));
        object.place = object.place.max(pages);
        let request = |first, pages, kind, times| Request { first, pages, stream: 0, file: 0, kind, times };
        let mut left = times;
        while left > 0 {
            let some = left.min(u16::MAX.into()) as u16;
            lines.push(&mut requests, request(0, pages, Kind::Write, some))?;
            left -= u64::from(some);
        }
        if held > kept {
            lines.push(&mut requests, request(kept, held - kept, Kind::Trim, 1))?;
        }
        keys.resize(requests.len(), number);
    }
    place(&mut requests, &keys, &objects).map_err(|reason| lines.refuse_all(&reason))?;
    Ok(requests)
}

/// Lays the places of the keys one after the other.
fn place(requests: &mut [Request], keys: &[u32], objects: &[Object]) -> Result<(), String> {
    let mut end = 0u64;
    let mut starts = Vec::with_capacity(objects.len());
    for object in objects {
        starts.push(end);
        end += u64::from(object.place);
    }
    if end * PAGE_BYTES > BYTES_MAX {
        return Err(format!("its {} keys have more than {BYTES_MAX} bytes together", objects.len()));
    }
    for (request, &key) in requests.iter_mut().zip(keys) {
        // Below the end, which is at most 2^31.
        request.first += starts[key as usize] as u32;
    }
    Ok(())
}

/// A key and what is done to it; `None` for what does not write.
fn parse(line: &str, columns: Columns) -> Result<Option<(&str, Op)>, String> {
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
    let object = bytes.checked_add(key_bytes).filter(|&object| object <= BYTES_MAX);
    let object = object.ok_or_else(|| format!("its object has more than {BYTES_MAX} bytes"))?;
    match op {
        "GET" | "GET_LEASE" => Ok(None),
        _ if times == 0 => Ok(None),
        // At most 2^31.
        "SET" | "SET_LEASE" => {
            let pages = object.div_ceil(PAGE_BYTES).max(1) as u32;
            Ok(Some((key, Op::Set { pages, times })))
        }
        "DELETE" => Ok(Some((key, Op::Delete))),
        _ => Err(format!("`{op}` is no operation, expected GET, SET, DELETE, GET_LEASE or SET_LEASE")),
    }
}

//! Traffic that was recorded elsewhere.
//!
//! | file | concept |
//! |---|---|
//! | `lines` | a file line by line, and saying where a bad one is |
//! | `iolog` | fio's `write_iolog`, versions 2 and 3 |
//! | `blkparse` | the text that blkparse makes of a blktrace |
//! | `msr`, `cloud` | the traces of MSR Cambridge, and of Alibaba's and Tencent's clouds, as published |
//! | `kvcache` | operations on a cache, as CacheLib publishes them |
//! | `csv` | a line per request, with a placement identifier |
//! | `packed` | files and standard input, as they are or packed |
//!
//! A trace is read whole before the first page is written: a bad line costs no time, and a run may go through
//! it many times. Reads are left out, and so is when things happened: a flash translation layer knows
//! neither.

mod blkparse;
mod cloud;
mod csv;
mod iolog;
mod kvcache;
mod lines;
mod msr;
mod packed;

use std::io::BufRead;
use std::path::Path;

use anyhow::Result;
use unvme_flash::PAGE_BYTES;

use self::cloud::Cloud;
use self::lines::Lines;
use super::op::{Kind, Op};
use crate::exit::usage;

/// Most requests of a trace: they are held in memory, 16 bytes each.
const REQUESTS_MAX: usize = 1 << 28;
/// Last byte that a trace can name, plus one: what 32-bit page numbers reach.
const BYTES_MAX: u64 = (1 << 31) * PAGE_BYTES;
/// Sectors of traces have 512 bytes whatever the device's have.
const SECTOR_BYTES: u64 = 512;

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// fio's iolog, version 2 or 3
    Iolog,
    /// Text of blkparse
    Blkparse,
    /// MSR Cambridge: timestamp,host,disk,type,offset,size,response time
    Msr,
    /// Alibaba: device_id,opcode,offset,length,timestamp
    Alibaba,
    /// Tencent CBS: timestamp,offset,size,iotype,volume_id
    Tencent,
    /// CacheLib: columns key, op, size and others
    Kvcache,
    /// Lines of op,offset,length[,placement]
    Csv,
}

/// One request on whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    first: u32,
    pages: u32,
    stream: u16,
    /// Which of the files or devices in the trace it is about.
    file: u16,
    kind: Kind,
    /// How often it is done.
    times: u16,
}

/// A request as a line has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    kind: Kind,
    offset: u64,
    bytes: u64,
}

impl Extent {
    /// The pages of a request: those that a write touches, and those that a deallocation covers. `None` when
    /// there are none.
    fn pages(self) -> Result<Option<(u32, u32)>, String> {
        let end = self.offset.checked_add(self.bytes).filter(|&end| end <= BYTES_MAX);
        let end =
            end.ok_or_else(|| format!("it ends beyond {BYTES_MAX} bytes, the most that can be simulated"))?;
        let (first, last) = match self.kind {
            Kind::Write => (self.offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES)),
            Kind::Trim => (self.offset.div_ceil(PAGE_BYTES), end / PAGE_BYTES),
        };
        // Both are at most 2^31.
        Ok((self.bytes > 0 && last > first).then(|| (first as u32, (last - first) as u32)))
    }
}

/// Requests in their order.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) format: Format,
    requests: Vec<Request>,
    /// Pages that it reaches.
    pub(super) pages: u32,
    /// Pages that it writes.
    pub(super) written: u64,
    /// Streams that it names, at least one.
    pub(super) streams: u16,
}

impl Trace {
    /// Reads a trace; its form is detected when it is not given. Errors: the file cannot be read, or a usage
    /// error that names the file, the line and its text. Of a trace of several devices only those in
    /// `devices` are taken, or all when none is named.
    pub(super) fn read(path: &Path, format: Option<Format>, devices: &[String]) -> Result<Self> {
        Self::parse(&path.display().to_string(), packed::open(path)?, format, devices)
    }

    fn parse(name: &str, input: impl BufRead, format: Option<Format>, devices: &[String]) -> Result<Self> {
        let mut lines = Lines::new(name, input, devices);
        let format = match (format, lines.peek()?) {
            (Some(format), _) => format,
            (None, None) => return Err(usage(format!("{name}: the trace is empty"))),
            (None, Some(line)) => match detect(line) {
                Some(format) => format,
                None => {
                    let expected = "expected `fio version 2 iolog` or 3, a line of blkparse, of MSR Cambridge, \
                                    of Alibaba, Tencent or CacheLib, or op,offset,length";
                    return Err(lines.refuse_next(&format!("this is no trace: {expected}")));
                }
            },
        };
        let requests = match format {
            Format::Iolog => iolog::read(&mut lines)?,
            Format::Blkparse => blkparse::read(&mut lines)?,
            Format::Msr => msr::read(&mut lines)?,
            Format::Alibaba => cloud::read(Cloud::Alibaba, &mut lines)?,
            Format::Tencent => cloud::read(Cloud::Tencent, &mut lines)?,
            Format::Kvcache => kvcache::read(&mut lines)?,
            Format::Csv => csv::read(&mut lines)?,
        };
        lines.check_wanted()?;
        Self::new(name, format, requests)
    }

    /// Lays the files of a trace one after the other, in the order in which it names them.
    fn new(name: &str, format: Format, mut requests: Vec<Request>) -> Result<Self> {
        let files = requests.iter().map(|request| usize::from(request.file) + 1).max().unwrap_or(0);
        let mut ends = vec![0u32; files];
        for request in &requests {
            let end = &mut ends[usize::from(request.file)];
            *end = (*end).max(request.first + request.pages);
        }
        let pages: u64 = ends.iter().map(|&end| u64::from(end)).sum();
        if pages * PAGE_BYTES > BYTES_MAX {
            return Err(usage(format!(
                "{name}: its {files} devices have more than {BYTES_MAX} bytes together; choose some by --trace-device"
            )));
        }
        let mut base = 0;
        let bases: Vec<u32> = ends.iter().map(|&end| (base, base += end).0).collect();
        requests.iter_mut().for_each(|request| request.first += bases[usize::from(request.file)]);
        let writes = || requests.iter().filter(|request| request.kind == Kind::Write);
        let pages_of = |request: &Request| u64::from(request.pages) * u64::from(request.times);
        let written = writes().fold(0u64, |sum, request| sum.saturating_add(pages_of(request)));
        if written == 0 {
            return Err(usage(format!("{name}: the trace writes nothing")));
        }
        let streams = writes().map(|request| request.stream + 1).max().unwrap_or(1);
        Ok(Self { format, requests, pages: base, written, streams })
    }
}

/// The form of a trace, by its first line.
fn detect(line: &str) -> Option<Format> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    if first == "fio" {
        return Some(Format::Iolog);
    }
    if blkparse::is_device(first) && words.next().is_some() {
        return Some(Format::Blkparse);
    }
    if msr::is_line(line) {
        return Some(Format::Msr);
    }
    if Cloud::Alibaba.is_line(line) {
        return Some(Format::Alibaba);
    }
    if Cloud::Tencent.is_line(line) {
        return Some(Format::Tencent);
    }
    if kvcache::is_line(line) {
        return Some(Format::Kvcache);
    }
    line.contains(',').then_some(Format::Csv)
}

/// Goes through a trace, around and around.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    trace: &'a Trace,
    /// Next request, how often it is done, and pages of it that are.
    at: usize,
    times: u16,
    done: u32,
}

impl<'a> Replay<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        Self { trace, at: 0, times: 0, done: 0 }
    }

    pub(super) fn fill(&mut self, out: &mut Vec<Op>, ops: usize) {
        while out.len() < ops {
            let request = self.trace.requests[self.at];
            let some = (request.pages - self.done).min((ops - out.len()) as u32);
            let first = request.first + self.done;
            let op = |lpn| Op { lpn, stream: request.stream, kind: request.kind };
            out.extend((first..first + some).map(op));
            self.done += some;
            if self.done == request.pages {
                self.done = 0;
                self.times += 1;
            }
            if self.times == request.times {
                self.times = 0;
                self.at = if self.at + 1 == self.trace.requests.len() { 0 } else { self.at + 1 };
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Traffic that was recorded elsewhere, in the forms in which it is published.
//!
//! | file | concept |
//! |---|---|
//! | `lines` | a file line by line, and saying where a bad one is |
//! | `iolog` | fio's `write_iolog`, versions 2 and 3 |
//! | `blkparse` | the text that blkparse makes of a blktrace |
//! | `msr`, `cloud` | the traces of MSR Cambridge, and of Alibaba's and Tencent's clouds, as published |
//! | `kvcache` | operations on a cache, as CacheLib publishes them |
//! | `csv` | a line per request, with a placement identifier and a time |
//! | `packed` | files and standard input, as they are or packed |
//!
//! What becomes of a request is up to who reads: [`Take`].

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
use crate::exit::usage;

/// Last byte that a trace can name, plus one: what 32-bit page numbers reach.
pub(crate) const BYTES_MAX: u64 = (1 << 31) * PAGE_BYTES;
/// Sectors of traces have 512 bytes whatever the device's have.
const SECTOR_BYTES: u64 = 512;

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
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

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Trim,
    Flush,
}

/// Where a request goes, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) kind: Kind,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// On the trace's clock, which begins anywhere; 0 where there is none.
    pub(crate) at_ns: u64,
}

/// A request as a trace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) extent: Extent,
    /// Which of the files or devices in the trace it is about.
    pub(crate) file: u16,
    /// Its placement identifier.
    pub(crate) stream: u16,
    /// How often it is done.
    pub(crate) times: u16,
}

/// Whoever takes the requests of a trace, in their order.
pub(crate) trait Take: Default {
    /// True when reads and flushes are taken as well.
    const READS: bool;

    /// Takes a request. Errors: why it cannot be one.
    fn take(&mut self, request: Request) -> Result<(), String>;

    /// True when none was taken.
    fn is_empty(&self) -> bool;
}

/// Reads a trace; its form is detected when it is not given. Of a trace of several devices only those in
/// `devices` are taken, or all when none is named. Errors: the file cannot be read, or a usage error that
/// names the file, the line and its text.
pub(crate) fn read<T: Take>(path: &Path, format: Option<Format>, devices: &[String]) -> Result<(Format, T)> {
    parse(&path.display().to_string(), packed::open(path)?, format, devices)
}

/// As [`read`], of what is open.
pub(crate) fn parse<T: Take>(
    name: &str,
    input: impl BufRead,
    format: Option<Format>,
    devices: &[String],
) -> Result<(Format, T)> {
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
    lines.check_wanted(T::READS)?;
    Ok((format, requests))
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

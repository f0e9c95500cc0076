//! What a recorded trace is to a flash translation layer.
//!
//! A trace is read whole before the first page is written: a bad line costs no time, and a run may go through
//! it many times. Reads are left out, and so is when things happened: the layer knows neither.

use std::path::Path;

use anyhow::Result;
use unvme_flash::PAGE_BYTES;

use super::op::{Kind, Op};
use crate::exit::usage;
use crate::trace::{self, BYTES_MAX, Format, Take};

/// Most requests of a trace: they are held in memory, 16 bytes each.
const REQUESTS_MAX: usize = 1 << 28;

/// One request on whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    first: u32,
    pages: u32,
    stream: u16,
    file: u16,
    kind: Kind,
    /// How often it is done.
    times: u16,
}

/// The pages of a request: those that a write touches, and those that a deallocation covers. `None` when
/// there are none. Errors: why it cannot be simulated.
fn pages(kind: Kind, offset: u64, bytes: u64) -> Result<Option<(u32, u32)>, String> {
    let end = offset.checked_add(bytes).filter(|&end| end <= BYTES_MAX);
    let end =
        end.ok_or_else(|| format!("it ends beyond {BYTES_MAX} bytes, the most that can be simulated"))?;
    let (first, last) = match kind {
        Kind::Write => (offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES)),
        Kind::Trim => (offset.div_ceil(PAGE_BYTES), end / PAGE_BYTES),
    };
    // Both are at most 2^31.
    Ok((bytes > 0 && last > first).then(|| (first as u32, (last - first) as u32)))
}

impl Take for Vec<Request> {
    const READS: bool = false;

    fn take(&mut self, request: trace::Request) -> Result<(), String> {
        let trace::Request { extent, file, stream, times } = request;
        let kind = match extent.kind {
            trace::Kind::Write => Kind::Write,
            trace::Kind::Trim => Kind::Trim,
            trace::Kind::Read | trace::Kind::Flush => return Ok(()),
        };
        let Some((first, pages)) = pages(kind, extent.offset, extent.bytes)? else { return Ok(()) };
        if self.len() == REQUESTS_MAX {
            return Err(format!("the trace has more than {REQUESTS_MAX} requests"));
        }
        self.push(Request { first, pages, stream, file, kind, times });
        Ok(())
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
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
    /// As [`trace::read`], of what writes. Errors: those, or that nothing does.
    pub(super) fn read(path: &Path, format: Option<Format>, devices: &[String]) -> Result<Self> {
        let (format, requests) = trace::read(path, format, devices)?;
        Self::new(&path.display().to_string(), format, requests)
    }

    #[cfg(test)]
    fn parse(name: &str, input: &[u8], format: Option<Format>, devices: &[String]) -> Result<Self> {
        let (format, requests) = trace::parse(name, input, format, devices)?;
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

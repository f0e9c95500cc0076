//! `--trace`: requests that were recorded elsewhere, in their order and by their own clock.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Result;

use crate::exit::usage;
use crate::trace::{self, Format, Kind, Request, Take};

/// Most requests of a trace: they are held in memory, 32 bytes each.
const REQUESTS_MAX: usize = 1 << 27;
/// Longest request: each slot has a buffer for it.
const REQUEST_BYTES_MAX: u64 = 64 << 20;
/// Files of a trace begin at multiples of this.
const ALIGNMENT: u64 = 4096;
const SPEED_SYNTAX: &str = "expected a factor above 0 such as 1, 0.5 or 10, or max";

/// How fast a trace goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Speed {
    /// So many times as fast as it was recorded.
    Times(f64),
    /// As fast as the device takes it.
    Max,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        let factor = text.parse::<f64>().ok().filter(|&factor| (1e-6..=1e9).contains(&factor));
        factor.map(Self::Times).ok_or_else(|| SPEED_SYNTAX.to_owned())
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(factor) => write!(f, "{factor}"),
            Self::Max => f.write_str("max"),
        }
    }
}

/// A request of a trace, which may be done several times.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// When it is due, from the trace's first one on.
    at_ns: u64,
    offset: u64,
    bytes: u32,
    times: u16,
    file: u16,
    stream: u16,
    kind: Kind,
}

/// What of a trace is taken: all of it.
#[derive(Debug, Default)]
struct Steps {
    steps: Vec<Step>,
    /// Ends of its files.
    ends: Vec<u64>,
}

impl Take for Steps {
    const READS: bool = true;

    fn take(&mut self, request: Request) -> Result<(), String> {
        let Request { extent, file, stream, times } = request;
        if extent.bytes == 0 && extent.kind != Kind::Flush {
            return Ok(());
        }
        let end = extent.offset.checked_add(extent.bytes).filter(|&end| end <= trace::BYTES_MAX);
        let end = end.ok_or_else(|| format!("it ends beyond {} bytes", trace::BYTES_MAX))?;
        // A deallocation moves no data, and may be longer.
        let most = if extent.kind == Kind::Trim { u64::from(u32::MAX) } else { REQUEST_BYTES_MAX };
        if extent.bytes > most {
            return Err(format!("{} bytes are more than the {most} of a request", extent.bytes));
        }
        if self.steps.len() == REQUESTS_MAX {
            return Err(format!("the trace has more than {REQUESTS_MAX} requests"));
        }
        if self.ends.len() <= usize::from(file) {
            self.ends.resize(usize::from(file) + 1, 0);
        }
        let known = &mut self.ends[usize::from(file)];
        *known = (*known).max(end);
        let bytes = extent.bytes as u32;
        let (at_ns, offset, kind) = (extent.at_ns, extent.offset, extent.kind);
        self.steps.push(Step { at_ns, offset, bytes, times, file, stream, kind });
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// A trace, and what there is to know of it.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) path: PathBuf,
    steps: Vec<Step>,
    /// Requests, each as often as it is done.
    pub(super) requests: u64,
    /// Those that read or write.
    moves: u64,
    /// Last byte that it reaches, plus one.
    pub(super) reach: u64,
    /// Bytes of the longest read or write; 0 where there is none.
    pub(super) longest: u64,
    /// Of the reads and writes.
    pub(super) read_percent: u8,
    pub(super) trims: bool,
    pub(super) flushes: bool,
    /// From the first request to the last; `None` where the form of the trace has no times.
    pub(super) lasts_ns: Option<u64>,
}

impl Recording {
    /// Reads a trace, as [`trace::read`] does. Errors: those, or that there is nothing in it.
    pub(super) fn read(path: &Path, format: Option<Format>, devices: &[String]) -> Result<Self> {
        let (_, steps) = trace::read::<Steps>(path, format, devices)?;
        Self::new(path, steps)
    }

    fn new(path: &Path, Steps { mut steps, ends }: Steps) -> Result<Self> {
        let name = path.display();
        let mut base = 0u64;
        let bases: Vec<u64> = ends
            .iter()
            .map(|&end| {
                let own = base;
                base = base.saturating_add(end.next_multiple_of(ALIGNMENT));
                own
            })
            .collect();
        if base > trace::BYTES_MAX {
            return Err(usage(format!(
                "{name}: its {} devices have more than {} bytes together; choose some by --trace-device",
                ends.len(),
                trace::BYTES_MAX
            )));
        }
        let first_ns = steps.iter().map(|step| step.at_ns).min().unwrap_or(0);
        let mut due_ns = 0;
        for step in &mut steps {
            step.offset += bases[usize::from(step.file)];
            // Processors write their own lines: some are late. Nothing overtakes.
            due_ns = step.at_ns.saturating_sub(first_ns).max(due_ns);
            step.at_ns = due_ns;
        }
        let done = |kind: Kind| -> u64 {
            steps.iter().filter(|step| step.kind == kind).map(|step| u64::from(step.times)).sum()
        };
        let (reads, writes, trims, flushes) =
            (done(Kind::Read), done(Kind::Write), done(Kind::Trim), done(Kind::Flush));
        if reads + writes == 0 {
            return Err(usage(format!("--trace: {name} reads and writes nothing")));
        }
        let moving = steps.iter().filter(|step| matches!(step.kind, Kind::Read | Kind::Write));
        // Only what only reads has 100, and only what only writes has 0.
        let share = (reads as f64 * 100.0 / (reads + writes) as f64).round().clamp(1.0, 99.0) as u8;
        Ok(Self {
            path: path.to_owned(),
            requests: reads + writes + trims + flushes,
            moves: reads + writes,
            reach: steps.iter().map(|step| step.offset + u64::from(step.bytes)).max().unwrap_or(0),
            longest: moving.map(|step| u64::from(step.bytes)).max().unwrap_or(0),
            read_percent: match (reads, writes) {
                (0, _) => 0,
                (_, 0) => 100,
                _ => share,
            },
            trims: trims > 0,
            flushes: flushes > 0,
            lasts_ns: Some(due_ns).filter(|&ns| ns > 0),
            steps,
        })
    }

    /// The time that a request of it takes its turn at, by that speed; `None` where it goes as fast as it
    /// can.
    fn pace(&self, speed: Speed) -> Option<f64> {
        match (speed, self.lasts_ns) {
            (Speed::Times(factor), Some(_)) => Some(1.0 / factor),
            _ => None,
        }
    }

    /// Reads and writes that become due per second at that speed, where it has a clock.
    pub(super) fn rate(&self, speed: Speed) -> Option<f64> {
        Some(self.moves as f64 / (self.pace(speed)? * self.lasts_ns? as f64 / 1e9))
    }

    /// Bytes that a slot needs on blocks of that size.
    pub(super) fn slot_bytes(&self, block_bytes: u32) -> u64 {
        let block = u64::from(block_bytes);
        let is_whole =
            |step: &Step| step.offset.is_multiple_of(block) && u64::from(step.bytes).is_multiple_of(block);
        match self.steps.iter().all(is_whole) {
            true => self.longest,
            // A request that begins and ends within blocks touches one more.
            false => self.longest.next_multiple_of(block) + block,
        }
    }
}

/// A request as a device gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) due_ns: u64,
    pub(super) kind: Kind,
    pub(super) lba: u64,
    pub(super) blocks: u32,
    pub(super) stream: u16,
}

/// Goes through a recording once.
#[derive(Debug)]
pub(super) struct Replay {
    recording: Arc<Recording>,
    /// Nanoseconds here of one of the recording.
    pace: Option<f64>,
    block_bytes: u64,
    /// The next step, and how often it was done.
    at: usize,
    times: u16,
}

impl Replay {
    pub(super) fn new(recording: &Arc<Recording>, speed: Speed, block_bytes: u32) -> Self {
        let (recording, pace) = (Arc::clone(recording), recording.pace(speed));
        Self { recording, pace, block_bytes: block_bytes.into(), at: 0, times: 0 }
    }

    /// When the next request is due: now, where there is no clock. `None` when all are done.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let step = self.recording.steps.get(self.at)?;
        Some(self.pace.map_or(0, |pace| (step.at_ns as f64 * pace) as u64))
    }

    /// The next request that reaches the device, when it is due.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<Due> {
        let due_ns = self.next_ns().filter(|&due_ns| due_ns <= now_ns)?;
        let due_ns = if self.pace.is_some() { due_ns } else { now_ns };
        let step = self.recording.steps[self.at];
        self.times += 1;
        if self.times >= step.times {
            (self.at, self.times) = (self.at + 1, 0);
        }
        let (offset, end) = (step.offset, step.offset + u64::from(step.bytes));
        // Reads and writes are of all blocks that they touch, deallocations of those that they cover.
        let (first, last) = match step.kind {
            Kind::Trim => (offset.div_ceil(self.block_bytes), end / self.block_bytes),
            _ => (offset / self.block_bytes, end.div_ceil(self.block_bytes)),
        };
        let blocks = last.saturating_sub(first) as u32;
        Some(Due { due_ns, kind: step.kind, lba: first, blocks, stream: step.stream })
    }

    /// Requests that were due by then and did not go.
    pub(super) fn overdue(&self, now_ns: u64) -> u64 {
        let Some(pace) = self.pace else { return 0 };
        let left = self.recording.steps.get(self.at..).unwrap_or_default();
        let due = left.iter().take_while(|step| (step.at_ns as f64 * pace) as u64 <= now_ns);
        due.map(|step| u64::from(step.times)).sum::<u64>().saturating_sub(self.times.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(text: &str) -> Result<Recording> {
        let (_, steps) = trace::parse::<Steps>("t", text.as_bytes(), None, &[])?;
        Recording::new(Path::new("t"), steps)
    }

    fn all(replay: &mut Replay, now_ns: u64) -> Vec<Due> {
        std::iter::from_fn(|| replay.take(now_ns)).collect()
    }

    #[test]
    fn requests_are_due_by_the_clock_of_the_trace_or_faster() {
        let text = "fio version 3 iolog\n5 a open\n10 a write 0 4096\n40 a read 4096 512\n30 a sync 0 0\n";
        let recording = Arc::new(recording(text).expect("a trace"));
        assert_eq!((recording.requests, recording.reach, recording.longest), (3, 4608, 4096));
        assert_eq!((recording.read_percent, recording.lasts_ns), (50, Some(30_000)));
        let mut replay = Replay::new(&recording, Speed::Times(1.0), 512);
        assert_eq!(replay.next_ns(), Some(0));
        let first = Due { due_ns: 0, kind: Kind::Write, lba: 0, blocks: 8, stream: 0 };
        assert_eq!(all(&mut replay, 29_999), [first]);
        assert_eq!((replay.next_ns(), replay.overdue(29_999), replay.overdue(30_000)), (Some(30_000), 0, 2));
        let rest = all(&mut replay, 40_000);
        assert_eq!(rest[0], Due { due_ns: 30_000, kind: Kind::Read, lba: 8, blocks: 1, stream: 0 });
        // What is earlier than what is before it does not overtake.
        assert_eq!((rest[1].kind, rest[1].due_ns, replay.next_ns()), (Kind::Flush, 30_000, None));
        let mut fast = Replay::new(&recording, Speed::Times(10.0), 512);
        assert_eq!((all(&mut fast, 2_999).len(), all(&mut fast, 3_000).len()), (1, 2));
        let mut max = Replay::new(&recording, Speed::Max, 512);
        assert_eq!(all(&mut max, 7).iter().map(|due| due.due_ns).collect::<Vec<_>>(), [7, 7, 7]);
        let rate = recording.rate(Speed::Times(2.0)).expect("a clock");
        assert!((rate - 2.0 / 15e-6).abs() < 1.0, "{rate}");
    }

    #[test]
    fn requests_are_of_whole_blocks_and_files_lie_one_behind_the_other() {
        let text = "fio version 2 iolog\nb write 512 512\nb wait 100 0\na read 4095 2\nb trim 1 8191\n";
        let recording = Arc::new(recording(text).expect("a trace"));
        let mut replay = Replay::new(&recording, Speed::Times(1.0), 4096);
        let taken = all(&mut replay, 100_000);
        let places: Vec<_> = taken.iter().map(|due| (due.kind, due.lba, due.blocks, due.due_ns)).collect();
        // The second file begins behind the 8 KiB of the first one.
        let expected = [(Kind::Write, 0, 1, 0), (Kind::Read, 2, 2, 100_000), (Kind::Trim, 1, 1, 100_000)];
        assert_eq!(places, expected);
        assert!(recording.trims && !recording.flushes);
    }

    #[test]
    fn a_trace_without_a_clock_goes_as_fast_as_it_can() {
        let recording = Arc::new(recording("w,0,4096\nr,0,4096\n").expect("a trace"));
        assert_eq!((recording.lasts_ns, recording.rate(Speed::Times(1.0))), (None, None));
        assert_eq!(all(&mut Replay::new(&recording, Speed::Times(1.0), 512), 3).len(), 2);
        let text = "op,offset,length,time_ms\nw,0,4096,5\nr,0,4096,7\n";
        assert_eq!(self::recording(text).expect("a trace").lasts_ns, Some(2_000_000));
    }

    #[test]
    fn what_is_no_traffic_is_refused() {
        let refused = |text: &str| recording(text).expect_err("refused").to_string();
        assert_eq!(refused("t,0,4096\n"), "--trace: t reads and writes nothing");
        assert!(
            refused("r,0,99999999999\n").starts_with("t:1: 99999999999 bytes are more than the 67108864")
        );
        assert!(refused("w,18446744073709551615,1\n").starts_with("t:1: it ends beyond"));
        for bad in ["0", "-1", "fast", "", "inf", "NaN"] {
            assert_eq!(bad.parse::<Speed>(), Err(SPEED_SYNTAX.to_owned()), "{bad}");
        }
    }
}

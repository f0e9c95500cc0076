//! The loop of one handle: as many requests as it is deep, or those that are due, and how long each takes.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use unvme::DmaBuf;
use unvme::handle::{Completed, Handle, Request};

use super::super::addresses::Addresses;
use super::super::counters::histogram;
use super::super::data;
use super::super::job::mix;
use super::super::rest::processor_ns;
use super::outcome::Figures;
use super::words::Words;
use crate::report::Distribution;

/// Longest wait: Ctrl-C is looked for in between.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// Longest wait for requests of a handle with a limit after the time is over.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// What is the same for all handles of a run.
pub(super) struct Turn<'a> {
    pub(super) warmup: Duration,
    pub(super) time: Duration,
    pub(super) start: Barrier,
    pub(super) stop: &'a AtomicBool,
}

/// A handle at work.
struct Loop<'a> {
    handle: &'a Handle,
    addresses: Addresses,
    blocks: u32,
    free: Vec<(usize, DmaBuf)>,
    /// When each of its requests was sent, or due.
    sent: Vec<Instant>,
    latencies: Histogram<u64>,
    done: Vec<Completed>,
    errors: u64,
    first_failure: Option<String>,
}

/// Keeps a handle busy for as long as the turn says.
pub(super) fn play(handle: &Handle, words: &Words, seed: u64, turn: &Turn<'_>) -> Result<Figures> {
    let made = Loop::new(handle, words, seed);
    // Whatever came of it: the others wait.
    turn.start.wait();
    let mut own = made?;
    let every = words.settings.rate.map(|rate| Duration::from_secs_f64(1.0 / rate as f64));
    let started = Instant::now();
    let (from, until) = (started + turn.warmup, started + turn.warmup + turn.time);
    let mut measured = None;
    let mut due = started;
    loop {
        let now = Instant::now();
        if now >= until || turn.stop.load(Ordering::Relaxed) {
            break;
        }
        if measured.is_none() && now >= from {
            own.latencies.reset();
            measured = Some((now, processor_ns(), handle.statistics().cache));
        }
        own.send(every, &mut due)?;
        if own.free.len() == own.sent.len() {
            // Nothing to do until the next one is due.
            std::thread::sleep(due.saturating_duration_since(Instant::now()).min(WAIT_MAX));
            continue;
        }
        let limit = every.map_or(WAIT_MAX, |_| due.saturating_duration_since(Instant::now()).min(WAIT_MAX));
        let has_room = every.is_some() && !own.free.is_empty();
        own.take(if has_room { limit } else { WAIT_MAX });
    }
    let end = Instant::now();
    let (from, processor, before) = measured.unwrap_or((started, 0, Default::default()));
    let seconds = (end - from).as_secs_f64().max(1e-9);
    let cpu_percent = (processor_ns().saturating_sub(processor)) as f64 / seconds / 1e7;
    let samples = own.latencies.len();
    let latencies = own.latencies.clone();
    // What a limit holds back for longer is not waited for: closing the handle ends it.
    let is_limited = handle.policies().limit.is_some();
    while handle.outstanding() > 0 && !(is_limited && end.elapsed() >= DRAIN_MAX) {
        own.take(WAIT_MAX);
    }
    let after = handle.statistics().cache;
    let asked = (after.hits + after.misses).saturating_sub(before.hits + before.misses);
    let hits = after.hits.saturating_sub(before.hits);
    let bytes = u64::from(own.blocks) * u64::from(handle.block_bytes());
    Ok(Figures {
        name: words.name.clone(),
        iops: samples as f64 / seconds,
        mib_per_second: samples as f64 * bytes as f64 / seconds / f64::from(1 << 20),
        latency_us_average: (samples > 0).then(|| latencies.mean() / 1e3),
        latency: Distribution::from_histogram_ns(&latencies),
        cpu_percent,
        hit_percent: (asked > 0).then(|| 100.0 * hits as f64 / asked as f64),
        errors: own.errors,
        first_failure: own.first_failure,
    })
}

impl<'a> Loop<'a> {
    fn new(handle: &'a Handle, words: &Words, seed: u64) -> Result<Self> {
        let size = handle.block_bytes();
        let blocks = (words.settings.io_size() / u64::from(size)) as u32;
        let depth = usize::from(words.settings.depth());
        let mut content = vec![0; blocks as usize * size as usize];
        // Anything but zeroes, which some devices do not store.
        data::fill(&mut content, size as usize, 0, 1);
        let buffer = |nth: usize| {
            let mut buf = handle.alloc(content.len())?;
            buf.write(0, &content);
            Ok((nth, buf))
        };
        Ok(Self {
            handle,
            addresses: Addresses::new(
                &mix(&words.settings, seed)?,
                0..handle.blocks() / u64::from(blocks),
                0,
                0,
            )?,
            blocks,
            free: (0..depth).map(buffer).collect::<Result<_>>()?,
            sent: vec![Instant::now(); depth],
            latencies: histogram()?,
            done: Vec::new(),
            errors: 0,
            first_failure: None,
        })
    }

    /// Sends what there is room for, and what is due.
    fn send(&mut self, every: Option<Duration>, due: &mut Instant) -> Result<()> {
        let mut now = Instant::now();
        while every.is_none() || *due <= now {
            let Some((nth, buf)) = self.free.pop() else { break };
            self.sent[nth] = match every {
                Some(every) => {
                    let then = *due;
                    *due += every;
                    then
                }
                None => now,
            };
            let lba = self.addresses.next_unit() * u64::from(self.blocks);
            let request = match self.addresses.next_is_read() {
                true => Request::read(lba, self.blocks),
                false => Request::write(lba, self.blocks),
            };
            self.handle
                .submit(request, Some(buf), nth as u64)
                .map_err(|refused| anyhow::Error::new(refused.error))?;
            now = Instant::now();
        }
        Ok(())
    }

    fn take(&mut self, limit: Duration) {
        let mut done = std::mem::take(&mut self.done);
        self.handle.wait(&mut done, limit);
        let now = Instant::now();
        for Completed { token, status, buf } in done.drain(..) {
            let nth = token as usize;
            let took = now.saturating_duration_since(self.sent[nth]).as_nanos() as u64;
            if status.is_success() {
                self.latencies.saturating_record(took.max(1));
            } else {
                self.errors += 1;
                self.first_failure.get_or_insert_with(|| anyhow!("{status}").to_string());
            }
            self.free.extend(buf.map(|buf| (nth, buf)));
        }
        self.done = done;
    }
}

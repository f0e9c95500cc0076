//! `fdp watch`: what a device has written, and how much it holds, over time.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use unvme::fdp::{Fdp, Statistics};
use unvme::{Block, Device};

use super::{Group, handles};
use crate::count::count;
use crate::numbers;
use crate::output::{Format, Output};
use crate::target::{DeviceArg, NamespaceArg};

/// How soon a signal is noticed.
const PAUSE: Duration = Duration::from_millis(50);

/// A line of `fdp watch -o json`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reading {
    /// Seconds since 1970.
    pub(super) time: f64,
    /// Bytes since FDP was enabled: those of hosts, those that went to the media, those that were erased.
    pub(super) host_bytes: u64,
    pub(super) media_bytes: u64,
    pub(super) erased_bytes: u64,
    /// Bytes of the namespace that hold data, and all of them.
    pub(super) used_bytes: u64,
    pub(super) capacity_bytes: u64,
    /// Placement handles whose reclaim unit is written in part.
    pub(super) handles_open: u64,
}

/// Arguments of `fdp watch`.
#[derive(Debug, Args)]
#[command(after_help = "\
It goes on until it is interrupted, or as often as --count says. A device that another process has
open is watched beside it. `unvme fdp plot` draws what -o json writes.

Example: unvme fdp watch 0000:02:00.0 --interval 0.1 --count 3")]
pub(crate) struct Watch {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    #[command(flatten)]
    group: Group,
    /// Seconds from one line to the next
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Lines; without it as long as nobody interrupts it
    #[arg(short, long, value_name = "LINES", value_parser = numbers::above_zero)]
    count: Option<u32>,
    #[command(flatten)]
    output: Output,
}

impl Watch {
    pub(super) fn run(self) -> Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&stop)).context("handle signals")?;
        }
        let device = self.device.open()?;
        let fdp = device.fdp_of(self.group.endgid)?;
        let mut block = handles::blocks(self.namespace, &device)?;
        let unit_bytes = unit_bytes(&fdp)?;
        let (mut pace, mut earlier) = (Pace::new(self.interval), None);
        for _ in 0..self.count.unwrap_or(u32::MAX) {
            if !pace.wait(&stop) {
                return Ok(());
            }
            let reading = read(&device, &fdp, &mut block, unit_bytes)?;
            if let Err(e) = self.print(&reading, earlier.as_ref()) {
                // Whoever reads has had enough.
                return if e.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(e.into()) };
            }
            earlier = Some(reading);
        }
        Ok(())
    }

    fn print(&self, reading: &Reading, earlier: Option<&Reading>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.output.output {
            Format::Json => {
                // In one piece: others may write to the same file.
                let mut line = serde_json::to_vec(reading)?;
                line.push(b'\n');
                out.write_all(&line)?;
            }
            Format::Text => {
                let since = earlier.and_then(|earlier| reading.amplification_since(earlier));
                let waf = since.map_or_else(|| "-".to_owned(), |waf| format!("{waf:.3}"));
                writeln!(
                    out,
                    "host {} bytes, media {} bytes, WAF since the last line {waf}, {:.1}% in use, {} open",
                    reading.host_bytes,
                    reading.media_bytes,
                    reading.used_share() * 100.0,
                    count(reading.handles_open, "handle"),
                )?;
            }
        }
        out.flush()
    }
}

/// When the next line is due.
#[derive(Debug)]
struct Pace {
    interval: Duration,
    due: Instant,
}

impl Pace {
    /// The first line is due at once.
    fn new(interval: Duration) -> Self {
        Self { interval, due: Instant::now() }
    }

    /// Waits until a line is due; `false` once it is to stop. A line that is late moves those behind it.
    fn wait(&mut self, stop: &AtomicBool) -> bool {
        loop {
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            let now = Instant::now();
            let left = self.due.saturating_duration_since(now);
            if left.is_zero() {
                self.due = now.max(self.due + self.interval);
                return true;
            }
            thread::sleep(left.min(PAUSE));
        }
    }
}

impl Reading {
    /// Bytes that the media were written with for each of the host's since `earlier`; `None` when the host
    /// has written none.
    pub(super) fn amplification_since(&self, earlier: &Self) -> Option<f64> {
        let of = |it: &Self| Statistics {
            host_bytes: it.host_bytes.into(),
            media_bytes: it.media_bytes.into(),
            erased_bytes: it.erased_bytes.into(),
        };
        of(self).write_amplification_since(&of(earlier))
    }

    /// The share of the namespace that holds data.
    pub(super) fn used_share(&self) -> f64 {
        self.used_bytes as f64 / self.capacity_bytes.max(1) as f64
    }
}

/// Bytes of a reclaim unit, as the group is configured.
fn unit_bytes(fdp: &Fdp<'_>) -> Result<u64> {
    let index = usize::from(fdp.state()?.configuration);
    Ok(fdp.configurations()?.get(index).map_or(0, |chosen| chosen.unit_bytes))
}

fn read(device: &Device, fdp: &Fdp<'_>, block: &mut Block, unit_bytes: u64) -> Result<Reading> {
    let written = fdp.statistics()?;
    let data = device.admin(|controller| controller.identify_namespace(block.nsid()))?;
    let handles = block.handles()?;
    let block_bytes = u64::from(block.block_bytes());
    let bytes = |count: u128| u64::try_from(count).unwrap_or(u64::MAX);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Reading {
        time: time.as_secs_f64(),
        host_bytes: bytes(written.host_bytes),
        media_bytes: bytes(written.media_bytes),
        erased_bytes: bytes(written.erased_bytes),
        used_bytes: data.nuse.saturating_mul(block_bytes),
        capacity_bytes: data.nsze.saturating_mul(block_bytes),
        handles_open: handles
            .iter()
            .filter(|handle| handle.blocks_left < unit_bytes / block_bytes.max(1))
            .count() as u64,
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("seconds from 0.01 to 86400 are expected".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_is_late_stops_and_does_not_catch_up() {
        let stop = AtomicBool::new(false);
        let mut pace = Pace::new(Duration::from_nanos(1));
        assert!(pace.wait(&stop), "the first line is due at once");
        thread::sleep(Duration::from_millis(2));
        let late = Instant::now();
        assert!(pace.wait(&stop));
        assert!(pace.due >= late, "lines that were missed are due still");
        stop.store(true, Ordering::Relaxed);
        assert!(!pace.wait(&stop), "it goes on though it is to stop");
    }

    #[test]
    fn a_watch_that_is_in_time_waits_for_its_line() {
        let stop = AtomicBool::new(false);
        let begun = Instant::now();
        let mut pace = Pace::new(Duration::from_millis(5));
        assert!((0..3).all(|_| pace.wait(&stop)));
        assert!(begun.elapsed() >= Duration::from_millis(10));
        pace.due = Instant::now() + Duration::from_secs(3600);
        stop.store(true, Ordering::Relaxed);
        assert!(!pace.wait(&stop));
    }
}

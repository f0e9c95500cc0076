//! One row: a device that is empty or filled at first, and one workload until so many pages are written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use unvme_flash::ftl::{Ftl, FtlConfig, FtlStats, Placement, StreamStats};
use unvme_flash::timing::TimingConfig;

use super::clock::VirtualClock;
use super::flash::Flash;
use super::idle::Idle;
use super::op::{Kind, Op};
use super::workload::{Source, Workload};
use crate::report::sim::{Handle, PLATEAU, Row, SAMPLES, Sample, TWELFTHS, WallClock, WriteLatency};

/// Operations that are drawn at a time: the generator's tables and the layer's take turns in the cache.
const BATCH: usize = 1024;
/// The map's entry is fetched so many operations before it is needed.
const AHEAD: usize = 16;

/// What a row is about.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) config: FtlConfig,
    pub(super) util: f64,
    pub(super) fdp: bool,
    /// Pages in use.
    pub(super) pages: u32,
    /// Pages that the host writes.
    pub(super) host_pages: u64,
    /// Every page in use is written once before.
    pub(super) prefill: bool,
    pub(super) timing: TimingConfig,
    /// Commands outstanding in virtual time.
    pub(super) depth: u16,
    /// When the host does nothing.
    pub(super) idle: Option<Idle>,
    /// Streams of the workload, by their names.
    pub(super) streams: Vec<String>,
}

impl Case {
    /// Simulates it. `progress` grows by the pages that the host has written.
    pub(super) fn run(&self, workload: &Workload, progress: &AtomicU64, clock: bool) -> Result<Row> {
        let started = Instant::now();
        let timing = self.timing.build(self.config.unit_pages).context("--timing")?;
        let source = workload.source(self.pages, self.config.seed)?;
        let virtual_clock = timing.map(|timing| VirtualClock::new(timing, self.depth.into())).transpose()?;
        let mut row = match virtual_clock {
            Some(clock) => self.simulate::<true>(source, Some(clock), progress)?,
            None => self.simulate::<false>(source, None, progress)?,
        };
        row.theory = workload.theory(&self.config, self.pages, self.fdp);
        row.published = workload.published(self.util, self.fdp);
        let seconds = started.elapsed().as_secs_f64();
        row.clock = clock.then(|| WallClock {
            seconds,
            media_pages_per_second: row.media_pages as f64 / seconds,
            host_pages_per_second: row.host_pages as f64 / seconds,
        });
        Ok(row)
    }

    fn simulate<const TIMED: bool>(
        &self,
        source: Source<'_>,
        clock: Option<VirtualClock>,
        progress: &AtomicU64,
    ) -> Result<Row> {
        let mut device = Device::<TIMED> {
            ftl: Ftl::new(self.config.clone())?,
            flash: Flash::new(self.config.units),
            clock,
            source,
            batch: Vec::with_capacity(2 * BATCH),
            at: 0,
            idle: self.idle,
            until_idle: self.idle.map_or(u64::MAX, |idle| idle.pages),
            fdp: self.fdp,
            groups: self.config.groups.into(),
        };
        let mut samples = Vec::with_capacity(SAMPLES);
        if self.prefill {
            device.fill(self.pages)?;
        }
        let begun = *device.ftl.stats();
        let by_handle: Vec<StreamStats> =
            (0..self.config.handles.len() as u16).map(|handle| device.ftl.handle_stats(handle)).collect();
        let mut before = begun;
        let mut stats = Vec::with_capacity(SAMPLES + 1);
        stats.push(before);
        for sample in 1..=SAMPLES as u64 {
            // 128 bits: a run may write more pages than 2^64 / 96.
            let end = (u128::from(self.host_pages) * u128::from(sample) / SAMPLES as u128) as u64;
            device.write(end - (before.host_pages - begun.host_pages), progress)?;
            device.check_sums()?;
            let after = *device.ftl.stats();
            samples.push(device.sample(&begun, &before, &after, &self.config));
            stats.push(after);
            before = after;
        }
        let amplification =
            |from: usize, to: usize| stats[to].write_amplification_since(&stats[from]).unwrap_or(1.0);
        let each = SAMPLES / TWELFTHS;
        Ok(Row {
            util: self.util,
            fdp: self.fdp,
            reserve_units: self.config.reserve_units(),
            overprovisioning_effective: self.config.effective_overprovisioning(),
            mapped: before.mapped_pages as f64 / f64::from(self.config.logical_pages),
            host_pages: before.host_pages - begun.host_pages,
            media_pages: before.media_pages() - begun.media_pages(),
            erased_units: before.erased_units - begun.erased_units,
            trimmed_pages: before.trimmed_pages - begun.trimmed_pages,
            twelfths: (0..TWELFTHS).map(|part| amplification(part * each, (part + 1) * each)).collect(),
            plateau: amplification(SAMPLES - PLATEAU, SAMPLES),
            theory: None,
            published: None,
            handles: self.handles(&device.ftl, &begun, &by_handle),
            latency: device.clock.as_ref().map(|clock| self.latency(clock)),
            clock: None,
            samples,
        })
    }

    /// What came through each handle that has a stream, and last what went through reclaim's own units: all
    /// sums are whole.
    fn handles(&self, ftl: &Ftl, begun: &FtlStats, by_handle: &[StreamStats]) -> Vec<Handle> {
        let is_shared = !self.fdp && self.streams.len() > 1;
        let named = self.config.handles.iter().zip(&self.streams);
        let mut handles: Vec<Handle> = (0..)
            .zip(named)
            .map(|(handle, (_, name))| {
                let (stats, begun) = (ftl.handle_stats(handle), &by_handle[usize::from(handle)]);
                Handle {
                    handle: Some(handle),
                    stream: if is_shared { "all streams".to_owned() } else { name.clone() },
                    host_pages: stats.host_pages - begun.host_pages,
                    moved_pages: stats.moved_pages - begun.moved_pages,
                    erased_units: stats.erased_units - begun.erased_units,
                }
            })
            .collect();
        let stats = ftl.stats();
        let moved: u64 = handles.iter().map(|handle| handle.moved_pages).sum();
        let erased: u64 = handles.iter().map(|handle| handle.erased_units).sum();
        handles.push(Handle {
            handle: None,
            stream: "moved before".to_owned(),
            host_pages: 0,
            moved_pages: stats.reclaim_pages - begun.reclaim_pages - moved,
            erased_units: stats.erased_units - begun.erased_units - erased,
        });
        handles
    }

    fn latency(&self, clock: &VirtualClock) -> WriteLatency {
        let at = |quantile: f64| clock.latencies.value_at_quantile(quantile) as f64 / 1e3;
        WriteLatency {
            depth: self.depth,
            mean_us: clock.latencies.mean() / 1e3,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            p99_99_us: at(0.9999),
            max_us: clock.latencies.max() as f64 / 1e3,
        }
    }
}

/// The layer, the flash below it and the host above it.
struct Device<'a, const TIMED: bool> {
    ftl: Ftl,
    flash: Flash<TIMED>,
    clock: Option<VirtualClock>,
    source: Source<'a>,
    batch: Vec<Op>,
    /// Next operation of the batch.
    at: usize,
    idle: Option<Idle>,
    /// Pages until the host's next pause.
    until_idle: u64,
    fdp: bool,
    groups: u32,
}

impl<const TIMED: bool> Device<'_, TIMED> {
    /// Writes each of the first pages once, in their order, in no time.
    fn fill(&mut self, pages: u32) -> Result<()> {
        for lpn in 0..pages {
            let handle = if self.fdp { self.source.stream_of(lpn) } else { 0 };
            let group = if self.groups == 1 { 0 } else { (lpn % self.groups) as u16 };
            self.ftl.write(lpn, Placement { handle, group }, &mut self.flash)?;
            self.flash.notes.clear();
        }
        Ok(())
    }

    /// Goes on until the host has written so many more pages.
    fn write(&mut self, pages: u64, progress: &AtomicU64) -> Result<()> {
        let mut left = pages;
        while left > 0 {
            if self.at == self.batch.len() {
                self.batch.clear();
                self.at = 0;
                self.source.fill(&mut self.batch, BATCH);
            }
            let written =
                self.run_batch(left.min(self.until_idle)).context("the simulated device stopped")?;
            progress.fetch_add(written, Ordering::Relaxed);
            left -= written;
            self.until_idle -= written;
            if let Some(idle) = self.idle.filter(|_| self.until_idle == 0) {
                idle.pass(&mut self.ftl, &mut self.flash, self.clock.as_mut());
                self.until_idle = idle.pages;
            }
        }
        Ok(())
    }

    /// Does what is in the batch, up to `pages` writes; returns how many it has done.
    fn run_batch(&mut self, pages: u64) -> Result<u64> {
        let mut left = pages;
        while let Some(&op) = self.batch.get(self.at) {
            if left == 0 {
                break;
            }
            self.at += 1;
            if let Some(ahead) = self.batch.get(self.at + AHEAD) {
                self.ftl.map().prefetch(ahead.lpn);
            }
            match op.kind {
                Kind::Write => {
                    let handle = if self.fdp { op.stream } else { 0 };
                    let group = if self.groups == 1 { 0 } else { (op.lpn % self.groups) as u16 };
                    self.ftl.write(op.lpn, Placement { handle, group }, &mut self.flash)?;
                    if TIMED && let Some(clock) = &mut self.clock {
                        clock.write(self.flash.notes.ops());
                        self.flash.notes.clear();
                    }
                    left -= 1;
                }
                Kind::Trim => {
                    self.ftl.trim(op.lpn);
                }
            }
        }
        Ok(pages - left)
    }

    /// What the flash has counted is what the layer has, and the layer's sums agree.
    fn check_sums(&self) -> Result<()> {
        let stats = self.ftl.stats();
        let counted = (self.flash.programs, self.flash.erases);
        ensure!(
            counted == (stats.media_pages(), stats.erased_units),
            "the flash has programmed {} pages and erased {} units, the layer counts {} and {}",
            counted.0,
            counted.1,
            stats.media_pages(),
            stats.erased_units
        );
        self.ftl.check_sums().context("the sums of the translation layer do not agree")
    }

    fn sample(&self, begun: &FtlStats, before: &FtlStats, after: &FtlStats, config: &FtlConfig) -> Sample {
        let physical = f64::from(config.units) * f64::from(config.unit_pages);
        Sample {
            device_writes: (after.host_pages - begun.host_pages) as f64 / physical,
            seconds: self.clock.as_ref().map(|clock| clock.now() as f64 / 1e9),
            write_amplification: after.write_amplification_since(before).unwrap_or(1.0),
            mapped: after.mapped_pages as f64 / f64::from(config.logical_pages),
            free: f64::from(self.flash.free_units) / f64::from(config.units),
        }
    }
}

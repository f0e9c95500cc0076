//! `blobfs_perf` of the guide: sessions that write and read a file each, one on each CPU.

use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use twox_hash::XxHash3_64;
use unvme_fs::{
    CacheOptions, Credentials, Errno, Error, FileSettings, FileSystem, MountOptions, NewFile, Vnode,
};

use super::blobfs::Bdev;
use super::blobfs_report::{self, About, Calls, PhaseOf, SessionOf};
use crate::columns::{Rule, write_table};
use crate::exit::{Failed, usage};
use crate::numbers;
use crate::output::Format;
use crate::perf;
use crate::report;

/// Bytes that carry a checksum of their own.
const UNIT: usize = 4096;

/// What a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Write the file from its beginning to its end
    Write,
    /// Read it so
    Read,
    /// Read blocks of it in any order, as many as it has
    Randread,
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Randread => "randread",
        }
    }
}

/// Arguments of `blobfs_perf`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The file system is one that `unvme mkfs` has made. Without -e files are made anew, and removed at
the end; with it they are called test_static_<core> and stay.

Example: unvme blobfs_perf -w write -w randread -s 16M -b 4096 -v")]
pub(crate) struct BlobfsPerf {
    /// What each session does; write and then read when left out
    #[arg(short, long, value_name = "WORKLOAD")]
    workload: Vec<Workload>,
    /// Have nothing in memory when reading begins
    #[arg(short = 'a', long)]
    disable_rdcache: bool,
    /// Read ahead by the threshold of -f; without it nothing is read ahead
    #[arg(short, long)]
    prefetch_ctl: bool,
    /// Bytes that are read in order before reading ahead begins: 4096 to 4194304
    #[arg(short = 'f', long, value_name = "BYTES", default_value = "131072", value_parser = numbers::bytes)]
    prefetch_threshold: u64,
    /// Keep pages when they were read
    #[arg(short = 't', long)]
    cache_retain: bool,
    /// Device: unvme_bdev<N>n1 is the N-th of the configuration
    #[arg(short = 'u', long, value_name = "BDEV", default_value = "unvme_bdev0n1")]
    bdev_name: String,
    /// Configuration
    #[arg(short, long, value_name = "FILE", default_value = "lba_sdk_config.json")]
    json_path: PathBuf,
    /// Compare checksums of what is read with those of what was written
    #[arg(short, long)]
    verify: bool,
    /// Past the page cache
    #[arg(short, long)]
    direct: bool,
    /// Use files of an earlier run
    #[arg(short = 'e', long)]
    use_existing_file: bool,
    /// Bytes of each call, in units of 4096
    #[arg(short, long, value_name = "BYTES", default_value = "262144", value_parser = numbers::bytes)]
    block_size: u64,
    /// Bytes of each file
    #[arg(short, long, value_name = "SIZE", default_value = "1G", value_parser = numbers::bytes)]
    size: u64,
    /// Sessions, each with a file and a thread of its own
    #[arg(short = 'm', long, value_name = "COUNT", default_value = "2", value_parser = numbers::above_zero)]
    numjobs: u32,
    /// How often each read workload is repeated
    #[arg(short = 'r', long, value_name = "COUNT", default_value = "1", value_parser = numbers::above_zero)]
    nr_read_repeat: u32,
    /// Write a report with plots to a file: one HTML page that needs nothing else
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Form of the result on standard output
    #[arg(long, visible_alias = "output-format", value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// What a session has done in one workload.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    session: u32,
    cpu: usize,
    file: String,
    workload: &'static str,
    bytes: u64,
    seconds: f64,
    mb_per_second: f64,
    miscompares: u64,
    #[serde(skip)]
    calls: Calls,
}

#[derive(Serialize)]
struct Total {
    workload: &'static str,
    bytes: u64,
    mb_per_second: f64,
    miscompares: u64,
}

#[derive(Serialize)]
struct Document {
    device: String,
    block_bytes: u64,
    sessions: Vec<Outcome>,
    totals: Vec<Total>,
}

fn session_of(outcome: &Outcome) -> SessionOf<'_> {
    SessionOf {
        file: &outcome.file,
        cpu: outcome.cpu as u32,
        miscompares: outcome.miscompares,
        calls: &outcome.calls,
    }
}

/// The data of a block of a file: each unit has its place, then anything, then a checksum of both.
fn fill(file: u64, offset: u64, data: &mut [u8]) {
    for (at, unit) in data.chunks_exact_mut(UNIT).enumerate() {
        let place = offset + (at * UNIT) as u64;
        let mut words = rand::rngs::SmallRng::seed_from_u64(file << 48 ^ place);
        words.fill(&mut unit[16..]);
        unit[..8].copy_from_slice(&place.to_le_bytes());
        let sum = XxHash3_64::oneshot_with_seed(file ^ place, &unit[16..]);
        unit[8..16].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Units that are not what [`fill`] has made for their place.
fn miscompares(file: u64, offset: u64, data: &[u8]) -> u64 {
    let is_wrong = |(at, unit): &(usize, &[u8])| {
        let place = offset + (at * UNIT) as u64;
        let sum = XxHash3_64::oneshot_with_seed(file ^ place, &unit[16..]);
        unit[..8] != place.to_le_bytes() || unit[8..16] != sum.to_le_bytes()
    };
    data.chunks_exact(UNIT).enumerate().filter(is_wrong).count() as u64
}

/// A session.
struct Session<'a> {
    args: &'a BlobfsPerf,
    fs: &'a FileSystem,
    index: u32,
    cpu: usize,
    name: String,
}

impl Session<'_> {
    fn settings(&self) -> FileSettings {
        let defaults = FileSettings::default();
        FileSettings {
            direct_read: self.args.direct,
            direct_write: self.args.direct,
            retain: self.args.cache_retain,
            read_ahead_threshold: self.args.prefetch_threshold,
            read_ahead: if self.args.prefetch_ctl { defaults.read_ahead } else { 0 },
        }
    }

    /// The file, full of data when it is to be read and is not there.
    fn open(&self, is_written: bool) -> Result<Vnode> {
        let who = Credentials::root();
        let root = self.fs.root()?;
        let file = match root.create(self.name.as_bytes(), &NewFile::regular(0o644), &who) {
            Err(Error::Posix(Errno::EXIST)) => root.lookup(self.name.as_bytes(), &who)?,
            other => other?,
        };
        file.set_settings(&self.settings())?;
        if !is_written && file.attributes().size < self.args.size {
            self.write(&file, &mut Calls::new()?)?;
        }
        Ok(file)
    }

    fn write(&self, file: &Vnode, calls: &mut Calls) -> Result<()> {
        let mut data = vec![0; self.args.block_size as usize];
        for offset in (0..self.args.size).step_by(data.len()) {
            let some = (self.args.size - offset).min(data.len() as u64) as usize;
            fill(self.index.into(), offset, &mut data[..some]);
            if calls.time(some, || file.write_at(offset, &data[..some]))? < some {
                return Err(anyhow!("{}: the device is full", self.name));
            }
        }
        calls.time_end(|| Ok(file.sync_data()?))
    }

    fn read(&self, file: &Vnode, is_random: bool, calls: &mut Calls) -> Result<u64> {
        let mut wrong = 0;
        let mut data = vec![0; self.args.block_size as usize];
        let blocks = self.args.size / self.args.block_size;
        let mut random = rand::rngs::SmallRng::seed_from_u64(self.index.into());
        for turn in 0..blocks {
            let block = if is_random { random.random_range(0..blocks) } else { turn };
            let offset = block * self.args.block_size;
            let bytes = calls.time(data.len(), || file.read_at(offset, &mut data))?;
            if bytes < data.len() {
                return Err(anyhow!("{}: it ends at {}", self.name, offset + bytes as u64));
            }
            if self.args.verify {
                wrong += miscompares(self.index.into(), offset, &data);
            }
        }
        Ok(wrong)
    }

    fn run(&self, workload: Workload) -> Result<Outcome> {
        perf::bind(self.cpu)?;
        let file = self.open(workload == Workload::Write)?;
        if self.args.disable_rdcache && workload != Workload::Write {
            file.drop_cache()?;
        }
        let repeats = if workload == Workload::Write { 1 } else { self.args.nr_read_repeat };
        let mut calls = Calls::new()?;
        let mut wrong = 0;
        for _ in 0..repeats {
            match workload {
                Workload::Write => self.write(&file, &mut calls)?,
                Workload::Read => wrong += self.read(&file, false, &mut calls)?,
                Workload::Randread => wrong += self.read(&file, true, &mut calls)?,
            }
        }
        let (seconds, bytes) = (calls.seconds(), calls.bytes);
        Ok(Outcome {
            session: self.index,
            cpu: self.cpu,
            file: self.name.clone(),
            workload: workload.name(),
            bytes,
            seconds,
            mb_per_second: bytes as f64 / 1e6 / seconds,
            miscompares: wrong,
            calls,
        })
    }
}

impl BlobfsPerf {
    fn check(&self) -> Result<()> {
        if self.block_size == 0 || !self.block_size.is_multiple_of(UNIT as u64) || self.block_size > 1 << 30 {
            return Err(usage(format!("-b {}: a multiple of 4096, up to 1G", self.block_size)));
        }
        if self.size < self.block_size {
            return Err(usage(format!("-s {}: less than a block of {}", self.size, self.block_size)));
        }
        if self.verify && self.workload.contains(&Workload::Write) && self.workload.len() == 1 {
            return Err(usage("-v: read or randread has something to verify, write has not"));
        }
        Ok(())
    }

    /// All sessions at the same time.
    fn phase(&self, fs: &FileSystem, cpus: &[usize], workload: Workload) -> Result<Vec<Outcome>> {
        thread::scope(|scope| {
            let sessions = (0..self.numjobs).map(|index| {
                let cpu = cpus[index as usize % cpus.len()];
                let kind = if self.use_existing_file { "test_static" } else { "test" };
                // Two sessions of one CPU have two files.
                let core =
                    if (index as usize) < cpus.len() { cpu.to_string() } else { format!("{cpu}.{index}") };
                let session = Session { args: self, fs, index, cpu, name: format!("{kind}_{core}") };
                scope.spawn(move || session.run(workload).with_context(|| format!("session {index}")))
            });
            let sessions: Vec<_> = sessions.collect();
            sessions
                .into_iter()
                .map(|session| session.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }

    pub(crate) fn run(self) -> Result<()> {
        self.check()?;
        let started = perf::now();
        if let Some(path) = &self.report {
            perf::touch(path)?;
        }
        let bdev = Bdev::find(&self.bdev_name, &self.json_path)?;
        let cpus = bdev.cpus();
        let (device, block) = bdev.open()?;
        let cache = CacheOptions { bytes: bdev.cache_bytes()? as usize, ..CacheOptions::default() };
        let options = MountOptions { cache, ..MountOptions::default() };
        let fs = FileSystem::mount(&block, device.name(), &options)?;
        let default = [Workload::Write, Workload::Read];
        let workloads = if self.workload.is_empty() { &default[..] } else { &self.workload };
        let mut sessions = Vec::new();
        let mut totals = Vec::new();
        for &workload in workloads {
            let outcomes = self.phase(&fs, &cpus, workload)?;
            let longest = outcomes.iter().map(|outcome| outcome.seconds).fold(0.0, f64::max);
            let bytes: u64 = outcomes.iter().map(|outcome| outcome.bytes).sum();
            totals.push(Total {
                workload: workload.name(),
                bytes,
                mb_per_second: bytes as f64 / 1e6 / longest,
                miscompares: outcomes.iter().map(|outcome| outcome.miscompares).sum(),
            });
            sessions.extend(outcomes);
        }
        if !self.use_existing_file {
            let root = fs.root()?;
            for outcome in &sessions {
                // Of two workloads on one file the first removes it.
                let _ = root.unlink(outcome.file.as_bytes(), &Credentials::root());
            }
        }
        fs.unmount()?;
        if let Some(path) = &self.report {
            let order: Vec<_> = workloads.iter().map(|workload| workload.name()).collect();
            let phases = order.iter().map(|name| PhaseOf {
                name,
                sessions: sessions
                    .iter()
                    .filter(|outcome| outcome.workload == *name)
                    .map(session_of)
                    .collect(),
            });
            let about = About {
                started,
                device: (&device, &block),
                block_bytes: self.block_size,
                is_verified: self.verify,
            };
            let run = blobfs_report::run(&about, &phases.collect::<Vec<_>>())?;
            perf::save(Some(path), |out| report::html::write(&run, out))?;
        }
        let document =
            Document { device: self.bdev_name.clone(), block_bytes: self.block_size, sessions, totals };
        self.show(&document)
    }

    fn show(&self, document: &Document) -> Result<()> {
        self.output.show(document, |out| {
            let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
            let mut rows: Vec<[String; 7]> = Vec::new();
            for outcome in &document.sessions {
                rows.push([
                    outcome.workload.to_owned(),
                    outcome.session.to_string(),
                    outcome.cpu.to_string(),
                    outcome.file.clone(),
                    megabytes(outcome.bytes),
                    format!("{:.1}", outcome.mb_per_second),
                    if self.verify { outcome.miscompares.to_string() } else { "-".to_owned() },
                ]);
            }
            for total in &document.totals {
                let rate = format!("{:.1}", total.mb_per_second);
                let wrong = if self.verify { total.miscompares.to_string() } else { "-".to_owned() };
                let [all, none] = ["all".to_owned(), String::new()];
                let bytes = megabytes(total.bytes);
                rows.push([total.workload.to_owned(), all, none.clone(), none, bytes, rate, wrong]);
            }
            let headers = ["Workload", "Session", "CPU", "File", "MB", "MB/s", "Miscompares"];
            write_table(out, &headers, Rule::Dashes, &rows)?;
            out.flush()
        })?;
        let wrong: u64 = document.totals.iter().map(|total| total.miscompares).sum();
        if wrong > 0 {
            return Err(Failed(format!(
                "{}: {wrong} units of 4096 bytes are not what was written",
                self.bdev_name
            ))
            .into());
        }
        Ok(())
    }
}

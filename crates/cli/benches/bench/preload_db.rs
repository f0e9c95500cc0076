//! Unmodified databases on our file system by the preload library, beside the same ones on ext4.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};

use crate::fs_load::Kernel;
use crate::pairs::{Effort, median};
use crate::preload::Place;
use crate::row::{Better, Row};

pub(crate) const SQLITE: &str = "preload.sqlite";
pub(crate) const YCSB_A: &str = "preload.ycsb_a";
pub(crate) const YCSB_C: &str = "preload.ycsb_c";
pub(crate) const WTPERF: &str = "preload.wtperf";

/// Why the rows cannot be measured here, beside what holds for all of the library's.
pub(crate) fn obstacle(id: &str) -> Option<String> {
    let needed = match id {
        SQLITE => speedtest(),
        YCSB_A | YCSB_C | WTPERF => wiredtiger("version"),
        _ => return None,
    };
    match needed {
        Ok(path) if path.exists() => None,
        Ok(path) => Some(format!("{}: build it with `make wiredtiger`", path.display())),
        Err(error) => Some(format!("{error:#}")),
    }
}

fn target() -> Result<&'static Path> {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("find the target folder")
}

fn speedtest() -> Result<PathBuf> {
    Ok(target()?.join("speedtest/speedtest1"))
}

fn wiredtiger(part: &str) -> Result<PathBuf> {
    Ok(target()?.join("wiredtiger").join(part))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Kernel,
}

/// Ours and ext4, with as many bytes.
struct Sides {
    place: Place,
    kernel: Kernel,
}

impl Sides {
    fn new(name: &str, bytes: u64) -> Result<Self> {
        Ok(Self { place: Place::new(name, bytes)?, kernel: Kernel::ext4(bytes)? })
    }

    /// A path of a side's.
    fn path(&self, side: Side, name: &str) -> PathBuf {
        match side {
            Side::Ours => self.place.at().join(name),
            Side::Kernel => self.kernel.path().join(name),
        }
    }

    /// Runs a program; returns what it prints.
    fn run(&self, side: Side, program: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
        let mut command = match side {
            Side::Ours => self.place.command(program),
            Side::Kernel => Command::new(program),
        };
        command.args(arguments).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("run {}", program.display()))?;
        let (text, says) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{command:?}: {}: {text}{says}", output.status);
        Ok(text.into_owned())
    }
}

/// Figures of both sides in turn, of which more is better; the first pair is not counted. Returns the median
/// of their ratios, and what each side has come to.
fn in_turn(
    effort: &Effort,
    count: usize,
    mut figure: impl FnMut(Side) -> Result<f64>,
) -> Result<(f64, f64, f64)> {
    let mut pairs = Vec::new();
    for turn in 0..=count {
        let pair = (figure(Side::Ours)?, figure(Side::Kernel)?);
        if turn > 0 || effort.smoke {
            pairs.push(pair);
        }
        if effort.smoke {
            break;
        }
    }
    Ok((
        median(pairs.iter().map(|(ours, theirs)| ours / theirs)),
        median(pairs.iter().map(|pair| pair.0)),
        median(pairs.iter().map(|pair| pair.1)),
    ))
}

const CONDITIONS: &str = "ext4 on a loop device over tmpfs, ours on a slot in tmpfs";

/// SQLite's own benchmark, with SQLite's own settings.
pub(crate) fn sqlite(effort: &Effort) -> Result<Row> {
    let sides = Sides::new("sqlite", 1 << 30)?;
    let size = if effort.smoke { "2" } else { "50" };
    let program = speedtest()?;
    let (value, ours, theirs) = in_turn(effort, 5, |side| {
        let base = sides.path(side, "speed.db");
        // By a process of its own: with a second one a server would have the files.
        sides.run(side, Path::new("rm"), &[OsStr::new("-f"), base.as_os_str()])?;
        let text = sides.run(side, &program, &[OsStr::new("--size"), OsStr::new(size), base.as_os_str()])?;
        let total = text.lines().find(|line| line.contains("TOTAL")).context("speedtest1 says no total")?;
        let word = total.split_whitespace().last().context("speedtest1 says no seconds")?;
        let seconds: f64 = word.trim_end_matches('s').parse().with_context(|| total.to_owned())?;
        Ok(1.0 / seconds)
    })?;
    let note = format!("{:.3} / {:.3} s of speedtest1 --size {size}; {CONDITIONS}", 1.0 / ours, 1.0 / theirs);
    Ok(Row { id: SQLITE, value, unit: "x", target: 1.3, better: Better::Higher, note })
}

/// Compiles our generator, with the WiredTiger that has been built.
fn generator() -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../share/unvme/ycsb/ycsb_wt.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ycsb_wt");
    let (include, lib) = (wiredtiger("include")?, wiredtiger("lib")?);
    let mut command = Command::new("cc");
    command.args(["-O2", "-std=gnu11", "-I"]).arg(include).arg(source).arg("-o").arg(&program);
    command.arg("-L").arg(&lib).arg(format!("-Wl,-rpath,{}", lib.display()));
    let output = command.args(["-lwiredtiger", "-lm", "-lpthread"]).output().context("run cc")?;
    ensure!(output.status.success(), "compile ycsb_wt.c: {}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

/// YCSB's workloads on databases that have been loaded once.
struct Ycsb {
    sides: Sides,
    program: PathBuf,
    results: tempfile::TempDir,
    records: u64,
}

impl Ycsb {
    fn loaded(effort: &Effort) -> Result<Self> {
        let records: u64 = if effort.smoke { 2000 } else { 300_000 };
        let sides = Sides::new("ycsb", records * 5000 + (512 << 20))?;
        let results = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).context("make a folder")?;
        let ycsb = Self { sides, program: generator()?, results, records };
        for side in [Side::Ours, Side::Kernel] {
            ycsb.rate(side, "1", &["load"])?;
        }
        Ok(ycsb)
    }

    /// Operations per second of the last of some phases.
    fn rate(&self, side: Side, seconds: &str, phases: &[&str]) -> Result<f64> {
        let json = self.results.path().join("ycsb.json");
        let (records, cache) = (self.records.to_string(), (self.records / 10_000).max(1).to_string());
        let options = ["-r", &records, "-c", &cache, "-s", seconds, "-k", "10", "-j"];
        let base = self.sides.path(side, "ycsb");
        let mut words: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
        words.extend([json.as_os_str(), base.as_os_str()]);
        words.extend(phases.iter().map(OsStr::new));
        self.sides.run(side, &self.program, &words)?;
        let text = std::fs::read_to_string(&json).context("read the results of ycsb_wt")?;
        let found: serde_json::Value = serde_json::from_str(&text).context("the results of ycsb_wt")?;
        let last = found["phases"].as_array().and_then(|phases| phases.last()).context("no phase")?;
        last["per_second"].as_f64().context("ycsb_wt says no rate")
    }

    fn row(&self, effort: &Effort, id: &'static str, workload: &str) -> Result<Row> {
        let seconds = if effort.smoke { "1" } else { "10" };
        // All that there is is read once before, on either side; and the phase is run twice, the second one
        // counts: by then both have taken the memory that they need.
        let figure = |side| self.rate(side, seconds, &["warm", workload, workload]);
        let (value, ours, theirs) = in_turn(effort, 5, figure)?;
        let note = format!(
            "{:.1} / {:.1} k/s, median of pairs; {} records of 1000 bytes, zipfian, WiredTiger's cache a tenth of them, \
             2 threads, {seconds} s after {seconds} s of the same; {CONDITIONS}",
            ours / 1e3,
            theirs / 1e3,
            self.records
        );
        Ok(Row { id, value, unit: "x", target: 1.11, better: Better::Higher, note })
    }
}

/// They are measured together, once.
fn ycsb(effort: &Effort, id: &str) -> Result<Row> {
    static ROWS: OnceLock<std::result::Result<[Row; 2], String>> = OnceLock::new();
    let measure = || {
        let ycsb = Ycsb::loaded(effort)?;
        // What only reads comes first.
        let only_reads = ycsb.row(effort, YCSB_C, "c")?;
        Ok([only_reads, ycsb.row(effort, YCSB_A, "a")?])
    };
    match ROWS.get_or_init(|| measure().map_err(|error: anyhow::Error| format!("{error:#}"))) {
        Ok(rows) => rows.iter().find(|row| row.id == id).cloned().context("no such row"),
        Err(error) => bail!("{error}"),
    }
}

pub(crate) fn ycsb_a(effort: &Effort) -> Result<Row> {
    ycsb(effort, YCSB_A)
}

pub(crate) fn ycsb_c(effort: &Effort) -> Result<Row> {
    ycsb(effort, YCSB_C)
}

/// The sum of what was read and updated each second: `Executed 123 read operations (52%) 61 ops/sec`.
fn wtperf_rate(text: &str) -> Result<f64> {
    let mut rate = 0.0;
    for line in text.lines().filter(|line| line.starts_with("Executed ") && line.ends_with(" ops/sec")) {
        let word = line.split_whitespace().nth_back(1).context("a line without a rate")?;
        rate += word.parse::<f64>().with_context(|| line.to_owned())?;
    }
    ensure!(rate > 0.0, "wtperf says no rate: {text}");
    Ok(rate)
}

/// WiredTiger's own benchmark with what its authors call a simulation of MongoDB, and as much of it as fits.
pub(crate) fn wtperf(effort: &Effort) -> Result<Row> {
    let (count, seconds) = if effort.smoke { (5000, 1) } else { (1_000_000, 10) };
    let sides = Sides::new("wtperf", count * 1200 + (1 << 30))?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).context("make a folder")?;
    let program = wiredtiger("bin/wtperf")?;
    // Two tables of records of 160 bytes.
    let cache = format!("cache_size={}M,checkpoint=(wait=10)", (count / 62_500).max(5));
    let run = |side, runner: &str, options: &str| {
        let runner = wiredtiger("runners")?.join(runner);
        let base = sides.path(side, "wtperf");
        let options =
            format!("icount={count},compression=none,report_interval=1,sample_interval=1,{options}");
        let words = [
            OsStr::new("-h"),
            base.as_os_str(),
            OsStr::new("-m"),
            folder.path().as_os_str(),
            OsStr::new("-O"),
        ];
        let more = [
            runner.as_os_str(),
            OsStr::new("-o"),
            OsStr::new(&options),
            OsStr::new("-C"),
            OsStr::new(&cache),
        ];
        sides.run(side, &program, &[&words[..], &more[..]].concat())
    };
    for side in [Side::Ours, Side::Kernel] {
        let made = sides.path(side, "wtperf");
        sides.run(side, Path::new("mkdir"), &[made])?;
        run(side, "500m-btree-populate.wtperf", "populate_threads=2")?;
    }
    let mix = format!(
        "run_time={seconds},warmup={seconds},threads=((count=2,reads=1),(count=2,updates=1)),close_conn=true"
    );
    let (value, ours, theirs) = in_turn(effort, 5, |side| {
        run(side, "500m-btree-50r50u.wtperf", &mix)?;
        wtperf_rate(&std::fs::read_to_string(folder.path().join("test.stat")).context("read test.stat")?)
    })?;
    let note = format!(
        "{:.1} / {:.1} k/s, median of pairs; 500m-btree-50r50u with {count} records of 160 bytes, two threads that \
         read and two that update, WiredTiger's cache a tenth of the data, {seconds} s \
         after {seconds} s of the same; {CONDITIONS}",
        ours / 1e3,
        theirs / 1e3
    );
    Ok(Row { id: WTPERF, value, unit: "x", target: 1.3, better: Better::Higher, note })
}

//! What is kept of runs of db_bench, side by side, and reading it: from folders with its outputs, or from the
//! JSON of an earlier report, which anybody may have written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::output::{Benchmark, Output};
use crate::exit::usage;
use crate::file;

/// Files beyond this are not db_bench's.
const BYTES_MAX: u64 = 64 << 20;
/// As many sides as there are colours that tell them apart.
const SIDES_MAX: usize = 8;
const PHASES_MAX: usize = 256;
const POINTS_MAX: usize = 10_000;
/// Figures beyond this are nobody's.
const FIGURE_MAX: f64 = 1e15;
/// Behind the name of an output, in place of .txt: what UNVME_ROCKSDB_STATS says of it.
const COUNTERS: &str = "stats.json";

/// What a report is drawn from.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Results {
    pub(super) tool_version: String,
    pub(super) sides: Vec<Side>,
}

/// What was measured on one file system.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Side {
    pub(super) name: String,
    pub(super) phases: Vec<Phase>,
}

/// One benchmark of one db_bench.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Phase {
    /// What it goes by: `randread`.
    pub(super) name: String,
    /// What db_bench calls it: `readrandom`.
    pub(super) benchmark: String,
    pub(super) command: Option<String>,
    /// What db_bench says of itself and of the keys.
    pub(super) about: BTreeMap<String, String>,
    pub(super) ops_per_second: f64,
    /// Of one thread, as db_bench has it.
    pub(super) micros_per_op: f64,
    pub(super) mb_per_second: Option<f64>,
    pub(super) seconds: Option<f64>,
    pub(super) operations: Option<u64>,
    /// Keys that were found, and those that were looked for.
    pub(super) found: Option<(u64, u64)>,
    pub(super) latency: Option<Latency>,
    pub(super) series: Vec<Interval>,
    /// RocksDB's statistics, of all benchmarks of that db_bench.
    pub(super) rocksdb: BTreeMap<String, u64>,
    /// The counters of unvme's file system, of all benchmarks of that db_bench.
    pub(super) file_system: BTreeMap<String, u64>,
}

/// Latency of the operations, as --histogram has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Latency {
    pub(super) count: u64,
    pub(super) average_us: f64,
    pub(super) min_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p99_9_us: f64,
    pub(super) p99_99_us: f64,
    pub(super) max_us: f64,
    /// Ascending.
    pub(super) buckets: Vec<Bucket>,
}

/// `count` operations took at most `to_us`, and more than the bucket before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Bucket {
    pub(super) to_us: f64,
    pub(super) count: u64,
}

/// The rate in the interval that ends at `second`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Interval {
    pub(super) second: f64,
    pub(super) ops_per_second: f64,
}

impl Results {
    /// Of folders, outputs and reports. Errors name the file, and what is wrong with it.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut results = Self { tool_version: env!("CARGO_PKG_VERSION").to_owned(), sides: Vec::new() };
        for path in paths {
            if path.extension().is_some_and(|extension| extension == "json") {
                let earlier = Self::parse(&text_of(path)?).map_err(|error| {
                    let path = path.display();
                    usage(format!("{path}: expected what `unvme rocksdb-plot --json` writes: {error}"))
                })?;
                if paths.len() == 1 {
                    // Drawn again, it is what that version has measured.
                    results.tool_version = earlier.tool_version;
                }
                results.sides.extend(earlier.sides);
            } else {
                results.sides.push(Side::read(path)?);
            }
        }
        if results.sides.len() > SIDES_MAX {
            let sides = results.sides.len();
            return Err(usage(format!("{sides} results; expected at most {SIDES_MAX} beside each other")));
        }
        results.tell_apart();
        Ok(results)
    }

    /// Sides of one name get numbers: folders of two runs may be called the same.
    fn tell_apart(&mut self) {
        let mut names: Vec<String> = Vec::new();
        for side in &mut self.sides {
            let own = side.name.clone();
            let mut number = 1;
            while names.contains(&side.name) {
                number += 1;
                side.name = format!("{own} {number}");
            }
            names.push(side.name.clone());
        }
    }

    /// Of JSON. `Err` has the words for what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let results: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if results.sides.is_empty() {
            return Err("there are no sides".to_owned());
        }
        results.sides.iter().try_for_each(Side::check)?;
        Ok(results)
    }

    /// The names of all phases, in the order in which they were run.
    pub(super) fn phases(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for phase in self.sides.iter().flat_map(|side| &side.phases) {
            if !names.contains(&phase.name.as_str()) {
                names.push(&phase.name);
            }
        }
        names
    }

    /// Each side that has the phase, by its index.
    pub(super) fn of<'a>(&'a self, name: &str) -> Vec<(usize, &'a Side, &'a Phase)> {
        let own = |(index, side): (usize, &'a Side)| Some((index, side, side.phase(name)?));
        self.sides.iter().enumerate().filter_map(own).collect()
    }
}

impl Side {
    /// A folder of outputs, by name, or one output.
    fn read(path: &Path) -> Result<Self> {
        let name = |path: &Path| path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut phases = Vec::new();
        for file in outputs_of(path)? {
            let own = phases_of(&file, path.is_dir().then(|| name(&file)).as_deref())?;
            phases.extend(own);
        }
        let side = Self { name: name(&fs::canonicalize(path).unwrap_or(path.to_owned())), phases };
        side.check().map_err(|wrong| usage(format!("{}: {wrong}", path.display())))?;
        Ok(side)
    }

    pub(super) fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    fn check(&self) -> Result<(), String> {
        if self.phases.is_empty() || self.phases.len() > PHASES_MAX {
            let phases = self.phases.len();
            return Err(format!("{}: {phases} phases; expected 1 to {PHASES_MAX}", self.name));
        }
        for (index, phase) in self.phases.iter().enumerate() {
            phase.check().map_err(|wrong| format!("{}, {}: {wrong}", self.name, phase.name))?;
            if self.phases.iter().take(index).any(|other| other.name == phase.name) {
                return Err(format!("{}, {}: is there twice", self.name, phase.name));
            }
        }
        Ok(())
    }
}

impl Phase {
    fn check(&self) -> Result<(), String> {
        let mut figures = vec![
            ("ops_per_second", self.ops_per_second),
            ("micros_per_op", self.micros_per_op),
            ("mb_per_second", self.mb_per_second.unwrap_or_default()),
            ("seconds", self.seconds.unwrap_or_default()),
        ];
        figures.extend(self.latency.iter().flat_map(Latency::figures));
        for at in &self.series {
            figures.extend([("second", at.second), ("ops_per_second", at.ops_per_second)]);
        }
        let is_figure = |figure: f64| (0.0..=FIGURE_MAX).contains(&figure);
        if let Some((name, figure)) = figures.iter().find(|(_, figure)| !is_figure(*figure)) {
            return Err(format!("{name} is {figure:e}; expected 0 to {FIGURE_MAX:e}"));
        }
        let buckets = self.latency.as_ref().map_or(0, |latency| latency.buckets.len());
        let most = buckets.max(self.series.len());
        if most > POINTS_MAX {
            return Err(format!("{most} points of a curve; expected at most {POINTS_MAX}"));
        }
        Ok(())
    }
}

impl Latency {
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let mut figures = vec![
            ("average_us", self.average_us),
            ("min_us", self.min_us),
            ("p50_us", self.p50_us),
            ("p99_us", self.p99_us),
            ("p99_9_us", self.p99_9_us),
            ("p99_99_us", self.p99_99_us),
            ("max_us", self.max_us),
        ];
        figures.extend(self.buckets.iter().map(|bucket| ("to_us", bucket.to_us)));
        figures
    }
}

fn text_of(path: &Path) -> Result<String> {
    let bytes = file::read(path, BYTES_MAX, "the output of db_bench")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn outputs_of(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in path.read_dir().with_context(|| format!("read {}", path.display()))? {
        let file = entry.with_context(|| format!("read {}", path.display()))?.path();
        if file.extension().is_some_and(|extension| extension == "txt") {
            files.push(file);
        }
    }
    if files.is_empty() {
        let path = path.display();
        return Err(usage(format!("{path}: no *.txt in it; expected outputs of db_bench")));
    }
    files.sort();
    Ok(files)
}

/// The benchmarks of an output, which go by its name where that is one of several. A number before it is
/// where it comes among them: `03-randread.txt`.
fn phases_of(path: &Path, stem: Option<&str>) -> Result<Vec<Phase>> {
    let text = text_of(path)?;
    let output = Output::parse(&text);
    if output.benchmarks.is_empty() {
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let last: String = last.chars().take(200).collect();
        let path = path.display();
        return Err(usage(format!(
            "{path}: no benchmark of db_bench has ended in it; its last line is \"{last}\""
        )));
    }
    if output.benchmarks.len() > PHASES_MAX {
        let (path, benchmarks) = (path.display(), output.benchmarks.len());
        return Err(usage(format!("{path}: {benchmarks} benchmarks; expected at most {PHASES_MAX}")));
    }
    let digits = |at: char| at.is_ascii_digit();
    let stem = stem.map(|stem| stem.trim_start_matches(digits).trim_start_matches(['-', '_']));
    let names: Vec<String> = output.benchmarks.iter().map(|own| own.name.clone()).collect();
    let name_of = |index: usize, own: &str| match (stem.filter(|stem| !stem.is_empty()), names.as_slice()) {
        (Some(stem), [_]) => stem.to_owned(),
        (stem, _) if names.iter().filter(|name| *name == own).count() > 1 => {
            format!("{} {}", stem.unwrap_or(own), index + 1)
        }
        (Some(stem), _) => format!("{stem} {own}"),
        (None, _) => own.to_owned(),
    };
    let file_system = counters(&path.with_extension(COUNTERS))?;
    let phase = |(index, own): (usize, Benchmark)| Phase {
        name: name_of(index, &own.name),
        benchmark: own.name,
        command: output.command.clone(),
        about: output.about.clone(),
        ops_per_second: own.ops_per_second,
        micros_per_op: own.micros_per_op,
        mb_per_second: own.mb_per_second,
        seconds: own.seconds,
        operations: own.operations,
        found: own.found,
        latency: own.latency,
        series: own
            .series
            .into_iter()
            .map(|(second, ops_per_second)| Interval { second, ops_per_second })
            .collect(),
        rocksdb: output.tickers.clone(),
        file_system: file_system.clone(),
    };
    Ok(output.benchmarks.into_iter().enumerate().map(phase).collect())
}

/// What the file system has counted, of all mounts of that db_bench; nothing where there is no such file.
fn counters(path: &Path) -> Result<BTreeMap<String, u64>> {
    let mut sums = BTreeMap::new();
    if !path.exists() {
        return Ok(sums);
    }
    for (index, line) in text_of(path)?.lines().enumerate() {
        let counted: BTreeMap<String, serde_json::Value> = serde_json::from_str(line).map_err(|error| {
            let (path, line) = (path.display(), index + 1);
            usage(format!("{path}: line {line}: expected what UNVME_ROCKSDB_STATS writes: {error}"))
        })?;
        for (name, value) in counted {
            let Some(value) = value.as_u64() else { continue };
            let sum: &mut u64 = sums.entry(name).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    Ok(sums)
}

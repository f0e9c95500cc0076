//! `unvme perf compare`: runs that were saved as JSON, side by side.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use super::run::{save, touch};
use crate::exit::{Failed, usage};
use crate::output::Output;
use crate::report::Run;
use crate::report::compare::{self, Comparison, SIDES_MAX};

/// Arguments of `perf compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Points are matched by what they measure: workload, size, threads, depth, and blocks or pairs. A
difference is shown where the Mann-Whitney U test says so (p < 0.05), which takes at least four
repetitions on each side: measure with --repeat.

Examples:
  unvme perf -r 0000:02:00.0 -w randread --repeat 10 --json before.json
  unvme perf compare before.json after.json --report comparison.html
  unvme perf compare before.json after.json --fail-if-worse 5
  unvme perf compare runs/ --output json")]
pub(crate) struct Compare {
    /// Files that --json of `unvme perf` has written, or folders: all *.json in them, by name. The first
    /// file is what the others are compared with
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
    /// Write a page with all runs in each plot, too: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// End with exit code 1 when a figure is shown to be worse than that of the first file by more than
    /// this
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_if_worse: Option<f64>,
}

impl Compare {
    pub(super) fn run(&self) -> Result<()> {
        let files = self.files()?;
        let runs: Result<Vec<(Option<String>, Run)>> =
            files.iter().map(|file| Ok((Some(file.display().to_string()), read(file)?))).collect();
        let comparison = Comparison::new(runs?).map_err(usage)?;
        if let Some(path) = &self.report {
            touch(path)?;
        }
        let saved = save(self.report.as_deref(), |out| compare::page::write(&comparison, out));
        self.output.output.show(&comparison, |out| compare::text::write(&comparison, out))?;
        saved?;
        let worse = self.fail_if_worse.map(|percent| comparison.worse_by_more_than(percent));
        match worse.filter(|worse| !worse.is_empty()) {
            Some(worse) => Err(Failed(worse.join("; ")).into()),
            None => Ok(()),
        }
    }

    /// The files, those of folders included.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in &self.files {
            if path.is_dir() {
                files.extend(folder(path)?);
            } else {
                files.push(path.clone());
            }
        }
        match files.len() {
            2..=SIDES_MAX => Ok(files),
            1 => Err(usage(format!("{}: one file; expected at least two to compare", files[0].display()))),
            many => {
                Err(usage(format!("{many} files; expected at most {SIDES_MAX}, which have a letter each")))
            }
        }
    }
}

fn folder(path: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in path.read_dir().with_context(|| format!("read {}", path.display()))? {
        let file = entry.with_context(|| format!("read {}", path.display()))?.path();
        if file.extension().is_some_and(|extension| extension == "json") {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(usage(format!(
            "{}: no *.json in it; expected those of unvme perf --json",
            path.display()
        )));
    }
    files.sort();
    Ok(files)
}

/// Bytes of a run at most.
const BYTES_MAX: u64 = 4 << 30;

fn read(path: &Path) -> Result<Run> {
    let file = std::fs::File::open(path).with_context(|| format!("read {}", path.display()))?;
    let input = BufReader::new(file.take(BYTES_MAX));
    serde_json::from_reader(input).map_err(|error| match error.io_error_kind() {
        Some(_) => anyhow::Error::new(error).context(format!("read {}", path.display())),
        None => {
            usage(format!("{}: expected JSON as --json of unvme perf writes it: {error}", path.display()))
        }
    })
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=1e6).contains(&percent) => Ok(percent),
        _ => Err("expected a percentage from 0, such as 5 or 0.5".to_owned()),
    }
}

//! `unvme fio-plot`: what fio measured, as a report of `unvme perf`.

mod output;
mod points;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use self::output::Output;
use crate::exit::usage;
use crate::file;
use crate::output::Output as Form;
use crate::perf;
use crate::report::{self, DeviceIdentity, Machine, Run, Workload};

/// Bytes of a file at most: json+ has all buckets of all jobs.
const BYTES_MAX: u64 = 1 << 30;

/// Arguments of `fio-plot`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each group of jobs that ran at the same time is a point. Points that differ in depth and number of
jobs are drawn as a curve, points that differ in size and mix as a map, all others by name. With
json+ in place of json whole distributions are drawn.

`unvme perf compare` takes what --json writes, beside what `unvme perf --json` has written.

Examples:
  fio --output-format=json+ --output=latency.json latency.fio
  unvme fio-plot latency.json
  unvme fio-plot results/ --report page.html --json run.json
  unvme perf compare perf.json run.json --report both.html")]
pub(crate) struct FioPlot {
    /// Files that fio has written with --output-format=json or json+, or folders: all *.json in them, by
    /// name
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: Form,
    /// The page: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE", default_value = "fio-report.html")]
    report: PathBuf,
    /// Write all figures as JSON as `unvme perf --json` does, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl FioPlot {
    pub(crate) fn run(&self) -> Result<()> {
        let mut outputs = Vec::new();
        for path in &self.files {
            for file in files_of(path)? {
                outputs.push((file.display().to_string(), read(&file)?));
            }
        }
        let run = run_of(&outputs).map_err(usage)?;
        for path in [Some(&self.report), self.json.as_ref()].into_iter().flatten() {
            perf::touch(path)?;
        }
        perf::save(Some(&self.report), |out| report::html::write(&run, out))?;
        perf::save(self.json.as_deref(), |out| report::write_json(&run, out))?;
        self.output.output.show(&run, |mut out| {
            if run.points.len() > 1 {
                report::table::write_sweep(&run, &mut out)?;
            } else {
                for point in &run.points {
                    report::table::write(point, report::table::Percentiles::Line, &mut out)?;
                }
            }
            if let Some(failures) = report::failures(&run) {
                writeln!(out, "{failures}")?;
            }
            writeln!(out, "\nReport: {}", self.report.display())
        })
    }
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in path.read_dir().with_context(|| format!("read {}", path.display()))? {
        let file = entry.with_context(|| format!("read {}", path.display()))?.path();
        if file.extension().is_some_and(|extension| extension == "json") {
            files.push(file);
        }
    }
    if files.is_empty() {
        let path = path.display();
        return Err(usage(format!("{path}: no *.json in it; expected those of fio --output-format=json")));
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<Output> {
    let bytes = file::read(path, BYTES_MAX, "JSON as fio --output-format=json writes it")?;
    let text = String::from_utf8_lossy(&bytes);
    Output::parse(&text).map_err(|error| {
        usage(format!("{}: expected JSON as fio --output-format=json writes it: {error}", path.display()))
    })
}

/// The report's data. Errors: there is no job in any of them.
fn run_of(outputs: &[(String, Output)]) -> Result<Run, String> {
    let points = points::points(outputs);
    let (Some(workload), Some((_, first))) = (points::first_workload(outputs), outputs.first()) else {
        let names: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
        return Err(format!("{}: no job has ended; expected at least one", names.join(", ")));
    };
    let files = outputs.iter().map(|(name, _)| name.clone());
    Ok(Run {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: perf::rfc3339(first.timestamp as i64),
        command_line: ["unvme", "fio-plot"].map(str::to_owned).into_iter().chain(files).collect(),
        // Fio does not say where it ran.
        machine: Machine {
            cpu_model: String::new(),
            cores: 0,
            memory_bytes: 0,
            kernel: String::new(),
            hugepages_bytes: 0,
        },
        devices: devices(outputs),
        workload: Workload { ..workload },
        points,
        harness: None,
        unjudged_reads: None,
        interrupted: false,
    })
}

/// What fio says of devices: their names, and how it reached them.
fn devices(outputs: &[(String, Output)]) -> Vec<DeviceIdentity> {
    let mut devices: Vec<DeviceIdentity> = Vec::new();
    for (_, output) in outputs {
        for job in &output.jobs {
            let name =
                output.option(job, "filename").unwrap_or_else(|| job.jobname.clone()).replace("\\:", ":");
            let engine = output.option(job, "ioengine").unwrap_or_else(|| "psync".to_owned());
            let transport = format!("{}, {}", output.version, engine.rsplit('/').next().unwrap_or(&engine));
            if !devices.iter().any(|device| device.name == name && device.transport == transport) {
                devices.push(DeviceIdentity {
                    name,
                    transport,
                    model: String::new(),
                    serial: String::new(),
                    firmware: String::new(),
                    nsid: 0,
                    block_bytes: 0,
                    capacity_bytes: 0,
                });
            }
        }
    }
    devices
}

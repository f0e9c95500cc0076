//! `unvme advise`: where threads and queues go on this machine, measured.
//!
//! | module | concept |
//! |---|---|
//! | `gather` | devices that are opened, and measurements of them |
//! | `outcome` | the whole result |
//! | `text`, `page` | the result for the terminal, and as a page |

mod gather;
mod outcome;
mod page;
mod text;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use unvme_advise::{Goal, Sweep};
use unvme_setup::System;

use crate::completion;
use crate::exit::{Failed, Interrupted, usage};
use crate::numbers;
use crate::output::{Format, Output};
use crate::perf::{save, touch};
use outcome::Outcome;

/// Seconds of a measurement and before it, where nothing is said.
const TIME_MAX: f64 = 3600.0;

/// What the placement is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum For {
    /// Most commands in a second with the fewest cores
    Throughput,
    /// The shortest tail of the latency
    Latency,
}

/// The guide's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Named {
    /// Figure 10: one and two devices, on their own node and cores, and not
    Affinity,
    /// Figure 13: submission and completion behind one L3, and behind two
    L3,
    /// Figure 31: one to four devices on a core, by rate
    Devices,
    /// Figure 32: one to eight devices on a core, by the tail of the latency at depth 8
    Qos,
}

/// Says where threads and queues go on this machine: measures, and prints masks for the SDK.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Without a DEVICE a virtual SSD in memory is measured, which is a device of this process: the
thread that polls it does its work, too. One in memory stands for as many as are measured
together; of others, give several. Commands are reads, so that a device that is mounted or used by
others keeps its data. A device that does not open is skipped with the reason.

Nothing is advised when the machine was not quiet: exit code 1.

Examples:
  unvme advise
  unvme advise 0000:0b:00.0 0000:0c:00.0 --report unvme-advise.html
  unvme advise 0000:0b:00.0 --config sdk.json && unvme kv_perf -j sdk.json
  unvme advise mem:block:256M --sweep devices
  unvme advise --no-measure mem:kv:1G --for latency  # by the rules of the guide alone
  unvme advise --sysfs /tmp/other-machine/sys 0000:3b:00.0")]
pub(crate) struct Advise {
    /// Devices: 0000:0b:00.0, kernel:/dev/ng0n1, mem:block:SIZE or vfio-user:SOCKET [default:
    /// mem:block:256M; with --no-measure the NVMe drives of the machine]
    #[arg(value_name = "DEVICE", add = ArgValueCompleter::new(completion::devices))]
    devices: Vec<String>,
    /// Namespace of each device [default: the first one with blocks, else the first one with pairs]
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    namespace_id: Option<u32>,
    /// What the placement is for
    #[arg(long = "for", value_name = "GOAL", default_value = "throughput")]
    goal: For,
    /// Advise threads that poll for completions themselves, and no completion threads (cq_thread_mask 0): for
    /// programs that call kv_process_completion, and queues of the SDK's own
    #[arg(long)]
    poll: bool,
    /// Advise synchronous queues (sync_mask), without completion threads: for programs whose calls wait, such
    /// as kv_store and sdk_perf
    #[arg(long, conflicts_with = "poll")]
    sync: bool,
    /// Print one of the guide's tables instead of advice
    #[arg(long, value_name = "NAME")]
    sweep: Option<Named>,
    /// Commands that each queue keeps outstanding
    #[arg(short = 'q', long, value_name = "COUNT", default_value = "128", value_parser = clap::value_parser!(u16).range(1..=4095))]
    depth: u16,
    /// Bytes of each command, or of each value
    #[arg(long, value_name = "SIZE", default_value = "4096", value_parser = numbers::bytes)]
    io_size: u64,
    /// Seconds of each measurement
    #[arg(short, long, value_name = "SECONDS", default_value = "0.1", value_parser = seconds)]
    time: f64,
    /// Measurements of each placement, all in turns
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Measure nothing: advise by topology, the rules and the figures of the guide
    #[arg(long, conflicts_with = "sweep")]
    no_measure: bool,
    /// Advise for another machine by a copy of its /sys, or of its root directory; nothing is measured
    #[arg(long, value_name = "DIR", conflicts_with = "sweep", value_hint = ValueHint::DirPath)]
    sysfs: Option<PathBuf>,
    /// Write the configuration for the SDK to a file
    #[arg(long, value_name = "FILE", conflicts_with = "sweep", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    /// Write the result as JSON to a file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Write a report with plots to a file: one HTML page that needs nothing else
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds, such as 0.1".to_owned())?;
    match seconds > 0.0 && seconds <= TIME_MAX {
        true => Ok(seconds),
        false => Err(format!("expected more than 0 and at most {TIME_MAX} seconds")),
    }
}

impl Advise {
    fn goal(&self) -> Goal {
        match self.goal {
            For::Throughput => Goal::Throughput,
            For::Latency => Goal::Latency,
        }
    }

    /// True where no completion threads are advised.
    fn polls(&self) -> bool {
        self.poll || self.sync
    }

    fn sweep(&self) -> Sweep {
        match self.sweep {
            None => Sweep::Advice,
            Some(Named::Affinity) => Sweep::Affinity,
            Some(Named::L3) => Sweep::L3,
            Some(Named::Devices) => Sweep::Devices,
            Some(Named::Qos) => Sweep::Qos,
        }
    }

    /// False where nothing is measured.
    fn measures(&self) -> bool {
        !self.no_measure && self.sysfs.is_none()
    }

    /// The trees with the drives: of this machine, or of the copy.
    fn system(&self) -> Result<System> {
        let Some(dir) = &self.sysfs else { return Ok(System::from_environment()) };
        if dir.join("devices/system/cpu").is_dir() {
            return Ok(System::at_sys(dir));
        }
        ensure!(
            dir.join("sys/devices/system/cpu").is_dir(),
            usage(format!(
                "--sysfs {}: neither devices/system/cpu nor sys/devices/system/cpu is in it; expected a copy of a \
                 machine's /sys, or of its root directory",
                dir.display()
            ))
        );
        Ok(System::at(dir))
    }

    /// Advises.
    pub(crate) fn run(&self) -> Result<()> {
        for path in [&self.json, &self.report].into_iter().flatten() {
            touch(path)?;
        }
        // A configuration is written where there is one; that it can be is known before the measurements.
        if let Some(path) = &self.config {
            let is_new = !path.exists();
            touch(path)?;
            if is_new {
                std::fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
            }
        }
        let outcome = gather::gather(self)?;
        let configuration = self.save_configuration(&outcome);
        let saved = [
            save(self.json.as_deref(), |out| json(&outcome, out)),
            save(self.report.as_deref(), |out| page::write(&outcome, out)),
        ];
        let mut out = BufWriter::new(std::io::stdout());
        match self.output.output {
            Format::Text => {
                text::write(&outcome, &mut out)?;
                let is_written = matches!(configuration, Ok(true));
                let files = [
                    ("Configuration", &self.config, is_written),
                    ("JSON", &self.json, saved[0].is_ok()),
                    ("Report", &self.report, saved[1].is_ok()),
                ];
                for (what, path, is_written) in files {
                    if let (Some(path), true) = (path, is_written) {
                        writeln!(out, "{what}: {}", path.display())?;
                    }
                }
            }
            Format::Json => json(&outcome, &mut out)?,
        }
        out.flush()?;
        drop(out);
        if outcome.interrupted {
            let message = "interrupted: nothing is advised from a part of the measurements";
            return Err(Interrupted(message.to_owned()).into());
        }
        if let Some(noise) = &outcome.noise {
            let what = if self.sweep.is_some() { "no table" } else { "no advice" };
            let message = format!(
                "{what} from this run: {}; end what else runs, or try --repeat {} -t {}",
                noise.reason,
                (self.repeat * 2).min(1000),
                (self.time * 5.0).min(TIME_MAX)
            );
            return Err(Failed(message).into());
        }
        configuration?;
        saved.into_iter().collect()
    }

    /// Writes the configuration, if there is one to write; returns whether it did.
    fn save_configuration(&self, outcome: &Outcome) -> Result<bool> {
        let Some(path) = &self.config else { return Ok(false) };
        match outcome.configurations() {
            [] if outcome.advice.is_none() => Ok(false),
            [only] => write_text(path, &only.text).map(|()| true),
            [] => Err(usage(format!(
                "--config {}: no device can be in it: {}",
                path.display(),
                outcome.notes_line()
            ))),
            _ => Err(usage(format!(
                "--config {}: `ssd_type` is of a whole file, and some devices have blocks and some have pairs; name \
                 one kind at a time",
                path.display()
            ))),
        }
    }
}

fn write_text(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn json(outcome: &Outcome, out: &mut impl Write) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, outcome)?;
    out.write_all(b"\n")
}

//! What can be typed.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::compare::Compare;
use super::handles;
use super::matrix::Axis;
use super::run;
use super::settings::Settings;
use super::sheet::Sheet;
use crate::numbers;
use crate::target::Force;

/// Longest measurement of a point, in seconds.
const SECONDS_MAX: f64 = 7.0 * 86_400.0;
/// Shortest interval of figures over time.
const INTERVAL_MIN: f64 = 0.001;

/// Arguments of `perf`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
A latency is the time from a command's submission to the poll that saw it complete; with --rate,
from when the command was due. Both are printed then: what a user waits, and what the device takes.

Before the first point a device in memory is filled with data: blocks that were never written
would be read without being there. The same is done before writes to any virtual device, not
before reads of one that has a slot, whose data is kept unless --prefill is given, nor when all of a
slot is in use already. With media=null there is nothing to fill.

Ctrl-C ends the measurement and prints what there is.

Examples:
  unvme perf -r mem:block:1G -w randread -q 32 -t 10
  unvme perf -r mem:block:1G --matrix threads=1,2 depth=1..256 -t 1 --report unvme-report.html
  unvme perf -r mem:block:1G -w randrw --matrix size=4K..64K mix=100,70,0 --report unvme-report.html
  unvme perf -r mem:block:1G -r mem:block:1G,ftl=page --compare -t 0.2
  unvme perf -r mem:block:1G --sheet quick -t 1
  unvme perf --sheet steady-state --explain
  unvme perf -r mem:kv:1G -w ycsb-a --keys 100000
  unvme perf -r 0000:02:00.0 -w randrw -M 70 -c 0x3 --verify
  unvme perf -r mem:block:1G,fdp -w randwrite --fdp-pid 0-3 --fdp-select random
  unvme perf -r mem:block:4G,ftl=page,timing=tlc,media=tags -w randwrite -t 600 --virtual-time
  unvme perf -r mem:block:1G --handle rw=randread,sched=share:8 --handle rw=write,sched=share:1
  unvme perf -r 0000:02:00.0 -w randwrite --rate 50000 --arrivals poisson --output json")]
pub(crate) struct Perf {
    #[command(subcommand)]
    action: Option<Box<Action>>,
    #[command(flatten)]
    pub(super) settings: Settings,
    /// Measure pairs, also where a device has blocks: -w retrieve, if it says nothing else
    #[arg(long)]
    pub(super) kv: bool,
    /// Run by the clock of a modelled device: --time 3600 is an hour of it, as fast as this machine works
    /// it out. For virtual SSDs of this process with a timing, on one thread
    #[arg(long)]
    pub(super) virtual_time: bool,
    /// Measure each point so many times, the points in turns, each time from the next seed: tables, JSON
    /// and report have the median and the spread of every figure
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) repeat: Option<u32>,
    /// Sweep over any of the options that say what is measured: SETTING=LIST, such as depth=1..256 (1, 2, 4
    /// and so on up to 256), size=4K,128K, workload=randread,randwrite, rate=10000,20000 or, values with
    /// commas apart by semicolons, placement=0;0-3. Several are combined, the last one the fastest
    #[arg(long, value_name = "SETTING=LIST", num_args = 1..)]
    pub(super) matrix: Vec<Axis>,
    /// Compare the values of the first setting of --matrix with each other, or else the devices of -r:
    /// measured in turns, ten times each if --repeat does not say how often
    #[arg(long)]
    pub(super) compare: bool,
    /// Do what a file says (TOML): phases one after the other, each with settings, a matrix, and jobs that
    /// run at the same time
    #[arg(long, value_name = "FILE", conflicts_with = "sheet", value_hint = ValueHint::FilePath)]
    pub(super) job: Option<PathBuf>,
    /// Measure what people ask of a drive first
    #[arg(long, value_name = "NAME")]
    pub(super) sheet: Option<Sheet>,
    /// Say what --sheet measures and how, and print it as a file for --job, instead of measuring
    #[arg(long, requires = "sheet")]
    pub(super) explain: bool,
    /// Measure handles of one device side by side (may be given several times): how a handle works and what
    /// it does, such as name=db,rw=randread,bs=4K,depth=1,sched=share:8,complete=hybrid. Each is measured
    /// alone, then all at once, first come first served, and with their policies. Words: name, rw, bs, depth,
    /// mix, dist, rate, offset, range; cache, sched, limit, complete, stream, queue. --offset and --range
    /// hold for those that do not say them
    #[arg(long = "handle", value_name = "WORDS", conflicts_with_all = ["matrix", "compare", "job", "sheet", "verify", "kv", "virtual_time", "repeat", "faults", "latency", "verbose", "status_interval", "interval"])]
    pub(super) handles: Vec<String>,
    /// Bytes that handles may have in flight while several are awake; each command adds 16 KiB to its own
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes, requires = "handles")]
    pub(super) handle_window: Option<u64>,
    /// Seconds of an interval of rate, latency and write amplification over time [default: a twentieth of
    /// --time]
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub(super) interval: Option<f64>,
    /// Print a line on standard error every so many seconds, terminal or not: rate and latency since the last
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub(super) status_interval: Option<f64>,
    /// Write blocks that can be recognized, and compare what is read with what was written. Reads of
    /// blocks that were not are counted, and not judged
    #[arg(long)]
    pub(super) verify: bool,
    /// Print the whole list of percentiles of the latency, of reads and writes apart; the main ones always
    /// are
    #[arg(short = 'L', long)]
    pub(super) latency: bool,
    /// Seed of addresses; the same seed asks for the same blocks in the same order
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = numbers::u64)]
    pub(super) seed: u64,
    /// Rules for faults, as `unvme fault add --file` reads them, from the first point to the end
    #[arg(long, value_name = "FILE")]
    pub(super) faults: Option<PathBuf>,
    /// Write all of the range before the first point, even where data would be lost by it
    #[arg(long)]
    pub(super) prefill: bool,
    /// Write nothing before the first point; with --verify, what an earlier run has written with it is
    /// checked, too
    #[arg(long, conflicts_with = "prefill")]
    pub(super) no_prefill: bool,
    #[command(flatten)]
    pub(super) force: Force,
    /// Form of the result on standard output; -o is the size of commands
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(super) output: Output,
    /// Write the result as JSON to a file, too
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write the result as CSV to a file, too
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write a report with plots to a file: one HTML page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Print the table of every point of a sweep, not only of the best
    #[arg(short, long)]
    pub(super) verbose: bool,
}

impl Perf {
    pub(crate) fn run(mut self) -> Result<()> {
        match self.action.take() {
            Some(action) => match *action {
                Action::Compare(compare) => compare.run(),
            },
            None if !self.handles.is_empty() => handles::run(&self, &*run::stop_on_signals()?),
            None => run::run(self),
        }
    }
}

/// What is done with runs that there are, instead of measuring.
#[derive(Debug, Subcommand)]
enum Action {
    /// Say whether runs that --json has saved differ
    Compare(Compare),
}

/// Form of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Tables for people.
    Text,
    /// Everything, for programs.
    Json,
    /// A line per device and core of each point, for a spreadsheet.
    Csv,
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds, at most a week of them, such as 0.5 or 60".to_owned()),
    }
}

pub(super) fn duration(text: &str) -> Result<f64, String> {
    match seconds(text)? {
        seconds if seconds >= 0.001 => Ok(seconds),
        _ => Err("expected at least a millisecond, 0.001".to_owned()),
    }
}

pub(super) fn interval(text: &str) -> Result<f64, String> {
    match seconds(text)? {
        seconds if seconds >= INTERVAL_MIN => Ok(seconds),
        _ => Err("expected at least 0.001, a millisecond".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_be_fractions_and_nothing_else() {
        assert_eq!(seconds("0.25"), Ok(0.25));
        assert_eq!(seconds("0"), Ok(0.0));
        assert_eq!(duration("60"), Ok(60.0));
        for text in ["", "-1", "nan", "inf", "1e9", "1s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert!(duration("0").is_err());
    }
}

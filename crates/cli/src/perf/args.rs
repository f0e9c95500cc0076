//! What can be typed.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;

use super::addresses::Distribution;
use super::compare::Compare;
use super::cores::CoreList;
use super::matrix::Axis;
use super::pace::Arrivals;
use super::placement::{PlacementList, Select};
use super::run;
use crate::completion;
use crate::numbers;
use crate::target::Force;

/// Longest measurement of a point, in seconds.
const SECONDS_MAX: f64 = 7.0 * 86_400.0;

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
  unvme perf -r 0000:02:00.0 -w randrw -M 70 -c 0x3 --verify
  unvme perf -r mem:block:1G,fdp -w randwrite --fdp-pid 0-3 --fdp-select random
  unvme perf -r mem:block:4G,ftl=page,timing=tlc,media=tags -w randwrite -t 600 --virtual-time
  unvme perf -r 0000:02:00.0 -w randwrite --rate 50000 --arrivals poisson --output json")]
pub(crate) struct Perf {
    #[command(subcommand)]
    action: Option<Box<Action>>,
    /// Device: 0000:02:00.0, kernel:/dev/ng0n1, mem:block:SIZE or vfio-user:SOCKET; several are driven at
    /// once
    #[arg(short = 'r', long = "device", value_name = "DEVICE", required = true, add = ArgValueCompleter::new(completion::devices))]
    pub(super) devices: Vec<String>,
    /// Namespace; all that are attached when left out
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    pub(super) namespace_id: Option<u32>,
    /// Commands each thread keeps outstanding on each namespace; those beyond what a queue of the device
    /// takes wait in this program
    #[arg(short = 'q', long, value_name = "COUNT", default_value = "32", value_parser = clap::value_parser!(u16).range(1..=4095))]
    pub(super) depth: u16,
    /// Bytes of each command, such as 4096 or 128K; whole blocks. One beyond what the device takes is split,
    /// and counts once
    #[arg(short = 'o', long, value_name = "SIZE", default_value = "4096", value_parser = numbers::bytes)]
    pub(super) io_size: u64,
    /// What to do: sequential or random, reads, writes or a mix
    #[arg(short = 'w', long = "workload", value_name = "PATTERN", default_value = "randread")]
    pub(super) pattern: Pattern,
    /// Share of reads in rw and randrw, in percent [default: 50]
    #[arg(short = 'M', long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) read_percent: Option<u8>,
    /// Seconds each point is measured for; fractions are fine
    #[arg(short = 't', long, value_name = "SECONDS", default_value = "5", value_parser = duration)]
    pub(super) time: f64,
    /// Seconds each point runs before it is measured
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = seconds)]
    pub(super) warmup: f64,
    /// Run by the clock of a modelled device: --time 3600 is an hour of it, as fast as this machine works
    /// it out. For virtual SSDs of this process with a timing, on one thread
    #[arg(long)]
    pub(super) virtual_time: bool,
    /// Measure each point so many times, the points in turns, each time from the next seed: tables, JSON
    /// and report have the median and the spread of every figure
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) repeat: Option<u32>,
    /// Cores to run a thread on each: a mask such as 0x3, or a list such as 0-1,3 [default: the first one]
    #[arg(short = 'c', long, value_name = "CORES")]
    pub(super) cores: Option<CoreList>,
    /// Sweep: threads=LIST and depth=LIST; 1..256 in a list means 1, 2, 4 and so on up to 256
    #[arg(long, value_name = "AXIS=LIST", num_args = 1..)]
    pub(super) matrix: Vec<Axis>,
    /// Write blocks that can be recognized, and compare what is read with what was written. Reads of
    /// blocks that were not are counted, and not judged
    #[arg(long)]
    pub(super) verify: bool,
    /// Commands that become due per second, all threads together. One that is late is made up for; latency
    /// is counted from when it was due
    #[arg(long, value_name = "IOPS", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(super) rate: Option<u64>,
    /// How the commands of --rate are spread over time
    #[arg(long, value_name = "HOW", default_value = "fixed", requires = "rate")]
    pub(super) arrivals: Arrivals,
    /// How random addresses are drawn: uniform or zipf:THETA
    #[arg(long, value_name = "DISTRIBUTION", default_value = "uniform")]
    pub(super) dist: Distribution,
    /// Print the whole list of percentiles of the latency, of reads and writes apart; the main ones always
    /// are
    #[arg(short = 'L', long)]
    pub(super) latency: bool,
    /// Seed of addresses; the same seed asks for the same blocks in the same order
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = numbers::u64)]
    pub(super) seed: u64,
    /// Placement identifiers that writes carry, such as 0,2 or 0-3: Flexible Data Placement (fio's plids)
    #[arg(long, value_name = "LIST")]
    pub(super) fdp_pid: Option<PlacementList>,
    /// How a write gets one of --fdp-pid (fio's plid_select)
    #[arg(long, value_name = "HOW", default_value = "round-robin", requires = "fdp_pid")]
    pub(super) fdp_select: Select,
    /// Rules for faults, as `unvme fault add --file` reads them, from the first point to the end
    #[arg(long, value_name = "FILE")]
    pub(super) faults: Option<PathBuf>,
    /// Use the first SIZE bytes of each namespace only
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes)]
    pub(super) range: Option<u64>,
    /// Write all of the range before the first point, even where data would be lost by it
    #[arg(long)]
    pub(super) prefill: bool,
    /// Write nothing before the first point; with --verify, what an earlier run has written with it is
    /// checked, too
    #[arg(long, conflicts_with = "prefill")]
    pub(super) no_prefill: bool,
    #[command(flatten)]
    pub(super) force: Force,
    /// Form of the result on standard output
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
    pub(crate) fn run(self) -> Result<()> {
        match self.action.as_deref() {
            Some(Action::Compare(compare)) => compare.run(),
            None => run::run(&self),
        }
    }
}

/// What is done with runs that there are, instead of measuring.
#[derive(Debug, Subcommand)]
enum Action {
    /// Say whether runs that --json has saved differ
    Compare(Compare),
}

/// Which commands, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Pattern {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Sequential, reads and writes
    Rw,
    /// Random, reads and writes
    Randrw,
}

impl Pattern {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Randread => "randread",
            Self::Randwrite => "randwrite",
            Self::Rw => "rw",
            Self::Randrw => "randrw",
        }
    }

    pub(super) fn is_random(self) -> bool {
        matches!(self, Self::Randread | Self::Randwrite | Self::Randrw)
    }

    pub(super) fn is_mixed(self) -> bool {
        matches!(self, Self::Rw | Self::Randrw)
    }

    /// True when it can write, whatever the share of reads.
    pub(super) fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Randread)
    }
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

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds, at most a week of them, such as 0.5 or 60".to_owned()),
    }
}

fn duration(text: &str) -> Result<f64, String> {
    match seconds(text)? {
        seconds if seconds >= 0.001 => Ok(seconds),
        _ => Err("expected at least a millisecond, 0.001".to_owned()),
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

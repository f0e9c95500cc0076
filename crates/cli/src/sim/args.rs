//! What can be typed.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use unvme::registry::{Overprovisioning, VictimPolicy};
use unvme_flash::timing::TimingSpec;

use super::adversarial::Overwrites;
use super::idle::Idle;
use super::rocksdb;
use super::run;
use super::share::{Share, Theta};
use super::writers::Typed;
use crate::numbers;
use crate::timing::timing;
use crate::trace::Format;

/// Most device writes of a run.
const WRITES_MAX: f64 = 1e6;

const EXAMPLES: &str = "\
A page is 4 KiB. Each run writes --writes times the flash's capacity and is divided into twelfths;
the plateau is the last quarter. WAF is pages programmed for each page that the host has written.
The same options and the same seed print the same bytes, whatever the number of threads.

Examples:
  the two curves of CacheLib with and without FDP, as a report with plots
    unvme sim --recipe cachelib --util 80 --html cachelib.html
  from half full to full, in one table
    unvme sim --recipe cachelib --util 50,70,80,90,100 --fdp both
  RocksDB's files in four levels; files much smaller than a reclaim unit, deleted in any order
    unvme sim --recipe rocksdb
    unvme sim --recipe rocksdb --file-victim random
  streams that FDP cannot tell apart
    unvme sim --recipe adversarial --isolation persistently
  uniform random writes, beside what theory says, with a tenth of the requests trims
    unvme sim --workload uniform --op 7% --trim 10%
  a tenth of the data that gets nine tenths of the writes, with and without a handle of its own
    unvme sim --workload hotcold=10/90
  a log beside it, which writes 16 pages at a time, through a handle of its own
    unvme sim -w hotcold=10/90,handle=0 -w sequential,space=20,share=50,burst=16,handle=1
  fio's random writes without norandommap: each block once per pass
    unvme sim --workload random-map --op 7%
  a trace, ten times the flash's capacity of it, in virtual time of TLC flash
    unvme sim --trace ssd.iolog --size 64G --writes 10 --timing tlc -o json";

/// Arguments of `sim`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Sim {
    /// Who writes: uniform, zipf=THETA, sequential, random-map, or hotcold=DATA/WRITES in percent, hot and
    /// cold with a handle each. Given several times: writers side by side, each with ,space= and ,share= of
    /// pages and writes in percent, ,handle= and ,burst= pages at a time [default: uniform]
    #[arg(short, long, value_name = "LAW", conflicts_with_all = ["recipe", "trace"])]
    pub(super) workload: Vec<Typed>,
    /// Several streams, as an application writes them
    #[arg(long, value_name = "NAME", conflicts_with = "trace")]
    pub(super) recipe: Option<Recipe>,
    /// Requests from a file, or - for standard input: fio iolog, text of blkparse, MSR Cambridge, Alibaba,
    /// Tencent, CacheLib or CSV, as they are or packed by gzip or zstd; once, or looped up to --writes
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Form of the trace [default: what its first line looks like]
    #[arg(long, value_name = "FORMAT", requires = "trace")]
    pub(super) trace_format: Option<Format>,
    /// One of the trace's devices, volumes or files, as it names them; may be given several times [default:
    /// all, one behind the other]
    #[arg(long, value_name = "NAME", requires = "trace")]
    pub(super) trace_device: Vec<String>,
    /// Share of requests that deallocate a page that holds data instead of writing one, below 50%
    #[arg(long, value_name = "PERCENT")]
    pub(super) trim: Option<Share>,
    /// Share of the exported pages in use; the rest is never written. A list makes a row of each [default:
    /// 100, rocksdb 80]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',')]
    pub(super) util: Vec<Share>,
    /// Write every page in use once before the first interval, or not [default: true with --util, hotcold=
    /// and several --workload]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) prefill: Option<bool>,
    /// Give each stream a reclaim unit handle, none of them, or run both ways [default: both for several
    /// streams, else off]
    #[arg(long, value_name = "WHICH")]
    pub(super) fdp: Option<Fdp>,
    /// Written by the host in each run, in multiples of --size [default: 20; a trace, once through]
    #[arg(long, value_name = "TIMES", value_parser = writes)]
    pub(super) writes: Option<f64>,
    /// The host does nothing for so long whenever it has written so much, such as 10ms/64M: reclaim makes
    /// room meanwhile, as it does in the device. Without --timing it has all the time it wants
    #[arg(long, value_name = "TIME/SIZE")]
    pub(super) idle: Option<Idle>,
    /// Seed of everything random
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = numbers::u64)]
    pub(super) seed: u64,

    /// Flash, what hosts do not see of it included [default: 8G, rocksdb 32G]
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes, help_heading = "Device")]
    pub(super) size: Option<u64>,
    /// Reclaim unit [default: a 1024th of the size]
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes, help_heading = "Device")]
    pub(super) ru_size: Option<u64>,
    /// Overprovisioning: flash beyond what hosts see, as a share of what they see
    #[arg(long, value_name = "PERCENT", default_value = "18%", help_heading = "Device")]
    pub(super) op: Overprovisioning,
    /// Reclaim groups; page n goes to group n modulo their number
    #[arg(long, value_name = "COUNT", default_value = "1", help_heading = "Device",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(unvme::registry::GROUPS_MAX)))]
    pub(super) groups: u16,
    /// Reclaim unit handles with FDP on [default: one for each stream]
    #[arg(long, value_name = "COUNT", help_heading = "Device",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(unvme::registry::HANDLES_MAX)))]
    pub(super) handles: Option<u16>,
    /// Whether reclaim may put data of several handles into one unit
    #[arg(long, value_name = "KIND", default_value = "initially", help_heading = "Device")]
    pub(super) isolation: IsolationKind,
    /// Which unit is reclaimed: greedy, cost-benefit, fifo or d-choice=N; fifo passes over units in which
    /// everything is valid, which strict FIFO would move: where a half of the data gets 1 % of the writes
    /// that is 2 % better at --op 7%, where it gets 0.1 % it is 31 % better
    #[arg(long, value_name = "POLICY", default_value = "greedy", value_parser = policy, help_heading = "Device")]
    pub(super) policy: VictimPolicy,
    /// Run in virtual time on flash of this kind: dram, optane, tlc or qlc, with parameters such as
    /// tlc,dies=64,prog=700us, or @FILE with a line for each; slower
    #[arg(long, value_name = "TIMING", default_value = "none", value_parser = timing, help_heading = "Device")]
    pub(super) timing: TimingSpec,
    /// Commands that the host keeps outstanding in virtual time, a page each
    #[arg(long, value_name = "COUNT", default_value = "32", help_heading = "Device",
        value_parser = clap::value_parser!(u16).range(1..=4095))]
    pub(super) depth: u16,

    #[command(flatten)]
    pub(super) recipes: RecipeOptions,

    /// Form of the result on standard output
    #[arg(short, long, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub(super) output: Output,
    /// Write the result as JSON to a file, too
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) json: Option<PathBuf>,
    /// Write a line per interval and row to a file, too
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) csv: Option<PathBuf>,
    /// Write a report with plots to a file: one HTML page that needs nothing else
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,
    /// Write the plots as SVG files to a folder that exists
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    pub(super) pictures: Option<PathBuf>,
    /// Add what the simulation took: from then on, output differs from run to run
    #[arg(long, help_heading = "Output")]
    pub(super) clock: bool,
    /// Rows simulated at a time [default: one for each core]
    #[arg(long, value_name = "COUNT", help_heading = "Output", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,
}

/// Parameters of the recipes; what is left out has the value of the recipe.
#[derive(Debug, Args)]
pub(super) struct RecipeOptions {
    /// cachelib: share of the cache that holds small objects [default: 4%]
    #[arg(long, value_name = "PERCENT", help_heading = "Recipes")]
    pub(super) soc: Option<Share>,
    /// cachelib: share of the written pages that are small objects [default: 80%]
    #[arg(long, value_name = "PERCENT", help_heading = "Recipes")]
    pub(super) soc_traffic: Option<Share>,
    /// cachelib: exponent of the small objects' popularity, 0 for all alike [default: 0.9]
    #[arg(long, value_name = "THETA", help_heading = "Recipes")]
    pub(super) theta: Option<Theta>,
    /// cachelib: small objects that hash to each bucket on average [default: 1]
    #[arg(long, value_name = "COUNT", help_heading = "Recipes", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) soc_objects: Option<u32>,
    /// cachelib, rocksdb: pages that a sequential writer writes at a time [default: 8, rocksdb 16]
    #[arg(long, value_name = "PAGES", help_heading = "Recipes", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(super) burst: Option<u32>,
    /// rocksdb: share of the data in each level [default: 2,8,25,65]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', help_heading = "Recipes")]
    pub(super) levels: Vec<Share>,
    /// rocksdb: share of the traffic to each level [default: 30,25,25,20]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', help_heading = "Recipes")]
    pub(super) level_traffic: Vec<Share>,
    /// rocksdb: size of a file [default: 4M]
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes, help_heading = "Recipes")]
    pub(super) file_size: Option<u64>,
    /// rocksdb: which file of a level is deleted [default: fifo]
    #[arg(long, value_name = "WHICH", help_heading = "Recipes")]
    pub(super) file_victim: Option<rocksdb::Victim>,
    /// adversarial: share of the data that the random stream writes [default: 10%]
    #[arg(long, value_name = "PERCENT", help_heading = "Recipes")]
    pub(super) random_space: Option<Share>,
    /// adversarial: shares of the traffic: sequential, random, overwrites [default: 40,30,30]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', help_heading = "Recipes")]
    pub(super) stream_traffic: Vec<Share>,
    /// adversarial: which pages are overwritten: zoned, uniform or zipf=THETA [default: zoned]
    #[arg(long, value_name = "PATTERN", help_heading = "Recipes")]
    pub(super) overwrites: Option<Overwrites>,
}

impl Sim {
    /// Whether rows begin with a full device.
    pub(super) fn prefills(&self) -> bool {
        // Cold data would take most of a run to be written once.
        let has_cold = self.workload.iter().any(|typed| typed.plain().is_none());
        self.prefill.unwrap_or(!self.util.is_empty() || has_cold || self.workload.len() > 1)
    }

    pub(crate) fn run(self) -> Result<()> {
        run::run(&self)
    }
}

/// Traffic of several streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Recipe {
    /// A cache: small objects rewritten at random, large ones in a ring
    #[value(name = "cachelib")]
    CacheLib,
    /// A log-structured merge tree: files of four levels
    #[value(name = "rocksdb")]
    RocksDb,
    /// Streams that overwrite each other
    Adversarial,
}

impl Recipe {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CacheLib => "cachelib",
            Self::RocksDb => "rocksdb",
            Self::Adversarial => "adversarial",
        }
    }
}

/// Which rows there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fdp {
    /// A handle for each stream
    On,
    /// One handle for all
    Off,
    /// A row each
    Both,
}

/// Type of the reclaim unit handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum IsolationKind {
    /// Reclaim may mix their data
    Initially,
    /// It never does
    Persistently,
}

/// Form of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Tables for people
    Text,
    /// Everything, for programs
    Json,
    /// A line per interval and row, for a spreadsheet
    Csv,
}

fn policy(text: &str) -> Result<VictimPolicy, String> {
    text.replacen("d-choice=", "d-choice:", 1).parse()
}

fn writes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(times) if times > 0.0 && times <= WRITES_MAX => Ok(times),
        _ => Err(format!("expected a number above 0 and up to {WRITES_MAX}, such as 20 or 0.5")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_lengths_are_understood_or_named() {
        assert_eq!(policy("d-choice=4"), Ok(VictimPolicy::DChoice(4)));
        assert!(policy("lru").is_err());
        assert_eq!(writes("0.5"), Ok(0.5));
        for text in ["0", "-1", "nan", "1e7", ""] {
            assert!(writes(text).is_err(), "{text}");
        }
    }
}

//! What a point measures: options that may differ from point to point, and where each comes from.
//!
//! The same words are options on the command line, axes of `--matrix` and keys of `--job` files; all are read
//! by the same parser. [`Settings::over`] lays one source over another.

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::Command;
use clap::{Args, FromArgMatches, ValueHint};
use clap_complete::engine::ArgValueCompleter;

use super::addresses::Distribution;
use super::amount::Amount;
use super::args::{duration, seconds};
use super::blend::SizeMix;
use super::breaks::{Burst, Pause};
use super::cores::CoreList;
use super::pace::Arrivals;
use super::pattern::Pattern;
use super::placement::{PlacementList, Select};
use super::replay::Speed;
use super::rest::Completion;
use crate::completion;
use crate::numbers;
use crate::trace::Format;

/// YCSB's own: ten fields of 100 bytes, and its constant.
const YCSB_VALUE_BYTES: u64 = 1000;
const YCSB_THETA: f64 = 0.99;

/// Settings as typed; what is `None` was not.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Settings {
    /// Device: 0000:02:00.0, kernel:/dev/ng0n1, mem:block:SIZE or vfio-user:SOCKET; several are driven at
    /// once
    #[arg(short = 'r', long = "device", value_name = "DEVICE", add = ArgValueCompleter::new(completion::devices))]
    pub(super) devices: Vec<String>,
    /// Namespace; all that are attached when left out
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    pub(super) namespace_id: Option<u32>,
    /// Commands each thread keeps outstanding on each namespace [default: 32]; those beyond what a queue of
    /// the device takes wait in this program
    #[arg(short = 'q', long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=4095))]
    pub(super) depth: Option<u16>,
    /// Bytes of each command, such as 4096 or 128K; whole blocks [default: 4096]. One beyond what the device
    /// takes is split, and counts once. Of pairs: bytes of a value [default: 4096; of YCSB: 1000]
    #[arg(short = 'o', long, value_name = "SIZE", value_parser = numbers::bytes)]
    pub(super) io_size: Option<u64>,
    /// Sizes of commands with their weights (fio's bssplit), such as 4K:70,64K:20,128K:10. Addresses are
    /// multiples of the largest one: a smaller command is on the first bytes of such a unit
    #[arg(long, value_name = "SIZE:WEIGHT,..")]
    pub(super) size_mix: Option<SizeMix>,
    /// What to do: sequential or random, reads, writes or a mix of blocks [default: randread]; or with pairs
    /// (mem:kv:SIZE) [default: retrieve], and those of YCSB
    #[arg(short = 'w', long = "workload", value_name = "PATTERN")]
    pub(super) pattern: Option<Pattern>,
    /// Share of reads in rw, randrw and mixed, in percent [default: 50]
    #[arg(short = 'M', long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) read_percent: Option<u8>,
    /// Pairs that are there before the first point: they are stored where --prefill or the device says so
    /// [default: as many as take half of the namespace, a million at most]
    #[arg(long, value_name = "COUNT", value_parser = numbers::u64)]
    pub(super) keys: Option<u64>,
    /// Bytes of a key [default: 16]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u8).range(1..=255))]
    pub(super) key_size: Option<u8>,
    /// Keys of a list at most: each asks for 1 to so many (ycsb-e) [default: 100]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) scan_length: Option<u32>,
    /// Share of the commands that do not read which deallocate their unit instead of writing it (Dataset
    /// Management), in percent: they are counted apart, not in IOPS, MiB/s and latencies
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) trim: Option<u8>,
    /// Send a Flush after so many writes of each thread to a namespace (fio's fsync): it takes one of the
    /// slots of -q, the writes before it are not waited for, and it is counted apart
    #[arg(long, value_name = "WRITES", value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    pub(super) flush_every: Option<u32>,
    /// Replay a trace in place of a workload, once, on one thread and one namespace: those that `unvme sim`
    /// reads, with their reads, by their own clock where they have one; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) trace: Option<PathBuf>,
    /// Form of the trace [default: what its first line looks like]
    #[arg(long, value_name = "FORMAT")]
    pub(super) trace_format: Option<Format>,
    /// One of the trace's devices, volumes or files, as it names them; may be given several times [default:
    /// all, one behind the other]
    #[arg(long, value_name = "NAME")]
    pub(super) trace_device: Vec<String>,
    /// How many times as fast as it was recorded, or max: as fast as the device takes it [default: 1]
    #[arg(long, value_name = "FACTOR")]
    pub(super) trace_speed: Option<Speed>,
    /// Seconds each point is measured for; fractions are fine [default: 5, none with
    /// --amount and --trace]
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = duration)]
    pub(super) time: Option<f64>,
    /// Seconds each point runs before it is measured [default: 0.1, none with --amount]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) warmup: Option<f64>,
    /// End each point after so much data, all threads together: a size, or a percentage of what is in use of
    /// the namespaces, such as 200%
    #[arg(long, value_name = "SIZE")]
    pub(super) amount: Option<Amount>,
    /// Threads, each on a core of its own [default: one on each core of -c]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: Option<u32>,
    /// Commands that become due per second, all threads together. One that is late is made up for; latency
    /// is counted from when it was due
    #[arg(long, value_name = "IOPS", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(super) rate: Option<u64>,
    /// How the commands of --rate are spread over time [default: fixed]
    #[arg(long, value_name = "HOW")]
    pub(super) arrivals: Option<Arrivals>,
    /// Pause between the completion of a command and the next one in its slot (fio's thinktime), such as
    /// 100us or 1ms: each of the -q slots is a user who thinks
    #[arg(long, value_name = "TIME")]
    pub(super) think: Option<Pause>,
    /// Submit so many commands as soon as there is room for them, then nothing for a time, on each thread
    /// and namespace, such as 32:1ms
    #[arg(long, value_name = "COMMANDS:TIME")]
    pub(super) burst: Option<Burst>,
    /// How threads learn of completions [default: poll]; what they cost of the processor is told. Devices of
    /// this process (mem:) work only while somebody looks, and are always polled
    #[arg(long, value_name = "HOW")]
    pub(super) completion: Option<Completion>,
    /// How random addresses are drawn: uniform, zipf:THETA, hot:20:80 for 80 % of the commands on the
    /// first 20 % of the range (fio's zoned), or, of pairs, latest for those stored last [default: uniform;
    /// of YCSB: zipf:0.99]
    #[arg(long, value_name = "DISTRIBUTION")]
    pub(super) dist: Option<Distribution>,
    /// Placement identifiers that writes carry, such as 0,2 or 0-3: Flexible Data Placement (fio's plids)
    #[arg(long, value_name = "LIST")]
    pub(super) fdp_pid: Option<PlacementList>,
    /// How a write gets one of --fdp-pid (fio's plid_select) [default: round-robin]
    #[arg(long, value_name = "HOW")]
    pub(super) fdp_select: Option<Select>,
    /// Cores to run a thread on each: a mask such as 0x3, or a list such as 0-1,3 [default: the first one]
    #[arg(short = 'c', long, value_name = "CORES")]
    pub(super) cores: Option<CoreList>,
    /// Use SIZE bytes of each namespace only
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes)]
    pub(super) range: Option<u64>,
    /// Begin at this byte of each namespace, a multiple of --io-size [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes)]
    pub(super) offset: Option<u64>,
}

impl Settings {
    /// The setting `name`, a long option without its dashes, as `value` says. Errors: what is wrong with
    /// either, as for an option.
    pub(super) fn one(name: &str, value: &str) -> Result<Self, String> {
        let command = Self::augment_args(Command::new("setting").no_binary_name(true));
        let known = || command.get_arguments().filter_map(|arg| arg.get_long());
        if !known().any(|long| long == name) {
            let known: Vec<&str> = known().collect();
            return Err(format!("`{name}` is not a setting; expected one of {}", known.join(", ")));
        }
        let told = |error: clap::Error| {
            // The first line says it; the others are how to get help.
            let text = error.to_string();
            let text = text.split("\n\n").next().unwrap_or_default().trim().replace("\n", " ");
            text.strip_prefix("error: ").unwrap_or(&text).to_owned()
        };
        let matches = command.clone().try_get_matches_from([format!("--{name}={value}")]).map_err(told)?;
        Self::from_arg_matches(&matches).map_err(told)
    }

    /// These, and where they say nothing what is `below` them.
    pub(super) fn over(self, below: &Self) -> Self {
        let below = below.clone();
        Self {
            devices: if self.devices.is_empty() { below.devices } else { self.devices },
            namespace_id: self.namespace_id.or(below.namespace_id),
            depth: self.depth.or(below.depth),
            io_size: self.io_size.or(below.io_size),
            size_mix: self.size_mix.or(below.size_mix),
            pattern: self.pattern.or(below.pattern),
            read_percent: self.read_percent.or(below.read_percent),
            keys: self.keys.or(below.keys),
            key_size: self.key_size.or(below.key_size),
            scan_length: self.scan_length.or(below.scan_length),
            trim: self.trim.or(below.trim),
            flush_every: self.flush_every.or(below.flush_every),
            trace: self.trace.or(below.trace),
            trace_format: self.trace_format.or(below.trace_format),
            trace_device: if self.trace_device.is_empty() { below.trace_device } else { self.trace_device },
            trace_speed: self.trace_speed.or(below.trace_speed),
            time: self.time.or(below.time),
            warmup: self.warmup.or(below.warmup),
            amount: self.amount.or(below.amount),
            threads: self.threads.or(below.threads),
            rate: self.rate.or(below.rate),
            arrivals: self.arrivals.or(below.arrivals),
            think: self.think.or(below.think),
            burst: self.burst.or(below.burst),
            completion: self.completion.or(below.completion),
            dist: self.dist.or(below.dist),
            fdp_pid: self.fdp_pid.or(below.fdp_pid),
            fdp_select: self.fdp_select.or(below.fdp_select),
            cores: self.cores.or(below.cores),
            range: self.range.or(below.range),
            offset: self.offset.or(below.offset),
        }
    }

    pub(super) fn pattern(&self) -> Pattern {
        self.pattern.unwrap_or(Pattern::Randread)
    }

    pub(super) fn depth(&self) -> u16 {
        self.depth.unwrap_or(32)
    }

    /// Bytes of a command, of the largest where they differ.
    pub(super) fn io_size(&self) -> u64 {
        let otherwise = if self.pattern().is_ycsb() { YCSB_VALUE_BYTES } else { 4096 };
        self.size_mix.as_ref().map(SizeMix::largest).or(self.io_size).unwrap_or(otherwise)
    }

    /// The option that says it.
    pub(super) fn size_option(&self) -> &'static str {
        if self.size_mix.is_some() { "--size-mix" } else { "-o" }
    }

    /// True where something else than time may end a point.
    fn is_limited(&self) -> bool {
        self.amount.is_some() || self.trace.is_some()
    }

    pub(super) fn trace_speed(&self) -> Speed {
        self.trace_speed.unwrap_or(Speed::Times(1.0))
    }

    /// Seconds of a measurement; `None` where an amount of data or a trace ends it.
    pub(super) fn time(&self) -> Option<f64> {
        self.time.or(if self.is_limited() { None } else { Some(5.0) })
    }

    pub(super) fn warmup(&self) -> f64 {
        self.warmup.unwrap_or(if self.is_limited() { 0.0 } else { 0.1 })
    }

    pub(super) fn arrivals(&self) -> Arrivals {
        self.arrivals.unwrap_or(Arrivals::Fixed)
    }

    pub(super) fn dist(&self) -> Distribution {
        self.dist.unwrap_or(match self.pattern() {
            Pattern::YcsbD => Distribution::Latest,
            pattern if pattern.is_ycsb() => Distribution::Zipf(YCSB_THETA),
            _ => Distribution::Uniform,
        })
    }

    pub(super) fn completion(&self) -> Completion {
        self.completion.unwrap_or_default()
    }

    pub(super) fn fdp_select(&self) -> Select {
        self.fdp_select.unwrap_or(Select::RoundRobin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_setting_is_read_as_its_option_is() {
        let one = |name, value| Settings::one(name, value);
        assert_eq!(one("io-size", "128K").expect("a size").io_size, Some(128 << 10));
        assert_eq!(one("device", "mem:block:1G,fdp").expect("a device").devices, ["mem:block:1G,fdp"]);
        assert_eq!(one("workload", "rw").expect("a pattern").pattern, Some(Pattern::Rw));
        let wrong = one("depth", "0").expect_err("no depth");
        assert_eq!(wrong, "invalid value '0' for '--depth <COUNT>': 0 is not in 1..=4095");
        let unknown = one("verify", "1").expect_err("not of a point");
        assert!(
            unknown.starts_with("`verify` is not a setting; expected one of device, namespace-id, depth")
        );
    }

    #[test]
    fn what_is_over_counts_and_what_it_leaves_out_is_from_below() {
        let below = Settings { depth: Some(8), rate: Some(100), ..Settings::default() };
        let over = Settings { depth: Some(1), devices: vec!["a".to_owned()], ..Settings::default() };
        let both = over.over(&below);
        assert_eq!((both.depth(), both.rate, both.devices.len()), (1, Some(100), 1));
        assert_eq!((both.io_size(), both.time()), (4096, Some(5.0)));
        assert_eq!(Settings::one("amount", "1G").expect("an amount").time(), None);
    }
}

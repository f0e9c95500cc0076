//! What can be typed after `kv_perf`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{ArgAction, Args};
use unvme_guide::CpuSet;

use super::run;
use crate::guide::ids::Workload;
use crate::guide::pair::value_size;
use crate::guide::record::SIZES_MAX;
use crate::numbers;
use crate::output::Format;

/// The configuration that is read when none is named.
pub(super) const CONFIG_DEFAULT: &str = "./kv_perf_scripts/kv_perf_default_config.json";
/// Keys of a thread, when no number is given.
const KEYS_DEFAULT: u64 = 1000;
/// Most keys of a thread, and the highest offset: the sum over all threads of all devices is far below 64
/// bits.
const KEYS_MAX: u64 = 1 << 48;
/// Where random ids of a key-value device end, when no range is given.
pub(super) const RANGE_LAST_KV: u64 = 0xc000_0000;
/// Where those of a block device end.
pub(super) const RANGE_LAST_LBA: u64 = 0x8000_0000;

/// Arguments of `kv_perf`: those of the original program, and `--output` and `--report`.
#[derive(Clone, Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
An option that takes several numbers takes all words up to the next option. In a blend one
number of --workload, --offset and --key_range counts for stores, retrieves and deletes, or
there are three.

A file of --read_file has a pair on each line: the key, a blank or a tab, the value. Its pairs
are dealt out among the threads.

The guide lists the workloads 3 and 4 the other way round; they are here as in the original
program.

Examples:
  kv_perf -n 1000 -v 4096 -w -j sample_config.json
  kv_perf -n 1000 -v 4096 -w -r -j sample_config.json -u
  kv_perf -n 1000 -v 4096 2048 -w -j sample_config.json
  kv_perf -n 100 80 30 -v 4096 -b -j sample_config.json
  kv_perf -n 1000 -v 4096 -w -j sample_config.json -s 0
  kv_perf -d 0000:01:00.0 0000:02:00.0 -c F F0 -s 0 0 -q 2 4 -a 64 256 -n 1000 -v 4096 -w

Exit codes: 0 success, 1 an operation failed or data was wrong, 3 no such device, 4 the system
refused, 234 wrong usage."
)]
pub(crate) struct KvPerf {
    /// Write test
    #[arg(short, long)]
    pub(super) write: bool,
    /// Read test
    #[arg(short, long)]
    pub(super) read: bool,
    /// Write, read, and compare checksums of what was read with those of what was written
    #[arg(short = 'x', long)]
    pub(super) verify: bool,
    /// Delete test
    #[arg(short = 'e', long)]
    pub(super) delete: bool,
    /// Stores, retrieves and deletes mixed; nothing else with it
    #[arg(short, long)]
    pub(super) blend: bool,
    /// Format the devices first; destroys their data
    #[arg(short = 'z', long)]
    pub(super) format: bool,
    /// Number of keys; for a blend of stores, retrieves and deletes [default: 1000, or those of --read_file]
    #[arg(short, long = "num_keys", value_name = "N", num_args = 1..=3, value_parser = keys)]
    pub(super) num_keys: Vec<u64>,
    /// How often all of it is done
    #[arg(short = 't', long = "num_tests", value_name = "N", default_value = "1", value_parser = numbers::u32)]
    pub(super) num_tests: u32,
    /// Value sizes in bytes, up to 8; a pair has that of its number modulo their count
    #[arg(short, long = "value_size", value_name = "BYTES", num_args = 1..=SIZES_MAX, default_value = "4096", value_parser = value_size)]
    pub(super) value_size: Vec<u32>,
    /// Keys: 0 ascending, 1 descending, 2 random with repetitions, 3 random in --key_range, 4 shuffled
    #[arg(short = 'p', long, value_name = "N", num_args = 1..=3, default_value = "0", value_parser = clap::value_parser!(u8).range(0..=4))]
    pub(super) workload: Vec<u8>,
    /// Configuration file; one that is not there is looked for among the samples beside the program
    #[arg(short, long = "json_conf", value_name = "FILE", default_value = CONFIG_DEFAULT)]
    pub(super) json_conf: PathBuf,
    /// Read the log page of the extended SMART information each second meanwhile
    #[arg(short = 'i', long = "send_get_log")]
    pub(super) send_get_log: bool,
    /// Memory of the slab in MB
    #[arg(short = 'l', long = "slab_size", value_name = "MB", value_parser = numbers::u64)]
    pub(super) slab_size: Option<u64>,
    /// Use the read cache, which the SDK's calls have: -L is implied
    #[arg(short = 'u', long = "use_cache")]
    pub(super) use_cache: bool,
    /// Devices, in place of those of the configuration
    #[arg(short, long, value_name = "DEVICE", num_args = 1..)]
    pub(super) device: Vec<String>,
    /// Type of the devices: 0 block, 1 key-value
    #[arg(short = 'm', long = "ssd_type", value_name = "N", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(super) ssd_type: Option<u8>,
    /// CPUs of the threads, hexadecimal, one mask for each device
    #[arg(short, long = "core_mask", value_name = "MASK", num_args = 1..)]
    pub(super) core_mask: Vec<CpuSet>,
    /// Those of them whose queue is synchronous
    #[arg(short, long = "sync_mask", value_name = "MASK", num_args = 1..)]
    pub(super) sync_mask: Vec<CpuSet>,
    /// CPUs of the completion threads
    #[arg(short = 'q', long = "cq_mask", value_name = "MASK", num_args = 1..)]
    pub(super) cq_mask: Vec<CpuSet>,
    /// Depths of the asynchronous queues
    #[arg(short = 'a', long, value_name = "DEPTH", num_args = 1.., value_parser = numbers::u32)]
    pub(super) qd: Vec<u32>,
    /// Number of the first key
    #[arg(short, long, value_name = "N", num_args = 1..=3, default_value = "0", value_parser = keys)]
    pub(super) offset: Vec<u64>,
    /// Seeds of all that is random, one for each thread; 0 is the time
    #[arg(short = 'g', long, value_name = "SEED", num_args = 1.., value_parser = numbers::u64)]
    pub(super) seed: Vec<u64>,
    /// Text that values hold over and over
    #[arg(short = 'k', long = "def_value", value_name = "TEXT")]
    pub(super) def_value: Option<String>,
    /// File with the keys and values to use
    #[arg(short = 'f', long = "read_file", value_name = "FILE")]
    pub(super) read_file: Option<PathBuf>,
    /// First and last key of workload 3, such as 0-1000 or 0x0-0xC0000000
    #[arg(short = 'y', long = "key_range", value_name = "FIRST-LAST", num_args = 1..=3, value_parser = range)]
    pub(super) key_range: Vec<Range>,
    /// Use the SDK's calls, which copy values and have the cache, in place of the driver's
    #[arg(short = 'L', long = "use_sdk_cmd", visible_alias = "low_cmd_mode")]
    pub(super) use_sdk_cmd: bool,
    /// Show this
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Form of the result on standard output
    #[arg(long, visible_alias = "output-format", value_name = "FORMAT", default_value = "text")]
    pub(super) output: Format,
    /// Write a report with plots to a file: one HTML page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
}

/// First and last id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) last: u64,
}

/// A number of keys, or how many are before the first.
fn keys(text: &str) -> Result<u64, String> {
    match numbers::u64(text)? {
        number if number > KEYS_MAX => Err(format!("expected a number up to {KEYS_MAX}")),
        number => Ok(number),
    }
}

fn range(text: &str) -> Result<Range, String> {
    let (first, last) = text
        .split_once('-')
        .ok_or("expected the first and the last key, such as 0-1000 or 0x0-0xC0000000")?;
    let range = Range { first: numbers::u64(first)?, last: numbers::u64(last)? };
    if range.first > range.last {
        return Err(format!("the first key, {first}, is behind the last, {last}"));
    }
    Ok(range)
}

/// Stores, retrieves and deletes of a blend; all else has the first of the three.
const BLEND: usize = 3;

impl KvPerf {
    pub(crate) fn run(self) -> Result<()> {
        run::run(&self)
    }

    /// True when the devices are reached as the driver's own calls reach them, without the SDK's copies and
    /// cache.
    pub(super) fn is_low_level(&self) -> bool {
        !self.use_sdk_cmd && !self.use_cache
    }

    /// True when something is to be done on pairs.
    pub(super) fn has_test(&self) -> bool {
        self.write || self.read || self.verify || self.delete || self.blend
    }

    /// What is wrong with the combination; each option for itself is right.
    pub(super) fn refusal(&self) -> Option<String> {
        if !self.has_test() && !self.format && !self.send_get_log {
            return Some(
                "At least one of tests should be specified: -w(write), -r(read), -e(delete), -b(blend), -z(format), -i(info)"
                    .to_owned(),
            );
        }
        if self.blend && (self.write || self.read || self.verify || self.delete || self.format) {
            return Some(
                "This combination of tests is not supported. You can run the test(s) of 1) blend(-b) only, or, \
                 2) other options without blend"
                    .to_owned(),
            );
        }
        if let Some(refusal) = self.wrong_numbers() {
            return Some(refusal);
        }
        if self.blend && self.num_keys.len() != BLEND {
            return Some(
                "-b: expected -n with the number of stores, retrieves and deletes, such as -n 100 80 30"
                    .to_owned(),
            );
        }
        if self.blend && self.read_file.is_some() {
            return Some("-f: not with -b, whose keys are made".to_owned());
        }
        if self.num_tests == 0 {
            return Some("-t 0: expected at least one test".to_owned());
        }
        if self.def_value.as_deref() == Some("") {
            return Some("-k: expected a text of at least one byte".to_owned());
        }
        self.counts_differ()
    }

    /// Options with one number for everything or three for a blend, and numbers that are none of something.
    fn wrong_numbers(&self) -> Option<String> {
        let counts = [
            ("-n", self.num_keys.len()),
            ("-p", self.workload.len()),
            ("-o", self.offset.len()),
            ("-y", self.key_range.len()),
        ];
        let expected =
            if self.blend { "one number or three" } else { "one number; three are for a blend (-b)" };
        let wrong = |count: usize| count == 2 || count == BLEND && !self.blend;
        if let Some((name, count)) = counts.into_iter().find(|&(_, count)| wrong(count)) {
            return Some(format!("{name}: expected {expected}, not {count}"));
        }
        if self.has_test() && !self.num_keys.is_empty() && self.counts().iter().all(|&count| count == 0) {
            return Some("-n 0: expected at least one key".to_owned());
        }
        if self.qd.contains(&0) {
            return Some("-a 0: expected a queue depth of at least 1".to_owned());
        }
        None
    }

    fn counts_differ(&self) -> Option<String> {
        let counts = [
            ("device_id", self.device.len()),
            ("core_mask", self.core_mask.len()),
            ("sync_mask", self.sync_mask.len()),
            ("cq_mask", self.cq_mask.len()),
            ("queue_depth", self.qd.len()),
        ];
        let mut given = counts.into_iter().filter(|(_, count)| *count > 0);
        let (_, first) = given.next()?;
        let (name, count) = given.find(|(_, count)| *count != first)?;
        Some(format!(
            "Please Check the configuration: num. of {name}: {count} num. of other configuration: {first}"
        ))
    }

    /// The order of stores, retrieves and deletes of a blend, or of all three alike.
    pub(super) fn workloads(&self, range_last: u64) -> [Workload; BLEND] {
        std::array::from_fn(|index| match three(&self.workload, index) {
            Some(1) => Workload::Descending,
            Some(2) => Workload::Uniform,
            Some(3) => match three(&self.key_range, index) {
                Some(Range { first, last }) => Workload::Range { first, last },
                None => Workload::Range { first: 0, last: range_last },
            },
            Some(4) => Workload::Shuffled,
            _ => Workload::Ascending,
        })
    }

    /// First ids of the first thread, as above.
    pub(super) fn offsets(&self) -> [u64; BLEND] {
        std::array::from_fn(|index| three(&self.offset, index).unwrap_or(0))
    }

    /// Operations of each thread, as above.
    pub(super) fn counts(&self) -> [u64; BLEND] {
        let default = if self.num_keys.is_empty() { KEYS_DEFAULT } else { 0 };
        std::array::from_fn(|index| three(&self.num_keys, index).unwrap_or(default))
    }
}

/// The number at `index`, where one number counts for all.
fn three<T: Copy>(numbers: &[T], index: usize) -> Option<T> {
    match numbers {
        [only] => Some(*only),
        several => several.get(index).copied(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: KvPerf,
    }

    fn parse(words: &str) -> KvPerf {
        let words = std::iter::once("kv_perf").chain(words.split_whitespace());
        Line::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).args
    }

    fn refused(words: &str) -> String {
        let words = std::iter::once("kv_perf").chain(words.split_whitespace());
        Line::try_parse_from(words).err().map_or_else(String::new, |e| e.to_string())
    }

    #[test]
    fn the_guides_samples_are_understood() {
        let args = parse("-n 1000 -v 4096 -w -j sample_config.json");
        assert_eq!((args.counts(), args.value_size.as_slice()), ([1000; 3], &[4096][..]));
        assert!(args.write && !args.read && args.is_low_level() && args.refusal().is_none());
        assert_eq!(args.json_conf, PathBuf::from("sample_config.json"));
        let args = parse("-n 1000 -v 4096 -w -r -j sample_config.json -u");
        assert!(args.use_cache && !args.is_low_level(), "the cache is the SDK's");
        let args = parse("-n 100 80 30 -v 4096 -b -j sample_config.json");
        assert_eq!((args.counts(), args.refusal()), ([100, 80, 30], None));
        let args = parse("-d 0000:01:00.0 0000:02:00.0 -c F F0 -s 0 0 -q 2 4 -a 64 256 -n 1000 -v 4096 -w");
        assert_eq!(args.device, ["0000:01:00.0", "0000:02:00.0"]);
        assert_eq!(args.core_mask, [CpuSet(0xf), CpuSet(0xf0)]);
        assert_eq!((args.sync_mask, args.qd), (vec![CpuSet(0), CpuSet(0)], vec![64, 256]));
    }

    #[test]
    fn defaults_are_those_of_the_original() {
        let args = parse("-w");
        assert_eq!((args.counts()[0], args.num_tests, args.value_size.as_slice()), (1000, 1, &[4096][..]));
        assert_eq!(args.workloads(7), [Workload::Ascending; 3]);
        assert_eq!((args.offsets(), args.slab_size, args.ssd_type), ([0; 3], None, None));
        assert_eq!(args.json_conf, PathBuf::from("./kv_perf_scripts/kv_perf_default_config.json"));
        assert!(!args.use_cache && !args.send_get_log && !args.use_sdk_cmd);
    }

    #[test]
    fn ranges_are_decimal_or_hexadecimal_and_beyond_32_bits() {
        let args = parse("-w -p 3 -y 0x10-0x1FFFFFFFF");
        assert_eq!(args.workloads(0)[0], Workload::Range { first: 16, last: 0x1_ffff_ffff });
        let args = parse("-b -n 1 2 3 -p 0 3 4 -y 1-2 5-9 7-7 -o 1 2 3");
        let expected = [Workload::Ascending, Workload::Range { first: 5, last: 9 }, Workload::Shuffled];
        assert_eq!((args.workloads(0), args.offsets()), (expected, [1, 2, 3]));
        assert_eq!(parse("-w -p 3").workloads(99)[2], Workload::Range { first: 0, last: 99 });
        assert_eq!(parse("-w -l 4096").slab_size, Some(4096));
    }

    #[test]
    fn wrong_options_say_what_was_expected() {
        for (words, part) in [
            ("-w -y 9-3", "the first key, 9, is behind the last, 3"),
            ("-w -y 7", "such as 0-1000"),
            ("-w -p 5", "5 is not in 0..=4"),
            ("-w -m 2", "2 is not in 0..=1"),
            ("-w -n ten", "expected a number"),
            ("-w -c XY", "XY"),
            ("-w -n 281474976710657", "expected a number up to 281474976710656"),
            ("-w -o 0xffffffffffffffff", "expected a number up to 281474976710656"),
            ("-w -v 2097153", "a value has at most 2097152 bytes"),
            ("-w -v 1 2 3 4 5 6 7 8 9", "unexpected argument '9'"),
            ("-w -Q", "unexpected argument '-Q'"),
        ] {
            let message = refused(words);
            assert!(message.contains(part), "{words}: {message}");
        }
    }

    #[test]
    fn combinations_that_make_no_sense_are_refused() {
        for (words, part) in [
            (
                "-n 10",
                "At least one of tests should be specified: -w(write), -r(read), -e(delete), -b(blend)",
            ),
            ("-b -w -n 1 1 1", "This combination of tests is not supported."),
            ("-b -n 100", "such as -n 100 80 30"),
            ("-b -n 0 0 0", "-n 0: expected at least one key"),
            ("-b -n 1 1 1 -p 0 1", "-p: expected one number or three, not 2"),
            ("-w -n 10 20", "-n: expected one number"),
            ("-w -o 1 2 3", "-o: expected one number; three are for a blend (-b), not 3"),
            ("-w -n 0", "-n 0: expected at least one key"),
            ("-w -a 64 0", "-a 0: expected a queue depth of at least 1"),
            ("-w -t 0", "at least one test"),
            (
                "-w -d a b -c F",
                "Please Check the configuration: num. of core_mask: 1 num. of other configuration: 2",
            ),
        ] {
            let message = parse(words).refusal().unwrap_or_default();
            assert!(message.contains(part), "{words}: {message}");
        }
        assert_eq!(parse("-i").refusal(), None);
        assert_eq!(parse("-z").refusal(), None);
    }
}

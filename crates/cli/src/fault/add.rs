//! `fault add`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::file::read_rules;
use super::options::RuleOptions;
use crate::count::count;
use crate::output::Output;
use crate::target::DeviceArg;
use crate::value::fields;

/// Arguments of `fault add`.
#[derive(Debug, Args)]
#[command(after_help = "\
Commands that match are counted from 1: --after lets the first ones by, --every takes each nth of
the rest, --probability throws dice for those, and --count ends it after so many faults. Admin
commands are meant only with one of their opcodes, or with --queue 0.

Names of commands are nvme-cli's: read, write, flush, dsm, write-zeroes; store, retrieve, delete,
exist, list; identify, get-log, set-feature. Statuses are numbers as nvme-cli prints them, such as
0x281 or 0x4281 (with Do Not Retry), or the specification's names: unrecovered-read-error.

Examples:
  unvme fault add 0000:02:00.0 --opcode write --lba 100-200 --after 2 --count 1 --status 0x281
  unvme fault add 0000:02:00.0 --opcode read --probability 0.001 --seed 7 --delay 50ms
  unvme fault add 0000:02:00.0 --opcode read --count 1 --corrupt read
  unvme fault add 0000:02:00.0 --key-prefix user: --status write-fault --dnr
  unvme fault add 0000:02:00.0 --power-cut 1234
  unvme fault add 0000:02:00.0 --json '{\"match\":{\"opcode\":\"read\"},\"act\":{\"drop\":true}}'")]
pub(crate) struct Add {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    options: RuleOptions,
    /// The rule as JSON, or an array of rules, in place of all other options
    #[arg(long, value_name = "TEXT", help_heading = "Rules as text", conflicts_with_all = ["match", "act", "file"])]
    json: Option<String>,
    /// A file with a rule or an array of rules; - for standard input
    #[arg(long, value_name = "FILE", help_heading = "Rules as text", conflicts_with_all = ["match", "act"])]
    file: Option<PathBuf>,
    /// Forget the rules when the process that has the device ends
    #[arg(long)]
    passing: bool,
    #[command(flatten)]
    output: Output,
}

impl Add {
    pub(crate) fn run(self) -> Result<()> {
        let rules = match (&self.json, &self.file) {
            (Some(text), _) => super::file::parse("--json", text)?,
            (None, Some(path)) => read_rules(path)?,
            (None, None) => vec![self.options.rule()?],
        };
        let text = serde_json::to_string(&rules)?;
        let device = self.device.open()?;
        let added = match self.passing {
            true => device.add_passing_faults(&text)?,
            false => device.add_faults(&text)?,
        };
        let json = fields! { "added": added.count, "first": added.first };
        let line = match added.count {
            1 => format!("added rule {}", added.first),
            several => format!("added {}, the first is {}", count(several, "rule"), added.first),
        };
        self.output.output.say(json, line)
    }
}

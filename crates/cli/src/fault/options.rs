//! A rule as options.

use anyhow::Result;
use clap::{ArgGroup, Args, ValueEnum};
use unvme::Status;
use unvme_spec::log_page::AsyncEvent;
use unvme_ssd::{
    CorruptData, Corruption, FaultAction, FaultDelay, FaultKey, FaultMatch, FaultOpcode, FaultRule, Flips,
    LbaRange, WrongCompletion, parse_fault_event, parse_fault_hex, parse_fault_key, parse_fault_status,
};

use crate::exit::usage;
use crate::numbers;

const MATCH: &str = "Which commands";
const ACT: &str = "What happens";

/// Which commands, and what happens to them.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("match").multiple(true), group = ArgGroup::new("act").multiple(true))]
pub(super) struct RuleOptions {
    /// Commands with this opcode: a name, a number, or admin:NUMBER
    #[arg(long, value_name = "NAME", help_heading = MATCH, group = "match")]
    opcode: Option<FaultOpcode>,
    /// Commands for this namespace
    #[arg(short, long, value_name = "NSID", help_heading = MATCH, group = "match", value_parser = numbers::u32)]
    namespace_id: Option<u32>,
    /// Commands that name one of these logical blocks, such as 100 or 100-200
    #[arg(long, value_name = "RANGE", help_heading = MATCH, group = "match")]
    lba: Option<LbaRange>,
    /// Commands for this key: text, or hexadecimal with 0x
    #[arg(long, value_name = "KEY", help_heading = MATCH, group = "match", value_parser = key)]
    key: Option<KeyText>,
    /// Commands for keys that begin like this
    #[arg(long, value_name = "KEY", help_heading = MATCH, group = "match", conflicts_with = "key", value_parser = key)]
    key_prefix: Option<KeyText>,
    /// Commands of this submission queue; 0 is the admin queue
    #[arg(long, value_name = "QID", help_heading = MATCH, group = "match", value_parser = numbers::u16)]
    queue: Option<u16>,
    /// Not a command, but the nth program of a page of media from now on
    #[arg(long, value_name = "N", help_heading = MATCH, group = "match", value_parser = numbers::u64)]
    program: Option<u64>,
    /// Let the first N commands by
    #[arg(long, value_name = "N", help_heading = MATCH, group = "match", value_parser = numbers::u64)]
    after: Option<u64>,
    /// Of the rest, each Nth
    #[arg(long, value_name = "N", help_heading = MATCH, group = "match", value_parser = numbers::u64)]
    every: Option<u64>,
    /// At most N faults
    #[arg(long, value_name = "N", help_heading = MATCH, group = "match", value_parser = numbers::u64)]
    count: Option<u64>,
    /// Chance of each, above 0 and at most 1
    #[arg(long, value_name = "P", help_heading = MATCH, group = "match")]
    probability: Option<f64>,
    /// Seed of what is random; the same seed and commands give the same faults
    #[arg(long, value_name = "NUMBER", help_heading = MATCH, group = "match", value_parser = numbers::u64)]
    seed: Option<u64>,

    /// Complete with this status, without executing the command
    #[arg(long, value_name = "STATUS", help_heading = ACT, group = "act", value_parser = parse_fault_status)]
    status: Option<Status>,
    /// With the Do Not Retry bit
    #[arg(long, help_heading = ACT, group = "act", requires = "status")]
    dnr: bool,
    /// Without the More bit, and without an entry in the error log
    #[arg(long, help_heading = ACT, group = "act", requires = "status")]
    no_more: bool,
    /// Execute the command all the same: only its answer is wrong, or lost
    #[arg(long, help_heading = ACT, group = "act")]
    executed: bool,
    /// Complete later by this time, such as 50ms or 100us-2ms
    #[arg(long, value_name = "TIME", help_heading = ACT, group = "act")]
    delay: Option<FaultDelay>,
    /// Never complete
    #[arg(long, help_heading = ACT, group = "act")]
    drop: bool,
    /// Change data: what the host reads, or what it writes on its way to the media
    #[arg(long, value_name = "DATA", help_heading = ACT, group = "act")]
    corrupt: Option<Corrupt>,
    /// Change so many bits, anywhere
    #[arg(long, value_name = "N", help_heading = ACT, group = "act", requires = "corrupt", default_value = "1", value_parser = numbers::u32)]
    corrupt_bits: u32,
    /// Change bytes from this offset on
    #[arg(long, value_name = "BYTES", help_heading = ACT, group = "act", requires = "corrupt_xor", conflicts_with = "corrupt_bits", value_parser = numbers::bytes)]
    corrupt_offset: Option<u64>,
    /// Change the bits that are 1 in these hexadecimal bytes
    #[arg(long, value_name = "HEX", help_heading = ACT, group = "act", requires = "corrupt", conflicts_with = "corrupt_bits", value_parser = hex)]
    corrupt_xor: Option<Hex>,
    /// Post a wrong completion: cid, sqid or duplicate
    #[arg(long, value_name = "KIND", help_heading = ACT, group = "act")]
    completion: Option<WrongCompletion>,
    /// Set Controller Fatal Status, and stop until the controller is reset
    #[arg(long, help_heading = ACT, group = "act")]
    fatal: bool,
    /// Make the media read only, until the rule is cleared
    #[arg(long, help_heading = ACT, group = "act")]
    read_only: bool,
    /// Report an asynchronous event, such as 1,0,2
    #[arg(long, value_name = "TYPE,INFO,LOG", help_heading = ACT, group = "act", value_parser = parse_fault_event)]
    event: Option<AsyncEvent>,
    /// Unplug the device until it is opened anew, or its server started again
    #[arg(long, help_heading = ACT, group = "act")]
    unplug: bool,
    /// Cut the power, with N at the nth program of a page of media from now on
    #[arg(long, value_name = "N", help_heading = ACT, group = "act", num_args = 0..=1, default_missing_value = "0", value_parser = numbers::u64)]
    power_cut: Option<u64>,
}

/// What is corrupted.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Corrupt {
    /// What the host gets; the media stays as it is
    Read,
    /// What goes to the media; the host's memory stays as it is
    Write,
}

/// Bytes of a key.
#[derive(Clone, Debug)]
struct KeyText(Vec<u8>);

fn key(text: &str) -> Result<KeyText, String> {
    parse_fault_key(text).map(KeyText)
}

/// Bytes in hexadecimal.
#[derive(Clone, Debug)]
struct Hex(Vec<u8>);

fn hex(text: &str) -> Result<Hex, String> {
    parse_fault_hex(text).map(Hex)
}

impl RuleOptions {
    /// The rule. Errors: a usage error for what is out of its bounds or cannot go together.
    pub(super) fn rule(&self) -> Result<FaultRule> {
        let rule = FaultRule { id: None, matching: self.matching(), action: self.action() };
        rule.check().map_err(|error| usage(format!("the rule: {error}")))?;
        Ok(rule)
    }

    fn matching(&self) -> FaultMatch {
        let exact = self.key.as_ref().map(|key| FaultKey::Exact(key.0.clone()));
        let prefix = self.key_prefix.as_ref().map(|key| FaultKey::Prefix(key.0.clone()));
        FaultMatch {
            opcode: self.opcode,
            namespace: self.namespace_id,
            lba: self.lba,
            key: exact.or(prefix),
            queue: self.queue,
            program: self.program.or(self.power_cut.filter(|program| *program > 0)),
            after: self.after.unwrap_or(0),
            every: self.every.unwrap_or(1),
            count: self.count,
            probability: self.probability,
            seed: self.seed.unwrap_or(0),
        }
    }

    fn action(&self) -> FaultAction {
        let dnr = |status: Status| if self.dnr { status.with_do_not_retry() } else { status };
        let flips = match &self.corrupt_xor {
            Some(mask) => Flips::At { offset: self.corrupt_offset.unwrap_or(0), mask: mask.0.clone() },
            None => Flips::Random(self.corrupt_bits),
        };
        let corrupt = self.corrupt.map(|data| Corruption {
            data: match data {
                Corrupt::Read => CorruptData::Read,
                Corrupt::Write => CorruptData::Write,
            },
            flips,
        });
        FaultAction {
            status: self.status.map(dnr),
            logged: !self.no_more,
            executed: self.executed,
            delay: self.delay,
            dropped: self.drop,
            corrupt,
            completion: self.completion,
            fatal: self.fatal,
            read_only: self.read_only,
            event: self.event,
            unplug: self.unplug,
            power_cut: self.power_cut.is_some(),
        }
    }
}

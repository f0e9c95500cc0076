//! What a rule says: which commands it is about, and what happens to them.

use std::time::Duration;

use unvme_spec::Status;
use unvme_spec::log_page::AsyncEvent;

use super::FaultError;
use super::opcode::FaultOpcode;
use crate::limits::{IO_QUEUES_MAX, NAMESPACES_MAX};

/// Most bytes of a key, or the beginning of one, that a rule names.
pub const FAULT_KEY_BYTES_MAX: usize = 255;
/// Longest delay.
pub const FAULT_DELAY_MAX: Duration = Duration::from_secs(600);
/// Most bits that one corruption flips at random, and most bytes it changes at an offset.
pub const FAULT_FLIPS_MAX: u32 = 4096;
/// Bound of counts: commands let by, commands between two faults, faults, programs.
pub(super) const COUNT_MAX: u64 = 1 << 48;

/// A rule: commands that match get the action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultRule {
    /// Its number, 1 or above; the device gives it the next free one when there is none.
    pub id: Option<u32>,
    /// Which commands.
    pub matching: FaultMatch,
    /// What happens to them.
    pub action: FaultAction,
}

/// Which commands a rule is about: all conditions that are there hold. Commands that match are numbered from
/// 1 in the order in which the device takes them; `after`, `every`, `probability` and `count` choose among
/// them, in this order.
///
/// Admin commands are meant only when the opcode is one of theirs or the queue is 0.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultMatch {
    /// Opcode.
    pub opcode: Option<FaultOpcode>,
    /// Namespace identifier in the command, 1 to 128.
    pub namespace: Option<u32>,
    /// Logical blocks, one of which the command names, Dataset Management in one of its ranges; never a
    /// command for pairs.
    pub lba: Option<LbaRange>,
    /// Key that the command names.
    pub key: Option<FaultKey>,
    /// Submission queue, 0 (admin) to 64.
    pub queue: Option<u16>,
    /// Not a command but the program of the nth page (4 KiB) of media since the rule was added, counted
    /// from 1. It goes with no other condition, and with actions on the whole device only.
    pub program: Option<u64>,
    /// The first so many are let by.
    pub after: u64,
    /// Of the rest, the nth, the 2nth and so on; 1 for all.
    pub every: u64,
    /// At most so many faults; `None` for no limit.
    pub count: Option<u64>,
    /// Chance of each, above 0 and up to 1; `None` for certainty.
    pub probability: Option<f64>,
    /// Seed of everything that is random about the rule. The same seed and the same commands give the same
    /// faults.
    pub seed: u64,
}

impl Default for FaultMatch {
    fn default() -> Self {
        Self {
            opcode: None,
            namespace: None,
            lba: None,
            key: None,
            queue: None,
            program: None,
            after: 0,
            every: 1,
            count: None,
            probability: None,
            seed: 0,
        }
    }
}

/// Logical blocks `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaRange {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// Keys of pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKey {
    /// This one.
    Exact(Vec<u8>),
    /// All that begin like this.
    Prefix(Vec<u8>),
}

impl FaultKey {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Exact(bytes) | Self::Prefix(bytes) => bytes,
        }
    }

    pub(super) fn matches(&self, key: &[u8]) -> bool {
        match self {
            Self::Exact(bytes) => key == bytes,
            Self::Prefix(bytes) => key.starts_with(bytes),
        }
    }
}

/// What happens to a command, or to the device with it. At least one thing; several where they can go
/// together.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultAction {
    /// It completes with this status, and is not executed unless `executed` says so. Success is possible: a
    /// device that lies.
    pub status: Option<Status>,
    /// A failure is recorded in the Error Information log, and its status has the More bit.
    pub logged: bool,
    /// With `status` or `dropped`: the command is executed all the same, and only its answer is wrong or
    /// lost.
    pub executed: bool,
    /// Its completion comes later.
    pub delay: Option<FaultDelay>,
    /// It never completes; an Abort for it answers that it was not aborted.
    pub dropped: bool,
    /// Its data is changed on the way.
    pub corrupt: Option<Corruption>,
    /// Its completion is wrong.
    pub completion: Option<WrongCompletion>,
    /// Controller Fatal Status: the controller stops until it is reset. The command is executed and not
    /// answered.
    pub fatal: bool,
    /// The media becomes read only, until the rule is cleared: a critical warning, and writes fail with
    /// Attempted Write to Read Only Range (pairs: Namespace Write Protected).
    pub read_only: bool,
    /// An asynchronous event is reported, whatever the host has asked to hear of.
    pub event: Option<AsyncEvent>,
    /// The device is unplugged: registers read as all ones and nothing answers any more. It keeps what it
    /// has, and is there again when it is opened anew. The command is executed and not answered.
    pub unplug: bool,
    /// As unplugged, and what was not flushed may be lost. The command is executed and not answered.
    pub power_cut: bool,
}

impl Default for FaultAction {
    fn default() -> Self {
        Self {
            status: None,
            logged: true,
            executed: false,
            delay: None,
            dropped: false,
            corrupt: None,
            completion: None,
            fatal: false,
            read_only: false,
            event: None,
            unplug: false,
            power_cut: false,
        }
    }
}

/// A time from `min` to `max`; chosen at random when they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultDelay {
    /// The shortest.
    pub min: Duration,
    /// The longest, at most [`FAULT_DELAY_MAX`].
    pub max: Duration,
}

impl FaultDelay {
    fn is_possible(self) -> bool {
        let whole = |time: Duration| time.subsec_nanos().is_multiple_of(1000);
        let ordered = self.min <= self.max && self.max <= FAULT_DELAY_MAX && !self.max.is_zero();
        ordered && whole(self.min) && whole(self.max)
    }
}

/// Bits of data that change on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Which data.
    pub data: CorruptData,
    /// Which bits.
    pub flips: Flips,
}

/// Whose data changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorruptData {
    /// What the host gets: the media keeps what it has.
    Read,
    /// What goes to the media: the host's memory stays as it is. What is stored is whole, with checksums of
    /// its own.
    Write,
}

/// Which bits change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flips {
    /// So many, anywhere in the data, 1 to [`FAULT_FLIPS_MAX`].
    Random(u32),
    /// Those that are 1 here, from a byte offset of the command's data on. What lies behind the end is left
    /// out.
    At {
        /// First byte.
        offset: u64,
        /// Exclusive or with the data, 1 to [`FAULT_FLIPS_MAX`] bytes.
        mask: Vec<u8>,
    },
}

/// What is wrong with a completion. Its phase tag cannot be: an entry with a wrong one is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongCompletion {
    /// Another command identifier.
    CommandId,
    /// Another submission queue identifier.
    QueueId,
    /// The entry is posted twice, where there is room for it.
    Duplicate,
}

impl FaultRule {
    /// Checks every value against its bounds, and that what is there can go together. Errors: [`FaultError`]
    /// names the key.
    pub fn check(&self) -> Result<(), FaultError> {
        if self.id == Some(0) {
            return Err(refuse("id", "0", "a number from 1 on"));
        }
        self.matching.check()?;
        self.action.check()?;
        if self.matching.program.is_some() && !self.action.is_on_the_device() {
            let expected = "an action on the whole device: power_cut, unplug, fatal, read_only or event";
            return Err(refuse("match.program", "with this action", expected));
        }
        let admin = self.matching.is_for_admin();
        if admin && (self.matching.lba.is_some() || self.matching.key.is_some()) {
            return Err(refuse("match.opcode", "an admin command", "an I/O command beside lba or key"));
        }
        if admin && self.action.corrupt.is_some() {
            return Err(refuse("act.corrupt", "data of an admin command", "an I/O command"));
        }
        Ok(())
    }
}

impl FaultMatch {
    /// True when admin commands are meant, and no I/O commands.
    pub(super) fn is_for_admin(&self) -> bool {
        self.queue == Some(0) || self.opcode.is_some_and(|opcode| opcode.is_admin())
    }

    fn check(&self) -> Result<(), FaultError> {
        let bounded = |key, value: u64, from: u64| match (from..=COUNT_MAX).contains(&value) {
            true => Ok(()),
            false => Err(refuse(key, value, &format!("{from} to {COUNT_MAX}"))),
        };
        if let Some(nsid) = self.namespace.filter(|nsid| !(1..=NAMESPACES_MAX).contains(nsid)) {
            return Err(refuse("match.namespace", nsid, "1 to 128"));
        }
        if let Some(queue) = self.queue.filter(|queue| *queue > IO_QUEUES_MAX) {
            return Err(refuse("match.queue", queue, "0 to 64"));
        }
        if let Some(LbaRange { first, last }) = self.lba.filter(|range| range.first > range.last) {
            return Err(refuse("match.lba", format!("{first}-{last}"), "first-last in ascending order"));
        }
        if let Some(key) = &self.key
            && !(1..=FAULT_KEY_BYTES_MAX).contains(&key.bytes().len())
        {
            return Err(refuse("match.key", format!("{} bytes", key.bytes().len()), "1 to 255 bytes"));
        }
        bounded("match.after", self.after, 0)?;
        bounded("match.every", self.every, 1)?;
        bounded("match.count", self.count.unwrap_or(1), 1)?;
        bounded("match.program", self.program.unwrap_or(1), 1)?;
        if let Some(chance) = self.probability
            && !(chance > 0.0 && chance <= 1.0)
        {
            return Err(refuse("match.probability", chance, "above 0 and at most 1"));
        }
        let plain = Self { program: self.program, seed: self.seed, ..Self::default() };
        if self.program.is_some() && *self != plain {
            return Err(refuse("match.program", "with other conditions", "it alone, or with seed"));
        }
        Ok(())
    }
}

impl FaultAction {
    /// True when something happens to the whole device, and nothing to the command.
    fn is_on_the_device(&self) -> bool {
        let device = Self {
            fatal: self.fatal,
            read_only: self.read_only,
            event: self.event,
            unplug: self.unplug,
            power_cut: self.power_cut,
            ..Self::default()
        };
        *self == device
    }

    fn check(&self) -> Result<(), FaultError> {
        if *self == (Self { logged: self.logged, executed: self.executed, ..Self::default() }) {
            let expected = "one of status, delay, drop, corrupt, completion, fatal, read_only, event, unplug, \
                            power_cut";
            return Err(refuse("act", "nothing", expected));
        }
        let ends = [
            ("drop", self.dropped),
            ("fatal", self.fatal),
            ("unplug", self.unplug),
            ("power_cut", self.power_cut),
        ];
        let answers = [
            ("status", self.status.is_some()),
            ("delay", self.delay.is_some()),
            ("completion", self.completion.is_some()),
        ];
        let there = |keys: &[(&'static str, bool)]| -> Vec<&'static str> {
            keys.iter().filter(|(_, there)| *there).map(|(key, _)| *key).collect()
        };
        match (there(&ends).as_slice(), there(&answers).as_slice()) {
            ([one, other, ..], _) => return Err(refuse("act", format!("{one} and {other}"), "one of them")),
            ([one], [other, ..]) => {
                let expected =
                    "one of them: a command without an answer has none that could be late or wrong";
                return Err(refuse("act", format!("{one} and {other}"), expected));
            }
            _ => {}
        }
        if self.executed && self.status.is_none() && !self.dropped {
            return Err(refuse("act.executed", "without status or drop", "one of them beside it"));
        }
        if !self.logged && self.status.is_none() {
            return Err(refuse("act.more", "without status", "a status beside it"));
        }
        if let Some(delay) = self.delay
            && !delay.is_possible()
        {
            let given = format!("{:?} to {:?}", delay.min, delay.max);
            let expected = "whole microseconds, above 0 and at most 600 s, the shorter time first";
            return Err(refuse("act.delay", given, expected));
        }
        match &self.corrupt {
            Some(corrupt) => corrupt.check(self),
            None => Ok(()),
        }
    }
}

impl Corruption {
    fn check(&self, action: &FaultAction) -> Result<(), FaultError> {
        let moves_no_data = action.status.is_some() && !action.executed;
        if moves_no_data || action.dropped && !action.executed {
            let expected = "executed beside it: a command that is not executed moves no data";
            return Err(refuse("act.corrupt", "with status or drop", expected));
        }
        match &self.flips {
            Flips::Random(bits) if !(1..=FAULT_FLIPS_MAX).contains(bits) => {
                Err(refuse("act.corrupt.bits", bits, "1 to 4096"))
            }
            Flips::At { mask, .. } if !(1..=FAULT_FLIPS_MAX as usize).contains(&mask.len()) => {
                Err(refuse("act.corrupt.xor", format!("{} bytes", mask.len()), "1 to 4096 bytes"))
            }
            Flips::At { mask, .. } if mask.iter().all(|byte| *byte == 0) => {
                Err(refuse("act.corrupt.xor", "zeroes", "a bit that is 1: zeroes change nothing"))
            }
            _ => Ok(()),
        }
    }
}

fn refuse(key: &str, given: impl std::fmt::Display, expected: &str) -> FaultError {
    FaultError::new(format!("{key}: {given} is not possible; expected {expected}"))
}

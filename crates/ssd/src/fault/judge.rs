//! From a command and the rules to what happens to the command.

use std::fmt;

use unvme_bus::{lock, random};
use unvme_spec::Status;
use unvme_spec::log_page::AsyncEvent;

use super::rule::{Corruption, FaultAction, FaultDelay, FaultMatch, WrongCompletion};
use super::state::{Entry, Faults};

/// A command as rules see it.
pub(crate) struct Subject<'a> {
    pub(crate) queue: u16,
    pub(crate) opcode: u8,
    pub(crate) nsid: u32,
    /// First and last logical block of each range that a command names.
    pub(crate) blocks: &'a [(u64, u64)],
    pub(crate) key: Option<&'a [u8]>,
}

/// What happens to a command. Of several rules that match, the first that says something about a matter
/// decides it; delays add up.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) status: Option<Status>,
    pub(crate) unlogged: bool,
    pub(crate) executed: bool,
    pub(crate) delay_ns: u64,
    pub(crate) dropped: bool,
    /// With the seed of random flips.
    pub(crate) corrupt: Vec<(Corruption, u64)>,
    pub(crate) completion: Option<WrongCompletion>,
    pub(crate) device: DeviceFate,
}

/// What happens to the device.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct DeviceFate {
    pub(crate) events: Vec<AsyncEvent>,
    /// The media has become read only.
    pub(crate) read_only: bool,
    pub(crate) end: Option<End>,
}

/// How a device ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Fatal,
    Unplugged,
    PowerCut { seed: u64 },
}

/// What leaves commands without an answer, and the number of the rule that has done it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    rule: u32,
    /// `None` when a command was dropped.
    end: Option<End>,
}

impl Stop {
    fn of(entry: &Entry) -> Option<Self> {
        let end = End::of(&entry.rule.action, 0);
        (end.is_some() || entry.rule.action.dropped).then_some(Self { rule: entry.id, end })
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.end {
            None => "dropped a command",
            Some(End::Fatal) => "set Controller Fatal Status",
            Some(End::Unplugged) => "unplugged it",
            Some(End::PowerCut { .. }) => "cut its power",
        };
        write!(f, "rule {} of its faults has {done}", self.rule)
    }
}

impl End {
    /// Of several ends, the strongest.
    fn of(action: &FaultAction, seed: u64) -> Option<Self> {
        match action {
            FaultAction { power_cut: true, .. } => Some(Self::PowerCut { seed }),
            FaultAction { unplug: true, .. } => Some(Self::Unplugged),
            FaultAction { fatal: true, .. } => Some(Self::Fatal),
            _ => None,
        }
    }
}

impl Faults {
    /// What has left commands without an answer since the last reset, in words; `None` when no rule has.
    pub(crate) fn stopped_by(&self) -> Option<String> {
        lock(&self.stop).map(|stop| stop.to_string())
    }

    /// The controller was reset, and answers. What is gone stays gone.
    pub(crate) fn forget_stop(&self) {
        if !self.is_gone() {
            *lock(&self.stop) = None;
        }
    }

    /// An end is not forgotten for a command that was dropped.
    fn note_stop(&self, entry: &Entry) {
        let Some(stop) = Stop::of(entry) else { return };
        let mut last = lock(&self.stop);
        if last.is_none_or(|last| last.end.is_none()) {
            *last = Some(stop);
        }
    }

    /// Counts a command for every rule it matches; `None` when nothing happens to it.
    pub(crate) fn judge(&self, subject: &Subject<'_>) -> Option<Verdict> {
        let mut rules = lock(&self.rules);
        let mut verdict = None;
        for entry in &mut rules.entries {
            if entry.rule.matching.program.is_some() || !entry.rule.matching.covers(subject) {
                continue;
            }
            if let Some(number) = entry.meet() {
                self.note_stop(entry);
                verdict.get_or_insert_with(Verdict::default).add(&entry.rule.action, entry.seed(number));
            }
        }
        if verdict.is_some() {
            self.note(&rules);
        }
        verdict
    }

    /// True when a rule asks for keys that are in host memory.
    pub(crate) fn wants_keys(&self) -> bool {
        lock(&self.rules).entries.iter().any(|entry| entry.rule.matching.key.is_some())
    }

    /// True when a rule asks for logical blocks, which may be in host memory.
    pub(crate) fn wants_blocks(&self) -> bool {
        lock(&self.rules).entries.iter().any(|entry| entry.rule.matching.lba.is_some())
    }

    /// Counts programs of `pages` pages of media, up to the first that sets a rule off. Returns how many
    /// pages that leaves, and what happens to the device then.
    pub(crate) fn count_programs(&self, pages: u64) -> (u64, Option<DeviceFate>) {
        let mut rules = lock(&self.rules);
        let waiting = |entry: &&mut Entry| entry.rule.matching.program.is_some() && entry.hits == 0;
        let left = |entry: &Entry| entry.rule.matching.program.map_or(u64::MAX, |nth| nth - entry.matched);
        let next = rules.entries.iter_mut().filter(waiting).map(|entry| left(entry)).min();
        let counted = next.map_or(pages, |next| next.min(pages));
        let mut fate: Option<DeviceFate> = None;
        for entry in rules.entries.iter_mut().filter(waiting) {
            entry.matched += counted;
            if entry.rule.matching.program == Some(entry.matched) {
                entry.hits = 1;
                self.note_stop(entry);
                let seed = entry.seed(entry.matched);
                fate.get_or_insert_with(DeviceFate::default).add(&entry.rule.action, seed);
            }
        }
        self.note(&rules);
        (counted, fate)
    }
}

impl Entry {
    /// A command matches: its number, when the rule acts on it.
    fn meet(&mut self) -> Option<u64> {
        let FaultMatch { after, every, count, probability, .. } = self.rule.matching;
        self.matched += 1;
        let number = self.matched;
        let beyond = number.checked_sub(after).filter(|beyond| *beyond > 0)?;
        if beyond % every != 0 || count.is_some_and(|count| self.hits >= count) {
            return None;
        }
        if let Some(chance) = probability
            && fraction(random(self.rule.matching.seed, number)) >= chance
        {
            return None;
        }
        self.hits += 1;
        Some(number)
    }

    /// A seed for what is random about the nth match, apart from whether it is a fault.
    fn seed(&self, number: u64) -> u64 {
        random(!self.rule.matching.seed, number)
    }
}

impl FaultMatch {
    fn covers(&self, subject: &Subject<'_>) -> bool {
        let admin = subject.queue == 0;
        let overlaps = |range: &super::LbaRange| {
            subject.blocks.iter().any(|&(first, last)| first <= range.last && last >= range.first)
        };
        admin == self.is_for_admin()
            && self.opcode.is_none_or(|opcode| opcode.matches(subject.opcode))
            && self.namespace.is_none_or(|nsid| nsid == subject.nsid)
            && self.queue.is_none_or(|queue| queue == subject.queue)
            && self.lba.as_ref().is_none_or(overlaps)
            && self.key.as_ref().is_none_or(|key| subject.key.is_some_and(|bytes| key.matches(bytes)))
    }
}

impl Verdict {
    fn add(&mut self, action: &FaultAction, seed: u64) {
        if self.status.is_none() && action.status.is_some() {
            self.status = action.status;
            self.unlogged = !action.logged;
            self.executed = action.executed;
        }
        if action.dropped && !self.dropped {
            self.dropped = true;
            self.executed = action.executed;
        }
        let delay = action.delay.map_or(0, |delay| nanoseconds(delay, seed));
        self.delay_ns = self.delay_ns.saturating_add(delay);
        self.corrupt.extend(action.corrupt.clone().map(|corrupt| (corrupt, seed)));
        self.completion = self.completion.or(action.completion);
        self.device.add(action, seed);
    }
}

impl DeviceFate {
    fn add(&mut self, action: &FaultAction, seed: u64) {
        self.events.extend(action.event);
        self.read_only |= action.read_only;
        self.end = self.end.or(End::of(action, seed));
    }
}

fn nanoseconds(delay: FaultDelay, seed: u64) -> u64 {
    // At most ten minutes: both fit.
    let (min, max) = (delay.min.as_nanos() as u64, delay.max.as_nanos() as u64);
    min + ((max - min) as f64 * fraction(random(seed, 1))) as u64
}

/// The nth number of the series of a seed: SplitMix64, whose state is the position. So a rule's counters are
/// all there is to keep.
pub(crate) fn random(seed: u64, nth: u64) -> u64 {
    random::mix(seed.wrapping_add(nth.wrapping_mul(random::STEP)))
}

/// From 0 to below 1.
fn fraction(number: u64) -> f64 {
    (number >> 11) as f64 / (1u64 << 53) as f64
}

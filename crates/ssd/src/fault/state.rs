//! The rules of a device and how far each has come.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use serde::{Deserialize, Serialize};
use unvme_bus::lock;

use super::judge::{DeviceFate, Stop};
use super::rule::{COUNT_MAX, FaultRule};
use super::{FAULTS_MAX, FaultError};

/// A rule and what has come of it.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultReport {
    /// The rule, with its number.
    pub rule: FaultRule,
    /// Commands, or programs, that matched so far.
    pub matched: u64,
    /// Faults so far.
    pub hits: u64,
}

/// A rule as the device's state keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedFault {
    rule: FaultRule,
    matched: u64,
    hits: u64,
}

/// A rule at work.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: u32,
    pub(super) rule: FaultRule,
    pub(super) matched: u64,
    pub(super) hits: u64,
    /// It outlives the process.
    kept: bool,
}

impl Entry {
    /// True when the rule can still do something to a command.
    fn is_live(&self) -> bool {
        self.rule.matching.count.is_none_or(|count| self.hits < count)
    }

    fn report(&self) -> FaultReport {
        FaultReport { rule: self.rule.clone(), matched: self.matched, hits: self.hits }
    }
}

#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) entries: Vec<Entry>,
}

/// The rules of a device. A leaf among its locks: nothing else of the device is locked while they are.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Commands have to be looked at: a rule may be about them, or the media is read only.
    armed: AtomicBool,
    /// A rule waits for a program.
    counts_programs: AtomicBool,
    /// The media is read only.
    read_only: AtomicBool,
    /// It is so whatever the rules say: the store keeps nothing.
    is_write_protected: AtomicBool,
    /// Counters have moved since they were saved.
    moved: AtomicBool,
    /// Bits of [`super::power`].
    pub(super) power: AtomicU8,
    /// What a program of media has set off, until somebody who may sees to it. May be locked under `rules`,
    /// not around it.
    pub(super) pending: Mutex<Option<DeviceFate>>,
    pub(super) rules: Mutex<Rules>,
    /// What a rule has done last that leaves commands without an answer. May be locked under `rules`, not
    /// around it.
    pub(super) stop: Mutex<Option<Stop>>,
    /// What was wrong with the last command of [`super::command`].
    pub(crate) last_error: Mutex<String>,
}

impl Faults {
    /// Starts with what was saved, and rules of the configuration, which end with the process.
    pub(crate) fn start(saved: Vec<SavedFault>, configured: &[FaultRule]) -> Result<Self, FaultError> {
        let faults = Self::default();
        for saved in saved {
            let counted = saved.matched.max(saved.hits);
            if counted > COUNT_MAX || saved.hits > saved.matched || saved.rule.id.is_none() {
                return Err(FaultError::new("faults: counters or a number that are not possible"));
            }
            faults.put(saved.rule, true, (saved.matched, saved.hits))?;
        }
        for rule in configured {
            faults.put(rule.clone(), false, (0, 0))?;
        }
        Ok(faults)
    }

    /// Adds a rule and returns its number.
    pub(crate) fn add(&self, rule: FaultRule) -> Result<u32, FaultError> {
        self.put(rule, true, (0, 0))
    }

    /// Adds rules, all or none; their numbers. What is kept outlives the process.
    pub(crate) fn add_all(&self, rules: Vec<FaultRule>, kept: bool) -> Result<Vec<u32>, FaultError> {
        let mut added = Vec::new();
        for rule in rules {
            match self.put(rule, kept, (0, 0)) {
                Ok(id) => added.push(id),
                Err(error) => {
                    added.into_iter().for_each(|id| _ = self.clear(Some(id)));
                    return Err(error);
                }
            }
        }
        Ok(added)
    }

    fn put(&self, mut rule: FaultRule, kept: bool, counted: (u64, u64)) -> Result<u32, FaultError> {
        rule.check()?;
        let mut rules = lock(&self.rules);
        if rules.entries.len() == FAULTS_MAX {
            return Err(FaultError::new(format!("a device has at most {FAULTS_MAX} rules; clear some")));
        }
        let free = |id: &u32| !rules.entries.iter().any(|entry| entry.id == *id);
        let id = match rule.id {
            Some(id) if !free(&id) => {
                let reason = format!("id: there is a rule {id} already; expected another number, or none");
                return Err(FaultError::new(reason));
            }
            Some(id) => id,
            // There are fewer rules than numbers.
            None => (1..).find(free).unwrap_or(u32::MAX),
        };
        rule.id = Some(id);
        let (matched, hits) = counted;
        rules.entries.push(Entry { id, rule, matched, hits, kept });
        self.note(&rules);
        Ok(id)
    }

    /// Removes one rule, or all of them; how many there were. What a rule has done to the device as a whole
    /// ends with it.
    pub(crate) fn clear(&self, id: Option<u32>) -> usize {
        let mut rules = lock(&self.rules);
        let before = rules.entries.len();
        rules.entries.retain(|entry| id.is_some_and(|id| id != entry.id));
        self.note(&rules);
        before - rules.entries.len()
    }

    /// All rules, in the order in which they were added.
    pub(crate) fn list(&self) -> Vec<FaultReport> {
        lock(&self.rules).entries.iter().map(Entry::report).collect()
    }

    /// What the device's state keeps.
    pub(crate) fn saved(&self) -> Vec<SavedFault> {
        let kept = |entry: &Entry| {
            let Entry { rule, matched, hits, .. } = entry;
            SavedFault { rule: rule.clone(), matched: *matched, hits: *hits }
        };
        lock(&self.rules).entries.iter().filter(|entry| entry.kept).map(kept).collect()
    }

    /// True when counters have moved since the last time this was asked.
    pub(crate) fn take_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed) && self.moved.swap(false, Ordering::Relaxed)
    }

    /// True when commands have to be looked at. A rule that is added while commands are under way is seen by
    /// those that are taken after its adding has been answered.
    #[inline(always)]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Has commands looked at whatever the rules are: other queues are in the middle of a turn.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Release);
    }

    /// True when a rule waits for a program of media.
    #[inline(always)]
    pub(crate) fn counts_programs(&self) -> bool {
        self.counts_programs.load(Ordering::Relaxed)
    }

    /// From now on writes fail, whatever the rules say.
    pub(crate) fn protect(&self) {
        self.is_write_protected.store(true, Ordering::Relaxed);
        self.note(&lock(&self.rules));
    }

    /// True when writes fail.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// What the rules mean for the whole device; called under their lock.
    pub(super) fn note(&self, rules: &Rules) {
        let live = |entry: &&Entry| entry.is_live();
        let about_commands = |entry: &Entry| entry.rule.matching.program.is_none();
        let waits = |entry: &Entry| !about_commands(entry) && entry.hits == 0;
        let read_only = self.is_write_protected.load(Ordering::Relaxed)
            || rules.entries.iter().any(|entry| entry.rule.action.read_only && entry.hits > 0);
        // Without power nothing is programmed either, and nothing pending is forgotten.
        let programs = rules.entries.iter().any(waits) || self.is_off();
        // Where there is no flash, programs are counted command by command.
        let about_others = read_only || programs || lock(&self.pending).is_some();
        let armed = rules.entries.iter().filter(live).any(about_commands) || about_others;
        self.read_only.store(read_only, Ordering::Relaxed);
        self.counts_programs.store(programs, Ordering::Relaxed);
        self.armed.store(armed, Ordering::Release);
        self.moved.store(true, Ordering::Relaxed);
    }
}

//! What a lane does to pairs.

use std::sync::Arc;

use unvme::DmaBuf;

use super::addresses::Random;
use super::keys::Keys;
use super::pattern::{Pattern, Verb};

/// What a slot has been told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Task {
    pub(super) verb: Verb,
    /// Bytes of the value that is stored.
    pub(super) value_bytes: u32,
}

/// Pairs of one lane.
pub(super) struct Pairs {
    pub(super) keys: Arc<Keys>,
    pattern: Pattern,
    /// Numbers that are drawn count from the latest key back.
    pub(super) is_latest: bool,
    tasks: Vec<Task>,
    /// Of the lengths of lists.
    pub(super) random: Random,
    /// The key of the command that is being made.
    pub(super) key: Vec<u8>,
    /// Slots whose retrieve is done and whose store follows.
    pub(super) second: Vec<(u32, DmaBuf)>,
}

impl std::fmt::Debug for Pairs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pairs")
            .field("keys", &self.keys)
            .field("pattern", &self.pattern)
            .finish_non_exhaustive()
    }
}

impl Pairs {
    pub(super) fn new(keys: &Arc<Keys>, pattern: Pattern, is_latest: bool, random: Random) -> Self {
        let (keys, key) = (Arc::clone(keys), vec![0; keys.bytes.into()]);
        Self { keys, pattern, is_latest, tasks: Vec::new(), random, key, second: Vec::new() }
    }

    /// Makes room for the tasks of so many slots.
    pub(super) fn reserve(&mut self, slots: usize) {
        self.tasks.resize(slots, Task::default());
        self.second.reserve(slots);
    }

    /// True where a command may be followed by another one of its slot.
    pub(super) fn goes_on(&self) -> bool {
        self.pattern.verb(false) == Verb::Modify
    }

    /// What comes next, and to which key; `drawn` is one of those that were there before.
    pub(super) fn next(&mut self, drawn: u64, read: bool) -> (Verb, u64) {
        let verb = self.pattern.verb(read);
        let number = match verb {
            Verb::Insert => self.keys.insert(),
            _ if self.is_latest => self.keys.latest(drawn),
            _ => drawn,
        };
        (verb, number)
    }

    pub(super) fn keep(&mut self, slot: u32, task: Task) {
        if let Some(place) = self.tasks.get_mut(slot as usize) {
            *place = task;
        }
    }

    pub(super) fn task(&self, slot: u32) -> Task {
        self.tasks.get(slot as usize).copied().unwrap_or_default()
    }
}

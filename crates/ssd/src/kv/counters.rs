//! What the commands of Key Value namespaces have done, as log page C0h tells it.

use serde::{Deserialize, Serialize};
use unvme_spec::samsung_log::{CommandCounts, ValueSizes};

/// Commands of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tally {
    submitted: u64,
    succeeded: u64,
    /// Bytes of all values.
    bytes: u64,
    /// Largest value in bytes.
    largest: u32,
    /// Smallest value in bytes; of no meaning without a success.
    smallest: u32,
}

impl Tally {
    /// A command has arrived.
    #[inline]
    pub(crate) fn submitted(&mut self) {
        self.submitted += 1;
    }

    /// A command has succeeded with a value of `bytes`.
    #[inline]
    pub(crate) fn succeeded(&mut self, bytes: u32) {
        let smallest = if self.succeeded == 0 { bytes } else { self.smallest };
        self.smallest = smallest.min(bytes);
        self.largest = self.largest.max(bytes);
        self.succeeded += 1;
        self.bytes += u64::from(bytes);
    }

    fn add(&mut self, other: &Self) {
        if other.succeeded > 0 {
            let smallest = if self.succeeded == 0 { other.smallest } else { self.smallest };
            self.smallest = smallest.min(other.smallest);
            self.largest = self.largest.max(other.largest);
        }
        // One of the two may have been read from a file.
        self.submitted = self.submitted.saturating_add(other.submitted);
        self.succeeded = self.succeeded.saturating_add(other.succeeded);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// As the log page has it.
    pub(crate) fn counts(&self) -> CommandCounts {
        CommandCounts {
            submitted: self.submitted,
            succeeded: self.succeeded,
            failed: self.submitted.saturating_sub(self.succeeded),
        }
    }

    /// Sizes of the values of commands that succeeded.
    pub(crate) fn sizes(&self) -> ValueSizes {
        let average = self.bytes.checked_div(self.succeeded).unwrap_or(0);
        ValueSizes {
            max: self.largest,
            min: self.smallest,
            average: u32::try_from(average).unwrap_or(u32::MAX),
        }
    }
}

/// All commands that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KvCounters {
    pub(crate) retrieve: Tally,
    pub(crate) store: Tally,
    pub(crate) append: Tally,
    pub(crate) delete: Tally,
}

impl KvCounters {
    pub(crate) fn add(&mut self, other: &Self) {
        self.retrieve.add(&other.retrieve);
        self.store.add(&other.store);
        self.append.add(&other.append);
        self.delete.add(&other.delete);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_of_queues_add_up_to_one_over_all_their_commands() {
        let (mut first, mut second, idle) = (Tally::default(), Tally::default(), Tally::default());
        for bytes in [100, 300] {
            first.submitted();
            first.succeeded(bytes);
        }
        first.submitted();
        second.submitted();
        second.succeeded(50);
        let mut all = idle;
        for tally in [&first, &second, &idle] {
            all.add(tally);
        }
        assert_eq!(all.counts(), CommandCounts { submitted: 4, succeeded: 3, failed: 1 });
        assert_eq!(all.sizes(), ValueSizes { max: 300, min: 50, average: 150 });
        assert_eq!(idle.sizes(), ValueSizes::default());
    }
}

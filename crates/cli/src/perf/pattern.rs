//! `--workload`: which commands, in which order.

use clap::ValueEnum;

/// Which commands, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Pattern {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Sequential, reads and writes
    Rw,
    /// Random, reads and writes
    Randrw,
    /// Pairs: values of random keys
    Retrieve,
    /// Pairs: new values of random keys
    Store,
    /// Pairs: whether random keys are there
    Exist,
    /// Pairs: away with random keys
    Delete,
    /// Pairs: retrieves and stores
    Mixed,
    /// YCSB A: 50 % retrieves, 50 % stores
    YcsbA,
    /// YCSB B: 95 % retrieves, 5 % stores
    YcsbB,
    /// YCSB C: retrieves
    YcsbC,
    /// YCSB D: 95 % retrieves of the latest keys, 5 % stores of new ones
    YcsbD,
    /// YCSB E: 95 % lists of keys, 5 % stores of new ones
    YcsbE,
    /// YCSB F: 50 % retrieves, 50 % a retrieve and then a store of the same key
    YcsbF,
}

/// What is done to a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verb {
    #[default]
    Retrieve,
    Store,
    Exist,
    Delete,
    /// Keys from that one on.
    List,
    /// A store of a key that was not there.
    Insert,
    /// A retrieve, and when it is done a store.
    Modify,
}

impl Verb {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Retrieve | Self::Modify => "retrieve",
            Self::Store | Self::Insert => "store",
            Self::Exist => "exist",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }
}

impl Pattern {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Randread => "randread",
            Self::Randwrite => "randwrite",
            Self::Rw => "rw",
            Self::Randrw => "randrw",
            Self::Retrieve => "retrieve",
            Self::Store => "store",
            Self::Exist => "exist",
            Self::Delete => "delete",
            Self::Mixed => "mixed",
            Self::YcsbA => "ycsb-a",
            Self::YcsbB => "ycsb-b",
            Self::YcsbC => "ycsb-c",
            Self::YcsbD => "ycsb-d",
            Self::YcsbE => "ycsb-e",
            Self::YcsbF => "ycsb-f",
        }
    }

    /// True for those of pairs.
    pub(super) fn is_of_pairs(self) -> bool {
        !matches!(self, Self::Read | Self::Write | Self::Randread | Self::Randwrite | Self::Rw | Self::Randrw)
    }

    pub(super) fn is_random(self) -> bool {
        !matches!(self, Self::Read | Self::Write | Self::Rw)
    }

    /// True where the share of reads can be said.
    pub(super) fn is_mixed(self) -> bool {
        matches!(self, Self::Rw | Self::Randrw | Self::Mixed)
    }

    /// True when it can write, whatever the share of reads.
    pub(super) fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Randread | Self::Retrieve | Self::Exist | Self::YcsbC)
    }

    /// True where pairs are to be there before.
    pub(super) fn needs_pairs(self) -> bool {
        self.is_of_pairs() && self != Self::Store
    }

    /// Share of what reads, where it is not said.
    pub(super) fn read_percent(self) -> u8 {
        match self {
            Self::YcsbA | Self::YcsbF | Self::Rw | Self::Randrw | Self::Mixed => 50,
            Self::YcsbB | Self::YcsbD | Self::YcsbE => 95,
            Self::Read | Self::Randread | Self::Retrieve | Self::Exist | Self::YcsbC => 100,
            Self::Write | Self::Randwrite | Self::Store | Self::Delete => 0,
        }
    }

    /// True for those of the Yahoo! Cloud Serving Benchmark, whose keys and values are its own.
    pub(super) fn is_ycsb(self) -> bool {
        matches!(self, Self::YcsbA | Self::YcsbB | Self::YcsbC | Self::YcsbD | Self::YcsbE | Self::YcsbF)
    }

    /// What a command does to a pair, one that reads or another.
    pub(super) fn verb(self, read: bool) -> Verb {
        match (self, read) {
            (Self::Exist, _) => Verb::Exist,
            (Self::Delete, _) => Verb::Delete,
            (Self::YcsbE, true) => Verb::List,
            (_, true) => Verb::Retrieve,
            (Self::YcsbD | Self::YcsbE, false) => Verb::Insert,
            (Self::YcsbF, false) => Verb::Modify,
            (_, false) => Verb::Store,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_ycsb_do_what_its_papers_say() {
        let what = |pattern: Pattern| (pattern.read_percent(), pattern.verb(true), pattern.verb(false));
        assert_eq!(what(Pattern::YcsbA), (50, Verb::Retrieve, Verb::Store));
        assert_eq!(what(Pattern::YcsbB), (95, Verb::Retrieve, Verb::Store));
        assert_eq!(what(Pattern::YcsbC).0, 100);
        assert_eq!(what(Pattern::YcsbD), (95, Verb::Retrieve, Verb::Insert));
        assert_eq!(what(Pattern::YcsbE), (95, Verb::List, Verb::Insert));
        assert_eq!(what(Pattern::YcsbF), (50, Verb::Retrieve, Verb::Modify));
    }

    #[test]
    fn names_are_those_that_are_typed() {
        for pattern in Pattern::value_variants() {
            let typed = pattern.to_possible_value().expect("a word");
            assert_eq!(typed.get_name(), pattern.name());
            assert!(!pattern.is_ycsb() || pattern.is_of_pairs());
        }
    }
}

//! How two CPUs relate to each other: what a cache line has to cross between them.

use std::fmt;

use serde::Serialize;

/// The classes of the placement rules, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Relation {
    /// The same CPU: two threads take turns on it.
    SameCpu,
    /// Two CPUs of one core (SMT): they share its L1 and L2.
    Sibling,
    /// Two cores behind one L3.
    SameL3,
    /// Two cores of a node of which no L3 is listed.
    SameNode,
    /// Two cores of a node, each behind an L3 of its own.
    OtherL3,
    /// Two NUMA nodes of a socket.
    OtherNode,
    /// Two sockets.
    OtherSocket,
    /// Nothing is known of one of them.
    Unknown,
}

impl Relation {
    /// The classes that a machine may have, the nearest first.
    pub const ALL: [Self; 7] = [
        Self::SameCpu,
        Self::Sibling,
        Self::SameL3,
        Self::SameNode,
        Self::OtherL3,
        Self::OtherNode,
        Self::OtherSocket,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::SameCpu => "same CPU",
            Self::Sibling => "SMT sibling",
            Self::SameL3 => "same L3",
            Self::SameNode => "same node",
            Self::OtherL3 => "other L3",
            Self::OtherNode => "other node",
            Self::OtherSocket => "other socket",
            Self::Unknown => "other CPU",
        }
    }

    /// Why a machine has no two CPUs of this class.
    pub fn absence(self) -> &'static str {
        match self {
            Self::SameCpu => "no CPU is usable",
            Self::Sibling => "no core has two usable CPUs",
            Self::SameL3 => "no two usable cores share an L3",
            Self::SameNode => "the caches of all usable cores are listed",
            Self::OtherL3 => "all usable cores of a node share one L3",
            Self::OtherNode => "all usable cores of a socket are in one NUMA node",
            Self::OtherSocket => "all usable cores are in one socket",
            Self::Unknown => "the topology is known",
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

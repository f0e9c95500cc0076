//! Lists of identifiers (Base 4.6).
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Nsid;

/// Namespace List: 1024 namespace identifiers in increasing order; the unused ones at the end are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NamespaceList {
    /// The identifiers.
    pub identifiers: [u32; 1024],
}

layout!(NamespaceList, 4096, { identifiers: 0 });

impl NamespaceList {
    /// Entries of a list.
    pub const CAPACITY: usize = 1024;

    /// A list of the first [`NamespaceList::CAPACITY`] of `identifiers`, which are in increasing order.
    pub fn from_ascending(identifiers: impl IntoIterator<Item = Nsid>) -> Self {
        let mut list = Self::default();
        for (slot, nsid) in list.identifiers.iter_mut().zip(identifiers) {
            *slot = nsid.0;
        }
        list
    }

    /// The identifiers before the first zero.
    pub fn iter(&self) -> impl Iterator<Item = Nsid> + '_ {
        self.identifiers.iter().take_while(|&&nsid| nsid != 0).map(|&nsid| Nsid(nsid))
    }
}

/// Controller List: a count and up to 2047 controller identifiers in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ControllerList {
    /// Number of identifiers, 0 to 2047. It comes from the other side: use [`ControllerList::identifiers`].
    pub count: u16,
    /// Room for the identifiers; those behind the count are zero.
    pub entries: [u16; 2047],
}

layout!(ControllerList, 4096, { entries: 2 });

impl ControllerList {
    /// Identifiers a list holds at most.
    pub const CAPACITY: usize = 2047;

    /// A list of the first [`ControllerList::CAPACITY`] of `identifiers`, which are in increasing order.
    pub fn from_ascending(identifiers: impl IntoIterator<Item = u16>) -> Self {
        let mut list = Self::default();
        for (slot, identifier) in list.entries.iter_mut().zip(identifiers) {
            *slot = identifier;
            list.count = list.count.saturating_add(1);
        }
        list
    }

    /// The identifiers; `None` when the count is larger than the list.
    pub fn identifiers(&self) -> Option<&[u16]> {
        self.entries.get(..usize::from(self.count))
    }
}

/// Identify I/O Command Set data structure (CNS 1Ch; Base 5.1.13): up to 512 combinations of command sets,
/// each a set of bits indexed by CSI. The first zero ends the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IoCommandSets {
    /// The combinations, indexed by the I/O Command Set Profile feature.
    pub combinations: [u64; 512],
}

layout!(IoCommandSets, 4096, { combinations: 0 });
